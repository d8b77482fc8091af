/* SPDX-License-Identifier: Apache-2.0 */
/* Traced, a transport behaves as it does alone; also with faults around the trace. */
#include "suite.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"
#include "transport/trace/trace.h"

static struct trace_options trace;

static void prepare(struct yolk_transport_options *options, int is_provider)
{
    (void)is_provider;
    if (options->wrapped == NULL)
        options->wrapped = &trace;
    else /* the suite's own faults, which are no constant */
        ((struct fault_options *)(uintptr_t)options->wrapped)->inner_wrapped = &trace;
}

int main(void)
{
    static struct trace_log log;
    static struct yolk_transport_ops ops;
    if (trace_log_init(&log, 64, NULL) != YOLK_OK)
        return 1;
    trace = (struct trace_options){.inner = transport_loop_ops(), .log = &log};
    transport_trace_make(&trace, &ops);
    const struct conformance_fixture fixture = {
        .ops = &ops, .prepare = prepare, .same_address = 1, .checks_tickets = 1};
    int failed = conformance_run(&fixture);
    if (log.count < 1000) /* it was in the way of nothing, or of everything */
        failed++;
    trace_log_free(&log);
    return failed;
}
