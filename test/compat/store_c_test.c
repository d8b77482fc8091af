/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's C interface, with a master in the same process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compat/codes.h"
#include "mooncake/store_c.h"
#include "platform/thread.h"

#define MEMORY (16u << 20)
enum { INVALID_PARAMS = -600, NOT_FOUND = -704, HAS_LEASE = -706, NO_HANDLE = -200 };
enum { NOT_NOW = -1010, NOT_SUPPORTED = -1012 };

static int open_it(void **state)
{
    *state = mooncake_store_create();
    return mooncake_store_setup(*state, "localhost:17812", "P2PHANDSHAKE", MEMORY, MEMORY, "tcp",
                                "", "embedded");
}

static int close_it(void **state)
{
    mooncake_store_destroy(*state);
    return 0;
}

static void values_come_back(void **state)
{
    char got[16];
    memset(got, '#', sizeof(got));
    assert_int_equal(mooncake_store_health_check(*state), 0);
    assert_int_equal(mooncake_store_put(*state, "k", "value", 5, NULL), 0);
    assert_int_equal(mooncake_store_get_size(*state, "k"), 5);
    assert_int_equal(mooncake_store_get_into(*state, "k", got, sizeof(got)), 5);
    assert_memory_equal(got, "value###########", 16);
    /* Values do not change. */
    assert_int_equal(mooncake_store_put(*state, "k", "other", 5, NULL), 0);
    assert_int_equal(mooncake_store_get_into(*state, "k", got, 5), 5);
    assert_memory_equal(got, "value", 5);
}

static void values_may_be_empty(void **state)
{
    assert_int_equal(mooncake_store_put(*state, "e", NULL, 0, NULL), 0);
    assert_int_equal(mooncake_store_put_from(*state, "f", NULL, 0, NULL), 0);
    assert_int_equal(mooncake_store_get_size(*state, "e"), 0);
    assert_int_equal(mooncake_store_get_into(*state, "f", NULL, 0), 0);
    assert_int_equal(mooncake_store_is_exist(*state, "f"), 1);
}

static void memory_too_small_is_left_alone(void **state)
{
    char got[4] = "####";
    assert_int_equal(mooncake_store_put(*state, "k", "value", 5, NULL), 0);
    assert_int_equal(mooncake_store_get_into(*state, "k", got, 4), INVALID_PARAMS);
    assert_memory_equal(got, "####", 4);
}

