/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk doctor` */
#include "cli/doctor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
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

static int print_json(const struct doctor_item *items, size_t count)
{
    json_t *root = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", items[i].name,
                                              "grade", grade_name(items[i].grade), "found",
                                              items[i].found, "use", items[i].use));
    json_object_set_new(root, "version", json_string(YOLK_VERSION));
    json_object_set_new(root, "items", list);
    char *topology = topology_as(topology_json);
    json_object_set_new(root, "topology", topology ? json_loads(topology, 0, NULL) : json_null());
    free(topology);
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed ? CLI_FAILED : CLI_OK;
}

int cli_doctor(int argc, char **argv)
{
    struct base_config config;
    struct doctor_item items[DOCTOR_MAX_ITEMS];
    struct stat info;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    const char *path = base_config_string(&config, SET_PATH);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        code = cli_usage_error(&command, "--path %s: it must be a directory that exists", path);
    } else {
        size_t count = doctor_examine(path, items);
        code = CLI_OK;
        if (base_config_bool(&config, SET_DOCTOR_JSON)) {
            code = print_json(items, count);
        } else {
            for (size_t i = 0; i < count; i++)
                printf("%-15s %-8s %s\n%24s %s\n", items[i].name, grade_name(items[i].grade),
                       items[i].found, "", items[i].use);
            char *topology = topology_as(topology_text);
            printf("\n%s", topology ? topology : "");
            free(topology);
        }
    }
    base_config_free(&config);
    return code;
}
