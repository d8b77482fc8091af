/* SPDX-License-Identifier: Apache-2.0 */
/* The provider side of one tcp endpoint, inside. provider.c has the threads and the interface,
 * connection.c what one connection does. */
#ifndef TRANSPORT_TCP_CONNECTION_H
#define TRANSPORT_TCP_CONNECTION_H

#include <sys/uio.h>

#include "base/buf.h"
#include "base/list.h"
#include "platform/thread.h"
#include "transport/tcp/disk.h"
#include "transport/tcp/frames.h"
#include "transport/tcp/internal.h"

enum {
    TCP_SERVED_MAX = 64,
    TCP_WORKERS_MAX = 64,
    TCP_INPUT_SIZE = 8192, /* frames are collected here; payloads go straight to their place */
    TCP_DISCARD_SIZE = 65536,
    TCP_REPLIES_MAX = 32, /* heads sent by one call */
    TCP_BEGUN_MAX = 64,   /* accesses whose end is to be told */
    TCP_PIECES_MAX = 512, /* and pieces of memory, the heads with them */
};

struct tcp_served {
    uint8_t *memory;
    struct file_served *file; /* instead of memory; else NULL */
    uint64_t size;
    uint64_t segment;
    struct yolk_access access;
    uint32_t gpu;   /* 1 + the number of the one whose memory it is; 0: none's, or addresses */
    uint32_t users; /* connections whose `served` this is */
};

/* Of addresses the memory begins at NULL, to which C allows no addition. */
static inline uint8_t *tcp_served_at(const struct tcp_served *served, uint64_t offset)
{
    return (uint8_t *)((uintptr_t)served->memory + offset);
}

enum tcp_step {
    TCP_STEP_HELLO,
    TCP_STEP_FRAME,
    TCP_STEP_PAYLOAD,
    TCP_STEP_DISK,
    TCP_STEP_REPLY,
    TCP_STEP_CLOSE
};

struct tcp_connection {
    struct base_list node;
    struct tcp_worker *worker;
    int fd;
    enum tcp_step step;
    bool want_output; /* what epoll is told */
    bool authenticated;
    uint64_t deadline_ns;
    uint64_t session;
    uint64_t id;  /* of ATTACH; 0: none */
    bool gathers; /* the consumer knows replies to many */
    struct wire_hello_machine hello;
    struct base_buf hello_out;
    /* the frame in work */
    struct tcp_served *served;
    /* Accesses of served that its owner allowed and is yet to be told the end of. */
    struct yolk_access_request begun[TCP_BEGUN_MAX];
    uint32_t begun_count;
    bool writing;
    struct tcp_frame frame;
    int32_t status;
    struct tcp_disk_job job; /* its node is in the worker's list of the finished, guarded with it */
    uint8_t *payload;        /* of a write, to come */
    uint64_t payload_left;
    /* For a GPU's memory, which the processor must not touch; NULL: it is not one's. */
    uint8_t *bounce;
    uint32_t bounce_gpu;
    /* of READS: what is still to be answered; its place comes next in `in` */
    uint32_t reads_left;
    uint64_t reads_id, reads_segment;
    /* The replies to send, the oldest first: each head, and behind it the memory it speaks of. */
    uint8_t heads[TCP_REPLIES_MAX][TCP_REPLY_SIZE];
    struct iovec pieces[TCP_PIECES_MAX];
    uint32_t head_count, piece_count, piece_first; /* those before the first are sent */
    bool reply_begun;                              /* sending */
    struct tcp_frame last;                         /* the last reply, as far as it goes */
    uint64_t reply_bytes;
    size_t in_size, in_used;
    uint8_t in[TCP_INPUT_SIZE];
};

struct tcp_worker {
    struct tcp_provider *provider;
    struct thread thread;
    int epoll;
    int wake;                  /* eventfd: some of the finished are there */
    struct base_list finished; /* jobs; guarded by the provider's mutex */
    struct base_list connections;
    uint8_t *discard;
};

struct tcp_provider {
    struct tcp_settings settings;
    struct mutex mutex;
    struct condition quiet; /* a `users` or a connection count went down */
    bool stopped;
    bool running;
    int listener;
    int wake; /* eventfd, readable for ever once stopping */
    uint16_t port;
    struct tcp_disk *disk; /* from the first file served until the workers ended */
    struct thread accepter;
    uint32_t worker_count;
    uint32_t connection_count;
    struct tcp_served *served[TCP_SERVED_MAX];
    uint64_t logged_ns;
    uint32_t unlogged;
    struct tcp_worker workers[TCP_WORKERS_MAX];
};

/* Holds the mutex. A stranger must not be able to fill the log. */
void tcp_provider_log_refusal(struct tcp_provider *p, const char *text);

/* For the connection's own worker. */
void tcp_connection_refuse(struct tcp_provider *p, struct tcp_connection *c, const char *text);
/* Not while the disk is at work for it. */
void tcp_connection_close(struct tcp_provider *p, struct tcp_connection *c);
void tcp_connection_deadline(struct tcp_connection *c, uint64_t after_ns);
/* Goes on until the socket has nothing more to give or take. */
void tcp_connection_run(struct tcp_worker *w, struct tcp_connection *c);
/* Its job is done: begins the reply. */
void tcp_connection_disk_over(struct tcp_provider *p, struct tcp_connection *c);

#endif
