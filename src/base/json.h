/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a JSON text into a tree: strict (RFC 8259), bounded, no member twice. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "yolk/status.h"

enum base_json_type {
    BASE_JSON_NULL,
    BASE_JSON_BOOL,
    BASE_JSON_NUMBER,
    BASE_JSON_STRING,
    BASE_JSON_ARRAY,
    BASE_JSON_OBJECT
};

enum {
    BASE_JSON_SIZE_MAX = 1 << 20, /* bytes of a text */
    BASE_JSON_NODES_MAX = 16384,  /* values in it */
    BASE_JSON_DEPTH_MAX = 32
};

struct base_json {
    enum base_json_type type;
    const char *name; /* of an object's member; else NULL */
    const char *text; /* the string without its escapes; of a number, true, false and null as it
                         stands; NUL terminated. Of others NULL */
    bool boolean;
    const char *source; /* as it stood in the text, for an array or an object from bracket to
                           bracket; not terminated */
    size_t source_size;
    const struct base_json *first; /* element or member */
    const struct base_json *next;  /* after this one in its array or object */
};

/* One value and nothing behind it. CONFIG, TOO_LARGE, NO_MEMORY; `where` begins the message, which
 * names line, column and rule. The tree keeps nothing of `text`. */
YOLK_MUST_USE int base_json_parse(const char *where, const char *text, size_t size,
                                  struct base_json **out);
/* All of what base_json_parse gave; NULL is allowed. */
void base_json_free(struct base_json *root);

/* NULL: no such member, or no object. */
const struct base_json *base_json_member(const struct base_json *object, const char *name);
/* Settings as TENT has them: "a/b/c" is a member of members, or one with the whole path, or part of
 * it, as its name. */
enum { BASE_JSON_PATH_MAX = 256 }; /* with the NUL */
struct base_json_settings {
    const char *where; /* begins messages */
    /* Whether an object at this path is one value. Else its members are settings. */
    bool (*whole)(void *self, const char *path);
    int (*take)(void *self, const char *path, const struct base_json *value); /* never of null */
    void *self;
};
/* Every value with its path, until take answers other than OK. Of two for one path the later call
 * holds: that is the nested one, as in TENT, and of two alike the last. CONFIG: no object, or too
 * long a path. */
YOLK_MUST_USE int base_json_settings(const struct base_json *root,
                                     const struct base_json_settings *settings);

/* "text", "number", "true or false", "array", "object", "null". */
const char *base_json_type_name(enum base_json_type type);

#endif
