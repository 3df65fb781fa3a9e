/* Draft trees from SGLang's links and from TensorRT-LLM's paths, without CUDA: see steps.h.

       cc -std=c99 -I ../.. -o ref_only ref_only.c && ./ref_only

   links: 21 steps, 2.51 tokens a step, text and cache as decoded plainly
   paths: 21 steps, 2.51 tokens a step, text and cache as decoded plainly */
#define SPECVERIFY_REF_IMPLEMENTATION
#include "specverify_ref.h"

#include "steps.h"

int run_layout(const specv_tree_layout_desc *d) { return specv_ref_tree_layout(d); }
int run_verify(const specv_verify_tree_desc *d) { return specv_ref_verify_tree(d); }
int run_commit(const specv_commit_path_desc *d) { return specv_ref_commit_path(d); }

int main(void) {
    static shared s;
    const int wrong = run_texts(&s, FROM_LINKS) + run_texts(&s, FROM_PATHS);
    return wrong != 0;
}
