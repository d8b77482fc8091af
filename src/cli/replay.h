/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_REPLAY_H
#define YOLK_CLI_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/trace.h"

/*
 * The replay in one picture:
 *
 *   replay.c          flags, set-up, the order of things
 *   replay_driver.c   one thread; walks the requests and tells the workers what to read and write
 *   replay_worker.c   a worker: a thread (embedded, --master) or a process (--processes) with a
 * store replay_cluster.c  starts, names, watches and restarts the processes replay_report.c   the
 * progress bar, the report, the JSON replay_model.c    what plain LRU would do with the same trace
 *
 * The driver and a worker talk over a socket pair, so that a worker can be killed at any point: the
 * driver then gives the same command to its successor.
 */

enum {
    REPLAY_CLIENTS_MAX = 64,
    REPLAY_NODES_MAX = 64,
    REPLAY_WORKERS_MAX = 2 * REPLAY_CLIENTS_MAX,
    REPLAY_FLAGS_MAX = 16,
};

enum replay_mode { REPLAY_EMBEDDED, REPLAY_PROCESSES, REPLAY_MASTER };

struct replay_options {
    enum replay_mode mode;
    const char *trace_path; /* NULL: synthetic */
    const char *master;     /* REPLAY_MASTER: the address; REPLAY_PROCESSES: filled in */
    const char *secret_file;
    const char *transport;
    const char *eviction_policy;
    const char *json_path;
    uint64_t block_size;
    uint64_t dram;        /* over all nodes */
    uint64_t ssd;         /* over all nodes; 0: none */
    const char *ssd_path; /* a folder; NULL: a temporary one */
    uint64_t gds;         /* over all that write; 0: none */
    const char *gds_path; /* PATH.slotN are the files */
    int gpu;              /* blocks are in memory of this one; -1: of the host */
    uint64_t seed;
    uint64_t put_wait_ms;
    uint64_t timeout_ms;
    const char *master_flags[REPLAY_FLAGS_MAX]; /* handed on to the processes as they are */
    const char *node_flags[REPLAY_FLAGS_MAX];
    size_t master_flag_count, node_flag_count;
    size_t nodes;
    size_t clients;
    size_t requests; /* 0: all of the trace */
    size_t report_every;
    bool respawn;
    bool unordered;
    bool hold;
};

/* What the driver asks of a worker, and what it hears. LOOKUP is EXIST, then GET of the prefix
 * found. */
enum replay_command_kind {
    REPLAY_EXIST = 1,
    REPLAY_GET,
    REPLAY_LOOKUP,
    REPLAY_PUT,
};

struct replay_command {
    uint32_t kind;
    uint32_t count;
    uint64_t number; /* of this command; its answer repeats it */
};

struct replay_answer {
    uint64_t number;
    uint64_t bytes;
    uint64_t wrong_bytes;
    uint64_t elapsed_ns;         /* inside get or put calls */
    uint32_t prefix;             /* EXIST: present; GET, LOOKUP: read and verified without a gap */
    uint32_t from_ssd, from_gds; /* of the prefix read */
    uint32_t failed;
    int32_t status; /* of the first failure */
    uint32_t calls;
    char text[192]; /* about the first failure */
};

/* What a worker needs to open its store. */
struct replay_worker_options {
    const char *master;
    const char *name;
    const char *secret_file;
    const char *transport;
    uint64_t block_size;
    uint64_t seed;
    uint64_t put_wait_ms;
    uint64_t timeout_ms;
    uint64_t gds; /* of this one */
    const char *gds_path;
    int gpu;
};

struct yolk_store;
struct yolk_store_options;
struct replay_store; /* replay_store.c: the one file that calls the store */

struct replay_totals {
    uint64_t requests, blocks_referenced, blocks_hit;
    uint64_t blocks_from_ssd, blocks_from_gds; /* of those hit */
    uint64_t bytes_read, bytes_written, wrong_bytes, failed_puts, failed_gets;
    uint64_t get_ns, put_ns;
    double seconds;
    uint64_t rss_max_bytes;
    uint64_t restarts;
    uint32_t *get_us; /* one sample a get call */
    size_t get_us_count, get_us_capacity;
    char first_failure[256];
};

