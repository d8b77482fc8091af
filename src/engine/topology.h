/* SPDX-License-Identifier: Apache-2.0 */
/* This machine as the engine sees it: NUMA nodes, network devices, GPUs, disks, and which network
 * devices are near to which memory. topology_read looks, all else is pure.
 *
 * Memory has a *location*: "cpu:N" of NUMA node N, "cuda:N" of the Nth NVIDIA GPU in the order of
 * PCI addresses, "*" for memory of which nothing is known. */
#ifndef YOLK_ENGINE_TOPOLOGY_H
#define YOLK_ENGINE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#include "base/buf.h"

enum {
    TOPOLOGY_NODES_MAX = 64,
    TOPOLOGY_NICS_MAX = 128,
    TOPOLOGY_GPUS_MAX = 64,
    TOPOLOGY_DISKS_MAX = 128,
    TOPOLOGY_MEMORIES_MAX = 160,
    TOPOLOGY_RANKS = 3,
    TOPOLOGY_NAME_MAX = 64,
    TOPOLOGY_PCI_MAX = 16,   /* "0000:1b:00.0" */
    TOPOLOGY_PATH_MAX = 256, /* "pci0000:16/0000:16:01.0/0000:17:00.0/0000:1b:00.0" */
};

struct topology_place {
    char pci[TOPOLOGY_PCI_MAX];   /* "": none */
    char path[TOPOLOGY_PATH_MAX]; /* from the root complex to it; "": none */
    int node;                     /* -1: not known */
};

struct topology_node {
    int id;
    char cpus[128]; /* "0-31,64-95" */
    uint64_t memory_bytes;
    int distances[TOPOLOGY_NODES_MAX]; /* to the nodes in the order of the array */
};

/* Numbers of TENT. */
enum topology_nic_type { TOPOLOGY_RDMA = 0, TOPOLOGY_TCP = 1, TOPOLOGY_NIC_UNKNOWN = 2 };
enum topology_memory_type {
    TOPOLOGY_HOST = 0,
    TOPOLOGY_CUDA = 1,
    TOPOLOGY_ROCM = 2,
    TOPOLOGY_ASCEND = 3,
    TOPOLOGY_MEMORY_UNKNOWN = 4
};

struct topology_nic {
    char name[TOPOLOGY_NAME_MAX];
    struct topology_place place;
    enum topology_nic_type type;
    bool up;
    char state[24];                  /* as the kernel calls it */
    int64_t speed_mbits;             /* -1: not known */
    char link_layer[24];             /* of an RDMA device: InfiniBand, Ethernet; else "" */
    char sibling[TOPOLOGY_NAME_MAX]; /* of an RDMA device its network device; "" none */
};

struct topology_gpu {
    struct topology_place place;
    char device_id[8]; /* "0x2335" */
};

struct topology_disk {
    char name[TOPOLOGY_NAME_MAX];
    struct topology_place place;
    uint64_t bytes;
    bool rotational;
    char model[48];
};

/* Which network devices serve memory of this location, best rank first. */
struct topology_memory {
    char name[TOPOLOGY_NAME_MAX];
    char pci[TOPOLOGY_PCI_MAX];
    enum topology_memory_type type;
    int node;
    uint32_t counts[TOPOLOGY_RANKS];
    uint8_t nics[TOPOLOGY_RANKS][TOPOLOGY_NICS_MAX]; /* places in the array */
};

struct topology {
    uint32_t node_count, nic_count, gpu_count, disk_count, memory_count;
    bool cut; /* there are more than the arrays hold */
    struct topology_node nodes[TOPOLOGY_NODES_MAX];
    struct topology_nic nics[TOPOLOGY_NICS_MAX];
    struct topology_gpu gpus[TOPOLOGY_GPUS_MAX];
    struct topology_disk disks[TOPOLOGY_DISKS_MAX];
    struct topology_memory memories[TOPOLOGY_MEMORIES_MAX];
};

/* What is there, below root ("" is this machine's /), without the ranks. *out is freed by the
 * caller. NO_MEMORY. What cannot be read is not there. */
