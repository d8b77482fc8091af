/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first opening of cuFile's driver is another process's. The library was seen to spin for ever
 * without /proc/modules, and to end its process where CUDA fails it: that must not be this one.
 */
#include "transport/gds/child.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/cufile.h"
#include "device/device.h"
#include "platform/process.h"

static const char VARIABLE[] = "YOLK_PROBE_CUFILE";

static int open_driver(struct device *device)
{
    const struct cufile *cufile;
    struct device_scope scope;
    struct cufile_properties properties;
    int status = device_cufile(device, &cufile);
    if (status == YOLK_OK)
        status = device_enter(device, 0, &scope);
    if (status != YOLK_OK)
        return status;
    struct cufile_error error = cufile->driver_open();
    if (error.error != CUFILE_OK) {
        status = cufile_fail(error, "cuFileDriverOpen");
    } else {
        error = cufile->driver_get_properties(&properties);
        if (error.error != CUFILE_OK)
            status = cufile_fail(error, "cuFileDriverGetProperties");
        (void)cufile->driver_close();
    }
    device_leave(device, &scope);
    return status;
}

/* The value is both libraries' names with a line end between; an empty one is the system's. */
__attribute__((constructor)) static void answer_if_asked(void)
{
    const char *value = process_asked(VARIABLE);
    char cuda[2048] = "", cufile[2048] = "";
    struct device *device = NULL;
    if (value == NULL)
        return;
    const char *end = strchr(value, '\n');
    if (end != NULL) {
        snprintf(cuda, sizeof(cuda), "%.*s", (int)(end - value), value);
        snprintf(cufile, sizeof(cufile), "%s", end + 1);
    }
    const struct device_options options = {.cuda_library = cuda[0] != '\0' ? cuda : NULL,
                                           .cufile_library = cufile[0] != '\0' ? cufile : NULL};
    int status = device_open(&options, &device);
    if (status == YOLK_OK)
        status = open_driver(device);
    process_answer(status == YOLK_OK ? "ok" : yolk_last_error());
}

int gds_child_probe(const char *cuda_library, const char *cufile_library, uint64_t timeout_ms)
{
    char value[4200], answer[400];
    int size = snprintf(value, sizeof(value), "%s\n%s", cuda_library != NULL ? cuda_library : "",
                        cufile_library != NULL ? cufile_library : "");
    if (size < 0 || size >= (int)sizeof(value))
        return base_fail(YOLK_ERR_INVALID, 0, "the libraries' names are too long");
    int status = process_ask(VARIABLE, value, timeout_ms, answer, sizeof(answer));
    if (status != YOLK_OK)
        return base_fail_context(YOLK_ERR_UNSUPPORTED,
                                 "cuFile's driver, opened in a process of its own first");
    return strcmp(answer, "ok") == 0 ? YOLK_OK : base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", answer);
}
