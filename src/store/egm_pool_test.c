/* SPDX-License-Identifier: Apache-2.0 */
/* The pool with a driver that fails in each place, one at a time and for ever after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "store/egm_pool.h"

#define MIB ((uint64_t)1 << 20)

enum { CHUNKS_MAX = 16, CALLS_MAX = 400 };

/* What a chunk has, by the driver's own books. */
struct world {
    uint32_t gpus[8], gpu_count;
    uint64_t granularity[8];
    bool allocated[CHUNKS_MAX], registered[CHUNKS_MAX], mounted[CHUNKS_MAX];
    uint32_t nodes[CHUNKS_MAX], count;
    struct {
        enum egm_step step;
        uint32_t chunk;
        bool good;
    } calls[CALLS_MAX];
    unsigned call_count;
    unsigned fail_at, fail_to; /* of the calls of steps, from 1 on */
    unsigned fail_tear_down;   /* the first so many reverse steps */
    bool leave;                /* what fails in set-up has begun all the same */
};

static int discover(void *self, uint32_t ids[EGM_NODES_MAX], uint32_t *count)
{
    struct world *w = self;
    *count = w->gpu_count;
    memcpy(ids, w->gpus, w->gpu_count * sizeof(ids[0]));
    return YOLK_OK;
}

static int granularity(void *self, uint32_t node, uint64_t *out)
{
    struct world *w = self;
    if (node >= 8 || w->granularity[node] == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "NUMA node %u: no memory of it can be made",
                         node);
    *out = w->granularity[node];
    return YOLK_OK;
}

static int prepare(void *self, const struct egm_plan *plan)
{
    struct world *w = self;
    assert_true(plan->chunk_count <= CHUNKS_MAX);
    w->count = plan->chunk_count;
    for (uint32_t i = 0; i < plan->chunk_count; i++)
        w->nodes[i] = plan->chunks[i].node;
    return YOLK_OK;
}

static bool is_reverse(enum egm_step step)
{
    return step >= EGM_STEP_UNMOUNT;
}

/* Each step only where it may be: nothing twice, nothing out of order. */
static void apply(struct world *w, enum egm_step step, uint32_t i)
{
    bool *const flags[] = {NULL,           &w->allocated[i],  &w->registered[i], &w->mounted[i],
                           &w->mounted[i], &w->registered[i], &w->allocated[i]};
    assert_int_equal(*flags[step], is_reverse(step));
    *flags[step] = !is_reverse(step);
    assert_true(w->allocated[i] || !w->registered[i]);
    assert_true(w->registered[i] || !w->mounted[i]);
    if (step == EGM_STEP_REGISTER) /* all are made before the first is published */
        for (uint32_t other = 0; other < w->count; other++)
            assert_true(w->allocated[other]);
}

static int step(void *self, enum egm_step which, uint32_t chunk, bool *left)
{
    struct world *w = self;
    assert_true(w->call_count < CALLS_MAX);
    unsigned call = ++w->call_count;
    bool bad = call >= w->fail_at && call <= w->fail_to;
    if (is_reverse(which) && w->fail_tear_down > 0) {
        w->fail_tear_down--;
        bad = true;
    }
    w->calls[call - 1].step = which;
    w->calls[call - 1].chunk = chunk;
    w->calls[call - 1].good = !bad;
    if (!bad || (w->leave && !is_reverse(which)))
        apply(w, which, chunk);
    *left = bad && w->leave && !is_reverse(which);
    return bad ? base_fail(YOLK_ERR_SYSTEM, 0, "CUDA_ERROR_UNKNOWN (999) in step %d", (int)which)
               : YOLK_OK;
}

static struct world new_world(void)
{
    return (struct world){.gpus = {1, 0, 1, 0},
                          .gpu_count = 4,
                          .granularity = {2 * MIB, 32 * MIB, 2 * MIB},
                          .fail_at = UINT32_MAX};
}

static struct egm_driver driver_of(struct world *w)
{
    return (struct egm_driver){w, discover, granularity, prepare, step};
}

static bool is_empty(const struct world *w)
{
    for (int i = 0; i < CHUNKS_MAX; i++)
        if (w->allocated[i] || w->registered[i] || w->mounted[i])
            return false;
    return true;
}

static const struct egm_settings settings = {"auto", 320 * MIB, 96 * MIB};

static void the_way_through(void **state)
{
    struct world w = new_world();
    struct egm_driver driver = driver_of(&w);
    struct egm_pool *pool;
    struct base_buf lines;
    (void)state;
    assert_int_equal(egm_pool_open(&settings, &driver, &pool), YOLK_OK);
    assert_int_equal(w.count, 4); /* 160 MiB a node in chunks of 96 */
    assert_int_equal(w.nodes[0] + w.nodes[1] * 2u + w.nodes[2] * 4u + w.nodes[3] * 8u, 12);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(w.mounted[i]);
    assert_int_equal(egm_pool_health(pool), 0);
    base_buf_init(&lines, 4096);
    assert_int_equal(egm_pool_stat(pool, &lines), YOLK_OK);
    assert_int_equal(base_buf_append(&lines, "", 1), YOLK_OK);
    assert_non_null(
        strstr((char *)lines.data, "mooncake_egm_store_pool_capacity_bytes 335544320\n"));
    assert_non_null(
        strstr((char *)lines.data, "mooncake_egm_store_pool_node_bytes{node=\"1\"} 167772160\n"));
    base_buf_free(&lines);
    assert_int_equal(egm_pool_close(pool), YOLK_OK);
    assert_true(is_empty(&w));
    /* In reverse: each unmount before the first unregistration, and that before the first release;
     * the last chunk first. */
    static const enum egm_step rounds[] = {EGM_STEP_UNMOUNT, EGM_STEP_UNREGISTER, EGM_STEP_RELEASE};
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(w.calls[12 + i].step, rounds[i / 4]);
        assert_int_equal(w.calls[12 + i].chunk, 3 - i % 4);
    }
}

