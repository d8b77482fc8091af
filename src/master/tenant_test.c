/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: who is let in, whose keys are seen, and quotas. */
#include "master/features_kit.h"

#include <stdio.h>

enum { VALUE = 4096, SEGMENT = 64 * VALUE };

static struct kit kit;
static uint64_t owner;

static int start_with(void **state, const char *tenants)
{
    struct master_config config = {.lease_ttl_ms = 1000,
                                   .policy = &master_policy_lru,
                                   .session_ttl_ms = 1000000,
                                   .tenants = tenants};
    (void)kit_start(state, &kit, &config, SEGMENT, &owner, NULL);
    return 0;
}

static int start(void **state)
{
    return start_with(state, "a=32KiB,b=64KiB");
}

static uint64_t open_tenant(uint64_t connection, const char *name)
{
    struct wire_session_open_reply reply = kit_open_tenant(&kit, connection, name);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.session;
}

/* As the client does it. */
static const char *key_of(const char *tenant, const char *key)
{
    static char out[4][128];
    static int n;
    char *to = out[n++ % 4];
    size_t at = base_tenant_prefix(tenant, strlen(tenant), (uint8_t *)to);
    snprintf(to + at, sizeof out[0] - at, "%s", key);
    return to;
}

static struct master_tenant_info info_of(const char *name)
{
    struct master_tenant_info info;
    for (uint32_t i = 0; master_tenant_at(kit.core, i, &info); i++)
        if (strcmp(info.name, name) == 0)
            return info;
    fail_msg("no tenant %s", name);
    return info;
}

static const struct wish plain = {.flags = 0};

