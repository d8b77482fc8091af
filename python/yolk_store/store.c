/* SPDX-License-Identifier: Apache-2.0 */
/* The store for Python: what mooncake.store.MooncakeDistributedStore adds its setup() to. Each
 * method takes its arguments apart, releases the GIL, makes one call of the library and builds the
 * answer. */
#include <string.h>

#include "extension.h"

struct store {
    PyObject_HEAD struct session *session; /* NULL: not set up, or closed */
    int opening;
    int zero_copy_only;
};

enum verb { VERB_PUT, VERB_GET, VERB_EXIST, VERB_REMOVE, VERB_REMOVE_FORCED };

static const char not_set_up[] = "the store is not set up: call setup() and look at its result";

/* A session_leave is owed, unless NULL. */
static struct session *enter(struct store *self)
{
    if (self->session != NULL && session_enter(self->session))
        return self->session;
    (void)code_with_text(YOLK_ERR_CLOSED, not_set_up);
    return NULL;
}

static void fail_all(struct batch *batch, int64_t code)
{
    for (size_t i = 0; i < batch->count; i++)
        batch->kvs[i].result = code;
}

static enum yolk_status ask(struct yolk_store *store, struct batch *batch, enum verb verb)
{
    switch (verb) {
    case VERB_PUT:
        return yolk_store_put_replicas(store, batch->kvs, batch->count, batch->replica_num);
    case VERB_GET:
        return yolk_store_get(store, batch->kvs, batch->count);
    case VERB_EXIST:
        return yolk_store_exist(store, batch->kvs, batch->count);
    default:
        return yolk_store_remove(store, batch->kvs, batch->count, verb == VERB_REMOVE_FORCED);
    }
}

/* Every result becomes what Python is told. */
static void perform(struct store *self, struct batch *batch, enum verb verb)
{
    if (batch->failure != 0) {
        fail_all(batch, batch->failure);
        return;
    }
    struct session *session = enter(self);
    if (session == NULL) {
        fail_all(batch, code_of(YOLK_ERR_CLOSED));
        return;
    }
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status = ask(session_store(session), batch, verb);
    session_leave(session);
    Py_END_ALLOW_THREADS if (status != YOLK_OK)(void) code_of_failure(status);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t code = code_of(batch->kvs[i].result);
        batch->kvs[i].result = verb == VERB_PUT && code > 0 ? 0 : code;
    }
}

static PyObject *results_of(const struct batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);
    for (size_t i = 0; list != NULL && i < batch->count; i++) {
        PyObject *number = PyLong_FromLongLong(batch->kvs[i].result);
        if (number == NULL || PyList_SetItem(list, (Py_ssize_t)i, number) != 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The end of most methods: `taken` is what taking the arguments apart said. */
static PyObject *answer_one(struct store *self, struct batch *batch, int taken, enum verb verb)
{
    PyObject *result = NULL;
    if (taken == 0) {
        perform(self, batch, verb);
        result = PyLong_FromLongLong(batch->kvs[0].result);
    }
    batch_free(batch);
    return result;
}

static PyObject *answer_all(struct store *self, struct batch *batch, int taken, enum verb verb)
{
    PyObject *result = NULL;
    if (taken == 0) {
        perform(self, batch, verb);
        result = results_of(batch);
    }
    batch_free(batch);
    return result;
}

/* ---- opening and closing ---- */

static PyObject *store_open(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"master",     "name",        "host",           "segment_size",
                            "ssd_size",   "ssd_path",    "transport",      "secret_file",
                            "timeout_ms", "put_wait_ms", "zero_copy_only", NULL};
    struct store *self = (struct store *)object;
    struct yolk_store_options options;
    unsigned long long segment_size, ssd_size, timeout_ms, put_wait_ms;
    int zero_copy_only;
    int64_t code;
    yolk_store_options_init(&options);
    if (!argument_parse(args, named, "zzzKKzzzKKp", names, &options.master, &options.name,
                        &options.host, &segment_size, &ssd_size, &options.ssd_path,
                        &options.transport, &options.secret_file, &timeout_ms, &put_wait_ms,
                        &zero_copy_only))
        return NULL;
    if (self->session != NULL || self->opening)
        return PyLong_FromLongLong(
            code_with_text(YOLK_ERR_INVALID, "the store is set up already: close() it first"));
    options.segment_size_bytes = segment_size;
    options.ssd_size_bytes = ssd_size;
    options.timeout_ms = timeout_ms;
    options.put_wait_ms = put_wait_ms;
    struct session *session;
    self->opening = 1;
    Py_BEGIN_ALLOW_THREADS session = session_open(&options, &code);
    Py_END_ALLOW_THREADS self->opening = 0;
    self->zero_copy_only = zero_copy_only;
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
    Py_BEGIN_ALLOW_THREADS status = session_close(session);
    Py_END_ALLOW_THREADS if (status == YOLK_OK) return 0;
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
    struct session *session = enter(self);
    if (session == NULL)
        return PyLong_FromLong(1);
    int connected = yolk_store_is_connected(session_store(session));
    session_leave(session);
    return PyLong_FromLong(connected ? 0 : 2);
}

/* ---- memory ---- */

static PyObject *store_register_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer_ptr", "size", NULL};
    PyObject *pointer_object, *size_object;
    uint64_t pointer, size;
    if (!argument_parse(args, named, "OO:register_buffer", names, &pointer_object, &size_object) ||
        argument_address(pointer_object, &pointer) != 0 ||
        argument_address(size_object, &size) != 0)
        return NULL;
    struct session *session = enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status =
        yolk_store_register_buffer(session_store(session), (void *)(uintptr_t)pointer, size);
    session_leave(session);
    Py_END_ALLOW_THREADS return PyLong_FromLongLong(status == YOLK_OK ? 0
                                                                      : code_of_failure(status));
}

