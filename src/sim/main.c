/* SPDX-License-Identifier: Apache-2.0 */
/* yolk-sim: the simulator with deliberate mistakes compiled in. */
#include <stdio.h>
#include <string.h>

#include "base/mutation.h"
#include "sim/sim.h"

static int print_help(void)
{
    struct base_buf text;
    base_buf_init(&text, 64 * 1024);
    int status = base_config_help(COMMAND_MUTANTS, &text);
    if (status == YOLK_OK) {
        printf("yolk-sim\n\nThe same as yolk sim, with deliberate mistakes.\n\n");
        fwrite(text.data, 1, text.size, stdout);
    }
    base_buf_free(&text);
    return status == YOLK_OK ? 0 : 1;
}

static bool set_mutation(const char *name)
{
    for (int i = 0; i < MUT_COUNT; i++) {
        if (strcmp(base_mutant_name((enum base_mutant)i), name) != 0)
            continue;
        base_mutant_active = (enum base_mutant)i;
        return true;
    }
    fprintf(stderr, "yolk-sim: --mutation: \"%.64s\": must be one of", name);
    for (int i = 0; i < MUT_COUNT; i++)
        fprintf(stderr, " %s", base_mutant_name((enum base_mutant)i));
    fprintf(stderr, "\n");
    return false;
}

int main(int argc, char **argv)
{
    struct base_config config;
    int code = 2;
    if (base_config_init(&config, COMMAND_MUTANTS) != YOLK_OK ||
        base_config_args(&config, argc - 1, argv + 1) != YOLK_OK) {
        fprintf(stderr, "yolk-sim: %s\n", yolk_last_error());
    } else if (config.positional_count > 0) {
        fprintf(stderr, "yolk-sim: \"%s\": no argument is expected\n", config.positional[0]);
    } else if (base_config_bool(&config, SET_HELP)) {
        code = print_help();
    } else if (set_mutation(base_config_string(&config, SET_MUTATION))) {
        code = sim_main(&config, "yolk-sim");
    }
    base_config_free(&config);
    return code;
}
