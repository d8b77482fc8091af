/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs are recorded, and cut off after every event; of the writes that no sync covered then, every
 * subset reaches the disk if they are up to six, beyond that seeded choices of them, some torn. The
 * order of two writes matters only where they overlap (a value into the place of an aborted one);
 * there both orders are tried. What recovery then finds is compared with the account of the run.
 */
#include "kit.h"

#include <malloc.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"

#define CAPACITY (256u << 10)
#define EVERY    6u /* unsynced writes up to which all subsets are tried */

/* The address sanitizer makes each disk ten times as slow, so fewer are drawn with it: the full
 * number is tried without. */
#if defined(__SANITIZE_ADDRESS__)
enum { SHARE = 5 };
#else
enum { SHARE = 1 };
#endif

struct crash {
    struct kit *run; /* recorded */
    struct disk *disk;
    size_t cut;       /* events that happened */
    size_t last_sync; /* of those, up to the last sync */
    bool killed;      /* all writes are there: only the process died */
    uint64_t images;
};

static bool must_exist(const struct crash *c, const struct item *item)
{
    size_t safe = c->killed ? item->committed_at : item->synced_at;
    return safe <= c->cut && item->delete_at >= c->cut;
}

static bool same(const struct item *item, const struct storage_extent *e)
{
    return item->offset == e->offset && item->size == e->size && item->crc == e->checksum &&
           item->key_size == e->key_size && memcmp(item->key, e->key, e->key_size) == 0;
}

static void compare(struct crash *c, struct storage *s)
{
    struct kit *run = c->run;
    bool *found = calloc(run->count, sizeof *found);
    assert_non_null(found);
    uint64_t cursor = 0, bytes = 0;
    struct storage_extent e;
    while (storage_next(s, &cursor, &e)) {
        assert_true(kit_bytes_right(run, s, &e));
        size_t i = 0;
        while (i < run->count && (found[i] || !same(&run->items[i], &e)))
            i++;
        if (i == run->count)
            fail_msg("event %zu: an extent that nobody put there is found", c->cut);
        if (run->items[i].deleted_at <= c->cut)
            fail_msg("event %zu: item %zu is back from the dead", c->cut, i);
        found[i] = true;
        bytes += e.allocated;
    }
    for (size_t i = 0; i < run->count; i++)
        if (must_exist(c, &run->items[i]) && !found[i])
            fail_msg("event %zu: item %zu is lost%s", c->cut, i, c->killed ? " by a kill" : "");
    free(found);
    struct storage_stats stats;
    storage_stats(s, &stats);
    assert_int_equal(stats.free_bytes + bytes, stats.capacity);
    assert_int_equal(stats.doomed + stats.reserved + stats.written, 0);
    const char *broken = storage_check(s);
    if (broken != NULL)
        fail_msg("event %zu: %s", c->cut, broken);
}

static void say(void *self, const char *line)
{
    const struct crash *c = self;
    print_error("event %zu, fsck: %s\n", c->cut, line);
}

static void fsck_is_clean(struct crash *c, struct file_system *fs, bool data)
{
    struct storage_fsck_report report;
    assert_int_equal(storage_fsck(fs, KIT_SLOT0, data, say, c, &report), YOLK_OK);
    assert_int_equal(report.differences, 0);
}

/* The disk of the crash is made. Recovery, and then once more after a crash within it. */
static void recover(struct crash *c, unsigned depth)
{
    struct file_system fs = disk_system(c->disk);
    struct storage *s;
    c->images++;
    if (!disk_has(c->disk, KIT_SLOT0)) /* cut off while it was made: it is made now */
        assert_true(c->last_sync < 8);
    else
        fsck_is_clean(c, &fs, c->killed);
    struct disk *before = depth > 0 ? disk_copy(c->disk) : NULL;
    if (depth > 0)
        disk_record(c->disk);
    struct storage_options options = c->run->options;
    options.boot[1] = !c->killed; /* within one life of the machine recovery is killed only */
    int status = storage_open(&fs, &options, &s);
    if (status != YOLK_OK)
        fail_msg("event %zu: %s", c->cut, yolk_last_error());
    assert_int_equal(storage_info(s)->damaged, 0);
    if (c->killed)
        assert_int_equal(storage_info(s)->dropped, 0);
    compare(c, s);
    storage_abandon(s);
    disk_kill(c->disk);
    fsck_is_clean(c, &fs, true);
    if (depth == 0)
        return;
    struct disk *first = c->disk;
    for (size_t cut = 0; cut < disk_events(first); cut++) {
        c->disk = disk_copy(before);
        for (size_t i = 0; i < cut; i++)
            disk_apply(c->disk, disk_event(first, i));
        bool killed = c->killed;
        recover(c, depth - 1);
        c->killed = killed;
        disk_destroy(c->disk);
    }
    c->disk = first;
    disk_destroy(before);
}

