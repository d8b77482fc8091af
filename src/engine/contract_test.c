/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks of its route and of its try: hints, policies, priorities, flags, failover. */
#include <yolk/engine.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/rig.h"
#include "platform/temporary_kit.h"
#include "transport/posix/posix.h"

enum { PIECE = 1024, CUT = 1501 };

static struct yolk_request read_of(const struct rig *r, uint64_t n)
{
    return rig_request(r, YOLK_READ, n * 2 * PIECE, PIECE); /* no neighbours: nothing is merged */
}

static enum yolk_status verdict_of(struct rig *r, uint64_t batch,
                                   const struct yolk_request *request)
{
    enum yolk_status verdict, status;
    status = yolk_engine_batch_submit(r->engine, batch, request, 1, &verdict, NULL);
    assert_int_equal(status, verdict);
    return verdict;
}

static void told(const char *part)
{
    if (strstr(yolk_last_error(), part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yolk_last_error(), part);
}

static char *described(struct rig *r, const struct yolk_request *request)
{
    char *text;
    assert_int_equal(yolk_engine_describe_route(r->engine, request, &text), YOLK_OK);
    return text;
}

static void describes(struct rig *r, const struct yolk_request *request, const char *wanted)
{
    char *text = described(r, request);
    assert_string_equal(text, wanted);
    free(text);
}

/* -- Hints -- */

static enum yolk_status no_probe(const struct yolk_transport_options *options,
                                 struct yolk_probe *out)
{
    (void)options;
    memcpy(out->reason, "no such device", sizeof("no such device"));
    return YOLK_ERR_UNSUPPORTED;
}

static void a_hint_that_is_none_is_refused(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    r->ops[1].probe = no_probe;
    rig_open(r);
    uint64_t batch = rig_batch(r, 4);
    struct yolk_request request = read_of(r, 0);
    request.hint = "unheard_of";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("\"unheard_of\"");
    request.hint = "second";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("\"second\"");
    told("no such device");
    char *text = described(r, &request);
    assert_non_null(strstr(text, "refused: YOLK_ERR_INVALID: hint \"second\""));
    free(text);
    rig_expect(r, batch, 0, YOLK_ERR_INVALID, 0);
    assert_int_equal(r->scripts[0].count, 0);
    request.hint = "first";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

static void a_hint_goes_first_and_over_to_the_others(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    rig_open(r);
    uint64_t batch = rig_batch(r, 4);
    struct yolk_request requests[3] = {read_of(r, 0), read_of(r, 1), read_of(r, 2)};
    requests[1].hint = "second";
    describes(r, &requests[0], "first: runs it\nsecond: would come next\n");
    describes(r, &requests[1], "second: runs it\nfirst: would come next\n");
    rig_submit(r, batch, requests, 3);
    assert_int_equal(r->scripts[0].count, 2);
    assert_int_equal(r->scripts[1].count, 1);
    assert_int_equal(r->scripts[1].log[0].offset, requests[1].offset);
    r->scripts[1].fail = YOLK_ERR_LINK;
    assert_int_equal(verdict_of(r, batch, &requests[1]), YOLK_OK);
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    assert_string_equal(rig_poll(r, batch, 3).transport, "first");
    assert_int_equal(r->scripts[1].count, 2);
    assert_int_equal(r->scripts[0].count, 3);
    rig_free(r, batch);
    rig_close(r);
}

static void a_hint_that_can_never_work_is_refused(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    r->scripts[1].refused = r->local;
    r->scripts[1].refused_size = 1;
    rig_open(r);
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = read_of(r, 0);
    request.hint = "second";
    request.flags = YOLK_REQUEST_DIRECT; /* else it is staged there */
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NO_ROUTE);
    told("\"second\"");
    told("refused the local memory");
    assert_int_equal(r->scripts[0].count + r->scripts[1].count, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* -- Policies -- */

static void policies_choose(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    r->options.policy_json =
        "{\"policy\": ["
        "{\"name\": \"saving\", \"segment_type\": \"memory\", \"intent_type\": \"checkpoint\","
        " \"transports\": [\"second\"]},"
        "{\"name\": \"files\", \"segment_type\": \"file\", \"transports\": [\"first\"]},"
        "{\"name\": \"small\", \"segment_type\": \"memory\", \"same_machine\": true,"
        " \"max_size\": 1024, \"transports\": [\"rdma\", \"second\", \"first\"]},"
        "{\"name\": \"far\", \"segment_type\": \"memory\", \"same_machine\": false}]}";
    rig_open(r);
    uint64_t batch = rig_batch(r, 16);
    struct yolk_request request = read_of(r, 0);
    describes(r, &request, "policy: small\nsecond: runs it\nfirst: would come next\n");
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    assert_string_equal(rig_poll(r, batch, 0).transport, "second");
    /* Failover goes on in the policy's order, and never out of it. */
    r->scripts[1].fail = YOLK_ERR_IO;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    assert_string_equal(rig_poll(r, batch, 1).transport, "first");
    request.intent = YOLK_INTENT_CHECKPOINT;
    describes(r, &request,
              "policy: saving\nsecond: runs it\nfirst: no: policy \"saving\" has not got it\n");
    uint32_t before = r->scripts[0].count;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    rig_expect(r, batch, 2, YOLK_ERR_IO, 0);
    assert_int_equal(r->scripts[0].count, before);
    /* A name beats the intent; a hint from outside of the policy is refused. */
    request.policy = "small";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    request.policy = NULL;
    request.hint = "first";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NO_ROUTE);
    told("policy \"saving\" has not got it");
    request.hint = NULL;
    request.policy = "none";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("\"none\"");
    request.policy = "files";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NO_ROUTE);
    told("file segments");
    request.policy = NULL;
    request.intent = YOLK_INTENT_UNSPEC;
    request.size = PIECE + 1;
    before = r->scripts[0].count + r->scripts[1].count;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NO_ROUTE);
    told("none of the 4 policies fits");
    assert_int_equal(r->scripts[0].count + r->scripts[1].count, before);
    rig_free(r, batch);
    rig_close(r);
}

