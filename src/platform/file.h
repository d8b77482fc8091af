/* SPDX-License-Identifier: Apache-2.0 */
/* Files as a service. The simulated file system forgets, tears and reorders what was not synced. */
#ifndef PLATFORM_FILE_H
#define PLATFORM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "yolk/status.h"

enum file_open_flag {
    FILE_READ = 1,
    FILE_WRITE = 2,
    FILE_CREATE = 4,
    FILE_EXCLUSIVE = 8, /* with FILE_CREATE: the file must not exist */
    FILE_TRUNCATE = 16,
    FILE_DIRECT = 32, /* around the page cache where the file system can; see file_direct_refuse */
};

/* What direct I/O asks of addresses, and of offsets and sizes; powers of two. */
struct file_alignment {
    uint32_t memory;
    uint32_t offset;
};

/* One operation on the open file, for file_completed. */
enum file_operation {
    FILE_OPERATION_READ,
    FILE_OPERATION_WRITE,
    FILE_OPERATION_SYNC,
    FILE_OPERATION_ALLOCATE,
    FILE_OPERATION_COUNT,
};

struct file; /* an open file; which system it belongs to is its own business */

struct file_ops {
    int (*open)(void *self, const char *path, unsigned flags, struct file **out);
    int (*pread)(struct file *f, void *to, size_t size, uint64_t offset, size_t *got);
    int (*pwrite)(struct file *f, const void *from, size_t size, uint64_t offset);
    int (*fdatasync)(struct file *f);
    int (*fallocate)(struct file *f, uint64_t offset, uint64_t size);
    int (*size)(struct file *f, uint64_t *out);
    void (*close)(struct file *f);
    int (*unlink)(void *self, const char *path);
    int (*rename)(void *self, const char *from, const char *to);
    int (*resize)(struct file *f, uint64_t size);
    int (*lock)(struct file *f);
    int (*alignment)(struct file *f, struct file_alignment *out);
    int (*space)(struct file *f, uint64_t *free_bytes);
    int (*descriptor)(struct file *f);
    bool (*direct)(struct file *f);
    void (*direct_refuse)(struct file *f, int errnum);
    ssize_t (*completed)(struct file *f, enum file_operation operation, size_t size,
                         ssize_t result); /* NULL: unchanged */
};

struct file_system {
    const struct file_ops *ops;
    void *self;
};

struct file {
    const struct file_ops *ops;
};

struct file_system file_system_real(void);
/* The real one; under the rules of YOLK_TEST_FILE_FAULTS (file_inject.h) where a test set that. */
struct file_system file_system_default(void);

/* `got` is smaller than `size` only at the end of the file. pwrite writes all or fails.
 * fallocate makes the range readable as zeros where nothing was written and grows the size;
 * UNSUPPORTED where the file system cannot reserve (file_resize or writing zeros then helps). A
 * file that is being read and written around the page cache wants what file_alignment says. */
YOLK_MUST_USE int file_open(const struct file_system *fs, const char *path, unsigned flags,
                            struct file **out);
YOLK_MUST_USE int file_pread(struct file *f, void *to, size_t size, uint64_t offset, size_t *got);
YOLK_MUST_USE int file_pwrite(struct file *f, const void *from, size_t size, uint64_t offset);
YOLK_MUST_USE int file_fdatasync(struct file *f);
YOLK_MUST_USE int file_fallocate(struct file *f, uint64_t offset, uint64_t size);
YOLK_MUST_USE int file_size(struct file *f, uint64_t *out);
void file_close(struct file *f);
YOLK_MUST_USE int file_unlink(const struct file_system *fs, const char *path);
/* Replaces `to`; durable when it returns. */
YOLK_MUST_USE int file_rename(const struct file_system *fs, const char *from, const char *to);
/* Cuts the file off, or lets it grow by a hole. */
YOLK_MUST_USE int file_resize(struct file *f, uint64_t size);
/* Locks the file against every other open of it (those of this process too) until it is closed;
 * BUSY, at once, if another has it. Those that are open for reading only may have it together. */
YOLK_MUST_USE int file_lock(struct file *f);
/* For this file as if it were read and written around the page cache. 4096 where nobody says;
 * `offset` is at least the device's sector even if the file system names less. */
YOLK_MUST_USE int file_alignment(struct file *f, struct file_alignment *out);
/* What an ordinary user may still write to the file system it lies in; very much where that does
 * not say. */
YOLK_MUST_USE int file_space(struct file *f, uint64_t *free_bytes);
/* For I/O that goes around this service, as io_uring's; -1: there is none (simulated). What such an
 * operation answered (bytes or -errno) must pass through file_completed before it is believed. */
int file_descriptor(struct file *f);
ssize_t file_completed(struct file *f, enum file_operation operation, size_t size, ssize_t result);
/* Does it go around the page cache now? */
bool file_direct(struct file *f);
/* Some file systems refuse direct I/O at open, some only at the first read or write. Either way the
 * file is used through the page cache from then on, which is logged and counted once. pread and
 * pwrite see to that themselves; who uses the descriptor calls this upon EINVAL and tries again. */
void file_direct_refuse(struct file *f, int errnum);
/* Files of this process that were to be direct and could not. */
uint64_t file_direct_refusals(void);
/* The share of the file's pages that the page cache holds, 0 to 1; by path, as a report of
 * file_direct's truth. */
YOLK_MUST_USE int file_residency(const char *path, double *out);

/* ---- simulated ---- */
struct file_sim;

/* What the next operation of a kind answers; the fault disappears once used. */
enum file_sim_fault { FILE_SIM_FAIL_WRITE, FILE_SIM_FAIL_SYNC, FILE_SIM_NO_SPACE };

YOLK_MUST_USE int file_sim_create(uint64_t seed, struct file_sim **out);
void file_sim_destroy(struct file_sim *sim);
struct file_system file_sim_system(struct file_sim *sim);
/* A crash: open handles die (their operations answer YOLK_ERR_CLOSED; still close them), and of the
 * writes since the last sync of each file a subset survives, in any order, some torn (each 512-byte
 * sector on its own). Creation and unlinking are durable at once (callers sync their directory, and
 * we do not model it). */
YOLK_MUST_USE int file_sim_crash(struct file_sim *sim);
/* What file_space answers (4 GiB at first); writes do not consume it. */
void file_sim_set_space(struct file_sim *sim, uint64_t free_bytes);
/* fallocate is UNSUPPORTED from now on. */
void file_sim_refuse_allocation(struct file_sim *sim);
void file_sim_inject(struct file_sim *sim, enum file_sim_fault fault, unsigned after_operations);
/* Faults that were not met yet are forgotten. */
void file_sim_heal(struct file_sim *sim);

#endif
