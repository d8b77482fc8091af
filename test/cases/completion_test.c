/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure case C12: order of completion. The destination of a transfer is hashed the instant
 * its status says complete, by a thread that did not move it: it must hold all bytes by then. And a
 * key that is not there leaves nothing behind. */
#include <yolk/engine.h>

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

enum { SLOTS = 64, SLOT_SIZE = 4096, SIZE = SLOTS * SLOT_SIZE, SEGMENT = 9, SESSION = 5 };

/* Who learns that a task is complete. Either way another thread hashes than the one that posted. */
enum poller {
    POLLED_BY_MOVER,  /* the posting thread polls and tells the hashing one */
    POLLED_BY_HASHER, /* the hashing one polls; the posting one only makes progress */
};

/* Each turn a slot goes → posted → (complete) → hashed. */
struct slot {
    atomic_ullong posted;   /* turns that may be polled */
    atomic_ullong complete; /* POLLED_BY_MOVER: turns whose status said complete */
    atomic_ullong hashed;   /* turns looked at */
    uint64_t expected;      /* hash of the source */
    uint64_t size;
    const uint8_t *destination;
};

struct race {
    struct yolk_engine *provider;
    struct yolk_engine *consumer;
    struct fault_options faults;
    struct yolk_transport_ops fault_ops;
    struct yolk_memory memory;
    struct yolk_served *served;
    enum poller poller;
    uint64_t segment;
    uint64_t batch; /* of this turn; written before `posted` */
    uint32_t first;
    uint64_t turns;
    struct slot slots[SLOTS];
    atomic_ullong wrong;  /* bytes */
    atomic_ullong failed; /* statuses */
    uint8_t local[SIZE];
};

/* FNV-1a over words: sizes are multiples of 8. */
static uint64_t hash(const uint8_t *data, uint64_t size)
{
    uint64_t result = 0xcbf29ce484222325u;
    for (uint64_t at = 0; at < size; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, 8);
        result = (result ^ word) * 0x100000001b3u;
    }
    return result;
}

/* 1: terminal. Counts a status that is wrong. */
static int poll_slot(struct race *race, int i)
{
    struct yolk_task_status status;
    if (yolk_engine_batch_poll(race->consumer, race->batch, race->first + (uint32_t)i, &status) !=
        YOLK_OK) {
        atomic_fetch_add(&race->failed, 1);
        return 1;
    }
    if (status.terminal && (status.status != YOLK_OK || status.transferred != race->slots[i].size ||
                            status.cookie != (uint64_t)i))
        atomic_fetch_add(&race->failed, 1);
    return status.terminal;
}

static void wait_turn(atomic_ullong *counter, uint64_t turn)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < turn)
        sched_yield();
}

static void *hash_when_complete(void *argument)
{
    struct race *race = argument;
    for (uint64_t turn = 1; turn <= race->turns; turn++) {
        for (int i = 0; i < SLOTS; i++) {
            struct slot *slot = &race->slots[i];
            wait_turn(race->poller == POLLED_BY_MOVER ? &slot->complete : &slot->posted, turn);
            while (race->poller == POLLED_BY_HASHER && !poll_slot(race, i))
                sched_yield();
            if (hash(slot->destination, slot->size) != slot->expected)
                atomic_fetch_add(&race->wrong, 1);
            atomic_store_explicit(&slot->hashed, turn, memory_order_release);
        }
    }
    return NULL;
}

static struct yolk_engine *make_engine(const struct yolk_transport_ops *ops, const void *wrapped)
{
    struct yolk_engine_options options;
    struct yolk_engine *engine = NULL;
    yolk_engine_options_init(&options);
    options.transports = &ops;
    options.transport_count = 1;
    options.slice_bytes_max = 1024; /* a task is several slices: complete means all of them */
    options.transport.wrapped = wrapped;
    options.attempts_max = 1000; /* disturbances are not to end a task */
    options.breaker_failures = 1000000;
    options.window_slices = 1; /* so that some are left after the submit */
    enum yolk_status status = yolk_engine_create(&options, &engine);
    if (status != YOLK_OK)
        fail_msg("engine: %s", yolk_last_error());
    return engine;
}

