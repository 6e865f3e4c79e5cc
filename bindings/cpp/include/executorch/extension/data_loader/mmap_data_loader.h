// A program in a file, which is mapped when the module is loaded.

#pragma once

#include <executorch/runtime/core/data_loader.h>

#include <string>

namespace executorch {
namespace extension {

class MmapDataLoader final : public runtime::DataLoader {
 public:
  // Errors: `InvalidArgument` for no path, and `AccessFailed` for a file that cannot be opened.
  static runtime::Result<MmapDataLoader> from(const char* path) {
    const runtime::Error error = check_readable(path);
    if (error != runtime::Error::Ok) {
      return error;
    }
    return MmapDataLoader(path);
  }

 private:
  explicit MmapDataLoader(std::string path) : DataLoader(std::move(path), /*is_mapped=*/true) {}
};

}  // namespace extension
}  // namespace executorch

namespace torch {
namespace executor {
namespace util {
using ::executorch::extension::MmapDataLoader;
}  // namespace util
}  // namespace executor
}  // namespace torch
