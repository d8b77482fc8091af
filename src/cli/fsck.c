/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk fsck FILE` */
#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"
#include "cli/common.h"
#include "storage/storage.h"

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

static int check(const struct base_config *config)
{
    if (config->positional_count != 1)
        return config->positional_count == 0
                   ? cli_usage_error(&command, "FILE is missing")
                   : cli_usage_error(&command, "\"%s\": one argument too many",
                                     config->positional[1]);
    struct file_system fs = file_system_real();
    struct storage_fsck_report report;
    int status = storage_fsck(&fs, config->positional[0], base_config_bool(config, SET_FSCK_DATA),
                              say, NULL, &report);
    if (status != YOLK_OK)
        return cli_failure(&command, status, "%s", config->positional[0]);
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