/* Neighbours that fall under different policies stay apart. */
static void no_merge_across_policies(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    r->options.policy_json = "[{\"segment_type\": \"memory\", \"max_size\": 1024, \"transports\": "
                             "[\"first\"]}, {\"segment_type\": \"memory\", \"transports\": "
                             "[\"second\"]}]";
    rig_open(r);
    uint64_t batch = rig_batch(r, 3);
    const struct yolk_request requests[3] = {rig_request(r, YOLK_READ, 0, PIECE),
                                             rig_request(r, YOLK_READ, PIECE, PIECE),
                                             rig_request(r, YOLK_READ, 2 * PIECE, 2 * PIECE)};
    rig_submit(r, batch, requests, 3);
    assert_int_equal(r->scripts[0].count, 1);
    assert_int_equal(r->scripts[0].log[0].size, 2 * PIECE);
    assert_int_equal(r->scripts[1].count, 1);
    rig_free(r, batch);
    rig_close(r);
}

static void no_policies_no_name(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    rig_open(r);
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = read_of(r, 0);
    request.policy = "some";
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("\"some\"");
    rig_free(r, batch);
    rig_close(r);
}

/* -- What is wrong is named -- */

static void numbers_that_are_none(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    rig_open(r);
    uint64_t batch = rig_batch(r, 8);
    char tenant[80];
    memset(tenant, 'x', sizeof(tenant));
    tenant[64] = '\0';
    struct yolk_request request = read_of(r, 0);
    request.priority = (enum yolk_priority)3;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("priority 3");
    request = read_of(r, 0);
    request.intent = (enum yolk_intent)7;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("intent 7");
    request = read_of(r, 0);
    request.flags = 4;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("flags 0x4");
    request = read_of(r, 0);
    request.tenant = tenant;
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_INVALID);
    told("more than 63 bytes");
    tenant[63] = '\0';
    assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 1);
    rig_free(r, batch);
    rig_close(r);
}

static void refused_options(struct rig *r, enum yolk_status status, const char *part)
{
    assert_int_equal(yolk_engine_create(&r->options, &r->engine), status);
    told(part);
}

