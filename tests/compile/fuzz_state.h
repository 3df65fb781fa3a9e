/* Part of fuzz_validate.c: the operations that change state, B3 to D3. As there, fill_ makes nearly
   valid descriptors and rules_of_ states every rule once more in 128-bit arithmetic; reach_of_ says
   how far the strides of a resolved descriptor go. */

/* What the kit calls SPECV_I_HUGE: sums of a few such products are still an int64. */
static int small_enough(wide product) { return product < INT64_MAX / 8; }

/* Products of numbers that mean nothing stay below 2^127. */
static wide at_most(wide x) { return x > INT64_MAX ? INT64_MAX : x < INT64_MIN ? INT64_MIN : x; }

static wide default_to(int64_t given, wide otherwise) { return given ? given : at_most(otherwise); }

static wide pages_of(wide positions, wide size) {
    return size > 0 ? (positions + size - 1) / size : 0;
}

/* An array that is needed where there are rows. */
#define NEEDED(p, bytes, count, code) RULE(aligned(p, bytes) && ((p) || (count) == 0), code)

static void reach(wide last) {
    if (!fits(last)) fail("an element is out of reach", 0);
}

/* The state of a batch has an entry for each of its rows, or for each slot. */
static int64_t places(const int32_t *slot, int32_t num_slots, int64_t batch) {
    return batch > 0 && slot ? num_slots : batch;
}

#define PLACES(d) places((d)->slot, (d)->num_slots, (d)->batch)

/* ---- caches */

static void rules_of_elements(wide heads, wide positions, wide head_bytes, wide head_stride,
                              wide pos_stride) {
    const int inside = pos_stride >= (heads - 1) * head_stride + head_bytes;
    const int outside = head_stride >= (positions ? positions - 1 : 0) * pos_stride + head_bytes;
    RULE(heads == 1 || head_stride >= head_bytes, KV_STRIDE);
    RULE(pos_stride >= head_bytes && (inside || outside), KV_STRIDE);
    if (small_enough(heads * head_stride) && small_enough(positions * pos_stride)) return;
    RULE(0, SIZE);
    RULE(0, KV_STRIDE); /* products that are too large for the kit may fail there already */
}

static void rules_of_cache(const specv_kv_cache *kv, int64_t num_slots, int paged) {
    const wide heads = default_to(kv->num_heads, 1);
    const wide head_stride = default_to(kv->head_stride_bytes, kv->head_bytes);
    const wide pos_stride = default_to(kv->pos_stride_bytes, heads * head_stride);
    const wide positions = paged ? kv->page_size : kv->max_positions;
    const wide outer = paged ? kv->num_pages : num_slots;
    const wide outer_stride =
        default_to(paged ? kv->page_stride_bytes : kv->seq_stride_bytes, positions * pos_stride);
    const wide row_pages = pages_of(kv->max_positions, kv->page_size);
    const wide table_stride_elems = default_to(kv->table_stride_elems, row_pages);
    RULE(kv->reserved == 0, CANARY);
    RULE(kv->max_positions > 0, MAX_POSITIONS);
    RULE(aligned(kv->block_table, 4), BLOCK_TABLE);
    RULE(paged ? kv->block_table || num_slots == 0 : !kv->block_table, BLOCK_TABLE);
    RULE(paged ? kv->page_size > 0 : kv->page_size == 0, PAGE_SIZE);
    RULE(paged ? kv->num_pages > 0 : kv->num_pages == 0, NUM_PAGES);
    RULE(kv->num_planes >= (kv->planes != NULL), NUM_PLANES);
    RULE(kv->planes || kv->num_planes <= 1, NUM_PLANES);
    RULE(aligned(kv->planes, 8) && !(kv->planes && kv->plane), PLANES);
    RULE(kv->num_heads >= 0, NUM_HEADS);
    RULE(kv->head_bytes >= 0, HEAD_BYTES);
    RULE(kv->head_stride_bytes >= 0 && kv->pos_stride_bytes >= 0, KV_STRIDE);
    RULE(kv->seq_stride_bytes >= 0 && kv->page_stride_bytes >= 0, KV_STRIDE);
    RULE(paged ? table_stride_elems >= row_pages : kv->table_stride_elems == 0, TABLE_STRIDE);
    if (paged) RULE(small_enough((wide)num_slots * 4 * table_stride_elems), SIZE);
    if (!kv->planes && !kv->plane) return;
    RULE(kv->head_bytes > 0 && heads * kv->head_bytes <= 1 << 30, HEAD_BYTES);
    rules_of_elements(heads, positions, kv->head_bytes, head_stride, pos_stride);
    RULE(outer <= 1 || outer_stride >= kv->head_bytes, KV_STRIDE);
    RULE(small_enough(outer * outer_stride), SIZE);
}

/* C1 numbers a thread for each 16 bytes of a position, in every plane of every row. */
static void rules_of_shifted_cache(const specv_kv_cache *kv, int64_t batch, int64_t num_slots) {
    const wide bytes = default_to(kv->num_heads, 1) * kv->head_bytes;
    rules_of_cache(kv, num_slots, 0);
    RULE(batch * default_to(kv->num_planes, 1) * at_most((bytes + 15) / 16) <= 1 << 30, TOO_LARGE);
}

static void reach_of_cache(const specv_kv_cache *kv, wide num_slots) {
    const wide inner = (wide)(kv->num_heads - 1) * kv->head_stride_bytes + kv->head_bytes;
    const int paged = kv->page_size > 0;
    const wide positions = paged ? kv->page_size : kv->max_positions;
    const wide outer = paged ? kv->num_pages : num_slots;
    const wide stride = paged ? kv->page_stride_bytes : kv->seq_stride_bytes;
    if (paged) reach(num_slots * kv->table_stride_elems * 4);
    if (paged && kv->table_stride_elems < pages_of(kv->max_positions, kv->page_size))
        fail("a row's pages do not fit", 0);
    if (!kv->planes && !kv->plane) return;
    if (kv->num_planes < 1) fail("no planes after resolving", 0);
    reach(outer * stride + positions * kv->pos_stride_bytes + inner);
}

