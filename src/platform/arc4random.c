/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent's archive asks for arc4random and arc4random_buf, which glibc has only since 2.36. These
 * definitions come before libc in the link, so that the program runs with glibc 2.34.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <errno.h>
#include <sys/random.h>

/* glibc 2.34 declares neither. */
uint32_t arc4random(void);
void arc4random_buf(void *bytes, size_t size);

void arc4random_buf(void *bytes, size_t size)
{
    uint8_t *p = bytes;
    while (size != 0) {
        ssize_t got = getrandom(p, size, 0);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            /* There is no way to report it, and predictable bytes would be worse. */
            abort();
        }
        p += got;
        size -= (size_t)got;
    }
}

uint32_t arc4random(void)
{
    uint32_t value;
    arc4random_buf(&value, sizeof(value));
    return value;
}
