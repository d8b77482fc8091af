/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "platform/random.h"

static const char *const installed[] = {"tcp", "shm", "uring", "posix", "my_own"};

static int find(void *self, const char *name)
{
    (void)self;
    for (int i = 0; i < 5; i++)
        if (strcmp(installed[i], name) == 0)
            return i;
    return policy_is_known_name(name) ? POLICY_NOT_HERE : POLICY_NO_SUCH;
}

static void refused(const char *text, const char *key, const char *value, const char *rule)
{
    struct policy_set set;
    assert_int_equal(policy_parse(text, find, NULL, &set), YOLK_ERR_CONFIG);
    if (strstr(yolk_last_error(), key) == NULL || strstr(yolk_last_error(), value) == NULL ||
        strstr(yolk_last_error(), rule) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\", \"%s\" or \"%s\"", text, yolk_last_error(), key, value,
                 rule);
    assert_int_equal(set.count, 0);
}

/* Each error names the key, its value and the rule. */
static void errors(void **state)
{
    (void)state;
#define P(rest) "[{\"segment_type\": \"memory\", " rest "}]"
    refused("[{", "policy_json", "", "");
    refused("3", "policy", "number", "must be an array");
    refused("{\"policies\": []}", "policies", "array", "no key but policy");
    refused("[7]", "policy[0]", "7", "must be an object");
    refused("[{}]", "policy[0]", "segment_type", "\"file\" or \"memory\"");
    refused("[{\"segment_type\": \"disk\"}]", "policy[0].segment_type", "\"disk\"", "\"file\"");
    refused("[{\"segment_type\": true}]", "policy[0].segment_type", "true", "\"file\"");
    refused(P("\"same_machine\": 1"), "policy[0].same_machine", "1", "true or false");
    refused(P("\"local_memory\": \"hbm\""), "policy[0].local_memory", "\"hbm\"", "cpu");
    refused(P("\"remote_memory\": 0"), "policy[0].remote_memory", "0", "\"*\"");
    refused(P("\"min_size\": -1"), "policy[0].min_size", "-1", "number of bytes");
    refused(P("\"max_size\": \"many\""), "policy[0].max_size", "\"many\"", "64MiB");
    refused(P("\"min_size\": 5, \"max_size\": 4"), "policy[0].min_size", "5", "not be above");
    refused(P("\"priority\": 3"), "policy[0].priority", "3", "high, medium, low or 0 to 2");
    refused(P("\"intent_type\": \"soon\""), "policy[0].intent_type", "\"soon\"", "checkpoint");
    refused(P("\"intent_type\": 7"), "policy[0].intent_type", "7", "0 to 6");
    refused(P("\"transports\": \"tcp\""), "policy[0].transports", "\"tcp\"", "array");
    refused(P("\"transports\": [\"tcp\", \"tpc\"]"), "policy[0].transports[1]", "\"tpc\"",
            "of this engine or a known one");
    refused(P("\"transports\": [\"io_uring\", \"uring\"]"), "policy[0].transports[1]", "\"uring\"",
            "twice");
    refused(P("\"transports\": [1]"), "policy[0].transports[0]", "1", "name");
    refused(P("\"devices\": [\"\"]"), "policy[0].devices[0]", "\"\"", "empty");
    refused(P("\"service_level\": 16"), "policy[0].service_level", "16", "0 to 15");
    refused(P("\"traffic_class\": 256"), "policy[0].traffic_class", "256", "0 to 255");
    refused(P("\"qp_pool\": 1"), "policy[0].qp_pool", "1", "text");
    refused(P("\"colour\": 1"), "policy[0].colour", "1", "no such key");
    refused("[{\"name\": \"a\", \"segment_type\": \"file\"}, {\"name\": \"a\", \"segment_type\": "
            "\"memory\"}]",
            "policy[1].name", "\"a\"", "policy[0] has it");
#undef P
}

