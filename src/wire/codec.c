/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/codec.h"

#include <msgpack/pack.h>

#include "base/error.h"
#include "wire/gds.h"

/* ---- encoding ---- */
static int pack_to_buf(void *arg, const char *bytes, size_t size)
{
    return base_buf_append(arg, bytes, size) == YOLK_OK ? 0 : -1;
}

static bool all_zero(const uint8_t *p, size_t size)
{
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++)
        any |= p[i];
    return any == 0;
}

/* Members are read with memcpy: the struct is known here only as bytes. */
static uint64_t number_at(const struct wire_field *f, const uint8_t *at)
{
    if (f->type == WIRE_U64) {
        uint64_t v;
        memcpy(&v, at, sizeof(v));
        return v;
    }
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static struct wire_view view_at(const struct wire_field *f, const uint8_t *at)
{
    if (f->type == WIRE_FIXED)
        return all_zero(at, f->size) ? (struct wire_view){NULL, 0} : wire_view_of(at, f->size);
    struct wire_view v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static bool is_number(const struct wire_field *f)
{
    return f->type == WIRE_U64 || f->type == WIRE_U32 || f->type == WIRE_I32;
}

enum { PACK_MALFORMED = 1 }; /* what is to be packed; the last error says what is wrong with it */

static int pack_field(msgpack_packer *pk, const struct wire_field *f, const uint8_t *at)
{
    int rc = msgpack_pack_uint8(pk, f->tag);
    if (is_number(f)) {
        uint64_t v = number_at(f, at);
        if (f->type == WIRE_I32)
            return rc | msgpack_pack_int32(pk, (int32_t)(uint32_t)v);
        return rc | msgpack_pack_uint64(pk, v);
    }
    struct wire_view v = view_at(f, at);
    if (f->type == WIRE_STR)
        return rc | msgpack_pack_str(pk, v.size) | msgpack_pack_str_body(pk, v.data, v.size);
    if (f->type == WIRE_GDSS) {
        struct wire_gdss list;
        if (wire_gdss_open(v, UINT32_MAX, &list) != YOLK_OK)
            return PACK_MALFORMED;
        return rc | msgpack_pack_array(pk, list.count) |
               pk->callback(pk->data, (const char *)v.data, v.size);
    }
    return rc | msgpack_pack_bin(pk, v.size) | msgpack_pack_bin_body(pk, v.data, v.size);
}

static bool is_present(const struct wire_field *f, const uint8_t *at)
{
    return is_number(f) ? number_at(f, at) != 0 : view_at(f, at).size != 0;
}

int wire_encode(uint16_t kind, const void *msg, struct base_buf *out)
{
    const struct wire_kind_info *info = wire_kind_info(kind);
    if (!info)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "no message kind %u", kind);
    const uint8_t *bytes = msg;
    size_t bound = 5, present = 0; /* the map's head */
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        if (!is_present(f, bytes + f->offset))
            continue;
        present++;
        bound += 11; /* the tag and the largest head or number */
        size_t size = is_number(f) ? 0 : view_at(f, bytes + f->offset).size;
        if (size > info->body_max)
            return base_fail(YOLK_ERR_TOO_LARGE, 0, "field %u of %s has %zu bytes, at most %u",
                             f->tag, info->name, size, info->body_max);
        bound += size;
    }
    /* One growth for the whole message, so that packing below cannot fail half-way in the usual
     * case. */
    size_t start = out->size;
    int status = base_buf_reserve(out, bound);
    if (status == YOLK_ERR_NO_MEMORY)
        return status;
    msgpack_packer pk;
    msgpack_packer_init(&pk, out, pack_to_buf);
    int rc = msgpack_pack_map(&pk, present);
    for (size_t i = 0; i < info->field_count && rc == 0; i++) {
        const struct wire_field *f = &info->fields[i];
        if (is_present(f, bytes + f->offset))
            rc = pack_field(&pk, f, bytes + f->offset);
    }
    size_t size = out->size - start;
    if (rc == 0 && size <= info->body_max)
        return YOLK_OK;
    out->size = start;
    if (rc == PACK_MALFORMED)
        return YOLK_ERR_PROTOCOL;
    if (rc != 0)
        return base_fail(YOLK_ERR_LIMIT, 0, "%s does not fit into the buffer", info->name);
    return base_fail(YOLK_ERR_TOO_LARGE, 0, "%s has %zu bytes, at most %u", info->name, size,
                     info->body_max);
}

