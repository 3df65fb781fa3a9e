/* kv.h - KV planes for a batch of batch.h, in which every byte says where it belongs.

   The bytes of one KV row are drawn from a generator that is seeded with (plane, row, position): a
   byte that came from another row, position, plane or offset is seen. What is expected at the
   destination is generated anew, never read from the source. */

#ifndef KV_H_INCLUDED
#define KV_H_INCLUDED

#include "batch.h"

typedef enum room { ROOM_EXACT, ROOM_PLENTY, ROOM_ONE_SHORT, ROOM_HALF, ROOM_ONE, NUM_ROOMS } room;

enum { KV_MAX_PLANES = 64 };

typedef struct kv_shape {
    int64_t row_bytes;
    int64_t pos_gap, seq_gap, dst_gap; /* stride minus what it must hold, in bytes */
    int src_offset, dst_offset;        /* bytes from a 16-byte boundary */
    int num_planes;                    /* 0: no plane tables */
    int null_planes;                   /* per cent of planes that are null on one side */
    int num_sms;
    room room;
    int bad_accepted; /* per cent of live rows with an accepted_len out of range; B1 alone */
    int keep_status;  /* B1 alone */
} kv_shape;

typedef struct kv_pack {
    kv_shape k;
    const batch *b;
    int64_t pos_stride, seq_stride, dst_stride, capacity;
    int32_t *len;     /* [batch] KV rows that each row has to pack */
    uint32_t *status; /* [batch] bits that packing finds */
    uint32_t *old_status;
    t_buf src[KV_MAX_PLANES], dst[KV_MAX_PLANES], offsets, accepted, row_status;
    void *src_table[2][KV_MAX_PLANES], *dst_table[2][KV_MAX_PLANES]; /* by side */
    void *device_tables;
} kv_pack;

/* The bytes of one KV row. */
T_FN void kv_bytes(char *to, int64_t bytes, int plane, int row, int position) {
    uint64_t seed = t_mix(((uint64_t)plane << 48) + ((uint64_t)row << 24) + (uint64_t)position + 1);
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = t_mix(seed += 0x9E3779B97F4A7C15u);
        memcpy(to + i, &word, (size_t)(bytes - i < 8 ? bytes - i : 8));
    }
}

T_FN int kv_num_planes(const kv_pack *p) { return p->k.num_planes ? p->k.num_planes : 1; }

/* Where position j of a row starts in a source plane. */
T_FN int64_t kv_source(const kv_pack *p, int row, int j) {
    const truth *r = &p->b->rows[row];
    if (p->b->s.layout == CSR) return (r->first + j) * p->pos_stride;
    return row * p->seq_stride + j * p->pos_stride;
}

/* Which rows are packed, where they go, and what is wrong with them: the definition in one loop. */
T_FN void kv_draw_lengths(kv_pack *p, int is_b1) {
    int64_t total = 0, packed = 0;
    for (int row = 0; row < p->b->s.batch; ++row) {
        const truth *r = &p->b->rows[row];
        const int32_t wrong[] = {-1, INT32_MIN, r->n_draft + 1, INT32_MAX};
        int32_t accepted = r->accepted;
        p->len[row] = r->accepted;
        if (is_b1 && r->live) p->status[row] = r->status & SPECV_ROW_BAD_LENGTH;
        if (is_b1 && (!r->live || p->status[row])) {
            /* nothing that could be used; a 0 alone would not show that the row is at fault */
            accepted = t_chance(30) ? 0 : (int32_t)t_random();
            p->len[row] = 0;
        } else if (is_b1 && t_chance(p->k.bad_accepted)) {
            accepted = T_PICK(wrong);
            p->len[row] = 0;
            p->status[row] = SPECV_ROW_BAD_LENGTH;
        }
        if (is_b1) memcpy(p->accepted.host + 4 * (int64_t)row, &accepted, 4);
        total += p->len[row];
    }
    p->capacity = p->k.room == ROOM_PLENTY      ? total + 7
                  : p->k.room == ROOM_ONE_SHORT ? total - 1
                  : p->k.room == ROOM_HALF      ? total / 2
                  : p->k.room == ROOM_ONE       ? 1
                                                : total;
    if (p->capacity < 1) p->capacity = 1;
    for (int row = 0; row < p->b->s.batch; ++row) {
        packed += p->len[row];
        if (p->len[row] && packed > p->capacity) p->status[row] |= SPECV_ROW_NO_SPACE;
    }
}

