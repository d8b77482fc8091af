/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose bytes on this side lie in pieces. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/bulk.h"
#include "engine/internal.h"

struct piece_block {
    struct piece_block *next;
    struct yolk_piece pieces[];
};

void batch_pieces_free(struct batch *batch)
{
    struct piece_block *block;
    while ((block = batch->pieces) != NULL) {
        batch->pieces = block->next;
        free(block);
    }
}

/* The pieces for as long as the batch is there: a request that is stuck outlives its submitter's.
 */
static enum yolk_status keep_pieces(struct yolk_engine *engine, uint64_t handle,
                                    const struct engine_scatter *scatters, uint32_t count,
                                    struct engine_scatter *kept)
{
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += scatters[i].count;
    struct piece_block *block = base_malloc(sizeof(*block) + total * sizeof(struct yolk_piece));
    if (block == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the pieces of %u requests", count);
    struct yolk_piece *at = block->pieces;
    for (uint32_t i = 0; i < count; i++) {
        kept[i] = (struct engine_scatter){at, scatters[i].count, scatters[i].held};
        memcpy(at, scatters[i].pieces, scatters[i].count * sizeof(*at));
        at += scatters[i].count;
    }
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL) {
        free(block);
        return YOLK_ERR_STALE;
    }
    block->next = batch->pieces;
    batch->pieces = block;
    pthread_mutex_unlock(&batch->lock);
    return YOLK_OK;
}

enum yolk_status engine_batch_submit_scattered(struct yolk_engine *engine, uint64_t handle,
                                               const struct yolk_request *requests,
                                               const struct engine_scatter *scatters,
                                               uint32_t count, enum yolk_status *verdicts,
                                               uint32_t *first)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct engine_scatter *kept = base_malloc(count * sizeof(*kept) + 1);
    if (kept == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests", count);
    enum yolk_status status = keep_pieces(engine, handle, scatters, count, kept);
    const struct submission from = {.requests = requests, .scatters = kept, .count = count};
    if (status == YOLK_OK)
        status = engine_submit(engine, handle, &from, verdicts, first);
    free(kept);
    return status;
}
