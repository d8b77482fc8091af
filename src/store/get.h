/* SPDX-License-Identifier: Apache-2.0 */
/* The pure get machine: windows of keys, one guard per window, replica after replica, and the check
 * after arrival that the guard still held. */
#ifndef YOLK_STORE_GET_H
#define YOLK_STORE_GET_H

#include "store/action.h"
#include "store/holds.h"
#include "store/replica_choice.h"

struct store_get;

/* Borrows items and holds until destroyed; choice may be NULL (order as given). */
YOLK_MUST_USE enum yolk_status store_get_create(struct store_holds *holds,
                                                const struct store_tuning *tuning,
                                                const struct store_replica_choice *choice,
                                                struct store_item *items, size_t count,
                                                uint64_t deadline_ns, struct store_get **out);
void store_get_destroy(struct store_get *get);

void store_get_next(struct store_get *get, uint64_t now_ns, struct store_action *action);
/* The answer to the SEND in flight. */
void store_get_reply(struct store_get *get, uint64_t now_ns, uint16_t message, const uint8_t *body,
                     size_t body_size);
/* The connection the SEND was on is gone or its answer did not come: it may have been performed. */
void store_get_link_lost(struct store_get *get, uint64_t now_ns);
/* A transfer is over and its memory quiet; YOLK_ERR_STUCK: over, but never known to be quiet. */
void store_get_transferred(struct store_get *get, uint64_t now_ns, uint64_t cookie,
                           enum yolk_status status);
#endif
