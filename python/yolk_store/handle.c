/* SPDX-License-Identifier: Apache-2.0 */
/* A value where it lies, for Python: BufferHandle. Who only reads reads the store's own memory; who
 * asks for writable memory gets a copy. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

#include <structmember.h>

struct handle {
    PyObject base;
    struct session *session; /* NULL: the value is in `copy` */
    struct yolk_buffer buffer;
    void *copy;
    Py_ssize_t exports;
    int pointed; /* somebody has the address of the store's memory */
    PyObject *weak_references;
};

PyObject *handle_make(PyTypeObject *type, struct session *session, struct yolk_buffer *buffer)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct handle *self = (struct handle *)allocate(type, 0);
    if (self == NULL) {
        yolk_store_release_buffer(session_store(session), buffer);
        return NULL;
    }
    session_hold_buffer(session);
    self->session = session;
    self->buffer = *buffer;
    return (PyObject *)self;
}

static void give_back(struct handle *self)
{
    struct session *session = self->session;
    if (session == NULL)
        return;
    self->session = NULL;
    PyThreadState *thread = PyEval_SaveThread();
    yolk_store_release_buffer(session_store(session), &self->buffer);
    session_release_buffer(session);
    PyEval_RestoreThread(thread);
}

static void *data_of(const struct handle *self)
{
    return self->copy != NULL ? self->copy : (void *)(uintptr_t)self->buffer.data;
}

static void handle_dealloc(PyObject *object)
{
    struct handle *self = (struct handle *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_ClearWeakRefs(object);
    give_back(self);
    free(self->copy);
    release(object);
    Py_DECREF(type);
}

/* The value into memory of its own; not while somebody looks at the store's. */
static int make_copy(struct handle *self)
{
    if (self->copy != NULL)
        return 0;
    if (self->exports > 0) {
        PyErr_SetString(PyExc_BufferError,
                        "the value is in use as read only memory: ask for writable memory first");
        return -1;
    }
    uint64_t size = self->buffer.size;
    void *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    memcpy(copy, self->buffer.data, size);
    self->copy = copy;
    if (!self->pointed) {
        give_back(self);
        self->buffer.size = size; /* releasing cleared it */
    }
    return 0;
}

static int handle_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    struct handle *self = (struct handle *)object;
    if ((flags & PyBUF_WRITABLE) != 0 && make_copy(self) != 0) {
        view->obj = NULL;
        return -1;
    }
    int readonly = self->copy == NULL;
    if (PyBuffer_FillInfo(view, object, data_of(self), (Py_ssize_t)self->buffer.size, readonly,
                          flags) != 0)
        return -1;
    self->exports++;
    return 0;
}

static void handle_release_buffer(PyObject *object, Py_buffer *view)
{
    (void)view;
    ((struct handle *)object)->exports--;
}

static PyObject *handle_ptr(PyObject *object, PyObject *unused)
{
    struct handle *self = (struct handle *)object;
    (void)unused;
    self->pointed = 1;
    return PyLong_FromVoidPtr(data_of(self));
}

static PyObject *handle_size(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct handle *)object)->buffer.size);
}

static Py_ssize_t handle_length(PyObject *object)
{
    return (Py_ssize_t)((struct handle *)object)->buffer.size;
}

static PyMethodDef methods[] = {
    {"ptr", handle_ptr, METH_NOARGS,
     "ptr($self, /)\n--\n\nThe address of the value. Its bytes must not be written to, and stay as "
     "long as this object."},
    {"size", handle_size, METH_NOARGS, "size($self, /)\n--\n\nThe bytes of the value."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct handle, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_sq_length, handle_length},
    {Py_bf_getbuffer, handle_get_buffer},
    {Py_bf_releasebuffer, handle_release_buffer},
    {Py_tp_doc,
     "A value where it lies, held in place as long as this object: use it with memoryview(), which "
     "reads without a copy. Who asks for writable memory gets a private copy."},
    {0, NULL},
};

PyType_Spec handle_spec = {
    .name = "mooncake.store.BufferHandle",
    .basicsize = sizeof(struct handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
