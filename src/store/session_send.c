/* SPDX-License-Identifier: Apache-2.0 */
/* What a session says to the master. */
#include "store/session_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

/* Keys of one MIRROR_OFFER. */
enum { OFFER_KEYS_MAX = 1024, OFFER_KEY_BYTES_MAX = 512 * 1024 };

void store_session_await(struct store_session *session, uint64_t now_ns, uint64_t id)
{
    session->awaited = id;
    session->awaited_until_ns = now_ns + session->options.reply_timeout_ns;
}

void store_session_request(struct store_session *session, struct wire_request *request,
                           struct store_stamp *stamp)
{
    store_holds_stamp(session->options.holds, stamp);
    stamp->session = session->session; /* holds may show none while it is being opened */
    *request = store_message_request(stamp, 0);
    base_buf_clear(&session->message.body);
    base_buf_clear(&session->message.keys);
    base_buf_clear(&session->message.extra);
}

static void send_step(struct store_session *session, uint64_t now_ns, uint16_t kind,
                      const void *message)
{
    int status = wire_encode(kind, message, &session->message.body);
    uint64_t id = session->next_request++;
    if (status != YOLK_OK || !store_session_queue_send(session, kind, id)) {
        session->refusal = status != YOLK_OK ? status : (int)YOLK_ERR_NO_MEMORY;
        store_session_idle(session, now_ns);
        return;
    }
    store_session_await(session, now_ns, id);
}

void store_session_send_heartbeat(struct store_session *session, uint64_t now_ns)
{
    struct wire_plain_request beat;
    store_session_request(session, &beat.request, &session->heartbeat_stamp);
    uint64_t id = session->next_request++;
    if (wire_encode(WIRE_HEARTBEAT, &beat, &session->message.body) != YOLK_OK ||
        !store_session_queue_send(session, WIRE_HEARTBEAT, id))
        id = 0;
    session->heartbeat_id = id;
    session->heartbeat_until_ns = now_ns + session->options.reply_timeout_ns;
    session->heartbeat_ns = now_ns + session->heartbeat_interval_ns;
}

void store_session_send_open(struct store_session *session, uint64_t now_ns)
{
    struct wire_session_open open;
    struct store_stamp stamp;
    memset(&open, 0, sizeof(open));
    session->state = STATE_OPENING;
    session->standing = 0;
    /* From here on nothing is begun under the old grants: they are what this message reports. */
    store_holds_set_session(session->options.holds, 0);
    store_session_request(session, &open.request, &stamp);
    if (store_holds_report(session->options.holds, &session->message.extra) != YOLK_OK) {
        store_session_idle(session, now_ns);
        return;
    }
    memcpy(open.client_id, session->options.client_id, sizeof(open.client_id));
    open.generation = session->generation;
    open.request.op = 1; /* any constant: with the generation it marks a repeated message */
    open.name = wire_view_text(session->options.name);
    open.held = wire_view_buf(&session->message.extra);
    send_step(session, now_ns, WIRE_SESSION_OPEN, &open);
}

void store_session_send_mount(struct store_session *session, uint64_t now_ns)
{
    struct wire_segment_mount mount;
    struct store_stamp stamp;
    const struct store_mirror *mirror = session->options.mirror;
    memset(&mount, 0, sizeof(mount));
    session->state = STATE_MOUNTING;
    if (session->mount_op == 0)
        session->mount_op = store_holds_begin(session->options.holds);
    store_session_request(session, &mount.request, &stamp);
    mount.request.op = session->mount_op;
    for (size_t i = 0; i < store_mirror_session_count(mirror); i++) {
        if (wire_u64s_append(&session->message.extra, store_mirror_session(mirror, i)) != YOLK_OK) {
            store_session_idle(session, now_ns);
            return;
        }
    }
    mount.name = wire_view_text(session->options.name);
    mount.size = session->options.segment_size;
    mount.generation = session->segment;
    mount.endpoints = wire_view_text(session->options.endpoints);
    memcpy(mount.ticket_key, session->options.ticket_key, sizeof(mount.ticket_key));
    memcpy(mount.prior_master, session->mount_instance, sizeof(mount.prior_master));
    mount.old_sessions = wire_view_buf(&session->message.extra);
    mount.mirror_count = store_mirror_count(mirror);
    send_step(session, now_ns, WIRE_SEGMENT_MOUNT, &mount);
}

/* Entries of one offer, from the cursor; the number of them. */
static uint32_t gather_offer(struct store_session *session, struct wire_view *keys)
{
    struct store_mirror_entry entry;
    uint64_t cursor = session->offer_from;
    uint32_t count = 0;
    size_t bytes = 0;

    while (count < OFFER_KEYS_MAX) {
        uint64_t next = cursor;
        if (!store_mirror_next(session->options.mirror, &next, &entry))
            break;
        if (count > 0 && bytes + entry.key_size > OFFER_KEY_BYTES_MAX)
            break;
        struct wire_offer offer = {.offset = entry.offset, .size = entry.size};
        if (wire_offer_append(&session->message.extra, &offer) != YOLK_OK)
            break;
        keys[count++] = wire_view_of(entry.key, entry.key_size);
        bytes += entry.key_size;
        cursor = next;
    }
    session->offer_cursor = cursor;
    return count;
}

void store_session_send_offer(struct store_session *session, uint64_t now_ns)
{
    struct wire_mirror_offer offer;
    struct store_stamp stamp;
    struct store_mirror_entry entry;
    struct wire_view *keys = base_calloc(OFFER_KEYS_MAX, sizeof(*keys));
    memset(&offer, 0, sizeof(offer));
    session->state = STATE_OFFERING;
    store_session_request(session, &offer.request, &stamp);
    if (keys == NULL) {
        store_session_idle(session, now_ns);
        return;
    }
    uint32_t count = gather_offer(session, keys);
    int status = wire_keys_build(&session->message.keys, keys, count);
    free(keys);
    if (status != YOLK_OK) {
        store_session_idle(session, now_ns);
        return;
    }
    uint64_t next = session->offer_cursor;
    session->offer_last = !store_mirror_next(session->options.mirror, &next, &entry);
    offer.segment = session->segment;
    offer.keys = wire_view_buf(&session->message.keys);
    offer.recs = wire_view_buf(&session->message.extra);
    offer.last = (uint32_t)session->offer_last;
    send_step(session, now_ns, WIRE_MIRROR_OFFER, &offer);
}

void store_session_send_wishes(struct store_session *session)
{
    struct store_stamp stamp;
    if (session->wants_unmount && session->unmount_id == 0 && session->segment != 0) {
        struct wire_segment_unmount unmount;
        store_session_request(session, &unmount.request, &stamp);
        unmount.segment = session->segment;
        unmount.grace_ms = session->grace_ms;
        uint64_t id = session->next_request++;
        if (wire_encode(WIRE_SEGMENT_UNMOUNT, &unmount, &session->message.body) == YOLK_OK &&
            store_session_queue_send(session, WIRE_SEGMENT_UNMOUNT, id))
            session->unmount_id = id;
    }
    if (session->wants_close && session->close_id == 0) {
        struct wire_plain_request end;
        store_session_request(session, &end.request, &stamp);
        uint64_t id = session->next_request++;
        if (wire_encode(WIRE_SESSION_CLOSE, &end, &session->message.body) == YOLK_OK &&
            store_session_queue_send(session, WIRE_SESSION_CLOSE, id))
            session->close_id = id;
    }
}
