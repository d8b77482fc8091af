/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound that more than one room relies on. A peer that exceeds one is refused. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#include <stdint.h>

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)
#define TIB (1024ull * GIB)

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

#define MAX_KEY_SIZE      4096u      /* bytes of one key */
#define MAX_BATCH_KEYS    4096u      /* keys in one message */
#define MAX_KEYS_BYTES    (4u << 20) /* bytes of all keys in one message */
#define MAX_REPLICAS      8u         /* replicas of one object */
#define MAX_NAME_SIZE     255u       /* bytes of a client or segment name */
#define MAX_TEXT_SIZE     4096u      /* bytes of an explaining text in a message */
#define MAX_ENDPOINTS     4096u      /* bytes of an endpoints text */
#define MAX_TENANT_SIZE   64u        /* bytes of a tenant's name */
#define MAX_GROUP_SIZE    255u       /* bytes of a group's id */
#define MAX_PREFERRED     16u        /* segments that a put names */
#define MAX_SEGMENTS      4096u      /* mounted at one master */
#define MAX_SESSIONS      4096u      /* open at one master */
#define MAX_CONNECTIONS   4096u      /* of one server */
#define MAX_FRAME_BODY    (8u << 20) /* bytes; the kinds have smaller ones */
#define MAX_SLICES        4096u      /* pieces of one gather list */
#define MAX_OBJECT_SIZE   (1ull << 40)
#define MAX_SEGMENT_SIZE  (1ull << 46)
#define MAX_LAST_ERROR    1024u  /* bytes of a thread's last error text */
#define SEGMENT_ALIGNMENT 64u    /* extents start at a multiple of this */
#define MAX_PEER_MESSAGE  65536u /* bytes of a notification */
#define MAX_LIVE_OPS      65536u /* operations of one session at a time */

#endif
