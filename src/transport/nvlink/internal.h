/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the nvlink transport.
 *
 * Who serves hands out handles and never copies; links, the word that tells the segment's id, and
 * fences are those of shm (transport/shm/internal.h). From machine to machine such a connection is
 * TCP and carries no descriptor: the text has the fabric handle, and the connection says that the
 * provider lives and that the handle still stands for the segment.
 */
#ifndef TRANSPORT_NVLINK_INTERNAL_H
#define TRANSPORT_NVLINK_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "device/device.h"
#include "device/vmm.h"
#include "platform/thread.h"
#include "transport/nvlink/nvlink.h"
#include "transport/shm/consumer.h"

enum { NVLINK_MACHINE_TEXT = 37 /* with the NUL */, NVLINK_PARTS_MAX = 4096 };

/* ---- text.c: what a consumer must know ---- */

enum nvlink_handle { NVLINK_FABRIC = 1, NVLINK_FD = 2, NVLINK_IPC = 4 };

struct nvlink_export {
    bool host;          /* memory of a NUMA node; else of a GPU */
    int node;           /* host: its number, -1: unknown */
    uint8_t uuid[16];   /* of the GPU */
    unsigned parts;     /* allocations, mapped side by side; 0: all addresses of the process */
    uint64_t base;      /* of the first allocation, in the provider */
    uint64_t size;      /* of all of them */
    uint64_t id;        /* of the allocation or of this export, in the provider's life */
    uint64_t offset;    /* of the segment in it */
    unsigned handles;   /* enum nvlink_handle, those there are of each */
    uint8_t fabric[64]; /* of the only one; of more than one each handle is asked for */
    uint8_t ipc[64];
    char machine[NVLINK_MACHINE_TEXT]; /* one running of one system */
    char tcp[80];                      /* host:port; "": none */
};

/* rest: where the links begin: the text of shm. */
YOLK_MUST_USE int nvlink_text_format(const struct nvlink_export *export, const char *rest,
                                     char *text, size_t text_size);
YOLK_MUST_USE int nvlink_text_parse(const char *text, struct nvlink_export *out, const char **rest);
/* Of the machine this process is on; tests may say another one. */
const char *nvlink_machine(void);
void nvlink_machine_set(const char *text);

/* ---- export.c ---- */

struct nvlink_memory; /* what is served, while it is */

/* UNSUPPORTED, with the reason: other processes could not reach this memory. */
YOLK_MUST_USE int nvlink_memory_export(struct device *device, const void *pointer, uint64_t size,
                                       struct nvlink_export *out, struct nvlink_memory **memory);
/* To be passed to consumers; -1: none. */
int nvlink_memory_fd(const struct nvlink_memory *memory);
/* For shm's provider; self: the memory. Question: the number of an allocation. Answer: its size,
 * and its fabric handle or a descriptor. */
void nvlink_memory_answer(void *self, const struct shm_ask *ask, struct shm_answer *out, int *fd);
/* False: the driver would not give the allocation back; call it again. */
YOLK_MUST_USE bool nvlink_memory_free(struct nvlink_memory *memory);

/* ---- import.c: mappings of memory of peers ---- */

struct nvlink_imports {
    struct device *device;
    struct mutex mutex;
    struct base_list all;  /* used by a link */
    struct base_list left; /* used by none: to be unmapped */
};

struct nvlink_import {
    struct base_list node;
    struct nvlink_imports *imports;
    unsigned users;
    bool whole;                       /* it was mapped, and counted */
    char instance[SHM_INSTANCE_TEXT]; /* of the provider's life: with id the generation */
    uint64_t base, id;
    enum nvlink_handle handle;
    bool host;
    int owner;              /* the number of the GPU here; -1: host memory, or not one of ours */
    struct vmm vmm;         /* not of IPC */
    struct vmm_part *parts; /* of several: those imported so far, while they are asked for */
    unsigned part_count;
    struct cuda_ipc_handle ipc;
    struct mutex opening;
    _Atomic uint64_t opened[DEVICE_GPUS_MAX]; /* IPC: where each GPU's context has it; 0: not yet */
};

