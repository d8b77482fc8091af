/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/frames.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"

/* Of READS: without the places. */
static uint32_t body_size(uint16_t kind)
{
    switch (kind) {
    case TCP_READ:
    case TCP_WRITE:
        return TCP_ACCESS_BODY;
    case TCP_QUIET:
    case TCP_ATTACH:
        return TCP_ID_BODY;
    case TCP_REPLY:
        return TCP_REPLY_BODY;
    case TCP_READS:
        return TCP_READS_BODY;
    default:
        return 0;
    }
}

size_t tcp_frame_encode(const struct tcp_frame *frame, uint8_t out[TCP_FRAME_MAX])
{
    uint32_t size = body_size(frame->kind);
    uint32_t places = frame->kind == TCP_READS ? frame->count * TCP_PLACE_SIZE : 0;
    base_store_u16(out, WIRE_MAGIC);
    base_store_u16(out + 2, frame->kind);
    base_store_u32(out + 4, size + places);
    base_store_u64(out + 8, frame->request_id);
    uint8_t *body = out + WIRE_HEADER_SIZE;
    if (size == TCP_ACCESS_BODY) {
        base_store_u64(body, frame->segment);
        base_store_u64(body + 8, frame->offset);
        base_store_u64(body + 16, frame->length);
        base_store_u64(body + 24, frame->ticket.offset);
        base_store_u64(body + 32, frame->ticket.size);
        base_store_u64(body + 40, frame->ticket.op);
        memcpy(body + 48, frame->ticket.mac, sizeof frame->ticket.mac);
    } else if (size == TCP_ID_BODY) {
        base_store_u64(body, frame->id);
    } else if (frame->kind == TCP_REPLY) {
        base_store_u32(body, (uint32_t)frame->status);
        base_store_u32(body + 4, frame->count);
        base_store_u64(body + 8, frame->length);
    } else if (frame->kind == TCP_READS) {
        base_store_u64(body, frame->segment);
        base_store_u32(body + 8, frame->count);
        base_store_u32(body + 12, 0);
    }
    return WIRE_HEADER_SIZE + size;
}

static int decode_body(const uint8_t *body, uint32_t claimed, struct tcp_frame *out)
{
    switch (out->kind) {
    case TCP_READ:
    case TCP_WRITE:
        out->segment = base_load_u64(body);
        out->offset = base_load_u64(body + 8);
        out->length = base_load_u64(body + 16);
        out->ticket.offset = base_load_u64(body + 24);
        out->ticket.size = base_load_u64(body + 32);
        out->ticket.op = base_load_u64(body + 40);
        memcpy(out->ticket.mac, body + 48, sizeof out->ticket.mac);
        break;
    case TCP_REPLY:
        out->status = (int32_t)base_load_u32(body);
        out->count = base_load_u32(body + 4);
        out->length = base_load_u64(body + 8);
        break;
    case TCP_READS:
        out->segment = base_load_u64(body);
        out->count = base_load_u32(body + 8);
        if (out->count == 0 || out->count > TCP_READS_MAX ||
            claimed != TCP_READS_BODY + out->count * TCP_PLACE_SIZE ||
            base_load_u32(body + 12) != 0)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "%u reads in %u bytes", out->count, claimed);
        break;
    default:
        out->id = base_load_u64(body);
    }
    if (out->length > TCP_LENGTH_MAX)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a data frame claims %llu bytes",
                         (unsigned long long)out->length);
    return YOLK_OK;
}

int tcp_frame_decode(const uint8_t *in, size_t size, struct tcp_frame *out, size_t *used)
{
    *used = 0;
    if (size < WIRE_HEADER_SIZE)
        return YOLK_OK;
    uint16_t kind = base_load_u16(in + 2);
    uint32_t claimed = base_load_u32(in + 4);
    uint32_t expected = body_size(kind);
    if (base_load_u16(in) != WIRE_MAGIC || expected == 0 ||
        (kind != TCP_READS && claimed != expected) ||
        (kind == TCP_READS && claimed > TCP_READS_BODY + TCP_READS_MAX * TCP_PLACE_SIZE))
        return base_fail(YOLK_ERR_PROTOCOL, 0, "not a data frame (kind %u, size %u)", kind,
                         claimed);
    if (size < WIRE_HEADER_SIZE + expected)
        return YOLK_OK;
    *out = (struct tcp_frame){.kind = kind, .request_id = base_load_u64(in + 8)};
    int status = decode_body(in + WIRE_HEADER_SIZE, claimed, out);
    if (status == YOLK_OK && size >= WIRE_HEADER_SIZE + claimed)
        *used = WIRE_HEADER_SIZE + claimed;
    return status;
}

void tcp_place_encode(const struct tcp_place *place, uint8_t out[TCP_PLACE_SIZE])
{
    base_store_u64(out, place->offset);
    base_store_u64(out + 8, place->length);
}

int tcp_place_decode(const uint8_t in[TCP_PLACE_SIZE], struct tcp_place *out)
{
    *out = (struct tcp_place){base_load_u64(in), base_load_u64(in + 8)};
    if (out->length > TCP_LENGTH_MAX)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a read of %llu bytes",
                         (unsigned long long)out->length);
    return YOLK_OK;
}
