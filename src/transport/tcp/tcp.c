/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/gpu/gpu.h"
#include "transport/tcp/frames.h"
#include "transport/tcp/internal.h"
#include "transport/tcp/link.h"

/* As many as are processors, so that many callers are not in each other's way; but there is a least
 * for what one caller asks for, and a most. */
enum { CONNECTIONS_LEAST = 4, WORKERS_LEAST = 4, WORKERS_MOST = 8 };

struct endpoint {
    struct tcp_settings settings;
    struct gpu_side gpu;
    struct tcp_provider *provider;
    struct tcp_consumer *consumer;
};

void tcp_wire_options(const struct tcp_settings *settings, uint64_t session,
                      struct wire_hello_options *out)
{
    *out = (struct wire_hello_options){
        .secret = settings->secret_size > 0 ? settings->secret : NULL,
        .secret_size = settings->secret_size,
        .role = WIRE_ROLE_CLIENT,
        .purpose = WIRE_PURPOSE_DATA,
        .session = session,
        .features = TCP_FEATURE_READS,
    };
    memcpy(out->instance, settings->instance, WIRE_ID_SIZE);
}

void tcp_tune(int fd)
{
    /* Each is a hint; a socket without it still works. */
    int one = 1, idle_s = 10, interval_s = 5, count = 3, lost_ms = 30000;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof lost_ms);
}

static int settings_from(const struct yolk_transport_options *o, struct tcp_settings *s)
{
    *s = (struct tcp_settings){0};
    const char *host = o->host != NULL ? o->host : "127.0.0.1";
    const char *listen_at = o->listen != NULL ? o->listen : host;
    if (strlen(host) >= sizeof s->host || strlen(listen_at) >= sizeof s->listen)
        return base_fail(YOLK_ERR_INVALID, 0, "tcp: the host name is too long");
    if (strpbrk(host, ",;=") != NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "tcp: not a host name: %s", host);
    if (o->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "tcp: the secret has more than %u bytes",
                         WIRE_SECRET_MAX);
    memcpy(s->host, host, strlen(host) + 1);
    memcpy(s->listen, listen_at, strlen(listen_at) + 1);
    s->port = o->port;
    if (o->secret != NULL) {
        memcpy(s->secret, o->secret, o->secret_size);
        s->secret_size = o->secret_size;
    }
    memcpy(s->instance, o->instance, WIRE_ID_SIZE);
    unsigned cpus = thread_cpu_count();
    s->connections_max = cpus < CONNECTIONS_LEAST ? CONNECTIONS_LEAST : cpus;
    if (s->connections_max > TCP_LINKS_MAX)
        s->connections_max = TCP_LINKS_MAX;
    if (o->connections_max != 0 && o->connections_max < s->connections_max)
        s->connections_max = o->connections_max;
    s->pollers_max = cpus / 2;
    s->workers = cpus / 2 < WORKERS_LEAST ? WORKERS_LEAST : cpus / 2;
    if (s->workers > WORKERS_MOST)
        s->workers = WORKERS_MOST;
    if (s->workers > cpus)
        s->workers = cpus;
    if (o->workers_max != 0 && s->workers > o->workers_max)
        s->workers = o->workers_max;
    s->connect_timeout_ns = (o->connect_timeout_ms != 0 ? o->connect_timeout_ms : 3000) * NS_PER_MS;
    s->stop_timeout_ns = (o->stop_timeout_ms != 0 ? o->stop_timeout_ms : 5000) * NS_PER_MS;
    s->hello_timeout_ns = 5 * NS_PER_S;
    s->stall_timeout_ns = 30 * NS_PER_S;
    s->idle_timeout_ns = 600 * NS_PER_S;
    return YOLK_OK;
}

static enum yolk_status tcp_probe(const struct yolk_transport_options *options,
                                  struct yolk_probe *out)
{
    struct tcp_settings settings;
    *out = (struct yolk_probe){.latency_ns = 60 * NS_PER_US, .bandwidth_bytes = 1 * GIB};
    int status = settings_from(options, &settings);
    if (status != YOLK_OK)
        (void)snprintf(out->reason, sizeof out->reason, "%s", yolk_last_error());
    return (enum yolk_status)status;
}

