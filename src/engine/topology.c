/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/topology.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

/* ---- distances ---- */

/* Parts of two paths that are the same from the beginning, and of each the number of all parts. */
static uint32_t common_parts(const char *a, const char *b, uint32_t *of_a, uint32_t *of_b)
{
    uint32_t common = 0;
    bool same = true;
    *of_a = *of_b = 0;
    while (*a != '\0' || *b != '\0') {
        size_t size_a = strcspn(a, "/"), size_b = strcspn(b, "/");
        same = same && size_a == size_b && size_a > 0 && memcmp(a, b, size_a) == 0;
        common += same;
        *of_a += size_a > 0;
        *of_b += size_b > 0;
        a += size_a + (a[size_a] == '/');
        b += size_b + (b[size_b] == '/');
    }
    return common;
}

uint32_t topology_hops(const struct topology_place *a, const struct topology_place *b)
{
    uint32_t of_a, of_b;
    uint32_t common = common_parts(a->path, b->path, &of_a, &of_b);
    return common == 0 ? UINT32_MAX : of_a - common + of_b - common;
}

enum topology_distance topology_distance(const struct topology_place *a,
                                         const struct topology_place *b)
{
    uint32_t of_a, of_b;
    uint32_t common = common_parts(a->path, b->path, &of_a, &of_b);
    /* The first part is the root complex, each further one a bridge that both are below. */
    if (common > 1)
        return TOPOLOGY_SAME_SWITCH;
    if (common == 1)
        return TOPOLOGY_SAME_ROOT;
    if (a->node < 0 || b->node < 0)
        return TOPOLOGY_DISTANCE_UNKNOWN;
    return a->node == b->node ? TOPOLOGY_SAME_NODE : TOPOLOGY_OTHER_NODE;
}

const char *topology_distance_name(enum topology_distance distance)
{
    static const char *const NAMES[] = {"same switch", "same root complex", "same node",
                                        "other node", "not known"};
    return NAMES[distance];
}

/* ---- ranks ---- */

static struct topology_memory *add_memory(struct topology *t, enum topology_memory_type type,
                                          int node, const char *pci)
{
    struct topology_memory *memory = &t->memories[t->memory_count++];
    memset(memory, 0, sizeof(*memory));
    memory->type = type;
    memory->node = node;
    snprintf(memory->pci, sizeof(memory->pci), "%s", pci);
    return memory;
}

static void put_nic(struct topology_memory *memory, uint32_t rank, uint32_t nic)
{
    memory->nics[rank][memory->counts[rank]++] = (uint8_t)nic;
}

static void rank_for_node(const struct topology *t, struct topology_memory *memory)
{
    for (uint32_t i = 0; i < t->nic_count; i++)
        put_nic(memory, t->nics[i].place.node == memory->node ? 0 : TOPOLOGY_RANKS - 1, i);
}

static void rank_for_gpu(const struct topology *t, const struct topology_gpu *gpu,
                         struct topology_memory *memory)
{
    uint32_t nearest = UINT32_MAX;
    for (uint32_t i = 0; i < t->nic_count; i++) {
        uint32_t hops = topology_hops(&gpu->place, &t->nics[i].place);
        nearest = hops < nearest ? hops : nearest;
    }
    for (uint32_t i = 0; i < t->nic_count; i++) {
        bool near =
            nearest != UINT32_MAX && topology_hops(&gpu->place, &t->nics[i].place) == nearest;
        bool here = gpu->place.node >= 0 && t->nics[i].place.node == gpu->place.node;
        put_nic(memory, near ? 0 : here ? 1 : 2, i);
    }
}

void topology_rank(struct topology *t)
{
    t->memory_count = 0;
    for (uint32_t i = 0; i < t->node_count; i++) {
        struct topology_memory *memory = add_memory(t, TOPOLOGY_HOST, t->nodes[i].id, "");
        snprintf(memory->name, sizeof(memory->name), "cpu:%d", t->nodes[i].id);
        rank_for_node(t, memory);
    }
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        const struct topology_gpu *gpu = &t->gpus[i];
        struct topology_memory *memory =
            add_memory(t, TOPOLOGY_CUDA, gpu->place.node, gpu->place.pci);
        snprintf(memory->name, sizeof(memory->name), "cuda:%u", i);
        rank_for_gpu(t, gpu, memory);
    }
    struct topology_memory *any = add_memory(t, TOPOLOGY_MEMORY_UNKNOWN, -1, "");
    snprintf(any->name, sizeof(any->name), "*");
    for (uint32_t i = 0; i < t->nic_count; i++)
        put_nic(any, TOPOLOGY_RANKS - 1, i);
}

