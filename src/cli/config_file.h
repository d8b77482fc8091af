/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: YAML (.yaml, .yml) or JSON (.json), one level of "key: value". */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include "base/config.h"
#include "yolk/status.h"

#define CONFIG_FILE_MAX (1u << 20)

/* Feeds every pair of the file to base_config_file_pair. CONFIG with a sentence that names file and
 * line. */
YOLK_MUST_USE int config_file_load(struct base_config *config, const char *path);

#endif
