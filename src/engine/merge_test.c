/* SPDX-License-Identifier: Apache-2.0 */
/* Joined requests: which are, and that each of a group ends as if it were alone. */
#include "engine/merge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "platform/random.h"

enum { WINDOW = 4, ATTEMPTS = 3, DRAIN = 1000 };

/* -- which are joined -- */

static struct yolk_request base_request(void)
{
    return (struct yolk_request){.opcode = YOLK_WRITE,
                                 .local = (void *)(uintptr_t)0x1000,
                                 .segment = 7,
                                 .offset = 0x500,
                                 .size = 0x100,
                                 .deadline_ns = 99,
                                 .hint = "tcp",
                                 .ticket = {0x500, 0x1000, 3, {1, 2, 3}},
                                 .cookie = 1,
                                 .priority = YOLK_PRIORITY_MEDIUM,
                                 .intent = YOLK_INTENT_MIGRATION,
                                 .policy = "p",
                                 .tenant = "t",
                                 .flags = YOLK_REQUEST_EXACT};
}

static struct yolk_request next_request(void)
{
    struct yolk_request next = base_request();
    next.local = (void *)(uintptr_t)0x1100;
    next.offset = 0x600;
    next.size = 0x40;
    next.cookie = 2;
    return next;
}

static bool joined(const struct yolk_request *next)
{
    const struct yolk_request first = base_request();
    return merge_goes_on(&first, next) && merge_is_alike(&first, next, 0x100, 0x140);
}

static void only_what_is_equal_and_goes_on(void **state)
{
    (void)state;
    struct yolk_request next = next_request();
    char hint[] = "tcp"; /* equal by its text, not by its place */
    next.hint = hint;
    assert_true(joined(&next));
#define DIFFERS(member, value)                                                                     \
    do {                                                                                           \
        next = next_request();                                                                     \
        next.member = (value);                                                                     \
        assert_false(joined(&next));                                                               \
    } while (0)
    DIFFERS(opcode, YOLK_READ);
    DIFFERS(local, (void *)(uintptr_t)0x1101);
    DIFFERS(local, (void *)(uintptr_t)0x10ff);
    DIFFERS(segment, 8);
    DIFFERS(offset, 0x601);
    DIFFERS(offset, 0x5ff);
    DIFFERS(size, 0);
    DIFFERS(size, 0x41); /* one byte over the limit */
    DIFFERS(deadline_ns, 98);
    DIFFERS(deadline_ns, 0);
    DIFFERS(hint, "shm");
    DIFFERS(hint, NULL);
    DIFFERS(ticket.offset, 0x501);
    DIFFERS(ticket.size, 0xfff);
    DIFFERS(ticket.op, 4);
    DIFFERS(ticket.mac[15], 1);
    DIFFERS(priority, YOLK_PRIORITY_HIGH);
    DIFFERS(intent, YOLK_INTENT_CHECKPOINT);
    DIFFERS(policy, "q");
    DIFFERS(policy, NULL);
    DIFFERS(tenant, "u");
    DIFFERS(tenant, NULL);
    DIFFERS(flags, 0);
#undef DIFFERS
    struct yolk_request empty = base_request();
    next = base_request();
    empty.size = 0;
    assert_false(merge_is_alike(&empty, &next, 0, UINT64_MAX));
    const struct yolk_request first = base_request();
    next = next_request();
    assert_false(merge_is_alike(&first, &next, 0x100, 0)); /* nothing is */
    assert_false(merge_is_alike(&first, &next, UINT64_MAX - 1, UINT64_MAX));
}

/* -- what becomes of a group -- */

struct model_task {
    uint64_t start; /* of its first byte in its group */
    uint32_t group; /* number of its first task */
    uint32_t size;
    uint32_t placed;    /* bytes in place */
    bool ended;         /* canceled or timed out by the test */
    bool failed;        /* a slice of it alone was refused, or its route is dead */
    uint64_t last_done; /* as told before */
};

struct model_slice {
    uint64_t cookie;
    uint32_t first, size; /* bytes, counted over all tasks */
    bool cancel_asked;
};

enum { TASKS = 40, BYTES = TASKS * 8, SLICES = 256 };
/* Every byte of every task on its own. */
enum byte { BYTE_WAITS = 0, BYTE_OUT, BYTE_PLACED };

struct model {
    struct batch_state state;
    struct model_task tasks[TASKS];
    uint32_t task_count;
    uint32_t first_byte[TASKS + 1];
    enum byte bytes[BYTES];
    bool bad[BYTES]; /* a byte whose io is always refused: of one task, on every route */
    struct model_slice out[SLICES];
    uint32_t out_count;
    struct random_sim sim;
    struct random random;
};

