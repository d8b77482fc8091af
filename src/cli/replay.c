/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yolk/store.h>

#include "base/limits.h"
#include "base/units.h"
#include "cli/common.h"
#include "cli/synthetic.h"

static const char usage[] =
    "usage: yolk replay --trace FILE | --synthetic [options]\n"
    "\n"
    "Replays a prefix-cache workload: for each request, reads the longest prefix of its blocks "
    "that is\n"
    "present, verifies each byte, then writes the missing blocks. The next request begins when "
    "all\n"
    "puts of the one before were acknowledged.\n"
    "\n"
    "  --trace FILE        one JSON object with \"hash_ids\" a line\n"
    "  --synthetic         a made-up chat workload, decided by --seed\n"
    "  --requests N        only the first N requests (synthetic: 2000 if not given)\n"
    "  --block-size SIZE   bytes of a block (64KiB)\n"
    "  --embedded          master and nodes inside this process (default)\n"
    "  --processes         master, nodes, readers, writers: a process each, printed one a line\n"
    "  --respawn           with --processes: restart whatever dies\n"
    "  --master ADDR       use a running cluster\n"
    "  --nodes N           nodes (2)\n"
    "  --dram SIZE         memory of all nodes together (1GiB)\n"
    "  --clients N         split the transfers of a request over N clients (1)\n"
    "  --transport NAME    auto, shm or tcp (auto)\n"
    "  --unordered         each client replays requests of its own, without waiting for the "
    "others\n"
    "  --put-wait TIME     how long a put waits for space (10s)\n"
    "  --timeout TIME      of one call (30s)\n"
    "  --secret-file FILE  shared secret of the cluster\n"
    "  --seed S            of the synthetic trace and of the key names (1)\n"
    "  --verify            verify every byte read; always done, accepted for clarity\n"
    "  --json FILE         write the result there\n"
    "  --report-every N    print a line `progress N of M` every N requests\n"
    "  --hold              when done, print `done` and keep the processes until input ends\n"
    "  --master-flag FLAG  with --processes: hand FLAG to the master (may be repeated)\n"
    "  --node-flag FLAG    with --processes: hand FLAG to each node (may be repeated)\n";

enum option_name {
    OPTION_TRACE = 256,
    OPTION_SYNTHETIC,
    OPTION_REQUESTS,
    OPTION_BLOCK_SIZE,
    OPTION_EMBEDDED,
    OPTION_PROCESSES,
    OPTION_RESPAWN,
    OPTION_MASTER,
    OPTION_NODES,
    OPTION_DRAM,
    OPTION_CLIENTS,
    OPTION_TRANSPORT,
    OPTION_UNORDERED,
    OPTION_PUT_WAIT,
    OPTION_TIMEOUT,
    OPTION_SECRET_FILE,
    OPTION_SEED,
    OPTION_VERIFY,
    OPTION_JSON,
    OPTION_REPORT_EVERY,
    OPTION_HOLD,
    OPTION_MASTER_FLAG,
    OPTION_NODE_FLAG,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"synthetic", no_argument, NULL, OPTION_SYNTHETIC},
    {"requests", required_argument, NULL, OPTION_REQUESTS},
    {"block-size", required_argument, NULL, OPTION_BLOCK_SIZE},
    {"embedded", no_argument, NULL, OPTION_EMBEDDED},
    {"processes", no_argument, NULL, OPTION_PROCESSES},
    {"respawn", no_argument, NULL, OPTION_RESPAWN},
    {"master", required_argument, NULL, OPTION_MASTER},
    {"nodes", required_argument, NULL, OPTION_NODES},
    {"dram", required_argument, NULL, OPTION_DRAM},
    {"clients", required_argument, NULL, OPTION_CLIENTS},
    {"transport", required_argument, NULL, OPTION_TRANSPORT},
    {"unordered", no_argument, NULL, OPTION_UNORDERED},
    {"put-wait", required_argument, NULL, OPTION_PUT_WAIT},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"secret-file", required_argument, NULL, OPTION_SECRET_FILE},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"json", required_argument, NULL, OPTION_JSON},
    {"report-every", required_argument, NULL, OPTION_REPORT_EVERY},
    {"hold", no_argument, NULL, OPTION_HOLD},
    {"master-flag", required_argument, NULL, OPTION_MASTER_FLAG},
    {"node-flag", required_argument, NULL, OPTION_NODE_FLAG},
    {"help", no_argument, NULL, OPTION_HELP},
    {0},
};

