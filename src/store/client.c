/* SPDX-License-Identifier: Apache-2.0 */
#include "store/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "engine/hello.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "wire/msg.h"

enum { POOL_MAX = 8 };

/* An answer usually comes within this; sleeping for it would cost more than it takes. */
enum { ANSWER_SPIN_NS = 30000 };

/* A connection that was used within this is taken for alive without asking the system. */
#define LINK_FRESH_NS (10 * CLOCK_NS_PER_MS)

/* So much of an answer comes with its header in one system call. */
enum { ANSWER_FIRST = 512 };

/* A frame whose beginning came has to end within this. */
#define FRAME_TIMEOUT_NS (5 * NS_PER_S)

struct link {
    int fd; /* -1: not connected */
    int busy;
    uint64_t used_ns; /* the last answer came then */
};

struct store_client {
    struct store_client_options options;
    struct net_address address;
    char *master;
    int wake_fd; /* eventfd */

    struct mutex lock; /* protects pool */
    struct condition freed;
    struct link pool[POOL_MAX];
    uint64_t next_request; /* under lock */

    int control_fd; /* of the control thread */
    struct base_buf control_out;
    char local_host[NET_ADDRESS_TEXT_MAX];
    uint64_t features; /* of the master; under the lock */
};

int store_client_create(const struct store_client_options *options, struct store_client **out)
{
    struct store_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the way to the master");
    client->options = *options;
    client->control_fd = -1;
    client->wake_fd = -1;
    for (size_t i = 0; i < POOL_MAX; i++)
        client->pool[i].fd = -1;
    mutex_init(&client->lock);
    condition_init(&client->freed);
    base_buf_init(&client->control_out, MAX_FRAME_BODY + WIRE_HEADER_SIZE);
    int status = YOLK_OK;
    if (options->embedded == NULL) {
        client->master = strdup(options->master);
        status = client->master == NULL
                     ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an address")
                     : net_address_parse(options->master, 0, &client->address);
    }
    if (status == YOLK_OK) {
        client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (client->wake_fd < 0)
            status = base_fail(YOLK_ERR_SYSTEM, 0, "cannot make an eventfd");
    }
    if (status != YOLK_OK) {
        store_client_destroy(client);
        return status;
    }
    *out = client;
    return YOLK_OK;
}

void store_client_destroy(struct store_client *client)
{
    if (client == NULL)
        return;
    store_client_control_close(client);
    for (size_t i = 0; i < POOL_MAX; i++)
        net_close(client->pool[i].fd);
    if (client->wake_fd >= 0)
        close(client->wake_fd);
    base_buf_free(&client->control_out);
    condition_destroy(&client->freed);
    mutex_destroy(&client->lock);
    free(client->master);
    free(client);
}

static void note_hello(struct store_client *client, const struct wire_hello_machine *hello,
                       uint8_t *instance)
{
    if (instance != NULL)
        memcpy(instance, hello->peer_instance, 16);
    mutex_lock(&client->lock);
    client->features = hello->features;
    mutex_unlock(&client->lock);
}

uint64_t store_client_features(struct store_client *client)
{
    if (client->options.embedded != NULL)
        return WIRE_FEATURES;
    mutex_lock(&client->lock);
    uint64_t features = client->features;
    mutex_unlock(&client->lock);
    return features;
}

/* Connects and says hello. */
static int connect_master(struct store_client *client, uint32_t purpose, uint64_t session,
                          uint64_t deadline_ns, int *fd, uint8_t *instance)
{
    uint64_t latest = clock_after_ms(clock_real_now_ns(), client->options.connect_timeout_ms);
    if (deadline_ns > latest)
        deadline_ns = latest;
    int made = -1;
    int status = net_connect(&client->address, deadline_ns, &made);
    if (status != YOLK_OK)
        return base_fail_context(status, "cannot reach the master");
    struct wire_hello_options options = {
        .secret = client->options.secret,
        .secret_size = client->options.secret_size,
        .role = client->options.role,
        .purpose = purpose,
        .session = session,
        .features = WIRE_FEATURES,
    };
    memcpy(options.instance, client->options.instance, sizeof(options.instance));
    struct wire_hello_machine hello;
    status = wire_hello_init(&hello, false, &options);
    if (status == YOLK_OK) {
        status = engine_hello_run(&hello, made, deadline_ns);
        if (status != YOLK_OK)
            (void)base_fail(status, 0, "the master at %s: %s", client->master,
                            hello.text[0] != '\0' ? hello.text : yolk_strerror(status));
        else
            note_hello(client, &hello, instance);
        wire_hello_wipe(&hello);
    }
    if (status != YOLK_OK) {
        net_close(made);
        return status;
    }
    *fd = made;
    return YOLK_OK;
}

/* ---- calls ---- */

