/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's copy of what the master placed in its segment, and of the sessions that may write
 * there. A restarted master is told both. Fed by FACTS in order of seq; repeats change nothing. */
#ifndef YOLK_STORE_MIRROR_H
#define YOLK_STORE_MIRROR_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

struct store_mirror;

struct store_mirror_entry {
    uint64_t offset;
    uint64_t size;
    const void *key; /* borrowed from the mirror until it changes */
    uint32_t key_size;
    int pinned; /* hard: told to the next master */
};

YOLK_MUST_USE enum yolk_status store_mirror_create(struct store_mirror **out);
void store_mirror_destroy(struct store_mirror *mirror);

/* A new mount: its facts begin again at seq 1. Entries and sessions stay. */
void store_mirror_mounted(struct store_mirror *mirror);
/* 1: a message with this seq is the next one; apply its facts, then store_mirror_applied. 0: seen
 * before (acknowledge it again) or one is missing (acknowledge store_mirror_seq). */
int store_mirror_accepts(const struct store_mirror *mirror, uint64_t seq);
void store_mirror_applied(struct store_mirror *mirror, uint64_t seq);
uint64_t store_mirror_seq(const struct store_mirror *mirror);

/* placed: replaces whatever lay at that offset. */
YOLK_MUST_USE enum yolk_status store_mirror_place(struct store_mirror *mirror, uint64_t offset,
                                                  uint64_t size, const void *key,
                                                  uint32_t key_size);
/* What was placed last at that offset. */
void store_mirror_pin(struct store_mirror *mirror, uint64_t offset);
void store_mirror_free(struct store_mirror *mirror, uint64_t offset);
YOLK_MUST_USE enum yolk_status store_mirror_session_open(struct store_mirror *mirror,
                                                         uint64_t session);
void store_mirror_session_gone(struct store_mirror *mirror, uint64_t session);

size_t store_mirror_count(const struct store_mirror *mirror);
size_t store_mirror_session_count(const struct store_mirror *mirror);
uint64_t store_mirror_session(const struct store_mirror *mirror, size_t index);
/* The entry with the lowest offset >= *cursor; moves the cursor past it. 0 when there is none. */
int store_mirror_next(const struct store_mirror *mirror, uint64_t *cursor,
                      struct store_mirror_entry *entry);
/* Forgets entries and sessions (a segment that was unmounted for good). */
void store_mirror_clear(struct store_mirror *mirror);
#endif
