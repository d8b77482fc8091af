/* SPDX-License-Identifier: Apache-2.0 */
/* Small pieces side by side in a file are one I/O of cuFile's, wherever they lie in GPU memory. */
#include "gds_kit.h"

#include <limits.h>

enum { PIECES = 64, PIECE = 32768, ROUNDS = 4 };

/* Piece i of the file lies at a place of its own in memory, apart from its neighbours. */
static uint8_t *place(const struct gds_world *w, unsigned i)
{
    return w->gpu + (uint64_t)((i * 37) % PIECES) * (PIECE + 4096);
}

static void open_world(struct gds_world *w)
{
    *w = (struct gds_world){.file_size = (uint64_t)PIECES * PIECE,
                            .gpu_size = (uint64_t)PIECES * (PIECE + 4096),
                            .slice = 16 << 20};
    gds_open(w);
}

/* How many failed. */
static unsigned move(struct gds_world *w, enum yolk_opcode opcode)
{
    struct yolk_task_status tasks[PIECES];
    unsigned failed = 0;
    struct yolk_request requests[PIECES];
    for (unsigned i = 0; i < PIECES; i++)
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = place(w, i),
                                            .segment = w->segment,
                                            .offset = (uint64_t)i * PIECE,
                                            .size = PIECE,
                                            .flags = YOLK_REQUEST_EXACT};
    gds_run(w, requests, PIECES, tasks);
    for (unsigned i = 0; i < PIECES; i++)
        failed += tasks[i].status != YOLK_OK || tasks[i].transferred != PIECE;
    return failed;
}

/* There and back, with what lies between the pieces as it was. */
static void round_trip(struct gds_world *w, uint64_t seed)
{
    uint8_t *memory = malloc(w->gpu_size), *file = malloc(w->file_size);
    kit_fill(w->host, w->gpu_size, seed);
    kit_put(w->device, 0, w->gpu, w->host, w->gpu_size);
    assert_int_equal(move(w, YOLK_WRITE), 0);
    gds_look(w, file, 0, w->file_size);
    for (unsigned i = 0; i < PIECES; i++)
        assert_memory_equal(file + (uint64_t)i * PIECE, w->host + (place(w, i) - w->gpu), PIECE);
    for (unsigned i = 0; i < PIECES; i++)
        memset(w->host + (place(w, i) - w->gpu), 0, PIECE);
    kit_put(w->device, 0, w->gpu, w->host, w->gpu_size);
    assert_int_equal(move(w, YOLK_READ), 0);
    for (unsigned i = 0; i < PIECES; i++)
        memcpy(w->host + (place(w, i) - w->gpu), file + (uint64_t)i * PIECE, PIECE);
    kit_get(w->device, 0, memory, w->gpu, w->gpu_size);
    assert_memory_equal(memory, w->host, w->gpu_size);
    free(memory);
    free(file);
}

static void pieces_are_packed_and_exact(void **state)
{
    static const char *const manners[] = {"", "set mode direct", "set order lifo; set late 1"};
    (void)state;
    for (size_t m = 0; m < (kit_real_cufile() ? 1 : sizeof(manners) / sizeof(manners[0])); m++) {
        struct gds_world w;
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(manners[m]);
        open_world(&w);
        long before = kit_fake_cufile("calls cuFileBatchIOSubmit");
        for (unsigned i = 0; i < ROUNDS; i++)
            round_trip(&w, 10 * m + i);
        /* However the first ones of a round were met, most are in few. */
        if (!kit_real_cufile())
            assert_true(kit_fake_cufile("calls cuFileBatchIOSubmit") - before <= ROUNDS * PIECES);
        gds_close(&w);
    }
    (void)kit_fake_cufile("reset");
}

/* An I/O that fails takes none with it: its pieces are tried each alone. (A piece that went alone
 * from the start may be the one that fails.) */
static void a_failed_pack_is_tried_piece_by_piece(void **state)
{
    struct gds_world w;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    open_world(&w);
    for (int n = 1; n <= 3; n++) {
        char command[64];
        snprintf(command, sizeof(command), "io %d error", n);
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(command);
        assert_true(move(&w, YOLK_WRITE) <= 1);
        (void)kit_fake_cufile("reset");
        round_trip(&w, (uint64_t)n);
    }
    (void)kit_fake_cufile("reset");
    gds_close(&w);
}

