/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the library on a batch, without the GIL, and Python's answer. */
#include <stdio.h>
#include <time.h>

#include "calls.h"

const char calls_not_set_up[] = "the store is not set up: call setup() and look at its result";

/* A session_leave is owed, unless NULL. */
struct session *calls_enter(struct store *self)
{
    if (self->session != NULL && session_enter(self->session))
        return self->session;
    (void)code_with_text(YOLK_ERR_CLOSED, calls_not_set_up);
    return NULL;
}

uint64_t calls_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int calls_give_up(uint64_t start_ms, uint64_t timeout_ms, enum yolk_status status, size_t left)
{
    char text[512];
    if (status == YOLK_OK || status == YOLK_ERR_NOT_FOUND || left == 0 ||
        calls_now_ms() - start_ms < timeout_ms)
        return 0;
    (void)snprintf(text, sizeof(text), "%zu keys were not asked for, timeout_ms is over: %s", left,
                   code_last_text());
    (void)code_with_text(YOLK_ERR_TIMEOUT, text);
    return 1;
}

static void fail_all(struct batch *batch, int64_t code)
{
    for (size_t i = 0; i < batch->count; i++)
        batch->kvs[i].result = code;
}

static enum yolk_status ask(struct yolk_store *store, struct batch *batch, enum verb verb,
                            uint64_t exist_timeout_ms)
{
    switch (verb) {
    case VERB_PUT:
        return yolk_store_put_with(store, batch->kvs, batch->count, &batch->options);
    case VERB_UPSERT:
        return yolk_store_upsert(store, batch->kvs, batch->count, &batch->options);
    case VERB_GET:
        return yolk_store_get(store, batch->kvs, batch->count);
    case VERB_EXIST:
        return yolk_store_exist(store, batch->kvs, batch->count);
    case VERB_EXIST_SOON:
        return yolk_store_exist_within(store, batch->kvs, batch->count, exist_timeout_ms);
    default:
        return yolk_store_remove(store, batch->kvs, batch->count, verb == VERB_REMOVE_FORCED);
    }
}

/* Every result becomes what Python is told. */
void calls_perform(struct store *self, struct batch *batch, enum verb verb)
{
    if (batch->failure != 0) {
        fail_all(batch, batch->failure);
        return;
    }
    struct session *session = calls_enter(self);
    if (session == NULL) {
        fail_all(batch, code_of(YOLK_ERR_CLOSED));
        return;
    }
    enum yolk_status status;
    uint64_t exist_timeout_ms = self->exist_timeout_ms;
    PyThreadState *thread = PyEval_SaveThread();
    status = ask(session_store(session), batch, verb, exist_timeout_ms);
    session_leave(session);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK)
        (void)code_of_failure(status);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t code = code_of(batch->kvs[i].result);
        batch->kvs[i].result = (verb == VERB_PUT || verb == VERB_UPSERT) && code > 0 ? 0 : code;
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
PyObject *calls_answer_one(struct store *self, struct batch *batch, int taken, enum verb verb)
{
    PyObject *result = NULL;
    if (taken == 0) {
        calls_perform(self, batch, verb);
        result = PyLong_FromLongLong(batch->kvs[0].result);
    }
    batch_free(batch);
    return result;
}

PyObject *calls_answer_all(struct store *self, struct batch *batch, int taken, enum verb verb)
{
    PyObject *result = NULL;
    if (taken == 0) {
        calls_perform(self, batch, verb);
        result = results_of(batch);
    }
    batch_free(batch);
    return result;
}
