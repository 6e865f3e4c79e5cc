// Meta: the inputs, outputs, backends and memory of a method, from the program.

#pragma once

#include <rushlight/tensor.hpp>

namespace rushlight {

// An input, output or attribute as the program declares it.
class ValueInfo {
 public:
  ValueInfo(std::shared_ptr<const rl_meta> meta, const rl_value_info& info) : meta_(std::move(meta)), info_(info) {}

  // Its name in the exported function; empty if the program records none.
  std::string_view name() const { return info_.name == nullptr ? std::string_view() : std::string_view(info_.name); }

  // For a tensor: its element type and sizes, without elements. Dynamic sizes are upper bounds. For other kinds: the value that the export
  // fixed, and that an input must have.
  Value value() const { return Value(info_.value); }

  // The dimensions of a tensor in the order in memory, from the outermost.
  Span<const uint8_t> dim_order() const { return {info_.dim_order, info_.dim_order == nullptr ? 0 : info_.value.as.tensor.rank}; }

  // The allowed sizes of each dimension of a dynamic input. Empty for static inputs, and for programs of ExecuTorch's compiler.
  Span<const rl_size_range> ranges() const { return {info_.ranges, info_.ranges == nullptr ? 0 : info_.value.as.tensor.rank}; }

  // True if sizes may change from call to call.
  bool is_dynamic() const { return info_.is_dynamic; }

  // True if the program planned memory for the tensor. Such an input is copied there; others are read in place.
  bool is_memory_planned() const { return info_.is_memory_planned; }

 private:
  std::shared_ptr<const rl_meta> meta_;
  rl_value_info info_;
};

// A method of a program. It is independent of the module that it came from; any number of threads may read it.
class Meta {
 public:
  // Takes ownership of a description of the C interface.
  explicit Meta(rl_meta* meta) : meta_(meta, rl_meta_free) {}

  std::string_view name() const { return rl_meta_name(get()); }
  size_t num_inputs() const { return rl_meta_num_inputs(get()); }
  size_t num_outputs() const { return rl_meta_num_outputs(get()); }
  size_t num_attributes() const { return rl_meta_num_attributes(get()); }
  size_t num_instructions() const { return rl_meta_num_instructions(get()); }

  // `RL_INVALID_ARGUMENT` for an index that is too large.
  ValueInfo input(size_t index) const { return try_info(rl_meta_input, index).value(); }
  ValueInfo output(size_t index) const { return try_info(rl_meta_output, index).value(); }
  ValueInfo attribute(size_t index) const { return try_info(rl_meta_attribute, index).value(); }
  Result<ValueInfo> try_input(size_t index) const { return try_info(rl_meta_input, index); }
  Result<ValueInfo> try_output(size_t index) const { return try_info(rl_meta_output, index); }
  Result<ValueInfo> try_attribute(size_t index) const { return try_info(rl_meta_attribute, index); }

  // The backend of each part of the method, and the full names of the operators that it calls.
  std::vector<std::string_view> backends() const { return names(rl_meta_backend); }
  std::vector<std::string_view> operators() const { return names(rl_meta_operator); }

  // Bytes of the planned buffers.
  std::vector<uint64_t> planned_buffers() const {
    std::vector<uint64_t> sizes;
    while (sizes.size() < rl_meta_num_planned_buffers(get())) {
      sizes.push_back(rl_meta_planned_buffer_size(get(), sizes.size()));
    }
    return sizes;
  }

  const rl_meta* get() const { return meta_.get(); }

 private:
  Result<ValueInfo> try_info(rl_status* (*describe)(const rl_meta*, size_t, rl_value_info*), size_t index) const {
    rl_value_info info = RL_VALUE_INFO_INIT;
    Status status(describe(get(), index, &info));
    return status.ok() ? Result<ValueInfo>(ValueInfo(meta_, info)) : Result<ValueInfo>(std::move(status));
  }

  std::vector<std::string_view> names(const char* (*name_of)(const rl_meta*, size_t)) const {
    std::vector<std::string_view> names;
    while (const char* name = name_of(get(), names.size())) {
      names.emplace_back(name);
    }
    return names;
  }

  std::shared_ptr<rl_meta> meta_;
};

}  // namespace rushlight
