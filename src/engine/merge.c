/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/merge.h"

#include <string.h>

#include "base/mutation.h"

static inline bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool merge_goes_on(const struct yolk_request *before, const struct yolk_request *request)
{
    return (uintptr_t)request->local == (uintptr_t)before->local + before->size &&
           request->offset == before->offset + before->size;
}

bool merge_is_alike(const struct yolk_request *before, const struct yolk_request *request,
                    uint64_t group_bytes, uint64_t bytes_max)
{
    return request->segment == before->segment && before->size > 0 && request->size > 0 &&
           group_bytes < bytes_max && request->size <= bytes_max - group_bytes &&
           request->opcode == before->opcode && request->deadline_ns == before->deadline_ns &&
           (request->priority == before->priority || mutated(MUT_MERGE_ACROSS_PRIORITIES)) &&
           request->intent == before->intent && request->flags == before->flags &&
           same_text(request->hint, before->hint) && same_text(request->policy, before->policy) &&
           same_text(request->tenant, before->tenant) &&
           request->after_stream == before->after_stream &&
           request->after_event == before->after_event &&
           merge_same_ticket(&request->ticket, &before->ticket);
}

uint32_t merge_member_at(const struct batch_state *state, uint32_t head, uint64_t position)
{
    uint32_t low = head;
    uint32_t high = head + state->tasks[head].members;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (state->tasks[middle].start <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool is_left_out(const struct batch_task *task)
{
    return merge_is_over(task) && !mutated(MUT_RESUBMIT_ALIAS);
}

uint64_t merge_run(const struct batch_state *state, uint32_t head, uint64_t *offset, uint64_t size,
                   bool alone)
{
    uint64_t end = *offset + size;
    uint32_t member = merge_member_at(state, head, *offset);
    while (*offset < end && is_left_out(&state->tasks[member])) {
        *offset = state->tasks[member].start + state->tasks[member].size;
        member++;
    }
    if (*offset >= end)
        return 0;
    uint64_t stop = *offset;
    do {
        stop = state->tasks[member].start + state->tasks[member].size;
        member++;
    } while (!alone && stop < end && !is_left_out(&state->tasks[member]));
    return (stop < end ? stop : end) - *offset;
}

void merge_credit(struct batch_state *state, uint32_t head, uint64_t offset, uint64_t size,
                  bool open_only)
{
    uint32_t member = merge_member_at(state, head, offset);
    while (size > 0) {
        struct batch_task *task = &state->tasks[member++];
        uint64_t rest = task->start + task->size - offset;
        uint64_t part = rest < size ? rest : size;
        if (!open_only || task->failure == YOLK_OK)
            task->done += part;
        offset += part;
        size -= part;
    }
}
