/* SPDX-License-Identifier: Apache-2.0 */
/* The GDS tier through the public calls, with values in the memory of a GPU. */
#include "gds_kit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/storage.h"

enum { MEMORY = 8 << 20, FILE_SIZE = 64 << 20, UNIT = 4096 };
#define ALLOCATED ((GDS_SIZE + UNIT - 1) / UNIT * UNIT)

static void a_put_is_in_memory_and_in_the_file(void **state)
{
    struct gds_world w;
    struct yolk_gds_descriptor gds = {0}, other = {0};
    static const uint8_t none[16];
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, "node-a", MEMORY, FILE_SIZE);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    assert_int_equal(gds_put(&w, store, 2), GDS_SIZE);
    assert_int_equal(gds_where(store, 1, &gds), IN_MEMORY | IN_GDS);
    assert_int_equal(gds_where(store, 2, &other), IN_MEMORY | IN_GDS);
    assert_int_equal(gds.value_size, GDS_SIZE);
    assert_int_equal(gds.allocated_size, ALLOCATED);
    assert_int_equal(gds.value_offset % UNIT, 0);
    assert_true(gds.value_offset + ALLOCATED <= other.value_offset ||
                other.value_offset + ALLOCATED <= gds.value_offset);
    assert_memory_not_equal(gds.owner_client_id, none, sizeof(none));
    assert_memory_not_equal(gds.storage_id, none, sizeof(none));
    assert_memory_equal(gds.owner_client_id, other.owner_client_id, sizeof(none));
    assert_memory_equal(gds.storage_id, other.storage_id, sizeof(none));
    assert_int_equal(gds.storage_generation, other.storage_generation);
    /* Memory first; without it the file, to the byte. */
    assert_int_equal(gds_get(&w, store, 1), YOLK_MEDIUM_MEMORY);
    assert_int_equal(gds_clear(store, 1, "node-a"), YOLK_OK);
    assert_int_equal(gds_where(store, 1, NULL), IN_GDS);
    assert_int_equal(gds_get(&w, store, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(gds_get(&w, store, 2), YOLK_MEDIUM_MEMORY);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* The master's own; nothing in memory can be given up while it is held. */
static void hold_memory(struct gds_world *w, struct yolk_store *store, uint64_t first,
                        struct yolk_buffer *held, size_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        uint64_t key = first + k;
        assert_int_equal(gds_put(w, store, key), GDS_SIZE);
        assert_int_equal(gds_where(store, key, NULL), IN_MEMORY | IN_GDS);
        assert_int_equal(yolk_store_get_buffer(store, &key, sizeof(key), &held[k]), YOLK_OK);
        assert_int_equal(held[k].mapped, 1);
    }
}

static void release(struct yolk_store *store, struct yolk_buffer *held, size_t count)
{
    for (size_t i = 0; i < count; i++)
        yolk_store_release_buffer(store, &held[i]);
}

static void without_room_in_memory_it_is_in_the_file_only(void **state)
{
    enum { HELD = 6, SEGMENT = 2 << 20 };
    struct gds_world w;
    struct yolk_buffer held[HELD];
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, SEGMENT, FILE_SIZE);
    hold_memory(&w, store, 1, held, HELD);
    for (uint64_t key = 100; key < 104; key++) {
        assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
        assert_int_equal(gds_where(store, key, NULL), IN_GDS);
        assert_int_equal(gds_get(&w, store, key), YOLK_MEDIUM_GDS);
    }
    /* What is there already is not written again. */
    assert_int_equal(gds_put(&w, store, 100), GDS_SIZE);
    assert_int_equal(gds_where(store, 100, NULL), IN_GDS);
    release(store, held, HELD);
    gds_close(&w, store);
    gds_world_close(&w);
}

static void without_a_memory_segment_it_is_in_the_file_only(void **state)
{
    struct gds_world w;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, 0, FILE_SIZE);
    for (uint64_t key = 1; key < 5; key++) {
        assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
        assert_int_equal(gds_where(store, key, NULL), IN_GDS);
    }
    for (uint64_t key = 1; key < 5; key++)
        assert_int_equal(gds_get(&w, store, key), YOLK_MEDIUM_GDS);
    gds_close(&w, store);
    gds_world_close(&w);
}

