/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/config_file.h"
#include "platform/temporary_kit.h"

static char folder[TEMPORARY_MAX] = "yolk-config-XXXXXX";

/* Loads a file of this name and content into a fresh config. */
static int load(struct base_config *config, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    fclose(file);
    assert_int_equal(base_config_init(config, COMMAND_MASTER), YOLK_OK);
    int status = config_file_load(config, path);
    unlink(path);
    return status;
}

static void refuse(const char *name, const char *text, const char *says)
{
    struct base_config config;
    assert_int_equal(load(&config, name, text), YOLK_ERR_CONFIG);
    if (!strstr(yolk_last_error(), says))
        fail_msg("\"%s\" is not in \"%s\"", says, yolk_last_error());
    base_config_free(&config);
}

static void test_both_forms(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(load(&config, "a.yaml", "lease_ttl: 3s # so long\n\"max-sessions\": 7\n"),
                     YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 3000);
    assert_int_equal(base_config_u64(&config, SET_MAX_SESSIONS), 7);
    base_config_free(&config);
    assert_int_equal(load(&config, "a.json",
                          "{\"lease_ttl\": \"3s\", \"max_sessions\": 7,"
                          " \"eviction_high_watermark_ratio\": 0.5, \"log_json\": true}"),
                     YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 3000);
    assert_int_equal(base_config_u64(&config, SET_MAX_SESSIONS), 7);
    assert_true(base_config_ratio(&config, SET_EVICTION_HIGH) == 0.5);
    assert_true(base_config_bool(&config, SET_LOG_JSON));
    base_config_free(&config);
    /* Nothing in it is fine. */
    assert_int_equal(load(&config, "empty.yaml", ""), YOLK_OK);
    base_config_free(&config);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("a.yaml", "\n\nleash: 3\n", "a.yaml:3");
    refuse("a.yaml", "\n\nleash: 3\n", "leash");
    refuse("a.yaml", "lease_ttl: soon\n", "soon");
    refuse("a.yaml", "lease_ttl:\n  a: 1\n", "a.yaml:2");
    refuse("a.yaml", "lease_ttl: [1]\n", "a.yaml:1");
    refuse("a.yaml", "- a\n", "a.yaml:1");
    refuse("a.yaml", "just text\n", "a.yaml:1");
    refuse("a.yaml", "lease_ttl: 3s\nmax_sessions: 7\nlease_ttl: 4s\n",
           "a.yaml:3: lease_ttl is given twice");
    refuse("a.yaml", "lease_ttl: 3s\nlease-ttl: 4s\n", "lease-ttl is given twice");
    refuse("a.json", "{\"lease_ttl\": \"3s\", \"lease-ttl\": \"4s\"}", "lease-ttl is given twice");
    refuse("a.yaml", "lease_ttl: 3s\n---\nmax_sessions: 7\n", "a second document");
    refuse("a.yaml", "a: &x 1\nlease_ttl: *x\n", "a.yaml");
    refuse("a.yaml", "\"unfinished\n", "a.yaml");
    refuse("a.json", "{\"lease_ttl\": }", "a.json:1");
    refuse("a.json", "{\"lease_ttl\": {}}", "lease_ttl");
    refuse("a.json", "[]", "one JSON object");
    refuse("a.json", "", "the file is empty");
    refuse("a.json", "{\"lease_ttl\": 1, \"lease_ttl\": 2}", "a.json");
    char *large = malloc(CONFIG_FILE_MAX + 2);
    assert_non_null(large);
    memset(large, '#', CONFIG_FILE_MAX + 1);
    large[CONFIG_FILE_MAX + 1] = '\0';
    refuse("a.yaml", large, "has more than");
    free(large);
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_MASTER), YOLK_OK);
    assert_int_equal(config_file_load(&config, "/nowhere/x.yaml"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "/nowhere/x.yaml"));
    base_config_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms),
        cmocka_unit_test(test_refusals),
    };
    if (!mkdtemp(temporary_path(folder)))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