static PyObject *store_unregister_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer_ptr", NULL};
    PyObject *pointer_object;
    uint64_t pointer;
    if (!argument_parse(args, named, "O:unregister_buffer", names, &pointer_object) ||
        argument_address(pointer_object, &pointer) != 0)
        return NULL;
    struct session *session = enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status =
        yolk_store_unregister_buffer(session_store(session), (void *)(uintptr_t)pointer);
    session_leave(session);
    Py_END_ALLOW_THREADS return PyLong_FromLongLong(status == YOLK_OK ? 0
                                                                      : code_of_failure(status));
}

/* ---- putting ---- */

/* Without a local buffer there is nothing that a value could be copied through. */
static void check_copies(const struct store *self, struct batch *batch)
{
    if (self->zero_copy_only && batch->failure == 0)
        batch->failure = code_with_text(
            YOLK_ERR_INVALID, "setup() had local_buffer_size 0: only put_from, batch_put_from and "
                              "batch_put_from_multi_buffers put values");
}

static PyObject *store_put(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "value", "config", NULL};
    PyObject *key, *value, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "OO|O:put", names, &key, &value, &config))
        return NULL;
    PyObject *values = PyTuple_Pack(1, value);
    if (values == NULL)
        return NULL;
    batch_init(&batch);
    int taken = batch_one_key(&batch, key) != 0 || batch_values(&batch, values) != 0 ||
                batch_config(&batch, config) != 0;
    Py_DECREF(values);
    check_copies((struct store *)object, &batch);
    return answer_one((struct store *)object, &batch, taken, VERB_PUT);
}

static PyObject *store_put_parts(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"config", NULL};
    PyObject *config = NULL, *none = PyTuple_New(0);
    struct batch batch;
    Py_ssize_t given = PyTuple_Size(args);
    if (none == NULL)
        return NULL;
    int named_well = argument_parse(none, named, "|$O:put_parts", names, &config);
    Py_DECREF(none);
    if (!named_well)
        return NULL;
    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "put_parts() needs a key");
        return NULL;
    }
    PyObject *parts = PyTuple_GetSlice(args, 1, given);
    if (parts == NULL)
        return NULL;
    batch_init(&batch);
    int taken = batch_one_key(&batch, PyTuple_GetItem(args, 0)) != 0 ||
                batch_parts(&batch, parts) != 0 || batch_config(&batch, config) != 0;
    Py_DECREF(parts);
    check_copies((struct store *)object, &batch);
    return answer_one((struct store *)object, &batch, taken, VERB_PUT);
}

static PyObject *store_put_batch(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "values", "config", NULL};
    PyObject *keys, *values, *config = NULL, *result = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "OO|O:put_batch", names, &keys, &values, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_values(&batch, values) != 0 ||
                batch_config(&batch, config) != 0;
    if (taken == 0) {
        int64_t first = 0;
        check_copies((struct store *)object, &batch);
        perform((struct store *)object, &batch, VERB_PUT);
        for (size_t i = 0; i < batch.count && first == 0; i++)
            first = batch.kvs[i].result;
        result = PyLong_FromLongLong(batch.failure != 0 ? batch.failure : first);
    }
    batch_free(&batch);
    return result;
}

