/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { LONGEST_REPLACEMENT = 6 }; /* [^0-9] for \D */
/* Escapes that regcomp reads in the same way, and those that stand for a character itself. */
static const char same_escapes[] = "wWsSbB123456789";
static const char plain_escapes[] = ".[]{}()*+?^$|\\/-";

static int refuse(const char *text, const char *part, size_t size)
{
    return base_fail(YOLK_ERR_INVALID, 0,
                     "the pattern \"%s\" has %.*s, which is not understood: it may have . [ ] ( ) "
                     "(?: ) { } * + ? | ^ $ and \\d \\w \\s \\b",
                     text, (int)size, part);
}

/* Copies `[...]` from *at; a bracket has no escapes for regcomp. */
static int copy_bracket(const char *text, const char **at, char **out)
{
    const char *c = *at;
    *(*out)++ = *c++;
    if (*c == '^')
        *(*out)++ = *c++;
    if (*c == ']')
        return refuse(text, *at, 2);
    for (; *c != '\0' && *c != ']'; c++) {
        if (*c == '\\' || (*c == '[' && strchr(".:=", c[1]) != NULL))
            return refuse(text, c, 2);
        *(*out)++ = *c;
    }
    *at = c;
    return YOLK_OK;
}

static int copy_escape(const char *text, const char **at, char **out)
{
    const char *c = *at;
    const char *digits = c[1] == 'd' ? "[0-9]" : c[1] == 'D' ? "[^0-9]" : NULL;
    *at = c + 1;
    if (digits != NULL) {
        memcpy(*out, digits, strlen(digits));
        *out += strlen(digits);
        return YOLK_OK;
    }
    if (c[1] == '\0' || (strchr(same_escapes, c[1]) == NULL && strchr(plain_escapes, c[1]) == NULL))
        return refuse(text, c, 2);
    if (strchr("/-", c[1]) == NULL)
        *(*out)++ = '\\';
    *(*out)++ = c[1];
    return YOLK_OK;
}

/* `out` has room for the longest it can become. */
static int translate(const char *text, char *out)
{
    for (const char *c = text; *c != '\0'; c++) {
        int status = YOLK_OK;
        if (*c == '\\') {
            status = copy_escape(text, &c, &out);
        } else if (*c == '[') {
            status = copy_bracket(text, &c, &out);
            if (*c == ']')
                *out++ = *c;
            else if (status == YOLK_OK)
                status = refuse(text, "a [ without its ]", 17);
        } else if (*c == '(' && c[1] == '?') {
            if (c[2] != ':')
                return refuse(text, c, 3);
            *out++ = *c;
            c += 2;
        } else {
            *out++ = *c;
        }
        if (status != YOLK_OK)
            return status;
    }
    *out = '\0';
    return YOLK_OK;
}

int compat_pattern_compile(const char *text, regex_t *pattern)
{
    char *posix = base_malloc(strlen(text) * LONGEST_REPLACEMENT + 1);
    if (posix == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a pattern");
    int status = translate(text, posix);
    if (status == YOLK_OK) {
        char reason[128];
        int failure = regcomp(pattern, posix, REG_EXTENDED);
        if (failure != 0) {
            (void)regerror(failure, pattern, reason, sizeof(reason));
            status =
                base_fail(YOLK_ERR_INVALID, 0, "\"%s\" is no pattern of keys: %s", text, reason);
        }
    }
    free(posix);
    return status;
}

bool compat_pattern_matches(const regex_t *pattern, const void *key, size_t key_size)
{
    regmatch_t range = {0, (regoff_t)key_size};
    return regexec(pattern, key, 1, &range, REG_STARTEND) == 0;
}

/* ---- removing ---- */

struct found {
    const regex_t *pattern;
    char *bytes; /* the keys one after another */
    size_t size, room;
    size_t *sizes;
    size_t count, sizes_room;
    int status;
};

/* Grows *memory to `needed` units at least, by doubling. */
static int grow(void **memory, size_t *room, size_t needed, size_t unit)
{
    size_t wanted = *room == 0 ? 64 : *room;
    while (wanted < needed)
        wanted *= 2;
    void *larger = wanted == *room ? *memory : base_realloc(*memory, wanted * unit);
    if (larger == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the keys that match");
    *memory = larger;
    *room = wanted;
    return YOLK_OK;
}

static int keep_match(void *context, const void *key, size_t key_size, uint64_t size)
{
    struct found *found = context;
    void *bytes = found->bytes, *sizes = found->sizes;
    (void)size;
    if (!compat_pattern_matches(found->pattern, key, key_size))
        return 0;
    found->status = grow(&bytes, &found->room, found->size + key_size, 1);
    found->bytes = bytes;
    if (found->status == YOLK_OK)
        found->status = grow(&sizes, &found->sizes_room, found->count + 1, sizeof(*found->sizes));
    found->sizes = sizes;
    if (found->status != YOLK_OK)
        return 1;
    memcpy(found->bytes + found->size, key, key_size);
    found->size += key_size;
    found->sizes[found->count++] = key_size;
    return 0;
}

enum { KEYS_AT_ONCE = 1024 };

static int remove_found(struct yolk_store *store, const struct found *found, int force,
                        uint64_t *removed)
{
    static const struct yolk_kv none;
    struct yolk_kv kvs[KEYS_AT_ONCE];
    const char *key = found->bytes;
    for (size_t done = 0; done < found->count;) {
        size_t n = 0;
        for (; n < KEYS_AT_ONCE && done < found->count; n++, done++) {
            kvs[n] = none;
            kvs[n].key = key;
            kvs[n].key_size = found->sizes[done];
            key += found->sizes[done];
        }
        enum yolk_status status = yolk_store_remove(store, kvs, n, force);
        for (size_t i = 0; i < n; i++) {
            /* Gone meanwhile, or leased: it is not of this call. */
            if (kvs[i].result == YOLK_OK)
                ++*removed;
            else if (kvs[i].result != YOLK_ERR_NOT_FOUND && kvs[i].result != YOLK_ERR_HAS_LEASE &&
                     kvs[i].result != YOLK_ERR_NOT_READY)
                return status;
        }
    }
    return YOLK_OK;
}

int compat_remove_matching(struct yolk_store *store, const char *text, int force, uint64_t *removed)
{
    regex_t pattern;
    struct found found = {.pattern = &pattern};
    *removed = 0;
    int status = compat_pattern_compile(text, &pattern);
    if (status != YOLK_OK)
        return status;
    status = yolk_store_list(store, keep_match, &found);
    if (status == YOLK_OK)
        status = found.status;
    if (status == YOLK_OK)
        status = remove_found(store, &found, force, removed);
    regfree(&pattern);
    free(found.bytes);
    free(found.sizes);
    return status;
}