static void batches_answer_for_each_key(void **state)
{
    char memory[4][8], got[4][8];
    const char *keys[] = {"a", "b", "a", "d"};
    void *from[] = {memory[0], memory[1], memory[2], memory[3]};
    void *to[] = {got[0], got[1], got[2], got[3]};
    const size_t sizes[] = {8, 3, 8, 8};
    const size_t room[] = {8, 2, 8, 8};
    int put[4], there[4];
    int64_t sizes_got[4];
    for (int i = 0; i < 4; i++)
        memset(memory[i], '0' + i, 8);
    assert_int_equal(mooncake_store_register_buffer(*state, memory, sizeof(memory)), 0);
    assert_int_equal(mooncake_store_batch_put_from(*state, keys, from, sizes, 3, NULL, put), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(put[i], 0);
    assert_int_equal(mooncake_store_batch_is_exist(*state, keys, 4, there), 0);
    assert_int_equal(there[0] + there[1] + there[2], 3);
    assert_int_equal(there[3], 0);
    assert_int_equal(mooncake_store_batch_get_into(*state, keys, to, room, 4, sizes_got), 0);
    assert_int_equal(sizes_got[0], 8);
    assert_memory_equal(got[0], "00000000", 8);
    assert_int_equal(sizes_got[1], INVALID_PARAMS);
    assert_int_equal(sizes_got[2], 8);
    assert_memory_equal(got[2], "00000000", 8); /* a key given twice: the first wins */
    assert_int_equal(sizes_got[3], NOT_FOUND);
    assert_int_equal(mooncake_store_unregister_buffer(*state, memory), 0);
    assert_int_equal(mooncake_store_batch_is_exist(*state, keys, 0, there), 0);
}

/* One that cannot be put or asked for is that one's failure. */
static void a_wrong_key_fails_alone(void **state)
{
    static char too_long[5000];
    char memory[3][8] = {"1111111", "", "3333333"}, got[3][8];
    const char *keys[] = {"a", "", "c"};
    void *from[] = {memory[0], memory[1], memory[2]}, *to[] = {got[0], got[1], got[2]};
    const size_t sizes[] = {8, 8, 8};
    int put[3], there[3];
    int64_t sizes_got[3];
    memset(too_long, 'x', sizeof(too_long) - 1);
    for (int round = 0; round < 2; round++, keys[1] = too_long) {
        assert_int_equal(mooncake_store_batch_put_from(*state, keys, from, sizes, 3, NULL, put), 0);
        assert_int_equal(mooncake_store_batch_is_exist(*state, keys, 3, there), 0);
        assert_int_equal(mooncake_store_batch_get_into(*state, keys, to, sizes, 3, sizes_got), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(put[i], i == 1 ? INVALID_PARAMS : 0);
            assert_int_equal(there[i], i == 1 ? INVALID_PARAMS : 1);
            assert_int_equal(sizes_got[i], i == 1 ? INVALID_PARAMS : 8);
        }
        assert_memory_equal(got[2], memory[2], 8);
    }
}

static void keys_are_removed(void **state)
{
    char got[1];
    assert_int_equal(mooncake_store_put(*state, "k", "v", 1, NULL), 0);
    assert_int_equal(mooncake_store_put(*state, "l", "v", 1, NULL), 0);
    assert_int_equal(mooncake_store_is_exist(*state, "k"), 1); /* which leases it */
    assert_int_equal(mooncake_store_remove(*state, "k", 0), HAS_LEASE);
    assert_int_equal(mooncake_store_remove(*state, "k", 1), 0);
    assert_int_equal(mooncake_store_remove(*state, "k", 1), NOT_FOUND);
    assert_int_equal(mooncake_store_get_into(*state, "k", got, 1), NOT_FOUND);
    assert_int_equal(mooncake_store_get_size(*state, "k"), NOT_FOUND);
    assert_int_equal(mooncake_store_is_exist(*state, "l"), 1);
    assert_int_equal(mooncake_store_remove_all(*state, 0), 0);
    assert_int_equal(mooncake_store_remove_all(*state, 1), 1);
    assert_int_equal(mooncake_store_is_exist(*state, "l"), 0);
}

static int64_t removed(void *store, const char *pattern)
{
    return mooncake_store_remove_by_regex(store, pattern, 1);
}

static void patterns_choose_what_is_removed(void **state)
{
    static const char *const keys[] = {"layer.1", "layer.22", "layerx1",    "tag-a/b",
                                       "A_b",     "x[0]",     "sha256:00ff"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_int_equal(mooncake_store_put(*state, keys[i], "v", 1, NULL), 0);
    assert_int_equal(removed(*state, "^yer"), 0);
    assert_int_equal(removed(*state, "layer\\.\\d$"), 1);
    assert_int_equal(mooncake_store_is_exist(*state, "layer.1"), 0);
    assert_int_equal(mooncake_store_is_exist(*state, "layerx1"), 1);
    assert_int_equal(removed(*state, "(?:yer\\.)\\d{2}"), 1);
    assert_int_equal(removed(*state, "\\Dx?1$"), 1);
    assert_int_equal(removed(*state, "^tag\\-[ab]\\/"), 1);
    assert_int_equal(removed(*state, "^\\w+$"), 1);
    assert_int_equal(removed(*state, "\\[0]"), 1);
    assert_int_equal(removed(*state, ":[0-9a-f]+?$"), 1);
    assert_int_equal(removed(*state, ""), 0);
}

static void patterns_that_mean_another_thing_are_refused(void **state)
{
    static const char *const bad[] = {"(?=a)", "(?!a)", "[\\d]", "\\n",   "\\x41",
                                      "a\\",   "[a",    "[]a]",  "(a",    "[[:alpha:]]",
                                      "*",     "\\cA",  "\\<a",  "a{2,1}"};
    assert_int_equal(mooncake_store_put(*state, "a", "v", 1, NULL), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (removed(*state, bad[i]) != INVALID_PARAMS)
            fail_msg("%s: not refused", bad[i]);
    assert_int_equal(mooncake_store_is_exist(*state, "a"), 1);
}

/* More than the removal takes at a time. */
static void a_pattern_may_choose_thousands(void **state)
{
    char key[32];
    for (int i = 0; i < 2500; i++) {
        (void)snprintf(key, sizeof(key), "many/%04d", i);
        assert_int_equal(mooncake_store_put(*state, key, "v", 1, NULL), 0);
    }
    assert_int_equal(mooncake_store_put(*state, "other", "v", 1, NULL), 0);
    assert_int_equal(removed(*state, "^many/"), 2500);
    assert_int_equal(mooncake_store_is_exist(*state, "other"), 1);
    assert_int_equal(mooncake_store_is_exist(*state, "many/2499"), 0);
}

static void the_host_name_is_told(void **state)
{
    char name[16], small[15];
    assert_int_equal(mooncake_store_get_hostname(*state, name, sizeof(name)), 0);
    assert_string_equal(name, "localhost:17812");
    assert_int_equal(mooncake_store_get_hostname(*state, small, sizeof(small)), -1);
}

static void what_cannot_be_kept_is_refused(void **state)
{
    static char much[MEMORY + 1];
    mooncake_replicate_config_t config = {.replica_num = 0};
    int result;
    const char *key = "k";
    void *from = much;
    const size_t size = 1;
    assert_int_equal(mooncake_store_put(*state, "k", "v", 1, &config), INVALID_PARAMS);
    assert_int_equal(mooncake_store_batch_put_from(*state, &key, &from, &size, 1, &config, &result),
                     0);
    assert_int_equal(result, INVALID_PARAMS);
    /* Larger than all there is: to wait would not help. */
    assert_int_equal(mooncake_store_put(*state, "k", much, sizeof(much), NULL), INVALID_PARAMS);
    assert_int_equal(mooncake_store_is_exist(*state, "k"), 0);
    assert_int_equal(mooncake_store_put(*state, "", "v", 1, NULL), INVALID_PARAMS);
}

static void pins_and_preferred_segments_are_taken(void **state)
{
    static char values[MEMORY / 64];
    const char *there[] = {"localhost:17812"}, *missing[] = {"elsewhere:1", NULL};
    mooncake_replicate_config_t config = {.replica_num = 1, .with_hard_pin = 1};
    char key[32];
    assert_int_equal(mooncake_store_put(*state, "pinned", "v", 1, &config), 0);
    config = (mooncake_replicate_config_t){1, 1, 0, there, 1};
    assert_int_equal(mooncake_store_put(*state, "soft", "v", 1, &config), 0);
    config = (mooncake_replicate_config_t){1, 0, 0, missing, 1};
    assert_int_equal(mooncake_store_put(*state, "elsewhere", "v", 1, &config), 0);
    /* Three times what there is room for: only what is pinned stays. */
    for (int i = 0; i < 192; i++) {
        (void)snprintf(key, sizeof(key), "other/%d", i);
        assert_int_equal(mooncake_store_put(*state, key, values, sizeof(values), NULL), 0);
    }
    assert_int_equal(mooncake_store_is_exist(*state, "pinned"), 1);
    assert_int_equal(mooncake_store_is_exist(*state, "soft"), 1);
    assert_int_equal(mooncake_store_is_exist(*state, "other/0"), 0);
}

static void null_pointers_are_refused(void **state)
{
    char c = 0;
    const char *keys[] = {"a", NULL};
    void *memory[] = {&c, &c}, *lacking[] = {&c, NULL};
    const size_t sizes[] = {1, 1};
    int numbers[2];
    int64_t sizes_got[2];
    assert_int_equal(mooncake_store_put(NULL, "k", "v", 1, NULL), -1);
    assert_int_equal(mooncake_store_put(*state, NULL, "v", 1, NULL), -1);
    assert_int_equal(mooncake_store_put(*state, "k", NULL, 1, NULL), -1);
    assert_int_equal(mooncake_store_get_into(*state, "k", NULL, 1), -1);
    assert_int_equal(mooncake_store_batch_put_from(*state, keys, memory, sizes, 2, NULL, numbers),
                     -1);
    keys[1] = "b";
    assert_int_equal(mooncake_store_batch_put_from(*state, keys, lacking, sizes, 2, NULL, numbers),
                     -1);
    assert_int_equal(mooncake_store_batch_get_into(*state, keys, lacking, sizes, 2, sizes_got), -1);
    assert_int_equal(mooncake_store_batch_is_exist(*state, keys, 2, NULL), -1);
    assert_int_equal(mooncake_store_is_exist(*state, "a"), 0); /* nothing was done */
    assert_int_equal(mooncake_store_register_buffer(*state, NULL, 1), -1);
    assert_int_equal(mooncake_store_register_buffer(*state, &c, 0), -1);
    assert_int_equal(mooncake_store_remove_by_regex(*state, NULL, 1), -1);
    assert_int_equal(mooncake_store_get_hostname(*state, NULL, 1), -1);
    assert_int_equal(mooncake_store_setup(NULL, NULL, NULL, 0, 0, NULL, NULL, NULL), -1);
    assert_int_equal(mooncake_store_init_all(NULL, NULL, NULL, 0), -1);
    assert_int_equal(mooncake_store_health_check(NULL), -1);
    mooncake_store_destroy(NULL);
}

static void a_store_that_is_not_set_up_answers(void **state)
{
    char text[4] = "#";
    int numbers[2] = {7, 7};
    int64_t sizes_got[2] = {7, 7};
    const char *keys[] = {"a", "b"};
    void *memory[] = {text, text};
    const size_t sizes[] = {1, 1};
    mooncake_store_t store = mooncake_store_create();
    (void)state;
    assert_int_equal(mooncake_store_health_check(store), 1);
    assert_int_equal(mooncake_store_put(store, "k", "v", 1, NULL), INVALID_PARAMS);
    assert_int_equal(mooncake_store_get_into(store, "k", text, 1), INVALID_PARAMS);
    assert_int_equal(mooncake_store_is_exist(store, "k"), INVALID_PARAMS);
    assert_int_equal(mooncake_store_get_size(store, "k"), INVALID_PARAMS);
    assert_int_equal(mooncake_store_remove(store, "k", 0), INVALID_PARAMS);
    assert_int_equal(mooncake_store_remove_all(store, 0), INVALID_PARAMS);
    assert_int_equal(mooncake_store_remove_by_regex(store, "k", 0), INVALID_PARAMS);
    assert_int_equal(mooncake_store_register_buffer(store, text, 1), INVALID_PARAMS);
    assert_int_equal(mooncake_store_unregister_buffer(store, text), INVALID_PARAMS);
    assert_int_equal(mooncake_store_batch_put_from(store, keys, memory, sizes, 2, NULL, numbers),
                     0);
    assert_int_equal(numbers[0], INVALID_PARAMS);
    assert_int_equal(numbers[1], INVALID_PARAMS);
    assert_int_equal(mooncake_store_batch_get_into(store, keys, memory, sizes, 2, sizes_got), 0);
    assert_int_equal(sizes_got[1], INVALID_PARAMS);
    assert_int_equal(mooncake_store_get_hostname(store, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    mooncake_store_destroy(store);
}

static int set_up(const char *host, const char *protocol, const char *master)
{
    mooncake_store_t store = mooncake_store_create();
    int code = mooncake_store_setup(store, host, "", 0, MEMORY, protocol, "", master);
    mooncake_store_destroy(store);
    return code;
}

static void setup_refuses_what_cannot_be(void **state)
{
    static char long_host[400];
    (void)state;
    memset(long_host, 'h', sizeof(long_host) - 1);
    assert_int_equal(set_up("localhost", "ascend", "embedded"), NOT_SUPPORTED);
    assert_int_equal(set_up("localhost:0", "tcp", "embedded"), INVALID_PARAMS);
    assert_int_equal(set_up("localhost:65536", "tcp", "embedded"), INVALID_PARAMS);
    assert_int_equal(set_up("localhost:http", "tcp", "embedded"), INVALID_PARAMS);
    assert_int_equal(set_up(long_host, "tcp", "embedded"), INVALID_PARAMS);
    assert_int_equal(set_up("localhost", "tcp", "no port"), INVALID_PARAMS);
}

static void names_of_hosts_are_read(void **state)
{
    static const struct {
        const char *host, *begins;
    } rows[] = {{"localhost", "localhost:"},
                {"127.0.0.1:80", "127.0.0.1:80"},
                {"[::1]:9", "[::1]:9"},
                {"::1", "[::1]:"}};
    char name[64];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mooncake_store_t store = mooncake_store_create();
        assert_int_equal(
            mooncake_store_setup(store, rows[i].host, "", 0, 0, "rdma", "mlx5_0", "embedded"), 0);
        assert_int_equal(mooncake_store_get_hostname(store, name, sizeof(name)), 0);
        assert_memory_equal(name, rows[i].begins, strlen(rows[i].begins));
        mooncake_store_destroy(store);
    }
}

static void a_failed_setup_may_be_repeated_but_not_a_good_one(void **state)
{
    mooncake_store_t store = mooncake_store_create();
    (void)state;
    assert_int_equal(mooncake_store_setup(store, "", "", 0, 0, "ascend", "", "embedded"),
                     NOT_SUPPORTED);
    assert_int_equal(mooncake_store_setup(store, NULL, NULL, MEMORY, 0, NULL, NULL, "embedded"), 0);
    assert_int_equal(mooncake_store_setup(store, NULL, NULL, MEMORY, 0, NULL, NULL, "embedded"),
                     INVALID_PARAMS);
    assert_int_equal(mooncake_store_init_all(store, "tcp", "", MEMORY), INVALID_PARAMS);
    /* local_buffer_size 0: only puts from buffers. */
    char value[] = "v";
    assert_int_equal(mooncake_store_put(store, "k", value, 1, NULL), INVALID_PARAMS);
    assert_int_equal(mooncake_store_put_from(store, "k", value, 1, NULL), 0);
    mooncake_store_destroy(store);
}

static void a_fork_s_child_is_refused_and_may_destroy(void **state)
{
    char got[1];
    assert_int_equal(mooncake_store_put(*state, "k", "v", 1, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        int refused = mooncake_store_put(*state, "l", "v", 1, NULL) == NOT_NOW &&
                      mooncake_store_get_into(*state, "k", got, 1) == NOT_NOW &&
                      mooncake_store_is_exist(*state, "k") == NOT_NOW;
        mooncake_store_destroy(*state);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(mooncake_store_get_into(*state, "k", got, 1), 1);
}

enum { THREADS = 8, ROUNDS = 100 };
struct worker {
    void *store;
    int number, bad;
};

static void work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char key[32];
        uint64_t value = (uint64_t)w->number * ROUNDS + (uint64_t)i, got = 0;
        (void)snprintf(key, sizeof(key), "%d/%d", w->number, i);
        w->bad += mooncake_store_put(w->store, key, &value, sizeof(value), NULL) != 0 ||
                  mooncake_store_get_into(w->store, key, &got, sizeof(got)) != sizeof(got) ||
                  got != value;
    }
}

static void threads_share_a_store(void **state)
{
    struct worker workers[THREADS];
    struct thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){*state, i, 0};
        assert_int_equal(thread_start(&threads[i], "worker", work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(workers[i].bad, 0);
    }
}

static void every_status_has_a_number(void **state)
{
    size_t count;
    const struct compat_code_row *rows = compat_code_rows(&count);
    (void)state;
    for (size_t i = 0; i < count; i++)
        assert_int_equal(compat_code_of(rows[i].status), rows[i].code);
    for (int status = -400; status < 0; status++) {
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            found += (int)rows[i].status == status;
        int known = strcmp(yolk_strerror(status), "unknown status") != 0;
        if (found != (size_t)known)
            fail_msg("%d (%s) has %zu numbers", status, yolk_status_name(status), found);
    }
    assert_int_equal(compat_code_of(-399), -1);
    assert_int_equal(compat_code_of(5), 5);
    assert_int_equal(compat_code_of(YOLK_ERR_NO_SPACE), NO_HANDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_come_back, open_it, close_it),
        cmocka_unit_test_setup_teardown(values_may_be_empty, open_it, close_it),
        cmocka_unit_test_setup_teardown(memory_too_small_is_left_alone, open_it, close_it),
        cmocka_unit_test_setup_teardown(batches_answer_for_each_key, open_it, close_it),
        cmocka_unit_test_setup_teardown(a_wrong_key_fails_alone, open_it, close_it),
        cmocka_unit_test_setup_teardown(keys_are_removed, open_it, close_it),
        cmocka_unit_test_setup_teardown(patterns_choose_what_is_removed, open_it, close_it),
        cmocka_unit_test_setup_teardown(patterns_that_mean_another_thing_are_refused, open_it,
                                        close_it),
        cmocka_unit_test_setup_teardown(a_pattern_may_choose_thousands, open_it, close_it),
        cmocka_unit_test_setup_teardown(the_host_name_is_told, open_it, close_it),
        cmocka_unit_test_setup_teardown(what_cannot_be_kept_is_refused, open_it, close_it),
        cmocka_unit_test_setup_teardown(pins_and_preferred_segments_are_taken, open_it, close_it),
        cmocka_unit_test_setup_teardown(null_pointers_are_refused, open_it, close_it),
        cmocka_unit_test(a_store_that_is_not_set_up_answers),
        cmocka_unit_test(setup_refuses_what_cannot_be),
        cmocka_unit_test(names_of_hosts_are_read),
        cmocka_unit_test(a_failed_setup_may_be_repeated_but_not_a_good_one),
        cmocka_unit_test_setup_teardown(a_fork_s_child_is_refused_and_may_destroy, open_it,
                                        close_it),
        cmocka_unit_test_setup_teardown(threads_share_a_store, open_it, close_it),
        cmocka_unit_test(every_status_has_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
