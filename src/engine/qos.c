/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/qos.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/policy.h"

/* What one object of the contract sets. */
struct terms {
    bool has_priority, has_bytes, has_requests, has_actions;
    enum yolk_priority priority;
    uint64_t bytes, requests;
    uint8_t actions;
};

static enum yolk_status wrong(const char *where, const struct base_json *value, const char *rule)
{
    bool text = value->type == BASE_JSON_STRING;
    return base_fail(YOLK_ERR_CONFIG, 0, "%s is %s%.80s%s: %s", where, text ? "\"" : "",
                     value->text != NULL ? value->text : base_json_type_name(value->type),
                     text ? "\"" : "", rule);
}

static enum yolk_status read_actions(const char *where, const struct base_json *value, uint8_t *out)
{
    static const struct {
        const char *name;
        uint8_t bit; /* 0: the engine cannot */
    } actions[] = {{"delay", QOS_DELAY},
                   {"fallback_transport", QOS_FALLBACK_TRANSPORT},
                   {"reject", QOS_REJECT},
                   {"local_recompute", 0},
                   {"compress", 0}};
    *out = 0;
    if (value->type != BASE_JSON_ARRAY)
        return wrong(where, value, "must be an array of actions");
    uint32_t n = 0;
    for (const struct base_json *each = value->first; each != NULL; each = each->next, n++) {
        char here[288];
        size_t k = 0, count = sizeof(actions) / sizeof(actions[0]);
        snprintf(here, sizeof(here), "%s[%u]", where, n);
        while (k < count &&
               (each->type != BASE_JSON_STRING || strcmp(each->text, actions[k].name) != 0))
            k++;
        if (k == count)
            return wrong(here, each, "must be \"delay\", \"fallback_transport\" or \"reject\"");
        if (actions[k].bit == 0)
            return wrong(here, each,
                         "the engine cannot do this; it can delay, "
                         "fallback_transport and reject");
        *out |= actions[k].bit;
    }
    return YOLK_OK;
}

/* One key of an object of terms; *known false: it is none. */
static enum yolk_status read_term(const char *where, const struct base_json *value,
                                  struct terms *terms, bool *known)
{
    *known = true;
    if (strcmp(value->name, "priority") == 0) {
        terms->has_priority = true;
        return policy_read_priority(where, value, &terms->priority);
    }
    if (strcmp(value->name, "max_inflight_bytes") == 0) {
        terms->has_bytes = true;
        enum yolk_status status = policy_read_size(where, value, &terms->bytes);
        return status == YOLK_OK && terms->bytes == 0 ? wrong(where, value, "must be at least 1")
                                                      : status;
    }
    if (strcmp(value->name, "max_inflight_requests") == 0) {
        terms->has_requests = true;
        return policy_read_uint(where, value, 1, UINT32_MAX, &terms->requests);
    }
    if (strcmp(value->name, "allowed_degraded_actions") == 0) {
        terms->has_actions = true;
        return read_actions(where, value, &terms->actions);
    }
    *known = false;
    return YOLK_OK;
}

static enum yolk_status read_terms(const char *where, const struct base_json *object,
                                   struct terms *terms)
{
    if (object->type != BASE_JSON_OBJECT)
        return wrong(where, object, "must be an object");
    for (const struct base_json *each = object->first; each != NULL; each = each->next) {
        char here[224];
        bool known;
        snprintf(here, sizeof(here), "%s.%.40s", where, each->name);
        enum yolk_status status = read_term(here, each, terms, &known);
        if (status != YOLK_OK)
            return status;
        if (!known)
            return wrong(here, each,
                         "must be priority, max_inflight_bytes, max_inflight_requests "
                         "or allowed_degraded_actions");
    }
    return YOLK_OK;
}

