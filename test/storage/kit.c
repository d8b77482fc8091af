/* SPDX-License-Identifier: Apache-2.0 */
#include "kit.h"

#include <stdio.h>

#include "base/crc32c.h"
#include "base/hash.h"

#define BLOCK 4096u

void kit_init(struct kit *kit, uint64_t seed, uint64_t capacity)
{
    *kit = (struct kit){.disk = disk_create()};
    kit->fs = disk_system(kit->disk);
    random_sim_init(&kit->seeded, seed);
    kit->random = random_sim_random(&kit->seeded);
    kit->options = (struct storage_options){
        .path = KIT_PATH, .capacity_bytes = capacity, .random = kit->random};
}

void kit_free(struct kit *kit)
{
    if (kit->s != NULL)
        storage_abandon(kit->s);
    free(kit->items);
    disk_destroy(kit->disk);
}

void kit_open(struct kit *kit)
{
    int status = storage_open(&kit->fs, &kit->options, &kit->s);
    if (status != YOLK_OK)
        print_error("open: %s\n", yolk_last_error());
    assert_int_equal(status, YOLK_OK);
}

void kit_close(struct kit *kit)
{
    for (size_t i = 0; i < kit->count; i++)
        if (kit->items[i].owned) {
            assert_int_equal(storage_abort(kit->s, kit->items[i].id), YOLK_OK);
            kit->items[i].owned = false;
        }
    if (kit->writing)
        kit_journal_end(kit);
    if (kit->syncing)
        kit_sync_end(kit);
    assert_int_equal(storage_close(kit->s), YOLK_OK);
    kit->s = NULL;
}

uint64_t kit_below(struct kit *kit, uint64_t bound)
{
    return random_below(&kit->random, bound);
}

/* The value of the n-th item: told apart from all others in each block. */
static void fill(uint8_t *to, uint64_t size, uint64_t n)
{
    for (uint64_t at = 0; at < size; at++)
        to[at] = (uint8_t)(base_mix64(n * 1000003 + at / 8) >> (at % 8 * 8));
}

struct item *kit_reserve(struct kit *kit, uint64_t size)
{
    if (kit->count == kit->room) {
        kit->room = kit->room ? 2 * kit->room : 64;
        kit->items = realloc(kit->items, kit->room * sizeof *kit->items);
        assert_non_null(kit->items);
    }
    struct item *item = &kit->items[kit->count];
    *item = (struct item){.size = size,
                          .owned = true,
                          .committed_at = NEVER,
                          .synced_at = NEVER,
                          .said_at = NEVER,
                          .written_at = NEVER,
                          .delete_at = NEVER,
                          .deleted_at = NEVER};
    unsigned key = (unsigned)kit_below(kit, KIT_KEYS);
    item->key_size =
        (size_t)snprintf(item->key, sizeof item->key, "key %u%*s", key, (int)(key % 40), "");
    int status = storage_reserve(kit->s, item->key, item->key_size, size, &item->id);
    if (status != YOLK_OK) {
        assert_int_equal(status, YOLK_ERR_NO_SPACE);
        return NULL;
    }
    struct storage_extent e;
    assert_int_equal(storage_locate(kit->s, item->id, &e), YOLK_OK);
    item->offset = e.offset;
    assert_int_equal(e.size, size);
    assert_int_equal(e.allocated, (size + BLOCK - 1) / BLOCK * BLOCK);
    kit->count++;
    return item;
}

void kit_write(struct kit *kit, struct item *item)
{
    uint64_t padded = (item->size + BLOCK - 1) / BLOCK * BLOCK;
    uint8_t *bytes = aligned_alloc(BLOCK, padded);
    assert_non_null(bytes);
    memset(bytes, 0, padded);
    fill(bytes, item->size, (uint64_t)(item - kit->items));
    item->unchecked = kit->options.unchecked && kit_below(kit, 3) == 0;
    item->crc = item->unchecked ? 0 : base_crc32c(0, bytes, item->size);
    assert_int_equal(file_pwrite(storage_file(kit->s), bytes, padded,
                                 storage_info(kit->s)->extent_offset + item->offset),
                     YOLK_OK);
    free(bytes);
    assert_int_equal(item->unchecked ? storage_written_unchecked(kit->s, item->id)
                                     : storage_written(kit->s, item->id, item->crc),
                     YOLK_OK);
    item->written_at = disk_events(kit->disk);
}

