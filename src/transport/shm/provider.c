/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider side: one thread owns the Unix socket and all connections. It hands out descriptors
 * and counts who has one; it never copies. The mutex guards the lists and each connection's
 * `served` and `session`.
 */
#define LOG_ROOM "shm"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/shm/folder.h"
#include "transport/shm/internal.h"

enum {
    SERVED_MAX = 1024,
    CONNECTIONS_MAX = 4096,
    INPUT_SIZE = 2048,
    SWEEP_MS = 1000,
};

struct shm_served {
    struct shm_handout what;
    struct memory_segment page;
    struct shm_header *header;
};

struct connection {
    struct base_list node;
    int fd;
    bool hello_done;
    bool opened;
    bool closing;
    bool remote; /* no descriptor can go over it */
    uint64_t deadline_ns;
    uint64_t session;
    struct shm_served *served; /* whose mapping it may hold */
    struct yolk_access lease;  /* whose end is told when it is over, of `leased` */
    struct yolk_access_request leased;
    struct wire_hello_machine hello;
    struct base_buf out;
    size_t in_size;
    uint8_t in[INPUT_SIZE];
};

struct shm_provider {
    struct shm_settings settings;
    struct mutex mutex;
    struct shm_served *answering; /* it is being asked, without the mutex */
    struct condition answered;
    bool running, stopped;
    int listener, tcp_listener, wake, epoll;
    struct net_address tcp_address;
    struct shm_folder folder;
    struct thread thread;
    struct base_list connections;
    uint32_t connection_count;
    struct shm_served *served[SERVED_MAX];
    uint64_t logged_ns;
};

/* Holds no lock; only the provider's thread logs. */
static void refuse(struct shm_provider *p, struct connection *c, const char *text)
{
    uint64_t now = clock_real_now_ns();
    if (p->logged_ns == 0 || now - p->logged_ns >= NS_PER_S) {
        log_warn("connection refused: %s", text);
        p->logged_ns = now;
    }
    c->closing = true;
}

static void connection_close(struct shm_provider *p, struct connection *c)
{
    mutex_lock(&p->mutex);
    base_list_remove(&c->node);
    net_close(c->fd);
    p->connection_count--;
    mutex_unlock(&p->mutex);
    if (c->lease.end != NULL)
        c->lease.end(c->lease.self, &c->leased);
    wire_hello_wipe(&c->hello);
    base_buf_free(&c->out);
    free(c);
}

/* ---- one connection ---- */

static int open_segment(struct shm_provider *p, struct connection *c, const struct shm_open *open,
                        int fds[2], struct shm_opened *reply)
{
    struct shm_served *served = NULL;
    /* Counted before the engine is asked, so that a fence sees it. The whole runs under the mutex
     * so that unserve cannot take the segment away meanwhile; check does not block. */
    for (size_t i = 0; i < SERVED_MAX && served == NULL; i++) {
        if (p->served[i] != NULL && atomic_load(&p->served[i]->header->segment) == open->segment)
            served = p->served[i];
    }
    if (served == NULL || open->segment == 0)
        return YOLK_ERR_STALE;
    c->served = served;
    struct yolk_access_request request = {
        .segment = open->segment,
        .session = c->session,
        .opcode = open->writable ? YOLK_WRITE : YOLK_READ,
        .whole_map = 1,
    };
    const struct yolk_access *access = &served->what.access;
    int status = access->begin != NULL ? access->begin(access->self, &request)
                                       : access->check(access->self, &request);
    if (status == YOLK_OK && access->begin != NULL) {
        c->lease = *access;
        c->leased = request;
    }
    if (status != YOLK_OK) {
        c->served = NULL;
        return status;
    }
    /* The page comes second; where nothing else is needed, it stands for that too. */
    fds[0] = served->what.fds[open->writable ? 1 : 0];
    fds[1] = served->page.fd_ro;
    if (fds[0] < 0)
        fds[0] = fds[1];
    reply->generation = served->what.generation;
    reply->size = served->what.size;
    reply->map_size = served->what.map_size;
    return YOLK_OK;
}

