/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "transport/loop/loop.h"
#include "transport/null/null.h"
#include "transport/trace/trace.h"

enum { SIZE = 4096, SEGMENT = 7, SESSION = 9, ROOM = 64 };

struct setup {
    struct trace_log log;
    struct trace_options options;
    struct yolk_transport_ops ops;
    struct yolk_transport_options transport;
    void *endpoint, *served, *target, *channel;
    char text[128];
    uint8_t there[SIZE], here[SIZE];
};

static enum yolk_status allow(void *self, const struct yolk_access_request *request)
{
    (void)self;
    return request->segment == SEGMENT ? YOLK_OK : YOLK_ERR_STALE;
}

static uint64_t now_42(void *self)
{
    (void)self;
    return 42;
}

static void open_all(struct setup *s, const struct yolk_transport_ops *inner, uint32_t room,
                     FILE *file)
{
    memset(s, 0, sizeof(*s));
    assert_int_equal(trace_log_init(&s->log, room, file), YOLK_OK);
    s->options = (struct trace_options){.inner = inner, .log = &s->log};
    transport_trace_make(&s->options, &s->ops);
    s->transport = (struct yolk_transport_options){
        .struct_size = sizeof(s->transport), .now_ns = now_42, .wrapped = &s->options};
    const struct yolk_serve serve = {
        .memory = s->there, .size = SIZE, .segment = SEGMENT, .access = {.check = allow}};
    assert_int_equal(s->ops.init(&s->transport, &s->endpoint), YOLK_OK);
    assert_int_equal(s->ops.serve(s->endpoint, &serve, &s->served, s->text, sizeof(s->text)),
                     YOLK_OK);
    assert_int_equal(s->ops.open_target(s->endpoint, s->text, SEGMENT, SIZE, SESSION, &s->target),
                     YOLK_OK);
    assert_int_equal(s->ops.channel_open(s->endpoint, s->target, &s->channel), YOLK_OK);
}

static void close_all(struct setup *s)
{
    assert_int_equal(s->ops.channel_close(s->channel), YOLK_OK);
    s->ops.close_target(s->endpoint, s->target);
    s->ops.unserve(s->endpoint, s->served);
    assert_int_equal(s->ops.stop(s->endpoint), YOLK_OK);
    s->ops.fini(s->endpoint);
    trace_log_free(&s->log);
}

static struct yolk_io read_of(struct setup *s, uint64_t offset, uint64_t size)
{
    return (struct yolk_io){
        .opcode = YOLK_READ, .local = s->here, .offset = offset, .size = size, .cookie = 5};
}

static void each_call_is_written_down_in_order(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, transport_loop_ops(), ROOM, NULL);
    s.there[100] = 77;
    struct yolk_io io = read_of(&s, 100, 8);
    assert_int_equal(s.ops.submit(s.channel, &io), YOLK_SUBMIT_DONE);
    assert_int_equal(s.here[0], 77); /* it passes through */
    struct trace_record records[ROOM];
    assert_int_equal(trace_log_copy(&s.log, records, ROOM), 5);
    static const enum trace_call calls[] = {TRACE_INIT, TRACE_SERVE, TRACE_OPEN_TARGET,
                                            TRACE_CHANNEL_OPEN, TRACE_SUBMIT};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(records[i].call, calls[i]);
        assert_int_equal(records[i].number, i);
        assert_int_equal(records[i].at_ns, 42);
        assert_int_equal(records[i].status, YOLK_OK);
    }
    assert_int_equal(records[1].segment, SEGMENT);
    assert_string_equal(records[2].text, s.text);
    assert_int_equal(records[2].session, SESSION);
    assert_int_equal(records[4].submit, YOLK_SUBMIT_DONE);
    assert_int_equal(records[4].offset, 100);
    assert_int_equal(records[4].size, 8);
    assert_int_equal(records[4].transferred, 8);
    assert_int_equal(records[4].cookie, 5);
    close_all(&s);
}

