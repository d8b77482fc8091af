/* SPDX-License-Identifier: Apache-2.0 */
#include "device/vmm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

static const char *place_name(struct vmm_place place)
{
    return place.location == CUDA_LOCATION_DEVICE ? "GPU" : "NUMA node";
}

static int fail(const struct cuda *cuda, cuda_result error, struct vmm_place place,
                const char *call)
{
    return cuda_fail(cuda, error, "%s %d: %s", place_name(place), place.id, call);
}

static struct cuda_allocation_prop prop_of(struct vmm_place place, int handle_types)
{
    struct cuda_allocation_prop prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CUDA_ALLOCATION_PINNED;
    prop.handle_types = handle_types;
    prop.location.type = place.location;
    prop.location.id = place.id;
    return prop;
}

static int check_driver(const struct cuda *cuda)
{
    if (cuda->missing[CUDA_VMM] == NULL)
        return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the CUDA driver has no %s: no memory with handles",
                     cuda->missing[CUDA_VMM]);
}

int vmm_granularity(const struct cuda *cuda, struct vmm_place place, int handle_types,
                    uint64_t *out)
{
    struct cuda_allocation_prop prop = prop_of(place, handle_types);
    size_t granularity = 0;
    int status = check_driver(cuda);
    if (status != YOLK_OK)
        return status;
    cuda_result error =
        cuda->mem_get_allocation_granularity(&granularity, &prop, CUDA_GRANULARITY_MINIMUM);
    if (error != CUDA_OK)
        return fail(cuda, error, place, "cuMemGetAllocationGranularity");
    if (granularity == 0 || (granularity & (granularity - 1)) != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "%s %d: the driver's granularity of %zu bytes is no power of two",
                         place_name(place), place.id, granularity);
    *out = granularity;
    return YOLK_OK;
}

static struct vmm_part *part_of(struct vmm *vmm, unsigned i)
{
    return vmm->parts != NULL ? &vmm->parts[i] : &vmm->one;
}

static cuda_pointer place_of(struct vmm *vmm, unsigned i)
{
    cuda_pointer at = vmm->address;
    for (unsigned before = 0; before < i; before++)
        at += part_of(vmm, before)->size;
    return at;
}

/* ---- references that the driver would not take back ---- */

enum { LATE_MAX = 1024 };
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static struct {
    const struct cuda *cuda;
    cuda_allocation allocation;
} late[LATE_MAX];
static unsigned late_count;

/* Tries them again, also those that have just been added. */
static cuda_result take_late(const struct cuda *cuda, const cuda_allocation *more)
{
    cuda_result first = CUDA_OK;
    unsigned kept = 0;
    pthread_mutex_lock(&late_lock);
    if (more != NULL && late_count < LATE_MAX) { /* beyond, it lasts as long as the process */
        late[late_count].cuda = cuda;
        late[late_count++].allocation = *more;
    }
    for (unsigned i = 0; i < late_count; i++) {
        cuda_result error = late[i].cuda == cuda ? cuda->mem_release(late[i].allocation) : CUDA_OK;
        if (error != CUDA_OK || late[i].cuda != cuda)
            late[kept++] = late[i];
        first = first == CUDA_OK ? error : first;
    }
    late_count = kept;
    pthread_mutex_unlock(&late_lock);
    return first;
}

void vmm_let_go(const struct cuda *cuda, cuda_allocation allocation)
{
    (void)take_late(cuda, &allocation);
}

