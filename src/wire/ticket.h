/* SPDX-License-Identifier: Apache-2.0 */
/* What lets a session write a place: made by the master, asked for by the place's owner. */
#ifndef WIRE_TICKET_H
#define WIRE_TICKET_H

#include <stdint.h>

#include "wire/msg.h"

enum { WIRE_TICKET_KEY_SIZE = 32 };

/* Keyed BLAKE2b over five little-endian numbers; size in bytes. */
void wire_ticket_mac(const uint8_t key[WIRE_TICKET_KEY_SIZE], uint64_t segment, uint64_t offset,
                     uint64_t size, uint64_t session, uint64_t op, uint8_t mac[WIRE_TICKET_SIZE]);

#endif
