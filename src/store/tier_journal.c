/* SPDX-License-Identifier: Apache-2.0 */
/* What makes commits and deletes last. */
#include "base/error.h"
#include "store/tier_state.h"

/* ---- the journal ---- */

static struct tier_task *committing(struct store_tier *tier, uint64_t extent)
{
    BASE_LIST_FOREACH(node, &tier->tasks[TASK_COMMITTING])
    {
        struct tier_task *task = BASE_CONTAINER(node, struct tier_task, link);
        if (task->extent == extent)
            return task;
    }
    return NULL;
}

void store_tier_journaled(struct store_tier *tier, uint64_t now_ns, enum yolk_status status)
{
    struct storage *storage = tier->options.storage;
    struct storage_extent extent;
    uint64_t id;
    tier->now_ns = now_ns;
    tier->journaling = false;
    storage_journal_done(storage, status);
    while (storage_next_committed(storage, &id, &extent)) {
        struct tier_task *task = committing(tier, id);
        if (task != NULL)
            store_tier_finish(tier, task, YOLK_OK);
    }
    if (status == YOLK_OK) {
        if (!tier->dirty)
            tier->sync_due_ns = now_ns + tier->options.sync_ns;
        tier->dirty = true;
        return;
    }
    tier->failing = true;
    store_tier_disk_failed(tier, now_ns, "writing the journal", status);
    /* The records will be written when the disk works again; nobody waits for that. */
    struct base_list *node;
    while ((node = base_list_first(&tier->tasks[TASK_COMMITTING])) != NULL) {
        struct tier_task *task = BASE_CONTAINER(node, struct tier_task, link);
        if (storage_abort(storage, task->extent) != YOLK_OK)
            base_error_clear();
        store_tier_finish(tier, task, store_tier_disk_status(status));
    }
}

/* The storage alone knows whether all that failed has been made good. */
static void works_again(struct store_tier *tier)
{
    tier->failing = storage_unwritable(tier->options.storage) != NULL;
    if (!tier->failing && tier->write_failures == 0)
        store_tier_disk_works(tier);
}

void store_tier_synced(struct store_tier *tier, uint64_t now_ns, enum yolk_status status)
{
    tier->now_ns = now_ns;
    tier->syncing = false;
    tier->syncs++;
    storage_sync_done(tier->options.storage, status);
    if (status == YOLK_OK) {
        works_again(tier);
        return;
    }
    tier->failing = true;
    tier->dirty = true;
    tier->sync_due_ns = now_ns;
    store_tier_disk_failed(tier, now_ns, "making the journal durable", status);
}

int store_tier_next_durable(struct store_tier *tier, uint64_t now_ns,
                            struct store_tier_output *output)
{
    struct storage *storage = tier->options.storage;
    bool sync =
        tier->failing || (tier->dirty && (tier->sync_wanted || now_ns >= tier->sync_due_ns));
    if (tier->failing && now_ns < tier->retry_ns)
        return 0;
    if (!tier->journaling) {
        struct storage_io io;
        enum storage_step step = storage_journal_plan(storage, &io);
        if (step == STORAGE_WRITE) {
            tier->journaling = true;
            tier->unplanned = false;
            output->kind = STORE_TIER_JOURNAL;
            output->data = io.data;
            output->data_size = io.size;
            output->file_offset = io.offset;
            return 1;
        }
        sync |= step == STORAGE_SYNC_FIRST;
    }
    if (!sync || tier->syncing)
        return 0;
    if (!storage_sync_plan(storage)) {
        tier->dirty &= tier->journaling; /* else all is on stable media */
        if (!tier->journaling)
            works_again(tier);
        if (tier->failing && !tier->journaling)
            tier->retry_ns = now_ns + tier->pause_ns;
        return 0;
    }
    tier->dirty = false;
    tier->sync_wanted = false;
    tier->syncing = true;
    output->kind = STORE_TIER_SYNC;
    return 1;
}
