/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/ticket.h"

#include <sodium.h>

#include "base/buf.h"

void wire_ticket_mac(const uint8_t key[WIRE_TICKET_KEY_SIZE], uint64_t segment, uint64_t offset,
                     uint64_t size, uint64_t session, uint64_t op, uint8_t mac[WIRE_TICKET_SIZE])
{
    uint8_t text[40];
    base_store_u64(text, segment);
    base_store_u64(text + 8, offset);
    base_store_u64(text + 16, size);
    base_store_u64(text + 24, session);
    base_store_u64(text + 32, op);
    (void)crypto_generichash_blake2b(mac, WIRE_TICKET_SIZE, text, sizeof(text), key,
                                     WIRE_TICKET_KEY_SIZE);
}
