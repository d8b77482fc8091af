/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mover_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "store/message.h"

/* So much is gathered before the engine gets it, and twice as much each further time until all of
 * it has arrived, but never more than what moves while the next is made: the first values move
 * while the rest is made, and batches are few. */
enum { SUBMIT_REQUESTS = 128, SUBMIT_BYTES = 512 * 1024, SUBMIT_DOUBLED_MAX = 5 };
/* So many actions are asked of the machine at one time of the clock. */
enum { ACTIONS_AT_ONCE = 64 };
/* Of one request. */
enum { PIECES_MAX = 4096 };

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

static void keep_reason(struct mover *mover, int status)
{
    struct store_reason *reason = mover->context->reason;
    reason->status = status;
    (void)snprintf(reason->text, sizeof(reason->text), "%s", yolk_last_error());
}

/* The engine knows why; the status alone does not say which transport, and what of it. */
static void keep_reason_of(struct mover *mover, uint64_t batch, uint32_t request, int status)
{
    struct yolk_task_status task;
    base_error_clear();
    if (yolk_engine_batch_poll(mover->context->engine, batch, request, &task) != YOLK_OK)
        base_error_clear();
    keep_reason(mover, status);
}

/* A request of the move, in `count` pieces of the last hold, or in the one range at `pointer`. */
static int add_request(struct mover *mover, uint32_t index, void *pointer, uint64_t offset,
                       uint64_t size, uint32_t count)
{
    struct move *move = &mover->moves[index];
    uint32_t room = mover->request_room, room_too = mover->request_room;
    void *local = pointer;
    /* Three arrays, one room: the last call is the one that notes it. */
    if (!mover_grow(&mover->requests, mover->request_count, &room, sizeof(*mover->requests)) ||
        !mover_grow(&mover->scatters, mover->request_count, &room_too, sizeof(*mover->scatters)) ||
        !mover_grow(&mover->request_moves, mover->request_count, &mover->request_room,
                    sizeof(*mover->request_moves)))
        return YOLK_ERR_NO_MEMORY;
    int status = count > 0 ? YOLK_OK : mover_borrow(mover, pointer, size, index, &local);
    if (status != YOLK_OK) {
        keep_reason(mover, status);
        return status;
    }
    struct yolk_request *request = &mover->requests[mover->request_count];
    *request = move->request;
    request->local = local;
    request->offset += offset;
    request->size = size;
    mover->scatters[mover->request_count] =
        (struct engine_scatter){.count = count, .held = mover->held};
    mover->request_moves[mover->request_count++] = index;
    mover->request_bytes += size;
    move->pending++;
    return YOLK_OK;
}

