/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/access.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/mutation.h"
#include "wire/ticket.h"

void access_grant_init(struct access_grant *grant, uint64_t segment, uint64_t size,
                       const uint8_t ticket_key[ACCESS_TICKET_KEY_SIZE], int require_tickets)
{
    memset(grant, 0, sizeof(*grant));
    grant->size = size;
    grant->require_tickets = require_tickets;
    access_grant_set_segment(grant, segment, ticket_key);
}

void access_grant_set_segment(struct access_grant *grant, uint64_t segment,
                              const uint8_t ticket_key[ACCESS_TICKET_KEY_SIZE])
{
    grant->segment = segment;
    memcpy(grant->ticket_key, ticket_key, ACCESS_TICKET_KEY_SIZE);
}

void access_grant_free(struct access_grant *grant)
{
    free(grant->fenced);
    sodium_memzero(grant->ticket_key, sizeof(grant->ticket_key));
    grant->fenced = NULL;
    grant->fenced_count = 0;
    grant->fenced_room = 0;
    grant->segment = 0;
}

/* The first place in the sorted list whose session is not lower. */
static size_t fenced_place(const struct access_grant *grant, uint64_t session)
{
    size_t low = 0;
    size_t high = grant->fenced_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (grant->fenced[middle] < session)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int access_grant_is_fenced(const struct access_grant *grant, uint64_t session)
{
    size_t place = fenced_place(grant, session);
    return place < grant->fenced_count && grant->fenced[place] == session;
}

enum yolk_status access_grant_fence(struct access_grant *grant, uint64_t session)
{
    size_t place = fenced_place(grant, session);
    if (place < grant->fenced_count && grant->fenced[place] == session)
        return YOLK_OK;
    if (grant->fenced_count == grant->fenced_room) {
        size_t room = grant->fenced_room == 0 ? 16 : grant->fenced_room * 2;
        uint64_t *fenced = base_realloc(grant->fenced, room * sizeof(*fenced));
        if (fenced == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to fence a session");
        grant->fenced = fenced;
        grant->fenced_room = room;
    }
    memmove(&grant->fenced[place + 1], &grant->fenced[place],
            (grant->fenced_count - place) * sizeof(grant->fenced[0]));
    grant->fenced[place] = session;
    grant->fenced_count++;
    return YOLK_OK;
}

static enum yolk_status check_ticket(const struct access_grant *grant,
                                     const struct yolk_access_request *request)
{
    const struct yolk_ticket *ticket = request->ticket;
    if (ticket == NULL)
        return YOLK_ERR_ACCESS;
    /* Written so that no sum can wrap. */
    if (request->offset < ticket->offset || request->size > ticket->size ||
        request->offset - ticket->offset > ticket->size - request->size)
        return YOLK_ERR_ACCESS;
    uint8_t mac[ACCESS_TICKET_SIZE];
    wire_ticket_mac(grant->ticket_key, request->segment, ticket->offset, ticket->size,
                    request->session, ticket->op, mac);
    return sodium_memcmp(mac, ticket->mac, sizeof(mac)) == 0 ? YOLK_OK : YOLK_ERR_ACCESS;
}

enum yolk_status access_check(const struct access_grant *grant,
                              const struct yolk_access_request *request)
{
    if (request->opcode != YOLK_READ && request->opcode != YOLK_WRITE)
        return YOLK_ERR_INVALID;
    if ((request->segment != grant->segment || grant->segment == 0) && !mutated(MUT_ACCEPT_STALE))
        return YOLK_ERR_STALE;
    /* Readers are fenced too: a session that is gone has no business here, and one rule is simpler.
     */
    if (access_grant_is_fenced(grant, request->session))
        return YOLK_ERR_ACCESS;
    if (request->whole_map)
        return YOLK_OK;
    if (request->size > grant->size || request->offset > grant->size - request->size)
        return YOLK_ERR_INVALID;
    if (request->opcode == YOLK_WRITE && grant->require_tickets)
        return check_ticket(grant, request);
    return YOLK_OK;
}
