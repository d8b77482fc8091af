/* SPDX-License-Identifier: Apache-2.0 */
/* A client with a GDS file is killed at each step of its puts, and another one opens the file:
 * nothing is lost that was put, no byte is wrong, and no extent is taken by what is not there. */
#include "gds_kit.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../torture/faults.h"
#include "platform/file.h"
#include "storage/storage.h"

enum { MEMORY = 2 << 20, FILE_BYTES = 16 << 20, UNIT = 4096, PUTS = 6, OLD = 3 };
#define ALLOCATED ((GDS_SIZE + UNIT - 1) / UNIT * UNIT)

/* ---- the one that is killed: PROGRAM child FOLDER WHAT N ---- */

/* "put KEY", "is KEY", "gone KEY": what its caller knows. */
static void say(const char *what, uint64_t key)
{
    printf("%s %" PRIu64 "\n", what, key);
    fflush(stdout);
}

static void arm(const char *what, const char *nth)
{
    char command[128];
    if (strcmp(what, "file") == 0) {
        faults_kill(FAULT_FILE, strtoull(nth, NULL, 10));
        return;
    }
    snprintf(command, sizeof(command), "fail %s %s -9", what, nth);
    gds_kit_fake(command);
}

static int child(char **argv)
{
    struct gds_world w;
    struct yolk_store_options options;
    memset(&w, 0, sizeof(w));
    snprintf(w.path, sizeof(w.path), "%s/values", argv[2]);
    if (cli_gpu_open(0, GDS_BATCH * GDS_SIZE, &w.gpu) != YOLK_OK)
        return 2;
    w.host = malloc(GDS_BATCH * GDS_SIZE);
    gds_options(&w, &options, NULL, MEMORY, FILE_BYTES);
    struct yolk_store *store = gds_open_with(&w, &options);
    for (uint64_t key = 0; key < OLD; key++)
        if (gds_put(&w, store, key) == GDS_SIZE)
            say("is", key);
    arm(argv[3], argv[4]);
    for (uint64_t key = OLD; key < OLD + PUTS; key++) {
        say("put", key);
        if (gds_put(&w, store, key) == GDS_SIZE)
            say("is", key);
    }
    uint64_t gone = 1;
    struct yolk_kv kv = {.key = &gone, .key_size = sizeof(gone)};
    say("remove", gone);
    if (yolk_store_remove(store, &kv, 1, 1) == YOLK_OK)
        say("gone", gone);
    faults_disarm();
    gds_kit_fake("reset");
    gds_close(&w, store);
    cli_gpu_close(w.gpu);
    free(w.host);
    say("end", 0);
    return 0;
}

/* ---- the one that finds the file ---- */

struct known {
    bool is[OLD + PUTS]; /* its put was answered */
    bool gone;           /* key 1: its removal was asked for */
    bool ended;          /* nothing killed it */
};

static const char *program;

static void run_child(struct gds_world *w, const char *what, unsigned nth, struct known *known)
{
    char command[1400], line[64];
    memset(known, 0, sizeof(*known));
    snprintf(command, sizeof(command), "exec %s child %s %s %u", program, w->folder, what, nth);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof(line), out) != NULL) {
        char word[16];
        uint64_t key;
        if (sscanf(line, "%15s %" SCNu64, word, &key) != 2)
            continue;
        if (strcmp(word, "is") == 0 && key < OLD + PUTS)
            known->is[key] = true;
        known->gone |= strcmp(word, "remove") == 0;
        known->ended |= strcmp(word, "end") == 0;
    }
    int status = pclose(out);
    if (known->ended)
        assert_int_equal(status, 0);
    else if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("%s %u: ended with %d", what, nth, status);
}

static void note(void *self, const char *line)
{
    (void)self;
    fprintf(stderr, "fsck: %s\n", line);
}

/* The scan of the file equals what a caller finds. */
static void check_file(struct gds_world *w, uint64_t found)
{
    const struct file_system fs = file_system_default();
    struct storage_fsck_report report;
    char file[600];
    snprintf(file, sizeof(file), "%s.slot0", w->path);
    int status = storage_fsck(&fs, file, true, note, NULL, &report);
    if (status != YOLK_OK)
        fail_msg("fsck: %s", yolk_last_error());
    assert_int_equal(report.differences, 0);
    assert_int_equal(report.extents, found);
    assert_int_equal(report.allocated_bytes, found * ALLOCATED);
}

static void look(struct gds_world *w, const struct known *known, const char *what, unsigned nth)
{
    struct yolk_store *store = gds_open(w, NULL, MEMORY, FILE_BYTES);
    uint64_t found = 0;
    for (uint64_t key = 0; key < OLD + PUTS; key++) {
        int64_t got = gds_get(w, store, key); /* the bytes are right, if there are any */
        if (got == YOLK_MEDIUM_GDS)
            found++;
        else if (got != YOLK_ERR_NOT_FOUND)
            fail_msg("%s %u: key %d: %s", what, nth, (int)key, yolk_strerror((int)got));
        else if (known->is[key] && !(key == 1 && known->gone))
            fail_msg("%s %u: key %d was put and is lost", what, nth, (int)key);
    }
    assert_int_equal(gds_figure(store, "client_gds_used_bytes"), found * ALLOCATED);
    gds_close(w, store);
    check_file(w, found);
}

static void killed_at(const char *what, unsigned step, unsigned most)
{
    struct known known = {0};
    unsigned kills = 0;
    for (unsigned nth = 1; nth <= most && !known.ended; nth += step) {
        struct gds_world w;
        gds_world_open(&w, false);
        run_child(&w, what, nth, &known);
        kills += !known.ended;
        look(&w, &known, what, nth);
        gds_world_close(&w);
    }
    assert_true(kills > 0);
    printf("%s: killed at %u places\n", what, kills);
}

/* Writes of the journal and its syncs, those of removals and of the end. */
static void at_each_call_for_the_file(void **state)
{
    (void)state;
    killed_at("file", 1, 40);
}

static void at_each_submission(void **state)
{
    (void)state;
    gds_kit_fake_only();
    killed_at("cuFileBatchIOSubmit", 1, 2 * PUTS);
}

/* While bytes are on their way. */
static void at_each_look_for_the_end_of_a_write(void **state)
{
    (void)state;
    gds_kit_fake_only();
    killed_at("cuFileBatchIOGetStatus", 2, 4 * PUTS);
}

int main(int argc, char **argv)
{
    if (gds_kit_begin(argv))
        return 77;
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        return child(argv);
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_each_call_for_the_file),
        cmocka_unit_test(at_each_submission),
        cmocka_unit_test(at_each_look_for_the_end_of_a_write),
    };
    return cmocka_run_group_tests_name("gds_kill", tests, NULL, NULL);
}
