/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "store/segments.h"

static void one_transport_of_several(void **state)
{
    (void)state;
    static const struct {
        const char *given, *transport, *left;
    } cases[] = {
        {"tcp=1.2.3.4:5;shm=/a;loop=7", "auto", "tcp=1.2.3.4:5;shm=/a;loop=7"},
        {"tcp=1.2.3.4:5;shm=/a;loop=7", "shm", "shm=/a"},
        {"tcp=1.2.3.4:5;shm=/a;loop=7", "tcp", "tcp=1.2.3.4:5"},
        {"tcp=1.2.3.4:5;shm=/a;loop=7", "loop", "loop=7"},
        {"tcp=1.2.3.4:5;xshm=/a;shmx=/b", "shm", ""},
        {"tcp=shm=3", "shm", ""},
        {"", "tcp", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s", cases[i].given);
        store_endpoints_allowed(text, cases[i].transport);
        assert_string_equal(text, cases[i].left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_transport_of_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