static void options_that_are_none(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    const struct yolk_engine_options sound = r->options;
    r->options.failover_on_poll = (enum yolk_switch)3;
    refused_options(r, YOLK_ERR_INVALID, "failover_on_poll is 3");
    r->options = sound;
    r->options.queue.dispatch_owners_max = 5;
    refused_options(r, YOLK_ERR_INVALID, "queue.enable is not on");
    r->options.queue.enable = YOLK_SWITCH_ON;
    r->options.queue.staging_owners = 1024;
    refused_options(r, YOLK_ERR_INVALID, "queue.staging_owners is 1024");
    r->options = sound;
    r->options.policy_json = "[{\"segment_type\": \"memory\", \"transports\": [\"frist\"]}]";
    refused_options(r, YOLK_ERR_CONFIG, "policy[0].transports[0] is \"frist\"");
    r->options = sound;
    r->options.qos_json = "{\"version\": 1, \"defaults\": {\"max_inflight_byte\": 1}}";
    refused_options(r, YOLK_ERR_CONFIG, "qos.defaults.max_inflight_byte");
    r->options = sound;
    r->options.merge = YOLK_SWITCH_OFF;
    r->options.merge_bytes_max = 5;
    refused_options(r, YOLK_ERR_INVALID, "merge_bytes_max is 5");
    r->options = sound;
    rig_open(r);
    rig_close(r);
}

/* -- Priorities -- */

static bool closed; /* the transport answers AGAIN */

static enum yolk_submit gated_submit(void *channel, struct yolk_io *io)
{
    return closed ? YOLK_SUBMIT_AGAIN : scripted_submit(channel, io);
}

static void posted_by_priority(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    r->ops[0].submit = gated_submit;
    closed = false;
    rig_open(r);
    uint64_t batch = rig_batch(r, 16);
    struct yolk_request requests[6];
    static const enum yolk_priority given[6] = {YOLK_PRIORITY_LOW,  YOLK_PRIORITY_MEDIUM,
                                                YOLK_PRIORITY_HIGH, YOLK_PRIORITY_LOW,
                                                YOLK_PRIORITY_HIGH, YOLK_PRIORITY_MEDIUM};
    static const int wanted[6] = {2, 4, 1, 5, 0, 3};
    for (int i = 0; i < 6; i++) {
        requests[i] = read_of(r, (uint64_t)i);
        requests[i].priority = given[i];
    }
    rig_submit(r, batch, requests, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(r->scripts[0].log[i].offset, requests[wanted[i]].offset);
    /* A low one that waited long goes before high ones that came later, one that did not behind. */
    closed = true;
    rig_submit(r, batch, &requests[0], 1);
    for (int i = 0; i < 2; i++) {
        clock_sim_advance(&r->clock, 10000000);
        assert_int_equal(yolk_engine_batch_progress(r->engine, batch, NULL), YOLK_OK);
    }
    rig_submit(r, batch, &requests[3], 1);
    rig_submit(r, batch, &requests[2], 1);
    closed = false;
    assert_int_equal(yolk_engine_batch_progress(r->engine, batch, NULL), YOLK_OK);
    static const int then[3] = {0, 2, 3};
    for (int i = 0; i < 3; i++)
        assert_int_equal(r->scripts[0].log[6 + i].offset, requests[then[i]].offset);
    rig_free(r, batch);
    rig_close(r);
}

/* -- Flags -- */

static void the_end_of_the_data_is_an_answer_unless_exact(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    struct yolk_engine_stats stats;
    rig_open(r);
    uint64_t batch = rig_batch(r, 2);
    r->scripts[0].fail = YOLK_ERR_EOF;
    r->scripts[1].fail = YOLK_ERR_EOF;
    struct yolk_request request = read_of(r, 0);
    rig_submit(r, batch, &request, 1);
    request.flags = YOLK_REQUEST_EXACT;
    rig_submit(r, batch, &request, 1);
    rig_expect(r, batch, 0, YOLK_ERR_EOF, 0);
    rig_expect(r, batch, 1, YOLK_ERR_IO, 0);
    yolk_engine_stats(r->engine, &stats);
    assert_int_equal(stats.tasks_ok, 1);
    assert_int_equal(stats.tasks_failed, 1);
    rig_free(r, batch);
    rig_close(r);
}

static enum yolk_status odd_is_not_direct(void *endpoint, void *target, const void *local,
                                          uint64_t offset, uint64_t size)
{
    (void)endpoint, (void)target, (void)local, (void)offset;
    return size % 2 == 0 ? YOLK_OK : base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", "it is odd");
}

static void directly_or_not_at_all(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        struct rig *r = rig_new(2);
        r->ops[0].check_direct = odd_is_not_direct;
        r->scripts[0].slice_max = CUT;
        r->options.strict = strict ? YOLK_SWITCH_ON : YOLK_SWITCH_DEFAULT;
        rig_open(r);
        uint64_t batch = rig_batch(r, 4);
        struct yolk_request request = read_of(r, 0);
        request.flags = strict ? 0 : YOLK_REQUEST_DIRECT;
        assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
        request.size--;
        assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
        assert_string_equal(rig_poll(r, batch, 0).transport, "first");
        assert_string_equal(rig_poll(r, batch, 1).transport, "second");
        describes(r, &request, "first: no: not direct: it is odd\nsecond: runs it\n");
        /* Whole it would be even, but not as it is cut. */
        request.size = 2 * (CUT + 1);
        describes(r, &request, "first: no: not direct: it is odd\nsecond: runs it\n");
        rig_free(r, batch);
        rig_close(r);

        r = rig_new(2);
        r->ops[0].check_direct = odd_is_not_direct;
        r->ops[1].check_direct = odd_is_not_direct;
        r->options.strict = strict ? YOLK_SWITCH_ON : YOLK_SWITCH_DEFAULT;
        rig_open(r);
        batch = rig_batch(r, 4);
        request = read_of(r, 0);
        request.size--;
        request.flags = strict ? 0 : YOLK_REQUEST_DIRECT;
        assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_UNSUPPORTED);
        told("first: no: not direct: it is odd");
        told("second: no: not direct: it is odd");
        assert_int_equal(r->scripts[0].count + r->scripts[1].count, 0);
        request.flags = 0;
        if (!strict)
            assert_int_equal(verdict_of(r, batch, &request), YOLK_OK);
        rig_free(r, batch);
        rig_close(r);
    }
}

