/* SPDX-License-Identifier: Apache-2.0 */
/* Policies out of their text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/policy.h"

static const char *const intent_names[] = {
    "unspec",     "foreground_get", "background_prefetch", "migration",
    "checkpoint", "weight_loading", "staging_internal"};
static const char *const priority_names[] = {"high", "medium", "low"};
static const char *const memory_names[] = {"cpu", "cuda", "rocm", "tpu", "file", "*"};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const char *policy_intent_name(enum yolk_intent intent)
{
    return intent_names[intent];
}

const char *policy_priority_name(enum yolk_priority priority)
{
    return priority_names[priority];
}

const char *policy_memory_name(enum policy_memory memory)
{
    return memory_names[memory];
}

static enum yolk_status wrong(const char *where, const struct base_json *value, const char *rule)
{
    bool plain = value->text != NULL;
    return base_fail(YOLK_ERR_CONFIG, 0, "%s is %s%.80s%s: %s", where,
                     value->type == BASE_JSON_STRING ? "\"" : "",
                     plain ? value->text : base_json_type_name(value->type),
                     value->type == BASE_JSON_STRING ? "\"" : "", rule);
}

static enum yolk_status read_word(const char *where, const struct base_json *value,
                                  const char *const names[], size_t count, const char *rule,
                                  uint32_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        char number[8];
        snprintf(number, sizeof(number), "%u", i);
        if ((value->type == BASE_JSON_STRING && strcasecmp(value->text, names[i]) == 0) ||
            (value->type == BASE_JSON_NUMBER && strcmp(value->text, number) == 0)) {
            *out = i;
            return YOLK_OK;
        }
    }
    return wrong(where, value, rule);
}

enum yolk_status policy_read_intent(const char *where, const struct base_json *value,
                                    enum yolk_intent *out)
{
    uint32_t n = 0;
    enum yolk_status status =
        read_word(where, value, intent_names, COUNT_OF(intent_names),
                  "must be unspec, foreground_get, background_prefetch, migration, checkpoint, "
                  "weight_loading, staging_internal or 0 to 6",
                  &n);
    if (status == YOLK_OK)
        *out = (enum yolk_intent)n;
    return status;
}

enum yolk_status policy_read_priority(const char *where, const struct base_json *value,
                                      enum yolk_priority *out)
{
    uint32_t n = 0;
    enum yolk_status status = read_word(where, value, priority_names, COUNT_OF(priority_names),
                                        "must be high, medium, low or 0 to 2", &n);
    if (status == YOLK_OK)
        *out = (enum yolk_priority)n;
    return status;
}

static enum yolk_status read_memory(const char *where, const struct base_json *value,
                                    enum policy_memory *out)
{
    static const char *const names[] = {"cpu", "cuda", "rocm", "tpu"};
    if (value->type == BASE_JSON_STRING && strcmp(value->text, "*") == 0) {
        *out = POLICY_ANY;
        return YOLK_OK;
    }
    for (uint32_t i = 0; value->type == BASE_JSON_STRING && i < COUNT_OF(names); i++)
        if (strcmp(value->text, names[i]) == 0) {
            *out = (enum policy_memory)i;
            return YOLK_OK;
        }
    return wrong(where, value, "must be \"cpu\", \"cuda\", \"rocm\", \"tpu\" or \"*\"");
}

enum yolk_status policy_read_size(const char *where, const struct base_json *value, uint64_t *out)
{
    if (value->type == BASE_JSON_NUMBER && base_parse_u64(where, value->text, out) == YOLK_OK)
        return YOLK_OK;
    if (value->type == BASE_JSON_STRING && base_parse_size(where, value->text, out) == YOLK_OK)
        return YOLK_OK;
    return wrong(where, value, "must be a number of bytes or a text like \"64MiB\"");
}

enum yolk_status policy_read_uint(const char *where, const struct base_json *value, uint64_t least,
                                  uint64_t most, uint64_t *out)
{
    char rule[96];
    if (value->type == BASE_JSON_NUMBER && base_parse_u64(where, value->text, out) == YOLK_OK &&
        *out >= least && *out <= most)
        return YOLK_OK;
    snprintf(rule, sizeof(rule), "must be a whole number from %llu to %llu",
             (unsigned long long)least, (unsigned long long)most);
    return wrong(where, value, rule);
}

static enum yolk_status read_text(const char *where, const struct base_json *value, size_t most,
                                  char **out)
{
    if (value->type != BASE_JSON_STRING)
        return wrong(where, value, "must be a text");
    if (value->text[0] == '\0' || strlen(value->text) > most)
        return wrong(where, value, "must not be empty, and not longer than 63 bytes");
    if (*out == NULL)
        *out = strdup(value->text);
    return *out != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a policy");
}

static enum yolk_status read_bool(const char *where, const struct base_json *value, bool *out)
{
    if (value->type != BASE_JSON_BOOL)
        return wrong(where, value, "must be true or false");
    *out = value->boolean;
    return YOLK_OK;
}

struct reader {
    policy_find find;
    void *self;
};

/* Names by commas; a policy's are bounded, and so is this. */
static enum yolk_status note_absent(struct policy *policy, const char *name)
{
    char text[POLICY_TRANSPORTS_MAX * 34];
    const char *before = policy->absent != NULL ? policy->absent : "";
    snprintf(text, sizeof(text), "%s%s%s", before, before[0] != '\0' ? ", " : "", name);
    free(policy->absent);
    policy->absent = strdup(text);
    return policy->absent != NULL ? YOLK_OK
                                  : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a policy");
}

