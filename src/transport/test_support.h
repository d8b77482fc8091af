/* SPDX-License-Identifier: Apache-2.0 */
/* For the unit tests of transports: one provider and one consumer endpoint, driven without an
 * engine. */
#ifndef TRANSPORT_TEST_SUPPORT_H
#define TRANSPORT_TEST_SUPPORT_H

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/access.h"
#include "platform/clock.h"
#include "yolk/transport.h"
#include "transport/threads_kit.h"

#if defined(__SANITIZE_THREAD__)
/* The tests fork providers while threads run; the child starts its own from a clean state. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

enum { SEGMENT = 0x100000001, SESSION = 77, SEGMENT_SIZE = 4 << 20 };

struct guarded {
    pthread_mutex_t mutex;
    struct access_grant grant;
};

struct side {
    const struct yolk_transport_ops *ops;
    void *endpoint;
};

struct pair {
    struct side provider, consumer;
    struct guarded access;
    struct yolk_memory memory; /* of memory_alloc, or malloc */
    uint8_t *bytes;
    void *served;
    char text[512];
};

static inline enum yolk_status guarded_check(void *self, const struct yolk_access_request *request)
{
    struct guarded *g = self;
    pthread_mutex_lock(&g->mutex);
    enum yolk_status status = access_check(&g->grant, request);
    pthread_mutex_unlock(&g->mutex);
    return status;
}

static inline void guarded_fence(struct guarded *g, uint64_t session)
{
    pthread_mutex_lock(&g->mutex);
    assert_int_equal(access_grant_fence(&g->grant, session), YOLK_OK);
    pthread_mutex_unlock(&g->mutex);
}

/* What another process or thread writes without asking. */
__attribute__((noinline, no_sanitize("thread"))) static uint8_t racy_byte(const uint8_t *at)
{
    return *(const volatile uint8_t *)at;
}

static inline void side_open(struct side *s, const struct yolk_transport_ops *ops, uint8_t instance,
                             const char *secret)
{
    struct yolk_transport_options options = {
        .struct_size = sizeof options, .connect_timeout_ms = 2000, .stop_timeout_ms = 700};
    memset(options.instance, instance, sizeof options.instance);
    options.secret = (const uint8_t *)secret;
    options.secret_size = secret != NULL ? strlen(secret) : 0;
    s->ops = ops;
    assert_int_equal(ops->init(&options, &s->endpoint), YOLK_OK);
}

/* Also of what a failed setup left undone. */
static inline void side_close(struct side *s)
{
    if (s->endpoint == NULL)
        return;
    assert_int_equal(s->ops->stop(s->endpoint), YOLK_OK);
    s->ops->fini(s->endpoint);
}

static inline void pair_serve(struct pair *p, int require_tickets)
{
    static const uint8_t key[32] = {1, 2, 3};
    const struct yolk_transport_ops *ops = p->provider.ops;
    pthread_mutex_init(&p->access.mutex, NULL);
    access_grant_init(&p->access.grant, SEGMENT, SEGMENT_SIZE, key, require_tickets);
    if (ops->memory_alloc != NULL) {
        assert_int_equal(ops->memory_alloc(p->provider.endpoint, SEGMENT_SIZE, &p->memory),
                         YOLK_OK);
        p->bytes = p->memory.pointer;
    } else {
        p->bytes = calloc(1, SEGMENT_SIZE);
    }
    struct yolk_serve serve = {
        .memory = p->bytes,
        .size = SEGMENT_SIZE,
        .segment = SEGMENT,
        .allocation = ops->memory_alloc != NULL ? &p->memory : NULL,
        .access = {.self = &p->access, .check = guarded_check},
    };
    assert_int_equal(ops->serve(p->provider.endpoint, &serve, &p->served, p->text, sizeof p->text),
                     YOLK_OK);
}

static inline void pair_unserve(struct pair *p)
{
    const struct yolk_transport_ops *ops = p->provider.ops;
    if (p->served != NULL)
        ops->unserve(p->provider.endpoint, p->served);
    if (p->bytes == NULL)
        return;
    if (ops->memory_free != NULL)
        ops->memory_free(p->provider.endpoint, &p->memory);
    else
        free(p->bytes);
    access_grant_free(&p->access.grant);
    pthread_mutex_destroy(&p->access.mutex);
}

static inline void pair_open(struct pair *p, const struct yolk_transport_ops *ops,
                             const char *secret)
{
    memset(p, 0, sizeof *p);
    side_open(&p->provider, ops, 1, secret);
    side_open(&p->consumer, ops, 2, secret);
    pair_serve(p, 0);
}

