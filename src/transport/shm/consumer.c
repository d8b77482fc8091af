/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer side. A target has two links, one that maps for reading and one, made at the first
 * write, that maps for writing. A run of copies, from the first submit to the flush behind it,
 * counts itself as a user of its link's mapping; a link that is to go is unmapped when the last
 * user has left, and closed after that.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "transport/shm/consumer.h"

enum {
    INPUT_MAX = 2048,
    BACKOFF_MIN_MS = 10,
    BACKOFF_MAX_MS = 1000,
    MAP_WAIT_MS = 200, /* of one call; its caller would rather wait than have a copy */
};

/* ---- the end of a link ---- */

/* Unmaps before it closes: the provider takes the closing as proof. Holds the mutex. */
static void link_reset(struct shm_link *l)
{
    if (l->data.address != NULL)
        memory_unmap(&l->data);
    if (l->page.address != NULL)
        memory_unmap(&l->page);
    l->data = l->page = (struct memory_mapping){0};
    free((void *)l->ahead);
    l->ahead = NULL;
    net_close(l->fd);
    l->fd = -1;
    wire_hello_wipe(&l->hello);
    base_buf_free(&l->out);
    base_buf_free(&l->in);
    l->state = SHM_CLOSED;
    l->dead = YOLK_OK;
}

static void link_release_if_dead(struct shm_link *l)
{
    if (l->dead != YOLK_OK && l->users == 0 && !l->pinned)
        link_reset(l);
}

static int link_fail(struct shm_link *l, int status)
{
    l->last_status = status;
    (void)snprintf(l->last_text, sizeof l->last_text, "%s", yolk_last_error());
    if (l->backoff_ns < BACKOFF_MIN_MS * NS_PER_MS)
        l->backoff_ns = BACKOFF_MIN_MS * NS_PER_MS;
    l->retry_ns = clock_after(clock_real_now_ns(), l->backoff_ns);
    l->backoff_ns *= 2;
    if (l->backoff_ns > BACKOFF_MAX_MS * NS_PER_MS)
        l->backoff_ns = BACKOFF_MAX_MS * NS_PER_MS;
    link_reset(l);
    return status;
}

/* ---- connecting ---- */

static int connect_status(const struct shm_link *l, int error)
{
    if (l->was_ready || error == ECONNREFUSED)
        return base_fail(YOLK_ERR_PEER_DEAD, error, "shm: the provider is gone");
    return base_fail(YOLK_ERR_NO_ROUTE, error,
                     "shm: its socket is not here (another machine, container or user)");
}

static int link_open(struct shm_link *l)
{
    struct shm_target *t = l->target;
    struct wire_hello_options options;
    uint64_t now = clock_real_now_ns();
    if (now < l->retry_ns)
        return base_fail(l->last_status, 0, "%s (tried a moment ago)", l->last_text);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: socket");
    if (connect(l->fd, (const struct sockaddr *)&t->address.storage, t->address.size) != 0) {
        int status = errno == EAGAIN ? base_fail(YOLK_ERR_LIMIT, 0, "shm: the provider is busy")
                                     : connect_status(l, errno);
        return link_fail(l, status);
    }
    base_buf_init(&l->out, INPUT_MAX);
    base_buf_init(&l->in, INPUT_MAX);
    shm_wire_options(t->settings, t->session, &options);
    int status = shm_check_peer(l->fd);
    if (status == YOLK_OK)
        status = wire_hello_init(&l->hello, false, &options);
    if (status == YOLK_OK)
        status = wire_hello_start(&l->hello, &l->out);
    if (status != YOLK_OK)
        return link_fail(l, status);
    l->deadline_ns = clock_after(now, t->settings->connect_timeout_ns);
    l->state = SHM_HELLO;
    return YOLK_OK;
}

static int hello_finished(struct shm_link *l)
{
    char instance[SHM_INSTANCE_TEXT];
    uint8_t bytes[SHM_OPEN_SIZE];
    struct shm_open open = {.segment = l->target->segment, .writable = l->writable};
    shm_instance_format(l->hello.peer_instance, instance);
    if (strcmp(instance, l->target->instance) != 0)
        return base_fail(YOLK_ERR_STALE, 0, "shm: another process answers at that socket now");
    wire_hello_wipe(&l->hello);
    shm_open_encode(&open, bytes);
    base_buf_clear(&l->in);
    l->state = SHM_WAIT_OPENED;
    return shm_send_fds(l->fd, bytes, sizeof bytes, NULL, 0);
}

