/* SPDX-License-Identifier: Apache-2.0 */
/* libmooncake_store.so: Mooncake's C interface, each function one call of the library. */
#define LOG_ROOM "compat"
#include "mooncake/store_c.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "compat/codes.h"
#include "compat/pattern.h"
#include "compat/setup.h"

/* What callers get for a null pointer, as in Mooncake. */
enum { NULL_POINTER = COMPAT_INTERNAL_ERROR };
enum { NOT_SET_UP = 1, NO_MASTER = 2 };

struct handle {
    struct yolk_store *store; /* NULL: not set up */
    int zero_copy_only;
    struct compat_names names;
};

/* A batch for the library; one key needs no heap. */
struct batch {
    struct yolk_kv *kvs;
    struct yolk_slice *slices;
    struct yolk_kv one_kv;
    struct yolk_slice one_slice;
};

enum verb { VERB_PUT, VERB_GET, VERB_EXIST };

mooncake_store_t mooncake_store_create(void)
{
    struct handle *handle = base_calloc(1, sizeof(*handle));
    if (handle != NULL)
        handle->names.keeper = -1;
    return handle;
}

void mooncake_store_destroy(mooncake_store_t store)
{
    struct handle *handle = store;
    if (handle == NULL)
        return;
    enum yolk_status status = handle->store == NULL ? YOLK_OK : yolk_store_close(handle->store);
    /* A fork's child has nothing to close. Memory that is not quiet stays: a peer may write to it.
     */
    if (status != YOLK_OK && status != YOLK_ERR_FORKED)
        log_error("mooncake_store_destroy: %s", yolk_last_error());
    compat_names_free(&handle->names);
    free(handle);
}

static int set_up(struct handle *handle, const struct compat_setup *setup)
{
    struct yolk_store_options options;
    int status = handle->store == NULL
                     ? compat_setup_options(setup, &handle->names, &options)
                     : base_fail(YOLK_ERR_INVALID, 0, "the store is set up already");
    if (status == YOLK_OK)
        status = yolk_store_open(&options, &handle->store);
    if (status != YOLK_OK)
        log_error("mooncake_store_setup: %s", yolk_last_error());
    /* OBJECT_NOT_FOUND is said of keys: a host that nobody knows is a master that is not reached.
     */
    return (int)compat_code_of(status == YOLK_ERR_NOT_FOUND ? YOLK_ERR_LINK : status);
}

int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
                         const char *metadata_server, uint64_t global_segment_size,
                         uint64_t local_buffer_size, const char *protocol, const char *device_name,
                         const char *master_server_addr)
{
    struct handle *handle = store;
    const struct compat_setup setup = {local_hostname, protocol, master_server_addr,
                                       global_segment_size};
    (void)metadata_server;
    (void)device_name;
    if (handle == NULL)
        return NULL_POINTER;
    int code = set_up(handle, &setup);
    if (code == 0)
        handle->zero_copy_only = local_buffer_size == 0;
    return code;
}

int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
                            uint64_t mount_segment_size)
{
    const struct compat_setup setup = {"localhost", protocol, NULL, mount_segment_size};
    (void)device_name;
    return store == NULL ? (int)NULL_POINTER : set_up(store, &setup);
}

int mooncake_store_health_check(mooncake_store_t store)
{
    const struct handle *handle = store;
    if (handle == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return NOT_SET_UP;
    return yolk_store_is_connected(handle->store) ? 0 : NO_MASTER;
}

/* ---- batches ---- */

/* buffers and sizes may be NULL: keys alone. */
static int batch_make(struct batch *batch, const char *const *keys, void *const *buffers,
                      const size_t *sizes, size_t count)
{
    batch->kvs = &batch->one_kv;
    batch->slices = &batch->one_slice;
    if (count > 1) {
        batch->kvs = base_calloc(count, sizeof(*batch->kvs));
        batch->slices = base_calloc(count, sizeof(*batch->slices));
    }
    if (batch->kvs == NULL || batch->slices == NULL)
        return YOLK_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        batch->kvs[i] = (struct yolk_kv){.key = keys[i], .key_size = strlen(keys[i])};
        if (buffers == NULL)
            continue;
        batch->slices[i] = (struct yolk_slice){buffers[i], sizes[i]};
        batch->kvs[i].slices = &batch->slices[i];
        batch->kvs[i].slice_count = 1;
    }
    return YOLK_OK;
}

