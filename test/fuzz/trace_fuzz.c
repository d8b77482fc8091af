/* SPDX-License-Identifier: Apache-2.0 */
/* A file of requests to replay. */
#include "cli/trace.h"
#include "kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_file file;
    struct trace trace = {0};
    char error[256] = "";
    fuzz_file_make(&file, ".jsonl", data, size);
    int status = trace_load(&trace, file.path, size % 5, error, sizeof(error));
    FUZZ_MUST(status == 0 || (status == -1 && error[0] != '\0'));
    FUZZ_MUST(strnlen(error, sizeof(error)) < sizeof(error));
    if (status == 0 && size % 5 > 0)
        FUZZ_MUST(trace.count <= size % 5);
    uint64_t sum = 0;
    for (size_t i = 0; i < trace.count; i++) {
        FUZZ_MUST(trace.requests[i].first + trace.requests[i].count <= trace.id_count);
        for (size_t k = 0; k < trace.requests[i].count; k++)
            sum += trace_ids(&trace, i)[k];
    }
    FUZZ_MUST(trace.id_count > 0 || sum == 0);
    trace_free(&trace);
    fuzz_file_remove(&file);
    return 0;
}
