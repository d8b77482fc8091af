/* SPDX-License-Identifier: Apache-2.0 */
/* The GDS tier's settings in the environment: what they become, and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

#include "platform/temporary_kit.h"

#define P "MOONCAKE_GDS_OFFLOAD_"

static const char *const names[] = {
    P "ENABLED",   P "PATH",          P "CAPACITY_BYTES", "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
    P "VERIFY",    P "OPTIONAL",      P "ALLOW_FALLBACK", P "START_EMPTY",
    "MC_USE_TENT", "MC_STORE_MEMCPY", "MC_TENT_CONF"};

static const char proposal[] = "{\n\"transports\": {\n\"tcp\": {\"enable\": true},\n"
                               "\"gds\": {\"enable\": true, \"io_batch_depth\": 128},\n"
                               "\"io_uring\": {\"enable\": false}\n}\n}";

static void set(const char *name, const char *value)
{
    assert_int_equal(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

/* As the proposal has it. */
static void set_all(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        set(names[i], NULL);
    set(P "ENABLED", "1");
    set(P "PATH", "/path/to/gds_offload");
    set("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", "107374182400");
    set("MC_USE_TENT", "1");
    set("MC_STORE_MEMCPY", "0");
    set("MC_TENT_CONF", proposal);
}

static int take(struct yolk_store_options *options)
{
    yolk_store_options_init(options);
    return (int)yolk_store_options_environment(options);
}

static void the_words_of_the_proposal(void **state)
{
    (void)state;
    struct yolk_store_options options;
    set_all();
    assert_int_equal(take(&options), YOLK_OK);
    assert_int_equal(options.gds_enabled, 1);
    assert_string_equal(options.gds_path, "/path/to/gds_offload");
    assert_int_equal(options.gds_capacity_bytes, 107374182400);
    assert_int_equal(options.gds_io_batch_depth, 128);
    assert_int_equal(options.gds_no_cufile, 0);
    assert_int_equal(options.gds_no_io_uring, 1);
    assert_int_equal(options.gds_allow_fallback, 0);
    assert_int_equal(options.gds_optional, 0);
    assert_int_equal(options.gds_start_empty, 0);
    set(P "CAPACITY_BYTES", "1GiB"); /* before the older one */
    set(P "OPTIONAL", "1");
    set(P "START_EMPTY", "1");
    set(P "ALLOW_FALLBACK", "1");
    set(P "VERIFY", "1");
    set("MC_TENT_CONF", "{\"transports/gds/enable\": false, \"transports/io_uring/enable\": true}");
    assert_int_equal(take(&options), YOLK_OK);
    assert_int_equal(options.gds_capacity_bytes, 1 << 30);
    assert_int_equal(options.gds_no_cufile, 1);
    assert_int_equal(options.gds_no_io_uring, 0);
    assert_int_equal(options.gds_allow_fallback + options.gds_optional + options.gds_start_empty +
                         options.gds_verify,
                     4);
}

/* Off changes nothing, whatever else is set. */
static void off_unless_it_is_one(void **state)
{
    (void)state;
    struct yolk_store_options options, untouched;
    static const char *const off[] = {NULL, "0"};
    for (int i = 0; i < 2; i++) {
        set_all();
        set(P "ENABLED", off[i]);
        set(P "PATH", "");
        set("MC_TENT_CONF", "nonsense");
        yolk_store_options_init(&untouched);
        assert_int_equal(take(&options), YOLK_OK);
        assert_memory_equal(&options, &untouched, sizeof(options));
    }
}

static void a_dummy_client_has_none(void **state)
{
    (void)state;
    struct yolk_store_options options;
    set_all();
    yolk_store_options_init(&options);
    options.real_client = "localhost:1";
    assert_int_equal(yolk_store_options_environment(&options), YOLK_OK);
    assert_int_equal(options.gds_enabled, 0);
}

static void a_file_in_place_of_the_text(void **state)
{
    (void)state;
    struct yolk_store_options options;
    char path[TEMPORARY_MAX] = "yolk-conf-XXXXXX";
    int file = mkstemp(temporary_path(path));
    assert_true(file >= 0);
    assert_int_equal(write(file, proposal, sizeof(proposal) - 1), sizeof(proposal) - 1);
    assert_int_equal(close(file), 0);
    set_all();
    set("MC_TENT_CONF", path);
    assert_int_equal(take(&options), YOLK_OK);
    assert_int_equal(options.gds_io_batch_depth, 128);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(take(&options), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), path));
}

