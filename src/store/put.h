/* SPDX-License-Identifier: Apache-2.0 */
/* The pure put machine: places by window, transfers to every replica, END for the keys that landed
 * and REVOKE for the rest once their memory is quiet. With a GDS file each value has a reservation
 * there first, its transfers to memory and to the file are handed out together, and it is committed
 * before its END. */
#ifndef YOLK_STORE_PUT_H
#define YOLK_STORE_PUT_H

#include "store/action.h"
#include "store/holds.h"
#include "store/reservation.h"

struct store_put;

/* Borrows items and holds until destroyed. Space is waited for until space_deadline_ns; nothing
 * goes on past deadline_ns but the wait for memory to become quiet. */
YOLK_MUST_USE enum yolk_status
store_put_create(struct store_holds *holds, const struct store_tuning *tuning,
                 struct store_item *items, size_t count, const struct store_put_how *how,
                 uint64_t space_deadline_ns, uint64_t deadline_ns, struct store_put **out);
void store_put_destroy(struct store_put *put);

void store_put_next(struct store_put *put, uint64_t now_ns, struct store_action *action);
void store_put_reply(struct store_put *put, uint64_t now_ns, uint16_t message, const uint8_t *body,
                     size_t body_size);
void store_put_link_lost(struct store_put *put, uint64_t now_ns);
/* A transfer is over and its memory quiet; YOLK_ERR_STUCK: over, but never known to be quiet: its
 * op stays live so that the extent is not reused before the session is fenced. */
void store_put_transferred(struct store_put *put, uint64_t now_ns, uint64_t cookie,
                           enum yolk_status status);
/* What STORE_COMMIT asked for is done, as far as that is possible. */
void store_put_committed(struct store_put *put, uint64_t now_ns);
#endif