/* ---- decoding: a reader over borrowed bytes that never reads behind `end` ---- */
struct reader {
    const uint8_t *at, *end;
};

enum item_type { ITEM_UINT, ITEM_NEGATIVE, ITEM_BIN, ITEM_STR, ITEM_MAP, ITEM_ARRAY, ITEM_OTHER };
struct item {
    enum item_type type;
    uint64_t number; /* value (two's complement if negative), or number of elements */
    struct wire_view view;
};

static bool take(struct reader *r, size_t size, const uint8_t **at)
{
    if ((size_t)(r->end - r->at) < size)
        return false;
    *at = r->at;
    r->at += size;
    return true;
}

/* A big-endian number of 1, 2, 4 or 8 bytes. */
static bool take_number(struct reader *r, size_t width, uint64_t *out)
{
    const uint8_t *p;
    if (!take(r, width, &p))
        return false;
    *out = 0;
    for (size_t i = 0; i < width; i++)
        *out = *out << 8 | p[i];
    return true;
}

static bool take_bytes(struct reader *r, uint64_t size, enum item_type type, struct item *out)
{
    const uint8_t *p;
    /* Compared as 64 bits before anything else: a claim of 4 GiB costs nothing. */
    if (size > (uint64_t)(r->end - r->at) || !take(r, (size_t)size, &p))
        return false;
    out->type = type;
    out->view = wire_view_of(p, (size_t)size);
    return true;
}

static bool take_sized(struct reader *r, size_t width, size_t more, enum item_type type,
                       struct item *out)
{
    uint64_t size;
    return take_number(r, width, &size) && take_bytes(r, size + more, type, out);
}

static bool take_counted(struct reader *r, size_t width, enum item_type type, struct item *out)
{
    out->type = type;
    return take_number(r, width, &out->number);
}

static bool take_signed(struct reader *r, size_t width, struct item *out)
{
    uint64_t v;
    if (!take_number(r, width, &v))
        return false;
    if (width < 8 && v >> (8 * width - 1))
        v |= UINT64_MAX << (8 * width); /* sign extension */
    out->type = v >> 63 ? ITEM_NEGATIVE : ITEM_UINT;
    out->number = v;
    return true;
}

/* One item, without the elements of a map or an array. */
static bool read_item(struct reader *r, struct item *out)
{
    const uint8_t *head;
    if (!take(r, 1, &head))
        return false;
    uint8_t b = *head;
    *out = (struct item){.type = ITEM_OTHER};
    if (b <= 0x7f) {
        out->type = ITEM_UINT;
        out->number = b;
        return true;
    }
    if (b >= 0xe0) {
        out->type = ITEM_NEGATIVE;
        out->number = UINT64_MAX << 8 | b;
        return true;
    }
    if (b <= 0x8f || (b >= 0x90 && b <= 0x9f)) {
        out->type = b <= 0x8f ? ITEM_MAP : ITEM_ARRAY;
        out->number = b & 0x0f;
        return true;
    }
    if (b <= 0xbf)
        return take_bytes(r, b & 0x1f, ITEM_STR, out);
    switch (b) {
    case 0xc0: /* nil, false, true */
    case 0xc2:
    case 0xc3:
        return true;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return take_sized(r, (size_t)1 << (b - 0xc4), 0, ITEM_BIN, out);
    case 0xc7: /* ext: a type byte more than the size says */
    case 0xc8:
    case 0xc9:
        return take_sized(r, (size_t)1 << (b - 0xc7), 1, ITEM_OTHER, out);
    case 0xca: /* floats */
    case 0xcb:
        return take_bytes(r, b == 0xca ? 4 : 8, ITEM_OTHER, out);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        out->type = ITEM_UINT;
        return take_number(r, (size_t)1 << (b - 0xcc), &out->number);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return take_signed(r, (size_t)1 << (b - 0xd0), out);
    case 0xd4: /* fixext 1 to 16 */
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return take_bytes(r, ((uint64_t)1 << (b - 0xd4)) + 1, ITEM_OTHER, out);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return take_sized(r, (size_t)1 << (b - 0xd9), 0, ITEM_STR, out);
    case 0xdc:
    case 0xdd:
        return take_counted(r, b == 0xdc ? 2 : 4, ITEM_ARRAY, out);
    case 0xde:
    case 0xdf:
        return take_counted(r, b == 0xde ? 2 : 4, ITEM_MAP, out);
    default: /* 0xc1 is never used */
        return false;
    }
}

