/* SPDX-License-Identifier: Apache-2.0 */
/* uring and posix over real files, case by case. */
#include "transport/file/kit.h"

static struct kit kit_for(void **state)
{
    return (struct kit){.ops = {*state}, .ops_count = 1, .size = 4 * MIB};
}

/* ---- C70: the destination ends where its pages do ---- */
static void read_to_the_end_of_memory(struct kit *k, uint8_t *end, uint64_t offset, uint64_t size)
{
    uint8_t *to = end - size;
    memset(to - 64, 0xee, size + 64);
    if (kit_one(k, YOLK_READ, to, offset, size) != YOLK_OK)
        fail_msg("%llu bytes at %llu cannot be read", (unsigned long long)size,
                 (unsigned long long)offset);
    if (!kit_is_filled(to, size, offset))
        fail_msg("%llu bytes at %llu are wrong", (unsigned long long)size,
                 (unsigned long long)offset);
    for (int i = 1; i <= 64; i++)
        assert_int_equal(to[-i], 0xee);
}

static void c70_destination_ends_at_a_guard_page(void **state)
{
    struct kit k = kit_for(state);
    k.size = 4 * MIB + 4097; /* the file's end is not aligned either */
    const uint64_t room = 2 * MIB;
    uint8_t *memory = kit_map(room + 4096);
    assert_int_equal(mprotect(memory + room, 4096, PROT_NONE), 0);
    kit_open(&k);
    assert_int_equal(yolk_engine_register(k.engine, memory, room), YOLK_OK);
    /* Each size once, each offset twice; 2741 is odd, so the offsets are all there. */
    for (uint64_t size = 1; size <= 8193; size++)
        read_to_the_end_of_memory(&k, memory + room, 4096 * (size % 7) + size * 2741 % 4096, size);
    for (uint64_t offset = 0; offset < 4096; offset += 29)
        for (uint64_t size = MIB - 1; size <= MIB + 1; size++)
            read_to_the_end_of_memory(&k, memory + room, offset, size);
    for (uint64_t size = 1; size < 9000; size += 113)
        read_to_the_end_of_memory(&k, memory + room, k.size - size, size);
    kit_close(&k);
    munmap(memory, room + 4096);
}

/* ---- C71: memory of any address ---- */
static void c71_addresses_of_any_alignment(void **state)
{
    struct kit k = kit_for(state);
    k.pad_writes = 1;
    kit_open(&k);
    kit_address_matrix(&k);
    kit_close(&k);
}

/* Writes of any place and size keep their neighbours, as a copy in memory tells. */
static void writes_keep_their_neighbours(void **state)
{
    struct kit k = kit_for(state);
    k.size = 300 * 1024 + 77;
    kit_open(&k);
    uint8_t *memory = kit_map(MIB), *model = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    kit_fill(model, k.size, 0);
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 400; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t size = 1 + x % (round % 3 == 0 ? 300 : 150000);
        uint64_t offset = (x >> 20) % (k.size - size + 1);
        if (round % 10 == 0)
            offset = k.size - size;
        uint8_t *local = memory + (x >> 40) % 4096;
        kit_fill(local, size, x);
        memcpy(model + offset, local, size);
        assert_int_equal(kit_one(&k, YOLK_WRITE, local, offset, size), YOLK_OK);
    }
    uint64_t size;
    assert_int_equal(file_size(k.file, &size), YOLK_OK);
    assert_int_equal(size, k.size); /* no padding made it longer */
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, k.size), YOLK_OK);
    assert_memory_equal(memory, model, k.size);
    kit_close(&k);
    munmap(memory, MIB);
    munmap(model, MIB);
}

