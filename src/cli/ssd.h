/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of the disk's files, as the flags --ssd and --ssd-path name it. */
#ifndef YOLK_CLI_SSD_H
#define YOLK_CLI_SSD_H

#include <stddef.h>

#include <yolk/status.h>

enum { CLI_SSD_PATH_MAX = 4096 };

/* Makes the folder if only it is missing; `out` is the store's ssd_path in it. directory "": the
 * default one, which nobody else may own. The text of an error names the flag and the rule. */
YOLK_MUST_USE int cli_ssd_file(const char *directory, char *out, size_t size);

/* A new folder on a disk (not in memory, as /tmp may be), and its end with all files in it. */
YOLK_MUST_USE int cli_ssd_temporary(char *out, size_t size);
void cli_ssd_remove(const char *directory);

#endif
