/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's connections to one target. Inside: entry.c has what one request is, stream.c what
 * goes over a connection that is ready, link.c how one comes to be and ends, target.c the few of a
 * target together, consumer.c the channels. Nothing here blocks. Order of
 * locks: link, target, channel.
 */
#ifndef TRANSPORT_TCP_LINK_H
#define TRANSPORT_TCP_LINK_H

#include <stdatomic.h>

#include "base/list.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/tcp/frames.h"
#include "transport/tcp/internal.h"

enum {
    TCP_LINKS_MAX = 16,
    TCP_DEPTH = 1024,      /* ios of one channel */
    TCP_LINK_DEPTH = 2048, /* entries of one link */
    TCP_ENTRY_CHUNK = 64,
    TCP_STAGE_SIZE = 131072, /* received at once */
    /* Asked for by one frame, and sent to one link before the next one is looked at. */
    TCP_GATHER_BYTES = 256 * 1024,
};

enum tcp_link_state { LINK_CLOSED, LINK_CONNECTING, LINK_HELLO, LINK_ATTACH, LINK_READY };

enum tcp_entry_kind { ENTRY_IO, ENTRY_QUIET };

/* One request of a link, in the order sent, which is the order of the replies. */
struct tcp_entry {
    struct base_list node;       /* in link->entries, target->limbo, channel->done or ->spare */
    struct tcp_channel *channel; /* NULL: completed already, only the stream needs it */
    enum tcp_entry_kind kind;
    enum yolk_opcode opcode;
    bool canceled;
    bool plain;    /* a read that may be asked for together with others */
    bool gathered; /* it is, by one frame */
    uint8_t *local;
    uint64_t offset, size;
    uint64_t request_id;
    uint64_t limbo_id; /* the lost connection it was sent on; ENTRY_QUIET: the one asked about */
    uint64_t lost_ns;  /* when that was lost */
    uint64_t sent;     /* bytes of frame and payload */
    size_t frame_size; /* 0: not made yet */
    struct yolk_completion completion;
    uint8_t frame[TCP_FRAME_MAX];
};

struct tcp_entry_chunk {
    struct tcp_entry_chunk *next;
    struct tcp_entry entries[TCP_ENTRY_CHUNK];
};

struct tcp_channel {
    struct tcp_target *target;
    /* of the thread that holds the batch */
    uint32_t queued;
    struct tcp_link *link;          /* where the last io went */
    uint64_t link_bytes;            /* how much in a row */
    uint32_t links_used;            /* a bit each: those it may have something on */
    struct base_list spare;         /* entries */
    struct tcp_entry_chunk *chunks; /* they come from here; the first one may have fresh ones */
    uint32_t fresh;                 /* how many */
    int wake;                       /* eventfd, made at the first wait */
    struct mutex mutex;
    /* under the mutex */
    bool armed; /* the owner may sleep on `wake` */
    struct base_list done;
};

struct tcp_link {
    struct tcp_target *target;
    struct mutex mutex;
    _Atomic int state;         /* written under the mutex */
    _Atomic uint64_t bytes;    /* sum of sizes under way, plus one for each entry */
    _Atomic uint64_t moved_ns; /* when bytes last went or came */
    /* under the mutex */
    int fd;
    uint64_t id;
    uint64_t deadline_ns; /* of connecting */
    bool gathers;         /* the provider knows READS */
    struct wire_hello_machine hello;
    struct base_buf out;
    struct base_buf in;
    uint8_t attach[TCP_FRAME_MAX];
    size_t attach_size, attach_sent;
    struct base_list entries; /* oldest first */
    struct tcp_entry *next;   /* first one not wholly sent, NULL if none */
    uint32_t entry_count;
    uint64_t next_request;
    uint64_t unsent; /* what was added since the last send, in bytes moved */
    uint32_t unsent_count;
    /* the reply in work */
    uint8_t reply[TCP_REPLY_SIZE];
    size_t reply_size;
    uint32_t reply_count; /* entries of it that are not over; 0: its head has not come */
    bool reply_many;      /* it began with more than one */
    int32_t reply_status;
    uint64_t reply_left; /* payload bytes to come */
    uint64_t reply_got;  /* of the oldest entry */
    /* Small replies come many at a time, through here. */
    uint8_t *stage; /* NULL while closed */
    size_t stage_size, stage_used;
    uint64_t staged; /* bytes copied from it that the process's count has not yet */
};