static struct policy_set parse(const char *text)
{
    struct policy_set set;
    if (policy_parse(text, find, NULL, &set) != YOLK_OK)
        fail_msg("%s", yolk_last_error());
    return set;
}

static const char *matched(const struct policy_set *set, struct policy_request request)
{
    const struct policy *policy;
    enum yolk_status status = policy_match(set, &request, &policy);
    return status == YOLK_OK             ? policy->name
           : status == YOLK_ERR_INVALID  ? "INVALID"
           : status == YOLK_ERR_NO_ROUTE ? "NO_ROUTE"
                                         : "?";
}

static void first_match_wins(void **state)
{
    (void)state;
    struct policy_set set = parse(
        "{\"policy\": ["
        "{\"name\": \"files\", \"segment_type\": \"file\", \"transports\": [\"gds\", "
        "\"io_uring\"]},"
        "{\"name\": \"small\", \"segment_type\": \"memory\", \"max_size\": 4096,"
        " \"transports\": [\"shm\", \"tcp\"]},"
        "{\"name\": \"near\", \"segment_type\": \"memory\", \"same_machine\": true,"
        " \"min_size\": \"1MiB\", \"transports\": [\"my_own\", \"rdma\", \"tcp\"]},"
        "{\"name\": \"saving\", \"segment_type\": \"memory\", \"intent_type\": \"CHECKPOINT\","
        " \"priority\": \"low\"},"
        "{\"name\": \"gpu\", \"segment_type\": \"memory\", \"local_memory\": \"cuda\","
        " \"remote_memory\": \"*\"},"
        "{\"segment_type\": \"memory\", \"same_machine\": false, \"transports\": []}]}");
    assert_int_equal(set.count, 6);
    assert_true(set.asks_machine);
    const struct policy_request file = {.file = true, .remote = POLICY_FILE, .size = 100};
    struct policy_request request = {.size = 4096};
    assert_string_equal(matched(&set, file), "files");
    assert_string_equal(matched(&set, request), "small"); /* both limits are inclusive */
    request.size = 4097;
    assert_string_equal(matched(&set, request), "policy[5]");
    request.same_machine = true;
    assert_string_equal(matched(&set, request), "NO_ROUTE");
    request.size = 1 << 20;
    assert_string_equal(matched(&set, request), "near");
    request.size--;
    request.intent = YOLK_INTENT_CHECKPOINT;
    assert_string_equal(matched(&set, request), "NO_ROUTE");
    request.priority = YOLK_PRIORITY_LOW;
    assert_string_equal(matched(&set, request), "saving");
    request.intent = YOLK_INTENT_UNSPEC; /* absent does not match what is asked for */
    request.local = POLICY_CUDA;
    assert_string_equal(matched(&set, request), "gpu");
    /* The name beats each condition but the type. */
    request.name = "small";
    assert_string_equal(matched(&set, request), "small");
    request.name = "files";
    assert_string_equal(matched(&set, request), "NO_ROUTE");
    request.name = "none";
    assert_string_equal(matched(&set, request), "INVALID");

    /* Those that are not installed leave their place to the next. */
    assert_true(set.policies[0].orders);
    assert_int_equal(set.policies[0].order_count, 1);
    assert_int_equal(set.policies[0].order[0], 2);
    assert_string_equal(set.policies[0].absent, "gds");
    assert_int_equal(set.policies[2].order_count, 2);
    assert_int_equal(set.policies[2].order[0], 4);
    assert_int_equal(set.policies[2].order[1], 0);
    assert_string_equal(set.policies[2].absent, "rdma");
    assert_false(set.policies[3].orders);
    assert_false(set.policies[5].orders);
    policy_free(&set);
}

