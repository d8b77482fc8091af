/* SPDX-License-Identifier: Apache-2.0 */
/* Who may touch what of a served segment. Pure: no locks, no clock, no memory but the fenced list.
 * The engine guards a grant with a read-write lock; the simulator uses it bare. */
#ifndef YOLK_ENGINE_ACCESS_H
#define YOLK_ENGINE_ACCESS_H

#include <yolk/transport.h>

enum { ACCESS_TICKET_KEY_SIZE = 32, ACCESS_TICKET_SIZE = 16 };

struct access_grant {
    uint64_t segment; /* accepted id; 0: none is */
    uint64_t size;
    uint8_t ticket_key[ACCESS_TICKET_KEY_SIZE];
    int require_tickets;
    uint64_t *fenced; /* sorted */
    size_t fenced_count;
    size_t fenced_room;
};

/* The first two need no free: fenced is NULL. */
void access_grant_init(struct access_grant *grant, uint64_t segment, uint64_t size,
                       const uint8_t ticket_key[ACCESS_TICKET_KEY_SIZE], int require_tickets);
void access_grant_set_segment(struct access_grant *grant, uint64_t segment,
                              const uint8_t ticket_key[ACCESS_TICKET_KEY_SIZE]);
void access_grant_free(struct access_grant *grant);

/* Idempotent. NO_MEMORY. */
YOLK_MUST_USE enum yolk_status access_grant_fence(struct access_grant *grant, uint64_t session);
int access_grant_is_fenced(const struct access_grant *grant, uint64_t session);

/* STALE: another segment id. INVALID: outside the segment. ACCESS: fenced session, or a write whose
 * ticket is missing, forged, for another session or for another extent. */
YOLK_MUST_USE enum yolk_status access_check(const struct access_grant *grant,
                                            const struct yolk_access_request *request);

#endif
