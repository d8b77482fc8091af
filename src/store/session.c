/* SPDX-License-Identifier: Apache-2.0 */
#include "store/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "store/message.h"

enum state {
    STATE_IDLE = 0,   /* → CONNECTING when the back-off is over */
    STATE_CONNECTING, /* → RESUMING, OPENING, IDLE */
    STATE_RESUMING, /* HEARTBEAT of the old session is unanswered → OPEN, MOUNTING, EXPIRED, IDLE */
    STATE_EXPIRED,  /* the driver makes the old session's writers quiet → OPENING, IDLE */
    STATE_OPENING,  /* SESSION_OPEN unanswered or to be sent → MOUNTING, OPEN, IDLE */
    STATE_MOUNTING, /* SEGMENT_MOUNT → OFFERING, IDLE */
    STATE_OFFERING, /* MIRROR_OFFERs → OPEN, IDLE */
    STATE_OPEN,     /* → IDLE, EXPIRED, CLOSED */
    STATE_CLOSED,
};

/* An event or frame waiting to be given out. */
struct pending {
    struct store_session_output output;
    uint8_t *body; /* owned */
    struct pending *next;
};

struct store_session {
    struct store_session_options options;
    struct store_message message;
    enum state state;
    struct pending *first;
    struct pending *last;
    struct pending *given; /* its body is lent to the caller until the next call */

    uint64_t backoff_ns;
    uint64_t renew_ns; /* not before this is the session begun anew because it is of no use */
    uint64_t retry_ns; /* IDLE: when to connect; OPENING …: when to send again */
    uint64_t random;

    uint64_t session;     /* 0: none */
    uint64_t segment;     /* 0: not mounted */
    uint64_t generation;  /* of the client id: greater for each session begun, the same when one is
                           * opened again (after a lost answer, or at another master) */
    uint64_t mount_op;    /* names the mount, so that a repeated one is known as such; 0: none */
    uint8_t instance[16]; /* of the master the session is known to */
    int has_instance;
    uint8_t peer_instance[16];  /* of the master at the other end of the link */
    uint8_t mount_instance[16]; /* of the master the segment was last mounted at */
    int linked;
    int standing; /* the session was OPEN, mount and all: a new link only has to resume it */

    uint64_t next_request;
    uint64_t awaited; /* request id of the step in flight, 0: none */
    uint64_t awaited_until_ns;
    uint64_t heartbeat_id; /* unanswered heartbeat, 0: none */
    uint64_t heartbeat_until_ns;
    uint64_t heartbeat_ns; /* when the next one is due */
    struct store_stamp heartbeat_stamp;
    uint64_t unmount_id;
    uint64_t close_id;
    uint64_t heartbeat_interval_ns;
    uint64_t lease_ttl_ms;
    uint64_t offer_cursor; /* of the offer in flight: where the next one begins */
    uint64_t offer_from;
    int offer_last;
    int restarted;
    int wants_unmount;
    int wants_close;
    uint64_t grace_ms;

    int refusal;
    char refusal_text[256];
};

/* Used until the master has said its own. */
enum { HEARTBEAT_DEFAULT_MS = 1000 };
/* Keys of one MIRROR_OFFER. */
enum { OFFER_KEYS_MAX = 1024, OFFER_KEY_BYTES_MAX = 512 * 1024 };

