/* SPDX-License-Identifier: Apache-2.0 */
/* A growable byte buffer that refuses to grow over its maximum. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

struct base_buf {
    uint8_t *data;
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes allocated */
    size_t maximum;  /* never grows over this */
};

void base_buf_init(struct base_buf *buf, size_t maximum);
/* Frees the memory; the buffer is empty and usable again afterwards. */
void base_buf_free(struct base_buf *buf);
/* Empties, keeping the memory. */
void base_buf_clear(struct base_buf *buf);
/* Room for `extra` more bytes behind `size`: YOLK_ERR_TOO_LARGE or YOLK_ERR_NO_MEMORY when there is
 * none. */
YOLK_MUST_USE int base_buf_reserve(struct base_buf *buf, size_t extra);
YOLK_MUST_USE int base_buf_append(struct base_buf *buf, const void *bytes, size_t size);
/* Appends `size` zero bytes and answers where they are; NULL when there is no room. */
uint8_t *base_buf_extend(struct base_buf *buf, size_t size);
YOLK_MUST_USE int base_buf_printf(struct base_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Drops the first `size` bytes. */
void base_buf_consume(struct base_buf *buf, size_t size);

/* Little-endian stores and loads for packed records; no alignment is assumed. */
YOLK_MUST_USE int base_buf_put_u32(struct base_buf *buf, uint32_t value);
YOLK_MUST_USE int base_buf_put_u64(struct base_buf *buf, uint64_t value);

static inline void base_store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void base_store_u32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline void base_store_u64(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint16_t base_load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}

static inline uint32_t base_load_u32(const uint8_t *p)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < 4; i++)
        v |= (uint32_t)p[i] << (8 * i);
    return v;
}

static inline uint64_t base_load_u64(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

#endif