int vmm_release(struct vmm *vmm)
{
    const struct cuda *cuda = vmm->cuda;
    cuda_result error;
    for (; vmm->stage == VMM_MAPPED && vmm->mapped > 0; vmm->mapped--) {
        unsigned last = vmm->mapped - 1;
        error = cuda->mem_unmap(place_of(vmm, last), part_of(vmm, last)->size);
        if (error != CUDA_OK)
            return fail(cuda, error, vmm->place, "cuMemUnmap");
    }
    if (vmm->stage == VMM_MAPPED)
        vmm->stage = VMM_RESERVED;
    if (vmm->stage == VMM_RESERVED) {
        error = cuda->mem_address_free(vmm->address, vmm->size);
        if (error != CUDA_OK)
            return fail(cuda, error, vmm->place, "cuMemAddressFree");
        vmm->stage = VMM_CREATED;
    }
    for (; vmm->stage == VMM_CREATED && vmm->held > 0; vmm->held--) {
        error = cuda->mem_release(part_of(vmm, vmm->held - 1)->allocation);
        if (error != CUDA_OK)
            return fail(cuda, error, vmm->place, "cuMemRelease");
    }
    if (vmm->stage == VMM_CREATED) {
        free(vmm->parts);
        vmm->parts = NULL;
        vmm->stage = VMM_NOTHING;
    }
    /* A reference that is left keeps the memory as well. */
    error = cuda == NULL ? CUDA_OK : take_late(cuda, NULL);
    return error == CUDA_OK ? YOLK_OK : fail(cuda, error, vmm->place, "cuMemRelease");
}

/* Gives back what there is, and tells the error that was there before. */
static int roll_back(struct vmm *vmm, int status)
{
    char why[512];
    (void)snprintf(why, sizeof(why), "%s", yolk_last_error());
    if (vmm_release(vmm) == YOLK_OK)
        return base_fail(status, 0, "%s", why);
    return base_fail(status, 0, "%s; and it could not be given back yet", why);
}

static int reserve_and_map(struct vmm *vmm, uint64_t alignment)
{
    const struct cuda *cuda = vmm->cuda;
    cuda_result error = cuda->mem_address_reserve(&vmm->address, vmm->size, alignment, 0, 0);
    if (error != CUDA_OK)
        return fail(cuda, error, vmm->place, "cuMemAddressReserve");
    vmm->stage = VMM_RESERVED;
    vmm->stage = VMM_MAPPED;
    cuda_pointer at = vmm->address;
    for (; vmm->mapped < vmm->held; vmm->mapped++) {
        const struct vmm_part *part = part_of(vmm, vmm->mapped);
        error = cuda->mem_map(at, part->size, 0, part->allocation, 0);
        if (error != CUDA_OK)
            return fail(cuda, error, vmm->place, "cuMemMap");
        at += part->size;
    }
    return YOLK_OK;
}

static cuda_result grant(const struct vmm *vmm, int location, int id)
{
    const struct cuda_access access = {.location = {location, id}, .flags = CUDA_ACCESS_READ_WRITE};
    return vmm->cuda->mem_set_access(vmm->address, vmm->size, &access, 1);
}

int vmm_create(const struct cuda *cuda, struct vmm_place place, int handle_types,
               unsigned gpu_count, uint64_t size, uint64_t alignment, struct vmm *vmm)
{
    struct cuda_allocation_prop prop = prop_of(place, handle_types);
    uint64_t granularity;
    *vmm = (struct vmm){.cuda = cuda, .place = place, .size = size};
    int status = vmm_granularity(cuda, place, handle_types, &granularity);
    if (status != YOLK_OK)
        return status;
    if (size == 0 || size % granularity != 0 || (alignment & (alignment - 1)) != 0)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "%s %d: %llu bytes at a multiple of %llu: memory with handles comes in "
                         "multiples of %llu bytes, at powers of two",
                         place_name(place), place.id, (unsigned long long)size,
                         (unsigned long long)alignment, (unsigned long long)granularity);
    cuda_result error = cuda->mem_create(&vmm->one.allocation, size, &prop, 0);
    if (error != CUDA_OK)
        return fail(cuda, error, place, "cuMemCreate");
    vmm->one.size = size;
    vmm->held = 1;
    vmm->stage = VMM_CREATED;
    status = reserve_and_map(vmm, alignment > granularity ? alignment : granularity);
    if (status == YOLK_OK && place.location == CUDA_LOCATION_HOST_NUMA) {
        error = grant(vmm, place.location, place.id);
        vmm->host = error == CUDA_OK;
        if (error != CUDA_OK)
            status = fail(cuda, error, place, "cuMemSetAccess for the processor");
    }
    for (unsigned i = 0; i < gpu_count && status == YOLK_OK; i++) {
        error = grant(vmm, CUDA_LOCATION_DEVICE, (int)i);
        if (error != CUDA_OK)
            status = fail(cuda, error, place, "cuMemSetAccess for a GPU");
        else
            vmm->gpus |= UINT64_C(1) << i;
    }
    return status == YOLK_OK ? YOLK_OK : roll_back(vmm, status);
}

