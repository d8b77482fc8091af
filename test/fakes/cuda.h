/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake CUDA driver. Streams are queues that move on when somebody asks (a query, a
 * synchronization), so what happens is the same in each run.
 *
 * Commands of fake_cuda_control and of FAKE_CUDA:
 *   reset                    rules, holds and errors go; memory stays
 *   disarm                   rules go
 *   set gpus N               before cuInit (default 1)
 *   set version N            before cuInit (default 13000)
 *   set bus N                PCI number of the first GPU (default 27, as 0000:1B:00.0); 0: that of
 *                            a device 0000:00:03.0 of virtual machines, where the real cuFile looks
 *   set missing NAME         this function is in no table; more than one may be set
 *   set ptx N                the newest PTX ISA taken, as 10 x its number (default 90); 0: none
 *   set fabric 0|1           fabric handles can be made (default 0, as without IMEX)
 *   set pinned N             bytes that may be registered or pinned at a time (default: any)
 *   set samepointer 0|1      attribute 91 (default 1)
 *   set strictexit 0|1       a call after the driver's end ends the process with status 97
 *   set host N               the machine that this process is on (default 0): memory of another one
 *                            is reached by fabric handles only, and never by its processor
 *   set domain N             the NVLink domain (default 0): of another one nothing is reached
 *   set first N              the number of the machine's GPU that is this process's first one
 *   set nodes N              NUMA nodes (default 1); GPU i is nearest to node i modulo N
 *   set numa GPU NODE        that GPU is nearest to this node; -1: the driver does not say
 *   set granularity NODE BYTES   of HOST_NUMA memory there (default 2 MiB)
 *   set hostnuma 0|1         HOST_NUMA memory can be made (default 1)
 *   set wrongsums BYTES      the kernel's checksums of pieces of so many bytes or more are wrong
 *   stall NAME               calls of this function do not begin until `stall none`
 *   fail NAME N ERROR [K]    the N-th call from now on answers ERROR, and K-1 more (0: all further)
 *   hold 0|1                 nothing in any stream moves on
 *   delay N                  each operation takes N queries more
 *   async ERROR [late]       the next operation fails when it runs, and the context with it
 *                            late: its bytes move at the command `late`, after everybody has heard
 *   late
 *   die ERROR                each call from now on answers ERROR
 *   calls NAME               how often it was called
 *   count WHAT               registered|registered_bytes|pinned|gpu|vmm|streams|events|contexts|
 *                            modules|reserved|launches|batches
 *   context                  how deep this thread's stack of contexts is
 *   capture                  this thread's capture mode
 *
 * UNVERIFIED, taken as written here until a real run settles it:
 *   U1  cuPointerGetAttributes needs no context, and answers type 0 and success for ordinary memory
 *   U2  RANGE_START and _SIZE of memory with a handle are those of the reserved addresses (seen: a
 *       range that ended in addresses with nothing behind them was taken for one allocation)
 *   U3  BUFFER_ID of registered and pinned host memory is there and not 0
 *   U4  type of HOST_NUMA memory is HOST; cuMemRetainAllocationHandle takes its address
 *   U5  cuMemHostRegister over a part that is registered already answers 712
 *   U6  a copy across two separately registered pieces is refused as INVALID_VALUE
 *   U7  which calls a global capture forbids to other threads (UNSAFE below)
 *   U8  after an asynchronous failure each call of the context answers its error, the query too
 *   U9  cuEventRecord into a stream that captures becomes part of the graph
 *   U10 in a child of fork each call answers NOT_INITIALIZED
 *   U11 the driver's end at exit is before destructors of libraries that were loaded before it
 *   U12 cuMemHostUnregister waits for nothing
 *   U20 a copy across allocations that are mapped side by side is one copy
 */
#ifndef FAKES_CUDA_H
#define FAKES_CUDA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"

#define FAKE_API __attribute__((visibility("default")))

enum { FAKE_NODES = 16 }; /* NUMA nodes of the machine */
enum { FAKE_GPUS = 8, FAKE_ALLOCATIONS = 4096, FAKE_RULES = 16, FAKE_NAMES = 128 };

/* What a call needs, and what forbids it. */
enum { FREE = 0, STARTED = 1, CONTEXT = 2, UNSAFE = 4 };

enum fake_kind {
    FAKE_NONE,
    FAKE_DEVICE,
    FAKE_PINNED,
    FAKE_MANAGED,
    FAKE_REGISTERED,
    FAKE_VMM,
    FAKE_IPC
};

struct fake_handle { /* memory with a handle */
    int fd;
    size_t size;
    struct cuda_location location;
    int handle_types;
    int host, domain; /* where it was made */
    unsigned references;
};

struct fake_allocation {
    enum fake_kind kind;
    int ordinal;
    uintptr_t base;
    size_t size;
    size_t mapped_size; /* of base and shadow, whole pages */
    uint8_t *shadow;
    uint64_t id;
    unsigned flags;
    int fd;          /* of FAKE_DEVICE: what other processes open; else -1 */
    uint64_t inode;  /* of FAKE_IPC: whose it is */
    unsigned opened; /* of FAKE_IPC: how often */
    struct fake_handle *handle;
    unsigned access; /* of FAKE_VMM: bit i: GPU i, bit 31: the host */
};