static void connection_open_frame(struct shm_provider *p, struct connection *c)
{
    struct shm_open open;
    struct shm_opened reply = {0};
    uint8_t bytes[SHM_OPENED_SIZE];
    int fds[2] = {-1, -1};
    if (shm_open_decode(c->in, &open) != YOLK_OK) {
        refuse(p, c, yolk_last_error());
        return;
    }
    mutex_lock(&p->mutex);
    reply.status = open_segment(p, c, &open, fds, &reply);
    shm_opened_encode(&reply, bytes);
    int status = shm_send_fds(c->fd, bytes, sizeof bytes, fds,
                              reply.status == YOLK_OK && !c->remote ? 2 : 0);
    mutex_unlock(&p->mutex);
    if (status != YOLK_OK) {
        refuse(p, c, yolk_last_error());
        /* Nothing was handed out. */
        mutex_lock(&p->mutex);
        c->served = NULL;
        mutex_unlock(&p->mutex);
    }
    c->opened = true;
    c->in_size = 0;
    c->deadline_ns = CLOCK_NEVER;
}

/* True: look again. */
static bool hello_step(struct shm_provider *p, struct connection *c)
{
    struct wire_header header;
    while (c->out.size > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0) { /* a hello fits any socket buffer */
            (void)base_fail(YOLK_ERR_LINK, errno, "gone before it was answered");
            refuse(p, c, yolk_last_error());
            return false;
        }
        base_buf_consume(&c->out, (size_t)n);
    }
    if (c->hello.state == WIRE_HELLO_DONE) {
        mutex_lock(&p->mutex);
        c->session = c->hello.session;
        mutex_unlock(&p->mutex);
        c->hello_done = true;
        return true;
    }
    if (c->hello.state == WIRE_HELLO_FAILED) {
        refuse(p, c, c->hello.text);
        return false;
    }
    if (c->in_size < WIRE_HEADER_SIZE)
        return false;
    if (wire_header_decode(c->in, &header) != YOLK_OK || header.kind > WIRE_ERROR ||
        header.body_size > INPUT_SIZE - WIRE_HEADER_SIZE) {
        refuse(p, c, "no hello of ours");
        return false;
    }
    size_t size = WIRE_HEADER_SIZE + header.body_size;
    if (c->in_size < size)
        return false;
    int status = wire_hello_input(&c->hello, &header, c->in + WIRE_HEADER_SIZE, &c->out);
    memmove(c->in, c->in + size, c->in_size - size);
    c->in_size -= size;
    if (status != YOLK_OK && c->hello.state != WIRE_HELLO_FAILED) {
        refuse(p, c, "broken hello");
        return false;
    }
    return true;
}

static void connection_ask_frame(struct shm_provider *p, struct connection *c)
{
    struct shm_ask ask;
    struct shm_answer answer = {.status = YOLK_ERR_STALE};
    uint8_t bytes[SHM_ANSWER_SIZE];
    int fd = -1, status = shm_ask_decode(c->in, &ask);
    mutex_lock(&p->mutex);
    struct shm_served *served = c->served;
    bool asked = status == YOLK_OK && served != NULL && served->what.answer != NULL;
    p->answering = asked ? served : NULL;
    mutex_unlock(&p->mutex);
    if (asked)
        served->what.answer(served->what.self, &ask, &answer, &fd);
    mutex_lock(&p->mutex);
    p->answering = NULL;
    condition_broadcast(&p->answered);
    mutex_unlock(&p->mutex);
    shm_answer_encode(&answer, bytes);
    if (status == YOLK_OK)
        status = shm_send_fds(c->fd, bytes, sizeof bytes, &fd, fd >= 0 && !c->remote ? 1 : 0);
    net_close(fd);
    c->in_size = 0;
    if (status != YOLK_OK)
        refuse(p, c, yolk_last_error());
}

