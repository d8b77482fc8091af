/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many extents in a real file: how long opening takes and what memory each costs. YOLK_EXTENTS says
 * how many; without it few enough for every run of the tests.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/units.h"
#include "platform/clock.h"
#include "platform/temporary_kit.h"
#include "storage/storage.h"

#define BLOCK       4096u
#define FEW         100000u
#define OPEN_MAX_NS (5 * CLOCK_NS_PER_S)

/* No values are written, and a new file reads as zeros. */
static uint32_t zero_checksum;

static uint64_t extent_count(void)
{
    const char *text = getenv("YOLK_EXTENTS");
    uint64_t count = FEW;
    if (text != NULL)
        assert_int_equal(base_parse_u64("YOLK_EXTENTS", text, &count), YOLK_OK);
    return count;
}

static void write_journal(struct storage *s)
{
    struct storage_io io;
    for (;;) {
        enum storage_step step = storage_journal_plan(s, &io);
        if (step == STORAGE_NOTHING)
            break;
        if (step == STORAGE_WRITE) {
            storage_journal_done(s, file_pwrite(storage_file(s), io.data, io.size, io.offset));
        } else {
            assert_true(storage_sync_plan(s));
            storage_sync_done(s, file_fdatasync(storage_file(s)));
        }
    }
    uint64_t id;
    struct storage_extent e;
    while (storage_next_committed(s, &id, &e))
        ;
}

static void put_many(struct storage *s, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        uint8_t key[16] = {0};
        uint64_t name = base_mix64(i + 1), id;
        memcpy(key, &name, sizeof name);
        assert_int_equal(storage_reserve(s, key, sizeof key, BLOCK, &id), YOLK_OK);
        assert_int_equal(storage_written(s, id, zero_checksum), YOLK_OK);
        if (i % 4096 == 4095)
            write_journal(s);
    }
    write_journal(s);
}

/* Every other one, so that places and order of the records differ. */
static void delete_half(struct storage *s)
{
    uint64_t cursor = 0, seq = 0, n = 0;
    struct storage_extent e;
    while (storage_next(s, &cursor, &e))
        if (n++ % 2 == 0) {
            assert_int_equal(storage_delete(s, e.offset, &seq), YOLK_OK);
            if (n % 4096 == 1)
                write_journal(s);
        }
    write_journal(s);
    if (storage_sync_plan(s))
        storage_sync_done(s, file_fdatasync(storage_file(s)));
    assert_int_equal(storage_deleted(s), seq);
}

static void timed_open(const struct file_system *fs, const struct storage_options *options,
                       const char *what, uint64_t count, struct storage **out)
{
    uint64_t start = clock_real_now_ns();
    clock_t busy = clock();
    int status = storage_open(fs, options, out);
    uint64_t took = clock_real_now_ns() - start;
    busy = clock() - busy;
    if (status != YOLK_OK)
        print_error("%s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
    struct storage_stats stats;
    storage_stats(*out, &stats);
    assert_int_equal(stats.committed, count);
    assert_int_equal(storage_info(*out)->damaged + storage_info(*out)->dropped, 0);
    print_message("%s: %" PRIu64
                  " extents opened in %.2f s, %.2f s of the processor, %.0f bytes of memory each\n",
                  what, count, (double)took / 1e9, (double)busy / CLOCKS_PER_SEC,
                  (double)stats.memory_bytes / (double)count);
    assert_true(took <= OPEN_MAX_NS);
    assert_true(stats.memory_bytes / count < 256);
}

static void open_is_quick(void **state)
{
    (void)state;
    uint64_t count = extent_count();
    char path[512], file[600];
    snprintf(path, sizeof path, "yolk-many-%d", (int)getpid());
    temporary_path(path);
    snprintf(file, sizeof file, "%s.slot0", path);
    struct file_system fs = file_system_real();
    struct storage_options options = {.path = path,
                                      .capacity_bytes = count * 9 / 8 * BLOCK,
                                      .journal_bytes = count * 128,
                                      .random = random_real()};
    static const uint8_t zeros[BLOCK];
    zero_checksum = base_crc32c(0, zeros, sizeof zeros);
    struct storage *s;
    int status = storage_open(&fs, &options, &s);
    if (status == YOLK_ERR_NO_SPACE || (status == YOLK_OK && storage_info(s)->note[0] != 0)) {
        printf("SKIP: %s\n", status == YOLK_OK ? storage_info(s)->note : yolk_last_error());
        if (status == YOLK_OK)
            storage_abandon(s);
        unlink(file);
        exit(77);
    }
    assert_int_equal(status, YOLK_OK);
    put_many(s, 0, count);
    delete_half(s);
    put_many(s, count, count + (count + 1) / 2);
    assert_int_equal(storage_close(s), YOLK_OK);
    timed_open(&fs, &options, "after a close", count, &s);
    assert_null(storage_check(s));
    /* Further, into the next checkpoint, so that both areas count. */
    for (uint64_t round = 2; round < 6; round++) {
        delete_half(s);
        put_many(s, count * round, count * round + (count + 1) / 2);
    }
    if (storage_sync_plan(s))
        storage_sync_done(s, file_fdatasync(storage_file(s)));
    storage_abandon(s);
    timed_open(&fs, &options, "after a kill", count, &s);
    storage_abandon(s);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_is_quick)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
