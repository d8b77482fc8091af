/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider side: one thread accepts, a few workers serve. A connection belongs to one worker,
 * which alone changes it; the provider's mutex guards the lists, the descriptor against a
 * concurrent shutdown, and which segment a connection is at work on (`served`), so that fence and
 * unserve see each access that was allowed.
 *
 * A read of a file is made by a thread of disk.c; meanwhile its connection is in no epoll, and
 * comes back to its worker through the worker's list of the finished.
 */
#define LOG_ROOM "tcp"
#include <errno.h>
#include <poll.h>
#include <sched.h>
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
#include "transport/gpu/gpu.h"
#include "transport/tcp/connection.h"

enum { SWEEP_MS = 1000 };
/* So long after the last event the next one is looked for without sleep: who waits for an answer
 * asks again sooner than a sleeper wakes. */
enum { HOT_NS = 100000 };

/* ---- threads ---- */

static void worker_event(struct tcp_worker *w, struct tcp_connection *c)
{
    tcp_connection_run(w, c);
    if (c->step == TCP_STEP_CLOSE) {
        tcp_connection_close(w->provider, c);
        return;
    }
    if (c->step == TCP_STEP_DISK) { /* even a hang-up would wake the worker again and again */
        (void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
        return;
    }
    bool output = c->step == TCP_STEP_REPLY || c->hello_out.size > 0;
    if (output == c->want_output)
        return;
    c->want_output = output;
    struct epoll_event event = {.events = output ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(w->epoll, EPOLL_CTL_MOD, c->fd, &event) != 0)
        tcp_connection_close(w->provider, c);
}

/* The disk is done for this connection. */
static void worker_resume(struct tcp_worker *w, struct tcp_connection *c)
{
    struct tcp_provider *p = w->provider;
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = c};
    tcp_connection_disk_over(p, c);
    c->want_output = true;
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0)
        tcp_connection_close(p, c);
    else
        worker_event(w, c);
}

static void worker_finished(struct tcp_worker *w)
{
    uint64_t ignored;
    ssize_t got = read(w->wake, &ignored, sizeof ignored);
    (void)got; /* another call may have emptied it, and the list with it */
    for (;;) {
        mutex_lock(&w->provider->mutex);
        struct base_list *node = base_list_first(&w->finished);
        if (node != NULL)
            base_list_remove(node);
        mutex_unlock(&w->provider->mutex);
        if (node == NULL)
            return;
        struct tcp_disk_job *job = BASE_CONTAINER(node, struct tcp_disk_job, node);
        worker_resume(w, BASE_CONTAINER(job, struct tcp_connection, job));
    }
}

static void worker_sweep(struct tcp_worker *w, bool all)
{
    struct tcp_provider *p = w->provider;
    uint64_t now = clock_real_now_ns();
    for (;;) {
        struct tcp_connection *found = NULL;
        mutex_lock(&p->mutex);
        BASE_LIST_FOREACH(node, &w->connections)
        {
            struct tcp_connection *c = BASE_CONTAINER(node, struct tcp_connection, node);
            if (all || c->deadline_ns <= now) {
                found = c;
                break;
            }
        }
        mutex_unlock(&p->mutex);
        if (found == NULL)
            return;
        if (!all && found->step == TCP_STEP_HELLO)
            tcp_connection_refuse(p, found, "no hello in time");
        tcp_connection_close(p, found);
    }
}

/* As epoll_wait. *hot_ns: until when it is worth to poll; 0: it is not. */
static int worker_wait(struct tcp_worker *w, struct epoll_event *events, int max, uint64_t *hot_ns)
{
    while (*hot_ns != 0) {
        int n = epoll_wait(w->epoll, events, max, 0);
        if (n != 0)
            return n;
        if (clock_real_now_ns() >= *hot_ns)
            *hot_ns = 0;
        else
            (void)sched_yield();
    }
    return epoll_wait(w->epoll, events, max, SWEEP_MS);
}

static void worker_main(void *arg)
{
    struct tcp_worker *w = arg;
    uint64_t swept_ns = clock_real_now_ns(), hot_ns = 0;
    for (;;) {
        struct epoll_event events[32];
        int n = worker_wait(w, events, 32, &hot_ns);
        bool stopping = false;
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                stopping = true;
            else if (events[i].data.ptr == w)
                worker_finished(w);
            else
                worker_event(w, events[i].data.ptr);
        }
        if (stopping)
            break;
        uint64_t now = clock_real_now_ns();
        if (n > 0 && w->provider->settings.pollers_max > 0)
            hot_ns = clock_after(now, HOT_NS);
        if (now - swept_ns >= SWEEP_MS * NS_PER_MS) {
            worker_sweep(w, false);
            swept_ns = now;
        }
    }
    worker_sweep(w, true);
}

