// Tensors and values: views of the caller's or the module's memory. Only `to_vector` copies elements.

#pragma once

#include <rushlight/status.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace rushlight {

// A contiguous view, like std::span of C++20. It converts to one.
template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}

  // A view of a vector, an array, a std::span or the like, which must outlive it.
  template <typename Container, typename = std::enable_if_t<std::is_convertible_v<
                                    decltype(std::data(std::declval<Container&>())), T*>>>
  Span(Container&& elements) : data_(std::data(elements)), size_(std::size(elements)) {}

  T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// A view of bytes, such as those of a file.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const void* data, size_t size) : data_(data), size_(size) {}

  // A view of a container whose elements have one byte.
  template <typename Container, typename Element = decltype(*std::data(std::declval<const Container&>())),
            typename = std::enable_if_t<sizeof(Element) == 1>>
  Bytes(const Container& bytes) : data_(std::data(bytes)), size_(std::size(bytes)) {}

  const void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

// Sizes or strides, from the outermost dimension: `{1, 3, height, width}`. The integers may have any type.
class Sizes {
 public:
  // Maximum number of dimensions.
  static constexpr size_t MAX_RANK = 16;

  template <typename... Integers, typename = std::enable_if_t<(... && std::is_integral_v<Integers>)>>
  Sizes(Integers... sizes) : rank_(std::min(sizeof...(sizes), MAX_RANK + 1)) {
    static_assert(sizeof...(sizes) <= MAX_RANK, "rushlight: a tensor has at most 16 dimensions");
    size_t dim = 0;
    ((sizes_[dim++] = static_cast<int64_t>(sizes)), ...);
  }

  // Longer lists are cut to `MAX_RANK + 1` sizes, which the library refuses.
  template <typename Element>
  Sizes(Span<Element> sizes) : rank_(std::min(sizes.size(), MAX_RANK + 1)) {
    std::transform(sizes.begin(), sizes.begin() + rank_, sizes_, [](auto size) { return static_cast<int64_t>(size); });
  }
  template <typename Container, typename = decltype(std::data(std::declval<const Container&>())[0] + 0)>
  Sizes(const Container& sizes) : Sizes(Span<const std::remove_pointer_t<decltype(std::data(sizes))>>(sizes)) {}

  Sizes(const Sizes& other) : rank_(other.rank_) { copy(other); }
  Sizes& operator=(const Sizes& other) {
    rank_ = other.rank_;
    copy(other);
    return *this;
  }

  const int64_t* data() const { return sizes_; }
  size_t size() const { return rank_; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + rank_; }
  int64_t operator[](size_t dim) const { return sizes_[dim]; }

  friend bool operator==(const Sizes& a, const Sizes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
  friend bool operator!=(const Sizes& a, const Sizes& b) { return !(a == b); }

 private:
  void copy(const Sizes& other) {
#if defined(__GNUC__) && !defined(__clang__)
// GCC does not see that only initialized sizes are read.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
    for (size_t dim = 0; dim < rank_; ++dim) {
      sizes_[dim] = other.sizes_[dim];
    }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  }

  size_t rank_;
  // Only the first `rank_` are initialized and copied, because every call copies sizes.
  int64_t sizes_[MAX_RANK + 1];
};

// The element type of a C++ type. Specialize it for your own type of f16:
// `template <> struct rushlight::ElementType<Half> : std::integral_constant<rl_dtype, RL_DTYPE_FLOAT16> {};`
template <typename T, typename = void>
struct ElementType {
  static_assert(sizeof(T) == 0, "rushlight: no element type: specialize rushlight::ElementType for yours");
};
template <>
struct ElementType<float> : std::integral_constant<rl_dtype, RL_DTYPE_FLOAT32> {};
template <>
struct ElementType<double> : std::integral_constant<rl_dtype, RL_DTYPE_FLOAT64> {};
template <>
struct ElementType<bool> : std::integral_constant<rl_dtype, RL_DTYPE_BOOL> {};
template <>
struct ElementType<std::complex<float>> : std::integral_constant<rl_dtype, RL_DTYPE_COMPLEX64> {};
template <>
struct ElementType<std::complex<double>> : std::integral_constant<rl_dtype, RL_DTYPE_COMPLEX128> {};
template <typename T>
struct ElementType<T, std::enable_if_t<std::is_integral_v<T>>>
    : std::integral_constant<rl_dtype, std::is_signed_v<T> ? (sizeof(T) == 1   ? RL_DTYPE_INT8
                                                              : sizeof(T) == 2 ? RL_DTYPE_INT16
                                                              : sizeof(T) == 4 ? RL_DTYPE_INT32
                                                                               : RL_DTYPE_INT64)
                                                           : (sizeof(T) == 1   ? RL_DTYPE_UINT8
                                                              : sizeof(T) == 2 ? RL_DTYPE_UINT16
                                                              : sizeof(T) == 4 ? RL_DTYPE_UINT32
                                                                               : RL_DTYPE_UINT64)> {};

template <typename T>
inline constexpr rl_dtype dtype_of = ElementType<std::remove_cv_t<T>>::value;

// A view of elements with sizes. For a vector: `Tensor image(pixels, {1, 3, 224, 224});`
template <typename T>
class Tensor {
 public:
  // A view of row-major elements. The library checks their number against the sizes.
  Tensor(T* data, size_t size, const Sizes& sizes) : data_(data), size_(size), sizes_(sizes), strides_() {}
  Tensor(Span<T> elements, const Sizes& sizes) : Tensor(elements.data(), elements.size(), sizes) {}

