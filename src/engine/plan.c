/* SPDX-License-Identifier: Apache-2.0 */
/* What a request wants of its route: policy, hint, flags; what of it can be refused before anything
 * is touched is refused here. */
#define LOG_ROOM "engine"
#include "base/error.h"
#include "base/log.h"
#include "engine/internal.h"

static int find_transport(void *self, const char *name)
{
    uint8_t index = engine_transport_by_name(self, name);
    if (index != ENGINE_NO_TRANSPORT)
        return index;
    return policy_is_known_name(name) ? POLICY_NOT_HERE : POLICY_NO_SUCH;
}

enum yolk_status engine_policies_read(struct yolk_engine *engine, const char *text)
{
    enum yolk_status status = policy_parse(text, find_transport, engine, &engine->policies);
    if (status != YOLK_OK)
        return status;
    engine->has_policies = true;
    for (uint32_t i = 0; i < engine->policies.count; i++) {
        const struct policy *policy = &engine->policies.policies[i];
        if (policy->has_no_effect)
            LOG_AT(LOG_LEVEL_WARN,
                   "policy \"%s\": no transport here chooses among devices, queue pair pools, "
                   "service levels or traffic classes; these have no effect",
                   policy->name);
    }
    return YOLK_OK;
}

const char *engine_policy_name(const struct yolk_engine *engine, struct engine_wish wish)
{
    return wish.policy == ENGINE_NO_POLICY ? NULL : engine->policies.policies[wish.policy].name;
}

uint32_t engine_wish_order(const struct yolk_engine *engine, struct engine_wish wish,
                           uint8_t order[ENGINE_TRANSPORTS_MAX])
{
    const uint8_t *from = engine->order;
    uint32_t count = engine->transport_count, n = 0;
    if (wish.policy != ENGINE_NO_POLICY && engine->policies.policies[wish.policy].orders) {
        from = engine->policies.policies[wish.policy].order;
        count = engine->policies.policies[wish.policy].order_count;
    }
    for (uint32_t i = 0; i < count; i++)
        if (from[i] == wish.hint)
            order[n++] = wish.hint;
    for (uint32_t i = 0; i < count; i++)
        if (from[i] != wish.hint)
            order[n++] = from[i];
    return n;
}

/* Whether a transport that reaches only this process or this machine reaches the segment. Asked
 * once; where another thread or a fault leaves it open, again. */
static bool is_same_machine(struct yolk_engine *engine, struct segment *segment)
{
    uint8_t known = atomic_load_explicit(&segment->machine, memory_order_relaxed);
    if (segment->file || known == ENGINE_MACHINE_SAME)
        return true;
    if (known == ENGINE_MACHINE_OTHER)
        return false;
    uint32_t near = 0;
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((engine->transports[i].ops.caps & (YOLK_CAP_SAME_PROCESS | YOLK_CAP_SAME_MACHINE)) != 0)
            near |= UINT32_C(1) << i;
    const struct route_query query = {
        .segment = segment,
        .opcode = YOLK_READ,
        .accepted = UINT32_MAX,
        .tried = ~near,
        .wish = {.policy = ENGINE_NO_POLICY, .hint = ENGINE_NO_TRANSPORT},
        .wait = true};
    uint8_t index;
    enum yolk_status status = engine_route_pick(engine, &query, engine_now(engine), NULL, &index);
    if (status == YOLK_OK)
        atomic_store(&segment->machine, ENGINE_MACHINE_SAME);
    else if (status == YOLK_ERR_NO_ROUTE || status == YOLK_ERR_UNSUPPORTED)
        atomic_store(&segment->machine, ENGINE_MACHINE_OTHER);
    return status == YOLK_OK;
}

static enum yolk_status choose_policy(struct yolk_engine *engine,
                                      const struct yolk_request *request,
                                      enum yolk_priority priority, struct segment *segment,
                                      const struct registration *registration, uint16_t *out)
{
    if (!engine->has_policies) {
        if (request->policy != NULL)
            return base_fail(YOLK_ERR_INVALID, 0, "policy \"%.60s\": the engine has no policies",
                             request->policy);
        return YOLK_OK;
    }
    const struct policy_request asked = {
        .name = request->policy,
        .file = segment->file,
        .same_machine = engine->policies.asks_machine && is_same_machine(engine, segment),
        .local = registration != NULL ? registration->memory : POLICY_CPU,
        .remote = segment->memory,
        .priority = priority,
        .intent = request->intent,
        .size = request->size};
    const struct policy *policy;
    enum yolk_status status = policy_match(&engine->policies, &asked, &policy);
    if (status == YOLK_OK)
        *out = (uint16_t)(policy - engine->policies.policies);
    return status;
}

