/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/temporary_kit.h"
#include "world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/clock.h"
#include "transport/threads_kit.h"

void world_init(struct world *w, const struct conformance_fixture *fixture)
{
    memset(w, 0, sizeof(*w));
    w->fixture = fixture;
    w->faults.inner = fixture->ops;
    w->faults.control = &w->control;
    w->faults.seed = 4711;
    w->size = WORLD_SIZE;
    w->slice_bytes_max = WORLD_SLICE;
    w->file = -1;
    for (size_t i = 0; i < sizeof(w->key); i++)
        w->key[i] = (uint8_t)(i * 7 + 1);
}

static int has_faults(const struct fault_options *f)
{
    return f->delay_permille + f->drop_permille + f->reorder_permille + f->duplicate_permille +
               f->short_permille + f->again_permille + f->stuck_permille + f->fail_permille +
               f->late_fail_permille + f->corrupt_permille + f->partial_permille +
               f->death_permille + f->defer_permille >
           0;
}

static uint64_t consumer_now(void *self)
{
    return clock_real_now_ns() + atomic_load(&((struct world *)self)->jumped_ns);
}

static struct yolk_engine *make_engine(struct world *w, int is_provider)
{
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    const struct yolk_transport_ops *ops = w->fixture->ops;
    if (!is_provider && (w->wrapped || has_faults(&w->faults))) {
        transport_fault_make(&w->faults, &w->fault_ops);
        ops = &w->fault_ops;
        options.transport.wrapped = &w->faults;
    }
    options.transports = &ops;
    options.transport_count = 1;
    options.slice_bytes_max = w->slice_bytes_max;
    options.window_slices = 4;
    /* Each request shall be an io of its own, but where merging is the subject. */
    options.merge = w->merges ? YOLK_SWITCH_ON : YOLK_SWITCH_OFF;
    options.staging_bytes = w->staging_bytes;
    options.drain_limit_ms = w->drain_limit_ms;
    options.attempts_max = w->attempts_max;
    options.breaker_failures = w->breaker_failures;
    if (!is_provider) {
        options.transport.now_ns = consumer_now;
        options.transport.clock_self = w;
    }
    if (w->fixture->prepare != NULL)
        w->fixture->prepare(&options.transport, is_provider);
    struct yolk_engine *engine = NULL;
    enum yolk_status status = yolk_engine_create(&options, &engine);
    if (status != YOLK_OK)
        print_error("engine: %s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
    return engine;
}

static void serve_memory(struct world *w)
{
    assert_int_equal(yolk_engine_memory_alloc(w->provider, w->size, &w->memory), YOLK_OK);
    world_fill(w->memory.pointer, w->size, 1);
    struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                       .memory = w->memory.pointer,
                                       .size = w->size,
                                       .allocation = &w->memory,
                                       .segment = WORLD_SEGMENT,
                                       .require_tickets = w->require_tickets};
    memcpy(serve.ticket_key, w->key, sizeof(w->key));
    enum yolk_status status = yolk_engine_serve(w->provider, &serve, &w->served);
    if (status != YOLK_OK)
        print_error("serve: %s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
}

/* The mapping and direct I/O see each other's bytes: the kernel keeps them coherent. */
static void serve_file(struct world *w)
{
    char path[TEMPORARY_MAX] = "yolk-conformance-XXXXXX";
    w->file = mkstemp(temporary_path(path));
    assert_true(w->file >= 0);
    assert_int_equal(ftruncate(w->file, (off_t)w->size), 0);
    w->memory.size = w->size;
    w->memory.pointer = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_SHARED, w->file, 0);
    assert_ptr_not_equal(w->memory.pointer, MAP_FAILED);
    world_fill(w->memory.pointer, w->size, 1);
    const struct yolk_serve_file_options serve = {
        .struct_size = sizeof(serve), .path = path, .writable = 1, .segment = WORLD_SEGMENT};
    enum yolk_status status = yolk_engine_serve_file(w->provider, &serve, &w->served);
    if (status != YOLK_OK)
        print_error("serve: %s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
    unlink(path);
}

void world_open_provider(struct world *w)
{
    w->provider = make_engine(w, 1);
    if (w->fixture->serves_files)
        serve_file(w);
    else
        serve_memory(w);
}

void world_open_consumer(struct world *w, const char *endpoints)
{
    w->consumer = make_engine(w, 0);
    const struct yolk_segment_descriptor descriptor = {WORLD_SEGMENT, 1, w->size, endpoints};
    assert_int_equal(yolk_engine_segment_open(w->consumer, &descriptor, WORLD_SESSION, &w->segment),
                     YOLK_OK);
    w->local = calloc(1, w->size);
    assert_non_null(w->local);
    if (w->staged)
        w->faults.refused = w->local;
    assert_int_equal(yolk_engine_register(w->consumer, w->local, w->size), YOLK_OK);
}

void world_open(struct world *w)
{
    world_open_provider(w);
    world_open_consumer(w, yolk_served_endpoints(w->served));
}

void world_close_provider(struct world *w)
{
    if (w->provider == NULL)
        return;
    if (w->served != NULL) /* not by the case itself */
        yolk_engine_unserve(w->provider, w->served);
    if (w->fixture->serves_files) {
        munmap(w->memory.pointer, w->size);
        close(w->file);
    } else {
        yolk_engine_memory_free(w->provider, &w->memory);
    }
    assert_int_equal(yolk_engine_destroy(w->provider), YOLK_OK);
    w->provider = NULL;
    w->served = NULL;
}

void world_close_consumer(struct world *w)
{
    if (w->consumer == NULL)
        return;
    enum yolk_status status = yolk_engine_destroy(w->consumer);
    if (status != YOLK_OK)
        print_error("destroy: %s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
    w->consumer = NULL;
    free(w->local);
    w->local = NULL;
}

void world_close(struct world *w)
{
    world_close_consumer(w);
    world_close_provider(w);
}

uint8_t world_byte(uint64_t seed, uint64_t offset)
{
    uint64_t x = (offset + seed * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint8_t)(x >> 56);
}

/* The thread sanitizer does not see that two ends of one connection are ordered by it. */
#if defined(__clang__) || defined(__GNUC__)
#define NOT_TRACED __attribute__((no_sanitize("thread")))
#else
#define NOT_TRACED
#endif

NOT_TRACED void world_fill(uint8_t *memory, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        memory[i] = world_byte(seed, i);
}

NOT_TRACED void world_assert_filled(const uint8_t *memory, uint64_t size, uint64_t seed,
                                    uint64_t offset)
{
    for (uint64_t i = 0; i < size; i++)
        if (memory[i] != world_byte(seed, offset + i))
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i, (unsigned long long)size);
}

struct yolk_request world_request(struct world *w, enum yolk_opcode opcode, void *local,
                                  uint64_t offset, uint64_t size)
{
    return (struct yolk_request){
        .opcode = opcode, .local = local, .segment = w->segment, .offset = offset, .size = size};
}

void world_jump(struct world *w, uint64_t ms)
{
    (void)atomic_fetch_add(&w->jumped_ns, ms * CLOCK_NS_PER_MS);
}

uint64_t world_deadline(struct world *w, uint64_t ms)
{
    return yolk_engine_now_ns(w->consumer) + ms * UINT64_C(1000000);
}

enum yolk_status world_run(struct world *w, const struct yolk_request *request,
                           struct yolk_task_status *out)
{
    uint64_t batch;
    enum yolk_status verdict;
    struct yolk_task_status status;
    assert_int_equal(yolk_engine_batch_create(w->consumer, 1, &batch), YOLK_OK);
    (void)!yolk_engine_batch_submit(w->consumer, batch, request, 1, &verdict, NULL);
    assert_int_equal(yolk_engine_batch_wait(w->consumer, batch, world_deadline(w, 30000)), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(w->consumer, batch, 0, &status), YOLK_OK);
    assert_true(status.terminal);
    if (verdict != YOLK_OK)
        assert_int_equal(status.status, verdict);
    assert_int_equal(yolk_engine_batch_free(w->consumer, batch), YOLK_OK);
    if (out != NULL)
        *out = status;
    return status.status;
}

enum yolk_status world_transfer(struct world *w, enum yolk_opcode opcode, void *local,
                                uint64_t offset, uint64_t size)
{
    struct yolk_request request = world_request(w, opcode, local, offset, size);
    struct yolk_task_status status;
    enum yolk_status result = world_run(w, &request, &status);
    if (result == YOLK_OK)
        assert_int_equal(status.transferred, size);
    return result;
}

static uint64_t count_entries(const char *path)
{
    uint64_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

uint64_t world_open_fds(void)
{
    return count_entries("/proc/self/fd");
}

uint64_t world_threads(void)
{
    return (uint64_t)running_threads();
}

uint64_t world_shared_maps(void)
{
    uint64_t count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return count;
}