  // A view of a vector, an array, a std::span or the like, which must outlive it.
  template <typename Container, typename = decltype(Span<T>(std::declval<Container&>()))>
  Tensor(Container& elements, const Sizes& sizes) : Tensor(Span<T>(elements), sizes) {}

  // The same elements with these strides, in elements. Strides cannot be negative.
  Tensor with_strides(const Sizes& strides) const {
    Tensor strided = *this;
    strided.strides_ = strides;
    strided.is_row_major_ = false;
    return strided;
  }

  T* data() const { return data_; }

  // Number of elements from the first to the last in memory, including gaps between them.
  size_t size() const { return size_; }
  const Sizes& sizes() const { return sizes_; }
  size_t rank() const { return sizes_.size(); }

  // True if the tensor is stored row-major.
  bool is_row_major() const { return is_row_major_; }

  // The elements in storage order.
  Span<T> span() const { return {data_, size_}; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](size_t place) const { return data_[place]; }

  // The element at an index: `logits(0, token)`. The index is not checked.
  template <typename... Integers>
  T& operator()(Integers... index) const {
    const Sizes at(index...);
    size_t place = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) {
      const auto size = static_cast<size_t>(sizes_[dim]);
      place = is_row_major_ ? place * size + static_cast<size_t>(at[dim]) : place + static_cast<size_t>(at[dim] * strides_[dim]);
    }
    return data_[place];
  }

  // Copies the elements, in the order of their indices.
  std::vector<std::remove_const_t<T>> to_vector() const {
    if (is_row_major_) {
      return std::vector<std::remove_const_t<T>>(begin(), end());
    }
    size_t count = 1;
    for (const int64_t size : sizes_) {
      count *= static_cast<size_t>(size);
    }
    std::vector<std::remove_const_t<T>> elements;
    elements.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      size_t place = 0, rest = i;
      for (size_t dim = rank(); dim-- > 0;) {
        place += rest % static_cast<size_t>(sizes_[dim]) * static_cast<size_t>(strides_[dim]);
        rest /= static_cast<size_t>(sizes_[dim]);
      }
      elements.push_back(data_[place]);
    }
    return elements;
  }

  // The tensor as a value of the C interface. It refers to the sizes of this object.
  rl_value raw() const& {
    rl_value value{};
    value.kind = RL_KIND_TENSOR;
    value.as.tensor = {const_cast<std::remove_const_t<T>*>(data_), size_ * sizeof(T), sizes_.data(),
                       is_row_major_ ? nullptr : strides_.data(), rank(), dtype_of<T>};
    return value;
  }

 private:
  T* data_;
  size_t size_;
  Sizes sizes_;
  Sizes strides_;
  bool is_row_major_ = true;
};

template <typename Container>
Tensor(Container&, const Sizes&) -> Tensor<std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>>;

