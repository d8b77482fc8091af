/* SPDX-License-Identifier: Apache-2.0 */
/* What each tenant and intent may have in flight, in which priority, and what may be done to a
 * request beyond that: TENT's contract as JSON. Pure; the accounts are admission's.
 *
 * A field is looked for at the tenant's intent, then at the tenant, then in the defaults. Who
 * shares an account: a tenant that is named has one of its own, also where its limit is the default
 * one; an intent has one of its own where it sets the limit itself, else it shares the tenant's;
 * all tenants that are not named share one. */
#ifndef YOLK_ENGINE_QOS_H
#define YOLK_ENGINE_QOS_H

#include "engine/admission.h"

enum {
    QOS_TENANTS_MAX = 256,
    QOS_INTENTS = YOLK_INTENT_STAGING_INTERNAL + 1,
    /* What may be done to a request that the contract has no room for. */
    QOS_DELAY = 1,
    QOS_FALLBACK_TRANSPORT = 2, /* another transport than the first one in order */
    QOS_REJECT = 4,
    QOS_ALL = 7
};

struct qos_class {
    struct admission_class admission;
    bool has_priority; /* in place of the request's own */
    enum yolk_priority priority;
    uint8_t actions;
};

struct qos_tenant {
    char *name; /* NULL: all that are not named */
    struct qos_class classes[QOS_INTENTS];
    struct admission_account accounts[QOS_INTENTS + 1]; /* the last is the tenant's */
};

struct qos {
    struct qos_tenant *tenants; /* [0] is that of all others */
    uint32_t count;
};

/* NULL: no contract, one class for all without limits. CONFIG: the text names the key, its value
 * and the rule; keys that are not known are errors, and so are actions that the engine cannot do.
 */
YOLK_MUST_USE enum yolk_status qos_parse(const char *text, struct qos *out);
void qos_free(struct qos *qos);
/* tenant NULL, or one that is not named: the defaults. */
struct qos_class *qos_find(struct qos *qos, const char *tenant, enum yolk_intent intent);

#endif
