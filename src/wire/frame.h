/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-byte little-endian header before each message. */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "yolk/status.h"

#define WIRE_MAGIC       0x4B59u
#define WIRE_HEADER_SIZE 16u

struct wire_header {
    uint16_t kind; /* enum wire_kind; unknown ones pass (a newer peer) */
    uint32_t body_size;
    uint64_t request_id; /* a reply repeats that of its request; 0 for pushes */
};

void wire_header_encode(const struct wire_header *header, uint8_t out[WIRE_HEADER_SIZE]);
/* Checks the magic and that the body is not larger than the kind allows, so a receiver may allocate
 * afterwards. Errors: PROTOCOL (no frame of ours: close the connection), TOO_LARGE. */
YOLK_MUST_USE int wire_header_decode(const uint8_t in[WIRE_HEADER_SIZE], struct wire_header *out);
/* Header and body of one message, appended. Nothing is appended when it fails. */
YOLK_MUST_USE int wire_frame_encode(uint16_t kind, uint64_t request_id, const void *msg,
                                    struct base_buf *out);

#endif
