/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a GPU's memory in the GDS file have checksums that the GPU makes, or none. */
#include "gds_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/format.h"

enum { FILE_SIZE = 16 << 20, VALUES = 6 };

static struct yolk_store *open_file(struct gds_world *w, int verify)
{
    struct yolk_store_options options;
    gds_options(w, &options, NULL, 0, FILE_SIZE); /* there is no memory: the file has them alone */
    options.gds_verify = verify;
    return gds_open_with(w, &options);
}

static void slot_of(const struct gds_world *w, char out[600])
{
    snprintf(out, 600, "%s.slot0", w->path);
}

/* One bit of what lies in the file, at this byte of the extents. */
static void spoil(const char *path, uint64_t offset)
{
    uint8_t block[FORMAT_BLOCK], byte;
    struct format_superblock sb = {0};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t i = 0; i < 2 && sb.capacity == 0; i++) {
        assert_int_equal(pread(fd, block, sizeof(block), i * FORMAT_BLOCK), sizeof(block));
        if (format_superblock_decode(block, &sb) != FORMAT_VALID)
            sb.capacity = 0;
    }
    assert_true(sb.capacity > 0);
    off_t at = (off_t)(format_extent_offset(&sb) + offset);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

/* The file as it is now, as a machine finds it that was started anew. */
static void copy_after_power_loss(const char *from, const char *to)
{
    static uint8_t buffer[1 << 20];
    uint8_t block[FORMAT_BLOCK];
    struct format_superblock sb;
    unsigned changed = 0;
    ssize_t size;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(in >= 0 && out >= 0);
    while ((size = read(in, buffer, sizeof(buffer))) > 0)
        assert_int_equal(write(out, buffer, (size_t)size), size);
    for (off_t i = 0; i < 2; i++) {
        assert_int_equal(pread(out, block, sizeof(block), i * FORMAT_BLOCK), sizeof(block));
        if (format_superblock_decode(block, &sb) != FORMAT_VALID)
            continue;
        memset(sb.boot, 0x77, sizeof(sb.boot));
        format_superblock_encode(&sb, block);
        assert_int_equal(pwrite(out, block, sizeof(block), i * FORMAT_BLOCK), sizeof(block));
        changed++;
    }
    assert_true(changed > 0);
    close(in);
    close(out);
}

static void a_value_of_a_gpu_is_compared_when_it_is_read(void **state)
{
    struct gds_world w;
    struct yolk_gds_descriptor gds;
    char path[600];
    (void)state;
    gds_world_open(&w, false);
    slot_of(&w, path);
    struct yolk_store *store = open_file(&w, 1);
    for (uint64_t key = 0; key < 2; key++)
        assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
    assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), 2);
    assert_int_equal(gds_figure(store, "client_gds_unchecked_total"), 0);
    for (uint64_t key = 0; key < 2; key++)
        assert_int_equal(gds_get(&w, store, key), YOLK_MEDIUM_GDS);
    assert_int_equal(gds_where(store, 1, &gds), IN_GDS);
    spoil(path, gds.value_offset + GDS_SIZE / 2);
    assert_int_equal(gds_get(&w, store, 0), YOLK_MEDIUM_GDS);
    /* A copy that does not match counts as none, as with every disk. */
    assert_int_equal(gds_get(&w, store, 1), YOLK_ERR_NOT_FOUND);
    assert_int_equal(gds_figure(store, "client_gds_hits_failed_total"), 1);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* Where nobody asks for it, a file that was closed well is believed. */
static void without_the_setting_nothing_is_compared(void **state)
{
    struct gds_world w;
    uint8_t byte;
    struct yolk_gds_descriptor gds;
    char path[600];
    (void)state;
    gds_world_open(&w, false);
    slot_of(&w, path);
    struct yolk_store *store = open_file(&w, 0);
    assert_int_equal(gds_put(&w, store, 5), GDS_SIZE);
    assert_int_equal(gds_where(store, 5, &gds), IN_GDS);
    spoil(path, gds.value_offset + GDS_SIZE / 2);
    uint64_t key = 5;
    struct yolk_slice slice = {cli_gpu_memory(w.gpu), GDS_SIZE};
    struct yolk_kv kv = {.key = &key, .key_size = sizeof(key), .slices = &slice, .slice_count = 1};
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    gds_fill(w.host, GDS_SIZE, key);
    assert_int_equal(cli_gpu_read(w.gpu, GDS_SIZE / 2, &byte, 1), YOLK_OK);
    assert_int_equal(byte, w.host[GDS_SIZE / 2] ^ 0x10);
    gds_close(&w, store);
    gds_world_close(&w);
}

