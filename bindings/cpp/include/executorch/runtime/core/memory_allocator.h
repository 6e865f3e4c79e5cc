// Allocators are not supported: Rushlight allocates the memory of a method when it is loaded.

#pragma once

#include <executorch/runtime/platform/compiler.h>

namespace executorch {
namespace runtime {

// Use only null pointers to these, which are default arguments of `Module`.
class MemoryAllocator {
 public:
  template <typename... Arguments>
  explicit MemoryAllocator(Arguments&&...) {
    static_assert(rushlight::is_served<Arguments...>,
                  "rushlight: there are no allocators: leave them out; `share_memory_arenas` has methods share memory");
  }
  virtual ~MemoryAllocator() = default;
};

class HierarchicalAllocator {
 public:
  template <typename... Arguments>
  explicit HierarchicalAllocator(Arguments&&...) {
    static_assert(rushlight::is_served<Arguments...>,
                  "rushlight: planned memory belongs to the module: leave the allocator out");
  }
};

}  // namespace runtime
}  // namespace executorch
