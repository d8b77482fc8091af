/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers through the engine's memory, over transports that refuse the caller's. */
#include <yolk/engine.h>

#include "engine/internal.h"
#include "engine/rig.h"
#include "platform/random.h"
#include "transport/fault/fault.h"

enum { PIECE = 4096, CHUNKS = 4 };

/* Transport 0 refuses the local memory; CHUNKS chunks of one page. */
static struct rig *picky(uint32_t transports)
{
    struct rig *r = rig_new(transports);
    r->scripts[0].refused = r->local;
    r->scripts[0].refused_size = RIG_SIZE;
    r->options.staging_bytes = CHUNKS * PIECE;
    r->options.merge = YOLK_SWITCH_OFF;
    return r;
}

static struct yolk_engine_stats stats_of(struct rig *r)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(r->engine, &stats);
    return stats;
}

static uint32_t free_chunks(struct rig *r)
{
    return r->engine->stage.staging.free;
}

static bool is_outside(const struct rig *r, const void *pointer)
{
    return (const uint8_t *)pointer >= r->local && (const uint8_t *)pointer < r->local + RIG_SIZE;
}

/* Lets the engine go on until all is over; ends whatever is held, in a drawn order. */
static void run(struct rig *r, uint64_t batch, struct random *random)
{
    struct scripted *s = &r->scripts[0];
    uint32_t pending = 1;
    for (uint32_t round = 0; pending > 0; round++) {
        assert_true(round < 100000);
        assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
        if (s->count > 0)
            (void)scripted_end(s, (uint32_t)random_below(random, s->count), YOLK_OK, UINT64_MAX);
    }
}

/* Both directions, sizes and places of every kind, between pages that may not be touched. */
static void exact_bytes(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct random_sim sim;
    struct random random = random_sim_random(&sim);
    random_sim_init(&sim, 11);
    rig_open(r);
    r->scripts[0].hold = true;
    for (uint32_t round = 0; round < 60; round++) {
        bool whole = round % 10 == 0;
        uint64_t size = whole ? RIG_SIZE : 1 + random_below(&random, 20 * PIECE);
        uint64_t here =
            round % 3 == 0 ? RIG_SIZE - size : random_below(&random, RIG_SIZE - size + 1);
        uint64_t there =
            round % 4 == 0 ? RIG_SIZE - size : random_below(&random, RIG_SIZE - size + 1);
        struct yolk_request request =
            rig_request(r, round % 2 == 0 ? YOLK_READ : YOLK_WRITE, there, size);
        request.local = r->local + here;
        for (uint64_t i = 0; i < RIG_SIZE; i++) {
            r->local[i] = rig_byte(i + round * 7919);
            r->memory[i] = rig_byte(i + round * 104729 + 1);
        }
        uint64_t batch = rig_batch(r, 1);
        r->scripts[0].count = 0;
        rig_submit(r, batch, &request, 1);
        run(r, batch, &random);
        rig_expect(r, batch, 0, YOLK_OK, size);
        assert_true(rig_poll(r, batch, 0).staged);
        for (uint32_t i = 0; i < r->scripts[0].count; i++) {
            assert_false(is_outside(r, r->scripts[0].log[i].local));
            assert_true(r->scripts[0].log[i].size <= PIECE);
        }
        for (uint64_t i = 0; i < RIG_SIZE; i++) {
            bool from_there = request.opcode == YOLK_READ && i >= here && i < here + size;
            bool from_here = request.opcode == YOLK_WRITE && i >= there && i < there + size;
            assert_int_equal(r->local[i], from_there
                                              ? rig_byte(i - here + there + round * 104729 + 1)
                                              : rig_byte(i + round * 7919));
            assert_int_equal(r->memory[i], from_here ? rig_byte(i - there + here + round * 7919)
                                                     : rig_byte(i + round * 104729 + 1));
        }
        rig_free(r, batch);
        assert_int_equal(free_chunks(r), CHUNKS);
    }
    assert_int_equal(stats_of(r).tasks_staged, 60);
    assert_int_equal(stats_of(r).bytes_staged, stats_of(r).bytes_read + stats_of(r).bytes_written);
    rig_close(r);
}