/* All that may come after the segment was opened. */
static void connection_later_frame(struct shm_provider *p, struct connection *c)
{
    char text[SHM_FAILED_TEXT], said[SHM_FAILED_TEXT + 32];
    uint16_t kind = c->in_size >= 4 ? base_load_u16(c->in + 2) : 0;
    if (c->in_size < (kind == SHM_ASK ? SHM_ASK_SIZE : SHM_FAILED_SIZE) &&
        (kind == SHM_ASK || kind == SHM_FAILED))
        return;
    if (kind == SHM_ASK && c->in_size == SHM_ASK_SIZE) {
        connection_ask_frame(p, c);
        return;
    }
    if (c->in_size < SHM_FAILED_SIZE || shm_failed_decode(c->in, text) != YOLK_OK) {
        refuse(p, c, "bytes after the segment was opened");
        return;
    }
    (void)snprintf(said, sizeof said, "the client says: %s", text);
    refuse(p, c, said);
}

static void connection_run(struct shm_provider *p, struct connection *c)
{
    size_t room = (c->opened ? SHM_FAILED_SIZE : INPUT_SIZE) - c->in_size;
    ssize_t n;
    do {
        n = recv(c->fd, c->in + c->in_size, room, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (n <= 0) {
        c->closing = true;
        return;
    }
    c->in_size += (size_t)n;
    if (c->opened) {
        connection_later_frame(p, c);
        return;
    }
    while (!c->closing && !c->hello_done && hello_step(p, c))
        ;
    if (!c->closing && c->hello_done && c->in_size >= SHM_OPEN_SIZE)
        connection_open_frame(p, c);
}

/* ---- the thread ---- */

static void adopt(struct shm_provider *p, int fd, bool remote)
{
    struct wire_hello_options options;
    struct connection *c = calloc(1, sizeof *c);
    if (c == NULL) {
        net_close(fd);
        return;
    }
    c->fd = fd;
    c->remote = remote;
    base_list_init(&c->node);
    base_buf_init(&c->out, INPUT_SIZE);
    c->deadline_ns = clock_after(clock_real_now_ns(), p->settings.hello_timeout_ns);
    shm_wire_options(&p->settings, 0, &options);
    options.purposes = 1u << WIRE_PURPOSE_DATA;
    mutex_lock(&p->mutex);
    uint32_t count = ++p->connection_count;
    base_list_push_back(&p->connections, &c->node);
    mutex_unlock(&p->mutex);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (count > CONNECTIONS_MAX)
        refuse(p, c, "too many connections");
    else if (!remote && shm_check_peer(fd) != YOLK_OK)
        refuse(p, c, yolk_last_error());
    else if (wire_hello_init(&c->hello, true, &options) != YOLK_OK ||
             wire_hello_start(&c->hello, &c->out) != YOLK_OK ||
             epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        c->closing = true;
    if (c->closing)
        connection_close(p, c);
}

static void sweep(struct shm_provider *p, bool all)
{
    uint64_t now = clock_real_now_ns();
    /* Only this thread changes the list. */
    BASE_LIST_FOREACH_SAFE(node, &p->connections)
    {
        struct connection *c = BASE_CONTAINER(node, struct connection, node);
        if (!all && c->deadline_ns > now)
            continue;
        if (!all)
            refuse(p, c, "no hello in time");
        connection_close(p, c);
    }
}

static void provider_main(void *arg)
{
    struct shm_provider *p = arg;
    uint64_t swept_ns = clock_real_now_ns();
    for (bool stopping = false; !stopping;) {
        struct epoll_event events[32];
        int n = epoll_wait(p->epoll, events, 32, SWEEP_MS);
        for (int i = 0; i < n; i++) {
            void *of = events[i].data.ptr;
            if (of == &p->wake) {
                stopping = true;
            } else if (of == &p->listener || of == &p->tcp_listener) {
                int fd = net_accept_ready(*(int *)of);
                if (fd >= 0)
                    adopt(p, fd, of == &p->tcp_listener);
            } else {
                struct connection *c = of;
                connection_run(p, c);
                if (c->closing)
                    connection_close(p, c);
            }
        }
        uint64_t now = clock_real_now_ns();
        if (now - swept_ns >= SWEEP_MS * NS_PER_MS) {
            sweep(p, false);
            swept_ns = now;
        }
    }
    sweep(p, true);
}

static int provider_start(struct shm_provider *p)
{
    struct net_address address;
    int status = shm_folder_make(&p->folder, p->settings.socket_dir);
    if (status == YOLK_OK)
        status = net_address_unix(p->folder.path, &address);
    if (status == YOLK_OK)
        status = net_listen(&address, 128, &p->listener, NULL);
    if (status == YOLK_OK && p->settings.tcp)
        status = net_listen(&p->settings.listen, 128, &p->tcp_listener, &p->tcp_address);
    if (status != YOLK_OK)
        return status;
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->wake < 0 || p->epoll < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: eventfd, epoll");
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &p->wake};
    struct epoll_event listener = {.events = EPOLLIN, .data.ptr = &p->listener};
    struct epoll_event tcp_listener = {.events = EPOLLIN, .data.ptr = &p->tcp_listener};
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->wake, &wake) != 0 ||
        epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->listener, &listener) != 0 ||
        (p->settings.tcp &&
         epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->tcp_listener, &tcp_listener) != 0))
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: epoll_ctl");
    p->running = true;
    return thread_start(&p->thread, "yolk-shm", provider_main, p);
}