struct tcp_target {
    struct base_list node;
    const struct tcp_settings *settings;
    struct net_address address;
    uint8_t instance[WIRE_ID_SIZE];
    uint64_t segment, size, session;
    uint32_t link_count;
    struct tcp_link links[TCP_LINKS_MAX];
    struct mutex mutex;
    /* under the mutex */
    bool stopped;
    bool was_connected;
    int last_status; /* of the last failed connecting */
    char last_text[200];
    uint64_t retry_ns; /* no connecting before */
    uint64_t backoff_ns;
    /* Writes sent on a connection that broke: whether the provider still has their bytes in its
     * socket is unknown until it has confirmed that it closed that connection. */
    struct base_list limbo;
    _Atomic uint32_t limbo_count;
    uint64_t limbo_asked_ns;
};

/* ---- entry.c ---- */

/* For the channel's owner. NULL without memory; all of it is 0 then but the node. */
struct tcp_entry *tcp_entry_take(struct tcp_channel *ch);
void tcp_entry_give_back(struct tcp_channel *ch, struct tcp_entry *e);
void tcp_entries_free(struct tcp_channel *ch);
/* Completes or frees an entry that is in no list. */
void tcp_entry_end(struct tcp_entry *e, int status, uint64_t transferred);
/* The same with those that ended together: one look at each channel in a row. */
void tcp_entries_end(struct base_list *over);

/* ---- stream.c: under link->mutex ---- */

void tcp_link_append(struct tcp_link *l, struct tcp_entry *e);
/* Takes it from the link. */
void tcp_link_detach(struct tcp_link *l, struct tcp_entry *e);
/* What it can now; a failure is for the caller to end the link with. */
YOLK_MUST_USE int tcp_stream_send(struct tcp_link *l);
/* AGAIN: nothing more now. */
YOLK_MUST_USE int tcp_stream_step(struct tcp_link *l);
/* > 0 bytes, 0: later, < 0: a status. */
YOLK_MUST_USE ssize_t tcp_stream_send_bytes(struct tcp_link *l, struct iovec *iov, size_t count);
YOLK_MUST_USE ssize_t tcp_stream_receive_bytes(struct tcp_link *l, struct iovec *iov, size_t count);
bool tcp_stream_cancel(struct tcp_link *l, struct tcp_channel *ch, uint64_t cookie);

/* ---- link.c: under link->mutex ---- */

YOLK_MUST_USE int tcp_link_open(struct tcp_link *l);
void tcp_link_fail(struct tcp_link *l, int status);
/* Does what can be done now; a failure ends the link. */
void tcp_link_drive(struct tcp_link *l);
/* What it waits for. */
short tcp_link_events(struct tcp_link *l);
/* An io in e. AGAIN: full. Others are final; nothing was taken. */
YOLK_MUST_USE int tcp_link_add(struct tcp_link *l, struct tcp_entry *e, const struct yolk_io *io);
/* Sends what submits gathered. */
void tcp_link_flush(struct tcp_link *l);

/* ---- target.c ---- */

YOLK_MUST_USE int tcp_target_init(struct tcp_target *t);
void tcp_target_fini(struct tcp_target *t);
/* Ends everything with CLOSED (writes that may still land: STUCK) and lets nothing new in. */
void tcp_target_stop(struct tcp_target *t);
/* At least one link is ready. AGAIN: not yet; whoever asks drives it, and nobody waits for it. */
YOLK_MUST_USE int tcp_target_connect(struct tcp_target *t);
void tcp_target_drive(struct tcp_target *t);
/* When bytes last went or came on a link that has something under way; 0: on none. */
uint64_t tcp_target_moved_ns(const struct tcp_target *t);
/* Of these links, a bit each. */
uint32_t tcp_target_wait_fds(struct tcp_target *t, uint32_t links, struct pollfd *fds,
                             uint32_t max);
/* Under its mutex. What a failed attempt to connect means. */
int tcp_target_note_failure(struct tcp_target *t, int status);
/* Under its mutex. id 0: all. */
void tcp_limbo_resolve(struct tcp_target *t, uint64_t id, int status);
/* Under its mutex. Keeps the write until it is known to be over. */
void tcp_limbo_add(struct tcp_target *t, struct tcp_entry *e, uint64_t id, uint64_t now_ns);

#endif
