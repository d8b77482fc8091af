/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk sim` */
#include "cli/common.h"
#include "sim/sim.h"

static const struct cli_command command = {
    "sim", "", "Simulates a cluster under faults, by seed; exit status 1 if a check fails.",
    COMMAND_SIM};

int cli_sim(int argc, char **argv)
{
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    code = sim_main(&config, "yolk sim");
    base_config_free(&config);
    return code;
}
