/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the simulator and its report. */
#include "sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutation.h"
#include "sim/cluster.h"

enum { MARKS_NEEDED_FROM = 100 };

struct arguments {
    uint64_t first;
    uint64_t last;
    struct sim_options options;
    const char *mutation;
};

static int parse_number(const char *text, const char **end, uint64_t *out)
{
    char *stop = NULL;
    if (*text < '0' || *text > '9')
        return 0;
    *out = strtoull(text, &stop, 10);
    *end = stop;
    return 1;
}

static int parse_seeds(const char *text, struct arguments *arguments)
{
    const char *end = NULL;
    if (!parse_number(text, &end, &arguments->first) || strncmp(end, "..", 2) != 0)
        return 0;
    return parse_number(end + 2, &end, &arguments->last) && *end == 0 &&
           arguments->last >= arguments->first;
}

static int usage(const char *wrong, const char *value)
{
    fprintf(stderr,
            "yolk sim: %s \"%s\"; use: yolk sim --seed S | --seeds A..B [--steps MS]"
            " (yolk-sim also takes --mutation NAME)\n",
            wrong, value);
    return 2;
}

static int set_mutation(const char *name)
{
#ifdef YOLK_MUTANTS
    for (int i = 1; i < MUT_COUNT; i++) {
        if (strcmp(base_mutant_name((enum base_mutant)i), name) == 0) {
            base_mutant_active = (enum base_mutant)i;
            return 1;
        }
    }
#endif
    (void)name;
    return 0;
}

/* 0, or the exit status of a usage error. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    int have_seeds = 0;
    arguments->options.steps = 4000;
    for (int i = 1; i < argc; i += 2) {
        const char *end = NULL;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seed") == 0) {
            if (!parse_number(value, &end, &arguments->first) || *end != 0)
                return usage("--seed takes a number, not", value);
            arguments->last = arguments->first;
            have_seeds = 1;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            if (!parse_seeds(value, arguments))
                return usage("--seeds takes A..B, not", value);
            have_seeds = 1;
        } else if (strcmp(argv[i], "--steps") == 0) {
            if (!parse_number(value, &end, &arguments->options.steps) || *end != 0)
                return usage("--steps takes a number of virtual milliseconds, not", value);
        } else if (strcmp(argv[i], "--mutation") == 0) {
            if (!set_mutation(value))
                return usage("there is no mutation (mutations are in yolk-sim only)", value);
            arguments->mutation = value;
        } else {
            return usage("unknown flag", argv[i]);
        }
    }
    return have_seeds ? 0 : usage("missing", "--seed or --seeds");
}

static int run_twice(uint64_t seed, const struct arguments *arguments, const char *program,
                     uint64_t marks[SIM_MARK_COUNT])
{
    uint64_t again[SIM_MARK_COUNT] = {0};
    char failure[512], ignored[512];
    uint64_t hash = sim_run(seed, &arguments->options, marks, failure, sizeof failure);
    if (failure[0] == 0 &&
        sim_run(seed, &arguments->options, again, ignored, sizeof ignored) != hash)
        snprintf(failure, sizeof failure, "two runs of one seed differ");
    if (failure[0] == 0)
        return 1;
    printf("seed %" PRIu64 ": %s\n  repeat: %s --seed %" PRIu64 " --steps %" PRIu64 "%s%s\n", seed,
           failure, program, seed, arguments->options.steps,
           arguments->mutation != NULL ? " --mutation " : "",
           arguments->mutation != NULL ? arguments->mutation : "");
    return 0;
}

int sim_main(int argc, char **argv)
{
    struct arguments arguments = {0};
    uint64_t marks[SIM_MARK_COUNT] = {0};
    uint64_t failed = 0;
    int wrong = parse(argc, argv, &arguments);
    if (wrong != 0)
        return wrong;
    const char *program = strstr(argv[0], "yolk-sim") != NULL ? "yolk-sim" : "yolk sim";
    for (uint64_t seed = arguments.first; seed <= arguments.last; seed++)
        failed += !run_twice(seed, &arguments, program, marks);
    uint64_t seeds = arguments.last - arguments.first + 1;
    int holes = 0;
    for (int i = 0; i < SIM_MARK_COUNT; i++) {
        printf("%10" PRIu64 "  %s\n", marks[i], sim_mark_text[i]);
        holes += marks[i] == 0;
    }
    if (holes > 0 && seeds >= MARKS_NEEDED_FROM)
        printf("%d of these never happened in %" PRIu64
               " seeds: the simulator does not test them\n",
               holes, seeds);
    printf("%" PRIu64 " seeds, %" PRIu64 " failed\n", seeds, failed);
    return failed > 0 || (holes > 0 && seeds >= MARKS_NEEDED_FROM) ? 1 : 0;
}
