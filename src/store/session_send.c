/* SPDX-License-Identifier: Apache-2.0 */
/* What a session says to the master. */
#include "store/session_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

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
    open.tenant = wire_view_text(session->options.tenant);
    open.held = wire_view_buf(&session->message.extra);
    send_step(session, now_ns, WIRE_SESSION_OPEN, &open);
}

/* 0 without memory. */
static int describe_memory(struct store_session *session, struct wire_segment_mount *mount)
{
    const struct store_mirror *mirror = session->options.mirror;
    for (size_t i = 0; i < store_mirror_session_count(mirror); i++)
        if (wire_u64s_append(&session->message.extra, store_mirror_session(mirror, i)) != YOLK_OK)
            return 0;
    mount->medium = WIRE_MEDIUM_MEMORY;
    mount->size = session->options.segment_size;
    mount->endpoints = wire_view_text(session->options.endpoints);
    memcpy(mount->ticket_key, session->options.ticket_key, sizeof(mount->ticket_key));
    mount->old_sessions = wire_view_buf(&session->message.extra);
    mount->mirror_count = store_mirror_count(mirror);
    return 1;
}

static int describe_file(const struct store_session *session, struct wire_segment_mount *mount)
{
    const struct store_disk_mount *disk = store_session_file(session);
    mount->medium = session->part == PART_GDS ? WIRE_MEDIUM_GDS : WIRE_MEDIUM_LOCAL_DISK;
    mount->storage_generation = disk->storage_generation;
    memcpy(mount->storage_id, disk->storage_id, sizeof(mount->storage_id));
    mount->size = disk->size;
    mount->endpoints = wire_view_text(disk->endpoints);
    mount->mirror_count = disk->count(disk->self);
    /* Puts of before may commit until it is mounted: there is always something to offer. */
    if (session->part == PART_GDS && mount->mirror_count == 0)
        mount->mirror_count = 1;
    return 1;
}

void store_session_send_mount(struct store_session *session, uint64_t now_ns)
{
    struct wire_segment_mount mount;
    struct store_stamp stamp;
    struct session_mount *part = &session->mounts[session->part];
    memset(&mount, 0, sizeof(mount));
    session->state = STATE_MOUNTING;
    if (part->op == 0) {
        part->op = store_holds_begin(session->options.holds);
        part->offers = 0;
    }
    store_session_request(session, &mount.request, &stamp);
    mount.request.op = part->op;
    mount.name = wire_view_text(session->options.name);
    mount.generation = part->segment;
    memcpy(mount.prior_master, part->instance, sizeof(mount.prior_master));
    if (!(session->part == PART_MEMORY ? describe_memory(session, &mount)
                                       : describe_file(session, &mount))) {
        store_session_idle(session, now_ns);
        return;
    }
    part->offers |= mount.mirror_count > 0; /* the master may have seen an earlier try */
    send_step(session, now_ns, WIRE_SEGMENT_MOUNT, &mount);
}

/* What lies at or behind the cursor, which moves past it; 0 if nothing does. */
static int next_entry(const struct store_session *session, uint64_t *cursor,
                      struct store_disk_offer *out)
{
    const struct store_disk_mount *disk = store_session_file(session);
    struct store_mirror_entry entry;
    if (session->part != PART_MEMORY)
        return disk->next(disk->self, cursor, out);
    if (!store_mirror_next(session->options.mirror, cursor, &entry))
        return 0;
    out->offset = entry.offset;
    out->size = entry.size;
    out->checksum = 0;
    out->key_size = entry.key_size;
    out->pinned = entry.pinned;
    memcpy(out->key, entry.key, entry.key_size);
    return 1;
}

/* Notes the entries of one offer, from the cursor on. Keys are copied: a disk's may go any time. */
static void gather_offer(struct store_session *session)
{
    struct store_disk_offer entry = {.pinned = 0}; /* a disk does not say */
    uint64_t cursor = session->offer_cursor;

    session->offered_count = 0;
    base_buf_clear(&session->pinned);
    base_buf_clear(&session->key_bytes);
    while (session->offered_count < OFFER_KEYS_MAX) {
        uint64_t next = cursor;
        uint32_t count = session->offered_count;
        if (!next_entry(session, &next, &entry))
            break;
        if (count > 0 && session->key_bytes.size + entry.key_size > OFFER_KEY_BYTES_MAX)
            break;
        struct wire_offer offer = {entry.offset, entry.size, entry.checksum};
        if (base_buf_append(&session->key_bytes, entry.key, entry.key_size) != YOLK_OK ||
            (entry.pinned && wire_u32s_append(&session->pinned, count) != YOLK_OK) ||
            wire_offer_append(&session->message.extra, &offer) != YOLK_OK)
            break;
        session->offered[count] = entry.offset;
        session->key_ends[count] = (uint32_t)session->key_bytes.size;
        session->offered_count++;
        cursor = next;
    }
    session->offer_cursor = cursor;
    session->offer_last = !next_entry(session, &cursor, &entry);
}

static struct wire_view offered_key(void *arg, uint32_t i)
{
    const struct store_session *session = arg;
    uint32_t from = i == 0 ? 0 : session->key_ends[i - 1];
    return wire_view_of(session->key_bytes.data + from, session->key_ends[i] - from);
}

void store_session_send_offer(struct store_session *session, uint64_t now_ns)
{
    struct wire_mirror_offer offer;
    struct store_stamp stamp;
    memset(&offer, 0, sizeof(offer));
    session->state = STATE_OFFERING;
    store_session_request(session, &offer.request, &stamp);
    gather_offer(session);
    /* Without memory for one entry nothing would ever move on. */
    if ((session->offered_count == 0 && !session->offer_last) ||
        wire_keys_build_by(&session->message.keys, session->offered_count, offered_key, session) !=
            YOLK_OK) {
        store_session_idle(session, now_ns);
        return;
    }
    offer.segment = session->mounts[session->part].segment;
    offer.keys = wire_view_buf(&session->message.keys);
    offer.recs = wire_view_buf(&session->message.extra);
    offer.pinned = wire_view_buf(&session->pinned);
    offer.last = (uint32_t)session->offer_last;
    send_step(session, now_ns, WIRE_MIRROR_OFFER, &offer);
}

void store_session_send_wishes(struct store_session *session)
{
    struct store_stamp stamp;
    /* The memory first; its answer lets the others follow. */
    enum session_part part = PART_MEMORY;
    while (part < PARTS && session->mounts[part].segment == 0)
        part++;
    if (session->wants_unmount && session->unmount_id == 0 && part < PARTS) {
        struct wire_segment_unmount unmount;
        session->unmounting = part;
        store_session_request(session, &unmount.request, &stamp);
        unmount.segment = session->mounts[part].segment;
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