/* Several chunks are under way at once, and one is copied while others are. */
static void a_pipeline(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    rig_open(r);
    s->hold = true;
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, 10 * PIECE);
    rig_submit(r, batch, &request, 1);
    assert_int_equal(s->count, CHUNKS); /* as many as there is room for */
    assert_int_equal(free_chunks(r), 0);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(scripted_end(s, i, YOLK_OK, UINT64_MAX));
        struct yolk_task_status status = rig_poll(r, batch, 0);
        assert_int_equal(status.transferred, (i + 1) * PIECE);
        assert_memory_equal(r->local, r->memory, (i + 1) * PIECE);
        assert_int_equal(s->count, i + 1 + CHUNKS < 10 ? i + 1 + CHUNKS : 10); /* filled again */
    }
    rig_expect(r, batch, 0, YOLK_OK, 10 * PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* Memory that another transport takes is not staged, unless the picky one is hinted at. */
static void direct_comes_first(void **state)
{
    (void)state;
    struct rig *r = picky(2);
    struct yolk_request request;
    char *text;
    rig_open(r);
    uint64_t batch = rig_batch(r, 4);
    request = rig_request(r, YOLK_READ, 0, 3 * PIECE);
    rig_submit(r, batch, &request, 1);
    assert_string_equal(rig_poll(r, batch, 0).transport, "second");
    assert_false(rig_poll(r, batch, 0).staged);
    request.hint = "first";
    rig_submit(r, batch, &request, 1);
    assert_string_equal(rig_poll(r, batch, 1).transport, "first");
    assert_true(rig_poll(r, batch, 1).staged);
    request.hint = NULL;
    assert_int_equal(yolk_engine_describe_route(r->engine, &request, &text), YOLK_OK);
    assert_non_null(strstr(text, "second: runs it\n"));
    assert_non_null(strstr(text, "through the engine's memory:\nfirst: runs it\n"));
    free(text);
    /* The direct one fails: the staged one comes in for it. */
    r->scripts[1].fail = YOLK_ERR_LINK;
    memset(r->local, 0, RIG_SIZE);
    rig_submit(r, batch, &request, 1);
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    rig_expect(r, batch, 2, YOLK_OK, 3 * PIECE);
    assert_true(rig_poll(r, batch, 2).staged);
    assert_memory_equal(r->local, r->memory, 3 * PIECE);
    assert_int_equal(stats_of(r).tasks_staged, 2);
    rig_free(r, batch);
    rig_close(r);
}

static void refused_where_it_is_forbidden(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    enum yolk_status verdict;
    rig_open(r);
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, PIECE);
    request.flags = YOLK_REQUEST_DIRECT;
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, &request, 1, &verdict, NULL),
                     YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "first: no: it refused the local memory"));
    assert_int_equal(r->scripts[0].count, 0);
    rig_free(r, batch);
    rig_close(r);
    /* In a strict engine there is not even a registration. */
    r = picky(1);
    r->options.strict = YOLK_SWITCH_ON;
    rig_open_bare(r);
    assert_int_equal(yolk_engine_register(r->engine, r->local, RIG_SIZE), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "first: it does not like this memory"));
    assert_non_null(strstr(yolk_last_error(), "strict"));
    rig_close(r);
    /* Nor where the transport takes no memory at all. */
    r = picky(1);
    r->scripts[0].refused = (const uint8_t *)1;
    r->scripts[0].refused_size = UINT64_MAX >> 1;
    rig_open_bare(r);
    assert_int_equal(yolk_engine_register(r->engine, r->local, RIG_SIZE), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "first: it does not like this memory"));
    assert_non_null(strstr(yolk_last_error(), "nor can it be staged"));
    rig_close(r);
    r = picky(1);
    r->options.staging_bytes = 2 * PIECE - 1;
    assert_int_equal(yolk_engine_create(&r->options, &r->engine), YOLK_ERR_INVALID);
    r->options.staging_bytes = 2 * PIECE;
    rig_open(r);
    rig_close(r);
}

