/* SPDX-License-Identifier: Apache-2.0 */
/* get_into_ranges(): parts of values, each to a place in one of several buffers. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

struct fragment {
    uint64_t to;   /* address */
    uint64_t from; /* offset in the value */
    uint64_t size;
    int64_t result;
};

/* One value and its fragments. */
struct piece {
    const char *key;
    size_t key_size;
    size_t first, count; /* of the fragments */
};

struct ranges {
    PyObject *keys; /* list, so that their text stays */
    struct piece *pieces;
    struct fragment *fragments;
    size_t piece_count, piece_room, fragment_count, fragment_room;
    int uneven; /* lists that should be of one length are not */
};

static void *room_for(void *memory, size_t *room, size_t wanted, size_t item)
{
    if (wanted <= *room)
        return memory;
    void *grown = realloc(memory, 2 * wanted * item);
    if (grown == NULL)
        (void)PyErr_NoMemory();
    else
        *room = 2 * wanted;
    return grown;
}

/* The fragments of one value. Results have the shape of the sizes, also when nothing else fits it.
 */
static int take_fragments(struct ranges *ranges, uint64_t base, PyObject *to, PyObject *from,
                          PyObject *size)
{
    size_t count = (size_t)PyTuple_Size(size);
    int even = (size_t)PyTuple_Size(to) == count && (size_t)PyTuple_Size(from) == count;
    struct fragment *fragments = room_for(ranges->fragments, &ranges->fragment_room,
                                          ranges->fragment_count + count, sizeof(*fragments));
    if (fragments == NULL && count > 0)
        return -1;
    ranges->fragments = fragments;
    ranges->uneven |= !even;
    for (size_t i = 0; i < count; i++) {
        struct fragment *fragment = &fragments[ranges->fragment_count++];
        uint64_t offset = 0;
        memset(fragment, 0, sizeof(*fragment));
        if (argument_number(PyTuple_GetItem(size, (Py_ssize_t)i), "each number in all_sizes",
                            &fragment->size) != 0 ||
            (even && (argument_number(PyTuple_GetItem(to, (Py_ssize_t)i),
                                      "each number in all_dst_offsets", &offset) != 0 ||
                      argument_number(PyTuple_GetItem(from, (Py_ssize_t)i),
                                      "each number in all_src_offsets", &fragment->from) != 0)))
            return -1;
        fragment->result = code_of(YOLK_ERR_INVALID);
        fragment->to = base == 0 || offset > UINT64_MAX - base ? 0 : base + offset;
    }
    return 0;
}

static int take_key(struct ranges *ranges, PyObject *key, uint64_t base, PyObject *to,
                    PyObject *from, PyObject *size)
{
    Py_ssize_t length = 0;
    struct piece *pieces =
        room_for(ranges->pieces, &ranges->piece_room, ranges->piece_count + 1, sizeof(*pieces));
    if (pieces == NULL)
        return -1;
    ranges->pieces = pieces;
    struct piece *piece = &pieces[ranges->piece_count++];
    memset(piece, 0, sizeof(*piece));
    if (key != NULL) {
        if (!PyUnicode_Check(key)) {
            PyErr_Format(PyExc_TypeError, "each key in all_keys must be a str, not %S",
                         Py_TYPE(key));
            return -1;
        }
        piece->key = PyUnicode_AsUTF8AndSize(key, &length);
        if (piece->key == NULL || PyList_Append(ranges->keys, key) != 0)
            return -1;
    }
    piece->key_size = (size_t)length;
    piece->first = ranges->fragment_count;
    piece->count = (size_t)PyTuple_Size(size);
    return take_fragments(ranges, base, to, from, size);
}

/* Item i as a tuple, an empty one where there is none. New reference. */
static PyObject *inner(PyObject *tuple, Py_ssize_t i, const char *what)
{
    return i < PyTuple_Size(tuple) ? argument_tuple(PyTuple_GetItem(tuple, i), what)
                                   : PyTuple_New(0);
}

/* The keys of one buffer; a list with the number of fragments of each. */
static PyObject *take_buffer(struct ranges *ranges, uint64_t base, PyObject *of[4])
{
    Py_ssize_t count = PyTuple_Size(of[3]);
    PyObject *shape = PyList_New(0);
    for (int i = 0; i < 3; i++)
        ranges->uneven |= PyTuple_Size(of[i]) != count;
    for (Py_ssize_t i = 0; shape != NULL && i < count; i++) {
        PyObject *to = inner(of[1], i, "each item of all_dst_offsets");
        PyObject *from = to == NULL ? NULL : inner(of[2], i, "each item of all_src_offsets");
        PyObject *size = from == NULL ? NULL : inner(of[3], i, "each item of all_sizes");
        PyObject *key = i < PyTuple_Size(of[0]) ? PyTuple_GetItem(of[0], i) : NULL;
        PyObject *number = size == NULL ? NULL : PyLong_FromSsize_t(PyTuple_Size(size));
        if (number == NULL || take_key(ranges, key, base, to, from, size) != 0 ||
            PyList_Append(shape, number) != 0)
            Py_CLEAR(shape);
        Py_XDECREF(number);
        Py_XDECREF(size);
        Py_XDECREF(from);
        Py_XDECREF(to);
    }
    return shape;
}