static enum yolk_status read_transports(const struct reader *reader, const char *where,
                                        const struct base_json *value, struct policy *policy)
{
    if (value->type != BASE_JSON_ARRAY)
        return wrong(where, value, "must be an array of transports' names");
    uint32_t n = 0, seen = 0;
    for (const struct base_json *each = value->first; each != NULL; each = each->next, n++) {
        char here[160];
        snprintf(here, sizeof(here), "%s[%u]", where, n);
        if (each->type != BASE_JSON_STRING || strlen(each->text) > 31)
            return wrong(here, each, "must be a transport's name");
        if (n == POLICY_TRANSPORTS_MAX)
            return wrong(here, each, "a policy names at most 32 transports");
        for (const struct base_json *other = value->first; other != each; other = other->next)
            if (strcmp(policy_plain_name(other->text), policy_plain_name(each->text)) == 0)
                return wrong(here, each, "must not be named twice");
        int index = reader->find(reader->self, policy_plain_name(each->text));
        if (index == POLICY_NO_SUCH)
            return wrong(here, each,
                         "must be a transport of this engine or a known one (tcp, shm, "
                         "io_uring, posix, gds, nvlink, ...)");
        if (index == POLICY_NOT_HERE) {
            enum yolk_status status = note_absent(policy, each->text);
            if (status != YOLK_OK)
                return status;
            continue;
        }
        if ((seen & UINT32_C(1) << index) == 0)
            policy->order[policy->order_count++] = (uint8_t)index;
        seen |= UINT32_C(1) << index;
    }
    policy->orders = n > 0;
    return YOLK_OK;
}

