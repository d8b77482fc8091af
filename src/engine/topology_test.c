/* SPDX-License-Identifier: Apache-2.0 */
/* The fixtures are lists of files ("path = text") and links ("path -> target"), of which the test
 * makes a tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/engine.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/topology.h"
#include "platform/memory.h"
#include "platform/sysfs.h"
#include "platform/temporary_kit.h"

/* ---- trees ---- */

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static void plant(const char *root, char *line)
{
    char path[1200];
    char *arrow = strstr(line, " -> "), *equals = strstr(line, " = ");
    char *middle = arrow != NULL ? arrow : equals;
    assert_non_null(middle);
    *middle = '\0';
    snprintf(path, sizeof(path), "%s/%s", root, line);
    make_folders(path);
    if (arrow != NULL) {
        assert_int_equal(symlink(arrow + 4, path), 0);
        return;
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", equals + 3);
    fclose(file);
}

static void make_tree(const char *name, char root[TEMPORARY_MAX])
{
    char line[1024];
    snprintf(root, TEMPORARY_MAX, "yolk-topology-XXXXXX");
    temporary_path(root);
    assert_non_null(mkdtemp(root));
    snprintf(line, sizeof(line), "%s/test/fixtures/%s", YOLK_SOURCE_DIR, name);
    FILE *file = fopen(line, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        plant(root, line);
    }
    fclose(file);
}

static void remove_tree(const char *path)
{
    char(*names)[SYSFS_NAME_MAX] = calloc(512, SYSFS_NAME_MAX);
    size_t count = sysfs_names(path, ".", names, 512);
    assert_true(count <= 512);
    for (size_t i = 0; i < count; i++) {
        char below[1024];
        struct stat info;
        snprintf(below, sizeof(below), "%s/%s", path, names[i]);
        assert_int_equal(lstat(below, &info), 0);
        if (S_ISDIR(info.st_mode))
            remove_tree(below);
        else
            assert_int_equal(unlink(below), 0);
    }
    free(names);
    assert_int_equal(rmdir(path), 0);
}

static struct topology *read_fixture(const char *name)
{
    char root[TEMPORARY_MAX];
    struct topology *t;
    make_tree(name, root);
    assert_int_equal(topology_read(root, &t), YOLK_OK);
    remove_tree(root);
    return t;
}

static struct topology *two_sockets(void)
{
    struct topology *t = read_fixture("sysfs-two-sockets.txt");
    topology_rank(t);
    return t;
}

/* ---- what is there ---- */

static void nodes_have_cpus_memory_and_distances(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    assert_int_equal(t->node_count, 2);
    assert_int_equal(t->nodes[1].id, 1);
    assert_string_equal(t->nodes[1].cpus, "56-111,168-223");
    assert_true(t->nodes[0].memory_bytes == UINT64_C(1056270000) * 1024);
    assert_int_equal(t->nodes[0].distances[0], 10);
    assert_int_equal(t->nodes[0].distances[1], 21);
    assert_int_equal(t->nodes[1].distances[0], 21);
    free(t);
}

static void network_devices_have_speed_state_and_place(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    /* RDMA first; virtual ones are left out. */
    static const char *const NAMES[] = {"mlx5_0", "mlx5_1", "mlx5_10", "eth0",
                                        "eth2",   "eth10",  "ib0"};
    assert_int_equal(t->nic_count, 7);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(t->nics[i].name, NAMES[i]);
    const struct topology_nic *nic = topology_nic_named(t, "mlx5_0");
    assert_int_equal(nic->type, TOPOLOGY_RDMA);
    assert_true(nic->up);
    assert_string_equal(nic->state, "ACTIVE");
    assert_int_equal(nic->speed_mbits, 400000);
    assert_string_equal(nic->link_layer, "Ethernet");
    assert_string_equal(nic->sibling, "eth2");
    assert_string_equal(nic->place.pci, "0000:1a:00.0");
    assert_string_equal(nic->place.path,
                        "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0");
    assert_int_equal(nic->place.node, 0);
    assert_false(topology_nic_named(t, "mlx5_10")->up);
    assert_int_equal(topology_nic_named(t, "mlx5_10")->place.node, 1);
    nic = topology_nic_named(t, "eth0");
    assert_int_equal(nic->type, TOPOLOGY_TCP);
    assert_int_equal(nic->speed_mbits, 10000);
    assert_true(nic->up);
    assert_int_equal(topology_nic_named(t, "eth10")->speed_mbits, -1);
    assert_false(topology_nic_named(t, "eth10")->up);
    assert_null(topology_nic_named(t, "lo"));
    assert_null(topology_nic_named(t, "docker0"));
    free(t);
}

static void gpus_and_disks_are_found_without_their_drivers(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    /* No other maker's display, no other function of NVIDIA's. */
    assert_int_equal(t->gpu_count, 2);
    assert_string_equal(t->gpus[0].place.pci, "0000:19:00.0");
    assert_int_equal(t->gpus[0].place.node, 0);
    assert_string_equal(t->gpus[0].device_id, "0x2335");
    assert_string_equal(t->gpus[1].place.pci, "0000:98:00.0");
    assert_int_equal(t->gpus[1].place.node, 1);
    assert_int_equal(t->disk_count, 1);
    assert_string_equal(t->disks[0].name, "nvme0n1");
    assert_string_equal(t->disks[0].place.pci, "0000:1b:00.0");
    assert_true(t->disks[0].bytes == UINT64_C(7501476528) * 512);
    assert_false(t->disks[0].rotational);
    assert_string_equal(t->disks[0].model, "SAMSUNG MZQL23T8HCLS-00A07");
    free(t);
}

static void a_virtual_machine_has_one_node_for_all(void **state)
{
    (void)state;
    struct topology *t = read_fixture("sysfs-virtual-machine.txt");
    topology_rank(t);
    assert_int_equal(t->node_count, 1);
    assert_int_equal(t->nic_count, 1);
    assert_string_equal(t->nics[0].place.pci, "0000:00:03.0");
    assert_int_equal(t->nics[0].place.node, 0); /* the firmware says -1 */
    assert_int_equal(t->nics[0].speed_mbits, -1);
    assert_int_equal(t->disk_count, 1);
    assert_true(t->disks[0].rotational);
    assert_true(t->disks[0].bytes == UINT64_C(1) << 30);
    assert_int_equal(topology_memory_named(t, "cpu:0")->counts[0], 1);
    free(t);
}

static void where_there_is_nothing_there_is_nothing(void **state)
{
    (void)state;
    struct topology *t;
    assert_int_equal(topology_read("/nonexistent", &t), YOLK_OK);
    topology_rank(t);
    assert_int_equal(t->node_count + t->nic_count + t->gpu_count + t->disk_count, 0);
    assert_int_equal(t->memory_count, 1);
    assert_string_equal(t->memories[0].name, "*");
    free(t);
}

static void this_machine_can_be_read(void **state)
{
    (void)state;
    struct topology *t;
    struct base_buf text;
    assert_int_equal(topology_read("", &t), YOLK_OK);
    topology_rank(t);
    base_buf_init(&text, 1 << 20);
    assert_int_equal(topology_json(t, &text), YOLK_OK);
    assert_int_equal(topology_text(t, &text), YOLK_OK);
    base_buf_free(&text);
    free(t);
}

/* ---- distances and ranks ---- */

static void pcie_distances(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    const struct topology_place *gpu = &t->gpus[0].place;
    static const struct {
        const char *nic;
        enum topology_distance distance;
        uint32_t hops;
    } ROWS[] = {
        {"mlx5_0", TOPOLOGY_SAME_SWITCH, 4},
        {"mlx5_1", TOPOLOGY_SAME_ROOT, 6},
        {"eth0", TOPOLOGY_SAME_NODE, UINT32_MAX},
        {"mlx5_10", TOPOLOGY_OTHER_NODE, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const struct topology_place *place = &topology_nic_named(t, ROWS[i].nic)->place;
        assert_int_equal(topology_distance(gpu, place), ROWS[i].distance);
        assert_int_equal(topology_distance(place, gpu), ROWS[i].distance);
        assert_int_equal(topology_hops(gpu, place), ROWS[i].hops);
    }
    const struct topology_place nowhere = {.node = -1};
    assert_int_equal(topology_distance(gpu, &nowhere), TOPOLOGY_DISTANCE_UNKNOWN);
    free(t);
}

/* "a b | c | d": the ranks of a location. */
static void check_ranks(const struct topology *t, const char *location, const char *wanted)
{
    const struct topology_memory *memory = topology_memory_named(t, location);
    char text[512] = "";
    size_t used = 0;
    assert_non_null(memory);
    for (uint32_t r = 0; r < TOPOLOGY_RANKS; r++) {
        for (uint32_t i = 0; i < memory->counts[r]; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s ",
                                     t->nics[memory->nics[r][i]].name);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", r < 2 ? "| " : "");
    }
    assert_string_equal(text, wanted);
}

static void near_devices_come_first(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    assert_int_equal(t->memory_count, 5);
    check_ranks(t, "cpu:0", "mlx5_0 mlx5_1 eth0 eth2 ib0 | | mlx5_10 eth10 ");
    check_ranks(t, "cpu:1", "mlx5_10 eth10 | | mlx5_0 mlx5_1 eth0 eth2 ib0 ");
    check_ranks(t, "cuda:0", "mlx5_0 eth2 | mlx5_1 eth0 ib0 | mlx5_10 eth10 ");
    check_ranks(t, "cuda:1", "mlx5_10 eth10 | | mlx5_0 mlx5_1 eth0 eth2 ib0 ");
    check_ranks(t, "*", "| | mlx5_0 mlx5_1 mlx5_10 eth0 eth2 eth10 ib0 ");
    assert_string_equal(topology_near_memory(t, "cuda:1", TOPOLOGY_HOST), "cpu:1");
    assert_string_equal(topology_near_memory(t, "cpu:0", TOPOLOGY_CUDA), "cuda:0");
    assert_string_equal(topology_near_memory(t, "*", TOPOLOGY_HOST), "cpu:0");
    assert_string_equal(topology_near_memory(t, "cpu:0", TOPOLOGY_ROCM), "");
    free(t);
}

static void lists_choose_among_rdma_devices(void **state)
{
    (void)state;
    static const struct {
        const char *white, *black, *wanted;
    } ROWS[] = {
        {NULL, NULL, "| | mlx5_0 mlx5_1 mlx5_10 eth0 eth2 eth10 ib0 "},
        {" mlx5_1 , mlx5_10,", "mlx5_1", "| | mlx5_1 mlx5_10 eth0 eth2 eth10 ib0 "},
        {"", "mlx5_1", "| | mlx5_0 mlx5_10 eth0 eth2 eth10 ib0 "},
        {"none", NULL, "| | eth0 eth2 eth10 ib0 "},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct topology *t = read_fixture("sysfs-two-sockets.txt");
        topology_filter(t, ROWS[i].white, ROWS[i].black);
        topology_rank(t);
        check_ranks(t, "*", ROWS[i].wanted);
        free(t);
    }
}

/* ---- named devices, locations ---- */

static void c120_a_named_device_is_there_and_up_or_an_error(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    assert_int_equal(topology_require(t, NULL), YOLK_OK);
    assert_int_equal(topology_require(t, ""), YOLK_OK);
    assert_int_equal(topology_require(t, "mlx5_0, eth0"), YOLK_OK);
    assert_int_equal(topology_require(t, "mlx5_0,mlx5_9"), YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(), "\"mlx5_9\" does not exist here; found: mlx5_0 (up), "
                                              "mlx5_1 (up), mlx5_10 (DOWN), eth0 (up)"));
    assert_int_equal(topology_require(t, "mlx5_10"), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "\"mlx5_10\" is DOWN; found: mlx5_0 (up)"));
    assert_int_equal(topology_require(t, "mlx5_1x"), YOLK_ERR_NOT_FOUND);
    t->nic_count = 0;
    assert_int_equal(topology_require(t, "mlx5_0"), YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(), "found: none"));
    free(t);
}

