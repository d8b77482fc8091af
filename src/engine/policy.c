/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/policy.h"

#include <string.h>

#include "base/error.h"

bool policy_is_known_name(const char *name)
{
    static const char *const names[] = {"rdma",          "mnnvl",       "shm", "nvlink", "gds",
                                        "uring",         "tcp",         "ucx", "loop",   "null",
                                        "posix",         "ascend",      "tpu", "ub",     "mpcomm",
                                        "ascend_direct", "sunrise_link"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

const char *policy_plain_name(const char *name)
{
    return strcmp(name, "io_uring") == 0 ? "uring" : name;
}

/* -- The default order -- */

/* Files before what reaches other processes: tcp serves files too, for those who cannot read them
 * themselves. */
static int rank_of(const struct policy_transport *transport)
{
    static const struct {
        const char *name;
        int rank;
    } known[] = {{"loop", 0},   {"gds", 11}, {"uring", 12}, {"posix", 13}, {"nvlink", 20},
                 {"mnnvl", 21}, {"shm", 30}, {"ucx", 50},   {"rdma", 51},  {"tcp", 70}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(transport->name, known[i].name) == 0)
            return known[i].rank;
    if ((transport->caps & YOLK_CAP_SAME_PROCESS) != 0)
        return 10;
    return (transport->caps & YOLK_CAP_SAME_MACHINE) != 0 ? 40 : 60;
}

void policy_default_order(const struct policy_transport *transports, uint32_t count,
                          uint8_t order[])
{
    for (uint32_t n = 0; n < count; n++) {
        int rank = rank_of(&transports[n]);
        uint32_t place = n;
        for (; place > 0 && rank_of(&transports[order[place - 1]]) > rank; place--)
            order[place] = order[place - 1];
        order[place] = (uint8_t)n;
    }
}

bool policy_caps_cover(uint64_t caps, enum policy_memory local, enum policy_memory remote)
{
    bool host = local == POLICY_CPU;
    if ((caps & YOLK_CAPS_MEMORY) == 0) /* a table that says nothing of it knows host memory only */
        return host && (remote == POLICY_CPU || remote == POLICY_FILE);
    if (remote == POLICY_FILE)
        return (caps & (host ? YOLK_CAP_DRAM_TO_FILE : YOLK_CAP_GPU_TO_FILE)) != 0;
    if (remote == POLICY_CPU)
        return (caps & (host ? YOLK_CAP_DRAM_TO_DRAM : YOLK_CAP_GPU_TO_DRAM)) != 0;
    return (caps & (host ? YOLK_CAP_DRAM_TO_GPU : YOLK_CAP_GPU_TO_GPU)) != 0;
}

/* -- Matching -- */

static bool kinds_fit(enum policy_memory wanted, enum policy_memory given)
{
    return wanted == POLICY_ANY || wanted == given;
}

static bool fits(const struct policy *policy, const struct policy_request *request)
{
    if (policy->file != request->file)
        return false;
    if (request->name != NULL)
        return true; /* chosen by name: nothing else counts */
    return request->size >= policy->min_size && request->size <= policy->max_size &&
           (!policy->has_same_machine || policy->same_machine == request->same_machine) &&
           kinds_fit(policy->local, request->local) &&
           (request->file || kinds_fit(policy->remote, request->remote)) &&
           (!policy->has_priority || policy->priority == request->priority) &&
           (!policy->has_intent || policy->intent == request->intent);
}

enum yolk_status policy_match(const struct policy_set *set, const struct policy_request *request,
                              const struct policy **out)
{
    *out = NULL;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct policy *policy = &set->policies[i];
        if (request->name != NULL && strcmp(request->name, policy->name) != 0)
            continue;
        if (fits(policy, request)) {
            *out = policy;
            return YOLK_OK;
        }
        if (request->name != NULL)
            return base_fail(YOLK_ERR_NO_ROUTE, 0, "policy \"%s\" is for %s segments", policy->name,
                             policy->file ? "file" : "memory");
    }
    if (request->name != NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "policy \"%.60s\": the engine has none of this name",
                         request->name);
    return base_fail(YOLK_ERR_NO_ROUTE, 0,
                     "none of the %u policies fits a request of %llu bytes, %s to %s, %s, priority "
                     "%s, intent %s",
                     set->count, (unsigned long long)request->size,
                     policy_memory_name(request->local), policy_memory_name(request->remote),
                     request->same_machine ? "same machine" : "other machine",
                     policy_priority_name(request->priority), policy_intent_name(request->intent));
}
