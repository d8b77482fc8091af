/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that ask about keys and remove them. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

PyObject *store_is_exist(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", NULL};
    PyObject *key;
    struct batch batch;
    if (!argument_parse(args, named, "O:is_exist", names, &key))
        return NULL;
    batch_init(&batch);
    return calls_answer_one((struct store *)object, &batch, batch_one_key(&batch, key),
                            VERB_EXIST_SOON);
}

PyObject *store_batch_is_exist(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", NULL};
    PyObject *keys;
    struct batch batch;
    if (!argument_parse(args, named, "O:batch_is_exist", names, &keys))
        return NULL;
    batch_init(&batch);
    return calls_answer_all((struct store *)object, &batch, batch_keys(&batch, keys), VERB_EXIST);
}

PyObject *store_get_size(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", NULL};
    PyObject *key, *result = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "O:get_size", names, &key))
        return NULL;
    batch_init(&batch);
    if (batch_one_key(&batch, key) == 0) {
        struct session *session = calls_enter((struct store *)object);
        int64_t code = code_of(YOLK_ERR_CLOSED);
        if (session != NULL) {
            uint64_t size = 0;
            enum yolk_status status;
            PyThreadState *thread = PyEval_SaveThread();
            status = yolk_store_size(session_store(session), batch.kvs[0].key,
                                     batch.kvs[0].key_size, &size);
            session_leave(session);
            PyEval_RestoreThread(thread);
            code = status == YOLK_OK ? (int64_t)size : code_of_failure(status);
        }
        result = PyLong_FromLongLong(code);
    }
    batch_free(&batch);
    return result;
}

PyObject *store_remove(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "force", NULL};
    PyObject *key;
    int force = 0;
    struct batch batch;
    if (!argument_parse(args, named, "O|p:remove", names, &key, &force))
        return NULL;
    batch_init(&batch);
    return calls_answer_one((struct store *)object, &batch, batch_one_key(&batch, key),
                            force ? VERB_REMOVE_FORCED : VERB_REMOVE);
}

PyObject *store_batch_remove(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "force", NULL};
    PyObject *keys;
    int force = 0;
    struct batch batch;
    if (!argument_parse(args, named, "O|p:batch_remove", names, &keys, &force))
        return NULL;
    batch_init(&batch);
    return calls_answer_all((struct store *)object, &batch, batch_keys(&batch, keys),
                            force ? VERB_REMOVE_FORCED : VERB_REMOVE);
}

PyObject *store_remove_all(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"force", NULL};
    int force = 0;
    if (!argument_parse(args, named, "|p:remove_all", names, &force))
        return NULL;
    struct session *session = calls_enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    uint64_t removed = 0;
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_remove_all(session_store(session), force, &removed);
    session_leave(session);
    PyEval_RestoreThread(thread);
    return PyLong_FromLongLong(status == YOLK_OK ? (int64_t)removed : code_of_failure(status));
}

/* The keys whose result is YOLK_OK. */
static PyObject *keys_cleared(const struct batch *batch)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < batch->count; i++) {
        if (batch->kvs[i].result == YOLK_OK &&
            PyList_Append(list, PyTuple_GetItem(batch->keys, (Py_ssize_t)i)) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *store_batch_replica_clear(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "segment_name", NULL};
    PyObject *keys, *name = NULL, *result = NULL;
    struct batch batch;
    if (!argument_parse(args, named, "O|O:batch_replica_clear", names, &keys, &name))
        return NULL;
    const char *segment = name == NULL ? "" : argument_text(name, "segment_name");
    if (segment == NULL)
        return NULL;
    batch_init(&batch);
    if (batch_keys(&batch, keys) == 0) {
        struct session *session = calls_enter((struct store *)object);
        for (size_t i = 0; i < batch.count; i++)
            batch.kvs[i].result = YOLK_ERR_CLOSED;
        if (session != NULL) {
            enum yolk_status status;
            PyThreadState *thread = PyEval_SaveThread();
            status =
                yolk_store_clear_replicas(session_store(session), batch.kvs, batch.count, segment);
            session_leave(session);
            PyEval_RestoreThread(thread);
            if (status != YOLK_OK)
                (void)code_of_failure(status);
        }
        result = keys_cleared(&batch);
    }
    batch_free(&batch);
    return result;
}

/* ---- every key, for remove_by_regex() ---- */

struct listing {
    char *keys; /* one after the other */
    size_t size, room;
    size_t *ends;
    size_t count, ends_room;
    int failed;
};

static int grow(void **memory, size_t *room, size_t wanted, size_t item)
{
    if (wanted <= *room)
        return 0;
    size_t larger = wanted * 2;
    void *grown = realloc(*memory, larger * item);
    if (grown == NULL)
        return -1;
    *memory = grown;
    *room = larger;
    return 0;
}

static int note_key(void *context, const void *key, size_t key_size, uint64_t size)
{
    struct listing *listing = context;
    (void)size;
    if (grow((void **)&listing->keys, &listing->room, listing->size + key_size, 1) != 0 ||
        grow((void **)&listing->ends, &listing->ends_room, listing->count + 1,
             sizeof(*listing->ends)) != 0) {
        listing->failed = 1;
        return 1;
    }
    memcpy(listing->keys + listing->size, key, key_size);
    listing->size += key_size;
    listing->ends[listing->count++] = listing->size;
    return 0;
}

/* Those that are text; no other can have been put from here. */
static PyObject *list_of(const struct listing *listing)
{
    PyObject *list = PyList_New(0);
    size_t from = 0;
    for (size_t i = 0; list != NULL && i < listing->count; from = listing->ends[i++]) {
        PyObject *key =
            PyUnicode_DecodeUTF8(listing->keys + from, (Py_ssize_t)(listing->ends[i] - from), NULL);
        if (key == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            continue;
        }
        if (key == NULL || PyList_Append(list, key) != 0)
            Py_CLEAR(list);
        Py_XDECREF(key);
    }
    return list;
}

PyObject *store_keys(PyObject *object, PyObject *unused)
{
    struct listing listing = {0};
    (void)unused;
    struct session *session = calls_enter((struct store *)object);
    if (session == NULL)
        return PyLong_FromLongLong(code_of(YOLK_ERR_CLOSED));
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_list(session_store(session), note_key, &listing);
    session_leave(session);
    PyEval_RestoreThread(thread);
    PyObject *result = NULL;
    if (listing.failed)
        (void)PyErr_NoMemory();
    else
        result =
            status == YOLK_OK ? list_of(&listing) : PyLong_FromLongLong(code_of_failure(status));
    free(listing.keys);
    free(listing.ends);
    return result;
}
