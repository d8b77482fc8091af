/* SPDX-License-Identifier: Apache-2.0 */
/* A store with a disk, through the public calls; its master is embedded, so a new one each time. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

enum { VALUES = 96, SIZE = 300000, MEMORY = 8 << 20, DISK = 64 << 20 };

struct fixture {
    char folder[64];
    char path[80];
    char file[96];
    struct yolk_store *store;
    uint8_t *value;
};

/* Begins with 16 bytes that no other value has anywhere. */
static void fill(uint8_t *to, uint32_t k)
{
    uint32_t x = k * 2654435761u + 12345;
    for (size_t i = 0; i < SIZE; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (uint8_t)(x >> 24);
    }
}

static void open_store(struct fixture *f)
{
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = MEMORY;
    options.lease_ttl_ms = 50;
    options.put_wait_ms = 20000;
    options.ssd_path = f->path;
    options.ssd_size_bytes = DISK;
    options.ssd_sync_ms = 10;
    enum yolk_status status = yolk_store_open(&options, &f->store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
}

static void close_store(struct fixture *f)
{
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(f->store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    enum yolk_status status = yolk_store_close(f->store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/var/tmp/yolk-ssd-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/values", f->folder);
    snprintf(f->file, sizeof(f->file), "%s.slot0", f->path);
    f->value = malloc(SIZE);
    assert_non_null(f->value);
    open_store(f);
}

static void finish(struct fixture *f)
{
    close_store(f);
    free(f->value);
    assert_int_equal(unlink(f->file), 0);
    assert_int_equal(rmdir(f->folder), 0);
}

static int64_t put(struct fixture *f, uint32_t k)
{
    struct yolk_slice slice = {f->value, SIZE};
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k), .slices = &slice, .slice_count = 1};
    fill(f->value, k);
    assert_int_equal(yolk_store_put(f->store, &kv, 1), kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

/* The medium it was read from, or why not. The bytes are right. */
static int64_t get(struct fixture *f, uint32_t k)
{
    /* In two pieces, neither of them aligned. */
    uint8_t *room = malloc(SIZE + 1);
    assert_non_null(room);
    struct yolk_slice slices[] = {{room + 1, 1001}, {room + 1002, SIZE - 1001}};
    struct yolk_kv kv = {
        .key = &k, .key_size = sizeof(k), .slices = slices, .slice_count = 2, .medium = 77};
    enum yolk_status status = yolk_store_get(f->store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    if (kv.result >= 0) {
        assert_int_equal(kv.result, SIZE);
        fill(f->value, k);
        assert_memory_equal(room + 1, f->value, SIZE);
    }
    free(room);
    return kv.result < 0 ? kv.result : kv.medium;
}

static void put_all(struct fixture *f)
{
    for (uint32_t k = 0; k < VALUES; k++)
        assert_int_equal(put(f, k), SIZE);
}

/* How many are read from the disk; all must be there. */
static int count_on_disk(struct fixture *f)
{
    int on_disk = 0;
    for (uint32_t k = 0; k < VALUES; k++) {
        int64_t medium = get(f, k);
        assert_true(medium == YOLK_MEDIUM_MEMORY || medium == YOLK_MEDIUM_LOCAL_DISK);
        on_disk += medium == YOLK_MEDIUM_LOCAL_DISK;
    }
    return on_disk;
}

static void more_than_memory_holds(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    put_all(&f);
    assert_true(count_on_disk(&f) >= VALUES - MEMORY / SIZE);

    /* Not mapped, but given all the same. */
    struct yolk_buffer buffer;
    uint32_t k = 0;
    assert_int_equal(yolk_store_get_buffer(f.store, &k, sizeof(k), &buffer), YOLK_OK);
    fill(f.value, k);
    assert_int_equal(buffer.size, SIZE);
    assert_memory_equal(buffer.data, f.value, SIZE);
    yolk_store_release_buffer(f.store, &buffer);

    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k)};
    assert_int_equal(yolk_store_remove(f.store, &kv, 1, 1), YOLK_OK);
    assert_int_equal(get(&f, k), YOLK_ERR_NOT_FOUND);
    assert_int_equal(put(&f, k), SIZE);
    assert_true(get(&f, k) >= 0);
    uint64_t removed;
    assert_int_equal(yolk_store_remove_all(f.store, 1, &removed), YOLK_OK);
    assert_int_equal(removed, VALUES);
    assert_int_equal(get(&f, k), YOLK_ERR_NOT_FOUND);
    put_all(&f); /* its space is free again */
    assert_true(count_on_disk(&f) > 0);
    finish(&f);
}

static void a_new_master_is_offered_what_is_there(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    put_all(&f);
    close_store(&f);
    open_store(&f);
    int there = 0;
    for (uint32_t k = 0; k < VALUES; k++) {
        int64_t medium = get(&f, k);
        assert_true(medium == YOLK_MEDIUM_LOCAL_DISK || medium == YOLK_MEDIUM_MEMORY ||
                    medium == YOLK_ERR_NOT_FOUND);
        there += medium >= 0;
    }
    assert_true(there >= VALUES - MEMORY / SIZE);
    put_all(&f);
    assert_true(count_on_disk(&f) > 0);
    finish(&f);
}

/* Flips a byte in the middle of the value, where it lies in the file. */
static void spoil(const struct fixture *f, uint32_t k)
{
    struct stat info;
    int fd = open(f->file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    fill(f->value, k);
    uint8_t block[4096];
    int found = 0;
    for (off_t at = 0; at < info.st_size && !found; at += 4096) {
        assert_int_equal(pread(fd, block, sizeof(block), at), sizeof(block));
        if (memcmp(block, f->value, sizeof(block)) != 0)
            continue;
        found = 1;
        assert_int_equal(pread(fd, block, 1, at + SIZE / 2), 1);
        block[0] ^= 4;
        assert_int_equal(pwrite(fd, block, 1, at + SIZE / 2), 1);
    }
    assert_int_equal(fdatasync(fd), 0);
    close(fd);
    assert_true(found);
}

/* Never given out; the key is free to be put again. */
static void a_byte_changed_on_the_disk(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    put_all(&f);
    uint32_t k = 0;
    while (get(&f, k) != YOLK_MEDIUM_LOCAL_DISK)
        k++;
    spoil(&f, k);
    int64_t result = get(&f, k);
    assert_true(result == YOLK_ERR_NOT_FOUND || result == YOLK_ERR_CORRUPT ||
                result == YOLK_MEDIUM_MEMORY); /* hot, it may be on its way there */
    assert_int_equal(put(&f, k), SIZE);
    assert_true(get(&f, k) >= 0);
    finish(&f);
}

static void refused_options(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint64_t disk, memory, sync;
        const char *says;
    } cases[] = {
        {"/var/tmp/x", 0, MEMORY, 100, "ssd_size_bytes is 0"},
        {"/var/tmp/x", DISK, 0, 100, "needs segment_size_bytes"},
        {NULL, DISK, MEMORY, 100, "absolute"},
        {"values", DISK, MEMORY, 100, "absolute"},
        {"/var/tmp/", DISK, MEMORY, 100, "absolute path of a file"},
        {"/nowhere/at/all", DISK, MEMORY, 100, "no folder /nowhere/at/"},
        {"/proc/version/x", DISK, MEMORY, 100, "/proc/version/"},
        {"/var/tmp/x", DISK, MEMORY, 0, "ssd_sync_ms is 0"},
        {"/var/tmp/x", UINT64_MAX, MEMORY, 100, "the largest is"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct yolk_store_options options;
        struct yolk_store *store = NULL;
        yolk_store_options_init(&options);
        options.master = "embedded";
        options.ssd_path = cases[i].path;
        options.ssd_size_bytes = cases[i].disk;
        options.segment_size_bytes = cases[i].memory;
        options.ssd_sync_ms = cases[i].sync;
        assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
        if (strstr(yolk_last_error(), cases[i].says) == NULL)
            fail_msg("case %zu says: %s", i, yolk_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_memory_holds),
        cmocka_unit_test(a_new_master_is_offered_what_is_there),
        cmocka_unit_test(a_byte_changed_on_the_disk),
        cmocka_unit_test(refused_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