static void provider_adopt(struct tcp_provider *p, struct tcp_worker *w, int fd)
{
    struct wire_hello_options options;
    struct tcp_connection *c = calloc(1, sizeof *c);
    if (c == NULL) {
        net_close(fd);
        return;
    }
    c->fd = fd;
    c->worker = w;
    base_list_init(&c->node);
    base_list_init(&c->job.node);
    base_buf_init(&c->hello_out, 2 * TCP_INPUT_SIZE);
    tcp_wire_options(&p->settings, 0, &options);
    options.purposes = 1u << WIRE_PURPOSE_DATA;
    int status = wire_hello_init(&c->hello, true, &options);
    if (status == YOLK_OK)
        status = wire_hello_start(&c->hello, &c->hello_out);
    tcp_connection_deadline(c, p->settings.hello_timeout_ns);
    mutex_lock(&p->mutex);
    if (status == YOLK_OK && p->connection_count >= MAX_CONNECTIONS) {
        tcp_provider_log_refusal(p, "too many connections");
        status = YOLK_ERR_LIMIT;
    }
    p->connection_count++;
    base_list_push_back(&w->connections, &c->node);
    /* Under the mutex: the worker may close it as soon as epoll has it. */
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (status == YOLK_OK && epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        status = YOLK_ERR_SYSTEM;
    mutex_unlock(&p->mutex);
    if (status != YOLK_OK)
        tcp_connection_close(p, c);
}

static void accepter_main(void *arg)
{
    struct tcp_provider *p = arg;
    uint32_t next = 0;
    for (;;) {
        struct pollfd fds[2] = {{p->wake, POLLIN, 0}, {p->listener, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        int fd = net_accept_ready(p->listener);
        if (fd < 0)
            continue;
        tcp_tune(fd);
        provider_adopt(p, &p->workers[next++ % p->worker_count], fd);
    }
}

static int worker_start(struct tcp_provider *p, struct tcp_worker *w)
{
    w->provider = p;
    base_list_init(&w->connections);
    base_list_init(&w->finished);
    w->discard = malloc(TCP_DISCARD_SIZE);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->wake < 0 || w->discard == NULL)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: worker");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event finished = {.events = EPOLLIN, .data.ptr = w};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, p->wake, &event) != 0 ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &finished) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: epoll_ctl");
    return thread_start(&w->thread, "yolk-tcp", worker_main, w);
}

/* Holds the mutex (no thread of ours is there yet). On failure stop and destroy clean up. */
static int provider_start(struct tcp_provider *p)
{
    struct net_address address, bound;
    char text[300];
    const char *host = p->settings.listen;
    (void)snprintf(text, sizeof text,
                   strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%u" : "%s:%u", host,
                   p->settings.port);
    /* Port 0 is "any" for listen, but the parser wants a number there that it takes as given. */
    int status = net_address_parse(text, 0, &address);
    if (status != YOLK_OK)
        return status;
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: eventfd");
    status = net_listen(&address, 512, &p->listener, &bound);
    if (status != YOLK_OK)
        return status;
    p->port = net_address_port(&bound);
    for (uint32_t i = 0; i < p->settings.workers; i++) {
        p->worker_count = i + 1;
        status = worker_start(p, &p->workers[i]);
        if (status != YOLK_OK)
            return status;
    }
    p->running = true;
    return thread_start(&p->accepter, "yolk-tcp-accept", accepter_main, p);
}

/* ---- the interface ---- */

int tcp_provider_create(const struct tcp_settings *settings, struct tcp_provider **out)
{
    struct tcp_provider *p = calloc(1, sizeof *p);
    if (p == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: provider");
    p->settings = *settings;
    if (p->settings.workers > TCP_WORKERS_MAX)
        p->settings.workers = TCP_WORKERS_MAX;
    p->listener = -1;
    p->wake = -1;
    for (size_t i = 0; i < TCP_WORKERS_MAX; i++) {
        p->workers[i].epoll = -1;
        p->workers[i].wake = -1;
    }
    mutex_init(&p->mutex);
    condition_init(&p->quiet);
    *out = p;
    return YOLK_OK;
}

static void provider_halt(struct tcp_provider *p)
{
    if (p->disk != NULL) /* before the workers: none may close what the disk is at work for */
        tcp_disk_stop(p->disk);
    if (p->wake >= 0) {
        uint64_t one = 1;
        ssize_t n = write(p->wake, &one, sizeof one);
        (void)n; /* readable already then */
    }
    thread_join(&p->accepter);
    for (uint32_t i = 0; i < p->worker_count; i++) {
        struct tcp_worker *w = &p->workers[i];
        thread_join(&w->thread);
        if (w->connections.next != NULL)
            worker_sweep(w, true); /* what came between its end and the accepter's */
        if (w->epoll >= 0)
            (void)close(w->epoll);
        if (w->wake >= 0)
            (void)close(w->wake);
        w->epoll = -1;
        w->wake = -1;
        free(w->discard);
        w->discard = NULL;
    }
    if (p->disk != NULL)
        tcp_disk_destroy(p->disk);
    p->disk = NULL;
    p->worker_count = 0;
    net_close(p->listener);
    p->listener = -1;
    if (p->wake >= 0)
        (void)close(p->wake);
    p->wake = -1;
    p->running = false;
}

void tcp_provider_stop(struct tcp_provider *p)
{
    mutex_lock(&p->mutex);
    bool first = !p->stopped;
    p->stopped = true;
    mutex_unlock(&p->mutex);
    if (first)
        provider_halt(p);
}

void tcp_provider_destroy(struct tcp_provider *p)
{
    tcp_provider_stop(p);
    condition_destroy(&p->quiet);
    mutex_destroy(&p->mutex);
    free(p);
}

static void served_free(struct tcp_served *served)
{
    if (served->file != NULL) {
        file_served_hide(served->file);
        local_drop(&served->file->local);
    }
    free(served);
}

static int served_make(struct tcp_provider *p, const struct yolk_serve *serve,
                       struct tcp_served **out)
{
    char token[64]; /* for consumers of this process; ours do not see it */
    struct tcp_served *served = calloc(1, sizeof *served);
    if (served == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: served segment");
    served->memory = serve->memory;
    served->size = serve->size;
    served->segment = serve->segment;
    served->access = serve->access;
    int status = YOLK_OK;
    if (serve->file != NULL)
        status = file_served_make(serve, &served->file, token, sizeof token);
    else if (serve->memory != NULL)
        status = gpu_side_look(p->settings.gpu, serve->memory, &served->gpu);
    if (status != YOLK_OK) {
        free(served);
        return status;
    }
    *out = served;
    return YOLK_OK;
}

/* Holds the mutex. */
static int provider_ready(struct tcp_provider *p, bool for_file)
{
    int status = p->stopped ? base_fail(YOLK_ERR_CLOSED, 0, "tcp: stopped") : YOLK_OK;
    if (status == YOLK_OK && !p->running) {
        status = provider_start(p);
        if (status != YOLK_OK) {
            mutex_unlock(&p->mutex);
            provider_halt(p);
            mutex_lock(&p->mutex);
        }
    }
    if (status == YOLK_OK && for_file && p->disk == NULL)
        status = tcp_disk_create(&p->disk);
    return status;
}

int tcp_provider_serve(struct tcp_provider *p, const struct yolk_serve *serve,
                       struct tcp_served **out, char *text, size_t text_size)
{
    char instance[TCP_INSTANCE_TEXT];
    struct tcp_served *served = NULL;
    int status = served_make(p, serve, &served);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&p->mutex);
    status = provider_ready(p, serve->file != NULL);
    size_t slot = 0;
    while (slot < TCP_SERVED_MAX && p->served[slot] != NULL)
        slot++;
    if (status == YOLK_OK && slot == TCP_SERVED_MAX)
        status =
            base_fail(YOLK_ERR_LIMIT, 0, "tcp: %d segments are served already", TCP_SERVED_MAX);
    if (status == YOLK_OK)
        p->served[slot] = served;
    mutex_unlock(&p->mutex);
    if (status != YOLK_OK) {
        served_free(served);
        return status;
    }
    for (size_t i = 0; i < WIRE_ID_SIZE; i++)
        (void)snprintf(instance + 2 * i, 3, "%02x", p->settings.instance[i]);
    const char *host = p->settings.host;
    int n = snprintf(text, text_size,
                     strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%u,%s" : "%s:%u,%s", host,
                     p->port, instance);
    if (n < 0 || (size_t)n >= text_size) {
        tcp_provider_unserve(p, served);
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "tcp: endpoint text");
    }
    *out = served;
    return YOLK_OK;
}

void tcp_provider_set_segment(struct tcp_provider *p, struct tcp_served *served, uint64_t segment)
{
    mutex_lock(&p->mutex);
    served->segment = segment;
    mutex_unlock(&p->mutex);
}

/* Shuts down the connections at work on `served` (for a fence: writing for that session). Holds the
 * mutex. */
static uint32_t provider_cut(struct tcp_provider *p, const struct tcp_served *served, bool fence,
                             uint64_t session)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < p->worker_count; w++) {
        BASE_LIST_FOREACH(node, &p->workers[w].connections)
        {
            struct tcp_connection *c = BASE_CONTAINER(node, struct tcp_connection, node);
            if (c->served != served || (fence && (!c->writing || c->session != session)))
                continue;
            net_shutdown(c->fd);
            count++;
        }
    }
    return count;
}

int tcp_provider_fence(struct tcp_provider *p, struct tcp_served *served, uint64_t session)
{
    mutex_lock(&p->mutex);
    uint32_t left = provider_cut(p, served, true, session);
    mutex_unlock(&p->mutex);
    if (left > 0)
        return base_fail(YOLK_ERR_AGAIN, 0, "tcp: %u connections of the session still write", left);
    return YOLK_OK;
}

void tcp_provider_unserve(struct tcp_provider *p, struct tcp_served *served)
{
    mutex_lock(&p->mutex);
    for (size_t i = 0; i < TCP_SERVED_MAX; i++) {
        if (p->served[i] == served)
            p->served[i] = NULL;
    }
    while (served->users > 0) {
        (void)provider_cut(p, served, false, 0);
        condition_wait(&p->quiet, &p->mutex);
    }
    mutex_unlock(&p->mutex);
    served_free(served);
}
