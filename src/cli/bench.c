/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "cli/common.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} MEASUREMENTS[] = {
    {"ssd", cli_bench_ssd, "reads and writes of objects in a file, beside a bare io_uring loop"},
    {"policy", cli_bench_policy, "hit rates of what goes first where space is short, on a trace"},
};
#define MEASUREMENT_COUNT (sizeof(MEASUREMENTS) / sizeof(MEASUREMENTS[0]))

static void print_usage(FILE *out)
{
    fprintf(out, "yolk bench NAME [FLAGS]\n\n");
    for (size_t i = 0; i < MEASUREMENT_COUNT; i++)
        fprintf(out, "  %-8s %s\n", MEASUREMENTS[i].name, MEASUREMENTS[i].summary);
    fprintf(out, "\nyolk bench NAME --help shows its flags.\n");
}

int cli_bench(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return CLI_OK;
    }
    for (size_t i = 0; i < MEASUREMENT_COUNT; i++)
        if (strcmp(MEASUREMENTS[i].name, name) == 0)
            return MEASUREMENTS[i].run(argc - 1, argv + 1);
    if (argc > 1)
        fprintf(stderr, "yolk bench: \"%s\" is no measurement\n", name);
    print_usage(stderr);
    return CLI_USAGE;
}
