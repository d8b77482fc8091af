/* SPDX-License-Identifier: Apache-2.0 */
/* Tests only: fills a message of any kind from its table, so that a new kind is tested without
 * being named. */
#ifndef WIRE_SAMPLE_MESSAGE_H
#define WIRE_SAMPLE_MESSAGE_H

#include "wire/msg.h"

struct sample_message {
    union wire_any msg;
    uint8_t bytes[32][256]; /* what the views point to */
};

/* One to three descriptors, nil among them. */
static inline struct wire_view sample_gdss(uint8_t *room, size_t size, uint64_t number,
                                           unsigned variant)
{
    struct base_buf buf;
    struct wire_gds gds;
    memcpy(&gds, room, sizeof(gds)); /* ids */
    gds.storage_generation = variant + 1;
    gds.value_offset = number;
    gds.value_size = variant * 1000u;
    gds.allocated_size = UINT64_C(4096) << variant % 40;
    base_buf_init(&buf, size);
    int status = YOLK_OK;
    for (unsigned n = 0; n <= variant % 3 && status == YOLK_OK; n++)
        status = wire_gds_append(&buf, (n + variant) % 4 == 3 ? NULL : &gds);
    if (buf.size > 0)
        memcpy(room, buf.data, buf.size);
    struct wire_view view = {room, buf.size};
    base_buf_free(&buf);
    return view;
}

static inline void sample_fill(const struct wire_kind_info *info, unsigned variant,
                               struct sample_message *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        uint8_t *at = out->msg.bytes + f->offset;
        uint64_t number = (i + 1) * UINT64_C(0x0102030405060708) + variant;
        int32_t negative = -(int32_t)(i + variant + 1);
        uint32_t narrow = (uint32_t)number >> (variant % 4 * 8);
        size_t unit = f->type == WIRE_BIN && f->size ? f->size : 1;
        struct wire_view view = {out->bytes[i], unit * (1 + variant % 5)};
        for (size_t b = 0; b < sizeof(out->bytes[i]); b++)
            out->bytes[i][b] = (uint8_t)(f->type == WIRE_STR ? 'a' + (b + i) % 26 : b + i + 1);
        switch ((enum wire_field_type)f->type) {
        case WIRE_U64:
            memcpy(at, &number, sizeof(number));
            break;
        case WIRE_U32:
            memcpy(at, &narrow, sizeof(narrow));
            break;
        case WIRE_I32:
            memcpy(at, &negative, sizeof(negative));
            break;
        case WIRE_BIN:
        case WIRE_STR:
            memcpy(at, &view, sizeof(view));
            break;
        case WIRE_FIXED:
            memcpy(at, out->bytes[i], f->size);
            break;
        case WIRE_GDSS:
            view = sample_gdss(out->bytes[i], sizeof(out->bytes[i]), number, variant);
            memcpy(at, &view, sizeof(view));
            break;
        }
    }
}

static inline bool sample_equal(const struct wire_kind_info *info, const uint8_t *a,
                                const uint8_t *b)
{
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        struct wire_view va, vb;
        size_t size = f->type == WIRE_U64 ? 8 : f->type == WIRE_FIXED ? f->size : 4;
        if (f->type == WIRE_BIN || f->type == WIRE_STR || f->type == WIRE_GDSS) {
            memcpy(&va, a + f->offset, sizeof(va));
            memcpy(&vb, b + f->offset, sizeof(vb));
            if (va.size != vb.size || (va.size && memcmp(va.data, vb.data, va.size)))
                return false;
        } else if (memcmp(a + f->offset, b + f->offset, size)) {
            return false;
        }
    }
    return true;
}

#endif