static PyObject *store_put_from(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "buffer_ptr", "size", "config", NULL};
    PyObject *key, *pointer, *size, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "OOO|O:put_from", names, &key, &pointer, &size, &config))
        return NULL;
    PyObject *pointers = PyTuple_Pack(1, pointer), *sizes = PyTuple_Pack(1, size);
    batch_init(&batch);
    int taken = pointers == NULL || sizes == NULL || batch_one_key(&batch, key) != 0 ||
                batch_pieces(&batch, pointers, sizes) != 0 || batch_config(&batch, config) != 0;
    Py_XDECREF(pointers);
    Py_XDECREF(sizes);
    return answer_one((struct store *)object, &batch, taken, VERB_PUT);
}

static PyObject *store_batch_put_from(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "buffer_ptrs", "sizes", "config", NULL};
    PyObject *keys, *pointers, *sizes, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "OOO|O:batch_put_from", names, &keys, &pointers, &sizes,
                        &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_pieces(&batch, pointers, sizes) != 0 ||
                batch_config(&batch, config) != 0;
    return answer_all((struct store *)object, &batch, taken, VERB_PUT);
}

static PyObject *store_batch_put_from_multi_buffers(PyObject *object, PyObject *args,
                                                    PyObject *named)
{
    static char *names[] = {"keys", "all_buffer_ptrs", "all_sizes", "config", NULL};
    PyObject *keys, *pointers, *sizes, *config = NULL;
    struct store *self = (struct store *)object;
    struct batch batch;
    if (!argument_parse(args, named, "OOO|O:batch_put_from_multi_buffers", names, &keys, &pointers,
                        &sizes, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_piece_lists(&batch, pointers, sizes) != 0 ||
                batch_config(&batch, config) != 0;
    if (taken == 0 && self->session == NULL) {
        /* As upstream's: no result at all. */
        (void)code_with_text(YOLK_ERR_CLOSED, not_set_up);
        batch_free(&batch);
        return PyList_New(0);
    }
    return answer_all(self, &batch, taken, VERB_PUT);
}

/* ---- getting ---- */

static PyObject *store_get_into(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "buffer_ptr", "size", NULL};
    PyObject *key, *pointer, *size;
    struct batch batch;
    if (!argument_parse(args, named, "OOO:get_into", names, &key, &pointer, &size))
        return NULL;
    PyObject *pointers = PyTuple_Pack(1, pointer), *sizes = PyTuple_Pack(1, size);
    batch_init(&batch);
    int taken = pointers == NULL || sizes == NULL || batch_one_key(&batch, key) != 0 ||
                batch_pieces(&batch, pointers, sizes) != 0;
    Py_XDECREF(pointers);
    Py_XDECREF(sizes);
    return answer_one((struct store *)object, &batch, taken, VERB_GET);
}

static PyObject *store_batch_get_into(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "buffer_ptrs", "sizes", NULL};
    PyObject *keys, *pointers, *sizes;
    struct batch batch;
    if (!argument_parse(args, named, "OOO:batch_get_into", names, &keys, &pointers, &sizes))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_pieces(&batch, pointers, sizes) != 0;
    return answer_all((struct store *)object, &batch, taken, VERB_GET);
}

static PyObject *store_batch_get_into_multi_buffers(PyObject *object, PyObject *args,
                                                    PyObject *named)
{
    static char *names[] = {"keys", "all_buffer_ptrs", "all_sizes", "prefer_alloc_in_same_node",
                            NULL};
    PyObject *keys, *pointers, *sizes;
    struct batch batch;
    int same_node = 0; /* a get takes the nearest copy in any case */
    if (!argument_parse(args, named, "OOO|p:batch_get_into_multi_buffers", names, &keys, &pointers,
                        &sizes, &same_node))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_piece_lists(&batch, pointers, sizes) != 0;
    return answer_all((struct store *)object, &batch, taken, VERB_GET);
}

/* The value as it is in the store; the caller is in the session. Without the GIL. */
static enum yolk_status look(struct session *session, const struct yolk_kv *kv,
                             struct yolk_buffer *buffer)
{
    return yolk_store_get_buffer(session_store(session), kv->key, kv->key_size, buffer);
}

