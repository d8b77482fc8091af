/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine for Python: what mooncake.engine.TransferEngine is built on. Each method
 * takes its arguments apart, releases the GIL, makes one call of the library and builds the answer.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yolk/peer.h>

#include "compat/engine_codes.h"
#include "compat/engine_open.h"
#include "extension.h"

/* A batch that was submitted and is not yet asked to its end. Under the GIL. */
struct flight {
    struct flight *next;
    uint64_t batch;
    uint32_t count;
    uint64_t deadline_ns;
};

enum { TOOK_TOO_LONG = -2 };

struct engine {
    PyObject base;
    struct yolk_peer *peer; /* NULL: not initialized */
    pid_t pid;
    int opening;
    struct flight *flights;
};

static const char not_initialized[] = "the engine is not initialized: call initialize() first";

static long code_of_engine(enum yolk_status status)
{
    if (status == YOLK_OK)
        return 0;
    (void)code_of_failure(status); /* keeps the sentence */
    return compat_engine_code_of(status);
}

static PyObject *answer(enum yolk_status status)
{
    return PyLong_FromLong(code_of_engine(status));
}

static PyObject *answer_text(enum yolk_status status, const char *text)
{
    (void)code_with_text(status, text);
    return PyLong_FromLong(compat_engine_code_of(status));
}

/* NULL, with the last error set: the engine cannot be used. */
static struct yolk_peer *usable(const struct engine *self)
{
    if (self->peer == NULL)
        (void)code_with_text(YOLK_ERR_INVALID, not_initialized);
    else if (self->pid != getpid())
        (void)code_with_text(YOLK_ERR_FORKED, "the engine was initialized by another process");
    else
        return self->peer;
    return NULL;
}

/* (status, text): the engine's code of a status of the library, with the sentence for last_error().
 */
static PyObject *engine_refuse(PyObject *object, PyObject *args)
{
    const char *text;
    int status;
    (void)object;
    if (!PyArg_ParseTuple(args, "is:_refuse", &status, &text))
        return NULL;
    return answer_text((enum yolk_status)status, text);
}

static PyObject *unusable(void)
{
    return PyLong_FromLong(COMPAT_ENGINE_CONTEXT);
}

/* ---- beginning and end ---- */

static PyObject *engine_open(PyObject *object, PyObject *args)
{
    struct engine *self = (struct engine *)object;
    struct compat_engine_setup setup = {0};
    PyObject *name, *metadata;
    if (!PyArg_ParseTuple(args, "OO:_open", &name, &metadata) ||
        (setup.name = argument_text(name, "local_hostname")) == NULL ||
        (setup.metadata = argument_text(metadata, "metadata_server")) == NULL)
        return NULL;
    if (self->peer != NULL || self->opening)
        return answer_text(YOLK_ERR_INVALID, "the engine is initialized already");
    struct yolk_peer *peer = NULL;
    enum yolk_status status;
    self->opening = 1;
    PyThreadState *thread = PyEval_SaveThread();
    status = compat_engine_open(&setup, &peer);
    PyEval_RestoreThread(thread);
    self->opening = 0;
    self->peer = peer;
    self->pid = getpid();
    return answer(status);
}

