// Memory that the program and a library which was opened with RTLD_DEEPBIND give each other. Compiled with -DLIBRARY, it is the library; its
// name is the first argument with ".so" at its end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
char *made(size_t bytes) { return memset(malloc(bytes), 7, bytes); }
void taken(char *memory) { free(memory); }
char *grown(char *memory, size_t bytes) { return realloc(memory, bytes); }
#else

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

int main(int count, char **arguments) {
    CHECK(count == 2);
    char name[4096];
    snprintf(name, sizeof name, "%s.so", arguments[1]);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library) return puts(dlerror()), 1;
    char *(*made)(size_t) = dlsym(library, "made"), *(*grown)(char *, size_t) = dlsym(library, "grown");
    void (*taken)(char *) = dlsym(library, "taken");
    for (size_t bytes = 1; bytes < 8 << 20; bytes *= 3) {
        char *memory = made(bytes);
        memory = grown(realloc(memory, bytes + 100), bytes + 5000);
        CHECK(memory[0] == 7 && memory[bytes - 1] == 7);
        free(memory);
        taken(malloc(bytes));
        taken(strdup("given"));
    }
    CHECK(dlclose(library) == 0);
    // Failures are told as ever, and the library's own folder is looked into where the caller says so: its path is the program's.
    CHECK(!dlopen("libnone-of-that-name.so", RTLD_NOW) && strstr(dlerror(), "libnone-of-that-name.so"));
    char *simple = strrchr(name, '/') + 1;
    library = dlopen(simple, RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    CHECK(dlopen(NULL, RTLD_NOW));
    puts("all is well");
    return 0;
}
#endif
