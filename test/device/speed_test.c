/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast copies and checksums are beside the copy engine's own rate for large ones. On the fake
 * it only shows that the bytes are right, on a real GPU it prints tables and fails where scattered
 * blocks, or checksums, are far from it.
 */
#include "kit.h"

#include "platform/clock.h"

enum { ROUNDS = 5 };
static size_t total; /* bytes of one run */

struct world {
    struct device *device;
    uint8_t *host, *gpu;
    struct device_copy *copies;
};

static double now_s(void)
{
    return (double)clock_real_now_ns() / 1e9;
}

static void run_all(struct world *w, size_t count, enum device_direction direction)
{
    struct device_copy_options how = {.direction = direction};
    struct device_transfer *transfers[64];
    size_t under_way = 0;
    for (size_t done = 0; done < count;) {
        long taken = under_way < 64 ? device_copy(w->device, 0, w->copies + done, count - done,
                                                  &how, &transfers[under_way])
                                    : YOLK_ERR_AGAIN;
        if (taken > 0) {
            done += (size_t)taken;
            under_way++;
            continue;
        }
        assert_int_equal(taken, YOLK_ERR_AGAIN);
        assert_true(under_way > 0);
        assert_ok(device_transfer_wait(transfers[0], clock_after_ms(clock_real_now_ns(), 20000)));
        assert_ok(device_transfer_free(transfers[0]));
        memmove(transfers, transfers + 1, --under_way * sizeof(transfers[0]));
    }
    for (size_t i = 0; i < under_way; i++) {
        assert_ok(device_transfer_wait(transfers[i], clock_after_ms(clock_real_now_ns(), 20000)));
        assert_ok(device_transfer_free(transfers[i]));
    }
}

/* Blocks of one size, each to another place; GB/s of the best round. */
static double measure(struct world *w, size_t block, enum device_direction direction)
{
    size_t count = total / block;
    uint64_t seed = block;
    double best = 0;
    for (size_t i = 0; i < count; i++)
        w->copies[i].size = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = kit_draw(&seed) % i;
        uint64_t swap = w->copies[i - 1].size;
        w->copies[i - 1].size = w->copies[j].size;
        w->copies[j].size = swap;
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *gpu = w->gpu + i * block, *host = w->host + w->copies[i].size * block;
        w->copies[i] = direction == DEVICE_TO_GPU ? (struct device_copy){gpu, host, block}
                                                  : (struct device_copy){host, gpu, block};
    }
    for (int round = 0; round < (kit_real() ? ROUNDS : 1); round++) {
        double start = now_s();
        run_all(w, count, direction);
        double speed = (double)total / (now_s() - start) / 1e9;
        best = speed > best ? speed : best;
    }
    return best;
}

/* Each byte of the host's memory is at its block's place. */
static void check(struct world *w, size_t block)
{
    uint8_t *back = malloc(total);
    kit_get(w->device, 0, back, w->gpu, total);
    for (size_t i = 0; i < total / block; i++) {
        const uint8_t *host = (const uint8_t *)w->copies[i].from;
        if (memcmp(back + i * block, host, block) != 0)
            fail_msg("block %zu of %zu bytes", i, block);
    }
    free(back);
}

static void open_world(struct world *w, const struct device_options *options)
{
    void *host;
    total = kit_real() ? (size_t)512 << 20 : (size_t)4 << 20;
    w->device = kit_open(options);
    w->gpu = kit_gpu_alloc(w->device, 0, total);
    w->copies = malloc(total / 4096 * sizeof(*w->copies));
    assert_ok(device_pinned_alloc(w->device, 0, total, &host));
    w->host = host;
    kit_fill(w->host, total, 1);
}

static void close_world(struct world *w)
{
    device_pinned_free(w->device, w->host, total);
    kit_gpu_free(w->device, 0, w->gpu);
    free(w->copies);
    kit_close(w->device);
}

static const size_t blocks[] = {4096, 16384, 65536, 262144, 1 << 20};
enum { BLOCKS = sizeof(blocks) / sizeof(blocks[0]) };

static void table(struct world *w, const char *name, double large[2])
{
    printf("%-32s", name);
    for (size_t i = 0; i < BLOCKS; i++) {
        double up = measure(w, blocks[i], DEVICE_TO_GPU);
        check(w, blocks[i]);
        double down = measure(w, blocks[i], DEVICE_FROM_GPU);
        printf("  %5.1f/%5.1f (%.2f/%.2f)", up, down, up / large[0], down / large[1]);
        fflush(stdout);
    }
    printf("\n");
}

