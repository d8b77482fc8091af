/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces against a plain list of what was written in them, and what the process has in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/slab.h"

static bool all_are(const uint8_t *bytes, size_t size, uint8_t value)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* Random takes and gives; each piece is full of its own byte as long as it is somebody's. */
static void pieces_are_zeroed_and_apart(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 8, 41, 88, 160, 1000, 4096};
    enum { PIECES = 3000, STEPS = 30000 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct base_slab slab;
        static uint8_t *pieces[PIECES];
        memset(pieces, 0, sizeof pieces);
        base_slab_init(&slab, sizes[s]);
        for (uint32_t n = 0; n < STEPS; n++) {
            uint64_t r = base_mix64(n + s * STEPS);
            uint32_t i = (uint32_t)(r % PIECES);
            uint8_t mark = (uint8_t)(i % 255 + 1);
            /* Runs of mostly takes, then of mostly gives: pages come and go. */
            bool take = (r >> 40) % 8 < (n / (STEPS / 4) % 2 == 0 ? 7u : 1u);
            if (take && pieces[i] == NULL) {
                pieces[i] = base_slab_take(&slab);
                assert_non_null(pieces[i]);
                assert_int_equal((uintptr_t)pieces[i] % 8, 0);
                assert_true(all_are(pieces[i], sizes[s], 0));
                memset(pieces[i], mark, sizes[s]);
            } else if (!take && pieces[i] != NULL) {
                assert_true(all_are(pieces[i], sizes[s], mark));
                base_slab_give(&slab, pieces[i]);
                pieces[i] = NULL;
            }
        }
        for (uint32_t i = 0; i < PIECES; i++)
            if (pieces[i] != NULL) {
                assert_true(all_are(pieces[i], sizes[s], (uint8_t)(i % 255 + 1)));
                base_slab_give(&slab, pieces[i]);
            }
        base_slab_destroy(&slab);
    }
}

static uint32_t asked, refused_from;

static bool refuse(void *self)
{
    (void)self;
    return ++asked > refused_from;
}

static void without_memory_nothing_is_lost(void **state)
{
    (void)state;
    struct base_slab slab;
    base_slab_init(&slab, 4096);
    base_alloc_set_hook(refuse, NULL);
    asked = 0;
    refused_from = 1;
    void *first = base_slab_take(&slab), *piece;
    assert_non_null(first);
    void *taken[64];
    uint32_t count = 0;
    while (count < 64 && (piece = base_slab_take(&slab)) != NULL)
        taken[count++] = piece;
    assert_true(count < 64); /* a page has room for fewer */
    assert_null(base_slab_take(&slab));
    base_slab_give(&slab, first);
    refused_from = UINT32_MAX;
    taken[count++] = base_slab_take(&slab);
    assert_non_null(taken[count - 1]);
    base_alloc_set_hook(NULL, NULL);
    while (count > 0)
        base_slab_give(&slab, taken[--count]);
    base_slab_destroy(&slab);
}

/* Sanitizers have memory of their own beside each piece. */
#if defined(BASE_SLAB_ON_HEAP) || defined(__SANITIZE_THREAD__)
enum { MAPPED_TELLS = 0 };
#else
enum { MAPPED_TELLS = 1 };
#endif

/* What is mapped: the resident part is counted by the kernel in lots. All of it is touched. */
static uint64_t mapped(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Also when what is given back lies between what stays. */
static void memory_comes_back(void **state)
{
    (void)state;
    enum { PIECES = 200000, SIZE = 160, KEPT_EACH = 20000 };
    struct base_slab slab;
    void **pieces = calloc(PIECES, sizeof *pieces);
    assert_non_null(pieces);
    base_slab_init(&slab, SIZE);
    memset(pieces, 1, PIECES * sizeof *pieces); /* its memory is there before the first look */
    uint64_t before = mapped();
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i] = base_slab_take(&slab);
        assert_non_null(pieces[i]);
        memset(pieces[i], 1, SIZE);
    }
    uint64_t full = mapped();
    if (MAPPED_TELLS) {
        assert_true(full - before >= (uint64_t)PIECES * SIZE / 10 * 9);
        assert_true(full - before <= (uint64_t)PIECES * SIZE / 10 * 11);
    }
    for (uint32_t i = 0; i < PIECES; i++)
        if (i % KEPT_EACH != 0)
            base_slab_give(&slab, pieces[i]);
    if (MAPPED_TELLS)
        assert_true(full - mapped() >= (uint64_t)PIECES * SIZE / 10 * 9);
    for (uint32_t i = 0; i < PIECES; i += KEPT_EACH)
        base_slab_give(&slab, pieces[i]);
    base_slab_destroy(&slab);
    free(pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_and_apart),
        cmocka_unit_test(without_memory_nothing_is_lost),
        cmocka_unit_test(memory_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
