/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "compat/engine_open.h"

static char logged[4096];

static void remember(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)level, (void)room;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s\n", text);
}

static struct yolk_peer *open_with_port(unsigned port)
{
    struct compat_settings own = {0};
    struct base_config config;
    struct yolk_peer *peer;
    char text[16];
    snprintf(text, sizeof(text), "%u", port);
    assert_int_equal(compat_settings_set(&own, "metrics/http_port", text), YOLK_OK);
    assert_int_equal(compat_engine_open_tent(&own, &config, &peer), YOLK_OK);
    base_config_free(&config);
    compat_settings_free(&own);
    return peer;
}

static void figures_are_served_and_a_busy_port_is_only_logged(void **state)
{
    (void)state;
    struct yolk_peer *first = open_with_port(0);
    uint16_t port = yolk_peer_metrics_port(first);
    assert_true(port != 0);
    base_log_set(remember, NULL);
    struct yolk_peer *second = open_with_port(port);
    base_log_set(NULL, NULL);
    assert_int_equal(yolk_peer_metrics_port(second), 0);
    assert_non_null(strstr(logged, "figures are not served over HTTP at 127.0.0.1:"));
    assert_int_equal(compat_engine_close(second), YOLK_OK);
    assert_int_equal(compat_engine_close(first), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_served_and_a_busy_port_is_only_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