static void what_is_whole_after_a_power_loss_is_kept(void **state)
{
    struct gds_world w;
    struct yolk_gds_descriptor gds;
    char from[600], to[600];
    (void)state;
    gds_world_open(&w, false);
    slot_of(&w, from);
    struct yolk_store *store = open_file(&w, 0);
    for (uint64_t key = 0; key < VALUES; key++)
        assert_int_equal(gds_put(&w, store, key), GDS_SIZE);
    assert_int_equal(gds_where(store, 2, &gds), IN_GDS);
    snprintf(to, sizeof(to), "%s/copy.slot0", w.folder);
    copy_after_power_loss(from, to);
    gds_close(&w, store);
    snprintf(w.path, sizeof(w.path), "%s/copy", w.folder);
    spoil(to, gds.value_offset + GDS_SIZE / 2); /* as if its bytes had not reached the disk */
    store = open_file(&w, 0);
    for (uint64_t key = 0; key < VALUES; key++)
        assert_int_equal(gds_get(&w, store, key),
                         key == 2 ? (int64_t)YOLK_ERR_NOT_FOUND : (int64_t)YOLK_MEDIUM_GDS);
    /* And what goes wrong now is noticed without the setting. */
    assert_int_equal(gds_where(store, 4, &gds), IN_GDS);
    spoil(to, gds.value_offset + GDS_SIZE / 2);
    assert_int_equal(gds_get(&w, store, 4), YOLK_ERR_NOT_FOUND);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* A value whose checksum cannot be had is put all the same, and said to have none. */
static void without_the_kernel_values_have_none(void **state)
{
    static const char *const ways[] = {"fail cuLaunchKernel 2 1", "set wrongsums 16",
                                       "fail cuModuleLoadDataEx 1 218 0"};
    (void)state;
    gds_kit_fake_only();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct gds_world w;
        char *text = NULL;
        (void)gds_kit_fake_cuda("reset");
        gds_world_open(&w, false);
        struct yolk_store *store = open_file(&w, 1);
        (void)gds_kit_fake_cuda(ways[i]); /* the first launch is the kernel's own check */
        assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
        assert_int_equal(gds_figure(store, "client_gds_unchecked_total"), 1);
        assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), 0);
        assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
        assert_non_null(strstr(text, "client_gds_unchecked_reason{reason=\"GPU 0"));
        free(text);
        assert_int_equal(gds_get(&w, store, 1), YOLK_MEDIUM_GDS);
        assert_int_equal(gds_put(&w, store, 2), GDS_SIZE);
        assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), i == 0);
        (void)gds_kit_fake_cuda("reset");
        gds_close(&w, store);
        gds_world_close(&w);
    }
}

/* What has a checksum is compared by copies where the kernel gives none. */
static void a_value_is_compared_without_the_kernel_too(void **state)
{
    struct gds_world w;
    struct yolk_gds_descriptor gds;
    char path[600];
    (void)state;
    gds_kit_fake_only();
    (void)gds_kit_fake_cuda("reset");
    gds_world_open(&w, false);
    slot_of(&w, path);
    struct yolk_store *store = open_file(&w, 1);
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    (void)gds_kit_fake_cuda("fail cuLaunchKernel 1 1 0");
    assert_int_equal(gds_get(&w, store, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(gds_where(store, 1, &gds), IN_GDS);
    spoil(path, gds.value_offset + GDS_SIZE / 2);
    assert_int_equal(gds_get(&w, store, 1), YOLK_ERR_NOT_FOUND);
    (void)gds_kit_fake_cuda("reset");
    gds_close(&w, store);
    gds_world_close(&w);
}

/* Slices of the processor's memory between those of the GPU, and one of no bytes. */
static void parts_of_both_memories_are_one_checksum(void **state)
{
    enum { A = 5000, B = 7001, C = 90003, D = 333, ALL = A + B + C + D };
    struct gds_world w;
    struct yolk_gds_descriptor gds;
    char path[600];
    uint64_t key;
    uint8_t *wanted = malloc(ALL), *got = malloc(ALL);
    (void)state;
    assert_non_null(wanted);
    assert_non_null(got);
    gds_world_open(&w, false);
    slot_of(&w, path);
    struct yolk_store *store = open_file(&w, 1);
    uint8_t *gpu = cli_gpu_memory(w.gpu);
    gds_fill(wanted, ALL, 9);
    memcpy(w.host, wanted, A);
    memcpy(w.host + 20000, wanted + A + B + C, D);
    assert_int_equal(cli_gpu_write(w.gpu, 65536, wanted + A + B, C), YOLK_OK);
    struct yolk_slice slices[] = {
        {w.host, A}, {gpu + 3, B}, {gpu, 0}, {gpu + 65536, C}, {w.host + 20000, D}};
    /* Read into the GPU's memory, and into the processor's: both compare. */
    struct yolk_slice whole = {gpu + 16, ALL}, host = {got, ALL};
    for (key = 0; key < 2; key++) {
        struct yolk_kv kv = {
            .key = &key, .key_size = sizeof(key), .slices = slices, .slice_count = 5};
        assert_int_equal(cli_gpu_write(w.gpu, 3, wanted + A, B), YOLK_OK);
        assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
        assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), key + 1);
        kv.slices = key == 0 ? &whole : &host;
        kv.slice_count = 1;
        assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
        if (key == 0)
            assert_int_equal(cli_gpu_read(w.gpu, 16, got, ALL), YOLK_OK);
        assert_memory_equal(got, wanted, ALL);
        assert_int_equal(gds_where(store, key, &gds), IN_GDS);
        spoil(path, gds.value_offset + A + 100);
        assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_ERR_NOT_FOUND);
        assert_int_equal(gds_figure(store, "client_gds_hits_failed_total"), key + 1);
        assert_int_equal(cli_gpu_write(w.gpu, 65536, wanted + A + B, C), YOLK_OK);
    }
    gds_close(&w, store);
    gds_world_close(&w);
    free(wanted);
    free(got);
}

