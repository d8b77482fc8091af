/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the memory and the disk of one owner: which, and how many at a time. */
#include "master/tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

void master_tier_init(struct master_tier *tier)
{
    *tier = (struct master_tier){.next_id = 1};
    struct base_list *lists[] = {&tier->offloads.open, &tier->promotes.open, &tier->ended,
                                 &tier->clean, &tier->dirty};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        base_list_init(lists[i]);
}

static struct master_task *task_of(struct base_list *node)
{
    return BASE_CONTAINER(node, struct master_task, link);
}

/* ---- mates ---- */

static bool are_mates(const struct master_segment *a, const struct master_segment *b)
{
    return a->medium + b->medium == WIRE_MEDIUM_MEMORY + WIRE_MEDIUM_LOCAL_DISK;
}

void master_tier_pair(struct master_core *core, struct master_segment *segment)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *other = BASE_CONTAINER(node, struct master_segment, link);
        if (other->owner != segment->owner || other->tier.mate != NULL ||
            !are_mates(other, segment))
            continue;
        segment->tier.mate = other;
        other->tier.mate = segment;
        return;
    }
}

static struct master_tasks *tasks_of(struct master_segment *memory, uint8_t kind)
{
    return kind == WIRE_TASK_OFFLOAD ? &memory->tier.offloads : &memory->tier.promotes;
}

void master_task_close(struct master_segment *memory, struct master_task *task)
{
    struct master_tasks *tasks = tasks_of(memory, task->kind);
    tasks->count--;
    tasks->bytes -= task->size;
    base_list_remove(&task->link);
}

void master_task_unhold_disk(struct master_core *core, struct master_task *task)
{
    if (task->disk == NULL)
        return;
    task->disk->task_refs--;
    master_extent_unref(core, task->disk);
    task->disk = NULL;
}

void master_task_unhold(struct master_core *core, struct master_task *task)
{
    master_task_unhold_disk(core, task);
    task->memory->task_refs--;
    if (task->kind == WIRE_TASK_PROMOTE)
        master_extent_set_state(task->memory, EXTENT_DEAD);
    master_extent_unref(core, task->memory);
}

/* The owner touches the memory no more. */
static void end_all(struct master_core *core, struct master_segment *memory)
{
    struct master_tier *tier = &memory->tier;
    struct base_list *lists[] = {&tier->offloads.open, &tier->promotes.open, &tier->ended};
    for (int i = 0; i < 3; i++) {
        struct base_list *node;
        while ((node = base_list_first(lists[i])) != NULL) {
            struct master_task *task = task_of(node);
            if (i < 2)
                master_task_close(memory, task);
            else
                base_list_remove(node);
            master_task_unhold(core, task);
            free(task);
        }
    }
}

static void set_aside(struct master_core *core, struct master_segment *memory)
{
    struct master_tier *tier = &memory->tier;
    struct base_list *lists[] = {&tier->offloads.open, &tier->promotes.open};
    for (int i = 0; i < 2; i++) {
        struct base_list *node;
        while ((node = base_list_first(lists[i])) != NULL) {
            struct master_task *task = task_of(node);
            master_task_close(memory, task);
            base_list_push_back(&tier->ended, node);
            master_task_unhold_disk(core, task);
        }
    }
}

void master_tier_part(struct master_core *core, struct master_segment *segment)
{
    struct master_segment *mate = segment->tier.mate;
    bool is_disk = master_segment_is_disk(segment);
    struct master_segment *memory = is_disk ? mate : segment;
    if (memory == NULL)
        return;
    if (is_disk)
        set_aside(core, memory);
    else
        end_all(core, memory);
    memory->tier.stuck_since = 0;
    memory->tier.pause_until = 0;
    memory->tier.failures = 0;
    memory->tier.no_space = false;
    memory->tier.held_max = 0;
    memory->tier.leaves_at = 0;
    segment->tier.mate = NULL;
    if (mate != NULL)
        mate->tier.mate = NULL;
}

/* ---- beginning ---- */

