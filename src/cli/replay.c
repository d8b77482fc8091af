/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yolk/store.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/common.h"
#include "cli/ssd.h"
#include "cli/synthetic.h"

static const struct cli_command command = {
    "replay", "",
    "Replays a prefix-cache workload: for each request, reads the longest prefix of its blocks "
    "that "
    "is\npresent, verifies each byte, then writes the missing blocks. The next request begins when "
    "all puts\nof the one before were acknowledged. Give one of --trace and --synthetic, and at "
    "most one of\n--embedded, --processes and --master.",
    COMMAND_REPLAY};

/* The kinds of cluster that were asked for. The strongest origin decides, so that --embedded wins
 * over YOLK_MASTER; two of one origin contradict each other. */
static const char *read_mode(const struct base_config *config, struct replay_options *options)
{
    const char *master = base_config_string(config, SET_MASTER);
    bool inside = strcmp(master, "embedded") == 0;
    enum base_config_origin best = ORIGIN_DEFAULT;
    bool twice = false;
    const struct {
        enum base_setting setting;
        enum replay_mode mode;
        bool wanted;
    } choices[] = {
        {SET_EMBEDDED, REPLAY_EMBEDDED, base_config_bool(config, SET_EMBEDDED)},
        {SET_PROCESSES, REPLAY_PROCESSES, base_config_bool(config, SET_PROCESSES)},
        {SET_MASTER, inside ? REPLAY_EMBEDDED : REPLAY_MASTER, true},
    };
    options->mode = REPLAY_EMBEDDED;
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        enum base_config_origin origin = base_config_origin(config, choices[i].setting);
        if (!choices[i].wanted || origin == ORIGIN_DEFAULT || origin < best)
            continue;
        twice = origin == best && options->mode != choices[i].mode;
        best = origin;
        options->mode = choices[i].mode;
    }
    if (twice)
        return "give one of --embedded, --processes and --master ADDR";
    if (options->mode == REPLAY_MASTER)
        options->master = master;
    return NULL;
}

static const char *read_workload(const struct base_config *config, struct replay_options *options)
{
    bool synthetic = base_config_bool(config, SET_SYNTHETIC);
    bool trace = base_config_string(config, SET_TRACE)[0] != '\0';
    enum base_config_origin synthetic_origin = base_config_origin(config, SET_SYNTHETIC);
    enum base_config_origin trace_origin = base_config_origin(config, SET_TRACE);
    if (synthetic == trace && (!trace || synthetic_origin == trace_origin))
        return "give one of --trace FILE and --synthetic";
    if (trace && (!synthetic || trace_origin > synthetic_origin))
        options->trace_path = base_config_string(config, SET_TRACE);
    return NULL;
}

/* Cuts the lines of a setting that repeats apart; they stay in `lines`, which the caller frees. */
static int split_flags(const struct base_config *config, enum base_setting setting, char **lines,
                       const char **flags, size_t *count)
{
    char *rest = *lines = strdup(base_config_string(config, setting));
    if (!rest)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the flags to hand on");
    for (char *flag; rest && *rest != '\0';) {
        flag = strsep(&rest, "\n");
        if (*count == REPLAY_FLAGS_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0, "--%s: more than %d flags to hand on",
                             base_setting_info(setting)->flag, REPLAY_FLAGS_MAX);
        flags[(*count)++] = flag;
    }
    return YOLK_OK;
}

