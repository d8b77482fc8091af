/* SPDX-License-Identifier: Apache-2.0 */
/* Why tasks failed, in words. A transport says it in the thread that happened to move the batch on;
 * whoever asks for the result later, in any thread, is told. Of a batch the sentences of the first
 * few are kept; of the others is said what can be said without, and the sentence of one that failed
 * alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/internal.h"

enum { REASON_SIZE = 400, REASONS_MAX = 8 };

struct reason {
    uint32_t head;     /* of the group that it is about; BATCH_NONE: of none any more */
    uint8_t transport; /* ENGINE_NO_TRANSPORT: nothing had it */
    enum yolk_status status;
    char text[REASON_SIZE];
};
struct batch_reasons {
    uint32_t count;
    struct reason at[REASONS_MAX];
};

/* Not what was tried again since and went well, or may yet. */
static bool is_final(const struct batch *batch, const struct reason *kept)
{
    return kept->head < batch->state.task_count &&
           batch->state.tasks[kept->head].failure != YOLK_OK;
}

static struct reason *find(const struct batch *batch, uint32_t head)
{
    for (uint32_t i = 0; batch->reasons != NULL && i < batch->reasons->count; i++)
        if (batch->reasons->at[i].head == head)
            return &batch->reasons->at[i];
    return NULL;
}

/* A place for one more; NULL: all are taken for good. */
static struct reason *add(struct batch *batch)
{
    if (batch->reasons == NULL)
        batch->reasons = base_calloc(1, sizeof(*batch->reasons));
    struct batch_reasons *all = batch->reasons;
    if (all == NULL)
        return NULL;
    if (all->count < REASONS_MAX)
        return &all->at[all->count++];
    for (uint32_t i = 0; i < REASONS_MAX; i++)
        if (!is_final(batch, &all->at[i]))
            return &all->at[i];
    return NULL;
}

/* Where the memory's owner says no, nothing here is wrong with the local side. */
static bool is_of_the_other_side(const struct segment *segment, enum yolk_status status)
{
    return !segment->file && (status == YOLK_ERR_NOT_REGISTERED || status == YOLK_ERR_ACCESS ||
                              status == YOLK_ERR_STALE);
}

void reason_keep(struct yolk_engine *engine, struct batch *batch, uint32_t head,
                 enum yolk_status status, const struct engine_channel *channel)
{
    const char *said = yolk_last_error();
    struct reason *kept = find(batch, head);
    if (kept != NULL && kept->status == status && said[0] == '\0')
        return; /* nothing is added to it */
    if (kept == NULL)
        kept = add(batch);
    if (kept != NULL) {
        kept->head = head;
        kept->status = status;
        kept->transport = channel != NULL ? channel->transport : ENGINE_NO_TRANSPORT;
        if (channel == NULL || channel->segment == NULL) {
            snprintf(kept->text, sizeof(kept->text), "%.390s",
                     said[0] != '\0' ? said : yolk_strerror(status));
        } else {
            char device[96];
            engine_route_device(channel->segment, channel->transport, device, sizeof(device));
            snprintf(kept->text, sizeof(kept->text), "%s to %s: %s%.260s",
                     engine->transports[channel->transport].ops.name, device,
                     is_of_the_other_side(channel->segment, status) ? "the remote side refused: "
                                                                    : "",
                     said[0] != '\0' ? said : yolk_strerror(status));
        }
    }
    base_error_clear(); /* what comes next speaks for itself */
}

void reason_no_channel(struct yolk_engine *engine, struct batch *batch,
                       const struct engine_task *head, uint8_t transport, enum yolk_status status)
{
    const struct engine_channel none = {.segment = head->segment, .transport = transport};
    reason_keep(engine, batch, (uint32_t)(head - batch->tasks), status, &none);
}

void reason_failed(struct batch *batch, uint32_t index, enum yolk_status status)
{
    if (batch->failed == BATCH_NONE && status != YOLK_ERR_CANCELED)
        batch->failed = index;
}

void reason_refused(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                    const struct yolk_request *request, enum yolk_status status)
{
    char why[2 * REASON_SIZE];
    struct engine_task *task = &batch->tasks[index];
    snprintf(why, sizeof(why), "%s", yolk_last_error());
    task->local = request->local;
    task->offset = request->offset;
    task->size = request->size;
    task->opcode = request->opcode;
    reason_failed(batch, index, status);
    reason_keep(engine, batch, index, status, NULL);
    (void)base_fail(status, 0, "%s", why);
}

void reason_forget(struct batch *batch, uint32_t first)
{
    if (batch->failed != BATCH_NONE && batch->failed >= first)
        batch->failed = BATCH_NONE;
    for (uint32_t i = 0; batch->reasons != NULL && i < batch->reasons->count; i++)
        if (batch->reasons->at[i].head >= first)
            batch->reasons->at[i].head = BATCH_NONE;
}

void reason_free(struct batch *batch)
{
    free(batch->reasons);
    batch->reasons = NULL;
    batch->failed = BATCH_NONE;
}

/* Of another one with this status that failed on the same transport. */
static const struct reason *alike(const struct batch *batch, enum yolk_status status,
                                  uint8_t transport)
{
    for (uint32_t i = 0; batch->reasons != NULL && i < batch->reasons->count; i++) {
        const struct reason *kept = &batch->reasons->at[i];
        if (kept->status == status && kept->transport == transport && is_final(batch, kept))
            return kept;
    }
    return NULL;
}

void reason_tell(const struct yolk_engine *engine, const struct batch *batch, uint32_t index)
{
    const struct batch_task *state = &batch->state.tasks[index];
    const struct engine_task *head = &batch->tasks[state->head];
    const struct yolk_place place = batch_place(batch, index);
    const char *name = head->last_transport != ENGINE_NO_TRANSPORT
                           ? engine->transports[head->last_transport].ops.name
                           : "";
    const struct reason *kept = find(batch, state->head), *other = NULL;
    bool own = kept != NULL && kept->status == state->failure;
    if (!own)
        other = alike(batch, state->failure, head->last_transport);
    (void)base_fail(state->failure, 0, "%s of %llu bytes, local %p, remote 0x%llx: %s%s%s%s%s",
                    head->opcode == YOLK_READ    ? "a read"
                    : head->opcode == YOLK_WRITE ? "a write"
                                                 : "a request",
                    (unsigned long long)place.size, place.local, (unsigned long long)place.offset,
                    own ? kept->text : name, own || name[0] == '\0' ? "" : ": ",
                    own ? "" : yolk_strerror(state->failure),
                    other != NULL ? "; another that failed so: " : "",
                    other != NULL ? other->text : "");
}

void reason_tell_first(const struct yolk_engine *engine, const struct batch *batch)
{
    if (batch->failed != BATCH_NONE)
        reason_tell(engine, batch, batch->failed);
}