static void batch_free(struct batch *batch)
{
    if (batch->kvs != &batch->one_kv)
        free(batch->kvs);
    if (batch->slices != &batch->one_slice)
        free(batch->slices);
}

/* What stands in each kvs[i].result afterwards are Mooncake's numbers. */
static void perform(struct yolk_store *store, enum verb verb, struct batch *batch, size_t count,
                    const struct yolk_put_options *options)
{
    enum yolk_status status;
    if (verb == VERB_PUT)
        status = yolk_store_put_with(store, batch->kvs, count, options);
    else if (verb == VERB_GET)
        status = yolk_store_get(store, batch->kvs, count);
    else
        status = yolk_store_exist(store, batch->kvs, count);
    (void)status; /* the first failing result's */
    for (size_t i = 0; i < count; i++) {
        int64_t result = batch->kvs[i].result;
        batch->kvs[i].result = verb == VERB_PUT && result > 0 ? 0 : compat_code_of(result);
    }
}

static int read_config(const mooncake_replicate_config_t *config, struct yolk_put_options *options)
{
    yolk_put_options_init(options);
    if (config == NULL)
        return YOLK_OK;
    if (config->replica_num == 0 || config->replica_num > UINT32_MAX)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "replica_num is %zu: must be at least 1, and as "
                         "many as the store can make",
                         config->replica_num);
    options->replica_num = (uint32_t)config->replica_num;
    options->hard_pin = config->with_hard_pin != 0;
    if (config->with_soft_pin) {
        options->soft_pin = YOLK_SOFT_PIN_SET;
        options->soft_pin_ttl_ms = YOLK_SOFT_PIN_TTL_DEFAULT;
    }
    if (config->preferred_segments != NULL) {
        options->preferred_segments = config->preferred_segments;
        options->preferred_segment_count = config->preferred_segments_count;
    }
    return YOLK_OK;
}

static int lacks_memory(void *const *buffers, const size_t *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (buffers[i] == NULL && sizes[i] > 0)
            return 1;
    return 0;
}

static int lacks_key(const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (keys[i] == NULL)
            return 1;
    return 0;
}

/* Writes a number a key to whichever of the two is not NULL. Every key gets the same if the call
 * cannot be made. */
static void run(struct handle *handle, enum verb verb, const char *const *keys,
                void *const *buffers, const size_t *sizes, size_t count,
                const mooncake_replicate_config_t *config, int *numbers, int64_t *sizes_out)
{
    struct batch batch = {0};
    struct yolk_put_options options;
    int status = handle->store == NULL ? (int)YOLK_ERR_CLOSED : read_config(config, &options);
    if (status == YOLK_OK)
        status = batch_make(&batch, keys, buffers, sizes, count);
    if (status == YOLK_OK)
        perform(handle->store, verb, &batch, count, &options);
    for (size_t i = 0; i < count; i++) {
        int64_t number = status == YOLK_OK ? batch.kvs[i].result : compat_code_of(status);
        if (numbers != NULL)
            numbers[i] = (int)number;
        else
            sizes_out[i] = number;
    }
    batch_free(&batch);
}

/* ---- put ---- */

int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
                            const mooncake_replicate_config_t *config)
{
    int result;
    if (store == NULL || key == NULL || (buffer == NULL && size > 0))
        return NULL_POINTER;
    run(store, VERB_PUT, &key, &buffer, &size, 1, config, &result, NULL);
    return result;
}

int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
                       const mooncake_replicate_config_t *config)
{
    const struct handle *handle = store;
    if (handle != NULL && handle->store != NULL && handle->zero_copy_only)
        return (int)compat_code_of(
            base_fail(YOLK_ERR_INVALID, 0,
                      "the store was set up with local_buffer_size 0: put from buffers"));
    /* A put only reads. */
    return mooncake_store_put_from(store, key, (void *)(uintptr_t)value, size, config);
}

