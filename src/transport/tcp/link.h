/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer's connections to one target. */
#ifndef TRANSPORT_TCP_LINK_H
#define TRANSPORT_TCP_LINK_H

#include <stdatomic.h>

#include "base/list.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/tcp/frames.h"
#include "transport/tcp/internal.h"

enum {
    TCP_LINKS_MAX = 4,
    TCP_DEPTH = 256,      /* ios of one channel */
    TCP_LINK_DEPTH = 512, /* entries of one link */
};

enum tcp_link_state { LINK_CLOSED, LINK_CONNECTING, LINK_HELLO, LINK_ATTACH, LINK_READY };

struct tcp_channel {
    struct tcp_target *target;
    uint32_t queued; /* of the thread that holds the batch */
    int wake;        /* eventfd, made at the first wait */
    struct mutex mutex;
    /* under the mutex */
    bool armed; /* the owner may sleep on `wake` */
    struct base_list done;
};

enum tcp_entry_kind { ENTRY_IO, ENTRY_QUIET };

/* One request of a link, in the order sent, which is the order of the replies. */
struct tcp_entry {
    struct base_list node;       /* in link->entries, target->limbo, or channel->done */
    struct tcp_channel *channel; /* NULL: completed already, only the stream needs it */
    enum tcp_entry_kind kind;
    enum yolk_opcode opcode;
    uint8_t *local;
    uint64_t size;
    uint64_t request_id;
    uint64_t limbo_id; /* the lost connection it was sent on; ENTRY_QUIET: the one asked about */
    uint64_t lost_ns;  /* when that was lost */
    uint64_t sent;     /* bytes of frame and payload */
    size_t frame_size;
    uint8_t frame[TCP_FRAME_MAX];
    bool canceled;
    struct yolk_completion completion;
};

struct tcp_link {
    struct tcp_target *target;
    struct mutex mutex;
    _Atomic int state;      /* written under the mutex */
    _Atomic uint64_t bytes; /* sum of sizes under way, plus one for each entry */
    /* under the mutex */
    int fd;
    uint64_t id;
    uint64_t deadline_ns; /* of connecting */
    struct wire_hello_machine hello;
    struct base_buf out;
    struct base_buf in;
    uint8_t attach[TCP_FRAME_MAX];
    size_t attach_size, attach_sent;
    struct base_list entries; /* oldest first */
    struct tcp_entry *next;   /* first one not wholly sent, NULL if none */
    uint32_t entry_count;
    uint64_t next_request;
    /* the reply in work */
    uint8_t reply[TCP_REPLY_SIZE];
    size_t reply_size;
    bool reply_known;
    int32_t reply_status;
    uint64_t reply_left; /* payload bytes to come */
    uint64_t reply_got;
    /* Small replies come many at a time, through here. */
    uint8_t *stage; /* NULL while closed */
    size_t stage_size, stage_used;
    uint64_t unsent; /* bytes of the entries from next on, about */
};

struct tcp_target {
    struct base_list node;
    const struct tcp_settings *settings;
    struct net_address address;
    uint8_t instance[WIRE_ID_SIZE];
    uint64_t segment, size, session;
    uint32_t link_count;
    struct tcp_link links[TCP_LINKS_MAX];
    struct mutex connecting; /* one thread at a time waits for the first link */
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

YOLK_MUST_USE int tcp_target_init(struct tcp_target *t);
void tcp_target_fini(struct tcp_target *t);
/* Ends everything with CLOSED (writes that may still land: STUCK) and lets nothing new in. */
void tcp_target_stop(struct tcp_target *t);
/* At least one link is ready; waits for that up to the connect timeout. */
YOLK_MUST_USE int tcp_target_connect(struct tcp_target *t);
void tcp_target_drive(struct tcp_target *t);
uint32_t tcp_target_wait_fds(struct tcp_target *t, struct pollfd *fds, uint32_t max);

/* The following hold link->mutex. */
/* AGAIN: full. Others are final; nothing was taken. */
YOLK_MUST_USE int tcp_link_add(struct tcp_link *l, struct tcp_channel *ch,
                               const struct yolk_io *io);
/* Sends what submits gathered. */
void tcp_link_flush(struct tcp_link *l);
bool tcp_link_cancel(struct tcp_link *l, struct tcp_channel *ch, uint64_t cookie);

#endif
