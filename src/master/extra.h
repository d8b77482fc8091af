/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What few objects have beside their record: a pin, a group, a tenant whose bytes are counted.
 *
 * Pins. A soft-pinned object's replicas stand in a list of their own, which eviction comes to when
 * there is nothing else; a hard-pinned one's in a list it never comes to. A hard pin is for the
 * life of the key: upsert keeps it, the owner of the memory is told of it, so that a later master
 * hears it again. Soft pins and groups end with the master.
 *
 * Groups. Evicting the last replica of one member evicts the others, but for those with a hard pin.
 * A member that somebody reads, or whose nominal lease goes on, keeps all of them, the lease only
 * as long as something else can go: a lease alone must not fill a pool for ever.
 *
 * Tenants. The key says whose it is (tenant.c). Counted are the bytes that its values take in
 * memory, those being written too. A put that would go over the quota evicts from the same tenant,
 * oldest first, and is refused when that does not help at once.
 */
#ifndef YOLK_MASTER_EXTRA_H
#define YOLK_MASTER_EXTRA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/limits.h"
#include "wire/msg.h"

struct master_core;
struct master_extent;
struct master_object;
struct master_segment;
struct master_session;

enum master_pin { PIN_NONE, PIN_SOFT, PIN_HARD };
enum { SOFT_PIN_PRESERVE, SOFT_PIN_SET, SOFT_PIN_CLEAR }; /* PUT_START.soft_pin */

#define MASTER_GROUP_MEMBERS 4096u /* evicted in one turn */
#define MASTER_TENANTS       1024u

struct master_group {
    struct master_group *hash_next;
    struct base_list members;
    uint64_t hash;
    uint64_t lease_until; /* nominal, of any member */
    uint32_t count;
    uint32_t name_size;
    bool going; /* is being evicted */
    uint8_t name[];
};

struct master_tenant {
    struct base_list link;
    struct base_list objects; /* extras, the oldest first */
    uint64_t quota_bytes;
    uint64_t used_bytes;
    uint64_t object_count;
    uint64_t rejects, evicted_bytes; /* counters */
    bool registered;                 /* by name or by the rule for all others: may open sessions */
    uint8_t prefix_size;
    char name[MAX_TENANT_SIZE + 1];
    uint8_t prefix[MAX_TENANT_SIZE + 2]; /* of its keys; none of the default tenant's */
};

struct master_extra {
    struct master_extra *hash_next;
    struct master_object *object;
    struct master_tenant *tenant; /* NULL: bytes are not counted */
    struct base_list tenant_link;
    struct master_group *group;
    struct base_list group_link;
    struct base_list soft_link; /* core: by soft_until */
    uint64_t soft_until;        /* 0: no soft pin */
    uint64_t soft_ttl_ms;       /* while it is being written: what the put asked for */
    uint8_t soft_action;
};

struct master_extras {
    struct master_extra **table;
    uint64_t buckets, count;
    struct master_group **groups;
    uint64_t group_buckets, group_count;
    struct base_list soft; /* extras by soft_until, nearly */
    uint64_t soft_count;
    struct base_list tenants;
    uint32_t tenant_count;
    struct master_tenant *standard; /* "default"; there always */
    bool tenants_on;
    uint64_t other_quota; /* of tenants that are not named; 0: they are refused */
    uint64_t group_skips; /* evictions in a row that a group's lease withheld */
};

/* extra.c */
YOLK_MUST_USE enum yolk_status master_extras_init(struct master_core *core);
void master_extras_free(struct master_core *core);
struct master_extra *master_extra_of(const struct master_core *core,
                                     const struct master_object *object);
/* A new object: its tenant. */
YOLK_MUST_USE enum yolk_status master_extra_begin(struct master_core *core,
                                                  struct master_object *object);
struct master_extra *master_extra_need(struct master_core *core, struct master_object *object);
void master_extra_end(struct master_core *core, struct master_object *object);
/* The extent is an object's from now on, or is so no longer (sign -1): quota and hard pins. */
void master_extra_count(struct master_core *core, const struct master_extent *extent,
                        const struct master_object *object, int sign);

/* pin.c */
/* What a put asks for; takes effect with its commit. `group` may be empty. */
YOLK_MUST_USE enum yolk_status master_pin_ask(struct master_core *core,
                                              struct master_object *object,
                                              const struct wire_put_start *msg,
                                              struct wire_view group);
void master_pin_hard(struct master_core *core, struct master_object *object);
/* The object is committed, in place of `old` if that is not NULL. Before its extents are used. */
void master_pin_commit(struct master_core *core, struct master_object *object,
                       const struct master_object *old);
/* No soft pin any more; its extents stand where they stood. */
void master_pin_forget(struct master_core *core, struct master_extra *extra);
void master_unpin(struct master_core *core, struct master_object *object);
void master_pins_tick(struct master_core *core);
/* Hard pins may take so much of the segment. */
bool master_pin_fits(const struct master_core *core, const struct master_segment *segment,
                     const struct master_object *replaced, uint64_t size);

/* group.c */
YOLK_MUST_USE enum yolk_status master_group_join(struct master_core *core,
                                                 struct master_object *object, struct wire_view id);
YOLK_MUST_USE enum yolk_status master_group_adopt(struct master_core *core,
                                                  struct master_object *object,
                                                  struct master_group *group);
void master_group_leave(struct master_core *core, struct master_extra *extra);
/* The object's lease was set. */
void master_group_leased(struct master_core *core, const struct master_object *object);
/* Its own or its group's. */
uint64_t master_lease_until(const struct master_core *core, const struct master_object *object);
/* The extent may be evicted, as far as its group is concerned. */
bool master_group_may_go(struct master_core *core, const struct master_extent *extent);
/* The group of an object that is evicted now, NULL: none; then the rest of it goes. */
struct master_group *master_group_begin(struct master_core *core,
                                        const struct master_object *object);
void master_group_evict(struct master_core *core, struct master_group *group);

/* tenant.c */
/* The setting: NAME=SIZE,…; NAME * is for all that are not named. */
YOLK_MUST_USE enum yolk_status master_tenants_parse(struct master_core *core, const char *text);
/* The tenant of a session that is being opened; NULL after setting *why. */
struct master_tenant *master_tenant_admit(struct master_core *core, struct wire_view name,
                                          const char **why);
/* Of a key as it is on the wire; NULL: its bytes are not counted. */
struct master_tenant *master_tenant_of(struct master_core *core, struct wire_view key);
/* The key is of the tenant with this prefix. */
bool master_tenant_owns(const uint8_t *prefix, uint32_t prefix_size, struct wire_view key);
/* Room for so many bytes more in the object's quota; evicts from the same tenant. `credit` are
 * bytes that will be given back. */
bool master_tenant_room(struct master_core *core, const struct master_object *object, uint64_t size,
                        uint64_t credit);
#endif
