/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share: settings, messages, exit codes. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "yolk/store.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name;
    const char *arguments; /* for example "KEY [FILE]"; "": it takes none */
    const char *summary;
    unsigned commands; /* bits of enum base_command */
};

/*
 * Reads arguments (without program and command), environment and configuration file. Returns true
 * to go on. *code is the exit code: CLI_OK then, and when help was asked for; else something is
 * wrong and has been said. The config must be freed in the first case only.
 */
bool cli_parse(const struct cli_command *command, int argc, char **argv, struct base_config *config,
               int *code);
/* "yolk NAME: ..." (under upstream's names just "NAME: ...") on standard error; returns CLI_USAGE.
 */
int cli_usage_error(const struct cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* log-level and log-json; cli_parse does it. */
void cli_apply_log(const struct base_config *config);
/* The thread's last error; without one what the status means. */
const char *cli_reason(int status);
/* The same as cli_usage_error with cli_reason() behind it; returns CLI_FAILED. */
int cli_failure(const struct cli_command *command, enum yolk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* put-wait and timeout. Whoever gives only one of the two means the other one to fit. */
void cli_waits(const struct base_config *config, uint64_t *put_wait_ms, uint64_t *timeout_ms);
/* Opens a store as the settings say. With segment_size 0: a client; else a node, with its disk. */
enum yolk_status cli_store_open(const struct cli_command *command, const struct base_config *config,
                                uint64_t segment_size, struct yolk_store **out);
/* The same with options; whoever waits for a master longer than a moment is told so. */
enum yolk_status cli_store_open_with(const struct cli_command *command,
                                     const struct yolk_store_options *options,
                                     struct yolk_store **out);
/* Bytes of memory of this machine: more could be promised, but never filled. */
uint64_t cli_machine_memory(void);
/* Prints bytes of a key with everything that is not printable as \xNN. */
void cli_print_key(const void *key, size_t size);

int cli_master(int argc, char **argv);
int cli_node(int argc, char **argv);
/* The same with settings that were read already; they free the config. */
int cli_master_run(const struct cli_command *command, struct base_config *config);
int cli_node_run(const struct cli_command *command, struct base_config *config);
int cli_put(int argc, char **argv);
int cli_get(int argc, char **argv);
int cli_exist(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_stat(int argc, char **argv);
int cli_sim(int argc, char **argv);
int cli_fsck(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_config(int argc, char **argv);

#endif