/* ---- names ---- */

/* The next name of a comma list, blanks around it left out; false: there is no more. */
static bool next_name(const char **list, const char **name, size_t *size)
{
    while (*list != NULL && **list != '\0') {
        size_t length = strcspn(*list, ",");
        const char *start = *list, *end = *list + length;
        *list = end + (*end == ',');
        while (start < end && (*start == ' ' || *start == '\t'))
            start++;
        while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        if (end > start) {
            *name = start;
            *size = (size_t)(end - start);
            return true;
        }
    }
    return false;
}

static bool list_holds(const char *list, const char *wanted)
{
    const char *name;
    size_t size;
    while (next_name(&list, &name, &size))
        if (strlen(wanted) == size && memcmp(wanted, name, size) == 0)
            return true;
    return false;
}

static bool list_is_empty(const char *list)
{
    const char *name;
    size_t size;
    return !next_name(&list, &name, &size);
}

void topology_filter(struct topology *t, const char *whitelist, const char *blacklist)
{
    uint32_t kept = 0;
    bool all = list_is_empty(whitelist);
    for (uint32_t i = 0; i < t->nic_count; i++) {
        const struct topology_nic *nic = &t->nics[i];
        bool keep = nic->type != TOPOLOGY_RDMA ||
                    (all ? !list_holds(blacklist, nic->name) : list_holds(whitelist, nic->name));
        if (keep && kept != i)
            t->nics[kept] = *nic;
        kept += keep;
    }
    t->nic_count = kept;
}

static const struct topology_nic *nic_of_size(const struct topology *t, const char *name,
                                              size_t size)
{
    for (uint32_t i = 0; i < t->nic_count; i++)
        if (strlen(t->nics[i].name) == size && memcmp(t->nics[i].name, name, size) == 0)
            return &t->nics[i];
    return NULL;
}

const struct topology_nic *topology_nic_named(const struct topology *t, const char *name)
{
    return nic_of_size(t, name, strlen(name));
}

const struct topology_memory *topology_memory_named(const struct topology *t, const char *location)
{
    for (uint32_t i = 0; i < t->memory_count; i++)
        if (strcmp(t->memories[i].name, location) == 0)
            return &t->memories[i];
    return NULL;
}

const char *topology_near_memory(const struct topology *t, const char *location,
                                 enum topology_memory_type type)
{
    const struct topology_memory *from = topology_memory_named(t, location);
    const struct topology_memory *found = NULL;
    for (uint32_t i = 0; i < t->memory_count; i++) {
        const struct topology_memory *memory = &t->memories[i];
        if (memory->type != type)
            continue;
        if (from != NULL && memory->node >= 0 && memory->node == from->node)
            return memory->name;
        found = found == NULL ? memory : found;
    }
    return found == NULL ? "" : found->name;
}

static void list_devices(const struct topology *t, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < t->nic_count && used + 1 < size; i++) {
        int n = snprintf(out + used, size - used, "%s%s (%s)", i > 0 ? ", " : "", t->nics[i].name,
                         t->nics[i].up ? "up" : t->nics[i].state);
        used += n > 0 ? (size_t)n : 0;
    }
    if (t->nic_count == 0)
        snprintf(out, size, "none");
}

int topology_require(const struct topology *t, const char *names)
{
    const char *name;
    size_t size;
    char found[400];
    while (next_name(&names, &name, &size)) {
        const struct topology_nic *nic = nic_of_size(t, name, size);
        if (nic != NULL && nic->up)
            continue;
        list_devices(t, found, sizeof(found));
        if (nic == NULL)
            return base_fail(YOLK_ERR_NOT_FOUND, 0,
                             "network device \"%.*s\" does not exist here; found: %s",
                             (int)(size < 64 ? size : 64), name, found);
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "network device \"%s\" is %s; found: %s",
                         nic->name, nic->state[0] != '\0' ? nic->state : "down", found);
    }
    return YOLK_OK;
}