/* Writes side by side in the same block, under way at once. */
static void neighbours_in_one_block_at_once(void **state)
{
    enum { COUNT = 500, SIZE = 100 };
    struct kit k = kit_for(state);
    struct yolk_request requests[COUNT];
    enum yolk_status results[COUNT];
    k.size = COUNT * SIZE;
    kit_open(&k);
    uint8_t *memory = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    kit_fill(memory, k.size, 7777);
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] = (struct yolk_request){
            .opcode = YOLK_WRITE, .local = memory + i * SIZE, .offset = i * SIZE, .size = SIZE};
    kit_run(&k, requests, COUNT, results);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(results[i], YOLK_OK);
    memset(memory, 0, k.size);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, k.size), YOLK_OK);
    assert_true(kit_is_filled(memory, k.size, 7777));
    kit_close(&k);
    munmap(memory, MIB);
}

/* ---- C78 ---- */
static void c78_many_reads_at_once_and_the_last_record(void **state)
{
    enum { KEYS = 64, SIZE = 50000 };
    struct kit k = kit_for(state);
    struct yolk_request requests[KEYS];
    enum yolk_status results[KEYS];
    struct file_transport_stats before, after;
    k.size = KEYS * SIZE - 4321;
    kit_open(&k);
    uint8_t *memory = kit_map(4 * MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, 4 * MIB), YOLK_OK);
    for (uint64_t i = 0; i < KEYS; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = memory + i * SIZE,
                                            .offset = i * SIZE,
                                            .size = i + 1 < KEYS ? SIZE : k.size - i * SIZE};
    file_transport_stats_reset_depth();
    kit_run(&k, requests, KEYS, results);
    for (uint64_t i = 0; i < KEYS; i++)
        assert_int_equal(results[i], YOLK_OK);
    assert_true(kit_is_filled(memory, k.size, 0));
    file_transport_stats(&after);
    print_message("ios under way at once: %llu\n", (unsigned long long)after.depth_max);
    assert_true(after.depth_max >= 16);
    /* No bytes: allowed, and nothing is asked of the file. */
    file_transport_stats(&before);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, k.size, 0), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_READ, NULL, 0, 0), YOLK_OK);
    file_transport_stats(&after);
    assert_int_equal(after.steps, before.steps);
    kit_close(&k);
    munmap(memory, 4 * MIB);
}

/* ---- C76 ---- */
enum { C76_THREADS = 8, C76_READS = 625, C76_SIZE = 4096 };

struct reader {
    struct kit *kit;
    uint8_t *memory;
    uint32_t number;
    uint32_t wrong;
};

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    struct yolk_request *requests = calloc(C76_READS, sizeof(*requests));
    enum yolk_status *results = calloc(C76_READS, sizeof(*results));
    for (uint64_t i = 0; i < C76_READS; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = r->memory + i * C76_SIZE,
                                            .offset = (i * 13 + r->number * 77) % 1000 * C76_SIZE,
                                            .size = C76_SIZE};
    kit_run(r->kit, requests, C76_READS, results);
    for (uint64_t i = 0; i < C76_READS; i++)
        r->wrong += results[i] != YOLK_OK ||
                    !kit_is_filled(requests[i].local, C76_SIZE, requests[i].offset);
    free(requests);
    free(results);
    return NULL;
}

static void c76_more_reads_than_entries(void **state)
{
    const uint64_t each = (uint64_t)C76_READS * C76_SIZE;
    struct kit k = kit_for(state);
    struct reader readers[C76_THREADS];
    pthread_t threads[C76_THREADS];
    k.queue_depth = 8;
    kit_open(&k);
    uint8_t *memory = kit_map(C76_THREADS * each);
    assert_int_equal(yolk_engine_register(k.engine, memory, C76_THREADS * each), YOLK_OK);
    for (uint32_t i = 0; i < C76_THREADS; i++) {
        readers[i] = (struct reader){&k, memory + i * each, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < C76_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].wrong, 0);
    }
    struct yolk_engine_stats stats;
    yolk_engine_stats(k.engine, &stats);
    assert_int_equal(stats.tasks_ok, C76_THREADS * C76_READS);
    assert_int_equal(stats.slices_submitted, C76_THREADS * C76_READS);
    assert_int_equal(stats.completions_unknown, 0);
    kit_close(&k);
    munmap(memory, C76_THREADS * each);
}

