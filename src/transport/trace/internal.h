/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_TRANSPORT_TRACE_INTERNAL_H
#define YOLK_TRANSPORT_TRACE_INTERNAL_H

#include "transport/trace/trace.h"

/* Numbers it and keeps it. */
void trace_write(struct trace_log *log, const char *name, struct trace_record *record);

#endif
