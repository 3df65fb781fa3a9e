/* tickets.h - tickets that are not what they must be, for operations that have one word: an
   operation that comes upon one says so and changes nothing that it must not. */

#ifndef TICKETS_H_INCLUDED
#define TICKETS_H_INCLUDED

#include "t.h"

#if T_DEVICE

/* What so many blocks of other launches have left, 1 .. num_blocks, then what may be in memory. In
   no order do the blocks of a launch make up the sum of all from there. */
enum { TICKET_WORDS = 6 };

T_FN uint32_t ticket_word(int which, int num_blocks) {
    const uint32_t words[TICKET_WORDS] = {1,        0x0badf00du, ~0u,
                                          1u << 31, 0xcacacacau, (uint32_t)t_random() | 1u << 31};
    return which < num_blocks ? 0x5a5a0000u + (uint32_t)which + 1 : words[which - num_blocks];
}

T_FN void ticket_put(uint32_t *ticket, uint32_t word) {
    T_CUDA(cudaMemcpy(ticket, &word, 4, cudaMemcpyHostToDevice));
}

T_FN int32_t word_on_device(const void *words, int64_t index) {
    int32_t word;
    T_CUDA(cudaMemcpy(&word, (const char *)words + 4 * index, 4, cudaMemcpyDeviceToHost));
    return word;
}

/* At least one row says so: the block that was last. */
T_FN int ticket_is_told(const uint32_t *status, int rows) {
    int told = 0;
    for (int row = 0; row < rows; ++row)
        told += (word_on_device(status, row) & SPECV_ROW_BAD_TICKET) != 0;
    return told > 0;
}

T_FN void ticket_cases(const int *counts, int num_counts, void (*one)(int num_blocks, int which)) {
    for (int i = 0; i < num_counts; ++i)
        for (int which = 0; which < counts[i] + TICKET_WORDS; ++which) {
            t_case("ticket %d of %d blocks:", which, counts[i]);
            one(counts[i], which);
        }
}

/* `one`: for each of these numbers of blocks, with each such word. */
#define TICKET_CASES(one, ...)                                                                     \
    do {                                                                                           \
        static const int counts[] = {__VA_ARGS__};                                                 \
        ticket_cases(counts, T_COUNT(counts), one);                                                \
    } while (0)

/* The launch that comes upon the word. */
#define TICKET_LAUNCH(op, d, num_blocks, which)                                                    \
    do {                                                                                           \
        ticket_put((d).ticket, ticket_word(which, num_blocks));                                    \
        CHECK_EQ(specv_##op(&(d), 0), SPECV_OK, -1);                                               \
        T_CUDA(cudaDeviceSynchronize());                                                           \
    } while (0)

#else
#define TICKET_CASES(one, ...) t_skip("the reference needs no ticket")
#endif

#endif /* TICKETS_H_INCLUDED */
