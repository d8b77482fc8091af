/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the tcp transport. Both sides of one endpoint share the options and nothing else. */
#ifndef TRANSPORT_TCP_INTERNAL_H
#define TRANSPORT_TCP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/hello.h"
#include "yolk/transport.h"

struct gpu_side;

/* The options, copied, with the defaults filled in. */
struct tcp_settings {
    char host[256];
    char listen[256];
    uint16_t port;
    uint8_t secret[WIRE_SECRET_MAX];
    size_t secret_size;
    uint8_t instance[WIRE_ID_SIZE];
    struct gpu_side *gpu;     /* the endpoint's */
    uint32_t connections_max; /* to one target */
    /* Threads that poll instead of sleeping, at once; 0: none, for whom one waits for could not
     * run. */
    uint32_t pollers_max;
    uint32_t workers;
    uint64_t connect_timeout_ns;
    uint64_t stop_timeout_ns;
    uint64_t hello_timeout_ns; /* provider: for an accepted connection to say who it is */
    uint64_t stall_timeout_ns; /* provider: within a frame */
    uint64_t idle_timeout_ns;  /* provider: between frames */
};

#define TCP_INSTANCE_TEXT (2 * WIRE_ID_SIZE + 1)

void tcp_wire_options(const struct tcp_settings *settings, uint64_t session,
                      struct wire_hello_options *out);
/* NODELAY, keepalive, and an end to waiting for a machine that is gone. */
void tcp_tune(int fd);

/* ---- provider.c ---- */
struct tcp_provider;
struct tcp_served;

YOLK_MUST_USE int tcp_provider_create(const struct tcp_settings *settings,
                                      struct tcp_provider **out);
/* Ends all connections and joins the threads; serve fails afterwards. */
void tcp_provider_stop(struct tcp_provider *p);
void tcp_provider_destroy(struct tcp_provider *p);
/* Starts the threads with the first segment. */
YOLK_MUST_USE int tcp_provider_serve(struct tcp_provider *p, const struct yolk_serve *serve,
                                     struct tcp_served **out, char *text, size_t text_size);
void tcp_provider_set_segment(struct tcp_provider *p, struct tcp_served *served, uint64_t segment);
YOLK_MUST_USE int tcp_provider_fence(struct tcp_provider *p, struct tcp_served *served,
                                     uint64_t session);
void tcp_provider_unserve(struct tcp_provider *p, struct tcp_served *served);

/* ---- consumer.c ---- */
struct tcp_consumer;

YOLK_MUST_USE int tcp_consumer_create(const struct tcp_settings *settings,
                                      struct tcp_consumer **out);
void tcp_consumer_stop(struct tcp_consumer *c);
void tcp_consumer_destroy(struct tcp_consumer *c);
YOLK_MUST_USE enum yolk_status tcp_target_open(struct tcp_consumer *c, const char *text,
                                               uint64_t segment, uint64_t size, uint64_t session,
                                               void **out);
void tcp_target_close(struct tcp_consumer *c, void *target);
YOLK_MUST_USE enum yolk_status tcp_channel_open(struct tcp_consumer *c, void *target, void **out);
enum yolk_submit tcp_channel_submit(void *channel, struct yolk_io *io);
uint32_t tcp_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max);
void tcp_channel_cancel(void *channel, uint64_t cookie);
YOLK_MUST_USE enum yolk_status tcp_channel_close(void *channel);
struct pollfd;
void tcp_channel_flush(void *channel);
uint32_t tcp_channel_wait_fds(void *channel, struct pollfd *fds, uint32_t max);

#endif
