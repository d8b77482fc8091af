/* SPDX-License-Identifier: Apache-2.0 */
/* The states of extents; see storage.h. */
#include "storage/storage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mutation.h"
#include "storage/internal.h"

#define LOG_ROOM "storage"
#include "base/log.h"

/* An id: serial number of the reservation above, place (in blocks) below. */
#define PLACE_BITS  36u
#define SERIAL_BITS 28u

static_assert(MAX_SEGMENT_SIZE / FORMAT_BLOCK <= 1ull << PLACE_BITS, "places fit into ids");

/* ---- what it is ---- */
const struct storage_info *storage_info(const struct storage *s)
{
    return &s->info;
}

struct file *storage_file(struct storage *s)
{
    return s->file;
}

const char *storage_unwritable(const struct storage *s)
{
    if (s->journal_failed || s->sync_failed)
        return s->journal_reason;
    if (s->journal.full)
        return "the journal is full, after crash upon crash; start empty";
    return s->writes_failed ? s->writes_reason : NULL;
}

void storage_writes_failed(struct storage *s, const char *reason)
{
    if (!s->writes_failed)
        log_warn("%s: nothing is written for now: %s", s->info.path, reason);
    s->writes_failed = true;
    snprintf(s->writes_reason, sizeof s->writes_reason, "%s", reason);
}

void storage_writes_resumed(struct storage *s)
{
    s->writes_failed = false;
}

void storage_stats(const struct storage *s, struct storage_stats *out)
{
    *out = s->counts;
    out->capacity = base_extents_capacity(s->map.places);
    out->free_bytes = base_extents_free_bytes(s->map.places);
    out->reserved = s->map.counts[EXTENT_RESERVED];
    out->written = s->map.counts[EXTENT_WRITTEN];
    out->committed = s->map.counts[EXTENT_COMMITTED];
    out->doomed = s->map.counts[EXTENT_DOOMED];
    out->committed_bytes = s->map.committed_bytes;
    out->leases = s->leases;
    out->handles = s->handles;
    out->index_bytes = s->map.index_bytes;
    out->index_bytes_max = s->index_bytes_max;
    out->memory_bytes = map_memory(&s->map);
    out->writable = storage_unwritable(s) == NULL;
}

void storage_describe(const struct storage *s, const struct extent *e, struct storage_extent *out)
{
    *out = (struct storage_extent){
        .key = e->key,
        .key_size = e->key_size,
        .offset = map_offset(&s->map, e),
        .size = e->size,
        .allocated = map_allocated(&s->map, e),
        .checksum = e->checksum,
        .checked = !e->unchecked,
    };
}

/* ---- ids ---- */
uint64_t storage_id_of(const struct storage *s, const struct extent *e)
{
    return (uint64_t)e->serial << PLACE_BITS | map_offset(&s->map, e) / FORMAT_BLOCK;
}

static int find_id(struct storage *s, uint64_t id, struct extent **out)
{
    struct extent *e = map_at(&s->map, (id & ((1ull << PLACE_BITS) - 1)) * FORMAT_BLOCK);
    if (e == NULL || !e->owned || e->serial != id >> PLACE_BITS)
        return base_fail(YOLK_ERR_STALE, 0, "the reservation %llx has ended",
                         (unsigned long long)id);
    *out = e;
    return YOLK_OK;
}

static void end_id(struct storage *s, struct extent *e)
{
    e->owned = false;
    s->handles--;
}

/* ---- reserve to committed ---- */
int storage_reserve(struct storage *s, const void *key, size_t key_size, uint64_t size,
                    uint64_t *id)
{
    if (key_size == 0 || key_size > MAX_KEY_SIZE || size == 0)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "an extent for a key of %zu bytes and a value of %llu", key_size,
                         (unsigned long long)size);
    if (size > s->sb.capacity || size > MAX_OBJECT_SIZE)
        return base_fail(YOLK_ERR_TOO_LARGE, 0, "a value of %llu bytes, the tier has %llu",
                         (unsigned long long)size, (unsigned long long)s->sb.capacity);
    const char *reason = storage_unwritable(s);
    if (reason != NULL)
        return base_fail(YOLK_ERR_IO, 0, "%s", reason);
    if (s->map.index_bytes + format_record_size(key_size) > s->index_bytes_max)
        return base_fail(YOLK_ERR_NO_SPACE, 0, "the journal holds no more keys");
    struct extent *e;
    int status = map_take(&s->map, key, key_size, size, &e);
    if (status != YOLK_OK)
        return status == YOLK_ERR_NO_SPACE
                   ? base_fail(status, 0, "no free extent of %llu bytes", (unsigned long long)size)
                   : status;
    s->serial = (s->serial + 1) & ((1u << SERIAL_BITS) - 1);
    e->serial = s->serial;
    e->owned = true;
    s->handles++;
    *id = storage_id_of(s, e);
    return YOLK_OK;
}

