/* Macros that other headers and careless programs define. Whatever uses one of these words as an
   identifier does not compile. The system's headers come first: they are not on trial. */
#include <stddef.h>
#include <stdint.h>
#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif
#define min(a, b)      (HOSTILE MACRO a b)
#define max(a, b)      (HOSTILE MACRO a b)
#define check(x)       (HOSTILE MACRO x)
#define ceil_div(a, b) (HOSTILE MACRO a b)
#define small          HOSTILE MACRO
#define near           HOSTILE MACRO
#define far            HOSTILE MACRO
#define half           HOSTILE MACRO /* a type of cuda_fp16.h, which -Wshadow sees */
#define unix           HOSTILE MACRO
#define linux          HOSTILE MACRO
#define tid            HOSTILE MACRO
#define bid            HOSTILE MACRO
#define lane_id        HOSTILE MACRO
#define warp_id        HOSTILE MACRO
#define A              HOSTILE MACRO
#define B              HOSTILE MACRO
#define B0             HOSTILE MACRO
#define C              HOSTILE MACRO
#define D              HOSTILE MACRO
#define E              HOSTILE MACRO
#define F              HOSTILE MACRO
#define H              HOSTILE MACRO
#define I              HOSTILE MACRO
#define J              HOSTILE MACRO
#define K              HOSTILE MACRO
#define L              HOSTILE MACRO
#define M              HOSTILE MACRO
#define N              HOSTILE MACRO
#define P              HOSTILE MACRO
#define Q              HOSTILE MACRO
#define R              HOSTILE MACRO
#define S              HOSTILE MACRO
#define T              HOSTILE MACRO
#define U              HOSTILE MACRO
#define V              HOSTILE MACRO
#define W              HOSTILE MACRO
#define X              HOSTILE MACRO
#define Y              HOSTILE MACRO
#define Z              HOSTILE MACRO
#define OK             HOSTILE MACRO
#define ERROR          HOSTILE MACRO
#define TRUE           HOSTILE MACRO
#define FALSE          HOSTILE MACRO
#define BATCH          HOSTILE MACRO
#define VOCAB          HOSTILE MACRO
#define CAPACITY       HOSTILE MACRO
#define OFFSETS        HOSTILE MACRO
#define ROW_BYTES      HOSTILE MACRO
#define WARP_SIZE      HOSTILE MACRO
#define WARPSIZE       HOSTILE MACRO
#define FULL_MASK      HOSTILE MACRO
#define CHECK(x)       (HOSTILE MACRO x)
#define ASSERT(x)      (HOSTILE MACRO x)
#define CEIL_DIV(a, b) (HOSTILE MACRO a b)
#define MIN(a, b)      (HOSTILE MACRO a b)
#define MAX(a, b)      (HOSTILE MACRO a b)
#define QUALIFIERS     HOSTILE MACRO
#define RESTRICT       HOSTILE MACRO
#define STATIC         HOSTILE MACRO
#define DEVICE         HOSTILE MACRO
#define HOST           HOSTILE MACRO
#define KERNEL         HOSTILE MACRO
