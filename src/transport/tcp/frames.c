/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/frames.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"

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
    default:
        return 0;
    }
}

size_t tcp_frame_encode(const struct tcp_frame *frame, uint8_t out[TCP_FRAME_MAX])
{
    uint32_t size = body_size(frame->kind);
    base_store_u16(out, WIRE_MAGIC);
    base_store_u16(out + 2, frame->kind);
    base_store_u32(out + 4, size);
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
    } else if (size == TCP_REPLY_BODY) {
        base_store_u32(body, (uint32_t)frame->status);
        base_store_u32(body + 4, 0);
        base_store_u64(body + 8, frame->length);
    }
    return WIRE_HEADER_SIZE + size;
}

int tcp_frame_decode(const uint8_t *in, size_t size, struct tcp_frame *out, size_t *used)
{
    *used = 0;
    if (size < WIRE_HEADER_SIZE)
        return YOLK_OK;
    uint16_t kind = base_load_u16(in + 2);
    uint32_t claimed = base_load_u32(in + 4);
    uint32_t expected = body_size(kind);
    if (base_load_u16(in) != WIRE_MAGIC || expected == 0 || claimed != expected)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "not a data frame (kind %u, size %u)", kind,
                         claimed);
    if (size < WIRE_HEADER_SIZE + expected)
        return YOLK_OK;
    *out = (struct tcp_frame){.kind = kind, .request_id = base_load_u64(in + 8)};
    const uint8_t *body = in + WIRE_HEADER_SIZE;
    if (expected == TCP_ACCESS_BODY) {
        out->segment = base_load_u64(body);
        out->offset = base_load_u64(body + 8);
        out->length = base_load_u64(body + 16);
        out->ticket.offset = base_load_u64(body + 24);
        out->ticket.size = base_load_u64(body + 32);
        out->ticket.op = base_load_u64(body + 40);
        memcpy(out->ticket.mac, body + 48, sizeof out->ticket.mac);
    } else if (expected == TCP_ID_BODY) {
        out->id = base_load_u64(body);
    } else {
        out->status = (int32_t)base_load_u32(body);
        out->length = base_load_u64(body + 8);
    }
    if (out->length > TCP_LENGTH_MAX)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a data frame claims %llu bytes",
                         (unsigned long long)out->length);
    *used = WIRE_HEADER_SIZE + expected;
    return YOLK_OK;
}
