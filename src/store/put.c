/* SPDX-License-Identifier: Apache-2.0 */
/* One window at a time: START → transfers → commits in the GDS file → END of what landed → REVOKE
 * of the rest → next window. An op is used for one START only; its END and REVOKE may be repeated,
 * one master performs them once. */
#include "store/put_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/mutation.h"
#include "store/dedup.h"

/* The first wait for the owner of a value that was put anew, doubled with each. */
enum { OWNER_FIRST_NS = 25000, OWNER_DOUBLED_MAX = 11 };

void store_tuning_init(struct store_tuning *tuning)
{
    memset(tuning, 0, sizeof(*tuning));
    /* 512 MiB takes 0.9 s at the slowest sensible 5 Gbit/s: inside a guard of some seconds. Between
     * two windows nothing moves. */
    tuning->window_bytes = 512 * MIB;
    tuning->window_keys = 1024;
    tuning->window_key_bytes = 1 * MIB;
    tuning->reply_timeout_ns = 3 * NS_PER_S;
    tuning->backoff_first_ns = 1 * NS_PER_MS;
    tuning->backoff_max_ns = 50 * NS_PER_MS;
}

enum yolk_status store_put_create(struct store_holds *holds, const struct store_tuning *tuning,
                                  struct store_item *items, size_t count,
                                  const struct store_put_how *how, uint64_t space_deadline_ns,
                                  uint64_t deadline_ns, struct store_put **out)
{
    struct store_put *put = base_calloc(1, sizeof(*put));
    if (put == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a put");
    put->holds = holds;
    put->tuning = *tuning;
    put->items = items;
    put->count = count;
    put->how = *how;
    put->space_deadline_ns = space_deadline_ns < deadline_ns ? space_deadline_ns : deadline_ns;
    put->deadline_ns = deadline_ns;
    put->backoff_ns = tuning->backoff_first_ns;
    /* No window is larger than the batch: small calls stay cheap. */
    size_t window = count < tuning->window_keys ? count + 1 : tuning->window_keys;
    store_message_init(&put->message);
    put->states = base_calloc(count == 0 ? 1 : count, sizeof(*put->states));
    put->window = base_calloc(window, sizeof(*put->window));
    put->listed = base_calloc(window, sizeof(*put->listed));
    if (how->gds != NULL)
        put->commits = base_calloc(window, sizeof(*put->commits));
    uint32_t *first = base_calloc(count == 0 ? 1 : count, sizeof(*first));
    if (put->states == NULL || put->window == NULL || put->listed == NULL || first == NULL ||
        (how->gds != NULL && put->commits == NULL) ||
        !(how->flags & WIRE_PUT_UPSERT ? store_dedup_last(items, count, first)
                                       : store_dedup(items, count, first))) {
        free(first);
        store_put_destroy(put);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a put of %zu keys", count);
    }
    for (size_t i = 0; i < count; i++) {
        put->states[i].duplicate_of = first[i];
        if (first[i] != i) {
            put->states[i].state = ITEM_DONE; /* copied from the first one at the end */
        } else if (items[i].key_size == 0 || items[i].key_size > MAX_KEY_SIZE) {
            put->states[i].state = ITEM_DONE;
            items[i].result = YOLK_ERR_INVALID;
        } else if (items[i].size > MAX_OBJECT_SIZE) {
            put->states[i].state = ITEM_DONE;
            items[i].result = YOLK_ERR_TOO_LARGE;
        }
    }
    free(first);
    *out = put;
    return YOLK_OK;
}

void store_put_destroy(struct store_put *put)
{
    if (put == NULL)
        return;
    for (size_t i = 0; put->states != NULL && i < put->window_count; i++)
        store_put_preserve(put, put->window[i]);
    if (put->op != 0)
        store_holds_finish(put->holds, put->op);
    store_message_free(&put->message);
    free(put->states);
    free(put->window);
    free(put->listed);
    free(put->commits);
    free(put->transfers);
    free(put);
}

void store_put_finish_item(struct store_put *put, uint32_t index, int64_t result)
{
    put->states[index].state = ITEM_DONE;
    put->items[index].result = result;
}

int store_put_is_for_space(int status)
{
    return status == YOLK_ERR_NO_SPACE || status == YOLK_ERR_QUOTA || status == YOLK_ERR_AGAIN ||
           status == YOLK_ERR_BUSY || status == YOLK_ERR_LIMIT || status == YOLK_ERR_NOT_READY;
}

/* Past the deadline, that the session is of an earlier life is no answer to the caller: with time
 * left another one would have been used. It is the time that is over. */
static int reason_at(const struct store_put *put, uint64_t now_ns, int failure)
{
    return (failure == YOLK_ERR_STALE || failure == YOLK_ERR_AGAIN) && now_ns >= put->deadline_ns
               ? YOLK_ERR_TIMEOUT
               : failure;
}

void store_put_retry_item(struct store_put *put, uint32_t index, uint64_t now_ns, int failure,
                          int counts)
{
    struct item *state = &put->states[index];
    int for_space = store_put_is_for_space(failure);
    uint64_t until = for_space ? put->space_deadline_ns : put->deadline_ns;

    if (now_ns >= until || (counts && !for_space && ++state->tries >= TRIES_MAX)) {
        store_put_finish_item(put, index, reason_at(put, now_ns, failure));
        return;
    }
    state->state = ITEM_PENDING;
    state->failure = YOLK_OK;
    if (index < put->cursor)
        put->cursor = index;
    if (put->pick_ns <= now_ns) {
        put->pick_ns = now_ns + put->backoff_ns;
        if (put->pick_ns > until)
            put->pick_ns = until;
        put->backoff_ns *= 2;
        if (put->backoff_ns > put->tuning.backoff_max_ns)
            put->backoff_ns = put->tuning.backoff_max_ns;
    }
}

/* Gathers the next window; 0 when no item is pending. */
static int pick_window(struct store_put *put)
{
    uint64_t bytes = 0;
    uint64_t key_bytes = 0;

    put->window_count = 0;
    while (put->cursor < put->count && put->states[put->cursor].state != ITEM_PENDING)
        put->cursor++;
    for (size_t i = put->cursor; i < put->count; i++) {
        const struct store_item *item = &put->items[i];
        if (put->states[i].state != ITEM_PENDING)
            continue;
        if (put->window_count > 0 && (put->window_count == put->tuning.window_keys ||
                                      item->size > put->tuning.window_bytes - bytes ||
                                      key_bytes + item->key_size > put->tuning.window_key_bytes))
            break;
        put->window[put->window_count++] = (uint32_t)i;
        bytes += item->size;
        if (bytes > put->tuning.window_bytes)
            bytes = put->tuning.window_bytes;
        key_bytes += item->key_size;
    }
    return put->window_count > 0;
}

void store_put_enter(struct store_put *put, enum phase phase)
{
    put->phase = phase;
    put->in_flight = 0;
    put->resend_ns = 0;
    put->sends = 0;
    put->unsure = 0;
}

static void end_window(struct store_put *put)
{
    /* What nobody says of the GDS file is settled by the next mount of it, that of a new session.
     */
    int stuck = put->unknown;
    put->unknown = 0;
    for (size_t i = 0; i < put->window_count; i++)
        stuck |= put->states[put->window[i]].stuck;
    /* With memory that never went quiet the op stays live: the master must not reuse the extent. */
    if (put->op != 0 && stuck)
        store_holds_stick(put->holds, put->op);
    if (put->op != 0 && !stuck)
        store_holds_finish(put->holds, put->op);
    put->op = 0;
    put->window_count = 0;
    store_put_enter(put, PHASE_PICK);
}

void store_put_fail_window(struct store_put *put, uint64_t now_ns, int status, int again)
{
    /* What is reserved in the GDS file is free only when the master surely has not taken it. */
    int revoke = put->phase == PHASE_START && put->unsure && store_put_has_reservations(put);
    for (size_t i = 0; i < put->window_count; i++) {
        uint32_t index = put->window[i];
        struct item *state = &put->states[index];
        if (revoke) {
            state->state = ITEM_FAILED;
            state->failure = status;
            state->tries = again ? state->tries : (uint32_t)TRIES_MAX;
            continue;
        }
        store_put_abort(put, index);
        if (again)
            store_put_retry_item(put, index, now_ns, status, 0);
        else
            store_put_finish_item(put, index, status);
    }
    if (!revoke) {
        end_window(put);
        return;
    }
    store_put_enter(put, PHASE_END);
    store_put_settle(put, now_ns);
}

static void list_items(struct store_put *put, enum item_state wanted)
{
    put->listed_count = 0;
    for (size_t i = 0; i < put->window_count; i++) {
        const struct item *state = &put->states[put->window[i]];
        if (state->state == wanted && !state->stuck)
            put->listed[put->listed_count++] = put->window[i];
    }
}

void store_put_settle(struct store_put *put, uint64_t now_ns)
{
    if (put->phase == PHASE_MOVE && put->how.gds != NULL) {
        store_put_enter(put, PHASE_COMMIT);
        return;
    }
    if (put->phase == PHASE_MOVE || put->phase == PHASE_COMMIT) {
        list_items(put, ITEM_LANDED);
        store_put_enter(put, PHASE_END);
        if (put->listed_count > 0)
            return;
    }
    if (put->phase == PHASE_END) {
        list_items(put, ITEM_FAILED);
        store_put_enter(put, PHASE_REVOKE);
        if (put->listed_count > 0)
            return;
    }
    for (size_t i = 0; i < put->window_count; i++) {
        struct item *state = &put->states[put->window[i]];
        if (state->state != ITEM_FAILED)
            continue;
        store_put_preserve(put, put->window[i]);
        if (state->stuck)
            store_put_finish_item(put, put->window[i], YOLK_ERR_STUCK);
        else
            store_put_retry_item(put, put->window[i], now_ns, state->failure,
                                 !store_status_is_outdated(state->failure));
    }
    end_window(put);
}

static uint16_t phase_message(const struct store_put *put)
{
    return put->phase == PHASE_START  ? WIRE_PUT_START
           : put->phase == PHASE_END  ? WIRE_PUT_END
           : put->phase == PHASE_ROOM ? WIRE_GDS_ROOM
                                      : WIRE_PUT_REVOKE;
}

/* A master that may have more copies in a moment is to say so, not to make fewer: until the time
 * for space is over, with some left for a last try that takes what there is. */
static struct store_put_how how_at(const struct store_put *put, uint64_t now_ns)
{
    struct store_put_how how = put->how;
    if ((how.replica_num > 1 || how.gds != NULL) && now_ns < put->space_deadline_ns &&
        now_ns + LAST_TRIES * put->tuning.backoff_max_ns < put->deadline_ns)
        how.flags |= WIRE_PUT_ALL_COPIES;
    return how;
}

/* Encodes the present phase's message. */
static int encode(struct store_put *put, uint64_t now_ns)
{
    struct store_put_how how = how_at(put, now_ns);
    store_holds_stamp(put->holds, &put->stamp);
    switch (put->phase) {
    case PHASE_START:
        put->epoch = put->stamp.epoch;
        put->session = put->stamp.session;
        return store_message_put_start(&put->message, &put->stamp, put->op, put->items, put->window,
                                       put->window_count, &how);
    case PHASE_END:
    case PHASE_REVOKE:
        return store_message_keys(&put->message, phase_message(put), &put->stamp, put->op,
                                  put->items, put->listed, put->listed_count, 0);
    case PHASE_ROOM:
        return store_put_ask_room(put);
    case PHASE_PICK:
    case PHASE_MOVE:
    case PHASE_COMMIT:
    case PHASE_DONE:
        break;
    }
    return YOLK_ERR_INVALID;
}

static void wait_until(struct store_action *action, uint64_t at_ns)
{
    action->kind = STORE_WAIT;
    action->deadline_ns = at_ns;
}

static void back_off(struct store_put *put, uint64_t now_ns)
{
    put->resend_ns = now_ns + put->backoff_ns;
    put->backoff_ns *= 2;
    if (put->backoff_ns > put->tuning.backoff_max_ns)
        put->backoff_ns = put->tuning.backoff_max_ns;
}

/* The owner's answer is under way: mostly it is there after one more message's time. */
static void wait_for_owner(struct store_put *put, uint64_t now_ns)
{
    uint32_t asked = put->sends < OWNER_DOUBLED_MAX ? put->sends : OWNER_DOUBLED_MAX;
    put->resend_ns = now_ns + (OWNER_FIRST_NS << asked);
}

/* END or REVOKE cannot be told (any more): the master's own timeout will do it. */
static void give_up_telling(struct store_put *put, uint64_t now_ns, int status)
{
    for (size_t i = 0; i < put->listed_count; i++) {
        struct item *state = &put->states[put->listed[i]];
        if (put->phase == PHASE_END) {
            state->state = ITEM_FAILED;
            state->failure = status;
            state->tries = TRIES_MAX; /* its fate is unknown: no second try under another op */
        }
    }
    if (put->phase == PHASE_END) {
        store_put_settle(put, now_ns);
        return;
    }
    put->phase = PHASE_REVOKE;
    store_put_settle(put, now_ns);
}

/* What was encoded. */
static void send(struct store_put *put, uint64_t now_ns, uint64_t latest_ns,
                 struct store_action *action)
{
    put->in_flight = 1;
    put->sends++;
    action->kind = STORE_SEND;
    action->message = phase_message(put);
    action->body = put->message.body.data;
    action->body_size = put->message.body.size;
    action->op = put->op;
    action->deadline_ns = now_ns + put->tuning.reply_timeout_ns;
    if (action->deadline_ns > latest_ns)
        action->deadline_ns = latest_ns;
}

/* 1 if *action is set. */
static int next_send(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    int closing = put->phase != PHASE_START;

    if (put->in_flight) {
        wait_until(action, UINT64_MAX);
        return 1;
    }
    /* What landed is told once even past the deadline: better a late success than lost work. */
    if (now_ns >= put->deadline_ns && (!closing || put->sends > 0)) {
        if (closing)
            give_up_telling(put, now_ns, YOLK_ERR_TIMEOUT);
        else
            store_put_fail_window(put, now_ns, YOLK_ERR_TIMEOUT, 0);
        return 0;
    }
    if (now_ns < put->resend_ns) {
        wait_until(action, closing || put->resend_ns < put->deadline_ns ? put->resend_ns
                                                                        : put->deadline_ns);
        return 1;
    }
    if (!closing && put->sends == 0 && !store_put_is_current(put)) {
        store_put_fail_window(put, now_ns, YOLK_ERR_AGAIN,
                              1); /* the GDS file was mounted anew meanwhile */
        return 0;
    }
    int status = encode(put, now_ns);
    if (status == YOLK_OK && put->stamp.session == 0) {
        /* Without a session nothing can be asked; the control thread is opening one. */
        back_off(put, now_ns);
        if (closing && now_ns >= put->deadline_ns)
            put->sends++;
        return 0;
    }
    if (status != YOLK_OK) {
        if (closing)
            give_up_telling(put, now_ns, status);
        else
            store_put_fail_window(put, now_ns, status, 0);
        return 0;
    }
    send(put, now_ns, closing ? UINT64_MAX : put->deadline_ns, action);
    return 1;
}

static int next_transfer(struct store_put *put, struct store_action *action)
{
    if (put->transfer_next == put->transfer_count) {
        wait_until(action, UINT64_MAX);
        return 1;
    }
    const struct transfer *transfer = &put->transfers[put->transfer_next];
    const struct store_item *item = &put->items[transfer->item];
    action->kind = STORE_TRANSFER;
    action->deadline_ns = put->deadline_ns;
    action->item = transfer->item;
    action->segment = transfer->segment;
    action->offset = transfer->offset;
    action->medium = transfer->medium;
    action->size = item->size;
    action->reservation =
        transfer->medium == WIRE_MEDIUM_GDS ? put->states[transfer->item].reservation : NULL;
    action->session = put->session;
    action->op = put->op;
    memcpy(action->ticket, transfer->ticket, sizeof(action->ticket));
    action->cookie = put->transfer_next++;
    return 1;
}

static int next_window(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    while (put->cursor < put->count && put->states[put->cursor].state != ITEM_PENDING)
        put->cursor++;
    if (put->cursor == put->count) {
        for (size_t i = 0; i < put->count; i++)
            if (put->states[i].duplicate_of != i)
                put->items[i].result = put->items[put->states[i].duplicate_of].result;
        put->phase = PHASE_DONE;
        return 0;
    }
    if (now_ns < put->pick_ns) {
        wait_until(action, put->pick_ns);
        return 1;
    }
    if (put->room_wanted > 0) {
        store_put_enter(put, PHASE_ROOM);
        return 0;
    }
    (void)pick_window(put);
    if (put->how.gds != NULL)
        store_put_reserve(put, now_ns);
    if (put->window_count == 0)
        return 0;
    put->op = store_holds_begin(put->holds);
    if (put->op == 0)
        store_put_fail_window(put, now_ns, YOLK_ERR_NO_MEMORY, 0);
    else
        store_put_enter(put, PHASE_START);
    return 0;
}

/* Asked once, and whatever comes of it the window is picked: that, too, finds out. */
static int next_room(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    if (put->in_flight) {
        wait_until(action, UINT64_MAX);
        return 1;
    }
    int ask = now_ns < put->deadline_ns && encode(put, now_ns) == YOLK_OK &&
              put->stamp.session != 0 && put->room_segment != 0;
    put->room_wanted = 0;
    if (!ask) {
        store_put_enter(put, PHASE_PICK);
        return 0;
    }
    send(put, now_ns, put->deadline_ns, action);
    return 1;
}

static int next_commit(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    if (put->committing) {
        wait_until(action, UINT64_MAX);
        return 1;
    }
    if (!store_put_commit(put, now_ns, action)) {
        store_put_settle(put, now_ns);
        return 0;
    }
    put->committing = 1;
    return 1;
}

void store_put_committed(struct store_put *put, uint64_t now_ns)
{
    if (!put->committing)
        return;
    put->committing = 0;
    store_put_judge_commits(put);
    store_put_settle(put, now_ns);
}

void store_put_next(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    int set = 0;
    memset(action, 0, sizeof(*action));
    while (!set) {
        switch (put->phase) {
        case PHASE_PICK:
            set = next_window(put, now_ns, action);
            break;
        case PHASE_ROOM:
            set = next_room(put, now_ns, action);
            break;
        case PHASE_START:
        case PHASE_END:
        case PHASE_REVOKE:
            set = next_send(put, now_ns, action);
            break;
        case PHASE_COMMIT:
            set = next_commit(put, now_ns, action);
            break;
        case PHASE_MOVE:
            set = next_transfer(put, action);
            break;
        case PHASE_DONE:
            action->kind = STORE_DONE;
            set = 1;
            break;
        }
    }
}

/* An upsert is done, but the owner of the old value has not confirmed that this is gone: asked
 * again, until it has. */
static int is_untold(const struct store_put *put, struct wire_view results)
{
    for (size_t i = 0; i < put->listed_count; i++)
        if (wire_i32s_at(results, (uint32_t)i) == YOLK_ERR_AGAIN)
            return 1;
    return 0;
}

/* An earlier master may have performed the END and died with its answer. What others wrote since
 * must not be replaced by a second upsert; a second put replaces nothing. */
static int is_done_perhaps(const struct store_put *put)
{
    return put->unsure && (put->how.flags & WIRE_PUT_UPSERT);
}

static void closing_reply(struct store_put *put, uint64_t now_ns, const uint8_t *body, size_t size)
{
    struct wire_view results;
    int status =
        store_message_results(put->phase == PHASE_END ? WIRE_PUT_END_REPLY : WIRE_PUT_REVOKE_REPLY,
                              body, size, (uint32_t)put->listed_count, &results);

    if (status != YOLK_OK && store_status_is_session(status) && now_ns < put->deadline_ns) {
        put->in_flight = 0;
        back_off(put, now_ns);
        return;
    }
    if (put->phase == PHASE_END && status == YOLK_OK && now_ns < put->deadline_ns &&
        is_untold(put, results)) {
        put->in_flight = 0;
        put->unsure = 1;
        wait_for_owner(put, now_ns);
        return;
    }
    if (put->phase == PHASE_END) {
        for (size_t i = 0; i < put->listed_count; i++) {
            uint32_t index = put->listed[i];
            int result = status != YOLK_OK ? reason_at(put, now_ns, status)
                                           : wire_i32s_at(results, (uint32_t)i);
            if (result >= 0 || result == YOLK_ERR_EXISTS) {
                store_put_finish_item(put, index, (int64_t)put->items[index].size);
            } else {
                put->states[index].state = ITEM_FAILED;
                /* Unknown by now: the master has given up the put, or the whole session, because
                 * nothing was heard for too long. That is what a caller whose own time is over
                 * then must hear, not that a key is missing. */
                put->states[index].failure =
                    result == YOLK_ERR_NOT_FOUND ? YOLK_ERR_TIMEOUT : result;
                if (result == YOLK_ERR_NOT_FOUND && is_done_perhaps(put))
                    put->states[index].tries = TRIES_MAX;
            }
        }
    }
    if (put->phase == PHASE_REVOKE && status == YOLK_OK)
        for (size_t i = 0; i < put->listed_count; i++) {
            int result = wire_i32s_at(results, (uint32_t)i);
            put->states[put->listed[i]].outcome = result == YOLK_OK ? STORE_OUTCOME_TOLD
                                                  : result == YOLK_ERR_NOT_FOUND
                                                      ? STORE_OUTCOME_ABSENT
                                                      : STORE_OUTCOME_UNKNOWN;
        }
    store_put_settle(put, now_ns);
}

void store_put_reply(struct store_put *put, uint64_t now_ns, uint16_t message, const uint8_t *body,
                     size_t body_size)
{
    if (!put->in_flight)
        return;
    uint16_t wanted = (uint16_t)(phase_message(put) + 1);
    int refused = store_message_refused(wanted, message, body, body_size);
    put->in_flight = 0;
    if (put->phase == PHASE_ROOM) {
        if (refused == YOLK_OK)
            store_put_room_reply(put, body, body_size);
        store_put_enter(put, PHASE_PICK);
        return;
    }
    if (refused != YOLK_OK) {
        if (store_status_is_session(refused) && now_ns < put->deadline_ns)
            back_off(put, now_ns);
        else if (put->phase == PHASE_START)
            store_put_fail_window(put, now_ns, reason_at(put, now_ns, refused), 0);
        else
            give_up_telling(put, now_ns, reason_at(put, now_ns, refused));
        return;
    }
    store_holds_acknowledge(put->holds, &put->stamp);
    if (put->phase == PHASE_START)
        store_put_started(put, now_ns, body, body_size);
    else
        closing_reply(put, now_ns, body, body_size);
}

void store_put_link_lost(struct store_put *put, uint64_t now_ns)
{
    if (!put->in_flight)
        return;
    put->in_flight = 0;
    if (put->phase == PHASE_ROOM) {
        store_put_enter(put, PHASE_PICK);
        return;
    }
    put->unsure = 1;
    /* A grant whose answer was lost is asked for again under the same op: the master repeats it. */
    back_off(put, now_ns);
}

void store_put_transferred(struct store_put *put, uint64_t now_ns, uint64_t cookie,
                           enum yolk_status status)
{
    if (put->phase != PHASE_MOVE || cookie >= put->transfer_next)
        return;
    struct transfer *transfer = &put->transfers[cookie];
    if (transfer->over)
        return;
    transfer->over = 1;
    struct item *state = &put->states[transfer->item];
    if (status == YOLK_ERR_STUCK) {
        state->stuck = 1;
        state->file_stuck |= transfer->medium == WIRE_MEDIUM_GDS;
    }
    if (status == YOLK_ERR_ACCESS)
        store_holds_refused(put->holds, put->session);
    if (status != YOLK_OK && state->failure == YOLK_OK)
        state->failure = status;
    if (mutated(MUT_GDS_COMMIT_EARLY) && transfer->medium == WIRE_MEDIUM_GDS)
        put->flying = state->flying = 1;
    if (--state->flying == 0)
        state->state = state->failure == YOLK_OK ? ITEM_LANDED : ITEM_FAILED;
    if (--put->flying == 0)
        store_put_settle(put, now_ns);
}
