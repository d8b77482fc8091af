/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which files go wrong in tests. */
#include "base/error.h"
#include "kit.h"
#include "platform/file_inject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *rules = fuzz_text(data, size);
    struct file_system real = file_system_real();
    struct file_inject *inject = NULL;
    base_error_clear();
    if (file_inject_create(&real, rules, &inject) == YOLK_OK) {
        FUZZ_MUST(file_inject_hits(inject) == 0);
        file_inject_destroy(inject);
    } else {
        FUZZ_MUST(inject == NULL && yolk_last_error()[0] != '\0');
    }
    free(rules);
    return 0;
}
