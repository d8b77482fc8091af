/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"
#include "transport/loop/loop.h"

int main(void)
{
    const struct conformance_fixture fixture = {
        .ops = transport_loop_ops(), .same_address = 1, .checks_tickets = 1};
    return conformance_run(&fixture);
}
