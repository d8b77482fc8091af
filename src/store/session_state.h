/* SPDX-License-Identifier: Apache-2.0 */
/* The session machine, shared by its files: session.c (states, output, time), session_send.c (what
 * it says), session_reply.c (what is answered), session_push.c (what the master says unasked). */
#ifndef YOLK_STORE_SESSION_STATE_H
#define YOLK_STORE_SESSION_STATE_H

#include "store/message.h"
#include "store/session.h"

enum session_state {
    STATE_IDLE = 0,   /* → CONNECTING when the back-off is over */
    STATE_CONNECTING, /* → RESUMING, OPENING, IDLE */
    STATE_RESUMING, /* HEARTBEAT of the old session is unanswered → OPEN, MOUNTING, EXPIRED, IDLE */
    STATE_EXPIRED,  /* the driver makes the old session's writers quiet → OPENING, IDLE */
    STATE_OPENING,  /* SESSION_OPEN unanswered or to be sent → QUIETING, MOUNTING, OPEN, IDLE */
    STATE_QUIETING, /* the driver ends the moves of the earlier mount → MOUNTING, IDLE */
    STATE_MOUNTING, /* SEGMENT_MOUNTs, part after part → OFFERING, OPEN, IDLE */
    STATE_OFFERING, /* MIRROR_OFFERs, in the same order → OPEN, IDLE */
    STATE_OPEN,     /* → IDLE, EXPIRED, CLOSED */
    STATE_CLOSED,
};

/* An event or frame waiting to be given out. */
struct session_pending {
    struct store_session_output output;
    uint8_t *body; /* owned */
    struct session_pending *next;
};

enum session_part { PART_MEMORY = 0, PART_DISK, PART_GDS, PARTS };

struct session_mount {
    uint64_t segment;     /* 0: not mounted */
    uint64_t op;          /* names the mount, so that a repeated one is known as such; 0: none */
    uint8_t instance[16]; /* of the master it was last mounted at */
    int offers;           /* the master was told to wait for them */
};

/* Keys of one MIRROR_OFFER. */
enum { OFFER_KEYS_MAX = 1024, OFFER_KEY_BYTES_MAX = 512 * 1024 };

struct store_session {
    struct store_session_options options;
    struct store_message message;
    enum session_state state;
    struct session_pending *first;
    struct session_pending *last;
    struct session_pending *given; /* its body is lent to the caller until the next call */

    uint64_t backoff_ns;
    uint64_t renew_ns; /* not before this is the session begun anew because it is of no use */
    uint64_t retry_ns; /* IDLE: when to connect; OPENING …: when to send again */
    uint64_t random;

    uint64_t session;     /* 0: none */
    uint64_t generation;  /* of the client id: greater for each session begun, the same when one is
                           * opened again (after a lost answer, or at another master) */
    uint8_t instance[16]; /* of the master the session is known to */
    int has_instance;
    uint8_t peer_instance[16]; /* of the master at the other end of the link */
    struct session_mount mounts[PARTS];
    enum session_part part; /* that is being mounted or offered */
    enum session_part unmounting;
    int linked;
    int standing; /* the session was OPEN, mount and all: a new link only has to resume it */

    uint64_t next_request;
    uint64_t awaited; /* request id of the step in flight, 0: none */
    uint64_t awaited_until_ns;
    uint64_t heartbeat_id; /* unanswered heartbeat, 0: none */
    uint64_t heartbeat_until_ns;
    uint64_t heartbeat_ns; /* when the next one is due */
    struct store_stamp heartbeat_stamp;
    uint64_t heartbeat_floor; /* of the last one that was answered */
    uint64_t unmount_id;
    uint64_t close_id;
    uint64_t heartbeat_interval_ns;
    uint64_t offer_cursor; /* where the next offer begins */
    int offer_last;
    uint32_t offered_count; /* entries of the offer in flight, and where they lie */
    uint64_t offered[OFFER_KEYS_MAX];
    struct base_buf key_bytes;
    struct base_buf pinned; /* indexes into offered */
    uint32_t key_ends[OFFER_KEYS_MAX];
    int restarted;
    int wants_unmount;
    int wants_close;
    uint64_t grace_ms;

    int refusal;
    char refusal_text[256];
};

/* ---- session.c ---- */

/* The output to be filled in; NULL without memory. */
struct store_session_output *store_session_queue(struct store_session *session,
                                                 enum store_session_output_kind kind);
/* Queues message->body; 0 without memory, which acts as a lost frame. */
int store_session_queue_send(struct store_session *session, uint16_t message, uint64_t request_id);
/* Lets the link go and tries again after the back-off. */
void store_session_idle(struct store_session *session, uint64_t now_ns);
/* Everything is done that makes a session usable. */
void store_session_stands(struct store_session *session, uint64_t now_ns);
/* The session is over; another one begins once its writers are quiet. */
void store_session_expire(struct store_session *session, uint64_t now_ns);
/* The master said no: why is kept for the driver. */
void store_session_refuse(struct store_session *session, uint64_t now_ns, int status,
                          struct wire_view text);

/* The first part from `part` on that this process has; PARTS: none. */
enum session_part store_session_part(const struct store_session *session, enum session_part part);
/* The file behind a part that is no memory. */
const struct store_disk_mount *store_session_file(const struct store_session *session);

/* ---- session_send.c ---- */

/* Fills in *request and empties the message's buffers. */
void store_session_request(struct store_session *session, struct wire_request *request,
                           struct store_stamp *stamp);
void store_session_await(struct store_session *session, uint64_t now_ns, uint64_t id);
void store_session_send_heartbeat(struct store_session *session, uint64_t now_ns);
void store_session_send_open(struct store_session *session, uint64_t now_ns);
/* Of session->part. */
void store_session_send_mount(struct store_session *session, uint64_t now_ns);
/* From session->offer_cursor of session->part on. */
void store_session_send_offer(struct store_session *session, uint64_t now_ns);
/* What the driver of a session asked for, once the session stands. */
void store_session_send_wishes(struct store_session *session);

/* ---- session_reply.c ---- */

/* To the step in flight. */
void store_session_awaited_reply(struct store_session *session, uint64_t now_ns, uint16_t message,
                                 const uint8_t *body, size_t size);
void store_session_heartbeat_reply(struct store_session *session, uint64_t now_ns,
                                   const uint8_t *body, size_t size);
void store_session_unmount_reply(struct store_session *session, uint16_t message,
                                 const uint8_t *body, size_t size);

/* ---- session_push.c ---- */

/* 1: it was one of these messages. */
int store_session_push(struct store_session *session, uint64_t now_ns, uint16_t message,
                       const uint8_t *body, size_t size);

#endif
