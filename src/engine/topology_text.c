/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies as JSON, in and out, and as text for people. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_write.h"
#include "engine/topology.h"

/* ---- JSON out ---- */

static void integer(struct base_json_writer *w, const char *name, int64_t value)
{
    base_json_name(w, name);
    base_json_raw(w, "%" PRId64, value);
}

static void begin_list(struct base_json_writer *w, const char *name)
{
    base_json_name(w, name);
    base_json_open(w, '[');
}

/* A member of a list. */
static void begin_item(struct base_json_writer *w)
{
    if (w->comma)
        base_json_raw(w, ",");
    base_json_open(w, '{');
}

static void write_place(struct base_json_writer *w, const struct topology_place *place)
{
    base_json_text(w, "pci_bus_id", place->pci);
    base_json_text(w, "pci_path", place->path);
    integer(w, "numa_node", place->node);
}

static void write_nics(struct base_json_writer *w, const struct topology *t)
{
    begin_list(w, "nics");
    for (uint32_t i = 0; i < t->nic_count; i++) {
        const struct topology_nic *nic = &t->nics[i];
        begin_item(w);
        base_json_text(w, "name", nic->name);
        integer(w, "type", nic->type);
        write_place(w, &nic->place);
        base_json_bool(w, "up", nic->up);
        base_json_text(w, "state", nic->state);
        integer(w, "speed_mbits", nic->speed_mbits);
        base_json_text(w, "link_layer", nic->link_layer);
        base_json_text(w, "net_device", nic->sibling);
        base_json_close(w, '}');
    }
    base_json_close(w, ']');
}

static void write_memories(struct base_json_writer *w, const struct topology *t)
{
    begin_list(w, "mems");
    for (uint32_t i = 0; i < t->memory_count; i++) {
        const struct topology_memory *memory = &t->memories[i];
        begin_item(w);
        base_json_text(w, "name", memory->name);
        base_json_text(w, "pci_bus_id", memory->pci);
        integer(w, "type", memory->type);
        integer(w, "numa_node", memory->node);
        base_json_name(w, "device_list");
        base_json_open(w, '{');
        for (uint32_t r = 0; r < TOPOLOGY_RANKS; r++) {
            char name[16];
            snprintf(name, sizeof(name), "rank%u", r);
            begin_list(w, name);
            for (uint32_t k = 0; k < memory->counts[r]; k++)
                base_json_raw(w, "%s%u", k > 0 ? "," : "", memory->nics[r][k]);
            base_json_close(w, ']');
        }
        base_json_close(w, '}');
        base_json_close(w, '}');
    }
    base_json_close(w, ']');
}

static void write_nodes(struct base_json_writer *w, const struct topology *t)
{
    begin_list(w, "nodes");
    for (uint32_t i = 0; i < t->node_count; i++) {
        const struct topology_node *node = &t->nodes[i];
        begin_item(w);
        integer(w, "id", node->id);
        base_json_text(w, "cpus", node->cpus);
        base_json_number(w, "memory_bytes", node->memory_bytes);
        begin_list(w, "distances");
        for (uint32_t k = 0; k < t->node_count; k++)
            base_json_raw(w, "%s%d", k > 0 ? "," : "", node->distances[k]);
        base_json_close(w, ']');
        base_json_close(w, '}');
    }
    base_json_close(w, ']');
}

static void write_gpus(struct base_json_writer *w, const struct topology *t)
{
    begin_list(w, "gpus");
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        char name[24];
        begin_item(w);
        snprintf(name, sizeof(name), "cuda:%u", i);
        base_json_text(w, "name", name);
        write_place(w, &t->gpus[i].place);
        base_json_text(w, "device_id", t->gpus[i].device_id);
        base_json_name(w, "nic_distance");
        base_json_open(w, '{');
        for (uint32_t k = 0; k < t->nic_count; k++)
            base_json_text(
                w, t->nics[k].name,
                topology_distance_name(topology_distance(&t->gpus[i].place, &t->nics[k].place)));
        base_json_close(w, '}');
        base_json_close(w, '}');
    }
    base_json_close(w, ']');
}

static void write_disks(struct base_json_writer *w, const struct topology *t)
{
    begin_list(w, "disks");
    for (uint32_t i = 0; i < t->disk_count; i++) {
        const struct topology_disk *disk = &t->disks[i];
        begin_item(w);
        base_json_text(w, "name", disk->name);
        write_place(w, &disk->place);
        base_json_number(w, "bytes", disk->bytes);
        base_json_bool(w, "rotational", disk->rotational);
        base_json_text(w, "model", disk->model);
        base_json_close(w, '}');
    }
    base_json_close(w, ']');
}

