/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench`: figures beside their ceilings.
 *
 * A measurement adds rows. Where there is a ceiling, a bare loop that does only what the machine
 * must do is run in turn with ours, in the same process and minute, so that what else the machine
 * does meets both; each is the median of at least five. Seconds differ between machines and hours:
 * the ratios are what is promised. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/store.h>

/* argv[0] is "bench", argv[1] the measurement's name. */
int cli_bench(int argc, char **argv);

/* Those with flags of their own get their own name as argv[0]. */
int cli_bench_ssd(int argc, char **argv);
int cli_bench_policy(int argc, char **argv);
int cli_bench_engine(int argc, char **argv);
int cli_bench_gpu(int argc, char **argv);
int cli_bench_gds(int argc, char **argv);

/* ---- rows ---- */
enum { BENCH_ROWS_MAX = 64, BENCH_RUNS_MAX = 101 };

enum bench_bound {
    BENCH_OPEN = 0, /* nothing is promised */
    BENCH_RATIO_AT_LEAST,
    BENCH_VALUE_AT_LEAST,
    BENCH_VALUE_AT_MOST
};

struct bench_row {
    const char *name; /* static, like all texts here; "group what size" */
    const char *unit;
    double value;
    const char *ceiling_name; /* NULL: none */
    double ceiling;
    bool less_is_better; /* the ratio is then ceiling / value */
    enum bench_bound bound;
    double limit;
};

struct bench_report {
    struct bench_row rows[BENCH_ROWS_MAX];
    size_t count;
    bool quick; /* a tenth of the size and five runs: to look at, not to judge */
};

void bench_add(struct bench_report *bench, const struct bench_row *row);
struct json_t;
/* {name, unit, value, ceiling_name, ceiling, ratio}, as in the files of --json; NULL without
 * memory. */
struct json_t *bench_row_json(const struct bench_row *row);
/* Higher is better; NAN without a ceiling. */
double bench_ratio(const struct bench_row *row);
bool bench_holds(const struct bench_row *row);

/* Runs each contender in turn, one more time first to warm up; the seconds of a run come from the
 * contender. The order turns round with each run. */
struct bench_contender {
    const char *name;
    enum yolk_status (*run)(void *self, double *seconds);
    void *self;
    double seconds; /* out: the median */
};
YOLK_MUST_USE enum yolk_status bench_in_turn(struct bench_contender *contenders, size_t count,
                                             int runs);
double bench_median(double *values, size_t count);
uint64_t bench_now_ns(void);
double bench_seconds_since(uint64_t start_ns);
/* Processor time of this thread. */
uint64_t bench_processor_ns(void);

/* ---- what a call costs beside time ---- */
struct bench_cost {
    double system_calls; /* of the calling thread, one call; NAN: see reason */
    double allocations;  /* through base_malloc and its like, same thread */
    double instructions; /* of the calling thread outside of the system; NAN: see its reason */
    char reason[128], instructions_reason[128];
};
/* Makes the call `count` times in a thread of its own. */
YOLK_MUST_USE enum yolk_status bench_cost(enum yolk_status (*call)(void *self), void *self,
                                          uint32_t count, struct bench_cost *out);
/* Once, before any other thread runs. */
void bench_cost_init(void);

/* ---- processes of their own ---- */

/* One that ends when its parent does, or wants it to. */
struct bench_child {
    int pid;     /* 0: none */
    int stop_fd; /* closing it ends the child */
};
enum { BENCH_WORD_MAX = 3072 };
/* In the child: `stop_fd` is at its end once the child is to end; the child calls bench_child_say
 * once, with its address or the like, or what is wrong. */
struct bench_child_run {
    enum yolk_status (*run)(void *self, int stop_fd, int word_fd);
    void *self;
};
YOLK_MUST_USE enum yolk_status bench_child_start(struct bench_child *child,
                                                 const struct bench_child_run *run,
                                                 char word[BENCH_WORD_MAX]);
void bench_child_say(int word_fd, enum yolk_status status, const char *text);
void bench_child_wait_for_end(int stop_fd);
bool bench_child_is_wanted(int stop_fd); /* false once it is to end */
void bench_child_end(struct bench_child *child);

/* ---- a master and a node apart from the one that measures ---- */
struct bench_cluster {
    char address[128]; /* of the master */
    struct bench_child master, node;
    struct yolk_store *store;
};
struct bench_cluster_options {
    uint64_t segment_bytes;
    const char *transport;   /* of the client; NULL: auto */
    bool spin;               /* the master polls for a while before it sleeps */
    uint64_t session_ttl_ms; /* 0: the master's default */
};
/* Master and node without a store here: whoever has no threads may fork on. */
YOLK_MUST_USE enum yolk_status bench_cluster_start(struct bench_cluster *cluster,
                                                   const struct bench_cluster_options *options);
YOLK_MUST_USE enum yolk_status bench_cluster_open(struct bench_cluster *cluster,
                                                  const struct bench_cluster_options *options);
void bench_cluster_close(struct bench_cluster *cluster);
/* Puts `count` values of `size` bytes, keys "v0", "v1", …, from memory filled with their number. */
YOLK_MUST_USE enum yolk_status bench_fill(struct yolk_store *store, uint32_t count, size_t size);
void bench_key(char key[16], uint32_t number);

/* ---- the measurements ---- */
YOLK_MUST_USE enum yolk_status bench_space(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_null(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_transfers(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_shm(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_tcp(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_callers(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_large(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_messages(struct bench_report *bench);
YOLK_MUST_USE enum yolk_status bench_objects(struct bench_report *bench);

#endif
