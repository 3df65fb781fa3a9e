/* The reference alone, as C and as C++, without CUDA: two rows of three drafts, packed. */
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"
#include "specverify_ref.h"

#if !defined(SPECVERIFY_REF_IMPLEMENTATION_INCLUDED)
#error "the implementation is missing"
#endif

int main(void) {
    const int32_t draft[6] = {5, 6, 7, 1, 2, 3}, target[8] = {5, 6, 9, 9, 1, 2, 3, 4};
    const char kv[12] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'};
    const char expected[12] = {'a', 'b', 'c', 'd', 'g', 'h', 'i', 'j', 'k', 'l', '-', '-'};
    char packed[12] = {'-', '-', '-', '-', '-', '-', '-', '-', '-', '-', '-', '-'};
    int32_t accepted[2], next[2], offsets[3];
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify.rows.batch = 2;
    d.verify.rows.max_draft = 3;
    d.verify.draft_tokens = draft;
    d.verify.target_tokens = target;
    d.verify.accepted_len = accepted;
    d.verify.next_token = next;
    d.kv.src = kv;
    d.kv.dst = packed;
    d.kv.row_bytes = 2;
    d.kv.capacity_rows = 6;
    d.kv.offsets = offsets;
    if (specv_ref_verify_pack_kv(&d) != SPECV_OK) return 1;
    if (accepted[0] != 2 || accepted[1] != 3 || next[0] != 9 || next[1] != 4) return 2;
    if (offsets[0] != 0 || offsets[1] != 2 || offsets[2] != 5) return 3;
    return specv_ref_diff(packed, expected, 12, 1, NULL) == 0 ? 0 : 4;
}