int topology_json(const struct topology *t, struct base_buf *out)
{
    struct base_json_writer w = {.out = out};
    base_json_open(&w, '{');
    write_nics(&w, t);
    write_memories(&w, t);
    write_nodes(&w, t);
    write_gpus(&w, t);
    write_disks(&w, t);
    base_json_close(&w, '}');
    return w.status;
}

static void write_names(struct base_json_writer *w, const struct topology *t,
                        const struct topology_memory *memory, uint32_t first, uint32_t last)
{
    bool comma = false;
    base_json_open(w, '[');
    for (uint32_t r = first; r <= last; r++) {
        for (uint32_t k = 0; k < memory->counts[r]; k++) {
            const struct topology_nic *nic = &t->nics[memory->nics[r][k]];
            if (nic->type != TOPOLOGY_RDMA)
                continue;
            base_json_raw(w, "%s", comma ? "," : "");
            base_json_string(w, nic->name, strlen(nic->name));
            comma = true;
        }
    }
    base_json_close(w, ']');
}

int topology_matrix(const struct topology *t, struct base_buf *out)
{
    struct base_json_writer w = {.out = out};
    base_json_open(&w, '{');
    for (uint32_t i = 0; i < t->memory_count; i++) {
        if (strcmp(t->memories[i].name, "*") == 0)
            continue;
        base_json_name(&w, t->memories[i].name);
        base_json_open(&w, '[');
        write_names(&w, t, &t->memories[i], 0, 0);
        base_json_raw(&w, ",");
        write_names(&w, t, &t->memories[i], 1, TOPOLOGY_RANKS - 1);
        base_json_close(&w, ']');
    }
    base_json_close(&w, '}');
    return w.status;
}

/* ---- JSON in ---- */

static int wrong(const char *what, const char *rule)
{
    return base_fail(YOLK_ERR_CONFIG, 0, "topology: %s: %s", what, rule);
}

static int read_text(const struct base_json *object, const char *name, char *out, size_t size)
{
    const struct base_json *value = base_json_member(object, name);
    out[0] = '\0';
    if (value == NULL)
        return YOLK_OK;
    if (value->type != BASE_JSON_STRING || strlen(value->text) >= size)
        return wrong(name, "must be a text, and not so long");
    memcpy(out, value->text, strlen(value->text) + 1);
    return YOLK_OK;
}

static int read_integer(const struct base_json *object, const char *name, int fallback, int least,
                        int most, int *out)
{
    const struct base_json *value = base_json_member(object, name);
    char *end;
    *out = fallback;
    if (value == NULL)
        return YOLK_OK;
    if (value->type != BASE_JSON_NUMBER)
        return wrong(name, "must be a whole number");
    long number = strtol(value->text, &end, 10);
    if (*end != '\0' || number < least || number > most)
        return wrong(name, "is out of its range");
    *out = (int)number;
    return YOLK_OK;
}

static int read_nic(const struct base_json *item, struct topology *t)
{
    if (item->type != BASE_JSON_OBJECT || t->nic_count == TOPOLOGY_NICS_MAX)
        return wrong("nics", "must be objects, at most 128");
    struct topology_nic *nic = &t->nics[t->nic_count];
    memset(nic, 0, sizeof(*nic));
    int type, status = read_text(item, "name", nic->name, sizeof(nic->name));
    if (status == YOLK_OK && (nic->name[0] == '\0' || topology_nic_named(t, nic->name) != NULL))
        return wrong("nics", "each needs a name of its own");
    if (status == YOLK_OK)
        status = read_text(item, "pci_bus_id", nic->place.pci, sizeof(nic->place.pci));
    if (status == YOLK_OK)
        status = read_text(item, "pci_path", nic->place.path, sizeof(nic->place.path));
    if (status == YOLK_OK)
        status = read_integer(item, "type", TOPOLOGY_NIC_UNKNOWN, 0, 3, &type);
    if (status == YOLK_OK)
        status = read_integer(item, "numa_node", -1, -1, 4095, &nic->place.node);
    if (status != YOLK_OK)
        return status;
    nic->type = type <= TOPOLOGY_TCP ? (enum topology_nic_type)type : TOPOLOGY_NIC_UNKNOWN;
    nic->speed_mbits = -1;
    const struct base_json *up = base_json_member(item, "up");
    nic->up = up == NULL || up->type != BASE_JSON_BOOL || up->boolean;
    t->nic_count++;
    return YOLK_OK;
}

