/* SPDX-License-Identifier: Apache-2.0 */
/* Dummy clients and their real client, on one machine (docs/decisions/0012). A dummy client is a
 * store without a segment, which asks the real client how to open: bytes then go straight between
 * the dummy's memory and the segments, through shared memory. */
#define LOG_ROOM "store"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/random.h"
#include "store/internal.h"
#include "wire/hello.h"
#include "wire/msg.h"

enum { ANSWER_MS = 1000, ASK_MS = 3000, AGAIN_MS = 50, BACKLOG = 64 };

/* ---- one connection, both sides ---- */

struct line {
    int fd;
    uint64_t deadline_ns;
};

static int line_send(void *self, const void *data, size_t size)
{
    const struct line *line = self;
    return net_send_all(line->fd, data, size, line->deadline_ns);
}

static int line_recv(void *self, void *data, size_t size)
{
    const struct line *line = self;
    return net_recv_all(line->fd, data, size, line->deadline_ns);
}

static int greet(struct line *line, const struct yolk_store *store, bool server)
{
    struct wire_hello_machine hello;
    struct wire_hello_io io = {line, line_send, line_recv};
    struct random random = random_real();
    struct wire_hello_options options = {
        .secret = store->secret,
        .secret_size = store->secret_size,
        .features = WIRE_FEATURES,
        .role = WIRE_ROLE_CLIENT,
        .purpose = WIRE_PURPOSE_CONTROL,
        .purposes = 1u << WIRE_PURPOSE_CONTROL,
    };
    random_bytes(&random, options.instance, sizeof(options.instance));
    int status = wire_hello_init(&hello, server, &options);
    if (status != YOLK_OK)
        return status;
    status = wire_hello_run(&hello, &io);
    if (status != YOLK_OK && hello.text[0] != '\0')
        (void)base_fail(status, 0, "%s", hello.text);
    wire_hello_wipe(&hello);
    return status;
}

/* The next frame, which is to be of this kind. */
static int receive(struct line *line, uint16_t kind, struct base_buf *body)
{
    uint8_t head[WIRE_HEADER_SIZE];
    struct wire_header header;
    int status = line_recv(line, head, sizeof(head));
    if (status == YOLK_OK)
        status = wire_header_decode(head, &header);
    if (status == YOLK_OK && header.kind != kind)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "%s came where %s was expected",
                           wire_kind_name(header.kind), wire_kind_name(kind));
    if (status != YOLK_OK || header.body_size == 0)
        return status;
    uint8_t *to = base_buf_extend(body, header.body_size);
    return to == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a message")
                      : line_recv(line, to, header.body_size);
}

static int transmit(struct line *line, uint16_t kind, const void *message)
{
    struct base_buf frame;
    base_buf_init(&frame, MAX_FRAME_BODY);
    int status = wire_frame_encode(kind, 1, message, &frame);
    if (status == YOLK_OK)
        status = line_send(line, frame.data, frame.size);
    base_buf_free(&frame);
    return status;
}

/* ---- the real client ---- */

struct store_host {
    struct thread thread;
    int listener;
    int wake;
};

static void answer(struct yolk_store *store, int fd)
{
    struct line line = {fd, clock_after_ms(clock_real_now_ns(), ANSWER_MS)};
    struct wire_plain_request request;
    struct wire_client_setup_reply reply = {
        .master = wire_view_text(store->master),
        .tenant = wire_view_text(store->tenant),
        .name = wire_view_text(store->name),
    };
    struct base_buf body;
    base_buf_init(&body, MAX_FRAME_BODY);
    int status = greet(&line, store, true);
    if (status == YOLK_OK)
        status = receive(&line, WIRE_CLIENT_SETUP, &body);
    if (status == YOLK_OK)
        status = wire_decode(WIRE_CLIENT_SETUP, body.data, body.size, &request);
    if (status == YOLK_OK)
        status = transmit(&line, WIRE_CLIENT_SETUP_REPLY, &reply);
    if (status != YOLK_OK)
        log_warn("a dummy client was not answered: %s", yolk_last_error());
    base_buf_free(&body);
}

