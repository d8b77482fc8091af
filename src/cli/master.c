/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk master` */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/http.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/common.h"
#include "master/policy.h"
#include "platform/clock.h"
#include "platform/loop.h"
#include "platform/process.h"
#include "platform/random.h"
#include "server/server.h"
#include "wire/hello.h"

static const struct cli_command command = {
    "master", "", "Runs the master: it knows which key is where.", COMMAND_MASTER};

struct setup {
    struct base_config config;
    struct server_options server;
    struct net_address admin;
    bool with_admin;
    uint64_t spin_us;
    uint8_t secret[WIRE_SECRET_MAX];
    char listen[NET_ADDRESS_TEXT_MAX];
    char metrics[NET_ADDRESS_TEXT_MAX];
};

static void join_address(const char *host, uint64_t port, char *out, size_t size)
{
    bool v6 = strchr(host, ':') && host[0] != '[';
    snprintf(out, size, v6 ? "[%s]:%llu" : "%s:%llu", host, (unsigned long long)port);
}

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
        join_address(host ? host : old_host, port, out, size);
    return status;
}

static int resolve(const char *flag, const char *text, struct net_address *out)
{
    enum yolk_status status = net_address_parse(text, 0, out);
    return status == YOLK_OK ? YOLK_OK : base_fail_context(YOLK_ERR_CONFIG, "--%s %s", flag, text);
}

static int read_addresses(struct setup *setup)
{
    const struct base_config *config = &setup->config;
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
    return status;
}

static int read_setup(struct setup *setup)
{
    const struct base_config *config = &setup->config;
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
    master->policy = master_policy_find(base_config_string(config, SET_EVICTION_POLICY));
    double offload = base_config_ratio(config, SET_OFFLOAD_WATERMARK);
    master->offload_watermark_ratio = offload > 0 ? offload : 1e-9; /* 0 means the default there */
    master->offload_wait_ms = base_config_u64(config, SET_OFFLOAD_WAIT);
    master->keep_on_disk = !base_config_bool(config, SET_PROMOTE);
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

/* Under which host clients reach an address we listen on. */
static void reachable(const struct net_address *address, char *out, size_t size)
{
    char host[256] = "localhost";
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;
    bool wildcard = false;
    if (any->sa_family == AF_INET)
        wildcard = ((const struct sockaddr_in *)any)->sin_addr.s_addr == htonl(INADDR_ANY);
    else if (any->sa_family == AF_INET6)
        wildcard = IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)any)->sin6_addr);
    if (!wildcard) {
        net_address_format(address, out, size);
        return;
    }
    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "localhost");
    join_address(host, net_address_port(address), out, size);
}

static bool is_loopback(const struct net_address *address)
{
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;
    if (any->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)any)->sin_addr.s_addr) >> 24 == 127;
    if (any->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)any)->sin6_addr);
    return true; /* a Unix socket */
}

static void announce(const struct setup *setup, const struct server *server,
                     const struct admin_http *admin)
{
    char text[NET_ADDRESS_TEXT_MAX + 256], bound[NET_ADDRESS_TEXT_MAX];
    const char *secret_file = base_config_string(&setup->config, SET_SECRET_FILE);
    reachable(server_address(server), text, sizeof(text));
    printf("yolk master ready %s\n", text);
    printf("client: yolk node --master %s --dram 1GiB%s%s\n", text,
           secret_file[0] ? " --secret-file " : "", secret_file);
    if (admin) {
        reachable(admin_http_address(admin), text, sizeof(text));
        printf("health: curl http://%s/health\n", text);
    }
    net_address_format(server_address(server), bound, sizeof(bound));
    if (setup->server.secret_size > 0)
        printf("access: whoever knows the secret in %s\n", secret_file);
    else if (is_loopback(server_address(server)))
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

static int serve(struct setup *setup)
{
    struct loop_options options = {.spin_ns = setup->spin_us * CLOCK_NS_PER_US};
    struct loop *loop = NULL;
    struct server *server = NULL;
    struct admin_http *admin = NULL;
    int code = CLI_FAILED;
    enum yolk_status status = loop_create(&options, &loop);
    if (status != YOLK_OK)
        return cli_failure(&command, status, "cannot start");
    status = server_create(loop, &setup->server, &server);
    if (status != YOLK_OK) {
        cli_failure(&command, status, "cannot listen on %s (--port)", setup->listen);
        goto out;
    }
    if (setup->with_admin) {
        status = admin_http_create(loop, server, &setup->admin, &admin);
        if (status != YOLK_OK) {
            cli_failure(&command, status, "cannot listen on %s (--admin-port)", setup->metrics);
            goto out;
        }
    }
    status = loop_on_signal(loop, SIGTERM, on_signal, loop);
    if (status == YOLK_OK)
        status = loop_on_signal(loop, SIGINT, on_signal, loop);
    if (status == YOLK_OK) {
        announce(setup, server, admin);
        status = loop_run(loop);
    }
    if (status != YOLK_OK)
        cli_failure(&command, status, "stopped");
    else {
        printf("yolk master stopped\n");
        code = CLI_OK;
    }
out:
    admin_http_destroy(admin);
    server_destroy(server);
    loop_destroy(loop);
    return code;
}

int cli_master(int argc, char **argv)
{
    static struct setup setup;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &setup.config, &code))
        return code;
    struct random random = random_real();
    setup.server.seed = random_u64(&random);
    signal(SIGPIPE, SIG_IGN);
    process_raise_file_limit();
    if (read_setup(&setup) != YOLK_OK)
        code = cli_usage_error(&command, "%s", yolk_last_error());
    else
        code = serve(&setup);
    explicit_bzero(setup.secret, sizeof(setup.secret));
    base_config_free(&setup.config);
    return code;
}
