/* SPDX-License-Identifier: Apache-2.0 */
/* What a ReplicateConfig says, as the library's options of a put. Its content is copied during the
 * call: programs change one object and use it again. */
#include <stdlib.h>

#include "extension.h"

static int attribute_number(PyObject *config, const char *name, uint64_t *value)
{
    PyObject *object = PyObject_GetAttrString(config, name);
    int status = object == NULL ? -1 : argument_number(object, name, value);
    Py_XDECREF(object);
    return status;
}

static int attribute_flag(PyObject *config, const char *name, int32_t *value)
{
    PyObject *object = PyObject_GetAttrString(config, name);
    *value = object == NULL ? -1 : PyObject_IsTrue(object);
    Py_XDECREF(object);
    return *value < 0 ? -1 : 0;
}

/* The attribute as a tuple; None is an empty one. New reference. */
static PyObject *attribute_tuple(PyObject *config, const char *name)
{
    PyObject *object = PyObject_GetAttrString(config, name);
    PyObject *tuple = object == NULL      ? NULL
                      : object == Py_None ? PyTuple_New(0)
                                          : argument_tuple(object, name);
    Py_XDECREF(object);
    return tuple;
}

/* preferred_segment, then preferred_segments, as one tuple. */
static PyObject *preferred_of(PyObject *config)
{
    PyObject *one = PyObject_GetAttrString(config, "preferred_segment");
    PyObject *more = one == NULL ? NULL : attribute_tuple(config, "preferred_segments");
    PyObject *first = NULL, *all = NULL;
    if (more != NULL) {
        int is_set = one == Py_None ? 0 : PyObject_IsTrue(one);
        first = is_set < 0 ? NULL : is_set ? PyTuple_Pack(1, one) : PyTuple_New(0);
        all = first == NULL ? NULL : PySequence_Concat(first, more);
    }
    Py_XDECREF(first);
    Py_XDECREF(more);
    Py_XDECREF(one);
    return all;
}

/* One allocation for the names of segments and those of groups. */
static int take_names(struct batch *batch, PyObject *config)
{
    batch->preferred = preferred_of(config);
    batch->groups = batch->preferred == NULL ? NULL : attribute_tuple(config, "group_ids");
    if (batch->groups == NULL)
        return -1;
    size_t preferred = (size_t)PyTuple_Size(batch->preferred);
    size_t groups = (size_t)PyTuple_Size(batch->groups);
    batch->names = calloc(preferred + groups + 1, sizeof(*batch->names));
    if (batch->names == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < preferred + groups; i++) {
        int of_segment = i < preferred;
        PyObject *name = of_segment ? PyTuple_GetItem(batch->preferred, (Py_ssize_t)i)
                                    : PyTuple_GetItem(batch->groups, (Py_ssize_t)(i - preferred));
        if (!of_segment && name == Py_None)
            continue; /* a key of no group */
        batch->names[i] =
            argument_text(name, of_segment ? "a preferred_segment" : "each of group_ids");
        if (batch->names[i] == NULL)
            return -1;
    }
    batch->options.preferred_segments = batch->names;
    batch->options.preferred_segment_count = preferred;
    batch->options.group_ids = groups > 0 ? batch->names + preferred : NULL;
    if (groups > 0 && groups != batch->count)
        batch_fail_lengths(batch, "group_ids", groups);
    return 0;
}

static int take_soft_pin(struct batch *batch, PyObject *config)
{
    uint64_t action;
    PyObject *ttl = PyObject_GetAttrString(config, "soft_pin_ttl_ms");
    int status = ttl == NULL ? -1 : attribute_number(config, "soft_pin_action", &action);
    if (status == 0 && action > YOLK_SOFT_PIN_CLEAR) {
        PyErr_SetString(PyExc_TypeError, "soft_pin_action must be a SoftPinAction");
        status = -1;
    }
    if (status == 0)
        batch->options.soft_pin = (int32_t)action;
    if (status == 0 && ttl != Py_None)
        status = argument_number(ttl, "soft_pin_ttl_ms", &batch->options.soft_pin_ttl_ms);
    Py_XDECREF(ttl);
    return status;
}

/* What there is no kind of copy for. */
static int refuse_other_copies(struct batch *batch, PyObject *config)
{
    uint64_t elsewhere, shared;
    PyObject *segments = attribute_tuple(config, "preferred_nof_segments");
    if (segments == NULL)
        return -1;
    int named = PyTuple_Size(segments) > 0;
    Py_DECREF(segments);
    if (attribute_number(config, "nof_replica_num", &elsewhere) != 0 ||
        attribute_number(config, "dfs_replica_num", &shared) != 0)
        return -1;
    if (named || elsewhere != 0 || shared != 0)
        batch->failure = code_with_text(
            YOLK_ERR_UNSUPPORTED,
            "ReplicateConfig.nof_replica_num, .preferred_nof_segments and .dfs_replica_num: copies "
            "lie in the memory and on the disks of nodes only");
    return 0;
}

int batch_config(struct batch *batch, PyObject *config)
{
    uint64_t replicas;
    if (config == NULL || config == Py_None)
        return 0;
    if (attribute_number(config, "replica_num", &replicas) != 0 ||
        attribute_flag(config, "with_hard_pin", &batch->options.hard_pin) != 0 ||
        attribute_flag(config, "prefer_alloc_in_same_node", &batch->options.same_segment) != 0 ||
        take_soft_pin(batch, config) != 0 || take_names(batch, config) != 0 ||
        refuse_other_copies(batch, config) != 0) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Format(PyExc_TypeError, "config must be a ReplicateConfig, not %S",
                         Py_TYPE(config));
        return -1;
    }
    batch->options.replica_num = replicas > UINT32_MAX ? UINT32_MAX : (uint32_t)replicas;
    if (replicas == 0 || replicas > UINT32_MAX)
        batch->failure = code_with_text(YOLK_ERR_INVALID,
                                        replicas == 0 ? "ReplicateConfig.replica_num is 0: a "
                                                        "put makes 1 to 4 copies"
                                                      : "ReplicateConfig.replica_num is more "
                                                        "than 2**32: a put makes 1 to 4 copies");
    return 0;
}
