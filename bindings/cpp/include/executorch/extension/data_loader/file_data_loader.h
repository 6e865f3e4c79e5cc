// A program in a file, which is read when the module is loaded.

#pragma once

#include <executorch/runtime/core/data_loader.h>

#include <string>

namespace executorch {
namespace extension {

class FileDataLoader final : public runtime::DataLoader {
 public:
  // Errors: `InvalidArgument` for no path, and `AccessFailed` for a file that cannot be opened.
  static runtime::Result<FileDataLoader> from(const char* path) {
    const runtime::Error error = check_readable(path);
    if (error != runtime::Error::Ok) {
      return error;
    }
    return FileDataLoader(path);
  }

 private:
  explicit FileDataLoader(std::string path) : DataLoader(std::move(path), /*is_mapped=*/false) {}
};

}  // namespace extension
}  // namespace executorch

namespace torch {
namespace executor {
namespace util {
using ::executorch::extension::FileDataLoader;
}  // namespace util
}  // namespace executor
}  // namespace torch