int storage_locate(struct storage *s, uint64_t id, struct storage_extent *out)
{
    struct extent *e;
    int status = find_id(s, id, &e);
    if (status == YOLK_OK)
        storage_describe(s, e, out);
    return status;
}

/* Announcing must not fail for memory later. */
static int announce_room(struct storage *s)
{
    size_t need = s->committed_count + (size_t)s->map.counts[EXTENT_WRITTEN] + 1;
    if (need <= s->committed_room)
        return YOLK_OK;
    uint64_t *ids = base_realloc(s->committed, 2 * need * sizeof *ids);
    if (ids == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "committing an extent");
    s->committed = ids;
    s->committed_room = 2 * need;
    return YOLK_OK;
}

static int unproven_room(struct storage *s)
{
    if (s->unproven_count < s->unproven_room)
        return YOLK_OK;
    size_t room = s->unproven_room > 0 ? 2 * s->unproven_room : 64;
    uint64_t *ids = base_realloc(s->unproven, room * sizeof *ids);
    if (ids == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "committing an extent");
    s->unproven = ids;
    s->unproven_room = room;
    return YOLK_OK;
}

static int written(struct storage *s, uint64_t id, uint32_t checksum, bool unchecked)
{
    struct extent *e;
    int status = find_id(s, id, &e);
    if (status == YOLK_OK && e->state != EXTENT_RESERVED)
        status = base_fail(YOLK_ERR_INVALID, 0, "the extent was said to be written twice");
    if (status == YOLK_OK)
        status = announce_room(s);
    if (status == YOLK_OK && unchecked)
        status = unproven_room(s);
    if (status != YOLK_OK)
        return status;
    if (unchecked)
        s->unproven[s->unproven_count++] = id;
    e->checksum = checksum;
    e->unchecked = unchecked;
    map_set_state(&s->map, e, EXTENT_WRITTEN);
    journal_queue(&s->journal, e);
    return YOLK_OK;
}

int storage_written(struct storage *s, uint64_t id, uint32_t checksum)
{
    return written(s, id, checksum, false);
}

int storage_written_unchecked(struct storage *s, uint64_t id)
{
    return (s->sb.incompatible & FORMAT_UNCHECKED_RECORDS) != 0
               ? written(s, id, 0, true)
               : base_fail(YOLK_ERR_UNSUPPORTED, 0, "the file takes no value without a checksum");
}

/* Ours to free when its time has come. */
static void let_go(struct storage *s, struct extent *e)
{
    e->held = false;
    s->held--;
    storage_free_if_over(s, e);
}

int storage_abort(struct storage *s, uint64_t id)
{
    struct extent *e;
    int status = find_id(s, id, &e);
    if (status != YOLK_OK)
        return status;
    end_id(s, e);
    if (e->held) /* doomed by ourselves */
        let_go(s, e);
    else
        storage_doom(s, e);
    return YOLK_OK;
}

int storage_preserve(struct storage *s, uint64_t id)
{
    struct extent *e;
    int status = find_id(s, id, &e);
    if (status == YOLK_OK)
        end_id(s, e);
    return status;
}

bool storage_next_committed(struct storage *s, uint64_t *id, struct storage_extent *out)
{
    while (s->committed_next < s->committed_count) {
        struct extent *e;
        *id = s->committed[s->committed_next++];
        if (find_id(s, *id, &e) != YOLK_OK) /* aborted or preserved meanwhile */
            continue;
        end_id(s, e);
        storage_describe(s, e, out);
        return true;
    }
    s->committed_next = s->committed_count = 0;
    return false;
}

