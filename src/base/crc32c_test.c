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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),
        cmocka_unit_test(fast_and_portable_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