bool kit_journal_begin(struct kit *kit)
{
    kit->writing = storage_journal_plan(kit->s, &kit->io) == STORAGE_WRITE;
    for (size_t i = 0; kit->writing && i < kit->count; i++)
        kit->items[i].said = kit->items[i].synced_once && !kit->sync_failed;
    return kit->writing;
}

static struct item *by_id(struct kit *kit, uint64_t id)
{
    for (size_t i = kit->count; i-- > 0;)
        if (kit->items[i].id == id && kit->items[i].owned)
            return &kit->items[i];
    return NULL; /* one that a test reserved by itself */
}

void kit_journal_end(struct kit *kit)
{
    kit->writing = false;
    int status = file_pwrite(storage_file(kit->s), kit->io.data, kit->io.size, kit->io.offset);
    storage_journal_done(kit->s, status);
    for (size_t i = 0; status == YOLK_OK && i < kit->count; i++)
        if (kit->items[i].said && kit->items[i].said_at == NEVER)
            kit->items[i].said_at = disk_events(kit->disk);
    kit->sync_failed &= status != YOLK_OK;
    uint64_t id;
    struct storage_extent e;
    while (storage_next_committed(kit->s, &id, &e)) {
        struct item *item = by_id(kit, id);
        if (item == NULL)
            continue;
        assert_int_equal(e.offset, item->offset);
        assert_int_equal(e.size, item->size);
        assert_int_equal(e.checksum, item->crc);
        assert_int_equal(e.key_size, item->key_size);
        assert_memory_equal(e.key, item->key, item->key_size);
        item->owned = false;
        item->committed = true;
        item->committed_at = disk_events(kit->disk);
    }
}

bool kit_sync_begin(struct kit *kit)
{
    kit->syncing = storage_sync_plan(kit->s);
    kit->sync_from = disk_events(kit->disk);
    return kit->syncing;
}

/* What no sync has proven must not be found from now on. */
static void give_up(struct kit *kit)
{
    for (size_t i = 0; i < kit->count; i++) {
        struct item *item = &kit->items[i];
        if (!item->unchecked || item->written_at == NEVER || item->proven || item->given_up)
            continue;
        item->given_up = true;
        if (item->delete_at == NEVER)
            item->delete_at = disk_events(kit->disk);
    }
}

void kit_sync_end(struct kit *kit)
{
    kit->syncing = false;
    int status = file_fdatasync(storage_file(kit->s));
    storage_sync_done(kit->s, status);
    if (status != YOLK_OK) {
        kit->sync_failed = true;
        give_up(kit);
        return;
    }
    size_t now = disk_events(kit->disk);
    for (size_t i = 0; i < kit->count; i++) {
        struct item *item = &kit->items[i];
        bool covered = item->committed_at <= kit->sync_from;
        bool proven = !item->unchecked || item->said_at <= kit->sync_from;
        item->synced_once |= covered;
        item->proven |= item->written_at <= kit->sync_from;
        if (covered && proven && item->synced_at == NEVER)
            item->synced_at = now;
        if (item->delete_seq != 0 && item->deleted_at == NEVER &&
            item->delete_seq <= storage_deleted(kit->s))
            item->deleted_at = now;
    }
}

void kit_delete(struct kit *kit, struct item *item)
{
    assert_int_equal(storage_delete(kit->s, item->offset, &item->delete_seq), YOLK_OK);
    if (!item->given_up)
        item->delete_at = disk_events(kit->disk);
}

