/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file: the first byte says which kind, the rest is its text. */
#include "base/error.h"
#include "cli/config_file.h"
#include "kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct fuzz_file file;
    struct base_config config;
    fuzz_file_make(&file, data[0] & 1 ? ".json" : ".yaml", data + 1, size - 1);
    FUZZ_MUST(base_config_init(&config, COMMAND_ALL) == YOLK_OK);
    base_error_clear();
    int status = config_file_load(&config, file.path);
    if (status == YOLK_OK)
        status = base_config_check(&config);
    /* A refusal says what is wrong. */
    FUZZ_MUST(status == YOLK_OK || yolk_last_error()[0] != '\0');
    base_config_free(&config);
    fuzz_file_remove(&file);
    return 0;
}