/* The value as bytes, b"" if there is none; NULL with an exception. */
static PyObject *bytes_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_buffer buffer;
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status = look(session, kv, &buffer);
    Py_END_ALLOW_THREADS if (status != YOLK_OK)
    {
        (void)code_of_failure(status);
        return PyBytes_FromStringAndSize(NULL, 0);
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)buffer.size);
    char *to = bytes == NULL ? NULL : PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS if (to != NULL && buffer.size > 0) memcpy(to, buffer.data, buffer.size);
    yolk_store_release_buffer(session_store(session), &buffer);
    Py_END_ALLOW_THREADS return bytes;
}

/* A BufferHandle, None if there is none; NULL with an exception. */
static PyObject *handle_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_buffer buffer;
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status = look(session, kv, &buffer);
    Py_END_ALLOW_THREADS if (status == YOLK_OK) return handle_make(module_state()->handle_type,
                                                                   session, &buffer);
    (void)code_of_failure(status);
    Py_RETURN_NONE;
}

/* Places of the copies as [(medium, segment, offset, size)], None if there is none. */
static PyObject *places_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_replica replicas[8];
    size_t count = 0;
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status =
        yolk_store_locate(session_store(session), kv->key, kv->key_size, replicas,
                          sizeof(replicas) / sizeof(replicas[0]), &count);
    Py_END_ALLOW_THREADS if (status != YOLK_OK)
    {
        (void)code_of_failure(status);
        Py_RETURN_NONE;
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count && i < sizeof(replicas) / sizeof(replicas[0]);
         i++) {
        PyObject *place = Py_BuildValue(
            "(iKKK)", (int)replicas[i].medium, (unsigned long long)replicas[i].segment,
            (unsigned long long)replicas[i].offset, (unsigned long long)replicas[i].size);
        if (place == NULL || PyList_Append(list, place) != 0)
            Py_CLEAR(list);
        Py_XDECREF(place);
    }
    return list;
}

typedef PyObject *(*each_key)(struct session *session, const struct yolk_kv *kv);

/* One answer a key; what `none` makes if the store is not set up. */
static PyObject *answer_each(struct store *self, PyObject *keys, each_key each, each_key none)
{
    struct batch batch;
    PyObject *list = NULL;
    batch_init(&batch);
    if (batch_keys(&batch, keys) == 0)
        list = PyList_New((Py_ssize_t)batch.count);
    struct session *session = list == NULL ? NULL : enter(self);
    for (size_t i = 0; list != NULL && i < batch.count; i++) {
        PyObject *item = session == NULL ? none(NULL, NULL) : each(session, &batch.kvs[i]);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    if (session != NULL)
        session_leave(session);
    batch_free(&batch);
    return list;
}

static PyObject *no_bytes(struct session *session, const struct yolk_kv *kv)
{
    (void)session;
    (void)kv;
    return PyBytes_FromStringAndSize(NULL, 0);
}

static PyObject *no_object(struct session *session, const struct yolk_kv *kv)
{
    (void)session;
    (void)kv;
    Py_RETURN_NONE;
}

/* As answer_each for one key given alone. */
static PyObject *answer_key(PyObject *object, PyObject *args, PyObject *named, const char *format,
                            each_key each, each_key none)
{
    static char *names[] = {"key", NULL};
    PyObject *key;
    if (!argument_parse(args, named, format, names, &key))
        return NULL;
    PyObject *keys = PyTuple_Pack(1, key);
    PyObject *list = keys == NULL ? NULL : answer_each((struct store *)object, keys, each, none);
    PyObject *item = list == NULL ? NULL : PyList_GetItem(list, 0);
    Py_XINCREF(item);
    Py_XDECREF(list);
    Py_XDECREF(keys);
    return item;
}

static PyObject *answer_keys(PyObject *object, PyObject *args, PyObject *named, const char *format,
                             each_key each, each_key none)
{
    static char *names[] = {"keys", NULL};
    PyObject *keys;
    if (!argument_parse(args, named, format, names, &keys))
        return NULL;
    return answer_each((struct store *)object, keys, each, none);
}

static PyObject *store_get(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get", bytes_of, no_bytes);
}

static PyObject *store_get_batch(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:get_batch", bytes_of, no_bytes);
}

static PyObject *store_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get_buffer", handle_of, no_object);
}

static PyObject *store_batch_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:batch_get_buffer", handle_of, no_object);
}

static PyObject *store_places(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:_places", places_of, no_object);
}

/* ---- asking and removing ---- */

static PyObject *store_is_exist(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", NULL};
    PyObject *key;
    struct batch batch;
    if (!argument_parse(args, named, "O:is_exist", names, &key))
        return NULL;
    batch_init(&batch);
    return answer_one((struct store *)object, &batch, batch_one_key(&batch, key), VERB_EXIST);
}

