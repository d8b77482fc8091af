/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of a transfer that is measured: the memory or file that is the target, and the engine
 * and memory of the one who moves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_transfer_state.h"
#include "platform/random.h"
#include "transport/loop/loop.h"
#include "transport/null/null.h"
#include "transport/posix/posix.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/uring/uring.h"

enum { SEGMENT = 1, STEP = 64 * 1024 * 1024 };

static const struct {
    const char *name;
    const struct yolk_transport_ops *(*ops)(void);
    bool of_files, of_this_process;
} TRANSPORTS[] = {
    {"null", transport_null_ops, false, true},   {"loop", transport_loop_ops, false, true},
    {"shm", transport_shm_ops, false, false},    {"tcp", transport_tcp_ops, false, false},
    {"uring", transport_uring_ops, true, false}, {"posix", transport_posix_ops, true, false},
};
enum { TRANSPORT_COUNT = sizeof(TRANSPORTS) / sizeof(TRANSPORTS[0]) };

static int find_transport(const char *name)
{
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        if (strcmp(TRANSPORTS[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- the target ---- */

static enum yolk_status make_engine(const struct transfer_options *options, const char *second,
                                    struct yolk_engine **engine)
{
    const struct yolk_transport_ops *transports[2];
    struct yolk_engine_options made;
    yolk_engine_options_init(&made);
    made.transports = transports;
    transports[made.transport_count++] = TRANSPORTS[find_transport(options->transport)].ops();
    if (second != NULL)
        transports[made.transport_count++] = TRANSPORTS[find_transport(second)].ops();
    made.transport.host = options->host;
    made.transport.secret = options->secret;
    made.transport.secret_size = options->secret_size;
    return yolk_engine_create(&made, engine);
}

/* The memory of a target, filled, in *served; *name is what bench_transfer_open takes. */
static enum yolk_status serve_memory(struct transfer *t, char name[BENCH_WORD_MAX])
{
    enum yolk_status status =
        yolk_engine_memory_alloc(t->engine, t->options.buffer_bytes, &t->served_memory);
    if (status != YOLK_OK)
        return status;
    bench_pattern_fill(t->served_memory.pointer, 0, t->options.buffer_bytes, 0);
    const struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                             .memory = t->served_memory.pointer,
                                             .size = t->options.buffer_bytes,
                                             .allocation = &t->served_memory,
                                             .segment = SEGMENT};
    status = yolk_engine_serve(t->engine, &serve, &t->served);
    if (status != YOLK_OK)
        return status;
    int n = snprintf(name, BENCH_WORD_MAX, "%" PRIu64 "/%s", t->options.buffer_bytes,
                     yolk_served_endpoints(t->served));
    return n < BENCH_WORD_MAX ? YOLK_OK : base_fail(YOLK_ERR_BUFFER_SMALL, 0, "the target's name");
}

static void stop_serving(struct transfer *t)
{
    if (t->served != NULL)
        yolk_engine_unserve(t->engine, t->served);
    if (t->served_memory.pointer != NULL)
        yolk_engine_memory_free(t->engine, &t->served_memory);
    t->served = NULL;
}

enum yolk_status bench_transfer_serve(const struct transfer_options *options,
                                      void (*ready)(void *self, enum yolk_status status,
                                                    const char *name),
                                      void *self)
{
    char name[BENCH_WORD_MAX] = "";
    struct transfer t = {.options = *options};
    /* Memory that shm made is served by tcp too. */
    enum yolk_status status =
        make_engine(options, strcmp(options->transport, "tcp") == 0 ? NULL : "tcp", &t.engine);
    if (status == YOLK_OK)
        status = serve_memory(&t, name);
    ready(self, status, name);
    stop_serving(&t);
    enum yolk_status ended = yolk_engine_destroy(t.engine);
    return status == YOLK_OK ? ended : status;
}

struct ends {
    int stop_fd, word_fd;
};

static void tell(void *self, enum yolk_status status, const char *name)
{
    const struct ends *ends = self;
    bench_child_say(ends->word_fd, status, name);
    bench_child_wait_for_end(ends->stop_fd);
}

static enum yolk_status run_target(void *self, int stop_fd, int word_fd)
{
    struct ends ends = {stop_fd, word_fd};
    return bench_transfer_serve(self, tell, &ends);
}

/* ---- the one who moves ---- */

static enum yolk_status open_named(struct transfer *t, const char *name)
{
    char *rest;
    t->segment_bytes = strtoull(name, &rest, 10);
    if (t->segment_bytes == 0 || *rest != '/')
        return base_fail(YOLK_ERR_INVALID, 0,
                         "target \"%.200s\": neither what a target printed nor file://PATH", name);
    const struct random random = random_real();
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = t->segment_bytes, .endpoints = rest + 1};
    enum yolk_status status =
        yolk_engine_segment_open(t->engine, &descriptor, random_u64(&random) | 1, &t->segment);
    const void *base;
    uint64_t size;
    /* To copy from it bare, where that can be. */
    if (status == YOLK_OK && strcmp(t->options.transport, "shm") == 0) {
        status = yolk_engine_segment_map(t->engine, t->segment, &base, &size);
        t->mapped = status == YOLK_OK ? base : NULL;
    }
    return status;
}

/* A file without a name, so that no end leaves it behind, full of the pattern. */
static enum yolk_status make_file(struct transfer *t)
{
    const struct file_system fs = file_system_default();
    char path[512];
    int n = snprintf(path, sizeof(path), "%s/yolk-bench-%ld", t->options.path, (long)getpid());
    int status = n < (int)sizeof(path) ? YOLK_OK
                                       : base_fail(YOLK_ERR_INVALID, 0,
                                                   "the folder's name is too "
                                                   "long");
    if (status == YOLK_OK)
        status = file_open(&fs, path,
                           FILE_READ | FILE_WRITE | FILE_CREATE | FILE_EXCLUSIVE | FILE_DIRECT,
                           &t->file);
    if (status == YOLK_OK)
        status = file_unlink(&fs, path);
    for (uint64_t at = 0; at < t->options.buffer_bytes && status == YOLK_OK; at += STEP) {
        uint64_t left = t->options.buffer_bytes - at, size = left < STEP ? left : STEP;
        if (size > t->memory_bytes)
            size = t->memory_bytes;
        bench_pattern_fill(t->memory, at, size, 0);
        status = file_pwrite(t->file, t->memory, size, at);
    }
    return (enum yolk_status)(status == YOLK_OK ? file_fdatasync(t->file) : status);
}

static enum yolk_status open_own_file(struct transfer *t)
{
    enum yolk_status status = make_file(t);
    const struct yolk_serve_file_options serve = {.struct_size = sizeof(serve),
                                                  .internal = t->file,
                                                  .writable = 1,
                                                  .size = t->options.buffer_bytes,
                                                  .segment = SEGMENT};
    if (status == YOLK_OK)
        status = yolk_engine_serve_file(t->engine, &serve, &t->served);
    if (status != YOLK_OK)
        return status;
    const struct yolk_segment_descriptor descriptor = {.id = SEGMENT,
                                                       .size = t->options.buffer_bytes,
                                                       .endpoints =
                                                           yolk_served_endpoints(t->served)};
    t->segment_bytes = descriptor.size;
    return yolk_engine_segment_open(t->engine, &descriptor, 1, &t->segment);
}

static enum yolk_status open_file(struct transfer *t, const char *url)
{
    const struct file_system fs = file_system_default();
    int writable = t->options.op != TRANSFER_READ;
    int status = file_open(&fs, url + strlen("file://"),
                           FILE_READ | FILE_DIRECT | (writable ? FILE_WRITE : 0), &t->file);
    return status == YOLK_OK
               ? yolk_engine_file_open(t->engine, url, writable, &t->segment, &t->segment_bytes)
               : (enum yolk_status)status;
}

static enum yolk_status open_own_memory(struct transfer *t)
{
    char name[BENCH_WORD_MAX];
    if (strcmp(t->options.transport, "null") == 0) {
        snprintf(name, sizeof(name), "%" PRIu64 "/null=0", t->options.buffer_bytes);
        return open_named(t, name);
    }
    enum yolk_status status = serve_memory(t, name);
    if (status == YOLK_OK)
        status = open_named(t, name);
    t->mapped = t->served_memory.pointer;
    return status;
}

static enum yolk_status open_memory(struct transfer *t)
{
    /* What is looked at is read back behind what was written. */
    t->memory_bytes = t->options.buffer_bytes * (t->options.check ? 2 : 1);
    void *memory = mmap(NULL, t->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "%" PRIu64 " bytes to move", t->memory_bytes);
    t->memory = memory;
    memset(memory, 1, t->memory_bytes);
    return yolk_engine_register(t->engine, t->memory, t->memory_bytes);
}

static enum yolk_status open_both(struct transfer *t, int transport)
{
    char name[BENCH_WORD_MAX] = "";
    bool of_files = TRANSPORTS[transport].of_files, own = t->options.target[0] == '\0';
    bool is_file = strncmp(t->options.target, "file://", 7) == 0;
    if (!own && is_file != of_files)
        return base_fail(YOLK_ERR_INVALID, 0, "transport %s: %s", t->options.transport,
                         of_files ? "its target is file://PATH" : "its target is no file");
    if (!own && TRANSPORTS[transport].of_this_process)
        return base_fail(YOLK_ERR_INVALID, 0, "transport %s: its target is of this process",
                         t->options.transport);
    enum yolk_status status = transfer_bare_open(t);
    bool child = own && !of_files && !TRANSPORTS[transport].of_this_process;
    if (status == YOLK_OK && child)
        status =
            bench_child_start(&t->child, &(struct bench_child_run){run_target, &t->options}, name);
    if (status == YOLK_OK)
        status = make_engine(&t->options, NULL, &t->engine);
    if (status == YOLK_OK)
        status = open_memory(t);
    if (status != YOLK_OK)
        return status;
    if (child)
        return open_named(t, name);
    if (!own)
        return is_file ? open_file(t, t->options.target) : open_named(t, t->options.target);
    return of_files ? open_own_file(t) : open_own_memory(t);
}

enum yolk_status bench_transfer_open(const struct transfer_options *options, struct transfer **out)
{
    int transport = find_transport(options->transport);
    *out = NULL;
    if (transport < 0)
        return base_fail(YOLK_ERR_INVALID, 0, "\"%s\" is no transport", options->transport);
    struct transfer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a measurement");
    t->options = *options;
    enum yolk_status status = open_both(t, transport);
    if (status != YOLK_OK) {
        bench_transfer_close(t);
        return status;
    }
    *out = t;
    return YOLK_OK;
}

void bench_transfer_close(struct transfer *t)
{
    if (t == NULL)
        return;
    if (t->segment != 0)
        base_ignore(yolk_engine_segment_close(t->engine, t->segment));
    if (t->engine != NULL) {
        stop_serving(t);
        base_ignore(yolk_engine_destroy(t->engine)); /* nothing is in flight */
    }
    if (t->file != NULL)
        file_close(t->file);
    bench_child_end(&t->child);
    transfer_bare_close(t);
    if (t->memory != NULL)
        munmap(t->memory, t->memory_bytes);
    free(t);
}
