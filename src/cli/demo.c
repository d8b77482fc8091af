/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/replay.h"

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
    if (argc > 1) {
        int help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(help ? stdout : stderr, "usage: yolk demo (it takes no argument)\n");
        return help ? 0 : 2;
    }
    struct replay_options options;
    replay_default_options(&options);
    options.mode = REPLAY_EMBEDDED;
    options.nodes = 1;
    options.requests = 3000;
    options.dram = (uint64_t)512 << 20;
    options.block_size = 32 << 10;
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