/* ---- C77 ---- */
static void c77_short_interrupted_and_failed(void **state)
{
    enum { KEYS = 16, SIZE = 128 * 1024 };
    struct kit k = kit_for(state);
    struct yolk_request requests[KEYS];
    enum yolk_status results[KEYS];
    struct file_transport_stats before, after;
    k.rules = "read:1+3=short,read:5=eintr,read:6+2=eagain,read:9=eio,read:10=short";
    k.attempts_max = 1;
    kit_open(&k);
    uint8_t *memory = kit_map(4 * MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, 4 * MIB), YOLK_OK);
    for (uint64_t i = 0; i < KEYS; i++)
        requests[i] = (struct yolk_request){
            .opcode = YOLK_READ, .local = memory + i * SIZE, .offset = i * SIZE, .size = SIZE};
    file_transport_stats(&before);
    kit_run(&k, requests, KEYS, results);
    file_transport_stats(&after);
    uint32_t failed = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        failed += results[i] == YOLK_ERR_IO;
        if (results[i] != YOLK_ERR_IO) {
            assert_int_equal(results[i], YOLK_OK);
            assert_true(kit_is_filled(memory + i * SIZE, SIZE, i * SIZE));
        }
    }
    assert_int_equal(failed, 1);
    assert_int_equal(file_inject_hits(k.inject), 8);
    assert_int_equal(after.retried - before.retried, 7);
    /* One bad place says nothing about the way to the others. */
    struct yolk_engine_stats stats;
    yolk_engine_stats(k.engine, &stats);
    assert_int_equal(stats.breakers_opened, 0);
    kit_close(&k);
    munmap(memory, 4 * MIB);
}

static void c77_writes_too(void **state)
{
    struct kit k = kit_for(state);
    k.rules = "write:0=short,write:1=eintr,write:2=eagain,write:4=enospc,write:5=eio";
    k.attempts_max = 1;
    kit_open(&k);
    uint8_t *memory = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    kit_fill(memory, MIB, 5);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, MIB, MIB), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 0, 4096), YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 0, 4096), YOLK_ERR_IO);
    memset(memory, 0, MIB);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, MIB, MIB), YOLK_OK);
    assert_true(kit_is_filled(memory, MIB, 5));
    kit_close(&k);
    munmap(memory, MIB);
}

/* ---- C69 ---- */
static void refused_once(void **state, const char *rules)
{
    struct kit k = kit_for(state);
    k.rules = rules;
    kit_direct_is_refused_once(&k);
}

static void c69_direct_refused_at_open(void **state)
{
    refused_once(state, "open:0=nodirect");
}

static void c69_direct_refused_at_read(void **state)
{
    refused_once(state, "read:0+=einval");
}

/* ---- C68 ---- */
static void c68_direct_is_direct(void **state)
{
    struct kit k = kit_for(state);
    k.size = (getenv("YOLK_CASES_FULL") != NULL ? 2048 : 256) * MIB;
    kit_open(&k);
    if (!file_direct(k.file)) {
        kit_close(&k);
        print_message("SKIP: /tmp lies on a file system without direct I/O\n");
        skip();
    }
    char path[64], line[64] = "";
    unsigned long flags = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", file_descriptor(k.file));
    FILE *info = fopen(path, "re");
    assert_non_null(info);
    while (fgets(line, sizeof(line), info) != NULL)
        if (strncmp(line, "flags:", 6) == 0)
            flags = strtoul(line + 6, NULL, 8);
    (void)fclose(info);
    assert_true(flags & O_DIRECT);
    uint8_t *memory = kit_map(4 * MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, 4 * MIB), YOLK_OK);
    kit_fill(memory, 4 * MIB, 1);
    for (uint64_t at = 0; at < k.size; at += 4 * MIB)
        assert_int_equal(
            kit_one(&k, at % (8 * MIB) == 0 ? YOLK_WRITE : YOLK_READ, memory, at, 4 * MIB),
            YOLK_OK);
    double resident = 1;
    assert_int_equal(file_residency(k.path, &resident), YOLK_OK);
    print_message("page cache: %.2f %%\n", 100 * resident);
    assert_true(resident < 0.05);
    kit_close(&k);
    munmap(memory, 4 * MIB);
}

