/*
 * Ranks draw the rows of a picture, each the next that nobody has begun: an atomic addition gives its number, a row leaves while the
 * next is drawn, and rank 0 waits for whichever rank ends first.
 *
 *   mapwire run -n 4 -- ./work_queue
 */
#include <mapwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1024, HEIGHT = 256, MOST_RANKS = 1024 };
/* The picture's memory in rank 0: the number of the next row, a signal and a count for each rank, then the rows. */
enum { NEXT = 0, SIGNALS = 64, COUNTS = SIGNALS + 8 * MOST_RANKS, ROWS = COUNTS + 8 * MOST_RANKS };

#define CHECK(call) check((call), #call, __LINE__)

static void check(mw_status_t status, const char *call, int line) {
    if (status != MW_OK) {
        fprintf(stderr, "work_queue.c:%d: %s: %s: %s\n", line, call, mw_status_name(status), mw_error_message());
        exit(1);
    }
}

/* How many steps a point takes to leave the Mandelbrot set, 255 if it stays. */
static unsigned char escape(unsigned column, unsigned row) {
    double x = 3.0 * column / WIDTH - 2.0, y = 2.0 * row / HEIGHT - 1.0;
    double a = x, b = y;
    unsigned char steps = 0;
    for (; a * a + b * b < 4.0 && steps < 255; steps++) {
        double next = a * a - b * b + x;
        b = 2.0 * a * b + y;
        a = next;
    }
    return steps;
}

static void draw(mw_node_t *node, uint32_t rank) {
    mw_import_options_t options = {.size = sizeof options, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    mw_import_t *picture;
    CHECK(mw_import_create(node, 0, "picture", &options, &picture));
    static unsigned char rows[2][WIDTH];
    mw_request_t *last = NULL;
    uint64_t drawn = 0, row;
    for (;;) {
        /* Of all ranks that draw one gets this number. */
        CHECK(mw_import_fetch_add_u64(picture, NEXT, 1, &row));
        if (row >= HEIGHT)
            break;
        unsigned char *points = rows[drawn % 2];
        for (unsigned column = 0; column < WIDTH; column++)
            points[column] = escape(column, (unsigned)row);
        /* It leaves while the next row is drawn; its memory is the library's until the wait. */
        mw_request_t *sent;
        CHECK(mw_import_send_async(picture, points, WIDTH, ROWS + row * WIDTH, &sent));
        CHECK(mw_request_wait(last));
        last = sent;
        drawn++;
    }
    CHECK(mw_request_wait(last));
    /* Behind all the rows. */
    CHECK(mw_import_put_signal(picture, &drawn, sizeof drawn, COUNTS + 8 * rank, SIGNALS + 8 * rank, 1));
    CHECK(mw_import_free(picture));
}

static void collect(mw_node_t *node, uint32_t size) {
    mw_buffer_t *buffer;
    void *memory;
    mw_export_t *picture;
    CHECK(mw_buffer_alloc(node, ROWS + WIDTH * HEIGHT, &buffer));
    CHECK(mw_buffer_ptr(buffer, &memory));
    CHECK(mw_export_create(node, buffer, "picture", NULL, &picture));
    mw_awaited_t working[MOST_RANKS];
    size_t count = size - 1;
    for (size_t i = 0; i < count; i++)
        working[i] = (mw_awaited_t){picture, SIGNALS + 8 * (i + 1), 1};
    uint64_t drawn = 0;
    while (count > 0) {
        /* Whichever rank ends first. */
        size_t ended;
        CHECK(mw_node_wait_any(node, working, count, MW_FOREVER, &ended));
        uint64_t of_rank;
        memcpy(&of_rank, (char *)memory + working[ended].offset - SIGNALS + COUNTS, sizeof of_rank);
        drawn += of_rank;
        working[ended] = working[--count];
    }
    const unsigned char *points = (unsigned char *)memory + ROWS;
    size_t inside = 0;
    for (size_t i = 0; i < WIDTH * HEIGHT; i++)
        inside += points[i] == 255;
    printf("%llu rows drawn; %zu of %d points stay\n", (unsigned long long)drawn, inside, WIDTH * HEIGHT);
    CHECK(mw_export_revoke(picture));
    CHECK(mw_buffer_free(buffer));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank, size;
    CHECK(mw_node_join(&node));
    CHECK(mw_node_rank(node, &rank));
    CHECK(mw_node_size(node, &size));
    if (size == 1 || size > MOST_RANKS) {
        fprintf(stderr, "start 2 to %d ranks: mapwire run -n 4 -- ./work_queue\n", MOST_RANKS);
        return 2;
    }
    if (rank == 0)
        collect(node, size);
    else
        draw(node, rank);
    CHECK(mw_node_free(node));
    return 0;
}
