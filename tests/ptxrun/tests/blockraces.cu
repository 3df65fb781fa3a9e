// Races in global memory between threads of one block.  Every kernel has a place where `right` says
// whether the order is kept.  Usage: blockraces NAME (the bug) or blockraces NAME ok (its twin).
// tests/manifest.txt says what must be reported.
#include "check.h"
#include <cstring>

const int threads = 128, warps = threads / 32;

struct Data {                  // all zero at first
  int *s;                      // [threads] scratch in global memory
  int *o;                      // [blocks * threads] results
  volatile int *flag, *answer; // one each
  int *lock;
};

// ---- barriers
__global__ void write_write(Data d, bool right) {
  if (threadIdx.x < 32) d.s[threadIdx.x] = 1;
  if (right) __syncthreads();
  if (threadIdx.x >= 32 && threadIdx.x < 64) d.s[threadIdx.x - 32] = 2;
}
__global__ void write_read(Data d, bool right) {
  d.s[threadIdx.x] = int(threadIdx.x);
  if (right) __syncthreads();
  d.o[threadIdx.x] = d.s[(threadIdx.x + 37) % threads];
}
__global__ void read_write(Data d, bool right) {
  d.o[threadIdx.x] = d.s[(threadIdx.x + 37) % threads];
  if (right) __syncthreads();
  d.s[threadIdx.x] = int(threadIdx.x);
}
__global__ void carried_by_loop(Data d, bool right) {
  int sum = 0;
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x % 32 == 0) d.s[threadIdx.x / 32] = round;
    __syncthreads();
    for (int w = 0; w < warps; w++) sum += d.s[w];
    if (right) __syncthreads();
  }
  d.o[threadIdx.x] = sum;
}
// Every barrier of the block serves.
__global__ void other_barriers(Data d, bool right) {
  int next = (threadIdx.x + 37) % threads, sum = 0;
  for (int kind = 0; kind < 5; kind++) {
    d.s[threadIdx.x] = kind;
    if (kind == 0) sum += __syncthreads_or(1);
    if (kind == 1) sum += __syncthreads_and(1);
    if (kind == 2) sum += __syncthreads_count(1);
    if (kind == 3) asm volatile("bar.sync 1, 128;" ::: "memory");
    if (kind == 4 && right) asm volatile("barrier.sync.aligned 2;" ::: "memory");
    sum += d.s[next];
    if (right || kind < 4) __syncthreads();
  }
  d.o[threadIdx.x] = sum;
}

// ---- lanes of a warp
__global__ void lanes(Data d, bool right) {
  int lane = threadIdx.x;
  if (lane >= 32) return;
  d.s[lane] = lane * 3;
  if (right) __syncwarp();
  d.o[lane] = d.s[31 - lane];
}
__global__ void lane_to_all(Data d, bool right) {
  if (threadIdx.x == 0) d.s[0] = 5;
  if (right) __syncwarp();
  if (threadIdx.x < 32) d.o[threadIdx.x] = d.s[0];
}
__global__ void all_to_lane(Data d, bool right) {
  if (threadIdx.x < 32) d.o[threadIdx.x] = d.s[0];
  if (right) __syncwarp();
  if (threadIdx.x == 0) d.s[0] = 5;
}
__global__ void shuffle(Data d, bool right) { // it orders nothing, and neither does a vote
  int ready = 0;
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 3) d.s[0] = ready = 5;
  ready = __shfl_sync(~0u, ready, 3);
  if (right) __syncwarp();
  if (__any_sync(~0u, ready)) d.o[threadIdx.x] = d.s[0];
}
__global__ void same_value(Data d, bool right) { // harmless from one warp
  if (!right || threadIdx.x < 32) d.s[0] = 7;
}

