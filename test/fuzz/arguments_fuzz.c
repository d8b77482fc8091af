/* SPDX-License-Identifier: Apache-2.0 */
/* A command line of the program, one argument a line behind a byte that says which command. */
#include "cli/common.h"
#include "kit.h"

enum { LINES_MAX = 32 };

static const struct cli_command commands[] = {
    {"master", "", "", COMMAND_MASTER},        {"node", "", "", COMMAND_NODE},
    {"put", "KEY [FILE]", "", COMMAND_CLIENT}, {"replay", "", "", COMMAND_REPLAY},
    {"bench", "[NAME...]", "", COMMAND_BENCH}, {"fsck", "FILE...", "", COMMAND_FSCK},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = fuzz_text(data + 1, size - 1), *rest = text;
    char *lines[LINES_MAX + 1];
    int count = 0, code = -1;
    while (count < LINES_MAX && rest != NULL)
        lines[count++] = strsep(&rest, "\n");
    lines[count] = NULL;
    const struct cli_command *command = &commands[data[0] % (sizeof(commands) / sizeof(*commands))];
    struct base_config config;
    /* Files are another fuzzer's, and one named here might be a terminal that is waited for. */
    for (int i = 0; i < count; i++)
        if (strcasestr(lines[i], "config") != NULL)
            count = 0;
    if (cli_parse(command, count, lines, &config, &code)) {
        FUZZ_MUST(command->arguments[0] || config.positional_count == 0);
        base_config_free(&config);
    } else {
        FUZZ_MUST(code == CLI_OK || code == CLI_USAGE);
    }
    free(text);
    return 0;
}
