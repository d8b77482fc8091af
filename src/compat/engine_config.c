/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/engine_config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_ROOM "engine"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/text_file.h"

/* ---- a program's own ---- */

enum yolk_status compat_settings_set(struct compat_settings *settings, const char *key,
                                     const char *value)
{
    if (key == NULL || value == NULL || key[0] == '\0' || strlen(key) >= COMPAT_KEY_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "a setting has a key of 1 to %d bytes and a value",
                         COMPAT_KEY_MAX - 1);
    size_t at = 0;
    while (at < settings->count && strcmp(settings->pairs[at].key, key) != 0)
        at++;
    if (at == COMPAT_SETTINGS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "more than %d settings", COMPAT_SETTINGS_MAX);
    struct compat_setting pair = {strdup(key), strdup(value)};
    struct compat_setting *pairs = settings->pairs;
    if (at == settings->count)
        pairs = base_realloc(pairs, (at + 1) * sizeof(*pairs));
    if (pairs != NULL)
        settings->pairs = pairs;
    if (pairs == NULL || pair.key == NULL || pair.value == NULL) {
        free(pair.key);
        free(pair.value);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the setting %s", key);
    }
    if (at < settings->count) {
        free(pairs[at].key);
        free(pairs[at].value);
    }
    settings->count += at == settings->count;
    pairs[at] = pair;
    return YOLK_OK;
}

void compat_settings_free(struct compat_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        free(settings->pairs[i].key);
        free(settings->pairs[i].value);
    }
    free(settings->pairs);
    free(settings->file);
    *settings = (struct compat_settings){0};
}

/* ---- one setting, wherever it stood ---- */

struct loader {
    struct base_config *config;
    const char *where; /* for messages */
    bool own_identity; /* takes only who this process is */
    uint64_t told;     /* rows without effect, by index */
};

static bool is_identity(enum base_setting setting)
{
    return setting == SET_METADATA_TYPE || setting == SET_METADATA_SERVERS ||
           setting == SET_SEGMENT_NAME || setting == SET_RPC_HOST || setting == SET_RPC_PORT;
}

/* Once for all keys of a row. */
static void tell_ignored(struct loader *loader, const char *path)
{
    const struct base_setting_ignored *row = base_setting_ignored(path, strlen(path), false);
    if (row == NULL) {
        log_warn("%s: there is no setting \"%s\"; it has no effect", loader->where, path);
        return;
    }
    uint64_t bit = UINT64_C(1) << ((size_t)(row - base_setting_ignored_at(0)) & 63);
    bool all = row->key[strlen(row->key) - 1] == '*';
    if ((loader->told & bit) == 0)
        log_warn("%s: %s%s has no effect: %s", loader->where, path,
                 all ? " (as all else beside it)" : "", row->why);
    loader->told |= bit;
}

/* "transports/NAME/enable": the name. */
static bool is_enable(const char *path, char name[COMPAT_KEY_MAX])
{
    static const char begin[] = "transports/", end[] = "/enable";
    size_t size = strlen(path), edges = sizeof(begin) - 1 + sizeof(end) - 1;
    if (size <= edges || strncmp(path, begin, sizeof(begin) - 1) != 0 ||
        strcmp(path + size - (sizeof(end) - 1), end) != 0)
        return false;
    snprintf(name, COMPAT_KEY_MAX, "%.*s", (int)(size - edges), path + sizeof(begin) - 1);
    return strpbrk(name, "/,") == NULL;
}

/* A transport's name out of the list of those that are off, and into it again if it is to be. */
static enum yolk_status set_enable(struct loader *loader, const char *path, const char *name,
                                   const char *text)
{
    struct base_buf list;
    bool on;
    char label[2 * COMPAT_KEY_MAX];
    snprintf(label, sizeof(label), "%.200s: %s", loader->where, path);
    enum yolk_status status = base_parse_bool(label, text, &on);
    if (status != YOLK_OK)
        return status;
    if (on && base_setting_ignored(path, strlen(path), false) != NULL)
        tell_ignored(loader, path);
    base_buf_init(&list, COMPAT_KEY_MAX - 1);
    const char *old = base_config_string(loader->config, SET_TRANSPORTS_OFF);
    while (status == YOLK_OK && *old != '\0') {
        size_t size = strcspn(old, ",");
        if (strlen(name) != size || strncmp(name, old, size) != 0)
            status = base_buf_printf(&list, "%s%.*s", list.size > 0 ? "," : "", (int)size, old);
        old += size + (old[size] == ',');
    }
    if (status == YOLK_OK && !on)
        status = base_buf_printf(&list, "%s%s", list.size > 0 ? "," : "", name);
    if (status == YOLK_OK)
        status = base_buf_append(&list, "", 1);
    if (status == YOLK_OK)
        status = base_config_set(loader->config, SET_TRANSPORTS_OFF, label, (char *)list.data, 1,
                                 ORIGIN_FILE);
    else
        status = base_fail(YOLK_ERR_CONFIG, 0, "%s: too many transports are turned off", label);
    base_buf_free(&list);
    return status;
}

