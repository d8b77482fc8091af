/* SPDX-License-Identifier: Apache-2.0 */
/* What the master answers to a put's START: each key's places, or why it has none. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "store/put_state.h"

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
    transfer->medium = place.medium;
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
    int gds = 0;
    for (uint32_t i = 0; i < granted->replica_count && size > 0; i++) {
        uint32_t at = granted->first + i;
        struct wire_replica place = wire_replica_at(grants->replicas, at);
        int status =
            store_holds_extent(put->holds, put->op, put->epoch, place.segment, place.offset, size);
        if (place.medium == WIRE_MEDIUM_GDS && /* one, where it was asked for */
            (gds++ > 0 || state->reservation == NULL ||
             place.offset != state->reservation->gds.value_offset))
            status = YOLK_ERR_PROTOCOL;
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
    if (size > 0 && (granted->replica_count == 0 || !gds != (state->reservation == NULL)))
        state->failure = YOLK_ERR_PROTOCOL;
    if (state->flying == 0)
        state->state = state->failure == YOLK_OK ? ITEM_LANDED : ITEM_FAILED;
}

/* The master says what is wrong with a descriptor. */
static void refuse_item(struct store_put *put, const struct store_grants *grants, uint32_t place,
                        uint32_t index, int status)
{
    struct wire_keys why;
    struct wire_view text = {NULL, 0};
    char copy[256];
    uint32_t at = 0;
    if (wire_keys_open(grants->why, WIRE_KEYS_MAX, &why) == YOLK_OK)
        while (wire_keys_next(&why, &text) && at++ != place)
            text = (struct wire_view){NULL, 0};
    wire_view_copy_text(text, copy, sizeof(copy));
    if (copy[0] != '\0')
        (void)base_fail(status, 0, "%s", copy);
    store_put_finish_item(put, index, status < 0 ? status : (int)YOLK_ERR_PROTOCOL);
}

void store_put_started(struct store_put *put, uint64_t now_ns, const uint8_t *body, size_t size)
{
    struct store_grants grants;
    int status = store_message_grants(WIRE_PUT_START_REPLY, body, size, &grants);

    if (status == YOLK_OK && grants.count != put->window_count)
        status = YOLK_ERR_PROTOCOL;
    if (status != YOLK_OK) {
        store_put_fail_window(put, now_ns, status, store_status_is_session(status));
        return;
    }
    put->transfer_count = 0;
    put->transfer_next = 0;
    store_put_enter(put, PHASE_MOVE);
    int progress = 0;
    for (size_t i = 0; i < put->window_count; i++) {
        uint32_t index = put->window[i];
        struct wire_result granted = wire_result_at(grants.results, (uint32_t)i);
        if (granted.status == YOLK_OK) {
            grant(put, &grants, index, &granted);
            progress = 1;
            continue;
        }
        store_put_abort(put, index);
        if (granted.status == YOLK_ERR_EXISTS)
            store_put_finish_item(put, index, (int64_t)put->items[index].size);
        else if (store_put_is_for_space(granted.status))
            store_put_retry_item(put, index, now_ns, granted.status, 1);
        else
            refuse_item(put, &grants, (uint32_t)i, index, granted.status);
    }
    if (progress)
        put->backoff_ns = put->tuning.backoff_first_ns;
    put->flying = put->transfer_count;
    if (put->flying == 0)
        store_put_settle(put, now_ns);
}