static int step_hello(struct shm_link *l)
{
    struct wire_header header;
    size_t got = 0, want = WIRE_HEADER_SIZE;
    int fds[2];
    if (l->out.size > 0) {
        int status = shm_send_fds(l->fd, l->out.data, l->out.size, NULL, 0);
        if (status != YOLK_OK)
            return status;
        base_buf_clear(&l->out);
    }
    if (l->hello.state == WIRE_HELLO_DONE)
        return hello_finished(l);
    if (l->in.size >= WIRE_HEADER_SIZE) {
        int status = wire_header_decode(l->in.data, &header);
        if (status != YOLK_OK)
            return status;
        if (header.kind > WIRE_ERROR || header.body_size > INPUT_MAX - WIRE_HEADER_SIZE)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: not a hello");
        want += header.body_size;
    }
    if (l->in.size == want) {
        int status = wire_hello_input(&l->hello, &header, l->in.data + WIRE_HEADER_SIZE, &l->out);
        base_buf_clear(&l->in);
        return status;
    }
    size_t more = want - l->in.size;
    int status = base_buf_reserve(&l->in, more);
    if (status != YOLK_OK)
        return status;
    status = shm_receive_fds(l->fd, l->in.data + l->in.size, more, &got, fds);
    net_close(fds[0]);
    net_close(fds[1]);
    if (status == YOLK_OK)
        l->in.size += got;
    return status;
}

/* Maps what was handed over; memory_map refuses a descriptor that could shrink under us. */
static int link_map(struct shm_link *l, const struct shm_opened *opened, const int fds[2])
{
    char instance[SHM_INSTANCE_TEXT];
    if (fds[0] < 0 || fds[1] < 0)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: no descriptors came");
    int status = memory_map(fds[0], opened->map_size,
                            l->writable ? MEMORY_READ_WRITE : MEMORY_READ_ONLY, &l->data);
    if (status == YOLK_OK)
        status = memory_map(fds[1], memory_page_size(), MEMORY_READ_ONLY, &l->page);
    if (status != YOLK_OK)
        return status;
    /* A child that is forked meanwhile must not keep a mapping that nobody counts. */
    (void)madvise(l->data.address, l->data.size, MADV_DONTFORK);
    l->ahead = calloc(l->data.size / SHM_AHEAD_STEP + 1, sizeof *l->ahead);
    const struct shm_header *header = l->page.address;
    shm_instance_format(header->instance, instance);
    if (header->magic != SHM_HEADER_MAGIC || strcmp(instance, l->target->instance) != 0)
        return base_fail(YOLK_ERR_STALE, 0, "shm: the header page is of another provider");
    l->size = opened->size;
    l->state = SHM_READY;
    l->was_ready = true;
    l->backoff_ns = 0;
    return YOLK_OK;
}

static int step_opened(struct shm_link *l)
{
    uint8_t bytes[SHM_OPENED_SIZE];
    struct shm_opened opened;
    size_t got;
    int fds[2];
    int status = shm_receive_fds(l->fd, bytes, sizeof bytes, &got, fds);
    if (status == YOLK_OK && got != sizeof bytes)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "shm: a torn message");
    if (status == YOLK_OK)
        status = shm_opened_decode(bytes, &opened);
    if (status == YOLK_OK && opened.status != YOLK_OK)
        status = base_fail(opened.status, 0, "shm: the provider refused: %s",
                           yolk_strerror(opened.status));
    if (status == YOLK_OK)
        status = link_map(l, &opened, fds);
    net_close(fds[0]);
    net_close(fds[1]);
    return status;
}

/* OK: ready. AGAIN: not yet. Holds the mutex. */
static int link_drive(struct shm_link *l)
{
    int status = YOLK_OK;
    link_release_if_dead(l);
    if (l->dead != YOLK_OK)
        return base_fail(l->dead, 0, "shm: the provider ended the mapping");
    if (l->state == SHM_CLOSED)
        status = link_open(l);
    if (status != YOLK_OK)
        return status;
    while (status == YOLK_OK && l->state != SHM_READY)
        status = l->state == SHM_HELLO ? step_hello(l) : step_opened(l);
    if (status == YOLK_ERR_AGAIN && clock_real_now_ns() >= l->deadline_ns)
        status = base_fail(YOLK_ERR_TIMEOUT, 0, "shm: the provider does not answer");
    if (status != YOLK_OK && status != YOLK_ERR_AGAIN)
        return link_fail(l, status);
    return status;
}

