/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/loop.h"
#include "platform/net.h"

#define SECOND CLOCK_NS_PER_S

struct world {
    struct loop *loop;
    struct loop_listener *listener;
    struct net_address address;
    unsigned accepted, closed, fired, turns;
    enum yolk_status reason;
    size_t output_max;
    size_t reply_size; /* each byte of input is answered with so many */
    size_t per_call;   /* bytes of input taken a call */
    bool refuse;
    uint64_t deadline_ns; /* of each stream; 0: none */
    unsigned last_words;  /* for so many streams whose deadline passed */
    uint8_t order[16];
    size_t order_count;
};

static enum loop_input on_input(void *self, struct loop_stream *stream, const uint8_t *data,
                                size_t size, size_t *consumed)
{
    struct world *world = self;
    static uint8_t reply[1 << 20];
    size_t take = size < world->per_call ? size : world->per_call;
    if (take == 0)
        return LOOP_WAIT;
    if (data[0] == 'U')
        loop_stream_set_urgent(stream, true);
    if (data[0] == 'Q')
        loop_stream_close(stream, YOLK_ERR_CANCELED, true);
    if (world->order_count < sizeof(world->order))
        world->order[world->order_count++] = data[0];
    memset(reply, data[0], world->reply_size);
    for (size_t i = 0; i < take; i++)
        if (loop_stream_write(stream, reply, world->reply_size) != YOLK_OK)
            break;
    *consumed = take;
    return take < size ? LOOP_MORE : LOOP_WAIT;
}

static void on_closed(void *self, struct loop_stream *stream, enum yolk_status reason)
{
    struct world *world = self;
    assert_ptr_equal(loop_stream_self(stream), world);
    world->closed++;
    world->reason = reason;
}

static bool on_late(void *self, struct loop_stream *stream)
{
    struct world *world = self;
    if (world->last_words == 0)
        return false;
    world->last_words--;
    assert_int_equal(loop_stream_write(stream, "L", 1), YOLK_OK);
    loop_stream_close(stream, YOLK_ERR_TIMEOUT, true);
    return true;
}

static bool on_accept(void *self, struct loop_stream *stream, const struct net_address *peer,
                      struct loop_stream_options *options)
{
    (void)stream, (void)peer;
    struct world *world = self;
    if (world->refuse)
        return false;
    world->accepted++;
    *options = (struct loop_stream_options){.callbacks = {on_input, on_closed, on_late},
                                            .self = world,
                                            .input_max = 64 * 1024,
                                            .output_max = world->output_max,
                                            .deadline_ns = world->deadline_ns ? world->deadline_ns
                                                                              : CLOCK_NEVER};
    return true;
}

static void begin(struct world *world)
{
    *world = (struct world){.output_max = 1 << 20, .reply_size = 1, .per_call = 1 << 20};
    struct net_address any;
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &any), YOLK_OK);
    assert_int_equal(loop_create(NULL, &world->loop), YOLK_OK);
    assert_int_equal(
        loop_listen(world->loop, &any, on_accept, world, &world->address, &world->listener),
        YOLK_OK);
}

static void finish(struct world *world)
{
    loop_listener_destroy(world->listener);
    assert_int_equal(world->closed, world->accepted);
    loop_destroy(world->loop);
}

static uint64_t soon(void)
{
    return clock_real_now_ns() + 20 * SECOND;
}

static int dial(struct world *world)
{
    int fd = -1;
    assert_int_equal(net_connect(&world->address, soon(), &fd), YOLK_OK);
    return fd;
}

static void fire(void *self)
{
    ((struct world *)self)->fired++;
}