static void host_main(void *arg)
{
    struct yolk_store *store = arg;
    const struct store_host *host = store->clients;
    for (;;) {
        struct pollfd fds[2] = {{host->listener, POLLIN, 0}, {host->wake, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            return;
        int fd = net_accept_ready(host->listener);
        if (fd < 0)
            continue;
        answer(store, fd);
        net_close(fd);
    }
}

void store_host_stop(struct yolk_store *store)
{
    struct store_host *host = store->clients;
    if (host == NULL)
        return;
    uint64_t one = 1;
    if (write(host->wake, &one, sizeof(one)) != (ssize_t)sizeof(one))
        log_error("cannot wake the thread that answers dummy clients");
    thread_join(&host->thread);
    net_listener_close(host->listener);
    close(host->wake);
    free(host);
    store->clients = NULL;
}

static int host_start(struct yolk_store *store, const char *address, uint16_t *port)
{
    struct net_address wanted, bound;
    int status = net_address_parse(address, 0, &wanted);
    if (status != YOLK_OK)
        return status;
    struct store_host *host = calloc(1, sizeof(*host));
    if (host == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for dummy clients");
    host->wake = eventfd(0, EFD_CLOEXEC);
    host->listener = -1;
    if (host->wake < 0)
        status = base_fail(YOLK_ERR_SYSTEM, 0, "cannot make an eventfd");
    if (status == YOLK_OK)
        status = net_listen(&wanted, BACKLOG, &host->listener, &bound);
    store->clients = host;
    if (status == YOLK_OK)
        status = thread_start(&host->thread, "yolk-clients", host_main, store);
    if (status != YOLK_OK) {
        store->clients = NULL;
        if (host->listener >= 0)
            net_listener_close(host->listener);
        if (host->wake >= 0)
            close(host->wake);
        free(host);
        return base_fail_context(status, "cannot answer dummy clients at %s", address);
    }
    if (port != NULL)
        *port = net_address_port(&bound);
    return YOLK_OK;
}

enum yolk_status yolk_store_serve_clients(struct yolk_store *store, const char *address,
                                          uint16_t *port_out)
{
    if (address == NULL || address[0] == '\0')
        return base_fail(YOLK_ERR_INVALID, 0, "serve_clients without an address");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&store->lock);
    if (store->embedded != NULL)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0,
                           "an embedded master serves this process only: dummy clients need one "
                           "with an address");
    else if (store->clients != NULL)
        status = base_fail(YOLK_ERR_EXISTS, 0, "dummy clients are answered already");
    else
        status = host_start(store, address, port_out);
    mutex_unlock(&store->lock);
    store_leave(store);
    return status;
}

/* ---- the dummy client ---- */

static int take_text(struct wire_view view, char **out)
{
    free(*out);
    *out = strndup((const char *)view.data, view.size);
    return *out != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a store");
}

static int take_reply(struct yolk_store *store, const struct base_buf *body)
{
    struct wire_client_setup_reply reply;
    int status = wire_decode(WIRE_CLIENT_SETUP_REPLY, body->data, body->size, &reply);
    if (status == YOLK_OK && reply.status != YOLK_OK)
        status = base_fail(reply.status, 0, "the real client refused");
    if (status == YOLK_OK && reply.master.size == 0)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "the real client named no master");
    if (status == YOLK_OK)
        status = take_text(reply.master, &store->master);
    if (status != YOLK_OK || store->options.tenant_id != NULL || reply.tenant.size == 0)
        return status;
    char *tenant = NULL;
    status = take_text(reply.tenant, &tenant);
    if (status == YOLK_OK)
        status = store_take_tenant(store, tenant);
    free(tenant);
    return status;
}

