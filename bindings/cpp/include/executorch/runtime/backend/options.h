// Options of a backend.

#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/span.h>

#include <array>
#include <cstring>
#include <type_traits>
#include <variant>

namespace executorch {
namespace runtime {

static constexpr size_t kMaxOptionKeyLength = 64;
static constexpr size_t kMaxOptionValueLength = 256;

using OptionValue = std::variant<bool, int, std::array<char, kMaxOptionValueLength>>;

struct BackendOption {
  char key[kMaxOptionKeyLength]{};
  OptionValue value;
};

template <size_t capacity>
class BackendOptions {
 public:
  Span<BackendOption> view() { return {options_, size_}; }

  // Errors: `InvalidArgument` if there is no room for another one.
  template <size_t N>
  Error set_option(const char (&key)[N], bool value) noexcept {
    return set<N>(key, value);
  }
  template <size_t N>
  Error set_option(const char (&key)[N], int value) noexcept {
    return set<N>(key, value);
  }
  // A longer text is cut off.
  template <size_t N>
  Error set_option(const char (&key)[N], const char* value) noexcept {
    std::array<char, kMaxOptionValueLength> text{};
    std::strncpy(text.data(), value, text.size() - 1);
    return set<N>(key, text);
  }

  // Errors: `NotFound`, and `InvalidArgument` for a value of another type.
  template <typename T, size_t N>
  Error get_option(const char (&key)[N], T& value) const {
    const BackendOption* option = find(key);
    if (option == nullptr) {
      return Error::NotFound;
    }
    if constexpr (std::is_same_v<T, const char*>) {
      if (const auto* text = std::get_if<std::array<char, kMaxOptionValueLength>>(&option->value)) {
        value = text->data();
        return Error::Ok;
      }
    } else if (const T* found = std::get_if<T>(&option->value)) {
      value = *found;
      return Error::Ok;
    }
    return Error::InvalidArgument;
  }

 private:
  const BackendOption* find(const char* key) const {
    for (size_t i = 0; i < size_; ++i) {
      if (std::strcmp(options_[i].key, key) == 0) {
        return &options_[i];
      }
    }
    return nullptr;
  }

  template <size_t N>
  Error set(const char* key, OptionValue value) {
    static_assert(N <= kMaxOptionKeyLength, "the name of an option is too long");
    if (const BackendOption* option = find(key)) {
      options_[option - options_].value = value;
      return Error::Ok;
    }
    if (size_ == capacity) {
      return Error::InvalidArgument;
    }
    BackendOption& option = options_[size_++];
    std::strncpy(option.key, key, sizeof option.key - 1);
    option.value = value;
    return Error::Ok;
  }

  BackendOption options_[capacity]{};
  size_t size_ = 0;
};

}  // namespace runtime
}  // namespace executorch