/* ---- C73: a file that could not be reserved is a hole at first ---- */
static void c73_first_write_without_reservation(void **state)
{
    struct kit k = kit_for(state);
    k.rules = "allocate:0+=eopnotsupp";
    kit_open(&k);
    assert_int_equal(file_fallocate(k.file, 0, 8 * MIB), YOLK_ERR_UNSUPPORTED);
    assert_int_equal(file_resize(k.file, 0), YOLK_OK);
    assert_int_equal(file_resize(k.file, 4 * MIB), YOLK_OK);
    uint8_t *memory = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    kit_fill(memory, MIB, 3);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 4096, 5000), YOLK_OK);
    memset(memory, 1, MIB);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, 20000), YOLK_OK);
    assert_true(kit_is_filled(memory + 4096, 5000, 3));
    for (uint64_t i = 0; i < 20000; i++)
        if (i < 4096 || i >= 9096)
            assert_int_equal(memory[i], 0);
    kit_close(&k);
    munmap(memory, MIB);
}

/* ---- the owner's say ---- */
struct owner {
    _Atomic uint64_t begun, ended;
    struct yolk_access_request last;
    struct yolk_ticket ticket;
    enum yolk_status answer;
};

static enum yolk_status owner_begin(void *self, const struct yolk_access_request *request)
{
    struct owner *o = self;
    o->last = *request;
    o->ticket = *request->ticket;
    if (o->answer == YOLK_OK)
        o->begun++;
    return o->answer;
}

static void owner_end(void *self, const struct yolk_access_request *request)
{
    struct owner *o = self;
    assert_int_equal(request->ticket->op, o->ticket.op);
    o->ended++;
}

static void the_owner_leases_each_access(void **state)
{
    struct kit k = kit_for(state);
    struct owner owner = {.answer = YOLK_OK};
    kit_open(&k);
    const struct yolk_serve_file_options serve = {.struct_size = sizeof(serve),
                                                  .internal = k.file,
                                                  .offset = 4096,
                                                  .size = MIB,
                                                  .segment = KIT_SEGMENT + 1,
                                                  .owner = {&owner, owner_begin, owner_end}};
    struct yolk_served *served;
    assert_int_equal(yolk_engine_serve_file(k.engine, &serve, &served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {
        .id = KIT_SEGMENT + 1, .size = MIB, .endpoints = yolk_served_endpoints(served)};
    uint64_t whole = k.segment;
    assert_int_equal(yolk_engine_segment_open(k.engine, &descriptor, KIT_SESSION, &k.segment),
                     YOLK_OK);
    uint8_t *memory = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    struct yolk_request request = {.opcode = YOLK_READ,
                                   .local = memory,
                                   .offset = 100,
                                   .size = 5000,
                                   .ticket = {.offset = 96, .size = 6000, .op = 1234}};
    enum yolk_status result;
    kit_run(&k, &request, 1, &result);
    assert_int_equal(result, YOLK_OK);
    assert_true(kit_is_filled(memory, 5000, 4096 + 100));
    assert_int_equal(owner.begun, 1);
    assert_int_equal(owner.ended, 1);
    assert_int_equal(owner.last.session, KIT_SESSION);
    assert_int_equal(owner.last.offset, 100);
    assert_int_equal(owner.ticket.offset, 96);
    assert_int_equal(owner.ticket.size, 6000);
    owner.answer = YOLK_ERR_STALE;
    kit_run(&k, &request, 1, &result);
    assert_int_equal(result, YOLK_ERR_STALE);
    assert_int_equal(owner.begun, owner.ended);
    request.opcode = YOLK_WRITE; /* it is served for reading only */
    kit_run(&k, &request, 1, &result);
    assert_int_equal(result, YOLK_ERR_ACCESS);
    assert_int_equal(yolk_engine_segment_close(k.engine, k.segment), YOLK_OK);
    yolk_engine_unserve(k.engine, served);
    k.segment = whole;
    kit_close(&k);
    munmap(memory, MIB);
}

static void files_by_url(void **state)
{
    struct kit k = kit_for(state);
    k.size = 10000;
    kit_open(&k);
    char url[300];
    uint64_t segment, size, whole = k.segment;
    assert_int_equal(
        yolk_engine_file_open(k.engine, "file:///tmp/yolk-no-such-file", 0, &segment, NULL),
        YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(), "/tmp/yolk-no-such-file"));
    assert_int_equal(yolk_engine_file_open(k.engine, "file://tmp/x", 0, &segment, NULL),
                     YOLK_ERR_INVALID);
    (void)snprintf(url, sizeof(url), "file://%s", k.path);
    assert_int_equal(yolk_engine_file_open(k.engine, url, 0, &k.segment, &size), YOLK_OK);
    assert_int_equal(size, 10000);
    uint8_t memory[10000];
    assert_int_equal(yolk_engine_register(k.engine, memory, sizeof(memory)), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, 10000), YOLK_OK);
    assert_true(kit_is_filled(memory, 10000, 0));
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 0, 10), YOLK_ERR_ACCESS);
    assert_int_equal(yolk_engine_segment_close(k.engine, k.segment), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, 1), YOLK_ERR_STALE);
    /* One that nobody closes goes with the engine. */
    assert_int_equal(yolk_engine_file_open(k.engine, k.path, 1, &k.segment, NULL), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 9990, 10), YOLK_OK);
    k.segment = whole;
    kit_close(&k);
}