static void scattered_blocks(void **state)
{
    static const unsigned grids[] = {8, 16, 32, 64};
    struct world w;
    double large[2];
    char name[64], reason[512];
    (void)state;
    (void)kit_fake("reset");
    open_world(&w, &(struct device_options){.gather_below = 1});
    large[0] = measure(&w, total / 2, DEVICE_TO_GPU);
    large[1] = measure(&w, total / 2, DEVICE_FROM_GPU);
    printf("the copy engine, two halves of %zu MiB: %.1f GB/s to the GPU, %.1f from it\n",
           total >> 20, large[0], large[1]);
    printf("GB/s to/from, and the part of that rate, in blocks of 4 KiB, 16 KiB, 64 KiB, 256 KiB, "
           "1 MiB\n");
    table(&w, "copy engine, batches", large);
    close_world(&w);
    for (size_t g = 0; g < sizeof(grids) / sizeof(grids[0]); g++) {
        open_world(
            &w, &(struct device_options){.gather_below = 4 << 20, .gather_blocks_max = grids[g]});
        assert_ok(device_gather_reason(w.device, 0, reason, sizeof(reason)));
        assert_string_equal(reason, "");
        snprintf(name, sizeof(name), "kernel, %u thread blocks", grids[g]);
        table(&w, name, large);
        close_world(&w);
    }
    open_world(&w, NULL);
    table(&w, "as by default", large);
    double up = measure(&w, 4096, DEVICE_TO_GPU), down = measure(&w, 4096, DEVICE_FROM_GPU);
    close_world(&w);
    if (kit_real() && (up < 0.8 * large[0] || down < 0.8 * large[1]))
        fail_msg("4 KiB blocks: %.2f and %.2f of the large-copy rate", up / large[0],
                 down / large[1]);
}

/* All of the GPU's memory in spans of one size; they are to be ended. How many there are. */
static size_t begin_sums(struct world *w, size_t span, struct device_sum **sums, size_t room)
{
    struct device_span spans[512];
    size_t begun = 0;
    for (size_t done = 0; done < total;) {
        size_t count = 0;
        for (size_t at = done; at < total && count < 512; at += span)
            spans[count++] = (struct device_span){w->gpu + at, span};
        assert_true(begun < room);
        long taken = device_sum_begin(w->device, 0, spans, count, &sums[begun]);
        if (taken <= 0)
            fail_msg("checksums: %s", yolk_last_error());
        begun++;
        done += (size_t)taken * span;
    }
    return begun;
}

static void end_sums(struct device_sum **sums, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_ok(device_sum_wait(sums[i], clock_after_ms(clock_real_now_ns(), 20000)));
        (void)device_sum_of(sums[i], 0, 0);
        device_sum_end(sums[i]);
    }
}

/* GB/s of the best round. */
static double measure_sums(struct world *w, size_t span)
{
    struct device_sum *sums[64];
    double best = 0;
    for (int round = 0; round < (kit_real() ? ROUNDS : 1); round++) {
        double start = now_s();
        end_sums(sums, begin_sums(w, span, sums, 64));
        double speed = (double)total / (now_s() - start) / 1e9;
        best = speed > best ? speed : best;
    }
    return best;
}

/* Copies of the same memory that begin behind its checksums, as a put's writes do. */
static double measure_beside(struct world *w)
{
    struct device_sum *sums[64];
    double best = 0;
    (void)measure(w, total / 2, DEVICE_FROM_GPU);
    for (int round = 0; round < (kit_real() ? ROUNDS : 1); round++) {
        double start = now_s();
        size_t count = begin_sums(w, 2 << 20, sums, 64);
        run_all(w, 2, DEVICE_FROM_GPU);
        double speed = (double)total / (now_s() - start) / 1e9;
        end_sums(sums, count);
        best = speed > best ? speed : best;
    }
    return best;
}

static void checksums(void **state)
{
    static const unsigned grids[] = {8, 16, 32, 64, 132};
    struct world w;
    (void)state;
    (void)kit_fake("reset");
    for (size_t g = kit_real() ? 0 : 4; g < sizeof(grids) / sizeof(grids[0]); g++) {
        open_world(&w, &(struct device_options){.gather_blocks_max = grids[g]});
        (void)measure_sums(&w, total); /* loads the kernel */
        double large = measure(&w, total / 2, DEVICE_FROM_GPU), sums = measure_sums(&w, 2 << 20);
        printf("checksums, %3u thread blocks: %.1f GB/s of spans of 2 MiB (%.2f of the copy "
               "engine's %.1f), %.1f of 64 KiB; copies beside them %.2f of without\n",
               grids[g], sums, sums / large, large, measure_sums(&w, 65536),
               measure_beside(&w) / large);
        close_world(&w);
        if (kit_real() && grids[g] == 32 && sums < large)
            fail_msg("checksums have %.2f of the large-copy rate", sums / large);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scattered_blocks),
                                       cmocka_unit_test(checksums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
