/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that store values. */
#include <string.h>

#include "calls.h"

/* Without a local buffer there is nothing that a value could be copied through. */
static void check_copies(const struct store *self, struct batch *batch)
{
    if (self->zero_copy_only && batch->failure == 0)
        batch->failure = code_with_text(
            YOLK_ERR_INVALID, "setup() had local_buffer_size 0: only put_from, batch_put_from and "
                              "batch_put_from_multi_buffers put values");
}

static PyObject *one_value(PyObject *object, PyObject *args, PyObject *named, const char *format,
                           enum verb verb)
{
    static char *names[] = {"key", "value", "config", NULL};
    PyObject *key, *value, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, format, names, &key, &value, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_one_key(&batch, key) != 0 || batch_value(&batch, value) != 0 ||
                batch_config(&batch, config) != 0;
    check_copies((struct store *)object, &batch);
    return calls_answer_one((struct store *)object, &batch, taken, verb);
}

static PyObject *in_parts(PyObject *object, PyObject *args, PyObject *named, const char *format,
                          enum verb verb)
{
    static char *names[] = {"config", NULL};
    PyObject *config = NULL, *none = PyTuple_New(0);
    struct batch batch;
    Py_ssize_t given = PyTuple_Size(args);
    if (none == NULL)
        return NULL;
    int named_well = argument_parse(none, named, format, names, &config);
    Py_DECREF(none);
    if (!named_well)
        return NULL;
    if (given < 1) {
        PyErr_Format(PyExc_TypeError, "%s() needs a key", strchr(format, ':') + 1);
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
    return calls_answer_one((struct store *)object, &batch, taken, verb);
}

static PyObject *each_value(PyObject *object, PyObject *args, PyObject *named, const char *format,
                            enum verb verb)
{
    static char *names[] = {"keys", "values", "config", NULL};
    PyObject *keys, *values, *config = NULL, *result = NULL;
    struct batch batch;
    if (!argument_parse(args, named, format, names, &keys, &values, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_values(&batch, values) != 0 ||
                batch_config(&batch, config) != 0;
    if (taken == 0) {
        int64_t first = 0;
        check_copies((struct store *)object, &batch);
        calls_perform((struct store *)object, &batch, verb);
        for (size_t i = 0; i < batch.count && first == 0; i++)
            first = batch.kvs[i].result;
        result = PyLong_FromLongLong(batch.failure != 0 ? batch.failure : first);
    }
    batch_free(&batch);
    return result;
}

static PyObject *from_memory(PyObject *object, PyObject *args, PyObject *named, const char *format,
                             enum verb verb)
{
    static char *names[] = {"key", "buffer_ptr", "size", "config", NULL};
    PyObject *key, *pointer, *size, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, format, names, &key, &pointer, &size, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_one_key(&batch, key) != 0 || batch_piece(&batch, pointer, size) != 0 ||
                batch_config(&batch, config) != 0;
    return calls_answer_one((struct store *)object, &batch, taken, verb);
}

static PyObject *all_from_memory(PyObject *object, PyObject *args, PyObject *named,
                                 const char *format, enum verb verb)
{
    static char *names[] = {"keys", "buffer_ptrs", "sizes", "config", NULL};
    PyObject *keys, *pointers, *sizes, *config = NULL;
    struct batch batch;
    if (!argument_parse(args, named, format, names, &keys, &pointers, &sizes, &config))
        return NULL;
    batch_init(&batch);
    int taken = batch_keys(&batch, keys) != 0 || batch_pieces(&batch, pointers, sizes) != 0 ||
                batch_config(&batch, config) != 0;
    return calls_answer_all((struct store *)object, &batch, taken, verb);
}

PyObject *store_put(PyObject *object, PyObject *args, PyObject *named)
{
    return one_value(object, args, named, "OO|O:put", VERB_PUT);
}

PyObject *store_upsert(PyObject *object, PyObject *args, PyObject *named)
{
    return one_value(object, args, named, "OO|O:upsert", VERB_UPSERT);
}

PyObject *store_put_parts(PyObject *object, PyObject *args, PyObject *named)
{
    return in_parts(object, args, named, "|$O:put_parts", VERB_PUT);
}

PyObject *store_upsert_parts(PyObject *object, PyObject *args, PyObject *named)
{
    return in_parts(object, args, named, "|$O:upsert_parts", VERB_UPSERT);
}

PyObject *store_put_batch(PyObject *object, PyObject *args, PyObject *named)
{
    return each_value(object, args, named, "OO|O:put_batch", VERB_PUT);
}

PyObject *store_upsert_batch(PyObject *object, PyObject *args, PyObject *named)
{
    return each_value(object, args, named, "OO|O:upsert_batch", VERB_UPSERT);
}

PyObject *store_put_from(PyObject *object, PyObject *args, PyObject *named)
{
    return from_memory(object, args, named, "OOO|O:put_from", VERB_PUT);
}

PyObject *store_upsert_from(PyObject *object, PyObject *args, PyObject *named)
{
    return from_memory(object, args, named, "OOO|O:upsert_from", VERB_UPSERT);
}

PyObject *store_batch_put_from(PyObject *object, PyObject *args, PyObject *named)
{
    return all_from_memory(object, args, named, "OOO|O:batch_put_from", VERB_PUT);
}

PyObject *store_batch_upsert_from(PyObject *object, PyObject *args, PyObject *named)
{
    return all_from_memory(object, args, named, "OOO|O:batch_upsert_from", VERB_UPSERT);
}

PyObject *store_batch_put_from_multi_buffers(PyObject *object, PyObject *args, PyObject *named)
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
        (void)code_with_text(YOLK_ERR_CLOSED, calls_not_set_up);
        batch_free(&batch);
        return PyList_New(0);
    }
    return calls_answer_all(self, &batch, taken, VERB_PUT);
}
