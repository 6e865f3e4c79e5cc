// Attributes and the version of C++.

#pragma once

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "rushlight: these headers need C++17"
#endif

#define ET_NODISCARD [[nodiscard]]
#define ET_DEPRECATED [[deprecated]]
#define ET_EXPERIMENTAL
#define ET_UNUSED [[maybe_unused]]
#define ET_LIKELY(condition) (condition)
#define ET_UNLIKELY(condition) (condition)

namespace rushlight {

// False, and dependent on a type: `static_assert` then fails only where a function that is not supported is used.
template <typename...>
inline constexpr bool is_served = false;

}  // namespace rushlight