/* A free link, connected ones first; NULL at the deadline. */
static struct link *take_link(struct store_client *client, uint64_t deadline_ns, uint64_t *request)
{
    struct link *taken = NULL;
    mutex_lock(&client->lock);
    for (;;) {
        for (size_t i = 0; i < POOL_MAX; i++) {
            struct link *link = &client->pool[i];
            if (!link->busy && (taken == NULL || (taken->fd < 0 && link->fd >= 0)))
                taken = link;
        }
        if (taken != NULL || !condition_wait_until(&client->freed, &client->lock, deadline_ns))
            break;
    }
    if (taken != NULL) {
        taken->busy = 1;
        *request = ++client->next_request;
    }
    mutex_unlock(&client->lock);
    return taken;
}

static void give_link(struct store_client *client, struct link *link)
{
    mutex_lock(&client->lock);
    link->busy = 0;
    condition_signal(&client->freed);
    mutex_unlock(&client->lock);
}

/* What has come and was not looked at yet. */
struct arrived {
    uint8_t bytes[ANSWER_FIRST];
    size_t size;
};

static void arrived_take(struct arrived *arrived, void *to, size_t size)
{
    memcpy(to, arrived->bytes, size);
    arrived->size -= size;
    memmove(arrived->bytes, arrived->bytes + size, arrived->size);
}

/* One frame: its body in *body. */
static int receive_answer(int fd, struct arrived *arrived, uint64_t deadline_ns,
                          struct wire_header *header, struct base_buf *body)
{
    uint8_t head[WIRE_HEADER_SIZE];
    while (arrived->size < sizeof(head)) {
        size_t got = 0;
        int status = net_recv_some_spin(fd, arrived->bytes + arrived->size,
                                        sizeof(arrived->bytes) - arrived->size, deadline_ns,
                                        ANSWER_SPIN_NS, &got);
        if (status == YOLK_ERR_EOF && arrived->size > 0)
            return base_fail(YOLK_ERR_LINK, 0, "the master closed in the middle of an answer");
        if (status != YOLK_OK)
            return status;
        arrived->size += got;
    }
    arrived_take(arrived, head, sizeof(head));
    int status = wire_header_decode(head, header);
    base_buf_clear(body);
    if (status != YOLK_OK || header->body_size == 0)
        return status;
    uint8_t *to = base_buf_extend(body, header->body_size);
    if (to == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an answer of %u bytes",
                         header->body_size);
    size_t here = arrived->size < header->body_size ? arrived->size : header->body_size;
    arrived_take(arrived, to, here);
    return here == header->body_size
               ? YOLK_OK
               : net_recv_all(fd, to + here, header->body_size - here, deadline_ns);
}

/* *more: something came behind the answer, so the connection is of no use for another one. */
static int exchange(int fd, const struct wire_header *header, const uint8_t *body,
                    uint64_t deadline_ns, uint16_t *reply_kind, struct base_buf *reply, bool *more)
{
    uint8_t head[WIRE_HEADER_SIZE];
    struct wire_header answer;
    struct arrived arrived;
    arrived.size = 0;
    wire_header_encode(header, head);
    struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)body, header->body_size}};
    int status = net_sendv_all(fd, parts, header->body_size > 0 ? 2 : 1, deadline_ns);
    do { /* an error may be said before the request was read */
        if (status == YOLK_OK)
            status = receive_answer(fd, &arrived, deadline_ns, &answer, reply);
        if (status != YOLK_OK)
            return status;
    } while (answer.request_id != header->request_id && answer.kind != WIRE_ERROR);
    *reply_kind = answer.kind;
    *more = arrived.size > 0;
    return YOLK_OK;
}

int store_client_call(struct store_client *client, uint16_t kind, const uint8_t *body, size_t size,
                      uint64_t deadline_ns, uint16_t *reply_kind, struct base_buf *reply)
{
    if (client->options.embedded != NULL)
        return store_embedded_call(client->options.embedded, kind, body, size, deadline_ns,
                                   reply_kind, reply);
    struct wire_header header = {kind, (uint32_t)size, 0};
    struct link *link = take_link(client, deadline_ns, &header.request_id);
    if (link == NULL)
        return base_fail(YOLK_ERR_TIMEOUT, 0, "all connections to the master stayed busy");
    int status = YOLK_OK;
    /* A pooled connection may have died while idle (the master restarted): not this call's fault.
     */
    if (link->fd >= 0 && clock_real_now_ns() - link->used_ns > LINK_FRESH_NS &&
        net_is_dead(link->fd)) {
        net_close(link->fd);
        link->fd = -1;
    }
    if (link->fd < 0)
        status = connect_master(client, WIRE_PURPOSE_CONTROL, 0, deadline_ns, &link->fd, NULL);
    if (status == YOLK_OK) {
        bool more = false;
        status = exchange(link->fd, &header, body, deadline_ns, reply_kind, reply, &more);
        link->used_ns = clock_real_now_ns();
        if (status == YOLK_ERR_EOF)
            status = base_fail(YOLK_ERR_LINK, 0, "the master at %s closed the connection",
                               client->master);
        if (status != YOLK_OK || more) {
            net_close(link->fd);
            link->fd = -1;
        }
    }
    give_link(client, link);
    return status;
}

