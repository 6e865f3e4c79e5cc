// Attributes and the language's version.

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

// False, once it is asked for: what is not served does not compile, and says what to use.
template <typename...>
inline constexpr bool is_served = false;

}  // namespace rushlight
