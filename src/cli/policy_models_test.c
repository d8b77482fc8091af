/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/policy_driver.h"
#include "cli/policy_models.h"
#include "cli/replay_model.h"
#include "cli/synthetic.h"
#include "cli/trace_kit.h"

typedef int (*model)(const struct policy_trace *dense, size_t capacity, uint64_t *hits);

static uint64_t hits_of(model run, const struct trace *trace, size_t capacity)
{
    struct policy_trace dense;
    uint64_t hits = UINT64_MAX;
    assert_int_equal(policy_trace_make(&dense, trace), 0);
    assert_int_equal(run(&dense, capacity, &hits), 0);
    policy_trace_free(&dense);
    return hits;
}

static void test_models_by_hand(void **state)
{
    (void)state;
    struct trace trace = {0};
    const uint64_t sequence[] = {1, 1, 2, 3, 2, 1, 3};
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(trace_add(&trace, sequence + i, 1), 0);
    /* 3 drives out 1, then 1 drives out 2: hits are the second 1, the second 2, the second 3. */
    assert_int_equal(hits_of(policy_model_fifo, &trace, 2), 3);
    /* One place for the new. 3 moves 1, used since, to the main queue and drives out 2, which
     * drives out 3, which drives out 2: hits are the second and the third 1. */
    assert_int_equal(hits_of(policy_model_s3fifo, &trace, 2), 2);
    /* 3 comes back after 1 and 2 do, so it is not kept: all but the first ones and the last 3. */
    assert_int_equal(hits_of(policy_model_belady, &trace, 2), 3);
    assert_int_equal(hits_of(policy_model_belady, &trace, 1), 2);
    for (size_t capacity = 3; capacity < 9; capacity++) {
        assert_int_equal(hits_of(policy_model_fifo, &trace, capacity), 4);
        assert_int_equal(hits_of(policy_model_s3fifo, &trace, capacity), 4);
        assert_int_equal(hits_of(policy_model_belady, &trace, capacity), 4);
    }
    trace_free(&trace);
}

static void test_only_a_prefix_counts(void **state)
{
    (void)state;
    struct trace trace = {0};
    const uint64_t first[] = {1, 2, 3}, second[] = {9, 2, 3}, third[] = {1, 2, 8};
    assert_int_equal(trace_add(&trace, first, 3), 0);
    assert_int_equal(trace_add(&trace, second, 3), 0);
    assert_int_equal(trace_add(&trace, third, 3), 0);
    assert_int_equal(hits_of(policy_model_fifo, &trace, 8), 2);
    assert_int_equal(hits_of(policy_model_s3fifo, &trace, 8), 2);
    assert_int_equal(hits_of(policy_model_belady, &trace, 8), 2);
    trace_free(&trace);
}

/* A block that the small queue gave up goes to the main queue when it comes back in time, and stays
 * there while others pass. */
static void test_ghosts_are_remembered(void **state)
{
    (void)state;
    struct trace trace = {0};
    uint64_t block = 1;
    assert_int_equal(trace_add(&trace, &block, 1), 0);
    for (block = 2; block <= 21; block++)
        assert_int_equal(trace_add(&trace, &block, 1), 0);
    block = 1; /* out of the 20, but among the 18 ghosts */
    assert_int_equal(trace_add(&trace, &block, 1), 0);
    for (block = 22; block < 40; block++)
        assert_int_equal(trace_add(&trace, &block, 1), 0);
    block = 1;
    assert_int_equal(trace_add(&trace, &block, 1), 0);
    assert_int_equal(hits_of(policy_model_s3fifo, &trace, 20), 1);
    assert_int_equal(hits_of(policy_model_fifo, &trace, 20), 1);
    assert_int_equal(hits_of(policy_model_fifo, &trace, 18), 0);
    trace_free(&trace);
}

static const double PARTS[] = {0.02, 0.05, 0.10, 0.20};
enum { PART_COUNT = sizeof PARTS / sizeof PARTS[0] };

struct rates {
    double ours, lru, fifo, s3fifo, belady;
};

