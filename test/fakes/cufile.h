/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake cuFile. Batches move on when somebody asks for their status.
 *
 * Commands of fake_cufile_control and of FAKE_CUFILE:
 *   reset                   rules and faults go; handles, registrations and batches stay
 *   set mode compat|direct  which way I/O takes where it may (default compat, as without nvidia-fs)
 *   set version N           1150 (default) or 1200, which has other statistics; before any call
 *   set udev 0|1            0: files cannot be registered, 5027, as without a udev database
 *   set batchmax N          entries of a batch (default 128)
 *   set buffers N           buffers that may be registered at a time (default: any)
 *   set pool N              entries of one submission after which, in compat mode, it blocks until
 *                           `release` (default: any; 64 is what was reported of a real one)
 *   set open ERROR|abort|hang
 *   set late 0|1            1: parameters are read when the I/O runs, not at the submission
 *   set order fifo|lifo     of completions
 *   set sparse N            at most N events in one answer
 *   set delay N             each entry takes N status calls more
 *   set cancel obey|ignore|error
 *   hold 0|1                nothing in any batch moves on
 *   fail NAME N ERROR [K]   the N-th call from now on answers ERROR, and K-1 more (0: all further);
 *                           with -9 the process is killed there
 *   io N short BYTES        the N-th entry submitted from now on moves so many bytes
 *   io N error [1]          ... fails so that the status call answers 5044 (S7); 1: as in S15
 *   io N status S [RESULT]  ... ends with the status S and moves nothing
 *   io N late S             ... ends with the status S, and its bytes move at the command `late`
 *   io N twice              ... is told twice, the second time as PENDING
 *   io N stranger           ... is told together with an event that has no such cookie
 *   refuse N ERROR          a submission stops before the N-th entry submitted from now on and
 *                           answers ERROR; those before it are in the batch
 *   late | release
 *   calls NAME
 *   count WHAT              handles|buffers|batches|inflight|registrations|submissions|largest
 *                           (entries of the largest submission)
 *
 * SEEN of libcufile 1.15.1.6 and 1.20.0.107 in compatibility mode, on the fake CUDA driver:
 *   S1  an event is told once; completions are out of order, also within one answer
 *   S2  a submission over the batch's size answers 5040 and takes nothing; one over 64 entries
 *       never returns
 *   S3  a set-up over the maximum answers 5022
 *   S4  cancel answers 0; of its entries none is told ever after, all bytes move, the batch can be
 *       used again
 *   S5  a read at the end of a file is COMPLETE with 0 bytes, and short before it
 *   S6  a buffer that is registered twice answers 5023
 *   S7  a failed entry makes the status call itself answer 5044 (`io N error`); the batch goes on
 *   S8  a write to a file opened for reading refuses the whole submission, 5040 (1.15) or 5019
 *       (1.20); nothing of it is in the batch
 *   S9  an entry of 0 bytes is never told
 *   S10 a file without a name cannot be registered, 5031
 *   S11 level 3 of the statistics fills as many GPUs as there are, and counts a write by posix once
 *   S12 each I/O leaves a context more on its thread's stack
 *   S13 driver open spins for ever where there is no /proc/modules, and calls exit(1) in the
 *       middle of I/O when the CUDA driver fails it
 *   S14 an entry added to a handle that has others under way may never be told, though its bytes
 *       move
 *   S15 entries that had ended, but were not told, before a status call that failed
 *       (`io N error 1`) are never told, though their bytes move
 *
 * SEEN of libcufile 1.15.1 on an H200:
 *   S16 a process that exits with the driver open, or with something registered, dies by SIGSEGV
 *       in the library's own function of atexit
 *
 * UNVERIFIED, taken as written here until a run with direct I/O settles it:
 *   F1  S4 and S7 hold for direct I/O too
 *   F2  entries of a submission that fails half-way (`refuse`) stay in the batch
 *   F3  the direct way needs a registered base, whole blocks of 4 KiB
 */
#ifndef FAKES_CUFILE_H
#define FAKES_CUFILE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/cufile_abi.h"

#define FAKE_API __attribute__((visibility("default")))

enum { FILES_MAX = 64, BUFFERS_MAX = 1024, CALLS_MAX = 64, RULES_MAX = 16 };

enum fault_kind {
    FAULT_NONE,
    FAULT_SHORT,
    FAULT_STATUS,
    FAULT_ERROR,
    FAULT_LATE,
    FAULT_TWICE,
    FAULT_STRANGER,
    FAULT_REFUSE
};

struct fault {
    enum fault_kind kind;
    unsigned long at; /* the entry, counted from the command on */
    unsigned long seen;
    long value;
    long result;
};

struct file {
    bool used;
    int fd; /* a second one, without O_DIRECT */
};

struct entry {
    struct entry *next;
    struct cufile_io copy, *given; /* given: read when the I/O runs */
    unsigned delay;
    bool canceled; /* told as such, or silent */
    struct fault fault;
};

struct batch {
    struct batch *next;
    unsigned size;
    struct entry *first, **last;
    unsigned count;               /* not told yet */
    struct cufile_event extra[4]; /* events that are no entry's end */
    unsigned extra_count;
};

struct fake_cufile {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool open, direct, udev, late, lifo, hold;
    int version, cancel, open_error;
    pid_t opener;       /* the process that opened the driver */
    _Atomic bool ended; /* the library's own end has run */
    bool open_abort, open_hang;
    unsigned batch_max, pool, sparse, delay;
    unsigned long buffers_max;
    struct file files[FILES_MAX];
    struct {
        uintptr_t base;
        size_t size;
    } buffers[BUFFERS_MAX];
    struct fault faults[RULES_MAX];
    unsigned fault_count;
    struct {
        char name[48];
        unsigned long first, last, seen;
        int error;
    } rules[RULES_MAX];
    unsigned rule_count;
    struct {
        char name[48];
        unsigned long calls;
    } calls[CALLS_MAX];
    struct batch *batches;
    struct entry *late_entries;
    unsigned long registrations, submissions, largest;
    struct cufile_gpu_statistics statistics;
    int log_fd;
};

extern struct fake_cufile cufile;

/* Locks, counts, logs; the error that was wished. */
int cufile_enter(const char *name);
struct cufile_error cufile_leave(int error);
void cufile_unlock(void);
/* Moves the bytes; the count or a negative errno. Under the lock. */
ssize_t cufile_move(struct file *file, uintptr_t base, size_t size, off_t file_offset,
                    off_t base_offset, bool write);
struct file *cufile_file(cufile_handle handle);
bool cufile_writable(const struct file *file);
/* The fault that the next entry meets. */
struct fault cufile_draw_fault(void);
void cufile_run_late(void);
/* The fake CUDA driver's second mapping. */
void *fake_cuda_shadow(const void *pointer, size_t size);

FAKE_API long fake_cufile_control(const char *commands);

#endif