/* Many values of one call share few launches. */
static void a_batch_is_summed_by_few_launches(void **state)
{
    enum { MANY = 64, SIZE = 32768 };
    struct gds_world w;
    struct yolk_kv kvs[MANY];
    struct yolk_slice slices[MANY];
    uint64_t keys[MANY];
    (void)state;
    gds_world_open(&w, false);
    struct yolk_store *store = open_file(&w, 1);
    gds_fill(w.host, (size_t)MANY * SIZE, 3);
    assert_int_equal(cli_gpu_write(w.gpu, 0, w.host, (size_t)MANY * SIZE), YOLK_OK);
    for (uint64_t i = 0; i < MANY; i++) {
        keys[i] = i;
        slices[i] = (struct yolk_slice){(uint8_t *)cli_gpu_memory(w.gpu) + i * SIZE, SIZE};
        kvs[i] = (struct yolk_kv){
            .key = &keys[i], .key_size = 8, .slices = &slices[i], .slice_count = 1};
    }
    (void)gds_kit_fake_cuda("reset");
    long before = gds_kit_fake_cuda("calls cuLaunchKernel");
    assert_int_equal(yolk_store_put(store, kvs, MANY), YOLK_OK);
    if (!gds_kit_real()) /* one is the kernel's check */
        assert_in_range(gds_kit_fake_cuda("calls cuLaunchKernel") - before, 1, MANY / 2);
    assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), MANY);
    assert_int_equal(yolk_store_get(store, kvs, MANY), YOLK_OK);
    gds_close(&w, store);
    gds_world_close(&w);
}

/* It has other things to do for longer than a put waits for it. */
static void a_busy_gpu_is_not_waited_for_without_end(void **state)
{
    struct gds_world w;
    (void)state;
    gds_kit_fake_only();
    (void)gds_kit_fake_cuda("reset");
    gds_world_open(&w, false);
    struct yolk_store *store = open_file(&w, 1);
    uint64_t key = 2;
    /* Of whole units, so that the file takes it without a copy. */
    struct yolk_slice slice = {cli_gpu_memory(w.gpu), 65536};
    struct yolk_kv kv = {.key = &key, .key_size = sizeof(key), .slices = &slice, .slice_count = 1};
    assert_int_equal(gds_put(&w, store, 1), GDS_SIZE);
    (void)gds_kit_fake_cuda("hold 1");
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    (void)gds_kit_fake_cuda("hold 0");
    assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), 1);
    assert_int_equal(gds_figure(store, "client_gds_unchecked_total"), 1);
    assert_int_equal(gds_put(&w, store, 3), GDS_SIZE);
    assert_int_equal(gds_figure(store, "client_gds_gpu_checksums_total"), 2);
    gds_close(&w, store);
    gds_world_close(&w);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (gds_kit_begin(argv))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_of_a_gpu_is_compared_when_it_is_read),
        cmocka_unit_test(without_the_setting_nothing_is_compared),
        cmocka_unit_test(what_is_whole_after_a_power_loss_is_kept),
        cmocka_unit_test(without_the_kernel_values_have_none),
        cmocka_unit_test(a_value_is_compared_without_the_kernel_too),
        cmocka_unit_test(parts_of_both_memories_are_one_checksum),
        cmocka_unit_test(a_batch_is_summed_by_few_launches),
        cmocka_unit_test(a_busy_gpu_is_not_waited_for_without_end),
    };
    return cmocka_run_group_tests_name("gds_sum", tests, NULL, NULL);
}
