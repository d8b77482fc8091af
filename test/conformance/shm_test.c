/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"
#include "transport/shm/shm.h"

int main(void)
{
    /* Consumers map the memory, so single writes are not seen by the provider. */
    const struct conformance_fixture fixture = {.ops = transport_shm_ops(), .checks_tickets = 0};
    return conformance_run(&fixture);
}