static struct rates rates_of(const struct policy_trace *dense, double part)
{
    size_t capacity = (size_t)((double)dense->unique * part + 0.5);
    double asked = (double)dense->trace->id_count;
    uint64_t ours, driven, lru, fifo, s3fifo, belady;
    assert_int_equal(policy_drive(&master_policy_prefix, dense, capacity, &ours), 0);
    assert_int_equal(policy_drive(&master_policy_lru, dense, capacity, &driven), 0);
    assert_int_equal(replay_model_lru(dense->trace, capacity, &lru), 0);
    assert_int_equal(policy_model_fifo(dense, capacity, &fifo), 0);
    assert_int_equal(policy_model_s3fifo(dense, capacity, &s3fifo), 0);
    assert_int_equal(policy_model_belady(dense, capacity, &belady), 0);
    /* The driver is true: with the other policy of the master it does what the model does. */
    assert_true(driven <= lru + lru / 500 && lru <= driven + driven / 500);
    assert_true(ours <= belady && lru <= belady && s3fifo <= belady);
    struct rates rates = {(double)ours / asked, (double)lru / asked, (double)fifo / asked,
                          (double)s3fifo / asked, (double)belady / asked};
    print_message("%2.0f%%: prefix %.4f, LRU %.4f, FIFO %.4f, S3-FIFO %.4f, Belady %.4f\n",
                  part * 100, rates.ours, rates.lru, rates.fifo, rates.s3fifo, rates.belady);
    return rates;
}

static void test_above_lru_on_made_up_chats(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct trace trace = {0};
        struct policy_trace dense;
        assert_int_equal(synthetic_generate(&trace, seed, 6000), 0);
        assert_int_equal(policy_trace_make(&dense, &trace), 0);
        for (size_t i = 0; i < PART_COUNT; i++) {
            struct rates rates = rates_of(&dense, PARTS[i]);
            assert_true(rates.ours > rates.lru);
        }
        policy_trace_free(&dense);
        trace_free(&trace);
    }
}

/* A few prompts that everybody shares, each followed by something new: most of the memory would be
 * filled by what never comes back. */
static void test_above_lru_on_shared_prompts(void **state)
{
    (void)state;
    enum { PROMPTS = 400, PROMPT_BLOCKS = 8, REQUESTS = 8000 };
    struct trace trace = {0};
    struct policy_trace dense;
    uint64_t next = PROMPTS * PROMPT_BLOCKS, random = 1;
    for (size_t i = 0; i < REQUESTS; i++) {
        uint64_t ids[PROMPT_BLOCKS * 2];
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t unit = random >> 40; /* 24 bits; squared: some prompts are far more usual */
        uint64_t prompt = (unit * unit >> 24) * PROMPTS >> 24;
        for (size_t k = 0; k < PROMPT_BLOCKS; k++) {
            ids[k] = prompt * PROMPT_BLOCKS + k;
            ids[PROMPT_BLOCKS + k] = next++;
        }
        assert_int_equal(trace_add(&trace, ids, PROMPT_BLOCKS * 2), 0);
    }
    assert_int_equal(policy_trace_make(&dense, &trace), 0);
    /* 67,200 blocks of which 3,200 come back: 2 % hold 42 % of those, 5 % hold all. */
    for (size_t i = 0; i < 2; i++) {
        struct rates rates = rates_of(&dense, PARTS[i]);
        assert_true(rates.ours > rates.lru + (rates.belady - rates.lru) * 0.4);
    }
    policy_trace_free(&dense);
    trace_free(&trace);
}

static void test_published_trace(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct policy_trace dense;
    trace_load_published(&trace);
    assert_int_equal(policy_trace_make(&dense, &trace), 0);
    assert_int_equal(dense.unique, 182790);
    static const struct {
        struct rates published;
        double ours_at_least;
    } expected[PART_COUNT] = {{{0, 0.079, 0.075, 0.114, 0.311}, 0.140},
                              {{0, 0.195, 0.175, 0.194, 0.366}, 0.225},
                              {{0, 0.278, 0.248, 0.244, 0.366}, 0.296},
                              {{0, 0.345, 0.313, 0.307, 0.366}, 0.3455}};
    for (size_t i = 0; i < PART_COUNT; i++) {
        struct rates rates = rates_of(&dense, PARTS[i]);
        const struct rates *published = &expected[i].published;
        assert_float_equal(rates.lru, published->lru, 0.001);
        assert_float_equal(rates.fifo, published->fifo, 0.001);
        assert_float_equal(rates.belady, published->belady, 0.001);
        /* There are several readings of S3-FIFO's paper: what of its queues counts as full. */
        assert_float_equal(rates.s3fifo, published->s3fifo, 0.007);
        assert_true(rates.ours > rates.lru);
        assert_true(rates.ours >= expected[i].ours_at_least);
    }
    policy_trace_free(&dense);
    trace_free(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_by_hand),
        cmocka_unit_test(test_only_a_prefix_counts),
        cmocka_unit_test(test_ghosts_are_remembered),
        cmocka_unit_test(test_above_lru_on_made_up_chats),
        cmocka_unit_test(test_above_lru_on_shared_prompts),
        cmocka_unit_test(test_published_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
