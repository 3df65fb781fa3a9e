/* pack.cu - B1, packing KV rows, B2, verifying and packing in one launch or two, and the copies
   below them. Every KV byte says where it belongs: see kv.h. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#define T_INSIDE /* functions of the implementation are called */
/* so that it has kernels of its own, those that it starts */
#define SPECVERIFY_NO_SAMPLE
#define SPECVERIFY_NO_SHARDS
#define SPECVERIFY_NO_CACHE
#define SPECVERIFY_NO_TREES
#define SPECVERIFY_NO_COLUMNS
#define SPECVERIFY_NO_SCHEDULE
#define SPECVERIFY_NO_PARTICLES
#define SPECVERIFY_NO_STATS
#include "kv.h"

#include <sys/mman.h>

static shape rows_shape(int num_rows, int max_draft, int turn) {
    shape s;
    memset(&s, 0, sizeof s);
    s.batch = num_rows;
    s.max_draft = max_draft;
    s.vocab = 32000;
    s.dtype = turn % 2 ? SPECV_I64 : SPECV_I32;
    s.layout = (layout)(turn % NUM_LAYOUTS);
    return s;
}

static kv_shape kv_plain(int64_t row_bytes) {
    kv_shape k;
    memset(&k, 0, sizeof k);
    k.row_bytes = row_bytes;
    k.num_sms = 2; /* few blocks: the tests' time is spent in them */
    return k;
}

/* --------------------------------------------------------------------------------- the groups */

static void test_row_bytes(void) {
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 256, 2048, 4096, 65536};
    int turn = 0;
    for (int i = 0; i < T_COUNT(sizes); ++i)
        for (int gaps = 0; gaps < 8; ++gaps, ++turn) {
            shape s = rows_shape(sizes[i] > 10000 ? 3 : 23, sizes[i] > 10000 ? 3 : 6, turn / 2);
            kv_shape k = kv_plain(sizes[i]);
            if (t.quick && gaps % 7) continue;
            k.pos_gap = gaps & 1 ? (gaps & 2 ? 16 : 3) : 0;
            k.seq_gap = gaps & 2 ? (gaps & 4 ? 32 : 5) : 0;
            k.dst_gap = gaps & 4 ? (gaps & 1 ? 48 : 7) : 0;
            if (s.layout == CSR) k.seq_gap = 0;
            t_case("%s, row bytes:", turn % 2 ? "B2" : "B1");
            if (turn % 2)
                kv_run_b2(&s, &k, 1);
            else
                kv_run_b1(&s, &k);
        }
}

/* Source and destination at every pair of offsets from a 16-byte boundary. */
static void test_alignment(void) {
    static const int64_t sizes[] = {256, 17, 48, 333};
    for (int src = 0; src < 16; ++src)
        for (int dst = 0; dst < 16; ++dst) {
            const int turn = src * 16 + dst;
            shape s = rows_shape(9, 5, src + dst);
            kv_shape k = kv_plain(sizes[turn % T_COUNT(sizes)]);
            if (t.quick && (src + 3 * dst) % 8) continue;
            k.src_offset = src, k.dst_offset = dst;
            k.num_sms = 1;
            t_case("%s, alignment:", turn % 3 ? "B1" : "B2");
            if (turn % 3)
                kv_run_b1(&s, &k);
            else
                kv_run_b2(&s, &k, 0);
        }
}

/* Units of 16 bytes fit only where everything is a multiple of 16: each of the six numbers that
   matter is the only one that is not. */
static void test_units(void) {
    for (int i = 0; i < 7 * 2; ++i) {
        shape s = rows_shape(31, 4, i);
        kv_shape k = kv_plain(i / 2 == 3 ? 24 : 48);
        s.layout = i % 2 ? CSR : DENSE;
        if (i / 2 == 1) k.src_offset = 8;
        if (i / 2 == 2) k.dst_offset = 8;
        if (i / 2 == 3) k.pos_gap = k.dst_gap = 8;
        if (i / 2 == 4) k.pos_gap = 8; /* four of them are a multiple of 16 */
        if (i / 2 == 5) k.dst_gap = 8;
        if (i / 2 == 6 && s.layout != CSR) k.seq_gap = 8;
        t_case("B1, units:");
        kv_run_b1(&s, &k);
    }
}

static void test_planes(void) {
    static const int planes[] = {1, 2, 3, 7, 64};
    for (int i = 0; i < T_COUNT(planes) * 6; ++i) {
        shape s = rows_shape(11, 4, i / 2);
        kv_shape k = kv_plain(i % 3 ? 64 : 700);
        k.num_planes = planes[i / 6];
        k.null_planes = i % 2 ? 40 : 0;
        /* from more warps than planes to more planes than warps */
        k.num_sms = i % 6 < 3 ? 1 : 40;
        k.room = (room)(i % NUM_ROOMS);
        t_case("%s, planes:", i % 2 ? "B1" : "B2");
        if (i % 2)
            kv_run_b1(&s, &k);
        else
            kv_run_b2(&s, &k, i % 4 == 0);
    }
}

static void test_capacity(void) {
    for (int i = 0; i < NUM_ROOMS * NUM_LAYOUTS * 4; ++i) {
        shape s = rows_shape(i % 4 ? 40 : 3, 5, i / NUM_ROOMS);
        kv_shape k = kv_plain(i % 3 ? 32 : 1000);
        k.room = (room)(i % NUM_ROOMS);
        k.dst_gap = i % 5 == 0 ? 8 : 0;
        t_case("%s, capacity:", i % 2 ? "B1" : "B2");
        if (i % 2)
            kv_run_b1(&s, &k);
        else
            kv_run_b2(&s, &k, 1);
    }
}

