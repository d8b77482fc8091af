/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that owns the handshake port and all its connections: it describes this process to
 * others and takes their notifications. It never waits for one of them. */
#define LOG_ROOM "peer"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "peer/internal.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "wire/msg.h"

enum {
    CONNECTIONS_MAX = 1024,
    INPUT_MAX = MAX_PEER_MESSAGE + 4096,
    OUTPUT_MAX = PEER_BUFFERS_MAX * WIRE_PEER_BUFFER_SIZE + 64 * 1024,
    READ_SIZE = 16 * 1024,
    SWEEP_MS = 1000,
    STALL_MS = 10000, /* a hello, a frame or an answer that takes longer ends the connection */
};

struct connection {
    struct base_list node;
    int fd;
    bool closing;
    bool writing;         /* EPOLLOUT is asked for */
    uint64_t deadline_ns; /* CLOCK_NEVER between frames */
    struct wire_hello_machine hello;
    struct base_buf in, out;
};

struct peer_server {
    struct peer_server_options options;
    int listener, wake, epoll;
    struct thread thread;
    struct base_list connections; /* who was heard of last is at the back */
    uint32_t connection_count;
    uint64_t logged_ns;
};

static void refuse(struct peer_server *server, struct connection *c, const char *text)
{
    uint64_t now = clock_real_now_ns();
    if (server->logged_ns == 0 || now - server->logged_ns >= NS_PER_S) {
        log_warn("connection refused: %s", text);
        server->logged_ns = now;
    }
    c->closing = true;
}

static void connection_close(struct peer_server *server, struct connection *c)
{
    base_list_remove(&c->node);
    net_close(c->fd);
    server->connection_count--;
    wire_hello_wipe(&c->hello);
    base_buf_free(&c->in);
    base_buf_free(&c->out);
    free(c);
}

/* ---- requests ---- */

static enum yolk_status describe(struct peer_server *server, const struct wire_header *header,
                                 const uint8_t *body, struct base_buf *out)
{
    struct wire_peer_describe request;
    struct base_buf buffers;
    enum yolk_status status = wire_decode(header->kind, body, header->body_size, &request);
    base_buf_init(&buffers, (size_t)PEER_BUFFERS_MAX * WIRE_PEER_BUFFER_SIZE);
    if (status == YOLK_OK && request.buffers != 0)
        status = peer_registry_describe(server->options.registry, &buffers);
    if (status == YOLK_OK) {
        const struct wire_peer_describe_reply reply = {
            .segment = server->options.segment,
            .endpoints = wire_view_text(server->options.endpoints),
            .buffers = wire_view_buf(&buffers),
        };
        status = wire_frame_encode(WIRE_PEER_DESCRIBE_REPLY, header->request_id, &reply, out);
    }
    base_buf_free(&buffers);
    return status;
}

static enum yolk_status notify(struct peer_server *server, const struct wire_header *header,
                               const uint8_t *body, struct base_buf *out)
{
    struct wire_peer_notify request;
    enum yolk_status status = wire_decode(header->kind, body, header->body_size, &request);
    if (status != YOLK_OK)
        return status;
    base_error_clear();
    if (request.name.size >= PEER_NAME_MAX || request.message.size > MAX_PEER_MESSAGE)
        status = base_fail(YOLK_ERR_TOO_LARGE, 0, "a notification of %zu and %zu bytes",
                           request.name.size, request.message.size);
    else
        status = peer_inbox_put(server->options.inbox, request.name, request.message);
    const struct wire_status_reply reply = {.status = status,
                                            .text = wire_view_text(yolk_last_error())};
    return wire_frame_encode(WIRE_PEER_NOTIFY_REPLY, header->request_id, &reply, out);
}

static void answer(struct peer_server *server, struct connection *c,
                   const struct wire_header *header, const uint8_t *body)
{
    enum yolk_status status = YOLK_ERR_PROTOCOL;
    if (header->kind == WIRE_PEER_DESCRIBE)
        status = describe(server, header, body, &c->out);
    else if (header->kind == WIRE_PEER_NOTIFY)
        status = notify(server, header, body, &c->out);
    if (status != YOLK_OK) {
        char text[128];
        snprintf(text, sizeof(text), "a %s that cannot be answered: %s",
                 wire_kind_name(header->kind), yolk_strerror(status));
        refuse(server, c, text);
    }
}

/* ---- one connection ---- */

