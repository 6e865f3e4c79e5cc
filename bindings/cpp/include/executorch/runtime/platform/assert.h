// Checks that end the process, as ExecuTorch's do.

#pragma once

#include <executorch/runtime/platform/log.h>

#include <cstdlib>

#define ET_ASSERT_UNREACHABLE_MSG(...) \
  do {                                 \
    ET_LOG(Fatal, __VA_ARGS__);        \
    std::abort();                      \
  } while (0)
#define ET_ASSERT_UNREACHABLE() ET_ASSERT_UNREACHABLE_MSG("this is never reached")

#define ET_CHECK_MSG(condition, ...) \
  do {                               \
    if (!(condition)) {              \
      ET_LOG(Fatal, "check failed: %s", #condition); \
      ET_LOG(Fatal, __VA_ARGS__);    \
      std::abort();                  \
    }                                \
  } while (0)
#define ET_CHECK(condition) ET_CHECK_MSG(condition, "%s", "")

#ifdef NDEBUG
#define ET_DCHECK(condition) \
  do {                       \
  } while (0)
#define ET_DCHECK_MSG(condition, ...) \
  do {                                \
  } while (0)
#else
#define ET_DCHECK(condition) ET_CHECK(condition)
#define ET_DCHECK_MSG(condition, ...) ET_CHECK_MSG(condition, __VA_ARGS__)
#endif
