// From types of C++ to element types and back, names, and casts.

#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace executorch {
namespace runtime {

template <typename T>
struct CppTypeToScalarType;
template <aten::ScalarType type>
struct ScalarTypeToCppType;

#define RUSHLIGHT_TYPE(type_, name, number)                                \
  template <>                                                              \
  struct CppTypeToScalarType<type_> {                                      \
    static constexpr aten::ScalarType value = aten::ScalarType::name;      \
  };                                                                       \
  template <>                                                              \
  struct ScalarTypeToCppType<aten::ScalarType::name> {                     \
    using type = type_;                                                    \
  };
RUSHLIGHT_FORALL_ELEMENTS(RUSHLIGHT_TYPE)
#undef RUSHLIGHT_TYPE

inline const char* toString(aten::ScalarType type) {
  switch (type) {
#define RUSHLIGHT_NAME(type_, name, number) \
  case aten::ScalarType::name:              \
    return #name;
    RUSHLIGHT_FORALL_ELEMENTS(RUSHLIGHT_NAME)
#undef RUSHLIGHT_NAME
    default:
      return "UNKNOWN_SCALAR";
  }
}

inline bool isFloatingType(aten::ScalarType type) {
  using aten::ScalarType;
  return type == ScalarType::Double || type == ScalarType::Float || type == ScalarType::Half ||
         type == ScalarType::BFloat16;
}

inline bool isComplexType(aten::ScalarType type) {
  using aten::ScalarType;
  return type == ScalarType::ComplexHalf || type == ScalarType::ComplexFloat || type == ScalarType::ComplexDouble;
}

// ExecuTorch's rule: unsigned types of 16 bits and more are not integral, so floats are cast to them.
inline bool isIntegralType(aten::ScalarType type, bool include_bool) {
  using aten::ScalarType;
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
      return true;
    default:
      return include_bool && type == ScalarType::Bool;
  }
}

// PyTorch's rule of `can_cast`: not from complex to real numbers, from floats to integers, or from others to bool.
inline bool canCast(aten::ScalarType from, aten::ScalarType to) {
  return !(isComplexType(from) && !isComplexType(to)) &&
         !(isFloatingType(from) && isIntegralType(to, /*include_bool=*/false)) &&
         !(from != aten::ScalarType::Bool && to == aten::ScalarType::Bool);
}

// Calls `work` with a value of the C++ type of the elements. Returns false for types without one.
template <typename Work>
bool with_element_type(aten::ScalarType type, Work&& work) {
  switch (type) {
#define RUSHLIGHT_CASE(type_, name, number) \
  case aten::ScalarType::name:              \
    work(type_{});                          \
    return true;
    RUSHLIGHT_FORALL_ELEMENTS(RUSHLIGHT_CASE)
#undef RUSHLIGHT_CASE
    default:
      return false;
  }
}

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::canCast;
using ::executorch::runtime::CppTypeToScalarType;
using ::executorch::runtime::elementSize;
using ::executorch::runtime::toString;
}  // namespace executor
}  // namespace torch
