// A value, or the error that prevented it.

#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/assert.h>

#include <optional>
#include <utility>

namespace executorch {
namespace runtime {

template <typename T>
class Result final {
 public:
  typedef T value_type;

  // `Ok` is not an error, and becomes `Internal`.
  Result(Error error) : error_(error == Error::Ok ? Error::Internal : error) {}
  Result(const T& value) : value_(value) {}
  Result(T&& value) : value_(std::move(value)) {}
  Result(Result&&) = default;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  Result& operator=(Result&&) = delete;

  ET_NODISCARD bool ok() const { return value_.has_value(); }
  ET_NODISCARD Error error() const { return ok() ? Error::Ok : error_; }

  // These end the process if there is no value.
  T& get() {
    check();
    return *value_;
  }
  const T& get() const {
    check();
    return *value_;
  }
  T& operator*() & { return get(); }
  const T& operator*() const& { return get(); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &get(); }

 private:
  void check() const { ET_CHECK_MSG(ok(), "a result has no value: %s", to_string(error_)); }

  std::optional<T> value_;
  Error error_ = Error::Ok;
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::Result;
}  // namespace executor
}  // namespace torch

// The value of a result, or a return with its error.
#define ET_UNWRAP(result, ...)             \
  ({                                       \
    auto et_result_ = (result);            \
    if (!et_result_.ok()) {                \
      return et_result_.error();           \
    }                                      \
    std::move(*et_result_);                \
  })

#define ET_ASSIGN_OR_RETURN(name, result, ...) \
  auto et_result_of_##name = (result);         \
  if (!et_result_of_##name.ok()) {             \
    return et_result_of_##name.error();        \
  }                                            \
  auto name = std::move(*et_result_of_##name)