/* The whole of one frame: the hello's or a request. */
static void take_frame(struct peer_server *server, struct connection *c,
                       const struct wire_header *header, const uint8_t *body)
{
    if (c->hello.state == WIRE_HELLO_DONE) {
        answer(server, c, header, body);
        return;
    }
    int status = wire_hello_check_header(header);
    if (status == YOLK_OK)
        status = wire_hello_input(&c->hello, header, body, &c->out);
    if (c->hello.state == WIRE_HELLO_FAILED || status != YOLK_OK)
        refuse(server, c, c->hello.text[0] != '\0' ? c->hello.text : yolk_strerror(status));
}

static void take_input(struct peer_server *server, struct connection *c)
{
    size_t used = 0;
    /* One answer at a time: who does not read what it asked for gets no more. */
    while (!c->closing && c->out.size == 0 && c->in.size - used >= WIRE_HEADER_SIZE) {
        struct wire_header header;
        const uint8_t *at = c->in.data + used;
        if (wire_header_decode(at, &header) != YOLK_OK ||
            header.body_size > INPUT_MAX - WIRE_HEADER_SIZE) {
            refuse(server, c, "no frame of ours");
            break;
        }
        if (c->in.size - used - WIRE_HEADER_SIZE < header.body_size)
            break;
        take_frame(server, c, &header, at + WIRE_HEADER_SIZE);
        used += WIRE_HEADER_SIZE + header.body_size;
    }
    base_buf_consume(&c->in, used);
}

static void send_output(struct peer_server *server, struct connection *c)
{
    while (c->out.size > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            c->closing = true;
            return;
        }
        base_buf_consume(&c->out, (size_t)n);
    }
    bool writing = c->out.size > 0;
    if (writing != c->writing) {
        struct epoll_event event = {.events = writing ? EPOLLOUT : EPOLLIN, .data.ptr = c};
        if (epoll_ctl(server->epoll, EPOLL_CTL_MOD, c->fd, &event) != 0)
            c->closing = true;
        c->writing = writing;
    }
}

