/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the driver, and what is said where it, or a part of it, is not there. */
#include "kit.h"

#include <sys/wait.h>
#include <unistd.h>

/* Each wish stands before cuInit, so each is a process of its own. */
static void in_child(const char *commands, int wanted, const char *text)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct device *device;
        (void)kit_fake(commands);
        int status = kit_open_status(NULL, &device);
        bool right = status == wanted && (status == YOLK_OK || strstr(yolk_last_error(), text));
        if (!right)
            fprintf(stderr, "%s: %d: %s\n", commands, status, yolk_last_error());
        if (status == YOLK_OK)
            device_close(device);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_library_that_is_not_there_is_named(void **state)
{
    struct device *device;
    struct device_options options = {.cuda_library = "/nowhere/libcuda.so.1"};
    struct device_report report;
    (void)state;
    assert_status(device_open(&options, &device), YOLK_ERR_UNSUPPORTED);
    assert_error_text("no CUDA driver: /nowhere/libcuda.so.1: cannot open shared object file");
    options.cufile_library = "/nowhere/libcufile.so.0";
    device_describe(&options, &report);
    assert_false(report.cuda || report.cufile);
    assert_string_equal(report.cuda_found, "no CUDA driver: /nowhere/libcuda.so.1: cannot open "
                                           "shared object file: No such file or directory");
    assert_string_equal(report.cufile_found, "no cuFile: /nowhere/libcufile.so.0: cannot open "
                                             "shared object file: No such file or directory");
}

static void what_does_not_do_is_refused_with_the_reason(void **state)
{
    (void)state;
    if (kit_real())
        skip();
    in_child("set version 11020", YOLK_ERR_UNSUPPORTED,
             "the CUDA driver is for CUDA 11.2; 11.4 or newer is needed");
    in_child("set missing cuEventQuery", YOLK_ERR_UNSUPPORTED,
             "the CUDA driver (CUDA 13.0) has no function cuEventQuery");
    in_child("set missing cuDriverGetVersion", YOLK_ERR_UNSUPPORTED, "has no cuDriverGetVersion");
    in_child("fail cuDriverGetVersion 1 34", YOLK_ERR_UNSUPPORTED, "the toolkit's stub");
    in_child("fail cuInit 1 999", YOLK_ERR_UNSUPPORTED,
             "no CUDA driver: cuInit: CUDA_ERROR_UNKNOWN (999): unknown error");
    in_child("set gpus 0", YOLK_ERR_UNSUPPORTED, "no CUDA-capable device is detected");
    in_child("fail cuDeviceGetUuid 1 101", YOLK_ERR_SYSTEM, "GPU 0 cannot be looked at");
    in_child("set version 11040", YOLK_OK, "");
    in_child("set missing cuMemcpyBatchAsync; set missing cuMemCreate; set missing cuLaunchKernel",
             YOLK_OK, "");
}

static void functions_are_found_by_their_names_too(void **state)
{
    struct device *device;
    struct device_memory memory;
    struct device_options options = {.cuda_library = kit_fake_path("libcuda-names.so.1")};
    (void)state;
    if (kit_real())
        skip();
    assert_ok(device_open(&options, &device));
    assert_int_equal(device_count(device), 1);
    assert_null(device_cuda(device)->missing[CUDA_BATCH]);
    void *gpu = kit_gpu_alloc(device, 0, 4096); /* cuMemAlloc_v2 */
    assert_ok(device_query(device, gpu, &memory));
    assert_int_equal(memory.kind, DEVICE_GPU);
    kit_gpu_free(device, 0, gpu);
    device_close(device);
}

static void gpus_are_told_apart_by_uuid(void **state)
{
    char text[DEVICE_UUID_TEXT];
    struct device_gpu gpu;
    (void)state;
    (void)kit_fake("set gpus 2");
    struct device *device = kit_open(NULL);
    assert_true(device_count(device) >= 1);
    for (unsigned i = 0; i < device_count(device); i++) {
        assert_ok(device_gpu(device, (int)i, &gpu));
        assert_status(device_find(device, gpu.uuid), (int)i);
        assert_true(gpu.memory_bytes > 0 && gpu.compute_major > 0);
        device_uuid_text(gpu.uuid, text);
        printf("GPU %u: %s %s %s, sm_%d%d, NUMA node %d, VMM %d, HOST_NUMA %d, fabric said %d, "
               "DMA-BUF %d\n",
               i, gpu.name, text, gpu.bus, gpu.compute_major, gpu.compute_minor, gpu.numa_node,
               gpu.vmm, gpu.host_numa_vmm, gpu.fabric_claimed, gpu.dma_buf);
        assert_int_equal(strlen(text), 40);
    }
    if (!kit_real())
        assert_string_equal(text, "GPU-fafafafa-fafa-fafa-fafa-fafafafafa01");
    gpu.uuid[3] ^= 0xff;
    assert_status(device_find(device, gpu.uuid), YOLK_ERR_NOT_FOUND);
    assert_status(device_gpu(device, (int)device_count(device), &gpu), YOLK_ERR_INVALID);
    assert_status(device_gpu(device, -1, &gpu), YOLK_ERR_INVALID);
    kit_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_not_there_is_named),
        cmocka_unit_test(what_does_not_do_is_refused_with_the_reason),
        cmocka_unit_test(functions_are_found_by_their_names_too),
        cmocka_unit_test(gpus_are_told_apart_by_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
