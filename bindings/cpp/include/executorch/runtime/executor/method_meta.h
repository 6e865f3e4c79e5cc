// The description of a method in a program.

#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/core/tag.h>
#include <rushlight.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace executorch {
namespace extension {
class Module;
}  // namespace extension

namespace runtime {

namespace internal {

// Logs a status, frees it and returns its code.
inline Error take(rl_status* status) {
  if (status == nullptr) {
    return Error::Ok;
  }
  const auto code = static_cast<Error>(rl_status_code(status));
  ET_LOG(Error, "%s", rl_status_text(status));
  rl_status_free(status);
  return code;
}

inline Tag tag_of(uint32_t kind) {
  switch (kind) {
    case RL_KIND_TENSOR:
      return Tag::Tensor;
    case RL_KIND_INT:
      return Tag::Int;
    case RL_KIND_DOUBLE:
      return Tag::Double;
    case RL_KIND_BOOL:
      return Tag::Bool;
    case RL_KIND_STRING:
      return Tag::String;
    case RL_KIND_INT_LIST:
      return Tag::ListInt;
    case RL_KIND_DOUBLE_LIST:
      return Tag::ListDouble;
    case RL_KIND_BOOL_LIST:
      return Tag::ListBool;
    case RL_KIND_TENSOR_LIST:
      return Tag::ListTensor;
    default:
      return Tag::None;
  }
}

}  // namespace internal

// A tensor as the program declares it.
class TensorInfo final {
 public:
  // The sizes; upper bounds if they are dynamic.
  Span<const int32_t> sizes() const { return {values_->sizes.data(), values_->sizes.size()}; }
  Span<const uint8_t> dim_order() const { return {values_->dim_order.data(), values_->dim_order.size()}; }
  aten::ScalarType scalar_type() const { return values_->type; }
  bool is_memory_planned() const { return values_->is_planned; }
  size_t nbytes() const { return values_->nbytes; }
  // Empty if the program records none.
  std::string_view name() const { return values_->name; }

 private:
  friend class MethodMeta;

  struct Values {
    std::vector<int32_t> sizes;
    std::vector<uint8_t> dim_order;
    aten::ScalarType type;
    bool is_planned;
    size_t nbytes;
    std::string name;
  };

  explicit TensorInfo(const rl_value_info& info) {
    const rl_tensor& tensor = info.value.as.tensor;
    Values values{};
    values.sizes.assign(tensor.sizes, tensor.sizes + tensor.rank);
    values.dim_order.assign(info.dim_order, info.dim_order + tensor.rank);
    values.type = static_cast<aten::ScalarType>(tensor.dtype);
    values.is_planned = info.is_memory_planned;
    values.nbytes = tensor.nbytes;
    values.name = info.name == nullptr ? "" : info.name;
    values_ = std::make_shared<const Values>(std::move(values));
  }

  std::shared_ptr<const Values> values_;
};

class MethodMeta final {
 public:
  const char* name() const { return rl_meta_name(meta_.get()); }
  size_t num_inputs() const { return rl_meta_num_inputs(meta_.get()); }
  size_t num_outputs() const { return rl_meta_num_outputs(meta_.get()); }
  size_t num_attributes() const { return rl_meta_num_attributes(meta_.get()); }

  // Errors: `InvalidArgument` for an index that is too large, or a value that is not a tensor.
  Result<Tag> input_tag(size_t index) const { return tag(rl_meta_input, index); }
  Result<Tag> output_tag(size_t index) const { return tag(rl_meta_output, index); }
  Result<TensorInfo> input_tensor_meta(size_t index) const { return tensor(rl_meta_input, index); }
  Result<TensorInfo> output_tensor_meta(size_t index) const { return tensor(rl_meta_output, index); }
  Result<TensorInfo> attribute_tensor_meta(size_t index) const { return tensor(rl_meta_attribute, index); }

  size_t num_memory_planned_buffers() const { return rl_meta_num_planned_buffers(meta_.get()); }
  Result<int64_t> memory_planned_buffer_size(size_t index) const {
    ET_CHECK_OR_RETURN_ERROR(index < num_memory_planned_buffers(), InvalidArgument, "planned buffer %zu of %zu", index,
                             num_memory_planned_buffers());
    return static_cast<int64_t>(rl_meta_planned_buffer_size(meta_.get(), index));
  }
  ET_DEPRECATED size_t num_non_const_buffers() const { return num_memory_planned_buffers(); }
  Result<int64_t> non_const_buffer_size(size_t index) const { return memory_planned_buffer_size(index); }

  // The number of parts that backends run. A backend with several parts counts several times.
  size_t num_backends() const {
    size_t count = 0;
    while (rl_meta_backend(meta_.get(), count) != nullptr) {
      ++count;
    }
    return count;
  }
  Result<const char*> get_backend_name(size_t index) const {
    const char* name = rl_meta_backend(meta_.get(), index);
    ET_CHECK_OR_RETURN_ERROR(name != nullptr, InvalidArgument, "backend %zu of %zu", index, num_backends());
    return name;
  }
  bool uses_backend(const char* backend) const {
    for (size_t i = 0; const char* name = rl_meta_backend(meta_.get(), i); ++i) {
      if (std::strcmp(name, backend) == 0) {
        return true;
      }
    }
    return false;
  }
  size_t num_instructions() const { return rl_meta_num_instructions(meta_.get()); }

 private:
  friend class extension::Module;

  explicit MethodMeta(rl_meta* meta) : meta_(meta, rl_meta_free) {}

  using Describe = rl_status* (*)(const rl_meta*, size_t, rl_value_info*);

  Result<rl_value_info> info_of(Describe describe, size_t index) const {
    rl_value_info info = RL_VALUE_INFO_INIT;
    const Error error = internal::take(describe(meta_.get(), index, &info));
    return error == Error::Ok ? Result<rl_value_info>(info) : Result<rl_value_info>(error);
  }
  Result<Tag> tag(Describe describe, size_t index) const {
    const auto info = info_of(describe, index);
    return info.ok() ? Result<Tag>(internal::tag_of(info->value.kind)) : Result<Tag>(info.error());
  }
  Result<TensorInfo> tensor(Describe describe, size_t index) const {
    const auto info = info_of(describe, index);
    if (!info.ok()) {
      return info.error();
    }
    ET_CHECK_OR_RETURN_ERROR(info->value.kind == RL_KIND_TENSOR, InvalidArgument, "value %zu is not a tensor", index);
    return TensorInfo(*info);
  }

  std::shared_ptr<rl_meta> meta_;
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::MethodMeta;
using ::executorch::runtime::TensorInfo;
}  // namespace executor
}  // namespace torch
