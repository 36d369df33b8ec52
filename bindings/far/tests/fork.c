/* Forks with 64 MiB of a pattern in memory of which 2 MiB are in RAM, and checks it on both sides. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 64 << 20 >> 3, THREADS = 3, FORKS = 20 };

static uint64_t *words;

static void fill(uint64_t factor) {
    for (uint64_t i = 0; i < WORDS; i += 64) words[i] = i * factor + 1;
}

static void check(uint64_t factor, const char *who) {
    for (uint64_t i = 0; i < WORDS; i += 64)
        if (words[i] != i * factor + 1) {
            fprintf(stderr, "%s: word %lu is %lu\n", who, i, words[i]);
            _exit(3);
        }
}

static void join(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "child %d ended with %x\n", child, status);
        _exit(4);
    }
}

/* Forks while the others do so too, with memory of its own. */
static void *forks(void *number) {
    uint64_t mine = (uintptr_t)number + 1, size = 3000;
    uint64_t *block = malloc(size * 8);
    for (uint64_t n = 0; n < FORKS; n++) {
        for (uint64_t i = 0; i < size; i++) block[i] = mine * n + i;
        pid_t child = fork();
        for (uint64_t i = 0; i < size; i++) {
            if (block[i] != mine * n + i) _exit(5);
            block[i] = child == 0;
        }
        if (child == 0) {
            free(block);
            _exit(0);
        }
        join(child);
        for (uint64_t i = 0; i < size; i++)
            if (block[i] != 0) _exit(6);
    }
    free(block);
    return NULL;
}

static void prepare(void) { words[7]++; }
static void after(void) { words[8]++; }

int main(void) {
    /* What it leaves for dlerror is memory of the program, which nobody may free while a child is made. */
    if (dlopen("/nowhere.so", RTLD_NOW)) return 5;
    FILE *file = fopen("/dev/null", "w");
    words = malloc((size_t)WORDS * 8);
    if (!file || !words) return 2;
    pthread_atfork(prepare, after, after);
    fill(1);
    pid_t child = fork();
    if (child == 0) {
        check(1, "child");
        if (words[7] != 1 || words[8] != 1) _exit(7);
        fprintf(file, "a child writes\n");
        fill(2);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            check(2, "grandchild");
            fill(3);
            check(3, "grandchild");
            _exit(0);
        }
        join(grandchild);
        check(2, "child");
        exit(0);
    }
    check(1, "parent");
    fill(4);
    join(child);
    check(4, "parent");
    pthread_t threads[THREADS];
    for (uintptr_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, forks, (void *)n);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    check(4, "parent");
    fclose(file);
    puts("all is well");
    return 0;
}
