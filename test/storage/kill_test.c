/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that works on a real file is killed again and again, at any moment. It tells what was
 * done by a pipe, and the file is compared with that.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"
#include "platform/temporary_kit.h"
#include "storage/storage.h"

#define BLOCK     4096u
#define CAPACITY  (8u << 20)
#define LIVES     100u
#define PLACES    (CAPACITY / BLOCK)
#define VALUE_MAX (4 * BLOCK)

enum said { SAID_COMMITTED, SAID_DELETING, SAID_DELETED };

/* What the child says, in one write each. */
struct word {
    uint32_t said;
    uint32_t checksum;
    uint64_t name, offset, size;
};

/* By place: what the parent knows to be there. */
struct known {
    enum { NOTHING, THERE, PERHAPS } state;
    struct word word;
};

static char path[512], file[600];

static struct storage_options options(void)
{
    return (struct storage_options){.path = path,
                                    .capacity_bytes = CAPACITY,
                                    .journal_bytes = 1u << 20,
                                    .random = random_real()};
}

/* ---- the child ---- */
struct work {
    struct storage *s;
    int out;
    uint64_t name;
    struct word deleting[64]; /* by number of the delete */
    uint64_t deleted;         /* said */
};

static void must(bool good)
{
    if (!good)
        _exit(3);
}

static void say(const struct work *w, struct word word, enum said said)
{
    word.said = said;
    must(write(w->out, &word, sizeof word) == sizeof word);
}

static void put(struct work *w)
{
    static _Alignas(4096) uint8_t bytes[VALUE_MAX];
    uint64_t name = ++w->name, id, size = 1 + base_mix64(name) % VALUE_MAX;
    if (storage_reserve(w->s, &name, sizeof name, size, &id) != YOLK_OK)
        return;
    struct storage_extent e;
    must(storage_locate(w->s, id, &e) == YOLK_OK);
    for (uint64_t i = 0; i < e.allocated; i++)
        bytes[i] = (uint8_t)base_mix64(name + i / 64);
    must(file_pwrite(storage_file(w->s), bytes, e.allocated,
                     storage_info(w->s)->extent_offset + e.offset) == YOLK_OK);
    must(storage_written(w->s, id, base_crc32c(0, bytes, size)) == YOLK_OK);
}

static void journal(struct work *w)
{
    struct storage_io io;
    enum storage_step step = storage_journal_plan(w->s, &io);
    if (step == STORAGE_WRITE)
        storage_journal_done(w->s, file_pwrite(storage_file(w->s), io.data, io.size, io.offset));
    if (step == STORAGE_SYNC_FIRST || base_mix64(w->name) % 8 == 0)
        if (storage_sync_plan(w->s))
            storage_sync_done(w->s, file_fdatasync(storage_file(w->s)));
    uint64_t id;
    struct storage_extent e;
    while (storage_next_committed(w->s, &id, &e)) {
        struct word word = {.checksum = e.checksum, .offset = e.offset, .size = e.size};
        memcpy(&word.name, e.key, sizeof word.name);
        say(w, word, SAID_COMMITTED);
    }
    while (w->deleted < storage_deleted(w->s))
        say(w, w->deleting[++w->deleted % 64], SAID_DELETED);
}

/* Some extent from a drawn place on; at most 60 at a time are on their way out. */
static void delete_one(struct work *w, uint64_t *last)
{
    struct storage_extent e;
    uint64_t cursor = base_mix64(w->name * 3) % PLACES * BLOCK, seq;
    if (*last - w->deleted > 60 || !storage_next(w->s, &cursor, &e))
        return;
    struct word word = {.checksum = e.checksum, .offset = e.offset, .size = e.size};
    memcpy(&word.name, e.key, sizeof word.name);
    say(w, word, SAID_DELETING);
    must(storage_delete(w->s, e.offset, &seq) == YOLK_OK);
    *last = seq;
    w->deleting[seq % 64] = word;
}