/* ---- the way out ---- */
void storage_doom(struct storage *s, struct extent *e)
{
    enum extent_state was = e->state;
    map_set_state(&s->map, e, EXTENT_DOOMED);
    if (was == EXTENT_RESERVED) { /* nothing of it is on the disk, and nothing of it is queued */
        e->quiet = true;
        storage_free_if_over(s, e);
    } else if (was == EXTENT_COMMITTED) {
        journal_queue(&s->journal, e);
    }
    /* WRITTEN: it is in a list of the journal already; settle() sees to it */
}

static void delete_over(struct storage *s, const struct extent *e)
{
    uint64_t number = s->deletes_done + (uint32_t)(e->serial - (uint32_t)s->deletes_done);
    s->deletes_over[number % s->deletes_room] = 1;
    while (s->deletes_done < s->deletes &&
           s->deletes_over[(s->deletes_done + 1) % s->deletes_room]) {
        s->deletes_done++;
        s->deletes_over[s->deletes_done % s->deletes_room] = 0;
    }
}

void storage_free_if_over(struct storage *s, struct extent *e)
{
    if (!e->quiet || e->held || (e->leases > 0 && !mutated(MUT_REUSE_UNDER_READ)))
        return;
    if (e->numbered)
        delete_over(s, e);
    map_release(&s->map, e);
}

static int deletes_grow(struct storage *s)
{
    uint64_t room = s->deletes_room ? 2 * s->deletes_room : 64;
    uint8_t *over = base_calloc(room, 1);
    if (over == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "deleting an extent");
    for (uint64_t n = s->deletes_done + 1; n <= s->deletes; n++)
        over[n % room] = s->deletes_over[n % s->deletes_room];
    free(s->deletes_over);
    s->deletes_over = over;
    s->deletes_room = room;
    return YOLK_OK;
}

int storage_delete(struct storage *s, uint64_t offset, uint64_t *seq)
{
    struct extent *e = map_at(&s->map, offset);
    if (e == NULL || e->owned || (e->state == EXTENT_DOOMED && !e->held))
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no extent to delete at %llu",
                         (unsigned long long)offset);
    if (s->deletes - s->deletes_done + 2 > s->deletes_room) {
        int status = deletes_grow(s);
        if (status != YOLK_OK)
            return status;
    }
    *seq = ++s->deletes;
    e->serial = (uint32_t)s->deletes;
    e->numbered = true;
    if (e->held)
        let_go(s, e);
    else
        storage_doom(s, e);
    return YOLK_OK;
}

uint64_t storage_deleted(const struct storage *s)
{
    return s->deletes_done;
}

void storage_let_go(struct storage *s)
{
    struct extent *next;
    for (struct extent *e = map_from(&s->map, 0); e != NULL && s->held > 0; e = next) {
        next = map_after(&s->map, e);
        if (e->held && !e->owned)
            let_go(s, e);
    }
}

/* ---- the journal ---- */
static void give_up(struct storage *s, struct extent *e)
{
    e->held = true;
    s->held++;
    s->counts.given_up++;
    storage_doom(s, e);
}

/* A sync failed. What was written after it began is not known to be there either: the system tells
 * of an error once. */
static void give_up_unproven(struct storage *s)
{
    uint64_t before = s->counts.given_up;
    for (size_t i = 0; i < s->unproven_count; i++) {
        uint64_t id = s->unproven[i];
        struct extent *e = map_at(&s->map, (id & ((1ull << PLACE_BITS) - 1)) * FORMAT_BLOCK);
        if (e == NULL || e->serial != id >> PLACE_BITS)
            continue;
        if (e->state == EXTENT_COMMITTED)
            give_up(s, e);
        else
            e->doubted = e->state == EXTENT_WRITTEN;
    }
    s->unproven_count = s->unproven_sync = 0;
    if (s->counts.given_up != before)
        log_warn("%s: a sync failed, so %llu values without a checksum are given up", s->info.path,
                 (unsigned long long)(s->counts.given_up - before));
}

