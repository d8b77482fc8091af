/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/gflags.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

/* A bool and the text behind '=', apart. */
struct flag {
    char name[GFLAGS_NAME_MAX];
    const char *value; /* NULL: none with it */
    char where[GFLAGS_NAME_MAX + 512];
};

struct state {
    const struct gflags_reader *reader;
    const char *undefok; /* "a,b"; of the command line only */
    const char *file;    /* being read; NULL: the command line */
    int line;
    int depth;
};

static int read_text(const char *path, struct base_buf *text)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return base_fail(YOLK_ERR_CONFIG, errno, "--flagfile=%s: cannot read it", path);
    char piece[8192];
    size_t got;
    int status = YOLK_OK;
    while (status == YOLK_OK && (got = fread(piece, 1, sizeof(piece), file)) > 0)
        status = base_buf_append(text, piece, got);
    if (status == YOLK_ERR_TOO_LARGE)
        status = base_fail(YOLK_ERR_CONFIG, 0, "--flagfile=%s: larger than %d bytes", path,
                           GFLAGS_FILE_MAX);
    else if (status == YOLK_OK && ferror(file))
        status = base_fail(YOLK_ERR_CONFIG, errno, "--flagfile=%s: cannot read it", path);
    else if (status == YOLK_OK && memchr(text->data ? text->data : (uint8_t *)"", 0, text->size))
        status = base_fail(YOLK_ERR_CONFIG, 0, "--flagfile=%s: a zero byte in it", path);
    if (status == YOLK_OK)
        status = base_buf_append(text, "", 1);
    fclose(file);
    return status;
}

/* Whether `name` is in the list "a,b". */
static bool is_listed(const char *list, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < length && i < size && (at[i] == '-' ? '_' : at[i]) == name[i])
            i++;
        if (i == length && i == size && size > 0)
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static int split(const struct state *state, const char *argument, struct flag *flag)
{
    const char *name = argument + (argument[1] == '-' ? 2 : 1);
    size_t size = strcspn(name, "=");
    if (state->file)
        snprintf(flag->where, sizeof(flag->where), "%.400s:%d: %.*s", state->file, state->line,
                 (int)(size < 64 ? size : 64) + (int)(name - argument), argument);
    else
        snprintf(flag->where, sizeof(flag->where), "%.*s",
                 (int)(size < 64 ? size : 64) + (int)(name - argument), argument);
    if (size == 0 || size >= sizeof(flag->name))
        return base_fail(YOLK_ERR_CONFIG, 0, "unknown flag %s", flag->where);
    for (size_t i = 0; i < size; i++)
        flag->name[i] = name[i] == '-' ? '_' : name[i];
    flag->name[size] = '\0';
    flag->value = name[size] == '=' ? name + size + 1 : NULL;
    return YOLK_OK;
}

static int read_file(struct state *state, const char *path);

/* --flagfile=A,B */
static int read_files(struct state *state, const char *list)
{
    char path[4096];
    int status = YOLK_OK;
    while (status == YOLK_OK && *list) {
        size_t size = strcspn(list, ",");
        if (size >= sizeof(path))
            return base_fail(YOLK_ERR_CONFIG, 0, "--flagfile: a path of %zu bytes", size);
        snprintf(path, sizeof(path), "%.*s", (int)size, list);
        if (size > 0)
            status = read_file(state, path);
        list += size + (list[size] == ',');
    }
    return status;
}

static int take(struct state *state, const struct flag *flag, const char *value);

/* --fromenv=A,B: FLAGS_A and FLAGS_B of the environment. */
static int read_environment(struct state *state, const char *list, bool must)
{
    int status = YOLK_OK;
    while (status == YOLK_OK && *list) {
        struct flag flag = {.value = NULL};
        char variable[GFLAGS_NAME_MAX + 8];
        size_t size = strcspn(list, ",");
        if (size >= sizeof(flag.name))
            return base_fail(YOLK_ERR_CONFIG, 0, "--fromenv: unknown flag %.64s", list);
        for (size_t i = 0; i < size; i++)
            flag.name[i] = list[i] == '-' ? '_' : list[i];
        snprintf(variable, sizeof(variable), "FLAGS_%s", flag.name);
        snprintf(flag.where, sizeof(flag.where), "%s", variable);
        const char *value = size > 0 ? getenv(variable) : NULL;
        if (value)
            status = take(state, &flag, value);
        else if (must && size > 0)
            status = base_fail(YOLK_ERR_CONFIG, 0, "--fromenv=%s: %s is not in the environment",
                               flag.name, variable);
        list += size + (list[size] == ',');
    }
    return status;
}