/* Short answers are continued; a failure is tried again from the first byte not in place. */
static void short_and_failing(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        struct rig *r = picky(1);
        struct scripted *s = &r->scripts[0];
        struct random_sim sim;
        random_sim_init(&sim, 5);
        struct random random = random_sim_random(&sim);
        r->options.attempts_max = 100;
        r->options.breaker_failures = 1000000;
        rig_open(r);
        for (uint64_t i = 0; i < RIG_SIZE; i++)
            r->local[i] = (uint8_t)~r->memory[i];
        s->hold = true;
        uint64_t batch = rig_batch(r, 1);
        struct yolk_request request =
            rig_request(r, write ? YOLK_WRITE : YOLK_READ, 0, 12 * PIECE + 77);
        rig_submit(r, batch, &request, 1);
        uint64_t before = 0;
        for (uint32_t round = 0; !rig_poll(r, batch, 0).terminal; round++) {
            assert_true(round < 10000 && s->count > 0);
            uint32_t number = (uint32_t)random_below(&random, s->count);
            uint64_t moved = random_below(&random, s->log[number].size + 1);
            (void)scripted_end(s, number,
                               moved == 0 || random_below(&random, 4) == 0 ? YOLK_ERR_IO : YOLK_OK,
                               moved);
            uint64_t now = rig_poll(r, batch, 0).transferred;
            assert_true(now >= before);
            before = now;
        }
        rig_expect(r, batch, 0, YOLK_OK, 12 * PIECE + 77);
        for (uint64_t i = 0; i < 12 * PIECE + 77; i++)
            assert_int_equal(r->local[i], write ? (uint8_t)~rig_byte(i) : rig_byte(i));
        assert_memory_equal(r->local, r->memory, 12 * PIECE + 77);
        for (uint64_t i = 12 * PIECE + 77; i < RIG_SIZE; i++) {
            assert_int_equal(r->local[i], (uint8_t)~rig_byte(i));
            assert_int_equal(r->memory[i], rig_byte(i));
        }
        rig_free(r, batch);
        assert_int_equal(free_chunks(r), CHUNKS);
        rig_close(r);
    }
}

/* Canceled in the middle: nothing more is posted, what is out drains, no byte comes after the end.
 */
static void canceled(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    rig_open(r);
    s->hold = true;
    s->deaf = true;
    uint64_t batch = rig_batch(r, 2);
    struct yolk_request requests[] = {rig_request(r, YOLK_READ, 0, 10 * PIECE),
                                      rig_request(r, YOLK_READ, 20 * PIECE, 2 * PIECE)};
    rig_submit(r, batch, requests, 2);
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    (void)rig_poll(r, batch, 0);
    uint32_t count = s->count;
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 0), YOLK_OK);
    assert_false(rig_poll(r, batch, 0).terminal); /* a chunk is still with the transport */
    memset(r->local + PIECE, 0xee, 9 * PIECE);
    for (uint32_t i = 1; i < count; i++)
        assert_true(scripted_end(s, i, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 0, YOLK_ERR_CANCELED, PIECE);
    for (uint32_t i = PIECE; i < 10 * PIECE; i++)
        assert_int_equal(r->local[i], 0xee);
    for (uint32_t i = count; i < s->count; i++) { /* the other one had to wait for a chunk */
        assert_in_range(s->log[i].offset, 20 * PIECE, 22 * PIECE);
        (void)scripted_end(s, i, YOLK_OK, UINT64_MAX);
    }
    rig_expect(r, batch, 1, YOLK_OK, 2 * PIECE);
    assert_memory_equal(r->local + 20 * PIECE, r->memory + 20 * PIECE, 2 * PIECE);
    rig_free(r, batch);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* A deadline, then a transport that never answers: STUCK; its chunks are nobody else's until they
 * are quiet, and the others wait for those that are left. */
static void stuck_chunks_stay_out(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    rig_open(r);
    s->hold = true;
    s->deaf = true;
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, 2 * PIECE);
    request.deadline_ns = 2000;
    rig_submit(r, batch, &request, 1);
    clock_sim_set(&r->clock, 2000);
    assert_false(rig_poll(r, batch, 0).terminal);
    clock_sim_set(&r->clock, UINT64_C(5001) * 1000000);
    rig_expect(r, batch, 0, YOLK_ERR_STUCK, 0);
    assert_int_equal(free_chunks(r), 2);
    const void *held[] = {s->log[0].local, s->log[1].local};
    s->hold = false;
    uint64_t other = rig_batch(r, 1);
    request = rig_request(r, YOLK_READ, 10 * PIECE, 8 * PIECE);
    rig_submit(r, other, &request, 1);
    rig_expect(r, other, 0, YOLK_OK, 8 * PIECE);
    for (uint32_t i = 2; i < s->count; i++)
        assert_true(s->log[i].local != held[0] && s->log[i].local != held[1]);
    memset(r->local, 0xee, 2 * PIECE);
    rig_free(r, batch); /* its handle is dead, its chunks are not quiet */
    assert_int_equal(free_chunks(r), 2);
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    assert_true(scripted_end(s, 1, YOLK_OK, UINT64_MAX));
    while (stats_of(r).quarantined > 0)
        thread_relax();
    assert_int_equal(free_chunks(r), CHUNKS);
    for (uint32_t i = 0; i < 2 * PIECE; i++)
        assert_int_equal(r->local[i], 0xee);
    rig_free(r, other);
    rig_close(r);
}

