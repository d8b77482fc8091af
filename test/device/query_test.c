/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of memory a pointer is. */
#include "kit.h"

#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 4 << 20 };

static struct device_memory query(struct device *device, const void *pointer)
{
    struct device_memory out;
    assert_ok(device_query(device, pointer, &out));
    return out;
}

static void assert_kind(struct device *device, const void *pointer, enum device_kind wanted)
{
    struct device_memory memory = query(device, pointer);
    if (memory.kind != wanted)
        fail_msg("%s in place of %s", device_kind_name(memory.kind), device_kind_name(wanted));
}

/* Memory of each kind that a program may bring: C49. */
static void c49_each_kind_of_memory_is_told(void **state)
{
    static uint8_t in_image[64];
    struct device_scope scope;
    struct device_gpu gpu;
    (void)state;
    struct device *device = kit_open(NULL);
    const struct cuda *cuda = device_cuda(device);
    /* Before any context exists in this process. */
    uint8_t *heap = malloc(SIZE);
    assert_kind(device, heap, DEVICE_HOST);
    assert_kind(device, NULL, DEVICE_HOST);

    uint8_t *memory = kit_gpu_alloc(device, 0, SIZE);
    assert_ok(device_gpu(device, 0, &gpu));
    struct device_memory found = query(device, memory + 12345);
    assert_int_equal(found.kind, DEVICE_GPU);
    assert_int_equal(found.ordinal, 0);
    assert_memory_equal(found.uuid, gpu.uuid, 16);
    assert_ptr_equal((void *)(uintptr_t)found.base, memory);
    assert_int_equal(found.size, SIZE);
    assert_false(found.vmm);
    assert_true(found.id != 0);

    assert_kind(device, heap + 77, DEVICE_HOST);
    assert_kind(device, in_image, DEVICE_HOST);
    assert_kind(device, &scope, DEVICE_HOST);
    assert_kind(device, (void *)(uintptr_t)1, DEVICE_HOST);
    void *shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_kind(device, shared, DEVICE_HOST);

    void *pinned;
    assert_ok(device_pinned_alloc(device, 0, SIZE, &pinned));
    found = query(device, (uint8_t *)pinned + SIZE - 1);
    assert_int_equal(found.kind, DEVICE_HOST_PINNED);
    assert_int_equal(found.ordinal, -1);
    assert_int_equal(found.base, (uintptr_t)pinned);

    struct device_range *range;
    assert_ok(device_range_add(device, shared, SIZE, false, &range));
    assert_kind(device, shared, DEVICE_HOST);
    assert_ok(device_range_hold(range, 0, 0, SIZE));
    assert_kind(device, shared, DEVICE_HOST_PINNED);
    device_range_release(range, 0, SIZE);
    assert_ok(device_range_remove(range));
    assert_kind(device, shared, DEVICE_HOST);

    cuda_pointer managed = 0;
    assert_ok(device_enter(device, 0, &scope));
    assert_int_equal(cuda->mem_alloc_managed(&managed, SIZE, CUDA_MANAGED_GLOBAL), CUDA_OK);
    device_leave(device, &scope);
    assert_kind(device, (void *)(uintptr_t)(managed + 5), DEVICE_MANAGED);
    kit_gpu_free(device, 0, (void *)(uintptr_t)managed);
    kit_gpu_free(device, 0, memory);
    device_pinned_free(device, pinned, SIZE);
    munmap(shared, SIZE);
    free(heap);
    kit_close(device);
}

static void map(struct device *device, const struct cuda_location *location, cuda_pointer *pointer,
                size_t *size)
{
    const struct cuda *cuda = device_cuda(device);
    struct cuda_allocation_prop prop = {.type = CUDA_ALLOCATION_PINNED, .location = *location};
    struct cuda_access access[2] = {{{CUDA_LOCATION_DEVICE, 0}, CUDA_ACCESS_READ_WRITE},
                                    {*location, CUDA_ACCESS_READ_WRITE}};
    cuda_allocation allocation;
    size_t count = location->type == CUDA_LOCATION_DEVICE ? 1 : 2;
    assert_int_equal(cuda->mem_get_allocation_granularity(size, &prop, CUDA_GRANULARITY_MINIMUM),
                     CUDA_OK);
    assert_int_equal(cuda->mem_create(&allocation, *size, &prop, 0), CUDA_OK);
    assert_int_equal(cuda->mem_address_reserve(pointer, *size, 0, 0, 0), CUDA_OK);
    assert_int_equal(cuda->mem_map(*pointer, *size, 0, allocation, 0), CUDA_OK);
    assert_int_equal(cuda->mem_set_access(*pointer, *size, access, count), CUDA_OK);
    assert_int_equal(cuda->mem_release(allocation), CUDA_OK);
}

