/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench policy`: the hit rate of the master's policy on a trace, beside that of others. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/common.h"
#include "cli/policy_driver.h"
#include "cli/policy_models.h"
#include "cli/replay_model.h"
#include "cli/synthetic.h"

enum { CAPACITIES_MAX = 16, SYNTHETIC_REQUESTS = 12000 };

static const struct cli_command command = {
    "bench policy", "",
    "Replays a trace against caches of several sizes: each request reads its longest present\n"
    "prefix, then writes the rest. Shows blocks read / blocks asked for: with the master's policy\n"
    "\"prefix\" itself, and with models of LRU, FIFO, S3-FIFO and Belady's bound with admission.",
    COMMAND_BENCH};

struct figures {
    double percent;
    size_t blocks;
    double ours, lru, fifo, s3fifo, belady;
};

struct policy_bench {
    struct trace trace;
    struct policy_trace dense;
    struct figures figures[CAPACITIES_MAX];
    size_t count;
};

/* CLI_OK, or it has been said what is wrong. */
static int read_capacities(struct policy_bench *bench, const char *text)
{
    const char *at = text;
    do {
        char *end;
        errno = 0;
        double percent = strtod(at, &end);
        if (end == at || errno || (*end && *end != ',') || !(percent > 0 && percent <= 100))
            return cli_usage_error(&command,
                                   "--capacity %s: must be numbers above 0, at most 100, with "
                                   "commas between them",
                                   text);
        if (bench->count == CAPACITIES_MAX)
            return cli_usage_error(&command, "--capacity %s: has more than %d numbers", text,
                                   CAPACITIES_MAX);
        bench->figures[bench->count++].percent = percent;
        at = *end ? end + 1 : NULL;
    } while (at);
    return CLI_OK;
}

static int load(struct policy_bench *bench, const struct base_config *config)
{
    const char *path = base_config_string(config, SET_TRACE);
    bool synthetic = base_config_bool(config, SET_SYNTHETIC);
    size_t requests = (size_t)base_config_u64(config, SET_REQUESTS);
    char error[512] = "no memory for the trace";
    if (synthetic == (path[0] != '\0'))
        return cli_usage_error(&command, "give one of --trace FILE and --synthetic");
    int result = synthetic ? synthetic_generate(&bench->trace, base_config_u64(config, SET_SEED),
                                                requests ? requests : SYNTHETIC_REQUESTS)
                           : trace_load(&bench->trace, path, requests, error, sizeof error);
    if (!result && bench->trace.id_count == 0)
        snprintf(error, sizeof error, "%s: names no blocks", path);
    else if (!result && !policy_trace_make(&bench->dense, &bench->trace))
        return CLI_OK;
    fprintf(stderr, "yolk bench policy: %s\n", error);
    return CLI_FAILED;
}

static int measure(struct policy_bench *bench, struct figures *figures)
{
    double asked = (double)bench->trace.id_count;
    uint64_t ours, lru, fifo, s3fifo, belady;
    figures->blocks = (size_t)((double)bench->dense.unique * figures->percent / 100 + 0.5);
    if (figures->blocks == 0)
        figures->blocks = 1;
    if (policy_drive(&master_policy_prefix, &bench->dense, figures->blocks, &ours) ||
        replay_model_lru(&bench->trace, figures->blocks, &lru) ||
        policy_model_fifo(&bench->dense, figures->blocks, &fifo) ||
        policy_model_s3fifo(&bench->dense, figures->blocks, &s3fifo) ||
        policy_model_belady(&bench->dense, figures->blocks, &belady)) {
        fprintf(stderr, "yolk bench policy: no memory\n");
        return CLI_FAILED;
    }
    figures->ours = (double)ours / asked;
    figures->lru = (double)lru / asked;
    figures->fifo = (double)fifo / asked;
    figures->s3fifo = (double)s3fifo / asked;
    figures->belady = (double)belady / asked;
    return CLI_OK;
}

static void print_head(const struct policy_bench *bench)
{
    printf("%zu requests for %zu blocks, %zu different ones\n\n", bench->trace.count,
           bench->trace.id_count, bench->dense.unique);
    printf("%8s %9s %8s %8s %8s %8s %8s\n", "capacity", "blocks", "prefix", "LRU", "FIFO",
           "S3-FIFO", "Belady");
}

static void print_line(const struct figures *figures)
{
    printf("%7g%% %9zu %8.4f %8.4f %8.4f %8.4f %8.4f\n", figures->percent, figures->blocks,
           figures->ours, figures->lru, figures->fifo, figures->s3fifo, figures->belady);
    (void)fflush(stdout);
}

static int print_json(const struct policy_bench *bench)
{
    json_t *list = json_array(), *rows = json_array();
    for (size_t i = 0; i < bench->count; i++) {
        const struct figures *f = &bench->figures[i];
        char name[64];
        snprintf(name, sizeof(name), "policy prefix, capacity %g %%", f->percent);
        json_array_append_new(rows, bench_row_json(&(struct bench_row){.name = name,
                                                                       .unit = "hit rate",
                                                                       .value = f->ours,
                                                                       .ceiling_name = "Belady",
                                                                       .ceiling = f->belady}));
        json_array_append_new(list, json_pack("{s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "percent",
                                              f->percent, "blocks", (json_int_t)f->blocks, "prefix",
                                              f->ours, "lru", f->lru, "fifo", f->fifo, "s3fifo",
                                              f->s3fifo, "belady", f->belady));
    }
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:o, s:o}", "requests", (json_int_t)bench->trace.count, "blocks",
                  (json_int_t)bench->trace.id_count, "unique_blocks",
                  (json_int_t)bench->dense.unique, "capacities", list, "rows", rows);
    int failed = root != NULL ? json_dumpf(root, stdout, JSON_INDENT(2)) : 1;
    printf("\n");
    json_decref(root);
    return failed ? CLI_FAILED : CLI_OK;
}

static int run(struct policy_bench *bench, const struct base_config *config)
{
    bool json = base_config_bool(config, SET_DOCTOR_JSON);
    int code = read_capacities(bench, base_config_string(config, SET_CAPACITY));
    if (code == CLI_OK)
        code = load(bench, config);
    if (code == CLI_OK && !json)
        print_head(bench);
    for (size_t i = 0; i < bench->count && code == CLI_OK; i++) {
        code = measure(bench, &bench->figures[i]);
        if (code == CLI_OK && !json)
            print_line(&bench->figures[i]);
    }
    return code == CLI_OK && json ? print_json(bench) : code;
}

int cli_bench_policy(int argc, char **argv)
{
    struct policy_bench bench = {.count = 0};
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    code = run(&bench, &config);
    policy_trace_free(&bench.dense);
    trace_free(&bench.trace);
    base_config_free(&config);
    return code;
}
