/* SPDX-License-Identifier: Apache-2.0 */
/* From Python's lists to the library's, with the GIL: tens of thousands of numbers in a call. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

void batch_init(struct batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    yolk_put_options_init(&batch->options);
}

void batch_free(struct batch *batch)
{
    for (size_t i = 0; i < batch->view_count; i++)
        PyBuffer_Release(&batch->views[i]);
    free(batch->views);
    free(batch->slices);
    free(batch->kvs);
    free(batch->names);
    Py_CLEAR(batch->keys);
    Py_CLEAR(batch->preferred);
    Py_CLEAR(batch->groups);
}

int argument_parse(PyObject *args, PyObject *named, const char *format, char **names, ...)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    const char *method = strchr(format, ':');
    while (named != NULL && PyDict_Next(named, &at, &name, &value)) {
        size_t i = 0;
        while (names[i] != NULL && PyUnicode_CompareWithASCIIString(name, names[i]) != 0)
            i++;
        if (names[i] != NULL)
            continue;
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                     method == NULL ? "" : method + 1, name);
        return 0;
    }
    va_list list;
    va_start(list, names);
    int parsed = PyArg_VaParseTupleAndKeywords(args, named, format, names, list);
    va_end(list);
    return parsed;
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);
    if (memory == NULL)
        (void)PyErr_NoMemory();
    return memory;
}

/* The items as a tuple: no other thread changes it. Text is refused: it is a sequence of letters.
 */
PyObject *argument_tuple(PyObject *object, const char *what)
{
    if (!PyUnicode_Check(object) && !PyBytes_Check(object)) {
        PyObject *tuple = PySequence_Tuple(object);
        if (tuple != NULL || !PyErr_ExceptionMatches(PyExc_TypeError))
            return tuple;
        PyErr_Clear();
    }
    PyErr_Format(PyExc_TypeError, "%s must be a sequence, not %S", what, Py_TYPE(object));
    return NULL;
}

static int key_of(PyObject *object, struct yolk_kv *kv)
{
    Py_ssize_t size = 0;
    const char *text = NULL;
    if (PyUnicode_Check(object)) {
        text = PyUnicode_AsUTF8AndSize(object, &size);
        if (text == NULL)
            return -1;
    } else {
        PyErr_Format(PyExc_TypeError, "a key must be a str, not %S", Py_TYPE(object));
        return -1;
    }
    kv->key = text;
    kv->key_size = (size_t)size;
    return 0;
}

const char *argument_text(PyObject *object, const char *what)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %S", what, Py_TYPE(object));
        return NULL;
    }
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_TypeError, "%s has a NUL character in it", what);
        return NULL;
    }
    return text;
}

int batch_keys(struct batch *batch, PyObject *keys)
{
    batch->keys = argument_tuple(keys, "keys");
    if (batch->keys == NULL)
        return -1;
    batch->count = (size_t)PyTuple_Size(batch->keys);
    batch->kvs = zeroed(batch->count, sizeof(*batch->kvs));
    if (batch->kvs == NULL)
        return -1;
    for (size_t i = 0; i < batch->count; i++)
        if (key_of(PyTuple_GetItem(batch->keys, (Py_ssize_t)i), &batch->kvs[i]) != 0)
            return -1;
    return 0;
}

int batch_one_key(struct batch *batch, PyObject *key)
{
    batch->keys = PyTuple_Pack(1, key);
    batch->count = 1;
    batch->kvs = zeroed(1, sizeof(*batch->kvs));
    return batch->keys == NULL || batch->kvs == NULL ? -1 : key_of(key, batch->kvs);
}

int argument_number(PyObject *object, const char *what, uint64_t *value)
{
    unsigned long long number;
    if (PyLong_Check(object)) {
        number = PyLong_AsUnsignedLongLong(object);
    } else {
        PyObject *index = PyNumber_Index(object);
        if (index == NULL) {
            if (PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(PyExc_TypeError, "%s must be an int, not %S", what, Py_TYPE(object));
            return -1;
        }
        number = PyLong_AsUnsignedLongLong(index);
        Py_DECREF(index);
    }
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(PyExc_TypeError, "%s must be 0 to 2**64 - 1, not %S", what, object);
        return -1;
    }
    *value = number;
    return 0;
}

