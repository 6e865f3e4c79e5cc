// Options of several backends, by their names.

#pragma once

#include <executorch/runtime/backend/options.h>

#include <string>
#include <utility>
#include <vector>

namespace executorch {
namespace runtime {

// The caller owns the options. They must live until the map is passed to a module.
class LoadBackendOptionsMap final {
 public:
  // Errors: `InvalidArgument` for no name, a too long one, or more than 8 backends.
  Error set_options(const char* backend, Span<BackendOption> options) {
    if (backend == nullptr || *backend == '\0' || std::strlen(backend) >= 64) {
      return Error::InvalidArgument;
    }
    for (auto& entry : entries_) {
      if (entry.first == backend) {
        entry.second = options;
        return Error::Ok;
      }
    }
    if (entries_.size() == 8) {
      return Error::InvalidArgument;
    }
    entries_.emplace_back(backend, options);
    return Error::Ok;
  }
  template <typename Builder>
  Error set_options(Builder& builder) {
    return set_options(builder.backend_id(), builder.view());
  }

  Span<const BackendOption> get_options(const char* backend) const {
    for (const auto& entry : entries_) {
      if (backend != nullptr && entry.first == backend) {
        return {entry.second.data(), entry.second.size()};
      }
    }
    return {};
  }
  bool has_options(const char* backend) const {
    for (const auto& entry : entries_) {
      if (backend != nullptr && entry.first == backend) {
        return true;
      }
    }
    return false;
  }
  size_t size() const { return entries_.size(); }

  struct EntryView {
    const char* backend_id = nullptr;
    Span<const BackendOption> options;
  };
  EntryView entry_at(size_t index) const {
    ET_CHECK_MSG(index < size(), "backend %zu of %zu", index, size());
    const auto& entry = entries_[index];
    return {entry.first.c_str(), {entry.second.data(), entry.second.size()}};
  }

 private:
  std::vector<std::pair<std::string, Span<BackendOption>>> entries_;
};

}  // namespace runtime
}  // namespace executorch