static void each_failure_is_unwound(void **state)
{
    (void)state;
    for (int leave = 0; leave < 2; leave++) {
        for (unsigned at = 1; at <= 12; at++) {
            struct world w = new_world();
            struct egm_driver driver = driver_of(&w);
            struct egm_pool *pool;
            w.fail_at = w.fail_to = at;
            w.leave = leave;
            assert_int_equal(egm_pool_open(&settings, &driver, &pool), YOLK_ERR_SYSTEM);
            assert_non_null(strstr(yolk_last_error(), "CUDA_ERROR_UNKNOWN (999)"));
            assert_null(pool);
            assert_true(is_empty(&w));
        }
    }
}

/* From one call on all fail, for so many passes; then a close finishes, and repeats nothing. */
static void c143_what_is_left_is_taken_up_by_the_next_close(void **state)
{
    (void)state;
    for (int leave = 0; leave < 2; leave++) {
        for (unsigned at = 1; at <= 24; at++) {
            struct world w = new_world();
            struct egm_driver driver = driver_of(&w);
            struct egm_pool *pool;
            w.fail_at = at;
            w.fail_to = UINT32_MAX;
            w.leave = leave;
            int status = egm_pool_open(&settings, &driver, &pool);
            assert_int_equal(status, at <= 12 ? YOLK_ERR_SYSTEM : YOLK_OK);
            if (pool == NULL) { /* the very first failed, and nothing was owned */
                assert_true(is_empty(&w));
                continue;
            }
            assert_int_equal(egm_pool_close(pool), YOLK_ERR_SYSTEM);
            assert_non_null(strstr(yolk_last_error(), "close again"));
            bool memory_kept = false; /* that nothing else needed any more */
            for (uint32_t i = 0; i < w.count; i++)
                memory_kept = memory_kept || (w.allocated[i] && !w.registered[i]);
            assert_int_equal(egm_pool_health(pool),
                             memory_kept ? EGM_QUARANTINED : EGM_CLEANUP_PENDING);
            w.fail_to = 0;
            assert_int_equal(egm_pool_close(pool), YOLK_OK);
            assert_true(is_empty(&w));
        }
    }
}

static void each_reverse_step_may_fail_often(void **state)
{
    (void)state;
    for (unsigned fails = 1; fails <= 30; fails++) {
        struct world w = new_world();
        struct egm_driver driver = driver_of(&w);
        struct egm_pool *pool;
        assert_int_equal(egm_pool_open(&settings, &driver, &pool), YOLK_OK);
        w.fail_tear_down = fails;
        unsigned passes = 1;
        while (egm_pool_close(pool) != YOLK_OK) {
            assert_true(egm_pool_health(pool) != EGM_HEALTHY);
            assert_true(passes++ <= fails);
        }
        assert_true(is_empty(&w));
    }
}

static void refusals(void **state)
{
    static const struct {
        struct egm_settings settings;
        const char *text;
        int status;
    } rows[] = {
        {{"", 320 * MIB, 0}, "egm_numa_nodes", YOLK_ERR_CONFIG},
        {{"0,-1", 320 * MIB, 0}, "\"-1\" is no NUMA node", YOLK_ERR_CONFIG},
        {{"0,x", 320 * MIB, 0}, "\"x\" is no NUMA node", YOLK_ERR_CONFIG},
        {{"0,,1", 320 * MIB, 0}, "is no NUMA node", YOLK_ERR_CONFIG},
        {{"0,5", 320 * MIB, 0}, "NUMA node 5", YOLK_ERR_UNSUPPORTED},
        {{"auto", 32 * MIB, 0}, "no unit", YOLK_ERR_CONFIG},
        {{"auto", 320 * MIB, 16 * MIB}, "max_mr_size", YOLK_ERR_CONFIG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world w = new_world();
        struct egm_driver driver = driver_of(&w);
        struct egm_pool *pool;
        assert_int_equal(egm_pool_open(&rows[i].settings, &driver, &pool), rows[i].status);
        if (strstr(yolk_last_error(), rows[i].text) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", rows[i].text, yolk_last_error());
        assert_null(pool);
        assert_int_equal(w.call_count, 0);
    }
}

/* A list replaces what would be found: node 2 is near no GPU. */
static void a_list_replaces_discovery(void **state)
{
    struct world w = new_world();
    struct egm_driver driver = driver_of(&w);
    struct egm_pool *pool;
    (void)state;
    const struct egm_settings given = {"2, 2 ,0", 64 * MIB, 0};
    assert_int_equal(egm_pool_open(&given, &driver, &pool), YOLK_OK);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.nodes[0], 0);
    assert_int_equal(w.nodes[1], 2);
    assert_int_equal(egm_pool_close(pool), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_through),
        cmocka_unit_test(each_failure_is_unwound),
        cmocka_unit_test(c143_what_is_left_is_taken_up_by_the_next_close),
        cmocka_unit_test(each_reverse_step_may_fail_often),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_list_replaces_discovery),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