T_FN void kv_fill_plane(kv_pack *p, int plane, int64_t positions) {
    const int num_rows = p->b->s.batch;
    const int64_t bytes =
        p->b->s.layout == CSR
            ? (positions ? (positions - 1) * p->pos_stride + p->k.row_bytes : 0)
            : (num_rows && p->b->s.max_draft
                   ? kv_source(p, num_rows - 1, p->b->s.max_draft - 1) + p->k.row_bytes
                   : 0);
    p->src[plane] = t_in(bytes, p->k.src_offset);
    for (int64_t i = 0; i < bytes; ++i) p->src[plane].host[i] = (char)(i * 37 + plane); /* gaps */
    for (int row = 0; row < num_rows; ++row)
        for (int j = 0; j < p->b->rows[row].n_draft; ++j)
            kv_bytes(p->src[plane].host + kv_source(p, row, j), p->k.row_bytes, plane, row, j);
    p->dst[plane] = t_out((p->capacity - 1) * p->dst_stride + p->k.row_bytes, p->k.dst_offset);
}

/* Planes, offsets and, for B1, accepted_len and row_status. `b` outlives p. */
T_FN void kv_make(kv_pack *p, const kv_shape *k, const batch *b, int is_b1) {
    const int64_t max_draft = b->s.max_draft, num_rows = b->s.batch;
    memset(p, 0, sizeof *p);
    p->k = *k;
    p->b = b;
    p->pos_stride = k->row_bytes + k->pos_gap;
    p->seq_stride = max_draft * p->pos_stride + k->seq_gap;
    p->dst_stride = k->row_bytes + k->dst_gap;
    p->len = (int32_t *)calloc((size_t)num_rows + 1, sizeof(int32_t));
    p->status = (uint32_t *)calloc((size_t)num_rows + 1, sizeof(uint32_t));
    p->old_status = (uint32_t *)calloc((size_t)num_rows + 1, sizeof(uint32_t));
    if (!p->len || !p->status || !p->old_status) t_die(__FILE__, __LINE__, "kv_make", "no memory");
    if (is_b1) p->accepted = t_in(4 * num_rows, 0);
    kv_draw_lengths(p, is_b1);
    for (int plane = 0; plane < kv_num_planes(p); ++plane) {
        kv_fill_plane(p, plane, b->num_draft_tokens);
        int missing = k->num_planes && t_chance(k->null_planes) ? t_chance(50) ? 1 : 2 : 0;
        for (int side = 0; side < 2; ++side) {
            p->src_table[side][plane] = missing == 1 ? NULL : t_at(&p->src[plane], side);
            p->dst_table[side][plane] = missing == 2 ? NULL : t_at(&p->dst[plane], side);
        }
    }
    p->offsets = t_out(4 * (num_rows + 1), 0);
    if (is_b1) p->row_status = t_out(4 * num_rows, 0);
    for (int64_t row = 0; is_b1 && k->keep_status && row < num_rows; ++row) {
        p->old_status[row] = (uint32_t)t_random();
        memcpy(p->row_status.host + 4 * row, &p->old_status[row], 4);
    }
#if T_DEVICE
    T_CUDA(cudaMalloc(&p->device_tables, 2 * sizeof p->src_table[1]));
    T_CUDA(cudaMemcpy(p->device_tables, p->src_table[1], sizeof p->src_table[1],
                      cudaMemcpyHostToDevice));
    T_CUDA(cudaMemcpy((char *)p->device_tables + sizeof p->src_table[1], p->dst_table[1],
                      sizeof p->dst_table[1], cudaMemcpyHostToDevice));
#endif
}

T_FN void kv_free(kv_pack *p) {
    free(p->len);
    free(p->status);
    free(p->old_status);
#if T_DEVICE
    T_CUDA(cudaFree(p->device_tables));
#endif
}

