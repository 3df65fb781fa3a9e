/* specverify.cuh - 0.7.0 - verification of batched speculative decoding, in CUDA C
   SPDX-License-Identifier: MIT-0                              no warranty; use at your own risk

   Do this:
       #define SPECVERIFY_IMPLEMENTATION
   before you include this file in *one* .cu file. Include it anywhere else without the define,
   in .cu files for the device functions, in .c files for the launchers.

   Contents (search for the anchor):
       in this comment   >>use, >>does-not, >>terms, >>rules, >>tables, >>options, >>revisions
       of no operation   >>config compilers, linkage        >>lane  thread-level device functions
                         >>types status codes, batches      >>warp  warp-level device functions
                         >>numeric the same bits anywhere   >>block block-level device functions
                         >>checks what validation is made of
       families          part I: descriptors, contracts,    part II, in one file:
                         validation, device functions       >>implementation
           A1                >>greedy                           >>greedy-kernels
           A2-A6 A8 A10 A11  >>sample                           >>sample-kernels
           A9                >>shards                           >>shards-kernels
           B1 B2             >>pack                             >>pack-kernels
           B3 B5 D4          >>cache                            >>cache-kernels
           A7 B4             >>trees                            >>trees-kernels
           C1 C2             >>columns                          >>columns-kernels
           C3-C5             >>schedule                         >>schedule-kernels
           D1-D3             >>particles                        >>particles-kernels
           E                 >>stats                            >>stats-kernels
       behind part I     >>short-names warp_ballot_accept and friends; at the end >>license
   An operation stands in three places: its row in >>tables, its family in part I, and in part II.
   A family uses what stands above it, nothing below.

   ------------------------------------------------------------------------------------- >>use
   1. A ready launcher (from .cu, .cpp or .c):

       specv_verify_pack_kv_desc d = SPECV_ZERO;       // zero is the default of every field
       d.verify.rows.batch = 32;                       // rows = sequences
       d.verify.rows.max_draft = 8;
       d.verify.draft_tokens = draft;                  // int32 [32][8]   device memory
       d.verify.target_tokens = target;                // int32 [32][9]
       d.verify.accepted_len = accepted;               // int32 [32]      out
       d.verify.next_token = next;                     // int32 [32]      out
       d.kv.src = draft_kv;                            // [32][8] rows of 4096 bytes
       d.kv.dst = packed_kv;                           // [256] rows of 4096 bytes
       d.kv.row_bytes = 4096;
       d.kv.capacity_rows = 256;
       d.kv.offsets = offsets;                         // int32 [33]      out
       int status = specv_verify_pack_kv(&d, stream);
       if (status) fprintf(stderr, "%s\n", specv_status_string(status));

   2. Device functions inside a kernel of your own, one warp per sequence:

       int k = warp_ballot_accept(draft + row * 8, target + row * 9, 8);
       if (lane == 0) lens[row] = k;                       // shared, for up to 32 rows
       __syncthreads();
       int total, first = warp_exclusive_scan(lane < num_rows ? lens[lane] : 0, &total);
       first = __shfl_sync(0xffffffff, first, row);
       warp_copy_kv(packed + first * row_bytes, kv + row * 8 * row_bytes, k * row_bytes);

   3. No GPU: specverify_ref.h has the same descriptors with host pointers,
      int status = specv_ref_verify_pack_kv(&d);

   -------------------------------------------------------------------------------- >>does-not
   It does not run models, own a KV cache, allocate, synchronise, read the device from the host,
   print, or keep state: drafts come from your model (specv_sample draws them from its scores). It
   does not choose your policy (how many drafts, whom to batch). NVIDIA only: warps of 32 lanes,
   sm_75 and later.

   ----------------------------------------------------------------------------------- >>terms
   row         one sequence of the batch in one verification step
   draft       a proposed token; row b has n_b of them, 0 <= n_b <= max_draft; position j = 0..n_b-1
   target      what the target model says: n_b + 1 tokens a row. target[j] is the target's choice
               at the place of draft[j]; target[n_b] follows the last draft
   accepted    the length k_b of the longest prefix with draft[j] == target[j]. An EOS in it
               counts, and ends it
   mismatch    a draft was rejected: k_b < n_b, but not because of an accepted EOS
   correction  target[k_b] when a draft was rejected
   bonus       target[n_b] when all were accepted. Correction or bonus is the row's next_token
   emitted     the tokens that the step adds to the text: accepted drafts, then next_token
   placeholder draft -1: matches nothing, is no fault. For A1 to A5 a draft that is rejected; E
               tells the two apart if it is given the drafts
   scores      logits or probabilities of one position over the vocabulary
   p, q        the target's and the draft's distribution there: softmax of logits / T, or the
               probabilities themselves. q must be what the draft was drawn from, with everything
               applied (temperature, top-k, penalties), or the text is not the target's
   residual    (p - q)+: where a rejected draft's place is filled from
   KV row      the bytes that one position adds to one plane; plane = one layer's K or V
   live row    row index < *num_active (all rows when num_active is null); the others are inert
   slot        where a request's own values are: an engine keeps them in slots for as long as the
               request lives, and gives a batch as a list of slots (vLLM: idx_mapping, SGLang:
               req_pool_indices, TensorRT-LLM: batch_slots). Per-request arrays (temperature, seed,
               position, cache lengths, block tables, ...: "[slot]") are indexed by slot[b], for any
               slot in 0..num_slots-1; slot null: row b is slot b. Per-row arrays (lengths, tokens,
               scores, uniforms, outputs: "[batch]") are not. An operation without "[slot]" arrays
               (A1, B1, B2, C5, E) does not read slot. slot_dtype: int32 or int64
   Dense       draft [batch][draft_stride_elems], target [batch][target_stride_elems],
               n_b = draft_len[b]
   CSR         draft[row_start[b] + j], target[row_start[b] + b + j], n_b = row_start[b+1] -
               row_start[b]; KV rows like drafts. Target rows are one longer, hence the "+ b".
               row_end[b] = row_start[b+1] says the same without the leading 0

   ----------------------------------------------------------------------------------- >>rules
   Pointers    device memory (host memory for specv_ref_*), naturally aligned for their type; KV at
               any byte address. Null is allowed where the field says "or null".
   Aliasing    outputs overlap neither inputs nor each other, unless a contract says so.
   Offsets     64-bit everywhere; batch * (max_draft + 1) is at most 2^30.
   Streams     launchers only enqueue. No allocation, synchronisation, device reads, statics: safe
               from many threads, on many streams, and while a stream is captured. The grid
               depends on the descriptor and the number of SMs alone, so a captured launch stays
               right when lengths, num_active and tokens change in device memory. Kernels of the kit
               may be programmatic dependents: each executes griddepcontrol.wait before it reads
               memory. None lets a kernel of yours start early: only the first of two that one
               launcher chains does that, for the second.
   Batch 0     succeeds and does nothing.
   Inert rows  of such a row nothing is used, and only its lengths (draft_len, row_start, row_end,
               accepted_len), its slot and, in A1 and B2, dense tokens may be read; its outputs are
               0, its tokens -1.
   Outputs     are stored, never accumulated; every element of every row is written; token slots
               that hold no token are -1. A null output is not written. "in/out" is state: it
               changes for live rows, with a fault only where the contract says so. keep_status 1
               adds a launch's bits to those that the status array holds, for operations that
               follow one another; 0 stores them.
   Errors      what the host can know is checked before any work: 0 is success, < 0 is
               SPECV_ERR_* and names a field, > 0 is a cudaError_t. What only the device can see
               costs the row, never the launch: it takes the outcome below and sets bits in
               row_status; other rows are as if nothing had happened. No access leaves a buffer.
                 SPECV_ROW_BAD_LENGTH  length outside its range. Dense: counts as no drafts, so
                                       the row emits target[0]. CSR: nothing of the row can be
                                       trusted, it emits nothing. Packing: no KV row is copied.
                 SPECV_ROW_BAD_DRAFT   the draft that stopped the row is neither a token of the
                                       vocabulary nor -1: rejected like any other mismatch.
                 SPECV_ROW_BAD_TARGET  the token to emit is outside the vocabulary: next_token -1.
                 SPECV_ROW_NO_SPACE    the row's KV does not fit in capacity_rows: none of it is
                                       copied; offsets still tell what was needed. The same for a
                                       cache, a rectangle or a pool that is full: nothing of the
                                       row changes.
                 SPECV_ROW_BAD_TEMPERATURE  negative, NaN or above 8192: counts as 0. (So does
                                       one below 2^-13, without a fault.)
                 SPECV_ROW_NAN         a NaN among the scores that were looked at, or a probability
                                       outside [0, 2]: counts as -inf, as 0.
                 SPECV_ROW_EXTREME     the largest logit / T at a position is infinite or beyond
                                       360,000: it takes all, as at temperature 0.
                 SPECV_ROW_EMPTY       no id has a score (all -inf, all 0): p is 0 everywhere, and
                                       where a token is to be emitted it is -1.
                 SPECV_ROW_ZERO_RESIDUAL  a draft was rejected, but p is nowhere above q (by
                                       rounding, or q is not what it should be): drawn from p.
                 SPECV_ROW_BAD_PAGE  a page id outside the pool, or of a page whose owners do not
                                       add up: the row's pages and KV stay as they are, but for
                                       pages that B5 finds to have too few owners while rows give
                                       them back: these are given back. D3 moves all the same, and
                                       says so in every job of the launch: a pool is at fault.
                 SPECV_ROW_SHARED_PAGE  the row would write into a page that others own too: it
                                       does not.
                 SPECV_ROW_BAD_SUM     the probabilities that a token was drawn from do not sum to 1
                                       within 1e-3, or, behind a rejected draft, p and q not to the
                                       same: drawn all the same. What it costs: see specv_scores.
                 SPECV_ROW_BAD_TICKET  the launch did not find its ticket as it must be: nothing
                                       that it wrote is to be trusted, see SPECV_TICKET_BYTES.
                 SPECV_ROW_BAD_UNIFORM  a uniform of the caller's that was used is not in [0, 1):
                                       counts as the largest number below 1.
                 SPECV_ROW_BAD_FILTER  a top_p or min_p that is NaN, negative or above 1 counts as
                                       not given. A mask_row outside -1..num_mask_rows - positions,
                                       A9 also limits that keep more than max_top_k ids: the row is
                                       treated as an inert one, but for this bit.
                 SPECV_ROW_BAD_LOSSY  a number of specv_lossy outside its range: the request is
                                       judged as if it were not given.
                 SPECV_ROW_BAD_RECORD  records of ranks that do not belong together (A9): the row is
                                       treated as an inert one, but for this bit, on every rank.
                 SPECV_ROW_BAD_TREE    the root has a parent, a node none that comes before it, or
                                       equal siblings where the rule allows none: the row counts as
                                       its root alone. Of B4, a path that does not ascend from the
                                       root, or leaves the tree: nothing of the row changes.
                 SPECV_ROW_BAD_SLOT    a live row's slot is outside 0..num_slots-1, or, where an
                                       operation writes state of the request, an earlier row has
                                       the same: the row is treated as an inert one, but for this
                                       bit. Where nothing is written, rows may share a slot (with
                                       one seed and position: the same random numbers).
   Same bits   every output is a pure function of the inputs, on any GPU, grid and compiler flag.
               Random numbers are a function of seed, position and place in the step alone.
   Warps       warp functions are called by all 32 lanes together, with the same arguments where
               the contract does not say "per lane". Results are valid in all 32 lanes. They order
               nothing: make data visible first (__syncwarp, __syncthreads).
   Blocks      block functions are called by all threads of a block whose size is a multiple of
               32 (at most 1024); threads are numbered x fastest, as the hardware does.

   ---------------------------------------------------------------------------------- >>tables
   device function                 called by  scratch             barriers  needs
   specv_thread_next_token(_i64)   thread     -                   -         -
   specv_thread_find_row           thread     -                   -         sorted offsets
   specv_thread_load_row           thread     -                   -         -
   specv_thread_slot               thread     -                   -         -
   specv_thread_own_slot           thread     -                   -         -
   specv_thread_kv_offset          thread     -                   -         -
   specv_warp_first_reject         warp       -                   -         32 lanes
   specv_warp_ballot_accept(_i64)  warp       -                   -         32 lanes
   specv_warp_inclusive_scan       warp       -                   -         32 lanes
   specv_warp_exclusive_scan       warp       -                   -         32 lanes
   specv_warp_reduce_add/_min/_max warp       -                   -         32 lanes
   specv_warp_find_row             warp       -                   -         32 lanes
   specv_warp_slot                 warp       -                   -         32 lanes
   specv_warp_copy_kv              warp       -                   -         32 lanes
   specv_warp_verify_greedy_row    warp       -                   -         32 lanes
   specv_warp_load_tile            warp       -                   -         -
   specv_warp_tile_stats           warp       -                   -         32 lanes
   specv_warp_merge_tiles          warp       -                   -         32 lanes
   specv_warp_filter_bound         warp       -                   -         32 lanes
   specv_warp_shard_tile           warp       -                   -         32 lanes
   specv_warp_shard_sum            warp       -                   -         32 lanes
   specv_thread_choose_shard       thread     -                   -         -
   specv_warp_draw_in_shard        warp       -                   -         32 lanes
   specv_block_exclusive_scan      block      SPECV_BLOCK_SCAN_   1         whole block
                                              SMEM_WORDS words
   specv_block_copy_kv             block      -                   -         whole block
   specv_block_accept_tile         block      2 shared arrays     2         whole block
   specv_block_offsets_tile        block      scan scratch        2         whole block
   specv_warp_plane_share          warp       -                   -         -
   specv_warp_pack_tile            warp       -                   -         32 lanes

   operation            launcher              kernel(s)                     reference
   A1 verify, greedy    specv_verify_greedy   specv_verify_greedy_kernel    specv_ref_verify_greedy
   A2 greedy, logits    specv_verify_sample   specv_greedy_bf16_kernel,     specv_ref_verify_sample
      rule GREEDY                             specv_greedy_f16_kernel,
                                              specv_greedy_f32_kernel
   A3 token rejection   the same, TOKEN       specv_softmax_bf16_kernel,    the same
   A4 block rule        the same, BLOCK       specv_softmax_f16_kernel,
      particles         the same, SCORE       specv_softmax_f32_kernel
   A5 coupled Gumbel    the same, COUPLED     specv_noise_bf16_kernel,      the same
                                              specv_noise_f16_kernel,
                                              specv_noise_f32_kernel
   A6 lossy rules       the same              specv_lossy_rows_kernel,      the same
                                              with limits specv_filter_kernel,
                                              then specv_lossy_kernel, of BOUNDED
                                              specv_residual_filtered_kernel
   A10 filters          those of A2-A5, A8    specv_filtered_kernel,
                                              then specv_filter_kernel,
                                              specv_residual_filtered_kernel
      with draft scores the same              then specv_residual_kernel
      probabilities     the same              specv_probs_kernel,
                                              specv_probs_block_kernel,
                                              specv_verify_sample_kernel
   A8 sampler           specv_sample          those of A3, A5               specv_ref_sample
   A11 log-probs        those of A2-A5, A7,   specv_filtered_kernel,        the same
                        A8                    then specv_emitted_kernel
   A9 sharded           specv_verify_shard    of step 0                     specv_ref_verify_shard
                                              specv_shard_greedy_bf16_kernel,
                                              specv_shard_greedy_f16_kernel,
                                              specv_shard_greedy_f32_kernel,
                                              specv_shard_noise_bf16_kernel,
                                              specv_shard_noise_f16_kernel,
                                              specv_shard_noise_f32_kernel,
                                              specv_shard_softmax_bf16_kernel,
                                              specv_shard_softmax_f16_kernel,
                                              specv_shard_softmax_f32_kernel,
                                              specv_shard_masked_kernel,
                                              specv_shard_names_kernel,
                                              then specv_shard_cut_kernel,
                                              then, as the rule needs,
                                              specv_shard_sums_kernel,
                                              specv_shard_judge_kernel,
                                              specv_shard_gains_kernel,
                                              specv_shard_draw_kernel,
                                              specv_shard_emit_kernel
   B1 pack KV           specv_pack_kv         specv_pack_kv_kernel,         specv_ref_pack_kv
                                              of a small step
                                              specv_pack_small_kernel
   B2 verify and pack   specv_verify_pack_kv  specv_verify_pack_kv_kernel,  specv_ref_verify_pack_kv
                                              of a small step
                                              specv_verify_pack_small_kernel,
                                              or A1's, then B1's
   B3 append to cache   specv_append_kv       specv_append_kv_kernel, of    specv_ref_append_kv
                                              few rows
                                              specv_append_few_kernel
   B5 pages             specv_page_resize     specv_page_resize_kernel,     specv_ref_page_resize
                                              with planes then
                                              specv_copy_pages_kernel
      share pages       specv_page_fork       specv_page_fork_kernel        specv_ref_page_fork
   A7 trees             specv_verify_tree     specv_tree_ids_kernel,        specv_ref_verify_tree
                                              specv_tree_equal_kernel,
                                              specv_tree_coin_kernel,
                                              specv_tree_coin_probs_kernel or
                                              specv_tree_kernel; with filters
                                              specv_filtered_kernel,
                                              specv_filter_kernel,
                                              specv_tree_filtered_kernel; then
                                              A11's
   B4 commit of a path  specv_commit_path     specv_commit_path_kernel      specv_ref_commit_path
      layouts of trees  specv_tree_layout     specv_tree_layout_kernel      specv_ref_tree_layout
   C1 realign           specv_realign         specv_realign_kernel, with    specv_ref_realign
                                              planes then
                                              specv_shift_kv_kernel
      move columns      specv_shift_kv        specv_shift_kv_kernel         specv_ref_shift_kv
   C2 gap mode          specv_gap_commit      specv_gap_commit_kernel       specv_ref_gap_commit
   C3 active rows       specv_compact         specv_compact_kernel          specv_ref_compact
   C4 groups, order     specv_group           specv_group_kernel            specv_ref_group
   C5 draft budget      specv_draft_budget    specv_draft_budget_kernel     specv_ref_draft_budget
   D1 particle weights  specv_particle_weights  specv_particle_weights_kernel
                                                               specv_ref_particle_weights
   D2 resampling        specv_resample_plan   specv_resample_plan_kernel    specv_ref_resample_plan
   D3 reshuffle         specv_reshuffle       specv_reshuffle_kernel        specv_ref_reshuffle
   D4 fan-out           specv_page_fork
   E  metrics           specv_accept_stats    specv_accept_stats_kernel     specv_ref_accept_stats

   --------------------------------------------------------------------------------- >>options
   SPECVERIFY_IMPLEMENTATION   in one .cu file, before the include: kernels and launchers.
   SPECVERIFY_STATIC           in that file: kernels and launchers are static. For a library that
                               vendors this file and calls it from one .cu file only.
   SPECVERIFY_EXPORT           everywhere, before the first include: launchers, specv_status_string
                               and *_scratch_bytes (of the reference, too) are called from outside
                               the library that holds them, or found by name: default visibility,
                               symbols without version; kernels without version, too. Default:
                               symbols that carry the version, hidden, so that libraries, static
                               or shared, with different versions of this file never call into
                               each other, and equal ones link.
   SPECVERIFY_NO_SHORT_NAMES   anywhere: no warp_ballot_accept, warp_copy_kv, ...; only specv_*.
   SPECVERIFY_NO_GREEDY        with the implementation: no kernels and launchers of that family, for
   SPECVERIFY_NO_SAMPLE        less code and compile time (README: what each costs). What part I
   SPECVERIFY_NO_SHARDS        has of it stays: descriptors, validation, device functions. A
   SPECVERIFY_NO_PACK          launcher that is called all the same does not link. >>pack starts the
   SPECVERIFY_NO_CACHE         kernel of >>greedy, >>trees those of >>sample that cut rows: what is
   SPECVERIFY_NO_TREES         started is there as long as either is asked for.
   SPECVERIFY_NO_COLUMNS       (the same)
   SPECVERIFY_NO_SCHEDULE      (the same)
   SPECVERIFY_NO_PARTICLES     (the same)
   SPECVERIFY_NO_STATS         (the same)
   SPECVERIFY_NO_VALIDATE      with the implementation: launchers skip the host-side checks. All
                               copies of one version in one program must agree on it.
   SPECVERIFY_NO_STDINT        under NVRTC, if you declare int32_t and its kin yourself.

   ------------------------------------------------------------------------------- >>revisions
   0.7.0  masks, top-k, top-p, min-p and log-probabilities inside the verifier and the sampler.
   0.6.0  fast at small batches: fewer dependent trips, kernels per type; `chained`.
   0.5.0  ordered by families, which can be left out; one vocabulary; slots; versioned symbols.
   0.4.1  lawful everywhere: streams, tails, budgets; silent faults. Other bits for a seed.
   0.4.0  elements of any size are carried; a bonus that was not drawn is not emitted
   0.3.0  commit to padded and paged caches, pages, aligned batches, grouping, draft budgets,
          particles.
   0.2.0  sampled verification from logits or probabilities; a sampler; the numeric core.
   0.1.0  greedy verification, KV packing, both in one launch, acceptance metrics.
   See CHANGELOG.md. Versions follow semver for source; nothing is promised across binaries.
*/

#ifndef SPECVERIFY_H_INCLUDED
#define SPECVERIFY_H_INCLUDED

/* ================================================================================= >>config */

#define SPECVERIFY_VERSION_MAJOR  0
#define SPECVERIFY_VERSION_MINOR  7
#define SPECVERIFY_VERSION_PATCH  0
#define SPECVERIFY_VERSION        700 /* major * 10000 + minor * 100 + patch */
#define SPECVERIFY_VERSION_STRING "0.7.0"

#if defined(__CUDACC_RTC__)
#if !defined(SPECVERIFY_NO_STDINT) /* NVRTC finds no <stdint.h> without an include path */
typedef unsigned char uint8_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
#endif
#else
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__) && defined(__CUDACC_VER_MAJOR__)
#if __CUDACC_VER_MAJOR__ < 12
#error "specverify.cuh needs CUDA 12 or later: older toolkits were never tried"
#endif
#endif
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ < 750
#error "specverify.cuh needs sm_75 or later: independent thread scheduling and its barriers"
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define SPECV_UNUSED  __attribute__((unused))
#define SPECV_WEAK    __attribute__((weak))
#define SPECV_HIDDEN  __attribute__((visibility("hidden")))
#define SPECV_VISIBLE __attribute__((visibility("default")))
#else
#define SPECV_UNUSED
#define SPECV_WEAK
#define SPECV_HIDDEN
#define SPECV_VISIBLE
#endif

#if defined(__cplusplus)
#define SPECV_EXTERN_C extern "C"
#define SPECV_ZERO                                                                                 \
    {} /* "desc d = SPECV_ZERO;" without warnings in C and C++ */
#else
#define SPECV_EXTERN_C
#define SPECV_ZERO                                                                                 \
    { 0 }
#endif

/* Linkage. Copies of this file meet in one program: in shared libraries, static archives, merged
   objects. So symbols are hidden, and carry the version: each caller gets the kit that it was
   compiled with. Bodies are weak: of two copies of one version the linker keeps one. Declarations
   are not: what nobody implements would be null instead of an error. Launchers have the version by
   SPECV_AS, which C knows, too; kernels as an ABI tag, so that profilers show
   specv_sample_kernel[abi:v400]. Only inline makes a kernel weak for the device linker as well. */
#if defined(SPECVERIFY_API)
#error "SPECVERIFY_API is gone: SPECVERIFY_EXPORT makes launchers callable from outside a library"
#endif
#define SPECV_I_TEXT_OF(x)  #x
#define SPECV_I_TEXT(x)     SPECV_I_TEXT_OF(x)
#define SPECV_I_VERSION_TAG "v" SPECV_I_TEXT(SPECVERIFY_VERSION)
#if defined(SPECVERIFY_EXPORT) || defined(__CUDACC_RTC__) || !defined(__GNUC__)
#define SPECV_AS(name)
#define SPECV_API      SPECV_EXTERN_C SPECV_VISIBLE
#define SPECV_API_BODY SPECV_API
#define SPECV_I_GLOBAL extern "C" SPECV_HIDDEN __global__ void
#define SPECV_I_INLINE
#else
#define SPECV_AS(name) __asm__(#name "_" SPECV_I_VERSION_TAG)
#define SPECV_API      SPECV_EXTERN_C SPECV_HIDDEN
#define SPECV_API_BODY SPECV_API SPECV_WEAK
#define SPECV_I_GLOBAL SPECV_HIDDEN __attribute__((abi_tag(SPECV_I_VERSION_TAG))) __global__ void
#if defined(__CUDACC_DEBUG__) /* -G: kernels are noinline; weak for the host's linker alone */
#define SPECV_I_INLINE SPECV_WEAK
#else
#define SPECV_I_INLINE inline
#endif
#endif
#if defined(SPECVERIFY_STATIC)
#define SPECV_LAUNCHER      static SPECV_UNUSED
#define SPECV_LAUNCHER_BODY SPECV_LAUNCHER
#define SPECV_KERNEL        static __global__ void
#define SPECV_KERNEL_BODY   SPECV_KERNEL
#else
#define SPECV_LAUNCHER      SPECV_API
#define SPECV_LAUNCHER_BODY SPECV_API_BODY
#define SPECV_KERNEL        SPECV_I_GLOBAL
#define SPECV_KERNEL_BODY   SPECV_I_INLINE SPECV_KERNEL
#endif

/* Host functions that every translation unit may want: static, so that versions never mix. */
#define SPECV_HOSTFN static inline SPECV_UNUSED
/* Those among them that other languages need beside the launchers: with SPECVERIFY_EXPORT, the
   files that implement the kit or the reference export them. */
#if defined(SPECVERIFY_EXPORT) &&                                                                  \
    (defined(SPECVERIFY_IMPLEMENTATION) || defined(SPECVERIFY_REF_IMPLEMENTATION))
#define SPECV_I_EXPORTING
#define SPECV_HOSTAPI SPECV_API SPECV_WEAK
#else
#define SPECV_HOSTAPI SPECV_HOSTFN
#endif
/* The attribute keeps clang hosts quiet about device functions that a file does not use. */
#define SPECV_DEVFN static __device__ __forceinline__ SPECV_UNUSED
/* Host and device functions. */
#if defined(__CUDACC__)
#define SPECV_NUMFN static __host__ __device__ __forceinline__ SPECV_UNUSED
#else
#define SPECV_NUMFN static inline SPECV_UNUSED
#endif

/* Prototypes of launchers: not where they would be static functions that nothing defines. */
#if !defined(SPECVERIFY_STATIC) || (defined(SPECVERIFY_IMPLEMENTATION) && defined(__CUDACC__))
#define SPECV_I_LAUNCHERS 1
#else
#define SPECV_I_LAUNCHERS 0
#endif

struct CUstream_st; /* cudaStream_t is a pointer to it: plain C needs no CUDA header */

/* =================================================================================== >>types

   What all operations share: status codes, bits of row_status, the ragged batch, tickets. */

/* Status codes: name, value, message. Every message names the field at fault. */
#define SPECV_STATUS_TABLE(X)                                                                      \
    X(OK, 0, "success")                                                                            \
    X(ERR_NULL_DESC, -1, "the descriptor pointer is null")                                         \
    X(ERR_CANARY, -2, "canary0 or canary1 is not 0: the descriptor was not zero-initialised")      \
    X(ERR_BATCH, -3, "batch is negative")                                                          \
    X(ERR_MAX_DRAFT, -4, "max_draft is negative")                                                  \
    X(ERR_TOO_LARGE, -5,                                                                           \
      "batch * (max_draft + 1), or rows times pages, is above 2^30 or batch above a limit")        \
    X(ERR_LAYOUT, -6, "more than one of draft_len, row_start and row_end is given")                \
    X(ERR_NUM_ACTIVE, -7,                                                                          \
      "num_active, num_active_groups or num_active_forks is not 4-byte aligned")                   \
    X(ERR_DRAFT_LEN, -8, "draft_len is not 4-byte aligned")                                        \
    X(ERR_ROW_START, -9, "row_start, row_end or new_row_start is not 4-byte aligned")              \
    X(ERR_NUM_DRAFT_TOKENS, -10,                                                                   \
      "num_draft_tokens is negative, above batch * max_draft, or given without row_start or "      \
      "row_end")                                                                                   \
    X(ERR_TOKEN_DTYPE, -11, "token_dtype is neither SPECV_I32 nor SPECV_I64")                      \
    X(ERR_DRAFT_TOKENS, -12, "draft_tokens is null or not aligned to its element")                 \
    X(ERR_TARGET_TOKENS, -13,                                                                      \
      "target_tokens is null or not aligned to its element, or is given beside scores")            \
    X(ERR_ACCEPTED_LEN, -14, "accepted_len is null or not 4-byte aligned")                         \
    X(ERR_NEXT_TOKEN, -15, "next_token is not aligned to its element")                             \
    X(ERR_OUT_TOKENS, -16,                                                                         \
      "out_tokens is not aligned to its element, or null where it is an input")                    \
    X(ERR_NUM_EMITTED, -17, "num_emitted is not 4-byte aligned, or null where it is needed")       \
    X(ERR_ROW_STATUS, -18, "row_, group_, job_ or fork_status is not 4-byte aligned")              \
    X(ERR_DRAFT_STRIDE, -19, "draft_stride_elems is below max_draft, or given with CSR")           \
    X(ERR_TARGET_STRIDE, -20, "target_stride_elems is below max_draft + 1, or given with CSR")     \
    X(ERR_OUT_STRIDE, -21,                                                                         \
      "out_stride_elems is below max_draft + 1, or token_stride_elems is negative")                \
    X(ERR_VOCAB, -22, "vocab is negative, or with scores not in 1..2^22")                          \
    X(ERR_NUM_EOS, -23, "num_eos is negative or above SPECV_MAX_EOS")                              \
    X(ERR_EOS_TOKEN, -24, "an eos_token is negative or not below vocab")                           \
    X(ERR_NUM_PLANES, -25,                                                                         \
      "num_planes is negative, or 0 with plane tables, or above 1 without them")                   \
    X(ERR_SRC, -26,                                                                                \
      "src and dst are needed, or src_planes (8-byte aligned) and dst_planes; "                    \
      "of an append, planes of src where kv has them")                                             \
    X(ERR_DST, -27, "dst and src are needed, or dst_planes (8-byte aligned) and src_planes")       \
    X(ERR_OFFSETS, -28, "offsets is null or not 4-byte aligned")                                   \
    X(ERR_ROW_BYTES, -29, "row_bytes is not positive")                                             \
    X(ERR_SRC_POS_STRIDE, -30, "src_pos_stride_bytes is below row_bytes")                          \
    X(ERR_SRC_SEQ_STRIDE, -31,                                                                     \
      "src_seq_stride_bytes does not hold max_draft positions, or is given with CSR")              \
    X(ERR_DST_ROW_STRIDE, -32, "dst_row_stride_bytes is below row_bytes")                          \
    X(ERR_CAPACITY, -33, "capacity_rows is not positive")                                          \
    X(ERR_SIZE, -34, "strides times counts overflow an int64")                                     \
    X(ERR_NUM_SMS, -35, "num_sms is negative or above 65535")                                      \
    X(ERR_HISTOGRAM, -36, "histogram is not 8-byte aligned, or both outputs are null")             \
    X(ERR_TOTALS, -37, "totals is not 8-byte aligned")                                             \
    X(ERR_ACCUMULATE, -38, "accumulate is neither 0 nor 1")                                        \
    X(ERR_KEEP_STATUS, -39, "keep_status is neither 0 nor 1")                                      \
    X(ERR_RULE, -40, "rule is not a specv_rule")                                                   \
    X(ERR_TARGET, -41, "target.data, or scores.data, is null or not aligned to its element")       \
    X(ERR_DRAFT, -42,                                                                              \
      "draft.data is not aligned to its element, or is given with a rule that takes none")         \
    X(ERR_SCORE_DTYPE, -43, "dtype of target or draft is not a specv_score_dtype")                 \
    X(ERR_SCORE_STRIDE, -44,                                                                       \
      "a stride of target or draft is too small, or seq_stride_elems is given with CSR")           \
    X(ERR_TEMPERATURE, -45, "temperature or draft_temperature is not 4-byte aligned")              \
    X(ERR_SEED, -46, "seed is not 8-byte aligned, or needed and null")                             \
    X(ERR_POSITION, -47,                                                                           \
      "position is not 4-byte aligned, or null where seed or position_ids is given")               \
    X(ERR_UNIFORM, -48, "accept_uniform or sample_uniform is not 4-byte aligned")                  \
    X(ERR_LOGPROB, -49,                                                                            \
      "logprob, lse, out_, draft_ or target_logprob is not 4-byte aligned, is null "               \
      "where weights need it, or is given without rule SCORE")                                     \
    X(ERR_STREAM, -50,                                                                             \
      "stream is not a specv_stream, or COUPLED where only noise is coupled, or step_row is "      \
      "negative")                                                                                  \
    X(ERR_TOKEN, -51, "token is null or not aligned to its element")                               \
    X(ERR_SCRATCH, -52, "scratch is null, not 16-byte aligned, or smaller than needed")            \
    X(ERR_TICKET, -53, "ticket is null or not 4-byte aligned")                                     \
    X(ERR_CACHE_LEN, -54, "cache_len is null or not 4-byte aligned")                               \
    X(ERR_DRAFT_CACHE_LEN, -55, "draft_cache_len or draft_lacks is not 4-byte aligned")            \
    X(ERR_NUM_PENDING, -56,                                                                        \
      "num_pending is negative, or batch * (num_pending + max_draft) above 2^30")                  \
    X(ERR_SLOT_MAPPING, -57, "slot_mapping is not 8-byte, or position_ids not 4-byte aligned")     \
    X(ERR_PAGE_REFS, -58,                                                                          \
      "page_refs is null where needed, not 4-byte aligned, or given without pages")                \
    X(ERR_BLOCK_TABLE, -59,                                                                        \
      "block_table is not 4-byte aligned, null where there must be pages, or given where not")     \
    X(ERR_PAGE_SIZE, -60, "page_size is not positive, or is given without block_table")            \
    X(ERR_NUM_PAGES, -61, "num_pages is not positive, or is given without block_table")            \
    X(ERR_MAX_POSITIONS, -62, "max_positions is not positive")                                     \
    X(ERR_NUM_HEADS, -63, "num_heads is negative")                                                 \
    X(ERR_HEAD_BYTES, -64, "head_bytes is not positive, or with num_heads above 2^30")             \
    X(ERR_KV_STRIDE, -65,                                                                          \
      "a stride of heads, positions, pages or sequences is negative or makes them overlap")        \
    X(ERR_TABLE_STRIDE, -66,                                                                       \
      "table_stride_elems does not hold a row's pages, or is given without block_table")           \
    X(ERR_FREE_PAGES, -67, "free_pages or num_free is null or not 4-byte aligned")                 \
    X(ERR_NUM_ROW_PAGES, -68,                                                                      \
      "num_row_pages is null or not 4-byte aligned, or max_row_pages is not positive")             \
    X(ERR_RESERVE, -69, "reserve is negative, or row_reserve is not 4-byte aligned")               \
    X(ERR_COPY, -70,                                                                               \
      "copy_src_page or copy_dst_page is not 4-byte aligned, or is null where the other or "       \
      "planes are given")                                                                          \
    X(ERR_FORK, -71,                                                                               \
      "num_forks is negative, or src_slot or dst_slot is null or not 4-byte aligned")              \
    X(ERR_COLUMNS, -72, "tokens, mask or position_ids is not aligned to its element")              \
    X(ERR_WIDTH, -73, "width is null or not 4-byte aligned")                                       \
    X(ERR_MAX_COLUMNS, -74, "max_columns is not in 1..2^29, or above stride_elems")                \
    X(ERR_INDEX_DTYPE, -75, "index_dtype or link_dtype is neither SPECV_I32 nor SPECV_I64")        \
    X(ERR_PAD_LEN, -76, "pad_len is null or not 4-byte aligned")                                   \
    X(ERR_SHIFTS, -77, "shifts is null or not 16-byte aligned")                                    \
    X(ERR_END, -78, "end is not 4-byte aligned")                                                   \
    X(ERR_TEXT_LEN, -79, "text_len is null or not 4-byte aligned")                                 \
    X(ERR_DRAFT_LACKS, -80,                                                                        \
      "an output of what the draft model lacks is not 4-byte aligned, or has not the lengths "     \
      "that it needs")                                                                             \
    X(ERR_FINISHED, -81, "finished is null")                                                       \
    X(ERR_ACTIVE, -82, "active or new_num_active is null or not 4-byte aligned")                   \
    X(ERR_CARRY, -83,                                                                              \
      "num_carry is not in 0..SPECV_MAX_CARRY, or a carry is null or has no elem_bytes")           \
    X(ERR_KEY, -84, "one of length and score must be given, 4-byte aligned")                       \
    X(ERR_ORDER, -85, "order is null, or order, group_start or group_count is not 4-byte aligned") \
    X(ERR_PICK, -86,                                                                               \
      "num_pick is negative, or pick_rows or is_group is not 4-byte aligned or comes without it")  \
    X(ERR_CONFIDENCE, -87,                                                                         \
      "confidence is null or not 4-byte aligned, or its stride is below max_draft")                \
    X(ERR_SURVIVAL, -88, "survival is null or not 4-byte aligned")                                 \
    X(ERR_BUDGET, -89, "max_budget is negative, or budget is not 4-byte aligned")                  \
    X(ERR_NEW_DRAFT_LEN, -90, "new_draft_len is null or not 4-byte aligned")                       \
    X(ERR_PLANES, -91, "plane or planes (8-byte aligned) is needed, or both are given")            \
    X(ERR_SCHEME, -92, "scheme is not a specv_resampling")                                         \
    X(ERR_PARTICLES, -93,                                                                          \
      "num_groups is negative, or num_particles is not in 1..SPECV_MAX_PARTICLES")                 \
    X(ERR_WEIGHT, -94,                                                                             \
      "log_weight, interval_weight, log_z or ess is null where needed or not 8-byte aligned")      \
    X(ERR_ALPHA, -95,                                                                              \
      "alpha, bonus_lse or lse is not 4-byte aligned, or one of the last two is missing")          \
    X(ERR_THRESHOLD, -96, "threshold is not in 0..1")                                              \
    X(ERR_JOBS, -97,                                                                               \
      "jobs, num_jobs or num_copies is null where needed or not 4-byte aligned, or "               \
      "there are too many jobs")                                                                   \
    X(ERR_CACHES, -98, "num_caches is not in 0..SPECV_MAX_CACHES")                                 \
    X(ERR_TEXT, -99,                                                                               \
      "text is not aligned to its element, or text_len or text_stride_elems is missing")           \
    X(ERR_MAX_PROB, -100, "max_prob is not 4-byte aligned, or is given with drafts")               \
    X(ERR_SLOT, -101,                                                                              \
      "slot, group_slot or new_slot is not aligned to its element, their dtype is not a "          \
      "specv_dtype, "                                                                              \
      "or num_slots or num_group_slots is not positive where it is needed")                        \
    X(ERR_CHAINED, -102, "chained is not a sum of specv_chained bits")                             \
    X(ERR_MASK, -103,                                                                              \
      "mask, given_mask or mask_row is not 4-byte aligned, or null where it is an input, "         \
      "mask_stride_words does not hold vocab, or max_nodes, bits, or num_mask_rows is too small, " \
      "or one of them comes without mask")                                                         \
    X(ERR_FILTERS, -104,                                                                           \
      "top_k, top_p or min_p is not 4-byte aligned, order is not a specv_filter_order, filters "   \
      "or draft_filters come with scores that are not logits, or, of ranks, without top_k or "     \
      "max_top_k, which is at most SPECV_SHARD_TOP_K, or all_top_k with a side without top_k")     \
    X(ERR_SHARD, -105,                                                                             \
      "num_shards is not in 1..SPECV_MAX_SHARDS, or first_id or num_ids is not a multiple of "     \
      "SPECV_TILE_IDS or outside the vocabulary")                                                  \
    X(ERR_RECORD, -106,                                                                            \
      "record or gathered is not 16-byte aligned, null where the step needs it, given where not, " \
      "or record_stride_bytes is below specv_shard_record_bytes or no multiple of 16")             \
    X(ERR_STEP, -107,                                                                              \
      "step is negative or behind the last one of the rule, or epoch is not 8-byte aligned")       \
    X(ERR_TREE, -108,                                                                              \
      "max_nodes is not in 1..SPECV_MAX_NODES, parent, or what form says is given, is null, one "  \
      "of these, num_nodes or depth is not aligned to its element, a stride of trees does not "    \
      "hold max_nodes, form is not a specv_tree_form, or one_tree is neither 0 nor 1")             \
    X(ERR_PATH, -109,                                                                              \
      "path, paths, accept_index or predicts is not aligned to its element, or null where it is "  \
      "an input, path_stride_elems is below max_depth + 1, max_depth is not in 0..max_nodes - 1, " \
      "or num_paths or path_len is negative")                                                      \
    X(ERR_LOSSY, -110, "an array of lossy is not 4-byte aligned, or the rule does not read it")

#define SPECV_I_ENUM(name, value, text) SPECV_##name = value,
typedef enum specv_status { SPECV_STATUS_TABLE(SPECV_I_ENUM) SPECV_STATUS_END = 1 } specv_status;
#undef SPECV_I_ENUM

/* Bits of row_status. */
enum {
    SPECV_ROW_BAD_LENGTH = 1u << 0,
    SPECV_ROW_BAD_DRAFT = 1u << 1,
    SPECV_ROW_BAD_TARGET = 1u << 2,
    SPECV_ROW_NO_SPACE = 1u << 3,
    SPECV_ROW_BAD_TEMPERATURE = 1u << 4,
    SPECV_ROW_NAN = 1u << 5,
    SPECV_ROW_EXTREME = 1u << 6,
    SPECV_ROW_EMPTY = 1u << 7,
    SPECV_ROW_ZERO_RESIDUAL = 1u << 8,
    SPECV_ROW_BAD_PAGE = 1u << 9,
    SPECV_ROW_SHARED_PAGE = 1u << 10,
    SPECV_ROW_BAD_SUM = 1u << 11,
    SPECV_ROW_BAD_UNIFORM = 1u << 12,
    SPECV_ROW_BAD_TICKET = 1u << 13,
    SPECV_ROW_BAD_SLOT = 1u << 14,
    SPECV_ROW_BAD_FILTER = 1u << 15,
    SPECV_ROW_BAD_RECORD = 1u << 16,
    SPECV_ROW_BAD_TREE = 1u << 17,
    SPECV_ROW_BAD_LOSSY = 1u << 18
};

typedef enum specv_dtype { SPECV_I32 = 0, SPECV_I64 = 1 } specv_dtype;

/* `chained` of a descriptor, a sum: programmatic dependent launch, which hides most of the time
   between two kernels. On sm_90 and later; elsewhere it changes nothing.
   AFTER   what runs before it on the stream is a kernel that lets its dependents start early, or
           any other: this launch starts as soon as that allows, and waits inside for its end before
           it touches memory.
   BEFORE  the kernel that comes next on the stream may start while this launch is at work. Only for
           one that waits (griddepcontrol.wait) before it touches memory: any of the kit with AFTER.
   So a step of the kit runs with BEFORE in its first launch, AFTER in its last, both in between. */
typedef enum specv_chained { SPECV_CHAINED_AFTER = 1, SPECV_CHAINED_BEFORE = 2 } specv_chained;

enum { SPECV_MAX_EOS = 4 };

/* The ragged batch of one step, shared by all operations. See >>terms for the two layouts. */
typedef struct specv_rows {
    const int32_t *num_active; /* device scalar, or null: all rows live; clamped to 0..batch */
    const int32_t *draft_len;  /* [batch], or null: max_draft in every row; dense only */
    const int32_t *row_start;  /* [batch + 1], or null: dense, or row_end */
    const int32_t *row_end;    /* [batch], or null: CSR by inclusive running counts, row_start
                                  without its leading 0 */
    const void *slot;          /* [batch], or null: row b is slot b. See >>terms */
    int64_t num_draft_tokens;  /* CSR: drafts (and KV rows) that the buffers hold; dense: 0 */
    int32_t batch;             /* rows, live and inert */
    int32_t max_draft;         /* upper bound of drafts in a row; columns of dense buffers */
    int32_t slot_dtype;        /* specv_dtype of slot */
    int32_t num_slots;         /* entries of per-request arrays; with slot: must be set */
} specv_rows;

/* Is the batch in CSR layout? Call: any thread, host or device. */
SPECV_NUMFN int specv_i_is_csr(const specv_rows *rows) {
    return rows->row_start != 0 || rows->row_end != 0;
}

/* Tickets. The blocks that share work count their arrivals in a word of device memory; the last one
   goes on alone. The caller zeroes a ticket once; every launch leaves it zero, so a graph may be
   replayed forever, and launches of any operations and descriptors may share one as long as they do
   not run at the same time: one per stream. Two launches that do, a launch that was aborted, memory
   that was never zeroed: each block also adds its number, so that the last one sees (but for bad
   luck) whether the blocks of one launch have arrived, and if not sets BAD_TICKET; then the ticket
   has to be zeroed again. The tickets of scratch memory are its first SPECV_TICKET_BYTES; the rest
   of it needs no preparation. Beyond SPECV_TICKET_ROWS rows a row has one block, and none. */
#define SPECV_TICKET_ROWS 1024

#define SPECV_TICKET_BYTES (8 * SPECV_TICKET_ROWS)

/* Some operations change state that all their blocks read: the last block to have read it writes
   it. Their ticket is one word, see SPECV_TICKET_BYTES. With BAD_TICKET that state stays as it is.
   The bit is set in each live row (B3), each job (D3), or one row at least, live or not (C1, C2,
   C4, which says -1 groups, too). In D3 entries and owners of pages have moved by then: begin the
   caches anew, and zero all of its scratch. Of two launches at once perhaps only one is told. */

#define SPECV_PIECE_BYTES 2048 /* what a warp copies at a time: 4 x 16 bytes per lane */

/* ================================================================================ >>numeric

   Arithmetic with the same bits on the host and on every GPU, under every compiler flag: each
   operation is rounded once, to nearest, and nothing is flushed to zero, contracted or reordered.
   Device code says so in PTX, because --use_fast_math and its kin rewrite plain C. The host needs
   IEEE arithmetic (no -ffast-math, no x87). Call: any thread, host or device. */

/* What a launch says of element i of a status array, or null: stored, or added to what is there. */
SPECV_NUMFN void specv_i_put_status(uint32_t *array, int64_t i, uint32_t bits, int keep) {
    if (array) array[i] = keep ? array[i] | bits : bits;
}

SPECV_NUMFN uint32_t specv_float_bits(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    union {
        float f;
        uint32_t u;
    } both;
    both.f = x;
    return both.u;
#endif
}

SPECV_NUMFN float specv_bits_float(uint32_t x) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(x);
#else
    union {
        uint32_t u;
        float f;
    } both;
    both.u = x;
    return both.f;
#endif
}

/* Declares result, the rounded value of one host operation. The compiler loses sight of it for a
   moment, in a register where it can be told so, in memory elsewhere: it cannot contract it with
   what follows, reorder the two or keep more bits than the type has. */
#if defined(__GNUC__) && defined(__SSE2_MATH__)
#define SPECV_I_ROUNDED(type, value)                                                               \
    type result = value;                                                                           \
    __asm__("" : "+x"(result))
#elif defined(__GNUC__) && defined(__aarch64__)
#define SPECV_I_ROUNDED(type, value)                                                               \
    type result = value;                                                                           \
    __asm__("" : "+w"(result))
#else
#define SPECV_I_ROUNDED(type, value) volatile type result = value
#endif

/* a * b + c, rounded once. Where the host has no such instruction: the product is exact in double,
   and the sum is rounded to odd there, so that the second rounding cannot go wrong (Boldo and
   Melquiond 2008). */
SPECV_NUMFN float specv_fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
    return result;
#elif defined(__FP_FAST_FMAF) || defined(__FMA__) /* clang has no name for the first */
    return __builtin_fmaf(a, b, c);
#else
    union {
        double d;
        uint64_t u;
    } sum;
    double product = (double)a * (double)b, addend = c, back, error;
    sum.d = product + addend;
    back = sum.d - product;
    error = (product - (sum.d - back)) + (addend - back);
    if ((error < 0 || error > 0) && !(sum.u & 1))
        sum.u = (error > 0) == (sum.d > 0) ? sum.u + 1 : sum.u - 1;
    return (float)sum.d;
#endif
}

SPECV_NUMFN float specv_i_add(float a, float b) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#else
    SPECV_I_ROUNDED(float, a + b);
#endif
    return result;
}

SPECV_NUMFN float specv_i_subtract(float a, float b) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#else
    SPECV_I_ROUNDED(float, a - b);
#endif
    return result;
}

SPECV_NUMFN float specv_i_mul(float a, float b) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#else
    SPECV_I_ROUNDED(float, (a * b));
#endif
    return result;
}

SPECV_NUMFN float specv_i_div(float a, float b) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#else
    SPECV_I_ROUNDED(float, a / b);
#endif
    return result;
}

SPECV_NUMFN float specv_i_negate(float a) {
    return specv_bits_float(specv_float_bits(a) ^ 0x80000000u);
}

/* The few doubles: a normalizer and a logarithm per row. */
SPECV_NUMFN double specv_i_double(float a) {
#if defined(__CUDA_ARCH__)
    double result;
    asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(a));
    return result;
#else
    return (double)a;
#endif
}

SPECV_NUMFN float specv_i_float(double a) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(a));
#else
    SPECV_I_ROUNDED(float, (float)a);
#endif
    return result;
}

SPECV_NUMFN double specv_i_add_double(double a, double b) {
#if defined(__CUDA_ARCH__)
    double result;
    asm("add.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
#else
    SPECV_I_ROUNDED(double, a + b);
#endif
    return result;
}

/* The larger one; a NaN loses. Of two zeros either. */
SPECV_NUMFN float specv_i_max(float a, float b) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
#else
    return a > b || b != b ? a : b;
#endif
}

/* Plain comparisons would get .ftz under fast math; a NaN is not less than anything. */
SPECV_NUMFN int specv_i_less(float a, float b) {
#if defined(__CUDA_ARCH__)
    int result;
    asm("{\n\t.reg .pred p;\n\tsetp.lt.f32 p, %1, %2;\n\tselp.s32 %0, 1, 0, p;\n\t}"
        : "=r"(result)
        : "f"(a), "f"(b));
    return result;
#else
    return a < b;
#endif
}

SPECV_NUMFN int specv_i_is_nan(float a) {
    return (specv_float_bits(a) & 0x7fffffffu) > 0x7f800000u;
}

/* Is one of them? One instruction on a GPU. */
SPECV_NUMFN int specv_i_either_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
    int either;
    asm("{\n\t.reg .pred p;\n\tsetp.nan.f32 p, %1, %2;\n\tselp.s32 %0, 1, 0, p;\n\t}"
        : "=r"(either)
        : "f"(a), "f"(b));
    return either;
#else
    return specv_i_is_nan(a) | specv_i_is_nan(b);
#endif
}

/* x >> count for any count: 0 from 64 on. */
SPECV_NUMFN uint64_t specv_i_shift_right(uint64_t x, uint32_t count) {
#if defined(__CUDA_ARCH__)
    uint64_t result;
    asm("shr.u64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(count));
    return result;
#else
    return count < 64 ? x >> count : 0;
#endif
}

/* floor(a * b / 2^64) */
SPECV_NUMFN uint64_t specv_i_mul_high(uint64_t a, uint64_t b) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Half-precision codes. Every code, subnormals, infinities and NaN included, has a float. */
SPECV_NUMFN float specv_bf16_float(uint32_t code) {
    return specv_bits_float((code & 0xffffu) << 16);
}

SPECV_NUMFN float specv_f16_float(uint32_t code) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("{\n\t.reg .b16 h;\n\tcvt.u16.u32 h, %1;\n\tcvt.f32.f16 %0, h;\n\t}"
        : "=f"(result)
        : "r"(code));
    return result;
#else
    uint32_t sign = (code & 0x8000u) << 16, rest = code & 0x7fffu;
    if (rest >= 0x7c00u) return specv_bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u) return specv_bits_float(sign | ((rest << 13) + (112u << 23)));
    return specv_bits_float(sign | specv_float_bits((float)rest * 5.9604644775390625e-8f));
#endif
}

/* ---- random numbers

   Philox4x32-10 (Salmon et al. 2011): a bijection of a 128-bit counter under a 64-bit key, no
   state. The key is the request's seed; the counter says what the number is for, so that no two
   uses ever meet. Pinned by the known answers of Random123. */
typedef struct specv_random {
    uint32_t x[4];
} specv_random;

/* Both halves of a product: as 64-bit numbers, compilers would mask and shift them round after
   round. */
SPECV_NUMFN void specv_i_mul_wide(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low) {
#if defined(__CUDA_ARCH__)
    asm("{ .reg .b64 t; mul.wide.u32 t, %2, %3; mov.b64 {%0, %1}, t; }"
        : "=r"(*low), "=r"(*high)
        : "r"(a), "r"(b));
#else
    const uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32), *low = (uint32_t)product;
#endif
}

SPECV_NUMFN specv_random specv_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                      uint32_t c3) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    specv_random r;
    for (int round = 0; round < 10; ++round) {
        uint32_t high[2], low[2];
        specv_i_mul_wide(0xD2511F53u, c0, &high[0], &low[0]);
        specv_i_mul_wide(0xCD9E8D57u, c2, &high[1], &low[1]);
        c0 = high[1] ^ (c1 ^ k0), c1 = low[1];
        c2 = high[0] ^ (c3 ^ k1), c3 = low[0];
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    r.x[0] = c0, r.x[1] = c1, r.x[2] = c2, r.x[3] = c3;
    return r;
}

/* In [0, 1), on a grid of 2^-24. */
SPECV_NUMFN float specv_uniform24(uint32_t random) {
    return specv_i_mul((float)(random >> 8), 5.9604644775390625e-8f);
}

/* In [0, 1) for an accept test: 24 bits of the first word. Where they are all 0, those of the next
   word go on behind them, and so on: a token of probability 1e-12 would otherwise be accepted
   whenever they are, 6e-8 of the time. */
SPECV_NUMFN float specv_uniform(const specv_random *random) {
    float unit = 1.f, u = 0.f;
    for (int word = 0; word < 4; ++word) {
        u = specv_i_mul(specv_uniform24(random->x[word]), unit);
        if (random->x[word] >> 8) break;
        unit = specv_i_mul(unit, 5.9604644775390625e-8f);
    }
    return u;
}

/* Is a caller's uniform one? */
SPECV_NUMFN int specv_uniform_ok(float u) {
    uint32_t bits = specv_float_bits(u);
    return bits < 0x3f800000u || bits == 0x80000000u; /* -0 is 0 */
}

/* A caller's uniform, with what counts in place of one that is none; that is reported. */
SPECV_NUMFN float specv_i_clean_uniform(float u, uint32_t *status) {
    if (specv_uniform_ok(u)) return u;
    *status |= SPECV_ROW_BAD_UNIFORM;
    return 0.999999940395355224609375f; /* 1 - 2^-24 */
}

/* A caller's uniform as 64 bits after the point: floor(u * 2^64); outside [0, 1) all ones. */
SPECV_NUMFN uint64_t specv_uniform_bits(float u) {
    uint32_t bits = specv_float_bits(u);
    uint64_t mantissa = (uint64_t)((bits & 0x7fffffu) | 0x800000u) << 40;
    if (!specv_uniform_ok(u)) return ~(uint64_t)0;
    return bits >> 31 ? 0 : specv_i_shift_right(mantissa, 126 - (bits >> 23));
}

/* The accept test of Leviathan et al. without the division: no number of [0, 1) on the 24-bit grid
   fails it for p = q > 2^-126 or passes it for p = 0; a NaN rejects. */
SPECV_NUMFN int specv_accept(float u, float q, float p) {
    return specv_i_less(specv_i_mul(u, q), p);
}

/* ---- softmax in integers

   With c = log2(e) / T, the weight of a logit is 2^(logit * c), taken apart as 2^n * 2^f with n
   the nearest integer and |f| <= 1/2 (0.53 at the ends of the range). c is a pair of floats: with
   one alone, the error of f would grow with the logit. 2^f is a polynomial whose last step leaves
   an integer of 24 bits, the mantissa; weights are that integer shifted to where 2^n of the largest
   logit has 40 bits after the point. Their sums are integers: order and grouping cannot matter.

   How far the law of a draw can be from softmax, in total variation, whatever the row (V to 2^22):
   - 2^f as an integer is within 1.374e-7 of itself (all f were tried), f within 2^-24.2 of what it
     should be: a weight is off by a factor within 1.74e-7 of 1, the law by less than half of that,
     as is half the mean deviation of such factors;
   - an id loses less than 2^-40 of its tile's largest weight, the tile at most 1023 * 2^-39.4;
   - a tile loses less than a unit of the row, which has at least 2^39.4: 4096 * 2^-39.4 together;
   - a draw has 64 bits. Sum: 8.7e-8 + 1.5e-9 + 5.7e-9, below 1e-7. Probabilities: 2^-28 + 2^-28.
   An accept test and the residual behind it are off by at most the sums of |p' - p| and |q' - q|,
   below 2.4e-7 each, and 2^-24 each for the grid of u and for u * q: below 6e-7. Gumbel scores are
   off by less than 10 * 2^-24 octaves, their argmax by less than 4.2e-7. So 6e-7 holds for all. */
typedef struct specv_scale {
    float hi, lo;     /* c */
    float floor;      /* logits below, and NaN, are raised to this: their weight is 0 */
    int32_t of_probs; /* 1 = scores are probabilities, and these the weights: c is not asked for */
} specv_scale;

/* Temperatures from 2^-13 to 2^13 are what they are, lower ones are 0, higher ones, negative ones
   and NaN are faults. */
SPECV_NUMFN int specv_temperature_ok(float temperature) {
    uint32_t bits = specv_float_bits(temperature);
    return bits <= 0x46000000u || bits == 0x80000000u; /* -0 is 0 */
}

SPECV_NUMFN int specv_temperature_is_0(float temperature) {
    return specv_float_bits(temperature) < 0x39000000u || !specv_temperature_ok(temperature) ||
           specv_float_bits(temperature) == 0x80000000u;
}

/* Of a temperature that is not 0. The remainder of the first division is exact, so that hi + lo has
   46 bits of log2(e) / T without a double, which few GPUs compute fast. */
SPECV_NUMFN specv_scale specv_softmax_scale(float temperature) {
    const float log2e = 1.44269502f, rest = 1.92596303e-8f;
    specv_scale s;
    s.hi = specv_i_div(log2e, temperature);
    s.lo = specv_i_div(specv_i_add(specv_fma(specv_i_negate(s.hi), temperature, log2e), rest),
                       temperature);
    s.floor = specv_i_div(-1048576.f, s.hi);
    s.of_probs = 0;
    return s;
}

/* Of probabilities that filters cut, so that they have to be weighed anew. */
SPECV_NUMFN specv_scale specv_i_probs_scale(void) {
    const specv_scale s = {1.f, 0.f, 0.f, 1};
    return s;
}

/* A probability as filters see it: what is 0, or as good as, is absent. */
SPECV_NUMFN float specv_i_weight_score(float p) {
    const uint32_t bits = specv_float_bits(p);
    if (bits > 0x40000000u && bits != 0x80000000u) return specv_bits_float(0x7fffffffu);
    return bits - 0x00800000u <= 0x3f800000u ? p : specv_bits_float(0xff800000u);
}

/* Is n of this logit, the largest of its row, a number that the format holds? |logit * c| <= 2^19;
   infinities and NaN are not. */
SPECV_NUMFN int specv_in_range(float logit, const specv_scale *s) {
    uint32_t bits = specv_float_bits(specv_i_mul(logit, s->hi)) & 0x7fffffffu;
    return bits <= 0x49000000u;
}

/* 1.5 * 2^23: added to a number, it rounds that to an integer, in its own low bits. */
#define SPECV_I_ROUNDER 12582912.0f

#define SPECV_I_ROUNDER_BITS 0x4B400000u

/* A weight as 2^(n - 23) * mantissa; f is log2 of mantissa / 2^23. */
typedef struct specv_weight {
    int32_t n;
    float f;
    uint32_t mantissa; /* below 2^24 */
} specv_weight;

/* w[i] = w[i] * f[i] + c */
SPECV_NUMFN void specv_i_horner(float *w, const float *f, int count, float c) {
    for (int i = 0; i < count; ++i) w[i] = specv_fma(w[i], f[i], c);
}

/* Of up to eight, step by step: no step waits for the one before. */
SPECV_NUMFN void specv_i_exp2_mantissas(uint32_t *mantissa, const float *f, int count) {
    float w[8];
    for (int i = 0; i < count;
         ++i) /* minimax on [-1/2, 1/2], relative error 2e-9 before rounding */
        w[i] = specv_fma(1287.93335f, f[i], 11239.791f);
    specv_i_horner(w, f, count, 80685.2969f);
    specv_i_horner(w, f, count, 465595.625f);
    specv_i_horner(w, f, count, 2015165.75f);
    specv_i_horner(w, f, count, 5814540.f);
    specv_i_horner(w, f, count, SPECV_I_ROUNDER); /* (2^f - 1) * 2^23, rounded to an integer */
    for (int i = 0; i < count; ++i)
        mantissa[i] = specv_float_bits(w[i]) - (SPECV_I_ROUNDER_BITS - 0x800000u);
}

SPECV_NUMFN uint32_t specv_i_exp2_mantissa(float f) {
    uint32_t mantissa;
    specv_i_exp2_mantissas(&mantissa, &f, 1);
    return mantissa;
}

/* log2(x) = *exponent + the result, which is in [-1/2, 1/2], within 1.3e-7 of itself. x must be a
   positive normal number. */
SPECV_NUMFN float specv_i_log2(float x, int32_t *exponent) {
    uint32_t bits =
        specv_float_bits(x) - 0x3f3504f3u; /* sqrt(1/2): mantissas from there to sqrt(2) */
    float s = specv_i_add(specv_bits_float((bits & 0x7fffffu) + 0x3f3504f3u), -1.f);
    float w = -0.109949417f; /* log2(1 + s) / s, relative error 4e-9 before rounding */
    w = specv_fma(w, s, 0.186174884f);
    w = specv_fma(w, s, -0.191062778f);
    w = specv_fma(w, s, 0.204600632f);
    w = specv_fma(w, s, -0.239617407f);
    w = specv_fma(w, s, 0.288567394f);
    w = specv_fma(w, s, -0.360696644f);
    w = specv_fma(w, s, 0.480898231f);
    w = specv_fma(w, s, -0.721347332f);
    w = specv_fma(w, s, 1.44269502f);
    *exponent = (int32_t)bits >> 23;
    return specv_i_mul(w, s);
}

/* specv_softmax_weight of up to eight logits. */
SPECV_NUMFN void specv_i_softmax_weights(specv_weight *w, const float *logit, int count,
                                         const specv_scale *s) {
    float x[8];
    uint32_t mantissa[8];
    for (int i = 0; i < count; ++i) x[i] = specv_fma(logit[i], s->hi, SPECV_I_ROUNDER);
    for (int i = 0; i < count; ++i)
        w[i].n = (int32_t)(specv_float_bits(x[i]) - SPECV_I_ROUNDER_BITS);
    for (int i = 0; i < count; ++i) x[i] = specv_i_subtract(SPECV_I_ROUNDER, x[i]); /* -n */
    for (int i = 0; i < count; ++i) x[i] = specv_fma(logit[i], s->hi, x[i]);
    for (int i = 0; i < count; ++i) x[i] = w[i].f = specv_fma(logit[i], s->lo, x[i]);
    if (s->of_probs)
        for (int i = 0; i < count; ++i) {
            w[i].n = -1048576, x[i] = w[i].f = 0; /* of 0: no weight */
            if (specv_float_bits(logit[i]) >= 0x00800000u)
                x[i] = w[i].f = specv_i_log2(logit[i], &w[i].n);
        }
    specv_i_exp2_mantissas(mantissa, x, count);
    for (int i = 0; i < count; ++i) w[i].mantissa = mantissa[i];
}

/* The logit must be at least s->floor (specv_i_max(logit, s->floor)). */
SPECV_NUMFN specv_weight specv_softmax_weight(float logit, const specv_scale *s) {
    specv_weight w;
    specv_i_softmax_weights(&w, &logit, 1, s);
    return w;
}

/* The weight in units of 2^(n_max - 40). */
SPECV_NUMFN uint64_t specv_weight_units(const specv_weight *w, int32_t n_max) {
    /* mantissa * 2^17 >> (n_max - n), with a first shift that moves a word and costs nothing */
    return specv_i_shift_right((uint64_t)w->mantissa << 32, (uint32_t)(n_max - w->n) + 15);
}

/* The weight as a float, relative to 2^(n_max - 23); below 2^(n_max - 100) it is 0. */
SPECV_NUMFN float specv_weight_float(const specv_weight *w, int32_t n_max) {
    int32_t below = n_max - w->n;
    float mantissa = specv_bits_float(w->mantissa + (SPECV_I_ROUNDER_BITS - 0x800000u));
    mantissa = specv_i_add(mantissa, 8388608.f - SPECV_I_ROUNDER); /* exact, and no conversion */
    return below > 100 ? 0.f
                       : specv_i_mul(mantissa, specv_bits_float((uint32_t)(127 - below) << 23));
}

/* A probability in units of 2^-50, rounded down. 0 <= p < 4. */
SPECV_NUMFN uint64_t specv_fixed50(float p) {
    uint32_t bits = specv_float_bits(p);
    uint64_t mantissa = (uint64_t)(bits << 8 | 0x80000000u) << 32;
    return specv_i_shift_right(mantissa, 140 - (bits >> 23));
}

/* Bits of floats other than NaN as integers in the same order, 0 and -0 alike; and back. */
SPECV_NUMFN int32_t specv_i_order_key(uint32_t bits) {
    const int32_t sign = (int32_t)bits >> 31;
    return ((int32_t)(bits & 0x7fffffffu) ^ sign) - sign;
}

SPECV_NUMFN float specv_i_of_order_key(int32_t key) {
    const uint32_t sign = key < 0 ? 0x80000000u : 0;
    return specv_bits_float((uint32_t)(key < 0 ? -key : key) | sign);
}

/* Ids in the order in which filters keep them, as integers: the greater, the sooner. By score, and
   of equal scores the lowest id first. The score is not NaN, 0 <= id < 2^22. */
SPECV_NUMFN uint64_t specv_rank_key(float score, int32_t id) {
    const uint32_t key = (uint32_t)specv_i_order_key(specv_float_bits(score)) ^ 0x80000000u;
    return (uint64_t)key << 22 | (uint32_t)(0x3fffff - id);
}

/* The smallest of a score that is not -inf. */
#define SPECV_I_LEAST_RANK ((uint64_t)0x00800001u << 22)

SPECV_NUMFN int32_t specv_i_id_of_rank_key(uint64_t key) {
    return 0x3fffff - (int32_t)((uint32_t)key & 0x3fffffu);
}

SPECV_NUMFN float specv_i_score_of_rank_key(uint64_t key) {
    return specv_i_of_order_key((int32_t)((uint32_t)(key >> 22) ^ 0x80000000u));
}

/* 2^x for |x| < 126, within 2e-7 of it. */
SPECV_NUMFN float specv_exp2(float x) {
    specv_scale one = {1.f, 0.f, 0.f, 0};
    specv_weight w = specv_softmax_weight(x, &one);
    float mantissa = specv_i_mul(specv_weight_float(&w, w.n), 1.1920928955078125e-7f);
    return specv_i_mul(mantissa, specv_bits_float((uint32_t)(127 + w.n) << 23));
}

SPECV_NUMFN float specv_log2(float x) {
    int32_t exponent;
    float fraction = specv_i_log2(x, &exponent);
    return specv_i_add((float)exponent, fraction);
}

/* rint(x * 2^24) for |x| < 64 */
SPECV_NUMFN int32_t specv_i_fixed24(float x) {
#if defined(__CUDA_ARCH__)
    int32_t result;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(result) : "f"(specv_i_mul(x, 16777216.f)));
    return result;
#else
    const double rounder = 6755399441055744.; /* 1.5 * 2^52 */
    double rounded = specv_i_add_double(specv_i_double(specv_i_mul(x, 16777216.f)), rounder);
    return (int32_t)specv_i_add_double(rounded, -rounder);
#endif
}

/* Standard Gumbel noise in base 2, -log2(-ln(1 - v)), with 24 bits after the point. v = (random +
   1/2) / 2^32; where random is below 256 it has the 32 bits of `finer` behind those of random, so
   that an id whose chance to win is 2^-50 wins as often. Small v, which win, keep all their bits;
   the largest value is 65. */
SPECV_NUMFN int32_t specv_gumbel24(uint32_t random, uint32_t finer) {
    int32_t exponent;
    float loss, fraction;       /* loss: -log2(1 - v) */
    if (random < 0x4afb0ccdu) { /* v < 1 - sqrt(1/2): 1 - v would lose what v has */
        uint64_t twice = 2 * (uint64_t)random + 1; /* v * 2^33 */
        float v, w = 0.109949417f, unit = 1.16415321826934814453125e-10f;
        if (random < 256)
            twice = 2 * ((uint64_t)random << 32 | finer) + 1, unit = 2.710505431213761e-20f;
        v = specv_i_mul((float)twice, unit);
        w = specv_fma(w, v, 0.186174884f);
        w = specv_fma(w, v, 0.191062778f);
        w = specv_fma(w, v, 0.204600632f);
        w = specv_fma(w, v, 0.239617407f);
        w = specv_fma(w, v, 0.288567394f);
        w = specv_fma(w, v, 0.360696644f);
        w = specv_fma(w, v, 0.480898231f);
        w = specv_fma(w, v, 0.721347332f);
        w = specv_fma(w, v, 1.44269502f);
        loss = specv_i_mul(w, v);
    } else {
        uint64_t twice = ((uint64_t)1 << 33) - (2 * (uint64_t)random + 1); /* (1 - v) * 2^33 */
        fraction = specv_i_log2((float)twice, &exponent);
        loss = specv_i_add((float)(33 - exponent), specv_i_negate(fraction));
    }
    fraction = specv_i_log2(loss, &exponent);
    return 8871228 - (int32_t)((uint32_t)exponent << 24) - specv_i_fixed24(fraction);
}

/* ln of a number whose log2 is whole + fraction - minus. */
SPECV_NUMFN float specv_i_ln(int32_t whole, float fraction, double minus) {
    double log2 = specv_i_add_double((double)whole, specv_i_double(fraction));
    log2 = specv_i_add_double(log2, -minus);
#if defined(__CUDA_ARCH__)
    double result;
    asm("mul.rn.f64 %0, %1, 0d3FE62E42FEFA39EF;" : "=d"(result) : "d"(log2));
    return specv_i_float(result);
#else
    return specv_i_float(log2 * 0.69314718055994531);
#endif
}

SPECV_NUMFN double specv_i_mul_double(double a, double b) {
#if defined(__CUDA_ARCH__)
    double result;
    asm("mul.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
#else
    SPECV_I_ROUNDED(double, (a * b));
#endif
    return result;
}

SPECV_NUMFN double specv_i_div_double(double a, double b) {
#if defined(__CUDA_ARCH__)
    double result;
    asm("div.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
#else
    SPECV_I_ROUNDED(double, a / b);
#endif
    return result;
}

SPECV_NUMFN uint64_t specv_i_double_bits(double x) {
#if defined(__CUDA_ARCH__)
    return (uint64_t)__double_as_longlong(x);
#else
    union {
        double d;
        uint64_t u;
    } both;
    both.d = x;
    return both.u;
#endif
}

SPECV_NUMFN double specv_i_bits_double(uint64_t x) {
#if defined(__CUDA_ARCH__)
    return __longlong_as_double((long long)x);
#else
    union {
        uint64_t u;
        double d;
    } both;
    both.u = x;
    return both.d;
#endif
}

/* ---- division by a number that is known early

   Its inverse costs a division, before anything else is known; what then waits for lengths takes
   five instructions instead of twenty. */
typedef struct specv_i_divisor {
    uint32_t by, inverse;
} specv_i_divisor;

SPECV_NUMFN specv_i_divisor specv_i_divisor_of(uint32_t by) {
    specv_i_divisor d;
    d.by = by, d.inverse = 0xffffffffu / by; /* so a quotient is right, or 1 too small */
    return d;
}

SPECV_NUMFN uint64_t specv_i_divide(uint64_t n, specv_i_divisor d, uint32_t *rest) {
    const uint32_t low = (uint32_t)n;
    uint32_t quotient, fraction;
    specv_i_mul_wide(low, d.inverse, &quotient, &fraction);
    *rest = low - quotient * d.by;
    if (n >> 32) {
        *rest = (uint32_t)(n % d.by);
        return n / d.by;
    }
    if (*rest >= d.by) *rest -= d.by, ++quotient;
    return quotient;
}

/* ================================================================================== >>checks

   Host functions that know no operation. SPECV_CHECK returns from a validator; the checks of a
   descriptor are in the order of its fields. */

#if !defined(__CUDACC_RTC__)

/* Text of a status code; of positive codes (cudaError_t) only that they are one. Never null. */
SPECV_HOSTAPI const char *specv_status_string(int status) {
    switch (status) {
#define SPECV_I_CASE(name, value, text)                                                            \
    case value: return "SPECV_" #name ": " text;
        SPECV_STATUS_TABLE(SPECV_I_CASE)
#undef SPECV_I_CASE
    default:
        return status > 0 ? "a CUDA runtime error: see cudaGetErrorString"
                          : "not a status code of specverify";
    }
}

SPECV_HOSTFN int specv_i_aligned(const void *p, size_t bytes) {
    return ((size_t)p & (bytes - 1)) == 0;
}

/* Is count * stride + extra representable? All arguments >= 0. */
SPECV_HOSTFN int specv_i_fits(int64_t count, int64_t stride, int64_t extra) {
    return count == 0 || stride <= (INT64_MAX - extra) / count;
}

#define SPECV_CHECK(condition, code)                                                               \
    do {                                                                                           \
        if (!(condition)) return SPECV_ERR_##code;                                                 \
    } while (0)

SPECV_HOSTFN int specv_i_slot_validate(const void *slot, int32_t slot_dtype, int32_t num_slots) {
    SPECV_CHECK(slot_dtype == SPECV_I32 || slot_dtype == SPECV_I64, SLOT);
    SPECV_CHECK(specv_i_aligned(slot, slot_dtype == SPECV_I64 ? 8 : 4), SLOT);
    SPECV_CHECK(!slot || num_slots > 0, SLOT);
    return SPECV_OK;
}

/* What every descriptor has. */
#define SPECV_I_CHECK_DESC(d)                                                                      \
    do {                                                                                           \
        SPECV_CHECK(d, NULL_DESC);                                                                 \
        SPECV_CHECK((d)->canary0 == 0 && (d)->canary1 == 0, CANARY);                               \
        SPECV_CHECK((d)->chained >= 0 && (d)->chained <= 3, CHAINED);                              \
    } while (0)

#define SPECV_I_CHECK_STATUS(d, array)                                                             \
    do {                                                                                           \
        SPECV_CHECK(specv_i_aligned((d)->array, 4), ROW_STATUS);                                   \
        SPECV_CHECK((d)->keep_status == 0 || (d)->keep_status == 1, KEEP_STATUS);                  \
    } while (0)
/* Entries of a per-request array; an empty batch needs none. */
SPECV_HOSTFN int32_t specv_i_num_slots(const void *slot, int32_t num_slots, int32_t batch) {
    return slot && batch > 0 ? num_slots : batch;
}

SPECV_HOSTFN int specv_i_rows_validate(const specv_rows *r) {
    SPECV_CHECK(r->batch >= 0, BATCH);
    SPECV_CHECK(r->max_draft >= 0, MAX_DRAFT);
    SPECV_CHECK((int64_t)r->batch * ((int64_t)r->max_draft + 1) <= INT64_C(1) << 30, TOO_LARGE);
    SPECV_CHECK(!r->draft_len + !r->row_start + !r->row_end >= 2, LAYOUT);
    SPECV_CHECK(specv_i_aligned(r->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(r->draft_len, 4), DRAFT_LEN);
    SPECV_CHECK(specv_i_aligned(r->row_start, 4) && specv_i_aligned(r->row_end, 4), ROW_START);
    SPECV_CHECK(r->num_draft_tokens >= 0, NUM_DRAFT_TOKENS);
    SPECV_CHECK(r->num_draft_tokens <= (specv_i_is_csr(r) ? (int64_t)r->batch * r->max_draft : 0),
                NUM_DRAFT_TOKENS);
    return specv_i_slot_validate(r->slot, r->slot_dtype, r->num_slots);
}

/* a * b; what would be too large to be added to a few of its kind becomes SPECV_I_HUGE. Strides
   that nothing uses may be below 0: then 0. */
#define SPECV_I_HUGE (INT64_MAX / 8)

SPECV_HOSTFN int64_t specv_i_times(int64_t a, int64_t b) {
    if (a <= 0 || b <= 0) return 0;
    return b > SPECV_I_HUGE / a ? SPECV_I_HUGE : a * b;
}

/* All launchers: host; enqueue on `stream` and return. 0, a negative SPECV_ERR_*, or a positive
   cudaError_t of the launch itself. d is copied before the call returns; what it points to must
   live until the stream is done with it. Scratch memory and tickets are the caller's. */
#if SPECV_I_LAUNCHERS
/* SPECVERIFY_VERSION of the implementation that was linked. */
SPECV_LAUNCHER int specv_version(void) SPECV_AS(specv_version);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* =================================================================================== >>lane */

SPECV_DEVFN int specv_i_thread(void) {
    const int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    __builtin_assume(thread >= 0 && thread < 1024); /* so that / 32 is a shift */
    return thread;
}

/* Not %laneid by inline assembly: the compiler takes what that returns for the same in all lanes
   and may then split a loop by it, one copy of a collective for lane 0 and one for the rest. */
SPECV_DEVFN int specv_i_lane(void) { return specv_i_thread() & 31; }

SPECV_DEVFN int specv_i_num_threads(void) { return (int)(blockDim.x * blockDim.y * blockDim.z); }

/* Programmatic dependent launch. Every kernel calls it before it touches memory: lets the next
   kernel's blocks start early if `chained` says so, then waits for the previous kernel's results.
   The first does nothing where the next is launched the ordinary way, the second where this one
   is. Blocks of the kit's kernels are one-dimensional, whoever launches them. */
SPECV_DEVFN void specv_i_begin(int chained) {
    __builtin_assume(threadIdx.y == 0);
    __builtin_assume(threadIdx.z == 0);
#if __CUDA_ARCH__ >= 900
    if (chained & SPECV_CHAINED_BEFORE)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#else
    (void)chained;
#endif
}

/* Tokens are loaded raw and widened when they are used, and the dtype is a constant where several
   are loaded: a sign extension or a branch next to each load would make the next load wait. */
SPECV_DEVFN void specv_i_load_token(uint2 *raw, const void *tokens, int dtype, int64_t index) {
    if (dtype == SPECV_I64)
        *raw = ((const uint2 *)tokens)[index];
    else
        raw->x = ((const uint32_t *)tokens)[index];
}

/* The same if i < count, without a branch: the next load issues at once. Tokens of a descriptor are
   in device memory; those of which nothing is said (anywhere) may be in shared memory as well. */
SPECV_DEVFN void specv_i_load_token_below(int i, int count, int anywhere, uint2 *raw,
                                          const void *tokens, int dtype, int64_t index) {
    const uint2 *two = (const uint2 *)tokens + index;
    const uint32_t *one = (const uint32_t *)tokens + index;
    if (dtype == SPECV_I64 && anywhere)
        asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p ld.v2.u32 {%0, %1}, [%4]; }"
                     : "+r"(raw->x), "+r"(raw->y)
                     : "r"(i), "r"(count), "l"(two));
    else if (dtype == SPECV_I64)
        asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p ld.global.v2.u32 {%0, %1}, [%4]; }"
                     : "+r"(raw->x), "+r"(raw->y)
                     : "r"(i), "r"(count), "l"(two));
    else if (anywhere)
        asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, %2; @p ld.u32 %0, [%3]; }"
                     : "+r"(raw->x)
                     : "r"(i), "r"(count), "l"(one));
    else
        asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, %2; @p ld.global.u32 %0, [%3]; }"
                     : "+r"(raw->x)
                     : "r"(i), "r"(count), "l"(one));
}

/* word = array[index] if there is an array: without a branch, too. */
SPECV_DEVFN void specv_i_load_given(int32_t *word, const int32_t *array, int64_t index) {
    asm volatile("{ .reg .pred p; setp.ne.s64 p, %1, 0; @p ld.global.u32 %0, [%2]; }"
                 : "+r"(*word)
                 : "l"(array), "l"(array + index));
}

/* `value` is computed before the loads and barriers that follow are waited for, not where it is
   used. */
#define SPECV_I_EARLY(constraint, value) asm volatile("" : "+" constraint(value))

SPECV_DEVFN int64_t specv_i_token(uint2 raw, int dtype) {
    if (dtype == SPECV_I64) return (int64_t)((uint64_t)raw.y << 32 | raw.x);
    return (int32_t)raw.x;
}

SPECV_DEVFN int64_t specv_i_one_token(const void *tokens, int dtype, int64_t index) {
    return dtype == SPECV_I64 ? ((const int64_t *)tokens)[index] : ((const int32_t *)tokens)[index];
}

SPECV_DEVFN void specv_i_store_token(void *tokens, int dtype, int64_t index, int64_t token) {
    if (dtype == SPECV_I64)
        ((int64_t *)tokens)[index] = token;
    else
        ((int32_t *)tokens)[index] = (int32_t)token;
}

/* Is it an id? vocab 0 means that only the sign can be checked. */
SPECV_DEVFN int specv_i_is_token(int64_t token, int64_t vocab) {
    return token >= 0 && (vocab == 0 || token < vocab);
}

SPECV_DEVFN int specv_i_is_one_of(const int64_t *ids, int count, int64_t token) {
    int found = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) found |= token == ids[i];
    return found;
}

/* The largest i in low..high-1 with offsets[i] <= position; offsets[low] must be. */
SPECV_DEVFN int specv_i_find_row(const int32_t *offsets, int low, int high, int64_t position) {
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (offsets[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The largest i in 0..num_rows with offsets[i] <= position: the row that holds packed position
   `position`, or num_rows if it lies behind the last.
   Call: any thread. In: offsets[0..num_rows] ascending, offsets[0] <= position; any memory.
   Cost: ceil(log2(num_rows + 1)) dependent loads. */
SPECV_DEVFN int specv_thread_find_row(const int32_t *offsets, int num_rows, int64_t position) {
    return specv_i_find_row(offsets, 0, num_rows + 1, position);
}

/* CSR: index of a row's first draft; of row `batch`, the end of the last. Call: any thread. */
SPECV_DEVFN int32_t specv_i_row_first(const specv_rows *rows, int64_t row) {
    if (rows->row_start) return rows->row_start[row];
    return row > 0 ? rows->row_end[row - 1] : 0;
}

/* What the batch says of one row. Call: any thread; 0 <= row < batch. Lengths are loaded beside
   num_active, not after it: one round trip instead of two. */
typedef struct specv_row {
    int32_t first;    /* CSR: index of the first draft; dense: 0 */
    int32_t n_draft;  /* drafts that may be read; 0 if the row is inert or its length is bad */
    int32_t live;     /* it is below num_active */
    int32_t readable; /* the row's target tokens may be read */
    uint32_t status;
} specv_row;

/* Of a dense batch, by loads without a branch between them. */
SPECV_DEVFN specv_row specv_i_load_dense_row(const specv_rows *rows, int row) {
    specv_row r;
    int in_range, num_active = rows->batch;
    r.first = 0, r.n_draft = rows->max_draft;
    specv_i_load_given(&r.n_draft, rows->draft_len, row);
    specv_i_load_given(&num_active, rows->num_active, 0);
    in_range = (unsigned)r.n_draft <= (unsigned)rows->max_draft;
    r.live = r.readable = row < num_active;
    r.status = r.live && !in_range ? SPECV_ROW_BAD_LENGTH : 0;
    if (!r.live || !in_range) r.n_draft = 0;
    return r;
}

SPECV_DEVFN specv_row specv_thread_load_row(const specv_rows *rows, int row) {
    specv_row r;
    int32_t end;
    int in_range, num_active;
    if (!specv_i_is_csr(rows)) return specv_i_load_dense_row(rows, row);
    num_active = rows->num_active ? *rows->num_active : rows->batch;
    r.first = specv_i_row_first(rows, row), end = specv_i_row_first(rows, (int64_t)row + 1);
    in_range = r.first >= 0 && end >= r.first && end <= rows->num_draft_tokens;
    r.n_draft = in_range ? end - r.first : 0;
    in_range = in_range && r.n_draft <= rows->max_draft;
    r.live = row < num_active;
    r.readable = r.live && in_range;
    r.status = r.live && !in_range ? SPECV_ROW_BAD_LENGTH : 0;
    if (!r.readable) r.n_draft = 0;
    return r;
}

/* slot[row], or its low word, which is all that a good one has. Call: any thread. */
SPECV_DEVFN int32_t specv_i_slot_word(const void *slot, int32_t slot_dtype, int64_t row) {
    return ((const int32_t *)slot)[row * (1 + slot_dtype)];
}

/* Is slot[row] this good slot? */
SPECV_DEVFN int specv_i_has_slot(const void *slot, int32_t slot_dtype, int64_t row, int32_t mine) {
    if (specv_i_slot_word(slot, slot_dtype, row) != mine) return 0;
    return slot_dtype != SPECV_I64 || ((const int32_t *)slot)[2 * row + 1] == 0;
}

/* Of a row whose slot was found good. Call: any thread. */
SPECV_DEVFN int32_t specv_i_good_slot(const void *slot, int32_t slot_dtype, int32_t row) {
    return slot ? specv_i_slot_word(slot, slot_dtype, row) : row;
}

/* The slot of a live row: the row itself where slot is null; -1, and BAD_SLOT is added to *status,
   if slot[row] is outside 0..num_slots-1. For operations that only read the request's values.
   Call: any thread. Cost: one load, or none. */
SPECV_DEVFN int32_t specv_thread_slot(const void *slot, int32_t slot_dtype, int32_t num_slots,
                                      int64_t row, uint32_t *status) {
    int32_t mine;
    if (!slot) return (int32_t)row;
    const int32_t *at = (const int32_t *)slot + row * (1 + slot_dtype);
    mine = at[0];
    if (slot_dtype && at[1]) mine = -1;
    if (mine >= 0 && mine < num_slots) return mine;
    *status |= SPECV_ROW_BAD_SLOT;
    return -1;
}

/* The same for operations that write state of the request, in a thread per row: bad, too, if an
   earlier row has the same slot. Call: any thread, with a live row (so are those before it). Cost:
   `row` loads more, several in flight, the same ones in neighbouring threads. */
SPECV_DEVFN int32_t specv_thread_own_slot(const void *slot, int32_t slot_dtype, int32_t num_slots,
                                          int64_t row, uint32_t *status) {
    const int32_t mine = specv_thread_slot(slot, slot_dtype, num_slots, row, status);
    int taken = 0;
    if (!slot || mine < 0) return mine;
#pragma unroll 8
    for (int64_t b = 0; b < row; ++b) taken |= specv_i_has_slot(slot, slot_dtype, b, mine);
    if (!taken) return mine;
    *status |= SPECV_ROW_BAD_SLOT;
    return -1;
}

/* =================================================================================== >>warp */

#define SPECV_FULL_WARP 0xffffffffu

/* Sum over lanes 0..own. Call: warp, value per lane; wraps like unsigned. Cost: 5 shuffles.
   Source: Hillis and Steele 1986. */
SPECV_DEVFN int32_t specv_warp_inclusive_scan(int32_t value) {
    int lane = specv_i_lane();
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        uint32_t below = __shfl_up_sync(SPECV_FULL_WARP, (uint32_t)value, (unsigned)distance);
        if (lane >= distance) value = (int32_t)((uint32_t)value + below);
    }
    return value;
}

/* Sum over lanes 0..own of values in lanes 0..count-1. Call: warp. */
SPECV_DEVFN uint32_t specv_i_short_scan(uint32_t value, uint32_t count) {
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        if (distance >= count) break;
        const uint32_t below = __shfl_up_sync(SPECV_FULL_WARP, value, distance);
        if (lane >= distance) value += below;
    }
    return value;
}

/* Sum over lanes 0..own-1 (0 in lane 0); *total, if not null, gets the sum over all lanes.
   Call: warp, value per lane. Cost: 5 shuffles, 6 with total. */
SPECV_DEVFN int32_t specv_warp_exclusive_scan(int32_t value, int32_t *total) {
    int32_t inclusive = specv_warp_inclusive_scan(value);
    if (total) *total = __shfl_sync(SPECV_FULL_WARP, inclusive, 31);
    return (int32_t)((uint32_t)inclusive - (uint32_t)value);
}

/* Sum (wraps like unsigned), minimum, maximum over all lanes, in all lanes. Call: warp, value per
   lane. Cost: one instruction from sm_80 on, else 5 shuffles. */
SPECV_DEVFN int32_t specv_warp_reduce_add(int32_t value) {
#if __CUDA_ARCH__ >= 800
    return (int32_t)__reduce_add_sync(SPECV_FULL_WARP, (uint32_t)value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = (int32_t)((uint32_t)value +
                          __shfl_xor_sync(SPECV_FULL_WARP, (uint32_t)value, distance));
    return value;
#endif
}

SPECV_DEVFN int32_t specv_warp_reduce_min(int32_t value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(SPECV_FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        int32_t other = __shfl_xor_sync(SPECV_FULL_WARP, value, distance);
        value = other < value ? other : value;
    }
    return value;
#endif
}

SPECV_DEVFN int32_t specv_warp_reduce_max(int32_t value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(SPECV_FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        int32_t other = __shfl_xor_sync(SPECV_FULL_WARP, value, distance);
        value = other > value ? other : value;
    }
    return value;
#endif
}

/* specv_thread_find_row by a warp: 32 rows per step instead of 2.
   Call: warp. In: offsets[0..num_rows-1] ascending, offsets[0] <= position; num_rows >= 1.
   Out: the largest i in 0..num_rows-1 with offsets[i] <= position.
   Cost: ceil(log32(num_rows)) dependent loads and ballots. */
SPECV_DEVFN int specv_warp_find_row(const int32_t *offsets, int num_rows, int64_t position) {
    int lane = specv_i_lane(), low = 0, count = num_rows; /* the row is in low..low+count-1 */
    while (count > 32) {
        int stride = (count + 31) / 32, probe = lane * stride;
        int below = probe < count && offsets[low + (probe < count ? probe : 0)] <= position;
        int last = (__popc(__ballot_sync(SPECV_FULL_WARP, below)) - 1) * stride;
        low += last;
        count = count - last < stride ? count - last : stride;
    }
    if (count == 1) return low;
    const int below = lane < count && offsets[low + lane] <= position;
    return low + __popc(__ballot_sync(SPECV_FULL_WARP, below)) - 1;
}

/* specv_thread_own_slot by a warp: for operations that write state of the request.
   Call: warp, with a live row. Cost: without slots nothing; else the row's slot, ceil(row / 32)
   loads a lane, several in flight, and one vote. */
SPECV_DEVFN int32_t specv_warp_slot(const void *slot, int32_t slot_dtype, int32_t num_slots,
                                    int64_t row, uint32_t *status) {
    const int32_t mine = specv_thread_slot(slot, slot_dtype, num_slots, row, status);
    int taken = 0;
    if (!slot || mine < 0) return mine;
#pragma unroll 4
    for (int64_t b = specv_i_lane(); b < row; b += 32)
        taken |= specv_i_has_slot(slot, slot_dtype, b, mine);
    if (!__any_sync(SPECV_FULL_WARP, taken)) return mine;
    *status |= SPECV_ROW_BAD_SLOT;
    return -1;
}

/* The widest unit that every address of a plane allows: at most 16 bytes. */
SPECV_NUMFN int specv_i_unit_bytes(uint64_t addresses) {
    unsigned bits = (unsigned)addresses | 16;
    return (int)(bits & (0u - bits));
}

/* One access of `width` bytes: 16, 8, 4, 2 or 1. With a constant width the switch folds. */
SPECV_DEVFN uint4 specv_i_load_unit(const void *p, int width) {
    uint4 v = {0, 0, 0, 0};
    switch (width) {
    case 16: v = *(const uint4 *)p; break;
    case 8: v.x = ((const uint2 *)p)->x, v.y = ((const uint2 *)p)->y; break;
    case 4: v.x = *(const uint32_t *)p; break;
    case 2: v.x = *(const unsigned short *)p; break;
    default: v.x = *(const uint8_t *)p; break;
    }
    return v;
}

SPECV_DEVFN void specv_i_store_unit(void *p, uint4 v, int width) {
    switch (width) {
    case 16: *(uint4 *)p = v; break;
    case 8: *(uint2 *)p = make_uint2(v.x, v.y); break;
    case 4: *(uint32_t *)p = v.x; break;
    case 2: *(unsigned short *)p = (unsigned short)v.x; break;
    default: *(uint8_t *)p = (uint8_t)v.x; break;
    }
}

/* 16 bytes of global memory, without a branch. */
SPECV_DEVFN void specv_i_load_16_if(int wanted, uint4 *v, const void *p) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %4, 0;"
                 " @p ld.global.v4.u32 {%0, %1, %2, %3}, [%5]; }"
                 : "=r"(v->x), "=r"(v->y), "=r"(v->z), "=r"(v->w)
                 : "r"(wanted), "l"(p)
                 : "memory");
}

SPECV_DEVFN void specv_i_store_16_if(int wanted, void *p, uint4 v) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;"
                 " @p st.global.v4.u32 [%1], {%2, %3, %4, %5}; }"
                 :
                 : "r"(wanted), "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* count units of `width` bytes, shared out over num_threads threads: 4 loads in flight in each,
   neighbouring threads on neighbouring units. */
SPECV_DEVFN void specv_i_copy_units(char *dst, const char *src, int64_t count, int width,
                                    int thread, int num_threads) {
    const int64_t step = (int64_t)num_threads * width;
    int64_t left = count - thread; /* > 0 while this thread has a unit to copy */
    dst += (int64_t)thread * width, src += (int64_t)thread * width;
#pragma unroll 1
    for (; left > 0; left -= 4 * (int64_t)num_threads, dst += 4 * step, src += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u)
            if (left > u * (int64_t)num_threads) v[u] = specv_i_load_unit(src + u * step, width);
#pragma unroll
        for (int u = 0; u < 4; ++u)
            if (left > u * (int64_t)num_threads) specv_i_store_unit(dst + u * step, v[u], width);
    }
}

/* The widest access that both addresses allow: bytes up to the first address that is a multiple
   of the width, whole units, the bytes that are left. */
SPECV_DEVFN void specv_i_copy(void *dst, const void *src, int64_t bytes, int thread,
                              int num_threads) {
    char *to = (char *)dst;
    const char *from = (const char *)src;
    unsigned differ = (unsigned)((uint64_t)to ^ (uint64_t)from);
    int width = (int)((differ | 16) & (0u - (differ | 16))); /* lowest set bit, at most 16 */
    int64_t head = (int64_t)((0 - (uint64_t)to) & (uint64_t)(width - 1)), units, tail;
    uint8_t first = 0, last = 0; /* loaded with the rest, so that nothing waits twice */
    if (head > bytes) head = bytes;
    units = (bytes - head) >> (__ffs(width) - 1);
    tail = (bytes - head) & (width - 1);
    if (thread < head) first = (uint8_t)from[thread];
    if (thread < tail) last = (uint8_t)from[bytes - tail + thread];
    if (width == 16)
        specv_i_copy_units(to + head, from + head, units, 16, thread, num_threads);
    else
        specv_i_copy_units(to + head, from + head, units, width, thread, num_threads);
    if (thread < head) to[thread] = (char)first;
    if (thread < tail) to[bytes - tail + thread] = (char)last;
}

/* Copies bytes. Call: warp. In: any alignment, any size >= 0, generic addresses (global, shared).
   Alias: must not overlap. Sync: none; __syncwarp (or more) before other lanes read dst.
   Cost: each byte read and written once, in 16-byte accesses when dst and src are equally
   misaligned modulo 16, else in the widest that both allow; 4 loads in flight per lane. */
SPECV_DEVFN void specv_warp_copy_kv(void *dst, const void *src, int64_t bytes) {
    specv_i_copy(dst, src, bytes, specv_i_lane(), 32);
}

/* A NaN wins. */
SPECV_DEVFN float specv_i_max_or_nan(float a, float b) {
    float result;
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#else
    result =
        specv_i_is_nan(a) | specv_i_is_nan(b) ? specv_bits_float(0x7fffffffu) : specv_i_max(a, b);
#endif
    return result;
}

SPECV_DEVFN float specv_i_warp_max(float value) {
    return specv_i_of_order_key(specv_warp_reduce_max(specv_i_order_key(specv_float_bits(value))));
}

/* Of bits that are nearly always 0. */
SPECV_DEVFN uint32_t specv_i_warp_or(uint32_t value) {
    if (!__any_sync(SPECV_FULL_WARP, value != 0)) return 0;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value |= __shfl_xor_sync(SPECV_FULL_WARP, value, distance);
    return value;
}

/* Sum over all lanes, below 2^64. By parts of 27 bits, of which none carries, from sm_80 on: three
   instructions. */
SPECV_DEVFN uint64_t specv_i_warp_add(uint64_t value) {
#if __CUDA_ARCH__ >= 800
    const uint32_t part = (1u << 27) - 1;
    const uint32_t low = __reduce_add_sync(SPECV_FULL_WARP, (uint32_t)value & part);
    const uint32_t middle = __reduce_add_sync(SPECV_FULL_WARP, (uint32_t)(value >> 27) & part);
    const uint32_t high = __reduce_add_sync(SPECV_FULL_WARP, (uint32_t)(value >> 54));
    return ((uint64_t)high << 54) + ((uint64_t)middle << 27) + low;
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(SPECV_FULL_WARP, value, distance);
    return value;
#endif
}

SPECV_DEVFN uint64_t specv_i_warp_inclusive_add(uint64_t value) {
    const int lane = specv_i_lane();
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        uint64_t below = __shfl_up_sync(SPECV_FULL_WARP, value, (unsigned)distance);
        if (lane >= distance) value += below;
    }
    return value;
}

/* ================================================================================== >>block */

/* Of an int32_t; NVRTC has no <stdint.h>. */
#define SPECV_I_INT_MAX 0x7fffffff

#define SPECV_BLOCK_SCAN_SMEM_WORDS 32

/* Sum over all threads before the own; *total gets the sum over the block, in every thread.
   Call: block, value per thread. Scratch: SPECV_BLOCK_SCAN_SMEM_WORDS words of shared memory.
   Sync: one barrier inside; put one between two calls that use the same scratch.
   Cost: 11 shuffles, one barrier. */
SPECV_DEVFN int32_t specv_block_exclusive_scan(int32_t value, int32_t *total, int32_t *scratch) {
    int lane = specv_i_lane(), warp = specv_i_thread() / 32, num_warps = specv_i_num_threads() / 32;
    int32_t of_warp, before = specv_warp_exclusive_scan(value, &of_warp);
    if (lane == 0) scratch[warp] = of_warp;
    __syncthreads();
    /* Every warp scans the warps' sums for itself: a second barrier would cost more. */
    of_warp = specv_warp_exclusive_scan(lane < num_warps ? scratch[lane] : 0, total);
    return before + __shfl_sync(SPECV_FULL_WARP, of_warp, warp);
}

/* The row of a thread, where a block has a thread for each: of up to 32 rows, the usual batch, the
   last warp's lanes have them, as it seldom has something to copy. Below 0, or behind the rows:
   none. */
SPECV_DEVFN int specv_i_thread_row(int num_rows) {
    return specv_i_thread() - (num_rows > 32 ? 0 : specv_i_num_threads() - 32);
}

/* specv_i_block_offsets of up to 32 rows by the warp that has them. Sync: none. */
SPECV_DEVFN void specv_i_warp_offsets(int32_t count, int num_rows, int32_t *offsets) {
    const int i = specv_i_lane();
    const int32_t sum = (int32_t)specv_i_short_scan((uint32_t)count, (uint32_t)num_rows);
    if (i == 0) offsets[0] = 0;
    if (i < num_rows) offsets[i + 1] = sum;
}

/* offsets[i] = the sum of counts before row i, for rows 0..num_rows; the thread of a row has its
   count, others 0. Call: block. Out, scratch: shared. Sync: a barrier at the end, one more above 32
   rows. */
SPECV_DEVFN void specv_i_block_offsets(int32_t count, int num_rows, int32_t *offsets,
                                       int32_t *scratch) {
    const int i = specv_i_thread_row(num_rows);
    if (num_rows > 32) {
        int32_t total;
        const int32_t before = specv_block_exclusive_scan(count, &total, scratch);
        if (i < num_rows) offsets[i] = before;
        if (i == num_rows - 1) offsets[num_rows] = before + count;
    } else if (i >= 0) {
        specv_i_warp_offsets(count, num_rows, offsets);
    }
    __syncthreads();
}

/* specv_warp_copy_kv by a whole block. Call: block. Sync: none; barrier before dst is read. */
SPECV_DEVFN void specv_block_copy_kv(void *dst, const void *src, int64_t bytes) {
    specv_i_copy(dst, src, bytes, specv_i_thread(), specv_i_num_threads());
}

/* ---- slots of all rows

   Where each block has to know of all rows whether their slot is good, a look at all rows before
   each would be batch^3 / 2 loads in a launch. Here entry slot % SPECV_I_SEATS of a table in shared
   memory gets the first row that is there: a row that finds itself is the first of its slot, one
   that finds a row of its slot is not. Only one that finds another slot, which has the same entry,
   looks at all rows before it. */
#define SPECV_I_SEATS 4096

/* Fills the table. Call: block; without slots nothing happens. Sync: barriers, before and behind
   the last write. */
SPECV_DEVFN void specv_i_block_seat(const void *slot, int32_t slot_dtype, int32_t num_slots,
                                    int live, int32_t *seats) {
    const int thread = specv_i_thread(), num_threads = specv_i_num_threads();
    if (!slot) return;
    for (int i = thread; i < SPECV_I_SEATS && i < num_slots; i += num_threads)
        seats[i] = SPECV_I_INT_MAX;
    __syncthreads();
    for (int row = thread; row < live; row += num_threads) {
        uint32_t ignored = 0;
        const int32_t its = specv_thread_slot(slot, slot_dtype, num_slots, row, &ignored);
        if (its >= 0) atomicMin(&seats[its % SPECV_I_SEATS], row);
    }
    __syncthreads();
}

/* specv_thread_own_slot, by that table. Call: any thread, with a live row. */
SPECV_DEVFN int32_t specv_i_seat(const void *slot, int32_t slot_dtype, int32_t num_slots, int row,
                                 const int32_t *seats, uint32_t *status) {
    int32_t mine, first;
    if (!slot) return row;
    mine = specv_thread_slot(slot, slot_dtype, num_slots, row, status);
    if (mine < 0) return mine;
    first = seats[mine % SPECV_I_SEATS];
    if (first == row) return mine;
    if (!specv_i_has_slot(slot, slot_dtype, first, mine)) /* by chance */
        return specv_thread_own_slot(slot, slot_dtype, num_slots, row, status);
    *status |= SPECV_ROW_BAD_SLOT;
    return -1;
}

/* ---- ragged copies

   Segments of rows that lie anywhere are copied to anywhere, in all planes: segment i is
   offsets[i + 1] - offsets[i] rows, each of num_heads heads of head_bytes bytes. On one side, head
   h of its j-th row starts in a plane at
   padded  s * seq_stride_bytes + x * pos_stride_bytes + h * head_stride_bytes,
   paged   block_table[s * table_stride_elems + x / page_size] * page_stride_bytes
           + x % page_size * pos_stride_bytes + h * head_stride_bytes,
   with s = seqs[i], or seq0 + i, and x = firsts[i] + j, or j. */
typedef struct specv_i_places {
    const void *const *planes; /* device table, or null: plane */
    const void *plane;
    const int32_t *seqs, *firsts; /* [num_segments], or null */
    int32_t at_0;                 /* segments before this one have x = j, and no entry of firsts */
    const int32_t *block_table;   /* or null: padded */
    int64_t seq_stride_bytes, pos_stride_bytes, head_stride_bytes, page_stride_bytes;
    int64_t table_stride_elems;
    specv_i_divisor page_size;
    int32_t seq0;
} specv_i_places;

typedef struct specv_i_ragged {
    specv_i_places from, to;
    const int32_t *offsets; /* [num_segments + 1], ascending; the first need not be 0 */
    int64_t head_bytes;
    int32_t num_segments, num_planes, num_heads;
} specv_i_ragged;

/* Head 0 of position x of sequence s. */
SPECV_DEVFN int64_t specv_i_place(const specv_i_places *p, int64_t s, int32_t x) {
    uint32_t in_page;
    if (!p->block_table) return s * p->seq_stride_bytes + x * p->pos_stride_bytes;
    const int64_t entry = (int64_t)specv_i_divide((uint32_t)x, p->page_size, &in_page);
    return p->block_table[s * p->table_stride_elems + entry] * p->page_stride_bytes +
           in_page * p->pos_stride_bytes;
}

/* Head 0 of row j of segment i. */
SPECV_DEVFN int64_t specv_i_row_place(const specv_i_places *p, int i, int32_t j) {
    return specv_i_place(p, p->seqs ? p->seqs[i] : p->seq0 + i,
                         p->firsts && i >= p->at_0 ? p->firsts[i] + j : j);
}

/* Segment i is row row0 + i of a CSR batch: where it starts. */
SPECV_NUMFN void specv_i_csr_places(specv_i_places *p, const specv_rows *rows, int row0) {
    if (rows->row_start) p->firsts = rows->row_start + row0;
    if (rows->row_end) p->firsts = rows->row_end + (row0 - 1), p->at_0 = row0 == 0;
}

/* What a copy's addresses allow, whatever its lengths: for a launcher to find, or for a block
   early. Its output, rows laid end to end, consists of units, or of runs: bytes that follow each
   other on both sides. */
typedef struct specv_i_shape {
    int64_t run_bytes; /* of a row; heads that follow each other on both sides are one */
    int rows_join;     /* so do a segment's rows */
    int has_units;     /* else long runs, which no wide unit fits */
    int fits, shift;   /* the widest access, if a plane's address allows it; log2 of a unit */
    specv_i_divisor row_units, head_units, planes;
} specv_i_shape;

/* A row as units of what fits, if it has_units. */
SPECV_NUMFN void specv_i_cut_units(specv_i_shape *s, int64_t row_bytes) {
    s->shift = s->has_units ? (s->fits > 1) + (s->fits > 2) + (s->fits > 4) + (s->fits > 8) : 4;
    s->row_units = specv_i_divisor_of((uint32_t)(row_bytes >> s->shift) | !s->has_units);
    s->head_units = specv_i_divisor_of((uint32_t)(s->run_bytes >> s->shift) | !s->has_units);
}

SPECV_NUMFN specv_i_shape specv_i_copy_shape(const specv_i_ragged *r) {
    enum { LONG_RUN = 512 };
    const specv_i_places *from = &r->from, *to = &r->to;
    const int64_t row_bytes = r->head_bytes * r->num_heads;
    const int one_head = r->num_heads == 1 || (from->head_stride_bytes == r->head_bytes &&
                                               to->head_stride_bytes == r->head_bytes);
    specv_i_shape s;
    s.run_bytes = one_head ? row_bytes : r->head_bytes;
    s.rows_join = one_head && !from->block_table && !to->block_table &&
                  from->pos_stride_bytes == row_bytes && to->pos_stride_bytes == row_bytes;
    s.fits =
        specv_i_unit_bytes((uint64_t)s.run_bytes | (uint64_t)from->plane | (uint64_t)to->plane |
                           (uint64_t)from->seq_stride_bytes | (uint64_t)from->pos_stride_bytes |
                           (uint64_t)from->head_stride_bytes | (uint64_t)from->page_stride_bytes |
                           (uint64_t)to->seq_stride_bytes | (uint64_t)to->pos_stride_bytes |
                           (uint64_t)to->head_stride_bytes | (uint64_t)to->page_stride_bytes);
    s.has_units = (!s.rows_join && s.run_bytes < LONG_RUN) || (s.fits == 16 && row_bytes < 1 << 30);
    specv_i_cut_units(&s, row_bytes);
    s.planes = specv_i_divisor_of((uint32_t)r->num_planes);
    return s;
}

/* A warp's part in a copy. What it copies first, if all is little, is of a plane that is known
   before anything else is, so that its address is loaded beside lengths and tokens: ask early. */
typedef struct specv_plane_share {
    const char *src; /* of this plane; null in either: nothing to do */
    char *dst;
    int32_t plane;           /* -1: none yet */
    int32_t warp, num_warps; /* this warp among those that copy together */
} specv_plane_share;

SPECV_DEVFN void specv_i_load_plane(const specv_i_places *from, const specv_i_places *to, int plane,
                                    specv_plane_share *share) {
    share->src = (const char *)(from->planes ? from->planes[plane] : from->plane);
    share->dst = (char *)(to->planes ? to->planes[plane] : to->plane);
    share->plane = plane;
}

/* Of all warps of the grid; the first ones are of different blocks. */
SPECV_DEVFN specv_plane_share specv_i_warp_share(void) {
    const int warps = specv_i_num_threads() / 32, blocks = (int)gridDim.x;
    const specv_plane_share share = {0, 0, -1, specv_i_thread() / 32 * blocks + (int)blockIdx.x,
                                     warps * blocks};
    return share;
}

#define SPECV_I_UNITS (SPECV_PIECE_BYTES / 512) /* that a lane copies at a time */

/* The wanted ones of a lane's units, at most SPECV_I_UNITS: all loads are in flight before the
   first store. A unit that the plane's addresses do not allow is copied in parts of `width` bytes.
   Planes are in global memory; units of 16 bytes are copied without a branch. */
SPECV_DEVFN void specv_i_copy_piece(char *dst, const char *src, const int64_t *dst_at,
                                    const int64_t *src_at, const int *wanted, int units, int unit,
                                    int width) {
    uint4 v[SPECV_I_UNITS];
    if (width == 16) {
#pragma unroll
        for (int u = 0; u < units; ++u) specv_i_load_16_if(wanted[u], &v[u], src + src_at[u]);
#pragma unroll
        for (int u = 0; u < units; ++u) specv_i_store_16_if(wanted[u], dst + dst_at[u], v[u]);
        return;
    }
#pragma unroll 1
    for (int part = 0; part < unit; part += width) {
#pragma unroll
        for (int u = 0; u < units; ++u)
            if (wanted[u]) v[u] = specv_i_load_unit(src + src_at[u] + part, width);
#pragma unroll
        for (int u = 0; u < units; ++u)
            if (wanted[u]) specv_i_store_unit(dst + dst_at[u] + part, v[u], width);
    }
}

/* Bytes low..high-1 of a plane's output run after run, a run being bytes that follow each other on
   both sides: run_bytes of a row, or, where rows do, the whole segment. Each run aligns itself. */
SPECV_DEVFN void specv_i_warp_copy_runs(const specv_i_ragged *r, char *dst, const char *src,
                                        int64_t run_bytes, int rows_join, int64_t low,
                                        int64_t high) {
    const int64_t row_bytes = r->head_bytes * r->num_heads;
    int32_t row = r->offsets[0] + (int32_t)(low / row_bytes);
    int64_t within = low % row_bytes;
#pragma unroll 1
    while (low < high) {
        const int i = specv_warp_find_row(r->offsets, r->num_segments, row);
        const int32_t j = row - r->offsets[i], next = rows_join ? r->offsets[i + 1] : row + 1;
        const int64_t head = rows_join ? 0 : within / run_bytes, in = within - head * run_bytes;
        const int64_t left = rows_join ? (next - row) * row_bytes - within : run_bytes - in;
        const int64_t bytes = left < high - low ? left : high - low;
        specv_warp_copy_kv(
            dst + specv_i_row_place(&r->to, i, j) + head * r->to.head_stride_bytes + in,
            src + specv_i_row_place(&r->from, i, j) + head * r->from.head_stride_bytes + in, bytes);
        low += bytes, within += bytes;
        if (within >= row_bytes) row = next, within = 0;
    }
}

/* A piece, and where the lane's first unit of it is: known before lengths. Rows are counted from
   the first of all. */
typedef struct specv_i_lane_piece {
    uint64_t piece;
    int32_t row0, row;              /* of the piece, of the unit */
    uint32_t within, head, in_head; /* units of row0 before the piece; of the unit */
    int32_t placed;                 /* 0: not yet */
    int32_t width;                  /* of its plane: specv_i_plane_width */
} specv_i_lane_piece;

/* Of the lane's unit, `next` units behind the piece's first row. */
SPECV_DEVFN void specv_i_place_unit(const specv_i_shape *shape, uint32_t next,
                                    specv_i_lane_piece *p) {
    uint32_t in_row;
    p->row = p->row0 + (int32_t)specv_i_divide(next, shape->row_units, &in_row);
    p->head = (uint32_t)specv_i_divide(in_row, shape->head_units, &p->in_head);
}

SPECV_DEVFN void specv_i_place_piece(const specv_i_shape *shape, specv_i_lane_piece *p) {
    p->row0 =
        (int32_t)specv_i_divide(p->piece * (32 * SPECV_I_UNITS), shape->row_units, &p->within);
    specv_i_place_unit(shape, p->within + (uint32_t)specv_i_lane(), p);
    p->placed = 1;
}

/* The widest access that the plane's addresses allow; 0: one is null, nothing is to be done. */
SPECV_DEVFN int32_t specv_i_plane_width(const specv_plane_share *share,
                                        const specv_i_shape *shape) {
    const int32_t width =
        specv_i_unit_bytes((uint64_t)share->src | (uint64_t)share->dst | (uint64_t)shape->fits);
    return share->src && share->dst ? width : 0;
}

/* What a warp copies if it has one piece of one plane at most, as of little copies: ask early. */
SPECV_DEVFN void specv_i_early_piece(const specv_i_ragged *r, const specv_i_shape *shape,
                                     specv_plane_share *share, specv_i_lane_piece *p) {
    uint32_t plane;
    p->piece = specv_i_divide((uint32_t)share->warp, shape->planes, &plane);
    specv_i_load_plane(&r->from, &r->to, (int)plane, share);
    specv_i_place_piece(shape, p);
    SPECV_I_EARLY("r", p->row);
    SPECV_I_EARLY("r", p->head);
    SPECV_I_EARLY("r", p->in_head);
    p->width = specv_i_plane_width(share, shape);
    SPECV_I_EARLY("r", p->width);
}

/* Copies a piece of planes plane..stop-1. more: in the end *share and p->width are to be of the
   plane behind them, or of the first. *i: the segment of an earlier piece, or -1. */
SPECV_DEVFN void specv_i_warp_copy_planes(const specv_i_ragged *r, const specv_i_shape *shape,
                                          specv_plane_share *share, specv_i_lane_piece *p, int *i,
                                          int plane, int stop, int more) {
    enum { PIECE = 32 * SPECV_I_UNITS };
    const specv_i_places *from = &r->from, *to = &r->to;
    const int32_t *offsets = r->offsets;
    const int32_t base = offsets[0], num_rows = offsets[r->num_segments] - base;
    const int shift = shape->shift;
    if (!shape->has_units) {
        const int64_t bytes = num_rows * (r->head_bytes * r->num_heads);
        const int64_t low = (int64_t)p->piece * PIECE << shift;
        const int64_t high = bytes - low < PIECE << shift ? bytes : low + (PIECE << shift);
#pragma unroll 1
        for (; plane < stop; ++plane) {
            if (share->plane != plane) specv_i_load_plane(from, to, plane, share);
            if (!share->src || !share->dst) continue;
            __builtin_assume(__isGlobal(share->src)), __builtin_assume(__isGlobal(share->dst));
            specv_i_warp_copy_runs(r, share->dst, share->src, shape->run_bytes, shape->rows_join,
                                   low, high);
        }
        return;
    }
    if (!p->placed) specv_i_place_piece(shape, p);
    if (p->row0 >= num_rows) return;
    const int64_t left = (int64_t)num_rows * shape->row_units.by -
                         (int64_t)(p->piece * PIECE + (unsigned)specv_i_lane());
    int64_t src_row = 0, dst_row = 0; /* where row `known` starts */
    int32_t known = -1;
    int64_t src_at[SPECV_I_UNITS], dst_at[SPECV_I_UNITS], src_unit = 0, dst_unit = 0;
    int wanted[SPECV_I_UNITS];
    if (*i < 0) *i = specv_warp_find_row(offsets, r->num_segments, base + p->row0);
#pragma unroll
    for (int u = 0; u < SPECV_I_UNITS; ++u) {
        wanted[u] = 32 * u < left;
        if (u > 0) p->in_head += 32, src_unit += 32 << shift, dst_unit += 32 << shift;
        if ((u == 0 || p->in_head >= shape->head_units.by) && wanted[u]) {
            if (u > 0)
                specv_i_place_unit(shape, p->within + (uint32_t)(specv_i_lane() + 32 * u), p);
            if (p->row != known) {
                const int32_t row = base + p->row, end = offsets[*i + 1];
                int32_t first = offsets[*i];
                if (end <= row) {
                    *i = specv_i_find_row(offsets, *i + 1, r->num_segments, row);
                    first = offsets[*i];
                }
                src_row = specv_i_row_place(from, *i, row - first);
                dst_row = specv_i_row_place(to, *i, row - first);
                known = p->row;
            }
            const int64_t in_head = (int64_t)p->in_head << shift;
            src_unit = src_row + p->head * from->head_stride_bytes + in_head;
            dst_unit = dst_row + p->head * to->head_stride_bytes + in_head;
        }
        src_at[u] = src_unit, dst_at[u] = dst_unit;
    }
#pragma unroll 1
    for (; plane < stop; ++plane) {
        const char *src = share->src;
        char *dst = share->dst;
        const int width = p->width, another = plane + 1 < stop || more;
        if (another && r->num_planes > 1)
            specv_i_load_plane(from, to, plane + 1 < r->num_planes ? plane + 1 : 0, share);
        if (width) {
            __builtin_assume(__isGlobal(src)), __builtin_assume(__isGlobal(dst));
            specv_i_copy_piece(dst, src, dst_at, src_at, wanted, SPECV_I_UNITS, 1 << shift, width);
        }
        if (another) p->width = specv_i_plane_width(share, shape);
    }
}

/* Which piece of which plane the `item`-th is. Returns the plane. */
SPECV_DEVFN int specv_i_open_item(const specv_i_ragged *r, const specv_i_shape *shape,
                                  uint64_t item, specv_plane_share *share, specv_i_lane_piece *p) {
    uint32_t plane;
    p->piece = specv_i_divide(item, shape->planes, &plane);
    if (share->plane != (int)plane) specv_i_load_plane(&r->from, &r->to, (int)plane, share);
    p->width = specv_i_plane_width(share, shape);
    return (int)plane;
}

/* Copies this warp's part. The output of a plane, rows laid end to end, is cut into pieces of 128
   units, wherever rows begin and end: a long row is the work of many warps, and segments without
   rows cost nothing. Pieces are dealt to warps, a piece's planes to the same warp as far as there
   are more of them than warps: where its units come from and go to is found once for all planes,
   every lane for itself, as neighbouring units are seldom neighbours in memory for long; and while
   a plane is copied, the address of the next is on its way. Where units of 16 bytes do not fit,
   long runs are copied one by one.
   Call: warp, with its early piece if that is placed, else with a plane or -1. In: planes in
   global memory. Sync: none. */
SPECV_DEVFN void specv_i_warp_copy_ragged(const specv_i_ragged *r, const specv_i_shape *shape,
                                          specv_plane_share share, specv_i_lane_piece p) {
    enum { PIECE = 32 * SPECV_I_UNITS };
    const int shift = shape->shift;
    const int64_t bytes =
        (r->offsets[r->num_segments] - r->offsets[0]) * (r->head_bytes * r->num_heads);
    const uint64_t num_warps = (uint64_t)share.num_warps;
    const uint64_t items =
        ((uint64_t)(bytes + (PIECE << shift) - 1) / PIECE >> shift) * (unsigned)r->num_planes;
    uint64_t item = (uint64_t)share.warp;
    int left = 1, i = -1, plane = share.plane;
    if (item >= items) return;
    if (items > num_warps) {
        const uint64_t each = items / num_warps, more = items - each * num_warps;
        left = (int)(each + (item < more)); /* the first warps have one more */
        item = item * each + (item < more ? item : more);
        p.placed = 0;
    }
    if (!p.placed) plane = specv_i_open_item(r, shape, item, &share, &p);
#pragma unroll 1
    for (; left > 0; ++p.piece, plane = 0, p.placed = 0) {
        const int stop = left < r->num_planes - plane ? plane + left : r->num_planes;
        left -= stop - plane;
        specv_i_warp_copy_planes(r, shape, &share, &p, &i, plane, stop, left > 0);
    }
}

/* One atomic operation is the whole handshake: it releases what this thread's block has written
   before the barrier behind it, and acquires what the others released. */
SPECV_DEVFN uint32_t specv_i_add_to_ticket(uint32_t *ticket, uint32_t mine) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(ticket)), "r"(mine)
                 : "memory");
    return before;
}

/* How a block leaves the others. */
enum { SPECV_I_NOT_LAST, SPECV_I_LAST, SPECV_I_BAD_TICKET };

/* Of num_blocks blocks that come here with the same ticket the last one gets LAST, and sees what
   all of them have written. The low bits of a ticket count, to 2 * num_blocks - 1 at least, the
   others add up the blocks' numbers; LAST leaves 0. If the ticket was not 0, one block gets
   BAD_TICKET while others may still be at work, and they get NOT_LAST. A block alone needs no
   ticket.
   In two steps, for a block that has something to do while the answer is on its way: one thread
   arrives, behind a barrier; then all leave, with what that thread was told. */
SPECV_DEVFN uint32_t specv_i_ticket_counts(int num_blocks) {
    return (2u << (31 - __clz(2 * num_blocks - 1))) - 1;
}

/* What a block adds. Call: any thread. */
SPECV_DEVFN uint32_t specv_i_own_ticket(int block, int num_blocks) {
    return 1 + ((uint32_t)block + 1) * (specv_i_ticket_counts(num_blocks) + 1);
}

/* Returns the ticket before, which is on its way until somebody looks at it. */
SPECV_DEVFN uint32_t specv_i_arrive(uint32_t *ticket, int block, int num_blocks) {
    const uint32_t mine = specv_i_own_ticket(block, num_blocks);
    return num_blocks > 1 ? specv_i_add_to_ticket(ticket, mine) : 0;
}

/* Of all blocks together. */
SPECV_DEVFN uint32_t specv_i_all_tickets(int num_blocks) {
    const uint32_t n = (uint32_t)num_blocks;
    return n + (uint32_t)((uint64_t)n * (n + 1) / 2) * (specv_i_ticket_counts(num_blocks) + 1);
}

/* What the answer means: of the one thread that arrived, with what specv_i_arrive returned and the
   block's own ticket to that. all: specv_i_all_tickets. */
SPECV_DEVFN int specv_i_leave(uint32_t *ticket, uint32_t now, int num_blocks, uint32_t all) {
    if (num_blocks == 1) return SPECV_I_LAST;
    if (now == all) { /* nobody waits for this store */
        *(volatile uint32_t *)ticket = 0;
        return SPECV_I_LAST;
    }
    const uint32_t n = (uint32_t)num_blocks, counts = specv_i_ticket_counts(num_blocks);
    const uint32_t count = now & counts;
    if (count >= n || count == 0) {
        /* Of several that find too many the first one takes them; if they have wrapped by then, it
           is the one that found 0. */
        const uint32_t taken = atomicExch(ticket, 0u) & counts;
        if (count == 0 || taken >= n) return SPECV_I_BAD_TICKET;
    }
    return SPECV_I_NOT_LAST;
}

/* Call: block; the thread that arrived leaves for all. Sync: a barrier. */
SPECV_DEVFN int specv_i_block_leaves_with(uint32_t *ticket, uint32_t now, int arrived,
                                          int num_blocks, uint32_t all) {
    __shared__ int result;
    if (arrived) result = specv_i_leave(ticket, now, num_blocks, all);
    __syncthreads();
    return result;
}

SPECV_DEVFN int specv_i_block_leaves(uint32_t *ticket, uint32_t now, int arrived, int num_blocks) {
    uint32_t all = specv_i_all_tickets(num_blocks);
    SPECV_I_EARLY("r", all);
    return specv_i_block_leaves_with(ticket, now, arrived, num_blocks, all);
}

/* Both steps at once. Call: block. Sync: one or two barriers. */
SPECV_DEVFN int specv_i_block_arrives(uint32_t *ticket, int block, int num_blocks) {
    uint32_t now = 0, mine = specv_i_own_ticket(block, num_blocks);
    SPECV_I_EARLY("r", mine);
    __syncthreads();
    if (num_blocks == 1) return SPECV_I_LAST;
    if (specv_i_thread() == 0) now = specv_i_add_to_ticket(ticket, mine) + mine;
    return specv_i_block_leaves(ticket, now, specv_i_thread() == 0, num_blocks);
}

SPECV_DEVFN int specv_i_num_live(const int32_t *num_active, int batch) {
    int live = num_active ? *num_active : batch;
    return live < 0 ? 0 : live < batch ? live : batch;
}

/* The largest values of a block's threads, in all of them. Call: block. Scratch: two words for each
   warp, shared. Sync: a barrier inside; put one between two calls that use the same scratch. */
SPECV_DEVFN int2 specv_i_block_max(int2 value, int2 *scratch) {
    const int lane = specv_i_lane();
    value.x = specv_warp_reduce_max(value.x), value.y = specv_warp_reduce_max(value.y);
    if (lane == 0) scratch[specv_i_thread() / 32] = value;
    __syncthreads();
    if (lane < specv_i_num_threads() / 32) value = scratch[lane];
    value.x = specv_warp_reduce_max(value.x), value.y = specv_warp_reduce_max(value.y);
    return value;
}

/* Sum over the threads up to the own one; *total gets the block's. Call: block. Scratch: 32 words
   of 8 bytes. Sync: one barrier; put one between two calls that use the same scratch. */
SPECV_DEVFN uint64_t specv_i_block_inclusive_add(uint64_t value, uint64_t *total,
                                                 uint64_t *scratch) {
    const int lane = specv_i_lane(), warp = specv_i_thread() / 32;
    const int num_warps = specv_i_num_threads() / 32;
    uint64_t sum = specv_i_warp_inclusive_add(value), warps;
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    warps = specv_i_warp_inclusive_add(lane < num_warps ? scratch[lane] : 0);
    *total = __shfl_sync(SPECV_FULL_WARP, warps, 31);
    return sum + (warp ? __shfl_sync(SPECV_FULL_WARP, warps, warp - 1) : 0);
}

#endif /* __CUDACC__ */

/* ================================================================================== >>greedy

   Draft ids against target ids: a row's accepted drafts end where the first one differs.
     A1  specv_verify_greedy     one launch, a warp per row
   Its descriptor holds what all verifications have in common: batch, drafts, EOS, outputs. In
   kernels of your own warp_ballot_accept compares a row; specv_warp_verify_greedy_row does all
   that A1 does for one.
   Needs: primitives. */

/* A1. Greedy verification: draft ids against target ids. */
typedef struct specv_verify_greedy_desc {
    uint32_t canary0;
    int32_t token_dtype; /* specv_dtype of all four token buffers; 0 = SPECV_I32 */
    specv_rows rows;
    const void *draft_tokens;    /* dense [batch][max_draft], CSR [num_draft_tokens] */
    const void *target_tokens;   /* dense [batch][max_draft + 1], CSR [num_draft_tokens + batch].
                                    Dense tokens, whatever they are, may be read in all columns of
                                    all rows: A1 and B2 do not wait for lengths to read them */
    int32_t *accepted_len;       /* out [batch]; an accepted EOS counts, drafts after it do not */
    uint8_t *mismatch;           /* out [batch], or null; 1 = a draft was rejected */
    void *next_token;            /* out [batch], or null; correction or bonus, -1 after an EOS */
    void *out_tokens;            /* out [batch][max_draft + 1], or null; emitted tokens, then -1 */
    int32_t *num_emitted;        /* out [batch], or null; accepted_len + (next_token >= 0) */
    uint8_t *finished;           /* out [batch], or null; 1 = an emitted token is an EOS */
    uint32_t *row_status;        /* out [batch], or null; SPECV_ROW_* bits */
    int64_t draft_stride_elems;  /* dense; 0 = max_draft */
    int64_t target_stride_elems; /* dense; 0 = max_draft + 1 */
    int64_t out_stride_elems;    /* 0 = max_draft + 1 */
    int64_t vocab;               /* ids are 0..vocab-1; 0 = unknown, only negative ids are bad */
    int64_t eos_token[SPECV_MAX_EOS];
    int32_t num_eos;     /* how many of eos_token count; 0 = none */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_verify_greedy_desc;

/* What the kernel of A1 takes. */
typedef struct specv_verify_greedy_task {
    specv_verify_greedy_desc d; /* resolved */
    int32_t is_short;
} specv_verify_greedy_task;

#define SPECV_VERIFY_THREADS 128 /* specv_verify_greedy_kernel: a warp per row */

/* Dense rows of at most 31 drafts: a warp looks at a row once, and where its tokens are does not
   depend on what is in memory. */
SPECV_NUMFN int specv_i_is_short(const specv_verify_greedy_desc *d) {
    return !specv_i_is_csr(&d->rows) && d->rows.max_draft < 32;
}

#if !defined(__CUDACC_RTC__)

/* What A1 and A2 to A5 share: all but where the target's tokens come from. */
SPECV_HOSTFN int specv_i_verify_validate(const specv_verify_greedy_desc *d) {
    int status;
    int64_t batch, columns;
    size_t token_bytes;
    SPECV_I_CHECK_DESC(d);
    if ((status = specv_i_rows_validate(&d->rows)) != SPECV_OK) return status;
    SPECV_CHECK(d->token_dtype == SPECV_I32 || d->token_dtype == SPECV_I64, TOKEN_DTYPE);
    token_bytes = d->token_dtype == SPECV_I64 ? 8 : 4;
    batch = d->rows.batch;
    columns = (int64_t)d->rows.max_draft + 1;
    if (batch > 0) {
        int has_drafts = specv_i_is_csr(&d->rows) ? d->rows.num_draft_tokens > 0 : columns > 1;
        SPECV_CHECK(d->draft_tokens || !has_drafts, DRAFT_TOKENS);
        SPECV_CHECK(d->accepted_len, ACCEPTED_LEN);
    }
    SPECV_CHECK(specv_i_aligned(d->draft_tokens, token_bytes), DRAFT_TOKENS);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4), ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->next_token, token_bytes), NEXT_TOKEN);
    SPECV_CHECK(specv_i_aligned(d->out_tokens, token_bytes), OUT_TOKENS);
    SPECV_CHECK(specv_i_aligned(d->num_emitted, 4), NUM_EMITTED);
    SPECV_I_CHECK_STATUS(d, row_status);
    if (d->draft_stride_elems)
        SPECV_CHECK(!specv_i_is_csr(&d->rows) && d->draft_stride_elems >= columns - 1,
                    DRAFT_STRIDE);
    if (d->target_stride_elems)
        SPECV_CHECK(!specv_i_is_csr(&d->rows) && d->target_stride_elems >= columns, TARGET_STRIDE);
    if (d->out_stride_elems) SPECV_CHECK(d->out_stride_elems >= columns, OUT_STRIDE);
    SPECV_CHECK(specv_i_fits(batch * 8, d->draft_stride_elems, 0), SIZE);
    SPECV_CHECK(specv_i_fits(batch * 8, d->target_stride_elems, 0), SIZE);
    SPECV_CHECK(specv_i_fits(batch * 8, d->out_stride_elems, 0), SIZE);
    SPECV_CHECK(d->vocab >= 0, VOCAB);
    SPECV_CHECK(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos; ++i) {
        SPECV_CHECK(d->eos_token[i] >= 0, EOS_TOKEN);
        SPECV_CHECK(d->vocab == 0 || d->eos_token[i] < d->vocab, EOS_TOKEN);
    }
    return SPECV_OK;
}

SPECV_HOSTFN int specv_verify_greedy_validate(const specv_verify_greedy_desc *d) {
    int status;
    SPECV_CHECK(d, NULL_DESC);
    if ((status = specv_i_verify_validate(d)) != SPECV_OK) return status;
    SPECV_CHECK(d->rows.batch == 0 || d->target_tokens, TARGET_TOKENS);
    SPECV_CHECK(specv_i_aligned(d->target_tokens, d->token_dtype == SPECV_I64 ? 8 : 4),
                TARGET_TOKENS);
    return SPECV_OK;
}

/* Fills in the defaults of a valid descriptor: every 0 that stands for a packed stride or for one
   plane. Launchers do it on a copy; call it yourself before you pass a descriptor to a kernel or
   to a device function. */
SPECV_HOSTFN void specv_verify_greedy_resolve(specv_verify_greedy_desc *d) {
    int64_t max_draft = d->rows.max_draft;
    if (!d->draft_stride_elems) d->draft_stride_elems = max_draft;
    if (!d->target_stride_elems) d->target_stride_elems = max_draft + 1;
    if (!d->out_stride_elems) d->out_stride_elems = max_draft + 1;
}

#if SPECV_I_LAUNCHERS
/* A1. One launch, a warp per row. Reads tokens up to the first stop (in steps of 128) once: one
   dependent round trip, whatever is given, two where CSR lengths are; one more per 128 drafts. */
SPECV_LAUNCHER int specv_verify_greedy(const specv_verify_greedy_desc *d,
                                       struct CUstream_st *stream) SPECV_AS(specv_verify_greedy);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

SPECV_DEVFN int specv_i_is_eos(const specv_verify_greedy_desc *d, int64_t token) {
    return specv_i_is_one_of(d->eos_token, d->num_eos, token);
}

/* The token that follows accepted_len accepted drafts: the correction, or the bonus when all were
   accepted (the same element either way), or -1 if it is outside the vocabulary.
   Call: any thread. In: target row of at least accepted_len + 1 tokens. vocab 0 = unknown. */
SPECV_DEVFN int32_t specv_thread_next_token(const int32_t *target, int accepted_len,
                                            int64_t vocab) {
    int32_t token = target[accepted_len];
    return specv_i_is_token(token, vocab) ? token : -1;
}

SPECV_DEVFN int64_t specv_thread_next_token_i64(const int64_t *target, int accepted_len,
                                                int64_t vocab) {
    int64_t token = target[accepted_len];
    return specv_i_is_token(token, vocab) ? token : -1;
}

/* Bring your own rule: the first lane whose predicate says "rejected", or 32 if none does.
   Call: warp, rejected per lane. Cost: one ballot. */
SPECV_DEVFN int specv_warp_first_reject(int rejected) {
    unsigned mask = __ballot_sync(SPECV_FULL_WARP, rejected);
    return mask ? __ffs((int)mask) - 1 : 32;
}

/* Tokens first + 32 * c of four chunks; those with 32 * c < left are loaded. */
SPECV_DEVFN void specv_i_load_chunks(uint2 raw[4], int anywhere, const void *tokens, int dtype,
                                     int64_t first, int left) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
        specv_i_load_token_below(32 * c, left, anywhere, &raw[c], tokens, dtype, first + 32 * c);
}

/* The accept scan. Four chunks of 32 positions are loaded before the first ballot, so that a
   row of up to 128 drafts costs one round trip however many are accepted. */
SPECV_DEVFN int specv_i_warp_ballot_accept(const void *draft, const void *target, int dtype,
                                           int n_draft) {
    int lane = specv_i_lane();
    for (int base = 0; base < n_draft; base += 128) {
        uint2 draft_raw[4] = {}, target_raw[4] = {};
        specv_i_load_chunks(draft_raw, 1, draft, dtype, base + lane, n_draft - base - lane);
        specv_i_load_chunks(target_raw, 1, target, dtype, base + lane, n_draft - base - lane);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            int chunk = base + 32 * c, first;
            int64_t token = specv_i_token(draft_raw[c], dtype);
            int rejected = (token < 0) | (token != specv_i_token(target_raw[c], dtype));
            if (chunk >= n_draft) break;
            first = specv_warp_first_reject(rejected); /* behind n_draft both are 0 */
            if (first < 32) return chunk + first;
        }
    }
    return n_draft;
}

/* Length of the longest prefix in which draft and target agree; negative drafts (placeholders)
   agree with nothing.
   Call: warp, one row. In: draft[0..n_draft), target[0..n_draft), in global or shared memory;
   0 <= n_draft <= 2^30.
   Out: 0..n_draft. Cost: one round trip per 128 drafts that are reached, ceil((k + 1) / 32)
   ballots at most. Source: greedy case of Leviathan et al. 2023 (arXiv 2211.17192). */
SPECV_DEVFN int specv_warp_ballot_accept(const int32_t *draft, const int32_t *target, int n_draft) {
    return specv_i_warp_ballot_accept(draft, target, SPECV_I32, n_draft);
}

SPECV_DEVFN int specv_warp_ballot_accept_i64(const int64_t *draft, const int64_t *target,
                                             int n_draft) {
    return specv_i_warp_ballot_accept(draft, target, SPECV_I64, n_draft);
}

/* What A1 says of one row; the same in all lanes. */
typedef struct specv_verdict {
    int64_t next_token;
    int32_t accepted_len;
    int32_t mismatch;
    int32_t finished;
    uint32_t status;
} specv_verdict;

/* Does the walk along the row end at this draft? At a mismatch, at an id outside the vocabulary,
   and behind an accepted EOS. Without vocab and num_eos only the comparison is paid for, and it
   is arithmetic: a branch per condition would cost more than the condition. */
SPECV_DEVFN int specv_i_stops(const specv_verify_greedy_desc *d, uint2 draft, uint2 target,
                              int dtype, int has_options) {
    int stops = ((draft.x ^ target.x) | (draft.y ^ target.y)) != 0; /* y of an int32 is 0 */
    stops |= (int32_t)(dtype == SPECV_I64 ? draft.y : draft.x) < 0;
    if (has_options) {
        const int64_t token = specv_i_token(draft, dtype);
        stops |= !specv_i_is_token(token, d->vocab) | specv_i_is_eos(d, token);
    }
    return stops;
}

/* Where the walk ended, from the tokens there. position == n_draft: all drafts were accepted, and
   target is the bonus. A draft at which it ended, and that is the target's own token and one of the
   vocabulary, is an accepted EOS. */
SPECV_DEVFN specv_verdict specv_i_verdict(const specv_verify_greedy_desc *d, const specv_row *row,
                                          int position, int64_t draft, int64_t target,
                                          int has_options) {
    const int64_t vocab = has_options ? d->vocab : 0;
    const int has_draft = position < row->n_draft;
    const int eos = has_options && (has_draft & (draft == target) & specv_i_is_token(draft, vocab));
    specv_verdict v = {};
    v.next_token = row->readable & !eos & specv_i_is_token(target, vocab) ? target : -1;
    v.accepted_len = position + eos, v.mismatch = has_draft & !eos;
    return v;
}

/* The rest of it, which few ask for. */
SPECV_DEVFN void specv_i_verdict_more(const specv_verify_greedy_desc *d, const specv_row *row,
                                      int position, int64_t draft, int64_t target,
                                      specv_verdict *v) {
    const int eos = v->accepted_len > position, emits = row->readable & !eos;
    v->finished = eos | (emits & specv_i_is_eos(d, target));
    v->status = row->status;
    if (v->mismatch && draft != -1 && !specv_i_is_token(draft, d->vocab))
        v->status |= SPECV_ROW_BAD_DRAFT;
    if (emits && v->next_token < 0) v->status |= SPECV_ROW_BAD_TARGET;
}

/* Where a row's outputs are: known before its tokens. */
typedef struct specv_i_row_outputs {
    int32_t *accepted_len;
    uint8_t *mismatch;
    void *next_token;
    unsigned mine, up_to_mine; /* lanes */
    int has_options, has_more; /* has_more: there are other outputs than these three */
} specv_i_row_outputs;

SPECV_DEVFN specv_i_row_outputs specv_i_row_outputs_of(const specv_verify_greedy_desc *d, int row,
                                                       int lane, int dtype, int has_more) {
    specv_i_row_outputs o;
    uint64_t accepted_len = (uint64_t)(d->accepted_len + row), mismatch = (uint64_t)d->mismatch;
    uint64_t next_token = (uint64_t)d->next_token;
    if (mismatch) mismatch += (uint64_t)row;
    if (next_token) next_token += (uint64_t)row * (dtype == SPECV_I64 ? 8 : 4);
    o.mine = 1u << lane, o.up_to_mine = (2u << lane) - 1;
    o.has_options = d->vocab != 0 || d->num_eos != 0;
    o.has_more = has_more || d->out_tokens || d->num_emitted || d->finished || d->row_status;
    SPECV_I_EARLY("l", accepted_len);
    SPECV_I_EARLY("l", mismatch);
    SPECV_I_EARLY("l", next_token);
    SPECV_I_EARLY("r", o.mine);
    SPECV_I_EARLY("r", o.up_to_mine);
    SPECV_I_EARLY("r", o.has_options);
    SPECV_I_EARLY("r", o.has_more);
    o.accepted_len = (int32_t *)__cvta_global_to_generic(accepted_len);
    o.mismatch = mismatch ? (uint8_t *)__cvta_global_to_generic(mismatch) : 0;
    o.next_token = next_token ? __cvta_global_to_generic(next_token) : 0;
    return o;
}

/* 32 positions of a row, j in this lane. If the walk ends here, the lane where it does writes what
   is said of the row, and gets the verdict if it is asked for. Returns the lanes that stop. */
SPECV_DEVFN unsigned specv_i_warp_walk(const specv_verify_greedy_desc *d, const specv_row *r,
                                       const specv_i_row_outputs *o, int row, int j,
                                       uint2 draft_raw, uint2 target_raw, int dtype,
                                       int has_options, uint32_t status_bits,
                                       specv_verdict *verdict) {
    const int64_t draft = specv_i_token(draft_raw, dtype);
    const int64_t target = specv_i_token(target_raw, dtype);
    const int stops =
        (j >= r->n_draft) | specv_i_stops(d, draft_raw, target_raw, dtype, has_options);
    const unsigned all = __ballot_sync(SPECV_FULL_WARP, stops), up_to_mine = all & o->up_to_mine;
    const int ends_here = up_to_mine == o->mine;
    specv_verdict v = specv_i_verdict(d, r, j, draft, target, has_options);
    if (ends_here) {
        *o->accepted_len = v.accepted_len;
        if (o->next_token) specv_i_store_token(o->next_token, dtype, 0, v.next_token);
        if (o->mismatch) *o->mismatch = (uint8_t)v.mismatch;
    }
    if (!o->has_more) return all;
    const int num_emitted = v.accepted_len + (v.next_token >= 0);
    if (ends_here) {
        specv_i_verdict_more(d, r, j, draft, target, &v);
        if (d->num_emitted) d->num_emitted[row] = num_emitted;
        if (d->finished) d->finished[row] = (uint8_t)v.finished;
        specv_i_put_status(d->row_status, row, v.status | status_bits, d->keep_status);
        if (verdict) *verdict = v;
    }
    if (d->out_tokens && j <= d->rows.max_draft) { /* an accepted draft is the target's token */
        const int is_emitted = ends_here ? num_emitted > j : up_to_mine == 0;
        specv_i_store_token(d->out_tokens, dtype, row * d->out_stride_elems + j,
                            is_emitted ? target : -1);
    }
    return all;
}

/* A1 of a dense row of at most 31 drafts: tokens are loaded beside its length, whatever that will
   be. Returns the lane that has the
   verdict, if v is not null. */
SPECV_DEVFN int specv_i_warp_verify_short(const specv_verify_greedy_desc *d, int row,
                                          uint32_t status_bits, int dtype, int lane,
                                          specv_verdict *v) {
    int64_t draft_at = row * d->draft_stride_elems + lane;
    int64_t target_at = row * d->target_stride_elems + lane;
    uint2 draft = {}, target = {};
    unsigned all;
    SPECV_I_EARLY("l", draft_at);
    SPECV_I_EARLY("l", target_at);
    specv_i_load_token_below(lane, d->rows.max_draft, 0, &draft, d->draft_tokens, dtype, draft_at);
    specv_i_load_token_below(lane, d->rows.max_draft + 1, 0, &target, d->target_tokens, dtype,
                             target_at);
    const specv_row r = specv_i_load_dense_row(&d->rows, row);
    const specv_i_row_outputs o = specv_i_row_outputs_of(d, row, lane, dtype, v != 0);
    if (o.has_options)
        all = specv_i_warp_walk(d, &r, &o, row, lane, draft, target, dtype, 1, status_bits, v);
    else
        all = specv_i_warp_walk(d, &r, &o, row, lane, draft, target, dtype, 0, status_bits, v);
    return __ffs((int)all) - 1;
}

/* A1 of any row, 128 positions at a time; of a dense row the first are loaded beside its length.
   Returns the lane that has the
   verdict, if v is not null. */
SPECV_DEVFN int specv_i_warp_verify_long(const specv_verify_greedy_desc *d, int row,
                                         uint32_t status_bits, int dtype, int lane,
                                         specv_verdict *v) {
    const int csr = specv_i_is_csr(&d->rows), max_draft = d->rows.max_draft;
    int64_t draft_at = row * d->draft_stride_elems + lane;
    int64_t target_at = row * d->target_stride_elems + lane;
    uint2 draft[4] = {}, target[4] = {};
    int stop = -1;
    if (!csr) {
        specv_i_load_chunks(draft, 0, d->draft_tokens, dtype, draft_at, max_draft - lane);
        specv_i_load_chunks(target, 0, d->target_tokens, dtype, target_at, max_draft + 1 - lane);
    }
    const specv_row r = specv_thread_load_row(&d->rows, row);
    const specv_i_row_outputs o = specv_i_row_outputs_of(d, row, lane, dtype, v != 0);
    if (csr) draft_at = r.first + lane, target_at = draft_at + row;
        /* Position n_draft always stops: it needs no draft and holds the bonus. */
#pragma unroll 1
    for (int base = 0; base <= max_draft; base += 128) {
        if (stop < 0 && (csr || base > 0)) {
            const int left = r.n_draft - base - lane;
            specv_i_load_chunks(draft, 0, d->draft_tokens, dtype, draft_at + base, left);
            specv_i_load_chunks(target, 0, d->target_tokens, dtype, target_at + base,
                                r.readable ? left + 1 : 0);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int chunk = base + 32 * c;
            if (chunk > max_draft) break;
            if (stop < 0) {
                const unsigned all = specv_i_warp_walk(d, &r, &o, row, chunk + lane, draft[c],
                                                       target[c], dtype, 1, status_bits, v);
                if (all) stop = __ffs((int)all) - 1;
            } else if (d->out_tokens && chunk + lane <= max_draft) {
                specv_i_store_token(d->out_tokens, dtype, row * d->out_stride_elems + chunk + lane,
                                    -1);
            }
        }
        if (stop >= 0 && !d->out_tokens) break;
    }
    return stop;
}

/* The same with constants for what the descriptor says; is_short: specv_i_is_short. */
SPECV_DEVFN int specv_i_verify_row(const specv_verify_greedy_desc *d, int row, uint32_t status_bits,
                                   int is_short, int lane, specv_verdict *v) {
    if (d->token_dtype == SPECV_I64)
        return is_short ? specv_i_warp_verify_short(d, row, status_bits, SPECV_I64, lane, v)
                        : specv_i_warp_verify_long(d, row, status_bits, SPECV_I64, lane, v);
    return is_short ? specv_i_warp_verify_short(d, row, status_bits, SPECV_I32, lane, v)
                    : specv_i_warp_verify_long(d, row, status_bits, SPECV_I32, lane, v);
}

/* A1 for one row: verdict, and all outputs of the descriptor for that row. status_bits are added
   to row_status.
   Call: warp; 0 <= row < batch. In: a valid, resolved descriptor. Out: as the descriptor says.
   Cost: see specv_verify_greedy; ceil((k + 1) / 32) ballots at most, 6 shuffles. */
SPECV_DEVFN specv_verdict specv_warp_verify_greedy_row(const specv_verify_greedy_desc *d, int row,
                                                       uint32_t status_bits) {
    specv_verdict v = {};
    const int stop =
        specv_i_verify_row(d, row, status_bits, specv_i_is_short(d), specv_i_lane(), &v);
    v.next_token = __shfl_sync(SPECV_FULL_WARP, (long long)v.next_token, stop);
    v.accepted_len = __shfl_sync(SPECV_FULL_WARP, v.accepted_len, stop);
    v.mismatch = __shfl_sync(SPECV_FULL_WARP, v.mismatch, stop);
    v.finished = __shfl_sync(SPECV_FULL_WARP, v.finished, stop);
    v.status = __shfl_sync(SPECV_FULL_WARP, v.status, stop);
    return v;
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_VERIFY_THREADS)
    specv_verify_greedy_kernel(const __grid_constant__ specv_verify_greedy_task task);
#endif

#endif /* __CUDACC__ */

/* ================================================================================== >>sample

   Verification against what the models say of the whole vocabulary, and the sampler.
     A2-A5, SCORE  specv_verify_sample   one operation with a rule
     A6            rules from TYPICAL on, and what they are told of a request: specv_lossy
     A8            specv_sample          the same without drafts
     A10           fields of both: what of a row may be emitted
     A11           fields of both: what is told of emitted tokens
   Two launches, chained, where p and q are given and one of them as logits; else one; and one more
   where top_k, top_p or min_p is given. Random numbers are named here (tags), so that no two uses
   meet. All sums are over tiles of 1024 ids, in integers; a row put together of its tiles is a
   specv_distribution. For kernels of your own: a warp loads a tile, takes its statistics, merges
   those of a row.
   Needs: >>greedy (descriptor, outputs). */

/* What a model says of the vocabulary: logits, or probabilities that already have everything
   applied (temperature, top-k, penalties). The entry of id x at position i of row b is
   dense  data[b * seq_stride_elems + i * pos_stride_elems + x],
   CSR    data[(row_start[b] + i) * pos_stride_elems + x], for the target row_start[b] + b + i.
   Probabilities should sum to 1. A token drawn from p alone does not mind; where p and q are
   compared, p or q that is off by a factor of 1 + e moves the law of the text by up to e in total
   variation, in each step. Where the kernels know the sum, one off by more than 1e-3 is reported:
   BAD_SUM (the same factor on p and q is neither seen nor harmful). */
typedef enum specv_score_dtype {
    SPECV_LOGITS_F32 = 0,
    SPECV_LOGITS_F16 = 1,
    SPECV_LOGITS_BF16 = 2,
    SPECV_PROBS_F32 = 3
} specv_score_dtype;

/* What PROBS_F32 is where there are filters: weights, from which p is made anew. */
#define SPECV_I_WEIGHTS_F32 4

typedef struct specv_scores {
    const void *data;
    int64_t pos_stride_elems; /* 0 = vocab */
    int64_t seq_stride_elems; /* dense; 0 = positions of a row * pos_stride_elems */
    int32_t dtype;            /* specv_score_dtype */
    uint32_t reserved;        /* must be 0 */
} specv_scores;

/* How a drafted token is judged. p: target's, q: draft's distribution at its position.
   TOKEN    accept while u * q(d) < p(d), then draw from (p - q)+. Leviathan et al. 2023 (arXiv
            2211.17192), Chen et al. 2023 (arXiv 2302.01318). Lossless.
   BLOCK    judge the drafts together: accepts as many or more, the same law of the text. Sun et
            al. 2025 (arXiv 2403.10444).
   COUPLED  the text is argmax of logit / T + Gumbel noise of the seed and the absolute position,
            and a draft is accepted if it is that token: any drafter, batch and number of drafts
            give the same text. Daliri, Musco and Suresh 2024 (arXiv 2408.07978).
   GREEDY   as if every temperature were 0.
   SCORE    accept every draft (SMC-SD corrects by weights, see D1), give its log-probability, draw
            the next token from p. Takes no draft scores.
   A6, lossy: the text has another law than the target's, on purpose. Each is bit for bit another
   rule's where specv_lossy says so, and at temperature 0 is GREEDY. H is the entropy of p, so e^-H
   its geometric mean; "first" is the first id of A10's order, that of the largest p. A draft with
   p = 0 (a mask, a filter) is never accepted. Probabilities are weights, as with filters.
   TYPICAL  accept while d is the first id or p(d) > min(epsilon, alpha e^-H); then the first id.
            Medusa, Cai et al. 2024 (arXiv 2401.10774), whose code puts 1e-5 to each p inside the
            logarithm of H. Needs no random numbers. Takes no draft scores.
   TYPICAL_DRAW  of p the ids with p >= min(epsilon, alpha e^-H) remain, and the first; of them the
            text is drawn with rule COUPLED's noise, and a draft accepted if it is that token.
            TensorRT-LLM's typical acceptance. Log-probabilities are of p. Takes no draft scores.
   THRESHOLD  accept while u * threshold_acc < p(d) or p(d) >= threshold_single, then draw from p
            without d. SGLang's threshold_acc and threshold_single, of a chain. Takes no draft
            scores.
   RELAXED  accept while d is one of the first top_n ids and p(d) >= p(first) - delta, or the first;
            then the first id. TensorRT-LLM's relaxed acceptance. Needs no random numbers. Takes no
            draft scores.
   BOUNDED  accept while u * q(d) < ratio * p(d), then draw from (c p - q)+, where c <= 1 is what
            makes the law of a token clamp(q, c p, ratio * p): nearest to q of all laws that are
            nowhere above ratio * p, and nowhere below c p. Without draft scores q is 1 at the
            draft, and c makes no difference. */
typedef enum specv_rule {
    SPECV_RULE_TOKEN = 0,
    SPECV_RULE_BLOCK = 1,
    SPECV_RULE_COUPLED = 2,
    SPECV_RULE_GREEDY = 3,
    SPECV_RULE_SCORE = 4,
    SPECV_RULE_TYPICAL = 5,
    SPECV_RULE_TYPICAL_DRAW = 6,
    SPECV_RULE_THRESHOLD = 7,
    SPECV_RULE_RELAXED = 8,
    SPECV_RULE_BOUNDED = 9
} specv_rule;

/* A6. What a request's rule is told, each [slot], or null: nobody is told. A number outside its
   range, or NaN, counts as not given, and sets BAD_LOSSY. An array that the rule does not read must
   be null. Where nothing is relaxed, outputs are
     TYPICAL       alpha and epsilon not given, or alpha infinite and epsilon 1: the tokens of
                   GREEDY; log-probabilities are of p all the same
     TYPICAL_DRAW  both not given, or one of them 0: those of COUPLED
     THRESHOLD     1 and 1: those of TOKEN without draft scores
     RELAXED       top_n <= 1: the tokens of GREEDY, as above
     BOUNDED       1: those of TOKEN
   where PROBS_F32 are taken as with filters that keep all. The entropy is a quotient of two integer
   sums over the row, each id's surprise in units of 2^-20 of a bit, so every machine decides alike;
   off from that of a row of exact arithmetic by less than 2^-18 + vocab * 2^-39 bits. */
typedef struct specv_lossy {
    const float *epsilon;          /* TYPICAL, TYPICAL_DRAW: 0..1. Not given: 1 */
    const float *alpha;            /* the same: >= 0. Not given: infinite */
    const float *threshold_single; /* THRESHOLD: 0..1. Not given: 1 */
    const float *threshold_acc;    /* THRESHOLD: 0..1. Not given: 1 */
    const int32_t *top_n;          /* RELAXED. Not given, or below 1: 1. A switch per request */
    const float *delta;            /* RELAXED: 0..1. Not given: 1, top_n alone matters */
    const float *ratio;            /* BOUNDED: 1..2^20. Not given: 1 */
} specv_lossy;

/* Whose random numbers: two uses that must be independent need different streams. A sampler's (A8)
   and a verification's are different ones in any case, so a draft of either method and either of
   the first two streams may be judged by any rule.
   TARGET   the target model's.
   DRAFT    a draft model's; also of a verification whose tokens are drafts for a larger model.
   COUPLED  only for a sampler's method GUMBEL: the noise that rule COUPLED has at that position.
            For plain decoding of the text that this rule writes, and for its drafts, which then
            agree with it most often. Not for drafts that rule BLOCK will judge: the noise of a
            draft behind the last accepted one comes again in the next step. */
typedef enum specv_stream {
    SPECV_STREAM_TARGET = 0,
    SPECV_STREAM_DRAFT = 1,
    SPECV_STREAM_COUPLED = 2
} specv_stream;

/* A10. What a request allows: a mask, and of what that leaves the first ids of the order (score
   descending, id ascending), so that ties are never left to chance:
     top_k  the first k
     top_p  the shortest beginning that has at least p of a mass: of what top_k keeps (order
            TOP_K_TOP_P_MIN_P, Hugging Face's), of what min_p and top_k keep (MIN_P_TOP_K_TOP_P,
            vLLM's), of all that the mask allows (TOP_P_OF_ALL, FlashInfer's "joint")
     min_p  down to the last id whose weight is at least min_p of the largest id's
   All of them hold at once. An id's weight is exp(logit / T), as an integer in units of 2^-40 of
   the largest one's power of two, rounded down; a mass is a sum of those, but where no other limit
   comes before top_p, what probabilities are divided by. A row then is as if every other id's logit
   were -inf, for whatever comes of it: p and q, residuals, noise, log-probabilities, max_prob.
   Of probabilities these are the weights themselves, and where a launch has any filter all rows are
   divided by the sum of what they keep; what is below 2^-126 is 0, and BAD_SUM is not asked.
   Not given, or off (top_k <= 0 or >= vocab, top_p 1, min_p 0, mask_row -1): all ids. top_p 0: the
   first id. At temperature 0 the mask alone matters. */
typedef enum specv_filter_order {
    SPECV_TOP_K_TOP_P_MIN_P = 0,
    SPECV_MIN_P_TOP_K_TOP_P = 1,
    SPECV_TOP_P_OF_ALL = 2
} specv_filter_order;

typedef struct specv_filters {
    const uint32_t *mask;      /* [num_mask_rows][ceil(vocab / 32)], or null: bit x % 32 of word
                                  x / 32 says whether id x is allowed */
    const int32_t *mask_row;   /* [batch]: row of position 0, those of the others follow; -1: all
                                  ids are allowed. Null: rows as the scores' with the smallest
                                  strides */
    const int32_t *top_k;      /* [slot], or null */
    const float *top_p;        /* [slot], or null */
    const float *min_p;        /* [slot], or null */
    int64_t mask_stride_words; /* 0 = ceil(vocab / 32) */
    int32_t num_mask_rows;     /* 0 = enough, without mask_row */
    int32_t order;             /* specv_filter_order */
} specv_filters;

/* A11. What is told of every emitted token beside itself: of accepted drafts, then of next_token.
   Ids are in the order of A10; those of the law alone count, whose p is not 0 (of probabilities:
   not below 2^-126).
   logprob alone of the law that tokens are drawn from comes with the verification; whatever else is
   asked costs two more launches, which read the rows of the emitted tokens once more, and needs
   out_tokens (A8: token).
   A7: of the tokens on the path, then of next_token, each at the node behind which it was emitted;
   max_depth stands for max_draft. Whatever is asked costs the two launches, and needs out_tokens
   and path. */
#define SPECV_MAX_TOP 32

typedef struct specv_emitted {
    float *logprob;         /* out [batch][max_draft + 1], or null: ln p(token); 0 behind the last
                               one, and of a bonus_token */
    int32_t *rank;          /* out, the same, or null: 1 + how many ids come before the token; 0
                               where logprob has none */
    int32_t *top_id;        /* out [batch][max_draft + 1][max_top], or null: the likeliest ids; -1
                               behind the last */
    float *top_logprob;     /* out, the same, or null: theirs; -infinity behind the last */
    const int32_t *num_top; /* [slot], or null: max_top. How many ids the request is told: those of
                               0..max_top */
    int32_t max_top;        /* 0..SPECV_MAX_TOP */
    int32_t raw;            /* 0 = of the law that the position has, with its temperature and
                               filters; 1 = of the scores at temperature 1, without filters */
} specv_emitted;

/* A2 to A5. Verification against what the models say of the whole vocabulary. In `verify`, batch,
   drafts, outputs and EOS are as in A1; vocab must be set; target_tokens must be null. */
typedef struct specv_verify_sample_desc {
    specv_verify_greedy_desc verify;
    specv_scores target;      /* max_draft + 1 positions a row; with bonus_token max_draft */
    specv_scores draft;       /* max_draft positions a row, or data null: q is 1 at the draft */
    const void *bonus_token;  /* [batch], or null: what follows drafts that are all accepted was
                                drawn elsewhere, and has no target position here: target and filters
                                are laid out as the draft's. Its logprob and lse are 0 */
    const float *temperature; /* [slot], or null: 1; 0 = greedy. Of probs only 0 counts */
    const float *draft_temperature; /* [slot], or null: temperature; for draft logits */
    const uint64_t *seed;        /* [slot]; null with rules GREEDY, TYPICAL and RELAXED, and where
                                    uniforms replace it: both (TOKEN, BLOCK, THRESHOLD, BOUNDED),
                                    sample_uniform (SCORE, or max_draft 0). The host cannot see
                                    temperatures: that all are 0 is no reason */
    const int32_t *position;     /* [slot]: where in the text the row's position 0 is. What grows
                                       by the emitted tokens serves: cache_len, before B3. One that
                                       stands still draws the same numbers in every replay */
    const float *accept_uniform; /* in [0, 1), laid out as draft_tokens, or null: from seed. Given,
                                    it wins; seed then serves what has no uniform */
    const float *sample_uniform; /* the same, [batch]: for the token behind the drafts */
    float *logprob;  /* out [batch], or null; ln p(next_token) of the target, 0 without a token */
    float *lse;      /* out [batch], or null; ln sum exp(logit / T) where next_token came from; at
                       temperature 0 the largest logit; 0 for probabilities */
    float *max_prob; /* max_draft 0: out [batch], or null; as in specv_sample_desc */
    float *target_logprob; /* rule SCORE: out [batch][max_draft], or null; ln p(draft), -infinity
                              too; 0 behind the last draft that is accepted */
    void *scratch;         /* 16-byte aligned; one per stream, its tickets 0: SPECV_TICKET_BYTES */
    int64_t scratch_bytes; /* specv_verify_sample_scratch_bytes(batch, max_draft, vocab) suffice */
    int32_t rule;          /* specv_rule */
    int32_t num_sms;       /* 0 = ask the runtime for the current device */
    int32_t step_row;      /* random numbers as if position 0 were this position of its step */
    int32_t stream;        /* specv_stream: TARGET or DRAFT; rule COUPLED has its own */
    specv_emitted emitted;
    specv_filters filters; /* of the target; of the draft model draft_filters. q must be what the
                              draft was drawn from: its filters too */
    specv_filters draft_filters;
    specv_lossy lossy; /* rules from TYPICAL on */
    uint32_t reserved; /* must be 0 */
    uint32_t canary1;
} specv_verify_sample_desc;

/* A8. One token per row, drawn from the scores: CDF by one uniform, GUMBEL by noise on each id.
   With GUMBEL and stream COUPLED it is A5 without drafts. */
typedef enum specv_sample_method {
    SPECV_SAMPLE_CDF = 0,
    SPECV_SAMPLE_GUMBEL = 1
} specv_sample_method;

typedef struct specv_sample_desc {
    uint32_t canary0;
    int32_t token_dtype;       /* specv_dtype */
    const int32_t *num_active; /* as in specv_rows */
    const void *slot;          /* as in specv_rows */
    specv_scores scores;       /* one position a row; seq_stride_elems is the stride of rows */
    const float *temperature;  /* [slot], or null: 1; 0 = greedy. Of probs only 0 counts */
    const uint64_t *seed;      /* [slot]; null only with CDF and uniform */
    const int32_t *position;   /* [slot]: absolute position of the step's first token; as above */
    specv_filters filters;     /* mask: one row each */
    const float *uniform;  /* method CDF: in [0, 1), [batch], or null: from seed. Given, it wins */
    void *token;           /* out [batch], token_stride_elems apart; -1 if there is none */
    float *logprob;        /* out [batch], or null; ln p(token), 0 without a token */
    specv_emitted emitted; /* max_draft 0 */
    float *lse;            /* out [batch], or null; as in specv_verify_sample_desc */
    float *max_prob;       /* out [batch], or null; the largest probability of the law that the
                                  token was drawn from: 1 at temperature 0, 0 if there is no token.
                                  Unlike the token's own probability it is known before the token
                                  is: the confidence that C5 needs */
    uint32_t *row_status;  /* out [batch], or null */
    void *scratch;         /* one per stream, as in specv_verify_sample_desc */
    int64_t scratch_bytes; /* specv_sample_scratch_bytes(batch, vocab) suffice */
    int64_t vocab;
    int64_t token_stride_elems; /* 0 = 1; for column j of drafts [batch][n]: token + j, stride n */
    int32_t batch;
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t method;      /* specv_sample_method */
    int32_t num_sms;     /* 0 = ask the runtime for the current device */
    int32_t step_row;    /* which token of its step this is: drafts 0, 1, 2, ... */
    int32_t stream;      /* specv_stream */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_sample_desc;

/* What a number is for: the last word of the counter. The others are the absolute position of the
   step's first token, the position in the step, and an index. A row's number must not depend on
   how many drafts were accepted, and looking at a row must not use up the number of a later step:
   hence position and row are words of their own. Coupled noise is the exception, its counter is
   (position + row, 0, id / 4), because it must be the same for whoever asks for that position. */
enum {
    SPECV_TAG_ACCEPT = 0,
    SPECV_TAG_SAMPLE = 1, /* residual or bonus */
    SPECV_TAG_DRAW = 2,   /* a sampler's, by CDF */
    SPECV_TAG_COUPLED = 3,
    SPECV_TAG_RESAMPLE = 4,
    SPECV_TAG_NOISE = 5,     /* a sampler's, by noise */
    SPECV_TAG_OF_DRAFT = 16, /* in addition: of stream DRAFT */
    SPECV_TAG_FINER = 32     /* in addition: further bits of noise */
};

/* What specv_verify_sample_desc has in `stream` when it stands for a sampler, in addition; or for
   nodes of trees, of which the rows are cut and no more. */
#define SPECV_I_SAMPLER 4
#define SPECV_I_OF_TREE 8

SPECV_NUMFN uint32_t specv_i_tag(uint32_t use, int stream) {
    return (stream & 3) == SPECV_STREAM_DRAFT ? use + SPECV_TAG_OF_DRAFT : use;
}

SPECV_NUMFN uint32_t specv_i_draw_tag(int stream) {
    return specv_i_tag(stream & SPECV_I_SAMPLER ? SPECV_TAG_DRAW : SPECV_TAG_SAMPLE, stream);
}

/* Sums over a tile keep these units; rows are put together of tiles in units of 2^-40. */
#define SPECV_I_FINER_PROBS 10

/* Do sums of p and q that should be equal, or p's and 1, differ by more than 1e-3? */
SPECV_NUMFN int specv_i_bad_sum(uint64_t sum, uint64_t expected) {
    const uint64_t tolerance = 1125899906842u; /* 2^50 / 1000 */
    return sum - expected + tolerance > 2 * tolerance;
}

/* Where the noise of a position comes from: four ids share a block of the generator. */
typedef struct specv_noise {
    uint64_t seed;
    uint32_t position, row; /* of the counter */
    uint32_t tag;
} specv_noise;

SPECV_NUMFN specv_random specv_noise_words(const specv_noise *noise, uint32_t id) {
    return specv_philox(noise->seed, noise->position, noise->row, id / 4, noise->tag);
}

/* Their further bits, which one word in 2^24 needs. */
SPECV_NUMFN specv_random specv_noise_finer_words(const specv_noise *noise, uint32_t id) {
    return specv_philox(noise->seed, noise->position, noise->row, id / 4,
                        noise->tag + SPECV_TAG_FINER);
}

/* log2 of a weight plus its noise, with 24 bits after the point: the largest one is the sample. */
SPECV_NUMFN int64_t specv_i_score(int32_t n, float f, int32_t noise) {
    return (int64_t)n * 16777216 + specv_i_fixed24(f) + noise;
}

/* The noise of a word x is 32 - L, L being the logarithm that is in the bits of (float)x (linear
   between powers of two), up to an error that is far smaller than the gaps between the best ids.
   v = (x + 1/2) / 2^32; log2(x) - 0.0861 <= L <= log2(x) + 2^-23. Then
   -ln(1 - v) >= v:          noise <= 32 - log2(x) <= 32 - L + 2^-23, with further bits of v too;
   -ln(1 - v) <= 2 ln(2) v:  noise >= 32 - log2(x + 1/2) - 0.4713 >= 32 - L - 0.5603, for v up to
   1/2 (a chord of a convex function) and x >= 256, where 1/2 adds 0.0029 at most.
   In units of 2^-10, with n and f of the weight rounded (1/2), L cut off (1), the fixed point of
   score and noise (below 1): a score is at most this bound, and at least SPECV_I_BOUND_WIDTH less
   where specv_i_bound_is_tight. All words were tried. */
#define SPECV_I_BOUND_WIDTH 584

SPECV_NUMFN int32_t specv_i_score_bound(int32_t n, float f, uint32_t x) {
    const float rounded = specv_fma(f, 1024.f, SPECV_I_ROUNDER);
    const int32_t y = n * 1024 + (int32_t)(specv_float_bits(rounded) - SPECV_I_ROUNDER_BITS);
    return y + (159 * 1024 + 2) - (int32_t)(specv_float_bits((float)x) >> 13);
}

SPECV_NUMFN int specv_i_bound_is_tight(uint32_t x) { return x - 256 < 0x80000000u; }

/* ---- filters */

/* What is asked of a request's rows. */
typedef struct specv_i_limits {
    uint64_t top_p; /* in units of 2^-64 */
    float min_p;    /* 0: off */
    int32_t top_k;  /* vocab: off */
    int32_t has_top_p, order;
} specv_i_limits;

SPECV_NUMFN int specv_i_is_part(float p) {
    return specv_float_bits(p) <= 0x3f800000u || specv_float_bits(p) == 0x80000000u;
}

/* A bad number counts as not given. */
SPECV_NUMFN specv_i_limits specv_i_limits_of(int32_t top_k, float top_p, float min_p, int order,
                                             int64_t vocab, uint32_t *status) {
    specv_i_limits l;
    if (!specv_i_is_part(top_p)) top_p = 1, *status |= SPECV_ROW_BAD_FILTER;
    if (!specv_i_is_part(min_p)) min_p = 0, *status |= SPECV_ROW_BAD_FILTER;
    l.top_k = top_k <= 0 || top_k >= vocab ? (int32_t)vocab : top_k;
    l.has_top_p = specv_i_less(top_p, 1.f);
    l.top_p = l.has_top_p ? specv_uniform_bits(top_p) : 0;
    l.min_p = min_p, l.order = order;
    return l;
}

SPECV_NUMFN int specv_i_limits_are_off(const specv_i_limits *l, int64_t vocab) {
    return l->top_k >= vocab && !l->has_top_p && !specv_i_less(0.f, l->min_p);
}

/* Is top_p a part of what the other limits keep, not of the whole row? */
SPECV_NUMFN int specv_i_is_of_kept(const specv_i_limits *l, int64_t vocab) {
    return (l->order != SPECV_TOP_P_OF_ALL && l->top_k < vocab) ||
           (l->order == SPECV_MIN_P_TOP_K_TOP_P && specv_i_less(0.f, l->min_p));
}

/* The smallest integer that is at least part * 2^-64 of sum, and 1. */
SPECV_NUMFN uint64_t specv_i_part_of(uint64_t part, uint64_t sum) {
    const uint64_t whole = specv_i_mul_high(part, sum) + (part * sum != 0);
    return whole ? whole : 1;
}

/* What min_p asks of a weight, where the largest is this. */
SPECV_NUMFN uint64_t specv_i_least_weight(float min_p, uint64_t largest) {
    return specv_i_less(min_p, 1.f) ? specv_i_part_of(specv_uniform_bits(min_p), largest) : largest;
}

/* Has it anything to do, beyond a mask or at all? */
SPECV_NUMFN int specv_i_cuts(const specv_filters *f) { return f->top_k || f->top_p || f->min_p; }

SPECV_NUMFN int specv_i_has_filters(const specv_filters *f) { return f->mask || specv_i_cuts(f); }

SPECV_NUMFN int specv_i_is_filtered(const specv_verify_sample_desc *d) {
    return specv_i_has_filters(&d->filters) || specv_i_has_filters(&d->draft_filters);
}

/* ---- lossy rules */

SPECV_NUMFN int specv_i_is_lossy(int rule) { return rule > SPECV_RULE_SCORE; }

/* Are probabilities weights? */
SPECV_NUMFN int specv_i_weighs_probs(const specv_verify_sample_desc *d) {
    return specv_i_is_filtered(d) || specv_i_is_lossy(d->rule);
}

/* Does it compare a draft with the token that the position would emit, and emit that? */
SPECV_NUMFN int specv_i_compares(int rule) {
    return rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_TYPICAL_DRAW ||
           rule == SPECV_RULE_RELAXED;
}

/* What a request's rule is told, with what counts in place of what is not. */
typedef struct specv_i_told {
    float epsilon, alpha; /* THRESHOLD: single and acc; RELAXED: delta in epsilon; BOUNDED: ratio in
                             alpha */
    int32_t top_n;
    uint32_t status;
} specv_i_told;

SPECV_NUMFN float specv_i_told_number(const float *given, int32_t slot, float low, float high,
                                      float otherwise, uint32_t *status) {
    float x = otherwise;
    if (!given) return x;
    x = given[slot];
    if (!specv_i_less(x, low) && !specv_i_less(high, x) && !specv_i_is_nan(x))
        return specv_i_add(x, 0.f); /* no -0 */
    *status |= SPECV_ROW_BAD_LOSSY;
    return otherwise;
}

SPECV_NUMFN specv_i_told specv_i_told_of(const specv_lossy *f, int rule, int32_t slot) {
    const float infinite = specv_bits_float(0x7f800000u);
    specv_i_told t = {1, 1, 1, 0};
    if (rule == SPECV_RULE_THRESHOLD) {
        t.epsilon = specv_i_told_number(f->threshold_single, slot, 0, 1, 1, &t.status);
        t.alpha = specv_i_told_number(f->threshold_acc, slot, 0, 1, 1, &t.status);
    } else if (rule == SPECV_RULE_RELAXED) {
        t.epsilon = specv_i_told_number(f->delta, slot, 0, 1, 1, &t.status);
        if (f->top_n) t.top_n = f->top_n[slot];
    } else if (rule == SPECV_RULE_BOUNDED) {
        t.alpha = specv_i_told_number(f->ratio, slot, 1, 1048576, 1, &t.status);
    } else {
        t.epsilon = specv_i_told_number(f->epsilon, slot, 0, 1, 1, &t.status);
        t.alpha = specv_i_told_number(f->alpha, slot, 0, infinite, infinite, &t.status);
        if (rule == SPECV_RULE_TYPICAL_DRAW && !f->epsilon && !f->alpha) t.epsilon = 0;
    }
    return t;
}

/* -log2 of a weight relative to 2^(n + 1), n of the row's largest, in units of 2^-20: above 0. */
SPECV_NUMFN int64_t specv_i_surprise(const specv_weight *w, int32_t n) {
    return ((int64_t)n - w->n + 1) * 1048576 - specv_i_fixed24(w->f) / 16;
}

/* That times the weight. Up to 2^61; over a row up to 2^63 of the first: for 2^22 ids of weight
   2^-x and x + 1 bits no x gives more. */
SPECV_NUMFN uint64_t specv_i_weighed_surprise(uint64_t units, int64_t surprise) {
    return units ? (units * (uint64_t)surprise) >> 20 : 0;
}

/* Up to which surprise a probability is at least alpha e^-H: the mean of all less log2(alpha), both
   relative to the same. sum, weighed: over the row. */
SPECV_NUMFN double specv_i_surprise_limit(uint64_t sum, uint64_t weighed, float alpha) {
    double limit = specv_i_div_double((double)weighed, (double)sum);
    int32_t exponent;
    float fraction;
    if (specv_float_bits(alpha) >= 0x7f800000u) return -1;
    if (specv_float_bits(alpha) < 0x00800000u) return 4503599627370496.; /* 0, or as good as */
    fraction = specv_i_log2(alpha, &exponent);
    limit = specv_i_add_double(limit, -(double)exponent);
    limit = specv_i_add_double(limit, -specv_i_double(fraction));
    return specv_i_mul_double(limit, 1048576.);
}

/* BOUNDED: the next c on the way to that at which the sum of (c p - q)+ is what was rejected. p, q:
   sums over the ids where c p > q, as is `rejected` in units of 2^-50. The sum is convex in c, and
   Newton's steps come from above; the last one is the first that would not go down. */
#define SPECV_I_RATIO_STEPS 40

SPECV_NUMFN float specv_i_next_ratio(float c, uint64_t rejected, uint64_t p, uint64_t q) {
    float next;
    if (p == 0) return c;
    next = specv_i_float(specv_i_div_double((double)(rejected + q), (double)p));
    return specv_i_less(next, c) ? next : c;
}

/* ---- tiles of the vocabulary

   Statistics are kept per tile of SPECV_TILE_IDS consecutive ids: what a warp holds in registers.
   The size is part of the arithmetic (a tile's sum is relative to its own largest weight). */
#define SPECV_TILE_IDS 1024

typedef struct specv_tile {
    uint64_t sum;  /* of the weights, in units of 2^(n - 40), n of the largest logit; 0: none */
    int64_t score; /* coupled: the largest score */
    float max;     /* the largest logit (or probability); -inf: none */
    uint32_t id;   /* lowest id that has it (coupled: that has the score); bit 31: a NaN is there */
} specv_tile;

#define SPECV_I_NAN_BIT  0x80000000u
#define SPECV_I_NO_SCORE (-((int64_t)1 << 62))

/* A row put together from its tiles. */
enum { SPECV_SOFTMAX, SPECV_ONE_HOT, SPECV_NO_TOKEN };

typedef struct specv_distribution {
    uint64_t sum;  /* of the weights in units of 2^(n - 40); SOFTMAX only */
    float inverse; /* p = specv_weight_float * (inverse + inverse_low) */
    float inverse_low;
    int32_t n;       /* of the largest logit; SOFTMAX only */
    int32_t id;      /* ONE_HOT: the only token. Coupled: the choice */
    int32_t kind;    /* SOFTMAX, ONE_HOT, NO_TOKEN */
    uint32_t status; /* SPECV_ROW_* bits */
    float max;       /* the largest logit */
    uint32_t reserved;
} specv_distribution;

/* Where scratch memory goes; all offsets in bytes. Rows of the target are numbered like its
   scores, rows of the draft follow them. */
typedef struct specv_i_scratch {
    int64_t target_rows, draft_rows; /* positions with statistics of their own */
    int64_t plans, prefixes, rows, least, tiles, residuals, opened, lanes, bytes;
    int32_t num_tiles; /* of one row */
} specv_i_scratch;

#define SPECV_I_LANES        128 /* of a tile, eight ids each */
#define SPECV_I_OPENED_BYTES 640 /* specv_i_opened, and room */

/* How a row ended, while it is being decided; what the first pass leaves for the second. */
typedef struct specv_i_outcome {
    int32_t accepted, usable, ends_with_eos;
    int32_t next; /* SPECV_I_* below */
    float prefix; /* P of the block rule at the position of the token */
    uint32_t status;
} specv_i_outcome;

enum {
    SPECV_I_NOTHING,      /* inert or unreadable, or all is done */
    SPECV_I_NO_TOKEN,     /* an accepted EOS ended the row */
    SPECV_I_BONUS,        /* the token is the caller's */
    SPECV_I_TOKEN,        /* the token is known */
    SPECV_I_DRAW,         /* draw it from p at position `accepted` */
    SPECV_I_DRAW_WITHOUT, /* the same, but not the draft there */
    SPECV_I_RESIDUAL      /* from (prefix p - q)+: needs a second pass over the scores */
};

/* Of a tile, in units of 2^-50. gain: what the token is drawn from, (P p - q)+ or p. rest: with q
   the sum of (q - P p)+, else the bits of the largest p; bit 63: a NaN is there. */
typedef struct specv_i_residual {
    uint64_t gain, rest;
} specv_i_residual;

/* Scratch memory, typed. */
typedef struct specv_i_memory {
    uint32_t *tickets;           /* [SPECV_TICKET_ROWS][2]: of the first and the second pass */
    specv_i_outcome *plans;      /* [batch]: what the second pass has to finish */
    specv_distribution *rows;    /* target rows, then draft rows */
    specv_tile *tiles;           /* [rows][num_tiles] */
    specv_i_residual *residuals; /* [target rows][num_tiles] */
    float *prefixes;             /* [target rows]: P of the block rule before each position */
    uint64_t *least;             /* [rows]: rank key of the last id that filters keep; 0: all */
    char *opened;                /* [batch], of SPECV_I_OPENED_BYTES: requests with filters */
    unsigned char *lanes;        /* [rows][num_tiles][SPECV_I_LANES]: specv_i_away */
    int64_t target_rows;
    int32_t num_tiles;
    int32_t tiles_of_block; /* a run of a row's, in a first pass over logits; even */
    int32_t columns;     /* of what is told of emitted tokens: max_draft + 1; A7: max_depth + 1 */
    const int32_t *path; /* [batch][columns]: the nodes of a tree that emitted them; else null */
} specv_i_memory;

/* The kernels' parameter. The launchers fill it in. */
typedef struct specv_sample_task {
    specv_verify_sample_desc d; /* resolved */
    specv_i_memory memory;
    int32_t sides; /* SPECV_I_OF_*: whose logits this launch reads */
} specv_sample_task;

/* Positions of a row of target scores. */
SPECV_NUMFN int64_t specv_i_positions(const specv_verify_sample_desc *d) {
    return (int64_t)d->verify.rows.max_draft + !d->bonus_token;
}

/* Noise at position j of a request: coupled, or a sampler's own. */
SPECV_NUMFN specv_noise specv_i_noise_of(const specv_verify_sample_desc *d, uint64_t seed,
                                         uint32_t position, int j) {
    const uint32_t row = (uint32_t)(d->step_row + j);
    const int own = d->stream == (SPECV_I_SAMPLER | SPECV_STREAM_TARGET) ||
                    d->stream == (SPECV_I_SAMPLER | SPECV_STREAM_DRAFT);
    specv_noise noise;
    noise.seed = seed;
    noise.position = own ? position : position + row;
    noise.row = own ? row : 0;
    noise.tag = own ? specv_i_tag(SPECV_TAG_NOISE, d->stream) : (uint32_t)SPECV_TAG_COUPLED;
    return noise;
}

/* The normalizer that turns floats of weights into probabilities. One float of it would shift all
   probabilities of a row to the same side. */
SPECV_NUMFN void specv_i_set_inverse(specv_distribution *row) {
    double inverse, rest;
#if defined(__CUDA_ARCH__)
    asm("{\n\t.reg .f64 d;\n\tcvt.rn.f64.u64 d, %1;\n\tdiv.rn.f64 %0, 0d4100000000000000, d;\n\t}"
        : "=d"(inverse)
        : "l"(row->sum));
#else
    inverse = 131072.0 / (double)row->sum;
#endif
    row->inverse = specv_i_float(inverse);
    rest = specv_i_add_double(inverse, specv_i_double(specv_i_negate(row->inverse)));
    row->inverse_low = specv_i_float(rest);
}

/* p of an id with this logit, in a row of kind SOFTMAX. */
SPECV_NUMFN float specv_i_softmax_p(const specv_distribution *row, const specv_scale *s,
                                    float logit) {
    specv_weight w = specv_softmax_weight(specv_i_max(logit, s->floor), s);
    float weight = specv_weight_float(&w, row->n);
    return specv_fma(weight, row->inverse, specv_i_mul(weight, row->inverse_low));
}

/* p of an id with this logit. */
SPECV_NUMFN float specv_probability(const specv_distribution *row, const specv_scale *s,
                                    float logit, int32_t id) {
    if (row->kind != SPECV_SOFTMAX) return row->kind == SPECV_ONE_HOT && id == row->id ? 1.f : 0.f;
    return specv_i_softmax_p(row, s, logit);
}

/* The largest p of a row that has a token, from its largest score; what is above 1 is rounding. */
SPECV_NUMFN float specv_i_largest_p(const specv_distribution *row, const specv_scale *s, int probs,
                                    float largest) {
    if (row->kind == SPECV_ONE_HOT) return 1.f;
    if (!probs) largest = specv_probability(row, s, largest, row->id);
    return specv_i_less(1.f, largest) ? 1.f : largest;
}

/* log2 of the sum of all weights. */
SPECV_NUMFN double specv_i_log2_sum(const specv_distribution *row) {
    int32_t exponent;
    float fraction = specv_i_log2((float)row->sum, &exponent);
    return specv_i_add_double((double)(row->n + exponent - 40), specv_i_double(fraction));
}

/* ln of the sum of exp(logit / T) over the row, and of the probability of one logit in it. Where
   there is no softmax (temperature 0, an empty row) both are 0; there the output lse of A2 to A8 is
   the row's largest logit. */
SPECV_NUMFN float specv_log_sum_exp(const specv_distribution *row) {
    return row->kind == SPECV_SOFTMAX ? specv_i_ln(0, 0.f, -specv_i_log2_sum(row)) : 0.f;
}

SPECV_NUMFN float specv_log_probability(const specv_distribution *row, const specv_scale *s,
                                        float logit) {
    specv_weight w;
    if (row->kind != SPECV_SOFTMAX) return 0.f;
    w = specv_softmax_weight(specv_i_max(logit, s->floor), s);
    return specv_i_ln(w.n, w.f, specv_i_log2_sum(row));
}

/* ln p(id), also where it is -infinity. score: what the model said of id. */
SPECV_NUMFN float specv_i_log_p(const specv_distribution *row, const specv_scale *s, int probs,
                                float score, int32_t id) {
    const float none = specv_bits_float(0xff800000u);
    if (row->kind != SPECV_SOFTMAX) return row->kind == SPECV_ONE_HOT && id == row->id ? 0.f : none;
    /* Probabilities below 2^-126 are as good as 0. */
    if (!specv_i_less(probs ? specv_bits_float(0x007fffffu) : none, score)) return none;
    if (probs) {
        int32_t exponent;
        float fraction = specv_i_log2(score, &exponent);
        return specv_i_ln(exponent, fraction, 0);
    }
    return specv_log_probability(row, s, score);
}

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN size_t specv_i_score_bytes(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 2 : 4;
}

SPECV_HOSTFN int specv_i_scores_validate(const specv_scores *s, const specv_rows *r, int64_t vocab,
                                         int64_t positions) {
    int64_t pos_stride = s->pos_stride_elems ? s->pos_stride_elems : vocab;
    int64_t rows = (r->batch ? r->batch : 1) * positions; /* batch 0: resolving computes a stride */
    if (specv_i_is_csr(r)) rows = r->num_draft_tokens + (positions > r->max_draft ? r->batch : 0);
    SPECV_CHECK(s->reserved == 0, CANARY);
    SPECV_CHECK(s->dtype >= SPECV_LOGITS_F32 && s->dtype <= SPECV_PROBS_F32, SCORE_DTYPE);
    SPECV_CHECK(pos_stride >= vocab, SCORE_STRIDE);
    SPECV_CHECK(specv_i_fits(rows * 4, pos_stride, 0), SIZE);
    if (s->seq_stride_elems) {
        SPECV_CHECK(!specv_i_is_csr(r), SCORE_STRIDE);
        SPECV_CHECK(s->seq_stride_elems >= (positions ? (positions - 1) * pos_stride + vocab : 0),
                    SCORE_STRIDE);
        SPECV_CHECK(specv_i_fits((int64_t)r->batch * 4, s->seq_stride_elems, 0), SIZE);
    }
    return SPECV_OK;
}

/* The words of a row of mask bits: where only ids are read, vocab may be any number. */
SPECV_HOSTFN int64_t specv_i_row_words(int64_t vocab) { return vocab / 32 + (vocab % 32 != 0); }

/* Does it need launches of its own? */
SPECV_HOSTFN int specv_i_tells(const specv_emitted *e) {
    return e->rank || e->top_id || e->top_logprob || (e->raw && e->logprob);
}

SPECV_HOSTFN int specv_i_emitted_validate(const specv_emitted *e) {
    SPECV_CHECK(specv_i_aligned(e->logprob, 4) && specv_i_aligned(e->rank, 4), LOGPROB);
    SPECV_CHECK(specv_i_aligned(e->top_id, 4) && specv_i_aligned(e->top_logprob, 4), LOGPROB);
    SPECV_CHECK(specv_i_aligned(e->num_top, 4), LOGPROB);
    SPECV_CHECK(e->max_top >= 0 && e->max_top <= SPECV_MAX_TOP, LOGPROB);
    SPECV_CHECK(e->max_top > 0 || (!e->top_id && !e->top_logprob), LOGPROB);
    SPECV_CHECK(e->raw == 0 || e->raw == 1, LOGPROB);
    return SPECV_OK;
}

/* positions: as of the scores. */
SPECV_HOSTFN int specv_i_filters_validate(const specv_filters *f, const specv_scores *s,
                                          const specv_rows *r, int64_t vocab, int64_t positions) {
    const int64_t words = specv_i_row_words(vocab);
    int64_t rows = specv_i_is_csr(r) ? r->num_draft_tokens : r->batch * positions;
    SPECV_CHECK(specv_i_aligned(f->top_k, 4) && specv_i_aligned(f->top_p, 4), FILTERS);
    SPECV_CHECK(specv_i_aligned(f->min_p, 4), FILTERS);
    SPECV_CHECK(f->order >= SPECV_TOP_K_TOP_P_MIN_P && f->order <= SPECV_TOP_P_OF_ALL, FILTERS);
    SPECV_CHECK(!specv_i_has_filters(f) || s->data || r->batch == 0, FILTERS);
    SPECV_CHECK(specv_i_aligned(f->mask, 4) && specv_i_aligned(f->mask_row, 4), MASK);
    SPECV_CHECK(f->num_mask_rows >= 0 && f->mask_stride_words >= 0, MASK);
    SPECV_CHECK(f->mask || (!f->mask_row && !f->num_mask_rows && !f->mask_stride_words), MASK);
    if (!f->mask) return SPECV_OK;
    if (specv_i_is_csr(r) && positions > r->max_draft) rows += r->batch;
    SPECV_CHECK(!f->mask_stride_words || f->mask_stride_words >= words, MASK);
    SPECV_CHECK(!f->mask_row || f->num_mask_rows || r->batch == 0, MASK);
    SPECV_CHECK(f->mask_row || !f->num_mask_rows || f->num_mask_rows >= rows, MASK);
    if (f->mask_row) rows = f->num_mask_rows;
    SPECV_CHECK(specv_i_fits(4 * (rows ? rows : 1),
                             words > f->mask_stride_words ? words : f->mask_stride_words, 0),
                SIZE);
    return SPECV_OK;
}

/* rows: of the target, of draft logits (or 0), of residuals (or 0). lists: is there something to be
   listed of the rows, the kept or the likeliest ids? */
SPECV_HOSTFN specv_i_scratch specv_i_scratch_for(int64_t batch, int64_t target_rows,
                                                 int64_t draft_rows, int64_t residual_rows,
                                                 int64_t vocab, int lists) {
    const int64_t rows = target_rows + draft_rows;
    specv_i_scratch s;
    s.num_tiles = (int32_t)((vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS);
    s.target_rows = target_rows;
    s.draft_rows = draft_rows;
    s.plans = SPECV_TICKET_BYTES;
    s.prefixes = s.plans + batch * (int64_t)sizeof(specv_i_outcome);
    s.rows = (s.prefixes + target_rows * 4 + 15) / 16 * 16;
    s.least = s.rows + rows * (int64_t)sizeof(specv_distribution);
    s.tiles = s.least + rows * 8;
    s.residuals = s.tiles + rows * s.num_tiles * (int64_t)sizeof(specv_tile);
    s.opened = s.residuals + residual_rows * s.num_tiles * (int64_t)sizeof(specv_i_residual);
    s.lanes = s.opened + (lists ? batch * SPECV_I_OPENED_BYTES : 0);
    s.bytes = s.lanes + (lists ? rows * s.num_tiles * SPECV_I_LANES : 0);
    return s;
}

SPECV_HOSTFN int specv_i_lists(const specv_verify_sample_desc *d) {
    return specv_i_cuts(&d->filters) || specv_i_cuts(&d->draft_filters) || d->emitted.top_id ||
           d->emitted.top_logprob;
}

/* What a descriptor itself needs. */
SPECV_HOSTFN specv_i_scratch specv_i_scratch_layout(const specv_verify_sample_desc *d) {
    const specv_rows *r = &d->verify.rows;
    const int64_t rows = specv_i_is_csr(r) ? r->num_draft_tokens + r->batch
                                           : (int64_t)r->batch * ((int64_t)r->max_draft + 1);
    const int draft_logits =
        d->draft.data && (d->draft.dtype != SPECV_PROBS_F32 || specv_i_weighs_probs(d));
    const int residuals = d->draft.data || d->target.dtype == SPECV_PROBS_F32;
    return specv_i_scratch_for(r->batch, rows, draft_logits ? rows : 0, residuals ? rows : 0,
                               d->verify.vocab, specv_i_lists(d));
}

/* Bytes of scratch memory that suffice for every step of at most batch rows, max_draft drafts and
   vocab ids, whatever its rule, types and layout; or SPECV_ERR_*. Two launches that may run at the
   same time need scratch memory of their own. */
SPECV_HOSTAPI int64_t specv_verify_sample_scratch_bytes(int64_t batch, int64_t max_draft,
                                                        int64_t vocab) {
    const int64_t most = INT64_C(1) << 30;
    int64_t rows;
    SPECV_CHECK(batch >= 0, BATCH);
    SPECV_CHECK(max_draft >= 0, MAX_DRAFT);
    SPECV_CHECK(batch <= most && max_draft <= INT32_MAX && batch * (max_draft + 1) <= most,
                TOO_LARGE);
    SPECV_CHECK(vocab >= 1 && vocab <= 1 << 22, VOCAB);
    rows = batch * (max_draft + 1);
    return specv_i_scratch_for(batch, rows, rows, rows, vocab, 1).bytes;
}

/* The same for A8. */
SPECV_HOSTAPI int64_t specv_sample_scratch_bytes(int64_t batch, int64_t vocab) {
    const int64_t enough = specv_verify_sample_scratch_bytes(batch, 0, vocab);
    return enough < 0 ? enough : specv_i_scratch_for(batch, batch, 0, batch, vocab, 1).bytes;
}

SPECV_HOSTFN int specv_i_lossy_validate(const specv_lossy *f, int rule) {
    const int typical = rule == SPECV_RULE_TYPICAL || rule == SPECV_RULE_TYPICAL_DRAW;
    SPECV_CHECK(specv_i_aligned(f->epsilon, 4) && specv_i_aligned(f->alpha, 4), LOSSY);
    SPECV_CHECK(specv_i_aligned(f->threshold_single, 4), LOSSY);
    SPECV_CHECK(specv_i_aligned(f->threshold_acc, 4), LOSSY);
    SPECV_CHECK(specv_i_aligned(f->top_n, 4) && specv_i_aligned(f->delta, 4), LOSSY);
    SPECV_CHECK(specv_i_aligned(f->ratio, 4), LOSSY);
    SPECV_CHECK(typical || (!f->epsilon && !f->alpha), LOSSY);
    SPECV_CHECK(rule == SPECV_RULE_THRESHOLD || (!f->threshold_single && !f->threshold_acc), LOSSY);
    SPECV_CHECK(rule == SPECV_RULE_RELAXED || (!f->top_n && !f->delta), LOSSY);
    SPECV_CHECK(rule == SPECV_RULE_BOUNDED || !f->ratio, LOSSY);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_i_verify_sample_validate(const specv_verify_sample_desc *d) {
    const specv_rows *r = &d->verify.rows;
    const specv_emitted *e = &d->emitted;
    const int draws = d->rule != SPECV_RULE_COUPLED && d->rule != SPECV_RULE_TYPICAL_DRAW;
    const int takes_draft = d->rule == SPECV_RULE_BOUNDED || d->rule < SPECV_RULE_SCORE;
    int status, needs_random = d->rule != SPECV_RULE_GREEDY && d->rule != SPECV_RULE_TYPICAL &&
                               d->rule != SPECV_RULE_RELAXED;
    int64_t bytes;
    SPECV_CHECK(d->canary1 == 0 && d->reserved == 0, CANARY);
    if ((status = specv_i_verify_validate(&d->verify)) != SPECV_OK) return status;
    SPECV_CHECK(!d->verify.target_tokens, TARGET_TOKENS);
    SPECV_CHECK(d->rule >= SPECV_RULE_TOKEN && d->rule <= SPECV_RULE_BOUNDED, RULE);
    SPECV_CHECK(d->verify.vocab >= 1 && d->verify.vocab <= 1 << 22, VOCAB);
    status = specv_i_scores_validate(&d->target, r, d->verify.vocab, specv_i_positions(d));
    if (status != SPECV_OK) return status;
    status = specv_i_scores_validate(&d->draft, r, d->verify.vocab, r->max_draft);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(r->batch == 0 || d->target.data, TARGET);
    SPECV_CHECK(specv_i_aligned(d->bonus_token, d->verify.token_dtype == SPECV_I64 ? 8 : 4), TOKEN);
    SPECV_CHECK(specv_i_aligned(d->target.data, specv_i_score_bytes(d->target.dtype)), TARGET);
    SPECV_CHECK(specv_i_aligned(d->draft.data, specv_i_score_bytes(d->draft.dtype)), DRAFT);
    SPECV_CHECK(!d->draft.data || takes_draft, DRAFT);
    if ((status = specv_i_lossy_validate(&d->lossy, d->rule)) != SPECV_OK) return status;
    status =
        specv_i_filters_validate(&d->filters, &d->target, r, d->verify.vocab, specv_i_positions(d));
    if (status != SPECV_OK) return status;
    status =
        specv_i_filters_validate(&d->draft_filters, &d->draft, r, d->verify.vocab, r->max_draft);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->target_logprob, 4), LOGPROB);
    SPECV_CHECK(!d->target_logprob || d->rule == SPECV_RULE_SCORE, LOGPROB);
    SPECV_CHECK(specv_i_aligned(d->temperature, 4), TEMPERATURE);
    SPECV_CHECK(specv_i_aligned(d->draft_temperature, 4), TEMPERATURE);
    SPECV_CHECK(specv_i_aligned(d->accept_uniform, 4), UNIFORM);
    SPECV_CHECK(specv_i_aligned(d->sample_uniform, 4), UNIFORM);
    if (needs_random && draws && d->sample_uniform)
        needs_random = !d->accept_uniform && r->max_draft > 0 && d->rule != SPECV_RULE_SCORE;
    SPECV_CHECK(specv_i_aligned(d->seed, 8), SEED);
    SPECV_CHECK(d->seed || !needs_random || r->batch == 0, SEED);
    SPECV_CHECK(specv_i_aligned(d->position, 4), POSITION);
    SPECV_CHECK(d->position || !d->seed || r->batch == 0, POSITION);
    SPECV_CHECK(specv_i_aligned(d->logprob, 4) && specv_i_aligned(d->lse, 4), LOGPROB);
    if ((status = specv_i_emitted_validate(e)) != SPECV_OK) return status;
    SPECV_CHECK(!specv_i_tells(e) || d->verify.out_tokens || r->batch == 0, LOGPROB);
    SPECV_CHECK(specv_i_aligned(d->max_prob, 4) && (!d->max_prob || r->max_draft == 0), MAX_PROB);
    SPECV_CHECK(!d->max_prob || !d->bonus_token, MAX_PROB);
    SPECV_CHECK(d->step_row >= 0, STREAM);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    if (r->batch == 0) return SPECV_OK;
    bytes = specv_i_scratch_layout(d).bytes;
    SPECV_CHECK(d->scratch && specv_i_aligned(d->scratch, 16), SCRATCH);
    SPECV_CHECK(d->scratch_bytes >= bytes, SCRATCH);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_verify_sample_validate(const specv_verify_sample_desc *d) {
    int status;
    SPECV_CHECK(d, NULL_DESC);
    if ((status = specv_i_verify_sample_validate(d)) != SPECV_OK) return status;
    SPECV_CHECK(d->stream == SPECV_STREAM_TARGET || d->stream == SPECV_STREAM_DRAFT, STREAM);
    return SPECV_OK;
}

/* A8 as verification without drafts. accepted_len stays null: there is nothing to accept. */
SPECV_HOSTFN specv_verify_sample_desc specv_sample_as_verify(const specv_sample_desc *d) {
    specv_verify_sample_desc v = SPECV_ZERO;
    v.verify.token_dtype = d->token_dtype;
    v.verify.rows.num_active = d->num_active;
    v.verify.rows.slot = d->slot;
    v.verify.rows.slot_dtype = d->slot_dtype;
    v.verify.rows.num_slots = d->num_slots;
    v.verify.rows.batch = d->batch;
    v.verify.out_tokens = d->token; /* one column */
    v.verify.out_stride_elems = d->token_stride_elems;
    v.verify.row_status = d->row_status;
    v.verify.keep_status = d->keep_status;
    v.verify.chained = d->chained;
    v.verify.vocab = d->vocab;
    v.target = d->scores;
    v.temperature = d->temperature;
    v.seed = d->seed;
    v.position = d->position;
    v.filters = d->filters;
    v.sample_uniform = d->uniform;
    v.logprob = d->logprob;
    v.lse = d->lse;
    v.max_prob = d->max_prob;
    v.emitted = d->emitted;
    v.scratch = d->scratch;
    v.scratch_bytes = d->scratch_bytes;
    v.rule = d->method == SPECV_SAMPLE_GUMBEL ? SPECV_RULE_COUPLED : SPECV_RULE_TOKEN;
    v.num_sms = d->num_sms;
    v.step_row = d->step_row;
    v.stream = SPECV_I_SAMPLER | d->stream;
    return v;
}

SPECV_HOSTFN int specv_sample_validate(const specv_sample_desc *d) {
    specv_verify_sample_desc v;
    int32_t unused;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->method == SPECV_SAMPLE_CDF || d->method == SPECV_SAMPLE_GUMBEL, RULE);
    SPECV_CHECK(d->stream >= SPECV_STREAM_TARGET && d->stream <= SPECV_STREAM_COUPLED, STREAM);
    SPECV_CHECK(d->stream != SPECV_STREAM_COUPLED || d->method == SPECV_SAMPLE_GUMBEL, STREAM);
    SPECV_CHECK(d->token || d->batch <= 0, TOKEN);
    SPECV_CHECK(specv_i_aligned(d->token, d->token_dtype == SPECV_I64 ? 8 : 4), TOKEN);
    v = specv_sample_as_verify(d);
    v.verify.accepted_len = &unused; /* A1 to A5 need it */
    return specv_i_verify_sample_validate(&v);
}

SPECV_HOSTFN void specv_i_scores_resolve(specv_scores *s, const specv_rows *r, int64_t vocab,
                                         int64_t positions) {
    if (!s->pos_stride_elems) s->pos_stride_elems = vocab;
    if (!s->seq_stride_elems)
        s->seq_stride_elems = specv_i_is_csr(r) ? 0 : positions * s->pos_stride_elems;
}

SPECV_HOSTFN void specv_i_filters_resolve(specv_filters *f, int64_t vocab) {
    if (f->mask && !f->mask_stride_words) f->mask_stride_words = specv_i_row_words(vocab);
}

SPECV_HOSTFN void specv_verify_sample_resolve(specv_verify_sample_desc *d) {
    const specv_rows *r = &d->verify.rows;
    specv_verify_greedy_resolve(&d->verify);
    specv_i_scores_resolve(&d->target, r, d->verify.vocab, specv_i_positions(d));
    specv_i_scores_resolve(&d->draft, r, d->verify.vocab, r->max_draft);
    if (!d->draft_temperature) d->draft_temperature = d->temperature;
    specv_i_filters_resolve(&d->filters, d->verify.vocab);
    specv_i_filters_resolve(&d->draft_filters, d->verify.vocab);
}

#if SPECV_I_LAUNCHERS
/* A2 to A5. Every score is read once, by four warps per tile of 1024 ids on all SMs, whatever the
   batch; the last block of a request to arrive puts its rows together, judges, and reads one tile
   of one row again to draw from it. One launch for A2, A5, A3 and A4 without draft scores. With
   draft scores the residual needs the sums of both whole rows first, and a second read of one p
   row and one q row (A4: of up to max_draft each): a second launch, chained by programmatic
   dependent launch, spreads it over all SMs again, where a last block would read 0.5 MB (128k ids,
   bf16) alone. Dependent round trips: lengths, scores, tile sums, draft ids, p and q there, the
   tile: 6; with the second pass 4 more.
   From probabilities (both, if there are drafts with scores) all rules but COUPLED take one launch:
   two numbers a draft are all that the judge needs, so every block of a request judges, then sums
   up its share of the row (A4: of the rows) that the token is drawn from. 7 round trips. Scratch:
   specv_verify_sample_scratch_bytes. */
SPECV_LAUNCHER int specv_verify_sample(const specv_verify_sample_desc *d,
                                       struct CUstream_st *stream) SPECV_AS(specv_verify_sample);

/* A8. One launch, as A3 or A5 without drafts. */
SPECV_LAUNCHER int specv_sample(const specv_sample_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_sample);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* ---- tiles of scores

   A warp holds a tile in registers: 32 scores a lane. Lane l has, for every turn t, `unit`
   consecutive ids from (t * 32 + l) * unit on: 16 bytes of any type. */

SPECV_DEVFN int specv_i_unit(int dtype) {
    return dtype == SPECV_LOGITS_F16 || dtype == SPECV_LOGITS_BF16 ? 8 : 4;
}

/* Which id of its tile is score e of a lane? */
SPECV_DEVFN int specv_i_tile_id(int e, int lane, int unit) {
    return (e / unit * 32 + lane) * unit + e % unit;
}

SPECV_DEVFN const void *specv_i_score_at(const void *scores, int dtype, int64_t index) {
    return (const char *)scores + index * (specv_i_unit(dtype) == 8 ? 2 : 4);
}

/* A probability above 2 or below 0 is none: NaN. */
SPECV_DEVFN float specv_i_clean_prob(float p) {
    uint32_t bits = specv_float_bits(p);
    return bits <= 0x40000000u || bits == 0x80000000u ? p : specv_bits_float(0x7fffffffu);
}

/* One score as a float; NaN where there is none. */
SPECV_DEVFN float specv_i_load_score(const void *scores, int dtype, int64_t index) {
    if (dtype == SPECV_LOGITS_F16) return specv_f16_float(((const unsigned short *)scores)[index]);
    if (dtype == SPECV_LOGITS_BF16)
        return specv_bf16_float(((const unsigned short *)scores)[index]);
    if (dtype == SPECV_PROBS_F32) return specv_i_clean_prob(((const float *)scores)[index]);
    if (dtype == SPECV_I_WEIGHTS_F32) return specv_i_weight_score(((const float *)scores)[index]);
    return ((const float *)scores)[index];
}

/* Bits of a score that stands for no id. */
SPECV_DEVFN uint32_t specv_i_absent(int dtype) {
    return dtype == SPECV_LOGITS_F16      ? 0xfc00u
           : dtype == SPECV_LOGITS_BF16   ? 0xff80u
           : dtype == SPECV_I_WEIGHTS_F32 ? 0
                                          : 0xff800000u;
}

/* What filters keep of a position: ids that the mask allows, from the first of the order to the one
   with this rank key. */
typedef struct specv_i_sieve {
    const uint32_t *mask; /* null: all */
    uint64_t least;       /* 0: all */
} specv_i_sieve;

SPECV_DEVFN float specv_i_sift(const specv_i_sieve *s, float score, int32_t id) {
    int kept = 1;
    if (s->mask) kept = (int)(s->mask[(uint32_t)id / 32] >> id % 32 & 1);
    if (s->least && !specv_i_is_nan(score)) kept &= specv_rank_key(score, id) >= s->least;
    return kept ? score : specv_bits_float(0xff800000u);
}

/* Of 4 or 8 ids from `first` on, a multiple of their number. */
SPECV_DEVFN void specv_i_sift_some(const specv_i_sieve *s, float *score, int count, int first,
                                   int vocab) {
    const float none = specv_bits_float(0xff800000u);
    if (s->mask && first < vocab) {
        const uint32_t allowed = s->mask[(uint32_t)first / 32] >> first % 32;
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (!(allowed >> i & 1)) score[i] = none;
    }
    if (!s->least) return;
#pragma unroll
    for (int i = 0; i < count; ++i)
        if (!specv_i_is_nan(score[i]) && specv_rank_key(score[i], first + i) < s->least)
            score[i] = none;
}

/* 16 bytes of scores: one access if `whole`, element by element otherwise; ids from `left` on are
   absent. */
SPECV_DEVFN uint4 specv_i_load_unit_of_scores(const void *p, int whole, int is_16_bit,
                                              uint32_t absent, int left) {
    uint32_t word[4];
    if (whole) return *(const uint4 *)p;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (is_16_bit) {
            uint32_t low = absent, high = absent;
            if (2 * i < left) low = ((const unsigned short *)p)[2 * i];
            if (2 * i + 1 < left) high = ((const unsigned short *)p)[2 * i + 1];
            word[i] = low | high << 16;
        } else {
            word[i] = i < left ? ((const uint32_t *)p)[i] : absent;
        }
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* `count` halves of a tile from `part` on, 16 scores each. The loads come first, in one run. */
SPECV_DEVFN void specv_i_load_halves(float *score, const void *row, int dtype, int64_t vocab,
                                     int tile, int part, int count) {
    const int lane = specv_i_lane();
    const int64_t first = (int64_t)tile * SPECV_TILE_IDS;
    const char *p = (const char *)specv_i_score_at(row, dtype, first);
    const int left = vocab - first < SPECV_TILE_IDS ? (int)(vocab - first) : SPECV_TILE_IDS;
    const int whole = left == SPECV_TILE_IDS && ((uint64_t)p & 15) == 0;
    uint4 raw[8];
    if (specv_i_unit(dtype) == 8) {
        const uint32_t absent = specv_i_absent(dtype); /* -inf */
#pragma unroll
        for (int t = 0; t < 2 * count; ++t) {
            int unit = (2 * part + t) * 32 + lane;
            raw[t] = specv_i_load_unit_of_scores(p + 16 * unit, whole, 1, absent, left - 8 * unit);
        }
#pragma unroll
        for (int e = 0; e < 16 * count; ++e) {
            const uint4 v = raw[e / 8];
            const uint32_t word = e % 8 < 2 ? v.x : e % 8 < 4 ? v.y : e % 8 < 6 ? v.z : v.w;
            if (dtype == SPECV_LOGITS_F16)
                score[e] = specv_f16_float(e % 2 ? word >> 16 : word & 0xffffu);
            else
                score[e] = specv_bits_float(e % 2 ? word & 0xffff0000u : word << 16);
        }
    } else {
        const int probs = dtype == SPECV_PROBS_F32;
#pragma unroll
        for (int t = 0; t < 4 * count; ++t) {
            int unit = (4 * part + t) * 32 + lane;
            raw[t] = specv_i_load_unit_of_scores(p + 16 * unit, whole, 0, probs ? 0 : 0xff800000u,
                                                 left - 4 * unit);
        }
#pragma unroll
        for (int e = 0; e < 16 * count; ++e) {
            const uint4 v = raw[e / 4];
            const uint32_t word = e % 4 == 0 ? v.x : e % 4 == 1 ? v.y : e % 4 == 2 ? v.z : v.w;
            score[e] = specv_bits_float(word);
            if (probs) score[e] = specv_i_clean_prob(score[e]);
        }
    }
}

/* Loads a tile of a row of scores. Call: warp. In: row[0..vocab) of dtype, aligned to its element;
   0 <= tile < ceil(vocab / SPECV_TILE_IDS). Out: score[e] is the score of id tile *
   SPECV_TILE_IDS + (e / unit * 32 + lane) * unit + e % unit, unit = 4 for 32-bit, 8 for 16-bit
   types; behind the vocabulary -inf (probabilities: 0); a probability outside [0, 2] is NaN.
   Cost: 2 or 4 KiB, once, in flight together; 16-byte accesses where row + tile is aligned. */
SPECV_DEVFN void specv_warp_load_tile(float score[32], const void *row, int dtype, int64_t vocab,
                                      int tile) {
    specv_i_load_halves(score, row, dtype, vocab, tile, 0, 2);
}

/* The largest value, and the lowest id among those that have it. */
SPECV_DEVFN void specv_i_warp_best(int64_t *value, int32_t *id) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        int64_t other = __shfl_xor_sync(SPECV_FULL_WARP, *value, distance);
        int32_t other_id = __shfl_xor_sync(SPECV_FULL_WARP, *id, distance);
        if (other > *value || (other == *value && other_id < *id)) *value = other, *id = other_id;
    }
}

/* What is wanted of a tile, as bits. */
enum { SPECV_TILE_SUM = 1, SPECV_TILE_SCORE = 2, SPECV_TILE_PROBS = 4 };

/* n and f of a score's weight; 0 if it has none. */
SPECV_DEVFN int specv_i_log2_of_score(float score, int probs, const specv_scale *scale, int32_t *n,
                                      float *f) {
    if (probs) {
        if (specv_i_is_nan(score) || specv_i_less(score, 1.17549435e-38f)) return 0;
        *f = specv_i_log2(score, n);
    } else {
        specv_weight w;
        if (!specv_i_less(scale->floor, score)) return 0;
        w = specv_softmax_weight(score, scale);
        *n = w.n, *f = w.f;
    }
    return 1;
}

/* The largest score plus noise of eight ids of each lane, two runs of four, and its lowest id.
   *best, *id: what the warp has found before, among lower ids; the same in all lanes. The bounds
   leave two of 256 ids, for which the logarithms are computed. Call: warp. */
SPECV_DEVFN void specv_i_warp_score_eight(const float score[8], int32_t quad0, int32_t quad1,
                                          int probs, const specv_scale *scale,
                                          const specv_noise *noise, int64_t *best, int32_t *id) {
    const int32_t none = 1024 - SPECV_I_INT_MAX;
    int32_t most[8], at_least = none, own_id = SPECV_I_INT_MAX, n = 0;
    int64_t own = SPECV_I_NO_SCORE;
    uint32_t word[8], hopeful = 0;
    unsigned owners;
    float f = 0;
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
        const specv_random r = specv_noise_words(noise, (uint32_t)(quad ? quad1 : quad0));
#pragma unroll
        for (int i = 0; i < 4; ++i) word[4 * quad + i] = r.x[i];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        most[e] = none;
        if (specv_i_log2_of_score(score[e], probs, scale, &n, &f))
            most[e] = specv_i_score_bound(n, f, word[e]);
        if (specv_i_bound_is_tight(word[e]) && most[e] - SPECV_I_BOUND_WIDTH > at_least)
            at_least = most[e] - SPECV_I_BOUND_WIDTH;
    }
    if (*best > SPECV_I_NO_SCORE && (int32_t)(*best >> 14) > at_least)
        at_least = (int32_t)(*best >> 14);
    at_least = specv_warp_reduce_max(at_least);
#pragma unroll
    for (int e = 0; e < 8; ++e)
        if (most[e] >= at_least && most[e] > none) hopeful |= 1u << e;
#pragma unroll 1
    for (; hopeful; hopeful &= hopeful - 1) {
        const int e = __ffs((int)hopeful) - 1;
        const int32_t its = (e < 4 ? quad0 : quad1) + e % 4;
        uint32_t x = 0, finer = 0;
        float value = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k)
            if (k == e) value = score[k], x = word[k];
        if (x < 256) { /* once in 2^24 times */
            const specv_random further = specv_noise_finer_words(noise, (uint32_t)its);
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (k == e % 4) finer = further.x[k];
        }
        specv_i_log2_of_score(value, probs, scale, &n, &f);
        const int64_t with_noise = specv_i_score(n, f, specv_gumbel24(x, finer));
        if (with_noise > own) own = with_noise, own_id = its;
    }
    owners = __ballot_sync(SPECV_FULL_WARP, own > SPECV_I_NO_SCORE);
    if (owners == 0) return;
    if (owners & (owners - 1)) {
        specv_i_warp_best(&own, &own_id);
    } else {
        own = __shfl_sync(SPECV_FULL_WARP, own, __ffs((int)owners) - 1);
        own_id = __shfl_sync(SPECV_FULL_WARP, own_id, __ffs((int)owners) - 1);
    }
    if (own > *best || (own == *best && own_id < *id)) *best = own, *id = own_id;
}

/* Statistics of a tile from the scores in registers: what specv_warp_load_tile gives, or what a
   kernel of yours has just computed.
   Call: warp. In: score, unit as above (the sum needs no order, unit may be anything for it; ids
   behind the vocabulary are -inf, for probabilities 0); what: SPECV_TILE_* bits; scale of the
   temperature, of 1 where that is 0 (all but PROBS); noise (SCORE). Out: max always; sum with SUM;
   score with SCORE; id where neither is wanted, or the largest logit is not in range. The same in
   all lanes.
   Cost with SUM: 16 machine instructions a logit on sm_90, beside loading, decoding and the
   maximum. */
SPECV_DEVFN specv_tile specv_warp_tile_stats(const float score[32], int unit, int tile, int what,
                                             const specv_scale *scale, const specv_noise *noise) {
    const int lane = specv_i_lane(), first_id = tile * SPECV_TILE_IDS;
    const float none = specv_bits_float(0xff800000u);
    const int probs = what & SPECV_TILE_PROBS;
    specv_tile t;
    float largest = score[0];
    int has_nan, in_range;
    t.sum = 0, t.score = SPECV_I_NO_SCORE;
#pragma unroll
    for (int e = 1; e < 32; ++e) largest = specv_i_max_or_nan(largest, score[e]);
    has_nan = __any_sync(SPECV_FULL_WARP, specv_i_is_nan(largest));
    if (has_nan) {
        largest = none;
#pragma unroll
        for (int e = 0; e < 32; ++e) largest = specv_i_max(largest, score[e]);
    }
    t.max = specv_i_warp_max(largest);
    in_range = probs ? specv_i_less(0.f, t.max) : specv_in_range(t.max, scale);
    t.id = 0;
    if (what & SPECV_TILE_SCORE && in_range) {
        int32_t id = SPECV_I_INT_MAX;
        float next[32];
#pragma unroll
        for (int e = 0; e < 32; ++e) next[e] = score[e];
#pragma unroll 1
        for (int e = 0; e < 32; e += 8) {
            specv_i_warp_score_eight(next, first_id + specv_i_tile_id(e, lane, unit),
                                     first_id + specv_i_tile_id(e + 4, lane, unit), probs, scale,
                                     noise, &t.score, &id);
#pragma unroll
            for (int i = 0; i < 24; ++i) next[i] = next[i + 8];
        }
        t.id = (uint32_t)id;
    } else if (!(what & SPECV_TILE_SUM) || !in_range) {
        int32_t id = 0x7fffffff;
        if (!specv_i_less(largest, t.max)) { /* this lane has it */
#pragma unroll
            for (int e = 31; e >= 0; --e)
                if (!specv_i_less(specv_i_max(score[e], none), t.max))
                    id = first_id + specv_i_tile_id(e, lane, unit);
        }
        t.id = (uint32_t)specv_warp_reduce_min(id);
    }
    if (what & SPECV_TILE_SUM && !probs && in_range) {
        const int32_t n_max = specv_softmax_weight(t.max, scale).n;
        uint64_t sum = 0;
#pragma unroll
        for (int e = 0; e < 32; ++e) {
            specv_weight w = specv_softmax_weight(specv_i_max(score[e], scale->floor), scale);
            sum += specv_weight_units(&w, n_max);
        }
        t.sum = specv_i_warp_add(sum);
    }
    if (has_nan) t.id |= SPECV_I_NAN_BIT;
    return t;
}

/* Tiles that a lane puts together: those that follow each other. */
SPECV_DEVFN int specv_i_tiles_of_lane(int num_tiles) {
    return (int)(((unsigned)num_tiles + 31) / 32);
}

/* a = b, and what comes with it, if b is larger. */
SPECV_DEVFN void specv_i_keep_larger(float *a, int *of_a, float b, int of_b) {
    asm("{ .reg .pred p; setp.lt.f32 p, %0, %2; selp.f32 %0, %2, %0, p; selp.s32 %1, %3, %1, p; }"
        : "+f"(*a), "+r"(*of_a)
        : "f"(b), "r"(of_b));
}

/* What a lane puts together of a row: tiles that follow each other, so that of equal ones the
   lowest lane's comes first; where the first four of them are, in bytes, behind its last one that
   again. row: where the row's tiles begin. */
typedef struct specv_i_lane_tiles {
    int64_t row;
    int32_t at[4];
    int first, each, last;
} specv_i_lane_tiles;

SPECV_DEVFN void specv_i_lane_tiles_from(specv_i_lane_tiles *own, int t) {
#pragma unroll
    for (int u = 0; u < 4; ++u)
        own->at[u] = (int)sizeof(specv_tile) * (t + u < own->last ? t + u : own->last);
#pragma unroll
    for (int u = 0; u < 4; ++u) SPECV_I_EARLY("r", own->at[u]); /* all at once */
}

SPECV_DEVFN specv_i_lane_tiles specv_i_lane_tiles_of(int64_t row, int num_tiles) {
    specv_i_lane_tiles own;
    own.row = row, own.each = specv_i_tiles_of_lane(num_tiles);
    own.first = specv_i_lane() * own.each;
    own.last = (own.first + own.each < num_tiles ? own.first + own.each : num_tiles) - 1;
    specv_i_lane_tiles_from(&own, own.first);
    return own;
}

SPECV_DEVFN const specv_tile *specv_i_lane_tile(const specv_tile *tiles,
                                                const specv_i_lane_tiles *own, int u) {
    return (const specv_tile *)((const char *)tiles + own->row + own->at[u]);
}

/* A row from all its tiles as specv_warp_merge_tiles has it, but for the inverse of its sum: a
   division, and only a probability needs it. *through: the sum of what this lane and those before
   it have put together, ceil(num_tiles / 32) tiles each. may: bits that `what` can have, a
   constant: what the tiles have is loaded whether it is wanted or not, without branches. Call:
   warp. */
SPECV_DEVFN specv_distribution specv_i_warp_merge_of(const specv_tile *tiles,
                                                     specv_i_lane_tiles own, int may, int what,
                                                     int zero, const specv_scale *scale,
                                                     uint64_t *through) {
    const int probs = what & SPECV_TILE_PROBS, end = own.first + own.each;
    const float none = specv_bits_float(0xff800000u);
    specv_distribution row;
    int64_t best = SPECV_I_NO_SCORE;
    int32_t best_id = 0x7fffffff, max_id = -1;
    float largest = none; /* of the lane's tiles, and its id */
    uint64_t sum = 0;
    int has_nan = 0;
    row.sum = 0, row.inverse = row.inverse_low = 0, row.n = 0, row.id = -1,
    row.status = row.reserved = 0;
    *through = 0;
    /* Four are in flight together. Up to 128 tiles stay in registers. */
    uint2 best_of[4]; /* largest logit, id: as they are in memory, converted when all are there */
    uint64_t sums[4];
#pragma unroll 1
    for (int t = own.first; t < end; t += 4) {
        int64_t scores[4];
        float most[4];
        int32_t its_id[4];
        if (t > own.first) specv_i_lane_tiles_from(&own, t);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const specv_tile *tile = specv_i_lane_tile(tiles, &own, u);
            best_of[u] = *(const uint2 *)&tile->max;
            sums[u] = 0, scores[u] = SPECV_I_NO_SCORE;
            if (may & SPECV_TILE_SUM) sums[u] = tile->sum;
            if (may & SPECV_TILE_SCORE) scores[u] = tile->score;
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            most[u] = specv_bits_float(best_of[u].x);
            its_id[u] = (int32_t)(best_of[u].y & ~SPECV_I_NAN_BIT);
            has_nan |= (best_of[u].y & SPECV_I_NAN_BIT) != 0;
            if (may & SPECV_TILE_SCORE && scores[u] > best) best = scores[u], best_id = its_id[u];
        }
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
#pragma unroll
            for (int u = 0; u < 4; u += 2 * step)
                specv_i_keep_larger(&most[u], &its_id[u], most[u + step], its_id[u + step]);
        specv_i_keep_larger(&largest, &max_id, most[0], its_id[0]);
    }
    const int32_t key = specv_i_order_key(specv_float_bits(largest));
    const int32_t top = specv_warp_reduce_max(key);
    row.max = specv_i_of_order_key(top);
    if (__any_sync(SPECV_FULL_WARP, has_nan)) row.status |= SPECV_ROW_NAN;
    row.kind = SPECV_SOFTMAX;
    if (!specv_i_less(none, row.max) || (probs && !specv_i_less(0.f, row.max))) {
        row.kind = SPECV_NO_TOKEN;
        row.status |= SPECV_ROW_EMPTY;
        return row;
    }
    if (zero || (!probs && !specv_in_range(row.max, scale))) {
        const unsigned owners = __ballot_sync(SPECV_FULL_WARP, key == top);
        row.kind = SPECV_ONE_HOT;
        row.id = __shfl_sync(SPECV_FULL_WARP, max_id, __ffs((int)owners) - 1);
        if (!zero) row.status |= SPECV_ROW_EXTREME;
        return row;
    }
    if (may & what & SPECV_TILE_SCORE) {
        specv_i_warp_best(&best, &best_id);
        row.id = best_id == 0x7fffffff ? -1 : best_id;
        if (row.id < 0) row.status |= SPECV_ROW_EMPTY;
    }
    if (may & what & SPECV_TILE_SUM && !probs) {
        row.n = specv_softmax_weight(row.max, scale).n;
#pragma unroll 1
        for (int t = own.first; t < end; t += 4) {
            if (own.each > 4) {
                specv_i_lane_tiles_from(&own, t);
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    const specv_tile *tile = specv_i_lane_tile(tiles, &own, u);
                    best_of[u].x = specv_float_bits(tile->max), sums[u] = tile->sum;
                }
            }
            float raised[4];
            specv_weight weight[4];
#pragma unroll
            for (int u = 0; u < 4; ++u)
                raised[u] = specv_i_max(specv_bits_float(best_of[u].x), scale->floor);
            specv_i_softmax_weights(weight, raised, 4, scale);
#pragma unroll
            for (int u = 0; u < 4; ++u)
                sums[u] = specv_i_shift_right(sums[u], (uint32_t)(row.n - weight[u].n));
#pragma unroll
            for (int u = 0; u < 4; ++u) sum += t + u <= own.last ? sums[u] : 0;
        }
        *through = specv_i_warp_inclusive_add(sum);
        row.sum = __shfl_sync(SPECV_FULL_WARP, *through, 31);
    }
    return row;
}

SPECV_DEVFN specv_distribution specv_i_warp_merge(const specv_tile *tiles, int num_tiles, int may,
                                                  int what, int zero, const specv_scale *scale,
                                                  uint64_t *through) {
    return specv_i_warp_merge_of(tiles, specv_i_lane_tiles_of(0, num_tiles), may, what, zero, scale,
                                 through);
}

/* Puts a row together from all its tiles.
   Call: warp. In: tiles[0..num_tiles), visible to the warp; what and scale as they were for the
   tiles; zero: the temperature is 0. Out: the distribution, the same in all lanes; its id is the
   only token (ONE_HOT), the choice (SCORE), otherwise -1.
   Cost: one read of the tiles, 24 bytes each. */
SPECV_DEVFN specv_distribution specv_warp_merge_tiles(const specv_tile *tiles, int num_tiles,
                                                      int what, int zero,
                                                      const specv_scale *scale) {
    uint64_t through;
    specv_distribution row = specv_i_warp_merge(tiles, num_tiles, SPECV_TILE_SUM | SPECV_TILE_SCORE,
                                                what, zero, scale, &through);
    if (row.sum) specv_i_set_inverse(&row);
    return row;
}

/* ---- sampled verification

   One request of the batch, as every block that works on it sees it. */
#define SPECV_SAMPLE_THREADS 256 /* of the kernels; SPECV_TILE_IDS / 4: four ids a thread */
#define SPECV_I_PROBS_BLOCKS 4   /* from probabilities: blocks that any SM holds at a time */
#if __CUDA_ARCH__ >= 1200
#define SPECV_I_GREEDY_BLOCKS   3 /* of A2; 64 registers a thread are too few here */
#define SPECV_I_SOFTMAX_BLOCKS  2 /* 80 are too few */
#define SPECV_I_FILTERED_BLOCKS 1 /* 128 are */
#else
#define SPECV_I_GREEDY_BLOCKS  4
#define SPECV_I_SOFTMAX_BLOCKS 3
#if __CUDA_ARCH__ == 900
#define SPECV_I_FILTERED_BLOCKS 2
#else
#define SPECV_I_FILTERED_BLOCKS 1 /* there the compiler spills at 128 registers */
#endif
#endif

typedef struct specv_i_side {
    const void *scores; /* of position 0 of the row */
    int64_t pos_stride;
    int32_t dtype;
    int32_t zero; /* the temperature is 0 */
    specv_scale scale;
    const uint32_t *mask;  /* of position 0, or null */
    const uint64_t *least; /* of position 0, or null, as in specv_i_memory */
    int64_t mask_stride;   /* words */
} specv_i_side;

typedef struct specv_i_request {
    specv_row row;
    uint32_t status;
    specv_i_side target, draft;
    int64_t first_row;   /* of the target's rows in scratch memory, numbered like its scores */
    int64_t first_draft; /* element of draft_tokens */
    int32_t target_rows, draft_rows; /* positions that need statistics */
    int32_t rule, sampled;           /* sampled: judged by p and q, not by equality */
    int32_t cut;                     /* SPECV_I_OF_*: rows that top_k, top_p or min_p cut */
    int32_t reserved;                /* no hole: copied word by word */
} specv_i_request;

/* Sides of a request. SPECV_I_SUMS times one: it is cut, and not without the sums of its tiles. */
enum { SPECV_I_OF_TARGET = 1, SPECV_I_OF_DRAFT = 2, SPECV_I_SUMS = 4 };

/* In `sides` of a task, in addition: of the target, where tokens were emitted. */
#define SPECV_I_OF_EMITTED 4

SPECV_DEVFN void specv_i_open_side(specv_i_side *side, const specv_scores *scores, int64_t base) {
    side->scores = specv_i_score_at(scores->data, scores->dtype, base);
    side->pos_stride = scores->pos_stride_elems;
    side->dtype = scores->dtype;
}

/* Probabilities have no scale. */
SPECV_DEVFN void specv_i_set_temperature(specv_i_side *side, float temperature, int greedy) {
    side->zero = greedy || specv_temperature_is_0(temperature);
    if (greedy || side->dtype == SPECV_PROBS_F32)
        side->scale.hi = side->scale.lo = side->scale.floor = 0, side->scale.of_probs = 0;
    else
        side->scale = specv_softmax_scale(side->zero ? 1.f : temperature);
}

/* The row itself; a bad slot's has no drafts and is not readable. */
SPECV_DEVFN specv_row specv_i_open_row(const specv_verify_sample_desc *d, int b) {
    const specv_rows *rows = &d->verify.rows;
    uint32_t bad = 0;
    specv_row row = specv_thread_load_row(rows, b);
    specv_thread_slot(rows->slot, rows->slot_dtype, rows->num_slots, b, &bad);
    if (bad) {
        row.n_draft = row.readable = 0;
        row.status = row.live ? bad : 0;
    }
    if (d->stream & SPECV_I_OF_TREE && row.readable && row.n_draft == 0) row.n_draft = 1; /* root */
    return row;
}

/* Element of a side's scores that position 0 of the row begins with: dense rows have no `first`,
   those of CSR no stride, so that nothing branches in front of the loads. */
SPECV_DEVFN int64_t specv_i_first_score(const specv_rows *rows, const specv_row *row,
                                        const specv_scores *scores, int b, int as_drafts) {
    const int64_t first = row->first + (specv_i_is_csr(rows) && !as_drafts ? (int64_t)b : 0);
    return b * scores->seq_stride_elems + first * scores->pos_stride_elems;
}

SPECV_DEVFN void specv_i_forget_filters(specv_i_request *r) {
    r->target.mask = r->draft.mask = 0, r->target.least = r->draft.least = 0;
    r->target.mask_stride = r->draft.mask_stride = 0, r->cut = 0;
}

/* Of a launch that has none: what the compiler then knows. */
SPECV_DEVFN void specv_i_without_filters(specv_i_request *r) {
    specv_i_forget_filters(r);
    r->target.scale.of_probs = r->draft.scale.of_probs = 0;
    r->target.dtype &= 3, r->draft.dtype &= 3; /* not WEIGHTS */
}

/* A request whose temperatures can be opened. */
SPECV_DEVFN specv_i_request specv_i_begin_request(const specv_verify_sample_desc *d,
                                                  const specv_row *row, int rule) {
    specv_i_request r;
    r.row = *row, r.status = row->status, r.rule = rule, r.reserved = 0;
    r.target.scores = r.draft.scores = 0, r.target.pos_stride = r.draft.pos_stride = 0;
    r.first_row = r.first_draft = 0, r.target_rows = r.draft_rows = r.sampled = 0;
    r.target.dtype = d->target.dtype;
    r.draft.dtype = d->draft.data ? d->draft.dtype : SPECV_PROBS_F32;
    specv_i_forget_filters(&r);
    return r;
}

/* The first of its rows in scratch memory. */
SPECV_DEVFN int64_t specv_i_first_row(const specv_rows *rows, const specv_row *row, int b) {
    return (int64_t)row->first + b + (specv_i_is_csr(rows) ? 0 : b * (int64_t)rows->max_draft);
}

/* Where its scores are, its drafts, and its rows in scratch memory. */
SPECV_DEVFN void specv_i_place_request(const specv_verify_sample_desc *d, int b,
                                       const specv_row *row, specv_i_request *r) {
    const specv_rows *rows = &d->verify.rows;
    specv_i_open_side(&r->target, &d->target,
                      specv_i_first_score(rows, row, &d->target, b, d->bonus_token != 0));
    r->draft.scores = 0, r->draft.pos_stride = 0;
    if (d->draft.data)
        specv_i_open_side(&r->draft, &d->draft, specv_i_first_score(rows, row, &d->draft, b, 1));
    r->first_row = specv_i_first_row(rows, row, b);
    r->first_draft = row->first + (specv_i_is_csr(rows) ? 0 : b * d->verify.draft_stride_elems);
}

SPECV_DEVFN specv_i_request specv_i_open_rows(const specv_verify_sample_desc *d, int b,
                                              const specv_row *row, int rule) {
    specv_i_request r = specv_i_begin_request(d, row, rule);
    specv_i_place_request(d, b, row, &r);
    return r;
}

/* Of a row. */
SPECV_DEVFN int specv_i_target_positions(const specv_verify_sample_desc *d, const specv_row *row) {
    return row->n_draft + !d->bonus_token;
}

/* Temperatures of target and draft, as they are in memory. */
SPECV_DEVFN float2 specv_i_load_temperatures(const specv_verify_sample_desc *d, int b,
                                             const specv_row *row, int rule) {
    const specv_rows *rows = &d->verify.rows;
    float2 given = make_float2(1, 1);
    if (!row->readable || !(d->temperature || d->draft_temperature)) return given;
    const int32_t slot = specv_i_good_slot(rows->slot, rows->slot_dtype, b);
    if (d->temperature && rule != SPECV_RULE_GREEDY) given.x = d->temperature[slot];
    if (d->draft_temperature && d->draft.data) given.y = d->draft_temperature[slot];
    return given;
}

/* And what follows from them. */
SPECV_DEVFN void specv_i_set_temperatures(const specv_verify_sample_desc *d, float2 given,
                                          specv_i_request *r) {
    const int greedy = r->rule == SPECV_RULE_GREEDY;
    if (r->row.readable && !specv_temperature_ok(given.x)) r->status |= SPECV_ROW_BAD_TEMPERATURE;
    specv_i_set_temperature(&r->target, given.x, greedy);
    r->draft.zero = 1, r->draft.scale = r->target.scale;
    if (d->draft.data) specv_i_set_temperature(&r->draft, given.y, greedy);
    r->sampled = r->rule != SPECV_RULE_COUPLED && r->rule != SPECV_RULE_GREEDY && !r->target.zero;
    if (r->row.readable && r->sampled && d->draft.data && !specv_temperature_ok(given.y))
        r->status |= SPECV_ROW_BAD_TEMPERATURE;
    r->target_rows =
        r->sampled && r->target.dtype == SPECV_PROBS_F32 ? 0 : specv_i_target_positions(d, &r->row);
    r->draft_rows =
        r->sampled && d->draft.data && r->draft.dtype != SPECV_PROBS_F32 ? r->row.n_draft : 0;
    if (!r->row.readable) r->target_rows = r->draft_rows = 0;
}

SPECV_DEVFN void specv_i_open_temperatures(const specv_verify_sample_desc *d, int b,
                                           specv_i_request *r) {
    specv_i_set_temperatures(d, specv_i_load_temperatures(d, b, &r->row, r->rule), r);
}

/* What is given of a request, as it is in memory: loaded before anything else is computed. */
typedef struct specv_i_asked {
    int32_t top_k;
    float top_p, min_p;
} specv_i_asked;

typedef struct specv_i_both_asked {
    specv_i_asked of_target, of_draft;
} specv_i_both_asked;

SPECV_DEVFN specv_i_asked specv_i_load_asked(const specv_verify_sample_desc *d,
                                             const specv_filters *f, int readable, int b) {
    specv_i_asked g = {0, 1, 0};
    if (!readable || !specv_i_cuts(f)) return g;
    const int32_t slot = specv_i_good_slot(d->verify.rows.slot, d->verify.rows.slot_dtype, b);
    if (f->top_k) g.top_k = f->top_k[slot];
    if (f->top_p) g.top_p = f->top_p[slot];
    if (f->min_p) g.min_p = f->min_p[slot];
    return g;
}

SPECV_DEVFN specv_i_both_asked specv_i_load_both_asked(const specv_verify_sample_desc *d,
                                                       int readable, int b) {
    specv_i_both_asked g;
    g.of_target = specv_i_load_asked(d, &d->filters, readable, b);
    g.of_draft = specv_i_load_asked(d, &d->draft_filters, readable && d->draft.data, b);
    return g;
}

/* The masks of a side; 0 if they are outside all masks. base: row of position 0 where requests do
   not name one. */
SPECV_DEVFN int specv_i_open_mask(specv_i_side *side, const specv_filters *f, int b, int positions,
                                  int64_t base) {
    if (!f->mask) return 1;
    if (f->mask_row) base = f->mask_row[b];
    if (base == -1) return 1;
    if (f->mask_row && (base < 0 || base + positions > f->num_mask_rows)) return 0;
    side->mask = f->mask + base * f->mask_stride_words;
    side->mask_stride = f->mask_stride_words;
    return 1;
}

/* Shares of a tile, each a warp's, whose largest scores the first pass leaves where there are
   filters. */
enum { SPECV_I_SHARES = 4 };

/* Are the sums of a row's tiles asked for? Other limits that come before top_p, and of which the
   shares' largest scores say where they may end, leave so few ids that these are added up. */
SPECV_DEVFN int specv_i_needs_sums(const specv_i_limits *l, int64_t vocab, int num_tiles) {
    return l->has_top_p &&
           !(specv_i_is_of_kept(l, vocab) &&
             (l->top_k <= num_tiles * SPECV_I_SHARES || specv_i_less(0.f, l->min_p)));
}

/* What follows from what is given of a request's two sides, whatever else it is. */
typedef struct specv_i_cuts_asked {
    int32_t cut;                                  /* as of specv_i_request */
    uint32_t of_target, of_draft, of_temperature; /* status bits */
} specv_i_cuts_asked;

SPECV_DEVFN int specv_i_open_limits(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                    const specv_i_asked *g, int of_side, int64_t vocab,
                                    specv_i_limits *limits, uint32_t *status) {
    const specv_filters *f = of_side == SPECV_I_OF_TARGET ? &d->filters : &d->draft_filters;
    const specv_i_limits l =
        specv_i_limits_of(g->top_k, g->top_p, g->min_p, f->order, vocab, status);
    if (limits && specv_i_lane() == 0) *limits = l;
    if (specv_i_limits_are_off(&l, vocab)) return 0;
    return specv_i_needs_sums(&l, vocab, m->num_tiles) ? of_side * (1 + SPECV_I_SUMS) : of_side;
}

/* vocab: ids of a row, also those that are not here. limits: of target and draft, for lane 0 to
   fill in, or null. Call: warp. */
SPECV_DEVFN specv_i_cuts_asked specv_i_open_cuts(const specv_verify_sample_desc *d,
                                                 const specv_i_memory *m,
                                                 const specv_i_both_asked *g, int64_t vocab,
                                                 specv_i_limits *limits) {
    const specv_i_limits none = {0, 0, 0, 0, 0};
    specv_i_cuts_asked asked = {0, 0, 0, 0};
    if (limits && specv_i_lane() == 0 && !d->draft.data) limits[1] = none;
    asked.cut = specv_i_open_limits(d, m, &g->of_target, SPECV_I_OF_TARGET, vocab, limits,
                                    &asked.of_target);
    if (d->draft.data)
        asked.cut |= specv_i_open_limits(d, m, &g->of_draft, SPECV_I_OF_DRAFT, vocab,
                                         limits ? limits + 1 : 0, &asked.of_draft);
    return asked;
}

/* And of the request, which is open but for this. */
SPECV_DEVFN void specv_i_cut_as_asked(specv_i_request *r, const specv_i_cuts_asked *asked) {
    int sides = 0;
    if (!r->row.readable) {
        r->target_rows = r->draft_rows = 0;
        return;
    }
    r->status |= asked->of_target | asked->of_temperature;
    if (r->draft.scores && r->sampled) r->status |= asked->of_draft;
    if (r->target_rows && !r->target.zero) sides |= SPECV_I_OF_TARGET * (1 + SPECV_I_SUMS);
    if (r->draft_rows && !r->draft.zero) sides |= SPECV_I_OF_DRAFT * (1 + SPECV_I_SUMS);
    r->cut |= asked->cut & sides;
}

/* Where what filters have cut off is. */
SPECV_DEVFN void specv_i_open_least(const specv_i_memory *m, specv_i_request *r) {
    if (r->cut & SPECV_I_OF_TARGET) r->target.least = m->least + r->first_row;
    if (r->cut & SPECV_I_OF_DRAFT) r->draft.least = m->least + m->target_rows + r->first_row;
}

/* Temperatures, as they were loaded. */
SPECV_DEVFN void specv_i_open_scales(const specv_verify_sample_desc *d, float2 given,
                                     specv_i_request *r) {
    specv_i_set_temperatures(d, given, r);
    if (r->target.dtype == SPECV_I_WEIGHTS_F32) r->target.scale = specv_i_probs_scale();
    if (r->draft.dtype == SPECV_I_WEIGHTS_F32)
        r->draft.scale = specv_i_probs_scale(), r->draft.zero = 0;
}

/* Masks, behind the rest; if they are outside all masks, nothing else of the request is looked at:
   specv_i_cut_as_asked. Call: warp. */
SPECV_DEVFN void specv_i_open_masks(const specv_verify_sample_desc *d, int b, specv_i_request *r) {
    const int64_t draft_row = r->first_row - b; /* without the bonus of the rows before */
    int is_good;
    if (!r->row.readable) return;
    is_good = specv_i_open_mask(&r->target, &d->filters, b, specv_i_target_positions(d, &r->row),
                                d->bonus_token ? draft_row : r->first_row);
    is_good &= specv_i_open_mask(&r->draft, &d->draft_filters, b, r->row.n_draft, draft_row);
    if (is_good) return;
    r->row.readable = r->row.n_draft = 0;
    r->status = r->row.status | SPECV_ROW_BAD_FILTER;
}

/* Temperatures and filters. m->least holds what was cut off by the time that it is asked for.
   Call: warp. */
SPECV_DEVFN void specv_i_open_filters(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                      int b, specv_i_request *r) {
    const float2 temperatures = specv_i_load_temperatures(d, b, &r->row, r->rule);
    const specv_i_both_asked given = specv_i_load_both_asked(d, r->row.readable, b);
    const specv_i_cuts_asked asked = specv_i_open_cuts(d, m, &given, d->verify.vocab, 0);
    specv_i_open_scales(d, temperatures, r);
    specv_i_open_masks(d, b, r);
    specv_i_cut_as_asked(r, &asked);
    specv_i_open_least(m, r);
}

SPECV_DEVFN specv_i_sieve specv_i_sieve_of(const specv_i_side *side, int j) {
    specv_i_sieve s = {0, 0};
    if (side->mask) s.mask = side->mask + j * side->mask_stride;
    if (side->least) s.least = side->least[j];
    return s;
}

/* The position at which a request emitted column j. A tree's path is -1 where nothing is read. */
SPECV_DEVFN int specv_i_row_of_column(const specv_i_memory *m, int b, int j) {
    if (!m->path) return j;
    const int node = m->path[(int64_t)b * m->columns + j];
    return node < 0 ? 0 : node;
}

SPECV_DEVFN specv_i_request specv_i_open_request(const specv_verify_sample_desc *d, int b) {
    const specv_row row = specv_i_open_row(d, b);
    specv_i_request r = specv_i_open_rows(d, b, &row, d->rule);
    specv_i_open_temperatures(d, b, &r);
    return r;
}

SPECV_DEVFN specv_i_request specv_i_open_filtered_request(const specv_verify_sample_desc *d,
                                                          const specv_i_memory *m, int b) {
    const specv_row row = specv_i_open_row(d, b);
    specv_i_request r = specv_i_open_rows(d, b, &row, d->rule);
    specv_i_open_filters(d, m, b, &r);
    return r;
}

/* A request behind its verification: rows are those that emitted a token, or might have. */
SPECV_DEVFN specv_i_request specv_i_open_emitted(const specv_verify_sample_desc *d,
                                                 const specv_i_memory *m, int b,
                                                 const specv_row *row) {
    const int greedy = d->rule == SPECV_RULE_GREEDY && !d->emitted.raw;
    const int32_t *accepted = d->verify.accepted_len;
    specv_i_request r = specv_i_open_rows(d, b, row, greedy ? SPECV_RULE_GREEDY : SPECV_RULE_SCORE);
    if (!d->emitted.raw) {
        specv_i_open_filters(d, m, b, &r);
    } else {
        specv_i_open_temperatures(d, b, &r);
        specv_i_set_temperature(&r.target, 1.f, 0);
        if (r.target.dtype == SPECV_I_WEIGHTS_F32) r.target.scale = specv_i_probs_scale();
    }
    r.draft_rows = 0;
    int emitted = 1; /* rows that cannot be read have none */
    if (r.row.readable && accepted) emitted = accepted[b] + 1;
    if (emitted < r.target_rows) r.target_rows = emitted;
    return r;
}

/* Of a launch whose ticket was not what it must be: nothing is read, nothing is emitted. */
SPECV_DEVFN void specv_i_close_request(specv_i_request *r) {
    r->row.readable = 0, r->target_rows = r->draft_rows = 0;
    r->status |= SPECV_ROW_BAD_TICKET;
}

/* What is wanted of the tiles of one side. */
SPECV_DEVFN int specv_i_wanted(const specv_verify_sample_desc *d, const specv_i_request *r,
                               const specv_i_side *side, int of_draft) {
    int probs = side->dtype == SPECV_PROBS_F32 ? SPECV_TILE_PROBS : 0;
    if (side->zero) return probs;
    if (of_draft || r->rule != SPECV_RULE_COUPLED) return SPECV_TILE_SUM | probs;
    return SPECV_TILE_SCORE | probs |
           (d->logprob || d->emitted.logprob || d->lse || d->max_prob ? SPECV_TILE_SUM : 0);
}

/* The slot of a readable row, looked up where it is needed: a register for it would be one too
   many. */
SPECV_DEVFN int32_t specv_i_slot_of(const specv_verify_sample_desc *d, int b) {
    return specv_i_good_slot(d->verify.rows.slot, d->verify.rows.slot_dtype, b);
}

SPECV_DEVFN specv_random specv_i_random_of(const specv_verify_sample_desc *d, int b, int j,
                                           uint32_t tag) {
    const int32_t slot = specv_i_slot_of(d, b);
    return specv_philox(d->seed[slot], (uint32_t)d->position[slot], (uint32_t)(d->step_row + j), 0,
                        tag);
}

SPECV_DEVFN specv_noise specv_i_noise(const specv_verify_sample_desc *d, int b, int j) {
    specv_noise noise = {0, 0, 0, 0};
    if (!d->seed) return noise;
    const int32_t slot = specv_i_slot_of(d, b);
    return specv_i_noise_of(d, d->seed[slot], (uint32_t)d->position[slot], j);
}

/* Probability that a side gives to id x; NaN is reported and counts as 0. row: of its statistics;
   not looked at where the scores are probabilities. */
SPECV_DEVFN float specv_i_p(const specv_i_side *side, const specv_distribution *row, float score,
                            int32_t x, uint32_t *status) {
    if (side->dtype != SPECV_PROBS_F32) return specv_probability(row, &side->scale, score, x);
    if (specv_i_is_nan(score)) *status |= SPECV_ROW_NAN;
    return specv_i_max(score, 0.f);
}

SPECV_DEVFN const void *specv_i_scores_of(const specv_i_side *side, int j) {
    return specv_i_score_at(side->scores, side->dtype, j * side->pos_stride);
}

/* A row of probabilities has no statistics: the scores are the distribution. */
SPECV_DEVFN specv_distribution specv_i_plain_distribution(void) {
    specv_distribution row;
    row.sum = 0, row.inverse = row.inverse_low = 0, row.n = 0, row.id = -1,
    row.kind = SPECV_SOFTMAX;
    row.status = row.reserved = 0, row.max = 0;
    return row;
}

/* What the next token is drawn from: weights over the ids of one position. */
typedef struct specv_i_weights {
    const void *p_scores, *q_scores; /* (prefix * p - q)+, or p alone where q_scores is null */
    specv_i_sieve p_sieve, q_sieve;
    specv_distribution p, q;
    float prefix;
    int32_t without; /* p alone: this id has no weight; -1: none */
} specv_i_weights;

/* Of id x, in units of n. */
SPECV_DEVFN uint64_t specv_i_units(const specv_i_request *r, const specv_i_weights *w, int32_t x,
                                   int32_t n) {
    const float score =
        specv_i_sift(&w->p_sieve, specv_i_load_score(w->p_scores, r->target.dtype, x), x);
    const specv_weight weight =
        specv_softmax_weight(specv_i_max(score, r->target.scale.floor), &r->target.scale);
    return specv_weight_units(&weight, n);
}

/* Scores of ids first..first+3; those behind the vocabulary have no weight.
   first is a multiple of 4. One load where the row is aligned, else four in flight. */
SPECV_DEVFN void specv_i_load_four(float score[4], const void *scores, int dtype, int first,
                                   int vocab) {
    const int is_16_bit = specv_i_unit(dtype) == 8, left = vocab - first;
    const char *p = (const char *)specv_i_score_at(scores, dtype, first);
    const int whole = left >= 4 && ((uint64_t)p & (is_16_bit ? 7 : 15)) == 0;
    uint4 v;
    if (is_16_bit && whole) {
        const uint2 two = *(const uint2 *)p;
        v = make_uint4(two.x, two.y, 0, 0);
    } else {
        const uint32_t absent = specv_i_absent(dtype);
        v = specv_i_load_unit_of_scores(p, whole, is_16_bit, absent, left < 4 ? left : 4);
    }
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t code = i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xffffu;
        if (dtype == SPECV_LOGITS_F16)
            score[i] = specv_f16_float(code);
        else if (dtype == SPECV_LOGITS_BF16)
            score[i] = specv_bf16_float(code);
        else
            score[i] = specv_bits_float(word[i]);
        if (dtype == SPECV_I_WEIGHTS_F32) score[i] = specv_i_weight_score(score[i]);
    }
}

/* Scores that others have told, where those of a row are not all here: of the drafts (COUPLED: of
   the row's choice) by the target and by the draft model, and of the token that follows. */
typedef struct specv_i_said {
    const float *p, *q; /* [target rows of the request] */
    float next;
} specv_i_said;

/* ln p of the token that position k emits, and ln sum exp(logit / T) there. said: null where all
   scores are here. */
SPECV_DEVFN void specv_i_log_probability(const specv_i_request *r, const specv_distribution *row,
                                         int k, int32_t token, const specv_i_said *said,
                                         float *logprob, float *lse) {
    float score;
    if (r->target.dtype < SPECV_PROBS_F32) {
        *lse = row->kind == SPECV_ONE_HOT ? specv_i_add(row->max, 0.f) /* no -0 */
                                          : specv_log_sum_exp(row);
    }
    if (token < 0 || row->kind != SPECV_SOFTMAX) return;
    score = said ? said->next
                 : specv_i_load_score(specv_i_scores_of(&r->target, k), r->target.dtype, token);
    if (r->target.dtype == SPECV_PROBS_F32) {
        int32_t exponent;
        float fraction = specv_i_log2(score, &exponent);
        *logprob = specv_i_ln(exponent, fraction, 0);
    } else {
        *logprob = specv_log_probability(row, &r->target.scale, score);
    }
}

/* A tile that an id is drawn from: what is left of the point in it, in its units, those of n. */
typedef struct specv_i_chosen {
    uint64_t left;
    int32_t tile, n; /* tile -1: there is no weight */
} specv_i_chosen;

/* The first tile whose running weight exceeds floor(uniform * W / 2^64), W all weight. through: of
   specv_i_warp_merge. Call: warp. Trips: the tiles of one lane, at once. */
SPECV_DEVFN specv_i_chosen specv_i_warp_choose_tile(const specv_i_request *r,
                                                    const specv_i_weights *w,
                                                    const specv_tile *tiles, int num_tiles,
                                                    uint64_t through, uint64_t uniform) {
    const int lane = specv_i_lane(), each = specv_i_tiles_of_lane(num_tiles);
    const int of_without = w->without < 0 ? -1 : w->without / SPECV_TILE_IDS;
    uint64_t total = w->p.sum, less = 0, part, up_to;
    specv_i_chosen c = {0, -1, 0};
    uint32_t finer;
    int at, end;
    if (of_without >= 0) { /* what its tile has less, and the row */
        const uint64_t sum = tiles[of_without].sum;
        c.n = specv_softmax_weight(tiles[of_without].max, &r->target.scale).n;
        finer = (uint32_t)(w->p.n - c.n);
        if (sum) less = specv_i_units(r, w, w->without, c.n);
        part = specv_i_shift_right(sum, finer) - specv_i_shift_right(sum - less, finer);
        total -= part;
        if (lane >= of_without / each) through -= part;
    }
    if (total == 0) return c;
    c.left = specv_i_mul_high(uniform, total);
    at = specv_warp_first_reject(c.left < through);
    up_to = __shfl_sync(SPECV_FULL_WARP, through, (at - 1) & 31);
    if (at) c.left -= up_to;
    c.tile = (at & 31) * each;
    end = c.tile + each < num_tiles ? c.tile + each : num_tiles;
#pragma unroll 1
    for (;; c.tile += 32) {
        const int t = c.tile + lane < end ? c.tile + lane : end - 1;
        const uint64_t sum = tiles[t].sum - (t == of_without ? less : 0);
        c.n = specv_softmax_weight(tiles[t].max, &r->target.scale).n;
        finer = (uint32_t)(w->p.n - c.n);
        up_to = part = sum && c.tile + lane < end ? specv_i_shift_right(sum, finer) : 0;
#pragma unroll 1
        for (int distance = 1; distance < each && distance < 32; distance *= 2) {
            const uint64_t below = __shfl_up_sync(SPECV_FULL_WARP, up_to, (unsigned)distance);
            if (lane >= distance) up_to += below;
        }
        at = specv_warp_first_reject(c.left < up_to);
        if (at == 32 && c.tile + 32 >= end) at = end - 1 - c.tile; /* another wrote our scratch */
        if (at < 32) break;
        c.left -= __shfl_sync(SPECV_FULL_WARP, up_to, 31);
    }
    c.tile += at;
    c.left -= __shfl_sync(SPECV_FULL_WARP, up_to - part, at);
    c.n = __shfl_sync(SPECV_FULL_WARP, c.n, at);
    finer = (uint32_t)(w->p.n - c.n);
    c.left = c.left << finer | specv_i_shift_right(uniform * total, 64 - finer);
    return c;
}

/* The id of a tile that the place in it is of: the four ids of each thread, in the tile's own,
   finer units, in which what is behind the point goes on. Call: block of SPECV_SAMPLE_THREADS.
   Sync: two barriers. Trips: one load a thread. */
SPECV_DEVFN int32_t specv_i_block_draw_in(const specv_i_request *r, const specv_i_weights *w,
                                          specv_i_chosen chosen, int64_t vocab) {
    enum { WARPS = SPECV_SAMPLE_THREADS / 32 };
    __shared__ ulonglong2 of_warps[WARPS / 2];
    __shared__ int32_t drawn;
    uint64_t *of_warp = (uint64_t *)of_warps;
    const int thread = specv_i_thread(), lane = specv_i_lane(), warp = thread / 32;
    const int first = chosen.tile * SPECV_TILE_IDS + 4 * thread, n = chosen.n;
    uint64_t left = chosen.left, before, mine, units[4];
    float score[4];
    specv_weight weight[4];
    specv_i_load_four(score, w->p_scores, r->target.dtype, first, (int)vocab);
    specv_i_sift_some(&w->p_sieve, score, 4, first, (int)vocab);
#pragma unroll
    for (int i = 0; i < 4; ++i) score[i] = specv_i_max(score[i], r->target.scale.floor);
    specv_i_softmax_weights(weight, score, 4, &r->target.scale);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        units[i] =
            first + i < vocab && first + i != w->without ? specv_weight_units(&weight[i], n) : 0;
    mine = (units[0] + units[1]) + (units[2] + units[3]);
    before = specv_i_warp_inclusive_add(mine);
    if (lane == 31) of_warp[warp] = before;
    before -= mine;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i += 2) {
        const ulonglong2 its = of_warps[i / 2];
        if (i < warp) before += its.x;
        if (i + 1 < warp) before += its.y;
    }
    if (left >= before && left - before < mine) {
        int i = 0;
        left -= before;
#pragma unroll
        for (int next = 0; next < 3; ++next)
            if (i == next && left >= units[next]) left -= units[next], ++i;
        drawn = first + i;
    }
    __syncthreads();
    return drawn;
}

/* The first id whose running weight exceeds floor(uniform * W / 2^64), W all weight; -1 if W is 0.
   The tile first, by every warp for itself. Call, Sync: the same; none if W is 0. Trips: a few
   tiles before. */
SPECV_DEVFN int32_t specv_i_block_draw(const specv_i_request *r, const specv_i_weights *w,
                                       const specv_tile *tiles, int num_tiles, int64_t vocab,
                                       uint64_t through, uint64_t uniform) {
    const specv_i_chosen chosen =
        specv_i_warp_choose_tile(r, w, tiles, num_tiles, through, uniform);
    return chosen.tile < 0 ? -1 : specv_i_block_draw_in(r, w, chosen, vocab);
}

/* The row's numbers: u of the test of draft j, and the one that draws the token at position k. */
SPECV_DEVFN float specv_i_accept_uniform(const specv_verify_sample_desc *d,
                                         const specv_i_request *r, int b, int j, uint32_t *status) {
    if (d->accept_uniform)
        return specv_i_clean_uniform(d->accept_uniform[r->first_draft + j], status);
    specv_random x = specv_i_random_of(d, b, j, specv_i_tag(SPECV_TAG_ACCEPT, d->stream));
    return specv_uniform(&x);
}

SPECV_DEVFN uint64_t specv_i_sample_uniform(const specv_verify_sample_desc *d, int b, int k,
                                            uint32_t *status) {
    if (d->sample_uniform)
        return specv_uniform_bits(specv_i_clean_uniform(d->sample_uniform[b], status));
    specv_random x = specv_i_random_of(d, b, k, specv_i_draw_tag(d->stream));
    return (uint64_t)x.x[1] << 32 | x.x[0];
}

/* The number that draws the token at position `lane`, for all blocks of the row alike; of positions
   from 32 on it is made where it is used. */
typedef struct specv_i_draws {
    uint64_t uniform[32];
    uint32_t status, reserved;
} specv_i_draws;

/* draw: 0 if the row has no use for numbers, and they are 0. */
SPECV_DEVFN void specv_i_warp_make_draws(const specv_verify_sample_desc *d, int b, int draw,
                                         specv_i_draws *draws) {
    const int lane = specv_i_lane();
    uint32_t status = 0;
    draws->uniform[lane] = draw ? specv_i_sample_uniform(d, b, lane, &status) : 0;
    if (lane == 0) draws->status = status, draws->reserved = 0;
}

/* A request as the first pass has opened it, for the blocks that cut its rows. */
typedef struct specv_i_opened {
    specv_i_request request;
    specv_i_cuts_asked asked;
    specv_i_limits limits[2]; /* of target and draft */
} specv_i_opened;

SPECV_DEVFN specv_i_opened *specv_i_opened_at(const specv_i_memory *m, int b) {
    static_assert(sizeof(specv_i_opened) <= SPECV_I_OPENED_BYTES, "room for it");
    static_assert(sizeof(specv_i_opened) <= 4 * SPECV_SAMPLE_THREADS, "a word a thread");
    return (specv_i_opened *)(m->opened + (int64_t)b * SPECV_I_OPENED_BYTES);
}

/* Copies a structure of at most a word a thread. Call: block. */
SPECV_DEVFN void specv_i_put_word(void *to, const void *from, size_t bytes) {
    const int thread = specv_i_thread();
    if (thread < (int)(bytes / 4)) ((uint32_t *)to)[thread] = ((const uint32_t *)from)[thread];
}

SPECV_DEVFN int64_t specv_i_draft_token(const specv_verify_sample_desc *d, const specv_i_request *r,
                                        int j) {
    uint2 raw = {0, 0};
    specv_i_load_token(&raw, d->verify.draft_tokens, d->verify.token_dtype, r->first_draft + j);
    return specv_i_token(raw, d->verify.token_dtype);
}

/* Drafts before the first that is no token, up to and including the first EOS. Call: warp. */
SPECV_DEVFN void specv_i_warp_find_usable(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, specv_i_outcome *o) {
    const int lane = specv_i_lane(), n = r->row.n_draft;
    o->usable = n, o->ends_with_eos = 0;
    for (int base = 0; base < n; base += 32) {
        int j = base + lane, bad = 0, eos = 0, first;
        if (j < n) {
            int64_t draft = specv_i_draft_token(d, r, j);
            bad = !specv_i_is_token(draft, d->verify.vocab);
            eos = !bad && specv_i_is_eos(&d->verify, draft);
        }
        first = specv_warp_first_reject(bad | eos);
        if (first < 32) {
            o->ends_with_eos = __shfl_sync(SPECV_FULL_WARP, eos, first);
            o->usable = base + first + o->ends_with_eos;
            return;
        }
    }
}

/* What follows `accepted` drafts that are all that may be used, where it is not an EOS. */
SPECV_DEVFN int specv_i_next_of_all(const specv_verify_sample_desc *d, const specv_i_request *r,
                                    int accepted, int otherwise) {
    return d->bonus_token && accepted == r->row.n_draft ? SPECV_I_BONUS : otherwise;
}

/* After all usable drafts were accepted. */
SPECV_DEVFN void specv_i_accept_all(const specv_verify_sample_desc *d, const specv_i_request *r,
                                    specv_i_outcome *o) {
    o->accepted = o->usable, o->prefix = 1;
    o->next =
        o->ends_with_eos ? SPECV_I_NO_TOKEN : specv_i_next_of_all(d, r, o->usable, SPECV_I_DRAW);
}

/* The caller's token of row b, -1 if it is none. */
SPECV_DEVFN int32_t specv_i_bonus(const specv_verify_sample_desc *d, int b, uint32_t *status) {
    uint2 raw = {0, 0};
    specv_i_load_token(&raw, d->bonus_token, d->verify.token_dtype, b);
    const int64_t token = specv_i_token(raw, d->verify.token_dtype);
    if (specv_i_is_token(token, d->verify.vocab)) return (int32_t)token;
    *status |= SPECV_ROW_BAD_TARGET;
    return -1;
}

/* What the judge has to know of draft j beside its rows. u: of its test; rule BLOCK, whose test of
   draft j is that of a prefix that ends before it: of draft j - 1. */
typedef struct specv_i_claim {
    int32_t draft;
    float of_p, of_q, u; /* of_p, of_q: what target and draft model say of it */
    uint32_t status;
} specv_i_claim;

/* said: null where all scores are here. Call: any thread. Trips: draft and number together, then
   the two scores. */
SPECV_DEVFN specv_i_claim specv_i_load_claim(const specv_verify_sample_desc *d,
                                             const specv_i_request *r, int b, int j, int usable,
                                             const specv_i_said *said) {
    const int judged_by_p = r->sampled || r->rule == SPECV_RULE_SCORE;
    const int of_u = j - (r->rule == SPECV_RULE_BLOCK);
    specv_i_claim c = {-1, 0, 1, 0, 0};
    if (j < usable) {
        c.draft = (int32_t)specv_i_draft_token(d, r, j);
        if (said && judged_by_p) c.of_p = said->p[j];
        if (said && judged_by_p && d->draft.data) c.of_q = said->q[j];
    }
    if (j < usable && !said) {
        const specv_i_sieve p_sieve = specv_i_sieve_of(&r->target, j);
        const specv_i_sieve q_sieve = specv_i_sieve_of(&r->draft, j);
        if (judged_by_p)
            c.of_p = specv_i_load_score(specv_i_scores_of(&r->target, j), r->target.dtype, c.draft);
        if (judged_by_p && d->draft.data)
            c.of_q = specv_i_load_score(specv_i_scores_of(&r->draft, j), r->draft.dtype, c.draft);
        c.of_p = specv_i_sift(&p_sieve, c.of_p, c.draft);
        c.of_q = specv_i_sift(&q_sieve, c.of_q, c.draft);
    }
    if (r->sampled && r->rule != SPECV_RULE_SCORE && of_u >= 0 && of_u < usable)
        c.u = specv_i_accept_uniform(d, r, b, of_u, &c.status);
    return c;
}

/* Rule SCORE: every draft that may be used is accepted; its log-probability is written by the warp
   that reports. first: of the first 32 drafts, a lane's own. */
SPECV_DEVFN void specv_i_warp_score_drafts(const specv_verify_sample_desc *d,
                                           const specv_i_request *r, int b,
                                           const specv_distribution *rows,
                                           const specv_i_claim *first, const specv_i_said *said,
                                           int reports, specv_i_outcome *o) {
    const int probs = r->target.dtype == SPECV_PROBS_F32;
    uint32_t status = 0;
    for (int j = specv_i_lane(); j < o->usable; j += 32) {
        const specv_i_claim c = j < 32 ? *first : specv_i_load_claim(d, r, b, j, o->usable, said);
        specv_distribution row = specv_i_plain_distribution();
        if (r->target_rows) row = rows[j];
        status |= row.status;
        if (probs && specv_i_is_nan(c.of_p)) status |= SPECV_ROW_NAN;
        if (d->target_logprob && reports)
            d->target_logprob[b * (int64_t)d->verify.rows.max_draft + j] =
                specv_i_log_p(&row, &r->target.scale, probs, c.of_p, c.draft);
    }
    o->status |= specv_i_warp_or(status);
    specv_i_accept_all(d, r, o);
}

/* There are no drafts: the token follows at once. */
SPECV_DEVFN void specv_i_accept_none(const specv_verify_sample_desc *d, const specv_i_request *r,
                                     const specv_distribution *rows, specv_i_outcome *o) {
    const int draws = r->sampled || r->rule == SPECV_RULE_SCORE;
    o->next = specv_i_next_of_all(d, r, 0, draws ? SPECV_I_DRAW : SPECV_I_TOKEN);
    if (o->next == SPECV_I_TOKEN) o->status |= rows[0].status;
}

/* A2, A5, temperature 0: a draft is accepted if it is the only token that its position can have.
   Call: warp. rows: of this request. */
SPECV_DEVFN void specv_i_warp_judge_equal(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, int b,
                                          const specv_distribution *rows,
                                          const specv_i_claim *first, const specv_i_said *said,
                                          specv_i_outcome *o) {
    const int lane = specv_i_lane();
    for (int base = 0;; base += 32) {
        const int j = base + lane;
        int32_t choice = -1;
        uint32_t status = 0;
        int stops = j >= o->usable, at;
        if (j < o->usable ||
            (j == o->usable && !o->ends_with_eos && !(d->bonus_token && j == r->row.n_draft))) {
            const specv_i_claim c = base ? specv_i_load_claim(d, r, b, j, o->usable, said) : *first;
            choice = rows[j].id, status = rows[j].status;
            if (j < o->usable) stops = choice != c.draft;
        }
        at = specv_warp_first_reject(stops);
        o->status |= specv_i_warp_or(lane <= at ? status : 0);
        if (at == 32) continue;
        o->accepted = base + at;
        o->next = o->accepted == o->usable && o->ends_with_eos
                      ? SPECV_I_NO_TOKEN
                      : specv_i_next_of_all(d, r, o->accepted, SPECV_I_TOKEN);
        return;
    }
}

/* p and q of draft j; without draft scores q is 1. */
SPECV_DEVFN void specv_i_pair(const specv_verify_sample_desc *d, const specv_i_request *r,
                              const specv_distribution *rows, const specv_distribution *draft_rows,
                              int j, const specv_i_claim *c, float *p, float *q, uint32_t *status) {
    specv_distribution row = specv_i_plain_distribution();
    *status |= c->status;
    if (r->target_rows) row = rows[j], *status |= row.status;
    *p = specv_i_p(&r->target, &row, c->of_p, c->draft, status);
    *q = 1;
    if (!d->draft.data) return;
    if (r->draft_rows) row = draft_rows[j], *status |= row.status;
    *q = specv_i_p(&r->draft, &row, c->of_q, c->draft, status);
}

/* Where the token comes from when draft `accepted` was rejected. */
SPECV_DEVFN void specv_i_reject(const specv_verify_sample_desc *d, const specv_i_request *r,
                                const specv_distribution *rows, specv_i_outcome *o) {
    if (r->target_rows && rows[o->accepted].kind != SPECV_SOFTMAX)
        o->next = SPECV_I_DRAW; /* whatever is subtracted, the only token is the only one */
    else
        o->next = d->draft.data ? SPECV_I_RESIDUAL : SPECV_I_DRAW_WITHOUT;
}

/* A3. Call: warp. */
SPECV_DEVFN void
specv_i_warp_judge_token(const specv_verify_sample_desc *d, const specv_i_request *r, int b,
                         const specv_distribution *rows, const specv_distribution *draft_rows,
                         const specv_i_claim *first, const specv_i_said *said, specv_i_outcome *o) {
    const int lane = specv_i_lane();
    o->prefix = 1;
    for (int base = 0; base < o->usable; base += 32) {
        const int j = base + lane;
        uint32_t status = 0;
        int rejected = 0, at;
        if (j < o->usable) {
            const specv_i_claim c = base ? specv_i_load_claim(d, r, b, j, o->usable, said) : *first;
            float p, q;
            specv_i_pair(d, r, rows, draft_rows, j, &c, &p, &q, &status);
            rejected = !specv_accept(c.u, q, p);
        }
        at = specv_warp_first_reject(rejected);
        o->status |= specv_i_warp_or(lane <= at ? status : 0);
        if (at == 32) continue;
        o->accepted = base + at;
        specv_i_reject(d, r, rows, o);
        return;
    }
    specv_i_accept_all(d, r, o);
}

/* A4, as far as it goes without the sums over all ids: P of every position (to prefixes,
   where not null), the test of the last one, and without draft scores all tests. Call: warp. */
SPECV_DEVFN void specv_i_warp_judge_block(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, int b,
                                          const specv_distribution *rows,
                                          const specv_distribution *draft_rows, float *prefixes,
                                          const specv_i_claim *first, const specv_i_said *said,
                                          specv_i_outcome *o) {
    const int lane = specv_i_lane();
    float prefix = 1, prefix_of_tau = 1, last_u = 0;
    int tau = 0;
    for (int base = 0; base < o->usable; base += 32) {
        const int j = base + lane, count = o->usable - base < 32 ? o->usable - base : 32;
        float p = 0, q = 0, u = 0, mine = 1; /* mine: P_j */
        uint32_t status = 0;
        int passes = 0;
        unsigned mask;
        if (j < o->usable) {
            const specv_i_claim c = base ? specv_i_load_claim(d, r, b, j, o->usable, said) : *first;
            specv_i_pair(d, r, rows, draft_rows, j, &c, &p, &q, &status);
            u = c.u;
        }
        o->status |= specv_i_warp_or(status);
        for (int i = 0; i < count; ++i) {
            float p_i = __shfl_sync(SPECV_FULL_WARP, p, i),
                  q_i = __shfl_sync(SPECV_FULL_WARP, q, i);
            if (i == lane) mine = prefix;
            p_i = specv_i_mul(prefix, p_i);
            prefix = !specv_i_less(0.f, p_i)  ? 0.f
                     : specv_i_less(p_i, q_i) ? specv_i_div(p_i, q_i)
                                              : 1.f;
        }
        if (prefixes && j < o->usable) prefixes[j] = mine;
        if (j > 0 && j < o->usable && !d->draft.data && specv_i_less(0.f, mine)) {
            float lost = specv_fma(specv_i_negate(mine), p, 1.f);
            float gained = specv_i_mul(mine, specv_i_add(1.f, specv_i_negate(p)));
            passes = !specv_i_less(0.f, lost) || specv_accept(u, lost, gained);
        }
        mask = __ballot_sync(SPECV_FULL_WARP, passes);
        if (mask) {
            int last = 31 - __clz((int)mask);
            tau = base + last;
            prefix_of_tau = __shfl_sync(SPECV_FULL_WARP, mine, last);
        }
    }
    if (o->usable > 0 && o->usable < 32) { /* the lane behind the drafts has it */
        last_u = __shfl_sync(SPECV_FULL_WARP, first->u, o->usable);
        o->status |= __shfl_sync(SPECV_FULL_WARP, first->status, o->usable);
    } else if (o->usable > 0) {
        last_u = specv_i_accept_uniform(d, r, b, o->usable - 1, &o->status);
    }
    if (o->usable == 0 || specv_accept(last_u, 1.f, prefix)) {
        specv_i_accept_all(d, r, o);
        return;
    }
    o->accepted = tau, o->prefix = prefix_of_tau;
    if (d->draft.data)
        o->next = SPECV_I_RESIDUAL; /* tau is not known yet */
    else
        specv_i_reject(d, r, rows, o);
}

/* emitted.logprob of all columns but k, that of the token. Call: block. */
SPECV_DEVFN void specv_i_block_put_logprobs(const specv_verify_sample_desc *d,
                                            const specv_i_request *r, const specv_i_memory *m,
                                            int b, int k, const specv_i_said *said) {
    const int probs = r->target.dtype == SPECV_PROBS_F32, columns = d->verify.rows.max_draft + 1;
#pragma unroll 1
    for (int64_t j = specv_i_thread(); j < columns; j += SPECV_SAMPLE_THREADS) {
        float logprob = 0;
        if (j == k) continue;
        if (j < k && (!r->target.zero || r->rule == SPECV_RULE_SCORE)) { /* else it is 1 */
            const int32_t token = (int32_t)specv_i_draft_token(d, r, (int)j);
            const specv_i_sieve sieve = specv_i_sieve_of(&r->target, (int)j);
            specv_distribution row = specv_i_plain_distribution();
            float score;
            if (said)
                score = said->p[j];
            else
                score = specv_i_sift(&sieve,
                                     specv_i_load_score(specv_i_scores_of(&r->target, (int)j),
                                                        r->target.dtype, token),
                                     token);
            if (r->target_rows) row = m->rows[r->first_row + j];
            logprob = specv_i_log_p(&row, &r->target.scale, probs, score, token);
        }
        d->emitted.logprob[b * (int64_t)columns + j] = logprob;
    }
}

/* Emits the row: draws the token from tiles if that is still to be done, then stores all outputs.
   p: the row there; drawn: a token was drawn from every row by the block that cut it; else through,
   uniform: of specv_i_block_draw, if one has to be. Call: block. */
SPECV_DEVFN void specv_i_block_emit_from(const specv_verify_sample_desc *d,
                                         const specv_i_request *r, const specv_i_memory *m, int b,
                                         specv_i_outcome o, const specv_distribution *p, int drawn,
                                         uint64_t through, uint64_t uniform,
                                         const specv_i_said *said) {
    const specv_verify_greedy_desc *v = &d->verify;
    const int k = o.accepted, n_draft = r->row.n_draft, thread = specv_i_thread();
    const int probs = r->target.dtype == SPECV_PROBS_F32;
    const int64_t row = r->first_row + k;
    specv_i_weights w;
    w.p = *p, w.q = specv_i_plain_distribution();
    int32_t token = w.p.id;
    if (o.next == SPECV_I_BONUS) token = specv_i_bonus(d, b, &o.status);
    if (drawn && o.next == SPECV_I_DRAW_WITHOUT && w.p.kind == SPECV_SOFTMAX) {
        if ((int32_t)w.p.reserved >= 0)
            token = (int32_t)w.p.reserved;
        else
            o.status |= SPECV_ROW_ZERO_RESIDUAL;
    }
    if (!drawn && o.next > SPECV_I_TOKEN && w.p.kind == SPECV_SOFTMAX) {
        const specv_tile *tiles = m->tiles + row * m->num_tiles;
        w.p_scores = specv_i_scores_of(&r->target, k), w.p_sieve = specv_i_sieve_of(&r->target, k);
        w.q_scores = 0, w.prefix = 1, w.without = -1;
        if (o.next == SPECV_I_DRAW_WITHOUT) w.without = (int32_t)specv_i_draft_token(d, r, k);
#pragma unroll 1
        for (;; w.without = -1) {
            token = specv_i_block_draw(r, &w, tiles, m->num_tiles, v->vocab, through, uniform);
            if (token >= 0 || w.without < 0) break;
            o.status |= SPECV_ROW_ZERO_RESIDUAL;
        }
    }
    if (o.next > SPECV_I_TOKEN) {
        o.status |= w.p.status;
        if (token < 0) o.status |= SPECV_ROW_EMPTY;
    }
    if (v->out_tokens)
#pragma unroll 1
        for (int j = thread; j <= v->rows.max_draft; j += SPECV_SAMPLE_THREADS)
            specv_i_store_token(v->out_tokens, v->token_dtype, b * v->out_stride_elems + j,
                                j < k    ? specv_i_draft_token(d, r, j)
                                : j == k ? token
                                         : -1);
    if (d->emitted.logprob) specv_i_block_put_logprobs(d, r, m, b, k, said);
    /* Each output has a thread in a warp of its own, which waits for no other. */
    const int mismatch = o.next > SPECV_I_NO_TOKEN && k < n_draft;
    if (thread == 0) {
        if (mismatch && k == o.usable) {
            const int64_t draft = specv_i_draft_token(d, r, k);
            if (draft != -1 && !specv_i_is_token(draft, v->vocab)) o.status |= SPECV_ROW_BAD_DRAFT;
        }
        specv_i_put_status(v->row_status, b, o.status, v->keep_status);
    } else if (thread == 32) {
        if (v->accepted_len) v->accepted_len[b] = k;
        if (v->mismatch) v->mismatch[b] = (uint8_t)mismatch;
    } else if (thread == 64) {
        if (v->next_token) specv_i_store_token(v->next_token, v->token_dtype, b, token);
        if (v->num_emitted) v->num_emitted[b] = k + (token >= 0);
    } else if (thread == 96) {
        if (v->finished)
            v->finished[b] = (uint8_t)(o.next == SPECV_I_NO_TOKEN || specv_i_is_eos(v, token));
    } else if (thread == 128 && (d->logprob || d->lse || d->emitted.logprob)) {
        float logprob = 0, lse = 0;
        if (o.next > SPECV_I_BONUS)
            specv_i_log_probability(r, &w.p, k, token, said, &logprob, &lse);
        if (d->logprob) d->logprob[b] = logprob;
        if (d->lse) d->lse[b] = lse;
        if (d->emitted.logprob)
            d->emitted.logprob[b * ((int64_t)v->rows.max_draft + 1) + k] = logprob;
    } else if (thread == 160 && d->max_prob) {
        d->max_prob[b] =
            token < 0 ? 0.f : specv_i_largest_p(&w.p, &r->target.scale, probs, w.p.max);
    }
}

/* What specv_i_warp_merge found of this lane, and keeps in its first tile, where a row that tokens
   are drawn from has no score. */
SPECV_DEVFN uint64_t *specv_i_through_at(const specv_i_memory *m, int64_t row) {
    const int first = specv_i_lane() * specv_i_tiles_of_lane(m->num_tiles);
    return first < m->num_tiles ? (uint64_t *)&m->tiles[row * m->num_tiles + first].score : 0;
}

SPECV_DEVFN uint64_t specv_i_load_through(const specv_i_memory *m, int64_t row, uint64_t sum) {
    const uint64_t *at = specv_i_through_at(m, row);
    return at ? *at : sum;
}

/* The same with what is in scratch memory. */
SPECV_DEVFN void specv_i_block_emit(const specv_verify_sample_desc *d, const specv_i_request *r,
                                    const specv_i_memory *m, int b, specv_i_outcome o) {
    specv_distribution p = specv_i_plain_distribution();
    uint64_t through = 0, uniform = 0;
    if (r->target_rows && o.next > SPECV_I_BONUS) p = m->rows[r->first_row + o.accepted];
    if (o.next > SPECV_I_TOKEN && p.kind == SPECV_SOFTMAX) {
        if (!r->cut) through = specv_i_load_through(m, r->first_row + o.accepted, p.sum);
        uniform = specv_i_sample_uniform(d, b, o.accepted, &o.status);
    }
    specv_i_block_emit_from(d, r, m, b, o, &p, r->cut != 0, through, uniform, 0);
}

/* ---- the first pass over logits

   A block has two tiles at a time, a tile four warps, a lane eight ids that follow each other: so
   little that a multiprocessor holds two to four blocks, and that one row of 128k ids is work for
   500 warps. dtype and what are constants of a kernel. */
enum { SPECV_I_TILES = SPECV_SAMPLE_THREADS / 32 / SPECV_I_SHARES };

/* Eight scores as they are in memory; 16-bit types: low alone. */
typedef struct specv_i_eight {
    uint4 low, high;
} specv_i_eight;

/* Eight scores from p on; those from `left` on are behind the vocabulary: -inf. */
SPECV_DEVFN void specv_i_load_eight_at(specv_i_eight *v, const char *p, int dtype, int left) {
    const int is_16_bit = specv_i_unit(dtype) == 8;
    const uint32_t absent = specv_i_absent(dtype);
    const int whole = left >= 8 && ((uint64_t)p & 15) == 0;
    v->low = specv_i_load_unit_of_scores(p, whole, is_16_bit, absent, left);
    if (!is_16_bit) v->high = specv_i_load_unit_of_scores(p + 16, whole, 0, absent, left - 4);
}

/* Ids first..first+7 of a row. */
SPECV_DEVFN void specv_i_load_eight(specv_i_eight *v, const void *row, int dtype, int vocab,
                                    int first) {
    specv_i_load_eight_at(v, (const char *)specv_i_score_at(row, dtype, first), dtype,
                          vocab - first);
}

/* A lane's first id in a tile that its warp shares. */
SPECV_DEVFN int specv_i_first_of_share(int tile) {
    return tile * SPECV_TILE_IDS + specv_i_thread() % (32 * SPECV_I_SHARES) * 8;
}

/* A lane's first id of tile `tile`, or, in the block's other half, of the next. */
SPECV_DEVFN int specv_i_first_of_lane(int tile) {
    return specv_i_first_of_share(tile + specv_i_thread() / (32 * SPECV_I_SHARES));
}

/* Where the scores of these are, of position j of a side: bytes behind its first. */
SPECV_DEVFN int64_t specv_i_share_at(const specv_verify_sample_desc *d, const specv_row *row,
                                     int dtype, int b, int of_draft, int j, int tile) {
    const specv_scores *scores = of_draft ? &d->draft : &d->target;
    const int64_t first =
        specv_i_first_score(&d->verify.rows, row, scores, b, of_draft || d->bonus_token);
    return (first + j * scores->pos_stride_elems + specv_i_first_of_lane(tile)) *
           (specv_i_unit(dtype) == 8 ? 2 : 4);
}

SPECV_DEVFN void specv_i_load_share_at(specv_i_eight *v, const specv_verify_sample_desc *d,
                                       int dtype, int of_draft, int64_t at, int first) {
    const specv_scores *scores = of_draft ? &d->draft : &d->target;
    specv_i_load_eight_at(v, (const char *)scores->data + at, dtype, (int)d->verify.vocab - first);
}

SPECV_DEVFN void specv_i_load_share(specv_i_eight *v, const specv_verify_sample_desc *d,
                                    const specv_row *row, int dtype, int b, int of_draft, int j,
                                    int tile) {
    specv_i_load_share_at(v, d, dtype, of_draft,
                          specv_i_share_at(d, row, dtype, b, of_draft, j, tile),
                          specv_i_first_of_lane(tile));
}

SPECV_DEVFN void specv_i_decode_eight(float score[8], const specv_i_eight *v, int dtype) {
    const uint32_t word[8] = {v->low.x,  v->low.y,  v->low.z,  v->low.w,
                              v->high.x, v->high.y, v->high.z, v->high.w};
    if (dtype == SPECV_LOGITS_BF16) { /* a branch, not one for each */
#pragma unroll
        for (int e = 0; e < 8; ++e)
            score[e] = specv_bits_float(e % 2 ? word[e / 2] & 0xffff0000u : word[e / 2] << 16);
    } else if (dtype == SPECV_LOGITS_F16) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
            score[e] = specv_f16_float(e % 2 ? word[e / 2] >> 16 : word[e / 2] & 0xffffu);
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) score[e] = specv_bits_float(word[e]);
        if (dtype == SPECV_I_WEIGHTS_F32)
#pragma unroll
            for (int e = 0; e < 8; ++e) score[e] = specv_i_weight_score(score[e]);
    }
}

SPECV_DEVFN void specv_i_weights_of_eight(specv_weight weight[8], const float score[8],
                                          const specv_scale *scale) {
    float raised[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) raised[e] = specv_i_max(score[e], scale->floor);
    specv_i_softmax_weights(weight, raised, 8, scale);
}

/* The largest of a lane's scores; -inf if there is none, as NaN is no score. */
SPECV_DEVFN float specv_i_lane_max(const float score[8]) {
    float highest[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) highest[e] = specv_i_max(score[2 * e], score[2 * e + 1]);
    return specv_i_max(
        specv_i_max(highest[0], highest[1]),
        specv_i_max(specv_i_max(highest[2], highest[3]), specv_bits_float(0xff800000u)));
}

/* The largest of a lane's scores, and which it is: the first of equal ones, as 0 and -0 are. */
SPECV_DEVFN float specv_i_lane_best(const float score[8], int has_nan, int *which) {
    float best[8];
    int at[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) best[e] = score[e], at[e] = e;
    if (has_nan)
#pragma unroll
        for (int e = 0; e < 8; ++e) best[e] = specv_i_max(best[e], specv_bits_float(0xff800000u));
#pragma unroll
    for (int step = 1; step < 8; step *= 2)
#pragma unroll
        for (int e = 0; e < 8; e += 2 * step)
            specv_i_keep_larger(&best[e], &at[e], best[e + step], at[e + step]);
    *which = at[0];
    return best[0];
}

SPECV_DEVFN int specv_i_eight_have_nan(const float score[8]) {
    int has_nan;
    asm("{ .reg .pred p, q, r, s; setp.nan.f32 p, %1, %2; setp.nan.f32 q, %3, %4;"
        " setp.nan.f32 r, %5, %6; setp.nan.f32 s, %7, %8; or.pred p, p, q; or.pred r, r, s;"
        " or.pred p, p, r; selp.s32 %0, 1, 0, p; }"
        : "=r"(has_nan)
        : "f"(score[0]), "f"(score[1]), "f"(score[2]), "f"(score[3]), "f"(score[4]), "f"(score[5]),
          "f"(score[6]), "f"(score[7]));
    return has_nan;
}

/* What a warp says of its share of a tile. best: the largest score and its id as one number, the
   greater the lower the id, and behind them whether there was a NaN. */
typedef struct specv_i_share {
    uint64_t best, sum;
    int64_t score;
    uint32_t id; /* of the score */
    uint32_t before;
} specv_i_share;

SPECV_DEVFN uint64_t specv_i_best_of(int32_t key, int id, int has_nan) {
    return (uint64_t)((uint32_t)key ^ 0x80000000u) << 31 | (uint32_t)(0x3fffffff - id) << 1 |
           (has_nan != 0);
}

SPECV_DEVFN int32_t specv_i_key_of_best(uint64_t best) {
    return (int32_t)((uint32_t)(best >> 31) ^ 0x80000000u);
}

SPECV_DEVFN int32_t specv_i_id_of_best(uint64_t best) {
    return 0x3fffffff - (int32_t)((uint32_t)best >> 1 & 0x3fffffffu);
}

/* The largest score that a thread has seen of a row, its id, and whether there was a NaN, over the
   block: as the end of a tile, for the one thread that this returns 1 to, of the first warp, which
   puts together what all have said, of eight threads a lane. ordered: ids rise with threads. Call:
   block. Sync: a barrier; put one between two calls. */
SPECV_DEVFN int specv_i_block_best(float most, int32_t id, int has_nan, int ordered, uint2 *end) {
    enum { WARPS = SPECV_SAMPLE_THREADS / 32, EACH = SPECV_SAMPLE_THREADS / 32 };
    __shared__ longlong2 of_threads[SPECV_SAMPLE_THREADS / 2]; /* order key, lower id first */
    __shared__ uint32_t nan_of[WARPS];
    const int thread = specv_i_thread();
    const int32_t its_key = specv_i_order_key(specv_float_bits(most));
    int64_t best[EACH];
    uint32_t nan = 0;
    ((int64_t *)of_threads)[thread] = (int64_t)((uint64_t)(uint32_t)its_key << 32 | (uint32_t)~id);
    has_nan = __any_sync(SPECV_FULL_WARP, has_nan);
    if (specv_i_lane() == 0) nan_of[thread / 32] = (uint32_t)has_nan;
    __syncthreads();
    if (thread >= 32) return 0;
#pragma unroll
    for (int w = 0; w < EACH; w += 2) {
        const longlong2 two = of_threads[EACH / 2 * thread + w / 2];
        best[w] = two.x, best[w + 1] = two.y;
    }
    if (thread < WARPS) nan = nan_of[thread];
#pragma unroll
    for (int w = 0; w < EACH; ++w) SPECV_I_EARLY("l", best[w]); /* all at once */
#pragma unroll
    for (int step = 1; step < EACH; step *= 2)
#pragma unroll
        for (int w = 0; w < EACH; w += 2 * step)
            if (best[w + step] > best[w]) best[w] = best[w + step];
    const int32_t key = (int32_t)(best[0] >> 32), top = specv_warp_reduce_max(key);
    const int32_t lowest_id = (int32_t) ~(uint32_t)best[0];
    unsigned owners = __ballot_sync(SPECV_FULL_WARP, key == top);
    if (!ordered && owners & (owners - 1)) {
        const int32_t lowest = specv_warp_reduce_min(key == top ? lowest_id : SPECV_I_INT_MAX);
        owners = __ballot_sync(SPECV_FULL_WARP, key == top && lowest_id == lowest);
    }
    *end =
        make_uint2(specv_float_bits(specv_i_of_order_key(top)),
                   (uint32_t)lowest_id | (__any_sync(SPECV_FULL_WARP, nan) ? SPECV_I_NAN_BIT : 0));
    return thread == __ffs((int)owners) - 1;
}

/* In `what` of the first pass: in place of a score the tile has the largest logit of each of its
   shares, as rank keys without their lower half, share 0 in the lowest bits. */
enum { SPECV_I_SHARE_MAXIMA = 8 };

/* And where these are, and sums: how many ids of the tile come before the token of the row, as the
   warps say. In place of the id; where the largest logit is not in range, and the id may be asked
   for, in place of the sum, which then is not, or weighs nothing in the row. */
enum { SPECV_I_IDS_BEFORE = 16 };

SPECV_DEVFN uint32_t specv_i_upper_key(float score) {
    return ((uint32_t)specv_i_order_key(specv_float_bits(score)) ^ 0x80000000u) >> 16;
}

/* The least score with this upper key. */
SPECV_DEVFN float specv_i_score_of_upper(uint32_t key) {
    return specv_i_of_order_key((int32_t)(key << 16 ^ 0x80000000u));
}

enum { SPECV_I_FAR = 127 };

/* How far a score is below another, in eighths, of probabilities in eighths of octaves: one that is
   lower is nowhere nearer. */
SPECV_DEVFN int32_t specv_i_away(float from, float score, int of_probs) {
    int32_t away;
    const float eighths = specv_i_mul(specv_i_add(from, specv_i_negate(score)), 8.f);
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(away) : "f"(eighths)); /* whatever -ftz says */
    if (of_probs)
        away = specv_i_less(0.f, score)
                   ? (int32_t)(specv_float_bits(from) - specv_float_bits(score)) >> 20
                   : SPECV_I_FAR;
    away = away > 0 ? away : 0;
    return away < SPECV_I_FAR ? away : SPECV_I_FAR;
}

/* Statistics of a tile, by the warps that share it; share, largest: of the block's warps. Lane 0 of
   the first of them gets the tile. lanes: of the tile, for specv_i_away of each lane from what its
   share's upper key says; or null. may: bits that `what` can have, a constant. Call: block. Sync:
   two barriers, one of them only where sums or scores are wanted; none between two calls. */
SPECV_DEVFN specv_tile specv_i_block_tiles(const float score[8], int first, int may, int what,
                                           const specv_scale *scale, const specv_noise *noise,
                                           uint32_t before, unsigned char *lanes,
                                           specv_i_share *share, float *largest) {
    const int warp = specv_i_thread() / 32, lane = specv_i_lane();
    const int first_warp = warp / SPECV_I_SHARES * SPECV_I_SHARES;
    const float none = specv_bits_float(0xff800000u);
    specv_i_share own = {0, 0, SPECV_I_NO_SCORE, 0, before};
    specv_tile t = {0, SPECV_I_NO_SCORE, none, SPECV_I_INT_MAX};
    specv_weight weight[8];
    float of_tile = none;
    uint64_t maxima = 0;
    int in_range = 0, owner = 0;
    const int has_nan = __any_sync(SPECV_FULL_WARP, specv_i_eight_have_nan(score));
    if (what) {
        const float of_lane = specv_i_lane_max(score);
        of_tile = specv_i_warp_max(of_lane);
        if (may & SPECV_I_SHARE_MAXIMA && lanes)
            lanes[specv_i_thread() % SPECV_I_LANES] = (unsigned char)specv_i_away(
                specv_i_score_of_upper(specv_i_upper_key(of_tile)), of_lane, scale->of_probs);
        /* Before the tile's largest is known; not where noise needs the registers. */
        if (!(what & SPECV_TILE_SCORE) && what != SPECV_I_SHARE_MAXIMA)
            specv_i_weights_of_eight(weight, score, scale);
        if (lane == 0) largest[warp] = of_tile;
        if (lane == 0 && may & SPECV_I_SHARE_MAXIMA && what == SPECV_I_SHARE_MAXIMA)
            share[warp].before = (uint32_t)has_nan;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < SPECV_I_SHARES; ++w) {
            const float of_share = largest[first_warp + w];
            of_tile = specv_i_max(of_tile, of_share);
            if (may & SPECV_I_SHARE_MAXIMA)
                maxima |= (uint64_t)specv_i_upper_key(of_share) << 16 * w;
        }
        in_range = specv_in_range(of_tile, scale);
    }
    const int maxima_suffice =
        may & SPECV_I_SHARE_MAXIMA && what == SPECV_I_SHARE_MAXIMA && in_range;
    if (maxima_suffice) {
        uint32_t nan = 0;
#pragma unroll
        for (int w = 0; w < SPECV_I_SHARES; ++w) nan |= share[first_warp + w].before;
        t.score = (int64_t)maxima, t.max = of_tile, t.id = nan ? SPECV_I_NAN_BIT : 0;
    } else if (!in_range) {
        int at;
        const float of_lane = specv_i_lane_best(score, has_nan, &at);
        const int32_t key = specv_i_order_key(specv_float_bits(of_lane)),
                      top = specv_warp_reduce_max(key);
        owner = __ffs((int)__ballot_sync(SPECV_FULL_WARP, key == top)) - 1;
        own.best = specv_i_best_of(top, first + at, has_nan);
    } else {
        own.best = specv_i_best_of(specv_i_order_key(specv_float_bits(of_tile)), 0, has_nan);
        if (what & SPECV_TILE_SCORE) {
            int32_t id = SPECV_I_INT_MAX;
            specv_i_warp_score_eight(score, first, first + 4, 0, scale, noise, &own.score, &id);
            own.id = (uint32_t)id;
        }
        if (what & SPECV_TILE_SUM) {
            const int32_t n_max = specv_softmax_weight(of_tile, scale).n;
            uint64_t units[8];
            if (what & SPECV_TILE_SCORE) specv_i_weights_of_eight(weight, score, scale);
#pragma unroll
            for (int e = 0; e < 8; ++e) units[e] = specv_weight_units(&weight[e], n_max);
#pragma unroll
            for (int e = 0; e < 4; ++e) units[e] += units[e + 4];
            own.sum = specv_i_warp_add((units[0] + units[1]) + (units[2] + units[3]));
        }
    }
    if (lane == owner && !maxima_suffice) {
        share[warp].best = own.best;
        if (may & SPECV_TILE_SUM) share[warp].sum = own.sum;
        if (may & SPECV_TILE_SCORE) share[warp].score = own.score, share[warp].id = own.id;
        if (may & SPECV_I_IDS_BEFORE) share[warp].before = own.before;
    }
    __syncthreads();
    if (warp == first_warp && lane == 0 && !maxima_suffice) {
        uint64_t best[SPECV_I_SHARES], sum[SPECV_I_SHARES], nan = 0;
#pragma unroll
        for (int w = 0; w < SPECV_I_SHARES; ++w) {
            best[w] = share[warp + w].best, sum[w] = 0;
            if (may & SPECV_TILE_SUM) sum[w] = share[warp + w].sum;
        }
#pragma unroll
        for (int w = 0; w < SPECV_I_SHARES; ++w) { /* all at once, not one after the other */
            SPECV_I_EARLY("l", best[w]);
            SPECV_I_EARLY("l", sum[w]);
        }
#pragma unroll
        for (int w = 0; w < SPECV_I_SHARES; ++w) { /* ids rise with w: the lowest one stays */
            const specv_i_share *other = &share[warp + w];
            nan |= best[w];
            if (w && best[w] > best[0]) best[0] = best[w];
            t.sum += sum[w];
            if (may & SPECV_TILE_SCORE && (w == 0 || other->score > t.score))
                t.score = other->score, t.id = other->id;
        }
        t.max = specv_i_of_order_key(specv_i_key_of_best(best[0]));
        if (!(may & SPECV_TILE_SCORE) || t.score == SPECV_I_NO_SCORE)
            t.id = (uint32_t)specv_i_id_of_best(best[0]);
        if (may & what & SPECV_I_IDS_BEFORE) {
            uint32_t of_tile_before = 0;
#pragma unroll
            for (int w = 0; w < SPECV_I_SHARES; ++w) of_tile_before += share[warp + w].before;
            if (in_range)
                t.id = of_tile_before;
            else
                t.sum = of_tile_before;
        }
        if (nan & 1) t.id |= SPECV_I_NAN_BIT;
        if (may & what & SPECV_I_SHARE_MAXIMA) t.score = (int64_t)maxima;
    }
    return t;
}

/* First pass over probabilities that are judged like logits (A2, A5, temperature 0): statistics of
   the request's tiles, by block `block` of num_blocks. Call: block. */
SPECV_DEVFN void specv_i_block_statistics(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, const specv_i_memory *m, int b,
                                          int block, int num_blocks) {
    const int warp = specv_i_thread() / 32, num_warps = SPECV_SAMPLE_THREADS / 32;
    const int num_items = r->target_rows * m->num_tiles;
    const int wanted = specv_i_wanted(d, r, &r->target, 0);
#pragma unroll 1
    for (int item = block * num_warps + warp; item < num_items; item += num_blocks * num_warps) {
        const int j = item / m->num_tiles, t = item % m->num_tiles;
        const specv_noise noise = specv_i_noise(d, b, j);
        float score[32];
        specv_tile tile;
        specv_warp_load_tile(score, specv_i_scores_of(&r->target, j), SPECV_PROBS_F32,
                             d->verify.vocab, t);
        tile = specv_warp_tile_stats(score, specv_i_unit(SPECV_PROBS_F32), t, wanted,
                                     &r->target.scale, &noise);
        if (specv_i_lane() == 0) m->tiles[r->first_row * m->num_tiles + item] = tile;
    }
}

/* What the last block of a request judges by: rows (the target's, then the draft's) if they are so
   few, the first 32 drafts and the numbers that the token may need. Shared. */
enum { SPECV_I_ROWS_HERE = 32 };

typedef struct specv_i_evidence {
    specv_distribution rows[SPECV_I_ROWS_HERE];
    uint64_t through[SPECV_I_ROWS_HERE][32]; /* of specv_i_warp_merge, of the target's rows */
    specv_i_claim claims[32];
    uint64_t uniforms[32];
    specv_i_outcome found; /* usable drafts */
} specv_i_evidence;

SPECV_DEVFN int specv_i_rows_are_here(const specv_i_request *r) {
    return r->target_rows + r->draft_rows <= SPECV_I_ROWS_HERE;
}

/* Of a row: A2 has one of each block of its grid, in place of tiles. may: as above. */
SPECV_DEVFN int specv_i_num_records(const specv_i_memory *m, int may) {
    return may || m->num_tiles == 0 ? m->num_tiles : (int)gridDim.y;
}

/* Of a request's rows, first the target's, then the draft's. */
SPECV_DEVFN int64_t specv_i_row_in_memory(const specv_i_memory *m, int64_t first_row,
                                          int target_rows, int i) {
    return (i >= target_rows ? m->target_rows - target_rows : 0) + first_row + i;
}

/* Where the tiles of the i-th begin, in bytes, and what a lane puts together of it. */
SPECV_DEVFN int64_t specv_i_tiles_at(const specv_i_memory *m, int64_t first_row, int target_rows,
                                     int i) {
    return specv_i_row_in_memory(m, first_row, target_rows, i) * m->num_tiles *
           (int64_t)sizeof(specv_tile);
}

SPECV_DEVFN specv_i_lane_tiles specv_i_tiles_of_row(const specv_i_memory *m, int64_t first_row,
                                                    int target_rows, int i, int may) {
    return specv_i_lane_tiles_of(specv_i_tiles_at(m, first_row, target_rows, i),
                                 specv_i_num_records(m, may));
}

/* The first row of a warp that merges: the warp that waits for the ticket has the last one. */
SPECV_DEVFN int specv_i_row_of_warp(int num_warps) {
    const int warp = specv_i_thread() / 32;
    return warp ? warp - 1 : num_warps - 1;
}

/* Rows from tiles, a row per warp; scratch memory gets them where the evidence has no room or a
   second pass follows. may: of specv_i_warp_merge. first: specv_i_tiles_of_row of the warp's first
   row, of other warps than 0; or null. Call: num_warps warps. */
SPECV_DEVFN void specv_i_warps_merge(const specv_verify_sample_desc *d, const specv_i_request *r,
                                     const specv_i_memory *m, int may, int num_warps,
                                     const specv_i_lane_tiles *first, specv_i_evidence *e) {
    const int lane = specv_i_lane();
    int i = specv_i_row_of_warp(num_warps);
    if (i >= r->target_rows + r->draft_rows) return;
    specv_i_lane_tiles own;
    if (first && specv_i_thread() >= 32)
        own = *first;
    else
        own = specv_i_tiles_of_row(m, r->first_row, r->target_rows, i, may);
#pragma unroll 1
    for (;;) {
        const int draft = r->draft_rows > 0 && i >= r->target_rows;
        const int64_t row = specv_i_row_in_memory(m, r->first_row, r->target_rows, i);
        const specv_i_side side = draft ? r->draft : r->target;
        const int what = specv_i_wanted(d, r, &side, draft);
        uint64_t through;
        specv_distribution merged =
            specv_i_warp_merge_of(m->tiles, own, may, what, side.zero, &side.scale, &through);
        int num_rows = r->target_rows + r->draft_rows;
        SPECV_I_EARLY("r", num_rows); /* not before the tiles are loaded */
        const int here = num_rows <= SPECV_I_ROWS_HERE;
        const int keep = d->draft.data != 0 || d->emitted.logprob || !here;
        if (merged.sum && (r->row.n_draft > 0 || d->max_prob)) specv_i_set_inverse(&merged);
        if (here && !draft && what == SPECV_TILE_SUM) e->through[i][lane] = through;
        if (keep && !draft && what == SPECV_TILE_SUM) {
            uint64_t *at = specv_i_through_at(m, row);
            if (at) *at = through;
        }
        if (lane == 0 && here) e->rows[i] = merged;
        if (lane == 0 && keep) m->rows[row] = merged;
        i += num_warps;
        if (i >= num_rows) return;
        own.row = specv_i_tiles_at(m, r->first_row, r->target_rows, i);
    }
}

/* What the tiles of a request of any rule hold: without noise, running sums are put where a score
   would be. */
SPECV_DEVFN int specv_i_may(const specv_i_request *r) {
    return r->rule == SPECV_RULE_COUPLED ? SPECV_TILE_SUM | SPECV_TILE_SCORE : SPECV_TILE_SUM;
}

enum { SPECV_I_ROWS_DRAWN = 1, SPECV_I_ROWS_FETCHED = 2 };

/* Rows that the blocks which cut them have put together. Call: num_warps warps. */
SPECV_DEVFN void specv_i_warps_fetch(const specv_i_request *r, const specv_i_memory *m,
                                     int num_warps, specv_i_evidence *e) {
    enum { WORDS = sizeof(specv_distribution) / 4 };
    const int lane = specv_i_lane();
    if (!specv_i_rows_are_here(r)) return;
    for (int i = specv_i_thread() / 32; i < r->target_rows + r->draft_rows; i += num_warps) {
        const int of_draft = i >= r->target_rows;
        const specv_distribution *row =
            m->rows + r->first_row + (of_draft ? m->target_rows + i - r->target_rows : i);
        if (lane < WORDS) ((uint32_t *)&e->rows[i])[lane] = ((const uint32_t *)row)[lane];
    }
}

/* While most warps merge rows, the last one loads what is to be judged, and the one before draws
   the numbers. drawn: rows are complete, in scratch memory or, FETCHED, here as far as there is
   room. Call: the last block of a request. Sync: a barrier at the end. Trips: tile sums beside
   drafts and seeds, scores of the drafts. */
SPECV_DEVFN void specv_i_block_gather(const specv_verify_sample_desc *d, const specv_i_request *r,
                                      const specv_i_memory *m, int b, int may, int drawn,
                                      const specv_i_said *said, const specv_i_lane_tiles *first,
                                      specv_i_evidence *e) {
    enum { JUDGE = SPECV_SAMPLE_THREADS / 32 - 1, MERGE = JUDGE - 1 };
    const int warp = specv_i_thread() / 32, lane = specv_i_lane();
    if (warp < MERGE) {
        if (drawn == SPECV_I_ROWS_DRAWN)
            specv_i_warps_fetch(r, m, MERGE, e);
        else if (!drawn)
            specv_i_warps_merge(d, r, m, may, MERGE, first, e);
    } else if (warp < JUDGE) {
        if (!drawn && r->sampled && !d->sample_uniform && lane <= r->row.n_draft &&
            r->row.readable) {
            uint32_t none = 0;
            e->uniforms[lane] = specv_i_sample_uniform(d, b, lane, &none);
        }
    } else {
        specv_i_outcome o = {0, 0, 0, SPECV_I_NOTHING, 1, r->status};
        specv_i_claim claim = {-1, 0, 1, 0, 0};
        if (r->row.readable && r->row.n_draft > 0) {
            specv_i_warp_find_usable(d, r, &o);
            claim = specv_i_load_claim(d, r, b, lane, o.usable, said);
        }
        e->claims[lane] = claim;
        if (lane == 0) e->found = o;
    }
    __syncthreads();
}

/* The row is judged, by every warp alike: nobody waits for what another one found. The first one
   reports, but not of drafts whose scores others have said: who emits the row does. Call: the same
   block. */
SPECV_DEVFN specv_i_outcome specv_i_block_verdict(const specv_verify_sample_desc *d,
                                                  const specv_i_request *r, const specv_i_memory *m,
                                                  int b, const specv_i_evidence *e,
                                                  const specv_i_said *said) {
    const int lane = specv_i_lane(), reports = specv_i_thread() / 32 == 0;
    const int here = specv_i_rows_are_here(r);
    const specv_distribution *rows = here ? e->rows : m->rows + r->first_row;
    const specv_distribution *draft_rows =
        here ? e->rows + r->target_rows : m->rows + m->target_rows + r->first_row;
    specv_i_outcome o = e->found;
    if (r->row.readable) {
        const specv_i_claim claim = e->claims[lane];
        if (r->row.n_draft == 0)
            specv_i_accept_none(d, r, rows, &o);
        else if (r->rule == SPECV_RULE_SCORE)
            specv_i_warp_score_drafts(d, r, b, rows, &claim, said, reports && !said, &o);
        else if (!r->sampled)
            specv_i_warp_judge_equal(d, r, b, rows, &claim, said, &o);
        else if (r->rule == SPECV_RULE_BLOCK)
            specv_i_warp_judge_block(d, r, b, rows, draft_rows,
                                     reports ? m->prefixes + r->first_row : 0, &claim, said, &o);
        else
            specv_i_warp_judge_token(d, r, b, rows, draft_rows, &claim, said, &o);
    }
    if (d->target_logprob && reports && !said)
        for (int j = o.accepted + lane; j < d->verify.rows.max_draft; j += 32)
            d->target_logprob[b * (int64_t)d->verify.rows.max_draft + j] = 0;
    return o;
}

/* The row is judged, and finished if no second pass is needed. Call: the same block. Trips: two of
   the draw. */
SPECV_DEVFN void specv_i_block_decide(const specv_verify_sample_desc *d, const specv_i_request *r,
                                      const specv_i_memory *m, int b, int drawn,
                                      const specv_i_evidence *e) {
    const int lane = specv_i_lane(), here = specv_i_rows_are_here(r);
    const int has_second = d->draft.data != 0;
    const specv_distribution *rows = here ? e->rows : m->rows + r->first_row;
    specv_i_outcome o = specv_i_block_verdict(d, r, m, b, e, 0);
    if (o.next == SPECV_I_RESIDUAL || (o.next > SPECV_I_TOKEN && r->target_rows == 0)) {
        if (specv_i_thread() == 0) m->plans[b] = o; /* for the second pass */
        return;
    }
    specv_distribution p = specv_i_plain_distribution();
    uint64_t through = 0, uniform = 0;
    if (r->target_rows && o.next > SPECV_I_BONUS) p = rows[o.accepted];
    if (o.next > SPECV_I_TOKEN && p.kind == SPECV_SOFTMAX) {
        if (!drawn)
            through = here ? e->through[o.accepted][lane]
                           : specv_i_load_through(m, r->first_row + o.accepted, p.sum);
        if (o.accepted >= 32 || d->sample_uniform)
            uniform = specv_i_sample_uniform(d, b, o.accepted, &o.status);
        else if (!drawn)
            uniform = e->uniforms[o.accepted];
    }
    specv_i_block_emit_from(d, r, m, b, o, &p, drawn, through, uniform, 0);
    o.next = SPECV_I_NOTHING;
    if (specv_i_thread() == 0 && has_second) m->plans[b] = o;
}

/* First pass where the target gives probabilities. Call: block. */
SPECV_DEVFN void specv_i_block_judge(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                     int b, int block, int num_blocks) {
    __shared__ specv_i_evidence evidence;
    {
        const specv_i_request r = specv_i_open_request(d, b);
        if (r.target_rows == 0) num_blocks = 1;
        if (block >= num_blocks) return;
        specv_i_block_statistics(d, &r, m, b, block, num_blocks);
    }
    const int arrival = specv_i_block_arrives(&m->tickets[2 * b], block, num_blocks);
    if (arrival == SPECV_I_NOT_LAST) return;
    /* Opened anew: kept in registers over the first half, it would not leave enough there. */
    specv_i_request r = specv_i_open_request(d, b);
    if (arrival == SPECV_I_BAD_TICKET) specv_i_close_request(&r);
    specv_i_block_gather(d, &r, m, b, SPECV_TILE_SUM | SPECV_TILE_SCORE, 0, 0, 0, &evidence);
    specv_i_block_decide(d, &r, m, b, 0, &evidence);
}

/* A request that was put aside, with what is known of it when this is compiled. */
SPECV_DEVFN specv_i_request specv_i_reopen(const specv_i_request *opened,
                                           const specv_i_cuts_asked *asked, int dtype, int what,
                                           int rule, int filters) {
    specv_i_request r = *opened;
    if (filters)
        specv_i_cut_as_asked(&r, asked);
    else
        specv_i_without_filters(&r);
    r.target.dtype = dtype, r.rule = rule;
    if (!what) r.target.zero = 1;
    if (what != SPECV_TILE_SUM) r.sampled = r.draft_rows = 0;
    return r;
}

/* Where a block's warps put statistics of row i and the tiles from `tile` on. */
SPECV_DEVFN specv_tile *specv_i_place_of(const specv_i_memory *m, int64_t first_row,
                                         int target_rows, int i, int tile) {
    const int64_t row = specv_i_row_in_memory(m, first_row, target_rows, i);
    const int own_tile = tile + specv_i_thread() / (32 * SPECV_I_SHARES);
    specv_tile *place = m->tiles + row * m->num_tiles + own_tile;
    SPECV_I_EARLY("l", place);
    return place;
}

/* Is `tile` behind those that a block has of a row, from `base` on? */
SPECV_DEVFN int specv_i_run_ends(const specv_i_memory *m, int base, int tile) {
    return tile >= base + m->tiles_of_block || tile >= m->num_tiles;
}

/* And where a block of A2 puts the largest of what it has of a row. */
SPECV_DEVFN specv_tile *specv_i_record_at(const specv_i_memory *m, int64_t row) {
    specv_tile *place = m->tiles + row * m->num_tiles + (int)blockIdx.y;
    SPECV_I_EARLY("l", place);
    return place;
}

/* How many of the warp's ids, eight a lane from `first` on, come before the token that position
   `row` emitted in column j. Call: warp. Trips: the token, its score. */
SPECV_DEVFN uint32_t specv_i_warp_count_before(const specv_verify_sample_desc *d,
                                               const specv_i_side *side, int b, int j, int row,
                                               const float score[8], int first) {
    const specv_i_sieve sieve = specv_i_sieve_of(side, row);
    uint2 raw = {0, 0};
    int32_t count = 0;
    specv_i_load_token(&raw, d->verify.out_tokens, d->verify.token_dtype,
                       b * d->verify.out_stride_elems + j);
    const int64_t token = specv_i_token(raw, d->verify.token_dtype);
    if (token < 0) return 0;
    const float its = specv_i_max(
        specv_i_sift(&sieve, specv_i_load_score(specv_i_scores_of(side, row), side->dtype, token),
                     (int32_t)token),
        specv_bits_float(0xff800000u));
#pragma unroll
    for (int e = 0; e < 8; ++e)
        count += specv_i_less(its, score[e]) ||
                 (first + e < token && !specv_i_less(score[e], its) && !specv_i_is_nan(score[e]) &&
                  specv_i_less(specv_bits_float(0xff800000u), its));
    return (uint32_t)specv_warp_reduce_add(count);
}

/* What a first pass over logits is about, of which the compiler knows most: what is wanted of
   tiles, bits that it can have, the rule. what: a constant, or with filters what follows from the
   rule; emitted: of the rows of emitted tokens. */
typedef struct specv_i_pass {
    int dtype, what, may, rule, filters, emitted;
} specv_i_pass;

SPECV_DEVFN specv_i_pass specv_i_pass_of(const specv_sample_task *task, int dtype, int what,
                                         int filters) {
    const specv_verify_sample_desc *d = &task->d;
    specv_i_pass pass;
    pass.dtype = dtype, pass.filters = filters;
    pass.emitted = filters && task->sides & SPECV_I_OF_EMITTED;
    if (filters)
        what = d->rule == SPECV_RULE_COUPLED && !pass.emitted ? SPECV_TILE_SCORE : SPECV_TILE_SUM;
    pass.what = what;
    pass.may = filters || what == SPECV_TILE_SCORE ? SPECV_TILE_SCORE | SPECV_TILE_SUM : what;
    pass.rule = filters                                                      ? d->rule
                : !what                                                      ? SPECV_RULE_GREEDY
                : what == SPECV_TILE_SCORE                                   ? SPECV_RULE_COUPLED
                : d->rule == SPECV_RULE_BLOCK || d->rule == SPECV_RULE_SCORE ? d->rule
                                                                             : SPECV_RULE_TOKEN;
    return pass;
}

/* What warps put where, each its part of it: of a request all but what follows from temperatures,
   that, and what is asked of filters. Call: lane. */
SPECV_DEVFN void specv_i_put_side(specv_i_side *to, const specv_i_side *side) {
    to->scores = side->scores, to->pos_stride = side->pos_stride, to->dtype = side->dtype;
    to->mask = side->mask, to->least = side->least, to->mask_stride = side->mask_stride;
}

SPECV_DEVFN void specv_i_put_opened(specv_i_request *to, const specv_i_request *r) {
    to->row = r->row, to->status = r->status;
    specv_i_put_side(&to->target, &r->target), specv_i_put_side(&to->draft, &r->draft);
    to->first_row = r->first_row, to->first_draft = r->first_draft;
    to->rule = r->rule, to->cut = r->cut, to->reserved = r->reserved;
}

SPECV_DEVFN void specv_i_put_scales(specv_i_request *to, const specv_i_request *r) {
    to->target.zero = r->target.zero, to->target.scale = r->target.scale;
    to->draft.zero = r->draft.zero, to->draft.scale = r->draft.scale;
    to->target_rows = r->target_rows, to->draft_rows = r->draft_rows, to->sampled = r->sampled;
}

SPECV_DEVFN void specv_i_put_asked(specv_i_cuts_asked *to, const specv_i_cuts_asked *asked) {
    to->cut = asked->cut, to->of_target = asked->of_target, to->of_draft = asked->of_draft;
}

/* The largest score of what the block has of rows i, i + gridDim.z, ... below high, a record of
   each: a thread remembers it over all tiles, and where one row ends the block puts it together.
   next: the thread's scores of the first tile, on their way from `at`. Returns whether the thread
   is the one that may arrive: it has stored the last record. Call: block. */
SPECV_DEVFN int specv_i_block_largest(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                      const specv_row *row, int dtype, int b, int first_id, int i,
                                      int high, int64_t at, const specv_i_eight *next) {
    enum { STEP = SPECV_I_TILES * SPECV_TILE_IDS };
    const int base = (int)blockIdx.y * m->tiles_of_block;
    const int ordered = m->tiles_of_block == SPECV_I_TILES;
    int end = base + m->tiles_of_block;
    end = end < m->num_tiles ? end : m->num_tiles;
    int first = specv_i_first_of_lane(base);
    specv_tile *out = specv_i_record_at(m, specv_i_first_row(&d->verify.rows, row, b) + i);
    SPECV_I_EARLY("r", end);
    SPECV_I_EARLY("r", first);
    specv_i_eight own = *next;
    int arrives;
#pragma unroll 1
    for (;;) {
        float most = specv_bits_float(0xff800000u);
        int32_t most_id = 0, has_nan = 0;
        int id = first, its_nan, which;
#pragma unroll 1
        for (int tile = base + SPECV_I_TILES;; tile += SPECV_I_TILES) {
            float score[8];
            specv_i_eight later = own;
            at += STEP * (specv_i_unit(dtype) == 8 ? 2 : 4);
            if (tile < end) specv_i_load_share_at(&later, d, dtype, 0, at, id + STEP);
            specv_i_decode_eight(score, &own, dtype);
            its_nan = specv_i_eight_have_nan(score);
            const float of_lane =
                specv_i_lane_best(score, __any_sync(SPECV_FULL_WARP, its_nan), &which);
            specv_i_keep_larger(&most, &most_id, of_lane, id + which);
            has_nan |= its_nan;
            if (tile >= end) break;
            id += STEP, own = later;
        }
        i += (int)gridDim.z;
        if (i < high) { /* while the row is put together */
            at = specv_i_share_at(d, row, dtype, b, 0, i, base);
            specv_i_load_share_at(&own, d, dtype, 0, at, first);
        }
        uint2 record = make_uint2(0, 0);
        arrives = specv_i_block_best(most, first_id + most_id, has_nan, ordered, &record);
        if (arrives && m->num_tiles > 0) *(uint2 *)&out->max = record;
        if (i >= high) return arrives;
        out += (int64_t)gridDim.z * m->num_tiles;
        __syncthreads(); /* what threads have said is read */
    }
}

/* First pass over the logits of a request: statistics of its rows. 1: this block came last, and all
   of them are there. Block (b, y, z): of request b and row z, first the target's rows, then the
   draft's, the y-th m->tiles_of_block tiles, two at a time; then those of the row a whole grid
   further. Where nothing is asked but a row's largest logit (A2), a thread remembers it over all
   tiles of the block, which leaves one record and no tiles. The scores are on their way while the
   temperature is loaded; what else a request is, is found while the ticket is, where there are no
   filters. first_id: that the first column stands for; vocab: ids of a row, also those that are not
   here. opened, asked: shared; the request, for specv_i_reopen; asked is null without filters.
   first: of specv_i_warps_merge, for A2; or null. Call: block. */
SPECV_DEVFN int specv_i_block_logits(const specv_sample_task *task, const specv_i_pass *pass,
                                     int first_id, int64_t vocab, specv_i_request *opened,
                                     specv_i_cuts_asked *asked, specv_i_lane_tiles *first) {
    enum { OPENS = SPECV_SAMPLE_THREADS / 32 - 1 };
    __shared__ specv_i_share share[SPECV_SAMPLE_THREADS / 32];
    __shared__ float largest[SPECV_SAMPLE_THREADS / 32];
    const specv_verify_sample_desc *d = &task->d;
    const specv_i_memory *m = &task->memory;
    specv_i_begin(d->verify.chained);
    const int warp = specv_i_thread() / 32, b = (int)blockIdx.x;
    const int dtype = pass->dtype, what = pass->what, may = pass->may, rule = pass->rule;
    const int filters = pass->filters, emitted = pass->emitted;
    const int num_rows_at_once = (int)gridDim.z, base = (int)blockIdx.y * m->tiles_of_block;
    const int of_best = !filters && !what; /* nothing is asked but a row's largest */
    const specv_row row = specv_i_open_row(d, b);
    const int target_rows = row.readable ? specv_i_target_positions(d, &row) : 0;
    const int of_target = what != SPECV_TILE_SUM || task->sides & SPECV_I_OF_TARGET;
    const int of_draft_too = what == SPECV_TILE_SUM && task->sides & SPECV_I_OF_DRAFT;
    const int low = of_target ? 0 : target_rows;
    int high = target_rows, i = low + (int)blockIdx.z, tile = base;
    if (of_draft_too && row.readable) high += row.n_draft;
    float2 given = make_float2(1, 1);
    specv_i_both_asked of_sides = {{0, 1, 0}, {0, 1, 0}};
    const int opens_scales = filters ? OPENS - 2 : OPENS;
    if (!emitted && !of_best && warp == opens_scales)
        given = specv_i_load_temperatures(d, b, &row, rule);
    if (filters && warp == OPENS - 1)
        of_sides = specv_i_load_both_asked(d, row.readable && !emitted, b);
    specv_i_eight next;
    if (filters || of_best) next.high = make_uint4(0, 0, 0, 0); /* of types of 16 bits */
    int64_t at = 0;
    if (!filters) { /* of a row that there may not be: nothing waits for whether there is */
        const int of_draft = of_draft_too && i >= target_rows;
        at = specv_i_share_at(d, &row, dtype, b, of_draft, of_draft ? i - target_rows : i, tile);
        SPECV_I_EARLY("l", at);
    }
    if (i < high) {
        const int of_draft = of_draft_too && i >= target_rows;
        const int its_row = filters ? specv_i_row_of_column(m, b, i) : i;
        if (filters)
            at = specv_i_share_at(d, &row, dtype, b, of_draft,
                                  of_draft ? its_row - target_rows : its_row, tile);
        specv_i_load_share_at(&next, d, dtype, of_draft, at, specv_i_first_of_lane(tile));
    }
    specv_i_opened *saved = 0; /* a block's work, for specv_filter_kernel */
    if (filters && of_target && !emitted && m->opened && (blockIdx.y | blockIdx.z) == 0)
        saved = specv_i_opened_at(m, b);
    if (warp == OPENS && !of_best) { /* one warp for all, while the scores come */
        specv_i_request of_block;
        if (emitted) {
            of_block = specv_i_open_emitted(d, m, b, &row);
        } else if (filters) {
            of_block = specv_i_open_rows(d, b, &row, rule);
            specv_i_open_masks(d, b, &of_block);
        } else {
            of_block = specv_i_begin_request(d, &row, rule);
            specv_i_set_temperatures(d, given, &of_block);
        }
        if (specv_i_lane() == 0 && filters && !emitted)
            specv_i_put_opened(opened, &of_block);
        else if (specv_i_lane() == 0)
            *opened = of_block;
    } else if (filters && warp == OPENS - 1) { /* one for its filters */
        const specv_i_cuts_asked of_block =
            specv_i_open_cuts(d, m, &of_sides, vocab, saved ? saved->limits : 0);
        if (specv_i_lane() == 0) specv_i_put_asked(asked, &of_block);
        if (specv_i_lane() == 0 && saved) specv_i_put_asked(&saved->asked, &of_block);
    } else if (filters && warp == OPENS - 2) { /* and one for its temperatures */
        specv_i_request of_block = specv_i_begin_request(d, &row, rule);
        of_block.status = 0;
        if (!emitted) specv_i_open_scales(d, given, &of_block);
        if (specv_i_lane() == 0 && !emitted) specv_i_put_scales(opened, &of_block);
        if (specv_i_lane() == 0) asked->of_temperature = of_block.status;
        if (specv_i_lane() == 0 && saved) saved->asked.of_temperature = of_block.status;
    }
    const int64_t first_row = specv_i_first_row(&d->verify.rows, &row, b);
    specv_tile *out = of_best ? 0 : specv_i_place_of(m, first_row, target_rows, i, tile);
    if (!of_best) __syncthreads();
    if (saved) specv_i_put_word(&saved->request, opened, sizeof *opened);
    specv_i_request r = specv_i_begin_request(d, &row, rule);
    if (!of_best) r = specv_i_reopen(opened, asked, dtype, what, rule, filters);
    if (of_best) r.draft_rows = 0;
    const int nodes = filters && !emitted && d->stream & SPECV_I_OF_TREE;
    if (nodes && !r.cut) return 0;
    if (high > target_rows && r.draft_rows == 0) high = target_rows;
    if (filters && !r.row.readable) high = low;
    if (emitted && high > r.target_rows) high = r.target_rows;
    const int num_rows = high < low ? 0 : high - low;
    const int num_blocks =
        (int)gridDim.y * (num_rows < num_rows_at_once ? num_rows : num_rows_at_once);
    const int block = (int)(blockIdx.z * gridDim.y + blockIdx.y);
    if (block >= (num_blocks ? num_blocks : 1)) return 0;
    uint64_t seed = 0;
    uint32_t position = 0;
    if (what & SPECV_TILE_SCORE && r.row.readable) {
        const int32_t slot = specv_i_slot_of(d, b);
        seed = d->seed[slot], position = (uint32_t)d->position[slot];
    }
    uint32_t *ticket = &m->tickets[2 * b], mine = 0, all = 0;
    if (!filters) { /* there are registers for what the handshake will ask */
        SPECV_I_EARLY("l", ticket);
        if (warp == 0) { /* of which one thread arrives */
            mine = num_blocks > 1 ? specv_i_own_ticket(block, num_blocks) : 0;
            all = specv_i_all_tickets(num_blocks ? num_blocks : 1);
            SPECV_I_EARLY("r", mine);
            SPECV_I_EARLY("r", all);
        }
    }
    int arrives = specv_i_thread() == 0;
    if (of_best && i < high)
        arrives = specv_i_block_largest(d, m, &row, dtype, b, first_id, i, high, at, &next);
#pragma unroll 1
    while (!of_best && i < high) {
        const specv_i_eight raw = next;
        const int of_draft = of_draft_too && i >= target_rows, at = i;
        const int its_row = filters ? specv_i_row_of_column(m, b, at) : at;
        const int own_tile = tile + warp / SPECV_I_SHARES;
        const specv_i_side side = of_draft ? r.draft : r.target;
        int wanted = side.zero ? 0 : what;
        if (what == SPECV_TILE_SCORE && wanted) /* the rest of it is known to the compiler */
            wanted |= specv_i_wanted(d, &r, &side, of_draft) & SPECV_TILE_SUM;
        const int of_side = of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET;
        if (filters && wanted && (emitted || r.cut & of_side))
            wanted = emitted || r.cut & of_side * SPECV_I_SUMS
                         ? SPECV_TILE_SUM | SPECV_I_SHARE_MAXIMA
                         : SPECV_I_SHARE_MAXIMA;
        const specv_noise noise = specv_i_noise_of(d, seed, position, at);
        const specv_scale scale = side.scale;
        float score[8];
        specv_tile t;
        tile += SPECV_I_TILES;
        if (specv_i_run_ends(m, base, tile)) tile = base, i += num_rows_at_once;
        int next_of_draft = of_draft_too && i >= target_rows;
        if (!filters && i < high)
            specv_i_load_share(&next, d, &row, dtype, b, next_of_draft,
                               next_of_draft ? i - target_rows : i, tile);
        specv_i_decode_eight(score, &raw, dtype);
        if (filters) {
            const specv_i_sieve sieve =
                specv_i_sieve_of(&side, of_draft ? its_row - target_rows : its_row);
            specv_i_sift_some(&sieve, score, 8, specv_i_first_of_share(own_tile),
                              (int)d->verify.vocab);
        }
        uint32_t before = 0;
        if (emitted && wanted && d->emitted.rank) {
            wanted |= SPECV_I_IDS_BEFORE;
            before = specv_i_warp_count_before(d, &side, b, at, its_row, score,
                                               specv_i_first_of_share(own_tile));
        }
        unsigned char *lanes = 0;
        if (filters && wanted & SPECV_I_SHARE_MAXIMA && m->lanes && own_tile < m->num_tiles)
            lanes = m->lanes + (out - m->tiles) * SPECV_I_LANES;
        t = specv_i_block_tiles(score, first_id + specv_i_first_of_share(own_tile),
                                filters ? may | SPECV_I_SHARE_MAXIMA | SPECV_I_IDS_BEFORE : may,
                                wanted, &scale, &noise, before, lanes, share, largest);
        if (specv_i_thread() % (32 * SPECV_I_SHARES) == 0 && own_tile < m->num_tiles) *out = t;
        if (i < high) out = specv_i_place_of(m, first_row, target_rows, i, tile);
        if (filters && i < high) { /* there are no registers for it before */
            const int j = specv_i_row_of_column(m, b, i);
            next_of_draft = of_draft_too && i >= target_rows;
            specv_i_load_share(&next, d, &r.row, dtype, b, next_of_draft,
                               next_of_draft ? j - target_rows : j, tile);
        }
        if (!wanted && i < high) __syncthreads(); /* share is read */
    }
    if (!of_target || nodes || (filters && (emitted || r.cut))) return 0;
    const int num_arriving = num_blocks ? num_blocks : 1;
    int arrival;
    if (filters) {
        arrival = specv_i_block_arrives(&m->tickets[2 * b], block, num_arriving);
    } else {
        uint32_t now = 0;
        if (!of_best) __syncthreads(); /* where one thread alone has stored, it has done so */
        if (arrives && mine) now = specv_i_add_to_ticket(ticket, mine);
        /* While the answer is on its way. */
        if (of_best && first && warp && warp < OPENS - 1) /* of those that merge */
            *first = specv_i_tiles_of_row(m, first_row, target_rows, warp - 1, may);
        if (specv_i_thread() == 32 * OPENS) {
            if (of_best) {
                specv_i_request of_block = specv_i_open_rows(d, b, &row, rule);
                specv_i_open_temperatures(d, b, &of_block);
                *opened = of_block;
            } else {
                specv_i_place_request(d, b, &row, opened);
            }
        }
        arrival = specv_i_block_leaves_with(ticket, now + mine, arrives, num_arriving, all);
    }
    if (arrival == SPECV_I_NOT_LAST) return 0;
    if (arrival == SPECV_I_BAD_TICKET) {
        if (specv_i_thread() == 0) specv_i_close_request(opened);
        __syncthreads();
    }
    return 1;
}

/* The same, then what follows from the statistics. dtype and what: constants where there are no
   filters. Call: block. */
SPECV_DEVFN void specv_i_block_verify_logits(const specv_sample_task *task, int dtype, int what,
                                             int filters) {
    __shared__ __align__(16) specv_i_request opened;
    __shared__ __align__(16) specv_i_cuts_asked asked;
    __shared__ specv_i_evidence evidence;
    const specv_i_pass pass = specv_i_pass_of(task, dtype, what, filters);
    const int b = (int)blockIdx.x;
    specv_i_lane_tiles first;
    if (!specv_i_block_logits(task, &pass, 0, task->d.verify.vocab, &opened, &asked, &first))
        return;
    specv_i_request r = specv_i_reopen(&opened, &asked, dtype, pass.what, pass.rule, filters);
    specv_i_block_gather(&task->d, &r, &task->memory, b, filters ? specv_i_may(&r) : pass.may, 0, 0,
                         filters || pass.what ? 0 : &first, &evidence);
    /* registers were wanting again */
    r = specv_i_reopen(&opened, &asked, dtype, pass.what, pass.rule, filters);
    /* A2's rows have one token, which is as good as drawn: no code for draws. */
    const int drawn = !filters && !pass.what;
    specv_i_block_decide(&task->d, &r, &task->memory, b, drawn, &evidence);
}

/* ---- what tiles say of filters */

/* A rank key, the least of its score, before which every id comes that has this weight, in units of
   2^(n - 40). */
SPECV_DEVFN uint64_t specv_i_key_of_weight(const specv_scale *scale, int32_t n, uint64_t weight) {
    /* log2 of it is below this by less than 1, and 1/2 is more than what is rounded */
    const int octaves = n - 40 + 63 - __clzll((long long)weight);
    if (scale->of_probs) /* half of it is enough */
        return octaves < -124
                   ? SPECV_I_LEAST_RANK
                   : specv_rank_key(specv_bits_float((uint32_t)(126 + octaves) << 23), 0x3fffff);
    const float score = specv_i_div(specv_i_add((float)octaves, -0.5f), scale->hi);
    const uint64_t key = specv_rank_key(score, 0x3fffff);
    return key > SPECV_I_LEAST_RANK ? key : SPECV_I_LEAST_RANK;
}

/* The mass of a tile in units of 2^(n - 40), rounded up. */
SPECV_DEVFN uint64_t specv_i_mass_of_tile(const specv_tile *tile, const specv_scale *scale,
                                          int32_t n) {
    const int32_t its_n = specv_softmax_weight(specv_i_max(tile->max, scale->floor), scale).n;
    return specv_i_shift_right(tile->sum, (uint32_t)(n - its_n)) + 1;
}

/* A score below which top_k, top_p and min_p (specv_filters, in any order) keep no id of the row,
   as its tiles say before any score is looked at again: for a fused LM head, which has to keep or
   to write no other scores. -infinity: they do not say. It is close for min_p, and for top_k of at
   most num_tiles: each tile has an id that counts.
   Call: warp. In: tiles[0..num_tiles) with SUM, visible to the warp; row: of them, by
   specv_warp_merge_tiles; scale as it was for the tiles. A bad top_p or min_p counts as off. Out:
   the same in all lanes.
   Cost: the largest scores of all tiles 32 times for top_k, all tiles by each lane for top_p. */
SPECV_DEVFN float specv_warp_filter_bound(const specv_tile *tiles, int num_tiles,
                                          const specv_distribution *row, const specv_scale *scale,
                                          int top_k, float top_p, float min_p) {
    const int lane = specv_i_lane();
    float bound = specv_bits_float(0xff800000u);
    uint32_t reported = 0;
    const specv_i_limits l = specv_i_limits_of(top_k, top_p, min_p, 0, SPECV_I_INT_MAX, &reported);
    if (row->kind != SPECV_SOFTMAX) return bound;
    if (l.top_k <= num_tiles) { /* the k-th largest of the tiles' largest scores, bit by bit */
        uint32_t key = 0;
#pragma unroll 1
        for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
            int count = 0;
            for (int t = lane; t < num_tiles; t += 32) {
                const uint32_t its =
                    (uint32_t)specv_i_order_key(specv_float_bits(tiles[t].max)) ^ 0x80000000u;
                count += its >= (key | bit);
            }
            if (specv_warp_reduce_add(count) >= l.top_k) key |= bit;
        }
        bound = specv_i_of_order_key((int32_t)(key ^ 0x80000000u));
    }
    if (specv_i_less(0.f, l.min_p)) {
        const specv_weight largest = specv_softmax_weight(row->max, scale);
        const uint64_t least = specv_i_least_weight(l.min_p, specv_weight_units(&largest, row->n));
        bound = specv_i_max(bound,
                            specv_i_score_of_rank_key(specv_i_key_of_weight(scale, row->n, least)));
    }
    if (l.has_top_p) { /* lane e: may all ids that weigh at most 2^e be left out? */
        const uint64_t part = specv_i_part_of(l.top_p, row->sum);
        const uint64_t left_out = part < row->sum ? row->sum - part : 0;
        int32_t fits = -1;
#pragma unroll 1
        for (int exponent = lane; exponent <= 40; exponent += 32) {
            const uint64_t most = (uint64_t)SPECV_TILE_IDS << exponent;
            uint64_t sum = 0;
            for (int t = 0; t < num_tiles; ++t) {
                const uint64_t mass = specv_i_mass_of_tile(&tiles[t], scale, row->n);
                sum += mass < most ? mass : most;
            }
            if (sum <= left_out) fits = exponent;
        }
        fits = specv_warp_reduce_max(fits);
        if (fits >= 0)
            bound = specv_i_max(bound, specv_i_score_of_rank_key(specv_i_key_of_weight(
                                           scale, row->n, (uint64_t)1 << fits)));
    }
    return bound;
}

/* ---- filters

   top_k, top_p and min_p end a row at some id of the order. A block finds it: shares of tiles whose
   largest score says that they have nothing to do with it are not read again, and of the others a
   list is made of what may be kept, sorted, and added up. A row too flat for the list is cut by
   histograms of counts and masses over ranges of scores, each within the one before, until a range
   has one id. Both end at the same id, as all sums are integers. */
enum {
    SPECV_I_LIST = 1024, /* ids, a power of two and a multiple of the threads; shares of tiles */
    SPECV_I_FEW = 128,   /* of a list: for each of them there are two threads */
    SPECV_I_RANGES = SPECV_SAMPLE_THREADS
};

/* The row, as the block that cuts it sees it. Shared. */
typedef struct specv_i_cut {
    union {
        ulonglong2 aligned; /* counts are loaded four at a time */
        struct {            /* the list: the largest first, when it is sorted */
            uint64_t key[SPECV_I_LIST];
            union {
                uint64_t through[SPECV_I_LIST]; /* weights down to this one, in units of the row */
                int32_t ids[SPECV_I_LIST];      /* before: first ids of lanes */
            } u;
        } list;
        struct { /* of each range */
            uint64_t mass[SPECV_I_RANGES], first[SPECV_I_RANGES], last[SPECV_I_RANGES];
            uint32_t count[SPECV_I_RANGES];
        } of;
    } u;
    struct
    { /* of a list of few, in ascending order of id; behind the last one they weigh nothing */
        uint64_t units[SPECV_I_FEW]; /* of its tile's largest */
        int32_t id[SPECV_I_FEW];
        int32_t place[SPECV_I_FEW]; /* where it is in the list */
        int32_t finer[SPECV_I_FEW]; /* n of the row's largest less that of the tile's */
        int32_t drawn[2];           /* ids, by two draws */
    } few;
    uint64_t scratch[2][32];
    uint64_t through[2]; /* how many ids there are down to the one that was found, their mass */
    uint64_t found;
    uint64_t uniform; /* that the row draws with */
    int32_t num_shares, num_lanes, count;
    int32_t kept[2];               /* ids of a list: by min_p, by top_p */
    uint32_t shares[SPECV_I_LIST]; /* whose lanes are looked at; above SPECV_I_LIMIT how far */
    uint64_t keys[SPECV_I_RANGES]; /* of the first tiles: specv_i_share_key */
    int32_t largest[SPECV_SAMPLE_THREADS / 32];
} specv_i_cut;

#define SPECV_I_BY_ID 8 /* beside a place, bits 0 to 7: that in ascending order of id */

#define SPECV_I_LIMIT 16 /* bit of a share's number */

/* What a thread knows of the tile of its number; of none where there is none. */
typedef struct specv_i_cut_tile {
    uint2 best; /* the largest score, the id */
    uint64_t keys;
} specv_i_cut_tile;

/* What its threads have in registers. */
typedef struct specv_i_cut_row {
    const void *scores;
    const specv_tile *tiles;
    const unsigned char *lanes; /* of tile 0 */
    specv_i_sieve sieve;
    specv_scale scale;
    int32_t dtype, num_tiles, vocab;
    int32_t n; /* of the largest */
    float max;
} specv_i_cut_row;

SPECV_DEVFN uint64_t specv_i_row_units(const specv_i_cut_row *row, float score) {
    const specv_weight w = specv_softmax_weight(specv_i_max(score, row->scale.floor), &row->scale);
    return specv_weight_units(&w, row->n);
}

/* The largest score of a share, by its upper half. */
SPECV_DEVFN uint32_t specv_i_share_key(const specv_i_cut *c, const specv_i_cut_row *row,
                                       int share) {
    const uint64_t keys = share / SPECV_I_SHARES < SPECV_I_RANGES
                              ? c->keys[share / SPECV_I_SHARES]
                              : (uint64_t)row->tiles[share / SPECV_I_SHARES].score;
    return (uint32_t)(keys >> 16 * (share % SPECV_I_SHARES)) & 0xffffu;
}

/* The same of shares 2 pair and, above it, 2 pair + 1. */
SPECV_DEVFN uint32_t specv_i_share_keys(const specv_i_cut *c, const specv_i_cut_row *row,
                                        int pair) {
    enum { PAIRS = SPECV_I_SHARES / 2 };
    const uint64_t keys = pair / PAIRS < SPECV_I_RANGES ? c->keys[pair / PAIRS]
                                                        : (uint64_t)row->tiles[pair / PAIRS].score;
    return (uint32_t)(keys >> 32 * (pair % PAIRS));
}

/* Which of 32 shares from `base` on have a score from that of `low` on. Call: warp. */
SPECV_DEVFN unsigned specv_i_shares_from(const specv_i_cut *c, const specv_i_cut_row *row, int base,
                                         uint64_t low) {
    const int share = base + specv_i_lane();
    return __ballot_sync(SPECV_FULL_WARP, share < row->num_tiles * SPECV_I_SHARES &&
                                              specv_i_share_key(c, row, share) >= low >> 38);
}

SPECV_DEVFN int specv_i_mask_allows(const specv_i_cut_row *row, int32_t id) {
    return !row->sieve.mask || (row->sieve.mask[(uint32_t)id / 32] >> id % 32 & 1);
}

/* The largest score of a row that is to be cut and, where tiles have sums, theirs. kind is SOFTMAX,
   or another, whatever it is, if that score is not in range. c->keys are there behind it. first: of
   tile specv_i_thread(). Call: block. Sync: a barrier, two with sums. Trips: the tiles. */
SPECV_DEVFN specv_distribution specv_i_block_merge(specv_i_cut *c, const specv_tile *tiles,
                                                   int num_tiles, int sums,
                                                   const specv_scale *scale,
                                                   const specv_i_cut_tile *first) {
    enum { WARPS = SPECV_SAMPLE_THREADS / 32 };
    const int thread = specv_i_thread(), lane = specv_i_lane();
    specv_distribution p = specv_i_plain_distribution();
    int32_t key = specv_i_order_key(first->best.x), of_warp[WARPS];
    uint32_t marks = first->best.y;
#pragma unroll 1
    for (int t = thread + SPECV_SAMPLE_THREADS; t < num_tiles; t += SPECV_SAMPLE_THREADS) {
        const uint2 best = *(const uint2 *)&tiles[t].max;
        const int32_t its = specv_i_order_key(best.x);
        key = its > key ? its : key, marks |= best.y;
    }
    key = specv_warp_reduce_max(key);
    if (lane == 0) c->largest[thread / 32] = key;
    c->keys[thread] = first->keys;
    if (__syncthreads_or((marks & SPECV_I_NAN_BIT) != 0)) p.status = SPECV_ROW_NAN;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) of_warp[w] = c->largest[w];
#pragma unroll
    for (int apart = WARPS / 2; apart; apart /= 2) { /* no chain of as many */
#pragma unroll
        for (int w = 0; w < apart; ++w)
            if (of_warp[w + apart] > of_warp[w]) of_warp[w] = of_warp[w + apart];
    }
    p.max = specv_i_of_order_key(of_warp[0]);
    if (!specv_in_range(p.max, scale)) p.kind = SPECV_ONE_HOT;
    if (p.kind != SPECV_SOFTMAX) return p;
    p.n = specv_softmax_weight(p.max, scale).n;
    if (!sums) return p;
    for (int t = thread; t < num_tiles; t += SPECV_SAMPLE_THREADS) {
        const int32_t n = specv_softmax_weight(specv_i_max(tiles[t].max, scale->floor), scale).n;
        p.sum += specv_i_shift_right(tiles[t].sum, (uint32_t)(p.n - n));
    }
    p.sum = specv_i_warp_add(p.sum);
    if (lane == 0) c->scratch[1][thread / 32] = p.sum;
    __syncthreads();
    p.sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) p.sum += c->scratch[1][w];
    return p;
}

/* One of eight, without an index that is not a constant: arrays with one are in memory. */
SPECV_DEVFN float specv_i_score_of(const float score[8], int e) {
    const float a = e & 1 ? score[1] : score[0], b = e & 1 ? score[3] : score[2];
    const float c = e & 1 ? score[5] : score[4], d = e & 1 ? score[7] : score[6];
    const float low = e & 2 ? b : a, high = e & 2 ? d : c;
    return e & 4 ? high : low;
}

/* Which of eight scores are above a bound, one bit each; no NaN is. */
SPECV_DEVFN unsigned specv_i_above(const float score[8], float bound) {
    unsigned above;
    asm("{\n\t.reg .pred a, b, c, d, e, f, g, h;\n\t.reg .b32 p, q, r, s, t, u, v, w;\n\t"
        "setp.lt.f32 a, %9, %1;\n\tsetp.lt.f32 b, %9, %2;\n\t"
        "setp.lt.f32 c, %9, %3;\n\tsetp.lt.f32 d, %9, %4;\n\t"
        "setp.lt.f32 e, %9, %5;\n\tsetp.lt.f32 f, %9, %6;\n\t"
        "setp.lt.f32 g, %9, %7;\n\tsetp.lt.f32 h, %9, %8;\n\t"
        "selp.b32 p, 1, 0, a;\n\tselp.b32 q, 2, 0, b;\n\t"
        "selp.b32 r, 4, 0, c;\n\tselp.b32 s, 8, 0, d;\n\t"
        "selp.b32 t, 16, 0, e;\n\tselp.b32 u, 32, 0, f;\n\t"
        "selp.b32 v, 64, 0, g;\n\tselp.b32 w, 128, 0, h;\n\t"
        "or.b32 p, p, q;\n\tor.b32 r, r, s;\n\tor.b32 t, t, u;\n\tor.b32 v, v, w;\n\t"
        "or.b32 p, p, r;\n\tor.b32 t, t, v;\n\tor.b32 %0, p, t;\n\t}"
        : "=r"(above)
        : "f"(score[0]), "f"(score[1]), "f"(score[2]), "f"(score[3]), "f"(score[4]), "f"(score[5]),
          "f"(score[6]), "f"(score[7]), "f"(bound));
    return above;
}

/* The number that position j of a request draws with; none: 0 instead. */
typedef struct specv_i_coin {
    const specv_verify_sample_desc *d;
    int b, j, none;
} specv_i_coin;

SPECV_DEVFN uint64_t specv_i_toss(const specv_i_coin *coin) {
    uint32_t reported = 0; /* by the block that judges */
    return coin->none ? 0 : specv_i_sample_uniform(coin->d, coin->b, coin->j, &reported);
}

/* Ids with scores from that of `low` on, the least of its score, into the list, as far as it has
   room; how many there are in c->count. First shares of tiles are chosen, then of these lanes, with
   eight ids each, then ids; a warp that seldom has one of those makes c->uniform. Call: block.
   Sync: three barriers. Trips: how far the lanes are, four times eight of them to a thread; their
   scores, beside a byte of the mask. */
SPECV_DEVFN void specv_i_block_collect(specv_i_cut *c, const specv_i_cut_row *row, uint64_t low,
                                       const specv_i_coin *coin) {
    enum { EACH = 8, PARTS = 32 / EACH, AT_ONCE = 4 };
    const float least = specv_i_score_of_rank_key(low);
    const float below = specv_i_score_of_rank_key(low - ((uint64_t)1 << 22)); /* the next one */
    const int thread = specv_i_thread();
    int32_t *firsts = c->u.list.u.ids;
#pragma unroll 1
    for (int pair = thread; pair < row->num_tiles * SPECV_I_SHARES / 2;
         pair += SPECV_SAMPLE_THREADS) {
        const uint32_t keys = specv_i_share_keys(c, row, pair);
        const uint32_t key[2] = {keys & 0xffffu, keys >> 16};
        const int hits[2] = {key[0] >= low >> 38, key[1] >= low >> 38};
        if (!(hits[0] | hits[1])) continue;
        int at = atomicAdd(&c->num_shares, hits[0] + hits[1]);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int32_t limit =
                specv_i_away(specv_i_score_of_upper(key[e]), least, row->scale.of_probs);
            if (hits[e] && at < SPECV_I_LIST)
                c->shares[at] = (uint32_t)limit << SPECV_I_LIMIT | (uint32_t)(2 * pair + e);
            at += hits[e];
        }
    }
    __syncthreads();
    const int num_shares = c->num_shares, num_parts = num_shares * PARTS;
    if (num_shares > SPECV_I_LIST) { /* so are the ids */
        if (thread == 0) c->num_lanes = num_shares;
    } else {
#pragma unroll 1
        for (int base = thread; base < num_parts; base += SPECV_SAMPLE_THREADS * AT_ONCE) {
            uint2 away[AT_ONCE];
            uint32_t share[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) { /* behind the last part none */
                const int part = base + i * SPECV_SAMPLE_THREADS;
                if (part >= num_parts) break;
                share[i] = c->shares[part / PARTS];
                away[i] =
                    *(const uint2 *)(row->lanes + (share[i] & 0xffffu) * 32 + part % PARTS * EACH);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int part = base + i * SPECV_SAMPLE_THREADS;
                if (part >= num_parts) break;
                /* bytes: bit 7 is set where one is farther than the limit */
                const uint32_t rest = (SPECV_I_FAR - (share[i] >> SPECV_I_LIMIT)) * 0x01010101u;
                uint32_t hits = ~(away[i].x + rest) >> 7 & 0x01010101u;
                hits |= ~(away[i].y + rest) >> 3 & 0x10101010u;
#pragma unroll 1
                for (; hits; hits &= hits - 1) { /* bits 0, 8, 16, 24, 4, 12, 20, 28 */
                    const int bit = __ffs((int)hits) - 1, lane = (bit >> 3) + (bit & 4);
                    const int first =
                        ((int)(share[i] & 0xffffu) * 32 + part % PARTS * EACH + lane) * 8;
                    if (first >= row->vocab) continue;
                    const int at = atomicAdd(&c->num_lanes, 1);
                    if (at < SPECV_I_LIST) firsts[at] = first;
                }
            }
        }
    }
    __syncthreads();
    const int num_lanes = c->num_lanes;
    if (thread == SPECV_SAMPLE_THREADS - 1) c->uniform = specv_i_toss(coin);
    if (num_lanes > SPECV_I_LIST) {
        if (thread == 0) c->count = num_lanes;
    } else {
#pragma unroll 1
        for (int i = thread; i < num_lanes; i += SPECV_SAMPLE_THREADS) {
            const int first = firsts[i];
            specv_i_eight raw;
            float score[8];
            raw.high = make_uint4(0, 0, 0, 0); /* of types of 16 bits */
            specv_i_load_eight(&raw, row->scores, row->dtype, row->vocab, first);
            specv_i_decode_eight(score, &raw, row->dtype);
            specv_i_sift_some(&row->sieve, score, 8, first, row->vocab);
            unsigned hits = specv_i_above(score, below);
#pragma unroll 1
            for (; hits; hits &= hits - 1) {
                const int e = __ffs((int)hits) - 1, at = atomicAdd(&c->count, 1);
                if (at < SPECV_I_LIST)
                    c->u.list.key[at] = specv_rank_key(specv_i_score_of(score, e), first + e);
            }
        }
    }
    __syncthreads();
}

/* What a look at all ids of a row is for. */
enum {
    SPECV_I_BY_K,   /* how many there are in each range, and their mass */
    SPECV_I_BY_MIN, /* the last one that weighs enough */
    SPECV_I_OF_MIN, /* the mass down to that one */
    SPECV_I_BY_P,   /* as BY_K */
    SPECV_I_TO_LIST /* those that there are, as far as the list has room */
};

/* Rank keys low..high, in SPECV_I_RANGES ranges: of equal scores by id, else evenly by score. */
typedef struct specv_i_ranges {
    uint64_t low, high;
    float per_score; /* 0: by the keys themselves */
    int32_t shift;
} specv_i_ranges;

SPECV_DEVFN specv_i_ranges specv_i_ranges_of(uint64_t low, uint64_t high) {
    const float first = specv_i_score_of_rank_key(low), last = specv_i_score_of_rank_key(high);
    const int bits = 64 - __clzll((long long)(high - low));
    specv_i_ranges r;
    r.low = low, r.high = high, r.shift = bits > 8 ? bits - 8 : 0;
    r.per_score = specv_i_div((float)SPECV_I_RANGES, specv_i_add(last, specv_i_negate(first)));
    if (!specv_i_less(0.f, r.per_score) || !specv_i_less(r.per_score, 1e30f)) r.per_score = 0;
    return r;
}

SPECV_DEVFN int specv_i_range_of(const specv_i_ranges *r, uint64_t key, float score) {
    if (specv_float_bits(r->per_score) == 0) return (int)((key - r->low) >> r->shift);
    const float first = specv_i_score_of_rank_key(r->low);
    const float place = specv_i_mul(specv_i_add(score, specv_i_negate(first)), r->per_score);
    int range;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(range) : "f"(place)); /* whatever -ftz says */
    return range < SPECV_I_RANGES ? range : SPECV_I_RANGES - 1;
}

/* A look at all ids between. own: of this thread, what c->found is made of. Call: block. */
SPECV_DEVFN void specv_i_block_visit(specv_i_cut *c, const specv_i_cut_row *row, int purpose,
                                     const specv_i_ranges *r, uint64_t weight, uint64_t *own) {
    const float least = specv_i_score_of_rank_key(r->low);
#pragma unroll 1
    for (int base = specv_i_thread() / 32 * 32; base < row->num_tiles * SPECV_I_SHARES;
         base += SPECV_SAMPLE_THREADS) {
        unsigned shares = specv_i_shares_from(c, row, base, r->low);
#pragma unroll 1
        while (shares) {
            const int share = base + __ffs((int)shares) - 1;
            const int first = share * (SPECV_TILE_IDS / SPECV_I_SHARES) + 8 * specv_i_lane();
            specv_i_eight raw;
            float score[8];
            shares &= shares - 1;
            raw.high = make_uint4(0, 0, 0, 0); /* of types of 16 bits */
            specv_i_load_eight(&raw, row->scores, row->dtype, row->vocab, first);
            specv_i_decode_eight(score, &raw, row->dtype);
#pragma unroll 1
            for (int e = 0; e < 8; ++e) {
                const float value = score[0];
                const int32_t id = first + e;
#pragma unroll
                for (int next = 0; next < 7; ++next) score[next] = score[next + 1];
                if (specv_i_less(value, least) || specv_i_is_nan(value) || id >= row->vocab ||
                    !specv_i_mask_allows(row, id))
                    continue;
                const uint64_t key = specv_rank_key(value, id);
                if (key < r->low || key > r->high) continue;
                const uint64_t units = specv_i_row_units(row, value);
                if (purpose == SPECV_I_TO_LIST) {
                    const int at = atomicAdd(&c->count, 1);
                    if (at < SPECV_I_LIST) c->u.list.key[at] = key;
                } else if (purpose == SPECV_I_OF_MIN) {
                    *own += units;
                } else if (purpose == SPECV_I_BY_MIN) {
                    if (units >= weight && key < *own) *own = key;
                } else {
                    const int range = specv_i_range_of(r, key, value);
                    atomicAdd(&c->u.of.count[range], 1u);
                    atomicAdd((unsigned long long *)&c->u.of.mass[range],
                              (unsigned long long)units);
                    atomicMax((unsigned long long *)&c->u.of.last[range], (unsigned long long)key);
                    atomicMin((unsigned long long *)&c->u.of.first[range], (unsigned long long)key);
                }
            }
        }
    }
}

/* The range in which the order, from the highest key on, has `limit` ids, or so much mass; -1:
   there is not so much. counted, mass: above the ranges; then c->through is what there is with that
   range, or with all. c->found is 0 by then. Call: block. Sync: barriers. */
SPECV_DEVFN int specv_i_block_find_range(specv_i_cut *c, uint64_t counted, uint64_t mass,
                                         uint64_t limit, int by_mass) {
    const int range = SPECV_I_RANGES - 1 - specv_i_thread();
    const uint64_t its_count = c->u.of.count[range], its_mass = c->u.of.mass[range];
    uint64_t total, with, of_range;
    counted += specv_i_block_inclusive_add(its_count, &total, c->scratch[0]);
    mass += specv_i_block_inclusive_add(its_mass, &total, c->scratch[1]);
    with = by_mass ? mass : counted, of_range = by_mass ? its_mass : its_count;
    const int has = with >= limit && with - of_range < limit; /* one thread, or none */
    if (has) c->found = (uint64_t)range + 1;
    if (has || (range == 0 && with < limit)) c->through[0] = counted, c->through[1] = mass;
    __syncthreads();
    return (int)c->found - 1;
}

/* Below this rank key there is no id. */
SPECV_DEVFN uint64_t specv_i_lowest(const specv_i_cut_row *row) {
    return row->sieve.least > SPECV_I_LEAST_RANK ? row->sieve.least : SPECV_I_LEAST_RANK;
}

/* The last id that is kept, for a row of any shape; 0: all are. mass: of the row, where top_p is a
   part of it. Call: block. */
SPECV_DEVFN uint64_t specv_i_block_cut_flat(specv_i_cut *c, const specv_i_cut_row *row,
                                            const specv_i_limits *l, uint64_t mass) {
    const uint64_t top = specv_rank_key(row->max, 0);
    const int thread = specv_i_thread(), by_min = specv_i_less(0.f, l->min_p);
    const uint64_t weight =
        by_min ? specv_i_least_weight(l->min_p, specv_i_row_units(row, row->max)) : 0;
    uint64_t of_k = 0, of_min = 0, of_p = 0, kept;
#pragma unroll 1
    for (int purpose = SPECV_I_BY_K; purpose <= SPECV_I_BY_P; ++purpose) {
        const int by_mass = purpose == SPECV_I_BY_P;
        uint64_t counted = 0, above = 0, limit = 0, own = 0;
        uint64_t low = specv_i_lowest(row), high = top;
        if (purpose == SPECV_I_BY_K) {
            if (l->top_k >= row->vocab) continue;
            limit = (uint64_t)l->top_k;
        } else if (purpose == SPECV_I_BY_MIN) {
            if (!by_min) continue;
            own = ~(uint64_t)0, high = ~(uint64_t)0;
        } else if (purpose == SPECV_I_OF_MIN) {
            if (!l->has_top_p || l->order != SPECV_MIN_P_TOP_K_TOP_P || of_min <= of_k) continue;
            low = of_min, high = ~(uint64_t)0;
        } else {
            if (!l->has_top_p) continue;
            limit = specv_i_part_of(l->top_p, mass);
            low = specv_i_key_of_weight(&row->scale, row->n, 1); /* less is no mass */
        }
#pragma unroll 1
        for (;;) {
            const specv_i_ranges ranges = specv_i_ranges_of(low, high);
            __syncthreads();
            c->u.of.mass[thread] = c->u.of.last[thread] = 0, c->u.of.count[thread] = 0;
            c->u.of.first[thread] = ~(uint64_t)0;
            if (thread == 0) c->found = own;
            __syncthreads();
            specv_i_block_visit(c, row, purpose, &ranges, weight, &own);
            if (purpose == SPECV_I_BY_MIN)
                atomicMin((unsigned long long *)&c->found, (unsigned long long)own);
            if (purpose == SPECV_I_OF_MIN)
                atomicAdd((unsigned long long *)&c->found, (unsigned long long)own);
            __syncthreads();
            if (purpose == SPECV_I_BY_MIN) of_min = c->found;
            if (purpose == SPECV_I_OF_MIN) mass = c->found;
            if (purpose == SPECV_I_BY_MIN || purpose == SPECV_I_OF_MIN) break;
            const int at = specv_i_block_find_range(c, counted, above, limit, by_mass);
            if (!by_mass && at < 0 && l->order != SPECV_TOP_P_OF_ALL) mass = c->through[1];
            if (at < 0) break;
            low = c->u.of.first[at], high = c->u.of.last[at];
            if (low == high) { /* one id */
                if (by_mass)
                    of_p = low;
                else
                    of_k = low;
                if (!by_mass && l->order != SPECV_TOP_P_OF_ALL) mass = c->through[1];
                break;
            }
            counted = c->through[0] - c->u.of.count[at], above = c->through[1] - c->u.of.mass[at];
        }
    }
    kept = of_k > of_min ? of_k : of_min;
    return kept > of_p ? kept : of_p;
}

/* A weight in units of the row, 0 or a power of two, of which the tiles' sums say that all ids that
   weigh less are a part of the mass that top_p leaves out. Call: block. Sync: two barriers. */
SPECV_DEVFN uint64_t specv_i_block_least_of_top_p(specv_i_cut *c, const specv_i_cut_row *row,
                                                  uint64_t left_out) {
    const int thread = specv_i_thread(), lane = specv_i_lane();
    const int each = (row->num_tiles + SPECV_SAMPLE_THREADS - 1) / SPECV_SAMPLE_THREADS;
    const int groups = each > 1 ? SPECV_SAMPLE_THREADS : row->num_tiles;
    uint64_t of_group = 0;
    int32_t fits = -1;
    for (int t = thread; t < row->num_tiles; t += SPECV_SAMPLE_THREADS) {
        of_group += specv_i_mass_of_tile(&row->tiles[t], &row->scale, row->n);
    }
    if (thread < groups) c->u.list.key[thread] = of_group;
    __syncthreads();
#pragma unroll 1
    for (int exponent = 40 - lane; exponent >= 0; exponent -= 32) {
        const uint64_t most = (uint64_t)(each * SPECV_TILE_IDS) << exponent;
        uint64_t sum = 0;
#pragma unroll 4
        for (int i = 0; i < groups; ++i) sum += c->u.list.key[i] < most ? c->u.list.key[i] : most;
        if (sum <= left_out && fits < 0) fits = exponent;
    }
    __syncthreads();
    fits = specv_warp_reduce_max(fits);
    return fits < 0 ? 0 : (uint64_t)1 << fits;
}

/* Upper half of the k-th largest of the shares' maxima, or somewhat less; 0: there are fewer. By
   histograms of how far they are from the largest, in which every warp looks for itself. Call:
   block. Sync: three barriers, seldom four more. */
SPECV_DEVFN uint32_t specv_i_block_kth_share(specv_i_cut *c, const specv_i_cut_row *row, int k) {
    enum { EACH = SPECV_I_RANGES / 32 };
    const uint32_t top = specv_i_upper_key(row->max);
    const int thread = specv_i_thread(), lane = specv_i_lane();
#pragma unroll 1
    for (int shift = 0; shift <= 8; shift += 8) {
        const uint4 *counts = (const uint4 *)&c->u.of.count[lane * EACH];
        c->u.of.count[thread] = 0;
        __syncthreads();
#pragma unroll 1
        for (int pair = thread; pair < row->num_tiles * SPECV_I_SHARES / 2;
             pair += SPECV_SAMPLE_THREADS) {
            const uint32_t keys = specv_i_share_keys(c, row, pair);
            const uint32_t low = (top - (keys & 0xffffu)) >> shift;
            const uint32_t high = (top - (keys >> 16)) >> shift;
            if (low < SPECV_I_RANGES) atomicAdd(&c->u.of.count[low], 1u);
            if (high < SPECV_I_RANGES) atomicAdd(&c->u.of.count[high], 1u);
        }
        __syncthreads();
        const uint4 low = counts[0], high = counts[1];
        const uint32_t of[EACH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        int32_t through[EACH], own = 0, away = lane * EACH;
#pragma unroll
        for (int e = 0; e < EACH; ++e) through[e] = own += (int32_t)of[e];
        const int32_t left = k - (specv_warp_inclusive_scan(own) - own); /* behind those before */
        const int at = specv_warp_first_reject(own >= left);
#pragma unroll
        for (int e = 0; e < EACH; ++e) away += through[e] < left;
        away = __shfl_sync(SPECV_FULL_WARP, away + 1, at & 31) << shift;
        __syncthreads(); /* counts are read */
        if (at < 32) return (int32_t)top + 1 > away ? top + 1 - (uint32_t)away : 0;
    }
    return 0;
}

/* From the score of which key on ids may be kept, as the tiles say; specv_i_lowest: any. mass: of
   the row, 0 where tiles have no sums. Call: block. */
SPECV_DEVFN uint64_t specv_i_block_bound(specv_i_cut *c, const specv_i_cut_row *row,
                                         const specv_i_limits *l, uint64_t mass) {
    uint64_t low = specv_i_lowest(row), key;
    if (l->top_k < row->vocab && l->top_k <= row->num_tiles * SPECV_I_SHARES) {
        key = (uint64_t)specv_i_block_kth_share(c, row, l->top_k) << 38;
        if (key > low) low = key;
    }
    if (specv_i_less(0.f, l->min_p)) {
        key = specv_i_key_of_weight(
            &row->scale, row->n, specv_i_least_weight(l->min_p, specv_i_row_units(row, row->max)));
        if (key > low) low = key;
    }
    if (l->has_top_p && mass && low == specv_i_lowest(row)) {
        const uint64_t part = specv_i_part_of(l->top_p, mass);
        const uint64_t weight = specv_i_block_least_of_top_p(c, row, part < mass ? mass - part : 0);
        if (weight) low = specv_i_key_of_weight(&row->scale, row->n, weight);
    }
    return low;
}

/* How many of four ids are below one. These two in asm: compilers compare one after another, and
   add each to the sum of those before. */
SPECV_DEVFN uint32_t specv_i_count_below(int4 ids, int32_t id) {
    uint32_t count;
    asm("{\n\t.reg .pred a, b, c, d;\n\t.reg .u32 p, q, r, s;\n\t"
        "setp.lt.s32 a, %1, %5;\n\tsetp.lt.s32 b, %2, %5;\n\t"
        "setp.lt.s32 c, %3, %5;\n\tsetp.lt.s32 d, %4, %5;\n\t"
        "selp.u32 p, 1, 0, a;\n\tselp.u32 q, 1, 0, b;\n\t"
        "selp.u32 r, 1, 0, c;\n\tselp.u32 s, 1, 0, d;\n\t"
        "add.u32 p, p, q;\n\tadd.u32 r, r, s;\n\tadd.u32 %0, p, r;\n\t}"
        : "=r"(count)
        : "r"(ids.x), "r"(ids.y), "r"(ids.z), "r"(ids.w), "r"(id));
    return count;
}

/* How many of four keys are above one; their weights are added to *sum. */
SPECV_DEVFN uint32_t specv_i_count_above(ulonglong2 low, ulonglong2 high, ulonglong2 of_low,
                                         ulonglong2 of_high, uint64_t key, uint64_t *sum) {
    uint32_t count;
    uint64_t weight;
    asm("{\n\t.reg .pred a, b, c, d;\n\t.reg .u32 p, q, r, s;\n\t.reg .u64 w, x, y, z;\n\t"
        "setp.gt.u64 a, %2, %10;\n\tsetp.gt.u64 b, %3, %10;\n\t"
        "setp.gt.u64 c, %4, %10;\n\tsetp.gt.u64 d, %5, %10;\n\t"
        "selp.u32 p, 1, 0, a;\n\tselp.u32 q, 1, 0, b;\n\t"
        "selp.u32 r, 1, 0, c;\n\tselp.u32 s, 1, 0, d;\n\t"
        "selp.u64 w, %6, 0, a;\n\tselp.u64 x, %7, 0, b;\n\t"
        "selp.u64 y, %8, 0, c;\n\tselp.u64 z, %9, 0, d;\n\t"
        "add.u32 p, p, q;\n\tadd.u32 r, r, s;\n\tadd.u64 w, w, x;\n\tadd.u64 y, y, z;\n\t"
        "add.u32 %0, p, r;\n\tadd.u64 %1, w, y;\n\t}"
        : "=r"(count), "=l"(weight)
        : "l"(low.x), "l"(low.y), "l"(high.x), "l"(high.y), "l"(of_low.x), "l"(of_low.y),
          "l"(of_high.x), "l"(of_high.y), "l"(key));
    *sum += weight;
    return count;
}

/* Sorts a list of few, the largest first, and says of each what it weighs, what those weigh down to
   it, and where its tile is. Each is where as many come before it. Call: block. Sync: three
   barriers. Trips: largest scores of their tiles. */
SPECV_DEVFN void specv_i_block_sort_few(specv_i_cut *c, const specv_i_cut_row *row, int count) {
    const int shift = count <= SPECV_SAMPLE_THREADS / 4 ? 2 : 1;
    const int threads = 1 << shift; /* for each */
    const int thread = specv_i_thread(), own = thread >> shift, part = thread & (threads - 1);
    uint64_t mine = 0, units = 0, of_tile = 0, through = 0;
    int32_t finer = 0;
    if (own < count) { /* all its threads alike: none waits for another's */
        float largest[2];
        specv_weight weight[2];
        mine = c->u.list.key[own];
        largest[1] = row->tiles[specv_i_id_of_rank_key(mine) / SPECV_TILE_IDS].max;
        largest[0] = specv_i_max(specv_i_score_of_rank_key(mine), row->scale.floor);
        specv_i_softmax_weights(weight, largest, 2, &row->scale);
        units = specv_weight_units(&weight[0], row->n);
        if (specv_in_range(largest[1], &row->scale))
            of_tile = specv_weight_units(&weight[0], weight[1].n);
        finer = row->n - weight[1].n;
    }
    const int32_t my_id = specv_i_id_of_rank_key(mine);
    if (part == 0) {
        c->few.units[own] = units, c->few.id[own] = own < count ? my_id : SPECV_I_INT_MAX;
        if (own >= count) c->u.list.key[own] = 0; /* comes behind all, and weighs nothing */
    }
    __syncthreads();
    uint32_t before = 0, by_id = 0;
    const ulonglong2 *keys = (const ulonglong2 *)c->u.list.key + 2 * part;
    const ulonglong2 *weights = (const ulonglong2 *)c->few.units + 2 * part;
    const int4 *ids = (const int4 *)c->few.id + part;
#pragma unroll 1
    for (int i = 0; i < count; i += 2 * 4 * threads) { /* as many for each; behind them are zeros */
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            const ulonglong2 a = keys[0], b = keys[1], of_a = weights[0], of_b = weights[1];
            const int4 id = *ids;
            keys += 2 * threads, weights += 2 * threads, ids += threads;
            by_id += specv_i_count_below(id, my_id);
            before += specv_i_count_above(a, b, of_a, of_b, mine, &through);
        }
    }
    before += by_id << SPECV_I_BY_ID;
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        if (step >= threads) break;
        before += __shfl_xor_sync(SPECV_FULL_WARP, before, step);
        through += __shfl_xor_sync(SPECV_FULL_WARP, through, step);
    }
    __syncthreads(); /* the list is read */
    if (part == 0 && own < count) {
        const int place = before & 255;
        by_id = before >> SPECV_I_BY_ID;
        c->u.list.key[place] = mine, c->u.list.u.through[place] = through + units;
        c->few.units[by_id] = of_tile, c->few.place[by_id] = place, c->few.finer[by_id] = finer;
        c->few.id[by_id] = my_id;
    }
    if (thread >= count && thread < SPECV_I_FEW) {
        c->few.units[thread] = 0, c->few.place[thread] = 255, c->few.finer[thread] = 0;
        c->few.id[thread] = -1;
    }
    __syncthreads();
}

/* Sorts a power of two of at least 64 rank keys, the largest first. Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_sort(uint64_t *list, int count) {
#pragma unroll 1
    for (int run = 2; run <= count; run *= 2) {
#pragma unroll 1
        for (int distance = run / 2; distance > 0; distance /= 2) {
            if (distance >= 64) /* what is nearer is the warp's own */
                __syncthreads();
            else
                __syncwarp();
#pragma unroll 1
            for (int pair = specv_i_thread(); pair < count / 2; pair += SPECV_SAMPLE_THREADS) {
                const int a = 2 * pair - (pair & (distance - 1)), b = a + distance;
                const uint64_t of_a = list[a], of_b = list[b];
                if ((of_a < of_b) == ((a & run) == 0)) list[a] = of_b, list[b] = of_a;
            }
            if (distance == 64) __syncthreads();
        }
    }
    __syncthreads();
}

/* Sorts a longer list, and says what all down to each weigh. Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_sort_list(specv_i_cut *c, const specv_i_cut_row *row, int count) {
    enum { EACH = SPECV_I_LIST / SPECV_SAMPLE_THREADS };
    const int thread = specv_i_thread();
    int padded = 2 * SPECV_I_FEW;
    while (padded < count) padded *= 2;
    for (int i = count + thread; i < padded; i += SPECV_SAMPLE_THREADS) c->u.list.key[i] = 0;
    __syncthreads();
    specv_i_block_sort(c->u.list.key, padded);
    uint64_t units[EACH], sum = 0, unused;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int i = thread * EACH + e;
        units[e] =
            i < count ? specv_i_row_units(row, specv_i_score_of_rank_key(c->u.list.key[i])) : 0;
        sum += units[e];
    }
    sum = specv_i_block_inclusive_add(sum, &unused, c->scratch[0]) - sum;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        sum += units[e];
        c->u.list.u.through[thread * EACH + e] = sum;
    }
    __syncthreads();
}

/* How many of the sorted list's ids are kept; 0: that cannot be seen from it. Ids that it lacks
   come behind its own; complete: there are none. mass: of the row, where top_p is a part of it.
   Call: block. Sync: a barrier of min_p, one of top_p. */
SPECV_DEVFN int specv_i_block_cut_list(specv_i_cut *c, const specv_i_cut_row *row,
                                       const specv_i_limits *l, uint64_t mass, int complete) {
    const uint64_t *through = c->u.list.u.through;
    const int count = c->count, by_min = specv_i_less(0.f, l->min_p), has_k = l->top_k < row->vocab;
    const int of_k = has_k && l->top_k <= count ? l->top_k : 0;
    if (has_k && !of_k && !complete &&
        (!by_min || (l->has_top_p && l->order == SPECV_TOP_K_TOP_P_MIN_P)))
        return 0;
    if (!by_min && !l->has_top_p) return of_k ? of_k : count;
    int of_min = 0, of_p;
    if (by_min) { /* weights fall: one thread has the last that is enough */
        const uint64_t least = specv_i_least_weight(l->min_p, through[0]);
#pragma unroll 1
        for (int i = specv_i_thread(); i < count; i += SPECV_SAMPLE_THREADS) {
            const uint64_t before = i ? through[i - 1] : 0;
            const uint64_t next = i + 1 < count ? through[i + 1] - through[i] : 0;
            if (through[i] - before >= least && next < least) c->kept[0] = i + 1;
        }
        __syncthreads();
        of_min = c->kept[0];
    }
    const int of_both = !of_min || (of_k && of_k < of_min) ? of_k : of_min;
    if (!l->has_top_p) return of_both;
    if (specv_i_is_of_kept(l, row->vocab)) {
        const int of = l->order == SPECV_TOP_K_TOP_P_MIN_P ? of_k : of_both;
        mass = through[(of ? of : count) - 1];
    }
    mass = specv_i_part_of(l->top_p, mass);
    if (through[count - 1] < mass) return of_both ? of_both : complete ? count : 0;
#pragma unroll 1
    for (int i = specv_i_thread(); i < count; i += SPECV_SAMPLE_THREADS)
        if (through[i] >= mass && (i ? through[i - 1] : 0) < mass) c->kept[1] = i + 1;
    __syncthreads();
    of_p = c->kept[1];
    return of_both && of_both < of_p ? of_both : of_p;
}

/* One of the draws of specv_i_block_draw_few, `each` ids a lane, a constant; in all lanes the sum
   that it is from, in *drawn the id. Call: warp. */
SPECV_DEVFN uint64_t specv_i_warp_draw_few(const specv_i_cut *c, int each, int kept,
                                           int32_t without, uint64_t uniform, int32_t *drawn) {
    const int lane = specv_i_lane();
    uint64_t units[4], before[4], part[4], sum = 0, end, total, point = 0;
    int32_t id[4], finer[4], found = -1;
    int first[4], any = 0, is_here = 0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
        id[e] = c->few.id[lane * each + e], finer[e] = c->few.finer[lane * each + e];
        units[e] = c->few.units[lane * each + e];
        if (c->few.place[lane * each + e] >= kept || id[e] == without) units[e] = 0;
    }
    const int32_t last = __shfl_up_sync(SPECV_FULL_WARP, id[each - 1], 1);
#pragma unroll
    for (int e = 0; e < each; ++e) {
        before[e] = sum, sum += units[e];
        first[e] = (uint32_t)(id[e] ^ (e ? id[e - 1] : last)) >= SPECV_TILE_IDS;
        if (e == 0) first[e] |= lane == 0;
        any |= first[e];
    }
    const unsigned later = __ballot_sync(SPECV_FULL_WARP, any) & ~((2u << lane) - 1u);
    end = specv_i_warp_inclusive_add(sum);
    total = __shfl_sync(SPECV_FULL_WARP, end, 31);
    sum = end - sum;
#pragma unroll
    for (int e = 0; e < each; ++e) before[e] += sum;
    /* A tile's part is where its first id is: up to that of the next one. */
    end = before[each - 1];
#pragma unroll
    for (int e = each - 2; e >= 0; --e)
        if (first[e]) end = before[e];
    end = __shfl_sync(SPECV_FULL_WARP, end, (__ffs((int)later) - 1) & 31);
    if (!later) end = total;
    sum = 0;
#pragma unroll
    for (int e = each - 1; e >= 0; --e) {
        part[e] = specv_i_shift_right(end - before[e], (uint32_t)finer[e]);
        if (!first[e]) part[e] = 0;
        if (first[e]) end = before[e];
        sum += part[e];
    }
    end = specv_i_warp_inclusive_add(sum);
    total = __shfl_sync(SPECV_FULL_WARP, end, 31);
    sum = specv_i_mul_high(uniform, total) - (end - sum);
    uint64_t left = 0;
    uint32_t by = 0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
        /* the tile, and what is left of the point in it; behind it what is left is above all */
        if (sum < part[e]) left = sum, by = (uint32_t)finer[e], point = before[e], is_here = 1;
        sum -= part[e];
    }
    point += left << by | specv_i_shift_right(uniform * total, 64 - by);
    const unsigned where = __ballot_sync(SPECV_FULL_WARP, is_here);
    point = __shfl_sync(SPECV_FULL_WARP, point, (__ffs((int)where) - 1) & 31);
#pragma unroll
    for (int e = 0; e < each; ++e)
        if (point - before[e] < units[e]) found = id[e];
    const unsigned has = __ballot_sync(SPECV_FULL_WARP, where && found >= 0);
    found = __shfl_sync(SPECV_FULL_WARP, found, (__ffs((int)has) - 1) & 31);
    *drawn = has ? found : -1;
    return total;
}

/* Draws from the list of few's first `kept` ids, as specv_i_block_draw does from the tiles of a row
   that has no others: tiles in ascending order, in units of the row; in the one that is found ids,
   in its own. Two draws, by a warp each: from all, and without an id that then has no weight; -1:
   there is no second one. c->few.drawn: the ids, -1 if none has weight. Returns the sum of all, in
   the first warp. Call: block. Sync: a barrier. */
SPECV_DEVFN uint64_t specv_i_block_draw_few(specv_i_cut *c, int kept, int32_t without,
                                            uint64_t uniform) {
    const int turn = specv_i_thread() / 32;
    uint64_t total = 0;
    if (turn < 2) {
        const int32_t not_this = turn ? without : -2; /* -1: behind the last one */
        int32_t drawn = -1;
        const int draws = !turn || without >= 0;
        if (draws && c->count <= SPECV_I_FEW / 2)
            total = specv_i_warp_draw_few(c, 2, kept, not_this, uniform, &drawn);
        else if (draws)
            total = specv_i_warp_draw_few(c, 4, kept, not_this, uniform, &drawn);
        if (specv_i_lane() == 0) c->few.drawn[turn] = drawn;
    }
    __syncthreads();
    return total;
}

/* One of four, in the same way. */
SPECV_DEVFN uint32_t specv_i_word_of(const specv_random *r, int32_t id) {
    const uint32_t even = id & 2 ? r->x[2] : r->x[0], odd = id & 2 ? r->x[3] : r->x[1];
    return id & 1 ? odd : even;
}

/* Sums of the row's tiles anew, of what is left of them: from the list's first `kept` ids. Call:
   block. Sync: two barriers. */
SPECV_DEVFN void specv_i_block_tiles_of_list(specv_i_cut *c, const specv_i_cut_row *row,
                                             specv_tile *tiles, int kept) {
    const int thread = specv_i_thread();
    const uint64_t least = c->u.list.key[kept - 1];
    for (int t = thread; t < row->num_tiles; t += SPECV_SAMPLE_THREADS) {
        tiles[t].sum = 0;
        if (specv_rank_key(tiles[t].max, 0) < least) tiles[t].max = specv_bits_float(0xff800000u);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < kept; i += SPECV_SAMPLE_THREADS) {
        const float score = specv_i_score_of_rank_key(c->u.list.key[i]);
        specv_tile *tile = &tiles[specv_i_id_of_rank_key(c->u.list.key[i]) / SPECV_TILE_IDS];
        const int32_t n = specv_softmax_weight(tile->max, &row->scale).n;
        if (!specv_in_range(tile->max, &row->scale)) continue;
        const specv_weight w =
            specv_softmax_weight(specv_i_max(score, row->scale.floor), &row->scale);
        atomicAdd((unsigned long long *)&tile->sum, (unsigned long long)specv_weight_units(&w, n));
    }
    __syncthreads();
}

/* The id of the list's first `kept` ones whose score plus noise is the largest; -1: none has
   weight. Call: block. Sync: two barriers. */
SPECV_DEVFN int32_t specv_i_block_best_of_list(specv_i_cut *c, const specv_i_cut_row *row, int kept,
                                               const specv_noise *noise) {
    const int thread = specv_i_thread(), lane = specv_i_lane();
    int64_t best = SPECV_I_NO_SCORE;
    int32_t best_id = SPECV_I_INT_MAX;
#pragma unroll 1
    for (int i = thread; i < kept; i += SPECV_SAMPLE_THREADS) {
        const int32_t id = specv_i_id_of_rank_key(c->u.list.key[i]);
        const float score = specv_i_score_of_rank_key(c->u.list.key[i]);
        if (!specv_i_less(row->scale.floor, score)) continue;
        const specv_weight w = specv_softmax_weight(score, &row->scale);
        const specv_random words = specv_noise_words(noise, (uint32_t)id);
        const specv_random further = specv_noise_finer_words(noise, (uint32_t)id);
        const uint32_t x = specv_i_word_of(&words, id), finer = specv_i_word_of(&further, id);
        const int64_t with_noise = specv_i_score(w.n, w.f, specv_gumbel24(x, finer));
        if (with_noise > best || (with_noise == best && id < best_id))
            best = with_noise, best_id = id;
    }
    specv_i_warp_best(&best, &best_id);
    if (lane == 0)
        c->scratch[0][thread / 32] = (uint64_t)best,
                               c->scratch[1][thread / 32] = (uint64_t)(uint32_t)best_id;
    __syncthreads();
    best = SPECV_I_NO_SCORE, best_id = SPECV_I_INT_MAX;
    if (lane < SPECV_SAMPLE_THREADS / 32)
        best = (int64_t)c->scratch[0][lane], best_id = (int32_t)(uint32_t)c->scratch[1][lane];
    specv_i_warp_best(&best, &best_id);
    __syncthreads();
    return best_id == SPECV_I_INT_MAX ? -1 : best_id;
}

/* Statistics of the row's tiles anew, from the scores, two tiles at a time. Call: block. */
SPECV_DEVFN void specv_i_block_tiles_of_row(const specv_i_cut_row *row, specv_tile *tiles,
                                            const specv_noise *noise, int what) {
    __shared__ specv_i_share share[SPECV_SAMPLE_THREADS / 32];
    __shared__ float largest[SPECV_SAMPLE_THREADS / 32];
    const int own = specv_i_thread() / (32 * SPECV_I_SHARES);
#pragma unroll 1
    for (int tile = 0; tile < row->num_tiles; tile += SPECV_I_TILES) {
        const int first = specv_i_first_of_share(tile + own);
        specv_i_eight raw;
        float score[8];
        raw.high = make_uint4(0, 0, 0, 0); /* of types of 16 bits */
        specv_i_load_eight(&raw, row->scores, row->dtype, row->vocab, first);
        specv_i_decode_eight(score, &raw, row->dtype);
        specv_i_sift_some(&row->sieve, score, 8, first, row->vocab);
        const specv_tile t = specv_i_block_tiles(score, first, SPECV_TILE_SUM | SPECV_TILE_SCORE,
                                                 what, &row->scale, noise, 0, 0, share, largest);
        if (specv_i_thread() % (32 * SPECV_I_SHARES) == 0 && tile + own < row->num_tiles)
            tiles[tile + own] = t;
    }
}

/* How many ids of the row are kept, which then are the first of the list; 0: that is for
   specv_i_block_cut_flat. mass: 0 where tiles have no sums. c->uniform: of the coin. Call: block.
   Sync: barriers. */
SPECV_DEVFN int specv_i_block_list(specv_i_cut *c, const specv_i_cut_row *row,
                                   const specv_i_limits *l, uint64_t mass,
                                   const specv_i_coin *coin) {
    const uint64_t low = specv_i_block_bound(c, row, l, mass);
    if (specv_i_thread() == 0) c->num_shares = c->num_lanes = c->count = 0;
    __syncthreads();
    specv_i_block_collect(c, row, low, coin);
    const int count = c->count;
    if (count == 0 || count > SPECV_I_LIST) return 0;
    if (count <= SPECV_I_FEW)
        specv_i_block_sort_few(c, row, count);
    else
        specv_i_block_sort_list(c, row, count);
    return specv_i_block_cut_list(c, row, l, mass, low == specv_i_lowest(row));
}

/* Position j of a side, whose tiles have maxima of shares. */
SPECV_DEVFN specv_i_cut_row specv_i_cut_row_of(const specv_verify_sample_desc *d,
                                               const specv_i_side *side, const specv_i_memory *m,
                                               const specv_tile *tiles, int j,
                                               const specv_distribution *merged) {
    specv_i_cut_row row;
    row.scores = specv_i_scores_of(side, j), row.tiles = tiles;
    row.lanes = m->lanes + (tiles - m->tiles) * SPECV_I_LANES;
    row.sieve.mask = side->mask ? side->mask + j * side->mask_stride : 0, row.sieve.least = 0;
    row.scale = side->scale, row.dtype = side->dtype, row.n = merged->n, row.max = merged->max;
    row.num_tiles = m->num_tiles, row.vocab = (int32_t)d->verify.vocab;
    return row;
}

/* Row i of a request, first the target's, then the draft's, in scratch memory. */
SPECV_DEVFN int64_t specv_i_row_of(const specv_i_request *r, const specv_i_memory *m, int i) {
    return r->first_row + i + (i >= r->target_rows ? m->target_rows - r->target_rows : 0);
}

/* Of row i, what the thread looks at first. */
SPECV_DEVFN specv_i_cut_tile specv_i_load_cut_tile(const specv_i_request *r,
                                                   const specv_i_memory *m, int i) {
    specv_i_cut_tile t = {{0xff800000u, 0}, 0};
    if (specv_i_thread() < m->num_tiles) {
        const specv_tile *tile =
            m->tiles + specv_i_row_of(r, m, i) * m->num_tiles + specv_i_thread();
        t.best = *(const uint2 *)&tile->max, t.keys = (uint64_t)tile->score;
    }
    return t;
}

/* Puts row i of a request together, first the target's, then the draft's: cuts it, if its side is
   cut, and draws what it would emit, and what without its draft, so that the block which judges has
   nothing left to look for. saved: the request as the first pass has opened it; first: of the row;
   out: shared. Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_cut(const specv_verify_sample_desc *d, const specv_i_request *r,
                                   const specv_i_memory *m, const specv_i_opened *saved, int b,
                                   int i, const specv_i_cut_tile *first, specv_i_cut *c,
                                   specv_distribution *out) {
    const int of_draft = i >= r->target_rows, j = of_draft ? i - r->target_rows : i;
    const int64_t at = specv_i_row_of(r, m, i);
    const specv_i_side side = of_draft ? r->draft : r->target;
    const int of_side = of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET, is_cut = r->cut & of_side;
    const int coupled = r->rule == SPECV_RULE_COUPLED, draws = !of_draft && !coupled;
    const int wanted = specv_i_wanted(d, r, &side, of_draft), thread = specv_i_thread();
    const int sums = r->cut & of_side * SPECV_I_SUMS ? SPECV_TILE_SUM : 0;
    specv_tile *tiles = m->tiles + at * m->num_tiles;
    const specv_i_limits l = saved->limits[of_draft];
    specv_noise noise = {0, 0, 0, 0};
    const specv_i_coin coin = {d, b, j, !draws};
    uint64_t through = 0, uniform = 0, least = 0;
    int32_t without = -1;
    if (draws) {
        if (!d->draft.data && j < r->row.n_draft) {
            const int64_t draft = specv_i_draft_token(d, r, j);
            if (specv_i_is_token(draft, d->verify.vocab)) without = (int32_t)draft;
        }
    } else if (coupled) {
        noise = specv_i_noise(d, b, j);
    }
    specv_distribution p = specv_i_plain_distribution();
    if (is_cut) p = specv_i_block_merge(c, tiles, m->num_tiles, sums, &side.scale, first);
    if (!is_cut || p.kind != SPECV_SOFTMAX)
        p = specv_i_warp_merge(tiles, m->num_tiles, specv_i_may(r), wanted, side.zero, &side.scale,
                               &through);
    specv_i_cut_row row = specv_i_cut_row_of(d, &side, m, tiles, j, &p);
    int few = 0, kept = 0;
    if (is_cut && p.kind == SPECV_SOFTMAX) {
        kept = specv_i_block_list(c, &row, &l, p.sum, &coin);
        uniform = c->uniform;
        least = kept ? c->u.list.key[kept - 1] : specv_i_block_cut_flat(c, &row, &l, p.sum);
        few = kept && c->count <= SPECV_I_FEW;
        if (kept && coupled) p.id = specv_i_block_best_of_list(c, &row, kept, &noise);
        row.sieve.least = least;
        if (!few) {
            const int32_t chosen = p.id;
            if (kept) {
                specv_i_block_tiles_of_list(c, &row, tiles, kept);
            } else {
                __syncthreads();
                specv_i_block_tiles_of_row(&row, tiles, &noise, wanted | SPECV_TILE_SUM);
                __syncthreads();
            }
            p = specv_i_warp_merge(tiles, m->num_tiles, specv_i_may(r),
                                   kept ? SPECV_TILE_SUM : wanted | SPECV_TILE_SUM, 0, &side.scale,
                                   &through);
            if (kept && coupled) p.id = chosen;
        }
    }
    p.reserved = (uint32_t)-1;
    if (few) {
        p.sum = specv_i_block_draw_few(c, kept, without, uniform);
        if (draws) p.id = c->few.drawn[0];
        if (draws && without >= 0) p.reserved = (uint32_t)c->few.drawn[1];
    } else if (draws && p.kind == SPECV_SOFTMAX) {
        specv_i_weights w;
        w.p = p, w.q = specv_i_plain_distribution(), w.p_scores = row.scores, w.q_scores = 0;
        w.p_sieve = row.sieve, w.q_sieve = row.sieve, w.prefix = 1, w.without = -1;
        if (!is_cut) uniform = specv_i_toss(&coin);
        p.id = specv_i_block_draw(r, &w, tiles, m->num_tiles, row.vocab, through, uniform);
        w.without = without;
        if (without >= 0)
            p.reserved = (uint32_t)specv_i_block_draw(r, &w, tiles, m->num_tiles, row.vocab,
                                                      through, uniform);
    }
    if (thread == 0) {
        if (p.sum && (r->row.n_draft > 0 || d->max_prob)) specv_i_set_inverse(&p);
        m->rows[at] = *out = p;
        m->least[at] = least;
    }
}

/* Behind the first pass, requests with rows that filters cut: their rows, a block each, then what
   the last block of a request does there otherwise. Call: block. */
SPECV_DEVFN void specv_i_block_filter(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                      int b, int block, int num_blocks) {
    __shared__ __align__(16) specv_i_opened saved;
    __shared__ specv_i_cut cut;
    __shared__ specv_i_evidence evidence;
    specv_i_put_word(&saved, specv_i_opened_at(m, b), sizeof saved);
    __syncthreads();
    specv_i_request r = saved.request;
    const int rows = r.target_rows + r.draft_rows;
    specv_i_cut_as_asked(&r, &saved.asked);
    if (!r.cut) return; /* all is done */
    specv_i_open_least(m, &r);
    num_blocks = num_blocks < rows ? num_blocks : rows;
    if (block >= num_blocks) return;
    /* On its way before anything else is looked at. */
    specv_i_cut_tile first = specv_i_load_cut_tile(&r, m, block);
#pragma unroll 1
    for (int i = block; i < rows; i += num_blocks) {
        specv_i_block_cut(d, &r, m, &saved, b, i, &first, &cut,
                          &evidence.rows[i < SPECV_I_ROWS_HERE ? i : 0]);
        __syncthreads();
        if (i + num_blocks < rows) first = specv_i_load_cut_tile(&r, m, i + num_blocks);
    }
    if (d->stream & SPECV_I_OF_TREE) return; /* a tree is walked elsewhere */
    const int arrival = specv_i_block_arrives(&m->tickets[2 * b], block, num_blocks);
    if (arrival == SPECV_I_NOT_LAST) return;
    if (arrival == SPECV_I_BAD_TICKET) specv_i_close_request(&r);
    specv_i_block_gather(d, &r, m, b, specv_i_may(&r),
                         num_blocks > 1 ? SPECV_I_ROWS_DRAWN : SPECV_I_ROWS_FETCHED, 0, 0,
                         &evidence);
    specv_i_block_decide(d, &r, m, b, 1, &evidence);
}

/* ---- what is told of emitted tokens

   The first pass over the rows that emitted tokens has left of their tiles sums, maxima, and how
   many ids come before the token. The likeliest ids are what top_k would keep. */

/* The row's first `count` ids, into the list. Returns how many there are; or less 1, if they are
   still to be sorted. Call: block. Sync: barriers. */
SPECV_DEVFN int specv_i_block_find_likeliest(specv_i_cut *c, const specv_i_cut_row *row, int count,
                                             uint64_t mass) {
    specv_i_limits l = {0, 0, 0, 0, 0};
    const specv_i_coin no_coin = {0, 0, 0, 1};
    uint64_t unused = 0, least;
    l.top_k = count < row->vocab ? count : row->vocab;
    count = specv_i_block_list(c, row, &l, mass, &no_coin);
    if (count) return count < l.top_k ? count : l.top_k;
    least = specv_i_block_cut_flat(c, row, &l, mass);
    if (least < specv_i_lowest(row)) least = specv_i_lowest(row);
    const specv_i_ranges ranges = specv_i_ranges_of(least, specv_rank_key(row->max, 0));
    __syncthreads();
    if (specv_i_thread() == 0) c->count = 0;
    __syncthreads();
    specv_i_block_visit(c, row, SPECV_I_TO_LIST, &ranges, 0, &unused);
    __syncthreads();
    return -1;
}

/* The same, at most SPECV_I_FEW. */
SPECV_DEVFN int specv_i_block_likeliest(specv_i_cut *c, const specv_i_cut_row *row, int count,
                                        uint64_t mass) {
    count = specv_i_block_find_likeliest(c, row, count, mass);
    if (count >= 0) return count;
    specv_i_block_sort_few(c, row, c->count);
    return c->count;
}

/* How many ids of the row come before the token, as the first pass has counted in each tile. Call:
   block. Sync: two barriers. */
SPECV_DEVFN int32_t specv_i_block_sum_before(specv_i_cut *c, const specv_i_cut_row *row) {
    int32_t before = 0;
    __syncthreads();
    if (specv_i_thread() == 0) c->count = 0;
    __syncthreads();
    for (int t = specv_i_thread(); t < row->num_tiles; t += SPECV_SAMPLE_THREADS) {
        const specv_tile tile = row->tiles[t];
        before += (int32_t)(specv_in_range(tile.max, &row->scale) ? tile.id & ~SPECV_I_NAN_BIT
                                                                  : (uint32_t)tile.sum);
    }
    if (before) atomicAdd(&c->count, before);
    __syncthreads();
    return c->count;
}

/* What is told of column j of a request. Call: block. Sync: barriers. Trips: the token; the
   tiles beside its score; shares of tiles with the likeliest ids. */
SPECV_DEVFN void specv_i_block_tell(const specv_verify_sample_desc *d, const specv_i_request *r,
                                    const specv_i_memory *m, int b, int j, specv_i_cut *c) {
    const specv_emitted *e = &d->emitted;
    const specv_i_side side = r->target;
    const int64_t at = (int64_t)b * m->columns + j;
    const specv_tile *tiles = m->tiles + (r->first_row + j) * m->num_tiles;
    const int as_they_are =
        side.dtype == SPECV_I_WEIGHTS_F32 && (e->raw || !specv_i_weighs_probs(d));
    const int thread = specv_i_thread();
    const float none = specv_bits_float(0xff800000u);
    float logprob = 0, its = none;
    int32_t rank = 0, id = -1;
    int64_t token = -1;
    if (j < r->target_rows) {
        uint2 raw = {0, 0};
        specv_i_load_token(&raw, d->verify.out_tokens, d->verify.token_dtype,
                           b * d->verify.out_stride_elems + j);
        token = specv_i_token(raw, d->verify.token_dtype);
    }
    if (token >= 0) {
        const int its_row = specv_i_row_of_column(m, b, j);
        uint64_t through;
        const specv_distribution merged = specv_i_warp_merge(
            tiles, m->num_tiles, SPECV_TILE_SUM, SPECV_TILE_SUM, side.zero, &side.scale, &through);
        const specv_i_sieve sieve = specv_i_sieve_of(&side, its_row);
        const float score = specv_i_sift(
            &sieve, specv_i_load_score(specv_i_scores_of(&side, its_row), side.dtype, token),
            (int32_t)token);
        int num_top = e->top_id || e->top_logprob ? e->max_top : 0;
        if (num_top && e->num_top) {
            const int32_t wanted = e->num_top[specv_i_slot_of(d, b)];
            num_top = wanted < 0 ? 0 : wanted < num_top ? wanted : num_top;
        }
        logprob = specv_i_log_p(&merged, &side.scale, as_they_are, score, (int32_t)token);
        rank = 1;
        if (merged.kind == SPECV_ONE_HOT) {
            rank += token != merged.id;
            if (thread == 0 && num_top) id = merged.id, its = 0;
        } else if (merged.kind == SPECV_SOFTMAX) {
            specv_i_cut_row row = specv_i_cut_row_of(d, &side, m, tiles, its_row, &merged);
            row.sieve.least = sieve.least;
            if (thread < m->num_tiles) c->keys[thread] = (uint64_t)tiles[thread].score;
            __syncthreads();
            if (num_top) num_top = specv_i_block_likeliest(c, &row, num_top, merged.sum);
            if (thread < num_top) {
                const uint64_t key = c->u.list.key[thread];
                id = specv_i_id_of_rank_key(key);
                its = specv_i_log_p(&merged, &side.scale, as_they_are,
                                    specv_i_score_of_rank_key(key), id);
            }
            if (e->rank) rank += specv_i_block_sum_before(c, &row);
        }
    }
    if (thread < e->max_top) {
        if (e->top_id) e->top_id[at * e->max_top + thread] = id;
        if (e->top_logprob) e->top_logprob[at * e->max_top + thread] = its;
    }
    if (thread == 32 && e->logprob) e->logprob[at] = logprob;
    if (thread == 64 && e->rank) e->rank[at] = rank;
}

/* ---- residuals

   What a token is drawn from behind a rejected draft, (P p - q)+, or from p alone where p is
   probabilities. A block sums up a tile, four consecutive ids a thread, and later draws from it in
   the same way. */

/* Scores of four ids as they are in memory; 16-bit ones fill two words. */
typedef struct specv_i_quads {
    uint32_t p[4], q[4];
} specv_i_quads;

SPECV_DEVFN void specv_i_load_quad(uint32_t word[4], const char *at, int is_16_bit) {
    if (is_16_bit) {
        const uint2 v = *(const uint2 *)at;
        word[0] = v.x, word[1] = v.y;
    } else {
        const uint4 v = *(const uint4 *)at;
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    }
}

SPECV_DEVFN void specv_i_load_some(uint32_t word[4], const char *at, int is_16_bit, int left) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i >= left) continue;
        if (is_16_bit)
            word[i / 2] |= (uint32_t)((const unsigned short *)at)[i] << 16 * (i % 2);
        else
            word[i] = ((const uint32_t *)at)[i];
    }
}

/* p and q of the ids from `first` on, in flight together: one access each where both are aligned.
   What is behind the vocabulary, and an absent q, is 0. */
SPECV_DEVFN void specv_i_load_quads(specv_i_quads *v, const specv_i_request *r,
                                    const specv_i_weights *w, int first, int64_t vocab) {
    const int left = (int)vocab - first;
    const int p_16_bit = specv_i_unit(r->target.dtype) == 8;
    const int q_16_bit = specv_i_unit(r->draft.dtype) == 8;
    const char *p = (const char *)specv_i_score_at(w->p_scores, r->target.dtype, first);
    const char *q = (const char *)specv_i_score_at(w->q_scores, r->draft.dtype, first);
    const int aligned = ((uint64_t)p & (p_16_bit ? 7 : 15)) == 0 &&
                        (!w->q_scores || ((uint64_t)q & (q_16_bit ? 7 : 15)) == 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) v->p[i] = v->q[i] = 0;
    if (aligned && left >= 4) {
        specv_i_load_quad(v->p, p, p_16_bit);
        if (w->q_scores) specv_i_load_quad(v->q, q, q_16_bit);
    } else {
        specv_i_load_some(v->p, p, p_16_bit, left);
        if (w->q_scores) specv_i_load_some(v->q, q, q_16_bit, left);
    }
}

/* Probabilities that one side gives to four ids from `first` on. */
SPECV_DEVFN void specv_i_quad_p(float p[4], const specv_i_side *side, const specv_distribution *row,
                                const specv_i_sieve *sieve, const uint32_t word[4], int first,
                                int vocab, int *nan) {
    if (side->dtype == SPECV_PROBS_F32) {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = specv_bits_float(word[i]);
        if (((word[0] | word[1] | word[2] | word[3]) >> 30) == 0) return; /* in [0, 2), as usual */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            p[i] = specv_i_clean_prob(p[i]);
            *nan |= specv_i_is_nan(p[i]);
            p[i] = specv_i_max(p[i], 0.f);
        }
        return;
    }
    if (side->dtype == SPECV_LOGITS_F32 || side->dtype == SPECV_I_WEIGHTS_F32) {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = specv_bits_float(word[i]);
        if (side->dtype == SPECV_I_WEIGHTS_F32)
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = specv_i_weight_score(p[i]);
    } else if (side->dtype == SPECV_LOGITS_F16) {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = specv_f16_float(word[i / 2] >> 16 * (i % 2) & 0xffffu);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            p[i] = specv_bits_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    }
    specv_i_sift_some(sieve, p, 4, first, vocab);
    if (row->kind == SPECV_SOFTMAX) {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = specv_i_softmax_p(row, &side->scale, p[i]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = specv_probability(row, &side->scale, p[i], first + i);
    }
}

/* P p - q of four ids, or p: what is above 0 is their weight. 0 behind the vocabulary. */
SPECV_DEVFN void specv_i_quad_gains(float gain[4], const specv_i_request *r,
                                    const specv_i_weights *w, const specv_i_quads *v, int first,
                                    int64_t vocab, int *nan) {
    const int left = (int)vocab - first;
    specv_i_quad_p(gain, &r->target, &w->p, &w->p_sieve, v->p, first, (int)vocab, nan);
    if (w->q_scores) {
        float q[4];
        specv_i_quad_p(q, &r->draft, &w->q, &w->q_sieve, v->q, first, (int)vocab, nan);
#pragma unroll
        for (int i = 0; i < 4; ++i) gain[i] = specv_fma(w->prefix, gain[i], specv_i_negate(q[i]));
    } else if (w->without >= 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (first + i == w->without) gain[i] = 0;
    }
    if (left >= 4) return;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (i >= left) gain[i] = 0;
}

#define SPECV_I_NAN_IN_TILE ((uint64_t)1 << 63)

/* Sums over a warp of two numbers of at most 54 bits: as halves of 27, so that nothing is carried
   and no sum waits for another. */
SPECV_DEVFN void specv_i_warp_add_two(uint64_t *a, uint64_t *b) {
    const uint32_t low = (1u << 27) - 1;
    uint32_t word[4] = {(uint32_t)*a & low, (uint32_t)(*a >> 27), (uint32_t)*b & low,
                        (uint32_t)(*b >> 27)};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __reduce_add_sync(SPECV_FULL_WARP, word[i]);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        uint32_t other[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) other[i] = __shfl_xor_sync(SPECV_FULL_WARP, word[i], distance);
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] += other[i];
    }
#endif
    *a = ((uint64_t)word[1] << 27) + word[0], *b = ((uint64_t)word[3] << 27) + word[2];
}

/* The warp's part of a tile's sums, from lane 0. */
SPECV_DEVFN void specv_i_warp_sum_quads(const specv_verify_sample_desc *d, const specv_i_request *r,
                                        const specv_i_weights *w, const specv_i_quads *v, int first,
                                        ulonglong2 *out) {
    specv_i_residual sum = {0, 0};
    float gain[4], largest = 0;
    uint64_t all = 0;
    int nan = 0;
    specv_i_quad_gains(gain, r, w, v, first, d->verify.vocab, &nan);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t bits = specv_float_bits(gain[i]) & 0x7fffffffu;
        const uint64_t units = specv_fixed50(specv_bits_float(bits));
        all += units;
        if ((int32_t)specv_float_bits(gain[i]) > 0) sum.gain += units;
        largest = specv_i_max(largest, gain[i]);
    }
    sum.rest = all - sum.gain;
    specv_i_warp_add_two(&sum.gain, &sum.rest);
    if (!w->q_scores) sum.rest = d->max_prob ? specv_float_bits(specv_i_warp_max(largest)) : 0;
    if (__any_sync(SPECV_FULL_WARP, nan)) sum.rest |= SPECV_I_NAN_IN_TILE;
    if (specv_i_lane() == 0) *out = make_ulonglong2(sum.gain, sum.rest);
}

/* A tile's sums from those of the warps. Call: one thread. All loads come first. */
SPECV_DEVFN void specv_i_put_residual(specv_i_residual *out, const ulonglong2 *of_warp, int has_q) {
    ulonglong2 part[SPECV_SAMPLE_THREADS / 32];
    uint64_t marks = 0, largest = 0;
    specv_i_residual sum = {0, 0};
#pragma unroll
    for (int i = 0; i < SPECV_SAMPLE_THREADS / 32; ++i) part[i] = of_warp[i];
#pragma unroll
    for (int i = 0; i < SPECV_SAMPLE_THREADS / 32; ++i) {
        const uint64_t rest = part[i].y & ~SPECV_I_NAN_IN_TILE;
        sum.gain += part[i].x, sum.rest += rest, marks |= part[i].y;
        largest = rest > largest ? rest : largest; /* floats are in this order, too */
    }
    if (!has_q) sum.rest = largest;
    sum.rest |= marks & SPECV_I_NAN_IN_TILE;
    *out = sum;
}

/* The weights of position j that outcome o stands for. */
SPECV_DEVFN void specv_i_open_weights(specv_i_weights *w, const specv_i_request *r,
                                      const specv_i_memory *m, const specv_i_outcome *o, int j) {
    const int64_t row = r->first_row + j;
    w->p_scores = specv_i_scores_of(&r->target, j), w->q_scores = 0;
    w->p_sieve = specv_i_sieve_of(&r->target, j), w->q_sieve = specv_i_sieve_of(&r->draft, j);
    w->p = w->q = specv_i_plain_distribution();
    if (r->target.dtype != SPECV_PROBS_F32) w->p = m->rows[row];
    if (o->next != SPECV_I_RESIDUAL) return;
    w->q_scores = specv_i_scores_of(&r->draft, j);
    if (r->draft.dtype != SPECV_PROBS_F32) w->q = m->rows[m->target_rows + row];
}

/* Sums of the tiles of the position that emits the token, or, searching, of all positions where the
   block rule may stop; those of a block. Call: block. Sync: a barrier a tile. */
SPECV_DEVFN void specv_i_block_residuals(const specv_verify_sample_desc *d,
                                         const specv_i_request *r, const specv_i_memory *m,
                                         const specv_i_outcome *o, const volatile float *prefixes,
                                         int searching, specv_i_weights *w, int block,
                                         int num_blocks) {
    __shared__ ulonglong2 of_warp[2][SPECV_SAMPLE_THREADS / 32];
    const int num_items = (searching ? o->usable : 1) * m->num_tiles, thread = specv_i_thread();
    int at = -1, turn = 0;
    w->prefix = o->prefix;
#pragma unroll 1
    for (int item = block; item < num_items; item += num_blocks) {
        const int j = searching ? item / m->num_tiles : o->accepted;
        const int tile = searching ? item - j * m->num_tiles : item;
        const int first = tile * SPECV_TILE_IDS + 4 * thread;
        specv_i_quads v;
        if (searching) w->prefix = prefixes[j];
        if (searching && !specv_i_less(0.f, w->prefix)) continue;
        if (j != at) specv_i_open_weights(w, r, m, o, j), at = j;
        specv_i_load_quads(&v, r, w, first, d->verify.vocab);
        specv_i_warp_sum_quads(d, r, w, &v, first, &of_warp[turn][thread / 32]);
        __syncthreads(); /* the other buffer has been read by then */
        if (thread == 0)
            specv_i_put_residual(&m->residuals[(r->first_row + j) * m->num_tiles + tile],
                                 of_warp[turn], w->q_scores != 0);
        turn ^= 1;
    }
}

/* The largest position that passes the test of the block rule; its P too, and NAN if one is from
   there on. Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_search(const specv_verify_sample_desc *d, const specv_i_request *r,
                                      const specv_i_memory *m, int b,
                                      const volatile float *prefixes, specv_i_outcome *o) {
    __shared__ int tau, last_nan;
    const int warp = specv_i_thread() / 32, lane = specv_i_lane();
    if (specv_i_thread() == 0) tau = 0, last_nan = -1;
    __syncthreads();
    for (int i = warp; i < o->usable; i += SPECV_SAMPLE_THREADS / 32) {
        const specv_i_residual *of_row = m->residuals + (r->first_row + i) * m->num_tiles;
        specv_i_residual sum = {0, 0};
        uint32_t reported = 0; /* by the judge */
        int nan = 0;
        if (!specv_i_less(0.f, prefixes[i])) continue;
        for (int t = lane; t < m->num_tiles; t += 32) {
            const specv_i_residual of_tile = of_row[t];
            sum.gain += of_tile.gain, sum.rest += of_tile.rest & ~SPECV_I_NAN_IN_TILE;
            nan |= (of_tile.rest & SPECV_I_NAN_IN_TILE) != 0;
        }
        sum.gain = specv_i_warp_add(sum.gain), sum.rest = specv_i_warp_add(sum.rest);
        nan = __any_sync(SPECV_FULL_WARP, nan);
        if (lane == 0 && nan) atomicMax(&last_nan, i);
        if (lane == 0 && i > 0 &&
            (sum.rest == 0 || specv_accept(specv_i_accept_uniform(d, r, b, i - 1, &reported),
                                           (float)sum.rest, (float)sum.gain)))
            atomicMax(&tau, i);
    }
    __syncthreads();
    o->accepted = tau;
    o->prefix = prefixes[tau];
    if (last_nan > tau) o->status |= SPECV_ROW_NAN; /* that one is looked at again */
}

/* What the sums of a row's tiles say. */
typedef struct specv_i_drawn_tile {
    int32_t tile;    /* in which the sum of gains passes floor(uniform * W / 2^64), W all of it, in
                        units of 2^-40; -1: W is 0 */
    uint64_t left;   /* what of that is in the tile, in units of 2^-50 */
    uint32_t status; /* NAN; BAD_SUM if p alone does not sum to 1, or P p - q to P - 1 */
    float largest;   /* of p alone, for max_prob */
} specv_i_drawn_tile;

/* Each lane adds up a 32nd of the tiles; those of the lane that has the place are shared out again,
   until they are one: for up to 32,768 ids at once. Call: warp. Cost: 5 shuffles of two words a
   turn, of four in the first. */
SPECV_DEVFN specv_i_drawn_tile specv_i_warp_find_tile(const specv_verify_sample_desc *d,
                                                      const specv_i_request *r,
                                                      const specv_i_weights *w,
                                                      const specv_i_residual *residuals,
                                                      int num_tiles, uint64_t uniform) {
    const uint64_t one = (uint64_t)1 << 50;
    const int lane = specv_i_lane();
    int first = 0, end = num_tiles, each = (num_tiles + 31) / 32;
    uint64_t sum = 0, all = 0, marks = 0, through, total;
    specv_i_drawn_tile place = {-1, 0, 0, 0};
#pragma unroll 4
    for (int t = lane * each; t < (lane + 1) * each && t < end; ++t) {
        const specv_i_residual of_tile = residuals[t];
        const uint64_t rest = of_tile.rest & ~SPECV_I_NAN_IN_TILE;
        marks |= of_tile.rest;
        sum += of_tile.gain >> SPECV_I_FINER_PROBS;
        all += of_tile.gain - (w->q_scores ? rest : 0);
        if (!w->q_scores)
            place.largest = specv_i_max(place.largest, specv_bits_float((uint32_t)rest));
    }
    through = sum;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint64_t below = __shfl_up_sync(SPECV_FULL_WARP, through, (unsigned)distance);
        all += __shfl_xor_sync(SPECV_FULL_WARP, all, distance);
        through += lane >= distance ? below : 0;
    }
    if (__any_sync(SPECV_FULL_WARP, marks >> 63 != 0)) place.status = SPECV_ROW_NAN;
    if (d->max_prob) place.largest = specv_i_warp_max(place.largest);
    if (w->without >= 0)
        all += specv_fixed50(
            specv_i_max(specv_i_load_score(w->p_scores, r->target.dtype, w->without), 0.f));
    if (specv_i_bad_sum(all, w->q_scores ? specv_fixed50(w->prefix) - one : one))
        place.status |= SPECV_ROW_BAD_SUM;
    total = __shfl_sync(SPECV_FULL_WARP, through, 31);
    if (total == 0) return place;
    place.left = specv_i_mul_high(uniform, total);
    for (;;) {
        const int of_lane = specv_warp_first_reject(place.left < through);
        place.left -= __shfl_sync(SPECV_FULL_WARP, through - sum, of_lane);
        first += of_lane * each;
        if (each == 1) break;
        end = first + each < end ? first + each : end;
        each = (each + 31) / 32, sum = 0;
#pragma unroll 4
        for (int t = first + lane * each; t < first + (lane + 1) * each && t < end; ++t)
            sum += residuals[t].gain >> SPECV_I_FINER_PROBS;
        through = specv_i_warp_inclusive_add(sum);
    }
    place.tile = first;
    place.left = place.left << SPECV_I_FINER_PROBS | uniform * total >> (64 - SPECV_I_FINER_PROBS);
    return place;
}

/* How a block leaves a row. */
typedef struct specv_i_end {
    specv_i_outcome o;
    int32_t id;    /* the token, in the thread that has it; in others -1 */
    int32_t emits; /* 1 = this block stores the row */
    int32_t has_token;
    float largest; /* thread 0: max_prob */
} specv_i_end;

/* Outputs of a row; status and largest are those of thread 0. Those of the token come from the
   thread that has it. Call: block. */
SPECV_DEVFN void specv_i_block_store(const specv_verify_sample_desc *d, const specv_i_request *r,
                                     const specv_i_memory *m, const specv_distribution *row, int b,
                                     const specv_i_end *e) {
    const specv_verify_greedy_desc *v = &d->verify;
    const int k = e->o.accepted, thread = specv_i_thread(), max_draft = v->rows.max_draft;
    const int mismatch = e->o.next > SPECV_I_NO_TOKEN && k < r->row.n_draft;
    if (e->has_token ? e->id >= 0 : thread == 0) {
        float logprob = 0, lse = 0;
        if (v->next_token) specv_i_store_token(v->next_token, v->token_dtype, b, e->id);
        if (v->out_tokens)
            specv_i_store_token(v->out_tokens, v->token_dtype, b * v->out_stride_elems + k, e->id);
        if (v->num_emitted) v->num_emitted[b] = k + e->has_token;
        if (v->finished)
            v->finished[b] = (uint8_t)(e->o.next == SPECV_I_NO_TOKEN || specv_i_is_eos(v, e->id));
        if ((d->logprob || d->lse || d->emitted.logprob) && e->o.next > SPECV_I_BONUS)
            specv_i_log_probability(r, row, k, e->id, 0, &logprob, &lse);
        if (d->logprob) d->logprob[b] = logprob;
        if (d->lse) d->lse[b] = lse;
        if (d->emitted.logprob) d->emitted.logprob[b * ((int64_t)max_draft + 1) + k] = logprob;
    }
    if (v->out_tokens) {
#pragma unroll 1
        for (int64_t j = thread; j <= max_draft; j += SPECV_SAMPLE_THREADS)
            if (j != k)
                specv_i_store_token(v->out_tokens, v->token_dtype, b * v->out_stride_elems + j,
                                    j < k ? specv_i_draft_token(d, r, (int)j) : -1);
    }
    if (d->emitted.logprob) specv_i_block_put_logprobs(d, r, m, b, k, 0);
    if (d->target_logprob) {
#pragma unroll 1
        for (int64_t j = k + thread; j < max_draft; j += SPECV_SAMPLE_THREADS)
            d->target_logprob[b * (int64_t)max_draft + j] = 0;
    }
    if (thread != 0) return;
    uint32_t status = e->o.status;
    if (mismatch && k == e->o.usable) {
        const int64_t draft = specv_i_draft_token(d, r, k);
        if (draft != -1 && !specv_i_is_token(draft, v->vocab)) status |= SPECV_ROW_BAD_DRAFT;
    }
    if (v->accepted_len) v->accepted_len[b] = k;
    if (v->mismatch) v->mismatch[b] = (uint8_t)mismatch;
    specv_i_put_status(v->row_status, b, status, v->keep_status);
    if (d->max_prob) d->max_prob[b] = e->has_token ? e->largest : 0;
}

/* The id of a tile at which the running sum of its gains passes `left`, in the thread that has it;
   -1 in others. Call: block. Sync: one barrier. */
SPECV_DEVFN int32_t specv_i_block_find_id(const float gain[4], int first, uint64_t left) {
    __shared__ uint64_t of_warp[SPECV_SAMPLE_THREADS / 32];
    const int warp = specv_i_thread() / 32;
    uint64_t units[4], earlier[SPECV_SAMPLE_THREADS / 32], mine = 0, before;
    int i = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) mine += units[k] = specv_fixed50(specv_i_max(gain[k], 0.f));
    before = specv_i_warp_inclusive_add(mine);
    if (specv_i_lane() == 31) of_warp[warp] = before;
    before -= mine;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SPECV_SAMPLE_THREADS / 32; ++k) earlier[k] = of_warp[k];
#pragma unroll
    for (int k = 0; k < SPECV_SAMPLE_THREADS / 32 - 1; ++k) before += k < warp ? earlier[k] : 0;
    if (left < before || left - before >= mine) return -1;
    left -= before;
#pragma unroll
    for (int next = 0; next < 3; ++next)
        if (i == next && left >= units[next]) left -= units[next], ++i;
    return first + i;
}

/* A row that draws from sums of its own: num_blocks blocks make them, the last one does the rest of
   the judgement (block rule) and draws. e: the outcome so far, then all of it. prefixes: P of each
   position, where the block rule has q. draws: visible behind the next barrier. Call: block. */
SPECV_DEVFN void specv_i_block_finish(const specv_verify_sample_desc *d, int rule,
                                      specv_i_request *r, const specv_i_memory *m, int b,
                                      const volatile float *prefixes, const specv_i_draws *draws,
                                      uint32_t *ticket, int block, int num_blocks,
                                      specv_i_weights *w, specv_i_end *e) {
    const int probs = r->target.dtype == SPECV_PROBS_F32;
    int searching = rule == SPECV_RULE_BLOCK && e->o.next == SPECV_I_RESIDUAL;
    const int num_items = (searching ? e->o.usable : 1) * m->num_tiles;
    float gain[4];
    int again = 0, first, unused = 0;
    specv_i_drawn_tile place;
    specv_i_quads v;
    num_blocks = num_blocks < num_items ? num_blocks : num_items;
    if (block >= num_blocks) return;
    w->without = -1;
    if (e->o.next == SPECV_I_DRAW_WITHOUT)
        w->without = (int32_t)specv_i_draft_token(d, r, e->o.accepted);
    for (;;) {
        specv_i_block_residuals(d, r, m, &e->o, prefixes, searching, w, block, num_blocks);
        const int arrival = specv_i_block_arrives(ticket, block, num_blocks);
        if (arrival == SPECV_I_NOT_LAST) return;
        e->emits = 1;
        if (arrival == SPECV_I_BAD_TICKET) {
            specv_i_close_request(r);
            e->o.accepted = e->o.usable = 0, e->o.next = SPECV_I_NOTHING, e->o.status = r->status;
            return;
        }
        if (searching) specv_i_block_search(d, r, m, b, prefixes, &e->o), searching = 0;
        specv_i_open_weights(w, r, m, &e->o, e->o.accepted);
        w->prefix = e->o.prefix;
        if (w->p.kind != SPECV_SOFTMAX) return;
        const specv_i_residual *sums =
            m->residuals + (r->first_row + e->o.accepted) * (int64_t)m->num_tiles;
        uint64_t uniform = draws->uniform[e->o.accepted & 31];
        uint32_t status = draws->status;
        if (e->o.accepted >= 32) uniform = specv_i_sample_uniform(d, b, e->o.accepted, &status);
        place = specv_i_warp_find_tile(d, r, w, sums, m->num_tiles, uniform);
        if (!again) e->o.status |= status | place.status, e->largest = place.largest;
        if (place.tile >= 0) break;
        if (e->o.next == SPECV_I_DRAW) {
            e->o.status |= SPECV_ROW_EMPTY;
            return;
        }
        e->o.status |= SPECV_ROW_ZERO_RESIDUAL;
        e->o.next = SPECV_I_DRAW, w->without = -1;
        if (!probs) return;
        block = 0, num_blocks = 1, again = 1; /* a rare row: this block alone adds up p */
        __syncthreads();                      /* the sums have been read */
    }
    e->o.status |= w->p.status;
    first = place.tile * SPECV_TILE_IDS + 4 * specv_i_thread();
    specv_i_load_quads(&v, r, w, first, d->verify.vocab);
    specv_i_quad_gains(gain, r, w, &v, first, d->verify.vocab, &unused);
    e->id = specv_i_block_find_id(gain, first, place.left);
    e->has_token = 1;
    e->largest = specv_i_less(1.f, e->largest) ? 1.f : e->largest;
}

SPECV_DEVFN specv_i_end specv_i_end_of(specv_i_outcome o) {
    specv_i_end e;
    e.o = o, e.id = -1, e.emits = e.has_token = 0, e.largest = 0;
    return e;
}

/* The second pass over one request. Call: block. */
SPECV_DEVFN void specv_i_block_second_pass(const specv_verify_sample_desc *d,
                                           const specv_i_memory *m, int b, int block,
                                           int num_blocks, int filters) {
    __shared__ specv_i_draws draws;
    __shared__ specv_i_request opened;
    const specv_i_outcome o = m->plans[b];
    const int warp = specv_i_thread() / 32;
    if (o.next == SPECV_I_NOTHING) return;
    if (warp == 0) {
        const specv_i_request of_block =
            filters ? specv_i_open_filtered_request(d, m, b) : specv_i_open_request(d, b);
        if (specv_i_lane() == 0) opened = of_block;
    }
    __syncthreads();
    specv_i_request r = opened;
    if (!filters) specv_i_without_filters(&r);
    if (warp == 1) specv_i_warp_make_draws(d, b, 1, &draws); /* read behind the ticket's barrier */
    specv_i_end e = specv_i_end_of(o);
    specv_i_weights w;
    specv_i_block_finish(d, d->rule, &r, m, b, m->prefixes + r.first_row, &draws,
                         &m->tickets[2 * b + 1], block, num_blocks, &w, &e);
    if (!e.emits) return;
    if (r.target_rows && !e.has_token)
        specv_i_block_emit(d, &r, m, b, e.o); /* there are sums of p's tiles */
    else
        specv_i_block_store(d, &r, m, &w.p, b, &e);
}

/* ---- verification from probabilities

   p and q (if any) are probabilities: of each draft two numbers decide, so every block of a request
   judges for itself, and one launch does it all. */

/* What the judge sees of the draft of a lane; of one that is no token, or behind the last, only
   that. */
typedef struct specv_i_look {
    float p, q, u;
    int32_t draft; /* -1: no token */
    uint32_t status;
    int eos;
} specv_i_look;

/* p and q in one round trip; the random number is made meanwhile. */
SPECV_DEVFN specv_i_look specv_i_look_at_draft(const specv_verify_sample_desc *d,
                                               const specv_i_request *r, int j, uint64_t seed,
                                               uint32_t position) {
    specv_i_look look = {0, 1, 0, -1, 0, 0};
    if (j >= r->row.n_draft) return look;
    const int64_t draft = specv_i_draft_token(d, r, j);
    if (!specv_i_is_token(draft, d->verify.vocab)) return look;
    float p = ((const float *)specv_i_scores_of(&r->target, j))[draft], q = 1;
    if (d->draft.data) q = ((const float *)specv_i_scores_of(&r->draft, j))[draft];
    if (d->rule == SPECV_RULE_SCORE) {
    } else if (d->accept_uniform) {
        look.u = specv_i_clean_uniform(d->accept_uniform[r->first_draft + j], &look.status);
    } else {
        const specv_random x = specv_philox(seed, position, (uint32_t)(d->step_row + j), 0,
                                            specv_i_tag(SPECV_TAG_ACCEPT, d->stream));
        look.u = specv_uniform(&x);
    }
    look.draft = (int32_t)draft, look.eos = specv_i_is_eos(&d->verify, draft);
    p = specv_i_clean_prob(p), q = specv_i_clean_prob(q);
    look.p = specv_i_p(&r->target, 0, p, look.draft, &look.status);
    look.q = specv_i_p(&r->draft, 0, q, look.draft, &look.status);
    return look;
}

/* A3 and SCORE; reports: this block writes target_logprob. Call: warp. */
SPECV_DEVFN void specv_i_warp_judge_probs(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, int b, uint64_t seed,
                                          uint32_t position, int reports, specv_i_outcome *o) {
    const specv_distribution plain = specv_i_plain_distribution();
    const int lane = specv_i_lane(), scores = d->rule == SPECV_RULE_SCORE;
    o->usable = r->row.n_draft, o->prefix = 1;
    for (int base = 0; base < r->row.n_draft; base += 32) {
        const specv_i_look look = specv_i_look_at_draft(d, r, base + lane, seed, position);
        const int rejected = look.draft >= 0 && !scores && !specv_accept(look.u, look.q, look.p);
        const int first = specv_warp_first_reject(look.draft < 0 || look.eos || rejected);
        const int seen = look.draft >= 0 && lane <= first;
        o->status |= specv_i_warp_or(seen ? look.status : 0);
        if (reports && seen)
            d->target_logprob[b * (int64_t)d->verify.rows.max_draft + base + lane] =
                specv_i_log_p(&plain, &r->target.scale, 1, look.p, look.draft);
        if (first == 32) continue;
        o->accepted = base + first;
        o->next = d->draft.data ? SPECV_I_RESIDUAL : SPECV_I_DRAW_WITHOUT;
        if (__shfl_sync(SPECV_FULL_WARP, rejected, first)) return;
        o->ends_with_eos = __shfl_sync(SPECV_FULL_WARP, look.eos, first);
        o->usable = base + first + o->ends_with_eos;
        break;
    }
    specv_i_accept_all(d, r, o);
}

/* A4, as far as it goes without the sums over all ids: P of every position (to prefixes), the test
   of the last one, and without draft scores all tests. Every block of the row writes the same,
   hence volatile. Call: warp. */
SPECV_DEVFN void specv_i_warp_judge_block_probs(const specv_verify_sample_desc *d,
                                                const specv_i_request *r, uint64_t seed,
                                                uint32_t position, volatile float *prefixes,
                                                specv_i_outcome *o) {
    const int lane = specv_i_lane();
    float prefix = 1, prefix_of_tau = 1, last_u = 0;
    int tau = 0, count = 32;
    for (int base = 0; base < r->row.n_draft && count == 32 && !o->ends_with_eos; base += 32) {
        const specv_i_look look = specv_i_look_at_draft(d, r, base + lane, seed, position);
        const int end = specv_warp_first_reject(look.draft < 0 || look.eos);
        float mine = 1, u = __shfl_up_sync(SPECV_FULL_WARP, look.u, 1); /* P and u to get here */
        int passes = 0;
        o->ends_with_eos = end < 32 && __shfl_sync(SPECV_FULL_WARP, look.eos, end & 31);
        count = end + o->ends_with_eos;
        if (count == 0) break;
        o->status |= specv_i_warp_or(lane < count ? look.status : 0);
        for (int i = 0; i < count; ++i) {
            const float q = __shfl_sync(SPECV_FULL_WARP, look.q, i);
            float p = __shfl_sync(SPECV_FULL_WARP, look.p, i);
            if (i == lane) mine = prefix;
            p = specv_i_mul(prefix, p);
            prefix = !specv_i_less(0.f, p) ? 0.f : specv_i_less(p, q) ? specv_i_div(p, q) : 1.f;
        }
        if (lane == 0) u = last_u;
        if (lane < count) prefixes[base + lane] = mine;
        if (base + lane > 0 && lane < count && !d->draft.data && specv_i_less(0.f, mine)) {
            const float lost = specv_fma(specv_i_negate(mine), look.p, 1.f);
            const float gained = specv_i_mul(mine, specv_i_add(1.f, specv_i_negate(look.p)));
            passes = !specv_i_less(0.f, lost) || specv_accept(u, lost, gained);
        }
        const unsigned mask = __ballot_sync(SPECV_FULL_WARP, passes);
        if (mask) {
            const int last = 31 - __clz((int)mask);
            tau = base + last;
            prefix_of_tau = __shfl_sync(SPECV_FULL_WARP, mine, last);
        }
        last_u = __shfl_sync(SPECV_FULL_WARP, look.u, count - 1);
        o->usable = base + count;
    }
    if (o->usable == 0 || specv_accept(last_u, 1.f, prefix)) {
        specv_i_accept_all(d, r, o);
        return;
    }
    o->accepted = tau, o->prefix = prefix_of_tau;
    o->next = d->draft.data ? SPECV_I_RESIDUAL : SPECV_I_DRAW_WITHOUT; /* tau is not known yet */
}

/* A row at temperature 0: the most probable token of every position, the lowest id of several. In
   place of a tile's sums stand its largest probability and the id. Call: block. */
SPECV_DEVFN void specv_i_block_most_probable(const specv_verify_sample_desc *d, specv_i_request *r,
                                             const specv_i_memory *m, int b, int block,
                                             int num_blocks, specv_i_end *e) {
    __shared__ specv_i_outcome judged;
    const int warp = specv_i_thread() / 32, num_warps = SPECV_SAMPLE_THREADS / 32;
    const int num_items = r->target_rows * m->num_tiles, lane = specv_i_lane();
    const int most = num_items ? (num_items + num_warps - 1) / num_warps : 1;
    specv_i_residual *sums = m->residuals + r->first_row * m->num_tiles;
    specv_distribution *rows = m->rows + r->first_row;
    specv_i_weights w;
    w.q_scores = 0;
    num_blocks = num_blocks < most ? num_blocks : most;
    if (block >= num_blocks) return;
#pragma unroll 1
    for (int item = block * num_warps + warp; item < num_items; item += num_blocks * num_warps) {
        const int j = item / m->num_tiles, start = (item - j * m->num_tiles) * SPECV_TILE_IDS;
        int64_t best = 0;
        int32_t id = 0x7fffffff;
        int nan = 0;
        w.p_scores = specv_i_scores_of(&r->target, j);
#pragma unroll 2
        for (int first = start + 4 * lane; first < start + SPECV_TILE_IDS; first += 128) {
            specv_i_quads v;
            float p[4];
            specv_i_load_quads(&v, r, &w, first, d->verify.vocab);
            specv_i_quad_p(p, &r->target, 0, 0, v.p, first, (int)d->verify.vocab, &nan);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int32_t bits = (int32_t)specv_float_bits(p[i]);
                if (bits > best) best = bits, id = first + i;
            }
        }
        specv_i_warp_best(&best, &id);
        nan = __any_sync(SPECV_FULL_WARP, nan);
        if (lane == 0) {
            sums[item].gain = (uint64_t)best << 32 | (uint32_t)id;
            sums[item].rest = nan ? SPECV_I_NAN_IN_TILE : 0;
        }
    }
    const int arrival = specv_i_block_arrives(&m->tickets[2 * b], block, num_blocks);
    if (arrival == SPECV_I_NOT_LAST) return;
    if (arrival == SPECV_I_BAD_TICKET) specv_i_close_request(r);
    for (int j = warp; j < r->target_rows; j += num_warps) {
        specv_distribution row = specv_i_plain_distribution();
        int64_t best = 0;
        int32_t id = 0x7fffffff;
        int nan = 0;
        for (int t = j * m->num_tiles + lane; t < (j + 1) * m->num_tiles; t += 32) {
            const int64_t of_tile = (int64_t)(sums[t].gain >> 32);
            if (of_tile > best) best = of_tile, id = (int32_t)sums[t].gain;
            nan |= sums[t].rest != 0;
        }
        specv_i_warp_best(&best, &id);
        if (__any_sync(SPECV_FULL_WARP, nan)) row.status |= SPECV_ROW_NAN;
        row.kind = best ? SPECV_ONE_HOT : SPECV_NO_TOKEN;
        if (best)
            row.id = id;
        else
            row.status |= SPECV_ROW_EMPTY;
        if (lane == 0) rows[j] = row;
    }
    __syncthreads();
    if (warp == 0) {
        specv_i_outcome o = {0, 0, 0, SPECV_I_NOTHING, 1, r->status};
        if (r->row.readable) {
            specv_i_warp_find_usable(d, r, &o);
            const specv_i_claim claim = specv_i_load_claim(d, r, b, lane, o.usable, 0);
            if (r->rule == SPECV_RULE_SCORE)
                specv_i_warp_score_drafts(d, r, b, rows, &claim, 0, 1, &o);
            else
                specv_i_warp_judge_equal(d, r, b, rows, &claim, 0, &o);
        }
        if (lane == 0) judged = o;
    }
    __syncthreads();
    e->o = judged, e->emits = 1, e->largest = 1;
    if (e->o.next <= SPECV_I_BONUS) return;
    const specv_distribution *row = &rows[e->o.accepted];
    e->o.status |= row->status;
    e->has_token = row->id >= 0;
    if (specv_i_thread() == 0) e->id = row->id;
}

/* block_rule: a constant, of the kernel. Call: block. */
SPECV_DEVFN void specv_i_block_probs(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                     int block_rule, int b, int block, int num_blocks) {
    __shared__ specv_i_outcome judged;
    __shared__ specv_i_draws draws;
    __shared__ float first_prefixes[32];
    __shared__ specv_i_request opened;
    const int warp = specv_i_thread() / 32;
    /* One warp opens the request and judges for all, one draws the numbers, the others come when
       there is something to add up. */
    if (warp == 0) {
        const specv_row row = specv_i_open_row(d, b);
        specv_i_request r = specv_i_open_rows(d, b, &row, d->rule);
        r.target.dtype = r.draft.dtype = SPECV_PROBS_F32; /* constants from here on */
        specv_i_open_temperatures(d, b, &r);
        specv_i_outcome o = {0, 0, 0, SPECV_I_NOTHING, 1, r.status};
        if (specv_i_lane() == 0) opened = r;
        if (r.row.readable && r.sampled) {
            float *prefixes = r.row.n_draft <= 32 ? first_prefixes : m->prefixes + r.first_row;
            const int32_t slot = specv_i_slot_of(d, b);
            uint64_t seed = 0;
            uint32_t position = 0;
            if (d->seed) seed = d->seed[slot], position = (uint32_t)d->position[slot];
            if (block_rule)
                specv_i_warp_judge_block_probs(d, &r, seed, position, prefixes, &o);
            else
                specv_i_warp_judge_probs(d, &r, b, seed, position, block == 0 && d->target_logprob,
                                         &o);
        }
        if (specv_i_lane() == 0) judged = o;
    } else if (warp == 1 && specv_i_open_row(d, b).readable) {
        specv_i_warp_make_draws(d, b, 1, &draws);
    }
    __syncthreads();
    specv_i_request r = opened;
    specv_i_without_filters(&r);
    r.target.dtype = r.draft.dtype = SPECV_PROBS_F32;
    specv_i_weights w;
    w.p = w.q = specv_i_plain_distribution();
    w.p_scores = w.q_scores = 0, w.prefix = 1, w.without = -1;
    specv_i_end e = specv_i_end_of(judged);
    if (r.row.readable && !r.sampled) {
        w.p.kind = SPECV_ONE_HOT; /* no logprob */
        specv_i_block_most_probable(d, &r, m, b, block, num_blocks, &e);
    } else {
        const float *prefixes = r.row.n_draft <= 32 ? first_prefixes : m->prefixes + r.first_row;
        e.emits = block == 0 && e.o.next <= SPECV_I_BONUS;
        if (e.o.next > SPECV_I_BONUS)
            specv_i_block_finish(d, block_rule ? SPECV_RULE_BLOCK : SPECV_RULE_TOKEN, &r, m, b,
                                 prefixes, &draws, &m->tickets[2 * b], block, num_blocks, &w, &e);
    }
    if (!e.emits) return;
    if (e.o.next == SPECV_I_BONUS) {
        const int32_t bonus = specv_i_bonus(d, b, &e.o.status);
        e.has_token = bonus >= 0;
        if (specv_i_thread() == 0) e.id = bonus;
    }
    specv_i_block_store(d, &r, m, &w.p, b, &e);
}

/* ---- lossy rules

   The first pass leaves rows; then a block for each position says what it would emit and whether
   its draft may stand in its place, or, where two numbers a draft decide, one block judges. */

/* The parameter of their kernel. In `of` the rule is the one that the rows are opened for: COUPLED
   where drafts are compared with a token, else TOKEN. */
typedef struct specv_lossy_task {
    specv_sample_task of;
    int32_t rule, reserved;
} specv_lossy_task;

/* Rows from tiles, into scratch memory. Call: the last block of a request. */
SPECV_DEVFN void specv_i_block_keep_rows(const specv_i_request *r, const specv_i_memory *m) {
    const int lane = specv_i_lane();
#pragma unroll 1
    for (int i = specv_i_thread() / 32; i < r->target_rows + r->draft_rows;
         i += SPECV_SAMPLE_THREADS / 32) {
        const int of_draft = i >= r->target_rows;
        const int64_t row = specv_i_row_of(r, m, i);
        const specv_i_side side = of_draft ? r->draft : r->target;
        uint64_t through;
        specv_distribution merged =
            specv_i_warp_merge(m->tiles + row * m->num_tiles, m->num_tiles, SPECV_TILE_SUM,
                               side.zero ? 0 : SPECV_TILE_SUM, side.zero, &side.scale, &through);
        if (merged.sum) specv_i_set_inverse(&merged);
        if (!of_draft) {
            uint64_t *at = specv_i_through_at(m, row);
            if (at) *at = through;
        }
        if (lane == 0) m->rows[row] = merged;
    }
}

/* Statistics of a request's rows, as they are without a rule; where limits cut, of tiles alone.
   Otherwise its plan says whether the ticket was good. Call: block. */
SPECV_DEVFN void specv_i_block_rows(const specv_sample_task *task) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_cuts_asked asked;
    const specv_scores *of = task->sides & SPECV_I_OF_TARGET ? &task->d.target : &task->d.draft;
    specv_i_pass pass;
    pass.dtype = of->dtype, pass.what = SPECV_TILE_SUM, pass.rule = task->d.rule;
    pass.may = SPECV_TILE_SUM | SPECV_TILE_SCORE, pass.filters = 1, pass.emitted = 0;
    if (!specv_i_block_logits(task, &pass, 0, task->d.verify.vocab, &opened, &asked, 0)) return;
    const specv_i_request r =
        specv_i_reopen(&opened, &asked, pass.dtype, pass.what, pass.rule, pass.filters);
    specv_i_block_keep_rows(&r, &task->memory);
    if (specv_i_thread() == 0) task->memory.plans[blockIdx.x].status = r.status;
}

/* What a row says beside its sum. */
typedef struct specv_i_facts {
    uint64_t first;        /* rank key of the first id */
    uint64_t sum, weighed; /* as of specv_i_surprise_limit */
    uint32_t before;       /* ids before that of `key` */
    uint32_t reserved;
} specv_i_facts;

/* Sums over the threads of a block, in all of them; of `first` the largest. Call: block. Scratch:
   one for each warp, shared. Sync: two barriers. */
SPECV_DEVFN specv_i_facts specv_i_block_join_facts(specv_i_facts f, specv_i_facts *of_warp) {
    f.sum = specv_i_warp_add(f.sum), f.weighed = specv_i_warp_add(f.weighed);
    f.before = (uint32_t)specv_warp_reduce_add((int32_t)f.before);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const uint64_t other = __shfl_xor_sync(SPECV_FULL_WARP, f.first, distance);
        f.first = other > f.first ? other : f.first;
    }
    __syncthreads(); /* what was there has been read */
    if (specv_i_lane() == 0) of_warp[specv_i_thread() / 32] = f;
    __syncthreads();
    f = of_warp[0];
#pragma unroll 1
    for (int w = 1; w < SPECV_SAMPLE_THREADS / 32; ++w) {
        const specv_i_facts other = of_warp[w];
        f.sum += other.sum, f.weighed += other.weighed, f.before += other.before;
        f.first = other.first > f.first ? other.first : f.first;
    }
    return f;
}

/* Four ids of a position from `first` on, which mask and limits allow. */
SPECV_DEVFN void specv_i_load_allowed(float score[4], const specv_i_side *side,
                                      const specv_i_sieve *sieve, int j, int first, int vocab) {
    specv_i_load_four(score, specv_i_scores_of(side, j), side->dtype, first, vocab);
    specv_i_sift_some(sieve, score, 4, first, vocab);
}

/* One read of position j. key: that `before` is about. Call: block. */
SPECV_DEVFN specv_i_facts specv_i_block_facts(const specv_i_side *side, const specv_i_sieve *sieve,
                                              int j, int32_t n, int vocab, uint64_t key,
                                              specv_i_facts *of_warp) {
    specv_i_facts f = {0, 0, 0, 0, 0};
#pragma unroll 1
    for (int first = 4 * specv_i_thread(); first < vocab; first += SPECV_TILE_IDS) {
        float score[4];
        specv_i_load_allowed(score, side, sieve, j, first, vocab);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (!specv_i_less(side->scale.floor, score[i])) continue; /* NaN, too */
            const specv_weight w = specv_softmax_weight(score[i], &side->scale);
            const uint64_t units = specv_weight_units(&w, n);
            const uint64_t its = specv_rank_key(score[i], first + i);
            f.sum += units;
            f.weighed += specv_i_weighed_surprise(units, specv_i_surprise(&w, n));
            f.first = its > f.first ? its : f.first;
            f.before += its > key;
        }
    }
    return specv_i_block_join_facts(f, of_warp);
}

/* TYPICAL_DRAW: the loudest id of those that are left. Call: block. Scratch: for each warp, shared.
   Sync: two barriers. */
SPECV_DEVFN int32_t specv_i_block_loudest(const specv_verify_sample_desc *d,
                                          const specv_i_side *side, const specv_i_sieve *sieve,
                                          const specv_distribution *p, int b, int j, int32_t kept,
                                          float epsilon, double limit, specv_i_facts *of_warp) {
    const int vocab = (int)d->verify.vocab;
    const specv_noise noise = specv_i_noise(d, b, j);
    int64_t best = SPECV_I_NO_SCORE;
    int32_t id = SPECV_I_INT_MAX;
#pragma unroll 1
    for (int first = 4 * specv_i_thread(); first < vocab; first += SPECV_TILE_IDS) {
        float score[4];
        specv_random words = {{0, 0, 0, 0}};
        int is_noisy = 0;
        specv_i_load_allowed(score, side, sieve, j, first, vocab);
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            float its = 0;
            uint32_t x = 0, finer = 0;
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (k == i) its = score[k];
            if (!specv_i_less(side->scale.floor, its)) continue;
            const specv_weight w = specv_softmax_weight(its, &side->scale);
            if (first + i != kept && (double)specv_i_surprise(&w, p->n) > limit &&
                specv_i_less(specv_i_softmax_p(p, &side->scale, its), epsilon))
                continue;
            if (!is_noisy) words = specv_noise_words(&noise, (uint32_t)first), is_noisy = 1;
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (k == i) x = words.x[k];
            if (best > SPECV_I_NO_SCORE && specv_i_score_bound(w.n, w.f, x) < (int32_t)(best >> 14))
                continue;
            if (x < 256) { /* once in 2^24 times */
                const specv_random further = specv_noise_finer_words(&noise, (uint32_t)first);
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (k == i) finer = further.x[k];
            }
            const int64_t value = specv_i_score(w.n, w.f, specv_gumbel24(x, finer));
            if (value > best) best = value, id = first + i;
        }
    }
    specv_i_warp_best(&best, &id);
    __syncthreads();
    if (specv_i_lane() == 0) {
        of_warp[specv_i_thread() / 32].weighed = (uint64_t)best;
        of_warp[specv_i_thread() / 32].before = (uint32_t)id;
    }
    __syncthreads();
#pragma unroll 1
    for (int w = 0; w < SPECV_SAMPLE_THREADS / 32; ++w) {
        const int64_t value = (int64_t)of_warp[w].weighed;
        const int32_t its = (int32_t)of_warp[w].before;
        if (value > best || (value == best && its < id)) best = value, id = its;
    }
    return best > SPECV_I_NO_SCORE ? id : -1;
}

/* How a position is put down: the token that it would emit, plus 1, and whether its draft may stand
   in its place. */
#define SPECV_I_MAY 0x80000000u

/* Call: block. Sync: barriers. Trips: the row's distribution, the draft and its score, the row;
   TYPICAL_DRAW reads that once more. */
SPECV_DEVFN uint32_t specv_i_block_stand_in(const specv_verify_sample_desc *d, int rule,
                                            const specv_i_request *r, const specv_i_memory *m,
                                            const specv_i_told *told, int b, int j, int is_judged,
                                            specv_i_facts *of_warp) {
    const specv_i_side side = r->target;
    const specv_i_sieve sieve = specv_i_sieve_of(&side, j);
    specv_distribution p = m->rows[r->first_row + j];
    const int vocab = (int)d->verify.vocab;
    int32_t draft = -1, choice = p.id;
    uint64_t key = ~(uint64_t)0;
    float its = specv_bits_float(0xff800000u);
    int may = 0;
    if (is_judged) draft = (int32_t)specv_i_draft_token(d, r, j);
    if (p.kind == SPECV_SOFTMAX) {
        if (p.sum) specv_i_set_inverse(&p);
        if (draft >= 0)
            its = specv_i_sift(
                &sieve, specv_i_load_score(specv_i_scores_of(&side, j), side.dtype, draft), draft);
        const int has_weight = specv_i_less(side.scale.floor, its);
        if (has_weight) key = specv_rank_key(its, draft);
        const specv_i_facts f = specv_i_block_facts(&side, &sieve, j, p.n, vocab, key, of_warp);
        choice = specv_i_id_of_rank_key(f.first);
        const double limit = specv_i_surprise_limit(f.sum, f.weighed, told->alpha);
        if (rule == SPECV_RULE_TYPICAL_DRAW) {
            choice = specv_i_block_loudest(d, &side, &sieve, &p, b, j, choice, told->epsilon, limit,
                                           of_warp);
        } else if (has_weight) {
            const float of_draft = specv_i_softmax_p(&p, &side.scale, its);
            if (rule == SPECV_RULE_TYPICAL) {
                const specv_weight w = specv_softmax_weight(its, &side.scale);
                may = specv_i_less(told->epsilon, of_draft) ||
                      (double)specv_i_surprise(&w, p.n) < limit;
            } else {
                const float least = specv_i_add(specv_i_largest_p(&p, &side.scale, 0, p.max),
                                                specv_i_negate(told->epsilon));
                may = (int64_t)f.before < told->top_n && !specv_i_less(of_draft, least);
            }
            may &= specv_i_less(0.f, of_draft);
        }
    }
    may |= draft >= 0 && draft == choice;
    return ((uint32_t)choice + 1) | (may ? SPECV_I_MAY : 0);
}

/* THRESHOLD and BOUNDED, as A3. Call: warp. */
SPECV_DEVFN void specv_i_warp_judge_lossy(const specv_verify_sample_desc *d, int rule,
                                          const specv_i_request *r, const specv_i_memory *m,
                                          const specv_i_told *told, int b, specv_i_outcome *o) {
    const specv_distribution *rows = m->rows + r->first_row, *draft_rows = rows + m->target_rows;
    const int lane = specv_i_lane();
    o->prefix = 1;
#pragma unroll 1
    for (int base = 0; base < o->usable; base += 32) {
        const int j = base + lane;
        uint32_t status = 0;
        int rejected = 0, at;
        if (j < o->usable) {
            const specv_i_claim c = specv_i_load_claim(d, r, b, j, o->usable, 0);
            float p, q;
            specv_i_pair(d, r, rows, draft_rows, j, &c, &p, &q, &status);
            if (rule == SPECV_RULE_BOUNDED)
                rejected = !specv_accept(c.u, q, specv_i_mul(told->alpha, p));
            else
                rejected = !specv_accept(c.u, told->alpha, p) &&
                           (!specv_i_less(0.f, p) || specv_i_less(p, told->epsilon));
        }
        at = specv_warp_first_reject(rejected);
        o->status |= specv_i_warp_or(lane <= at ? status : 0);
        if (at == 32) continue;
        o->accepted = base + at;
        specv_i_reject(d, r, rows, o);
        return;
    }
    specv_i_accept_all(d, r, o);
}

/* BOUNDED: c of the residual at the position that o says. Reads both rows once a step, of which
   there are few: a block alone. Call: block. Sync: barriers. */
SPECV_DEVFN float specv_i_block_find_ratio(const specv_verify_sample_desc *d,
                                           const specv_i_request *r, const specv_i_memory *m,
                                           const specv_i_outcome *o, float ratio,
                                           specv_i_facts *of_warp) {
    const int vocab = (int)d->verify.vocab;
    specv_i_weights w;
    uint64_t rejected = 0;
    float c = 1;
    specv_i_open_weights(&w, r, m, o, o->accepted);
    if (w.p.kind != SPECV_SOFTMAX) return c;
#pragma unroll 1
    for (int step = 0; step < SPECV_I_RATIO_STEPS; ++step) {
        specv_i_facts f = {0, 0, 0, 0, 0};
        uint64_t above = 0;
#pragma unroll 1
        for (int first = 4 * specv_i_thread(); first < vocab; first += SPECV_TILE_IDS) {
            specv_i_quads v;
            float p[4], q[4];
            int unused = 0;
            specv_i_load_quads(&v, r, &w, first, vocab);
            specv_i_quad_p(p, &r->target, &w.p, &w.p_sieve, v.p, first, vocab, &unused);
            specv_i_quad_p(q, &r->draft, &w.q, &w.q_sieve, v.q, first, vocab, &unused);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float less = specv_i_negate(q[i]), excess = specv_fma(ratio, p[i], less);
                if (first + i >= vocab) continue;
                if (step == 0 && specv_i_less(excess, 0.f))
                    above += specv_fixed50(specv_i_negate(excess));
                if (!specv_i_less(0.f, specv_fma(c, p[i], less))) continue;
                f.sum += specv_fixed50(p[i]), f.weighed += specv_fixed50(q[i]);
            }
        }
        f = specv_i_block_join_facts(f, of_warp);
        if (step == 0) {
            specv_i_facts of_rejected = {0, above, 0, 0, 0};
            rejected = specv_i_block_join_facts(of_rejected, of_warp).sum;
        }
        const float next = specv_i_next_ratio(c, rejected, f.sum, f.weighed);
        if (!specv_i_less(next, c)) break;
        c = next;
    }
    return c;
}

/* Where the words of positions stop: the first whose draft may not stand there. Call: warp. */
SPECV_DEVFN void specv_i_warp_judge_words(const specv_verify_sample_desc *d,
                                          const specv_i_request *r, const specv_i_memory *m,
                                          int positions, specv_i_outcome *o, int32_t *choice) {
    const volatile uint32_t *words = (const volatile uint32_t *)(m->prefixes + r->first_row);
    const specv_distribution *rows = m->rows + r->first_row;
    const int lane = specv_i_lane();
    *choice = -1;
#pragma unroll 1
    for (int base = 0;; base += 32) {
        const int j = base + lane, is_there = j < positions;
        const uint32_t word = is_there ? words[j] : 0;
        uint32_t status = is_there ? rows[j].status : 0;
        const int at = specv_warp_first_reject(!(word & SPECV_I_MAY));
        if (is_there && (word & ~SPECV_I_MAY) == 0) status |= SPECV_ROW_EMPTY;
        o->status |= specv_i_warp_or(lane <= at ? status : 0);
        if (at == 32) continue;
        o->accepted = base + at;
        *choice = __shfl_sync(SPECV_FULL_WARP, (int32_t)(word & ~SPECV_I_MAY), at) - 1;
        o->next = o->accepted == o->usable && o->ends_with_eos
                      ? SPECV_I_NO_TOKEN
                      : specv_i_next_of_all(d, r, o->accepted, SPECV_I_TOKEN);
        return;
    }
}

/* Behind the rows: judges request b, and emits it but for a residual. Call: block. */
SPECV_DEVFN void specv_i_block_lossy(const specv_lossy_task *task, int b, int block,
                                     int num_blocks) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_outcome judged;
    __shared__ specv_i_told told;
    __shared__ specv_i_facts of_warp[SPECV_SAMPLE_THREADS / 32];
    __shared__ int32_t chosen;
    const specv_verify_sample_desc *d = &task->of.d;
    const specv_i_memory *m = &task->of.memory;
    const int warp = specv_i_thread() / 32, lane = specv_i_lane(), rule = task->rule;
    if (warp == 0) {
        specv_i_request r = specv_i_open_filtered_request(d, m, b);
        if (r.row.readable && !r.cut && m->plans[b].status & SPECV_ROW_BAD_TICKET)
            specv_i_close_request(&r);
        specv_i_outcome o = {0, 0, 0, SPECV_I_NOTHING, 1, r.status};
        specv_i_told its = {1, 1, 1, 0};
        if (r.row.readable) {
            if (r.row.n_draft > 0) specv_i_warp_find_usable(d, &r, &o);
            its = specv_i_told_of(&d->lossy, rule, specv_i_slot_of(d, b));
        }
        o.status |= its.status;
        if (lane == 0) opened = r, judged = o, told = its, chosen = -1;
    }
    __syncthreads();
    specv_i_request r = opened;
    if (specv_i_compares(rule)) {
        int positions = judged.usable + !judged.ends_with_eos;
        if (d->bonus_token && judged.usable == r.row.n_draft) positions = judged.usable;
        if (!r.row.readable) positions = 0;
        num_blocks = num_blocks < positions ? num_blocks : positions ? positions : 1;
        if (block >= num_blocks) return;
#pragma unroll 1
        for (int j = block; j < positions; j += num_blocks) {
            const uint32_t word =
                specv_i_block_stand_in(d, rule, &r, m, &told, b, j, j < judged.usable, of_warp);
            if (specv_i_thread() == 0) ((uint32_t *)m->prefixes)[r.first_row + j] = word;
        }
        const int arrival = specv_i_block_arrives(&m->tickets[2 * b], block, num_blocks);
        if (arrival == SPECV_I_NOT_LAST) return;
        if (arrival == SPECV_I_BAD_TICKET) specv_i_close_request(&r);
        __syncthreads();
        if (warp == 0) {
            specv_i_outcome o = judged;
            int32_t choice = -1;
            if (arrival == SPECV_I_BAD_TICKET)
                o.usable = o.ends_with_eos = 0, o.status = r.status;
            else if (r.row.readable)
                specv_i_warp_judge_words(d, &r, m, positions, &o, &choice);
            __syncwarp();
            if (lane == 0) judged = o, chosen = choice;
        }
    } else {
        if (block > 0) return;
        if (warp == 0 && r.row.readable) {
            specv_i_outcome o = judged;
            if (r.sampled) {
                specv_i_warp_judge_lossy(d, rule, &r, m, &told, b, &o);
            } else {
                const specv_i_claim first = specv_i_load_claim(d, &r, b, lane, o.usable, 0);
                specv_i_warp_judge_equal(d, &r, b, m->rows + r.first_row, &first, 0, &o);
            }
            __syncwarp();
            if (lane == 0) judged = o;
        }
    }
    __syncthreads();
    specv_i_outcome o = judged;
    if (o.next == SPECV_I_RESIDUAL) {
        if (!(specv_float_bits(told.alpha) == 0x3f800000u))
            o.prefix = specv_i_block_find_ratio(d, &r, m, &o, told.alpha, of_warp);
        if (specv_i_thread() == 0) m->plans[b] = o;
        return;
    }
    if (specv_i_compares(rule)) {
        specv_distribution p = specv_i_plain_distribution();
        if (o.next > SPECV_I_BONUS) p = m->rows[r.first_row + o.accepted];
        p.id = chosen;
        specv_i_block_emit_from(d, &r, m, b, o, &p, r.cut != 0, 0, 0, 0);
    } else {
        specv_i_block_emit(d, &r, m, b, o);
    }
    o.next = SPECV_I_NOTHING;
    if (specv_i_thread() == 0 && d->draft.data) m->plans[b] = o;
}

#endif /* __CUDACC__ */

/* ================================================================================== >>shards

   Verification where ranks hold parts of the vocabulary (tensor parallelism), without gathering
   scores: what A2 to A5 say of all columns, bit for bit, on every rank.
     A9  specv_verify_shard   a step of it; between two steps ranks exchange records
   A rank reads its own columns once. What a row is made of are integers, so they can be put
   together from any parts: the largest score and id of each part, and with the row's exponent known
   the part's sum. A part of the vocabulary then is what a tile is in >>sample, and the same
   functions merge, judge and emit. The kit moves nothing between ranks: the caller's NCCL or MPI
   gathers records (all-gather, in rank order).
     d.step = 0;
     for (;;) {
         specv_verify_shard(&d, stream);
         bytes = specv_shard_record_bytes(&d);      // > 0: to be gathered; 0: done, outputs stand
         if (bytes == 0) break;
         ncclAllGather(record, gathered, bytes, ncclChar, comm, stream);
         d.step += 1;
     }
   Needs: >>greedy, >>sample. */

/* A9. One step of a verification by several ranks. `sample` is the descriptor of A2 to A5 and the
   same on all ranks (vocab that of all of them), but for what is the rank's own: addresses, and
   target and draft, which have the columns of its ids alone (their strides 0: num_ids). What of a
   request is in device memory (lengths, drafts, seeds, positions, temperatures, ...) has to be the
   same on all ranks, too: they judge for themselves. Records say so with a digest: of rows where
   ranks differ in one of these, all ranks emit nothing and say BAD_RECORD; if they differ in the
   descriptor or in the step, or if their ids are not those of the vocabulary, it is so of all rows.
   Nothing else of such a row is used.
   Exchanges: rules GREEDY and COUPLED 1, COUPLED with outputs that need sums (logprob, lse,
   max_prob, emitted.logprob) 2; TOKEN and BLOCK without draft scores and SCORE 3; with draft scores
   4. They are of the largest scores; of sums, with the drafts' scores; of what p has more of than
   q; of the token.
   With top_k, top_p or min_p the first exchange has each rank's best ids, as many as the row's
   top_k, and room for max_top_k of each position: what is kept is among them, and every rank has
   it. A row whose top_k is in 1..max_top_k may have top_p and min_p, too; one without any limit is
   as before; any other emits nothing and says BAD_FILTER (what it keeps may be anything, and no
   rank knows it). With all_top_k no row but those at temperature 0 is without one, of the draft
   neither where its scores matter: every rank then has all that target and draft keep, and judges
   and draws from (P p - q)+ by itself, so that no rule needs another exchange. TOP_P_OF_ALL is a
   part of all weights: with top_p it needs the exchange of sums.
   All that for a draft with limits of its own: of one without any, one exchange can not be enough,
   and all_top_k is an error. What q says of an id is a part of its row's sum, in units that come
   from the largest score of all ranks; and the sum of (q - P p)+ over all ids, which rule BLOCK
   compares and of which BAD_SUM tells, is one of roundings of that q, id by id, so it can only
   follow the exchange of sums. Such a draft has the 4 exchanges of rows without limits, whatever
   the target keeps. If the draft model samples with a top_k, that is its law: say so.
   Masks are those of all ids, on every rank; but of a mask a rank reads only what is of its own
   ids. Ranks with different masks are not seen, and need not be: what an id's own rank says of it
   is what all ranks judge by, and all say the same.
   So far there are no scores here that are probabilities, and of `emitted` only logprob of the law
   that is drawn from. */
typedef struct specv_verify_shard_desc {
    uint32_t canary0;
    int32_t step; /* 0, and 1 more for each launch: the first one reads scores, the last one stores
                     the outputs. The same scratch memory in all of them */
    specv_verify_sample_desc sample; /* scratch_bytes: specv_shard_scratch_bytes */
    void *record; /* out [specv_shard_record_bytes], 16-byte aligned; null in the last step */
    const void *gathered; /* the records of the step before of all ranks, in rank order; null in
                             step 0. It may not be where `record` is */
    int64_t record_stride_bytes; /* between the records in `gathered`; 0: as large as they are */
    const int64_t *epoch; /* device scalar, or null: the same on all ranks, another one in each
                             verification. A record of another one, with the same lengths, drafts
                             and positions, is known as such by this alone */
    int32_t first_id;   /* of the rank's ids: a multiple of SPECV_TILE_IDS; without ids anything */
    int32_t num_ids;    /* a multiple, too, unless it ends with the vocabulary; 0: none */
    int32_t num_shards; /* ranks, 1..SPECV_MAX_SHARDS */
    int32_t max_top_k;  /* where there are limits: ids of a position that a rank names at most,
                           1..SPECV_SHARD_TOP_K */
    int32_t all_top_k;  /* 1: all rows are cut by a top_k of at most that */
    uint32_t canary1;
} specv_verify_shard_desc;

#define SPECV_MAX_SHARDS  256
#define SPECV_SHARD_TOP_K 256

/* What a step leaves to the others: largest scores; sums in the row's units and scores of drafts;
   sums of (P p - q)+ and (q - P p)+; the token. */
enum {
    SPECV_I_RECORD_STATS,
    SPECV_I_RECORD_SUMS,
    SPECV_I_RECORD_GAINS,
    SPECV_I_RECORD_TOKENS,
    SPECV_I_NO_RECORD
};

/* A position's sums of one rank, in units of 2^-50; weight: what tokens are drawn from, of each
   tile in units of 2^-40. */
typedef struct specv_i_gains {
    uint64_t weight, gain, rest;
} specv_i_gains;

/* The token that a rank has drawn, -1 if another one does, and what its scores say of it. */
typedef struct specv_i_drawn {
    int32_t token;
    float score;
} specv_i_drawn;

/* Where it is in a record, in bytes. Rows are the target's, numbered like its scores, then, where
   draft scores matter, the draft's. */
typedef struct specv_i_record {
    int64_t best;     /* STATS: uint2 [rows]: max and id of the tile that the rank's ids are */
    int64_t scores;   /* STATS, rule COUPLED: int64 [target rows]: its score */
    int64_t named[2]; /* STATS, where target or draft have limits: uint64 [their rows][num_named]:
                         rank keys of the rank's best ids, the best first, behind them 0 */
    int64_t sums;     /* SUMS: uint64 [rows] */
    int64_t lost;     /* SUMS, drafts without scores: uint64 [target rows]: of sums, by the draft */
    int64_t p, q;     /* SUMS: float [target rows]: of the draft, where it is the rank's */
    int64_t gains;    /* GAINS: specv_i_gains [rule BLOCK: target rows, else batch] */
    int64_t tokens;   /* TOKENS: specv_i_drawn [batch] */
    int64_t rows;     /* uint32 [batch]: digest of what is known of the request */
    int64_t bytes;
    int32_t kind, num_named;
} specv_i_record;

typedef struct specv_i_record_head {
    uint64_t digest; /* of descriptor and step */
    int32_t first_id, num_ids;
} specv_i_record_head;

/* A rank's place among the others. */
typedef struct specv_i_shard {
    specv_i_memory merged; /* rows as they are put together: tiles are shards. Those of the rank's
                              own memory are the same, with ids counted from its first one */
    specv_i_record to, from;
    char *record;
    const char *gathered;
    const int64_t *epoch;
    uint32_t *marks; /* [batch]: faults that were found in earlier steps */
    float *p, *q;    /* [target rows]: of specv_i_said */
    uint64_t *lost;  /* [target rows]: what the draft's rank has less without it */
    uint64_t *named; /* [rows][num_named]: of all ranks, as in a record */
    int64_t stride;
    uint64_t digest, digest_before;
    int64_t vocab; /* of all ranks */
    int32_t first_id, num_ids, num_shards;
    int32_t num_named, all_named; /* max_top_k, all_top_k */
    int32_t reserved;
} specv_i_shard;

typedef struct specv_shard_task {
    specv_sample_task sample; /* resolved; vocab: num_ids in the first step, then that of all */
    specv_i_shard shard;
} specv_shard_task;

/* Of thing i of a row or a descriptor: digests are sums of these. */
SPECV_NUMFN uint64_t specv_i_digest_of(uint32_t i, uint64_t value) {
    uint64_t x = value ^ ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Things of a row: these, then draft and uniform of each position. */
enum {
    SPECV_I_DIGEST_LENGTH,
    SPECV_I_DIGEST_EPOCH,
    SPECV_I_DIGEST_SEED,
    SPECV_I_DIGEST_POSITION,
    SPECV_I_DIGEST_TEMPERATURE,
    SPECV_I_DIGEST_DRAFT_TEMPERATURE,
    SPECV_I_DIGEST_BONUS,
    SPECV_I_DIGEST_UNIFORM,
    SPECV_I_DIGEST_MASK,
    SPECV_I_DIGEST_DRAFT_MASK,
    SPECV_I_DIGEST_TOP_K, /* then top_p and min_p, and the draft's three */
    SPECV_I_DIGEST_DRAFT_TOP_K = SPECV_I_DIGEST_TOP_K + 3,
    SPECV_I_DIGEST_DRAFTS = SPECV_I_DIGEST_DRAFT_TOP_K + 3
};

SPECV_NUMFN uint32_t specv_i_fold_digest(uint64_t sum, uint32_t mark) {
    const uint32_t folded = (uint32_t)(sum >> 32) ^ (uint32_t)sum;
    return mark ? ~folded : folded; /* the others shall see it */
}

#if !defined(__CUDACC_RTC__)

/* As a number: nobody has looked at the pointer yet. */
SPECV_HOSTFN void specv_i_skip_words(specv_filters *f, int64_t words) {
    if (f->mask) f->mask = (const uint32_t *)((uintptr_t)f->mask + 4 * (uintptr_t)words);
}

/* The descriptor as A2 to A5 would have it of the rank's columns alone. */
SPECV_HOSTFN specv_verify_sample_desc specv_i_shard_local(const specv_verify_shard_desc *d) {
    specv_verify_sample_desc v = d->sample;
    v.verify.vocab = d->num_ids;
    specv_i_filters_resolve(&v.filters, d->sample.verify.vocab);
    specv_i_filters_resolve(&v.draft_filters, d->sample.verify.vocab);
    if (d->num_ids) {
        specv_i_skip_words(&v.filters, d->first_id / 32);
        specv_i_skip_words(&v.draft_filters, d->first_id / 32);
    }
    return v;
}

/* Do draft scores matter? */
SPECV_HOSTFN int specv_i_shard_has_q(const specv_verify_sample_desc *s) {
    return s->draft.data && (s->rule == SPECV_RULE_TOKEN || s->rule == SPECV_RULE_BLOCK);
}

/* Are a side's best ids named? */
SPECV_HOSTFN int specv_i_shard_names(const specv_verify_sample_desc *s, int of_draft) {
    if (of_draft) return specv_i_shard_has_q(s) && specv_i_cuts(&s->draft_filters);
    return s->rule != SPECV_RULE_GREEDY && specv_i_cuts(&s->filters);
}

/* Do they suffice of all rows, so that a rank alone can judge and draw? */
SPECV_HOSTFN int specv_i_shard_names_all(const specv_verify_shard_desc *d) {
    return d->all_top_k && specv_i_shard_names(&d->sample, 0);
}

/* Is a part of all weights asked for? */
SPECV_HOSTFN int specv_i_shard_of_all(const specv_verify_sample_desc *s, int of_draft) {
    const specv_filters *f = of_draft ? &s->draft_filters : &s->filters;
    return specv_i_shard_names(s, of_draft) && f->top_p && f->order == SPECV_TOP_P_OF_ALL;
}

SPECV_HOSTFN int specv_i_shard_has_sums(const specv_verify_shard_desc *d) {
    const specv_verify_sample_desc *s = &d->sample;
    if (specv_i_shard_of_all(s, 0) || specv_i_shard_of_all(s, 1)) return 1;
    if (specv_i_shard_names_all(d)) return 0;
    if (s->rule == SPECV_RULE_COUPLED)
        return s->logprob || s->lse || s->max_prob || s->emitted.logprob;
    return s->rule != SPECV_RULE_GREEDY;
}

/* What the launch of this step leaves to the others. */
SPECV_HOSTFN int specv_i_record_kind(const specv_verify_shard_desc *d, int32_t step) {
    const specv_verify_sample_desc *s = &d->sample;
    const int names_all = specv_i_shard_names_all(d), has_q = specv_i_shard_has_q(s);
    const int draws = s->rule != SPECV_RULE_COUPLED && s->rule != SPECV_RULE_GREEDY && !names_all;
    int32_t at = 0;
    if (step == at++) return SPECV_I_RECORD_STATS;
    if (specv_i_shard_has_sums(d) && step == at++) return SPECV_I_RECORD_SUMS;
    if (has_q && !names_all && step == at++) return SPECV_I_RECORD_GAINS;
    if (draws && step == at) return SPECV_I_RECORD_TOKENS;
    return SPECV_I_NO_RECORD;
}

/* Room for so many bytes of a record that has `bytes` so far. */
SPECV_HOSTFN int64_t specv_i_room(int64_t *bytes, int64_t more) {
    const int64_t at = *bytes;
    *bytes += more;
    return at;
}

SPECV_HOSTFN specv_i_record specv_i_record_of(const specv_verify_shard_desc *d, int32_t step) {
    const specv_verify_sample_desc *s = &d->sample;
    const specv_rows *r = &s->verify.rows;
    const int64_t rows = specv_i_is_csr(r) ? r->num_draft_tokens + r->batch
                                           : (int64_t)r->batch * ((int64_t)r->max_draft + 1);
    const int has_q = specv_i_shard_has_q(s), block = s->rule == SPECV_RULE_BLOCK;
    const int64_t all = has_q ? 2 * rows : rows;
    int64_t end = (int64_t)sizeof(specv_i_record_head);
    specv_i_record at = SPECV_ZERO;
    at.kind = step < 0 ? SPECV_I_NO_RECORD : specv_i_record_kind(d, step);
    if (at.kind == SPECV_I_NO_RECORD) return at;
    if (at.kind == SPECV_I_RECORD_STATS) {
        at.best = specv_i_room(&end, 8 * all);
        if (s->rule == SPECV_RULE_COUPLED) at.scores = specv_i_room(&end, 8 * rows);
        for (int side = 0; side < 2; ++side)
            if (specv_i_shard_names(s, side))
                at.named[side] = specv_i_room(&end, 8 * rows * d->max_top_k);
        at.num_named = d->max_top_k;
    } else if (at.kind == SPECV_I_RECORD_SUMS) {
        at.sums = specv_i_room(&end, 8 * all);
        if (!has_q && (block || s->rule == SPECV_RULE_TOKEN))
            at.lost = specv_i_room(&end, 8 * rows);
        at.p = specv_i_room(&end, 4 * rows);
        if (has_q) at.q = specv_i_room(&end, 4 * rows);
    } else if (at.kind == SPECV_I_RECORD_GAINS) {
        at.gains = specv_i_room(&end, (int64_t)sizeof(specv_i_gains) * (block ? rows : r->batch));
    } else {
        at.tokens = specv_i_room(&end, (int64_t)sizeof(specv_i_drawn) * r->batch);
    }
    at.rows = specv_i_room(&end, 4 * (int64_t)r->batch);
    at.bytes = (end + 15) / 16 * 16;
    return at;
}

/* Of what has to be alike on all ranks. */
SPECV_HOSTFN uint64_t specv_i_shard_digest(const specv_verify_shard_desc *d, int32_t step) {
    const specv_verify_sample_desc *s = &d->sample;
    const specv_verify_greedy_desc *v = &s->verify;
    const uint64_t things[] = {
        SPECVERIFY_VERSION,
        (uint64_t)step,
        (uint64_t)d->num_shards,
        (uint64_t)v->vocab,
        (uint64_t)v->rows.batch,
        (uint64_t)v->rows.max_draft,
        (uint64_t)v->rows.num_draft_tokens,
        (uint64_t)(specv_i_is_csr(&v->rows) != 0),
        (uint64_t)s->rule,
        (uint64_t)s->stream,
        (uint64_t)s->step_row,
        (uint64_t)s->target.dtype,
        (uint64_t)(s->draft.data ? 1 + s->draft.dtype : 0),
        (uint64_t)((s->bonus_token != 0) + 2 * (s->temperature != 0) +
                   4 * (s->draft_temperature != 0) + 8 * (s->accept_uniform != 0) +
                   16 * (s->sample_uniform != 0) + 32 * (s->seed != 0) + 64 * (d->epoch != 0) +
                   128 * (s->filters.mask != 0) + 256 * (s->draft_filters.mask != 0) +
                   512 * (s->filters.mask_row != 0) + 1024 * (s->draft_filters.mask_row != 0) +
                   2048 * (s->filters.top_k != 0) + 4096 * (s->filters.top_p != 0) +
                   8192 * (s->filters.min_p != 0) + 16384 * (s->draft_filters.top_k != 0) +
                   32768 * (s->draft_filters.top_p != 0) + 65536 * (s->draft_filters.min_p != 0)),
        (uint64_t)s->filters.num_mask_rows,
        (uint64_t)s->draft_filters.num_mask_rows,
        (uint64_t)s->filters.order,
        (uint64_t)s->draft_filters.order,
        (uint64_t)d->max_top_k,
        (uint64_t)d->all_top_k,
        (uint64_t)specv_i_shard_has_sums(d),
        (uint64_t)v->num_eos};
    uint64_t digest = 0;
    uint32_t count = (uint32_t)(sizeof things / sizeof things[0]);
    for (uint32_t i = 0; i < count; ++i) digest += specv_i_digest_of(i, things[i]);
    for (int i = 0; i < v->num_eos && i < SPECV_MAX_EOS; ++i)
        digest += specv_i_digest_of(count++, (uint64_t)v->eos_token[i]);
    return digest;
}

/* Scratch memory of one rank. */
typedef struct specv_i_shard_scratch {
    specv_i_scratch local;
    int64_t rows, tiles, residuals, lost, named, p, q, marks, bytes;
} specv_i_shard_scratch;

SPECV_HOSTFN specv_i_shard_scratch specv_i_shard_scratch_for(specv_i_scratch local, int64_t batch,
                                                             int64_t num_shards,
                                                             int64_t num_named) {
    const int64_t rows = local.target_rows + local.draft_rows;
    int64_t end = (local.bytes + 15) / 16 * 16;
    specv_i_shard_scratch s;
    s.local = local;
    s.rows = specv_i_room(&end, rows * (int64_t)sizeof(specv_distribution));
    s.tiles = specv_i_room(&end, rows * num_shards * (int64_t)sizeof(specv_tile));
    s.residuals =
        specv_i_room(&end, local.target_rows * num_shards * (int64_t)sizeof(specv_i_residual));
    s.lost = specv_i_room(&end, 8 * local.target_rows);
    s.named = specv_i_room(&end, 8 * rows * num_named);
    s.p = specv_i_room(&end, 4 * local.target_rows);
    s.q = specv_i_room(&end, 4 * local.target_rows);
    s.marks = specv_i_room(&end, 4 * batch);
    s.bytes = end;
    return s;
}

/* Bytes of scratch memory that suffice for every step of at most batch rows, max_draft drafts,
   num_ids ids of the rank and num_shards ranks; or SPECV_ERR_*. */
SPECV_HOSTAPI int64_t specv_shard_scratch_bytes(int64_t batch, int64_t max_draft, int64_t num_ids,
                                                int64_t num_shards) {
    const int64_t ids = num_ids ? num_ids : 1;
    const int64_t local = specv_verify_sample_scratch_bytes(batch, max_draft, ids);
    SPECV_CHECK(num_shards >= 1 && num_shards <= SPECV_MAX_SHARDS, SHARD);
    if (local < 0) return local;
    const int64_t rows = batch * (max_draft + 1); /* both are in range */
    return specv_i_shard_scratch_for(specv_i_scratch_for(batch, rows, rows, rows, ids, 1), batch,
                                     num_shards, SPECV_SHARD_TOP_K)
        .bytes;
}

SPECV_HOSTFN int specv_i_shard_validate(const specv_verify_shard_desc *d) {
    const specv_verify_sample_desc *s = &d->sample;
    const int64_t end = (int64_t)d->first_id + d->num_ids;
    specv_verify_sample_desc v;
    uint32_t any = 0;
    int status;
    SPECV_CHECK(d->canary0 == 0 && d->canary1 == 0, CANARY);
    SPECV_CHECK(s->verify.vocab >= 1 && s->verify.vocab <= 1 << 22, VOCAB);
    SPECV_CHECK(d->num_shards >= 1 && d->num_shards <= SPECV_MAX_SHARDS, SHARD);
    SPECV_CHECK(d->num_ids >= 0 && (d->num_ids == 0 || d->first_id % SPECV_TILE_IDS == 0), SHARD);
    SPECV_CHECK(d->first_id >= 0 && (d->num_ids == 0 || end <= s->verify.vocab), SHARD);
    SPECV_CHECK(d->num_ids % SPECV_TILE_IDS == 0 || end == s->verify.vocab, SHARD);
    if ((status = specv_i_verify_validate(&s->verify)) != SPECV_OK) return status;
    v = specv_i_shard_local(d), v.verify.num_eos = 0;
    if (d->num_ids == 0) { /* no columns to point to */
        v.verify.vocab = 1;
        if (!v.target.data) v.target.data = &any;
    }
    if ((status = specv_verify_sample_validate(&v)) != SPECV_OK) return status;
    SPECV_CHECK(s->target.dtype != SPECV_PROBS_F32, SCORE_DTYPE);
    SPECV_CHECK(!specv_i_shard_has_q(s) || s->draft.dtype != SPECV_PROBS_F32, SCORE_DTYPE);
    SPECV_CHECK(d->max_top_k >= 0 && d->max_top_k <= SPECV_SHARD_TOP_K, FILTERS);
    SPECV_CHECK(d->all_top_k == 0 || d->all_top_k == 1, FILTERS);
    SPECV_CHECK(!specv_i_shard_names(s, 0) || (d->max_top_k && s->filters.top_k), FILTERS);
    SPECV_CHECK(!specv_i_shard_names(s, 1) || (d->max_top_k && s->draft_filters.top_k), FILTERS);
    SPECV_CHECK(!d->all_top_k || s->filters.top_k, FILTERS);
    SPECV_CHECK(!d->all_top_k || !specv_i_shard_has_q(s) || s->draft_filters.top_k, FILTERS);
    SPECV_CHECK(!s->filters.mask || !s->filters.mask_stride_words ||
                    s->filters.mask_stride_words >= specv_i_row_words(s->verify.vocab),
                MASK);
    SPECV_CHECK(!s->draft_filters.mask || !s->draft_filters.mask_stride_words ||
                    s->draft_filters.mask_stride_words >= specv_i_row_words(s->verify.vocab),
                MASK);
    SPECV_CHECK(!specv_i_tells(&s->emitted), LOGPROB);
    return SPECV_OK;
}

SPECV_HOSTFN specv_i_shard_scratch specv_i_shard_layout(const specv_verify_shard_desc *d) {
    const specv_verify_sample_desc v = specv_i_shard_local(d);
    const int named = specv_i_shard_names(&d->sample, 0) || specv_i_shard_names(&d->sample, 1);
    return specv_i_shard_scratch_for(specv_i_scratch_layout(&v), v.verify.rows.batch, d->num_shards,
                                     named ? d->max_top_k : 0);
}

SPECV_HOSTFN int specv_verify_shard_validate(const specv_verify_shard_desc *d) {
    int status;
    int64_t before, bytes;
    SPECV_CHECK(d, NULL_DESC);
    if ((status = specv_i_shard_validate(d)) != SPECV_OK) return status;
    SPECV_CHECK(d->sample.rule <= SPECV_RULE_SCORE, RULE);
    SPECV_CHECK(d->step >= 0, STEP);
    SPECV_CHECK(d->step == 0 || specv_i_record_kind(d, d->step - 1) != SPECV_I_NO_RECORD, STEP);
    SPECV_CHECK(specv_i_aligned(d->epoch, 8), STEP);
    if (d->sample.verify.rows.batch == 0) return SPECV_OK;
    SPECV_CHECK(d->sample.scratch_bytes >= specv_i_shard_layout(d).bytes, SCRATCH);
    before = specv_i_record_of(d, d->step - 1).bytes, bytes = specv_i_record_of(d, d->step).bytes;
    SPECV_CHECK(specv_i_aligned(d->record, 16) && !d->record == !bytes, RECORD);
    SPECV_CHECK(specv_i_aligned(d->gathered, 16) && !d->gathered == !before, RECORD);
    SPECV_CHECK(d->record_stride_bytes == 0 ||
                    (d->record_stride_bytes >= before && d->record_stride_bytes % 16 == 0),
                RECORD);
    SPECV_CHECK(specv_i_fits(d->num_shards, d->record_stride_bytes, 0), SIZE);
    return SPECV_OK;
}

/* Bytes of what the launch of d->step leaves to the other ranks, on every rank alike; 0: it is the
   last one, and leaves nothing; or SPECV_ERR_*. A multiple of 16. Of the descriptor only rows,
   rule, step, the order of filters, max_top_k, all_top_k and what is null matter: buffers need not
   be of any size yet. */
SPECV_HOSTAPI int64_t specv_shard_record_bytes(const specv_verify_shard_desc *d) {
    int status;
    SPECV_CHECK(d, NULL_DESC);
    if ((status = specv_i_rows_validate(&d->sample.verify.rows)) != SPECV_OK) return status;
    SPECV_CHECK(d->sample.rule >= SPECV_RULE_TOKEN && d->sample.rule <= SPECV_RULE_SCORE, RULE);
    SPECV_CHECK(d->max_top_k >= 0 && d->max_top_k <= SPECV_SHARD_TOP_K, FILTERS);
    SPECV_CHECK(d->step >= 0, STEP);
    return d->sample.verify.rows.batch ? specv_i_record_of(d, d->step).bytes : 0;
}

#if SPECV_I_LAUNCHERS
/* A9. One launch a step; two in the step that makes sums of what p has more of than q, and in step
   0 if draft scores are of another type. Step 0 is the first pass of A2 to A5 over the rank's
   columns, and costs what that does; with draft scores the rejected request's p row and q row
   (BLOCK: all of them) are read once more. Bytes of a rank's record: 16, and of each row of n
   drafts and m = n + 1 positions
     1st  8 m + 4; COUPLED 16 m + 4; with draft scores 16 m + 4
          and 8 m max_top_k for each side that has limits
     2nd  SCORE and COUPLED 12 m + 4; without draft scores 20 m + 4; with them 24 m + 4
     3rd  with draft scores 28; BLOCK 24 m + 4
     last 12; not of GREEDY and COUPLED
   rounded up to 16. With all_top_k the 1st alone, and with TOP_P_OF_ALL and a top_p the 2nd. */
SPECV_LAUNCHER int specv_verify_shard(const specv_verify_shard_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_verify_shard);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* Limit i of a request, first the target's top_k, top_p, min_p, as it is in memory. Is there one?
   Call: any thread. */
SPECV_DEVFN int specv_i_limit_as_it_is(const specv_verify_sample_desc *d, int i, int32_t slot,
                                       uint64_t *value) {
    const specv_filters *f = i < 3 ? &d->filters : &d->draft_filters;
    const void *of = i % 3 == 0   ? (const void *)f->top_k
                     : i % 3 == 1 ? (const void *)f->top_p
                                  : (const void *)f->min_p;
    if (of) *value = ((const uint32_t *)of)[slot];
    return of != 0;
}

/* Digest of what is known of the request. Call: warp; the same in all lanes. */
SPECV_DEVFN uint32_t specv_i_warp_digest(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                         const specv_row *row, int b, uint32_t mark) {
    const int lane = specv_i_lane();
    const int csr = specv_i_is_csr(&d->verify.rows);
    const int64_t first = row->first + (csr ? 0 : b * d->verify.draft_stride_elems);
    uint64_t value = 0, sum = 0;
    if (row->readable) {
        const int32_t slot = specv_i_slot_of(d, b);
        int has = 1;
        if (lane == SPECV_I_DIGEST_LENGTH)
            value = (uint32_t)row->n_draft;
        else if (lane == SPECV_I_DIGEST_EPOCH && s->epoch)
            value = (uint64_t)*s->epoch;
        else if (lane == SPECV_I_DIGEST_SEED && d->seed)
            value = d->seed[slot];
        else if (lane == SPECV_I_DIGEST_POSITION && d->position)
            value = (uint32_t)d->position[slot];
        else if (lane == SPECV_I_DIGEST_TEMPERATURE && d->temperature)
            value = specv_float_bits(d->temperature[slot]);
        else if (lane == SPECV_I_DIGEST_DRAFT_TEMPERATURE && d->draft_temperature)
            value = specv_float_bits(d->draft_temperature[slot]);
        else if (lane == SPECV_I_DIGEST_BONUS && d->bonus_token)
            value = (uint64_t)specv_i_one_token(d->bonus_token, d->verify.token_dtype, b);
        else if (lane == SPECV_I_DIGEST_UNIFORM && d->sample_uniform)
            value = specv_float_bits(d->sample_uniform[b]);
        else if (lane == SPECV_I_DIGEST_MASK && d->filters.mask_row)
            value = (uint32_t)d->filters.mask_row[b];
        else if (lane == SPECV_I_DIGEST_DRAFT_MASK && d->draft_filters.mask_row)
            value = (uint32_t)d->draft_filters.mask_row[b];
        else if (lane >= SPECV_I_DIGEST_TOP_K && lane < SPECV_I_DIGEST_DRAFTS)
            has = specv_i_limit_as_it_is(d, lane - SPECV_I_DIGEST_TOP_K, slot, &value);
        else
            has = 0;
        if (has) sum = specv_i_digest_of((uint32_t)lane, value);
        for (int j = lane; j < row->n_draft; j += 32) {
            const uint32_t i = SPECV_I_DIGEST_DRAFTS + 2 * (uint32_t)j;
            sum +=
                specv_i_digest_of(i, (uint64_t)specv_i_one_token(d->verify.draft_tokens,
                                                                 d->verify.token_dtype, first + j));
            if (d->accept_uniform)
                sum += specv_i_digest_of(i + 1, specv_float_bits(d->accept_uniform[first + j]));
        }
    }
    return specv_i_fold_digest(specv_i_warp_add(sum), row->status | mark);
}

/* Do the records of all ranks belong together, and to what this rank has of the row? Call: warp;
   the same in all lanes. Trips: heads and digests, together. */
SPECV_DEVFN int specv_i_warp_records_agree(const specv_i_shard *s, int b, uint32_t digest) {
    const int lane = specv_i_lane();
    int32_t end = 0;
    int good = 1;
#pragma unroll 1
    for (int base = 0; base < s->num_shards; base += 32) {
        const int rank = base + lane;
        specv_i_record_head head = {s->digest_before, end, 0};
        uint32_t its = digest;
        if (rank < s->num_shards) {
            const char *record = s->gathered + rank * s->stride;
            head = *(const specv_i_record_head *)record;
            its = ((const uint32_t *)(record + s->from.rows))[b];
        }
        if (head.num_ids < 0 || head.num_ids > 1 << 22) head.num_ids = 0, good = 0;
        const int32_t up_to = specv_warp_inclusive_scan(head.num_ids);
        good &= head.digest == s->digest_before && its == digest;
        good &= head.num_ids == 0 || head.first_id == end + up_to - head.num_ids;
        end += __shfl_sync(SPECV_FULL_WARP, up_to, 31);
        if (end > 1 << 22) end = 0, good = 0;
    }
    return __all_sync(SPECV_FULL_WARP, good) && end == s->vocab;
}

/* ---- the exchange, in kernels of your own

   An engine that has an all-gather in a kernel of its own (one shot over NVLink, or the blocks of a
   cluster) may put the exchange where the logits are made. A row then goes
     tiles      specv_warp_load_tile, specv_warp_tile_stats, tile first_id / SPECV_TILE_IDS + t
     of a rank  specv_warp_shard_tile; all-gather of max and id (and score)
     the row    specv_warp_merge_tiles, of ranks' tiles: the token of GREEDY and of COUPLED
     sums       specv_warp_shard_sum; all-gather; each rank's tile gets its sum, and if that is not
                0 the row's max in place of its own; specv_warp_merge_tiles again: p of any id
     a token    specv_thread_choose_shard; on that rank specv_warp_draw_in_shard; all-gather
   with the bits that A2 to A5 and A8 have of all columns. examples/shards/cluster.cu does so. */

SPECV_DEVFN const specv_tile *specv_i_tile_at(const specv_tile *tiles, int t) {
    return (const specv_tile *)((const char *)tiles + (uint32_t)sizeof(specv_tile) * (uint32_t)t);
}

/* The tile that all tiles of a row are: largest score and id, as one of SPECV_TILE_IDS has them.
   Call: warp; the same in all lanes. */
SPECV_DEVFN specv_tile specv_i_warp_tile_of_row(const specv_tile *tiles, int num_tiles, int may,
                                                int what, const specv_scale *scale) {
    const float none = specv_bits_float(0xff800000u);
    int64_t best = specv_i_order_key(specv_float_bits(none)), score = SPECV_I_NO_SCORE;
    int32_t id = SPECV_I_INT_MAX, score_id = SPECV_I_INT_MAX;
    uint32_t nan = 0;
    specv_tile t;
#pragma unroll 4
    for (int i = specv_i_lane(); i < num_tiles; i += 32) {
        const specv_tile *tile = specv_i_tile_at(tiles, i);
        const int32_t key = specv_i_order_key(specv_float_bits(tile->max));
        const int32_t its_id = (int32_t)(tile->id & ~SPECV_I_NAN_BIT);
        nan |= tile->id & SPECV_I_NAN_BIT;
        if (key > best) best = key, id = its_id;
        if (may & SPECV_TILE_SCORE && tile->score > score) score = tile->score, score_id = its_id;
    }
    specv_i_warp_best(&best, &id);
    t.sum = 0, t.score = SPECV_I_NO_SCORE, t.max = specv_i_of_order_key((int32_t)best);
    if (!specv_i_less(none, t.max)) id = 0;
    if (what && specv_in_range(t.max, scale)) id = 0;
    if (may & what & SPECV_TILE_SCORE) {
        specv_i_warp_best(&score, &score_id);
        if (score > SPECV_I_NO_SCORE && specv_in_range(t.max, scale))
            t.score = score, id = score_id;
    }
    t.id = (uint32_t)id | specv_i_warp_or(nan);
    return t;
}

/* What a rank says of a row in the first exchange.
   Call: warp. In: tiles[0..num_tiles) of the rank's columns by specv_warp_tile_stats, visible to
   the warp, with ids of all columns; what and scale as they were for them. Out: max, id and, with
   SCORE, score as one tile has them; sum 0. The same in all lanes. No tiles: max is -inf.
   Cost: one read of the tiles, 24 bytes each. */
SPECV_DEVFN specv_tile specv_warp_shard_tile(const specv_tile *tiles, int num_tiles, int what,
                                             const specv_scale *scale) {
    return specv_i_warp_tile_of_row(tiles, num_tiles, what, what, scale);
}

/* Beginning of a record, and the digest of the row. Call: block. */
SPECV_DEVFN void specv_i_block_begin_record(const specv_verify_sample_desc *d,
                                            const specv_i_shard *s, const specv_row *row, int b,
                                            uint32_t mark) {
    const int warp = specv_i_thread() / 32, lane = specv_i_lane();
    if (warp == 0) {
        const uint32_t digest = specv_i_warp_digest(d, s, row, b, mark);
        if (lane == 0) ((uint32_t *)(s->record + s->to.rows))[b] = digest;
        if (lane == 0) s->marks[b] = mark;
    }
    if (b == 0 && specv_i_thread() == 0) {
        const specv_i_record_head head = {s->digest, s->first_id, s->num_ids};
        *(specv_i_record_head *)s->record = head;
    }
}

/* Limits of a request's side. Call: any thread. */
SPECV_DEVFN specv_i_limits specv_i_shard_limits(const specv_verify_sample_desc *d,
                                                const specv_i_shard *s, int b, int of_draft) {
    const specv_filters *f = of_draft ? &d->draft_filters : &d->filters;
    const specv_i_asked g = specv_i_load_asked(d, f, 1, b);
    uint32_t reported = 0;
    return specv_i_limits_of(g.top_k, g.top_p, g.min_p, f->order, s->vocab, &reported);
}

SPECV_DEVFN int specv_i_limits_fit(const specv_verify_sample_desc *d, const specv_i_shard *s, int b,
                                   int of_draft) {
    const specv_i_limits l = specv_i_shard_limits(d, s, b, of_draft);
    if (specv_i_limits_are_off(&l, s->vocab)) return !s->all_named;
    return l.top_k < s->vocab && l.top_k <= s->num_named;
}

/* Closes a request that keeps ids which ranks may not name. Call: any thread. */
SPECV_DEVFN void specv_i_look_at_limits(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                        int b, specv_i_request *r) {
    int fit = 1;
    if (!r->row.readable || !(specv_i_cuts(&d->filters) || specv_i_cuts(&d->draft_filters))) return;
    if (r->target_rows && !r->target.zero) fit &= specv_i_limits_fit(d, s, b, 0);
    if (r->draft_rows && !r->draft.zero) fit &= specv_i_limits_fit(d, s, b, 1);
    if (fit) return;
    r->row.readable = r->row.n_draft = 0, r->target_rows = r->draft_rows = 0, r->cut = 0;
    r->status = r->row.status | SPECV_ROW_BAD_FILTER; /* nothing else of it is looked at */
}

/* What the rank says of a row, but of the ids that it names. Call: warp. */
SPECV_DEVFN void specv_i_warp_put_stats(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                        const specv_i_shard *s, const specv_i_request *r, int i,
                                        int may) {
    const int of_draft = i >= r->target_rows;
    const int64_t at = specv_i_row_of(r, m, i);
    const specv_i_side side = of_draft ? r->draft : r->target;
    const int is_cut = r->cut & (of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET);
    const int wanted = is_cut ? SPECV_TILE_SUM : specv_i_wanted(d, r, &side, of_draft);
    const specv_tile t = specv_i_warp_tile_of_row(
        m->tiles + at * m->num_tiles, specv_i_num_records(m, may), may, wanted, &side.scale);
    if (specv_i_lane() != 0) return;
    ((uint2 *)(s->record + s->to.best))[at] = make_uint2(specv_float_bits(t.max), t.id);
    if (s->to.scores && !of_draft) ((int64_t *)(s->record + s->to.scores))[at] = t.score;
}

/* Step 0: first pass over the rank's columns; of each row the tile that it is. Call: block. */
SPECV_DEVFN void specv_i_block_shard_stats(const specv_shard_task *task, int dtype, int what,
                                           int filters) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_cuts_asked asked;
    const specv_sample_task *sample = &task->sample;
    const specv_verify_sample_desc *d = &sample->d;
    const specv_i_memory *m = &sample->memory;
    const specv_i_shard *s = &task->shard;
    const specv_i_pass pass = specv_i_pass_of(sample, dtype, what, filters);
    const int b = (int)blockIdx.x;
    if (!specv_i_block_logits(sample, &pass, s->first_id, s->vocab, &opened, &asked, 0)) return;
    specv_i_request r = specv_i_reopen(&opened, &asked, dtype, pass.what, pass.rule, filters);
    const uint32_t mark = r.status & SPECV_ROW_BAD_TICKET;
    if (filters) specv_i_look_at_limits(d, s, b, &r);
    specv_row row = r.row;
    specv_i_block_begin_record(d, s, &row, b, mark);
    for (int i = specv_i_thread() / 32; i < r.target_rows + r.draft_rows;
         i += SPECV_SAMPLE_THREADS / 32)
        specv_i_warp_put_stats(d, m, s, &r, i, pass.may);
}

/* The rank's first `count` ids of a row, the best first, and behind them 0. first: of the row.
   Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_name_ids(const specv_verify_sample_desc *d, const specv_i_memory *m,
                                        const specv_i_shard *s, const specv_i_side *side, int j,
                                        int64_t at, int count, const specv_i_cut_tile *first,
                                        specv_i_cut *c, uint64_t *to) {
    const specv_tile *tiles = m->tiles + at * m->num_tiles;
    const float none = specv_bits_float(0xff800000u);
    const specv_distribution p =
        specv_i_block_merge(c, tiles, m->num_tiles, 0, &side->scale, first);
    const specv_i_cut_row row = specv_i_cut_row_of(d, side, m, tiles, j, &p);
    int named = 0;
    __syncthreads(); /* keys are there */
    /* Not where one id has all weight; but what is too low for the format may be kept, too. */
    if (specv_i_less(none, p.max) && (p.kind == SPECV_SOFTMAX || specv_i_less(p.max, 0.f))) {
        named = specv_i_block_find_likeliest(c, &row, count, 0);
        if (named < 0) {
            named = c->count;
            if (named <= SPECV_I_FEW)
                specv_i_block_sort_few(c, &row, named);
            else
                specv_i_block_sort_list(c, &row, named);
        }
    }
    for (int i = specv_i_thread(); i < s->num_named; i += SPECV_SAMPLE_THREADS)
        to[i] = i < named ? c->u.list.key[i] - (uint64_t)s->first_id : 0; /* of all ids */
}

/* Step 0, behind that: requests with rows that limits cut. Call: block. */
SPECV_DEVFN void specv_i_block_shard_names(const specv_shard_task *task, int b, int block,
                                           int num_blocks) {
    __shared__ specv_i_opened saved;
    __shared__ specv_i_cut cut;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    specv_i_begin(d->verify.chained);
    specv_i_put_word(&saved, specv_i_opened_at(m, b), sizeof saved);
    __syncthreads();
    specv_i_request r = saved.request;
    specv_i_cut_as_asked(&r, &saved.asked);
    if (!r.cut) return; /* all is done */
    specv_i_look_at_limits(d, s, b, &r);
    if (block == 0) specv_i_block_begin_record(d, s, &r.row, b, 0);
#pragma unroll 1
    for (int i = block; i < r.target_rows + r.draft_rows; i += num_blocks) {
        const int of_draft = i >= r.target_rows;
        const int64_t at = specv_i_row_of(&r, m, i), of_side = at - (of_draft ? m->target_rows : 0);
        if (specv_i_thread() < 32) specv_i_warp_put_stats(d, m, s, &r, i, specv_i_may(&r));
        if (!(r.cut & (of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET))) continue;
        const specv_i_side side = of_draft ? r.draft : r.target;
        const specv_i_cut_tile first = specv_i_load_cut_tile(&r, m, i);
        specv_i_block_name_ids(
            d, m, s, &side, of_draft ? i - r.target_rows : i, at, saved.limits[of_draft].top_k,
            &first, &cut, (uint64_t *)(s->record + s->to.named[of_draft]) + of_side * s->num_named);
        __syncthreads();
    }
}

/* What ranks say of a draft's scores: of sides that limits cut the ids that they name do. */
SPECV_DEVFN void specv_i_put_said(const specv_i_shard *s, const specv_i_request *r, int64_t row,
                                  float p, float q, uint64_t lost) {
    if (!(r->cut & SPECV_I_OF_TARGET)) s->p[row] = p;
    if (!(r->cut & SPECV_I_OF_DRAFT)) s->q[row] = q;
    s->lost[row] = lost;
}

/* Rows first..end-1 of a request, each shard a tile. Call: block. Sync: a barrier at the end. */
SPECV_DEVFN void specv_i_block_take_stats(const specv_i_shard *s, const specv_i_request *r,
                                          int has_scores, int first, int end) {
    const int num_items = (end - first) * s->num_shards;
#pragma unroll 1
    for (int item = specv_i_thread(); item < num_items; item += SPECV_SAMPLE_THREADS) {
        const int i = first + item / s->num_shards;
        const int rank = item - (i - first) * s->num_shards;
        const int64_t row = specv_i_row_of(r, &s->merged, i);
        const char *record = s->gathered + rank * s->stride;
        if (rank == 0 && i < r->target_rows) specv_i_put_said(s, r, row, 0, 0, 0);
        const uint2 best = ((const uint2 *)(record + s->from.best))[row];
        specv_tile t = {0, SPECV_I_NO_SCORE, specv_bits_float(best.x), best.y};
        if (has_scores) t.score = ((const int64_t *)(record + s->from.scores))[row];
        s->merged.tiles[row * s->num_shards + rank] = t;
    }
    __syncthreads();
}

/* A request with its masks and limits, if there are any. Call: warp. */
SPECV_DEVFN specv_i_request specv_i_open_limited(const specv_verify_sample_desc *d,
                                                 const specv_i_memory *m, const specv_i_shard *s,
                                                 int b) {
    if (specv_i_is_filtered(d)) {
        const specv_row row = specv_i_open_row(d, b);
        specv_i_request r = specv_i_open_rows(d, b, &row, d->rule);
        const float2 temperatures = specv_i_load_temperatures(d, b, &row, d->rule);
        const specv_i_both_asked given = specv_i_load_both_asked(d, row.readable, b);
        const specv_i_cuts_asked asked = specv_i_open_cuts(d, m, &given, s->vocab, 0);
        specv_i_open_scales(d, temperatures, &r);
        specv_i_open_masks(d, b, &r);
        specv_i_cut_as_asked(&r, &asked);
        specv_i_look_at_limits(d, s, b, &r);
        if (s->to.kind != SPECV_I_RECORD_SUMS) specv_i_open_least(m, &r);
        return r;
    }
    specv_i_request r = specv_i_open_request(d, b);
    specv_i_without_filters(&r);
    return r;
}

#define SPECV_I_SHARD_MARKS ((uint32_t)(SPECV_ROW_BAD_TICKET | SPECV_ROW_BAD_RECORD))

/* Opens a request behind an exchange: closed if the records do not belong together. Call: block.
   Sync: a barrier at the end. */
SPECV_DEVFN void specv_i_block_open_shard(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                          int b, specv_i_request *opened) {
    if (specv_i_thread() < 32) {
        uint32_t mark = s->marks[b];
        if (mark & ~SPECV_I_SHARD_MARKS) mark = 0; /* the descriptor of step 0 was another one */
        specv_i_request r = specv_i_open_limited(d, &s->merged, s, b);
        const uint32_t digest = specv_i_warp_digest(d, s, &r.row, b, mark);
        const int good = specv_i_warp_records_agree(s, b, digest);
        if (!good || mark) {
            specv_i_close_request(&r);
            r.row.n_draft = 0, r.cut = 0;
            r.status = (good ? 0u : (uint32_t)SPECV_ROW_BAD_RECORD) | mark;
        }
        if (specv_i_lane() == 0) *opened = r;
    }
    __syncthreads();
}

/* Of which rank is an id? -1: of none. */
SPECV_DEVFN int specv_i_owner_of(const specv_i_shard *s, int64_t id) {
#pragma unroll 1
    for (int rank = 0; rank < s->num_shards; ++rank) {
        const specv_i_record_head *head =
            (const specv_i_record_head *)(s->gathered + rank * s->stride);
        if (id >= head->first_id && id < (int64_t)head->first_id + head->num_ids) return rank;
    }
    return -1;
}

/* The id of which a rank says the score of row j of the target: the draft, with noise the choice;
   -1: of none. */
SPECV_DEVFN int64_t specv_i_asked_id(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                     const specv_i_request *r, int j) {
    if (d->rule == SPECV_RULE_COUPLED) return s->merged.rows[r->first_row + j].id;
    if (j >= r->row.n_draft) return -1;
    const int64_t draft = specv_i_draft_token(d, r, j);
    return specv_i_is_token(draft, s->vocab) ? draft : -1;
}

/* What a side's scores say of a column of the rank; -inf for NaN. */
SPECV_DEVFN float specv_i_own_score(const specv_i_side *side, int j, int column) {
    const specv_i_sieve sieve = specv_i_sieve_of(side, j);
    const float score = specv_i_sift(
        &sieve, specv_i_load_score(specv_i_scores_of(side, j), side->dtype, column), column);
    return specv_i_max(score, specv_bits_float(0xff800000u));
}

/* Where a row's scores are, for p alone. */
SPECV_DEVFN specv_i_weights specv_i_weights_of_p(const specv_i_request *r,
                                                 const specv_distribution *p, int j) {
    specv_i_weights w;
    w.p = *p, w.q = specv_i_plain_distribution(), w.q_scores = 0, w.prefix = 1, w.without = -1;
    w.p_scores = specv_i_scores_of(&r->target, j);
    w.p_sieve = specv_i_sieve_of(&r->target, j), w.q_sieve = w.p_sieve;
    return w;
}

/* The rank's part of a row's sum, in the row's units: what its tiles have when the row is put
   together. Call: warp. */
SPECV_DEVFN uint64_t specv_i_warp_sum_of_shard(const specv_tile *tiles, int num_tiles,
                                               const specv_scale *scale, int32_t n) {
    uint64_t sum = 0;
#pragma unroll 4
    for (int t = specv_i_lane(); t < num_tiles; t += 32) {
        const float raised = specv_i_max(tiles[t].max, scale->floor);
        const int32_t its_n = specv_softmax_weight(raised, scale).n;
        sum += specv_i_shift_right(tiles[t].sum, (uint32_t)(n - its_n));
    }
    return specv_i_warp_add(sum);
}

/* What a rank says of a row in the second exchange: its part of the row's sum.
   Call: warp. In: tiles as for specv_warp_shard_tile, with SUM; row: of all ranks' tiles, by
   specv_warp_merge_tiles with SUM. Out: units of 2^(row->n - 40); 0 where the row is no softmax.
   The same in all lanes.
   Cost: one read of the tiles, 12 bytes each. */
SPECV_DEVFN uint64_t specv_warp_shard_sum(const specv_tile *tiles, int num_tiles,
                                          const specv_distribution *row, const specv_scale *scale) {
    if (row->kind != SPECV_SOFTMAX) return 0;
    return specv_i_warp_sum_of_shard(tiles, num_tiles, scale, row->n);
}

/* What of that is lost without a column. Call: any thread. */
SPECV_DEVFN uint64_t specv_i_lost_without(const specv_i_request *r, const specv_tile *tiles,
                                          const specv_distribution *row, int j, int column) {
    const specv_i_weights w = specv_i_weights_of_p(r, row, j);
    const specv_tile *tile = tiles + column / SPECV_TILE_IDS;
    const float raised = specv_i_max(tile->max, r->target.scale.floor);
    const int32_t n = specv_softmax_weight(raised, &r->target.scale).n;
    const uint32_t finer = (uint32_t)(row->n - n);
    if (!tile->sum) return 0;
    return specv_i_shift_right(tile->sum, finer) -
           specv_i_shift_right(tile->sum - specv_i_units(r, &w, column, n), finer);
}

/* Behind the first exchange: the rank's sums, and what it knows of drafts. Call: block. */
SPECV_DEVFN void specv_i_block_shard_sums(const specv_shard_task *task) {
    __shared__ specv_i_request opened;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    const int b = (int)blockIdx.x, lane = specv_i_lane(), coupled = d->rule == SPECV_RULE_COUPLED;
    specv_i_begin(d->verify.chained);
    specv_i_block_open_shard(d, s, b, &opened);
    const specv_i_request r = opened;
    specv_i_block_begin_record(d, s, &r.row, b, r.status & SPECV_I_SHARD_MARKS);
    specv_i_block_take_stats(s, &r, coupled, 0, r.target_rows + r.draft_rows);
    for (int i = specv_i_thread() / 32; i < r.target_rows + r.draft_rows;
         i += SPECV_SAMPLE_THREADS / 32) {
        const int of_draft = i >= r.target_rows;
        const int is_cut = r.cut & (of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET);
        const int64_t at = specv_i_row_of(&r, m, i);
        const specv_i_side side = of_draft ? r.draft : r.target;
        const int what = specv_i_wanted(d, &r, &side, of_draft);
        const specv_tile *tiles = m->tiles + at * m->num_tiles;
        uint64_t through, sum = 0, lost = 0;
        float of_p = 0, of_q = 0;
        int has_sum = what & SPECV_TILE_SUM;
        if (is_cut) { /* ids that were named have the sum of what is kept */
            const specv_i_limits l = specv_i_shard_limits(d, s, b, of_draft);
            has_sum = l.has_top_p && l.order == SPECV_TOP_P_OF_ALL;
        }
        specv_distribution row = specv_i_warp_merge(s->merged.tiles + at * s->num_shards,
                                                    s->num_shards, coupled ? SPECV_TILE_SCORE : 0,
                                                    what, side.zero, &side.scale, &through);
        if (row.kind == SPECV_SOFTMAX && has_sum) {
            row.n = specv_softmax_weight(row.max, &side.scale).n;
            sum = specv_i_warp_sum_of_shard(tiles, m->num_tiles, &side.scale, row.n);
        }
        if (lane != 0) continue;
        s->merged.rows[at] = row;
        ((uint64_t *)(s->record + s->to.sums))[at] = sum;
        if (of_draft) continue;
        const int64_t column = coupled && is_cut ? -1 : specv_i_asked_id(d, s, &r, i) - s->first_id;
        if (column >= 0 && column < s->num_ids) {
            if (!is_cut) of_p = specv_i_own_score(&r.target, i, (int)column);
            if (d->draft.data && !(r.cut & SPECV_I_OF_DRAFT))
                of_q = specv_i_own_score(&r.draft, i, (int)column);
            if (s->to.lost && sum && !is_cut)
                lost = specv_i_lost_without(&r, tiles, &row, i, (int)column);
        }
        ((float *)(s->record + s->to.p))[at] = of_p;
        if (s->to.q) ((float *)(s->record + s->to.q))[at] = of_q;
        if (s->to.lost) ((uint64_t *)(s->record + s->to.lost))[at] = lost;
    }
}

/* Sums of all ranks, and what those that own drafts say of them, of rows first..end-1. Call: block.
   Sync: a barrier at the end. */
SPECV_DEVFN void specv_i_block_take_sums(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                         const specv_i_request *r, int first, int end) {
    const int num_items = (end - first) * s->num_shards;
#pragma unroll 1
    for (int item = specv_i_thread(); item < num_items; item += SPECV_SAMPLE_THREADS) {
        const int i = first + item / s->num_shards;
        const int rank = item - (i - first) * s->num_shards;
        const int64_t at = specv_i_row_of(r, &s->merged, i);
        const char *record = s->gathered + rank * s->stride;
        const uint64_t sum = ((const uint64_t *)(record + s->from.sums))[at];
        specv_tile *tile = s->merged.tiles + at * s->num_shards + rank;
        tile->sum = sum;
        if (sum) tile->max = s->merged.rows[at].max; /* it is in the row's units */
        if (rank > 0 || i >= r->target_rows) continue;
        const int owner = specv_i_owner_of(s, specv_i_asked_id(d, s, r, i));
        float p = 0, q = 0;
        uint64_t lost = 0;
        if (owner >= 0) {
            record = s->gathered + owner * s->stride;
            p = ((const float *)(record + s->from.p))[at];
            if (s->from.q) q = ((const float *)(record + s->from.q))[at];
            if (s->from.lost) lost = ((const uint64_t *)(record + s->from.lost))[at];
        }
        specv_i_put_said(s, r, at, p, q, lost);
    }
    __syncthreads();
}

/* What a row that limits cut keeps, in ascending order of id. Shared. */
typedef struct specv_i_law {
    uint64_t units[SPECV_SHARD_TOP_K]; /* of its tile's largest */
    uint64_t through[SPECV_SHARD_TOP_K + 1];
    int32_t id[SPECV_SHARD_TOP_K];
    int32_t finer[SPECV_SHARD_TOP_K]; /* n of the row's largest less that of the tile's */
    int32_t begin[SPECV_SHARD_TOP_K], end[SPECV_SHARD_TOP_K]; /* of its tile's ids */
    uint64_t point; /* what is left of it in the tile, behind what is before the tile */
    int32_t at, drawn;
} specv_i_law;

/* The first top_k ids of those that ranks have named of a row, into the list, and to scratch memory
   for the steps behind the next one. Returns how many there are. Call: block. Sync: barriers. */
SPECV_DEVFN int specv_i_block_take_named(const specv_i_shard *s, int64_t row, int of_draft,
                                         int top_k, specv_i_cut *c) {
    static_assert(SPECV_SHARD_TOP_K == SPECV_SAMPLE_THREADS, "an id a thread");
    const int most = s->num_named, thread = specv_i_thread();
    const int64_t of_side = row - (of_draft ? s->merged.target_rows : 0);
    uint64_t *own = s->named + row * most;
    if (s->from.kind != SPECV_I_RECORD_STATS) {
        c->u.list.key[thread] = thread < top_k ? own[thread] : 0;
    } else {
        const char *lists = s->gathered + s->from.named[of_draft] + 8 * of_side * most;
        c->u.list.key[thread] = 0;
        __syncthreads();
#pragma unroll 1
        for (int item = thread; item < s->num_shards * most; item += SPECV_SAMPLE_THREADS) {
            const int rank = item / most, i = item - rank * most;
            const uint64_t key = ((const uint64_t *)(lists + rank * s->stride))[i];
            int place = i;
            if (key == 0 || i >= top_k) continue;
#pragma unroll 1
            for (int other = 0; other < s->num_shards && place < top_k; ++other) {
                const uint64_t *its = (const uint64_t *)(lists + other * s->stride);
                int low = 0, high = top_k; /* how many of its come before */
                if (other == rank) continue;
                while (low < high) {
                    const int middle = (low + high) / 2;
                    if (its[middle] > key)
                        low = middle + 1;
                    else
                        high = middle;
                }
                place += low;
            }
            if (place < top_k) c->u.list.key[place] = key;
        }
        __syncthreads();
        if (thread < most) own[thread] = c->u.list.key[thread];
    }
    return __syncthreads_count(thread < top_k && c->u.list.key[thread] != 0);
}

/* What ids weigh in units of the row, and all down to each; kept: the first ones of the list. Call:
   block. Sync: barriers. */
SPECV_DEVFN int specv_i_block_cut_named(specv_i_cut *c, const specv_i_cut_row *row,
                                        const specv_i_limits *l, int count, uint64_t mass) {
    const int thread = specv_i_thread();
    uint64_t total, units = 0;
    if (thread < count)
        units = specv_i_row_units(row, specv_i_score_of_rank_key(c->u.list.key[thread]));
    if (thread == 0) c->count = count;
    c->u.list.u.through[thread] = specv_i_block_inclusive_add(units, &total, c->scratch[0]);
    __syncthreads();
    return specv_i_block_cut_list(c, row, l, mass, 1);
}

/* Where the thread's id is among the first `kept` of a list in ascending order, with what is of its
   tile there; *best: the greatest of that. Call: a thread below `kept`. */
SPECV_DEVFN int specv_i_order_id(const uint64_t *keys, int kept, specv_i_law *law, uint64_t *best) {
    const int id = specv_i_id_of_rank_key(keys[specv_i_thread()]), tile = id / SPECV_TILE_IDS;
    int place = 0, begin = 0, end = 0;
    *best = 0;
#pragma unroll 4
    for (int i = 0; i < kept; ++i) {
        const uint64_t key = keys[i];
        const int its = specv_i_id_of_rank_key(key), its_tile = its / SPECV_TILE_IDS;
        place += its < id, begin += its_tile < tile, end += its_tile <= tile;
        if (its_tile == tile && *best == 0) *best = key; /* the greatest comes first */
    }
    law->id[place] = id, law->begin[place] = begin, law->end[place] = end;
    return place;
}

/* The list's first `kept` ids in ascending order. Call: block. Sync: a barrier. */
SPECV_DEVFN void specv_i_block_order_kept(const specv_i_cut *c, const specv_i_cut_row *row,
                                          int kept, specv_i_law *law) {
    const int thread = specv_i_thread();
    if (thread < kept) {
        uint64_t best;
        const int place = specv_i_order_id(c->u.list.key, kept, law, &best);
        float score[2];
        specv_weight weight[2];
        score[0] = specv_i_max(specv_i_score_of_rank_key(c->u.list.key[thread]), row->scale.floor);
        score[1] = specv_i_score_of_rank_key(best);
        specv_i_softmax_weights(weight, score, 2, &row->scale);
        law->units[place] =
            specv_in_range(score[1], &row->scale) ? specv_weight_units(&weight[0], weight[1].n) : 0;
        law->finer[place] = row->n - weight[1].n;
    }
    __syncthreads();
}

/* Draws from them as specv_i_block_draw_few does, but not the id `without`; *drawn: -1 if none has
   weight. Returns the sum of all. Call: block. Sync: barriers. */
SPECV_DEVFN uint64_t specv_i_block_draw_kept(uint64_t (*scratch)[32], specv_i_law *law, int kept,
                                             int32_t without, uint64_t uniform, int32_t *drawn) {
    const int i = specv_i_thread(), is_id = i < kept;
    const int32_t id = is_id ? law->id[i] : -1;
    const uint64_t units = is_id && id != without ? law->units[i] : 0;
    const uint32_t finer = is_id ? (uint32_t)law->finer[i] : 0;
    uint64_t total, part = 0, left;
    __syncthreads(); /* what was drawn before is read */
    const uint64_t before = specv_i_block_inclusive_add(units, &total, scratch[0]) - units;
    law->through[i] = before;
    if (i == 0) law->through[SPECV_SHARD_TOP_K] = total, law->at = kept;
    if (i == 0) law->point = 0, law->drawn = -1;
    __syncthreads();
    if (is_id && law->begin[i] == i)
        part = specv_i_shift_right(law->through[law->end[i]] - before, finer);
    const uint64_t up_to = specv_i_block_inclusive_add(part, &total, scratch[1]);
    left = specv_i_mul_high(uniform, total);
    if (left < up_to && left >= up_to - part) { /* the tile, and what is left of the point in it */
        left = (left - (up_to - part)) << finer | specv_i_shift_right(uniform * total, 64 - finer);
        law->point = left + before, law->at = i;
    }
    __syncthreads();
    if (is_id && i >= law->at && law->point >= before && law->point < before + units)
        law->drawn = id;
    __syncthreads();
    *drawn = law->drawn;
    return total;
}

/* The score of an id that is kept, -inf of any other, to *said. Call: block, the list is there.
   Sync: a barrier. */
SPECV_DEVFN void specv_i_block_say_named(const specv_i_cut *c, int kept, int64_t id, float *said) {
    const int thread = specv_i_thread();
    if (thread == 0) *said = specv_bits_float(0xff800000u);
    __syncthreads();
    if (thread < kept && specv_i_id_of_rank_key(c->u.list.key[thread]) == id)
        *said = specv_i_score_of_rank_key(c->u.list.key[thread]);
}

/* Row i of a request that limits cut: put together of what ranks have named and said, and drawn
   from, so that who judges has nothing left to look for. Call: block. Sync: barriers. */
SPECV_DEVFN void specv_i_block_cut_of_shards(const specv_verify_sample_desc *d,
                                             const specv_i_memory *m, const specv_i_shard *s,
                                             const specv_i_request *r, int b, int i, specv_i_cut *c,
                                             specv_i_law *law) {
    const int of_draft = i >= r->target_rows, j = of_draft ? i - r->target_rows : i;
    const int64_t at = specv_i_row_of(r, m, i);
    const specv_i_side side = of_draft ? r->draft : r->target;
    const int is_cut = r->cut & (of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET);
    const int coupled = r->rule == SPECV_RULE_COUPLED, thread = specv_i_thread();
    float *said = of_draft ? &s->q[r->first_row + j] : &s->p[at];
    uint64_t through, least = 0;
    if (s->from.kind == SPECV_I_RECORD_STATS)
        specv_i_block_take_stats(s, r, coupled, i, i + 1);
    else
        specv_i_block_take_sums(d, s, r, i, i + 1);
    specv_distribution p =
        specv_i_warp_merge(s->merged.tiles + at * s->num_shards, s->num_shards, specv_i_may(r),
                           is_cut ? SPECV_TILE_SUM : specv_i_wanted(d, r, &side, of_draft),
                           side.zero, &side.scale, &through);
    if (is_cut && p.kind != SPECV_SOFTMAX && thread == 0) *said = 0;
    if (is_cut && p.kind == SPECV_SOFTMAX) {
        const specv_i_limits l = specv_i_shard_limits(d, s, b, of_draft);
        const int count = specv_i_block_take_named(s, at, of_draft, l.top_k, c);
        specv_i_cut_row row;
        uint64_t uniform = 0;
        uint32_t reported = 0; /* by who judges */
        int64_t asked = j < r->row.n_draft ? specv_i_draft_token(d, r, j) : -1;
        row.scores = 0, row.tiles = 0, row.lanes = 0, row.sieve.mask = 0, row.sieve.least = 0;
        row.scale = side.scale, row.dtype = side.dtype, row.num_tiles = 0;
        row.vocab = (int32_t)s->vocab, row.n = p.n, row.max = p.max;
        const int kept = specv_i_block_cut_named(c, &row, &l, count, p.sum);
        if (kept > 0) { /* always, but with records of others' making */
            least = c->u.list.key[kept - 1];
            specv_i_block_order_kept(c, &row, kept, law);
            if (!of_draft && !coupled) uniform = specv_i_sample_uniform(d, b, j, &reported);
            p.sum = specv_i_block_draw_kept(c->scratch, law, kept, -1, uniform, &p.id);
            p.reserved = (uint32_t)-1;
            if (!of_draft && !coupled && !d->draft.data && asked >= 0) {
                int32_t drawn;
                specv_i_block_draw_kept(c->scratch, law, kept, (int32_t)asked, uniform, &drawn);
                p.reserved = (uint32_t)drawn;
            }
            if (coupled) {
                const specv_noise noise = specv_i_noise(d, b, j);
                p.id = specv_i_block_best_of_list(c, &row, kept, &noise);
                asked = p.id;
            }
        }
        specv_i_block_say_named(c, kept, asked, said);
    }
    if (p.sum) specv_i_set_inverse(&p);
    if (thread == 0) {
        s->merged.rows[at] = p;
        m->least[at] = least ? least + (uint64_t)s->first_id : 0; /* of the rank's ids */
    }
    __syncthreads();
}

/* Behind the first exchange, and behind that of sums: rows of requests that limits cut. Call:
   block. */
SPECV_DEVFN void specv_i_block_shard_cut(const specv_shard_task *task, int b, int block,
                                         int num_blocks) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_cut cut;
    __shared__ specv_i_law law;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    specv_i_begin(d->verify.chained);
    specv_i_block_open_shard(d, s, b, &opened);
    const specv_i_request r = opened;
    if (!r.cut) return;
#pragma unroll 1
    for (int i = block; i < r.target_rows + r.draft_rows; i += num_blocks) {
        const int of_draft = i >= r.target_rows;
        if (s->to.kind != SPECV_I_RECORD_SUMS) {
            specv_i_block_cut_of_shards(d, m, s, &r, b, i, &cut, &law);
        } else if (r.cut & (of_draft ? SPECV_I_OF_DRAFT : SPECV_I_OF_TARGET)) {
            const specv_i_limits l = specv_i_shard_limits(d, s, b, of_draft);
            specv_i_block_take_named(s, specv_i_row_of(&r, m, i), of_draft, l.top_k, &cut);
            __syncthreads();
        }
    }
}

/* A token of position k is known, as limits cut the row: what ranks have named says its score.
   Call: block. Sync: barriers. */
SPECV_DEVFN float specv_i_block_score_of_next(const specv_i_shard *s, int64_t row,
                                              const specv_i_outcome *o,
                                              const specv_distribution *p) {
    __shared__ float score;
    const int thread = specv_i_thread();
    int32_t token = p->id;
    if (o->next == SPECV_I_DRAW_WITHOUT && (int32_t)p->reserved >= 0) token = (int32_t)p->reserved;
    if (thread == 0) score = specv_bits_float(0xff800000u);
    __syncthreads();
    if (thread < s->num_named) {
        const uint64_t key = s->named[row * s->num_named + thread];
        if (key && specv_i_id_of_rank_key(key) == token) score = specv_i_score_of_rank_key(key);
    }
    __syncthreads();
    return score;
}

/* What target and draft keep of a position: an id a thread. Shared. */
typedef struct specv_i_kept {
    uint64_t key[SPECV_SHARD_TOP_K]; /* of the target, where it keeps several; else 0 */
    int32_t id[SPECV_SHARD_TOP_K];   /* of the draft; -1: none */
    float q[SPECV_SHARD_TOP_K];      /* then 0 where the target has the id, too */
    uint64_t scratch[2][32];
} specv_i_kept;

/* The thread's id of those that a row keeps, -1: none, its p, and its key if it is one of several.
   at: of the row, in scratch memory. */
SPECV_DEVFN int32_t specv_i_kept_id(const specv_i_memory *m, const specv_i_shard *s, int64_t at,
                                    const specv_distribution *row, const specv_scale *scale,
                                    float *p, uint64_t *key) {
    const int thread = specv_i_thread(), is_one = row->kind == SPECV_ONE_HOT && thread == 0;
    *p = is_one ? 1.f : 0.f, *key = 0;
    if (row->kind != SPECV_SOFTMAX) return is_one ? row->id : -1;
    if (thread >= s->num_named) return -1;
    const uint64_t its = s->named[at * s->num_named + thread];
    const uint64_t least = m->least[at] - (uint64_t)s->first_id; /* it is that of the rank's ids */
    if (its == 0 || its < least) return -1;
    *p = specv_i_softmax_p(row, scale, specv_i_score_of_rank_key(its)), *key = its;
    return specv_i_id_of_rank_key(its);
}

/* P p - q at position j: of the thread's id of what the target keeps, and sums over all ids: what
   neither keeps adds nothing to them. Call: block. Sync: barriers. */
SPECV_DEVFN float specv_i_block_gain_of_kept(const specv_i_memory *m, const specv_i_shard *s,
                                             const specv_i_request *r, int j, float prefix,
                                             specv_i_kept *k, specv_i_residual *sum) {
    const int thread = specv_i_thread();
    const int64_t of_p = r->first_row + j, of_q = m->target_rows + of_p;
    const specv_distribution p = s->merged.rows[of_p], q = s->merged.rows[of_q];
    uint64_t key, unused, gain = 0, rest;
    float its_p, its_q, q_there = 0;
    int found = -1;
    const int32_t id = specv_i_kept_id(m, s, of_p, &p, &r->target.scale, &its_p, &key);
    __syncthreads(); /* what was there is read */
    k->key[thread] = key;
    k->id[thread] = specv_i_kept_id(m, s, of_q, &q, &r->draft.scale, &its_q, &unused);
    k->q[thread] = its_q;
    const int num_q = __syncthreads_count(k->id[thread] >= 0);
#pragma unroll 4
    for (int i = 0; i < num_q; ++i)
        if (k->id[i] == id) found = i;
    if (id >= 0 && found >= 0) q_there = k->q[found];
    __syncthreads();
    if (id >= 0 && found >= 0) k->q[found] = 0;
    __syncthreads();
    const float of_id = specv_fma(prefix, its_p, specv_i_negate(q_there));
    const uint64_t units = specv_fixed50(specv_bits_float(specv_float_bits(of_id) & 0x7fffffffu));
    rest = specv_fixed50(k->q[thread]);
    if (specv_i_less(0.f, of_id))
        gain = units;
    else
        rest += units;
    specv_i_block_inclusive_add(gain, &sum->gain, k->scratch[0]);
    specv_i_block_inclusive_add(rest, &sum->rest, k->scratch[1]);
    return of_id;
}

/* A draft was rejected, and all that target and draft keep is here: rule BLOCK decides, and the
   token is drawn from (P p - q)+, or from p. *p: the row there, its id the token. Call: block. */
SPECV_DEVFN void specv_i_block_draw_alone(const specv_verify_sample_desc *d,
                                          const specv_i_memory *m, const specv_i_shard *s,
                                          const specv_i_request *r, int b, specv_i_outcome *o,
                                          specv_distribution *p) {
    __shared__ specv_i_kept kept;
    __shared__ specv_i_law law;
    const float *prefixes = m->prefixes + r->first_row;
    const int thread = specv_i_thread();
    const uint64_t one = (uint64_t)1 << 50;
    specv_i_residual sum;
    if (d->rule == SPECV_RULE_BLOCK) {
#pragma unroll 1
        for (int i = 0; i < o->usable; ++i) {
            if (!specv_i_less(0.f, prefixes[i])) continue;
            specv_i_block_gain_of_kept(m, s, r, i, prefixes[i], &kept, &sum);
            for (int t = thread; t < s->num_shards; t += SPECV_SAMPLE_THREADS) {
                const specv_i_residual nothing = {0, 0};
                s->merged.residuals[(r->first_row + i) * s->num_shards + t] = t ? nothing : sum;
            }
        }
        __syncthreads();
        specv_i_block_search(d, r, &s->merged, b, prefixes, o);
    }
    *p = s->merged.rows[r->first_row + o->accepted];
    if (p->kind != SPECV_SOFTMAX) return;
    const float gain = specv_i_block_gain_of_kept(m, s, r, o->accepted, o->prefix, &kept, &sum);
    if (specv_i_bad_sum(sum.gain - sum.rest, specv_fixed50(o->prefix) - one))
        o->status |= SPECV_ROW_BAD_SUM;
    const int count = __syncthreads_count(kept.key[thread] != 0);
    if (thread < count) {
        uint64_t best;
        const int place = specv_i_order_id(kept.key, count, &law, &best);
        law.units[place] = specv_fixed50(specv_i_max(gain, 0.f));
        law.finer[place] = SPECV_I_FINER_PROBS;
    }
    __syncthreads();
    int32_t drawn;
    const uint64_t uniform = specv_i_sample_uniform(d, b, o->accepted, &o->status);
    if (specv_i_block_draw_kept(kept.scratch, &law, count, -1, uniform, &drawn) == 0)
        o->status |= SPECV_ROW_ZERO_RESIDUAL; /* p's own token stays */
    else
        p->id = drawn;
}

/* Rule SCORE: log-probabilities of drafts. Call: block; its first warp does it. */
SPECV_DEVFN void specv_i_block_put_scores(const specv_verify_sample_desc *d, const specv_i_shard *s,
                                          const specv_i_request *r, int b, const specv_i_outcome *o,
                                          const specv_i_said *said) {
    const int lane = specv_i_lane(), max_draft = d->verify.rows.max_draft;
    if (!d->target_logprob || specv_i_thread() >= 32) return;
    if (r->row.readable) {
        specv_i_outcome scored = *o;
        const specv_i_claim claim = specv_i_load_claim(d, r, b, lane, o->usable, said);
        specv_i_warp_score_drafts(d, r, b, s->merged.rows + r->first_row, &claim, said, 1, &scored);
    }
    for (int j = o->accepted + lane; j < max_draft; j += 32)
        d->target_logprob[b * (int64_t)max_draft + j] = 0;
}

/* In which rank's part of a row the place is. */
typedef struct specv_shard_place {
    uint64_t left, low; /* from where that part begins; what is behind the point */
    int32_t rank;       /* -1: there is no weight */
} specv_shard_place;

/* weight of rank i at *(first + i * stride) bytes; that of `less_of` is less by `lost`. Call: any
   thread. */
SPECV_DEVFN specv_shard_place specv_i_choose_rank(const void *first, int64_t stride, int num_shards,
                                                  int less_of, uint64_t lost, uint64_t uniform) {
    specv_shard_place place = {0, 0, -1};
    uint64_t total = 0;
#pragma unroll 4
    for (int i = 0; i < num_shards; ++i)
        total += *(const uint64_t *)((const char *)first + i * stride) - (i == less_of ? lost : 0);
    if (total == 0) return place;
    place.left = specv_i_mul_high(uniform, total), place.low = uniform * total;
    for (place.rank = 0;; ++place.rank) {
        const uint64_t weight = *(const uint64_t *)((const char *)first + place.rank * stride) -
                                (place.rank == less_of ? lost : 0);
        if (place.left < weight || place.rank == num_shards - 1) return place;
        place.left -= weight;
    }
}

/* Which rank draws the token, where the ranks have these parts of the row's sum.
   Call: any thread. In: shards[0..num_shards).sum, as all ranks have said them; uniform: 64 bits, a
   token is drawn at uniform / 2^64 of the sum. Out: rank, and where in its part; rank -1: the sum
   is 0.
   Cost: two reads of the sums. */
SPECV_DEVFN specv_shard_place specv_thread_choose_shard(const specv_tile *shards, int num_shards,
                                                        uint64_t uniform) {
    return specv_i_choose_rank(&shards->sum, (int64_t)sizeof(specv_tile), num_shards, -1, 0,
                               uniform);
}

/* The token, on the rank that draws it.
   Call: warp. In: scores[0..num_ids): logits of the rank's columns, of dtype; tiles: of them, as
   for specv_warp_shard_sum; row, scale; place: of specv_thread_choose_shard. Out: the column,
   counted from the rank's first one; -1 if tiles are not those of the scores. The same in all
   lanes.
   Cost: the tiles up to the place, a tile of scores; 4 or 8 scans of a warp. */
SPECV_DEVFN int32_t specv_warp_draw_in_shard(const void *scores, int dtype, int64_t num_ids,
                                             const specv_tile *tiles, int num_tiles,
                                             const specv_distribution *row,
                                             const specv_scale *scale, specv_shard_place place) {
    const int lane = specv_i_lane(), unit = specv_i_unit(dtype);
    uint64_t left = place.left;
    int tile = -1;
    int32_t n = 0;
#pragma unroll 1
    for (int base = 0; base < num_tiles && tile < 0; base += 32) {
        const int t = base + lane < num_tiles ? base + lane : num_tiles - 1;
        const int32_t its_n =
            specv_softmax_weight(specv_i_max(tiles[t].max, scale->floor), scale).n;
        const uint32_t finer = (uint32_t)(row->n - its_n);
        const uint64_t part =
            base + lane < num_tiles ? specv_i_shift_right(tiles[t].sum, finer) : 0;
        const uint64_t up_to = specv_i_warp_inclusive_add(part);
        const int at = specv_warp_first_reject(left < up_to);
        left -= __shfl_sync(SPECV_FULL_WARP, at < 32 ? up_to - part : up_to, at < 32 ? at : 31);
        if (at == 32) continue;
        const uint32_t its_finer = __shfl_sync(SPECV_FULL_WARP, finer, at);
        left = left << its_finer | specv_i_shift_right(place.low, 64 - its_finer);
        n = __shfl_sync(SPECV_FULL_WARP, its_n, at), tile = base + at;
    }
    if (tile < 0) return -1;
    float score[32];
    specv_warp_load_tile(score, scores, dtype, num_ids, tile);
    int32_t column = -1;
#pragma unroll
    for (int run = 0; run < 32; run += 4) { /* lanes have `unit` ids in order, 4 or 8 */
        const int is_first = unit == 4 || run % 8 == 0;
        const int count = unit == 4 ? 4 : 8;
        uint64_t units[8], mine = 0;
        if (!is_first || column >= 0) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            units[e] = 0;
            if (e >= count || run + e >= 32) continue;
            const specv_weight w =
                specv_softmax_weight(specv_i_max(score[(run + e) & 31], scale->floor), scale);
            units[e] = specv_weight_units(&w, n), mine += units[e];
        }
        const uint64_t up_to = specv_i_warp_inclusive_add(mine);
        const int owner = specv_warp_first_reject(left < up_to);
        if (owner == 32) {
            left -= __shfl_sync(SPECV_FULL_WARP, up_to, 31);
            continue;
        }
        uint64_t rest = left - (up_to - mine); /* of the owner; what others have does not matter */
        int at = 0;
#pragma unroll
        for (int e = 0; e < 7; ++e)
            if (at == e && rest >= units[e]) rest -= units[e], ++at;
        column = tile * SPECV_TILE_IDS + (run / unit * 32 + lane) * unit + at;
        column = __shfl_sync(SPECV_FULL_WARP, column, owner);
    }
    return column;
}

/* The tile of the rank that the place is in. Call: warp. */
SPECV_DEVFN specv_i_chosen specv_i_warp_choose_own_tile(const specv_i_request *r,
                                                        const specv_i_weights *w,
                                                        const specv_i_memory *m, int64_t row,
                                                        specv_shard_place place) {
    const int of_without = w->without < 0 ? -1 : w->without / SPECV_TILE_IDS;
    specv_i_chosen c = {place.left, -1, 0};
#pragma unroll 1
    for (int base = 0; base < m->num_tiles; base += 32) {
        const int t = base + specv_i_lane();
        uint64_t part = 0;
        uint32_t finer = SPECV_I_FINER_PROBS;
        int32_t n = 0;
        if (t < m->num_tiles && w->q_scores) {
            part = m->residuals[row * m->num_tiles + t].gain >> SPECV_I_FINER_PROBS;
        } else if (t < m->num_tiles) {
            const specv_tile *tile = m->tiles + row * m->num_tiles + t;
            uint64_t sum = tile->sum;
            n = specv_softmax_weight(specv_i_max(tile->max, r->target.scale.floor),
                                     &r->target.scale)
                    .n;
            finer = (uint32_t)(w->p.n - n);
            if (t == of_without && sum) sum -= specv_i_units(r, w, w->without, n);
            part = specv_i_shift_right(sum, finer);
        }
        const uint64_t up_to = specv_i_warp_inclusive_add(part);
        const int at = specv_warp_first_reject(c.left < up_to);
        if (at == 32) {
            c.left -= __shfl_sync(SPECV_FULL_WARP, up_to, 31);
            continue;
        }
        c.left -= __shfl_sync(SPECV_FULL_WARP, up_to - part, at);
        finer = __shfl_sync(SPECV_FULL_WARP, finer, at);
        c.n = __shfl_sync(SPECV_FULL_WARP, n, at), c.tile = base + at;
        c.left = c.left << finer | specv_i_shift_right(place.low, 64 - finer);
        return c;
    }
    return c; /* another wrote our scratch */
}

/* Is this rank the one? */
SPECV_DEVFN int specv_i_is_own_rank(const specv_i_shard *s, int rank) {
    const specv_i_record_head *head = (const specv_i_record_head *)(s->gathered + rank * s->stride);
    return s->num_ids > 0 && head->num_ids == s->num_ids && head->first_id == s->first_id;
}

/* Stores what this rank has drawn; column -1: nothing. Call: the thread that has it. */
SPECV_DEVFN void specv_i_put_drawn(const specv_i_shard *s, const specv_i_request *r, int b, int k,
                                   int column) {
    specv_i_drawn drawn = {-1, 0};
    if (column >= 0) {
        drawn.token = s->first_id + column;
        drawn.score = specv_i_own_score(&r->target, k, column);
    }
    ((specv_i_drawn *)(s->record + s->to.tokens))[b] = drawn;
}

/* Draws the token from p at position o->accepted, without the draft there if the outcome says so,
   if it is the rank's. Call: block. */
SPECV_DEVFN void specv_i_block_draw_from_p(const specv_verify_sample_desc *d,
                                           const specv_i_memory *m, const specv_i_shard *s,
                                           const specv_i_request *r, int b, specv_i_outcome *o) {
    const int k = o->accepted;
    const int64_t row = r->first_row + k;
    const specv_tile *shards = s->merged.tiles + row * s->num_shards;
    const uint64_t uniform = specv_i_sample_uniform(d, b, k, &o->status);
    if (r->cut & SPECV_I_OF_TARGET) { /* every rank has drawn it */
        if (specv_i_thread() == 0) specv_i_put_drawn(s, r, b, k, -1);
        return;
    }
    specv_i_weights w = specv_i_weights_of_p(r, &s->merged.rows[row], k);
    int less_of = -1, column = -1;
    if (o->next == SPECV_I_DRAW_WITHOUT) {
        less_of = specv_i_owner_of(s, specv_i_draft_token(d, r, k));
        if (less_of >= 0 && specv_i_is_own_rank(s, less_of))
            w.without = (int32_t)specv_i_draft_token(d, r, k) - s->first_id;
    }
    specv_shard_place place =
        specv_i_choose_rank(&shards->sum, (int64_t)sizeof(specv_tile), s->num_shards, less_of,
                            less_of < 0 ? 0 : s->lost[row], uniform);
    if (place.rank < 0 && o->next == SPECV_I_DRAW_WITHOUT) {
        o->status |= SPECV_ROW_ZERO_RESIDUAL;
        w.without = -1;
        place = specv_i_choose_rank(&shards->sum, (int64_t)sizeof(specv_tile), s->num_shards, -1, 0,
                                    uniform);
    }
    o->next = SPECV_I_DRAW;
    if (place.rank >= 0 && specv_i_is_own_rank(s, place.rank)) {
        const specv_i_chosen chosen = specv_i_warp_choose_own_tile(r, &w, m, row, place);
        if (chosen.tile >= 0) column = specv_i_block_draw_in(r, &w, chosen, s->num_ids);
    }
    if (specv_i_thread() == 0) specv_i_put_drawn(s, r, b, k, column);
}

/* Behind the exchange that says all of rows: they are put together and judged as where tiles are a
   rank's own. Without further exchanges, emitted, too. Call: block. */
SPECV_DEVFN void specv_i_block_shard_judge(const specv_shard_task *task) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_evidence evidence;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    const int b = (int)blockIdx.x, thread = specv_i_thread();
    specv_i_begin(d->verify.chained);
    specv_i_block_open_shard(d, s, b, &opened);
    const specv_i_request r = opened;
    specv_i_said said = {s->p + r.first_row, s->q + r.first_row, 0};
    const int all_rows = r.target_rows + r.draft_rows;
    if (!r.cut && s->from.kind == SPECV_I_RECORD_STATS)
        specv_i_block_take_stats(s, &r, d->rule == SPECV_RULE_COUPLED, 0, all_rows);
    else if (!r.cut)
        specv_i_block_take_sums(d, s, &r, 0, all_rows);
    specv_i_block_gather(d, &r, &s->merged, b, specv_i_may(&r), r.cut ? SPECV_I_ROWS_DRAWN : 0,
                         &said, 0, &evidence);
    specv_i_outcome o = specv_i_block_verdict(d, &r, &s->merged, b, &evidence, &said);
    const int here = specv_i_rows_are_here(&r);
    for (int i = thread; i < all_rows; i += SPECV_SAMPLE_THREADS) {
        const int64_t at = specv_i_row_of(&r, m, i);
        specv_distribution row = here ? evidence.rows[i] : s->merged.rows[at];
        if (here) s->merged.rows[at] = row;
        row.id -= s->first_id; /* of those that are one id */
        m->rows[at] = row;
    }
    __syncthreads();
    specv_distribution p = specv_i_plain_distribution();
    if (r.target_rows && o.next > SPECV_I_BONUS) p = s->merged.rows[r.first_row + o.accepted];
    if (s->to.kind == SPECV_I_NO_RECORD) {
        const int has_p = r.target_rows && o.next > SPECV_I_BONUS;
        if (o.next == SPECV_I_RESIDUAL) specv_i_block_draw_alone(d, m, s, &r, b, &o, &p);
        if (has_p && r.cut & SPECV_I_OF_TARGET) {
            said.next = specv_i_block_score_of_next(s, r.first_row + o.accepted, &o, &p);
            if (o.next > SPECV_I_TOKEN && p.kind == SPECV_SOFTMAX && d->sample_uniform)
                specv_i_sample_uniform(d, b, o.accepted, &o.status);
        } else if (has_p && s->from.p) {
            said.next = said.p[o.accepted];
        }
        specv_i_block_put_scores(d, s, &r, b, &o, &said);
        specv_i_block_emit_from(d, &r, &s->merged, b, o, &p, 1, 0, 0, &said);
        return;
    }
    specv_i_block_begin_record(d, s, &r.row, b, r.status & SPECV_I_SHARD_MARKS);
    if (o.next > SPECV_I_TOKEN && o.next != SPECV_I_RESIDUAL && p.kind == SPECV_SOFTMAX &&
        s->to.kind == SPECV_I_RECORD_TOKENS)
        specv_i_block_draw_from_p(d, m, s, &r, b, &o);
    else if (s->to.kind == SPECV_I_RECORD_TOKENS && thread == 0)
        specv_i_put_drawn(s, &r, b, 0, -1);
    if (thread == 0) m->plans[b] = o;
}

/* Sums of the rank over what may emit the token, where drafts have scores and one was rejected.
   Call: block. */
SPECV_DEVFN void specv_i_block_shard_gains(const specv_shard_task *task, int b, int block,
                                           int num_blocks) {
    __shared__ specv_i_request opened;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    const int lane = specv_i_lane(), searching = d->rule == SPECV_RULE_BLOCK;
    specv_i_begin(d->verify.chained);
    const specv_i_outcome o = m->plans[b];
    if (o.next != SPECV_I_RESIDUAL) return;
    if (specv_i_thread() < 32) {
        const specv_i_request of_block = specv_i_open_limited(d, m, s, b);
        if (lane == 0) opened = of_block;
    }
    __syncthreads();
    const specv_i_request r = opened;
    const int positions = searching ? o.usable : 1, num_items = positions * m->num_tiles;
    const float *prefixes = m->prefixes + r.first_row;
    num_blocks = num_blocks < num_items ? num_blocks : num_items;
    if (block >= (num_blocks ? num_blocks : 1)) return;
    specv_i_weights w;
    w.without = -1;
    specv_i_block_residuals(d, &r, m, &o, prefixes, searching, &w, block, num_blocks);
    const int arrival =
        specv_i_block_arrives(&m->tickets[2 * b + 1], block, num_blocks ? num_blocks : 1);
    if (arrival == SPECV_I_NOT_LAST) return;
    if (arrival == SPECV_I_BAD_TICKET)
        specv_i_block_begin_record(d, s, &r.row, b, SPECV_ROW_BAD_TICKET);
    for (int i = specv_i_thread() / 32; i < positions; i += SPECV_SAMPLE_THREADS / 32) {
        const int64_t row = r.first_row + (searching ? i : o.accepted);
        specv_i_gains sum = {0, 0, 0};
        const int has = !searching || specv_i_less(0.f, prefixes[i]);
        for (int t = lane; has && t < m->num_tiles; t += 32) {
            const specv_i_residual of_tile = m->residuals[row * m->num_tiles + t];
            sum.weight += of_tile.gain >> SPECV_I_FINER_PROBS, sum.gain += of_tile.gain;
            sum.rest += of_tile.rest & ~SPECV_I_NAN_IN_TILE;
        }
        sum.weight = specv_i_warp_add(sum.weight), sum.gain = specv_i_warp_add(sum.gain);
        sum.rest = specv_i_warp_add(sum.rest);
        if (lane == 0)
            ((specv_i_gains *)(s->record + s->to.gains))[searching ? row : (int64_t)b] = sum;
    }
}

/* Behind that exchange: the token from (P p - q)+, or from p. Call: block. */
SPECV_DEVFN void specv_i_block_draw_residual(const specv_verify_sample_desc *d,
                                             const specv_i_memory *m, const specv_i_shard *s,
                                             specv_i_request *r, int b, specv_i_outcome *o) {
    const int block_rule = d->rule == SPECV_RULE_BLOCK, thread = specv_i_thread();
    const float *prefixes = m->prefixes + r->first_row;
    const int64_t one = (int64_t)1 << 50;
    if (block_rule) {
        for (int item = thread; item < o->usable * s->num_shards; item += SPECV_SAMPLE_THREADS) {
            const int i = item / s->num_shards, rank = item - i * s->num_shards;
            const int64_t row = r->first_row + i;
            const specv_i_gains *of =
                (const specv_i_gains *)(s->gathered + rank * s->stride + s->from.gains) + row;
            const specv_i_residual sums = {of->gain, of->rest};
            s->merged.residuals[row * s->num_shards + rank] = sums;
        }
        __syncthreads();
        specv_i_block_search(d, r, &s->merged, b, prefixes, o);
    }
    const int k = o->accepted;
    const int64_t row = r->first_row + k;
    specv_i_weights w;
    specv_i_open_weights(&w, r, m, o, k);
    w.prefix = o->prefix, w.without = -1;
    if (w.p.kind != SPECV_SOFTMAX) {
        if (thread == 0) specv_i_put_drawn(s, r, b, k, -1);
        return;
    }
    const char *first = s->gathered + s->from.gains +
                        (int64_t)sizeof(specv_i_gains) * (block_rule ? row : (int64_t)b);
    const uint64_t uniform = specv_i_sample_uniform(d, b, k, &o->status);
    uint64_t all = 0;
    for (int rank = 0; rank < s->num_shards; ++rank) {
        const specv_i_gains *of = (const specv_i_gains *)(first + rank * s->stride);
        all += of->gain - of->rest;
    }
    if (specv_i_bad_sum(all, specv_fixed50(w.prefix) - (uint64_t)one))
        o->status |= SPECV_ROW_BAD_SUM;
    const specv_shard_place place =
        specv_i_choose_rank(first, s->stride, s->num_shards, -1, 0, uniform);
    if (place.rank < 0) {
        o->status |= SPECV_ROW_ZERO_RESIDUAL, o->next = SPECV_I_DRAW;
        specv_i_block_draw_from_p(d, m, s, r, b, o);
        return;
    }
    specv_i_chosen chosen = {0, -1, 0};
    if (specv_i_is_own_rank(s, place.rank))
        chosen = specv_i_warp_choose_own_tile(r, &w, m, row, place);
    if (chosen.tile < 0) {
        if (thread == 0) specv_i_put_drawn(s, r, b, k, -1);
        return;
    }
    const int at = chosen.tile * SPECV_TILE_IDS + 4 * thread;
    specv_i_quads v;
    float gain[4];
    int unused = 0;
    specv_i_load_quads(&v, r, &w, at, s->num_ids);
    specv_i_quad_gains(gain, r, &w, &v, at, s->num_ids, &unused);
    const int32_t column = specv_i_block_find_id(gain, at, chosen.left);
    if (column >= 0) specv_i_put_drawn(s, r, b, k, column);
}

/* The step behind the exchange of sums over what p has more of than q. Call: block. */
SPECV_DEVFN void specv_i_block_shard_draw(const specv_shard_task *task) {
    __shared__ specv_i_request opened;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    const int b = (int)blockIdx.x, thread = specv_i_thread();
    specv_i_begin(d->verify.chained);
    specv_i_block_open_shard(d, s, b, &opened);
    specv_i_request r = opened;
    specv_i_outcome o = m->plans[b];
    specv_i_block_begin_record(d, s, &r.row, b, r.status & SPECV_I_SHARD_MARKS);
    const int64_t row = r.first_row + o.accepted;
    if (!r.row.readable || o.next <= SPECV_I_TOKEN) {
        if (thread == 0) specv_i_put_drawn(s, &r, b, 0, -1);
        return;
    }
    if (o.next == SPECV_I_RESIDUAL)
        specv_i_block_draw_residual(d, m, s, &r, b, &o);
    else if (s->merged.rows[row].kind == SPECV_SOFTMAX)
        specv_i_block_draw_from_p(d, m, s, &r, b, &o);
    else if (thread == 0)
        specv_i_put_drawn(s, &r, b, 0, -1);
    __syncthreads(); /* the plan is read */
    if (thread == 0) m->plans[b] = o;
}

/* The last step: outputs. Call: block. */
SPECV_DEVFN void specv_i_block_shard_emit(const specv_shard_task *task) {
    __shared__ specv_i_request opened;
    const specv_verify_sample_desc *d = &task->sample.d;
    const specv_i_memory *m = &task->sample.memory;
    const specv_i_shard *s = &task->shard;
    const int b = (int)blockIdx.x;
    specv_i_begin(d->verify.chained);
    specv_i_block_open_shard(d, s, b, &opened);
    const specv_i_request r = opened;
    specv_i_said said = {s->p + r.first_row, s->q + r.first_row, 0};
    specv_distribution p = specv_i_plain_distribution();
    specv_i_outcome o = {0, 0, 0, SPECV_I_NOTHING, 1, r.status};
    if (r.row.readable) o = m->plans[b];
    if (r.target_rows && o.next > SPECV_I_BONUS) p = s->merged.rows[r.first_row + o.accepted];
    if (o.next > SPECV_I_TOKEN && o.next != SPECV_I_RESIDUAL && p.kind == SPECV_SOFTMAX &&
        r.cut & SPECV_I_OF_TARGET) {
        said.next = specv_i_block_score_of_next(s, r.first_row + o.accepted, &o, &p);
    } else if (o.next > SPECV_I_TOKEN && p.kind == SPECV_SOFTMAX) {
        p.id = -1;
        for (int rank = 0; rank < s->num_shards; ++rank) {
            const specv_i_drawn drawn =
                ((const specv_i_drawn *)(s->gathered + rank * s->stride + s->from.tokens))[b];
            if (drawn.token >= 0) p.id = drawn.token, said.next = drawn.score;
        }
    }
    specv_i_block_put_scores(d, s, &r, b, &o, &said);
    specv_i_block_emit_from(d, &r, &s->merged, b, o, &p, 1, 0, 0, &said);
}

#endif /* __CUDACC__ */

/* ==================================================================================== >>pack

   KV rows of accepted drafts, back to back, for an engine that goes on with packed planes.
     B1  specv_pack_kv           one launch
     B2  specv_verify_pack_kv    A1 and B1: one launch while comparing all drafts in every block
                                 costs less than a second one, else two, chained
   Every block finds the offsets by itself and copies an equal share of the output's bytes; in a
   small step, of the drafts' bytes, as far as they are accepted. For kernels of your own:
   specv_block_accept_tile, specv_block_offsets_tile, specv_warp_pack_tile.
   Needs: >>greedy (B2 compares as A1 does, and starts its kernel for large batches). */

/* Where accepted KV rows come from and go to. Row (b, j) of a plane starts at
   dense  src + b * src_seq_stride_bytes + j * src_pos_stride_bytes,
   CSR    src + (row_start[b] + j) * src_pos_stride_bytes,
   and is copied to dst + (offsets[b] + j) * dst_row_stride_bytes. */
typedef struct specv_kv_pack {
    const void *const *src_planes; /* device table [num_planes] of planes, or null: src, dst */
    void *const *dst_planes;       /* the same for dst; a plane null on either side is skipped */
    const void *src;               /* the only plane, when there is no table */
    void *dst;
    int32_t *offsets;             /* out [batch + 1]: exclusive scan of the row counts */
    int64_t row_bytes;            /* bytes of one KV row, any number */
    int64_t src_pos_stride_bytes; /* 0 = row_bytes */
    int64_t src_seq_stride_bytes; /* dense; 0 = max_draft * src_pos_stride_bytes */
    int64_t dst_row_stride_bytes; /* 0 = row_bytes */
    int64_t capacity_rows;        /* rows that each dst plane holds; must be set */
    int32_t num_planes;           /* length of the tables; 0 or 1 without them */
    int32_t num_sms;              /* 0 = ask the runtime for the current device */
} specv_kv_pack;

/* B1. Packing: the first accepted_len[b] KV rows of every row, back to back. */
typedef struct specv_pack_kv_desc {
    uint32_t canary0;
    int32_t keep_status; /* 1 = add bits to row_status (after A1); 0 = store it */
    specv_rows rows;
    const int32_t *accepted_len; /* [batch] */
    uint32_t *row_status;        /* out [batch], or null */
    specv_kv_pack kv;
    int32_t chained; /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_pack_kv_desc;

/* B2. A1, then B1 of what it accepted. */
typedef struct specv_verify_pack_kv_desc {
    specv_verify_greedy_desc verify;
    specv_kv_pack kv;
    uint32_t reserved; /* must be 0 */
    uint32_t canary1;
} specv_verify_pack_kv_desc;

#define SPECV_PACK_THREADS 512  /* specv_pack_kv_kernel, specv_verify_pack_kv_kernel */
#define SPECV_TILE_ROWS    2048 /* rows that a packing block scans at a time */

/* B2 is one launch while comparing all tokens again in every block costs less than a launch. A
   small step (below): up to so many drafts, in padded columns. Cycles of GPGPU-Sim's V100, 8 drafts
   a row, rows of 1 KiB, inputs in L2: batch 4, 1,459 against 2,002 in two launches, which cost
   1,000 to 2,000 more; batch 32, 2,807 against 2,441. Any other step, one launch against two, when
   B1's blocks were all of 16 warps: batch 4, 5861 against 1224 + 5192; batch 32, 7493 against
   1248 + 5187; batch 128, rows of 2 KiB, 13,385 against 1370 + 6524. Simulated: never timed. */
#define SPECV_SMALL_STEP_DRAFTS 4096
#define SPECV_ONE_LAUNCH_DRAFTS 256

/* A small step: dense, at most 128 drafts a row, in columns padded to a power of two at most
   SPECV_SMALL_STEP_DRAFTS in all, KV in units of 16 bytes. Which (row, draft, unit) a lane copies
   does not depend on what is accepted, only whether it does and where to: it looks for nothing.
   B1's differs in that a row has one place, its length, which is read instead of found. */
#define SPECV_I_SMALL_DRAFTS 128
#define SPECV_I_ALONE_DRAFTS 128   /* in columns: each warp looks at all of them, no barrier */
#define SPECV_I_FLAT_UNITS   32768 /* up to so many a lane has one in flight, then SPECV_I_UNITS */
#define SPECV_I_TURNS        8     /* tokens of a lane, of drafts and of targets */
#define SPECV_I_SMALL_ROWS   (SPECV_PACK_THREADS * SPECV_I_TURNS / 8)

typedef struct specv_i_small_task {
    specv_verify_pack_kv_desc d; /* resolved; of B1's what it has, too */
    uint32_t verify_blocks;      /* the first blocks: a warp per row; B1: none */
    uint32_t unit_blocks;        /* blocks that share a plane's units, behind one for offsets */
    uint32_t log_columns;        /* of a row; B1: 0, its length */
    uint32_t turns;              /* 1 to SPECV_I_TURNS, B1: 1. A warp looks at 32 * turns places */
    uint32_t log_places;         /* of 32 * turns */
    uint32_t warp_rows, row_turns;
    uint32_t loops; /* a warp has more than one plane or unit */
    uint32_t alone; /* each warp looks at all drafts: no barrier */
    uint32_t units; /* of all drafts of a plane */
    uint32_t flight;
    uint32_t capacity;                    /* capacity_rows, at most 2^30 */
    specv_i_divisor plane_step;           /* blocks that share a unit's planes */
    specv_i_divisor row_units, seq_units; /* of a KV row, of a sequence's max_draft rows */
} specv_i_small_task;

/* Columns of a row: 8, 16, 32, 64, 128. */
SPECV_NUMFN int specv_i_log_columns(int max_draft) {
    int log = 3;
    while (1 << log < max_draft) ++log;
    return log;
}

/* Blocks of B2's one kernel that write what A1 does; all others copy. */
SPECV_NUMFN int specv_i_verify_blocks(int batch) {
    int blocks = (batch + SPECV_PACK_THREADS / 32 - 1) / (SPECV_PACK_THREADS / 32);
    return blocks < 64 ? blocks : 64;
}

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int specv_i_kv_validate(const specv_kv_pack *kv, const specv_rows *r) {
    int64_t pos_stride = kv->src_pos_stride_bytes ? kv->src_pos_stride_bytes : kv->row_bytes;
    int64_t dst_stride = kv->dst_row_stride_bytes ? kv->dst_row_stride_bytes : kv->row_bytes;
    int64_t positions = specv_i_is_csr(r) ? r->num_draft_tokens : r->max_draft;
    int tables = kv->src_planes || kv->dst_planes;
    SPECV_CHECK(tables ? kv->num_planes >= 1 : kv->num_planes >= 0 && kv->num_planes <= 1,
                NUM_PLANES);
    SPECV_CHECK(specv_i_aligned(kv->src_planes, sizeof(void *)), SRC);
    SPECV_CHECK(specv_i_aligned(kv->dst_planes, sizeof(void *)), DST);
    SPECV_CHECK(specv_i_aligned(kv->offsets, 4), OFFSETS);
    SPECV_CHECK(kv->row_bytes > 0, ROW_BYTES);
    SPECV_CHECK(pos_stride >= kv->row_bytes, SRC_POS_STRIDE);
    SPECV_CHECK(dst_stride >= kv->row_bytes, DST_ROW_STRIDE);
    SPECV_CHECK(kv->capacity_rows > 0, CAPACITY);
    SPECV_CHECK(specv_i_fits(kv->capacity_rows, dst_stride, 0), SIZE);
    SPECV_CHECK(specv_i_fits((int64_t)r->batch * r->max_draft, kv->row_bytes, 0), SIZE);
    SPECV_CHECK(specv_i_fits(positions, pos_stride, 0), SIZE);
    if (kv->src_seq_stride_bytes) {
        SPECV_CHECK(!specv_i_is_csr(r), SRC_SEQ_STRIDE);
        SPECV_CHECK(kv->src_seq_stride_bytes >=
                        (positions ? (positions - 1) * pos_stride + kv->row_bytes : 0),
                    SRC_SEQ_STRIDE);
        SPECV_CHECK(specv_i_fits(r->batch, kv->src_seq_stride_bytes, 0), SIZE);
    } else if (!specv_i_is_csr(r)) {
        SPECV_CHECK(specv_i_fits((int64_t)r->batch * positions, pos_stride, 0), SIZE);
    }
    SPECV_CHECK(kv->num_sms >= 0 && kv->num_sms <= 65535, NUM_SMS);
    if (r->batch > 0) {
        SPECV_CHECK(kv->offsets, OFFSETS);
        if (positions > 0) { /* a step without any draft may come with empty buffers */
            SPECV_CHECK(tables ? kv->src_planes && !kv->src : kv->src != NULL, SRC);
            SPECV_CHECK(tables ? kv->dst_planes && !kv->dst : kv->dst != NULL, DST);
        }
    }
    return SPECV_OK;
}

SPECV_HOSTFN int specv_pack_kv_validate(const specv_pack_kv_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    if ((status = specv_i_rows_validate(&d->rows)) != SPECV_OK) return status;
    SPECV_CHECK(d->rows.batch == 0 || d->accepted_len, ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4), ACCEPTED_LEN);
    SPECV_I_CHECK_STATUS(d, row_status);
    return specv_i_kv_validate(&d->kv, &d->rows);
}

SPECV_HOSTFN int specv_verify_pack_kv_validate(const specv_verify_pack_kv_desc *d) {
    int status;
    SPECV_CHECK(d, NULL_DESC);
    SPECV_CHECK(d->canary1 == 0 && d->reserved == 0, CANARY);
    if ((status = specv_verify_greedy_validate(&d->verify)) != SPECV_OK) return status;
    return specv_i_kv_validate(&d->kv, &d->verify.rows);
}

SPECV_HOSTFN void specv_i_kv_resolve(specv_kv_pack *kv, const specv_rows *r) {
    if (!kv->src_pos_stride_bytes) kv->src_pos_stride_bytes = kv->row_bytes;
    if (!kv->src_seq_stride_bytes)
        kv->src_seq_stride_bytes = specv_i_is_csr(r) ? 0 : r->max_draft * kv->src_pos_stride_bytes;
    if (!kv->dst_row_stride_bytes) kv->dst_row_stride_bytes = kv->row_bytes;
    if (!kv->num_planes) kv->num_planes = 1;
}

SPECV_HOSTFN void specv_pack_kv_resolve(specv_pack_kv_desc *d) {
    specv_i_kv_resolve(&d->kv, &d->rows);
}

SPECV_HOSTFN void specv_verify_pack_kv_resolve(specv_verify_pack_kv_desc *d) {
    specv_verify_greedy_resolve(&d->verify);
    specv_i_kv_resolve(&d->kv, &d->verify.rows);
}

/* Is it a small step (see SPECV_I_SMALL_DRAFTS)? For any valid descriptor. */
SPECV_HOSTFN int specv_i_is_small_pack(const specv_rows *r, const specv_kv_pack *kv) {
    const uint64_t bits = (uint64_t)kv->src | (uint64_t)kv->dst | (uint64_t)kv->row_bytes |
                          (uint64_t)kv->src_pos_stride_bytes | (uint64_t)kv->src_seq_stride_bytes |
                          (uint64_t)kv->dst_row_stride_bytes;
    if (specv_i_is_csr(r) || r->max_draft < 1 || r->max_draft > SPECV_I_SMALL_DRAFTS) return 0;
    if ((int64_t)r->batch << specv_i_log_columns(r->max_draft) > SPECV_SMALL_STEP_DRAFTS) return 0;
    return bits % 16 == 0 && kv->row_bytes / 16 < (1 << 30) / (r->batch * r->max_draft);
}

/* How many kernels B2 launches for this descriptor: 1, or 2 if it is no small step, and every block
   would have to compare more than SPECV_ONE_LAUNCH_DRAFTS drafts. The descriptor must be valid. */
SPECV_HOSTFN int specv_verify_pack_kv_launches(const specv_verify_pack_kv_desc *d) {
    int64_t drafts = (int64_t)d->verify.rows.batch * d->verify.rows.max_draft;
    return drafts > SPECV_ONE_LAUNCH_DRAFTS && !specv_i_is_small_pack(&d->verify.rows, &d->kv) ? 2
                                                                                               : 1;
}

#if SPECV_I_LAUNCHERS
/* B1. One launch, two round trips: lengths, then KV; CSR three, with where a row's KV begins in
   between. Each block re-scans accepted_len (4 bytes a row) and copies a share of the output bytes;
   each accepted byte is read and written once. kv.src and kv.dst planes must not overlap. */
SPECV_LAUNCHER int specv_pack_kv(const specv_pack_kv_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_pack_kv);

/* B2. A1 and B1 in one launch, two round trips (tokens, then KV; three if it is no small step and
   num_active or lengths are given), or in two launches chained by programmatic dependent launch
   where supported: see specv_verify_pack_kv_launches. */
SPECV_LAUNCHER int specv_verify_pack_kv(const specv_verify_pack_kv_desc *d,
                                        struct CUstream_st *stream) SPECV_AS(specv_verify_pack_kv);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

#define SPECV_I_FLIGHT 8 /* drafts, and as many targets, that a thread has in flight */

/* specv_block_accept_tile for a dtype that the compiler knows. The tile is one array of num_rows x
   columns elements that the block walks through, each thread SPECV_I_FLIGHT elements at a time. */
SPECV_DEVFN void specv_i_block_accept_tile(const specv_verify_greedy_desc *d, int row0,
                                           int num_rows, int32_t *lens, int32_t *work, int dtype) {
    const int thread = specv_i_thread(), num_threads = specv_i_num_threads();
    const int lane = specv_i_lane(), max_draft = d->rows.max_draft;
    /* Columns are padded to a power of two up to 32, then to whole warps, so that a row's
       positions never straddle a warp without filling it. */
    const int columns = max_draft > 16  ? (max_draft + 31) / 32 * 32
                        : max_draft > 8 ? 16
                        : max_draft > 4 ? 8
                                        : 4;
    const int lane0 = columns < 32 ? lane & ~(columns - 1) : 0;
    const unsigned mine_below = ((1u << lane) - 1) & ~((1u << lane0) - 1);
    const unsigned total = (unsigned)num_rows * (unsigned)columns;
    /* The next element is a block's width ahead; stepping there avoids a division for each. */
    const int step_row = num_threads / columns, step_j = num_threads % columns;
    int row = thread / columns, j = thread % columns;
    /* CSR rows begin at row_start[b] and row_start[b] + b. */
    const int csr = specv_i_is_csr(&d->rows), has_options = d->vocab || d->num_eos;
    const int64_t draft_stride = csr ? 0 : d->draft_stride_elems;
    const int64_t target_stride = csr ? 1 : d->target_stride_elems;

    /* lens holds 2 * position + (an accepted EOS is there) of the earliest stop so far: the
       minimum is the first stop, and half of it, rounded up, is the accepted length. */
    for (int i = thread; i < num_rows; i += num_threads) {
        work[i] = specv_thread_load_row(&d->rows, row0 + i).n_draft;
        lens[i] = 2 * work[i];
    }
    __syncthreads();
#pragma unroll 1
    for (unsigned base = (unsigned)(thread - lane); base < total;
         base += SPECV_I_FLIGHT * (unsigned)num_threads) {
        uint2 draft_raw[SPECV_I_FLIGHT] = {}, target_raw[SPECV_I_FLIGHT] = {};
        unsigned has_draft = 0; /* bit u: element u is a draft */
        int ahead_row = row, ahead_j = j;
#pragma unroll
        for (int u = 0; u < SPECV_I_FLIGHT; ++u) {
            if (base + (unsigned)(u * num_threads) >= total) break; /* all of the warp's */
            if (ahead_row < num_rows && ahead_j < work[ahead_row]) {
                int64_t b = row0 + ahead_row, from = ahead_j;
                if (csr) from += specv_i_row_first(&d->rows, b);
                specv_i_load_token(&draft_raw[u], d->draft_tokens, dtype, from + b * draft_stride);
                specv_i_load_token(&target_raw[u], d->target_tokens, dtype,
                                   from + b * target_stride);
                has_draft |= 1u << u;
            }
            ahead_row += step_row, ahead_j += step_j;
            if (ahead_j >= columns) ahead_j -= columns, ahead_row += 1;
        }
#pragma unroll
        for (int u = 0; u < SPECV_I_FLIGHT; ++u) {
            if (base + (unsigned)(u * num_threads) >= total) break;
            int stops = (int)(has_draft >> u & 1) &
                        specv_i_stops(d, draft_raw[u], target_raw[u], dtype, has_options);
            unsigned mask = __ballot_sync(SPECV_FULL_WARP, stops);
            if (stops && (mask & mine_below) == 0) { /* the row's first stop in this warp */
                int64_t draft = specv_i_token(draft_raw[u], dtype);
                int eos = draft == specv_i_token(target_raw[u], dtype) &&
                          specv_i_is_token(draft, d->vocab);
                atomicMin(&lens[row], 2 * j + eos);
            }
            row += step_row, j += step_j;
            if (j >= columns) j -= columns, row += 1;
        }
    }
    __syncthreads();
    for (int i = thread; i < num_rows; i += num_threads) lens[i] = (lens[i] + 1) / 2;
}

/* Accepted lengths of rows row0..row0+num_rows-1, without writing any output: lens[i] in shared
   memory. For kernels in which every block needs every length.
   Call: block. In: a valid, resolved descriptor; 2 * num_rows * max_draft fits in an int32.
   Scratch: work[num_rows] in shared memory.
   Sync: barriers inside; put one before lens is read, and before lens or work are reused.
   Cost: all drafts and targets of these rows once, SPECV_I_FLIGHT x 2 loads in flight per
   thread. */
SPECV_DEVFN void specv_block_accept_tile(const specv_verify_greedy_desc *d, int row0, int num_rows,
                                         int32_t *lens, int32_t *work) {
    if (d->token_dtype == SPECV_I64)
        specv_i_block_accept_tile(d, row0, num_rows, lens, work, SPECV_I64);
    else
        specv_i_block_accept_tile(d, row0, num_rows, lens, work, SPECV_I32);
}

/* Turns row counts into packed positions: offsets[i] = first + lens[0] + .. + lens[i-1].
   Returns offsets[num_rows].
   Call: block. In: lens[num_rows], shared. Out: offsets[num_rows + 1], shared, no alias of lens.
   Scratch: SPECV_BLOCK_SCAN_SMEM_WORDS words, shared. Sync: barriers at both ends. */
SPECV_DEVFN int32_t specv_block_offsets_tile(const int32_t *lens, int num_rows, int32_t first,
                                             int32_t *offsets, int32_t *scratch) {
    int per_thread = (num_rows + specv_i_num_threads() - 1) / specv_i_num_threads();
    int begin = specv_i_thread() * per_thread, end = begin + per_thread;
    int32_t sum = 0, total, before;
    end = end < num_rows ? end : num_rows;
    __syncthreads();
    if (num_rows <= 32) { /* the usual batch: every warp scans it alone, without a barrier */
        int lane = specv_i_lane();
        before = specv_warp_exclusive_scan(lane < num_rows ? lens[lane] : 0, &total);
    } else {
        for (int i = begin; i < end; ++i) sum += lens[i];
        before = specv_block_exclusive_scan(sum, &total, scratch);
    }
    before += first;
    for (int i = begin; i < end; ++i) {
        offsets[i] = before;
        before += lens[i];
    }
    if (specv_i_thread() == 0) offsets[num_rows] = first + total;
    __syncthreads();
    return first + total;
}

SPECV_DEVFN specv_i_places specv_i_pack_from(const specv_rows *rows, const specv_kv_pack *kv,
                                             int row0) {
    specv_i_places p = {};
    p.planes = kv->src_planes, p.plane = kv->src, p.seq0 = row0;
    specv_i_csr_places(&p, rows, row0);
    p.seq_stride_bytes = kv->src_seq_stride_bytes, p.pos_stride_bytes = kv->src_pos_stride_bytes;
    return p;
}

SPECV_DEVFN specv_i_places specv_i_pack_to(const specv_kv_pack *kv, const int32_t *offsets) {
    specv_i_places p = {};
    p.planes = (const void *const *)kv->dst_planes, p.plane = kv->dst, p.firsts = offsets;
    p.pos_stride_bytes = kv->dst_row_stride_bytes;
    return p;
}

/* Call: each warp of all blocks that copy together, with its rank among them. In: resolved kv. */
SPECV_DEVFN specv_plane_share specv_warp_plane_share(const specv_kv_pack *kv, int warp,
                                                     int num_warps) {
    const specv_rows dense = {};
    const specv_i_places from = specv_i_pack_from(&dense, kv, 0), to = specv_i_pack_to(kv, 0);
    specv_plane_share share = {0, 0, 0, warp, num_warps};
    specv_i_load_plane(&from, &to, kv->num_planes > 1 ? warp % kv->num_planes : 0, &share);
    return share;
}

/* Copies this warp's share of a tile's accepted KV rows, see specv_i_warp_copy_ragged. Rows that do
   not fit in capacity_rows are left out whole.
   Call: warp, with the share it was given. In: resolved rows and kv; rows row0..row0+num_rows-1
   with the offsets of specv_block_offsets_tile. Sync: none.
   Cost: one search of offsets, and one more where a row begins; each accepted byte read and written
   once. */
SPECV_DEVFN void specv_warp_pack_tile(const specv_rows *rows, const specv_kv_pack *kv, int row0,
                                      int num_rows, const int32_t *offsets,
                                      specv_plane_share share) {
    specv_i_ragged r;
    r.from = specv_i_pack_from(rows, kv, row0), r.to = specv_i_pack_to(kv, offsets);
    r.offsets = offsets, r.num_segments = num_rows;
    r.num_planes = kv->num_planes, r.num_heads = 1, r.head_bytes = kv->row_bytes;
    if (offsets[num_rows] > kv->capacity_rows)
        r.num_segments = offsets[0] < kv->capacity_rows
                             ? specv_thread_find_row(offsets, num_rows, kv->capacity_rows)
                             : 0;
    const specv_i_shape shape = specv_i_copy_shape(&r);
    const specv_i_lane_piece none = {};
    specv_i_warp_copy_ragged(&r, &shape, share, none);
}

/* Writes the tile's part of the descriptor's offsets, shared out over num_blocks blocks; the end of
   a tile is the start of the next, so only the last tile writes it.
   Call: block, of rank `block` among them. Sync: none. */
SPECV_DEVFN void specv_i_store_offsets(const specv_kv_pack *kv, int batch, int row0, int num_rows,
                                       const int32_t *offsets, int block, int num_blocks) {
    int step = num_blocks * specv_i_num_threads(), count = num_rows + (row0 + num_rows == batch);
    for (int i = block * specv_i_num_threads() + specv_i_thread(); i < count; i += step)
        kv->offsets[row0 + i] = offsets[i];
}

/* NO_SPACE if row i of the tile has KV that does not fit, else 0. */
SPECV_DEVFN uint32_t specv_i_space_status(const specv_kv_pack *kv, const int32_t *offsets, int i) {
    int overflows = offsets[i + 1] > offsets[i] && offsets[i + 1] > kv->capacity_rows;
    return overflows ? SPECV_ROW_NO_SPACE : 0;
}

/* The tokens at which a lane of a small step looks. */
typedef struct specv_i_pairs {
    uint2 draft[SPECV_I_TURNS], target[SPECV_I_TURNS];
    int32_t n_draft, num_active; /* of the row that the lane answers for */
} specv_i_pairs;

/* A warp has rows row0 .. row0 + warp_rows - 1, in turns of 32 places; lane i answers for row
   row0 + i. */
SPECV_DEVFN void specv_i_load_pairs(const specv_i_small_task *t, uint32_t row0, int dtype,
                                    specv_i_pairs *p) {
    const specv_verify_greedy_desc *v = &t->d.verify;
    const int lane = (int)threadIdx.x & 31, batch = v->rows.batch, max_draft = v->rows.max_draft;
    const uint2 none = {0, 0};
#pragma unroll
    for (int u = 0; u < SPECV_I_TURNS; ++u) {
        if (u > 0 && u >= (int)t->turns) break;
        const int place = 32 * u + lane, row = (int)row0 + (place >> t->log_columns);
        const int j = place & ((1 << t->log_columns) - 1);
        const int end = row < batch ? max_draft : 0;
        int64_t draft_at = row * v->draft_stride_elems + j;
        int64_t target_at = row * v->target_stride_elems + j;
        SPECV_I_EARLY("l", draft_at);
        SPECV_I_EARLY("l", target_at);
        p->draft[u] = none, p->target[u] = none;
        specv_i_load_token_below(j, end, 0, &p->draft[u], v->draft_tokens, dtype, draft_at);
        specv_i_load_token_below(j, end, 0, &p->target[u], v->target_tokens, dtype, target_at);
    }
}

SPECV_DEVFN void specv_i_load_limits(const specv_i_small_task *t, uint32_t row0, uint32_t warp_rows,
                                     specv_i_pairs *p) {
    const specv_rows *rows = &t->d.verify.rows;
    const uint32_t lane = threadIdx.x & 31;
    const int has_row = lane < warp_rows && row0 + lane < (uint32_t)rows->batch;
    p->n_draft = has_row ? rows->max_draft : 0, p->num_active = rows->batch;
    specv_i_load_given(&p->n_draft, has_row ? rows->draft_len : 0, row0 + lane);
    specv_i_load_given(&p->num_active, rows->num_active, 0);
}

/* The accepted length of the lane's row. Call: warp. Cost: a ballot a turn, two with EOS ids or a
   vocabulary. */
SPECV_DEVFN uint32_t specv_i_count_pairs(const specv_i_small_task *t, uint32_t row0,
                                         const specv_i_pairs *p) {
    const specv_verify_greedy_desc *v = &t->d.verify;
    const int dtype = v->token_dtype, has_options = v->vocab != 0 || v->num_eos != 0;
    const uint32_t lane = threadIdx.x & 31;
    /* The row begins at bit `bit` of turn `turn`, and is a part of that or several whole ones. */
    uint32_t turn = lane << t->log_columns >> 5, bit = lane << t->log_columns & 31;
    uint32_t n, stop = 255, eos = 0; /* 255: none so far */
    SPECV_I_EARLY("r", turn);
    SPECV_I_EARLY("r", bit);
    n = (uint32_t)p->n_draft > (uint32_t)v->rows.max_draft || (int)(row0 + lane) >= p->num_active
            ? 0
            : (uint32_t)p->n_draft;
#pragma unroll
    for (int u = 0; u < SPECV_I_TURNS; ++u) {
        if (u > 0 && u >= (int)t->turns) break;
        int stops = specv_i_stops(v, p->draft[u], p->target[u], dtype, has_options);
        const uint32_t mine = __ballot_sync(SPECV_FULL_WARP, stops) >> bit;
        const uint32_t chunk = (uint32_t)u - turn, at = (uint32_t)__ffs((int)mine) - 1;
        const int is_first = (chunk < t->row_turns) & (stop == 255) & (mine != 0);
        if (has_options) {
            const int64_t draft = specv_i_token(p->draft[u], dtype);
            stops &=
                draft == specv_i_token(p->target[u], dtype) && specv_i_is_token(draft, v->vocab);
            const uint32_t ends = __ballot_sync(SPECV_FULL_WARP, stops) >> bit;
            if (is_first) eos = ends >> at & 1;
        }
        if (is_first) stop = 32 * chunk + at;
    }
    return stop < n ? stop + eos : n; /* a stop behind the row's drafts is another row's */
}

/* B1: what is said of the row that the lane answers for. */
typedef struct specv_i_given_len {
    specv_row row;
    int32_t len;
} specv_i_given_len;

SPECV_DEVFN void specv_i_load_given_len(const specv_verify_greedy_desc *v, uint32_t row,
                                        specv_i_given_len *g) {
    if (row >= (uint32_t)v->rows.batch) return;
    specv_i_load_given(&g->len, v->accepted_len, row);
    g->row = specv_i_load_dense_row(&v->rows, (int)row);
}

/* The accepted length, 0 if the row is inert, or said to be bad in its status. */
SPECV_DEVFN uint32_t specv_i_check_given_len(specv_i_given_len *g) {
    if (!g->row.live) return 0;
    if ((uint32_t)g->len <= (uint32_t)g->row.n_draft) return (uint32_t)g->len;
    g->row.status |= SPECV_ROW_BAD_LENGTH;
    return 0;
}

/* What is accepted before a row, and of it. Packed, of the rows of a warp: 8 bits for its length,
   the others for the rows before it. base: what the warps before warp `lane` have. */
typedef struct specv_i_spans {
    uint32_t word, base;
} specv_i_spans;

SPECV_DEVFN uint32_t specv_i_span(const specv_i_small_task *t, specv_i_spans s,
                                  const uint32_t *words, uint32_t row, uint32_t *before) {
    const uint32_t word = t->alone ? __shfl_sync(SPECV_FULL_WARP, s.word, (int)row) : words[row];
    *before = word >> 8;
    if (!t->alone)
        *before +=
            __shfl_sync(SPECV_FULL_WARP, s.base, (int)(row << t->log_columns >> t->log_places));
    return word & 255;
}

/* Where a lane's units come from and go to, but for the packed row: all that is known before what
   is accepted. */
typedef struct specv_i_lane_units {
    int64_t from[SPECV_I_UNITS], within[SPECV_I_UNITS];
    uint32_t row[SPECV_I_UNITS], j[SPECV_I_UNITS]; /* no unit: a j that no length exceeds */
} specv_i_lane_units;

SPECV_DEVFN void specv_i_place_units(const specv_i_small_task *t, uint32_t first, int units,
                                     specv_i_lane_units *k) {
#pragma unroll
    for (int u = 0; u < units; ++u) {
        const uint32_t unit = first + 32u * (uint32_t)u;
        /* Two divisions that do not wait for each other. */
        uint32_t in_row, in_seq;
        const uint32_t pos = (uint32_t)specv_i_divide(unit, t->row_units, &in_row);
        const uint32_t b = (uint32_t)specv_i_divide(unit, t->seq_units, &in_seq);
        const uint32_t j = pos - b * (uint32_t)t->d.verify.rows.max_draft;
        k->within[u] = 16 * (int64_t)in_row;
        k->from[u] =
            k->within[u] + b * t->d.kv.src_seq_stride_bytes + j * t->d.kv.src_pos_stride_bytes;
        k->row[u] = unit < t->units ? b : 0, k->j[u] = unit < t->units ? j : 255;
        SPECV_I_EARLY("l", k->from[u]);
        SPECV_I_EARLY("l", k->within[u]);
        SPECV_I_EARLY("r", k->row[u]);
        SPECV_I_EARLY("r", k->j[u]);
    }
}

/* A plane, and how wide its accesses may be; 0: it is skipped. Without tables the host has seen to
   16. */
SPECV_DEVFN int specv_i_small_plane(const specv_kv_pack *kv, int plane, const char **src,
                                    char **dst) {
    *src = (const char *)kv->src, *dst = (char *)kv->dst;
    if (!kv->src_planes) return 16;
    *src = (const char *)kv->src_planes[plane], *dst = (char *)kv->dst_planes[plane];
    return *src && *dst ? specv_i_unit_bytes((uint64_t)*src | (uint64_t)*dst) : 0;
}

/* A small step: a warp that copies, `units` units of a lane at a time. */
SPECV_DEVFN void specv_i_copy_small(const specv_i_small_task *t, specv_i_spans s,
                                    const uint32_t *words, uint32_t first, int plane0,
                                    const char *src, char *dst, int width, specv_i_lane_units *k,
                                    int units) {
    const specv_kv_pack *kv = &t->d.kv;
    int plane = plane0;
#pragma unroll 1
    for (;;) {
        uint32_t before[SPECV_I_UNITS], count[SPECV_I_UNITS];
        int64_t to_at[SPECV_I_UNITS];
        int wanted[SPECV_I_UNITS];
#pragma unroll
        for (int u = 0; u < units; ++u) count[u] = specv_i_span(t, s, words, k->row[u], &before[u]);
#pragma unroll
        for (int u = 0; u < units; ++u) {
            wanted[u] = (k->j[u] < count[u]) & (before[u] + count[u] <= t->capacity);
            to_at[u] = k->within[u] + (before[u] + k->j[u]) * kv->dst_row_stride_bytes;
        }
#pragma unroll 1
        for (;;) {
            if (width) specv_i_copy_piece(dst, src, to_at, k->from, wanted, units, 16, width);
            if (!t->loops) return;
            if (plane + (int)t->plane_step.by >= kv->num_planes) break;
            plane += (int)t->plane_step.by;
            width = specv_i_small_plane(kv, plane, &src, &dst);
        }
        first += t->unit_blocks * blockDim.x * (uint32_t)units;
        if (first - (threadIdx.x & 31) >= t->units) return;
        if (plane0 + (int)t->plane_step.by < kv->num_planes)
            plane = plane0, width = specv_i_small_plane(kv, plane, &src, &dst);
        specv_i_place_units(t, first, units, k);
    }
}

/* B2 of a small step, or, if nothing is compared, B1. Call: block. Round trips: tokens or accepted
   lengths beside num_active, draft_len and planes; KV. A1's outputs: the same, then the row's
   tokens again if there is a status. */
SPECV_DEVFN void specv_i_block_small_pack(const specv_i_small_task *t, uint32_t *words,
                                          uint32_t *sums, int compares) {
    const specv_verify_greedy_desc *v = &t->d.verify;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint32_t batch = (uint32_t)v->rows.batch, warp_rows = t->warp_rows;
    /* Blocks that all begin with the first rows would all wait for one slice of the L2. */
    const uint32_t group = (warp + blockIdx.x) & (warps - 1);
    const uint32_t row0 = t->alone ? 0 : group * warp_rows, own = row0 + lane;
    const uint32_t verify_row = blockIdx.x * warps + warp;
    const int verifies = compares && blockIdx.x < t->verify_blocks;
    const int copies = blockIdx.x > t->verify_blocks;
    specv_i_lane_units k; /* of warps that copy */
    specv_i_spans s = {};
    uint32_t status_bits = 0;
    if (!verifies || v->row_status) { /* else no other row's length is needed */
        specv_i_pairs p;
        specv_i_given_len given = {};
        const char *src = 0;
        char *dst = 0;
        uint32_t first = 0;
        int plane = 0, width = 0;
        if (!compares)
            specv_i_load_given_len(v, own, &given);
        else if (v->token_dtype == SPECV_I64)
            specv_i_load_pairs(t, row0, SPECV_I64, &p);
        else
            specv_i_load_pairs(t, row0, SPECV_I32, &p);
        if (compares) specv_i_load_limits(t, row0, warp_rows, &p);
        if (copies) {
            uint32_t rank = blockIdx.x - t->verify_blocks - 1;
            if (t->plane_step.by > 1) {
                uint32_t own_plane;
                rank = (uint32_t)specv_i_divide(rank, t->plane_step, &own_plane);
                plane = (int)own_plane;
            }
            width = specv_i_small_plane(&t->d.kv, plane, &src, &dst);
            first = rank * blockDim.x + threadIdx.x;
            if (t->flight == 1) {
                specv_i_place_units(t, first, 1, &k);
            } else {
                first = (first - lane) * SPECV_I_UNITS + lane;
                specv_i_place_units(t, first, SPECV_I_UNITS, &k);
            }
        }
        const uint32_t len =
            compares ? specv_i_count_pairs(t, row0, &p) : specv_i_check_given_len(&given);
        const uint32_t sum = specv_i_short_scan(len, warp_rows);
        s.word = (sum - len) << 8 | len;
        if (!t->alone) {
            if (lane < warp_rows) words[own] = s.word;
            if (lane == warp_rows - 1) sums[group] = sum;
            __syncthreads();
            const uint32_t of_warp = lane < warps ? sums[lane] : 0;
            s.base = specv_i_short_scan(of_warp, warps) - of_warp;
        }
        if (copies) {
            if (t->flight == 1)
                specv_i_copy_small(t, s, words, first, plane, src, dst, width, &k, 1);
            else
                specv_i_copy_small(t, s, words, first, plane, src, dst, width, &k, SPECV_I_UNITS);
            return;
        }
        if (!verifies) {
            uint32_t before = s.word >> 8;
            if (!t->alone) before += __shfl_sync(SPECV_FULL_WARP, s.base, (int)group);
            if ((t->alone && warp > 0) || lane >= warp_rows || own >= batch) return;
            t->d.kv.offsets[own] = (int32_t)before;
            if (own == batch - 1) t->d.kv.offsets[batch] = (int32_t)(before + len);
            if (compares) return;
            if (len > 0 && before + len > t->capacity) given.row.status |= SPECV_ROW_NO_SPACE;
            specv_i_put_status(v->row_status, own, given.row.status, v->keep_status);
            return;
        }
        if (verify_row < batch) {
            uint32_t before, count = specv_i_span(t, s, words, verify_row, &before);
            if (count > 0 && before + count > t->capacity) status_bits = SPECV_ROW_NO_SPACE;
        }
    }
    if (verify_row < batch)
        specv_i_verify_row(v, (int)verify_row, status_bits, specv_i_is_short(v), (int)lane, 0);
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_PACK_THREADS, 1)
    specv_pack_kv_kernel(const __grid_constant__ specv_pack_kv_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_PACK_THREADS)
    specv_pack_small_kernel(const __grid_constant__ specv_i_small_task t);
SPECV_KERNEL __launch_bounds__(SPECV_PACK_THREADS, 1)
    specv_verify_pack_kv_kernel(const __grid_constant__ specv_verify_pack_kv_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_PACK_THREADS)
    specv_verify_pack_small_kernel(const __grid_constant__ specv_i_small_task t);
#endif

#endif /* __CUDACC__ */

/* =================================================================================== >>cache

   The KV cache of each sequence, padded or paged, and the pool that its pages come from.
     B3  specv_append_kv         rows of accepted tokens go behind what the cache holds: one launch
     B5  specv_page_resize       pages for the next pass: one launch of one block; with planes a
                                 second one, chained, that copies pages which others own too
         specv_page_fork         shares the pages of a sequence (D4 too): one launch
   Lengths, tables and the pool are state. Where many blocks read it, the last one to have done so
   writes it (tickets).
   Needs: primitives. */

/* A KV cache. Head h of position x of the sequence in slot s is head_bytes long and starts at
   padded  plane + s * seq_stride_bytes + x * pos_stride_bytes + h * head_stride_bytes,
   paged   plane + page * page_stride_bytes + x % page_size * pos_stride_bytes
                 + h * head_stride_bytes,
           page = block_table[s * table_stride_elems + x / page_size].
   [position][head] and [head][position] are both a matter of strides; K as [head_dim / x]
   [position][x] has more and shorter heads. Different elements must not overlap. */
typedef struct specv_kv_cache {
    void *const *planes;        /* device table [num_planes] of planes, or null: plane; a null one
                                  is skipped */
    void *plane;                /* the only plane, when there is no table */
    int32_t *block_table;       /* paged: [slot][table_stride_elems]; null: padded */
    int64_t head_bytes;         /* with one head: bytes of a KV row */
    int64_t head_stride_bytes;  /* 0 = head_bytes */
    int64_t pos_stride_bytes;   /* 0 = num_heads * head_stride_bytes */
    int64_t seq_stride_bytes;   /* padded; 0 = max_positions * pos_stride_bytes */
    int64_t page_stride_bytes;  /* paged; 0 = page_size * pos_stride_bytes */
    int64_t table_stride_elems; /* paged; 0 = ceil(max_positions / page_size) */
    int32_t num_planes;         /* length of the table; 0 or 1 without it */
    int32_t num_heads;          /* 0 = 1 */
    int32_t max_positions;      /* that a sequence can hold; must be set */
    int32_t page_size;          /* paged: positions in a page */
    int32_t num_pages;          /* paged: ids are 0..num_pages-1 */
    uint32_t reserved;          /* must be 0 */
} specv_kv_cache;

/* The KV rows that a verification pass made: of the row's pending tokens (in the text already, but
   not yet in the cache), then of its drafts. Head h of the j-th starts at
   dense  plane + b * seq_stride_bytes + j * pos_stride_bytes + h * head_stride_bytes,
   CSR    plane + (row_start[b] + b * num_pending + j) * pos_stride_bytes + h * head_stride_bytes.
   Number and size of planes and heads are those of the cache. */
typedef struct specv_kv_rows {
    const void *const *planes; /* device table, or null: plane */
    const void *plane;
    int64_t head_stride_bytes; /* 0 = head_bytes */
    int64_t pos_stride_bytes;  /* 0 = num_heads * head_stride_bytes */
    int64_t seq_stride_bytes;  /* dense; 0 = (num_pending + max_draft) * pos_stride_bytes */
} specv_kv_rows;

/* B3. Commit: the rows of accepted tokens go from where the pass left them into each sequence's
   cache, behind cache_len. Without planes (the pass wrote into the cache itself) only the numbers
   are kept: a rejected row is one behind the new cache_len. (So for a draft model's cache, if all
   rows lacked the same number of tokens: num_pending is that number minus 1.) */
typedef struct specv_append_kv_desc {
    uint32_t canary0;
    int32_t keep_status; /* 1 = add bits to row_status (after A1 to A5); 0 = store it */
    specv_rows rows;
    const int32_t *accepted_len; /* [batch] */
    int32_t *cache_len;       /* in/out [slot]: positions in the cache; += num_pending + accepted */
    int32_t *draft_cache_len; /* in/out [slot], or null: positions in the draft model's cache,
                                 after drafting; cut to the new cache_len. Null: it was fed the
                                 pending token and all drafts but the last */
    int32_t *draft_lacks;     /* out [batch], or null: tokens that the draft model lacks, the next
                               token included: 1, or 2 after all drafts were accepted */
    int64_t *slot_mapping; /* out [batch][num_pending + max_draft], or null: where the next pass's
                              KV rows belong, page * page_size + offset (padded: the row's slot *
                              max_positions + position); -1 without a place. From block_table as
                              it is now: the B5 before has to reserve for two passes, and what B5
                              or D3 changes later makes it stale. With BAD_TICKET, too, as if the
                              rows had been appended */
    int32_t *position_ids; /* out [batch][num_pending + max_draft], or null: of the next pass */
    const int32_t *page_refs; /* [num_pages], or null: a page that is written must have one owner */
    uint32_t *row_status;     /* out [batch], or null */
    uint32_t *ticket;         /* one per stream, 0: see above */
    specv_kv_rows src;
    specv_kv_cache kv;
    int32_t num_pending; /* rows before the first draft's: 1 in most engines */
    int32_t num_sms;     /* 0 = ask the runtime for the current device */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_append_kv_desc;

#define SPECV_PAGE_ROWS 1024

/* A pool of pages in device memory. Page p is free if page_refs[p] is 0; then, and only then, it is
   once among the first *num_free of free_pages. To begin: page_refs 0, all pages free, in any
   order. */
typedef struct specv_page_pool {
    int32_t *page_refs;  /* in/out [num_pages]: table entries that name the page */
    int32_t *free_pages; /* in/out [num_pages]: a stack, the next page is the last */
    int32_t *num_free;   /* in/out scalar */
} specv_page_pool;

/* B5. Gives every row the pages for cache_len + reserve positions: surplus pages are given back
   (freed when their last owner does), missing ones allocated, and a partly filled page that others
   own too is replaced by a copy before the row writes into it. Deterministic: as if row after row
   gave back (a page that several give back goes where the first of them names it), then row after
   row took. When the pool runs dry, that row and all behind it that need
   a page get NO_SPACE and keep what they have; cache_len is all they may fill. At most
   SPECV_PAGE_ROWS rows. Positions beyond max_positions are not reserved. A sequence that joins has
   no pages, cache_len 0 and its prompt as row_reserve.
   alloc, free, inc_ref, dec_ref_and_free of lists are this operation and specv_page_fork: a list
   is a row of block_table. */
typedef struct specv_page_resize_desc {
    uint32_t canary0;
    int32_t keep_status;       /* 1 = add bits to row_status; 0 = store it */
    const int32_t *num_active; /* as in specv_rows */
    const void *slot;          /* as in specv_rows */
    specv_page_pool pool;
    int32_t *num_row_pages;     /* in/out [slot]: entries of block_table that the row owns */
    const int32_t *cache_len;   /* [slot]: positions with content */
    const int32_t *row_reserve; /* [batch], or null: reserve in every row */
    const uint8_t *finished;    /* [batch], or null; not 0: the row gives back all its pages */
    int32_t *copy_src_page;     /* out [batch]: the page that was replaced, or -1; without planes
                                   this and the next may be null */
    int32_t *copy_dst_page;     /* out [batch]: by which, or -1; its first cache_len % page_size
                                   positions are copied from there if kv has planes */
    uint32_t *row_status;       /* out [batch], or null */
    specv_kv_cache kv;          /* paged; block_table is in/out, -1 behind the row's pages */
    int32_t batch;              /* at most SPECV_PAGE_ROWS; num_slots may be any number */
    int32_t slot_dtype;         /* as in specv_rows */
    int32_t num_slots;          /* as in specv_rows */
    int32_t reserve;   /* positions behind cache_len: before a pass num_pending + max_draft */
    int32_t num_sms;   /* 0 = ask the runtime for the current device */
    int32_t chained;   /* specv_chained bits; 0: neither */
    uint32_t reserved; /* must be 0 */
    uint32_t canary1;
} specv_page_resize_desc;

/* B5. Shares the pages of a sequence: slot dst_slot[i] gets the table entries of slot src_slot[i]
   that hold its cache_len positions, and its cache_len. No KV row is moved. A batch without slots
   has its rows' numbers here. */
typedef struct specv_page_fork_desc {
    uint32_t canary0;
    int32_t keep_status;             /* 1 = add bits to fork_status; 0 = store it */
    int32_t *page_refs;              /* in/out [num_pages]: one more per entry */
    int32_t *block_table;            /* in/out [slot][table_stride_elems] */
    int32_t *num_row_pages;          /* in/out [slot]; 0 in each dst_slot */
    int32_t *cache_len;              /* in/out [slot] */
    const int32_t *num_active_forks; /* device scalar, or null: all; clamped to 0..num_forks */
    const int32_t *src_slot;         /* [num_forks] */
    const int32_t *dst_slot;         /* [num_forks], all different, none of them in src_slot */
    uint32_t *fork_status;      /* out [num_forks], or null; a fork with a bit set did nothing */
    int64_t table_stride_elems; /* 0 = max_row_pages */
    int32_t num_slots;
    int32_t num_forks;
    int32_t page_size;
    int32_t num_pages;
    int32_t max_row_pages;
    int32_t chained;   /* specv_chained bits; 0: neither */
    uint32_t reserved; /* must be 0 */
    uint32_t canary1;
} specv_page_fork_desc;

#define SPECV_MOVE_THREADS     512  /* specv_append_kv_kernel, specv_copy_pages_kernel; or */
#define SPECV_MOVE_FEW_THREADS 128  /* for as many rows, where that is a warp for each piece */
#define SPECV_PAGE_THREADS     1024 /* specv_page_resize_kernel; 256 for as many rows: */
#define SPECV_PAGE_FEW         256
#define SPECV_FORK_THREADS     256 /* specv_page_fork_kernel */
#define SPECV_MOVE_ROWS        512 /* rows that a block looks at at a time, a thread each */

SPECV_NUMFN int specv_i_has_planes(const specv_kv_cache *kv) { return kv->planes || kv->plane; }

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int64_t specv_i_row_pages(const specv_kv_cache *kv) {
    return ((int64_t)kv->max_positions + kv->page_size - 1) / kv->page_size;
}

SPECV_HOSTFN void specv_i_cache_resolve(specv_kv_cache *kv) {
    if (!kv->num_planes) kv->num_planes = 1;
    if (!kv->num_heads) kv->num_heads = 1;
    if (!kv->head_stride_bytes) kv->head_stride_bytes = kv->head_bytes;
    if (!kv->pos_stride_bytes)
        kv->pos_stride_bytes = specv_i_times(kv->num_heads, kv->head_stride_bytes);
    if (kv->page_size && !kv->page_stride_bytes)
        kv->page_stride_bytes = specv_i_times(kv->page_size, kv->pos_stride_bytes);
    if (kv->page_size && !kv->table_stride_elems) kv->table_stride_elems = specv_i_row_pages(kv);
    if (!kv->page_size && !kv->seq_stride_bytes)
        kv->seq_stride_bytes = specv_i_times(kv->max_positions, kv->pos_stride_bytes);
}

/* Positions hold heads, or heads hold positions, and no two elements overlap. */
SPECV_HOSTFN int specv_i_strides_ok(int64_t heads, int64_t positions, int64_t head_bytes,
                                    int64_t head_stride, int64_t pos_stride) {
    return (heads == 1 || head_stride >= head_bytes) && pos_stride >= head_bytes &&
           (pos_stride >= specv_i_times(heads - 1, head_stride) + head_bytes ||
            head_stride >= specv_i_times(positions - 1, pos_stride) + head_bytes);
}

/* Of num_slots sequences. paged: 1 = there must be pages, 0 = there must not, -1 = as block_table
   says. */
SPECV_HOSTFN int specv_i_cache_validate(const specv_kv_cache *given, int64_t num_slots, int paged) {
    specv_kv_cache kv = *given;
    int64_t positions, outer, outer_stride;
    if (paged < 0) paged = kv.block_table != NULL;
    SPECV_CHECK(kv.reserved == 0, CANARY);
    SPECV_CHECK(kv.max_positions > 0, MAX_POSITIONS);
    SPECV_CHECK(specv_i_aligned(kv.block_table, 4), BLOCK_TABLE);
    SPECV_CHECK(paged ? kv.block_table || num_slots == 0 : !kv.block_table, BLOCK_TABLE);
    SPECV_CHECK(paged ? kv.page_size > 0 : kv.page_size == 0, PAGE_SIZE);
    SPECV_CHECK(paged ? kv.num_pages > 0 : kv.num_pages == 0, NUM_PAGES);
    SPECV_CHECK(kv.planes ? kv.num_planes >= 1 : kv.num_planes >= 0 && kv.num_planes <= 1,
                NUM_PLANES);
    SPECV_CHECK(specv_i_aligned(kv.planes, sizeof(void *)) && !(kv.planes && kv.plane), PLANES);
    SPECV_CHECK(kv.num_heads >= 0, NUM_HEADS);
    SPECV_CHECK(kv.head_bytes >= 0, HEAD_BYTES);
    SPECV_CHECK(kv.head_stride_bytes >= 0 && kv.pos_stride_bytes >= 0, KV_STRIDE);
    SPECV_CHECK(kv.seq_stride_bytes >= 0 && kv.page_stride_bytes >= 0, KV_STRIDE);
    SPECV_CHECK(paged ? kv.table_stride_elems >= 0 : kv.table_stride_elems == 0, TABLE_STRIDE);
    specv_i_cache_resolve(&kv);
    if (paged) {
        SPECV_CHECK(kv.table_stride_elems >= specv_i_row_pages(&kv), TABLE_STRIDE);
        SPECV_CHECK(specv_i_times(num_slots * 4, kv.table_stride_elems) < SPECV_I_HUGE, SIZE);
    }
    if (!specv_i_has_planes(&kv)) return SPECV_OK;
    positions = paged ? kv.page_size : kv.max_positions;
    outer = paged ? kv.num_pages : num_slots;
    outer_stride = paged ? kv.page_stride_bytes : kv.seq_stride_bytes;
    SPECV_CHECK(kv.head_bytes > 0, HEAD_BYTES);
    SPECV_CHECK(specv_i_times(kv.num_heads, kv.head_bytes) <= 1 << 30, HEAD_BYTES);
    SPECV_CHECK(specv_i_strides_ok(kv.num_heads, positions, kv.head_bytes, kv.head_stride_bytes,
                                   kv.pos_stride_bytes),
                KV_STRIDE);
    SPECV_CHECK(outer <= 1 || outer_stride >= kv.head_bytes, KV_STRIDE);
    SPECV_CHECK(specv_i_times(kv.num_heads, kv.head_stride_bytes) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_times(positions, kv.pos_stride_bytes) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_times(outer, outer_stride) < SPECV_I_HUGE, SIZE);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_append_kv_resolve(specv_append_kv_desc *d) {
    specv_kv_rows *src = &d->src;
    specv_i_cache_resolve(&d->kv);
    if (!src->head_stride_bytes) src->head_stride_bytes = d->kv.head_bytes;
    if (!src->pos_stride_bytes)
        src->pos_stride_bytes = specv_i_times(d->kv.num_heads, src->head_stride_bytes);
    if (!src->seq_stride_bytes && !specv_i_is_csr(&d->rows))
        src->seq_stride_bytes =
            specv_i_times((int64_t)d->num_pending + d->rows.max_draft, src->pos_stride_bytes);
}

SPECV_HOSTFN int specv_append_kv_validate(const specv_append_kv_desc *d) {
    int status;
    int64_t positions, num_rows, num_slots;
    specv_append_kv_desc full;
    SPECV_I_CHECK_DESC(d);
    if ((status = specv_i_rows_validate(&d->rows)) != SPECV_OK) return status;
    SPECV_CHECK(d->num_pending >= 0, NUM_PENDING);
    positions = (int64_t)d->num_pending + d->rows.max_draft;
    SPECV_CHECK(d->rows.batch * positions <= INT64_C(1) << 30, NUM_PENDING);
    SPECV_CHECK(d->rows.batch == 0 || d->accepted_len, ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4), ACCEPTED_LEN);
    SPECV_CHECK(d->rows.batch == 0 || d->cache_len, CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->cache_len, 4), CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->draft_cache_len, 4) && specv_i_aligned(d->draft_lacks, 4),
                DRAFT_CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->slot_mapping, 8) && specv_i_aligned(d->position_ids, 4),
                SLOT_MAPPING);
    SPECV_CHECK(specv_i_aligned(d->page_refs, 4) && (!d->page_refs || d->kv.block_table),
                PAGE_REFS);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(d->rows.batch == 0 || d->ticket, TICKET);
    SPECV_CHECK(specv_i_aligned(d->ticket, 4), TICKET);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    num_slots = specv_i_num_slots(d->rows.slot, d->rows.num_slots, d->rows.batch);
    if ((status = specv_i_cache_validate(&d->kv, num_slots, -1)) != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->src.planes, sizeof(void *)), SRC);
    SPECV_CHECK(!d->src.planes == !d->kv.planes && !(d->src.planes && d->src.plane), SRC);
    SPECV_CHECK(d->src.planes || !d->src.plane == !d->kv.plane || positions == 0, SRC);
    if (!specv_i_has_planes(&d->kv)) return SPECV_OK;
    SPECV_CHECK(d->src.head_stride_bytes >= 0 && d->src.pos_stride_bytes >= 0 &&
                    d->src.seq_stride_bytes >= 0,
                KV_STRIDE);
    SPECV_CHECK(!specv_i_is_csr(&d->rows) || !d->src.seq_stride_bytes, SRC_SEQ_STRIDE);
    full = *d;
    specv_append_kv_resolve(&full);
    num_rows = specv_i_is_csr(&d->rows)
                   ? d->rows.num_draft_tokens + (int64_t)d->rows.batch * d->num_pending
                   : positions;
    SPECV_CHECK(specv_i_strides_ok(full.kv.num_heads, num_rows ? num_rows : 1, full.kv.head_bytes,
                                   full.src.head_stride_bytes, full.src.pos_stride_bytes),
                KV_STRIDE);
    SPECV_CHECK(specv_i_is_csr(&d->rows) || d->rows.batch <= 1 || positions == 0 ||
                    full.src.seq_stride_bytes >= full.kv.head_bytes,
                KV_STRIDE);
    SPECV_CHECK(specv_i_times(full.kv.num_heads, full.src.head_stride_bytes) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_times(num_rows, full.src.pos_stride_bytes) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_times(d->rows.batch, full.src.seq_stride_bytes) < SPECV_I_HUGE, SIZE);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_page_resize_resolve(specv_page_resize_desc *d) {
    specv_i_cache_resolve(&d->kv);
}

SPECV_HOSTFN int specv_page_resize_validate(const specv_page_resize_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(d->batch <= SPECV_PAGE_ROWS, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    if ((status = specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots)) != SPECV_OK)
        return status;
    SPECV_CHECK(specv_i_aligned(d->pool.page_refs, 4) && (d->pool.page_refs || d->batch == 0),
                PAGE_REFS);
    SPECV_CHECK(specv_i_aligned(d->pool.free_pages, 4) && (d->pool.free_pages || d->batch == 0),
                FREE_PAGES);
    SPECV_CHECK(specv_i_aligned(d->pool.num_free, 4) && (d->pool.num_free || d->batch == 0),
                FREE_PAGES);
    SPECV_CHECK(specv_i_aligned(d->num_row_pages, 4) && (d->num_row_pages || d->batch == 0),
                NUM_ROW_PAGES);
    SPECV_CHECK(specv_i_aligned(d->cache_len, 4) && (d->cache_len || d->batch == 0), CACHE_LEN);
    SPECV_CHECK(d->reserve >= 0 && specv_i_aligned(d->row_reserve, 4), RESERVE);
    SPECV_CHECK(specv_i_aligned(d->copy_src_page, 4) && specv_i_aligned(d->copy_dst_page, 4), COPY);
    SPECV_CHECK(!d->copy_src_page == !d->copy_dst_page, COPY);
    SPECV_CHECK(d->copy_src_page || d->batch == 0 || !specv_i_has_planes(&d->kv), COPY);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    status = specv_i_cache_validate(&d->kv, specv_i_num_slots(d->slot, d->num_slots, d->batch), 1);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_times(d->batch, specv_i_row_pages(&d->kv)) <= 1 << 30, TOO_LARGE);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_page_fork_validate(const specv_page_fork_desc *d) {
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    SPECV_CHECK(d->num_forks >= 0, FORK);
    SPECV_CHECK(d->num_slots >= (d->num_forks > 0), SLOT);
    SPECV_CHECK(specv_i_aligned(d->num_active_forks, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->src_slot, 4) && (d->src_slot || d->num_forks == 0), FORK);
    SPECV_CHECK(specv_i_aligned(d->dst_slot, 4) && (d->dst_slot || d->num_forks == 0), FORK);
    SPECV_I_CHECK_STATUS(d, fork_status);
    SPECV_CHECK(specv_i_aligned(d->page_refs, 4) && (d->page_refs || d->num_forks == 0), PAGE_REFS);
    SPECV_CHECK(specv_i_aligned(d->block_table, 4) && (d->block_table || d->num_forks == 0),
                BLOCK_TABLE);
    SPECV_CHECK(specv_i_aligned(d->num_row_pages, 4) && (d->num_row_pages || d->num_forks == 0),
                NUM_ROW_PAGES);
    SPECV_CHECK(specv_i_aligned(d->cache_len, 4) && (d->cache_len || d->num_forks == 0), CACHE_LEN);
    SPECV_CHECK(d->page_size > 0, PAGE_SIZE);
    SPECV_CHECK(d->num_pages > 0, NUM_PAGES);
    SPECV_CHECK(d->max_row_pages > 0, NUM_ROW_PAGES);
    SPECV_CHECK(d->table_stride_elems == 0 || d->table_stride_elems >= d->max_row_pages,
                TABLE_STRIDE);
    SPECV_CHECK(specv_i_times((int64_t)d->num_slots * 4,
                              d->table_stride_elems ? d->table_stride_elems : d->max_row_pages) <
                    SPECV_I_HUGE,
                SIZE);
    SPECV_CHECK(specv_i_times(d->num_forks, d->max_row_pages) <= 1 << 30, TOO_LARGE);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_page_fork_resolve(specv_page_fork_desc *d) {
    if (!d->table_stride_elems) d->table_stride_elems = d->max_row_pages;
}

#if SPECV_I_LAUNCHERS
/* B3. One launch, three round trips (lengths, page ids, KV; four with page_refs), after A1 to A5 on
   the same stream: the host need not know what was accepted. Each block finds all lengths for
   itself and copies an equal share of the bytes; each appended byte is read and written once. The
   last block to have read the old lengths writes the new ones. Source and cache must not overlap,
   nor rows' tables name the same page where they write (page_refs finds that out).
   Row faults: BAD_LENGTH (accepted_len or cache_len out of range), NO_SPACE (max_positions),
   BAD_PAGE, SHARED_PAGE: nothing is appended, cache_len stays, draft_cache_len is cut to it.
   BAD_LENGTH as well for a draft_cache_len below 0 and for a dense draft_len out of range, which
   counts as 0, as in A1: there the row is appended. */
SPECV_LAUNCHER int specv_append_kv(const specv_append_kv_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_append_kv);

/* B5. One launch of one block; with planes a second one, chained by programmatic dependent launch,
   that copies. No atomics decide an order: ranks do. Row faults: BAD_LENGTH, BAD_PAGE (an id
   outside the pool, or of a free page), SHARED_PAGE (a page behind cache_len with other owners):
   the row stays as it is; NO_SPACE: see the descriptor. */
SPECV_LAUNCHER int specv_page_resize(const specv_page_resize_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_page_resize);

/* B5. One launch, a block per fork. Fork faults: BAD_LENGTH (a slot outside 0..num_slots-1, a
   dst_slot that is in src_slot or before in dst_slot, or has pages; cache_len, num_row_pages),
   BAD_PAGE. */
SPECV_LAUNCHER int specv_page_fork(const specv_page_fork_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_page_fork);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* ---- commit */

SPECV_NUMFN specv_i_places specv_i_cache_places(const specv_kv_cache *kv) {
    specv_i_places p = {};
    p.planes = (const void *const *)kv->planes, p.plane = kv->plane;
    p.block_table = kv->block_table, p.table_stride_elems = kv->table_stride_elems;
    p.seq_stride_bytes = kv->seq_stride_bytes, p.pos_stride_bytes = kv->pos_stride_bytes;
    p.head_stride_bytes = kv->head_stride_bytes, p.page_stride_bytes = kv->page_stride_bytes;
    if (kv->block_table) p.page_size = specv_i_divisor_of((uint32_t)kv->page_size);
    return p;
}

/* Rows in a cache; segments, offsets and where the rows come from are the caller's. */
SPECV_NUMFN specv_i_ragged specv_i_cache_copy(const specv_kv_cache *kv) {
    specv_i_ragged r;
    r.from = r.to = specv_i_cache_places(kv);
    r.offsets = 0, r.num_segments = 0;
    r.num_planes = kv->num_planes, r.num_heads = kv->num_heads, r.head_bytes = kv->head_bytes;
    return r;
}

/* Where head 0 of a sequence's position starts in a plane, in bytes; head h is
   h * head_stride_bytes further on. For attention kernels that read the cache that B3 and B5 keep.
   Call: any thread. In: resolved kv; 0 <= position < max_positions; a page id of the table that is
   in range. Cost: paged one load and a division. */
SPECV_DEVFN int64_t specv_thread_kv_offset(const specv_kv_cache *kv, int64_t slot,
                                           int32_t position) {
    const specv_i_places places = specv_i_cache_places(kv);
    return specv_i_place(&places, slot, position);
}

/* specv_i_warp_copy_ragged where there are as many warps as there can be pieces of planes. */
SPECV_DEVFN void specv_i_warp_copy_one(const specv_i_ragged *r, const specv_i_shape *shape,
                                       specv_plane_share share, specv_i_lane_piece p) {
    const int32_t *offsets = r->offsets;
    const int64_t bytes = (offsets[r->num_segments] - offsets[0]) * (r->head_bytes * r->num_heads);
    int i = -1, plane = share.plane;
    if (!p.placed) {
        uint32_t ignored;
        const uint64_t piece = specv_i_divide((uint32_t)share.warp, shape->planes, &ignored);
        if ((int64_t)(piece * (32 * SPECV_I_UNITS) << shape->shift) >= bytes) return;
        plane = specv_i_open_item(r, shape, (uint32_t)share.warp, &share, &p);
    }
    specv_i_warp_copy_planes(r, shape, &share, &p, &i, plane, plane + 1, 0);
}

/* Rows of a verification pass. CSR: one sequence, with num_pending more for each row before. */
SPECV_NUMFN specv_i_places specv_i_append_from(const specv_append_kv_desc *d) {
    specv_i_places p = {};
    p.planes = d->src.planes, p.plane = d->src.plane;
    specv_i_csr_places(&p, &d->rows, 0);
    p.pos_stride_bytes = d->src.pos_stride_bytes, p.head_stride_bytes = d->src.head_stride_bytes;
    p.seq_stride_bytes = specv_i_is_csr(&d->rows) ? d->num_pending * d->src.pos_stride_bytes
                                                  : d->src.seq_stride_bytes;
    return p;
}

/* What the kernel of B3 takes: with the numbers whose divisions a block would wait for. */
typedef struct specv_i_append_task {
    specv_append_kv_desc d;  /* resolved */
    specv_i_ragged copy;     /* but for what a block finds */
    specv_i_shape shape;     /* with planes */
    specv_i_divisor columns; /* of slot_mapping and position_ids */
} specv_i_append_task;

/* What B3 does for one row. Call: any thread, where rows have slots behind specv_i_block_seat, or
   without seats, if rows are few. */
typedef struct specv_i_append {
    int32_t slot;      /* of the request; it is read only if the row is live */
    int32_t live, len; /* len: positions in the cache now; -1 if that is bad */
    int32_t count;     /* KV rows to append */
    int32_t n_draft;
    uint32_t status;
} specv_i_append;

SPECV_DEVFN specv_i_append specv_i_append_row(const specv_append_kv_desc *d,
                                              specv_i_divisor page_size, int b,
                                              const int32_t *seats) {
    const specv_kv_cache *kv = &d->kv;
    /* All lengths are asked for before one is looked at. */
    const int32_t accepted = d->accepted_len[b], cached = d->rows.slot ? 0 : d->cache_len[b];
    const specv_row row = specv_thread_load_row(&d->rows, b);
    specv_i_append a;
    a.slot = b, a.live = row.live, a.len = -1, a.count = 0;
    a.n_draft = row.n_draft, a.status = row.status;
    if (d->rows.slot) {
        uint32_t bad_slot = 0;
        if (row.live)
            a.slot = seats ? specv_i_seat(d->rows.slot, d->rows.slot_dtype, d->rows.num_slots, b,
                                          seats, &bad_slot)
                           : specv_thread_own_slot(d->rows.slot, d->rows.slot_dtype,
                                                   d->rows.num_slots, b, &bad_slot);
        a.live = row.live && !bad_slot;
        if (!a.live) {
            a.status = bad_slot;
            return a;
        }
    }
    a.len = d->rows.slot ? d->cache_len[a.slot] : cached;
    if (!row.live || a.len < 0 || a.len > kv->max_positions) {
        a.status = row.live ? SPECV_ROW_BAD_LENGTH : 0;
        a.len = -1;
        return a;
    }
    if (!row.readable) return a;
    if (accepted < 0 || accepted > row.n_draft) {
        a.status |= SPECV_ROW_BAD_LENGTH;
        return a;
    }
    a.count = d->num_pending + accepted;
    if (a.count > kv->max_positions - a.len) {
        a.status |= SPECV_ROW_NO_SPACE;
        a.count = 0;
    } else if (kv->block_table && a.count > 0) {
        const int32_t *table = kv->block_table + a.slot * kv->table_stride_elems;
        uint32_t in_page;
        const int first = (int)specv_i_divide((uint32_t)a.len, page_size, &in_page);
        int last = first;
        in_page += (uint32_t)a.count - 1;
        if (in_page >= page_size.by) last += (int)specv_i_divide(in_page, page_size, &in_page);
#pragma unroll 1
        for (int i = first; i <= last; i += 2) { /* two at a time: few rows have more */
            const int32_t pages[2] = {table[i], table[i < last ? i + 1 : i]};
#pragma unroll
            for (int k = 0; k < 2; ++k)
                if (pages[k] < 0 || pages[k] >= kv->num_pages)
                    a.status |= SPECV_ROW_BAD_PAGE;
                else if (d->page_refs && d->page_refs[pages[k]] != 1)
                    a.status |= SPECV_ROW_SHARED_PAGE;
        }
        if (a.status & (SPECV_ROW_BAD_PAGE | SPECV_ROW_SHARED_PAGE)) a.count = 0;
    }
    return a;
}

/* Shared memory of B3: rows row0.. of the batch, one per thread of a block. */
typedef struct specv_i_append_tile {
    int32_t offsets[SPECV_MOVE_ROWS + 1]; /* of the KV rows to append */
    int32_t slots[SPECV_MOVE_ROWS], lens[SPECV_MOVE_ROWS];
    int32_t n_draft[SPECV_MOVE_ROWS]; /* -1: not live */
    uint32_t status[SPECV_MOVE_ROWS];
    int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
} specv_i_append_tile;

SPECV_DEVFN void specv_i_put_append(specv_i_append_tile *t, int i, const specv_i_append *a) {
    t->slots[i] = a->slot, t->lens[i] = a->len;
    t->n_draft[i] = a->live ? a->n_draft : -1, t->status[i] = a->status;
}

/* Call: block. Returns the rows in the tile. Sync: a barrier at the end; put one before a tile is
   loaded over another. */
SPECV_DEVFN int specv_i_block_append_tile(const specv_append_kv_desc *d, specv_i_divisor page_size,
                                          int row0, const int32_t *seats, specv_i_append_tile *t) {
    const int left = d->rows.batch - row0;
    const int num_rows = left < SPECV_MOVE_ROWS ? left : SPECV_MOVE_ROWS;
    const int i = specv_i_thread_row(num_rows);
    int32_t count = 0;
    if (i >= 0 && i < num_rows) {
        const specv_i_append a = specv_i_append_row(d, page_size, row0 + i, seats);
        count = a.count;
        specv_i_put_append(t, i, &a);
    }
    specv_i_block_offsets(count, num_rows, t->offsets, t->scratch);
    return num_rows;
}

/* Where the next pass's rows of the tile belong: nothing that this launch changes is read. With a
   bad ticket, too, as if the rows had been appended. Call: all threads of the grid, each with its
   rank among them, behind a barrier. */
SPECV_DEVFN void specv_i_append_places(const specv_i_append_task *task,
                                       const specv_i_append_tile *t, int row0, int num_rows,
                                       int rank, int num_threads) {
    const specv_append_kv_desc *d = &task->d;
    const specv_kv_cache *kv = &d->kv;
    const specv_i_divisor page_size = task->copy.to.page_size;
    const int columns = (int)task->columns.by;
    if (!d->slot_mapping && !d->position_ids) return;
    for (int k = rank; k < num_rows * columns; k += num_threads) {
        uint32_t j;
        const int i = (int)specv_i_divide((uint32_t)k, task->columns, &j);
        const int at = row0 * columns + k;
        const int32_t old = t->lens[i], slot = t->slots[i];
        const int32_t count = t->offsets[i + 1] - t->offsets[i];
        const int known = old >= 0;
        const int64_t position = known ? (int64_t)old + count + j : 0;
        int64_t place = -1;
        if (known && position < kv->max_positions) {
            if (kv->block_table) {
                uint32_t in_page;
                const int64_t entry =
                    (int64_t)specv_i_divide((uint32_t)position, page_size, &in_page);
                const int32_t page = kv->block_table[slot * kv->table_stride_elems + entry];
                if (page >= 0 && page < kv->num_pages)
                    place = (int64_t)page * kv->page_size + in_page;
            } else {
                place = (int64_t)slot * kv->max_positions + position;
            }
        }
        if (d->slot_mapping) d->slot_mapping[at] = place;
        if (d->position_ids) d->position_ids[at] = (int32_t)position;
    }
}

/* The numbers of row b, when all blocks have read the old ones; without what was appended, if a bad
   ticket was found. Call: one thread. */
SPECV_DEVFN void specv_i_append_numbers(const specv_append_kv_desc *d, int b,
                                        const specv_i_append *a, int bad_ticket) {
    uint32_t status = a->status;
    int32_t lacks = 0;
    if (bad_ticket && a->live) status |= SPECV_ROW_BAD_TICKET;
    if (a->len >= 0) {
        const int32_t len = bad_ticket ? a->len : a->len + a->count;
        int64_t draft = (int64_t)a->len + d->num_pending + a->n_draft - 1;
        if (draft < 0) draft = 0;
        if (d->draft_cache_len) draft = d->draft_cache_len[a->slot]; /* no other block reads it */
        if (!bad_ticket) d->cache_len[a->slot] = len; /* blocks may still be reading it */
        if (draft > len) draft = len;
        if (draft < 0)
            status |= SPECV_ROW_BAD_LENGTH;
        else
            lacks = (int32_t)(len + 1 - draft);
        if (draft >= 0 && d->draft_cache_len) d->draft_cache_len[a->slot] = (int32_t)draft;
    }
    if (d->draft_lacks) d->draft_lacks[b] = lacks;
    specv_i_put_status(d->row_status, b, status, d->keep_status);
}

/* Of all rows, by the one block that is left. The tile holds the last ones; those before them are
   loaded again. Call: block. Sync: barriers, none before the first write. */
SPECV_DEVFN void specv_i_block_append_numbers(const specv_i_append_task *task, const int32_t *seats,
                                              specv_i_append_tile *t, int bad_ticket) {
    const specv_append_kv_desc *d = &task->d;
    const int i = specv_i_thread();
    int row0 = (d->rows.batch - 1) / SPECV_MOVE_ROWS * SPECV_MOVE_ROWS;
    int num_rows = d->rows.batch - row0;
    for (;;) {
        if (i < num_rows) {
            specv_i_append a;
            a.slot = t->slots[i], a.len = t->lens[i], a.n_draft = t->n_draft[i];
            a.live = a.n_draft >= 0, a.count = t->offsets[i + 1] - t->offsets[i];
            a.status = t->status[i];
            specv_i_append_numbers(d, row0 + i, &a, bad_ticket);
        }
        if (row0 == 0) return;
        row0 -= SPECV_MOVE_ROWS;
        __syncthreads(); /* the tile is loaded over */
        num_rows = specv_i_block_append_tile(d, task->copy.to.page_size, row0, seats, t);
    }
}

/* What the kernels of B5 take. */
typedef struct specv_i_page_task {
    specv_page_resize_desc d; /* resolved */
    specv_i_ragged copy;      /* from page to page: but for what a block finds */
    specv_i_shape shape;      /* with planes */
    specv_i_divisor page_size;
} specv_i_page_task;

/* d: resolved. */
SPECV_NUMFN specv_i_page_task specv_i_plan_pages(const specv_page_resize_desc *d) {
    specv_i_page_task t = {};
    t.d = *d, t.copy = specv_i_cache_copy(&d->kv), t.page_size = t.copy.to.page_size;
    t.copy.to.block_table = 0, t.copy.to.seq_stride_bytes = d->kv.page_stride_bytes;
    t.copy.from = t.copy.to; /* a page is a sequence */
    t.copy.from.seqs = d->copy_src_page, t.copy.to.seqs = d->copy_dst_page;
    if (specv_i_has_planes(&d->kv)) t.shape = specv_i_copy_shape(&t.copy);
    return t;
}

typedef struct specv_i_pages {
    int32_t slot;       /* of the request; 0 if the row is inert */
    int32_t held, keep; /* pages that the row owns, and will own */
    int32_t first;      /* the first page that is not full: it and those behind it are looked at */
    int32_t content;    /* pages with content */
    int32_t last;       /* the partly filled page that it will write into, or -1 */
    int32_t last_at;    /* its place in the row's table */
    int32_t last_refs;  /* its owners */
    int32_t ok;         /* 0: the row stays as it is */
    uint32_t status;
} specv_i_pages;

SPECV_DEVFN specv_i_pages specv_i_pages_of(const specv_i_page_task *t, int b, int32_t slot) {
    const specv_page_resize_desc *d = &t->d;
    const specv_kv_cache *kv = &d->kv;
    uint32_t rest, in_page;
    const int32_t most =
        (int32_t)specv_i_divide((uint32_t)kv->max_positions - 1, t->page_size, &rest) + 1;
    /* All is asked for before anything is looked at. */
    const int32_t held = d->num_row_pages[slot], len = d->cache_len[slot];
    int32_t reserve = d->reserve, want;
    specv_i_load_given(&reserve, d->row_reserve, b);
    const int finished = d->finished ? d->finished[b] : 0;
    const int32_t *table = kv->block_table + slot * kv->table_stride_elems;
    specv_i_pages r = {slot, held, 0, 0, 0, -1, 0, 0, 0, SPECV_ROW_BAD_LENGTH};
    if (held < 0 || held > most || reserve < 0 || len < 0 || len > kv->max_positions) return r;
    want = finished ? 0 : reserve < kv->max_positions - len ? len + reserve : kv->max_positions;
    r.keep = (int32_t)specv_i_divide((uint32_t)want, t->page_size, &rest);
    r.keep += rest > 0;
    r.first = finished ? 0 : (int32_t)specv_i_divide((uint32_t)len, t->page_size, &in_page);
    r.content = finished ? 0 : r.first + (in_page > 0);
    if (r.content > held) return r;
    r.status = 0;
    if (r.first < r.content && want > len) r.last = table[r.first], r.last_at = r.first;
    return r;
}

/* specv_block_exclusive_scan where only the first num threads have a value, others 0: of up to 32,
   by the first warp alone. */
SPECV_DEVFN int32_t specv_i_block_scan_first(int32_t value, int num, int32_t *total,
                                             int32_t *scratch) {
    const int i = specv_i_thread();
    int32_t before = 0;
    if (num > 32) return specv_block_exclusive_scan(value, total, scratch);
    if (i < 32) {
        before = (int32_t)specv_i_short_scan((uint32_t)value, (uint32_t)num);
        if (i == num - 1) scratch[0] = before;
        before -= value;
    }
    __syncthreads();
    *total = scratch[0];
    return i < num ? before : *total;
}

/* Shared memory of B5: what a thread has to know of another thread's row. */
typedef struct specv_i_page_tile {
    int32_t slot[SPECV_PAGE_ROWS];
    int32_t entries[SPECV_PAGE_ROWS]; /* table entries before the row's: those that are looked
                                             at, then given back, then taken */
    int32_t first[SPECV_PAGE_ROWS];   /* the first of them in its row's table */
    int32_t content[SPECV_PAGE_ROWS]; /* looked at: pages with content */
    int32_t last[SPECV_PAGE_ROWS];    /* looked at: pages to keep; given back: the page that the
                                             row shares and will write, or -1; taken: place of the
                                             first in free_pages */
    uint32_t status[SPECV_PAGE_ROWS];
    int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    int32_t num_free, first_dry, copies;
} specv_i_page_tile;

/* Table entries are dealt to the threads of the block, wherever rows begin and end: row i of the
   tile has `count` of them, from `first` on, threads behind the batch none. Call: block, a thread
   per row. Returns the sum. Sync: barriers, before and after. */
SPECV_DEVFN int32_t specv_i_block_deal(specv_i_page_tile *t, int batch, int32_t first,
                                       int32_t count) {
    const int i = specv_i_thread();
    int32_t total;
    __syncthreads();
    t->first[i] = first;
    t->entries[i] = specv_i_block_scan_first(count, batch, &total, t->scratch);
    __syncthreads();
    return total;
}

/* The e-th entry. */
typedef struct specv_i_entry {
    int32_t *place; /* in block_table */
    int32_t i, at;  /* its row in the tile; its place in the row's table */
    int32_t page;
} specv_i_entry;

SPECV_DEVFN specv_i_entry specv_i_dealt(const specv_page_resize_desc *d, const specv_i_page_tile *t,
                                        int32_t e) {
    specv_i_entry it;
    it.i = 0;
    /* Threads behind the batch have entries, too: the sum, which is above e. */
    for (int step = d->batch > 32 ? 512 : 16; step > 0; step >>= 1)
        if (step < d->batch) it.i += t->entries[it.i + step] <= e ? step : 0;
    it.at = t->first[it.i] + e - t->entries[it.i];
    it.place = d->kv.block_table + t->slot[it.i] * d->kv.table_stride_elems + it.at;
    it.page = *it.place;
    return it;
}

/* Is every entry from the first page on that is not full a page with owners, and with one owner
   where the row will write? Call: block, a thread per row. Returns the row's status. */
SPECV_DEVFN uint32_t specv_i_block_look(const specv_page_resize_desc *d, specv_i_page_tile *t,
                                        const specv_i_pages *r) {
    const int thread = specv_i_thread(), looks = r->ok && r->held > r->first;
    t->slot[thread] = r->slot, t->content[thread] = r->content, t->last[thread] = r->keep,
    t->status[thread] = 0;
    const int32_t count = specv_i_block_deal(t, d->batch, r->first, looks ? r->held - r->first : 0);
    for (int32_t e = thread; e < count; e += specv_i_num_threads()) {
        const specv_i_entry it = specv_i_dealt(d, t, e);
        const int known = it.page >= 0 && it.page < d->kv.num_pages;
        const int32_t refs = known ? d->pool.page_refs[it.page] : 0;
        if (refs < 1)
            atomicOr(&t->status[it.i], (uint32_t)SPECV_ROW_BAD_PAGE);
        else if (it.at >= t->content[it.i] && it.at < t->last[it.i] && refs > 1)
            atomicOr(&t->status[it.i], (uint32_t)SPECV_ROW_SHARED_PAGE);
    }
    __syncthreads();
    const uint32_t status = t->status[thread];
    t->status[thread] = 0; /* next written behind other barriers */
    return status;
}

#define SPECV_I_INT_MIN (-SPECV_I_INT_MAX - 1)

/* Owners give `count` pages back. Then each page without owners goes to free_pages once: among the
   entries that named it the first one does it, so that the order is that of rows. Until then the
   count of such a page holds the number of that entry, as SPECV_I_INT_MIN + e. A thread finds its
   first entry, for few the only one, once for all passes. Call: block, a thread per row, if count
   is not 0. */
SPECV_DEVFN void specv_i_block_give_back(const specv_page_resize_desc *d, specv_i_page_tile *t,
                                         int32_t count) {
    const int thread = specv_i_thread(), num_threads = specv_i_num_threads();
    const int32_t num_free = t->num_free;
    specv_i_entry mine = {0, 0, 0, 0}, it;
    int32_t freed = 0, owners = 0; /* of `mine` */
    if (thread < count) mine = specv_i_dealt(d, t, thread);
    for (int32_t e = thread; e < count; e += num_threads) {
        it = e == thread ? mine : specv_i_dealt(d, t, e);
        atomicSub(&d->pool.page_refs[it.page], 1);
    }
    __syncthreads();
    for (int32_t e = thread; e < count; e += num_threads) {
        it = e == thread ? mine : specv_i_dealt(d, t, e);
        const int32_t refs = d->pool.page_refs[it.page];
        if (e == thread) owners = refs;
        if (refs < 0)
            atomicOr(&t->status[it.i], (uint32_t)SPECV_ROW_BAD_PAGE); /* more entries than owners */
    }
    __syncthreads();
    for (int32_t e = thread; e < count; e += num_threads) {
        it = e == thread ? mine : specv_i_dealt(d, t, e);
        /* Not a plain load: other entries may be at the same count. */
        if ((e == thread ? owners : atomicAdd(&d->pool.page_refs[it.page], 0)) <= 0)
            atomicMin(&d->pool.page_refs[it.page], SPECV_I_INT_MIN + e);
    }
    __syncthreads();
    for (int32_t e0 = 0; e0 < count; e0 += num_threads) {
        const int32_t e = e0 + thread;
        int32_t total, place;
        int frees = 0;
        if (e < count) {
            it = e0 == 0 ? mine : specv_i_dealt(d, t, e);
            frees = d->pool.page_refs[it.page] == SPECV_I_INT_MIN + e;
            *it.place = -1;
        }
        place = num_free + freed + specv_i_block_scan_first(frees, count - e0, &total, t->scratch);
        if (frees && place < d->kv.num_pages) d->pool.free_pages[place] = it.page;
        if (frees && place >= d->kv.num_pages) /* it was in free_pages while it had owners */
            atomicOr(&t->status[it.i], (uint32_t)SPECV_ROW_BAD_PAGE);
        if (frees) d->pool.page_refs[it.page] = 0;
        freed += total;
        __syncthreads(); /* scratch is reused; the counts are 0 before the next entries are seen */
    }
    if (thread == 0)
        t->num_free = num_free + freed < d->kv.num_pages ? num_free + freed : d->kv.num_pages;
    __syncthreads();
}

SPECV_DEVFN int32_t specv_i_pop_page(const specv_page_resize_desc *d, int32_t at,
                                     uint32_t *status) {
    int32_t page = d->pool.free_pages[at];
    if (page >= 0 && page < d->kv.num_pages) {
        d->pool.page_refs[page] = 1;
        return page;
    }
    *status |= SPECV_ROW_BAD_PAGE;
    return -1;
}

/* Rows take what they lack. As if one after the other: of the rows that share a page and write into
   it, each makes a copy while others own it too, so the last owner does not. When the pool is dry
   a row fails, and all behind it that need anything, hence also a last owner before whom one of
   the others has failed. Call: block, a thread per row. Returns the row's status. */
SPECV_DEVFN uint32_t specv_i_block_take(const specv_page_resize_desc *d, specv_i_page_tile *t,
                                        const specv_i_pages *r, int32_t *copy_src_page,
                                        int32_t *copy_dst_page) {
    const int i = specv_i_thread();
    const int32_t growth = r->ok && r->keep > r->held ? r->keep - r->held : 0;
    const int32_t num_free = t->num_free;
    int32_t earlier = 0, demand, total, before, top, taken;
    const int shared = r->ok && r->last >= 0 && r->last_refs > 1;
    uint32_t status = 0;
    int copies, fails;
    *copy_src_page = *copy_dst_page = -1;
    t->last[i] = shared ? r->last : -1;
    if (i == 0) t->first_dry = SPECV_I_INT_MAX, t->copies = 0;
    __syncthreads();
    for (int j = 0; shared && j < i; ++j) earlier += t->last[j] == r->last;
    copies = shared && r->last_refs - earlier > 1;
    demand = growth + copies;
    if (copies) atomicOr(&t->copies, 1);
    before = specv_i_block_scan_first(demand, d->batch, &total, t->scratch);
    fails = demand > 0 && before + demand > num_free;
    if (fails) atomicMin(&t->first_dry, i);
    t->first[i] = r->held, t->entries[i] = before; /* if every row gets what it lacks: no copies */
    taken = total;
    __syncthreads();
    const int dry = t->first_dry != SPECV_I_INT_MAX, dealt = !dry && !t->copies;
    if (dry) {
        if (shared && !copies)
            for (int j = t->first_dry; j < i; ++j) fails |= t->last[j] == r->last;
        before = specv_i_block_scan_first(fails ? 0 : demand, d->batch, &total, t->scratch);
    }
    if (i == 0) t->num_free = num_free - total;
    if (fails) status = SPECV_ROW_NO_SPACE;
    top = num_free - 1 - before;
    if (copies && !fails) {
        *copy_src_page = r->last, *copy_dst_page = specv_i_pop_page(d, top--, &status);
        atomicSub(&d->pool.page_refs[r->last], 1);
        d->kv.block_table[r->slot * d->kv.table_stride_elems + r->last_at] = *copy_dst_page;
    }
    t->last[i] = top; /* read behind the barriers of what follows */
    if (dealt)
        __syncthreads();
    else
        taken = specv_i_block_deal(t, d->batch, r->held, fails ? 0 : growth);
    for (int32_t e = i; e < taken; e += specv_i_num_threads()) {
        const specv_i_entry it = specv_i_dealt(d, t, e);
        uint32_t fault = 0;
        *it.place = specv_i_pop_page(d, t->last[it.i] - (it.at - t->first[it.i]), &fault);
        if (fault) atomicOr(&t->status[it.i], fault);
    }
    __syncthreads();
    if (growth && !fails) d->num_row_pages[r->slot] = r->keep;
    return status | t->status[i];
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_MOVE_THREADS, 1)
    specv_append_kv_kernel(const __grid_constant__ specv_i_append_task t);
SPECV_KERNEL __launch_bounds__(SPECV_MOVE_FEW_THREADS, 1)
    specv_append_few_kernel(const __grid_constant__ specv_i_append_task t);
SPECV_KERNEL __launch_bounds__(SPECV_PAGE_THREADS, 1)
    specv_page_resize_kernel(const __grid_constant__ specv_i_page_task t);
SPECV_KERNEL __launch_bounds__(SPECV_MOVE_THREADS, 1)
    specv_copy_pages_kernel(const __grid_constant__ specv_i_page_task t);
SPECV_KERNEL __launch_bounds__(SPECV_FORK_THREADS)
    specv_page_fork_kernel(const __grid_constant__ specv_page_fork_desc d);
#endif

#endif /* __CUDACC__ */

/* =================================================================================== >>trees

   Draft trees: several continuations of a text, verified in one step.
     A7  specv_verify_tree   one launch: a warp per tree where target ids are given, else a block
     B4  specv_commit_path   the rows of an accepted path go to consecutive positions: one launch
         specv_tree_layout   layouts of trees, masks, depths, position ids: one launch
   Where scores are given, only rows of nodes are read that the walk comes to: of a tree of 60 nodes
   that is 8 deep 9 rows, one after the other, not 60. Random numbers are those of A3 to A5, with
   nodes for positions: the test of node i is draft i - 1's, a node that emits a token has its own,
   as has ONE_COIN's test of its children; coupled noise is of the absolute position alone.
   Needs: >>greedy (outputs, EOS), >>sample (scores, distributions, what random numbers are for),
   >>cache (specv_kv_cache). */

#define SPECV_MAX_NODES 1024

/* The trees of a step. Node 0 is the root, the last token that the text has; every other node is a
   draft for the place behind its parent, a node with a smaller number. Children of a node are tried
   in the order of their numbers. parent[i] = i - 1 is a chain: its drafts are those of A1 to A5,
   draft j in node j + 1. A draft of -1 is a placeholder: nobody accepts it, nor what is behind it.
   A row whose num_nodes is outside 1..max_nodes (BAD_LENGTH), or whose parents are not as said
   (BAD_TREE), counts as its root alone. */
typedef struct specv_trees {
    const int32_t *num_active;   /* as in specv_rows */
    const int32_t *num_nodes;    /* [batch], or null: max_nodes in every row; the root is one */
    const int32_t *parent;       /* [batch][max_nodes]: parent[0] is -1, parent[i] in 0..i-1 */
    const void *token;           /* [batch][max_nodes]; the root's is not looked at */
    const void *slot;            /* as in specv_rows */
    int64_t parent_stride_elems; /* 0 = max_nodes */
    int64_t token_stride_elems;  /* 0 = max_nodes */
    int32_t batch;               /* rows, live and inert: a tree each */
    int32_t max_nodes;           /* upper bound of nodes in a row, at most SPECV_MAX_NODES */
    int32_t token_dtype;         /* specv_dtype of all token buffers; 0 = SPECV_I32 */
    int32_t slot_dtype;          /* as in specv_rows */
    int32_t num_slots;           /* as in specv_rows */
    uint32_t reserved;           /* must be 0 */
} specv_trees;

/* How nodes are judged. p: target's distribution at a node, for the place behind it, q: the draft
   model's, which the node's children were drawn from.
   GREEDY      the target's choice goes on to the first child that has it.
   COUPLED     the same with the choice of A5: noise of the seed and the absolute position, so that
               any tree gives the text that the seed gives.
   ONE_COIN    one number a node: the first child is accepted with which the sum of p over the
               children so far exceeds it; else a token of p without them. Of equal siblings only
               the first counts. Takes no draft scores: any drafter, the law is the target's.
   RECURSIVE   child after child: accept while u * q(x) < r(x), r = p at first; behind a rejected
               one r becomes (r - q)+, normalised; then draw from r. Children are independent draws
               from q. Miao et al. 2023 (arXiv 2305.09781). On a chain A3 with the same numbers.
   RECURSIVE_DISTINCT  the same for children drawn without replacement: q is without those before,
               normalised (where that leaves nothing: uniform over the others). Chen et al. 2024
               (arXiv 2402.12374). Equal siblings: BAD_TREE.
   TRAVERSAL   from the leaves to the root: a node is judged behind all that is below it, so that
               more is accepted, the same law of the text. Weng et al. 2025 (arXiv 2505.12398). On a
               chain A4 with the same numbers.
   TRAVERSAL_DISTINCT  the same for children drawn without replacement.
   RECURSIVE and TRAVERSAL without draft scores: children were proposed, not drawn (n-grams, a
   model's likeliest tokens): q of a child is 1 at its token, whatever tokens there are the law is
   the target's. RECURSIVE tests u < r(x), and r loses x. Of equal siblings only the first counts;
   the DISTINCT rules then are the same rules, but for that: BAD_TREE. No row is read again for a
   rejected child. On a chain A3 and A4 without draft scores, with the same numbers.
   At temperature 0 all are GREEDY. */
typedef enum specv_tree_rule {
    SPECV_TREE_GREEDY = 0,
    SPECV_TREE_COUPLED = 1,
    SPECV_TREE_ONE_COIN = 2,
    SPECV_TREE_RECURSIVE = 3,
    SPECV_TREE_RECURSIVE_DISTINCT = 4,
    SPECV_TREE_TRAVERSAL = 5,
    SPECV_TREE_TRAVERSAL_DISTINCT = 6
} specv_tree_rule;

/* Which rules take draft scores, judge from the leaves, and take siblings for distinct? */
SPECV_NUMFN int specv_i_tree_needs_draft(int rule) { return rule >= SPECV_TREE_RECURSIVE; }
SPECV_NUMFN int specv_i_tree_traverses(int rule) { return rule >= SPECV_TREE_TRAVERSAL; }
SPECV_NUMFN int specv_i_tree_is_distinct(int rule) {
    return rule == SPECV_TREE_RECURSIVE_DISTINCT || rule == SPECV_TREE_TRAVERSAL_DISTINCT;
}

/* What is left of a node's law behind a rejected child: sums over the vocabulary, in units of
   2^-50, of (c r - q)+, of (q - c r)+, and of q over ids that are not among the children so far. */
typedef struct specv_i_tree_sums {
    uint64_t gain, loss, untried;
} specv_i_tree_sums;

/* c of the next child: r / gain is a distribution, and times P = gain / loss where nodes are judged
   from the leaves. 0: nothing is left. */
SPECV_NUMFN float specv_i_tree_scale(const specv_i_tree_sums *s, int traverses) {
    const uint64_t by = traverses ? s->loss : s->gain;
    if (s->gain == 0 || by == 0) return 0;
    return specv_i_div(1125899906842624.f, (float)by);
}

/* What q is multiplied by for the next child; below 0: what q is at every other id, negated. */
SPECV_NUMFN float specv_i_tree_q_scale(const specv_i_tree_sums *s, int distinct, int64_t others) {
    if (!distinct) return 1;
    if (s->untried) return specv_i_div(1125899906842624.f, (float)s->untried);
    return others > 0 ? specv_i_div(-1.f, (float)others) : 0;
}

SPECV_NUMFN float specv_i_tree_q(float q, float q_scale) {
    if (specv_i_less(q_scale, 0.f)) return specv_i_negate(q_scale);
    return specv_i_mul(q, q_scale);
}

/* P of a child, where nodes are judged from the leaves. */
SPECV_NUMFN float specv_i_tree_prefix(float p, float q) {
    if (!specv_i_less(0.f, p)) return 0;
    return specv_i_less(p, q) ? specv_i_div(p, q) : 1.f;
}

/* P behind a rejected child: how much p and q of such sums may differ is known from it. */
SPECV_NUMFN float specv_i_tree_rest(const specv_i_tree_sums *s, int traverses) {
    if (!traverses || s->gain >= s->loss) return 1;
    return specv_i_div((float)s->gain, (float)s->loss);
}

/* Where children are proposals: c, p without the children so far, and of the node, judged from the
   leaves, u * lost < gained. */
typedef struct specv_i_tree_proposed {
    float c, left, lost, gained;
} specv_i_tree_proposed;

/* Behind a rejected child that has p; c and left as they were when it was tried. */
SPECV_NUMFN specv_i_tree_proposed specv_i_tree_reject(float p, float c, float left, int traverses) {
    specv_i_tree_proposed r;
    r.left = specv_i_add(left, specv_i_negate(p));
    r.lost = specv_fma(specv_i_negate(c), p, 1);
    r.gained = specv_i_mul(c, r.left);
    r.c = 0;
    if (traverses && specv_i_less(0.f, r.lost)) r.c = specv_i_div(c, r.lost);
    if (!traverses && specv_i_less(0.f, r.left)) r.c = specv_i_div(1.f, r.left);
    return r;
}

/* ONE_COIN: does the number fall on children that weigh this together? Never on nothing. */
SPECV_NUMFN int specv_i_coin_falls(uint64_t coin, uint64_t so_far) { return coin < so_far; }

/* One of the sums of p and q that were compared is off. prefix: P before. */
SPECV_NUMFN uint32_t specv_i_tree_bad_sum(const specv_i_tree_sums *s, float prefix) {
    const uint64_t one = (uint64_t)1 << 50;
    return specv_i_bad_sum(s->gain - s->loss, specv_fixed50(prefix) - one) ? SPECV_ROW_BAD_SUM : 0;
}

/* A7. A row emits the drafts on a path from the root, and what the target says behind its last
   node, if that is not an EOS. */
typedef struct specv_verify_tree_desc {
    uint32_t canary0;
    int32_t rule; /* specv_tree_rule */
    specv_trees trees;
    const void *target_tokens;      /* GREEDY: [batch][max_nodes], the target's choice behind each
                                    node; or null, then from `target` */
    specv_scores target;            /* max_nodes positions a row: of what follows each node */
    specv_scores draft;             /* the same of the draft model, RECURSIVE and TRAVERSAL; where a
                                    node has children, q that they were drawn from. data null: q is
                                    1 at each child */
    const float *temperature;       /* [slot], or null: 1; 0 = greedy. Of probs only 0 counts */
    const float *draft_temperature; /* [slot], or null: temperature; for draft logits */
    const uint64_t *seed;           /* [slot]; null with GREEDY */
    const int32_t *position;        /* [slot]: where in the text what follows the root is; see
                                    specv_verify_sample_desc */
    int32_t *accepted_len;          /* out [batch]; drafts on the path, an accepted EOS counts */
    uint8_t *mismatch;     /* out [batch], or null; 1 = the last node has children, and is no
                                    EOS: they were rejected */
    void *next_token;      /* out [batch], or null; -1 behind an EOS */
    void *out_tokens;      /* out [batch][max_depth + 1], or null; emitted tokens, then -1 */
    int32_t *num_emitted;  /* out [batch], or null; accepted_len + (next_token >= 0) */
    uint8_t *finished;     /* out [batch], or null; 1 = an emitted token is an EOS */
    uint32_t *row_status;  /* out [batch], or null; SPECV_ROW_* bits */
    int32_t *path;         /* out [batch][max_depth + 1], or null: accepted_len + 1 nodes from
                                    the root, 0, on; then -1 */
    int32_t *accept_index; /* out, the same, or null: b * max_nodes + node; then -1. SGLang's,
                                    whose accept_token_num is accepted_len */
    void *predicts;        /* out [batch][max_nodes], or null: at the nodes of the path the
                                    token that was emitted behind them, at others -1 */
    float *logprob;        /* out [batch], or null; ln p(next_token) of the target, 0 without
                                    a token; from scores */
    void *scratch;         /* 16-byte aligned; from scores. Needs no preparation */
    int64_t scratch_bytes; /* specv_verify_tree_scratch_bytes(batch, max_nodes, vocab); with top_k,
                              top_p, min_p or outputs of `emitted`
                              specv_verify_sample_scratch_bytes of the same more */
    int64_t target_stride_elems; /* of target_tokens; 0 = max_nodes */
    int64_t out_stride_elems;    /* of out_tokens; 0 = max_depth + 1 */
    int64_t vocab;               /* ids are 0..vocab-1; target ids: 0 = unknown, only negative ids
                                    are bad */
    int64_t eos_token[SPECV_MAX_EOS];
    int32_t num_eos;       /* how many of eos_token count; 0 = none */
    int32_t max_depth;     /* 0 = max_nodes - 1; children of a node at this depth are not tried */
    int32_t keep_status;   /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;       /* specv_chained bits; 0: neither */
    int32_t step_row;      /* as in specv_verify_sample_desc */
    int32_t stream;        /* specv_stream: TARGET or DRAFT; COUPLED has its own noise */
    specv_emitted emitted; /* from scores: [batch][max_depth + 1] of each */
    specv_filters filters; /* of the target, from scores; mask: a row a node */
    specv_filters draft_filters; /* of draft scores: q must be what children were drawn from */
    uint32_t reserved;           /* must be 0 */
    uint32_t canary1;
} specv_verify_tree_desc;

#define SPECV_TREE_THREADS  64   /* specv_tree_ids_kernel: a warp per tree */
#define SPECV_GROVE_THREADS 384  /* specv_tree_kernel: a block per tree */
#define SPECV_COIN_THREADS  1024 /* specv_tree_coin_probs_kernel: a thread per node */

/* Scratch memory of a tree: statistics of the node that is looked at, sums of its tiles, and of
   nodes that the walk comes back to. Offsets in bytes. */
typedef struct specv_i_tree_scratch {
    int64_t tiles, sums, rows, bytes;
    int32_t num_tiles;
} specv_i_tree_scratch;

SPECV_NUMFN specv_i_tree_scratch specv_i_tree_scratch_for(int64_t max_nodes, int64_t vocab) {
    specv_i_tree_scratch s;
    s.num_tiles = (int32_t)((vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS);
    s.tiles = 0;
    s.sums = s.tiles + s.num_tiles * (int64_t)sizeof(specv_tile);
    s.rows = (s.sums + s.num_tiles * (int64_t)8 + 15) / 16 * 16;
    s.bytes = s.rows + 2 * max_nodes * (int64_t)sizeof(specv_distribution);
    return s;
}

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int specv_i_trees_validate(const specv_trees *t) {
    const size_t token_bytes = t->token_dtype == SPECV_I64 ? 8 : 4;
    SPECV_CHECK(t->reserved == 0, CANARY);
    SPECV_CHECK(t->batch >= 0, BATCH);
    SPECV_CHECK(t->max_nodes >= 1 && t->max_nodes <= SPECV_MAX_NODES, TREE);
    SPECV_CHECK((int64_t)t->batch * t->max_nodes <= INT64_C(1) << 30, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(t->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(t->num_nodes, 4) && specv_i_aligned(t->parent, 4), TREE);
    SPECV_CHECK(t->parent || t->batch == 0, TREE);
    SPECV_CHECK(t->token_dtype == SPECV_I32 || t->token_dtype == SPECV_I64, TOKEN_DTYPE);
    SPECV_CHECK(t->token || t->batch == 0 || t->max_nodes == 1, DRAFT_TOKENS);
    SPECV_CHECK(specv_i_aligned(t->token, token_bytes), DRAFT_TOKENS);
    SPECV_CHECK(!t->parent_stride_elems || t->parent_stride_elems >= t->max_nodes, TREE);
    SPECV_CHECK(!t->token_stride_elems || t->token_stride_elems >= t->max_nodes, TREE);
    SPECV_CHECK(specv_i_fits((int64_t)t->batch * 8, t->parent_stride_elems, 0), SIZE);
    SPECV_CHECK(specv_i_fits((int64_t)t->batch * 8, t->token_stride_elems, 0), SIZE);
    return specv_i_slot_validate(t->slot, t->slot_dtype, t->num_slots);
}

SPECV_HOSTFN void specv_i_trees_resolve(specv_trees *t) {
    if (!t->parent_stride_elems) t->parent_stride_elems = t->max_nodes;
    if (!t->token_stride_elems) t->token_stride_elems = t->max_nodes;
}

/* What A7 writes. */
SPECV_HOSTFN int specv_i_tree_outputs_validate(const specv_verify_tree_desc *d) {
    const size_t token_bytes = d->trees.token_dtype == SPECV_I64 ? 8 : 4;
    const int64_t columns = (d->max_depth ? d->max_depth : d->trees.max_nodes - 1) + INT64_C(1);
    SPECV_CHECK(d->accepted_len || d->trees.batch == 0, ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4), ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->next_token, token_bytes), NEXT_TOKEN);
    SPECV_CHECK(specv_i_aligned(d->out_tokens, token_bytes), OUT_TOKENS);
    SPECV_CHECK(specv_i_aligned(d->num_emitted, 4), NUM_EMITTED);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_aligned(d->path, 4) && specv_i_aligned(d->accept_index, 4), PATH);
    SPECV_CHECK(specv_i_aligned(d->predicts, token_bytes), PATH);
    if (d->out_stride_elems) SPECV_CHECK(d->out_stride_elems >= columns, OUT_STRIDE);
    SPECV_CHECK(specv_i_fits((int64_t)d->trees.batch * 8, d->out_stride_elems, 0), SIZE);
    return SPECV_OK;
}

/* Bytes of scratch memory that suffice for every step of at most batch trees of max_nodes nodes and
   vocab ids, from scores, but for filters; or SPECV_ERR_*. */
SPECV_HOSTAPI int64_t specv_verify_tree_scratch_bytes(int64_t batch, int64_t max_nodes,
                                                      int64_t vocab) {
    SPECV_CHECK(batch >= 0, BATCH);
    SPECV_CHECK(max_nodes >= 1 && max_nodes <= SPECV_MAX_NODES, TREE);
    SPECV_CHECK(batch <= (INT64_C(1) << 30) / max_nodes, TOO_LARGE);
    SPECV_CHECK(vocab >= 1 && vocab <= 1 << 22, VOCAB);
    return batch * specv_i_tree_scratch_for(max_nodes, vocab).bytes;
}

SPECV_HOSTFN int specv_i_tree_is_filtered(const specv_verify_tree_desc *d) {
    return specv_i_has_filters(&d->filters) || specv_i_has_filters(&d->draft_filters);
}

SPECV_HOSTFN int specv_i_tree_cuts(const specv_verify_tree_desc *d) {
    return specv_i_cuts(&d->filters) || specv_i_cuts(&d->draft_filters);
}

SPECV_HOSTFN int specv_i_tree_tells(const specv_verify_tree_desc *d) {
    return d->emitted.logprob || specv_i_tells(&d->emitted);
}

/* Does it have rows of nodes in scratch memory, as A2 to A5 have positions? */
SPECV_HOSTFN int specv_i_tree_has_rows(const specv_verify_tree_desc *d) {
    return specv_i_tree_cuts(d) || specv_i_tree_tells(d);
}

/* All that it needs. */
SPECV_HOSTFN int64_t specv_i_tree_scratch_bytes(const specv_verify_tree_desc *d) {
    const int64_t batch = d->trees.batch, nodes = d->trees.max_nodes;
    int64_t bytes = specv_verify_tree_scratch_bytes(batch, nodes, d->vocab);
    if (specv_i_tree_has_rows(d))
        bytes += specv_verify_sample_scratch_bytes(batch, nodes, d->vocab);
    return bytes;
}

/* What it is given of models. */
SPECV_HOSTFN int specv_i_tree_scores_validate(const specv_verify_tree_desc *d) {
    const int from_scores = !d->target_tokens, has_batch = d->trees.batch > 0;
    specv_rows rows = SPECV_ZERO;
    int status;
    rows.batch = d->trees.batch, rows.max_draft = d->trees.max_nodes - 1;
    SPECV_CHECK(from_scores || (d->rule == SPECV_TREE_GREEDY && !d->target.data), TARGET_TOKENS);
    SPECV_CHECK(d->vocab >= from_scores && (!from_scores || d->vocab <= 1 << 22), VOCAB);
    for (int i = 0; i < 2 && from_scores; ++i) {
        const specv_scores *of = i ? &d->draft : &d->target;
        status = specv_i_scores_validate(of, &rows, d->vocab, d->trees.max_nodes);
        if (status != SPECV_OK) return status;
    }
    SPECV_CHECK(d->target.data || !from_scores || !has_batch, TARGET);
    SPECV_CHECK(specv_i_aligned(d->target.data, specv_i_score_bytes(d->target.dtype)), TARGET);
    SPECV_CHECK(specv_i_aligned(d->draft.data, specv_i_score_bytes(d->draft.dtype)), DRAFT);
    SPECV_CHECK(!d->draft.data || specv_i_tree_needs_draft(d->rule), DRAFT);
    status = specv_i_filters_validate(&d->filters, &d->target, &rows, d->vocab, d->trees.max_nodes);
    if (status != SPECV_OK) return status;
    status =
        specv_i_filters_validate(&d->draft_filters, &d->draft, &rows, d->vocab, d->trees.max_nodes);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->temperature, 4), TEMPERATURE);
    SPECV_CHECK(specv_i_aligned(d->draft_temperature, 4), TEMPERATURE);
    SPECV_CHECK(specv_i_aligned(d->seed, 8), SEED);
    SPECV_CHECK(d->seed || d->rule == SPECV_TREE_GREEDY || !has_batch, SEED);
    SPECV_CHECK(specv_i_aligned(d->position, 4), POSITION);
    SPECV_CHECK(d->position || !d->seed || !has_batch, POSITION);
    SPECV_CHECK(specv_i_aligned(d->logprob, 4) && (!d->logprob || from_scores), LOGPROB);
    if ((status = specv_i_emitted_validate(&d->emitted)) != SPECV_OK) return status;
    SPECV_CHECK(!specv_i_tree_tells(d) || from_scores, LOGPROB);
    SPECV_CHECK(!specv_i_tree_tells(d) || (d->out_tokens && d->path) || !has_batch, LOGPROB);
    SPECV_CHECK(d->step_row >= 0, STREAM);
    SPECV_CHECK(d->stream == SPECV_STREAM_TARGET || d->stream == SPECV_STREAM_DRAFT, STREAM);
    if (!has_batch || !from_scores) return SPECV_OK;
    if (specv_i_tree_has_rows(d))
        SPECV_CHECK(d->trees.batch * (d->trees.max_nodes + INT64_C(1)) <= 1 << 30, TOO_LARGE);
    SPECV_CHECK(d->scratch && specv_i_aligned(d->scratch, 16), SCRATCH);
    SPECV_CHECK(d->scratch_bytes >= specv_i_tree_scratch_bytes(d), SCRATCH);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_verify_tree_validate(const specv_verify_tree_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    SPECV_CHECK(d->rule >= SPECV_TREE_GREEDY && d->rule <= SPECV_TREE_TRAVERSAL_DISTINCT, RULE);
    if ((status = specv_i_trees_validate(&d->trees)) != SPECV_OK) return status;
    SPECV_CHECK(d->max_depth >= 0 && d->max_depth < d->trees.max_nodes, PATH);
    SPECV_CHECK(specv_i_aligned(d->target_tokens, d->trees.token_dtype == SPECV_I64 ? 8 : 4),
                TARGET_TOKENS);
    if ((status = specv_i_tree_scores_validate(d)) != SPECV_OK) return status;
    if ((status = specv_i_tree_outputs_validate(d)) != SPECV_OK) return status;
    if (d->target_stride_elems)
        SPECV_CHECK(d->target_stride_elems >= d->trees.max_nodes, TARGET_STRIDE);
    SPECV_CHECK(specv_i_fits((int64_t)d->trees.batch * 8, d->target_stride_elems, 0), SIZE);
    SPECV_CHECK(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos; ++i) {
        SPECV_CHECK(d->eos_token[i] >= 0, EOS_TOKEN);
        SPECV_CHECK(d->vocab == 0 || d->eos_token[i] < d->vocab, EOS_TOKEN);
    }
    return SPECV_OK;
}

SPECV_HOSTFN void specv_verify_tree_resolve(specv_verify_tree_desc *d) {
    specv_scores *of[2];
    of[0] = &d->target, of[1] = &d->draft;
    for (int i = 0; i < 2 && !d->target_tokens; ++i) {
        if (!of[i]->pos_stride_elems) of[i]->pos_stride_elems = d->vocab;
        if (!of[i]->seq_stride_elems)
            of[i]->seq_stride_elems = d->trees.max_nodes * of[i]->pos_stride_elems;
    }
    specv_i_trees_resolve(&d->trees);
    specv_i_filters_resolve(&d->filters, d->vocab);
    specv_i_filters_resolve(&d->draft_filters, d->vocab);
    if (!d->max_depth) d->max_depth = d->trees.max_nodes - 1;
    if (!d->target_stride_elems) d->target_stride_elems = d->trees.max_nodes;
    if (!d->out_stride_elems) d->out_stride_elems = (int64_t)d->max_depth + 1;
}

/* Nodes as positions of rows, for the kernels that cut them; d is resolved. As with a bonus_token
   there is no position behind the last one. */
SPECV_HOSTFN specv_verify_sample_desc specv_i_tree_as_rows(const specv_verify_tree_desc *d) {
    specv_verify_sample_desc v = SPECV_ZERO;
    v.verify.token_dtype = d->trees.token_dtype;
    v.verify.rows.num_active = d->trees.num_active, v.verify.rows.draft_len = d->trees.num_nodes;
    v.verify.rows.slot = d->trees.slot, v.verify.rows.slot_dtype = d->trees.slot_dtype;
    v.verify.rows.num_slots = d->trees.num_slots;
    v.verify.rows.batch = d->trees.batch, v.verify.rows.max_draft = d->trees.max_nodes;
    v.verify.draft_tokens = d->trees.token;
    v.verify.draft_stride_elems = d->trees.token_stride_elems, v.verify.vocab = d->vocab;
    v.target = d->target, v.draft = d->draft, v.bonus_token = d->trees.parent;
    v.temperature = d->temperature, v.draft_temperature = d->draft_temperature;
    v.seed = d->seed, v.position = d->position, v.step_row = d->step_row;
    v.filters = d->filters, v.draft_filters = d->draft_filters;
    v.stream = d->stream | SPECV_I_OF_TREE;
    v.rule = d->rule == SPECV_TREE_GREEDY    ? SPECV_RULE_GREEDY
             : d->rule == SPECV_TREE_COUPLED ? SPECV_RULE_COUPLED
                                             : SPECV_RULE_TOKEN;
    v.scratch = (char *)d->scratch +
                specv_verify_tree_scratch_bytes(d->trees.batch, d->trees.max_nodes, d->vocab);
    v.scratch_bytes =
        specv_verify_sample_scratch_bytes(d->trees.batch, d->trees.max_nodes, d->vocab);
    return v;
}

#if SPECV_I_LAUNCHERS
/* A7. One launch. Target ids: a warp per tree, which reads parents, tokens and target ids once: one
   dependent round trip for trees of up to 128 nodes, lengths included, one more for every 128.
   Scores: a block per tree, which reads the rows of the nodes that it comes to. With top_k, top_p
   or min_p two launches more (three, if the types of p and q differ), which cut the rows of all
   nodes on all SMs; with outputs of `emitted` two more behind the walk, over the rows of its path
   on all SMs. */
SPECV_LAUNCHER int specv_verify_tree(const specv_verify_tree_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_verify_tree);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* What a batch of trees says of one row. */
typedef struct specv_i_tree {
    int64_t first_parent, first_token; /* elements */
    int32_t num_nodes;                 /* 1 if the length is bad, 0 if nothing of it may be read */
    uint32_t status;
} specv_i_tree;

/* Call: any thread. The slot is looked at where the caller has use for it. */
SPECV_DEVFN specv_i_tree specv_i_open_tree(const specv_trees *t, int b, int has_slot) {
    specv_i_tree r;
    int32_t num_active = t->batch;
    int in_range;
    r.status = 0, r.num_nodes = t->max_nodes;
    specv_i_load_given(&r.num_nodes, t->num_nodes, b);
    specv_i_load_given(&num_active, t->num_active, 0);
    r.first_parent = b * t->parent_stride_elems, r.first_token = b * t->token_stride_elems;
    in_range = r.num_nodes >= 1 && r.num_nodes <= t->max_nodes;
    if (!in_range) r.num_nodes = 1, r.status = SPECV_ROW_BAD_LENGTH;
    if (has_slot && b < num_active) {
        uint32_t bad = 0;
        specv_thread_slot(t->slot, t->slot_dtype, t->num_slots, b, &bad);
        if (bad) r.num_nodes = 0, r.status = bad;
    }
    if (b >= num_active) r.num_nodes = 0, r.status = 0;
    return r;
}

/* How a tree ended. */
typedef struct specv_i_tree_end {
    int64_t next_token;
    int32_t accepted, mismatch, finished, readable;
    uint32_t status;
} specv_i_tree_end;

/* All outputs of a row. path: accepted + 1 nodes, visible to all. Call: the threads 0..count-1 of a
   warp (count 32) or a block, together. */
SPECV_DEVFN void specv_i_put_tree(const specv_verify_tree_desc *d, const specv_i_tree *tree, int b,
                                  const specv_i_tree_end *end, const unsigned short *path,
                                  int thread, int count) {
    const int dtype = d->trees.token_dtype, k = end->readable ? end->accepted : -1;
    const int64_t columns = (int64_t)d->max_depth + 1, nodes = (int64_t)b * d->trees.max_nodes;
    if (thread == 0) {
        d->accepted_len[b] = end->accepted;
        if (d->mismatch) d->mismatch[b] = (uint8_t)end->mismatch;
        if (d->next_token) specv_i_store_token(d->next_token, dtype, b, end->next_token);
        if (d->num_emitted) d->num_emitted[b] = end->accepted + (end->next_token >= 0);
        if (d->finished) d->finished[b] = (uint8_t)end->finished;
        specv_i_put_status(d->row_status, b, end->status, d->keep_status);
    }
    if (d->predicts) {
        for (int i = thread; i < d->trees.max_nodes; i += count)
            specv_i_store_token(d->predicts, dtype, nodes + i, -1);
        if (count == 32)
            __syncwarp();
        else
            __syncthreads();
    }
    if (!d->path && !d->accept_index && !d->out_tokens && !d->predicts) return;
    for (int i = thread; i <= d->max_depth; i += count) {
        const int on_path = i <= k;
        int64_t token = -1;
        if (i < k && (d->out_tokens || d->predicts))
            token = specv_i_one_token(d->trees.token, dtype, tree->first_token + path[i + 1]);
        else if (i == k)
            token = end->next_token;
        if (d->path) d->path[b * columns + i] = on_path ? path[i] : -1;
        if (d->accept_index)
            d->accept_index[b * columns + i] = on_path ? (int32_t)(nodes + path[i]) : -1;
        if (d->out_tokens)
            specv_i_store_token(d->out_tokens, dtype, b * d->out_stride_elems + i, token);
        if (d->predicts && on_path) specv_i_store_token(d->predicts, dtype, nodes + path[i], token);
    }
}

SPECV_DEVFN int specv_i_is_tree_eos(const specv_verify_tree_desc *d, int64_t token) {
    return specv_i_is_one_of(d->eos_token, d->num_eos, token);
}

/* Is it what parent[i] may be? */
SPECV_DEVFN int specv_i_is_parent(int32_t parent, int i) {
    return i == 0 ? parent == -1 : parent >= 0 && parent < i;
}

/* Shared memory of a warp that walks along target ids. */
typedef struct specv_i_trail {
    uint2 wanted[SPECV_MAX_NODES];        /* of each node the target's choice, as it was loaded */
    int32_t next[SPECV_MAX_NODES];        /* where the walk goes on from each, or SPECV_I_END_* */
    unsigned short path[SPECV_MAX_NODES]; /* its nodes */
} specv_i_trail;

/* The walk ends: at an EOS, whatever is behind it; else the least of what children say. */
enum {
    SPECV_I_END_EOS = -1,
    SPECV_I_END_ODD = SPECV_MAX_NODES,       /* a child that is neither token nor placeholder */
    SPECV_I_END_CHILD = SPECV_MAX_NODES + 1, /* a child */
    SPECV_I_END_LEAF = SPECV_MAX_NODES + 2
};

/* Of a tree and its target ids, for a dtype that is a constant: where the walk goes on from each
   node. A node asks its parent for the target's choice, and the first that has it is entered there;
   parents have smaller numbers, so that the nodes go by once, 128 at a time. The first of them are
   asked for before it is known how many there are. Call: warp. Sync: the warp's, at the end.
   Returns whether it is no tree. */
SPECV_DEVFN int specv_i_warp_lay_trail(const specv_verify_tree_desc *d, int b, int dtype,
                                       specv_i_tree *tree, specv_i_trail *t) {
    const int lane = specv_i_lane();
    const int64_t first_target = b * d->target_stride_elems;
    const int64_t first_parent = b * d->trees.parent_stride_elems;
    const int64_t first_token = b * d->trees.token_stride_elems;
    int n = d->trees.max_nodes, bad = 0;
#pragma unroll 1
    for (int base = 0; base < n; base += 128) {
        int32_t parent[4];
        uint2 token[4] = {}, target[4] = {};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = base + 32 * c + lane;
            uint2 raw = {};
            specv_i_load_token_below(i, n, 0, &raw, d->trees.parent, SPECV_I32, first_parent + i);
            parent[c] = (int32_t)raw.x;
            specv_i_load_token_below(i, i ? n : 0, 0, &token[c], d->trees.token, dtype,
                                     first_token + i);
            specv_i_load_token_below(i, n, 0, &target[c], d->target_tokens, dtype,
                                     first_target + i);
        }
        if (base == 0) {
            *tree = specv_i_open_tree(&d->trees, b, 0);
            n = tree->num_nodes;
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = base + 32 * c + lane;
            if (base + 32 * c >= n) break;
            const int is_eos = i > 0 && specv_i_is_tree_eos(d, specv_i_token(token[c], dtype));
            t->wanted[i] = target[c], t->next[i] = is_eos ? SPECV_I_END_EOS : SPECV_I_END_LEAF;
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = base + 32 * c + lane;
            const int64_t draft = specv_i_token(token[c], dtype);
            int way = SPECV_I_END_CHILD;
            if (base + 32 * c >= n) break;
            if (i >= n) continue;
            if (!specv_i_is_parent(parent[c], i)) {
                bad = 1;
            } else if (i > 0) {
                if (!specv_i_is_token(draft, d->vocab))
                    way = draft == -1 ? SPECV_I_END_CHILD : SPECV_I_END_ODD;
                else if (draft == specv_i_token(t->wanted[parent[c]], dtype))
                    way = i;
                atomicMin(&t->next[parent[c]], way);
            }
        }
    }
    __syncwarp();
    return __any_sync(SPECV_FULL_WARP, bad);
}

/* Is a child of this node neither a token nor a placeholder? Call: warp. */
SPECV_DEVFN int specv_i_warp_has_odd_child(const specv_verify_tree_desc *d,
                                           const specv_i_tree *tree, int node) {
    int odd = 0;
#pragma unroll 1
    for (int i = node + 1 + specv_i_lane(); i < tree->num_nodes; i += 32) {
        const int64_t draft =
            specv_i_one_token(d->trees.token, d->trees.token_dtype, tree->first_token + i);
        odd |= d->trees.parent[tree->first_parent + i] == node && draft != -1 &&
               !specv_i_is_token(draft, d->vocab);
    }
    return __any_sync(SPECV_FULL_WARP, odd);
}

/* The greedy walk along target ids; t->path gets its nodes. Call: warp. Sync: the warp's. */
SPECV_DEVFN specv_i_tree_end specv_i_warp_walk_tree(const specv_verify_tree_desc *d, int b,
                                                    int dtype, specv_i_tree *tree,
                                                    specv_i_trail *t) {
    const int bad = specv_i_warp_lay_trail(d, b, dtype, tree, t), lane = specv_i_lane();
    specv_i_tree_end end = {-1, 0, 0, 0, tree->num_nodes > 0, tree->status};
    int at = 0, way = SPECV_I_END_LEAF;
    if (lane == 0) t->path[0] = 0;
    if (!end.readable) return end;
    if (bad) {
        end.status |= SPECV_ROW_BAD_TREE;
    } else {
#pragma unroll 1
        for (way = t->next[0]; end.accepted < d->max_depth; way = t->next[at]) {
            if ((unsigned)way >= SPECV_MAX_NODES) break;
            at = way, end.accepted += 1;
            if (lane == 0) t->path[end.accepted] = (unsigned short)at;
        }
        __syncwarp();
    }
    end.finished = way == SPECV_I_END_EOS;
    end.mismatch = !end.finished && way != SPECV_I_END_LEAF;
    if (way == SPECV_I_END_ODD) end.status |= SPECV_ROW_BAD_DRAFT;
    if ((unsigned)way < SPECV_MAX_NODES && specv_i_warp_has_odd_child(d, tree, at))
        end.status |= SPECV_ROW_BAD_DRAFT; /* a node as deep as may be hides it */
    if (!end.finished) {
        const int64_t wanted = specv_i_token(t->wanted[at], dtype);
        end.next_token = specv_i_is_token(wanted, d->vocab) ? wanted : -1;
        if (end.next_token < 0) end.status |= SPECV_ROW_BAD_TARGET;
        end.finished = specv_i_is_tree_eos(d, end.next_token);
    }
    return end;
}

/* All outputs of a row: behind each node of the path but the last the target's choice was emitted.
   Call: warp. */
SPECV_DEVFN void specv_i_warp_put_trail(const specv_verify_tree_desc *d, int b, int dtype,
                                        const specv_i_tree_end *end, const specv_i_trail *t) {
    const int lane = specv_i_lane(), k = end->readable ? end->accepted : -1;
    const int64_t columns = (int64_t)d->max_depth + 1, nodes = (int64_t)b * d->trees.max_nodes;
    if (d->predicts) {
#pragma unroll 1
        for (int i = lane; i < d->trees.max_nodes; i += 32)
            specv_i_store_token(d->predicts, dtype, nodes + i, -1);
        __syncwarp();
    }
    if (lane == 0) {
        d->accepted_len[b] = end->accepted;
        if (d->mismatch) d->mismatch[b] = (uint8_t)end->mismatch;
        if (d->next_token) specv_i_store_token(d->next_token, dtype, b, end->next_token);
        if (d->num_emitted) d->num_emitted[b] = end->accepted + (end->next_token >= 0);
        if (d->finished) d->finished[b] = (uint8_t)end->finished;
        specv_i_put_status(d->row_status, b, end->status, d->keep_status);
    }
    if (!d->path && !d->accept_index && !d->out_tokens && !d->predicts) return;
#pragma unroll 1
    for (int i = lane; i <= d->max_depth; i += 32) {
        const int on_path = i <= k, node = on_path ? t->path[i] : 0;
        int64_t token = -1;
        if (i < k) token = specv_i_token(t->wanted[node], dtype);
        if (i == k) token = end->next_token;
        if (d->path) d->path[b * columns + i] = on_path ? node : -1;
        if (d->accept_index)
            d->accept_index[b * columns + i] = on_path ? (int32_t)(nodes + node) : -1;
        if (d->out_tokens)
            specv_i_store_token(d->out_tokens, dtype, b * d->out_stride_elems + i, token);
        if (d->predicts && on_path) specv_i_store_token(d->predicts, dtype, nodes + node, token);
    }
}

/* A7 of one tree from target ids. Call: warp. */
SPECV_DEVFN void specv_i_warp_verify_tree(const specv_verify_tree_desc *d, int b, int dtype,
                                          specv_i_trail *t) {
    specv_i_tree tree;
    const specv_i_tree_end end = specv_i_warp_walk_tree(d, b, dtype, &tree, t);
    specv_i_warp_put_trail(d, b, dtype, &end, t);
}

/* ---- trees and what models say

   A block works on a tree. What decides is computed by all its threads alike, from what is in
   shared memory, so that few barriers are needed. Every walk is a loop which opens a row, looks at
   children, sums up what is left and draws, each in one place: code that reads a row is long. */

/* Rules that a kernel knows: constants, so that it has the code of no other. COIN: ONE_COIN from
   logits; PROBS: the same from probabilities; ANY: all rules, with filters. */
enum {
    SPECV_I_WALK_EQUAL,
    SPECV_I_WALK_COIN,
    SPECV_I_WALK_PROBS,
    SPECV_I_WALK_PAIRS,
    SPECV_I_WALK_ANY
};

/* The parameter of the kernel with filters. */
typedef struct specv_tree_task {
    specv_verify_tree_desc d; /* resolved; probabilities are weights */
    uint64_t *least;          /* as in specv_i_memory, max_nodes + 1 a tree; null: no row is cut */
    int64_t target_rows;
} specv_tree_task;

/* What a tree's request says. Registers are scarce: in shared memory, written once. */
typedef struct specv_i_tree_values {
    specv_i_side target, draft;
    specv_tile *tiles;
    unsigned long long *sums; /* of tiles */
    specv_distribution *rows; /* [max_nodes][2] */
    uint64_t seed;
    uint32_t position, reserved; /* no hole: copied word by word */
    int32_t num_nodes, num_tiles;
} specv_i_tree_values;

/* By child: what r and q of its parent were multiplied by when it was tried (of a proposal, p
   without those before it in place of the latter), P of the parent by then; by node: P. */
typedef struct specv_i_trials {
    float scale[SPECV_MAX_NODES], q_scale[SPECV_MAX_NODES], rest[SPECV_MAX_NODES];
    float prefix[SPECV_MAX_NODES];
} specv_i_trials;

/* ONE_COIN, by node: its number; by child: what it weighs, from probabilities, in units of the
   row's sum, or one of these; AGAIN: a sibling before it has its token. */
#define SPECV_I_COIN_NAN   ((uint64_t)1 << 63)
#define SPECV_I_COIN_AGAIN ((uint64_t)1 << 62)

typedef struct specv_i_coins {
    uint64_t coin[SPECV_MAX_NODES], units[SPECV_MAX_NODES];
} specv_i_coins;

/* A tree of at most so many nodes is judged at once, from probabilities. */
#define SPECV_I_FAMILY 256

/* By node: its number, in units of a row's sum; what it weighs; what a token behind it is drawn
   with; which nodes are children that are tried, ceil(num_nodes / 32) words; the child on which the
   number falls, or SPECV_I_END_*. */
typedef struct specv_i_family {
    uint64_t coin[SPECV_I_FAMILY], units[SPECV_I_FAMILY], draw[SPECV_I_FAMILY];
    uint32_t children[SPECV_I_FAMILY * SPECV_I_FAMILY / 32];
    int32_t next[SPECV_I_FAMILY];
    uint32_t status; /* of the tree */
} specv_i_family;

/* So many tiles have their sums in shared memory, with ONE_COIN from probabilities. */
#define SPECV_I_TILES_HERE 256

/* Where ONE_COIN's first warp has come to. */
typedef struct specv_i_stepped {
    int32_t node, depth, leaf;
    uint32_t status;
} specv_i_stepped;

/* What the kernel has in shared memory. */
typedef struct specv_i_grove {
    specv_i_tree_values of;
    specv_distribution p, q;
    unsigned long long sums[3];  /* specv_i_tree_sums */
    unsigned long long parts[8]; /* of a tile */
    unsigned long long here[SPECV_I_TILES_HERE];
    union {
        specv_i_trials trials;
        specv_i_coins coins;
        specv_i_family family;
    } u;
    int32_t token[SPECV_MAX_NODES]; /* -1: a placeholder, or the root; -2: none at all */
    short parent[SPECV_MAX_NODES];
    unsigned short tried[SPECV_MAX_NODES]; /* children of the node that is looked at */
    unsigned short path[SPECV_MAX_NODES];
    int32_t num_tried, bad, nan, drawn;
    int32_t odd;    /* a child weighs NaN */
    int32_t behind; /* 1: the last node has children; 2: one is no token */
    specv_i_stepped stepped;
} specv_i_grove;

/* A tree that is walked. */
typedef struct specv_i_walk {
    const specv_verify_tree_desc *d;
    specv_i_grove *g;
    int kind; /* SPECV_I_WALK_* */
} specv_i_walk;

SPECV_DEVFN int specv_i_tree_threads(const specv_i_walk *w) {
    return w->kind == SPECV_I_WALK_PROBS ? SPECV_COIN_THREADS : SPECV_GROVE_THREADS;
}

/* Does it walk along probabilities as they are? Mostly known when this is compiled. */
SPECV_DEVFN int specv_i_walks_probs(const specv_i_walk *w) {
    if (w->kind == SPECV_I_WALK_PROBS) return 1;
    return w->kind != SPECV_I_WALK_COIN && w->g->of.target.dtype == SPECV_PROBS_F32;
}

/* A side as it is known when this is compiled: mostly without filters. */
SPECV_DEVFN specv_i_side specv_i_tree_side(const specv_i_walk *w, int of_draft) {
    specv_i_side side = of_draft ? w->g->of.draft : w->g->of.target;
    if (w->kind == SPECV_I_WALK_ANY) return side;
    side.mask = 0, side.least = 0, side.mask_stride = 0;
    side.scale.of_probs = 0, side.dtype &= 3;
    if (w->kind == SPECV_I_WALK_PROBS) side.dtype = SPECV_PROBS_F32;
    return side;
}

/* What a side says of one id of a node, if that is kept. */
SPECV_DEVFN float specv_i_tree_score(const specv_i_side *side, int node, int32_t id) {
    const specv_i_sieve sieve = specv_i_sieve_of(side, node);
    return specv_i_sift(&sieve, specv_i_load_score(specv_i_scores_of(side, node), side->dtype, id),
                        id);
}

/* Of a row whose values may be read. */
SPECV_DEVFN specv_random specv_i_tree_random(const specv_i_walk *w, int j, uint32_t use) {
    return specv_philox(w->g->of.seed, w->g->of.position, (uint32_t)(w->d->step_row + j), 0,
                        specv_i_tag(use, w->d->stream));
}

/* The child of a node behind `after`, or with a token; 0: none. kind: -2 for any, -1 for any that
   is a token, else the token. Call: warp; the same in all lanes. */
SPECV_DEVFN int specv_i_warp_child(const specv_i_walk *w, int node, int after, int32_t kind) {
    const int lane = specv_i_lane(), from = (after < node ? node : after) + 1;
    const int num_nodes = w->g->of.num_nodes;
#pragma unroll 1
    for (int base = from & ~31; base < num_nodes; base += 32) {
        const int i = base + lane;
        int is = i >= from && i < num_nodes;
        if (is) {
            const int32_t token = w->g->token[i];
            is = w->g->parent[i] == node &&
                 (kind == -2 || (kind == -1 ? token >= 0 : token == kind));
        }
        const unsigned found = __ballot_sync(SPECV_FULL_WARP, is);
        if (found) return base + __ffs((int)found) - 1;
    }
    return 0;
}

SPECV_DEVFN int specv_i_is_eos_node(const specv_i_walk *w, int node) {
    return node > 0 && specv_i_is_tree_eos(w->d, w->g->token[node]);
}

/* The same among those that are tried. */
SPECV_DEVFN int specv_i_warp_tried(const specv_i_walk *w, int node, int depth, int after) {
    if (depth == w->d->max_depth || specv_i_is_eos_node(w, node)) return 0;
    return specv_i_warp_child(w, node, after, -1);
}

SPECV_DEVFN int specv_i_warp_child_with(const specv_i_walk *w, int node, int depth, int32_t token) {
    if (depth == w->d->max_depth || token < 0) return 0;
    return specv_i_warp_child(w, node, 0, token);
}

/* Parents and tokens into shared memory; is it a tree? Call: block. Sync: two barriers. */
SPECV_DEVFN int specv_i_block_load_tree(const specv_i_walk *w, const specv_i_tree *tree) {
    const specv_verify_tree_desc *d = w->d;
    const int thread = specv_i_thread(), n = tree->num_nodes;
    specv_i_grove *g = w->g;
    int bad = 0;
    if (thread == 0) {
        g->bad = 0, g->nan = 0, g->num_tried = 0, g->sums[0] = 0;
        g->drawn = -1;
        g->p = specv_i_plain_distribution();
    }
#pragma unroll 1
    for (int i = thread; i < n; i += specv_i_tree_threads(w)) {
        const int32_t parent = d->trees.parent[tree->first_parent + i];
        int64_t token = -1;
        if (i)
            token = specv_i_one_token(d->trees.token, d->trees.token_dtype, tree->first_token + i);
        if (!specv_i_is_token(token, d->vocab)) token = token == -1 ? -1 : -2;
        bad |= !specv_i_is_parent(parent, i);
        g->parent[i] = (short)(specv_i_is_parent(parent, i) ? parent : -1);
        g->token[i] = (int32_t)token;
    }
    __syncthreads();
    if (specv_i_tree_is_distinct(d->rule))
#pragma unroll 1
        for (int i = thread; i < n; i += specv_i_tree_threads(w))
#pragma unroll 1
            for (int k = 1; k < i; ++k)
                bad |=
                    g->token[i] >= 0 && g->token[k] == g->token[i] && g->parent[k] == g->parent[i];
    if (bad) atomicOr(&g->bad, 1);
    __syncthreads();
    return !g->bad;
}

/* `count` halves of a tile from `part` on, 16 scores each, of a type that is known where scores are
   loaded: as specv_i_load_halves has it. */
SPECV_DEVFN void specv_i_load_any_halves(float *score, const void *row, int dtype, int64_t vocab,
                                         int tile, int part, int count) {
    const int lane = specv_i_lane();
    const int64_t first = (int64_t)tile * SPECV_TILE_IDS;
    const char *p = (const char *)specv_i_score_at(row, dtype, first);
    const int left = vocab - first < SPECV_TILE_IDS ? (int)(vocab - first) : SPECV_TILE_IDS;
    const int whole = left == SPECV_TILE_IDS && ((uint64_t)p & 15) == 0;
    const uint32_t absent = dtype == SPECV_PROBS_F32 ? 0 : specv_i_absent(dtype);
    uint4 raw[8];
    if (specv_i_unit(dtype) == 8) {
#pragma unroll
        for (int t = 0; t < 2 * count; ++t) {
            const int unit = (2 * part + t) * 32 + lane;
            raw[t] = specv_i_load_unit_of_scores(p + 16 * unit, whole, 1, absent, left - 8 * unit);
        }
#pragma unroll
        for (int e = 0; e < 16 * count; ++e) {
            const uint4 v = raw[e / 8];
            const uint32_t word = e % 8 < 2 ? v.x : e % 8 < 4 ? v.y : e % 8 < 6 ? v.z : v.w;
            const uint32_t code = e % 2 ? word >> 16 : word & 0xffffu;
            score[e] = dtype == SPECV_LOGITS_F16 ? specv_f16_float(code) : specv_bf16_float(code);
        }
    } else {
#pragma unroll
        for (int t = 0; t < 4 * count; ++t) {
            const int unit = (4 * part + t) * 32 + lane;
            raw[t] = specv_i_load_unit_of_scores(p + 16 * unit, whole, 0, absent, left - 4 * unit);
        }
#pragma unroll
        for (int e = 0; e < 16 * count; ++e) {
            const uint4 v = raw[e / 4];
            const uint32_t word = e % 4 == 0 ? v.x : e % 4 == 1 ? v.y : e % 4 == 2 ? v.z : v.w;
            score[e] = specv_bits_float(word);
            if (dtype == SPECV_PROBS_F32) score[e] = specv_i_clean_prob(score[e]);
            if (dtype == SPECV_I_WEIGHTS_F32) score[e] = specv_i_weight_score(score[e]);
        }
    }
}

/* Those of `count` fours of a lane's scores of a tile that are not kept become -inf. */
SPECV_DEVFN void specv_i_sift_fours(const specv_i_sieve *s, float *score, int count, int first_four,
                                    int unit, int tile, int vocab) {
    if (!s->mask && !s->least) return;
#pragma unroll
    for (int four = 0; four < count; ++four)
        specv_i_sift_some(s, score + 4 * four, 4,
                          tile * SPECV_TILE_IDS +
                              specv_i_tile_id(4 * (first_four + four), specv_i_lane(), unit),
                          vocab);
}

/* The loudest id of a tile that has weights: half of it at a time, again from L1, as registers are
   few. Call: warp. */
SPECV_DEVFN void specv_i_warp_loudest(const void *row, const specv_i_side *side,
                                      const specv_i_sieve *sieve, int64_t vocab,
                                      const specv_noise *noise, int t, specv_tile *tile) {
    const int lane = specv_i_lane(), unit = specv_i_unit(side->dtype);
    const int probs = side->dtype == SPECV_PROBS_F32;
    int32_t id = SPECV_I_INT_MAX;
    if (probs ? !specv_i_less(0.f, tile->max) : !specv_in_range(tile->max, &side->scale)) return;
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
        float score[16];
        specv_i_load_any_halves(score, row, side->dtype, vocab, t, part, 1);
        specv_i_sift_fours(sieve, score, 4, 4 * part, unit, t, (int)vocab);
#pragma unroll 1
        for (int e = 16 * part; e < 16 * part + 16; e += 8) {
            const int first = t * SPECV_TILE_IDS;
            specv_i_warp_score_eight(score, first + specv_i_tile_id(e, lane, unit),
                                     first + specv_i_tile_id(e + 4, lane, unit), probs,
                                     &side->scale, noise, &tile->score, &id);
#pragma unroll
            for (int i = 0; i < 8; ++i) score[i] = score[i + 8];
        }
    }
    tile->id = (uint32_t)id | (tile->id & SPECV_I_NAN_BIT);
}

/* A probability below 2 in units of 2^-50: specv_fixed50, which a product and a conversion are, as
   exact and in a third of the instructions. */
SPECV_DEVFN uint64_t specv_i_units_of_prob(uint32_t word) {
    const float units = specv_i_mul(specv_bits_float(word), 1125899906842624.f);
    uint64_t whole;
    asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(whole) : "f"(units)); /* whatever -ftz says */
    return whole;
}

/* Probabilities of a tile, in units of 2^-50: `each` loads of 16 bytes in flight at a time, 8 or 4,
   a constant; what has come is added up while others are on their way. Call: warp; the same in all
   lanes. Trips: 8 / each. */
SPECV_DEVFN uint64_t specv_i_warp_add_probs(const void *row, int64_t vocab, int tile, int each,
                                            int *nan) {
    const int64_t first = (int64_t)tile * SPECV_TILE_IDS, left = vocab - first;
    const char *p = (const char *)row + 4 * first + 16 * specv_i_lane();
    const int aligned = ((uint64_t)row & 15) == 0, whole = aligned && left >= SPECV_TILE_IDS;
    int own = left < SPECV_TILE_IDS ? (int)left - 4 * specv_i_lane() : SPECV_TILE_IDS;
    uint64_t sum = 0;
#pragma unroll 1
    for (int part = 0; part < 8; part += each, p += 512 * each, own -= 128 * each) {
        uint4 raw[8];
        uint32_t any = 0;
        uint64_t its = 0;
        if (whole) {
#pragma unroll
            for (int t = 0; t < each; ++t) raw[t] = *(const uint4 *)(p + 512 * t);
        } else {
#pragma unroll
            for (int t = 0; t < each; ++t) {
                const int rest = own - 128 * t;
                raw[t] = make_uint4(0, 0, 0, 0);
                if (rest > 0)
                    raw[t] =
                        specv_i_load_unit_of_scores(p + 512 * t, aligned && rest >= 4, 0, 0, rest);
            }
        }
#pragma unroll
        for (int t = 0; t < each; ++t) {
            any |= raw[t].x | raw[t].y | raw[t].z | raw[t].w;
            its += specv_i_units_of_prob(raw[t].x) + specv_i_units_of_prob(raw[t].y);
            its += specv_i_units_of_prob(raw[t].z) + specv_i_units_of_prob(raw[t].w);
        }
        if (any >> 30) { /* not all in [0, 2), as usual */
            its = 0;
#pragma unroll
            for (int e = 0; e < 4 * each; ++e) {
                const uint4 v = raw[e / 4];
                const uint32_t word = e % 4 == 0 ? v.x : e % 4 == 1 ? v.y : e % 4 == 2 ? v.z : v.w;
                const float clean = specv_i_clean_prob(specv_bits_float(word));
                *nan |= specv_i_is_nan(clean);
                its +=
                    specv_i_units_of_prob(specv_float_bits(specv_i_max(clean, 0.f)) & 0x7fffffffu);
            }
        }
        sum += its;
    }
    return specv_i_warp_add(sum);
}

/* The largest of a tile's probabilities and its first id, as specv_warp_tile_stats has them. Call:
   warp. Trips: the tile, a quarter at a time. */
SPECV_DEVFN specv_tile specv_i_warp_largest_prob(const void *row, int64_t vocab, int tile) {
    const int64_t first = (int64_t)tile * SPECV_TILE_IDS;
    const int left = vocab - first < SPECV_TILE_IDS ? (int)(vocab - first) : SPECV_TILE_IDS;
    const float none = specv_bits_float(0xff800000u);
    int32_t key = specv_i_order_key(0xff800000u), id = SPECV_I_INT_MAX;
    int nan = 0;
    specv_tile its;
#pragma unroll 1
    for (int i = 4 * specv_i_lane(); i < left; i += 128) {
        float score[4];
        specv_i_load_four(score, row, SPECV_PROBS_F32, (int)first + i, (int)vocab);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float clean = specv_i_clean_prob(score[e]);
            const int32_t its_key = specv_i_order_key(specv_float_bits(specv_i_max(clean, none)));
            if (i + e >= left) continue;
            nan |= specv_i_is_nan(clean);
            if (its_key > key) key = its_key, id = (int32_t)first + i + e;
        }
    }
    const int32_t top = specv_warp_reduce_max(key);
    its.max = specv_i_of_order_key(top), its.sum = 0, its.score = SPECV_I_NO_SCORE;
    its.id = (uint32_t)specv_warp_reduce_min(key == top ? id : SPECV_I_INT_MAX);
    if (__any_sync(SPECV_FULL_WARP, nan)) its.id |= SPECV_I_NAN_BIT;
    return its;
}

/* Sums of the tiles of a node's probabilities, and of the row. Call: block. Trips: a tile a warp at
   a time. */
SPECV_DEVFN void specv_i_block_add_tiles(const specv_i_walk *w, const void *scores) {
    specv_i_grove *g = w->g;
    int nan = 0;
#pragma unroll 1
    for (int t = specv_i_thread() / 32; t < g->of.num_tiles; t += specv_i_tree_threads(w) / 32) {
        const uint64_t sum = specv_i_warp_add_probs(scores, w->d->vocab, t,
                                                    w->kind == SPECV_I_WALK_PROBS ? 4 : 8, &nan);
        if (specv_i_lane() == 0) {
            g->of.sums[t] = sum;
            atomicAdd(&g->sums[0], (unsigned long long)sum);
        }
    }
    if (nan) atomicOr(&g->nan, 1);
}

/* The same of a walk along probabilities, whatever was there; no token is drawn yet. Call: block.
   Sync: three barriers. */
SPECV_DEVFN void specv_i_block_add_row(const specv_i_walk *w, int node) {
    specv_i_grove *g = w->g;
    __syncthreads();
    if (specv_i_thread() == 0) g->sums[0] = 0, g->drawn = -1;
    __syncthreads();
    specv_i_block_add_tiles(w, specv_i_scores_of(&g->of.target, node));
    __syncthreads();
}

/* A node's row of one side, put together of its tiles, into *row of shared memory; their sums
   beside them. what: SPECV_TILE_* bits, those of may, a constant; or `adds`: probabilities that are
   the distribution are added up, *row stays. Call: block. Sync: three barriers. Trips: a tile a
   warp at a time, then the tiles. */
SPECV_DEVFN void specv_i_block_open_row(const specv_i_walk *w, int of_draft, int node, int depth,
                                        int may, int what, int adds, specv_distribution *row) {
    const specv_i_side side = specv_i_tree_side(w, of_draft);
    const int warp = specv_i_thread() / 32, num_tiles = w->g->of.num_tiles;
    const void *scores = specv_i_scores_of(&side, node);
    const specv_i_sieve sieve = specv_i_sieve_of(&side, node);
    specv_tile *tiles = w->g->of.tiles;
    specv_noise noise;
    uint64_t through;
    if (side.dtype == SPECV_PROBS_F32) what |= SPECV_TILE_PROBS;
    noise.seed = w->g->of.seed, noise.tag = SPECV_TAG_COUPLED, noise.row = 0;
    noise.position = w->g->of.position + (uint32_t)(w->d->step_row + depth);
    __syncthreads(); /* tiles and *row may be looked at until here */
    if (adds) {
        specv_i_block_add_tiles(w, scores);
        __syncthreads();
        return;
    }
#pragma unroll 1
    for (int t = warp; t < num_tiles; t += specv_i_tree_threads(w) / 32) {
        specv_tile tile;
        if (w->kind == SPECV_I_WALK_PROBS) {
            tile = specv_i_warp_largest_prob(scores, w->d->vocab, t);
        } else {
            float score[32];
            specv_i_load_any_halves(score, scores, side.dtype, w->d->vocab, t, 0, 2);
            specv_i_sift_fours(&sieve, score, 8, 0, specv_i_unit(side.dtype), t, (int)w->d->vocab);
            tile = specv_warp_tile_stats(score, specv_i_unit(side.dtype), t,
                                         what & ~SPECV_TILE_SCORE, &side.scale, &noise);
            if (may & what & SPECV_TILE_SCORE)
                specv_i_warp_loudest(scores, &side, &sieve, w->d->vocab, &noise, t, &tile);
        }
        if (specv_i_lane() == 0) tiles[t] = tile, w->g->of.sums[t] = tile.sum;
    }
    __syncthreads();
    if (warp == 0) {
        specv_distribution its =
            specv_i_warp_merge(tiles, num_tiles, may, what, side.zero, &side.scale, &through);
        if (its.sum) specv_i_set_inverse(&its);
        if (specv_i_lane() == 0) *row = its;
    }
    __syncthreads();
}

/* What a walk does where it is, and with it what it needs of a row. LAW, WITHOUT, P: it ends here
   with a token of r behind children that were tried, of p without them, of p; AGAIN: of p, as the
   first two were nothing. */
typedef enum specv_i_leaf {
    SPECV_I_NO_LEAF,
    SPECV_I_LEAF_LAW,
    SPECV_I_LEAF_WITHOUT,
    SPECV_I_LEAF_P,
    SPECV_I_LEAF_AGAIN
} specv_i_leaf;

/* p and, if has_q, q of a node, in shared memory. is_plain: probabilities are taken as they are,
   and of a leaf added up. keeps: for when the walk comes back to the node, again. Call: block. */
SPECV_DEVFN void specv_i_block_open_node(const specv_i_walk *w, int node, int depth, int may,
                                         int what, int has_q, int keeps, int again, int is_leaf) {
    const int thread = specv_i_thread();
    const specv_distribution plain = specv_i_plain_distribution();
    specv_i_grove *g = w->g;
    if (again) {
        __syncthreads();
        if (thread == 0) {
            g->p = g->of.rows[2 * node];
            if (w->d->draft.data) g->q = g->of.rows[2 * node + 1];
        }
        __syncthreads();
        return;
    }
#pragma unroll 1
    for (int i = 0; i <= has_q; ++i) {
        const specv_i_side *side = i ? &g->of.draft : &g->of.target;
        const int is_plain =
            side->dtype == SPECV_PROBS_F32 && what & SPECV_TILE_SUM && !(what & SPECV_TILE_SCORE);
        specv_distribution *row = i ? &g->q : &g->p;
        if (is_plain) {
            __syncthreads();
            if (thread == 0) *row = plain, g->sums[0] = 0;
        }
        if (is_plain && !is_leaf) continue;
        specv_i_block_open_row(w, i, node, depth, may, i && side->zero ? 0 : what, is_plain, row);
    }
    __syncthreads();
    if (thread == 0 && keeps) {
        g->of.rows[2 * node] = g->p;
        if (w->d->draft.data) g->of.rows[2 * node + 1] = g->q;
    }
}

/* Is it the first of its siblings that has its token? Call: warp; the same in all lanes. */
SPECV_DEVFN int specv_i_warp_is_first(const specv_i_walk *w, int node, int x) {
    return specv_i_warp_child(w, node, 0, w->g->token[x]) == x;
}

/* Children of a node up to `last` that were tried, in their order; of proposals each token once.
   Call: block. Sync: two barriers. */
SPECV_DEVFN void specv_i_block_list_tried(const specv_i_walk *w, int node, int depth, int last) {
    specv_i_grove *g = w->g;
    __syncthreads();
    if (specv_i_thread() < 32) {
        int count = 0;
#pragma unroll 1
        for (int x = last ? specv_i_warp_tried(w, node, depth, 0) : 0; x && x <= last;
             x = specv_i_warp_tried(w, node, depth, x)) {
            if (!w->d->draft.data && !specv_i_warp_is_first(w, node, x)) continue;
            if (specv_i_lane() == 0) g->tried[count] = (unsigned short)x;
            ++count;
        }
        if (specv_i_lane() == 0) g->num_tried = count;
    }
    __syncthreads();
}

/* p and q of four ids of a node from `first` on; what is behind the vocabulary is 0. */
SPECV_DEVFN void specv_i_tree_pair(const specv_i_walk *w, int node, int first, float p[4],
                                   float q[4], int *nan) {
    const specv_i_side target = specv_i_tree_side(w, 0), draft = specv_i_tree_side(w, 1);
    const specv_i_sieve of_target = specv_i_sieve_of(&target, node);
    const specv_i_sieve of_draft = specv_i_sieve_of(&draft, node);
    const int left = (int)w->d->vocab - first, vocab = (int)w->d->vocab;
    const char *of_p =
        (const char *)specv_i_score_at(specv_i_scores_of(&target, node), target.dtype, first);
    const char *of_q =
        (const char *)specv_i_score_at(specv_i_scores_of(&draft, node), draft.dtype, first);
    const int p_16_bit = specv_i_unit(target.dtype) == 8;
    const int q_16_bit = specv_i_unit(draft.dtype) == 8;
    const int aligned =
        ((uint64_t)of_p & (p_16_bit ? 7 : 15)) == 0 && ((uint64_t)of_q & (q_16_bit ? 7 : 15)) == 0;
    uint32_t p_word[4] = {0, 0, 0, 0}, q_word[4] = {0, 0, 0, 0};
    if (aligned && left >= 4) {
        specv_i_load_quad(p_word, of_p, p_16_bit);
        specv_i_load_quad(q_word, of_q, q_16_bit);
    } else {
        specv_i_load_some(p_word, of_p, p_16_bit, left);
        specv_i_load_some(q_word, of_q, q_16_bit, left);
    }
    specv_i_quad_p(p, &target, &w->g->p, &of_target, p_word, first, vocab, nan);
    specv_i_quad_p(q, &draft, &w->g->q, &of_draft, q_word, first, vocab, nan);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (i >= left) p[i] = q[i] = 0;
}

/* What the children that were tried leave of `count` ids from `first` on: p becomes c r - q of the
   last one, q that of ids which are not among the children. */
SPECV_DEVFN void specv_i_tree_law(const specv_i_walk *w, int count, int first, float *p, float *q) {
    const specv_i_grove *g = w->g;
    const specv_i_trials *trials = &g->u.trials;
    const int distinct = specv_i_tree_is_distinct(w->d->rule), n = g->num_tried;
    uint32_t gone = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        const int x = g->tried[k], at = g->token[x] - first;
        const float scale = trials->scale[x], q_scale = trials->q_scale[x];
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const float its = gone >> i & 1 ? 0.f : specv_i_tree_q(q[i], q_scale);
            p[i] = specv_fma(specv_i_max(p[i], 0.f), scale, specv_i_negate(its));
        }
        if (distinct && at >= 0 && at < count) gone |= 1u << at;
    }
#pragma unroll
    for (int i = 0; i < count; ++i)
        if (gone >> i & 1) q[i] = 0;
}

/* Sums of the tiles of (c r - q)+ behind the children that were tried. Call: block. Sync: three
   barriers. */
SPECV_DEVFN void specv_i_block_tree_sums(const specv_i_walk *w, int node, specv_i_tree_sums *out) {
    const int lane = specv_i_lane(), thread = specv_i_thread();
    specv_i_grove *g = w->g;
    int nan = 0;
    __syncthreads();
    if (thread < 3) g->sums[thread] = 0;
    __syncthreads();
    uint64_t all_loss = 0, all_gain = 0, all_untried = 0;
#pragma unroll 1
    for (int t = thread / 32; t < g->of.num_tiles; t += SPECV_GROVE_THREADS / 32) {
        uint64_t of_tile = 0;
#pragma unroll 1
        for (int part = 0; part < SPECV_TILE_IDS; part += 128) {
            const int first = t * SPECV_TILE_IDS + part + 4 * lane;
            float p[4], q[4];
            if (first >= w->d->vocab) break;
            specv_i_tree_pair(w, node, first, p, q, &nan);
            specv_i_tree_law(w, 4, first, p, q);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (first + i >= w->d->vocab) continue; /* 0 - q of an even law is below 0 */
                const uint64_t units =
                    specv_fixed50(specv_bits_float(specv_float_bits(p[i]) & 0x7fffffffu));
                if ((int32_t)specv_float_bits(p[i]) >= 0)
                    of_tile += units;
                else
                    all_loss += units;
                all_untried += specv_fixed50(q[i]);
            }
        }
        of_tile = specv_i_warp_add(of_tile);
        if (lane == 0) g->of.sums[t] = of_tile;
        all_gain += of_tile;
    }
    all_loss = specv_i_warp_add(all_loss), all_untried = specv_i_warp_add(all_untried);
    if (lane == 0) {
        atomicAdd(&g->sums[0], (unsigned long long)all_gain);
        atomicAdd(&g->sums[1], (unsigned long long)all_loss);
        atomicAdd(&g->sums[2], (unsigned long long)all_untried);
    }
    if (nan) atomicOr(&g->nan, 1);
    __syncthreads();
    out->gain = g->sums[0], out->loss = g->sums[1], out->untried = g->sums[2];
}

/* Weights of four ids in the units of their tile; n: of the tile, where logits are drawn from. */
SPECV_DEVFN void specv_i_tree_units(const specv_i_walk *w, int node, specv_i_leaf leaf, int32_t n,
                                    int first, uint64_t units[4]) {
    const specv_i_grove *g = w->g;
    const int vocab = (int)w->d->vocab;
    float p[4], q[4];
    int nan = 0;
    if (w->kind >= SPECV_I_WALK_PAIRS && leaf == SPECV_I_LEAF_LAW) {
        specv_i_tree_pair(w, node, first, p, q, &nan);
        specv_i_tree_law(w, 4, first, p, q);
#pragma unroll
        for (int i = 0; i < 4; ++i) units[i] = specv_i_less(0.f, p[i]) ? specv_fixed50(p[i]) : 0;
    } else {
        const specv_i_side side = specv_i_tree_side(w, 0);
        const specv_i_sieve sieve = specv_i_sieve_of(&side, node);
        specv_weight weight[4];
        specv_i_load_four(p, specv_i_scores_of(&side, node), side.dtype, first, vocab);
        if (w->kind == SPECV_I_WALK_PROBS && !((specv_float_bits(p[0]) | specv_float_bits(p[1]) |
                                                specv_float_bits(p[2]) | specv_float_bits(p[3])) >>
                                               30)) { /* as usual */
#pragma unroll
            for (int i = 0; i < 4; ++i) units[i] = specv_i_units_of_prob(specv_float_bits(p[i]));
        } else if (side.dtype == SPECV_PROBS_F32) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                p[i] = specv_i_clean_prob(p[i]);
                units[i] = specv_i_less(0.f, p[i]) ? specv_fixed50(p[i]) : 0;
            }
        } else {
            specv_i_sift_some(&sieve, p, 4, first, vocab);
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = specv_i_max(p[i], side.scale.floor);
            specv_i_softmax_weights(weight, p, 4, &side.scale);
#pragma unroll
            for (int i = 0; i < 4; ++i) units[i] = specv_weight_units(&weight[i], n);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i >= vocab) units[i] = 0;
    if (leaf != SPECV_I_LEAF_WITHOUT) return;
#pragma unroll 1
    for (int k = 0; k < g->num_tried; ++k) {
        const int at = g->token[g->tried[k]] - first;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i == at) units[i] = 0;
    }
}

/* Of a tile: n that its sum is relative to, and how much finer than the row's units its own are. */
SPECV_DEVFN uint32_t specv_i_tree_finer(const specv_i_walk *w, const specv_scale *scale,
                                        int of_units, int t, int32_t *n) {
    *n = 0;
    if (of_units) return SPECV_I_FINER_PROBS;
    const float largest = specv_i_max(w->g->of.tiles[t].max, scale->floor);
    *n = specv_softmax_weight(largest, scale).n;
    return (uint32_t)(w->g->p.n - *n);
}

/* Of probabilities, the tile in which the running sum of the tiles' sums exceeds
   uniform * W / 2^64, and what is left of that in the tile's units; -1: W is 0. A lane has tiles
   that follow each other. Call: warp; the same in all lanes. Trips: sums. */
SPECV_DEVFN int specv_i_warp_tree_tile(const specv_i_walk *w, uint64_t uniform, uint64_t *left) {
    const unsigned long long *sums = w->g->of.sums;
    const int num_tiles = w->g->of.num_tiles, each = specv_i_tiles_of_lane(num_tiles);
    int t = specv_i_lane() * each;
    const int end = t + each < num_tiles ? t + each : num_tiles;
    uint64_t part = 0;
#pragma unroll 1
    for (int k = t; k < end; ++k) part += sums[k] >> SPECV_I_FINER_PROBS;
    const uint64_t through = specv_i_warp_inclusive_add(part);
    const uint64_t total = __shfl_sync(SPECV_FULL_WARP, (unsigned long long)through, 31);
    uint64_t point = __umul64hi(uniform, total);
    const int at = specv_warp_first_reject(point < through);
    if (at == 32) return -1;
    point -= through - part;
#pragma unroll 1
    for (; t + 1 < end; ++t) { /* of the lane that has it */
        const uint64_t its = sums[t] >> SPECV_I_FINER_PROBS;
        if (point < its) break;
        point -= its;
    }
    point = point << SPECV_I_FINER_PROBS | uniform * total >> (64 - SPECV_I_FINER_PROBS);
    *left = __shfl_sync(SPECV_FULL_WARP, (unsigned long long)point, at);
    return __shfl_sync(SPECV_FULL_WARP, t, at);
}

/* The id at which the running sum of the tiles' sums exceeds uniform * W / 2^64; -1: W is 0. Eight
   warps look for the tile, as it is the same for all; then a part of it is each one's. Call: block.
   Sync: three barriers. Trips: sums, a tile. */
SPECV_DEVFN int specv_i_block_tree_draw(const specv_i_walk *w, int node, specv_i_leaf leaf,
                                        uint64_t uniform) {
    const specv_i_side side = specv_i_tree_side(w, 0);
    const int lane = specv_i_lane(), thread = specv_i_thread(), warp = thread / 32;
    const int of_units = leaf == SPECV_I_LEAF_LAW || side.dtype == SPECV_PROBS_F32;
    specv_i_grove *g = w->g;
    const int num_tiles = g->of.num_tiles;
    const unsigned long long *sums = g->of.sums;
    uint64_t total = 0, left = 0, through = 0, part = 0, low, before = 0;
    uint64_t units[4] = {0, 0, 0, 0};
    const int has_part = warp < 8;
    int tile = -1;
    uint32_t finer = 0, finer_here;
    int32_t n = 0, n_here = 0;
    if (w->kind == SPECV_I_WALK_PROBS) { /* g->drawn is -1 */
        if (has_part) tile = specv_i_warp_tree_tile(w, uniform, &left);
    } else {
        __syncthreads();
        if (thread == 0) g->drawn = -1;
#pragma unroll 1
        for (int t = lane; t < num_tiles && has_part; t += 32) {
            finer = specv_i_tree_finer(w, &side.scale, of_units, t, &n);
            if (sums[t]) total += specv_i_shift_right(sums[t], finer);
        }
        total = specv_i_warp_add(total);
        left = specv_i_mul_high(uniform, total), low = uniform * total;
#pragma unroll 1
        for (int base = 0; base < num_tiles && total && has_part; base += 32) {
            const int t = base + lane;
            part = 0;
            if (t < num_tiles) {
                finer = specv_i_tree_finer(w, &side.scale, of_units, t, &n);
                if (sums[t]) part = specv_i_shift_right(sums[t], finer);
            }
            through = specv_i_warp_inclusive_add(part);
            const int at = specv_warp_first_reject(left < through);
            if (at < 32) {
                tile = base + at;
                left -= __shfl_sync(SPECV_FULL_WARP, through - part, at);
                finer_here = (uint32_t)__shfl_sync(SPECV_FULL_WARP, (int)finer, at);
                n_here = __shfl_sync(SPECV_FULL_WARP, n, at);
                left = left << finer_here | specv_i_shift_right(low, 64 - finer_here);
                break;
            }
            left -= __shfl_sync(SPECV_FULL_WARP, through, 31);
        }
    }
    const int first = tile * SPECV_TILE_IDS + 4 * thread;
    if (tile >= 0 && warp < 8) {
        if (first < w->d->vocab) specv_i_tree_units(w, node, leaf, n_here, first, units);
        part = units[0] + units[1] + units[2] + units[3];
        through = specv_i_warp_inclusive_add(part);
        if (lane == 31) g->parts[warp] = through;
    }
    __syncthreads();
    if (tile >= 0 && warp < 8) {
#pragma unroll
        for (int k = 0; k < 7; ++k) before += k < warp ? g->parts[k] : 0;
        if (left >= before && left - before < g->parts[warp]) {
            left -= before;
            if (lane == specv_warp_first_reject(left < through)) {
                int i = 0;
                left -= through - part;
#pragma unroll
                for (int next = 0; next < 3; ++next)
                    if (i == next && left >= units[next]) left -= units[next], ++i;
                g->drawn = first + i;
            }
        }
    }
    __syncthreads();
    return g->drawn;
}

/* Takes children that were tried out of the sums of p's tiles. Call: block. Sync: two barriers. */
SPECV_DEVFN void specv_i_block_take_tried(const specv_i_walk *w, int node) {
    const specv_i_side side = specv_i_tree_side(w, 0);
    const specv_i_grove *g = w->g;
    __syncthreads();
#pragma unroll 1
    for (int k = specv_i_thread(); k < g->num_tried; k += specv_i_tree_threads(w)) {
        const int32_t token = g->token[g->tried[k]], t = token / SPECV_TILE_IDS;
        const float score = specv_i_tree_score(&side, node, token);
        uint64_t units;
        int32_t n;
        if (side.dtype == SPECV_PROBS_F32) {
            units = specv_i_less(0.f, score) ? specv_fixed50(score) : 0;
        } else {
            specv_i_tree_finer(w, &side.scale, 0, t, &n);
            const specv_weight weight =
                specv_softmax_weight(specv_i_max(score, side.scale.floor), &side.scale);
            units = g->of.tiles[t].sum ? specv_weight_units(&weight, n) : 0;
        }
        atomicAdd(&g->of.sums[t], (unsigned long long)(0 - units));
    }
    __syncthreads();
}

/* ln p of a token that a node emits. */
SPECV_DEVFN float specv_i_tree_logprob(const specv_i_walk *w, int node, int64_t token) {
    const specv_i_side side = specv_i_tree_side(w, 0);
    const specv_distribution *p = &w->g->p;
    if (token < 0 || p->kind != SPECV_SOFTMAX) return 0;
    const float score = specv_i_load_score(specv_i_scores_of(&side, node), side.dtype, token);
    if (side.dtype != SPECV_PROBS_F32) return specv_log_probability(p, &side.scale, score);
    int32_t exponent;
    const float fraction = specv_i_log2(score, &exponent);
    return specv_i_ln(exponent, fraction, 0);
}

/* One step down. */
SPECV_DEVFN void specv_i_put_path(const specv_i_walk *w, int depth, int node) {
    if (specv_i_thread() == 0) w->g->path[depth] = (unsigned short)node;
}

/* ONE_COIN: what an id weighs, in units of the row's sum; bit 63: NaN. */
SPECV_DEVFN uint64_t specv_i_coin_units(const specv_i_walk *w, int node, int32_t token) {
    const specv_i_side side = specv_i_tree_side(w, 0);
    const float score = specv_i_tree_score(&side, node, token);
    if (side.dtype == SPECV_PROBS_F32) {
        if (specv_i_is_nan(score)) return SPECV_I_COIN_NAN;
        return specv_i_less(0.f, score) ? specv_fixed50(score) >> SPECV_I_FINER_PROBS : 0;
    }
    const specv_weight weight =
        specv_softmax_weight(specv_i_max(score, side.scale.floor), &side.scale);
    return specv_weight_units(&weight, w->g->p.n);
}

/* ONE_COIN, before the walk: the numbers of all nodes, and from probabilities what all children
   weigh, so that steps need shared memory alone. Call: block. Sync: a barrier. */
SPECV_DEVFN void specv_i_block_toss_coins(const specv_i_walk *w) {
    specv_i_grove *g = w->g;
    const int probs = specv_i_walks_probs(w);
#pragma unroll 1
    for (int i = specv_i_thread(); i < g->of.num_nodes; i += specv_i_tree_threads(w)) {
        if (probs && i && g->token[i] >= 0)
            g->u.coins.units[i] = specv_i_coin_units(w, g->parent[i], g->token[i]);
        const specv_random r = specv_i_tree_random(w, i, SPECV_TAG_ACCEPT);
        g->u.coins.coin[i] = (uint64_t)r.x[1] << 32 | r.x[0];
    }
    __syncthreads();
}

/* The child that ONE_COIN's number falls on; 0: none. Those that were tried go into the list,
   *tried of them, each token once. Call: warp; the same in all lanes. Trips, of logits: children's
   scores, 32 nodes at a time. */
SPECV_DEVFN int specv_i_warp_coin_child(const specv_i_walk *w, int node, int depth, int *tried,
                                        uint32_t *status) {
    specv_i_grove *g = w->g;
    const int lane = specv_i_lane(), probs = specv_i_walks_probs(w);
    const uint64_t all = probs ? (uint64_t)1 << 40 : g->p.sum;
    const uint64_t coin = specv_i_mul_high(g->u.coins.coin[node], all);
    const int num_nodes = g->of.num_nodes;
    uint64_t so_far = 0;
    *tried = 0;
    if (depth == w->d->max_depth) return 0;
#pragma unroll 1
    for (int base = (node + 1) & ~31; base < num_nodes; base += 32) {
        const int i = base + lane;
        const int32_t token = i > node && i < num_nodes ? g->token[i] : -1;
        const int is = token >= 0 && g->parent[i] == node;
        uint64_t units = 0;
        if (is) units = probs ? g->u.coins.units[i] : specv_i_coin_units(w, node, token);
        unsigned children = __ballot_sync(SPECV_FULL_WARP, is);
        const int seen = *tried;
#pragma unroll 1
        while (children) {
            const int at = __ffs((int)children) - 1;
            const int32_t its = __shfl_sync(SPECV_FULL_WARP, token, at);
            const uint64_t weighs = __shfl_sync(SPECV_FULL_WARP, (unsigned long long)units, at);
            children &= ~__ballot_sync(SPECV_FULL_WARP, is && token == its);
            if (seen && specv_i_warp_child(w, node, 0, its) < base) continue;
            if (lane == 0) g->tried[*tried] = (unsigned short)(base + at);
            *tried += 1;
            if (weighs & SPECV_I_COIN_NAN)
                *status |= SPECV_ROW_NAN;
            else
                so_far += weighs;
            if (specv_i_coin_falls(coin, so_far)) return base + at;
        }
    }
    return 0;
}

/* ONE_COIN's way down from a node: one step, of probabilities all. Returns the node that it leads
   to, with its children listed; *leaf: it emits a token. Call: block. Sync: two barriers. */
SPECV_DEVFN int specv_i_block_step_by_coin(const specv_i_walk *w, int node, int *depth,
                                           specv_i_leaf *leaf, uint32_t *status) {
    specv_i_grove *g = w->g;
    const int steps_on = specv_i_walks_probs(w);
    __syncthreads();
    if (specv_i_thread() < 32) {
        int child = node, tried = 0, at = node, k = *depth;
        uint32_t bits = 0;
#pragma unroll 1
        do {
            child = specv_i_warp_coin_child(w, at, k, &tried, &bits);
            if (!child) break;
            at = child, k += 1;
            if (specv_i_lane() == 0) g->path[k] = (unsigned short)at;
        } while (steps_on && !specv_i_is_eos_node(w, at));
        if (specv_i_lane() == 0) {
            g->stepped.node = at, g->stepped.depth = k, g->num_tried = tried;
            g->stepped.leaf = child   ? SPECV_I_NO_LEAF
                              : tried ? SPECV_I_LEAF_WITHOUT
                                      : SPECV_I_LEAF_P;
            g->stepped.status = bits;
        }
    }
    __syncthreads();
    *status |= g->stepped.status, *leaf = (specv_i_leaf)g->stepped.leaf;
    *depth = g->stepped.depth;
    return g->stepped.node;
}

/* p of a proposal, of equal siblings the first one's. Call: warp; the same in all lanes. */
SPECV_DEVFN float specv_i_tree_p_of(const specv_i_walk *w, int node, int x, uint32_t *status) {
    const specv_i_side target = specv_i_tree_side(w, 0);
    const int32_t token = w->g->token[x];
    const float score = specv_i_tree_score(&target, node, token);
    const float p = specv_i_max(specv_i_p(&target, &w->g->p, score, token, status), 0.f);
    return specv_i_warp_is_first(w, node, x) ? p : 0.f;
}

/* r and q of child x of a node when it is tried. */
SPECV_DEVFN void specv_i_tree_look(const specv_i_walk *w, int node, int x, float c, float q_scale,
                                   float *its_p, float *its_q, uint32_t *status) {
    const specv_i_side target = specv_i_tree_side(w, 0), draft = specv_i_tree_side(w, 1);
    const int32_t token = w->g->token[x];
    const float p_score = specv_i_tree_score(&target, node, token);
    const float q_score = specv_i_tree_score(&draft, node, token);
    float p = specv_i_p(&target, &w->g->p, p_score, token, status);
    float q = specv_i_p(&draft, &w->g->q, q_score, token, status);
    specv_i_tree_law(w, 1, token, &p, &q);
    *its_p = specv_i_mul(specv_i_max(p, 0.f), c);
    *its_q = specv_i_tree_q(q, q_scale);
    *status |= w->g->p.status | w->g->q.status;
}

/* Is child x accepted when it is tried? What is remembered of it. Call: block. Sync: three
   barriers. */
SPECV_DEVFN int specv_i_block_try(const specv_i_walk *w, int node, int x, float c, float q_scale,
                                  float rest, float *prefix, uint32_t *status) {
    const int traverses = specv_i_tree_traverses(w->d->rule);
    specv_i_trials *trials = &w->g->u.trials;
    float its_p, its_q;
    int accepted;
    __syncthreads();
    if (w->d->draft.data) {
        specv_i_tree_look(w, node, x, c, q_scale, &its_p, &its_q, status);
    } else {
        its_p = specv_i_mul(specv_i_tree_p_of(w, node, x, status), c), its_q = 1;
        *status |= w->g->p.status;
    }
    *prefix = specv_i_tree_prefix(its_p, its_q);
    accepted = traverses && specv_i_less(0.f, *prefix);
    if (!traverses) {
        const specv_random r = specv_i_tree_random(w, x - 1, SPECV_TAG_ACCEPT);
        accepted = specv_accept(specv_uniform(&r), its_q, its_p);
    }
    __syncthreads();
    if (specv_i_thread() == 0) {
        trials->scale[x] = c, trials->q_scale[x] = q_scale, trials->rest[x] = rest;
        trials->prefix[x] = *prefix;
    }
    __syncthreads();
    return accepted;
}

/* The walk. GREEDY, COUPLED, and every rule at temperature 0: a row a step. ONE_COIN: the same; of
   probabilities only the children's, and the last row. RECURSIVE and TRAVERSAL, see the reference:
   a row of p and one of q for each node that has children, once; both again for each rejected
   child. The same of proposals: rows of p as ONE_COIN's, q_scale is what is left of p. Returns the
   last node. Call: block. */
SPECV_DEVFN int specv_i_block_walk(const specv_i_walk *w, specv_i_tree_end *end, float *logprob) {
    const specv_verify_tree_desc *d = w->d;
    specv_i_grove *g = w->g;
    const int kind = w->kind, any = kind == SPECV_I_WALK_ANY, zero = g->of.target.zero;
    const int equal = kind == SPECV_I_WALK_EQUAL || zero || (any && d->rule <= SPECV_TREE_COUPLED);
    const int coin = !equal && (kind == SPECV_I_WALK_COIN || kind == SPECV_I_WALK_PROBS ||
                                (any && d->rule == SPECV_TREE_ONE_COIN));
    const int pairs = (kind == SPECV_I_WALK_PAIRS || any) && !equal && !coin;
    const int traverses = pairs && specv_i_tree_traverses(d->rule);
    const int proposed = pairs && !d->draft.data;
    const int plain = !equal && specv_i_walks_probs(w);
    const int may = kind == SPECV_I_WALK_EQUAL || any ? SPECV_TILE_SUM | SPECV_TILE_SCORE
                    : kind == SPECV_I_WALK_PROBS      ? 0
                                                      : SPECV_TILE_SUM;
    const uint64_t one = (uint64_t)1 << 50;
    specv_i_tree_sums sums = {0, 0, 0};
    specv_i_leaf leaf = SPECV_I_NO_LEAF;
    int node = 0, depth = 0, after = 0, opened = -1; /* opened: whose rows are in *g */
    int what = zero || kind == SPECV_I_WALK_PROBS ? 0 : SPECV_TILE_SUM, token = -1;
    float c = 1, q_scale = 1, rest = 1;
    uint32_t bad_sum = 0;
    specv_i_tree_proposed of_proposed = {1, 1, 1, 0};
    if ((kind == SPECV_I_WALK_EQUAL || (any && equal)) && !zero)
        what = SPECV_TILE_SCORE | (d->logprob ? SPECV_TILE_SUM : 0);
    if (pairs && specv_i_thread() == 0) g->u.trials.prefix[0] = 1;
    if (coin) specv_i_block_toss_coins(w);
#pragma unroll 1
    for (;;) {
        int x = 0, rejected = 0;
        if (pairs && !leaf) {
            x = specv_i_warp_tried(w, node, depth, after);
            if (!x && traverses && node) {
                const specv_random r = specv_i_tree_random(w, node - 1, SPECV_TAG_ACCEPT);
                const float u = specv_uniform(&r);
                const int nothing_lost =
                    proposed ? !specv_i_less(0.f, of_proposed.lost) : sums.loss == 0;
                const int passes =
                    !after ? specv_accept(u, 1.f, g->u.trials.prefix[node])
                           : nothing_lost ||
                                 specv_accept(u, proposed ? of_proposed.lost : (float)sums.loss,
                                              proposed ? of_proposed.gained : (float)sums.gain);
                if (!passes) rejected = node, node = g->parent[node], depth -= 1;
            }
            if (!x && !rejected) {
                if (specv_i_is_eos_node(w, node)) break;
                leaf = !after ? SPECV_I_LEAF_P : proposed ? SPECV_I_LEAF_WITHOUT : SPECV_I_LEAF_LAW;
                if (proposed && (plain || traverses)) opened = -1; /* its tiles are not here */
                if (proposed) specv_i_block_list_tried(w, node, depth, after);
            }
        }
        if (kind == SPECV_I_WALK_PROBS && leaf && !equal) {
            specv_i_block_add_row(w, node);
        } else if (opened != node && (leaf || !coin || !plain)) {
            specv_i_block_open_node(w, node, depth, may, what, pairs && !leaf && !proposed,
                                    traverses && !leaf, rejected, leaf != 0);
            if (pairs && !rejected && !leaf) specv_i_block_list_tried(w, node, depth, 0);
            opened = node;
        }
        if (coin && !leaf && (plain || g->p.kind == SPECV_SOFTMAX)) {
            if (!plain) end->status |= g->p.status;
            node = specv_i_block_step_by_coin(w, node, &depth, &leaf, &end->status);
            if (!leaf && specv_i_is_eos_node(w, node)) break;
            if (!leaf || plain) continue;
        } else if (equal || (coin && !leaf)) {
            token = g->p.kind == SPECV_NO_TOKEN ? -1 : g->p.id;
            const int child = specv_i_warp_child_with(w, node, depth, token);
            end->status |= g->p.status;
            if (child) {
                node = child, depth += 1;
                specv_i_put_path(w, depth, node);
                if (specv_i_is_eos_node(w, node)) break;
                continue;
            }
            if (equal) {
                end->next_token = token;
                break;
            }
            leaf = SPECV_I_LEAF_P;
        }
        if (pairs && x) {
            float prefix;
            if (specv_i_block_try(w, node, x, c, q_scale, rest, &prefix, &end->status)) {
                node = x, depth += 1, after = 0, q_scale = 1;
                c = rest = traverses ? prefix : 1.f;
                specv_i_put_path(w, depth, node);
                continue;
            }
            rejected = x;
        }
        if (proposed && rejected) {
            const float p = specv_i_tree_p_of(w, node, rejected, &end->status);
            after = rejected;
            of_proposed = specv_i_tree_reject(p, g->u.trials.scale[rejected],
                                              g->u.trials.q_scale[rejected], traverses);
            end->status |= g->p.status;
            c = of_proposed.c, q_scale = of_proposed.left;
            continue;
        }
        if (pairs && rejected) {
            after = rejected;
            specv_i_block_list_tried(w, node, depth, rejected);
            specv_i_block_tree_sums(w, node, &sums);
            end->status |= g->p.status | g->q.status;
            bad_sum = specv_i_less(0.f, g->u.trials.scale[rejected])
                          ? specv_i_tree_bad_sum(&sums, g->u.trials.rest[rejected])
                          : 0;
            c = specv_i_tree_scale(&sums, traverses), rest = specv_i_tree_rest(&sums, traverses);
            q_scale = specv_i_tree_q_scale(&sums, specv_i_tree_is_distinct(d->rule),
                                           d->vocab - g->num_tried);
            continue;
        }
        const specv_random r = specv_i_tree_random(w, node, SPECV_TAG_SAMPLE);
        end->status |= g->p.status;
        token = g->p.kind == SPECV_ONE_HOT ? g->p.id : -1;
        if (g->p.kind != SPECV_SOFTMAX) break;
        end->status |= bad_sum;
        if (plain && (leaf == SPECV_I_LEAF_P || leaf == SPECV_I_LEAF_WITHOUT) &&
            specv_i_bad_sum(g->sums[0], one))
            end->status |= SPECV_ROW_BAD_SUM;
        if (leaf == SPECV_I_LEAF_WITHOUT) specv_i_block_take_tried(w, node);
        token = specv_i_block_tree_draw(w, node, leaf, (uint64_t)r.x[1] << 32 | r.x[0]);
        if (token >= 0 || leaf == SPECV_I_LEAF_P || leaf == SPECV_I_LEAF_AGAIN) break;
        end->status |= SPECV_ROW_ZERO_RESIDUAL;
        leaf = SPECV_I_LEAF_AGAIN, opened = -1;
    }
    end->accepted = depth;
    if (leaf) {
        end->next_token = token;
        if (token < 0) end->status |= SPECV_ROW_EMPTY;
    }
    if (d->logprob) *logprob = specv_i_tree_logprob(w, node, end->next_token);
    return node;
}

/* Does it cut rows of a request? */
SPECV_DEVFN int specv_i_cuts_tree(const specv_filters *f, int32_t slot, int64_t vocab,
                                  uint32_t *status) {
    if (!specv_i_cuts(f)) return 0;
    const specv_i_limits l =
        specv_i_limits_of(f->top_k ? f->top_k[slot] : 0, f->top_p ? f->top_p[slot] : 1.f,
                          f->min_p ? f->min_p[slot] : 0.f, f->order, vocab, status);
    return !specv_i_limits_are_off(&l, vocab);
}

/* Filters of a tree whose values are open but for these. Call: any thread. */
SPECV_DEVFN void specv_i_open_tree_filters(const specv_tree_task *task, int b,
                                           const specv_i_tree *tree, specv_i_tree_values *v,
                                           uint32_t *status) {
    const specv_verify_tree_desc *d = &task->d;
    const int32_t slot = specv_i_good_slot(d->trees.slot, d->trees.slot_dtype, b);
    const int64_t first = b * (int64_t)d->trees.max_nodes, row = first + b;
    int is_good = specv_i_open_mask(&v->target, &d->filters, b, tree->num_nodes, first);
    is_good &= specv_i_open_mask(&v->draft, &d->draft_filters, b, tree->num_nodes, first);
    if (!is_good) { /* nothing else of it is looked at */
        v->num_nodes = 0, *status = tree->status | SPECV_ROW_BAD_FILTER;
        return;
    }
    const int cuts = specv_i_cuts_tree(&d->filters, slot, d->vocab, status);
    if (v->target.dtype == SPECV_I_WEIGHTS_F32) v->target.scale = specv_i_probs_scale();
    if (cuts && !v->target.zero) v->target.least = task->least + row;
    if (!d->draft.data || v->target.zero) return;
    if (v->draft.dtype == SPECV_I_WEIGHTS_F32)
        v->draft.scale = specv_i_probs_scale(), v->draft.zero = 0;
    if (specv_i_cuts_tree(&d->draft_filters, slot, d->vocab, status) && !v->draft.zero)
        v->draft.least = task->least + task->target_rows + row;
}

/* What a tree's request says of it; its temperatures' faults. Call: any thread. */
SPECV_DEVFN specv_i_tree_values specv_i_open_tree_values(const specv_verify_tree_desc *d, int b,
                                                         const specv_i_tree *tree,
                                                         uint32_t *status) {
    const specv_i_tree_scratch s = specv_i_tree_scratch_for(d->trees.max_nodes, d->vocab);
    char *scratch = (char *)d->scratch + b * s.bytes;
    const int32_t slot = specv_i_good_slot(d->trees.slot, d->trees.slot_dtype, b);
    const int greedy = d->rule == SPECV_TREE_GREEDY;
    float temperature = 1;
    specv_i_tree_values v;
    v.num_nodes = tree->num_nodes, v.num_tiles = s.num_tiles;
    v.tiles = (specv_tile *)(scratch + s.tiles);
    v.sums = (unsigned long long *)(scratch + s.sums);
    v.rows = (specv_distribution *)(scratch + s.rows);
    v.seed = 0, v.position = v.reserved = 0;
    if (d->temperature && !greedy) temperature = d->temperature[slot];
    if (!specv_temperature_ok(temperature)) *status |= SPECV_ROW_BAD_TEMPERATURE;
    specv_i_open_side(&v.target, &d->target, b * d->target.seq_stride_elems);
    specv_i_set_temperature(&v.target, temperature, greedy);
    v.target.mask = 0, v.target.least = 0, v.target.mask_stride = 0;
    v.draft = v.target;
    if (d->seed) v.seed = d->seed[slot], v.position = (uint32_t)d->position[slot];
    if (!d->draft.data || v.target.zero) return v;
    if (d->draft_temperature) temperature = d->draft_temperature[slot];
    if (!specv_temperature_ok(temperature)) *status |= SPECV_ROW_BAD_TEMPERATURE;
    specv_i_open_side(&v.draft, &d->draft, b * d->draft.seq_stride_elems);
    specv_i_set_temperature(&v.draft, temperature, 0);
    return v;
}

/* A7 of one tree from scores. kind: SPECV_I_WALK_*, a constant; task: of ANY. Call: block of
   SPECV_GROVE_THREADS, of PROBS SPECV_COIN_THREADS. */
SPECV_DEVFN void specv_i_block_verify_tree(const specv_verify_tree_desc *d, int b, int kind,
                                           const specv_tree_task *task, specv_i_grove *g) {
    const specv_i_walk walk = {d, g, kind}, *w = &walk;
    const int thread = specv_i_thread();
    const specv_i_tree tree = specv_i_open_tree(&d->trees, b, 1);
    specv_i_tree_end end = {-1, 0, 0, 0, tree.num_nodes > 0, tree.status};
    float logprob = 0;
    int last = 0;
    if (thread == 0) g->path[0] = 0;
    specv_i_tree_values opened;
    if (end.readable) {
        opened = specv_i_open_tree_values(d, b, &tree, &end.status);
        if (kind == SPECV_I_WALK_ANY)
            specv_i_open_tree_filters(task, b, &tree, &opened, &end.status);
        end.readable = opened.num_nodes > 0;
    }
    if (end.readable) {
        if (thread == 0) g->of = opened;
        if (!specv_i_block_load_tree(w, &tree)) {
            __syncthreads();
            if (thread == 0) g->of.num_nodes = 1;
            end.status |= SPECV_ROW_BAD_TREE;
            __syncthreads();
        }
        last = specv_i_block_walk(w, &end, &logprob);
        end.finished = specv_i_is_eos_node(w, last);
        if (!end.finished) { /* what was behind it */
            const int n = g->of.num_nodes;
#pragma unroll 1
            for (int i = (last & ~31) + specv_i_lane(); (i & ~31) < n; i += 32) {
                const int is_child = i > last && i < n && g->parent[i] == last;
                end.mismatch |= __any_sync(SPECV_FULL_WARP, is_child) != 0;
                if (__any_sync(SPECV_FULL_WARP, is_child && g->token[i] == -2))
                    end.status |= SPECV_ROW_BAD_DRAFT;
            }
            end.finished = specv_i_is_tree_eos(d, end.next_token);
        }
        __syncthreads();
        if (g->nan) end.status |= SPECV_ROW_NAN;
    }
    __syncthreads();
    if (thread == 0 && d->logprob) d->logprob[b] = logprob;
    specv_i_put_tree(d, &tree, b, &end, g->path, thread, specv_i_tree_threads(w));
}

/* ONE_COIN from probabilities: a sum over node i and the siblings before it that are tried, each
   token once; above it a bit if one of the siblings has its token, which is for those that are not
   summed up yet. */
SPECV_DEVFN uint64_t specv_i_add_siblings(const specv_i_grove *g, int i, int parent, int words,
                                          int compare) {
    const specv_i_family *f = &g->u.family;
    const int32_t token = g->token[i];
    uint32_t before = f->children[parent * words + i / 32] & ((1u << (i & 31)) - 1);
    uint64_t sum = compare ? 0 : f->units[i];
#pragma unroll 1
    for (int k = i / 32;;) { /* lanes of a warp are in the same word */
#pragma unroll 1
        while (before) {
            const int at = 31 - __clz((int)before), sibling = 32 * k + at;
            before ^= 1u << at;
            if (compare)
                sum |= g->token[sibling] == token ? SPECV_I_COIN_AGAIN : 0;
            else
                sum += f->units[sibling];
        }
        if (--k < parent / 32) break;
        before = f->children[parent * words + k];
    }
    return compare ? sum : sum & (SPECV_I_COIN_AGAIN - 1);
}

/* The way down a family. Returns the last node. Call: warp; the same in all lanes. */
SPECV_DEVFN int specv_i_warp_fall(const specv_i_walk *w, int *depth, specv_i_leaf *leaf) {
    const specv_i_family *f = &w->g->u.family;
    const int max_depth = w->d->max_depth;
    int node = 0, k = 0, way = f->next[0];
#pragma unroll 1
    for (; k < max_depth && (unsigned)way < SPECV_MAX_NODES; way = f->next[node]) {
        node = way, k += 1;
        specv_i_put_path(w, k, node);
    }
    *depth = k;
    *leaf = way == SPECV_I_END_EOS                      ? SPECV_I_NO_LEAF
            : k == max_depth || way == SPECV_I_END_LEAF ? SPECV_I_LEAF_P
                                                        : SPECV_I_LEAF_WITHOUT;
    return node;
}

/* What is behind the last node of the path: children that were tried, each token once, into the
   list. What was tried on the path and weighs NaN tells. Call: thread i. */
SPECV_DEVFN void specv_i_look_back(const specv_i_walk *w, int i, const specv_i_stepped *end) {
    specv_i_grove *g = w->g;
    const specv_i_family *f = &g->u.family;
    const int32_t token = g->token[i];
    const int tries = end->leaf == SPECV_I_LEAF_WITHOUT;
    if (g->parent[i] == end->node) {
        atomicOr(&g->behind, token == -2 ? 3 : 1);
        if (tries && token >= 0 && f->units[i] != SPECV_I_COIN_AGAIN)
            g->tried[atomicAdd(&g->num_tried, 1)] = (unsigned short)i;
    }
    if (!g->odd || i == 0 || token < 0 || f->units[i] != SPECV_I_COIN_NAN) return;
    int at = 0;
#pragma unroll 1
    for (int k = 0; k <= end->depth; ++k) {
        const int last = k < end->depth ? f->next[at] : tries ? i : 0;
        if (i <= last && g->parent[i] == at) atomicOr(&g->nan, 1);
        at = last;
    }
}

/* Node i of a family as it was loaded, into shared memory; *score: what it weighs, on its way.
   Returns whether it may be tried. Call: thread i. */
SPECV_DEVFN int specv_i_put_node(const specv_i_walk *w, int b, int i, int words, int32_t parent,
                                 int64_t token, float *score) {
    const specv_verify_tree_desc *d = w->d;
    specv_i_grove *g = w->g;
    const int is_parent = specv_i_is_parent(parent, i);
    if (i == 0) token = -1;
    if (!specv_i_is_token(token, d->vocab)) token = token == -1 ? -1 : -2;
    if (!is_parent) atomicOr(&g->bad, 1), parent = -1;
    g->parent[i] = (short)parent, g->token[i] = (int32_t)token;
    if (token < 0 || parent < 0) return 0;
    *score =
        ((const float *)d->target
             .data)[b * d->target.seq_stride_elems + parent * d->target.pos_stride_elems + token];
    atomicOr(&g->u.family.children[parent * words + i / 32], 1u << (i & 31));
    if (specv_i_is_tree_eos(d, token)) g->u.family.next[i] = SPECV_I_END_EOS;
    return 1;
}

/* What the child i weighs, if its token comes first here. Call: thread i. */
SPECV_DEVFN void specv_i_weigh_node(const specv_i_walk *w, int i, int parent, int words,
                                    float score) {
    specv_i_grove *g = w->g;
    uint64_t units = specv_i_add_siblings(g, i, parent, words, 1);
    score = specv_i_clean_prob(score);
    if (!units && specv_i_is_nan(score)) units = SPECV_I_COIN_NAN, atomicOr(&g->odd, 1);
    if (!units && specv_i_less(0.f, score)) units = specv_fixed50(score) >> SPECV_I_FINER_PROBS;
    g->u.family.units[i] = units;
}

/* Does its parent's number fall on the child i? Call: thread i. */
SPECV_DEVFN void specv_i_judge_node(const specv_i_walk *w, int i, int parent, int words) {
    specv_i_family *f = &w->g->u.family;
    const uint64_t so_far = specv_i_add_siblings(w->g, i, parent, words, 0);
    const int falls = specv_i_coin_falls(f->coin[parent], so_far);
    atomicMin(&f->next[parent],
              falls && f->units[i] != SPECV_I_COIN_AGAIN ? i : (int)SPECV_I_END_CHILD);
}

/* What the walk of a family asks for later, in shared memory. Call: warp. */
SPECV_DEVFN void specv_i_warp_open_family(const specv_i_walk *w, int b, int bad) {
    const specv_verify_tree_desc *d = w->d;
    const specv_i_tree tree = specv_i_open_tree(&d->trees, b, 1);
    const int num_tiles = (int)((d->vocab + SPECV_TILE_IDS - 1) / SPECV_TILE_IDS);
    uint32_t status = tree.status | (bad ? SPECV_ROW_BAD_TREE : 0);
    specv_i_tree_values *of = &w->g->of;
    float temperature = 1;
    specv_i_side side;
    if (tree.num_nodes && d->temperature)
        temperature = d->temperature[specv_i_good_slot(d->trees.slot, d->trees.slot_dtype, b)];
    if (!specv_temperature_ok(temperature)) status |= SPECV_ROW_BAD_TEMPERATURE;
    specv_i_open_side(&side, &d->target, b * d->target.seq_stride_elems);
    if (specv_i_lane()) return;
    of->target.scores = side.scores, of->target.pos_stride = side.pos_stride;
    of->target.dtype = SPECV_PROBS_F32, of->target.zero = specv_temperature_is_0(temperature);
    of->num_nodes = bad ? 1 : tree.num_nodes, of->num_tiles = num_tiles, of->sums = w->g->here;
    if (num_tiles > SPECV_I_TILES_HERE) {
        const specv_i_tree_scratch s = specv_i_tree_scratch_for(d->trees.max_nodes, d->vocab);
        of->sums = (unsigned long long *)((char *)d->scratch + b * s.bytes + s.sums);
    }
    w->g->u.family.status = status;
}

/* A7 of a tree by ONE_COIN from probabilities. All nodes are judged at once, a thread a node; other
   warps make the numbers, one what the walk asks for later. Then one walks, all read the last
   node's row. Returns whether it was done: not at temperature 0. Call: block of
   SPECV_COIN_THREADS, for at most SPECV_I_FAMILY nodes. */
SPECV_DEVFN int specv_i_block_verify_family(const specv_verify_tree_desc *d, int b,
                                            specv_i_grove *g) {
    enum { ZEROS = 3 * SPECV_I_FAMILY, OPENS = SPECV_COIN_THREADS - 32 };
    const specv_i_walk walk = {d, g, SPECV_I_WALK_PROBS}, *w = &walk;
    const int thread = specv_i_thread(), max_nodes = d->trees.max_nodes;
    const int words = (max_nodes + 31) / 32, dtype = d->trees.token_dtype;
    const int part = (thread >= 32 * words) + (thread >= 64 * words) + (thread >= 96 * words);
    const int i = thread - part * 32 * words;
    specv_i_family *f = &g->u.family;
    specv_i_tree tree;
    uint2 parent = {}, token = {};
    uint64_t seed = 0;
    uint32_t position = 0;
    int is_tried = 0;
    float score = 0;
    tree.num_nodes = 0;
    if (part == 0) { /* on its way before it is known how many there are */
        specv_i_load_token_below(i, max_nodes, 0, &parent, d->trees.parent, SPECV_I32,
                                 b * d->trees.parent_stride_elems + i);
        specv_i_load_token_below(i, max_nodes, 0, &token, d->trees.token, dtype,
                                 b * d->trees.token_stride_elems + i);
        tree = specv_i_open_tree(&d->trees, b, 1);
    } else if (part < 3) {
        uint32_t bad = 0;
        const int32_t slot =
            specv_thread_slot(d->trees.slot, d->trees.slot_dtype, d->trees.num_slots, b, &bad);
        if (d->seed && slot >= 0) seed = d->seed[slot], position = (uint32_t)d->position[slot];
    }
    if (thread >= ZEROS && thread < OPENS) {
#pragma unroll 1
        for (int k = thread - ZEROS; k < max_nodes * words; k += OPENS - ZEROS) f->children[k] = 0;
#pragma unroll 1
        for (int k = thread - ZEROS; k < max_nodes; k += OPENS - ZEROS)
            f->next[k] = SPECV_I_END_LEAF;
    }
    if (thread == OPENS) {
        g->bad = 0, g->nan = 0, g->num_tried = 0, g->sums[0] = 0, g->odd = 0, g->behind = 0;
        g->drawn = -1, g->path[0] = 0;
        g->p = specv_i_plain_distribution();
    }
    __syncthreads();
    if (part == 0 && i < tree.num_nodes)
        is_tried = specv_i_put_node(w, b, i, words, (int32_t)parent.x, specv_i_token(token, dtype),
                                    &score);
    __syncthreads();
    const int bad = g->bad;
    if (bad) is_tried = 0;
    if (is_tried) {
        specv_i_weigh_node(w, i, (int32_t)parent.x, words, score);
    } else if (part == 1 || part == 2) {
        const uint32_t tag =
            specv_i_tag(part == 1 ? SPECV_TAG_ACCEPT : SPECV_TAG_SAMPLE, d->stream);
        const specv_random r = specv_philox(seed, position, (uint32_t)(d->step_row + i), 0, tag);
        const uint64_t number = (uint64_t)r.x[1] << 32 | r.x[0];
        if (part == 1) f->coin[i] = number >> 24; /* of 2^40, the sum of a row */
        if (part == 2) f->draw[i] = number;
    } else if (thread >= OPENS) {
        specv_i_warp_open_family(w, b, bad);
    }
    __syncthreads();
    specv_i_tree_end end = {-1, 0, 0, 0, g->of.num_nodes > 0, f->status};
    float logprob = 0;
    if (end.readable && g->of.target.zero) return 0;
    if (end.readable) {
        if (is_tried) specv_i_judge_node(w, i, (int32_t)parent.x, words);
        __syncthreads();
        if (thread < 32) {
            specv_i_stepped its;
            specv_i_leaf leaf;
            its.node = specv_i_warp_fall(w, &its.depth, &leaf);
            its.leaf = leaf, its.status = 0;
            if (thread == 0) g->stepped = its;
        }
        __syncthreads();
        const specv_i_stepped its = g->stepped;
        specv_i_leaf leaf = (specv_i_leaf)its.leaf;
        if (part == 0 && i < g->of.num_nodes) specv_i_look_back(w, i, &its);
        const void *scores = specv_i_scores_of(&g->of.target, its.node);
#pragma unroll 1
        while (leaf) {
            specv_i_block_add_tiles(w, scores);
            __syncthreads();
            if (leaf != SPECV_I_LEAF_AGAIN && specv_i_bad_sum(g->sums[0], (uint64_t)1 << 50))
                end.status |= SPECV_ROW_BAD_SUM;
            if (leaf == SPECV_I_LEAF_WITHOUT) specv_i_block_take_tried(w, its.node);
            end.next_token = specv_i_block_tree_draw(w, its.node, leaf, f->draw[its.node]);
            if (end.next_token >= 0 || leaf != SPECV_I_LEAF_WITHOUT) break;
            end.status |= SPECV_ROW_ZERO_RESIDUAL;
            leaf = SPECV_I_LEAF_AGAIN;
        }
        if (!leaf) __syncthreads();
        if (leaf && end.next_token < 0) end.status |= SPECV_ROW_EMPTY;
        end.accepted = its.depth;
        end.finished = !leaf || specv_i_is_tree_eos(d, end.next_token);
        if (leaf) end.mismatch = g->behind & 1;
        if (leaf && g->behind & 2) end.status |= SPECV_ROW_BAD_DRAFT;
        if (g->nan) end.status |= SPECV_ROW_NAN;
        if (d->logprob && thread < 32) logprob = specv_i_tree_logprob(w, its.node, end.next_token);
    }
    if (thread >= 32) return 1;
    tree = specv_i_open_tree(&d->trees, b, 1);
    if (thread == 0 && d->logprob) d->logprob[b] = logprob;
    specv_i_put_tree(d, &tree, b, &end, g->path, thread, 32);
    return 1;
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_TREE_THREADS)
    specv_tree_ids_kernel(const __grid_constant__ specv_verify_tree_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_equal_kernel(const __grid_constant__ specv_verify_tree_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_coin_kernel(const __grid_constant__ specv_verify_tree_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_COIN_THREADS, 1)
    specv_tree_coin_probs_kernel(const __grid_constant__ specv_verify_tree_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_kernel(const __grid_constant__ specv_verify_tree_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_filtered_kernel(const __grid_constant__ specv_tree_task task);
#endif

#endif /* __CUDACC__ */

/* B4. Commit of an accepted path. A pass over a tree wrote the KV rows of node i to position
   cache_len + i of the sequence's cache, node 0 (the root, the last token that the text had) at
   cache_len itself. The rows of the path's nodes go to the positions cache_len, cache_len + 1, ...:
   in place, in every plane. Rejected rows need no more than the new length. */
typedef struct specv_commit_path_desc {
    uint32_t canary0;
    int32_t keep_status;         /* 1 = add bits to row_status (after A7); 0 = store it */
    const int32_t *num_active;   /* as in specv_rows */
    const void *slot;            /* as in specv_rows */
    const int32_t *accepted_len; /* [batch]: nodes of the path without the root */
    const int32_t *path;         /* [batch][max_depth + 1]: accepted_len + 1 nodes from the root, 0,
                                    on, ascending; A7's. What is behind them is not looked at */
    const int32_t *num_nodes;    /* [batch], or null: max_nodes in every row; the root is one */
    const int32_t *cache_len;    /* [slot]: positions in the cache before the pass */
    int32_t *new_cache_len;      /* out [slot], or null: cache_len + accepted_len + 1; cache_len of
                                    a row with a fault. May be cache_len itself: of several caches
                                    of the same sequences (a draft model's, scales) the last one
                                    that is committed writes it */
    const int32_t *src_block_table; /* [slot], or null: kv.block_table. The table as it was when the
                                       pass wrote, where kv.block_table is another by now */
    const int32_t *page_refs; /* [num_pages], or null: a page that is written must have one owner */
    uint32_t *row_status;     /* out [batch], or null */
    uint32_t *ticket;         /* one per stream, 0: see B3; for new_cache_len */
    specv_kv_cache kv;
    int64_t path_stride_elems;      /* 0 = max_depth + 1 */
    int64_t src_table_stride_elems; /* 0 = that of kv */
    int32_t batch;
    int32_t max_nodes;  /* upper bound of nodes in a row, at most SPECV_MAX_NODES */
    int32_t max_depth;  /* upper bound of accepted_len; 0 = max_nodes - 1 */
    int32_t slot_dtype; /* as in specv_rows */
    int32_t num_slots;  /* as in specv_rows */
    int32_t num_sms;    /* 0 = ask the runtime for the current device */
    int32_t chained;    /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_commit_path_desc;

/* specv_commit_path_kernel, which looks at as many rows at a time, a thread each. Fewer than in B3:
   a thread has twice as many loads in flight. */
#define SPECV_COMMIT_THREADS 384

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN void specv_commit_path_resolve(specv_commit_path_desc *d) {
    specv_i_cache_resolve(&d->kv);
    if (!d->max_depth) d->max_depth = d->max_nodes - 1;
    if (!d->path_stride_elems) d->path_stride_elems = (int64_t)d->max_depth + 1;
    if (!d->src_table_stride_elems) d->src_table_stride_elems = d->kv.table_stride_elems;
    if (!d->src_block_table) d->src_block_table = d->kv.block_table;
}

SPECV_HOSTFN int specv_commit_path_validate(const specv_commit_path_desc *d) {
    int status;
    int64_t num_slots;
    specv_commit_path_desc full;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(d->max_nodes >= 1 && d->max_nodes <= SPECV_MAX_NODES, TREE);
    SPECV_CHECK(d->max_depth >= 0 && d->max_depth < d->max_nodes, PATH);
    SPECV_CHECK((int64_t)d->batch * d->max_nodes <= 1 << 30, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    if ((status = specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots)) != SPECV_OK)
        return status;
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4) && (d->accepted_len || d->batch == 0),
                ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->path, 4) && (d->path || d->batch == 0), PATH);
    SPECV_CHECK(specv_i_aligned(d->num_nodes, 4), TREE);
    SPECV_CHECK(specv_i_aligned(d->cache_len, 4) && (d->cache_len || d->batch == 0), CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->new_cache_len, 4), CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->src_block_table, 4), BLOCK_TABLE);
    SPECV_CHECK(!d->src_block_table || d->kv.block_table, BLOCK_TABLE);
    SPECV_CHECK(specv_i_aligned(d->page_refs, 4) && (!d->page_refs || d->kv.block_table),
                PAGE_REFS);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_aligned(d->ticket, 4), TICKET);
    SPECV_CHECK(d->ticket || !d->new_cache_len || d->batch == 0, TICKET);
    num_slots = specv_i_num_slots(d->slot, d->num_slots, d->batch);
    if ((status = specv_i_cache_validate(&d->kv, num_slots, -1)) != SPECV_OK) return status;
    full = *d;
    specv_commit_path_resolve(&full);
    SPECV_CHECK(full.path_stride_elems > full.max_depth, PATH);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * 4, full.path_stride_elems) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(d->src_block_table || d->src_table_stride_elems == 0, TABLE_STRIDE);
    if (full.src_block_table) {
        SPECV_CHECK(full.src_table_stride_elems >= specv_i_row_pages(&d->kv), TABLE_STRIDE);
        SPECV_CHECK(specv_i_times(num_slots * 4, full.src_table_stride_elems) < SPECV_I_HUGE, SIZE);
    }
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    return SPECV_OK;
}

#if SPECV_I_LAUNCHERS
/* B4. One launch, after A7 on the same stream: the host need not know what was accepted. Each block
   looks at all paths and moves an equal share of the bytes; a row that moves is read and written
   once, one that lies where it belongs is not touched. Rows' tables must not name the same page
   where they write (page_refs finds that out).
   Row faults, each of which leaves all of the row as it is: BAD_LENGTH (accepted_len, num_nodes or
   cache_len out of range); BAD_TREE (a path that does not begin with 0, does not ascend, or leaves
   the tree); NO_SPACE (a node behind max_positions); BAD_PAGE (a page id of the path out of range,
   in either table; tables between which a row would be written over a later node's); SHARED_PAGE.
   */
SPECV_LAUNCHER int specv_commit_path(const specv_commit_path_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_commit_path);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* What B4 does for one row. */
typedef struct specv_i_commit {
    int32_t slot;  /* of the request; -1 if the row is not live or its slot is bad */
    int32_t len;   /* positions in the cache now, whatever is there */
    int32_t first; /* of the path's nodes this one and those behind it may move */
    int32_t count; /* nodes of the path; 0 if the row stays as it is */
    uint32_t status;
} specv_i_commit;

/* Is a node's row to be stored where a later node's is still to be loaded from? Only between two
   tables: within one, positions tell, see specv_i_warp_move_paths. Node i of the path is at `from`;
   only every page_size-th of those before it goes to the same place in a page. */
SPECV_DEVFN int specv_i_overwrites(const specv_commit_path_desc *d, specv_i_divisor page_size,
                                   const int32_t *table, int32_t len, int i, int32_t from_page,
                                   uint32_t from_at) {
    uint32_t first_at;
    specv_i_divide((uint32_t)len, page_size, &first_at);
    int j = (int)(from_at - first_at);
    if (j < 0) j += d->kv.page_size;
    for (; j < i; j += d->kv.page_size) {
        uint32_t in_page;
        if (table[specv_i_divide((uint32_t)(len + j), page_size, &in_page)] == from_page) return 1;
    }
    return 0;
}

/* Lanes that look at a path together, a node each; as many rows of a warp go side by side. */
#define SPECV_I_NODES 8

/* Which of a lane's group said yes, as bits from 0 on. Call: warp. */
SPECV_DEVFN unsigned specv_i_group_ballot(int yes) {
    const unsigned all = __ballot_sync(SPECV_FULL_WARP, yes);
    return all >> (specv_i_lane() & (32 - SPECV_I_NODES)) & ((1u << SPECV_I_NODES) - 1);
}

/* The pages of node j of a row's path, where it is and where it goes. Returns whether it moves. */
SPECV_DEVFN int specv_i_node_pages(const specv_commit_path_desc *d, specv_i_divisor page_size,
                                   const specv_i_commit *c, int32_t node, int j, uint32_t *status) {
    const specv_kv_cache *kv = &d->kv;
    const int32_t *to = kv->block_table + c->slot * kv->table_stride_elems;
    const int32_t *from = d->src_block_table + c->slot * d->src_table_stride_elems;
    uint32_t to_at, from_at;
    const uint64_t to_entry = specv_i_divide((uint32_t)(c->len + j), page_size, &to_at);
    const uint64_t from_entry = specv_i_divide((uint32_t)(c->len + node), page_size, &from_at);
    const int32_t to_page = to[to_entry], from_page = from[from_entry];
    const int moves = (to_at != from_at) | (to_page != from_page);
    if (to_page < 0 || to_page >= kv->num_pages || from_page < 0 || from_page >= kv->num_pages)
        *status = SPECV_ROW_BAD_PAGE;
    else if (moves && d->page_refs && d->page_refs[to_page] != 1)
        *status = SPECV_ROW_SHARED_PAGE;
    if (from != to && specv_i_overwrites(d, page_size, to, c->len, j, from_page, from_at))
        *status |= SPECV_ROW_BAD_PAGE;
    return moves;
}

/* Row b, by SPECV_I_NODES lanes that all get the answer; those of no row have b >= live. Call:
   warp, where rows have slots behind specv_i_block_seat. */
SPECV_DEVFN specv_i_commit specv_i_group_commit_row(const specv_commit_path_desc *d,
                                                    specv_i_divisor page_size, int b, int live,
                                                    const int32_t *seats) {
    const int u = specv_i_lane() % SPECV_I_NODES, last_lane = specv_i_lane() | (SPECV_I_NODES - 1);
    const int32_t *path = d->path + b * d->path_stride_elems;
    int32_t accepted = -1, nodes = d->max_nodes, node = 0, before = -1, room;
    specv_i_commit c = {-1, 0, 0, 0, 0};
    uint32_t bad = 0, beyond = 0, bad_pages = 0, shared = 0;
    if (b < live) {
        accepted = d->accepted_len[b];
        specv_i_load_given(&nodes, d->num_nodes, b);
        if (!d->slot) c.len = d->cache_len[b];
        if (u <= d->max_depth) node = path[u]; /* before it is known how many there are */
        c.slot = specv_i_seat(d->slot, d->slot_dtype, d->num_slots, b, seats, &c.status);
        if (c.slot >= 0 && d->slot) c.len = d->cache_len[c.slot];
        if (c.slot < 0) {
            accepted = -1;
        } else if (accepted < 0 || accepted > d->max_depth || nodes > d->max_nodes ||
                   accepted >= nodes || c.len < 0 || c.len > d->kv.max_positions) {
            c.status = SPECV_ROW_BAD_LENGTH, accepted = -1;
        }
    }
    room = d->kv.max_positions - c.len, c.first = accepted + 1;
#pragma unroll 1
    for (int j0 = 0; __any_sync(SPECV_FULL_WARP, j0 <= accepted); j0 += SPECV_I_NODES) {
        const int j = j0 + u, is_node = j <= accepted;
        uint32_t of_pages = 0;
        if (j0 > 0 && is_node) node = path[j];
        int moves = node != j;
        int32_t above = __shfl_up_sync(SPECV_FULL_WARP, node, 1);
        if (u == 0) above = before;
        before = __shfl_sync(SPECV_FULL_WARP, node, last_lane);
        const int wrong = /* what lies below 0 is far behind the last node */
            node <= above || (uint32_t)node >= (uint32_t)nodes || (j == 0 && node != 0);
        if (is_node && !wrong && d->kv.block_table && node < room && j < room)
            moves = specv_i_node_pages(d, page_size, &c, node, j, &of_pages);
        bad |= specv_i_group_ballot(is_node && wrong);
        beyond |= specv_i_group_ballot(is_node && node >= room);
        bad_pages |= specv_i_group_ballot((of_pages & SPECV_ROW_BAD_PAGE) != 0);
        shared |= specv_i_group_ballot((of_pages & SPECV_ROW_SHARED_PAGE) != 0);
        const unsigned movers = specv_i_group_ballot(is_node && moves);
        if (movers && c.first > j0 + __ffs((int)movers) - 1) c.first = j0 + __ffs((int)movers) - 1;
    }
    if (bad_pages) c.status |= SPECV_ROW_BAD_PAGE;
    if (shared) c.status |= SPECV_ROW_SHARED_PAGE;
    if (beyond) c.status = SPECV_ROW_NO_SPACE;
    if (bad) c.status = SPECV_ROW_BAD_TREE;
    if (!c.status) c.count = accepted + 1;
    return c;
}

/* Shared memory of B4: rows row0.. of the batch, one per thread of a block. */
typedef struct specv_i_path_tile {
    specv_i_commit row[SPECV_COMMIT_THREADS];
    int32_t movers[SPECV_COMMIT_THREADS]; /* the rows in which something moves */
    int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
} specv_i_path_tile;

/* A warp looks at four rows at a time. Call: block. Returns how many rows there are. Sync: a
   barrier at the end; put one before a tile is loaded over another. */
SPECV_DEVFN int specv_i_block_path_tile(const specv_commit_path_desc *d, specv_i_divisor page_size,
                                        int row0, int live, const int32_t *seats,
                                        specv_i_path_tile *t) {
    enum { EACH = 32 / SPECV_I_NODES, STEP = SPECV_COMMIT_THREADS / SPECV_I_NODES };
    const int left = d->batch - row0;
    const int num_rows = left < SPECV_COMMIT_THREADS ? left : SPECV_COMMIT_THREADS;
#pragma unroll 1
    for (int first = specv_i_thread() / 32 * EACH; first < num_rows; first += STEP) {
        const int i = first + specv_i_lane() / SPECV_I_NODES;
        const specv_i_commit c = specv_i_group_commit_row(
            d, page_size, row0 + i, live < row0 + num_rows ? live : row0 + num_rows, seats);
        if (i < num_rows && specv_i_lane() % SPECV_I_NODES == 0) t->row[i] = c;
    }
    __syncthreads();
    return num_rows;
}

/* Lists the rows in which something moves. Call: block. Returns how many. Sync: a barrier at the
   end, one inside. */
SPECV_DEVFN int specv_i_block_list_movers(int num_rows, specv_i_path_tile *t) {
    const int i = specv_i_thread(), moves = i < num_rows && t->row[i].first < t->row[i].count;
    int32_t num_movers;
    const int at = specv_block_exclusive_scan(moves, &num_movers, t->scratch);
    if (moves) t->movers[at] = i;
    __syncthreads();
    return num_movers;
}

#define SPECV_I_MOVES 8 /* of a lane, whose loads are in flight together */

/* Moves this warp's part. A row is units at the same places in each of its rows: a column of units.
   The columns of all rows that move, in one plane, are dealt to lanes, 32 to a warp, whose planes
   are dealt as those of a ragged copy are. listed: `num_movers` of them are in t->movers; else they
   are all rows, and some have nothing to do.
   Why no barrier is needed: all moves of a column are one lane's, no other touches its bytes, and
   within a lane what is stored over has been loaded. For the path ascends from 0, so node(j) >= j:
   what move j stores to, position cache_len + j, is the source of a move i only if node(i) = j,
   hence i <= j; and a lane loads for its moves in order, SPECV_I_MOVES at a time, before it stores
   for them. With two tables it is the places that are compared: specv_i_overwrites.
   Call: warp. In: planes in global memory. Sync: none. */
SPECV_DEVFN void specv_i_warp_move_paths(const specv_commit_path_desc *d, const specv_i_ragged *r,
                                         const specv_i_shape *shape, const specv_i_path_tile *t,
                                         int row0, int num_movers, int listed,
                                         specv_plane_share share) {
    const specv_i_places *from = &r->from, *to = &r->to;
    const uint64_t columns = (uint64_t)num_movers * shape->row_units.by;
    const uint64_t items = (columns + 31) / 32 * (unsigned)r->num_planes;
    const uint64_t num_warps = (uint64_t)share.num_warps;
    const int unit = 1 << shape->shift;
    uint64_t item = (uint64_t)share.warp, column;
    uint32_t first_plane;
    int left = 1;
    if (item >= items) return;
    if (items > num_warps) {
        const uint64_t each = items / num_warps, more = items - each * num_warps;
        left = (int)(each + (item < more)); /* the first warps have one more */
        item = item * each + (item < more ? item : more);
    }
    column = specv_i_divide(item, shape->planes, &first_plane) * 32 + (unsigned)specv_i_lane();
    int plane = (int)first_plane;
#pragma unroll 1
    for (; left > 0; column += 32, plane = 0) {
        const int stop = left < r->num_planes - plane ? plane + left : r->num_planes;
        uint32_t in_row, in_head;
        const int has = column < columns;
        const int mover = (int)specv_i_divide(has ? column : 0, shape->row_units, &in_row);
        const int i = listed ? t->movers[mover] : mover;
        const specv_i_commit *c = &t->row[i];
        const int32_t *path = d->path + (row0 + i) * d->path_stride_elems;
        const int64_t in_unit = (int64_t)specv_i_divide(in_row, shape->head_units, &in_head);
        const int64_t at = in_unit * from->head_stride_bytes + ((int64_t)in_head << shape->shift);
        const int64_t begin = at + c->slot * to->seq_stride_bytes + c->len * to->pos_stride_bytes;
        const int count = has ? c->count : 0;
        const int32_t *to_table = to->block_table + c->slot * to->table_stride_elems;
        const int32_t *from_table = from->block_table + c->slot * from->table_stride_elems;
        left -= stop - plane;
#pragma unroll 1
        for (int j0 = c->first; j0 < count; j0 += SPECV_I_MOVES) {
            int64_t src_at[SPECV_I_MOVES], dst_at[SPECV_I_MOVES];
            int32_t node[SPECV_I_MOVES];
            int moves[SPECV_I_MOVES];
            /* Behind the end node 0, which exists: loads without branches, which would wait for
               each other. */
#pragma unroll
            for (int u = 0; u < SPECV_I_MOVES; ++u) {
                uint2 raw = {};
                specv_i_load_token_below(j0 + u, count, 0, &raw, path + j0, SPECV_I32, u);
                node[u] = (int32_t)raw.x;
            }
            if (to->block_table) {
                int32_t to_page[SPECV_I_MOVES], from_page[SPECV_I_MOVES];
#pragma unroll
                for (int u = 0; u < SPECV_I_MOVES; ++u) {
                    const int j = j0 + u < count ? j0 + u : count - 1;
                    uint32_t to_at, from_at;
                    from_page[u] = from_table[specv_i_divide((uint32_t)(c->len + node[u]),
                                                             to->page_size, &from_at)];
                    to_page[u] =
                        to_table[specv_i_divide((uint32_t)(c->len + j), to->page_size, &to_at)];
                    src_at[u] = at + from_at * to->pos_stride_bytes;
                    dst_at[u] = at + to_at * to->pos_stride_bytes;
                }
#pragma unroll
                for (int u = 0; u < SPECV_I_MOVES; ++u) {
                    src_at[u] += from_page[u] * to->page_stride_bytes;
                    dst_at[u] += to_page[u] * to->page_stride_bytes;
                    moves[u] = j0 + u < count && src_at[u] != dst_at[u];
                }
            } else {
#pragma unroll
                for (int u = 0; u < SPECV_I_MOVES; ++u) {
                    src_at[u] = begin + node[u] * to->pos_stride_bytes;
                    dst_at[u] = u ? dst_at[u - 1] + to->pos_stride_bytes
                                  : begin + j0 * to->pos_stride_bytes;
                    moves[u] = j0 + u < count && node[u] != j0 + u;
                }
            }
#pragma unroll 1
            for (int p = plane; p < stop; ++p) {
                if (share.plane != p) specv_i_load_plane(from, to, p, &share);
                char *dst = share.dst; /* in place */
                const char *src = dst;
                const int more = j0 + SPECV_I_MOVES < count;
                if (r->num_planes > 1 && (p + 1 < stop || more || left > 0))
                    specv_i_load_plane(from, to, p + 1 < stop ? p + 1 : more ? plane : 0, &share);
                if (!src) continue;
                __builtin_assume(__isGlobal(src)), __builtin_assume(__isGlobal(dst));
                const int width = specv_i_unit_bytes((uint64_t)src | (uint64_t)shape->fits);
                if (width == 16) {
                    uint4 v[SPECV_I_MOVES];
#pragma unroll
                    for (int u = 0; u < SPECV_I_MOVES; ++u)
                        specv_i_load_16_if(moves[u], &v[u], src + src_at[u]);
#pragma unroll
                    for (int u = 0; u < SPECV_I_MOVES; ++u)
                        specv_i_store_16_if(moves[u], dst + dst_at[u], v[u]);
                    continue;
                }
#pragma unroll
                for (int u = 0; u < SPECV_I_MOVES; u += SPECV_I_UNITS)
                    specv_i_copy_piece(dst, src, dst_at + u, src_at + u, moves + u, SPECV_I_UNITS,
                                       unit, width);
            }
        }
    }
}

/* Lengths and status of all rows, by the one block that is left when all have read the old ones, or
   by any if none are written. The tile holds the last rows; those before them are looked at again.
   Call: block. Sync: barriers, none before the first write. */
SPECV_DEVFN void specv_i_block_commit_numbers(const specv_commit_path_desc *d,
                                              specv_i_divisor page_size, int live,
                                              const int32_t *seats, specv_i_path_tile *t,
                                              int bad_ticket) {
    const int i = specv_i_thread();
    for (int row0 = (d->batch - 1) / SPECV_COMMIT_THREADS * SPECV_COMMIT_THREADS;;) {
        if (row0 + i < d->batch) {
            const specv_i_commit c = t->row[i];
            uint32_t status = c.status;
            if (bad_ticket && row0 + i < live) status |= SPECV_ROW_BAD_TICKET;
            if (d->new_cache_len && c.slot >= 0 && !bad_ticket)
                d->new_cache_len[c.slot] = c.len + c.count;
            specv_i_put_status(d->row_status, row0 + i, status, d->keep_status);
        }
        if (row0 == 0) return;
        row0 -= SPECV_COMMIT_THREADS;
        __syncthreads(); /* the tile is loaded over */
        specv_i_block_path_tile(d, page_size, row0, live, seats, t);
    }
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_COMMIT_THREADS, 1)
    specv_commit_path_kernel(const __grid_constant__ specv_commit_path_desc d);
#endif

#endif /* __CUDACC__ */

/* What a tree is given as.
   PARENTS  the canonical layout of specv_trees
   LINKS    first child and next sibling of each node, -1 where there is none (SGLang's
            retrieve_next_token and retrieve_next_sibling)
   PATHS    nodes from the root, 0, on to a leaf, path by path, -1 behind the last (TensorRT-LLM's
            and Medusa's); a path that begins with -1 is none
   MASK     packed rows of bits: bit j of row i says that node j is an ancestor of node i; whether
            a node is its own does not matter
   In each, nodes have greater numbers than their parents, and siblings follow each other in the
   order of their numbers, in which they are tried: no node changes its number. */
typedef enum specv_tree_form {
    SPECV_TREE_PARENTS = 0,
    SPECV_TREE_LINKS = 1,
    SPECV_TREE_PATHS = 2,
    SPECV_TREE_MASK = 3
} specv_tree_form;

/* Layouts: from any of them the canonical one, and what the target's pass over a tree needs. A row
   whose num_nodes is outside 1..max_nodes (BAD_LENGTH), or whose tree is none (BAD_TREE: a node
   without a parent, with two, or with one that does not come before it; a cycle; a number outside
   the tree), is written as its root alone. */
typedef struct specv_tree_layout_desc {
    uint32_t canary0;
    int32_t form;                /* specv_tree_form; which of the next five are read */
    const int32_t *given_parent; /* PARENTS: [batch][max_nodes] */
    const void *first_child;     /* LINKS: [batch][max_nodes], of link_dtype */
    const void *next_sibling;    /* LINKS: the same; the root has none */
    const int32_t *paths;        /* PATHS: [batch][num_paths][path_len] */
    const uint32_t *given_mask;  /* MASK: [batch][max_nodes][ceil(max_nodes / 32)] */
    const int32_t *num_active;   /* as in specv_rows */
    const int32_t *num_nodes;    /* [batch], or null: max_nodes in every row; the root is one */
    const void *slot;            /* as in specv_rows; for position */
    const int32_t *position;     /* [slot], or null: of the root, in the text */
    int32_t *parent;             /* out [batch][max_nodes], or null; -1 behind the last node */
    int32_t *depth;              /* out [batch][max_nodes], or null; 0 behind the last node */
    void *position_ids;          /* out [batch][max_nodes], or null: position + depth; 0 behind the
                                    last node; of index_dtype */
    uint32_t *mask;              /* out [batch][max_nodes][mask_stride_words], or null: bit j % 32
                                    of word j / 32 of row i is 1 if j is i or an ancestor of it;
                                    0 behind the last node */
    uint32_t *row_status;        /* out [batch], or null */
    int64_t given_stride_elems;  /* from a given tree to the next; 0 = that of the arrays above */
    int64_t mask_stride_words;   /* 0 = ceil(max_nodes / 32); words behind those are not written */
    int32_t one_tree;            /* 1 = one tree is given, for all rows */
    int32_t batch;
    int32_t max_nodes;   /* upper bound of nodes in a row, at most SPECV_MAX_NODES */
    int32_t num_paths;   /* PATHS */
    int32_t path_len;    /* PATHS */
    int32_t link_dtype;  /* specv_dtype */
    int32_t index_dtype; /* specv_dtype */
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_tree_layout_desc;

#define SPECV_LAYOUT_THREADS 256 /* specv_tree_layout_kernel: a block per tree */

SPECV_NUMFN int32_t specv_i_mask_words(int32_t nodes) { return (nodes + 31) / 32; }

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN void specv_tree_layout_resolve(specv_tree_layout_desc *d) {
    if (!d->mask_stride_words) d->mask_stride_words = specv_i_mask_words(d->max_nodes);
    if (d->given_stride_elems) return;
    d->given_stride_elems = d->max_nodes;
    if (d->form == SPECV_TREE_PATHS)
        d->given_stride_elems = specv_i_times(d->num_paths, d->path_len);
    if (d->form == SPECV_TREE_MASK)
        d->given_stride_elems = (int64_t)d->max_nodes * specv_i_mask_words(d->max_nodes);
}

/* What the form says is given. */
SPECV_HOSTFN int specv_i_given_validate(const specv_tree_layout_desc *d) {
    const size_t link_bytes = d->link_dtype == SPECV_I64 ? 8 : 4;
    if (d->form == SPECV_TREE_PARENTS) {
        SPECV_CHECK(d->given_parent || d->batch == 0, TREE);
        SPECV_CHECK(specv_i_aligned(d->given_parent, 4), TREE);
    } else if (d->form == SPECV_TREE_LINKS) {
        SPECV_CHECK(d->link_dtype == SPECV_I32 || d->link_dtype == SPECV_I64, INDEX_DTYPE);
        SPECV_CHECK((d->first_child && d->next_sibling) || d->batch == 0, TREE);
        SPECV_CHECK(specv_i_aligned(d->first_child, link_bytes), TREE);
        SPECV_CHECK(specv_i_aligned(d->next_sibling, link_bytes), TREE);
    } else if (d->form == SPECV_TREE_PATHS) {
        SPECV_CHECK(d->num_paths >= 0 && d->path_len >= 0, PATH);
        SPECV_CHECK(specv_i_times(d->num_paths, d->path_len) <= 1 << 30, TOO_LARGE);
        SPECV_CHECK(d->paths || d->batch == 0 || d->num_paths == 0 || d->path_len == 0, PATH);
        SPECV_CHECK(specv_i_aligned(d->paths, 4), PATH);
    } else {
        SPECV_CHECK(d->given_mask || d->batch == 0, MASK);
        SPECV_CHECK(specv_i_aligned(d->given_mask, 4), MASK);
    }
    return SPECV_OK;
}

SPECV_HOSTFN int specv_tree_layout_validate(const specv_tree_layout_desc *d) {
    int status;
    specv_tree_layout_desc full, packed;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->form >= SPECV_TREE_PARENTS && d->form <= SPECV_TREE_MASK, TREE);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(d->max_nodes >= 1 && d->max_nodes <= SPECV_MAX_NODES, TREE);
    SPECV_CHECK((int64_t)d->batch * d->max_nodes <= 1 << 30, TOO_LARGE);
    if ((status = specv_i_given_validate(d)) != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->num_nodes, 4), TREE);
    if ((status = specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots)) != SPECV_OK)
        return status;
    SPECV_CHECK(d->index_dtype == SPECV_I32 || d->index_dtype == SPECV_I64, INDEX_DTYPE);
    SPECV_CHECK(specv_i_aligned(d->position, 4), POSITION);
    SPECV_CHECK(d->position || !d->position_ids || d->batch == 0, POSITION);
    SPECV_CHECK(specv_i_aligned(d->parent, 4) && specv_i_aligned(d->depth, 4), TREE);
    SPECV_CHECK(specv_i_aligned(d->position_ids, d->index_dtype == SPECV_I64 ? 8 : 4), COLUMNS);
    SPECV_CHECK(specv_i_aligned(d->mask, 4), MASK);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(d->one_tree == 0 || d->one_tree == 1, TREE);
    full = packed = *d;
    packed.given_stride_elems = 0;
    specv_tree_layout_resolve(&full);
    specv_tree_layout_resolve(&packed);
    SPECV_CHECK(full.given_stride_elems >= packed.given_stride_elems, TREE);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * 8, full.given_stride_elems) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(full.mask_stride_words >= specv_i_mask_words(d->max_nodes), MASK);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * d->max_nodes * 4, full.mask_stride_words) <
                    SPECV_I_HUGE,
                SIZE);
    return SPECV_OK;
}

#if SPECV_I_LAUNCHERS
/* Layouts. One launch, a block per tree. Reads what is given once (MASK: a node's row and its
   parent's); time grows with the logarithm of a tree's depth, not with its depth. */
SPECV_LAUNCHER int specv_tree_layout(const specv_tree_layout_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_tree_layout);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* Shared memory of a layout. */
typedef struct specv_i_layout {
    int32_t low[SPECV_MAX_NODES];   /* of what names a node, the first; in the end its parent */
    int32_t high[SPECV_MAX_NODES];  /* and the last: another one, if there are two or none */
    uint32_t seen[SPECV_MAX_NODES]; /* of the 32 nodes to which a node belongs, its ancestors */
    short beyond[SPECV_MAX_NODES];  /* its nearest ancestor that is none of these 32; -1: none */
} specv_i_layout;

/* `what` names node c: it is its parent, or stands for it. Returns whether c may be named so. */
SPECV_DEVFN int specv_i_name_node(specv_i_layout *t, int64_t c, int after, int n, int32_t what) {
    if (c <= after || (uint64_t)c >= (uint64_t)n) return 0; /* what stands before it may be any */
    atomicMin(&t->low[c], what);
    atomicMax(&t->high[c], what);
    return 1;
}

/* Links name nodes with greater numbers, each of all but the root is named once: so no chain of
   them has a cycle, and it ends at the root, whose only link is to a child. Siblings take their
   parent from those before them; each round doubles how far that is. Call: block. Returns whether
   something is wrong. Sync: barriers, one at the end. */
SPECV_DEVFN int specv_i_block_links(const specv_tree_layout_desc *d, int64_t first, int n,
                                    specv_i_layout *t) {
    enum { OF_SIBLING = 1 << 16 };
    const int thread = specv_i_thread();
    int bad = 0, rest = 1;
    for (int i = thread; i < n; i += SPECV_LAYOUT_THREADS) {
        const int64_t child = specv_i_one_token(d->first_child, d->link_dtype, first + i);
        const int64_t sibling = specv_i_one_token(d->next_sibling, d->link_dtype, first + i);
        if (child != -1) bad |= !specv_i_name_node(t, child, i, n, i);
        if (sibling != -1) bad |= i == 0 || !specv_i_name_node(t, sibling, i, n, OF_SIBLING + i);
    }
    __syncthreads();
    for (int i = 1 + thread; i < n; i += SPECV_LAYOUT_THREADS) bad |= t->low[i] != t->high[i];
    bad = __syncthreads_or(bad);
    while (rest && !bad) { /* low is read, high is written */
        rest = 0;
        for (int i = 1 + thread; i < n; i += SPECV_LAYOUT_THREADS) {
            const int32_t from = t->low[i];
            t->high[i] = from < OF_SIBLING ? from : t->low[from - OF_SIBLING];
        }
        __syncthreads();
        for (int i = 1 + thread; i < n; i += SPECV_LAYOUT_THREADS) {
            t->low[i] = t->high[i];
            rest |= t->low[i] >= OF_SIBLING;
        }
        rest = __syncthreads_or(rest);
    }
    return bad;
}

/* Lanes look at the entries of a path side by side, in as many paths of a warp as fit. Call: block.
   Returns as above. Sync: barriers, one at the end. */
SPECV_DEVFN int specv_i_block_paths(const specv_tree_layout_desc *d, int64_t first, int n,
                                    specv_i_layout *t) {
    const int lane = specv_i_lane(), warp = specv_i_thread() / 32;
    int width = 1, bad = 0;
    while (width < 32 && width < d->path_len) width *= 2;
    const int each = 32 / width, in_path = lane % width;
    const unsigned lanes = SPECV_FULL_WARP >> (32 - width);
#pragma unroll 1
    for (int p0 = warp * each; p0 < d->num_paths; p0 += SPECV_LAYOUT_THREADS / 32 * each) {
        const int p = p0 + lane / width;
        int32_t before = 0; /* in front of these entries */
        int ended = p >= d->num_paths;
#pragma unroll 1
        for (int e0 = 0; e0 < d->path_len; e0 += width) {
            const int e = e0 + in_path;
            int32_t node = -1, up;
            if (!ended && e < d->path_len) node = d->paths[first + (int64_t)p * d->path_len + e];
            up = __shfl_up_sync(SPECV_FULL_WARP, node, 1, width);
            if (in_path == 0) up = before;
            const unsigned stops =
                __ballot_sync(SPECV_FULL_WARP, node == -1) >> (lane - in_path) & lanes;
            before = __shfl_sync(SPECV_FULL_WARP, node, width - 1, width);
            if (!(stops & ((2u << in_path) - 1))) {
                if (e == 0)
                    bad |= node != 0;
                else
                    bad |= !specv_i_name_node(t, node, up, n, up);
            }
            ended |= stops != 0;
            if (__all_sync(SPECV_FULL_WARP, ended)) break;
        }
    }
    __syncthreads();
    for (int i = 1 + specv_i_thread(); i < n; i += SPECV_LAYOUT_THREADS)
        bad |= t->low[i] != t->high[i];
    return __syncthreads_or(bad);
}

/* The bits of word w that belong to nodes before i. */
SPECV_DEVFN uint32_t specv_i_bits_before(int i, int w) {
    return w < i / 32 ? 0xffffffffu : w > i / 32 ? 0 : (1u << i % 32) - 1;
}

/* A parent is the last of the ancestors; its own and itself must be all of them. Call: block.
   Returns as above. Sync: a barrier at the end. */
SPECV_DEVFN int specv_i_block_mask(const specv_tree_layout_desc *d, int64_t first, int n,
                                   specv_i_layout *t) {
    const int words = specv_i_mask_words(d->max_nodes);
    const uint32_t *rows = d->given_mask + first;
    int bad = 0;
#pragma unroll 1
    for (int i = specv_i_thread(); i < n; i += SPECV_LAYOUT_THREADS) {
        const uint32_t *row = rows + i * words, *above;
        int32_t parent = -1;
#pragma unroll 4
        for (int w = 0; w < words; ++w) {
            const uint32_t all = row[w], before = all & specv_i_bits_before(i, w);
            bad |= (all & ~before & ~(w == i / 32 ? 1u << i % 32 : 0)) != 0;
            if (before) parent = 32 * w + 31 - __clz((int)before);
        }
        t->low[i] = parent;
        if (parent < 0) bad |= i > 0;
        if (parent < 0) continue;
        above = rows + parent * words;
#pragma unroll 4
        for (int w = 0; w <= i / 32; ++w) {
            uint32_t expected = above[w] & specv_i_bits_before(parent, w);
            if (w == parent / 32) expected |= 1u << parent % 32;
            bad |= (row[w] & specv_i_bits_before(i, w)) != expected;
        }
    }
    return __syncthreads_or(bad);
}

/* t->low[i] = the parent of each of n nodes. Call: block. Returns whether it is no tree. Sync:
   barriers, one at the end. */
SPECV_DEVFN int specv_i_block_parents(const specv_tree_layout_desc *d, int b, int n,
                                      specv_i_layout *t) {
    const int64_t first = d->one_tree ? 0 : b * d->given_stride_elems;
    int bad = 0;
    if (d->form == SPECV_TREE_MASK) return specv_i_block_mask(d, first, n, t);
    if (d->form == SPECV_TREE_PARENTS) {
        for (int i = specv_i_thread(); i < n; i += SPECV_LAYOUT_THREADS) {
            t->low[i] = d->given_parent[first + i];
            bad |= !specv_i_is_parent(t->low[i], i);
        }
        return __syncthreads_or(bad);
    }
    for (int i = specv_i_thread(); i < n; i += SPECV_LAYOUT_THREADS)
        t->low[i] = i ? SPECV_I_INT_MAX : -1, t->high[i] = -1;
    __syncthreads();
    return d->form == SPECV_TREE_LINKS ? specv_i_block_links(d, first, n, t)
                                       : specv_i_block_paths(d, first, n, t);
}

/* Ancestors 32 at a time: a warp finds those among its own 32 nodes in five steps, each of which
   doubles how far a lane looks; from there a node goes on to the next 32, at most 31 times. Call:
   block. Sync: a barrier at the end. */
SPECV_DEVFN void specv_i_block_ancestors_of(int n, specv_i_layout *t) {
    const int lane = specv_i_lane();
    for (int base = specv_i_thread() & ~31; base < n; base += SPECV_LAYOUT_THREADS) {
        const int i = base + lane;
        const int32_t parent = i < n ? t->low[i] : -1;
        uint32_t mine = 1u << lane;
        int next = parent >= base ? parent - base : -1;
#pragma unroll
        for (int step = 0; step < 5; ++step) {
            const uint32_t more = __shfl_sync(SPECV_FULL_WARP, mine, next & 31);
            const int behind = __shfl_sync(SPECV_FULL_WARP, next, next & 31);
            if (next >= 0) mine |= more, next = behind;
        }
        const int32_t beyond = __shfl_sync(SPECV_FULL_WARP, parent, __ffs((int)mine) - 1);
        if (i < n) t->seen[i] = mine, t->beyond[i] = (short)beyond;
    }
    __syncthreads();
}

/* Outputs of nodes; those from n on are none. Call: block. */
SPECV_DEVFN void specv_i_block_put_layout(const specv_tree_layout_desc *d, int b, int n,
                                          int64_t position, const specv_i_layout *t) {
    const int words = specv_i_mask_words(d->max_nodes);
    for (int i = specv_i_thread(); i < d->max_nodes; i += SPECV_LAYOUT_THREADS) {
        const int64_t at = (int64_t)b * d->max_nodes + i;
        int depth = -1, node = i < n ? i : -1;
#pragma unroll 1
        for (int w = words - 1; w >= 0; --w) {
            uint32_t word = 0;
            if (node >= 0 && node / 32 == w) word = t->seen[node], node = t->beyond[node];
            depth += __popc(word);
            if (d->mask) d->mask[at * d->mask_stride_words + w] = word;
        }
        if (d->parent) d->parent[at] = i < n ? t->low[i] : -1;
        if (d->depth) d->depth[at] = i < n ? depth : 0;
        if (d->position_ids)
            specv_i_store_token(d->position_ids, d->index_dtype, at, i < n ? position + depth : 0);
    }
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_LAYOUT_THREADS)
    specv_tree_layout_kernel(const __grid_constant__ specv_tree_layout_desc d);
#endif

#endif /* __CUDACC__ */

/* ================================================================================= >>columns

   A batch whose sequences share columns, as batched models without ragged attention need it.
     C1  specv_realign           unpad, append, repad in place: one launch; with planes a second,
                                 chained one that moves KV
         specv_shift_kv          moves columns of further caches: one launch
     C2  specv_gap_commit        nothing moves, rejected columns are masked: one launch
   Needs: >>cache (specv_kv_cache). */

/* A batch whose sequences share columns (C1, C2): column c of the sequence in slot s is
   data[s * stride_elems + c] of an array. Each array may be null. */
typedef struct specv_columns {
    void *tokens;         /* in/out, of the descriptor's token_dtype */
    void *mask;           /* in/out, of index_dtype: 1 = a token of the text is there */
    void *position_ids;   /* in/out, of index_dtype: its place in the text */
    int32_t *width;       /* in/out scalar: columns in use, the same for all rows of the batch.
                             The last column is the pending token's; drafts go behind it */
    int64_t stride_elems; /* 0 = max_columns */
    int64_t pad_token;    /* written where there is no token; never compared with anything */
    int32_t index_dtype;  /* specv_dtype */
    int32_t max_columns;  /* must be set */
} specv_columns;

/* Columns first .. first + count - 1 of a sequence's cache move by `by` columns. Columns that
   they leave keep their old bytes. */
typedef struct specv_shift {
    int32_t first, count, by, reserved;
} specv_shift;

/* C1. EQSPEC's unpad-append-repad, in place (arXiv 2510.22876): sequences end in the same column,
   padding is on the left. A sequence joins with pad_len = width and its prompt as what was emitted,
   in a launch without planes. With c_b = width - pad_len[b] tokens and a_b new ones,
       width' = max (c_b + a_b),   pad_len'[b] = width' - c_b - a_b,
   and what row b has in its columns moves by pad_len'[b] - pad_len[b], of either sign; 0 costs
   nothing. KV rows: those of all c_b + a_b tokens but the last; the pass left them from column
   pad_len[b] on. Written columns: from the first that changes to max(width, width') + max_draft. KV
   columns that become padding, or lie behind the row's end, keep their old bytes. */
typedef struct specv_realign_desc {
    uint32_t canary0;
    int32_t token_dtype;        /* specv_dtype */
    const int32_t *num_active;  /* as in specv_rows */
    const void *slot;           /* as in specv_rows */
    const void *out_tokens;     /* [batch][max_draft + 1]: out_tokens of A1 to A5 */
    const int32_t *num_emitted; /* [batch], 0..max_draft + 1 */
    int32_t *pad_len;           /* in/out [slot] */
    specv_shift *shifts;  /* out [batch], 16-byte aligned: for further caches, specv_shift_kv */
    uint32_t *row_status; /* out [batch], or null */
    uint32_t *ticket;     /* one per stream, 0: see B3 */
    specv_columns columns;
    specv_kv_cache kv;        /* padded; no planes: KV is left to specv_shift_kv */
    int64_t out_stride_elems; /* 0 = max_draft + 1 */
    int32_t batch, max_draft;
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    int32_t num_sms;     /* 0 = ask the runtime for the current device */
    uint32_t canary1;
} specv_realign_desc;

/* C1. Moves columns of a padded cache in place, in every plane. */
typedef struct specv_shift_kv_desc {
    uint32_t canary0;
    int32_t keep_status;       /* 1 = add bits to row_status; 0 = store it */
    const int32_t *num_active; /* as in specv_rows */
    const void *slot;          /* as in specv_rows */
    const specv_shift *shifts; /* [batch], 16-byte aligned */
    const int32_t *end;        /* [batch], or null: columns from here on hold nothing yet */
    uint32_t *row_status;      /* out [batch], or null */
    specv_kv_cache kv;         /* padded */
    int32_t batch;
    int32_t slot_dtype; /* as in specv_rows */
    int32_t num_slots;  /* as in specv_rows */
    int32_t chained;    /* specv_chained bits; 0: neither */
    int32_t num_sms;    /* 0 = ask the runtime for the current device */
    uint32_t canary1;
} specv_shift_kv_desc;

/* C2. Gap mode: nothing moves; rejected columns are masked. With W = width and K = the largest
   accepted_len, the accepted drafts of row b are in columns W .. W + k_b - 1, the next token of
   every row in column W + K, and width' = W + K + 1 (W if no row emits anything). position_ids
   are running counts of the mask, minus 1, at least 0; from width' on, those that the next step's
   drafts will have. Written columns: W .. width' + max_draft - 1. */
typedef struct specv_gap_commit_desc {
    uint32_t canary0;
    int32_t token_dtype;         /* specv_dtype */
    const int32_t *num_active;   /* as in specv_rows */
    const void *slot;            /* as in specv_rows */
    const int32_t *accepted_len; /* [batch] */
    const void *out_tokens;      /* [batch][max_draft + 1]: out_tokens of A1 to A5 */
    const int32_t *num_emitted;  /* [batch]: accepted_len, or one more */
    int32_t *text_len;           /* in/out [slot]: tokens of the text, columns with mask 1 */
    int32_t *max_draft_lacks;    /* out scalar, or null: columns before width' that the draft model
                                    lacks: 1, or 2 if a row accepted max_draft drafts */
    uint32_t *row_status;        /* out [batch], or null */
    uint32_t *ticket;            /* one per stream, 0: see B3 */
    specv_columns columns;
    int64_t out_stride_elems; /* 0 = max_draft + 1 */
    int32_t batch, max_draft;
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t reserved;   /* must be 0 */
    uint32_t canary1;
} specv_gap_commit_desc;

#define SPECV_COLUMN_THREADS 256 /* specv_realign_kernel, specv_shift_kv_, specv_gap_commit_ */
#define SPECV_SHIFT_SLICE    256 /* bytes of a KV row that a block moves along the columns */

SPECV_NUMFN unsigned specv_i_shift_slices(const specv_kv_cache *kv) {
    return (unsigned)((kv->num_heads * kv->head_bytes + SPECV_SHIFT_SLICE - 1) / SPECV_SHIFT_SLICE);
}

#if !defined(__CUDACC_RTC__)

/* What C1 and C2 share. */
SPECV_HOSTFN int specv_i_columns_validate(const specv_columns *c, int token_dtype,
                                          const void *out_tokens, const int32_t *num_emitted,
                                          int64_t out_stride, int64_t batch, int64_t max_draft,
                                          const void *slot, int32_t slot_dtype, int32_t num_slots) {
    const int64_t stride = c->stride_elems ? c->stride_elems : c->max_columns;
    const int64_t places = specv_i_num_slots(slot, num_slots, (int32_t)batch);
    const int slot_status = specv_i_slot_validate(slot, slot_dtype, num_slots);
    const size_t token_bytes = token_dtype == SPECV_I64 ? 8 : 4;
    const size_t index_bytes = c->index_dtype == SPECV_I64 ? 8 : 4;
    SPECV_CHECK(batch >= 0, BATCH);
    SPECV_CHECK(max_draft >= 0, MAX_DRAFT);
    SPECV_CHECK(batch * (max_draft + 1) <= 1 << 30, TOO_LARGE);
    SPECV_CHECK(token_dtype == SPECV_I32 || token_dtype == SPECV_I64, TOKEN_DTYPE);
    SPECV_CHECK(c->index_dtype == SPECV_I32 || c->index_dtype == SPECV_I64, INDEX_DTYPE);
    SPECV_CHECK(specv_i_aligned(out_tokens, token_bytes), OUT_TOKENS);
    SPECV_CHECK(out_tokens || batch == 0 || !c->tokens, OUT_TOKENS);
    SPECV_CHECK(specv_i_aligned(num_emitted, 4) && (num_emitted || batch == 0), NUM_EMITTED);
    SPECV_CHECK(out_stride == 0 || out_stride >= max_draft + 1, OUT_STRIDE);
    SPECV_CHECK(specv_i_times(batch * 8, out_stride) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_aligned(c->tokens, token_bytes), COLUMNS);
    SPECV_CHECK(specv_i_aligned(c->mask, index_bytes), COLUMNS);
    SPECV_CHECK(specv_i_aligned(c->position_ids, index_bytes), COLUMNS);
    SPECV_CHECK(specv_i_aligned(c->width, 4) && (c->width || batch == 0), WIDTH);
    SPECV_CHECK(c->max_columns > 0 && c->max_columns <= 1 << 29, MAX_COLUMNS);
    SPECV_CHECK(c->stride_elems == 0 || c->stride_elems >= c->max_columns, MAX_COLUMNS);
    SPECV_CHECK(specv_i_times(places * 8, stride) < SPECV_I_HUGE, SIZE);
    return slot_status;
}

/* A padded cache, small enough to number a thread for each 16 bytes of a position. */
SPECV_HOSTFN int specv_i_shifted_cache_validate(const specv_kv_cache *kv, int64_t batch,
                                                int64_t num_slots) {
    int64_t heads = kv->num_heads ? kv->num_heads : 1, planes = kv->num_planes ? kv->num_planes : 1;
    int status = specv_i_cache_validate(kv, num_slots, 0);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_times(batch * planes, (specv_i_times(heads, kv->head_bytes) + 15) / 16) <=
                    1 << 30,
                TOO_LARGE);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_realign_validate(const specv_realign_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    status = specv_i_columns_validate(&d->columns, d->token_dtype, d->out_tokens, d->num_emitted,
                                      d->out_stride_elems, d->batch, d->max_draft, d->slot,
                                      d->slot_dtype, d->num_slots);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->pad_len, 4) && (d->pad_len || d->batch == 0), PAD_LEN);
    SPECV_CHECK(specv_i_aligned(d->shifts, 16) && (d->shifts || d->batch == 0), SHIFTS);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_aligned(d->ticket, 4) && (d->ticket || d->batch == 0), TICKET);
    if (!specv_i_has_planes(&d->kv)) return SPECV_OK;
    return specv_i_shifted_cache_validate(&d->kv, d->batch,
                                          specv_i_num_slots(d->slot, d->num_slots, d->batch));
}

SPECV_HOSTFN void specv_realign_resolve(specv_realign_desc *d) {
    if (!d->columns.stride_elems) d->columns.stride_elems = d->columns.max_columns;
    if (!d->out_stride_elems) d->out_stride_elems = (int64_t)d->max_draft + 1;
    specv_i_cache_resolve(&d->kv);
}

SPECV_HOSTFN int specv_shift_kv_validate(const specv_shift_kv_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    if ((status = specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots)) != SPECV_OK)
        return status;
    SPECV_CHECK(specv_i_aligned(d->shifts, 16) && (d->shifts || d->batch == 0), SHIFTS);
    SPECV_CHECK(specv_i_aligned(d->end, 4), END);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_has_planes(&d->kv) || d->batch == 0, PLANES);
    return specv_i_shifted_cache_validate(&d->kv, d->batch,
                                          specv_i_num_slots(d->slot, d->num_slots, d->batch));
}

SPECV_HOSTFN void specv_shift_kv_resolve(specv_shift_kv_desc *d) { specv_i_cache_resolve(&d->kv); }

SPECV_HOSTFN int specv_gap_commit_validate(const specv_gap_commit_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    status = specv_i_columns_validate(&d->columns, d->token_dtype, d->out_tokens, d->num_emitted,
                                      d->out_stride_elems, d->batch, d->max_draft, d->slot,
                                      d->slot_dtype, d->num_slots);
    if (status != SPECV_OK) return status;
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4) && (d->accepted_len || d->batch == 0),
                ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->text_len, 4) && (d->text_len || d->batch == 0), TEXT_LEN);
    SPECV_CHECK(specv_i_aligned(d->max_draft_lacks, 4), DRAFT_LACKS);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_aligned(d->ticket, 4) && (d->ticket || d->batch == 0), TICKET);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_gap_commit_resolve(specv_gap_commit_desc *d) {
    if (!d->columns.stride_elems) d->columns.stride_elems = d->columns.max_columns;
    if (!d->out_stride_elems) d->out_stride_elems = (int64_t)d->max_draft + 1;
}

#if SPECV_I_LAUNCHERS
/* C1. One launch, a block per row; with planes a second one, chained, that moves KV: blocks take
   slices of the rows that move and walk along the columns against the move, so nothing has to wait
   for another block and a moved byte is read and written once. Rows that keep their place cost one
   load a block. Row faults: BAD_LENGTH (num_emitted out of range counts as 0; with pad_len or width
   out of range the row is left alone); NO_SPACE (width' above max_columns, or width + num_emitted -
   1 of a row above the cache's max_positions): then no row and no array is changed. A row with
   BAD_SLOT counts for no width. */
SPECV_LAUNCHER int specv_realign(const specv_realign_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_realign);

/* C1. One launch. Row fault: BAD_LENGTH (a column outside the cache): the row is left alone. The
   shift of a row with BAD_SLOT may be read. */
SPECV_LAUNCHER int specv_shift_kv(const specv_shift_kv_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_shift_kv);

/* C2. One launch, a block per row. Row faults: BAD_LENGTH: the row is left alone, and like one with
   BAD_SLOT it counts for no width; NO_SPACE (width' above max_columns): nothing is changed. Columns
   of inert and faulty rows are not written, though width grows: clear their mask before such a row
   is live again. */
SPECV_LAUNCHER int specv_gap_commit(const specv_gap_commit_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_gap_commit);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

SPECV_DEVFN void specv_i_store_column(const specv_columns *c, int token_dtype, int64_t at,
                                      int64_t token, int mask, int position) {
    if (c->tokens) specv_i_store_token(c->tokens, token_dtype, at, mask ? token : c->pad_token);
    if (c->mask) specv_i_store_token(c->mask, c->index_dtype, at, mask);
    if (c->position_ids)
        specv_i_store_token(c->position_ids, c->index_dtype, at, position > 0 ? position : 0);
}

/* Of the rows that this thread of a block looks at, every SPECV_COLUMN_THREADS-th, the last; below
   0 if there is none. A walk from there ends with its first row, which for few rows is the only one
   and need not be loaded again. */
SPECV_DEVFN int specv_i_last_row(int batch) {
    const int behind = batch - 1 - specv_i_thread();
    return behind < 0 ? -1
                      : specv_i_thread() + behind / SPECV_COLUMN_THREADS * SPECV_COLUMN_THREADS;
}

/* What C1 knows of a row. */
typedef struct specv_i_gain {
    int32_t slot, pad; /* slot: -1 if the row is not live or its slot is bad */
    int32_t tokens;    /* that it gains; -1 if its place cannot be trusted */
} specv_i_gain;

/* Call: any thread, where rows have slots behind specv_i_block_seat. Without slots all numbers are
   asked for before one is looked at. */
SPECV_DEVFN specv_i_gain specv_i_gain_of(const specv_realign_desc *d, int b, int live, int width,
                                         const int32_t *seats, uint32_t *status) {
    const int32_t emitted = d->num_emitted[b];
    specv_i_gain g = {-1, 0, -1};
    if (!d->slot) g.pad = d->pad_len[b];
    if (b >= live) return g;
    g.slot = specv_i_seat(d->slot, d->slot_dtype, d->num_slots, b, seats, status);
    if (g.slot < 0) return g;
    if (d->slot) g.pad = d->pad_len[g.slot];
    const int good = emitted >= 0 && emitted <= d->max_draft + 1;
    if (width >= 0 && width <= d->columns.max_columns && g.pad >= 0 && g.pad <= width)
        g.tokens = good ? emitted : 0;
    if (!good || g.tokens < 0) *status = SPECV_ROW_BAD_LENGTH;
    return g;
}

/* Moves count units of `width` bytes, `stride` bytes apart, by `by` places, in place. num_threads
   share them out: 1, which waits for nobody, or more, of a block where the others do the same with
   other units, or nothing, if their number is not below num_threads. In each round each loads
   SPECV_I_FLIGHT units, then, when all have theirs, stores them; rounds go against the move, from
   the end when it is to the right, so that what is stored over has been loaded.
   Call: thread or block. Sync: for a block, barriers, none behind the last write. */
SPECV_DEVFN void specv_i_shift(char *data, int64_t stride, int count, int by, int width, int thread,
                               int num_threads) {
    const int round = num_threads * SPECV_I_FLIGHT, next = by > 0 ? -round : round;
    const int first = (by > 0 ? count - round : 0) + thread, works = thread < num_threads;
    unsigned at = (unsigned)first; /* of this thread's units; those before the first are large */
    data += first * stride;
#pragma unroll 1
    for (int left = count; left > 0; left -= round, at += (unsigned)next, data += next * stride) {
        uint4 v[SPECV_I_FLIGHT];
        char *from = data, *to = data + by * stride;
#pragma unroll
        for (int u = 0; u < SPECV_I_FLIGHT; ++u, from += num_threads * stride)
            if (works && at + (unsigned)(u * num_threads) < (unsigned)count)
                v[u] = specv_i_load_unit(from, width);
        if (num_threads > 1) __syncthreads();
#pragma unroll
        for (int u = 0; u < SPECV_I_FLIGHT; ++u, to += num_threads * stride)
            if (works && at + (unsigned)(u * num_threads) < (unsigned)count)
                specv_i_store_unit(to, v[u], width);
    }
}

/* What row b of a shift does; nothing if count is 0. Its slot is not asked for. Call: any thread.
   */
SPECV_DEVFN specv_shift specv_i_shift_row(const specv_shift_kv_desc *d, int b, uint32_t *status) {
    const uint4 loaded = specv_i_load_unit(&d->shifts[b], 16);
    specv_shift shift = {(int32_t)loaded.x, (int32_t)loaded.y, (int32_t)loaded.z, 0};
    int64_t end = (int64_t)shift.first + shift.count;
    if (d->end && d->end[b] < end) end = d->end[b];
    shift.count = 0;
    if (end <= shift.first) return shift;
    if (shift.first < 0 || (int64_t)shift.first + shift.by < 0 || end > d->kv.max_positions ||
        end + shift.by > d->kv.max_positions)
        *status = SPECV_ROW_BAD_LENGTH;
    else if (shift.by != 0)
        shift.count = (int32_t)(end - shift.first);
    return shift;
}

/* Moves one slice, of SPECV_SHIFT_SLICE bytes, of a sequence's KV rows in one plane. Threads have
   neighbouring units of a row first. Call: block. Sync: barriers, none behind the last write. */
SPECV_DEVFN void specv_i_block_shift_slice(const specv_kv_cache *kv, char *data, int slice,
                                           const specv_shift *shift) {
    const int width = specv_i_unit_bytes(
        (uint64_t)data | (uint64_t)kv->head_bytes | (uint64_t)kv->seq_stride_bytes |
        (uint64_t)kv->pos_stride_bytes | (uint64_t)kv->head_stride_bytes);
    const int row_bytes = (int)(kv->num_heads * kv->head_bytes), first = slice * SPECV_SHIFT_SLICE;
    const int left = row_bytes - first;
    const unsigned units =
        (unsigned)((left < SPECV_SHIFT_SLICE ? left : SPECV_SHIFT_SLICE) / width);
    const unsigned walker = (unsigned)specv_i_thread() / units;
    const int unit = (int)((unsigned)specv_i_thread() - walker * units);
    const int byte = first + unit * width, head = byte / (int)kv->head_bytes;
    const int num_walkers = SPECV_COLUMN_THREADS / (int)units;
    data += shift->first * kv->pos_stride_bytes + head * kv->head_stride_bytes +
            (byte - head * kv->head_bytes);
    if (width == 16)
        specv_i_shift(data, kv->pos_stride_bytes, shift->count, shift->by, 16, (int)walker,
                      num_walkers);
    else
        specv_i_shift(data, kv->pos_stride_bytes, shift->count, shift->by, width, (int)walker,
                      num_walkers);
}

/* C1 for row b: where its columns go, its tokens, mask and position ids. Call: block. */
SPECV_DEVFN void specv_i_block_realign_row(const specv_realign_desc *d, int b, int32_t slot,
                                           int width, int new_width, int pad, int gain) {
    const specv_columns *c = &d->columns;
    const int content = width - pad, tokens = content + gain, new_pad = new_width - tokens;
    const int by = new_pad - pad, first = by == 0 ? width : pad < new_pad ? pad : new_pad;
    const int64_t row = slot * c->stride_elems;
    int end = width > new_width ? width : new_width;
    end = d->max_draft < c->max_columns - end ? end + d->max_draft : c->max_columns;
    if (c->tokens && by != 0) {
        const int thread = specv_i_thread(), num_threads = SPECV_COLUMN_THREADS;
        if (d->token_dtype == SPECV_I64)
            specv_i_shift((char *)c->tokens + (row + pad) * 8, 8, content, by, 8, thread,
                          num_threads);
        else
            specv_i_shift((char *)c->tokens + (row + pad) * 4, 4, content, by, 4, thread,
                          num_threads);
    }
    for (int column = first + specv_i_thread(); column < end; column += SPECV_COLUMN_THREADS) {
        const int i = column - new_pad, mask = i >= 0 && i < tokens;
        specv_columns rest = *c;
        int64_t token = 0;
        if (i >= 0 && i < content) rest.tokens = 0; /* they are there already */
        if (rest.tokens && mask)
            token = specv_i_one_token(d->out_tokens, d->token_dtype,
                                      b * d->out_stride_elems + i - content);
        specv_i_store_column(&rest, d->token_dtype, row + column, token, mask, i);
    }
}

/* What C2 knows of a row. */
typedef struct specv_i_gap {
    int32_t slot; /* -1 if the row is not live or its slot is bad */
    int32_t accepted, emitted, content;
    int32_t ok; /* it can be believed */
} specv_i_gap;

/* Call: as specv_i_gain_of. */
SPECV_DEVFN specv_i_gap specv_i_gap_of(const specv_gap_commit_desc *d, int b, int live, int width,
                                       const int32_t *seats, uint32_t *status) {
    const int32_t most = d->columns.max_columns;
    specv_i_gap g = {-1, d->accepted_len[b], d->num_emitted[b], 0, 0};
    if (!d->slot) g.content = d->text_len[b];
    if (b >= live) return g;
    g.slot = specv_i_seat(d->slot, d->slot_dtype, d->num_slots, b, seats, status);
    if (g.slot < 0) return g;
    if (d->slot) g.content = d->text_len[g.slot];
    g.ok = width >= 0 && width <= most && g.accepted >= 0 && g.accepted <= d->max_draft &&
           g.emitted >= g.accepted && g.emitted <= g.accepted + 1 && g.content >= 0 &&
           g.content <= most;
    if (!g.ok) *status = SPECV_ROW_BAD_LENGTH;
    return g;
}

/* C2 for row b. Call: block. */
SPECV_DEVFN void specv_i_block_gap_row(const specv_gap_commit_desc *d, int b, const specv_i_gap *g,
                                       int width, int furthest) {
    const specv_columns *c = &d->columns;
    const int accepted = g->accepted, content = g->content;
    const int has_next = g->emitted > accepted, new_width = width + furthest + 1;
    const int end =
        d->max_draft < c->max_columns - new_width ? new_width + d->max_draft : c->max_columns;
    for (int column = width + specv_i_thread(); column < end; column += SPECV_COLUMN_THREADS) {
        const int j = column - width, is_next = j == furthest && has_next;
        const int mask = j < accepted || is_next;
        /* the mask's running count: accepted ones up to here, and the next token at its place */
        int position = content - 1 + (j < accepted ? j + 1 : accepted + is_next);
        int64_t token = 0;
        if (column >= new_width) position = content + accepted + has_next + column - new_width;
        if (mask && c->tokens)
            token = specv_i_one_token(d->out_tokens, d->token_dtype,
                                      b * d->out_stride_elems + (is_next ? accepted : j));
        specv_i_store_column(c, d->token_dtype, g->slot * c->stride_elems + column, token, mask,
                             position);
    }
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_realign_kernel(const __grid_constant__ specv_realign_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_shift_kv_kernel(const __grid_constant__ specv_shift_kv_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_gap_commit_kernel(const __grid_constant__ specv_gap_commit_desc d);
#endif

#endif /* __CUDACC__ */

/* ================================================================================ >>schedule

   Which rows go on, in which order, with how many drafts. Each is one launch.
     C3  specv_compact           the rows that go on come first; arrays are carried along
     C4  specv_group             rows ordered by length or score; groups of equal length
     C5  specv_draft_budget      of all drafts of a batch those that are worth their place
   Needs: primitives. */

/* C3. Which rows go on, and what each still has to feed its draft model. `carry` compacts arrays
   with an element per row, in place, so that the rows that go on come first; what is behind them
   stays as it was: a sequence that joins there begins with num_row_pages and cache_len 0, or B5
   gives back pages of the row that moved. Rows that leave give their pages back (B5) before. A
   launch cannot carry the lengths that it reads; finished is 0 for all rows that go on.
   With slots, what a request keeps stays where it is, and new_slot is the next batch; carry is for
   what a row has. A row that has finished leaves whatever its slot is; one whose slot is BAD_SLOT
   leaves, too, and says so. Rows may share a slot: nothing of a request is written. */
enum { SPECV_MAX_CARRY = 8 };

typedef struct specv_carry {
    void *data;         /* in/out [batch] (D3: [slot]), of any alignment; 16 bytes are fastest */
    int64_t elem_bytes; /* > 0; elements are back to back */
} specv_carry;

typedef struct specv_compact_desc {
    uint32_t canary0;
    int32_t batch;
    const int32_t *num_active;      /* as in specv_rows */
    const void *slot;               /* the same */
    const uint8_t *finished;        /* [batch]; not 0: the row leaves */
    const int32_t *cache_len;       /* [slot], or null: no start_position, no draft_lacks_* */
    const int32_t *draft_cache_len; /* [slot], or null: no draft_lacks_* */
    int32_t *active;                /* out [batch]: rows that go on, in order, then -1 */
    int32_t *new_num_active;        /* out scalar; not num_active */
    void *new_slot;             /* out [batch], or null: slot of active[i] (the row itself without
                                  slots), then -1. Not slot */
    int32_t *start_position;    /* out [batch], or null: cache_len of active[i], then 0 */
    int32_t *draft_lacks_first; /* out [batch], or null: the first position that the draft model
                                  has not seen of active[i], its draft_cache_len; then 0 */
    int32_t *draft_lacks_start; /* out [batch + 1], or null: running sum of the tokens it lacks,
                                  cache_len + 1 - draft_cache_len each: rows of a CSR pass */
    uint32_t *row_status;       /* out [batch], or null; by row, as the inputs */
    specv_carry carry[SPECV_MAX_CARRY]; /* none may be an input or another output */
    int32_t num_carry;
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_compact_desc;

/* C4. Orders rows by a key, equal keys in row order: by length, with the groups of equal length
   (EXSPEC, arXiv 2510.22876), or by score, largest first (predicted acceptance). All that it writes
   is of the step: rows may share a slot. */
typedef struct specv_group_desc {
    uint32_t canary0;
    int32_t batch;
    const int32_t *num_active; /* as in specv_rows */
    const void *slot;          /* the same */
    const uint8_t *skip;       /* [batch], or null; not 0: the row is left out, whatever its slot */
    const int32_t *length;     /* [slot]; this or score */
    const float *score;        /* [batch]; NaN counts as the smallest */
    int32_t *order;            /* out [batch]: rows, smallest length or largest score first; -1 */
    int32_t *group_start;      /* out [batch + 1], or null: group g is order[group_start[g]] up to
                                  order[group_start[g + 1]]; then the number of rows in order */
    int32_t *group_count;      /* out scalar, or null; -1: BAD_TICKET */
    int32_t *pick_rows;        /* out [num_pick], or null: of the groups with num_pick rows the one
                                  whose num_pick-th row comes first, its first num_pick rows; if
                                  there is none the first num_pick rows that are not left out, then
                                  -1 */
    int32_t *is_group;         /* out scalar, or null: 1 = pick_rows are of one group */
    uint32_t *row_status;      /* out [batch], or null */
    uint32_t *ticket;          /* one per stream, 0: see B3 */
    int32_t num_pick;
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_group_desc;

/* C5. Spends a budget of drafts on the batch: the `budget` drafts with the largest chance to be
   reached and accepted, survival(b, j) = confidence(b, 0) * .. * confidence(b, j), each product
   rounded to float; ties to the lower row, then the lower position. As survival never grows along
   a row, every row keeps a prefix. (TETRIS, arXiv 2502.15197.)
   What confidence may depend on: confidence(b, j) on the text before draft j of row b, the drafts
   0..j-1 among it, and on nothing that was drawn with draft j or later. Then whether draft j is
   kept is settled before it is drawn (those that beat it are of other rows, or before it), and the
   text keeps its law under every rule. specv_sample's max_prob is such a number, the entropy of q
   another; q of the drafted token itself is not: rules TOKEN and BLOCK then write text of another
   law. Rules GREEDY and COUPLED, and drafts that are a function of the text, take any. */
typedef struct specv_draft_budget_desc {
    uint32_t canary0;
    int32_t keep_status;     /* 1 = add bits to row_status; 0 = store it */
    specv_rows rows;         /* dense */
    const float *confidence; /* [batch][max_draft], in [0, 1] */
    const int32_t *budget;   /* device scalar, or null: max_budget */
    float *survival;         /* out [batch][max_draft]; 0 behind the row's drafts */
    int32_t *new_draft_len;  /* out [batch]: drafts to verify; may be rows.draft_len */
    int32_t *new_row_start;  /* out [batch + 1], or null: running sum, as in specv_rows */
    uint32_t *row_status;    /* out [batch], or null; a confidence outside [0, 1]: NAN, as 0 */
    int64_t confidence_stride_elems; /* 0 = max_draft */
    int32_t max_budget;              /* must be set: at most so many drafts are kept */
    int32_t chained;                 /* specv_chained bits; 0: neither */
    uint32_t reserved;               /* must be 0 */
    uint32_t canary1;
} specv_draft_budget_desc;

#define SPECV_COMPACT_THREADS 512  /* specv_compact_kernel: at most */
#define SPECV_GROUP_THREADS   256  /* specv_group_kernel: 8 threads per row */
#define SPECV_GROUP_ROWS      32   /* rows of a block of it */
#define SPECV_GROUP_TILE      2048 /* rows whose keys it has in shared memory */
#define SPECV_BUDGET_THREADS  1024 /* specv_draft_budget_kernel: one block of at most so many */
#define SPECV_BUDGET_NEAR     8192 /* survivals that it has in shared memory */

/* Threads of a block that has a row in each: fewer warps pass its barriers sooner. */
SPECV_NUMFN int specv_i_threads_for(int batch, int most) {
    int threads = 128;
    while (threads < batch && threads < most) threads *= 2;
    return threads;
}

/* C3 carries an element in slices of 2^shift bytes: 128, a line, as long as these are at most 128.
   */
SPECV_NUMFN int specv_i_slice_shift(int64_t elem_bytes) {
    int shift = 7;
    while ((elem_bytes - 1) >> shift >= 128) ++shift;
    return shift;
}

SPECV_NUMFN int specv_i_num_slices(int64_t elem_bytes) {
    return (int)((elem_bytes - 1) >> specv_i_slice_shift(elem_bytes)) + 1;
}

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int specv_i_carry_validate(const specv_carry *carry, int count, int64_t batch) {
    SPECV_CHECK(count >= 0 && count <= SPECV_MAX_CARRY, CARRY);
    for (int i = 0; i < count; ++i) {
        SPECV_CHECK(carry[i].data || batch == 0, CARRY);
        SPECV_CHECK(carry[i].elem_bytes > 0, CARRY);
        SPECV_CHECK(specv_i_times(batch, carry[i].elem_bytes) < SPECV_I_HUGE, SIZE);
    }
    return SPECV_OK;
}

SPECV_HOSTFN int specv_compact_validate(const specv_compact_desc *d) {
    int needs_lengths;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots) == SPECV_OK, SLOT);
    SPECV_CHECK(specv_i_aligned(d->new_slot, d->slot_dtype == SPECV_I64 ? 8 : 4), SLOT);
    SPECV_CHECK(d->finished || d->batch == 0, FINISHED);
    SPECV_CHECK(specv_i_aligned(d->cache_len, 4), CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->draft_cache_len, 4), DRAFT_CACHE_LEN);
    SPECV_CHECK(specv_i_aligned(d->active, 4) && (d->active || d->batch == 0), ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->new_num_active, 4) && (d->new_num_active || d->batch == 0),
                ACTIVE);
    SPECV_CHECK(specv_i_aligned(d->start_position, 4) && specv_i_aligned(d->draft_lacks_first, 4) &&
                    specv_i_aligned(d->draft_lacks_start, 4),
                DRAFT_LACKS);
    needs_lengths = d->draft_lacks_first || d->draft_lacks_start;
    SPECV_CHECK(d->cache_len || !(needs_lengths || d->start_position), DRAFT_LACKS);
    SPECV_CHECK(d->draft_cache_len || !needs_lengths, DRAFT_LACKS);
    SPECV_I_CHECK_STATUS(d, row_status);
    return specv_i_carry_validate(d->carry, d->num_carry, d->batch);
}

SPECV_HOSTFN int specv_group_validate(const specv_group_desc *d) {
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(d->batch <= 1 << 16, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots) == SPECV_OK, SLOT);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(specv_i_aligned(d->length, 4) && specv_i_aligned(d->score, 4), KEY);
    SPECV_CHECK(!(d->length && d->score) && (d->length || d->score || d->batch == 0), KEY);
    SPECV_CHECK(specv_i_aligned(d->order, 4) && (d->order || d->batch == 0), ORDER);
    SPECV_CHECK(specv_i_aligned(d->group_start, 4) && specv_i_aligned(d->group_count, 4), ORDER);
    SPECV_CHECK(d->num_pick >= 0 && specv_i_aligned(d->pick_rows, 4) &&
                    specv_i_aligned(d->is_group, 4),
                PICK);
    SPECV_CHECK(d->num_pick > 0 || (!d->pick_rows && !d->is_group), PICK);
    SPECV_CHECK(specv_i_aligned(d->ticket, 4) && (d->ticket || d->batch == 0), TICKET);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_draft_budget_validate(const specv_draft_budget_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    if ((status = specv_i_rows_validate(&d->rows)) != SPECV_OK) return status;
    SPECV_CHECK(!specv_i_is_csr(&d->rows), LAYOUT);
    SPECV_CHECK(specv_i_aligned(d->confidence, 4), CONFIDENCE);
    SPECV_CHECK(d->confidence || d->rows.batch == 0 || d->rows.max_draft == 0, CONFIDENCE);
    SPECV_CHECK(d->confidence_stride_elems == 0 || d->confidence_stride_elems >= d->rows.max_draft,
                CONFIDENCE);
    SPECV_CHECK(
        specv_i_times((int64_t)d->rows.batch * 4, d->confidence_stride_elems) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_aligned(d->survival, 4), SURVIVAL);
    SPECV_CHECK(d->survival || d->rows.batch == 0 || d->rows.max_draft == 0, SURVIVAL);
    SPECV_CHECK(d->max_budget >= 0 && specv_i_aligned(d->budget, 4), BUDGET);
    SPECV_CHECK(specv_i_aligned(d->new_draft_len, 4) && (d->new_draft_len || d->rows.batch == 0),
                NEW_DRAFT_LEN);
    SPECV_CHECK(specv_i_aligned(d->new_row_start, 4), ROW_START);
    SPECV_I_CHECK_STATUS(d, row_status);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_draft_budget_resolve(specv_draft_budget_desc *d) {
    if (!d->confidence_stride_elems) d->confidence_stride_elems = d->rows.max_draft;
}

#if SPECV_I_LAUNCHERS
/* C3. One launch: a block for the lists, one for each slice of the elements of a carried array. Row
   faults: BAD_LENGTH (not 0 <= draft_cache_len <= cache_len): the row goes on with nothing that the
   draft model lacks; BAD_SLOT: it leaves. */
SPECV_LAUNCHER int specv_compact(const specv_compact_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_compact);

/* C4. One launch, eight threads per row that compare its key with all others. At most 65,536
   rows. Row fault: BAD_SLOT: left out. */
SPECV_LAUNCHER int specv_group(const specv_group_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_group);

/* C5. One launch of one block. Row faults: BAD_LENGTH (draft_len): no drafts; NAN. */
SPECV_LAUNCHER int specv_draft_budget(const specv_draft_budget_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_draft_budget);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* C4's keys of rows: the key in the high word, the row in the low one, so that no two are equal,
   and comparing them is stable. Rows that are left out come last; with BAD_SLOT just before those
   without. The loads of AHEAD rows are in flight together. Call: thread. Round trips: 2, 3 with
   num_active. */
#define SPECV_I_LEFT_OUT    (~(uint64_t)0)
#define SPECV_I_HAS_NO_SLOT (~(uint64_t)0 - 1)
#define SPECV_I_GROUP_AHEAD 4

SPECV_DEVFN void specv_i_group_keys(const specv_group_desc *d, const int32_t *rows, int live,
                                    uint64_t *keys) {
    int32_t at[SPECV_I_GROUP_AHEAD];
    uint32_t bad[SPECV_I_GROUP_AHEAD], bits[SPECV_I_GROUP_AHEAD];
    int skip[SPECV_I_GROUP_AHEAD];
#pragma unroll
    for (int u = 0; u < SPECV_I_GROUP_AHEAD; ++u) {
        at[u] = -1, bad[u] = bits[u] = 0, skip[u] = 0;
        if (rows[u] < 0 || rows[u] >= live) continue;
        if (d->skip) skip[u] = d->skip[rows[u]];
        if (d->score) bits[u] = specv_float_bits(d->score[rows[u]]);
        at[u] = specv_thread_slot(d->slot, d->slot_dtype, d->num_slots, rows[u], &bad[u]);
    }
#pragma unroll
    for (int u = 0; u < SPECV_I_GROUP_AHEAD; ++u)
        if (d->length && at[u] >= 0) bits[u] = (uint32_t)d->length[at[u]];
#pragma unroll
    for (int u = 0; u < SPECV_I_GROUP_AHEAD; ++u) {
        uint32_t key = bits[u] ^ 0x80000000u;
        if (d->score) {
            const float score = specv_i_add(specv_bits_float(bits[u]), 0.0f); /* -0 is 0 */
            key = specv_float_bits(score);
            key = ~(key ^ (key >> 31 ? 0xffffffffu : 0x80000000u)); /* the largest first */
            if (specv_i_is_nan(score)) key = 0xffffffffu;
        }
        keys[u] = skip[u]      ? SPECV_I_LEFT_OUT
                  : at[u] >= 0 ? (uint64_t)key << 32 | (uint32_t)rows[u]
                  : bad[u]     ? SPECV_I_HAS_NO_SLOT
                               : SPECV_I_LEFT_OUT;
    }
}

/* Drafts of a row whose survival has at least these bits; survival never grows along the row. */
SPECV_DEVFN int specv_i_survivors(const float *survival, int n_draft, uint32_t bits) {
    int low = 0, high = n_draft;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (specv_float_bits(survival[middle]) >= bits)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where C5 has the survivals of rows. */
typedef struct specv_i_survivals {
    const float *first;
    int64_t stride;
    int32_t n_draft; /* of the thread's row, or -1: there are several, see rows */
} specv_i_survivals;

SPECV_DEVFN int specv_i_survivals_of(const specv_draft_budget_desc *d, const specv_i_survivals *s,
                                     int b) {
    return s->n_draft >= 0 ? s->n_draft : specv_thread_load_row(&d->rows, b).n_draft;
}

/* The *rank-th largest survival of all drafts, 1 being the largest: the bits of a float; *rank
   becomes how many of those that are equal to it are among these *rank. Behind the smallest: the
   smallest. *rank below 1: a number above all. Ten bits are found at a time. Call: block of 128
   threads or a power of two more, each of which reads the rows that it wrote. Sync: barriers. */
SPECV_DEVFN uint32_t specv_i_block_nth_survival(const specv_draft_budget_desc *d,
                                                const specv_i_survivals *s, int32_t *rank) {
    enum { AHEAD = 8, BINS = 1024, MOST = 8 /* bins of a thread */ };
    __shared__ int32_t bins[BINS], scratch[SPECV_BLOCK_SCAN_SMEM_WORDS], found[2];
    const int thread = specv_i_thread(), threads = specv_i_num_threads(), each = BINS / threads;
    uint32_t prefix = 0;
    int32_t wanted = *rank, total;
    for (int i = thread; i < BINS; i += threads) bins[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int shift = 20; shift >= 0; shift -= 10) {
        for (int b = thread; b < d->rows.batch; b += threads) {
            const float *survival = s->first + b * s->stride;
            const int n_draft = specv_i_survivals_of(d, s, b);
            for (int j0 = 0; j0 < n_draft; j0 += AHEAD) {
                uint32_t bits[AHEAD]; /* below 2^30: at most 1 */
#pragma unroll
                for (int u = 0; u < AHEAD; ++u)
                    bits[u] = j0 + u < n_draft ? specv_float_bits(survival[j0 + u]) : 0xffffffffu;
#pragma unroll
                for (int u = 0; u < AHEAD; ++u)
                    if (bits[u] >> shift >> 10 == prefix)
                        atomicAdd(&bins[bits[u] >> shift & 1023], 1);
            }
        }
        __syncthreads();
        int32_t *const mine = &bins[BINS - each * (thread + 1)]; /* the largest are thread 0's */
        int32_t counts[MOST], sum = 0;
#pragma unroll
        for (int i = 0; i < MOST; ++i) counts[i] = i < each ? mine[i] : 0;
#pragma unroll
        for (int i = 0; i < MOST; ++i) sum += counts[i];
        int32_t before = specv_block_exclusive_scan(sum, &total, scratch);
        if (wanted > total) wanted = total; /* of the first round: all drafts */
#pragma unroll
        for (int i = MOST - 1; i >= 0; --i) {
            if (before < wanted && wanted <= before + counts[i])
                found[0] = BINS - each * (thread + 1) + i, found[1] = before;
            before += counts[i];
            if (i < each) mine[i] = 0; /* for the next round */
        }
        __syncthreads();
        if (wanted <= 0) break;
        prefix = prefix << 10 | (uint32_t)found[0], wanted -= found[1];
    }
    *rank = wanted < 0 ? 0 : wanted;
    return wanted <= 0 ? 0x7f800000u : prefix;
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_COMPACT_THREADS, 1)
    specv_compact_kernel(const __grid_constant__ specv_compact_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_GROUP_THREADS)
    specv_group_kernel(const __grid_constant__ specv_group_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_BUDGET_THREADS, 1)
    specv_draft_budget_kernel(const __grid_constant__ specv_draft_budget_desc d);
#endif

#endif /* __CUDACC__ */

/* =============================================================================== >>particles

   SMC-SD (arXiv 2604.15672) accepts every draft (rule SCORE) and carries the correction in weights.
   Particle i of group g is row g * num_particles + i. With slots, D2 takes those of groups, whose
   particles lie together: particle i of the group in slot s is in slot s * num_particles + i, which
   slot[row] of D1 and D3 then has to be. Each is one launch.
     D1  specv_particle_weights  the weights of a cycle
     D2  specv_resample_plan     which particle is copied over which
     D3  specv_reshuffle         tables, texts and whatever else a particle has move as planned
     D4                          from one prompt to many particles: specv_page_fork
   Needs: >>cache (the pool of pages), >>schedule (specv_carry). */

/* D1. One cycle's importance weights, in double: for each draft up to the first EOS, in order,
       w += alpha * target_logprob - draft_logprob,
   and, if no EOS was drafted, ln Z of the power target that the bonus token came from,
       w += bonus_lse - alpha * lse.
   A finished particle adds 0. NaN and +infinity count as -infinity. Every particle has max_draft
   drafts, or an EOS among them: all are read, what is behind the EOS may hold anything. Two rows of
   one slot: BAD_SLOT, in all but the first. */
typedef struct specv_particle_weights_desc {
    uint32_t canary0;
    int32_t token_dtype;         /* specv_dtype of draft_tokens, next_token */
    const int32_t *num_active;   /* as in specv_rows: particles */
    const void *slot;            /* the same */
    const void *draft_tokens;    /* [batch][max_draft], or null: no draft is an EOS */
    const void *next_token;      /* [batch], or null: the bonus token is no EOS. Below 0: none */
    const float *target_logprob; /* [batch][max_draft]: ln p(draft), of rule SCORE */
    const float *draft_logprob;  /* ln q(draft), as sampled; of particle i, draft j at
                                    i * row stride + j * position stride, see below */
    const float *alpha;          /* [slot], or null: 1. Power of the target */
    const float *bonus_lse;      /* [batch], or null: nothing is added. lse of specv_sample at
                                    temperature / alpha, that drew the bonus */
    const float *lse;            /* [batch], with bonus_lse: lse at the temperature itself */
    uint8_t *finished;           /* in/out [slot]: 1 once an EOS was emitted */
    double *log_weight;          /* in/out [slot]: gains what interval_weight does; D2 begins it
                                    anew as well if it is given there */
    double *interval_weight;     /* in/out [slot]: since the last resampling */
    int32_t *num_emitted;        /* out [batch], or null: tokens that the text gains */
    uint32_t *row_status;        /* out [batch], or null; NAN, BAD_SLOT */
    int64_t draft_stride_elems;  /* of draft_tokens; 0 = max_draft */
    int64_t target_logprob_stride_elems; /* 0 = max_draft */
    /* Of draft_logprob: both 0 = max_draft and 1, or both set. */
    int64_t draft_logprob_seq_stride_elems;
    int64_t draft_logprob_pos_stride_elems;
    int64_t eos_token[SPECV_MAX_EOS];
    int32_t num_eos;
    int32_t batch, max_draft;
    int32_t keep_status; /* 1 = add bits to row_status; 0 = store it */
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t canary1;
} specv_particle_weights_desc;

/* How N ancestors are drawn from weights w. SYSTEMATIC: at (k + u) / N, one u; STRATIFIED: at
   (k + u_k) / N; MULTINOMIAL: independently; RESIDUAL: floor(N w) each, the rest independently. */
typedef enum specv_resampling {
    SPECV_RESAMPLE_SYSTEMATIC = 0,
    SPECV_RESAMPLE_STRATIFIED = 1,
    SPECV_RESAMPLE_MULTINOMIAL = 2,
    SPECV_RESAMPLE_RESIDUAL = 3
} specv_resampling;

enum { SPECV_MAX_PARTICLES = 1024 };

/* D2. Which particles die and whose copies take their rows. A group resamples if
       ESS = (sum w)^2 / sum w^2 < threshold * num_particles,   w = exp(interval_weight);
   then its weights start anew at 0 and log_z gains the logarithm of the mean weight. Weights become
   integers of 40 bits, relative to the group's largest, and everything after is exact: copies of
   particle i are floor or ceil of N w_i (SYSTEMATIC), the same on every machine. Survivors keep
   their rows; the d-th dead one gets the d-th spare copy. A group whose weights are all -infinity
   does not resample: EMPTY. What a group keeps ("[group]") is at group_slot[g], jobs and drawn_row
   are rows of the batch whatever slots there are, as D3 takes them. Two groups of one slot:
   BAD_SLOT, in all but the first. */
typedef struct specv_resample_plan_desc {
    uint32_t canary0;
    int32_t scheme;                   /* specv_resampling */
    const int32_t *num_active_groups; /* device scalar, or null: all; clamped to 0..num_groups */
    const void *group_slot;           /* [num_groups], or null: group g has slot g */
    double *interval_weight;          /* in/out [group][num_particles] */
    double *log_weight;               /* in/out, the same, or null */
    double *log_z;                    /* in/out [group], or null */
    const uint64_t *seed;             /* [group]; null only with uniform and without drawn_row */
    const int32_t *position;          /* [group], with seed: different in each cycle */
    const float *uniform; /* [num_groups] (SYSTEMATIC) or [num_groups][num_particles], in [0, 1),
                             or null: from seed. Given, it wins */
    int32_t *jobs;        /* out [num_groups][num_particles - 1][2]: src row, dst row; then -1 */
    int32_t *num_jobs;    /* out [num_groups]: 0 if the group does not resample */
    int32_t *num_copies;  /* out [num_groups][num_particles], or null: of each particle */
    int32_t *drawn_row; /* out [num_groups], or null: a row drawn with the weights as they come in,
                        -1 if all are -infinity: the text to keep, in the end. Needs seed. D3
                        may overwrite the row: read it before, or call with threshold 0. With
                        slots the text is at slot[drawn_row] of D3 */
    double *ess;        /* out [num_groups], or null */
    uint32_t *group_status; /* out [num_groups], or null */
    double threshold;       /* 0..1; 0: never */
    int32_t num_groups, num_particles;
    int32_t keep_status;      /* 1 = add bits to group_status; 0 = store it */
    int32_t group_slot_dtype; /* specv_dtype of group_slot */
    int32_t num_group_slots;  /* slots of arrays "[group]"; with group_slot: must be set */
    int32_t chained;          /* specv_chained bits; 0: neither */
    uint32_t reserved;        /* must be 0 */
    uint32_t canary1;
} specv_resample_plan_desc;

/* The paged cache of one model, as B5 keeps it. */
typedef struct specv_particle_cache {
    specv_page_pool pool;
    int32_t *block_table;       /* in/out [slot][table_stride_elems] */
    int32_t *num_row_pages;     /* in/out [slot] */
    int32_t *cache_len;         /* in/out [slot] */
    int64_t table_stride_elems; /* 0 = max_row_pages */
    int32_t page_size, num_pages, max_row_pages;
    uint32_t reserved; /* must be 0 */
} specv_particle_cache;

enum { SPECV_MAX_CACHES = 2 };

/* D3. Carries the plan out: every dst row gives its pages back and shares the pages of its src row
   that hold tokens; text and numbers of the particle are copied, KV is not (a partly filled page is
   copied by B5 when one of its owners writes). Pages that nobody owns any more go to free_pages in
   ascending order. If free_pages of a cache has no place for all of them (num_free is wrong), none
   goes there: num_free stays, -1 is behind it, the pages have 0 owners. A page with more entries
   than owners is freed when its owners have run out; the other entries only go. (If a src keeps
   that page, it depends on the order whether this is seen.)
   Jobs name rows; what moves is at the slots of these. A job does nothing if the slot of one of its
   rows is none, or that of an earlier row of the batch: BAD_SLOT. So jobs that meet in no row meet
   in no slot. */
typedef struct specv_reshuffle_desc {
    uint32_t canary0;
    int32_t token_dtype;              /* specv_dtype of text */
    const int32_t *num_active_groups; /* as in D2: the others have no jobs */
    const int32_t *jobs;     /* [num_groups][max_jobs][2], of D2: each dst once, no dst is a src */
    const int32_t *num_jobs; /* [num_groups] */
    const void *slot;        /* as in specv_rows; rows behind those that jobs name are not read */
    specv_particle_cache cache[SPECV_MAX_CACHES];
    specv_carry carry[SPECV_MAX_CARRY]; /* [slot]: what else a particle has, like finished of D1:
                                           dst's element becomes src's. No array of this struct */
    void *text;                         /* in/out [slot], text_stride_elems apart, or null */
    int32_t *text_len;                  /* in/out [slot], with text: tokens of it */
    uint32_t *job_status; /* out [num_groups][max_jobs], or null. BAD_LENGTH, BAD_SLOT: the job did
                             nothing. BAD_PAGE, in every job of the launch: pages found no place
                             in free_pages, or an entry that was shared or given back is no page
                             of the pool or one without owners */
    void
        *scratch; /* 16-byte aligned, one per stream, all 0 before the first launch. Each leaves its
                      ticket and its marks 0; with BAD_TICKET all of it has to be zeroed again */
    int64_t scratch_bytes;        /* specv_reshuffle_scratch_bytes(num_jobs, num_pages) suffice */
    int64_t text_stride_elems;    /* with text: must be set */
    int32_t num_groups, max_jobs; /* max_jobs = num_particles - 1; product at most 2^24 */
    int32_t batch;
    int32_t num_caches, num_carry;
    int32_t keep_status; /* 1 = add bits to job_status; 0 = store it */
    int32_t num_sms;     /* 0 = ask the runtime for the current device */
    int32_t slot_dtype;  /* as in specv_rows */
    int32_t num_slots;   /* as in specv_rows */
    int32_t chained;     /* specv_chained bits; 0: neither */
    uint32_t reserved;   /* must be 0 */
    uint32_t canary1;
} specv_reshuffle_desc;

/* What comes of a job of D3; the last block writes it to where dst is. */
typedef struct specv_i_job {
    uint32_t status;
    int32_t dst, text_len, reserved;
    int32_t pages[SPECV_MAX_CACHES], len[SPECV_MAX_CACHES];
} specv_i_job;

/* What the kernel of D3 takes. */
typedef struct specv_reshuffle_task {
    specv_reshuffle_desc d; /* resolved */
    int32_t chunks;         /* pieces of a job */
} specv_reshuffle_task;

#define SPECV_PARTICLE_THREADS 256  /* specv_particle_weights_kernel, specv_reshuffle_kernel */
#define SPECV_PLAN_THREADS     1024 /* specv_resample_plan_kernel: at most, a thread per particle */

/* The 64 bits after the point of draw k; drawn_row is draw SPECV_MAX_PARTICLES. */
SPECV_NUMFN uint64_t specv_i_resample_bits(uint64_t seed, int32_t position, int k) {
    specv_random x = specv_philox(seed, (uint32_t)position, (uint32_t)k, 0, SPECV_TAG_RESAMPLE);
    return (uint64_t)x.x[1] << 32 | x.x[0];
}

#define SPECV_I_MINUS_INFINITY 0xfff0000000000000u /* bits of a double */

/* A weight that can be compared: NaN and +infinity are -infinity, and reported. */
SPECV_NUMFN double specv_i_clean_weight(double w, uint32_t *status) {
    uint64_t bits = specv_i_double_bits(w);
    if ((bits & 0x7ff0000000000000u) != 0x7ff0000000000000u || bits == SPECV_I_MINUS_INFINITY)
        return w;
    *status |= SPECV_ROW_NAN;
    return specv_i_bits_double(SPECV_I_MINUS_INFINITY);
}

/* w + alpha * p - q. The product of two floats is exact. */
SPECV_NUMFN double specv_i_weigh(double w, float alpha, float p, float q) {
    double gain = specv_i_mul_double(specv_i_double(alpha), specv_i_double(p));
    return specv_i_add_double(w, specv_i_add_double(gain, -specv_i_double(q)));
}

/* exp(w - max) with 40 fraction bits; max is finite. */
SPECV_NUMFN uint64_t specv_i_particle_units(double w, double max) {
    const double rounder = 6755399441055744.; /* 1.5 * 2^52 */
    double y = specv_i_mul_double(specv_i_add_double(w, -max), 1.4426950408889634), n;
    specv_weight weight;
    if (!(y > -60)) return 0;
    n = specv_i_add_double(y, rounder);
    weight.n = (int32_t)(uint32_t)specv_i_double_bits(n);
    weight.f = specv_i_float(specv_i_add_double(y, -specv_i_add_double(n, -rounder)));
    weight.mantissa = specv_i_exp2_mantissa(weight.f);
    return specv_weight_units(&weight, 0);
}

/* (sum w)^2 / sum w^2 of weights below 2^41, of whose squares the three parts were added up:
   with w = 2^20 h + l, h^2, h l and l^2. */
SPECV_NUMFN double specv_i_effective(uint64_t sum, uint64_t hh, uint64_t hl, uint64_t ll) {
    double squares = specv_i_add_double(specv_i_mul_double((double)hh, 1099511627776.),
                                        specv_i_mul_double((double)hl, 2097152.));
    squares = specv_i_add_double(squares, (double)ll);
    return specv_i_div_double(specv_i_mul_double((double)sum, (double)sum), squares);
}

/* ln of the mean of num weights whose sum is sum * 2^-40 * exp(max). */
SPECV_NUMFN double specv_i_log_mean(uint64_t sum, int num, double max) {
    int32_t of_sum, of_num;
    float sum_fraction = specv_i_log2((float)sum, &of_sum);
    float num_fraction = specv_i_log2((float)num, &of_num);
    double log2 = specv_i_add_double(
        (double)(of_sum - 40 - of_num),
        specv_i_add_double(specv_i_double(sum_fraction), -specv_i_double(num_fraction)));
    return specv_i_add_double(max, specv_i_mul_double(log2, 0.69314718055994531));
}

/* Where draw k of num falls: floor((k + u) / num * sum), u with 32 bits. sum * num < 2^61. */
SPECV_NUMFN uint64_t specv_i_stratum(int k, uint32_t u, int num, uint64_t sum) {
    uint64_t at = (uint64_t)k << 32 | u; /* below 2^42 */
    return (specv_i_mul_high(at, sum) << 32 | at * sum >> 32) / (uint64_t)num;
}

/* Words of scratch that mark the pages of a cache, a bit each. */
SPECV_NUMFN int64_t specv_i_mark_words(int64_t num_pages) { return (num_pages + 127) / 128 * 4; }

/* D3's scratch: ticket, what was found, two words; marks of cache 0, of cache 1; jobs. The word
   where the marks of a cache begin, or, of cache num_caches, the jobs. */
SPECV_NUMFN int64_t specv_i_marks_at(const specv_reshuffle_desc *d, int cache) {
    int64_t at = 4;
    for (int i = 0; i < cache; ++i) at += specv_i_mark_words(d->cache[i].num_pages);
    return at;
}

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int specv_particle_weights_validate(const specv_particle_weights_desc *d) {
    size_t token_bytes;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(d->max_draft >= 0, MAX_DRAFT);
    SPECV_CHECK((int64_t)d->batch * ((int64_t)d->max_draft + 1) <= 1 << 30, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(d->num_active, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots) == SPECV_OK, SLOT);
    SPECV_CHECK(d->token_dtype == SPECV_I32 || d->token_dtype == SPECV_I64, TOKEN_DTYPE);
    token_bytes = d->token_dtype == SPECV_I64 ? 8 : 4;
    SPECV_CHECK(specv_i_aligned(d->draft_tokens, token_bytes), DRAFT_TOKENS);
    SPECV_CHECK(specv_i_aligned(d->next_token, token_bytes), NEXT_TOKEN);
    SPECV_CHECK(specv_i_aligned(d->target_logprob, 4) && specv_i_aligned(d->draft_logprob, 4),
                LOGPROB);
    SPECV_CHECK((d->target_logprob && d->draft_logprob) || d->batch == 0 || d->max_draft == 0,
                LOGPROB);
    SPECV_CHECK(specv_i_aligned(d->alpha, 4) && specv_i_aligned(d->bonus_lse, 4) &&
                    specv_i_aligned(d->lse, 4) && (!d->bonus_lse || d->lse),
                ALPHA);
    SPECV_CHECK(d->finished || d->batch == 0, FINISHED);
    SPECV_CHECK(specv_i_aligned(d->log_weight, 8) && (d->log_weight || d->batch == 0), WEIGHT);
    SPECV_CHECK(specv_i_aligned(d->interval_weight, 8) && (d->interval_weight || d->batch == 0),
                WEIGHT);
    SPECV_CHECK(specv_i_aligned(d->num_emitted, 4), NUM_EMITTED);
    SPECV_I_CHECK_STATUS(d, row_status);
    SPECV_CHECK(d->draft_stride_elems == 0 || d->draft_stride_elems >= d->max_draft, DRAFT_STRIDE);
    SPECV_CHECK(d->target_logprob_stride_elems == 0 ||
                    d->target_logprob_stride_elems >= d->max_draft,
                SCORE_STRIDE);
    SPECV_CHECK(d->draft_logprob_seq_stride_elems >= 0 && d->draft_logprob_pos_stride_elems >= 0,
                SCORE_STRIDE);
    SPECV_CHECK(d->max_draft == 0 ||
                    !d->draft_logprob_seq_stride_elems == !d->draft_logprob_pos_stride_elems,
                SCORE_STRIDE);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * 8, d->draft_stride_elems) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * 4, d->target_logprob_stride_elems) < SPECV_I_HUGE,
                SIZE);
    SPECV_CHECK(specv_i_times((int64_t)d->batch * 4, d->draft_logprob_seq_stride_elems) <
                    SPECV_I_HUGE,
                SIZE);
    SPECV_CHECK(specv_i_times((int64_t)d->max_draft * 4, d->draft_logprob_pos_stride_elems) <
                    SPECV_I_HUGE,
                SIZE);
    SPECV_CHECK(d->num_eos >= 0 && d->num_eos <= SPECV_MAX_EOS, NUM_EOS);
    for (int i = 0; i < d->num_eos; ++i) SPECV_CHECK(d->eos_token[i] >= 0, EOS_TOKEN);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_particle_weights_resolve(specv_particle_weights_desc *d) {
    if (!d->draft_stride_elems) d->draft_stride_elems = d->max_draft;
    if (!d->target_logprob_stride_elems) d->target_logprob_stride_elems = d->max_draft;
    if (!d->draft_logprob_seq_stride_elems && !d->draft_logprob_pos_stride_elems)
        d->draft_logprob_seq_stride_elems = d->max_draft, d->draft_logprob_pos_stride_elems = 1;
}

SPECV_HOSTFN int specv_resample_plan_validate(const specv_resample_plan_desc *d) {
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    SPECV_CHECK(d->scheme >= SPECV_RESAMPLE_SYSTEMATIC && d->scheme <= SPECV_RESAMPLE_RESIDUAL,
                SCHEME);
    SPECV_CHECK(d->num_groups >= 0 && d->num_particles >= 1 &&
                    d->num_particles <= SPECV_MAX_PARTICLES,
                PARTICLES);
    SPECV_CHECK((int64_t)d->num_groups * d->num_particles <= 1 << 30, TOO_LARGE);
    SPECV_CHECK(specv_i_aligned(d->num_active_groups, 4), NUM_ACTIVE);
    SPECV_CHECK(specv_i_slot_validate(d->group_slot, d->group_slot_dtype, d->num_group_slots) ==
                    SPECV_OK,
                SLOT);
    SPECV_CHECK(specv_i_aligned(d->interval_weight, 8) &&
                    (d->interval_weight || d->num_groups == 0),
                WEIGHT);
    SPECV_CHECK(specv_i_aligned(d->log_weight, 8) && specv_i_aligned(d->log_z, 8) &&
                    specv_i_aligned(d->ess, 8),
                WEIGHT);
    SPECV_CHECK(specv_i_aligned(d->seed, 8), SEED);
    SPECV_CHECK(d->seed || (d->uniform && !d->drawn_row) || d->num_groups == 0, SEED);
    SPECV_CHECK(specv_i_aligned(d->position, 4), POSITION);
    SPECV_CHECK(d->position || !d->seed || d->num_groups == 0, POSITION);
    SPECV_CHECK(specv_i_aligned(d->uniform, 4), UNIFORM);
    SPECV_CHECK(specv_i_aligned(d->jobs, 4) && specv_i_aligned(d->num_jobs, 4) &&
                    specv_i_aligned(d->num_copies, 4) && specv_i_aligned(d->drawn_row, 4),
                JOBS);
    SPECV_CHECK(d->jobs || d->num_groups == 0 || d->num_particles == 1, JOBS);
    SPECV_CHECK(d->num_jobs || d->num_groups == 0, JOBS);
    SPECV_I_CHECK_STATUS(d, group_status);
    SPECV_CHECK(d->threshold >= 0 && d->threshold <= 1, THRESHOLD);
    return SPECV_OK;
}

SPECV_HOSTFN int specv_i_particle_cache_validate(const specv_particle_cache *c, int64_t batch,
                                                 int64_t num_slots) {
    SPECV_CHECK(c->reserved == 0, CANARY);
    SPECV_CHECK(specv_i_aligned(c->pool.page_refs, 4) && (c->pool.page_refs || batch == 0),
                PAGE_REFS);
    SPECV_CHECK(specv_i_aligned(c->pool.free_pages, 4) && (c->pool.free_pages || batch == 0),
                FREE_PAGES);
    SPECV_CHECK(specv_i_aligned(c->pool.num_free, 4) && (c->pool.num_free || batch == 0),
                FREE_PAGES);
    SPECV_CHECK(specv_i_aligned(c->block_table, 4) && (c->block_table || batch == 0), BLOCK_TABLE);
    SPECV_CHECK(specv_i_aligned(c->num_row_pages, 4) && (c->num_row_pages || batch == 0),
                NUM_ROW_PAGES);
    SPECV_CHECK(c->max_row_pages > 0, NUM_ROW_PAGES);
    SPECV_CHECK(specv_i_aligned(c->cache_len, 4) && (c->cache_len || batch == 0), CACHE_LEN);
    SPECV_CHECK(c->page_size > 0, PAGE_SIZE);
    SPECV_CHECK(c->num_pages > 0, NUM_PAGES);
    SPECV_CHECK(c->table_stride_elems == 0 || c->table_stride_elems >= c->max_row_pages,
                TABLE_STRIDE);
    SPECV_CHECK(specv_i_times(num_slots * 4,
                              c->table_stride_elems ? c->table_stride_elems : c->max_row_pages) <
                    SPECV_I_HUGE,
                SIZE);
    SPECV_CHECK(specv_i_times(batch, c->max_row_pages) <= 1 << 30, TOO_LARGE);
    return SPECV_OK;
}

/* Bytes of scratch memory that suffice for D3 with at most num_jobs = num_groups * max_jobs jobs
   and num_pages pages, those of all its caches together; or SPECV_ERR_*. */
SPECV_HOSTAPI int64_t specv_reshuffle_scratch_bytes(int64_t num_jobs, int64_t num_pages) {
    SPECV_CHECK(num_jobs >= 0 && num_jobs <= 1 << 24, JOBS);
    SPECV_CHECK(num_pages >= 0 && num_pages <= SPECV_MAX_CACHES * (int64_t)INT32_MAX, NUM_PAGES);
    return 16 * (1 + num_pages / 128 + SPECV_MAX_CACHES) + num_jobs * (int64_t)sizeof(specv_i_job);
}

SPECV_HOSTFN int specv_reshuffle_validate(const specv_reshuffle_desc *d) {
    int64_t num_slots, bytes;
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    SPECV_CHECK(d->batch >= 0, BATCH);
    SPECV_CHECK(specv_i_slot_validate(d->slot, d->slot_dtype, d->num_slots) == SPECV_OK, SLOT);
    num_slots = d->slot ? d->num_slots : d->batch;
    SPECV_CHECK(d->num_groups >= 0, PARTICLES);
    SPECV_CHECK(specv_i_aligned(d->num_active_groups, 4), NUM_ACTIVE);
    SPECV_CHECK(d->max_jobs >= 0 && (int64_t)d->num_groups * d->max_jobs <= 1 << 24, JOBS);
    SPECV_CHECK(specv_i_aligned(d->jobs, 4) && specv_i_aligned(d->num_jobs, 4), JOBS);
    SPECV_I_CHECK_STATUS(d, job_status);
    SPECV_CHECK(d->num_sms >= 0 && d->num_sms <= 65535, NUM_SMS);
    SPECV_CHECK((d->jobs && d->num_jobs) || d->num_groups == 0 || d->max_jobs == 0, JOBS);
    SPECV_CHECK(d->token_dtype == SPECV_I32 || d->token_dtype == SPECV_I64, TOKEN_DTYPE);
    SPECV_CHECK(specv_i_aligned(d->text, d->token_dtype == SPECV_I64 ? 8 : 4), TEXT);
    SPECV_CHECK(specv_i_aligned(d->text_len, 4), TEXT);
    SPECV_CHECK(!d->text || (d->text_len && d->text_stride_elems > 0), TEXT);
    SPECV_CHECK(d->text_stride_elems >= 0, TEXT);
    SPECV_CHECK(specv_i_times(num_slots * 8, d->text_stride_elems) < SPECV_I_HUGE, SIZE);
    SPECV_CHECK(d->num_caches >= 0 && d->num_caches <= SPECV_MAX_CACHES, CACHES);
    for (int i = 0; i < d->num_caches; ++i) {
        status = specv_i_particle_cache_validate(&d->cache[i], d->batch, num_slots);
        if (status != SPECV_OK) return status;
    }
    bytes = 4 * specv_i_marks_at(d, d->num_caches) +
            (int64_t)d->num_groups * d->max_jobs * (int64_t)sizeof(specv_i_job);
    SPECV_CHECK(specv_i_aligned(d->scratch, 16), SCRATCH);
    SPECV_CHECK((d->scratch && d->scratch_bytes >= bytes) || d->num_groups == 0, SCRATCH);
    return specv_i_carry_validate(d->carry, d->num_carry, num_slots);
}

SPECV_HOSTFN void specv_reshuffle_resolve(specv_reshuffle_desc *d) {
    for (int i = 0; i < d->num_caches; ++i)
        if (!d->cache[i].table_stride_elems)
            d->cache[i].table_stride_elems = d->cache[i].max_row_pages;
}

#if SPECV_I_LAUNCHERS
/* D1. One launch, a thread per particle; with slots each looks at those before its own. */
SPECV_LAUNCHER int specv_particle_weights(const specv_particle_weights_desc *d,
                                          struct CUstream_st *stream)
    SPECV_AS(specv_particle_weights);

/* D2. One launch, a block per group. */
SPECV_LAUNCHER int specv_resample_plan(const specv_resample_plan_desc *d,
                                       struct CUstream_st *stream) SPECV_AS(specv_resample_plan);

/* D3. One launch, a few blocks for each SM at most, which look at all jobs that there can be, times
   chunks of a table; a job that there is not costs one load, one with slots looks at the slots
   before its rows', too. D4, from one prompt to many particles, is specv_page_fork. Job faults:
   BAD_LENGTH (rows, lengths), BAD_SLOT: nothing is done. Page ids, owners and num_free are B5's to
   judge: an id outside the pool is carried along, counted nowhere; with num_free out of range freed
   pages are lost. */
SPECV_LAUNCHER int specv_reshuffle(const specv_reshuffle_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_reshuffle);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* ---- particles */

/* Drafts of a particle from j0 on, all of whose loads are in flight together; behind its last one
   that again. Call: thread, with a live row and j0 < max_draft. */
enum { SPECV_I_DRAFTED = 8 };

typedef struct specv_i_drafted {
    float p[SPECV_I_DRAFTED], q[SPECV_I_DRAFTED];
    uint2 token[SPECV_I_DRAFTED];
} specv_i_drafted;

SPECV_DEVFN void specv_i_load_drafted(const specv_particle_weights_desc *d, int64_t b, int j0,
                                      specv_i_drafted *a) {
    const float *p = d->target_logprob + b * d->target_logprob_stride_elems;
    const float *q = d->draft_logprob + b * d->draft_logprob_seq_stride_elems;
    const int last = d->max_draft - 1;
#pragma unroll
    for (int u = 0; u < SPECV_I_DRAFTED; ++u) {
        const int j = j0 + u < last ? j0 + u : last;
        a->p[u] = p[j], a->q[u] = q[j * d->draft_logprob_pos_stride_elems];
        if (d->draft_tokens)
            specv_i_load_token(&a->token[u], d->draft_tokens, d->token_dtype,
                               b * d->draft_stride_elems + j);
    }
}

/* Sums over the block of four numbers, in all threads, and of the first over the threads up to the
   own one: their shuffles go side by side. Call: block. Scratch: 4 x 32 words of 8 bytes. Sync: one
   barrier; put one between two calls that use the same scratch. */
SPECV_DEVFN uint64_t specv_i_block_add_4(uint64_t numbers[4], uint64_t (*scratch)[32]) {
    const int lane = specv_i_lane(), warp = specv_i_thread() / 32;
    const int num_warps = specv_i_num_threads() / 32;
    uint64_t upto = specv_i_warp_inclusive_add(numbers[0]), warps[4];
#pragma unroll
    for (int k = 1; k < 4; ++k) numbers[k] = specv_i_warp_add(numbers[k]);
    if (lane == 31) {
        numbers[0] = upto;
#pragma unroll
        for (int k = 0; k < 4; ++k) scratch[k][warp] = numbers[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; ++k) warps[k] = lane < num_warps ? scratch[k][lane] : 0;
    if (warp) upto += specv_i_warp_add(lane < warp ? warps[0] : 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) numbers[k] = specv_i_warp_add(warps[k]);
    return upto;
}

/* Shared memory of D2. */
typedef struct specv_i_plan {
    uint64_t sums[SPECV_MAX_PARTICLES]; /* running, inclusive, of what is drawn from */
    uint64_t scratch[4][32], more[2][32];
    int32_t counts[SPECV_MAX_PARTICLES], spare[SPECV_MAX_PARTICLES]; /* spare copies before */
    long long max;   /* of the weights' bits, ordered like the weights */
    uint32_t status; /* of the draws */
} specv_i_plan;

/* What the draws of a group come from; loaded with its weights. */
typedef struct specv_i_lots {
    uint64_t seed;
    int32_t position;
    float uniform; /* of the thread's draw */
} specv_i_lots;

/* Copies of each particle, in p->counts; p->status. w: the thread's particle's, upto: those up to
   it, sum: of all. Call: block. */
SPECV_DEVFN void specv_i_block_ancestors(const specv_resample_plan_desc *d,
                                         const specv_i_lots *draw, specv_i_plan *p, uint64_t w,
                                         uint64_t upto, uint64_t sum) {
    const int i = specv_i_thread(), n = d->num_particles;
    uint64_t draws = (uint64_t)n;
    int32_t sure = 0;
    if (d->scheme == SPECV_RESAMPLE_RESIDUAL) {
        const uint64_t share = (uint64_t)n * w;
        uint64_t rest;
        sure = (int32_t)(share / sum);
        upto = specv_i_block_inclusive_add(share % sum, &rest, p->more[0]);
        draws = rest / sum, sum = rest;
    }
    if (i < n) p->sums[i] = upto, p->counts[i] = sure;
    __syncthreads();
    if ((uint64_t)i < draws) {
        const int k = d->scheme == SPECV_RESAMPLE_SYSTEMATIC ? 0 : i;
        uint32_t status = 0;
        const uint64_t u = d->uniform
                               ? specv_uniform_bits(specv_i_clean_uniform(draw->uniform, &status))
                               : specv_i_resample_bits(draw->seed, draw->position, k);
        const uint64_t at = d->scheme <= SPECV_RESAMPLE_STRATIFIED
                                ? specv_i_stratum(i, (uint32_t)(u >> 32), n, sum)
                                : specv_i_mul_high(u, sum);
        int low = 0, high = n - 1; /* the first particle whose running sum is above `at` */
        while (low < high) {
            int middle = (low + high) / 2;
            if (p->sums[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        atomicAdd(&p->counts[low], 1); /* integers: the order does not matter */
        if (status) atomicOr(&p->status, status);
    }
    __syncthreads();
}

/* The slots of a job's rows instead of the rows; BAD_SLOT if one has none of its own. Call: warp,
   with slots. Cost: as specv_warp_slot, for both at once. */
SPECV_DEVFN void specv_i_job_slots(const specv_reshuffle_desc *d, int32_t *src, int32_t *dst,
                                   uint32_t *status) {
    const int src_row = *src, dst_row = *dst, last = src_row > dst_row ? src_row : dst_row;
    int taken = 0;
    *src = specv_thread_slot(d->slot, d->slot_dtype, d->num_slots, src_row, status);
    *dst = specv_thread_slot(d->slot, d->slot_dtype, d->num_slots, dst_row, status);
    if (*status) return;
#pragma unroll 4
    for (int b = specv_i_lane(); b < last; b += 32) {
        taken |= b < src_row && specv_i_has_slot(d->slot, d->slot_dtype, b, *src);
        taken |= b < dst_row && specv_i_has_slot(d->slot, d->slot_dtype, b, *dst);
    }
    if (__any_sync(SPECV_FULL_WARP, taken)) *status = SPECV_ROW_BAD_SLOT;
}

/* Is there such a job? Then *src is where it copies from, held the pages that dst has now. Numbers
   of all caches are loaded together. Call: warp. Round trips: 2; with slots 4 or more. */
SPECV_DEVFN int specv_i_load_job(const specv_reshuffle_desc *d, int job, int32_t *src,
                                 int32_t *held, specv_i_job *r) {
    const int group = job / d->max_jobs;
    const int32_t num_jobs = d->num_jobs[group];
    int32_t from = d->jobs[2 * job], dst = d->jobs[2 * job + 1], owned[SPECV_MAX_CACHES] = {0};
    uint32_t status = 0;
    if (job - group * d->max_jobs >= num_jobs ||
        group >= specv_i_num_live(d->num_active_groups, d->num_groups))
        return 0;
    if (dst < 0 || dst >= d->batch || from < 0 || from >= d->batch || dst == from)
        status = SPECV_ROW_BAD_LENGTH;
    else if (d->slot)
        specv_i_job_slots(d, &from, &dst, &status);
    *src = from, r->dst = dst, r->status = status, r->text_len = 0, r->reserved = 0;
#pragma unroll
    for (int i = 0; i < SPECV_MAX_CACHES; ++i) r->pages[i] = r->len[i] = held[i] = 0;
    if (status) return 1;
    if (d->text_len) r->text_len = d->text_len[from];
#pragma unroll
    for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
        if (i >= d->num_caches) continue;
        r->len[i] = d->cache[i].cache_len[from], owned[i] = d->cache[i].num_row_pages[from];
        held[i] = d->cache[i].num_row_pages[dst];
    }
    int bad = d->text && (r->text_len < 0 || r->text_len > d->text_stride_elems);
#pragma unroll
    for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
        if (i >= d->num_caches) continue;
        const int32_t size = d->cache[i].page_size, most = d->cache[i].max_row_pages;
        r->pages[i] = r->len[i] / size + (r->len[i] % size > 0);
        bad |= r->len[i] < 0 || r->pages[i] > owned[i] || owned[i] > most || held[i] < 0 ||
               held[i] > most;
    }
    if (bad) r->status = SPECV_ROW_BAD_LENGTH;
    return 1;
}

/* Entries at, at + step, .. of dst's table become src's. No order between who comes and who goes is
   needed: a page that gains an owner is src's as well, which keeps it. A page that has none any
   more is marked. Returns 1 if an entry is no page, or a page without owners, 2 if a page was
   marked. Call: thread. Round trips: 2 for each AHEAD entries. */
SPECV_DEVFN uint32_t specv_i_share_entries(const specv_particle_cache *c, uint32_t *marks,
                                           const int32_t *from, int32_t *to, int pages, int held,
                                           int at, int step) {
    enum { AHEAD = 4 };
    const int most = pages > held ? pages : held;
    uint32_t found = 0;
#pragma unroll 1
    for (int64_t e0 = at; e0 < most; e0 += (int64_t)AHEAD * step) {
        int32_t old[AHEAD], now[AHEAD], gained[AHEAD], owners[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int64_t e = e0 + (int64_t)u * step;
            old[u] = e < held ? to[e] : -1, now[u] = e < pages ? from[e] : -1;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int64_t e = e0 + (int64_t)u * step;
            const int gives = old[u] >= 0 && old[u] < c->num_pages;
            const int takes = now[u] >= 0 && now[u] < c->num_pages;
            if (gives != (e < held) || takes != (e < pages)) found |= 1;
            gained[u] = 1, owners[u] = 2;
            if (old[u] == now[u]) continue;
            to[e] = now[u];
            if (takes) gained[u] = atomicAdd(&c->pool.page_refs[now[u]], 1);
            if (gives) owners[u] = atomicSub(&c->pool.page_refs[old[u]], 1);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            if (gained[u] < 1 || owners[u] < 1) found |= 1;
            if (owners[u] < 1)
                atomicAdd(&c->pool.page_refs[old[u]], 1); /* more entries than owners */
            if (owners[u] == 1) found |= 2, atomicOr(&marks[old[u] / 32], 1u << old[u] % 32);
        }
    }
    return found;
}

/* Marked pages go behind free_pages, ascending; the marks are gone. Returns 1, and none goes there,
   if there is no place for all. Call: block. Round trips: 1 for each 128 pages of a thread. */
SPECV_DEVFN int specv_i_block_free_pages(const specv_particle_cache *c, uint32_t *marks) {
    enum { AHEAD = 4 };
    __shared__ uint64_t scratch[32];
    const int thread = specv_i_thread(), threads = specv_i_num_threads();
    const int32_t num_free = *c->pool.num_free;
    const int64_t num_words = specv_i_mark_words(c->num_pages);
    int64_t end = num_free;
#pragma unroll 1
    for (int64_t word0 = thread; word0 - thread < num_words; word0 += AHEAD * threads) {
        uint32_t words[AHEAD];
        uint64_t counts = 0, before, totals; /* 16 bits of each word: 8192 pages at most */
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            words[u] = word0 + u * threads < num_words ? marks[word0 + u * threads] : 0;
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) counts |= (uint64_t)__popc(words[u]) << 16 * u;
        before = specv_i_block_inclusive_add(counts, &totals, scratch) - counts;
#pragma unroll 1
        for (int u = 0; u < AHEAD; ++u) {
            const int64_t word = word0 + u * threads;
            uint32_t bits = words[0];
            int64_t place = end + (int64_t)(before & 0xffff);
            if (bits) marks[word] = 0;
            for (; bits; bits &= bits - 1, ++place)
                if (num_free >= 0 && place < c->num_pages)
                    c->pool.free_pages[place] = (int32_t)(32 * word + __ffs((int)bits) - 1);
            end += (int64_t)(totals & 0xffff);
            before >>= 16, totals >>= 16, words[0] = words[1], words[1] = words[2];
            words[2] = words[3];
        }
        __syncthreads(); /* scratch is reused; num_free has been read */
    }
    if (num_free >= 0 && end <= c->num_pages) {
        if (thread == 0) *c->pool.num_free = (int32_t)end;
        return 0;
    }
    for (int64_t place = (int64_t)num_free + thread; num_free >= 0 && place < c->num_pages;
         place += threads)
        c->pool.free_pages[place] = -1;
    return 1;
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_PARTICLE_THREADS)
    specv_particle_weights_kernel(const __grid_constant__ specv_particle_weights_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_PLAN_THREADS, 1)
    specv_resample_plan_kernel(const __grid_constant__ specv_resample_plan_desc d);
SPECV_KERNEL __launch_bounds__(SPECV_PARTICLE_THREADS, 2)
    specv_reshuffle_kernel(const __grid_constant__ specv_reshuffle_task task);
#endif

#endif /* __CUDACC__ */

/* =================================================================================== >>stats

   What came of it: counts of a step, added up on the device; figures from the totals, on the host.
     E   specv_accept_stats      one launch of one block
         specv_block_efficiency, specv_tokens_per_step, specv_acceptance_rate,
         specv_expected_tokens, specv_expected_speedup: host
   Needs: primitives. */

/* E. Acceptance metrics of one step, or running over many. With draft_tokens a row's drafts end
   before its first placeholder: padding was never proposed, and a row that stops there was not
   rejected. An accepted EOS is an accepted draft like any other; drafts behind it count as drafted,
   and the row as rejected unless mismatch says that it was not, and as emitting a token more unless
   num_emitted does. */
enum {
    SPECV_STAT_STEPS,    /* launches with at least one row that counts */
    SPECV_STAT_ROWS,     /* row steps: one target pass of one sequence */
    SPECV_STAT_DRAFTED,  /* drafts proposed */
    SPECV_STAT_ACCEPTED, /* drafts accepted */
    SPECV_STAT_REJECTED, /* rows that ended in a rejection */
    SPECV_STAT_EMITTED,  /* tokens added to the text */
    SPECV_STAT_BAD_ROWS, /* live rows left out of all the others: a number outside its range */
    SPECV_STAT_COUNT
};

typedef struct specv_accept_stats_desc {
    uint32_t canary0;
    int32_t accumulate; /* 1 = add to the outputs (they must hold numbers); 0 = store */
    specv_rows rows;
    const int32_t *accepted_len; /* [batch] */
    const uint8_t *mismatch;     /* [batch], or null: accepted_len < drafts of the row; a row that
                                    accepted all its drafts was not rejected, whatever it says */
    const int32_t *num_emitted;  /* [batch], 0..accepted_len + 1, or null: accepted_len + 1 */
    const void *draft_tokens;    /* as in A1, or null: there are no placeholders */
    int64_t *histogram;          /* out [max_draft + 1], or null: rows by accepted_len */
    int64_t *totals;             /* out [SPECV_STAT_COUNT], or null */
    int64_t draft_stride_elems;  /* dense; 0 = max_draft */
    int32_t token_dtype;         /* specv_dtype of draft_tokens */
    int32_t chained;             /* specv_chained bits; 0: neither */
    uint32_t reserved;           /* must be 0 */
    uint32_t canary1;
} specv_accept_stats_desc;

#define SPECV_STATS_THREADS 256 /* specv_accept_stats_kernel: one block */

#if !defined(__CUDACC_RTC__)

SPECV_HOSTFN int specv_accept_stats_validate(const specv_accept_stats_desc *d) {
    int status;
    SPECV_I_CHECK_DESC(d);
    SPECV_CHECK(d->reserved == 0, CANARY);
    if ((status = specv_i_rows_validate(&d->rows)) != SPECV_OK) return status;
    SPECV_CHECK(d->accumulate == 0 || d->accumulate == 1, ACCUMULATE);
    SPECV_CHECK(d->token_dtype == SPECV_I32 || d->token_dtype == SPECV_I64, TOKEN_DTYPE);
    SPECV_CHECK(specv_i_aligned(d->draft_tokens, d->token_dtype == SPECV_I64 ? 8 : 4),
                DRAFT_TOKENS);
    if (d->draft_stride_elems)
        SPECV_CHECK(!specv_i_is_csr(&d->rows) && d->draft_stride_elems >= d->rows.max_draft,
                    DRAFT_STRIDE);
    SPECV_CHECK(specv_i_fits((int64_t)d->rows.batch * 8, d->draft_stride_elems, 0), SIZE);
    SPECV_CHECK(d->rows.batch == 0 || d->accepted_len, ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->accepted_len, 4), ACCEPTED_LEN);
    SPECV_CHECK(specv_i_aligned(d->num_emitted, 4), NUM_EMITTED);
    SPECV_CHECK(specv_i_aligned(d->histogram, 8), HISTOGRAM);
    SPECV_CHECK(d->histogram || d->totals, HISTOGRAM);
    SPECV_CHECK(specv_i_aligned(d->totals, 8), TOTALS);
    return SPECV_OK;
}

SPECV_HOSTFN void specv_accept_stats_resolve(specv_accept_stats_desc *d) {
    if (!d->draft_stride_elems) d->draft_stride_elems = d->rows.max_draft;
}

SPECV_HOSTFN double specv_i_ratio(int64_t part, int64_t of) {
    return of ? specv_i_div_double((double)part, (double)of) : 0;
}

/* Metrics from the totals of specv_accept_stats (copied to the host); 0 when nothing was counted.
   Block efficiency: tokens emitted per target pass of a sequence, between 1 and max_draft + 1.
   Tokens per step: tokens emitted per launch, over the whole batch.
   Acceptance rate: maximum-likelihood estimate of the probability that a draft which is reached
   is accepted; drafts behind a rejection were never reached and do not count. */
SPECV_HOSTFN double specv_block_efficiency(const int64_t totals[SPECV_STAT_COUNT]) {
    return specv_i_ratio(totals[SPECV_STAT_EMITTED], totals[SPECV_STAT_ROWS]);
}

SPECV_HOSTFN double specv_tokens_per_step(const int64_t totals[SPECV_STAT_COUNT]) {
    return specv_i_ratio(totals[SPECV_STAT_EMITTED], totals[SPECV_STAT_STEPS]);
}

SPECV_HOSTFN double specv_acceptance_rate(const int64_t totals[SPECV_STAT_COUNT]) {
    int64_t reached = totals[SPECV_STAT_ACCEPTED] + totals[SPECV_STAT_REJECTED];
    return specv_i_ratio(totals[SPECV_STAT_ACCEPTED], reached);
}

/* Expected tokens per target pass when each draft that is reached is accepted with probability
   alpha (in [0, 1]), independently: (1 - alpha^(gamma+1)) / (1 - alpha), summed without the
   division. Leviathan et al. 2023 (arXiv 2211.17192), equation 1. 5 drafts at 0.8 give 3.689. */
SPECV_HOSTFN double specv_expected_tokens(double alpha, int gamma) {
    double sum = 1, power = 1;
    for (int i = 0; i < gamma; ++i) {
        power = specv_i_mul_double(power, alpha);
        sum = specv_i_add_double(sum, power);
    }
    return sum;
}

/* Expected speed-up over plain decoding when one draft pass costs draft_cost target passes and a
   pass over gamma + 1 positions costs as much as over one: theorem 3.8 there. (0.8, 5, 0.1) gives
   2.46. */
SPECV_HOSTFN double specv_expected_speedup(double alpha, int gamma, double draft_cost) {
    double cost = specv_i_add_double(specv_i_mul_double(gamma, draft_cost), 1);
    return specv_i_div_double(specv_expected_tokens(alpha, gamma), cost);
}

#if SPECV_I_LAUNCHERS
/* E. One launch of one block; call it after A1 or B2 on the same stream. With accumulate the
   stream's order is what keeps the counts whole: not for two streams at once. */
SPECV_LAUNCHER int specv_accept_stats(const specv_accept_stats_desc *d, struct CUstream_st *stream)
    SPECV_AS(specv_accept_stats);
#endif

#endif /* !__CUDACC_RTC__ */

#if defined(__CUDACC__)

/* Drafts of a row in front of its first placeholder. Several loads are in flight. */
SPECV_DEVFN int32_t specv_i_before_placeholder(const void *tokens, int dtype, int64_t first,
                                               int32_t n_draft) {
    enum { AHEAD = 8 };
    for (int32_t base = 0; base < n_draft; base += AHEAD) {
        uint2 raw[AHEAD] = {};
        int32_t found = AHEAD;
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            if (base + u < n_draft) specv_i_load_token(&raw[u], tokens, dtype, first + base + u);
#pragma unroll
        for (int u = AHEAD - 1; u >= 0; --u)
            if (specv_i_token(raw[u], dtype) == -1) found = u;
        if (found < AHEAD) return base + found;
    }
    return n_draft;
}

/* The same with the dtype as a constant: see specv_i_load_token. Call: thread. */
SPECV_DEVFN int32_t specv_i_drafts_of_row(const specv_accept_stats_desc *d, int64_t first,
                                          int32_t n_draft) {
    if (d->token_dtype == SPECV_I64)
        return specv_i_before_placeholder(d->draft_tokens, SPECV_I64, first, n_draft);
    return specv_i_before_placeholder(d->draft_tokens, SPECV_I32, first, n_draft);
}

#if !defined(SPECVERIFY_STATIC)
SPECV_KERNEL __launch_bounds__(SPECV_STATS_THREADS)
    specv_accept_stats_kernel(const __grid_constant__ specv_accept_stats_desc d);
#endif

#endif /* __CUDACC__ */

/* ============================================================================= >>short-names

   Forwarding functions, under the names that kernels read best with. */

#if defined(__CUDACC__) && !defined(SPECVERIFY_NO_SHORT_NAMES)
SPECV_DEVFN int32_t thread_next_token(const int32_t *target, int accepted_len, int64_t vocab) {
    return specv_thread_next_token(target, accepted_len, vocab);
}
SPECV_DEVFN int64_t thread_next_token_i64(const int64_t *target, int accepted_len, int64_t vocab) {
    return specv_thread_next_token_i64(target, accepted_len, vocab);
}
SPECV_DEVFN int thread_find_row(const int32_t *offsets, int num_rows, int64_t position) {
    return specv_thread_find_row(offsets, num_rows, position);
}
SPECV_DEVFN int warp_find_row(const int32_t *offsets, int num_rows, int64_t position) {
    return specv_warp_find_row(offsets, num_rows, position);
}
SPECV_DEVFN int warp_first_reject(int rejected) { return specv_warp_first_reject(rejected); }
SPECV_DEVFN int warp_ballot_accept(const int32_t *draft, const int32_t *target, int n_draft) {
    return specv_warp_ballot_accept(draft, target, n_draft);
}
SPECV_DEVFN int warp_ballot_accept_i64(const int64_t *draft, const int64_t *target, int n_draft) {
    return specv_warp_ballot_accept_i64(draft, target, n_draft);
}
SPECV_DEVFN int32_t warp_inclusive_scan(int32_t value) { return specv_warp_inclusive_scan(value); }
SPECV_DEVFN int32_t warp_exclusive_scan(int32_t value, int32_t *total) {
    return specv_warp_exclusive_scan(value, total);
}
SPECV_DEVFN int32_t warp_reduce_add(int32_t value) { return specv_warp_reduce_add(value); }
SPECV_DEVFN int32_t warp_reduce_min(int32_t value) { return specv_warp_reduce_min(value); }
SPECV_DEVFN int32_t warp_reduce_max(int32_t value) { return specv_warp_reduce_max(value); }
SPECV_DEVFN void warp_copy_kv(void *dst, const void *src, int64_t bytes) {
    specv_warp_copy_kv(dst, src, bytes);
}
SPECV_DEVFN int32_t block_exclusive_scan(int32_t value, int32_t *total, int32_t *scratch) {
    return specv_block_exclusive_scan(value, total, scratch);
}
SPECV_DEVFN void block_copy_kv(void *dst, const void *src, int64_t bytes) {
    specv_block_copy_kv(dst, src, bytes);
}
#endif

#if !defined(__CUDACC_RTC__)
#undef SPECV_CHECK
#endif
#endif /* SPECVERIFY_H_INCLUDED */

#if defined(SPECVERIFY_IMPLEMENTATION) && !defined(SPECVERIFY_IMPLEMENTATION_INCLUDED)
#define SPECVERIFY_IMPLEMENTATION_INCLUDED
#if !defined(__CUDACC__)
#error "SPECVERIFY_IMPLEMENTATION belongs into one .cu file, compiled by nvcc"
#else
#if defined(SPECVERIFY_EXPORT) && !defined(SPECV_I_EXPORTING)
#error "with SPECVERIFY_EXPORT, SPECVERIFY_IMPLEMENTATION must be defined before the first include"
#endif
#pragma nv_diagnostic push
#pragma nv_diag_suppress 20050 /* "inline is ignored": not by the linkers, see >>config */

/* ========================================================================== >>implementation

   Part II, in the one file that asks for it: kernels and launchers, family by family, in the order
   of part I. SPECVERIFY_NO_<FAMILY> leaves one out. The descriptor that a kernel gets is valid and
   resolved (specv_*_resolve); grids are said at the kernels. */

#if !defined(__CUDACC_RTC__)
#include <cuda_runtime_api.h>

#if defined(SPECVERIFY_NO_VALIDATE)
#define SPECV_I_VALIDATE(validate, d) SPECV_OK
#else
#define SPECV_I_VALIDATE(validate, d) validate(d)
#endif

/* nvcc tells what it compiles for, oldest first. */
#define SPECV_I_FIRST_OF(first, ...) first
#define SPECV_I_FIRST(...)           SPECV_I_FIRST_OF(__VA_ARGS__, 0)
#if defined(__CUDA_ARCH_LIST__)
#define SPECV_I_OLDEST_ARCH SPECV_I_FIRST(__CUDA_ARCH_LIST__)
#else
#define SPECV_I_OLDEST_ARCH 0
#endif

/* `chained` of the first and of the second launch of an operation that is asked for `chained`. */
static SPECV_UNUSED int specv_i_first_of_two(int chained) { return chained | SPECV_CHAINED_BEFORE; }
static SPECV_UNUSED int specv_i_second_of_two(int chained) {
    return (chained & SPECV_CHAINED_BEFORE) | SPECV_CHAINED_AFTER;
}

/* Multiprocessors of the current device, or the caller's word for them. */
static SPECV_UNUSED int specv_i_num_sms(int given, int *num_sms) {
    int device = 0, status = 0;
    *num_sms = given;
    if (given == 0) {
        status = (int)cudaGetDevice(&device);
        if (status == 0)
            status = (int)cudaDeviceGetAttribute(num_sms, cudaDevAttrMultiProcessorCount, device);
    }
    return status;
}

/* Can `kernel` be launched as a dependent that waits inside? Only if it was compiled for sm_90 or
   later, otherwise griddepcontrol.wait is missing from it. Known where all code of this file is of
   that kind; else it depends on what the driver took for the device, which is asked once. */
static int specv_i_waits_for_primary(const void *kernel) {
#if SPECV_I_OLDEST_ARCH >= 900
    (void)kernel;
    return 1;
#else
    static volatile signed char answers[64]; /* of a device: 0 not asked, 1 no, 2 yes */
    struct cudaFuncAttributes attributes;
    int device, answer;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    answer = device < 64 ? answers[device] : 0;
    if (answer == 0) {
        if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return 0;
        answer = attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90 ? 2 : 1;
        if (device < 64) answers[device] = (signed char)answer;
    }
    return answer == 2;
#endif
}

/* `chained` is also in the kernel's parameter, for specv_i_begin. */
static int specv_i_launch_grid(const void *kernel, dim3 grid, int threads, const void *desc,
                               int chained, cudaStream_t stream) {
    cudaLaunchConfig_t config = SPECV_ZERO;
    cudaLaunchAttribute attribute = SPECV_ZERO;
    void *args[1];
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = (chained & SPECV_CHAINED_AFTER) && specv_i_waits_for_primary(kernel);
    args[0] = (void *)desc;
    return (int)cudaLaunchKernelExC(&config, kernel, args);
}

static SPECV_UNUSED int specv_i_launch(const void *kernel, int64_t blocks, int threads,
                                       const void *desc, int chained, cudaStream_t stream) {
    return specv_i_launch_grid(kernel, dim3((unsigned)blocks), threads, desc, chained, stream);
}

SPECV_LAUNCHER_BODY int specv_version(void) { return SPECVERIFY_VERSION; }

#endif /* !__CUDACC_RTC__ */

/* ========================================================================== >>greedy-kernels */

#if !defined(SPECVERIFY_NO_GREEDY) || !defined(SPECVERIFY_NO_PACK) /* B2 starts A1 */

/* A1. Grid: ceil(batch / 4) blocks of SPECV_VERIFY_THREADS; warp w of block x has row 4 x + w.
   Bytes: drafts and targets up to the stop, rounded up to 128 positions; outputs once.
   Round trips: dense, tokens with num_active and draft_len; CSR, num_active with starts, then
   tokens. Then 128 more positions each. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_VERIFY_THREADS)
    specv_verify_greedy_kernel(const __grid_constant__ specv_verify_greedy_task task) {
    const int row = (int)(blockIdx.x * (SPECV_VERIFY_THREADS / 32) + threadIdx.x / 32);
    const int lane = (int)threadIdx.x & 31;
    specv_i_begin(task.d.chained);
    if (row < task.d.rows.batch) specv_i_verify_row(&task.d, row, 0, task.is_short, lane, 0);
}

#if !defined(__CUDACC_RTC__)

/* chained: the descriptor's, or what B2 makes of it. */
static int specv_i_launch_greedy(const specv_verify_greedy_desc *desc, int chained,
                                 cudaStream_t stream) {
    const int64_t rows_per_block = SPECV_VERIFY_THREADS / 32;
    specv_verify_greedy_task task = SPECV_ZERO;
    task.d = *desc;
    task.d.chained = chained;
    task.is_short = specv_i_is_short(desc);
    specv_verify_greedy_resolve(&task.d);
    return specv_i_launch((const void *)specv_verify_greedy_kernel,
                          (desc->rows.batch + rows_per_block - 1) / rows_per_block,
                          SPECV_VERIFY_THREADS, &task, chained, stream);
}

SPECV_LAUNCHER_BODY int specv_verify_greedy(const specv_verify_greedy_desc *desc,
                                            struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_verify_greedy_validate, desc);
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    return specv_i_launch_greedy(desc, desc->chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_GREEDY */

/* ========================================================================== >>sample-kernels */

#if !defined(SPECVERIFY_NO_SAMPLE) || !defined(SPECVERIFY_NO_SHARDS) ||                            \
    !defined(SPECVERIFY_NO_TREES) /* A9 and A7 have such grids, too */
#if !defined(__CUDACC_RTC__)

/* Blocks that share a row: with `resident` of them on the GPU at a time, as few waves as leave at
   most an eighth of the last one idle; not more than there is work for. */
static int specv_i_blocks_of_row(int64_t rows, int64_t most, int64_t resident) {
    int64_t waves = 0, blocks = 0;
    while (++waves <= 8) {
        blocks = resident * waves / rows;
        if (blocks * rows * 8 >= resident * waves * 7) break;
    }
    blocks = blocks < most ? blocks : most;
    return (int)(blocks < 1 ? 1 : blocks);
}

/* Blocks that share a row meet at its ticket. */
static dim3 specv_i_grid_of_rows(int64_t batch, int64_t blocks) {
    dim3 grid((unsigned)batch);
    if (batch <= SPECV_TICKET_ROWS) grid.y = (unsigned)(blocks < 65535 ? blocks : 65535);
    return grid;
}

/* Where all of it is, once for all threads. */
static specv_i_memory specv_i_open_memory(const specv_verify_sample_desc *d,
                                          const specv_i_scratch *s) {
    char *base = (char *)d->scratch;
    specv_i_memory m = SPECV_ZERO;
    m.tickets = (uint32_t *)base;
    m.plans = (specv_i_outcome *)(base + s->plans);
    m.rows = (specv_distribution *)(base + s->rows);
    m.tiles = (specv_tile *)(base + s->tiles);
    m.residuals = (specv_i_residual *)(base + s->residuals);
    m.prefixes = (float *)(base + s->prefixes);
    m.least = (uint64_t *)(base + s->least);
    if (specv_i_lists(d)) m.opened = base + s->opened, m.lanes = (unsigned char *)base + s->lanes;
    m.target_rows = s->target_rows;
    m.num_tiles = s->num_tiles;
    m.columns = d->verify.rows.max_draft + 1;
    return m;
}

/* Grid of a first pass over the logits of `sides`, of `resident` blocks to a multiprocessor; a
   block has as many tiles of a row as any other, or the rest. */
static dim3 specv_i_grid_of_logits(specv_sample_task *task, int sides, int resident, int num_sms) {
    const specv_rows *r = &task->d.verify.rows;
    const int64_t num_tiles = task->memory.num_tiles > 0 ? task->memory.num_tiles : 1; /* or none */
    const int64_t pairs = (num_tiles + SPECV_I_TILES - 1) / SPECV_I_TILES;
    const int greedy = task->d.rule == SPECV_RULE_GREEDY && !specv_i_is_filtered(&task->d);
    int64_t positions = 0, most = 65535, blocks = 1; /* of a grid */
    dim3 grid((unsigned)r->batch);
    if (sides & SPECV_I_OF_TARGET) positions += task->memory.columns;
    if (sides & SPECV_I_OF_DRAFT) positions += r->max_draft;
    if (r->batch <= SPECV_TICKET_ROWS) {
        grid.z = (unsigned)(positions < most ? positions : most);
        /* Of A2 a block's first tiles cost it more than several others: where each would have few
           of them, there are fewer blocks. */
        while (resident > 1 && greedy &&
               (int64_t)r->batch * grid.z * pairs < 2 * (int64_t)resident * num_sms)
            --resident;
        blocks =
            specv_i_blocks_of_row((int64_t)r->batch * grid.z, pairs, (int64_t)resident * num_sms);
    }
    const int64_t each = (pairs + blocks - 1) / blocks;
    task->memory.tiles_of_block = (int32_t)(each * SPECV_I_TILES);
    grid.y = (unsigned)((pairs + each - 1) / each);
    return grid;
}

#endif /* !__CUDACC_RTC__ */
#endif

#if !defined(SPECVERIFY_NO_SAMPLE)

/* A2 to A5 and A8, first pass over logits of one type: greedy (rule GREEDY), softmax (TOKEN, BLOCK,
   SCORE, CDF), noise (COUPLED, GUMBEL). Grid: (rows, blocks that share a position, positions), of
   SPECV_SAMPLE_THREADS; each loops where the grid is smaller than the work. With draft logits of
   another type those have a launch of their own before it.
   Bytes: each score of the rows that need statistics once; 24 bytes a tile written, read back, in
   A2 8 a block.
   Trips, each waiting for the one before: num_active and lengths, if given; scores, beside them
   temperature, seed and position (behind slots, if given); the ticket, behind the store of the
   sums; in the last block the sums, beside drafts and seeds, behind these the drafts' scores; to
   draw, the sums again (from L1) and four ids a thread. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_greedy_bf16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_BF16, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_greedy_f16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F16, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_greedy_f32_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F32, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_softmax_bf16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_BF16, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_softmax_f16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F16, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_softmax_f32_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F32, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_noise_bf16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_BF16, SPECV_TILE_SCORE, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_noise_f16_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F16, SPECV_TILE_SCORE, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_noise_f32_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_verify_logits(&task, SPECV_LOGITS_F32, SPECV_TILE_SCORE, 0);
}

#endif /* SPECVERIFY_NO_SAMPLE */

#if !defined(SPECVERIFY_NO_SAMPLE) || !defined(SPECVERIFY_NO_TREES) /* A7 cuts rows, too */

/* The same where there are filters, for all rules and types: what masks leave out is -inf. Requests
   with rows that top_k, top_p or min_p cut end here with the largest score of each share of a tile,
   and with sums where top_p is a part of the whole row; specv_filter_kernel goes on. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_FILTERED_BLOCKS)
    specv_filtered_kernel(const __grid_constant__ specv_sample_task task) {
    const specv_scores *of = task.sides & SPECV_I_OF_TARGET ? &task.d.target : &task.d.draft;
    specv_i_block_verify_logits(&task, of->dtype, 0, 1);
}

/* Rows that top_k, top_p or min_p cut, a block each, which draws from its row, too; then the last
   one of a request judges. Grid: batch x positions. Bytes: a byte for eight ids of shares of tiles
   that have ids above the least that may be kept, and the scores of those eights that do; of a row
   too flat for a list all scores in each histogram, of which there are two to five, and once more
   for the sums. Dependent round trips: the request, as the first pass has opened it; tiles; lanes
   of shares; their scores; largest scores of their tiles; the ticket, if there are more rows; rows
   and drafts. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_filter_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_filter(&task.d, &task.memory, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* A11, behind specv_filtered_kernel over the rows that emitted tokens: a block a token. Grid: batch
   x columns. Bytes: the tiles of its row, and shares of them that have ids as likely as those that
   are told. Of a tree a round trip more: the node that the column was emitted at. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_emitted_kernel(const __grid_constant__ specv_sample_task task) {
    __shared__ specv_i_request opened;
    __shared__ specv_i_cut cut;
    const specv_verify_sample_desc *d = &task.d;
    const int b = (int)blockIdx.x;
    specv_i_begin(d->verify.chained);
    if (specv_i_thread() < 32) {
        const specv_row row = specv_i_open_row(d, b);
        const specv_i_request of_block = specv_i_open_emitted(d, &task.memory, b, &row);
        if (specv_i_lane() == 0) opened = of_block;
    }
    __syncthreads();
#pragma unroll 1
    for (int j = (int)blockIdx.y; j < task.memory.columns; j += (int)gridDim.y) {
        specv_i_block_tell(d, &opened, &task.memory, b, j, &cut);
        __syncthreads();
    }
}

#if !defined(__CUDACC_RTC__)

/* A11, behind the verification. path: of trees, with as many columns; else null. */
static int specv_i_launch_emitted(const specv_verify_sample_desc *desc, const int32_t *path,
                                  int32_t columns, cudaStream_t stream) {
    const int chained = specv_i_second_of_two(desc->verify.chained);
    specv_sample_task task = SPECV_ZERO;
    int num_sms, status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    task.d = *desc;
    specv_verify_sample_resolve(&task.d);
    const specv_i_scratch scratch = specv_i_scratch_layout(&task.d);
    task.memory = specv_i_open_memory(&task.d, &scratch);
    if (path) task.memory.path = path, task.memory.columns = columns;
    if (desc->target.dtype == SPECV_PROBS_F32) task.d.target.dtype = SPECV_I_WEIGHTS_F32;
    task.sides = SPECV_I_OF_TARGET | SPECV_I_OF_EMITTED;
    task.d.verify.chained = specv_i_first_of_two(chained);
    status = specv_i_launch_grid((const void *)specv_filtered_kernel,
                                 specv_i_grid_of_logits(&task, task.sides, 2, num_sms),
                                 SPECV_SAMPLE_THREADS, &task, task.d.verify.chained, stream);
    if (status) return status;
    task.d.verify.chained = chained;
    return specv_i_launch_grid((const void *)specv_emitted_kernel,
                               specv_i_grid_of_rows(desc->verify.rows.batch, task.memory.columns),
                               SPECV_SAMPLE_THREADS, &task, chained, stream);
}

#endif /* !__CUDACC_RTC__ */

#endif

#if !defined(SPECVERIFY_NO_SAMPLE)

/* A2 to A5 and A8, first pass where the target gives probabilities. Grid: batch x blocks that share
   a row, of SPECV_SAMPLE_THREADS. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_verify_sample_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_judge(&task.d, &task.memory, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* A3 and A4, second pass, where the token may have to come from p and q of which one is logits.
   Grid: batch x blocks that share a row; those with nothing left to do end at once.
   Bytes: the p row and the q row of each position that may emit the token, once. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_residual_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_second_pass(&task.d, &task.memory, (int)blockIdx.x, (int)blockIdx.y,
                              (int)gridDim.y, 0);
}

/* The same where there are filters. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_residual_filtered_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_second_pass(&task.d, &task.memory, (int)blockIdx.x, (int)blockIdx.y,
                              (int)gridDim.y, 1);
}

/* A6, first pass, of all types, with filters or without: statistics of the rows. Grid as of
   specv_filtered_kernel. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_FILTERED_BLOCKS)
    specv_lossy_rows_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_block_rows(&task);
}

/* A6, behind the rows: TYPICAL, TYPICAL_DRAW and RELAXED a block a position, the last one of a
   request emits; THRESHOLD and BOUNDED a block a request, which in case of BOUNDED finds the
   residual's share of p, too. Grid: batch x blocks that share a request. Bytes: of positions up to
   the last usable draft's and the one behind it, each score once (TYPICAL_DRAW: twice); two numbers
   a draft; BOUNDED, where a draft was rejected, both rows once a step of Newton's. Dependent round
   trips: lengths, drafts, the rows' statistics, scores, the ticket, words, those of the draw. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_lossy_kernel(const __grid_constant__ specv_lossy_task task) {
    specv_i_begin(task.of.d.verify.chained);
    specv_i_block_lossy(&task, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* A2, A3, SCORE and A8 (CDF) from probabilities. Grid: batch x blocks that share a row. Bytes: two
   numbers a draft in each block; the p row and the q row that the token is drawn from, once; a
   tile. Dependent round trips: lengths (and slot), drafts, p and q there, their rows, the ticket,
   the sums, a tile: 7. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_PROBS_BLOCKS)
    specv_probs_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_probs(&task.d, &task.memory, 0, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* A4 from probabilities. Grid and round trips as above. Bytes: the p row and the q row of each
   position that may emit the token. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_PROBS_BLOCKS - 1)
    specv_probs_block_kernel(const __grid_constant__ specv_sample_task task) {
    specv_i_begin(task.d.verify.chained);
    specv_i_block_probs(&task.d, &task.memory, 1, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

#if !defined(__CUDACC_RTC__)

/* From probabilities: a block a tile, or even shares of several. */
static int specv_i_launch_probs(specv_sample_task *task, int num_sms, cudaStream_t stream) {
    const specv_verify_sample_desc *d = &task->d;
    const int64_t batch = d->verify.rows.batch, drafts = d->verify.rows.max_draft;
    const int block_rule = d->rule == SPECV_RULE_BLOCK;
    int64_t rows = 1, items, share;
    if (block_rule && d->draft.data && drafts > 1) rows = drafts;
    if (d->rule == SPECV_RULE_GREEDY || d->temperature) rows = drafts + 1;
    items = rows * task->memory.num_tiles;
    share =
        specv_i_blocks_of_row(batch, items, (int64_t)(SPECV_I_PROBS_BLOCKS - block_rule) * num_sms);
    share = (items + share - 1) / share;
    return specv_i_launch_grid(block_rule ? (const void *)specv_probs_block_kernel
                                          : (const void *)specv_probs_kernel,
                               specv_i_grid_of_rows(batch, (items + share - 1) / share),
                               SPECV_SAMPLE_THREADS, task, d->verify.chained, stream);
}

/* First pass over the logits of `sides`, which have this type. */
static int specv_i_launch_logits(specv_sample_task *task, int sides, int dtype, int chained,
                                 int filters, int num_sms, cudaStream_t stream) {
    static const void *const kernels[3][3] = {
        {(const void *)specv_greedy_f32_kernel, (const void *)specv_greedy_f16_kernel,
         (const void *)specv_greedy_bf16_kernel},
        {(const void *)specv_softmax_f32_kernel, (const void *)specv_softmax_f16_kernel,
         (const void *)specv_softmax_bf16_kernel},
        {(const void *)specv_noise_f32_kernel, (const void *)specv_noise_f16_kernel,
         (const void *)specv_noise_bf16_kernel}};
    const int rule = task->d.rule;
    const int kind = rule == SPECV_RULE_COUPLED ? 2 : rule != SPECV_RULE_GREEDY;
    const int resident = filters ? 2 : 4 - kind;
    const dim3 grid = specv_i_grid_of_logits(task, sides, resident, num_sms);
    task->sides = sides, task->d.verify.chained = chained;
    return specv_i_launch_grid(filters ? (const void *)specv_filtered_kernel : kernels[kind][dtype],
                               grid, SPECV_SAMPLE_THREADS, task, chained, stream);
}

static int specv_i_launch_sample(const specv_verify_sample_desc *desc, cudaStream_t stream) {
    const specv_rows *r = &desc->verify.rows;
    int target = desc->target.dtype, draft = desc->draft.dtype;
    const int64_t warps = SPECV_SAMPLE_THREADS / 32, drafts = r->max_draft;
    const int ratios = desc->rule != SPECV_RULE_COUPLED && desc->rule != SPECV_RULE_GREEDY;
    specv_sample_task task = SPECV_ZERO;
    specv_i_scratch scratch;
    int64_t tiles, positions = desc->rule == SPECV_RULE_BLOCK && drafts ? drafts : 1;
    int has_second, cuts, chained, num_sms, sides = SPECV_I_OF_TARGET;
    const int filters = specv_i_is_filtered(desc);
    int status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    task.d = *desc;
    specv_verify_sample_resolve(&task.d);
    scratch = specv_i_scratch_layout(&task.d);
    task.memory = specv_i_open_memory(&task.d, &scratch);
    if (filters && target == SPECV_PROBS_F32) task.d.target.dtype = target = SPECV_I_WEIGHTS_F32;
    if (filters && draft == SPECV_PROBS_F32) task.d.draft.dtype = draft = SPECV_I_WEIGHTS_F32;
    if (target == SPECV_PROBS_F32 && desc->rule != SPECV_RULE_COUPLED &&
        (!ratios || !desc->draft.data || draft == SPECV_PROBS_F32))
        return specv_i_launch_probs(&task, num_sms, stream);
    tiles = task.memory.num_tiles;
    has_second = ratios && desc->draft.data;
    cuts = specv_i_cuts(&desc->filters) || specv_i_cuts(&desc->draft_filters);
    chained =
        has_second || cuts ? specv_i_first_of_two(desc->verify.chained) : desc->verify.chained;
    if (ratios && scratch.draft_rows && drafts > 0) {
        if (draft == target)
            sides |= SPECV_I_OF_DRAFT;
        else
            status =
                specv_i_launch_logits(&task, SPECV_I_OF_DRAFT, draft, 0, filters, num_sms, stream);
    }
    if (status) return status;
    task.d.verify.chained = chained;
    if (target != SPECV_PROBS_F32)
        status = specv_i_launch_logits(&task, sides, target, chained, filters, num_sms, stream);
    else
        status = specv_i_launch_grid(
            (const void *)specv_verify_sample_kernel,
            specv_i_grid_of_rows(
                r->batch, specv_i_blocks_of_row(
                              r->batch, (tiles * (drafts + 1) + warps - 1) / warps, 2 * num_sms)),
            SPECV_SAMPLE_THREADS, &task, chained, stream);
    if (cuts && !status) {
        task.d.verify.chained = specv_i_second_of_two(has_second ? chained : desc->verify.chained);
        status = specv_i_launch_grid((const void *)specv_filter_kernel,
                                     specv_i_grid_of_rows(r->batch, 2 * drafts + 1),
                                     SPECV_SAMPLE_THREADS, &task, task.d.verify.chained, stream);
    }
    if (status || !has_second) return status;
    task.d.verify.chained = specv_i_second_of_two(desc->verify.chained);
    return specv_i_launch_grid(
        filters ? (const void *)specv_residual_filtered_kernel
                : (const void *)specv_residual_kernel,
        specv_i_grid_of_rows(r->batch,
                             specv_i_blocks_of_row(r->batch, tiles * positions, 2 * num_sms)),
        SPECV_SAMPLE_THREADS, &task, task.d.verify.chained, stream);
}

/* The rows of `sides`, for a lossy rule. */
static int specv_i_launch_rows(specv_sample_task *task, int sides, int chained, int num_sms,
                               cudaStream_t stream) {
    task->sides = sides, task->d.verify.chained = chained;
    return specv_i_launch_grid((const void *)specv_lossy_rows_kernel,
                               specv_i_grid_of_logits(task, sides, 2, num_sms),
                               SPECV_SAMPLE_THREADS, task, chained, stream);
}

/* A6: rows, what limits cut of them, the judgement, a residual. */
static int specv_i_launch_lossy(const specv_verify_sample_desc *desc, cudaStream_t stream) {
    const specv_rows *r = &desc->verify.rows;
    const int64_t drafts = r->max_draft;
    const int after = desc->verify.chained, compares = specv_i_compares(desc->rule);
    const int cuts = specv_i_cuts(&desc->filters) || specv_i_cuts(&desc->draft_filters);
    specv_lossy_task task = SPECV_ZERO;
    specv_sample_task plain;
    specv_i_scratch scratch;
    int num_sms, sides = SPECV_I_OF_TARGET, status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    task.rule = desc->rule;
    task.of.d = *desc;
    specv_verify_sample_resolve(&task.of.d);
    scratch = specv_i_scratch_layout(&task.of.d);
    task.of.memory = specv_i_open_memory(&task.of.d, &scratch);
    task.of.d.rule = compares ? SPECV_RULE_COUPLED : SPECV_RULE_TOKEN;
    if (desc->target.dtype == SPECV_PROBS_F32) task.of.d.target.dtype = SPECV_I_WEIGHTS_F32;
    if (desc->draft.dtype == SPECV_PROBS_F32) task.of.d.draft.dtype = SPECV_I_WEIGHTS_F32;
    plain = task.of;
    if (desc->draft.data && drafts > 0) {
        if (desc->draft.dtype == desc->target.dtype)
            sides |= SPECV_I_OF_DRAFT;
        else
            status = specv_i_launch_rows(&plain, SPECV_I_OF_DRAFT, 0, num_sms, stream);
    }
    if (!status)
        status = specv_i_launch_rows(&plain, sides, specv_i_first_of_two(after), num_sms, stream);
    if (cuts && !status) { /* it judges by another rule, and what it says is written anew */
        specv_verify_greedy_desc *v = &plain.d.verify;
        const specv_emitted nobody = SPECV_ZERO;
        v->accepted_len = v->num_emitted = 0, v->mismatch = v->finished = 0;
        v->next_token = v->out_tokens = 0, v->row_status = 0;
        plain.d.logprob = plain.d.lse = 0, plain.d.emitted = nobody; /* max_prob: it needs sums */
        v->chained = specv_i_second_of_two(specv_i_first_of_two(after));
        status = specv_i_launch_grid((const void *)specv_filter_kernel,
                                     specv_i_grid_of_rows(r->batch, 2 * drafts + 1),
                                     SPECV_SAMPLE_THREADS, &plain, v->chained, stream);
    }
    if (status) return status;
    task.of.d.verify.chained =
        specv_i_second_of_two(desc->draft.data ? specv_i_first_of_two(after) : after);
    status = specv_i_launch_grid((const void *)specv_lossy_kernel,
                                 specv_i_grid_of_rows(r->batch, compares ? drafts + 1 : 1),
                                 SPECV_SAMPLE_THREADS, &task, task.of.d.verify.chained, stream);
    if (status || !desc->draft.data) return status;
    task.of.d.verify.chained = specv_i_second_of_two(after);
    return specv_i_launch_grid(
        (const void *)specv_residual_filtered_kernel,
        specv_i_grid_of_rows(
            r->batch, specv_i_blocks_of_row(r->batch, task.of.memory.num_tiles, 2 * num_sms)),
        SPECV_SAMPLE_THREADS, &task.of, task.of.d.verify.chained, stream);
}

/* Verification. */
static int specv_i_launch_rule(const specv_verify_sample_desc *desc, cudaStream_t stream) {
    return specv_i_is_lossy(desc->rule) ? specv_i_launch_lossy(desc, stream)
                                        : specv_i_launch_sample(desc, stream);
}

/* Verification, and what is told of its tokens. */
static int specv_i_launch_request(const specv_verify_sample_desc *desc, cudaStream_t stream) {
    specv_verify_sample_desc d = *desc;
    if (!specv_i_tells(&desc->emitted)) return specv_i_launch_rule(desc, stream);
    d.emitted.logprob = 0, d.verify.chained = specv_i_first_of_two(desc->verify.chained);
    const int status = specv_i_launch_rule(&d, stream);
    return status ? status : specv_i_launch_emitted(desc, 0, 0, stream);
}

SPECV_LAUNCHER_BODY int specv_verify_sample(const specv_verify_sample_desc *desc,
                                            struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_verify_sample_validate, desc);
    if (status != SPECV_OK || desc->verify.rows.batch == 0) return status;
    return specv_i_launch_request(desc, stream);
}

SPECV_LAUNCHER_BODY int specv_sample(const specv_sample_desc *desc, struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_sample_validate, desc);
    specv_verify_sample_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = specv_sample_as_verify(desc);
    return specv_i_launch_request(&d, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_SAMPLE */

/* ========================================================================== >>shards-kernels */

#if !defined(SPECVERIFY_NO_SHARDS)

/* A9, step 0: grid, blocks and trips as in the kernels of A2 and A5 of the type; the last block of
   a request writes what the ranks exchange, where theirs judges. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_shard_greedy_bf16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_BF16, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_shard_greedy_f16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F16, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_GREEDY_BLOCKS)
    specv_shard_greedy_f32_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F32, 0, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_shard_softmax_bf16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_BF16, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_shard_softmax_f16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F16, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_SOFTMAX_BLOCKS)
    specv_shard_softmax_f32_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F32, SPECV_TILE_SUM, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_shard_noise_bf16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_BF16, SPECV_TILE_SCORE, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_shard_noise_f16_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F16, SPECV_TILE_SCORE, 0);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_shard_noise_f32_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_stats(&task, SPECV_LOGITS_F32, SPECV_TILE_SCORE, 0);
}

/* The same where there are masks or limits, for all rules and types. Requests with rows that limits
   cut go on in specv_shard_names_kernel. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, SPECV_I_FILTERED_BLOCKS)
    specv_shard_masked_kernel(const __grid_constant__ specv_shard_task task) {
    const specv_scores *of =
        task.sample.sides & SPECV_I_OF_TARGET ? &task.sample.d.target : &task.sample.d.draft;
    specv_i_block_shard_stats(&task, of->dtype, 0, 1);
}

/* Rows that limits cut, a block each: what the rank says of them, and its best ids. Grid: batch x
   positions. Bytes, trips: as specv_filter_kernel's until there is a list. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_shard_names_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_names(&task, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* Behind the first exchange, and behind that of sums, before what else the step does: rows that
   limits cut, of what ranks have named, a block each, which draws from its row, too. Grid: batch x
   positions. Bytes: what was named, of each id as often as there are bits in top_k. Trips: lengths;
   limits; digests and heads; the ids, and one for each bit of top_k and rank. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_shard_cut_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_cut(&task, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* Behind the first exchange, where rows need sums: a block a request. Bytes: records; the tiles of
   the rank; a score a draft. Trips: lengths; seeds, drafts and temperatures; digests and heads;
   what shards say of rows; tiles. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_shard_sums_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_sums(&task);
}

/* Behind the exchange that says all of rows: judges; the end of rules GREEDY and COUPLED, and with
   all_top_k of all, where a rejected draft's token is drawn from what its p row and q row keep
   (BLOCK: all rows). Without draft scores the rank whose token it is draws it. Grid: as before.
   Bytes: records; 8 for each id that is kept; or a tile. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_shard_judge_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_judge(&task);
}

/* Where drafts have scores, behind the judge: sums of what p has more of than q. Grid: batch x
   blocks that share a row. Bytes: as specv_residual_kernel. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 2)
    specv_shard_gains_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_gains(&task, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y);
}

/* Behind the exchange of those: rule BLOCK decides; the rank whose token it is draws it. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_shard_draw_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_draw(&task);
}

/* Behind the exchange of tokens: outputs. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_SAMPLE_THREADS, 1)
    specv_shard_emit_kernel(const __grid_constant__ specv_shard_task task) {
    specv_i_block_shard_emit(&task);
}

#if !defined(__CUDACC_RTC__)

static void specv_i_open_shard_task(const specv_verify_shard_desc *desc, specv_shard_task *task) {
    const specv_i_shard_scratch scratch = specv_i_shard_layout(desc);
    specv_i_shard *s = &task->shard;
    char *base = (char *)desc->sample.scratch;
    task->sample.d = specv_i_shard_local(desc);
    specv_verify_sample_resolve(&task->sample.d);
    task->sample.memory = specv_i_open_memory(&task->sample.d, &scratch.local);
    if (!specv_i_shard_has_q(&task->sample.d)) task->sample.d.draft.data = 0;
    s->merged = task->sample.memory;
    s->merged.tiles = (specv_tile *)(base + scratch.tiles), s->merged.num_tiles = desc->num_shards;
    s->merged.rows = (specv_distribution *)(base + scratch.rows);
    s->merged.residuals = (specv_i_residual *)(base + scratch.residuals);
    s->lost = (uint64_t *)(base + scratch.lost), s->named = (uint64_t *)(base + scratch.named);
    s->num_named = desc->max_top_k, s->all_named = specv_i_shard_names_all(desc);
    s->p = (float *)(base + scratch.p), s->q = (float *)(base + scratch.q);
    s->to = specv_i_record_of(desc, desc->step), s->from = specv_i_record_of(desc, desc->step - 1);
    s->record = (char *)desc->record, s->gathered = (const char *)desc->gathered;
    s->epoch = desc->epoch, s->marks = (uint32_t *)(base + scratch.marks);
    s->stride = desc->record_stride_bytes ? desc->record_stride_bytes : s->from.bytes;
    s->digest = specv_i_shard_digest(desc, desc->step);
    s->digest_before = specv_i_shard_digest(desc, desc->step - 1);
    s->vocab = desc->sample.verify.vocab;
    s->first_id = desc->first_id, s->num_ids = desc->num_ids, s->num_shards = desc->num_shards;
}

/* Step 0 over the logits of `sides`, which have this type. */
static int specv_i_launch_shard_stats(specv_shard_task *task, int sides, int dtype, int chained,
                                      int num_sms, cudaStream_t stream) {
    static const void *const kernels[3][3] = {
        {(const void *)specv_shard_greedy_f32_kernel, (const void *)specv_shard_greedy_f16_kernel,
         (const void *)specv_shard_greedy_bf16_kernel},
        {(const void *)specv_shard_softmax_f32_kernel, (const void *)specv_shard_softmax_f16_kernel,
         (const void *)specv_shard_softmax_bf16_kernel},
        {(const void *)specv_shard_noise_f32_kernel, (const void *)specv_shard_noise_f16_kernel,
         (const void *)specv_shard_noise_bf16_kernel}};
    const int rule = task->sample.d.rule;
    const int kind = rule == SPECV_RULE_COUPLED ? 2 : rule != SPECV_RULE_GREEDY;
    const int masked = specv_i_is_filtered(&task->sample.d);
    task->sample.sides = sides, task->sample.d.verify.chained = chained;
    return specv_i_launch_grid(
        masked ? (const void *)specv_shard_masked_kernel : kernels[kind][dtype],
        specv_i_grid_of_logits(&task->sample, sides, masked ? 2 : 4 - kind, num_sms),
        SPECV_SAMPLE_THREADS, task, chained, stream);
}

/* A block a position, at most: rows that limits cut. */
static int specv_i_launch_shard_rows(specv_shard_task *task, const void *kernel, int chained,
                                     cudaStream_t stream) {
    const specv_rows *r = &task->sample.d.verify.rows;
    task->sample.d.verify.chained = chained;
    return specv_i_launch_grid(kernel,
                               specv_i_grid_of_rows(r->batch, 2 * (int64_t)r->max_draft + 1),
                               SPECV_SAMPLE_THREADS, task, chained, stream);
}

/* A block a request. */
static int specv_i_launch_shard(specv_shard_task *task, const void *kernel, int chained,
                                cudaStream_t stream) {
    task->sample.d.verify.chained = chained;
    task->sample.d.verify.vocab = task->shard.vocab;
    return specv_i_launch(kernel, task->sample.d.verify.rows.batch, SPECV_SAMPLE_THREADS, task,
                          chained, stream);
}

/* Where draft scores matter: the judge, then the sums. */
static int specv_i_launch_shard_gains(specv_shard_task *task, int chained, int num_sms,
                                      cudaStream_t stream) {
    const specv_rows *r = &task->sample.d.verify.rows;
    const int64_t positions =
        task->sample.d.rule == SPECV_RULE_BLOCK && r->max_draft ? r->max_draft : 1;
    const int64_t items = positions * task->sample.memory.num_tiles;
    const int status = specv_i_launch_shard(task, (const void *)specv_shard_judge_kernel,
                                            specv_i_first_of_two(chained), stream);
    if (status) return status;
    chained = specv_i_second_of_two(chained);
    task->sample.d.verify.chained = chained, task->sample.d.verify.vocab = task->shard.num_ids;
    return specv_i_launch_grid(
        (const void *)specv_shard_gains_kernel,
        specv_i_grid_of_rows(r->batch, specv_i_blocks_of_row(r->batch, items, 2 * num_sms)),
        SPECV_SAMPLE_THREADS, task, chained, stream);
}

SPECV_LAUNCHER_BODY int specv_verify_shard(const specv_verify_shard_desc *desc,
                                           struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_verify_shard_validate, desc), num_sms, chained, kind;
    int sides = SPECV_I_OF_TARGET, names;
    specv_shard_task task = SPECV_ZERO;
    if (status != SPECV_OK || desc->sample.verify.rows.batch == 0) return status;
    if ((status = specv_i_num_sms(desc->sample.num_sms, &num_sms)) != 0) return status;
    specv_i_open_shard_task(desc, &task);
    chained = desc->sample.verify.chained, kind = task.shard.to.kind;
    names = specv_i_shard_names(&desc->sample, 0) || specv_i_shard_names(&desc->sample, 1);
    if (kind == SPECV_I_RECORD_STATS) {
        const int target = desc->sample.target.dtype, draft = desc->sample.draft.dtype;
        if (task.sample.d.draft.data && desc->sample.verify.rows.max_draft > 0) {
            if (draft == target)
                sides |= SPECV_I_OF_DRAFT;
            else
                status =
                    specv_i_launch_shard_stats(&task, SPECV_I_OF_DRAFT, draft, 0, num_sms, stream);
        }
        if (status) return status;
        status = specv_i_launch_shard_stats(
            &task, sides, target, names ? specv_i_first_of_two(chained) : chained, num_sms, stream);
        if (status || !names) return status;
        return specv_i_launch_shard_rows(&task, (const void *)specv_shard_names_kernel,
                                         specv_i_second_of_two(chained), stream);
    }
    if (names && task.shard.from.kind <= SPECV_I_RECORD_SUMS) {
        task.sample.d.verify.vocab = task.shard.vocab;
        status = specv_i_launch_shard_rows(&task, (const void *)specv_shard_cut_kernel,
                                           specv_i_first_of_two(chained), stream);
        if (status) return status;
        chained = specv_i_second_of_two(chained);
    }
    if (kind == SPECV_I_RECORD_SUMS)
        return specv_i_launch_shard(&task, (const void *)specv_shard_sums_kernel, chained, stream);
    if (kind == SPECV_I_RECORD_GAINS)
        return specv_i_launch_shard_gains(&task, chained, num_sms, stream);
    if (task.shard.from.kind == SPECV_I_RECORD_GAINS)
        return specv_i_launch_shard(&task, (const void *)specv_shard_draw_kernel, chained, stream);
    if (task.shard.from.kind == SPECV_I_RECORD_TOKENS)
        return specv_i_launch_shard(&task, (const void *)specv_shard_emit_kernel, chained, stream);
    return specv_i_launch_shard(&task, (const void *)specv_shard_judge_kernel, chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_SHARDS */

/* ============================================================================ >>pack-kernels */

#if !defined(SPECVERIFY_NO_PACK)

/* B1. Grid: any number of blocks of up to SPECV_PACK_THREADS; all share every tile's bytes.
   Bytes: per block 4 per row; per accepted row row_bytes read, row_bytes written. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PACK_THREADS, 1)
    specv_pack_kv_kernel(const __grid_constant__ specv_pack_kv_desc d) {
    __shared__ int32_t lens[SPECV_TILE_ROWS], offsets[SPECV_TILE_ROWS + 1];
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    const int thread = specv_i_thread(), block = (int)blockIdx.x, num_blocks = (int)gridDim.x;
    const int num_threads = (int)blockDim.x, num_warps = num_blocks * (num_threads / 32);
    int32_t packed = 0;
    specv_i_begin(d.chained);
    const specv_plane_share share =
        specv_warp_plane_share(&d.kv, thread / 32 * num_blocks + block, num_warps);
    for (int row0 = 0; row0 < d.rows.batch; row0 += SPECV_TILE_ROWS) {
        int num_rows =
            d.rows.batch - row0 < SPECV_TILE_ROWS ? d.rows.batch - row0 : SPECV_TILE_ROWS;
        for (int i = thread; i < num_rows; i += num_threads) {
            const int32_t len = d.accepted_len[row0 + i]; /* first: nothing waits for it here */
            const specv_row row = specv_thread_load_row(&d.rows, row0 + i);
            lens[i] = row.live && len >= 0 && len <= row.n_draft ? len : 0;
        }
        packed = specv_block_offsets_tile(lens, num_rows, packed, offsets, scratch);
        specv_i_store_offsets(&d.kv, d.rows.batch, row0, num_rows, offsets, block, num_blocks);
        if (d.row_status) {
            int step = num_blocks * num_threads;
            for (int i = block * num_threads + thread; i < num_rows; i += step) {
                specv_row row = specv_thread_load_row(&d.rows, row0 + i);
                int32_t len = row.live ? d.accepted_len[row0 + i] : 0;
                uint32_t status = 0;
                if (len < 0 || len > row.n_draft) status |= SPECV_ROW_BAD_LENGTH;
                status |= row.status | specv_i_space_status(&d.kv, offsets, i);
                specv_i_put_status(d.row_status, row0 + i, status, d.keep_status);
            }
        }
        specv_warp_pack_tile(&d.rows, &d.kv, row0, num_rows, offsets, share);
        /* The next tile's offsets are written behind a barrier of specv_block_offsets_tile. */
    }
}

/* B1 of a small step. Grid: specv_i_launch_small_pack: a block for offsets and status, blocks that
   copy. Every warp, or every block, reads all lengths. Bytes: per warp or block 4 per row (L1, L2),
   8 with draft_len; then as above. Round trips: lengths, num_active, draft_len, plane tables;
   KV. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PACK_THREADS)
    specv_pack_small_kernel(const __grid_constant__ specv_i_small_task t) {
    __shared__ uint32_t words[SPECV_I_SMALL_ROWS], sums[32];
    specv_i_begin(t.d.verify.chained);
    specv_i_block_small_pack(&t, words, sums, 0);
}

/* B2. Grid: specv_i_verify_blocks(batch) blocks that write A1's outputs, and at least one more
   that copy, of SPECV_PACK_THREADS. Every block finds all accepted lengths for itself: no block
   waits for another. Bytes: per block all tokens (L2); then as A1 and B1. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PACK_THREADS, 1)
    specv_verify_pack_kv_kernel(const __grid_constant__ specv_verify_pack_kv_desc d) {
    __shared__ int32_t lens[SPECV_TILE_ROWS], offsets[SPECV_TILE_ROWS + 1];
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    const int batch = d.verify.rows.batch, warp = specv_i_thread() / 32;
    const int warps = SPECV_PACK_THREADS / 32, verify_blocks = specv_i_verify_blocks(batch);
    const int block = (int)blockIdx.x, copy_block = block - verify_blocks;
    const int copy_blocks = (int)gridDim.x - verify_blocks, num_warps = copy_blocks * warps;
    specv_plane_share share = {0, 0, 0, 0, 1};
    int32_t packed = 0;
    specv_i_begin(d.verify.chained);
    if (copy_block >= 0)
        share = specv_warp_plane_share(&d.kv, warp * copy_blocks + copy_block, num_warps);
#pragma unroll 1
    for (int row0 = 0; row0 < batch; row0 += SPECV_TILE_ROWS) {
        int num_rows = batch - row0 < SPECV_TILE_ROWS ? batch - row0 : SPECV_TILE_ROWS;
        specv_block_accept_tile(&d.verify, row0, num_rows, lens, offsets);
        packed = specv_block_offsets_tile(lens, num_rows, packed, offsets, scratch);
        if (copy_block >= 0) {
            specv_warp_pack_tile(&d.verify.rows, &d.kv, row0, num_rows, offsets, share);
        } else {
            specv_i_store_offsets(&d.kv, batch, row0, num_rows, offsets, block, verify_blocks);
            for (int i = block * warps + warp; i < num_rows; i += verify_blocks * warps)
                specv_i_verify_row(&d.verify, row0 + i, specv_i_space_status(&d.kv, offsets, i),
                                   specv_i_is_short(&d.verify), specv_i_lane(), 0);
        }
        __syncthreads(); /* lens, offsets and scratch are reused */
    }
}

/* B2 of a small step. Grid: specv_i_launch_small_pack: blocks that write A1's outputs, one for
   offsets, blocks that copy. Every warp, or every block, finds all lengths for itself.
   Bytes: per warp or block all tokens (L1, L2); then as A1 and B1. Round trips: tokens, num_active,
   draft_len, plane tables; KV. A1's outputs: one; with row_status the row's tokens once more. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PACK_THREADS)
    specv_verify_pack_small_kernel(const __grid_constant__ specv_i_small_task t) {
    __shared__ uint32_t words[SPECV_I_SMALL_ROWS], sums[32];
    specv_i_begin(t.d.verify.chained);
    specv_i_block_small_pack(&t, words, sums, 1);
}

#if !defined(__CUDACC_RTC__)

/* Blocks that copy: with those that verify one per SM, so that all are resident at once and an SM
   re-reads the tokens once; fewer when even with all drafts accepted there would not be a piece
   for every fourth warp. */
static int specv_i_copy_blocks(const specv_rows *r, const specv_kv_pack *kv, int num_sms,
                               int verify_blocks) {
    int64_t rows = (int64_t)r->batch * r->max_draft, most = num_sms, pieces, blocks;
    most -= 2 * verify_blocks < num_sms ? verify_blocks : num_sms / 2;
    rows = rows < kv->capacity_rows ? rows : kv->capacity_rows;
    pieces = rows * kv->row_bytes / SPECV_PIECE_BYTES + 1;
    pieces = pieces < 4 * most ? pieces : 4 * most;
    blocks = (pieces * kv->num_planes + 3) / 4;
    return (int)(blocks < most ? blocks : most);
}

/* A small step. d: resolved, for which specv_i_is_small_pack. Without `compares` B1: of d.verify it
   reads what B1's descriptor has. */
static int specv_i_launch_small_pack(const specv_verify_pack_kv_desc *d, int compares, int num_sms,
                                     cudaStream_t stream) {
    const specv_rows *r = &d->verify.rows;
    const uint32_t planes = (uint32_t)d->kv.num_planes;
    uint32_t places, most, threads;
    specv_i_small_task t = SPECV_ZERO;
    t.d = *d;
    t.log_columns = compares ? (uint32_t)specv_i_log_columns(r->max_draft) : 0;
    places = (uint32_t)r->batch << t.log_columns;
    t.row_units = specv_i_divisor_of((uint32_t)(d->kv.row_bytes / 16));
    t.seq_units = specv_i_divisor_of(t.row_units.by * (uint32_t)r->max_draft);
    t.units = t.seq_units.by * (uint32_t)r->batch;
    t.alone = compares ? places <= SPECV_I_ALONE_DRAFTS && t.units <= 8192 : places <= 32;
    /* A warp has 32 rows at most: B1 takes no second turn. */
    threads = t.alone ? 128 : places <= (compares ? 512 : 256) ? 256 : SPECV_PACK_THREADS;
    t.row_turns = t.log_columns > 5 ? 1u << (t.log_columns - 5) : 1;
    for (t.turns = t.row_turns; (t.alone ? 32 : threads) * t.turns < places;) t.turns *= 2;
    t.log_places = 5;
    while (1u << t.log_places < 32 * t.turns) ++t.log_places;
    t.flight = (uint64_t)t.units * planes <= SPECV_I_FLAT_UNITS ? 1 : SPECV_I_UNITS;
    t.verify_blocks = compares ? ((uint32_t)r->batch + threads / 32 - 1) / (threads / 32) : 0;
    t.unit_blocks = (t.units + threads * t.flight - 1) / (threads * t.flight);
    t.warp_rows = 32 * t.turns >> t.log_columns;
    most = 4 * (uint32_t)num_sms;
    t.loops = t.unit_blocks > most || planes > 1;
    t.unit_blocks = t.unit_blocks < most ? t.unit_blocks : most;
    most = most / t.unit_blocks;
    t.plane_step = specv_i_divisor_of(most < planes ? most : planes);
    t.capacity = (uint32_t)(d->kv.capacity_rows < 1 << 30 ? d->kv.capacity_rows : 1 << 30);
    return specv_i_launch(compares ? (const void *)specv_verify_pack_small_kernel
                                   : (const void *)specv_pack_small_kernel,
                          (int64_t)t.verify_blocks + 1 + (int64_t)t.unit_blocks * t.plane_step.by,
                          (int)threads, &t, d->verify.chained, stream);
}

static int specv_i_launch_pack(const specv_pack_kv_desc *desc, cudaStream_t stream) {
    specv_pack_kv_desc d = *desc;
    int num_sms, blocks, threads, status = specv_i_num_sms(d.kv.num_sms, &num_sms);
    if (status) return status;
    specv_pack_kv_resolve(&d);
    if (specv_i_is_small_pack(&d.rows, &d.kv)) {
        specv_verify_pack_kv_desc step = SPECV_ZERO;
        step.verify.rows = d.rows;
        step.verify.accepted_len = (int32_t *)d.accepted_len;
        step.verify.row_status = d.row_status;
        step.verify.keep_status = d.keep_status;
        step.verify.chained = d.chained;
        step.kv = d.kv;
        return specv_i_launch_small_pack(&step, 0, num_sms, stream);
    }
    blocks = specv_i_copy_blocks(&d.rows, &d.kv, num_sms, 0);
    /* Fewer blocks than SMs have four pieces each at most: more warps would be in the way. */
    threads = blocks < num_sms && d.rows.batch <= 128 ? 128 : SPECV_PACK_THREADS;
    return specv_i_launch((const void *)specv_pack_kv_kernel, blocks, threads, &d, d.chained,
                          stream);
}

SPECV_LAUNCHER_BODY int specv_pack_kv(const specv_pack_kv_desc *desc, struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_pack_kv_validate, desc);
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    return specv_i_launch_pack(desc, stream);
}

SPECV_LAUNCHER_BODY int specv_verify_pack_kv(const specv_verify_pack_kv_desc *desc,
                                             struct CUstream_st *stream) {
    int num_sms, verify_blocks, status = SPECV_I_VALIDATE(specv_verify_pack_kv_validate, desc);
    specv_verify_pack_kv_desc d;
    if (status != SPECV_OK || desc->verify.rows.batch == 0) return status;
    d = *desc;
    verify_blocks = specv_i_verify_blocks(d.verify.rows.batch);
    if (specv_verify_pack_kv_launches(&d) == 2) {
        specv_pack_kv_desc pack = SPECV_ZERO;
        pack.keep_status = 1;
        pack.rows = d.verify.rows;
        pack.accepted_len = d.verify.accepted_len;
        pack.row_status = d.verify.row_status;
        pack.kv = d.kv;
        pack.chained = specv_i_second_of_two(d.verify.chained);
        status = specv_i_launch_greedy(&d.verify, specv_i_first_of_two(d.verify.chained), stream);
        return status ? status : specv_i_launch_pack(&pack, stream);
    }
    status = specv_i_num_sms(d.kv.num_sms, &num_sms);
    if (status) return status;
    specv_verify_pack_kv_resolve(&d);
    if (specv_i_is_small_pack(&d.verify.rows, &d.kv))
        return specv_i_launch_small_pack(&d, 1, num_sms, stream);
    return specv_i_launch((const void *)specv_verify_pack_kv_kernel,
                          verify_blocks +
                              specv_i_copy_blocks(&d.verify.rows, &d.kv, num_sms, verify_blocks),
                          SPECV_PACK_THREADS, &d, d.verify.chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_PACK */

/* =========================================================================== >>cache-kernels */

#if !defined(__CUDACC_RTC__)
/* Blocks that copy up to `positions` positions of every plane: at most one per SM, fewer when there
   would not be a piece for every fourth warp; one if there is nothing to copy. */
static SPECV_UNUSED int specv_i_move_blocks(const specv_kv_cache *kv, int64_t positions,
                                            int num_sms) {
    int64_t most = num_sms, pieces, blocks;
    if (!specv_i_has_planes(kv)) return 1;
    pieces = specv_i_times(positions, kv->num_heads * kv->head_bytes) / SPECV_PIECE_BYTES + 1;
    pieces = pieces < 4 * most ? pieces : 4 * most;
    blocks = (pieces * kv->num_planes + 3) / 4;
    return (int)(blocks < most ? blocks : most);
}

/* Of so many blocks: a warp for each piece that there may be, if they are not many. */
static SPECV_UNUSED int specv_i_move_threads(const specv_kv_cache *kv, int batch, int blocks,
                                             int num_sms) {
    return specv_i_has_planes(kv) && batch <= SPECV_MOVE_FEW_THREADS && blocks < num_sms
               ? SPECV_MOVE_FEW_THREADS
               : SPECV_MOVE_THREADS;
}
#endif

#if !defined(SPECVERIFY_NO_CACHE)

/* B3. Grid: any number of blocks of SPECV_MOVE_THREADS or SPECV_MOVE_FEW_THREADS; one if there are
   no planes.
   Bytes: per block 12 a row (with slots 20) and its pages' ids; per appended KV row its bytes read
   and written; 4 and 12 a position of the next pass. Round trips: (slots;) lengths and plane
   addresses; page ids; (owners;) KV, and behind it the next pass's page ids, of which each block
   finds its share. The ticket protects the old lengths alone, so a block arrives when it has read
   them, and copies while the answer is on its way; of the last one then a trip more, for the draft
   model's lengths. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_MOVE_THREADS, 1)
    specv_append_kv_kernel(const __grid_constant__ specv_i_append_task t) {
    __shared__ specv_i_append_tile tile;
    __shared__ int32_t seats[SPECV_I_SEATS];
    const specv_append_kv_desc *d = &t.d;
    const int num_blocks = (int)gridDim.x, batch = d->rows.batch;
    /* Of the warp that has the least to copy: an atomic operation is waited for. */
    const int arrives = specv_i_thread() == specv_i_num_threads() - 1;
    specv_i_ragged r = t.copy;
    uint32_t now = 0;
    r.to.firsts = tile.lens, r.offsets = tile.offsets;
    if (d->rows.slot) r.to.seqs = tile.slots;
    specv_i_begin(d->chained);
    specv_plane_share share = specv_i_warp_share();
    specv_i_lane_piece early = {};
    if (batch > 32 || specv_i_thread_row(batch) < 0) /* rows come first */
        specv_i_early_piece(&r, &t.shape, &share, &early);
    if (d->rows.slot)
        specv_i_block_seat(d->rows.slot, d->rows.slot_dtype, d->rows.num_slots,
                           specv_i_num_live(d->rows.num_active, batch), seats);
#pragma unroll 1
    for (int row0 = 0; row0 < batch; row0 += SPECV_MOVE_ROWS) {
        if (row0 > 0) __syncthreads(); /* the tile is loaded over */
        r.num_segments = specv_i_block_append_tile(d, r.to.page_size, row0, seats, &tile);
        if (arrives && batch - row0 <= SPECV_MOVE_ROWS)
            now = specv_i_arrive(d->ticket, (int)blockIdx.x, num_blocks);
        r.from.seq0 = r.to.seq0 = row0;
        if (specv_i_has_planes(&d->kv)) specv_i_warp_copy_ragged(&r, &t.shape, share, early);
        specv_i_append_places(&t, &tile, row0, r.num_segments,
                              32 * (share.num_warps - 1 - share.warp) + specv_i_lane(),
                              32 * share.num_warps);
        if (r.from.firsts) r.from.firsts += r.num_segments, r.from.at_0 = 0;
    }
    const int arrival = specv_i_block_leaves(
        d->ticket, now + specv_i_own_ticket((int)blockIdx.x, num_blocks), arrives, num_blocks);
    if (arrival != SPECV_I_NOT_LAST)
        specv_i_block_append_numbers(&t, seats, &tile, arrival == SPECV_I_BAD_TICKET);
}

/* The same for at most 32 rows, and a warp for each piece of a plane that they can fill. The last
   warp of a block has the rows and seldom a piece: in the block that is left it writes their
   numbers beside the other warps' copies; where the next pass's rows belong is found by the last of
   those. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_MOVE_FEW_THREADS, 1)
    specv_append_few_kernel(const __grid_constant__ specv_i_append_task t) {
    __shared__ specv_i_append_tile tile;
    const specv_append_kv_desc *d = &t.d;
    const int num_blocks = (int)gridDim.x, block = (int)blockIdx.x, batch = d->rows.batch;
    const int warp = specv_i_thread() / 32 * num_blocks + block;
    const int num_warps = SPECV_MOVE_FEW_THREADS / 32 * num_blocks;
    const int row = specv_i_thread() - (SPECV_MOVE_FEW_THREADS - 32); /* < 0: the warp has none */
    specv_plane_share share = {0, 0, -1, warp, num_warps};
    specv_i_lane_piece early = {};
    specv_i_append a = {};
    uint32_t now = 0;
    specv_i_begin(d->chained);
    if (row < 0) {
        specv_i_early_piece(&t.copy, &t.shape, &share, &early);
    } else {
        if (row < batch) {
            a = specv_i_append_row(d, t.copy.to.page_size, row, 0);
            specv_i_put_append(&tile, row, &a);
        }
        specv_i_warp_offsets(a.count, batch, tile.offsets);
    }
    __syncthreads();
    if (row == 31) now = specv_i_arrive(d->ticket, block, num_blocks);
    if (row >= 0) {
        int arrival = SPECV_I_NOT_LAST;
        if (row == 31)
            arrival = specv_i_leave(d->ticket, now + specv_i_own_ticket(block, num_blocks),
                                    num_blocks, specv_i_all_tickets(num_blocks));
        arrival = __shfl_sync(SPECV_FULL_WARP, arrival, 31);
        if (arrival != SPECV_I_NOT_LAST && row < batch)
            specv_i_append_numbers(d, row, &a, arrival == SPECV_I_BAD_TICKET);
    }
    specv_i_ragged r = t.copy;
    r.to.firsts = tile.lens, r.offsets = tile.offsets, r.num_segments = batch;
    if (d->rows.slot) r.to.seqs = tile.slots;
    specv_i_warp_copy_one(&r, &t.shape, share, early);
    const int before = num_warps - num_blocks - 1 - warp; /* warps without rows, then the others */
    specv_i_append_places(&t, &tile, 0, batch,
                          32 * (before < 0 ? before + num_warps : before) + specv_i_lane(),
                          32 * num_warps);
}

/* B5, first kernel. Grid: one block of up to SPECV_PAGE_THREADS, a thread per row.
   Bytes: 20 a row, 16 for each page that changes hands. Round trips: (slots;) lengths; entries;
   owners; if pages are given back four more; owners of the last page; free pages. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PAGE_THREADS, 1)
    specv_page_resize_kernel(const __grid_constant__ specv_i_page_task t) {
    __shared__ specv_i_page_tile tile;
    const specv_page_resize_desc *const d = &t.d;
    const int b = specv_i_thread();
    specv_i_begin(d->chained);
    const int at_start = *d->pool.num_free, num_live = specv_i_num_live(d->num_active, d->batch);
    specv_i_pages r = {0, 0, 0, 0, 0, -1, 0, 0, 0, 0};
    uint32_t bad_slot = 0;
    int32_t slot = -1, copy_src_page, copy_dst_page, released;
    if (b < num_live)
        slot = specv_thread_own_slot(d->slot, d->slot_dtype, d->num_slots, b, &bad_slot);
    if (slot >= 0) r = specv_i_pages_of(&t, b, slot);
    const int pool_ok = at_start >= 0 && at_start <= d->kv.num_pages;
    if (!pool_ok) r.status = SPECV_ROW_BAD_PAGE;
    r.ok = slot >= 0 && r.status == 0;
    r.status |= specv_i_block_look(d, &tile, &r);
    r.ok = r.ok && r.status == 0;
    released = r.ok && r.keep < r.held ? r.held - r.keep : 0;
    if (b == 0) tile.num_free = at_start;
    const int32_t given = specv_i_block_deal(&tile, d->batch, r.keep, released);
    if (given > 0) specv_i_block_give_back(d, &tile, given);
    r.status |= tile.status[b];
    if (released) d->num_row_pages[slot] = r.keep, r.held = r.keep;
    if (r.ok && r.last >= 0) r.last_refs = d->pool.page_refs[r.last];
    /* Behind the first barrier of what follows, counts change again. */
    r.status |= specv_i_block_take(d, &tile, &r, &copy_src_page, &copy_dst_page);
    if (b == 0 && num_live > 0 && pool_ok) *d->pool.num_free = tile.num_free;
    if (b >= d->batch) return;
    if (d->copy_src_page) d->copy_src_page[b] = copy_src_page, d->copy_dst_page[b] = copy_dst_page;
    if (slot < 0) r.status = bad_slot;
    specv_i_put_status(d->row_status, b, r.status, d->keep_status);
}

/* B5, second kernel: the copies. Grid: any number of blocks, as for B3.
   Bytes: per block 12 a row; each position that is copied once. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_MOVE_THREADS, 1)
    specv_copy_pages_kernel(const __grid_constant__ specv_i_page_task t) {
    __shared__ int32_t offsets[SPECV_MOVE_ROWS + 1], scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    const specv_page_resize_desc *const d = &t.d;
    specv_i_ragged r = t.copy;
    specv_i_lane_piece early = {};
    r.offsets = offsets;
    specv_i_begin(d->chained);
    specv_plane_share share = specv_i_warp_share();
    if (d->batch > 32 || specv_i_thread_row(d->batch) < 0) /* rows come first */
        specv_i_early_piece(&r, &t.shape, &share, &early);
#pragma unroll 1
    for (int row0 = 0; row0 < d->batch; row0 += SPECV_MOVE_ROWS) {
        const int left = d->batch - row0;
        uint32_t count = 0;
        r.num_segments = left < SPECV_MOVE_ROWS ? left : SPECV_MOVE_ROWS;
        const int i = specv_i_thread_row(r.num_segments), row = row0 + i;
        if (row0 > 0) __syncthreads();                                  /* offsets are reused */
        if (i >= 0 && i < r.num_segments && d->copy_dst_page[row] >= 0) /* then its slot is good */
            specv_i_divide((uint32_t)d->cache_len[specv_i_good_slot(d->slot, d->slot_dtype, row)],
                           t.page_size, &count);
        specv_i_block_offsets((int32_t)count, r.num_segments, offsets, scratch);
        specv_i_warp_copy_ragged(&r, &t.shape, share, early);
        r.from.seqs += r.num_segments, r.to.seqs += r.num_segments;
    }
}

/* B5, fork. Grid: num_forks blocks of SPECV_FORK_THREADS, a block per fork. A row that one of them
   reads is written by none, as a dst_slot that is in src_slot is a fault; owners only become more.
   Bytes: per block 8 a fork; 16 for each entry. Round trips: slots of all forks; lengths; entries;
   owners; the last two once for each 4 * SPECV_FORK_THREADS entries. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_FORK_THREADS)
    specv_page_fork_kernel(const __grid_constant__ specv_page_fork_desc d) {
    const int fork = (int)blockIdx.x, thread = specv_i_thread();
    specv_i_begin(d.chained);
    const int32_t src = d.src_slot[fork], dst = d.dst_slot[fork];
    const int live = specv_i_num_live(d.num_active_forks, d.num_forks);
    int bad = src < 0 || src >= d.num_slots || dst < 0 || dst >= d.num_slots;
    int32_t len = 0, count = 0;
    uint32_t status = 0;
    if (fork < live) {
#pragma unroll 4
        for (int other = thread; other < live; other += SPECV_FORK_THREADS)
            bad |= (d.src_slot[other] == dst) | (other < fork && d.dst_slot[other] == dst);
        if (__syncthreads_or(bad)) status = SPECV_ROW_BAD_LENGTH;
    }
    if (fork < live && !status) {
        const int32_t held = d.num_row_pages[src], old = d.num_row_pages[dst];
        len = d.cache_len[src];
        count = len / d.page_size + (len % d.page_size > 0);
        if (len < 0 || old != 0 || held > d.max_row_pages || count > held)
            status = SPECV_ROW_BAD_LENGTH;
    }
    if (fork < live && !status) { /* look at all entries, then share them */
        const int32_t *from = d.block_table + src * d.table_stride_elems;
        int32_t *to = d.block_table + dst * d.table_stride_elems;
#pragma unroll 4
        for (int32_t e = thread; e < count; e += SPECV_FORK_THREADS) {
            const int32_t page = from[e];
            bad |= page < 0 || page >= d.num_pages ||
                   *(volatile const int32_t *)&d.page_refs[page] < 1;
        }
        if (__syncthreads_or(bad)) status = SPECV_ROW_BAD_PAGE;
#pragma unroll 4
        for (int32_t e = thread; e < count && !status; e += SPECV_FORK_THREADS) {
            const int32_t page = from[e];
            to[e] = page;
            atomicAdd(&d.page_refs[page], 1);
        }
    }
    if (thread == 0) {
        if (fork < live && !status) d.num_row_pages[dst] = count, d.cache_len[dst] = len;
        specv_i_put_status(d.fork_status, fork, status, d.keep_status);
    }
}

#if !defined(__CUDACC_RTC__)

SPECV_LAUNCHER_BODY int specv_append_kv(const specv_append_kv_desc *desc,
                                        struct CUstream_st *stream) {
    int num_sms, blocks, threads, few, status = SPECV_I_VALIDATE(specv_append_kv_validate, desc);
    specv_i_append_task t = SPECV_ZERO;
    int64_t columns;
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    t.d = *desc;
    specv_append_kv_resolve(&t.d);
    columns = (int64_t)t.d.num_pending + t.d.rows.max_draft;
    if (columns > 0) t.columns = specv_i_divisor_of((uint32_t)columns);
    t.copy = specv_i_cache_copy(&t.d.kv), t.copy.from = specv_i_append_from(&t.d);
    if (specv_i_has_planes(&t.d.kv)) t.shape = specv_i_copy_shape(&t.copy);
    blocks = specv_i_move_blocks(&t.d.kv, t.d.rows.batch * columns, num_sms);
    threads = specv_i_move_threads(&t.d.kv, t.d.rows.batch, blocks, num_sms);
    few = threads == SPECV_MOVE_FEW_THREADS && t.d.rows.batch <= 32 && t.shape.shift == 4;
    return specv_i_launch(few ? (const void *)specv_append_few_kernel
                              : (const void *)specv_append_kv_kernel,
                          blocks, threads, &t, t.d.chained, stream);
}

SPECV_LAUNCHER_BODY int specv_page_resize(const specv_page_resize_desc *desc,
                                          struct CUstream_st *stream) {
    int num_sms, blocks, status = SPECV_I_VALIDATE(specv_page_resize_validate, desc);
    specv_page_resize_desc d;
    specv_i_page_task t;
    if (status != SPECV_OK || desc->batch == 0) return status;
    status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    d = *desc;
    specv_page_resize_resolve(&d);
    t = specv_i_plan_pages(&d);
    if (specv_i_has_planes(&d.kv)) t.d.chained = specv_i_first_of_two(desc->chained);
    status = specv_i_launch((const void *)specv_page_resize_kernel, 1,
                            d.batch <= SPECV_PAGE_FEW ? SPECV_PAGE_FEW : SPECV_PAGE_THREADS, &t,
                            t.d.chained, stream);
    if (status || !specv_i_has_planes(&d.kv)) return status;
    t.d.chained = specv_i_second_of_two(desc->chained);
    blocks = specv_i_move_blocks(&d.kv, (int64_t)d.batch * d.kv.page_size, num_sms);
    return specv_i_launch((const void *)specv_copy_pages_kernel, blocks,
                          specv_i_move_threads(&d.kv, d.batch, blocks, num_sms), &t, t.d.chained,
                          stream);
}

SPECV_LAUNCHER_BODY int specv_page_fork(const specv_page_fork_desc *desc,
                                        struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_page_fork_validate, desc);
    specv_page_fork_desc d;
    if (status != SPECV_OK || desc->num_forks == 0) return status;
    d = *desc;
    specv_page_fork_resolve(&d);
    return specv_i_launch((const void *)specv_page_fork_kernel, d.num_forks, SPECV_FORK_THREADS, &d,
                          d.chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_CACHE */

/* =========================================================================== >>trees-kernels */

#if !defined(SPECVERIFY_NO_TREES)

/* A7, target ids. Grid: ceil(batch / 2) blocks of SPECV_TREE_THREADS; warp w of block x has tree
   2 x + w. Bytes: parents, tokens and target ids of all nodes, once; outputs once. Round trips: 1,
   num_active and num_nodes beside the first 128 nodes; 1 more for each 128 behind them. The walk is
   in shared memory, a load a step. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_TREE_THREADS)
    specv_tree_ids_kernel(const __grid_constant__ specv_verify_tree_desc d) {
    __shared__ specv_i_trail trails[SPECV_TREE_THREADS / 32];
    const int warp = (int)threadIdx.x / 32;
    const int b = (int)blockIdx.x * (SPECV_TREE_THREADS / 32) + warp;
    specv_i_begin(d.chained);
    if (b >= d.trees.batch) return;
    if (d.trees.token_dtype == SPECV_I64)
        specv_i_warp_verify_tree(&d, b, SPECV_I64, &trails[warp]);
    else
        specv_i_warp_verify_tree(&d, b, SPECV_I32, &trails[warp]);
}

/* A7, scores. Grid: a block of SPECV_GROVE_THREADS per tree. Bytes: parents and tokens of all nodes
   once; for each node that the walk comes to its row of the target's scores, once more (from L2)
   a tile of the last one's; with draft scores that row, too, and both again for each child that
   is rejected; of proposals the score of each child that is tried. Round trips: num_active with
   num_nodes and the slot, then parents with temperature and seed; for each node ceil(tiles / 12)
   of rows, which are in flight 12 tiles at a time, the tiles' statistics 1, the token's tile 2.
   So the chain is as long as the path, and rows of other nodes are not read: a pass over all of
   them would read 60 rows of a tree of 60 nodes for about 9. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_equal_kernel(const __grid_constant__ specv_verify_tree_desc d) {
    __shared__ specv_i_grove grove;
    specv_i_begin(d.chained);
    specv_i_block_verify_tree(&d, (int)blockIdx.x, SPECV_I_WALK_EQUAL, 0, &grove);
}

/* ONE_COIN from logits: the rows of the path, as above, and behind each its children's scores. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_coin_kernel(const __grid_constant__ specv_verify_tree_desc d) {
    __shared__ specv_i_grove grove;
    specv_i_begin(d.chained);
    specv_i_block_verify_tree(&d, (int)blockIdx.x, SPECV_I_WALK_COIN, 0, &grove);
}

/* ONE_COIN from probabilities. Grid: a block of SPECV_COIN_THREADS per tree. Bytes: parents and
   tokens of all nodes once, a sector of scores for each child, the last node's row, once more a
   tile of it. Round trips: num_active, num_nodes, parents and tokens, beside them (the slot, then)
   seed; what all children weigh, while numbers are made; the row, 32 tiles at a time; the token's
   tile. The walk asks shared memory alone, a load a step: in a tree of up to 256 nodes each child
   sums up itself and the siblings before it, all at once, so that each node knows on which child
   its number falls. Simulated (V100, batch 1, 60 nodes, 8 of 8 accepted, 32,000 ids): 15,600
   cycles, about 1,200 until nodes are here, 1,600 what they weigh, 1,500 sums over siblings, 800
   the walk, 7,100 the row, 2,200 the draw, 1,100 outputs. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COIN_THREADS, 1)
    specv_tree_coin_probs_kernel(const __grid_constant__ specv_verify_tree_desc d) {
    __shared__ specv_i_grove grove;
    specv_i_begin(d.chained);
    if (d.trees.max_nodes <= SPECV_I_FAMILY &&
        specv_i_block_verify_family(&d, (int)blockIdx.x, &grove))
        return;
    __syncthreads();
    specv_i_block_verify_tree(&d, (int)blockIdx.x, SPECV_I_WALK_PROBS, 0, &grove);
}

SPECV_KERNEL_BODY __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_kernel(const __grid_constant__ specv_verify_tree_desc d) {
    __shared__ specv_i_grove grove;
    specv_i_begin(d.chained);
    specv_i_block_verify_tree(&d, (int)blockIdx.x, SPECV_I_WALK_PAIRS, 0, &grove);
}

/* All rules where there are filters, behind the kernels that cut rows, if any is. The sieve comes
   with a node: one trip more. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_GROVE_THREADS, 1)
    specv_tree_filtered_kernel(const __grid_constant__ specv_tree_task task) {
    __shared__ specv_i_grove grove;
    specv_i_begin(task.d.chained);
    specv_i_block_verify_tree(&task.d, (int)blockIdx.x, SPECV_I_WALK_ANY, &task, &grove);
}

/* The address of a plane without a wait for it. */
SPECV_DEVFN uint64_t specv_i_early_plane(const specv_kv_cache *kv, int plane) {
    uint64_t at = (uint64_t)kv->plane;
    asm volatile("{ .reg .pred p; setp.ne.s64 p, %1, 0; @p ld.global.u64 %0, [%2]; }"
                 : "+l"(at)
                 : "l"(kv->planes), "l"(kv->planes + plane));
    return at;
}

/* B4. Grid: any number of blocks of SPECV_COMMIT_THREADS; one if there are no planes.
   Bytes: per block 8 a row and 4 a node of its path, its pages' ids; per KV row that moves its
   bytes read and written. Round trips: (num_active;) lengths, the path's first 8 nodes and plane
   addresses, (slots, and cache_len behind them;) page ids; (owners;) KV, one for each SPECV_I_MOVES
   nodes; paths and page ids again, from the L1 cache. The ticket protects the old lengths alone.
   Where each warp has one item at most, rows in which nothing moves get warps, too: who has which
   is known without a list. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COMMIT_THREADS, 1)
    specv_commit_path_kernel(const __grid_constant__ specv_commit_path_desc d) {
    __shared__ specv_i_path_tile tile;
    __shared__ int32_t seats[SPECV_I_SEATS];
    __shared__ specv_i_shape shape;
    const int num_blocks = (int)gridDim.x, writes = d.new_cache_len != 0;
    const int warp = specv_i_thread() / 32 * num_blocks + (int)blockIdx.x;
    const int num_warps = num_blocks * (SPECV_COMMIT_THREADS / 32);
    const unsigned planes = (unsigned)d.kv.num_planes;
    specv_i_ragged r = specv_i_cache_copy(&d.kv);
    const specv_i_divisor page_size = r.to.page_size;
    uint32_t now = 0; /* what the ticket was: nobody waits for it before the end */
    specv_plane_share share;
    r.from.block_table = d.src_block_table;
    r.from.table_stride_elems = d.src_table_stride_elems;
    specv_i_begin(d.chained);
    share.warp = warp, share.num_warps = num_warps, share.src = 0, share.dst = 0;
    share.plane = planes < 2 ? 0
                  : planes & (planes - 1) ? (int)((unsigned)warp % planes)
                                          : (int)((unsigned)warp & (planes - 1));
    const uint64_t early = specv_i_early_plane(&d.kv, share.plane);
    const int live = specv_i_num_live(d.num_active, d.batch);
    if (specv_i_thread() == SPECV_COMMIT_THREADS - 1) { /* the last warp seldom has rows */
        shape = specv_i_copy_shape(&r);
        shape.has_units = 1;
        specv_i_cut_units(&shape, r.head_bytes * r.num_heads);
    }
    specv_i_block_seat(d.slot, d.slot_dtype, d.num_slots, live, seats);
#pragma unroll 1
    for (int row0 = 0; row0 < d.batch; row0 += SPECV_COMMIT_THREADS) {
        if (row0 > 0) __syncthreads(); /* the tile is loaded over */
        int num_rows = specv_i_block_path_tile(&d, page_size, row0, live, seats, &tile), listed = 0;
        if (writes && specv_i_thread() == 0 && d.batch - row0 <= SPECV_COMMIT_THREADS)
            now = num_blocks > 1 ? specv_i_add_to_ticket(
                                       d.ticket, specv_i_own_ticket((int)blockIdx.x, num_blocks))
                                 : 0;
        if (!specv_i_has_planes(&d.kv)) continue;
        if (((uint64_t)num_rows * shape.row_units.by + 31) / 32 * planes > (unsigned)num_warps)
            num_rows = specv_i_block_list_movers(num_rows, &tile), listed = 1;
        if (row0 == 0) share.src = share.dst = (char *)early;
        specv_i_warp_move_paths(&d, &r, &shape, &tile, row0, num_rows, listed, share);
    }
    int arrival = blockIdx.x == 0 ? SPECV_I_LAST : SPECV_I_NOT_LAST;
    if (writes)
        arrival =
            specv_i_block_leaves(d.ticket, now + specv_i_own_ticket((int)blockIdx.x, num_blocks),
                                 specv_i_thread() == 0, num_blocks);
    if (arrival != SPECV_I_NOT_LAST)
        specv_i_block_commit_numbers(&d, page_size, live, seats, &tile,
                                     arrival == SPECV_I_BAD_TICKET);
}

/* Layouts. Grid: batch blocks of SPECV_LAYOUT_THREADS, a block per tree.
   Bytes: what is given, once (MASK: twice); outputs once. Round trips: num_active, num_nodes (and
   slots, then position); what is given, of LINKS and PARENTS all at once, of PATHS 32 / path_len
   paths for each warp at a time, of MASK four words of a node at a time. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_LAYOUT_THREADS)
    specv_tree_layout_kernel(const __grid_constant__ specv_tree_layout_desc d) {
    __shared__ specv_i_layout layout;
    const int b = (int)blockIdx.x;
    int32_t num_active = d.batch, n = d.max_nodes, slot = b;
    int64_t position = 0;
    uint32_t status = 0;
    specv_i_begin(d.chained);
    specv_i_load_given(&num_active, d.num_active, 0);
    specv_i_load_given(&n, d.num_nodes, b);
    if (b >= num_active)
        n = 0;
    else if (d.position)
        slot = specv_thread_slot(d.slot, d.slot_dtype, d.num_slots, b, &status);
    if (slot < 0) n = 0;
    if (b < num_active && slot >= 0) {
        const int in_range = n >= 1 && n <= d.max_nodes;
        if (d.position) position = d.position[slot];
        if (!in_range) status = SPECV_ROW_BAD_LENGTH;
        if (in_range && specv_i_block_parents(&d, b, n, &layout)) status = SPECV_ROW_BAD_TREE;
        if (status) {
            n = 1;
            if (threadIdx.x == 0) layout.low[0] = -1;
            __syncthreads();
        }
        specv_i_block_ancestors_of(n, &layout);
    }
    specv_i_block_put_layout(&d, b, n, position, &layout);
    if (threadIdx.x == 0) specv_i_put_status(d.row_status, b, status, d.keep_status);
}

#if !defined(__CUDACC_RTC__)

/* Rows of all nodes, cut: what is left of them is what tree->least says. */
static int specv_i_launch_tree_cuts(specv_tree_task *tree, int chained, cudaStream_t stream) {
    const specv_verify_tree_desc *d = &tree->d;
    specv_sample_task task = SPECV_ZERO;
    int num_sms, sides = SPECV_I_OF_TARGET, status = specv_i_num_sms(0, &num_sms);
    if (status) return status;
    task.d = specv_i_tree_as_rows(d);
    specv_verify_sample_resolve(&task.d);
    const specv_i_scratch scratch = specv_i_scratch_layout(&task.d);
    task.memory = specv_i_open_memory(&task.d, &scratch);
    tree->least = task.memory.least, tree->target_rows = task.memory.target_rows;
    if (task.d.target.dtype == SPECV_PROBS_F32) task.d.target.dtype = SPECV_I_WEIGHTS_F32;
    if (task.d.draft.dtype == SPECV_PROBS_F32) task.d.draft.dtype = SPECV_I_WEIGHTS_F32;
    if (d->draft.data && task.d.draft.dtype == task.d.target.dtype) {
        sides |= SPECV_I_OF_DRAFT;
    } else if (d->draft.data) {
        task.sides = SPECV_I_OF_DRAFT;
        status = specv_i_launch_grid((const void *)specv_filtered_kernel,
                                     specv_i_grid_of_logits(&task, SPECV_I_OF_DRAFT, 2, num_sms),
                                     SPECV_SAMPLE_THREADS, &task, 0, stream);
    }
    task.sides = sides, task.d.verify.chained = specv_i_first_of_two(chained);
    if (!status)
        status = specv_i_launch_grid((const void *)specv_filtered_kernel,
                                     specv_i_grid_of_logits(&task, sides, 2, num_sms),
                                     SPECV_SAMPLE_THREADS, &task, task.d.verify.chained, stream);
    task.d.verify.chained = specv_i_second_of_two(chained);
    if (status) return status;
    return specv_i_launch_grid(
        (const void *)specv_filter_kernel,
        specv_i_grid_of_rows(d->trees.batch, 2 * (int64_t)d->trees.max_nodes), SPECV_SAMPLE_THREADS,
        &task, task.d.verify.chained, stream);
}

static int specv_i_launch_filtered_tree(const specv_verify_tree_desc *d, cudaStream_t stream) {
    specv_tree_task task = SPECV_ZERO;
    int status = SPECV_OK;
    task.d = *d;
    if (specv_i_tree_cuts(d)) {
        status = specv_i_launch_tree_cuts(&task, specv_i_first_of_two(d->chained), stream);
        task.d.chained = specv_i_second_of_two(d->chained);
    }
    if (task.d.target.dtype == SPECV_PROBS_F32) task.d.target.dtype = SPECV_I_WEIGHTS_F32;
    if (task.d.draft.dtype == SPECV_PROBS_F32) task.d.draft.dtype = SPECV_I_WEIGHTS_F32;
    if (status) return status;
    return specv_i_launch((const void *)specv_tree_filtered_kernel, d->trees.batch,
                          SPECV_GROVE_THREADS, &task, task.d.chained, stream);
}

/* The walk, with what it needs before. d: resolved. */
static int specv_i_launch_walk(const specv_verify_tree_desc *d, cudaStream_t stream) {
    const int64_t trees_per_block = SPECV_TREE_THREADS / 32;
    if (specv_i_tree_is_filtered(d)) return specv_i_launch_filtered_tree(d, stream);
    if (!d->target_tokens && d->rule == SPECV_TREE_ONE_COIN && d->target.dtype == SPECV_PROBS_F32)
        return specv_i_launch((const void *)specv_tree_coin_probs_kernel, d->trees.batch,
                              SPECV_COIN_THREADS, d, d->chained, stream);
    if (!d->target_tokens)
        return specv_i_launch(d->rule < SPECV_TREE_ONE_COIN ? (const void *)specv_tree_equal_kernel
                              : d->rule == SPECV_TREE_ONE_COIN
                                  ? (const void *)specv_tree_coin_kernel
                                  : (const void *)specv_tree_kernel,
                              d->trees.batch, SPECV_GROVE_THREADS, d, d->chained, stream);
    return specv_i_launch((const void *)specv_tree_ids_kernel,
                          (d->trees.batch + trees_per_block - 1) / trees_per_block,
                          SPECV_TREE_THREADS, d, d->chained, stream);
}

SPECV_LAUNCHER_BODY int specv_verify_tree(const specv_verify_tree_desc *desc,
                                          struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_verify_tree_validate, desc);
    specv_verify_tree_desc d;
    specv_verify_sample_desc v;
    if (status != SPECV_OK || desc->trees.batch == 0) return status;
    d = *desc;
    specv_verify_tree_resolve(&d);
    if (!specv_i_tree_tells(&d)) return specv_i_launch_walk(&d, stream);
    d.chained = specv_i_first_of_two(desc->chained);
    status = specv_i_launch_walk(&d, stream);
    if (status) return status;
    v = specv_i_tree_as_rows(&d);
    v.emitted = d.emitted, v.verify.chained = desc->chained;
    v.verify.accepted_len = d.accepted_len, v.verify.out_tokens = d.out_tokens;
    v.verify.out_stride_elems = d.out_stride_elems;
    return specv_i_launch_emitted(&v, d.path, d.max_depth + 1, stream);
}

SPECV_LAUNCHER_BODY int specv_commit_path(const specv_commit_path_desc *desc,
                                          struct CUstream_st *stream) {
    int num_sms, status = SPECV_I_VALIDATE(specv_commit_path_validate, desc);
    specv_commit_path_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    status = specv_i_num_sms(desc->num_sms, &num_sms);
    if (status) return status;
    d = *desc;
    specv_commit_path_resolve(&d);
    return specv_i_launch((const void *)specv_commit_path_kernel,
                          specv_i_move_blocks(&d.kv, (int64_t)d.batch * d.max_depth, num_sms),
                          SPECV_COMMIT_THREADS, &d, d.chained, stream);
}

SPECV_LAUNCHER_BODY int specv_tree_layout(const specv_tree_layout_desc *desc,
                                          struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_tree_layout_validate, desc);
    specv_tree_layout_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_tree_layout_resolve(&d);
    return specv_i_launch((const void *)specv_tree_layout_kernel, d.batch, SPECV_LAYOUT_THREADS, &d,
                          d.chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_TREES */

/* ========================================================================= >>columns-kernels */

#if !defined(SPECVERIFY_NO_COLUMNS)

/* C1, first kernel: where everything goes, tokens, mask, position ids. Grid: batch blocks of
   SPECV_COLUMN_THREADS, a block per row. A block arrives when it has read the old numbers.
   Bytes: per block 8 a row (with slots 12); per row that moves its columns of each array, else
   those behind the old width. Round trips: (slots;) numbers; tokens, one for each SPECV_I_FLIGHT *
   SPECV_COLUMN_THREADS that move and one for those that are new. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_realign_kernel(const __grid_constant__ specv_realign_desc d) {
    __shared__ int32_t seats[SPECV_I_SEATS];
    __shared__ int2 scratch[SPECV_COLUMN_THREADS / 32];
    const int b = (int)blockIdx.x, thread = specv_i_thread();
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch), width = *d.columns.width;
    const int kv_columns = specv_i_has_planes(&d.kv) ? d.kv.max_positions : SPECV_I_INT_MAX - 1;
    uint32_t status = 0, ignored = 0, now = 0;
    int2 most = {0, 0};
    specv_i_block_seat(d.slot, d.slot_dtype, d.num_slots, live, seats);
    const specv_i_gain own = specv_i_gain_of(&d, b, live, width, seats, &status);
    specv_i_gain its = {-1, 0, -1}; /* in the end of the thread's first row */
    for (int row = specv_i_last_row(d.batch); row >= 0; row -= SPECV_COLUMN_THREADS) {
        its = specv_i_gain_of(&d, row, live, width, seats, &ignored);
        if (its.tokens < 0) continue;
        if (width - its.pad + its.tokens > most.x) most.x = width - its.pad + its.tokens;
        if (width + its.tokens > most.y) most.y = width + its.tokens;
    }
    most = specv_i_block_max(most, scratch);
    if (thread == 0) now = specv_i_arrive(d.ticket, b, (int)gridDim.x);
    /* The furthest row's last KV row is there, whatever the padding. */
    const int new_width = most.x;
    const int no_space = new_width > d.columns.max_columns || most.y - 1 > kv_columns;
    const int tokens = own.tokens >= 0 ? width - own.pad + own.tokens : 0;
    const int moves = own.tokens >= 0 && !no_space;
    if (own.tokens >= 0 && no_space) status |= SPECV_ROW_NO_SPACE;
    if (thread == 0) {
        specv_shift shift = {0, 0, 0, 0};
        if (moves) {
            shift.first = own.pad, shift.count = tokens > 0 ? tokens - 1 : 0;
            shift.by = new_width - tokens - own.pad;
        }
        d.shifts[b] = shift;
        specv_i_put_status(d.row_status, b, status, d.keep_status);
    }
    if (moves) specv_i_block_realign_row(&d, b, own.slot, width, new_width, own.pad, own.tokens);
    const int arrival = specv_i_block_leaves(d.ticket, now + specv_i_own_ticket(b, (int)gridDim.x),
                                             thread == 0, (int)gridDim.x);
    if (arrival == SPECV_I_BAD_TICKET && thread == 0)
        specv_i_put_status(d.row_status, b, SPECV_ROW_BAD_TICKET, 1);
    if (arrival != SPECV_I_LAST || no_space) return;
    for (int row = thread; row < live;) {
        if (its.tokens >= 0) d.pad_len[its.slot] = its.pad + new_width - width - its.tokens;
        row += SPECV_COLUMN_THREADS;
        if (row < live) its = specv_i_gain_of(&d, row, live, width, seats, &ignored);
    }
    if (thread == 0 && new_width > 0) *d.columns.width = new_width;
}

/* C1, KV. Grid: any number of blocks of SPECV_COLUMN_THREADS. Each looks at all rows, and of those
   that move takes its part: slices of a KV row, in one plane, all along the columns.
   Bytes: per block 16 a row (with slots 24), 8 a slice; each KV row that moves once read, once
   written. Round trips: (slots and) shifts; planes; then of a slice one for each
   SPECV_I_FLIGHT * SPECV_COLUMN_THREADS units, one behind the other. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_shift_kv_kernel(const __grid_constant__ specv_shift_kv_desc d) {
    __shared__ specv_shift movers[SPECV_COLUMN_THREADS]; /* reserved: the slot */
    __shared__ int32_t seats[SPECV_I_SEATS], scratch[SPECV_BLOCK_SCAN_SMEM_WORDS];
    const unsigned num_planes = (unsigned)d.kv.num_planes, num_blocks = gridDim.x;
    const unsigned slices = specv_i_shift_slices(&d.kv), each = num_planes * slices;
    unsigned item = blockIdx.x; /* of all movers before the end */
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch);
    specv_i_block_seat(d.slot, d.slot_dtype, d.num_slots, live, seats);
#pragma unroll 1
    for (int row0 = 0; row0 < d.batch; row0 += SPECV_COLUMN_THREADS) {
        const int b = row0 + specv_i_thread();
        specv_shift shift = {0, 0, 0, 0};
        uint32_t status = 0;
        int32_t num_movers, slot = b;
        if (b < live) {
            shift = specv_i_shift_row(&d, b, &status);
            slot = specv_i_seat(d.slot, d.slot_dtype, d.num_slots, b, seats, &status);
            if (slot < 0) shift.count = 0, status = SPECV_ROW_BAD_SLOT;
        }
        if (b < d.batch && (unsigned)b % num_blocks == blockIdx.x)
            specv_i_put_status(d.row_status, b, status, d.keep_status);
        const int at = specv_block_exclusive_scan(shift.count > 0, &num_movers, scratch);
        shift.reserved = slot;
        if (shift.count > 0) movers[at] = shift;
        __syncthreads();
        for (; item < (unsigned)num_movers * each; item += num_blocks) {
            const unsigned mover = item / each, part = item - mover * each;
            const unsigned plane = part / slices, slice = part - plane * slices;
            char *data = (char *)(d.kv.planes ? d.kv.planes[plane] : d.kv.plane);
            if (!data) continue;
            data += movers[mover].reserved * d.kv.seq_stride_bytes;
            specv_i_block_shift_slice(&d.kv, data, (int)slice, &movers[mover]);
        }
        item -= (unsigned)num_movers * each;
        __syncthreads(); /* shared memory is reused */
    }
}

/* C2. Grid: batch blocks of SPECV_COLUMN_THREADS, a block per row. A block arrives when it has read
   the old numbers. Bytes: per block 12 a row (with slots 16); the columns of the step of each
   array. Round trips: (slots;) numbers; tokens. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COLUMN_THREADS, 2)
    specv_gap_commit_kernel(const __grid_constant__ specv_gap_commit_desc d) {
    __shared__ int32_t seats[SPECV_I_SEATS];
    __shared__ int2 scratch[SPECV_COLUMN_THREADS / 32];
    const int b = (int)blockIdx.x, thread = specv_i_thread();
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch), width = *d.columns.width;
    uint32_t status = 0, ignored = 0, now = 0;
    int2 most = {-1, 0};
    specv_i_block_seat(d.slot, d.slot_dtype, d.num_slots, live, seats);
    const specv_i_gap own = specv_i_gap_of(&d, b, live, width, seats, &status);
    specv_i_gap its = {-1, 0, 0, 0, 0}; /* in the end of the thread's first row */
    for (int row = specv_i_last_row(d.batch); row >= 0; row -= SPECV_COLUMN_THREADS) {
        its = specv_i_gap_of(&d, row, live, width, seats, &ignored);
        if (its.ok && its.emitted > 0 && its.accepted > most.x) most.x = its.accepted;
    }
    const int furthest = specv_i_block_max(most, scratch).x;
    if (thread == 0) now = specv_i_arrive(d.ticket, b, (int)gridDim.x);
    const int no_space = furthest >= 0 && furthest + 1 > d.columns.max_columns - width;
    if (own.ok && no_space) status = SPECV_ROW_NO_SPACE;
    if (thread == 0) specv_i_put_status(d.row_status, b, status, d.keep_status);
    if (own.ok && !no_space) specv_i_block_gap_row(&d, b, &own, width, furthest);
    const int arrival = specv_i_block_leaves(d.ticket, now + specv_i_own_ticket(b, (int)gridDim.x),
                                             thread == 0, (int)gridDim.x);
    if (arrival == SPECV_I_BAD_TICKET && thread == 0)
        specv_i_put_status(d.row_status, b, SPECV_ROW_BAD_TICKET, 1);
    if (arrival != SPECV_I_LAST) return;
    for (int row = thread; row < live && !no_space;) {
        if (its.ok) d.text_len[its.slot] = its.content + its.emitted;
        row += SPECV_COLUMN_THREADS;
        if (row < live) its = specv_i_gap_of(&d, row, live, width, seats, &ignored);
    }
    if (thread == 0 && d.max_draft_lacks)
        *d.max_draft_lacks = !no_space && furthest == d.max_draft ? 2 : 1;
    if (thread == 0 && !no_space) *d.columns.width = width + furthest + 1;
}

#if !defined(__CUDACC_RTC__)

static int specv_i_launch_shift(const specv_shift_kv_desc *d, cudaStream_t stream) {
    const int64_t items = (int64_t)d->batch * d->kv.num_planes * specv_i_shift_slices(&d->kv);
    int num_sms, status = specv_i_num_sms(d->num_sms, &num_sms);
    if (status) return status;
    return specv_i_launch((const void *)specv_shift_kv_kernel,
                          items < 2 * num_sms ? items : 2 * num_sms, SPECV_COLUMN_THREADS, d,
                          d->chained, stream);
}

SPECV_LAUNCHER_BODY int specv_realign(const specv_realign_desc *desc, struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_realign_validate, desc);
    specv_shift_kv_desc shift = SPECV_ZERO;
    specv_realign_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_realign_resolve(&d);
    if (specv_i_has_planes(&d.kv)) d.chained = specv_i_first_of_two(desc->chained);
    status = specv_i_launch((const void *)specv_realign_kernel, d.batch, SPECV_COLUMN_THREADS, &d,
                            d.chained, stream);
    if (status || !specv_i_has_planes(&d.kv)) return status;
    shift.chained = specv_i_second_of_two(desc->chained);
    shift.num_active = d.num_active;
    shift.slot = d.slot;
    shift.num_sms = d.num_sms;
    shift.slot_dtype = d.slot_dtype;
    shift.num_slots = d.num_slots;
    shift.shifts = d.shifts;
    shift.kv = d.kv;
    shift.batch = d.batch;
    return specv_i_launch_shift(&shift, stream);
}

SPECV_LAUNCHER_BODY int specv_shift_kv(const specv_shift_kv_desc *desc,
                                       struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_shift_kv_validate, desc);
    specv_shift_kv_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_shift_kv_resolve(&d);
    return specv_i_launch_shift(&d, stream);
}

SPECV_LAUNCHER_BODY int specv_gap_commit(const specv_gap_commit_desc *desc,
                                         struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_gap_commit_validate, desc);
    specv_gap_commit_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_gap_commit_resolve(&d);
    return specv_i_launch((const void *)specv_gap_commit_kernel, d.batch, SPECV_COLUMN_THREADS, &d,
                          d.chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_COLUMNS */

/* ======================================================================== >>schedule-kernels */

#if !defined(SPECVERIFY_NO_SCHEDULE)

/* C3. Grid: one block of a thread per row, SPECV_COMPACT_THREADS at most, for the lists, one more
   for each slice of each carried array; all count for themselves. Bytes: 1 a row and block; lists
   once; elements that move once. Round trips: num_active; finished beside slots; lengths; stores. A
   slice: the first two, then one for each AHEAD units of its threads. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_COMPACT_THREADS, 1)
    specv_compact_kernel(const __grid_constant__ specv_compact_desc d) {
    enum { AHEAD = 4 };
    __shared__ int32_t dst[SPECV_COMPACT_THREADS], scratch[2][SPECV_BLOCK_SCAN_SMEM_WORDS];
    const int thread = specv_i_thread(), threads = specv_i_num_threads();
    int array = -1, slice = (int)blockIdx.x - 1;
    if (slice >= 0) /* of this array */
        for (array = 0; slice >= specv_i_num_slices(d.carry[array].elem_bytes); ++array)
            slice -= specv_i_num_slices(d.carry[array].elem_bytes);
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch);
    int32_t count = 0, lacks = 0;
#pragma unroll 1
    for (int row0 = 0; row0 < d.batch; row0 += threads) {
        const int b = row0 + thread;
        uint32_t status = 0;
        const int finished = b < live && d.finished[b];
        const int32_t slot =
            b < live ? specv_thread_slot(d.slot, d.slot_dtype, d.num_slots, b, &status) : -1;
        const int stays = slot >= 0 && !finished;
        int32_t total, to = count + specv_block_exclusive_scan(stays, &total, scratch[0]);
        if (array < 0) {
            int32_t len = stays && d.cache_len ? d.cache_len[slot] : 0;
            int32_t first = stays && d.draft_cache_len ? d.draft_cache_len[slot] : len;
            const int bad = len < 0 || len == SPECV_I_INT_MAX || first < 0 || first > len;
            int32_t mine = stays && !bad ? len + 1 - first : 0, sum;
            int32_t before = lacks + specv_block_exclusive_scan(mine, &sum, scratch[1]);
            if (stays) {
                d.active[to] = b;
                if (d.new_slot) specv_i_store_token(d.new_slot, d.slot_dtype, to, slot);
                if (d.start_position) d.start_position[to] = bad ? 0 : len;
                if (d.draft_lacks_first) d.draft_lacks_first[to] = bad ? 0 : first;
                if (d.draft_lacks_start) d.draft_lacks_start[to] = before;
            }
            if (finished) status = 0; /* its slot is nobody's business any more */
            if (bad) status |= SPECV_ROW_BAD_LENGTH;
            if (b < d.batch) specv_i_put_status(d.row_status, b, status, d.keep_status);
            lacks += sum;
        } else {
            const int64_t bytes = d.carry[array].elem_bytes;
            const int shift = specv_i_slice_shift(bytes);
            const int64_t begin = (int64_t)slice << shift, whole = (int64_t)1 << shift;
            char *data = (char *)d.carry[array].data;
            const int width = specv_i_unit_bytes((uint64_t)data | (uint64_t)bytes);
            const int64_t units = (bytes - begin < whole ? bytes - begin : whole) / (unsigned)width;
            const int of_row = units > 1 ? 64 - __clzll(units - 1) : 0; /* 2^of_row places a row */
            const int num_rows = d.batch - row0 < threads ? d.batch - row0 : threads;
            dst[thread] = stays && to < b ? to : -1;
            __syncthreads();
            /* Rows only move to the front: what a round stores has been loaded by then. */
#pragma unroll 1
            for (int64_t u0 = thread; u0 - thread < (int64_t)num_rows << of_row;
                 u0 += AHEAD * threads) {
                uint4 v[AHEAD];
                char *to[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    const int64_t u = u0 + k * threads, i = u >> of_row;
                    const int64_t unit = u - (i << of_row), at = begin + unit * width;
                    to[k] = 0;
                    if (i >= num_rows || unit >= units || dst[i] < 0) continue;
                    v[k] = specv_i_load_unit(data + (row0 + i) * bytes + at, width);
                    to[k] = data + dst[i] * bytes + at;
                }
                __syncthreads();
#pragma unroll
                for (int k = 0; k < AHEAD; ++k)
                    if (to[k]) specv_i_store_unit(to[k], v[k], width);
            }
        }
        count += total; /* scratch and dst are next written behind other barriers */
    }
    if (array >= 0) return;
    for (int i = count + thread; i <= d.batch; i += threads) {
        if (d.draft_lacks_start) d.draft_lacks_start[i] = lacks;
        if (i == d.batch) break;
        d.active[i] = -1;
        if (d.new_slot) specv_i_store_token(d.new_slot, d.slot_dtype, i, -1);
        if (d.start_position) d.start_position[i] = 0;
        if (d.draft_lacks_first) d.draft_lacks_first[i] = 0;
    }
    if (thread == 0) *d.new_num_active = count;
}

/* C4. Grid: ceil(batch / SPECV_GROUP_ROWS) blocks. A row's place is the number of keys below its
   own: all pairs are compared, which is work for many SMs and needs no passes. The last block to
   arrive finds the groups, with the keys it has if SPECV_GROUP_TILE rows are all. Bytes: per block
   4 (5) a row; order once, and again; above SPECV_GROUP_TILE rows keys twice. Round trips: a tile's
   keys, 2 (3); arrival; order. For each SPECV_GROUP_TILE rows more, keys once in every block and
   once in the last. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_GROUP_THREADS)
    specv_group_kernel(const __grid_constant__ specv_group_desc d) {
    enum { AHEAD = SPECV_I_GROUP_AHEAD };
    __shared__ uint64_t keys[SPECV_GROUP_TILE], best;
    __shared__ int32_t scratch[SPECV_BLOCK_SCAN_SMEM_WORDS], first[SPECV_GROUP_THREADS];
    __shared__ int32_t num_taken;
    __shared__ uint32_t words[SPECV_GROUP_THREADS];
    const int lanes = SPECV_GROUP_THREADS / SPECV_GROUP_ROWS; /* of a row */
    const int thread = specv_i_thread(), lane = thread % lanes, num_pick = d.num_pick;
    const int b = (int)blockIdx.x * SPECV_GROUP_ROWS + thread / lanes;
    const int tiles = (d.batch + SPECV_GROUP_TILE - 1) / SPECV_GROUP_TILE;
    uint64_t key = SPECV_I_LEFT_OUT, ahead[AHEAD];
    int32_t rows[AHEAD], rank = 0, groups = 0, start = 0, found = 0, total;
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch);
    if (thread == 0) num_taken = 0, best = ~(uint64_t)0;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) { /* the own tile first */
        const int tile = ((int)blockIdx.x * SPECV_GROUP_ROWS / SPECV_GROUP_TILE + t) % tiles;
        const int row0 = tile * SPECV_GROUP_TILE, left = d.batch - row0;
        const int size = left < SPECV_GROUP_TILE ? left : SPECV_GROUP_TILE;
        int32_t taken = 0;
        __syncthreads(); /* the tile before has been read */
#pragma unroll 1
        for (int i = thread; i - thread < size; i += AHEAD * SPECV_GROUP_THREADS) {
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) rows[u] = row0 + i + u * SPECV_GROUP_THREADS;
            specv_i_group_keys(&d, rows, live, ahead);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                if (i + u * SPECV_GROUP_THREADS >= size) continue;
                keys[i + u * SPECV_GROUP_THREADS] = ahead[u];
                taken += ahead[u] < SPECV_I_HAS_NO_SLOT;
            }
        }
        taken = specv_warp_reduce_add(taken);
        if (specv_i_lane() == 0) atomicAdd(&num_taken, taken);
        __syncthreads();
        if (t == 0 && b < d.batch) key = keys[b - row0];
#pragma unroll 8
        for (int j = lane; j < size; j += lanes) rank += keys[j] < key;
    }
    for (int apart = lanes / 2; apart > 0; apart /= 2)
        rank += __shfl_xor_sync(SPECV_FULL_WARP, rank, apart);
    const int count = num_taken;
    if (lane == 0 && key < SPECV_I_HAS_NO_SLOT) d.order[rank] = b;
    if (lane == 0 && b < d.batch && b >= count) d.order[b] = -1;
    const int arrival = specv_i_block_arrives(d.ticket, (int)blockIdx.x, (int)gridDim.x);
    uint32_t status = key == SPECV_I_HAS_NO_SLOT ? SPECV_ROW_BAD_SLOT : 0;
    if (arrival == SPECV_I_BAD_TICKET && thread == 0 && d.group_count) *d.group_count = -1;
    if (arrival == SPECV_I_BAD_TICKET) status |= SPECV_ROW_BAD_TICKET;
    if (lane == 0 && b < d.batch) specv_i_put_status(d.row_status, b, status, d.keep_status);
    if (arrival != SPECV_I_LAST) return;
    uint32_t last_word = 0; /* of the turn before */
#pragma unroll 1
    for (int r0 = thread; r0 - thread < count; r0 += AHEAD * SPECV_GROUP_THREADS) {
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int r = r0 + u * SPECV_GROUP_THREADS;
            rows[u] = r < count ? d.order[r] : -1;
        }
        if (tiles > 1) specv_i_group_keys(&d, rows, live, ahead);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            if (tiles == 1) ahead[u] = rows[u] < 0 ? 0 : keys[rows[u]];
#pragma unroll 1
        for (int r = r0; r - r0 < AHEAD * SPECV_GROUP_THREADS && r - thread < count;
             r += SPECV_GROUP_THREADS) {
            const uint32_t word = (uint32_t)(ahead[0] >> 32);
            words[thread] = word;
            __syncthreads();
            const int head =
                r < count && (r == 0 || word != (thread ? words[thread - 1] : last_word));
            last_word = words[SPECV_GROUP_THREADS - 1];
            const int g = specv_block_exclusive_scan(head, &total, scratch) + head - 1;
            if (head) first[g] = r;
            if (head && d.group_start) d.group_start[groups + g] = r;
            __syncthreads();
            if (r < count && r - (g < 0 ? start : first[g]) == num_pick - 1) /* the last to pick */
                atomicMin((unsigned long long *)&best,
                          (unsigned long long)(uint32_t)rows[0] << 32 | (uint32_t)r);
            if (total) start = first[total - 1];
            groups += total;
#pragma unroll
            for (int u = 1; u < AHEAD; ++u) ahead[u - 1] = ahead[u], rows[u - 1] = rows[u];
        }
    }
    __syncthreads(); /* best is whole */
    if (d.group_start)
        for (int g = groups + thread; g <= d.batch; g += SPECV_GROUP_THREADS)
            d.group_start[g] = count;
    if (thread == 0 && d.group_count) *d.group_count = groups;
    if (thread == 0 && d.is_group) *d.is_group = best != ~(uint64_t)0;
    if (!d.pick_rows) return;
    if (best != ~(uint64_t)0) {
        for (int i = thread; i < num_pick; i += SPECV_GROUP_THREADS)
            d.pick_rows[i] = d.order[(int)(uint32_t)best - num_pick + 1 + i];
        return;
    }
#pragma unroll 1
    for (int row0 = 0; row0 < live && found < num_pick; row0 += SPECV_GROUP_THREADS) {
        const int row = row0 + thread;
        rows[0] = row, rows[1] = rows[2] = rows[3] = -1;
        if (tiles > 1)
            specv_i_group_keys(&d, rows, live, ahead);
        else
            ahead[0] = row < live ? keys[row] : SPECV_I_LEFT_OUT;
        const int takes = ahead[0] < SPECV_I_HAS_NO_SLOT;
        const int at = found + specv_block_exclusive_scan(takes, &total, scratch);
        if (takes && at < num_pick) d.pick_rows[at] = row;
        found += total;
        __syncthreads(); /* scratch is reused */
    }
    for (int i = found + thread; i < num_pick; i += SPECV_GROUP_THREADS) d.pick_rows[i] = -1;
}

/* C5. Grid: one block of a thread per row, SPECV_BUDGET_THREADS at most. The smallest survival that
   is kept is found ten bits at a time. Survivals are in shared memory if they fit: up to as many
   rows as threads, SPECV_BUDGET_NEAR drafts; else where they were written. Bytes: confidence once,
   survival once; what does not fit three times and twice log2(max_draft) of a row. Round trips:
   lengths beside the budget; one for each AHEAD drafts. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_BUDGET_THREADS, 1)
    specv_draft_budget_kernel(const __grid_constant__ specv_draft_budget_desc d) {
    enum { AHEAD = 8 };
    __shared__ float local[SPECV_BUDGET_NEAR];
    __shared__ int32_t scratch[2][SPECV_BLOCK_SCAN_SMEM_WORDS];
    const int thread = specv_i_thread(), threads = specv_i_num_threads();
    const int batch = d.rows.batch, max_draft = d.rows.max_draft;
    const int64_t odd = max_draft | 1; /* rows in different banks */
    const int fits = batch <= threads && batch * odd <= SPECV_BUDGET_NEAR;
    specv_i_survivals s = {fits ? local : d.survival, fits ? odd : max_draft, fits ? 0 : -1};
    int32_t ties = d.max_budget, kept = 0, tied = 0;
    specv_i_begin(d.chained);
    const int32_t budget = d.budget ? *d.budget : ties;
    for (int b = thread; b < batch; b += threads) {
        const specv_row row = specv_thread_load_row(&d.rows, b);
        const float *confidence = d.confidence + b * d.confidence_stride_elems;
        uint32_t status = row.status;
        float survival = 1;
        if (fits) s.n_draft = row.n_draft;
#pragma unroll 1
        for (int j0 = 0; j0 < max_draft; j0 += AHEAD) {
            float ahead[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                ahead[u] = j0 + u < row.n_draft ? confidence[j0 + u] : 0;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                uint32_t bits = specv_float_bits(ahead[u]);
                if (j0 + u >= max_draft) continue;
                if (bits == 0x80000000u) bits = 0;                         /* -0 */
                if (bits > 0x3f800000u) bits = 0, status |= SPECV_ROW_NAN; /* not in 0..1 */
                survival = specv_i_mul(survival, specv_bits_float(bits));
                d.survival[b * (int64_t)max_draft + j0 + u] = survival;
                if (fits) local[b * odd + j0 + u] = survival;
            }
        }
        specv_i_put_status(d.row_status, b, status, d.keep_status);
    }
    if (budget < ties) ties = budget;
    const uint32_t threshold = specv_i_block_nth_survival(&d, &s, &ties);
#pragma unroll 1
    for (int row0 = 0; row0 < batch; row0 += threads) {
        const int b = row0 + thread;
        int32_t larger = 0, equal = 0, total, before, take;
        if (b < batch) {
            const float *survival = s.first + b * s.stride;
            const int n_draft = specv_i_survivals_of(&d, &s, b);
            larger = specv_i_survivors(survival, n_draft, threshold + 1);
            equal = specv_i_survivors(survival, n_draft, threshold) - larger;
        }
        take = ties - tied - specv_block_exclusive_scan(equal, &total, scratch[0]);
        take = take < 0 ? 0 : take < equal ? take : equal;
        tied += total;
        before = kept + specv_block_exclusive_scan(larger + take, &total, scratch[1]);
        if (b < batch) {
            d.new_draft_len[b] = larger + take;
            if (d.new_row_start) d.new_row_start[b] = before;
        }
        kept += total; /* the two scratches are next written behind each other's barriers */
    }
    if (thread == 0 && d.new_row_start) d.new_row_start[batch] = kept;
}

#if !defined(__CUDACC_RTC__)

SPECV_LAUNCHER_BODY int specv_compact(const specv_compact_desc *desc, struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_compact_validate, desc), blocks = 1;
    if (status != SPECV_OK || desc->batch == 0) return status;
    for (int i = 0; i < desc->num_carry; ++i)
        blocks += specv_i_num_slices(desc->carry[i].elem_bytes);
    return specv_i_launch((const void *)specv_compact_kernel, blocks,
                          specv_i_threads_for(desc->batch, SPECV_COMPACT_THREADS), desc,
                          desc->chained, stream);
}

SPECV_LAUNCHER_BODY int specv_group(const specv_group_desc *desc, struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_group_validate, desc);
    if (status != SPECV_OK || desc->batch == 0) return status;
    return specv_i_launch((const void *)specv_group_kernel,
                          ((int64_t)desc->batch + SPECV_GROUP_ROWS - 1) / SPECV_GROUP_ROWS,
                          SPECV_GROUP_THREADS, desc, desc->chained, stream);
}

SPECV_LAUNCHER_BODY int specv_draft_budget(const specv_draft_budget_desc *desc,
                                           struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_draft_budget_validate, desc);
    specv_draft_budget_desc d;
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    d = *desc;
    specv_draft_budget_resolve(&d);
    return specv_i_launch((const void *)specv_draft_budget_kernel, 1,
                          specv_i_threads_for(d.rows.batch, SPECV_BUDGET_THREADS), &d, d.chained,
                          stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_SCHEDULE */

/* ======================================================================= >>particles-kernels */

#if !defined(SPECVERIFY_NO_PARTICLES)

/* D1. Grid: a thread per particle, blocks of SPECV_PARTICLE_THREADS. Loads go ahead of the first
   EOS, which nobody knows yet: their rows are there. Bytes: 8 (12, 16) a draft, 41 to 65 a
   particle; with slots B of them in each block. Round trips: num_active; SPECV_I_DRAFTED drafts
   beside what the particle has; with slots 2 between these; one for each SPECV_I_DRAFTED drafts
   more. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PARTICLE_THREADS)
    specv_particle_weights_kernel(const __grid_constant__ specv_particle_weights_desc d) {
    __shared__ int32_t seats[SPECV_I_SEATS];
    const int64_t b = (int64_t)blockIdx.x * SPECV_PARTICLE_THREADS + specv_i_thread();
    specv_i_begin(d.chained);
    const int live = specv_i_num_live(d.num_active, d.batch);
    int32_t emitted = 0, slot = -1;
    uint32_t status = 0;
    specv_i_drafted ahead;
    if (b < live && d.max_draft > 0) specv_i_load_drafted(&d, b, 0, &ahead);
    specv_i_block_seat(d.slot, d.slot_dtype, d.num_slots, live, seats);
    if (b >= d.batch) return;
    if (b < live) slot = specv_i_seat(d.slot, d.slot_dtype, d.num_slots, (int)b, seats, &status);
    if (slot >= 0) {
        const float alpha = d.alpha ? d.alpha[slot] : 1.f, lse = d.bonus_lse ? d.lse[b] : 0;
        const float bonus_lse = d.bonus_lse ? d.bonus_lse[b] : 0;
        const double log_weight = d.log_weight[slot], interval = d.interval_weight[slot];
        uint2 next = {0, 0};
        if (d.next_token) specv_i_load_token(&next, d.next_token, d.token_dtype, b);
        const int was_finished = d.finished[slot] != 0;
        const int64_t bonus = specv_i_token(next, d.token_dtype);
        int ended = was_finished;
        double gain = 0;
#pragma unroll 1
        for (int j0 = 0; j0 < d.max_draft && !ended; j0 += SPECV_I_DRAFTED) {
            if (j0 > 0) specv_i_load_drafted(&d, b, j0, &ahead);
#pragma unroll
            for (int u = 0; u < SPECV_I_DRAFTED; ++u) {
                if (j0 + u >= d.max_draft || ended) continue;
                gain = specv_i_weigh(gain, alpha, ahead.p[u], ahead.q[u]);
                ended = d.draft_tokens &&
                        specv_i_is_one_of(d.eos_token, d.num_eos,
                                          specv_i_token(ahead.token[u], d.token_dtype));
                emitted += 1;
            }
        }
        if (!ended) {
            if (d.bonus_lse)
                gain = specv_i_weigh(gain, specv_i_negate(alpha), lse, specv_i_negate(bonus_lse));
            if (d.next_token) ended = specv_i_is_one_of(d.eos_token, d.num_eos, bonus);
            emitted += bonus >= 0;
        }
        if (ended && !was_finished) d.finished[slot] = 1;
        gain = specv_i_clean_weight(gain, &status);
        d.log_weight[slot] = specv_i_clean_weight(specv_i_add_double(log_weight, gain), &status);
        d.interval_weight[slot] = specv_i_clean_weight(specv_i_add_double(interval, gain), &status);
    }
    if (d.num_emitted) d.num_emitted[b] = emitted;
    specv_i_put_status(d.row_status, b, status, d.keep_status);
}

/* D2. Grid: a block per group, a thread per particle (rounded up to whole warps).
   Bytes: 8 (16) a particle read, 16 written if it resamples, 8 a job. Round trips: 1; with
   num_active_groups 2, with group_slot 3 or more. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PLAN_THREADS, 1)
    specv_resample_plan_kernel(const __grid_constant__ specv_resample_plan_desc d) {
    __shared__ specv_i_plan plan;
    const int g = (int)blockIdx.x, i = specv_i_thread(), n = d.num_particles;
    const int64_t row = (int64_t)g * n + i;
    const long long none = (long long)(SPECV_I_MINUS_INFINITY ^ 0x7fffffffffffffffu);
    uint64_t w = 0, upto = 0, sums[4] = {0, 0, 0, 0}, both, of_both;
    double weight = specv_i_bits_double(SPECV_I_MINUS_INFINITY), max, ess = 0, log_z = 0;
    uint32_t status = 0, of_slot = 0;
    int32_t count = 1, slot = -1;
    int any, resamples = 0;
    specv_i_lots draw = {0, 0, 0};
    specv_i_begin(d.chained);
    if (g < specv_i_num_live(d.num_active_groups, d.num_groups))
        slot = specv_warp_slot(d.group_slot, d.group_slot_dtype, d.num_group_slots, g, &of_slot);
    const int live = slot >= 0;
    const int64_t state = (int64_t)slot * n + i; /* of the particle */
    if (live && i < n) {
        weight = d.interval_weight[state];
        if (d.log_z && i == 0) log_z = d.log_z[slot];
        if (d.seed) draw.seed = d.seed[slot], draw.position = d.position[slot];
        if (d.uniform) draw.uniform = d.uniform[d.scheme == SPECV_RESAMPLE_SYSTEMATIC ? g : row];
        weight = specv_i_clean_weight(weight, &status);
    }
    if (i == 0) plan.max = none, plan.status = 0;
    status = __syncthreads_or(status != 0) ? SPECV_ROW_NAN : 0;
    {
        const uint64_t bits = specv_i_double_bits(weight);
        long long ordered = (long long)(bits >> 63 ? bits ^ 0x7fffffffffffffffu : bits);
        for (int apart = 16; apart > 0; apart /= 2) {
            const long long other = __shfl_xor_sync(SPECV_FULL_WARP, ordered, apart);
            if (other > ordered) ordered = other;
        }
        if (specv_i_lane() == 0) atomicMax(&plan.max, ordered); /* a loop: once for each warp */
        __syncthreads();
        ordered = plan.max;
        any = ordered != none;
        max = specv_i_bits_double(ordered < 0 ? (uint64_t)ordered ^ 0x7fffffffffffffffu
                                              : (uint64_t)ordered);
    }
    if (any && i < n) w = specv_i_particle_units(weight, max);
    if (any) {
        const uint64_t h = w >> 20, l = w & 0xfffff;
        sums[0] = w, sums[1] = h * h, sums[2] = h * l, sums[3] = l * l;
        upto = specv_i_block_add_4(sums, plan.scratch);
        if (d.drawn_row) {
            const uint64_t at = specv_i_mul_high(
                specv_i_resample_bits(draw.seed, draw.position, SPECV_MAX_PARTICLES), sums[0]);
            if (upto > at && upto - w <= at) d.drawn_row[g] = (int32_t)row;
        }
        ess = specv_i_effective(sums[0], sums[1], sums[2], sums[3]);
        resamples = n > 1 && ess < specv_i_mul_double(d.threshold, (double)n);
    } else {
        if (live) status |= SPECV_ROW_EMPTY;
        if (i == 0 && d.drawn_row) d.drawn_row[g] = -1;
    }
    if (resamples) {
        specv_i_block_ancestors(&d, &draw, &plan, w, upto, sums[0]);
        status |= plan.status;
        if (i < n) {
            count = plan.counts[i];
            d.interval_weight[state] = 0;
            if (d.log_weight) d.log_weight[state] = 0;
        }
        if (i == 0 && d.log_z)
            d.log_z[slot] = specv_i_add_double(log_z, specv_i_log_mean(sums[0], n, max));
    }
    /* Spare copies in the low word, the dead in the high one. */
    both = (uint64_t)(count == 0) << 32 | (uint32_t)(count > 1 ? count - 1 : 0);
    const uint64_t before = specv_i_block_inclusive_add(both, &of_both, plan.more[1]) - both;
    const int32_t dead = (int32_t)(before >> 32), num_jobs = (int32_t)(of_both >> 32);
    plan.spare[i] = (int32_t)(uint32_t)before;
    __syncthreads();
    if (count == 0) {
        int32_t *job = d.jobs + 2 * ((int64_t)g * (n - 1) + dead);
        job[0] = g * n + specv_i_find_row(plan.spare, 0, n, dead);
        job[1] = (int32_t)row;
    }
    for (int j = 2 * num_jobs + i; j < 2 * (n - 1); j += specv_i_num_threads())
        d.jobs[2 * (int64_t)g * (n - 1) + j] = -1;
    if (i < n && d.num_copies) d.num_copies[row] = live ? count : 0;
    if (i == 0) {
        d.num_jobs[g] = num_jobs;
        if (d.ess) d.ess[g] = ess;
        specv_i_put_status(d.group_status, g, live ? status : of_slot, d.keep_status);
    }
}

/* D3. Work: task.chunks pieces of each job there may be; those of jobs that there are not cost one
   load. Grid: at most a block of SPECV_PARTICLE_THREADS for each. The last block to arrive writes
   what all have read. Bytes: 8 a table entry that stays, 28 one that changes; text once; 32 a job,
   in and out; 4 a page that is freed, and a bit for each that there is. Round trips: a job's rows,
   its numbers (with slots 2 or more between them), table entries beside text, owners; arrival; what
   was found, marks, jobs. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_PARTICLE_THREADS, 2)
    specv_reshuffle_kernel(const __grid_constant__ specv_reshuffle_task task) {
    const specv_reshuffle_desc *d = &task.d;
    uint32_t *const ticket = (uint32_t *)d->scratch, *const found = ticket + 1;
    specv_i_job *const done = (specv_i_job *)(ticket + specv_i_marks_at(d, d->num_caches));
    const int thread = specv_i_thread(), num_jobs = d->num_groups * d->max_jobs;
    const int step = task.chunks * SPECV_PARTICLE_THREADS;
    uint32_t seen = 0;
    specv_i_begin(d->chained);
#pragma unroll 1
    for (int item = (int)blockIdx.x; item < num_jobs * task.chunks; item += (int)gridDim.x) {
        const int job = item / task.chunks, chunk = item - job * task.chunks;
        const int at = chunk * SPECV_PARTICLE_THREADS + thread;
        int32_t src, held[SPECV_MAX_CACHES];
        specv_i_job r;
        if (!specv_i_load_job(d, job, &src, held, &r)) continue;
        if (chunk == 0 && thread == 0) done[job] = r;
        if (r.status) continue;
#pragma unroll
        for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
            if (i >= d->num_caches) continue;
            const specv_particle_cache *c = &d->cache[i];
            const uint32_t bits = specv_i_share_entries(
                c, ticket + specv_i_marks_at(d, i), c->block_table + src * c->table_stride_elems,
                c->block_table + r.dst * c->table_stride_elems, r.pages[i], held[i], at, step);
            seen |= (bits & 1) | (bits & 2) << i;
        }
        if (d->text) {
            const int64_t size = d->token_dtype == SPECV_I64 ? 8 : 4;
            const int64_t row_bytes = d->text_stride_elems * size;
            char *text = (char *)d->text;
            specv_i_copy(text + r.dst * row_bytes, text + src * row_bytes, r.text_len * size, at,
                         step);
        }
#pragma unroll 1
        for (int i = 0; i < d->num_carry; ++i) { /* small ones are of one warp: each of another */
            const int64_t bytes = d->carry[i].elem_bytes;
            char *data = (char *)d->carry[i].data;
            specv_i_copy(data + r.dst * bytes, data + src * bytes, bytes,
                         at ^ i % (SPECV_PARTICLE_THREADS / 32) * 32, step);
        }
    }
    seen = specv_i_warp_or(seen);
    if (seen && specv_i_lane() == 0) atomicOr(found, seen);
    const int arrival = specv_i_block_arrives(ticket, (int)blockIdx.x, (int)gridDim.x);
    if (arrival == SPECV_I_NOT_LAST) return;
    const int lost = arrival == SPECV_I_BAD_TICKET; /* others are still at it: nothing of theirs */
    uint32_t of_all = lost ? SPECV_ROW_BAD_TICKET : 0;
    if (!lost) {
        const uint32_t bits = *found;
        if (bits & 1) of_all = SPECV_ROW_BAD_PAGE;
#pragma unroll 1
        for (int i = 0; i < d->num_caches; ++i)
            if (bits >> i & 2 &&
                specv_i_block_free_pages(&d->cache[i], ticket + specv_i_marks_at(d, i)))
                of_all = SPECV_ROW_BAD_PAGE;
        __syncthreads(); /* bits are read */
        if (thread == 0) *found = 0;
    }
    const int live = specv_i_num_live(d->num_active_groups, d->num_groups);
    for (int j = thread; j < num_jobs; j += SPECV_PARTICLE_THREADS) {
        const int group = j / d->max_jobs;
        const int exists = group < live && j - group * d->max_jobs < d->num_jobs[group];
        uint32_t status = exists ? of_all : 0;
        if (exists && !lost) {
            const specv_i_job r = done[j];
            status |= r.status;
#pragma unroll
            for (int i = 0; i < SPECV_MAX_CACHES; ++i) {
                const specv_particle_cache *c = &d->cache[i];
                if (r.status || i >= d->num_caches) continue;
                c->num_row_pages[r.dst] = r.pages[i], c->cache_len[r.dst] = r.len[i];
            }
            if (d->text_len && !r.status) d->text_len[r.dst] = r.text_len;
        }
        specv_i_put_status(d->job_status, j, status, d->keep_status);
    }
}

#if !defined(__CUDACC_RTC__)

SPECV_LAUNCHER_BODY int specv_particle_weights(const specv_particle_weights_desc *desc,
                                               struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_particle_weights_validate, desc);
    specv_particle_weights_desc d;
    if (status != SPECV_OK || desc->batch == 0) return status;
    d = *desc;
    specv_particle_weights_resolve(&d);
    return specv_i_launch((const void *)specv_particle_weights_kernel,
                          ((int64_t)d.batch + SPECV_PARTICLE_THREADS - 1) / SPECV_PARTICLE_THREADS,
                          SPECV_PARTICLE_THREADS, &d, d.chained, stream);
}

SPECV_LAUNCHER_BODY int specv_resample_plan(const specv_resample_plan_desc *desc,
                                            struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_resample_plan_validate, desc);
    if (status != SPECV_OK || desc->num_groups == 0) return status;
    return specv_i_launch((const void *)specv_resample_plan_kernel, desc->num_groups,
                          (desc->num_particles + 31) / 32 * 32, desc, desc->chained, stream);
}

SPECV_LAUNCHER_BODY int specv_reshuffle(const specv_reshuffle_desc *desc,
                                        struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_reshuffle_validate, desc);
    int64_t jobs, longest = 1, blocks;
    int num_sms;
    specv_reshuffle_task task = SPECV_ZERO;
    if (status != SPECV_OK || desc->batch == 0) return status;
    if ((jobs = (int64_t)desc->num_groups * desc->max_jobs) == 0) return status;
    task.d = *desc;
    specv_reshuffle_resolve(&task.d);
    for (int i = 0; i < desc->num_caches; ++i)
        if (desc->cache[i].max_row_pages > longest) longest = desc->cache[i].max_row_pages;
    if (desc->text && desc->text_stride_elems / 8 > longest) longest = desc->text_stride_elems / 8;
    /* A long context is the work of several blocks, each with a few entries a thread. */
    task.chunks = (int32_t)(longest / (4 * SPECV_PARTICLE_THREADS) + 1);
    if (task.chunks > 16) task.chunks = 16;
    if ((status = specv_i_num_sms(desc->num_sms, &num_sms)) != 0) return status;
    blocks = jobs * task.chunks; /* each takes a ticket: a few for each SM suffice */
    if (blocks > 4 * num_sms) blocks = 4 * num_sms;
    return specv_i_launch((const void *)specv_reshuffle_kernel, blocks, SPECV_PARTICLE_THREADS,
                          &task, desc->chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_PARTICLES */

/* =========================================================================== >>stats-kernels */

#if !defined(SPECVERIFY_NO_STATS)

/* E. Grid: one block of SPECV_STATS_THREADS. Bytes: 4 to 13 per row, 8 (16) per counter; a row's
   tokens up to its first placeholder, for every SPECV_TILE_ROWS bins. Round trips: 1; with
   tokens 1 more for every 8 of the longest row. */
SPECV_KERNEL_BODY __launch_bounds__(SPECV_STATS_THREADS)
    specv_accept_stats_kernel(const __grid_constant__ specv_accept_stats_desc d) {
    __shared__ int32_t bins[SPECV_TILE_ROWS], sums[SPECV_STAT_COUNT];
    const int thread = specv_i_thread();
    const int64_t num_bins = (int64_t)d.rows.max_draft + 1;
    specv_i_begin(d.chained);
    for (int64_t bin0 = 0; bin0 < num_bins; bin0 += SPECV_TILE_ROWS) {
        int64_t left = num_bins - bin0;
        int tile_bins = left < SPECV_TILE_ROWS ? (int)left : SPECV_TILE_ROWS;
        for (int i = thread; i < tile_bins; i += SPECV_STATS_THREADS) bins[i] = 0;
        for (int i = thread; i < SPECV_STAT_COUNT; i += SPECV_STATS_THREADS) sums[i] = 0;
        __syncthreads();
        for (int row0 = 0; row0 < d.rows.batch; row0 += SPECV_STATS_THREADS) {
            int32_t count[SPECV_STAT_COUNT] = {0}; /* of this thread's row */
            int b = row0 + thread;
            if (b < d.rows.batch) {
                specv_row row = specv_thread_load_row(&d.rows, b);
                const int32_t len = d.accepted_len[b];
                int64_t emitted = (int64_t)len + 1;
                int mismatch = 1;
                if (row.live && d.num_emitted) emitted = d.num_emitted[b];
                if (row.live && d.mismatch) mismatch = d.mismatch[b] != 0;
                if (d.draft_tokens)
                    row.n_draft = specv_i_drafts_of_row(
                        &d, specv_i_is_csr(&d.rows) ? row.first : b * d.draft_stride_elems,
                        row.n_draft);
                if (!row.live) {
                    /* counts nowhere */
                } else if (row.status || len < 0 || len > row.n_draft || emitted < 0 ||
                           emitted > len + 1) {
                    count[SPECV_STAT_BAD_ROWS] = 1;
                } else {
                    count[SPECV_STAT_ROWS] = 1;
                    count[SPECV_STAT_DRAFTED] = row.n_draft;
                    count[SPECV_STAT_ACCEPTED] = len;
                    count[SPECV_STAT_REJECTED] = mismatch & (len < row.n_draft);
                    count[SPECV_STAT_EMITTED] = (int32_t)emitted;
                    if (len >= bin0 && len < bin0 + tile_bins) atomicAdd(&bins[len - bin0], 1);
                }
            }
#pragma unroll
            for (int s = SPECV_STAT_ROWS; s < SPECV_STAT_COUNT; ++s) {
                const int flag =
                    s == SPECV_STAT_ROWS || s == SPECV_STAT_REJECTED || s == SPECV_STAT_BAD_ROWS;
                const int32_t sum = flag ? __popc(__ballot_sync(SPECV_FULL_WARP, count[s]))
                                         : specv_warp_reduce_add(count[s]);
                if (specv_i_lane() == 0 && sum) atomicAdd(&sums[s], sum);
            }
        }
        __syncthreads();
        if (d.histogram)
            for (int i = thread; i < tile_bins; i += SPECV_STATS_THREADS)
                d.histogram[bin0 + i] = bins[i] + (d.accumulate ? d.histogram[bin0 + i] : 0);
        if (d.totals && bin0 == 0 && thread < SPECV_STAT_COUNT) {
            int64_t sum = thread == SPECV_STAT_STEPS ? sums[SPECV_STAT_ROWS] > 0 : sums[thread];
            d.totals[thread] = sum + (d.accumulate ? d.totals[thread] : 0);
        }
        __syncthreads(); /* bins and sums are reused */
    }
}

#if !defined(__CUDACC_RTC__)

SPECV_LAUNCHER_BODY int specv_accept_stats(const specv_accept_stats_desc *desc,
                                           struct CUstream_st *stream) {
    int status = SPECV_I_VALIDATE(specv_accept_stats_validate, desc);
    specv_accept_stats_desc d;
    if (status != SPECV_OK || desc->rows.batch == 0) return status;
    d = *desc;
    specv_accept_stats_resolve(&d);
    return specv_i_launch((const void *)specv_accept_stats_kernel, 1, SPECV_STATS_THREADS, &d,
                          d.chained, stream);
}

#endif /* !__CUDACC_RTC__ */
#endif /* SPECVERIFY_NO_STATS */

#if !defined(__CUDACC_RTC__)
#undef SPECV_I_VALIDATE
#endif
#pragma nv_diagnostic pop
#endif /* __CUDACC__ */
#endif /* SPECVERIFY_IMPLEMENTATION */

/* ================================================================================ >>license

   MIT No Attribution

   Copyright 2026 the specverify authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software
   and associated documentation files (the "Software"), to deal in the Software without
   restriction, including without limitation the rights to use, copy, modify, merge, publish,
   distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
   Software is furnished to do so.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
   BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
