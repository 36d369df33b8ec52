// Containers of C++ in shared memory: made by one rank, lengthened and read by another, freed by a third party to both.
#include <mapwire.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#define CHECK(status)                                                                                                                      \
    do {                                                                                                                                   \
        if ((status) != MW_OK) {                                                                                                           \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, mw_error_message());                                                           \
            std::exit(1);                                                                                                                  \
        }                                                                                                                                  \
    } while (0)

using Words = std::vector<long, mapwire::allocator<long>>;
using Table = std::map<long, Words, std::less<long>, mapwire::allocator<std::pair<const long, Words>>>;

int main() {
    mw_node_t *node = nullptr;
    mw_shared_t *shared = nullptr;
    CHECK(mw_node_join(&node));
    CHECK(mw_shared_open(node, 1, &shared));
    mapwire::use(shared);
    std::uint32_t rank = 0;
    CHECK(mw_node_rank(node, &rank));

    Table *table = nullptr;
    if (rank == 0) {
        table = new (mapwire::allocator<Table>().allocate(1)) Table;
        for (long key = 0; key < 50; key++)
            (*table)[key].assign(static_cast<std::size_t>(key), key);
    }
    std::uint64_t address = reinterpret_cast<std::uint64_t>(table);
    CHECK(mw_shared_broadcast(shared, 0, &address));
    table = reinterpret_cast<Table *>(address);
    if (rank == 1) {
        for (auto &entry : *table)
            entry.second.resize(100, -1);
        table->erase(7);
    }
    CHECK(mw_shared_barrier(shared));
    long sum = 0;
    for (auto &entry : *table)
        for (long word : entry.second)
            sum += word;
    long want = 0;
    for (long key = 0; key < 50; key++)
        want += key == 7 ? 0 : key * key - (100 - key);
    if (sum != want || table->size() != 49) {
        std::fprintf(stderr, "rank %u: %ld, not %ld\n", rank, sum, want);
        return 1;
    }
    CHECK(mw_shared_barrier(shared));
    if (rank == 0) {
        table->~Table();
        mapwire::allocator<Table>().deallocate(table, 1);
        mapwire::memory_resource memory(shared);
        std::pmr::vector<std::pmr::string> names(&memory);
        for (int i = 0; i < 1000; i++)
            names.emplace_back("a name that is too long to lie within the string itself");
        struct alignas(64) Line {
            char bytes[64];
        };
        void *line = memory.allocate(sizeof(Line), alignof(Line));
        if (reinterpret_cast<std::uintptr_t>(line) % 64 != 0)
            return 1;
        memory.deallocate(line, sizeof(Line), alignof(Line));
    }
    std::printf("containers are right\n");
    mapwire::use(nullptr);
    CHECK(mw_shared_close(shared));
    CHECK(mw_node_free(node));
    return 0;
}
