/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings. One typed table (settings.c) is the only source of their names, types, units, defaults,
 * flags, environment variables, file keys and documentation. Precedence: argument > environment >
 * file > default, in whatever order they are read. Whatever is unknown or does not parse is an
 * error that names it; only a MOONCAKE_* or MC_* variable that means nothing here is a warning.
 * What the environment or a file says of settings that the command does not take is not looked at,
 * so that one environment and one file serve all commands.
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
    COMMAND_CONFIG = 1 << 10,
    COMMAND_BENCH = 1 << 11,
    COMMAND_FSCK = 1 << 12,
    COMMAND_ROWS = 1 << 13,      /* bench without those that have flags of their own */
    COMMAND_TRANSFERS = 1 << 14, /* bench engine */
    COMMAND_GPU = 1 << 15,       /* bench gpu and bench gds */
    COMMAND_ALL = (1 << 16) - 1,
    COMMAND_MUTANTS = 1 << 16, /* yolk-sim, a program of its own */
    COMMAND_LIBRARY = 1 << 17  /* no command: the engine's interfaces in C and Python */
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
    SET_LISTEN,             /* --listen HOST:PORT */
    SET_LISTEN_HOST,        /* --host */
    SET_LISTEN_PORT,        /* --port */
    SET_METRICS_LISTEN,     /* --metrics-listen HOST:PORT, "" = off */
    SET_METRICS_PORT,       /* --admin-port */
    SET_METADATA_LISTEN,    /* --metadata-listen HOST:PORT, "" = off */
    SET_MAX_CONNECTIONS,    /* --max-connections */
    SET_HANDSHAKE_TIMEOUT,  /* --handshake-timeout */
    SET_SPIN,               /* --spin MICROSECONDS */
    SET_LEASE_TTL,          /* --lease-ttl */
    SET_GUARD_TTL,          /* --guard-ttl */
    SET_PUT_TIMEOUT,        /* --put-timeout */
    SET_HEARTBEAT,          /* --heartbeat */
    SET_SESSION_TTL,        /* --session-ttl */
    SET_EVICTION_HIGH,      /* --eviction-high-watermark-ratio */
    SET_EVICTION_RATIO,     /* --eviction-ratio */
    SET_GDS_EVICTION_HIGH,  /* --gds-eviction-high-watermark-ratio */
    SET_GDS_EVICTION_RATIO, /* --gds-eviction-ratio */
    SET_EVICTION_POLICY,    /* --eviction-policy */
    SET_OFFLOAD_WATERMARK,  /* --ssd-offload-watermark-ratio */
    SET_OFFLOAD_WAIT,       /* --ssd-offload-wait */
    SET_PROMOTE,            /* --ssd-promote */
    SET_MAX_OBJECTS,        /* --max-objects */
    SET_MAX_SESSIONS,       /* --max-sessions */
    SET_TENANTS,            /* --tenants NAME=SIZE,... */
    SET_HARD_PIN_RATIO,     /* --hard-pin-ratio */
    SET_PLACEMENT,          /* --placement capacity|numa */
    SET_SOFT_PIN_TTL,       /* --soft-pin-ttl */
    SET_SOFT_PIN_TTL_MAX,   /* --soft-pin-ttl-max */
    /* node */
    SET_SEGMENT_SIZE,   /* --segment-size, --dram */
    SET_HUGE_PAGES,     /* --huge-pages */
    SET_EGM,            /* --enable-egm-store-pool */
    SET_EGM_NODES,      /* --egm-numa-nodes auto|LIST */
    SET_EGM_HANDLES,    /* --egm-handle-type */
    SET_EGM_CHUNK,      /* --max-mr-size */
    SET_DRAIN_GRACE,    /* --drain-grace */
    SET_SSD,            /* --ssd */
    SET_SSD_PATH,       /* --ssd-path DIR */
    SET_SSD_SYNC,       /* --ssd-sync */
    SET_CLIENTS_LISTEN, /* --clients-listen HOST:PORT, "" = off */
    SET_HTTP_LISTEN,    /* --http-listen HOST:PORT, "" = off */
    /* client */
    SET_TENANT,      /* --tenant */
    SET_PUT_WAIT,    /* --put-wait */
    SET_TIMEOUT,     /* --timeout */
    SET_REPLICA_NUM, /* --replica-num */
    SET_FORCE,       /* --force */
    SET_RECOUNT,     /* --recount */
    SET_LIMIT,       /* --limit (ls) */
    SET_ALL,         /* --all (rm) */
    /* replay: from here on settings_tools.c */
    SET_TOOLS_FIRST,
    SET_TRACE = SET_TOOLS_FIRST, /* --trace FILE */
    SET_SYNTHETIC,               /* --synthetic */
    SET_BLOCK_SIZE,              /* --block-size */
    SET_NODES,                   /* --nodes */
    SET_DRAM,                    /* --dram: total over nodes */
    SET_REPLAY_SSD,              /* --ssd: total over nodes */
    SET_REPLAY_GDS,              /* --gds: total over those that write */
    SET_GDS_PATH,                /* --gds-path FILE */
    SET_GPU,                     /* --gpu N */
    SET_CLIENTS,                 /* --clients */
    SET_EMBEDDED,                /* --embedded */
    SET_PROCESSES,               /* --processes */
    SET_RESPAWN,                 /* --respawn */
    SET_REQUESTS,                /* --requests */
    SET_UNORDERED,               /* --unordered */
    SET_VERIFY,                  /* --verify: accepted for clarity */
    SET_SEED,                    /* --seed */
    SET_HOLD,                    /* --hold: keep the processes after the report until input ends */
    SET_REPORT_EVERY,            /* --report-every N requests */
    SET_JSON,                    /* --json FILE */
    SET_MASTER_FLAG,             /* --master-flag FLAG, repeated */
    SET_NODE_FLAG,               /* --node-flag FLAG, repeated */
    /* sim */
    SET_SEEDS,    /* --seeds A..B */
    SET_STEPS,    /* --steps */
    SET_PEERS,    /* --peers */
    SET_MUTATION, /* --mutation NAME, in yolk-sim */
    /* doctor */
    SET_PATH,        /* --path: a directory to try O_DIRECT on */
    SET_DOCTOR_JSON, /* --json */
    /* bench */
    SET_CAPACITY, /* --capacity PCT[,PCT...] */
    SET_QUICK,    /* --quick */
    SET_GATE,     /* --gate */
    SET_CHECK,    /* --check (bench gpu, bench gds) */
    /* bench engine, with the names of Mooncake's tebench */
    SET_XPORT_TYPE,        /* --xport-type */
    SET_TARGET_SEG_NAME,   /* --target-seg-name */
    SET_ROLE,              /* --role both|target */
    SET_OP_TYPE,           /* --op-type read|write|mix */
    SET_SEG_TYPE,          /* --seg-type DRAM|VRAM */
    SET_TOTAL_BUFFER_SIZE, /* --total-buffer-size */
    SET_START_BLOCK_SIZE,  /* --start-block-size */
    SET_MAX_BLOCK_SIZE,    /* --max-block-size */
    SET_START_BATCH_SIZE,  /* --start-batch-size */
    SET_MAX_BATCH_SIZE,    /* --max-batch-size */
    SET_START_NUM_THREADS, /* --start-num-threads */
    SET_MAX_NUM_THREADS,   /* --max-num-threads */
    SET_DURATION,          /* --duration */
    SET_OFFSETS,           /* --offsets fixed|random */
    SET_CHECK_CONSISTENCY, /* --check-consistency */
    SET_BENCH_HOST,        /* --host */
    /* fsck */
    SET_FSCK_DATA, /* --data */
    /* the engine's interfaces: settings_engine.c. No flags; the names are keys of TENT's */
    SET_ENGINE_FIRST,
    SET_METADATA_TYPE = SET_ENGINE_FIRST,
    SET_METADATA_SERVERS,
    SET_SEGMENT_NAME,
    SET_RPC_HOST,
    SET_RPC_PORT,
    SET_RPC_PORT_MIN,
    SET_RPC_PORT_MAX,
    SET_RPC_LISTEN,
    SET_REDIS_USERNAME,
    SET_REDIS_PASSWORD,
    SET_REDIS_DATABASE,
    SET_TRANSPORTS_OFF,
    SET_FORCE_TCP,
    SET_PLUGIN_PATHS,
    SET_POLICY,
    SET_QOS,
    SET_MAX_FAILOVER,
    SET_FAILOVER_ON_POLL,
    SET_RETRY_DELAY,
    SET_STRICT,
    SET_MERGE,
    SET_SLICE_BYTES,
    SET_STAGING_BYTES,
    SET_DRAIN_LIMIT,
    SET_TCP_WORKERS,
    SET_TCP_CONNECTIONS,
    SET_GDS_ENABLE,
    SET_GDS_DEPTH,
    SET_GDS_SLICE,
    SET_QUEUE,
    SET_QUEUE_OWNERS,
    SET_QUEUE_BYTES,
    SET_QUEUE_STAGING_OWNERS,
    SET_QUEUE_STAGING_BYTES,
    SET_QUEUE_DISPATCH_OWNERS,
    SET_QUEUE_DISPATCH_BYTES,
    SET_QUEUE_DEADLINES,
    SET_QUEUE_SLACK,
    SET_QUEUE_TICK,
    SET_RDMA_WHITELIST,
    SET_RDMA_BLACKLIST,
    SET_TOPOLOGY_FILE,
    SET_TOPOLOGY_MATRIX,
    SET_FIGURES,
    SET_FIGURES_HOST,
    SET_FIGURES_PORT,
    SET_COUNT
};