static void provider_halt(struct shm_provider *p)
{
    if (p->wake >= 0) {
        uint64_t one = 1;
        ssize_t n = write(p->wake, &one, sizeof one);
        (void)n; /* readable already then */
    }
    thread_join(&p->thread);
    net_close(p->listener);
    net_close(p->tcp_listener);
    if (p->epoll >= 0)
        (void)close(p->epoll);
    if (p->wake >= 0)
        (void)close(p->wake);
    p->listener = p->tcp_listener = p->epoll = p->wake = -1;
    shm_folder_remove(&p->folder);
    p->running = false;
}

/* ---- the interface ---- */

int shm_provider_create(const struct shm_settings *settings, struct shm_provider **out)
{
    struct shm_provider *p = calloc(1, sizeof *p);
    if (p == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: provider");
    p->settings = *settings;
    p->listener = p->tcp_listener = p->epoll = p->wake = p->folder.lock = -1;
    mutex_init(&p->mutex);
    condition_init(&p->answered);
    base_list_init(&p->connections);
    *out = p;
    return YOLK_OK;
}

void shm_provider_stop(struct shm_provider *p)
{
    mutex_lock(&p->mutex);
    bool first = !p->stopped;
    p->stopped = true;
    mutex_unlock(&p->mutex);
    if (first)
        provider_halt(p);
}

void shm_provider_destroy(struct shm_provider *p)
{
    shm_provider_stop(p);
    explicit_bzero(&p->settings, sizeof p->settings);
    mutex_destroy(&p->mutex);
    condition_destroy(&p->answered);
    free(p);
}

static int served_create(const struct shm_settings *settings, const struct shm_handout *what,
                         struct shm_served **out)
{
    struct shm_served *s = calloc(1, sizeof *s);
    if (s == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: served segment");
    struct memory_segment_options options = {.name = "yolk-header"};
    int status = memory_segment_create(sizeof(struct shm_header), &options, &s->page);
    if (status != YOLK_OK) {
        free(s);
        return status;
    }
    s->what = *what;
    s->header = s->page.address;
    s->header->magic = SHM_HEADER_MAGIC;
    memcpy(s->header->instance, settings->instance, WIRE_ID_SIZE);
    atomic_store(&s->header->segment, what->segment);
    *out = s;
    return YOLK_OK;
}

static void served_free(struct shm_served *s)
{
    memory_segment_destroy(&s->page);
    free(s);
}

bool shm_provider_address(struct shm_provider *p, struct net_address *out)
{
    mutex_lock(&p->mutex);
    bool there = p->tcp_listener >= 0;
    if (there)
        *out = p->tcp_address;
    mutex_unlock(&p->mutex);
    return there;
}

int shm_provider_serve(struct shm_provider *p, const struct yolk_serve *serve,
                       struct shm_served **out, char *text, size_t text_size)
{
    const struct yolk_memory *a = serve->allocation;
    if (a == NULL || a->internal == NULL || serve->memory != a->pointer || serve->size > a->size)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "shm: serves only whole memory of its own allocation");
    const struct memory_segment *memory = a->internal;
    const struct shm_handout handout = {.fds = {memory->fd_ro, memory->fd},
                                        .size = serve->size,
                                        .map_size = memory->size,
                                        .segment = serve->segment,
                                        .access = serve->access};
    return shm_provider_hand_out(p, &handout, out, text, text_size);
}

int shm_provider_hand_out(struct shm_provider *p, const struct shm_handout *handout,
                          struct shm_served **out, char *text, size_t text_size)
{
    char instance[SHM_INSTANCE_TEXT];
    struct shm_served *served = NULL;
    int status = served_create(&p->settings, handout, &served);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&p->mutex);
    bool broken = false;
    if (p->stopped)
        status = base_fail(YOLK_ERR_CLOSED, 0, "shm: stopped");
    else if (!p->running) {
        status = provider_start(p);
        broken = status != YOLK_OK;
    }
    size_t slot = 0;
    while (slot < SERVED_MAX && p->served[slot] != NULL)
        slot++;
    if (status == YOLK_OK && slot == SERVED_MAX)
        status = base_fail(YOLK_ERR_LIMIT, 0, "shm: %d segments are served already", SERVED_MAX);
    shm_instance_format(p->settings.instance, instance);
    int n = snprintf(text, text_size, "%s,%s", p->folder.path, instance);
    if (status == YOLK_OK && (n < 0 || (size_t)n >= text_size))
        status = base_fail(YOLK_ERR_BUFFER_SMALL, 0, "shm: endpoint text");
    if (status == YOLK_OK)
        p->served[slot] = served;
    mutex_unlock(&p->mutex);
    if (broken)
        provider_halt(p);
    if (status != YOLK_OK) {
        served_free(served);
        return status;
    }
    *out = served;
    return YOLK_OK;
}