static void fill_cache(specv_kv_cache *kv, int paged) {
    const int inverted = take(1) < 64; /* heads hold positions */
    if (take(1) < 100)
        kv->planes = (void *const *)pointer(), kv->num_planes = field32(3);
    else if (take(1) < 200)
        kv->plane = pointer(), kv->num_planes = field32((int32_t)take(1) & 1);
    kv->max_positions = field32(1 + (int32_t)take(1));
    kv->head_bytes = field(32);
    kv->num_heads = field32((int32_t)take(1) % 9);
    if (paged) {
        kv->block_table = (int32_t *)pointer();
        kv->page_size = field32(1 + (int32_t)take(1) % 64), kv->num_pages = field32(500);
        kv->table_stride_elems = field((take(1) & 1) * (int64_t)kv->max_positions);
    }
    if (inverted) {
        kv->head_stride_bytes = field(32 * 300), kv->pos_stride_bytes = field(32);
    } else if (take(1) < 128) {
        kv->head_stride_bytes = field((take(1) & 1) * 40), kv->pos_stride_bytes = field(400);
    }
    if (paged) kv->page_stride_bytes = field((take(1) & 1) * 100000);
    if (!paged) kv->seq_stride_bytes = field((take(1) & 1) * 200000);
    kv->reserved = (uint32_t)field(0);
}

/* ---- B3 */

static void rules_of_append_kv(const specv_append_kv_desc *d) {
    const specv_rows *r = &d->rows;
    const specv_kv_cache *kv = &d->kv;
    const wide positions = (wide)d->num_pending + r->max_draft, batch = r->batch;
    const wide rows = at_most(is_csr(r) ? r->num_draft_tokens + batch * d->num_pending : positions);
    const wide heads = default_to(kv->num_heads, 1);
    const wide head_stride = default_to(d->src.head_stride_bytes, kv->head_bytes);
    const wide pos_stride = default_to(d->src.pos_stride_bytes, heads * head_stride);
    const wide seq_stride = default_to(d->src.seq_stride_bytes, positions * pos_stride);
    const int has_planes = kv->planes || kv->plane;
    RULES_OF_ALL(d);
    rules_of_rows(r);
    RULE(d->num_pending >= 0 && batch * positions <= 1 << 30, NUM_PENDING);
    NEEDED(d->accepted_len, 4, batch, ACCEPTED_LEN);
    NEEDED(d->cache_len, 4, batch, CACHE_LEN);
    RULE(aligned(d->draft_cache_len, 4) && aligned(d->draft_lacks, 4), DRAFT_CACHE_LEN);
    RULE(aligned(d->slot_mapping, 8) && aligned(d->position_ids, 4), SLOT_MAPPING);
    RULE(aligned(d->page_refs, 4) && (!d->page_refs || kv->block_table), PAGE_REFS);
    RULES_OF_STATUS(d, row_status);
    NEEDED(d->ticket, 4, batch, TICKET);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    rules_of_cache(kv, PLACES(r), kv->block_table != NULL);
    RULE(aligned(d->src.planes, 8) && (d->src.planes != NULL) == (kv->planes != NULL), SRC);
    RULE(!(d->src.planes && d->src.plane), SRC);
    RULE(d->src.planes || (d->src.plane != NULL) == (kv->plane != NULL) || positions == 0, SRC);
    if (!has_planes) return;
    RULE(d->src.head_stride_bytes >= 0 && d->src.pos_stride_bytes >= 0, KV_STRIDE);
    RULE(d->src.seq_stride_bytes >= 0, KV_STRIDE);
    RULE(!is_csr(r) || !d->src.seq_stride_bytes, SRC_SEQ_STRIDE);
    rules_of_elements(heads, rows, kv->head_bytes, head_stride, pos_stride);
    if (is_csr(r)) return;
    RULE(batch <= 1 || positions == 0 || seq_stride >= kv->head_bytes, KV_STRIDE);
    RULE(small_enough(batch * seq_stride), SIZE);
}

static void reach_of_append_kv(const specv_append_kv_desc *d) {
    const wide rows = is_csr(&d->rows)
                          ? d->rows.num_draft_tokens + (wide)d->rows.batch * d->num_pending
                          : (wide)d->num_pending + d->rows.max_draft;
    reach_of_cache(&d->kv, PLACES(&d->rows));
    if (!d->kv.planes && !d->kv.plane) return;
    reach((is_csr(&d->rows) ? 0 : (wide)d->rows.batch * d->src.seq_stride_bytes) +
          rows * d->src.pos_stride_bytes + (wide)d->kv.num_heads * d->src.head_stride_bytes);
}

static void fill_append_kv(specv_append_kv_desc *d) {
    fill_rows(&d->rows);
    fill_cache(&d->kv, take(1) & 1);
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->keep_status = field32((int32_t)take(1) & 1);
    d->accepted_len = (const int32_t *)pointer(), d->cache_len = (int32_t *)pointer();
    d->draft_cache_len = (int32_t *)maybe(), d->draft_lacks = (int32_t *)maybe();
    d->slot_mapping = (int64_t *)maybe(), d->position_ids = (int32_t *)maybe();
    if (d->kv.block_table || take(1) < 8) d->page_refs = (const int32_t *)maybe();
    d->row_status = (uint32_t *)maybe(), d->ticket = (uint32_t *)pointer();
    d->num_pending = field32((int32_t)take(1) % 4), d->num_sms = field32(132);
    if (d->kv.planes) d->src.planes = (const void *const *)pointer();
    if (d->kv.plane) d->src.plane = pointer();
    if (take(1) < 100) {
        d->src.head_stride_bytes = field((take(1) & 1) * 48), d->src.pos_stride_bytes = field(500);
        d->src.seq_stride_bytes = field(is_csr(&d->rows) ? 0 : (take(1) & 1) * 20000);
    }
}

/* ---- B4, layouts of trees */

static void rules_of_commit_path(const specv_commit_path_desc *d) {
    const specv_kv_cache *kv = &d->kv;
    const wide depth = d->max_depth ? d->max_depth : (wide)d->max_nodes - 1, batch = d->batch;
    const wide row_pages = pages_of(kv->max_positions, kv->page_size);
    const wide src_stride =
        default_to(d->src_table_stride_elems, default_to(kv->table_stride_elems, row_pages));
    RULES_OF_ALL(d);
    RULE(d->batch >= 0, BATCH);
    RULE(d->max_nodes >= 1 && d->max_nodes <= 1024, TREE);
    RULE(d->max_depth >= 0 && d->max_depth < d->max_nodes, PATH);
    RULE(batch * d->max_nodes <= 1 << 30, TOO_LARGE);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    NEEDED(d->accepted_len, 4, batch, ACCEPTED_LEN);
    NEEDED(d->path, 4, batch, PATH);
    RULE(aligned(d->num_nodes, 4), TREE);
    NEEDED(d->cache_len, 4, batch, CACHE_LEN);
    RULE(aligned(d->new_cache_len, 4), CACHE_LEN);
    RULE(aligned(d->src_block_table, 4), BLOCK_TABLE);
    RULE(!d->src_block_table || kv->block_table, BLOCK_TABLE);
    RULE(aligned(d->page_refs, 4) && (!d->page_refs || kv->block_table), PAGE_REFS);
    RULES_OF_STATUS(d, row_status);
    RULE(aligned(d->ticket, 4), TICKET);
    RULE(d->ticket || !d->new_cache_len || batch == 0, TICKET);
    rules_of_cache(kv, PLACES(d), kv->block_table != NULL);
    RULE(default_to(d->path_stride_elems, depth + 1) > depth, PATH);
    RULE(small_enough(batch * 4 * d->path_stride_elems), SIZE);
    RULE(d->src_block_table || d->src_table_stride_elems == 0, TABLE_STRIDE);
    if (d->src_block_table) {
        RULE(src_stride >= row_pages, TABLE_STRIDE);
        RULE(small_enough((wide)PLACES(d) * 4 * src_stride), SIZE);
    }
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
}

