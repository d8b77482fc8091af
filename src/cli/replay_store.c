/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <yolk/store.h>

#include "cli/common.h"
#include "cli/gpu.h"
#include "cli/replay_content.h"

enum {
    BUFFER_BYTES = 32 << 20, /* a worker's; longer batches take several calls */
    BATCH_MAX = 2048,
    KEY_MAX = 64,
    RETRY_PAUSE_MS = 20,
};

struct replay_store {
    struct yolk_store *store;
    bool owned;
    uint64_t block_size;
    uint64_t seed;
    uint64_t retry_ms;
    size_t batch;
    char *buffer; /* made and checked here */
    size_t buffer_size;
    struct cli_gpu *gpu; /* NULL, or what transfers are from and to instead */
    char *moved;         /* the buffer, or that memory */
    struct yolk_kv *kvs;
    struct yolk_slice *slices;
    char (*keys)[KEY_MAX];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int allocate(struct replay_store *self)
{
    self->batch = BUFFER_BYTES / self->block_size;
    if (self->batch > BATCH_MAX)
        self->batch = BATCH_MAX;
    if (self->batch == 0)
        self->batch = 1;
    self->buffer_size = self->batch * self->block_size;
    void *memory =
        mmap(NULL, self->buffer_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    self->buffer = memory;
    self->kvs = calloc(self->batch, sizeof *self->kvs);
    self->slices = calloc(self->batch, sizeof *self->slices);
    self->keys = calloc(self->batch, sizeof *self->keys);
    return self->kvs && self->slices && self->keys ? 0 : -1;
}

/* What transfers are from and to. */
static enum yolk_status register_memory(struct replay_store *self, int gpu)
{
    int status = gpu < 0 ? YOLK_OK : cli_gpu_open(gpu, self->buffer_size, &self->gpu);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    char *memory = self->gpu ? cli_gpu_memory(self->gpu) : self->buffer;
    status = yolk_store_register_buffer(self->store, memory, self->buffer_size);
    if (status == YOLK_OK)
        self->moved = memory;
    return (enum yolk_status)status;
}

struct replay_store *replay_store_wrap(struct yolk_store *store, bool owned,
                                       const struct replay_worker_options *options, char *error,
                                       size_t error_size)
{
    struct replay_store *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->store = store;
    self->owned = owned;
    self->block_size = options->block_size;
    self->seed = options->seed;
    self->retry_ms = options->timeout_ms;
    if (allocate(self)) {
        snprintf(error, error_size, "no memory for a transfer buffer");
    } else {
        enum yolk_status status = register_memory(self, options->gpu);
        if (status == YOLK_OK)
            return self;
        snprintf(error, error_size, "cannot register a buffer: %s", cli_reason(status));
    }
    self->owned = false;
    replay_store_close(self);
    return NULL;
}

void replay_store_add_gds(struct yolk_store_options *out, uint64_t size, const char *path)
{
    out->gds_enabled = size > 0;
    out->gds_capacity_bytes = size;
    out->gds_path = path;
}

static void fill_options(struct yolk_store_options *out,
                         const struct replay_worker_options *options)
{
    yolk_store_options_init(out);
    out->master = options->master;
    out->name = options->name;
    out->secret_file = options->secret_file;
    out->transport = options->transport;
    out->put_wait_ms = options->put_wait_ms;
    out->timeout_ms = options->timeout_ms;
    replay_store_add_gds(out, options->gds, options->gds_path);
}

struct replay_store *replay_store_open(const struct replay_worker_options *options, char *error,
                                       size_t error_size)
{
    struct yolk_store_options store_options;
    fill_options(&store_options, options);
    struct yolk_store *store = NULL;
    static const struct cli_command command = {"replay", "", "", COMMAND_REPLAY};
    enum yolk_status status = cli_store_open_with(&command, &store_options, &store);
    if (status != YOLK_OK) {
        snprintf(error, error_size, "cannot open the store: %s", cli_reason(status));
        return NULL;
    }
    struct replay_store *self = replay_store_wrap(store, true, options, error, error_size);
    if (!self && yolk_store_close(store) != YOLK_OK)
        fprintf(stderr, "yolk replay: close: %s\n", yolk_last_error());
    return self;
}

void replay_store_close(struct replay_store *self)
{
    if (!self)
        return;
    bool quiet = true;
    if (self->moved)
        quiet = yolk_store_unregister_buffer(self->store, self->moved) == YOLK_OK;
    if (self->owned && yolk_store_close(self->store) != YOLK_OK)
        fprintf(stderr, "yolk replay: close: %s\n", yolk_last_error());
    if (quiet) /* else a transfer may still write there: leave it as it is */
        cli_gpu_close(self->gpu);
    if (self->buffer && quiet)
        munmap(self->buffer, self->buffer_size);
    free(self->kvs);
    free(self->slices);
    free(self->keys);
    free(self);
}

static void prepare(struct replay_store *self, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int length = snprintf(self->keys[i], KEY_MAX, "replay-%" PRIu64 "-%" PRIu64 "-%" PRIu64,
                              self->seed, self->block_size, ids[i]);
        self->slices[i] = (struct yolk_slice){.ptr = self->moved + i * self->block_size,
                                              .size = self->block_size};
        self->kvs[i] = (struct yolk_kv){.key = self->keys[i],
                                        .key_size = (size_t)length,
                                        .slices = &self->slices[i],
                                        .slice_count = 1};
    }
}

static void note_failure(struct replay_answer *answer, const char *what, int64_t status)
{
    answer->failed++;
    if (answer->status)
        return;
    answer->status = (int32_t)status;
    snprintf(answer->text, sizeof answer->text, "%s: %s", what, cli_reason((int)status));
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of blocks present before the first that is not. A failed probe counts as absent. */
static size_t probe(struct replay_store *self, const uint64_t *ids, size_t count,
                    struct replay_answer *answer)
{
    for (size_t first = 0; first < count; first += self->batch) {
        size_t part = min_size(count - first, self->batch);
        prepare(self, ids + first, part);
        enum yolk_status status = yolk_store_exist(self->store, self->kvs, part);
        for (size_t i = 0; i < part; i++) {
            if (self->kvs[i].result == 1)
                continue;
            if (status != YOLK_OK && self->kvs[i].result < 0)
                note_failure(answer, "exist", self->kvs[i].result);
            return first + i;
        }
    }
    return count;
}

/* Between the memory of the GPU, if there is one, and that which is made and checked here. */
static int fetch(struct replay_store *self, size_t count)
{
    return self->gpu ? cli_gpu_read(self->gpu, 0, self->buffer, count * self->block_size) : 0;
}

static int hand_over(struct replay_store *self, size_t count)
{
    return self->gpu ? cli_gpu_write(self->gpu, 0, self->buffer, count * self->block_size) : 0;
}

/* Reads and verifies. The prefix ends at the first block that did not come; one that was evicted
 * since the probe is a miss, not a failure. */
static void get(struct replay_store *self, const uint64_t *ids, size_t count,
                struct replay_answer *answer)
{
    bool gap = false;
    for (size_t first = 0; first < count && !gap; first += self->batch) {
        size_t part = min_size(count - first, self->batch);
        prepare(self, ids + first, part);
        uint64_t start = now_ns();
        enum yolk_status status = yolk_store_get(self->store, self->kvs, part);
        answer->elapsed_ns += now_ns() - start;
        answer->calls++;
        int fetched = fetch(self, part);
        for (size_t i = 0; i < part; i++) {
            int64_t result = fetched != YOLK_OK ? fetched : self->kvs[i].result;
            if (result < 0) {
                if (result != YOLK_ERR_NOT_FOUND)
                    note_failure(answer, "get", result);
                gap = true;
                continue;
            }
            uint64_t wrong =
                replay_content_check(ids[first + i], self->buffer + i * self->block_size,
                                     min_size((size_t)result, self->block_size));
            if ((uint64_t)result != self->block_size) /* a missing byte is a wrong one */
                wrong += (uint64_t)result > self->block_size ? (uint64_t)result - self->block_size
                                                             : self->block_size - (uint64_t)result;
            answer->wrong_bytes += wrong;
            answer->bytes += (uint64_t)result;
            gap = gap || wrong;
            if (gap)
                continue;
            answer->prefix++;
            answer->from_ssd += self->kvs[i].medium == YOLK_MEDIUM_LOCAL_DISK;
            answer->from_gds += self->kvs[i].medium == YOLK_MEDIUM_GDS;
        }
        gap = gap || status != YOLK_OK;
    }
}

/* Moves the items that may be tried again to the front; the others are counted. */
static size_t keep_retryable(struct replay_store *self, size_t count, bool more_tries,
                             struct replay_answer *answer)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t result = self->kvs[i].result;
        if (result >= 0) {
            answer->bytes += (uint64_t)result;
        } else if (more_tries && yolk_status_scope((enum yolk_status)result) !=
                                     yolk_status_scope(YOLK_ERR_INVALID)) {
            self->kvs[kept++] = self->kvs[i]; /* a peer or the way to it, not the request */
        } else {
            note_failure(answer, "put", result);
        }
    }
    return kept;
}

