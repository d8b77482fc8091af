/* SPDX-License-Identifier: Apache-2.0 */
/* While a window's reads are under way the master is asked about the next one, whose answer is kept
 * until its turn comes. */
#include "base/alloc.h"
#include "base/limits.h"
#include "store/get_state.h"

void store_get_ahead_drop(struct store_get *get)
{
    if (get->ahead.op != 0)
        store_holds_finish(get->holds, get->ahead.op);
    get->ahead.op = 0;
    get->ahead.state = AHEAD_GIVEN_UP;
}

int store_get_ahead_ask(struct store_get *get, uint64_t now_ns, struct store_action *action)
{
    struct ahead *ahead = &get->ahead;
    if (get->in_flight || ahead->state != AHEAD_NONE || now_ns < get->resend_ns ||
        now_ns >= get->deadline_ns)
        return 0;
    if (!store_get_find_pending(get))
        return 0;
    if (ahead->window == NULL)
        ahead->window = base_calloc(store_get_window_room(get), sizeof(*ahead->window));
    if (ahead->window == NULL)
        return 0;
    ahead->count = store_get_pick(get, ahead->window);
    ahead->op = store_holds_begin(get->holds);
    store_holds_stamp(get->holds, &get->stamp);
    if (ahead->op == 0 || get->stamp.session == 0) {
        store_get_ahead_drop(get);
        return 0;
    }
    if (store_message_get_start(&get->message, &get->stamp, ahead->op, get->items, ahead->window,
                                ahead->count, 0) != YOLK_OK) {
        store_get_ahead_drop(get);
        return 0;
    }
    ahead->epoch = get->stamp.epoch;
    ahead->session = get->stamp.session;
    ahead->sent_ns = now_ns;
    ahead->state = AHEAD_ASKED;
    store_get_send(get, now_ns, WIRE_GET_START, action);
    action->op = ahead->op;
    return 1;
}

void store_get_ahead_answered(struct store_get *get, const uint8_t *body, size_t size)
{
    base_buf_clear(&get->ahead.reply);
    if (base_buf_append(&get->ahead.reply, body, size) == YOLK_OK)
        get->ahead.state = AHEAD_ANSWERED;
    else
        store_get_ahead_drop(get);
}

/* Of the guard's time: after that one would have to renew it at once. */
static uint64_t half_ns(uint64_t ttl_ms)
{
    return ttl_ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : ttl_ms * NS_PER_MS / 2;
}

void store_get_ahead_take(struct store_get *get, uint64_t now_ns)
{
    struct ahead *ahead = &get->ahead;
    struct store_grants grants;
    uint32_t *window = get->window;
    if (now_ns >= get->deadline_ns ||
        store_message_grants(WIRE_GET_START_REPLY, ahead->reply.data, ahead->reply.size, &grants) !=
            YOLK_OK ||
        now_ns - ahead->sent_ns >= half_ns(grants.guard_ttl_ms)) {
        store_get_ahead_drop(get);
        return;
    }
    get->window = ahead->window;
    get->window_count = ahead->count;
    get->op = ahead->op;
    get->epoch = ahead->epoch;
    get->session = ahead->session;
    get->sent_ns = ahead->sent_ns;
    ahead->window = window;
    ahead->state = AHEAD_NONE;
    ahead->op = 0;
    store_get_started(get, now_ns, ahead->reply.data, ahead->reply.size);
}