/* ---- using it ---- */

/* Lets go of a mapping that the provider has ended. Holds the mutex. */
static int link_look(struct shm_link *l)
{
    if (l->state != SHM_READY || l->dead != YOLK_OK)
        return l->dead;
    if (shm_link_segment(l) != l->target->segment)
        l->dead = base_fail(YOLK_ERR_STALE, 0, "shm: the segment has another id now");
    else if (net_is_dead(l->fd))
        l->dead = base_fail(YOLK_ERR_PEER_DEAD, 0, "shm: the provider ended the connection");
    int status = l->dead;
    link_release_if_dead(l);
    return status;
}

/* A fence waits for both links, but a caller that only reads comes by only one. */
static void link_look_at_other(struct shm_link *l)
{
    struct shm_link *other = &l->target->links[l->writable ? 0 : 1];
    mutex_lock(&other->mutex);
    (void)link_look(other);
    mutex_unlock(&other->mutex);
}

int shm_link_enter(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    int status = link_drive(l);
    if (status == YOLK_OK)
        status = link_look(l);
    if (status == YOLK_OK)
        l->users++;
    mutex_unlock(&l->mutex);
    if (status != YOLK_OK && status != YOLK_ERR_AGAIN)
        link_look_at_other(l);
    return status;
}

void shm_link_leave(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    l->users--;
    link_release_if_dead(l);
    mutex_unlock(&l->mutex);
}

int shm_link_connect(struct shm_link *l, uint64_t until_ns)
{
    for (;;) {
        int status = shm_link_enter(l);
        if (status == YOLK_OK)
            shm_link_leave(l);
        if (status != YOLK_ERR_AGAIN)
            return status;
        if (clock_real_now_ns() >= until_ns)
            return base_fail(YOLK_ERR_AGAIN, 0, "shm: still connecting");
        mutex_lock(&l->mutex);
        struct pollfd p = {l->fd, POLLIN, 0};
        mutex_unlock(&l->mutex);
        /* Short: another thread may drive it on meanwhile. */
        (void)poll(&p, 1, 10);
    }
}

/* ---- the interface ---- */

static int target_parse(struct shm_target *t, const char *text)
{
    char path[108];
    const char *comma = strrchr(text, ',');
    if (comma == NULL || strlen(comma + 1) != SHM_INSTANCE_TEXT - 1 ||
        (size_t)(comma - text) >= sizeof path)
        return base_fail(YOLK_ERR_INVALID, 0, "shm: not an endpoint: %.200s", text);
    memcpy(path, text, (size_t)(comma - text));
    path[comma - text] = '\0';
    memcpy(t->instance, comma + 1, SHM_INSTANCE_TEXT);
    return net_address_unix(path, &t->address);
}

enum yolk_status shm_target_open(const struct shm_settings *settings, const char *text,
                                 uint64_t segment, uint64_t size, uint64_t session, void **out)
{
    struct shm_target *t = calloc(1, sizeof *t);
    if (t == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: target");
    int status = target_parse(t, text);
    if (status != YOLK_OK) {
        free(t);
        return (enum yolk_status)status;
    }
    t->settings = settings;
    t->segment = segment;
    t->size = size;
    t->session = session;
    for (int i = 0; i < 2; i++) {
        t->links[i].target = t;
        t->links[i].writable = i == 1;
        t->links[i].fd = -1;
        mutex_init(&t->links[i].mutex);
    }
    *out = t;
    return YOLK_OK;
}

void shm_target_close(void *target)
{
    struct shm_target *t = target;
    for (int i = 0; i < 2; i++) {
        link_reset(&t->links[i]);
        mutex_destroy(&t->links[i].mutex);
    }
    free(t);
}

enum yolk_status shm_target_map(void *target, const void **base, uint64_t *size)
{
    struct shm_target *t = target;
    struct shm_link *l = &t->links[0];
    int status = shm_link_connect(l, clock_after_ms(clock_real_now_ns(), MAP_WAIT_MS));
    if (status == YOLK_OK)
        status = shm_link_enter(l);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    mutex_lock(&l->mutex);
    l->pinned = true;
    *base = l->data.address;
    *size = l->size;
    mutex_unlock(&l->mutex);
    shm_link_leave(l);
    return YOLK_OK;
}
