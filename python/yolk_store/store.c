/* SPDX-License-Identifier: Apache-2.0 */
/* The store for Python: what mooncake.store.MooncakeDistributedStore adds its setup() to. Each
 * method takes its arguments apart, releases the GIL, makes one call of the library and builds the
 * answer. */
#include <stdlib.h>

#include "calls.h"

/* ---- opening and closing ---- */

static PyObject *store_open(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"master",          "name",           "host",
                            "segment_size",    "ssd_size",       "ssd_path",
                            "transport",       "secret_file",    "timeout_ms",
                            "put_wait_ms",     "zero_copy_only", "exist_timeout_ms",
                            "tenant_id",       "real_client",    "pool_size",
                            "connect_wait_ms", "egm_enabled",    "egm_numa_nodes",
                            "egm_handle_type", "egm_chunk_size", NULL};
    struct store *self = (struct store *)object;
    struct yolk_store_options options;
    unsigned long long segment_size, ssd_size, timeout_ms, put_wait_ms, exist_timeout_ms, pool_size,
        connect_wait_ms, egm_chunk_size = 0;
    int zero_copy_only;
    int64_t code;
    yolk_store_options_init(&options);
    if (!argument_parse(args, named, "zzzKKzzzKKpKzzKK|pzzK", names, &options.master, &options.name,
                        &options.host, &segment_size, &ssd_size, &options.ssd_path,
                        &options.transport, &options.secret_file, &timeout_ms, &put_wait_ms,
                        &zero_copy_only, &exist_timeout_ms, &options.tenant_id,
                        &options.real_client, &pool_size, &connect_wait_ms, &options.egm_enabled,
                        &options.egm_numa_nodes, &options.egm_handle_type, &egm_chunk_size))
        return NULL;
    if (self->session != NULL || self->opening)
        return PyLong_FromLongLong(
            code_with_text(YOLK_ERR_INVALID, "the store is set up already: close() it first"));
    options.segment_size_bytes = segment_size;
    options.ssd_size_bytes = ssd_size;
    options.timeout_ms = timeout_ms;
    options.put_wait_ms = put_wait_ms;
    options.pool_size_bytes = pool_size;
    options.connect_wait_ms = connect_wait_ms;
    options.egm_chunk_bytes_max = egm_chunk_size;
    options.plugin_paths = getenv("YOLK_PLUGIN_PATHS");
    const char *huge = getenv("MC_STORE_USE_HUGEPAGE");
    options.huge_pages = huge != NULL && huge[0] != '\0' && huge[0] != '0';
    enum yolk_status status = yolk_store_options_environment(&options);
    if (status != YOLK_OK)
        return PyLong_FromLongLong(code_of_failure(status));
    struct session *session;
    self->opening = 1;
    PyThreadState *thread = PyEval_SaveThread();
    session = session_open(&options, &code);
    PyEval_RestoreThread(thread);
    self->opening = 0;
    self->zero_copy_only = zero_copy_only;
    self->exist_timeout_ms = exist_timeout_ms;
    self->timeout_ms = timeout_ms;
    if (session != NULL)
        session_own(session, &self->session);
    return PyLong_FromLongLong(code);
}

static int64_t close_it(struct store *self)
{
    struct session *session = self->session;
    int status;
    if (session == NULL)
        return 0;
    session_disown(session);
    PyThreadState *thread = PyEval_SaveThread();
    status = session_close(session);
    PyEval_RestoreThread(thread);
    if (status == YOLK_OK)
        return 0;
    int64_t code = code_of_failure(status);
    if (self->session == NULL)
        session_own(session, &self->session);
    return code;
}

static PyObject *store_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(close_it((struct store *)object));
}

