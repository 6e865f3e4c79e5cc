#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/module/module.h>

#include <memory>

auto allocator() { return std::make_unique<executorch::extension::MallocMemoryAllocator>(); }