static void reach_of_commit_path(const specv_commit_path_desc *d) {
    reach_of_cache(&d->kv, PLACES(d));
    reach(((wide)d->batch * d->path_stride_elems + d->max_depth + 1) * 4);
    reach((wide)PLACES(d) * d->src_table_stride_elems * 4);
    if (d->path_stride_elems <= d->max_depth) fail("a path does not fit", 0);
    if (d->kv.block_table && !d->src_block_table) fail("no table after resolving", 0);
}

static void fill_commit_path(specv_commit_path_desc *d) {
    fill_cache(&d->kv, take(1) & 1);
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->keep_status = field32((int32_t)take(1) & 1);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->num_active = (const int32_t *)maybe(), d->accepted_len = (const int32_t *)pointer();
    d->path = (const int32_t *)pointer(), d->num_nodes = (const int32_t *)maybe();
    d->cache_len = (const int32_t *)pointer(), d->new_cache_len = (int32_t *)maybe();
    if (d->kv.block_table || take(1) < 8) d->src_block_table = (const int32_t *)maybe();
    if (d->kv.block_table || take(1) < 8) d->page_refs = (const int32_t *)maybe();
    d->row_status = (uint32_t *)maybe(), d->ticket = (uint32_t *)pointer();
    d->batch = field32((int32_t)take(1)), d->max_nodes = field32(1 + (int32_t)take(1));
    d->max_depth = field32(d->max_nodes > 0 ? (int32_t)take(1) % d->max_nodes : 0);
    d->path_stride_elems = field((take(1) & 1) * 300), d->num_sms = field32(132);
    if (d->src_block_table) d->src_table_stride_elems = field((take(1) & 1) * 300);
}

static wide words_of_layout(const specv_tree_layout_desc *d) {
    return d->max_nodes > 0 ? ((wide)d->max_nodes + 31) / 32 : 0;
}

/* Elements of a tree that is given. */
static wide given_of_layout(const specv_tree_layout_desc *d) {
    if (d->form == SPECV_TREE_PATHS) return (wide)d->num_paths * d->path_len;
    return d->form == SPECV_TREE_MASK ? d->max_nodes * words_of_layout(d) : d->max_nodes;
}

static void rules_of_tree_layout(const specv_tree_layout_desc *d) {
    const wide batch = d->batch, given = given_of_layout(d), words = words_of_layout(d);
    const size_t link_bytes = d->link_dtype == SPECV_I64 ? 8 : 4;
    RULES_OF_ALL(d);
    RULE(d->form >= 0 && d->form <= 3, TREE);
    RULE(d->batch >= 0, BATCH);
    RULE(d->max_nodes >= 1 && d->max_nodes <= 1024, TREE);
    RULE(batch * d->max_nodes <= 1 << 30, TOO_LARGE);
    if (d->form == SPECV_TREE_PARENTS) NEEDED(d->given_parent, 4, batch, TREE);
    if (d->form == SPECV_TREE_LINKS) {
        RULE(d->link_dtype == 0 || d->link_dtype == 1, INDEX_DTYPE);
        NEEDED(d->first_child, link_bytes, batch, TREE);
        NEEDED(d->next_sibling, link_bytes, batch, TREE);
    }
    if (d->form == SPECV_TREE_PATHS) {
        RULE(d->num_paths >= 0 && d->path_len >= 0, PATH);
        RULE(given <= 1 << 30, TOO_LARGE);
        NEEDED(d->paths, 4, given == 0 ? 0 : batch, PATH);
    }
    if (d->form == SPECV_TREE_MASK) NEEDED(d->given_mask, 4, batch, MASK);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    RULE(aligned(d->num_nodes, 4), TREE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    RULE(d->index_dtype == 0 || d->index_dtype == 1, INDEX_DTYPE);
    RULE(aligned(d->position, 4) && (d->position || !d->position_ids || batch == 0), POSITION);
    RULE(aligned(d->parent, 4) && aligned(d->depth, 4), TREE);
    RULE(aligned(d->position_ids, d->index_dtype == SPECV_I64 ? 8 : 4), COLUMNS);
    RULE(aligned(d->mask, 4), MASK);
    RULES_OF_STATUS(d, row_status);
    RULE(d->one_tree == 0 || d->one_tree == 1, TREE);
    RULE(default_to(d->given_stride_elems, given) >= given, TREE);
    RULE(small_enough(batch * 8 * default_to(d->given_stride_elems, given)), SIZE);
    RULE(default_to(d->mask_stride_words, words) >= words, MASK);
    RULE(small_enough(batch * d->max_nodes * 4 * default_to(d->mask_stride_words, words)), SIZE);
}

static void reach_of_tree_layout(const specv_tree_layout_desc *d) {
    if (d->given_stride_elems < given_of_layout(d)) fail("a tree does not fit", 0);
    reach((wide)d->batch * d->given_stride_elems * 8);
    reach((wide)d->batch * d->max_nodes * d->mask_stride_words * 4);
}

static void fill_tree_layout(specv_tree_layout_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->keep_status = field32((int32_t)take(1) & 1);
    d->form = field32((int32_t)take(1) & 3), d->one_tree = field32((int32_t)take(1) & 1);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->given_parent = (const int32_t *)pointer(), d->first_child = pointer();
    d->next_sibling = pointer(), d->paths = (const int32_t *)pointer();
    d->given_mask = (const uint32_t *)pointer(), d->num_active = (const int32_t *)maybe();
    d->num_nodes = (const int32_t *)maybe(), d->position = (const int32_t *)pointer();
    d->parent = (int32_t *)maybe(), d->depth = (int32_t *)maybe(), d->position_ids = maybe();
    d->mask = (uint32_t *)maybe(), d->row_status = (uint32_t *)maybe();
    d->batch = field32((int32_t)take(1)), d->max_nodes = field32(1 + (int32_t)take(1));
    d->num_paths = field32((int32_t)take(1)), d->path_len = field32((int32_t)take(1) % 20);
    d->link_dtype = field32((int32_t)take(1) & 1), d->index_dtype = field32((int32_t)take(1) & 1);
    d->given_stride_elems = field((take(1) & 1) * 9000);
    d->mask_stride_words = field((take(1) & 1) * 9);
}

/* ---- B5 */

static void rules_of_pool(const specv_page_pool *p, int64_t count) {
    NEEDED(p->page_refs, 4, count, PAGE_REFS);
    NEEDED(p->free_pages, 4, count, FREE_PAGES);
    NEEDED(p->num_free, 4, count, FREE_PAGES);
}

static void fill_pool(specv_page_pool *p) {
    p->page_refs = (int32_t *)pointer(), p->free_pages = (int32_t *)pointer();
    p->num_free = (int32_t *)pointer();
}

static void rules_of_page_resize(const specv_page_resize_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    RULE(d->batch >= 0, BATCH);
    RULE(d->batch <= SPECV_PAGE_ROWS, TOO_LARGE);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    rules_of_pool(&d->pool, d->batch);
    NEEDED(d->num_row_pages, 4, d->batch, NUM_ROW_PAGES);
    NEEDED(d->cache_len, 4, d->batch, CACHE_LEN);
    RULE(d->reserve >= 0 && aligned(d->row_reserve, 4), RESERVE);
    RULE(aligned(d->copy_src_page, 4) && aligned(d->copy_dst_page, 4), COPY);
    RULE((d->copy_src_page != NULL) == (d->copy_dst_page != NULL), COPY);
    RULE(d->copy_src_page || d->batch == 0 || (!d->kv.planes && !d->kv.plane), COPY);
    RULES_OF_STATUS(d, row_status);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    rules_of_cache(&d->kv, PLACES(d), 1);
    RULE((wide)d->batch * pages_of(d->kv.max_positions, d->kv.page_size) <= 1 << 30, TOO_LARGE);
}

static void reach_of_page_resize(const specv_page_resize_desc *d) {
    reach_of_cache(&d->kv, PLACES(d));
}

static void fill_page_resize(specv_page_resize_desc *d) {
    const int copies = take(1) < 200;
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);
    d->keep_status = field32((int32_t)take(1) & 1);
    d->num_active = (const int32_t *)maybe();
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    fill_pool(&d->pool), fill_cache(&d->kv, 1);
    d->num_row_pages = (int32_t *)pointer(), d->cache_len = (const int32_t *)pointer();
    d->row_reserve = (const int32_t *)maybe(), d->finished = (const uint8_t *)maybe();
    if (copies) d->copy_src_page = (int32_t *)pointer(), d->copy_dst_page = (int32_t *)pointer();
    d->row_status = (uint32_t *)maybe();
    d->batch = field32((int32_t)take(1)), d->reserve = field32((int32_t)take(1));
    d->num_sms = field32(132);
}