/* Takes the parts over. What there is no memory for is given back at once, as far as the driver
 * takes it. */
static int take_over(const struct cuda *cuda, const struct vmm_part *parts, unsigned count,
                     struct vmm *vmm)
{
    *vmm = (struct vmm){.cuda = cuda, .one = parts[0], .held = count, .stage = VMM_CREATED};
    if (count > 1) {
        vmm->parts = base_malloc(count * sizeof(*parts));
        if (vmm->parts == NULL) {
            for (unsigned i = 0; i < count; i++)
                vmm_let_go(cuda, parts[i].allocation);
            *vmm = (struct vmm){.cuda = cuda};
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u allocations", count);
        }
        memcpy(vmm->parts, parts, count * sizeof(*parts));
    }
    for (unsigned i = 0; i < count; i++)
        vmm->size += parts[i].size;
    return YOLK_OK;
}

int vmm_adopt(const struct cuda *cuda, const struct vmm_part *parts, unsigned count,
              unsigned gpu_count, bool host, struct vmm *vmm)
{
    struct cuda_allocation_prop prop;
    memset(&prop, 0, sizeof(prop));
    int taken = take_over(cuda, parts, count, vmm);
    if (taken != YOLK_OK)
        return taken;
    cuda_result error = cuda->mem_get_allocation_properties(&prop, parts[0].allocation);
    if (error != CUDA_OK)
        return roll_back(vmm, cuda_fail(cuda, error, "cuMemGetAllocationPropertiesFromHandle"));
    vmm->place = (struct vmm_place){prop.location.type, prop.location.id};
    int status = reserve_and_map(vmm, 0);
    if (status != YOLK_OK)
        return roll_back(vmm, status);
    for (unsigned i = 0; i < gpu_count; i++) {
        cuda_result granted = grant(vmm, CUDA_LOCATION_DEVICE, (int)i);
        if (granted == CUDA_OK)
            vmm->gpus |= UINT64_C(1) << i;
        else
            error = granted;
    }
    if (vmm->gpus == 0)
        return roll_back(vmm, cuda_fail(cuda, error, "cuMemSetAccess: no GPU reaches it"));
    if (host && vmm->place.location == CUDA_LOCATION_HOST_NUMA)
        vmm->host = grant(vmm, CUDA_LOCATION_HOST_NUMA, vmm->place.id) == CUDA_OK;
    return YOLK_OK;
}

/* Exports and imports what was created. */
static int send_round(const struct cuda *cuda, struct vmm_place place, cuda_allocation made,
                      int handle_type)
{
    union {
        struct cuda_fabric_handle fabric;
        int fd;
    } handle = {.fd = -1};
    cuda_allocation again;
    cuda_result error = cuda->mem_export_to_shareable_handle(&handle, made, handle_type, 0);
    if (error != CUDA_OK)
        return fail(cuda, error, place, "cuMemExportToShareableHandle");
    bool fabric = handle_type == CUDA_HANDLE_FABRIC;
    error = cuda->mem_import_from_shareable_handle(
        &again, fabric ? (void *)&handle.fabric : (void *)(intptr_t)handle.fd, handle_type);
    if (!fabric)
        (void)close(handle.fd);
    if (error != CUDA_OK)
        return fail(cuda, error, place, "cuMemImportFromShareableHandle");
    vmm_let_go(cuda, again);
    return YOLK_OK;
}

int vmm_probe(const struct cuda *cuda, struct vmm_place place, int handle_type)
{
    struct cuda_allocation_prop prop = prop_of(place, handle_type);
    cuda_allocation made;
    uint64_t granularity;
    int status = vmm_granularity(cuda, place, handle_type, &granularity);
    if (status != YOLK_OK)
        return status;
    cuda_result error = cuda->mem_create(&made, granularity, &prop, 0);
    if (error != CUDA_OK)
        return fail(cuda, error, place, "cuMemCreate");
    status = send_round(cuda, place, made, handle_type);
    vmm_let_go(cuda, made);
    return status;
}