static void who_is_let_in(void **state)
{
    (void)state;
    assert_int_equal(kit_open_tenant(&kit, 2, "a").status, YOLK_OK);
    assert_int_equal(kit_open_tenant(&kit, 3, "default").status, YOLK_OK);
    assert_int_equal(kit_open_tenant(&kit, 4, "").status, YOLK_OK);
    struct wire_session_open_reply reply = kit_open_tenant(&kit, 5, "c");
    assert_int_equal(reply.status, YOLK_ERR_NO_TENANT);
    assert_true(reply.text.size > 0);
    const char *bad[] = {
        "_a", "a=b",  "a,b",
        "*",  "a\nb", "0123456789012345678901234567890123456789012345678901234567890123456"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(kit_open_tenant(&kit, 6, bad[i]).status, YOLK_ERR_NO_TENANT);
    assert_int_equal(master_tenant_set(kit.core, "c", 4096), YOLK_OK);
    assert_int_equal(kit_open_tenant(&kit, 5, "c").status, YOLK_OK);
    assert_int_equal(master_tenant_remove(kit.core, "c"), YOLK_OK);
    assert_int_equal(kit_open_tenant(&kit, 7, "c").status, YOLK_ERR_NO_TENANT);
    assert_int_equal(master_tenant_set(kit.core, "_c", 4096), YOLK_ERR_INVALID);
    assert_int_equal(master_tenant_set(kit.core, "c", 0), YOLK_ERR_INVALID);
    assert_int_equal(master_tenant_remove(kit.core, "nobody"), YOLK_ERR_NOT_FOUND);
}

/* Without tenants another one than the default is refused: what is not kept apart is not promised.
 */
static void without_the_setting_there_are_none(void **state)
{
    (void)start_with(state, NULL);
    assert_int_equal(kit_open_tenant(&kit, 2, "a").status, YOLK_ERR_NO_TENANT);
    assert_int_equal(kit_open_tenant(&kit, 2, "default").status, YOLK_OK);
}

static void a_star_is_for_all_others(void **state)
{
    (void)start_with(state, "a=1MiB,*=8KiB");
    uint64_t x = open_tenant(2, "x");
    assert_int_equal(info_of("x").quota_bytes, 8192);
    assert_int_equal(kit_wished(&kit, 2, x, key_of("x", "1"), 8192, &plain), YOLK_OK);
    assert_int_equal(kit_wish(&kit, 2, x, 90, key_of("x", "2"), 8193, &plain), YOLK_ERR_QUOTA);
}

static void wrong_settings_are_named(void **state)
{
    *state = &kit;
    const char *bad[] = {"a",       "a=",  "=1GiB", "a=x", "a=1GiB,a=2GiB",
                         "_a=1GiB", "a=0", "*=0",   ",",   "a=1GiB,,b=1GiB"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct master_config config = {.tenants = bad[i]};
        struct master_core *core = NULL;
        assert_int_equal(master_core_create(&config, 1, 1, &core), YOLK_ERR_CONFIG);
        assert_non_null(strstr(yolk_last_error(), "tenants"));
    }
}

static void keys_of_two_tenants_do_not_meet(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a"), b = open_tenant(3, "b"), none = open_tenant(4, "");
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "k"), 64, &plain), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 3, b, key_of("b", "k"), 128, &plain), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 4, none, "k", 192, &plain), YOLK_OK);
    assert_int_equal(kit_stats(&kit).objects, 3);
    /* Another tenant's key, written as it is on the wire, is not there either. */
    const char *theirs = key_of("b", "k");
    assert_int_equal(kit_keys_call(&kit, 2, a, 0, WIRE_EXIST, theirs), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_keys_call(&kit, 4, none, 0, WIRE_EXIST, theirs), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_get(&kit, 2, a, 50, theirs, 0, NULL), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_force_remove(&kit, 4, none, theirs), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_wish(&kit, 2, a, 51, theirs, 64, &plain), YOLK_ERR_INVALID);
    assert_int_equal(kit_keys_call(&kit, 2, a, 0, WIRE_EXIST, "k"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_keys_call(&kit, 3, b, 0, WIRE_EXIST, theirs), YOLK_OK);
    /* The listing, and remove_all, are of one's own. */
    assert_true(kit_lists(&kit, 2, a, key_of("a", "k")));
    assert_false(kit_lists(&kit, 2, a, theirs) || kit_lists(&kit, 2, a, "k"));
    struct wire_remove_all all = {.request = {.session = a, .op = 60}, .force = 1};
    struct wire_remove_all_reply reply;
    kit_call(&kit, 2, WIRE_REMOVE_ALL, &all, &reply);
    assert_int_equal(reply.count, 1);
    all.request = (struct wire_request){.session = none, .op = 60};
    kit_call(&kit, 4, WIRE_REMOVE_ALL, &all, &reply);
    assert_int_equal(reply.count, 1);
    assert_int_equal(kit_keys_call(&kit, 3, b, 0, WIRE_EXIST, theirs), YOLK_OK);
}

/* Keys of the default tenant may be any bytes: those that look like another tenant's are escaped.
 */
static void no_bytes_reach_another_tenant(void **state)
{
    (void)state;
    uint8_t prefix[TENANT_PREFIX_MAX] = {0};
    const uint8_t marked[] = {0xff, 1, 'a', 'k'};
    assert_int_equal(base_tenant_qualifier(prefix, 0, marked, 4, prefix), 2);
    assert_true(prefix[0] == 0xff && prefix[1] == 0);
    assert_int_equal(base_tenant_qualifier(prefix, 0, "k", 1, prefix), 0);
    assert_int_equal(base_tenant_skip("k", 1), 0);
    assert_int_equal(base_tenant_skip("\xff\x00\xff", 3), 2);
    assert_int_equal(base_tenant_skip("\xff\x01"
                                      "ak",
                                      4),
                     3);
    assert_int_equal(base_tenant_skip("\xff", 1), SIZE_MAX);
    assert_int_equal(base_tenant_skip("\xff\x09"
                                      "ak",
                                      4),
                     SIZE_MAX);
}

