/* No CUDA at all: the reference runs the same descriptor on host memory.

       cc -std=c99 -I ../.. -o ref_only ref_only.c && ./ref_only

   accepted 2 0, next 77 31
   text: the small dog
   text: a
   packed: [the] [small]
   OK */
#include <stdio.h>
#include <string.h>
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

int main(void) {
    /* Ragged (CSR): row 0 has 3 drafts, row 1 none. KV rows lie where the drafts lie. */
    const int32_t row_start[3] = {0, 3, 3};
    const int32_t draft[3] = {10, 20, 30}, target[5] = {10, 20, 77, 5, 31};
    const char kv[3][8] = {"the", "small", "cat"};
    char packed[6][8] = {""};
    int32_t accepted[2], next[2], text[2][4], offsets[3];
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    int status;

    d.verify.rows.batch = 2;
    d.verify.rows.max_draft = 3;
    d.verify.rows.row_start = row_start;
    d.verify.rows.num_draft_tokens = 3;
    d.verify.draft_tokens = draft;
    d.verify.target_tokens = target;
    d.verify.accepted_len = accepted;
    d.verify.next_token = next;
    d.verify.out_tokens = text;
    d.kv.src = kv;
    d.kv.dst = packed;
    d.kv.row_bytes = sizeof packed[0];
    d.kv.capacity_rows = 6;
    d.kv.offsets = offsets;
    status = specv_ref_verify_pack_kv(&d);
    if (status != SPECV_OK) {
        fprintf(stderr, "%s\n", specv_status_string(status));
        return 1;
    }

    printf("accepted %d %d, next %d %d\n", accepted[0], accepted[1], next[0], next[1]);
    for (int b = 0; b < 2; ++b) {
        printf("text:");
        for (int j = 0; j < 4 && text[b][j] >= 0; ++j)
            printf(" %s", text[b][j] == 77   ? "dog"
                          : text[b][j] == 31 ? "a"
                                             : kv[text[b][j] / 10 - 1]);
        printf("\n");
    }
    printf("packed:");
    for (int p = 0; p < offsets[2]; ++p) printf(" [%s]", packed[p]);
    if (offsets[2] != 2 || strcmp(packed[1], "small") != 0 || accepted[0] != 2 || next[0] != 77) {
        printf("\nMISMATCH\n");
        return 1;
    }
    printf("\nOK\n");
    return 0;
}
