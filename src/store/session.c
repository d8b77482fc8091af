/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a session with the master, what it gives out, and time. */
#include "store/session_state.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"

/* Used until the master has said its own. */
enum { HEARTBEAT_DEFAULT_MS = 1000 };

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
    base_buf_init(&session->pinned, OFFER_KEYS_MAX * sizeof(uint32_t));
    base_buf_init(&session->key_bytes, OFFER_KEY_BYTES_MAX + MAX_KEY_SIZE);
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
    for (struct session_pending *at = session->first; at != NULL;) {
        struct session_pending *next = at->next;
        free(at->body);
        free(at);
        at = next;
    }
    store_message_free(&session->message);
    base_buf_free(&session->pinned);
    base_buf_free(&session->key_bytes);
    free(session);
}

/* ---- output ---- */

struct store_session_output *store_session_queue(struct store_session *session,
                                                 enum store_session_output_kind kind)
{
    struct session_pending *pending = base_calloc(1, sizeof(*pending));
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

int store_session_queue_send(struct store_session *session, uint16_t message, uint64_t request_id)
{
    size_t size = session->message.body.size;
    uint8_t *copy = base_malloc(size == 0 ? 1 : size);
    struct store_session_output *output =
        copy == NULL ? NULL : store_session_queue(session, STORE_SESSION_SEND);
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
    struct session_pending **at = &session->first;
    session->last = NULL;
    while (*at != NULL) {
        struct session_pending *pending = *at;
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

void store_session_idle(struct store_session *session, uint64_t now_ns)
{
    if (session->state == STATE_CLOSED)
        return;
    if (session->linked)
        (void)store_session_queue(session, STORE_SESSION_DISCONNECT);
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

/* ---- parts ---- */

enum session_part store_session_part(const struct store_session *session, enum session_part part)
{
    const struct store_session_options *options = &session->options;
    const bool has[PARTS] = {options->segment_size != 0,
                             options->segment_size != 0 && options->disk != NULL,
                             options->gds != NULL};
    while (part < PARTS && !has[part])
        part++;
    return part;
}

const struct store_disk_mount *store_session_file(const struct store_session *session)
{
    return session->part == PART_GDS ? session->options.gds : session->options.disk;
}

/* ---- steps ---- */

void store_session_stands(struct store_session *session, uint64_t now_ns)
{
    struct store_session_output *output = store_session_queue(session, STORE_SESSION_OPENED);
    if (output == NULL) { /* as for MOUNTED */
        store_session_idle(session, now_ns);
        return;
    }
    output->session = session->session;
    output->segment = session->mounts[PART_MEMORY].segment;
    output->restarted = session->restarted;
    session->state = STATE_OPEN;
    session->standing = 1;
    session->backoff_ns = session->options.backoff_first_ns;
    session->refusal = YOLK_OK;
    session->heartbeat_ns = now_ns + session->heartbeat_interval_ns;
    store_holds_set_session(session->options.holds, session->session);
    session->restarted = 0;
}

void store_session_expire(struct store_session *session, uint64_t now_ns)
{
    uint64_t lost = session->session;
    session->generation++;
    session->standing = 0;
    store_holds_set_session(session->options.holds, 0);
    session->session = 0;
    session->awaited = 0;
    session->heartbeat_id = 0;
    struct store_session_output *output = store_session_queue(session, STORE_SESSION_EXPIRED);
    session->state = STATE_EXPIRED;
    if (output == NULL) {
        /* Without the event nobody would ever say quiet. */
        session->state = STATE_OPEN;
        session->session = lost;
        store_session_idle(session, now_ns);
        return;
    }
    output->session = lost;
}

void store_session_refuse(struct store_session *session, uint64_t now_ns, int status,
                          struct wire_view text)
{
    session->refusal = status < 0 ? status : (int)YOLK_ERR_PROTOCOL;
    wire_view_copy_text(text, session->refusal_text, sizeof(session->refusal_text));
    store_session_idle(session, now_ns);
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
        store_session_send_heartbeat(session, now_ns);
        store_session_await(session, now_ns, session->heartbeat_id);
        if (session->heartbeat_id == 0) /* no memory for it */
            store_session_idle(session, now_ns);
        return;
    }
    session->restarted = session->has_instance && memcmp(session->instance, instance, 16) != 0;
    store_session_send_open(session, now_ns);
}

void store_session_link_lost(struct store_session *session, uint64_t now_ns)
{
    session->linked = 0; /* nothing is left to disconnect */
    if (session->refusal == YOLK_OK)
        session->refusal = YOLK_ERR_LINK;
    store_session_idle(session, now_ns);
}

void store_session_quiet(struct store_session *session, uint64_t now_ns)
{
    if (session->state != STATE_EXPIRED)
        return;
    session->state = STATE_IDLE;
    store_holds_session_ended(session->options.holds);
    if (session->linked)
        store_session_send_open(session, now_ns);
}

void store_session_disk_quiet(struct store_session *session, uint64_t now_ns)
{
    if (session->state == STATE_QUIETING)
        store_session_send_mount(session, now_ns);
}

void store_session_add_disk(struct store_session *session, const struct store_disk_mount *disk)
{
    session->options.disk = disk;
}

/* One that came later than the session. */
static int lacks_disk(const struct store_session *session)
{
    return session->options.disk != NULL && session->options.segment_size != 0 &&
           session->mounts[PART_DISK].segment == 0 && !session->wants_unmount &&
           !session->wants_close;
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

void store_session_fenced(struct store_session *session, uint64_t now_ns, uint64_t segment,
                          uint64_t fenced_session)
{
    (void)now_ns;
    struct wire_fence fenced = {segment, fenced_session};
    if (!session->linked)
        return; /* the master asks again */
    base_buf_clear(&session->message.body);
    if (wire_encode(WIRE_FENCED, &fenced, &session->message.body) == YOLK_OK)
        (void)store_session_queue_send(session, WIRE_FENCED, 0);
}

void store_session_input(struct store_session *session, uint64_t now_ns, uint16_t message,
                         uint64_t request_id, const uint8_t *body, size_t body_size)
{
    if (store_session_push(session, now_ns, message, body, body_size))
        return;
    if (request_id == 0)
        return;
    if (request_id == session->heartbeat_id && message == WIRE_HEARTBEAT_REPLY) {
        store_session_heartbeat_reply(session, now_ns, body, body_size);
    } else if (request_id == session->awaited) {
        store_session_awaited_reply(session, now_ns, message, body, body_size);
    } else if (request_id == session->heartbeat_id) {
        store_session_idle(session, now_ns);
    } else if (request_id == session->unmount_id) {
        store_session_unmount_reply(session, message, body, body_size);
    } else if (request_id == session->close_id) {
        session->close_id = 0;
        session->state = STATE_CLOSED;
        session->session = 0;
        store_holds_set_session(session->options.holds, 0);
        (void)store_session_queue(session, STORE_SESSION_CLOSED);
    }
}

/* ---- the driver's question ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int beats(const struct store_session *session)
{
    return session->state == STATE_OPEN || session->state == STATE_QUIETING ||
           session->state == STATE_MOUNTING || session->state == STATE_OFFERING;
}

static void on_time(struct store_session *session, uint64_t now_ns)
{
    if (session->state == STATE_IDLE && !session->linked && now_ns >= session->retry_ns) {
        session->state = STATE_CONNECTING;
        if (store_session_queue(session, STORE_SESSION_CONNECT) == NULL)
            store_session_idle(session, now_ns);
        return;
    }
    if (session->awaited != 0 && now_ns >= session->awaited_until_ns) {
        session->refusal = YOLK_ERR_TIMEOUT;
        store_session_idle(session, now_ns);
        return;
    }
    if (session->heartbeat_id != 0 && now_ns >= session->heartbeat_until_ns) {
        store_session_idle(session, now_ns);
        return;
    }
    if (beats(session) && session->heartbeat_id == 0 && now_ns >= session->heartbeat_ns)
        store_session_send_heartbeat(session, now_ns);
    if (session->state == STATE_OPEN)
        store_session_send_wishes(session);
    if (session->state == STATE_OPEN && lacks_disk(session)) {
        session->part = PART_DISK;
        store_session_send_mount(session, now_ns);
        return;
    }
    if (session->state == STATE_OPEN && now_ns >= session->renew_ns &&
        store_holds_wants_new_session(session->options.holds)) {
        /* Stuck: only a fence makes those extents usable again, and it needs the session to be
         * gone. Refused: this session is fenced already. */
        session->renew_ns = now_ns + session->options.backoff_max_ns;
        store_session_expire(session, now_ns);
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
    else if (beats(session))
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
    return session->mounts[PART_MEMORY].segment;
}

int store_session_is_offering(const struct store_session *session)
{
    return session->state == STATE_OFFERING;
}

int store_session_is_open(const struct store_session *session)
{
    return session->state == STATE_OPEN;
}

uint64_t store_session_floor(const struct store_session *session)
{
    return session->heartbeat_floor;
}

enum yolk_status store_session_last_refusal(const struct store_session *session, const char **text)
{
    *text = session->refusal_text;
    return session->refusal;
}
