/* SPDX-License-Identifier: Apache-2.0 */
/* A small cluster of real processes for the case tests: one master, nodes, and clients as threads
 * of the test or as children of it. Every wait has a deadline; nothing sleeps for a fixed time. */
#ifndef TEST_CASES_CLUSTER_H
#define TEST_CASES_CLUSTER_H

#include <stdint.h>
#include <sys/types.h>

#include <yolk/store.h>

struct cluster_options {
    uint64_t lease_ttl_ms; /* of guards too */
    uint64_t put_timeout_ms;
    uint64_t session_ttl_ms;
    uint64_t watermark_permille; /* 0: the default */
};

enum { CLUSTER_NODES_MAX = 8 };

struct cluster {
    char address[64]; /* of the master */
    pid_t master;
    pid_t nodes[CLUSTER_NODES_MAX];
    int node_count;
    struct cluster_options options;
};

struct cluster_node {
    const char *dram;
    const char *ssd;        /* size; NULL: no disk */
    const char *ssd_folder; /* with `ssd` */
    const char *faults;     /* of its files, as platform/file_inject.h has them; NULL: none */
    const char *log;        /* file its messages are appended to; NULL: the test's own */
};

/* Each fails the running test when it cannot do its work. */
void cluster_start(struct cluster *cluster, const struct cluster_options *options);
int cluster_add_node(struct cluster *cluster, const char *dram);
int cluster_add_node_with(struct cluster *cluster, const struct cluster_node *node);
/* Starts it again under its number; it must have ended. */
void cluster_restart_node(struct cluster *cluster, int number, const struct cluster_node *node);
/* 1: it has ended, and was waited for. */
int cluster_node_ended(struct cluster *cluster, int node);
void cluster_kill_node(struct cluster *cluster, int node, int signal);
void cluster_kill_master(struct cluster *cluster);
/* At its address, knowing nothing. */
void cluster_restart_master(struct cluster *cluster);
void cluster_stop(struct cluster *cluster);

struct yolk_store *cluster_client(const struct cluster *cluster, uint64_t segment_size_bytes,
                                  uint64_t put_wait_ms);
/* The value of one line of the figures of yolk_store_stat. */
uint64_t cluster_figure(struct yolk_store *store, const char *name);
/* Bytes that hold values, are being written, or are given up and not yet reusable. */
uint64_t cluster_bytes_in_use(struct yolk_store *store);

struct segment_puts {
    uint64_t segment; /* its id: another one after a restart */
    uint64_t puts;    /* replicas placed there */
};
/* Of each segment whose owner lives; answers how many. */
int cluster_segment_puts(struct yolk_store *store, struct segment_puts *puts, int max);

/* Waits until the master reports `count` segments that take objects. */
void cluster_wait_segments(struct yolk_store *store, uint64_t count);

/* One key, one buffer. Returns the result of the key. */
int64_t put_one(struct yolk_store *store, const char *key, const void *data, size_t size);
int64_t get_one(struct yolk_store *store, const char *key, void *data, size_t size);
int64_t exist_one(struct yolk_store *store, const char *key);
int64_t remove_one(struct yolk_store *store, const char *key, int force);

/* The bytes a key must have; and whether it has them. */
void fill_value(void *data, size_t size, uint64_t seed);
int value_is(const void *data, size_t size, uint64_t seed);

/* Of the program `yolk` of this build. */
void program_path(char *path, size_t size);

uint64_t test_now_ms(void);
/* Runs check(context) until it is true or the deadline passed; answers whether it became true. */
int wait_until(int (*check)(void *context), void *context, uint64_t timeout_ms);
/* How much of a case to run: `cut` in automatic runs, `full` with YOLK_CASES_FULL=1. */
uint64_t rounds(uint64_t cut, uint64_t full);
#endif
