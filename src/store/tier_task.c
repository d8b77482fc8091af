/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks of the master, and the moves they need. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "store/tier_state.h"

/* ---- tasks ---- */

static struct tier_task **place_of(struct store_tier *tier, uint64_t id)
{
    return &tier->known[id % STORE_TIER_WINDOW];
}

void store_tier_enter(struct store_tier *tier, struct tier_task *task, enum tier_task_state state)
{
    tier->queued_count -= task->state == TASK_QUEUED;
    tier->committing_count -= task->state == TASK_COMMITTING;
    base_list_remove(&task->link);
    task->state = state;
    tier->queued_count += state == TASK_QUEUED;
    tier->committing_count += state == TASK_COMMITTING;
    base_list_push_back(
        state == TASK_QUEUED ? &tier->queued[task->asked.kind] : &tier->tasks[state], &task->link);
}

void store_tier_forget(struct store_tier *tier, struct tier_task *task)
{
    if (*place_of(tier, task->asked.id) == task)
        *place_of(tier, task->asked.id) = NULL;
    if (task->state == TASK_MOVING) {
        task->given_up = true;
        return;
    }
    /* STALE would mean that it ended already. */
    if (task->state == TASK_COMMITTING &&
        storage_abort(tier->options.storage, task->extent) != YOLK_OK)
        base_error_clear();
    tier->queued_count -= task->state == TASK_QUEUED;
    tier->committing_count -= task->state == TASK_COMMITTING;
    base_list_remove(&task->link);
    free(task);
}

void store_tier_finish(struct store_tier *tier, struct tier_task *task, int status)
{
    bool offload = task->asked.kind == WIRE_TASK_OFFLOAD;
    task->status = status;
    if (status == YOLK_OK && offload) {
        tier->stats.offloads++;
        tier->stats.offload_bytes += task->asked.size;
    } else if (status == YOLK_OK) {
        tier->stats.promotes++;
        tier->stats.promote_bytes += task->asked.size;
    } else if (offload && status == YOLK_ERR_NO_SPACE) {
        tier->stats.offloads_no_space++;
    } else if (offload) {
        tier->stats.offloads_failed++;
    } else {
        tier->stats.promotes_failed++;
    }
    store_tier_enter(tier, task, TASK_FINISHED);
}

static void raise_floor(struct store_tier *tier, uint64_t floor)
{
    if (floor <= tier->floor)
        return;
    for (uint32_t i = 0; i < STORE_TIER_WINDOW; i++)
        if (tier->known[i] != NULL && tier->known[i]->asked.id < floor)
            store_tier_forget(tier, tier->known[i]);
    tier->floor = floor;
}

static int fits_memory(const struct store_tier *tier, const struct wire_task *asked)
{
    return asked->size > 0 && asked->offset <= tier->options.memory_size &&
           asked->size <= tier->options.memory_size - asked->offset;
}

static void take_task(struct store_tier *tier, const struct wire_task *asked, struct wire_view key)
{
    struct tier_task **place = place_of(tier, asked->id);
    struct tier_task *task = *place;
    bool sound = (asked->kind == WIRE_TASK_OFFLOAD || asked->kind == WIRE_TASK_PROMOTE) &&
                 key.size > 0 && fits_memory(tier, asked);
    if (task != NULL && task->asked.id == asked->id) {
        if (task->state == TASK_ANSWERED)
            store_tier_enter(tier, task, TASK_FINISHED);
        return;
    }
    if (task != NULL || asked->id < tier->floor || asked->id - tier->floor >= STORE_TIER_WINDOW) {
        tier->stats.tasks_refused++;
        return;
    }
    task = base_calloc(1, sizeof(*task) + key.size);
    if (task == NULL)
        return; /* asked again */
    base_list_init(&task->link);
    task->asked = *asked;
    task->key_size = (uint32_t)key.size;
    if (key.size > 0)
        memcpy(task->key, key.data, key.size);
    task->key_hash = base_hash64(key.data, key.size);
    *place = task;
    tier->queued_count++; /* as store_tier_enter() expects of a new one */
    if (sound)
        store_tier_enter(tier, task, TASK_QUEUED);
    else
        store_tier_finish(tier, task, YOLK_ERR_INVALID); /* or it would be asked for ever */
}

void store_tier_input_tasks(struct store_tier *tier, const uint8_t *body, size_t size)
{
    struct wire_tasks tasks;
    struct wire_keys keys;
    struct wire_view key;
    if (wire_decode(WIRE_TASKS, body, size, &tasks) != YOLK_OK ||
        wire_keys_open(tasks.keys, WIRE_KEYS_MAX, &keys) != YOLK_OK)
        return;
    uint32_t count = wire_task_count(tasks.recs);
    if (!tier->offered || tasks.segment != tier->memory || tasks.disk != tier->disk) {
        tier->stats.tasks_refused += count;
        return;
    }
    raise_floor(tier, tasks.floor);
    for (uint32_t i = 0; i < count && wire_keys_next(&keys, &key); i++) {
        struct wire_task asked = wire_task_at(tasks.recs, i);
        take_task(tier, &asked, key);
    }
}

static bool writes_pause(const struct store_tier *tier)
{
    return tier->write_failures >= WRITE_FAILURES_MAX && tier->now_ns < tier->retry_ns;
}

/* ---- moves ---- */

static uint32_t free_move(const struct store_tier *tier)
{
    uint32_t move = 0;
    while (tier->moves[move] != NULL)
        move++;
    return move;
}

