/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk master` */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "admin/http.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/units.h"
#include "admin/metadata.h"
#include "cli/address.h"
#include "cli/common.h"
#include "master/policy.h"
#include "platform/clock.h"
#include "platform/loop.h"
#include "platform/process.h"
#include "platform/random.h"
#include "server/server.h"
#include "wire/hello.h"

/* What the program and the flags are called that name its addresses. */
struct names {
    const char *self, *listen, *metrics, *metadata;
    const char *client; /* the command line of one, up to the master's address */
};

struct setup {
    const struct cli_command *command;
    struct names names;
    struct base_config *config;
    struct server_options server;
    struct net_address admin, metadata_address;
    bool with_admin, with_metadata;
    uint64_t spin_us;
    uint8_t secret[WIRE_SECRET_MAX];
    char listen[NET_ADDRESS_TEXT_MAX];
    char metrics[NET_ADDRESS_TEXT_MAX];
};

/* "HOST:PORT" of the setting with what is given of `host` and `port_setting` put in. */
static int merge_address(const struct base_config *config, enum base_setting setting,
                         const char *host, enum base_setting port_setting, char *out, size_t size)
{
    const char *text = base_config_string(config, setting);
    const char *colon = strrchr(text, ':');
    char old_host[256];
    uint64_t port = base_config_u64(config, port_setting);
    bool port_given = base_config_given(config, port_setting);
    if (strncmp(text, "unix:", 5) == 0 || (!host && !port_given)) {
        snprintf(out, size, "%s", text);
        return YOLK_OK;
    }
    if (!colon)
        colon = text + strlen(text);
    snprintf(old_host, sizeof(old_host), "%.*s", (int)(colon - text), text);
    int status = port_given ? YOLK_OK
                            : base_parse_u64(base_setting_info(setting)->flag,
                                             *colon ? colon + 1 : "", &port);
    if (status == YOLK_OK)
        address_join(host ? host : old_host, port, out, size);
    return status;
}

static int resolve(const char *flag, const char *text, struct net_address *out)
{
    enum yolk_status status = net_address_parse(text, 0, out);
    return status == YOLK_OK ? YOLK_OK
                             : base_fail_context(YOLK_ERR_CONFIG, "--%s: \"%s\"", flag, text);
}

static int read_addresses(struct setup *setup)
{
    const struct base_config *config = setup->config;
    const char *host = base_config_given(config, SET_LISTEN_HOST)
                           ? base_config_string(config, SET_LISTEN_HOST)
                           : NULL;
    /* With a secret the master may face the network; without one only this machine. */
    if (!host && setup->server.secret_size > 0 && !base_config_given(config, SET_LISTEN))
        host = "";
    int status = merge_address(config, SET_LISTEN, host, SET_LISTEN_PORT, setup->listen,
                               sizeof(setup->listen));
    if (status == YOLK_OK)
        status = resolve("listen", setup->listen, &setup->server.address);
    setup->with_admin = base_config_string(config, SET_METRICS_LISTEN)[0] ||
                        base_config_given(config, SET_METRICS_PORT);
    if (status == YOLK_OK && setup->with_admin)
        status = merge_address(config, SET_METRICS_LISTEN, NULL, SET_METRICS_PORT, setup->metrics,
                               sizeof(setup->metrics));
    if (status == YOLK_OK && setup->with_admin)
        status = resolve("metrics-listen", setup->metrics, &setup->admin);
    const char *metadata = base_config_string(config, SET_METADATA_LISTEN);
    setup->with_metadata = metadata[0] != '\0';
    if (status == YOLK_OK && setup->with_metadata)
        status = resolve("metadata-listen", metadata, &setup->metadata_address);
    return status;
}

static int read_setup(struct setup *setup)
{
    const struct base_config *config = setup->config;
    struct master_config *master = &setup->server.config;
    const char *secret_file = base_config_string(config, SET_SECRET_FILE);
    master_config_default(master);
    master->lease_ttl_ms = base_config_u64(config, SET_LEASE_TTL);
    master->guard_ttl_ms = base_config_u64(config, SET_GUARD_TTL);
    master->put_timeout_ms = base_config_u64(config, SET_PUT_TIMEOUT);
    master->heartbeat_ms = base_config_u64(config, SET_HEARTBEAT);
    master->session_ttl_ms = base_config_u64(config, SET_SESSION_TTL);
    master->eviction_high_watermark_ratio = base_config_ratio(config, SET_EVICTION_HIGH);
    master->eviction_ratio = base_config_ratio(config, SET_EVICTION_RATIO);
    master->gds_eviction_high_watermark_ratio = base_config_ratio(config, SET_GDS_EVICTION_HIGH);
    master->gds_eviction_ratio = base_config_ratio(config, SET_GDS_EVICTION_RATIO);
    master->policy = master_policy_find(base_config_string(config, SET_EVICTION_POLICY));
    double offload = base_config_ratio(config, SET_OFFLOAD_WATERMARK);
    master->offload_watermark_ratio = offload > 0 ? offload : 1e-9; /* 0 means the default there */
    master->offload_wait_ms = base_config_u64(config, SET_OFFLOAD_WAIT);
    master->keep_on_disk = !base_config_bool(config, SET_PROMOTE);
    master->tenants = base_config_string(config, SET_TENANTS);
    double hard = base_config_ratio(config, SET_HARD_PIN_RATIO);
    master->hard_pin_ratio = hard > 0 ? hard : 1e-18; /* 0 means the default there */
    master->place_by_controller = strcmp(base_config_string(config, SET_PLACEMENT), "numa") == 0;
    master->soft_pin_ttl_ms = base_config_u64(config, SET_SOFT_PIN_TTL);
    master->soft_pin_ttl_max_ms = base_config_u64(config, SET_SOFT_PIN_TTL_MAX);
    master->max_objects = base_config_u64(config, SET_MAX_OBJECTS);
    master->max_sessions = (uint32_t)base_config_u64(config, SET_MAX_SESSIONS);
    setup->server.max_connections = base_config_u64(config, SET_MAX_CONNECTIONS);
    setup->server.handshake_ms = base_config_u64(config, SET_HANDSHAKE_TIMEOUT);
    setup->spin_us = base_config_u64(config, SET_SPIN);
    int status = YOLK_OK;
    if (secret_file[0])
        status = process_read_secret(secret_file, setup->secret, sizeof(setup->secret),
                                     &setup->server.secret_size);
    setup->server.secret = setup->secret;
    return status == YOLK_OK ? read_addresses(setup) : status;
}

/* What runs, in the order in which it is taken down. */
struct running {
    struct loop *loop;
    struct server *server;
    struct admin_http *admin;
    struct admin_metadata *metadata;
};

static void announce_pages(const struct running *running)
{
    char text[NET_ADDRESS_TEXT_MAX];
    if (running->admin) {
        address_reachable(admin_http_address(running->admin), text, sizeof(text));
        printf("health: curl http://%s/health\n", text);
    }
    if (running->metadata) {
        address_reachable(admin_metadata_address(running->metadata), text, sizeof(text));
        printf("metadata: http://%s/metadata\n", text);
    }
}

static void announce(const struct setup *setup, const struct running *running)
{
    char text[NET_ADDRESS_TEXT_MAX], bound[NET_ADDRESS_TEXT_MAX];
    const struct net_address *address = server_address(running->server);
    const char *secret_file = base_config_string(setup->config, SET_SECRET_FILE);
    address_reachable(address, text, sizeof(text));
    printf("%s ready %s\n", setup->names.self, text);
    printf("client: %s %s%s%s\n", setup->names.client, text,
           secret_file[0] ? " --secret-file " : "", secret_file);
    if (!secret_file[0] && !net_address_is_unix(address))
        printf("python: from mooncake.store import MooncakeDistributedStore as Store; store = "
               "Store(); store.setup(\"\", \"P2PHANDSHAKE\", 1 << 30, 128 << 20, \"tcp\", \"\", "
               "\"%s\")\n",
               text);
    announce_pages(running);
    net_address_format(address, bound, sizeof(bound));
    if (setup->server.secret_size > 0)
        printf("access: whoever knows the secret in %s\n", secret_file);
    else if (address_is_loopback(address))
        printf("access: every user of this machine, and only this machine (no --secret-file)\n");
    else
        printf("access: WARNING: everybody who reaches %s can read and delete everything (no "
               "--secret-file)\n",
               bound);
    fflush(stdout);
}

static void on_signal(void *self, int number)
{
    (void)number;
    loop_stop(self);
}

/* Each failure names the address and the flag that changes it. */
static int listen_all(struct setup *setup, struct running *running)
{
    const struct admin_http_options admin = {.address = setup->admin,
                                             .settings = setup->config,
                                             .guarded = setup->server.secret_size > 0};
    enum yolk_status status = server_create(running->loop, &setup->server, &running->server);
    if (status == YOLK_ERR_CONFIG)
        return cli_usage_error(setup->command, "%s", cli_reason(status));
    if (status != YOLK_OK)
        return cli_failure(setup->command, status, "cannot listen on %s (%s)", setup->listen,
                           setup->names.listen);
    if (setup->with_admin)
        status = admin_http_create(running->loop, running->server, &admin, &running->admin);
    if (status != YOLK_OK)
        return cli_failure(setup->command, status, "cannot listen on %s (%s)", setup->metrics,
                           setup->names.metrics);
    if (setup->with_metadata)
        status = admin_metadata_create(running->loop, &setup->metadata_address, &running->metadata);
    if (status != YOLK_OK)
        return cli_failure(setup->command, status, "cannot listen on %s (%s)",
                           base_config_string(setup->config, SET_METADATA_LISTEN),
                           setup->names.metadata);
    return CLI_OK;
}

static int serve(struct setup *setup, struct running *running)
{
    struct loop_options options = {.spin_ns = setup->spin_us * CLOCK_NS_PER_US};
    enum yolk_status status = loop_create(&options, &running->loop);
    if (status != YOLK_OK)
        return cli_failure(setup->command, status, "cannot start");
    int code = listen_all(setup, running);
    if (code != CLI_OK)
        return code;
    status = loop_on_signal(running->loop, SIGTERM, on_signal, running->loop);
    if (status == YOLK_OK)
        status = loop_on_signal(running->loop, SIGINT, on_signal, running->loop);
    if (status == YOLK_OK) {
        announce(setup, running);
        status = loop_run(running->loop);
    }
    if (status != YOLK_OK)
        return cli_failure(setup->command, status, "stopped");
    printf("%s stopped\n", setup->names.self);
    return CLI_OK;
}

int cli_master_run(const struct cli_command *command, struct base_config *config)
{
    static const struct names ours = {"yolk master", "--port", "--admin-port", "--metadata-listen",
                                      "yolk node --dram 1GiB --master"};
    static const struct names theirs = {"mooncake_master", "--rpc_port", "--metrics_port",
                                        "--http_metadata_server_port",
                                        "mooncake_client --master_server_address"};
    static struct setup setup;
    struct running running = {.loop = NULL};
    struct random random = random_real();
    int code;
    setup.command = command;
    setup.config = config;
    setup.names = strcmp(command->name, theirs.self) == 0 ? theirs : ours;
    setup.server.seed = random_u64(&random);
    signal(SIGPIPE, SIG_IGN);
    process_raise_file_limit();
    if (read_setup(&setup) != YOLK_OK)
        code = cli_usage_error(command, "%s", yolk_last_error());
    else
        code = serve(&setup, &running);
    admin_metadata_destroy(running.metadata);
    admin_http_destroy(running.admin);
    server_destroy(running.server);
    loop_destroy(running.loop);
    explicit_bzero(setup.secret, sizeof(setup.secret));
    base_config_free(config);
    return code;
}

int cli_master(int argc, char **argv)
{
    static const struct cli_command command = {
        "master", "", "Runs the master: it knows which key is where.", COMMAND_MASTER};
    struct base_config config;
    int code;
    return cli_parse(&command, argc - 1, argv + 1, &config, &code)
               ? cli_master_run(&command, &config)
               : code;
}