/* All chunks with a transport that never answers: who waits is told so in the end. */
static void starved(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    uint64_t batches[2];
    rig_open(r);
    s->hold = true;
    for (uint32_t i = 0; i < 2; i++) {
        batches[i] = rig_batch(r, 1);
        struct yolk_request request = rig_request(r, YOLK_WRITE, i * 10 * PIECE, 4 * PIECE);
        rig_submit(r, batches[i], &request, 1);
    }
    assert_int_equal(s->count, CHUNKS);
    assert_false(rig_poll(r, batches[1], 0).terminal);
    clock_sim_advance(&r->clock, UINT64_C(4999) * 1000000);
    assert_false(rig_poll(r, batches[1], 0).terminal);
    clock_sim_advance(&r->clock, UINT64_C(2) * 1000000);
    rig_expect(r, batches[1], 0, YOLK_ERR_LIMIT, 0);
    assert_int_equal(s->count, CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_true(scripted_end(s, i, YOLK_OK, UINT64_MAX));
    rig_expect(r, batches[0], 0, YOLK_OK, 4 * PIECE);
    rig_free(r, batches[0]);
    rig_free(r, batches[1]);
    rig_close(r);
}

/* Twenty batches, of which only the last is ever polled: it waits for chunks that the others have,
 * and so looks after them. */
static void nobody_polls_the_others(void **state)
{
    (void)state;
    enum { BATCHES = 20 };
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    uint64_t batches[BATCHES];
    rig_open(r);
    s->hold = true;
    for (uint32_t i = 0; i < BATCHES; i++) {
        batches[i] = rig_batch(r, 1);
        struct yolk_request request =
            rig_request(r, i % 2 == 0 ? YOLK_WRITE : YOLK_READ, i * 3 * PIECE, 3 * PIECE);
        rig_submit(r, batches[i], &request, 1);
    }
    assert_int_equal(s->count, CHUNKS);
    for (uint32_t round = 0; !rig_poll(r, batches[BATCHES - 1], 0).terminal; round++) {
        assert_true(round < 10000);
        for (uint32_t i = 0; i < s->count; i++)
            (void)scripted_end(s, i, YOLK_OK, UINT64_MAX);
    }
    rig_expect(r, batches[BATCHES - 1], 0, YOLK_OK, 3 * PIECE);
    for (uint32_t i = 0; i < BATCHES; i++) {
        for (uint32_t round = 0; !rig_poll(r, batches[i], 0).terminal; round++) {
            assert_true(round < 10000);
            for (uint32_t k = 0; k < s->count; k++)
                (void)scripted_end(s, k, YOLK_OK, UINT64_MAX);
        }
        rig_expect(r, batches[i], 0, YOLK_OK, 3 * PIECE);
        rig_free(r, batches[i]);
    }
    assert_int_equal(s->count, BATCHES * 3);
    assert_memory_equal(r->local, r->memory, BATCHES * 3 * PIECE);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* Small ones are not passed over for ever by a large one that was first. */
static void turns_among_batches(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    rig_open(r);
    s->hold = true;
    uint64_t large = rig_batch(r, 1);
    uint64_t small = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, 60 * PIECE);
    rig_submit(r, large, &request, 1);
    request = rig_request(r, YOLK_READ, 61 * PIECE, 2 * PIECE);
    rig_submit(r, small, &request, 1);
    for (uint32_t round = 0; !rig_poll(r, small, 0).terminal; round++) {
        assert_true(scripted_end(s, round, YOLK_OK, UINT64_MAX)); /* the oldest one */
        (void)rig_poll(r, large, 0);
    }
    rig_expect(r, small, 0, YOLK_OK, 2 * PIECE);
    /* What the large one had, and one in turn for each of the small one's. */
    assert_in_range(s->count, CHUNKS + 2, 2 * CHUNKS + 4);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, large, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(r->engine, large, 0), YOLK_OK);
    rig_free(r, large);
    rig_free(r, small);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* C135: some buffers can be reached by the preferred way and some not, in one batch: each takes its
 * own, and is told which. */
static void c135_each_buffer_takes_its_own_way(void **state)
{
    (void)state;
    for (uint32_t transports = 1; transports <= 2; transports++) {
        struct rig *r = picky(transports);
        struct yolk_request requests[32];
        r->scripts[0].refused_size = RIG_SIZE / 2;
        rig_open_bare(r);
        assert_int_equal(yolk_engine_register(r->engine, r->local, RIG_SIZE / 2), YOLK_OK);
        assert_int_equal(yolk_engine_register(r->engine, r->local + RIG_SIZE / 2, RIG_SIZE / 2),
                         YOLK_OK);
        for (uint32_t i = 0; i < 32; i++)
            requests[i] = rig_request(r, YOLK_READ,
                                      i * PIECE + (i % 2 == 0 ? 0 : RIG_SIZE / 2 - PIECE), PIECE);
        uint64_t batch = rig_batch(r, 32);
        rig_submit(r, batch, requests, 32);
        for (uint32_t i = 0; i < 32; i++) {
            struct yolk_task_status told = rig_poll(r, batch, i);
            bool refused = i % 2 == 0;
            assert_int_equal(told.status, YOLK_OK);
            assert_int_equal(told.staged, refused && transports == 1);
            assert_string_equal(told.transport, refused && transports == 2 ? "second" : "first");
            assert_memory_equal(requests[i].local, r->memory + requests[i].offset, PIECE);
        }
        assert_int_equal(stats_of(r).bytes_staged, transports == 1 ? 16 * PIECE : 0);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* -- a copier that takes its time -- */

static struct {
    struct {
        void *to;
        const void *from;
        uint64_t size;
        struct copy_job *job; /* NULL: not under way */
    } jobs[SCRIPTED_MAX];
    uint32_t count;
    enum yolk_status fail; /* of those that end from now on */
} slow;

static enum copy_state slow_start(void *self, void *to, const void *from, uint64_t size,
                                  struct copy_job *job)
{
    (void)self;
    slow.jobs[slow.count].to = to;
    slow.jobs[slow.count].from = from;
    slow.jobs[slow.count].size = size;
    slow.jobs[slow.count].job = job;
    job->status = YOLK_OK;
    job->scratch[0] = &slow.jobs[slow.count++];
    return COPY_UNDER_WAY;
}

static enum copy_state slow_poll(void *self, struct copy_job *job)
{
    (void)self;
    for (uint32_t i = 0; i < slow.count; i++)
        if (slow.jobs[i].job == job)
            return COPY_UNDER_WAY;
    return job->status == YOLK_OK ? COPY_DONE : COPY_FAILED;
}

static void slow_end(uint32_t number)
{
    if (slow.jobs[number].job == NULL)
        return;
    slow.jobs[number].job->status = slow.fail;
    if (slow.fail == YOLK_OK)
        memcpy(slow.jobs[number].to, slow.jobs[number].from, slow.jobs[number].size);
    slow.jobs[number].job = NULL;
}

static const struct copier slow_copier = {NULL, 1u << POLICY_CPU, slow_start, slow_poll};

static struct rig *slow_rig(void)
{
    struct rig *r = picky(1);
    memset(&slow, 0, sizeof(slow));
    rig_open(r);
    r->engine->stage.copier = &slow_copier;
    r->scripts[0].hold = true;
    return r;
}

/* Copies and ios of one request side by side, each in its own time. */
static void copies_under_way(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        struct rig *r = slow_rig();
        struct scripted *s = &r->scripts[0];
        uint64_t batch = rig_batch(r, 1);
        struct random_sim sim;
        random_sim_init(&sim, 9);
        struct random random = random_sim_random(&sim);
        bool both = false;
        for (uint64_t i = 0; write && i < RIG_SIZE; i++)
            r->local[i] = (uint8_t)~r->memory[i];
        struct yolk_request request = rig_request(r, write ? YOLK_WRITE : YOLK_READ, 5, 30 * PIECE);
        rig_submit(r, batch, &request, 1);
        assert_int_equal(write ? slow.count : s->count, CHUNKS);
        for (uint32_t round = 0; !rig_poll(r, batch, 0).terminal; round++) {
            assert_true(round < 10000);
            uint32_t copying = 0;
            for (uint32_t i = 0; i < slow.count; i++)
                copying += slow.jobs[i].job != NULL;
            both = both || (copying > 0 && scripted_held(s) > 0);
            if (slow.count > 0 && random_below(&random, 2) == 0)
                slow_end((uint32_t)random_below(&random, slow.count));
            else if (s->count > 0)
                (void)scripted_end(s, (uint32_t)random_below(&random, s->count), YOLK_OK,
                                   UINT64_MAX);
        }
        assert_true(both);
        rig_expect(r, batch, 0, YOLK_OK, 30 * PIECE);
        assert_memory_equal(r->local + 5, r->memory + 5, 30 * PIECE);
        rig_free(r, batch);
        assert_int_equal(free_chunks(r), CHUNKS);
        rig_close(r);
    }
}

/* A cancel while bytes are copied in: never posted; while they are copied out: not quiet yet. */
static void canceled_while_copied(void **state)
{
    (void)state;
    struct rig *r = slow_rig();
    struct scripted *s = &r->scripts[0];
    uint64_t batch = rig_batch(r, 2);
    struct yolk_request request = rig_request(r, YOLK_WRITE, 0, 2 * PIECE);
    rig_submit(r, batch, &request, 1);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 0), YOLK_OK);
    assert_false(rig_poll(r, batch, 0).terminal);
    slow_end(0);
    slow_end(1);
    rig_expect(r, batch, 0, YOLK_ERR_CANCELED, 0);
    assert_int_equal(s->count, 0);
    assert_int_equal(s->canceled, 0); /* the transport never knew of it */
    request = rig_request(r, YOLK_READ, 0, PIECE);
    rig_submit(r, batch, &request, 1);
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    assert_false(rig_poll(r, batch, 1).terminal);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 1), YOLK_OK);
    assert_false(rig_poll(r, batch, 1).terminal);
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_ERR_BUSY);
    slow_end(2);
    rig_expect(r, batch, 1, YOLK_OK, PIECE); /* it was all there */
    assert_memory_equal(r->local, r->memory, PIECE);
    rig_free(r, batch);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* The link breaks while bytes are copied in: they go over another one. */