static void engine_dealloc(PyObject *object)
{
    struct engine *self = (struct engine *)object;
    PyTypeObject *type = Py_TYPE(object);
    while (self->flights != NULL) {
        struct flight *flight = self->flights;
        self->flights = flight->next;
        free(flight); /* the engine cancels what is in flight */
    }
    if (self->peer != NULL && self->pid == getpid()) {
        PyThreadState *thread = PyEval_SaveThread();
        (void)!compat_engine_close(self->peer);
        PyEval_RestoreThread(thread);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* Whether nothing is left that touches memory. Nobody else uses the engine any more. */
static PyObject *engine_close(PyObject *object, PyObject *unused)
{
    struct engine *self = (struct engine *)object;
    int quiet = 1;
    (void)unused;
    if (self->peer != NULL && self->pid == getpid()) {
        PyThreadState *thread = PyEval_SaveThread();
        quiet = compat_engine_close(self->peer) == YOLK_OK;
        PyEval_RestoreThread(thread);
    }
    self->peer = NULL;
    return PyBool_FromLong(quiet);
}

static PyObject *engine_port(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct yolk_peer *peer = usable((struct engine *)object);
    return PyLong_FromLong(peer == NULL ? 0 : yolk_peer_port(peer));
}

static PyObject *engine_address(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct yolk_peer *peer = usable((struct engine *)object);
    return PyUnicode_FromString(peer == NULL ? "" : yolk_peer_address(peer));
}

static PyObject *engine_pointer(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct yolk_peer *peer = usable((struct engine *)object);
    return PyLong_FromVoidPtr(peer);
}

static PyObject *engine_has(PyObject *object, PyObject *argument)
{
    char reason[256] = "";
    const char *name = argument_text(argument, "name");
    if (name == NULL)
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    int has = peer != NULL &&
              yolk_engine_has_transport(yolk_peer_engine(peer), name, reason, sizeof(reason));
    if (peer != NULL && !has)
        (void)code_with_text(YOLK_ERR_UNSUPPORTED, reason);
    return PyBool_FromLong(has);
}

/* ---- memory ---- */

static PyObject *engine_register(PyObject *object, PyObject *args)
{
    PyObject *address_object, *size_object, *location_object;
    const char *location;
    uint64_t address, size;
    if (!PyArg_ParseTuple(args, "OOO:_register", &address_object, &size_object, &location_object) ||
        (location = argument_text(location_object, "location")) == NULL ||
        argument_number(address_object, "buffer_addr", &address) != 0 ||
        argument_number(size_object, "capacity", &size) != 0)
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status =
        yolk_peer_register(peer, (void *)(uintptr_t)address, size, location, YOLK_REMOTE_WRITE);
    PyEval_RestoreThread(thread);
    return answer(status);
}

static PyObject *engine_unregister(PyObject *object, PyObject *args)
{
    PyObject *address_object;
    uint64_t address;
    if (!PyArg_ParseTuple(args, "O:_unregister", &address_object) ||
        argument_number(address_object, "buffer_addr", &address) != 0)
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_peer_unregister(peer, (void *)(uintptr_t)address, 0);
    PyEval_RestoreThread(thread);
    return answer(status);
}

static PyObject *engine_is_registered(PyObject *object, PyObject *argument)
{
    uint64_t address;
    if (argument_number(argument, "buffer_addr", &address) != 0)
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    return PyBool_FromLong(
        peer != NULL &&
        yolk_engine_is_registered(yolk_peer_engine(peer), (void *)(uintptr_t)address, 1));
}

/* ---- peers ---- */

static PyObject *engine_segment(PyObject *object, PyObject *args)
{
    const char *name;
    uint64_t segment = 0;
    if (!PyArg_ParseTuple(args, "s:_segment", &name))
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_peer_open(peer, name, &segment);
    PyEval_RestoreThread(thread);
    return status == YOLK_OK ? PyLong_FromUnsignedLongLong(segment) : answer(status);
}

static PyObject *engine_probe(PyObject *object, PyObject *args)
{
    unsigned long long segment, timeout_ms;
    if (!PyArg_ParseTuple(args, "KK:_probe", &segment, &timeout_ms))
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_peer_probe(peer, segment, timeout_ms);
    if (status == YOLK_ERR_STALE) /* another process answers there: as alive as the one before */
        status = YOLK_OK;
    PyEval_RestoreThread(thread);
    return answer(status);
}

/* [(address, size, location)], or a negative code. */
static PyObject *engine_buffers(PyObject *object, PyObject *args)
{
    unsigned long long segment;
    struct yolk_peer_buffer *buffers = NULL;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "K:_buffers", &segment))
        return NULL;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = yolk_peer_buffers(peer, segment, &buffers, &count);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK)
        return answer(status);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *one = Py_BuildValue("(KKs)", (unsigned long long)buffers[i].address,
                                      (unsigned long long)buffers[i].size, buffers[i].location);
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    free(buffers);
    return list;
}

