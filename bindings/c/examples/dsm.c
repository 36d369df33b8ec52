/*
 * Memory that all ranks share: a matrix whose rows are computed by different ranks and read by all, and a counter under a
 * lock. Every rank checks the whole against what it computes alone.
 *
 *   mapwire run -n 4 -- ./dsm
 */
#include <mapwire.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 512, STEPS = 5, ROUNDS = 200 };
enum { COUNTER_LOCK = 7 };

#define CHECK(call) check((call), #call, __LINE__)

static void check(mw_status_t status, const char *call, int line) {
    if (status != MW_OK) {
        fprintf(stderr, "dsm.c:%d: %s: %s: %s\n", line, call, mw_status_name(status), mw_error_message());
        exit(1);
    }
}

/* The next state of a row, from the rows above and below. */
static void step(double *row, const double *above, const double *below) {
    for (int i = 0; i < COLUMNS; i++) {
        row[i] = 0.5 * row[i] + 0.25 * (above[i] + below[i]);
    }
}

static void first_state(double *row, int number) {
    for (int i = 0; i < COLUMNS; i++) {
        row[i] = number * 1000.0 + i;
    }
}

/* Rows number 0, 2, 4, ... in one phase, then the others, so that a phase reads only what the one before has written. */
static int is_in_phase(int row, int phase) {
    return row % 2 == phase % 2;
}

/* The sum of the matrix, computed by this rank alone in its own memory. */
static double alone(void) {
    double(*matrix)[COLUMNS] = malloc(sizeof(double[ROWS][COLUMNS]));
    if (matrix == NULL) {
        fprintf(stderr, "dsm.c: no memory\n");
        exit(1);
    }
    for (int row = 0; row < ROWS; row++) {
        first_state(matrix[row], row);
    }
    for (int phase = 0; phase < 2 * STEPS; phase++) {
        for (int row = 1; row < ROWS - 1; row++) {
            if (is_in_phase(row, phase)) {
                step(matrix[row], matrix[row - 1], matrix[row + 1]);
            }
        }
    }
    double sum = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < COLUMNS; i++) {
            sum += matrix[row][i];
        }
    }
    free(matrix);
    return sum;
}

int main(void) {
    mw_node_t *node;
    mw_shared_t *shared;
    uint32_t rank, size;
    CHECK(mw_node_join(&node));
    CHECK(mw_node_rank(node, &rank));
    CHECK(mw_node_size(node, &size));
    CHECK(mw_shared_open(node, 1, &shared));

    /*
     * Rank 0 allocates a table of the rows' addresses, the rows, and the counter. Each is an allocation of its own, so each
     * moves between ranks alone. Addresses are the same in every rank.
     */
    uint64_t address = 0;
    if (rank == 0) {
        void *memory;
        CHECK(mw_shared_alloc(shared, (ROWS + 1) * sizeof(double *), &memory));
        double **table = memory;
        for (int row = 0; row <= ROWS; row++) {
            CHECK(mw_shared_alloc(shared, row < ROWS ? COLUMNS * sizeof(double) : sizeof(long), &memory));
            table[row] = memory;
        }
        address = (uintptr_t)table;
    }
    CHECK(mw_shared_broadcast(shared, 0, &address));
    double **rows = (double **)(uintptr_t)address;
    long *counter = (long *)rows[ROWS];

    for (int row = 0; row < ROWS; row++) {
        if (row % (int)size == (int)rank) {
            first_state(rows[row], row);
        }
    }
    CHECK(mw_shared_barrier(shared));
    for (int phase = 0; phase < 2 * STEPS; phase++) {
        for (int row = 1; row < ROWS - 1; row++) {
            if (is_in_phase(row, phase) && row % (int)size == (int)rank) {
                step(rows[row], rows[row - 1], rows[row + 1]);
            }
        }
        CHECK(mw_shared_barrier(shared));
    }
    double sum = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < COLUMNS; i++) {
            sum += rows[row][i];
        }
    }

    for (int round = 0; round < ROUNDS; round++) {
        CHECK(mw_shared_lock(shared, COUNTER_LOCK));
        *counter += 1;
        CHECK(mw_shared_unlock(shared, COUNTER_LOCK));
    }
    CHECK(mw_shared_barrier_of(shared, 1));
    long count = *counter;

    mw_shared_counters_t counters = {.size = sizeof counters};
    CHECK(mw_shared_counters(shared, &counters));
    CHECK(mw_shared_close(shared));
    CHECK(mw_node_free(node));

    /* The same operations in the same order: the same bits. */
    int right = sum == alone() && count == (long)size * ROUNDS;
    printf("rank %u: matrix %.1f, counter %ld: %s (%llu read faults, %llu write faults)\n", rank, sum, count,
           right ? "ok" : "WRONG", (unsigned long long)counters.read_faults, (unsigned long long)counters.write_faults);
    return right ? 0 : 1;
}
