// Allocators are not served: a method's memory is planned when it is loaded, by Rushlight.

#pragma once

#include <executorch/runtime/platform/compiler.h>

namespace executorch {
namespace runtime {

// Only the null pointers of these are of use: arguments of `Module` that are left at their defaults.
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