/* [(name, message)], or a negative code. */
static PyObject *engine_notifications(PyObject *object, PyObject *unused)
{
    struct yolk_notification *all = NULL;
    size_t count = 0;
    (void)unused;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL)
        return unusable();
    enum yolk_status status = yolk_peer_notifications(peer, &all, &count);
    if (status != YOLK_OK)
        return answer(status);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *name =
            PyUnicode_DecodeUTF8(all[i].name, (Py_ssize_t)strlen(all[i].name), "surrogateescape");
        PyObject *message = PyUnicode_DecodeUTF8(all[i].message, (Py_ssize_t)all[i].message_size,
                                                 "surrogateescape");
        PyObject *one = name == NULL || message == NULL ? NULL : PyTuple_Pack(2, name, message);
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
        Py_XDECREF(message);
        Py_XDECREF(one);
    }
    yolk_notifications_free(all, count);
    return list;
}

/* ---- transfers ---- */

#define BYTES_MAX (UINT64_C(1) << 60)

struct call {
    uint64_t segment;
    const char *hint, *name, *message; /* name NULL: no notification */
    Py_ssize_t message_size;
    struct yolk_request *requests;
    uint32_t count;
    uint64_t timeout_ms;
    char text[160]; /* why it is refused without being tried; "" if it is not */
};

static const char *const names_of_requests[] = {"buffers", "peer_buffer_addresses", "lengths"};

static int fill_request(struct call *call, int opcode, PyObject *tuples[3], Py_ssize_t i)
{
    struct yolk_request *request = &call->requests[i];
    uint64_t local;
    if (argument_number(PyTuple_GetItem(tuples[0], i), names_of_requests[0], &local) != 0 ||
        argument_number(PyTuple_GetItem(tuples[1], i), names_of_requests[1], &request->offset) !=
            0 ||
        argument_number(PyTuple_GetItem(tuples[2], i), names_of_requests[2], &request->size) != 0)
        return -1;
    request->local = (void *)(uintptr_t)local;
    request->opcode = (enum yolk_opcode)opcode;
    request->hint = call->hint;
    request->segment = call->segment;
    return 0;
}

/* Three sequences of the same length, as requests. -1 with an exception. */
static int take_requests(struct call *call, int opcode, PyObject *lists[3])
{
    PyObject *tuples[3] = {NULL, NULL, NULL};
    Py_ssize_t count = 0;
    int status = -1;
    for (int i = 0; i < 3; i++) {
        tuples[i] = argument_tuple(lists[i], names_of_requests[i]);
        if (tuples[i] == NULL)
            goto out;
        Py_ssize_t size = PyTuple_Size(tuples[i]);
        count = i == 0 ? size : count;
        if (size != count || size > INT32_MAX)
            (void)PyOS_snprintf(call->text, sizeof(call->text), "%zd buffers for %zd %s", count,
                                size, names_of_requests[i]);
    }
    call->requests = calloc((size_t)count + 1, sizeof(*call->requests));
    if (call->requests == NULL) {
        (void)PyErr_NoMemory();
        goto out;
    }
    for (Py_ssize_t i = 0; i < count && call->text[0] == '\0'; i++)
        if (fill_request(call, opcode, tuples, i) != 0)
            goto out;
    call->count = (uint32_t)count;
    status = 0;
out:
    for (int i = 0; i < 3; i++)
        Py_XDECREF(tuples[i]);
    return status;
}

static int take_call(struct call *call, PyObject *args)
{
    PyObject *lists[3];
    int opcode;
    unsigned long long segment, timeout_ms;
    memset(call, 0, sizeof(*call));
    if (!PyArg_ParseTuple(args, "KiOOOzKzz#", &segment, &opcode, &lists[0], &lists[1], &lists[2],
                          &call->hint, &timeout_ms, &call->name, &call->message,
                          &call->message_size))
        return -1;
    call->segment = segment;
    call->timeout_ms = timeout_ms;
    return take_requests(call, opcode, lists);
}

