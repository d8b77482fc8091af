/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the hooks themselves: what an engine would make good, or would not notice. */
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "cases.h"

enum { IOS = 240, IO_BYTES = 4096 };

/* Ios of one case by cookie; each has IO_BYTES at its own place. */
struct run {
    struct bare *bare;
    struct yolk_io ios[IOS];
    uint8_t ended[IOS]; /* how often */
    uint32_t queued;
    uint32_t reported;
    const uint8_t *there; /* writes: the segment's own memory, to be looked at; else NULL */
};

/* At the moment of the answer, not a moment later. */
static void assert_in_place(struct run *r, uint64_t cookie)
{
    const struct yolk_io *io = &r->ios[cookie];
    if (io->opcode == YOLK_READ)
        world_assert_filled(io->local, io->size, 1, io->offset);
    else if (r->there != NULL)
        world_assert_filled(r->there + io->offset, io->size, 9, io->offset);
}

static void take(struct run *r, uint32_t max)
{
    struct yolk_completion completions[16];
    uint32_t count = bare_poll(r->bare, completions, max);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t cookie = completions[i].cookie;
        assert_true(cookie < IOS);
        assert_int_equal(completions[i].status, YOLK_OK);
        assert_int_equal(completions[i].transferred, r->ios[cookie].size);
        assert_int_equal(++r->ended[cookie], 1);
        assert_in_place(r, cookie);
        r->reported++;
    }
    bare_check_time(r->bare);
}

static void run_ios(struct run *r)
{
    for (uint32_t i = 0; i < IOS; i++) {
        struct yolk_io *io = &r->ios[i];
        enum yolk_submit submit;
        while ((submit = r->bare->ops->submit(r->bare->channel, io)) == YOLK_SUBMIT_AGAIN)
            take(r, 1 + i % 16);
        assert_int_not_equal(submit, YOLK_SUBMIT_FAILED);
        if (submit == YOLK_SUBMIT_DONE) {
            assert_int_equal(io->transferred, io->size);
            assert_int_equal(++r->ended[i], 1);
            assert_in_place(r, i);
        } else {
            r->queued++;
        }
    }
    while (r->reported < r->queued)
        take(r, 1 + r->reported % 16);
    for (uint32_t i = 0; i < IOS; i++)
        assert_int_equal(r->ended[i], 1);
    for (uint32_t i = 0; i < 64; i++) /* and nothing after the last one */
        take(r, 16);
}

static void each_io(const struct conformance_fixture *fixture, enum yolk_opcode opcode)
{
    struct world w;
    struct bare b;
    struct run *r = calloc(1, sizeof(*r));
    world_init(&w, fixture);
    bare_open(&b, &w);
    r->bare = &b;
    r->there = w.memory.pointer;
    for (uint32_t i = 0; i < IOS; i++)
        r->ios[i] = bare_io(&b, opcode, (uint64_t)i * IO_BYTES, i * 37 % IO_BYTES, i);
    if (opcode == YOLK_WRITE)
        world_fill(b.local, w.size, 9);
    run_ios(r);
    for (uint32_t i = 0; i < IOS; i++) { /* nor is anything else touched */
        uint64_t rest = (uint64_t)i * IO_BYTES + r->ios[i].size;
        uint64_t size = IO_BYTES - r->ios[i].size;
        if (opcode == YOLK_WRITE)
            world_assert_filled(r->there + rest, size, 1, rest);
        for (uint64_t k = 0; opcode == YOLK_READ && k < size; k++)
            assert_int_equal(b.local[rest + k], 0xee);
    }
    bare_close(&b);
    world_close(&w);
    free(r);
}

void each_read_is_there_when_reported_once(void **state)
{
    each_io(*state, YOLK_READ);
}

void each_write_is_there_when_reported_once(void **state)
{
    each_io(*state, YOLK_WRITE);
}

/* Some of many are refused by the provider: they fail, under their own cookies, and touch nothing.
 */