/* What only the device can see: lengths out of range, bad tokens, inert rows, EOS. */
static void test_faults(void) {
    static const int actives[] = {0, 1, 20, 37, 1000, -1};
    for (int i = 0; i < (t.quick ? 24 : 96); ++i) {
        shape s = rows_shape(37, i % 4 ? 5 : 40, i / 2);
        kv_shape k = kv_plain(40);
        s.endings = ALL_ENDINGS;
        s.num_eos = i % 5;
        s.has_num_active = i % 3 == 0;
        s.num_active = actives[i / 3 % T_COUNT(actives)];
        s.outputs = i % 8 == 6 ? OUT_NONE : OUT_ALL;
        s.spare_drafts = i % 7;
        k.bad_accepted = 15;
        k.keep_status = i % 4 == 1, s.keep_status = i % 4 == 2; /* of B1, of B2 */
        k.room = (room)(i / 2 % NUM_ROOMS);
        t_case("%s, faults:", i % 2 ? "B1" : "B2");
        if (i % 2)
            kv_run_b1(&s, &k);
        else
            kv_run_b2(&s, &k, 1);
    }
}

/* A block scans SPECV_TILE_ROWS rows at a time: sizes on both sides of that, in every form. Lengths
   that differ from row to row show a tile that reads those of another. */
static void test_tiles(void) {
    static const int batches[] = {2047, 2048, 2049, 4097};
    /* 4097 rows in half of the room: the last tile begins behind the end of it */
    static const room rooms[] = {ROOM_HALF, ROOM_EXACT, ROOM_EXACT, ROOM_ONE_SHORT};
    for (int i = 0; i < T_COUNT(batches) * 6; ++i) {
        const int size = i / 6, turn = i / 2;
        shape s = rows_shape(batches[size], 1 + (size + turn + 2) % 3, turn);
        kv_shape k = kv_plain((size + i) % 2 ? 16 : 5);
        if (t.quick && (s.max_draft > 1 || (i % 2 == 0 && size % 2 == 0))) continue;
        k.room = rooms[(size + i) % 4];
        k.num_sms = 1 + i % 4;
        t_case("%s, tiles:", i % 2 ? "B1" : "B2");
        if (i % 2)
            kv_run_b1(&s, &k);
        else
            kv_run_b2(&s, &k, 1);
    }
    /* copies from the second tile, by units and by runs */
    for (int i = 0; i < 2 * NUM_LAYOUTS; ++i) {
        shape s = rows_shape(2300, 2, i);
        kv_shape k = kv_plain(i < NUM_LAYOUTS ? 16 : 5);
        k.num_sms = 1;
        k.keep_status = i % 2;
        t_case("B1, second tile:");
        kv_run_b1(&s, &k);
    }
}

/* B2's scan walks through padded rows a block's width at a time: rows of every padding, and so many
   that it takes further steps, some of which end in the middle of a row. */
static void test_walk(void) {
    static const int drafts[] = {1, 4, 5, 9, 17, 33, 65, 70, 96, 130, 300, 1000};
    for (int i = 0; i < T_COUNT(drafts) * 4; ++i) {
        const int max_draft = drafts[i / 4];
        if (t.quick && i % 2) continue;
        shape s = rows_shape(max_draft > 999 ? 4 : max_draft > 99 ? 13 : 41, max_draft, i / 2);
        kv_shape k = kv_plain(1);
        k.num_sms = 1;
        s.spread = i % 4 ? SPREAD_MIXED : SPREAD_NONE;
        t_case("B2, walk:");
        kv_run_b2(&s, &k, 0);
    }
}

/* Small steps, at the edges of rows, turns, warps and blocks: B2, and B1 of the same rows. */
static void test_small(void) {
    static const int batches[] = {1, 2, 4, 15, 16, 31, 32, 33, 64, 129, 512};
    static const int drafts[] = {1, 2, 8, 9, 31, 32, 33, 64, 65, 127, 128};
    static const int64_t sizes[] = {16, 32, 48, 80, 256, 1040};
    static const int planes[] = {0, 1, 2, 5}, sms[] = {1, 2, 132};
    static const room rooms[] = {ROOM_EXACT, ROOM_HALF, ROOM_PLENTY, ROOM_ONE_SHORT, ROOM_ONE};
    int turn = 0;
    for (int i = 0; i < T_COUNT(batches); ++i)
        for (int j = 0; j < T_COUNT(drafts); ++j, ++turn) {
            shape s = rows_shape(batches[i], drafts[j], turn);
            kv_shape k = kv_plain(sizes[turn % T_COUNT(sizes)]);
            int columns = 8;
            if (batches[i] * drafts[j] > 1000 && (t.quick || k.row_bytes > 256)) k.row_bytes = 16;
            while (columns < drafts[j]) columns *= 2;
            if (batches[i] * columns > 4096 || (t.quick && (i + j) % 3)) continue;
            s.layout = turn / 2 % 2 ? DENSE : DENSE_LEN;
            s.endings = turn % 3 ? ALL_ENDINGS : 0;
            s.num_eos = turn % 4, s.vocab = turn % 5 ? 32000 : 0;
            s.has_num_active = turn % 4 == 1, s.num_active = batches[i] - turn % 7;
            s.outputs = turn % 7 == 3 ? OUT_NONE : OUT_ALL;
            s.keep_status = turn % 6 == 5;
            s.draft_gap = turn % 3, s.target_gap = turn % 2, s.out_gap = turn % 5;
            k.num_planes = planes[turn / 3 % T_COUNT(planes)];
            k.null_planes = k.num_planes > 1 ? 25 : 0;
            k.num_sms = sms[turn % T_COUNT(sms)];
            k.room = rooms[turn % T_COUNT(rooms)];
            k.pos_gap = turn % 4 ? 0 : 16, k.seq_gap = turn % 5 ? 0 : 32,
            k.dst_gap = turn % 3 ? 0 : 48;
            if (k.num_planes) k.src_offset = turn % 16, k.dst_offset = turn / 2 % 16;
            t_case("B2, small step:");
            kv_run_b2(&s, &k, turn % 4 == 0);
            k.bad_accepted = turn % 3 ? 15 : 0;
            k.keep_status = turn % 5 == 1;
            t_case("B1, small step:");
            kv_run_b1(&s, &k);
        }
    /* so many units that a lane has several in flight, and yet one turn: to the block's last row */
    for (int i = 0; i < 2; ++i) {
        shape s = rows_shape(33, 32, i);
        kv_shape k = kv_plain(i ? 528 : 1040);
        s.layout = i ? DENSE_LEN : DENSE;
        k.num_planes = 2 * i;
        k.num_sms = 132;
        t_case("B2, small step of many units:");
        kv_run_b2(&s, &k, 0);
        t_case("B1, small step of many units:");
        kv_run_b1(&s, &k);
    }
}

