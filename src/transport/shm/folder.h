/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that a provider's socket lies in. */
#ifndef TRANSPORT_SHM_FOLDER_H
#define TRANSPORT_SHM_FOLDER_H

#include <stdbool.h>

#include "yolk/status.h"

struct shm_folder {
    char dir[90];
    char path[108]; /* of the socket, which the caller makes */
    int lock;       /* -1, or the descriptor whose lock says that the owner lives */
    bool made;      /* a private one, to be removed at the end */
};

/* given "": a private one below XDG_RUNTIME_DIR or /tmp. First removes there what killed processes
 * left. On failure shm_folder_remove cleans up. *f was set to {.lock = -1}. */
YOLK_MUST_USE int shm_folder_make(struct shm_folder *f, const char *given);
/* Removes the socket, and a private folder. May be called again. */
void shm_folder_remove(struct shm_folder *f);

#endif
