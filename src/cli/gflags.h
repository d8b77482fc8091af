/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines as the gflags library reads them: -x and --x, --x=VALUE, --x VALUE, a bool as --x,
 * --nox or --x=false, "--" ends them; and its own flags --flagfile, --fromenv, --tryfromenv and
 * --undefok. '-' and '_' are the same in a name.
 */
#ifndef CLI_GFLAGS_H
#define CLI_GFLAGS_H

#include "yolk/status.h"

#define GFLAGS_NAME_MAX 64      /* with its end */
#define GFLAGS_FILE_MAX 1048576 /* bytes of a flag file */
#define GFLAGS_DEPTH    8       /* flag files that name each other */

enum gflags_kind { GFLAGS_UNKNOWN, GFLAGS_BOOL, GFLAGS_VALUE };

struct gflags_reader {
    const char *program; /* flag files may say which program their lines are for */
    void *self;
    /* `name` has '_' for '-'. */
    enum gflags_kind (*kind)(void *self, const char *name);
    /* One flag; a later one of the same name replaces it. `where` is as it was written, for
     * messages. */
    int (*take)(void *self, const char *name, const char *value, const char *where);
    /* A name that `kind` does not know and --undefok does not list; fails with a sentence. */
    int (*unknown)(void *self, const char *name, const char *where);
};

/* CONFIG with a sentence that names the argument, or what `take` or `unknown` answered. */
YOLK_MUST_USE int gflags_read(const struct gflags_reader *reader, int argc, char *const *argv);

#endif