/* Each names the setting, its value and the rule. */
static void wrong_ones_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *says[3];
    } cases[] = {
        {P "ENABLED", "yes", {P "ENABLED", "\"yes\"", "0 or 1"}},
        {P "ENABLED", "", {P "ENABLED", "\"\"", "0 or 1"}},
        {P "ENABLED", "2", {P "ENABLED", "\"2\"", "0 or 1"}},
        {P "OPTIONAL", "true", {P "OPTIONAL", "\"true\"", "0 or 1"}},
        {P "ALLOW_FALLBACK", "on", {P "ALLOW_FALLBACK", "\"on\"", "0 or 1"}},
        {P "START_EMPTY", "-1", {P "START_EMPTY", "\"-1\"", "0 or 1"}},
        {P "VERIFY", "01", {P "VERIFY", "\"01\"", "0 or 1"}},
        {P "PATH", NULL, {P "PATH", "not set", "absolute"}},
        {P "PATH", "", {P "PATH", "not set", "absolute"}},
        {P "CAPACITY_BYTES", "much", {P "CAPACITY_BYTES", "much", ""}},
        {P "CAPACITY_BYTES", "0", {P "CAPACITY_BYTES", "\"0\"", "more than 0"}},
        {"MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
         NULL,
         {P "CAPACITY_BYTES", "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", "needs one"}},
        {"MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
         "12 apples",
         {"MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", "12 apples", ""}},
        {"MC_STORE_MEMCPY", "never", {"MC_STORE_MEMCPY", "never", ""}},
        {"MC_TENT_CONF", NULL, {"transports/gds/enable", "not set", "must be true"}},
        {"MC_TENT_CONF", "nonsense", {"MC_TENT_CONF", "nonsense", "JSON object"}},
        {"MC_TENT_CONF", "{\"transports\": {", {"MC_TENT_CONF", "", ""}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": false}}}",
         {"transports/gds/enable", "false", "must be true"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": \"perhaps\"}}}",
         {"transports/gds/enable", "perhaps", ""}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": [1]}}}",
         {"transports/gds/enable", "array", "true or false"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true}, \"io_uring\": {\"enable\": true}}}",
         {"transports/io_uring/enable", "true", "must be false"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true, \"io_batch_depth\": 0}}}",
         {"io_batch_depth", "0", "1 to 128"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true, \"io_batch_depth\": 129}}}",
         {"io_batch_depth", "129", "1 to 128"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true, \"io_batch_depth\": \"deep\"}}}",
         {"io_batch_depth", "deep", ""}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true, \"io_batch_dept\": 64}}}",
         {"transports/gds/io_batch_dept ", "not known", "enable and io_batch_depth"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds\": {\"enable\": true}}, \"transports/gds/depth\": 64}",
         {"transports/gds/depth ", "not known", "enable and io_batch_depth"}},
        {"MC_TENT_CONF",
         "{\"transports\": {\"gds/Enable\": true, \"gds\": {\"enable\": true}}}",
         {"transports/gds/Enable ", "not known", "enable and io_batch_depth"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct yolk_store_options options, untouched;
        set_all();
        set(cases[i].name, cases[i].value);
        int status = take(&options);
        if (status != YOLK_ERR_CONFIG)
            fail_msg("%s=%s: %d", cases[i].name, cases[i].value, status);
        for (int j = 0; j < 3; j++)
            if (strstr(yolk_last_error(), cases[i].says[j]) == NULL)
                fail_msg("%s=%s: \"%s\" lacks \"%s\"", cases[i].name, cases[i].value,
                         yolk_last_error(), cases[i].says[j]);
        yolk_store_options_init(&untouched);
        assert_memory_equal(&options, &untouched, sizeof(options));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words_of_the_proposal), cmocka_unit_test(off_unless_it_is_one),
        cmocka_unit_test(a_dummy_client_has_none),   cmocka_unit_test(a_file_in_place_of_the_text),
        cmocka_unit_test(wrong_ones_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
