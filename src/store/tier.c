/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "store/tier_state.h"

enum yolk_status store_tier_create(const struct store_tier_options *options,
                                   struct store_tier **out)
{
    struct store_tier *tier = base_calloc(1, sizeof(*tier));
    if (tier != NULL)
        tier->moves = base_calloc(options->depth, sizeof(struct tier_task *));
    if (tier == NULL || tier->moves == NULL) {
        free(tier);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a disk tier");
    }
    tier->options = *options;
    tier->pause_ns = options->retry_first_ns;
    for (int i = 0; i < 3; i++)
        base_list_init(&tier->queued[i]);
    for (int i = 0; i < TASK_STATES; i++)
        base_list_init(&tier->tasks[i]);
    base_buf_init(&tier->recs, (size_t)DONE_RECORDS_MAX * WIRE_TASK_DONE_SIZE);
    base_buf_init(&tier->body, MAX_FRAME_BODY);
    *out = tier;
    return YOLK_OK;
}

void store_tier_input(struct store_tier *tier, uint16_t message, const uint8_t *body,
                      size_t body_size)
{
    if (message == WIRE_TASKS)
        store_tier_input_tasks(tier, body, body_size);
    else if (message == WIRE_FACTS)
        store_tier_input_facts(tier, body, body_size);
}
/* ---- mounts ---- */

void store_tier_unmount(struct store_tier *tier)
{
    for (uint32_t i = 0; i < STORE_TIER_WINDOW; i++)
        if (tier->known[i] != NULL)
            store_tier_forget(tier, tier->known[i]);
    tier->memory = 0;
    tier->disk = 0;
    tier->offered = false;
    tier->floor = 0;
    tier->fact_seq = 0;
    tier->acked_seq = 0;
    tier->ack_again = false;
    tier->batch_count = 0;
    tier->freed_count = 0;
}

void store_tier_mounted(struct store_tier *tier, uint64_t memory, uint64_t disk)
{
    store_tier_unmount(tier);
    tier->memory = memory;
    tier->disk = disk;
}

void store_tier_offered(struct store_tier *tier)
{
    tier->offered = tier->memory != 0;
}

uint32_t store_tier_memory_writes(const struct store_tier *tier)
{
    return tier->memory_writes;
}

int store_tier_is_quiet(const struct store_tier *tier)
{
    return tier->moving == tier->stuck && !tier->journaling && !tier->syncing;
}

void store_tier_destroy(struct store_tier *tier)
{
    if (tier == NULL)
        return;
    store_tier_unmount(tier);
    for (uint32_t i = 0; i < tier->options.depth; i++)
        free(tier->moves[i]);
    free(tier->moves);
    free(tier->batches);
    free(tier->freed);
    base_buf_free(&tier->recs);
    base_buf_free(&tier->body);
    free(tier);
}

/* ---- failures of the disk ---- */

void store_tier_disk_failed(struct store_tier *tier, uint64_t now_ns, const char *what, int status)
{
    tier->stats.disk_errors++;
    snprintf(tier->why, sizeof(tier->why), "%s failed: %s", what, yolk_strerror(status));
    if (tier->retry_ns > now_ns)
        return;
    tier->retry_ns = now_ns + tier->pause_ns;
    tier->pause_ns *= 2;
    if (tier->pause_ns > tier->options.retry_max_ns)
        tier->pause_ns = tier->options.retry_max_ns;
}

void store_tier_disk_works(struct store_tier *tier)
{
    tier->retry_ns = 0;
    tier->pause_ns = tier->options.retry_first_ns;
    tier->write_failures = 0;
}

const char *store_tier_off(const struct store_tier *tier)
{
    if (tier->failing || tier->write_failures >= WRITE_FAILURES_MAX)
        return tier->why;
    return storage_unwritable(tier->options.storage);
}

void store_tier_next(struct store_tier *tier, uint64_t now_ns, struct store_tier_output *output)
{
    memset(output, 0, sizeof(*output));
    tier->now_ns = now_ns;
    if (store_tier_next_message(tier, output) || store_tier_next_move(tier, output) ||
        store_tier_next_durable(tier, now_ns, output))
        return;
    /* A move that could not be had may have been answered instead. */
    if (store_tier_next_message(tier, output))
        return;
    output->kind = STORE_TIER_WAIT;
    output->deadline_ns = UINT64_MAX;
    if (tier->failing && !tier->syncing && !tier->journaling)
        output->deadline_ns = tier->retry_ns;
    else if (!tier->failing && tier->dirty && !tier->syncing)
        output->deadline_ns = tier->sync_due_ns;
}

void store_tier_stats(const struct store_tier *tier, struct store_tier_stats *out)
{
    *out = tier->stats;
    out->queued = tier->queued_count;
    out->moving = tier->moving;
    out->committing = tier->committing_count;
    out->facts_waiting = (uint32_t)tier->batch_count;
}

int store_tier_disk_status(int status)
{
    return status == YOLK_ERR_NO_SPACE ? YOLK_ERR_IO : status;
}
