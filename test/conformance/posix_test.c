/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"
#include "transport/posix/posix.h"

int main(void)
{
    const struct conformance_fixture fixture = {
        .ops = transport_posix_ops(), .same_address = 1, .serves_files = 1};
    return conformance_run(&fixture);
}