static void a_link_breaks_while_copied(void **state)
{
    (void)state;
    struct rig *r = slow_rig();
    struct scripted *s = &r->scripts[0];
    uint64_t batch = rig_batch(r, 1);
    memset(r->local, 0x77, 2 * PIECE);
    struct yolk_request request = rig_request(r, YOLK_WRITE, 0, 2 * PIECE);
    rig_submit(r, batch, &request, 1);
    assert_int_equal(slow.count, 2);
    slow_end(0);
    (void)rig_poll(r, batch, 0);
    assert_int_equal(s->count, 1);
    const void *broken = s->log[0].channel;
    assert_true(scripted_end(s, 0, YOLK_ERR_LINK, 0));
    (void)rig_poll(r, batch, 0);
    slow_end(1);
    for (uint32_t round = 0; !rig_poll(r, batch, 0).terminal; round++) {
        assert_true(round < 1000);
        for (uint32_t i = 1; i < s->count; i++) {
            assert_ptr_not_equal(s->log[i].channel, broken);
            (void)scripted_end(s, i, YOLK_OK, UINT64_MAX);
        }
        for (uint32_t i = 0; i < slow.count; i++)
            slow_end(i);
    }
    rig_expect(r, batch, 0, YOLK_OK, 2 * PIECE);
    assert_memory_equal(r->local, r->memory, 2 * PIECE);
    rig_free(r, batch);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* A copy that fails fails its request, and gives its chunk back. */
static void a_copy_fails(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        struct rig *r = slow_rig();
        struct scripted *s = &r->scripts[0];
        uint64_t batch = rig_batch(r, 1);
        struct yolk_request request = rig_request(r, write ? YOLK_WRITE : YOLK_READ, 0, 3 * PIECE);
        rig_submit(r, batch, &request, 1);
        slow.fail = YOLK_ERR_INVALID;
        for (uint32_t round = 0; !rig_poll(r, batch, 0).terminal; round++) {
            assert_true(round < 1000);
            for (uint32_t i = 0; i < s->count; i++)
                (void)scripted_end(s, i, YOLK_OK, UINT64_MAX);
            (void)rig_poll(r, batch, 0);
            for (uint32_t i = 0; i < slow.count; i++)
                slow_end(i);
        }
        rig_expect(r, batch, 0, YOLK_ERR_INVALID, 0);
        if (write)
            assert_int_equal(s->count, 0);
        rig_free(r, batch);
        assert_int_equal(free_chunks(r), CHUNKS);
        rig_close(r);
    }
}

