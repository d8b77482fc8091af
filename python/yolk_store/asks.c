/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that ask about keys and remove them. */
#include "calls.h"

PyObject *store_is_exist(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", NULL};
    PyObject *key;
    struct batch batch;
    if (!argument_parse(args, named, "O:is_exist", names, &key))
        return NULL;
    batch_init(&batch);
    return calls_answer_one((struct store *)object, &batch, batch_one_key(&batch, key), VERB_EXIST);
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
