/* SPDX-License-Identifier: Apache-2.0 */
#include "kit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

const char *kit_fake_path(const char *name)
{
    static _Thread_local char path[512];
    const char *folder = getenv("YOLK_FAKES");
    snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : YOLK_FAKES_DIR, name);
    return path;
}

bool kit_real(void)
{
    const char *wish = getenv("YOLK_TEST_DEVICE");
    return wish != NULL && strcmp(wish, "real") == 0;
}

/* A function that a fake exports. */
static void *fake_function(const char *fake, const char *name)
{
    void *library = dlopen(kit_fake_path(fake), RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL)
        fail_msg("%s", dlerror());
    return found;
}

bool kit_real_cufile(void)
{
    return kit_real() || getenv("YOLK_TEST_CUFILE") != NULL;
}

static long command(const char *fake, const char *name, const char *commands)
{
    long (*control)(const char *);
    void *found = fake_function(fake, name);
    memcpy(&control, &found, sizeof(control));
    return control(commands);
}

long kit_fake(const char *commands)
{
    return kit_real() ? 0 : command("libcuda.so.1", "fake_cuda_control", commands);
}

long kit_fake_cufile(const char *commands)
{
    return kit_real_cufile() ? 0 : command("libcufile.so.0", "fake_cufile_control", commands);
}

void *kit_shadow(const void *pointer, size_t size)
{
    void *(*shadow)(const void *, size_t);
    void *found = fake_function("libcuda.so.1", "fake_cuda_shadow");
    memcpy(&shadow, &found, sizeof(shadow));
    return shadow(pointer, size);
}

int kit_file(char path[512])
{
    const char *folder = getenv("YOLK_TEST_PATH");
    snprintf(path, 512, "%s/yolk-test-XXXXXX", folder != NULL ? folder : ".");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (direct < 0) /* tmpfs refuses it; the fake does not mind */
        return fd;
    close(fd);
    return direct;
}

static bool tells_real(void)
{
    if (kit_real())
        printf("SKIP: faults can be made in the fake driver only\n");
    return kit_real();
}

void kit_fake_only(void)
{
    if (tells_real())
        exit(77);
}

void kit_fake_only_test(void)
{
    if (tells_real())
        skip();
}

int kit_open_status(const struct device_options *options, struct device **out)
{
    struct device_options all = {0};
    if (options != NULL)
        all = *options;
    char cuda[512], cufile[512];
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    snprintf(cufile, sizeof(cufile), "%s", kit_fake_path("libcufile.so.0"));
    if (!kit_real() && all.cuda_library == NULL)
        all.cuda_library = cuda;
    if (!kit_real_cufile() && all.cufile_library == NULL)
        all.cufile_library = cufile;
    if (all.cufile_library == NULL)
        all.cufile_library = getenv("YOLK_TEST_CUFILE");
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
    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]) && !kit_real_cufile(); i++) {
        if (kit_fake(things[i]) != 0)
            fail_msg("%s is %ld after the end", things[i], kit_fake(things[i]));
    }
    if (!kit_real_cufile())
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