/* What `own` does not set is as in `outer`. */
static struct terms inherit(const struct terms *outer, const struct terms *own)
{
    struct terms all = *own;
    if (!own->has_priority) {
        all.has_priority = outer->has_priority;
        all.priority = outer->priority;
    }
    if (!own->has_bytes) {
        all.has_bytes = outer->has_bytes;
        all.bytes = outer->bytes;
    }
    if (!own->has_requests) {
        all.has_requests = outer->has_requests;
        all.requests = outer->requests;
    }
    if (!own->has_actions) {
        all.has_actions = outer->has_actions;
        all.actions = outer->actions;
    }
    return all;
}

static struct admission_account account_of(const struct terms *terms)
{
    return (struct admission_account){.bytes_max = terms->has_bytes ? terms->bytes : UINT64_MAX,
                                      .requests_max =
                                          terms->has_requests ? terms->requests : UINT64_MAX};
}

/* own: what each intent sets itself. */
static void build(struct qos_tenant *tenant, const struct terms *whole,
                  const struct terms own[QOS_INTENTS])
{
    struct admission_account *shared = &tenant->accounts[QOS_INTENTS];
    *shared = account_of(whole);
    for (int i = 0; i < QOS_INTENTS; i++) {
        struct qos_class *class = &tenant->classes[i];
        struct terms terms = inherit(whole, &own[i]);
        tenant->accounts[i] = account_of(&own[i]);
        admission_class_init(&class->admission);
        class->has_priority = terms.has_priority;
        class->priority = terms.priority;
        class->actions = terms.has_actions ? terms.actions : QOS_ALL;
        class->admission.bytes_account = own[i].has_bytes   ? &tenant->accounts[i]
                                         : whole->has_bytes ? shared
                                                            : NULL;
        class->admission.requests_account = own[i].has_requests   ? &tenant->accounts[i]
                                            : whole->has_requests ? shared
                                                                  : NULL;
    }
}

static enum yolk_status read_intents(const char *where, const struct base_json *object,
                                     struct terms own[QOS_INTENTS])
{
    bool seen[QOS_INTENTS] = {false};
    if (object->type != BASE_JSON_OBJECT)
        return wrong(where, object, "must be an object of intents");
    for (const struct base_json *each = object->first; each != NULL; each = each->next) {
        char here[224];
        enum yolk_intent intent;
        snprintf(here, sizeof(here), "%s.%.40s", where, each->name);
        const struct base_json name = {.type = BASE_JSON_STRING, .text = each->name};
        enum yolk_status status = policy_read_intent(here, &name, &intent);
        if (status == YOLK_OK && seen[intent])
            status = base_fail(YOLK_ERR_CONFIG, 0, "%s: this intent is there twice", here);
        if (status == YOLK_OK)
            status = read_terms(here, each, &own[intent]);
        if (status != YOLK_OK)
            return status;
        seen[intent] = true;
    }
    return YOLK_OK;
}

static enum yolk_status read_name(const struct qos *qos, const char *where,
                                  const struct base_json *object, char **out)
{
    const struct base_json *name = base_json_member(object, "name");
    if (name == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s has no name", where);
    if (name->type != BASE_JSON_STRING || name->text[0] == '\0' ||
        strlen(name->text) >= MAX_TENANT_SIZE)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s.name is \"%.80s\": must be a text of 1 to %u bytes", where,
                         name->text != NULL ? name->text : "", MAX_TENANT_SIZE - 1);
    for (uint32_t i = 1; i + 1 < qos->count; i++)
        if (strcmp(qos->tenants[i].name, name->text) == 0)
            return base_fail(YOLK_ERR_CONFIG, 0, "%s.name is \"%s\": tenants[%u] has it already",
                             where, name->text, i - 1);
    *out = strdup(name->text);
    return *out != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a contract");
}