/* One worker as the driver sees it. */
struct replay_worker {
    char role[32];
    int fd;    /* -1: gone */
    pid_t pid; /* 0: a thread */
    bool busy;
    struct replay_command command; /* kept until answered, for a successor */
    const uint64_t *ids;
    size_t answer_bytes; /* of `answer`, so far */
    struct replay_answer answer;
    struct replay_store *store; /* of a thread; owned elsewhere */
    void *thread;
};

struct replay_cluster;

/* replay_cluster.c */
struct replay_cluster *replay_cluster_create(const struct replay_options *options);
int replay_cluster_start(
    struct replay_cluster *cluster); /* master, nodes; prints role, pid, ports */
int replay_cluster_start_worker(struct replay_cluster *cluster, struct replay_worker *worker);
/* Looks for dead children; restarts masters and nodes when allowed. -1: one died and may not be
 * restarted. A dead worker is only marked (fd -1): the driver restarts it with
 * replay_cluster_start_worker(). */
int replay_cluster_watch(struct replay_cluster *cluster, struct replay_worker *workers,
                         size_t worker_count);
/* The largest resident set of any process so far; also remembers those of the dead. */
uint64_t replay_cluster_rss(struct replay_cluster *cluster, const struct replay_worker *workers,
                            size_t worker_count);
void replay_cluster_print_rss(const struct replay_cluster *cluster);
uint64_t replay_cluster_restarts(const struct replay_cluster *cluster);
void replay_cluster_destroy(struct replay_cluster *cluster, struct replay_worker *workers,
                            size_t worker_count);
uint64_t replay_rss_of(pid_t pid);

/* replay_store.c */
struct replay_store *replay_store_open(const struct replay_worker_options *options, char *error,
                                       size_t error_size);
void replay_store_close(struct replay_store *store);
void replay_store_execute(struct replay_store *store, const struct replay_command *command,
                          const uint64_t *ids, struct replay_answer *answer);
/* A worker's view of an open store, with its own buffer registered. `owned`: closed with it. */
struct replay_store *replay_store_wrap(struct yolk_store *store, bool owned,
                                       const struct replay_worker_options *options, char *error,
                                       size_t error_size);

/* A GDS file of this size, 0: none. */
void replay_store_add_gds(struct yolk_store_options *out, uint64_t size, const char *path);

/* replay_embedded.c: the embedded cluster, master and nodes in this process */
struct replay_embedded;
struct replay_embedded *replay_embedded_open(const struct replay_options *options, char *error,
                                             size_t error_size);
struct yolk_store *replay_embedded_store(const struct replay_embedded *embedded, size_t client);
void replay_embedded_close(struct replay_embedded *embedded);

/* replay_worker.c */
int replay_worker_serve(int fd, struct replay_store *store);
int cli_replay_worker(int argc, char **argv); /* `yolk replay-worker`: not for people */
int replay_worker_start_thread(struct replay_worker *worker, struct replay_store *store);
void replay_worker_join_thread(struct replay_worker *worker);

/* replay.c. True once a signal asked for the end: the replay then fails, in order. */
bool replay_stopped(void);

/* replay_driver.c */
int replay_drive(const struct replay_options *options, const struct trace *trace,
                 struct replay_cluster *cluster, struct replay_worker *workers, size_t worker_count,
                 struct replay_totals *totals);

/* replay_report.c */
void replay_progress(const struct replay_options *options, const struct replay_totals *totals,
                     size_t requests);
void replay_progress_end(const struct replay_options *options);
uint64_t replay_percentile_us(struct replay_totals *totals, double share);
void replay_report(const struct replay_options *options, const struct trace *trace,
                   struct replay_totals *totals);
int replay_write_json(const struct replay_options *options, struct replay_totals *totals);

/* replay.c */
int replay_run(struct replay_options *options, struct replay_totals *totals);
int cli_replay(int argc, char **argv);

/* demo.c */
int cli_demo(int argc, char **argv);

#endif
