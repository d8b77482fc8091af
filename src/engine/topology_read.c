/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /sys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yolk/engine.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/topology.h"
#include "platform/sysfs.h"

enum { NAMES_MAX = 4096 };

/* One folder's names, at most so many. */
struct names {
    char (*at)[SYSFS_NAME_MAX];
    size_t count;
    bool cut;
};

static void read_names(const char *root, const char *path, struct names *names)
{
    size_t count = sysfs_names(root, path, names->at, NAMES_MAX);
    names->cut = count > NAMES_MAX;
    names->count = names->cut ? NAMES_MAX : count;
}

/* The parts of a path of /sys/devices that are of PCI: "pci0000:00/0000:00:01.0/...". */
static void pci_part(const char *path, struct topology_place *place)
{
    const char *start = strstr(path, "pci");
    size_t used = 0;
    while (start != NULL && *start != '\0') {
        size_t size = strcspn(start, "/");
        unsigned domain, bus, device, function;
        char end;
        bool is_root = strncmp(start, "pci", 3) == 0;
        bool is_device =
            sscanf(start, "%4x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &end) >= 4 &&
            size < TOPOLOGY_PCI_MAX;
        if ((!is_root && !is_device) || used + size + 2 > sizeof(place->path))
            break;
        used += (size_t)snprintf(place->path + used, sizeof(place->path) - used, "%s%.*s",
                                 used > 0 ? "/" : "", (int)size, start);
        if (is_device)
            snprintf(place->pci, sizeof(place->pci), "%.*s", (int)size, start);
        start += size + (start[size] == '/');
    }
}

/* Where the device behind this folder of a class is. One node: it is that one's, whatever the
 * firmware says. */
static void read_place(const char *root, const struct topology *t, const char *folder,
                       struct topology_place *place)
{
    char path[SYSFS_PATH_MAX], link[SYSFS_PATH_MAX];
    int64_t node = -1;
    memset(place, 0, sizeof(*place));
    snprintf(link, sizeof(link), "%s", folder);
    if (sysfs_real(root, link, path, sizeof(path)))
        pci_part(path, place);
    if (place->pci[0] != '\0') {
        snprintf(link, sizeof(link), "sys/bus/pci/devices/%s/numa_node", place->pci);
        if (!sysfs_number(root, link, &node))
            node = -1;
    }
    if (node < 0 && t->node_count == 1)
        node = t->nodes[0].id;
    place->node = node < 0 || node > 4095 ? -1 : (int)node;
}

/* ---- NUMA nodes ---- */

static uint64_t node_memory(const char *root, int id)
{
    char path[SYSFS_PATH_MAX], line[128];
    unsigned long long kib = 0;
    snprintf(path, sizeof(path), "sys/devices/system/node/node%d/meminfo", id);
    if (sysfs_line(root, path, line, sizeof(line)) &&
        sscanf(line, "Node %*d MemTotal: %llu kB", &kib) == 1)
        return kib * 1024;
    return 0;
}

static void read_distances(const char *root, struct topology_node *node)
{
    char path[SYSFS_PATH_MAX], line[512];
    snprintf(path, sizeof(path), "sys/devices/system/node/node%d/distance", node->id);
    (void)sysfs_line(root, path, line, sizeof(line));
    char *at = line;
    for (int i = 0; i < TOPOLOGY_NODES_MAX && *at != '\0'; i++) {
        char *end;
        node->distances[i] = (int)strtol(at, &end, 10);
        if (end == at)
            break;
        at = end;
    }
}

static void read_nodes(const char *root, struct topology *t, struct names *names)
{
    read_names(root, "sys/devices/system/node", names);
    for (size_t i = 0; i < names->count; i++) {
        int id, end = 0;
        if (sscanf(names->at[i], "node%d%n", &id, &end) != 1 || names->at[i][end] != '\0')
            continue;
        if (t->node_count == TOPOLOGY_NODES_MAX) {
            t->cut = true;
            break;
        }
        struct topology_node *node = &t->nodes[t->node_count++];
        char path[SYSFS_PATH_MAX];
        node->id = id;
        snprintf(path, sizeof(path), "sys/devices/system/node/node%d/cpulist", id);
        (void)sysfs_line(root, path, node->cpus, sizeof(node->cpus));
        node->memory_bytes = node_memory(root, id);
        read_distances(root, node);
    }
}

/* ---- network devices ---- */

static struct topology_nic *add_nic(struct topology *t, const char *name,
                                    enum topology_nic_type type)
{
    if (t->nic_count == TOPOLOGY_NICS_MAX) {
        t->cut = true;
        return NULL;
    }
    struct topology_nic *nic = &t->nics[t->nic_count++];
    snprintf(nic->name, sizeof(nic->name), "%s", name);
    nic->type = type;
    nic->speed_mbits = -1;
    return nic;
}

/* "4: ACTIVE", "100 Gb/sec (4X EDR)". */
static void read_port(const char *root, struct topology_nic *nic)
{
    char path[SYSFS_PATH_MAX], line[64];
    double gbits;
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/1/state", nic->name);
    (void)sysfs_line(root, path, line, sizeof(line));
    const char *name = strchr(line, ':');
    name = name != NULL ? name + 1 + strspn(name + 1, " ") : line;
    snprintf(nic->state, sizeof(nic->state), "%.23s", name);
    nic->up = strcmp(nic->state, "ACTIVE") == 0;
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/1/rate", nic->name);
    if (sysfs_line(root, path, line, sizeof(line)) && sscanf(line, "%lf Gb/sec", &gbits) == 1)
        nic->speed_mbits = (int64_t)(gbits * 1000);
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/1/link_layer", nic->name);
    (void)sysfs_line(root, path, nic->link_layer, sizeof(nic->link_layer));
}

static void read_rdma(const char *root, struct topology *t, struct names *names)
{
    read_names(root, "sys/class/infiniband", names);
    for (size_t i = 0; i < names->count; i++) {
        struct topology_nic *nic = add_nic(t, names->at[i], TOPOLOGY_RDMA);
        char path[SYSFS_PATH_MAX];
        if (nic == NULL)
            return;
        snprintf(path, sizeof(path), "sys/class/infiniband/%s", nic->name);
        read_place(root, t, path, &nic->place);
        read_port(root, nic);
        snprintf(path, sizeof(path), "sys/class/infiniband/%s/device/net", nic->name);
        (void)sysfs_names(root, path, &nic->sibling, 1);
    }
}

static void read_net(const char *root, struct topology *t, struct names *names)
{
    read_names(root, "sys/class/net", names);
    for (size_t i = 0; i < names->count; i++) {
        char path[SYSFS_PATH_MAX], real[SYSFS_PATH_MAX];
        snprintf(path, sizeof(path), "sys/class/net/%s", names->at[i]);
        /* Loops, bridges and tunnels are no hardware. */
        if (!sysfs_real(root, path, real, sizeof(real)) || strstr(real, "/virtual/") != NULL)
            continue;
        struct topology_nic *nic = add_nic(t, names->at[i], TOPOLOGY_TCP);
        if (nic == NULL)
            return;
        read_place(root, t, path, &nic->place);
        snprintf(path, sizeof(path), "sys/class/net/%s/operstate", nic->name);
        (void)sysfs_line(root, path, nic->state, sizeof(nic->state));
        /* Drivers that do not say (of virtual machines) have a device that works. */
        nic->up = strcmp(nic->state, "up") == 0 || strcmp(nic->state, "unknown") == 0;
        snprintf(path, sizeof(path), "sys/class/net/%s/speed", nic->name);
        if (!sysfs_number(root, path, &nic->speed_mbits) || nic->speed_mbits <= 0)
            nic->speed_mbits = -1;
    }
}

/* ---- GPUs and disks ---- */

static void read_gpus(const char *root, struct topology *t, struct names *names)
{
    read_names(root, "sys/bus/pci/devices", names);
    for (size_t i = 0; i < names->count; i++) {
        char path[SYSFS_PATH_MAX];
        int64_t class, vendor;
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/class", names->at[i]);
        if (!sysfs_number(root, path, &class) || class >> 16 != 0x03)
            continue;
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/vendor", names->at[i]);
        if (!sysfs_number(root, path, &vendor) || vendor != 0x10de)
            continue;
        if (t->gpu_count == TOPOLOGY_GPUS_MAX) {
            t->cut = true;
            return;
        }
        struct topology_gpu *gpu = &t->gpus[t->gpu_count++];
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s", names->at[i]);
        read_place(root, t, path, &gpu->place);
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/device", names->at[i]);
        (void)sysfs_line(root, path, gpu->device_id, sizeof(gpu->device_id));
    }
}

static void read_disks(const char *root, struct topology *t, struct names *names)
{
    read_names(root, "sys/block", names);
    for (size_t i = 0; i < names->count; i++) {
        char path[SYSFS_PATH_MAX], real[SYSFS_PATH_MAX];
        int64_t value;
        snprintf(path, sizeof(path), "sys/block/%s", names->at[i]);
        if (!sysfs_real(root, path, real, sizeof(real)) || strstr(real, "/virtual/") != NULL)
            continue;
        if (t->disk_count == TOPOLOGY_DISKS_MAX) {
            t->cut = true;
            return;
        }
        struct topology_disk *disk = &t->disks[t->disk_count++];
        snprintf(disk->name, sizeof(disk->name), "%s", names->at[i]);
        read_place(root, t, path, &disk->place);
        snprintf(path, sizeof(path), "sys/block/%s/size", disk->name);
        if (sysfs_number(root, path, &value) && value > 0)
            disk->bytes = (uint64_t)value * 512;
        snprintf(path, sizeof(path), "sys/block/%s/queue/rotational", disk->name);
        disk->rotational = sysfs_number(root, path, &value) && value == 1;
        snprintf(path, sizeof(path), "sys/block/%s/device/model", disk->name);
        (void)sysfs_line(root, path, disk->model, sizeof(disk->model));
    }
}

int topology_read(const char *root, struct topology **out)
{
    struct topology *t = base_calloc(1, sizeof(*t));
    struct names names = {.at = base_calloc(NAMES_MAX, SYSFS_NAME_MAX)};
    if (t == NULL || names.at == NULL) {
        free(t);
        free(names.at);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the topology");
    }
    read_nodes(root, t, &names);
    read_rdma(root, t, &names);
    read_net(root, t, &names);
    read_gpus(root, t, &names);
    read_disks(root, t, &names);
    t->cut = t->cut || names.cut;
    free(names.at);
    *out = t;
    return YOLK_OK;
}

size_t topology_gids_read(const char *root, const char *device, int port,
                          struct topology_gid *table, size_t room)
{
    char path[SYSFS_PATH_MAX], text[64];
    size_t count = 0;
    for (int i = 0; i < 256; i++) {
        struct topology_gid gid = {.index = i};
        unsigned word[8];
        bool used = false;
        snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%d/gids/%d", device, port, i);
        if (!sysfs_line(root, path, text, sizeof(text)))
            break;
        if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &word[0], &word[1], &word[2], &word[3],
                   &word[4], &word[5], &word[6], &word[7]) != 8)
            continue;
        for (int w = 0; w < 8; w++) {
            gid.gid[2 * w] = (uint8_t)(word[w] >> 8);
            gid.gid[2 * w + 1] = (uint8_t)word[w];
            used = used || word[w] != 0;
        }
        if (!used)
            continue;
        snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device,
                 port, i);
        (void)sysfs_line(root, path, text, sizeof(text));
        gid.type = strcmp(text, "RoCE v2") == 0      ? TOPOLOGY_GID_ROCE_V2
                   : strcmp(text, "IB/RoCE v1") == 0 ? TOPOLOGY_GID_ROCE_V1
                                                     : TOPOLOGY_GID_IB;
        snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", device,
                 port, i);
        (void)sysfs_line(root, path, gid.netdev, sizeof(gid.netdev));
        if (count < room)
            table[count] = gid;
        count++;
    }
    return count;
}

enum yolk_status yolk_topology(const struct yolk_topology_options *options, char **text)
{
    static const struct yolk_topology_options defaults = {.struct_size = sizeof(defaults)};
    const struct yolk_topology_options *o = options != NULL ? options : &defaults;
    struct topology *t;
    struct base_buf out;
    if (text == NULL || o->struct_size < sizeof(*o))
        return base_fail(YOLK_ERR_INVALID, 0, "a topology needs room for the text and struct_size");
    enum yolk_status status = topology_read("", &t);
    if (status != YOLK_OK)
        return status;
    if (o->json != NULL) {
        status = topology_parse(t, o->json, strlen(o->json));
    } else {
        topology_filter(t, o->rdma_whitelist, o->rdma_blacklist);
        topology_rank(t);
    }
    base_buf_init(&out, 4u << 20);
    if (status == YOLK_OK)
        status = o->matrix ? topology_matrix(t, &out) : topology_json(t, &out);
    if (status == YOLK_OK)
        status = base_buf_append(&out, "", 1);
    free(t);
    if (status != YOLK_OK) {
        base_buf_free(&out);
        return status;
    }
    *text = (char *)out.data;
    return YOLK_OK;
}
