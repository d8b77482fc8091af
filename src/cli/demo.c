/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/replay.h"

int cli_demo(int argc, char **argv)
{
    if (argc > 1) {
        fprintf(stderr, "usage: yolk demo (takes no argument, not \"%s\")\n", argv[1]);
        return 2;
    }
    struct replay_options options;
    replay_default_options(&options);
    options.mode = REPLAY_EMBEDDED;
    options.nodes = 1;
    options.requests = 3000;
    options.dram = (uint64_t)512 << 20;
    options.block_size = 32 << 10;
    printf(
        "This program plays a language-model service with a KV cache. 3,000 chat requests arrive; "
        "each\n"
        "is a list of 32 KiB blocks, where equal beginnings mean equal prompts. For each, the "
        "cache is\n"
        "asked for the longest prefix that it holds, every byte read is checked, and what was "
        "missing\n"
        "is written. The cache is two memory segments of 256 MiB with an embedded master that "
        "decides\n"
        "what lies where and what has to go. It is smaller than the data, so it has to evict.\n\n");
    fflush(stdout);
    struct replay_totals totals = {0};
    int result = replay_run(&options, &totals);
    if (!result)
        printf("\n%" PRIu64 " of %" PRIu64
               " blocks did not have to be computed again, and every one of\n"
               "their bytes was right. `yolk replay --synthetic --processes` does the same with "
               "one process\n"
               "for each role; kill any of them meanwhile (with --respawn) and see.\n",
               totals.blocks_hit, totals.blocks_referenced);
    else
        printf("\nThe demo failed: see the lines above.\n");
    return result;
}
