/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which replica goes when a segment needs space.
 *
 * A policy keeps an order over the replicas of each segment that may go, and names the next one.
 * It decides nothing else: how much is to go and when (evict.c), and what may not go at all. A
 * replica that somebody reads, that a probe has leased, or whose object was removed is withdrawn
 * from the order, so a policy meets only those that may go. Whatever it names is taken: each
 * segment is asked for its own, be it memory or a disk, and the other replicas of the object stay.
 *
 * A replica (struct master_extent) is
 *     inserted    once, when its object can be read from it,
 *     withdrawn   when it must not go for now, or is gone for good,
 *     touched     when a reader or a lease is done with it: it is back, and was used.
 *
 * What it may keep, all of it zeroed at first and none of it known to anybody else:
 *     extent->order    16 bytes in each replica, for its place in the order. Only between
 *                      inserted/touched and withdrawn; afterwards others use it.
 *     object->note     8 bytes in each object,  as long as the object is there. Points in them to
 *                      other objects have to be given up in `removed`.
 *     the order        `order_size` bytes a segment.
 *     the state        `state_size` bytes a master, by how many objects it may have, made ready by
 *                      `state_init`; outlives the orders, which are told of it.
 *
 * Requests come in batches that mean something: the keys of one EXIST, GET_START or PUT_START are
 * mostly the blocks of one prompt, from its beginning, so that each is of use only together with
 * those before it. A policy that cares has `looked_up`: the objects of each such batch, in the
 * order of the keys. It is called when the request has been performed, so the objects of a
 * PUT_START are there already. An object may be in the list twice.
 *
 * The calls come from the thread of the core and must not call back into it. They take no memory
 * and cannot fail. Each is made for each replica of each request: they should be O(1), and
 * `looked_up` O(count).
 */
#ifndef YOLK_MASTER_POLICY_H
#define YOLK_MASTER_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct master_extent;
struct master_object;

struct master_note {
    uint64_t word;
};

struct master_lookup {
    uint16_t kind; /* WIRE_EXIST, WIRE_GET_START or WIRE_PUT_START */
    uint64_t session;
    uint32_t count;
    /* By the request's keys. NULL: there is no such object (or no room for it). One with a put is
     * still being written; one may be remembered only, of a segment that is lost. */
    struct master_object *const *objects;
    const uint64_t *hashes; /* of the keys, as in the objects' entries */
};

struct master_policy {
    const char *name;
    size_t (*state_size)(uint64_t objects); /* NULL: none, and no state_init */
    void (*state_init)(void *state, uint64_t objects);
    size_t order_size;
    void (*order_init)(void *order, void *state);
    void (*inserted)(void *order, struct master_extent *extent);
    void (*touched)(void *order, struct master_extent *extent);
    void (*withdrawn)(void *order, struct master_extent *extent);
    /* The one to go next, NULL when the order is empty. It stays in the order until withdrawn. */
    struct master_extent *(*victim)(void *order);
    /* NULL when it does not care. */
    void (*looked_up)(void *state, const struct master_lookup *lookup);
    void (*removed)(void *state, struct master_object *object); /* after all its replicas */
    /* Whether an object that has to leave the memory is worth a place on a disk where another has
     * to go for it: `order` is the disk's. Not asked while the disk has room. NULL: all are. */
    bool (*admits)(void *order, const struct master_object *object);
};

/* Least recently used first. */
extern const struct master_policy master_policy_lru;
/* What is worth least first, by what requests show of their keys. */
extern const struct master_policy master_policy_prefix;

/* NULL: there is none of that name. */
const struct master_policy *master_policy_find(const char *name);

#endif