// ---- fences
template <bool writerFence, bool readerFence> __device__ void publish(Data d, volatile int *flag) {
  if (threadIdx.x == 32) {
    d.s[0] = 5;
    if (writerFence) __threadfence_block();
    *flag = 1;
  }
  if (threadIdx.x == 64) {
    while (*flag == 0) {
    }
    if (readerFence) __threadfence_block();
    d.o[0] = d.s[0];
  }
}
__global__ void no_writer_fence(Data d, bool right) {
  right ? publish<true, true>(d, d.flag) : publish<false, true>(d, d.flag);
}
__global__ void no_reader_fence(Data d, bool right) {
  right ? publish<true, true>(d, d.flag) : publish<true, false>(d, d.flag);
}
__global__ void shared_flag(Data d, bool right) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  right ? publish<true, true>(d, &flag) : publish<false, true>(d, &flag);
}
// The thread that fences is not behind the one that wrote.
__global__ void fence_of_another(Data d, bool right) {
  if (threadIdx.x == (right ? 0 : 32)) d.s[0] = 5;
  if (threadIdx.x == 0) {
    __threadfence();
    *d.flag = 1;
  }
  if (threadIdx.x == 64) {
    while (*d.flag == 0) {
    }
    __threadfence();
    d.o[0] = d.s[0];
  }
}
// A whole warp's values, by way of one lane on either side; its other lanes may have fenced before.
__global__ void warp_to_warp(Data d, bool right) {
  int lane = threadIdx.x % 32;
  if (threadIdx.x / 32 == 1) {
    d.s[lane] = lane;
    if (lane % 2) __threadfence_block();
    if (right) __syncwarp();
    if (lane % 2 == 0) __threadfence_block();
    if (lane == 0) *d.flag = 1;
  }
  if (threadIdx.x / 32 == 2) {
    if (lane == 0)
      while (*d.flag == 0) {
      }
    __syncwarp();
    __threadfence_block();
    d.o[lane] = d.s[31 - lane];
  }
}
__global__ void release_acquire(Data d, bool right) {
  int seen = 0;
  if (threadIdx.x == 32) {
    d.s[0] = 5;
    if (right)
      asm volatile("st.release.cta.s32 [%0], 1;" ::"l"(d.lock) : "memory");
    else
      asm volatile("st.relaxed.cta.s32 [%0], 1;" ::"l"(d.lock) : "memory");
  }
  if (threadIdx.x == 64) {
    while (!seen)
      asm volatile("ld.acquire.cta.s32 %0, [%1];" : "=r"(seen) : "l"(d.lock) : "memory");
    d.o[0] = d.s[0];
  }
}
// The last warp to arrive adds up what all have left.
__global__ void last_warp(Data d, bool right) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, arrived = 0;
  if (lane == 0) {
    d.s[warp] = warp + 1;
    if (right) __threadfence_block();
    arrived = atomicAdd(d.lock, 1);
    __threadfence_block();
    if (arrived == warps - 1) d.o[0] = d.s[0] + d.s[1] + d.s[2] + d.s[3];
  }
}
// A lock that is taken by an exchange, by warps of all blocks.
__global__ void exchange_lock(Data d, bool right) {
  if (threadIdx.x % 32) return;
  while (atomicExch(d.lock, 1)) {
  }
  if (right) __threadfence();
  d.s[0]++;
  if (right) __threadfence();
  atomicExch(d.lock, 0);
}
// Flags of one byte each, in one word, each by its warp.
__global__ void byte_flags(Data d, bool right) {
  volatile char *flags = reinterpret_cast<volatile char *>(d.lock);
  int warp = threadIdx.x / 32;
  if (threadIdx.x % 32) return;
  if (warp < 3) {
    d.s[warp] = warp;
    if (right) __threadfence_block();
    flags[warp] = 1;
  } else {
    while (!flags[0] || !flags[1] || !flags[2]) {
    }
    __threadfence_block();
    d.o[0] = d.s[0] + d.s[1] + d.s[2];
  }
}
// Every block leaves a part; the last one adds them up.
__global__ void last_block(Data d, bool right) {
  __shared__ bool last;
  d.o[blockIdx.x * threads + threadIdx.x] = 1;
  if (right) __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(reinterpret_cast<unsigned *>(d.lock), gridDim.x - 1) == gridDim.x - 1;
    if (last) __threadfence();
  }
  __syncthreads();
  if (!right && last && threadIdx.x == 32) d.s[0] = 0;
  if (last) d.s[threadIdx.x] = d.o[threadIdx.x] + d.o[(gridDim.x - 1) * threads + threadIdx.x];
}
// Thread 0 learns by way of the other block what thread 32 did.
__global__ void by_way_of_others(Data d, bool right) {
  if (blockIdx.x == 0 && threadIdx.x == 32) {
    d.s[0] = 5;
    if (right) __threadfence();
    *d.flag = 1;
  }
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    while (*d.flag == 0) {
    }
    __threadfence();
    *d.answer = 1;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    while (*d.answer == 0) {
    }
    __threadfence();
    d.o[0] = d.s[0];
  }
}