/* A completion that comes twice, the second time while the bytes are copied out: ignored. */
static void told_twice(void **state)
{
    (void)state;
    struct rig *r = slow_rig();
    struct scripted *s = &r->scripts[0];
    uint64_t batch = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 0, PIECE);
    rig_submit(r, batch, &request, 1);
    struct yolk_io *io = s->log[0].io;
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    assert_false(rig_poll(r, batch, 0).terminal);
    s->log[0].io = io;
    ((struct scripted_channel *)s->log[0].channel)->open++;
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    uint64_t unknown = stats_of(r).completions_unknown;
    assert_false(rig_poll(r, batch, 0).terminal);
    assert_int_equal(stats_of(r).completions_unknown, unknown + 1);
    slow_end(0);
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_free(r, batch);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* Merged requests are staged as one and end as many. */
static void merged_ones(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[16];
    r->options.merge = YOLK_SWITCH_ON;
    rig_open(r);
    s->hold = true;
    for (uint32_t i = 0; i < 16; i++)
        requests[i] = rig_request(r, YOLK_READ, i * 1024, 1024);
    uint64_t batch = rig_batch(r, 16);
    rig_submit(r, batch, requests, 16);
    assert_int_equal(s->count, 4);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 5), YOLK_OK);
    for (uint32_t round = 0, pending = 1; pending > 0; round++) {
        assert_true(round < 1000);
        for (uint32_t i = 0; i < s->count; i++)
            (void)scripted_end(s, i, YOLK_OK, UINT64_MAX);
        assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
    }
    for (uint32_t i = 0; i < 16; i++) {
        rig_expect(r, batch, i, i == 5 ? YOLK_ERR_CANCELED : YOLK_OK, i == 5 ? 0 : 1024);
        for (uint32_t b = i * 1024; b < (i + 1) * 1024; b++)
            assert_int_equal(r->local[b], i == 5 ? 0 : rig_byte(b));
    }
    assert_int_equal(stats_of(r).tasks_staged, 16);
    rig_free(r, batch);
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

