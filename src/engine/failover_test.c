/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/failover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void kinds(void **state)
{
    (void)state;
    assert_int_equal(failover_kind_of(YOLK_CAP_READ | YOLK_CAP_PEER_DEATH), FAILOVER_NETWORK);
    assert_int_equal(failover_kind_of(YOLK_CAP_SAME_MACHINE), FAILOVER_MACHINE);
    assert_int_equal(failover_kind_of(YOLK_CAP_SAME_PROCESS), FAILOVER_MACHINE);
    assert_int_equal(failover_kind_of(YOLK_CAP_SAME_PROCESS | YOLK_CAP_DRAM_TO_FILE),
                     FAILOVER_FILE);
    assert_int_equal(failover_kind_of(YOLK_CAP_GPU_TO_FILE | YOLK_CAP_DRAM_TO_FILE), FAILOVER_FILE);
    assert_int_equal(failover_kind_of(YOLK_CAP_DRAM_TO_DRAM | YOLK_CAP_DRAM_TO_FILE),
                     FAILOVER_NETWORK);
}

/* What is said of each status that there is, and of numbers that are none. */
static void every_status(void **state)
{
    (void)state;
    static const int next[] = {YOLK_ERR_UNSUPPORTED, YOLK_ERR_LIMIT,     YOLK_ERR_NO_MEMORY,
                               YOLK_ERR_TIMEOUT,     YOLK_ERR_PEER_DEAD, YOLK_ERR_AUTH,
                               YOLK_ERR_VERSION,     YOLK_ERR_NO_ROUTE,  YOLK_ERR_SYSTEM,
                               YOLK_ERR_CONFIG};
    static const int retry[] = {YOLK_ERR_CORRUPT, YOLK_ERR_EOF,      YOLK_ERR_LINK,
                                YOLK_ERR_REFUSED, YOLK_ERR_PROTOCOL, YOLK_ERR_IO};
    for (int kind = 0; kind < FAILOVER_KINDS; kind++) {
        for (int status = 5; status > -400; status--) {
            enum failover_action wanted = FAILOVER_FAIL;
            for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++)
                if (status == next[i])
                    wanted = FAILOVER_NEXT;
            for (size_t i = 0; i < sizeof(retry) / sizeof(retry[0]); i++)
                if (status == retry[i])
                    wanted = FAILOVER_RETRY;
            /* What the device could not read it cannot read the next time either. */
            if (kind == FAILOVER_FILE && status == YOLK_ERR_IO)
                wanted = FAILOVER_NEXT;
            assert_int_equal(failover_decide((enum failover_kind)kind, (enum yolk_status)status),
                             wanted);
        }
    }
    assert_true(failover_blames_route(YOLK_ERR_LINK));
    assert_true(failover_blames_route(YOLK_ERR_PEER_DEAD));
    assert_false(failover_blames_route(YOLK_ERR_IO));
    assert_false(failover_blames_route(YOLK_ERR_TIMEOUT));
    assert_false(failover_blames_route(YOLK_OK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(every_status),
    };
    return cmocka_run_group_tests_name("engine.failover", tests, NULL, NULL);
}