static void child(int out, uint64_t name)
{
    struct file_system fs = file_system_real();
    struct storage_options how = options();
    struct work w = {.out = out, .name = name};
    must(storage_open(&fs, &how, &w.s) == YOLK_OK);
    for (uint64_t last = 0;;) {
        for (unsigned i = 0; i < 1 + w.name % 5; i++)
            put(&w);
        journal(&w);
        struct storage_stats stats;
        storage_stats(w.s, &stats);
        for (unsigned i = 0; stats.free_bytes < CAPACITY / 4 && i < 4; i++)
            delete_one(&w, &last);
        w.name += 1; /* so that a full tier does not ask the same again */
    }
}

/* ---- the parent ---- */
static void hear(struct known *known, const struct word *word)
{
    struct known *k = &known[word->offset / BLOCK];
    k->word = *word;
    k->state = word->said == SAID_COMMITTED  ? THERE
               : word->said == SAID_DELETING ? PERHAPS
                                             : NOTHING;
}

static void line(void *self, const char *text)
{
    (void)self;
    print_error("fsck: %s\n", text);
}

static void compare(struct known *known)
{
    struct file_system fs = file_system_real();
    struct storage_fsck_report report;
    assert_int_equal(storage_fsck(&fs, file, true, line, NULL, &report), YOLK_OK);
    assert_int_equal(report.differences, 0);
    struct storage_options how = options();
    struct storage *s;
    assert_int_equal(storage_open(&fs, &how, &s), YOLK_OK);
    assert_int_equal(storage_info(s)->slot, 0);
    assert_int_equal(storage_info(s)->damaged + storage_info(s)->dropped, 0);
    assert_null(storage_check(s));
    uint64_t cursor = 0;
    struct storage_extent e;
    struct known now[PLACES];
    memset(now, 0, sizeof now);
    while (storage_next(s, &cursor, &e)) {
        struct known *k = &now[e.offset / BLOCK];
        k->state = THERE;
        k->word = (struct word){.checksum = e.checksum, .offset = e.offset, .size = e.size};
        memcpy(&k->word.name, e.key, sizeof k->word.name);
    }
    for (unsigned i = 0; i < PLACES; i++) {
        const struct word *a = &known[i].word, *b = &now[i].word;
        bool same = now[i].state == THERE && a->name == b->name && a->size == b->size &&
                    a->checksum == b->checksum;
        if (known[i].state == THERE && !same)
            fail_msg("what was committed at block %u is lost", i);
        if (known[i].state == NOTHING && known[i].word.size > 0 && same)
            fail_msg("what was deleted at block %u is back", i);
    }
    memcpy(known, now, sizeof now); /* more may be there than was said: committed, not yet told */
    storage_abandon(s);
}

static void survives_kills(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "yolk-kill-%d", (int)getpid());
    temporary_path(path);
    snprintf(file, sizeof file, "%s.slot0", path);
    static struct known known[PLACES];
    uint64_t name = 0, committed = 0;
    for (unsigned life = 0; life < LIVES; life++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            child(ends[1], name);
        }
        close(ends[1]);
        struct word word;
        /* Killed after a drawn number of words, wherever it then is; then the rest of what it said.
         */
        uint64_t until = base_mix64(life + 1) % (life % 4 == 0 ? 900 : 60);
        for (uint64_t n = 0; n <= until && read(ends[0], &word, sizeof word) == sizeof word; n++) {
            hear(known, &word);
            name = word.name > name ? word.name : name;
            committed += word.said == SAID_COMMITTED;
        }
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(ends[0], &word, sizeof word) == sizeof word) {
            hear(known, &word);
            name = word.name > name ? word.name : name;
        }
        close(ends[0]);
        name += 1000; /* names of values that it did not come to speak of */
        compare(known);
    }
    print_message("%u lives, %llu commits\n", LIVES, (unsigned long long)committed);
    unlink(file);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
