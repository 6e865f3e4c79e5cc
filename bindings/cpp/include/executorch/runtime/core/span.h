// A view of elements.

#pragma once

#include <executorch/runtime/platform/assert.h>

#include <cstddef>

namespace executorch {
namespace runtime {

template <typename T>
class Span final {
 public:
  using value_type = T;
  using iterator = T*;
  using size_type = size_t;

  constexpr Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) { ET_DCHECK(data != nullptr || size == 0); }
  Span(T* begin, T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <size_t N>
  constexpr Span(T (&array)[N]) : data_(array), size_(N) {}
  constexpr Span(T& element) : data_(&element), size_(1) {}

  iterator begin() const noexcept { return data_; }
  iterator end() const noexcept { return data_ + size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::Span;
}  // namespace executor
}  // namespace torch
