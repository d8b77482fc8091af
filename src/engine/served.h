/* SPDX-License-Identifier: Apache-2.0 */
/* What serving memory and serving a file share. */
#ifndef YOLK_ENGINE_SERVED_H
#define YOLK_ENGINE_SERVED_H

#include "base/limits.h"
#include "engine/access.h"
#include "engine/internal.h"

struct file;

struct yolk_served {
    struct yolk_engine *engine;
    pthread_rwlock_t lock; /* over grant */
    struct access_grant grant;
    void *served[ENGINE_TRANSPORTS_MAX];
    uint32_t by; /* bits of the transports that serve it */
    char endpoints[MAX_ENDPOINTS];
    struct yolk_owner owner; /* is asked too, of files and addresses */
    bool read_only;
    /* Of a file. */
    struct yolk_file description;
    struct file *opened; /* closed with it; NULL: the caller's */
};

/* Room for one, serving nothing yet. NULL: no memory. */
struct yolk_served *engine_served_make(struct yolk_engine *engine);
/* Has every transport that can serve it; all but the access part of `serve` is filled in.
 * UNSUPPORTED if none can. */
YOLK_MUST_USE enum yolk_status engine_served_start(struct yolk_served *served,
                                                   struct yolk_serve serve);
/* What the transports are given where the owner has a say: the grant first, then the owner. */
struct yolk_access engine_served_access(struct yolk_served *served);
/* Ends serving. */
void engine_served_destroy(struct yolk_served *served);

#endif
