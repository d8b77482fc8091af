/* SPDX-License-Identifier: Apache-2.0 */
/* On the fake GPU and cuFile. */
#include "suite.h"
#include "transport/gds/gds.h"

static void prepare(struct yolk_transport_options *options, int is_provider)
{
    (void)is_provider;
    options->gds_enable = 1;
    options->gds_slice_bytes = 256 << 10;
    options->cuda_library = YOLK_FAKES_DIR "/libcuda.so.1";
    options->cufile_library = YOLK_FAKES_DIR "/libcufile.so.0";
}

int main(void)
{
    const struct conformance_fixture fixture = {
        .ops = transport_gds_ops(), .prepare = prepare, .same_address = 1, .serves_files = 1};
    return conformance_run(&fixture);
}
