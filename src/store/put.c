/* SPDX-License-Identifier: Apache-2.0 */
/* One window at a time: START → transfers → END of what landed → REVOKE of the rest → next window.
 * An op is used for one START only; its END and REVOKE may be repeated, the master performs them
 * once. */
#include "store/put.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "store/dedup.h"
#include "store/message.h"

enum item_state {
    ITEM_PENDING = 0, /* → GRANTED, DONE; stays PENDING to be tried again */
    ITEM_GRANTED = 1, /* → LANDED, FAILED */
    ITEM_LANDED = 2,  /* every replica is in place → DONE, FAILED */
    ITEM_FAILED = 3,  /* to be revoked → PENDING, DONE */
    ITEM_DONE = 4,    /* result is written */
};

struct item {
    enum item_state state;
    int failure;           /* enum yolk_status of the first transfer that failed */
    uint32_t flying;       /* transfers handed out or to be */
    uint32_t tries;        /* failures that were not for want of space */
    uint32_t duplicate_of; /* index of the first item with this key, own index otherwise */
    uint8_t stuck;
};

struct transfer {
    uint32_t item;
    uint64_t segment;
    uint64_t offset;
    uint8_t ticket[16];
    uint8_t over;
};

enum phase {
    PHASE_PICK = 0, /* → START, WAITING, DONE */
    PHASE_START,    /* → MOVE, PICK */
    PHASE_MOVE,     /* → END */
    PHASE_END,      /* → REVOKE */
    PHASE_REVOKE,   /* → PICK */
    PHASE_DONE,
};

/* A key whose transfer fails this often is given up; each try has new space and maybe another node.
 */
enum { TRIES_MAX = 3 };
enum { LAST_TRIES = 4 }; /* so many of the longest waits before the end nothing is waited for */

struct store_put {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item *items;
    struct item *states;
    size_t count;
    struct store_put_how how;
    uint64_t space_deadline_ns;
    uint64_t deadline_ns;

    enum phase phase;
    int in_flight;       /* a SEND is unanswered */
    uint64_t resend_ns;  /* the next SEND waits until then */
    uint64_t pick_ns;    /* the next window waits until then */
    uint64_t backoff_ns; /* the next wait's length */
    uint32_t sends;      /* of this phase's message */
    size_t cursor;       /* no PENDING item before it */
    uint64_t op;
    uint64_t epoch;
    uint64_t session;
    struct store_stamp stamp;
    struct store_message message;

    uint32_t *window; /* items of the window, then of the message in flight */
    size_t window_count;
    uint32_t *listed; /* items of the END or REVOKE in flight */
    size_t listed_count;
    struct transfer *transfers;
    size_t transfer_count;
    size_t transfer_room;
    size_t transfer_next; /* to hand out */
    size_t flying;
};

