/* SPDX-License-Identifier: Apache-2.0 */
#include "kit.h"

#include <dlfcn.h>

static const char *fake_path(void)
{
    static char path[512];
    const char *folder = getenv("YOLK_FAKES");
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder != NULL ? folder : YOLK_FAKES_DIR);
    return path;
}

bool kit_real(void)
{
    const char *wish = getenv("YOLK_TEST_DEVICE");
    return wish != NULL && strcmp(wish, "real") == 0;
}

/* A function that the fake exports. */
static void *fake_function(const char *name)
{
    void *library = dlopen(fake_path(), RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL)
        fail_msg("%s", dlerror());
    return found;
}

long kit_fake(const char *commands)
{
    static long (*control)(const char *);
    if (kit_real())
        return 0;
    if (control == NULL) {
        void *found = fake_function("fake_cuda_control");
        memcpy(&control, &found, sizeof(control));
    }
    return control(commands);
}

void *kit_shadow(const void *pointer, size_t size)
{
    void *(*shadow)(const void *, size_t);
    void *found = fake_function("fake_cuda_shadow");
    memcpy(&shadow, &found, sizeof(shadow));
    return shadow(pointer, size);
}

void kit_fake_only(void)
{
    if (!kit_real())
        return;
    printf("SKIP: faults can be made in the fake driver only\n");
    exit(77);
}

int kit_open_status(const struct device_options *options, struct device **out)
{
    struct device_options all = {0};
    if (options != NULL)
        all = *options;
    if (!kit_real() && all.cuda_library == NULL)
        all.cuda_library = fake_path();
    return device_open(&all, out);
}

struct device *kit_open(const struct device_options *options)
{
    struct device *device = NULL;
    int status = kit_open_status(options, &device);
    if (status != YOLK_OK && kit_real()) {
        printf("SKIP: %s\n", yolk_last_error());
        exit(77);
    }
    assert_ok(status);
    return device;
}

void kit_close(struct device *device)
{
    static const char *const things[] = {"count registered", "count pinned",  "count gpu",
                                         "count vmm",        "count streams", "count events",
                                         "count contexts",   "count modules", "count handles"};
    device_close(device);
    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
        if (kit_fake(things[i]) != 0)
            fail_msg("%s is %ld after the end", things[i], kit_fake(things[i]));
    }
    assert_int_equal(kit_fake("context"), 0);
    assert_int_equal(kit_fake("capture"), CUDA_CAPTURE_GLOBAL);
}

void *kit_gpu_alloc(struct device *device, int ordinal, size_t size)
{
    struct device_scope scope;
    cuda_pointer pointer = 0;
    assert_ok(device_enter(device, ordinal, &scope));
    assert_int_equal(device_cuda(device)->mem_alloc(&pointer, size), CUDA_OK);
    device_leave(device, &scope);
    return (void *)(uintptr_t)pointer;
}

void kit_gpu_free(struct device *device, int ordinal, void *pointer)
{
    struct device_scope scope;
    assert_ok(device_enter(device, ordinal, &scope));
    assert_int_equal(device_cuda(device)->mem_free((uintptr_t)pointer), CUDA_OK);
    device_leave(device, &scope);
}

static void copy(struct device *device, int ordinal, const void *to, const void *from, size_t size)
{
    struct device_scope scope;
    const struct cuda *cuda = device_cuda(device);
    cuda_stream stream;
    assert_ok(device_enter(device, ordinal, &scope));
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    assert_int_equal(cuda->memcpy_async((uintptr_t)to, (uintptr_t)from, size, stream), CUDA_OK);
    assert_int_equal(cuda->stream_synchronize(stream), CUDA_OK);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    device_leave(device, &scope);
}

void kit_put(struct device *device, int ordinal, void *gpu, const void *host, size_t size)
{
    copy(device, ordinal, gpu, host, size);
}

void kit_get(struct device *device, int ordinal, void *host, const void *gpu, size_t size)
{
    copy(device, ordinal, host, gpu, size);
}

uint64_t kit_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void kit_fill(void *memory, size_t size, uint64_t seed)
{
    uint8_t *at = memory;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0)
            value = kit_draw(&seed);
        at[i] = (uint8_t)(value >> (i % 8 * 8));
    }
}
