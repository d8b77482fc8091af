/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/qos.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *text, const char *key, const char *value, const char *rule)
{
    struct qos qos;
    assert_int_equal(qos_parse(text, &qos), YOLK_ERR_CONFIG);
    if (strstr(yolk_last_error(), key) == NULL || strstr(yolk_last_error(), value) == NULL ||
        strstr(yolk_last_error(), rule) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\", \"%s\" or \"%s\"", text, yolk_last_error(), key, value,
                 rule);
    assert_int_equal(qos.count, 0);
}

static void errors(void **state)
{
    (void)state;
#define Q(rest) "{\"version\": 1, " rest "}"
    refused("", "qos_json", "", "");
    refused("[]", "qos", "array", "object");
    refused("{\"defaults\": {}}", "qos.version", "missing", "must be 1");
    refused("{\"version\": 2}", "qos.version", "2", "must be 1");
    refused("{\"qos\": {\"version\": \"1\"}}", "qos.version", "\"1\"", "must be 1");
    refused("{\"qos\": {\"version\": 1}, \"more\": 1}", "qos_json", "", "beside qos");
    refused(Q("\"limits\": {}"), "qos.limits", "object", "version, defaults or tenants");
    refused(Q("\"defaults\": []"), "qos.defaults", "array", "object");
    refused(Q("\"defaults\": {\"max_inflight\": 1}"), "qos.defaults.max_inflight", "1",
            "max_inflight_bytes");
    refused(Q("\"defaults\": {\"max_inflight_bytes\": \"lots\"}"),
            "qos.defaults.max_inflight_bytes", "\"lots\"", "64MiB");
    refused(Q("\"defaults\": {\"max_inflight_bytes\": 0}"), "qos.defaults.max_inflight_bytes", "0",
            "at least 1");
    refused(Q("\"defaults\": {\"max_inflight_requests\": 0}"), "qos.defaults.max_inflight_requests",
            "0", "from 1");
    refused(Q("\"defaults\": {\"max_inflight_requests\": 1.5}"),
            "qos.defaults.max_inflight_requests", "1.5", "whole number");
    refused(Q("\"defaults\": {\"priority\": \"urgent\"}"), "qos.defaults.priority", "\"urgent\"",
            "high, medium, low");
    refused(Q("\"defaults\": {\"allowed_degraded_actions\": \"delay\"}"),
            "qos.defaults.allowed_degraded_actions", "\"delay\"", "array");
    refused(Q("\"defaults\": {\"allowed_degraded_actions\": [\"delay\", \"wait\"]}"),
            "allowed_degraded_actions[1]", "\"wait\"", "must be");
    refused(Q("\"defaults\": {\"allowed_degraded_actions\": [\"compress\"]}"),
            "allowed_degraded_actions[0]", "\"compress\"", "cannot do");
    refused(Q("\"defaults\": {\"allowed_degraded_actions\": [\"local_recompute\"]}"),
            "allowed_degraded_actions[0]", "\"local_recompute\"", "cannot do");
    refused(Q("\"tenants\": {}"), "qos.tenants", "object", "array");
    refused(Q("\"tenants\": [{}]"), "qos.tenants[0]", "", "no name");
    refused(Q("\"tenants\": [{\"name\": \"\"}]"), "qos.tenants[0].name", "\"\"", "1 to 63");
    refused(Q("\"tenants\": [{\"name\": \"a\"}, {\"name\": \"a\"}]"), "qos.tenants[1].name",
            "\"a\"", "tenants[0] has it");
    refused(Q("\"tenants\": [{\"name\": \"a\", \"intent\": {}}]"), "qos.tenants[0].intent",
            "object", "name, defaults or intents");
    refused(Q("\"tenants\": [{\"name\": \"a\", \"intents\": {\"fast\": {}}}]"),
            "qos.tenants[0].intents.fast", "fast", "checkpoint");
    refused(Q("\"tenants\": [{\"name\": \"a\", \"intents\": {\"migration\": {\"prio\": 1}}}]"),
            "qos.tenants[0].intents.migration.prio", "1", "must be");
#undef Q
}

static void found_from_intent_to_tenant_to_defaults(void **state)
{
    (void)state;
    struct qos qos;
    int status = qos_parse(
        "{\"qos\": {\"version\": 1,"
        " \"defaults\": {\"max_inflight_requests\": 7, \"priority\": \"medium\"},"
        " \"tenants\": ["
        "  {\"name\": \"a\", \"defaults\": {\"max_inflight_bytes\": \"64MiB\","
        "    \"allowed_degraded_actions\": [\"reject\"]},"
        "   \"intents\": {\"CHECKPOINT\": {\"priority\": \"low\", \"max_inflight_bytes\": 10,"
        "    \"allowed_degraded_actions\": []},"
        "    \"foreground_get\": {\"priority\": 0}}},"
        "  {\"name\": \"b\"}]}}",
        &qos);
    assert_int_equal(status, YOLK_OK);
    const struct qos_class *other = qos_find(&qos, NULL, YOLK_INTENT_UNSPEC);
    const struct qos_class *unknown = qos_find(&qos, "c", YOLK_INTENT_CHECKPOINT);
    const struct qos_class *a = qos_find(&qos, "a", YOLK_INTENT_UNSPEC);
    const struct qos_class *saving = qos_find(&qos, "a", YOLK_INTENT_CHECKPOINT);
    const struct qos_class *getting = qos_find(&qos, "a", YOLK_INTENT_FOREGROUND_GET);
    const struct qos_class *b = qos_find(&qos, "b", YOLK_INTENT_UNSPEC);

    assert_null(other->admission.bytes_account);
    assert_int_equal(other->admission.requests_account->requests_max, 7);
    assert_int_equal(other->actions, QOS_ALL);
    assert_true(other->has_priority);
    assert_int_equal(other->priority, YOLK_PRIORITY_MEDIUM);
    /* All that are not named share, one that is named does not. */
    assert_ptr_equal(other->admission.requests_account, unknown->admission.requests_account);
    assert_ptr_not_equal(other->admission.requests_account, b->admission.requests_account);
    assert_int_equal(b->admission.requests_account->requests_max, 7);

    assert_int_equal(a->admission.bytes_account->bytes_max, 64 << 20);
    assert_int_equal(a->admission.requests_account->requests_max, 7);
    assert_int_equal(a->actions, QOS_REJECT);
    assert_int_equal(a->priority, YOLK_PRIORITY_MEDIUM);
    /* Only an intent that sets a limit has it for itself. */
    assert_int_equal(saving->admission.bytes_account->bytes_max, 10);
    assert_ptr_equal(saving->admission.requests_account, a->admission.requests_account);
    assert_int_equal(saving->priority, YOLK_PRIORITY_LOW);
    assert_int_equal(saving->actions, 0);
    assert_ptr_equal(getting->admission.bytes_account, a->admission.bytes_account);
    assert_int_equal(getting->priority, YOLK_PRIORITY_HIGH);
    assert_int_equal(getting->actions, QOS_REJECT);
    qos_free(&qos);

    assert_int_equal(qos_parse(NULL, &qos), YOLK_OK);
    other = qos_find(&qos, "anybody", YOLK_INTENT_MIGRATION);
    assert_null(other->admission.bytes_account);
    assert_null(other->admission.requests_account);
    assert_false(other->has_priority);
    assert_int_equal(other->actions, QOS_ALL);
    qos_free(&qos);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(found_from_intent_to_tenant_to_defaults),
    };
    return cmocka_run_group_tests_name("engine.qos", tests, NULL, NULL);
}