void store_tuning_init(struct store_tuning *tuning)
{
    memset(tuning, 0, sizeof(*tuning));
    /* 128 MiB takes 0.2 s at the slowest sensible 5 Gbit/s: far inside a guard of some seconds. */
    tuning->window_bytes = 128 * MIB;
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
    uint32_t *first = base_calloc(count == 0 ? 1 : count, sizeof(*first));
    if (put->states == NULL || put->window == NULL || put->listed == NULL || first == NULL ||
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
    if (put->op != 0)
        store_holds_finish(put->holds, put->op);
    store_message_free(&put->message);
    free(put->states);
    free(put->window);
    free(put->listed);
    free(put->transfers);
    free(put);
}

static void finish_item(struct store_put *put, uint32_t index, int64_t result)
{
    put->states[index].state = ITEM_DONE;
    put->items[index].result = result;
}

/* Waiting may help: space, room in the session's quota, or another put of the same key that ends.
 */
static int is_for_space(int status)
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

/* Puts an item back for another try, or ends it with `failure`. */
static void retry_item(struct store_put *put, uint32_t index, uint64_t now_ns, int failure,
                       int counts)
{
    struct item *state = &put->states[index];
    int for_space = is_for_space(failure);
    uint64_t until = for_space ? put->space_deadline_ns : put->deadline_ns;

    if (now_ns >= until || (counts && !for_space && ++state->tries >= TRIES_MAX)) {
        finish_item(put, index, reason_at(put, now_ns, failure));
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

static void enter(struct store_put *put, enum phase phase)
{
    put->phase = phase;
    put->in_flight = 0;
    put->resend_ns = 0;
    put->sends = 0;
}

static void end_window(struct store_put *put)
{
    int stuck = 0;
    for (size_t i = 0; i < put->window_count; i++)
        stuck |= put->states[put->window[i]].stuck;
    /* With memory that never went quiet the op stays live: the master must not reuse the extent. */
    if (put->op != 0 && stuck)
        store_holds_stick(put->holds, put->op);
    if (put->op != 0 && !stuck)
        store_holds_finish(put->holds, put->op);
    put->op = 0;
    put->window_count = 0;
    enter(put, PHASE_PICK);
}

/* The whole window failed before anything was granted, or as if nothing was. */
static void fail_window(struct store_put *put, uint64_t now_ns, int status, int again)
{
    for (size_t i = 0; i < put->window_count; i++) {
        if (again)
            retry_item(put, put->window[i], now_ns, status, 0);
        else
            finish_item(put, put->window[i], status);
    }
    end_window(put);
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

/* After all transfers, or an END: what is next for the window? */
static void settle(struct store_put *put, uint64_t now_ns)
{
    if (put->phase == PHASE_MOVE) {
        list_items(put, ITEM_LANDED);
        enter(put, PHASE_END);
        if (put->listed_count > 0)
            return;
    }
    if (put->phase == PHASE_END) {
        list_items(put, ITEM_FAILED);
        enter(put, PHASE_REVOKE);
        if (put->listed_count > 0)
            return;
    }
    for (size_t i = 0; i < put->window_count; i++) {
        struct item *state = &put->states[put->window[i]];
        if (state->state != ITEM_FAILED)
            continue;
        if (state->stuck)
            finish_item(put, put->window[i], YOLK_ERR_STUCK);
        else
            retry_item(put, put->window[i], now_ns, state->failure,
                       !store_status_is_outdated(state->failure));
    }
    end_window(put);
}

static uint16_t phase_message(const struct store_put *put)
{
    return put->phase == PHASE_START ? WIRE_PUT_START
           : put->phase == PHASE_END ? WIRE_PUT_END
                                     : WIRE_PUT_REVOKE;
}

/* A master that may have more copies in a moment is to say so, not to make fewer: until the time
 * for space is over, with some left for a last try that takes what there is. */
static struct store_put_how how_at(const struct store_put *put, uint64_t now_ns)
{
    struct store_put_how how = put->how;
    if (how.replica_num > 1 && now_ns < put->space_deadline_ns &&
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
    case PHASE_PICK:
    case PHASE_MOVE:
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
        settle(put, now_ns);
        return;
    }
    put->phase = PHASE_REVOKE;
    settle(put, now_ns);
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
            fail_window(put, now_ns, YOLK_ERR_TIMEOUT, 0);
        return 0;
    }
    if (now_ns < put->resend_ns) {
        wait_until(action, closing || put->resend_ns < put->deadline_ns ? put->resend_ns
                                                                        : put->deadline_ns);
        return 1;
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
            fail_window(put, now_ns, status, 0);
        return 0;
    }
    put->in_flight = 1;
    put->sends++;
    action->kind = STORE_SEND;
    action->message = phase_message(put);
    action->body = put->message.body.data;
    action->body_size = put->message.body.size;
    action->op = put->op;
    action->deadline_ns = now_ns + put->tuning.reply_timeout_ns;
    if (!closing && action->deadline_ns > put->deadline_ns)
        action->deadline_ns = put->deadline_ns;
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
    action->size = item->size;
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
    (void)pick_window(put);
    put->op = store_holds_begin(put->holds);
    if (put->op == 0)
        fail_window(put, now_ns, YOLK_ERR_NO_MEMORY, 0);
    else
        enter(put, PHASE_START);
    return 0;
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
        case PHASE_START:
        case PHASE_END:
        case PHASE_REVOKE:
            set = next_send(put, now_ns, action);
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

static int add_transfer(struct store_put *put, uint32_t item, struct wire_replica place,
                        const uint8_t *ticket)
{
    if (put->transfer_count == put->transfer_room) {
        size_t room = put->transfer_room == 0 ? 64 : put->transfer_room * 2;
        struct transfer *grown = base_realloc(put->transfers, room * sizeof(*grown));
        if (grown == NULL)
            return 0;
        put->transfers = grown;
        put->transfer_room = room;
    }
    struct transfer *transfer = &put->transfers[put->transfer_count++];
    memset(transfer, 0, sizeof(*transfer));
    transfer->item = item;
    transfer->segment = place.segment;
    transfer->offset = place.offset;
    memcpy(transfer->ticket, ticket, sizeof(transfer->ticket));
    return 1;
}

/* Takes one key's grant: its transfers, or its failure. */
static void grant(struct store_put *put, const struct store_grants *grants, uint32_t index,
                  const struct wire_result *granted)
{
    struct item *state = &put->states[index];
    uint64_t size = put->items[index].size;

    state->state = ITEM_GRANTED;
    state->failure = YOLK_OK;
    state->flying = 0;
    for (uint32_t i = 0; i < granted->replica_count && size > 0; i++) {
        uint32_t at = granted->first + i;
        struct wire_replica place = wire_replica_at(grants->replicas, at);
        int status =
            store_holds_extent(put->holds, put->op, put->epoch, place.segment, place.offset, size);
        if (status == YOLK_OK &&
            !add_transfer(put, index, place, wire_ticket_at(grants->tickets, at)))
            status = YOLK_ERR_NO_MEMORY;
        if (status != YOLK_OK) {
            /* Transfers added already are still made; the key fails after them. */
            state->failure = status;
            break;
        }
        state->flying++;
    }
    if (size > 0 && granted->replica_count == 0)
        state->failure = YOLK_ERR_PROTOCOL;
    if (state->flying == 0)
        state->state = state->failure == YOLK_OK ? ITEM_LANDED : ITEM_FAILED;
}

static void start_reply(struct store_put *put, uint64_t now_ns, const uint8_t *body, size_t size)
{
    struct store_grants grants;
    int status = store_message_grants(WIRE_PUT_START_REPLY, body, size, &grants);

    if (status == YOLK_OK && grants.count != put->window_count)
        status = YOLK_ERR_PROTOCOL;
    if (status != YOLK_OK) {
        fail_window(put, now_ns, status, store_status_is_session(status));
        return;
    }
    put->transfer_count = 0;
    put->transfer_next = 0;
    enter(put, PHASE_MOVE);
    int progress = 0;
    for (size_t i = 0; i < put->window_count; i++) {
        uint32_t index = put->window[i];
        struct wire_result granted = wire_result_at(grants.results, (uint32_t)i);
        if (granted.status == YOLK_OK) {
            grant(put, &grants, index, &granted);
            progress = 1;
        } else if (granted.status == YOLK_ERR_EXISTS) {
            finish_item(put, index, (int64_t)put->items[index].size);
        } else if (is_for_space(granted.status)) {
            retry_item(put, index, now_ns, granted.status, 1);
        } else {
            finish_item(put, index,
                        granted.status < 0 ? granted.status : (int32_t)YOLK_ERR_PROTOCOL);
        }
    }
    if (progress)
        put->backoff_ns = put->tuning.backoff_first_ns;
    put->flying = put->transfer_count;
    if (put->flying == 0)
        settle(put, now_ns);
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
        back_off(put, now_ns);
        return;
    }
    if (put->phase == PHASE_END) {
        for (size_t i = 0; i < put->listed_count; i++) {
            uint32_t index = put->listed[i];
            int result = status != YOLK_OK ? reason_at(put, now_ns, status)
                                           : wire_i32s_at(results, (uint32_t)i);
            if (result >= 0 || result == YOLK_ERR_EXISTS) {
                finish_item(put, index, (int64_t)put->items[index].size);
            } else {
                put->states[index].state = ITEM_FAILED;
                /* Unknown by now: the master has given up the put, or the whole session, because
                 * nothing was heard for too long. That is what a caller whose own time is over
                 * then must hear, not that a key is missing. */
                put->states[index].failure =
                    result == YOLK_ERR_NOT_FOUND ? YOLK_ERR_TIMEOUT : result;
            }
        }
    }
    settle(put, now_ns);
}

void store_put_reply(struct store_put *put, uint64_t now_ns, uint16_t message, const uint8_t *body,
                     size_t body_size)
{
    if (!put->in_flight)
        return;
    uint16_t wanted = (uint16_t)(phase_message(put) + 1);
    int refused = store_message_refused(wanted, message, body, body_size);
    put->in_flight = 0;
    if (refused != YOLK_OK) {
        if (store_status_is_session(refused) && now_ns < put->deadline_ns)
            back_off(put, now_ns);
        else if (put->phase == PHASE_START)
            fail_window(put, now_ns, reason_at(put, now_ns, refused), 0);
        else
            give_up_telling(put, now_ns, reason_at(put, now_ns, refused));
        return;
    }
    store_holds_acknowledge(put->holds, &put->stamp);
    if (put->phase == PHASE_START)
        start_reply(put, now_ns, body, body_size);
    else
        closing_reply(put, now_ns, body, body_size);
}

void store_put_link_lost(struct store_put *put, uint64_t now_ns)
{
    if (!put->in_flight)
        return;
    put->in_flight = 0;
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
    if (status == YOLK_ERR_STUCK)
        state->stuck = 1;
    if (status == YOLK_ERR_ACCESS)
        store_holds_refused(put->holds, put->session);
    if (status != YOLK_OK && state->failure == YOLK_OK)
        state->failure = status;
    if (--state->flying == 0)
        state->state = state->failure == YOLK_OK ? ITEM_LANDED : ITEM_FAILED;
    if (--put->flying == 0)
        settle(put, now_ns);
}
