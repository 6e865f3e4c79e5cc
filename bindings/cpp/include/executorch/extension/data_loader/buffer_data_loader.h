// A program in memory. The bytes must outlive the module, and must not change.

#pragma once

#include <executorch/runtime/core/data_loader.h>

namespace executorch {
namespace extension {

class BufferDataLoader final : public runtime::DataLoader {
 public:
  BufferDataLoader(const void* data, size_t size) : DataLoader(data, size) {}
};

}  // namespace extension
}  // namespace executorch

namespace torch {
namespace executor {
namespace util {
using ::executorch::extension::BufferDataLoader;
}  // namespace util
}  // namespace executor
}  // namespace torch
