/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/failover.h"

enum failover_class {
    CLASS_FINAL, /* the request, the caller, an earlier life: every transport would say so */
    CLASS_UNABLE,
    CLASS_RESOURCE,
    CLASS_TIME,
    CLASS_BYTES,
    CLASS_SHORT,
    CLASS_LINK,
    CLASS_MEDIUM,
    CLASS_PEER,
    CLASS_PROCESS,
    CLASSES
};

static enum failover_class class_of(enum yolk_status status)
{
    switch (status) {
    case YOLK_ERR_UNSUPPORTED:
        return CLASS_UNABLE;
    case YOLK_ERR_LIMIT:
    case YOLK_ERR_NO_MEMORY:
        return CLASS_RESOURCE;
    case YOLK_ERR_TIMEOUT:
        return CLASS_TIME;
    case YOLK_ERR_CORRUPT:
        return CLASS_BYTES;
    case YOLK_ERR_EOF:
        return CLASS_SHORT;
    case YOLK_ERR_LINK:
    case YOLK_ERR_REFUSED:
    case YOLK_ERR_PROTOCOL:
        return CLASS_LINK;
    case YOLK_ERR_IO:
        return CLASS_MEDIUM;
    case YOLK_ERR_PEER_DEAD:
    case YOLK_ERR_AUTH:
    case YOLK_ERR_VERSION:
    case YOLK_ERR_NO_ROUTE:
        return CLASS_PEER;
    case YOLK_ERR_SYSTEM:
    case YOLK_ERR_CONFIG:
        return CLASS_PROCESS;
    default:
        return CLASS_FINAL;
    }
}

enum failover_kind failover_kind_of(uint64_t caps)
{
    uint64_t files = YOLK_CAP_DRAM_TO_FILE | YOLK_CAP_GPU_TO_FILE;
    if ((caps & files) != 0 && (caps & YOLK_CAPS_MEMORY & ~files) == 0)
        return FAILOVER_FILE;
    return (caps & (YOLK_CAP_SAME_PROCESS | YOLK_CAP_SAME_MACHINE)) != 0 ? FAILOVER_MACHINE
                                                                         : FAILOVER_NETWORK;
}

enum failover_action failover_decide(enum failover_kind kind, enum yolk_status status)
{
    /* A link that broke may be made anew; a peer on the same machine that is gone is gone. */
    static const uint8_t table[CLASSES][FAILOVER_KINDS] = {
        /*                   network         machine         file */
        [CLASS_FINAL] = {FAILOVER_FAIL, FAILOVER_FAIL, FAILOVER_FAIL},
        [CLASS_UNABLE] = {FAILOVER_NEXT, FAILOVER_NEXT, FAILOVER_NEXT},
        [CLASS_RESOURCE] = {FAILOVER_NEXT, FAILOVER_NEXT, FAILOVER_NEXT},
        [CLASS_TIME] = {FAILOVER_NEXT, FAILOVER_NEXT, FAILOVER_NEXT},
        [CLASS_BYTES] = {FAILOVER_RETRY, FAILOVER_RETRY, FAILOVER_RETRY},
        [CLASS_SHORT] = {FAILOVER_RETRY, FAILOVER_RETRY, FAILOVER_RETRY},
        [CLASS_LINK] = {FAILOVER_RETRY, FAILOVER_RETRY, FAILOVER_RETRY},
        [CLASS_MEDIUM] = {FAILOVER_RETRY, FAILOVER_RETRY, FAILOVER_NEXT},
        [CLASS_PEER] = {FAILOVER_NEXT, FAILOVER_NEXT, FAILOVER_NEXT},
        [CLASS_PROCESS] = {FAILOVER_NEXT, FAILOVER_NEXT, FAILOVER_NEXT},
    };
    return (enum failover_action)table[class_of(status)][kind];
}

bool failover_blames_route(enum yolk_status status)
{
    return status <= YOLK_ERR_LINK && status != YOLK_ERR_IO;
}
