/* Reverses each block's part of an array in shared memory.  With -DFORGOTTEN without the barrier.
 */
#include <stdio.h>

__device__ void put(int *to, int value) { to[threadIdx.x] = value; }

__global__ void reverse(int *data) {
  __shared__ int tile[256];
  put(tile, data[blockIdx.x * 256 + threadIdx.x]);
#ifndef FORGOTTEN
  __syncthreads();
#endif
  data[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}

int main(void) {
  static int host[1024];
  int wrong = 0, *data;
  for (int k = 0; k < 1024; ++k) host[k] = k;
  cudaMalloc(&data, sizeof host);
  cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice);
  reverse<<<4, 256>>>(data);
  cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost);
  for (int k = 0; k < 1024; ++k) wrong += host[k] != (k / 256 * 256 + 255 - k % 256);
  printf("%d wrong, %s\n", wrong, cudaGetErrorString(cudaGetLastError()));
  return wrong != 0;
}
