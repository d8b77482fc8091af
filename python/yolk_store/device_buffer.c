/* SPDX-License-Identifier: Apache-2.0 */
/* A value where it lies, for kernels on a GPU of this process: DeviceBuffer. It says its address by
 * ptr(), __cuda_array_interface__ and DLPack, and says no more once it does not hold any more. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

struct device_buffer {
    PyObject base;
    struct session *session; /* NULL: released */
    struct yolk_buffer buffer;
    uint64_t size; /* stays when it is released */
    int device;
    Py_ssize_t tensors; /* made by __dlpack__ and not let go of */
};

/* ---- DLPack, as its specification lays it out (version 0.x, which all readers take) ---- */

enum { DL_CUDA = 2, DL_UINT = 1, DEVICE_MAX = 1023 };

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } item;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *owner;
    void (*deleter)(struct dl_managed *self);
    int64_t size; /* ours: what shape points at */
};

static const char dl_fresh[] = "dltensor";

/* Of any thread. */
static void dl_delete(struct dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    ((struct device_buffer *)managed->owner)->tensors--;
    Py_DECREF((PyObject *)managed->owner);
    PyGILState_Release(state);
    free(managed);
}

/* Whoever takes it over gives it another name. */
static void capsule_end(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, dl_fresh))
        dl_delete(PyCapsule_GetPointer(capsule, dl_fresh));
}

/* ---- its life ---- */

static PyObject *make(struct session *session, struct yolk_buffer *buffer, int device)
{
    PyTypeObject *type = module_state()->device_buffer_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct device_buffer *self = (struct device_buffer *)allocate(type, 0);
    if (self == NULL) {
        yolk_store_release_buffer(session_store(session), buffer);
        return NULL;
    }
    session_hold_buffer(session);
    self->session = session;
    self->buffer = *buffer;
    self->size = buffer->size;
    self->device = device;
    return (PyObject *)self;
}

PyObject *store_get_device_buffer(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"key", "device", NULL};
    PyObject *key, *made = NULL;
    struct batch batch;
    int device = 0;
    if (!argument_parse(args, named, "O|i:get_device_buffer", names, &key, &device))
        return NULL;
    if (device < 0 || device > DEVICE_MAX) {
        PyErr_Format(PyExc_ValueError, "device is %d: must be the number of a GPU, 0 to %d", device,
                     DEVICE_MAX);
        return NULL;
    }
    batch_init(&batch);
    if (batch_one_key(&batch, key) == 0) {
        struct session *session = calls_enter((struct store *)object);
        struct yolk_buffer buffer;
        enum yolk_status status = YOLK_ERR_CLOSED;
        if (session != NULL) {
            PyThreadState *thread = PyEval_SaveThread();
            status = yolk_store_get_device_buffer(session_store(session), batch.kvs[0].key,
                                                  batch.kvs[0].key_size, &buffer);
            PyEval_RestoreThread(thread);
            if (status != YOLK_OK)
                (void)code_of_failure(status);
        }
        made = status == YOLK_OK ? make(session, &buffer, device) : Py_NewRef(Py_None);
        if (session != NULL)
            session_leave(session);
    }
    batch_free(&batch);
    return made;
}

static void give_back(struct device_buffer *self)
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

static void device_buffer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    give_back((struct device_buffer *)object);
    release(object);
    Py_DECREF(type);
}

/* 0, or -1 with an exception: the value is not to be read there any more. */
static int look(struct device_buffer *self)
{
    if (self->session == NULL) {
        PyErr_SetString(PyExc_BufferError, "the buffer was released");
        return -1;
    }
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_store_check_buffer(session_store(self->session), &self->buffer);
    PyEval_RestoreThread(thread);
    if (status == YOLK_OK)
        return 0;
    int64_t code = code_of_failure(status);
    PyErr_Format(PyExc_BufferError, "%s (%lld)", code_last_text(), (long long)code);
    return -1;
}

/* ---- methods ---- */

static PyObject *device_buffer_ptr(PyObject *object, PyObject *unused)
{
    struct device_buffer *self = (struct device_buffer *)object;
    (void)unused;
    return look(self) == 0 ? PyLong_FromVoidPtr((void *)(uintptr_t)self->buffer.data) : NULL;
}

static PyObject *device_buffer_size(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct device_buffer *)object)->size);
}

static Py_ssize_t device_buffer_length(PyObject *object)
{
    return (Py_ssize_t)((struct device_buffer *)object)->size;
}

static PyObject *device_buffer_device(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((struct device_buffer *)object)->device);
}