static bool is_ready(const struct master_segment *memory)
{
    const struct master_segment *disk = memory->tier.mate;
    return disk != NULL && disk->state == SEGMENT_OPEN && memory->state == SEGMENT_OPEN &&
           memory->owner->connected;
}

static uint64_t lowest_open(const struct master_tier *tier)
{
    uint64_t low = tier->next_id;
    struct base_list *first[] = {base_list_first(&tier->offloads.open),
                                 base_list_first(&tier->promotes.open)};
    for (int i = 0; i < 2; i++)
        if (first[i] != NULL && task_of(first[i])->id < low)
            low = task_of(first[i])->id;
    return low;
}

static bool has_credit(struct master_segment *memory, uint8_t kind, uint64_t size)
{
    const struct master_tasks *tasks = tasks_of(memory, kind);
    uint64_t bytes = memory->size / (kind == WIRE_TASK_OFFLOAD ? 8 : 16);
    if (memory->tier.next_id - lowest_open(&memory->tier) >= MASTER_TASK_WINDOW)
        return false;
    if (tasks->count == 0)
        return true;
    return tasks->count < (kind == WIRE_TASK_OFFLOAD ? MASTER_OFFLOADS : MASTER_PROMOTES) &&
           tasks->bytes + size <= (bytes < MASTER_TASK_BYTES ? bytes : MASTER_TASK_BYTES);
}

static void hold(struct master_extent *extent)
{
    extent->task_refs++;
    master_extent_ref(extent);
}

/* Takes a reference to each extent; false without memory. */
static bool begin(struct master_core *core, uint8_t kind, const struct master_object *object,
                  struct master_extent *memory, struct master_extent *disk)
{
    struct master_segment *segment = memory->segment;
    struct master_task *task = base_calloc(1, sizeof *task + object->entry.key_size);
    if (task == NULL)
        return false;
    task->id = segment->tier.next_id++;
    task->begun_at = core->now;
    task->size = object->size;
    task->hash = object->entry.hash;
    task->memory = memory;
    task->disk = disk;
    task->kind = kind;
    task->key_size = object->entry.key_size;
    memcpy(task->key, object->key, task->key_size);
    hold(memory);
    if (disk != NULL)
        hold(disk);
    struct master_tasks *tasks = tasks_of(segment, kind);
    base_list_push_back(&tasks->open, &task->link);
    tasks->count++;
    tasks->bytes += task->size;
    master_facts_dirty(segment);
    return true;
}

static bool is_short(const struct master_core *core, const struct master_segment *disk)
{
    return (double)disk->live_bytes >
           (double)disk->size *
               (core->config.eviction_high_watermark_ratio - core->config.eviction_ratio);
}

static bool may_offload(const struct master_core *core, const struct master_segment *memory)
{
    return is_ready(memory) && core->now >= memory->tier.pause_until;
}

/* NULL: it is to be copied. Else the counter of those that are not. */
static uint64_t *refusal(struct master_core *core, const struct master_extent *extent)
{
    const struct master_object *object = extent->object;
    struct master_segment *disk = extent->segment->tier.mate;
    bool (*admits)(void *, const struct master_object *) = core->config.policy->admits;
    if (object->memory_only || object->size > disk->size)
        return &core->stats.offload_skipped;
    if (admits != NULL && is_short(core, disk) && !admits(disk->order, object))
        return &core->stats.offload_refused;
    return NULL;
}

bool master_tier_refuses(struct master_core *core, const struct master_extent *extent)
{
    return refusal(core, extent) != NULL;
}

static bool begin_offload(struct master_core *core, struct master_extent *extent)
{
    struct master_segment *memory = extent->segment;
    struct master_tier *tier = &memory->tier;
    bool fresh = tier->offloads.count == 0 && tier->failures == 0 && !tier->no_space;
    if (tier->stuck_since == 0 || fresh)
        tier->stuck_since = core->now;
    if (!may_offload(core, memory) ||
        !has_credit(memory, WIRE_TASK_OFFLOAD, extent->object->size) ||
        !begin(core, WIRE_TASK_OFFLOAD, extent->object, extent, NULL))
        return false;
    core->stats.offloads++;
    return true;
}

