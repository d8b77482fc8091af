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
    PyObject *pointers = PyTuple_Pack(1, pointer), *sizes = PyTuple_Pack(1, size);
    batch_init(&batch);
    int taken = pointers == NULL || sizes == NULL || batch_one_key(&batch, key) != 0 ||
                batch_pieces(&batch, pointers, sizes) != 0;
    Py_XDECREF(pointers);
    Py_XDECREF(sizes);
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
static PyObject *bytes_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_buffer buffer;
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = look(session, kv, &buffer);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK) {
        (void)code_of_failure(status);
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
static PyObject *handle_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_buffer buffer;
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = look(session, kv, &buffer);
    PyEval_RestoreThread(thread);
    if (status == YOLK_OK)
        return handle_make(module_state()->handle_type, session, &buffer);
    (void)code_of_failure(status);
    Py_RETURN_NONE;
}

/* Places of the copies as [(medium, segment, offset, size)], None if there is none. */
static PyObject *places_of(struct session *session, const struct yolk_kv *kv)
{
    struct yolk_replica replicas[8];
    size_t count = 0;
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_locate(session_store(session), kv->key, kv->key_size, replicas,
                               sizeof(replicas) / sizeof(replicas[0]), &count);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK) {
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
    struct session *session = list == NULL ? NULL : calls_enter(self);
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

PyObject *store_get(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get", bytes_of, no_bytes);
}

PyObject *store_get_batch(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:get_batch", bytes_of, no_bytes);
}

PyObject *store_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_key(object, args, named, "O:get_buffer", handle_of, no_object);
}

PyObject *store_batch_get_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:batch_get_buffer", handle_of, no_object);
}

PyObject *store_places(PyObject *object, PyObject *args, PyObject *named)
{
    return answer_keys(object, args, named, "O:_places", places_of, no_object);
}