/* A second more for each GB, as in Mooncake. Lengths that cannot be are refused later, so they only
 * must not wrap it round. */
static uint64_t deadline_of(struct yolk_peer *peer, const struct call *call)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < call->count && bytes < BYTES_MAX; i++)
        bytes += call->requests[i].size < BYTES_MAX ? call->requests[i].size : BYTES_MAX;
    return yolk_engine_now_ns(yolk_peer_engine(peer)) + call->timeout_ms * 1000000u + bytes;
}

static int fits_hint(struct yolk_peer *peer, struct call *call)
{
    char reason[100];
    if (call->hint == NULL ||
        yolk_engine_has_transport(yolk_peer_engine(peer), call->hint, reason, sizeof(reason)))
        return 1;
    (void)PyOS_snprintf(call->text, sizeof(call->text), "transport %s: %s", call->hint, reason);
    return 0;
}

static enum yolk_status transfer(struct yolk_peer *peer, const struct call *call)
{
    enum yolk_status status = YOLK_OK;
    if (call->count > 0)
        status = yolk_peer_transfer(peer, call->requests, call->count, deadline_of(peer, call));
    if (status == YOLK_OK && call->name != NULL)
        status = yolk_peer_notify(peer, call->segment, call->name, call->message,
                                  (size_t)call->message_size);
    return status;
}

static PyObject *engine_transfer(PyObject *object, PyObject *args)
{
    struct call call;
    PyObject *result = NULL;
    if (take_call(&call, args) != 0)
        goto out;
    struct yolk_peer *peer = usable((struct engine *)object);
    if (peer == NULL) {
        result = unusable();
    } else if (call.text[0] != '\0') {
        result = answer_text(YOLK_ERR_INVALID, call.text);
    } else if (!fits_hint(peer, &call)) {
        result = answer_text(YOLK_ERR_UNSUPPORTED, call.text);
    } else {
        enum yolk_status status;
        PyThreadState *thread = PyEval_SaveThread();
        status = transfer(peer, &call);
        PyEval_RestoreThread(thread);
        result = answer(status);
    }
out:
    free(call.requests);
    return result;
}

/* ---- transfers that are looked at later ---- */

static enum yolk_status submit(struct yolk_peer *peer, const struct call *call,
                               struct flight *flight)
{
    struct yolk_engine *engine = yolk_peer_engine(peer);
    uint32_t room = call->count > 0 ? call->count : 1;
    enum yolk_status *verdicts = calloc(room, sizeof(*verdicts));
    uint32_t first = UINT32_MAX;
    if (verdicts == NULL)
        return YOLK_ERR_NO_MEMORY;
    enum yolk_status status = yolk_engine_batch_create(engine, room, &flight->batch);
    if (status == YOLK_OK) {
        flight->count = call->count;
        flight->deadline_ns = deadline_of(peer, call);
        status =
            yolk_peer_submit(peer, flight->batch, call->requests, call->count, verdicts, &first);
        if (first != UINT32_MAX)
            status = YOLK_OK; /* those that were refused are told as tasks that failed */
        if (status != YOLK_OK && yolk_engine_batch_free(engine, flight->batch) != YOLK_OK)
            status = YOLK_ERR_STALE;
    }
    free(verdicts);
    return status;
}

