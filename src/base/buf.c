/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void base_buf_init(struct base_buf *buf, size_t maximum)
{
    *buf = (struct base_buf){.maximum = maximum};
}

void base_buf_free(struct base_buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->size = 0;
    buf->capacity = 0;
}

void base_buf_clear(struct base_buf *buf)
{
    buf->size = 0;
}

int base_buf_reserve(struct base_buf *buf, size_t extra)
{
    assert(buf->size <= buf->capacity);
    if (buf->capacity - buf->size >= extra && buf->data != NULL)
        return YOLK_OK;
    if (buf->size > buf->maximum || buf->maximum - buf->size < extra)
        return base_fail(YOLK_ERR_TOO_LARGE, 0,
                         "a buffer of %zu bytes cannot take %zu more, maximum %zu", buf->size,
                         extra, buf->maximum);
    size_t needed = buf->size + extra;
    size_t capacity = buf->capacity < 64 ? 64 : buf->capacity;
    while (capacity < needed)
        capacity = capacity > buf->maximum / 2 ? buf->maximum : capacity * 2;
    if (capacity > buf->maximum)
        capacity = buf->maximum;
    uint8_t *data = base_realloc(buf->data, capacity != 0 ? capacity : 1);
    if (data == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a buffer of %zu bytes", capacity);
    buf->data = data;
    buf->capacity = capacity;
    return YOLK_OK;
}

uint8_t *base_buf_extend(struct base_buf *buf, size_t size)
{
    if (base_buf_reserve(buf, size) != YOLK_OK)
        return NULL;
    uint8_t *place = buf->data + buf->size;
    if (size != 0)
        memset(place, 0, size);
    buf->size += size;
    return place;
}

int base_buf_append(struct base_buf *buf, const void *bytes, size_t size)
{
    int status = base_buf_reserve(buf, size);
    if (status != YOLK_OK)
        return status;
    if (size != 0)
        memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    return YOLK_OK;
}

int base_buf_printf(struct base_buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return base_fail(YOLK_ERR_INVALID, 0, "cannot format a text");
    /* One byte more: vsnprintf ends with a zero, which is not counted in the size. */
    int status = base_buf_reserve(buf, (size_t)length + 1);
    if (status != YOLK_OK)
        return status;
    va_start(arguments, format);
    vsnprintf((char *)buf->data + buf->size, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buf->size += (size_t)length;
    return YOLK_OK;
}

void base_buf_consume(struct base_buf *buf, size_t size)
{
    assert(size <= buf->size);
    if (size != 0 && size < buf->size)
        memmove(buf->data, buf->data + size, buf->size - size);
    buf->size -= size;
}

int base_buf_put_u32(struct base_buf *buf, uint32_t value)
{
    uint8_t bytes[4];
    base_store_u32(bytes, value);
    return base_buf_append(buf, bytes, sizeof(bytes));
}

int base_buf_put_u64(struct base_buf *buf, uint64_t value)
{
    uint8_t bytes[8];
    base_store_u64(bytes, value);
    return base_buf_append(buf, bytes, sizeof(bytes));
}
