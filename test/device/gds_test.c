/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of cuFile under the gds transport: exact under what a library may do, ended as they
 * failed. */
#include "kit.h"

#include <fcntl.h>
#include <unistd.h>

#include "platform/clock.h"
#include "transport/gds/batch.h"
#include "transport/gds/buffers.h"

enum { SIZE = 1 << 20 };

struct world {
    struct device *device;
    const struct cufile *cufile;
    struct device_scope scope;
    cufile_handle file;
    int fd;
    uint8_t *gpu;
    struct gds_batch batch;
    uint64_t now;
};

static void open_world(struct world *w, unsigned depth, uint64_t slice, bool direct)
{
    char path[512];
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD};
    w->device = kit_open(NULL);
    w->now = 1;
    assert_ok(device_cufile(w->device, &w->cufile));
    w->gpu = kit_gpu_alloc(w->device, 0, SIZE);
    assert_ok(device_enter(w->device, 0, &w->scope));
    assert_int_equal(w->cufile->driver_open().error, CUFILE_OK);
    w->fd = kit_file(path);
    descriptor.handle.fd = w->fd;
    struct cufile_error error = w->cufile->handle_register(&w->file, &descriptor);
    unlink(path);
    if (error.error != CUFILE_OK && kit_real_cufile()) {
        (void)cufile_fail(error, "cuFileHandleRegister");
        printf("SKIP: %s\n", yolk_last_error());
        exit(77);
    }
    assert_int_equal(error.error, CUFILE_OK);
    assert_int_equal(w->cufile->buf_register(w->gpu, SIZE, 0).error, CUFILE_OK);
    assert_ok(gds_batch_open(&w->batch, w->cufile, depth, slice, direct));
}

static void close_world(struct world *w)
{
    assert_ok(gds_batch_close(&w->batch));
    (void)w->cufile->buf_deregister(w->gpu);
    w->cufile->handle_deregister(w->file);
    close(w->fd);
    (void)w->cufile->driver_close();
    device_leave(w->device, &w->scope);
    kit_gpu_free(w->device, 0, w->gpu);
    device_close(w->device);
}

static struct gds_request request(struct world *w, uint64_t offset, uint64_t size, bool write)
{
    return (struct gds_request){.task.size = size,
                                .file = w->file,
                                .buffer = w->gpu,
                                .buffer_offset = offset,
                                .file_offset = offset,
                                .write = write};
}

/* Until all are over; on the fake so many rounds are enough for anything, each a millisecond. */
static bool drive(struct world *w, struct gds_request *requests, unsigned count)
{
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), 20000);
    for (unsigned i = 0; i < count; i++)
        gds_batch_add(&w->batch, &requests[i]);
    for (unsigned round = 0; kit_real_cufile() ? clock_real_now_ns() < deadline : round < 5000;
         round++) {
        unsigned over = 0;
        w->now = kit_real_cufile() ? clock_real_now_ns() : w->now + 1000000;
        (void)gds_batch_pump(&w->batch, w->now);
        for (unsigned i = 0; i < count; i++)
            over += gds_task_over(&requests[i].task);
        if (over == count)
            return true;
    }
    return false;
}

/* Out of order, late, sparse, short, with parameters read late: the bytes are right all the same.
 */
static void requests_of_all_sizes_are_exact(void **state)
{
    static const char *const manners[] = {
        "", "set order lifo; set sparse 3; set delay 2", "set late 1; set delay 3",
        "io 2 short 4096; io 3 short 100; io 7 short 1; io 9 twice; io 10 stranger",
        "set mode direct; set order lifo"};
    static const uint64_t sizes[] = {4096, 65536, 300 * 1024, 0, 8192, 200704, 131072};
    static uint8_t out[SIZE], back[SIZE];
    struct world w;
    (void)state;
    for (size_t m = 0; m < (kit_real_cufile() ? 1 : sizeof(manners) / sizeof(manners[0])); m++) {
        struct gds_request requests[2][7];
        (void)kit_fake("reset");
        (void)kit_fake_cufile("reset");
        open_world(&w, 16, 65536, m == 4);
        kit_fill(out, SIZE, m);
        kit_put(w.device, 0, w.gpu, out, SIZE);
        (void)kit_fake_cufile(manners[m]);
        for (int pass = 0; pass < 2; pass++) {
            uint64_t offset = 0;
            for (unsigned i = 0; i < 7; i++) {
                requests[pass][i] = request(&w, offset, sizes[i], pass == 0);
                offset += sizes[i];
            }
            assert_true(drive(&w, requests[pass], 7));
            for (unsigned i = 0; i < 7; i++) {
                assert_int_equal(gds_task_status(&requests[pass][i].task), YOLK_OK);
                assert_int_equal(gds_task_transferred(&w.batch.window, &requests[pass][i].task),
                                 sizes[i]);
            }
            if (pass == 0) {
                memset(back, 0xee, SIZE);
                kit_put(w.device, 0, w.gpu, back, SIZE);
            } else {
                kit_get(w.device, 0, back, w.gpu, SIZE);
                assert_memory_equal(back, out, offset);
                for (size_t i = offset; i < SIZE; i++)
                    assert_int_equal(back[i], 0xee);
            }
        }
        assert_true(gds_window_reusable(&w.batch.window));
        close_world(&w);
    }
    (void)kit_fake_cufile("reset");
}