void batch_fail_lengths(struct batch *batch, const char *what, size_t count)
{
    char text[160];
    (void)PyOS_snprintf(text, sizeof(text), "%zu %s for %zu keys", count, what, batch->count);
    batch->failure = code_with_text(YOLK_ERR_INVALID, text);
}

static int slice_of(PyObject *address, const char *what_address, PyObject *size,
                    const char *what_size, struct yolk_slice *slice)
{
    uint64_t pointer, bytes;
    if (argument_number(address, what_address, &pointer) != 0 ||
        argument_number(size, what_size, &bytes) != 0)
        return -1;
    slice->ptr = (void *)(uintptr_t)pointer;
    slice->size = bytes;
    return 0;
}

int batch_pieces(struct batch *batch, PyObject *addresses, PyObject *sizes)
{
    int status = -1;
    PyObject *from = argument_tuple(addresses, "buffer_ptrs");
    PyObject *bytes = from == NULL ? NULL : argument_tuple(sizes, "sizes");
    if (bytes == NULL)
        goto out;
    size_t given = (size_t)PyTuple_Size(from), sized = (size_t)PyTuple_Size(bytes);
    if (given != batch->count || sized != batch->count) {
        batch_fail_lengths(batch, given != batch->count ? "buffer_ptrs" : "sizes",
                           given != batch->count ? given : sized);
        status = 0;
        goto out;
    }
    batch->slices = zeroed(given, sizeof(*batch->slices));
    if (batch->slices == NULL)
        goto out;
    batch->slice_count = given;
    for (size_t i = 0; i < given; i++) {
        if (slice_of(PyTuple_GetItem(from, (Py_ssize_t)i), "each item of buffer_ptrs",
                     PyTuple_GetItem(bytes, (Py_ssize_t)i), "each item of sizes",
                     &batch->slices[i]) != 0)
            goto out;
        batch->kvs[i].slices = &batch->slices[i];
        batch->kvs[i].slice_count = 1;
    }
    status = 0;
out:
    Py_XDECREF(from);
    Py_XDECREF(bytes);
    return status;
}

int batch_piece(struct batch *batch, PyObject *address, PyObject *size)
{
    batch->slices = zeroed(1, sizeof(*batch->slices));
    if (batch->slices == NULL || slice_of(address, "buffer_ptr", size, "size", batch->slices) != 0)
        return -1;
    batch->slice_count = 1;
    batch->kvs[0].slices = batch->slices;
    batch->kvs[0].slice_count = 1;
    return 0;
}

/* Appends one key's pieces; their place in the growing array is kept as a number until it is whole.
 */
static int append_pieces(struct batch *batch, size_t *room, PyObject *addresses, PyObject *sizes,
                         size_t *count)
{
    int status = -1;
    PyObject *from = argument_tuple(addresses, "each item of all_buffer_ptrs");
    PyObject *bytes = from == NULL ? NULL : argument_tuple(sizes, "each item of all_sizes");
    if (bytes == NULL)
        goto out;
    *count = (size_t)PyTuple_Size(from);
    if ((size_t)PyTuple_Size(bytes) != *count) {
        batch->failure = code_with_text(
            YOLK_ERR_INVALID, "all_buffer_ptrs and all_sizes differ in the pieces of a key");
        status = 0;
        goto out;
    }
    if (batch->slice_count + *count > *room) {
        size_t larger = (batch->slice_count + *count) * 2;
        struct yolk_slice *grown = realloc(batch->slices, larger * sizeof(*grown));
        if (grown == NULL) {
            (void)PyErr_NoMemory();
            goto out;
        }
        batch->slices = grown;
        *room = larger;
    }
    for (size_t i = 0; i < *count; i++)
        if (slice_of(PyTuple_GetItem(from, (Py_ssize_t)i), "each number in all_buffer_ptrs",
                     PyTuple_GetItem(bytes, (Py_ssize_t)i), "each number in all_sizes",
                     &batch->slices[batch->slice_count++]) != 0)
            goto out;
    status = 0;
out:
    Py_XDECREF(from);
    Py_XDECREF(bytes);
    return status;
}

