/* SPDX-License-Identifier: Apache-2.0 */
/* Files read through their owner. */
#include "transport/file/kit.h"
#include "transport/tcp/tcp.h"

static struct kit open_kit(const char *rules)
{
    struct kit k = {.ops = {transport_tcp_ops()},
                    .ops_count = 1,
                    .size = 4 * MIB + 777,
                    .rules = rules,
                    .attempts_max = 1};
    kit_open(&k);
    return k;
}

static void any_range_can_be_read(void **state)
{
    (void)state;
    struct kit k = open_kit(NULL);
    uint8_t *memory = kit_map(4 * MIB + 4096);
    assert_int_equal(yolk_engine_register(k.engine, memory, 4 * MIB + 4096), YOLK_OK);
    for (uint64_t size = 1; size <= 8193; size += 97) {
        uint64_t offset = size * 2741 % 100000;
        memset(memory, 0xee, size + 1);
        assert_int_equal(kit_one(&k, YOLK_READ, memory, offset, size), YOLK_OK);
        assert_true(kit_is_filled(memory, size, offset));
        assert_int_equal(memory[size], 0xee);
    }
    for (uint64_t offset = 0; offset < 4096; offset += 511) {
        assert_int_equal(kit_one(&k, YOLK_READ, memory + offset % 3, offset, 3 * MIB + offset),
                         YOLK_OK);
        assert_true(kit_is_filled(memory + offset % 3, 3 * MIB + offset, offset));
    }
    assert_int_equal(kit_one(&k, YOLK_READ, memory, k.size - 777, 777), YOLK_OK);
    assert_true(kit_is_filled(memory, 777, k.size - 777));
    assert_int_equal(kit_one(&k, YOLK_READ, memory, k.size, 0), YOLK_OK);
    kit_close(&k);
    munmap(memory, 4 * MIB + 4096);
}

static void nobody_else_writes(void **state)
{
    (void)state;
    struct kit k = open_kit(NULL);
    uint8_t memory[5000] = {0}, file[5000];
    assert_int_equal(yolk_engine_register(k.engine, memory, sizeof(memory)), YOLK_OK);
    assert_int_equal(kit_one(&k, YOLK_WRITE, memory, 0, sizeof(memory)), YOLK_ERR_ACCESS);
    size_t got;
    struct file_system fs = file_system_real();
    struct file *f;
    assert_int_equal(file_open(&fs, k.path, FILE_READ, &f), YOLK_OK);
    assert_int_equal(file_pread(f, file, sizeof(file), 0, &got), YOLK_OK);
    assert_true(kit_is_filled(file, sizeof(file), 0));
    file_close(f);
    yolk_served_set_segment(k.served, KIT_SEGMENT + 9, memory);
    assert_int_equal(kit_one(&k, YOLK_READ, memory, 0, 10), YOLK_ERR_STALE);
    kit_close(&k);
}

static void an_error_of_the_disk_fails_its_io(void **state)
{
    (void)state;
    struct kit k = open_kit("read:3=eio,read:5=short,read:6=eagain");
    uint8_t *memory = kit_map(MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, MIB), YOLK_OK);
    for (int i = 0; i < 10; i++) {
        enum yolk_status status = kit_one(&k, YOLK_READ, memory, 4096, 100000);
        assert_int_equal(status, i == 3 ? YOLK_ERR_IO : YOLK_OK);
        if (i != 3)
            assert_true(kit_is_filled(memory, 100000, 4096));
        memset(memory, 0, MIB);
    }
    struct yolk_engine_stats stats;
    yolk_engine_stats(k.engine, &stats);
    assert_int_equal(stats.breakers_opened, 0);
    kit_close(&k);
    munmap(memory, MIB);
}

struct reader {
    struct kit *kit;
    uint64_t number;
    uint32_t wrong, ended;
};

static void *reader_main(void *arg)
{
    enum { EACH = 40, SIZE = 50000, AT_ONCE = 4 };
    struct reader *r = arg;
    uint8_t *memory = malloc(AT_ONCE * SIZE);
    if (memory == NULL || yolk_engine_register(r->kit->engine, memory, AT_ONCE * SIZE) != YOLK_OK)
        return NULL;
    for (uint64_t round = 0; round < EACH; round++) {
        struct yolk_request requests[AT_ONCE];
        enum yolk_status results[AT_ONCE];
        for (uint64_t i = 0; i < AT_ONCE; i++)
            requests[i] = (struct yolk_request){
                .opcode = YOLK_READ,
                .local = memory + i * SIZE,
                .offset = (r->number * 7777 + round * 33333 + i * 511) % (3 * MIB),
                .size = SIZE};
        kit_run(r->kit, requests, AT_ONCE, results);
        for (uint64_t i = 0; i < AT_ONCE; i++) {
            r->ended += results[i] != YOLK_OK;
            r->wrong += results[i] == YOLK_OK &&
                        !kit_is_filled(requests[i].local, SIZE, requests[i].offset);
        }
    }
    r->wrong += yolk_engine_unregister(r->kit->engine, memory, AT_ONCE * SIZE) != YOLK_OK;
    free(memory);
    return NULL;
}

static void read_by_many(struct kit *k, bool end_it)
{
    enum { READERS = 8 };
    struct reader readers[READERS];
    pthread_t threads[READERS];
    for (uint64_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){k, i, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
    }
    struct file_transport_stats stats;
    uint64_t begun = 0;
    for (file_transport_stats(&stats), begun = stats.reads; end_it && stats.reads < begun + 100;)
        file_transport_stats(&stats);
    if (end_it) {
        yolk_engine_unserve(k->engine, k->served);
        file_close(k->file); /* nobody is at it any more */
    }
    for (uint64_t i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].wrong, 0);
        if (!end_it)
            assert_int_equal(readers[i].ended, 0);
    }
}

static void many_readers(void **state)
{
    (void)state;
    struct kit k = open_kit(NULL);
    read_by_many(&k, false);
    kit_close(&k);
}

static void unserved_under_readers(void **state)
{
    (void)state;
    struct kit k = open_kit(NULL);
    read_by_many(&k, true);
    assert_int_equal(yolk_engine_segment_close(k.engine, k.segment), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(k.engine), YOLK_OK);
    assert_int_equal(unlink(k.path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_can_be_read),
        cmocka_unit_test(nobody_else_writes),
        cmocka_unit_test(an_error_of_the_disk_fails_its_io),
        cmocka_unit_test(many_readers),
        cmocka_unit_test(unserved_under_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