static void rules_of_page_fork(const specv_page_fork_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    RULE(d->num_slots >= 0 && (d->num_slots || d->num_forks <= 0), SLOT);
    RULE(d->num_forks >= 0, FORK);
    NEEDED(d->src_slot, 4, d->num_forks, FORK);
    NEEDED(d->dst_slot, 4, d->num_forks, FORK);
    RULES_OF_STATUS(d, fork_status);
    RULE(aligned(d->num_active_forks, 4), NUM_ACTIVE);
    NEEDED(d->page_refs, 4, d->num_forks, PAGE_REFS);
    NEEDED(d->block_table, 4, d->num_forks, BLOCK_TABLE);
    NEEDED(d->num_row_pages, 4, d->num_forks, NUM_ROW_PAGES);
    NEEDED(d->cache_len, 4, d->num_forks, CACHE_LEN);
    RULE(d->page_size > 0, PAGE_SIZE);
    RULE(d->num_pages > 0, NUM_PAGES);
    RULE(d->max_row_pages > 0, NUM_ROW_PAGES);
    RULE(d->table_stride_elems == 0 || d->table_stride_elems >= d->max_row_pages, TABLE_STRIDE);
    RULE(small_enough((wide)d->num_slots * 4 *
                      (d->table_stride_elems ? d->table_stride_elems : d->max_row_pages)),
         SIZE);
    RULE((wide)d->num_forks * d->max_row_pages <= 1 << 30, TOO_LARGE);
}

static void reach_of_page_fork(const specv_page_fork_desc *d) {
    reach((wide)d->num_slots * d->table_stride_elems * 4);
    if (d->table_stride_elems < d->max_row_pages) fail("a row's pages do not fit", 0);
}

static void fill_page_fork(specv_page_fork_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);
    d->keep_status = field32((int32_t)take(1) & 1);
    d->page_refs = (int32_t *)pointer(), d->block_table = (int32_t *)pointer();
    d->num_row_pages = (int32_t *)pointer(), d->cache_len = (int32_t *)pointer();
    d->src_slot = (const int32_t *)pointer(), d->dst_slot = (const int32_t *)pointer();
    d->fork_status = (uint32_t *)maybe(), d->num_active_forks = (const int32_t *)maybe();
    d->max_row_pages = field32(1 + (int32_t)take(1));
    d->table_stride_elems = field((take(1) & 1) * (int64_t)d->max_row_pages);
    d->num_slots = field32(1 + (int32_t)take(1)), d->num_forks = field32((int32_t)take(1));
    d->page_size = field32(16), d->num_pages = field32(100);
}

/* ---- C1 to C5 */

static void rules_of_columns(const specv_columns *c, int dtype, const void *out_tokens,
                             const int32_t *num_emitted, int64_t stride, wide batch, wide max_draft,
                             wide num_slots) {
    const unsigned token = dtype == SPECV_I64 ? 8 : 4;
    const unsigned index = c->index_dtype == SPECV_I64 ? 8 : 4;
    RULE(batch >= 0, BATCH);
    RULE(max_draft >= 0, MAX_DRAFT);
    RULE(batch * (max_draft + 1) <= 1 << 30, TOO_LARGE);
    RULE(dtype == 0 || dtype == 1, TOKEN_DTYPE);
    RULE(c->index_dtype == 0 || c->index_dtype == 1, INDEX_DTYPE);
    RULE(aligned(out_tokens, token) && (out_tokens || batch == 0 || !c->tokens), OUT_TOKENS);
    NEEDED(num_emitted, 4, batch, NUM_EMITTED);
    RULE(stride == 0 || stride > max_draft, OUT_STRIDE);
    RULE(small_enough(batch * 8 * stride), SIZE);
    RULE(aligned(c->tokens, token) && aligned(c->mask, index), COLUMNS);
    RULE(aligned(c->position_ids, index), COLUMNS);
    NEEDED(c->width, 4, batch, WIDTH);
    RULE(c->max_columns > 0 && c->max_columns <= 1 << 29, MAX_COLUMNS);
    RULE(c->stride_elems == 0 || c->stride_elems >= c->max_columns, MAX_COLUMNS);
    RULE(small_enough(num_slots * 8 * (c->stride_elems ? c->stride_elems : c->max_columns)), SIZE);
}

