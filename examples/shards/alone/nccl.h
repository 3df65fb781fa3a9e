/* nccl.h - NCCL of one rank: what a rank gathers is its own record. For nccl.cu on machines without
   NCCL, or without as much as a GPU (tests/ptxrun). */
#ifndef NCCL_ALONE_H
#define NCCL_ALONE_H

#include <cuda_runtime.h>

typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
typedef void *ncclComm_t;
typedef enum { ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclInvalidArgument = 4 } ncclResult_t;
typedef enum { ncclChar = 0 } ncclDataType_t;

static inline const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidArgument ? "there is one rank" : "CUDA";
}
static inline ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    id->internal[0] = 0;
    return ncclSuccess;
}
static inline ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id,
                                            int rank) {
    (void)id;
    *comm = NULL;
    return ranks == 1 && rank == 0 ? ncclSuccess : ncclInvalidArgument;
}
static inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    (void)comm;
    return ncclSuccess;
}
static inline ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                                         ncclDataType_t type, ncclComm_t comm,
                                         cudaStream_t stream) {
    (void)type, (void)comm;
    return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

#endif