static enum yolk_status read_devices(const char *where, const struct base_json *value,
                                     struct policy *policy)
{
    if (value->type != BASE_JSON_ARRAY)
        return wrong(where, value, "must be an array of devices' names");
    for (const struct base_json *each = value->first; each != NULL; each = each->next) {
        char here[160];
        snprintf(here, sizeof(here), "%s[%u]", where, policy->device_count);
        if (policy->device_count == POLICY_DEVICES_MAX)
            return wrong(here, each, "a policy names at most 64 devices");
        if (policy->devices == NULL)
            policy->devices = base_calloc(POLICY_DEVICES_MAX, sizeof(*policy->devices));
        if (policy->devices == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a policy");
        enum yolk_status status = read_text(here, each, 63, &policy->devices[policy->device_count]);
        if (status != YOLK_OK)
            return status;
        policy->device_count++;
    }
    policy->has_no_effect = policy->has_no_effect || policy->device_count > 0;
    return YOLK_OK;
}

static enum yolk_status read_type(const char *where, const struct base_json *value, bool *file)
{
    if (value->type != BASE_JSON_STRING ||
        (strcmp(value->text, "file") != 0 && strcmp(value->text, "memory") != 0))
        return wrong(where, value, "must be \"file\" or \"memory\"");
    *file = strcmp(value->text, "file") == 0;
    return YOLK_OK;
}

enum key {
    KEY_NAME,
    KEY_TYPE,
    KEY_SAME_MACHINE,
    KEY_LOCAL,
    KEY_REMOTE,
    KEY_MIN,
    KEY_MAX,
    KEY_PRIORITY,
    KEY_INTENT,
    KEY_DEVICES,
    KEY_TRANSPORTS,
    KEY_QP_POOL,
    KEY_SERVICE_LEVEL,
    KEY_TRAFFIC_CLASS
};
static const char *const keys[] = {"name",          "segment_type", "same_machine", "local_memory",
                                   "remote_memory", "min_size",     "max_size",     "priority",
                                   "intent_type",   "devices",      "transports",   "qp_pool",
                                   "service_level", "traffic_class"};

static enum yolk_status read_key(const struct reader *reader, const char *where, enum key key,
                                 const struct base_json *value, struct policy *policy)
{
    uint64_t number;
    switch (key) {
    case KEY_NAME:
        return read_text(where, value, 63, &policy->name);
    case KEY_TYPE:
        return read_type(where, value, &policy->file);
    case KEY_SAME_MACHINE:
        policy->has_same_machine = true;
        return read_bool(where, value, &policy->same_machine);
    case KEY_LOCAL:
        return read_memory(where, value, &policy->local);
    case KEY_REMOTE:
        return read_memory(where, value, &policy->remote);
    case KEY_MIN:
        return policy_read_size(where, value, &policy->min_size);
    case KEY_MAX:
        return policy_read_size(where, value, &policy->max_size);
    case KEY_PRIORITY:
        policy->has_priority = true;
        return policy_read_priority(where, value, &policy->priority);
    case KEY_INTENT:
        policy->has_intent = true;
        return policy_read_intent(where, value, &policy->intent);
    case KEY_DEVICES:
        return read_devices(where, value, policy);
    case KEY_TRANSPORTS:
        return read_transports(reader, where, value, policy);
    case KEY_QP_POOL:
        policy->has_no_effect = true;
        return read_text(where, value, 63, &policy->qp_pool);
    case KEY_SERVICE_LEVEL:
        policy->has_no_effect = true;
        return policy_read_uint(where, value, 0, 15, &number);
    case KEY_TRAFFIC_CLASS:
        policy->has_no_effect = true;
        return policy_read_uint(where, value, 0, 255, &number);
    }
    return YOLK_ERR_CONFIG;
}

static enum yolk_status read_policy(const struct reader *reader, const char *where,
                                    const struct base_json *object, struct policy *policy)
{
    policy->local = POLICY_ANY;
    policy->remote = POLICY_ANY;
    policy->max_size = UINT64_MAX;
    if (object->type != BASE_JSON_OBJECT)
        return wrong(where, object, "must be an object");
    if (base_json_member(object, "segment_type") == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s has no segment_type: must be \"file\" or "
                         "\"memory\"",
                         where);
    for (const struct base_json *each = object->first; each != NULL; each = each->next) {
        char here[128];
        uint32_t k = 0;
        snprintf(here, sizeof(here), "%s.%.40s", where, each->name);
        while (k < COUNT_OF(keys) && strcmp(keys[k], each->name) != 0)
            k++;
        if (k == COUNT_OF(keys) && strcmp(each->name, "intent") == 0)
            k = KEY_INTENT;
        if (k == COUNT_OF(keys))
            return wrong(here, each, "a policy has no such key");
        enum yolk_status status = read_key(reader, here, (enum key)k, each, policy);
        if (status != YOLK_OK)
            return status;
    }
    if (policy->min_size > policy->max_size)
        return base_fail(
            YOLK_ERR_CONFIG, 0, "%s.min_size is %llu: must not be above max_size, %llu", where,
            (unsigned long long)policy->min_size, (unsigned long long)policy->max_size);
    if (policy->name == NULL)
        policy->name = strdup(where);
    if (policy->absent == NULL)
        policy->absent = strdup("");
    return policy->name != NULL && policy->absent != NULL
               ? YOLK_OK
               : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a policy");
}

static enum yolk_status read_all(const struct reader *reader, const struct base_json *array,
                                 struct policy_set *set)
{
    uint32_t count = 0;
    for (const struct base_json *each = array->first; each != NULL; each = each->next)
        count++;
    if (count > POLICY_COUNT_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "policy has %u entries: must be at most %d", count,
                         POLICY_COUNT_MAX);
    set->policies = base_calloc(count + 1, sizeof(*set->policies));
    if (set->policies == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u policies", count);
    for (const struct base_json *each = array->first; each != NULL; each = each->next) {
        char where[32];
        snprintf(where, sizeof(where), "policy[%u]", set->count);
        struct policy *policy = &set->policies[set->count++];
        enum yolk_status status = read_policy(reader, where, each, policy);
        if (status != YOLK_OK)
            return status;
        set->asks_machine = set->asks_machine || policy->has_same_machine;
        for (uint32_t i = 0; i + 1 < set->count; i++)
            if (strcmp(set->policies[i].name, policy->name) == 0)
                return base_fail(YOLK_ERR_CONFIG, 0, "%s.name is \"%s\": policy[%u] has it already",
                                 where, policy->name, i);
    }
    return YOLK_OK;
}

enum yolk_status policy_parse(const char *text, policy_find find, void *self,
                              struct policy_set *out)
{
    const struct reader reader = {find, self};
    struct base_json *root;
    memset(out, 0, sizeof(*out));
    int status = base_json_parse("policy_json", text, strlen(text), &root);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    const struct base_json *array = root;
    if (root->type == BASE_JSON_OBJECT) {
        array = base_json_member(root, "policy");
        for (const struct base_json *each = root->first; each != NULL; each = each->next)
            if (each != array) {
                status = wrong(each->name, each, "policy_json has no key but policy");
                goto out;
            }
    }
    if (array == NULL || array->type != BASE_JSON_ARRAY)
        status = base_fail(YOLK_ERR_CONFIG, 0, "policy is %s: must be an array of policies",
                           array == NULL ? "missing" : base_json_type_name(array->type));
    else
        status = read_all(&reader, array, out);
out:
    base_json_free(root);
    if (status != YOLK_OK)
        policy_free(out);
    return (enum yolk_status)status;
}

void policy_free(struct policy_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct policy *policy = &set->policies[i];
        for (uint32_t k = 0; policy->devices != NULL && k < POLICY_DEVICES_MAX; k++)
            free(policy->devices[k]);
        free(policy->devices);
        free(policy->name);
        free(policy->absent);
        free(policy->qp_pool);
    }
    free(set->policies);
    memset(set, 0, sizeof(*set));
}