static void files_directly(void **state)
{
    (void)state;
    char path[TEMPORARY_MAX] = "yolk_contract_XXXXXX";
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(close(fd), 0);
    const struct yolk_transport_ops *transports[] = {transport_posix_ops()};
    struct yolk_engine_options options;
    struct yolk_engine *engine;
    uint64_t segment, size, batch;
    enum yolk_status verdict;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    assert_int_equal(yolk_engine_file_open(engine, path, 0, &segment, &size), YOLK_OK);
    uint8_t *memory = rig_guarded();
    assert_int_equal(yolk_engine_register(engine, memory, 1 << 16), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(engine, 4, &batch), YOLK_OK);
    struct yolk_request request = {.opcode = YOLK_READ,
                                   .local = memory,
                                   .segment = segment,
                                   .size = 4096,
                                   .flags = YOLK_REQUEST_DIRECT};
    verdict = YOLK_OK;
    enum yolk_status aligned = yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL);
    if (aligned != YOLK_OK) {
        assert_int_equal(aligned, YOLK_ERR_UNSUPPORTED);
        told("page cache");
    }
    request.local = memory + 1;
    assert_int_equal(yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL),
                     YOLK_ERR_UNSUPPORTED);
    told(aligned == YOLK_OK ? "bounce buffer" : "page cache");
    request.local = memory;
    request.size = 100;
    assert_int_equal(yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL),
                     YOLK_ERR_UNSUPPORTED);
    request.flags = 0;
    request.local = memory + 8192; /* the first one may be under way still */
    assert_int_equal(yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
    assert_int_equal(yolk_engine_segment_close(engine, segment), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    rig_unguard(memory);
    (void)unlink(path);
}

/* -- Failover -- */

static void no_failover_on_poll(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    r->options.failover_on_poll = YOLK_SWITCH_OFF;
    r->scripts[0].hold = true;
    rig_open(r);
    uint64_t batch = rig_batch(r, 4);
    struct yolk_request requests[3] = {read_of(r, 0), read_of(r, 1), read_of(r, 2)};
    /* Seen by a poll: it stays failed, the second is never asked, and nothing revives it. */
    rig_submit(r, batch, &requests[0], 1);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_IO, 0));
    rig_expect(r, batch, 0, YOLK_ERR_IO, 0);
    assert_int_equal(yolk_engine_batch_progress(r->engine, batch, NULL), YOLK_OK);
    rig_expect(r, batch, 0, YOLK_ERR_IO, 0);
    assert_int_equal(r->scripts[1].count, 0);
    assert_int_equal(r->scripts[0].count, 1);
    /* Seen by progress, or by wait: tried on the second. */
    rig_submit(r, batch, &requests[1], 1);
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_ERR_IO, 0));
    uint32_t pending;
    assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
    assert_int_equal(pending, 0);
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    rig_submit(r, batch, &requests[2], 1);
    assert_true(scripted_end(&r->scripts[0], 2, YOLK_ERR_TIMEOUT, 0));
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[1].count, 2);
    assert_memory_equal(r->local + requests[2].offset, r->memory + requests[2].offset, PIECE);
    /* What was refused at once is no matter of polls. */
    r->scripts[0].hold = false;
    r->scripts[0].fail = YOLK_ERR_LIMIT;
    rig_submit(r, batch, &requests[0], 1);
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

