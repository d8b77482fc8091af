/* SPDX-License-Identifier: Apache-2.0 */
/* The way between a GPU and files in a folder, item by item, as a real try finds it. */
#ifndef CLI_DOCTOR_GPU_H
#define CLI_DOCTOR_GPU_H

#include "cli/doctor.h"

enum { DOCTOR_GPU_ITEMS_MAX = 16 };

/* Looks and tries in a process of its own, begun here, for at most a minute: what cuFile does to
 * that one is told, not shared. Call it before anything of CUDA is used. Returns how many items. */
size_t doctor_gpu_examine(int ordinal, const char *path, struct doctor_item *items);

#endif