static enum yolk_status take_text(struct loader *loader, const char *path, const char *text)
{
    char name[COMPAT_KEY_MAX];
    const struct base_setting_info *info = base_config_find(path, COMMAND_LIBRARY);
    if (loader->own_identity && (info == NULL || !is_identity(info->id)))
        return YOLK_OK;
    if (info != NULL) {
        char label[2 * COMPAT_KEY_MAX];
        snprintf(label, sizeof(label), "%.200s: %s", loader->where, path);
        return base_config_set(loader->config, info->id, label, text, 1, ORIGIN_FILE);
    }
    if (is_enable(path, name))
        return set_enable(loader, path, name, text);
    tell_ignored(loader, path);
    return YOLK_OK;
}

/* ---- JSON ---- */

static enum yolk_status wrong_type(const struct loader *loader, const char *path,
                                   const struct base_json *node, const char *rule)
{
    return base_fail(YOLK_ERR_CONFIG, 0, "%s: %s is %s %s: must be %s", loader->where, path,
                     node->type == BASE_JSON_ARRAY || node->type == BASE_JSON_OBJECT ? "an" : "a",
                     base_json_type_name(node->type), rule);
}

/* "a,b" of an array of texts. */
static enum yolk_status take_list(struct loader *loader, const char *path,
                                  const struct base_json *node)
{
    struct base_buf list;
    enum yolk_status status = YOLK_OK;
    base_buf_init(&list, BASE_JSON_SIZE_MAX);
    for (const struct base_json *each = node->first; each != NULL && status == YOLK_OK;
         each = each->next)
        status = each->type != BASE_JSON_STRING || strchr(each->text, ',') != NULL
                     ? base_fail(YOLK_ERR_CONFIG, 0, "%s: %s must be an array of names",
                                 loader->where, path)
                     : base_buf_printf(&list, "%s%s", list.size > 0 ? "," : "", each->text);
    if (status == YOLK_OK)
        status = base_buf_append(&list, "", 1);
    if (status == YOLK_OK)
        status = take_text(loader, path, (const char *)list.data);
    base_buf_free(&list);
    return status;
}

static enum yolk_status take_node(struct loader *loader, const char *path,
                                  const struct base_json *node)
{
    const struct base_setting_info *info = base_config_find(path, COMMAND_LIBRARY);
    bool json = info != NULL && info->type == CONFIG_JSON;
    if (info != NULL && info->list && node->type == BASE_JSON_ARRAY)
        return take_list(loader, path, node);
    if (info != NULL && json != (node->type == BASE_JSON_ARRAY || node->type == BASE_JSON_OBJECT))
        return wrong_type(loader, path, node, json ? "an array or an object" : "one value");
    if (node->text != NULL)
        return take_text(loader, path, node->text);
    char *text = strndup(node->source, node->source_size);
    enum yolk_status status = text != NULL
                                  ? take_text(loader, path, text)
                                  : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %s", path);
    free(text);
    return status;
}

static bool is_whole(void *self, const char *path)
{
    (void)self;
    return base_config_find(path, COMMAND_LIBRARY) != NULL;
}

static int take_member(void *self, const char *path, const struct base_json *value)
{
    return take_node(self, path, value);
}

static enum yolk_status take_json(struct loader *loader, struct base_json *root)
{
    const struct base_json_settings settings = {loader->where, is_whole, take_member, loader};
    int status = base_json_settings(root, &settings);
    base_json_free(root);
    return (enum yolk_status)status;
}

/* ---- all of it ---- */

