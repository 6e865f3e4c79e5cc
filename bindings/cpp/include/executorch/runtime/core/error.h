// Error codes. The details of an error are logged where it occurs: see `ET_LOG`.

#pragma once

#include <executorch/runtime/platform/log.h>

#include <cstdint>

namespace executorch {
namespace runtime {

typedef uint32_t error_code_t;

enum class Error : error_code_t {
  Ok = 0x00,
  Internal = 0x01,
  InvalidState = 0x02,
  EndOfMethod = 0x03,
  AlreadyLoaded = 0x04,
  NotSupported = 0x10,
  NotImplemented = 0x11,
  InvalidArgument = 0x12,
  InvalidType = 0x13,
  OperatorMissing = 0x14,
  RegistrationExceedingMaxKernels = 0x15,
  RegistrationAlreadyRegistered = 0x16,
  NotFound = 0x20,
  MemoryAllocationFailed = 0x21,
  AccessFailed = 0x22,
  InvalidProgram = 0x23,
  InvalidExternalData = 0x24,
  OutOfResources = 0x25,
  DelegateInvalidCompatibility = 0x30,
  DelegateMemoryAllocationFailed = 0x31,
  DelegateInvalidHandle = 0x32,
};

constexpr const char* to_string(Error error) {
  switch (error) {
#define RUSHLIGHT_NAME(name) \
  case Error::name:          \
    return "Error::" #name;
    RUSHLIGHT_NAME(Ok)
    RUSHLIGHT_NAME(Internal)
    RUSHLIGHT_NAME(InvalidState)
    RUSHLIGHT_NAME(EndOfMethod)
    RUSHLIGHT_NAME(AlreadyLoaded)
    RUSHLIGHT_NAME(NotSupported)
    RUSHLIGHT_NAME(NotImplemented)
    RUSHLIGHT_NAME(InvalidArgument)
    RUSHLIGHT_NAME(InvalidType)
    RUSHLIGHT_NAME(OperatorMissing)
    RUSHLIGHT_NAME(RegistrationExceedingMaxKernels)
    RUSHLIGHT_NAME(RegistrationAlreadyRegistered)
    RUSHLIGHT_NAME(NotFound)
    RUSHLIGHT_NAME(MemoryAllocationFailed)
    RUSHLIGHT_NAME(AccessFailed)
    RUSHLIGHT_NAME(InvalidProgram)
    RUSHLIGHT_NAME(InvalidExternalData)
    RUSHLIGHT_NAME(OutOfResources)
    RUSHLIGHT_NAME(DelegateInvalidCompatibility)
    RUSHLIGHT_NAME(DelegateMemoryAllocationFailed)
    RUSHLIGHT_NAME(DelegateInvalidHandle)
#undef RUSHLIGHT_NAME
  }
  return "Error::Unknown";
}

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::Error;
using ::executorch::runtime::error_code_t;
}  // namespace executor
}  // namespace torch

// Logs and returns an error unless a condition is true.
#define ET_CHECK_OR_RETURN_ERROR(condition, error, ...)  \
  do {                                                   \
    if (!(condition)) {                                  \
      ET_LOG(Error, __VA_ARGS__);                        \
      return ::executorch::runtime::Error::error;        \
    }                                                    \
  } while (0)

// Logs and returns an error unless it is `Ok`.
#define ET_CHECK_OK_OR_RETURN_ERROR(error_, ...)             \
  do {                                                       \
    const auto et_error_ = (error_);                         \
    if (et_error_ != ::executorch::runtime::Error::Ok) {     \
      ET_LOG(Error, "%s", ::executorch::runtime::to_string(et_error_));             \
      return et_error_;                                      \
    }                                                        \
  } while (0)