static uint32_t below(struct model *m, uint32_t bound)
{
    return (uint32_t)random_below(&m->random, bound);
}

static void make_tasks(struct model *m)
{
    m->task_count = 2 + below(m, TASKS - 1);
    uint32_t byte = 0;
    uint32_t group = 0;
    for (uint32_t i = 0; i < m->task_count; i++) {
        struct model_task *task = &m->tasks[i];
        bool join = i > 0 && below(m, 5) != 0;
        task->size = 1 + below(m, 8);
        if (!join)
            group = i;
        task->group = group;
        task->start = join ? task[-1].start + task[-1].size : 0;
        m->first_byte[i] = byte;
        byte += task->size;
        assert_int_equal(join ? batch_state_join(&m->state, task->size, i)
                              : batch_state_add(&m->state, task->size, BATCH_NEVER, i),
                         i);
        if (below(m, 12) == 0)
            m->bad[m->first_byte[i] + below(m, task->size)] = true;
    }
    m->first_byte[m->task_count] = byte;
}

static uint32_t task_of(const struct model *m, uint32_t byte)
{
    uint32_t i = 0;
    while (m->first_byte[i + 1] <= byte)
        i++;
    return i;
}

/* Each byte goes out once at a time, never when it is in place or not wanted any more; only bytes
 * of one group go out together. */
static void take_one(struct model *m)
{
    bool no_memory;
    uint32_t head = batch_state_dequeue(&m->state);
    if (head == BATCH_NONE)
        return;
    assert_int_equal(m->tasks[head].group, head);
    uint32_t slice;
    while (m->out_count < SLICES && (slice = batch_state_take(&m->state, head, 1 + below(m, 24),
                                                              &no_memory)) != BATCH_NONE) {
        if (below(m, 6) == 0) { /* its transport is full */
            batch_state_untake(&m->state, slice);
            return;
        }
        const struct batch_slice *taken = &m->state.slices[slice];
        struct model_slice *out = &m->out[m->out_count++];
        out->cookie = batch_state_cookie(&m->state, slice);
        out->first = m->first_byte[head] + (uint32_t)taken->offset;
        out->size = (uint32_t)taken->size;
        out->cancel_asked = false;
        for (uint32_t b = out->first; b < out->first + out->size; b++) {
            const struct model_task *task = &m->tasks[task_of(m, b)];
            assert_int_equal(m->bytes[b], BYTE_WAITS);
            assert_int_equal(task->group, head);
            assert_false(task->ended || task->failed);
            m->bytes[b] = BYTE_OUT;
        }
    }
}

/* What an io comes back with: all, a part, a refusal of the bad byte, something that passes. */
static void complete_one(struct model *m)
{
    if (m->out_count == 0)
        return;
    uint32_t index = below(m, m->out_count);
    struct model_slice out = m->out[index];
    m->out[index] = m->out[--m->out_count];
    enum yolk_status status = YOLK_OK;
    uint32_t moved = out.size;
    bool final = false;
    for (uint32_t b = out.first; b < out.first + out.size; b++)
        final = final || m->bad[b];
    if (out.cancel_asked && below(m, 2) == 0) {
        status = YOLK_ERR_CANCELED;
        moved = below(m, out.size + 1);
    } else if (final) { /* of all together: nothing was moved */
        status = YOLK_ERR_ACCESS;
        moved = 0;
    } else if (below(m, 3) == 0) {
        moved = 1 + below(m, out.size); /* short */
    }
    uint32_t first = task_of(m, out.first);
    uint32_t last = task_of(m, out.first + out.size - 1);
    for (uint32_t b = out.first; b < out.first + out.size; b++) {
        bool placed = b < out.first + moved;
        struct model_task *task = &m->tasks[task_of(m, b)];
        m->bytes[b] = placed ? BYTE_PLACED : BYTE_WAITS;
        /* What comes after the end and not as a success is not told. */
        task->placed += placed && (status == YOLK_OK || !(task->ended || task->failed));
    }
    uint32_t head;
    enum batch_outcome outcome =
        batch_state_complete(&m->state, 1, out.cookie, status, moved, &head);
    assert_int_not_equal(outcome, BATCH_UNKNOWN);
    assert_int_equal(head, m->tasks[first].group);
    assert_int_equal(m->state.touched_first, first);
    assert_int_equal(m->state.touched_last, last);
    /* A refusal is final for one task, never for several at once. */
    bool was_over = m->tasks[first].ended || m->tasks[first].failed;
    if (status == YOLK_ERR_ACCESS && first == last && !was_over) {
        m->tasks[first].failed = true;
        assert_int_equal(outcome, BATCH_FAILED);
    } else {
        assert_int_not_equal(outcome, BATCH_FAILED);
    }
}