/* 32 KiB are eight values. The newest stay; the other tenant is not touched. */
static void c18_over_its_quota_a_tenant_loses_its_oldest(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a"), b = open_tenant(3, "b");
    char key[16];
    for (int i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "b%d", i);
        assert_int_equal(kit_wished(&kit, 3, b, key_of("b", key), VALUE, &plain), YOLK_OK);
    }
    for (int i = 0; i < 64; i++) {
        snprintf(key, sizeof key, "a%d", i);
        assert_int_equal(kit_wished(&kit, 2, a, key_of("a", key), VALUE, &plain), YOLK_OK);
        assert_true(kit_lists(&kit, 2, a, key_of("a", key)));
        assert_true(info_of("a").used_bytes <= 32768);
    }
    for (int i = 56; i < 64; i++) {
        snprintf(key, sizeof key, "a%d", i);
        assert_true(kit_lists(&kit, 2, a, key_of("a", key)));
    }
    assert_int_equal(info_of("a").objects, 8);
    assert_int_equal(info_of("a").used_bytes, 32768);
    assert_int_equal(info_of("a").evicted_bytes, 56 * VALUE);
    assert_int_equal(info_of("b").used_bytes, 16 * VALUE);
    assert_int_equal(info_of("b").objects, 16);
    assert_int_equal(info_of("b").evicted_bytes, 0);
}

/* Nothing of it may go: the error says so, and nothing is lost. */
static void with_all_in_use_the_quota_refuses(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a");
    char key[16];
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "a%d", i);
        assert_int_equal(kit_wished(&kit, 2, a, key_of("a", key), VALUE, &plain), YOLK_OK);
        assert_int_equal(kit_keys_call(&kit, 2, a, 0, WIRE_EXIST, key_of("a", key)), YOLK_OK);
    }
    assert_int_equal(kit_wish(&kit, 2, a, 80, key_of("a", "more"), VALUE, &plain), YOLK_ERR_QUOTA);
    assert_int_equal(info_of("a").rejects, 1);
    assert_int_equal(kit_stats(&kit).put_quota, 1);
    assert_int_equal(info_of("a").objects, 8);
    kit_pass(&kit, 1500, owner, a); /* the leases end */
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "more"), VALUE, &plain), YOLK_OK);
    assert_int_equal(kit_wish(&kit, 2, a, 81, key_of("a", "huge"), 32769, &plain), YOLK_ERR_QUOTA);
}

/* Puts under way are charged, revoked ones are not; each replica counts; an upsert is charged for
 * the difference alone. */
static void what_is_charged(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a");
    assert_int_equal(kit_wish(&kit, 2, a, 10, key_of("a", "1"), 5 * VALUE, &plain), YOLK_OK);
    assert_int_equal(info_of("a").used_bytes, 5 * VALUE);
    assert_int_equal(kit_wish(&kit, 2, a, 11, key_of("a", "2"), 4 * VALUE, &plain), YOLK_ERR_QUOTA);
    assert_int_equal(kit_keys_call(&kit, 2, a, 10, WIRE_PUT_REVOKE, key_of("a", "1")), YOLK_OK);
    assert_int_equal(info_of("a").used_bytes, 0);
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "3"), 8 * VALUE, &plain), YOLK_OK);
    struct wish upsert = {.flags = WIRE_PUT_UPSERT};
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "3"), 8 * VALUE, &upsert), YOLK_OK);
    assert_int_equal(info_of("a").used_bytes, 8 * VALUE);
    assert_int_equal(kit_force_remove(&kit, 2, a, key_of("a", "3")), YOLK_OK);
    assert_int_equal(info_of("a").used_bytes, 0);
    assert_int_equal(info_of("a").objects, 0);
    kit_ack(&kit);
}

/* The figures say whose bytes are counted, and of how many more there would be lines. */
static void figures_of_tenants(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a");
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "more%d", i);
        assert_int_equal(master_tenant_set(kit.core, name, 1), YOLK_OK);
    }
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "1"), VALUE, &plain), YOLK_OK);
    struct wire_stat msg = {.request = {.session = a}};
    struct wire_stat_reply reply;
    kit_call(&kit, 2, WIRE_STAT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    char *text = strndup((const char *)reply.text.data, reply.text.size);
    assert_non_null(strstr(text, "\ntenant_quota_bytes{tenant=\"a\"} 32768\n"));
    assert_non_null(strstr(text, "\ntenant_used_bytes{tenant=\"a\"} 4096\n"));
    assert_non_null(strstr(text, "\ntenant_objects{tenant=\"a\"} 1\n"));
    assert_non_null(strstr(text, "\ntenant_used_bytes{tenant=\"b\"} 0\n"));
    assert_non_null(strstr(text, "\ntenants_not_listed 38\n"));
    assert_null(strstr(text, "{tenant=\"default\"}"));
    free(text);
}

