/* SPDX-License-Identifier: Apache-2.0 */
#include "master/state.h"

#include <sodium.h>

/* The same code as the provider's (engine/access.c): keyed BLAKE2b over five little-endian numbers.
 */
void master_ticket(const uint8_t key[32], uint64_t segment, uint64_t offset, uint64_t size,
                   uint64_t session, uint64_t op, uint8_t out[WIRE_TICKET_SIZE])
{
    uint8_t text[40];
    base_store_u64(text, segment);
    base_store_u64(text + 8, offset);
    base_store_u64(text + 16, size);
    base_store_u64(text + 24, session);
    base_store_u64(text + 32, op);
    (void)crypto_generichash(out, WIRE_TICKET_SIZE, text, sizeof text, key, 32);
}
