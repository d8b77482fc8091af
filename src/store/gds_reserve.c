/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations in the GDS file; see reservation.h. */
#define LOG_ROOM "store"
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mutation.h"
#include "store/disk_state.h"
#include "store/gds_state.h"
#include "store/tier_state.h"

void store_gds_describe(const struct store_gds *gds, const struct storage_extent *extent,
                        struct wire_gds *out)
{
    const struct store_disk_mount *mount = &gds->disk->mount;
    memcpy(out->owner_client_id, gds->client_id, sizeof(out->owner_client_id));
    memcpy(out->storage_id, mount->storage_id, sizeof(out->storage_id));
    out->storage_generation = mount->storage_generation;
    out->value_offset = extent->offset;
    out->value_size = extent->size;
    out->allocated_size = extent->allocated;
}

static void unlink_reservation(struct store_gds *gds, struct gds_reservation *reservation)
{
    *reservation->at = reservation->next;
    if (reservation->next != NULL)
        reservation->next->at = reservation->at;
    gds->open_count--;
}

/* Its id ends; what it was in stays as it is. */
static void end_id(struct store_gds *gds, const struct gds_reservation *reservation, int abort)
{
    struct storage *storage = gds->disk->storage;
    if (reservation->gone)
        return;
    /* STALE: the journal has it, which ended the id. */
    if ((abort ? storage_abort(storage, reservation->id)
               : storage_preserve(storage, reservation->id)) != YOLK_OK)
        base_error_clear();
    store_disk_rouse(gds->disk);
}

static void delete_extent(struct store_gds *gds, uint64_t offset)
{
    uint64_t seq;
    if (storage_delete(gds->disk->storage, offset, &seq) != YOLK_OK)
        base_error_clear(); /* gone already; without memory, at the next mount */
    store_disk_rouse(gds->disk);
}

static void add_limbo(struct store_gds *gds, uint64_t offset, uint64_t op, int by_floor)
{
    if (gds->limbo_count == gds->limbo_room) {
        size_t room = gds->limbo_room == 0 ? 64 : gds->limbo_room * 2;
        struct gds_limbo *grown = base_realloc(gds->limbo, room * sizeof(*grown));
        if (grown == NULL) {
            log_warn("no memory to remember %llu in the GDS file, which stays taken until the "
                     "file is opened again, or the master frees it",
                     (unsigned long long)offset);
            return;
        }
        gds->limbo = grown;
        gds->limbo_room = room;
    }
    gds->limbo[gds->limbo_count++] =
        (struct gds_limbo){.offset = offset, .op = op, .by_floor = (uint8_t)(by_floor != 0)};
}

void store_gds_was_freed(struct store_gds *gds, uint64_t offset)
{
    size_t kept = 0;
    for (size_t i = 0; i < gds->limbo_count; i++)
        if (gds->limbo[i].offset != offset)
            gds->limbo[kept++] = gds->limbo[i];
    gds->limbo_count = kept;
    for (struct gds_reservation *at = gds->open; at != NULL; at = at->next)
        at->freed |= at->given.gds.value_offset == offset;
}

void store_gds_floor(struct store_gds *gds, uint64_t op)
{
    mutex_lock(&gds->disk->lock);
    size_t kept = 0;
    for (size_t i = 0; i < gds->limbo_count; i++) {
        if (gds->limbo[i].by_floor && gds->limbo[i].op < op)
            delete_extent(gds, gds->limbo[i].offset);
        else
            gds->limbo[kept++] = gds->limbo[i];
    }
    gds->limbo_count = kept;
    mutex_unlock(&gds->disk->lock);
}

void store_gds_forget_mount(struct store_gds *gds)
{
    gds->mounts++;
    for (size_t i = 0; i < gds->limbo_count; i++)
        delete_extent(gds, gds->limbo[i].offset);
    gds->limbo_count = 0;
    /* Nothing is being written there any more, and the record must not come after the offers. */
    for (struct gds_reservation *at = gds->open; at != NULL; at = at->next)
        if (at->written && !at->gone && storage_abort(gds->disk->storage, at->id) == YOLK_OK)
            at->gone = 1;
    base_error_clear();
}

/* ---- what a put is given ---- */

static uint64_t segment_of(void *self)
{
    struct store_gds *gds = self;
    mutex_lock(&gds->disk->lock);
    uint64_t segment = gds->segment;
    mutex_unlock(&gds->disk->lock);
    return segment;
}

static int reserve(void *self, const void *key, size_t key_size, uint64_t size,
                   struct store_reservation **out)
{
    struct store_gds *gds = self;
    struct store_disk *disk = gds->disk;
    struct storage_extent extent;
    struct gds_reservation *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a reservation");
    mutex_lock(&disk->lock);
    int status = storage_reserve(disk->storage, key, key_size, size, &made->id);
    if (status == YOLK_OK)
        status = storage_locate(disk->storage, made->id, &extent);
    if (status == YOLK_OK) {
        store_gds_describe(gds, &extent, &made->given.gds);
        made->mount = gds->mounts;
        made->next = gds->open;
        made->at = &gds->open;
        if (gds->open != NULL)
            gds->open->at = &made->next;
        gds->open = made;
        gds->open_count++;
    }
    if (status == YOLK_ERR_NO_SPACE) { /* what is deleted is free after a sync */
        gds->stats.no_space++;
        disk->tier->sync_wanted = true;
        store_disk_rouse(disk);
    }
    mutex_unlock(&disk->lock);
    if (status != YOLK_OK)
        free(made);
    else
        *out = &made->given;
    return status;
}

