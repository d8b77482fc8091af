/* SPDX-License-Identifier: Apache-2.0 */
/* The program: one table of commands. */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/common.h"
#include "cli/replay.h"
#include "cli/upstream.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *summary;               /* NULL: not for people */
};

static const struct command COMMANDS[] = {
    {"master", cli_master, "runs the master: it knows which key is where"},
    {"node", cli_node, "gives memory of this machine to the store"},
    {"put", cli_put, "stores a file or standard input under a key"},
    {"get", cli_get, "writes a key's value to a file or standard output"},
    {"exist", cli_exist, "says of each key whether it is there"},
    {"ls", cli_ls, "lists the objects"},
    {"rm", cli_rm, "removes objects"},
    {"stat", cli_stat, "shows the figures; --recount checks them"},
    {"demo", cli_demo, "a small store and its main job, in one process"},
    {"replay", cli_replay, "replays a trace of requests against a store"},
    {"sim", cli_sim, "simulates a cluster under faults, by seed"},
    {"bench", cli_bench, "measures parts of it against the bare machine"},
    {"fsck", cli_fsck, "checks an extent file of the SSD tier, and changes nothing"},
    {"doctor", cli_doctor, "what of this machine is used, and why not the rest"},
    {"config", cli_config, "prints all settings, or upstream's flags, as a Markdown table"},
    {"replay-worker", cli_replay_worker, NULL},
    {"mooncake_master", cli_mooncake_master, NULL}, /* also as the program's name */
    {"mooncake_client", cli_mooncake_client, NULL},
};
#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

int cli_config(int argc, char **argv)
{
    static const struct cli_command command = {
        "config", "[programs]",
        "Prints all settings of all commands as a Markdown table; with \"programs\" what "
        "mooncake_master\nand mooncake_client take and serve.",
        COMMAND_CONFIG};
    struct base_config config;
    struct base_buf text;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    const char *what = config.positional_count > 0 ? config.positional[0] : NULL;
    bool programs = what && strcmp(what, "programs") == 0;
    bool wrong = config.positional_count > 1 || (what && !programs);
    base_config_free(&config);
    if (wrong)
        return cli_usage_error(&command, "\"%s\": programs, or nothing", what);
    base_buf_init(&text, 1 << 20);
    int status = programs ? upstream_markdown(&text) : base_config_markdown(&text);
    if (status == YOLK_OK)
        fwrite(text.data, 1, text.size, stdout);
    base_buf_free(&text);
    return status == YOLK_OK ? CLI_OK : CLI_FAILED;
}

static void print_usage(FILE *out)
{
    fprintf(out, "yolk COMMAND [FLAGS] [ARGUMENTS]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (COMMANDS[i].summary)
            fprintf(out, "  %-8s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fprintf(out,
            "\nyolk help COMMAND shows its flags. Exit status: 0 done, 1 failed, 2 wrong usage.\n");
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

static int unknown(const char *name)
{
    fprintf(stderr, "yolk: \"%s\" is no command; yolk --help lists them\n", name);
    return CLI_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stdout);
        return CLI_OK;
    }
    const struct command *command = find(argv[1]);
    if (!command)
        return unknown(argv[1]);
    char flag[] = "--help";
    char *arguments[] = {argv[1], flag, NULL};
    return command->run(2, arguments);
}

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const struct command *self = argc > 0 ? find(slash ? slash + 1 : argv[0]) : NULL;
    if (self && (self->run == cli_mooncake_master || self->run == cli_mooncake_client))
        return self->run(argc, argv);
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("yolk %s\n", YOLK_VERSION);
        return CLI_OK;
    }
    const struct command *command = find(name);
    return command ? command->run(argc - 1, argv + 1) : unknown(name);
}