/* The batch's number, or 0. */
static PyObject *engine_submit(PyObject *object, PyObject *args)
{
    struct engine *self = (struct engine *)object;
    struct call call;
    PyObject *result = NULL;
    struct flight *flight = calloc(1, sizeof(*flight));
    if (flight == NULL) {
        call.requests = NULL;
        (void)PyErr_NoMemory();
        goto out;
    }
    if (take_call(&call, args) != 0)
        goto out;
    struct yolk_peer *peer = usable(self);
    if (peer != NULL && call.text[0] != '\0') {
        (void)code_with_text(YOLK_ERR_INVALID, call.text);
        peer = NULL;
    }
    enum yolk_status status = YOLK_ERR_INVALID;
    if (peer != NULL) {
        PyThreadState *thread = PyEval_SaveThread();
        status = submit(peer, &call, flight);
        PyEval_RestoreThread(thread);
        (void)code_of_engine(status);
    }
    result = PyLong_FromUnsignedLongLong(status == YOLK_OK ? flight->batch : 0);
    if (status == YOLK_OK) {
        flight->next = self->flights;
        self->flights = flight;
        flight = NULL;
    }
out:
    free(flight);
    free(call.requests);
    return result;
}

/* Takes it out of the list. NULL: no such batch. */
static struct flight *take_flight(struct engine *self, uint64_t batch)
{
    for (struct flight **at = &self->flights; *at != NULL; at = &(*at)->next) {
        struct flight *flight = *at;
        if (flight->batch != batch)
            continue;
        *at = flight->next;
        return flight;
    }
    return NULL;
}

static void put_flight_back(struct engine *self, struct flight *flight)
{
    flight->next = self->flights;
    self->flights = flight;
}

/* AGAIN: not all are over. Else the first failure, which yolk_last_error() is about. Without the
 * GIL. */
static enum yolk_status look(struct yolk_peer *peer, const struct flight *flight)
{
    enum yolk_status result = YOLK_OK;
    struct yolk_task_status again;
    uint32_t failed = 0;
    for (uint32_t i = 0; i < flight->count; i++) {
        struct yolk_task_status task;
        enum yolk_status polled =
            yolk_engine_batch_poll(yolk_peer_engine(peer), flight->batch, i, &task);
        if (polled != YOLK_OK)
            return polled;
        if (!task.terminal)
            return YOLK_ERR_AGAIN;
        if (result == YOLK_OK && task.status != YOLK_OK) {
            result = task.status;
            failed = i;
        }
    }
    if (result != YOLK_OK) /* the others' reasons came after its */
        (void)!yolk_engine_batch_poll(yolk_peer_engine(peer), flight->batch, failed, &again);
    return result;
}

static int any_stuck(struct yolk_peer *peer, const struct flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        struct yolk_task_status task;
        if (yolk_engine_batch_poll(yolk_peer_engine(peer), flight->batch, i, &task) != YOLK_OK ||
            task.status == YOLK_ERR_STUCK)
            return 1;
    }
    return 0;
}

static enum yolk_status finish(struct yolk_peer *peer, const struct flight *flight, int wait)
{
    struct yolk_engine *engine = yolk_peer_engine(peer);
    enum yolk_status status = YOLK_OK;
    if (wait)
        status = yolk_engine_batch_wait(engine, flight->batch, flight->deadline_ns);
    if (status == YOLK_OK)
        status = look(peer, flight);
    if (status == YOLK_ERR_AGAIN && yolk_engine_now_ns(engine) >= flight->deadline_ns)
        status = YOLK_ERR_TIMEOUT;
    if (status == YOLK_ERR_TIMEOUT) {
        /* What the caller is told has ended must touch its memory no more: canceled, it ends, quiet
         * or STUCK after the drain limit. */
        for (uint32_t i = 0; i < flight->count; i++)
            (void)!yolk_engine_batch_cancel(engine, flight->batch, i);
        if (yolk_engine_batch_wait(engine, flight->batch, 0) == YOLK_OK && any_stuck(peer, flight))
            status = YOLK_ERR_STUCK;
    }
    if (status != YOLK_ERR_AGAIN && yolk_engine_batch_free(engine, flight->batch) != YOLK_OK)
        status = YOLK_ERR_STALE;
    return status;
}

/* _finish(batch, wait): 1: still in flight (without wait), 0: done, or a negative code; then the
 * number is used up. */