static void reach_of_columns(const specv_columns *c, wide out_stride, wide batch, wide max_draft,
                             wide num_slots) {
    reach(num_slots * c->stride_elems * 8);
    reach(batch * out_stride * 8);
    if (c->stride_elems < c->max_columns || out_stride <= max_draft) fail("rows overlap", 0);
}

static void fill_columns(specv_columns *c) {
    c->tokens = maybe(), c->mask = maybe(), c->position_ids = maybe();
    c->width = (int32_t *)pointer(), c->pad_token = field(0);
    c->index_dtype = field32((int32_t)take(1) & 1), c->max_columns = field32(300);
    c->stride_elems = field((take(1) & 1) * 300);
}

/* Without planes nothing is asked of the cache. */
static void rules_of_realign(const specv_realign_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    rules_of_columns(&d->columns, d->token_dtype, d->out_tokens, d->num_emitted,
                     d->out_stride_elems, d->batch, d->max_draft, PLACES(d));
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    NEEDED(d->pad_len, 4, d->batch, PAD_LEN);
    NEEDED(d->shifts, 16, d->batch, SHIFTS);
    RULES_OF_STATUS(d, row_status);
    NEEDED(d->ticket, 4, d->batch, TICKET);
    if (d->kv.planes || d->kv.plane) rules_of_shifted_cache(&d->kv, d->batch, PLACES(d));
}

static void reach_of_realign(const specv_realign_desc *d) {
    reach_of_columns(&d->columns, d->out_stride_elems, d->batch, d->max_draft, PLACES(d));
    if (d->kv.planes || d->kv.plane) reach_of_cache(&d->kv, PLACES(d));
}

static void fill_realign(specv_realign_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->num_sms = field32(132);
    d->keep_status = field32((int32_t)take(1) & 1), d->token_dtype = field32((int32_t)take(1) & 1);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->num_active = (const int32_t *)maybe();
    d->out_tokens = pointer(), d->num_emitted = (const int32_t *)pointer();
    d->pad_len = (int32_t *)pointer(), d->shifts = (specv_shift *)pointer();
    d->row_status = (uint32_t *)maybe(), d->ticket = (uint32_t *)pointer();
    fill_columns(&d->columns), fill_cache(&d->kv, 0);
    d->batch = field32((int32_t)take(1)), d->max_draft = field32((int32_t)take(1) % 17);
    d->out_stride_elems = field((take(1) & 1) * 20);
}

static void rules_of_shift_kv(const specv_shift_kv_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    RULE(d->batch >= 0, BATCH);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    NEEDED(d->shifts, 16, d->batch, SHIFTS);
    RULE(aligned(d->end, 4), END);
    RULES_OF_STATUS(d, row_status);
    RULE(d->kv.planes || d->kv.plane || d->batch == 0, PLANES);
    rules_of_shifted_cache(&d->kv, d->batch, PLACES(d));
}

static void reach_of_shift_kv(const specv_shift_kv_desc *d) { reach_of_cache(&d->kv, PLACES(d)); }

static void fill_shift_kv(specv_shift_kv_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->num_sms = field32(132);
    d->keep_status = field32((int32_t)take(1) & 1), d->batch = field32((int32_t)take(1));
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->num_active = (const int32_t *)maybe(), d->shifts = (const specv_shift *)pointer();
    d->end = (const int32_t *)maybe(), d->row_status = (uint32_t *)maybe();
    fill_cache(&d->kv, 0);
}

static void rules_of_gap_commit(const specv_gap_commit_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    rules_of_columns(&d->columns, d->token_dtype, d->out_tokens, d->num_emitted,
                     d->out_stride_elems, d->batch, d->max_draft, PLACES(d));
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    NEEDED(d->accepted_len, 4, d->batch, ACCEPTED_LEN);
    NEEDED(d->text_len, 4, d->batch, TEXT_LEN);
    RULE(aligned(d->max_draft_lacks, 4), DRAFT_LACKS);
    RULES_OF_STATUS(d, row_status);
    NEEDED(d->ticket, 4, d->batch, TICKET);
}

static void reach_of_gap_commit(const specv_gap_commit_desc *d) {
    reach_of_columns(&d->columns, d->out_stride_elems, d->batch, d->max_draft, PLACES(d));
}

static void fill_gap_commit(specv_gap_commit_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);
    d->keep_status = field32((int32_t)take(1) & 1), d->token_dtype = field32((int32_t)take(1) & 1);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots);
    d->num_active = (const int32_t *)maybe(), d->accepted_len = (const int32_t *)pointer();
    d->out_tokens = pointer(), d->num_emitted = (const int32_t *)pointer();
    d->text_len = (int32_t *)pointer(), d->max_draft_lacks = (int32_t *)maybe();
    d->row_status = (uint32_t *)maybe(), d->ticket = (uint32_t *)pointer();
    fill_columns(&d->columns);
    d->batch = field32((int32_t)take(1)), d->max_draft = field32((int32_t)take(1) % 17);
    d->out_stride_elems = field((take(1) & 1) * 20);
}

static void rules_of_carry(const specv_carry *carry, int count, wide batch) {
    RULE(count >= 0 && count <= SPECV_MAX_CARRY, CARRY);
    for (int i = 0; i < count && i < SPECV_MAX_CARRY; ++i) {
        NEEDED(carry[i].data, 1, batch, CARRY);
        RULE(carry[i].elem_bytes > 0, CARRY);
        RULE(small_enough(batch * carry[i].elem_bytes), SIZE);
    }
}

static int32_t fill_carry(specv_carry *carry) {
    const int32_t count = (int32_t)take(1) % (SPECV_MAX_CARRY + 1);
    for (int i = 0; i < count; ++i)
        carry[i].data = pointer(), carry[i].elem_bytes = field(1 + (int64_t)take(1));
    return field32(count);
}

static void rules_of_compact(const specv_compact_desc *d) {
    const int catches_up = d->draft_lacks_first || d->draft_lacks_start;
    RULES_OF_ALL(d);
    RULE(d->batch >= 0, BATCH);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    RULE(aligned(d->new_slot, d->slot_dtype == 1 ? 8 : 4), SLOT);
    RULE(d->finished || d->batch == 0, FINISHED);
    RULE(aligned(d->cache_len, 4), CACHE_LEN);
    RULE(aligned(d->draft_cache_len, 4), DRAFT_CACHE_LEN);
    NEEDED(d->active, 4, d->batch, ACTIVE);
    NEEDED(d->new_num_active, 4, d->batch, ACTIVE);
    RULE(aligned(d->start_position, 4) && aligned(d->draft_lacks_first, 4), DRAFT_LACKS);
    RULE(aligned(d->draft_lacks_start, 4), DRAFT_LACKS);
    RULE(d->cache_len || (!catches_up && !d->start_position), DRAFT_LACKS);
    RULE(d->draft_cache_len || !catches_up, DRAFT_LACKS);
    RULES_OF_STATUS(d, row_status);
    rules_of_carry(d->carry, d->num_carry, d->batch);
}