/* The lock of the file goes with its owner's close, whatever a ring keeps of it. */
static void unserve_lets_go_of_the_file(void **state)
{
    struct kit k = kit_for(state);
    struct file_system fs = file_system_real();
    struct file *again;
    kit_open(&k);
    uint8_t memory[4096];
    assert_int_equal(file_lock(k.file), YOLK_OK);
    assert_int_equal(yolk_engine_register(k.engine, memory, sizeof(memory)), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, 4096), YOLK_OK);
    assert_int_equal(file_open(&fs, k.path, FILE_READ | FILE_WRITE, &again), YOLK_OK);
    assert_int_equal(file_lock(again), YOLK_ERR_BUSY);
    yolk_engine_unserve(k.engine, k.served);
    file_close(k.file);
    assert_int_equal(file_lock(again), YOLK_OK);
    assert_int_not_equal(kit_one(&k, YOLK_READ, memory, 0, 4096), YOLK_OK);
    assert_int_equal(yolk_engine_segment_close(k.engine, k.segment), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(k.engine), YOLK_OK);
    file_close(again);
    assert_int_equal(unlink(k.path), 0);
}

/* An owner that looks, while it is asked for a write, whether the session could be fenced. */
struct fencing {
    const struct yolk_transport_ops *ops;
    void *endpoint, *served;
    enum yolk_status during, other;
    int asked;
};

static enum yolk_status fencing_begin(void *self, const struct yolk_access_request *request)
{
    struct fencing *f = self;
    f->asked++;
    f->during = f->ops->fence_session(f->endpoint, f->served, request->session);
    f->other = f->ops->fence_session(f->endpoint, f->served, request->session + 1);
    return YOLK_OK;
}

static void fencing_end(void *self, const struct yolk_access_request *request)
{
    fencing_begin(self, request);
}

