/* SPDX-License-Identifier: Apache-2.0 */
/* Files as a service. The simulated file system forgets, tears and reorders what was not synced. */
#ifndef PLATFORM_FILE_H
#define PLATFORM_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

enum file_open_flag {
    FILE_READ = 1,
    FILE_WRITE = 2,
    FILE_CREATE = 4,
    FILE_EXCLUSIVE = 8, /* with FILE_CREATE: the file must not exist */
    FILE_TRUNCATE = 16,
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
};

struct file_system {
    const struct file_ops *ops;
    void *self;
};

struct file {
    const struct file_ops *ops;
};

struct file_system file_system_real(void);

/* `got` is smaller than `size` only at the end of the file. pwrite writes all or fails.
 * fallocate makes the range readable as zeros where nothing was written and grows the size. */
YOLK_MUST_USE int file_open(const struct file_system *fs, const char *path, unsigned flags,
                            struct file **out);
YOLK_MUST_USE int file_pread(struct file *f, void *to, size_t size, uint64_t offset, size_t *got);
YOLK_MUST_USE int file_pwrite(struct file *f, const void *from, size_t size, uint64_t offset);
YOLK_MUST_USE int file_fdatasync(struct file *f);
YOLK_MUST_USE int file_fallocate(struct file *f, uint64_t offset, uint64_t size);
YOLK_MUST_USE int file_size(struct file *f, uint64_t *out);
void file_close(struct file *f);
YOLK_MUST_USE int file_unlink(const struct file_system *fs, const char *path);

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
void file_sim_inject(struct file_sim *sim, enum file_sim_fault fault, unsigned after_operations);

#endif