int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count,
                                  const mooncake_replicate_config_t *config, int *results_out)
{
    if (store == NULL || keys == NULL || buffers == NULL || sizes == NULL || results_out == NULL ||
        lacks_key(keys, count) || lacks_memory(buffers, sizes, count))
        return NULL_POINTER;
    run(store, VERB_PUT, keys, buffers, sizes, count, config, results_out, NULL);
    return 0;
}

/* ---- get ---- */

int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size)
{
    int64_t result;
    if (store == NULL || key == NULL || (buffer == NULL && size > 0))
        return NULL_POINTER;
    run(store, VERB_GET, &key, &buffer, &size, 1, NULL, NULL, &result);
    return result;
}

int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count, int64_t *results_out)
{
    if (store == NULL || keys == NULL || buffers == NULL || sizes == NULL || results_out == NULL ||
        lacks_key(keys, count) || lacks_memory(buffers, sizes, count))
        return NULL_POINTER;
    run(store, VERB_GET, keys, buffers, sizes, count, NULL, NULL, results_out);
    return 0;
}

/* ---- asking ---- */

int mooncake_store_is_exist(mooncake_store_t store, const char *key)
{
    int result;
    if (store == NULL || key == NULL)
        return NULL_POINTER;
    run(store, VERB_EXIST, &key, NULL, NULL, 1, NULL, &result, NULL);
    return result;
}

int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count,
                                  int *results_out)
{
    if (store == NULL || keys == NULL || results_out == NULL || lacks_key(keys, count))
        return NULL_POINTER;
    run(store, VERB_EXIST, keys, NULL, NULL, count, NULL, results_out, NULL);
    return 0;
}

int64_t mooncake_store_get_size(mooncake_store_t store, const char *key)
{
    const struct handle *handle = store;
    uint64_t size = 0;
    if (handle == NULL || key == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return compat_code_of(YOLK_ERR_CLOSED);
    enum yolk_status status = yolk_store_size(handle->store, key, strlen(key), &size);
    return status == YOLK_OK ? (int64_t)size : compat_code_of(status);
}

int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out, size_t buf_len)
{
    const struct handle *handle = store;
    if (handle == NULL || buf_out == NULL)
        return NULL_POINTER;
    const char *name = handle->store == NULL ? "" : handle->names.name;
    if (strlen(name) >= buf_len)
        return NULL_POINTER;
    memcpy(buf_out, name, strlen(name) + 1);
    return 0;
}

/* ---- removing ---- */

int mooncake_store_remove(mooncake_store_t store, const char *key, int force)
{
    struct handle *handle = store;
    if (handle == NULL || key == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return (int)compat_code_of(YOLK_ERR_CLOSED);
    struct yolk_kv kv = {.key = key, .key_size = strlen(key)};
    return (int)compat_code_of(yolk_store_remove(handle->store, &kv, 1, force != 0));
}

int64_t mooncake_store_remove_all(mooncake_store_t store, int force)
{
    struct handle *handle = store;
    uint64_t removed = 0;
    if (handle == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return compat_code_of(YOLK_ERR_CLOSED);
    enum yolk_status status = yolk_store_remove_all(handle->store, force != 0, &removed);
    return status == YOLK_OK ? (int64_t)removed : compat_code_of(status);
}

int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force)
{
    struct handle *handle = store;
    uint64_t removed = 0;
    if (handle == NULL || pattern == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return compat_code_of(YOLK_ERR_CLOSED);
    int status = compat_remove_matching(handle->store, pattern, force != 0, &removed);
    if (status != YOLK_OK)
        log_error("mooncake_store_remove_by_regex: %s", yolk_last_error());
    return status == YOLK_OK ? (int64_t)removed : compat_code_of(status);
}

/* ---- memory ---- */

int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size)
{
    struct handle *handle = store;
    if (handle == NULL || buffer == NULL || size == 0)
        return NULL_POINTER;
    if (handle->store == NULL)
        return (int)compat_code_of(YOLK_ERR_CLOSED);
    return (int)compat_code_of(yolk_store_register_buffer(handle->store, buffer, size));
}

int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer)
{
    struct handle *handle = store;
    if (handle == NULL)
        return NULL_POINTER;
    if (handle->store == NULL)
        return (int)compat_code_of(YOLK_ERR_CLOSED);
    return (int)compat_code_of(yolk_store_unregister_buffer(handle->store, buffer));
}
