/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda.h"

int gds_slab_open(struct device *device, const struct cufile *cufile, int ordinal,
                  struct gds_slab **out)
{
    const size_t size = (size_t)GDS_PACK_OPS * GDS_PACK_BYTES;
    const struct cuda *cuda = device_cuda(device);
    cuda_pointer memory = 0;
    struct gds_slab *slab = base_calloc(1, sizeof(*slab));
    if (slab == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for packing");
    cuda_result error = cuda->mem_alloc(&memory, size);
    if (error != CUDA_OK) {
        free(slab);
        return cuda_fail(cuda, error, "GPU memory of %zu bytes for packing", size);
    }
    base_list_init(&slab->node);
    slab->device = device;
    slab->cufile = cufile;
    slab->ordinal = ordinal;
    slab->memory = (uint8_t *)(uintptr_t)memory;
    slab->registered = cufile->buf_register(slab->memory, size, 0).error == CUFILE_OK;
    for (unsigned i = 0; i < GDS_PACK_OPS; i++) {
        slab->ops[i].slab = slab;
        slab->ops[i].memory = slab->memory + (size_t)i * GDS_PACK_BYTES;
    }
    *out = slab;
    return YOLK_OK;
}

void gds_slab_deregister(struct gds_slab *slab)
{
    if (slab->registered)
        (void)slab->cufile->buf_deregister(slab->memory);
    slab->registered = false;
}

void gds_slab_close(struct gds_slab *slab)
{
    if (slab == NULL)
        return;
    gds_slab_deregister(slab);
    (void)device_cuda(slab->device)->mem_free((uintptr_t)slab->memory);
    free(slab);
}

struct gds_pack *gds_pack_begin(struct gds_slab *slab, cufile_handle file, uint64_t file_offset,
                                bool write)
{
    for (unsigned i = 0; i < GDS_PACK_OPS; i++) {
        struct gds_pack *pack = &slab->ops[i];
        if (pack->stage != GDS_PACK_FREE)
            continue;
        uint64_t at = (uint64_t)(pack->memory - slab->memory);
        pack->body = (struct gds_request){.file = file,
                                          .buffer = slab->memory,
                                          .buffer_offset = at,
                                          .unregistered = !slab->registered,
                                          .file_offset = file_offset,
                                          .write = write};
        pack->batch = NULL;
        pack->stage = GDS_PACK_FILLING;
        pack->users = 0;
        pack->status = YOLK_OK;
        pack->size = 0;
        pack->count = pack->copied = 0;
        pack->transfer = NULL;
        return pack;
    }
    return NULL;
}

void gds_pack_add(struct gds_pack *pack, uint8_t *memory, uint64_t size)
{
    uint8_t *place = pack->memory + pack->size;
    assert(pack->stage == GDS_PACK_FILLING && pack->count < GDS_PACK_PIECES_MAX &&
           size <= GDS_PACK_BYTES - pack->size);
    pack->copies[pack->count++] = pack->body.write ? (struct device_copy){place, memory, size}
                                                   : (struct device_copy){memory, place, size};
    pack->size += size;
    pack->users++;
}

void gds_pack_go(struct gds_pack *pack)
{
    pack->body.task.size = pack->size;
    pack->stage = pack->body.write ? GDS_PACK_GATHERS : GDS_PACK_READY;
}

void gds_pack_fail(struct gds_pack *pack, int status)
{
    pack->status = status;
    pack->stage = GDS_PACK_OVER;
}

/* Copies all, some at a time. True: that is over. */
static bool copy(struct gds_pack *pack, int *status)
{
    const struct device_copy_options how = {.direction = DEVICE_WITHIN};
    *status = YOLK_OK;
    if (pack->transfer != NULL) {
        *status = device_transfer_poll(pack->transfer);
        if (*status == YOLK_ERR_AGAIN)
            return false;
        base_ignore(device_transfer_free(pack->transfer)); /* it is over */
        pack->transfer = NULL;
        if (*status != YOLK_OK)
            return true;
    }
    if (pack->copied == pack->count)
        return true;
    long taken = device_copy(pack->slab->device, pack->slab->ordinal, pack->copies + pack->copied,
                             pack->count - pack->copied, &how, &pack->transfer);
    if (taken == YOLK_ERR_AGAIN)
        return false;
    if (taken < 0) {
        *status = (int)taken;
        return true;
    }
    pack->copied += (unsigned)taken;
    return false;
}

void gds_pack_step(struct gds_pack *pack)
{
    int status;
    if (pack->stage != GDS_PACK_GATHERS && pack->stage != GDS_PACK_SCATTERS)
        return;
    if (!copy(pack, &status))
        return;
    if (status != YOLK_OK)
        gds_pack_fail(pack, status);
    else
        pack->stage = pack->stage == GDS_PACK_GATHERS ? GDS_PACK_READY : GDS_PACK_OVER;
}

void gds_pack_started(struct gds_pack *pack)
{
    pack->stage = GDS_PACK_RUNS;
}

void gds_pack_ended(struct gds_pack *pack, int status)
{
    if (status != YOLK_OK || pack->body.write)
        gds_pack_fail(pack, status);
    else
        pack->stage = GDS_PACK_SCATTERS;
}

void gds_pack_leave(struct gds_pack *pack)
{
    assert(pack->stage == GDS_PACK_OVER && pack->users > 0);
    if (--pack->users == 0)
        pack->stage = GDS_PACK_FREE;
}
