/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to be told of cuFile in this process, and a try of it for people. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "platform/file.h"
#include "transport/gds/files.h"

static void describe(struct gds_file *file, struct yolk_file_figures *out)
{
    *out = (struct yolk_file_figures){
        .direct = file->mode == GDS_DIRECT,
        .reads = atomic_load(&file->reads),
        .writes = atomic_load(&file->writes),
        .bytes_read = atomic_load(&file->bytes_read),
        .bytes_written = atomic_load(&file->bytes_written),
        .bytes_bounced = atomic_load(&file->bytes_bounced),
        .bytes_unregistered = atomic_load(&file->bytes_unregistered),
    };
    if (!out->direct)
        out->bytes_compatible = out->bytes_read + out->bytes_written;
    snprintf(out->mode, sizeof(out->mode), "%s", gds_mode_name(file->mode));
    memcpy(out->path, file->path, sizeof(out->path));
    memcpy(out->reason, file->reason, sizeof(out->reason));
}

struct listing {
    struct yolk_file_figures *out;
    size_t room, count;
};

static void list(struct gds_driver *driver, void *self)
{
    struct listing *listing = self;
    mutex_lock(&driver->lock);
    BASE_LIST_FOREACH(node, &driver->files)
    {
        if (listing->count < listing->room)
            describe(BASE_CONTAINER(node, struct gds_file, node), &listing->out[listing->count]);
        listing->count++;
    }
    mutex_unlock(&driver->lock);
}

size_t gds_files(struct yolk_file_figures *out, size_t room)
{
    struct listing listing = {out, room, 0};
    gds_driver_look(list, &listing);
    return listing.count;
}

static void add_up(struct gds_driver *driver, void *self)
{
    struct gds_totals *out = self;
    mutex_lock(&driver->buffers.lock);
    out->registrations = driver->buffers.registrations;
    out->allocations = driver->buffers.count;
    mutex_unlock(&driver->buffers.lock);
    mutex_lock(&driver->lock);
    out->handles_idle = driver->idle_count;
    mutex_unlock(&driver->lock);
}

void gds_totals(struct gds_totals *out)
{
    memset(out, 0, sizeof(*out));
    gds_driver_look(add_up, out);
}

static int try_path(struct gds_driver *driver, const char *path, int writable,
                    struct yolk_file_figures *out)
{
    struct file *file;
    struct gds_file *opened;
    const struct file_system files = file_system_real();
    unsigned flags = FILE_READ | FILE_DIRECT | (writable ? FILE_WRITE : 0u);
    int status = file_open(&files, path, flags, &file);
    if (status != YOLK_OK)
        return status;
    const struct yolk_file given = {.descriptor = file_descriptor(file), .internal = file};
    status = gds_file_open(driver, &given, file, &opened);
    if (status == YOLK_OK) {
        describe(opened, out);
        gds_file_release(opened);
    }
    file_close(file);
    return status;
}

enum yolk_status gds_try(const struct yolk_transport_options *options, const char *path,
                         int writable, struct yolk_file_figures *out)
{
    struct gds_driver *driver;
    memset(out, 0, sizeof(*out));
    int status = gds_driver_acquire(options, &driver);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    if (path != NULL)
        status = try_path(driver, path, writable, out);
    gds_driver_release(driver);
    return (enum yolk_status)status;
}