/* Depth 128 with the pool of 64 that hangs a larger submission. */
static void no_more_than_the_pool_is_submitted_in_compatibility_mode(void **state)
{
    struct world w;
    (void)state;
    (void)kit_fake_cufile("reset");
    open_world(&w, 128, 4096, false);
    struct gds_request all = request(&w, 0, SIZE, true);
    assert_true(drive(&w, &all, 1));
    assert_int_equal(gds_task_status(&all.task), YOLK_OK);
    assert_true(kit_fake_cufile("count largest") <= 64);
    close_world(&w);
}

/* What of the requests fails is one's; the others are whole. Each in both versions' way of failing.
 */
static void a_failure_is_one_requests_own(void **state)
{
    static const char *const versions[] = {"set version 1150", "set version 1200"};
    (void)state;
    if (kit_real_cufile())
        skip();
    for (int v = 0; v < 2; v++) {
        for (int n = 1; n <= 8; n++) {
            struct world w;
            char command[64];
            struct gds_request requests[4];
            unsigned failed = 0;
            (void)kit_fake_cufile("reset");
            (void)kit_fake_cufile(versions[v]);
            open_world(&w, 8, 65536, false);
            snprintf(command, sizeof(command), "set delay 2; io %d error", n);
            (void)kit_fake_cufile(command);
            for (unsigned i = 0; i < 4; i++)
                requests[i] = request(&w, i * 131072, 131072, true);
            assert_true(drive(&w, requests, 4));
            for (unsigned i = 0; i < 4; i++) {
                int status = gds_task_status(&requests[i].task);
                failed += status == YOLK_ERR_IO;
                assert_true(status == YOLK_ERR_IO || status == YOLK_OK);
            }
            assert_int_equal(failed, 1);
            assert_true(gds_window_quiet(&w.batch.window));
            assert_false(gds_window_reusable(&w.batch.window));
            close_world(&w);
        }
    }
    (void)kit_fake_cufile("set version 1150");
}

/* The bytes of a failed entry come later: until then the request is not over and the batch is not
 * closed. */
static void what_may_still_move_is_kept(void **state)
{
    struct world w;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    open_world(&w, 4, 65536, false);
    (void)kit_fake_cufile("fail cuFileBatchIOGetStatus 1 5041; hold 1");
    struct gds_request one = request(&w, 0, 65536, true);
    assert_false(drive(&w, &one, 1)); /* five seconds of the test's clock */
    assert_status(gds_batch_close(&w.batch), YOLK_ERR_BUSY);
    (void)kit_fake_cufile("hold 0");
    (void)gds_batch_pump(&w.batch, w.now);
    assert_true(gds_task_over(&one.task));
    assert_int_equal(gds_task_status(&one.task), YOLK_OK); /* it was well after all */
    close_world(&w);
}

static void refusals_are_told_as_they_are(void **state)
{
    struct world w;
    struct gds_batch other;
    (void)state;
    (void)kit_fake_cufile("reset");
    open_world(&w, 4, 65536, false);
    assert_status(gds_batch_open(&other, w.cufile, 0, 65536, false), YOLK_ERR_INVALID);
    assert_status(gds_batch_open(&other, w.cufile, 129, 65536, false), YOLK_ERR_INVALID);
    if (!kit_real_cufile()) {
        (void)kit_fake_cufile("set batchmax 16");
        assert_status(gds_batch_open(&other, w.cufile, 128, 65536, false), YOLK_ERR_INVALID);
        assert_error_text("cuFileBatchIOSetUp of 32 entries: CU_FILE_INVALID_VALUE (5022)");
        assert_int_equal(kit_fake_cufile("count batches"), w.batch.part_count);
        /* A submission that takes nothing fails its requests at once. */
        (void)kit_fake_cufile("fail cuFileBatchIOSubmit 1 5040");
        struct gds_request one = request(&w, 0, 65536, true);
        assert_true(drive(&w, &one, 1));
        assert_int_equal(gds_task_status(&one.task), YOLK_ERR_IO);
        /* One that may have taken a part is waited for; what was taken is told. */
        (void)kit_fake_cufile("refuse 2 5035");
        struct gds_request two = request(&w, 0, 131072, true);
        assert_false(drive(&w, &two, 1));
        assert_status(gds_batch_close(&w.batch), YOLK_ERR_BUSY);
        assert_int_equal(w.batch.window.submitted, 1);
        w.batch.window.submitted = 0; /* the test gives up what the fake never had */
    }
    close_world(&w);
}

