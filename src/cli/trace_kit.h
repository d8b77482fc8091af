/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: the published conversation trace. */
#ifndef CLI_TRACE_KIT_H
#define CLI_TRACE_KIT_H

#include <stdio.h>
#include <stdlib.h>

#include "cli/trace.h"

/* Loads it from the folder that YOLK_TRACE_DIR names; without one the running test is skipped. */
static inline void trace_load_published(struct trace *trace)
{
    const char *directory = getenv("YOLK_TRACE_DIR");
    if (!directory) {
        print_message("skipped: YOLK_TRACE_DIR is not set\n");
        skip();
    }
    char path[4096], error[256] = "";
    snprintf(path, sizeof path, "%s/conversation_trace.jsonl", directory);
    if (trace_load(trace, path, 0, error, sizeof error))
        fail_msg("%s", error);
}

#endif