enum master_offload master_tier_offload(struct master_core *core, struct master_extent *extent)
{
    uint64_t *refused = refusal(core, extent);
    if (refused != NULL) {
        ++*refused;
        return OFFLOAD_DROP;
    }
    if (begin_offload(core, extent))
        return OFFLOAD_BEGUN;
    uint64_t stuck = core->now - extent->segment->tier.stuck_since;
    if (stuck >= master_ms(core->config.offload_wait_ms)) {
        core->stats.offload_skipped++;
        return OFFLOAD_DROP;
    }
    master_extent_named(extent, IN_DIRTY, true);
    return OFFLOAD_WAIT;
}

/* Another copy made ahead would cost an earlier one its place, and so on for ever: because there
 * are so many of them, or because what is on the disk alone is worth more. */
static bool is_filled(struct master_core *core, const struct master_tier *tier)
{
    struct master_segment *disk = tier->mate;
    uint64_t size = disk->size;
    if (tier->held_max != 0 && tier->held_max < size)
        size = tier->held_max;
    double high = core->config.eviction_high_watermark_ratio;
    uint64_t more =
        tier->offloads.bytes + (uint64_t)tier->offloads.count * MASTER_DISK_UNIT + MASTER_DISK_UNIT;
    if ((double)(tier->clean_room + more) > (double)size * (high - core->config.eviction_ratio))
        return true;
    if ((double)(disk->live_bytes + more) <= (double)size * high)
        return false;
    const struct master_extent *first = master_evict_next(core, disk);
    return first != NULL && master_extent_spare(first);
}

static bool wants_more(struct master_core *core, const struct master_segment *memory)
{
    const struct master_tier *tier = &memory->tier;
    uint64_t used = memory->live_bytes + memory->open_bytes;
    uint64_t low = (uint64_t)((double)memory->size * core->config.offload_watermark_ratio);
    return !is_filled(core, tier) &&
           (tier->leaves_at != 0 || low + tier->clean_bytes + tier->offloads.bytes < used);
}

/* What to copy next; a segment that is given up leaves nothing behind. */
static struct master_extent *next_ahead(struct master_core *core, struct master_segment *memory)
{
    struct master_extent *extent = master_evict_next(core, memory);
    if (extent != NULL && extent->list != IN_PROBED && extent->list != IN_SOFT)
        return extent;
    if (extent != NULL && extent->list == IN_SOFT && memory->tier.leaves_at != 0) {
        master_unpin(core, extent->object); /* else it would be asked for again and again */
        return extent;
    }
    struct base_list *node = base_list_first(&memory->probed);
    return memory->tier.leaves_at == 0 || node == NULL
               ? NULL
               : BASE_CONTAINER(node, struct master_extent, order);
}

bool master_tier_ahead(struct master_core *core, struct master_segment *memory, uint32_t budget)
{
    if (master_segment_is_disk(memory) || !may_offload(core, memory))
        return false;
    (void)master_evict_clean(core, memory);
    for (; budget > 0 && wants_more(core, memory); budget--) {
        struct master_extent *extent = next_ahead(core, memory);
        if (extent == NULL)
            return false;
        if (master_extent_spare(extent) || master_tier_refuses(core, extent))
            master_extent_named(extent, IN_CLEAN, false);
        else if (!begin_offload(core, extent))
            return false;
    }
    return budget == 0;
}

bool master_tier_leaves(struct master_core *core, struct master_segment *memory, uint64_t grace_ms)
{
    struct master_tier *tier = &memory->tier;
    if (!is_ready(memory))
        return false;
    if (tier->leaves_at == 0)
        tier->leaves_at = core->now + master_ms(grace_ms) / 4 * 3; /* the rest is for readers */
    if (core->now >= tier->leaves_at)
        return false;
    bool more = master_tier_ahead(core, memory, core->config.step);
    return more || tier->offloads.count > 0 || tier->no_space;
}

