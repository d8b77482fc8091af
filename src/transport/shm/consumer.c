/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer side. A target has two links, one that maps for reading and one, made at the first
 * write, that maps for writing. A run of copies, from the first submit to the flush behind it,
 * counts itself as a user of its link's mapping; a link that is to go is unmapped when the last
 * user has left, and closed after that.
 */
#define LOG_ROOM "transport"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/shm/consumer.h"

enum {
    INPUT_MAX = 2048,
    BACKOFF_MIN_MS = 10,
    BACKOFF_MAX_MS = 1000,
    MAP_WAIT_MS = 200, /* of one call; its caller would rather wait than have a copy */
};

/* ---- the end of a link ---- */

/* False: a GPU that was lost may still touch it, so the mapping stays, and the connection with it:
 * the provider must not think that it is gone. */
static bool unregister(struct shm_link *l)
{
    struct device_range *range = l->range;
    l->range = NULL;
    l->registered = false;
    if (range == NULL || device_range_remove(range) == YOLK_OK)
        return true;
    log_error("the mapping of a segment stays: %s", yolk_last_error());
    device_range_abandon(range);
    l->data = (struct memory_mapping){0};
    l->fd = -1;
    return false;
}

/* Unmaps before it closes: the provider takes the closing as proof. Holds the mutex. */
static void link_reset(struct shm_link *l)
{
    if (unregister(l) && l->data.address != NULL)
        memory_unmap(&l->data);
    if (l->mapping != NULL)
        l->target->settings->mapper.unmap(l->target->settings->mapper.self, l->mapping);
    l->mapping = NULL;
    if (l->page.address != NULL)
        memory_unmap(&l->page);
    l->data = l->page = (struct memory_mapping){0};
    free((void *)l->ahead);
    l->ahead = NULL;
    net_close(l->fd);
    net_close(l->handed[0]);
    net_close(l->handed[1]);
    l->fd = l->handed[0] = l->handed[1] = -1;
    l->asked = false;
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

/* Another transport takes over then, slower: not in silence, where the memory should be in reach.
 */
static void link_warn(const struct shm_link *l, int status)
{
    bool expected = status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_STALE ||
                    status == YOLK_ERR_CLOSED || l->elsewhere || l->backoff_ns > 0;
    if (!expected)
        log_warn("memory of another process cannot be mapped: %s", l->last_text);
}

static int link_fail(struct shm_link *l, int status)
{
    l->last_status = status;
    (void)snprintf(l->last_text, sizeof l->last_text, "%s", yolk_last_error());
    link_warn(l, status);
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

/* Where the provider is to answer, for people. */
static const char *link_place(const struct shm_link *l, char out[NET_ADDRESS_TEXT_MAX])
{
    net_address_format(l->remote ? &l->target->tcp_address : &l->target->address, out,
                       NET_ADDRESS_TEXT_MAX);
    return strncmp(out, "unix:", 5) == 0 ? out + 5 : out;
}

static int connect_status(struct shm_link *l, int error)
{
    char text[NET_ADDRESS_TEXT_MAX];
    const char *path = link_place(l, text);
    if (l->was_ready || error == ECONNREFUSED)
        return base_fail(YOLK_ERR_PEER_DEAD, error, "shm: the provider at %s is gone", path);
    if (error == EACCES || error == EPERM)
        return base_fail(YOLK_ERR_NO_ROUTE, error,
                         "shm: user %u has no permission to connect to %s", (unsigned)geteuid(),
                         path);
    l->elsewhere = true;
    return base_fail(YOLK_ERR_NO_ROUTE, error,
                     "shm: the socket %s is not here (another machine or container)", path);
}

/* The error of connect; EINPROGRESS: SHM_CONNECTING. */
static int link_socket(struct shm_link *l, const struct net_address *to)
{
    l->fd = socket(to->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return errno;
    return connect(l->fd, (const struct sockaddr *)&to->storage, to->size) == 0 ? 0 : errno;
}

static int link_open(struct shm_link *l)
{
    struct shm_target *t = l->target;
    struct wire_hello_options options;
    uint64_t now = clock_real_now_ns();
    if (now < l->retry_ns)
        return base_fail(l->last_status, 0, "%s (tried a moment ago)", l->last_text);
    l->remote = t->only_tcp;
    int error = t->only_tcp ? ENOENT : link_socket(l, &t->address);
    if (error != 0 && error != EAGAIN && t->tcp) {
        net_close(l->fd);
        l->remote = true;
        error = link_socket(l, &t->tcp_address);
    }
    bool connecting = l->remote && error == EINPROGRESS;
    if (error != 0 && !connecting) {
        int status = error == EAGAIN ? base_fail(YOLK_ERR_LIMIT, 0, "shm: the provider is busy")
                                     : connect_status(l, error);
        return link_fail(l, status);
    }
    base_buf_init(&l->out, INPUT_MAX);
    base_buf_init(&l->in, INPUT_MAX);
    shm_wire_options(t->settings, t->session, &options);
    int status = l->remote ? YOLK_OK : shm_check_peer(l->fd);
    if (status == YOLK_OK)
        status = wire_hello_init(&l->hello, false, &options);
    if (status == YOLK_OK)
        status = wire_hello_start(&l->hello, &l->out);
    if (status != YOLK_OK)
        return link_fail(l, status);
    l->deadline_ns = clock_after(now, t->settings->connect_timeout_ns);
    l->state = connecting ? SHM_CONNECTING : SHM_HELLO;
    return YOLK_OK;
}

static int step_connecting(struct shm_link *l)
{
    int error = 0;
    socklen_t size = sizeof error;
    struct pollfd p = {l->fd, POLLOUT, 0};
    if (poll(&p, 1, 0) == 0)
        return YOLK_ERR_AGAIN;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
        return connect_status(l, error);
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
static int link_map_file(struct shm_link *l, const struct shm_opened *opened, int fd)
{
    int status = memory_map(fd, opened->map_size,
                            l->writable ? MEMORY_READ_WRITE : MEMORY_READ_ONLY, &l->data);
    if (status != YOLK_OK)
        return status;
    /* A child that is forked meanwhile must not keep a mapping that nobody counts. */
    (void)madvise(l->data.address, l->data.size, MADV_DONTFORK);
    l->ahead = calloc(l->data.size / SHM_AHEAD_STEP + 1, sizeof *l->ahead);
    return YOLK_OK;
}

static int link_map_page(struct shm_link *l, int fd)
{
    char instance[SHM_INSTANCE_TEXT];
    int status = memory_map(fd, memory_page_size(), MEMORY_READ_ONLY, &l->page);
    if (status != YOLK_OK)
        return status;
    const struct shm_header *header = l->page.address;
    shm_instance_format(header->instance, instance);
    if (header->magic != SHM_HEADER_MAGIC || strcmp(instance, l->target->instance) != 0)
        return base_fail(YOLK_ERR_STALE, 0, "shm: the header page is of another provider");
    return YOLK_OK;
}

static int link_map(struct shm_link *l)
{
    const struct shm_mapper *mapper = &l->target->settings->mapper;
    if (!l->remote && (l->handed[0] < 0 || l->handed[1] < 0))
        return base_fail(YOLK_ERR_PROTOCOL, EBADMSG, "shm: no descriptors came with the segment");
    int status = mapper->map != NULL
                     ? mapper->map(mapper->self, l->target->what, l, l->handed[0], &l->mapping)
                     : link_map_file(l, &l->opened, l->handed[0]);
    if (status == YOLK_OK && !l->remote)
        status = link_map_page(l, l->handed[1]);
    if (status != YOLK_OK)
        return status;
    l->size = l->opened.size;
    l->used_ns = clock_real_now_ns();
    l->state = SHM_READY;
    l->was_ready = true;
    l->backoff_ns = 0;
    return YOLK_OK;
}

/* Who runs the provider is to see why nobody maps its memory. That it cannot be told is no matter:
 * it is gone then. */
static void link_tell_failure(struct shm_link *l)
{
    uint8_t bytes[SHM_FAILED_SIZE];
    char text[SHM_FAILED_TEXT];
    (void)snprintf(text, sizeof text, "%s", yolk_last_error());
    shm_failed_encode(text, bytes);
    base_ignore(shm_send_fds(l->fd, bytes, sizeof bytes, NULL, 0));
    (void)base_fail(YOLK_ERR_LINK, 0, "%s", text); /* in place of what the sending said */
}

static int step_opened(struct shm_link *l)
{
    uint8_t bytes[SHM_OPENED_SIZE];
    size_t got;
    int status = shm_receive_fds(l->fd, bytes, sizeof bytes, &got, l->handed);
    l->opened.status = YOLK_OK;
    if (status == YOLK_OK && got != sizeof bytes)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "shm: a torn message");
    if (status == YOLK_OK)
        status = shm_opened_decode(bytes, &l->opened);
    if (status == YOLK_OK && l->opened.status != YOLK_OK)
        return base_fail(l->opened.status, 0, "shm: the provider refused: %s",
                         yolk_strerror(l->opened.status));
    if (status == YOLK_OK && l->opened.generation != l->target->generation)
        return base_fail(YOLK_ERR_STALE, 0, "shm: other memory has the segment's id now");
    if (status == YOLK_OK)
        l->state = SHM_MAPPING;
    else if (status != YOLK_ERR_AGAIN)
        link_tell_failure(l);
    return status;
}

static int step_mapping(struct shm_link *l)
{
    int status = link_map(l);
    if (status == YOLK_ERR_AGAIN)
        return status;
    if (status != YOLK_OK)
        link_tell_failure(l);
    net_close(l->handed[0]);
    net_close(l->handed[1]);
    l->handed[0] = l->handed[1] = -1;
    return status;
}

/* OK: ready. AGAIN: not yet. Holds the mutex. */
static int link_drive(struct shm_link *l)
{
    char text[NET_ADDRESS_TEXT_MAX];
    int status = YOLK_OK;
    link_release_if_dead(l);
    if (l->dead != YOLK_OK)
        return base_fail(l->dead, 0, "shm: the provider ended the mapping");
    if (l->state == SHM_CLOSED)
        status = link_open(l);
    if (status != YOLK_OK)
        return status;
    while (status == YOLK_OK && l->state != SHM_READY)
        status = l->state == SHM_CONNECTING ? step_connecting(l)
                 : l->state == SHM_HELLO    ? step_hello(l)
                 : l->state == SHM_MAPPING  ? step_mapping(l)
                                            : step_opened(l);
    if (status == YOLK_ERR_AGAIN && clock_real_now_ns() >= l->deadline_ns)
        status = base_fail(YOLK_ERR_TIMEOUT, ETIMEDOUT, "shm: the provider at %s does not answer",
                           link_place(l, text));
    if (status != YOLK_OK && status != YOLK_ERR_AGAIN)
        return link_fail(l, status);
    return status;
}

int shm_link_ask(struct shm_link *l, const struct shm_ask *ask, struct shm_answer *answer, int *fd)
{
    uint8_t bytes[SHM_ASK_SIZE];
    size_t got = 0;
    int fds[2];
    *fd = -1;
    if (!l->asked) {
        shm_ask_encode(ask, bytes);
        base_buf_clear(&l->in);
        int status = shm_send_fds(l->fd, bytes, sizeof bytes, NULL, 0);
        l->asked = status == YOLK_OK;
        return status == YOLK_OK ? YOLK_ERR_AGAIN : status;
    }
    size_t more = SHM_ANSWER_SIZE - l->in.size;
    int status = base_buf_reserve(&l->in, more);
    if (status == YOLK_OK)
        status = shm_receive_fds(l->fd, l->in.data + l->in.size, more, &got, fds);
    else
        fds[0] = fds[1] = -1;
    net_close(fds[1]);
    *fd = fds[0];
    if (status != YOLK_OK)
        return status;
    l->in.size += got;
    if (l->in.size < SHM_ANSWER_SIZE && *fd < 0)
        return YOLK_ERR_AGAIN;
    l->asked = false;
    status = l->in.size < SHM_ANSWER_SIZE ? base_fail(YOLK_ERR_PROTOCOL, 0, "shm: a torn answer")
                                          : shm_answer_decode(l->in.data, answer);
    if (status == YOLK_OK && answer->status != YOLK_OK)
        status = base_fail(answer->status, 0, "%s", answer->text);
    base_buf_clear(&l->in);
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

void shm_link_hold(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    l->users++;
    mutex_unlock(&l->mutex);
}

void shm_link_leave(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    l->users--;
    if (l->mapping != NULL)
        l->used_ns = clock_real_now_ns();
    link_release_if_dead(l);
    mutex_unlock(&l->mutex);
}

void shm_link_tidy(struct shm_link *l, uint64_t unused_since_ns)
{
    mutex_lock(&l->mutex);
    (void)link_look(l);
    if (l->state == SHM_READY && l->users == 0 && !l->pinned && l->used_ns < unused_since_ns)
        link_reset(l);
    mutex_unlock(&l->mutex);
}

int shm_link_watch(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    int fd = l->state == SHM_READY && l->dead == YOLK_OK ? l->fd : -1;
    mutex_unlock(&l->mutex);
    return fd;
}

struct device_range *shm_link_range(struct shm_link *l)
{
    mutex_lock(&l->mutex);
    if (!l->registered) {
        struct device *device = gpu_side_device(l->target->settings->gpu);
        l->registered = true;
        if (device == NULL || device_range_add(device, l->data.address, l->data.size, !l->writable,
                                               &l->range) != YOLK_OK)
            log_warn("GPUs do not reach the memory of a segment, which is copied by pieces "
                     "(slower): %s",
                     yolk_last_error());
    }
    struct device_range *range = l->range;
    mutex_unlock(&l->mutex);
    return range;
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
        struct pollfd p = {l->fd, l->state == SHM_CONNECTING ? POLLOUT : POLLIN, 0};
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
        t->links[i].fd = t->links[i].handed[0] = t->links[i].handed[1] = -1;
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
