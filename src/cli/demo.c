/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/common.h"
#include "cli/replay.h"

static const struct cli_command command = {
    "demo", "", "A small store and its main job, in one process, with a report. It has no choices.",
    COMMAND_DEMO};

/* clang-format off */
static const char introduction[] =
    "This program plays a language-model service with a KV cache. 3,000 chat requests arrive; each\n"
    "is a list of 32 KiB blocks, where equal beginnings mean equal prompts. For each, the cache is\n"
    "asked for the longest prefix that it holds, every byte read is checked, and what was missing\n"
    "is written. The cache is one memory segment of 512 MiB with an embedded master, which decides\n"
    "what lies where and what has to go: there are more data than room.\n";
static const char conclusion[] =
    "\n%" PRIu64 " of %" PRIu64 " blocks did not have to be computed again, and each of their bytes\n"
    "was right. `yolk replay --synthetic --processes --respawn` does the same with a process for\n"
    "each role: kill any of them meanwhile and see.\n";
/* clang-format on */

int cli_demo(int argc, char **argv)
{
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    base_config_free(&config);
    struct replay_options options = {
        .mode = REPLAY_EMBEDDED,
        .transport = "auto",
        .eviction_policy = base_setting_fallback(base_setting_info(SET_EVICTION_POLICY)),
        .block_size = 32 << 10,
        .dram = (uint64_t)512 << 20,
        .seed = 1,
        .put_wait_ms = 10000,
        .timeout_ms = 30000,
        .nodes = 1,
        .clients = 1,
        .requests = 3000,
        .gpu = -1, /* none */
    };
    fputs(introduction, stdout);
    fflush(stdout);
    struct replay_totals totals = {0};
    int result = replay_run(&options, &totals);
    if (!result)
        printf(conclusion, totals.blocks_hit, totals.blocks_referenced);
    else
        printf("\nThe demo failed: see the lines above.\n");
    return result;
}
