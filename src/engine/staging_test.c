/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is for staging memory, against a queue of names. */
#include "engine/staging.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "platform/random.h"

static void how_it_is_cut(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, chunk_bytes;
        uint32_t count;
    } cases[] = {
        {64 << 20, 1 << 20, 64},
        {1 << 30, 1 << 20, 1024},
        {1 << 20, 16384, 64},
        {8192, 4096, 2},
        {12287, 4096, 2},
        {(1 << 20) + 5000, 16384, 64},
        {UINT64_C(64) * 8191, 4096, 127},
        {UINT64_C(128) << 20, 1 << 20, 128},
    };
    uint32_t count;
    uint64_t chunk_bytes;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(staging_cut(cases[i].bytes, &count, &chunk_bytes));
        assert_int_equal(count, cases[i].count);
        assert_int_equal(chunk_bytes, cases[i].chunk_bytes);
    }
    assert_false(staging_cut(0, &count, &chunk_bytes));
    assert_false(staging_cut(8191, &count, &chunk_bytes));
    assert_false(staging_cut(UINT64_MAX, &count, &chunk_bytes));
    struct staging staging;
    assert_int_equal(staging_init(&staging, 8191), YOLK_ERR_INVALID);
}

enum { USERS = 6, CHUNKS = 4 };

struct model {
    struct staging staging;
    struct staging_user users[USERS];
    struct staging_share share; /* few chunks: it limits nothing */
    uint32_t queue[USERS], queued;
    int owner[CHUNKS];             /* -1: free */
    uint32_t passed[USERS][USERS]; /* chunks that the second got while the first waited */
};

static uint32_t place_in_queue(const struct model *m, uint32_t user)
{
    uint32_t i = 0;
    while (i < m->queued && m->queue[i] != user)
        i++;
    return i;
}

static void drop_from_queue(struct model *m, uint32_t user)
{
    uint32_t place = place_in_queue(m, user);
    if (place == m->queued)
        return;
    memmove(&m->queue[place], &m->queue[place + 1], (m->queued - place - 1) * sizeof(uint32_t));
    m->queued--;
}

static uint32_t free_chunks(const struct model *m)
{
    uint32_t count = 0;
    for (int i = 0; i < CHUNKS; i++)
        count += m->owner[i] < 0;
    return count;
}

static void take(struct model *m, uint32_t user, uint64_t now_ns)
{
    bool may = free_chunks(m) > 0 && (m->queued == 0 || m->queue[0] == user);
    uint32_t chunk = staging_take(&m->staging, &m->users[user], &m->share, now_ns);
    assert_int_equal(chunk != STAGING_NONE, may);
    if (!may) {
        if (place_in_queue(m, user) == m->queued) {
            m->queue[m->queued++] = user;
            memset(m->passed[user], 0, sizeof(m->passed[user]));
        }
        return;
    }
    assert_true(chunk < CHUNKS);
    assert_int_equal(m->owner[chunk], -1);
    m->owner[chunk] = (int)user;
    drop_from_queue(m, user);
    for (uint32_t i = 0; i < m->queued; i++)
        assert_true(++m->passed[m->queue[i]][user] <= 1);
}