static int read_rank(const struct base_json *list, const struct topology *t,
                     struct topology_memory *memory, uint32_t rank)
{
    if (list->type != BASE_JSON_ARRAY)
        return wrong("device_list", "each rank must be an array of places in nics");
    for (const struct base_json *v = list->first; v != NULL; v = v->next) {
        char *end = NULL;
        unsigned long place = v->type == BASE_JSON_NUMBER ? strtoul(v->text, &end, 10) : UINT32_MAX;
        if (end == NULL || *end != '\0' || place >= t->nic_count)
            return wrong("device_list", "names a place that nics does not have");
        if (memory->counts[rank] == TOPOLOGY_NICS_MAX)
            return wrong("device_list", "is too long");
        memory->nics[rank][memory->counts[rank]++] = (uint8_t)place;
    }
    return YOLK_OK;
}

static int read_memory(const struct base_json *item, struct topology *t)
{
    if (item->type != BASE_JSON_OBJECT || t->memory_count == TOPOLOGY_MEMORIES_MAX)
        return wrong("mems", "must be objects, at most 160");
    struct topology_memory *memory = &t->memories[t->memory_count];
    memset(memory, 0, sizeof(*memory));
    int type = 0, status = read_text(item, "name", memory->name, sizeof(memory->name));
    if (status == YOLK_OK &&
        (memory->name[0] == '\0' || topology_memory_named(t, memory->name) != NULL))
        return wrong("mems", "each needs a name of its own");
    if (status == YOLK_OK)
        status = read_text(item, "pci_bus_id", memory->pci, sizeof(memory->pci));
    if (status == YOLK_OK)
        status = read_integer(item, "type", TOPOLOGY_MEMORY_UNKNOWN, 0, 4, &type);
    if (status == YOLK_OK)
        status = read_integer(item, "numa_node", -1, -1, 4095, &memory->node);
    memory->type = (enum topology_memory_type)type;
    const struct base_json *ranks = base_json_member(item, "device_list");
    for (uint32_t r = 0; r < TOPOLOGY_RANKS && status == YOLK_OK; r++) {
        char name[16];
        snprintf(name, sizeof(name), "rank%u", r);
        const struct base_json *list = base_json_member(ranks, name);
        if (list != NULL)
            status = read_rank(list, t, memory, r);
    }
    t->memory_count += status == YOLK_OK;
    return status;
}

static int read_lists(const struct base_json *root, struct topology *t)
{
    static const struct {
        const char *name;
        int (*read)(const struct base_json *, struct topology *);
    } LISTS[] = {{"nics", read_nic}, {"mems", read_memory}};
    for (size_t i = 0; i < 2; i++) {
        const struct base_json *list = base_json_member(root, LISTS[i].name);
        if (list != NULL && list->type != BASE_JSON_ARRAY)
            return wrong(LISTS[i].name, "must be an array");
        for (const struct base_json *v = list != NULL ? list->first : NULL; v != NULL;
             v = v->next) {
            int status = LISTS[i].read(v, t);
            if (status != YOLK_OK)
                return status;
        }
    }
    return YOLK_OK;
}

/* The place of this name among the devices, which gets one if it is new. */
static int place_of(struct topology *t, const char *name, uint8_t *out)
{
    const struct topology_nic *known = topology_nic_named(t, name);
    if (known != NULL) {
        *out = (uint8_t)(known - t->nics);
        return YOLK_OK;
    }
    if (t->nic_count == TOPOLOGY_NICS_MAX || name[0] == '\0' || strlen(name) >= TOPOLOGY_NAME_MAX)
        return wrong("priority matrix", "names a device that is none, or too many");
    struct topology_nic *nic = &t->nics[t->nic_count];
    memset(nic, 0, sizeof(*nic));
    memcpy(nic->name, name, strlen(name) + 1);
    nic->place.node = -1;
    nic->up = true;
    nic->speed_mbits = -1;
    *out = (uint8_t)t->nic_count++;
    return YOLK_OK;
}

static void add_once(struct topology_memory *memory, uint32_t rank, uint8_t place)
{
    for (uint32_t i = 0; i < memory->counts[rank]; i++)
        if (memory->nics[rank][i] == place)
            return;
    memory->nics[rank][memory->counts[rank]++] = place;
}

