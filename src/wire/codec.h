/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies (MessagePack maps with numeric tags), described by tables, and packed lists inside them.
 * Neither direction allocates: encoding appends to the caller's buffer, decoding borrows the frame.
 */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "yolk/status.h"

/* Bytes owned by someone else: the frame after decoding, the caller before encoding. */
struct wire_view {
    const uint8_t *data;
    size_t size;
};

static inline struct wire_view wire_view_of(const void *data, size_t size)
{
    return (struct wire_view){(const uint8_t *)data, size};
}
static inline struct wire_view wire_view_text(const char *text)
{
    return (struct wire_view){(const uint8_t *)text, text ? strlen(text) : 0};
}
static inline struct wire_view wire_view_buf(const struct base_buf *buf)
{
    return (struct wire_view){buf->data, buf->size};
}
/* Copies a text field, cut to fit and NUL-terminated, control characters replaced. */
void wire_view_copy_text(struct wire_view view, char *out, size_t size);

enum wire_field_type {
    WIRE_U64,
    WIRE_U32,
    WIRE_I32,
    WIRE_BIN,   /* struct wire_view */
    WIRE_STR,   /* struct wire_view */
    WIRE_FIXED, /* uint8_t[size]; any other length is refused */
    WIRE_GDSS,  /* struct wire_view: of a list of descriptors (gds.h), checked whole */
};
struct wire_field {
    uint8_t tag;
    uint8_t type;
    uint16_t
        size; /* WIRE_FIXED: bytes; WIRE_BIN: record size that must divide the length (0: any) */
    uint16_t offset;
};
struct wire_kind_info {
    uint16_t kind;
    const char *name;
    uint32_t body_max;
    uint16_t struct_size;
    uint16_t field_count;
    const struct wire_field *fields;
};
/* NULL for an unknown kind. */
const struct wire_kind_info *wire_kind_info(uint16_t kind);
/* "UNKNOWN" for an unknown kind. */
const char *wire_kind_name(uint16_t kind);
/* Largest body of a kind; unknown kinds have a small one so that they can be skipped. */
uint32_t wire_kind_body_max(uint16_t kind);
size_t wire_kind_count(void);
const struct wire_kind_info *wire_kind_at(size_t index);

/* Appends the body. Zero and empty fields are left out. On failure nothing is appended.
 * TOO_LARGE: above the kind's maximum; LIMIT: above the buffer's. */
YOLK_MUST_USE int wire_encode(uint16_t kind, const void *msg, struct base_buf *out);
/* Fills the kind's struct; fields that are absent become zero, views borrow `body`.
 * UNSUPPORTED: unknown kind; PROTOCOL: anything malformed (and then *msg is not to be used). */
YOLK_MUST_USE int wire_decode(uint16_t kind, const uint8_t *body, size_t size, void *msg);

/* ---- little-endian scalars, any alignment ---- */
static inline uint32_t wire_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t wire_get_u64(const uint8_t *p)
{
    return (uint64_t)wire_get_u32(p) | (uint64_t)wire_get_u32(p + 4) << 32;
}
static inline void wire_set_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}
static inline void wire_set_u64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* ---- lists of numbers: *_count, *_at (index < count), *_append ---- */
static inline uint32_t wire_u64s_count(struct wire_view list)
{
    return (uint32_t)(list.size / 8);
}
static inline uint64_t wire_u64s_at(struct wire_view list, uint32_t i)
{
    return wire_get_u64(list.data + (size_t)i * 8);
}
static inline uint32_t wire_u32s_count(struct wire_view list)
{
    return (uint32_t)(list.size / 4);
}
static inline uint32_t wire_u32s_at(struct wire_view list, uint32_t i)
{
    return wire_get_u32(list.data + (size_t)i * 4);
}
static inline int32_t wire_i32s_at(struct wire_view list, uint32_t i)
{
    return (int32_t)wire_get_u32(list.data + (size_t)i * 4);
}
YOLK_MUST_USE int wire_u64s_append(struct base_buf *out, uint64_t value);
YOLK_MUST_USE int wire_u32s_append(struct base_buf *out, uint32_t value);
YOLK_MUST_USE int wire_i32s_append(struct base_buf *out, int32_t value);

/* ---- keys: u32 count, u32 lens[count], bytes ---- */
struct wire_keys {
    uint32_t count;
    uint32_t next; /* index of the key wire_keys_next gives */
    const uint8_t *lens;
    const uint8_t *cursor;
    const uint8_t *blob;
};
/* Checks the whole list (an empty view is an empty list): afterwards no access can fail. LIMIT:
 * more than max_count; PROTOCOL: lengths and size disagree. Keys may be empty here; whether that is
 * allowed is the reader's question. */
YOLK_MUST_USE int wire_keys_open(struct wire_view list, uint32_t max_count, struct wire_keys *out);
/* False after the last. */
bool wire_keys_next(struct wire_keys *keys, struct wire_view *key);
void wire_keys_rewind(struct wire_keys *keys);
/* Appends a whole list. The second form asks for each key twice, in order (lengths first, then
 * bytes). */
YOLK_MUST_USE int wire_keys_build(struct base_buf *out, const struct wire_view *keys,
                                  uint32_t count);
YOLK_MUST_USE int wire_keys_build_by(struct base_buf *out, uint32_t count,
                                     struct wire_view (*key_at)(void *arg, uint32_t i), void *arg);

#endif