T_FN specv_kv_pack kv_describe(const kv_pack *p, int side) {
    specv_kv_pack d = SPECV_ZERO;
    if (p->k.num_planes == 0) {
        d.src = p->src_table[side][0];
        d.dst = p->dst_table[side][0];
    } else if (side == T_HOST_SIDE) {
        d.src_planes = (const void *const *)p->src_table[side];
        d.dst_planes = p->dst_table[side];
    } else {
        d.src_planes = (const void *const *)p->device_tables;
        d.dst_planes = (void *const *)p->device_tables + KV_MAX_PLANES;
    }
    d.offsets = (int32_t *)t_at(&p->offsets, side);
    d.row_bytes = p->k.row_bytes;
    /* 0 and the packed stride mean the same: both occur. */
    if (p->k.pos_gap || p->capacity % 2) d.src_pos_stride_bytes = p->pos_stride;
    if (p->b->s.layout != CSR && (p->k.seq_gap || p->capacity % 2))
        d.src_seq_stride_bytes = p->seq_stride;
    if (p->k.dst_gap || p->capacity % 2) d.dst_row_stride_bytes = p->dst_stride;
    d.capacity_rows = p->capacity;
    d.num_planes = p->k.num_planes;
    d.num_sms = p->k.num_sms;
    return d;
}

T_FN specv_pack_kv_desc kv_describe_b1(const kv_pack *p, int side) {
    specv_pack_kv_desc d = SPECV_ZERO;
    d.keep_status = p->k.keep_status;
    d.rows = batch_rows_of_no_slots(p->b, side);
    d.accepted_len = (const int32_t *)t_at(&p->accepted, side);
    d.row_status = (uint32_t *)t_at(&p->row_status, side);
    d.kv = kv_describe(p, side);
    return d;
}

T_FN specv_verify_pack_kv_desc kv_describe_b2(const kv_pack *p, int side) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify = batch_describe(p->b, side);
    d.kv = kv_describe(p, side);
    return d;
}

T_FN int is_poison(const char *data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i)
        if ((uint8_t)data[i] != T_POISON) return 0;
    return 1;
}

/* What the reference wrote on the host: offsets, packed rows, everything else untouched. */
T_FN void kv_check(const kv_pack *p) {
    const int num_rows = p->b->s.batch;
    char *expected = (char *)malloc((size_t)p->k.row_bytes);
    int32_t offset = 0;
    if (!expected) t_die(__FILE__, __LINE__, "kv_check", "no memory");
    for (int row = 0; row < num_rows; ++row) {
        CHECK_EQ(word_at(&p->offsets, row), offset, row);
        offset += p->len[row];
    }
    if (num_rows)
        CHECK_EQ(word_at(&p->offsets, num_rows), offset, num_rows);
    else
        CHECK(is_poison(p->offsets.host, 4)); /* batch 0 does nothing at all */
    for (int plane = 0; plane < kv_num_planes(p); ++plane) {
        const int used = p->src_table[0][plane] && p->dst_table[0][plane];
        const char *to = p->dst[plane].host;
        int64_t packed = 0;
        for (int row = 0; row < num_rows && used; ++row)
            for (int j = 0; j < p->len[row] && !(p->status[row] & SPECV_ROW_NO_SPACE); ++j) {
                kv_bytes(expected, p->k.row_bytes, plane, row, j);
                CHECK_EQ(memcmp(to, expected, (size_t)p->k.row_bytes) == 0, 1, row);
                to += p->k.row_bytes;
                if (++packed == p->capacity) break; /* the last row has no gap behind it */
                CHECK_EQ(is_poison(to, p->k.dst_gap), 1, row);
                to += p->k.dst_gap;
            }
        CHECK(is_poison(to, (int64_t)p->dst[plane].bytes - (to - p->dst[plane].host)));
    }
    for (int row = 0; row < num_rows && p->row_status.host; ++row)
        CHECK_EQ((uint32_t)word_at(&p->row_status, row), p->status[row] | p->old_status[row], row);
    free(expected);
}

T_FN void kv_note(const kv_shape *k) {
    static const char *const rooms[] = {"exact", "plenty", "one short", "half", "one row"};
    t_note(", row_bytes %lld, gaps %lld %lld %lld, offsets %d %d, planes %d, room: %s, num_sms %d",
           (long long)k->row_bytes, (long long)k->pos_gap, (long long)k->seq_gap,
           (long long)k->dst_gap, k->src_offset, k->dst_offset, k->num_planes, rooms[k->room],
           k->num_sms);
}