static void unmap(const struct cuda *cuda, cuda_pointer pointer, size_t size)
{
    assert_int_equal(cuda->mem_unmap(pointer, size), CUDA_OK);
    assert_int_equal(cuda->mem_address_free(pointer, size), CUDA_OK);
}

static void memory_with_handles_is_told(void **state)
{
    struct device_scope scope;
    cuda_pointer pointer;
    size_t size;
    (void)state;
    struct device *device = kit_open(NULL);
    const struct cuda *cuda = device_cuda(device);
    assert_ok(device_enter(device, 0, &scope));
    map(device, &(struct cuda_location){CUDA_LOCATION_DEVICE, 0}, &pointer, &size);
    struct device_memory found = query(device, (void *)(uintptr_t)(pointer + 100));
    assert_int_equal(found.kind, DEVICE_GPU);
    assert_int_equal(found.ordinal, 0);
    assert_true(found.vmm);
    unmap(cuda, pointer, size);

    map(device, &(struct cuda_location){CUDA_LOCATION_HOST_NUMA, 0}, &pointer, &size);
    memset((void *)(uintptr_t)pointer, 7, size); /* the processor's too */
    found = query(device, (void *)(uintptr_t)(pointer + 100));
    assert_int_equal(found.kind, DEVICE_HOST_NUMA);
    assert_int_equal(found.numa_node, 0);
    assert_int_equal(found.ordinal, -1);
    assert_true(found.vmm);
    unmap(cuda, pointer, size);
    device_leave(device, &scope);
    kit_close(device);
}

/* An answer is used again while it holds, and not for the next allocation at the same address. */
static void answers_are_kept_while_the_allocation_lives(void **state)
{
    struct device_figures before, after;
    (void)state;
    struct device *device = kit_open(NULL);
    uint8_t *memory = kit_gpu_alloc(device, 0, SIZE);
    struct device_memory first = query(device, memory);
    device_figures(device, &before);
    for (int i = 0; i < 100; i++)
        assert_int_equal(query(device, memory + i * 1000).id, first.id);
    device_figures(device, &after);
    assert_int_equal(after.query_hits - before.query_hits, 100);
    kit_gpu_free(device, 0, memory);
    assert_kind(device, memory, DEVICE_HOST);
    for (int i = 0; i < 50; i++) {
        uint8_t *next = kit_gpu_alloc(device, 0, SIZE / 2);
        struct device_memory found = query(device, next + 10);
        assert_int_equal(found.kind, DEVICE_GPU);
        assert_int_equal(found.size, SIZE / 2);
        assert_true(found.id != first.id);
        kit_gpu_free(device, 0, next);
    }
    /* More allocations than are remembered. */
    uint8_t *many[300];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i++) {
            if (round == 0)
                many[i] = kit_gpu_alloc(device, 0, 65536);
            struct device_memory found = query(device, many[i] + 65535);
            assert_ptr_equal((void *)(uintptr_t)found.base, many[i]);
        }
    }
    for (int i = 0; i < 300; i++)
        kit_gpu_free(device, 0, many[i]);
    kit_close(device);
}

/* Asking makes no context, and leaves the caller's. */
static void a_question_changes_nothing(void **state)
{
    unsigned flags;
    int active = -1;
    cuda_context context = NULL, current;
    (void)state;
    struct device *device = kit_open(NULL);
    const struct cuda *cuda = device_cuda(device);
    assert_kind(device, &flags, DEVICE_HOST);
    assert_int_equal(cuda->primary_ctx_get_state(0, &flags, &active), CUDA_OK);
    assert_int_equal(active, 0);
    assert_int_equal(cuda->ctx_get_current(&current), CUDA_OK);
    assert_null(current);
    assert_int_equal(cuda->primary_ctx_retain(&context, 0), CUDA_OK);
    assert_int_equal(cuda->ctx_push_current(context), CUDA_OK);
    assert_kind(device, &flags, DEVICE_HOST);
    assert_int_equal(cuda->ctx_get_current(&current), CUDA_OK);
    assert_ptr_equal(current, context);
    assert_int_equal(cuda->ctx_pop_current(&current), CUDA_OK);
    assert_int_equal(cuda->primary_ctx_release(0), CUDA_OK);
    kit_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_changes_nothing), /* first: no context is left from others */
        cmocka_unit_test(c49_each_kind_of_memory_is_told),
        cmocka_unit_test(memory_with_handles_is_told),
        cmocka_unit_test(answers_are_kept_while_the_allocation_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