static enum yolk_status read_tenant(struct qos *qos, const struct base_json *object,
                                    const struct terms *defaults, struct qos_tenant *tenant)
{
    char where[64], here[128];
    struct terms whole = {0}, own[QOS_INTENTS] = {{0}};
    snprintf(where, sizeof(where), "qos.tenants[%u]", qos->count - 2);
    if (object->type != BASE_JSON_OBJECT)
        return wrong(where, object, "must be an object");
    enum yolk_status status = read_name(qos, where, object, &tenant->name);
    for (const struct base_json *each = object->first; status == YOLK_OK && each != NULL;
         each = each->next) {
        snprintf(here, sizeof(here), "%s.%.40s", where, each->name);
        if (strcmp(each->name, "defaults") == 0)
            status = read_terms(here, each, &whole);
        else if (strcmp(each->name, "intents") == 0)
            status = read_intents(here, each, own);
        else if (strcmp(each->name, "name") != 0)
            status = wrong(here, each, "must be name, defaults or intents");
    }
    whole = inherit(defaults, &whole);
    build(tenant, &whole, own);
    return status;
}

static enum yolk_status read_contract(const struct base_json *object, struct qos *qos)
{
    const struct base_json *tenants = NULL, *version = NULL;
    struct terms defaults = {0};
    const struct terms none[QOS_INTENTS] = {{0}};
    enum yolk_status status = YOLK_OK;
    if (object->type != BASE_JSON_OBJECT)
        return wrong("qos", object, "must be an object");
    for (const struct base_json *each = object->first; status == YOLK_OK && each != NULL;
         each = each->next) {
        char here[64];
        snprintf(here, sizeof(here), "qos.%.40s", each->name);
        if (strcmp(each->name, "version") == 0)
            version = each;
        else if (strcmp(each->name, "tenants") == 0)
            tenants = each;
        else if (strcmp(each->name, "defaults") == 0)
            status = read_terms(here, each, &defaults);
        else
            status = wrong(here, each, "must be version, defaults or tenants");
    }
    if (status != YOLK_OK)
        return status;
    uint64_t number;
    if (version == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "qos.version is missing: must be 1");
    if (policy_read_uint("qos.version", version, 1, 1, &number) != YOLK_OK)
        return wrong("qos.version", version, "must be 1");
    if (tenants != NULL && tenants->type != BASE_JSON_ARRAY)
        return wrong("qos.tenants", tenants, "must be an array");
    uint32_t count = 0;
    for (const struct base_json *each = tenants != NULL ? tenants->first : NULL; each != NULL;
         each = each->next)
        count++;
    if (count > QOS_TENANTS_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "qos.tenants has %u entries: must be at most %d",
                         count, QOS_TENANTS_MAX);
    qos->tenants = base_calloc(count + 1, sizeof(*qos->tenants));
    if (qos->tenants == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a contract");
    build(&qos->tenants[qos->count++], &defaults, none);
    for (const struct base_json *each = tenants != NULL ? tenants->first : NULL;
         status == YOLK_OK && each != NULL; each = each->next) {
        qos->count++;
        status = read_tenant(qos, each, &defaults, &qos->tenants[qos->count - 1]);
    }
    return status;
}

enum yolk_status qos_parse(const char *text, struct qos *out)
{
    static const char nothing[] = "{\"version\": 1}";
    struct base_json *root;
    memset(out, 0, sizeof(*out));
    if (text == NULL)
        text = nothing;
    int status = base_json_parse("qos_json", text, strlen(text), &root);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    const struct base_json *contract = base_json_member(root, "qos");
    if (contract != NULL && (root->first != contract || contract->next != NULL))
        status = base_fail(YOLK_ERR_CONFIG, 0, "qos_json has keys beside qos");
    else
        status = read_contract(contract != NULL ? contract : root, out);
    base_json_free(root);
    if (status != YOLK_OK)
        qos_free(out);
    return (enum yolk_status)status;
}

void qos_free(struct qos *qos)
{
    for (uint32_t i = 0; i < qos->count; i++)
        free(qos->tenants[i].name);
    free(qos->tenants);
    memset(qos, 0, sizeof(*qos));
}

struct qos_class *qos_find(struct qos *qos, const char *tenant, enum yolk_intent intent)
{
    for (uint32_t i = 1; tenant != NULL && i < qos->count; i++)
        if (strcmp(qos->tenants[i].name, tenant) == 0)
            return &qos->tenants[i].classes[intent];
    return &qos->tenants[0].classes[intent];
}
