/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of a data connection, after the hello. They have the common 16-byte header but fixed
 * little-endian bodies instead of tagged ones: a 16 KiB block pays for each byte of parsing.
 *
 *   READ, WRITE  segment u64, offset u64, length u64, ticket {offset u64, size u64, op u64, mac
 * 16}; WRITE: `length` bytes follow READS        segment u64, count u32, 0 u32, then `count` times
 * {offset u64, length u64}: as many reads without a ticket, whose request ids go up by one from the
 * frame's ATTACH       connection id u64 (random, chosen by the consumer); sent first and replied
 * to before any write is sent, so that QUIET cannot overlook the connection QUIET        connection
 * id u64: OK once that connection of the same consumer is closed at the provider, so that nothing
 * it sent can land any more; else AGAIN REPLY        status i32, count u32, length u64; OK:
 * `length` bytes follow (reads only)
 *
 * Requests are replied to in their order. READS, and replies with a count above one, only between
 * two sides that both have TCP_FEATURE_READS: such a reply is that of `count` reads in a row, from
 * its request id on, with their bytes one behind the other. A count of 0 is one, as older sides
 * write it.
 */
#ifndef TRANSPORT_TCP_FRAMES_H
#define TRANSPORT_TCP_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "wire/frame.h"
#include "yolk/transport.h"

enum tcp_kind {
    TCP_READ = 120,
    TCP_WRITE = 121,
    TCP_QUIET = 122,
    TCP_ATTACH = 123,
    TCP_REPLY = 124,
    TCP_READS = 125,
};

/* Of the hello, for connections of purpose data. */
#define TCP_FEATURE_READS UINT64_C(1)

#define TCP_ACCESS_BODY 64u
#define TCP_ID_BODY     8u
#define TCP_REPLY_BODY  16u
#define TCP_READS_BODY  16u /* and the places */
#define TCP_PLACE_SIZE  16u
#define TCP_READS_MAX   240u
#define TCP_FRAME_MAX   (WIRE_HEADER_SIZE + TCP_ACCESS_BODY)
#define TCP_REPLY_SIZE  (WIRE_HEADER_SIZE + TCP_REPLY_BODY)
#define TCP_READS_SIZE  (WIRE_HEADER_SIZE + TCP_READS_BODY)
/* Bytes of one read, write or reply; the engine cuts longer requests. */
#define TCP_LENGTH_MAX (1 * MIB)

struct tcp_frame {
    uint16_t kind;
    uint64_t request_id;
    /* READ, WRITE; `segment` also READS, `length` also REPLY */
    uint64_t segment, offset, length;
    struct yolk_ticket ticket;
    uint64_t id;    /* ATTACH, QUIET */
    uint32_t count; /* READS, REPLY */
    int32_t status; /* REPLY */
};

struct tcp_place {
    uint64_t offset, length;
};

/* The size written to `out`; of READS that is what stands before the places. */
size_t tcp_frame_encode(const struct tcp_frame *frame, uint8_t out[TCP_FRAME_MAX]);
/* *used is the size of the frame, for READS with its places, or 0 when more bytes are needed.
 * PROTOCOL: not such a frame, or one that claims a wrong size. */
YOLK_MUST_USE int tcp_frame_decode(const uint8_t *in, size_t size, struct tcp_frame *out,
                                   size_t *used);
void tcp_place_encode(const struct tcp_place *place, uint8_t out[TCP_PLACE_SIZE]);
/* PROTOCOL: longer than a read may be. */
YOLK_MUST_USE int tcp_place_decode(const uint8_t in[TCP_PLACE_SIZE], struct tcp_place *out);

#endif
