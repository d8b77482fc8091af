/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flags of Mooncake's mooncake_master and mooncake_client, and what becomes of each here. One
 * table: the programs read their command line with it, and docs/programs.md is made from it.
 */
#ifndef CLI_UPSTREAM_FLAGS_H
#define CLI_UPSTREAM_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/config.h"

enum upstream_program { UPSTREAM_MASTER = 1, UPSTREAM_CLIENT = 2, UPSTREAM_BOTH = 3 };

enum upstream_type {
    UPSTREAM_BOOL,
    UPSTREAM_NUMBER,
    UPSTREAM_RATIO,
    UPSTREAM_TEXT,
    UPSTREAM_TIME, /* a plain number is in milliseconds */
    UPSTREAM_SIZE, /* "4 GB", "1.5gb": of 1024; a plain number is bytes */
};

enum upstream_use {
    UPSTREAM_SETS,    /* `setting` */
    UPSTREAM_HANDLED, /* put together with others by the program */
    UPSTREAM_IDLE,    /* accepted; `text` says why nothing comes of it */
};

struct upstream_flag {
    const char *name;
    unsigned programs; /* bits of enum upstream_program */
    enum upstream_type type;
    const char *fallback; /* upstream's */
    enum upstream_use use;
    enum base_setting setting;
    uint64_t scale;       /* a plain number's unit, in ours; 0: 1 */
    const char *harmless; /* "a|b": with these nothing is to be done or said; "*": with any */
    const char *text;     /* one clause; UPSTREAM_IDLE: why it has no effect */
};

extern const struct upstream_flag upstream_flags[];
extern const size_t upstream_flag_count;

/* `name` with '_'; NULL: upstream's program has no such flag. */
const struct upstream_flag *upstream_flag_find(const char *name, unsigned program);
/* Whether it is one of the flag's harmless values. */
bool upstream_flag_is_harmless(const struct upstream_flag *flag, const char *value);
/* Up to three names like this one, "--a, --b", among upstream's and our own; "" without any. */
void upstream_flag_suggest(const char *name, unsigned program, unsigned commands, char *out,
                           size_t size);
/* Checks a value against the flag's type and writes it the way our settings read it. */
YOLK_MUST_USE int upstream_flag_value(const struct upstream_flag *flag, const char *where,
                                      const char *value, char *out, size_t size);
/* For --help: one line a flag. */
YOLK_MUST_USE int upstream_flags_help(unsigned program, struct base_buf *text);
/* docs/programs.md: the part about flags. */
YOLK_MUST_USE int upstream_flags_markdown(struct base_buf *text);

#endif
