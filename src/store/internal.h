/* SPDX-License-Identifier: Apache-2.0 */
/* The store handle, shared by the files of its drivers. */
#ifndef YOLK_STORE_INTERNAL_H
#define YOLK_STORE_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include <yolk/store.h>

#include "engine/plugin.h"
#include "base/limits.h"
#include "platform/thread.h"
#include "store/disk.h"
#include "store/gds.h"
#include "store/mover.h"
#include "store/session.h"

enum { STORE_PUT_REPLICAS_MAX = 4 };

/* FENCE of the master that the engine could not yet answer. */
struct store_fence {
    struct store_fence *next;
    uint64_t segment;
    uint64_t session;
};

/* What the control thread does for others. */
struct store_control {
    struct thread thread;
    struct mutex lock; /* protects all below */
    struct condition changed;
    struct store_session *session;
    struct store_fence *fences;
    uint64_t fence_retry_ns;
    uint64_t last_session;
    uint64_t memory_segment;
    int opener_stop;
    int quieting; /* the session waits for the disk's moves to end */
    int stop;
    int failed_once; /* a try to open the session failed */
    int unmounted;
    int unmount_status;
    int closed;
    int connect_status;
    bool hopeless;       /* that is so for longer than opening waits */
    uint64_t refused_ns; /* since then every try was refused; 0: the last one was not */
    char connect_text[512];
};

struct store_registration {
    struct store_registration *next;
    void *pointer;
    size_t size;
};

struct yolk_store {
    pid_t pid; /* of the process that may use it */
    struct yolk_store_options options;
    char *name;
    char *host;
    char *master;
    char *tenant;                        /* NULL: the default one */
    uint8_t prefix[MAX_TENANT_SIZE + 2]; /* of its keys */
    size_t prefix_size;
    uint8_t secret[WIRE_SECRET_MAX];
    size_t secret_size;

    struct store_embedded *embedded;
    struct store_client *client;
    struct store_holds *holds;
    struct store_mirror *mirror;
    struct store_segments *segments;
    struct engine_plugins plugins; /* unloaded after the engine's end */
    struct yolk_engine *engine;
    struct yolk_memory memory; /* the segment */
    bool memory_given;         /* it is the caller's of store_make */
    struct store_egm *egm;     /* NULL: none, and nothing of one is left */
    struct yolk_served *served;
    char *endpoints;           /* of the memory segment, as told to others */
    struct store_disk *disk;   /* NULL: none (yet); in use by the control thread, under its lock */
    struct thread disk_opener; /* runs while the disk could not be opened */
    char *ssd_path;
    struct store_gds *gds; /* NULL: none */
    char *gds_path;
    uint8_t client_id[16];
    uint8_t ticket_key[32];
    struct store_tuning tuning;
    struct store_control control;

    struct yolk_memory pool; /* of pool_alloc; pointer NULL: none */
    int pool_registered;
    struct store_leftovers leftovers;

    struct mutex lock; /* protects all below */
    uint64_t pool_used;
    struct store_host *clients; /* answers dummy clients; NULL: none */
    struct condition idle;
    uint32_t calls; /* in progress */
    uint32_t pins;  /* handles of get_buffer given out */
    int closing;
    int half_closed; /* close met memory that was not quiet */
    struct store_registration *registrations;
};

/* tenant.c */
/* The items' keys as they are on the wire: with what tells the store's tenant from others. *arena,
 * NULL when no key needed it, holds them; to be freed after the items are done with. A key that is
 * too long then has no bytes any more. */
YOLK_MUST_USE int store_qualify(const struct yolk_store *store, struct store_item *items,
                                size_t count, uint8_t **arena);
/* What was stored as `key`, without it. */
void store_unqualify(const void **key, size_t *key_size);
/* Checks options->tenant_id and keeps it. */
YOLK_MUST_USE int store_take_tenant(struct yolk_store *store, const char *tenant);

/* options.c */
/* CONFIG, the text naming the option, its value and the rule. */
YOLK_MUST_USE int store_check_options(const struct yolk_store_options *options);

/* open.c */
/* All of a store but its session. memory: the segment; NULL: it is made, of the size that options
 * name. */
YOLK_MUST_USE int store_make(const struct yolk_store_options *options,
                             const struct yolk_memory *memory, uint64_t deadline_ns,
                             struct yolk_store **out);