static void ended(struct run *r, uint64_t cookie, enum yolk_status status, uint64_t transferred)
{
    assert_true(cookie < IOS);
    assert_int_equal(++r->ended[cookie], 1);
    if (cookie % 7 == 3) {
        assert_int_equal(status, YOLK_ERR_INVALID);
        assert_int_equal(transferred, 0);
        return;
    }
    assert_int_equal(status, YOLK_OK);
    assert_int_equal(transferred, r->ios[cookie].size);
    assert_in_place(r, cookie);
}

static void take_ended(struct run *r)
{
    struct yolk_completion completions[8];
    uint32_t count = bare_poll(r->bare, completions, 8);
    for (uint32_t i = 0; i < count; i++)
        ended(r, completions[i].cookie, completions[i].status, completions[i].transferred);
    r->reported += count;
    bare_check_time(r->bare);
}

void what_the_provider_refuses_harms_no_other(void **state)
{
    struct world w;
    struct bare b;
    struct run *r = calloc(1, sizeof(*r));
    world_init(&w, *state);
    bare_open(&b, &w);
    r->bare = &b;
    for (uint64_t i = 0; i < IOS; i++) {
        struct yolk_io *io = &r->ios[i];
        *io = bare_io(&b, YOLK_READ, i * IO_BYTES, 1 + i * 13 % IO_BYTES, i);
        if (i % 7 == 3) /* one byte too far, or all of it */
            io->offset = i % 2 == 0 ? w.size - io->size + 1 : UINT64_MAX - io->size / 2;
    }
    for (uint32_t i = 0; i < IOS; i++) {
        enum yolk_submit submit;
        while ((submit = b.ops->submit(b.channel, &r->ios[i])) == YOLK_SUBMIT_AGAIN)
            take_ended(r);
        if (submit == YOLK_SUBMIT_QUEUED)
            r->queued++;
        else
            ended(r, i, submit == YOLK_SUBMIT_DONE ? YOLK_OK : r->ios[i].status,
                  r->ios[i].transferred);
    }
    while (r->reported < r->queued)
        take_ended(r);
    for (uint64_t i = 0; i < IOS; i++) {
        assert_int_equal(r->ended[i], 1);
        for (uint64_t k = i % 7 == 3 ? 0 : r->ios[i].size; k < IO_BYTES; k++)
            assert_int_equal(b.local[i * IO_BYTES + k], 0xee);
    }
    bare_close(&b);
    world_close(&w);
    free(r);
}

/* -- a channel that is full -- */

enum { FULL_MAX = 8192, FULL_BYTES = 128 };

struct full {
    struct world w;
    struct bare b;
    struct yolk_io ios[FULL_MAX];
    uint8_t expected[FULL_MAX]; /* reports still to come */
    uint32_t submitted;         /* the next one was not taken, unless there are no more */
    uint32_t queued;            /* of those, the ones that poll has to report */
};

/* Submits without a look at completions, until one is not taken. */
static struct full *full_open(const struct conformance_fixture *fixture)
{
    struct full *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    world_init(&f->w, fixture);
    bare_open(&f->b, &f->w);
    for (; f->submitted < FULL_MAX; f->submitted++) {
        uint32_t i = f->submitted;
        f->ios[i] = bare_io(&f->b, YOLK_READ, (uint64_t)i * FULL_BYTES, FULL_BYTES, i);
        enum yolk_submit submit = f->b.ops->submit(f->b.channel, &f->ios[i]);
        assert_int_not_equal(submit, YOLK_SUBMIT_FAILED);
        if (submit == YOLK_SUBMIT_AGAIN)
            break;
        f->expected[i] = submit == YOLK_SUBMIT_QUEUED;
        f->queued += f->expected[i];
    }
    return f;
}

/* Until all are reported, and then some: statuses_ok where nothing was stopped. */
static void full_drain(struct full *f, bool statuses_ok)
{
    uint32_t left = f->queued;
    for (uint32_t idle = 0; left > 0 || idle < 64;) {
        struct yolk_completion completions[32];
        uint32_t count = bare_poll(&f->b, completions, 32);
        bare_check_time(&f->b);
        idle = left == 0 ? idle + 1 : 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t cookie = completions[i].cookie;
            assert_true(cookie < FULL_MAX);
            assert_int_equal(f->expected[cookie], 1);
            f->expected[cookie] = 0;
            left--;
            if (statuses_ok)
                assert_int_equal(completions[i].status, YOLK_OK);
            if (completions[i].status == YOLK_OK)
                world_assert_filled(f->ios[cookie].local, FULL_BYTES, 1, f->ios[cookie].offset);
        }
    }
}

