/* SPDX-License-Identifier: Apache-2.0 */
/* yolk-conformance --plugin PATH: the cases that every transport passes, over one out of a shared
 * library. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "conformance/suite.h"
#include "engine/plugin.h"

static const char HELP[] =
    "yolk-conformance --plugin PATH [FLAG...]\n"
    "Runs the cases that every transport must pass over the one of this plug-in, bare and with\n"
    "faults. The exit status is 0, the number of failed cases, 77 with a line \"SKIP: reason\" if "
    "it\n"
    "cannot work on this machine, or 2 with the reason if it cannot be loaded.\n"
    "  --plugin PATH    absolute path of the shared library\n"
    "  --files          it serves files, not memory\n"
    "  --maps           consumers map the memory, so that the provider does not see each write\n"
    "  --help           this text\n";

int main(int argc, char **argv)
{
    struct conformance_fixture fixture = {.checks_tickets = 1};
    struct engine_plugins plugins = {0};
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(HELP, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--plugin") == 0 && i + 1 < argc)
            path = argv[++i];
        else if (strcmp(argv[i], "--files") == 0)
            fixture.serves_files = 1;
        else if (strcmp(argv[i], "--maps") == 0)
            fixture.checks_tickets = 0;
        else
            path = "";
    }
    if (path == NULL || path[0] == '\0') {
        fputs(HELP, stderr);
        return 2;
    }
    if (engine_plugins_load(path, &plugins) != YOLK_OK || plugins.count != 1) {
        fprintf(stderr, "yolk-conformance: %s\n", yolk_last_error());
        return 2;
    }
    fixture.ops = plugins.tables[0];
    int failed = conformance_run(&fixture);
    engine_plugins_unload(&plugins);
    return failed;
}