/* ---- what a crash leaves ---- */
static bool overlap(const struct disk_event *a, const struct disk_event *b)
{
    return a->file == b->file && a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

/* The unsynced writes at the cut. Renames and sizes count as durable at once (the file service
 * syncs the folder, and sizes are set before a sync that all else waits for). */
static size_t unsynced(const struct crash *c, const struct disk_event **out, size_t room)
{
    size_t count = 0;
    for (size_t i = c->last_sync; i < c->cut; i++) {
        const struct disk_event *event = disk_event(c->run->disk, i);
        if (event->kind != DISK_WRITE)
            continue;
        assert_true(count < room);
        out[count++] = event;
    }
    return count;
}

/* A copy of the disk at the last sync, with what needs no sync. */
static void make_disk(struct crash *c, const struct disk *base)
{
    c->disk = disk_copy(base);
    for (size_t i = c->last_sync; i < c->cut; i++)
        if (disk_event(c->run->disk, i)->kind != DISK_WRITE)
            disk_apply(c->disk, disk_event(c->run->disk, i));
}

/* The chosen writes; with `late`, those that a later one overlaps reach the disk after it. */
static void with(struct crash *c, const struct disk *base, const struct disk_event **events,
                 size_t count, uint64_t chosen, bool late, unsigned depth)
{
    make_disk(c, base);
    for (size_t i = 0; i < count; i++)
        if (c->killed || chosen >> i & 1)
            disk_apply(c->disk, events[i]);
    for (size_t i = 0; late && i < count; i++)
        for (size_t n = i + 1; n < count; n++)
            if (chosen >> i & chosen >> n & 1 && overlap(events[i], events[n]))
                disk_apply(c->disk, events[i]);
    recover(c, depth);
    disk_destroy(c->disk);
}

/* Each write in full, torn or not at all, in an order that is drawn too. */
static void with_luck(struct crash *c, const struct disk *base, const struct disk_event **events,
                      size_t count, struct random *luck, unsigned depth)
{
    make_disk(c, base);
    for (size_t left = count; left > 0; left--) {
        size_t i = (size_t)random_below(luck, left);
        const struct disk_event *event = events[i];
        events[i] = events[left - 1];
        events[left - 1] = event;
        uint64_t how = random_below(luck, 4);
        if (how > 0)
            disk_apply_torn(c->disk, event, how == 1 ? random_u64(luck) : UINT64_MAX);
    }
    recover(c, depth);
    disk_destroy(c->disk);
}

static bool any_overlap(const struct disk_event **events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t n = i + 1; n < count; n++)
            if (overlap(events[i], events[n]))
                return true;
    return false;
}

struct plan {
    size_t from, to;    /* cuts that are tried */
    unsigned seeded;    /* choices at each cut with more than six unsynced writes */
    unsigned deep_each; /* at every so many cuts recovery is crashed too; 0: never */
};

static uint64_t crash_everywhere(struct kit *run, const struct plan *plan)
{
    struct crash c = {.run = run};
    struct disk *base = disk_create();
    struct random_sim seeded;
    random_sim_init(&seeded, 4711);
    struct random luck = random_sim_random(&seeded);
    static const struct disk_event *events[4096];
    size_t applied = 0;
    for (c.cut = 0; c.cut <= disk_events(run->disk) && c.cut <= plan->to; c.cut++) {
        if (c.cut > 0 && disk_event(run->disk, c.cut - 1)->kind == DISK_SYNC)
            c.last_sync = c.cut;
        for (; applied < c.last_sync; applied++)
            disk_apply(base, disk_event(run->disk, applied));
        if (c.cut < plan->from)
            continue;
        unsigned depth = plan->deep_each > 0 && c.cut % plan->deep_each == 0;
        size_t count = unsynced(&c, events, 4096);
        c.killed = true;
        with(&c, base, events, count, 0, false, depth);
        c.killed = false;
        if (count > EVERY) {
            for (unsigned i = 0; i < plan->seeded; i++)
                with_luck(&c, base, events, count, &luck, depth && i == 0);
            continue;
        }
        for (uint64_t chosen = 0; chosen < 1ull << count; chosen++)
            with(&c, base, events, count, chosen, false, 0);
        for (uint64_t chosen = 0; any_overlap(events, count) && chosen < 1ull << count; chosen++)
            with(&c, base, events, count, chosen, true, 0);
    }
    disk_destroy(base);
    return c.images;
}