static void a_failure_says_why(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, transport_loop_ops(), ROOM, NULL);
    void *target;
    assert_int_equal(s.ops.open_target(s.endpoint, "1,2", SEGMENT, SIZE, SESSION, &target),
                     YOLK_ERR_NO_ROUTE);
    struct trace_record records[ROOM];
    uint32_t count = trace_log_copy(&s.log, records, ROOM);
    assert_int_equal(records[count - 1].status, YOLK_ERR_NO_ROUTE);
    assert_non_null(strstr(records[count - 1].text, "another process"));
    struct yolk_io io = read_of(&s, 0, UINT64_C(1) << 40);
    assert_int_equal(s.ops.submit(s.channel, &io), YOLK_SUBMIT_FAILED);
    count = trace_log_copy(&s.log, records, ROOM);
    assert_int_equal(records[count - 1].submit, YOLK_SUBMIT_FAILED);
    assert_int_equal(records[count - 1].status, YOLK_ERR_TOO_LARGE);
    close_all(&s);
}

static void the_ring_keeps_the_last_ones(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, transport_null_ops(), 3, NULL);
    for (uint64_t i = 0; i < 10; i++) {
        struct yolk_io io = read_of(&s, i, 1);
        assert_int_equal(s.ops.submit(s.channel, &io), YOLK_SUBMIT_DONE);
    }
    struct trace_record records[ROOM];
    assert_int_equal(trace_log_copy(&s.log, records, ROOM), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(records[i].offset, 7 + i);
        assert_int_equal(records[i].number, 4 + 7 + i); /* four calls came before the ios */
    }
    assert_int_equal(trace_log_copy(&s.log, records, 1), 1);
    assert_int_equal(records[0].offset, 7);
    close_all(&s);
}

static void a_file_gets_a_line_each(void **state)
{
    (void)state;
    char *written = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&written, &size);
    assert_non_null(file);
    struct setup s;
    open_all(&s, transport_null_ops(), 2, file);
    struct yolk_io io = read_of(&s, 3, 4);
    assert_int_equal(s.ops.submit(s.channel, &io), YOLK_SUBMIT_DONE);
    close_all(&s);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(written, "{\"n\":4,\"ns\":42,\"transport\":\"null\",\"call\":\"submit\","
                                    "\"opcode\":\"read\",\"offset\":3,\"answer\":\"done\","
                                    "\"cookie\":5,\"transferred\":4,\"size\":4,\"status\":0}\n"));
    unsigned lines = 0;
    for (const char *c = written; (c = strchr(c, '\n')) != NULL; c++)
        lines++;
    assert_int_equal(lines, 10); /* also what the ring has no more */
    free(written);
}

static void what_the_wrapped_one_lacks_stays_absent(void **state)
{
    (void)state;
    const struct trace_options options = {.inner = transport_null_ops(), .log = NULL};
    struct yolk_transport_ops ops;
    transport_trace_make(&options, &ops);
    assert_string_equal(ops.name, "null");
    assert_int_equal(ops.caps, transport_null_ops()->caps);
    assert_null(ops.target_map);
    assert_null(ops.memory_alloc);
    assert_null(ops.cancel);
    assert_null(ops.flush);
    assert_null(ops.wait_fds);
    assert_non_null(ops.serve);
}

static void without_being_told_what_to_wrap_it_says_so(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, transport_null_ops(), ROOM, NULL);
    struct yolk_transport_options none = {.struct_size = sizeof(none)};
    struct yolk_probe probe;
    assert_int_equal(s.ops.probe(&none, &probe), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "what to wrap"));
    struct trace_log log;
    assert_int_equal(trace_log_init(&log, 0, NULL), YOLK_ERR_INVALID);
    close_all(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_is_written_down_in_order),
        cmocka_unit_test(a_failure_says_why),
        cmocka_unit_test(the_ring_keeps_the_last_ones),
        cmocka_unit_test(a_file_gets_a_line_each),
        cmocka_unit_test(what_the_wrapped_one_lacks_stays_absent),
        cmocka_unit_test(without_being_told_what_to_wrap_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