/* All buffers; a list of what take_buffer gives. */
static PyObject *take_all(struct ranges *ranges, PyObject *addresses, PyObject *of[4])
{
    static const char *const names[4] = {"each item of all_keys", "each item of all_dst_offsets",
                                         "each item of all_src_offsets", "each item of all_sizes"};
    Py_ssize_t count = PyTuple_Size(of[3]);
    PyObject *shapes = PyList_New(0);
    ranges->uneven |= PyTuple_Size(addresses) != count;
    for (int i = 0; i < 3; i++)
        ranges->uneven |= PyTuple_Size(of[i]) != count;
    for (Py_ssize_t i = 0; shapes != NULL && i < count; i++) {
        PyObject *parts[4] = {NULL, NULL, NULL, NULL}, *shape = NULL;
        uint64_t base = 0;
        int good =
            i >= PyTuple_Size(addresses) ||
            argument_number(PyTuple_GetItem(addresses, i), "each item of buffer_ptrs", &base) == 0;
        for (int j = 0; good && j < 4; j++)
            good = (parts[j] = inner(of[j], i, names[j])) != NULL;
        if (good)
            shape = take_buffer(ranges, base, parts);
        if (shape == NULL || PyList_Append(shapes, shape) != 0)
            Py_CLEAR(shapes);
        Py_XDECREF(shape);
        for (int j = 0; j < 4; j++)
            Py_XDECREF(parts[j]);
    }
    return shapes;
}

static int64_t copy_fragment(struct yolk_store *store, const struct yolk_buffer *buffer,
                             const struct fragment *fragment)
{
    if (fragment->to == 0)
        return YOLK_ERR_INVALID;
    enum yolk_status status = yolk_store_copy_out(store, buffer, fragment->from,
                                                  (void *)(uintptr_t)fragment->to, fragment->size);
    return status == YOLK_OK ? (int64_t)fragment->size : (int64_t)status;
}

/* One value after the other, as a whole: where bytes go to the same place, the last ones stay.
 * Together no longer than a call may take. */
static void read_in_order(struct yolk_store *store, struct ranges *ranges, uint64_t timeout_ms)
{
    uint64_t start_ms = calls_now_ms();
    int given_up = 0;
    for (size_t i = 0; i < ranges->piece_count; i++) {
        const struct piece *piece = &ranges->pieces[i];
        struct yolk_buffer buffer;
        enum yolk_status status =
            given_up ? YOLK_ERR_TIMEOUT
                     : yolk_store_get_buffer(store, piece->key, piece->key_size, &buffer);
        for (size_t j = piece->first; j < piece->first + piece->count; j++) {
            struct fragment *fragment = &ranges->fragments[j];
            fragment->result =
                status == YOLK_OK ? copy_fragment(store, &buffer, fragment) : (int64_t)status;
        }
        if (status == YOLK_OK)
            yolk_store_release_buffer(store, &buffer);
        else if (!given_up)
            (void)code_of_failure(status);
        given_up =
            given_up || calls_give_up(start_ms, timeout_ms, status, ranges->piece_count - 1 - i);
    }
}

/* What one get of chosen ranges is made of. */
struct selection {
    struct yolk_kv *kvs;
    struct yolk_slice *slices;
    struct fragment **order; /* those to read: by piece, then by their place in the value */
    size_t *kv_of;           /* as order */
    size_t kv_count, slice_count, count;
};