static int ask_once(struct yolk_store *store, const struct net_address *address,
                    uint64_t deadline_ns)
{
    uint64_t latest = clock_after_ms(clock_real_now_ns(), ASK_MS);
    struct line line = {-1, deadline_ns < latest ? deadline_ns : latest};
    struct wire_plain_request request = {.request = {.session = 0}};
    struct base_buf body;
    int status = net_connect(address, line.deadline_ns, &line.fd);
    if (status != YOLK_OK)
        return status;
    base_buf_init(&body, MAX_FRAME_BODY);
    status = greet(&line, store, false);
    if (status == YOLK_OK)
        status = transmit(&line, WIRE_CLIENT_SETUP, &request);
    if (status == YOLK_OK)
        status = receive(&line, WIRE_CLIENT_SETUP_REPLY, &body);
    if (status == YOLK_OK)
        status = take_reply(store, &body);
    base_buf_free(&body);
    net_close(line.fd);
    return status;
}

int store_ask_real_client(struct yolk_store *store, uint64_t deadline_ns)
{
    const char *at = store->options.real_client;
    struct net_address address;
    uint64_t refused_ns = 0;
    int status = net_address_parse(at, 0, &address);
    if (status != YOLK_OK)
        return base_fail_context(YOLK_ERR_CONFIG, "store option real_client is \"%s\"", at);
    for (;;) {
        status = ask_once(store, &address, deadline_ns);
        /* It may be about to start. */
        bool again = status == YOLK_ERR_TIMEOUT || yolk_status_scope(status) == YOLK_SCOPE_LINK;
        if (status == YOLK_ERR_PROTOCOL)
            again = false;
        if (!again || clock_real_now_ns() >= deadline_ns ||
            store_is_hopeless(store, status, &refused_ns))
            break;
        usleep(AGAIN_MS * 1000);
    }
    return status == YOLK_OK
               ? YOLK_OK
               : base_fail_context(status,
                                   "the real client at %s does not say how to reach the "
                                   "master (start it first: yolk node, mooncake_client)",
                                   at);
}

/* ---- the pool ---- */

int store_make_pool(struct yolk_store *store)
{
    uint64_t size = store->options.pool_size_bytes;
    if (size == 0)
        return YOLK_OK;
    int status = yolk_engine_memory_alloc(store->engine, size, &store->pool);
    if (status != YOLK_OK)
        return base_fail_context(status, "no pool of %llu bytes", (unsigned long long)size);
    status = yolk_engine_register(store->engine, store->pool.pointer, store->pool.size);
    store->pool_registered = status == YOLK_OK;
    return status;
}

int store_end_pool(struct yolk_store *store)
{
    if (store->pool.pointer == NULL)
        return YOLK_OK;
    int status =
        store->pool_registered
            ? (int)yolk_engine_unregister(store->engine, store->pool.pointer, store->pool.size)
            : YOLK_OK;
    if (status == YOLK_ERR_BUSY)
        return status;
    yolk_engine_memory_free(store->engine, &store->pool);
    store->pool.pointer = NULL;
    return YOLK_OK;
}

enum yolk_status yolk_store_pool_alloc(struct yolk_store *store, size_t size, void **out)
{
    if (out == NULL || size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "pool_alloc needs a size and a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    mutex_lock(&store->lock);
    uint64_t room = store->pool.pointer == NULL ? 0 : store->pool.size - store->pool_used;
    if (size > room) {
        status = base_fail(YOLK_ERR_NO_SPACE, 0,
                           "the pool has %llu bytes left, not %zu: it was opened with "
                           "pool_size_bytes %llu",
                           (unsigned long long)room, size,
                           (unsigned long long)store->options.pool_size_bytes);
    } else {
        *out = (uint8_t *)store->pool.pointer + store->pool_used;
        uint64_t taken = (size + page - 1) / page * page;
        store->pool_used += taken < room ? taken : room;
    }
    mutex_unlock(&store->lock);
    store_leave(store);
    return status;
}
