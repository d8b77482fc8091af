/* SPDX-License-Identifier: Apache-2.0 */
#include "peer/metadata.h"

#include <string.h>

#include "base/error.h"
#include "peer/metadata_kinds.h"

enum yolk_status metadata_blame(enum yolk_status status)
{
    if (status == YOLK_ERR_EOF)
        return YOLK_ERR_LINK;
    return status == YOLK_ERR_TOO_LARGE ? YOLK_ERR_PROTOCOL : status;
}

enum yolk_status metadata_open(const char *url, struct metadata **out)
{
    static const struct metadata_ops *const kinds[] = {&metadata_http_ops, &metadata_etcd_ops,
                                                       &metadata_redis_ops};
    const char *end = strstr(url, "://");
    for (size_t i = 0; end != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i]->scheme) == (size_t)(end - url) &&
            strncmp(kinds[i]->scheme, url, (size_t)(end - url)) == 0)
            return kinds[i]->open(end + 3, out);
    return base_fail(YOLK_ERR_CONFIG, 0,
                     "metadata service \"%s\": must be P2PHANDSHAKE or an address that begins with "
                     "http://, etcd:// or redis://",
                     url);
}
