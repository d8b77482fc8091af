/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of the cluster as this process knows them: master's id → the engine's handle. */
#ifndef YOLK_STORE_SEGMENTS_H
#define YOLK_STORE_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/engine.h>

#include "store/client.h"
#include "store/holds.h"
#include "store/replica_choice.h"

struct store_segments;

/* transport: "auto", or the one that memory may be reached by. Borrowed. */
YOLK_MUST_USE int store_segments_create(struct yolk_engine *engine, struct store_client *client,
                                        struct store_holds *holds, const char *transport,
                                        struct store_segments **out);
/* Leaves of "tcp=…;shm=…;loop=…" the part of the one transport that is allowed; all if "auto". */
void store_endpoints_allowed(char *endpoints, const char *transport);
/* All maps are given back. */
void store_segments_destroy(struct store_segments *segments);

/* The engine's handle, asking the master at the first use. It may be closed by another thread at
 * any time: requests with it are then STALE. */
YOLK_MUST_USE int store_segments_get(struct store_segments *segments, uint64_t id, uint64_t session,
                                     uint64_t deadline_ns, uint64_t *handle);
/* A read-only view of the whole segment, for the processor or for GPUs; counted: each needs an
 * unmap. UNSUPPORTED: no such route.
 */
YOLK_MUST_USE int store_segments_map(struct store_segments *segments, uint64_t id, uint64_t session,
                                     uint64_t deadline_ns, bool gpu, const void **base,
                                     uint64_t *size);
/* Whether what was mapped under this session is still there. LEASE_EXPIRED: the session is over;
 * PEER_DEAD: the provider is. */
YOLK_MUST_USE int store_segments_check(struct store_segments *segments, uint64_t id,
                                       uint64_t session, const void *base);
void store_segments_unmap(struct store_segments *segments, const void *base);

/* This id is of an earlier life: forget it. */
void store_segments_drop(struct store_segments *segments, uint64_t id);
/* The session is over: its connections and mappings must go. Maps in use keep theirs until unmap.
 */
void store_segments_drop_all(struct store_segments *segments);

/* What came of a transfer, for the choice among replicas. transport may be "". */
void store_segments_note(struct store_segments *segments, uint64_t id, int status,
                         const char *transport);
/* This process's segments; 0: none. */
void store_segments_set_own(struct store_segments *segments, uint64_t memory, uint64_t disk);
void store_segments_set_gds(struct store_segments *segments, uint64_t gds);
struct store_replica_choice store_segments_choice(struct store_segments *segments);
#endif