struct parsed {
    struct replay_options options;
    bool synthetic, embedded, processes;
};

static int parse_count(const char *name, const char *text, size_t low, size_t high, size_t *out)
{
    uint64_t value;
    if (base_parse_u64(name, text, &value) != YOLK_OK) {
        fprintf(stderr, "yolk replay: %s\n", yolk_last_error());
        return -1;
    }
    if (value < low || value > high) {
        fprintf(stderr, "yolk replay: %s %s: must be from %zu to %zu\n", name, text, low, high);
        return -1;
    }
    *out = (size_t)value;
    return 0;
}

static int complain(int status)
{
    if (status == YOLK_OK)
        return 0;
    fprintf(stderr, "yolk replay: %s\n", yolk_last_error());
    return -1;
}

static int add_flag(const char **flags, size_t *count, const char *flag)
{
    if (*count == REPLAY_FLAGS_MAX) {
        fprintf(stderr, "yolk replay: more than %d flags to hand on\n", REPLAY_FLAGS_MAX);
        return -1;
    }
    flags[(*count)++] = flag;
    return 0;
}

/* Options with a value that can be wrong. */
static int set_number(struct replay_options *options, int option, const char *text)
{
    switch (option) {
    case OPTION_REQUESTS:
        return parse_count("--requests", text, 1, TRACE_REQUESTS_MAX, &options->requests);
    case OPTION_NODES:
        return parse_count("--nodes", text, 1, REPLAY_NODES_MAX, &options->nodes);
    case OPTION_CLIENTS:
        return parse_count("--clients", text, 1, REPLAY_CLIENTS_MAX, &options->clients);
    case OPTION_REPORT_EVERY:
        return parse_count("--report-every", text, 1, TRACE_REQUESTS_MAX, &options->report_every);
    case OPTION_BLOCK_SIZE:
        return complain(base_parse_size("--block-size", text, &options->block_size));
    case OPTION_DRAM:
        return complain(base_parse_size("--dram", text, &options->dram));
    case OPTION_PUT_WAIT:
        return complain(base_parse_duration_ms("--put-wait", text, &options->put_wait_ms));
    case OPTION_TIMEOUT:
        return complain(base_parse_duration_ms("--timeout", text, &options->timeout_ms));
    case OPTION_SEED:
        return complain(base_parse_u64("--seed", text, &options->seed));
    case OPTION_MASTER_FLAG:
        return add_flag(options->master_flags, &options->master_flag_count, text);
    case OPTION_NODE_FLAG:
        return add_flag(options->node_flags, &options->node_flag_count, text);
    default:
        return -1; /* getopt has named it */
    }
}

static int set_option(struct parsed *parsed, int option, const char *text)
{
    struct replay_options *options = &parsed->options;
    switch (option) {
    case OPTION_TRACE:
        options->trace_path = text;
        return 0;
    case OPTION_SYNTHETIC:
        parsed->synthetic = true;
        return 0;
    case OPTION_EMBEDDED:
        parsed->embedded = true;
        return 0;
    case OPTION_PROCESSES:
        parsed->processes = true;
        return 0;
    case OPTION_RESPAWN:
        options->respawn = true;
        return 0;
    case OPTION_MASTER:
        options->master = text;
        return 0;
    case OPTION_TRANSPORT:
        options->transport = text;
        return 0;
    case OPTION_UNORDERED:
        options->unordered = true;
        return 0;
    case OPTION_SECRET_FILE:
        options->secret_file = text;
        return 0;
    case OPTION_VERIFY:
        return 0;
    case OPTION_JSON:
        options->json_path = text;
        return 0;
    case OPTION_HOLD:
        options->hold = true;
        return 0;
    default:
        return set_number(options, option, text);
    }
}

/* What is wrong with the sizes, written to `out`, or NULL. */
static const char *find_bad_size(const struct replay_options *options, char *out, size_t out_size)
{
    uint64_t share = options->dram / options->nodes, memory = cli_machine_memory();
    char dram[32], block[32], text[32];
    base_format_size(options->dram, dram, sizeof dram);
    base_format_size(options->block_size, block, sizeof block);
    if (options->block_size == 0 || options->block_size > GIB)
        snprintf(out, out_size, "--block-size %s: must be from 1 to 1GiB", block);
    else if (share < options->block_size)
        snprintf(out, out_size, "--dram %s: is less than one block of %s for each of %zu nodes",
                 dram, block, options->nodes);
    else if (options->mode == REPLAY_MASTER)
        return NULL; /* that cluster has the memory it has */
    else if (options->mode == REPLAY_PROCESSES && share < MIB)
        snprintf(out, out_size, "--dram %s: is less than 1MiB for each of %zu nodes", dram,
                 options->nodes);
    else if (options->dram > memory)
        snprintf(out, out_size, "--dram %s: this machine has %s of memory", dram,
                 base_format_size(memory >> 20 << 20, text, sizeof text));
    else
        return NULL;
    return out;
}