static void over_its_quota_a_tenant_has_the_file(void **state)
{
    struct gds_world w;
    struct yolk_store_options options;
    struct yolk_buffer held[2];
    (void)state;
    gds_world_open(&w, false);
    gds_options(&w, &options, NULL, MEMORY, FILE_SIZE);
    options.tenants = "small=700KiB";
    options.tenant_id = "small";
    struct yolk_store *store = gds_open_with(&w, &options);
    hold_memory(&w, store, 1, held, 2);
    assert_int_equal(gds_put(&w, store, 100), GDS_SIZE);
    assert_int_equal(gds_where(store, 100, NULL), IN_GDS);
    assert_int_equal(gds_get(&w, store, 100), YOLK_MEDIUM_GDS);
    release(store, held, 2);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* Keys of several sizes in one call, of which one has no room in the file. */
static void what_fails_for_one_key_is_its_own(void **state)
{
    enum { KEYS = 5, BIG = 2, SMALL = 20000 };
    struct gds_world w;
    struct yolk_slice slices[KEYS];
    struct yolk_kv kvs[KEYS];
    uint64_t keys[KEYS];
    struct yolk_store_options options;
    (void)state;
    gds_world_open(&w, false);
    gds_options(&w, &options, NULL, MEMORY, 1 << 20);
    options.put_wait_ms = 100;
    struct yolk_store *store = gds_open_with(&w, &options);
    uint8_t *memory = cli_gpu_memory(w.gpu);
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        size_t size = i == BIG ? 2 << 20 : SMALL;
        slices[i] = (struct yolk_slice){memory + (i == BIG ? 0 : i * SMALL), size};
        kvs[i] = (struct yolk_kv){
            .key = &keys[i], .key_size = 8, .slices = &slices[i], .slice_count = 1};
    }
    int status = yolk_store_put(store, kvs, KEYS);
    assert_int_equal(status, kvs[BIG].result);
    for (size_t i = 0; i < KEYS; i++) {
        if (i == BIG) {
            assert_true(kvs[i].result == YOLK_ERR_NO_SPACE || kvs[i].result == YOLK_ERR_TOO_LARGE);
            assert_int_equal(gds_where(store, i, NULL), 0);
        } else {
            assert_int_equal(kvs[i].result, SMALL);
            assert_int_equal(gds_where(store, i, NULL), IN_MEMORY | IN_GDS);
        }
    }
    gds_await_none(store, "client_gds_reserved");
    gds_close(&w, store);
    gds_world_close(&w);
}