/* -- a transport with faults of every kind -- */

enum { FAULTY = 12, FAULTY_SIZE = 3 * PIECE + 123, FAULTY_STEP = 5 * PIECE };

static struct yolk_request faulty_request(const struct rig *r, uint32_t i)
{
    struct yolk_request request =
        rig_request(r, i % 3 == 0 ? YOLK_WRITE : YOLK_READ, i * FAULTY_STEP + 7, FAULTY_SIZE);
    request.deadline_ns = UINT64_C(3000) * 1000000;
    return request;
}

/* Nothing beside the requests' own ranges is touched; what ended well is exact. */
static void check_faulty(struct rig *r, uint64_t batch, uint32_t *good)
{
    for (uint32_t i = 0; i < FAULTY; i++) {
        struct yolk_task_status told = rig_poll(r, batch, i);
        bool write = i % 3 == 0;
        uint64_t from = i * FAULTY_STEP + 7;
        assert_true(told.terminal);
        *good += told.status == YOLK_OK;
        for (uint64_t b = i * FAULTY_STEP; b < (i + 1) * FAULTY_STEP; b++) {
            bool mine = b >= from && b < from + FAULTY_SIZE;
            bool sure = mine && (told.status == YOLK_OK || b < from + told.transferred);
            uint8_t here = (uint8_t)~rig_byte(b), there = rig_byte(b);
            if (!mine || write)
                assert_int_equal(r->local[b], here);
            else if (told.status == YOLK_OK)
                assert_int_equal(r->local[b], there);
            else
                assert_true(r->local[b] == here || r->local[b] == there);
            if (!mine || !write)
                assert_int_equal(r->memory[b], there);
            else if (sure && told.status == YOLK_OK)
                assert_int_equal(r->memory[b], here);
            else
                assert_true(r->memory[b] == here || r->memory[b] == there);
        }
    }
}