enum base_config_type {
    CONFIG_STRING,
    CONFIG_BOOL,
    CONFIG_U64,
    CONFIG_SIZE,     /* bytes, with units */
    CONFIG_DURATION, /* milliseconds, with units */
    CONFIG_RATIO,    /* 0 to 1 */
    CONFIG_JSON      /* an array or an object, as text; "": none */
};

enum base_config_origin { ORIGIN_DEFAULT = 0, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_ARGUMENT };

/* One row of the table; see settings.c. Two rows may share a flag if no command takes both. */
struct base_setting_info {
    enum base_setting id;
    const char *flag; /* without dashes; the file key is the same with '_' for '-', the environment
                         variable YOLK_ and the same in capitals */
    char letter;      /* short flag or 0 */
    enum base_config_type type;
    const char *fallback;          /* the default as text; NULL: the empty string */
    uint64_t minimum, maximum;     /* of U64, SIZE and DURATION; maximum 0: no bound */
    bool argument_only;            /* neither in the environment nor in a file */
    bool repeats;                  /* values add up, one a line */
    bool never_empty;              /* a text that means nothing without letters */
    bool hidden;                   /* a secret: what it is, is never shown */
    bool list;                     /* "a,b"; in JSON an array too */
    const char *alias_environment; /* upstream names (MOONCAKE_*, MC_*), "A|B", or NULL */
    const char *alias_flag;        /* other names of flag and file key, "a|b", or NULL */
    uint64_t alias_scale;          /* a plain number under another name is in this unit; 0: 1 */
    const char *choices;           /* "a|b|c" or NULL */
    bool any_case;                 /* of the choices */
    unsigned commands; /* bits of enum base_command; of the engine's rows COMMAND_LIBRARY alone */
    const char *value_name; /* shown in help, for example "SIZE" */
    const char *doc;        /* one sentence */
};

