/* SPDX-License-Identifier: Apache-2.0 */
/* Extents that the master freed, and all that it is told. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/tier_state.h"

/* ---- facts ---- */

/* 0 without memory. */
static int grow(void *array, size_t count, size_t *room, size_t element)
{
    if (count < *room)
        return 1;
    size_t wanted = *room == 0 ? 64 : *room * 2;
    void **at = array;
    void *grown = base_realloc(*at, wanted * element);
    if (grown == NULL)
        return 0;
    *at = grown;
    *room = wanted;
    return 1;
}

/* The master cannot mean an extent that it was not told of. */
static bool is_untold(const struct store_tier *tier, uint64_t offset)
{
    BASE_LIST_FOREACH(node, &tier->tasks[TASK_FINISHED])
    {
        const struct tier_task *task = BASE_CONTAINER(node, struct tier_task, link);
        if (task->asked.kind == WIRE_TASK_OFFLOAD && task->status == YOLK_OK &&
            task->disk_offset == offset)
            return true;
    }
    return false;
}

/* 0 without memory. */
static int apply_freed(struct store_tier *tier, uint64_t seq, const struct wire_fact *fact)
{
    if (!grow(&tier->freed, tier->freed_count, &tier->freed_room, sizeof(*tier->freed)))
        return 0;
    if (!is_untold(tier, fact->offset)) {
        uint64_t deleted;
        int status = storage_delete(tier->options.storage, fact->offset, &deleted);
        if (status == YOLK_OK) {
            tier->delete_seq = deleted;
            tier->unplanned = true;
            tier->stats.deletes++;
        } else if (status != YOLK_ERR_NOT_FOUND) {
            return 0;
        }
    }
    tier->freed[tier->freed_count++] = (struct tier_freed){seq, fact->offset, fact->size};
    return 1;
}

void store_tier_input_facts(struct store_tier *tier, const uint8_t *body, size_t size)
{
    struct wire_facts facts;
    if (tier->disk == 0 || wire_decode(WIRE_FACTS, body, size, &facts) != YOLK_OK ||
        facts.segment != tier->disk)
        return;
    if (facts.seq <= tier->fact_seq) {
        tier->ack_again = tier->acked_seq > 0; /* the last answer may be lost */
        return;
    }
    if (facts.seq != tier->fact_seq + 1 || tier->batch_count == BATCHES_MAX ||
        !grow(&tier->batches, tier->batch_count, &tier->batch_room, sizeof(*tier->batches)))
        return; /* comes again */
    for (uint32_t i = 0; i < wire_fact_count(facts.recs); i++) {
        struct wire_fact fact = wire_fact_at(facts.recs, i);
        if (fact.kind == WIRE_FACT_FREED && !apply_freed(tier, facts.seq, &fact))
            return; /* comes again; what is deleted stays so */
    }
    tier->fact_seq = facts.seq;
    tier->batches[tier->batch_count++] = (struct tier_batch){facts.seq, tier->delete_seq};
}

/* 1 if more may be acknowledged than was. */
static int advance_ack(struct store_tier *tier)
{
    uint64_t deleted = storage_deleted(tier->options.storage);
    size_t count = 0;
    while (count < tier->batch_count && tier->batches[count].delete_seq <= deleted)
        tier->acked_seq = tier->batches[count++].seq;
    if (count == 0)
        return 0;
    tier->batch_count -= count;
    memmove(tier->batches, tier->batches + count, tier->batch_count * sizeof(*tier->batches));
    count = 0;
    while (count < tier->freed_count && tier->freed[count].seq <= tier->acked_seq)
        count++;
    tier->freed_count -= count;
    memmove(tier->freed, tier->freed + count, tier->freed_count * sizeof(*tier->freed));
    return 1;
}

/* ---- answers ---- */

static bool waits_for_ack(const struct store_tier *tier, const struct tier_task *task)
{
    if (task->asked.kind != WIRE_TASK_OFFLOAD || task->status != YOLK_OK)
        return false;
    for (size_t i = 0; i < tier->freed_count; i++) {
        const struct tier_freed *freed = &tier->freed[i];
        if (freed->offset < task->disk_offset + task->disk_size &&
            task->disk_offset < freed->offset + freed->size)
            return true;
    }
    return false;
}

static int send(struct store_tier *tier, uint16_t kind, const void *message,
                struct store_tier_output *output)
{
    base_buf_clear(&tier->body);
    if (wire_encode(kind, message, &tier->body) != YOLK_OK)
        return 0; /* as lost on the way */
    output->kind = STORE_TIER_SEND;
    output->message = kind;
    output->body = tier->body.data;
    output->body_size = tier->body.size;
    return 1;
}

static int next_done(struct store_tier *tier, struct store_tier_output *output)
{
    uint32_t count = 0;
    base_buf_clear(&tier->recs);
    BASE_LIST_FOREACH_SAFE(node, &tier->tasks[TASK_FINISHED])
    {
        struct tier_task *task = BASE_CONTAINER(node, struct tier_task, link);
        bool offloaded = task->asked.kind == WIRE_TASK_OFFLOAD && task->status == YOLK_OK;
        struct wire_task_done done = {
            .id = task->asked.id,
            .status = task->status,
            .disk_offset = offloaded ? task->disk_offset : 0,
            .disk_size = offloaded ? task->disk_size : 0,
            .checksum = offloaded ? task->checksum : 0,
        };
        if (waits_for_ack(tier, task))
            continue;
        if (wire_task_done_append(&tier->recs, &done) != YOLK_OK)
            break;
        store_tier_enter(tier, task, TASK_ANSWERED);
        if (++count == DONE_RECORDS_MAX)
            break;
    }
    struct wire_tasks_done message = {tier->memory, wire_view_buf(&tier->recs)};
    return count > 0 && send(tier, WIRE_TASKS_DONE, &message, output);
}

/* 1 if *output is a message. The master hears of free space before it hears of its next use. */
int store_tier_next_message(struct store_tier *tier, struct store_tier_output *output)
{
    if (tier->memory == 0)
        return 0;
    if (advance_ack(tier) || tier->ack_again) {
        struct wire_facts_ack ack = {tier->disk, tier->acked_seq};
        tier->ack_again = false;
        return send(tier, WIRE_FACTS_ACK, &ack, output);
    }
    return next_done(tier, output);
}