int batch_piece_lists(struct batch *batch, PyObject *addresses, PyObject *sizes)
{
    int status = -1;
    size_t room = 0, at = 0;
    PyObject *from = argument_tuple(addresses, "all_buffer_ptrs");
    PyObject *bytes = from == NULL ? NULL : argument_tuple(sizes, "all_sizes");
    if (bytes == NULL)
        goto out;
    size_t given = (size_t)PyTuple_Size(from), sized = (size_t)PyTuple_Size(bytes);
    if (given != batch->count || sized != batch->count) {
        batch_fail_lengths(batch, given != batch->count ? "all_buffer_ptrs" : "all_sizes",
                           given != batch->count ? given : sized);
        status = 0;
        goto out;
    }
    for (size_t i = 0; i < given && batch->failure == 0; i++)
        if (append_pieces(batch, &room, PyTuple_GetItem(from, (Py_ssize_t)i),
                          PyTuple_GetItem(bytes, (Py_ssize_t)i), &batch->kvs[i].slice_count) != 0)
            goto out;
    for (size_t i = 0; i < given && batch->failure == 0; at += batch->kvs[i++].slice_count)
        batch->kvs[i].slices = batch->slices + at;
    status = 0;
out:
    Py_XDECREF(from);
    Py_XDECREF(bytes);
    return status;
}

/* One view, and the piece that it is. */
static int append_view(struct batch *batch, PyObject *object, const char *what)
{
    Py_buffer *view = &batch->views[batch->view_count];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_MemoryError))
            PyErr_Format(PyExc_TypeError, "%s must be a bytes-like object in one piece, not %S",
                         what, Py_TYPE(object));
        return -1;
    }
    batch->slices[batch->view_count].ptr = view->buf;
    batch->slices[batch->view_count].size = (size_t)view->len;
    batch->slice_count = ++batch->view_count;
    return 0;
}

static int room_for_views(struct batch *batch, size_t count)
{
    batch->views = zeroed(count, sizeof(*batch->views));
    batch->slices = zeroed(count, sizeof(*batch->slices));
    return batch->views == NULL || batch->slices == NULL ? -1 : 0;
}

int batch_value(struct batch *batch, PyObject *value)
{
    if (room_for_views(batch, 1) != 0 || append_view(batch, value, "value") != 0)
        return -1;
    batch->kvs[0].slices = batch->slices;
    batch->kvs[0].slice_count = 1;
    return 0;
}

int batch_values(struct batch *batch, PyObject *values)
{
    int status = -1;
    PyObject *list = argument_tuple(values, "values");
    if (list == NULL)
        return -1;
    size_t given = (size_t)PyTuple_Size(list);
    if (given != batch->count) {
        batch_fail_lengths(batch, "values", given);
        status = 0;
        goto out;
    }
    if (room_for_views(batch, given) != 0)
        goto out;
    for (size_t i = 0; i < given; i++) {
        if (append_view(batch, PyTuple_GetItem(list, (Py_ssize_t)i), "each item of values") != 0)
            goto out;
        batch->kvs[i].slices = &batch->slices[i];
        batch->kvs[i].slice_count = 1;
    }
    status = 0;
out:
    Py_DECREF(list);
    return status;
}

int batch_parts(struct batch *batch, PyObject *parts)
{
    size_t given = (size_t)PyTuple_Size(parts);
    if (room_for_views(batch, given) != 0)
        return -1;
    for (size_t i = 0; i < given; i++)
        if (append_view(batch, PyTuple_GetItem(parts, (Py_ssize_t)i), "each of the parts") != 0)
            return -1;
    batch->kvs[0].slices = batch->slices;
    batch->kvs[0].slice_count = given;
    return 0;
}
