/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the table of settings that is the transfer engine's: its names are the keys of TENT's
 * configuration, and for what TENT has not, ours. Then what of TENT and of the older engine has no
 * effect here, and why. */
#include <assert.h>
#include <string.h>

#include "base/config.h"

#define MIB (UINT64_C(1) << 20)

static const struct base_setting_info SETTINGS[SET_COUNT - SET_ENGINE_FIRST] = {
    /* who and where */
    {.id = SET_METADATA_TYPE,
     .commands = COMMAND_LIBRARY,
     .flag = "metadata-type",
     .type = CONFIG_STRING,
     .fallback = "p2p",
     .choices = "p2p|http|etcd|redis",
     .doc =
         "Where the names of peers are kept: nowhere, a name being an address, or in a service."},
    {.id = SET_METADATA_SERVERS,
     .commands = COMMAND_LIBRARY,
     .flag = "metadata-servers",
     .type = CONFIG_STRING,
     .doc = "Address of that service, host:port; with http a path may follow."},
    {.id = SET_SEGMENT_NAME,
     .commands = COMMAND_LIBRARY,
     .flag = "local-segment-name",
     .type = CONFIG_STRING,
     .doc = "Under which others open this process, with a service; empty: its host:port."},
    {.id = SET_RPC_HOST,
     .commands = COMMAND_LIBRARY,
     .flag = "rpc-server-hostname",
     .type = CONFIG_STRING,
     .alias_environment = "MOONCAKE_LOCAL_HOSTNAME",
     .doc = "Host that others reach this process at; empty: 127.0.0.1, so nobody elsewhere does."},
    {.id = SET_RPC_PORT,
     .commands = COMMAND_LIBRARY,
     .flag = "rpc-server-port",
     .type = CONFIG_U64,
     .fallback = "0",
     .maximum = 65535,
     .doc = "Port of the handshake; 0: a free one of rpc_port_min to rpc_port_max."},
    {.id = SET_RPC_PORT_MIN,
     .commands = COMMAND_LIBRARY,
     .flag = "rpc-port-min",
     .type = CONFIG_U64,
     .fallback = "15000",
     .alias_environment = "MC_MIN_RPC_PORT",
     .minimum = 1,
     .maximum = 65535,
     .doc = "The lowest port taken where none is given."},
    {.id = SET_RPC_PORT_MAX,
     .commands = COMMAND_LIBRARY,
     .flag = "rpc-port-max",
     .type = CONFIG_U64,
     .fallback = "17000",
     .alias_environment = "MC_MAX_RPC_PORT",
     .minimum = 1,
     .maximum = 65535,
     .doc = "The highest one."},
    {.id = SET_RPC_LISTEN,
     .commands = COMMAND_LIBRARY,
     .flag = "rpc-server-listen",
     .type = CONFIG_STRING,
     .alias_environment = "MC_TCP_BIND_ADDRESS",
     .doc =
         "Address to listen on; empty: rpc_server_hostname, or all where this machine has not got "
         "that one."},
    {.id = SET_REDIS_USERNAME,
     .commands = COMMAND_LIBRARY,
     .flag = "redis-username",
     .type = CONFIG_STRING,
     .alias_environment = "MC_REDIS_USERNAME",
     .doc = "With metadata_type redis, where its address names nobody."},
    {.id = SET_REDIS_PASSWORD,
     .commands = COMMAND_LIBRARY,
     .flag = "redis-password",
     .hidden = true,
     .type = CONFIG_STRING,
     .alias_environment = "MC_REDIS_PASSWORD",
     .doc = "The same."},
    {.id = SET_REDIS_DATABASE,
     .commands = COMMAND_LIBRARY,
     .flag = "redis-db-index",
     .type = CONFIG_U64,
     .fallback = "0",
     .maximum = 1 << 20,
     .alias_environment = "MC_REDIS_DB_INDEX",
     .doc = "The same, where its address names no database."},
    /* routes */
    {.id = SET_TRANSPORTS_OFF,
     .commands = COMMAND_LIBRARY,
     .flag = "transports-off",
     .type = CONFIG_STRING,
     .value_name = "NAME[,NAME...]",
     .doc = "Transports not to use. `transports/NAME/enable`: false puts NAME here, for any "
            "transport that there is, those of plug-ins too; io_uring is uring."},
    {.id = SET_FORCE_TCP,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/force-tcp",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .alias_environment = "MC_FORCE_TCP",
     .doc = "Between processes only tcp is used."},
    {.id = SET_PLUGIN_PATHS,
     .commands = COMMAND_LIBRARY | COMMAND_NODE | COMMAND_CLIENT,
     .flag = "plugin-paths",
     .alias_flag = "transports/plugins",
     .type = CONFIG_STRING,
     .value_name = "FILE[:FILE...]",
     .doc = "Transports to load out of shared libraries, by absolute paths."},
    {.id = SET_POLICY,
     .commands = COMMAND_LIBRARY,
     .flag = "policy",
     .type = CONFIG_JSON,
     .doc = "TENT's list of policies: which transports a request may take, in what order."},
    {.id = SET_QOS,
     .commands = COMMAND_LIBRARY,
     .flag = "qos",
     .type = CONFIG_JSON,
     .doc = "TENT's contract: what each tenant and intent may have in flight."},
    {.id = SET_MAX_FAILOVER,
     .commands = COMMAND_LIBRARY,
     .flag = "max-failover-attempts",
     .type = CONFIG_U64,
     .fallback = "3",
     .maximum = 64,
     .alias_environment = "MC_RETRY_CNT",
     .alias_flag = "transports/tcp/max-retry-count",
     .doc = "How often what failed is tried again, on all transports together; 0: never."},
    {.id = SET_FAILOVER_ON_POLL,
     .commands = COMMAND_LIBRARY,
     .flag = "enable-auto-failover-on-poll",
     .type = CONFIG_BOOL,
     .fallback = "true",
     .doc = "Also by asking for the status of one request."},
    {.id = SET_RETRY_DELAY,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/tcp/retry-base-delay-ms",
     .type = CONFIG_U64,
     .fallback = "1000",
     .minimum = 1,
     .maximum = 3600000,
     .doc =
         "How long a route rests that failed three times in a row, the first time; then twice as "
         "long, up to 32 times. Of every transport."},
    {.id = SET_STRICT,
     .commands = COMMAND_LIBRARY,
     .flag = "strict",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .doc = "Refuses what would have to be copied through a buffer on its way."},
    /* pieces and queues */
    {.id = SET_MERGE,
     .commands = COMMAND_LIBRARY,
     .flag = "merge-requests",
     .type = CONFIG_BOOL,
     .fallback = "true",
     .doc = "Joins neighbouring requests of one submit."},
    {.id = SET_SLICE_BYTES,
     .commands = COMMAND_LIBRARY,
     .flag = "slice-bytes-max",
     .type = CONFIG_SIZE,
     .fallback = "0",
     .maximum = 1024 * MIB,
     .alias_environment = "MC_SLICE_SIZE",
     .doc = "Pieces that requests are cut into; 0: each transport's own."},
    {.id = SET_STAGING_BYTES,
     .commands = COMMAND_LIBRARY,
     .flag = "staging-bytes",
     .type = CONFIG_SIZE,
     .fallback = "64MiB",
     .maximum = 65536 * MIB,
     .doc = "Memory for transfers in stages."},
    {.id = SET_DRAIN_LIMIT,
     .commands = COMMAND_LIBRARY,
     .flag = "drain-limit-ms",
     .type = CONFIG_U64,
     .fallback = "5000",
     .minimum = 1,
     .maximum = 3600000,
     .doc = "How long what was given up may take until its memory is quiet; then it is told as "
            "stuck, and stays the engine's until it is."},
    {.id = SET_TCP_WORKERS,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/tcp/max-concurrent-tasks",
     .type = CONFIG_U64,
     .fallback = "16",
     .minimum = 1,
     .maximum = 1024,
     .doc = "Threads that serve others."},
    {.id = SET_TCP_CONNECTIONS,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/tcp/connections",
     .type = CONFIG_U64,
     .fallback = "8",
     .minimum = 1,
     .maximum = 256,
     .doc = "Connections to one peer."},
    {.id = SET_GDS_ENABLE,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/gds/enable",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .doc = "Files are reached by GPUDirect Storage (cuFile), before any other way, where that "
            "works."},
    {.id = SET_GDS_DEPTH,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/gds/io-batch-depth",
     .type = CONFIG_U64,
     .fallback = "32",
     .minimum = 1,
     .maximum = 128,
     .doc = "Pieces of files that cuFile has at a time; where it takes fewer, that is told and so "
            "many."},
    {.id = SET_GDS_SLICE,
     .commands = COMMAND_LIBRARY,
     .flag = "transports/gds/slice-bytes",
     .type = CONFIG_SIZE,
     .fallback = "16MiB",
     .minimum = 4096,
     .maximum = 64 * MIB,
     .doc = "Their size, a multiple of 4 KiB; at most what cuFile moves directly at once."},
    {.id = SET_QUEUE,
     .commands = COMMAND_LIBRARY,
     .flag = "enable-runtime-queue",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .doc = "Admits what fits into the limits below, and gives it out in order."},
    {.id = SET_QUEUE_OWNERS,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/max-outstanding-owners",
     .type = CONFIG_U64,
     .fallback = "1024",
     .minimum = 1,
     .maximum = UINT32_MAX,
     .doc = "Requests that are not over."},
    {.id = SET_QUEUE_BYTES,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/max-outstanding-bytes",
     .type = CONFIG_SIZE,
     .fallback = "1GiB",
     .minimum = 1,
     .doc = "Their bytes."},
    {.id = SET_QUEUE_STAGING_OWNERS,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/staging-owner-reserve",
     .type = CONFIG_U64,
     .fallback = "0",
     .maximum = UINT32_MAX,
     .doc = "Of these, kept for transfers in stages."},
    {.id = SET_QUEUE_STAGING_BYTES,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/staging-byte-reserve",
     .type = CONFIG_SIZE,
     .fallback = "0",
     .doc = "The same, in bytes."},
    {.id = SET_QUEUE_DISPATCH_OWNERS,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/max-dispatch-owners",
     .type = CONFIG_U64,
     .fallback = "64",
     .minimum = 1,
     .maximum = UINT32_MAX,
     .doc = "Requests that transports have at a time."},
    {.id = SET_QUEUE_DISPATCH_BYTES,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/max-dispatch-bytes",
     .type = CONFIG_SIZE,
     .fallback = "64MiB",
     .minimum = 1,
     .doc = "Their bytes; a larger request is refused."},
    {.id = SET_QUEUE_DEADLINES,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/deadline-aware",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .doc = "The earliest deadline first, in place of the first come."},
    {.id = SET_QUEUE_SLACK,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/promotion-slack-ns",
     .type = CONFIG_U64,
     .fallback = "0",
     .doc = "With deadline_aware: a deadline this near goes before every priority."},
    {.id = SET_QUEUE_TICK,
     .commands = COMMAND_LIBRARY,
     .flag = "runtime-queue/progress-fallback-interval-us",
     .type = CONFIG_U64,
     .fallback = "50000",
     .minimum = 1,
     .maximum = 60000000,
     .doc = "How often the queue moves on though nobody polls; in whole milliseconds."},
    /* the topology, as it is told; no transport here chooses among devices */
    {.id = SET_RDMA_WHITELIST,
     .commands = COMMAND_LIBRARY,
     .flag = "topology/rdma-whitelist",
     .list = true,
     .type = CONFIG_STRING,
     .alias_environment = "MC_TE_FILTERS",
     .value_name = "NAME[,NAME...]",
     .doc = "RDMA devices that tent_topology and get_local_topology tell of; empty: all. What "
            "transfers take is the kernel's choice."},
    {.id = SET_RDMA_BLACKLIST,
     .commands = COMMAND_LIBRARY,
     .flag = "topology/rdma-blacklist",
     .list = true,
     .type = CONFIG_STRING,
     .alias_environment = "MC_TE_FILTERS_EXCLUDE",
     .value_name = "NAME[,NAME...]",
     .doc = "Those that they do not tell of."},
    {.id = SET_TOPOLOGY_FILE,
     .commands = COMMAND_LIBRARY,
     .flag = "topology/custom-json-path",
     .type = CONFIG_STRING,
     .alias_environment = "MC_CUSTOM_TOPO_JSON",
     .doc = "File with what they tell in place of what is found here."},
    {.id = SET_TOPOLOGY_MATRIX,
     .commands = COMMAND_LIBRARY,
     .flag = "topology/priority-matrix",
     .type = CONFIG_JSON,
     .doc =
         "The same by itself, {\"cpu:0\": [[\"nearest\"], [\"others\"]]}; goes before the file."},
    /* figures over HTTP */
    {.id = SET_FIGURES,
     .commands = COMMAND_LIBRARY,
     .flag = "metrics/enabled",
     .type = CONFIG_BOOL,
     .fallback = "false",
     .alias_environment = "TENT_METRICS_ENABLED",
     .doc =
         "Serves the engine's figures over HTTP; they are counted anyway. With metrics/http_port "
         "given they are served too, unless this is false."},
    {.id = SET_FIGURES_HOST,
     .commands = COMMAND_LIBRARY,
     .flag = "metrics/http-host",
     .type = CONFIG_STRING,
     .fallback = "127.0.0.1",
     .alias_environment = "TENT_METRICS_HTTP_HOST",
     .doc = "Address to serve them at; 0.0.0.0: at all of this machine's."},
    {.id = SET_FIGURES_PORT,
     .commands = COMMAND_LIBRARY,
     .flag = "metrics/http-port",
     .type = CONFIG_U64,
     .fallback = "9100",
     .alias_environment = "TENT_METRICS_HTTP_PORT",
     .maximum = 65535,
     .doc = "Port of that; if it is taken a line says so, and they are not served. 0: a free one."},
};

const struct base_setting_info *base_setting_engine_info(enum base_setting setting)
{
    const struct base_setting_info *info = &SETTINGS[setting - SET_ENGINE_FIRST];
    assert(info->id == setting);
    return info;
}

#define NO_RDMA "there is no RDMA transport"
#define NO_GPU  "no transport between GPUs is built in"
#define VENDOR  "no transport for this device is built in"
#define METRICS                                                                                    \
    "one thread serves figures, no line of them is logged, and bounds of histograms are fixed"

static const struct base_setting_ignored IGNORED[] = {
    {NULL, "MC_USE_TENT|MC_USE_TEV1",
     "with either, programs of the older interfaces are configured by MC_TENT_CONF too", true},
    {NULL, "MC_TENT_CONF",
     "the configuration, a file's path or JSON: takes the place of a program's own, but for what "
     "that "
     "says of metadata_type, metadata_servers, local_segment_name, rpc_server_hostname and "
     "rpc_server_port",
     true},
    {NULL, "MC_TRANSFER_TIMEOUT",
     "seconds that a call of mooncake.engine may take, at least 5; 30 without it", true},
    {"rpc-server-threads", "MC_TENT_RPC_THREADS",
     "one thread answers handshakes; transports/tcp/max_concurrent_tasks is of those that move "
     "bytes",
     false},
    {"verbose", NULL, "log_level says what is logged", false},
    {"enable-progress-worker", NULL,
     "transports move bytes without being polled, and a queue moves on by itself", false},
    {"use-legacy-transport-selection", NULL, "there is one way to choose: see policy", false},
    {"runtime-queue/mlu-local-threshold", NULL, NO_RDMA ", whose time it predicts", false},
    {"metrics/report-interval-seconds|metrics/http-server-threads|metrics/latency-buckets|"
     "metrics/size-buckets",
     "TENT_METRICS_REPORT_INTERVAL|TENT_METRICS_HTTP_SERVER_THREADS|MC_TE_METRIC|"
     "MC_TE_METRIC_INTERVAL_SECONDS",
     METRICS, false},
    {"transports/tcp/retry-max-delay-ms", NULL,
     "a route rests 32 times transports/tcp/retry_base_delay_ms at most", false},
    {"transports/rdma/*",
     "MC_GID_INDEX|MC_IB_*|MC_NUM_CQ_PER_CTX|MC_NUM_COMP_CHANNELS_PER_CTX|MC_MAX_*|MC_NUM_QP_PER_"
     "EP|"
     "MC_PKEY_INDEX|MC_MTU|MC_WORKERS_PER_CTX|MC_RDMA_BIND_ADDRESS|MC_DISABLE_GPU_DIRECT_RDMA|"
     "MC_LOG_RDMA_SLICE_AFFINITY|MC_STRICT_LOCAL_NUMA|MC_MS_AUTO_DISC|MC_MS_FILTERS|"
     "MC_ENABLE_DEST_DEVICE_AFFINITY|MC_ENABLE_PARALLEL_REG_MR|MC_FRAGMENT_RATIO|MC_SLICE_TIMEOUT|"
     "MC_HANDSHAKE_*|MC_FORCE_HCA",
     NO_RDMA, false},
    {"transports/nvlink/*", "MC_USE_NVLINK_IPC", NO_GPU, false},
    {"transports/mnnvl/*", "MC_ENABLE_MNNVL|MC_FORCE_MNNVL|MC_MNNVL_EGM", NO_GPU, false},
    {"transports/shm/*", NULL, "memory that a program allocates itself is not mapped by others",
     false},
    {"transports/ascend-direct/*", NULL, VENDOR, false},
    {"transports/sunrise-link/*", "MC_TANGRT_*", VENDOR, false},
    {"transports/tpu/*", "MC_TPU_*", VENDOR, false},
    {"transports/mpcomm/*", NULL, VENDOR, false},
    {"transports/ub/*", NULL, VENDOR, false},
    {NULL, "MC_USE_IPV6", "an address in brackets, or a host's name, says which network", false},
    {NULL, "MC_RPC_PROTOCOL|MC_STORE_*|MC_MMAP_*|MC_LEGACY_*", "of the store, not of transfers",
     false},
};

/* "a|b*" of `names`: the one that `name` is, or that it begins with. '_' of `name` is '-' where
 * `dashes`. */
static bool is_one_of(const char *names, const char *name, size_t size, bool dashes)
{
    while (names != NULL && *names != '\0') {
        size_t length = strcspn(names, "|");
        bool open = length > 0 && names[length - 1] == '*';
        size_t compared = open ? length - 1 : length;
        bool same = open ? size >= compared : size == compared;
        for (size_t i = 0; same && i < compared; i++)
            same = names[i] == (dashes && name[i] == '_' ? '-' : name[i]);
        if (same)
            return true;
        names += length + (names[length] == '|');
    }
    return false;
}

const struct base_setting_ignored *base_setting_ignored_at(size_t index)
{
    return index < sizeof(IGNORED) / sizeof(IGNORED[0]) ? &IGNORED[index] : NULL;
}

const struct base_setting_ignored *base_setting_ignored(const char *name, size_t size,
                                                        bool variable)
{
    for (size_t i = 0; i < sizeof(IGNORED) / sizeof(IGNORED[0]); i++)
        if (is_one_of(variable ? IGNORED[i].environment : IGNORED[i].key, name, size, !variable))
            return &IGNORED[i];
    return NULL;
}