static void reach_of_compact(const specv_compact_desc *d) {
    for (int i = 0; i < d->num_carry; ++i) reach((wide)d->batch * d->carry[i].elem_bytes);
}

static void fill_compact(specv_compact_desc *d) {
    d->chained = field32((int32_t)take(1) & 3), d->canary0 = (uint32_t)field(0),
    d->canary1 = (uint32_t)field(0);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots),
        d->keep_status = field32((int32_t)take(1) & 1);
    d->batch = field32((int32_t)take(1)), d->num_active = (const int32_t *)maybe();
    d->finished = (const uint8_t *)pointer();
    d->active = (int32_t *)pointer(), d->new_num_active = (int32_t *)pointer();
    if (take(1) < 200)
        d->cache_len = (const int32_t *)pointer(), d->draft_cache_len = (const int32_t *)pointer();
    if (d->cache_len || take(1) < 20) {
        d->start_position = (int32_t *)maybe(), d->draft_lacks_first = (int32_t *)maybe();
        d->draft_lacks_start = (int32_t *)maybe();
    }
    d->row_status = (uint32_t *)maybe(), d->num_carry = fill_carry(d->carry);
    d->new_slot = (int32_t *)maybe();
}

static void rules_of_group(const specv_group_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->batch >= 0, BATCH);
    RULE(d->batch <= 65536, TOO_LARGE);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    RULES_OF_STATUS(d, row_status);
    RULE(aligned(d->length, 4) && aligned(d->score, 4), KEY);
    RULE((d->length != NULL) + (d->score != NULL) == 1 ||
             (d->batch == 0 && !d->length && !d->score),
         KEY);
    NEEDED(d->order, 4, d->batch, ORDER);
    RULE(aligned(d->group_start, 4) && aligned(d->group_count, 4), ORDER);
    RULE(d->num_pick >= 0 && aligned(d->pick_rows, 4) && aligned(d->is_group, 4), PICK);
    RULE(d->num_pick != 0 || (!d->pick_rows && !d->is_group), PICK);
    NEEDED(d->ticket, 4, d->batch, TICKET);
}

static void reach_of_group(const specv_group_desc *d) { reach((wide)d->batch * d->batch); }

static void fill_group(specv_group_desc *d) {
    d->chained = field32((int32_t)take(1) & 3), d->canary0 = (uint32_t)field(0),
    d->canary1 = (uint32_t)field(0);
    d->batch = field32((int32_t)take(1) * 200);
    d->num_active = (const int32_t *)maybe(), d->skip = (const uint8_t *)maybe();
    if (take(1) & 1)
        d->length = (const int32_t *)pointer();
    else
        d->score = (const float *)pointer();
    if (take(1) > 250) d->score = (const float *)pointer();
    d->order = (int32_t *)pointer(), d->group_start = (int32_t *)maybe();
    d->group_count = (int32_t *)maybe(), d->num_pick = field32((int32_t)take(1) % 5);
    if (d->num_pick || take(1) < 8)
        d->pick_rows = (int32_t *)maybe(), d->is_group = (int32_t *)maybe();
    d->ticket = (uint32_t *)pointer(), d->row_status = (uint32_t *)maybe();
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots),
        d->keep_status = field32((int32_t)take(1) & 1);
}

static void rules_of_draft_budget(const specv_draft_budget_desc *d) {
    const wide batch = d->rows.batch, drafts = batch ? d->rows.max_draft : 0;
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    rules_of_rows(&d->rows);
    RULE(!is_csr(&d->rows), LAYOUT);
    NEEDED(d->confidence, 4, drafts, CONFIDENCE);
    RULE(d->confidence_stride_elems == 0 || d->confidence_stride_elems >= d->rows.max_draft,
         CONFIDENCE);
    RULE(small_enough(batch * 4 * d->confidence_stride_elems), SIZE);
    NEEDED(d->survival, 4, drafts, SURVIVAL);
    RULE(d->max_budget >= 0 && aligned(d->budget, 4), BUDGET);
    NEEDED(d->new_draft_len, 4, batch, NEW_DRAFT_LEN);
    RULE(aligned(d->new_row_start, 4), ROW_START);
    RULES_OF_STATUS(d, row_status);
}

static void reach_of_draft_budget(const specv_draft_budget_desc *d) {
    reach((wide)d->rows.batch * d->confidence_stride_elems * 4);
    if (d->confidence_stride_elems < d->rows.max_draft) fail("rows overlap", 0);
}

static void fill_draft_budget(specv_draft_budget_desc *d) {
    fill_rows(&d->rows);
    if (is_csr(&d->rows) && take(1) < 250)
        d->rows.row_start = d->rows.row_end = NULL, d->rows.num_draft_tokens = field(0);
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);
    d->keep_status = field32((int32_t)take(1) & 1), d->confidence = (const float *)pointer();
    d->budget = (const int32_t *)maybe(), d->survival = (float *)pointer();
    d->new_draft_len = (int32_t *)pointer(), d->new_row_start = (int32_t *)maybe();
    d->row_status = (uint32_t *)maybe(), d->max_budget = field32((int32_t)take(1));
    d->confidence_stride_elems = field((take(1) & 1) * 20);
}

/* ---- D1 to D3 */