/* Where there is no memory to pack in, each piece goes alone. */
static void without_memory_for_it_nothing_is_packed(void **state)
{
    struct gds_world w;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    open_world(&w);
    (void)kit_fake("fail cuMemAlloc 1 2");
    round_trip(&w, 5);
    (void)kit_fake("disarm");
    gds_close(&w);
}

/* -- how often cuFile is called -- */

/* Entries of its batches and launches of kernels, as the fakes count them. */
struct calls {
    long entries, submissions, launches;
};

static struct calls count_calls(const struct gds_world *w)
{
    const struct cufile *cufile;
    struct cufile_gpu_statistics gpus[CUFILE_STATISTICS_GPUS];
    unsigned count;
    uint64_t all = 0;
    assert_ok(device_cufile(w->device, &cufile));
    assert_ok(cufile_gpu_statistics(cufile, gpus, &count));
    for (unsigned i = 0; i < count; i++)
        all += gpus[i].reads + gpus[i].writes;
    return (struct calls){(long)all, kit_fake_cufile("calls cuFileBatchIOSubmit"),
                          kit_fake("calls cuLaunchKernel")};
}

enum { OBJECTS = 32, LAYERS = 64, MANY = OBJECTS * LAYERS, TRIES = 6 };

/* Pieces of objects, layer by layer in memory: all in the order of the file; or of every other one
 * first. */
static void move_objects(struct gds_world *w, enum yolk_opcode opcode, unsigned count, bool halves)
{
    static struct yolk_request requests[MANY];
    static struct yolk_task_status tasks[MANY];
    for (unsigned i = 0; i < count; i++) {
        uint64_t n = !halves ? i : i < count / 2 ? 2 * i : 2 * (i - count / 2) + 1;
        uint64_t object = n / LAYERS, layer = n % LAYERS;
        requests[i] = gds_request_of(w, opcode, w->gpu + (layer * OBJECTS + object) * PIECE,
                                     n * PIECE, PIECE);
    }
    gds_run(w, requests, count, tasks);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(tasks[i].status, YOLK_OK);
}

/* The fewest of some tries: whoever submits may be kept from it for longer than is waited. */
static struct calls fewest(struct gds_world *w, enum yolk_opcode opcode, unsigned count,
                           bool halves)
{
    struct calls least = {LONG_MAX, LONG_MAX, LONG_MAX};
    for (int i = 0; i < TRIES; i++) {
        struct calls before = count_calls(w);
        move_objects(w, opcode, count, halves);
        struct calls now = count_calls(w);
        long entries = now.entries - before.entries;
        if (entries < least.entries)
            least = (struct calls){entries, now.submissions - before.submissions,
                                   now.launches - before.launches};
    }
    return least;
}

/* Objects of 64 pieces of 32 KiB take no more of cuFile, for their bytes, than slices of 16 MiB:
 * also where there are more than a queue has room for, and in whatever order they come. */
static void small_pieces_take_no_more_calls_than_large_slices(void **state)
{
    struct gds_world w = {.file_size = (uint64_t)MANY * PIECE, .slice = 16 << 20};
    const long slices = (long)((uint64_t)MANY * PIECE / w.slice);
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    for (int write = 1; write >= 0; write--) {
        enum yolk_opcode opcode = write ? YOLK_WRITE : YOLK_READ;
        struct calls all = fewest(&w, opcode, MANY, false);
        struct calls mixed = fewest(&w, opcode, 256, true);
        printf("FIGURE %s of %d x %d pieces: %ld entries, %ld submissions, %ld launches, slices "
               "of 16 MiB: %ld; of 256 out of order: %ld entries\n",
               write ? "write" : "read", OBJECTS, LAYERS, all.entries, all.submissions,
               all.launches, slices, mixed.entries);
        assert_true(all.entries <= slices + 2 && all.submissions <= slices + 2);
        assert_true(all.launches <= slices + 2);
        assert_true(mixed.entries <= 2);
    }
    gds_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_packed_and_exact),
        cmocka_unit_test(a_failed_pack_is_tried_piece_by_piece),
        cmocka_unit_test(small_pieces_take_no_more_calls_than_large_slices),
        cmocka_unit_test(without_memory_for_it_nothing_is_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
