/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk doctor` */
#include "cli/doctor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
#include "cli/doctor_gpu.h"
#include "engine/topology.h"

static const struct cli_command command = {
    "doctor", "", "Says what of this machine is used, and why not the rest.", COMMAND_DOCTOR};

static const char *grade_name(enum doctor_grade grade)
{
    switch (grade) {
    case DOCTOR_USED:
        return "used";
    case DOCTOR_LIMITED:
        return "limited";
    default:
        return "unused";
    }
}

/* The topology as either text; NULL: no memory. */
static char *topology_as(int (*write)(const struct topology *, struct base_buf *))
{
    struct topology *topology;
    struct base_buf out;
    if (topology_read("", &topology) != YOLK_OK)
        return NULL;
    topology_rank(topology);
    base_buf_init(&out, 4u << 20);
    int status = write(topology, &out);
    if (status == YOLK_OK)
        status = base_buf_append(&out, "", 1);
    free(topology);
    if (status == YOLK_OK)
        return (char *)out.data;
    base_buf_free(&out);
    return NULL;
}

struct items {
    struct doctor_item items[DOCTOR_MAX_ITEMS];
    size_t count;
    struct doctor_item gpu[DOCTOR_GPU_ITEMS_MAX]; /* the way to a file, where one was asked for */
    size_t gpu_count;
};

static json_t *json_items(const struct doctor_item *items, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", items[i].name,
                                              "grade", grade_name(items[i].grade), "found",
                                              items[i].found, "use", items[i].use));
    return list;
}

static void print_items(const struct doctor_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%-15s %-8s %s\n%24s %s\n", items[i].name, grade_name(items[i].grade),
               items[i].found, "", items[i].use);
}

static int print_json(const struct items *all)
{
    json_t *root = json_object();
    json_object_set_new(root, "version", json_string(YOLK_VERSION));
    json_object_set_new(root, "items", json_items(all->items, all->count));
    if (all->gpu_count > 0)
        json_object_set_new(root, "gpu_file", json_items(all->gpu, all->gpu_count));
    char *topology = topology_as(topology_json);
    json_object_set_new(root, "topology", topology ? json_loads(topology, 0, NULL) : json_null());
    free(topology);
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed ? CLI_FAILED : CLI_OK;
}

static void print_text(const struct items *all)
{
    char *topology = topology_as(topology_text);
    print_items(all->items, all->count);
    printf("\n%s", topology ? topology : "");
    free(topology);
    if (all->gpu_count > 0)
        printf("\nBetween the GPU and files:\n");
    print_items(all->gpu, all->gpu_count);
}

int cli_doctor(int argc, char **argv)
{
    struct base_config config;
    struct stat info;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    const char *path = base_config_string(&config, SET_PATH);
    struct items *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        code = cli_failure(&command, YOLK_ERR_NO_MEMORY, "a list of items");
    } else if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        code = cli_usage_error(&command, "--path %s: it must be a directory that exists", path);
    } else {
        if (base_config_given(&config, SET_GPU))
            all->gpu_count =
                doctor_gpu_examine((int)base_config_u64(&config, SET_GPU), path, all->gpu);
        all->count = doctor_examine(path, all->items);
        code = CLI_OK;
        if (base_config_bool(&config, SET_DOCTOR_JSON))
            code = print_json(all);
        else
            print_text(all);
    }
    free(all);
    base_config_free(&config);
    return code;
}
