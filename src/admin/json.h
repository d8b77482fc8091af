/* SPDX-License-Identifier: Apache-2.0 */
/* JSON texts piece by piece into a buffer; a failure sticks. */
#ifndef ADMIN_JSON_H
#define ADMIN_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct admin_json_writer {
    struct base_buf *out;
    int status;
    bool comma; /* before the next member */
};

/* As printf, of what is JSON already. */
void admin_json_raw(struct admin_json_writer *json, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A string of any bytes: what is no UTF-8 becomes the character of its number. */
void admin_json_string(struct admin_json_writer *json, const void *data, size_t size);

/* "name": with the comma before it if there is need. */
void admin_json_name(struct admin_json_writer *json, const char *name);
void admin_json_text(struct admin_json_writer *json, const char *name, const char *text);
void admin_json_number(struct admin_json_writer *json, const char *name, uint64_t number);
void admin_json_bool(struct admin_json_writer *json, const char *name, bool value);
/* '{' or '[', and the other one. */
void admin_json_open(struct admin_json_writer *json, char bracket);
void admin_json_close(struct admin_json_writer *json, char bracket);

#endif
