/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings. One typed table (settings.c) is the only source of their names, types, units, defaults,
 * flags, environment variables, file keys and documentation. Precedence: argument > environment >
 * file > default, in whatever order they are read. Whatever is unknown or does not parse is an
 * error that names it; only a MOONCAKE_* or MC_* variable that means nothing here is a warning.
 *
 * Use:  base_config_init(&config, COMMAND_NODE);
 *       if (base_config_args(&config, argc - 2, argv + 2) || base_config_environment(&config,
 * environ)
 *           || (file && config_file_load(&config, file)) || base_config_check(&config)) fail;
 *       base_config_u64(&config, SET_SEGMENT_SIZE)
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "yolk/status.h"

/* The commands of the program, as bits: a setting says which of them take it. */
enum base_command {
    COMMAND_MASTER = 1 << 0,
    COMMAND_NODE = 1 << 1,
    COMMAND_CLIENT = 1 << 2, /* put get exist ls rm stat */
    COMMAND_REPLAY = 1 << 3,
    COMMAND_DEMO = 1 << 4,
    COMMAND_SIM = 1 << 5,
    COMMAND_DOCTOR = 1 << 6,
    COMMAND_STAT = 1 << 7, /* stat is COMMAND_CLIENT | COMMAND_STAT; the bits below likewise */
    COMMAND_LS = 1 << 8,
    COMMAND_RM = 1 << 9,
    COMMAND_ALL = (1 << 10) - 1
};

enum base_setting {
    /* every command */
    SET_CONFIG,    /* --config FILE */
    SET_HELP,      /* --help */
    SET_LOG_LEVEL, /* --log-level error|warn|info|debug */
    SET_LOG_JSON,  /* --log-json */
    /* who and where */
    SET_MASTER,      /* --master HOST:PORT | embedded */
    SET_HOST,        /* --host ADDRESS under which others reach this node */
    SET_NAME,        /* --name */
    SET_SECRET_FILE, /* --secret-file */
    SET_TRANSPORT,   /* --transport auto|shm|tcp */
    /* master */
    SET_LISTEN,         /* --listen HOST:PORT */
    SET_METRICS_LISTEN, /* --metrics-listen HOST:PORT, "" = off */
    SET_LEASE_TTL,      /* --lease-ttl */
    SET_GUARD_TTL,      /* --guard-ttl */
    SET_PUT_TIMEOUT,    /* --put-timeout */
    SET_HEARTBEAT,      /* --heartbeat */
    SET_SESSION_TTL,    /* --session-ttl */
    SET_EVICTION_HIGH,  /* --eviction-high-watermark-ratio */
    SET_EVICTION_RATIO, /* --eviction-ratio */
    SET_MAX_OBJECTS,    /* --max-objects */
    SET_MAX_SESSIONS,   /* --max-sessions */
    /* node */
    SET_SEGMENT_SIZE, /* --segment-size */
    SET_DRAIN_GRACE,  /* --drain-grace */
    /* client */
    SET_PUT_WAIT,    /* --put-wait */
    SET_TIMEOUT,     /* --timeout */
    SET_REPLICA_NUM, /* --replica-num */
    SET_FORCE,       /* --force */
    SET_RECOUNT,     /* --recount */
    SET_JSON,        /* --json FILE (replay, demo) */
    SET_LIMIT,       /* --limit (ls) */
    SET_ALL,         /* --all (rm) */
    /* replay and demo */
    SET_TRACE,        /* --trace FILE */
    SET_SYNTHETIC,    /* --synthetic */
    SET_BLOCK_SIZE,   /* --block-size */
    SET_NODES,        /* --nodes */
    SET_DRAM,         /* --dram: total over nodes */
    SET_CLIENTS,      /* --clients */
    SET_EMBEDDED,     /* --embedded */
    SET_PROCESSES,    /* --processes */
    SET_RESPAWN,      /* --respawn */
    SET_REQUESTS,     /* --requests */
    SET_UNORDERED,    /* --unordered */
    SET_VERIFY,       /* --verify (on unless --verify=false) */
    SET_SEED,         /* --seed */
    SET_HOLD,         /* --hold: keep serving after the report until a signal */
    SET_VERBOSE,      /* --verbose */
    SET_REPORT_EVERY, /* --report-every N requests */
    /* sim */
    SET_SEEDS,    /* --seeds A..B */
    SET_STEPS,    /* --steps */
    SET_MUTATION, /* --mutation NAME, in yolk-sim */
    /* doctor */
    SET_PATH, /* --path: a directory to try O_DIRECT on */
    SET_COUNT
};