/* What was being written is written: on to the next state. */
static void settle(struct storage *s)
{
    struct journal *j = &s->journal;
    for (struct extent *e; (e = extent_pop(&j->writing)) != NULL;) {
        if (e->state == EXTENT_WRITTEN) {
            map_set_state(&s->map, e, EXTENT_COMMITTED);
            if (e->owned)
                s->committed[s->committed_count++] = storage_id_of(s, e);
            if (e->doubted)
                give_up(s, e);
        } else if (e->erased) {
            extent_push(&j->waiting, e);
        } else if (e->journaled) { /* doomed while its COMMIT record was being written */
            journal_queue(j, e);
        } else { /* doomed before it had a record */
            e->quiet = true;
            storage_free_if_over(s, e);
        }
    }
}

enum storage_step storage_journal_plan(struct storage *s, struct storage_io *io)
{
    enum storage_step step = journal_plan(&s->journal, io);
    if (step == STORAGE_NOTHING)
        settle(s);
    return step;
}

static void failed(struct storage *s, bool *flag, const char *what, int status)
{
    snprintf(s->journal_reason, sizeof s->journal_reason, "%s of the journal failed: %s", what,
             yolk_strerror(status));
    if (!*flag)
        log_warn("%s: %s; it is tried again", s->info.path, s->journal_reason);
    *flag = true;
}

static void worked(struct storage *s, bool *flag)
{
    if (*flag)
        log_info("%s: the journal is written again", s->info.path);
    *flag = false;
}

void storage_journal_done(struct storage *s, int status)
{
    struct journal *j = &s->journal;
    if (status != YOLK_OK) {
        s->counts.journal_errors++;
        failed(s, &s->journal_failed, "a write", status);
        return;
    }
    bool rewritten = j->rewriting;
    s->counts.journal_writes++;
    s->counts.journal_written +=
        (uint64_t)(rewritten ? j->head - j->synced : j->planned) * FORMAT_BLOCK;
    worked(s, &s->journal_failed);
    journal_written(j);
    if (!rewritten)
        settle(s);
}

bool storage_sync_plan(struct storage *s)
{
    if (!journal_sync_plan(&s->journal))
        return false;
    s->unproven_sync = s->unproven_count;
    return true;
}

void storage_sync_done(struct storage *s, int status)
{
    struct journal *j = &s->journal;
    if (status != YOLK_OK) {
        s->counts.sync_errors++;
        failed(s, &s->sync_failed, "a sync", status);
        journal_sync_failed(j);
        give_up_unproven(s);
        return;
    }
    s->counts.syncs++;
    worked(s, &s->sync_failed);
    s->unproven_count -= s->unproven_sync;
    if (s->unproven_count > 0)
        memmove(s->unproven, s->unproven + s->unproven_sync,
                s->unproven_count * sizeof *s->unproven);
    s->unproven_sync = 0;
    bool was = j->other_free;
    journal_synced(j);
    s->counts.checkpoints += j->other_free && !was;
    while (j->waiting.popped < j->sync_waiting) {
        struct extent *e = extent_pop(&j->waiting);
        e->quiet = true;
        storage_free_if_over(s, e);
    }
}

const char *storage_check(struct storage *s)
{
    const char *broken = map_check(&s->map);
    uint64_t leases = 0, handles = 0, listed = 0;
    for (struct extent *e = map_from(&s->map, 0); e != NULL; e = map_after(&s->map, e)) {
        leases += e->leases;
        handles += e->owned;
        listed += e->state == EXTENT_WRITTEN || (e->state == EXTENT_DOOMED && !e->quiet);
        if (e->state == EXTENT_DOOMED && e->quiet && e->leases == 0 && !e->held)
            return "storage: a doomed extent that nothing holds is not free";
    }
    const struct journal *j = &s->journal;
    listed -= (j->queue.pushed - j->queue.popped) + (j->writing.pushed - j->writing.popped) +
              (j->waiting.pushed - j->waiting.popped);
    if (broken == NULL && (leases != s->leases || handles != s->handles))
        broken = "storage: leases or ids differ from their counts";
    if (broken == NULL && listed != 0)
        broken = "storage: an extent is in no list of the journal";
    if (broken == NULL && s->map.index_bytes > s->index_bytes_max)
        broken = "storage: more keys than a checkpoint holds";
    return broken;
}
