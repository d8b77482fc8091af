/* SPDX-License-Identifier: Apache-2.0 */
/* What a put may ask for, values in the place of others, and tenants, through the public calls of
 * one process. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yolk/store.h>

enum { KIB_BYTES = 1024, MIB_BYTES = 1 << 20 };

static struct yolk_store *open_store(uint64_t segment_size, const char *tenant, const char *tenants)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = segment_size;
    options.lease_ttl_ms = 20;
    options.tenant_id = tenant;
    options.tenants = tenants;
    enum yolk_status status = yolk_store_open(&options, &store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    return store;
}

static void close_store(struct yolk_store *store)
{
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    enum yolk_status status = yolk_store_close(store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

static int64_t put_as(struct yolk_store *store, const char *key, const char *text,
                      const struct yolk_put_options *options, int upsert)
{
    struct yolk_slice slice = {(void *)(uintptr_t)text, strlen(text)};
    struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
    enum yolk_status status = upsert ? yolk_store_upsert(store, &kv, 1, options)
                                     : yolk_store_put_with(store, &kv, 1, options);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

static void has(struct yolk_store *store, const char *key, const char *text)
{
    char bytes[256] = "";
    struct yolk_slice slice = {bytes, sizeof bytes - 1};
    struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    assert_int_equal(kv.result, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static uint64_t figure(struct yolk_store *store, const char *name)
{
    char *text = NULL;
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s ", name);
    for (char *line = text; line != NULL && *line != 0;) {
        if (strncmp(line, wanted, strlen(wanted)) == 0) {
            uint64_t value = strtoull(line + strlen(wanted), NULL, 10);
            free(text);
            return value;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    fail_msg("no figure %s", name);
    return 0;
}

static void an_upsert_replaces_and_a_put_does_not(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, NULL);
    assert_int_equal(put_as(store, "k", "first", NULL, 1), 5);
    has(store, "k", "first");
    assert_int_equal(put_as(store, "k", "ignored", NULL, 0), 7); /* exists: success, not written */
    has(store, "k", "first");
    assert_int_equal(put_as(store, "k", "second value", NULL, 1), 12);
    has(store, "k", "second value");
    assert_int_equal(put_as(store, "k", "", NULL, 1), 0);
    has(store, "k", "");
    assert_int_equal(put_as(store, "k", "again", NULL, 1), 5);
    has(store, "k", "again");
    assert_int_equal(figure(store, "upserts"), 3);
    assert_int_equal(figure(store, "objects"), 1);
    close_store(store);
}

/* In one call the last value of a key counts, those of the others are what they are. */
static void in_a_batch_the_last_value_stays(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, NULL);
    const char *keys[] = {"a", "b", "a", "c", "a", "b"};
    const char *values[] = {"a1", "b1", "a2!", "c1", "a3!!", "b2!"};
    struct yolk_slice slices[6];
    struct yolk_kv kvs[6];
    for (int i = 0; i < 6; i++) {
        slices[i] = (struct yolk_slice){(void *)(uintptr_t)values[i], strlen(values[i])};
        kvs[i] = (struct yolk_kv){keys[i], 1, &slices[i], 1, 77, 0};
    }
    assert_int_equal(yolk_store_upsert(store, kvs, 6, NULL), YOLK_OK);
    has(store, "a", "a3!!");
    has(store, "b", "b2!");
    has(store, "c", "c1");
    close_store(store);
}

/* A handle on the old value keeps its bytes, whatever is put over it. */
static void a_handle_keeps_the_old_value(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, NULL);
    struct yolk_buffer old, new;
    assert_int_equal(put_as(store, "k", "old value", NULL, 1), 9);
    assert_int_equal(yolk_store_get_buffer(store, "k", 1, &old), YOLK_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(put_as(store, "k", i % 2 ? "odd value" : "even one!", NULL, 1), 9);
    assert_memory_equal(old.data, "old value", 9);
    assert_int_equal(yolk_store_get_buffer(store, "k", 1, &new), YOLK_OK);
    assert_memory_equal(new.data, "odd value", 9);
    yolk_store_release_buffer(store, &old);
    yolk_store_release_buffer(store, &new);
    close_store(store);
}

