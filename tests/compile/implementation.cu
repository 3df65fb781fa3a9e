/* The implementation, included as options ask for it: at once, or after the declarations. */
#if defined(DECLARED_FIRST)
#include "specverify.cuh"
#if defined(SPECVERIFY_IMPLEMENTATION_INCLUDED)
#error "the declarations brought the implementation along"
#endif
#endif
#define SPECVERIFY_IMPLEMENTATION
#include "specverify.cuh"
#include "specverify.cuh"
#if !defined(SPECVERIFY_IMPLEMENTATION_INCLUDED)
#error "the implementation is missing"
#endif

#if defined(WITH_DEVICE_USER)
#include "device_user.cu"
#endif

#if defined(SPECVERIFY_STATIC)
/* The one file of such a library that calls the kit. */
int library_version(void);
int library_version(void) { return specv_version(); }
#endif