static PyObject *engine_finish(PyObject *object, PyObject *args)
{
    struct engine *self = (struct engine *)object;
    unsigned long long batch;
    int wait;
    if (!PyArg_ParseTuple(args, "Kp:_finish", &batch, &wait))
        return NULL;
    struct yolk_peer *peer = usable(self);
    if (peer == NULL)
        return unusable();
    struct flight *flight = take_flight(self, batch);
    if (flight == NULL)
        return answer_text(YOLK_ERR_STALE, "no transfer of that number is in flight");
    enum yolk_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = finish(peer, flight, wait);
    PyEval_RestoreThread(thread);
    if (status == YOLK_ERR_AGAIN) {
        put_flight_back(self, flight);
        return PyLong_FromLong(1);
    }
    free(flight);
    if (status == YOLK_ERR_TIMEOUT) {
        (void)code_of_failure(status);
        return PyLong_FromLong(TOOK_TOO_LONG);
    }
    return answer(status);
}

static PyObject *engine_topology(PyObject *self, PyObject *arguments)
{
    const char *devices = NULL;
    char *text = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "|z", &devices))
        return NULL;
    struct base_config config;
    PyThreadState *thread = PyEval_SaveThread();
    enum yolk_status status =
        compat_engine_config(NULL, compat_engine_uses_tent(), environ, &config);
    if (status == YOLK_OK)
        status = compat_engine_topology(&config, devices, true, &text);
    base_config_free(&config);
    PyEval_RestoreThread(thread);
    if (status != YOLK_OK)
        return answer(status);
    PyObject *made = PyUnicode_FromString(text);
    free(text);
    return made;
}

static PyMethodDef methods[] = {
    {"_open", engine_open, METH_VARARGS, "What initialize() does."},
    {"_close", engine_close, METH_NOARGS, "Ends it: whether nothing touches memory any more."},
    {"_refuse", engine_refuse, METH_VARARGS, "(status, text): its code; text is last_error()."},
    {"_address", engine_address, METH_NOARGS, "host:port of the handshake; \"\" before _open."},
    {"_pointer", engine_pointer, METH_NOARGS, "The address of the engine; 0 before _open."},
    {"_register", engine_register, METH_VARARGS, "(address, size, location): 0 or a code."},
    {"_is_registered", engine_is_registered, METH_O, "(address): whether it is of a range."},
    {"_unregister", engine_unregister, METH_VARARGS, "(address): 0 or a code."},
    {"_segment", engine_segment, METH_VARARGS, "(name): a handle, or a negative code."},
    {"_probe", engine_probe, METH_VARARGS, "(segment, timeout_ms): 0 or a code."},
    {"_buffers", engine_buffers, METH_VARARGS, "(segment): [(address, size, location)] or a code."},
    {"_topology", engine_topology, METH_VARARGS, "(devices or None): JSON, or a code."},
    {"_notifications", engine_notifications, METH_NOARGS, "[(name, message)] or a code."},
    {"_transfer", engine_transfer, METH_VARARGS,
     "(segment, opcode, buffers, peer addresses, lengths, hint, timeout_ms, name, message): 0 or a "
     "code."},
    {"_submit", engine_submit, METH_VARARGS, "As _transfer: a number, or 0."},
    {"_finish", engine_finish, METH_VARARGS,
     "(number, wait): 1 in flight, 0 done, -2 took too long, or a code."},
    {"get_rpc_port", engine_port, METH_NOARGS,
     "get_rpc_port($self, /)\n--\n\nThe port that others reach this engine at; 0 before "
     "initialize()."},
    {"has_transport", engine_has, METH_O,
     "has_transport($self, name, /)\n--\n\nWhether a transport is in use here; last_error() says "
     "why "
     "not."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The calls of the engine; mooncake.engine.TransferEngine names them as upstream."},
    {0, NULL},
};

PyType_Spec engine_spec = {
    .name = "mooncake._store.Engine",
    .basicsize = sizeof(struct engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