static void locations_are_names(void **state)
{
    (void)state;
    enum topology_memory_type type;
    int index;
    assert_int_equal(topology_location_parse("cpu:3", &type, &index), YOLK_OK);
    assert_int_equal(type, TOPOLOGY_HOST);
    assert_int_equal(index, 3);
    assert_int_equal(topology_location_parse("cuda:0", &type, &index), YOLK_OK);
    assert_int_equal(type, TOPOLOGY_CUDA);
    assert_int_equal(topology_location_parse("*", &type, &index), YOLK_OK);
    assert_int_equal(index, -1);
    static const char *const BAD[] = {"",      "cpu",    "cpu:",  "cpu:-1",
                                      "cpu:x", "cpu:1 ", "gpu:0", "cuda:99999"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_int_equal(topology_location_parse(BAD[i], &type, &index), YOLK_ERR_INVALID);
}

/* ---- JSON ---- */

static char *json_of(const struct topology *t)
{
    struct base_buf out;
    base_buf_init(&out, 1 << 20);
    assert_int_equal(topology_json(t, &out), YOLK_OK);
    assert_int_equal(base_buf_append(&out, "", 1), YOLK_OK);
    return (char *)out.data;
}

static void its_json_is_tents_and_comes_back(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    char *text = json_of(t);
    struct base_json *json;
    assert_int_equal(base_json_parse("it", text, strlen(text), &json), YOLK_OK);
    const struct base_json *nic = base_json_member(json, "nics")->first;
    assert_string_equal(base_json_member(nic, "name")->text, "mlx5_0");
    assert_string_equal(base_json_member(nic, "pci_bus_id")->text, "0000:1a:00.0");
    assert_string_equal(base_json_member(nic, "type")->text, "0");
    assert_string_equal(base_json_member(nic, "numa_node")->text, "0");
    const struct base_json *memory = base_json_member(json, "mems")->first;
    assert_string_equal(base_json_member(memory, "name")->text, "cpu:0");
    assert_string_equal(base_json_member(memory, "type")->text, "0");
    const struct base_json *ranks = base_json_member(memory, "device_list");
    assert_string_equal(base_json_member(ranks, "rank0")->first->text, "0");
    assert_null(base_json_member(ranks, "rank1")->first);
    assert_string_equal(base_json_member(ranks, "rank2")->first->text, "2");
    base_json_free(json);

    struct topology *back = calloc(1, sizeof(*back));
    assert_int_equal(topology_parse(back, text, strlen(text)), YOLK_OK);
    assert_int_equal(back->nic_count, t->nic_count);
    assert_int_equal(back->memory_count, t->memory_count);
    for (uint32_t i = 0; i < t->memory_count; i++) {
        assert_string_equal(back->memories[i].name, t->memories[i].name);
        assert_memory_equal(back->memories[i].counts, t->memories[i].counts,
                            sizeof(t->memories[i].counts));
    }
    check_ranks(back, "cuda:0", "mlx5_0 eth2 | mlx5_1 eth0 ib0 | mlx5_10 eth10 ");
    free(back);
    free(text);
    free(t);
}

static void a_priority_matrix_names_devices(void **state)
{
    (void)state;
    static const char text[] = "{\"cpu:0\": [[\"mlx5_0\"], [\"mlx5_1\", \"mlx5_2\"]],"
                               " \"cuda:0\": [[\"mlx5_1\"], []]}";
    struct topology *t = calloc(1, sizeof(*t));
    assert_int_equal(topology_parse(t, text, strlen(text)), YOLK_OK);
    assert_int_equal(t->nic_count, 3);
    check_ranks(t, "cpu:0", "mlx5_0 | mlx5_1 mlx5_2 | ");
    check_ranks(t, "cuda:0", "mlx5_1 | | ");
    check_ranks(t, "*", "mlx5_0 mlx5_1 | mlx5_1 mlx5_2 | ");
    free(t);
}

static void the_older_form_names_rdma_devices(void **state)
{
    (void)state;
    struct topology *t = two_sockets();
    struct base_buf out;
    base_buf_init(&out, 1 << 20);
    assert_int_equal(topology_matrix(t, &out), YOLK_OK);
    assert_int_equal(base_buf_append(&out, "", 1), YOLK_OK);
    assert_string_equal((char *)out.data, "{\"cpu:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_10\"]],"
                                          "\"cpu:1\":[[\"mlx5_10\"],[\"mlx5_0\",\"mlx5_1\"]],"
                                          "\"cuda:0\":[[\"mlx5_0\"],[\"mlx5_1\",\"mlx5_10\"]],"
                                          "\"cuda:1\":[[\"mlx5_10\"],[\"mlx5_0\",\"mlx5_1\"]]}");
    /* It can be given back. */
    struct topology *back = calloc(1, sizeof(*back));
    assert_int_equal(topology_parse(back, (char *)out.data, out.size - 1), YOLK_OK);
    check_ranks(back, "cuda:0", "mlx5_0 | mlx5_1 mlx5_10 | ");
    free(back);
    base_buf_free(&out);
    free(t);
}

static void the_public_call_takes_a_topology_of_its_callers(void **state)
{
    (void)state;
    char *text;
    struct yolk_topology_options options = {
        .struct_size = sizeof(options), .json = "{\"cpu:0\": [[\"a\"], [\"b\"]]}", .matrix = 1};
    assert_int_equal(yolk_topology(&options, &text), YOLK_OK);
    assert_string_equal(text, "{\"cpu:0\":[[\"a\"],[\"b\"]]}");
    free(text);
    options.json = "{";
    assert_int_equal(yolk_topology(&options, &text), YOLK_ERR_CONFIG);
    assert_int_equal(yolk_topology(NULL, &text), YOLK_OK);
    assert_non_null(strstr(text, "\"nics\":["));
    free(text);
    assert_int_equal(yolk_topology(NULL, NULL), YOLK_ERR_INVALID);
}

static void a_bad_topology_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "[]",
        "{}",
        "{\"nics\": 1}",
        "{\"nics\": [1]}",
        "{\"nics\": [{\"pci_bus_id\": \"x\"}]}",
        "{\"nics\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}",
        "{\"nics\": [{\"name\": \"a\", \"numa_node\": \"b\"}]}",
        "{\"nics\": [{\"name\": \"a\", \"type\": 9}]}",
        "{\"nics\": [], \"mems\": [{\"name\": \"cpu:0\", \"device_list\": {\"rank0\": [0]}}]}",
        "{\"nics\": [], \"mems\": [{\"name\": \"cpu:0\", \"device_list\": {\"rank0\": 0}}]}",
        "{\"cpu:0\": [[\"a\"]]}",
        "{\"cpu:0\": [[\"a\"], [\"b\"], []]}",
        "{\"cpu:0\": [\"a\", \"b\"]}",
        "{\"cpu:0\": [[1], []]}",
        "{\"zpu:0\": [[\"a\"], []]}",
        "{\"hip:0\": [[\"a\"], []], \"rocm:0\": [[\"a\"], []]}",
    };
    struct topology *t = two_sockets(), *before = calloc(1, sizeof(*before));
    memcpy(before, t, sizeof(*t));
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        int status = topology_parse(t, BAD[i], strlen(BAD[i]));
        if (status == YOLK_OK || yolk_last_error()[0] == '\0')
            fail_msg("%s was taken", BAD[i]);
        assert_memory_equal(t, before, sizeof(*t));
    }
    free(before);
    free(t);
}