/* C61: many ranges of few allocations, used and given up in any order. */
static void c61_registrations_are_no_more_than_allocations(void **state)
{
    enum { ALLOCATIONS = 10, BYTES = 1 << 20, ROUNDS = 20000, HELD = 50 };
    struct world w;
    struct gds_buffers buffers;
    uint8_t *memory[ALLOCATIONS], *held[HELD] = {NULL};
    uint64_t seed = 7, offset;
    bool registered;
    (void)state;
    (void)kit_fake_cufile("reset");
    open_world(&w, 4, 65536, false);
    gds_buffers_init(&buffers, w.device, w.cufile);
    for (int i = 0; i < ALLOCATIONS; i++) {
        memory[i] = kit_gpu_alloc(w.device, 0, BYTES);
        assert_ok(gds_buffers_add(&buffers, memory[i], BYTES, &registered));
        assert_true(registered);
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t **place = &held[kit_draw(&seed) % HELD];
        if (*place != NULL) {
            gds_buffers_remove(&buffers, *place);
            *place = NULL;
            continue;
        }
        uint8_t *base = memory[kit_draw(&seed) % ALLOCATIONS];
        uint64_t at = kit_draw(&seed) % BYTES, size = 1 + kit_draw(&seed) % (BYTES - at);
        assert_ok(gds_buffers_add(&buffers, base + at, size, &registered));
        assert_true(registered);
        assert_ptr_equal(gds_buffers_find(&buffers, base + at, &offset), base);
        assert_int_equal(offset, at);
        *place = base + at;
    }
    assert_int_equal(buffers.registrations, ALLOCATIONS);
    assert_status(gds_buffers_add(&buffers, memory[0] + 1, BYTES, &registered), YOLK_ERR_INVALID);
    assert_ok(gds_buffers_add(&buffers, &seed, 8, &registered)); /* host memory */
    assert_false(registered);
    assert_ptr_equal(gds_buffers_find(&buffers, &seed, &offset), &seed);
    assert_int_equal(offset, 0);
    for (int i = 0; i < HELD; i++) {
        if (held[i] != NULL)
            gds_buffers_remove(&buffers, held[i]);
    }
    for (int i = 0; i < ALLOCATIONS; i++)
        gds_buffers_remove(&buffers, memory[i]);
    assert_int_equal(buffers.count, 0);
    if (!kit_real_cufile())
        assert_int_equal(kit_fake_cufile("count buffers"), 1); /* the world's own */
    gds_buffers_fini(&buffers);
    for (int i = 0; i < ALLOCATIONS; i++)
        kit_gpu_free(w.device, 0, memory[i]);
    close_world(&w);
}

/* Memory that was freed and is another allocation's now; and memory that cannot be pinned. */
static void registrations_follow_the_allocations(void **state)
{
    struct world w;
    struct gds_buffers buffers;
    uint64_t offset;
    bool registered;
    (void)state;
    (void)kit_fake_cufile("reset");
    open_world(&w, 4, 65536, false);
    gds_buffers_init(&buffers, w.device, w.cufile);
    uint8_t *memory = kit_gpu_alloc(w.device, 0, 65536);
    assert_ok(gds_buffers_add(&buffers, memory, 65536, &registered));
    kit_gpu_free(w.device, 0, memory); /* without a word */
    uint8_t *next = kit_gpu_alloc(w.device, 0, 131072);
    assert_ok(gds_buffers_add(&buffers, next + 100, 1000, &registered));
    assert_true(registered);
    assert_ptr_equal(gds_buffers_find(&buffers, next + 100, &offset), next);
    gds_buffers_remove(&buffers, next + 100);
    if (!kit_real_cufile()) {
        (void)kit_fake_cufile("set buffers 1"); /* the world's own */
        assert_ok(gds_buffers_add(&buffers, next + 100, 1000, &registered));
        assert_false(registered);
        assert_error_text("cuFileBufRegister of 131072 bytes: CU_FILE_GPU_MEMORY_PINNING_FAILED");
        assert_ptr_equal(gds_buffers_find(&buffers, next + 100, &offset), next + 100);
        (void)kit_fake_cufile("reset");
        assert_ok(gds_buffers_add(&buffers, next, 1000, &registered)); /* tried again */
        assert_true(registered);
    }
    gds_buffers_fini(&buffers);
    kit_gpu_free(w.device, 0, next);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_all_sizes_are_exact),
        cmocka_unit_test(no_more_than_the_pool_is_submitted_in_compatibility_mode),
        cmocka_unit_test(a_failure_is_one_requests_own),
        cmocka_unit_test(what_may_still_move_is_kept),
        cmocka_unit_test(refusals_are_told_as_they_are),
        cmocka_unit_test(c61_registrations_are_no_more_than_allocations),
        cmocka_unit_test(registrations_follow_the_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
