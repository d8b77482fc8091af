/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_write.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void base_json_raw(struct base_json_writer *json, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (json->status == YOLK_OK && (size < 0 || (size_t)size >= sizeof(text)))
        json->status = YOLK_ERR_TOO_LARGE;
    if (json->status == YOLK_OK)
        json->status = base_buf_append(json->out, text, (size_t)size);
}

/* Bytes of one character of UTF-8 (its shortest form, no surrogate); 0: it is none. */
static size_t character(const uint8_t *at, size_t size)
{
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (length == 0 || length > size || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

void base_json_string(struct base_json_writer *json, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    base_json_raw(json, "\"");
    for (size_t i = 0; i < size && json->status == YOLK_OK;) {
        size_t length = character(bytes + i, size - i);
        if (length == 0 || bytes[i] < ' ' || bytes[i] == 0x7f)
            base_json_raw(json, "\\u%04x", bytes[i]);
        else if (bytes[i] == '"' || bytes[i] == '\\')
            base_json_raw(json, "\\%c", bytes[i]);
        else
            json->status = base_buf_append(json->out, bytes + i, length);
        i += length ? length : 1;
    }
    base_json_raw(json, "\"");
}

void base_json_name(struct base_json_writer *json, const char *name)
{
    base_json_raw(json, "%s\"%s\":", json->comma ? "," : "", name);
    json->comma = true;
}

void base_json_text(struct base_json_writer *json, const char *name, const char *text)
{
    base_json_name(json, name);
    base_json_string(json, text, strlen(text));
}

void base_json_number(struct base_json_writer *json, const char *name, uint64_t number)
{
    base_json_name(json, name);
    base_json_raw(json, "%" PRIu64, number);
}

void base_json_bool(struct base_json_writer *json, const char *name, bool value)
{
    base_json_name(json, name);
    base_json_raw(json, value ? "true" : "false");
}

void base_json_open(struct base_json_writer *json, char bracket)
{
    base_json_raw(json, "%c", bracket);
    json->comma = false;
}

void base_json_close(struct base_json_writer *json, char bracket)
{
    base_json_raw(json, "%c", bracket);
    json->comma = true;
}