static inline void pair_close(struct pair *p)
{
    side_close(&p->consumer);
    pair_unserve(p);
    side_close(&p->provider);
}

/* Bytes that differ from place to place, and with the seed. */
static inline void fill(uint8_t *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static inline void *target_of(struct pair *p, uint64_t segment, uint64_t session)
{
    void *target = NULL;
    assert_int_equal(p->consumer.ops->open_target(p->consumer.endpoint, p->text, segment,
                                                  SEGMENT_SIZE, session, &target),
                     YOLK_OK);
    return target;
}

/* channel_open, until it is connected or refused. */
static inline enum yolk_status open_channel(const struct yolk_transport_ops *ops, void *endpoint,
                                            void *target, void **channel)
{
    enum yolk_status status;
    uint64_t deadline = clock_real_now_ns() + 10 * CLOCK_NS_PER_S;
    while ((status = ops->channel_open(endpoint, target, channel)) == YOLK_ERR_AGAIN)
        assert_true(clock_real_now_ns() < deadline);
    return status;
}

/* Polls until a completion comes; fails the test after 10 s. */
static inline struct yolk_completion await(const struct yolk_transport_ops *ops, void *channel)
{
    struct yolk_completion completion = {0};
    uint64_t deadline = clock_real_now_ns() + 10 * CLOCK_NS_PER_S;
    while (ops->poll(channel, &completion, 1) == 0)
        assert_true(clock_real_now_ns() < deadline);
    return completion;
}

/* One io to its end; answers its status. */
static inline enum yolk_status run_io(const struct yolk_transport_ops *ops, void *channel,
                                      struct yolk_io *io)
{
    uint64_t deadline = clock_real_now_ns() + 10 * CLOCK_NS_PER_S;
    io->deadline_ns = UINT64_MAX;
    for (;;) {
        enum yolk_submit submit = ops->submit(channel, io);
        if (ops->flush != NULL)
            ops->flush(channel);
        if (submit == YOLK_SUBMIT_DONE || submit == YOLK_SUBMIT_FAILED)
            return io->status;
        if (submit == YOLK_SUBMIT_QUEUED) {
            struct yolk_completion completion = await(ops, channel);
            assert_int_equal(completion.cookie, io->cookie);
            io->transferred = completion.transferred;
            return completion.status;
        }
        struct yolk_completion none;
        assert_int_equal(ops->poll(channel, &none, 1), 0);
        assert_true(clock_real_now_ns() < deadline);
    }
}

static inline enum yolk_status transfer(const struct yolk_transport_ops *ops, void *channel,
                                        enum yolk_opcode opcode, void *local, uint64_t offset,
                                        uint64_t size)
{
    struct yolk_io io = {
        .opcode = opcode, .local = local, .offset = offset, .size = size, .cookie = 5};
    return run_io(ops, channel, &io);
}

/* Stops a child; when it returns no thread of it runs any more. */
static inline void stop_child(pid_t pid)
{
    int info;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &info, WUNTRACED), pid);
    assert_true(WIFSTOPPED(info));
}

/* True if no other thread of this process runs just now. */
static inline bool threads_sleep(void)
{
    bool sleep = true;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
        char path[300], line[200] = "";
        if (d->d_name[0] == '.' || strtol(d->d_name, NULL, 10) == (long)getpid())
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
        FILE *stat = fopen(path, "re");
        if (stat == NULL)
            continue;
        const char *state = fgets(line, sizeof line, stat) != NULL ? strrchr(line, ')') : NULL;
        sleep = sleep && state != NULL && state[2] == 'S';
        (void)fclose(stat);
    }
    closedir(dir);
    return sleep;
}

/* fork, once all other threads sleep in the kernel: the child uses malloc, whose locks (and those
 * of the sanitizers) must not be held by a thread that it does not have. */
static inline pid_t fork_quietly(void)
{
    uint64_t deadline = clock_real_now_ns() + 10 * CLOCK_NS_PER_S;
    while (!threads_sleep())
        assert_true(clock_real_now_ns() < deadline);
    return fork();
}

static inline int entries_of(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static inline int open_descriptors(void)
{
    return entries_of("/proc/self/fd");
}

/* Mappings of this process whose line holds `text`. */
static inline int mappings_of(const char *text)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, text) != NULL;
    (void)fclose(maps);
    return count;
}

#endif