/* Begins the session, and waits until it is open and the segment mounted. */
YOLK_MUST_USE int store_begin(struct yolk_store *store, uint64_t deadline_ns);
/* Ends whatever there is of it, in the reverse order, and frees it. BUSY: memory is not quiet; all
 * but the session stays as it is. */
YOLK_MUST_USE int store_end_parts(struct yolk_store *store);

/* options.c: what options make of a store, so that every part asks the same question. */
/* The master core runs in this process. */
bool store_options_embedded(const struct yolk_store_options *options);
/* It learns from a real client on this machine how to open. */
bool store_options_dummy(const struct yolk_store_options *options);
/* It gives space in a segment of its own session; an EGM pool has sessions of its own. */
bool store_options_node(const struct yolk_store_options *options);

/* egm.c: a pool of host memory of NUMA nodes, each chunk of it a segment with a session of its own
 */
YOLK_MUST_USE int store_egm_check(const struct yolk_store_options *options);
/* On failure store->egm is what is left of it, or NULL. */
YOLK_MUST_USE int store_egm_open(struct yolk_store *store,
                                 const struct yolk_store_options *options);
/* YOLK_OK: nothing is left. */
YOLK_MUST_USE int store_egm_close(struct yolk_store *store);
/* enum egm_health */
int store_egm_health(const struct yolk_store *store);
YOLK_MUST_USE int store_egm_stat(struct yolk_store *store, struct base_buf *lines);

/* A try to connect ended with `status`, and so have all for longer than one is to wait. *since_ns,
 * at first 0, is kept between the calls. */
bool store_is_hopeless(const struct yolk_store *store, int status, uint64_t *since_ns);

/* dummy.c */
/* What to open with, from the real client. */
YOLK_MUST_USE int store_ask_real_client(struct yolk_store *store, uint64_t deadline_ns);
void store_host_stop(struct yolk_store *store);
YOLK_MUST_USE int store_make_pool(struct yolk_store *store);
/* BUSY: a transfer may still touch it. */
YOLK_MUST_USE int store_end_pool(struct yolk_store *store);

/* control.c */
YOLK_MUST_USE int store_control_start(struct yolk_store *store);
/* Until the session is open, its opening was refused for good, or deadline_ns. */
YOLK_MUST_USE int store_control_wait_open(struct yolk_store *store, uint64_t deadline_ns);
/* How its last try to reach the master ended. */
int store_control_connect_status(struct yolk_store *store);
YOLK_MUST_USE int store_control_unmount(struct yolk_store *store, uint64_t grace_ms,
                                        uint64_t deadline_ns);
/* Ends the session at the master (waits for its answer until deadline_ns), then the thread. */
void store_control_stop(struct yolk_store *store, uint64_t deadline_ns);

/* What the disk, if there is one, has to say, as lines "name value". */
YOLK_MUST_USE int store_control_stat(struct yolk_store *store, struct base_buf *lines);

/* disk_open.c */
/* If the disk fails, or is full, this is YOLK_OK too, and it is tried again from time to time. */
YOLK_MUST_USE int store_open_disk(struct yolk_store *store);
/* After store_control_start. */
YOLK_MUST_USE int store_open_disk_later(struct yolk_store *store);
void store_open_disk_stop(struct yolk_store *store);

/* data.c */
/* Every public call is between these. */
YOLK_MUST_USE int store_enter(struct yolk_store *store);
void store_leave(struct yolk_store *store);
/* Of a call that begins now. */
uint64_t store_deadline(const struct yolk_store *store);
/* Sets every result, for failures of the call as a whole. */
int store_fail_all(struct yolk_kv *kvs, size_t count, int status);
/* The status a batch returns, with a text that says how many failed. reason: of the first failure;
 * NULL: none is known. */
YOLK_MUST_USE int store_batch_status(const struct yolk_kv *kvs, size_t count,
                                     const struct store_reason *reason);

/* ask.c */
/* One request made of a message struct, and its checked answer (the kind after it). decoded borrows
 * reply. */
YOLK_MUST_USE int store_ask(struct yolk_store *store, uint16_t kind, const void *message,
                            const struct store_stamp *stamp, uint64_t deadline_ns,
                            struct base_buf *reply, void *decoded);
/* The keys of a page that the master answered; *stop: `visit` asked for no more. */
YOLK_MUST_USE int store_visit_page(const struct wire_list_reply *page, yolk_store_visit visit,
                                   void *context, int *stop);
#endif