/* ---- GIDs ---- */

#define LINK_LOCAL                                                                                 \
    {                                                                                              \
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x0e, 0x42, 0xa1, 0xff, 0xfe, 0, 0, 1                        \
    }
#define IPV4                                                                                       \
    {                                                                                              \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3                                      \
    }
#define IPV6                                                                                       \
    {                                                                                              \
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7                                     \
    }
#define V1 TOPOLOGY_GID_ROCE_V1
#define V2 TOPOLOGY_GID_ROCE_V2

static void c119_the_routable_gid_with_a_net_device_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct topology_gid table[5];
        size_t count;
        int wanted;
        enum yolk_status status;
        int index;
    } ROWS[] = {
        {"the first match is not the best one",
         {{0, LINK_LOCAL, V1, "eth2"},
          {1, LINK_LOCAL, V2, "eth2"},
          {2, IPV4, V1, "eth2"},
          {3, IPV4, V2, "eth2"}},
         4,
         -1,
         YOLK_OK,
         3},
        {"only link-local ones",
         {{0, LINK_LOCAL, V1, "eth2"}, {1, LINK_LOCAL, V2, "eth2"}},
         2,
         -1,
         YOLK_ERR_NOT_FOUND,
         0},
        {"only IPv6",
         {{0, LINK_LOCAL, V2, "eth2"}, {4, IPV6, V1, "eth2"}, {5, IPV6, V2, "eth2"}},
         3,
         -1,
         YOLK_OK,
         5},
        {"a virtual function without a net device beside one with it",
         {{0, IPV4, V2, ""}, {1, IPV6, V2, "eth3"}},
         2,
         -1,
         YOLK_OK,
         1},
        {"a virtual function without any", {{0, IPV4, V2, ""}}, 1, -1, YOLK_ERR_NOT_FOUND, 0},
        {"an explicit index is honoured, whatever it is",
         {{0, LINK_LOCAL, V1, ""}, {3, IPV4, V2, "eth2"}},
         2,
         0,
         YOLK_OK,
         0},
        {"unless it is not there", {{3, IPV4, V2, "eth2"}}, 1, 1, YOLK_ERR_NOT_FOUND, 0},
        {"only RoCE v1", {{0, LINK_LOCAL, V1, "eth2"}, {2, IPV4, V1, "eth2"}}, 2, -1, YOLK_OK, 2},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        int index = -7;
        int status =
            topology_gid_choose(ROWS[i].table, ROWS[i].count, false, ROWS[i].wanted, &index);
        if (status != (int)ROWS[i].status || (status == YOLK_OK && index != ROWS[i].index))
            fail_msg("%s: status %d, index %d", ROWS[i].why, status, index);
    }
    const struct topology_gid table[] = {{0, LINK_LOCAL, V1, "eth2"}, {6, IPV4, V2, ""}};
    int index;
    assert_int_equal(topology_gid_choose(table, 2, false, -1, &index), YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(),
                           "0: fe800000000000000e42a1fffe000001 RoCE v1 on eth2; "
                           "6: 00000000000000000000ffff0a010203 RoCE v2 on no network device"));
    assert_int_equal(topology_gid_choose(NULL, 0, false, -1, &index), YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(), "the table: it is empty"));
    /* InfiniBand routes by LID: its link-local entry without a net device is the right one. */
    assert_int_equal(topology_gid_choose(table, 1, true, -1, &index), YOLK_OK);
    assert_int_equal(index, 0);
}