static enum yolk_status take_own(struct loader *loader, const struct compat_settings *own)
{
    enum yolk_status status = YOLK_OK;
    struct base_json *root;
    if (own == NULL)
        return status;
    if (own->file != NULL) {
        loader->where = "tent_load_config_from_file";
        status = (enum yolk_status)text_file_json(loader->where, own->file, &root);
        if (status == YOLK_OK)
            status = take_json(loader, root);
    }
    loader->where = "tent_set_config";
    for (size_t i = 0; i < own->count && status == YOLK_OK; i++)
        status = take_text(loader, own->pairs[i].key, own->pairs[i].value);
    return status;
}

static const char *variable(char *const *environment, const char *name)
{
    size_t size = strlen(name);
    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
            return *environment + size + 1;
    return NULL;
}

static enum yolk_status take_conf(struct loader *loader, const char *conf)
{
    struct base_json *root;
    loader->where = "MC_TENT_CONF";
    enum yolk_status status = (enum yolk_status)text_json(loader->where, conf, &root);
    return status == YOLK_OK ? take_json(loader, root) : status;
}

enum yolk_status compat_engine_config(const struct compat_settings *own, bool tent,
                                      char *const *environment, struct base_config *config)
{
    static _Atomic bool told;
    const char *conf = tent ? variable(environment, "MC_TENT_CONF") : NULL;
    struct loader loader = {.config = config};
    enum yolk_status status = base_config_init(config, COMMAND_LIBRARY);
    if (status == YOLK_OK && conf != NULL && conf[0] != '\0') {
        status = take_conf(&loader, conf);
        loader.own_identity = true;
    }
    if (status == YOLK_OK)
        status = take_own(&loader, own);
    config->quiet = atomic_exchange(&told, true);
    if (!tent && !config->quiet && variable(environment, "MC_TENT_CONF") != NULL)
        log_warn("MC_TENT_CONF is not looked at: neither MC_USE_TENT nor MC_USE_TEV1 is set");
    if (status == YOLK_OK)
        status = base_config_environment(config, environment);
    if (status == YOLK_OK &&
        base_config_u64(config, SET_RPC_PORT_MIN) > base_config_u64(config, SET_RPC_PORT_MAX))
        status = base_fail(YOLK_ERR_CONFIG, 0,
                           "rpc_port_min is %llu, rpc_port_max %llu: a range does not end before "
                           "it begins",
                           (unsigned long long)base_config_u64(config, SET_RPC_PORT_MIN),
                           (unsigned long long)base_config_u64(config, SET_RPC_PORT_MAX));
    if (status == YOLK_OK &&
        strlen(base_config_string(config, SET_TRANSPORTS_OFF)) >= COMPAT_KEY_MAX)
        status = base_fail(YOLK_ERR_CONFIG, 0, "transports_off has more than %d bytes",
                           COMPAT_KEY_MAX - 1);
    enum base_log_level level;
    if (status == YOLK_OK && base_config_given(config, SET_LOG_LEVEL) &&
        base_log_parse_level(base_config_string(config, SET_LOG_LEVEL), &level))
        base_log_set_level(level);
    if (status == YOLK_OK)
        base_config_log(config);
    return status;
}

bool compat_engine_uses_tent(void)
{
    return getenv("MC_USE_TENT") != NULL || getenv("MC_USE_TEV1") != NULL;
}

/* ---- as options ---- */

static enum yolk_switch switch_of(const struct base_config *config, enum base_setting setting)
{
    if (!base_config_given(config, setting))
        return YOLK_SWITCH_DEFAULT;
    return base_config_bool(config, setting) ? YOLK_SWITCH_ON : YOLK_SWITCH_OFF;
}

static const char *text_of(const struct base_config *config, enum base_setting setting)
{
    const char *text = base_config_string(config, setting);
    return text[0] != '\0' ? text : NULL;
}