/* Which steps are small, by what is not. */
static void test_is_small(void) {
#if T_DEVICE
    for (int i = 0; i < 12; ++i) {
        specv_verify_pack_kv_desc d = SPECV_ZERO;
        t_case("is it small, %d", i);
        d.verify.rows.batch = 32, d.verify.rows.max_draft = 128;
        d.kv.src = (void *)64, d.kv.dst = (void *)64, d.kv.row_bytes = 48;
        if (i == 1) d.verify.rows.batch = 33;
        if (i == 2) d.verify.rows.batch = 1, d.verify.rows.max_draft = 129;
        if (i == 3) d.verify.rows.max_draft = 0;
        if (i == 4) d.verify.rows.row_start = (int32_t *)64;
        if (i == 5) d.kv.src = (void *)72;
        if (i == 6) d.kv.dst = (void *)72;
        if (i == 7) d.kv.row_bytes = 56;
        if (i == 8) d.kv.src_pos_stride_bytes = 56;
        if (i == 9) d.kv.src_seq_stride_bytes = 128 * 48 + 8;
        if (i == 10) d.kv.dst_row_stride_bytes = 56;
        if (i == 11) d.kv.row_bytes = (int64_t)1 << 22; /* 2^30 units */
        CHECK_EQ(specv_i_is_small_pack(&d.verify.rows, &d.kv), i == 0, i);
    }
    t_case("divisors");
    for (uint32_t d = 1; d < 70000; d += d < 300 ? 1 : 97)
        for (uint32_t i = 0; i < 64; ++i) {
            const uint32_t base = i % 2 ? 0x7fffffffu / d * d : i / 4 * d;
            const uint32_t x = i % 4 < 2 ? base : base - (base > 0);
            uint32_t rest;
            CHECK(specv_i_divide(x, specv_i_divisor_of(d), &rest) == x / d && rest == x % d);
        }
#else
    t_skip("the reference has no kernels to choose from");
#endif
}

/* Nothing to copy, in each way, and batch 0. */
static void test_nothing(void) {
    for (int i = 0; i < 24; ++i) {
        shape s = rows_shape(i % 4 ? 5 : 0, i % 3 ? 4 : 0, i);
        kv_shape k = kv_plain(16);
        s.spread = SPREAD_NONE;
        t_case("%s, nothing to pack:", i % 2 ? "B1" : "B2");
        if (i % 2)
            kv_run_b1(&s, &k);
        else
            kv_run_b2(&s, &k, 1);
    }
}

/* B2 must take both of its forms, and the launcher's default number of SMs must work. */
static void test_forms(void) {
    int launches[3] = {0, 0, 0};
    for (int i = 0; i < 8; ++i) {
        shape s = rows_shape(i % 2 ? 1500 : 32, i % 2 ? 33 : 8, i / 2);
        kv_shape k = kv_plain(16);
        specv_verify_pack_kv_desc d = SPECV_ZERO;
        if (t.quick && i > 3) continue;
        k.num_sms = 0;
        d.verify.rows.batch = s.batch, d.verify.rows.max_draft = s.max_draft;
        d.verify.token_dtype = (int32_t)s.dtype;
        t_case("B2, forms:");
        launches[specv_verify_pack_kv_launches(&d)] += 1;
        kv_run_b2(&s, &k, 0);
    }
    CHECK(launches[1] > 0 && launches[2] > 0 && launches[0] == 0);
}

/* ---------------------------------------------------------------------------- beyond 4 GiB */

/* Memory that exists only where it is touched. Null if there is none. */
static char *host_reserve(int64_t bytes) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (char *)p;
}

enum { FAR_ROWS = 3, FAR_DRAFTS = 2, FAR_ROW_BYTES = 24, FAR_BUFFERS = 5 };

/* Strides so long that rows lie behind 2^31 and 2^32, counted in elements and in bytes:
   a 32-bit product anywhere would fold them back. Row b accepts b % 3 drafts. */
