/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers share: the input taken apart, and as a text or a file. */
#ifndef TEST_FUZZ_KIT_H
#define TEST_FUZZ_KIT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define UNUSED __attribute__((unused))

/* In place of assert, which a build may leave out. */
#define FUZZ_MUST(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))

UNUSED static void fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

struct fuzz_input {
    const uint8_t *at, *end;
};

/* 0 once the input is used up. */
UNUSED static uint8_t fuzz_u8(struct fuzz_input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

UNUSED static uint64_t fuzz_number(struct fuzz_input *in, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | fuzz_u8(in);
    return value;
}

/* Up to `size` bytes of the input; *got says how many there were. */
UNUSED static const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t size, size_t *got)
{
    const uint8_t *at = in->at;
    *got = size < (size_t)(in->end - at) ? size : (size_t)(in->end - at);
    in->at += *got;
    return at;
}

/* With a zero behind it, and no byte more, so that reading on is seen. To be freed. */
UNUSED static char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_MUST(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* A file that holds the input; its name ends with `suffix`. To be closed with fuzz_file_remove. */
struct fuzz_file {
    char path[64];
};

UNUSED static void fuzz_file_make(struct fuzz_file *file, const char *suffix, const uint8_t *data,
                                  size_t size)
{
    snprintf(file->path, sizeof(file->path), "/dev/shm/yolk-fuzz-XXXXXX%s", suffix);
    int fd = mkstemps(file->path, (int)strlen(suffix));
    FUZZ_MUST(fd >= 0);
    FUZZ_MUST(size == 0 || write(fd, data, size) == (ssize_t)size);
    close(fd);
}

UNUSED static void fuzz_file_remove(const struct fuzz_file *file)
{
    unlink(file->path);
}

#endif