/* What contradicts or is missing, or NULL; `out` is room for a text. */
static const char *find_conflict(struct parsed *parsed, char *out, size_t out_size)
{
    struct replay_options *options = &parsed->options;
    if ((options->trace_path != NULL) == parsed->synthetic)
        return "give one of --trace FILE and --synthetic";
    if (parsed->embedded + parsed->processes + (options->master != NULL) > 1)
        return "give one of --embedded, --processes and --master ADDR";
    options->mode = parsed->processes ? REPLAY_PROCESSES
                    : options->master ? REPLAY_MASTER
                                      : REPLAY_EMBEDDED;
    if (options->respawn && !parsed->processes)
        return "--respawn needs --processes";
    if ((options->master_flag_count || options->node_flag_count) && !parsed->processes)
        return "--master-flag and --node-flag need --processes";
    if (options->secret_file && options->mode == REPLAY_EMBEDDED)
        return "--secret-file needs --processes or --master ADDR";
    if (strcmp(options->transport, "auto") != 0 && strcmp(options->transport, "shm") != 0 &&
        strcmp(options->transport, "tcp") != 0) {
        snprintf(out, out_size, "--transport %.100s: must be auto, shm or tcp", options->transport);
        return out;
    }
    if (options->timeout_ms < options->put_wait_ms)
        options->timeout_ms = options->put_wait_ms;
    return find_bad_size(options, out, out_size);
}

void replay_default_options(struct replay_options *options)
{
    *options = (struct replay_options){
        .transport = "auto",
        .block_size = 64 << 10,
        .dram = (uint64_t)1 << 30,
        .seed = 1,
        .put_wait_ms = 10000,
        .timeout_ms = 30000,
        .nodes = 2,
        .clients = 1,
    };
}

static int load_trace(const struct replay_options *options, struct trace *trace)
{
    enum { SYNTHETIC_REQUESTS = 2000 };
    char error[512];
    if (!options->trace_path) {
        size_t requests = options->requests ? options->requests : SYNTHETIC_REQUESTS;
        if (!synthetic_generate(trace, options->seed, requests))
            return 0;
        fprintf(stderr, "yolk replay: no memory for the synthetic trace\n");
        return -1;
    }
    if (!trace_load(trace, options->trace_path, options->requests, error, sizeof error))
        return 0;
    fprintf(stderr, "yolk replay: %s\n", error);
    return -1;
}

/* Better said now than when hours of a replay are lost. */
static int check_json_path(const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (path && fd < 0) {
        fprintf(stderr, "yolk replay: --json: cannot write %s: %s\n", path, strerror(errno));
        return -1;
    }
    if (fd >= 0)
        close(fd);
    return 0;
}

static void name_workers(const struct replay_options *options, struct replay_worker *workers,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *role = count == options->clients ? "client"
                           : i < options->clients    ? "reader"
                                                     : "writer";
        workers[i].fd = -1;
        snprintf(workers[i].role, sizeof workers[i].role, "%s-%zu", role, i % options->clients);
    }
}

static struct replay_worker_options worker_options(const struct replay_options *options)
{
    return (struct replay_worker_options){
        .master = options->master,
        .name = "yolk replay",
        .secret_file = options->secret_file,
        .transport = options->transport,
        .block_size = options->block_size,
        .seed = options->seed,
        .put_wait_ms = options->put_wait_ms,
        .timeout_ms = options->timeout_ms,
    };
}

/* Reports and writes the JSON. 0: all was in order. */
static int conclude(const struct replay_options *options, const struct trace *trace,
                    struct replay_totals *totals, int result)
{
    if (result)
        fprintf(stderr, "yolk replay: ended after %" PRIu64 " of %zu requests\n", totals->requests,
                trace->count);
    if (totals->requests) {
        /* Plain LRU beside it gets the same requests, not those that were never reached. */
        struct trace part = *trace;
        if (result && totals->requests < trace->count) {
            part.count = totals->requests;
            part.id_count = trace->requests[part.count].first;
        }
        replay_report(options, &part, totals);
    }
    if (options->json_path && replay_write_json(options, totals))
        result = -1;
    /* While processes are killed on purpose, operations fail; a wrong byte is never in order. */
    if (totals->wrong_bytes)
        result = -1;
    if (!options->respawn && (totals->failed_puts || totals->failed_gets))
        result = -1;
    return result;
}