static void gid_tables_are_read(void **state)
{
    (void)state;
    char root[TEMPORARY_MAX];
    struct topology_gid table[8];
    int index;
    make_tree("sysfs-two-sockets.txt", root);
    assert_int_equal(topology_gids_read(root, "mlx5_0", 1, table, 8), 4);
    assert_int_equal(table[1].type, TOPOLOGY_GID_ROCE_V2);
    assert_string_equal(table[1].netdev, "eth2");
    assert_int_equal(topology_gid_choose(table, 4, false, -1, &index), YOLK_OK);
    assert_int_equal(index, 3);
    assert_int_equal(topology_gids_read(root, "mlx5_10", 1, table, 8), 0);
    assert_int_equal(topology_gids_read(root, "mlx5_1", 1, table, 8), 1);
    assert_int_equal(topology_gid_choose(table, 1, true, -1, &index), YOLK_OK);
    remove_tree(root);
}

/* ---- pages ---- */

static void the_node_of_memory_is_that_of_its_pages(void **state)
{
    (void)state;
    size_t size = 64 * memory_page_size();
    uint8_t *memory = aligned_alloc(memory_page_size(), size);
    struct topology *t;
    int node = -1;
    assert_non_null(memory);
    memset(memory, 1, size);
    int status = memory_node(memory + 100, size - 100, &node);
    if (status == YOLK_ERR_UNSUPPORTED) {
        print_message("the kernel does not say where pages lie: %s\n", yolk_last_error());
    } else {
        assert_int_equal(status, YOLK_OK);
        assert_int_equal(topology_read("", &t), YOLK_OK);
        bool known = t->node_count == 0 && node == 0;
        for (uint32_t i = 0; i < t->node_count; i++)
            known = known || t->nodes[i].id == node;
        assert_true(known);
        free(t);
        assert_int_equal(memory_node((void *)(uintptr_t)0x10000, 1, &node), YOLK_ERR_NOT_FOUND);
    }
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_have_cpus_memory_and_distances),
        cmocka_unit_test(network_devices_have_speed_state_and_place),
        cmocka_unit_test(gpus_and_disks_are_found_without_their_drivers),
        cmocka_unit_test(a_virtual_machine_has_one_node_for_all),
        cmocka_unit_test(where_there_is_nothing_there_is_nothing),
        cmocka_unit_test(this_machine_can_be_read),
        cmocka_unit_test(pcie_distances),
        cmocka_unit_test(near_devices_come_first),
        cmocka_unit_test(lists_choose_among_rdma_devices),
        cmocka_unit_test(c120_a_named_device_is_there_and_up_or_an_error),
        cmocka_unit_test(locations_are_names),
        cmocka_unit_test(its_json_is_tents_and_comes_back),
        cmocka_unit_test(a_priority_matrix_names_devices),
        cmocka_unit_test(the_older_form_names_rdma_devices),
        cmocka_unit_test(the_public_call_takes_a_topology_of_its_callers),
        cmocka_unit_test(a_bad_topology_is_refused_and_changes_nothing),
        cmocka_unit_test(c119_the_routable_gid_with_a_net_device_is_chosen),
        cmocka_unit_test(gid_tables_are_read),
        cmocka_unit_test(the_node_of_memory_is_that_of_its_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