/* The value of a tag we do not know. Not recursive: only the number of items to come matters, and
 * each takes a byte at least, so a count above what is left is refused at once. */
static bool skip_value(struct reader *r)
{
    uint64_t pending = 1;
    while (pending > 0) {
        struct item item;
        if (pending > (uint64_t)(r->end - r->at) || !read_item(r, &item))
            return false;
        pending--;
        if (item.type == ITEM_MAP)
            pending += 2 * item.number;
        else if (item.type == ITEM_ARRAY)
            pending += item.number;
    }
    return true;
}

/* ---- descriptors of a GDS file (gds.h) ---- */
static bool take_id(struct reader *r, uint8_t out[WIRE_GDS_ID_SIZE])
{
    struct item item;
    if (!read_item(r, &item) || item.type != ITEM_BIN || item.view.size != WIRE_GDS_ID_SIZE)
        return false;
    memcpy(out, item.view.data, WIRE_GDS_ID_SIZE);
    return true;
}

static bool take_u64(struct reader *r, uint64_t *out)
{
    struct item item;
    if (!read_item(r, &item) || item.type != ITEM_UINT)
        return false;
    *out = item.number;
    return true;
}

/* nil, or an array of the six fields in their order. */
static bool take_gds(struct reader *r, struct wire_gds *out, bool *given)
{
    struct item item;
    if (r->at < r->end && *r->at == 0xc0) {
        *out = (struct wire_gds){0};
        *given = false;
        r->at++;
        return true;
    }
    *given = true;
    return read_item(r, &item) && item.type == ITEM_ARRAY && item.number == WIRE_GDS_FIELDS &&
           take_id(r, out->owner_client_id) && take_id(r, out->storage_id) &&
           take_u64(r, &out->storage_generation) && take_u64(r, &out->value_offset) &&
           take_u64(r, &out->value_size) && take_u64(r, &out->allocated_size);
}

int wire_gdss_open(struct wire_view view, uint32_t max_count, struct wire_gdss *out)
{
    struct wire_gds gds;
    bool given;
    *out = (struct wire_gdss){0};
    if (view.size == 0)
        return YOLK_OK;
    struct reader r = {view.data, view.data + view.size};
    *out = (struct wire_gdss){.at = r.at, .end = r.end};
    for (; r.at != r.end; out->count++) {
        if (out->count == max_count)
            return base_fail(YOLK_ERR_LIMIT, 0,
                             "more than %u GDS descriptors, one a key is the most", max_count);
        if (!take_gds(&r, &gds, &given))
            return base_fail(YOLK_ERR_PROTOCOL, 0,
                             "GDS descriptor %u is neither nil nor an array of exactly six fields "
                             "{bin 16, bin 16, uint, uint, uint, uint}",
                             out->count);
    }
    return YOLK_OK;
}

bool wire_gdss_next(struct wire_gdss *list, struct wire_gds *out, bool *given)
{
    struct reader r = {list->at, list->end};
    if (r.at == r.end || !take_gds(&r, out, given))
        return false;
    list->at = r.at;
    return true;
}

int wire_gds_append(struct base_buf *out, const struct wire_gds *gds)
{
    int status = base_buf_reserve(out, WIRE_GDS_SIZE_MAX);
    if (status == YOLK_ERR_NO_MEMORY)
        return status;
    size_t start = out->size;
    msgpack_packer pk;
    msgpack_packer_init(&pk, out, pack_to_buf);
    int rc = 0;
    if (gds == NULL) {
        rc = msgpack_pack_nil(&pk);
    } else {
        rc = msgpack_pack_array(&pk, WIRE_GDS_FIELDS);
        rc |= msgpack_pack_bin(&pk, WIRE_GDS_ID_SIZE);
        rc |= msgpack_pack_bin_body(&pk, gds->owner_client_id, WIRE_GDS_ID_SIZE);
        rc |= msgpack_pack_bin(&pk, WIRE_GDS_ID_SIZE);
        rc |= msgpack_pack_bin_body(&pk, gds->storage_id, WIRE_GDS_ID_SIZE);
        rc |= msgpack_pack_uint64(&pk, gds->storage_generation);
        rc |= msgpack_pack_uint64(&pk, gds->value_offset);
        rc |= msgpack_pack_uint64(&pk, gds->value_size);
        rc |= msgpack_pack_uint64(&pk, gds->allocated_size);
    }
    if (rc == 0)
        return YOLK_OK;
    out->size = start;
    return base_fail(YOLK_ERR_LIMIT, 0, "a GDS descriptor does not fit into the buffer");
}

