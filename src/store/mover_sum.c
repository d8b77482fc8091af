/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of values: of what lies in a GPU's memory by that GPU, while the disk writes, of the
 * rest by the processor. A value whose checksum cannot be had is put without one, and the reason is
 * told in the file's figures; one that is read is compared in any case.
 */
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "device/device.h"
#include "engine/device.h"
#include "platform/clock.h"
#include "store/mover_state.h"

enum {
    NO_SUM = 0,
    FAILED_SUM = 1, /* else 2 + its place */
    /* Behind the end of the value's writes, for a GPU that has other things to do. */
    WAIT_MS = 2000,
};

/* ---- sums ---- */

/* The next spans of the GPU, as many as one launch takes; those that it does not take fail. */
static enum yolk_status begin_some(struct mover *mover, struct device *device, uint32_t first,
                                   uint32_t end, struct device_span *spans)
{
    struct sum_part *parts = mover->parts;
    uint32_t count = 0, gpu = parts[first].gpu;
    struct device_sum *sum;
    if (!mover_grow(&mover->sums, mover->sum_count, &mover->sum_room, sizeof(*mover->sums)))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a checksum");
    for (uint32_t i = first; i < end; i++)
        if (parts[i].gpu == gpu && parts[i].sum == NO_SUM)
            spans[count++] = (struct device_span){parts[i].memory, parts[i].size};
    long taken = device_sum_begin(device, (int)gpu - 1, spans, count, &sum);
    if (taken < 0)
        return (enum yolk_status)taken;
    uint32_t index = 0;
    for (uint32_t i = first; i < end && index < (uint32_t)taken; i++) {
        if (parts[i].gpu != gpu || parts[i].sum != NO_SUM)
            continue;
        parts[i].sum = mover->sum_count + 2;
        parts[i].index = index++;
    }
    mover->sums[mover->sum_count++] = (struct mover_sum){.sum = sum, .users = index};
    return YOLK_OK;
}

static void begin_all(struct mover *mover, uint32_t first, uint32_t end)
{
    struct device *device = NULL;
    struct device_span *spans = NULL;
    for (uint32_t i = first; i < end; i++) {
        struct sum_part *part = &mover->parts[i];
        if (part->gpu == 0 || part->sum != NO_SUM)
            continue;
        enum yolk_status status = YOLK_OK;
        if (spans == NULL) {
            spans = malloc((size_t)(end - i) * sizeof(*spans));
            status = spans == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a checksum")
                                   : engine_device_of(mover->context->engine, &device);
        }
        if (status == YOLK_OK)
            status = begin_some(mover, device, i, end, spans);
        if (status == YOLK_OK)
            continue;
        store_gds_note_unsummed(mover->context->gds);
        part->sum = FAILED_SUM;
    }
    free(spans);
}

static void end_use(struct mover *mover, const struct sum_part *part)
{
    struct mover_sum *at = part->sum > FAILED_SUM ? &mover->sums[part->sum - 2] : NULL;
    if (at == NULL || --at->users > 0)
        return;
    device_sum_end(at->sum);
    at->sum = NULL;
}

/* The checksum with the part behind it. */
static enum yolk_status add_part(struct mover *mover, const struct sum_part *part, uint32_t *crc)
{
    if (part->gpu == 0) {
        *crc = base_crc32c(*crc, part->memory, part->size);
        return YOLK_OK;
    }
    if (part->sum == FAILED_SUM)
        return YOLK_ERR_UNSUPPORTED; /* it was told why */
    struct mover_sum *at = &mover->sums[part->sum - 2];
    if (!at->over) {
        at->over = 1;
        at->status = device_sum_wait(at->sum, clock_after_ms(clock_real_now_ns(), WAIT_MS));
        if (at->status != YOLK_OK)
            store_gds_note_unsummed(mover->context->gds);
    }
    if (at->status == YOLK_OK)
        *crc = device_sum_of(at->sum, part->index, *crc);
    return (enum yolk_status)at->status;
}

/* ---- values ---- */