enum base_config_type {
    CONFIG_STRING,
    CONFIG_BOOL,
    CONFIG_U64,
    CONFIG_SIZE,     /* bytes, with units */
    CONFIG_DURATION, /* milliseconds, with units */
    CONFIG_RATIO     /* 0 to 1 */
};

enum base_config_origin { ORIGIN_DEFAULT = 0, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_ARGUMENT };

/* One row of the table; see settings.c. */
struct base_setting_info {
    enum base_setting id;
    const char *flag; /* without dashes; the file key is the same with '_' for '-' */
    char letter;      /* short flag or 0 */
    enum base_config_type type;
    const char *fallback;          /* the default as text; NULL: the empty string */
    uint64_t minimum, maximum;     /* of U64, SIZE and DURATION; maximum 0: no bound */
    const char *environment;       /* YOLK_..., or NULL */
    const char *alias_environment; /* an upstream name (MOONCAKE_*, MC_*), or NULL */
    const char *alias_flag;        /* an upstream flag or file key, or NULL */
    uint64_t alias_scale;   /* a plain number under the upstream name is in this unit; 0: 1 */
    const char *choices;    /* "a|b|c" or NULL */
    unsigned commands;      /* bits of enum base_command */
    const char *value_name; /* shown in help, for example "SIZE" */
    const char *doc;        /* one sentence */
};

const struct base_setting_info *base_setting_info(enum base_setting setting);

struct base_config_value {
    enum base_config_origin origin;
    char *text; /* as given; NULL while it is the default */
    uint64_t number;
    double ratio;
    bool boolean;
};

#define CONFIG_MAX_POSITIONAL 4096

struct base_config {
    unsigned commands;
    struct base_config_value values[SET_COUNT];
    const char **positional; /* arguments that are no flags, borrowed from argv */
    size_t positional_count;
};

/* All defaults. `commands`: whose settings count as known on the command line. */
YOLK_MUST_USE int base_config_init(struct base_config *config, unsigned commands);
void base_config_free(struct base_config *config);

/*
 * --flag VALUE, --flag=VALUE, --bool, --bool=false, --no-bool, -x VALUE; '_' counts as '-'. "--"
 * ends the flags. YOLK_ERR_CONFIG with a sentence in yolk_last_error(). argv must outlive the
 * config.
 */
YOLK_MUST_USE int base_config_args(struct base_config *config, int argc, char *const *argv);
/* Takes known YOLK_* variables and upstream aliases; warns once, in the log, of unknown MOONCAKE_*
 * and MC_*. */
YOLK_MUST_USE int base_config_environment(struct base_config *config, char *const *environment);
/* One pair of a file. `where` is for messages, for example "node.yaml:3". Settings of other
 * commands are taken silently, so that one file can serve all. */
YOLK_MUST_USE int base_config_file_pair(struct base_config *config, const char *key,
                                        const char *value, const char *where);
/* From a program: counts as an argument. */
YOLK_MUST_USE int base_config_set(struct base_config *config, enum base_setting setting,
                                  const char *value);
/* Rules between settings (a lease below the session's life, and so on). */
YOLK_MUST_USE int base_config_check(const struct base_config *config);

/* "" when not set. */
const char *base_config_string(const struct base_config *config, enum base_setting setting);
uint64_t base_config_u64(const struct base_config *config, enum base_setting setting);
bool base_config_bool(const struct base_config *config, enum base_setting setting);
double base_config_ratio(const struct base_config *config, enum base_setting setting);
/* Given by argument, environment or file. */
bool base_config_given(const struct base_config *config, enum base_setting setting);
const char *base_config_origin_name(enum base_config_origin origin);

/* Text for --help of these commands: one line a setting. */
YOLK_MUST_USE int base_config_help(unsigned commands, struct base_buf *text);
/* The whole table as a Markdown document. */
YOLK_MUST_USE int base_config_markdown(struct base_buf *text);

#endif
