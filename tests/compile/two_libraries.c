/* One program, two libraries, shared or static, with versions of the kit of their own: FIRST and
   SECOND are what their launchers should report, FIRST_BITS and SECOND_BITS what their kernels
   should set. */
#include <stdio.h>

int first_library(unsigned *bits);
int second_library(unsigned *bits);

int main(void) {
    unsigned bits[4] = {0, 0, 0, 0};
    int versions[4];
    versions[0] = first_library(&bits[0]);
    versions[1] = second_library(&bits[1]);
    versions[2] = first_library(&bits[2]);
    versions[3] = second_library(&bits[3]);
    for (int i = 0; i < 4; ++i) printf("version %d bits %u\n", versions[i], bits[i]);
    for (int i = 0; i < 4; ++i)
        if (versions[i] != (i % 2 ? SECOND : FIRST) ||
            bits[i] != (i % 2 ? SECOND_BITS : FIRST_BITS))
            return 1;
    return 0;
}
