/* SPDX-License-Identifier: Apache-2.0 */
/* Gets that leave bytes out: from memory, and from a file whose values are checked as a whole. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

enum { SIZE = 300001, KEYS = 3 };

static uint8_t byte_of(uint32_t key, size_t at)
{
    return (uint8_t)((at * 2654435761u + key * 40503u) >> 13);
}

/* Bytes 5000 to 5099 and 200000 to the end, of each value, in one call. */
static void get_ranges(struct yolk_store *store, int medium)
{
    static uint8_t memory[KEYS][SIZE];
    uint32_t keys[KEYS];
    struct yolk_slice slices[KEYS][5];
    struct yolk_kv kvs[KEYS];
    memset(memory, 0xee, sizeof(memory));
    for (uint32_t k = 0; k < KEYS; k++) {
        keys[k] = k;
        slices[k][0] = (struct yolk_slice){YOLK_SKIP, 5000};
        slices[k][1] = (struct yolk_slice){memory[k] + 5000, 100};
        slices[k][2] = (struct yolk_slice){YOLK_SKIP, 0};
        slices[k][3] = (struct yolk_slice){YOLK_SKIP, 200000 - 5100};
        slices[k][4] = (struct yolk_slice){memory[k] + 200000, SIZE - 200000};
        kvs[k] = (struct yolk_kv){
            .key = &keys[k], .key_size = sizeof(keys[k]), .slices = slices[k], .slice_count = 5};
    }
    assert_int_equal(yolk_store_get(store, kvs, KEYS), YOLK_OK);
    for (uint32_t k = 0; k < KEYS; k++) {
        assert_int_equal(kvs[k].result, SIZE);
        assert_int_equal(kvs[k].medium, medium);
        for (size_t i = 0; i < SIZE; i++) {
            bool wanted = (i >= 5000 && i < 5100) || i >= 200000;
            if (memory[k][i] != (wanted ? byte_of(k, i) : 0xee))
                fail_msg("byte %zu of value %u", i, k);
        }
    }
    /* Nothing of a value at all: it is there, and how large it is. */
    const struct yolk_slice all = {YOLK_SKIP, SIZE};
    struct yolk_kv none = {
        .key = &keys[0], .key_size = sizeof(keys[0]), .slices = &all, .slice_count = 1};
    assert_int_equal(yolk_store_get(store, &none, 1), YOLK_OK);
    assert_int_equal(none.result, SIZE);
    /* A put has none to leave out. */
    const uint32_t other = 77;
    none.key = &other;
    assert_int_equal(yolk_store_put(store, &none, 1), YOLK_ERR_INVALID);
}

static void put_all(struct yolk_store *store)
{
    static uint8_t value[SIZE];
    for (uint32_t k = 0; k < KEYS; k++) {
        const struct yolk_slice slice = {value, SIZE};
        struct yolk_kv kv = {.key = &k, .key_size = sizeof(k), .slices = &slice, .slice_count = 1};
        for (size_t i = 0; i < SIZE; i++)
            value[i] = byte_of(k, i);
        assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    }
}

static void of_memory(void **state)
{
    struct yolk_store_options options;
    struct yolk_store *store;
    (void)state;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = 4 << 20;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    put_all(store);
    get_ranges(store, YOLK_MEDIUM_MEMORY);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
}

/* The checksum is of all bytes, so those that nobody wants are read too. */
static void of_a_file_that_is_checked(void **state)
{
    char folder[] = "/var/tmp/yolk-skip-XXXXXX", path[64], file[80];
    struct yolk_store_options options;
    struct yolk_store *store;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/values", folder);
    snprintf(file, sizeof(file), "%s.slot0", path);
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.gds_enabled = options.gds_verify = 1;
    options.gds_path = path;
    options.gds_capacity_bytes = 16 << 20;
    options.gds_allow_fallback = options.gds_no_cufile = 1;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    put_all(store); /* there is no memory: the file has them alone */
    get_ranges(store, YOLK_MEDIUM_GDS);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_memory),
        cmocka_unit_test(of_a_file_that_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
