/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory, and host memory of others registered by pieces. */
#include "kit.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK ((size_t)DEVICE_CHUNK)

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void pinned_memory_is_bounded(void **state)
{
    void *a, *b, *c;
    struct device_figures figures;
    (void)state;
    struct device *device = kit_open(&(struct device_options){.pinned_bytes_max = 3 << 20});
    assert_ok(device_pinned_alloc(device, 0, 1 << 20, &a));
    assert_ok(device_pinned_alloc(device, 0, 2 << 20, &b));
    memset(a, 1, 1 << 20);
    assert_int_equal((uintptr_t)b % 4096, 0);
    assert_status(device_pinned_alloc(device, 0, 1, &c), YOLK_ERR_LIMIT);
    assert_null(c);
    assert_error_text("at most 3145728");
    assert_status(device_pinned_alloc(device, 0, 0, &c), YOLK_ERR_INVALID);
    assert_status(device_pinned_alloc(device, 0, SIZE_MAX, &c), YOLK_ERR_LIMIT);
    assert_status(device_pinned_alloc(device, 99, 4096, &c), YOLK_ERR_INVALID);
    device_pinned_free(device, b, 2 << 20);
    device_figures(device, &figures);
    assert_int_equal(figures.pinned_bytes, 1 << 20);
    assert_ok(device_pinned_alloc(device, 0, 2 << 20, &b));
    device_pinned_free(device, a, 1 << 20);
    device_pinned_free(device, b, 2 << 20);
    device_pinned_free(device, NULL, 5);
    kit_close(device);
}

/* At most two chunks' worth may be registered: the one used longest ago goes, unless it is held. */
static void the_least_recently_used_chunk_goes(void **state)
{
    struct device_range *range;
    struct device_figures figures;
    (void)state;
    struct device *device = kit_open(&(struct device_options){.registered_bytes_max = 2 * CHUNK});
    char *memory = map(4 * CHUNK);
    assert_ok(device_range_add(device, memory, 4 * CHUNK, false, &range));
    device_figures(device, &figures);
    assert_int_equal(figures.registered_bytes, 0);
    assert_ok(device_range_hold(range, 0, 0, 4096));
    assert_ok(device_range_hold(range, 0, CHUNK - 1, 2)); /* the same and the next */
    device_figures(device, &figures);
    assert_int_equal(figures.registrations, 2);
    assert_int_equal(figures.registered_bytes, 2 * CHUNK);
    assert_status(device_range_hold(range, 0, 3 * CHUNK, 1), YOLK_ERR_LIMIT);
    assert_error_text("registered and in use");
    assert_status(device_range_remove(range), YOLK_ERR_BUSY);
    device_range_release(range, 0, 4096);
    assert_status(device_range_hold(range, 0, 3 * CHUNK, 1), YOLK_ERR_LIMIT); /* held once more */
    device_range_release(range, CHUNK - 1, 2);
    assert_ok(device_range_hold(range, 0, 10, 10)); /* used again: chunk 1 is older now */
    device_range_release(range, 10, 10);
    assert_ok(device_range_hold(range, 0, 3 * CHUNK, 1));
    device_range_release(range, 3 * CHUNK, 1);
    device_figures(device, &figures);
    assert_int_equal(figures.registrations, 3);
    assert_int_equal(figures.deregistrations, 1);
    assert_ok(device_range_hold(range, 0, 0, 1));
    device_range_release(range, 0, 1);
    device_figures(device, &figures);
    assert_int_equal(figures.registrations, 3); /* it was still there */
    if (!kit_real())
        assert_int_equal(kit_fake("count registered_bytes"), (long)(2 * CHUNK));
    assert_status(device_range_hold(range, 0, 4 * CHUNK, 1), YOLK_ERR_INVALID);
    assert_status(device_range_hold(range, 0, 0, 4 * CHUNK + 1), YOLK_ERR_INVALID);
    assert_status(device_range_hold(range, 0, 0, 0), YOLK_ERR_INVALID);
    /* Three chunks are more than may be: what was taken of them is given back. */
    assert_status(device_range_hold(range, 0, 0, 3 * CHUNK), YOLK_ERR_LIMIT);
    assert_ok(device_range_remove(range));
    munmap(memory, 4 * CHUNK);
    kit_close(device);
}

