/* simulated.h - what stands in for the simulator's gaps (BENCH_SIMULATED); before the kit. */

#ifndef SPECV_BENCH_SIMULATED_H
#define SPECV_BENCH_SIMULATED_H

#if defined(BENCH_SIMULATED)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The simulator's reducing barrier finds faults that no thread reported. */
static __device__ int simulated_syncthreads_or(int value) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (value) found = 1;
    __syncthreads();
    value = found;
    __syncthreads();
    return value;
}
/* It has none that counts. */
static __device__ int simulated_syncthreads_count(int value) {
    __shared__ int count;
    const unsigned those = __ballot_sync(0xffffffffu, value != 0);
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(&count, __popc(those));
    __syncthreads();
    value = count;
    __syncthreads();
    return value;
}
#define __syncthreads_or(value)    simulated_syncthreads_or(value)
#define __syncthreads_count(value) simulated_syncthreads_count(value)

/* Nor does it shuffle a register into itself. */
static __device__ int simulated_copy(int value) {
    int copy;
    asm volatile("mov.b32 %0, %1;" : "=r"(copy) : "r"(value));
    return copy;
}
static __device__ unsigned simulated_copy(unsigned value) {
    return (unsigned)simulated_copy((int)value);
}
template <typename T> static __device__ T simulated_copy(T value) { return value; }
#define __shfl_sync(mask, value, ...) __shfl_sync(mask, simulated_copy(value), __VA_ARGS__)
#endif

#endif