static void cancel_one(struct model *m)
{
    uint32_t i = below(m, m->task_count);
    struct model_task *task = &m->tasks[i];
    if (m->state.tasks[i].terminal)
        return;
    bool out = false;
    for (uint32_t k = 0; k < m->out_count; k++) {
        struct model_slice *slice = &m->out[k];
        bool shares =
            slice->first < m->first_byte[i + 1] && m->first_byte[i] < slice->first + slice->size;
        assert_int_equal(batch_state_shares(&m->state, (uint32_t)slice->cookie, i) &&
                             m->tasks[task_of(m, slice->first)].group == task->group,
                         shares && true);
        out = out || shares;
        if (shares) {
            slice->cancel_asked = true;
            m->state.slices[(uint32_t)slice->cookie].cancel_asked = true;
        }
    }
    task->ended = task->ended || !task->failed;
    assert_int_equal(batch_state_end(&m->state, 1, i, YOLK_ERR_CANCELED), out);
}

static void compare(struct model *m)
{
    uint32_t pending = 0;
    for (uint32_t i = 0; i < m->task_count; i++) {
        const struct batch_task *told = &m->state.tasks[i];
        struct model_task *task = &m->tasks[i];
        bool out = false;
        for (uint32_t b = m->first_byte[i]; b < m->first_byte[i + 1]; b++)
            out = out || m->bytes[b] == BYTE_OUT;
        bool complete = task->placed == task->size;
        assert_int_equal(told->done, task->placed);
        assert_true(told->done >= task->last_done);
        task->last_done = told->done;
        assert_int_equal(told->taken > 0, out);
        assert_int_equal(told->terminal, !out && (complete || task->ended || task->failed));
        if (told->terminal)
            assert_int_equal(told->failure, complete && !task->failed ? YOLK_OK
                                            : task->failed            ? YOLK_ERR_ACCESS
                                                                      : YOLK_ERR_CANCELED);
        assert_int_equal(told->terminal_events, told->terminal);
        pending += !told->terminal;
    }
    assert_int_equal(m->state.pending, pending);
}

static void run_model(uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));
    random_sim_init(&m->sim, seed);
    m->random = random_sim_random(&m->sim);
    assert_int_equal(batch_state_init(&m->state, TASKS, 1 + below(m, WINDOW), ATTEMPTS, DRAIN),
                     YOLK_OK);
    make_tasks(m);
    uint32_t cancels = below(m, 3) == 0 ? 0 : below(m, 8);
    for (uint32_t step = 0; m->state.pending > 0; step++) {
        assert_true(step < 20000);
        uint32_t what = below(m, 10);
        if (what < 5)
            take_one(m);
        else if (what < 9 || cancels == 0)
            complete_one(m);
        else if (cancels-- > 0)
            cancel_one(m);
        compare(m);
    }
    for (uint32_t i = 0; i < m->task_count; i++)
        for (uint32_t b = m->first_byte[i]; b < m->first_byte[i + 1]; b++)
            if (!m->tasks[i].ended) /* nobody was harmed by another one */
                assert_int_equal(m->tasks[i].failed, m->state.tasks[i].failure != YOLK_OK);
    assert_int_equal(m->state.taken, 0);
    batch_state_free(&m->state);
    free(m);
}

static void each_of_a_group_ends_as_if_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++)
        run_model(seed);
}

/* -- single steps -- */

static uint32_t take(struct batch_state *state, uint32_t task, uint64_t most)
{
    bool no_memory;
    uint32_t slice = batch_state_take(state, task, most, &no_memory);
    assert_false(no_memory);
    return slice;
}

static struct batch_state three(void)
{
    struct batch_state state;
    assert_int_equal(batch_state_init(&state, 3, WINDOW, ATTEMPTS, DRAIN), YOLK_OK);
    assert_int_equal(batch_state_add(&state, 10, 500, 1), 0);
    assert_int_equal(batch_state_join(&state, 20, 2), 1);
    assert_int_equal(batch_state_join(&state, 30, 3), 2);
    assert_int_equal(state.queue_length, 1);
    return state;
}

static enum batch_outcome complete(struct batch_state *state, uint32_t slice,
                                   enum yolk_status status, uint64_t transferred)
{
    uint32_t head;
    return batch_state_complete(state, 1, batch_state_cookie(state, slice), status, transferred,
                                &head);
}