struct racing {
    struct yolk_store *store;
    atomic_uint_fast64_t done; /* the number of the last value that was acknowledged */
    atomic_int stop;
};

enum { RACE_VALUES = 400, RACE_SIZE = 8192 };

static void *write_values(void *arg)
{
    struct racing *racing = arg;
    uint64_t *value = malloc(RACE_SIZE);
    for (uint64_t n = 1; n <= RACE_VALUES; n++) {
        size_t size = RACE_SIZE / (1 + n % 2);
        for (size_t i = 0; i < RACE_SIZE / 8; i++)
            value[i] = n;
        struct yolk_slice slice = {value, size};
        struct yolk_kv kv = {"race", 4, &slice, 1, 77, 0};
        if (yolk_store_upsert(racing->store, &kv, 1, NULL) != YOLK_OK)
            abort();
        atomic_store(&racing->done, n);
    }
    atomic_store(&racing->stop, 1);
    free(value);
    return NULL;
}

/* Never a mix, never one older than what was acknowledged when the get began. */
static void readers_beside_upserts(void **state)
{
    (void)state;
    struct racing racing = {.store = open_store(8 * MIB_BYTES, NULL, NULL)};
    pthread_t writer;
    uint64_t *bytes = malloc(RACE_SIZE);
    uint64_t reads = 0;
    assert_int_equal(pthread_create(&writer, NULL, write_values, &racing), 0);
    while (!atomic_load(&racing.stop)) {
        uint64_t least = atomic_load(&racing.done);
        struct yolk_slice slice = {bytes, RACE_SIZE};
        struct yolk_kv kv = {"race", 4, &slice, 1, 77, 0};
        enum yolk_status status = yolk_store_get(racing.store, &kv, 1);
        if (status == YOLK_ERR_NOT_FOUND && least == 0)
            continue;
        assert_int_equal(status, YOLK_OK);
        assert_true(bytes[0] >= least && bytes[0] <= RACE_VALUES);
        assert_int_equal(kv.result, RACE_SIZE / (1 + bytes[0] % 2));
        for (int64_t i = 0; i < kv.result / 8; i++)
            assert_int_equal(bytes[i], bytes[0]);
        reads++;
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_true(reads > 0);
    free(bytes);
    close_store(racing.store);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, NULL);
    struct yolk_put_options options;
    const char *names[17], *groups[1];
    char long_id[300];
    memset(long_id, 'g', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = 0;
    for (int i = 0; i < 17; i++)
        names[i] = "n";
    yolk_put_options_init(&options);
    options.replica_num = 9;
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "1 to 4 copies, not 9"));
    yolk_put_options_init(&options);
    options.soft_pin = 3;
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "soft_pin is 3"));
    yolk_put_options_init(&options);
    options.preferred_segments = names;
    options.preferred_segment_count = 17;
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "17"));
    yolk_put_options_init(&options);
    groups[0] = long_id;
    options.group_ids = groups;
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "255"));
    yolk_put_options_init(&options);
    options.soft_pin = YOLK_SOFT_PIN_SET;
    options.soft_pin_ttl_ms = 24 * 3600 * 1000 + 1;
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    memset(&options, 0, sizeof options);
    assert_int_equal(put_as(store, "k", "v", &options, 0), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "yolk_put_options_init"));
    assert_int_equal(figure(store, "objects"), 0);
    close_store(store);
}

