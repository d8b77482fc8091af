/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of all calls, with closes and kills between, against the plain list of the kit.
 */
#include "kit.h"

#include "base/hash.h"
#include "base/log.h"

#define CAPACITY (512u << 10)
#define BLOCK    4096u

static uint64_t allocated(const struct item *item)
{
    return (item->size + BLOCK - 1) / BLOCK * BLOCK;
}

/* Does its space certainly belong to it? A deleted one without a lease may be on its way. */
static bool holds_space(const struct item *item)
{
    return item->owned || (item->committed && (item->delete_seq == 0 || item->leases > 0));
}

static void compare(struct kit *kit)
{
    const char *broken = storage_check(kit->s);
    if (broken != NULL)
        fail_msg("%s", broken);
    struct storage_stats stats;
    storage_stats(kit->s, &stats);
    uint64_t committed = 0, bytes = 0, owned = 0, leases = 0, held = 0;
    static uint8_t map[CAPACITY / BLOCK];
    memset(map, 0, sizeof map);
    for (size_t i = 0; i < kit->count; i++) {
        const struct item *item = &kit->items[i];
        owned += item->owned;
        leases += item->leases;
        if (item->committed && item->delete_seq == 0) {
            committed++;
            bytes += allocated(item);
        }
        if (!holds_space(item))
            continue;
        held += allocated(item);
        for (uint64_t at = 0; at < allocated(item); at += BLOCK)
            if (map[(item->offset + at) / BLOCK]++ != 0)
                fail_msg("two items at block %u", (unsigned)((item->offset + at) / BLOCK));
    }
    assert_int_equal(stats.committed, committed);
    assert_int_equal(stats.committed_bytes, bytes);
    assert_int_equal(stats.handles, owned);
    assert_int_equal(stats.leases, leases);
    /* The rest is doomed: deleted, or aborted after a record was under way. */
    assert_true(stats.free_bytes + held <= CAPACITY);

    uint64_t cursor = 0, listed = 0, last = 0;
    struct storage_extent e;
    while (storage_next(kit->s, &cursor, &e)) {
        assert_true(listed == 0 || e.offset > last);
        last = e.offset;
        listed++;
    }
    assert_int_equal(listed, committed);
}

static void look_up(struct kit *kit)
{
    struct item *item = kit_any_committed(kit);
    struct storage_extent e;
    if (item == NULL)
        return;
    assert_int_equal(storage_find(kit->s, item->key, item->key_size, &e), YOLK_OK);
    assert_int_equal(e.key_size, item->key_size);
    assert_memory_equal(e.key, item->key, item->key_size);
    uint64_t hash = base_hash64(item->key, item->key_size);
    assert_int_equal(storage_lease(kit->s, item->offset, item->size + 1, hash), YOLK_ERR_STALE);
    assert_int_equal(storage_lease(kit->s, item->offset, item->size, hash), YOLK_OK);
    item->leases++;
    assert_true(kit_bytes_right(kit, kit->s, &e));
}

static void end_lease(struct kit *kit)
{
    size_t start = kit->count > 0 ? (size_t)kit_below(kit, kit->count) : 0;
    for (size_t i = 0; i < kit->count; i++) {
        struct item *item = &kit->items[(start + i) % kit->count];
        if (item->leases == 0)
            continue;
        /* Even a deleted one still has its bytes. */
        struct storage_extent e = {.key = (const uint8_t *)item->key,
                                   .key_size = item->key_size,
                                   .offset = item->offset,
                                   .size = item->size,
                                   .allocated = allocated(item),
                                   .checksum = item->crc};
        assert_true(kit_bytes_right(kit, kit->s, &e));
        storage_unlease(kit->s, item->offset);
        item->leases--;
        return;
    }
}

/* A new life: what the list says of the old one's ids and leases is over, and of what was under way
 * the file is asked. */
static void live_again(struct kit *kit, bool kill)
{
    for (size_t i = 0; i < kit->count; i++)
        while (kit->items[i].leases > 0) {
            if (!kill)
                storage_unlease(kit->s, kit->items[i].offset);
            kit->items[i].leases--;
        }
    if (kill) {
        disk_kill(kit->disk);
        storage_abandon(kit->s);
        kit->writing = kit->syncing = false;
    } else {
        kit_close(kit);
    }
    kit_open(kit);
    assert_int_equal(storage_info(kit->s)->clean, !kill);
    assert_int_equal(storage_info(kit->s)->damaged + storage_info(kit->s)->dropped, 0);
    for (size_t i = 0; i < kit->count; i++) {
        struct item *item = &kit->items[i];
        uint64_t cursor = item->offset;
        struct storage_extent e;
        bool there = storage_next(kit->s, &cursor, &e) && e.offset == item->offset &&
                     e.checksum == item->crc;
        if (item->committed && item->delete_seq == 0)
            assert_true(there);
        else if (item->committed && item->deleted_at != NEVER)
            assert_false(there);
        if (there) /* perhaps a delete that was not acknowledged */
            item->delete_seq = 0;
        else if (item->delete_seq != 0)
            item->deleted_at = 0;
        item->committed = there;
        item->owned = false;
    }
}

static void random_sequences(void **state)
{
    (void)state;
    uint64_t lives = 0, checkpoints = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct kit kit;
        kit_init(&kit, seed, CAPACITY);
        kit.options.journal_bytes = 1u << 20;
        kit_open(&kit);
        for (unsigned i = 0; i < 12000; i++) {
            uint64_t draw = kit_below(&kit, 400);
            if (draw == 0) {
                struct storage_stats stats;
                storage_stats(kit.s, &stats);
                checkpoints += stats.checkpoints;
                live_again(&kit, kit_below(&kit, 2) == 0);
                lives++;
            } else if (draw < 30) {
                look_up(&kit);
            } else if (draw < 60) {
                end_lease(&kit);
            } else {
                kit_step(&kit);
            }
            if (draw % 20 == 0)
                compare(&kit);
        }
        live_again(&kit, false);
        compare(&kit);
        kit_free(&kit);
    }
    assert_true(lives > 50);
    assert_true(checkpoints > 3);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