static void test_timer(void **state)
{
    (void)state;
    struct world world;
    struct loop_timer *timer;
    begin(&world);
    assert_int_equal(loop_timer_create(world.loop, fire, &world, &timer), YOLK_OK);
    uint64_t start = clock_real_now_ns();
    loop_timer_set(timer, start + 20 * CLOCK_NS_PER_MS);
    while (world.fired == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_true(clock_real_now_ns() - start >= 19 * CLOCK_NS_PER_MS);
    /* In the past: at once. Stopped: never. */
    loop_timer_set(timer, 0);
    while (world.fired == 1)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    loop_timer_set(timer, 0);
    loop_timer_set(timer, CLOCK_NEVER);
    int fd = dial(&world);
    while (world.accepted == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(world.fired, 2);
    net_close(fd);
    loop_timer_destroy(timer);
    finish(&world);
}

static void test_echo_and_end(void **state)
{
    (void)state;
    struct world world;
    uint8_t data[5000], back[5000];
    begin(&world);
    world.per_call = 700;
    int fd = dial(&world);
    memset(data, 'e', sizeof(data));
    assert_int_equal(net_send_all(fd, data, sizeof(data), soon()), YOLK_OK);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    /* Everything that came is answered before the stream ends. */
    while (world.closed == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(world.reason, YOLK_ERR_EOF);
    assert_int_equal(net_recv_all(fd, back, sizeof(back), soon()), YOLK_OK);
    assert_memory_equal(data, back, sizeof(back));
    assert_int_equal(net_recv_all(fd, back, 1, soon()), YOLK_ERR_EOF);
    net_close(fd);
    finish(&world);
}

static void test_close_flushes(void **state)
{
    (void)state;
    struct world world;
    uint8_t back[2];
    begin(&world);
    int fd = dial(&world);
    assert_int_equal(net_send_all(fd, "a", 1, soon()), YOLK_OK);
    while (world.order_count == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(net_send_all(fd, "Q", 1, soon()), YOLK_OK);
    while (world.closed == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(net_recv_all(fd, back, 1, soon()), YOLK_OK);
    net_close(fd);
    finish(&world);
}

static void test_one_that_does_not_read_is_closed(void **state)
{
    (void)state;
    struct world world;
    uint8_t data[64];
    begin(&world);
    world.reply_size = 1 << 20;
    world.output_max = 16 << 20;
    int fd = dial(&world);
    memset(data, 'x', sizeof(data));
    assert_int_equal(net_send_all(fd, data, sizeof(data), soon()), YOLK_OK);
    while (world.closed == 0)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(world.reason, YOLK_ERR_LIMIT);
    net_close(fd);
    finish(&world);
}

/* With small steps the output pauses the input instead of running over its maximum. */
static void test_backpressure(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    struct world world;
    uint8_t data[COUNT];
    static uint8_t back[1 << 20];
    begin(&world);
    world.reply_size = 1 << 20;
    world.output_max = 4 << 20;
    world.per_call = 1;
    struct loop_timer *timer;
    assert_int_equal(loop_timer_create(world.loop, fire, &world, &timer), YOLK_OK);
    int fd = dial(&world);
    memset(data, 'x', sizeof(data));
    assert_int_equal(net_send_all(fd, data, sizeof(data), soon()), YOLK_OK);
    size_t got = 0;
    while (got < COUNT * sizeof(back)) {
        size_t n = 0;
        if (net_wait(fd, 1, clock_real_now_ns()) != YOLK_OK) {
            /* All may have been sent, and be on its way here: the turn must not wait for more. */
            loop_timer_set(timer, clock_real_now_ns() + CLOCK_NS_PER_MS);
            assert_int_equal(loop_turn(world.loop), YOLK_OK);
            continue;
        }
        assert_int_equal(net_recv_some(fd, back, sizeof(back), soon(), &n), YOLK_OK);
        got += n;
    }
    assert_int_equal(world.closed, 0);
    net_close(fd);
    loop_timer_destroy(timer);
    finish(&world);
}

static void test_deadline_and_refusal(void **state)
{
    (void)state;
    struct world world;
    uint8_t byte;
    begin(&world);
    world.refuse = true;
    int refused = dial(&world);
    assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_not_equal(net_recv_all(refused, &byte, 1, soon()), YOLK_OK);
    net_close(refused);
    assert_int_equal(world.accepted, 0);
    /* Too late: the one with a last word, the other without. */
    world.refuse = false;
    world.deadline_ns = 1;
    world.last_words = 1;
    for (unsigned i = 1; i <= 2; i++) {
        int late = dial(&world);
        while (world.closed < i)
            assert_int_equal(loop_turn(world.loop), YOLK_OK);
        assert_int_equal(world.reason, YOLK_ERR_TIMEOUT);
        assert_int_equal(net_recv_all(late, &byte, 1, soon()), i == 1 ? YOLK_OK : YOLK_ERR_EOF);
        if (i == 1)
            assert_int_equal(byte, 'L');
        net_close(late);
    }
    finish(&world);
}

static void *stop_it(void *arg)
{
    loop_stop(arg);
    return NULL;
}

static void stop_on_signal(void *self, int number)
{
    struct world *world = self;
    assert_int_equal(number, SIGUSR1);
    loop_stop(world->loop);
}

static void test_stop(void **state)
{
    (void)state;
    struct world world;
    pthread_t thread;
    begin(&world);
    assert_int_equal(pthread_create(&thread, NULL, stop_it, world.loop), 0);
    assert_int_equal(loop_run(world.loop), YOLK_OK);
    pthread_join(thread, NULL);
    finish(&world);
    begin(&world);
    assert_int_equal(loop_on_signal(world.loop, SIGUSR1, stop_on_signal, &world), YOLK_OK);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(loop_run(world.loop), YOLK_OK);
    finish(&world);
}

static void test_urgent_first(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    int slow = dial(&world), urgent = dial(&world);
    assert_int_equal(net_send_all(urgent, "U", 1, soon()), YOLK_OK);
    while (world.order_count < 1)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(net_send_all(slow, "s", 1, soon()), YOLK_OK);
    assert_int_equal(net_send_all(urgent, "u", 1, soon()), YOLK_OK);
    while (world.order_count < 3)
        assert_int_equal(loop_turn(world.loop), YOLK_OK);
    assert_int_equal(world.order[1], 'u');
    assert_int_equal(world.order[2], 's');
    net_close(slow);
    net_close(urgent);
    finish(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timer),
        cmocka_unit_test(test_echo_and_end),
        cmocka_unit_test(test_close_flushes),
        cmocka_unit_test(test_one_that_does_not_read_is_closed),
        cmocka_unit_test(test_backpressure),
        cmocka_unit_test(test_deadline_and_refusal),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_urgent_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