static bool is_promoting(const struct master_segment *memory, const struct master_object *object)
{
    BASE_LIST_FOREACH(node, &memory->tier.promotes.open)
    {
        const struct master_task *task = BASE_CONTAINER(node, struct master_task, link);
        if (task->hash == object->entry.hash)
            return true;
    }
    return false;
}

void master_tier_hit(struct master_core *core, struct master_extent *disk)
{
    struct master_segment *memory = disk->segment->tier.mate;
    struct master_object *object = disk->object;
    uint32_t now = (uint32_t)(core->now / NS_PER_S) + 1;
    bool hot = object->disk_hit != 0 && now - object->disk_hit <= MASTER_PROMOTE_S;
    object->disk_hit = now;
    if (core->config.keep_on_disk || !hot || memory == NULL || !is_ready(memory) ||
        is_promoting(memory, object) || !has_credit(memory, WIRE_TASK_PROMOTE, object->size))
        return;
    /* Only into space for which nothing has to go. */
    double high = (double)memory->size * core->config.eviction_high_watermark_ratio;
    if ((double)(memory->live_bytes + memory->open_bytes + object->size) > high)
        return;
    struct master_extent *extent = master_extent_take(memory, object->size, EXTENT_OPEN);
    if (extent == NULL)
        return;
    if (!begin(core, WIRE_TASK_PROMOTE, object, extent, disk)) {
        master_extent_drop(core, extent);
        return;
    }
    core->stats.promotes++;
}

void master_tier_disk_gone(struct master_object *object)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        if (extent->list == IN_CLEAN)
            master_extent_named(extent, IN_DIRTY, true);
        else if (extent->has_room)
            master_extent_use(extent);
    }
}

void master_tier_room(struct master_core *core, struct master_segment *disk)
{
    struct master_segment *memory = disk->tier.mate;
    if (memory == NULL)
        return;
    if (memory->tier.no_space)
        memory->tier.pause_until = 0;
    memory->tier.no_space = false;
    (void)master_tier_ahead(core, memory, core->config.step);
}

/* ---- pushing ---- */

static struct wire_view task_key(void *arg, uint32_t i)
{
    const struct master_task *task = ((struct master_task *const *)arg)[i];
    return wire_view_of(task->key, task->key_size);
}

static void send_tasks(struct master_core *core, struct master_segment *memory,
                       struct master_task **tasks, uint32_t count)
{
    base_buf_clear(&core->list[0]);
    base_buf_clear(&core->list[1]);
    enum yolk_status status = wire_keys_build_by(&core->list[1], count, task_key, tasks);
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++) {
        const struct master_task *task = tasks[i];
        struct wire_task rec = {.kind = task->kind,
                                .id = task->id,
                                .offset = master_extent_offset(task->memory),
                                .size = task->size};
        if (task->disk != NULL) {
            rec.disk_offset = master_extent_offset(task->disk);
            rec.checksum = task->disk->checksum;
        }
        status = wire_task_append(&core->list[0], &rec);
    }
    if (status != YOLK_OK)
        return; /* said again */
    struct wire_tasks msg = {.segment = memory->id,
                             .disk = memory->tier.mate->id,
                             .floor = lowest_open(&memory->tier),
                             .recs = wire_view_buf(&core->list[0]),
                             .keys = wire_view_buf(&core->list[1])};
    master_send(core, memory->owner->connection, 0, WIRE_TASKS, &msg);
}

enum { TASKS_IN_FRAME = 64 };

static void push_unsent(struct master_core *core, struct master_segment *memory,
                        const struct base_list *open)
{
    struct master_task *tasks[TASKS_IN_FRAME];
    uint32_t count = 0;
    BASE_LIST_FOREACH(node, open)
    {
        struct master_task *task = BASE_CONTAINER(node, struct master_task, link);
        if (task->sent_at != 0)
            continue;
        task->sent_at = core->now + 1; /* never 0 */
        tasks[count++] = task;
        if (count == TASKS_IN_FRAME) {
            send_tasks(core, memory, tasks, count);
            count = 0;
        }
    }
    if (count > 0)
        send_tasks(core, memory, tasks, count);
}