enum yolk_status store_session_create(const struct store_session_options *options,
                                      struct store_session **out)
{
    struct store_session *session = base_calloc(1, sizeof(*session));
    if (session == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a session");
    session->options = *options;
    session->backoff_ns = options->backoff_first_ns;
    session->random = base_mix64(options->seed + 0x9e3779b97f4a7c15u);
    session->heartbeat_interval_ns = HEARTBEAT_DEFAULT_MS * NS_PER_MS;
    session->next_request = 1;
    session->generation = 1;
    store_message_init(&session->message);
    *out = session;
    return YOLK_OK;
}

void store_session_destroy(struct store_session *session)
{
    if (session == NULL)
        return;
    if (session->given != NULL)
        free(session->given->body);
    free(session->given);
    for (struct pending *at = session->first; at != NULL;) {
        struct pending *next = at->next;
        free(at->body);
        free(at);
        at = next;
    }
    store_message_free(&session->message);
    free(session);
}

/* ---- output ---- */

static struct store_session_output *queue(struct store_session *session,
                                          enum store_session_output_kind kind)
{
    struct pending *pending = base_calloc(1, sizeof(*pending));
    if (pending == NULL)
        return NULL;
    pending->output.kind = kind;
    if (session->last == NULL)
        session->first = pending;
    else
        session->last->next = pending;
    session->last = pending;
    return &pending->output;
}

/* Queues message->body; 0 without memory, which acts as a lost frame. */
static int queue_send(struct store_session *session, uint16_t message, uint64_t request_id)
{
    size_t size = session->message.body.size;
    uint8_t *copy = base_malloc(size == 0 ? 1 : size);
    struct store_session_output *output = copy == NULL ? NULL : queue(session, STORE_SESSION_SEND);
    if (output == NULL) {
        free(copy);
        return 0;
    }
    if (size > 0)
        memcpy(copy, session->message.body.data, size);
    session->last->body = copy;
    output->message = message;
    output->request_id = request_id;
    output->body = copy;
    output->body_size = size;
    output->session = session->session;
    return 1;
}

static void drop_sends(struct store_session *session)
{
    struct pending **at = &session->first;
    session->last = NULL;
    while (*at != NULL) {
        struct pending *pending = *at;
        if (pending->output.kind == STORE_SESSION_SEND) {
            *at = pending->next;
            free(pending->body);
            free(pending);
        } else {
            session->last = pending;
            at = &pending->next;
        }
    }
}

static uint64_t jittered(struct store_session *session, uint64_t ns)
{
    session->random = base_mix64(session->random + 0x9e3779b97f4a7c15u);
    return ns / 2 + (ns == 0 ? 0 : session->random % (ns / 2 + 1));
}

static void go_idle(struct store_session *session, uint64_t now_ns)
{
    if (session->state == STATE_CLOSED)
        return;
    if (session->linked)
        (void)queue(session, STORE_SESSION_DISCONNECT);
    session->linked = 0;
    drop_sends(session);
    session->awaited = 0;
    session->heartbeat_id = 0;
    session->unmount_id = 0;
    session->close_id = 0;
    if (session->state != STATE_EXPIRED)
        session->state = STATE_IDLE;
    session->retry_ns = now_ns + jittered(session, session->backoff_ns);
    session->backoff_ns *= 2;
    if (session->backoff_ns > session->options.backoff_max_ns)
        session->backoff_ns = session->options.backoff_max_ns;
}

/* ---- requests ---- */

static void await(struct store_session *session, uint64_t now_ns, uint64_t id)
{
    session->awaited = id;
    session->awaited_until_ns = now_ns + session->options.reply_timeout_ns;
}

static int begin_request(struct store_session *session, struct wire_request *request,
                         struct store_stamp *stamp)
{
    store_holds_stamp(session->options.holds, stamp);
    stamp->session = session->session; /* holds may show none while it is being opened */
    *request = store_message_request(stamp, 0);
    base_buf_clear(&session->message.body);
    base_buf_clear(&session->message.keys);
    base_buf_clear(&session->message.extra);
    return YOLK_OK;
}

static void send_step(struct store_session *session, uint64_t now_ns, uint16_t kind,
                      const void *message)
{
    int status = wire_encode(kind, message, &session->message.body);
    uint64_t id = session->next_request++;
    if (status != YOLK_OK || !queue_send(session, kind, id)) {
        session->refusal = status != YOLK_OK ? status : (int)YOLK_ERR_NO_MEMORY;
        go_idle(session, now_ns);
        return;
    }
    await(session, now_ns, id);
}

static void send_heartbeat(struct store_session *session, uint64_t now_ns)
{
    struct wire_plain_request beat;
    (void)begin_request(session, &beat.request, &session->heartbeat_stamp);
    uint64_t id = session->next_request++;
    if (wire_encode(WIRE_HEARTBEAT, &beat, &session->message.body) != YOLK_OK ||
        !queue_send(session, WIRE_HEARTBEAT, id))
        id = 0;
    session->heartbeat_id = id;
    session->heartbeat_until_ns = now_ns + session->options.reply_timeout_ns;
    session->heartbeat_ns = now_ns + session->heartbeat_interval_ns;
}

static void send_open(struct store_session *session, uint64_t now_ns)
{
    struct wire_session_open open;
    struct store_stamp stamp;
    memset(&open, 0, sizeof(open));
    session->state = STATE_OPENING;
    session->standing = 0;
    /* From here on nothing is begun under the old grants: they are what this message reports. */
    store_holds_set_session(session->options.holds, 0);
    (void)begin_request(session, &open.request, &stamp);
    if (store_holds_report(session->options.holds, &session->message.extra) != YOLK_OK) {
        go_idle(session, now_ns);
        return;
    }
    memcpy(open.client_id, session->options.client_id, sizeof(open.client_id));
    open.generation = session->generation;
    open.request.op = 1; /* any constant: with the generation it marks a repeated message */
    open.name = wire_view_text(session->options.name);
    open.held = wire_view_buf(&session->message.extra);
    send_step(session, now_ns, WIRE_SESSION_OPEN, &open);
}

static void send_mount(struct store_session *session, uint64_t now_ns)
{
    struct wire_segment_mount mount;
    struct store_stamp stamp;
    const struct store_mirror *mirror = session->options.mirror;
    memset(&mount, 0, sizeof(mount));
    session->state = STATE_MOUNTING;
    if (session->mount_op == 0)
        session->mount_op = store_holds_begin(session->options.holds);
    (void)begin_request(session, &mount.request, &stamp);
    mount.request.op = session->mount_op;
    for (size_t i = 0; i < store_mirror_session_count(mirror); i++) {
        if (wire_u64s_append(&session->message.extra, store_mirror_session(mirror, i)) != YOLK_OK) {
            go_idle(session, now_ns);
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

static void send_offer(struct store_session *session, uint64_t now_ns)
{
    struct wire_mirror_offer offer;
    struct store_stamp stamp;
    struct store_mirror_entry entry;
    struct wire_view *keys = base_calloc(OFFER_KEYS_MAX, sizeof(*keys));
    memset(&offer, 0, sizeof(offer));
    session->state = STATE_OFFERING;
    (void)begin_request(session, &offer.request, &stamp);
    if (keys == NULL) {
        go_idle(session, now_ns);
        return;
    }
    uint32_t count = gather_offer(session, keys);
    int status = wire_keys_build(&session->message.keys, keys, count);
    free(keys);
    if (status != YOLK_OK) {
        go_idle(session, now_ns);
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

/* ---- steps ---- */

static void opened(struct store_session *session, uint64_t now_ns)
{
    struct store_session_output *output = queue(session, STORE_SESSION_OPENED);
    if (output == NULL) { /* as for MOUNTED */
        go_idle(session, now_ns);
        return;
    }
    output->session = session->session;
    output->segment = session->segment;
    output->restarted = session->restarted;
    session->state = STATE_OPEN;
    session->standing = 1;
    session->backoff_ns = session->options.backoff_first_ns;
    session->refusal = YOLK_OK;
    session->heartbeat_ns = now_ns + session->heartbeat_interval_ns;
    store_holds_set_session(session->options.holds, session->session);
    session->restarted = 0;
}

static void expire(struct store_session *session, uint64_t now_ns)
{
    uint64_t lost = session->session;
    session->generation++;
    session->standing = 0;
    store_holds_set_session(session->options.holds, 0);
    session->session = 0;
    session->awaited = 0;
    session->heartbeat_id = 0;
    struct store_session_output *output = queue(session, STORE_SESSION_EXPIRED);
    session->state = STATE_EXPIRED;
    if (output == NULL) {
        /* Without the event nobody would ever say quiet. */
        session->state = STATE_OPEN;
        session->session = lost;
        go_idle(session, now_ns);
        return;
    }
    output->session = lost;
}

static void refuse(struct store_session *session, uint64_t now_ns, int status,
                   struct wire_view text)
{
    session->refusal = status < 0 ? status : (int)YOLK_ERR_PROTOCOL;
    wire_view_copy_text(text, session->refusal_text, sizeof(session->refusal_text));
    go_idle(session, now_ns);
}

void store_session_connected(struct store_session *session, uint64_t now_ns,
                             const uint8_t instance[16])
{
    session->linked = 1;
    memcpy(session->peer_instance, instance, 16);
    if (session->state == STATE_EXPIRED)
        return; /* goes on when quiet */
    if (session->session != 0 && session->has_instance &&
        memcmp(session->instance, instance, 16) == 0 && session->standing) {
        session->state = STATE_RESUMING;
        send_heartbeat(session, now_ns);
        await(session, now_ns, session->heartbeat_id);
        if (session->heartbeat_id == 0) /* no memory for it */
            go_idle(session, now_ns);
        return;
    }
    session->restarted = session->has_instance && memcmp(session->instance, instance, 16) != 0;
    send_open(session, now_ns);
}

void store_session_link_lost(struct store_session *session, uint64_t now_ns)
{
    session->linked = 0; /* nothing is left to disconnect */
    if (session->refusal == YOLK_OK)
        session->refusal = YOLK_ERR_LINK;
    go_idle(session, now_ns);
}

void store_session_quiet(struct store_session *session, uint64_t now_ns)
{
    if (session->state != STATE_EXPIRED)
        return;
    session->state = STATE_IDLE;
    store_holds_session_ended(session->options.holds);
    if (session->linked)
        send_open(session, now_ns);
}

void store_session_unmount(struct store_session *session, uint64_t now_ns, uint64_t grace_ms)
{
    (void)now_ns;
    session->wants_unmount = 1;
    session->grace_ms = grace_ms;
}

void store_session_close(struct store_session *session, uint64_t now_ns)
{
    (void)now_ns;
    session->wants_close = 1;
}

/* What the driver of a session asked for, once the session stands. */
static void send_wishes(struct store_session *session)
{
    struct store_stamp stamp;
    if (session->wants_unmount && session->unmount_id == 0 && session->segment != 0) {
        struct wire_segment_unmount unmount;
        (void)begin_request(session, &unmount.request, &stamp);
        unmount.segment = session->segment;
        unmount.grace_ms = session->grace_ms;
        uint64_t id = session->next_request++;
        if (wire_encode(WIRE_SEGMENT_UNMOUNT, &unmount, &session->message.body) == YOLK_OK &&
            queue_send(session, WIRE_SEGMENT_UNMOUNT, id))
            session->unmount_id = id;
    }
    if (session->wants_close && session->close_id == 0) {
        struct wire_plain_request end;
        (void)begin_request(session, &end.request, &stamp);
        uint64_t id = session->next_request++;
        if (wire_encode(WIRE_SESSION_CLOSE, &end, &session->message.body) == YOLK_OK &&
            queue_send(session, WIRE_SESSION_CLOSE, id))
            session->close_id = id;
    }
}

/* ---- answers ---- */

static void open_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                       size_t size)
{
    struct wire_session_open_reply reply;
    if (wire_decode(WIRE_SESSION_OPEN_REPLY, body, size, &reply) != YOLK_OK) {
        refuse(session, now_ns, YOLK_ERR_PROTOCOL, wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK || reply.session == 0) {
        refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    session->session = reply.session;
    memcpy(session->instance, session->peer_instance, 16);
    session->has_instance = 1;
    session->lease_ttl_ms = reply.lease_ttl_ms;
    if (reply.heartbeat_ms != 0)
        session->heartbeat_interval_ns = reply.heartbeat_ms * NS_PER_MS;
    if (session->options.segment_size != 0 && !session->wants_unmount)
        send_mount(session, now_ns);
    else
        opened(session, now_ns);
}

static void mount_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                        size_t size)
{
    struct wire_segment_mount_reply reply;
    if (wire_decode(WIRE_SEGMENT_MOUNT_REPLY, body, size, &reply) != YOLK_OK) {
        refuse(session, now_ns, YOLK_ERR_PROTOCOL, wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK || reply.segment == 0) {
        refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    struct store_session_output *output = queue(session, STORE_SESSION_MOUNTED);
    if (output == NULL) { /* the driver must hear of it: mounted again later, and told then */
        go_idle(session, now_ns);
        return;
    }
    output->segment = reply.segment;
    store_holds_finish(session->options.holds, session->mount_op);
    session->mount_op = 0;
    memcpy(session->mount_instance, session->instance, 16);
    session->segment = reply.segment;
    store_mirror_mounted(session->options.mirror);
    session->offer_from = 0;
    if (store_mirror_count(session->options.mirror) > 0)
        send_offer(session, now_ns);
    else
        opened(session, now_ns);
}

/* Removes what the master did not take: its space may be given to others from now on. */
static void drop_rejected(struct store_session *session, struct wire_view rejected)
{
    uint64_t cursor = session->offer_from;
    uint32_t index = 0;
    uint32_t at = 0;
    uint32_t count = wire_u32s_count(rejected);
    struct store_mirror_entry entry;

    while (at < count && cursor < session->offer_cursor &&
           store_mirror_next(session->options.mirror, &cursor, &entry)) {
        int hit = 0;
        for (uint32_t i = 0; i < count && !hit; i++)
            hit = wire_u32s_at(rejected, i) == index;
        if (hit) {
            store_mirror_free(session->options.mirror, entry.offset);
            at++;
        }
        index++;
    }
}

static void offer_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                        size_t size)
{
    struct wire_mirror_offer_reply reply;
    if (wire_decode(WIRE_MIRROR_OFFER_REPLY, body, size, &reply) != YOLK_OK) {
        refuse(session, now_ns, YOLK_ERR_PROTOCOL, wire_view_text("malformed answer"));
        return;
    }
    if (reply.status != YOLK_OK) {
        refuse(session, now_ns, reply.status, reply.text);
        return;
    }
    drop_rejected(session, reply.rejected);
    session->offer_from = session->offer_cursor;
    if (session->offer_last)
        opened(session, now_ns);
    else
        send_offer(session, now_ns);
}

static void heartbeat_reply(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                            size_t size)
{
    struct wire_status_reply reply;
    int resuming = session->state == STATE_RESUMING;
    session->heartbeat_id = 0;
    if (resuming)
        session->awaited = 0;
    if (wire_decode(WIRE_HEARTBEAT_REPLY, body, size, &reply) != YOLK_OK) {
        go_idle(session, now_ns);
    } else if (reply.status == YOLK_OK) {
        store_holds_acknowledge(session->options.holds, &session->heartbeat_stamp);
        if (resuming)
            opened(session, now_ns);
    } else if (store_status_is_session(reply.status)) {
        expire(session, now_ns);
    } else {
        refuse(session, now_ns, reply.status, reply.text);
    }
}

/* ---- pushes ---- */

static void acknowledge_facts(struct store_session *session, uint64_t segment)
{
    struct wire_facts_ack ack = {segment, store_mirror_seq(session->options.mirror)};
    base_buf_clear(&session->message.body);
    if (wire_encode(WIRE_FACTS_ACK, &ack, &session->message.body) == YOLK_OK)
        (void)queue_send(session, WIRE_FACTS_ACK, 0);
}

static int apply_fact(struct store_mirror *mirror, const struct wire_fact *fact,
                      struct wire_view key)
{
    switch (fact->kind) {
    case WIRE_FACT_PLACED:
        return store_mirror_place(mirror, fact->offset, fact->size, key.data, (uint32_t)key.size);
    case WIRE_FACT_FREED:
        store_mirror_free(mirror, fact->offset);
        return YOLK_OK;
    case WIRE_FACT_SESSION_OPEN:
        return store_mirror_session_open(mirror, fact->session);
    case WIRE_FACT_SESSION_GONE:
        store_mirror_session_gone(mirror, fact->session);
        return YOLK_OK;
    default:
        return YOLK_OK; /* of a newer master */
    }
}

static void push_facts(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_facts facts;
    struct wire_keys keys;
    struct store_mirror *mirror = session->options.mirror;

    if (mirror == NULL || wire_decode(WIRE_FACTS, body, size, &facts) != YOLK_OK ||
        facts.segment != session->segment ||
        wire_keys_open(facts.keys, WIRE_KEYS_MAX, &keys) != YOLK_OK)
        return;
    if (store_mirror_accepts(mirror, facts.seq)) {
        for (uint32_t i = 0; i < wire_fact_count(facts.recs); i++) {
            struct wire_fact fact = wire_fact_at(facts.recs, i);
            struct wire_view key = {NULL, 0};
            (void)wire_keys_next(&keys, &key);
            if (apply_fact(mirror, &fact, key) != YOLK_OK)
                return; /* unacknowledged: it comes again, and applying a part twice is harmless */
        }
        store_mirror_applied(mirror, facts.seq);
    } else if (facts.seq > store_mirror_seq(mirror)) {
        return; /* one before it is missing and will come again */
    }
    acknowledge_facts(session, facts.segment);
}

static void push_put_expired(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_put_expired expired;
    if (wire_decode(WIRE_PUT_EXPIRED, body, size, &expired) != YOLK_OK)
        return;
    struct store_session_output *output;
    if (store_holds_is_live(session->options.holds, expired.op)) {
        /* Still moving: the put machine revokes when its memory is quiet. */
        output = queue(session, STORE_SESSION_PUT_EXPIRED);
        if (output != NULL)
            output->op = expired.op;
        return;
    }
    struct wire_keys_request revoke;
    struct store_stamp stamp;
    (void)begin_request(session, &revoke.request, &stamp);
    revoke.request.op = expired.op;
    revoke.keys = expired.keys;
    /* The op lies below the floor, which would have it refused: say that nothing is below it. */
    if (revoke.request.floor > expired.op)
        revoke.request.floor = expired.op;
    if (wire_encode(WIRE_PUT_REVOKE, &revoke, &session->message.body) == YOLK_OK)
        (void)queue_send(session, WIRE_PUT_REVOKE, session->next_request++);
}

static void push_fence(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_fence fence;
    if (wire_decode(WIRE_FENCE, body, size, &fence) != YOLK_OK)
        return;
    struct store_session_output *output = queue(session, STORE_SESSION_FENCE);
    if (output != NULL) {
        output->segment = fence.segment;
        output->session = fence.fenced_session;
    }
}

static void push_lost(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                      size_t size)
{
    struct wire_session_lost lost;
    if (wire_decode(WIRE_SESSION_LOST, body, size, &lost) != YOLK_OK)
        return;
    if (session->session != 0 && (lost.session == session->session || lost.session == 0) &&
        session->state != STATE_CLOSED)
        expire(session, now_ns);
}

void store_session_fenced(struct store_session *session, uint64_t now_ns, uint64_t segment,
                          uint64_t fenced_session)
{
    (void)now_ns;
    struct wire_fence fenced = {segment, fenced_session};
    if (!session->linked)
        return; /* the master asks again */
    base_buf_clear(&session->message.body);
    if (wire_encode(WIRE_FENCED, &fenced, &session->message.body) == YOLK_OK)
        (void)queue_send(session, WIRE_FENCED, 0);
}

static void awaited_reply(struct store_session *session, uint64_t now_ns, uint16_t message,
                          const uint8_t *body, size_t size)
{
    session->awaited = 0;
    if (message == WIRE_ERROR) {
        struct wire_status_reply reply;
        if (wire_decode(WIRE_ERROR, body, size, &reply) == YOLK_OK)
            refuse(session, now_ns, reply.status, reply.text);
        else
            go_idle(session, now_ns);
    } else if (session->state == STATE_OPENING && message == WIRE_SESSION_OPEN_REPLY) {
        open_reply(session, now_ns, body, size);
    } else if (session->state == STATE_MOUNTING && message == WIRE_SEGMENT_MOUNT_REPLY) {
        mount_reply(session, now_ns, body, size);
    } else if (session->state == STATE_OFFERING && message == WIRE_MIRROR_OFFER_REPLY) {
        offer_reply(session, now_ns, body, size);
    } else {
        go_idle(session, now_ns);
    }
}

void store_session_input(struct store_session *session, uint64_t now_ns, uint16_t message,
                         uint64_t request_id, const uint8_t *body, size_t body_size)
{
    switch (message) {
    case WIRE_FACTS:
        push_facts(session, body, body_size);
        return;
    case WIRE_FENCE:
        push_fence(session, body, body_size);
        return;
    case WIRE_PUT_EXPIRED:
        push_put_expired(session, body, body_size);
        return;
    case WIRE_SESSION_LOST:
        push_lost(session, now_ns, body, body_size);
        return;
    default:
        break;
    }
    if (request_id == 0)
        return;
    if (request_id == session->heartbeat_id && message == WIRE_HEARTBEAT_REPLY) {
        heartbeat_reply(session, now_ns, body, body_size);
    } else if (request_id == session->awaited) {
        awaited_reply(session, now_ns, message, body, body_size);
    } else if (request_id == session->heartbeat_id) {
        go_idle(session, now_ns);
    } else if (request_id == session->unmount_id) {
        struct wire_status_reply reply;
        struct store_session_output *output = queue(session, STORE_SESSION_UNMOUNTED);
        int status = wire_decode(message, body, body_size, &reply) == YOLK_OK
                         ? reply.status
                         : (int32_t)YOLK_ERR_PROTOCOL;
        session->unmount_id = 0;
        session->wants_unmount = 0;
        if (status == YOLK_OK || status == YOLK_ERR_NOT_FOUND || status == YOLK_ERR_STALE) {
            session->segment = 0;
            session->options.segment_size = 0; /* not mounted again by a later session */
            store_mirror_clear(session->options.mirror);
        }
        if (output != NULL)
            output->status = status;
    } else if (request_id == session->close_id) {
        session->close_id = 0;
        session->state = STATE_CLOSED;
        session->session = 0;
        store_holds_set_session(session->options.holds, 0);
        (void)queue(session, STORE_SESSION_CLOSED);
    }
}

/* ---- the driver's question ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void on_time(struct store_session *session, uint64_t now_ns)
{
    if (session->state == STATE_IDLE && !session->linked && now_ns >= session->retry_ns) {
        session->state = STATE_CONNECTING;
        if (queue(session, STORE_SESSION_CONNECT) == NULL)
            session->state = STATE_IDLE;
        return;
    }
    if (session->awaited != 0 && now_ns >= session->awaited_until_ns) {
        session->refusal = YOLK_ERR_TIMEOUT;
        go_idle(session, now_ns);
        return;
    }
    if (session->heartbeat_id != 0 && now_ns >= session->heartbeat_until_ns) {
        go_idle(session, now_ns);
        return;
    }
    int beats = session->state == STATE_OPEN || session->state == STATE_MOUNTING ||
                session->state == STATE_OFFERING;
    if (beats && session->heartbeat_id == 0 && now_ns >= session->heartbeat_ns)
        send_heartbeat(session, now_ns);
    if (session->state == STATE_OPEN)
        send_wishes(session);
    if (session->state == STATE_OPEN && now_ns >= session->renew_ns &&
        store_holds_wants_new_session(session->options.holds)) {
        /* Stuck: only a fence makes those extents usable again, and it needs the session to be
         * gone. Refused: this session is fenced already. */
        session->renew_ns = now_ns + session->options.backoff_max_ns;
        expire(session, now_ns);
    }
}

static uint64_t next_time(const struct store_session *session)
{
    uint64_t at = UINT64_MAX;
    if (session->state == STATE_IDLE && !session->linked)
        at = session->retry_ns;
    if (session->awaited != 0)
        at = least(at, session->awaited_until_ns);
    if (session->heartbeat_id != 0)
        at = least(at, session->heartbeat_until_ns);
    else if (session->state == STATE_OPEN || session->state == STATE_MOUNTING ||
             session->state == STATE_OFFERING)
        at = least(at, session->heartbeat_ns);
    return at;
}

void store_session_next(struct store_session *session, uint64_t now_ns,
                        struct store_session_output *output)
{
    if (session->given != NULL) {
        free(session->given->body);
        free(session->given);
        session->given = NULL;
    }
    if (session->first == NULL)
        on_time(session, now_ns);
    if (session->first != NULL) {
        session->given = session->first;
        session->first = session->given->next;
        if (session->first == NULL)
            session->last = NULL;
        *output = session->given->output;
        return;
    }
    memset(output, 0, sizeof(*output));
    output->kind = STORE_SESSION_WAIT;
    output->deadline_ns = next_time(session);
}

uint64_t store_session_id(const struct store_session *session)
{
    return session->session;
}

uint64_t store_session_segment(const struct store_session *session)
{
    return session->segment;
}

int store_session_is_open(const struct store_session *session)
{
    return session->state == STATE_OPEN;
}

enum yolk_status store_session_last_refusal(const struct store_session *session, const char **text)
{
    *text = session->refusal_text;
    return session->refusal;
}

uint64_t store_session_lease_ttl_ms(const struct store_session *session)
{
    return session->lease_ttl_ms;
}