static void full_close(struct full *f)
{
    bare_close(&f->b);
    world_close(&f->w);
    free(f);
}

static void skip_unless_queued(struct full *f, bool there_is)
{
    if (there_is)
        return;
    print_message("SKIP: %s ends each io in submit\n", f->b.ops->name);
    full_close(f);
    skip();
}

void again_takes_nothing(void **state)
{
    struct full *f = full_open(*state);
    if (f->queued > 0)
        assert_in_range(f->submitted, 1, FULL_MAX - 1); /* no channel takes all there is */
    uint32_t refused = f->submitted;
    bool was_refused = refused < FULL_MAX;
    full_drain(f, true);
    skip_unless_queued(f, was_refused);
    for (uint32_t k = 0; k < FULL_BYTES; k++)
        assert_int_equal(((uint8_t *)f->ios[refused].local)[k], 0xee);
    /* Now there is room for it. */
    enum yolk_submit submit = f->b.ops->submit(f->b.channel, &f->ios[refused]);
    assert_true(submit == YOLK_SUBMIT_QUEUED || submit == YOLK_SUBMIT_DONE);
    f->queued = f->expected[refused] = submit == YOLK_SUBMIT_QUEUED;
    full_drain(f, true);
    world_assert_filled(f->ios[refused].local, FULL_BYTES, 1, f->ios[refused].offset);
    full_close(f);
}

void a_busy_channel_does_not_close(void **state)
{
    struct full *f = full_open(*state);
    if (f->queued > 0)
        assert_int_equal(f->b.ops->channel_close(f->b.channel), YOLK_ERR_BUSY);
    full_drain(f, true);
    skip_unless_queued(f, f->queued > 0);
    full_close(f);
}

/* Stopped with work in flight: each io ends once, and nothing new begins. */
void stop_ends_each_io_once(void **state)
{
    uint64_t fds = 0;
    uint64_t threads = 0;
    for (int round = 0; round < 3; round++) {
        struct full *f = full_open(*state);
        assert_int_equal(f->b.ops->stop(f->b.endpoint), YOLK_OK);
        full_drain(f, false);
        struct yolk_io late = bare_io(&f->b, YOLK_READ, 0, 1, 5);
        late.local = f->b.local + f->w.size - 1;
        *(uint8_t *)late.local = 0xee;
        assert_int_equal(f->b.ops->submit(f->b.channel, &late), YOLK_SUBMIT_FAILED);
        assert_int_not_equal(late.status, YOLK_OK);
        assert_int_equal(*(uint8_t *)late.local, 0xee);
        void *channel = NULL;
        assert_int_not_equal(bare_channel_open(&f->b, &channel), YOLK_OK);
        full_close(f); /* which stops it once more */
        if (round > 0) {
            assert_int_equal(world_open_fds(), fds);
            assert_int_equal(world_threads(), threads);
        }
        fds = world_open_fds();
        threads = world_threads();
    }
}

/* What poll(2) waits for comes when there is something to report. */
void waiting_ends_when_there_is_something(void **state)
{
    struct full *f = full_open(*state);
    uint32_t left = f->queued;
    bool waits = f->b.ops->wait_fds != NULL && left > 0;
    while (left > 0) {
        struct yolk_completion completions[32];
        struct pollfd fds[8];
        uint32_t count = bare_poll(&f->b, completions, 32);
        left -= count;
        uint32_t wait = count == 0 && waits ? f->b.ops->wait_fds(f->b.channel, fds, 8) : 0;
        assert_true(wait <= 8);
        if (wait > 0)
            assert_true(poll(fds, wait, 20000) > 0);
        bare_check_time(&f->b);
    }
    f->queued = 0;
    memset(f->expected, 0, sizeof(f->expected));
    if (!waits) {
        print_message("SKIP: %s has nothing to wait for\n", f->b.ops->name);
        full_close(f);
        skip();
    }
    full_close(f);
}

