/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers with units, as people write them in settings. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

/*
 * Each answers YOLK_OK or YOLK_ERR_CONFIG; `name` is the setting's, for the message, which names
 * the setting, the text and the rule that it broke.
 */
/* 4096, 64KiB, 4GiB, 1TiB, and decimal 500KB, 4GB. */
YOLK_MUST_USE int base_parse_size(const char *name, const char *text, uint64_t *bytes);
/* 500ms, 30s, 5m, 2h; a plain number is so many times `scale` ms (0 and 1: ms, 1000: seconds). The
 * answer is in milliseconds. */
YOLK_MUST_USE int base_parse_duration_ms(const char *name, const char *text, uint64_t scale,
                                         uint64_t *ms);
YOLK_MUST_USE int base_parse_u64(const char *name, const char *text, uint64_t *value);
/* A plain decimal fraction from 0 to 1. */
YOLK_MUST_USE int base_parse_ratio(const char *name, const char *text, double *value);
/* true/false, yes/no, on/off, 1/0. */
YOLK_MUST_USE int base_parse_bool(const char *name, const char *text, bool *value);

/* The shortest exact form, for example "4GiB", "1536KiB"; "500ms", "30s". */
const char *base_format_size(uint64_t bytes, char *text, size_t size);
const char *base_format_duration_ms(uint64_t ms, char *text, size_t size);

#endif
