/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "egm"
#include "store/egm_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

struct egm_pool {
    const struct egm_driver *driver;
    struct egm_plan plan;
    struct egm_steps steps;
    uint32_t node_count;
    uint64_t failures; /* of steps, since it was begun */
    bool release_failed;
    char why[512];
};

static int find_nodes(const struct egm_settings *settings, const struct egm_driver *driver,
                      uint32_t ids[EGM_NODES_MAX], uint32_t *count)
{
    bool automatic;
    int status =
        egm_nodes_parse(settings->nodes != NULL ? settings->nodes : "auto", &automatic, ids, count);
    if (status != YOLK_OK || !automatic)
        return status;
    status = driver->discover(driver->self, ids, count);
    if (status != YOLK_OK)
        return status;
    *count = egm_nodes_sort(ids, *count);
    if (*count == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "egm_numa_nodes is \"auto\", and no GPU says which NUMA node is near it");
    return YOLK_OK;
}

static int make_plan(const struct egm_settings *settings, const struct egm_driver *driver,
                     struct egm_pool *pool)
{
    uint32_t ids[EGM_NODES_MAX];
    struct egm_node nodes[EGM_NODES_MAX];
    uint64_t chunk = settings->chunk_bytes_max;
    int status = find_nodes(settings, driver, ids, &pool->node_count);
    for (uint32_t i = 0; i < pool->node_count && status == YOLK_OK; i++) {
        nodes[i].id = ids[i];
        status = driver->granularity(driver->self, ids[i], &nodes[i].granularity);
    }
    if (status == YOLK_OK)
        status = egm_plan_make(nodes, pool->node_count, settings->capacity,
                               chunk != 0 ? chunk : EGM_CHUNK_DEFAULT, &pool->plan);
    if (status == YOLK_OK)
        status = driver->prepare(driver->self, &pool->plan);
    return status;
}

/* Does steps until there are none to do in this pass. */
static void run(struct egm_pool *pool)
{
    uint32_t chunk;
    enum egm_step step;
    while ((step = egm_steps_next(&pool->steps, &chunk)) != EGM_STEP_NONE) {
        bool left = false;
        int status = pool->driver->step(pool->driver->self, step, chunk, &left);
        if (status != YOLK_OK) {
            pool->failures++;
            if (pool->why[0] == '\0') {
                (void)snprintf(pool->why, sizeof(pool->why), "%s", yolk_last_error());
                log_warn("chunk %u of the EGM pool: %s", chunk, pool->why);
            }
            pool->release_failed = pool->release_failed || step == EGM_STEP_RELEASE;
        }
        egm_steps_done(&pool->steps, chunk,
                       status == YOLK_OK ? EGM_DONE
                       : left            ? EGM_UNKNOWN
                                         : EGM_NOT_DONE,
                       (enum yolk_status)status);
    }
}

static void destroy(struct egm_pool *pool)
{
    egm_steps_free(&pool->steps);
    free(pool);
}

int egm_pool_open(const struct egm_settings *settings, const struct egm_driver *driver,
                  struct egm_pool **out)
{
    *out = NULL;
    struct egm_pool *pool = base_calloc(1, sizeof(*pool));
    if (pool == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an EGM pool");
    pool->driver = driver;
    int status = make_plan(settings, driver, pool);
    if (status == YOLK_OK)
        status = egm_steps_init(&pool->steps, pool->plan.chunk_count);
    if (status != YOLK_OK) {
        free(pool);
        return status;
    }
    run(pool);
    if (pool->steps.state == EGM_READY) {
        log_info("EGM pool of %" PRIu64 " bytes in %u chunks on %u NUMA nodes", pool->plan.capacity,
                 pool->plan.chunk_count, pool->node_count);
        *out = pool;
        return YOLK_OK;
    }
    bool closed = pool->steps.state == EGM_CLOSED;
    status = base_fail(pool->steps.failure, 0, "no EGM pool: %s%s", pool->why,
                       closed ? "" : "; a part of it could not be given back: close again");
    if (closed)
        destroy(pool);
    else
        *out = pool;
    return status;
}

int egm_pool_close(struct egm_pool *pool)
{
    if (pool == NULL)
        return YOLK_OK;
    pool->release_failed = false;
    pool->why[0] = '\0';
    egm_steps_close(&pool->steps);
    run(pool);
    if (pool->steps.state == EGM_CLOSED) {
        destroy(pool);
        return YOLK_OK;
    }
    return base_fail(pool->steps.failure, 0, "a part of the EGM pool is left, close again: %s",
                     pool->why);
}

enum egm_health egm_pool_health(const struct egm_pool *pool)
{
    if (pool == NULL || pool->steps.state == EGM_READY)
        return EGM_HEALTHY;
    return pool->release_failed ? EGM_QUARANTINED : EGM_CLEANUP_PENDING;
}

int egm_pool_stat(const struct egm_pool *pool, struct base_buf *lines)
{
    const struct egm_plan *plan = &pool->plan;
    int status = base_buf_printf(lines,
                                 "mooncake_egm_store_pool_capacity_bytes %" PRIu64
                                 "\nmooncake_egm_store_pool_chunks %u"
                                 "\nmooncake_egm_store_pool_nodes %u"
                                 "\nmooncake_egm_store_pool_health %d"
                                 "\nmooncake_egm_store_pool_failed_steps %" PRIu64 "\n",
                                 plan->capacity, plan->chunk_count, pool->node_count,
                                 (int)egm_pool_health(pool), pool->failures);
    for (uint32_t i = 0; i < plan->chunk_count && status == YOLK_OK;) {
        uint32_t node = plan->chunks[i].node;
        uint64_t bytes = 0;
        for (; i < plan->chunk_count && plan->chunks[i].node == node; i++)
            bytes += plan->chunks[i].size;
        status = base_buf_printf(
            lines, "mooncake_egm_store_pool_node_bytes{node=\"%u\"} %" PRIu64 "\n", node, bytes);
    }
    return status;
}
