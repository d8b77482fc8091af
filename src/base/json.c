/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* One allocation holds all: the nodes, a copy of the text, and the strings without their escapes,
 * which are never longer than they stood there with their quotes. */
struct reader {
    const char *where;
    const char *begin, *at, *end; /* in the copy */
    struct base_json *nodes;
    size_t used, room;
    char *strings;
};

static int wrong(const struct reader *r, const char *at, const char *rule)
{
    unsigned line = 1, column = 1;
    for (const char *p = r->begin; p < at; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    return base_fail(YOLK_ERR_CONFIG, 0, "%s: line %u, column %u: %s", r->where, line, column,
                     rule);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    if (r->at >= r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

/* Four hexadecimal digits; UINT32_MAX: they are not. */
static uint32_t hex4(struct reader *r)
{
    uint32_t value = 0;
    if (r->end - r->at < 4)
        return UINT32_MAX;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : UINT32_MAX;
        if (digit == UINT32_MAX)
            return UINT32_MAX;
        value = value << 4 | digit;
    }
    return value;
}

/* UINT32_MAX: no character. */
static uint32_t escaped_character(struct reader *r)
{
    uint32_t high = hex4(r);
    if (high < 0xd800 || high > 0xdfff)
        return high == 0 ? UINT32_MAX : high; /* NUL would end the text */
    if (high > 0xdbff || !take(r, '\\') || !take(r, 'u'))
        return UINT32_MAX;
    uint32_t low = hex4(r);
    return low < 0xdc00 || low > 0xdfff ? UINT32_MAX
                                        : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static void put_utf8(struct reader *r, uint32_t c)
{
    unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *r->strings++ = (char)(lead[more] | c >> (6 * more));
    while (more-- > 0)
        *r->strings++ = (char)(0x80 | (c >> (6 * more) & 0x3f));
}

/* Behind the opening quote. */
static int read_string(struct reader *r, const char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *start = r->at - 1;
    *out = r->strings;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c < 0x20)
            return wrong(r, r->at - 1, "a control character in a string must be written as \\u");
        if (c != '\\') {
            *r->strings++ = (char)c;
            continue;
        }
        const char *known = r->at < r->end ? memchr(from, *r->at, sizeof(from) - 1) : NULL;
        if (known != NULL) {
            *r->strings++ = to[known - from];
            r->at++;
            continue;
        }
        const char *escape = r->at - 1;
        uint32_t character = take(r, 'u') ? escaped_character(r) : UINT32_MAX;
        if (character == UINT32_MAX)
            return wrong(r, escape, "this is no escape that means a character");
        put_utf8(r, character);
    }
    if (!take(r, '"'))
        return wrong(r, start, "this string has no end");
    *r->strings++ = '\0';
    return YOLK_OK;
}

/* ---- values ---- */

static bool digits(struct reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

static bool number(struct reader *r)
{
    (void)take(r, '-');
    const char *start = r->at;
    if (!digits(r) || (*start == '0' && r->at - start > 1))
        return false;
    if (take(r, '.') && !digits(r))
        return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+'))
            (void)take(r, '-');
        if (!digits(r))
            return false;
    }
    return true;
}

static bool word(struct reader *r, const char *text)
{
    size_t size = strlen(text);
    if ((size_t)(r->end - r->at) < size || memcmp(r->at, text, size) != 0)
        return false;
    r->at += size;
    return true;
}

/* What stands from `start` on, with an end. */
static const char *keep(struct reader *r, const char *start)
{
    char *text = r->strings;
    memcpy(text, start, (size_t)(r->at - start));
    text[r->at - start] = '\0';
    r->strings += r->at - start + 1;
    return text;
}

static int read_plain(struct reader *r, struct base_json *node)
{
    const char *start = r->at;
    if (word(r, "true") || word(r, "false")) {
        node->type = BASE_JSON_BOOL;
        node->boolean = *start == 't';
    } else if (word(r, "null")) {
        node->type = BASE_JSON_NULL;
    } else if (number(r)) {
        node->type = BASE_JSON_NUMBER;
    } else {
        return wrong(r, start, "a value must stand here");
    }
    node->text = keep(r, start);
    return YOLK_OK;
}

static int read_value(struct reader *r, const char *name, unsigned depth, struct base_json **out);

/* Behind the opening bracket. */
static int read_members(struct reader *r, struct base_json *node, unsigned depth)
{
    bool object = node->type == BASE_JSON_OBJECT;
    struct base_json *last = NULL;
    skip_space(r);
    if (take(r, object ? '}' : ']'))
        return YOLK_OK;
    do {
        const char *name = NULL;
        struct base_json *member;
        skip_space(r);
        const char *start = r->at;
        if (object) {
            int status = take(r, '"') ? read_string(r, &name)
                                      : wrong(r, start, "a member begins with its name");
            if (status != YOLK_OK)
                return status;
            if (base_json_member(node, name) != NULL)
                return wrong(r, start, "this member stands twice in its object");
            skip_space(r);
            if (!take(r, ':'))
                return wrong(r, r->at, "a colon must stand behind the name");
        }
        int status = read_value(r, name, depth + 1, &member);
        if (status != YOLK_OK)
            return status;
        if (last == NULL)
            node->first = member;
        else
            last->next = member;
        last = member;
        skip_space(r);
    } while (take(r, ','));
    return take(r, object ? '}' : ']')
               ? YOLK_OK
               : wrong(r, r->at,
                       object ? "a comma or } must stand here" : "a comma or ] must stand here");
}

static int read_value(struct reader *r, const char *name, unsigned depth, struct base_json **out)
{
    skip_space(r);
    const char *start = r->at;
    if (depth > BASE_JSON_DEPTH_MAX)
        return wrong(r, start, "more than 32 levels");
    if (r->used == r->room)
        return wrong(r, start, "more than 16384 values");
    struct base_json *node = &r->nodes[r->used++];
    int status;
    *node = (struct base_json){.name = name, .source = start};
    if (take(r, '"')) {
        node->type = BASE_JSON_STRING;
        status = read_string(r, &node->text);
    } else if (take(r, '{')) {
        node->type = BASE_JSON_OBJECT;
        status = read_members(r, node, depth);
    } else if (take(r, '[')) {
        node->type = BASE_JSON_ARRAY;
        status = read_members(r, node, depth);
    } else {
        status = read_plain(r, node);
    }
    node->source_size = (size_t)(r->at - start);
    *out = node;
    return status;
}

/* At least as many values as there are. */
static size_t values_at_most(const char *text, size_t size)
{
    size_t count = 1;
    for (size_t i = 0; i < size; i++)
        count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return count < BASE_JSON_NODES_MAX ? count : BASE_JSON_NODES_MAX;
}

int base_json_parse(const char *where, const char *text, size_t size, struct base_json **out)
{
    *out = NULL;
    if (size > BASE_JSON_SIZE_MAX)
        return base_fail(YOLK_ERR_TOO_LARGE, 0, "%s: %zu bytes of JSON, at most %d", where, size,
                         BASE_JSON_SIZE_MAX);
    size_t room = values_at_most(text, size);
    /* Each plain value gets an end of its own beside what it takes in the text. */
    struct base_json *nodes = base_malloc(room * sizeof(*nodes) + size + size + room);
    if (nodes == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "%s: no memory for %zu bytes of JSON", where, size);
    char *copy = (char *)(nodes + room);
    if (size > 0)
        memcpy(copy, text, size);
    struct reader r = {where, copy, copy, copy + size, nodes, 0, room, copy + size};
    struct base_json *root;
    int status = read_value(&r, NULL, 0, &root);
    skip_space(&r);
    if (status == YOLK_OK && r.at != r.end)
        status = wrong(&r, r.at, "something stands behind the value");
    if (status != YOLK_OK) {
        free(nodes);
        return status;
    }
    *out = root; /* the first node, so the allocation itself */
    return YOLK_OK;
}

void base_json_free(struct base_json *root)
{
    free(root);
}

const struct base_json *base_json_member(const struct base_json *object, const char *name)
{
    if (object == NULL || object->type != BASE_JSON_OBJECT)
        return NULL;
    for (const struct base_json *member = object->first; member != NULL; member = member->next)
        if (strcmp(member->name, name) == 0)
            return member;
    return NULL;
}

static int take_members(const struct base_json_settings *settings, const char *path,
                        const struct base_json *object);

static int take_value(const struct base_json_settings *settings, const char *path,
                      const struct base_json *value)
{
    if (value->type == BASE_JSON_NULL)
        return YOLK_OK;
    if (value->type == BASE_JSON_OBJECT && !settings->whole(settings->self, path))
        return take_members(settings, path, value);
    return settings->take(settings->self, path, value);
}

/* Paths as names first, for the later one holds. */
static int take_members(const struct base_json_settings *settings, const char *path,
                        const struct base_json *object)
{
    int status = YOLK_OK;
    for (int nested = 0; nested < 2; nested++)
        for (const struct base_json *member = object->first; member != NULL && status == YOLK_OK;
             member = member->next) {
            char below[BASE_JSON_PATH_MAX];
            if ((strchr(member->name, '/') == NULL) != (nested == 1))
                continue;
            int size = snprintf(below, sizeof(below), "%s%s%s", path, path[0] != '\0' ? "/" : "",
                                member->name);
            status = size < BASE_JSON_PATH_MAX
                         ? take_value(settings, below, member)
                         : base_fail(YOLK_ERR_CONFIG, 0, "%s: a key of %d bytes, at most %d",
                                     settings->where, size, BASE_JSON_PATH_MAX - 1);
        }
    return status;
}

int base_json_settings(const struct base_json *root, const struct base_json_settings *settings)
{
    return root->type == BASE_JSON_OBJECT
               ? take_members(settings, "", root)
               : base_fail(YOLK_ERR_CONFIG, 0, "%s: must be a JSON object", settings->where);
}

const char *base_json_type_name(enum base_json_type type)
{
    static const char *const names[] = {"null", "true or false", "number",
                                        "text", "array",         "object"};
    return names[type];
}
