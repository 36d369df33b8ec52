/*
 * A program in the style of the SPLASH suites: macros over the C interface, processes created by fork(2) once the shared memory is open.
 * Currents on a square basin: red-black relaxation by bands of rows until the largest change is small, then a histogram of the result by
 * tiles, which the processes take from a counter. The result must equal that of plain loops in one process, to the last bit.
 *
 *   splash PROCESSES [SIDE]     so many processes in each rank
 */
#define _GNU_SOURCE
#include "expect.h"

#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64, TILE = 8, BINS = 16, MAX_SWEEPS = 100 };

static mw_node_t *node;
static mw_shared_t *shared;
static uint32_t rank, ranks, processes;

static void *g_malloc(size_t bytes) {
    void *memory;
    OK(mw_shared_alloc(shared, bytes, &memory));
    return memory;
}

#define G_MALLOC(bytes) g_malloc(bytes)
#define LOCK(number) OK(mw_shared_lock(shared, (number)))
#define UNLOCK(number) OK(mw_shared_unlock(shared, (number)))
#define BARRIER(number) OK(mw_shared_barrier_of(shared, (number)))
#define CREATE(work)                                    \
    do {                                                \
        OK(mw_shared_set_threads(shared, processes));   \
        fflush(NULL);                                   \
        for (uint32_t i = 1; i < processes; i++) {      \
            pid_t child = fork();                       \
            HOLDS(child >= 0);                          \
            if (child == 0) {                           \
                (work)();                               \
                _exit(0);                               \
            }                                           \
        }                                               \
        (work)();                                       \
    } while (0)
#define WAIT_FOR_END()                                                                              \
    do {                                                                                            \
        int status;                                                                                 \
        for (uint32_t i = 1; i < processes; i++) {                                                  \
            HOLDS(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);              \
        }                                                                                           \
        OK(mw_shared_set_threads(shared, 1));                                                       \
    } while (0)

enum { ID_LOCK, CHANGE_LOCK, TILE_LOCK, BIN_LOCK /* and one for each further bin */ };
enum { SWEPT, JUDGED, COUNTED };

struct global {
    double *grid;
    int side, next_id, next_tile, sweeps;
    /* Largest changes of the sweep, and of the one before. */
    double change[2];
    long bins[BINS];
};
static struct global *global;

static double start_value(int row, int column, int side) {
    int last = side - 1;
    return row == 0 || column == 0 || row == last || column == last ? (row * 7 + column * 3) % 11 * 0.3 - 1.5 : 0.0;
}

static double larger(double one, double other) {
    return one < other ? other : one;
}

/* Relaxes the points of one colour in rows `first` to `end`; gives the largest change. */
static double relax(double *grid, int side, int first, int end, int colour) {
    double most = 0.0;
    for (int row = first; row < end; row++) {
        for (int column = 1 + (row + colour) % 2; column < side - 1; column += 2) {
            double *at = &grid[row * side + column];
            double next = 0.25 * (at[-side] + at[side] + at[-1] + at[1]);
            most = larger(most, larger(next - *at, *at - next));
            *at = next;
        }
    }
    return most;
}