static void store_dealloc(PyObject *object)
{
    struct store *self = (struct store *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (close_it(self) != 0)
        session_disown(self->session); /* its memory is not quiet: it stays for ever */
    release(object);
    Py_DECREF(type);
}

static PyObject *store_health_check(PyObject *object, PyObject *unused)
{
    struct store *self = (struct store *)object;
    (void)unused;
    struct session *session = calls_enter(self);
    /* One that a close() could not finish still tells how it is; nobody ends it under the GIL. */
    if (session == NULL)
        return PyLong_FromLong(
            self->session == NULL ? 1 : yolk_store_health(session_store(self->session)));
    int health = yolk_store_health(session_store(session));
    session_leave(session);
    return PyLong_FromLong(health);
}

/* ---- memory ---- */

static PyObject *store_register_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer_ptr", "size", NULL};
    PyObject *pointer_object, *size_object;
    uint64_t pointer, size;
    if (!argument_parse(args, named, "OO:register_buffer", names, &pointer_object, &size_object) ||
        argument_number(pointer_object, names[0], &pointer) != 0 ||
        argument_number(size_object, names[1], &size) != 0)
        return NULL;
    struct session *session = calls_enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_register_buffer(session_store(session), (void *)(uintptr_t)pointer, size);
    session_leave(session);
    PyEval_RestoreThread(thread);
    return PyLong_FromLongLong(status == YOLK_OK ? 0 : code_of_failure(status));
}

static PyObject *store_unregister_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer_ptr", NULL};
    PyObject *pointer_object;
    uint64_t pointer;
    if (!argument_parse(args, named, "O:unregister_buffer", names, &pointer_object) ||
        argument_number(pointer_object, names[0], &pointer) != 0)
        return NULL;
    struct session *session = calls_enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_unregister_buffer(session_store(session), (void *)(uintptr_t)pointer);
    session_leave(session);
    PyEval_RestoreThread(thread);
    return PyLong_FromLongLong(status == YOLK_OK ? 0 : code_of_failure(status));
}

static PyObject *store_alloc_from_mem_pool(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"size", NULL};
    PyObject *size_object;
    uint64_t size;
    void *memory = NULL;
    if (!argument_parse(args, named, "O:alloc_from_mem_pool", names, &size_object) ||
        argument_number(size_object, names[0], &size) != 0)
        return NULL;
    struct session *session = calls_enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLong(0);
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_pool_alloc(session_store(session), size, &memory);
    session_leave(session);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK)
        (void)code_of_failure(status);
    return PyLong_FromVoidPtr(status == YOLK_OK ? memory : NULL);
}

#define METHOD(name, signature, text)                                                              \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))store_##name, METH_VARARGS | METH_KEYWORDS,            \
            #name signature "\n--\n\n" text                                                        \
    }