/* Half of a segment at most; the error is its own. */
static void hard_pins_are_bounded(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, NULL);
    struct yolk_put_options options;
    uint8_t *value = calloc(1, 128 * KIB_BYTES);
    yolk_put_options_init(&options);
    options.hard_pin = 1;
    char key[16];
    int64_t result = 0;
    int count = 0;
    for (; count < 8; count++) {
        struct yolk_slice slice = {value, 128 * KIB_BYTES};
        snprintf(key, sizeof key, "h%d", count);
        struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
        (void)!yolk_store_put_with(store, &kv, 1, &options);
        result = kv.result;
        if (result < 0)
            break;
    }
    assert_int_equal(result, YOLK_ERR_PIN_LIMIT);
    assert_non_null(strstr(yolk_last_error(), "hard_pin_ratio"));
    assert_int_equal(count, 4);
    for (int i = 0; i < 40; i++) { /* far more than fits beside them */
        struct yolk_slice slice = {value, 64 * KIB_BYTES};
        snprintf(key, sizeof key, "f%d", i);
        struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
        assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "h%d", i);
        struct yolk_kv kv = {key, strlen(key), NULL, 0, 77, 0};
        assert_int_equal(yolk_store_exist(store, &kv, 1), YOLK_OK);
        assert_int_equal(kv.result, 1);
    }
    free(value);
    close_store(store);
}

static int count_key(void *context, const void *key, size_t key_size, uint64_t size)
{
    (void)size;
    assert_true(key_size == 1 && (*(const char *)key == 'x' || *(const char *)key == 'y'));
    ++*(int *)context;
    return 0;
}

/* All that takes a key knows whose it is, and shows it as the caller gave it. */
static void a_tenant_sees_its_own_keys(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, "team", "team=1MiB");
    uint64_t size = 0, removed = 0;
    size_t replicas = 0;
    int listed = 0;
    struct yolk_buffer buffer;
    assert_int_equal(put_as(store, "x", "value x", NULL, 0), 7);
    assert_int_equal(put_as(store, "y", "value y", NULL, 1), 7);
    has(store, "x", "value x");
    assert_int_equal(yolk_store_size(store, "x", 1, &size), YOLK_OK);
    assert_int_equal(size, 7);
    assert_int_equal(yolk_store_locate(store, "x", 1, NULL, 0, &replicas), YOLK_OK);
    assert_int_equal(replicas, 1);
    assert_int_equal(yolk_store_get_buffer(store, "y", 1, &buffer), YOLK_OK);
    assert_memory_equal(buffer.data, "value y", 7);
    yolk_store_release_buffer(store, &buffer);
    assert_int_equal(yolk_store_list(store, count_key, &listed), YOLK_OK);
    assert_int_equal(listed, 2);
    struct yolk_kv kv = {"x", 1, NULL, 0, 77, 0};
    assert_int_equal(yolk_store_remove(store, &kv, 1, 1), YOLK_OK);
    assert_int_equal(yolk_store_remove_all(store, 1, &removed), YOLK_OK);
    assert_int_equal(removed, 1);
    /* The longest key is shorter by what names the tenant. */
    char *key = malloc(4096);
    memset(key, 'k', 4096);
    struct yolk_slice slice = {"v", 1};
    struct yolk_kv longest = {key, 4096 - 6, &slice, 1, 77, 0};
    assert_int_equal(yolk_store_put(store, &longest, 1), YOLK_OK);
    longest.key_size = 4096 - 5;
    assert_int_equal(yolk_store_put(store, &longest, 1), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "tenant"));
    assert_int_equal(yolk_store_size(store, key, 4096, &size), YOLK_ERR_INVALID);
    free(key);
    close_store(store);
}

