/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose side in a GPU's memory lies in pieces: moved as one where the way takes pieces,
 * staged or not, and told to be made of several where it does not. */
#include "engine_kit.h"

#include "engine/bulk.h"
#include "transport/fault/fault.h"

enum { PIECES = 400 };

/* Values in the lower half of the GPU's memory and of the segment; their places in the upper one.
 */
struct value {
    struct yolk_piece pieces[PIECES];
    uint64_t size;
};

static struct registration *hold(struct world *w)
{
    uint64_t start, end;
    struct registration *held = engine_hold(w->engine, w->gpu, AREA, &start, &end);
    assert_non_null(held);
    assert_int_equal(engine_held_gpu(held), 1);
    return held;
}

/* Pieces of drawn sizes in drawn order, which do not touch each other. */
static void draw(struct value *v, uint8_t *from, uint64_t size_most, uint64_t seed)
{
    uint32_t order[PIECES];
    uint64_t sizes[PIECES], places[PIECES], at = 0;
    for (uint32_t i = 0; i < PIECES; i++) {
        order[i] = i;
        sizes[i] = 1 + kit_draw(&seed) % size_most;
        places[i] = at;
        at += sizes[i] + kit_draw(&seed) % 7;
    }
    assert_true(at <= AREA / 2);
    for (uint32_t i = PIECES - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(kit_draw(&seed) % (i + 1)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    v->size = 0;
    for (uint32_t i = 0; i < PIECES; i++) {
        v->pieces[i] = (struct yolk_piece){from + places[order[i]], sizes[order[i]]};
        v->size += sizes[order[i]];
    }
}

/* The status of one request in pieces. */
static enum yolk_status move_pieces(struct world *w, enum yolk_opcode opcode, const struct value *v,
                                    uint64_t offset, struct yolk_task_status *task)
{
    struct registration *held = hold(w);
    const struct engine_scatter scatter = {v->pieces, PIECES, held};
    const struct yolk_request request = {
        .opcode = opcode, .segment = w->segment, .offset = offset, .size = v->size};
    enum yolk_status verdict;
    uint64_t batch;
    assert_ok(yolk_engine_batch_create(w->engine, 1, &batch));
    (void)!engine_batch_submit_scattered(w->engine, batch, &request, &scatter, 1, &verdict, NULL);
    (void)!yolk_engine_batch_wait(w->engine, batch,
                                  clock_after_ms(clock_real_now_ns(), DEADLINE_MS));
    assert_ok(yolk_engine_batch_poll(w->engine, batch, 0, task));
    assert_true(task->terminal);
    assert_ok(yolk_engine_batch_free(w->engine, batch));
    engine_give_back(held);
    return task->status;
}

/* slice_bytes 0: the transport's own. */
static void moves_pieces(const char *transport, uint64_t size_most, uint64_t slice_bytes)
{
    struct world w;
    struct yolk_engine_options options;
    struct value from, to;
    struct yolk_task_status task;
    make_options(&options);
    options.slice_bytes_max = slice_bytes;
    open_world(&w, transport, &options);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    draw(&from, w.gpu, size_most, 3);
    uint64_t launches = (uint64_t)kit_fake("count launches");
    assert_int_equal(move_pieces(&w, YOLK_WRITE, &from, 4097, &task), YOLK_OK);
    assert_int_equal(task.transferred, from.size);
    uint8_t *value = malloc(AREA), *there = malloc(AREA);
    uint64_t at = 0;
    for (uint32_t i = 0; i < PIECES; at += from.pieces[i++].size)
        memcpy(value + at, w.model + ((uint8_t *)from.pieces[i].pointer - w.gpu),
               from.pieces[i].size);
    look_there(&w, there, 4097, from.size);
    assert_memory_equal(there, value, from.size);
    to = from; /* the same sizes at other places */
    for (uint32_t i = 0; i < PIECES; i++)
        to.pieces[i].pointer = (uint8_t *)from.pieces[i].pointer + AREA / 2;
    assert_int_equal(move_pieces(&w, YOLK_READ, &to, 4097, &task), YOLK_OK);
    assert_int_equal(task.transferred, from.size);
    for (uint32_t i = 0; i < PIECES; i++) {
        uint8_t *place = w.model + ((uint8_t *)from.pieces[i].pointer - w.gpu);
        memcpy(place + AREA / 2, place, from.pieces[i].size);
    }
    assert_gpu_is_model(&w);
    /* The pieces of an io, or of what is staged at once, are one launch of the kernel. */
    struct yolk_engine_stats stats = stats_of(&w);
    if (!kit_real())
        assert_true((uint64_t)kit_fake("count launches") - launches <= stats.slices_submitted);
    assert_int_equal(stats.tasks_staged == 0,
                     strcmp(transport, "loop") == 0 || strcmp(transport, "shm") == 0);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    free(value);
    free(there);
    close_world(&w);
}

static void c42_pieces_go_as_one(void **state)
{
    (void)state;
    static const char *const names[] = {"loop", "shm", "tcp", "uring", "posix"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        moves_pieces(names[i], 10000, 0);
        moves_pieces(names[i], 10000, 70001); /* cut within pieces */
        moves_pieces(names[i], 40, 0);
    }
}

/* What is not all in one registration of a GPU, or not as long as is said, is refused untouched. */
static void pieces_that_are_none(void **state)
{
    (void)state;
    struct world w;
    struct value v;
    struct yolk_task_status task;
    open_world(&w, "shm", NULL);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    draw(&v, w.gpu, 1000, 5);
    v.size++;
    assert_int_equal(move_pieces(&w, YOLK_READ, &v, 0, &task), YOLK_ERR_NOT_REGISTERED);
    v.size -= 2;
    assert_int_equal(move_pieces(&w, YOLK_READ, &v, 0, &task), YOLK_ERR_NOT_REGISTERED);
    v.size++;
    uint8_t *last = v.pieces[PIECES - 1].pointer;
    v.pieces[PIECES - 1].pointer = w.gpu + AREA - v.pieces[PIECES - 1].size + 1;
    assert_int_equal(move_pieces(&w, YOLK_READ, &v, 0, &task), YOLK_ERR_NOT_REGISTERED);
    v.pieces[PIECES - 1].pointer = w.gpu - 1;
    assert_int_equal(move_pieces(&w, YOLK_READ, &v, 0, &task), YOLK_ERR_NOT_REGISTERED);
    assert_gpu_is_model(&w);
    v.pieces[PIECES - 1].pointer = last;
    assert_int_equal(move_pieces(&w, YOLK_WRITE, &v, 0, &task), YOLK_OK);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

static void a_way_without_pieces_says_so(void **state)
{
    (void)state;
    struct world w;
    struct value v;
    struct yolk_task_status task;
    struct yolk_transport_ops faulty;
    const struct yolk_transport_ops *ops = &faulty;
    struct yolk_engine_options options;
    const struct fault_options none = {.inner = transport_loop_ops()};
    transport_fault_make(&none, &faulty);
    make_options(&options);
    options.transport.wrapped = &none;
    open_world_of(&w, ops, &options);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    draw(&v, w.gpu, 1000, 5);
    assert_int_equal(move_pieces(&w, YOLK_READ, &v, 0, &task), YOLK_ERR_UNSUPPORTED);
    assert_gpu_is_model(&w);
    assert_ok(move(&w, YOLK_WRITE, w.gpu, 0, MIB));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

/* -- the hooks by themselves: an engine would make good what is told wrong -- */

enum { IOS = 64 };

struct hooks {
    const struct yolk_transport_ops *ops;
    void *endpoint, *target, *channel;
    struct yolk_io ios[IOS];
    struct yolk_piece pieces[IOS][2];
    uint8_t ended[IOS];
};

static uint64_t now(void *self)
{
    (void)self;
    return clock_real_now_ns();
}

static void open_hooks(struct hooks *h, struct world *w, const char *transport)
{
    struct yolk_engine_options usual;
    char text[4096];
    h->ops = ops_of(transport);
    make_options(&usual);
    const struct yolk_transport_options options = {.struct_size = sizeof(options),
                                                   .now_ns = now,
                                                   .connect_timeout_ms = DEADLINE_MS,
                                                   .stop_timeout_ms = DEADLINE_MS,
                                                   .cuda_library = usual.transport.cuda_library,
                                                   .instance = {7}};
    assert_ok(h->ops->init(&options, &h->endpoint));
    const char *all = strchr(yolk_served_endpoints(w->served), '=') + 1; /* of this one alone */
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(all, ";"), all);
    assert_ok(h->ops->open_target(h->endpoint, text, 9, AREA, 5, &h->target));
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    enum yolk_status status;
    do
        status = h->ops->channel_open(h->endpoint, h->target, &h->channel);
    while (status == YOLK_ERR_AGAIN && clock_real_now_ns() < until);
    assert_ok(status);
}

static void close_hooks(struct hooks *h)
{
    assert_ok(h->ops->channel_close(h->channel));
    h->ops->close_target(h->endpoint, h->target);
    assert_ok(h->ops->stop(h->endpoint));
    h->ops->fini(h->endpoint);
}

static void told(struct hooks *h, uint64_t cookie, enum yolk_status status, uint64_t transferred)
{
    assert_true(cookie < IOS);
    assert_int_equal(status, YOLK_OK);
    assert_int_equal(transferred, h->ios[cookie].size);
    assert_int_equal(++h->ended[cookie], 1);
}

/* Every other io is in pieces. */
static void run_hooks(struct hooks *h)
{
    struct yolk_completion completions[7];
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    uint32_t ended = 0;
    memset(h->ended, 0, sizeof(h->ended));
    for (uint32_t i = 0; i < IOS; i++) {
        enum yolk_submit answer;
        while ((answer = h->ops->submit(h->channel, &h->ios[i])) == YOLK_SUBMIT_AGAIN)
            assert_true(clock_real_now_ns() < until); /* the first write: it still connects */
        if (answer == YOLK_SUBMIT_FAILED)
            fail_msg("%d: %s", (int)h->ios[i].status, yolk_last_error());
        assert_true(answer == YOLK_SUBMIT_QUEUED || answer == YOLK_SUBMIT_DONE);
        if (answer == YOLK_SUBMIT_DONE) {
            told(h, i, YOLK_OK, h->ios[i].transferred);
            ended++;
        }
    }
    h->ops->flush(h->channel);
    while (ended < IOS) {
        uint32_t count = h->ops->poll(h->channel, completions, 7);
        for (uint32_t i = 0; i < count; i++, ended++)
            told(h, completions[i].cookie, completions[i].status, completions[i].transferred);
        assert_true(clock_real_now_ns() < until);
    }
    assert_int_equal(h->ops->poll(h->channel, completions, 7), 0);
}

static void says_what_it_moved(const char *transport)
{
    struct world w;
    struct hooks h;
    open_world(&w, transport, NULL);
    open_hooks(&h, &w, transport);
    for (int writes = 1; writes >= 0; writes--) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < IOS; i++) {
            uint64_t size = 2 + i * 977, half = size / 2;
            uint8_t *local = w.gpu + (writes ? 0 : AREA / 2) + at;
            h.pieces[i][0] = (struct yolk_piece){local, half};
            h.pieces[i][1] = (struct yolk_piece){local + half, size - half};
            h.ios[i] = (struct yolk_io){.opcode = writes ? YOLK_WRITE : YOLK_READ,
                                        .local = i % 2 == 0 ? local : NULL,
                                        .offset = at,
                                        .size = size,
                                        .gpu = 1,
                                        .piece_count = i % 2 == 0 ? 0 : 2,
                                        .pieces = h.pieces[i],
                                        .deadline_ns = UINT64_MAX,
                                        .cookie = i};
            at += size;
        }
        run_hooks(&h);
        look_there(&w, w.read, 0, at);
        assert_memory_equal(w.read, w.model, at);
        if (!writes)
            memcpy(w.model + AREA / 2, w.model, at);
    }
    assert_gpu_is_model(&w);
    close_hooks(&h);
    close_world(&w);
}

static void each_copy_of_a_gpu_says_what_it_moved(void **state)
{
    (void)state;
    says_what_it_moved("loop");
    says_what_it_moved("shm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c42_pieces_go_as_one),
        cmocka_unit_test(pieces_that_are_none),
        cmocka_unit_test(a_way_without_pieces_says_so),
        cmocka_unit_test(each_copy_of_a_gpu_says_what_it_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