void nvlink_imports_init(struct nvlink_imports *imports);
/* Nothing is left. */
void nvlink_imports_fini(struct nvlink_imports *imports);
/* fd: what came over the link; -1: nothing. UNSUPPORTED: by none of the handles, each with its
 * reason. */
YOLK_MUST_USE int nvlink_import_get(struct nvlink_imports *imports,
                                    const struct nvlink_export *export, const char *instance,
                                    int fd, struct nvlink_import **out);
/* The same of several allocations, whose handles it asks for. AGAIN: call it again; *out is what it
 * has so far, and may be put. */
YOLK_MUST_USE int nvlink_import_get_parts(struct nvlink_imports *imports,
                                          const struct nvlink_export *export, const char *instance,
                                          struct shm_link *l, struct nvlink_import **out);
void nvlink_import_put(struct nvlink_import *import);
/* Unmaps what no link uses any more; how much the driver would not let go of: the next call tries.
 */
size_t nvlink_imports_tidy(struct nvlink_imports *imports);
/* Where the GPU has it. UNSUPPORTED: it does not reach it. */
YOLK_MUST_USE int nvlink_import_address(struct nvlink_import *import, int ordinal, uint64_t *out);
/* The GPU to copy with where the memory here is no GPU's. */
int nvlink_import_gpu(const struct nvlink_import *import);

/* ---- nvlink.c ---- */

struct nvlink_space; /* all addresses of this process, served */
struct nvlink_share;
struct nvlink_places; /* what is known of those of another one */

struct nvlink_endpoint {
    struct shm_settings settings;
    struct shm_provider *provider;
    char host[64]; /* that other machines reach this one at */
    struct gpu_side gpu;
    struct mutex mutex; /* of all below */
    struct nvlink_imports imports;
    struct base_list targets;
    struct base_list left; /* exported memory that could not be given back */
    struct thread tidier;  /* from the first target on: unmaps */
    bool tidier_over;
    struct condition changed; /* of what the tidier looks at, and what it did */
    int wake;                 /* an eventfd: it shall not wait for its time */
    unsigned pairs;
    bool stopped;
    uint64_t stop_timeout_ms;
    struct mutex sharing; /* of all below, and of what buffers share; never held while the provider
                           * is called, which holds its own while it asks for leases */
    struct condition shared;
    struct base_list buffers;
    struct nvlink_space *space; /* NULL: the addresses are not served */
    unsigned leases;            /* that others have of it */
};

struct nvlink_buffer {     /* memory here */
    struct base_list node; /* of the endpoint */
    bool busy;             /* it is looked at without the lock */
    struct nvlink_share *share;
    char *start;
    uint64_t size;
    int gpu;                    /* whose it is; -1: host memory */
    bool reached;               /* host memory that GPUs reach as it is */
    bool plain;                 /* registering it was tried and is not possible */
    struct device_range *range; /* of host memory that is not reached, from first need on */
};

struct nvlink_target {
    struct base_list node; /* of the endpoint */
    struct nvlink_endpoint *endpoint;
    struct nvlink_export export;
    struct shm_target *links;
    struct nvlink_places *places; /* of all addresses; else NULL */
    uint64_t start;               /* what offsets of ios begin with, of a part of those */
    unsigned pair;                /* for the device: copies of another one do not wait for it */
    bool looked_at;               /* by the tidier, now */
};

void nvlink_hex(const uint8_t *bytes, size_t size, char *out); /* 2 * size + 1 bytes */
YOLK_MUST_USE bool nvlink_unhex(const char *text, uint8_t *out, size_t size);
/* The device, opened if nobody did. */
YOLK_MUST_USE int nvlink_device(struct nvlink_endpoint *e, struct device **out);
/* Holds host memory where GPUs reach it; false: the driver must copy it by pieces. */
bool nvlink_buffer_hold(struct nvlink_endpoint *e, struct nvlink_buffer *buffer, int ordinal,
                        const void *pointer, uint64_t size);