/* ------------------------------------------------------------------------------- whole cases */

#if T_DEVICE
/* B2's only kernel, whatever the launcher would choose for the descriptor. */
T_FN int kv_launch_one(const specv_verify_pack_kv_desc *desc, int copy_blocks) {
    specv_verify_pack_kv_desc d = *desc;
    int status = specv_verify_pack_kv_validate(&d);
    if (status || d.verify.rows.batch == 0) return status;
    specv_verify_pack_kv_resolve(&d);
    specv_verify_pack_kv_kernel<<<
        (unsigned)(specv_i_verify_blocks(d.verify.rows.batch) + copy_blocks), SPECV_PACK_THREADS>>>(
        d);
    return (int)cudaGetLastError();
}

/* B1 as a step that is not small, in blocks of a warp: threads and warps take many turns. */
T_FN int kv_launch_tiles(const specv_pack_kv_desc *desc, int blocks) {
    specv_pack_kv_desc d = *desc;
    specv_pack_kv_resolve(&d);
    specv_pack_kv_kernel<<<(unsigned)blocks, 32>>>(d);
    return (int)cudaGetLastError();
}

/* B2 as the two launches that it stands for. */
T_FN int kv_launch_two(const specv_verify_pack_kv_desc *d) {
    specv_pack_kv_desc pack = SPECV_ZERO;
    int status = specv_verify_greedy(&d->verify, 0);
    pack.keep_status = 1;
    pack.rows = d->verify.rows;
    pack.accepted_len = d->verify.accepted_len;
    pack.row_status = d->verify.row_status;
    pack.kv = d->kv;
    return status ? status : specv_pack_kv(&pack, 0);
}
#endif

T_FN void kv_run_b1(const shape *s, const kv_shape *k) {
    batch b;
    kv_pack p;
    specv_pack_kv_desc d;
    batch_note(s);
    kv_note(k);
    batch_make(&b, s);
    kv_make(&p, k, &b, 1);
    t_upload();
    d = kv_describe_b1(&p, T_HOST_SIDE);
    CHECK_EQ(specv_ref_pack_kv(&d), SPECV_OK, -1);
    kv_check(&p);
    t_check_host();
#if T_DEVICE
    d = kv_describe_b1(&p, T_DEVICE_SIDE);
    CHECK_EQ(specv_pack_kv(&d, 0), SPECV_OK, -1);
    t_check_device();
    /* Again by the kernel of steps that are not small, where no output holds something before. */
    if (t.case_seed % 4 == 0 && s->batch > 0 && !k->keep_status && !s->keep_status) {
        t_poison_device();
        CHECK_EQ(kv_launch_tiles(&d, 1 + (int)t_below(3)), SPECV_OK, -1);
        t_check_device();
    }
#endif
    kv_free(&p);
    batch_free(&b);
}

/* `extra`: the device also runs B2 in the form that the launcher did not choose. */
T_FN void kv_run_b2(const shape *s, const kv_shape *k, int extra) {
    batch b;
    kv_pack p;
    specv_verify_pack_kv_desc d;
    batch_note(s);
    kv_note(k);
    batch_make(&b, s);
    kv_make(&p, k, &b, 0);
    t_upload();
    d = kv_describe_b2(&p, T_HOST_SIDE);
    CHECK_EQ(specv_ref_verify_pack_kv(&d), SPECV_OK, -1);
    batch_check(&b, p.status);
    kv_check(&p);
    t_check_host();
#if T_DEVICE
    d = kv_describe_b2(&p, T_DEVICE_SIDE);
    CHECK_EQ(specv_verify_pack_kv(&d, 0), SPECV_OK, -1);
    t_check_device();
    if (extra) {
        int launches = specv_verify_pack_kv_launches(&d);
        batch_poison_device(&b);
        CHECK_EQ(launches == 2 ? kv_launch_one(&d, 1 + (int)t_below(5)) : kv_launch_two(&d),
                 SPECV_OK, -1);
        t_check_device();
    }
#else
    (void)extra;
#endif
    kv_free(&p);
    batch_free(&b);
}

#endif /* KV_H_INCLUDED */