static void give_move(struct store_tier *tier, struct tier_task *task,
                      struct store_tier_output *output)
{
    bool offload = task->asked.kind == WIRE_TASK_OFFLOAD;
    uint32_t move = free_move(tier);
    tier->moves[move] = task;
    tier->moving++;
    tier->memory_writes += !offload;
    tier->moving_bytes += task->asked.size;
    store_tier_enter(tier, task, TASK_MOVING);
    output->kind = offload ? STORE_TIER_WRITE : STORE_TIER_READ;
    output->move = move;
    output->memory_offset = task->asked.offset;
    output->disk_offset = task->disk_offset;
    output->size = task->asked.size;
    output->key_hash = task->key_hash;
}

/* Their space becomes free by what is being done anyway. */
static bool deletes_under_way(const struct store_tier *tier)
{
    return storage_deleted(tier->options.storage) < tier->delete_seq &&
           (tier->unplanned || tier->journaling || tier->syncing || tier->dirty);
}

/* Gets the task its extent. YOLK_ERR_AGAIN: wait, deletes are on their way. */
static int reserve(struct store_tier *tier, struct tier_task *task)
{
    struct storage *storage = tier->options.storage;
    struct storage_extent extent;
    if (tier->failing || writes_pause(tier))
        return YOLK_ERR_IO;
    if (tier->write_failures >= WRITE_FAILURES_MAX && tier->moving > tier->memory_writes)
        return YOLK_ERR_AGAIN; /* one at a time, to see whether the disk works again */
    if (task->wait_syncs > tier->syncs && deletes_under_way(tier))
        return YOLK_ERR_AGAIN;
    int status =
        storage_reserve(storage, task->key, task->key_size, task->asked.size, &task->extent);
    if (status == YOLK_ERR_NO_SPACE && task->waits < WAITS_MAX && deletes_under_way(tier)) {
        task->waits++;
        task->wait_syncs = tier->syncs + 1;
        tier->sync_wanted = true;
        return YOLK_ERR_AGAIN;
    }
    if (status == YOLK_OK)
        status = storage_locate(storage, task->extent, &extent);
    if (status == YOLK_OK) {
        task->disk_offset = extent.offset;
        task->disk_size = extent.allocated;
    }
    return status;
}

static struct tier_task *first_queued(struct store_tier *tier, uint8_t kind)
{
    struct base_list *node = base_list_first(&tier->queued[kind]);
    return node == NULL ? NULL : BASE_CONTAINER(node, struct tier_task, link);
}

static bool has_room(const struct store_tier *tier, const struct tier_task *task)
{
    return tier->moving < tier->options.depth &&
           (tier->moving == 0 ||
            task->asked.size + tier->moving_bytes <= tier->options.depth_bytes);
}

int store_tier_next_move(struct store_tier *tier, struct store_tier_output *output)
{
    struct tier_task *task = first_queued(tier, WIRE_TASK_PROMOTE);
    if (task != NULL && has_room(tier, task)) {
        task->disk_offset = task->asked.disk_offset;
        give_move(tier, task, output);
        return 1;
    }
    while ((task = first_queued(tier, WIRE_TASK_OFFLOAD)) != NULL && has_room(tier, task)) {
        int status = reserve(tier, task);
        if (status == YOLK_ERR_AGAIN)
            return 0;
        if (status == YOLK_OK) {
            give_move(tier, task, output);
            return 1;
        }
        store_tier_finish(tier, task, status);
    }
    return 0;
}

static void written(struct store_tier *tier, uint64_t now_ns, struct tier_task *task, int status,
                    uint32_t checksum)
{
    struct storage *storage = tier->options.storage;
    if (status == YOLK_OK) {
        store_tier_disk_works(tier);
    } else if (status != YOLK_ERR_CANCELED) {
        tier->write_failures++;
        store_tier_disk_failed(tier, now_ns, "writing a value", status);
    }
    if (status == YOLK_OK && !task->given_up)
        status = storage_written(storage, task->extent, checksum);
    if (status == YOLK_OK && !task->given_up) {
        task->checksum = checksum;
        store_tier_enter(tier, task, TASK_COMMITTING);
        return;
    }
    if (storage_abort(storage, task->extent) != YOLK_OK)
        base_error_clear();
    if (!task->given_up)
        store_tier_finish(tier, task, store_tier_disk_status(status));
}

void store_tier_stuck(struct store_tier *tier, uint32_t move)
{
    tier->stuck += move < tier->options.depth && tier->moves[move] != NULL;
}

void store_tier_moved(struct store_tier *tier, uint64_t now_ns, uint32_t move,
                      enum yolk_status status, uint32_t checksum)
{
    struct tier_task *task = move < tier->options.depth ? tier->moves[move] : NULL;
    if (task == NULL)
        return;
    tier->now_ns = now_ns;
    tier->moves[move] = NULL;
    tier->moving--;
    tier->moving_bytes -= task->asked.size;
    if (task->asked.kind == WIRE_TASK_OFFLOAD) {
        written(tier, now_ns, task, status, checksum);
    } else {
        tier->memory_writes--;
        if (status == YOLK_OK && checksum != task->asked.checksum)
            status = YOLK_ERR_CORRUPT;
        tier->stats.corrupt += status == YOLK_ERR_CORRUPT;
        if (!task->given_up)
            store_tier_finish(tier, task, status);
    }
    if (task->given_up) {
        base_list_remove(&task->link);
        free(task);
    }
}