static void queue_options(const struct base_config *config, struct yolk_queue_options *queue)
{
    uint64_t tick_us = base_config_u64(config, SET_QUEUE_TICK);
    queue->enable = switch_of(config, SET_QUEUE);
    if (queue->enable != YOLK_SWITCH_ON)
        return; /* its limits are of no use, and the engine refuses what is */
    queue->owners_max = (uint32_t)base_config_u64(config, SET_QUEUE_OWNERS);
    queue->bytes_max = base_config_u64(config, SET_QUEUE_BYTES);
    queue->dispatch_owners_max = (uint32_t)base_config_u64(config, SET_QUEUE_DISPATCH_OWNERS);
    queue->dispatch_bytes_max = base_config_u64(config, SET_QUEUE_DISPATCH_BYTES);
    queue->staging_owners = (uint32_t)base_config_u64(config, SET_QUEUE_STAGING_OWNERS);
    queue->staging_bytes = base_config_u64(config, SET_QUEUE_STAGING_BYTES);
    queue->deadline_first = switch_of(config, SET_QUEUE_DEADLINES);
    queue->promotion_slack_ns = base_config_u64(config, SET_QUEUE_SLACK);
    queue->tick_ms = tick_us < 1000 ? 1 : tick_us / 1000;
}

void compat_engine_options(const struct base_config *config, char off[COMPAT_OFF_MAX],
                           struct yolk_engine_options *options)
{
    const char *listed = base_config_string(config, SET_TRANSPORTS_OFF);
    bool force = base_config_bool(config, SET_FORCE_TCP);
    snprintf(off, COMPAT_OFF_MAX, "%s%s%s", listed, force && listed[0] != '\0' ? "," : "",
             force ? "shm,nvlink,mnnvl,ucx,rdma" : "");
    yolk_engine_options_init(options);
    options->transports_off = off;
    options->plugin_paths = text_of(config, SET_PLUGIN_PATHS);
    options->policy_json = text_of(config, SET_POLICY);
    options->qos_json = text_of(config, SET_QOS);
    options->attempts_max = (uint32_t)base_config_u64(config, SET_MAX_FAILOVER) + 1;
    options->breaker_cooldown_ms = base_config_u64(config, SET_RETRY_DELAY);
    options->failover_on_poll = switch_of(config, SET_FAILOVER_ON_POLL);
    options->merge = switch_of(config, SET_MERGE);
    options->strict = switch_of(config, SET_STRICT);
    options->slice_bytes_max = base_config_u64(config, SET_SLICE_BYTES);
    if (base_config_given(config, SET_STAGING_BYTES))
        options->staging_bytes = base_config_u64(config, SET_STAGING_BYTES);
    options->drain_limit_ms = base_config_u64(config, SET_DRAIN_LIMIT);
    options->transport.workers_max = (uint32_t)base_config_u64(config, SET_TCP_WORKERS);
    options->transport.connections_max = (uint32_t)base_config_u64(config, SET_TCP_CONNECTIONS);
    options->transport.gds_enable = base_config_bool(config, SET_GDS_ENABLE);
    options->transport.gds_batch_depth = (uint32_t)base_config_u64(config, SET_GDS_DEPTH);
    options->transport.gds_slice_bytes = base_config_u64(config, SET_GDS_SLICE);
    queue_options(config, &options->queue);
}

bool compat_engine_figures(const struct base_config *config, char *out, size_t size)
{
    bool asked = base_config_given(config, SET_FIGURES)
                     ? base_config_bool(config, SET_FIGURES)
                     : base_config_given(config, SET_FIGURES_PORT);
    const char *host = base_config_string(config, SET_FIGURES_HOST);
    bool bare_v6 = host[0] != '[' && strchr(host, ':') != NULL;
    snprintf(out, size, bare_v6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)base_config_u64(config, SET_FIGURES_PORT));
    return asked;
}

enum yolk_status compat_engine_topology(const struct base_config *config, const char *devices,
                                        bool matrix, char **text)
{
    struct base_buf file;
    const char *path = base_config_string(config, SET_TOPOLOGY_FILE);
    struct yolk_topology_options options = {
        .struct_size = sizeof(options),
        .rdma_whitelist =
            devices != NULL ? devices : base_config_string(config, SET_RDMA_WHITELIST),
        .rdma_blacklist = base_config_string(config, SET_RDMA_BLACKLIST),
        .json = text_of(config, SET_TOPOLOGY_MATRIX),
        .matrix = matrix};
    enum yolk_status status = YOLK_OK;
    base_buf_init(&file, BASE_JSON_SIZE_MAX);
    if (options.json == NULL && path[0] != '\0') {
        status = (enum yolk_status)text_file_read("topology/custom_json_path", path, &file);
        if (status == YOLK_OK)
            status = base_buf_append(&file, "", 1);
        options.json = (const char *)file.data;
    }
    if (status == YOLK_OK)
        status = yolk_topology(&options, text);
    base_buf_free(&file);
    return status;
}