static void test_far(void) {
    const int64_t token_stride = ((int64_t)1 << 31) + 8; /* elements, of int32 */
    const int64_t kv_stride = ((int64_t)3 << 30) + 64;   /* bytes */
    const int64_t tokens = (FAR_ROWS - 1) * token_stride * 4 + 64;
    const int64_t kv = (FAR_ROWS - 1) * kv_stride + 64;
    const int64_t bytes[FAR_BUFFERS] = {tokens, tokens, tokens, kv, kv};
    char *far_host[FAR_BUFFERS], *far_device[FAR_BUFFERS] = {NULL}, row_bytes[FAR_ROW_BYTES];
    int32_t draft[FAR_DRAFTS], target[FAR_DRAFTS + 1];
    int ok = 1;
    t_case("strides beyond 4 GiB");
    for (int i = 0; i < FAR_BUFFERS; ++i) {
        ok = (far_host[i] = host_reserve(bytes[i])) != NULL && ok;
#if T_DEVICE
        ok = cudaMalloc((void **)&far_device[i], (size_t)bytes[i]) == cudaSuccess && ok;
        (void)cudaGetLastError();
#endif
    }
    t_buf accepted = t_out(4 * FAR_ROWS, 0), offsets = t_out(4 * (FAR_ROWS + 1), 0);
    t_upload();
    for (int row = 0; row < FAR_ROWS && ok; ++row)
        for (int j = 0; j <= FAR_DRAFTS; ++j) {
            int64_t at = (row * token_stride + j) * 4;
            int64_t kv_at = row * kv_stride + j * (int64_t)FAR_ROW_BYTES;
            target[j] = 10 * row + j;
            memcpy(far_host[1] + at, &target[j], 4);
            if (j == FAR_DRAFTS) break;
            draft[j] = target[j] + (j >= row % 3);
            memcpy(far_host[0] + at, &draft[j], 4);
            kv_bytes(far_host[3] + kv_at, FAR_ROW_BYTES, 0, row, j);
        }
    for (int side = 0; side <= T_DEVICE && ok; ++side) {
        char **far = side == T_HOST_SIDE ? far_host : far_device;
        specv_verify_pack_kv_desc d = SPECV_ZERO;
        d.verify.rows.batch = FAR_ROWS, d.verify.rows.max_draft = FAR_DRAFTS;
        d.verify.draft_tokens = far[0], d.verify.draft_stride_elems = token_stride;
        d.verify.target_tokens = far[1], d.verify.target_stride_elems = token_stride;
        d.verify.out_tokens = far[2], d.verify.out_stride_elems = token_stride;
        d.verify.accepted_len = (int32_t *)t_at(&accepted, side);
        d.kv.src = far[3], d.kv.src_seq_stride_bytes = kv_stride;
        d.kv.dst = far[4], d.kv.dst_row_stride_bytes = kv_stride;
        d.kv.offsets = (int32_t *)t_at(&offsets, side);
        d.kv.row_bytes = FAR_ROW_BYTES, d.kv.capacity_rows = 3, d.kv.num_sms = 1;
        if (side == T_HOST_SIDE) CHECK_EQ(specv_ref_verify_pack_kv(&d), SPECV_OK, -1);
#if T_DEVICE
        for (int row = 0; side == T_DEVICE_SIDE && row < FAR_ROWS; ++row) {
            int64_t at = row * token_stride * 4, kv_at = row * kv_stride;
            T_CUDA(cudaMemcpy(far[0] + at, far_host[0] + at, 8, cudaMemcpyHostToDevice));
            T_CUDA(cudaMemcpy(far[1] + at, far_host[1] + at, 12, cudaMemcpyHostToDevice));
            T_CUDA(cudaMemcpy(far[3] + kv_at, far_host[3] + kv_at, 2 * FAR_ROW_BYTES,
                              cudaMemcpyHostToDevice));
        }
        if (side == T_DEVICE_SIDE) {
            CHECK_EQ(specv_verify_pack_kv(&d, 0), SPECV_OK, -1);
            T_CUDA(cudaDeviceSynchronize());
        }
#endif
        for (int row = 0, packed = 0; row < FAR_ROWS; ++row)
            for (int j = 0; j <= FAR_DRAFTS; ++j) {
                int64_t at = (row * token_stride + j) * 4;
                int32_t out = 0, expected = j <= row % 3 ? 10 * row + j : -1;
                char moved[FAR_ROW_BYTES];
#if T_DEVICE
                T_CUDA(cudaMemcpy(&out, far[2] + at, 4, cudaMemcpyDefault));
#else
                memcpy(&out, far[2] + at, 4);
#endif
                CHECK_EQ(out, expected, row);
                if (j >= row % 3) continue;
#if T_DEVICE
                T_CUDA(cudaMemcpy(moved, far[4] + packed * kv_stride, FAR_ROW_BYTES,
                                  cudaMemcpyDefault));
#else
                memcpy(moved, far[4] + packed * kv_stride, FAR_ROW_BYTES);
#endif
                kv_bytes(row_bytes, FAR_ROW_BYTES, 0, row, j);
                CHECK_EQ(memcmp(moved, row_bytes, FAR_ROW_BYTES) == 0, 1, row);
                packed += 1;
            }
    }
    if (ok) t_check_device();
    for (int i = 0; i < FAR_BUFFERS; ++i) {
        if (far_host[i]) munmap(far_host[i], (size_t)bytes[i]);
#if T_DEVICE
        T_CUDA(cudaFree(far_device[i]));
#endif
    }
    if (!ok) t_skip("no 64 GB of address space on both sides");
}

/* --------------------------------------------------------------------------------- the copies */

#if T_DEVICE

typedef struct copy_job {
    int64_t from, to, bytes;
} copy_job;