/* What the requests of a move have in common. */
static void prepare_request(const struct mover *mover, const struct store_action *action,
                            uint64_t handle, uint32_t index)
{
    struct yolk_request *request = &mover->moves[index].request;
    *request = (struct yolk_request){
        .opcode = mover->put != NULL ? YOLK_WRITE : YOLK_READ,
        .segment = handle,
        .offset = action->offset,
        .deadline_ns = action->deadline_ns,
        .cookie = index,
    };
    if (mover->put != NULL) {
        request->ticket.offset = action->offset;
        request->ticket.size = action->size;
        request->ticket.op = action->op;
        memcpy(request->ticket.mac, action->ticket, sizeof(request->ticket.mac));
        if (mover->moves[index].own)
            store_gds_write_key(mover->context->gds, request->ticket.mac);
    } else if (action->medium != WIRE_MEDIUM_MEMORY) {
        request->ticket.offset = action->offset;
        request->ticket.size = action->size;
        request->ticket.op = action->key_hash;
    }
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

/* Where this client's own GDS file is meant: its handle, and for a read the lease. */
static int find_gds(struct mover *mover, const struct store_action *action, struct move *move,
                    uint64_t *handle)
{
    struct store_gds *gds = mover->context->gds;
    int verify = 0;
    move->own = gds != NULL && (mover->put != NULL || store_gds_is_own(gds, action->gds));
    if (!move->own) {
        move->verify = action->checksum != 0;
        *handle = 0;
        return YOLK_OK;
    }
    *handle = store_gds_handle(gds);
    if (*handle == 0)
        return YOLK_ERR_STALE;
    move->reservation = action->reservation;
    if (mover->put != NULL)
        return YOLK_OK;
    int status = store_gds_read_begin(gds, action->key, action->key_size, action->gds,
                                      &move->checksum, &verify);
    move->verify = verify != 0;
    move->leased = status == YOLK_OK;
    move->gds = *action->gds;
    return status;
}

/* Of a value of which no byte is wanted nothing is read, not even to check it. */
static bool wants_any(const struct yolk_kv *kv)
{
    for (size_t i = 0; i < kv->slice_count; i++)
        if (kv->slices[i].ptr != YOLK_SKIP && kv->slices[i].size > 0)
            return true;
    return false;
}

/* A request for each slice of the value. */
static void add_slices(struct mover *mover, uint32_t index)
{
    struct move *move = &mover->moves[index];
    const struct yolk_kv *kv = &mover->kvs[move->item];
    uint64_t done = 0;
    move->verify = move->verify && wants_any(kv);
    for (size_t i = 0; i < kv->slice_count && move->status == YOLK_OK && done < move->size; i++) {
        uint64_t size = kv->slices[i].size;
        if (size > move->size - done)
            size = move->size - done;
        void *pointer = kv->slices[i].ptr;
        bool skipped = pointer == YOLK_SKIP;
        if (skipped && move->verify && size > 0)
            move->status = mover_take_skipped(mover, index, &kv->slices[i], size, &pointer);
        if (size > 0 && move->status == YOLK_OK && (!skipped || move->verify))
            move->status = add_request(mover, index, pointer, done, size, 0);
        done += size;
    }
}

/* Slices of a GPU's memory in one registration go as one request. The number of them, which lie
 * behind those of the requests before; 0: it is not to be so. */
static uint32_t gather_pieces(struct mover *mover, uint32_t index)
{
    const struct move *move = &mover->moves[index];
    const struct yolk_kv *kv = &mover->kvs[move->item];
    uint64_t left = move->size;
    uint32_t end = mover->piece_count;
    for (size_t i = 0; i < kv->slice_count && left > 0; i++) {
        const struct yolk_slice *slice = &kv->slices[i];
        uint64_t size = slice->size < left ? slice->size : left;
        uint64_t start = (uint64_t)(uintptr_t)slice->ptr;
        if (size == 0)
            continue;
        if (slice->ptr == YOLK_SKIP || end - mover->piece_count == PIECES_MAX)
            return 0;
        /* What is not registered yet is, slice by slice. */
        if (end == mover->piece_count &&
            (mover_hold(mover, slice->ptr, size) == NULL || engine_held_gpu(mover->held) == 0))
            return 0;
        if (start < mover->held_start || start >= mover->held_end ||
            size > mover->held_end - start ||
            !mover_grow(&mover->pieces, end, &mover->piece_room, sizeof(*mover->pieces)))
            return 0;
        mover->pieces[end++] = (struct yolk_piece){slice->ptr, size};
        left -= size;
    }
    return left == 0 && end - mover->piece_count > 1 ? end - mover->piece_count : 0;
}

/* Prepares the requests of one transfer; a failure is reported by the next round of completions. */
static void perform_transfer(struct mover *mover, const struct store_action *action)
{
    if (!mover_grow(&mover->moves, mover->move_count, &mover->move_room, sizeof(*mover->moves))) {
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
    move->checksum = action->checksum;
    move->verify = action->medium == WIRE_MEDIUM_LOCAL_DISK;
    move->began_ns = mover->now_ns;
    uint64_t handle = 0;
    if (action->medium == WIRE_MEDIUM_GDS)
        move->status = find_gds(mover, action, move, &handle);
    if (move->status == YOLK_OK && !move->own) {
        move->status = find_segment(mover, action);
        handle = mover->handle;
    }
    if (move->status != YOLK_OK)
        return;
    prepare_request(mover, action, handle, index);
    bool whole = mover->kvs[move->item].slice_count > 1 && !move->own && !mover->no_pieces;
    uint32_t pieces = whole ? gather_pieces(mover, index) : 0;
    if (pieces > 0 && add_request(mover, index, NULL, 0, move->size, pieces) == YOLK_OK) {
        mover->piece_count += pieces;
        move->whole = 1;
        return;
    }
    add_slices(mover, index);
}

static void finish_request(struct mover *mover, uint32_t move_index, int status,
                           const char *transport)
{
    struct move *move = &mover->moves[move_index];
    move->pending--;
    if (status == YOLK_ERR_UNSUPPORTED && move->whole) {
        mover->no_pieces = true;
        move->whole = 0;
        add_slices(mover, move_index);
        return;
    }
    if (status != YOLK_OK && (move->status == YOLK_OK || status == YOLK_ERR_STUCK))
        move->status = status;
    if (transport != NULL && transport[0] != '\0')
        memcpy(move->transport, transport, sizeof(move->transport));
}

/* The pieces lie where they are until the submit, in the order of their requests. */
static bool place_pieces(struct mover *mover)
{
    const struct yolk_piece *at = mover->pieces;
    if (mover->piece_count == 0)
        return false;
    for (uint32_t i = 0; i < mover->request_count; i++) {
        mover->scatters[i].pieces = at;
        at += mover->scatters[i].count;
    }
    mover->piece_count = 0;
    return true;
}

/* Hands the gathered requests to the engine as one batch. */
static void submit(struct mover *mover)
{
    uint32_t count = mover->request_count;
    struct yolk_engine *engine = mover->context->engine;
    bool scattered = place_pieces(mover);
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
        int submitted =
            scattered ? engine_batch_submit_scattered(engine, flight->batch, mover->requests,
                                                      mover->scatters, count, verdicts, &first)
                      : yolk_engine_batch_submit(engine, flight->batch, mover->requests, count,
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
        if (mover->context->gds != NULL)
            mover_begin_sums(mover, flight->moves, flight->count);
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
    for (uint32_t from = flight->ended; from < flight->count; from += LOOKS) {
        uint32_t count = flight->count - from < LOOKS ? flight->count - from : LOOKS;
        if (status == YOLK_OK)
            status = engine_batch_look(engine, flight->batch, from, count, tasks);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t request = from + i;
            if (flight->over[request] || (status == YOLK_OK && !tasks[i].terminal))
                continue;
            flight->over[request] = 1;
            flight->pending--;
            if (status == YOLK_OK && tasks[i].status != YOLK_OK)
                keep_reason_of(mover, flight->batch, request, tasks[i].status);
            finish_request(mover, flight->moves[request],
                           status == YOLK_OK ? (int)tasks[i].status : status,
                           status == YOLK_OK ? tasks[i].transport : NULL);
        }
    }
    while (flight->ended < flight->count && flight->over[flight->ended])
        flight->ended++;
}

/* A move to or from this client's GDS file is over. */
static void finish_gds(const struct mover *mover, const struct move *move)
{
    struct store_gds *gds = mover->context->gds;
    /* Of one that is stuck the extent is not used again. */
    if (move->leased && move->status != YOLK_ERR_STUCK)
        store_gds_read_end(gds, &move->gds);
    store_gds_note(gds, mover->get != NULL, move->status, move->size,
                   mover->now_ns - move->began_ns);
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
        mover_end_sum(mover, move);
        if (move->status == YOLK_OK) {
            move->status = mover_copy_back(mover, i);
            if (move->status == YOLK_OK)
                move->status = mover_verify(mover, move);
        }
        if (move->own)
            finish_gds(mover, move);
        store_segments_note(mover->context->segments, move->segment, move->status, move->transport);
        if (move->status == YOLK_ERR_STALE) {
            store_segments_drop(mover->context->segments, move->segment);
            mover->handle = 0;
        }
        machine_transferred(mover, move->cookie, move->status);
    }
    /* Bounces name moves by index: the list begins anew only when all is over. */
    if (open == 0 && mover->bounce_count == 0 && mover->flights == NULL &&
        mover->request_count == 0) {
        mover->move_count = 0;
        mover_clear_sums(mover);
    }
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
    if (report(mover) || mover->request_count > 0)
        return;
    if (mover->flights == NULL) {
        sleep_until(deadline_ns);
        return;
    }
    /* The oldest ends first, mostly; the others move when it is looked at all of them in turn. */
    const struct flight *oldest = mover->flights;
    uint64_t latest = deadline_ns;
    if (oldest->next != NULL) {
        uint64_t soon = clock_real_now_ns() + 1 * NS_PER_MS;
        latest = soon < latest ? soon : latest;
    }
    while (oldest->next != NULL)
        oldest = oldest->next;
    /* TIMEOUT is an answer like any other here: the machine is asked again. */
    int status = yolk_engine_batch_wait(mover->context->engine, oldest->batch,
                                        latest == UINT64_MAX ? 0 : latest);
    if (status != YOLK_OK && status != YOLK_ERR_TIMEOUT)
        sleep_until(clock_real_now_ns() + 1 * NS_PER_MS);
    collect_all(mover);
    (void)report(mover);
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
        case STORE_COMMIT:
            submit(mover);
            store_gds_commit(mover->context->gds, action.commits, action.commit_count,
                             action.deadline_ns);
            look_at_clock(mover);
            store_put_committed(mover->put, mover->now_ns);
            break;
        case STORE_WAIT:
            perform_wait(mover, action.deadline_ns);
            mover->now_left = 0;
            break;
        case STORE_DONE:
            break;
        }
    }
    mover_clear_sums(mover);
    mover_give_back(mover);
    base_buf_free(&mover->reply);
    free(mover->moves);
    free(mover->requests);
    free(mover->scatters);
    free(mover->pieces);
    free(mover->parts);
    free(mover->sums);
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
