// Not supported: constructing one does not compile. See `runtime/core/memory_allocator.h`.

#pragma once

#include <executorch/runtime/core/memory_allocator.h>

namespace executorch {
namespace extension {
using MallocMemoryAllocator = runtime::MemoryAllocator;
}  // namespace extension
}  // namespace executorch