static int is_current(void *self, const struct store_reservation *reservation)
{
    struct store_gds *gds = self;
    mutex_lock(&gds->disk->lock);
    int current = ((const struct gds_reservation *)reservation)->mount == gds->mounts;
    mutex_unlock(&gds->disk->lock);
    return current;
}

static void close_reservation(struct store_gds *gds, struct gds_reservation *reservation)
{
    unlink_reservation(gds, reservation);
    mutex_unlock(&gds->disk->lock);
    free(reservation);
}

static void commit(void *self, struct store_reservation *reservation)
{
    struct store_gds *gds = self;
    mutex_lock(&gds->disk->lock);
    close_reservation(gds, (struct gds_reservation *)reservation);
}

static void abort_it(void *self, struct store_reservation *reservation)
{
    struct store_gds *gds = self;
    struct gds_reservation *mine = (struct gds_reservation *)reservation;
    mutex_lock(&gds->disk->lock);
    end_id(gds, mine, 1);
    close_reservation(gds, mine);
}

static void preserve(void *self, struct store_reservation *reservation, uint64_t op,
                     enum store_outcome outcome)
{
    struct store_gds *gds = self;
    struct gds_reservation *mine = (struct gds_reservation *)reservation;
    uint64_t offset = reservation->gds.value_offset;
    mutex_lock(&gds->disk->lock);
    /* An earlier mount's facts do not come any more, and the next one was not told of it. */
    int current = mine->mount == gds->mounts;
    int by_floor = outcome == STORE_OUTCOME_ABSENT || !current;
    if (outcome == STORE_OUTCOME_STUCK && !mutated(MUT_GDS_FREE_EARLY)) {
        log_error("a write to the GDS file never ended; its space is not used again");
        gds->disk->stuck = 1;
    } else if (mine->freed || outcome == STORE_OUTCOME_STUCK) {
        end_id(gds, mine, 1);
    } else if (!mine->gone) {
        end_id(gds, mine, 0);
        add_limbo(gds, offset, op, by_floor);
    }
    close_reservation(gds, mine);
}

struct store_reserver store_gds_reserver(struct store_gds *gds)
{
    return (struct store_reserver){
        .self = gds,
        .segment = segment_of,
        .reserve = reserve,
        .is_current = is_current,
        .commit = commit,
        .abort = abort_it,
        .preserve = preserve,
    };
}

/* ---- commits ---- */

/* With the lock held. 1: it is in the journal, or will not be. */
static int is_settled(struct store_gds *gds, struct gds_reservation *reservation)
{
    struct storage_extent extent;
    if (reservation->given.committed || reservation->gone || !reservation->written)
        return 1;
    if (storage_locate(gds->disk->storage, reservation->id, &extent) == YOLK_OK)
        return 0;
    base_error_clear(); /* the journal ended the id */
    reservation->given.committed = 1;
    return 1;
}

static void begin_commit(struct store_gds *gds, struct gds_reservation *reservation)
{
    struct storage *storage = gds->disk->storage;
    if (reservation->mount != gds->mounts)
        return; /* the new mount was not told of it */
    int status = reservation->given.checked
                     ? storage_written(storage, reservation->id, reservation->given.checksum)
                     : storage_written_unchecked(storage, reservation->id);
    reservation->written = status == YOLK_OK;
    gds->stats.unchecked += reservation->written && !reservation->given.checked;
    gds->stats.by_gpu += reservation->written && reservation->given.by_gpu;
}

void store_gds_begin_commit(struct store_gds *gds, struct store_reservation *const *reservations,
                            size_t count)
{
    mutex_lock(&gds->disk->lock);
    for (size_t i = 0; i < count; i++)
        begin_commit(gds, (struct gds_reservation *)reservations[i]);
    store_disk_rouse(gds->disk);
    mutex_unlock(&gds->disk->lock);
}

int store_gds_is_committed(struct store_gds *gds, struct store_reservation *const *reservations,
                           size_t count)
{
    int all = 1;
    for (size_t i = 0; i < count; i++)
        all &= is_settled(gds, (struct gds_reservation *)reservations[i]);
    return all;
}

void store_gds_commit(struct store_gds *gds, struct store_reservation *const *reservations,
                      size_t count, uint64_t deadline_ns)
{
    struct store_disk *disk = gds->disk;
    store_gds_begin_commit(gds, reservations, count);
    mutex_lock(&disk->lock);
    while (!store_gds_is_committed(gds, reservations, count))
        if (store_tier_off(disk->tier) != NULL ||
            !condition_wait_until(&disk->journaled, &disk->lock, deadline_ns))
            break;
    mutex_unlock(&disk->lock);
}