/* -- reaching a target -- */

/* Nothing but the whole text reaches anything; no way to refuse it leaves something behind. */
void cut_texts_reach_nothing(void **state)
{
    struct world w;
    struct bare b;
    world_init(&w, *state);
    world_open_provider(&w);
    bare_endpoint_open(&b, &w);
    uint8_t byte = 0xee;
    char text[sizeof(b.text)];
    uint64_t fds = world_open_fds();
    for (size_t size = strlen(b.text); size-- > 0;) {
        memcpy(text, b.text, size);
        text[size] = '\0';
        if (b.ops->open_target(b.endpoint, text, WORLD_SEGMENT, w.size, WORLD_SESSION, &b.target) !=
            YOLK_OK) {
            assert_true(yolk_last_error()[0] != '\0');
            continue;
        }
        if (bare_channel_open(&b, &b.channel) == YOLK_OK) {
            struct yolk_io io = {.opcode = YOLK_READ, .local = &byte, .size = 1, .cookie = 3};
            struct yolk_completion completion = {.status = YOLK_OK};
            enum yolk_submit submit = b.ops->submit(b.channel, &io);
            assert_int_not_equal(submit, YOLK_SUBMIT_DONE);
            while (submit == YOLK_SUBMIT_QUEUED && bare_poll(&b, &completion, 1) == 0)
                bare_check_time(&b);
            if (submit == YOLK_SUBMIT_QUEUED)
                assert_int_not_equal(completion.status, YOLK_OK);
            assert_int_equal(b.ops->channel_close(b.channel), YOLK_OK);
        }
        b.ops->close_target(b.endpoint, b.target);
    }
    assert_int_equal(byte, 0xee);
    bare_endpoint_close(&b);
    assert_true(world_open_fds() <= fds);
    world_close(&w);
}

/* The provider's next life has the same address where the fixture sees to it; who asks for the
 * former one is told so, or that it is gone. */
void a_text_of_a_former_life_is_refused(void **state)
{
    struct world w;
    struct bare b;
    world_init(&w, *state);
    bare_open(&b, &w);
    assert_int_equal(b.ops->channel_close(b.channel), YOLK_OK);
    b.channel = NULL;
    b.ops->close_target(b.endpoint, b.target);
    world_close_provider(&w);
    world_open_provider(&w);
    enum yolk_status status =
        b.ops->open_target(b.endpoint, b.text, WORLD_SEGMENT, w.size, WORLD_SESSION, &b.target);
    if (status == YOLK_OK) {
        status = bare_channel_open(&b, &b.channel);
        if (status == YOLK_OK) {
            struct yolk_io io = bare_io(&b, YOLK_READ, 0, 64, 1);
            struct yolk_completion completion = {0};
            enum yolk_submit submit = b.ops->submit(b.channel, &io);
            while (submit == YOLK_SUBMIT_QUEUED && bare_poll(&b, &completion, 1) == 0)
                bare_check_time(&b);
            status = submit == YOLK_SUBMIT_QUEUED   ? completion.status
                     : submit == YOLK_SUBMIT_FAILED ? io.status
                                                    : YOLK_OK;
            assert_int_equal(b.ops->channel_close(b.channel), YOLK_OK);
        }
        b.ops->close_target(b.endpoint, b.target);
    }
    if (((const struct conformance_fixture *)*state)->same_address)
        assert_int_equal(status, YOLK_ERR_STALE);
    else
        assert_true(status == YOLK_ERR_STALE || status == YOLK_ERR_NO_ROUTE ||
                    status == YOLK_ERR_PEER_DEAD);
    for (int i = 0; i < 64; i++)
        assert_int_equal(b.local[i], 0xee);
    b.ops->remove_buffer(b.endpoint, b.key);
    bare_endpoint_close(&b);
    free(b.local);
    world_close(&w);
}