static void a_tier_that_is_optional_is_left_out(void **state)
{
    struct gds_world w;
    struct yolk_store_options options;
    struct yolk_slice slice;
    uint64_t key = 7;
    (void)state;
    gds_world_open(&w, false);
    gds_options(&w, &options, NULL, MEMORY, 1 << 20);
    options.put_wait_ms = 100;
    options.gds_optional = 1;
    struct yolk_store *store = gds_open_with(&w, &options);
    slice = (struct yolk_slice){cli_gpu_memory(w.gpu), 2 << 20};
    struct yolk_kv kv = {.key = &key, .key_size = 8, .slices = &slice, .slice_count = 1};
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    assert_int_equal(gds_where(store, key, NULL), IN_MEMORY);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* All that cuFile is given fails: neither copy stays, and nothing is left of the extent. */
static void one_write_that_fails_takes_the_other_along(void **state)
{
    struct gds_world w;
    (void)state;
    gds_kit_fake_only();
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, MEMORY, FILE_SIZE);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    /* Every piece of each try ends as failed. */
    for (int piece = 1; piece <= 12; piece++) {
        char command[32];
        snprintf(command, sizeof(command), "io %d status 64", piece);
        gds_kit_fake(command);
    }
    assert_true(gds_put(&w, store, 2) < 0);
    gds_kit_fake("reset");
    assert_int_equal(gds_where(store, 2, NULL), 0);
    assert_int_equal(gds_where(store, 1, NULL), IN_MEMORY | IN_GDS);
    gds_await_none(store, "client_gds_reserved");
    assert_int_equal(gds_put(&w, store, 2), GDS_SIZE);
    assert_int_equal(gds_where(store, 2, NULL), IN_MEMORY | IN_GDS);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* It goes to memory and to the file, so each piece is wanted twice; and one lies in another. */
static void memory_is_registered_for_the_call_only(void **state)
{
    enum { SIZE = 4 * UNIT };
    struct gds_world w;
    uint64_t key = 1;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, "a", MEMORY, FILE_SIZE);
    uint8_t *gpu = cli_gpu_memory(w.gpu);
    uint8_t *bases[] = {gpu, w.host};
    for (size_t i = 0; i < 2; i++) {
        struct yolk_slice slices[] = {{bases[i] + 1, SIZE}, {bases[i] + UNIT, UNIT}};
        struct yolk_kv kv = {.key = &key, .key_size = 8, .slices = slices, .slice_count = 2};
        assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
        assert_int_equal(yolk_store_register_buffer(store, bases[i], 2 * SIZE), YOLK_OK);
        assert_int_equal(yolk_store_unregister_buffer(store, bases[i]), YOLK_OK);
        assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
        assert_int_equal(kv.result, SIZE + UNIT);
        assert_int_equal(yolk_store_register_buffer(store, bases[i], 2 * SIZE), YOLK_OK);
        assert_int_equal(yolk_store_unregister_buffer(store, bases[i]), YOLK_OK);
        key++;
    }
    gds_close(&w, store);
    gds_world_close(&w);
}

static void a_get_past_the_end_says_so(void **state)
{
    struct gds_world w;
    uint64_t key = 1;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, "a", MEMORY, FILE_SIZE);
    assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
    uint8_t *end = (uint8_t *)cli_gpu_memory(w.gpu) + GDS_BATCH * GDS_SIZE;
    struct yolk_slice slice = {end - UNIT, GDS_SIZE};
    struct yolk_kv kv = {.key = &key, .key_size = 8, .slices = &slice, .slice_count = 1};
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "leaves its allocation"));
    assert_null(strstr(yolk_last_error(), "keys have"));
    gds_close(&w, store);
    gds_world_close(&w);
}

static void nothing_takes_no_extent(void **state)
{
    struct gds_world w;
    uint64_t key = 1;
    struct yolk_kv kv = {.key = &key, .key_size = 8, .result = -1};
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, MEMORY, FILE_SIZE);
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    assert_int_equal(kv.result, 0);
    assert_int_equal(gds_where(store, 1, NULL) & IN_GDS, 0);
    kv.result = -1;
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    assert_int_equal(kv.result, 0);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* The page behind the caller's memory cannot be touched. */
static void a_get_writes_the_value_and_no_more(void **state)
{
    struct gds_world w;
    size_t pages = ALLOCATED;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, "a", MEMORY, FILE_SIZE);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    assert_int_equal(gds_clear(store, 1, "a"), YOLK_OK);
    uint8_t *memory =
        mmap(NULL, pages + UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + pages, UNIT, PROT_NONE), 0);
    uint8_t *end = memory + pages - GDS_SIZE;
    struct yolk_slice slice = {end, GDS_SIZE};
    uint64_t key = 1;
    struct yolk_kv kv = {.key = &key, .key_size = 8, .slices = &slice, .slice_count = 1};
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    assert_int_equal(kv.result, GDS_SIZE);
    assert_int_equal(kv.medium, YOLK_MEDIUM_GDS);
    gds_fill(w.host, GDS_SIZE, 1);
    assert_memory_equal(end, w.host, GDS_SIZE);
    munmap(memory, pages + UNIT);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* ---- restarts ---- */