static void what_has_no_effect_is_known(void **state)
{
    (void)state;
    struct policy_set set =
        parse("[{\"segment_type\": \"memory\", \"qp_pool\": \"bulk\", \"service_level\": 15,"
              "\"traffic_class\": 255, \"devices\": [\"mlx5_0\", \"mlx5_1\"]},"
              "{\"segment_type\": \"file\", \"intent\": 6, \"priority\": 2, \"min_size\": 0}]");
    assert_true(set.policies[0].has_no_effect);
    assert_int_equal(set.policies[0].device_count, 2);
    assert_string_equal(set.policies[0].devices[1], "mlx5_1");
    assert_string_equal(set.policies[0].qp_pool, "bulk");
    assert_false(set.policies[1].has_no_effect);
    assert_int_equal(set.policies[1].intent, YOLK_INTENT_STAGING_INTERNAL);
    assert_int_equal(set.policies[1].priority, YOLK_PRIORITY_LOW);
    policy_free(&set);
    set = parse("[]");
    assert_string_equal(matched(&set, (struct policy_request){.size = 1}), "NO_ROUTE");
    policy_free(&set);
}

static void default_orders(void **state)
{
    (void)state;
    const struct policy_transport given[] = {
        {"posix", YOLK_CAP_SAME_PROCESS},
        {"tcp", 0},
        {"mine", 0},
        {"uring", YOLK_CAP_SAME_PROCESS},
        {"near", YOLK_CAP_SAME_MACHINE},
        {"shm", YOLK_CAP_SAME_MACHINE},
        {"ucx", 0},
        {"gds", YOLK_CAP_SAME_PROCESS},
        {"inner", YOLK_CAP_SAME_PROCESS},
        {"loop", YOLK_CAP_SAME_PROCESS},
        {"nvlink", 0},
        {"other", 0},
        {"rdma", 0},
    };
    static const char *const wanted[] = {"loop", "inner", "gds",  "uring", "posix", "nvlink", "shm",
                                         "near", "ucx",   "rdma", "mine",  "other", "tcp"};
    uint8_t order[13];
    policy_default_order(given, 13, order);
    for (int i = 0; i < 13; i++)
        assert_string_equal(given[order[i]].name, wanted[i]);
}

/* Each bit covers its pair and no other; a table without any covers what host memory needs. */
static void capability_truth_table(void **state)
{
    (void)state;
    static const struct {
        enum policy_memory local, remote;
        uint64_t bit;
    } rows[] = {
        {POLICY_CPU, POLICY_CPU, YOLK_CAP_DRAM_TO_DRAM},
        {POLICY_CPU, POLICY_CUDA, YOLK_CAP_DRAM_TO_GPU},
        {POLICY_CUDA, POLICY_CPU, YOLK_CAP_GPU_TO_DRAM},
        {POLICY_CUDA, POLICY_CUDA, YOLK_CAP_GPU_TO_GPU},
        {POLICY_CPU, POLICY_FILE, YOLK_CAP_DRAM_TO_FILE},
        {POLICY_CUDA, POLICY_FILE, YOLK_CAP_GPU_TO_FILE},
        {POLICY_CPU, POLICY_ROCM, YOLK_CAP_DRAM_TO_GPU},
        {POLICY_TPU, POLICY_CPU, YOLK_CAP_GPU_TO_DRAM},
        {POLICY_ROCM, POLICY_ROCM, YOLK_CAP_GPU_TO_GPU},
        {POLICY_TPU, POLICY_FILE, YOLK_CAP_GPU_TO_FILE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint64_t bit = YOLK_CAP_DRAM_TO_DRAM; bit <= YOLK_CAP_GPU_TO_FILE; bit <<= 1)
            assert_int_equal(policy_caps_cover(bit, rows[i].local, rows[i].remote),
                             bit == rows[i].bit);
        assert_true(policy_caps_cover(YOLK_CAPS_MEMORY, rows[i].local, rows[i].remote));
        assert_int_equal(policy_caps_cover(YOLK_CAP_READ, rows[i].local, rows[i].remote),
                         rows[i].local == POLICY_CPU &&
                             (rows[i].remote == POLICY_CPU || rows[i].remote == POLICY_FILE));
    }
}