static void a_tenant_with_keys_stays(void **state)
{
    (void)state;
    uint64_t a = open_tenant(2, "a");
    assert_int_equal(kit_wished(&kit, 2, a, key_of("a", "1"), VALUE, &plain), YOLK_OK);
    assert_int_equal(master_tenant_remove(kit.core, "a"), YOLK_ERR_BUSY);
    assert_int_equal(kit_open_tenant(&kit, 5, "a").status, YOLK_OK);
}

static void the_default_tenant_may_have_a_quota(void **state)
{
    (void)start_with(state, "default=8KiB");
    uint64_t none = open_tenant(2, "");
    assert_int_equal(kit_wished(&kit, 2, none, "1", VALUE, &plain), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 2, none, "2", VALUE, &plain), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 2, none, "3", VALUE, &plain), YOLK_OK);
    assert_false(kit_lists(&kit, 2, none, "1"));
    assert_true(kit_lists(&kit, 2, none, "3"));
    assert_int_equal(info_of("default").used_bytes, 8192);
}

/* Also what was put before it had one; and it can be taken away again. */
static void a_quota_of_the_default_tenant_counts_what_is_there(void **state)
{
    (void)start_with(state, NULL);
    uint64_t none = open_tenant(2, "");
    assert_int_equal(kit_wished(&kit, 2, none, "1", VALUE, &plain), YOLK_OK);
    assert_int_equal(
        kit_wished(&kit, 2, none, "2", VALUE, &(struct wish){.soft_pin = 1, .ttl_ms = UINT64_MAX}),
        YOLK_OK);
    assert_int_equal(kit_wished(&kit, 2, none, "3", 0, &plain), YOLK_OK);
    assert_int_equal(master_tenant_set(kit.core, "default", 8192), YOLK_OK);
    assert_int_equal(info_of("default").objects, 3);
    assert_int_equal(info_of("default").used_bytes, 8192);
    assert_int_equal(kit_wished(&kit, 2, none, "4", VALUE, &plain), YOLK_OK);
    assert_false(kit_lists(&kit, 2, none, "1"));
    assert_int_equal(info_of("default").used_bytes, 8192);
    assert_int_equal(master_tenant_remove(kit.core, "default"), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 2, none, "5", 4 * VALUE, &plain), YOLK_OK);
    assert_true(kit_lists(&kit, 2, none, "2") && kit_lists(&kit, 2, none, "4"));
    assert_int_equal(master_tenant_set(kit.core, "default", 65536), YOLK_OK);
    assert_int_equal(info_of("default").used_bytes, 6 * VALUE);
    assert_int_equal(info_of("default").objects, 4);
}

static int no_core(void **state)
{
    *state = &kit;
    kit.core = NULL;
    return 0;
}

int main(void)
{
#define OTHER_START(name) cmocka_unit_test_setup_teardown(name, no_core, kit_stop)
    const struct CMUnitTest tests[] = {
        KIT_TEST(who_is_let_in),
        OTHER_START(without_the_setting_there_are_none),
        OTHER_START(a_star_is_for_all_others),
        OTHER_START(wrong_settings_are_named),
        KIT_TEST(keys_of_two_tenants_do_not_meet),
        KIT_TEST(no_bytes_reach_another_tenant),
        KIT_TEST(c18_over_its_quota_a_tenant_loses_its_oldest),
        KIT_TEST(with_all_in_use_the_quota_refuses),
        KIT_TEST(what_is_charged),
        KIT_TEST(figures_of_tenants),
        KIT_TEST(a_tenant_with_keys_stays),
        OTHER_START(the_default_tenant_may_have_a_quota),
        OTHER_START(a_quota_of_the_default_tenant_counts_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
