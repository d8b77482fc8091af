/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "suite.h"
#include "transport/tcp/tcp.h"

static uint16_t port;

/* A port that nobody has now. Another process may take it first: then the provider fails to start,
 * loudly. */
static uint16_t find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        perror("no port");
    if (fd >= 0)
        close(fd);
    return ntohs(address.sin_port);
}

/* A fixed port, so that a provider that was restarted listens at the address of its former life. */
static void prepare(struct yolk_transport_options *options, int is_provider)
{
    static const uint8_t secret[] = "a shared secret";
    options->secret = secret;
    options->secret_size = sizeof(secret);
    options->port = is_provider ? port : 0;
}

int main(void)
{
    const struct conformance_fixture fixture = {
        .ops = transport_tcp_ops(), .prepare = prepare, .same_address = 1, .checks_tickets = 1};
    port = find_port();
    return conformance_run(&fixture);
}