/* A put that failed because a process died is tried again for one more timeout. */
static void put(struct replay_store *self, const uint64_t *ids, size_t count,
                struct replay_answer *answer)
{
    for (size_t first = 0; first < count; first += self->batch) {
        size_t part = min_size(count - first, self->batch);
        prepare(self, ids + first, part);
        for (size_t i = 0; i < part; i++)
            replay_content_fill(ids[first + i], self->buffer + i * self->block_size,
                                self->block_size);
        int handed = hand_over(self, part);
        if (handed != YOLK_OK) {
            for (size_t i = 0; i < part; i++)
                note_failure(answer, "put", handed);
            continue;
        }
        uint64_t give_up_ns = now_ns() + self->retry_ms * 1000000u;
        while (part) {
            uint64_t start = now_ns();
            enum yolk_status status = yolk_store_put(self->store, self->kvs, part);
            answer->elapsed_ns += now_ns() - start;
            answer->calls++;
            (void)status; /* the results say it per block */
            part = keep_retryable(self, part, now_ns() < give_up_ns, answer);
            struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000};
            if (part)
                nanosleep(&pause, NULL);
        }
    }
}

void replay_store_execute(struct replay_store *self, const struct replay_command *command,
                          const uint64_t *ids, struct replay_answer *answer)
{
    *answer = (struct replay_answer){.number = command->number};
    switch (command->kind) {
    case REPLAY_EXIST:
        answer->prefix = (uint32_t)probe(self, ids, command->count, answer);
        break;
    case REPLAY_GET:
        get(self, ids, command->count, answer);
        break;
    case REPLAY_LOOKUP:
        get(self, ids, probe(self, ids, command->count, answer), answer);
        break;
    case REPLAY_PUT:
        put(self, ids, command->count, answer);
        break;
    default:
        note_failure(answer, "unknown command", YOLK_ERR_INVALID);
        break;
    }
}
