/* SPDX-License-Identifier: Apache-2.0 */
/* mooncake._store: the types, and what ends with the interpreter. */
#include <string.h>

#include "extension.h"

static struct module_state state;

struct module_state *module_state(void)
{
    return &state;
}

static PyObject *last_error(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_DecodeUTF8(code_last_text(), (Py_ssize_t)strlen(code_last_text()), "replace");
}

static PyObject *set_last_error(PyObject *module, PyObject *args)
{
    const char *text;
    int status;
    (void)module;
    if (!PyArg_ParseTuple(args, "is:_fail", &status, &text))
        return NULL;
    return PyLong_FromLongLong(code_with_text(status, text));
}

/* ---- arguments of what is written in Python, which are looked at as those of C are ---- */

static PyObject *as_text(PyObject *module, PyObject *args)
{
    PyObject *object;
    const char *what;
    (void)module;
    if (!PyArg_ParseTuple(args, "Os:_text", &object, &what) || argument_text(object, what) == NULL)
        return NULL;
    return Py_NewRef(object);
}

static PyObject *as_number(PyObject *module, PyObject *args)
{
    PyObject *object;
    const char *what;
    uint64_t number;
    (void)module;
    if (!PyArg_ParseTuple(args, "Os:_number", &object, &what) ||
        argument_number(object, what, &number) != 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *as_numbers(PyObject *module, PyObject *args)
{
    PyObject *object, *list;
    const char *what;
    (void)module;
    if (!PyArg_ParseTuple(args, "Os:_numbers", &object, &what))
        return NULL;
    PyObject *given = argument_tuple(object, what);
    list = given == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_Size(given); i++) {
        uint64_t number;
        PyObject *one = argument_number(PyTuple_GetItem(given, i), what, &number) != 0
                            ? NULL
                            : PyLong_FromUnsignedLongLong(number);
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    Py_XDECREF(given);
    return list;
}

static PyObject *bytes_at(PyObject *module, PyObject *args)
{
    unsigned long long address, length;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK:_bytes_at", &address, &length))
        return NULL;
    if (length > PY_SSIZE_T_MAX)
        return PyErr_NoMemory();
    return PyBytes_FromStringAndSize(length == 0 ? "" : (const char *)(uintptr_t)address,
                                     (Py_ssize_t)length);
}

static PyObject *codes(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return code_table();
}

static PyObject *close_all(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    session_close_all();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"last_error", last_error, METH_NOARGS,
     "last_error()\n--\n\nA sentence about this thread's last call that failed; \"\" if none has."},
    {"_fail", set_last_error, METH_VARARGS,
     "The code of a status of the library, with a sentence for last_error()."},
    {"_text", as_text, METH_VARARGS, "(object, what): a str, or a TypeError that names it."},
    {"_number", as_number, METH_VARARGS,
     "(object, what): an int of 0 to 2**64 - 1, or a TypeError."},
    {"_numbers", as_numbers, METH_VARARGS,
     "(sequence, what): a list of such ints, or a TypeError."},
    {"_bytes_at", bytes_at, METH_VARARGS, "(address, length): a copy of memory of any length."},
    {"_codes", codes, METH_NOARGS, "Every (status, its name, code)."},
    {"_close_all", close_all, METH_NOARGS, "Closes every store of this process."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mooncake._store",
    .m_doc = "The store and the engine in C; use mooncake.store and mooncake.engine.",
    .m_size = -1,
    .m_methods = functions,
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* While threads still run and the interpreter is whole: later is too late to wait for calls. */
static int close_at_exit(PyObject *module)
{
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *function = PyObject_GetAttrString(module, "_close_all");
    PyObject *done = atexit == NULL || function == NULL
                         ? NULL
                         : PyObject_CallMethod(atexit, "register", "O", function);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

PyMODINIT_FUNC PyInit__store(void); /* Python finds it by its name */

PyMODINIT_FUNC PyInit__store(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    state.store_type = add_type(module, &store_spec, "Store");
    state.handle_type = add_type(module, &handle_spec, "BufferHandle");
    state.device_buffer_type = add_type(module, &device_buffer_spec, "DeviceBuffer");
    state.engine_type = add_type(module, &engine_spec, "Engine");
    if (state.store_type == NULL || state.handle_type == NULL || state.device_buffer_type == NULL ||
        state.engine_type == NULL || close_at_exit(module) != 0)
        Py_CLEAR(module);
    return module;
}