/* The elements behind an array's head. */
static bool take_gdss(struct reader *r, uint64_t count, struct wire_view *view)
{
    struct wire_gds gds;
    bool given, ok = count <= (uint64_t)(r->end - r->at);
    const uint8_t *start = r->at;
    for (uint64_t i = 0; ok && i < count; i++)
        ok = take_gds(r, &gds, &given);
    *view = ok ? wire_view_of(start, (size_t)(r->at - start)) : (struct wire_view){NULL, 0};
    return ok;
}

static bool store_value(const struct wire_field *f, const struct item *item, uint8_t *at)
{
    uint32_t narrow = (uint32_t)item->number;
    switch ((enum wire_field_type)f->type) {
    case WIRE_U64:
        memcpy(at, &item->number, sizeof(item->number));
        return item->type == ITEM_UINT;
    case WIRE_U32:
        memcpy(at, &narrow, sizeof(narrow));
        return item->type == ITEM_UINT && item->number <= UINT32_MAX;
    case WIRE_I32:
        memcpy(at, &narrow, sizeof(narrow));
        if (item->type == ITEM_NEGATIVE)
            return item->number >= (uint64_t)(int64_t)INT32_MIN;
        return item->type == ITEM_UINT && item->number <= INT32_MAX;
    case WIRE_BIN:
        memcpy(at, &item->view, sizeof(item->view));
        return item->type == ITEM_BIN && (f->size == 0 || item->view.size % f->size == 0);
    case WIRE_STR:
        memcpy(at, &item->view, sizeof(item->view));
        return item->type == ITEM_STR;
    case WIRE_FIXED:
        if (item->type != ITEM_BIN || item->view.size != f->size)
            return false;
        memcpy(at, item->view.data, f->size);
        return true;
    case WIRE_GDSS:
        memcpy(at, &item->view, sizeof(item->view));
        return item->type == ITEM_ARRAY;
    }
    return false;
}

static const struct wire_field *field_by_tag(const struct wire_kind_info *info, uint64_t tag,
                                             size_t *index)
{
    for (size_t i = 0; i < info->field_count; i++) {
        if (info->fields[i].tag == tag) {
            *index = i;
            return &info->fields[i];
        }
    }
    return NULL;
}

static int malformed(const struct wire_kind_info *info, const char *what, uint64_t tag)
{
    return base_fail(YOLK_ERR_PROTOCOL, 0, "%s: %s (field %llu)", info->name, what,
                     (unsigned long long)tag);
}

int wire_decode(uint16_t kind, const uint8_t *body, size_t size, void *msg)
{
    const struct wire_kind_info *info = wire_kind_info(kind);
    if (!info)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "unknown message kind %u", kind);
    if (size > info->body_max)
        return malformed(info, "longer than its kind allows", 0);
    memset(msg, 0, info->struct_size);
    struct reader r = {body, body + size};
    struct item item;
    if (size == 0 || !read_item(&r, &item) || item.type != ITEM_MAP)
        return malformed(info, "the body is no map", 0);
    if (item.number > (uint64_t)(r.end - r.at) / 2)
        return malformed(info, "more fields than bytes", 0);
    uint32_t seen = 0;
    for (uint64_t left = item.number; left > 0; left--) {
        if (!read_item(&r, &item) || item.type != ITEM_UINT)
            return malformed(info, "a tag is no number", 0);
        uint64_t tag = item.number;
        size_t index = 0;
        const struct wire_field *f = field_by_tag(info, tag, &index);
        if (!f) {
            if (!skip_value(&r))
                return malformed(info, "an unknown field is cut short", tag);
            continue;
        }
        if (seen >> index & 1)
            return malformed(info, "given twice", tag);
        seen |= UINT32_C(1) << index;
        if (!read_item(&r, &item))
            return malformed(info, "cut short", tag);
        if (f->type == WIRE_GDSS && item.type == ITEM_ARRAY &&
            !take_gdss(&r, item.number, &item.view))
            return malformed(info, "a GDS descriptor has not exactly its six fields", tag);
        if (!store_value(f, &item, (uint8_t *)msg + f->offset))
            return malformed(info, "wrong type, range or length", tag);
    }
    if (r.at != r.end)
        return malformed(info, "bytes after the last field", 0);
    return YOLK_OK;
}

