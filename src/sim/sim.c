/* SPDX-License-Identifier: Apache-2.0 */
/* Which seeds the simulator runs, and its report. */
#include "sim/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "sim/cluster.h"
#include "sim/engine/peers.h"
#include "sim/engine/run.h"

enum { MARKS_NEEDED_FROM = 100, MARKS_MAX = 128 };
_Static_assert((int)SIM_MARK_COUNT < MARKS_MAX && (int)PEER_MARK_COUNT < MARKS_MAX, "marks");

struct arguments {
    uint64_t first;
    uint64_t last;
    struct sim_options options;
    const char *mutation;
    bool peers; /* the engine among peers, not a cluster */
};

static bool parse_number(const char *text, const char **end, uint64_t *out)
{
    char *stop = NULL;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool parse_seeds(const char *text, struct arguments *arguments)
{
    const char *end = NULL;
    if (!parse_number(text, &end, &arguments->first) || strncmp(end, "..", 2) != 0)
        return false;
    return parse_number(end + 2, &end, &arguments->last) && *end == 0 &&
           arguments->last >= arguments->first;
}

static bool read_arguments(const struct base_config *config, const char *program,
                           struct arguments *arguments)
{
    const char *seeds = base_config_string(config, SET_SEEDS);
    enum base_config_origin one = base_config_origin(config, SET_SEED);
    enum base_config_origin many = base_config_origin(config, SET_SEEDS);
    arguments->first = arguments->last = base_config_u64(config, SET_SEED);
    arguments->options.steps = base_config_u64(config, SET_STEPS);
    arguments->peers = base_config_bool(config, SET_PEERS);
    arguments->mutation = base_config_string(config, SET_MUTATION);
    if (one == many && one != ORIGIN_DEFAULT)
        fprintf(stderr, "%s: give one of --seed S and --seeds A..B\n", program);
    else if (many > one && !parse_seeds(seeds, arguments))
        fprintf(stderr, "%s: --seeds: \"%.64s\": must be A..B, A not above B\n", program, seeds);
    else
        return true;
    return false;
}

static uint64_t run_once(uint64_t seed, const struct arguments *arguments, uint64_t *marks,
                         char *failure, size_t failure_size)
{
    if (arguments->peers)
        return sim_engine_run(seed, (arguments->options.steps + 9) / 10, marks, failure,
                              failure_size);
    return sim_run(seed, &arguments->options, marks, failure, failure_size);
}

static int run_twice(uint64_t seed, const struct arguments *arguments, const char *program,
                     uint64_t *marks)
{
    uint64_t again[MARKS_MAX] = {0};
    char failure[512], ignored[512];
    uint64_t hash = run_once(seed, arguments, marks, failure, sizeof failure);
    if (failure[0] == 0 && run_once(seed, arguments, again, ignored, sizeof ignored) != hash)
        snprintf(failure, sizeof failure, "two runs of one seed differ");
    if (failure[0] == 0)
        return 1;
    printf("seed %" PRIu64 ": %s\n  repeat: %s%s --seed %" PRIu64 " --steps %" PRIu64 "%s%s\n",
           seed, failure, program, arguments->peers ? " --peers" : "", seed,
           arguments->options.steps, strcmp(arguments->mutation, "none") != 0 ? " --mutation " : "",
           strcmp(arguments->mutation, "none") != 0 ? arguments->mutation : "");
    return 0;
}

static void say_nothing(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self;
    (void)level;
    (void)room;
    (void)text;
}

int sim_main(const struct base_config *config, const char *program)
{
    struct arguments arguments = {0};
    uint64_t marks[MARKS_MAX] = {0};
    uint64_t failed = 0;
    if (!read_arguments(config, program, &arguments))
        return 2;
    base_log_set(say_nothing, NULL); /* troubles of disks are what is simulated */
    uint64_t seeds = 0;
    for (uint64_t seed = arguments.first; seeds == 0 || seed != arguments.last + 1; seed++, seeds++)
        failed += !run_twice(seed, &arguments, program, marks);
    int holes = 0;
    const char *const *texts = arguments.peers ? peer_mark_text : sim_mark_text;
    for (int i = 0; i < (arguments.peers ? (int)PEER_MARK_COUNT : (int)SIM_MARK_COUNT); i++) {
        printf("%10" PRIu64 "  %s\n", marks[i], texts[i]);
        holes += marks[i] == 0;
    }
    if (holes > 0 && seeds >= MARKS_NEEDED_FROM)
        printf("%d of these never happened in %" PRIu64
               " seeds: the simulator does not test them\n",
               holes, seeds);
    printf("%" PRIu64 " seeds, %" PRIu64 " failed\n", seeds, failed);
    return failed > 0 || (holes > 0 && seeds >= MARKS_NEEDED_FROM) ? 1 : 0;
}
