/* SPDX-License-Identifier: Apache-2.0 */
/* What Mooncake's setup() takes, as options of the library. */
#ifndef COMPAT_SETUP_H
#define COMPAT_SETUP_H

#include <yolk/store.h>

enum { COMPAT_NAME_MAX = 300 };

struct compat_setup {
    const char *local_hostname; /* each may be NULL */
    const char *protocol;
    const char *master;
    uint64_t segment_size;
};

/* What the options borrow. */
struct compat_names {
    char name[COMPAT_NAME_MAX]; /* "host:port" */
    char host[COMPAT_NAME_MAX];
    int keeper; /* keeps the port of `name` from others of this host; -1: nothing does */
};
void compat_names_free(struct compat_names *names);

YOLK_MUST_USE int compat_setup_options(const struct compat_setup *setup, struct compat_names *names,
                                       struct yolk_store_options *options);

#endif