void wire_view_copy_text(struct wire_view view, char *out, size_t size)
{
    if (size == 0)
        return;
    size_t n = view.size < size - 1 ? view.size : size - 1;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = view.data[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    out[n] = '\0';
}

/* ---- lists ---- */
int wire_u64s_append(struct base_buf *out, uint64_t value)
{
    return base_buf_put_u64(out, value);
}

int wire_u32s_append(struct base_buf *out, uint32_t value)
{
    return base_buf_put_u32(out, value);
}

int wire_i32s_append(struct base_buf *out, int32_t value)
{
    return base_buf_put_u32(out, (uint32_t)value);
}

int wire_keys_open(struct wire_view list, uint32_t max_count, struct wire_keys *out)
{
    *out = (struct wire_keys){0};
    if (list.size == 0)
        return YOLK_OK;
    if (list.size < 4)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a list of keys has no count");
    uint32_t count = wire_get_u32(list.data);
    if (count > (list.size - 4) / 4)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a list of keys claims %u of them in %zu bytes",
                         count, list.size);
    if (count > max_count)
        return base_fail(YOLK_ERR_LIMIT, 0, "%u keys in one message, at most %u", count, max_count);
    const uint8_t *lens = list.data + 4;
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += wire_get_u32(lens + (size_t)i * 4);
    if (total != list.size - 4 - (size_t)count * 4)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a list of keys disagrees with its lengths");
    out->count = count;
    out->lens = lens;
    out->blob = lens + (size_t)count * 4;
    out->cursor = out->blob;
    return YOLK_OK;
}

bool wire_keys_next(struct wire_keys *keys, struct wire_view *key)
{
    if (keys->next >= keys->count)
        return false;
    uint32_t size = wire_get_u32(keys->lens + (size_t)keys->next * 4);
    *key = wire_view_of(keys->cursor, size);
    keys->cursor += size;
    keys->next++;
    return true;
}

void wire_keys_rewind(struct wire_keys *keys)
{
    keys->next = 0;
    keys->cursor = keys->blob;
}

struct key_array {
    const struct wire_view *keys;
};

static struct wire_view key_of_array(void *arg, uint32_t i)
{
    return ((const struct key_array *)arg)->keys[i];
}

int wire_keys_build(struct base_buf *out, const struct wire_view *keys, uint32_t count)
{
    struct key_array array = {keys};
    return wire_keys_build_by(out, count, key_of_array, &array);
}

int wire_keys_build_by(struct base_buf *out, uint32_t count,
                       struct wire_view (*key_at)(void *arg, uint32_t i), void *arg)
{
    uint64_t total = 4 + (uint64_t)count * 4;
    for (uint32_t i = 0; i < count; i++) {
        size_t size = key_at(arg, i).size;
        if (size > UINT32_MAX)
            return base_fail(YOLK_ERR_TOO_LARGE, 0, "a key of %zu bytes", size);
        total += size;
    }
    int status = base_buf_reserve(out, total);
    if (status != YOLK_OK)
        return status;
    uint8_t *lens = out->data + out->size;
    uint8_t *at = lens + 4 + (size_t)count * 4;
    wire_set_u32(lens, count);
    for (uint32_t i = 0; i < count; i++) {
        struct wire_view key = key_at(arg, i);
        wire_set_u32(lens + 4 + (size_t)i * 4, (uint32_t)key.size);
        if (key.size > 0)
            memcpy(at, key.data, key.size);
        at += key.size;
    }
    out->size += total;
    return YOLK_OK;
}