void nvlink_buffer_release(struct nvlink_buffer *buffer, const void *pointer, uint64_t size);
/* The tidier has something to do. */
void nvlink_hurry(struct nvlink_endpoint *e);

/* The endpoint's, for the other files. */
YOLK_MUST_USE enum yolk_status nvlink_serve(void *endpoint, const struct yolk_serve *serve,
                                            void **served, char *text, size_t text_size);
void nvlink_unserve(void *endpoint, void *served);
YOLK_MUST_USE enum yolk_status nvlink_open_target(void *endpoint, const char *text,
                                                  uint64_t segment, uint64_t size, uint64_t session,
                                                  void **target);
void nvlink_close_target(void *endpoint, void *target);
/* Whether CUDA is in use in this process, or a library is named. */
bool nvlink_device_if_used(struct nvlink_endpoint *e, struct device **out);
/* On which machine, and where it is reached from others. */
void nvlink_where(struct nvlink_endpoint *e, struct nvlink_export *out);

/* ---- addresses.c ---- */

YOLK_MUST_USE int nvlink_space_serve(struct nvlink_endpoint *e, const struct yolk_serve *serve,
                                     struct nvlink_space **out, char *text, size_t text_size);
void nvlink_space_set_segment(struct nvlink_space *space, uint64_t segment);
YOLK_MUST_USE int nvlink_space_fence(struct nvlink_space *space, uint64_t session);
void nvlink_space_unserve(struct nvlink_space *space);
void nvlink_space_add_buffer(struct nvlink_endpoint *e, struct nvlink_buffer *buffer);
void nvlink_space_remove_buffer(struct nvlink_endpoint *e, struct nvlink_buffer *buffer);

/* ---- places.c: the addresses of another process ---- */

YOLK_MUST_USE int nvlink_places_open(struct nvlink_target *t);
void nvlink_places_close(struct nvlink_target *t);
/* UNSUPPORTED, with the reason: they are reached by another transport, or by none. Waits a moment,
 * then AGAIN. */
YOLK_MUST_USE int nvlink_places_check(struct nvlink_target *t, uint64_t offset, uint64_t size);

struct nvlink_walk; /* a channel to them */
YOLK_MUST_USE int nvlink_walk_open(struct nvlink_target *t, struct nvlink_walk **out);
enum yolk_submit nvlink_walk_submit(struct nvlink_walk *walk, struct yolk_io *io);
uint32_t nvlink_walk_poll(struct nvlink_walk *walk, struct yolk_completion *completions,
                          uint32_t max);
void nvlink_walk_flush(struct nvlink_walk *walk);
YOLK_MUST_USE enum yolk_status nvlink_walk_close(struct nvlink_walk *walk);

/* ---- channel.c ---- */

enum { NVLINK_DEPTH_MAX = 1024 };
#define NVLINK_SLICE_MAX ((uint64_t)16 << 20)
YOLK_MUST_USE enum yolk_status nvlink_channel_open(void *endpoint, void *target, void **out);
enum yolk_submit nvlink_channel_submit(void *channel, struct yolk_io *io);
uint32_t nvlink_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max);
void nvlink_channel_flush(void *channel);
YOLK_MUST_USE enum yolk_status nvlink_channel_close(void *channel);

struct nvlink_counts {
    _Atomic uint64_t imports, import_reuses, unmaps, unmaps_failed, by_fabric, by_fd, by_ipc;
    _Atomic uint64_t bytes_by_gpu, bytes_by_processor;
};
extern struct nvlink_counts nvlink_counts;
#define NVLINK_COUNT(what, n)                                                                      \
    (void)atomic_fetch_add_explicit(&nvlink_counts.what, (n), memory_order_relaxed)

#endif
