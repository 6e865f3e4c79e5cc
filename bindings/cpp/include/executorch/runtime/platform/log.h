// ET_LOG: lines on standard error, from the level ET_MIN_LOG_LEVEL on.

#pragma once

#include <executorch/runtime/platform/compiler.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#ifndef ET_MIN_LOG_LEVEL
#define ET_MIN_LOG_LEVEL Info
#endif

#ifndef ET_LOG_ENABLED
#define ET_LOG_ENABLED 1
#endif

namespace executorch {
namespace runtime {

enum class LogLevel : uint8_t { Debug, Info, Error, Fatal, NumLevels };

namespace internal {

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
inline void
log(LogLevel level, const char* file, int line, const char* format, ...) {
  using namespace std::chrono;
  static const steady_clock::time_point start = steady_clock::now();
  const long long us = duration_cast<microseconds>(steady_clock::now() - start).count();
  const char* slash = std::strrchr(file, '/');
  char text[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "%c %02lld:%02lld:%02lld.%06lld executorch:%s:%d] %s\n",
               "DIEF?"[static_cast<int>(level)], us / 3600000000LL, us / 60000000 % 60, us / 1000000 % 60,
               us % 1000000, slash == nullptr ? file : slash + 1, line, text);
}

}  // namespace internal
}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::LogLevel;
}  // namespace executor
}  // namespace torch

#if ET_LOG_ENABLED
#define ET_LOG(level_, ...)                                                                 \
  do {                                                                                      \
    if (::executorch::runtime::LogLevel::level_ >= ::executorch::runtime::LogLevel::ET_MIN_LOG_LEVEL) { \
      ::executorch::runtime::internal::log(::executorch::runtime::LogLevel::level_, __FILE__, \
                                           __LINE__, __VA_ARGS__);                          \
    }                                                                                       \
  } while (0)
#else
#define ET_LOG(level_, ...) \
  do {                      \
  } while (0)
#endif