/* Keys of the default tenant are any bytes, those with the mark of tenants too. */
static void marked_keys_of_the_default_tenant(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(MIB_BYTES, NULL, "a=1MiB");
    const char *keys[] = {"\xff",
                          "\xff\x01"
                          "ak",
                          "\xff\xff\xff",
                          "\xff\x05"
                          "a"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(put_as(store, keys[i], keys[i], NULL, 0), strlen(keys[i]));
    for (int i = 0; i < 4; i++)
        has(store, keys[i], keys[i]);
    assert_int_equal(figure(store, "objects"), 4);
    close_store(store);
}

static void c18_over_the_quota(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(8 * MIB_BYTES, "t", "t=1MiB");
    uint8_t *value = calloc(1, 64 * KIB_BYTES);
    char key[16];
    for (int i = 0; i < 64; i++) { /* four times the quota */
        struct yolk_slice slice = {value, 64 * KIB_BYTES};
        snprintf(key, sizeof key, "k%d", i);
        struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
        assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
        assert_int_equal(yolk_store_exist(store, &kv, 1), YOLK_OK);
        assert_int_equal(kv.result, 1); /* what was just written is there */
    }
    assert_int_equal(figure(store, "objects"), 16);
    struct yolk_slice large = {value, 64 * KIB_BYTES};
    struct yolk_slice slices[17];
    for (int i = 0; i < 17; i++)
        slices[i] = large;
    struct yolk_kv kv = {"too large", 9, slices, 17, 77, 0};
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_ERR_QUOTA);
    assert_non_null(strstr(yolk_last_error(), "quota"));
    free(value);
    close_store(store);
}

static void who_is_not_let_in(void **state)
{
    (void)state;
    const char *wrong[][2] = {{"other", "team=1MiB"}, {"team", NULL}, {"_team", "team=1MiB"}};
    for (int i = 0; i < 3; i++) {
        struct yolk_store_options options;
        struct yolk_store *store = NULL;
        yolk_store_options_init(&options);
        options.master = "embedded";
        options.tenant_id = wrong[i][0];
        options.tenants = wrong[i][1];
        assert_int_equal(yolk_store_open(&options, &store),
                         i == 2 ? YOLK_ERR_CONFIG : YOLK_ERR_NO_TENANT);
        assert_non_null(strstr(yolk_last_error(), "tenant"));
        assert_null(store);
    }
}

static void a_pool_is_used_up(void **state)
{
    (void)state;
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = MIB_BYTES;
    options.pool_size_bytes = 64 * KIB_BYTES;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    assert_int_equal(yolk_store_pool_alloc(store, 5000, &a), YOLK_OK);
    assert_int_equal(yolk_store_pool_alloc(store, 1, &b), YOLK_OK);
    assert_true((uintptr_t)a % 4096 == 0 && (uint8_t *)b == (uint8_t *)a + 8192);
    assert_int_equal(yolk_store_pool_alloc(store, 64 * KIB_BYTES, &c), YOLK_ERR_NO_SPACE);
    assert_non_null(strstr(yolk_last_error(), "pool_size_bytes"));
    assert_int_equal(yolk_store_pool_alloc(store, 52 * KIB_BYTES, &c), YOLK_OK);
    assert_int_equal(yolk_store_pool_alloc(store, 1, &c), YOLK_ERR_NO_SPACE);
    memset(a, 'a', 5000);
    struct yolk_slice slice = {a, 5000};
    struct yolk_kv kv = {"k", 1, &slice, 1, 77, 0};
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    memset(a, 0, 5000);
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    assert_int_equal(((char *)a)[4999], 'a');
    uint16_t port;
    assert_int_equal(yolk_store_serve_clients(store, "127.0.0.1:0", &port), YOLK_ERR_UNSUPPORTED);
    close_store(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upsert_replaces_and_a_put_does_not),
        cmocka_unit_test(in_a_batch_the_last_value_stays),
        cmocka_unit_test(a_handle_keeps_the_old_value),
        cmocka_unit_test(readers_beside_upserts),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(hard_pins_are_bounded),
        cmocka_unit_test(a_tenant_sees_its_own_keys),
        cmocka_unit_test(marked_keys_of_the_default_tenant),
        cmocka_unit_test(c18_over_the_quota),
        cmocka_unit_test(who_is_not_let_in),
        cmocka_unit_test(a_pool_is_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