static void a_restart_finds_its_values_again(void **state)
{
    enum { VALUES = 12 };
    struct gds_world w;
    struct yolk_gds_descriptor before, after;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, MEMORY, FILE_SIZE);
    for (uint64_t key = 0; key < VALUES; key++)
        assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
    assert_int_equal(gds_where(store, 3, &before), IN_MEMORY | IN_GDS);
    gds_close(&w, store);
    store = gds_open(&w, NULL, MEMORY, FILE_SIZE);
    for (uint64_t key = 0; key < VALUES; key++)
        assert_int_equal(gds_get(&w, store, key), YOLK_MEDIUM_GDS);
    assert_int_equal(gds_where(store, 3, &after), IN_GDS);
    assert_memory_equal(before.storage_id, after.storage_id, sizeof(after.storage_id));
    assert_int_equal(before.storage_generation, after.storage_generation);
    assert_int_equal(before.value_offset, after.value_offset);
    gds_close(&w, store);
    gds_world_close(&w);
}

static void a_file_made_anew_has_another_generation(void **state)
{
    struct gds_world w;
    struct yolk_gds_descriptor before, after;
    struct yolk_store_options options;
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, MEMORY, FILE_SIZE);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    assert_int_equal(gds_where(store, 1, &before), IN_MEMORY | IN_GDS);
    gds_close(&w, store);
    gds_options(&w, &options, NULL, MEMORY, FILE_SIZE);
    options.gds_start_empty = 1;
    store = gds_open_with(&w, &options);
    assert_int_equal(gds_where(store, 1, NULL), 0);
    assert_int_equal(gds_get(&w, store, 1), YOLK_ERR_NOT_FOUND);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    assert_int_equal(gds_where(store, 1, &after), IN_MEMORY | IN_GDS);
    assert_true(after.storage_generation > before.storage_generation ||
                memcmp(after.storage_id, before.storage_id, sizeof(after.storage_id)) != 0);
    gds_close(&w, store);
    gds_world_close(&w);
}

static void each_process_of_a_host_has_its_slot(void **state)
{
    struct gds_world w;
    char file[600];
    struct yolk_gds_descriptor a, b;
    (void)state;
    gds_world_open(&w, true);
    struct yolk_store *first = gds_open(&w, "first", MEMORY, FILE_SIZE);
    struct yolk_store *second = gds_open(&w, "second", MEMORY, FILE_SIZE);
    for (int slot = 0; slot < 2; slot++) {
        snprintf(file, sizeof(file), "%s.slot%d", w.path, slot);
        assert_int_equal(access(file, F_OK), 0);
    }
    assert_int_equal(gds_put(&w, first, 1), GDS_SIZE);
    assert_int_equal(gds_put(&w, second, 2), GDS_SIZE);
    assert_true(gds_where(first, 1, &a) & IN_GDS);
    assert_true(gds_where(first, 2, &b) & IN_GDS);
    assert_memory_not_equal(a.owner_client_id, b.owner_client_id, sizeof(a.owner_client_id));
    assert_memory_not_equal(a.storage_id, b.storage_id, sizeof(a.storage_id));
    gds_close(&w, second);
    gds_close(&w, first);
    gds_world_close(&w);
}

/* ---- others ---- */

static void anothers_file_is_read_by_its_owner(void **state)
{
    struct gds_world w;
    (void)state;
    gds_world_open(&w, true);
    struct yolk_store *owner = gds_open(&w, "owner", MEMORY, FILE_SIZE);
    struct yolk_store *reader = gds_open(&w, "reader", 0, 0);
    for (uint64_t key = 1; key < 4; key++) {
        assert_int_equal(gds_put(&w, owner, key), GDS_SIZE);
        assert_true(gds_get(&w, reader, key) >= 0);
        assert_int_equal(gds_clear(owner, key, "owner"), YOLK_OK);
        assert_int_equal(gds_where(reader, key, NULL), IN_GDS);
        assert_int_equal(gds_get(&w, reader, key), YOLK_MEDIUM_GDS);
        assert_int_equal(gds_get(&w, owner, key), YOLK_MEDIUM_GDS);
    }
    gds_close(&w, reader);
    gds_close(&w, owner);
    gds_world_close(&w);
}

struct readers {
    struct gds_world w;
    struct yolk_store *store;
    atomic_bool stop;
    atomic_ulong hits, misses;
    uint64_t keys;
};

