// The source of a program: a file or memory.

#pragma once

#include <executorch/runtime/core/result.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace executorch {
namespace runtime {

// Base class of the loaders in `extension/data_loader`. There are no others. Read a program from any other source into memory, and use a
// `BufferDataLoader`.
class DataLoader {
 public:
  virtual ~DataLoader() = default;

  // The path of a file; empty for memory.
  const std::string& path() const { return path_; }
  bool is_mapped() const { return is_mapped_; }
  const void* data() const { return data_; }
  size_t data_size() const { return size_; }

 protected:
  static Error check_readable(const char* path) {
    ET_CHECK_OR_RETURN_ERROR(path != nullptr, InvalidArgument, "the path is NULL");
    std::FILE* file = std::fopen(path, "rb");
    ET_CHECK_OR_RETURN_ERROR(file != nullptr, AccessFailed, "cannot open `%s`", path);
    std::fclose(file);
    return Error::Ok;
  }

  DataLoader(std::string path, bool is_mapped) : path_(std::move(path)), is_mapped_(is_mapped) {}
  DataLoader(const void* data, size_t size) : data_(data), size_(size) {}

 private:
  std::string path_;
  bool is_mapped_ = false;
  const void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace runtime
}  // namespace executorch