/* What is wrong with the sizes, written to `out`, or NULL. */
static const char *find_bad_size(const struct replay_options *options, char *out, size_t out_size)
{
    uint64_t share = options->dram / options->nodes, memory = cli_machine_memory();
    char dram[32], block[32], text[32];
    base_format_size(options->dram, dram, sizeof dram);
    base_format_size(options->block_size, block, sizeof block);
    if (share < options->block_size)
        snprintf(out, out_size, "--dram %s: is less than one block of %s for each of %zu nodes",
                 dram, block, options->nodes);
    else if (options->mode == REPLAY_MASTER)
        return NULL; /* that cluster has the memory it has */
    else if (options->ssd > 0 && options->ssd / options->nodes < options->block_size)
        snprintf(out, out_size, "--ssd %s: is less than one block of %s for each of %zu nodes",
                 base_format_size(options->ssd, text, sizeof text), block, options->nodes);
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

/* What lies beside a device or within what is no folder would be made all the same. */
static bool is_place_for_file(const char *path)
{
    struct stat about;
    return path[0] == '/' && path[strlen(path) - 1] != '/' &&
           (stat(path, &about) != 0 || S_ISREG(about.st_mode));
}

/* What contradicts or is missing, or NULL; `out` is room for a text. */
static const char *find_conflict(const struct base_config *config, struct replay_options *options,
                                 char *out, size_t out_size)
{
    const char *conflict = read_workload(config, options);
    if (!conflict)
        conflict = read_mode(config, options);
    if (conflict)
        return conflict;
    bool processes = options->mode == REPLAY_PROCESSES;
    if (options->respawn && !processes)
        return "--respawn needs --processes";
    if (options->hold && !processes)
        return "--hold needs --processes";
    if (base_config_origin(config, SET_EVICTION_POLICY) == ORIGIN_ARGUMENT &&
        options->mode == REPLAY_MASTER)
        return "--eviction-policy: a running master has the policy it has";
    if (options->ssd > 0 && options->mode == REPLAY_MASTER)
        return "--ssd: a running cluster has the disks it has";
    if (base_config_origin(config, SET_SSD_PATH) == ORIGIN_ARGUMENT && options->ssd == 0)
        return "--ssd-path needs --ssd SIZE";
    if ((options->gds > 0) != (options->gds_path != NULL))
        return "give both or none of --gds SIZE (not 0) and --gds-path FILE";
    if (options->gds_path && !is_place_for_file(options->gds_path)) {
        snprintf(out, out_size,
                 "--gds-path: \"%.90s\": must be the absolute path of a file, one "
                 "that is there or is to be made",
                 options->gds_path);
        return out;
    }
    if ((options->master_flag_count || options->node_flag_count) && !processes)
        return "--master-flag and --node-flag need --processes";
    if (options->mode == REPLAY_EMBEDDED) {
        /* In the environment it is meant for the commands that connect. */
        if (base_config_origin(config, SET_SECRET_FILE) == ORIGIN_ARGUMENT)
            return "--secret-file needs --processes or --master ADDR";
        options->secret_file = NULL;
    }
    if (strcmp(options->transport, "loop") == 0)
        return "--transport loop: must be auto, shm or tcp";
    if (!base_config_bool(config, SET_VERIFY))
        return "--verify=false: every byte that is read is verified, always";
    if (options->put_wait_ms > options->timeout_ms)
        return "--put-wait must not be longer than --timeout";
    return find_bad_size(options, out, out_size);
}

static const char *text_or_null(const struct base_config *config, enum base_setting setting)
{
    const char *text = base_config_string(config, setting);
    return text[0] ? text : NULL;
}

/* Without what depends on other settings: find_conflict() sees to that. */
static void read_options(const struct base_config *config, struct replay_options *options)
{
    *options = (struct replay_options){
        .transport = base_config_string(config, SET_TRANSPORT),
        .secret_file = text_or_null(config, SET_SECRET_FILE),
        .eviction_policy = base_config_string(config, SET_EVICTION_POLICY),
        .json_path = text_or_null(config, SET_JSON),
        .block_size = base_config_u64(config, SET_BLOCK_SIZE),
        .dram = base_config_u64(config, SET_DRAM),
        .ssd = base_config_u64(config, SET_REPLAY_SSD),
        .ssd_path = text_or_null(config, SET_SSD_PATH),
        .gds = base_config_u64(config, SET_REPLAY_GDS),
        .gds_path = text_or_null(config, SET_GDS_PATH),
        .gpu = base_config_given(config, SET_GPU) ? (int)base_config_u64(config, SET_GPU) : -1,
        .seed = base_config_u64(config, SET_SEED),
        .nodes = (size_t)base_config_u64(config, SET_NODES),
        .clients = (size_t)base_config_u64(config, SET_CLIENTS),
        .requests = (size_t)base_config_u64(config, SET_REQUESTS),
        .report_every = (size_t)base_config_u64(config, SET_REPORT_EVERY),
        .respawn = base_config_bool(config, SET_RESPAWN),
        .unordered = base_config_bool(config, SET_UNORDERED),
        .hold = base_config_bool(config, SET_HOLD),
    };
    cli_waits(config, &options->put_wait_ms, &options->timeout_ms);
}

/* The processes of this replay read their own settings: they shall find the same file and log. */
static int hand_on_settings(const struct base_config *config)
{
    static const enum base_setting SETTINGS[] = {SET_CONFIG, SET_LOG_LEVEL, SET_LOG_JSON};
    for (size_t i = 0; i < sizeof(SETTINGS) / sizeof(SETTINGS[0]); i++) {
        char name[SETTING_VARIABLE_MAX];
        base_setting_variable(base_setting_info(SETTINGS[i]), name);
        if (base_config_given(config, SETTINGS[i]) &&
            setenv(name, base_config_string(config, SETTINGS[i]), 1))
            return base_fail(YOLK_ERR_NO_MEMORY, errno, "cannot hand on %s", name);
    }
    return YOLK_OK;
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
        .gds = options->gds / options->clients,
        .gds_path = options->gds_path,
        .gpu = options->gpu,
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

/* Set by a signal: everything is then ended in order, so that the disk's files go too and nodes
 * remove what they made. */
static volatile sig_atomic_t asked_to_stop;

/* The temporary folder, for a second signal: it ends this process at once, and nobody else would
 * remove the files. -1: none. */
static int leaving_fd = -1;
static char leaving[CLI_SSD_PATH_MAX];

static void remove_at_once(void)
{
    static const char slot[] = "yolk.slot", fresh[] = ".new";
    for (int i = 0; i < 100; i++) {
        char name[sizeof slot + 2 + sizeof fresh];
        size_t size = sizeof slot - 1;
        memcpy(name, slot, sizeof slot);
        if (i >= 10)
            name[size++] = (char)('0' + i / 10);
        name[size++] = (char)('0' + i % 10);
        name[size] = '\0';
        unlinkat(leaving_fd, name, 0);
        memcpy(name + size, fresh, sizeof fresh); /* not whole yet */
        unlinkat(leaving_fd, name, 0);
    }
    rmdir(leaving);
}

/* Only what a signal handler may call. The other processes end with this one. */
static void ask_to_stop(int number)
{
    static const char text[] = "yolk replay: second signal, ending at once\n";
    if (!asked_to_stop) {
        asked_to_stop = 1;
        return;
    }
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    if (leaving_fd >= 0)
        remove_at_once();
    _exit(128 + number);
}

static void ask_when_unread(int number)
{
    (void)number;
    asked_to_stop = 1;
}

/* Where the disk's files go; with no folder named they go with the replay. */
static int make_ssd(struct replay_options *options, char *folder, size_t size, bool *temporary)
{
    char file[CLI_SSD_PATH_MAX];
    int status = YOLK_OK;
    if (options->ssd == 0)
        return 0;
    *temporary = options->ssd_path == NULL;
    if (*temporary)
        status = cli_ssd_temporary(folder, size);
    else
        status = cli_ssd_file(options->ssd_path, file, sizeof file);
    if (status != YOLK_OK) {
        fprintf(stderr, "yolk replay: %s\n", yolk_last_error());
        *temporary = false;
        return -1;
    }
    if (*temporary) {
        options->ssd_path = folder;
        snprintf(leaving, sizeof leaving, "%s", folder);
        leaving_fd = open(folder, O_DIRECTORY | O_CLOEXEC);
    }
    printf("disk files are in %s%s\n", options->ssd_path, *temporary ? ", removed at the end" : "");
    fflush(stdout);
    return 0;
}

bool replay_stopped(void)
{
    return asked_to_stop;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = ask_to_stop};
    sigfillset(&action.sa_mask); /* one after the other */
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, NULL);
    /* Nobody reads the output any more. It comes with each further line. */
    action.sa_handler = ask_when_unread;
    sigaction(SIGPIPE, &action, NULL);
}

