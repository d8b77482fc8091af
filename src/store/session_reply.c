/* SPDX-License-Identifier: Apache-2.0 */
/* What the master answers to a session. */
#include "store/session_state.h"

#include <string.h>

static void open_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                       size_t size)
{
    struct wire_session_open_reply reply;
    if (wire_decode(WIRE_SESSION_OPEN_REPLY, body, size, &reply) != YOLK_OK) {
        store_session_refuse(session, now_ns, YOLK_ERR_PROTOCOL,
                             wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK || reply.session == 0) {
        store_session_refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    session->session = reply.session;
    memcpy(session->instance, session->peer_instance, 16);
    session->has_instance = 1;
    if (reply.heartbeat_ms != 0)
        session->heartbeat_interval_ns = reply.heartbeat_ms * NS_PER_MS;
    session->heartbeat_ns = now_ns + session->heartbeat_interval_ns;
    session->part = store_session_part(session, PART_MEMORY);
    if (session->part == PARTS || session->wants_unmount)
        store_session_stands(session, now_ns);
    else if (store_session_part(session, PART_DISK) != PART_DISK)
        store_session_send_mount(session, now_ns);
    else if (store_session_queue(session, STORE_SESSION_QUIET) != NULL)
        session->state = STATE_QUIETING;
    else
        store_session_idle(session, now_ns); /* as for MOUNTED */
}

/* Offers the parts from session->part on; at the end the session stands. A part whose last entry
 * went since it was mounted is offered too: the master waits for that. */
static void offer_parts(struct store_session *session, uint64_t now_ns)
{
    session->offer_cursor = 0;
    while (session->part < PARTS && !session->mounts[session->part].offers)
        session->part++;
    if (session->part < PARTS)
        store_session_send_offer(session, now_ns);
    else
        store_session_stands(session, now_ns);
}

/* What the master knows of the others it knows still, where one part came later than they. */
static void offer_next_part(struct store_session *session, uint64_t now_ns)
{
    session->part = session->standing ? PARTS : session->part + 1;
    offer_parts(session, now_ns);
}

static void mount_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                        size_t size)
{
    struct wire_segment_mount_reply reply;
    if (wire_decode(WIRE_SEGMENT_MOUNT_REPLY, body, size, &reply) != YOLK_OK) {
        store_session_refuse(session, now_ns, YOLK_ERR_PROTOCOL,
                             wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK || reply.segment == 0) {
        store_session_refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    static const enum store_session_output_kind kinds[PARTS] = {
        STORE_SESSION_MOUNTED, STORE_SESSION_DISK_MOUNTED, STORE_SESSION_GDS_MOUNTED};
    struct session_mount *mount = &session->mounts[session->part];
    struct store_session_output *output = store_session_queue(session, kinds[session->part]);
    if (output == NULL) { /* the driver must hear of it: mounted again later, and told then */
        store_session_idle(session, now_ns);
        return;
    }
    output->segment = reply.segment;
    store_holds_finish(session->options.holds, mount->op);
    mount->op = 0;
    memcpy(mount->instance, session->instance, 16);
    mount->segment = reply.segment;
    if (session->part == PART_MEMORY)
        store_mirror_mounted(session->options.mirror);
    enum session_part next = store_session_part(session, session->part + 1);
    if (next < PARTS && !session->standing) {
        session->part = next;
        store_session_send_mount(session, now_ns);
        return;
    }
    /* A disk that came later: what lies in memory the master knows. */
    if (!session->standing)
        session->part = PART_MEMORY;
    else if (!mount->offers)
        session->part = PARTS;
    offer_parts(session, now_ns);
}

/* Removes what the master did not take: its space may be given to others from now on. What cannot
 * be removed now (NO_MEMORY) has to be offered, and refused, again. */
static int drop_rejected(struct store_session *session, struct wire_view rejected)
{
    const struct store_disk_mount *disk = store_session_file(session);
    int status = YOLK_OK;
    for (uint32_t i = 0; i < wire_u32s_count(rejected); i++) {
        uint32_t index = wire_u32s_at(rejected, i);
        if (index >= session->offered_count)
            continue;
        if (session->part == PART_MEMORY)
            store_mirror_free(session->options.mirror, session->offered[index]);
        else
            status = disk->reject(disk->self, session->offered[index]);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

static void offer_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                        size_t size)
{
    struct wire_mirror_offer_reply reply;
    if (wire_decode(WIRE_MIRROR_OFFER_REPLY, body, size, &reply) != YOLK_OK) {
        store_session_refuse(session, now_ns, YOLK_ERR_PROTOCOL,
                             wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK) {
        store_session_refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    int status = drop_rejected(session, reply.rejected);
    if (status != YOLK_OK) {
        store_session_refuse(session, now_ns, status,
                             wire_view_text("what the master refused cannot be removed"));
    } else if (!session->offer_last) {
        store_session_send_offer(session, now_ns);
    } else {
        offer_next_part(session, now_ns);
    }
}

void store_session_heartbeat_reply(struct store_session *session, uint64_t now_ns,
                                   const uint8_t *body, size_t size)
{
    struct wire_status_reply reply;
    int resuming = session->state == STATE_RESUMING;
    session->heartbeat_id = 0;
    if (resuming)
        session->awaited = 0;
    if (wire_decode(WIRE_HEARTBEAT_REPLY, body, size, &reply) != YOLK_OK) {
        store_session_idle(session, now_ns);
    } else if (reply.status == YOLK_OK) {
        store_holds_acknowledge(session->options.holds, &session->heartbeat_stamp);
        session->heartbeat_floor = session->heartbeat_stamp.floor;
        if (resuming)
            store_session_stands(session, now_ns);
    } else if (store_status_is_session(reply.status)) {
        store_session_expire(session, now_ns);
    } else {
        store_session_refuse(session, now_ns, reply.status, reply.text);
    }
}

void store_session_awaited_reply(struct store_session *session, uint64_t now_ns, uint16_t message,
                                 const uint8_t *body, size_t size)
{
    session->awaited = 0;
    if (message == WIRE_ERROR) {
        struct wire_status_reply reply;
        if (wire_decode(WIRE_ERROR, body, size, &reply) == YOLK_OK)
            store_session_refuse(session, now_ns, reply.status, reply.text);
        else
            store_session_idle(session, now_ns);
    } else if (session->state == STATE_OPENING && message == WIRE_SESSION_OPEN_REPLY) {
        open_reply(session, now_ns, body, size);
    } else if (session->state == STATE_MOUNTING && message == WIRE_SEGMENT_MOUNT_REPLY) {
        mount_reply(session, now_ns, body, size);
    } else if (session->state == STATE_OFFERING && message == WIRE_MIRROR_OFFER_REPLY) {
        offer_reply(session, now_ns, body, size);
    } else {
        store_session_idle(session, now_ns);
    }
}

void store_session_unmount_reply(struct store_session *session, uint16_t message,
                                 const uint8_t *body, size_t size)
{
    struct wire_status_reply reply;
    int status = YOLK_ERR_PROTOCOL;
    /* No other kind may be decoded: it has more than there is room for here. */
    if ((message == WIRE_SEGMENT_UNMOUNT_REPLY || message == WIRE_ERROR) &&
        wire_decode(message, body, size, &reply) == YOLK_OK)
        status = reply.status;
    session->unmount_id = 0;
    if (status == YOLK_OK || status == YOLK_ERR_NOT_FOUND || status == YOLK_ERR_STALE) {
        session->mounts[session->unmounting].segment = 0;
        session->options.segment_size = 0; /* not mounted again by a later session */
        session->options.gds = NULL;
        if (session->unmounting == PART_MEMORY)
            store_mirror_clear(session->options.mirror);
        for (enum session_part part = PART_MEMORY; part < PARTS; part++)
            if (session->mounts[part].segment != 0)
                return; /* that one is next */
    }
    session->wants_unmount = 0;
    struct store_session_output *output = store_session_queue(session, STORE_SESSION_UNMOUNTED);
    if (output != NULL)
        output->status = status;
}
