/* SPDX-License-Identifier: Apache-2.0 */
/* Checking an extent file without changing it. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "storage/internal.h"

#define LINES_MAX 1000u

struct fsck {
    struct storage_fsck_report *report;
    void (*say)(void *self, const char *line);
    void *self;
};

static void count_and_say(void *self, const char *line)
{
    struct fsck *f = self;
    if (f->report->differences++ < LINES_MAX && f->say != NULL)
        f->say(f->self, line);
}

static int check_values(struct recovery *r, struct storage_fsck_report *report)
{
    for (struct extent *e = map_from(r->map, 0); e != NULL; e = map_after(r->map, e)) {
        bool good;
        if (e->unchecked)
            continue;
        int status = recover_verify(r, e, &good);
        if (status != YOLK_OK)
            recover_wrong(r, "the value at %llu cannot be read: %s",
                          (unsigned long long)map_offset(r->map, e), yolk_strerror(status));
        else if (!good)
            recover_wrong(r, "the value at %llu, %llu bytes, does not match its checksum",
                          (unsigned long long)map_offset(r->map, e), (unsigned long long)e->size);
        report->checked++;
    }
    return YOLK_OK;
}

static int check_journal(struct recovery *r, bool data, struct storage_fsck_report *report)
{
    int status = recover_journal(r);
    if (status != YOLK_OK)
        return status;
    report->epoch = r->start.epoch;
    report->frames = r->frames;
    report->records = r->records;
    report->pending = r->pending;
    for (struct extent *e = map_from(r->map, 0); e != NULL; e = map_after(r->map, e)) {
        report->extents++;
        report->value_bytes += e->size;
        report->allocated_bytes += map_allocated(r->map, e);
    }
    const char *broken = map_check(r->map);
    if (broken != NULL)
        recover_wrong(r, "%s", broken);
    if (r->map->index_bytes > journal_index_max(r->sb.journal_bytes))
        recover_wrong(r, "records of %llu bytes, of which a checkpoint holds %llu",
                      (unsigned long long)r->map->index_bytes,
                      (unsigned long long)journal_index_max(r->sb.journal_bytes));
    report->info.extents = report->extents;
    return data ? check_values(r, report) : YOLK_OK;
}

int storage_fsck(const struct file_system *fs, const char *path, bool data,
                 void (*say)(void *self, const char *line), void *self,
                 struct storage_fsck_report *report)
{
    *report = (struct storage_fsck_report){0};
    struct map map = {0};
    struct fsck f = {report, say, self};
    struct recovery r = {.map = &map, .say = count_and_say, .self = &f};
    snprintf(report->info.path, sizeof report->info.path, "%s", path);
    int status = file_open(fs, path, FILE_READ | FILE_DIRECT, &r.file);
    if (status != YOLK_OK)
        return status;
    status = file_lock(r.file);
    if (status == YOLK_ERR_BUSY)
        status = base_fail(status, 0, "a process has it open");
    if (status == YOLK_OK)
        status = recover_superblock(&r);
    if (status == YOLK_OK) {
        storage_inform(&report->info, &r.sb);
        report->version = r.sb.version;
        status = map_init(&map, r.sb.capacity, 0);
    }
    if (status == YOLK_OK)
        status = check_journal(&r, data, report);
    report->info.damaged = r.damaged;
    map_free(&map);
    recovery_free(&r);
    file_close(r.file);
    return status;
}