static void as_often_as_allowed(void **state)
{
    (void)state;
    for (uint32_t most = 1; most <= 3; most++) {
        struct rig *r = rig_new(2);
        struct yolk_engine_stats stats;
        r->options.attempts_max = most;
        rig_open(r);
        r->scripts[0].fail = YOLK_ERR_IO;
        r->scripts[1].fail = YOLK_ERR_IO;
        uint64_t batch = rig_batch(r, 2);
        struct yolk_request request = read_of(r, 0);
        rig_submit(r, batch, &request, 1);
        rig_expect(r, batch, 0, YOLK_ERR_IO, 0);
        assert_int_equal(r->scripts[0].count + r->scripts[1].count, most);
        assert_int_equal(r->scripts[1].count, most - 1); /* the last one again */
        yolk_engine_stats(r->engine, &stats);
        assert_int_equal(stats.attempts_exhausted, 1);
        assert_int_equal(stats.slices_failed_over, most > 1);
        /* Each task has tries of its own. */
        rig_submit(r, batch, &request, 1);
        yolk_engine_stats(r->engine, &stats);
        assert_int_equal(stats.attempts_exhausted, 2);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* By class of error: goes on to the next, or ends at once. */
static void the_table_of_failures(void **state)
{
    (void)state;
    static const struct {
        enum yolk_status status;
        bool goes_on;
    } rows[] = {
        {YOLK_ERR_UNSUPPORTED, true}, {YOLK_ERR_LIMIT, true},     {YOLK_ERR_NO_MEMORY, true},
        {YOLK_ERR_TIMEOUT, true},     {YOLK_ERR_CORRUPT, true},   {YOLK_ERR_EOF, true},
        {YOLK_ERR_LINK, true},        {YOLK_ERR_REFUSED, true},   {YOLK_ERR_PROTOCOL, true},
        {YOLK_ERR_IO, true},          {YOLK_ERR_PEER_DEAD, true}, {YOLK_ERR_SYSTEM, true},
        {YOLK_ERR_STALE, false},      {YOLK_ERR_ACCESS, false},   {YOLK_ERR_INVALID, false},
        {YOLK_ERR_STUCK, false},      {YOLK_ERR_CLOSED, false},   {YOLK_ERR_FORKED, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rig *r = rig_new(2);
        rig_open(r);
        r->scripts[0].fail = rows[i].status;
        uint64_t batch = rig_batch(r, 1);
        struct yolk_request request = read_of(r, 0);
        rig_submit(r, batch, &request, 1);
        struct yolk_task_status status = rig_poll(r, batch, 0);
        assert_true(status.terminal);
        assert_int_equal(status.status, rows[i].goes_on ? YOLK_OK : rows[i].status);
        assert_int_equal(r->scripts[1].count, rows[i].goes_on);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* -- Why -- */

static void *polls_there(void *arg)
{
    void **all = arg;
    struct rig *r = all[0];
    base_error_clear();
    rig_expect(r, *(uint64_t *)all[1], 0, YOLK_ERR_ACCESS, 0);
    snprintf(all[2], 512, "%s", yolk_last_error());
    return NULL;
}

/* The io that is held. */
static void fails(struct rig *r, uint32_t script, enum yolk_status status)
{
    scripted_end(&r->scripts[script], r->scripts[script].count - 1, status, 0);
}

static void why_is_told_to_who_asks(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    rig_open(r);
    uint64_t batch = rig_batch(r, 8);
    char wanted[128], there[512] = "";
    struct yolk_request requests[] = {read_of(r, 1), read_of(r, 2)};
    r->scripts[0].hold = true;
    rig_submit(r, batch, requests, 1);
    fails(r, 0, YOLK_ERR_ACCESS);
    (void)base_fail(YOLK_ERR_IO, 0, "of something else");
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    snprintf(wanted, sizeof(wanted), "a read of %d bytes, local %p, remote 0x%x: first to ", PIECE,
             requests[0].local, 2 * PIECE);
    told(wanted);
    told(": the remote side refused: access refused by the provider");
    assert_null(strstr(yolk_last_error(), "something else"));
    /* The same in another thread, and of all. */
    void *all[] = {r, &batch, there};
    pthread_t thread;
    char mine[512];
    snprintf(mine, sizeof(mine), "%s", yolk_last_error());
    assert_int_equal(pthread_create(&thread, NULL, polls_there, all), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(there, mine);
    struct yolk_batch_status sum;
    base_error_clear();
    assert_int_equal(yolk_engine_batch_poll_all(r->engine, batch, &sum, NULL, 0), YOLK_OK);
    assert_string_equal(yolk_last_error(), mine);
    /* One that fails later, otherwise, has its own. */
    rig_submit(r, batch, requests + 1, 1);
    do
        fails(r, 0, YOLK_ERR_CORRUPT); /* each of its tries */
    while (!rig_poll(r, batch, 1).terminal);
    told("remote 0x1000: first to ");
    told(": the bytes do not match");
    assert_null(strstr(yolk_last_error(), "refused"));
    /* What was refused at the submit is told the same way. */
    uint8_t foreign[8];
    struct yolk_request request = {
        .opcode = YOLK_WRITE, .local = foreign, .segment = r->segment, .size = 8};
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NOT_REGISTERED);
    told("is not inside a registered range");
    rig_expect(r, batch, 2, YOLK_ERR_NOT_REGISTERED, 0);
    told("a write of 8 bytes");
    /* A batch that is used again knows nothing of it. */
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK);
    assert_int_equal(verdict_of(r, batch, &request), YOLK_ERR_NOT_REGISTERED);
    base_error_clear();
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    told("a write of 8 bytes");
    told("is not inside a registered range");
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK);
    r->scripts[0].hold = false;
    rig_submit(r, batch, requests, 1);
    base_error_clear();
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    assert_string_equal(yolk_last_error(), "");
    rig_free(r, batch);
    rig_close(r);
}

static enum yolk_submit says_why(void *channel, struct yolk_io *io)
{
    (void)channel;
    io->status = base_fail(YOLK_ERR_IO, 0, "the disk on lane 7 is full of water");
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

static enum yolk_submit says_nothing(void *channel, struct yolk_io *io)
{
    (void)channel;
    io->status = YOLK_ERR_IO;
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

static void the_transports_words_are_kept(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig *r = rig_new(1);
        r->ops[0].submit = k == 0 ? says_why : says_nothing;
        rig_open(r);
        uint64_t batch = rig_batch(r, 2);
        const struct yolk_request request = read_of(r, 0);
        (void)base_fail(YOLK_ERR_AGAIN, 0, "stale");
        rig_submit(r, batch, &request, 1);
        assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
        rig_expect(r, batch, 0, YOLK_ERR_IO, 0);
        told(k == 0 ? ": the disk on lane 7 is full of water" : ": input/output failed");
        assert_null(strstr(yolk_last_error(), "stale"));
        assert_null(strstr(yolk_last_error(), "reaches"));
        rig_free(r, batch);
        rig_close(r);
    }
}

static void only_so_many_words_are_kept(void **state)
{
    (void)state;
    enum { MANY = 12, KEPT = 8 };
    struct rig *r = rig_new(1);
    rig_open(r);
    uint64_t batch = rig_batch(r, MANY);
    r->scripts[0].fail = YOLK_ERR_ACCESS;
    for (uint64_t i = 0; i < MANY; i++) {
        const struct yolk_request request = read_of(r, i);
        rig_submit(r, batch, &request, 1);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        rig_expect(r, batch, i, YOLK_ERR_ACCESS, 0);
        told(i < KEPT ? ": first to " : ": first: access refused by the provider; another that");
        told(": the remote side refused: access refused by the provider");
    }
    rig_free(r, batch);
    rig_close(r);
}

/* The route is told of what the submit takes, and of nothing else. */
static void routes_are_refused_as_submits_are(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    uint8_t foreign[PIECE];
    rig_open(r);
    uint64_t batch = rig_batch(r, 16);
    struct yolk_request wrong[10];
    for (size_t i = 0; i < 10; i++)
        wrong[i] = read_of(r, 0);
    wrong[0].opcode = (enum yolk_opcode)0;
    wrong[1].opcode = (enum yolk_opcode)9;
    wrong[2].local = NULL;
    wrong[3].offset = RIG_SIZE;
    wrong[4].offset = UINT64_MAX;
    wrong[5].deadline_ns = 1;
    wrong[6].local = foreign;
    wrong[7].segment = 12345;
    wrong[8].priority = (enum yolk_priority)9;
    wrong[9].hint = "none such";
    for (size_t i = 0; i < 10; i++) {
        char wanted[512];
        enum yolk_status verdict = verdict_of(r, batch, &wrong[i]);
        assert_true(verdict != YOLK_OK);
        snprintf(wanted, sizeof(wanted), "refused: %s: %.300s\n", yolk_status_name(verdict),
                 yolk_last_error());
        describes(r, &wrong[i], wanted);
    }
    struct yolk_request request = read_of(r, 0);
    describes(r, &request, "first: runs it\n");
    request.local = NULL; /* as nothing is moved */
    request.size = 0;
    describes(r, &request, "first: runs it\n");
    rig_free(r, batch);
    rig_close(r);
}

static char said[256];

static void keep(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)level, (void)room;
    snprintf(said, sizeof(said), "%s", text);
}

static void a_slip_among_transports_to_leave_out_is_said(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    base_log_set(keep, NULL);
    r->options.transports_off = "rdma,io_uring";
    rig_open(r);
    rig_close(r);
    assert_string_equal(said, "");
    r = rig_new(1);
    r->options.transports_off = "shm,tpc";
    rig_open(r);
    base_log_set(NULL, NULL);
    assert_string_equal(said,
                        "transports_off: \"tpc\" is no transport, so nothing is turned off by it");
    rig_close(r);
}

/* A child of fork is refused by each call, before it waits for a lock of a thread that it has not.
 */
static void a_forked_child_is_refused(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    rig_open(r);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, 64);
    uint64_t batch = rig_batch(r, 2);
    rig_submit(r, batch, &request, 1);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        enum yolk_status verdict;
        struct yolk_task_status task;
        uint32_t pending;
        uint64_t number;
        char *text;
        const enum yolk_status got[] = {
            yolk_engine_batch_create(r->engine, 1, &number),
            yolk_engine_batch_submit(r->engine, batch, &request, 1, &verdict, NULL),
            yolk_engine_batch_poll(r->engine, batch, 0, &task),
            yolk_engine_batch_progress(r->engine, batch, &pending),
            yolk_engine_batch_wait(r->engine, batch, 0),
            yolk_engine_batch_cancel(r->engine, batch, 0),
            yolk_engine_batch_free(r->engine, batch),
            yolk_engine_register(r->engine, r->local, 1),
            yolk_engine_unregister(r->engine, r->local, RIG_SIZE),
            yolk_engine_segment_size(r->engine, r->segment, &number),
            yolk_engine_segment_close(r->engine, r->segment),
            yolk_engine_metrics(r->engine, &text),
            yolk_engine_destroy(r->engine),
        };
        for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); i++)
            if (got[i] != YOLK_ERR_FORKED)
                _exit(10 + (int)i);
        _exit(strstr(yolk_last_error(), "forked from") != NULL ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rig_expect(r, batch, 0, YOLK_OK, 64); /* the parent's goes on */
    rig_free(r, batch);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(a_slip_among_transports_to_leave_out_is_said),
        cmocka_unit_test(a_hint_that_is_none_is_refused),
        cmocka_unit_test(a_hint_goes_first_and_over_to_the_others),
        cmocka_unit_test(a_hint_that_can_never_work_is_refused),
        cmocka_unit_test(policies_choose),
        cmocka_unit_test(no_merge_across_policies),
        cmocka_unit_test(no_policies_no_name),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(options_that_are_none),
        cmocka_unit_test(posted_by_priority),
        cmocka_unit_test(the_end_of_the_data_is_an_answer_unless_exact),
        cmocka_unit_test(directly_or_not_at_all),
        cmocka_unit_test(files_directly),
        cmocka_unit_test(no_failover_on_poll),
        cmocka_unit_test(as_often_as_allowed),
        cmocka_unit_test(the_table_of_failures),
        cmocka_unit_test(why_is_told_to_who_asks),
        cmocka_unit_test(the_transports_words_are_kept),
        cmocka_unit_test(only_so_many_words_are_kept),
        cmocka_unit_test(routes_are_refused_as_submits_are),
    };
    return cmocka_run_group_tests_name("engine.contract", tests, NULL, NULL);
}
