/* kit_abi.cu - the kit as a shared library with flat C functions, for compare.py.

   nvcc -arch=sm_90 -O3 -shared -Xcompiler -fPIC bench/kit_abi.cu -o build/libkit_abi.so

   The launchers are exported as they are, too: what SPECVERIFY_EXPORT is for. */

#define SPECVERIFY_EXPORT
#define SPECVERIFY_IMPLEMENTATION
#include "../specverify.cuh"

#define ABI extern "C" __attribute__((visibility("default")))

/* Dense int32 (dtype 0) or int64 (1) tokens, one plane. src null: A1 alone. */
ABI int kit_abi_run(const void *draft, const void *target, int dtype, int batch, int gamma,
                    int32_t *accepted_len, uint8_t *mismatch, void *next_token, const void *src,
                    void *dst, int64_t row_bytes, int32_t *offsets, void *stream) {
    specv_verify_pack_kv_desc d = SPECV_ZERO;
    d.verify.token_dtype = dtype;
    d.verify.rows.batch = batch;
    d.verify.rows.max_draft = gamma;
    d.verify.draft_tokens = draft;
    d.verify.target_tokens = target;
    d.verify.accepted_len = accepted_len;
    d.verify.mismatch = mismatch;
    d.verify.next_token = next_token;
    if (!src) return specv_verify_greedy(&d.verify, (cudaStream_t)stream);
    d.kv.src = src;
    d.kv.dst = dst;
    d.kv.offsets = offsets;
    d.kv.row_bytes = row_bytes;
    d.kv.capacity_rows = (int64_t)batch * gamma;
    return specv_verify_pack_kv(&d, (cudaStream_t)stream);
}

/* B1 alone: accepted_len is an input. */
ABI int kit_abi_pack(const int32_t *accepted_len, int batch, int gamma, const void *src, void *dst,
                     int64_t row_bytes, int32_t *offsets, void *stream) {
    specv_pack_kv_desc d = SPECV_ZERO;
    d.rows.batch = batch;
    d.rows.max_draft = gamma;
    d.accepted_len = accepted_len;
    d.kv.src = src;
    d.kv.dst = dst;
    d.kv.offsets = offsets;
    d.kv.row_bytes = row_bytes;
    d.kv.capacity_rows = (int64_t)batch * gamma;
    return specv_pack_kv(&d, (cudaStream_t)stream);
}

ABI const char *kit_abi_message(int status) { return specv_status_string(status); }
