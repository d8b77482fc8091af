/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

#define HUGE_PAGE    ((size_t)2 << 20)
#define SEALS_WANTED (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

size_t memory_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static int system_status(int errnum)
{
    switch (errnum) {
    case ENOMEM:
    case ENOSPC:
        return YOLK_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return YOLK_ERR_LIMIT;
    case EACCES:
    case EPERM:
        return YOLK_ERR_ACCESS;
    case EBADF:
        return YOLK_ERR_INVALID;
    default:
        return YOLK_ERR_SYSTEM;
    }
}

static int make_file(const char *name, size_t size, unsigned flags, int *out)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    *out = -1;
    if (fd < 0)
        return errno;
    if (ftruncate(fd, (off_t)size) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    *out = fd;
    return 0;
}

static size_t round_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

static int map_file(int fd, size_t size, int protection, void **out)
{
    void *p = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    *out = p;
    return 0;
}

/* mmap is what reserves 2 MiB pages, so only after it do we know that there are enough. */
static bool try_huge(struct memory_segment *s, const char *name, size_t size)
{
    size_t rounded = round_up(size, HUGE_PAGE);
    int error = make_file(name, rounded, MFD_HUGETLB | MFD_HUGE_2MB, &s->fd);
    if (error == 0) {
        error = map_file(s->fd, rounded, PROT_READ | PROT_WRITE, &s->address);
        if (error == 0) {
            s->size = rounded;
            s->huge = true;
            return true;
        }
        close(s->fd);
        s->fd = -1;
    }
    if (error == ENOMEM)
        s->huge_reason = "not enough 2 MiB pages are reserved (sysctl vm.nr_hugepages); asked for "
                         "transparent huge pages instead";
    else if (error == EPERM || error == EACCES)
        s->huge_reason = "this user may not use 2 MiB pages; asked for transparent huge pages "
                         "instead";
    else
        s->huge_reason = "this kernel has no 2 MiB pages for shared memory; asked for transparent "
                         "huge pages instead";
    return false;
}

static int make_normal(struct memory_segment *s, const char *name, size_t size)
{
    s->size = round_up(size, memory_page_size());
    int error = make_file(name, s->size, 0, &s->fd);
    if (error == 0)
        error = map_file(s->fd, s->size, PROT_READ | PROT_WRITE, &s->address);
    if (error != 0)
        return base_fail(system_status(error), error, "cannot make %zu bytes of shared memory",
                         s->size);
    (void)madvise(s->address, s->size, MADV_HUGEPAGE); /* a wish */
    return YOLK_OK;
}

/* Mode 0400 keeps another process of this user from opening the file for writing by way of /proc.
 */
static int seal(struct memory_segment *s)
{
    char path[64];
    int n = snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    if (n < 0 || fchmod(s->fd, 0400) != 0 || fcntl(s->fd, F_ADD_SEALS, SEALS_WANTED) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "cannot seal shared memory");
    s->fd_ro = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd_ro < 0)
        return base_fail(system_status(errno), errno, "cannot open shared memory for readers");
    return YOLK_OK;
}

int memory_segment_create(size_t size, const struct memory_segment_options *options,
                          struct memory_segment *out)
{
    static const struct memory_segment_options defaults;
    *out = (struct memory_segment){.fd = -1, .fd_ro = -1};
    if (!options)
        options = &defaults;
    if (size == 0 || size > SIZE_MAX / 2)
        return base_fail(YOLK_ERR_INVALID, 0, "a segment of %zu bytes", size);
    const char *name = options->name ? options->name : "yolk";
    int status = YOLK_OK;
    if (!options->huge_pages || !try_huge(out, name, size))
        status = make_normal(out, name, size);
    if (status == YOLK_OK)
        status = seal(out);
    if (status == YOLK_OK) /* cached data is no use in a core */
        (void)madvise(out->address, out->size, MADV_DONTDUMP);
    if (status != YOLK_OK)
        memory_segment_destroy(out);
    return status;
}

void memory_segment_destroy(struct memory_segment *s)
{
    if (s->address) {
        munmap(s->address, s->size);
        if (s->fd >= 0)
            close(s->fd);
        if (s->fd_ro >= 0)
            close(s->fd_ro);
    } else if (s->size > 0) { /* the file was made, the mapping failed */
        if (s->fd >= 0)
            close(s->fd);
    }
    *s = (struct memory_segment){.fd = -1, .fd_ro = -1};
}

int memory_map(int fd, size_t expected_size, enum memory_access access, struct memory_mapping *out)
{
    struct stat st;
    *out = (struct memory_mapping){.access = access};
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS_WANTED) != SEALS_WANTED)
        return base_fail(YOLK_ERR_ACCESS, seals < 0 ? errno : 0,
                         "the peer's memory is not sealed against shrinking");
    if (fstat(fd, &st) != 0)
        return base_fail(system_status(errno), errno, "the peer's memory");
    if (st.st_size < 0 || (uint64_t)st.st_size != expected_size || expected_size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "the peer's memory has %lld bytes instead of %zu",
                         (long long)st.st_size, expected_size);
    int protection = access == MEMORY_READ_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    int error = map_file(fd, expected_size, protection, &out->address);
    if (error != 0)
        return base_fail(system_status(error), error, "cannot map the peer's memory");
    (void)madvise(out->address, expected_size, MADV_DONTDUMP);
    out->size = expected_size;
    return YOLK_OK;
}

void memory_unmap(struct memory_mapping *mapping)
{
    if (mapping->address)
        munmap(mapping->address, mapping->size);
    mapping->address = NULL;
    mapping->size = 0;
}

int memory_pages_create(size_t size, void **address)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return base_fail(YOLK_ERR_NO_MEMORY, errno, "no memory for %zu bytes", size);
    (void)madvise(pages, size, MADV_HUGEPAGE); /* a wish */
    *address = pages;
    return YOLK_OK;
}

void memory_pages_destroy(void *address, size_t size)
{
    (void)munmap(address, size);
}

int memory_prefer_node(void *address, size_t size, unsigned node)
{
    enum { NODES_MAX = 1024, BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / BITS] = {0};
    if (node >= NODES_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "NUMA node %u: there is none", node);
    mask[node / BITS] = 1ul << (node % BITS);
    /* One more bit than there are: the kernel takes the last one off. */
    if (syscall(SYS_mbind, address, size, MPOL_PREFERRED, mask, NODES_MAX + 1ul, 0ul) == 0)
        return YOLK_OK;
    if (errno == EINVAL)
        return base_fail(YOLK_ERR_INVALID, 0, "NUMA node %u: there is none", node);
    return base_fail(YOLK_ERR_UNSUPPORTED, errno, "memory cannot be placed on NUMA node %u", node);
}