static void tcp_fini(void *endpoint)
{
    struct endpoint *e = endpoint;
    if (e->provider != NULL)
        tcp_provider_destroy(e->provider);
    if (e->consumer != NULL)
        tcp_consumer_destroy(e->consumer);
    gpu_side_fini(&e->gpu);
    explicit_bzero(&e->settings, sizeof e->settings);
    free(e);
}

static enum yolk_status tcp_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct endpoint *e = calloc(1, sizeof *e);
    if (e == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: endpoint");
    int status = gpu_side_init(&e->gpu, options);
    if (status != YOLK_OK) {
        free(e);
        return (enum yolk_status)status;
    }
    status = settings_from(options, &e->settings);
    e->settings.gpu = &e->gpu;
    if (status == YOLK_OK)
        status = tcp_provider_create(&e->settings, &e->provider);
    if (status == YOLK_OK)
        status = tcp_consumer_create(&e->settings, &e->consumer);
    if (status != YOLK_OK) {
        tcp_fini(e);
        return (enum yolk_status)status;
    }
    *endpoint = e;
    return YOLK_OK;
}

static enum yolk_status tcp_stop(void *endpoint)
{
    struct endpoint *e = endpoint;
    tcp_consumer_stop(e->consumer);
    tcp_provider_stop(e->provider);
    return YOLK_OK;
}

static void tcp_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    *out = (struct yolk_limits){
        .slice_bytes_max = TCP_LENGTH_MAX, .depth_max = TCP_DEPTH, .alignment = 1};
}

static enum yolk_status tcp_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint;
    (void)pointer;
    (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void tcp_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint;
    (void)key;
}

static enum yolk_status tcp_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                  char *text, size_t text_size)
{
    struct endpoint *e = endpoint;
    struct tcp_served *s = NULL;
    int status = tcp_provider_serve(e->provider, serve, &s, text, text_size);
    *served = s;
    return (enum yolk_status)status;
}

static void tcp_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    tcp_provider_set_segment(((struct endpoint *)endpoint)->provider, served, segment);
}

static enum yolk_status tcp_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct endpoint *e = endpoint;
    return (enum yolk_status)tcp_provider_fence(e->provider, served, session);
}

static void tcp_unserve(void *endpoint, void *served)
{
    tcp_provider_unserve(((struct endpoint *)endpoint)->provider, served);
}

static enum yolk_status tcp_open_target(void *endpoint, const char *text, uint64_t segment,
                                        uint64_t size, uint64_t session, void **target)
{
    struct endpoint *e = endpoint;
    return tcp_target_open(e->consumer, text, segment, size, session, target);
}

static void tcp_close_target(void *endpoint, void *target)
{
    tcp_target_close(((struct endpoint *)endpoint)->consumer, target);
}

static enum yolk_status tcp_open_channel(void *endpoint, void *target, void **channel)
{
    return tcp_channel_open(((struct endpoint *)endpoint)->consumer, target, channel);
}

static const struct yolk_transport_ops tcp_ops = {
    .size = sizeof(struct yolk_transport_ops),
    .abi = YOLK_TRANSPORT_ABI,
    .name = "tcp",
    .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_PEER_DEATH,
    .probe = tcp_probe,
    .init = tcp_init,
    .stop = tcp_stop,
    .fini = tcp_fini,
    .limits = tcp_limits,
    .add_buffer = tcp_add_buffer,
    .remove_buffer = tcp_remove_buffer,
    .serve = tcp_serve,
    .set_segment_id = tcp_set_segment_id,
    .fence_session = tcp_fence_session,
    .unserve = tcp_unserve,
    .open_target = tcp_open_target,
    .close_target = tcp_close_target,
    .channel_open = tcp_open_channel,
    .submit = tcp_channel_submit,
    .poll = tcp_channel_poll,
    .cancel = tcp_channel_cancel,
    .channel_close = tcp_channel_close,
    .wait_fds = tcp_channel_wait_fds,
    .flush = tcp_channel_flush,
};

const struct yolk_transport_ops *transport_tcp_ops(void)
{
    return &tcp_ops;
}