static void run_faulty(uint64_t seed, uint32_t *good)
{
    struct rig *r = picky(1);
    struct fault_control control = {0};
    struct fault_options faults = {.inner = &r->ops[0],
                                   .inner_wrapped = &r->scripts[0],
                                   .control = &control,
                                   .seed = seed,
                                   .delay_permille = 300,
                                   .defer_permille = 100,
                                   .drop_permille = 5,
                                   .reorder_permille = 200,
                                   .duplicate_permille = 100,
                                   .short_permille = 100,
                                   .again_permille = 100,
                                   .fail_permille = 50,
                                   .partial_permille = 50,
                                   .late_fail_permille = 50};
    struct yolk_transport_ops ops;
    struct yolk_request requests[FAULTY];
    uint32_t pending = 1;
    transport_fault_make(&faults, &ops);
    r->transports[0] = &ops;
    r->wrapped[0] = &faults;
    r->options.attempts_max = 50;
    r->options.breaker_failures = 1000000;
    rig_open(r);
    for (uint64_t i = 0; i < RIG_SIZE; i++)
        r->local[i] = (uint8_t)~rig_byte(i);
    for (uint32_t i = 0; i < FAULTY; i++)
        requests[i] = faulty_request(r, i);
    uint64_t batch = rig_batch(r, FAULTY);
    rig_submit(r, batch, requests, FAULTY);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, (uint32_t)seed % FAULTY), YOLK_OK);
    for (uint32_t round = 0; pending > 0; round++) {
        assert_true(round < 20000);
        clock_sim_advance(&r->clock, 1000000);
        assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
    }
    check_faulty(r, batch, good);
    rig_free(r, batch);
    while (stats_of(r).quarantined > 0)
        thread_relax();
    assert_int_equal(free_chunks(r), CHUNKS);
    assert_true(control.injected > 0);
    rig_close(r);
}

static void faults_of_every_kind(void **state)
{
    (void)state;
    uint32_t good = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        run_faulty(seed, &good);
    assert_true(good > 40 * FAULTY / 2); /* most of them come through */
}

/* -- many threads -- */

enum { THREADS = 6, ROUNDS = 40 };

struct worker {
    struct rig *r;
    struct thread thread;
    uint32_t number;
    uint32_t wrong;
};

static void work(void *arg)
{
    struct worker *w = arg;
    struct rig *r = w->r;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t size = 3 * PIECE + round * 17;
        uint64_t place = (uint64_t)w->number * 8 * PIECE;
        struct yolk_request request = rig_request(r, YOLK_READ, place, size);
        enum yolk_status verdict;
        uint64_t batch;
        struct yolk_task_status status = {0};
        memset(r->local + place, 0, size);
        if (yolk_engine_batch_create(r->engine, 1, &batch) != YOLK_OK ||
            yolk_engine_batch_submit(r->engine, batch, &request, 1, &verdict, NULL) != YOLK_OK) {
            w->wrong++;
            return;
        }
        if (round % 5 == 4)
            (void)!yolk_engine_batch_cancel(r->engine, batch, 0);
        (void)!yolk_engine_batch_wait(r->engine, batch, 0);
        (void)!yolk_engine_batch_poll(r->engine, batch, 0, &status);
        if (status.status == YOLK_OK && memcmp(r->local + place, r->memory + place, size) != 0)
            w->wrong++;
        if (status.status != YOLK_OK && round % 5 != 4)
            w->wrong++;
        (void)!yolk_engine_batch_free(r->engine, batch);
    }
}

static void threads_take_turns(void **state)
{
    (void)state;
    struct rig *r = picky(1);
    struct worker workers[THREADS];
    uint32_t started = 0, wrong = 0;
    rig_open(r);
    for (; started < THREADS; started++) {
        workers[started] = (struct worker){.r = r, .number = started};
        if (thread_start(&workers[started].thread, "worker", work, &workers[started]) != YOLK_OK)
            break;
    }
    for (uint32_t i = 0; i < started; i++) {
        thread_join(&workers[i].thread);
        wrong += workers[i].wrong;
    }
    assert_int_equal(started, THREADS);
    assert_int_equal(wrong, 0);
    while (stats_of(r).quarantined > 0)
        thread_relax();
    assert_int_equal(free_chunks(r), CHUNKS);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_bytes),
        cmocka_unit_test(a_pipeline),
        cmocka_unit_test(direct_comes_first),
        cmocka_unit_test(refused_where_it_is_forbidden),
        cmocka_unit_test(short_and_failing),
        cmocka_unit_test(canceled),
        cmocka_unit_test(stuck_chunks_stay_out),
        cmocka_unit_test(starved),
        cmocka_unit_test(nobody_polls_the_others),
        cmocka_unit_test(turns_among_batches),
        cmocka_unit_test(c135_each_buffer_takes_its_own_way),
        cmocka_unit_test(copies_under_way),
        cmocka_unit_test(canceled_while_copied),
        cmocka_unit_test(a_link_breaks_while_copied),
        cmocka_unit_test(a_copy_fails),
        cmocka_unit_test(told_twice),
        cmocka_unit_test(merged_ones),
        cmocka_unit_test(faults_of_every_kind),
        cmocka_unit_test(threads_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