static struct race *race_open(const struct yolk_transport_ops *ops, int disturbed)
{
    struct race *race = calloc(1, sizeof *race);
    assert_non_null(race);
    race->provider = make_engine(ops, NULL);
    race->faults = (struct fault_options){.inner = ops,
                                          .seed = 12,
                                          .delay_permille = 200,
                                          .delay_polls_max = 4,
                                          .reorder_permille = 200,
                                          .duplicate_permille = 100,
                                          .again_permille = 20,
                                          .short_permille = 50};
    transport_fault_make(&race->faults, &race->fault_ops);
    race->consumer =
        disturbed ? make_engine(&race->fault_ops, &race->faults) : make_engine(ops, NULL);
    assert_int_equal(yolk_engine_memory_alloc(race->provider, SIZE, &race->memory), YOLK_OK);
    const struct yolk_serve_options serve = {.struct_size = sizeof serve,
                                             .memory = race->memory.pointer,
                                             .size = SIZE,
                                             .allocation = &race->memory,
                                             .segment = SEGMENT};
    assert_int_equal(yolk_engine_serve(race->provider, &serve, &race->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, SIZE,
                                                       yolk_served_endpoints(race->served)};
    assert_int_equal(yolk_engine_segment_open(race->consumer, &descriptor, SESSION, &race->segment),
                     YOLK_OK);
    assert_int_equal(yolk_engine_register(race->consumer, race->local, SIZE), YOLK_OK);
    return race;
}

static void race_close(struct race *race)
{
    assert_int_equal(yolk_engine_destroy(race->consumer), YOLK_OK);
    yolk_engine_unserve(race->provider, race->served);
    yolk_engine_memory_free(race->provider, &race->memory);
    assert_int_equal(yolk_engine_destroy(race->provider), YOLK_OK);
    free(race);
}

/* Fills the source of a slot anew and the destination with other bytes; answers the request. */
static struct yolk_request prepare(struct race *race, int i, uint64_t turn, enum yolk_opcode opcode)
{
    struct slot *slot = &race->slots[i];
    uint8_t *local = race->local + (size_t)i * SLOT_SIZE;
    uint8_t *remote = (uint8_t *)race->memory.pointer + (size_t)i * SLOT_SIZE;
    uint8_t *source = opcode == YOLK_READ ? remote : local;
    uint8_t *destination = opcode == YOLK_READ ? local : remote;
    slot->size = 8 + (turn * 8 + (uint64_t)i * 504) % (SLOT_SIZE - 7);
    slot->size -= slot->size % 8;
    slot->destination = destination;
    fill_value(source, slot->size, turn * SLOTS + (uint64_t)i);
    memset(destination, 0x5a, SLOT_SIZE);
    slot->expected = hash(source, slot->size);
    return (struct yolk_request){.opcode = opcode,
                                 .local = local,
                                 .segment = race->segment,
                                 .offset = (uint64_t)i * SLOT_SIZE,
                                 .size = slot->size,
                                 .cookie = (uint64_t)i};
}

/* One batch: a task a slot. */
static void run_turn(struct race *race, uint64_t turn)
{
    struct yolk_request requests[SLOTS];
    enum yolk_status verdicts[SLOTS];
    unsigned char done[SLOTS] = {0};
    uint32_t open = SLOTS;
    for (int i = 0; i < SLOTS; i++)
        requests[i] =
            prepare(race, i, turn, (turn + (uint64_t)i) % 2 == 0 ? YOLK_READ : YOLK_WRITE);
    assert_int_equal(yolk_engine_batch_create(race->consumer, SLOTS, &race->batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(race->consumer, race->batch, requests, SLOTS,
                                              verdicts, &race->first),
                     YOLK_OK);
    for (int i = 0; i < SLOTS; i++)
        atomic_store_explicit(&race->slots[i].posted, turn, memory_order_release);
    uint64_t end = test_now_ms() + 20000;
    while (open > 0) {
        assert_true(test_now_ms() < end);
        if (race->poller == POLLED_BY_HASHER) {
            assert_int_equal(yolk_engine_batch_progress(race->consumer, race->batch, &open),
                             YOLK_OK);
            continue;
        }
        for (int i = 0; i < SLOTS; i++) {
            if (done[i] || !poll_slot(race, i))
                continue;
            done[i] = 1;
            open--;
            atomic_store_explicit(&race->slots[i].complete, turn, memory_order_release);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        wait_turn(&race->slots[i].hashed, turn);
    assert_int_equal(yolk_engine_batch_free(race->consumer, race->batch), YOLK_OK);
}

static void run_race(const struct yolk_transport_ops *ops, enum poller poller, int disturbed)
{
    struct race *race = race_open(ops, disturbed);
    pthread_t thread;
    race->poller = poller;
    race->turns = rounds(20000, 1000000) / SLOTS + 1;
    assert_int_equal(pthread_create(&thread, NULL, hash_when_complete, race), 0);
    for (uint64_t turn = 1; turn <= race->turns; turn++)
        run_turn(race, turn);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&race->failed), 0);
    assert_int_equal(atomic_load(&race->wrong), 0);
    race_close(race);
}

static void run_races(const struct yolk_transport_ops *ops)
{
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        run_race(ops, POLLED_BY_MOVER, disturbed);
        run_race(ops, POLLED_BY_HASHER, disturbed);
    }
}

static void c12_loop(void **state)
{
    (void)state;
    run_races(transport_loop_ops());
}

static void c12_shm(void **state)
{
    (void)state;
    run_races(transport_shm_ops());
}

static void c12_tcp(void **state)
{
    (void)state;
    run_races(transport_tcp_ops());
}

static void miss(struct yolk_store *store, void *data, size_t size, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct yolk_buffer buffer;
        assert_int_equal(get_one(store, "absent", data, size), YOLK_ERR_NOT_FOUND);
        assert_int_equal(yolk_store_get_buffer(store, "absent", 6, &buffer), YOLK_ERR_NOT_FOUND);
    }
}

static uint64_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void c12_missing_key_leaves_nothing(void **state)
{
    (void)state;
    enum { SIZE_OF_GET = 1 << 20 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){1000, 30000, 60000, 0});
    cluster_add_node(&cluster, "16MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 1000);
    cluster_wait_segments(store, 1);
    uint8_t *data = malloc(SIZE_OF_GET);
    assert_non_null(data);
    miss(store, data + 4096, SIZE_OF_GET / 2, 100);
    uint64_t before = heap_bytes();
    miss(store, data + 4096, SIZE_OF_GET / 2, 1000);
    assert_true(heap_bytes() < before + (64 << 10));
    assert_int_equal(cluster_figure(store, "client_live_operations"), 0);
    assert_int_equal(cluster_figure(store, "guards"), 0);
    /* A part that was left registered would make this overlap. */
    assert_int_equal(yolk_store_register_buffer(store, data, SIZE_OF_GET), YOLK_OK);
    assert_int_equal(yolk_store_unregister_buffer(store, data), YOLK_OK);
    free(data);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c12_loop),
        cmocka_unit_test(c12_shm),
        cmocka_unit_test(c12_tcp),
        cmocka_unit_test(c12_missing_key_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
