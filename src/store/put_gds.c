/* SPDX-License-Identifier: Apache-2.0 */
/* What a put has in this client's GDS file: reservations of its window, room for them, commits. */
#include "base/error.h"
#include "store/put_state.h"

/* ---- room ---- */

int store_put_ask_room(struct store_put *put)
{
    const struct store_reserver *gds = put->how.gds;
    put->room_segment = gds->segment(gds->self);
    struct wire_gds_room room = {
        .request = store_message_request(&put->stamp, 0),
        .segment = put->room_segment,
        .size = put->room_wanted,
    };
    base_buf_clear(&put->message.body);
    return wire_encode(WIRE_GDS_ROOM, &room, &put->message.body);
}

void store_put_room_reply(struct store_put *put, const uint8_t *body, size_t size)
{
    struct wire_gds_room_reply reply;
    if (wire_decode(WIRE_GDS_ROOM_REPLY, body, size, &reply) == YOLK_OK)
        put->room_refused = reply.status == YOLK_ERR_NO_SPACE;
    else
        base_error_clear();
}

/* ---- reserving ---- */

/* 1: it goes on without a place in the file. */
static int may_do_without(struct store_put *put, uint32_t index, uint64_t now_ns, int status)
{
    struct item *state = &put->states[index];
    int may_wait =
        status == YOLK_ERR_NO_SPACE && !put->room_refused && now_ns < put->space_deadline_ns;
    if (!put->how.gds_optional || may_wait)
        return 0;
    state->memory_only = 1;
    base_error_clear();
    return 1;
}

/* 1: it stays in the window. */
static int reserve(struct store_put *put, uint32_t index, uint64_t now_ns)
{
    const struct store_reserver *gds = put->how.gds;
    struct store_item *item = &put->items[index];
    struct item *state = &put->states[index];
    struct store_reservation *made = NULL;
    item->gds = NULL;
    if (item->size == 0 || state->memory_only)
        return 1;
    int status = gds->reserve(gds->self, item->key, item->key_size, item->size, &made);
    if (status == YOLK_OK) {
        state->reservation = made;
        state->outcome = STORE_OUTCOME_UNKNOWN;
        item->gds = &made->gds;
        return 1;
    }
    if (may_do_without(put, index, now_ns, status))
        return 1;
    if (status != YOLK_ERR_NO_SPACE) {
        store_put_finish_item(put, index, status);
        return 0;
    }
    if (item->size > put->room_wanted)
        put->room_wanted = item->size;
    store_put_retry_item(put, index, now_ns, status, 0);
    return 0;
}

void store_put_reserve(struct store_put *put, uint64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < put->window_count; i++)
        if (reserve(put, put->window[i], now_ns))
            put->window[kept++] = put->window[i];
    put->window_count = kept;
}

int store_put_has_reservations(const struct store_put *put)
{
    for (size_t i = 0; i < put->window_count; i++)
        if (put->states[put->window[i]].reservation != NULL)
            return 1;
    return 0;
}

int store_put_is_current(const struct store_put *put)
{
    const struct store_reserver *gds = put->how.gds;
    for (size_t i = 0; i < put->window_count; i++) {
        const struct store_reservation *reservation = put->states[put->window[i]].reservation;
        if (reservation != NULL && !gds->is_current(gds->self, reservation))
            return 0;
    }
    return 1;
}

/* ---- closing ---- */

static struct store_reservation *take(struct store_put *put, uint32_t index)
{
    struct store_reservation *reservation = put->states[index].reservation;
    put->states[index].reservation = NULL;
    put->items[index].gds = NULL;
    return reservation;
}

void store_put_abort(struct store_put *put, uint32_t index)
{
    const struct store_reserver *gds = put->how.gds;
    struct store_reservation *reservation = take(put, index);
    if (reservation != NULL)
        gds->abort(gds->self, reservation);
}

void store_put_preserve(struct store_put *put, uint32_t index)
{
    const struct store_reserver *gds = put->how.gds;
    const struct item *state = &put->states[index];
    struct store_reservation *reservation = take(put, index);
    if (reservation == NULL)
        return;
    enum store_outcome outcome =
        state->file_stuck ? STORE_OUTCOME_STUCK : (enum store_outcome)state->outcome;
    put->unknown |= outcome == STORE_OUTCOME_UNKNOWN;
    gds->preserve(gds->self, reservation, put->op, outcome);
}

int store_put_commit(struct store_put *put, uint64_t now_ns, struct store_action *action)
{
    size_t count = 0;
    for (size_t i = 0; i < put->window_count; i++) {
        const struct item *state = &put->states[put->window[i]];
        if (state->state == ITEM_LANDED && state->reservation != NULL)
            put->commits[count++] = state->reservation;
    }
    if (count == 0)
        return 0;
    action->kind = STORE_COMMIT;
    action->commits = put->commits;
    action->commit_count = count;
    /* As an END it is tried once even past the deadline. */
    action->deadline_ns = now_ns + put->tuning.reply_timeout_ns;
    if (action->deadline_ns < put->deadline_ns)
        action->deadline_ns = put->deadline_ns;
    return 1;
}

void store_put_judge_commits(struct store_put *put)
{
    const struct store_reserver *gds = put->how.gds;
    for (size_t i = 0; i < put->window_count; i++) {
        uint32_t index = put->window[i];
        struct item *state = &put->states[index];
        if (state->state != ITEM_LANDED || state->reservation == NULL)
            continue;
        if (state->reservation->committed) {
            gds->commit(gds->self, take(put, index));
        } else {
            state->state = ITEM_FAILED;
            state->failure = YOLK_ERR_IO;
        }
    }
}
