/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that the admin endpoints answer with. */
#ifndef ADMIN_METRICS_H
#define ADMIN_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "master/core.h"
#include "server/server.h"
#include "yolk/status.h"

struct admin_figures {
    struct master_stats master;
    struct server_stats server;
    uint64_t uptime_ms;
};

/* Prometheus text format 0.0.4. */
YOLK_MUST_USE int admin_metrics_text(const struct admin_figures *figures, struct base_buf *out);
/* One line for people, with a newline. */
YOLK_MUST_USE int admin_summary_text(const struct admin_figures *figures, struct base_buf *out);
/* A JSON object, with a newline. */
YOLK_MUST_USE int admin_health_text(const struct admin_figures *figures, struct base_buf *out);

#endif
