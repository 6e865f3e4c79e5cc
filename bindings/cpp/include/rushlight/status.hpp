// Status, Error and Result: the success or failure of a call, as a value or an exception.

#pragma once

#include <rushlight.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define RUSHLIGHT_EXCEPTIONS 1
#else
#define RUSHLIGHT_EXCEPTIONS 0
#include <cstdio>
#include <cstdlib>
#endif

namespace rushlight {

// Success, or an error: its message, place, expected and actual values, and a hint. Unknown texts are empty. Texts live as long as the
// status and its copies, which share them. A status never changes, so any number of threads may read it.
class [[nodiscard]] Status {
 public:
  // Success.
  Status() = default;

  // An error that an operator returns.
  Status(rl_code code, const std::string& message) : Status(rl_status_new(code, message.c_str())) {}

  // Takes ownership of a status of the C interface.
  explicit Status(rl_status* status) {
    // Success allocates nothing.
    if (status != nullptr) {
      status_.reset(status, rl_status_free);
    }
  }

  bool ok() const { return status_ == nullptr; }
  explicit operator bool() const { return ok(); }

  // `RL_OK` or the code of the error. A newer library may have codes that the header lacks.
  rl_code code() const { return static_cast<rl_code>(rl_status_code(get())); }

  // The error in one line.
  std::string_view message() const { return view(rl_status_message(get())); }

  // The place of the error, such as an input, or an instruction with its line of Python.
  std::string_view site() const { return view(rl_status_site(get())); }

  std::string_view expected() const { return view(rl_status_expected(get())); }
  std::string_view got() const { return view(rl_status_got(get())); }

  // A hint: how to mend the error.
  std::string_view hint() const { return view(rl_status_hint(get())); }

  // The whole error in several lines, for people.
  std::string_view text() const { return view(rl_status_text(get())); }

  // Full names of the operators that the program needs and the library lacks.
  std::vector<std::string_view> missing_operators() const {
    std::vector<std::string_view> names;
    while (const char* name = rl_status_missing_operator(get(), names.size())) {
      names.emplace_back(name);
    }
    return names;
  }

  // The system's error number for a file that could not be accessed; 0 for other errors.
  int os_error() const { return rl_status_os_error(get()); }

  const rl_status* get() const { return status_.get(); }

 private:
  static std::string_view view(const char* text) { return text == nullptr ? std::string_view() : std::string_view(text); }

  std::shared_ptr<rl_status> status_;
};

// The exception of all functions. Copies share the status.
class Error : public std::exception {
 public:
  explicit Error(Status status) : status_(std::move(status)) {}

  // A move copies, so that every error keeps its status.
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;

  const Status& status() const { return status_; }
  rl_code code() const { return status_.code(); }

  // The whole error in several lines.
  const char* what() const noexcept override {
    const char* text = rl_status_text(status_.get());
    return text == nullptr ? "an error without a status" : text;
  }

 private:
  Status status_;
};

// Throws an error. Without exceptions, prints it and ends the process.
[[noreturn]] inline void raise(Status failure) {
#if RUSHLIGHT_EXCEPTIONS
  throw Error(std::move(failure));
#else
  std::fprintf(stderr, "%s\n", Error(std::move(failure)).what());
  std::abort();
#endif
}

// Throws if the status is an error.
inline void check(Status status) {
  if (!status.ok()) {
    raise(std::move(status));
  }
}

// A value, or the error that prevented it.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status failure) : status_(std::move(failure)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Success if there is a value.
  const Status& status() const& { return status_; }
  Status status() && { return status_; }

  // The value; throws if there is none.
  T& value() & {
    require();
    return *value_;
  }
  const T& value() const& {
    require();
    return *value_;
  }
  T value() && {
    require();
    return std::move(*value_);
  }

  // The value, which must exist.
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }

 private:
  void require() const {
    if (!ok()) {
      raise(status_);
    }
  }

  std::optional<T> value_;
  Status status_;
};

namespace internal {

// Catches the exception of a callback, which may not cross the library, and rethrows it when the library has returned.
class Caught {
 public:
  // Returns false if the callback threw.
  template <typename F>
  bool run(F&& callback) noexcept {
#if RUSHLIGHT_EXCEPTIONS
    try {
      callback();
    } catch (...) {
      if (thrown_ == nullptr) {
        thrown_ = std::current_exception();
      }
      return false;
    }
#else
    callback();
#endif
    return true;
  }

  void rethrow() {
#if RUSHLIGHT_EXCEPTIONS
    if (thrown_ != nullptr) {
      std::rethrow_exception(std::exchange(thrown_, nullptr));
    }
#endif
  }

 private:
#if RUSHLIGHT_EXCEPTIONS
  std::exception_ptr thrown_;
#endif
};

// An error for the library, which frees it. It reads only the code and the message.
inline rl_status* given_away(const Status& failure) { return rl_status_new(failure.code(), rl_status_message(failure.get())); }

// Runs a function that returns a Status. An exception becomes a Status that is an error.
template <typename F>
rl_status* guarded(F&& call) noexcept {
  const auto returned = [&] {
    const Status status = call();
    return status.ok() ? nullptr : given_away(status);
  };
#if RUSHLIGHT_EXCEPTIONS
  try {
    return returned();
  } catch (const Error& error) {
    return given_away(error.status());
  } catch (const std::exception& error) {
    return rl_status_new(RL_INTERNAL, error.what());
  } catch (...) {
    return rl_status_new(RL_INTERNAL, "an exception that is no std::exception");
  }
#else
  return returned();
#endif
}

// A NUL-terminated text that a call borrows.
class Text {
 public:
  Text(const char* text) : text_(text) {}
  Text(const std::string& text) : text_(text.c_str()) {}
  const char* get() const { return text_; }

 private:
  const char* text_;
};

template <typename T, void (*free)(T*)>
struct FreeWith {
  void operator()(T* object) const { free(object); }
};

// Owns an object of the C interface, and frees it.
template <typename T, void (*free)(T*)>
using Handle = std::unique_ptr<T, FreeWith<T, free>>;

inline const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

inline std::string_view view(rl_string text) { return {text.data, text.size}; }

}  // namespace internal
}  // namespace rushlight
