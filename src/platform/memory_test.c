/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/memory.h"

static void segment(void **state)
{
    (void)state;
    struct memory_segment s;
    struct memory_segment_options o = {.name = "test"};
    assert_int_equal(memory_segment_create(100u << 20, &o, &s), YOLK_OK);
    assert_int_equal(s.size, 100u << 20);
    assert_false(s.huge);
    assert_null(s.huge_reason);
    assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(s.fd_ro, F_GETFD) & FD_CLOEXEC);
    struct stat st;
    size_t done;
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0400);
    assert_int_equal(st.st_blocks, 0);
    assert_int_equal(memory_prefault(s.address, s.size, 2, CLOCK_NEVER, &done), YOLK_OK);
    assert_int_equal(done, s.size);
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_blocks, (100u << 20) / 512); /* every page is there */
    assert_int_not_equal(ftruncate(s.fd, 4096), 0);
    assert_int_not_equal(ftruncate(s.fd, 200 << 20), 0);
    /* a reader sees what the owner writes, and cannot write */
    struct memory_mapping reader, writer;
    assert_int_equal(memory_map(s.fd_ro, s.size, MEMORY_READ_ONLY, &reader), YOLK_OK);
    assert_int_equal(memory_map(s.fd_ro, s.size, MEMORY_READ_WRITE, &writer), YOLK_ERR_ACCESS);
    assert_int_equal(memory_map(s.fd, s.size, MEMORY_READ_WRITE, &writer), YOLK_OK);
    ((char *)writer.address)[12345] = 'w';
    assert_int_equal(((char *)s.address)[12345], 'w');
    assert_int_equal(((char *)reader.address)[12345], 'w');
    assert_int_not_equal(mprotect(reader.address, reader.size, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(memory_map(s.fd, s.size - 4096, MEMORY_READ_ONLY, &(struct memory_mapping){0}),
                     YOLK_ERR_INVALID);
    memory_unmap(&reader);
    memory_unmap(&reader);
    /* the owner may go: the mapping stays */
    memory_segment_destroy(&s);
    assert_int_equal(((char *)writer.address)[12345], 'w');
    memory_unmap(&writer);
    memory_segment_destroy(&s);
    struct memory_segment zeroed = {0};
    memory_segment_destroy(&zeroed);
}

static void unsealed_memory_is_refused(void **state)
{
    (void)state;
    struct memory_mapping m;
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(memory_map(fd, 4096, MEMORY_READ_ONLY, &m), YOLK_ERR_ACCESS);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(memory_map(fd, 4096, MEMORY_READ_ONLY, &m), YOLK_ERR_ACCESS);
    close(fd);
    FILE *plain = tmpfile();
    assert_int_equal(ftruncate(fileno(plain), 4096), 0);
    assert_int_equal(memory_map(fileno(plain), 4096, MEMORY_READ_ONLY, &m), YOLK_ERR_ACCESS);
    fclose(plain);
    assert_int_equal(memory_map(-1, 4096, MEMORY_READ_ONLY, &m), YOLK_ERR_ACCESS);
}

static void sizes(void **state)
{
    (void)state;
    struct memory_segment s;
    struct memory_segment_options o = {0};
    assert_int_equal(memory_segment_create(1, NULL, &s), YOLK_OK);
    assert_int_equal(s.size, memory_page_size());
    memory_segment_destroy(&s);
    assert_int_equal(memory_segment_create(0, &o, &s), YOLK_ERR_INVALID);
    assert_int_equal(s.fd, -1);
    int before = dup(0);
    close(before);
    assert_int_not_equal(memory_segment_create(SIZE_MAX / 4, &o, &s), YOLK_OK);
    int after = dup(0);
    assert_int_equal(before, after); /* nothing stays open after a failure */
    close(after);
}

static void huge_pages_or_a_reason(void **state)
{
    (void)state;
    struct memory_segment s;
    struct memory_segment_options o = {.huge_pages = true};
    assert_int_equal(memory_segment_create(3u << 20, &o, &s), YOLK_OK);
    if (s.huge)
        assert_int_equal(s.size, 4u << 20);
    else
        assert_non_null(s.huge_reason);
    if (s.huge_reason)
        print_message("fallback: %s\n", s.huge_reason);
    memset(s.address, 1, s.size);
    memory_segment_destroy(&s);
}

static void prefault_keeps_content(void **state)
{
    (void)state;
    size_t size = (40u << 20) + 123;
    char *p = malloc(size);
    memset(p, 7, size);
    size_t done;
    assert_int_equal(memory_prefault(p + 5, size - 5, 3, CLOCK_NEVER, &done), YOLK_OK);
    assert_int_equal(done, size - 5);
    for (size_t i = 0; i < size; i += 1021)
        assert_int_equal(p[i], 7);
    free(p);
    assert_int_equal(memory_prefault(NULL, 0, 0, CLOCK_NEVER, &done), YOLK_OK);
    assert_int_equal(memory_prefault((void *)4096, 4096, 1, CLOCK_NEVER, &done),
                     YOLK_ERR_NO_MEMORY);
    assert_int_equal(done, 0);
}

/* What is counted as present is, and no more than that. */
static void prefault_stops(void **state)
{
    (void)state;
    struct memory_segment s;
    struct stat st;
    size_t done;
    assert_int_equal(memory_segment_create(100u << 20, NULL, &s), YOLK_OK);
    assert_int_equal(memory_prefault(s.address, s.size, 2, 0, &done), YOLK_ERR_TIMEOUT);
    assert_int_equal(done, 0);
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    /* The second chunk of 32 MiB is not there to be touched. */
    assert_int_equal(munmap((char *)s.address + (33u << 20), 4096), 0);
    assert_int_equal(memory_prefault(s.address, s.size, 2, CLOCK_NEVER, &done), YOLK_ERR_NO_MEMORY);
    assert_int_equal(done, 32u << 20);
    memory_segment_destroy(&s);
}

static void maps_ahead(void **state)
{
    (void)state;
    struct memory_segment s;
    struct memory_mapping reader;
    unsigned char present[4];
    size_t page = memory_page_size();
    assert_int_equal(memory_segment_create(4 * page, NULL, &s), YOLK_OK);
    memory_map_ahead((char *)s.address + page + 1, page, true);
    assert_int_equal(mincore(s.address, s.size, present), 0);
    assert_int_equal(present[0] & 1, 0);
    assert_int_equal(present[1] & 1, 1);
    assert_int_equal(present[2] & 1, 1);
    assert_int_equal(present[3] & 1, 0);
    assert_int_equal(memory_map(s.fd_ro, s.size, MEMORY_READ_ONLY, &reader), YOLK_OK);
    memory_map_ahead(reader.address, reader.size, false);
    assert_int_equal(((volatile char *)reader.address)[3 * page], 0);
    memory_unmap(&reader);
    memory_segment_destroy(&s);
}

static void says_what_is_available(void **state)
{
    (void)state;
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * memory_page_size();
    uint64_t available = memory_available();
    assert_true(available > 0);
    assert_true(available <= all);
}

static void pages(void **state)
{
    (void)state;
    void *memory;
    assert_int_equal(memory_pages_create(100000, &memory), YOLK_OK);
    assert_int_equal((uintptr_t)memory % memory_page_size(), 0);
    for (size_t i = 0; i < 100000; i += 4096)
        assert_int_equal(((uint8_t *)memory)[i], 0);
    /* Node 0 is there always; who may not say so hears it. */
    int status = memory_prefer_node(memory, 100000, 0);
    assert_true(status == YOLK_OK || status == YOLK_ERR_UNSUPPORTED);
    if (status == YOLK_OK) {
        assert_int_equal(memory_prefer_node(memory, 100000, 1000), YOLK_ERR_INVALID);
        assert_non_null(strstr(yolk_last_error(), "NUMA node 1000"));
    }
    assert_int_equal(memory_prefer_node(memory, 100000, 5000), YOLK_ERR_INVALID);
    memory_pages_destroy(memory, 100000);
    assert_int_equal(memory_pages_create(SIZE_MAX / 2, &memory), YOLK_ERR_NO_MEMORY);
}

static void copies(void **state)
{
    (void)state;
    size_t room = (2u << 20) + 4096;
    unsigned char *from = malloc(room), *to = malloc(room);
    for (size_t i = 0; i < room; i++)
        from[i] = (unsigned char)(i * 31 + i / 251);
    static const size_t amounts[] = {0,       1,        COPY_STREAM_MIN - 1, COPY_STREAM_MIN,
                                     1000003, 1u << 20, (1u << 20) + 127,    2u << 20};
    for (size_t a = 0; a < sizeof(amounts) / sizeof(amounts[0]); a++) {
        for (size_t shift = 0; shift < 70; shift += 23) {
            size_t n = amounts[a], at = 64 + shift;
            memset(to, 0xEE, room);
            copy_stream(to + at, from + shift * 2, n);
            assert_memory_equal(to + at, from + shift * 2, n);
            assert_int_equal(to[at - 1], 0xEE);
            assert_int_equal(to[at + n], 0xEE);
        }
    }
    free(from);
    free(to);
    (void)copy_stream_accelerated();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segment),
        cmocka_unit_test(unsealed_memory_is_refused),
        cmocka_unit_test(sizes),
        cmocka_unit_test(huge_pages_or_a_reason),
        cmocka_unit_test(prefault_keeps_content),
        cmocka_unit_test(prefault_stops),
        cmocka_unit_test(maps_ahead),
        cmocka_unit_test(says_what_is_available),
        cmocka_unit_test(pages),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
