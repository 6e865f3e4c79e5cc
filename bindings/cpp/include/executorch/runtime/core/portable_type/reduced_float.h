// 16-bit floats: `Half` (IEEE 754 binary16) and `BFloat16` (the upper half of binary32). They convert to and from float, rounding to
// nearest even. Arithmetic is done in float.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace executorch {
namespace runtime {
namespace etensor {

namespace internal {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return static_cast<uint16_t>(sign | 0x7e00);
  }
  if (magnitude >= 65520.0f) {
    return static_cast<uint16_t>(sign | 0x7c00);
  }
  if (magnitude < 6.103515625e-05f) {
    // Subnormal: a multiple of 2^-24, rounded by the addition.
    const float shifted = magnitude + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t rebased = (bits & 0x7fffffff) - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfff + (rebased >> 13 & 1)) >> 13));
}

inline float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 5.9604644775390625e-08f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return float_of(sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | fraction << 13);
}

inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  if (std::isnan(value)) {
    return 0x7fc0;
  }
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }

// The common base of both types, which defines operators by their conversions.
template <typename Self, uint16_t (*From)(float), float (*To)(uint16_t)>
struct ReducedFloat {
  struct from_bits_t {};
  static constexpr from_bits_t from_bits() { return {}; }

  uint16_t x = 0;

  ReducedFloat() = default;
  constexpr ReducedFloat(uint16_t bits, from_bits_t) : x(bits) {}
  ReducedFloat(float value) : x(From(value)) {}
  operator float() const { return To(x); }

  Self& operator+=(float other) { return set(*this + other); }
  Self& operator-=(float other) { return set(*this - other); }
  Self& operator*=(float other) { return set(*this * other); }
  Self& operator/=(float other) { return set(*this / other); }

 private:
  Self& set(float value) {
    x = From(value);
    return static_cast<Self&>(*this);
  }
};

}  // namespace internal

struct Half : internal::ReducedFloat<Half, internal::to_half, internal::from_half> {
  using ReducedFloat::ReducedFloat;
};

struct BFloat16 : internal::ReducedFloat<BFloat16, internal::to_bfloat16, internal::from_bfloat16> {
  using ReducedFloat::ReducedFloat;
};

}  // namespace etensor
}  // namespace runtime
}  // namespace executorch

template <>
class std::numeric_limits<executorch::runtime::etensor::Half> {
  using T = executorch::runtime::etensor::Half;

 public:
  static constexpr bool is_specialized = true;
  static constexpr T lowest() { return T(0xfbff, T::from_bits()); }
  static constexpr T max() { return T(0x7bff, T::from_bits()); }
  static constexpr T min() { return T(0x0400, T::from_bits()); }
  static constexpr T epsilon() { return T(0x1400, T::from_bits()); }
  static constexpr T infinity() { return T(0x7c00, T::from_bits()); }
  static constexpr T quiet_NaN() { return T(0x7e00, T::from_bits()); }
};

template <>
class std::numeric_limits<executorch::runtime::etensor::BFloat16> {
  using T = executorch::runtime::etensor::BFloat16;

 public:
  static constexpr bool is_specialized = true;
  static constexpr T lowest() { return T(0xff7f, T::from_bits()); }
  static constexpr T max() { return T(0x7f7f, T::from_bits()); }
  static constexpr T min() { return T(0x0080, T::from_bits()); }
  static constexpr T epsilon() { return T(0x3c00, T::from_bits()); }
  static constexpr T infinity() { return T(0x7f80, T::from_bits()); }
  static constexpr T quiet_NaN() { return T(0x7fc0, T::from_bits()); }
};
