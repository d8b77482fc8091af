/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include "base/error.h"
#include "wire/codec.h"

void wire_header_encode(const struct wire_header *header, uint8_t out[WIRE_HEADER_SIZE])
{
    base_store_u16(out, WIRE_MAGIC);
    base_store_u16(out + 2, header->kind);
    base_store_u32(out + 4, header->body_size);
    base_store_u64(out + 8, header->request_id);
}

int wire_header_decode(const uint8_t in[WIRE_HEADER_SIZE], struct wire_header *out)
{
    if (base_load_u16(in) != WIRE_MAGIC)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "not a Yolk peer: a frame starts with %02x %02x",
                         in[0], in[1]);
    out->kind = base_load_u16(in + 2);
    out->body_size = base_load_u32(in + 4);
    out->request_id = base_load_u64(in + 8);
    if (out->body_size > wire_kind_body_max(out->kind))
        return base_fail(YOLK_ERR_TOO_LARGE, 0,
                         "a frame of kind %u (%s) claims %u bytes, at most %u", out->kind,
                         wire_kind_name(out->kind), out->body_size, wire_kind_body_max(out->kind));
    return YOLK_OK;
}

int wire_frame_encode(uint16_t kind, uint64_t request_id, const void *msg, struct base_buf *out)
{
    size_t start = out->size;
    if (!base_buf_extend(out, WIRE_HEADER_SIZE))
        return base_fail(YOLK_ERR_LIMIT, 0, "no room for a frame");
    int status = wire_encode(kind, msg, out);
    if (status != YOLK_OK) {
        out->size = start;
        return status;
    }
    struct wire_header header = {.kind = kind, .request_id = request_id};
    header.body_size = (uint32_t)(out->size - start - WIRE_HEADER_SIZE);
    wire_header_encode(&header, out->data + start);
    return YOLK_OK;
}
