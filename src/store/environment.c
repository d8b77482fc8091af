/* SPDX-License-Identifier: Apache-2.0 */
/* The GDS tier's settings in the environment. */
#define LOG_ROOM "store"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yolk/store.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/text_file.h"
#include "store/internal.h"

#define PREFIX "MOONCAKE_GDS_OFFLOAD_"
#define CONF   "MC_TENT_CONF"
enum { DEPTH_MAX = 128 /* as the engine's options */ };

/* 0 or 1 and nothing else: these decide about data. */
static int take_flag(const char *name, int *out)
{
    const char *text = getenv(name);
    if (text == NULL)
        return YOLK_OK;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s is \"%.100s\": must be 0 or 1", name, text);
    *out = text[0] == '1';
    return YOLK_OK;
}

static int take_capacity(uint64_t *out)
{
    static const char *const names[] = {PREFIX "CAPACITY_BYTES",
                                        "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text == NULL || text[0] == '\0')
            continue;
        int status = base_parse_size(names[i], text, out);
        if (status == YOLK_OK && *out == 0)
            status = base_fail(YOLK_ERR_CONFIG, 0, "%s is \"%.100s\": must be more than 0 bytes",
                               names[i], text);
        return status;
    }
    return base_fail(YOLK_ERR_CONFIG, 0,
                     "%s is not set, nor is %s: the GDS tier needs one of them, the bytes of "
                     "values that its file may hold",
                     names[0], names[1]);
}

/* ---- MC_TENT_CONF ---- */

/* What is said there of transports; -1: nothing. */
struct said {
    int gds, uring, tcp;
    uint32_t depth;
};

static int take_enable(const char *label, const struct base_json *value, int *out)
{
    bool on;
    if (value->text == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s is an %s: must be true or false", label,
                         base_json_type_name(value->type));
    int status = base_parse_bool(label, value->text, &on);
    if (status == YOLK_OK)
        *out = on;
    return status;
}

static int take_depth(const char *label, const struct base_json *value, uint32_t *out)
{
    uint64_t depth;
    if (value->text == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s is an %s: must be a number", label,
                         base_json_type_name(value->type));
    int status = base_parse_u64(label, value->text, &depth);
    if (status == YOLK_OK && (depth == 0 || depth > DEPTH_MAX))
        status = base_fail(YOLK_ERR_CONFIG, 0, "%s is %s: must be 1 to %d", label, value->text,
                           DEPTH_MAX);
    if (status == YOLK_OK)
        *out = (uint32_t)depth;
    return status;
}

static int *enable_of(struct said *said, const char *path)
{
    return strcmp(path, "transports/gds/enable") == 0        ? &said->gds
           : strcmp(path, "transports/io_uring/enable") == 0 ? &said->uring
           : strcmp(path, "transports/tcp/enable") == 0      ? &said->tcp
                                                             : NULL;
}

static bool is_depth(const char *path)
{
    return strcmp(path, "transports/gds/io_batch_depth") == 0;
}

static bool is_known(void *self, const char *path)
{
    return enable_of(self, path) != NULL || is_depth(path);
}

/* A slip of the pen beside these would leave a setting out in silence; all else is the engine's. */
static int check_other(const char *path)
{
    static const char ours[] = "transports/gds/";
    if (strncmp(path, ours, sizeof(ours) - 1) != 0)
        return YOLK_OK;
    if (strcmp(path, "transports/gds/slice_bytes") != 0)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         CONF ": %s is not known: there are enable and io_batch_depth", path);
    log_warn(CONF ": transports/gds/slice_bytes has no effect on the store");
    return YOLK_OK;
}

static int take_said(void *self, const char *path, const struct base_json *value)
{
    struct said *said = self;
    char label[sizeof(CONF ": ") + BASE_JSON_PATH_MAX];
    int *enable = enable_of(said, path);
    (void)snprintf(label, sizeof(label), CONF ": %s", path);
    if (enable != NULL)
        return take_enable(label, value, enable);
    return is_depth(path) ? take_depth(label, value, &said->depth) : check_other(path);
}

static int read_conf(struct said *said)
{
    const struct base_json_settings settings = {CONF, is_known, take_said, said};
    struct base_json *root;
    const char *conf = getenv(CONF);
    if (conf == NULL || conf[0] == '\0')
        return YOLK_OK;
    int status = text_json(CONF, conf, &root);
    if (status != YOLK_OK)
        return status;
    status = base_json_settings(root, &settings);
    base_json_free(root);
    return status;
}

static int take_transports(struct yolk_store_options *options)
{
    struct said said = {-1, -1, -1, options->gds_io_batch_depth};
    int status = read_conf(&said);
    if (status != YOLK_OK)
        return status;
    if (said.tcp == 0)
        log_warn(CONF ": transports/tcp/enable is false, which has no effect on the store: its "
                      "setting `protocol` chooses the transport");
    if (said.gds != 1 && !options->gds_allow_fallback)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         CONF ": transports/gds/enable is %s: must be true for " PREFIX
                              "ENABLED=1 (or allow other ways by " PREFIX "ALLOW_FALLBACK=1)",
                         said.gds == 0 ? "false" : "not set");
    if (said.uring == 1 && !options->gds_allow_fallback)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         CONF ": transports/io_uring/enable is true: must be false for " PREFIX
                              "ENABLED=1, for GPU memory must not take it instead of cuFile (or "
                              "allow that by " PREFIX "ALLOW_FALLBACK=1)");
    options->gds_io_batch_depth = said.depth;
    options->gds_no_cufile = said.gds == 0;
    options->gds_no_io_uring = said.uring == 0;
    return YOLK_OK;
}

/* Every transfer of this store goes through the engine, whatever it says; but what is no value of
 * it may mean something else. */
static int check_memcpy(void)
{
    const char *text = getenv("MC_STORE_MEMCPY");
    bool on;
    return text == NULL || text[0] == '\0' ? YOLK_OK
                                           : base_parse_bool("MC_STORE_MEMCPY", text, &on);
}

enum yolk_status yolk_store_options_environment(struct yolk_store_options *options)
{
    struct yolk_store_options made = *options;
    if (store_options_dummy(options))
        return YOLK_OK;
    made.gds_enabled = 0;
    int status = take_flag(PREFIX "ENABLED", &made.gds_enabled);
    if (status != YOLK_OK || !made.gds_enabled)
        return status;
    made.gds_path = getenv(PREFIX "PATH");
    if (made.gds_path == NULL || made.gds_path[0] == '\0')
        status = base_fail(YOLK_ERR_CONFIG, 0,
                           PREFIX "PATH is not set: " PREFIX
                                  "ENABLED=1 needs the absolute path of a file");
    else if (made.gds_path[0] != '/')
        status = base_fail(YOLK_ERR_CONFIG, 0,
                           PREFIX "PATH is \"%.200s\": must be the absolute path of a file",
                           made.gds_path);
    if (status == YOLK_OK)
        status = take_flag(PREFIX "OPTIONAL", &made.gds_optional);
    if (status == YOLK_OK)
        status = take_flag(PREFIX "ALLOW_FALLBACK", &made.gds_allow_fallback);
    if (status == YOLK_OK)
        status = take_flag(PREFIX "START_EMPTY", &made.gds_start_empty);
    if (status == YOLK_OK)
        status = take_flag(PREFIX "VERIFY", &made.gds_verify);
    if (status == YOLK_OK)
        status = take_capacity(&made.gds_capacity_bytes);
    if (status == YOLK_OK)
        status = check_memcpy();
    if (status == YOLK_OK)
        status = take_transports(&made);
    if (status == YOLK_OK)
        *options = made;
    return status;
}
