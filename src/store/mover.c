/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/limits.h"
#include "engine/bulk.h"
#include "platform/clock.h"
#include "store/message.h"

/* One transfer of the machine: a request to the engine for each piece of the gather list. */
struct move {
    uint64_t cookie;
    uint64_t segment; /* the master's id */
    size_t item;
    uint64_t size;
    uint32_t medium;
    uint32_t checksum;
    uint32_t pending; /* requests not over */
    int status;       /* first failure */
    char transport[16];
    uint8_t reported;
};

/* Memory registered for the call, or found in a registration and held; given back at its end. */
struct borrowed {
    void *pointer;
    uint64_t size;
    struct registration *held; /* else NULL */
};

/* A piece that could not be registered as it lies goes through memory of ours. */
struct bounce {
    void *memory;
    void *caller;
    size_t size;
    uint32_t move;
};

/* So much is gathered before the engine gets it, and twice as much each further time until all of
 * it has arrived: the first values move while the rest is made, and batches are few. */
enum { SUBMIT_REQUESTS = 128, SUBMIT_BYTES = 512 * 1024, SUBMIT_DOUBLED_MAX = 10 };
/* So many actions are asked of the machine at one time of the clock. */
enum { ACTIONS_AT_ONCE = 64 };

/* Requests of one submission. */
struct flight {
    struct flight *next;
    uint64_t batch;
    uint32_t count;
    uint32_t pending;
    uint32_t *moves; /* of each request */
    uint8_t *over;
};

struct mover {
    const struct store_mover_context *context;
    struct store_put *put; /* one of both */
    struct store_get *get;
    const struct yolk_kv *kvs;
    struct move *moves;
    uint32_t move_count, move_room;
    struct yolk_request *requests;
    uint32_t *request_moves;
    uint32_t request_count, request_room;
    uint64_t request_bytes;
    uint32_t submits; /* while something is in flight */
    uint64_t now_ns;  /* not long ago */
    uint32_t now_left;
    struct borrowed *borrowed;
    uint32_t borrowed_count, borrowed_room;
    uint64_t held_start, held_end; /* of the last hold */
    /* The last segment looked up: keys of a call mostly lie in few. handle 0: none. */
    uint64_t segment, session, handle;
    struct bounce *bounces;
    uint32_t bounce_count, bounce_room;
    struct flight *flights;
    struct base_buf reply;
};

static void look_at_clock(struct mover *mover)
{
    mover->now_ns = clock_real_now_ns();
    mover->now_left = ACTIONS_AT_ONCE;
}

static void machine_next(struct mover *mover, struct store_action *action)
{
    if (mover->now_left == 0)
        look_at_clock(mover);
    mover->now_left--;
    if (mover->put != NULL)
        store_put_next(mover->put, mover->now_ns, action);
    else
        store_get_next(mover->get, mover->now_ns, action);
}

/* The clock was looked at after it was over: a guard must have held until then. */
static void machine_transferred(struct mover *mover, uint64_t cookie, int status)
{
    if (mover->put != NULL)
        store_put_transferred(mover->put, mover->now_ns, cookie, (enum yolk_status)status);
    else
        store_get_transferred(mover->get, mover->now_ns, cookie, (enum yolk_status)status);
}

/* Doubles *array; 0 without memory (and nothing changed). */
static int grow(void *array, uint32_t count, uint32_t *room, size_t element)
{
    if (count < *room)
        return 1;
    uint32_t wanted = *room == 0 ? 64 : *room * 2;
    void **at = array;
    void *grown = realloc(*at, wanted * element);
    if (grown == NULL)
        return 0;
    *at = grown;
    *room = wanted;
    return 1;
}

