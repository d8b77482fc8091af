/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of mooncake_master and mooncake_client: a byte that says which, one argument a
 * line, and behind a line "=" the text of a flag file that is named first. */
#include "base/error.h"
#include "cli/upstream.h"
#include "kit.h"

enum { LINES_MAX = 32 };

static const struct cli_command commands[] = {{"mooncake_master", "", "", COMMAND_MASTER},
                                              {"mooncake_client", "", "", COMMAND_NODE}};

/* Files that are named in the input are another matter: one might be a terminal that is waited for.
 */
static bool names_file(const char *text)
{
    return strcasestr(text, "config") != NULL || strcasestr(text, "flagfile") != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct fuzz_file file;
    struct base_config config;
    char named[4200];
    char *text = fuzz_text(data + 1, size - 1), *rest = text;
    char *lines[LINES_MAX + 2];
    int count = 0, code = -1;
    char *flags = strstr(text, "\n=\n");
    if (flags != NULL)
        *flags = '\0';
    const char *content = flags != NULL ? flags + 3 : "";
    if (names_file(text) || names_file(content)) {
        free(text);
        return 0;
    }
    fuzz_file_make(&file, ".flags", (const uint8_t *)content, strlen(content));
    snprintf(named, sizeof(named), "--flagfile=%s", file.path);
    lines[count++] = named;
    while (count <= LINES_MAX && rest != NULL)
        lines[count++] = strsep(&rest, "\n");
    lines[count] = NULL;
    unsigned which = data[0] & 1;
    if (upstream_parse(&commands[which], which == 0 ? UPSTREAM_MASTER : UPSTREAM_CLIENT, count,
                       lines, &config, &code))
        base_config_free(&config);
    else
        FUZZ_MUST(code == CLI_OK || code == CLI_USAGE);
    fuzz_file_remove(&file);
    free(text);
    return 0;
}