static int by_from(const void *left, const void *right)
{
    const struct fragment *a = *(struct fragment *const *)left;
    const struct fragment *b = *(struct fragment *const *)right;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int by_to(const void *left, const void *right)
{
    const struct fragment *a = *(struct fragment *const *)left;
    const struct fragment *b = *(struct fragment *const *)right;
    return a->to < b->to ? -1 : a->to > b->to;
}

/* The sizes of all values, in one question; no byte of them moves. */
static enum yolk_status ask_sizes(struct yolk_store *store, const struct ranges *ranges,
                                  struct selection *selection)
{
    static const struct yolk_slice nothing = {YOLK_SKIP, INT64_MAX};
    for (size_t i = 0; i < ranges->piece_count; i++)
        selection->kvs[i] = (struct yolk_kv){.key = ranges->pieces[i].key,
                                             .key_size = ranges->pieces[i].key_size,
                                             .slices = &nothing,
                                             .slice_count = 1,
                                             .result = YOLK_ERR_INVALID};
    return yolk_store_get(store, selection->kvs, ranges->piece_count);
}

/* Those that are in their values, in order; the others have their results. */
static void select_fragments(struct ranges *ranges, struct selection *selection)
{
    for (size_t i = 0; i < ranges->piece_count; i++) {
        const struct piece *piece = &ranges->pieces[i];
        int64_t size = selection->kvs[i].result;
        size_t begin = selection->count;
        for (size_t j = piece->first; j < piece->first + piece->count; j++) {
            struct fragment *fragment = &ranges->fragments[j];
            uint64_t all = size < 0 ? 0 : (uint64_t)size;
            bool inside = fragment->to != 0 && fragment->from <= all &&
                          fragment->size <= all - fragment->from;
            fragment->result = size < 0 ? size : inside ? 0 : YOLK_ERR_INVALID;
            if (size >= 0 && inside && fragment->size > 0)
                selection->order[selection->count++] = fragment;
        }
        if (selection->count > begin)
            qsort(selection->order + begin, selection->count - begin, sizeof(selection->order[0]),
                  by_from);
        for (size_t j = begin; j < selection->count; j++)
            selection->kv_of[j] = i; /* its piece, for now */
    }
}

/* Whether two of them write to the same bytes. False: no memory to tell. */
static bool meet(const struct selection *selection, bool *overlap)
{
    size_t bytes = selection->count * sizeof(selection->order[0]);
    struct fragment **sorted = malloc(bytes + 1);
    *overlap = false;
    if (sorted == NULL)
        return false;
    memcpy(sorted, selection->order, bytes);
    qsort(sorted, selection->count, sizeof(sorted[0]), by_to);
    for (size_t i = 1; i < selection->count && !*overlap; i++)
        *overlap = sorted[i]->to - sorted[i - 1]->to < sorted[i - 1]->size;
    free(sorted);
    return true;
}

static void add_slice(struct selection *selection, void *pointer, uint64_t size)
{
    if (size == 0)
        return;
    selection->slices[selection->slice_count++] = (struct yolk_slice){pointer, size};
    selection->kvs[selection->kv_count - 1].slice_count++;
}

/* One item of the get for each value, another one for ranges that overlap in it. */
static void make_kvs(const struct ranges *ranges, struct selection *selection)
{
    uint64_t at = 0;
    size_t piece = SIZE_MAX;
    for (size_t i = 0; i < selection->count; i++) {
        const struct fragment *fragment = selection->order[i];
        if (selection->kv_of[i] != piece || fragment->from < at) {
            if (selection->kv_count > 0)
                add_slice(selection, YOLK_SKIP, INT64_MAX - at);
            piece = selection->kv_of[i];
            at = 0;
            selection->kvs[selection->kv_count++] =
                (struct yolk_kv){.key = ranges->pieces[piece].key,
                                 .key_size = ranges->pieces[piece].key_size,
                                 .slices = selection->slices + selection->slice_count,
                                 .result = YOLK_ERR_INVALID};
        }
        add_slice(selection, YOLK_SKIP, fragment->from - at);
        add_slice(selection, (void *)(uintptr_t)fragment->to, fragment->size);
        at = fragment->from + fragment->size;
        selection->kv_of[i] = selection->kv_count - 1;
    }
    if (selection->kv_count > 0)
        add_slice(selection, YOLK_SKIP, INT64_MAX - at);
}

/* All of them by one call, which moves nothing else of values in memory. False: no memory. */
static bool read_selected(struct yolk_store *store, struct ranges *ranges,
                          struct selection *selection, uint64_t timeout_ms)
{
    bool overlap;
    enum yolk_status status = ask_sizes(store, ranges, selection);
    if (status != YOLK_OK)
        (void)code_of_failure(status);
    select_fragments(ranges, selection);
    if (!meet(selection, &overlap))
        return false;
    if (overlap) {
        read_in_order(store, ranges, timeout_ms);
        return true;
    }
    make_kvs(ranges, selection);
    status = yolk_store_get(store, selection->kvs, selection->kv_count);
    if (status != YOLK_OK)
        (void)code_of_failure(status);
    for (size_t i = 0; i < selection->count; i++) {
        struct fragment *fragment = selection->order[i];
        int64_t size = selection->kvs[selection->kv_of[i]].result;
        fragment->result = (int64_t)fragment->size;
        if (size < 0)
            fragment->result = size;
        else if (fragment->from + fragment->size > (uint64_t)size) /* it was replaced meanwhile */
            fragment->result = YOLK_ERR_INVALID;
    }
    return true;
}

/* Without the GIL. */
static void read_all(struct yolk_store *store, struct ranges *ranges, uint64_t timeout_ms)
{
    size_t items =
        ranges->fragment_count > ranges->piece_count ? ranges->fragment_count : ranges->piece_count;
    if (items == 0)
        return;
    struct selection selection = {
        .kvs = calloc(items, sizeof(*selection.kvs)),
        .slices = calloc(3 * items, sizeof(*selection.slices)),
        .order = calloc(items, sizeof(struct fragment *)),
        .kv_of = calloc(items, sizeof(*selection.kv_of)),
    };
    if (selection.kvs == NULL || selection.slices == NULL || selection.order == NULL ||
        selection.kv_of == NULL || !read_selected(store, ranges, &selection, timeout_ms)) {
        (void)code_of_failure(YOLK_ERR_NO_MEMORY);
        for (size_t i = 0; i < ranges->fragment_count; i++)
            ranges->fragments[i].result = YOLK_ERR_NO_MEMORY;
    }
    free(selection.kvs);
    free(selection.slices);
    free(selection.order);
    free(selection.kv_of);
}

/* The results in the shape of the sizes. */
static PyObject *results_of(const struct ranges *ranges, PyObject *shapes)
{
    PyObject *list = PyList_New(0);
    size_t next = 0;
    for (Py_ssize_t i = 0; list != NULL && i < PyList_Size(shapes); i++) {
        PyObject *shape = PyList_GetItem(shapes, i), *of_buffer = PyList_New(0);
        for (Py_ssize_t j = 0; of_buffer != NULL && j < PyList_Size(shape); j++) {
            Py_ssize_t count = PyLong_AsSsize_t(PyList_GetItem(shape, j));
            PyObject *of_key = PyList_New(0);
            for (Py_ssize_t k = 0; of_key != NULL && k < count; k++) {
                PyObject *number = PyLong_FromLongLong(ranges->fragments[next++].result);
                if (number == NULL || PyList_Append(of_key, number) != 0)
                    Py_CLEAR(of_key);
                Py_XDECREF(number);
            }
            if (of_key == NULL || PyList_Append(of_buffer, of_key) != 0)
                Py_CLEAR(of_buffer);
            Py_XDECREF(of_key);
        }
        if (of_buffer == NULL || PyList_Append(list, of_buffer) != 0)
            Py_CLEAR(list);
        Py_XDECREF(of_buffer);
    }
    return list;
}

static void perform(struct store *self, struct ranges *ranges)
{
    if (ranges->uneven) {
        (void)code_with_text(YOLK_ERR_INVALID,
                             "buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets and "
                             "all_sizes differ in their lengths");
        return;
    }
    struct session *session = calls_enter(self);
    if (session == NULL)
        return; /* the results are CLOSED's code already, which is INVALID's */
    uint64_t timeout_ms = self->timeout_ms;
    PyThreadState *thread = PyEval_SaveThread();
    read_all(session_store(session), ranges, timeout_ms);
    session_leave(session);
    PyEval_RestoreThread(thread);
    for (size_t i = 0; i < ranges->fragment_count; i++) {
        if (ranges->fragments[i].result == YOLK_ERR_INVALID)
            (void)code_with_text(YOLK_ERR_INVALID, "a range is not in its value, or its buffer is "
                                                   "at address 0");
        ranges->fragments[i].result = code_of(ranges->fragments[i].result);
    }
}

PyObject *store_get_into_ranges(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = {"buffer_ptrs",     "all_keys",  "all_dst_offsets",
                            "all_src_offsets", "all_sizes", NULL};
    PyObject *given[5], *tuples[5] = {NULL}, *shapes = NULL, *result = NULL;
    struct ranges ranges = {0};
    if (!argument_parse(args, named, "OOOOO:get_into_ranges", names, &given[0], &given[1],
                        &given[2], &given[3], &given[4]))
        return NULL;
    int good = (ranges.keys = PyList_New(0)) != NULL;
    for (int i = 0; good && i < 5; i++)
        good = (tuples[i] = argument_tuple(given[i], names[i])) != NULL;
    if (good)
        shapes = take_all(&ranges, tuples[0], &tuples[1]);
    if (shapes != NULL) {
        perform((struct store *)object, &ranges);
        result = results_of(&ranges, shapes);
    }
    Py_XDECREF(shapes);
    for (int i = 0; i < 5; i++)
        Py_XDECREF(tuples[i]);
    Py_XDECREF(ranges.keys);
    free(ranges.pieces);
    free(ranges.fragments);
    return result;
}
