/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

static void every_code_has_name_and_text(void **state)
{
    (void)state;
    int known = 0;
    for (int status = 0; status > -400; status--) {
        if (strcmp(yolk_status_name(status), "YOLK_ERR_UNKNOWN") == 0)
            continue;
        known++;
        assert_string_not_equal(yolk_strerror(status), "unknown status");
    }
    assert_int_equal(known, 1 + 26 + 4 + 4 + 4);
    assert_string_equal(yolk_strerror(-399), "unknown status");
    assert_string_equal(yolk_status_name(YOLK_ERR_NO_SPACE), "YOLK_ERR_NO_SPACE");
    assert_string_equal(yolk_strerror(17), "ok");
}

static void scope_follows_range(void **state)
{
    (void)state;
    assert_int_equal(yolk_status_scope(4096), YOLK_SCOPE_NONE);
    assert_int_equal(yolk_status_scope(YOLK_ERR_OVERLAP), YOLK_SCOPE_REQUEST);
    assert_int_equal(yolk_status_scope(YOLK_ERR_LINK), YOLK_SCOPE_LINK);
    assert_int_equal(yolk_status_scope(YOLK_ERR_PEER_DEAD), YOLK_SCOPE_PEER);
    assert_int_equal(yolk_status_scope(YOLK_ERR_CONFIG), YOLK_SCOPE_PROCESS);
}

static void *other_thread(void *text)
{
    base_fail(YOLK_ERR_INVALID, 0, "of the other thread");
    return strcmp(yolk_last_error(), "of the other thread") == 0 ? text : NULL;
}

static void last_error_belongs_to_the_thread(void **state)
{
    (void)state;
    assert_int_equal(base_fail(YOLK_ERR_SYSTEM, ENOENT, "open %s", "x"), YOLK_ERR_SYSTEM);
    assert_string_equal(yolk_last_error(), "open x: No such file or directory");
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, ""), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_string_equal(yolk_last_error(), "open x: No such file or directory");
}

static void context_goes_in_front(void **state)
{
    (void)state;
    base_fail(YOLK_ERR_LINK, 0, "reset");
    assert_int_equal(base_fail_context(YOLK_ERR_LINK, "node %d", 3), YOLK_ERR_LINK);
    assert_string_equal(yolk_last_error(), "node 3: reset");
    /* The old text as an argument of the new one. */
    base_fail(YOLK_ERR_IO, 0, "again: %s", yolk_last_error());
    assert_string_equal(yolk_last_error(), "again: node 3: reset");
    base_error_clear();
    base_fail_context(YOLK_ERR_TIMEOUT, "get");
    assert_string_equal(yolk_last_error(), "get: deadline passed");
}

static void long_text_is_cut(void **state)
{
    (void)state;
    char big[5000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    base_fail(YOLK_ERR_INVALID, EIO, "%s", big);
    assert_true(strlen(yolk_last_error()) < 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_name_and_text),
        cmocka_unit_test(scope_follows_range),
        cmocka_unit_test(last_error_belongs_to_the_thread),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(long_text_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
