/* published.c - the reference as a filter, for published.py: one batch on the standard input, what
   specv_ref_verify_sample says of it on the standard output. Everything in the machine's order of
   bytes:

   in   int32 rule, batch, max_draft, vocab, dtype, with_q;
        int32 drafts [batch][max_draft]; target scores; draft scores, if with_q;
        float temperature [batch], draft_temperature [batch], accept_uniform [batch][max_draft],
        sample_uniform [batch]; of a lossy rule: float, float, int32 [batch], what it is told, in
        the order of LossyRow, uint64 seed [batch]
   out  int32 accepted_len [batch], next_token [batch], row_status [batch];
        float logprob [batch], lse [batch] */

#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include <stdio.h>
#include <stdlib.h>

/* A buffer with the next bytes of the input in it, or zeros. */
static void *next_buffer(size_t bytes, int from_input) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p || (from_input && fread(p, 1, bytes, stdin) != bytes)) {
        fprintf(stderr, "published: the input ends too early\n");
        exit(2);
    }
    return p;
}

/* A6: what the rule is told, and a seed for the one that draws by noise. */
static void read_lossy(specv_verify_sample_desc *d, size_t batch) {
    const float *low = (const float *)next_buffer(4 * batch, 1);
    const float *scale = (const float *)next_buffer(4 * batch, 1);
    const int32_t *top = (const int32_t *)next_buffer(4 * batch, 1);
    const uint64_t *seed = (const uint64_t *)next_buffer(8 * batch, 1);
    const int draws = d->rule == SPECV_RULE_TYPICAL_DRAW;
    if (draws || d->rule == SPECV_RULE_TYPICAL) d->lossy.epsilon = low, d->lossy.alpha = scale;
    if (d->rule == SPECV_RULE_THRESHOLD)
        d->lossy.threshold_single = low, d->lossy.threshold_acc = scale;
    if (d->rule == SPECV_RULE_RELAXED) d->lossy.top_n = top, d->lossy.delta = low;
    if (d->rule == SPECV_RULE_BOUNDED) d->lossy.ratio = scale;
    if (!draws) return;
    d->seed = seed, d->position = (const int32_t *)next_buffer(4 * batch, 0);
    d->accept_uniform = d->sample_uniform = NULL;
}

int main(void) {
    specv_verify_sample_desc d = SPECV_ZERO;
    const int32_t *head = (const int32_t *)next_buffer(6 * sizeof(int32_t), 1);
    const size_t batch = (size_t)head[1], drafts = batch * (size_t)head[2], vocab = (size_t)head[3];
    const size_t score = head[4] == SPECV_LOGITS_F16 || head[4] == SPECV_LOGITS_BF16 ? 2 : 4;
    int status;
    d.rule = head[0];
    d.verify.rows.batch = head[1];
    d.verify.rows.max_draft = head[2];
    d.verify.vocab = head[3];
    d.target.dtype = d.draft.dtype = head[4];
    d.verify.draft_tokens = next_buffer(4 * drafts, 1);
    d.target.data = next_buffer((drafts + batch) * vocab * score, 1);
    if (head[5]) d.draft.data = next_buffer(drafts * vocab * score, 1);
    d.temperature = (const float *)next_buffer(4 * batch, 1);
    d.draft_temperature = (const float *)next_buffer(4 * batch, 1);
    d.accept_uniform = (const float *)next_buffer(4 * drafts, 1);
    d.sample_uniform = (const float *)next_buffer(4 * batch, 1);
    if (d.rule >= SPECV_RULE_TYPICAL) read_lossy(&d, batch);
    d.verify.accepted_len = (int32_t *)next_buffer(4 * batch, 0);
    d.verify.next_token = next_buffer(4 * batch, 0);
    d.verify.row_status = (uint32_t *)next_buffer(4 * batch, 0);
    d.logprob = (float *)next_buffer(4 * batch, 0);
    d.lse = (float *)next_buffer(4 * batch, 0);
    d.scratch_bytes = specv_verify_sample_scratch_bytes(d.verify.rows.batch,
                                                        d.verify.rows.max_draft, d.verify.vocab);
    if (d.scratch_bytes > 0) d.scratch = next_buffer((size_t)d.scratch_bytes, 0);
    status = specv_ref_verify_sample(&d);
    if (status) {
        fprintf(stderr, "published: %s\n", specv_status_string(status));
        return 2;
    }
    fwrite(d.verify.accepted_len, 4, batch, stdout);
    fwrite(d.verify.next_token, 4, batch, stdout);
    fwrite(d.verify.row_status, 4, batch, stdout);
    fwrite(d.logprob, 4, batch, stdout);
    fwrite(d.lse, 4, batch, stdout);
    return fflush(stdout) != 0;
}