#define SETTING_VARIABLE_MAX 64

/* Names of the engine's upstream that are no settings. */
struct base_setting_ignored {
    const char *key;         /* in its configuration, with '-' for '_', may end in '*'; or NULL */
    const char *environment; /* "A|B", each may end in '*'; or NULL */
    const char *why;         /* it has no effect */
    bool acts;               /* why says what it does: it is looked at elsewhere */
};
/* The rows in order; NULL: no more. */
const struct base_setting_ignored *base_setting_ignored_at(size_t index);
/* The row of this name, of a variable or a key; NULL: none. */
const struct base_setting_ignored *base_setting_ignored(const char *name, size_t size,
                                                        bool variable);

const struct base_setting_info *base_setting_info(enum base_setting setting);
/* Of the tools' and of the engine's rows; base_setting_info is for all. */
const struct base_setting_info *base_setting_tools_info(enum base_setting setting);
const struct base_setting_info *base_setting_engine_info(enum base_setting setting);
/* The default, never NULL. */
const char *base_setting_fallback(const struct base_setting_info *info);
/* The environment variable, written to `name`; "" if there is none. */
const char *base_setting_variable(const struct base_setting_info *info,
                                  char name[SETTING_VARIABLE_MAX]);

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
    bool quiet; /* what is unknown or has no effect was said already */
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
/* Takes known YOLK_* variables and upstream aliases; warns once, in the log, of unknown MOONCAKE_*,
 * MC_* and TENT_*; of the engine's that have no effect it says why, unless `quiet` is set. */
YOLK_MUST_USE int base_config_environment(struct base_config *config, char *const *environment);
/* One pair of a file. `where` is for messages, for example "node.yaml:3". */
YOLK_MUST_USE int base_config_file_pair(struct base_config *config, const char *key,
                                        const char *value, const char *where);
/* One setting from another source of texts. `name` is for messages; a plain number is in units of
 * `scale` (0: 1). ORIGIN_DEFAULT puts another default in place. */
YOLK_MUST_USE int base_config_set(struct base_config *config, enum base_setting setting,
                                  const char *name, const char *text, uint64_t scale,
                                  enum base_config_origin origin);
/* The setting with this flag (without dashes) that one of the commands takes; NULL: none. */
const struct base_setting_info *base_config_find(const char *flag, unsigned commands);
/* Rules between settings (a lease below the session's life, and so on). */
YOLK_MUST_USE int base_config_check(const struct base_config *config);

/* "" when not set. */
const char *base_config_string(const struct base_config *config, enum base_setting setting);
uint64_t base_config_u64(const struct base_config *config, enum base_setting setting);
bool base_config_bool(const struct base_config *config, enum base_setting setting);
double base_config_ratio(const struct base_config *config, enum base_setting setting);
/* Given by argument, environment or file. */
bool base_config_given(const struct base_config *config, enum base_setting setting);
enum base_config_origin base_config_origin(const struct base_config *config,
                                           enum base_setting setting);

/* Text for --help of these commands: one line a setting. */
YOLK_MUST_USE int base_config_help(unsigned commands, struct base_buf *text);
/* The whole table as a Markdown document. */
YOLK_MUST_USE int base_config_markdown(struct base_buf *text);
/* Says of each setting of its commands, at level info, what it is and where that came from. */
void base_config_log(const struct base_config *config);
/* The same in Prometheus text format. */
YOLK_MUST_USE int base_config_metrics(const struct base_config *config, struct base_buf *text);

#endif