void master_tier_push(struct master_core *core, struct master_segment *memory)
{
    if (core->sink == NULL || master_segment_is_disk(memory) || !is_ready(memory))
        return;
    push_unsent(core, memory, &memory->tier.promotes.open);
    push_unsent(core, memory, &memory->tier.offloads.open);
}

void master_tier_resend(struct master_core *core, struct master_segment *memory, bool at_once)
{
    struct base_list *lists[] = {&memory->tier.offloads.open, &memory->tier.promotes.open};
    for (int i = 0; i < 2; i++)
        BASE_LIST_FOREACH(node, lists[i])
        {
            struct master_task *task = BASE_CONTAINER(node, struct master_task, link);
            if (!at_once && core->now < task->sent_at + master_ms(core->config.resend_ms))
                continue;
            task->sent_at = 0;
            master_facts_dirty(memory);
        }
}

/* ---- checks ---- */

uint64_t master_tier_refs(const struct master_segment *memory)
{
    uint64_t ended = 0;
    BASE_LIST_FOREACH(node, &memory->tier.ended)
    ended++;
    return memory->tier.offloads.count + 2ull * memory->tier.promotes.count + ended;
}

static const char *check_tasks(const struct master_tasks *tasks, uint64_t next_id)
{
    uint64_t last = 0, count = 0, bytes = 0;
    BASE_LIST_FOREACH(node, &tasks->open)
    {
        const struct master_task *task = BASE_CONTAINER(node, struct master_task, link);
        if (task->id <= last || task->id >= next_id)
            return "ids of tasks do not grow";
        if (task->memory->refs == 0 || (task->disk != NULL && task->disk->refs == 0))
            return "a task holds no reference";
        last = task->id;
        count++;
        bytes += task->size;
    }
    return count == tasks->count && bytes == tasks->bytes ? NULL : "tasks are miscounted";
}

const char *master_tier_check(const struct master_segment *segment)
{
    const struct master_tier *tier = &segment->tier;
    if (tier->mate != NULL &&
        (tier->mate->tier.mate != segment || !are_mates(tier->mate, segment) ||
         tier->mate->owner != segment->owner || segment->owner == NULL))
        return "mates disagree";
    bool none = base_list_empty(&tier->offloads.open) && base_list_empty(&tier->promotes.open);
    if (!none && tier->mate == NULL)
        return "open tasks without a disk";
    if (!none && master_segment_is_disk(segment))
        return "a disk has tasks";
    const char *broken = check_tasks(&tier->offloads, tier->next_id);
    return broken != NULL ? broken : check_tasks(&tier->promotes, tier->next_id);
}

/* ---- disks seen ---- */

bool master_storage_seen(const struct master_core *core, const uint8_t *storage_id)
{
    for (uint32_t i = 0; i < core->storage_id_count; i++)
        if (memcmp(core->storage_ids[i], storage_id, WIRE_ID_SIZE) == 0)
            return true;
    return core->storage_id_count == MASTER_STORAGE_IDS;
}

enum yolk_status master_storage_note(struct master_core *core, const uint8_t *storage_id)
{
    if (master_storage_seen(core, storage_id))
        return YOLK_OK;
    if ((core->storage_id_count & (core->storage_id_count - 1)) == 0) {
        uint32_t room = core->storage_id_count ? core->storage_id_count * 2 : 1;
        void *grown = base_realloc(core->storage_ids, room * (size_t)WIRE_ID_SIZE);
        if (grown == NULL)
            return YOLK_ERR_NO_MEMORY;
        core->storage_ids = grown;
    }
    memcpy(core->storage_ids[core->storage_id_count++], storage_id, WIRE_ID_SIZE);
    return YOLK_OK;
}
