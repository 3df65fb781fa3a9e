/* Counters of the interpreter, for programs that check their own kernels (C and C++).
 *
 *   cudaProfilerStart();                                    clears and starts counting
 *   kernel<<<...>>>(...);  cudaDeviceSynchronize();
 *   cudaProfilerStop();
 *   long long n = ptxrun_count("kernel", "load_sectors");   -1 where ptxrun does not run the
 * program
 *
 * kernel: its name in the source (of a template: in the PTX); NULL: all kernels together.
 * counter: a name from the table in README.md, "Counters".  Asking for any other is -1, too. */
#ifndef PTXRUN_COUNT_H
#define PTXRUN_COUNT_H
#include <dlfcn.h>
#include <string.h>

static inline long long ptxrun_count(const char *kernel, const char *counter) {
  long long (*read)(const char *, const char *) = 0;
  void *handle = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  void *symbol = handle ? dlsym(handle, "ptxrunCount") : 0;
  if (handle) dlclose(handle);         /* the program itself keeps it loaded */
  memcpy(&read, &symbol, sizeof read); /* ISO C has no cast from void * to a function */
  return read ? read(kernel, counter) : -1;
}

#endif
