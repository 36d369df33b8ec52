/* Calls that must succeed, and calls that must fail with a code and a message that holds certain words. */
#ifndef EXPECT_H
#define EXPECT_H

#include <mapwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) expect((call), MW_OK, "", #call, __LINE__)
#define FAILS(code, words, call) expect((call), (code), (words), #call, __LINE__)
#define HOLDS(condition) holds((condition) != 0, #condition, __LINE__)

static inline void expect(mw_status_t got, mw_status_t wanted, const char *words, const char *call, int line) {
    if (got != wanted) {
        fprintf(stderr, "line %d: %s gave %s, not %s: %s\n", line, call, mw_status_name(got), mw_status_name(wanted),
                mw_error_message());
        exit(1);
    }
    if (got != MW_OK && strstr(mw_error_message(), words) == NULL) {
        fprintf(stderr, "line %d: %s: the message does not hold \"%s\": %s\n", line, call, words, mw_error_message());
        exit(1);
    }
}

static inline void holds(int condition, const char *text, int line) {
    if (!condition) {
        fprintf(stderr, "line %d: %s does not hold\n", line, text);
        exit(1);
    }
}

#endif
