/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: YAML (.yaml, .yml) or JSON (.json), one level of "key: value". */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include "base/config.h"
#include "yolk/status.h"

#define CONFIG_FILE_MAX (1u << 20)

/* `where` is for messages, for example "node.yaml:3". Not OK ends the reading with that. */
typedef int (*config_file_pair)(void *self, const char *key, const char *value, const char *where);

/* Hands every pair of the file to `pair`. CONFIG with a sentence that names file and line. */
YOLK_MUST_USE int config_file_read(const char *path, config_file_pair pair, void *self);
/* The same to base_config_file_pair. */
YOLK_MUST_USE int config_file_load(struct base_config *config, const char *path);

#endif
