/* SPDX-License-Identifier: Apache-2.0 */
#include "store/holds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

struct extent {
    uint64_t segment;
    uint64_t offset;
    uint64_t size;
};

struct live_op {
    uint64_t op;
    struct extent *extents;
    size_t extent_count;
    size_t extent_room;
    int stuck;
};

struct store_holds {
    pthread_mutex_t lock; /* protects all below */
    uint64_t session;
    uint64_t epoch;
    uint64_t next_op;
    struct live_op *live; /* ascending by op: the counter only grows */
    size_t live_count;
    size_t live_room;
    size_t stuck_count; /* of the live ones */
    int refused;        /* an owner refuses the session */
    uint64_t *done;     /* ended, not yet known to the master, oldest first */
    size_t done_count;
    size_t done_room;
};

/* Beyond this many unacknowledged ends the oldest are forgotten: the floor or the guard's time ends
 * them as well, only later. */
enum { DONE_KEPT_MAX = 65536 };

enum yolk_status store_holds_create(struct store_holds **out)
{
    struct store_holds *holds = base_calloc(1, sizeof(*holds));
    if (holds == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the table of operations");
    pthread_mutex_init(&holds->lock, NULL);
    holds->next_op = 1;
    *out = holds;
    return YOLK_OK;
}

void store_holds_destroy(struct store_holds *holds)
{
    if (holds == NULL)
        return;
    for (size_t i = 0; i < holds->live_count; i++)
        free(holds->live[i].extents);
    free(holds->live);
    free(holds->done);
    pthread_mutex_destroy(&holds->lock);
    free(holds);
}

void store_holds_set_session(struct store_holds *holds, uint64_t session)
{
    pthread_mutex_lock(&holds->lock);
    holds->session = session;
    pthread_mutex_unlock(&holds->lock);
}

uint64_t store_holds_session(struct store_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    uint64_t session = holds->session;
    pthread_mutex_unlock(&holds->lock);
    return session;
}

/* Grows *array to hold one more; 0 on failure. */
static int reserve(void **array, size_t count, size_t *room, size_t element_size)
{
    if (count < *room)
        return 1;
    size_t wanted = *room == 0 ? 16 : *room * 2;
    void *grown = base_realloc(*array, wanted * element_size);
    if (grown == NULL)
        return 0;
    *array = grown;
    *room = wanted;
    return 1;
}

uint64_t store_holds_begin(struct store_holds *holds)
{
    uint64_t op = 0;
    pthread_mutex_lock(&holds->lock);
    void *live = holds->live;
    if (reserve(&live, holds->live_count, &holds->live_room, sizeof(*holds->live))) {
        holds->live = live;
        op = holds->next_op++;
        holds->live[holds->live_count++] = (struct live_op){.op = op};
    }
    pthread_mutex_unlock(&holds->lock);
    return op;
}

static struct live_op *find(struct store_holds *holds, uint64_t op)
{
    size_t low = 0;
    size_t high = holds->live_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (holds->live[middle].op < op)
            low = middle + 1;
        else
            high = middle;
    }
    return low < holds->live_count && holds->live[low].op == op ? &holds->live[low] : NULL;
}

enum yolk_status store_holds_extent(struct store_holds *holds, uint64_t op, uint64_t epoch,
                                    uint64_t segment, uint64_t offset, uint64_t size)
{
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    pthread_mutex_lock(&holds->lock);
    struct live_op *live = find(holds, op);
    if (live == NULL) {
        status = YOLK_ERR_INVALID;
    } else if (epoch != holds->epoch) {
        status = YOLK_ERR_STALE;
    } else {
        void *extents = live->extents;
        if (reserve(&extents, live->extent_count, &live->extent_room, sizeof(*live->extents))) {
            live->extents = extents;
            live->extents[live->extent_count++] = (struct extent){segment, offset, size};
            status = YOLK_OK;
        }
    }
    pthread_mutex_unlock(&holds->lock);
    return status;
}

void store_holds_stick(struct store_holds *holds, uint64_t op)
{
    pthread_mutex_lock(&holds->lock);
    struct live_op *live = find(holds, op);
    if (live != NULL && !live->stuck) {
        live->stuck = 1;
        holds->stuck_count++;
    }
    pthread_mutex_unlock(&holds->lock);
}

