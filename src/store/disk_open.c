/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that fails, or has no room, when the node starts: memory serves without it, and it is
 * tried again from time to time. */
#define LOG_ROOM "store"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "store/internal.h"

#define RETRY_FIRST_NS (1 * NS_PER_S)
#define RETRY_MAX_NS   (30 * NS_PER_S)

static void wake_control(void *self)
{
    struct yolk_store *store = self;
    store_client_wake(store->client);
}

static int try_open(struct yolk_store *store, struct store_disk **out)
{
    const struct file_system fs = file_system_default();
    struct store_disk_options options = {
        .fs = &fs,
        .medium = WIRE_MEDIUM_LOCAL_DISK,
        .path = store->ssd_path,
        .size_bytes = store->options.ssd_size_bytes,
        .sync_ms = store->options.ssd_sync_ms,
        .engine = store->engine,
        .memory = store->memory.pointer,
        .memory_size = store->memory.size,
        .wake = wake_control,
        .wake_self = store,
    };
    return store_disk_open(&options, out);
}

int store_open_disk(struct yolk_store *store)
{
    int status = try_open(store, &store->disk);
    if (status != YOLK_ERR_IO && status != YOLK_ERR_NO_SPACE)
        return status;
    /* Nothing is wrong with what was asked for, only with the disk. */
    log_error("this node has no disk for now, which is tried again: %s", yolk_last_error());
    base_error_clear();
    return YOLK_OK;
}

static void opener_main(void *arg)
{
    struct yolk_store *store = arg;
    struct store_control *control = &store->control;
    uint64_t pause_ns = RETRY_FIRST_NS;
    mutex_lock(&control->lock);
    while (!control->opener_stop && store->disk == NULL) {
        uint64_t until_ns = clock_real_now_ns() + pause_ns;
        while (!control->opener_stop &&
               condition_wait_until(&control->changed, &control->lock, until_ns))
            ;
        if (control->opener_stop)
            break;
        pause_ns = pause_ns * 2 < RETRY_MAX_NS ? pause_ns * 2 : RETRY_MAX_NS;
        struct store_disk *disk = NULL;
        mutex_unlock(&control->lock);
        int status = try_open(store, &disk);
        mutex_lock(&control->lock);
        if (status != YOLK_OK)
            continue;
        log_warn("this node has its disk now");
        store->disk = disk;
        store_session_add_disk(control->session, store_disk_mount(disk));
        store_client_wake(store->client);
    }
    mutex_unlock(&control->lock);
}

int store_open_disk_later(struct yolk_store *store)
{
    if (store->options.ssd_size_bytes == 0 || store->disk != NULL)
        return YOLK_OK;
    return thread_start(&store->disk_opener, "yolk-disk-open", opener_main, store);
}

void store_open_disk_stop(struct yolk_store *store)
{
    struct store_control *control = &store->control;
    if (!store->disk_opener.running)
        return;
    mutex_lock(&control->lock);
    control->opener_stop = 1;
    condition_broadcast(&control->changed);
    mutex_unlock(&control->lock);
    thread_join(&store->disk_opener);
}
