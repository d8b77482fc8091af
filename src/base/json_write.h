/* SPDX-License-Identifier: Apache-2.0 */
/* JSON texts piece by piece into a buffer; a failure sticks. */
#ifndef BASE_JSON_WRITE_H
#define BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct base_json_writer {
    struct base_buf *out;
    int status;
    bool comma; /* before the next member */
};

/* As printf, of what is JSON already. */
void base_json_raw(struct base_json_writer *json, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A string of any bytes: what is no UTF-8 becomes the character of its number. */
void base_json_string(struct base_json_writer *json, const void *data, size_t size);

/* "name": with the comma before it if there is need. */
void base_json_name(struct base_json_writer *json, const char *name);
void base_json_text(struct base_json_writer *json, const char *name, const char *text);
void base_json_number(struct base_json_writer *json, const char *name, uint64_t number);
void base_json_bool(struct base_json_writer *json, const char *name, bool value);
/* '{' or '[', and the other one. */
void base_json_open(struct base_json_writer *json, char bracket);
void base_json_close(struct base_json_writer *json, char bracket);

#endif