static void receive(struct connection *c)
{
    ssize_t n;
    if (c->in.size >= INPUT_MAX || base_buf_reserve(&c->in, READ_SIZE) != YOLK_OK) {
        c->closing = true;
        return;
    }
    do
        n = recv(c->fd, c->in.data + c->in.size, READ_SIZE, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (n <= 0)
        c->closing = true;
    else
        c->in.size += (size_t)n;
}

static void connection_run(struct peer_server *server, struct connection *c, uint32_t events)
{
    base_list_remove(&c->node);
    base_list_push_back(&server->connections, &c->node);
    if ((events & ~(uint32_t)EPOLLOUT) != 0)
        receive(c);
    for (size_t before = SIZE_MAX; !c->closing && c->in.size < before;) {
        before = c->in.size;
        take_input(server, c);
        /* Also the last words of a hello that failed. */
        send_output(server, c);
    }
    bool idle = c->in.size == 0 && c->out.size == 0 && c->hello.state == WIRE_HELLO_DONE;
    if (idle)
        c->deadline_ns = CLOCK_NEVER;
    else if (c->deadline_ns == CLOCK_NEVER)
        c->deadline_ns = clock_after_ms(clock_real_now_ns(), STALL_MS);
    if (c->closing)
        connection_close(server, c);
}

/* ---- the thread ---- */

static void adopt(struct peer_server *server, int fd)
{
    struct wire_hello_options options = {
        .secret = server->options.secret,
        .secret_size = server->options.secret_size,
        .purposes = 1u << WIRE_PURPOSE_PEER,
    };
    struct connection *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        net_close(fd);
        return;
    }
    memcpy(options.instance, server->options.instance, WIRE_ID_SIZE);
    /* Who was silent for longest makes room, so that nobody keeps others out by staying: a peer
     * that is let go so connects anew before its next call. */
    if (server->connection_count == CONNECTIONS_MAX)
        connection_close(server, BASE_CONTAINER(server->connections.next, struct connection, node));
    c->fd = fd;
    base_buf_init(&c->in, INPUT_MAX + READ_SIZE);
    base_buf_init(&c->out, OUTPUT_MAX);
    c->deadline_ns = clock_after_ms(clock_real_now_ns(), STALL_MS);
    base_list_push_back(&server->connections, &c->node);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    server->connection_count++;
    if (wire_hello_init(&c->hello, true, &options) != YOLK_OK ||
        wire_hello_start(&c->hello, &c->out) != YOLK_OK ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        c->closing = true;
    if (c->closing)
        connection_close(server, c);
}

static void sweep(struct peer_server *server, bool all)
{
    uint64_t now = clock_real_now_ns();
    BASE_LIST_FOREACH_SAFE(node, &server->connections)
    {
        struct connection *c = BASE_CONTAINER(node, struct connection, node);
        if (!all && c->deadline_ns > now)
            continue;
        if (!all)
            refuse(server, c, "a frame was not finished in time");
        connection_close(server, c);
    }
}

static void server_main(void *arg)
{
    struct peer_server *server = arg;
    uint64_t swept_ns = clock_real_now_ns();
    for (bool stopping = false; !stopping;) {
        struct epoll_event events[32];
        int n = epoll_wait(server->epoll, events, 32, SWEEP_MS);
        bool newcomer = false;
        for (int i = 0; i < n; i++) {
            void *of = events[i].data.ptr;
            if (of == &server->wake) {
                stopping = true;
            } else if (of == &server->listener) {
                newcomer = true;
            } else {
                connection_run(server, of, events[i].events);
            }
        }
        /* After the others: it may end one of them. */
        int fd = newcomer ? net_accept_ready(server->listener) : -1;
        if (fd >= 0)
            adopt(server, fd);
        uint64_t now = clock_real_now_ns();
        if (now - swept_ns >= SWEEP_MS * NS_PER_MS) {
            sweep(server, false);
            swept_ns = now;
        }
    }
    sweep(server, true);
}

/* ---- start and stop ---- */

static enum yolk_status listen_at(struct peer_server *server, struct net_address address,
                                  uint16_t port, uint16_t *bound_port)
{
    struct net_address bound;
    net_address_set_port(&address, port);
    enum yolk_status status = net_listen(&address, 256, &server->listener, &bound);
    if (status == YOLK_OK)
        *bound_port = net_address_port(&bound);
    return status;
}

/* A free one of the range, beginning anywhere, so that processes which start together do not all
 * try the same ones. */
static enum yolk_status listen_in_range(struct peer_server *server,
                                        const struct net_address *address, uint16_t *port)
{
    const struct random random = random_real();
    uint32_t low = server->options.port_min;
    uint32_t count = server->options.port_max - low + 1;
    uint32_t first = (uint32_t)(random_u64(&random) % count);
    enum yolk_status status = YOLK_ERR_LINK;
    for (uint32_t i = 0; i < count && status != YOLK_OK; i++)
        status = listen_at(server, *address, (uint16_t)(low + (first + i) % count), port);
    return status;
}

static enum yolk_status begin(struct peer_server *server, uint16_t *port)
{
    /* Resolved once: a service of names that does not answer takes seconds for each try. */
    const char *host = server->options.listen;
    char text[NET_ADDRESS_TEXT_MAX];
    struct net_address address;
    bool v6 = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(text, sizeof(text), v6 ? "[%s]:1" : "%s:1", host);
    enum yolk_status status = net_address_parse(text, 0, &address);
    if (status == YOLK_OK)
        status = server->options.port != 0 ? listen_at(server, address, server->options.port, port)
                                           : listen_in_range(server, &address, port);
    if (status != YOLK_OK)
        return status;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->wake < 0 || server->epoll < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "eventfd, epoll");
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &server->wake};
    struct epoll_event listener = {.events = EPOLLIN, .data.ptr = &server->listener};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->wake, &wake) != 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &listener) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "epoll_ctl");
    return thread_start(&server->thread, "yolk-peer", server_main, server);
}

enum yolk_status peer_server_start(const struct peer_server_options *options,
                                   struct peer_server **out, uint16_t *port)
{
    struct peer_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the handshake's thread");
    server->options = *options;
    server->listener = server->wake = server->epoll = -1;
    base_list_init(&server->connections);
    enum yolk_status status = begin(server, port);
    if (status != YOLK_OK) {
        peer_server_stop(server);
        return status;
    }
    *out = server;
    return YOLK_OK;
}

void peer_server_stop(struct peer_server *server)
{
    if (server == NULL)
        return;
    if (server->wake >= 0) {
        static const uint64_t one = 1;
        ssize_t n = write(server->wake, &one, sizeof(one));
        (void)n; /* readable already then */
    }
    thread_join(&server->thread);
    net_close(server->listener);
    net_close(server->wake);
    net_close(server->epoll);
    free(server);
}
