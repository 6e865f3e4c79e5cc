// Element types. The numbers are PyTorch's.

#pragma once

#include <executorch/runtime/core/portable_type/reduced_float.h>

#include <cstddef>
#include <cstdint>

namespace executorch {
namespace runtime {
namespace etensor {

// Each line has the C++ type of an element, the name and the number.
#define RUSHLIGHT_FORALL_ELEMENTS(_)                    \
  _(uint8_t, Byte, 0)                                   \
  _(int8_t, Char, 1)                                    \
  _(int16_t, Short, 2)                                  \
  _(int32_t, Int, 3)                                    \
  _(int64_t, Long, 4)                                   \
  _(::executorch::runtime::etensor::Half, Half, 5)      \
  _(float, Float, 6)                                    \
  _(double, Double, 7)                                  \
  _(bool, Bool, 11)                                     \
  _(::executorch::runtime::etensor::BFloat16, BFloat16, 15) \
  _(uint16_t, UInt16, 27)                               \
  _(uint32_t, UInt32, 28)                               \
  _(uint64_t, UInt64, 29)

enum class ScalarType : int8_t {
#define RUSHLIGHT_ENUMERATOR(type, name, number) name = number,
  RUSHLIGHT_FORALL_ELEMENTS(RUSHLIGHT_ENUMERATOR)
#undef RUSHLIGHT_ENUMERATOR
  ComplexHalf = 8,
  ComplexFloat = 9,
  ComplexDouble = 10,
  QInt8 = 12,
  QUInt8 = 13,
  QInt32 = 14,
  QUInt4x2 = 16,
  QUInt2x4 = 17,
  Bits1x8 = 18,
  Bits2x4 = 19,
  Bits4x2 = 20,
  Bits8 = 21,
  Bits16 = 22,
  Float8_e5m2 = 23,
  Float8_e4m3fn = 24,
  Float8_e5m2fnuz = 25,
  Float8_e4m3fnuz = 26,
  Undefined = 30,
  NumOptions = 31,
};

}  // namespace etensor
}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::etensor::ScalarType;
}  // namespace executor
}  // namespace torch
