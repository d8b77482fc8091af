/* SPDX-License-Identifier: Apache-2.0 */
/* What the case tests of the disk tier share. */
#ifndef TEST_CASES_DISK_H
#define TEST_CASES_DISK_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/store.h>

#include "cluster.h"

enum { DISK_PATH_MAX = 512 };

/* Values of one size under the keys "PREFIX/NUMBER"; the number is the seed of the bytes. */
struct values {
    const char *prefix;
    uint64_t count;
    size_t size;
    uint8_t *stored; /* by number: its put answered that it is there */
};

/* What the reads of values found. */
struct found {
    uint64_t exact;
    uint64_t on_disk;    /* of these, read from a disk */
    uint64_t missing;    /* NOT_FOUND, never stored */
    uint64_t lost;       /* NOT_FOUND, though stored */
    uint64_t unexpected; /* any other failure */
    uint64_t wrong;      /* other bytes, or another size */
};

void values_make(struct values *values, const char *prefix, uint64_t count, size_t size);
void values_free(struct values *values);
/* Puts those from `from` up to (not with) `to`; answers how many were refused. */
uint64_t values_put(struct yolk_store *store, struct values *values, uint64_t from, uint64_t to);
/* The same by several threads at once. */
uint64_t values_put_parallel(struct yolk_store *store, struct values *values, int threads);
struct found values_get(struct yolk_store *store, const struct values *values);
/* As get_one, and where the value was read from. */
int64_t get_from(struct yolk_store *store, const char *key, void *data, size_t size,
                 int32_t *medium);

/* Waits until the master has no task left that it gave a node, and no reader. */
void disk_wait_quiet(struct yolk_store *store);
/* Waits until `count` disks are mounted. */
void disk_wait_mounted(struct yolk_store *store, uint64_t count);
void disk_wait_figure_at_least(struct yolk_store *store, const char *name, uint64_t least);
/* The master's books agree with a recount. */
void disk_check_books(struct yolk_store *store);

/* A folder on a real disk, and its end. */
void scratch_make(char folder[DISK_PATH_MAX]);
void scratch_remove(const char *folder);
/* Files in it, by name: how many there are whose name is not `name`. */
int scratch_files_beside(const char *folder, const char *name);

/* `yolk fsck --data` of PATH: 1 if nothing is wrong. What it says goes to `text`. */
int fsck_is_clean(const char *path, char *text, size_t size);
/* The number after `name` in what fsck said. */
uint64_t fsck_figure(const char *text, const char *name);
/* How often a text stands in a file. */
uint64_t occurrences(const char *path, const char *text);

/* An ext4 of its own, over a file, at `folder`/disk; 0 where this is not allowed, which is said as
 * the reason to skip. */
int loop_disk_mount(const char *folder, uint64_t bytes);
void loop_disk_unmount(const char *folder);
/* Of cmocka: after a failure there is one left. */
int loop_disk_teardown(void **state);

/* One master, one node with a disk, one client without any memory of its own. */
struct disk_cluster {
    struct cluster cluster;
    char folder[DISK_PATH_MAX];
    char log[DISK_PATH_MAX + 8];   /* of the node; stays when the test fails */
    char file[DISK_PATH_MAX + 16]; /* the node's extent file */
    struct cluster_node node;
    struct yolk_store *store;
};

extern const struct cluster_options disk_cluster_options;
/* faults: see struct cluster_node. */
void disk_cluster_start(struct disk_cluster *c, const char *dram, const char *ssd,
                        const char *faults);
/* Starts the node again, which has ended; waits until it is mounted and all that the master
 * remembers of its disk is taken up again. */
void disk_cluster_restart_node(struct disk_cluster *c, const char *what);
/* Also compares the master's books. */
void disk_cluster_end(struct disk_cluster *c);

/* Resident memory of a process, and the CPU time it has used. */
uint64_t resident_bytes(pid_t pid);
uint64_t cpu_ms(pid_t pid);
#endif
