/* SPDX-License-Identifier: Apache-2.0 */
/* Which transports a request may take and in what order: policies as TENT writes them, the default
 * order, and what a transport's capability bits allow. Pure.
 *
 * Transports are indexes into the engine's table here; names are looked up once, when the policies
 * are read. */
#ifndef YOLK_ENGINE_POLICY_H
#define YOLK_ENGINE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/engine.h>

#include "base/json.h"

enum { POLICY_TRANSPORTS_MAX = 32, POLICY_COUNT_MAX = 256, POLICY_DEVICES_MAX = 64 };

/* What kind of memory one side of a request is. */
enum policy_memory { POLICY_CPU, POLICY_CUDA, POLICY_ROCM, POLICY_TPU, POLICY_FILE, POLICY_ANY };

/* What people write. CONFIG: the text names `where`, the value and the rule. Intents and priorities
 * are words, in any case, or TENT's numbers. */
YOLK_MUST_USE enum yolk_status policy_read_intent(const char *where, const struct base_json *value,
                                                  enum yolk_intent *out);
YOLK_MUST_USE enum yolk_status
policy_read_priority(const char *where, const struct base_json *value, enum yolk_priority *out);
/* A number of bytes, or text with a unit ("64MiB"). */
YOLK_MUST_USE enum yolk_status policy_read_size(const char *where, const struct base_json *value,
                                                uint64_t *out);
YOLK_MUST_USE enum yolk_status policy_read_uint(const char *where, const struct base_json *value,
                                                uint64_t least, uint64_t most, uint64_t *out);
const char *policy_intent_name(enum yolk_intent intent);
const char *policy_priority_name(enum yolk_priority priority);
const char *policy_memory_name(enum policy_memory memory);

struct policy {
    char *name;
    bool file; /* segment_type */
    bool has_same_machine, same_machine;
    bool has_priority, has_intent;
    bool orders; /* it lists transports; else the default order holds */
    enum policy_memory local, remote;
    enum yolk_priority priority;
    enum yolk_intent intent;
    uint64_t min_size, max_size; /* both inclusive */
    uint8_t order[POLICY_TRANSPORTS_MAX];
    uint32_t order_count;
    char *absent;   /* names of its transports that are not in the engine, by commas; "" */
    char **devices; /* NULL: all */
    uint32_t device_count;
    char *qp_pool;      /* NULL: none */
    bool has_no_effect; /* it sets what no transport here acts on: devices, qp_pool, ... */
};

struct policy_set {
    struct policy *policies;
    uint32_t count;
    bool asks_machine; /* some policy depends on same_machine */
};

/* Index of this name, or one of these. */
enum { POLICY_NOT_HERE = -1, POLICY_NO_SUCH = -2 };
typedef int (*policy_find)(void *self, const char *name);

/* CONFIG: the text names the key, its value and the rule. */
YOLK_MUST_USE enum yolk_status policy_parse(const char *text, policy_find find, void *self,
                                            struct policy_set *out);
void policy_free(struct policy_set *set);

struct policy_request {
    const char *name; /* NULL: by conditions */
    bool file;
    bool same_machine;
    enum policy_memory local, remote;
    enum yolk_priority priority;
    enum yolk_intent intent;
    uint64_t size;
};
/* *out: the policy. INVALID: none of this name; NO_ROUTE: it is for the other type of segment, or
 * none fits. */
YOLK_MUST_USE enum yolk_status policy_match(const struct policy_set *set,
                                            const struct policy_request *request,
                                            const struct policy **out);
/* The order in which transports are tried where no policy says so; see
 * yolk_engine_describe_route. */
struct policy_transport {
    const char *name;
    uint64_t caps;
};
void policy_default_order(const struct policy_transport *transports, uint32_t count,
                          uint8_t order[]);

/* Do the capability bits cover this pair of kinds? It is judged as (local, remote), whatever the
 * direction. */
bool policy_caps_cover(uint64_t caps, enum policy_memory local, enum policy_memory remote);
/* TENT's names and ours of transports that an engine may lack. */
bool policy_is_known_name(const char *name);
/* "io_uring" is uring. */
const char *policy_plain_name(const char *name);

#endif