static void perform_send(struct mover *mover, const struct store_action *action)
{
    uint16_t kind = 0;
    int status = store_client_call(mover->context->client, action->message, action->body,
                                   action->body_size, action->deadline_ns, &kind, &mover->reply);
    look_at_clock(mover);
    if (status != YOLK_OK) {
        if (mover->put != NULL)
            store_put_link_lost(mover->put, mover->now_ns);
        else
            store_get_link_lost(mover->get, mover->now_ns);
    } else if (mover->put != NULL) {
        store_put_reply(mover->put, mover->now_ns, kind, mover->reply.data, mover->reply.size);
    } else {
        store_get_reply(mover->get, mover->now_ns, kind, mover->reply.data, mover->reply.size);
    }
}

/* Makes [pointer, pointer + size) usable by the engine; *local is where it is to read or write. */
static int borrow(struct mover *mover, void *pointer, uint64_t size, uint32_t move, void **local)
{
    struct yolk_engine *engine = mover->context->engine;
    uint64_t start = (uint64_t)(uintptr_t)pointer;
    *local = pointer;
    if (start >= mover->held_start && start < mover->held_end && size <= mover->held_end - start)
        return YOLK_OK;
    if (!grow(&mover->borrowed, mover->borrowed_count, &mover->borrowed_room,
              sizeof(*mover->borrowed)) ||
        !grow(&mover->bounces, mover->bounce_count, &mover->bounce_room, sizeof(*mover->bounces)))
        return YOLK_ERR_NO_MEMORY;
    struct registration *held =
        engine_hold(engine, pointer, size, &mover->held_start, &mover->held_end);
    if (held != NULL) {
        mover->borrowed[mover->borrowed_count++] = (struct borrowed){pointer, size, held};
        return YOLK_OK;
    }
    int status = yolk_engine_register(engine, pointer, size);
    if (status == YOLK_ERR_OVERLAP) {
        /* Another call has a part of it registered: neither may see the other's registration end.
         */
        void *memory = malloc(size);
        if (memory == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a bounce buffer");
        status = yolk_engine_register(engine, memory, size);
        if (status != YOLK_OK) {
            free(memory);
            return status;
        }
        if (mover->put != NULL)
            memcpy(memory, pointer, size);
        mover->bounces[mover->bounce_count++] = (struct bounce){memory, pointer, size, move};
        *local = memory;
    }
    if (status == YOLK_OK)
        mover->borrowed[mover->borrowed_count++] = (struct borrowed){*local, size, NULL};
    return status;
}

static int add_request(struct mover *mover, const struct store_action *action, uint64_t handle,
                       uint32_t move, void *pointer, uint64_t offset, uint64_t size)
{
    uint32_t room = mover->request_room;
    /* Two arrays, one room: the second call is the one that notes it. */
    if (!grow(&mover->requests, mover->request_count, &room, sizeof(*mover->requests)) ||
        !grow(&mover->request_moves, mover->request_count, &mover->request_room,
              sizeof(*mover->request_moves)))
        return YOLK_ERR_NO_MEMORY;
    void *local;
    int status = borrow(mover, pointer, size, move, &local);
    if (status != YOLK_OK)
        return status;
    struct yolk_request *request = &mover->requests[mover->request_count];
    *request = (struct yolk_request){
        .opcode = mover->put != NULL ? YOLK_WRITE : YOLK_READ,
        .local = local,
        .segment = handle,
        .offset = action->offset + offset,
        .size = size,
        .deadline_ns = action->deadline_ns,
        .cookie = move,
    };
    if (mover->put != NULL) {
        request->ticket.offset = action->offset;
        request->ticket.size = action->size;
        request->ticket.op = action->op;
        memcpy(request->ticket.mac, action->ticket, sizeof(request->ticket.mac));
    } else if (action->medium == WIRE_MEDIUM_LOCAL_DISK) {
        request->ticket.offset = action->offset;
        request->ticket.size = action->size;
        request->ticket.op = action->key_hash;
    }
    mover->request_moves[mover->request_count++] = move;
    mover->request_bytes += size;
    mover->moves[move].pending++;
    return YOLK_OK;
}

static int find_segment(struct mover *mover, const struct store_action *action)
{
    if (mover->handle != 0 && mover->segment == action->segment &&
        mover->session == action->session)
        return YOLK_OK;
    mover->handle = 0;
    mover->segment = action->segment;
    mover->session = action->session;
    return store_segments_get(mover->context->segments, action->segment, action->session,
                              action->deadline_ns, &mover->handle);
}

/* Prepares the requests of one transfer; a failure is reported by the next round of completions. */
static void perform_transfer(struct mover *mover, const struct store_action *action)
{
    if (!grow(&mover->moves, mover->move_count, &mover->move_room, sizeof(*mover->moves))) {
        look_at_clock(mover);
        machine_transferred(mover, action->cookie, YOLK_ERR_NO_MEMORY);
        return;
    }
    uint32_t index = mover->move_count++;
    struct move *move = &mover->moves[index];
    memset(move, 0, sizeof(*move));
    move->cookie = action->cookie;
    move->segment = action->segment;
    move->item = action->item;
    move->size = action->size;
    move->medium = action->medium;
    move->checksum = action->checksum;
    move->status = find_segment(mover, action);
    const struct yolk_kv *kv = &mover->kvs[action->item];
    uint64_t done = 0;
    for (size_t i = 0; i < kv->slice_count && move->status == YOLK_OK && done < action->size; i++) {
        uint64_t size = kv->slices[i].size;
        if (size > action->size - done)
            size = action->size - done;
        if (size == 0)
            continue;
        move->status =
            add_request(mover, action, mover->handle, index, kv->slices[i].ptr, done, size);
        done += size;
    }
}

static void finish_request(struct mover *mover, uint32_t move_index, int status,
                           const char *transport)
{
    struct move *move = &mover->moves[move_index];
    move->pending--;
    if (status != YOLK_OK && (move->status == YOLK_OK || status == YOLK_ERR_STUCK))
        move->status = status;
    if (transport != NULL && transport[0] != '\0')
        memcpy(move->transport, transport, sizeof(move->transport));
}

/* Hands the gathered requests to the engine as one batch. */
static void submit(struct mover *mover)
{
    uint32_t count = mover->request_count;
    struct yolk_engine *engine = mover->context->engine;
    mover->request_count = 0;
    mover->request_bytes = 0;
    mover->submits = mover->flights == NULL ? 1 : mover->submits + 1;
    if (count == 0)
        return;
    struct flight *flight = calloc(1, sizeof(*flight));
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    int status = YOLK_ERR_NO_MEMORY;
    if (flight != NULL && verdicts != NULL) {
        flight->moves = malloc(count * sizeof(*flight->moves));
        flight->over = calloc(count, 1);
        if (flight->moves != NULL && flight->over != NULL)
            status = yolk_engine_batch_create(engine, count, &flight->batch);
    }
    if (status == YOLK_OK) {
        uint32_t first = 0;
        memcpy(flight->moves, mover->request_moves, count * sizeof(*flight->moves));
        flight->count = count;
        flight->pending = count;
        int submitted = yolk_engine_batch_submit(engine, flight->batch, mover->requests, count,
                                                 verdicts, &first);
        /* LIMIT and STALE of the batch as a whole took nothing: no task would ever end. */
        if (submitted == YOLK_ERR_LIMIT || submitted == YOLK_ERR_STALE ||
            submitted == YOLK_ERR_CLOSED) {
            struct yolk_task_status probe;
            if (yolk_engine_batch_poll(engine, flight->batch, 0, &probe) != YOLK_OK)
                status = submitted;
        }
        if (status != YOLK_OK && yolk_engine_batch_free(engine, flight->batch) != YOLK_OK)
            flight->batch = 0;
    }
    free(verdicts);
    if (status == YOLK_OK) {
        flight->next = mover->flights;
        mover->flights = flight;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        finish_request(mover, mover->request_moves[i], status, NULL);
    if (flight != NULL) {
        free(flight->moves);
        free(flight->over);
        free(flight);
    }
}

static int is_enough(const struct mover *mover)
{
    uint32_t submits = mover->flights == NULL ? 0 : mover->submits;
    uint32_t doubled = submits < SUBMIT_DOUBLED_MAX ? submits : SUBMIT_DOUBLED_MAX;
    return mover->request_count >= (uint32_t)SUBMIT_REQUESTS << doubled ||
           mover->request_bytes >= (uint64_t)SUBMIT_BYTES << doubled;
}

/* Takes what the engine has finished of one flight. */
static void collect(struct mover *mover, struct flight *flight)
{
    enum { LOOKS = 64 };
    struct yolk_engine *engine = mover->context->engine;
    struct yolk_task_status tasks[LOOKS];
    uint32_t pending = 0;
    int status = yolk_engine_batch_progress(engine, flight->batch, &pending);
    if (status == YOLK_OK && pending == flight->pending)
        return;
    for (uint32_t from = 0; from < flight->count; from += LOOKS) {
        uint32_t count = flight->count - from < LOOKS ? flight->count - from : LOOKS;
        if (status == YOLK_OK)
            status = engine_batch_look(engine, flight->batch, from, count, tasks);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t request = from + i;
            if (flight->over[request] || (status == YOLK_OK && !tasks[i].terminal))
                continue;
            flight->over[request] = 1;
            flight->pending--;
            finish_request(mover, flight->moves[request],
                           status == YOLK_OK ? (int)tasks[i].status : status,
                           status == YOLK_OK ? tasks[i].transport : NULL);
        }
    }
}

/* Values that were read into memory of ours go to the caller's before the machine hears of them. */
static void copy_back(struct mover *mover, uint32_t move)
{
    if (mover->get == NULL)
        return;
    for (uint32_t i = 0; i < mover->bounce_count; i++)
        if (mover->bounces[i].move == move)
            memcpy(mover->bounces[i].caller, mover->bounces[i].memory, mover->bounces[i].size);
}

/* What a disk gave is believed only with its checksum: the whole value has arrived. */
static int verify(const struct mover *mover, const struct move *move)
{
    const struct yolk_kv *kv = &mover->kvs[move->item];
    uint64_t left = move->size;
    uint32_t crc = 0;
    if (mover->get == NULL || move->medium != WIRE_MEDIUM_LOCAL_DISK)
        return YOLK_OK;
    for (size_t i = 0; i < kv->slice_count && left > 0; i++) {
        uint64_t size = kv->slices[i].size < left ? kv->slices[i].size : left;
        crc = base_crc32c(crc, kv->slices[i].ptr, size);
        left -= size;
    }
    return crc == move->checksum ? YOLK_OK : YOLK_ERR_CORRUPT;
}

/* Tells the machine what is over. 1 if anything was. */
static int report(struct mover *mover)
{
    int any = 0;
    uint32_t count = mover->move_count;
    uint32_t open = 0;
    look_at_clock(mover);
    for (uint32_t i = 0; i < count; i++) {
        struct move *move = &mover->moves[i];
        if (move->reported)
            continue;
        if (move->pending > 0) {
            open++;
            continue;
        }
        move->reported = 1;
        any = 1;
        if (move->status == YOLK_OK) {
            copy_back(mover, i);
            move->status = verify(mover, move);
        }
        store_segments_note(mover->context->segments, move->segment, move->status, move->transport);
        if (move->status == YOLK_ERR_STALE) {
            store_segments_drop(mover->context->segments, move->segment);
            mover->handle = 0;
        }
        machine_transferred(mover, move->cookie, move->status);
    }
    /* Bounces name moves by index: the list begins anew only when all is over. */
    if (open == 0 && mover->bounce_count == 0 && mover->flights == NULL &&
        mover->request_count == 0)
        mover->move_count = 0;
    return any;
}

static void free_flight(struct mover *mover, struct flight *flight)
{
    /* Everything in it is terminal: freeing it reclaims the handle only. */
    if (yolk_engine_batch_free(mover->context->engine, flight->batch) != YOLK_OK)
        flight->batch = 0;
    free(flight->moves);
    free(flight->over);
    free(flight);
}

static void collect_all(struct mover *mover)
{
    struct flight **at = &mover->flights;
    while (*at != NULL) {
        struct flight *flight = *at;
        collect(mover, flight);
        if (flight->pending > 0) {
            at = &flight->next;
            continue;
        }
        *at = flight->next;
        free_flight(mover, flight);
    }
}

static void sleep_until(uint64_t deadline_ns)
{
    /* Bounded, so that a machine that waits for nothing is asked again. */
    uint64_t latest = clock_real_now_ns() + 100 * NS_PER_MS;
    if (deadline_ns > latest)
        deadline_ns = latest;
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &at, NULL) == EINTR) {
        /* a signal of the host: sleep on */
    }
}