enum fake_op_kind { FAKE_COPY, FAKE_FILL, FAKE_KERNEL, FAKE_RECORD, FAKE_WAIT };

struct fake_op {
    struct fake_op *next;
    enum fake_op_kind kind;
    uint64_t to, from, size, count;
    uint8_t value;
    uint8_t *staged;  /* bytes of ordinary memory, taken at the call */
    const char *text; /* of the kernel, where that is run */
    struct CUevent_st *event;
    uint64_t number; /* of the record */
    unsigned delay;
    int error;
    bool late;
    unsigned grid, block;
};

struct CUctx_st {
    int ordinal;
};

struct CUstream_st {
    struct CUstream_st *next;
    int ordinal;
    unsigned flags;
    struct fake_op *first, **last;
    bool busy; /* moves on further up in this call */
    bool capturing;
    int capture_mode;
    int capture_status;
};

struct CUevent_st {
    int ordinal;
    uint64_t recorded; /* how many records were asked for */
    uint64_t happened;
    unsigned references; /* operations that name it */
    bool destroyed;
};

struct CUmod_st {
    int ordinal;
    char text[]; /* the image */
};

struct fake_rule {
    const char *name;
    unsigned long first, last; /* calls, counted from now */
    unsigned long seen;
    int error;
};

struct fake_cuda {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool started, ended;
    int process;
    int gpus, version, ptx, bus;
    int host, domain, first_gpu;
    int node_count;
    size_t granularity[FAKE_NODES];
    int numa_of[FAKE_GPUS];
    bool host_numa;
    char stalled[64];
    bool fabric, strict_exit, same_pointer, run_text;
    uint64_t wrong_sums; /* the size from which on checksums are wrong */
    uint64_t pinned_max, pinned_bytes;
    char missing[8][64];
    unsigned missing_count;
    struct fake_rule rules[FAKE_RULES];
    unsigned rule_count;
    bool hold;
    unsigned delay;
    int async_error;
    bool async_late;
    int death;
    int sticky[FAKE_GPUS];
    int retained[FAKE_GPUS];
    struct CUctx_st contexts[FAKE_GPUS];
    struct CUstream_st legacy[FAKE_GPUS];
    struct CUstream_st *streams;
    struct fake_op *late_ops;
    struct fake_allocation allocations[FAKE_ALLOCATIONS];
    unsigned allocation_count;
    uint64_t last_id;
    struct fake_addresses {
        uintptr_t base;
        size_t size;               /* 0: no entry */
    } addresses[FAKE_ALLOCATIONS]; /* reserved */
    long streams_open, events_open, modules_open, reserved, handles_open, launches, batches;
    int log_fd;
};

extern struct fake_cuda fake;

/* Zeroed memory of the driver's own, which it still has at its end: what a user leaves behind is no
 * leak of the program's. */
void *fake_new(size_t size);
void fake_delete(void *object);

/* Begins a call: locks, counts, logs; an error, unlocked, where it must not go on. */
cuda_result fake_enter(const char *name, unsigned needs);
cuda_result fake_leave(cuda_result result);

#define ENTER(name, needs)                                                                         \
    do {                                                                                           \
        cuda_result entered_ = fake_enter((name), (needs));                                        \
        if (entered_ != CUDA_OK)                                                                   \
            return entered_;                                                                       \
    } while (0)
#define LEAVE(result) return fake_leave(result)

/* This thread's. */
struct CUctx_st *fake_current(void);
struct fake_allocation *fake_find(uintptr_t address);
/* A free place for one; NULL: there is none. */
struct fake_allocation *fake_take(void);
/* A hidden mapping for the program and an open one for the fake, of the same bytes. */
bool fake_map_twice(struct fake_allocation *a, int fd, size_t size);
/* The memfd that another process of this machine has open as that number; -1: it has not, or it is
 * another one by now. */
int fake_open_of(int process, int fd, uint64_t inode);
/* Where the GPU's access to [address, size) goes; NULL: it may not, and then *ordinary tells
 * whether the address is the program's own ordinary memory. */
uint8_t *fake_reach(int ordinal, uintptr_t address, size_t size, bool write, bool *ordinary);
/* Lets the stream go on; true: nothing is left in it. */
bool fake_progress(struct CUstream_st *stream);
void fake_drain(struct CUstream_st *stream); /* waits while held */
void fake_drain_all(void);
void fake_put(struct CUstream_st *stream, const struct fake_op *op);
void fake_run_late(void);
struct CUstream_st *fake_stream(struct CUstream_st *stream);
uint64_t fake_next_id(void);
unsigned long fake_calls(const char *name);
unsigned fake_depth(void);
int fake_capture_mode(void);
/* The kernels that the fake can run; false: it touched what it may not. */
bool fake_run_kernel(int ordinal, const struct fake_op *op);
/* A piece of the checksum kernel's. */
bool fake_run_checksum(int ordinal, uint64_t to, uint64_t from, uint64_t size);
/* The same by the text that was loaded (`set text 1`). */
bool fake_run_text(int ordinal, const char *text, const struct fake_op *op);

FAKE_API long fake_cuda_control(const char *commands);
/* The second mapping of a GPU's memory; NULL: it is none. For tests and the fake cuFile. */
FAKE_API void *fake_cuda_shadow(const void *pointer, size_t size);

#endif