/* Random policies and requests: what fits by a list of plain questions, the first one wins. */
static void as_the_questions_say(void **state)
{
    (void)state;
    enum { POLICIES = 6 };
    static const char *const memories[] = {"cpu", "cuda", "rocm", "tpu"};
    struct random_sim sim;
    random_sim_init(&sim, 3);
    const struct random random = random_sim_random(&sim);
    for (int round = 0; round < 400; round++) {
        struct {
            bool file;
            int same, local, remote, priority, intent; /* -1: any */
            uint64_t least, most;
        } given[POLICIES];
        char text[4096] = "[";
        size_t used = 1;
#define SAY(...)  used += (size_t)snprintf(text + used, sizeof(text) - used, __VA_ARGS__)
#define ONE_OF(n) ((int)random_below(&random, (n) + 1) - 1)
        for (int i = 0; i < POLICIES; i++) {
            given[i].file = random_below(&random, 3) == 0;
            given[i].same = ONE_OF(2);
            given[i].local = ONE_OF(4);
            given[i].remote = ONE_OF(4);
            given[i].priority = ONE_OF(3);
            given[i].intent = ONE_OF(7);
            given[i].least = random_below(&random, 6);
            given[i].most = given[i].least + random_below(&random, 6);
            SAY("%s{\"segment_type\": \"%s\", \"min_size\": %d, \"max_size\": %d", i > 0 ? "," : "",
                given[i].file ? "file" : "memory", (int)given[i].least, (int)given[i].most);
            if (given[i].same >= 0)
                SAY(", \"same_machine\": %s", given[i].same ? "true" : "false");
            if (given[i].local >= 0)
                SAY(", \"local_memory\": \"%s\"", memories[given[i].local]);
            if (given[i].remote >= 0)
                SAY(", \"remote_memory\": \"%s\"", memories[given[i].remote]);
            if (given[i].priority >= 0)
                SAY(", \"priority\": %d", given[i].priority);
            if (given[i].intent >= 0)
                SAY(", \"intent_type\": %d", given[i].intent);
            SAY("}");
        }
        SAY("]");
        struct policy_set set = parse(text);
        for (int n = 0; n < 30; n++) {
            struct policy_request r = {.file = random_below(&random, 3) == 0,
                                       .same_machine = random_below(&random, 2) == 0,
                                       .local = (enum policy_memory)random_below(&random, 4),
                                       .remote = (enum policy_memory)random_below(&random, 4),
                                       .priority = (enum yolk_priority)random_below(&random, 3),
                                       .intent = (enum yolk_intent)random_below(&random, 7),
                                       .size = random_below(&random, 12)};
            if (r.file)
                r.remote = POLICY_FILE;
            const char *wanted = "NO_ROUTE";
            char name[24];
            for (int i = POLICIES - 1; i >= 0; i--) {
                bool fits =
                    given[i].file == r.file && r.size >= given[i].least && r.size <= given[i].most;
                fits = fits && (given[i].same < 0 || (given[i].same == 1) == r.same_machine);
                fits = fits && (given[i].local < 0 || given[i].local == (int)r.local);
                fits = fits && (r.file || given[i].remote < 0 || given[i].remote == (int)r.remote);
                fits = fits && (given[i].priority < 0 || given[i].priority == (int)r.priority);
                fits = fits && (given[i].intent < 0 || given[i].intent == (int)r.intent);
                if (fits) {
                    snprintf(name, sizeof(name), "policy[%d]", i);
                    wanted = name;
                }
            }
            assert_string_equal(matched(&set, r), wanted);
        }
#undef SAY
#undef ONE_OF
        policy_free(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(first_match_wins),
        cmocka_unit_test(what_has_no_effect_is_known),
        cmocka_unit_test(default_orders),
        cmocka_unit_test(capability_truth_table),
        cmocka_unit_test(as_the_questions_say),
    };
    return cmocka_run_group_tests_name("engine.policy", tests, NULL, NULL);
}
