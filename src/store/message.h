/* SPDX-License-Identifier: Apache-2.0 */
/* Building the requests of a batch of items, and reading their answers with every count checked. */
#ifndef YOLK_STORE_MESSAGE_H
#define YOLK_STORE_MESSAGE_H

#include "store/action.h"
#include "store/holds.h"
#include "store/replica_choice.h"
#include "wire/msg.h"

/* Buffers kept from message to message. */
struct store_message {
    struct base_buf body;
    struct base_buf keys;
    struct base_buf extra;
    struct base_buf preferred, groups, gds; /* PUT_START */
};
void store_message_init(struct store_message *message);
void store_message_free(struct store_message *message);

struct wire_request store_message_request(const struct store_stamp *stamp, uint64_t op);

/* The items listed by index; each replaces message->body. */
YOLK_MUST_USE int store_message_put_start(struct store_message *message,
                                          const struct store_stamp *stamp, uint64_t op,
                                          const struct store_item *items, const uint32_t *indexes,
                                          size_t count, const struct store_put_how *how);
YOLK_MUST_USE int store_message_get_start(struct store_message *message,
                                          const struct store_stamp *stamp, uint64_t op,
                                          const struct store_item *items, const uint32_t *indexes,
                                          size_t count, uint32_t flags);
/* EXIST, PUT_END, PUT_REVOKE, REMOVE (which reads force). indexes NULL: items [0, count). */
YOLK_MUST_USE int store_message_keys(struct store_message *message, uint16_t kind,
                                     const struct store_stamp *stamp, uint64_t op,
                                     const struct store_item *items, const uint32_t *indexes,
                                     size_t count, uint32_t force);
/* REPLICA_BAD: the replica at each index is of the item at the same place of `indexes`. */
YOLK_MUST_USE int store_message_replica_bad(struct store_message *message,
                                            const struct store_stamp *stamp,
                                            const struct store_item *items, const uint32_t *indexes,
                                            const struct store_replica *replicas, size_t count);
YOLK_MUST_USE int store_message_replica_clear(struct store_message *message,
                                              const struct store_stamp *stamp,
                                              const struct store_item *items, size_t count,
                                              const char *segment);
YOLK_MUST_USE int store_message_renew(struct store_message *message,
                                      const struct store_stamp *stamp, uint64_t op);

/* Places of a GET_START or PUT_START, checked: each result's replicas and tickets are there. The
 * views borrow the body. Fails with the reply's own status if that is none of YOLK_OK. */
struct store_grants {
    uint64_t guard_ttl_ms;
    uint32_t count;
    struct wire_view results;
    struct wire_view replicas;
    struct wire_view tickets;
    struct wire_view gds; /* GET_START */
    struct wire_view why; /* PUT_START */
};
YOLK_MUST_USE int store_message_grants(uint16_t reply_kind, const uint8_t *body, size_t size,
                                       struct store_grants *grants);

/* The first `room` replicas of a GET_START, with their descriptors. */
YOLK_MUST_USE int store_message_replicas(const struct store_grants *grants,
                                         struct store_replica *out, uint32_t room);

/* Results of a reply that has one status a key. */
YOLK_MUST_USE int store_message_results(uint16_t reply_kind, const uint8_t *body, size_t size,
                                        uint32_t expected, struct wire_view *results);

/* The status of an ERROR frame, PROTOCOL for an answer of another kind than wanted, else YOLK_OK.
 */
YOLK_MUST_USE int store_message_refused(uint16_t wanted, uint16_t kind, const uint8_t *body,
                                        size_t size);

/* 1: the master does not know the session (yet, any more): ask again when there is a new one. */
int store_status_is_session(int status);
/* 1: an owner's answer to a place or a session of an earlier life: ask the master anew. */
int store_status_is_outdated(int status);
#endif
