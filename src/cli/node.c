/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk node`: gives memory to the store until a signal comes. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/address.h"
#include "cli/common.h"
#include "cli/node_http.h"
#include "cli/ssd.h"
#include "platform/net.h"
#include "platform/process.h"
#include "storage/storage.h"

struct node {
    const struct cli_command *command;
    const struct base_config *config;
    const char *self, *http_flag; /* what the program and its flag are called */
    struct yolk_store *store;
    struct node_http *http;
    uint16_t clients_port; /* where dummy clients are answered; 0: nowhere */
};

static void second_signal(int number)
{
    static const char text[] = "yolk node: second signal, not waiting for readers\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)written;
    _exit(128 + number);
}

/* From here a further signal ends the process at once. */
static void let_signals_kill(const sigset_t *set)
{
    struct sigaction action = {.sa_handler = second_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

/* The TCP addresses this process listens on, for people who want to see or disturb them. */
static void list_ports(char *out, size_t size)
{
    struct rlimit limit;
    size_t used = 0;
    out[0] = '\0';
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    /* They were opened a moment ago, so their numbers are low. */
    for (int fd = 3; fd < 256 && (rlim_t)fd < limit.rlim_cur; fd++) {
        int listening = 0;
        socklen_t length = sizeof(listening);
        struct net_address address;
        char text[NET_ADDRESS_TEXT_MAX];
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening ||
            net_local_address(fd, &address) != YOLK_OK || net_address_is_unix(&address))
            continue;
        net_address_format(&address, text, sizeof(text));
        int n = snprintf(out + used, size - used, "%s%s", used ? "," : "", text);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
    if (used == 0)
        snprintf(out, size, "no-tcp");
}

static void announce(const struct node *node, const char *ports)
{
    char text[NET_ADDRESS_TEXT_MAX];
    const char *name = base_config_string(node->config, SET_NAME);
    printf("%s ready %s %s%s%s", node->self, ports, name, name[0] ? " " : "",
           base_format_size(base_config_u64(node->config, SET_SEGMENT_SIZE), text, sizeof(text)));
    if (base_config_u64(node->config, SET_SSD) > 0)
        printf(" ssd %s",
               base_format_size(base_config_u64(node->config, SET_SSD), text, sizeof(text)));
    if (base_config_bool(node->config, SET_EGM))
        printf(" of NUMA nodes (EGM)");
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    if (yolk_store_options_environment(&options) == YOLK_OK && options.gds_enabled)
        printf(" gds %s", base_format_size(options.gds_capacity_bytes, text, sizeof(text)));
    putchar('\n');
    if (strcmp(ports, "no-tcp") == 0 &&
        strcmp(base_config_string(node->config, SET_TRANSPORT), "shm") != 0)
        fprintf(
            stderr,
            "%s: warning: no TCP address could be taken%s%s: only processes of this machine reach "
            "this node\n",
            node->self, base_config_string(node->config, SET_HOST)[0] ? " at --host " : "",
            base_config_string(node->config, SET_HOST));
    if (node->http) {
        address_reachable(node_http_address(node->http), text, sizeof(text));
        printf("health: curl http://%s/health\n", text);
    }
    if (node->clients_port != 0)
        printf("dummy clients: port %u\n", node->clients_port);
    fflush(stdout);
}

/* The node's own pages, if it is to have them. */
static int start_http(struct node *node)
{
    const char *text = base_config_string(node->config, SET_HTTP_LISTEN);
    struct net_address address;
    if (!text[0])
        return CLI_OK;
    enum yolk_status status = net_address_parse(text, 0, &address);
    if (status == YOLK_OK)
        status = node_http_start(&address, node->store, node->config, &node->http);
    return status == YOLK_OK ? CLI_OK
                             : cli_failure(node->command, status, "cannot listen on %s (%s)", text,
                                           node->http_flag);
}

/* Answers dummy clients, if it is to. */
static int start_clients(struct node *node)
{
    const char *text = base_config_string(node->config, SET_CLIENTS_LISTEN);
    uint16_t port = 0;
    if (!text[0])
        return CLI_OK;
    enum yolk_status status = yolk_store_serve_clients(node->store, text, &port);
    bool wanted = base_config_given(node->config, SET_CLIENTS_LISTEN);
    if (status != YOLK_OK && !wanted) {
        /* Only the program's default: most nodes have no dummy clients. */
        fprintf(stderr, "%s: warning: no dummy clients are answered: %s\n", node->self,
                yolk_last_error());
        return CLI_OK;
    }
    if (status != YOLK_OK)
        return cli_failure(node->command, status, "cannot answer dummy clients");
    node->clients_port = port;
    return CLI_OK;
}

static int leave(struct node *node)
{
    char text[32];
    uint64_t grace_ms = base_config_u64(node->config, SET_DRAIN_GRACE);
    printf("%s draining for at most %s\n", node->self,
           base_format_duration_ms(grace_ms, text, sizeof(text)));
    fflush(stdout);
    enum yolk_status status = yolk_store_drain(node->store, grace_ms);
    if (status != YOLK_OK)
        cli_failure(node->command, status, "draining");
    node_http_stop(node->http);
    enum yolk_status closed = yolk_store_close(node->store);
    if (closed != YOLK_OK)
        return cli_failure(node->command, closed, "closing");
    printf("%s stopped\n", node->self);
    return status == YOLK_OK ? CLI_OK : CLI_FAILED;
}

static int serve(struct node *node)
{
    sigset_t set;
    int number = 0;
    char ports[1024];
    enum yolk_status status = cli_store_open(
        node->command, node->config, base_config_u64(node->config, SET_SEGMENT_SIZE), &node->store);
    if (status != YOLK_OK)
        return cli_failure(node->command, status, "cannot join the store");
    /* Until here a signal just ends the process: there is nothing to drain. The store's threads
     * take none. */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    list_ports(ports, sizeof(ports));
    int code = start_http(node);
    if (code == CLI_OK)
        code = start_clients(node);
    if (code == CLI_OK) {
        announce(node, ports);
        while (sigwait(&set, &number) != 0)
            ;
    }
    let_signals_kill(&set);
    int left = leave(node);
    return code == CLI_OK ? left : code;
}

int cli_node(int argc, char **argv)
{
    static const struct cli_command command = {
        "node", "",
        "Gives memory of this machine, and with --ssd disk space, to the store and serves it until "
        "SIGTERM or\nSIGINT.",
        COMMAND_NODE};
    struct base_config config;
    int code;
    return cli_parse(&command, argc - 1, argv + 1, &config, &code) ? cli_node_run(&command, &config)
                                                                   : code;
}

int cli_node_run(const struct cli_command *command, struct base_config *config)
{
    bool theirs = strcmp(command->name, "mooncake_client") == 0;
    struct node node = {.command = command,
                        .config = config,
                        .self = theirs ? "mooncake_client" : "yolk node",
                        .http_flag = theirs ? "--http_port" : "--http-listen"};
    uint64_t memory = cli_machine_memory();
    char text[32], path[CLI_SSD_PATH_MAX];
    int code;
    signal(SIGPIPE, SIG_IGN);
    process_raise_file_limit();
    uint64_t size = base_config_u64(config, SET_SEGMENT_SIZE);
    uint64_t ssd = base_config_u64(config, SET_SSD);
    if (strcmp(base_config_string(config, SET_MASTER), "embedded") == 0)
        code = cli_usage_error(command, "--master embedded: a node needs a master that others "
                                        "reach; start one with yolk master");
    else if (base_config_origin(config, SET_SSD_PATH) == ORIGIN_ARGUMENT && ssd == 0)
        code = cli_usage_error(command, "--ssd-path needs --ssd SIZE: how much of that disk the "
                                        "store may use");
    else if ((base_config_origin(config, SET_EGM_NODES) == ORIGIN_ARGUMENT ||
              base_config_origin(config, SET_EGM_HANDLES) == ORIGIN_ARGUMENT) &&
             !base_config_bool(config, SET_EGM))
        code = cli_usage_error(command, "--egm-numa-nodes and --egm-handle-type need "
                                        "--enable-egm-store-pool");
    else if (ssd > 0 && ssd < STORAGE_UNIT)
        code = cli_usage_error(command, "--ssd %s: must be 0 or at least 4KiB",
                               base_format_size(ssd, text, sizeof(text)));
    else if (ssd > 0 &&
             cli_ssd_file(base_config_string(config, SET_SSD_PATH), path, sizeof(path)) != YOLK_OK)
        code = cli_usage_error(command, "%s", yolk_last_error());
    else if (size > memory)
        code = cli_usage_error(command, "--dram %s: this machine has %llu MiB of memory",
                               base_format_size(size, text, sizeof(text)),
                               (unsigned long long)(memory / MIB));
    else
        code = serve(&node);
    base_config_free(config);
    return code;
}
