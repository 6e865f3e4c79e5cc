// See `runtime/core/memory_allocator.h`: making one does not compile.

#pragma once

#include <executorch/runtime/core/memory_allocator.h>

namespace executorch {
namespace extension {
using MallocMemoryAllocator = runtime::MemoryAllocator;
}  // namespace extension
}  // namespace executorch
