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
#include "cli/common.h"
#include "cli/ssd.h"
#include "platform/net.h"
#include "platform/process.h"
#include "storage/storage.h"

static const struct cli_command command = {
    "node", "",
    "Gives memory of this machine, and with --ssd disk space, to the store and serves it until "
    "SIGTERM or\nSIGINT.",
    COMMAND_NODE};

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

static int serve(const struct base_config *config, uint64_t size)
{
    struct yolk_store *store = NULL;
    sigset_t set;
    int number = 0;
    char text[32], ports[1024];
    const char *name = base_config_string(config, SET_NAME);
    enum yolk_status status = cli_store_open(config, size, &store);
    if (status != YOLK_OK)
        return cli_failure(&command, status, "cannot join the store");
    /* Until here a signal just ends the process: there is nothing to drain. The store's threads
     * take none. */
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    list_ports(ports, sizeof(ports));
    printf("yolk node ready %s %s%s%s", ports, name, name[0] ? " " : "",
           base_format_size(size, text, sizeof(text)));
    if (base_config_u64(config, SET_SSD) > 0)
        printf(" ssd %s", base_format_size(base_config_u64(config, SET_SSD), text, sizeof(text)));
    putchar('\n');
    fflush(stdout);
    while (sigwait(&set, &number) != 0)
        ;
    let_signals_kill(&set);
    uint64_t grace_ms = base_config_u64(config, SET_DRAIN_GRACE);
    printf("yolk node draining for at most %s\n",
           base_format_duration_ms(grace_ms, text, sizeof(text)));
    fflush(stdout);
    status = yolk_store_drain(store, grace_ms);
    if (status != YOLK_OK)
        cli_failure(&command, status, "draining");
    enum yolk_status closed = yolk_store_close(store);
    if (closed != YOLK_OK)
        return cli_failure(&command, closed, "closing");
    printf("yolk node stopped\n");
    return status == YOLK_OK ? CLI_OK : CLI_FAILED;
}

int cli_node(int argc, char **argv)
{
    struct base_config config;
    uint64_t memory = cli_machine_memory();
    char text[32], path[CLI_SSD_PATH_MAX];
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    signal(SIGPIPE, SIG_IGN);
    process_raise_file_limit();
    uint64_t size = base_config_u64(&config, SET_SEGMENT_SIZE);
    uint64_t ssd = base_config_u64(&config, SET_SSD);
    if (strcmp(base_config_string(&config, SET_MASTER), "embedded") == 0)
        code = cli_usage_error(&command, "--master embedded: a node needs a master that others "
                                         "reach; start one with yolk master");
    else if (base_config_origin(&config, SET_SSD_PATH) == ORIGIN_ARGUMENT && ssd == 0)
        code = cli_usage_error(&command, "--ssd-path needs --ssd SIZE: how much of that disk the "
                                         "store may use");
    else if (ssd > 0 && ssd < STORAGE_UNIT)
        code = cli_usage_error(&command, "--ssd %s: must be 0 or at least 4KiB",
                               base_format_size(ssd, text, sizeof(text)));
    else if (ssd > 0 &&
             cli_ssd_file(base_config_string(&config, SET_SSD_PATH), path, sizeof(path)) != YOLK_OK)
        code = cli_usage_error(&command, "%s", yolk_last_error());
    else if (size > memory)
        code = cli_usage_error(&command, "--dram %s: this machine has %llu MiB of memory",
                               base_format_size(size, text, sizeof(text)),
                               (unsigned long long)(memory / MIB));
    else
        code = serve(&config, size);
    base_config_free(&config);
    return code;
}
