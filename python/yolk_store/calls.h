/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods of the store have in common. */
#ifndef YOLK_STORE_CALLS_H
#define YOLK_STORE_CALLS_H

#include "extension.h"

struct store {
    PyObject base;
    struct session *session; /* NULL: not set up, or closed */
    int opening;
    int zero_copy_only;
    uint64_t exist_timeout_ms; /* of is_exist() */
    uint64_t timeout_ms;
};

enum verb {
    VERB_UPSERT,
    VERB_PUT,
    VERB_GET,
    VERB_EXIST,
    VERB_EXIST_SOON,
    VERB_REMOVE,
    VERB_REMOVE_FORCED
};

extern const char calls_not_set_up[];

/* A session_leave is owed, unless NULL, for which the last error is set. */
struct session *calls_enter(struct store *self);
/* Every result becomes what Python is told. */
void calls_perform(struct store *self, struct batch *batch, enum verb verb);
/* The end of most methods: `taken` is what taking the arguments apart said. */
PyObject *calls_answer_one(struct store *self, struct batch *batch, int taken, enum verb verb);
PyObject *calls_answer_all(struct store *self, struct batch *batch, int taken, enum verb verb);

/* For calls that ask for one key after the other: when the call began, and whether the keys that
 * are left are to fail without being asked for, since the last one, which ended with `status`,
 * found nobody to answer and the time of a call is over. Adds that to the last error then. */
uint64_t calls_now_ms(void);
int calls_give_up(uint64_t start_ms, uint64_t timeout_ms, enum yolk_status status, size_t left);

/* puts.c, gets.c, asks.c: the methods by their Python names */
PyObject *store_put(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_upsert(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_put_parts(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_upsert_parts(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_put_batch(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_upsert_batch(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_put_from(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_upsert_from(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_put_from(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_upsert_from(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_put_from_multi_buffers(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get_into(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_get_into(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_get_into_multi_buffers(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get_into_ranges(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get_batch(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get_buffer(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_get_buffer(PyObject *object, PyObject *args, PyObject *named);
/* device_buffer.c */
PyObject *store_get_device_buffer(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_places(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_is_exist(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_is_exist(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_get_size(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_replica_clear(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_remove(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_batch_remove(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_remove_all(PyObject *object, PyObject *args, PyObject *named);
PyObject *store_keys(PyObject *object, PyObject *unused);

#endif
