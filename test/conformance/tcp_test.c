/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"
#include "transport/tcp/tcp.h"

int main(void)
{
    const struct conformance_fixture fixture = {.ops = transport_tcp_ops(), .checks_tickets = 1};
    return conformance_run(&fixture);
}
