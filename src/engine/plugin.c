/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plugin.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/internal.h"
#include "platform/library.h"

/* ---- what a plug-in may call ---- */

static enum yolk_status host_fail(enum yolk_status status, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void host_log(enum yolk_log_level level, const char *transport, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum yolk_status host_fail(enum yolk_status status, int errnum, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return base_fail(status, errnum, "%s", size < 0 ? "" : text);
}

static void host_log(enum yolk_log_level level, const char *transport, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if ((int)level > (int)base_log_level())
        return;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    base_log((enum base_log_level)level, transport, "%s", size < 0 ? "" : text);
}

const struct yolk_plugin_host *engine_plugin_host(void)
{
    static const struct yolk_plugin_host host = {
        .size = sizeof(host), .version = YOLK_VERSION, .fail = host_fail, .log = host_log};
    return &host;
}

/* ---- loading ---- */

static enum yolk_status check_table(const char *path, const struct yolk_transport_ops *table)
{
    struct yolk_transport_ops adopted;
    if (table == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: %s() returned no table", path,
                         YOLK_PLUGIN_SYMBOL);
    enum yolk_status status = engine_transport_adopt(table, &adopted);
    return status == YOLK_OK ? status : (enum yolk_status)base_fail_context(status, "%s", path);
}

static enum yolk_status load_one(const char *path, struct engine_plugins *plugins)
{
    const struct yolk_transport_ops *(*entry)(void) = NULL;
    const struct yolk_transport_ops *table = NULL;
    void *library;
    if (plugins->count == ENGINE_PLUGINS_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: an engine takes at most %d", path,
                         ENGINE_PLUGINS_MAX);
    enum yolk_status status = library_open(path, &library);
    if (status != YOLK_OK)
        return status;
    void *symbol = library_symbol(library, YOLK_PLUGIN_SYMBOL);
    if (symbol == NULL) {
        status =
            base_fail(YOLK_ERR_CONFIG, 0, "%s: does not export %s(), which gives a plug-in's table",
                      path, YOLK_PLUGIN_SYMBOL);
    } else {
        memcpy(&entry, &symbol, sizeof(entry));
        table = entry();
        status = check_table(path, table);
    }
    for (size_t i = 0; status == YOLK_OK && i < plugins->count; i++)
        if (strcmp(plugins->tables[i]->name, table->name) == 0)
            status = base_fail(YOLK_ERR_CONFIG, 0,
                               "%s: its transport is called %s, as that of another plug-in", path,
                               table->name);
    if (status != YOLK_OK) {
        library_close(library);
        return status;
    }
    plugins->libraries[plugins->count] = library;
    plugins->tables[plugins->count++] = table;
    return YOLK_OK;
}

enum yolk_status engine_plugins_load(const char *paths, struct engine_plugins *out)
{
    char path[PATH_MAX + 1];
    memset(out, 0, sizeof(*out));
    while (paths != NULL && *paths != '\0') {
        size_t size = strcspn(paths, ":\n");
        enum yolk_status status = YOLK_OK;
        if (size >= sizeof(path)) {
            status = base_fail(YOLK_ERR_CONFIG, 0, "a path of %zu bytes is too long", size);
        } else if (size > 0) {
            snprintf(path, sizeof(path), "%.*s", (int)size, paths);
            status = load_one(path, out);
        }
        if (status != YOLK_OK) {
            engine_plugins_unload(out);
            return base_fail_context(status, "transport plug-in");
        }
        paths += size + (paths[size] != '\0');
    }
    return YOLK_OK;
}

void engine_plugins_unload(struct engine_plugins *plugins)
{
    while (plugins->count > 0)
        library_close(plugins->libraries[--plugins->count]);
}