static void rules_of_particle_weights(const specv_particle_weights_desc *d) {
    const wide batch = d->batch, drafts = batch ? d->max_draft : 0;
    const unsigned token = d->token_dtype == SPECV_I64 ? 8 : 4;
    RULES_OF_ALL(d);
    RULE(d->batch >= 0, BATCH);
    RULE(d->max_draft >= 0, MAX_DRAFT);
    RULE(batch * ((wide)d->max_draft + 1) <= 1 << 30, TOO_LARGE);
    RULE(aligned(d->num_active, 4), NUM_ACTIVE);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    RULE(aligned(d->draft_tokens, token), DRAFT_TOKENS);
    RULE(aligned(d->next_token, token), NEXT_TOKEN);
    NEEDED(d->target_logprob, 4, drafts, LOGPROB);
    NEEDED(d->draft_logprob, 4, drafts, LOGPROB);
    RULE(aligned(d->alpha, 4) && aligned(d->bonus_lse, 4) && aligned(d->lse, 4), ALPHA);
    RULE(d->lse || !d->bonus_lse, ALPHA);
    RULE(d->finished || batch == 0, FINISHED);
    NEEDED(d->log_weight, 8, batch, WEIGHT);
    NEEDED(d->interval_weight, 8, batch, WEIGHT);
    RULE(aligned(d->num_emitted, 4), NUM_EMITTED);
    RULES_OF_STATUS(d, row_status);
    RULE(d->draft_stride_elems == 0 || d->draft_stride_elems >= d->max_draft, DRAFT_STRIDE);
    RULE(d->target_logprob_stride_elems == 0 || d->target_logprob_stride_elems >= d->max_draft,
         SCORE_STRIDE);
    RULE(d->draft_logprob_seq_stride_elems >= 0 && d->draft_logprob_pos_stride_elems >= 0,
         SCORE_STRIDE);
    if (d->max_draft > 0 &&
        (d->draft_logprob_seq_stride_elems == 0 || d->draft_logprob_pos_stride_elems == 0))
        RULE(d->draft_logprob_seq_stride_elems == d->draft_logprob_pos_stride_elems, SCORE_STRIDE);
    RULE(small_enough(batch * 8 * d->draft_stride_elems), SIZE);
    RULE(small_enough(batch * 4 * d->target_logprob_stride_elems), SIZE);
    RULE(small_enough(batch * 4 * d->draft_logprob_seq_stride_elems), SIZE);
    RULE(small_enough((wide)d->max_draft * 4 * d->draft_logprob_pos_stride_elems), SIZE);
    RULE(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos && i < SPECV_MAX_EOS; ++i) RULE(d->eos_token[i] >= 0, EOS_TOKEN);
}

static void reach_of_particle_weights(const specv_particle_weights_desc *d) {
    reach((wide)d->batch * d->draft_stride_elems * 8);
    reach((wide)d->batch * d->target_logprob_stride_elems * 4);
    reach((wide)d->batch * d->draft_logprob_seq_stride_elems * 4 +
          (wide)d->max_draft * d->draft_logprob_pos_stride_elems * 4);
    if (d->draft_stride_elems < d->max_draft || d->target_logprob_stride_elems < d->max_draft)
        fail("rows overlap", 0);
}

static void fill_particle_weights(specv_particle_weights_desc *d) {
    d->chained = field32((int32_t)take(1) & 3), d->canary0 = (uint32_t)field(0),
    d->canary1 = (uint32_t)field(0);
    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots),
        d->keep_status = field32((int32_t)take(1) & 1);
    d->token_dtype = field32((int32_t)take(1) & 1), d->num_active = (const int32_t *)maybe();
    d->draft_tokens = maybe(), d->next_token = maybe();
    d->target_logprob = (const float *)pointer(), d->draft_logprob = (const float *)pointer();
    d->alpha = (const float *)maybe(), d->lse = (const float *)maybe();
    if (d->lse || take(1) < 10) d->bonus_lse = (const float *)maybe();
    d->finished = (uint8_t *)pointer(), d->log_weight = (double *)pointer();
    d->interval_weight = (double *)pointer(), d->num_emitted = (int32_t *)maybe();
    d->row_status = (uint32_t *)maybe();
    d->batch = field32((int32_t)take(1)), d->max_draft = field32((int32_t)take(1) % 17);
    d->draft_stride_elems = field((take(1) & 1) * 20);
    d->target_logprob_stride_elems = field((take(1) & 1) * 20);
    d->draft_logprob_seq_stride_elems = field((take(1) & 1) * 40);
    d->draft_logprob_pos_stride_elems = field((take(1) & 1) * 300);
    for (int i = 0; i < SPECV_MAX_EOS; ++i) d->eos_token[i] = field(i);
    d->num_eos = field32((int32_t)take(1) % 5);
}

static void rules_of_resample_plan(const specv_resample_plan_desc *d) {
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    RULE(d->scheme >= 0 && d->scheme <= 3, SCHEME);
    RULE(d->num_groups >= 0 && d->num_particles >= 1 && d->num_particles <= 1024, PARTICLES);
    RULE((wide)d->num_groups * d->num_particles <= 1 << 30, TOO_LARGE);
    RULE(aligned(d->num_active_groups, 4), NUM_ACTIVE);
    rules_of_slots(d->group_slot, d->group_slot_dtype, d->num_group_slots);
    NEEDED(d->interval_weight, 8, d->num_groups, WEIGHT);
    RULE(aligned(d->log_weight, 8) && aligned(d->log_z, 8) && aligned(d->ess, 8), WEIGHT);
    RULE(aligned(d->seed, 8) && (d->seed || d->uniform || d->num_groups == 0), SEED);
    RULE(d->seed || !d->drawn_row || d->num_groups == 0, SEED);
    RULE(aligned(d->position, 4) && (d->position || !d->seed || d->num_groups == 0), POSITION);
    RULE(aligned(d->uniform, 4), UNIFORM);
    NEEDED(d->num_jobs, 4, d->num_groups, JOBS);
    NEEDED(d->jobs, 4, d->num_particles == 1 ? 0 : d->num_groups, JOBS);
    RULE(aligned(d->num_copies, 4) && aligned(d->drawn_row, 4), JOBS);
    RULES_OF_STATUS(d, group_status);
    RULE(d->threshold >= 0 && d->threshold <= 1, THRESHOLD);
}

static void reach_of_resample_plan(const specv_resample_plan_desc *d) {
    if ((wide)d->num_groups * d->num_particles > INT32_MAX) fail("rows are no int32", 0);
}

static void fill_resample_plan(specv_resample_plan_desc *d) {
    const double thresholds[] = {0, 1, 0.5, 1e-300, 0.999, -0.0};
    const double bad[] = {-1, 1.0000001, (double)INFINITY, (double)NAN};
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);
    fill_slots(&d->group_slot, &d->group_slot_dtype, &d->num_group_slots);
    d->keep_status = field32((int32_t)take(1) & 1), d->scheme = field32((int32_t)take(1) & 3);
    d->num_active_groups = (const int32_t *)maybe(), d->interval_weight = (double *)pointer();
    d->log_weight = (double *)maybe(), d->log_z = (double *)maybe(), d->ess = (double *)maybe();
    if (take(1) < 128) d->seed = (const uint64_t *)pointer();
    if (!d->seed || take(1) < 30) d->uniform = (const float *)pointer();
    d->position = (const int32_t *)pointer(), d->group_status = (uint32_t *)maybe();
    d->jobs = (int32_t *)pointer(), d->num_jobs = (int32_t *)pointer();
    d->num_copies = (int32_t *)maybe();
    if (d->seed || take(1) < 20) d->drawn_row = (int32_t *)maybe();
    d->threshold = take(1) < 250 ? thresholds[take(1) % 6] : bad[take(1) & 3];
    d->num_groups = field32((int32_t)take(1)), d->num_particles = field32(1 + (int32_t)take(1));
}