/* One job per block: by its first warp, or by all of it. */
__global__ void copy_kernel(char *dst, const char *src, const copy_job *jobs, int whole_block) {
    copy_job job = jobs[blockIdx.x];
    if (whole_block)
        block_copy_kv(dst + job.to, src + job.from, job.bytes);
    else if (threadIdx.x < 32)
        warp_copy_kv(dst + job.to, src + job.from, job.bytes);
}

static void run_copies(const int64_t *sizes, int num_sizes, int src_offset, unsigned threads) {
    const int num_jobs = num_sizes * 16;
    int64_t at = 0, longest = sizes[num_sizes - 1];
    t_buf jobs = t_in((int64_t)sizeof(copy_job) * num_jobs, 0), src = t_in(longest + 64, 0);
    copy_job *job = (copy_job *)jobs.host;
    for (int i = 0; i < num_jobs; ++i, ++job) {
        job->bytes = sizes[i / 16];
        job->from = src_offset;
        job->to = at + i % 16;
        at += (job->bytes + 16 + 32) / 16 * 16;
    }
    t_buf dst = t_out(at, 0);
    for (int64_t i = 0; i < longest + 64; ++i) src.host[i] = (char)t_random();
    t_upload();
    for (int i = 0; i < num_jobs; ++i) {
        job = (copy_job *)jobs.host + i;
        memcpy(dst.host + job->to, src.host + job->from, (size_t)job->bytes);
    }
    copy_kernel<<<(unsigned)num_jobs, threads ? threads : 32>>>(
        dst.device, src.device, (const copy_job *)jobs.device, threads != 0);
    T_CUDA(cudaGetLastError());
    t_check_device();
}

/* Every size up to 600 and some above, at every offset of the source and of the destination. */
static void test_copies(void) {
    static const int64_t large[] = {1023, 1024, 1025, 2047, 2048, 2049, 4096, 10000, 65536};
    static const unsigned blocks[] = {0, 32, 96, 1024};
    int64_t sizes[601];
    for (int i = 0; i < 64; ++i) {
        const unsigned threads = blocks[i / 16];
        const int step = threads > 100 ? 41 : t.quick ? 23 : threads ? 5 : 1;
        int count = 0;
        if (t.quick && threads > 100 && i % 5) continue; /* many idle threads take their time */
        for (int size = i % step; size <= 600; size += step) sizes[count++] = size;
        if (threads)
            t_case("block_copy_kv of %u threads, source offset %d", threads, i % 16);
        else
            t_case("warp_copy_kv, source offset %d", i % 16);
        run_copies(sizes, count, i % 16, threads);
    }
    for (int i = 0; i < T_COUNT(blocks) * (t.quick ? 1 : 3); ++i) {
        t_case("copies of more than 600 bytes, %u threads", blocks[i % T_COUNT(blocks)]);
        run_copies(large, T_COUNT(large) - t.quick, i * 5 % 16, blocks[i % T_COUNT(blocks)]);
    }
}

#else
static void test_copies(void) { t_skip("device functions need nvcc"); }
#endif

#if T_DEVICE

enum { LONG_SIDE = 1024 }; /* bytes on either side of the border between two rows */

/* Two rows of one position each; the warp gets the piece of the output that they share. */
__global__ void long_rows_kernel(specv_kv_pack kv) {
    __shared__ int32_t offsets[3];
    specv_rows rows = SPECV_ZERO;
    specv_plane_share share = {(const char *)kv.src, (char *)kv.dst, 0,
                               (int32_t)(kv.row_bytes / SPECV_PIECE_BYTES), 1 << 30};
    rows.batch = 2, rows.max_draft = 1;
    if (threadIdx.x < 3) offsets[threadIdx.x] = (int32_t)threadIdx.x;
    __syncthreads();
    specv_warp_pack_tile(&rows, &kv, 0, 2, offsets, share);
}

/* Rows too long for the units of a piece to be counted in 32 bits. Copying them whole would take
   minutes, so this is the only piece in which a row ends. */
static void test_long_rows(void) {
    const int64_t row_bytes = ((int64_t)1 << 33) + LONG_SIDE;
    char expected[2 * LONG_SIDE], moved[2 * LONG_SIDE];
    specv_kv_pack kv = SPECV_ZERO;
    void *src = NULL, *dst = NULL;
    t_case("rows of 8 GiB");
    if (cudaMalloc(&src, (size_t)(2 * row_bytes)) != cudaSuccess ||
        cudaMalloc(&dst, (size_t)(2 * row_bytes)) != cudaSuccess) {
        (void)cudaGetLastError();
        T_CUDA(cudaFree(src));
        t_skip("no 32 GiB of device memory");
        return;
    }
    kv_bytes(expected, sizeof expected, 0, 0, 0);
    T_CUDA(cudaMemcpy((char *)src + row_bytes - LONG_SIDE, expected, sizeof expected,
                      cudaMemcpyHostToDevice));
    kv.src = src, kv.dst = dst;
    kv.row_bytes = kv.src_pos_stride_bytes = kv.src_seq_stride_bytes = row_bytes;
    kv.dst_row_stride_bytes = row_bytes;
    kv.capacity_rows = 2, kv.num_planes = 1;
    long_rows_kernel<<<1, 32>>>(kv);
    T_CUDA(cudaGetLastError());
    T_CUDA(cudaMemcpy(moved, (char *)dst + row_bytes - LONG_SIDE, sizeof moved,
                      cudaMemcpyDeviceToHost));
    CHECK_BYTES(moved, expected, sizeof moved);
    T_CUDA(cudaFree(src));
    T_CUDA(cudaFree(dst));
}

