/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/access.h"
#include "wire/ticket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SEGMENT = 0x500000002, SIZE = 4096, SESSION = 11 };

static struct access_grant make_grant(int require_tickets)
{
    struct access_grant grant;
    uint8_t key[ACCESS_TICKET_KEY_SIZE];
    memset(key, 0x5a, sizeof(key));
    access_grant_init(&grant, SEGMENT, SIZE, key, require_tickets);
    return grant;
}

static struct yolk_access_request make_request(enum yolk_opcode opcode, uint64_t offset,
                                               uint64_t size)
{
    return (struct yolk_access_request){
        .segment = SEGMENT, .session = SESSION, .offset = offset, .size = size, .opcode = opcode};
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, size;
        enum yolk_status expected;
    } cases[] = {
        {0, 0, YOLK_OK},
        {0, SIZE, YOLK_OK},
        {SIZE, 0, YOLK_OK},
        {SIZE - 1, 1, YOLK_OK},
        {0, SIZE + 1, YOLK_ERR_INVALID},
        {SIZE, 1, YOLK_ERR_INVALID},
        {SIZE + 1, 0, YOLK_ERR_INVALID},
        {1, UINT64_MAX, YOLK_ERR_INVALID},
        {UINT64_MAX, 1, YOLK_ERR_INVALID},
        {UINT64_MAX, UINT64_MAX, YOLK_ERR_INVALID},
    };
    struct access_grant grant = make_grant(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct yolk_access_request request =
            make_request(YOLK_READ, cases[i].offset, cases[i].size);
        assert_int_equal(access_check(&grant, &request), cases[i].expected);
        request.opcode = YOLK_WRITE;
        assert_int_equal(access_check(&grant, &request), cases[i].expected);
    }
    struct yolk_access_request odd = make_request((enum yolk_opcode)0, 0, 1);
    assert_int_equal(access_check(&grant, &odd), YOLK_ERR_INVALID);
    access_grant_free(&grant);
}

static void segment_ids(void **state)
{
    (void)state;
    struct access_grant grant = make_grant(0);
    struct yolk_access_request request = make_request(YOLK_READ, 0, 1);
    request.segment = SEGMENT - 1;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_STALE);
    uint8_t key[ACCESS_TICKET_KEY_SIZE] = {0};
    access_grant_set_segment(&grant, SEGMENT - 1, key);
    assert_int_equal(access_check(&grant, &request), YOLK_OK);
    request.segment = SEGMENT;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_STALE);
    /* Not mounted: nobody may touch it, not even by naming 0. */
    access_grant_set_segment(&grant, 0, key);
    request.segment = 0;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_STALE);
    request.whole_map = 1;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_STALE);
    access_grant_free(&grant);
}

static void tickets(void **state)
{
    (void)state;
    struct access_grant grant = make_grant(1);
    struct yolk_ticket ticket = {.offset = 1024, .size = 512, .op = 3};
    wire_ticket_mac(grant.ticket_key, SEGMENT, 1024, 512, SESSION, 3, ticket.mac);
    struct yolk_access_request request = make_request(YOLK_WRITE, 1024, 512);
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS); /* none at all */
    request.ticket = &ticket;
    assert_int_equal(access_check(&grant, &request), YOLK_OK);
    request.offset = 1100;
    request.size = 436;
    assert_int_equal(access_check(&grant, &request), YOLK_OK);
    request.size = 437;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    request.offset = 1023;
    request.size = 1;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    request.offset = 1024;
    request.session = SESSION + 1;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    request.session = SESSION;
    ticket.size = SIZE; /* a wider extent than the master gave */
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    ticket.size = 512;
    ticket.op = 4;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    ticket.op = 3;
    assert_int_equal(access_check(&grant, &request), YOLK_OK);
    /* After a new mount the old tickets are worth nothing. */
    uint8_t key[ACCESS_TICKET_KEY_SIZE] = {1};
    access_grant_set_segment(&grant, SEGMENT + 1, key);
    request.segment = SEGMENT + 1;
    assert_int_equal(access_check(&grant, &request), YOLK_ERR_ACCESS);
    request.opcode = YOLK_READ;
    assert_int_equal(access_check(&grant, &request), YOLK_OK);
    access_grant_free(&grant);
}

static void fences(void **state)
{
    (void)state;
    struct access_grant grant = make_grant(0);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(access_grant_fence(&grant, 1000 + i * 37 % 100), YOLK_OK);
    assert_int_equal(access_grant_fence(&grant, 1000), YOLK_OK);
    assert_int_equal(grant.fenced_count, 100);
    struct yolk_access_request request = make_request(YOLK_READ, 0, 1);
    for (uint64_t session = 990; session < 1110; session++) {
        bool fenced = session >= 1000 && session < 1100;
        request.session = session;
        request.whole_map = 0;
        assert_int_equal(access_grant_is_fenced(&grant, session), fenced);
        assert_int_equal(access_check(&grant, &request), fenced ? YOLK_ERR_ACCESS : YOLK_OK);
        request.whole_map = 1;
        assert_int_equal(access_check(&grant, &request), fenced ? YOLK_ERR_ACCESS : YOLK_OK);
    }
    access_grant_free(&grant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(segment_ids),
        cmocka_unit_test(tickets),
        cmocka_unit_test(fences),
    };
    return cmocka_run_group_tests_name("engine.access", tests, NULL, NULL);
}