static void a_read_only_mapping_can_be_registered(void **state)
{
    struct device_range *range;
    size_t size = 4 << 20;
    (void)state;
    struct device *device = kit_open(NULL);
    int fd = memfd_create("x", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    void *writer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *reader = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    kit_fill(writer, size, 3);
    assert_ok(device_range_add(device, reader, size, false, &range));
    assert_status(device_range_hold(range, 0, 0, size), YOLK_ERR_INVALID);
    assert_error_text("cuMemHostRegister");
    assert_ok(device_range_remove(range));
    assert_ok(device_range_add(device, reader, size, true, &range));
    assert_ok(device_range_hold(range, 0, 0, size));
    void *gpu = kit_gpu_alloc(device, 0, size);
    void *back = malloc(size);
    kit_put(device, 0, gpu, reader, size);
    kit_get(device, 0, back, gpu, size);
    assert_memory_equal(back, writer, size);
    device_range_release(range, 0, size);
    assert_ok(device_range_remove(range));
    kit_gpu_free(device, 0, gpu);
    free(back);
    munmap(reader, size);
    munmap(writer, size);
    close(fd);
    kit_close(device);
}

static void what_somebody_else_registered_is_said(void **state)
{
    struct device_range *range, *other;
    (void)state;
    struct device *device = kit_open(NULL);
    char *memory = map(8 << 20);
    assert_ok(device_range_add(device, memory + 100, 5000, false, &range));  /* pages 0 and 1 */
    assert_ok(device_range_add(device, memory + 4096, 8192, false, &other)); /* pages 1 and 2 */
    assert_ok(device_range_hold(range, 0, 0, 5000));
    assert_status(device_range_hold(other, 0, 0, 1), YOLK_ERR_EXISTS);
    assert_error_text("already");
    device_range_release(range, 0, 5000);
    assert_ok(device_range_remove(range));
    assert_ok(device_range_hold(other, 0, 0, 1));
    device_range_release(other, 0, 1);
    assert_ok(device_range_remove(other));
    assert_status(device_range_add(device, NULL, 1, false, &range), YOLK_ERR_INVALID);
    assert_status(device_range_add(device, memory, 0, false, &range), YOLK_ERR_INVALID);
    munmap(memory, 8 << 20);
    kit_close(device);
}

struct user {
    struct device_range *range;
    uint64_t seed;
    unsigned rounds, limits, bad;
};

static void *use(void *arg)
{
    struct user *user = arg;
    for (unsigned i = 0; i < user->rounds; i++) {
        size_t offset = kit_draw(&user->seed) % (4 * CHUNK - 8192);
        size_t size = 1 + kit_draw(&user->seed) % 8192;
        int status = device_range_hold(user->range, 0, offset, size);
        user->limits += status == YOLK_ERR_LIMIT;
        user->bad += status != YOLK_OK && status != YOLK_ERR_LIMIT;
        if (status == YOLK_OK)
            device_range_release(user->range, offset, size);
    }
    return NULL;
}

/* Registering and unregistering cross each other: nobody is refused but at the limit, none leaks.
 */
static void threads_share_the_limit(void **state)
{
    enum { THREADS = 4 };
    struct user users[THREADS];
    pthread_t threads[THREADS];
    struct device_range *range;
    struct device_figures figures;
    (void)state;
    struct device *device = kit_open(&(struct device_options){.registered_bytes_max = 3 * CHUNK});
    char *memory = map(4 * CHUNK);
    assert_ok(device_range_add(device, memory, 4 * CHUNK, false, &range));
    for (unsigned i = 0; i < THREADS; i++) {
        users[i] = (struct user){range, i, kit_real() ? 20 : 500, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].bad, 0);
    }
    device_figures(device, &figures);
    assert_true(figures.registered_bytes <= 3 * CHUNK);
    assert_int_equal(figures.registered_bytes,
                     (figures.registrations - figures.deregistrations) * CHUNK);
    assert_ok(device_range_remove(range));
    device_figures(device, &figures);
    assert_int_equal(figures.registered_bytes, 0);
    munmap(memory, 4 * CHUNK);
    kit_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_memory_is_bounded),
        cmocka_unit_test(the_least_recently_used_chunk_goes),
        cmocka_unit_test(a_read_only_mapping_can_be_registered),
        cmocka_unit_test(what_somebody_else_registered_is_said),
        cmocka_unit_test(threads_share_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