namespace internal {

// Success if a value is a tensor of this element type.
template <typename T>
Status is_tensor_of(const rl_value& value) {
  if (value.kind != RL_KIND_TENSOR) {
    return Status(RL_INVALID_TYPE, "the value is not a tensor but of kind " + std::to_string(value.kind));
  }
  const uint32_t dtype = value.as.tensor.dtype;
  if (dtype != dtype_of<T>) {
    return Status(RL_INVALID_TYPE, "the tensor has the element type " + std::to_string(dtype) + " and not " +
                                       std::to_string(dtype_of<T>) + " (rl_dtype)");
  }
  return Status();
}

template <typename T>
Tensor<T> view_of(const rl_tensor& raw) {
  Tensor<T> tensor(static_cast<T*>(raw.data), raw.nbytes / sizeof(T), Sizes(Span<const int64_t>(raw.sizes, raw.rank)));
  if (raw.strides != nullptr) {
    tensor = tensor.with_strides(Sizes(Span<const int64_t>(raw.strides, raw.rank)));
  }
  return tensor;
}

// The tensor of a value, or the reason why it is not one.
template <typename T>
Result<Tensor<T>> tensor_of(const rl_value& value) {
  Status status = is_tensor_of<T>(value);
  return status.ok() ? Result<Tensor<T>>(view_of<T>(value.as.tensor)) : Result<Tensor<T>>(std::move(status));
}

}  // namespace internal

// A value to read: an output of a method, an argument of an operator, or a value that the export fixed. It lives as long as the object
// that returned it.
class Value {
 public:
  Value() : value_() {}
  explicit Value(const rl_value& value) : value_(value) {}

  rl_kind kind() const { return static_cast<rl_kind>(value_.kind); }
  bool is_none() const { return kind() == RL_KIND_NONE; }
  bool is_tensor() const { return kind() == RL_KIND_TENSOR; }

  // Properties of a tensor. The element type need not be known.
  rl_dtype dtype() const { return try_dtype().value(); }
  Span<const int64_t> sizes() const { return try_sizes().value(); }
  Bytes bytes() const { return try_bytes().value(); }
  Result<rl_dtype> try_dtype() const {
    return read(RL_KIND_TENSOR, "a tensor", [](const rl_value_as& as) { return static_cast<rl_dtype>(as.tensor.dtype); });
  }
  Result<Span<const int64_t>> try_sizes() const {
    return read(RL_KIND_TENSOR, "a tensor", [](const rl_value_as& as) { return Span<const int64_t>(as.tensor.sizes, as.tensor.rank); });
  }
  Result<Bytes> try_bytes() const {
    return read(RL_KIND_TENSOR, "a tensor", [](const rl_value_as& as) { return Bytes(as.tensor.data, as.tensor.nbytes); });
  }

  // A tensor of this element type; `RL_INVALID_TYPE` for any other value.
  template <typename T>
  Tensor<const T> tensor() const {
    check(internal::is_tensor_of<T>(value_));
    return internal::view_of<const T>(value_.as.tensor);
  }
  template <typename T>
  Result<Tensor<const T>> try_tensor() const {
    return internal::tensor_of<const T>(value_);
  }

  // A number, bool or string; `RL_INVALID_TYPE` for a value of another kind.
  int64_t to_int() const { return try_to_int().value(); }
  double to_double() const { return try_to_double().value(); }
  bool to_bool() const { return try_to_bool().value(); }
  std::string_view to_string() const { return try_to_string().value(); }
  Result<int64_t> try_to_int() const {
    return read(RL_KIND_INT, "an int", [](const rl_value_as& as) { return as.integer; });
  }
  Result<double> try_to_double() const {
    return read(RL_KIND_DOUBLE, "a double", [](const rl_value_as& as) { return as.real; });
  }
  Result<bool> try_to_bool() const {
    return read(RL_KIND_BOOL, "a bool", [](const rl_value_as& as) { return as.boolean != 0; });
  }
  Result<std::string_view> try_to_string() const {
    return read(RL_KIND_STRING, "a string", [](const rl_value_as& as) { return internal::view(as.string); });
  }

