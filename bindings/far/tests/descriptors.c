/* Programs that close descriptors of which they know nothing. 2 MiB are in RAM. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); _exit(3); } } while (0)

static unsigned char *memory;

/* Goes over more memory than is in RAM: it leaves for the file, and comes from there. */
static void memory_is_there(int round) {
    for (size_t at = 0; at < 16 * MIB; at += 4096) memory[at] = (unsigned char)(at / 4096 + round);
    for (size_t at = 0; at < 16 * MIB; at += 4096) CHECK(memory[at] == (unsigned char)(at / 4096 + round));
}

static int open_descriptors(void) {
    int count = 0;
    for (int number = 0; number < 4096; number++) count += fcntl(number, F_GETFD) >= 0;
    return count;
}

static void *close_all(void *unused) {
    CHECK(close_range(3, ~0u, 0) == 0);
    return unused;
}

static void all_are_closed_but_those_of_far_memory(void) {
    int low = open("/dev/null", O_RDONLY);
    int high = fcntl(low, F_DUPFD, 900);
    CHECK(low >= 3 && high >= 900);
    CHECK(close_range(3, ~0u, 0) == 0);
    CHECK(fcntl(low, F_GETFD) == -1 && fcntl(high, F_GETFD) == -1 && open_descriptors() > 3);
    memory_is_there(1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, close_all, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(close_range(5, 4, 0) == -1 && errno == EINVAL && close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0);
    closefrom(3);
    memory_is_there(2);
    for (int number = 3; number < 4096; number++) CHECK(close(number) == -1 && errno == EBADF);
    memory_is_there(3);
}

static void numbers_of_far_memory_are_nobodys(void) {
    int file = open("/dev/null", O_RDONLY), taken = 0;
    for (int number = 3; number < 1000; number++) {
        if (number == file) continue;
        int is_theirs = fcntl(number, F_GETFD) >= 0;
        int copy = number % 2 ? dup2(file, number) : dup3(file, number, O_CLOEXEC);
        CHECK(is_theirs ? copy == -1 && errno == EBUSY : copy == number && close(copy) == 0);
        if (is_theirs) CHECK(dup2(number, 3) == -1 && errno == EBADF);
        taken += is_theirs;
    }
    CHECK(taken >= 2 && dup3(file, file, 0) == -1 && errno == EINVAL && dup2(file, file) == file);
    CHECK(close(file) == 0 && close(file) == -1);
    memory_is_there(4);
}

/* Far memory closes its own when it needs them no more. */
static void files_are_let_go(char *name) {
    int before = open_descriptors();
    for (int round = 0; round < 50; round++) {
        int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(file >= 0 && ftruncate(file, 2 * MIB) == 0 && pwrite(file, "far", 3, MIB) == 3);
        char *mapped = mmap(NULL, 2 * MIB, PROT_READ, MAP_PRIVATE, file, 0);
        CHECK(mapped != MAP_FAILED && close(file) == 0 && close_range(3, ~0u, 0) == 0);
        CHECK(!memcmp(mapped + MIB, "far", 3) && open_descriptors() == before + 1);
        CHECK(munmap(mapped, 2 * MIB) == 0 && unlink(name) == 0 && open_descriptors() == before);
    }
}

static void children_and_their_parent_may_close_all(void) {
    memory_is_there(5);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            close_all(NULL);
            CHECK(memory[4096] == 6);
            memory_is_there(6);
            _exit(0);
        }
        close_all(NULL);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    memory_is_there(7);
}

int main(int count, char **arguments) {
    memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(count == 2 && memory != MAP_FAILED);
    memory_is_there(0);
    all_are_closed_but_those_of_far_memory();
    numbers_of_far_memory_are_nobodys();
    files_are_let_go(arguments[1]);
    children_and_their_parent_may_close_all();
    puts("all is well");
    return 0;
}
