/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory segments on memfd, and the copy that does not pollute the cache. */
#ifndef PLATFORM_MEMORY_H
#define PLATFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

enum memory_access { MEMORY_READ_ONLY, MEMORY_READ_WRITE };

struct memory_segment_options {
    const char *name; /* shown in /proc/PID/maps; may be NULL */
    bool huge_pages;  /* try 2 MiB pages; falls back with a reason */
};

/* The owner's side. */
struct memory_segment {
    void *address;
    size_t size;             /* as asked for, rounded up to the page size in use */
    int fd;                  /* read-write, CLOEXEC, sealed SHRINK|GROW|SEAL */
    int fd_ro;               /* the same file opened read-only: what readers are given */
    bool huge;               /* 2 MiB pages are in use */
    const char *huge_reason; /* static text: why not, when asked for and refused; else NULL */
};

/* options may be NULL: ordinary pages. */
YOLK_MUST_USE int memory_segment_create(size_t size, const struct memory_segment_options *options,
                                        struct memory_segment *out);
/* Unmaps and closes; safe on a zeroed or failed segment. */
void memory_segment_destroy(struct memory_segment *segment);

/* The importer's side. Refuses a descriptor that lacks the seals (its owner could shrink it under
 * us), or whose size is not the one expected. Does not take the descriptor. */
struct memory_mapping {
    void *address;
    size_t size;
    enum memory_access access;
};
YOLK_MUST_USE int memory_map(int fd, size_t expected_size, enum memory_access access,
                             struct memory_mapping *out);
void memory_unmap(struct memory_mapping *mapping);

/* Makes every page of the range present and writable and keeps what is in it, in so many threads
 * (0: as many as there are processors, at most 16). *done: how many bytes, counted from the start,
 * are certainly present, also on failure. TIMEOUT: the deadline (clock_real) came first. NO_MEMORY.
 */
YOLK_MUST_USE int memory_prefault(void *address, size_t size, unsigned threads,
                                  uint64_t deadline_ns, size_t *done);
/* A wish, in this thread: maps what the range has, before it is copied from or to. */
void memory_map_ahead(void *address, size_t size, bool write);
/* Zeroed pages of this process's own. NO_MEMORY. */
YOLK_MUST_USE int memory_pages_create(size_t size, void **address);
void memory_pages_destroy(void *address, size_t size);
/* Pages of it that are not there yet are taken from this NUMA node while it has any. INVALID: there
 * is no such node; UNSUPPORTED: the system lets nobody say. address begins a page. */
YOLK_MUST_USE int memory_prefer_node(void *address, size_t size, unsigned node);
/* How much more memory this process may take before the machine, or the control group it is in,
 * has none left. UINT64_MAX: nothing here says. */
uint64_t memory_available(void);
size_t memory_page_size(void);

/* memcpy that bypasses the cache from COPY_STREAM_MIN on, where the processor can. */
#define COPY_STREAM_MIN ((size_t)256 * 1024)
void copy_stream(void *restrict to, const void *restrict from, size_t size);
bool copy_stream_accelerated(void);

#endif