static PyObject *store_batch_is_exist(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", NULL};
    PyObject *keys;
    struct batch batch;
    if (!argument_parse(args, named, "O:batch_is_exist", names, &keys))
        return NULL;
    batch_init(&batch);
    return answer_all((struct store *)object, &batch, batch_keys(&batch, keys), VERB_EXIST);
}

static PyObject *store_get_size(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", NULL};
    PyObject *key, *result = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "O:get_size", names, &key))
        return NULL;
    batch_init(&batch);
    if (batch_one_key(&batch, key) == 0) {
        struct session *session = enter((struct store *)object);
        int64_t code = code_of(YOLK_ERR_CLOSED);
        if (session != NULL) {
            uint64_t size = 0;
            enum yolk_status status;
            Py_BEGIN_ALLOW_THREADS status = yolk_store_size(
                session_store(session), batch.kvs[0].key, batch.kvs[0].key_size, &size);
            session_leave(session);
            Py_END_ALLOW_THREADS code = status == YOLK_OK ? (int64_t)size : code_of_failure(status);
        }
        result = PyLong_FromLongLong(code);
    }
    batch_free(&batch);
    return result;
}

static PyObject *store_remove(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "force", NULL};
    PyObject *key;
    int force = 0;
    struct batch batch;
    if (!argument_parse(args, named, "O|p:remove", names, &key, &force))
        return NULL;
    batch_init(&batch);
    return answer_one((struct store *)object, &batch, batch_one_key(&batch, key),
                      force ? VERB_REMOVE_FORCED : VERB_REMOVE);
}

static PyObject *store_batch_remove(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "force", NULL};
    PyObject *keys;
    int force = 0;
    struct batch batch;
    if (!argument_parse(args, named, "O|p:batch_remove", names, &keys, &force))
        return NULL;
    batch_init(&batch);
    return answer_all((struct store *)object, &batch, batch_keys(&batch, keys),
                      force ? VERB_REMOVE_FORCED : VERB_REMOVE);
}

static PyObject *store_remove_all(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"force", NULL};
    int force = 0;
    if (!argument_parse(args, named, "|p:remove_all", names, &force))
        return NULL;
    struct session *session = enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    uint64_t removed = 0;
    enum yolk_status status;
    Py_BEGIN_ALLOW_THREADS status = yolk_store_remove_all(session_store(session), force, &removed);
    session_leave(session);
    Py_END_ALLOW_THREADS return PyLong_FromLongLong(status == YOLK_OK ? (int64_t)removed
                                                                      : code_of_failure(status));
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
    {"close", store_close, METH_NOARGS,
     "close($self, /)\n--\n\nWaits for the calls in progress, takes this process's memory out of "
     "the cluster and ends the session. 0, also if it was closed before; setup() may follow."},
    {"health_check", store_health_check, METH_NOARGS,
     "health_check($self, /)\n--\n\n0: the master answers; 1: not set up; 2: no session now."},
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
    METHOD(get, "($self, key)", "The value as bytes; b\"\" if it is not there, or on an error."),
    METHOD(get_batch, "($self, keys)", "A list of what get() gives."),
    METHOD(get_buffer, "($self, key)",
           "A BufferHandle of the value where it lies; None if it is not there, or on an error."),
    METHOD(batch_get_buffer, "($self, keys)", "A list of what get_buffer() gives."),
    METHOD(get_into, "($self, key, buffer_ptr, size)",
           "Reads the value into the `size` bytes at the address. Its size, or a negative code."),
    METHOD(batch_get_into, "($self, keys, buffer_ptrs, sizes)",
           "Reads keys[i] into the sizes[i] bytes at buffer_ptrs[i]. A list of sizes or negative "
           "codes."),
    METHOD(batch_get_into_multi_buffers,
           "($self, keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=False)",
           "Reads keys[i] into the pieces at all_buffer_ptrs[i], scattered. A list of sizes or "
           "negative codes."),
    METHOD(is_exist, "($self, key)", "1: there, 0: not there, or a negative code."),
    METHOD(batch_is_exist, "($self, keys)", "A list of what is_exist() gives."),
    METHOD(get_size, "($self, key)", "The bytes of the value, or a negative code: -704 not there."),
    METHOD(remove, "($self, key, force=False)",
           "0, or a negative code: -704 not there, -706 leased to a reader and not `force`."),
    METHOD(batch_remove, "($self, keys, force=False)", "A list of what remove() gives."),
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
