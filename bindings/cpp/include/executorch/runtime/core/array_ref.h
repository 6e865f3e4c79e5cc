// A read-only view of elements.

#pragma once

#include <executorch/runtime/platform/assert.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace executorch {
namespace runtime {

template <typename T>
class ArrayRef final {
 public:
  using iterator = const T*;
  using const_iterator = const T*;
  using size_type = size_t;
  using value_type = T;

  constexpr ArrayRef() = default;
  ArrayRef(const T& element) : data_(&element), size_(1) {}
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) { ET_DCHECK(data != nullptr || size == 0); }
  ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& array) : data_(array.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&array)[N]) : data_(array), size_(N) {}

  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr const_iterator cbegin() const { return data_; }
  constexpr const_iterator cend() const { return data_ + size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  const T& at(size_t index) const {
    ET_CHECK(index < size_);
    return data_[index];
  }

  bool equals(ArrayRef other) const {
    if (size_ != other.size_) {
      return false;
    }
    for (size_t i = 0; i < size_; ++i) {
      if (!(data_[i] == other.data_[i])) {
        return false;
      }
    }
    return true;
  }

  ArrayRef<T> slice(size_t start, size_t size) const {
    ET_CHECK(start <= size_ && size <= size_ - start);
    return ArrayRef<T>(data_ + start, size);
  }
  ArrayRef<T> slice(size_t start) const { return slice(start, size_ - start); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
ArrayRef<T> makeArrayRef(const T& element) {
  return element;
}
template <typename T>
ArrayRef<T> makeArrayRef(const T* data, size_t size) {
  return ArrayRef<T>(data, size);
}
template <typename T>
ArrayRef<T> makeArrayRef(const T* begin, const T* end) {
  return ArrayRef<T>(begin, end);
}
template <typename T, size_t N>
ArrayRef<T> makeArrayRef(const std::array<T, N>& array) {
  return array;
}
template <typename T, size_t N>
ArrayRef<T> makeArrayRef(const T (&array)[N]) {
  return array;
}
template <typename T>
ArrayRef<T> makeArrayRef(const ArrayRef<T>& array) {
  return array;
}

template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}

using IntArrayRef = ArrayRef<int64_t>;

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::ArrayRef;
using ::executorch::runtime::IntArrayRef;
using ::executorch::runtime::makeArrayRef;
}  // namespace executor
}  // namespace torch