static void fence_once(struct fencing *f, struct kit *k, enum yolk_opcode opcode, void *memory)
{
    char text[128];
    void *target, *channel, *key;
    struct yolk_file file = {.descriptor = file_descriptor(k->file),
                             .memory_alignment = 4096,
                             .offset_alignment = 4096,
                             .writable = 1,
                             .internal = k->file};
    struct yolk_serve serve = {.size = k->size,
                               .segment = KIT_SEGMENT,
                               .file = &file,
                               .access = {f, NULL, fencing_begin, fencing_end}};
    struct yolk_completion completion;
    f->asked = 0;
    assert_int_equal(f->ops->serve(f->endpoint, &serve, &f->served, text, sizeof(text)), YOLK_OK);
    assert_int_equal(
        f->ops->open_target(f->endpoint, text, KIT_SEGMENT, k->size, KIT_SESSION, &target),
        YOLK_OK);
    assert_int_equal(f->ops->channel_open(f->endpoint, target, &channel), YOLK_OK);
    assert_int_equal(f->ops->add_buffer(f->endpoint, memory, MIB, &key), YOLK_OK);
    struct yolk_io io = {.opcode = opcode, .local = memory, .size = 8192, .key = key};
    assert_int_equal(f->ops->submit(channel, &io), YOLK_SUBMIT_QUEUED);
    if (f->ops->flush != NULL)
        f->ops->flush(channel);
    while (f->ops->poll(channel, &completion, 1) == 0) {
    }
    assert_int_equal(completion.status, YOLK_OK);
    assert_int_equal(f->asked, 2);
    assert_int_equal(f->ops->fence_session(f->endpoint, f->served, KIT_SESSION), YOLK_OK);
    assert_int_equal(f->ops->channel_close(channel), YOLK_OK);
    f->ops->close_target(f->endpoint, target);
    f->ops->remove_buffer(f->endpoint, key);
    f->ops->unserve(f->endpoint, f->served);
}

/* A session is fenced only when none of its writes is under way, from the question whether it may
 * to its end; reads and the writes of others do not matter. */
static void a_fence_waits_for_writes(void **state)
{
    struct kit k = kit_for(state);
    struct fencing f = {.ops = *state};
    struct yolk_transport_options options = {.struct_size = sizeof(options)};
    uint8_t *memory = kit_map(MIB);
    kit_open(&k);
    assert_int_equal(f.ops->init(&options, &f.endpoint), YOLK_OK);
    fence_once(&f, &k, YOLK_WRITE, memory);
    assert_int_equal(f.during, YOLK_ERR_AGAIN);
    assert_int_equal(f.other, YOLK_OK);
    fence_once(&f, &k, YOLK_READ, memory);
    assert_int_equal(f.during, YOLK_OK);
    assert_int_equal(f.ops->stop(f.endpoint), YOLK_OK);
    f.ops->fini(f.endpoint);
    kit_close(&k);
    munmap(memory, MIB);
}

static int run(const struct yolk_transport_ops *ops)
{
    void *state = (void *)(uintptr_t)ops;
#define CASE(f) cmocka_unit_test_prestate(f, state)
    const struct CMUnitTest tests[] = {
        CASE(c70_destination_ends_at_a_guard_page),
        CASE(c71_addresses_of_any_alignment),
        CASE(writes_keep_their_neighbours),
        CASE(neighbours_in_one_block_at_once),
        CASE(c78_many_reads_at_once_and_the_last_record),
        CASE(c76_more_reads_than_entries),
        CASE(c77_short_interrupted_and_failed),
        CASE(c77_writes_too),
        CASE(c69_direct_refused_at_open),
        CASE(c69_direct_refused_at_read),
        CASE(c68_direct_is_direct),
        CASE(c73_first_write_without_reservation),
        CASE(the_owner_leases_each_access),
        CASE(files_by_url),
        CASE(unserve_lets_go_of_the_file),
        CASE(a_fence_waits_for_writes),
    };
#undef CASE
    return cmocka_run_group_tests_name(ops->name, tests, NULL, NULL);
}

int main(void)
{
    const struct yolk_transport_options options = {.struct_size = sizeof(options)};
    struct yolk_probe probe = {.reason = ""};
    int failed = run(transport_posix_ops());
    if (transport_uring_ops()->probe(&options, &probe) != YOLK_OK) {
        printf("SKIP: uring: %s\n", probe.reason);
        return failed != 0 ? failed : 77;
    }
    return failed + run(transport_uring_ops());
}
