/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that read values, or say where they lie. */
#include <string.h>

#include "calls.h"

PyObject *store_get_into(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "buffer_ptr", "size", NULL};
    PyObject *key, *pointer, *size;
    struct batch batch;
    if (!argument_parse(args, named, "OOO:get_into", names, &key, &pointer, &size))
        return NULL;
    batch_init(&batch);
    int taken = batch_one_key(&batch, key) != 0 || batch_piece(&batch, pointer, size) != 0;
    return calls_answer_one((struct store *)object, &batch, taken, VERB_GET);
}

PyObject *store_batch_get_into(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "buffer_ptrs", "sizes", NULL};
    PyObject *keys, *pointers, *sizes;
    struct batch batch;
    if (!argument_parse(args, named, "OOO:batch_get_into", names, &keys, &pointers, &sizes))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_pieces(&batch, pointers, sizes) != 0;
    return calls_answer_all((struct store *)object, &batch, taken, VERB_GET);
}

PyObject *store_batch_get_into_multi_buffers(PyObject *object, PyObject *args, PyObject *named)
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
    return calls_answer_all((struct store *)object, &batch, taken, VERB_GET);
}

/* The value as it is in the store; the caller is in the session. Without the GIL. */
static enum yolk_status look(struct session *session, const struct yolk_kv *kv,
                             struct yolk_buffer *buffer)
{
    return yolk_store_get_buffer(session_store(session), kv->key, kv->key_size, buffer);
}

/* The value as bytes, b"" if there is none; NULL with an exception. */
static PyObject *bytes_of(struct session *session, const struct yolk_kv *kv,
                          enum yolk_status *status)
{
    struct yolk_buffer buffer;
    if (session == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    PyThreadState *thread = PyEval_SaveThread();
    *status = look(session, kv, &buffer);
    PyEval_RestoreThread(thread);
    if (*status != YOLK_OK) {
        (void)code_of_failure(*status);
        return PyBytes_FromStringAndSize(NULL, 0);
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)buffer.size);
    char *to = bytes == NULL ? NULL : PyBytes_AsString(bytes);
    thread = PyEval_SaveThread();
    if (to != NULL && buffer.size > 0)
        memcpy(to, buffer.data, buffer.size);
    yolk_store_release_buffer(session_store(session), &buffer);
    PyEval_RestoreThread(thread);
    return bytes;
}

/* A BufferHandle, None if there is none; NULL with an exception. */
static PyObject *handle_of(struct session *session, const struct yolk_kv *kv,
                           enum yolk_status *status)
{
    struct yolk_buffer buffer;
    if (session == NULL)
        Py_RETURN_NONE;
    PyThreadState *thread = PyEval_SaveThread();
    *status = look(session, kv, &buffer);
    PyEval_RestoreThread(thread);
    if (*status == YOLK_OK)
        return handle_make(module_state()->handle_type, session, &buffer);
    (void)code_of_failure(*status);
    Py_RETURN_NONE;
}

/* The six fields of a copy in a GDS file, None of another one. */
static PyObject *descriptor_of(const struct yolk_replica *replica)
{
    const struct yolk_gds_descriptor *gds = &replica->gds;
    if (replica->medium != YOLK_MEDIUM_GDS)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(y#y#KKKK)", (const char *)gds->owner_client_id, (Py_ssize_t)sizeof(gds->owner_client_id),
        (const char *)gds->storage_id, (Py_ssize_t)sizeof(gds->storage_id),
        (unsigned long long)gds->storage_generation, (unsigned long long)gds->value_offset,
        (unsigned long long)gds->value_size, (unsigned long long)gds->allocated_size);
}

/* Places of the copies as [(medium, segment, offset, size, descriptor)], None if there is none. */
static PyObject *places_of(struct session *session, const struct yolk_kv *kv,
                           enum yolk_status *status)
{
    struct yolk_replica replicas[8];
    size_t count = 0;
    if (session == NULL)
        Py_RETURN_NONE;
    PyThreadState *thread = PyEval_SaveThread();
    *status = yolk_store_locate(session_store(session), kv->key, kv->key_size, replicas,
                                sizeof(replicas) / sizeof(replicas[0]), &count);
    PyEval_RestoreThread(thread);
    if (*status != YOLK_OK) {
        (void)code_of_failure(*status);
        Py_RETURN_NONE;
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count && i < sizeof(replicas) / sizeof(replicas[0]);
         i++) {
        PyObject *place = Py_BuildValue(
            "(iKKKN)", (int)replicas[i].medium, (unsigned long long)replicas[i].segment,
            (unsigned long long)replicas[i].offset, (unsigned long long)replicas[i].size,
            descriptor_of(&replicas[i]));
        if (place == NULL || PyList_Append(list, place) != 0)
            Py_CLEAR(list);
        Py_XDECREF(place);
    }
    return list;
}

/* What one key gives; with a session of NULL, what a key gives that is not asked for. */
typedef PyObject *(*each_key)(struct session *session, const struct yolk_kv *kv,
                              enum yolk_status *status);

/* One answer a key, asked for one after the other: together they take no longer than a call may,
 * and Ctrl-C is heard between two. */
static PyObject *answer_each(struct store *self, PyObject *keys, each_key each)
{
    struct batch batch;
    PyObject *list = NULL;
    enum yolk_status status = YOLK_OK;
    batch_init(&batch);
    if (batch_keys(&batch, keys) == 0)
        list = PyList_New((Py_ssize_t)batch.count);
    struct session *session = list == NULL ? NULL : calls_enter(self), *asked = session;
    uint64_t start_ms = calls_now_ms(), timeout_ms = self->timeout_ms;
    for (size_t i = 0; list != NULL && i < batch.count; i++) {
        PyObject *item = each(asked, &batch.kvs[i], &status);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) != 0 ||
            PyErr_CheckSignals() != 0)
            Py_CLEAR(list);
        if (asked != NULL && calls_give_up(start_ms, timeout_ms, status, batch.count - 1 - i))
            asked = NULL;
    }
    if (session != NULL)
        session_leave(session);
    batch_free(&batch);
    return list;
}

/* As answer_each for one key given alone. */
static PyObject *answer_key(PyObject *object, PyObject *args, PyObject *named, const char *format,
                            each_key each)
{
    static char *names[] = {"key", NULL};
    PyObject *key;
    if (!argument_parse(args, named, format, names, &key))
        return NULL;
    PyObject *keys = PyTuple_Pack(1, key);
    PyObject *list = keys == NULL ? NULL : answer_each((struct store *)object, keys, each);
    PyObject *item = list == NULL ? NULL : PyList_GetItem(list, 0);
    Py_XINCREF(item);
    Py_XDECREF(list);
    Py_XDECREF(keys);
    return item;
}

static PyObject *answer_keys(PyObject *object, PyObject *args, PyObject *named, const char *format,
                             each_key each)
{
    static char *names[] = {"keys", NULL};
    PyObject *keys;
    if (!argument_parse(args, named, format, names, &keys))
        return NULL;
    return answer_each((struct store *)object, keys, each);
}

PyObject *store_get(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get", bytes_of);
}

PyObject *store_get_batch(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:get_batch", bytes_of);
}

PyObject *store_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get_buffer", handle_of);
}

PyObject *store_batch_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:batch_get_buffer", handle_of);
}

PyObject *store_places(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:_places", places_of);
}