/* ---- the runs ---- */
static void begin(struct kit *run, uint64_t seed)
{
    kit_init(run, seed, CAPACITY);
    run->options.journal_bytes = 1u << 20;
    run->options.unchecked = true;
    run->options.boot[0] = 1;
    disk_record(run->disk);
    kit_open(run);
}

/* Each step of each transition, with few writes between the syncs, from the making of the file. */
static void every_subset_of_a_short_run(void **state)
{
    (void)state;
    struct kit run;
    begin(&run, 21);
    for (unsigned i = 0; i < 330; i++) {
        kit_step(&run);
        if (i % 10 == 9)
            kit_settle(&run);
    }
    kit_close(&run);
    uint64_t images = crash_everywhere(
        &run, &(struct plan){.to = NEVER, .seeded = 50 / SHARE, .deep_each = 5 * SHARE});
    print_message("%zu events, %llu disks\n", disk_events(run.disk), (unsigned long long)images);
    assert_true(images > 1500 / SHARE);
    kit_free(&run);
}

/* Few syncs: many writes to choose from. */
static void seeded_choices_of_a_wild_run(void **state)
{
    (void)state;
    struct kit run;
    begin(&run, 22);
    for (unsigned i = 0; i < 720; i++)
        kit_step(&run);
    kit_close(&run);
    uint64_t images = crash_everywhere(
        &run, &(struct plan){.to = NEVER, .seeded = 260 / SHARE, .deep_each = 40 * SHARE});
    print_message("%zu events, %llu disks\n", disk_events(run.disk), (unsigned long long)images);
    assert_true(images > 10000 / SHARE);
    kit_free(&run);
}

/* The turn to the other area and its checkpoint until that is complete and on stable media, with
 * everything before and after it. */
static void around_a_checkpoint(void **state)
{
    (void)state;
    struct kit run;
    begin(&run, 23);
    struct storage_stats stats = {0};
    size_t turn = 0, end = 0;
    for (unsigned i = 0; i < 5000 && end == 0; i++) {
        size_t events = disk_events(run.disk);
        kit_step(&run);
        uint64_t area = (run.io.offset - 65536) >> 20;
        if (turn == 0 && run.io.size > 0 && area == 0)
            turn = events;
        storage_stats(run.s, &stats);
        if (stats.checkpoints > 0)
            end = disk_events(run.disk);
    }
    assert_true(turn > 0 && end > turn);
    for (unsigned i = 0; i < 40; i++)
        kit_step(&run);
    uint64_t images = crash_everywhere(
        &run, &(struct plan){
                  .from = turn - 10, .to = NEVER, .seeded = 60 / SHARE, .deep_each = 4 * SHARE});
    print_message("events %zu to %zu, %llu disks\n", turn, end, (unsigned long long)images);
    assert_true(images > 500 / SHARE);
    kit_free(&run);
}

/* A failed sync and failed writes in between. */
static void after_errors_of_the_disk(void **state)
{
    (void)state;
    struct kit run;
    begin(&run, 24);
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned n = 0; n < 20; n++) {
            if (storage_unwritable(run.s) == NULL)
                kit_step(&run);
        }
        if (i % 3 == 2)
            disk_fail_syncs(run.disk, 0, 1 + (unsigned)kit_below(&run, 2));
        kit_settle(&run);
        assert_null(storage_unwritable(run.s));
    }
    kit_close(&run);
    crash_everywhere(&run, &(struct plan){.to = NEVER, .seeded = 10 / SHARE});
    kit_free(&run);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    /* Thousands of disks come and go: not through the kernel. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_subset_of_a_short_run),
        cmocka_unit_test(seeded_choices_of_a_wild_run),
        cmocka_unit_test(around_a_checkpoint),
        cmocka_unit_test(after_errors_of_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
