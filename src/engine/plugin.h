/* SPDX-License-Identifier: Apache-2.0 */
/* Transports out of shared libraries. */
#ifndef ENGINE_PLUGIN_H
#define ENGINE_PLUGIN_H

#include <stddef.h>

#include <yolk/plugin.h>

enum { ENGINE_PLUGINS_MAX = 8 };

struct engine_plugins {
    void *libraries[ENGINE_PLUGINS_MAX];
    const struct yolk_transport_ops *tables[ENGINE_PLUGINS_MAX]; /* as the library gave it */
    size_t count;
};

/* What all plug-ins are given. */
const struct yolk_plugin_host *engine_plugin_host(void);

/* Absolute paths, separated by ':' or a line's end; NULL or "": none. On failure nothing is loaded
 * and the text names the path and what is wrong with it. */
YOLK_MUST_USE enum yolk_status engine_plugins_load(const char *paths, struct engine_plugins *out);
void engine_plugins_unload(struct engine_plugins *plugins);

#endif