/* The machine has nothing to do before deadline_ns: wait for transfers, or for time. */
static void perform_wait(struct mover *mover, uint64_t deadline_ns)
{
    submit(mover);
    collect_all(mover);
    if (report(mover))
        return;
    if (mover->flights == NULL) {
        sleep_until(deadline_ns);
        return;
    }
    /* With several flights the oldest batches wait while the newest moves: look at all in turn. */
    uint64_t latest = deadline_ns;
    if (mover->flights->next != NULL) {
        uint64_t soon = clock_real_now_ns() + 1 * NS_PER_MS;
        latest = soon < latest ? soon : latest;
    }
    /* TIMEOUT is an answer like any other here: the machine is asked again. */
    int status = yolk_engine_batch_wait(mover->context->engine, mover->flights->batch,
                                        latest == UINT64_MAX ? 0 : latest);
    if (status != YOLK_OK && status != YOLK_ERR_TIMEOUT)
        sleep_until(clock_real_now_ns() + 1 * NS_PER_MS);
    collect_all(mover);
    (void)report(mover);
}

static void give_back(struct mover *mover)
{
    struct yolk_engine *engine = mover->context->engine;
    for (uint32_t i = 0; i < mover->borrowed_count; i++) {
        struct borrowed *borrowed = &mover->borrowed[i];
        if (borrowed->held != NULL) {
            engine_give_back(borrowed->held);
            continue;
        }
        /* BUSY: a stuck request may still touch it; the engine keeps the range. */
        int status = yolk_engine_unregister(engine, borrowed->pointer, borrowed->size);
        for (uint32_t j = 0; j < mover->bounce_count && status != YOLK_OK; j++)
            if (mover->bounces[j].memory == borrowed->pointer)
                mover->bounces[j].memory = NULL; /* not ours to free any more */
    }
    for (uint32_t i = 0; i < mover->bounce_count; i++)
        free(mover->bounces[i].memory);
    free(mover->borrowed);
    free(mover->bounces);
}

static void run(struct mover *mover)
{
    struct store_action action;
    base_buf_init(&mover->reply, MAX_FRAME_BODY);
    for (;;) {
        machine_next(mover, &action);
        if (action.kind == STORE_DONE)
            break;
        switch (action.kind) {
        case STORE_SEND:
            submit(mover); /* let transfers run while the master is asked */
            perform_send(mover, &action);
            break;
        case STORE_TRANSFER:
            perform_transfer(mover, &action);
            if (is_enough(mover))
                submit(mover);
            break;
        case STORE_WAIT:
            perform_wait(mover, action.deadline_ns);
            mover->now_left = 0;
            break;
        case STORE_DONE:
            break;
        }
    }
    give_back(mover);
    base_buf_free(&mover->reply);
    free(mover->moves);
    free(mover->requests);
    free(mover->request_moves);
}

void store_mover_put(const struct store_mover_context *context, struct store_put *put,
                     const struct yolk_kv *kvs)
{
    struct mover mover = {.context = context, .put = put, .kvs = kvs};
    run(&mover);
}

void store_mover_get(const struct store_mover_context *context, struct store_get *get,
                     const struct yolk_kv *kvs)
{
    struct mover mover = {.context = context, .get = get, .kvs = kvs};
    run(&mover);
}