void store_holds_refused(struct store_holds *holds, uint64_t session)
{
    pthread_mutex_lock(&holds->lock);
    holds->refused |= session != 0 && session == holds->session;
    pthread_mutex_unlock(&holds->lock);
}

int store_holds_wants_new_session(struct store_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    int wants = holds->stuck_count > 0 || holds->refused;
    pthread_mutex_unlock(&holds->lock);
    return wants;
}

void store_holds_session_ended(struct store_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    size_t kept = 0;
    for (size_t i = 0; i < holds->live_count; i++) {
        if (holds->live[i].stuck)
            free(holds->live[i].extents);
        else
            holds->live[kept++] = holds->live[i];
    }
    holds->live_count = kept;
    holds->stuck_count = 0;
    holds->refused = 0;
    pthread_mutex_unlock(&holds->lock);
}

void store_holds_finish(struct store_holds *holds, uint64_t op)
{
    pthread_mutex_lock(&holds->lock);
    struct live_op *live = find(holds, op);
    if (live != NULL) {
        holds->stuck_count -= live->stuck != 0;
        free(live->extents);
        size_t index = (size_t)(live - holds->live);
        memmove(live, live + 1, (holds->live_count - index - 1) * sizeof(*live));
        holds->live_count--;
        if (holds->done_count >= DONE_KEPT_MAX) {
            memmove(holds->done, holds->done + 1, (holds->done_count - 1) * sizeof(*holds->done));
            holds->done_count--;
        }
        void *done = holds->done;
        /* Without memory the end goes untold: floor or time ends it. */
        if (reserve(&done, holds->done_count, &holds->done_room, sizeof(*holds->done))) {
            holds->done = done;
            holds->done[holds->done_count++] = op;
        }
    }
    pthread_mutex_unlock(&holds->lock);
}

int store_holds_is_live(struct store_holds *holds, uint64_t op)
{
    pthread_mutex_lock(&holds->lock);
    int live = find(holds, op) != NULL;
    pthread_mutex_unlock(&holds->lock);
    return live;
}

size_t store_holds_live_count(struct store_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    size_t count = holds->live_count;
    pthread_mutex_unlock(&holds->lock);
    return count;
}

void store_holds_stamp(struct store_holds *holds, struct store_stamp *stamp)
{
    pthread_mutex_lock(&holds->lock);
    stamp->session = holds->session;
    stamp->epoch = holds->epoch;
    stamp->floor = holds->live_count > 0 ? holds->live[0].op : holds->next_op;
    size_t count = holds->done_count < STORE_DONE_MAX ? holds->done_count : STORE_DONE_MAX;
    stamp->done_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        stamp->done[i] = holds->done[i];
        base_store_u64(stamp->done_bin + 8 * i, holds->done[i]);
    }
    pthread_mutex_unlock(&holds->lock);
}

void store_holds_acknowledge(struct store_holds *holds, const struct store_stamp *stamp)
{
    pthread_mutex_lock(&holds->lock);
    /* What was below the floor of an answered message is ended too, listed or not. */
    size_t kept = 0;
    for (size_t i = 0; i < holds->done_count; i++) {
        uint64_t op = holds->done[i];
        int told = stamp->session == holds->session && op < stamp->floor;
        for (uint32_t j = 0; !told && j < stamp->done_count; j++)
            told = stamp->done[j] == op;
        if (!told)
            holds->done[kept++] = op;
    }
    holds->done_count = kept;
    pthread_mutex_unlock(&holds->lock);
}

enum yolk_status store_holds_report(struct store_holds *holds, struct base_buf *out)
{
    enum yolk_status status = YOLK_OK;
    pthread_mutex_lock(&holds->lock);
    holds->epoch++;
    for (size_t i = 0; i < holds->live_count && status == YOLK_OK; i++) {
        const struct live_op *live = &holds->live[i];
        for (size_t j = 0; j < live->extent_count && status == YOLK_OK; j++) {
            const struct extent *extent = &live->extents[j];
            uint8_t record[32];
            base_store_u64(record, extent->segment);
            base_store_u64(record + 8, extent->offset);
            base_store_u64(record + 16, extent->size);
            base_store_u64(record + 24, live->op);
            status = base_buf_append(out, record, sizeof(record));
        }
    }
    pthread_mutex_unlock(&holds->lock);
    return status;
}
