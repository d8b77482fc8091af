/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "admin/metrics.h"
#include "wire/msg.h"

static struct admin_figures sample(void)
{
    struct admin_figures figures = {.uptime_ms = 12345};
    figures.master.objects = 17;
    figures.master.live_bytes = 3ull << 30;
    figures.master.capacity_bytes = 4ull << 30;
    figures.master.exist_hits = 4;
    figures.master.exist_misses = 3;
    figures.master.get_hits = 5;
    figures.master.miss_evicted = 1;
    figures.server.kinds[WIRE_EXIST] = 5;
    figures.server.frames_in = UINT64_MAX;
    return figures;
}

static void test_prometheus_text(void **state)
{
    (void)state;
    struct admin_figures figures = sample();
    struct base_buf text;
    char names[256][96];
    size_t count = 0;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(admin_metrics_text(&figures, &text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    char *rest = (char *)text.data, *line;
    while ((line = strsep(&rest, "\n"))) {
        char name[96], value[32];
        if (line[0] == '#' || line[0] == '\0')
            continue;
        assert_int_equal(sscanf(line, "%95s %31s", name, value), 2);
        assert_int_equal(strspn(value, "0123456789"), strlen(value));
        for (size_t i = 0; i < count; i++)
            assert_string_not_equal(names[i], name);
        assert_true(count < 256);
        snprintf(names[count++], sizeof(names[0]), "%s", name);
        if (strcmp(name, "master_key_count") == 0)
            assert_string_equal(value, "17");
        if (strcmp(name, "master_batch_exist_key_requests_total") == 0)
            assert_string_equal(value, "5");
        if (strcmp(name, "master_batch_exist_key_items_total") == 0)
            assert_string_equal(value, "7");
        if (strcmp(name, "master_exist_key_requests_total") == 0)
            assert_string_equal(value, "0");
        if (strcmp(name, "total_get_nums_") == 0)
            assert_string_equal(value, "6");
        if (strcmp(name, "master_frames_received_total") == 0)
            assert_string_equal(value, "18446744073709551615");
    }
    assert_true(count > 100);
    base_buf_free(&text);
}

static void test_summary_is_one_line(void **state)
{
    (void)state;
    struct admin_figures figures = sample();
    struct base_buf text;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(admin_summary_text(&figures, &text), YOLK_OK);
    assert_ptr_equal(memchr(text.data, '\n', text.size), text.data + text.size - 1);
    assert_non_null(memmem(text.data, text.size, "3.00 GiB of 4.00 GiB (75.0%)", 28));
    assert_null(memmem(text.data, text.size, "gds", 3)); /* nobody has such a file */
    figures.master.gds_segments = 1;
    figures.master.gds_live_bytes = 5 * MIB;
    figures.master.gds_capacity_bytes = 16 * MIB;
    figures.master.gds_objects = 3;
    figures.master.get_hits_gds = 9;
    figures.master.gds_evictions = 2;
    base_buf_clear(&text);
    assert_int_equal(admin_summary_text(&figures, &text), YOLK_OK);
    assert_ptr_equal(memchr(text.data, '\n', text.size), text.data + text.size - 1);
    static const char gds[] =
        " | gds 5.00 MiB of 16.00 MiB, not yet reusable 0 B, keys 3, hit 9, evicted 2 | keys 17";
    assert_non_null(memmem(text.data, text.size, gds, strlen(gds)));
    /* No room: an error, not half a text. */
    base_buf_free(&text);
    base_buf_init(&text, 10);
    assert_int_not_equal(admin_summary_text(&figures, &text), YOLK_OK);
    base_buf_free(&text);
}

static void test_health_is_json(void **state)
{
    (void)state;
    struct admin_figures figures = sample();
    struct base_buf text;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(admin_health_text(&figures, &text), YOLK_OK);
    json_t *root = json_loadb((const char *)text.data, text.size, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "status")), "ok");
    assert_string_equal(json_string_value(json_object_get(root, "role")), "leader");
    assert_string_equal(json_string_value(json_object_get(root, "ha_state")), "serving");
    assert_true(json_is_true(json_object_get(root, "service_ready")));
    assert_int_equal(json_integer_value(json_object_get(root, "keys")), 17);
    assert_int_equal(json_integer_value(json_object_get(root, "uptime_ms")), 12345);
    json_decref(root);
    base_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prometheus_text),
        cmocka_unit_test(test_summary_is_one_line),
        cmocka_unit_test(test_health_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
