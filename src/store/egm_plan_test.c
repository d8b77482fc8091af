/* SPDX-License-Identifier: Apache-2.0 */
/* Where the capacity of an EGM pool lies: the sums, the alignment, the evenness, and what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <yolk/yolk.h>

#include "base/limits.h"
#include "store/egm_plan.h"

static struct egm_plan plan;

static void check_refused(const struct egm_node *nodes, uint32_t count, uint64_t capacity,
                          uint64_t chunk_max, const char *says)
{
    assert_int_equal(egm_plan_make(nodes, count, capacity, chunk_max, &plan), YOLK_ERR_CONFIG);
    if (strstr(yolk_last_error(), says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yolk_last_error(), says);
}

static void two_nodes_by_hand(void **state)
{
    (void)state;
    const struct egm_node nodes[] = {{1, 2 * MIB}, {0, 512 * MIB}};
    assert_int_equal(egm_plan_make(nodes, 2, 4 * GIB - 1, GIB + 1, &plan), YOLK_OK);
    assert_int_equal(plan.alignment, 512 * MIB);
    assert_int_equal(plan.capacity, 7 * 512 * MIB);
    /* 4 units on node 0, 3 on node 1, two to a chunk. */
    const struct egm_chunk wanted[] = {{0, GIB}, {0, GIB}, {1, GIB}, {1, 512 * MIB}};
    assert_int_equal(plan.chunk_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(plan.chunks[i].node, wanted[i].node);
        assert_int_equal(plan.chunks[i].size, wanted[i].size);
    }
}

static void the_slab_is_the_least_alignment(void **state)
{
    (void)state;
    const struct egm_node node = {3, 64 * KIB};
    assert_int_equal(egm_plan_make(&node, 1, 33 * MIB, TIB, &plan), YOLK_OK);
    assert_int_equal(plan.alignment, 16 * MIB);
    assert_int_equal(plan.chunk_count, 1);
    assert_int_equal(plan.chunks[0].size, 32 * MIB);
    assert_int_equal(plan.chunks[0].node, 3);
}

static void what_cannot_be_laid_out_is_refused(void **state)
{
    (void)state;
    struct egm_node nodes[EGM_NODES_MAX + 1] = {{0, 2 * MIB}, {1, 2 * MIB}, {2, 2 * MIB}};
    check_refused(nodes, 0, GIB, TIB, "1 to 64 NUMA nodes");
    check_refused(nodes, EGM_NODES_MAX + 1, GIB, TIB, "not on 65");
    check_refused(nodes, 3, 48 * MIB - 1, TIB, "50331647 bytes has no unit of 16777216 bytes");
    check_refused(nodes, 3, 0, TIB, "no unit");
    check_refused(nodes, 3, GIB, 16 * MIB - 1, "16777215 bytes (max_mr_size)");
    check_refused(nodes, 3, GIB, 0, "max_mr_size");
    check_refused(nodes, 3, (uint64_t)(EGM_CHUNKS_MAX + 1) * 16 * MIB, 16 * MIB, "1024 segments");
    check_refused(nodes, 3, UINT64_MAX, TIB, "segments");
    nodes[1].id = 2;
    check_refused(nodes, 3, GIB, TIB, "NUMA node 2 is named twice");
    nodes[1] = (struct egm_node){1, 3 * MIB};
    check_refused(nodes, 3, GIB, TIB, "NUMA node 1: a granularity of 3145728 bytes");
    nodes[1].granularity = 0;
    check_refused(nodes, 3, GIB, TIB, "NUMA node 1: a granularity of 0 bytes");
    nodes[1].granularity = UINT64_C(1) << 63;
    check_refused(nodes, 3, UINT64_MAX, UINT64_MAX, "no unit of 9223372036854775808 bytes");
    check_refused(&nodes[1], 1, UINT64_MAX, UINT64_MAX, "larger than a segment");
}

static uint64_t random_state = 7;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