static PyMethodDef methods[] = {
    {"_open", (PyCFunction)(void (*)(void))store_open, METH_VARARGS | METH_KEYWORDS,
     "What setup() does once it has made sense of its arguments."},
    {"_places", (PyCFunction)(void (*)(void))store_places, METH_VARARGS | METH_KEYWORDS,
     "Of each key the (medium, segment, offset, size) of its copies, or None."},
    {"_keys", store_keys, METH_NOARGS, "Every key that is text, or a negative code."},
    {"close", store_close, METH_NOARGS,
     "close($self, /)\n--\n\nWaits for the calls in progress, takes this process's memory out of "
     "the cluster and ends the session. 0, also if it was closed before; setup() may follow."},
    {"health_check", store_health_check, METH_NOARGS,
     "health_check($self, /)\n--\n\n0: the master answers; 1: not set up; 2: no session now; 3: "
     "close() "
     "left something, call it again; 4: the CUDA driver would not take memory back."},
    METHOD(alloc_from_mem_pool, "($self, size)",
           "The address of `size` bytes of the pool that setup_dummy() made: page-aligned, zeroed, "
           "registered, until close(). 0 if there is not so much."),
    METHOD(register_buffer, "($self, buffer_ptr, size)",
           "Registers `size` bytes at the address, so that data reaches them without a detour. 0 "
           "or a negative code."),
    METHOD(unregister_buffer, "($self, buffer_ptr)",
           "Undoes register_buffer with the same address. 0 or a negative code."),
    METHOD(put, "($self, key, value, config=None)",
           "Stores a bytes-like value. 0, also if the key is there (which changes nothing), or a "
           "negative code: -200 no space."),
    METHOD(put_parts, "($self, key, *parts, config=None)",
           "Stores the bytes-like parts, one after the other, as one value. 0 or a negative code."),
    METHOD(put_batch, "($self, keys, values, config=None)",
           "Stores a bytes-like value a key. 0, or the first negative code."),
    METHOD(put_from, "($self, key, buffer_ptr, size, config=None)",
           "Stores `size` bytes at the address. 0 or a negative code."),
    METHOD(batch_put_from, "($self, keys, buffer_ptrs, sizes, config=None)",
           "Stores sizes[i] bytes at buffer_ptrs[i] as keys[i]. A list of 0 or negative codes; a "
           "key given twice is stored once, the first wins."),
    METHOD(batch_put_from_multi_buffers, "($self, keys, all_buffer_ptrs, all_sizes, config=None)",
           "Stores the pieces at all_buffer_ptrs[i], gathered, as keys[i]. A list of 0 or negative "
           "codes."),
    METHOD(
        upsert, "($self, key, value, config=None)",
        "As put(), in place of the value that the key has, if any: readers get the old one or the "
        "new one, whole."),
    METHOD(upsert_parts, "($self, key, *parts, config=None)", "As put_parts(), and as upsert()."),
    METHOD(upsert_batch, "($self, keys, values, config=None)",
           "As put_batch(), and as upsert(); of a key given twice the last wins."),
    METHOD(upsert_from, "($self, key, buffer_ptr, size, config=None)",
           "As put_from(), and as upsert()."),
    METHOD(batch_upsert_from, "($self, keys, buffer_ptrs, sizes, config=None)",
           "As batch_put_from(), and as upsert(); of a key given twice the last wins."),
    METHOD(get, "($self, key)", "The value as bytes; b\"\" if it is not there, or on an error."),
    METHOD(get_batch, "($self, keys)", "A list of what get() gives."),
    METHOD(get_buffer, "($self, key)",
           "A BufferHandle of the value where it lies; None if it is not there, or on an error."),
    METHOD(batch_get_buffer, "($self, keys)", "A list of what get_buffer() gives."),
    METHOD(get_device_buffer, "($self, key, device=0)",
           "A DeviceBuffer of the value where it lies, for kernels on GPUs of this process (memory "
           "of EGM pools and GPUs of the NVLink domain); None if it is not there, not reached by "
           "GPUs, or on an error. device: the GPU that tensors made from it are said to be on."),
    METHOD(get_into, "($self, key, buffer_ptr, size)",
           "Reads the value into the `size` bytes at the address. Its size, or a negative code."),
    METHOD(batch_get_into, "($self, keys, buffer_ptrs, sizes)",
           "Reads keys[i] into the sizes[i] bytes at buffer_ptrs[i]. A list of sizes or negative "
           "codes."),
    METHOD(batch_get_into_multi_buffers,
           "($self, keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=False)",
           "Reads keys[i] into the pieces at all_buffer_ptrs[i], scattered. A list of sizes or "
           "negative codes."),
    METHOD(get_into_ranges,
           "($self, buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes)",
           "Reads all_sizes[b][k][i] bytes from all_src_offsets[b][k][i] on of the value of "
           "all_keys[b][k] to buffer_ptrs[b] + all_dst_offsets[b][k][i]. Sizes or negative codes, "
           "in lists as all_sizes."),
    METHOD(is_exist, "($self, key)",
           "1: there, 0: not there, or a negative code: after exist_timeout_ms at most, and at "
           "once if the master's host refuses the connection."),
    METHOD(batch_is_exist, "($self, keys)", "A list of what is_exist() gives."),
    METHOD(get_size, "($self, key)", "The bytes of the value, or a negative code: -704 not there."),
    METHOD(remove, "($self, key, force=False)",
           "0, or a negative code: -704 not there, -706 leased to a reader and not `force`."),
    METHOD(batch_remove, "($self, keys, force=False)", "A list of what remove() gives."),
    METHOD(
        batch_replica_clear, "($self, keys, segment_name='')",
        "Drops the copies that lie in memory of the node of that name (get_hostname() there) and "
        "leaves the others, so those in GDS files; with '' the values as a whole. A list of the "
        "keys of which something was dropped: not those leased to a reader."),
    METHOD(remove_all, "($self, force=False)",
           "Removes every value, those leased to readers only with `force`. How many, or a "
           "negative code."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The calls of the store; mooncake.store.MooncakeDistributedStore adds setup()."},
    {0, NULL},
};

PyType_Spec store_spec = {
    .name = "mooncake._store.Store",
    .basicsize = sizeof(struct store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
