/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_data.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

enum yolk_status bench_pool_open(struct bench_pool *pool,
                                 const struct bench_cluster_options *options, size_t memory_size)
{
    memset(pool, 0, sizeof(*pool));
    enum yolk_status status = bench_cluster_open(&pool->cluster, options);
    if (status != YOLK_OK)
        return status;
    void *memory = mmap(NULL, memory_size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "%zu bytes to read into", memory_size);
    pool->memory = memory;
    pool->memory_size = memory_size;
    memset(memory, 1, memory_size);
    return yolk_store_register_buffer(pool->cluster.store, memory, memory_size);
}

void bench_pool_close(struct bench_pool *pool)
{
    bench_cluster_close(&pool->cluster);
    if (pool->memory != NULL)
        munmap(pool->memory, pool->memory_size);
}

enum yolk_status bench_pool_fill(struct bench_pool *pool, uint32_t count, size_t size)
{
    enum yolk_status status = YOLK_OK;
    if (pool->count > 0)
        status = yolk_store_remove_all(pool->cluster.store, 1, NULL);
    pool->count = count;
    pool->size = size;
    pool->next = 0;
    return status == YOLK_OK ? bench_fill(pool->cluster.store, count, size) : status;
}

uint32_t bench_pool_next(struct bench_pool *pool)
{
    uint32_t number = pool->next;
    pool->next = (pool->next + 1) % pool->count;
    return number;
}

enum yolk_status bench_pool_get(struct bench_pool *pool, uint32_t n, size_t offset)
{
    static _Thread_local struct yolk_kv kvs[BENCH_GET_MAX];
    static _Thread_local struct yolk_slice slices[BENCH_GET_MAX];
    static _Thread_local char keys[BENCH_GET_MAX][16];
    for (uint32_t i = 0; i < n; i++) {
        bench_key(keys[i], bench_pool_next(pool));
        slices[i] = (struct yolk_slice){pool->memory + offset + (size_t)i * pool->size, pool->size};
        kvs[i] = (struct yolk_kv){
            .key = keys[i], .key_size = strlen(keys[i]), .slices = &slices[i], .slice_count = 1};
    }
    return yolk_store_get(pool->cluster.store, kvs, n);
}
