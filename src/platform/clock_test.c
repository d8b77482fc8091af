/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "platform/clock.h"
#include "platform/random.h"
#include "platform/thread.h"

static void real_clock_runs(void **state)
{
    (void)state;
    struct clock c = clock_real();
    uint64_t a = clock_now(&c), b;
    do {
        b = clock_now(&c);
        assert_true(b >= a);
    } while (b == a);
}

static void virtual_clock(void **state)
{
    (void)state;
    struct clock_sim sim;
    clock_sim_init(&sim, 100);
    struct clock c = clock_sim_clock(&sim);
    assert_int_equal(clock_now(&c), 100);
    clock_sim_advance(&sim, 11);
    assert_int_equal(clock_now(&c), 111);
    clock_sim_set(&sim, 50); /* never back */
    assert_int_equal(clock_now(&c), 111);
    clock_sim_set(&sim, 500);
    assert_int_equal(clock_now(&c), 500);
}

static void sums_saturate(void **state)
{
    (void)state;
    assert_true(clock_after(10, CLOCK_NEVER) == CLOCK_NEVER);
    assert_true(clock_after(10, 5) == 15);
    assert_true(clock_after_ms(10, UINT64_MAX / 2) == CLOCK_NEVER);
    assert_true(clock_after_ms(10, 1) == 1000010);
}

static void seeded_stream(void **state)
{
    (void)state;
    struct random_sim a, b, other;
    random_sim_init(&a, 42);
    random_sim_init(&b, 42);
    random_sim_init(&other, 43);
    struct random ra = random_sim_random(&a), rb = random_sim_random(&b);
    struct random ro = random_sim_random(&other);
    unsigned same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = random_u64(&ra);
        assert_true(x == random_u64(&rb));
        same += x == random_u64(&ro);
    }
    assert_int_equal(same, 0);
    unsigned counts[7] = {0};
    for (int i = 0; i < 7000; i++)
        counts[random_below(&ra, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 800, 1200);
    assert_int_equal(random_below(&ra, 0), 0);
    assert_int_equal(random_below(&ra, 1), 0);
    uint8_t bytes[13] = {0}, zero[13] = {0};
    random_bytes(&ra, bytes, 12);
    assert_memory_not_equal(bytes, zero, 12);
    assert_int_equal(bytes[12], 0);
    struct random real = random_real();
    assert_true(random_u64(&real) != random_u64(&real));
}

struct handshake {
    struct mutex m;
    struct condition c;
    int turn;
    char name[16];
};

static void answer(void *arg)
{
    struct handshake *h = arg;
    mutex_lock(&h->m);
    pthread_getname_np(pthread_self(), h->name, sizeof(h->name));
    while (h->turn != 1)
        condition_wait(&h->c, &h->m);
    h->turn = 2;
    condition_broadcast(&h->c);
    mutex_unlock(&h->m);
}

static void threads_and_conditions(void **state)
{
    (void)state;
    struct handshake h = {.turn = 0};
    struct thread t = {0};
    thread_join(&t); /* never started */
    mutex_init(&h.m);
    condition_init(&h.c);
    assert_int_equal(thread_start(&t, "a-name-longer-than-15", answer, &h), YOLK_OK);
    assert_false(thread_is_self(&t));
    mutex_lock(&h.m);
    assert_false(mutex_trylock(&h.m));
    h.turn = 1;
    condition_broadcast(&h.c);
    while (h.turn != 2)
        assert_true(condition_wait_until(&h.c, &h.m, clock_after_ms(clock_real_now_ns(), 60000)));
    mutex_unlock(&h.m);
    thread_join(&t);
    assert_false(t.running);
    assert_string_equal(h.name, "a-name-longer-t");
    mutex_lock(&h.m);
    uint64_t before = clock_real_now_ns(), deadline = before + 2 * CLOCK_NS_PER_MS;
    while (condition_wait_until(&h.c, &h.m, deadline))
        ;
    assert_true(clock_real_now_ns() >= deadline);
    assert_false(condition_wait_until(&h.c, &h.m, before)); /* already past */
    mutex_unlock(&h.m);
    condition_destroy(&h.c);
    mutex_destroy(&h.m);
    assert_true(thread_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_clock_runs),        cmocka_unit_test(virtual_clock),
        cmocka_unit_test(sums_saturate),          cmocka_unit_test(seeded_stream),
        cmocka_unit_test(threads_and_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
