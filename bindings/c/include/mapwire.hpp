/*
 * mapwire.hpp: containers of C++ in memory that all ranks share.
 *
 * A container whose elements hold no pointers (or pointers into the shared memory, which lies at the same address in all ranks) can be built
 * by one rank and used by the others:
 *
 *   mapwire::memory_resource memory(shared);
 *   auto *words = new (memory.allocate(sizeof(std::pmr::vector<long>))) std::pmr::vector<long>(&memory);
 *
 * A pmr container holds a pointer to its resource, which is of one process: only the process that made it may change its length. With
 * mapwire::allocator any rank may: it has no state, and finds the shared memory of its process, which mapwire::use names.
 */
#ifndef MAPWIRE_HPP
#define MAPWIRE_HPP

#include <mapwire.h>

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>

namespace mapwire {

/* Memory of `shared`, which outlives this. */
class memory_resource : public std::pmr::memory_resource {
public:
    explicit memory_resource(const mw_shared_t *shared) noexcept : shared_(shared) {}

    const mw_shared_t *shared() const noexcept { return shared_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        void *block = align <= 16 ? mw_shared_malloc(shared_, bytes) : mw_shared_aligned_alloc(shared_, align, bytes);
        if (block == nullptr)
            throw std::bad_alloc();
        return block;
    }

    void do_deallocate(void *block, std::size_t, std::size_t) override { mw_shared_free(shared_, block); }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->shared_ == shared_;
    }

    const mw_shared_t *shared_;
};

namespace detail {
inline const mw_shared_t *&current() noexcept {
    static const mw_shared_t *shared = nullptr;
    return shared;
}
} // namespace detail

/* Names the shared memory of this process for mapwire::allocator; nullptr when it is closed. */
inline void use(const mw_shared_t *shared) noexcept { detail::current() = shared; }

/* Allocates from the shared memory that mapwire::use has named. */
template <class T> class allocator {
public:
    using value_type = T;

    allocator() noexcept = default;
    template <class U> allocator(const allocator<U> &) noexcept {}

    T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        const mw_shared_t *shared = detail::current();
        void *block = alignof(T) <= 16 ? mw_shared_malloc(shared, count * sizeof(T))
                                       : mw_shared_aligned_alloc(shared, alignof(T), count * sizeof(T));
        if (block == nullptr)
            throw std::bad_alloc();
        return static_cast<T *>(block);
    }

    void deallocate(T *block, std::size_t) noexcept { mw_shared_free(detail::current(), block); }
};

template <class T, class U> bool operator==(const allocator<T> &, const allocator<U> &) noexcept { return true; }
template <class T, class U> bool operator!=(const allocator<T> &, const allocator<U> &) noexcept { return false; }

} // namespace mapwire

#endif