static PyObject *device_buffer_check(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (look((struct device_buffer *)object) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_buffer_release(PyObject *object, PyObject *unused)
{
    struct device_buffer *self = (struct device_buffer *)object;
    (void)unused;
    if (self->tensors > 0) {
        PyErr_Format(PyExc_BufferError, "%zd tensors made from it are still in use", self->tensors);
        return NULL;
    }
    give_back(self);
    Py_RETURN_NONE;
}

static PyObject *device_buffer_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    return look((struct device_buffer *)object) == 0 ? Py_NewRef(object) : NULL;
}

static PyObject *device_buffer_exit(PyObject *object, PyObject *args)
{
    (void)args;
    return device_buffer_release(object, NULL);
}

/* Version 3; not read only, which torch refuses of everything. */
static PyObject *device_buffer_interface(PyObject *object, void *unused)
{
    struct device_buffer *self = (struct device_buffer *)object;
    (void)unused;
    if (look(self) != 0)
        return NULL;
    return Py_BuildValue("{s:(K),s:s,s:(KO),s:i,s:O,s:O}", "shape", (unsigned long long)self->size,
                         "typestr", "|u1", "data", (unsigned long long)(uintptr_t)self->buffer.data,
                         Py_False, "version", 3, "strides", Py_None, "stream", Py_None);
}

static PyObject *device_buffer_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(ii)", DL_CUDA, ((struct device_buffer *)object)->device);
}

static PyObject *device_buffer_dlpack(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    struct device_buffer *self = (struct device_buffer *)object;
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!argument_parse(args, named, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy))
        return NULL;
    int type = DL_CUDA, id = self->device;
    if (device != Py_None &&
        !PyArg_ParseTuple(device, "ii;dl_device must be (type, id)", &type, &id))
        return NULL;
    if (copy == Py_True || type != DL_CUDA || id != self->device) {
        PyErr_Format(PyExc_BufferError, "no copy is made: it is on device (%d, %d)", DL_CUDA,
                     self->device);
        return NULL;
    }
    if (look(self) != 0)
        return NULL;
    struct dl_managed *managed = calloc(1, sizeof(*managed));
    if (managed == NULL)
        return PyErr_NoMemory();
    managed->size = (int64_t)self->size;
    managed->tensor = (struct dl_tensor){.data = (void *)(uintptr_t)self->buffer.data,
                                         .device = {DL_CUDA, self->device},
                                         .dimensions = 1,
                                         .item = {DL_UINT, 8, 1},
                                         .shape = &managed->size};
    managed->owner = object;
    managed->deleter = dl_delete;
    PyObject *capsule = PyCapsule_New(managed, dl_fresh, capsule_end);
    if (capsule == NULL) {
        free(managed);
        return NULL;
    }
    self->tensors++;
    Py_INCREF(object);
    return capsule;
}

static PyMethodDef methods[] = {
    {"ptr", device_buffer_ptr, METH_NOARGS,
     "ptr($self, /)\n--\n\nThe address of the value, for kernels on any GPU of this process; they "
     "must not write to it. BufferError if it holds no more."},
    {"size", device_buffer_size, METH_NOARGS, "size($self, /)\n--\n\nThe bytes of the value."},
    {"check", device_buffer_check, METH_NOARGS,
     "check($self, /)\n--\n\nBufferError if the value is not to be read there any more: released, "
     "or its lease is lost (the session is over, or the master was restarted), or its provider "
     "ended. What a kernel read before this call was the value if it raises nothing."},
    {"release", device_buffer_release, METH_NOARGS,
     "release($self, /)\n--\n\nLets go of the value; again: nothing. BufferError while tensors of "
     "__dlpack__() are in use."},
    {"__enter__", device_buffer_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", device_buffer_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\nrelease()."},
    {"__dlpack_device__", device_buffer_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\n(2, device): CUDA."},
    {"__dlpack__", (PyCFunction)(void (*)(void))device_buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA "
     "tensor of bytes, without a copy. Nothing is to be waited for on `stream`."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"device", device_buffer_device, NULL, "The GPU whose it is said to be.", NULL},
    {"__cuda_array_interface__", device_buffer_interface, NULL,
     "The bytes, as version 3 has it. They must not be written to.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, device_buffer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_sq_length, device_buffer_length},
    {Py_tp_doc,
     "A value where it lies, at an address that GPUs of this process load from; held in place "
     "until "
     "release(), the end of `with`, or as long as this object and the tensors made from it."},
    {0, NULL},
};

PyType_Spec device_buffer_spec = {
    .name = "mooncake.store.DeviceBuffer",
    .basicsize = sizeof(struct device_buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
