/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk fsck FILE` */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/common.h"
#include "platform/clock.h"
#include "storage/storage.h"

#define LOCK_WAIT_MS 500u
#define LOCK_LOOK_US 5000u

static const struct cli_command command = {"fsck", "FILE",
                                           "Checks an extent file (PATH.slotN) of the SSD tier: "
                                           "superblocks, journal, extents. Exit status 1 "
                                           "if anything is not as it should be.",
                                           COMMAND_FSCK};

static void say(void *self, const char *line)
{
    (void)self;
    printf("wrong: %s\n", line);
}

static void print(const struct storage_fsck_report *report)
{
    const struct storage_info *info = &report->info;
    char capacity[32], beside[32], values[32];
    printf("file:       %s, format %u, id ", info->path, report->version);
    for (unsigned i = 0; i < STORAGE_ID_SIZE; i++)
        printf("%02x", info->storage_id[i]);
    printf(", generation %" PRIu64 "\n", info->generation);
    printf("state:      %s\n",
           info->clean ? "closed" : "not closed: in the next start it is recovered");
    printf("capacity:   %s, and %s beside it\n",
           base_format_size(info->capacity, capacity, sizeof capacity),
           base_format_size(info->overhead_bytes, beside, sizeof beside));
    printf("extents:    %" PRIu64 ", %" PRIu64 " bytes of values, %s of space\n", report->extents,
           report->value_bytes, base_format_size(report->allocated_bytes, values, sizeof values));
    printf("journal:    epoch %" PRIu64 ", %" PRIu64 " records in %" PRIu64 " frames\n",
           report->epoch, report->records, report->frames);
    if (report->pending > 0)
        printf("unsynced:   %" PRIu64 " blocks of the journal were lost in a crash, as may be\n",
               report->pending);
    if (report->checked > 0)
        printf("values:     %" PRIu64 " compared with their checksums\n", report->checked);
    printf("differences: %" PRIu64 "\n", report->differences);
}

/* The kernel keeps the lock of a process that was killed until its I/O has ended, some 20 ms. */
static int look(const char *path, bool data, struct storage_fsck_report *report)
{
    struct file_system fs = file_system_real();
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), LOCK_WAIT_MS);
    for (;;) {
        int status = storage_fsck(&fs, path, data, say, NULL, report);
        if (status != YOLK_ERR_BUSY || clock_real_now_ns() >= deadline_ns)
            return status;
        usleep(LOCK_LOOK_US);
    }
}

static int check(const struct base_config *config)
{
    if (config->positional_count != 1)
        return config->positional_count == 0
                   ? cli_usage_error(&command, "FILE is missing")
                   : cli_usage_error(&command, "\"%s\": one argument too many",
                                     config->positional[1]);
    const char *path = config->positional[0];
    if (path[0] == '\0')
        return cli_usage_error(&command, "FILE is empty: it must name an extent file");
    struct storage_fsck_report report;
    int status = look(path, base_config_bool(config, SET_FSCK_DATA), &report);
    if (status != YOLK_OK)
        return cli_failure(&command, status, "%s", path);
    print(&report);
    return report.differences == 0 ? CLI_OK : CLI_FAILED;
}

int cli_fsck(int argc, char **argv)
{
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    code = check(&config);
    base_config_free(&config);
    return code;
}
