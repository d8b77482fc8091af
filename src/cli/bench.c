/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/config.h"
#include "cli/common.h"
#include "platform/clock.h"
#include "platform/thread.h"

/* With flags and a report of their own. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} APART[] = {
    {"ssd", cli_bench_ssd, "reads and writes of objects in a file, beside a bare io_uring loop"},
    {"engine", cli_bench_engine,
     "transfers of blocks in batches, as Mooncake's tebench makes them"},
    {"gds", cli_bench_gds, "a GPU and files, beside a bare cuFile loop"},
    {"gpu", cli_bench_gpu, "copies between the memory of the host and of a GPU"},
    {"policy", cli_bench_policy, "hit rates of what goes first where space is short, on a trace"},
};
#define APART_COUNT (sizeof(APART) / sizeof(APART[0]))

static const struct {
    const char *name;
    enum yolk_status (*run)(struct bench_report *bench);
    const char *summary;
    bool named_only; /* takes much of the machine: only for who asks for it */
} GROUPS[] = {
    {"space", bench_space, "how much of a segment objects fill, and what an allocation takes",
     false},
    {"null", bench_null, "a request of the engine without its bytes", false},
    {"transfers", bench_transfers, "the engine's promises over shm, tcp and uring", false},
    {"shm", bench_shm, "gets from a process of this machine, beside a streaming copy", false},
    {"tcp", bench_tcp, "gets over sockets, beside bare socket loops", false},
    {"callers", bench_callers, "gets of 1, 4 and 16 callers at once, over sockets", false},
    {"messages", bench_messages, "one question to the master, beside a bare echo", false},
    {"objects", bench_objects, "keys a second and memory an object at a full master", false},
    {"large", bench_large, "a node of 64 GiB comes and goes, and what others notice of it", true},
};
#define GROUP_COUNT (sizeof(GROUPS) / sizeof(GROUPS[0]))

static const struct cli_command command = {
    "bench", "[NAME...]",
    "Measures parts of it beside the bare machine: all of space, null, transfers, shm, tcp, "
    "callers, "
    "messages and objects, or the named ones; large only if named. (bench engine, bench ssd and "
    "bench policy have flags of their own.)",
    COMMAND_ROWS};

/* ---- figures ---- */
uint64_t bench_now_ns(void)
{
    return clock_real_now_ns();
}

uint64_t bench_processor_ns(void)
{
    struct timespec now;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0
               ? (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec
               : 0;
}

double bench_seconds_since(uint64_t start_ns)
{
    return (double)(clock_real_now_ns() - start_ns) / 1e9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof(values[0]), compare);
    return values[count / 2];
}

enum yolk_status bench_in_turn(struct bench_contender *contenders, size_t count, int runs)
{
    enum { CONTENDERS_MAX = 4 };
    double seconds[CONTENDERS_MAX][BENCH_RUNS_MAX];
    for (int run = -1; run < runs; run++) {
        for (size_t i = 0; i < count && i < CONTENDERS_MAX; i++) {
            size_t turn = run % 2 == 0 ? i : count - 1 - i;
            double taken = 0;
            enum yolk_status status = contenders[turn].run(contenders[turn].self, &taken);
            if (status != YOLK_OK)
                return status;
            if (run >= 0)
                seconds[turn][run] = taken;
        }
    }
    for (size_t i = 0; i < count && i < CONTENDERS_MAX; i++)
        contenders[i].seconds = bench_median(seconds[i], (size_t)runs);
    return YOLK_OK;
}

double bench_ratio(const struct bench_row *row)
{
    if (row->ceiling_name == NULL)
        return NAN;
    return row->less_is_better ? row->ceiling / row->value : row->value / row->ceiling;
}

bool bench_holds(const struct bench_row *row)
{
    switch (row->bound) {
    case BENCH_RATIO_AT_LEAST:
        return bench_ratio(row) >= row->limit;
    case BENCH_VALUE_AT_LEAST:
        return row->value >= row->limit;
    case BENCH_VALUE_AT_MOST:
        return row->value <= row->limit;
    case BENCH_OPEN:
        break;
    }
    return true;
}

/* ---- the report ---- */
static const char *bound_text(const struct bench_row *row, char *text, size_t size)
{
    static const char *const forms[] = {"", "ratio >= %.2f", ">= %.6g", "<= %.6g"};
    text[0] = '\0';
    if (row->bound == BENCH_RATIO_AT_LEAST)
        snprintf(text, size, forms[1], row->limit);
    else if (row->bound == BENCH_VALUE_AT_LEAST)
        snprintf(text, size, forms[2], row->limit);
    else if (row->bound == BENCH_VALUE_AT_MOST)
        snprintf(text, size, forms[3], row->limit);
    return text;
}

static void print_head(void)
{
    printf("%-34s %-14s %12s %12s %6s  %-15s %-6s %s\n", "", "unit", "value", "ceiling", "ratio",
           "promised", "", "ceiling is");
}