static int read_row(const struct base_json *row, struct topology *t, struct topology_memory *any)
{
    const struct base_json *lists[2] = {row->first, row->first != NULL ? row->first->next : NULL};
    if (row->type != BASE_JSON_ARRAY || lists[1] == NULL || lists[1]->next != NULL ||
        lists[0]->type != BASE_JSON_ARRAY || lists[1]->type != BASE_JSON_ARRAY)
        return wrong(row->name, "must be [[preferred...], [available...]]");
    if (t->memory_count + 1 >= TOPOLOGY_MEMORIES_MAX || strlen(row->name) >= TOPOLOGY_NAME_MAX)
        return wrong("priority matrix", "has too many locations, or one too long");
    struct topology_memory *memory = &t->memories[t->memory_count];
    memset(memory, 0, sizeof(*memory));
    bool hip = strncmp(row->name, "rocm:", 5) == 0; /* one device, two names */
    snprintf(memory->name, sizeof(memory->name), "%s%s", hip ? "hip:" : "",
             row->name + (hip ? 5 : 0));
    if (topology_memory_named(t, memory->name) != NULL)
        return wrong(row->name, "is there already");
    int index;
    int status = topology_location_parse(memory->name, &memory->type, &index);
    memory->node = memory->type == TOPOLOGY_HOST ? index : -1;
    for (uint32_t r = 0; r < 2 && status == YOLK_OK; r++) {
        for (const struct base_json *v = lists[r]->first; v != NULL && status == YOLK_OK;
             v = v->next) {
            uint8_t place = 0;
            if (v->type != BASE_JSON_STRING)
                return wrong(row->name, "devices are named by texts");
            status = place_of(t, v->text, &place);
            if (status == YOLK_OK) {
                add_once(memory, r, place);
                add_once(any, r, place);
            }
        }
    }
    t->memory_count += status == YOLK_OK;
    return status;
}

static int read_matrix(const struct base_json *root, struct topology *t)
{
    struct topology_memory any = {
        .name = "*", .type = TOPOLOGY_MEMORY_UNKNOWN, .node = -1, .counts = {0}};
    if (root->first == NULL)
        return wrong("priority matrix", "is empty");
    for (const struct base_json *row = root->first; row != NULL; row = row->next) {
        int status = read_row(row, t, &any);
        if (status != YOLK_OK)
            return status;
    }
    if (topology_memory_named(t, "*") == NULL)
        t->memories[t->memory_count++] = any;
    return YOLK_OK;
}

int topology_parse(struct topology *t, const char *text, size_t size)
{
    struct base_json *root;
    int status = base_json_parse("topology", text, size, &root);
    if (status != YOLK_OK)
        return status;
    struct topology *next = base_malloc(sizeof(*next));
    if (next == NULL) {
        base_json_free(root);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a topology");
    }
    memcpy(next, t, sizeof(*next));
    next->nic_count = 0;
    next->memory_count = 0;
    if (root->type != BASE_JSON_OBJECT)
        status = wrong("it", "must be an object");
    else if (base_json_member(root, "nics") != NULL || base_json_member(root, "mems") != NULL)
        status = read_lists(root, next);
    else
        status = read_matrix(root, next);
    if (status == YOLK_OK)
        memcpy(t, next, sizeof(*t));
    free(next);
    base_json_free(root);
    return status;
}

/* ---- for people ---- */

static void speed_text(const struct topology_nic *nic, char *out, size_t size)
{
    if (nic->speed_mbits < 0)
        snprintf(out, size, "speed not known");
    else if (nic->speed_mbits % 1000 == 0)
        snprintf(out, size, "%" PRId64 " Gbit/s", nic->speed_mbits / 1000);
    else
        snprintf(out, size, "%" PRId64 " Mbit/s", nic->speed_mbits);
}

static void place_text(const struct topology_place *place, char *out, size_t size)
{
    char node[24];
    snprintf(node, sizeof(node), "%d", place->node);
    snprintf(out, size, "%s%snode %s", place->pci, place->pci[0] != '\0' ? ", " : "",
             place->node < 0 ? "not known" : node);
}

/* As people say it, not to the byte. */
static void size_text(uint64_t bytes, char *out, size_t size)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(out, size, "%.*f %s", unit > 0 && value < 100 ? 1 : 0, value, UNITS[unit]);
}

