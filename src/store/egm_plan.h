/* SPDX-License-Identifier: Apache-2.0 */
/* How the capacity of an EGM pool is laid over NUMA nodes: which chunks of what size on which node.
 * Pure; the device layer is asked for granularities before, and for memory after.
 *
 * Each chunk becomes one allocation, one registered range and one segment of the store, and lies on
 * one node. All sizes are multiples of one alignment: the largest of the nodes' granularities and
 * EGM_SLAB (all are powers of two, so it is a multiple of each). */
#ifndef YOLK_STORE_EGM_PLAN_H
#define YOLK_STORE_EGM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>

enum {
    EGM_NODES_MAX = 64,    /* of one pool */
    EGM_CHUNKS_MAX = 1024, /* of one pool: each is a segment at the master */
    EGM_NODE_ID_MAX = 1023,
};
#define EGM_SLAB (UINT64_C(16) << 20) /* bytes: what a chunk is a multiple of */

struct egm_node {
    uint32_t id;          /* as the system counts NUMA nodes */
    uint64_t granularity; /* bytes: what an allocation there is a multiple of */
};

struct egm_chunk {
    uint32_t node; /* id */
    uint64_t size; /* bytes */
};

struct egm_plan {
    uint64_t alignment; /* bytes */
    uint64_t capacity;  /* bytes of all chunks */
    uint32_t chunk_count;
    struct egm_chunk chunks[EGM_CHUNKS_MAX]; /* by node, in rising order */
};

/* The setting `egm_numa_nodes`: "auto" (*automatic true, *count 0), or ids separated by commas,
 * with blanks around them or not; sorted, each once. CONFIG, the text naming the entry and the
 * rule. */
YOLK_MUST_USE enum yolk_status egm_nodes_parse(const char *text, bool *automatic,
                                               uint32_t ids[EGM_NODES_MAX], uint32_t *count);

/* Sorts ids and drops what is there twice; returns how many are left. */
uint32_t egm_nodes_sort(uint32_t *ids, uint32_t count);

/* Spreads `capacity` bytes, rounded down to the alignment, as evenly as units of the alignment
 * allow; the nodes with the lowest ids get the units that are over. Chunks have at most
 * chunk_bytes_max bytes. The order of `nodes` says nothing. CONFIG, the text naming what and the
 * rule: no node, one named twice, a granularity that is no power of two, less than one unit for
 * each node, chunk_bytes_max below the alignment, more than EGM_CHUNKS_MAX chunks or
 * MAX_SEGMENT_SIZE in one chunk. *out is undefined then. */
YOLK_MUST_USE enum yolk_status egm_plan_make(const struct egm_node *nodes, uint32_t node_count,
                                             uint64_t capacity, uint64_t chunk_bytes_max,
                                             struct egm_plan *out);

#endif
