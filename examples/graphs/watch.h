/* Counts the calls of the runtime that a decoding loop must not make. Include it behind
   cuda_runtime.h and before what is to be watched; kit.cu includes it before the kit. */
#ifndef WATCH_H
#define WATCH_H

enum {
    WATCH_MEMORY, /* takes or returns memory, of the device or the host */
    WATCH_WAIT,   /* the host waits for the device */
    WATCH_COPY,   /* enqueues a copy or a fill; without a stream it waits, too */
    WATCH_GRAPH,  /* captures, builds or changes a graph */
    WATCH_KINDS
};
#ifdef __cplusplus
extern "C"
#else
extern
#endif
    int watched[WATCH_KINDS]; /* in kit.cu */

/* A macro is not expanded again inside itself, so these end in the functions of their names. */
#define cudaMalloc(...)             (++watched[WATCH_MEMORY], cudaMalloc(__VA_ARGS__))
#define cudaMallocAsync(...)        (++watched[WATCH_MEMORY], cudaMallocAsync(__VA_ARGS__))
#define cudaMallocManaged(...)      (++watched[WATCH_MEMORY], cudaMallocManaged(__VA_ARGS__))
#define cudaMallocHost(...)         (++watched[WATCH_MEMORY], cudaMallocHost(__VA_ARGS__))
#define cudaHostAlloc(...)          (++watched[WATCH_MEMORY], cudaHostAlloc(__VA_ARGS__))
#define cudaFree(...)               (++watched[WATCH_MEMORY], cudaFree(__VA_ARGS__))
#define cudaFreeAsync(...)          (++watched[WATCH_MEMORY], cudaFreeAsync(__VA_ARGS__))
#define cudaFreeHost(...)           (++watched[WATCH_MEMORY], cudaFreeHost(__VA_ARGS__))
#define cudaDeviceSynchronize(...)  (++watched[WATCH_WAIT], cudaDeviceSynchronize(__VA_ARGS__))
#define cudaStreamSynchronize(...)  (++watched[WATCH_WAIT], cudaStreamSynchronize(__VA_ARGS__))
#define cudaEventSynchronize(...)   (++watched[WATCH_WAIT], cudaEventSynchronize(__VA_ARGS__))
#define cudaMemcpy(...)             (++watched[WATCH_COPY], cudaMemcpy(__VA_ARGS__))
#define cudaMemcpyAsync(...)        (++watched[WATCH_COPY], cudaMemcpyAsync(__VA_ARGS__))
#define cudaMemset(...)             (++watched[WATCH_COPY], cudaMemset(__VA_ARGS__))
#define cudaMemsetAsync(...)        (++watched[WATCH_COPY], cudaMemsetAsync(__VA_ARGS__))
#define cudaStreamBeginCapture(...) (++watched[WATCH_GRAPH], cudaStreamBeginCapture(__VA_ARGS__))
#define cudaGraphInstantiate(...)   (++watched[WATCH_GRAPH], cudaGraphInstantiate(__VA_ARGS__))
#define cudaGraphExecUpdate(...)    (++watched[WATCH_GRAPH], cudaGraphExecUpdate(__VA_ARGS__))

#endif
