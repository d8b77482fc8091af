/* SPDX-License-Identifier: Apache-2.0 */
#include "store/egm_plan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

uint32_t egm_nodes_sort(uint32_t *ids, uint32_t count)
{
    uint32_t kept = 0;
    qsort(ids, count, sizeof(*ids), by_number);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || ids[i] != ids[kept - 1])
            ids[kept++] = ids[i];
    return kept;
}

static enum yolk_status parse_id(const char *entry, size_t size, uint32_t *out)
{
    uint64_t id = 0;
    size_t at = 0;
    while (at < size && isdigit((unsigned char)entry[at]) && id <= EGM_NODE_ID_MAX)
        id = id * 10 + (uint64_t)(entry[at++] - '0');
    if (size == 0 || at < size || id > EGM_NODE_ID_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "egm_numa_nodes: \"%.*s\" is no NUMA node: \"auto\", or numbers from 0 to "
                         "%d separated by commas",
                         (int)(size < 64 ? size : 64), entry, EGM_NODE_ID_MAX);
    *out = (uint32_t)id;
    return YOLK_OK;
}

enum yolk_status egm_nodes_parse(const char *text, bool *automatic, uint32_t ids[EGM_NODES_MAX],
                                 uint32_t *count)
{
    *automatic = strcmp(text, "auto") == 0;
    *count = 0;
    for (const char *entry = text; !*automatic && entry != NULL;) {
        const char *comma = strchr(entry, ',');
        const char *next = comma == NULL ? NULL : comma + 1;
        const char *end = comma == NULL ? entry + strlen(entry) : comma;
        while (entry < end && *entry == ' ')
            entry++;
        while (entry < end && end[-1] == ' ')
            end--;
        uint32_t id = 0;
        enum yolk_status status = parse_id(entry, (size_t)(end - entry), &id);
        if (status != YOLK_OK)
            return status;
        if (*count == EGM_NODES_MAX)
            *count = egm_nodes_sort(ids, *count);
        if (*count == EGM_NODES_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0, "egm_numa_nodes names more than %d nodes",
                             EGM_NODES_MAX);
        ids[(*count)++] = id;
        entry = next;
    }
    *count = egm_nodes_sort(ids, *count);
    return YOLK_OK;
}

static int by_id(const void *left, const void *right)
{
    return by_number(&((const struct egm_node *)left)->id, &((const struct egm_node *)right)->id);
}

static enum yolk_status sort_nodes(const struct egm_node *nodes, uint32_t count,
                                   struct egm_node sorted[EGM_NODES_MAX], uint64_t *alignment)
{
    if (count == 0 || count > EGM_NODES_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "an EGM pool lies on 1 to %d NUMA nodes, not on %u",
                         EGM_NODES_MAX, count);
    memcpy(sorted, nodes, count * sizeof(*nodes));
    qsort(sorted, count, sizeof(*sorted), by_id);
    *alignment = EGM_SLAB;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t granularity = sorted[i].granularity;
        if (granularity == 0 || (granularity & (granularity - 1)) != 0)
            return base_fail(YOLK_ERR_CONFIG, 0,
                             "NUMA node %u: a granularity of %llu bytes is no power of two",
                             sorted[i].id, (unsigned long long)granularity);
        if (i > 0 && sorted[i].id == sorted[i - 1].id)
            return base_fail(YOLK_ERR_CONFIG, 0, "NUMA node %u is named twice", sorted[i].id);
        if (granularity > *alignment)
            *alignment = granularity;
    }
    return YOLK_OK;
}

static enum yolk_status add_chunks(struct egm_plan *plan, uint32_t node, uint64_t bytes,
                                   uint64_t chunk_bytes)
{
    while (bytes > 0) {
        if (plan->chunk_count == EGM_CHUNKS_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0,
                             "an EGM pool of this size in chunks of %llu bytes takes more than %d "
                             "segments: larger chunks are needed (max_mr_size)",
                             (unsigned long long)chunk_bytes, EGM_CHUNKS_MAX);
        uint64_t size = bytes < chunk_bytes ? bytes : chunk_bytes;
        plan->chunks[plan->chunk_count++] = (struct egm_chunk){node, size};
        plan->capacity += size;
        bytes -= size;
    }
    return YOLK_OK;
}

enum yolk_status egm_plan_make(const struct egm_node *nodes, uint32_t node_count, uint64_t capacity,
                               uint64_t chunk_bytes_max, struct egm_plan *out)
{
    struct egm_node sorted[EGM_NODES_MAX];
    memset(out, 0, sizeof(*out));
    enum yolk_status status = sort_nodes(nodes, node_count, sorted, &out->alignment);
    if (status != YOLK_OK)
        return status;
    uint64_t units = capacity / out->alignment;
    if (units < node_count)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "an EGM pool of %llu bytes has no unit of %llu bytes for each of %u NUMA "
                         "nodes",
                         (unsigned long long)capacity, (unsigned long long)out->alignment,
                         node_count);
    if (chunk_bytes_max < out->alignment)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "chunks of at most %llu bytes (max_mr_size) hold no unit of %llu bytes",
                         (unsigned long long)chunk_bytes_max, (unsigned long long)out->alignment);
    uint64_t most = chunk_bytes_max < MAX_SEGMENT_SIZE ? chunk_bytes_max : MAX_SEGMENT_SIZE;
    uint64_t chunk_bytes = most / out->alignment * out->alignment;
    if (chunk_bytes == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "a unit of %llu bytes is larger than a segment may be",
                         (unsigned long long)out->alignment);
    for (uint32_t i = 0; i < node_count && status == YOLK_OK; i++) {
        uint64_t share = units / node_count + (i < units % node_count);
        status = add_chunks(out, sorted[i].id, share * out->alignment, chunk_bytes);
    }
    return status;
}
