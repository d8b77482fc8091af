/* SPDX-License-Identifier: Apache-2.0 */
/* What a store may be opened with. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/limits.h"
#include "store/internal.h"

enum { PUT_WAIT_DEFAULT_MS = 1000, TIMEOUT_DEFAULT_MS = 30000, GRACE_DEFAULT_MS = 5000 };
enum { CONNECT_WAIT_DEFAULT_MS = 2000 };
enum { SSD_SYNC_DEFAULT_MS = 100, SSD_SYNC_MAX_MS = 60000 };

void yolk_store_options_init(struct yolk_store_options *options)
{
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->put_wait_ms = PUT_WAIT_DEFAULT_MS;
    options->timeout_ms = TIMEOUT_DEFAULT_MS;
    options->drain_grace_ms = GRACE_DEFAULT_MS;
    options->connect_wait_ms = CONNECT_WAIT_DEFAULT_MS;
    options->replica_num = 1;
    options->ssd_sync_ms = SSD_SYNC_DEFAULT_MS;
}

enum { GDS_UNIT = 4096 }; /* an extent has at least one */

bool store_options_embedded(const struct yolk_store_options *options)
{
    return options->master != NULL && strcmp(options->master, "embedded") == 0;
}

bool store_options_dummy(const struct yolk_store_options *options)
{
    return options->real_client != NULL && options->real_client[0] != '\0';
}

bool store_options_node(const struct yolk_store_options *options)
{
    return (options->segment_size_bytes > 0 && !options->egm_enabled) || options->gds_enabled;
}

/* Of the extent files. */
static int check_path(const char *name, const char *path)
{
    struct stat info;
    char parent[PATH_MAX];
    if (path[0] != '/' || path[strlen(path) - 1] == '/')
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option %s is \"%s\": must be the absolute path of a file", name,
                         path);
    if (strlen(path) >= sizeof(parent))
        return base_fail(YOLK_ERR_CONFIG, 0, "store option %s is of %zu bytes: too long", name,
                         strlen(path));
    snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path + 1), path);
    if (stat(parent, &info) != 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "store option %s is \"%s\": no folder %s", name,
                         path, parent);
    if (!S_ISDIR(info.st_mode))
        return base_fail(YOLK_ERR_CONFIG, 0, "store option %s is \"%s\": %s is no folder", name,
                         path, parent);
    /* The files are made beside it: in /dev, of a device. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return base_fail(
            YOLK_ERR_CONFIG, 0,
            "store option %s is \"%s\": must be the path of a file, and is a folder, a "
            "device or the like",
            name, path);
    return YOLK_OK;
}

static int check_ssd(const struct yolk_store_options *options)
{
    const char *path = options->ssd_path == NULL ? "" : options->ssd_path;
    if (options->ssd_size_bytes == 0 && path[0] != '\0')
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option ssd_path is \"%s\" but ssd_size_bytes is 0: say how much of "
                         "the disk may be used",
                         path);
    if (options->ssd_size_bytes == 0)
        return YOLK_OK;
    if (options->segment_size_bytes == 0)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option ssd_size_bytes needs segment_size_bytes: what goes to the "
                         "disk comes from the node's memory");
    if (options->ssd_size_bytes > MAX_SEGMENT_SIZE)
        return base_fail(
            YOLK_ERR_CONFIG, 0, "store option ssd_size_bytes is %llu, the largest is %llu",
            (unsigned long long)options->ssd_size_bytes, (unsigned long long)MAX_SEGMENT_SIZE);
    if (options->ssd_sync_ms == 0 || options->ssd_sync_ms > SSD_SYNC_MAX_MS)
        return base_fail(YOLK_ERR_CONFIG, 0, "store option ssd_sync_ms is %llu: must be 1 to %d",
                         (unsigned long long)options->ssd_sync_ms, SSD_SYNC_MAX_MS);
    return check_path("ssd_path", path);
}

static int check_gds(const struct yolk_store_options *options)
{
    const char *path = options->gds_path == NULL ? "" : options->gds_path;
    if (!options->gds_enabled)
        return YOLK_OK;
    if (store_options_dummy(options))
        return base_fail(
            YOLK_ERR_CONFIG, 0,
            "store option gds_enabled is 1: a dummy client (real_client is \"%s\") has "
            "no GDS file",
            options->real_client);
    if (options->gds_capacity_bytes < GDS_UNIT || options->gds_capacity_bytes > MAX_SEGMENT_SIZE)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option gds_capacity_bytes is %llu: must be %d to %llu (in the "
                         "environment it is MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES)",
                         (unsigned long long)options->gds_capacity_bytes, GDS_UNIT,
                         (unsigned long long)MAX_SEGMENT_SIZE);
    if (options->gds_no_cufile && !options->gds_allow_fallback)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option gds_no_cufile is 1: needs gds_allow_fallback");
    if (options->ssd_size_bytes > 0 && options->ssd_path != NULL &&
        strcmp(options->ssd_path, path) == 0)
        return base_fail(
            YOLK_ERR_CONFIG, 0,
            "store options ssd_path and gds_path are both \"%s\": each needs a file of "
            "its own",
            path);
    int status = check_path("gds_path", path);
    return status == YOLK_OK
               ? YOLK_OK
               : base_fail_context(status, "the GDS file (MOONCAKE_GDS_OFFLOAD_PATH)");
}

int store_check_options(const struct yolk_store_options *options)
{
    if (options->struct_size != sizeof(*options))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store options are of %zu bytes, this library's are of %zu: call "
                         "yolk_store_options_init, or rebuild",
                         options->struct_size, sizeof(*options));
    bool dummy = store_options_dummy(options);
    if (dummy && (options->master != NULL || options->segment_size_bytes > 0))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option real_client is \"%s\": then neither master nor "
                         "segment_size_bytes may be set",
                         options->real_client);
    if (options->pool_size_bytes > MAX_SEGMENT_SIZE)
        return base_fail(
            YOLK_ERR_CONFIG, 0, "store option pool_size_bytes is %llu, the largest is %llu",
            (unsigned long long)options->pool_size_bytes, (unsigned long long)MAX_SEGMENT_SIZE);
    if (!dummy && (options->master == NULL || options->master[0] == '\0'))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option master is not set: give host:port or embedded");
    if (options->segment_size_bytes > MAX_SEGMENT_SIZE && !options->egm_enabled)
        return base_fail(
            YOLK_ERR_CONFIG, 0, "store option segment_size_bytes is %llu, the largest is %llu",
            (unsigned long long)options->segment_size_bytes, (unsigned long long)MAX_SEGMENT_SIZE);
    if (options->timeout_ms == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "store option timeout_ms is 0");
    if (options->put_wait_ms > options->timeout_ms)
        return base_fail(
            YOLK_ERR_CONFIG, 0, "store option put_wait_ms (%llu) is larger than timeout_ms (%llu)",
            (unsigned long long)options->put_wait_ms, (unsigned long long)options->timeout_ms);
    if (options->replica_num == 0 || options->replica_num > STORE_PUT_REPLICAS_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "store option replica_num is %u: must be 1 to %d",
                         options->replica_num, STORE_PUT_REPLICAS_MAX);
    if (options->eviction_high_watermark_permille > 1000)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "store option eviction_high_watermark_permille is %llu: at most 1000",
                         (unsigned long long)options->eviction_high_watermark_permille);
    int status = check_ssd(options);
    if (status == YOLK_OK)
        status = check_gds(options);
    return status == YOLK_OK ? store_egm_check(options) : status;
}
