/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"

/* RFC 3720, appendix B.4, and the check value of the catalogue. */
static void known_vectors(void **state)
{
    (void)state;
    uint8_t bytes[48];
    memset(bytes, 0, 32);
    assert_true(base_crc32c(0, bytes, 32) == 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_true(base_crc32c(0, bytes, 32) == 0x62a8ab43u);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_true(base_crc32c(0, bytes, 32) == 0x46dd794eu);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_true(base_crc32c(0, bytes, 32) == 0x113fdb5cu);
    assert_true(base_crc32c(0, "123456789", 9) == 0xe3069283u);
    assert_true(base_crc32c_table(0, "123456789", 9) == 0xe3069283u);
    assert_true(base_crc32c(0, "", 0) == 0);
}

static void fast_and_portable_agree(void **state)
{
    (void)state;
    size_t size = 100000;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)base_mix64(i);
    /* Around the lengths where the lanes change, at every alignment of a word. */
    static const size_t LENGTHS[] = {0,   1,   7,     8,     9,     255,   767,
                                     768, 769, 24575, 24576, 24577, 25344, 90001};
    for (size_t k = 0; k < sizeof(LENGTHS) / sizeof(LENGTHS[0]); k++) {
        for (size_t offset = 0; offset < 8; offset++) {
            uint32_t expected = base_crc32c_table(7, bytes + offset, LENGTHS[k]);
            assert_true(base_crc32c(7, bytes + offset, LENGTHS[k]) == expected);
        }
    }
    for (size_t cut = 0; cut < size; cut += 9973) {
        uint32_t crc = base_crc32c(0, bytes, cut);
        assert_true(base_crc32c(crc, bytes + cut, size - cut) == base_crc32c_table(0, bytes, size));
    }
    free(bytes);
}

/* By the definition: a division by the polynomial, bit by bit, that begins with `crc`. */
static uint32_t divide(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size * 8; i++) {
        uint32_t out = (crc ^ (uint32_t)(bytes[i / 8] >> (i % 8))) & 1;
        crc = crc >> 1 ^ (out ? 0x82f63b78u : 0);
    }
    return crc;
}

static void parts_are_joined(void **state)
{
    (void)state;
    static const size_t LENGTHS[] = {0, 1, 2, 15, 16, 17, 512, 8192, 16384, 40000};
    size_t size = 50000;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)base_mix64(i + 77);
    for (size_t k = 0; k < sizeof(LENGTHS) / sizeof(LENGTHS[0]); k++) {
        uint32_t factor = base_crc32c_factor(LENGTHS[k]);
        for (size_t before = 0; before < 9000; before += 2999) {
            uint32_t plain = divide(0, bytes + before, LENGTHS[k]);
            uint32_t whole = ~divide(~0u, bytes, before + LENGTHS[k]);
            assert_true(base_crc32c_append(base_crc32c(0, bytes, before), plain, factor) == whole);
        }
    }
    free(bytes);
    /* The polynomial is x + 1 times a primitive one of degree 31: that is the order of x. */
    assert_true(base_crc32c_factor(UINT64_C(0x7fffffff)) == base_crc32c_factor(0));
    assert_true(base_crc32c_factor(UINT64_C(0x7ffffffe)) != base_crc32c_factor(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),
        cmocka_unit_test(fast_and_portable_agree),
        cmocka_unit_test(parts_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
