/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of the shm transport. What is taken must mean the same when it is sent on. */
#include <string.h>

#include "base/error.h"
#include "kit.h"
#include "transport/shm/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shm_open open, open_again;
    struct shm_opened opened, opened_again;
    uint8_t out[SHM_OPENED_SIZE];
    if (size >= SHM_OPEN_SIZE && shm_open_decode(data, &open) == YOLK_OK) {
        shm_open_encode(&open, out);
        FUZZ_MUST(shm_open_decode(out, &open_again) == YOLK_OK);
        FUZZ_MUST(open.segment == open_again.segment && open.writable == open_again.writable);
    }
    if (size >= SHM_OPENED_SIZE && shm_opened_decode(data, &opened) == YOLK_OK) {
        FUZZ_MUST(opened.status <= YOLK_OK && opened.size <= opened.map_size);
        shm_opened_encode(&opened, out);
        FUZZ_MUST(shm_opened_decode(out, &opened_again) == YOLK_OK);
        FUZZ_MUST(opened.size == opened_again.size);
        FUZZ_MUST(opened.map_size == opened_again.map_size);
    }
    char text[SHM_FAILED_TEXT], text_again[SHM_FAILED_TEXT];
    uint8_t failed[SHM_FAILED_SIZE];
    if (size >= SHM_FAILED_SIZE && shm_failed_decode(data, text) == YOLK_OK) {
        shm_failed_encode(text, failed);
        FUZZ_MUST(shm_failed_decode(failed, text_again) == YOLK_OK);
        FUZZ_MUST(strcmp(text, text_again) == 0);
    }
    return 0;
}