  // Elements of a list, which operators take: `int64_t`, `double` or `uint8_t`.
  template <typename T>
  Span<const T> to_list() const {
    return try_to_list<T>().value();
  }
  template <typename T>
  Result<Span<const T>> try_to_list() const {
    static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, uint8_t>);
    const rl_kind wanted = std::is_same_v<T, int64_t>  ? RL_KIND_INT_LIST
                           : std::is_same_v<T, double> ? RL_KIND_DOUBLE_LIST
                                                       : RL_KIND_BOOL_LIST;
    return read(wanted, "a list of this type",
                [](const rl_value_as& as) { return Span<const T>(static_cast<const T*>(as.list.data), as.list.size); });
  }

  const rl_value& raw() const { return value_; }

 private:
  template <typename Read>
  auto read(rl_kind wanted, const char* what, Read&& read) const -> Result<decltype(read(std::declval<const rl_value_as&>()))> {
    if (kind() != wanted) {
      return Status(RL_INVALID_TYPE, std::string("the value is not ") + what + " but of kind " + std::to_string(value_.kind));
    }
    return read(value_.as);
  }

  rl_value value_;
};

// An input of a method, with an optional name: `forward(image, 0.5)`, `run("forward", {{"input_ids", ids}, {"attention_mask", mask}})`.
// Also the value of an option. Elements and texts are borrowed.
class Input {
 public:
  // The value None.
  Input(std::nullptr_t = nullptr) : value_(), sizes_(), strides_() {}

  template <typename T>
  Input(const Tensor<T>& tensor) : value_(tensor.raw()), sizes_(tensor.sizes()), strides_() {
    if (!tensor.is_row_major()) {
      strides_ = Sizes(Span<const int64_t>(value_.as.tensor.strides, tensor.rank()));
      is_row_major_ = false;
    }
  }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Input(T number) : value_(number_of(number)), sizes_(), strides_() {}
  Input(std::string_view text) : Input() {
    value_.kind = RL_KIND_STRING;
    value_.as.string = {text.data(), text.size()};
  }
  Input(const char* text) : Input(std::string_view(text)) {}
  Input(const std::string& text) : Input(std::string_view(text)) {}

  // An output of a method, or an argument of an operator.
  Input(const Value& value) : value_(value.raw()), sizes_(), strides_() {
    if (value.is_tensor()) {
      const rl_tensor& tensor = value_.as.tensor;
      sizes_ = Sizes(Span<const int64_t>(tensor.sizes, tensor.rank));
      is_row_major_ = tensor.strides == nullptr;
      if (!is_row_major_) {
        strides_ = Sizes(Span<const int64_t>(tensor.strides, tensor.rank));
      }
    }
  }

  // An input by its name in `Meta`. Either all inputs of a call have names, or none.
  template <typename T>
  Input(const char* name, const T& value) : Input(value) {
    name_ = name;
  }

  const char* name() const { return name_; }

  // The input as a value of the C interface. It refers to the sizes of this object.
  rl_value raw() const {
    rl_value value = value_;
    if (value.kind == RL_KIND_TENSOR) {
      value.as.tensor.sizes = sizes_.data();
      value.as.tensor.strides = is_row_major_ ? nullptr : strides_.data();
    }
    return value;
  }

 private:
  template <typename T>
  static rl_value number_of(T number) {
    rl_value value{};
    if constexpr (std::is_same_v<T, bool>) {
      value.kind = RL_KIND_BOOL;
      value.as.boolean = number ? 1 : 0;
    } else if constexpr (std::is_integral_v<T>) {
      value.kind = RL_KIND_INT;
      value.as.integer = static_cast<int64_t>(number);
    } else {
      value.kind = RL_KIND_DOUBLE;
      value.as.real = static_cast<double>(number);
    }
    return value;
  }

  rl_value value_;
  Sizes sizes_;
  Sizes strides_;
  const char* name_ = nullptr;
  bool is_row_major_ = true;
};

namespace internal {

// An argument in the form that a call borrows: a tensor as it is, and anything else as an `Input`. That copies the sizes: those of an
// output are invalid after the next use of its module.
template <typename T>
const Tensor<T>& lent(const Tensor<T>& tensor) {
  return tensor;
}
template <typename T>
Input lent(const T& value) {
  return Input(value);
}

}  // namespace internal
}  // namespace rushlight

#if __cplusplus >= 202002L && __has_include(<ranges>)
#include <ranges>
template <typename T>
inline constexpr bool std::ranges::enable_borrowed_range<rushlight::Span<T>> = true;
#endif
