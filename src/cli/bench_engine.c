/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench engine`: the command around bench_transfer.h. One case for each size of a block,
 * number of blocks in a batch and number of callers, as tebench goes through them. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/address.h"
#include "cli/bench_transfer.h"
#include "cli/common.h"
#include "platform/process.h"
#include "wire/hello.h"

enum { TURNS = 5 };

static const struct cli_command command = {"bench engine", "",
                                           "Moves blocks in batches from or to another process or "
                                           "a file, as Mooncake's tebench does, beside a "
                                           "bare loop that moves the same ones.",
                                           COMMAND_TRANSFERS};

struct bench {
    const struct base_config *config;
    struct transfer_options options;
    struct transfer *transfer;
    json_t *rows;
    uint64_t skipped;
    uint8_t secret[WIRE_SECRET_MAX];
};

/* ---- what is asked for ---- */

static bool is(const struct base_config *config, enum base_setting setting, const char *text)
{
    return strcmp(base_config_string(config, setting), text) == 0;
}

static const char *transport_name(const struct base_config *config)
{
    bool uring = is(config, SET_XPORT_TYPE, "iouring") || is(config, SET_XPORT_TYPE, "io_uring");
    return uring ? "uring" : base_config_string(config, SET_XPORT_TYPE);
}

static enum transfer_op op_of(const struct base_config *config)
{
    return is(config, SET_OP_TYPE, "write") ? TRANSFER_WRITE
           : is(config, SET_OP_TYPE, "mix") ? TRANSFER_MIX
                                            : TRANSFER_READ;
}

static int check_range(const struct base_config *config, const char *what, enum base_setting first,
                       enum base_setting last)
{
    if (base_config_u64(config, first) <= base_config_u64(config, last))
        return CLI_OK;
    return cli_usage_error(&command, "--start-%s %" PRIu64 ": not more than --max-%s %" PRIu64,
                           what, base_config_u64(config, first), what,
                           base_config_u64(config, last));
}

static int check_target(const struct base_config *config)
{
    const char *target = base_config_string(config, SET_TARGET_SEG_NAME);
    bool file = strncmp(target, "file://", 7) == 0;
    const char *transport = transport_name(config);
    bool of_files = strcmp(transport, "uring") == 0 || strcmp(transport, "posix") == 0;
    bool alone = strcmp(transport, "loop") == 0 || strcmp(transport, "null") == 0;
    if (is(config, SET_SEG_TYPE, "VRAM"))
        return cli_usage_error(&command,
                               "--seg-type VRAM: transfers of GPU memory are not measured "
                               "yet");
    if (is(config, SET_ROLE, "target") && target[0] != '\0')
        return cli_usage_error(&command, "--role target --target-seg-name %s: a target has none",
                               target);
    if (is(config, SET_ROLE, "target") && (of_files || alone))
        return cli_usage_error(&command,
                               "--role target --xport-type %s: serves nobody else; tcp and "
                               "shm do",
                               transport);
    if (target[0] != '\0' && alone)
        return cli_usage_error(&command,
                               "--target-seg-name %s: --xport-type %s reaches this process "
                               "only",
                               target, transport);
    if (target[0] != '\0' && file != of_files)
        return cli_usage_error(&command, "--target-seg-name %s: with --xport-type %s it is %s",
                               target, transport,
                               of_files ? "file://PATH" : "what a target printed");
    if (file && base_config_bool(config, SET_CHECK_CONSISTENCY) && is(config, SET_OP_TYPE, "read"))
        return cli_usage_error(&command,
                               "--check-consistency --op-type read --target-seg-name %s: "
                               "nobody knows what is in it; --op-type write does",
                               target);
    return CLI_OK;
}

static int check_all(const struct base_config *config)
{
    int code = check_target(config);
    if (code == CLI_OK)
        code = check_range(config, "block-size", SET_START_BLOCK_SIZE, SET_MAX_BLOCK_SIZE);
    if (code == CLI_OK)
        code = check_range(config, "batch-size", SET_START_BATCH_SIZE, SET_MAX_BATCH_SIZE);
    if (code == CLI_OK)
        code = check_range(config, "num-threads", SET_START_NUM_THREADS, SET_MAX_NUM_THREADS);
    if (code == CLI_OK && base_config_u64(config, SET_START_BLOCK_SIZE) >
                              base_config_u64(config, SET_TOTAL_BUFFER_SIZE))
        code = cli_usage_error(
            &command, "--start-block-size %" PRIu64 ": not more than --total-buffer-size %" PRIu64,
            base_config_u64(config, SET_START_BLOCK_SIZE),
            base_config_u64(config, SET_TOTAL_BUFFER_SIZE));
    return code;
}

/* Whoever reaches the target may write to it. */
static int check_access(const char *host)
{
    struct net_address address;
    char text[NET_ADDRESS_TEXT_MAX];
    snprintf(text, sizeof(text), strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:1" : "%s:1",
             host);
    int status = net_address_parse(text, 0, &address);
    if (status != YOLK_OK)
        return cli_failure(&command, (enum yolk_status)status, "--host %s", host);
    return address_is_loopback(&address)
               ? CLI_OK
               : cli_usage_error(&command,
                                 "--host %s: other machines reach it, so a --secret-file is "
                                 "needed",
                                 host);
}

static int read_options(struct bench *b)
{
    const struct base_config *config = b->config;
    b->options = (struct transfer_options){
        .transport = transport_name(config),
        .target = base_config_string(config, SET_TARGET_SEG_NAME),
        .path = base_config_string(config, SET_PATH),
        .host = base_config_string(config, SET_BENCH_HOST),
        .op = op_of(config),
        .buffer_bytes = base_config_u64(config, SET_TOTAL_BUFFER_SIZE) & ~UINT64_C(4095),
        .seed = base_config_u64(config, SET_SEED),
        .random = is(config, SET_OFFSETS, "random"),
        .check = base_config_bool(config, SET_CHECK_CONSISTENCY)};
    const char *secret = base_config_string(config, SET_SECRET_FILE);
    if (secret[0] == '\0')
        return check_access(b->options.host);
    int status = process_read_secret(secret, b->secret, sizeof(b->secret), &b->options.secret_size);
    b->options.secret = b->secret;
    return status == YOLK_OK
               ? CLI_OK
               : cli_failure(&command, (enum yolk_status)status, "--secret-file %s", secret);
}

/* ---- what is said ---- */

static void print_head(const struct bench *b)
{
    char size[32];
    printf("transport %s, %s, %s offsets, %s on each side, target: %s%s\n", b->options.transport,
           base_config_string(b->config, SET_OP_TYPE), b->options.random ? "random" : "fixed",
           base_format_size(b->options.buffer_bytes, size, sizeof(size)),
           b->options.target[0] != '\0' ? b->options.target : "our own",
           b->options.check ? ", each byte looked at" : "");
    printf("%10s %7s %4s %9s %9s %6s %10s %10s %10s %10s %8s %8s %7s %8s %7s %7s  %s\n", "block",
           "batch", "thr", "GB/s", "ceiling", "ratio", "avg us", "p50 us", "p99 us", "p999 us",
           "cpu s/GB", "bare cpu", "copied", "syscalls", "allocs", "instr", "ceiling is");
    (void)fflush(stdout);
}

/* A figure, or what stands for none. */
static const char *figure(double value, int digits, char text[24])
{
    static const char none[] = "-";
    if (isnan(value))
        return none;
    snprintf(text, 24, "%.*f", digits, value);
    return text;
}

static void print_case(const struct transfer_case *c, const struct transfer_figures *f)
{
    char size[32], t[6][24];
    double ratio = f->ceiling_name != NULL ? f->bytes_per_s / f->ceiling_bytes_per_s : NAN;
    double bare_cpu = f->ceiling_name != NULL ? f->ceiling_cpu_s_per_gb : NAN;
    double ceiling = f->ceiling_name != NULL ? f->ceiling_bytes_per_s / 1e9 : NAN;
    printf(
        "%10s %7u %4u %9.3f %9s %6s %10.2f %10.2f %10.2f %10.2f %8.3f %8s %7.2f %8s %7s %7s  %s\n",
        base_format_size(c->block, size, sizeof(size)), c->batch, c->threads, f->bytes_per_s / 1e9,
        figure(ceiling, 2, t[0]), figure(ratio, 2, t[1]), f->latency_ns / 1e3, f->p50_ns / 1e3,
        f->p99_ns / 1e3, f->p999_ns / 1e3, f->cpu_s_per_gb, figure(bare_cpu, 3, t[5]), f->copied,
        figure(f->system_calls, 2, t[2]), figure(f->allocations, 2, t[3]),
        figure(f->instructions, 0, t[4]), f->ceiling_name != NULL ? f->ceiling_name : "none");
    (void)fflush(stdout);
}

static void add_row(struct bench *b, const char *what, const char *unit, double value,
                    const char *ceiling_name, double ceiling)
{
    const struct bench_row row = {.name = what,
                                  .unit = unit,
                                  .value = value,
                                  .ceiling_name = ceiling_name,
                                  .ceiling = ceiling};
    json_array_append_new(b->rows, bench_row_json(&row));
}

static void add_rows(struct bench *b, const struct transfer_case *c,
                     const struct transfer_figures *f)
{
    const struct {
        const char *what, *unit;
        double value;
    } others[] = {{"latency, mean", "us a batch", f->latency_ns / 1e3},
                  {"latency, p50", "us a batch", f->p50_ns / 1e3},
                  {"latency, p99", "us a batch", f->p99_ns / 1e3},
                  {"latency, p999", "us a batch", f->p999_ns / 1e3},
                  {"bytes copied", "a byte", f->copied},
                  {"system calls", "a request", f->system_calls},
                  {"allocations", "a request", f->allocations},
                  {"instructions", "a request", f->instructions}};
    char name[192], base[128];
    snprintf(base, sizeof(base), "engine %s %s %s %" PRIu64 " x %u, %u threads",
             b->options.transport, base_config_string(b->config, SET_OP_TYPE),
             b->options.random ? "random" : "fixed", c->block, c->batch, c->threads);
    add_row(b, base, "GB/s", f->bytes_per_s / 1e9, f->ceiling_name, f->ceiling_bytes_per_s / 1e9);
    snprintf(name, sizeof(name), "%s, processor", base);
    add_row(b, name, "s a GB", f->cpu_s_per_gb, f->ceiling_name, f->ceiling_cpu_s_per_gb);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        snprintf(name, sizeof(name), "%s, %s", base, others[i].what);
        add_row(b, name, others[i].unit, others[i].value, NULL, 0);
    }
}

static int write_rows(struct bench *b)
{
    const char *path = base_config_string(b->config, SET_JSON);
    json_t *root = json_pack("{s:s, s:O}", "version", YOLK_VERSION, "rows", b->rows);
    int failed = root == NULL || json_dump_file(root, path, JSON_INDENT(1)) != 0;
    json_decref(root);
    if (!failed)
        return CLI_OK;
    fprintf(stderr, "yolk bench engine: --json %s: cannot be written\n", path);
    return CLI_FAILED;
}

/* ---- the cases ---- */

static enum yolk_status run_case(struct bench *b, const struct transfer_case *c, bool *told)
{
    struct transfer_figures figures;
    char size[32];
    if (!bench_transfer_fits(b->transfer, c)) {
        b->skipped++;
        printf("%10s %7u %4u  left out: more than --total-buffer-size, or than the target\n",
               base_format_size(c->block, size, sizeof(size)), c->batch, c->threads);
        return YOLK_OK;
    }
    enum yolk_status status = bench_transfer_run(b->transfer, c, &figures);
    if (status != YOLK_OK)
        return status;
    print_case(c, &figures);
    add_rows(b, c, &figures);
    if (!*told && figures.reason[0] != '\0')
        printf("%10s %s\n", "", figures.reason);
    if (!*told && figures.instructions_reason[0] != '\0')
        printf("%10s %s\n", "", figures.instructions_reason);
    *told = true;
    return YOLK_OK;
}

static enum yolk_status run_cases(struct bench *b)
{
    const struct base_config *k = b->config;
    enum yolk_status status = YOLK_OK;
    bool told = false;
    print_head(b);
    for (uint64_t threads = base_config_u64(k, SET_START_NUM_THREADS);
         threads <= base_config_u64(k, SET_MAX_NUM_THREADS); threads *= 2)
        for (uint64_t batch = base_config_u64(k, SET_START_BATCH_SIZE);
             batch <= base_config_u64(k, SET_MAX_BATCH_SIZE); batch *= 2)
            for (uint64_t block = base_config_u64(k, SET_START_BLOCK_SIZE);
                 block <= base_config_u64(k, SET_MAX_BLOCK_SIZE) && status == YOLK_OK; block *= 2) {
                const struct transfer_case c = {.block = block,
                                                .batch = (uint32_t)batch,
                                                .threads = (uint32_t)threads,
                                                .turn_ms = base_config_u64(k, SET_DURATION) / TURNS,
                                                .turns = TURNS};
                status = run_case(b, &c, &told);
            }
    return status;
}

static int measure(struct bench *b)
{
    b->rows = json_array();
    bench_cost_init();
    enum yolk_status status = bench_transfer_open(&b->options, &b->transfer);
    if (status == YOLK_OK)
        status = run_cases(b);
    bench_transfer_close(b->transfer);
    int code = status == YOLK_OK
                   ? CLI_OK
                   : cli_failure(&command, status, "--xport-type %s", b->options.transport);
    if (code == CLI_OK && b->skipped > 0)
        printf("%" PRIu64 " cases left out\n", b->skipped);
    if (code == CLI_OK && base_config_string(b->config, SET_JSON)[0] != '\0')
        code = write_rows(b);
    json_decref(b->rows);
    return code;
}

/* Until a signal comes, which no thread of the engine takes. */
static void tell_target(void *self, enum yolk_status status, const char *name)
{
    int number;
    if (status != YOLK_OK)
        return;
    printf("--target-seg-name='%s'\n", name);
    (void)fflush(stdout);
    while (sigwait(self, &number) != 0)
        ;
}

static int serve(const struct bench *b)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    enum yolk_status status = bench_transfer_serve(&b->options, tell_target, &set);
    return status == YOLK_OK ? CLI_OK : cli_failure(&command, status, "--role target");
}

int cli_bench_engine(int argc, char **argv)
{
    struct base_config config;
    struct bench b = {.config = &config};
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    code = check_all(&config);
    if (code == CLI_OK)
        code = read_options(&b);
    if (code == CLI_OK)
        code = is(&config, SET_ROLE, "target") ? serve(&b) : measure(&b);
    explicit_bzero(b.secret, sizeof(b.secret));
    base_config_free(&config);
    return code;
}