#else
static void test_long_rows(void) { t_skip("a reference that copies 16 GiB takes too long"); }
#endif

/* --------------------------------------------------------------------------------- validation */

static int64_t storage[64]; /* something to point to: nothing of it is read or written */

static void *misaligned(void) { return (char *)storage + 2; }

static void valid_kv(specv_kv_pack *kv) {
    kv->src = kv->dst = storage;
    kv->offsets = (int32_t *)storage;
    kv->row_bytes = 16;
    kv->capacity_rows = 8;
}

static specv_pack_kv_desc valid_b1(void) {
    specv_pack_kv_desc d = SPECV_ZERO;
    d.rows.batch = 4, d.rows.max_draft = 7;
    d.accepted_len = (int32_t *)storage;
    valid_kv(&d.kv);
    return d;
}

static specv_verify_pack_kv_desc valid_b2(void) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify.rows.batch = 4, d.verify.rows.max_draft = 7;
    d.verify.draft_tokens = d.verify.target_tokens = storage;
    d.verify.accepted_len = (int32_t *)storage;
    valid_kv(&d.kv);
    return d;
}

#if !T_DEVICE
#define specv_pack_kv(d, stream)        specv_ref_pack_kv(d)
#define specv_verify_pack_kv(d, stream) specv_ref_verify_pack_kv(d)
#endif

/* Not every change uses both: tells nvcc that this is meant. */
static void shortcuts(const specv_kv_pack *kv, const specv_rows *rows) { (void)kv, (void)rows; }

#define EXPECT_B1(code, change)                                                                    \
    do {                                                                                           \
        specv_pack_kv_desc d = valid_b1();                                                         \
        specv_kv_pack *kv = &d.kv;                                                                 \
        specv_rows *rows = &d.rows;                                                                \
        shortcuts(kv, rows);                                                                       \
        change;                                                                                    \
        CHECK_EQ(specv_pack_kv_validate(&d), code, -1);                                            \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_pack_kv(&d), code, -1);                         \
        if ((code) != SPECV_OK) CHECK_EQ(specv_pack_kv(&d, 0), code, -1);                          \
    } while (0)

#define EXPECT_B2(code, change)                                                                    \
    do {                                                                                           \
        specv_verify_pack_kv_desc d = valid_b2();                                                  \
        specv_kv_pack *kv = &d.kv;                                                                 \
        specv_rows *rows = &d.verify.rows;                                                         \
        shortcuts(kv, rows);                                                                       \
        change;                                                                                    \
        CHECK_EQ(specv_verify_pack_kv_validate(&d), code, -1);                                     \
        if ((code) != SPECV_OK) CHECK_EQ(specv_ref_verify_pack_kv(&d), code, -1);                  \
        if ((code) != SPECV_OK) CHECK_EQ(specv_verify_pack_kv(&d, 0), code, -1);                   \
    } while (0)

/* What the KV part of both descriptors shares. */
#define EXPECT(code, change)                                                                       \
    do {                                                                                           \
        EXPECT_B1(code, change);                                                                   \
        EXPECT_B2(code, change);                                                                   \
    } while (0)