/* What must hold of each plan, said without the steps that make it. */
static void check_plan(const struct egm_node *nodes, uint32_t count, uint64_t capacity,
                       uint64_t chunk_max)
{
    uint64_t of_node[16] = {0}, sum = 0, least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < plan.chunk_count; i++) {
        assert_true(plan.chunks[i].size > 0 && plan.chunks[i].size <= chunk_max);
        assert_int_equal(plan.chunks[i].size % plan.alignment, 0);
        assert_true(i == 0 || plan.chunks[i - 1].node <= plan.chunks[i].node);
        of_node[plan.chunks[i].node] += plan.chunks[i].size;
        sum += plan.chunks[i].size;
    }
    assert_int_equal(sum, plan.capacity);
    assert_true(sum <= capacity && capacity - sum < plan.alignment);
    assert_int_equal(plan.alignment % EGM_SLAB, 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(plan.alignment % nodes[i].granularity, 0);
        least = of_node[nodes[i].id] < least ? of_node[nodes[i].id] : least;
        most = of_node[nodes[i].id] > most ? of_node[nodes[i].id] : most;
        sum -= of_node[nodes[i].id];
    }
    assert_int_equal(sum, 0); /* none lies on another node */
    assert_true(least > 0 && most - least <= plan.alignment);
}

static void every_plan_is_whole_even_and_aligned(void **state)
{
    (void)state;
    static struct egm_plan again;
    uint32_t made = 0;
    for (int round = 0; round < 20000; round++) {
        struct egm_node nodes[16];
        uint32_t count = 1 + (uint32_t)draw(8), first = (uint32_t)draw(8);
        for (uint32_t i = 0; i < count; i++)
            nodes[i] = (struct egm_node){first + i, 64 * KIB << draw(14)};
        uint64_t capacity = draw(UINT64_C(1) << 20) * draw(MIB) + draw(2);
        uint64_t chunk_max = (16 * MIB << draw(12)) + draw(3) * draw(64 * MIB);
        if (egm_plan_make(nodes, count, capacity, chunk_max, &plan) != YOLK_OK)
            continue;
        made++;
        check_plan(nodes, count, capacity, chunk_max);
        for (uint32_t i = count - 1; i > 0; i--) { /* in another order */
            uint32_t j = (uint32_t)draw(i + 1);
            struct egm_node node = nodes[i];
            nodes[i] = nodes[j];
            nodes[j] = node;
        }
        assert_int_equal(egm_plan_make(nodes, count, capacity, chunk_max, &again), YOLK_OK);
        assert_memory_equal(&again, &plan, sizeof(plan));
    }
    assert_true(made > 5000);
}

static void lists_of_nodes(void **state)
{
    (void)state;
    uint32_t ids[EGM_NODES_MAX], count;
    bool automatic;
    assert_int_equal(egm_nodes_parse("auto", &automatic, ids, &count), YOLK_OK);
    assert_true(automatic);
    assert_int_equal(count, 0);
    assert_int_equal(egm_nodes_parse("2, 0,1 ,2,00", &automatic, ids, &count), YOLK_OK);
    assert_false(automatic);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(ids[i], i);
    const char *const wrong[] = {
        "",    " ",     "0,",     ",0",  "0,,1", "-1",   "+1",
        "1-2", "Auto",  "auto,1", "0 1", "0x1",  "1024", "99999999999999999999",
        "1.0", "node0", "0;1",    "0\n", "\t0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(egm_nodes_parse(wrong[i], &automatic, ids, &count), YOLK_ERR_CONFIG);
        assert_non_null(strstr(yolk_last_error(), "egm_numa_nodes: \""));
    }
    /* The same node as often as one likes, but not more nodes than there is room for. */
    char text[1024];
    memset(text, ',', sizeof(text));
    for (int i = 0; i < 200; i++)
        text[2 * i] = '5';
    text[399] = '\0';
    assert_int_equal(egm_nodes_parse(text, &automatic, ids, &count), YOLK_OK);
    assert_int_equal(count, 1);
    text[0] = '\0';
    for (unsigned i = 0; i <= EGM_NODES_MAX; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", i == 0 ? "" : ",", i);
    assert_int_equal(egm_nodes_parse(text, &automatic, ids, &count), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "more than 64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes_by_hand),
        cmocka_unit_test(the_slab_is_the_least_alignment),
        cmocka_unit_test(what_cannot_be_laid_out_is_refused),
        cmocka_unit_test(every_plan_is_whole_even_and_aligned),
        cmocka_unit_test(lists_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
