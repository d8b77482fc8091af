/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/buf.h"
#include "base/error.h"
#include "platform/text_file.h"

/* ---- JSON ---- */

struct receiver {
    config_file_pair pair;
    void *self;
    const char *path;
    struct base_buf *seen; /* the keys so far, a zero byte before and behind each */
};

/* One of two values would be silently of no effect. */
static int take_pair(const struct receiver *to, const char *key, const char *value,
                     const char *where)
{
    size_t size = strlen(key) + 1, begin = to->seen->size;
    int status = begin == 0 ? base_buf_append(to->seen, "", 1) : YOLK_OK;
    if (status == YOLK_OK)
        status = base_buf_append(to->seen, key, size);
    if (status != YOLK_OK)
        return base_fail(status, 0, "%s: no memory for its keys", where);
    char *last = (char *)to->seen->data + to->seen->size - size;
    for (char *at = last; *at != '\0'; at++)
        if (*at == '-')
            *at = '_';
    if (begin > 0 && memmem(to->seen->data, begin, last - 1, size + 1) != NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: %.64s is given twice", where, key);
    return to->pair(to->self, key, value, where);
}

static int json_pair(const struct receiver *to, const char *key, const json_t *value)
{
    char number[64];
    const char *text = number;
    switch (json_typeof(value)) {
    case JSON_STRING:
        text = json_string_value(value);
        break;
    case JSON_INTEGER:
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(number, sizeof(number), "%.17g", json_real_value(value));
        break;
    case JSON_TRUE:
        text = "true";
        break;
    case JSON_FALSE:
        text = "false";
        break;
    default:
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s: the value of \"%s\" must be a text, a number or true/false", to->path,
                         key);
    }
    return take_pair(to, key, text, to->path);
}

static int load_json(const struct receiver *to, const struct base_buf *text)
{
    json_error_t error;
    if (text->size == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: the file is empty: must hold one JSON object",
                         to->path);
    json_t *root = json_loadb((const char *)text->data, text->size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s:%d: %s", to->path, error.line, error.text);
    int status = YOLK_OK;
    if (!json_is_object(root)) {
        status = base_fail(YOLK_ERR_CONFIG, 0, "%s: the file must hold one JSON object", to->path);
    } else {
        const char *key;
        json_t *value;
        json_object_foreach(root, key, value)
        {
            status = json_pair(to, key, value);
            if (status != YOLK_OK)
                break;
        }
    }
    json_decref(root);
    return status;
}

/* ---- YAML ---- */

struct yaml_reader {
    const struct receiver *to;
    char *key; /* read, its value not yet */
    int depth;
    unsigned documents;
    bool done;
};

static int yaml_refuse(const struct yaml_reader *reader, const yaml_event_t *event,
                       const char *text)
{
    return base_fail(YOLK_ERR_CONFIG, 0, "%s:%zu: %s", reader->to->path, event->start_mark.line + 1,
                     text);
}

static int yaml_scalar(struct yaml_reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    if (reader->depth != 1)
        return yaml_refuse(reader, event, "the file must consist of \"key: value\" lines");
    if (strlen(text) != event->data.scalar.length)
        return yaml_refuse(reader, event, "a zero byte in a text");
    if (!reader->key) {
        reader->key = strdup(text);
        return reader->key ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory");
    }
    char where[512];
    snprintf(where, sizeof(where), "%s:%zu", reader->to->path, event->start_mark.line + 1);
    int status = take_pair(reader->to, reader->key, text, where);
    free(reader->key);
    reader->key = NULL;
    return status;
}

static int yaml_event(struct yaml_reader *reader, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return yaml_scalar(reader, event);
    case YAML_MAPPING_START_EVENT:
        if (reader->depth++ > 0)
            return yaml_refuse(reader, event, "settings have no inner levels");
        return YOLK_OK;
    case YAML_MAPPING_END_EVENT:
        reader->depth--;
        return YOLK_OK;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_ALIAS_EVENT:
        return yaml_refuse(reader, event, "lists and aliases are no settings");
    case YAML_DOCUMENT_START_EVENT:
        if (reader->documents++ > 0)
            return yaml_refuse(reader, event, "a second document: one file holds one");
        return YOLK_OK;
    case YAML_STREAM_END_EVENT:
        reader->done = true;
        return YOLK_OK;
    default:
        return YOLK_OK;
    }
}

static int load_yaml(const struct receiver *to, const struct base_buf *text)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a YAML parser");
    yaml_parser_set_input_string(&parser, text->data ? text->data : (const uint8_t *)"",
                                 text->size);
    struct yaml_reader reader = {.to = to};
    int status = YOLK_OK;
    while (status == YOLK_OK && !reader.done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            status =
                base_fail(YOLK_ERR_CONFIG, 0, "%s:%zu: %s", to->path, parser.problem_mark.line + 1,
                          parser.problem ? parser.problem : "not YAML");
            break;
        }
        status = yaml_event(&reader, &event);
        yaml_event_delete(&event);
    }
    free(reader.key);
    yaml_parser_delete(&parser);
    return status;
}

int config_file_read(const char *path, config_file_pair pair, void *self)
{
    struct base_buf text, seen;
    const struct receiver to = {pair, self, path, &seen};
    base_buf_init(&text, CONFIG_FILE_MAX);
    base_buf_init(&seen, CONFIG_FILE_MAX + 1);
    int status = text_file_read("the configuration", path, &text);
    const char *dot = strrchr(path, '.');
    if (status == YOLK_OK)
        status = dot && strcmp(dot, ".json") == 0 ? load_json(&to, &text) : load_yaml(&to, &text);
    base_buf_free(&seen);
    base_buf_free(&text);
    return status;
}

static int settings_pair(void *self, const char *key, const char *value, const char *where)
{
    return base_config_file_pair(self, key, value, where);
}

int config_file_load(struct base_config *config, const char *path)
{
    return config_file_read(path, settings_pair, config);
}
