/* SPDX-License-Identifier: Apache-2.0 */
/* The program under upstream's names: their flags and defaults in front of `master` and `node`. */
#ifndef CLI_UPSTREAM_H
#define CLI_UPSTREAM_H

#include "base/buf.h"
#include "cli/common.h"
#include "cli/upstream_flags.h"

int cli_mooncake_master(int argc, char **argv);
int cli_mooncake_client(int argc, char **argv);

/*
 * Reads a command line of upstream's program (without its name) into our settings. True to go on;
 * else *code is the exit code and what there is to say has been said. The config must be freed in
 * the first case only.
 */
bool upstream_parse(const struct cli_command *command, enum upstream_program program, int argc,
                    char **argv, struct base_config *config, int *code);
/* docs/programs.md */
YOLK_MUST_USE int upstream_markdown(struct base_buf *text);

#endif
