/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of files as segments. */
#include <string.h>

#define LOG_ROOM "engine"
#include "base/error.h"
#include "base/log.h"
#include "engine/served.h"
#include "platform/file.h"
#include "platform/random.h"

/* Opens it if that is left to us, and learns what the transports need to know. */
static enum yolk_status describe(struct yolk_served *served,
                                 const struct yolk_serve_file_options *options, uint64_t *size)
{
    struct file *file = options->internal;
    if (file == NULL) {
        const struct file_system files = file_system_default();
        unsigned flags = FILE_READ | FILE_DIRECT | (options->writable ? FILE_WRITE : 0u);
        enum yolk_status status =
            (enum yolk_status)file_open(&files, options->path, flags, &served->opened);
        if (status != YOLK_OK)
            return status;
        file = served->opened;
    }
    const char *name = options->path != NULL ? options->path : "the file";
    struct file_alignment alignment;
    uint64_t end_of_file;
    int status = file_alignment(file, &alignment);
    if (status == YOLK_OK)
        status = file_size(file, &end_of_file);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    *size = options->size;
    if (*size == 0 && options->offset < end_of_file)
        *size = end_of_file - options->offset;
    if (*size == 0 || options->offset > end_of_file || *size > end_of_file - options->offset)
        return base_fail(YOLK_ERR_INVALID, 0, "%s has %llu bytes, so %llu at %llu are not in it",
                         name, (unsigned long long)end_of_file, (unsigned long long)*size,
                         (unsigned long long)options->offset);
    served->description = (struct yolk_file){
        .descriptor = file_descriptor(file),
        .offset = options->offset,
        .memory_alignment = alignment.memory,
        .offset_alignment = alignment.offset,
        .writable = options->writable,
        .pad_writes = options->pad_writes,
        .internal = file,
    };
    return YOLK_OK;
}

/* Another transport does it, but whoever wonders about the speed must find the reason. */
static void tell_what_is_missing(struct yolk_engine *engine, const char *name)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        if (transport->endpoint == NULL && !atomic_exchange(&transport->told, true))
            log_warn("%s is served without %s: %s", name, transport->ops.name, transport->reason);
    }
}

static enum yolk_status serve_file(struct yolk_engine *engine,
                                   const struct yolk_serve_file_options *options,
                                   struct yolk_served **out)
{
    struct yolk_served *served = engine_served_make(engine);
    if (served == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a file");
    static const uint8_t no_key[ACCESS_TICKET_KEY_SIZE] = {0};
    uint64_t size = 0;
    served->owner = options->owner;
    served->read_only = !options->writable;
    enum yolk_status status = describe(served, options, &size);
    access_grant_init(&served->grant, options->segment, size, no_key, 0);
    if (status == YOLK_OK)
        status = engine_served_start(served, (struct yolk_serve){
                                                 .size = size,
                                                 .segment = options->segment,
                                                 .access = engine_served_access(served),
                                                 .file = &served->description,
                                             });
    if (status != YOLK_OK) {
        engine_served_destroy(served);
        return status;
    }
    tell_what_is_missing(engine, options->path != NULL ? options->path : "a file");
    *out = served;
    return YOLK_OK;
}

enum yolk_status yolk_engine_serve_file(struct yolk_engine *engine,
                                        const struct yolk_serve_file_options *options,
                                        struct yolk_served **out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || options == NULL || out == NULL ||
        options->struct_size < sizeof(*options) ||
        (options->path == NULL && options->internal == NULL))
        return base_fail(YOLK_ERR_INVALID, 0, "serving a file needs its path and struct_size");
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    enum yolk_status status = serve_file(engine, options, out);
    if (status == YOLK_OK)
        atomic_fetch_add(&engine->served_count, 1);
    return status;
}

enum yolk_status yolk_engine_file_open(struct yolk_engine *engine, const char *url, int writable,
                                       uint64_t *segment, uint64_t *size)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    static const char scheme[] = "file://";
    if (engine == NULL || url == NULL || segment == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "opening a file needs its path");
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    bool has_scheme = strncmp(url, scheme, sizeof(scheme) - 1) == 0;
    const char *path = has_scheme ? url + sizeof(scheme) - 1 : url;
    if (has_scheme && path[0] != '/')
        return base_fail(YOLK_ERR_INVALID, 0, "%s: after file:// comes a path that begins with /",
                         url);
    const struct random random = random_real();
    const struct yolk_serve_file_options options = {
        .struct_size = sizeof(options),
        .path = path,
        .writable = writable,
        .segment = random_u64(&random) | 1, /* nobody else is told */
    };
    struct yolk_served *served;
    enum yolk_status status = serve_file(engine, &options, &served);
    if (status != YOLK_OK)
        return status;
    const struct yolk_segment_descriptor descriptor = {
        .id = options.segment, .size = served->grant.size, .endpoints = served->endpoints};
    status = yolk_engine_segment_open(engine, &descriptor, 0, segment);
    if (status != YOLK_OK) {
        engine_served_destroy(served);
        return status;
    }
    if (size != NULL)
        *size = served->grant.size;
    engine_segment_own(engine, *segment, served, path);
    return YOLK_OK;
}