/* A link that breaks: what is missing is posted once more, not once for each. */
static void failover_posts_once(void **unused)
{
    (void)unused;
    struct batch_state state = three();
    uint32_t slice = take(&state, 0, 1000);
    assert_int_equal(state.slices[slice].size, 60);
    assert_int_equal(complete(&state, slice, YOLK_ERR_LINK, 15), BATCH_RETRY);
    assert_true(state.tasks[0].terminal);
    assert_int_equal(state.tasks[1].done, 5);
    assert_int_equal(state.queue_length, 1);
    slice = take(&state, 0, 1000);
    assert_int_equal(state.slices[slice].offset, 15);
    assert_int_equal(state.slices[slice].size, 45);
    assert_int_equal(take(&state, 0, 1000), BATCH_NONE);
    assert_int_equal(complete(&state, slice, YOLK_OK, 45), BATCH_PROGRESS);
    assert_int_equal(state.pending, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(state.tasks[i].failure, YOLK_OK);
    batch_state_free(&state);
}

/* Attempts used up on dead routes: all that miss bytes fail, who has them does not. */
static void dead_routes_fail_all_that_miss(void **unused)
{
    (void)unused;
    struct batch_state state = three();
    assert_int_equal(complete(&state, take(&state, 0, 1000), YOLK_ERR_LINK, 12), BATCH_RETRY);
    assert_int_equal(complete(&state, take(&state, 0, 1000), YOLK_ERR_LINK, 0), BATCH_RETRY);
    assert_int_equal(complete(&state, take(&state, 0, 1000), YOLK_ERR_LINK, 0), BATCH_FAILED);
    assert_int_equal(state.tasks[0].failure, YOLK_OK);
    assert_int_equal(state.tasks[1].failure, YOLK_ERR_LINK);
    assert_int_equal(state.tasks[2].failure, YOLK_ERR_LINK);
    assert_int_equal(state.pending, 0);
    batch_state_free(&state);
}

static void stuck_is_told_of_all_it_may_touch(void **unused)
{
    (void)unused;
    struct batch_state state = three();
    assert_int_equal(complete(&state, take(&state, 0, 25), YOLK_ERR_STUCK, 25), BATCH_FAILED);
    assert_int_equal(state.tasks[0].failure, YOLK_ERR_STUCK);
    assert_int_equal(state.tasks[1].failure, YOLK_ERR_STUCK);
    assert_int_equal(complete(&state, take(&state, 0, 1000), YOLK_OK, 30), BATCH_PROGRESS);
    assert_int_equal(state.tasks[2].failure, YOLK_OK);
    batch_state_free(&state);
}

/* Past the end of a file: who lies before it has its bytes. */
static void the_end_of_a_file_lies_in_one(void **unused)
{
    (void)unused;
    struct batch_state state = three();
    assert_int_equal(complete(&state, take(&state, 0, 1000), YOLK_OK, 17), BATCH_PROGRESS);
    for (uint32_t guard = 0; state.pending > 0; guard++) {
        assert_true(guard < 20);
        uint32_t slice = take(&state, 0, 1000);
        (void)complete(&state, slice, YOLK_ERR_EOF, 0);
    }
    assert_int_equal(state.tasks[0].failure, YOLK_OK);
    assert_int_equal(state.tasks[1].failure, YOLK_ERR_EOF);
    assert_int_equal(state.tasks[1].done, 7);
    assert_int_equal(state.tasks[2].failure, YOLK_ERR_EOF);
    assert_int_equal(state.tasks[2].done, 0);
    batch_state_free(&state);
}

/* One deadline for all of a group, one TIMEOUT for each. */
static void a_deadline_ends_each(void **unused)
{
    (void)unused;
    struct batch_state state = three();
    uint32_t slice = take(&state, 0, 15);
    bool stuck;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(batch_state_expire(&state, 500, &stuck), i);
    assert_int_equal(batch_state_expire(&state, 500, &stuck), BATCH_NONE);
    assert_int_equal(take(&state, 0, 1000), BATCH_NONE);
    assert_true(state.tasks[2].terminal);
    assert_false(state.tasks[0].terminal || state.tasks[1].terminal);
    assert_int_equal(complete(&state, slice, YOLK_OK, 15), BATCH_PROGRESS);
    assert_int_equal(state.tasks[0].failure, YOLK_OK); /* it was all there */
    assert_int_equal(state.tasks[1].failure, YOLK_ERR_TIMEOUT);
    assert_int_equal(state.tasks[1].done, 5);
    assert_int_equal(state.tasks[2].failure, YOLK_ERR_TIMEOUT);
    assert_int_equal(state.pending, 0);
    batch_state_free(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_equal_and_goes_on),
        cmocka_unit_test(each_of_a_group_ends_as_if_alone),
        cmocka_unit_test(failover_posts_once),
        cmocka_unit_test(dead_routes_fail_all_that_miss),
        cmocka_unit_test(stuck_is_told_of_all_it_may_touch),
        cmocka_unit_test(the_end_of_a_file_lies_in_one),
        cmocka_unit_test(a_deadline_ends_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