/* ---- the control connection ---- */

int store_client_control_open(struct store_client *client, uint64_t session, uint8_t instance[16])
{
    store_client_control_close(client);
    if (client->options.embedded != NULL) {
        store_embedded_control_open(client->options.embedded, client->wake_fd);
        memcpy(instance, store_embedded_instance(client->options.embedded), 16);
        return YOLK_OK;
    }
    int status = connect_master(client, WIRE_PURPOSE_CONTROL, session, CLOCK_NEVER,
                                &client->control_fd, instance);
    if (status != YOLK_OK)
        return status;
    struct net_address local;
    client->local_host[0] = '\0';
    if (!net_address_is_unix(&client->address) &&
        net_local_address(client->control_fd, &local) == YOLK_OK) {
        net_address_format(&local, client->local_host, sizeof(client->local_host));
        char *colon = strrchr(client->local_host, ':');
        if (colon != NULL)
            *colon = '\0';
    }
    return YOLK_OK;
}

void store_client_control_close(struct store_client *client)
{
    if (client->options.embedded != NULL) {
        store_embedded_control_close(client->options.embedded);
        return;
    }
    net_close(client->control_fd);
    client->control_fd = -1;
}

int store_client_control_send(struct store_client *client, uint16_t kind, uint64_t request_id,
                              const uint8_t *body, size_t size)
{
    if (client->options.embedded != NULL)
        return store_embedded_control_send(client->options.embedded, kind, request_id, body, size);
    if (client->control_fd < 0)
        return YOLK_ERR_LINK;
    uint8_t head[WIRE_HEADER_SIZE];
    struct wire_header header = {kind, (uint32_t)size, request_id};
    wire_header_encode(&header, head);
    struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)body, size}};
    return net_sendv_all(client->control_fd, parts, size > 0 ? 2 : 1,
                         clock_real_now_ns() + FRAME_TIMEOUT_NS);
}

static int read_frame(int fd, struct wire_header *header, struct base_buf *body)
{
    uint8_t head[WIRE_HEADER_SIZE];
    uint64_t deadline_ns = clock_real_now_ns() + FRAME_TIMEOUT_NS;
    int status = net_recv_all(fd, head, sizeof(head), deadline_ns);
    if (status == YOLK_OK)
        status = wire_header_decode(head, header);
    if (status != YOLK_OK)
        return status;
    base_buf_clear(body);
    if (header->body_size == 0)
        return YOLK_OK;
    uint8_t *to = base_buf_extend(body, header->body_size);
    if (to == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a frame of %u bytes",
                         header->body_size);
    return net_recv_all(fd, to, header->body_size, deadline_ns);
}

static int timeout_until(uint64_t deadline_ns)
{
    uint64_t now = clock_real_now_ns();
    if (deadline_ns <= now)
        return 0;
    uint64_t ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > 60000 ? 60000 : (int)ms;
}

int store_client_control_receive(struct store_client *client, uint64_t deadline_ns,
                                 struct wire_header *header, struct base_buf *body)
{
    struct store_embedded *embedded = client->options.embedded;
    if (embedded != NULL) {
        uint64_t tick_ns = store_embedded_tick(embedded);
        if (store_embedded_control_receive(embedded, header, body) == YOLK_OK)
            return YOLK_OK;
        if (tick_ns < deadline_ns)
            deadline_ns = tick_ns;
    }
    struct pollfd fds[2] = {{.fd = client->wake_fd, .events = POLLIN},
                            {.fd = client->control_fd, .events = POLLIN}};
    int ready = poll(fds, client->control_fd >= 0 ? 2 : 1, timeout_until(deadline_ns));
    if (ready > 0 && (fds[0].revents & POLLIN) != 0) {
        uint64_t count;
        if (read(client->wake_fd, &count, sizeof(count)) < 0)
            count = 0; /* another look found it empty: nothing to do */
    }
    if (embedded != NULL)
        return store_embedded_control_receive(embedded, header, body);
    if (ready <= 0 || client->control_fd < 0 || fds[1].revents == 0)
        return YOLK_ERR_AGAIN;
    int status = read_frame(client->control_fd, header, body);
    /* Any failure in the middle of a frame ends the link; AGAIN would be taken for "none came". */
    return status == YOLK_OK ? YOLK_OK : YOLK_ERR_LINK;
}

void store_client_wake(struct store_client *client)
{
    uint64_t one = 1;
    if (write(client->wake_fd, &one, sizeof(one)) < 0)
        return; /* full: the thread is awake already */
}

void store_client_local_host(struct store_client *client, char *text, size_t size)
{
    snprintf(text, size, "%s", client->local_host);
}