static int nodes_text(const struct topology *t, struct base_buf *out)
{
    int status = YOLK_OK;
    for (uint32_t i = 0; i < t->node_count && status == YOLK_OK; i++) {
        const struct topology_node *node = &t->nodes[i];
        char size[32];
        size_text(node->memory_bytes, size, sizeof(size));
        status = base_buf_printf(out, "node %-12d cpus %s, memory %s, distances", node->id,
                                 node->cpus[0] != '\0' ? node->cpus : "none", size);
        for (uint32_t k = 0; k < t->node_count && status == YOLK_OK; k++)
            status = base_buf_printf(out, " %d", node->distances[k]);
        if (status == YOLK_OK)
            status = base_buf_printf(out, "\n");
    }
    return status;
}

static int nics_text(const struct topology *t, struct base_buf *out)
{
    int status = YOLK_OK;
    for (uint32_t i = 0; i < t->nic_count && status == YOLK_OK; i++) {
        const struct topology_nic *nic = &t->nics[i];
        char speed[40], place[64];
        speed_text(nic, speed, sizeof(speed));
        place_text(&nic->place, place, sizeof(place));
        status = base_buf_printf(out, "%s %-12s %s, %s, %s%s%s%s%s\n",
                                 nic->type == TOPOLOGY_RDMA ? "rdma" : "net ", nic->name,
                                 nic->state[0] != '\0' ? nic->state : "state not known", speed,
                                 place, nic->link_layer[0] != '\0' ? ", " : "", nic->link_layer,
                                 nic->sibling[0] != '\0' ? ", is " : "", nic->sibling);
    }
    return status;
}

/* Of a GPU or a disk: how far each network device is. */
static int distances_text(const struct topology *t, const struct topology_place *place,
                          struct base_buf *out)
{
    int status = YOLK_OK;
    for (uint32_t i = 0; i < t->nic_count && status == YOLK_OK; i++)
        status =
            base_buf_printf(out, "; %s: %s", t->nics[i].name,
                            topology_distance_name(topology_distance(place, &t->nics[i].place)));
    return status == YOLK_OK ? base_buf_printf(out, "\n") : status;
}

static int devices_text(const struct topology *t, struct base_buf *out)
{
    int status = YOLK_OK;
    char place[64], size[32];
    for (uint32_t i = 0; i < t->gpu_count && status == YOLK_OK; i++) {
        place_text(&t->gpus[i].place, place, sizeof(place));
        status = base_buf_printf(out, "gpu  cuda:%-7u %s", i, place);
        if (status == YOLK_OK)
            status = distances_text(t, &t->gpus[i].place, out);
    }
    for (uint32_t i = 0; i < t->disk_count && status == YOLK_OK; i++) {
        const struct topology_disk *disk = &t->disks[i];
        place_text(&disk->place, place, sizeof(place));
        size_text(disk->bytes, size, sizeof(size));
        status = base_buf_printf(out, "disk %-12s %s%s, %s%s%s\n", disk->name, size,
                                 disk->rotational ? ", rotating" : "", place,
                                 disk->model[0] != '\0' ? ", " : "", disk->model);
    }
    return status;
}

static int memories_text(const struct topology *t, struct base_buf *out)
{
    int status = YOLK_OK;
    for (uint32_t i = 0; i < t->memory_count && status == YOLK_OK; i++) {
        const struct topology_memory *memory = &t->memories[i];
        status = base_buf_printf(out, "near %-11s:", memory->name);
        for (uint32_t r = 0; r < TOPOLOGY_RANKS && status == YOLK_OK; r++) {
            for (uint32_t k = 0; k < memory->counts[r] && status == YOLK_OK; k++)
                status = base_buf_printf(out, "%s%s",
                                         k > 0    ? " "
                                         : r == 0 ? " "
                                                  : " | ",
                                         t->nics[memory->nics[r][k]].name);
        }
        if (status == YOLK_OK)
            status = base_buf_printf(out, "\n");
    }
    return status;
}

int topology_text(const struct topology *t, struct base_buf *out)
{
    int status = nodes_text(t, out);
    if (status == YOLK_OK)
        status = nics_text(t, out);
    if (status == YOLK_OK)
        status = devices_text(t, out);
    if (status == YOLK_OK)
        status = memories_text(t, out);
    if (status == YOLK_OK && t->cut)
        status = base_buf_printf(out, "There is more than is shown here.\n");
    return status;
}