static void count_tile(const double *grid, int side, int tile, long *bins) {
    int across = (side + TILE - 1) / TILE;
    for (int row = tile / across * TILE; row < side && row < (tile / across + 1) * TILE; row++) {
        for (int column = tile % across * TILE; column < side && column < (tile % across + 1) * TILE; column++) {
            int bin = (int)((grid[row * side + column] + 2.0) / 4.0 * BINS);
            bins[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
        }
    }
}

static void work(void) {
    LOCK(ID_LOCK);
    int me = global->next_id++;
    UNLOCK(ID_LOCK);
    int all = (int)(ranks * processes), side = global->side;
    int first = 1 + (side - 2) * me / all, end = 1 + (side - 2) * (me + 1) / all;
    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        double most = relax(global->grid, side, first, end, 0);
        BARRIER(SWEPT);
        most = larger(most, relax(global->grid, side, first, end, 1));
        LOCK(CHANGE_LOCK);
        global->change[sweep % 2] = larger(global->change[sweep % 2], most);
        UNLOCK(CHANGE_LOCK);
        BARRIER(JUDGED);
        int is_over = global->change[sweep % 2] < 1e-3;
        if (me == 0) {
            global->sweeps = sweep + 1;
            global->change[1 - sweep % 2] = 0.0;
        }
        if (is_over) {
            break;
        }
        BARRIER(SWEPT);
    }
    BARRIER(COUNTED);
    int across = (side + TILE - 1) / TILE;
    for (;;) {
        LOCK(TILE_LOCK);
        int tile = global->next_tile++;
        UNLOCK(TILE_LOCK);
        if (tile >= across * across) {
            break;
        }
        long bins[BINS] = {0};
        count_tile(global->grid, side, tile, bins);
        for (int bin = 0; bin < BINS; bin++) {
            if (bins[bin] > 0) {
                LOCK(BIN_LOCK + bin);
                global->bins[bin] += bins[bin];
                UNLOCK(BIN_LOCK + bin);
            }
        }
    }
    BARRIER(COUNTED);
}

static void check(void) {
    int side = global->side, sweeps = 0, across = (side + TILE - 1) / TILE;
    double *grid = malloc(sizeof *grid * side * side), most;
    long bins[BINS] = {0};
    HOLDS(grid != NULL);
    for (int at = 0; at < side * side; at++) {
        grid[at] = start_value(at / side, at % side, side);
    }
    do {
        most = relax(grid, side, 1, side - 1, 0);
        most = larger(most, relax(grid, side, 1, side - 1, 1));
        sweeps++;
    } while (most >= 1e-3 && sweeps < MAX_SWEEPS);
    for (int tile = 0; tile < across * across; tile++) {
        count_tile(grid, side, tile, bins);
    }
    HOLDS(sweeps == global->sweeps);
    HOLDS(memcmp(grid, global->grid, sizeof *grid * side * side) == 0);
    HOLDS(memcmp(bins, global->bins, sizeof bins) == 0);
    printf("%u of %u processes: %d sweeps, as one process\n", ranks, processes, sweeps);
    free(grid);
}

/* What a child may not do with its parent's memory, and what it may. */
static void child_calls(void) {
    void *memory;
    uint64_t value = 0;
    OK(mw_shared_alloc(shared, 64, &memory));
    memset(memory, 1, 64);
    FAILS(MW_ERR_FORKED, "fork()", mw_node_broadcast(node, 0, &value, 8));
    FAILS(MW_ERR_STATE, "", mw_shared_unlock(shared, 100));
    FAILS(MW_ERR_FORKED, "fork()", mw_shared_close(shared));
}

int main(int count, char **arguments) {
    HOLDS(count > 1);
    processes = (uint32_t)atoi(arguments[1]);
    int side = count > 2 ? atoi(arguments[2]) : 130;
    HOLDS(processes > 0 && processes <= MAX_PROCESSES && side > 2);
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    OK(mw_node_size(node, &ranks));
    OK(mw_shared_open(node, 1, &shared));
    uint64_t address = 0;
    if (rank == 0) {
        global = G_MALLOC(sizeof *global);
        global->side = side;
        global->grid = G_MALLOC(sizeof *global->grid * side * side);
        for (int at = 0; at < side * side; at++) {
            global->grid[at] = start_value(at / side, at % side, side);
        }
        address = (uint64_t)(uintptr_t)global;
    }
    OK(mw_shared_broadcast(shared, 0, &address));
    global = (struct global *)(uintptr_t)address;
    CREATE(work);
    WAIT_FOR_END();
    if (rank == 0) {
        check();
    }
    pid_t child = fork();
    HOLDS(child >= 0);
    if (child == 0) {
        child_calls();
        _exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    OK(mw_shared_close(shared));
    OK(mw_node_free(node));
    return 0;
}