static void test_validation(void) {
    const int64_t half = INT64_MAX / 2 + 1;
    t_case("every status code of B1 and B2");
    CHECK_EQ(specv_pack_kv_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_pack_kv(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_pack_kv(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_verify_pack_kv_validate(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_ref_verify_pack_kv(NULL), SPECV_ERR_NULL_DESC, -1);
    CHECK_EQ(specv_verify_pack_kv(NULL, 0), SPECV_ERR_NULL_DESC, -1);
    EXPECT(SPECV_OK, (void)0);
    EXPECT_B2(SPECV_ERR_CANARY, d.reserved = 1);
    EXPECT(SPECV_ERR_CANARY, d.canary1 = 1);
    EXPECT_B1(SPECV_ERR_CHAINED, d.chained = 4);
    EXPECT_B1(SPECV_ERR_CHAINED, d.chained = -1);
    EXPECT_B1(SPECV_ERR_CANARY, d.canary0 = 1);
    EXPECT_B2(SPECV_ERR_CANARY, d.verify.canary0 = 1);
    EXPECT_B2(SPECV_ERR_CANARY, d.verify.canary1 = 1);
    EXPECT_B2(SPECV_ERR_CHAINED, d.verify.chained = 4);
    EXPECT_B2(SPECV_ERR_CHAINED, d.verify.chained = -1);
    EXPECT(SPECV_ERR_BATCH, rows->batch = -1);
    EXPECT_B2(SPECV_ERR_VOCAB, d.verify.vocab = -1);
    EXPECT_B1(SPECV_ERR_KEEP_STATUS, d.keep_status = 2);
    EXPECT_B1(SPECV_ERR_KEEP_STATUS, d.keep_status = -1);
    EXPECT_B1(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = NULL);
    EXPECT_B1(SPECV_ERR_ACCEPTED_LEN, d.accepted_len = (int32_t *)misaligned());
    EXPECT_B1(SPECV_ERR_ROW_STATUS, d.row_status = (uint32_t *)misaligned());
    EXPECT(SPECV_OK, kv->num_planes = 1);
    EXPECT(SPECV_ERR_NUM_PLANES, kv->num_planes = 2);
    EXPECT(SPECV_ERR_NUM_PLANES, kv->num_planes = -1);
    EXPECT(SPECV_ERR_NUM_PLANES, (kv->src_planes = (const void *const *)storage,
                                  kv->dst_planes = (void **)storage, kv->src = kv->dst = NULL));
    EXPECT(SPECV_OK,
           (kv->src_planes = (const void *const *)storage, kv->dst_planes = (void **)storage,
            kv->src = kv->dst = NULL, kv->num_planes = 3));
    EXPECT(SPECV_ERR_SRC, kv->src = NULL);
    EXPECT(SPECV_ERR_DST, kv->dst = NULL);
    EXPECT(SPECV_OK, (kv->src = kv->dst = NULL, rows->max_draft = 0));
    EXPECT(SPECV_ERR_SRC,
           (kv->src_planes = (const void *const *)misaligned(), kv->dst_planes = (void **)storage,
            kv->src = kv->dst = NULL, kv->num_planes = 3));
    EXPECT(SPECV_ERR_DST,
           (kv->src_planes = (const void *const *)storage, kv->dst_planes = (void **)misaligned(),
            kv->src = kv->dst = NULL, kv->num_planes = 3));
    EXPECT(SPECV_ERR_OFFSETS, kv->offsets = NULL);
    EXPECT(SPECV_ERR_OFFSETS, kv->offsets = (int32_t *)misaligned());
    EXPECT(SPECV_ERR_ROW_BYTES, kv->row_bytes = 0);
    EXPECT(SPECV_ERR_ROW_BYTES, kv->row_bytes = -16);
    EXPECT(SPECV_ERR_SRC_POS_STRIDE, kv->src_pos_stride_bytes = 15);
    EXPECT(SPECV_ERR_SRC_POS_STRIDE, kv->src_pos_stride_bytes = -16);
    EXPECT(SPECV_OK, kv->src_pos_stride_bytes = 16);
    EXPECT(SPECV_ERR_SRC_SEQ_STRIDE, kv->src_seq_stride_bytes = 7 * 16 - 1);
    EXPECT(SPECV_OK, kv->src_seq_stride_bytes = 7 * 16);
    EXPECT(SPECV_OK, (kv->src_pos_stride_bytes = 20, kv->src_seq_stride_bytes = 6 * 20 + 16));
    EXPECT(SPECV_ERR_SRC_SEQ_STRIDE,
           (kv->src_pos_stride_bytes = 20, kv->src_seq_stride_bytes = 6 * 20 + 15));
    EXPECT(SPECV_ERR_SRC_SEQ_STRIDE,
           (rows->row_start = (int32_t *)storage, kv->src_seq_stride_bytes = 7 * 16));
    EXPECT(SPECV_ERR_SRC_SEQ_STRIDE, (rows->max_draft = 0, kv->src_seq_stride_bytes = -1));
    EXPECT(SPECV_ERR_DST_ROW_STRIDE, kv->dst_row_stride_bytes = 15);
    EXPECT(SPECV_OK, kv->dst_row_stride_bytes = 17);
    EXPECT(SPECV_ERR_CAPACITY, kv->capacity_rows = 0);
    EXPECT(SPECV_ERR_CAPACITY, kv->capacity_rows = -1);
    EXPECT(SPECV_ERR_SIZE, kv->capacity_rows = INT64_MAX / 8);
    EXPECT(SPECV_ERR_SIZE, (kv->row_bytes = half, kv->capacity_rows = 1));
    EXPECT(SPECV_ERR_SIZE, kv->src_pos_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, kv->src_seq_stride_bytes = half);
    EXPECT(SPECV_ERR_SIZE, kv->dst_row_stride_bytes = half);
    EXPECT(SPECV_ERR_NUM_SMS, kv->num_sms = -1);
    EXPECT(SPECV_ERR_NUM_SMS, kv->num_sms = 65536);
    EXPECT(SPECV_OK, kv->num_sms = 65535);
}

#if T_DEVICE
__global__ void arch_kernel(int *arch) {
#if defined(__CUDA_ARCH__)
    *arch = __CUDA_ARCH__;
#else
    (void)arch;
#endif
}

/* A launcher makes a dependent only of what runs behind a kernel of its own, and only where the
   code waits. Either way the kernel before it may write B1's tables of planes. */
static void check_chains(void) {
    const int32_t accepted[2] = {1, 1};
    int32_t *tables, *made, offsets[3];
    int arch = 0;
    specv_pack_kv_desc d = SPECV_ZERO;
    char *memory, bytes[64];
    T_CUDA(cudaMalloc((void **)&tables, 64));
    T_CUDA(cudaMalloc((void **)&made, 64));
    T_CUDA(cudaMalloc((void **)&memory, 256));
    t_case("who may be a dependent");
    arch_kernel<<<1, 1>>>((int *)memory);
    T_CUDA(cudaMemcpy(&arch, memory, sizeof arch, cudaMemcpyDeviceToHost));
    CHECK_EQ(specv_i_waits_for_primary((const void *)specv_pack_kv_kernel), arch >= 900, -1);
    const void *planes[2] = {memory, memory + 64};
    T_CUDA(cudaMemcpy(tables, planes, sizeof planes, cudaMemcpyHostToDevice));
    T_CUDA(cudaMemcpy(memory + 128, accepted, sizeof accepted, cudaMemcpyHostToDevice));
    d.rows.batch = 2, d.rows.max_draft = 1;
    d.accepted_len = (const int32_t *)(memory + 128);
    d.kv.src_planes = (const void *const *)made, d.kv.dst_planes = (void *const *)made + 1;
    d.kv.num_planes = 1, d.kv.row_bytes = 32, d.kv.capacity_rows = 2, d.kv.num_sms = 1;
    d.kv.offsets = (int32_t *)(memory + 192);
    for (int as_dependent = 0; as_dependent < 2; ++as_dependent) {
        t_case("B1 %s the kernel that writes its tables",
               as_dependent ? "a dependent of" : "behind");
        T_CUDA(cudaMemset(made, 0, 64));
        T_CUDA(cudaMemset(memory, 7, 64));
        T_CUDA(cudaMemset(memory + 64, 0, 64));
        t_produce(made, tables, 16);
        d.chained = as_dependent ? SPECV_CHAINED_AFTER : 0;
        CHECK_EQ(specv_pack_kv(&d, 0), SPECV_OK, -1);
        if (as_dependent) t_check_dependents();
        T_CUDA(cudaMemcpy(bytes, memory + 64, sizeof bytes, cudaMemcpyDeviceToHost));
        T_CUDA(cudaMemcpy(offsets, memory + 192, sizeof offsets, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 64; ++i) CHECK_EQ(bytes[i], 7, i);
        CHECK_EQ(offsets[2], 2, -1);
    }
    T_CUDA(cudaFree(tables));
    T_CUDA(cudaFree(made));
    T_CUDA(cudaFree(memory));
}

#endif

static void test_chains(void) {
#if T_DEVICE
    check_chains();
#else
    t_skip("dependent launches need a device");
#endif
}

/* How many blocks copy depends on nothing but the descriptor and the multiprocessors. Results are
   right for any number, so what it should be is said here. */
static void test_blocks(void) {
#if T_DEVICE
    static const struct {
        int32_t batch, max_draft, num_planes;
        int64_t row_bytes, capacity_rows;
        int num_sms, verify_blocks, blocks;
    } grids[] = {
        {1, 1, 1, 1, 1, 132, 1, 1},         /* less than a piece */
        {32, 8, 1, 4096, 256, 132, 2, 129}, /* 513 pieces, four for a block */
        {32, 8, 1, 4096, 8, 132, 2, 5},     /* no more than fits: 17 pieces */
        {32, 8, 64, 4096, 8, 132, 2, 130},  /* in each plane: all multiprocessors but two */
        {1024, 8, 1, 4096, 8192, 132, 64, 68},
        {1024, 8, 1, 4096, 8192, 100, 64, 50}, /* never less than half of them */
        {16, 8, 1, 65536, 128, 1, 1, 1},
        {1, 1, 1, 4096, 1 << 20, 132, 1, 1}, /* room alone is no work */
        /* more pieces in all planes than an int64 can count */
        {1, 1, 4096, (int64_t)1 << 62, 1, 132, 1, 131},
    };
    /* rows, drafts, launches of a dense step with rows of 16 bytes, and of the same in CSR */
    static const int forms[][4] = {
        {512, 8, 1, 2},  {513, 8, 2, 2},           {512, 1, 1, 2},  {513, 1, 2, 2},
        {256, 1, 1, 1},  {32, 128, 1, 2},          {33, 128, 2, 2}, {32, 8, 1, 1},
        {257, 1, 1, 2},  {2, 128, 1, 1},           {1, 129, 1, 1},  {2, 129, 2, 2},
        {1, 4097, 2, 2}, {1 << 16, 1 << 13, 2, 2}, {4097, 0, 1, 1}};
    for (int i = 0; i < T_COUNT(grids); ++i) {
        specv_rows rows = SPECV_ZERO;
        specv_kv_pack kv = SPECV_ZERO;
        t_case("blocks, grid %d", i);
        rows.batch = grids[i].batch, rows.max_draft = grids[i].max_draft;
        kv.row_bytes = grids[i].row_bytes, kv.capacity_rows = grids[i].capacity_rows;
        kv.num_planes = grids[i].num_planes;
        CHECK_EQ(specv_i_copy_blocks(&rows, &kv, grids[i].num_sms, grids[i].verify_blocks),
                 grids[i].blocks, i);
    }
    for (int i = 0; i < T_COUNT(forms); ++i) {
        specv_verify_pack_kv_desc d = SPECV_ZERO;
        t_case("launches of B2, %d x %d drafts", forms[i][0], forms[i][1]);
        d.verify.rows.batch = forms[i][0], d.verify.rows.max_draft = forms[i][1];
        d.kv.row_bytes = 16;
        CHECK_EQ(specv_verify_pack_kv_launches(&d), forms[i][2], i);
        d.kv.row_bytes = 24;
        CHECK_EQ(specv_verify_pack_kv_launches(&d), forms[i][3], i);
        d.kv.row_bytes = 16, d.verify.rows.row_end = d.verify.accepted_len = (int32_t *)64;
        CHECK_EQ(specv_verify_pack_kv_launches(&d), forms[i][3], i);
    }
    for (int num_rows = 1; num_rows <= 4096; num_rows *= 2) {
        t_case("blocks that verify, %d rows", num_rows);
        CHECK_EQ(specv_i_verify_blocks(num_rows),
                 num_rows <= 16     ? 1
                 : num_rows >= 1024 ? 64
                                    : num_rows / 16,
                 num_rows);
    }
#else
    t_skip("the reference has no grid");
#endif
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"validation", test_validation},
        {"copies", test_copies},
        {"row-bytes", test_row_bytes},
        {"alignment", test_alignment},
        {"units", test_units},
        {"planes", test_planes},
        {"capacity", test_capacity},
        {"faults", test_faults},
        {"tiles", test_tiles},
        {"walk", test_walk},
        {"small", test_small},
        {"is-small", test_is_small},
        {"nothing", test_nothing},
        {"forms", test_forms},
        {"far", test_far},
        {"long-rows", test_long_rows},
        {"blocks", test_blocks},
        {"chains", test_chains},
    };
    return t_main(argc, argv, groups, T_COUNT(groups));
}