void bench_add(struct bench_report *bench, const struct bench_row *row)
{
    char bound[32], ceiling[32] = "", ratio[16] = "";
    if (bench->count == BENCH_ROWS_MAX)
        return;
    bench->rows[bench->count++] = *row;
    if (row->ceiling_name != NULL) {
        snprintf(ceiling, sizeof(ceiling), "%.6g", row->ceiling);
        snprintf(ratio, sizeof(ratio), "%.2f", bench_ratio(row));
    }
    printf("%-34s %-14s %12.6g %12s %6s  %-15s %-6s %s\n", row->name, row->unit, row->value,
           ceiling, ratio, bound_text(row, bound, sizeof(bound)),
           row->bound == BENCH_OPEN ? ""
           : bench_holds(row)       ? "holds"
                                    : "MISSED",
           row->ceiling_name != NULL ? row->ceiling_name : "");
    (void)fflush(stdout);
}

struct json_t *bench_row_json(const struct bench_row *row)
{
    bool has = row->ceiling_name != NULL;
    char bound[32];
    json_t *value = isnan(row->value) ? json_null() : json_real(row->value);
    json_t *made = json_pack("{s:s, s:s, s:o, s:s?, s:o, s:o}", "name", row->name, "unit",
                             row->unit, "value", value, "ceiling_name", row->ceiling_name,
                             "ceiling", has ? json_real(row->ceiling) : json_null(), "ratio",
                             has ? json_real(bench_ratio(row)) : json_null());
    if (made == NULL || row->bound == BENCH_OPEN)
        return made;
    json_object_set_new(made, "promised", json_string(bound_text(row, bound, sizeof(bound))));
    json_object_set_new(made, "holds", json_boolean(bench_holds(row)));
    return made;
}

static int write_json(const struct bench_report *bench, const char *path)
{
    struct utsname machine;
    char when[32];
    time_t now = time(NULL);
    struct tm parts;
    if (uname(&machine) != 0 || gmtime_r(&now, &parts) == NULL)
        return -1;
    (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_t *list = json_array();
    for (size_t i = 0; i < bench->count; i++)
        json_array_append_new(list, bench_row_json(&bench->rows[i]));
    json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:b, s:o}", "version", YOLK_VERSION, "date",
                             when, "kernel", machine.release, "processors", (int)thread_cpu_count(),
                             "quick", bench->quick, "rows", list);
    int failed = root != NULL ? json_dump_file(root, path, JSON_INDENT(1)) : -1;
    json_decref(root);
    return failed;
}

/* ---- the command ---- */
static int find_group(const char *name)
{
    for (size_t i = 0; i < GROUP_COUNT; i++)
        if (strcmp(GROUPS[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int run_groups(struct bench_report *bench, const struct base_config *config)
{
    int code = CLI_OK;
    for (size_t i = 0; i < GROUP_COUNT && code == CLI_OK; i++) {
        bool wanted = config->positional_count == 0 && !GROUPS[i].named_only;
        for (size_t k = 0; k < config->positional_count; k++)
            wanted = wanted || find_group(config->positional[k]) == (int)i;
        if (!wanted)
            continue;
        enum yolk_status status = GROUPS[i].run(bench);
        if (status != YOLK_OK)
            code = cli_failure(&command, status, "%s", GROUPS[i].name);
    }
    return code;
}

static int finish(const struct bench_report *bench, const struct base_config *config)
{
    size_t missed = 0;
    for (size_t i = 0; i < bench->count; i++)
        missed += !bench_holds(&bench->rows[i]);
    printf("%zu rows, %zu missed%s\n", bench->count, missed,
           bench->quick ? " (--quick: sizes too small to judge by)" : "");
    const char *path = base_config_string(config, SET_JSON);
    if (path[0] && write_json(bench, path) != 0) {
        fprintf(stderr, "yolk bench: --json %s: cannot be written\n", path);
        return CLI_FAILED;
    }
    return missed > 0 && base_config_bool(config, SET_GATE) ? CLI_FAILED : CLI_OK;
}

int cli_bench(int argc, char **argv)
{
    for (size_t i = 0; i < APART_COUNT && argc > 1; i++)
        if (strcmp(APART[i].name, argv[1]) == 0)
            return APART[i].run(argc - 1, argv + 1);
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    for (size_t i = 0; i < config.positional_count && code == CLI_OK; i++)
        if (find_group(config.positional[i]) < 0)
            code = cli_usage_error(&command, "\"%s\" is no measurement", config.positional[i]);
    struct bench_report *bench = calloc(1, sizeof(*bench));
    if (bench == NULL)
        code = cli_failure(&command, YOLK_ERR_NO_MEMORY, "rows");
    if (code == CLI_OK) {
        bench->quick = base_config_bool(&config, SET_QUICK);
        bench_cost_init();
        print_head();
        code = run_groups(bench, &config);
        int end = finish(bench, &config);
        code = code == CLI_OK ? end : code;
    }
    free(bench);
    base_config_free(&config);
    return code;
}
