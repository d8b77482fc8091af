/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "compat"
#include "compat/setup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/process.h"
#include "platform/random.h"

/* Ports that Mooncake's clients take if none is given. Here they only tell clients of one host
 * apart. */
enum { FIRST_PORT = 12300, PORT_COUNT = 2001 };
enum { MAX_PORT = 65535 };

static const struct {
    const char *protocol;
    const char *transport;
} transports[] = {{"tcp", "auto"}, {"auto", "auto"}, {"rdma", "auto"},
                  {"shm", "shm"},  {"loop", "loop"}, {"nvlink", "nvlink"}};

/* Of a plug-in the protocol is what it calls its transport; the store knows when it is loaded. */
static int choose_transport(const char *protocol, bool plugins, const char **transport)
{
    if (protocol == NULL || protocol[0] == '\0')
        protocol = "tcp";
    for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
        if (strcmp(transports[i].protocol, protocol) != 0)
            continue;
        if (strcmp(protocol, "rdma") == 0)
            log_warn("protocol rdma: there is no RDMA transport yet; TCP between hosts, shared "
                     "memory on one");
        *transport = transports[i].transport;
        return YOLK_OK;
    }
    *transport = protocol;
    if (plugins)
        return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                     "protocol is \"%s\": must be one of tcp, auto, rdma, shm, loop, nvlink",
                     protocol);
}

/* "host", "host:port", "[v6]:port" or "v6" -> the host without brackets, and the port or 0. */
static int split_host(const char *text, char *host, uint64_t *port)
{
    const char *colon = strrchr(text, ':');
    const char *end = text + strlen(text);
    if (colon != NULL && (memchr(text, ':', (size_t)(colon - text)) == NULL || colon[-1] == ']'))
        end = colon;
    *port = 0;
    if (end == colon) {
        if (base_parse_u64("the port of local_hostname", colon + 1, port) != YOLK_OK ||
            *port == 0 || *port > MAX_PORT)
            return base_fail(YOLK_ERR_INVALID, 0,
                             "local_hostname is \"%s\": the port must be 1 to %d", text, MAX_PORT);
    }
    if (text[0] == '[' && end > text + 1 && end[-1] == ']') {
        text++;
        end--;
    }
    size_t size = (size_t)(end - text);
    if (size >= COMPAT_NAME_MAX - sizeof(":65535"))
        return base_fail(YOLK_ERR_INVALID, 0, "local_hostname has %zu bytes: must be less than %zu",
                         size, (size_t)COMPAT_NAME_MAX - sizeof(":65535"));
    memcpy(host, text, size);
    host[size] = '\0';
    return YOLK_OK;
}

static bool is_loopback(const char *host, size_t size)
{
    return (size == 9 && memcmp(host, "localhost", 9) == 0) ||
           (size == 3 && memcmp(host, "::1", 3) == 0) ||
           (size == 5 && memcmp(host, "[::1]", 5) == 0) ||
           (size >= 4 && memcmp(host, "127.", 4) == 0);
}

/* NULL: the library takes the address that faces the master. */
static const char *host_for_peers(const char *host, const char *master)
{
    const char *colon = strrchr(master, ':');
    if (host[0] == '\0')
        return NULL;
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        log_warn(
            "local_hostname %s is no address of this host: taking the one that faces the master",
            host);
        return NULL;
    }
    if (!is_loopback(host, strlen(host)) || colon == NULL || strncmp(master, "unix:", 5) == 0 ||
        is_loopback(master, (size_t)(colon - master)))
        return host;
    log_warn("local_hostname %s is of no use to other hosts, and the master is at %s: taking the "
             "address that faces the master",
             host, master);
    return NULL;
}

void compat_names_free(struct compat_names *names)
{
    if (names->keeper >= 0)
        close(names->keeper);
    names->keeper = -1;
}

/* Stores that are opened at the same moment have names of their own all the same. */
static unsigned free_port(int *keeper)
{
    const struct random r = random_real();
    unsigned start = FIRST_PORT + (unsigned)random_below(&r, PORT_COUNT), port;
    return process_keep_number("yolk-store", FIRST_PORT, PORT_COUNT, start, &port, keeper) ==
                   YOLK_OK
               ? port
               : start;
}

static int name_this_process(const char *host, uint64_t port, struct compat_names *names)
{
    char own[COMPAT_NAME_MAX - sizeof(":65535")] = "";
    if (host[0] == '\0' && gethostname(own, sizeof(own) - 1) != 0)
        return base_fail(YOLK_ERR_SYSTEM, 0,
                         "this host has no name that fits: give local_hostname");
    compat_names_free(names);
    if (port == 0)
        port = free_port(&names->keeper);
    (void)snprintf(names->name, COMPAT_NAME_MAX,
                   host[0] != '\0' && strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                   host[0] != '\0' ? host : own, (unsigned)port);
    return YOLK_OK;
}

int compat_setup_options(const struct compat_setup *setup, struct compat_names *names,
                         struct yolk_store_options *options)
{
    const char *local = setup->local_hostname == NULL ? "" : setup->local_hostname;
    uint64_t port;
    yolk_store_options_init(options);
    options->master = setup->master == NULL ? "127.0.0.1:50051" : setup->master;
    options->segment_size_bytes = setup->segment_size;
    options->secret_file = getenv("YOLK_SECRET_FILE");
    options->plugin_paths = getenv("YOLK_PLUGIN_PATHS");
    const char *huge = getenv("MC_STORE_USE_HUGEPAGE");
    options->huge_pages = huge != NULL && huge[0] != '\0' && huge[0] != '0';
    bool plugins = options->plugin_paths != NULL && options->plugin_paths[0] != '\0';
    int status = yolk_store_options_environment(options);
    if (status == YOLK_OK)
        status = choose_transport(setup->protocol, plugins, &options->transport);
    if (status == YOLK_OK)
        status = split_host(local, names->host, &port);
    if (status == YOLK_OK)
        status = name_this_process(names->host, port, names);
    options->name = names->name;
    if (status == YOLK_OK)
        options->host = host_for_peers(names->host, options->master);
    return status;
}
