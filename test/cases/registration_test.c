/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is registered twice, in parts, across others, by several transports of which some
 * refuse, or not at all; and memory of each kind that a host has. */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/peer.h>
#include <yolk/store.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cluster.h"
#include "platform/clock.h"
#include "transport/loop/loop.h"

enum { THREADS = 8 };

static void fill(uint8_t *memory, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        memory[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}

static void assert_filled(const uint8_t *memory, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        if (memory[i] != (uint8_t)((i * 2654435761u + seed * 40503u) >> 7))
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i, (unsigned long long)size);
}

static uint8_t *memory_of(uint64_t size)
{
    uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* ---- two peers, tcp between them ---- */

struct peers {
    struct yolk_peer *here, *there;
    uint64_t segment; /* there, as seen from here */
};

static struct yolk_peer *peer_open(void)
{
    struct yolk_peer_options options;
    struct yolk_peer *peer = NULL;
    yolk_peer_options_init(&options);
    options.transports = "tcp";
    if (yolk_peer_create(&options, &peer) != YOLK_OK)
        fail_msg("peer: %s", yolk_last_error());
    return peer;
}

static struct peers peers_open(void)
{
    struct peers p = {.here = peer_open(), .there = peer_open()};
    assert_int_equal(yolk_peer_open(p.here, yolk_peer_name(p.there), &p.segment), YOLK_OK);
    return p;
}

static void peers_close(struct peers *p)
{
    assert_int_equal(yolk_peer_destroy(p->here), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(p->there), YOLK_OK);
}

static enum yolk_status move(const struct peers *p, enum yolk_opcode opcode, void *local,
                             const void *remote, uint64_t size)
{
    const struct yolk_request request = {.opcode = opcode,
                                         .local = local,
                                         .segment = p->segment,
                                         .offset = (uint64_t)(uintptr_t)remote,
                                         .size = size};
    return yolk_peer_transfer(p->here, &request, 1, clock_real_now_ns() + 60 * NS_PER_S);
}

/* All of it there and back, exact. */
static void assert_works(const struct peers *p, uint8_t *local, uint8_t *remote, uint64_t size)
{
    fill(local, size, size);
    assert_int_equal(move(p, YOLK_WRITE, local, remote, size), YOLK_OK);
    assert_filled(remote, size, size);
    memset(local, 0, size);
    assert_int_equal(move(p, YOLK_READ, local, remote, size), YOLK_OK);
    assert_filled(local, size, size);
}

/* -- C38 -- */

static void c38_registered_twice(void **state)
{
    (void)state;
    struct peers p = peers_open();
    uint8_t *local = memory_of(MIB), *remote = memory_of(MIB);
    assert_int_equal(yolk_peer_register(p.there, remote, MIB, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_register(p.there, remote, MIB, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_register(p.here, local, MIB, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_register(p.here, local, MIB, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(p.there, remote, MIB), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(p.here, local, MIB), YOLK_OK);
    assert_works(&p, local, remote, MIB);
    assert_int_equal(yolk_peer_unregister(p.there, remote, MIB), YOLK_OK);
    assert_int_equal(move(&p, YOLK_READ, local, remote, 8), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(p.there, remote, MIB), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(p.here, local, MIB), YOLK_OK);
    assert_int_equal(move(&p, YOLK_READ, local, remote, 8), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(p.here, local, MIB), YOLK_ERR_NOT_REGISTERED);
    munmap(local, MIB);
    munmap(remote, MIB);
    peers_close(&p);
}

struct twice {
    struct yolk_peer *peer;
    uint8_t *memory;
    pthread_barrier_t together;
    _Atomic int wrong;
};

static void *register_twice(void *self)
{
    struct twice *t = self;
    for (int round = 0; round < 50; round++) {
        pthread_barrier_wait(&t->together);
        for (int i = 0; i < 2; i++)
            t->wrong += yolk_peer_register(t->peer, t->memory, MIB, "*", YOLK_REMOTE_WRITE) != 0;
        for (int i = 0; i < 2; i++)
            t->wrong += yolk_peer_unregister(t->peer, t->memory, MIB) != 0;
        pthread_barrier_wait(&t->together);
        if (pthread_barrier_wait(&t->together) == PTHREAD_BARRIER_SERIAL_THREAD)
            t->wrong += yolk_peer_unregister(t->peer, t->memory, MIB) != YOLK_ERR_NOT_REGISTERED;
    }
    return NULL;
}

static void c38_registered_twice_by_eight_threads(void **state)
{
    (void)state;
    struct twice t = {.peer = peer_open(), .memory = memory_of(MIB)};
    pthread_t threads[THREADS];
    pthread_barrier_init(&t.together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, register_twice, &t), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(t.wrong, 0);
    pthread_barrier_destroy(&t.together);
    munmap(t.memory, MIB);
    assert_int_equal(yolk_peer_destroy(t.peer), YOLK_OK);
}

/* -- C39 -- */

static void c39_ranges_that_overlap(void **state)
{
    (void)state;
    struct peers p = peers_open();
    uint8_t *local = memory_of(64 * MIB), *remote = memory_of(96 * MIB);
    struct yolk_peer *there = p.there;
    assert_int_equal(yolk_peer_register(p.here, local, 64 * MIB, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_register(there, remote, 64 * MIB, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    /* Across its end, and around it: refused, and nothing of them is registered. */
    assert_int_equal(yolk_peer_register(there, remote + 32 * MIB, 64 * MIB, "*", YOLK_REMOTE_WRITE),
                     YOLK_ERR_OVERLAP);
    assert_non_null(strstr(yolk_last_error(), "registered range"));
    assert_int_equal(yolk_peer_register(there, remote, 96 * MIB, "*", YOLK_REMOTE_WRITE),
                     YOLK_ERR_OVERLAP);
    assert_int_equal(move(&p, YOLK_READ, local, remote + 64 * MIB, 8), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(there, remote + 32 * MIB, 64 * MIB),
                     YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(there, remote, 96 * MIB), YOLK_ERR_NOT_REGISTERED);
    /* A part of it: one more reference. What is left of the second range can be registered. */
    assert_int_equal(yolk_peer_register(there, remote + 16 * MIB, 16 * MIB, "*", YOLK_REMOTE_WRITE),
                     YOLK_OK);
    assert_int_equal(yolk_peer_register(there, remote + 64 * MIB, 32 * MIB, "*", YOLK_REMOTE_WRITE),
                     YOLK_OK);
    assert_works(&p, local, remote, 64 * MIB);
    assert_works(&p, local, remote + 16 * MIB, 16 * MIB);
    assert_works(&p, local, remote + 64 * MIB, 32 * MIB);
    /* In any order: the whole first, while its part is in use. */
    assert_int_equal(yolk_peer_unregister(there, remote, 64 * MIB), YOLK_OK);
    assert_works(&p, local, remote + 16 * MIB, 16 * MIB);
    assert_works(&p, local, remote + 64 * MIB, 32 * MIB);
    assert_int_equal(yolk_peer_unregister(there, remote + 16 * MIB, 16 * MIB), YOLK_OK);
    assert_int_equal(move(&p, YOLK_READ, local, remote + 16 * MIB, 8), YOLK_ERR_NOT_REGISTERED);
    assert_works(&p, local, remote + 64 * MIB, 32 * MIB);
    assert_int_equal(yolk_peer_unregister(there, remote + 64 * MIB, 32 * MIB), YOLK_OK);
    assert_int_equal(yolk_peer_register(there, remote, 96 * MIB, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    munmap(local, 64 * MIB);
    peers_close(&p);
    munmap(remote, 96 * MIB);
}

/* -- C42 -- */

static _Atomic int lines;

static void count_line(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)room, (void)text;
    lines += level <= LOG_LEVEL_WARN;
}

enum { KEYS = 100, VALUE = 20000 };

/* A store registers for the call what is not registered: nothing is lost, nothing is said. */
static void store_without_registration(struct yolk_store *store)
{
    uint8_t *memory = memory_of(KEYS * VALUE);
    struct yolk_kv kvs[KEYS];
    struct yolk_slice slices[KEYS];
    char keys[KEYS][16];
    for (int i = 0; i < KEYS; i++) {
        slices[i] = (struct yolk_slice){memory + i * VALUE, VALUE};
        kvs[i] = (struct yolk_kv){keys[i], 0, &slices[i], 1, -1, 0};
        kvs[i].key_size = (size_t)snprintf(keys[i], sizeof(keys[i]), "key-%d", i);
        fill(memory + i * VALUE, VALUE, (uint64_t)i);
    }
    assert_int_equal(yolk_store_put(store, kvs, KEYS), YOLK_OK);
    memset(memory, 0, KEYS * VALUE);
    assert_int_equal(yolk_store_get(store, kvs, KEYS), YOLK_OK);
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(kvs[i].result, VALUE);
        assert_filled(memory + i * VALUE, VALUE, (uint64_t)i);
    }
    munmap(memory, KEYS * VALUE);
}

static void c42_a_store_without_registration(void **state)
{
    (void)state;
    static const char *const transports[] = {"loop", "shm", "tcp"};
    struct cluster cluster;
    base_log_set(count_line, NULL);
    lines = 0;
    cluster_start(&cluster, &(struct cluster_options){.lease_ttl_ms = 5000,
                                                      .put_timeout_ms = 5000,
                                                      .session_ttl_ms = 5000});
    cluster_add_node(&cluster, "64MiB");
    for (size_t i = 0; i < 3; i++) {
        struct yolk_store_options options;
        struct yolk_store *store = NULL;
        yolk_store_options_init(&options);
        options.transport = transports[i];
        options.master = i == 0 ? "embedded" : cluster.address;
        options.segment_size_bytes = i == 0 ? 32 * MIB : 0;
        if (yolk_store_open(&options, &store) != YOLK_OK)
            fail_msg("%s: %s", transports[i], yolk_last_error());
        store_without_registration(store);
        uint64_t removed;
        assert_int_equal(yolk_store_remove_all(store, 1, &removed), YOLK_OK);
        assert_int_equal(yolk_store_close(store), YOLK_OK);
    }
    cluster_stop(&cluster);
    base_log_set(NULL, NULL);
    assert_int_equal(lines, 0);
}

/* An engine moves nothing of it: a verdict for each request, the rest of the call goes on. */
static void c42_an_engine_without_registration(void **state)
{
    (void)state;
    struct peers p = peers_open();
    uint8_t *local = memory_of(MIB), *stray = memory_of(MIB), *remote = memory_of(MIB);
    struct yolk_request requests[KEYS];
    enum yolk_status verdicts[KEYS];
    uint64_t batch;
    uint32_t first;
    fill(remote, MIB, 3);
    memset(stray, 0xee, MIB);
    assert_int_equal(yolk_peer_register(p.here, local, MIB, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_register(p.there, remote, MIB, "*", YOLK_REMOTE_READ), YOLK_OK);
    for (int i = 0; i < KEYS; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = (i % 2 == 0 ? local : stray) + i * 4096,
                                            .segment = p.segment,
                                            .offset = (uint64_t)(uintptr_t)remote + i * 4096u,
                                            .size = 4096};
    base_log_set(count_line, NULL);
    lines = 0;
    struct yolk_engine *engine = yolk_peer_engine(p.here);
    assert_int_equal(yolk_engine_batch_create(engine, KEYS, &batch), YOLK_OK);
    assert_int_equal(yolk_peer_submit(p.here, batch, requests, KEYS, verdicts, &first),
                     YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_true(lines <= 1);
    for (int i = 0; i < KEYS; i++) {
        struct yolk_task_status task;
        assert_int_equal(verdicts[i], i % 2 == 0 ? YOLK_OK : YOLK_ERR_NOT_REGISTERED);
        assert_int_equal(yolk_engine_batch_poll(engine, batch, first + (uint32_t)i, &task),
                         YOLK_OK);
        assert_int_equal(task.status, verdicts[i]);
        assert_int_equal(task.transferred, i % 2 == 0 ? 4096 : 0);
        if (i % 2 == 0)
            assert_memory_equal(local + i * 4096, remote + i * 4096, 4096);
    }
    for (uint64_t i = 0; i < MIB; i++)
        assert_int_equal(stray[i], 0xee);
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
    peers_close(&p);
    munmap(local, MIB);
    munmap(stray, MIB);
    munmap(remote, MIB);
}

/* -- C44, C46: transports that refuse memory -- */

static struct {
    _Atomic int live[2]; /* buffers of each */
    _Atomic uint64_t most[2];
} refusals;

static enum yolk_status add(int which, uint64_t size, void **key)
{
    if (size > refusals.most[which])
        return (enum yolk_status)base_fail(
            YOLK_ERR_LIMIT, 0, "its device takes at most %llu bytes, not %llu",
            (unsigned long long)refusals.most[which], (unsigned long long)size);
    refusals.live[which]++;
    *key = NULL;
    return YOLK_OK;
}

static enum yolk_status add_first(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer;
    return add(0, size, key);
}

static enum yolk_status add_second(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer;
    return add(1, size, key);
}

static void remove_first(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
    refusals.live[0]--;
}

static void remove_second(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
    refusals.live[1]--;
}

static struct yolk_engine *engine_that_may_refuse(void)
{
    static struct yolk_transport_ops first, second;
    const struct yolk_transport_ops *const transports[] = {&first, &second};
    struct yolk_engine_options options;
    struct yolk_engine *engine = NULL;
    first = second = *transport_loop_ops();
    first.name = "first";
    first.add_buffer = add_first;
    first.remove_buffer = remove_first;
    second.name = "second";
    second.add_buffer = add_second;
    second.remove_buffer = remove_second;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 2;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    return engine;
}

static void c44_what_one_refuses_is_no_ones_half(void **state)
{
    (void)state;
    struct yolk_engine *engine = engine_that_may_refuse();
    uint8_t *memory = memory_of(MIB);
    struct yolk_served *served;
    uint64_t segment;
    refusals.most[0] = MIB;
    refusals.most[1] = 0;
    assert_int_equal(yolk_engine_register(engine, memory, MIB), YOLK_OK);
    assert_int_equal(refusals.live[0], 1);
    assert_int_equal(refusals.live[1], 0);
    /* Requests on it never go to the one that refused, and it is told why. */
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = memory, .size = MIB, .segment = 4};
    assert_int_equal(yolk_engine_serve(engine, &serve, &served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {4, 1, MIB, yolk_served_endpoints(served)};
    assert_int_equal(yolk_engine_segment_open(engine, &descriptor, 1, &segment), YOLK_OK);
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = memory,
                                         .segment = segment,
                                         .offset = MIB / 2,
                                         .size = 4096,
                                         .hint = "second"};
    char *text = NULL;
    assert_int_equal(yolk_engine_describe_route(engine, &request, &text), YOLK_OK);
    assert_non_null(strstr(text, "it refused the local memory"));
    free(text);
    assert_int_equal(yolk_engine_segment_close(engine, segment), YOLK_OK);
    yolk_engine_unserve(engine, served);
    assert_int_equal(yolk_engine_unregister(engine, memory, MIB), YOLK_OK);
    assert_int_equal(refusals.live[0], 0);
    /* Refused by all: negative, nothing is left, and the same range can be registered later. */
    refusals.most[0] = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(yolk_engine_register(engine, memory, MIB), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "first: its device takes at most 0 bytes"));
    assert_non_null(strstr(yolk_last_error(), "second: its device takes at most 0 bytes"));
    assert_false(yolk_engine_is_registered(engine, memory, 1));
    assert_int_equal(yolk_engine_unregister(engine, memory, MIB), YOLK_ERR_NOT_REGISTERED);
    refusals.most[0] = refusals.most[1] = MIB;
    assert_int_equal(yolk_engine_register(engine, memory, MIB), YOLK_OK);
    assert_int_equal(refusals.live[0] + refusals.live[1], 2);
    assert_int_equal(yolk_engine_unregister(engine, memory, MIB), YOLK_OK);
    assert_int_equal(refusals.live[0] + refusals.live[1], 0);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    munmap(memory, MIB);
}

static void c46_a_limit_is_named(void **state)
{
    (void)state;
    struct yolk_engine *engine = engine_that_may_refuse();
    uint8_t *memory = memory_of(8 * MIB);
    refusals.most[0] = refusals.most[1] = 6 * MIB;
    assert_int_equal(yolk_engine_register(engine, memory, 8 * MIB), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "at most 6291456 bytes, not 8388608"));
    /* In parts it goes, and what failed left nothing that would be in their way. */
    assert_int_equal(yolk_engine_register(engine, memory, 4 * MIB), YOLK_OK);
    assert_int_equal(yolk_engine_register(engine, memory + 4 * MIB, 4 * MIB), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(engine, memory, 4 * MIB), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(engine, memory + 4 * MIB, 4 * MIB), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    munmap(memory, 8 * MIB);
}

/* -- C49 -- */

/* A whole number of pages, and then some that are not. */
enum { ODD = 3 * 1024 * 1024 + 777 };

static void *memory_file(int fd)
{
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4 << 20), 0);
    void *memory = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void *memory_bound(void)
{
    void *memory = memory_of(4 << 20);
    unsigned long node = 1; /* number 0, which each machine has */
    if (syscall(SYS_mbind, memory, 4 << 20, MPOL_BIND, &node, sizeof(node) * 8, 0) != 0)
        print_message("# no mbind here: the memory is not bound\n");
    return memory;
}

static void *memory_posix(void)
{
    char name[64];
    snprintf(name, sizeof(name), "/yolk-c49-%d", (int)getpid());
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    shm_unlink(name);
    return memory_file(fd);
}

static void *memory_huge(void)
{
    void *memory = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    print_message("# no huge pages are reserved here: ordinary ones\n");
    return memory_of(4 << 20);
}

static void c49_each_kind_of_host_memory(void **state)
{
    (void)state;
    struct peers p = peers_open();
    void *const kinds[] = {memory_of(4 << 20), memory_bound(), memory_posix(),
                           memory_file(memfd_create("c49", MFD_CLOEXEC)), memory_huge()};
    enum { COUNT = sizeof(kinds) / sizeof(kinds[0]) };
    struct yolk_peer_buffer *buffers;
    size_t count;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(yolk_peer_register(p.there, kinds[i], ODD, "*", YOLK_REMOTE_WRITE),
                         YOLK_OK);
        assert_int_equal(yolk_peer_register(p.here, kinds[i], ODD, "cpu:0", YOLK_LOCAL), YOLK_OK);
    }
    assert_int_equal(yolk_peer_buffers(p.here, p.segment, &buffers, &count), YOLK_OK);
    assert_int_equal(count, COUNT);
    for (size_t i = 0; i < count; i++)
        assert_true(strcmp(buffers[i].location, "*") == 0 ||
                    strncmp(buffers[i].location, "cpu:", 4) == 0);
    free(buffers);
    for (int from = 0; from < COUNT; from++)
        assert_works(&p, kinds[from], kinds[(from + 1) % COUNT], ODD);
    peers_close(&p);
    for (int i = 0; i < COUNT; i++)
        munmap(kinds[i], 4 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c38_registered_twice),
        cmocka_unit_test(c38_registered_twice_by_eight_threads),
        cmocka_unit_test(c39_ranges_that_overlap),
        cmocka_unit_test(c42_a_store_without_registration),
        cmocka_unit_test(c42_an_engine_without_registration),
        cmocka_unit_test(c44_what_one_refuses_is_no_ones_half),
        cmocka_unit_test(c46_a_limit_is_named),
        cmocka_unit_test(c49_each_kind_of_host_memory),
    };
    return cmocka_run_group_tests_name("registration", tests, NULL, NULL);
}
