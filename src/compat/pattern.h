/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of keys, as Mooncake's callers write them (ECMAScript), for the C library's regcomp. */
#ifndef COMPAT_PATTERN_H
#define COMPAT_PATTERN_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include <yolk/store.h>

/* YOLK_ERR_INVALID with a sentence for what is no pattern or would mean another thing here. Else
 * regfree it. */
YOLK_MUST_USE int compat_pattern_compile(const char *text, regex_t *pattern);
/* Whether the pattern occurs in the key. */
bool compat_pattern_matches(const regex_t *pattern, const void *key, size_t key_size);

/* Removes the keys that the pattern occurs in; *removed says how many. Those that are leased stay
 * without force. */
YOLK_MUST_USE int compat_remove_matching(struct yolk_store *store, const char *text, int force,
                                         uint64_t *removed);

#endif
