/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine of upstream's interfaces is configured with: the program's own settings, a
 * configuration of TENT's in JSON, and the environment, in the table of settings. */
#ifndef COMPAT_ENGINE_CONFIG_H
#define COMPAT_ENGINE_CONFIG_H

#include <stdbool.h>

#include <yolk/engine.h>

#include "base/config.h"
#include "base/json.h"

enum {
    COMPAT_KEY_MAX = BASE_JSON_PATH_MAX,
    COMPAT_OFF_MAX = COMPAT_KEY_MAX + 64,
    COMPAT_SETTINGS_MAX = 1024
};

/* A program's own. */
struct compat_setting {
    char *key; /* "a/b/c" */
    char *value;
};
struct compat_settings {
    char *file; /* with a configuration in JSON, or NULL */
    struct compat_setting *pairs;
    size_t count;
};
/* Takes the place of one of the same key. INVALID, LIMIT, NO_MEMORY. */
YOLK_MUST_USE enum yolk_status compat_settings_set(struct compat_settings *settings,
                                                   const char *key, const char *value);
void compat_settings_free(struct compat_settings *settings);

/* Environment before MC_TENT_CONF (where `tent`) before pairs before the file. MC_TENT_CONF is a
 * file's path or the JSON itself, and takes the place of pairs and file but for the five keys that
 * say who this process is. What has no effect is said in the log. CONFIG names the key, where it
 * stood, and the rule. To be freed by base_config_free in either case. */
YOLK_MUST_USE enum yolk_status compat_engine_config(const struct compat_settings *own, bool tent,
                                                    char *const *environment,
                                                    struct base_config *config);
/* Whether the environment asks for TENT's way of configuration in older programs. */
bool compat_engine_uses_tent(void);
/* The engine's part; texts are borrowed of config and `off`. */
void compat_engine_options(const struct base_config *config, char off[COMPAT_OFF_MAX],
                           struct yolk_engine_options *options);
/* True: figures are to be served over HTTP, at "host:port". */
bool compat_engine_figures(const struct base_config *config, char *out, size_t size);

/* What yolk_topology says under these settings. devices: in place of the whitelist, if not NULL. */
YOLK_MUST_USE enum yolk_status compat_engine_topology(const struct base_config *config,
                                                      const char *devices, bool matrix,
                                                      char **text);

#endif