int topology_location_parse(const char *location, enum topology_memory_type *type, int *index)
{
    static const struct {
        const char *prefix;
        enum topology_memory_type type;
    } KINDS[] = {{"cpu:", TOPOLOGY_HOST},
                 {"cuda:", TOPOLOGY_CUDA},
                 {"rocm:", TOPOLOGY_ROCM},
                 {"hip:", TOPOLOGY_ROCM},
                 {"npu:", TOPOLOGY_ASCEND}};
    *type = TOPOLOGY_MEMORY_UNKNOWN;
    *index = -1;
    if (strcmp(location, "*") == 0)
        return YOLK_OK;
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        size_t size = strlen(KINDS[i].prefix);
        uint64_t number;
        if (strncmp(location, KINDS[i].prefix, size) != 0)
            continue;
        if (base_parse_u64("location", location + size, &number) != YOLK_OK || number > 4095)
            break;
        *type = KINDS[i].type;
        *index = (int)number;
        return YOLK_OK;
    }
    return base_fail(YOLK_ERR_INVALID, 0,
                     "location \"%.60s\": must be *, cpu:N or cuda:N, N from 0 to 4095", location);
}

/* ---- GIDs ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool is_ipv4(const struct topology_gid *gid)
{
    return is_zero(gid->gid, 10) && gid->gid[10] == 0xff && gid->gid[11] == 0xff;
}

static bool is_link_local(const struct topology_gid *gid)
{
    if (is_ipv4(gid)) /* 169.254/16 */
        return gid->gid[12] == 169 && gid->gid[13] == 254;
    return gid->gid[0] == 0xfe && (gid->gid[1] & 0xc0) == 0x80;
}

/* 0: no use. */
static int worth(const struct topology_gid *gid, bool infiniband)
{
    if (is_zero(gid->gid, 16) || (is_zero(gid->gid + 8, 8) && gid->gid[0] == 0xfe))
        return 0;
    if (infiniband)
        return 1;
    if (gid->netdev[0] == '\0' || is_link_local(gid))
        return 0;
    return 1 + is_ipv4(gid) + 2 * (gid->type == TOPOLOGY_GID_ROCE_V2);
}

static const char *gid_type_name(enum topology_gid_type type)
{
    static const char *const NAMES[] = {"IB", "RoCE v1", "RoCE v2"};
    return NAMES[type];
}

static void list_gids(const struct topology_gid *table, size_t count, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "it is empty");
    for (size_t i = 0; i < count && used + 1 < size; i++) {
        char text[33];
        for (size_t b = 0; b < 16; b++)
            snprintf(text + 2 * b, 3, "%02x", table[i].gid[b]);
        int n = snprintf(out + used, size - used, "%s%d: %s %s on %s", i > 0 ? "; " : "",
                         table[i].index, text, gid_type_name(table[i].type),
                         table[i].netdev[0] != '\0' ? table[i].netdev : "no network device");
        used += n > 0 ? (size_t)n : 0;
    }
}

int topology_gid_choose(const struct topology_gid *table, size_t count, bool infiniband, int wanted,
                        int *index)
{
    int best = 0;
    for (size_t i = 0; i < count; i++) {
        if (wanted >= 0) {
            if (table[i].index != wanted || is_zero(table[i].gid, 16))
                continue;
            *index = wanted;
            return YOLK_OK;
        }
        int its = worth(&table[i], infiniband);
        if (its > best) {
            best = its;
            *index = table[i].index;
        }
    }
    if (best > 0)
        return YOLK_OK;
    char text[800];
    list_gids(table, count, text, sizeof(text));
    if (wanted >= 0)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "GID index %d is not there; the table: %s", wanted,
                         text);
    return base_fail(YOLK_ERR_NOT_FOUND, 0,
                     "no GID is routable and has a network device; the table: %s", text);
}