static void turns(void **state)
{
    (void)state;
    struct random_sim sim;
    struct model m = {0};
    random_sim_init(&sim, 7);
    struct random random = random_sim_random(&sim);
    assert_int_equal(staging_init(&m.staging, CHUNKS * STAGING_CHUNK_MIN), YOLK_OK);
    for (int i = 0; i < USERS; i++)
        staging_user_init(&m.users[i]);
    for (int i = 0; i < CHUNKS; i++)
        m.owner[i] = -1;
    for (uint64_t step = 1; step < 200000; step++) {
        uint32_t user = (uint32_t)random_below(&random, USERS);
        uint32_t what = (uint32_t)random_below(&random, 20);
        uint32_t chunk = (uint32_t)random_below(&random, CHUNKS);
        if (what < 11) {
            take(&m, user, step);
        } else if (what < 19 && m.owner[chunk] >= 0) {
            staging_give(&m.staging, &m.users[m.owner[chunk]], &m.share, chunk, step);
            m.owner[chunk] = -1;
        } else if (what == 19) {
            staging_leave(&m.users[user]);
            drop_from_queue(&m, user);
        }
        assert_int_equal(m.staging.free, free_chunks(&m));
        const struct base_list *first = base_list_first(&m.staging.queue);
        assert_ptr_equal(first, m.queued == 0 ? NULL : &m.users[m.queue[0]].waiting);
        for (uint32_t i = 0; i < USERS; i++) {
            uint32_t held = 0;
            for (int c = 0; c < CHUNKS; c++)
                held += m.owner[c] == (int)i;
            assert_int_equal(m.users[i].held, held);
            assert_int_equal(!base_list_empty(&m.users[i].holding), held > 0);
            assert_int_equal(staging_waits(&m.users[i]), place_in_queue(&m, i) < m.queued);
        }
    }
    staging_free(&m.staging);
}

static void starving(void **state)
{
    (void)state;
    struct staging staging;
    struct staging_user users[2];
    struct staging_share share = {0};
    assert_int_equal(staging_init(&staging, 2 * STAGING_CHUNK_MIN), YOLK_OK);
    staging_user_init(&users[0]);
    staging_user_init(&users[1]);
    uint32_t a = staging_take(&staging, &users[0], &share, 10);
    assert_int_not_equal(staging_take(&staging, &users[0], &share, 10), STAGING_NONE);
    assert_int_equal(staging_take(&staging, &users[1], &share, 100), STAGING_NONE);
    assert_false(staging_is_starved(&staging, &users[1], 150, 50));
    assert_true(staging_is_starved(&staging, &users[1], 151, 50));
    assert_false(staging_is_starved(&staging, &users[0], 1000, 50)); /* it does not wait */
    staging_give(&staging, &users[0], &share, a, 160); /* something moves: not starved */
    assert_false(staging_is_starved(&staging, &users[1], 210, 50));
    assert_true(staging_is_starved(&staging, &users[1], 211, 50));
    assert_int_equal(staging_take(&staging, &users[1], &share, 212), a);
    assert_false(staging_is_starved(&staging, &users[1], 1000, 50));
    staging_free(&staging);
}

/* However many do not answer, each leaves something to the next. */
static void each_peer_has_its_share(void **state)
{
    (void)state;
    enum { SILENT = 6 };
    struct staging staging;
    struct staging_user user;
    struct staging_share shares[SILENT + 1] = {{0}};
    assert_int_equal(staging_init(&staging, 64 * STAGING_CHUNK_MIN), YOLK_OK);
    assert_int_equal(staging.count, 64);
    staging_user_init(&user);
    for (uint32_t i = 0; i < SILENT; i++) {
        uint32_t before = staging.free;
        assert_false(staging_has_share(&staging, &shares[i]));
        while (!staging_has_share(&staging, &shares[i]))
            assert_int_not_equal(staging_take(&staging, &user, &shares[i], 1), STAGING_NONE);
        assert_true(staging.free > 0 && shares[i].held <= (before + 1) / 2);
    }
    assert_int_equal(shares[0].held, 32);
    assert_int_equal(staging.free, 1);
    assert_false(staging_has_share(&staging, &shares[SILENT]));
    uint32_t chunk = staging_take(&staging, &user, &shares[SILENT], 1);
    assert_int_not_equal(chunk, STAGING_NONE);
    /* Nothing is left: who has something waits outside of the queue, who has nothing stands in it.
     */
    assert_true(staging_has_share(&staging, &shares[0]));
    assert_int_equal(staging_take(&staging, &user, &(struct staging_share){0}, 1), STAGING_NONE);
    assert_true(staging_waits(&user));
    staging_give(&staging, &user, &shares[SILENT], chunk, 2);
    assert_false(staging_has_share(&staging, &shares[SILENT]));
    staging_free(&staging);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_peer_has_its_share),
        cmocka_unit_test(how_it_is_cut),
        cmocka_unit_test(turns),
        cmocka_unit_test(starving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
