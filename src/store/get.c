/* SPDX-License-Identifier: Apache-2.0 */
/* One window at a time: GET_START gives places and a guard → reads, replica after replica → the
 * guard is checked for each value when it has landed → the master is told of disk replicas that are
 * of no use → next window. A long window's guard is renewed. */
#include "store/get_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/mutation.h"

/* After this many queries whose replicas all failed a key is given up. */
enum { QUERIES_MAX = 3 };

/* No window is larger than the batch: small calls stay cheap. */
size_t store_get_window_room(const struct store_get *get)
{
    return get->count < get->tuning.window_keys ? get->count + 1 : get->tuning.window_keys;
}

enum yolk_status store_get_create(struct store_holds *holds, const struct store_tuning *tuning,
                                  const struct store_replica_choice *choice,
                                  struct store_item *items, size_t count, uint64_t deadline_ns,
                                  struct store_get **out)
{
    struct store_get *get = base_calloc(1, sizeof(*get));
    if (get == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a get");
    get->holds = holds;
    get->tuning = *tuning;
    get->choice = choice;
    get->items = items;
    get->count = count;
    get->deadline_ns = deadline_ns;
    get->backoff_ns = tuning->backoff_first_ns;
    store_message_init(&get->message);
    base_buf_init(&get->ahead.reply, MAX_FRAME_BODY);
    get->states = base_calloc(count == 0 ? 1 : count, sizeof(*get->states));
    get->window = base_calloc(store_get_window_room(get), sizeof(*get->window));
    if (get->states == NULL || get->window == NULL) {
        store_get_destroy(get);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a get of %zu keys", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (items[i].key_size != 0 && items[i].key_size <= MAX_KEY_SIZE)
            continue;
        get->states[i].state = ITEM_DONE;
        items[i].result = YOLK_ERR_INVALID;
    }
    *out = get;
    return YOLK_OK;
}

void store_get_destroy(struct store_get *get)
{
    if (get == NULL)
        return;
    if (get->op != 0)
        store_holds_finish(get->holds, get->op);
    if (get->ahead.op != 0)
        store_holds_finish(get->holds, get->ahead.op);
    store_message_free(&get->message);
    base_buf_free(&get->ahead.reply);
    free(get->ahead.window);
    free(get->states);
    free(get->window);
    free(get->replicas);
    free(get->transfers);
    free(get->bad_items);
    free(get->bad_replicas);
    free(get);
}

static void finish_item(struct store_get *get, uint32_t index, int64_t result)
{
    get->states[index].state = ITEM_DONE;
    get->items[index].result = result;
}

static void back_off(struct store_get *get, uint64_t now_ns)
{
    get->resend_ns = now_ns + get->backoff_ns;
    get->backoff_ns *= 2;
    if (get->backoff_ns > get->tuning.backoff_max_ns)
        get->backoff_ns = get->tuning.backoff_max_ns;
}

static void requery_item(struct store_get *get, uint32_t index)
{
    get->states[index].state = ITEM_PENDING;
    if (index < get->cursor)
        get->cursor = index;
}

static void end_window(struct store_get *get)
{
    /* A read that never went quiet may touch the caller's memory, not the segment: the guard ends.
     */
    if (get->op != 0)
        store_holds_finish(get->holds, get->op);
    get->op = 0;
    get->window_count = 0;
    get->transfer_count = 0;
    get->transfer_next = 0;
    get->phase = get->bad_count > 0 ? PHASE_REPORT : PHASE_PICK;
}

static void fail_window(struct store_get *get, uint64_t now_ns, int status, int again)
{
    for (size_t i = 0; i < get->window_count; i++) {
        get->states[get->window[i]].failure = status;
        if (again && now_ns < get->deadline_ns)
            requery_item(get, get->window[i]);
        else
            finish_item(get, get->window[i], status);
    }
    if (again)
        back_off(get, now_ns);
    end_window(get);
}

int store_get_find_pending(struct store_get *get)
{
    while (get->cursor < get->count && get->states[get->cursor].state != ITEM_PENDING)
        get->cursor++;
    return get->cursor < get->count;
}

size_t store_get_pick(const struct store_get *get, uint32_t *window)
{
    uint64_t bytes = 0;
    uint64_t key_bytes = 0;
    size_t count = 0;

    for (size_t i = get->cursor; i < get->count; i++) {
        const struct store_item *item = &get->items[i];
        if (get->states[i].state != ITEM_PENDING)
            continue;
        if (count > 0 &&
            (count == get->tuning.window_keys || item->size > get->tuning.window_bytes - bytes ||
             key_bytes + item->key_size > get->tuning.window_key_bytes))
            break;
        window[count++] = (uint32_t)i;
        bytes += item->size;
        if (bytes > get->tuning.window_bytes)
            bytes = get->tuning.window_bytes;
        key_bytes += item->key_size;
    }
    return count;
}

static void wait_until(struct store_action *action, uint64_t at_ns)
{
    action->kind = STORE_WAIT;
    action->deadline_ns = at_ns;
}

void store_get_send(struct store_get *get, uint64_t now_ns, uint16_t kind,
                    struct store_action *action)
{
    get->in_flight = kind;
    get->sent_ns = now_ns;
    action->kind = STORE_SEND;
    action->message = kind;
    action->body = get->message.body.data;
    action->body_size = get->message.body.size;
    action->op = get->op;
    action->deadline_ns = now_ns + get->tuning.reply_timeout_ns;
    if (action->deadline_ns > get->deadline_ns && kind != WIRE_RENEW)
        action->deadline_ns = get->deadline_ns;
}

/* PHASE_PICK. 1 if *action is set. */
static int next_window(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    if (get->ahead.state == AHEAD_ANSWERED) {
        store_get_ahead_take(get, now_ns);
        return 0;
    }
    get->ahead.state = AHEAD_NONE;
    if (!store_get_find_pending(get)) {
        get->phase = PHASE_DONE;
        return 0;
    }
    if (now_ns < get->resend_ns && now_ns < get->deadline_ns) {
        wait_until(action, get->resend_ns < get->deadline_ns ? get->resend_ns : get->deadline_ns);
        return 1;
    }
    get->window_count = store_get_pick(get, get->window);
    if (now_ns >= get->deadline_ns) {
        for (size_t i = 0; i < get->window_count; i++) {
            const struct item *state = &get->states[get->window[i]];
            finish_item(get, get->window[i],
                        state->failure != YOLK_OK ? state->failure : (int)YOLK_ERR_TIMEOUT);
        }
        return 0;
    }
    get->op = store_holds_begin(get->holds);
    if (get->op == 0)
        fail_window(get, now_ns, YOLK_ERR_NO_MEMORY, 0);
    else
        get->phase = PHASE_START;
    return 0;
}

/* PHASE_START with nothing in flight. 1 if *action is set. */
static int next_start(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    store_holds_stamp(get->holds, &get->stamp);
    if (get->stamp.session == 0) {
        /* No session yet: the control thread is opening one. */
        fail_window(get, now_ns, YOLK_ERR_LINK, 1);
        return 0;
    }
    get->epoch = get->stamp.epoch;
    get->session = get->stamp.session;
    int status = store_message_get_start(&get->message, &get->stamp, get->op, get->items,
                                         get->window, get->window_count, 0);
    if (status != YOLK_OK) {
        fail_window(get, now_ns, status, 0);
        return 0;
    }
    store_get_send(get, now_ns, WIRE_GET_START, action);
    return 1;
}

/* PHASE_MOVE: hand out reads, renew the guard of a window that takes long, or wait. */
static void next_move(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    if (get->transfer_next < get->transfer_count) {
        const struct transfer *transfer = &get->transfers[get->transfer_next];
        const struct store_replica *replica = &get->replicas[transfer->replica];
        action->kind = STORE_TRANSFER;
        action->deadline_ns = get->deadline_ns;
        action->item = transfer->item;
        action->segment = replica->segment;
        action->offset = replica->offset;
        action->size = get->states[transfer->item].size;
        action->medium = replica->medium;
        action->gds = &replica->gds;
        if (replica->medium != WIRE_MEDIUM_MEMORY) {
            const struct store_item *item = &get->items[transfer->item];
            action->checksum = replica->checksum;
            action->key = item->key;
            action->key_size = item->key_size;
            action->key_hash = base_hash64(item->key, item->key_size);
        }
        action->session = get->session;
        action->op = get->op;
        action->cookie = get->transfer_next++;
        return;
    }
    if (store_get_ahead_ask(get, now_ns, action))
        return;
    if (!get->in_flight && now_ns >= get->renew_ns && now_ns < get->expires_ns) {
        store_holds_stamp(get->holds, &get->stamp);
        get->renew_ns = UINT64_MAX;
        if (get->stamp.session != 0 &&
            store_message_renew(&get->message, &get->stamp, get->op) == YOLK_OK) {
            store_get_send(get, now_ns, WIRE_RENEW, action);
            return;
        }
    }
    wait_until(action, get->in_flight || now_ns >= get->expires_ns ? UINT64_MAX : get->renew_ns);
}

/* PHASE_REPORT with nothing in flight. 1 if *action is set. Without a session nobody is told: the
 * master will be when the replica is met again. */
static int next_report(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    size_t count = get->bad_count;
    get->bad_count = 0;
    get->phase = PHASE_PICK;
    store_holds_stamp(get->holds, &get->stamp);
    if (get->stamp.session == 0 || now_ns >= get->deadline_ns ||
        store_message_replica_bad(&get->message, &get->stamp, get->items, get->bad_items,
                                  get->bad_replicas, count) != YOLK_OK)
        return 0;
    store_get_send(get, now_ns, WIRE_REPLICA_BAD, action);
    return 1;
}

void store_get_next(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    int set = 0;
    memset(action, 0, sizeof(*action));
    /* The answer to a RENEW must not be taken for that to the next START. */
    if (get->in_flight && get->phase != PHASE_MOVE) {
        wait_until(action, UINT64_MAX);
        return;
    }
    while (!set) {
        switch (get->phase) {
        case PHASE_PICK:
            set = next_window(get, now_ns, action);
            break;
        case PHASE_START:
            set = next_start(get, now_ns, action);
            break;
        case PHASE_REPORT:
            set = next_report(get, now_ns, action);
            break;
        case PHASE_MOVE:
            next_move(get, now_ns, action);
            set = 1;
            break;
        case PHASE_DONE:
            action->kind = STORE_DONE;
            set = 1;
            break;
        }
    }
}

static int add_transfer(struct store_get *get, uint32_t index, uint32_t replica)
{
    if (get->transfer_count == get->transfer_room) {
        size_t room = get->transfer_room == 0 ? 64 : get->transfer_room * 2;
        struct transfer *grown = base_realloc(get->transfers, room * sizeof(*grown));
        if (grown == NULL)
            return 0;
        get->transfers = grown;
        get->transfer_room = room;
    }
    get->transfers[get->transfer_count++] = (struct transfer){.item = index, .replica = replica};
    return 1;
}

/* Every replica of the item failed, or none was given: ask the master again, or give up. */
static void replicas_used_up(struct store_get *get, uint64_t now_ns, uint32_t index)
{
    struct item *state = &get->states[index];
    int failure = state->failure != YOLK_OK ? state->failure : (int)YOLK_ERR_PROTOCOL;

    /* An outdated place or session: the master has, or gets, the new one. */
    if (failure == YOLK_ERR_STUCK || now_ns >= get->deadline_ns ||
        (!store_status_is_outdated(failure) && ++state->queries >= QUERIES_MAX)) {
        finish_item(get, index, failure);
        return;
    }
    requery_item(get, index);
    if (get->resend_ns <= now_ns)
        back_off(get, now_ns);
}

/* Starts the read of the item's next replica. */
static void read_next_replica(struct store_get *get, uint64_t now_ns, uint32_t index)
{
    struct item *state = &get->states[index];
    for (;;) {
        /* An answer may have no replica at all. */
        const struct store_replica *first =
            get->replicas != NULL ? get->replicas + state->first : NULL;
        int chosen = store_replica_choose(get->choice, first, state->replica_count, state->tried,
                                          get->op * 31 + index);
        if (chosen < 0) {
            replicas_used_up(get, now_ns, index);
            return;
        }
        uint32_t at = state->first + (uint32_t)chosen;
        state->tried |= 1ull << chosen;
        int status = store_holds_extent(get->holds, get->op, get->epoch, get->replicas[at].segment,
                                        get->replicas[at].offset, state->size);
        if (status == YOLK_OK && !add_transfer(get, index, at))
            status = YOLK_ERR_NO_MEMORY;
        if (status == YOLK_OK) {
            state->state = ITEM_MOVING;
            get->flying++;
            return;
        }
        state->failure = status;
    }
}

static void grant(struct store_get *get, uint64_t now_ns, uint32_t index,
                  const struct wire_result *granted)
{
    struct item *state = &get->states[index];

    if (granted->status == YOLK_ERR_AGAIN || granted->status == YOLK_ERR_LIMIT) {
        state->failure = granted->status;
        replicas_used_up(get, now_ns, index);
    } else if (granted->status != YOLK_OK) {
        finish_item(get, index, granted->status < 0 ? granted->status : (int)YOLK_ERR_PROTOCOL);
    } else if (granted->size > get->items[index].size) {
        finish_item(get, index, YOLK_ERR_BUFFER_SMALL);
    } else if (granted->size == 0) {
        finish_item(get, index, 0);
    } else {
        state->size = granted->size;
        state->first = granted->first;
        state->replica_count = granted->replica_count;
        state->tried = 0;
        state->failure = YOLK_OK;
        read_next_replica(get, now_ns, index);
    }
}

static int take_replicas(struct store_get *get, const struct store_grants *grants)
{
    uint32_t count = wire_replica_count(grants->replicas);
    if (count > get->replica_room) {
        struct store_replica *grown = base_realloc(get->replicas, count * sizeof(*grown));
        if (grown == NULL)
            return YOLK_ERR_NO_MEMORY;
        get->replicas = grown;
        get->replica_room = count;
    }
    return store_message_replicas(grants, get->replicas, count);
}

/* 1 % is left for clocks that run apart; the master adds a margin of its own. */
static void guard_from(struct store_get *get, uint64_t ttl_ms)
{
    uint64_t ttl_ns = ttl_ms > UINT64_MAX / NS_PER_MS / 2 ? UINT64_MAX / 2 : ttl_ms * NS_PER_MS;
    get->expires_ns = get->sent_ns + (ttl_ns - ttl_ns / 100);
    get->renew_ns = get->sent_ns + ttl_ns / 2;
}

void store_get_started(struct store_get *get, uint64_t now_ns, const uint8_t *body, size_t size)
{
    struct store_grants grants;
    int status = store_message_grants(WIRE_GET_START_REPLY, body, size, &grants);

    if (status == YOLK_OK && grants.count != get->window_count)
        status = YOLK_ERR_PROTOCOL;
    if (status == YOLK_OK)
        status = take_replicas(get, &grants);
    if (status != YOLK_OK) {
        fail_window(get, now_ns, status, store_status_is_session(status));
        return;
    }
    guard_from(get, grants.guard_ttl_ms);
    get->phase = PHASE_MOVE;
    get->backoff_ns = get->tuning.backoff_first_ns;
    get->flying = 0;
    for (size_t i = 0; i < get->window_count; i++) {
        struct wire_result granted = wire_result_at(grants.results, (uint32_t)i);
        grant(get, now_ns, get->window[i], &granted);
    }
    if (get->flying == 0)
        end_window(get);
}

static void renew_reply(struct store_get *get, uint64_t now_ns, const uint8_t *body, size_t size)
{
    struct wire_renew_reply reply;
    if (wire_decode(WIRE_RENEW_REPLY, body, size, &reply) != YOLK_OK || reply.status != YOLK_OK)
        return;
    /* An answer for an older window, or one that came too late, renews nothing. */
    if (get->phase == PHASE_MOVE && now_ns < get->expires_ns)
        guard_from(get, reply.guard_ttl_ms);
}

void store_get_reply(struct store_get *get, uint64_t now_ns, uint16_t message, const uint8_t *body,
                     size_t body_size)
{
    uint16_t asked = get->in_flight;
    if (asked == 0)
        return;
    get->in_flight = 0;
    int refused = store_message_refused((uint16_t)(asked + 1), message, body, body_size);
    if (refused == YOLK_OK)
        store_holds_acknowledge(get->holds, &get->stamp);
    if (asked == WIRE_REPLICA_BAD)
        return; /* the master looked by itself; nothing depends on what it found */
    if (asked == WIRE_RENEW) {
        if (refused == YOLK_OK)
            renew_reply(get, now_ns, body, body_size);
    } else if (get->ahead.state == AHEAD_ASKED) {
        if (refused == YOLK_OK)
            store_get_ahead_answered(get, body, body_size);
        else
            store_get_ahead_drop(
                get); /* asked again when its turn comes, which tells what is wrong */
    } else if (refused != YOLK_OK) {
        fail_window(get, now_ns, refused, store_status_is_session(refused));
    } else {
        store_get_started(get, now_ns, body, body_size);
    }
}

void store_get_link_lost(struct store_get *get, uint64_t now_ns)
{
    uint16_t asked = get->in_flight;
    get->in_flight = 0;
    /* The next query has a new op: whatever guard the lost one took ends with the old op. */
    if (asked != WIRE_GET_START)
        return;
    if (get->ahead.state == AHEAD_ASKED)
        store_get_ahead_drop(get);
    else
        fail_window(get, now_ns, YOLK_ERR_LINK, 1);
}

/* The value is in the caller's memory: was the guard still good? */
static void landed(struct store_get *get, uint64_t now_ns, uint32_t index, uint32_t medium)
{
    struct item *state = &get->states[index];

    if (now_ns < get->expires_ns || mutated(MUT_SKIP_GUARD_CHECK)) {
        get->items[index].medium = medium;
        finish_item(get, index, (int64_t)state->size);
    } else if (!state->refetched && now_ns < get->deadline_ns) {
        state->refetched = 1;
        state->failure = YOLK_ERR_LEASE_EXPIRED;
        requery_item(get, index);
    } else {
        finish_item(get, index, YOLK_ERR_LEASE_EXPIRED);
    }
}

/* A disk replica that is of no use to anybody goes from the master's books, so that the key can be
 * put again. STALE alone may only mean that its owner mounted anew a moment ago. */
static void note_bad(struct store_get *get, const struct transfer *transfer, int status)
{
    struct item *state = &get->states[transfer->item];
    const struct store_replica *replica = &get->replicas[transfer->replica];
    int bad = status == YOLK_ERR_CORRUPT || status == YOLK_ERR_IO || status == YOLK_ERR_EOF ||
              (status == YOLK_ERR_STALE && state->unknown);
    if (replica->medium == WIRE_MEDIUM_MEMORY)
        return;
    state->unknown |= status == YOLK_ERR_STALE;
    if (!bad || get->bad_count == get->tuning.window_keys)
        return;
    if (get->bad_count == get->bad_room) {
        size_t room = get->bad_room == 0 ? 16 : get->bad_room * 2;
        uint32_t *items = base_realloc(get->bad_items, room * sizeof(*items));
        if (items != NULL)
            get->bad_items = items;
        struct store_replica *replicas = base_realloc(get->bad_replicas, room * sizeof(*replicas));
        if (replicas != NULL)
            get->bad_replicas = replicas;
        if (items == NULL || replicas == NULL)
            return; /* untold until it is met again */
        get->bad_room = room;
    }
    get->bad_items[get->bad_count] = transfer->item;
    get->bad_replicas[get->bad_count++] = *replica;
}

void store_get_transferred(struct store_get *get, uint64_t now_ns, uint64_t cookie,
                           enum yolk_status status)
{
    if (get->phase != PHASE_MOVE || cookie >= get->transfer_next)
        return;
    struct transfer *transfer = &get->transfers[cookie];
    if (transfer->over)
        return;
    transfer->over = 1;
    get->flying--;
    uint32_t index = transfer->item;
    if (status == YOLK_OK) {
        landed(get, now_ns, index, get->replicas[transfer->replica].medium);
    } else {
        get->states[index].failure = status;
        note_bad(get, transfer, status);
        if (status == YOLK_ERR_ACCESS)
            store_holds_refused(get->holds, get->session);
        /* With the memory not quiet no other replica may be read into it. */
        if (status == YOLK_ERR_STUCK || now_ns >= get->deadline_ns)
            finish_item(get, index, status);
        else
            read_next_replica(get, now_ns, index);
    }
    if (get->flying == 0)
        end_window(get);
}