YOLK_MUST_USE int topology_read(const char *root, struct topology **out);

enum topology_distance {
    TOPOLOGY_SAME_SWITCH, /* below one bridge of the root complex */
    TOPOLOGY_SAME_ROOT,   /* below one root complex */
    TOPOLOGY_SAME_NODE,   /* of one NUMA node */
    TOPOLOGY_OTHER_NODE,
    TOPOLOGY_DISTANCE_UNKNOWN,
};
enum topology_distance topology_distance(const struct topology_place *a,
                                         const struct topology_place *b);
const char *topology_distance_name(enum topology_distance distance);
/* Links of the PCIe tree between them; UINT32_MAX: not of one root complex. */
uint32_t topology_hops(const struct topology_place *a, const struct topology_place *b);

/* Ranks the network devices for each node, GPU and "*". cpu:N: those of the node, the others last.
 * cuda:N: the nearest by PCIe, then the node's, then the others. "*": all last. */
void topology_rank(struct topology *topology);
/* Leaves only network devices of RDMA that the lists (comma separated, blanks allowed, NULL or "":
 * none) allow; without whitelist all that are not in the blacklist. Before topology_rank. */
void topology_filter(struct topology *topology, const char *whitelist, const char *blacklist);

/* NULL: none of that name. */
const struct topology_nic *topology_nic_named(const struct topology *topology, const char *name);
const struct topology_memory *topology_memory_named(const struct topology *topology,
                                                    const char *location);
/* The memory of this type that is nearest to the location: of the same node first, "" if there is
 * none. */
const char *topology_near_memory(const struct topology *topology, const char *location,
                                 enum topology_memory_type type);

/* Each device of the comma list must be there and up. NOT_FOUND, UNSUPPORTED (it is down): the text
 * names it and the devices that were found. "" and NULL: any will do. */
YOLK_MUST_USE int topology_require(const struct topology *topology, const char *names);

/* A location apart. INVALID: it is none. index -1 of "*". */
YOLK_MUST_USE int topology_location_parse(const char *location, enum topology_memory_type *type,
                                          int *index);

/* ---- texts ---- */

/* TENT's {"nics", "mems"}, and "nodes", "gpus" and "disks" beside them. */
YOLK_MUST_USE int topology_json(const struct topology *topology, struct base_buf *out);
/* The older engine's form: RDMA devices of rank 0, and the others. */
YOLK_MUST_USE int topology_matrix(const struct topology *topology, struct base_buf *out);
/* Either form that TENT takes: {"nics", "mems"}, or a priority matrix {"cpu:0": [[preferred],
 * [available]]}. Replaces devices and memories; the rest stays. CONFIG: which value and why; the
 * topology is as it was. */
YOLK_MUST_USE int topology_parse(struct topology *topology, const char *text, size_t size);
/* For people. */
YOLK_MUST_USE int topology_text(const struct topology *topology, struct base_buf *out);

/* ---- GIDs of one port of an RDMA device ---- */

enum topology_gid_type { TOPOLOGY_GID_IB, TOPOLOGY_GID_ROCE_V1, TOPOLOGY_GID_ROCE_V2 };
struct topology_gid {
    int index;
    uint8_t gid[16];
    enum topology_gid_type type;
    char netdev[TOPOLOGY_NAME_MAX]; /* "": none */
};
/* The entry to use. wanted >= 0: that one, whatever it is (NOT_FOUND: it is empty or not there). On
 * Ethernet else the best routable entry with a network device: RoCE v2 before v1, an IPv4 address
 * before an IPv6 one. On InfiniBand the first that is not empty. NOT_FOUND: none will do; the text
 * lists the table. */
YOLK_MUST_USE int topology_gid_choose(const struct topology_gid *table, size_t count,
                                      bool infiniband, int wanted, int *index);
/* The table of a port; returns how many entries there are that are not empty. */
size_t topology_gids_read(const char *root, const char *device, int port,
                          struct topology_gid *table, size_t room);

#endif
