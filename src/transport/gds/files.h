/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files registered with cuFile, and what is known of each: what mode a real transfer got, and how
 * many bytes went which way. A file is known by what serves it, in this process; it is registered
 * once, and given up when neither that nor a target needs it.
 */
#ifndef GDS_FILES_H
#define GDS_FILES_H

#include <stdatomic.h>

#include "transport/gds/driver.h"
#include "transport/gds/gds.h"

enum { GDS_BLOCK = 4096 }; /* what is direct begins and ends at such multiples */

enum gds_mode {
    GDS_COMPATIBILITY, /* cuFile moves the bytes through host memory */
    GDS_DIRECT         /* the disk and the GPU move them between each other */
};
const char *gds_mode_name(enum gds_mode mode);

struct gds_file {
    struct base_list node;
    const void *key;
    unsigned references; /* under the driver's lock */
    struct gds_driver *driver;
    cufile_handle handle;
    bool given_up;  /* the handle; the driver's thread alone looks */
    int descriptor; /* a second one of the same open file: a lock on it stays while cuFile may write
                     */
    bool writable;
    enum gds_mode mode;
    char path[256];
    char reason[256];      /* for the mode */
    char host_reason[160]; /* why it does not move the host's memory; "": it does */
    _Atomic uint64_t reads, writes, bytes_read, bytes_written, bytes_bounced, bytes_unregistered;
};

/* Registers the file and tries it. UNSUPPORTED with the reason. */
YOLK_MUST_USE int gds_file_open(struct gds_driver *driver, const struct yolk_file *file,
                                const void *key, struct gds_file **out);
/* Another reference to the one of this key; NULL: none. */
struct gds_file *gds_file_find(struct gds_driver *driver, const void *key);
void gds_file_release(struct gds_file *file);
/* All are cuFile's no more; in the driver's thread, at the process's end. */
void gds_files_deregister(struct gds_driver *driver);

#endif