/* A hint is never passed over in silence: what can never work is refused before it is tried. */
static enum yolk_status check_hint(struct yolk_engine *engine, const struct yolk_request *request,
                                   struct segment *segment, const struct registration *registration,
                                   struct engine_wish *wish)
{
    wish->hint = engine_transport_by_name(engine, request->hint);
    if (wish->hint == ENGINE_NO_TRANSPORT)
        return base_fail(YOLK_ERR_INVALID, 0, "hint \"%.40s\": the engine has no such transport",
                         request->hint);
    const struct transport *transport = &engine->transports[wish->hint];
    if (transport->endpoint == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "hint \"%s\": the transport is not in use: %s",
                         request->hint, transport->reason);
    const char *why;
    const struct route_query query = {
        .segment = segment,
        .opcode = request->opcode,
        .accepted = registration != NULL ? registration->accepted : UINT32_MAX,
        .wish = *wish,
        .memory = registration != NULL ? registration->memory : POLICY_CPU};
    enum yolk_status status = engine_route_unfit(engine, &query, wish->hint, &why);
    if (status == YOLK_ERR_UNSUPPORTED && registration != NULL && !wish->direct) {
        struct route_query staged = query;
        staged.accepted = stage_accepted(engine, registration);
        staged.memory = POLICY_CPU;
        if (engine_route_unfit(engine, &staged, wish->hint, &why) == YOLK_OK)
            status = YOLK_OK;
    }
    if (status != YOLK_OK)
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "hint \"%s\": %s", request->hint, why);
    uint8_t order[ENGINE_TRANSPORTS_MAX];
    uint32_t count = engine_wish_order(engine, *wish, order);
    if (count == 0 || order[0] != wish->hint)
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "hint \"%s\": policy \"%s\" has not got it",
                         request->hint, engine_policy_name(engine, *wish));
    return YOLK_OK;
}

/* What goes through a buffer on each route is refused before it is tried. */
static enum yolk_status check_direct(struct yolk_engine *engine, const struct yolk_request *request,
                                     struct segment *segment,
                                     const struct registration *registration,
                                     struct engine_wish wish)
{
    const struct route_query query = {
        .segment = segment,
        .opcode = request->opcode,
        .accepted = registration != NULL ? registration->accepted : UINT32_MAX,
        .wish = wish,
        .memory = registration != NULL ? registration->memory : POLICY_CPU,
        .local = request->local,
        .offset = request->offset,
        .size = request->size};
    uint8_t index;
    enum yolk_status status = engine_route_pick(engine, &query, engine_now(engine), NULL, &index);
    if (status != YOLK_ERR_UNSUPPORTED)
        return YOLK_OK; /* works, or does not for the moment */
    struct base_buf reasons;
    base_buf_init(&reasons, 2048);
    (void)!engine_route_pick(engine, &query, engine_now(engine), &reasons, &index);
    status = base_fail(status, 0, "no transport runs it directly: %.*s", (int)reasons.size,
                       reasons.data != NULL ? (const char *)reasons.data : "");
    base_buf_free(&reasons);
    return status;
}

enum yolk_status engine_wish_read(struct yolk_engine *engine, const struct yolk_request *request,
                                  enum yolk_priority priority, struct segment *segment,
                                  const struct registration *registration, struct engine_wish *out)
{
    *out = engine->wish;
    out->direct = out->direct || (request->flags & YOLK_REQUEST_DIRECT) != 0;
    if (engine->has_policies || request->policy != NULL) {
        enum yolk_status status =
            choose_policy(engine, request, priority, segment, registration, &out->policy);
        if (status != YOLK_OK)
            return status;
    }
    if (request->hint != NULL) {
        enum yolk_status status = check_hint(engine, request, segment, registration, out);
        if (status != YOLK_OK)
            return status;
    }
    return out->direct ? check_direct(engine, request, segment, registration, *out) : YOLK_OK;
}