static void *read_on(void *arg)
{
    struct readers *r = arg;
    uint64_t draw = 12345;
    while (!atomic_load(&r->stop)) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        uint8_t room[GDS_SIZE], right[GDS_SIZE];
        uint64_t key = (draw >> 33) % r->keys;
        struct yolk_slice slice = {room, GDS_SIZE};
        struct yolk_kv kv = {.key = &key, .key_size = 8, .slices = &slice, .slice_count = 1};
        if (yolk_store_get(r->store, &kv, 1) == YOLK_OK) {
            gds_fill(right, GDS_SIZE, key);
            assert_int_equal(kv.result, GDS_SIZE);
            assert_memory_equal(room, right, GDS_SIZE);
            atomic_fetch_add(&r->hits, 1);
        } else {
            atomic_fetch_add(&r->misses, 1);
        }
    }
    return NULL;
}

/* A file of a fifth of what is put, and less memory; every put finds room. */
static void what_is_evicted_is_never_read_wrong(void **state)
{
    enum { KEYS = 60, READERS = 2, FILE_BYTES = 8 << 20, SEGMENT = 2 << 20 };
    static struct readers r;
    pthread_t threads[READERS];
    struct yolk_store_options options;
    (void)state;
    memset(&r, 0, sizeof(r));
    gds_world_open(&r.w, false);
    gds_options(&r.w, &options, NULL, SEGMENT, FILE_BYTES);
    options.put_wait_ms = 30000;
    r.store = gds_open_with(&r.w, &options);
    r.keys = KEYS;
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &r), 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t result = gds_put(&r.w, r.store, key);
        if (result != GDS_SIZE)
            fail_msg("put %d: %s", (int)key, yolk_last_error());
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    unsigned in_file = 0;
    for (uint64_t key = 0; key < KEYS; key++)
        in_file += (gds_where(r.store, key, NULL) & IN_GDS) != 0;
    assert_true(in_file > 0 && in_file <= FILE_BYTES / ALLOCATED);
    assert_true(atomic_load(&r.hits) > 0);
    gds_close(&r.w, r.store);
    gds_world_close(&r.w);
}

/* ---- off ---- */

static void off_is_as_it_was(void **state)
{
    struct gds_world w;
    char file[600];
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = gds_open(&w, NULL, MEMORY, 0);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    assert_int_equal(gds_where(store, 1, NULL), IN_MEMORY);
    assert_int_equal(gds_get(&w, store, 1), YOLK_MEDIUM_MEMORY);
    snprintf(file, sizeof(file), "%s.slot0", w.path);
    assert_int_equal(access(file, F_OK), -1);
    gds_close(&w, store);
    gds_world_close(&w);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (gds_kit_begin(argv))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_is_in_memory_and_in_the_file),
        cmocka_unit_test(without_room_in_memory_it_is_in_the_file_only),
        cmocka_unit_test(without_a_memory_segment_it_is_in_the_file_only),
        cmocka_unit_test(over_its_quota_a_tenant_has_the_file),
        cmocka_unit_test(what_fails_for_one_key_is_its_own),
        cmocka_unit_test(a_tier_that_is_optional_is_left_out),
        cmocka_unit_test(one_write_that_fails_takes_the_other_along),
        cmocka_unit_test(memory_is_registered_for_the_call_only),
        cmocka_unit_test(a_get_past_the_end_says_so),
        cmocka_unit_test(nothing_takes_no_extent),
        cmocka_unit_test(a_get_writes_the_value_and_no_more),
        cmocka_unit_test(a_restart_finds_its_values_again),
        cmocka_unit_test(a_file_made_anew_has_another_generation),
        cmocka_unit_test(each_process_of_a_host_has_its_slot),
        cmocka_unit_test(anothers_file_is_read_by_its_owner),
        cmocka_unit_test(what_is_evicted_is_never_read_wrong),
        cmocka_unit_test(off_is_as_it_was),
    };
    return cmocka_run_group_tests_name("gds_gpu", tests, NULL, NULL);
}
