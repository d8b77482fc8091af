/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int grow(void **array, size_t *capacity, size_t want, size_t item_size)
{
    if (want <= *capacity)
        return 0;
    size_t next = *capacity ? *capacity : 64;
    while (next < want)
        next *= 2;
    void *bigger = realloc(*array, next * item_size);
    if (!bigger)
        return -1;
    *array = bigger;
    *capacity = next;
    return 0;
}

int trace_add(struct trace *trace, const uint64_t *ids, size_t count)
{
    if (count > TRACE_BLOCKS_MAX || trace->count >= TRACE_REQUESTS_MAX)
        return -1;
    if (grow((void **)&trace->requests, &trace->capacity, trace->count + 1,
             sizeof *trace->requests) ||
        grow((void **)&trace->ids, &trace->id_capacity, trace->id_count + count,
             sizeof *trace->ids))
        return -1;
    if (count)
        memcpy(trace->ids + trace->id_count, ids, count * sizeof *ids);
    trace->requests[trace->count++] =
        (struct trace_request){.first = trace->id_count, .count = count};
    trace->id_count += count;
    return 0;
}

/* Adds the request of one parsed line; returns NULL or what is wrong with it. */
static const char *add_line(struct trace *trace, const json_t *line)
{
    const json_t *list = json_object_get(line, "hash_ids");
    if (!json_is_object(line))
        return "not a JSON object";
    if (!json_is_array(list))
        return "no array \"hash_ids\"";
    size_t count = json_array_size(list);
    if (count > TRACE_BLOCKS_MAX)
        return "too many hash_ids (more than 65536)";
    uint64_t *ids = calloc(count ? count : 1, sizeof *ids);
    if (!ids)
        return "out of memory";
    const char *wrong = NULL;
    for (size_t i = 0; i < count && !wrong; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            wrong = "a hash_id is not a non-negative integer";
        else
            ids[i] = (uint64_t)json_integer_value(id);
    }
    if (!wrong && trace_add(trace, ids, count))
        wrong = "out of memory, or too many requests";
    free(ids);
    return wrong;
}

static const char *parse_line(struct trace *trace, const char *text, size_t length, char *detail,
                              size_t detail_size)
{
    json_error_t where;
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!line) {
        snprintf(detail, detail_size, "bad JSON: %s", where.text);
        return detail;
    }
    const char *wrong = add_line(trace, line);
    json_decref(line);
    return wrong;
}

static int is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n')
            return 0;
    return 1;
}

/* The next line without its end, cut behind the limit; -1 at the end of the file. An endless line
 * must not fill the memory, which getline() would let it. */
static ssize_t read_line(FILE *file, char *line, size_t limit)
{
    size_t length = 0;
    int c;
    while ((c = getc_unlocked(file)) != EOF && c != '\n') {
        line[length++] = (char)c;
        if (length > limit)
            return (ssize_t)length;
    }
    return c == EOF && length == 0 ? -1 : (ssize_t)length;
}

static int load_stream(struct trace *trace, FILE *file, const char *path, size_t max_requests,
                       char *error, size_t error_size)
{
    char *line = malloc(TRACE_LINE_MAX + 1);
    size_t number = 0;
    int result = 0;
    ssize_t length;
    if (!line) {
        snprintf(error, error_size, "%s: no memory for a line", path);
        return -1;
    }
    while (!result && (!max_requests || trace->count < max_requests) &&
           (length = read_line(file, line, TRACE_LINE_MAX)) >= 0) {
        char detail[200];
        number++;
        if (is_blank(line, (size_t)length))
            continue;
        const char *wrong = length > TRACE_LINE_MAX
                                ? "line is longer than 4 MiB"
                                : parse_line(trace, line, (size_t)length, detail, sizeof detail);
        if (wrong) {
            snprintf(error, error_size, "%s:%zu: %s", path, number, wrong);
            result = -1;
        }
    }
    if (!result && ferror(file)) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        result = -1;
    }
    free(line);
    return result;
}

int trace_load(struct trace *trace, const char *path, size_t max_requests, char *error,
               size_t error_size)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return -1;
    }
    int result = load_stream(trace, file, path, max_requests, error, error_size);
    fclose(file);
    if (!result && trace->count == 0) {
        snprintf(error, error_size, "%s: holds no request", path);
        result = -1;
    }
    if (result)
        trace_free(trace);
    return result;
}

void trace_free(struct trace *trace)
{
    free(trace->requests);
    free(trace->ids);
    *trace = (struct trace){0};
}