static int take(struct state *state, const struct flag *flag, const char *value)
{
    const struct gflags_reader *reader = state->reader;
    if (strcmp(flag->name, "flagfile") == 0)
        return read_files(state, value);
    if (strcmp(flag->name, "fromenv") == 0 || strcmp(flag->name, "tryfromenv") == 0)
        return read_environment(state, value, flag->name[0] == 'f');
    if (strcmp(flag->name, "undefok") == 0)
        return YOLK_OK; /* looked at before */
    if (reader->kind(reader->self, flag->name) != GFLAGS_UNKNOWN)
        return reader->take(reader->self, flag->name, value, flag->where);
    return is_listed(state->undefok, flag->name)
               ? YOLK_OK
               : reader->unknown(reader->self, flag->name, flag->where);
}

static enum gflags_kind kind_of(const struct state *state, const char *name)
{
    static const char *const own[] = {"flagfile", "fromenv", "tryfromenv", "undefok"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcmp(name, own[i]) == 0)
            return GFLAGS_VALUE;
    return state->reader->kind(state->reader->self, name);
}

/* `next` is the following argument or NULL; *used: whether it was this flag's value. */
static int read_flag(struct state *state, const char *argument, const char *next, bool *used)
{
    struct flag flag;
    *used = false;
    int status = split(state, argument, &flag);
    if (status != YOLK_OK)
        return status;
    enum gflags_kind kind = kind_of(state, flag.name);
    if (kind == GFLAGS_UNKNOWN && !flag.value && strncmp(flag.name, "no", 2) == 0 &&
        kind_of(state, flag.name + 2) == GFLAGS_BOOL) {
        memmove(flag.name, flag.name + 2, strlen(flag.name + 2) + 1);
        return take(state, &flag, "false");
    }
    if (flag.value || kind == GFLAGS_UNKNOWN)
        return take(state, &flag, flag.value ? flag.value : "");
    if (kind == GFLAGS_BOOL)
        return take(state, &flag, "true");
    if (!next)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s needs a value: %s=VALUE", flag.where, argument);
    *used = true;
    return take(state, &flag, next);
}

/* "NAME NAME..." with wildcards: the flags below it are for these programs. */
static bool is_for(const char *line, const char *program)
{
    char word[256];
    while (*line) {
        line += strspn(line, " \t");
        size_t size = strcspn(line, " \t");
        snprintf(word, sizeof(word), "%.*s", (int)(size < 255 ? size : 255), line);
        if (size > 0 && fnmatch(word, program, 0) == 0)
            return true;
        line += size;
    }
    return false;
}

static int read_line(struct state *state, char *line, bool *ours)
{
    bool used;
    line += strspn(line, " \t");
    size_t size = strlen(line);
    while (size > 0 && strchr(" \t\r", line[size - 1]))
        line[--size] = '\0';
    if (size == 0 || line[0] == '#')
        return YOLK_OK;
    if (line[0] != '-') {
        if (strchr(line, '='))
            return base_fail(YOLK_ERR_CONFIG, 0, "%s:%d: \"%.80s\": a flag begins with -",
                             state->file, state->line, line);
        *ours = is_for(line, state->reader->program);
        return YOLK_OK;
    }
    return *ours ? read_flag(state, line, NULL, &used) : YOLK_OK;
}

static int read_file(struct state *state, const char *path)
{
    if (state->depth >= GFLAGS_DEPTH)
        return base_fail(YOLK_ERR_CONFIG, 0, "--flagfile=%s: more than %d files inside each other",
                         path, GFLAGS_DEPTH);
    struct base_buf text;
    base_buf_init(&text, GFLAGS_FILE_MAX + 1);
    int status = read_text(path, &text);
    struct state inner = *state;
    inner.file = path;
    inner.line = 0;
    inner.depth++;
    bool ours = true;
    char *rest = (char *)text.data;
    while (status == YOLK_OK && rest) {
        char *line = strsep(&rest, "\n");
        inner.line++;
        status = read_line(&inner, line, &ours);
    }
    base_buf_free(&text);
    return status;
}

static const char *find_undefok(int argc, char *const *argv)
{
    const char *found = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        if (name == argv[i] || strncmp(name, "undefok", 7) != 0)
            continue;
        if (name[7] == '=')
            found = name + 8;
        else if (name[7] == '\0' && i + 1 < argc)
            found = argv[i + 1];
    }
    return found;
}

int gflags_read(const struct gflags_reader *reader, int argc, char *const *argv)
{
    struct state state = {.reader = reader, .undefok = find_undefok(argc, argv)};
    int status = YOLK_OK;
    for (int i = 0; i < argc && status == YOLK_OK; i++) {
        bool used, flag = argv[i][0] == '-' && argv[i][1] != '\0';
        if (flag && strcmp(argv[i], "--") == 0 && i + 1 == argc)
            break;
        if (!flag || strcmp(argv[i], "--") == 0)
            return base_fail(YOLK_ERR_CONFIG, 0, "\"%.64s\": no argument is expected",
                             flag ? argv[i + 1] : argv[i]);
        status = read_flag(&state, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used);
        i += used;
    }
    return status;
}
