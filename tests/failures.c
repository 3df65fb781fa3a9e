/* failures.c - fails on purpose: failures.sh looks at what t.h says of it. */
#include "tests/t.h"

typedef struct both {
    t_buf words, bytes;
} both;

static t_buf of_words(int64_t count) { return t_out(4 * count, 0); }
#define of_words(count) (T_SITE(of_words, 4), of_words(count))

static void rows(void) {
    for (int i = 0; i < 3; ++i) {
        const int32_t want[4] = {1, 2, 3, 4};
        t_case("case %d", i);
        t_buf first = t_in(8, 0), second = t_out(4 * T_COUNT(want), 3);
        memcpy(second.host, want, sizeof want);
        memset(first.host, 0, 8);
        t_upload();
        put_word(&second, 2, -1), put_word(&second, 3, -1);
        if (i == 1) first.host[0] = 1;
        CHECK_BYTES(second.host, want, sizeof want);
        CHECK_BYTES(second.host + 12, want + 3, 4);
        t_check_host();
    }
}

static void others(void) {
    both b;
    t_case("a helper's buffer, and one that is assigned a line above");
    b.words = of_words(2);
    /* clang-format off */
    b.bytes =
        t_out(5, 0);
    /* clang-format on */
    b.words.host[-2] = 0;
    b.bytes.host[6] = 7;
    t_upload();
    t_check_host();
    CHECK_EQ(word_at(&b.words, 1), 7, 1);
    CHECK(b.bytes.host == NULL);
}

static void many(void) {
    t_case("checks beyond the list");
    for (int i = 0; i < 90; ++i) t_check(0, __FILE__, i, "one of 90");
}

int main(int argc, char **argv) {
    const t_group groups[] = {{"rows", rows}, {"others", others}, {"many", many}};
    return t_main(argc, argv, groups, T_COUNT(groups));
}