// ---- parts of words
__global__ void bytes(Data d, bool right) {
  char *s = reinterpret_cast<char *>(d.s);
  s[(threadIdx.x * 37) % threads] = char(threadIdx.x); // the four of a word by four threads
  if (right) __syncthreads();
  d.o[threadIdx.x] = s[threadIdx.x] + 1;
  if (right) __syncthreads();
  if (threadIdx.x < threads / 4) d.s[threadIdx.x] = 1; // whole words again
}
__global__ void byte_among_others(Data d, bool right) { // that they write does not hide the race
  char *s = reinterpret_cast<char *>(d.s);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = 1;
  if (right) __syncthreads();
  if (threadIdx.x == 64) d.o[0] = s[0] + s[2];
}
__global__ void halves(Data d, bool right) {
  short *s = reinterpret_cast<short *>(d.s);
  s[threadIdx.x] = 1;
  d.o[threadIdx.x] = s[right ? threadIdx.x : threadIdx.x ^ 32];
}

// ---- volatile and atomic accesses
__global__ void strong(Data d, bool right) {
  volatile int *s = d.s;
  s[0] = int(threadIdx.x);
  d.o[threadIdx.x] = s[0] + atomicAdd(d.s + 1, 1) + s[1];
  if (!right && threadIdx.x == 64) d.s[1] = 0;
}
__global__ void atomic_then_plain(Data d, bool right) {
  if (threadIdx.x < 32) atomicAdd(d.s, 1);
  if (right) __syncthreads();
  if (threadIdx.x == 64) d.o[0] = d.s[0];
}
__global__ void plain_then_volatile(Data d, bool right) {
  if (threadIdx.x == 0) d.s[0] = 5;
  if (right) __syncthreads();
  if (threadIdx.x == 64) d.o[0] = *const_cast<volatile int *>(d.s);
}

struct Case {
  const char *name;
  void (*kernel)(Data, bool);
  int blocks;
};
const Case cases[] = {{"write_write", write_write, 1},
                      {"write_read", write_read, 1},
                      {"read_write", read_write, 1},
                      {"carried_by_loop", carried_by_loop, 1},
                      {"other_barriers", other_barriers, 1},
                      {"lanes", lanes, 1},
                      {"lane_to_all", lane_to_all, 1},
                      {"all_to_lane", all_to_lane, 1},
                      {"shuffle", shuffle, 1},
                      {"same_value", same_value, 1},
                      {"no_writer_fence", no_writer_fence, 1},
                      {"no_reader_fence", no_reader_fence, 1},
                      {"shared_flag", shared_flag, 1},
                      {"fence_of_another", fence_of_another, 1},
                      {"warp_to_warp", warp_to_warp, 1},
                      {"release_acquire", release_acquire, 1},
                      {"last_warp", last_warp, 1},
                      {"exchange_lock", exchange_lock, 3},
                      {"byte_flags", byte_flags, 1},
                      {"last_block", last_block, 4},
                      {"by_way_of_others", by_way_of_others, 2},
                      {"bytes", bytes, 1},
                      {"byte_among_others", byte_among_others, 1},
                      {"halves", halves, 1},
                      {"strong", strong, 1},
                      {"atomic_then_plain", atomic_then_plain, 1},
                      {"plain_then_volatile", plain_then_volatile, 1}};

int main(int argc, char **argv) {
  bool right = argc > 2 && !std::strcmp(argv[2], "ok"),
       all = argc > 1 && !std::strcmp(argv[1], "all");
  Buffer<int> s(threads), o(4 * threads), words(3);
  Data d{s.device, o.device, words.device, words.device + 1, words.device + 2};
  for (const Case &one : cases) {
    if (!all && (argc < 2 || std::strcmp(argv[1], one.name))) continue;
    for (int launch = 0; launch < 2; launch++) { // a launch comes after the one before it
      words.upload();
      one.kernel<<<one.blocks, threads>>>(d, right || all);
    }
  }
  ok(cudaDeviceSynchronize(), "synchronise");
  return finish();
}