/* Runs, reports, writes the JSON. 0: done without a wrong byte or a failed operation; 1: not so. */
int replay_run(struct replay_options *options, struct replay_totals *totals)
{
    struct trace trace = {0};
    char folder[CLI_SSD_PATH_MAX];
    bool temporary = false;
    if (load_trace(options, &trace))
        return 1;
    struct replay_worker *workers = calloc(REPLAY_WORKERS_MAX, sizeof *workers);
    int result = -1;
    catch_signals();
    if (workers && !check_json_path(options->json_path) &&
        !make_ssd(options, folder, sizeof folder, &temporary))
        result = options->mode == REPLAY_PROCESSES ? run_processes(options, &trace, workers, totals)
                                                   : run_threads(options, &trace, workers, totals);
    if (temporary)
        cli_ssd_remove(folder);
    if (leaving_fd >= 0)
        close(leaving_fd);
    leaving_fd = -1;
    free(workers);
    trace_free(&trace);
    free(totals->get_us);
    totals->get_us = NULL;
    return result ? 1 : 0;
}

int cli_replay(int argc, char **argv)
{
    struct base_config config;
    struct replay_options options;
    char *master_lines = NULL, *node_lines = NULL, text[256];
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    read_options(&config, &options);
    int status = split_flags(&config, SET_MASTER_FLAG, &master_lines, options.master_flags,
                             &options.master_flag_count);
    if (status == YOLK_OK)
        status = split_flags(&config, SET_NODE_FLAG, &node_lines, options.node_flags,
                             &options.node_flag_count);
    if (status == YOLK_OK)
        status = hand_on_settings(&config);
    const char *wrong =
        status == YOLK_OK ? find_conflict(&config, &options, text, sizeof text) : yolk_last_error();
    struct replay_totals totals = {0};
    code = wrong ? cli_usage_error(&command, "%s", wrong) : replay_run(&options, &totals);
    free(master_lines);
    free(node_lines);
    base_config_free(&config);
    return code;
}