/* Tells the consumers (all, or those of the session) to let go: they unmap, then close. Holds the
 * mutex. */
static uint32_t provider_cut(struct shm_provider *p, const struct shm_served *served, bool all,
                             uint64_t session)
{
    uint32_t count = 0;
    BASE_LIST_FOREACH(node, &p->connections)
    {
        struct connection *c = BASE_CONTAINER(node, struct connection, node);
        if (served == NULL ? c->served == NULL : c->served != served)
            continue;
        if (!all && c->session != session)
            continue;
        (void)shutdown(c->fd, SHUT_WR);
        count++;
    }
    return count;
}

void shm_provider_set_segment(struct shm_provider *p, struct shm_served *served, uint64_t segment)
{
    (void)p;
    /* The word alone decides. A connection opened under the old id stays counted for its session.
     */
    atomic_store(&served->header->segment, segment);
}

int shm_provider_fence(struct shm_provider *p, struct shm_served *served, uint64_t session)
{
    mutex_lock(&p->mutex);
    uint32_t left = provider_cut(p, served, false, session);
    mutex_unlock(&p->mutex);
    if (left > 0)
        return base_fail(YOLK_ERR_AGAIN, 0, "shm: the session keeps %u mappings", left);
    return YOLK_OK;
}

void shm_provider_unserve(struct shm_provider *p, struct shm_served *served)
{
    atomic_store(&served->header->segment, 0);
    mutex_lock(&p->mutex);
    for (size_t i = 0; i < SERVED_MAX; i++) {
        if (p->served[i] == served)
            p->served[i] = NULL;
    }
    (void)provider_cut(p, served, true, 0);
    while (p->answering == served)
        condition_wait(&p->answered, &p->mutex);
    BASE_LIST_FOREACH(node, &p->connections)
    {
        struct connection *c = BASE_CONTAINER(node, struct connection, node);
        if (c->served == served)
            c->served = NULL;
    }
    mutex_unlock(&p->mutex);
    served_free(served);
}