/* What a descriptor needs: a ticket, bits for the pages of each cache, jobs, each from a multiple
   of 16 on. */
static wide reshuffle_scratch_of(const specv_reshuffle_desc *d) {
    wide bytes = 16 + 32 * ((wide)d->num_groups * d->max_jobs);
    for (int i = 0; i < d->num_caches && i < SPECV_MAX_CACHES; ++i)
        bytes += ((wide)d->cache[i].num_pages + 127) / 128 * 16;
    return bytes;
}

static void rules_of_reshuffle(const specv_reshuffle_desc *d) {
    const unsigned token = d->token_dtype == SPECV_I64 ? 8 : 4;
    const wide slots = d->slot ? d->num_slots : d->batch;
    const wide jobs = (wide)d->num_groups * d->max_jobs;
    RULES_OF_ALL(d);
    RULE(d->reserved == 0, CANARY);
    RULE(d->batch >= 0, BATCH);
    rules_of_slots(d->slot, d->slot_dtype, d->num_slots);
    RULE(d->num_groups >= 0, PARTICLES);
    RULE(d->max_jobs >= 0 && jobs <= 1 << 24, JOBS);
    NEEDED(d->jobs, 4, jobs, JOBS);
    NEEDED(d->num_jobs, 4, jobs, JOBS);
    RULES_OF_STATUS(d, job_status);
    RULE(aligned(d->num_active_groups, 4), NUM_ACTIVE);
    RULE(d->num_sms >= 0 && d->num_sms < 65536, NUM_SMS);
    RULE(d->token_dtype == 0 || d->token_dtype == 1, TOKEN_DTYPE);
    RULE(aligned(d->text, token) && aligned(d->text_len, 4), TEXT);
    RULE(d->text_stride_elems >= 0, TEXT);
    RULE(!d->text || (d->text_len && d->text_stride_elems > 0), TEXT);
    RULE(small_enough(slots * 8 * d->text_stride_elems), SIZE);
    RULE(d->num_caches >= 0 && d->num_caches <= SPECV_MAX_CACHES, CACHES);
    for (int i = 0; i < d->num_caches && i < SPECV_MAX_CACHES; ++i) {
        const specv_particle_cache *c = &d->cache[i];
        RULE(c->reserved == 0, CANARY);
        rules_of_pool(&c->pool, d->batch);
        NEEDED(c->block_table, 4, d->batch, BLOCK_TABLE);
        NEEDED(c->num_row_pages, 4, d->batch, NUM_ROW_PAGES);
        NEEDED(c->cache_len, 4, d->batch, CACHE_LEN);
        RULE(c->page_size > 0, PAGE_SIZE);
        RULE(c->num_pages > 0, NUM_PAGES);
        RULE(c->max_row_pages > 0, NUM_ROW_PAGES);
        RULE(c->table_stride_elems == 0 || c->table_stride_elems >= c->max_row_pages, TABLE_STRIDE);
        RULE(small_enough(slots * 4 * default_to(c->table_stride_elems, c->max_row_pages)), SIZE);
        RULE((wide)d->batch * c->max_row_pages <= 1 << 30, TOO_LARGE);
    }
    NEEDED(d->scratch, 16, d->num_groups, SCRATCH);
    RULE(d->num_groups <= 0 || d->scratch_bytes >= reshuffle_scratch_of(d), SCRATCH);
    rules_of_carry(d->carry, d->num_carry, slots);
}

static void reach_of_reshuffle(const specv_reshuffle_desc *d) {
    const wide slots = d->slot ? d->num_slots : d->batch;
    for (int i = 0; i < d->num_caches; ++i) {
        reach(slots * d->cache[i].table_stride_elems * 4);
        if (d->cache[i].table_stride_elems < d->cache[i].max_row_pages) fail("rows overlap", 0);
    }
    for (int i = 0; i < d->num_carry; ++i) reach(slots * d->carry[i].elem_bytes);
    reach(slots * d->text_stride_elems * 8);
    wide pages = 0;
    for (int i = 0; i < d->num_caches; ++i) pages += d->cache[i].num_pages;
    if (specv_reshuffle_scratch_bytes((int64_t)d->num_groups * d->max_jobs, (int64_t)pages) <
        reshuffle_scratch_of(d))
        fail("scratch does not suffice", 0);
}

static void fill_reshuffle(specv_reshuffle_desc *d) {
    d->canary0 = (uint32_t)field(0), d->canary1 = (uint32_t)field(0);
    d->chained = field32((int32_t)take(1) & 3), d->reserved = (uint32_t)field(0);

    fill_slots(&d->slot, &d->slot_dtype, &d->num_slots),
        d->keep_status = field32((int32_t)take(1) & 1);
    d->token_dtype = field32((int32_t)take(1) & 1);
    d->jobs = (const int32_t *)pointer(), d->num_jobs = (const int32_t *)pointer();
    d->num_caches = field32((int32_t)take(1) % 3);
    for (int i = 0; i < d->num_caches && i < SPECV_MAX_CACHES; ++i) {
        specv_particle_cache *c = &d->cache[i];
        fill_pool(&c->pool);
        c->block_table = (int32_t *)pointer(), c->num_row_pages = (int32_t *)pointer();
        c->cache_len = (int32_t *)pointer(), c->max_row_pages = field32(1 + (int32_t)take(1));
        c->table_stride_elems = field((take(1) & 1) * 300);
        c->page_size = field32(16), c->num_pages = field32(100);
        c->reserved = (uint32_t)field(0);
    }
    d->num_carry = fill_carry(d->carry);
    d->text = maybe(), d->text_len = (int32_t *)maybe();
    if (d->text) d->text_len = (int32_t *)pointer();
    d->text_stride_elems = field(d->text ? 100 : (int64_t)take(1));
    d->num_active_groups = (const int32_t *)maybe(), d->num_sms = field32((int32_t)take(1));
    d->job_status = (uint32_t *)maybe(), d->scratch = pointer();
    d->num_groups = field32((int32_t)take(1)), d->max_jobs = field32((int32_t)take(1));
    d->batch = field32((int32_t)take(1));
    d->scratch_bytes = field(INT64_MAX);
    if (take(1) < 64) d->scratch_bytes = (int64_t)reshuffle_scratch_of(d) - (int64_t)(take(1) & 1);
}

/* These have nothing to resolve. */
#define specv_compact_resolve(d)       (void)(d)
#define specv_group_resolve(d)         (void)(d)
#define specv_resample_plan_resolve(d) (void)(d)