/* Workers as threads: of the embedded cluster, or clients of a running one. */
static int run_threads(const struct replay_options *options, const struct trace *trace,
                       struct replay_worker *workers, struct replay_totals *totals)
{
    struct replay_worker_options worker = worker_options(options);
    struct replay_embedded *embedded = NULL;
    char error[512] = "no memory";
    int result = 0;
    if (options->mode == REPLAY_EMBEDDED) {
        embedded = replay_embedded_open(options, error, sizeof error);
        result = embedded ? 0 : -1;
    }
    name_workers(options, workers, options->clients);
    for (size_t i = 0; i < options->clients && !result; i++) {
        struct replay_store *store = embedded
                                         ? replay_store_wrap(replay_embedded_store(embedded, i),
                                                             false, &worker, error, sizeof error)
                                         : replay_store_open(&worker, error, sizeof error);
        workers[i].store = store;
        if (!store || replay_worker_start_thread(&workers[i], store))
            result = -1;
    }
    if (result)
        fprintf(stderr, "yolk replay: %s\n", error);
    else
        result = replay_drive(options, trace, NULL, workers, options->clients, totals);
    totals->rss_max_bytes = replay_rss_of(getpid());
    result = conclude(options, trace, totals, result);
    for (size_t i = 0; i < options->clients; i++)
        replay_worker_join_thread(&workers[i]);
    for (size_t i = 0; i < options->clients; i++)
        replay_store_close(workers[i].store);
    replay_embedded_close(embedded);
    return result;
}

static void hold_until_input_ends(void)
{
    char text[256];
    printf("done\n");
    fflush(stdout);
    while (read(STDIN_FILENO, text, sizeof text) > 0)
        continue;
}

static int run_processes(struct replay_options *options, const struct trace *trace,
                         struct replay_worker *workers, struct replay_totals *totals)
{
    size_t count = 2 * options->clients;
    struct replay_cluster *cluster = replay_cluster_create(options);
    if (!cluster)
        return -1;
    name_workers(options, workers, count);
    int result = replay_cluster_start(cluster);
    for (size_t i = 0; i < count && !result; i++)
        result = replay_cluster_start_worker(cluster, &workers[i]);
    if (!result)
        result = replay_drive(options, trace, cluster, workers, count, totals);
    totals->rss_max_bytes = replay_cluster_rss(cluster, workers, count);
    totals->restarts = replay_cluster_restarts(cluster);
    result = conclude(options, trace, totals, result);
    replay_cluster_print_rss(cluster);
    if (options->hold && totals->requests == trace->count)
        hold_until_input_ends();
    replay_cluster_destroy(cluster, workers, count);
    return result;
}

/* Runs, reports, writes the JSON. 0: done without a wrong byte or a failed operation; 1: not so. */
int replay_run(struct replay_options *options, struct replay_totals *totals)
{
    struct trace trace = {0};
    if (load_trace(options, &trace))
        return 1;
    struct replay_worker *workers = calloc(REPLAY_WORKERS_MAX, sizeof *workers);
    int result = -1;
    if (workers && !check_json_path(options->json_path))
        result = options->mode == REPLAY_PROCESSES ? run_processes(options, &trace, workers, totals)
                                                   : run_threads(options, &trace, workers, totals);
    free(workers);
    trace_free(&trace);
    free(totals->get_us);
    totals->get_us = NULL;
    return result ? 1 : 0;
}

int cli_replay(int argc, char **argv)
{
    struct parsed parsed = {0};
    int option;
    replay_default_options(&parsed.options);
    optind = 1;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == OPTION_HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (set_option(&parsed, option, optarg)) {
            fprintf(stderr, "see yolk replay --help\n");
            return 2;
        }
    }
    char text[256];
    const char *conflict = text;
    if (optind < argc)
        snprintf(text, sizeof text, "\"%.100s\": no argument is expected", argv[optind]);
    else
        conflict = find_conflict(&parsed, text, sizeof text);
    if (conflict) {
        fprintf(stderr, "yolk replay: %s; see yolk replay --help\n", conflict);
        return 2;
    }
    struct replay_totals totals = {0};
    return replay_run(&parsed.options, &totals);
}
