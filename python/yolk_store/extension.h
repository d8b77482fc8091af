/* SPDX-License-Identifier: Apache-2.0 */
/* The extension module mooncake._store, shared by its files. Python's stable ABI from 3.11 on;
 * built once more for 3.10. */
#ifndef YOLK_STORE_EXTENSION_H
#define YOLK_STORE_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#ifdef YOLK_PYTHON_3_10
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include "buffer_3_10.h"
#else
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#endif

#include <yolk/store.h>

/* ---- codes.c ---- */

/* Upstream's number for a status of the library; what is >= 0 stays. */
int64_t code_of(int64_t status);
/* Keeps what the library has to say of `status` as this thread's last error, and answers its code.
 */
int64_t code_of_failure(int64_t status);
/* The same with a sentence of our own. */
int64_t code_with_text(int64_t status, const char *text);
const char *code_last_text(void);
/* Every (status, name, code), for the documentation and the tests. New reference. */
PyObject *code_table(void);

/* ---- session.c ---- */

/* An open store and who uses it: calls in progress and buffers given out. It is closed when the
 * last of them is gone. */
struct session;
struct yolk_store *session_store(struct session *session);
/* NULL on failure, with *code and the last error set. Without the GIL. */
struct session *session_open(const struct yolk_store_options *options, int64_t *code);
/* A Python object's pointer to it is written, and NULL again when it is no more the object's. With
 * the GIL. */
void session_own(struct session *session, struct session **owner);
void session_disown(struct session *session);
/* 1, and a session_leave is owed; 0: it is being closed. */
int session_enter(struct session *session);
void session_leave(struct session *session);
void session_hold_buffer(struct session *session);
/* Without the GIL: it may close the store. */
void session_release_buffer(struct session *session);
/* Waits for the calls in progress. While buffers are held the store stays open until they go.
 * YOLK_ERR_BUSY: memory is not quiet, close again; else the session is no more for the caller.
 * Disown it first. Without the GIL. */
int session_close(struct session *session);
/* Closes those that are owned. With the GIL. */
void session_close_all(void);

/* ---- arguments.c: all of these set a Python exception and answer -1 or NULL when they fail ----
 */

/* What a call was given, taken apart so that it needs no GIL. Holds references to the objects. */
struct batch {
    PyObject *keys; /* tuple */
    size_t count;
    struct yolk_kv *kvs;
    struct yolk_slice *slices;
    size_t slice_count;
    Py_buffer *views;
    size_t view_count;
    struct yolk_put_options options; /* puts; borrows from the rest */
    PyObject *preferred, *groups;    /* tuples of what `names` points into */
    const char **names;
    int64_t failure; /* a code that all keys get without being asked for; 0: none */
};
void batch_init(struct batch *batch);
void batch_free(struct batch *batch);
int batch_keys(struct batch *batch, PyObject *keys);
int batch_one_key(struct batch *batch, PyObject *key);
/* The (address, size) of the one key. */
int batch_piece(struct batch *batch, PyObject *address, PyObject *size);
/* One (address, size) a key. */
int batch_pieces(struct batch *batch, PyObject *addresses, PyObject *sizes);
/* A list of addresses and one of sizes a key. */
int batch_piece_lists(struct batch *batch, PyObject *addresses, PyObject *sizes);
/* The bytes-like object of the one key. */
int batch_value(struct batch *batch, PyObject *value);
/* One bytes-like object a key. */
int batch_values(struct batch *batch, PyObject *values);
/* All bytes-like objects of tuple `parts` from `first` on are the value of the one key. */
int batch_parts(struct batch *batch, PyObject *parts);
/* "N what for so many keys", as the batch's failure. */
void batch_fail_lengths(struct batch *batch, const char *what, size_t count);
/* As PyArg_ParseTupleAndKeywords, which does not name the keyword that is one too many. */
int argument_parse(PyObject *args, PyObject *named, const char *format, char **names, ...);
/* The items of a sequence that is no text; `what` names it. New reference. */
PyObject *argument_tuple(PyObject *object, const char *what);
/* 0 to 2**64 - 1, an address or a size; `what` names it. */
int argument_number(PyObject *object, const char *what, uint64_t *value);
/* Text without a NUL character, of the object; `what` names it. */
const char *argument_text(PyObject *object, const char *what);

/* ---- config.c ---- */

/* Reads a ReplicateConfig or None, after the keys. What cannot be promised becomes the batch's
 * failure; -1 with an exception. */
int batch_config(struct batch *batch, PyObject *config);

/* ---- handle.c ---- */
extern PyType_Spec handle_spec;
/* Takes the buffer over, of a session that the caller is in. */
PyObject *handle_make(PyTypeObject *type, struct session *session, struct yolk_buffer *buffer);

/* ---- device_buffer.c ---- */
extern PyType_Spec device_buffer_spec;

/* ---- store.c ---- */
extern PyType_Spec store_spec;

/* ---- engine.c ---- */
extern PyType_Spec engine_spec;

/* ---- module.c ---- */
struct module_state {
    PyTypeObject *store_type;
    PyTypeObject *handle_type;
    PyTypeObject *device_buffer_type;
    PyTypeObject *engine_type;
};
struct module_state *module_state(void);

#endif
