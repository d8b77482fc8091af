/* SPDX-License-Identifier: Apache-2.0 */
/* What this client holds at the master: its session, the counter of operations, which of them still
 * live and the extents they touch.
 *
 * An op names one batch (a get window's guard, a put window, a pin). `floor`, sent with every
 * message, is the lowest live op: the master drops everything below. `done` ends single ops above
 * the floor; an op stays in that list until a message that carried it was answered, so a lost
 * message loses nothing. Safe to use from many threads (one mutex, never held over anything slow).
 */
#ifndef YOLK_STORE_HOLDS_H
#define YOLK_STORE_HOLDS_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#include "base/buf.h"

enum { STORE_DONE_MAX = 64 }; /* done ops carried by one message */

struct store_holds;

/* The common head of every request, as handed out by store_holds_stamp. */
struct store_stamp {
    uint64_t session; /* 0: no session is open */
    uint64_t epoch;   /* of holding: grants of an earlier one are void */
    uint64_t floor;
    uint32_t done_count;
    uint64_t done[STORE_DONE_MAX];
    uint8_t done_bin[STORE_DONE_MAX * 8]; /* the same, packed for the wire */
};

YOLK_MUST_USE enum yolk_status store_holds_create(struct store_holds **out);
void store_holds_destroy(struct store_holds *holds);

/* The session the machines send under; set on opened, 0 while there is none. */
void store_holds_set_session(struct store_holds *holds, uint64_t session);
uint64_t store_holds_session(struct store_holds *holds);

/* Takes the next op, live until finished. 0 if memory ran out (0 is never an op). */
uint64_t store_holds_begin(struct store_holds *holds);
/* The op is about to touch this extent, granted to a message stamped in `epoch`: reported in `held`
 * when the session is opened anew. YOLK_ERR_STALE when such a report was made since: the master was
 * not told of this extent, so it must not be touched any more. */
YOLK_MUST_USE enum yolk_status store_holds_extent(struct store_holds *holds, uint64_t op,
                                                  uint64_t epoch, uint64_t segment, uint64_t offset,
                                                  uint64_t size);
/* The op is over and its memory quiet. Idempotent. */
void store_holds_finish(struct store_holds *holds, uint64_t op);
/* The op is over for its caller, but bytes of it may still land somewhere: it stays live, and the
 * session is to be begun anew, which has the owners fence the old one. */
void store_holds_stick(struct store_holds *holds, uint64_t op);
/* An owner refused `session`: it was fenced, which nobody else may know of any more. It is to be
 * begun anew. */
void store_holds_refused(struct store_holds *holds, uint64_t session);
int store_holds_wants_new_session(struct store_holds *holds);
/* It was ended: so are the ops that were stuck. */
void store_holds_session_ended(struct store_holds *holds);
int store_holds_is_live(struct store_holds *holds, uint64_t op);
size_t store_holds_live_count(struct store_holds *holds);

void store_holds_stamp(struct store_holds *holds, struct store_stamp *stamp);
/* A message with this stamp was answered. */
void store_holds_acknowledge(struct store_holds *holds, const struct store_stamp *stamp);

/* Begins a new epoch and appends the packed held records of SESSION_OPEN. */
YOLK_MUST_USE enum yolk_status store_holds_report(struct store_holds *holds, struct base_buf *out);
#endif