/* Adds the parts of `size` bytes of the value; a failure is of asking whose memory it is. */
static enum yolk_status add_parts(struct mover *mover, struct move *move, uint64_t size)
{
    const struct yolk_kv *kv = &mover->kvs[move->item];
    uint32_t index = (uint32_t)(move - mover->moves);
    move->first_part = mover->part_count;
    move->gpu_parts = 0;
    for (size_t i = 0; i < kv->slice_count && size > 0; i++) {
        struct engine_memory memory;
        struct sum_part part = {
            .memory = mover_arrived_at(mover, index, &kv->slices[i]),
            .size = kv->slices[i].size < size ? kv->slices[i].size : size,
        };
        if (part.size == 0)
            continue;
        size -= part.size;
        enum yolk_status status =
            engine_memory_look(mover->context->engine, part.memory, part.size, &memory);
        if (status == YOLK_OK &&
            !mover_grow(&mover->parts, mover->part_count, &mover->part_room, sizeof(*mover->parts)))
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a checksum");
        if (status != YOLK_OK) {
            mover->part_count = move->first_part;
            return status;
        }
        part.gpu = memory.gpu;
        move->gpu_parts |= part.gpu != 0;
        mover->parts[mover->part_count++] = part;
    }
    move->part_count = mover->part_count - move->first_part;
    return YOLK_OK;
}

void mover_begin_sums(struct mover *mover, const uint32_t *moves, uint32_t count)
{
    uint32_t first = mover->part_count;
    for (uint32_t i = 0; i < count; i++) {
        struct move *move = &mover->moves[moves[i]];
        if (move->reservation == NULL || move->summed)
            continue;
        move->summed = 1;
        move->reservation->checked = move->reservation->by_gpu = 0;
        move->reservation->checksum = 0;
        if (add_parts(mover, move, move->size) != YOLK_OK) {
            store_gds_note_unsummed(mover->context->gds);
            move->part_count = 0;
        }
    }
    begin_all(mover, first, mover->part_count);
    /* The processor reads what is its own while the disk does. */
    for (uint32_t i = 0; i < count; i++)
        if (!mover->moves[moves[i]].gpu_parts)
            mover_end_sum(mover, &mover->moves[moves[i]]);
}

void mover_end_sum(struct mover *mover, struct move *move)
{
    struct store_reservation *reservation = move->reservation;
    enum yolk_status status = YOLK_OK;
    uint32_t crc = 0;
    if (reservation == NULL || move->part_count == 0)
        return;
    for (uint32_t i = 0; i < move->part_count; i++) {
        const struct sum_part *part = &mover->parts[move->first_part + i];
        if (status == YOLK_OK)
            status = add_part(mover, part, &crc);
        end_use(mover, part);
    }
    move->part_count = 0;
    base_error_clear();
    reservation->checked = status == YOLK_OK;
    reservation->by_gpu = reservation->checked && move->gpu_parts;
    reservation->checksum = reservation->checked ? crc : 0;
}

int mover_verify(struct mover *mover, struct move *move)
{
    uint32_t first = mover->part_count, crc = 0;
    if (mover->get == NULL || !move->verify)
        return YOLK_OK;
    enum yolk_status status = add_parts(mover, move, move->size);
    if (status != YOLK_OK)
        return status;
    begin_all(mover, first, mover->part_count);
    for (uint32_t i = first; i < mover->part_count; i++) {
        const struct sum_part *part = &mover->parts[i];
        if (status == YOLK_OK && add_part(mover, part, &crc) != YOLK_OK)
            status = engine_memory_checksum(mover->context->engine, part->memory, part->size, &crc);
        end_use(mover, part);
    }
    mover->part_count = first;
    move->part_count = 0;
    if (status != YOLK_OK)
        return status;
    base_error_clear();
    return crc == move->checksum ? YOLK_OK : YOLK_ERR_CORRUPT;
}

void mover_clear_sums(struct mover *mover)
{
    for (uint32_t i = 0; i < mover->sum_count; i++)
        if (mover->sums[i].sum != NULL)
            device_sum_end(mover->sums[i].sum);
    mover->sum_count = mover->part_count = 0;
}
