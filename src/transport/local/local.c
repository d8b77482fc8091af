/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/local/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/random.h"

enum yolk_status local_serve(struct local_table *table, struct local_served *served, uint64_t size,
                             char *text, size_t text_size)
{
    const struct random random = random_real();
    served->token = random_u64(&random);
    served->size = size;
    atomic_store(&served->references, 1);
    int length =
        snprintf(text, text_size, "%ld,%llx", (long)getpid(), (unsigned long long)served->token);
    if (length < 0 || (size_t)length >= text_size)
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the endpoint's text");
    pthread_mutex_lock(&table->lock);
    base_list_push_back(&table->list, &served->node);
    pthread_mutex_unlock(&table->lock);
    return YOLK_OK;
}

void local_hide(struct local_table *table, struct local_served *served)
{
    pthread_mutex_lock(&table->lock);
    base_list_remove(&served->node);
    pthread_mutex_unlock(&table->lock);
    atomic_store(&served->gone, true);
}

bool local_is_idle(const struct local_served *served)
{
    return atomic_load(&served->accesses) == 0;
}

void local_drop(struct local_served *served)
{
    if (atomic_fetch_sub(&served->references, 1) == 1)
        free(served);
}

static _Atomic uint64_t *writes_of(struct local_served *served, uint64_t session)
{
    return &served->writes[(session ^ session >> 32) % LOCAL_STRIPES];
}

enum yolk_status local_fence(struct local_served *served, uint64_t session)
{
    /* Another session of the same stripe only makes the answer come later. */
    return atomic_load(writes_of(served, session)) == 0 ? YOLK_OK : YOLK_ERR_AGAIN;
}

enum yolk_status local_find(struct local_table *table, const char *text, uint64_t size,
                            struct local_served **out)
{
    char *end = NULL;
    long pid = strtol(text, &end, 10);
    if (end == text || *end != ',')
        return base_fail(YOLK_ERR_INVALID, 0, "\"%.64s\" is not pid,token", text);
    const char *token_text = end + 1;
    uint64_t token = strtoull(token_text, &end, 16);
    if (end == token_text || *end != '\0')
        return base_fail(YOLK_ERR_INVALID, 0, "\"%.64s\" is not pid,token", text);
    if (pid != (long)getpid())
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "%s (%ld)", table->elsewhere, pid);
    struct local_served *found = NULL;
    pthread_mutex_lock(&table->lock);
    BASE_LIST_FOREACH(node, &table->list)
    {
        struct local_served *served = BASE_CONTAINER(node, struct local_served, node);
        if (served->token == token && served->size >= size) {
            found = served;
            atomic_fetch_add(&served->references, 1);
            break;
        }
    }
    pthread_mutex_unlock(&table->lock);
    if (found == NULL) /* Another process of the same number (another container's) looks just like
                          an earlier life. */
        return base_fail(YOLK_ERR_STALE, 0, "this process does not serve it (any more)");
    *out = found;
    return YOLK_OK;
}

enum yolk_status local_enter(struct local_served *served)
{
    atomic_fetch_add(&served->accesses, 1);
    if (!atomic_load(&served->gone))
        return YOLK_OK;
    local_leave(served);
    return YOLK_ERR_PEER_DEAD;
}

void local_leave(struct local_served *served)
{
    atomic_fetch_sub(&served->accesses, 1);
}

void local_write_begins(struct local_served *served, uint64_t session)
{
    atomic_fetch_add(writes_of(served, session), 1);
}

void local_write_ends(struct local_served *served, uint64_t session)
{
    atomic_fetch_sub(writes_of(served, session), 1);
}