void kit_settle(struct kit *kit)
{
    for (;;) {
        if (kit->writing)
            kit_journal_end(kit);
        if (kit->syncing)
            kit_sync_end(kit);
        if (!kit_journal_begin(kit) && !kit_sync_begin(kit))
            break;
    }
    for (size_t i = 0; i < kit->count; i++)
        if (kit->items[i].committed && kit->items[i].synced_at == NEVER && !kit->items[i].given_up)
            fail_msg("item %zu was not made to last, and nothing is to do", i);
}

struct item *kit_put(struct kit *kit, uint64_t size)
{
    struct item *item = kit_reserve(kit, size);
    assert_non_null(item);
    size_t index = (size_t)(item - kit->items);
    kit_write(kit, item);
    kit_settle(kit);
    item = &kit->items[index];
    assert_true(item->committed && item->synced_at != NEVER);
    return item;
}

static struct item *any(struct kit *kit, bool owned)
{
    if (kit->count == 0)
        return NULL;
    size_t start = (size_t)kit_below(kit, kit->count);
    for (size_t i = 0; i < kit->count; i++) {
        struct item *item = &kit->items[(start + i) % kit->count];
        if (owned ? item->owned : item->committed && item->delete_seq == 0)
            return item;
    }
    return NULL;
}

struct item *kit_any_committed(struct kit *kit)
{
    return any(kit, false);
}

void kit_step(struct kit *kit)
{
    struct item *item;
    switch (kit_below(kit, 8)) {
    case 0:
    case 1:
        item = kit_reserve(kit, 1 + kit_below(kit, 3 * BLOCK));
        if (item != NULL && kit_below(kit, 8) != 0)
            kit_write(kit, item);
        break;
    case 2:
        item = any(kit, true);
        if (item != NULL && kit_below(kit, 4) == 0) {
            assert_int_equal(storage_abort(kit->s, item->id), YOLK_OK);
            item->owned = false;
        }
        break;
    case 3:
        item = kit_any_committed(kit);
        if (item != NULL)
            kit_delete(kit, item);
        break;
    case 4:
        if (!kit->syncing && kit_below(kit, 2) == 0)
            kit_sync_begin(kit);
        break;
    case 5:
        if (kit->syncing)
            kit_sync_end(kit);
        break;
    default:
        if (kit->writing)
            kit_journal_end(kit);
        else
            kit_journal_begin(kit);
    }
}

bool kit_bytes_right(struct kit *kit, struct storage *s, const struct storage_extent *e)
{
    uint8_t *bytes = aligned_alloc(BLOCK, e->allocated), *right = malloc(e->size);
    assert_true(bytes != NULL && right != NULL);
    size_t got;
    assert_int_equal(file_pread(storage_file(s), bytes, e->allocated,
                                storage_info(s)->extent_offset + e->offset, &got),
                     YOLK_OK);
    bool found = false;
    for (size_t i = 0; i < kit->count && !found; i++) {
        const struct item *item = &kit->items[i];
        if (item->crc != e->checksum || item->size != e->size || item->key_size != e->key_size ||
            memcmp(item->key, e->key, e->key_size) != 0)
            continue;
        fill(right, e->size, i);
        found = memcmp(right, bytes, e->size) == 0;
    }
    free(bytes);
    free(right);
    return found;
}

struct storage_stats kit_stats(struct kit *kit)
{
    struct storage_stats out;
    storage_stats(kit->s, &out);
    return out;
}

void kit_check(struct kit *kit)
{
    const char *broken = storage_check(kit->s);
    if (broken != NULL)
        fail_msg("%s", broken);
    for (size_t i = 0; i < kit->count; i++) {
        const struct item *item = &kit->items[i];
        if (item->given_up && item->committed &&
            storage_lease(kit->s, item->offset, item->size,
                          base_hash64(item->key, item->key_size)) == YOLK_OK)
            fail_msg("item %zu is read although a sync failed that had to prove it", i);
    }
}

uint8_t *kit_good_file(struct kit *kit, uint64_t *size)
{
    kit_open(kit);
    for (unsigned i = 0; i < 5; i++)
        kit_put(kit, 5000);
    kit_close(kit);
    return disk_bytes(kit->disk, KIT_SLOT0, size);
}
