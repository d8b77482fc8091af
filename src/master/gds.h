/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of clients that write from GPU memory to disk themselves (medium GDS).
 *
 * Such a file is a segment of its owner's session, like a disk (tier.h): the owner allocates, the
 * master keeps the books, and what the master gives up is told to the owner (FREED), who deletes it
 * and may use the space from then on. Unlike a disk's, its replicas come with a put: PUT_START
 * names the extent that the client has reserved, its END commits it together with those in memory,
 * its REVOKE, or the end of its time, gives it up with them. So they have no mate and no tasks.
 *
 *     put ──▶ memory and GDS ──eviction of memory, or REPLICA_CLEAR──▶ GDS only
 *      └──no memory──▶ GDS only ──eviction of the file, remove──▶ FREED ──▶ gone
 *
 * Nothing leaves memory for a disk that lies in a GDS file. FREED is told when nobody reads there
 * and the put is over: a writer is asked first, as of memory. A mount with the same storage id and
 * generation takes up what is remembered of the file; one with another generation is of another
 * file, and what the earlier one held is forgotten at once. While its owner is away nobody is told
 * of it.
 *
 * The owner reuses space before its acknowledgement has arrived: messages of several connections
 * overtake each other. A descriptor that names an extent whose FREED was sent is that
 * acknowledgement; one that names what nobody has freed is refused.
 */
#ifndef YOLK_MASTER_GDS_H
#define YOLK_MASTER_GDS_H

#include <stdbool.h>

#include "base/buf.h"
#include "wire/msg.h"

struct master_core;
struct master_extent;
struct master_key;
struct master_object;
struct master_put;
struct master_segment;
struct master_session;

/* What one PUT_START says of each key's extent. */
struct master_gdss {
    const struct master_session *session;
    struct master_segment *file; /* the session's; NULL: none, or no key has an extent */
    struct wire_gdss list;
    struct wire_gds gds; /* of the key at hand */
    bool given;
    struct base_buf why; /* u32 index, u32 size, text: of each key that was refused */
};
/* NULL, or what is wrong with the list as a whole. */
const char *master_gds_begin(const struct master_core *core, struct master_gdss *all,
                             const struct wire_put_start *msg, uint32_t count);
/* The one that the session has mounted, or NULL. */
struct master_segment *master_gds_file(const struct master_core *core,
                                       const struct master_session *session);
/* To the next key's. */
void master_gds_next(struct master_gdss *all);
/* OK, or why the descriptor of the key at hand cannot be taken; the reason is noted. */
YOLK_MUST_USE enum yolk_status master_gds_check(struct master_core *core, struct master_gdss *all,
                                                const struct master_key *key, uint64_t size);
/* The extent, of the put. `replaced` as in struct master_wish. */
YOLK_MUST_USE enum yolk_status master_gds_take(struct master_core *core, struct master_gdss *all,
                                               const struct master_key *key, struct master_put *put,
                                               const struct master_object *replaced);
/* The put was begun with this very descriptor, or with none as now. */
YOLK_MUST_USE enum yolk_status master_gds_same(struct master_core *core, struct master_gdss *all,
                                               const struct master_key *key,
                                               const struct master_put *put);
/* Appends the list of reasons to `out`, if there is any, and frees it. */
YOLK_MUST_USE enum yolk_status master_gds_end(struct master_gdss *all, uint32_t count,
                                              struct base_buf *out);

/* As its owner has it. */
struct wire_gds master_gds_of(const struct master_extent *extent);
void master_gds_room(struct master_core *core, const struct wire_gds_room *msg);

#endif
