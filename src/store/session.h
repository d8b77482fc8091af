/* SPDX-License-Identifier: Apache-2.0 */
/* The pure session machine: one control connection to the master, its session, heartbeats, the
 * mount of this process's segments (memory, a disk, a GDS file), and what to do when any of them is
 * lost.
 *
 * States: IDLE → CONNECTING → [RESUMING →] OPENING → [[QUIETING →] MOUNTING → OFFERING →] OPEN. A
 * lost link goes back to IDLE (after a back-off); on the new link the same master instance is
 * resumed by one HEARTBEAT, another one is told by SESSION_OPEN what is held. A session that the
 * master refuses goes to EXPIRED until the driver has reported its writers quiet, then OPENING. */
#ifndef YOLK_STORE_SESSION_H
#define YOLK_STORE_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#include "store/disk_mount.h"
#include "store/holds.h"
#include "store/mirror.h"

struct store_session;

struct store_session_options {
    uint8_t client_id[16];
    const char *name;
    const char *tenant; /* NULL: the default one */
    uint64_t backoff_first_ns;
    uint64_t backoff_max_ns;
    uint64_t reply_timeout_ns;
    uint64_t seed; /* jitter of the back-off */
    /* a node: its segment */
    uint64_t segment_size; /* 0: no node */
    const char *endpoints;
    uint8_t ticket_key[32];
    struct store_mirror *mirror;
    struct store_holds *holds;
    const struct store_disk_mount *disk; /* a node with a disk, else NULL */
    const struct store_disk_mount *gds;  /* of a client with a GDS file, else NULL */
};

enum store_session_output_kind {
    STORE_SESSION_CONNECT = 1,    /* open the control connection; answer connected or link_lost */
    STORE_SESSION_DISCONNECT = 2, /* close it; no answer */
    STORE_SESSION_SEND = 3,       /* message, request_id, body */
    STORE_SESSION_OPENED = 4,     /* session; holds already carries it. restarted: another master */
    STORE_SESSION_EXPIRED = 5,    /* session is lost: drop writers, then store_session_quiet */
    STORE_SESSION_MOUNTED = 6,    /* segment: the id to serve memory as from now on */
    STORE_SESSION_FENCE = 7,      /* refuse `session` on `segment`; answer store_session_fenced */
    STORE_SESSION_PUT_EXPIRED = 8, /* op: if it is not live, the machine has answered by itself */
    STORE_SESSION_UNMOUNTED = 9,   /* status of the unmount */
    STORE_SESSION_CLOSED = 10,     /* the session was closed at the master */
    STORE_SESSION_WAIT = 11,       /* until deadline_ns or input */
    STORE_SESSION_QUIET = 12, /* the disk's mount is over: end what moves between it and memory,
                               * then store_session_disk_quiet */
    STORE_SESSION_DISK_MOUNTED = 13, /* segment: the id to serve the disk as; MOUNTED came before */
    STORE_SESSION_GDS_MOUNTED = 14,  /* segment: the id to serve the GDS file as */
};

struct store_session_output {
    enum store_session_output_kind kind;
    uint64_t deadline_ns;
    uint16_t message;
    uint64_t request_id; /* 0 for acknowledgements, which have no answer */
    const uint8_t *body; /* borrowed until the next call */
    size_t body_size;
    uint64_t session;
    uint64_t segment;
    uint64_t op;
    int restarted;
    enum yolk_status status;
};

/* Borrows the strings, mirror, holds and disk until destroyed. */
YOLK_MUST_USE enum yolk_status store_session_create(const struct store_session_options *options,
                                                    struct store_session **out);
void store_session_destroy(struct store_session *session);

void store_session_next(struct store_session *session, uint64_t now_ns,
                        struct store_session_output *output);
/* The control connection stands; instance is the master's (from the hello). */
void store_session_connected(struct store_session *session, uint64_t now_ns,
                             const uint8_t instance[16]);
void store_session_link_lost(struct store_session *session, uint64_t now_ns);
/* Any frame that came on the control connection, answers and pushes. */
void store_session_input(struct store_session *session, uint64_t now_ns, uint16_t message,
                         uint64_t request_id, const uint8_t *body, size_t body_size);
/* After EXPIRED: nothing of the old session can write any more. */
void store_session_quiet(struct store_session *session, uint64_t now_ns);
/* After QUIET: nothing moves between memory and the disk any more. At any other time: ignored. */
void store_session_disk_quiet(struct store_session *session, uint64_t now_ns);
/* A node that had no disk has one now: it is mounted beside the memory. Borrowed until destroyed.
 */
void store_session_add_disk(struct store_session *session, const struct store_disk_mount *disk);
/* After FENCE: the engine says that nothing of that session can write to the segment any more. */
void store_session_fenced(struct store_session *session, uint64_t now_ns, uint64_t segment,
                          uint64_t fenced_session);
/* Ask for the unmount of the own segments, and for the end of the session. */
void store_session_unmount(struct store_session *session, uint64_t now_ns, uint64_t grace_ms);
void store_session_close(struct store_session *session, uint64_t now_ns);

uint64_t store_session_id(const struct store_session *session);
uint64_t store_session_segment(const struct store_session *session);
int store_session_is_open(const struct store_session *session);
/* It will be open when all that there is was offered: each offer is waited for in its turn. */
int store_session_is_offering(const struct store_session *session);
/* Every message with a lower op than this is refused by now, and what the master pushed before it
 * knew that has come. */
uint64_t store_session_floor(const struct store_session *session);
/* Why the last try to open failed; YOLK_OK if none did. Text borrowed until the next input. */
enum yolk_status store_session_last_refusal(const struct store_session *session, const char **text);
#endif
