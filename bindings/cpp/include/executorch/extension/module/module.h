// `Module`, a loaded program, with ExecuTorch's interface.
//
// Differences from ExecuTorch: programs are always verified completely. Portable programs are compiled for this machine when they are
// loaded. The details of an error are logged. Allocators, tracers, the caller's kernels and `program()` are not supported: using them
// does not compile, and the message names the replacement.

#pragma once

#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/memory_allocator.h>
#include <executorch/runtime/executor/method_meta.h>
#include <executorch/runtime/executor/program.h>
#include <rushlight.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace executorch {
namespace extension {

using runtime::LoadBackendOptionsMap;
using runtime::MethodMeta;
using runtime::Program;

// One thread at a time uses a module. Its outputs live until their method is executed again.
class Module {
 public:
  enum class LoadMode { File, Mmap, MmapUseMlock, MmapUseMlockIgnoreErrors, MmapUseMadvise };

  // Nothing is read before the first call that needs it.
  explicit Module(const std::string& file_path, LoadMode load_mode = LoadMode::File,
                  std::unique_ptr<runtime::EventTracer> = nullptr, std::unique_ptr<runtime::MemoryAllocator> = nullptr,
                  std::unique_ptr<runtime::MemoryAllocator> = nullptr, bool share_memory_arenas = false)
      : Module(file_path, std::vector<std::string>{}, load_mode, nullptr, nullptr, nullptr, share_memory_arenas) {}

  // Loads a program with a `.ptd` file of weights.
  explicit Module(const std::string& file_path, const std::string& data_map_path, LoadMode load_mode = LoadMode::File,
                  std::unique_ptr<runtime::EventTracer> = nullptr, std::unique_ptr<runtime::MemoryAllocator> = nullptr,
                  std::unique_ptr<runtime::MemoryAllocator> = nullptr, bool share_memory_arenas = false)
      : Module(file_path, std::vector<std::string>{data_map_path}, load_mode, nullptr, nullptr, nullptr, share_memory_arenas) {}

  explicit Module(const std::string& file_path, std::vector<std::string> data_files, LoadMode load_mode = LoadMode::File,
                  std::unique_ptr<runtime::EventTracer> = nullptr, std::unique_ptr<runtime::MemoryAllocator> = nullptr,
                  std::unique_ptr<runtime::MemoryAllocator> = nullptr, bool share_memory_arenas = false)
      : path_(file_path), data_files_(std::move(data_files)), mode_(load_mode), shares_memory_(share_memory_arenas) {}

  explicit Module(std::unique_ptr<runtime::DataLoader> data_loader, std::unique_ptr<runtime::MemoryAllocator> = nullptr,
                  std::unique_ptr<runtime::MemoryAllocator> = nullptr, std::unique_ptr<runtime::EventTracer> = nullptr,
                  std::unique_ptr<runtime::DataLoader> data_map_loader = nullptr, bool share_memory_arenas = false)
      : path_(data_loader->path()),
        mode_(data_loader->is_mapped() ? LoadMode::Mmap : LoadMode::File),
        loader_(std::move(data_loader)),
        data_loader_(std::move(data_map_loader)),
        shares_memory_(share_memory_arenas) {}

  template <typename Shared, typename... More>
  explicit Module(std::shared_ptr<Shared>, More&&...) {
    static_assert(rushlight::is_served<Shared>,
                  "rushlight: modules do not share a Program: make each of the file, in LoadMode::Mmap: they share its pages");
  }

  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // Errors: `NotFound` and `AccessFailed` for the file, `InvalidProgram` for its content.
  ET_NODISCARD virtual runtime::Error load(Program::Verification = Program::Verification::Minimal) {
    if (is_loaded()) {
      return runtime::Error::Ok;
    }
    rl_load_options options = RL_LOAD_OPTIONS_INIT;
    options.mode = mode_ == LoadMode::File                       ? RL_LOAD_READ
                   : mode_ == LoadMode::MmapUseMlock             ? RL_LOAD_MMAP_LOCKED
                   : mode_ == LoadMode::MmapUseMlockIgnoreErrors ? RL_LOAD_MMAP_LOCKED_IF_ALLOWED
                                                                 : RL_LOAD_MMAP;
    options.share_memory = shares_memory_;
    std::vector<rl_data> data;
    for (const std::string& file : data_files_) {
      data.push_back({file.c_str(), nullptr, 0});
    }
    if (data_loader_ != nullptr) {
      const bool is_file = !data_loader_->path().empty();
      data.push_back({is_file ? data_loader_->path().c_str() : nullptr, data_loader_->data(), data_loader_->data_size()});
    }
    options.data = data.data();
    options.num_data = data.size();
    rl_module* module = nullptr;
    const bool is_in_memory = loader_ != nullptr && path_.empty();
    const runtime::Error error = runtime::internal::take(
        is_in_memory
            ? rl_module_load_borrowed(loader_->data(), loader_->data_size(), nullptr, nullptr, &options, &module)
            : rl_module_load(path_.c_str(), &options, &module));
    if (error == runtime::Error::Ok) {
      module_.reset(module);
    }
    return error;
  }

  // Unknown options, and options of unknown backends such as ExecuTorch's, are logged and ignored.
  ET_NODISCARD virtual runtime::Error load(const LoadBackendOptionsMap& options,
                                           Program::Verification verification = Program::Verification::Minimal) {
    const runtime::Error error = load(verification);
    if (error == runtime::Error::Ok) {
      store_options(options);
      set_options(options_);
    }
    return error;
  }

  // A copy of the options that it was loaded with.
  const LoadBackendOptionsMap& backend_options() const { return options_; }

  virtual bool is_loaded() const { return module_ != nullptr; }

  template <typename T = void>
  std::shared_ptr<Program> program() const {
    static_assert(rushlight::is_served<T>,
                  "rushlight: there is no Program to share: make another Module of the file, in LoadMode::Mmap");
    return nullptr;
  }

  runtime::Result<size_t> num_methods() {
    const auto names = method_names();
    return names.ok() ? runtime::Result<size_t>(names->size()) : runtime::Result<size_t>(names.error());
  }

  runtime::Result<std::unordered_set<std::string>> method_names() {
    if (const auto error = load(); error != runtime::Error::Ok) {
      return error;
    }
    std::unordered_set<std::string> names;
    for (size_t i = 0; const char* name = rl_module_method(module_.get(), i); ++i) {
      names.insert(name);
    }
    return names;
  }

  ET_NODISCARD runtime::Error load_method(const std::string& method_name,
                                          runtime::HierarchicalAllocator* /*planned_memory*/ = nullptr,
                                          runtime::EventTracer* /*event_tracer*/ = nullptr,
                                          const LoadBackendOptionsMap* backend_options = nullptr) {
    if (is_method_loaded(method_name)) {
      return runtime::Error::Ok;
    }
    if (const auto error = load(); error != runtime::Error::Ok) {
      return error;
    }
    if (backend_options != nullptr) {
      set_options(*backend_options);
    }
    keep_outputs();
    const auto error = runtime::internal::take(rl_module_load_method(module_.get(), method_name.c_str()));
    if (error != runtime::Error::Ok) {
      return error;
    }
    const auto meta = method_meta(method_name);
    if (!meta.ok()) {
      return meta.error();
    }
    methods_.emplace(method_name, Method(*meta));
    return error;
  }

  ET_NODISCARD runtime::Error load_forward(runtime::HierarchicalAllocator* planned_memory = nullptr,
                                           runtime::EventTracer* event_tracer = nullptr,
                                           const LoadBackendOptionsMap* backend_options = nullptr) {
    return load_method("forward", planned_memory, event_tracer, backend_options);
  }

  template <typename T = void>
  runtime::Result<void*> method(const std::string&) {
    static_assert(rushlight::is_served<T>, "rushlight: there is no Method: use set_input, execute and get_output of Module");
    return runtime::Error::NotSupported;
  }

  // Returns true if the method was loaded. Its outputs become invalid.
  bool unload_method(const std::string& method_name) {
    const auto known = methods_.find(method_name);
    if (known == methods_.end()) {
      return false;
    }
    if (last_ == &known->second) {
      last_ = nullptr;
    } else {
      keep_outputs();
    }
    methods_.erase(known);
    return runtime::internal::take(rl_module_unload_method(module_.get(), method_name.c_str())) == runtime::Error::Ok;
  }
  bool unload_forward() { return unload_method("forward"); }
  bool is_method_loaded(const std::string& method_name) const { return methods_.count(method_name) != 0; }

  runtime::Result<MethodMeta> method_meta(const std::string& method_name) {
    if (const auto error = load(); error != runtime::Error::Ok) {
      return error;
    }
    rl_meta* meta = nullptr;
    const auto error = runtime::internal::take(rl_module_meta(module_.get(), method_name.c_str(), &meta));
    return error == runtime::Error::Ok ? runtime::Result<MethodMeta>(MethodMeta(meta)) : runtime::Result<MethodMeta>(error);
  }

  // Runs a method. Inputs that are missing or None are those of `set_input`. Tensors are read in place.
  //
  // Errors: those of loading; `InvalidArgument` and `InvalidType` for inputs that the method does not accept.
  ET_NODISCARD virtual runtime::Result<std::vector<runtime::EValue>> execute(const std::string& method_name,
                                                                              const std::vector<runtime::EValue>& inputs) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    Method& method = **found;
    ET_CHECK_OR_RETURN_ERROR(inputs.size() <= method.inputs.size(), InvalidArgument, "`%s` takes %zu inputs, not %zu",
                             method_name.c_str(), method.inputs.size(), inputs.size());
    std::vector<rl_value>& values = method.arguments;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_given = i < inputs.size() && !inputs[i].isNone();
      ET_CHECK_OR_RETURN_ERROR(is_given || method.inputs[i].is_set || method.takes_none(i), InvalidArgument,
                               "input %zu of `%s` is not set", i, method_name.c_str());
      values[i] = value_of(is_given ? inputs[i] : method.inputs[i].value(), method.argument_dims[i]);
    }
    if (last_ != nullptr && last_ != &method) {
      keep_outputs();
    }
    // An input may be an output of the last call. This call writes the memory of that.
    std::vector<std::vector<uint8_t>> copies;
    if (last_ == &method) {
      for (rl_value& value : values) {
        if (value.kind == RL_KIND_TENSOR && method.has_lent(value.as.tensor.data)) {
          const auto* bytes = static_cast<const uint8_t*>(value.as.tensor.data);
          copies.emplace_back(bytes, bytes + value.as.tensor.nbytes);
          value.as.tensor.data = copies.back().data();
        }
      }
    }
    rl_run_options options = RL_RUN_OPTIONS_INIT;
    std::vector<rl_value> targets = method.targets();
    options.outputs = targets.empty() ? nullptr : targets.data();
    options.num_outputs = targets.size();
    const rl_value* outputs = nullptr;
    size_t num_outputs = 0;
    last_ = nullptr;
    const auto error = runtime::internal::take(rl_module_run(module_.get(), method_name.c_str(), values.data(), values.size(),
                                                             &options, &outputs, &num_outputs));
    if (error != runtime::Error::Ok) {
      method.outputs.clear();
      return error;
    }
    method.outputs.resize(num_outputs);
    for (size_t i = 0; i < num_outputs; ++i) {
      if (const auto given = method.given.find(i); given != method.given.end()) {
        const rl_tensor& written = targets[i].as.tensor;
        const std::vector<aten::SizesType> sizes(written.sizes, written.sizes + written.rank);
        if (const auto resized = runtime::resize_tensor(given->second, {sizes.data(), sizes.size()}); resized != runtime::Error::Ok) {
          method.outputs.clear();
          return resized;
        }
        method.outputs[i] = Output(given->second);
      } else {
        method.outputs[i].set(outputs[i]);
      }
    }
    last_ = &method;
    return method.values();
  }
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> execute(const std::string& method_name,
                                                                      const runtime::EValue& input) {
    return execute(method_name, std::vector<runtime::EValue>{input});
  }
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> execute(const std::string& method_name) {
    return execute(method_name, std::vector<runtime::EValue>{});
  }

  // The first output.
  ET_NODISCARD runtime::Result<runtime::EValue> get(const std::string& method_name,
                                                     const std::vector<runtime::EValue>& inputs) {
    const auto outputs = execute(method_name, inputs);
    if (!outputs.ok()) {
      return outputs.error();
    }
    ET_CHECK_OR_RETURN_ERROR(!outputs->empty(), InvalidArgument, "`%s` has no outputs", method_name.c_str());
    return outputs->front();
  }
  ET_NODISCARD runtime::Result<runtime::EValue> get(const std::string& method_name, const runtime::EValue& input) {
    return get(method_name, std::vector<runtime::EValue>{input});
  }
  ET_NODISCARD runtime::Result<runtime::EValue> get(const std::string& method_name) {
    return get(method_name, std::vector<runtime::EValue>{});
  }

  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> forward(const std::vector<runtime::EValue>& inputs) {
    return execute("forward", inputs);
  }
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> forward(const runtime::EValue& input) {
    return execute("forward", input);
  }
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> forward() { return execute("forward"); }

  // Sets an input for all calls without one at this index. Its data are copied.
  ET_NODISCARD runtime::Error set_input(const std::string& method_name, const runtime::EValue& input, size_t index) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    Method& method = **found;
    ET_CHECK_OR_RETURN_ERROR(index < method.inputs.size(), InvalidArgument, "input %zu of %zu", index, method.inputs.size());
    method.inputs[index].set(input);
    return runtime::Error::Ok;
  }
  ET_NODISCARD runtime::Error set_input(const runtime::EValue& input, size_t index) {
    return set_input("forward", input, index);
  }
  ET_NODISCARD runtime::Error set_inputs(const std::string& method_name, const std::vector<runtime::EValue>& inputs) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    const size_t count = (*found)->inputs.size();
    ET_CHECK_OR_RETURN_ERROR(inputs.size() == count, InvalidArgument, "`%s` takes %zu inputs, not %zu", method_name.c_str(),
                             count, inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (const auto error = set_input(method_name, inputs[i], i); error != runtime::Error::Ok) {
        return error;
      }
    }
    return runtime::Error::Ok;
  }
  ET_NODISCARD runtime::Error set_inputs(const std::vector<runtime::EValue>& inputs) { return set_inputs("forward", inputs); }

  // Sets the tensor that an output is written to. The program must not have planned memory for the output.
  //
  // Errors: `InvalidArgument` for an index that is too large, or a value that is not a tensor; `InvalidState` for an output with planned
  // memory.
  ET_NODISCARD runtime::Error set_output(const std::string& method_name, runtime::EValue output, size_t index = 0) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    Method& method = **found;
    const auto info = method.meta.output_tensor_meta(index);
    if (!info.ok()) {
      return info.error();
    }
    ET_CHECK_OR_RETURN_ERROR(output.isTensor(), InvalidArgument, "an output that is set has to be a tensor");
    ET_CHECK_OR_RETURN_ERROR(!info->is_memory_planned(), InvalidState,
                             "output %zu of `%s` has planned memory: read it with get_output", index, method_name.c_str());
    method.given.insert_or_assign(index, output.toTensor());
    return runtime::Error::Ok;
  }
  ET_NODISCARD runtime::Error set_output(runtime::EValue output, size_t index = 0) {
    return set_output("forward", std::move(output), index);
  }
  ET_NODISCARD runtime::Error set_outputs(const std::string& method_name, const std::vector<runtime::EValue>& outputs) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    const size_t count = (*found)->meta.num_outputs();
    ET_CHECK_OR_RETURN_ERROR(outputs.size() == count, InvalidArgument, "`%s` has %zu outputs, not %zu", method_name.c_str(),
                             count, outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (const auto error = set_output(method_name, outputs[i], i); error != runtime::Error::Ok) {
        return error;
      }
    }
    return runtime::Error::Ok;
  }
  ET_NODISCARD runtime::Error set_outputs(const std::vector<runtime::EValue>& outputs) {
    return set_outputs("forward", outputs);
  }

  // The outputs of the last call of a method.
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> get_outputs(const std::string& method_name) {
    const auto found = loaded(method_name);
    if (!found.ok()) {
      return found.error();
    }
    return (*found)->values();
  }
  ET_NODISCARD runtime::Result<std::vector<runtime::EValue>> get_outputs() { return get_outputs("forward"); }
  ET_NODISCARD runtime::Result<runtime::EValue> get_output(const std::string& method_name, size_t index = 0) {
    const auto outputs = get_outputs(method_name);
    if (!outputs.ok()) {
      return outputs.error();
    }
    ET_CHECK_OR_RETURN_ERROR(index < outputs->size(), InvalidArgument, "output %zu of %zu", index, outputs->size());
    return (*outputs)[index];
  }
  ET_NODISCARD runtime::Result<runtime::EValue> get_output(size_t index = 0) { return get_output("forward", index); }

  runtime::EventTracer* event_tracer() const { return nullptr; }

 private:
  struct Dims {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  // The tensor as a value of the C interface. Its sizes are stored in `dims`.
  static rl_value tensor_value(const aten::Tensor& tensor, Dims& dims) {
    dims.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    const auto order = tensor.dim_order();
    rl_value value = rl_value_tensor(static_cast<uint32_t>(tensor.scalar_type()), dims.sizes.data(), dims.sizes.size(),
                                     tensor.const_data_ptr(), tensor.nbytes());
    if (!std::is_sorted(order.begin(), order.end())) {
      dims.strides.assign(tensor.strides().begin(), tensor.strides().end());
      value.as.tensor.strides = dims.strides.data();
    }
    return value;
  }

  static rl_value value_of(const runtime::EValue& value, Dims& dims) {
    switch (value.tag) {
      case runtime::Tag::Tensor:
        return tensor_value(value.toTensor(), dims);
      case runtime::Tag::Int:
        return rl_value_int(value.toInt());
      case runtime::Tag::Double:
        return rl_value_double(value.toDouble());
      case runtime::Tag::Bool:
        return rl_value_bool(value.toBool());
      case runtime::Tag::String: {
        rl_value text{};
        text.kind = RL_KIND_STRING;
        text.as.string = {value.toString().data(), value.toString().size()};
        return text;
      }
      default:
        return rl_value{};
    }
  }

  // A tensor that owns its sizes, and its data once they are set.
  struct OwnTensor {
    std::vector<aten::SizesType> sizes;
    std::vector<aten::DimOrderType> dim_order;
    std::vector<aten::StridesType> strides;
    std::vector<uint8_t> data;
    aten::TensorImpl impl;

    OwnTensor(std::vector<aten::SizesType> sizes_, std::vector<aten::DimOrderType> dim_order_, void* data_,
              aten::ScalarType type)
        : sizes(std::move(sizes_)),
          dim_order(std::move(dim_order_)),
          strides(sizes.size()),
          impl(type, static_cast<ssize_t>(sizes.size()), sizes.data(), data_, dim_order.data(), strides.data()) {
      runtime::dim_order_to_stride(sizes.data(), dim_order.data(), sizes.size(), strides.data());
    }
    OwnTensor(const OwnTensor&) = delete;
    OwnTensor& operator=(const OwnTensor&) = delete;

    void copy_data() {
      const auto* bytes = static_cast<const uint8_t*>(impl.data());
      data.assign(bytes, bytes + impl.nbytes());
      impl.set_data(data.data());
    }
  };

  // An input that was set.
  struct Set {
    bool is_set = false;

    void set(const runtime::EValue& value) {
      is_set = !value.isNone();
      value_ = value;
      if (value.isTensor()) {
        const aten::Tensor& given = value.toTensor();
        tensor_ = std::make_unique<OwnTensor>(std::vector<aten::SizesType>(given.sizes().begin(), given.sizes().end()),
                                              std::vector<aten::DimOrderType>(given.dim_order().begin(), given.dim_order().end()),
                                              given.mutable_data_ptr(), given.scalar_type());
        tensor_->copy_data();
        value_ = runtime::EValue(aten::Tensor(&tensor_->impl));
      }
    }
    const runtime::EValue& value() const { return value_; }

   private:
    runtime::EValue value_;
    std::unique_ptr<OwnTensor> tensor_;
  };

  // An output of the last call.
  struct Output {
    runtime::EValue value;
    // Set where the module's memory is borrowed.
    std::unique_ptr<OwnTensor> tensor;

    Output() = default;
    explicit Output(aten::Tensor given) : value(given) {}

    void set(const rl_value& from) {
      if (describes(from)) {
        tensor->impl.set_data(from.as.tensor.data);
        return;
      }
      value = runtime::EValue();
      tensor.reset();
      switch (from.kind) {
        case RL_KIND_TENSOR: {
          const rl_tensor& view = from.as.tensor;
          std::vector<aten::DimOrderType> order(view.rank);
          std::iota(order.begin(), order.end(), aten::DimOrderType{0});
          if (view.strides != nullptr) {
            std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return view.strides[a] > view.strides[b]; });
          }
          tensor = std::make_unique<OwnTensor>(std::vector<aten::SizesType>(view.sizes, view.sizes + view.rank), std::move(order),
                                               view.data, static_cast<aten::ScalarType>(view.dtype));
          value = runtime::EValue(aten::Tensor(&tensor->impl));
          break;
        }
        case RL_KIND_INT:
          value = runtime::EValue(from.as.integer);
          break;
        case RL_KIND_DOUBLE:
          value = runtime::EValue(from.as.real);
          break;
        case RL_KIND_BOOL:
          value = runtime::EValue(from.as.boolean != 0);
          break;
        case RL_KIND_STRING:
          value = runtime::EValue(std::string_view(from.as.string.data, from.as.string.size));
          break;
        default:
          break;
      }
    }

   private:
    // True if `tensor` has the type, sizes and layout of `from`, so that only its address changes.
    bool describes(const rl_value& from) const {
      if (tensor == nullptr || !tensor->data.empty() || from.kind != RL_KIND_TENSOR) {
        return false;
      }
      const rl_tensor& view = from.as.tensor;
      return view.strides == nullptr && static_cast<uint32_t>(tensor->impl.scalar_type()) == view.dtype &&
             std::equal(tensor->sizes.begin(), tensor->sizes.end(), view.sizes, view.sizes + view.rank) &&
             std::is_sorted(tensor->dim_order.begin(), tensor->dim_order.end());
    }
  };

  struct Method {
    MethodMeta meta;
    std::vector<Set> inputs;
    std::vector<Output> outputs;
    // Scratch of `execute`: the inputs as the C interface takes them, reused by each call.
    std::vector<rl_value> arguments;
    std::vector<Dims> argument_dims;
    // Tensors of the caller's that outputs are written to.
    std::unordered_map<size_t, aten::Tensor> given;
    std::unordered_map<size_t, Dims> given_dims;

    explicit Method(const MethodMeta& meta_)
        : meta(meta_), inputs(meta_.num_inputs()), arguments(inputs.size()), argument_dims(inputs.size()) {}

    bool takes_none(size_t input) const {
      const auto tag = meta.input_tag(input);
      return tag.ok() && *tag == runtime::Tag::None;
    }

    std::vector<runtime::EValue> values() const {
      std::vector<runtime::EValue> values;
      values.reserve(outputs.size());
      for (const Output& output : outputs) {
        values.push_back(output.value);
      }
      return values;
    }

    bool has_lent(const void* data) const {
      return std::any_of(outputs.begin(), outputs.end(), [&](const Output& output) {
        return output.tensor != nullptr && output.tensor->impl.data() == data;
      });
    }

    std::vector<rl_value> targets() {
      std::vector<rl_value> targets(given.empty() ? 0 : meta.num_outputs());
      for (auto& [index, tensor] : given) {
        targets[index] = tensor_value(tensor, given_dims[index]);
      }
      return targets;
    }
  };

  // Returns a method, and loads it first if necessary.
  runtime::Result<Method*> loaded(const std::string& method_name) {
    if (const auto known = methods_.find(method_name); known != methods_.end()) {
      return &known->second;
    }
    if (const auto error = load_method(method_name); error != runtime::Error::Ok) {
      return error;
    }
    return &methods_.at(method_name);
  }

  // Copies the outputs of the last call, because the next use of the module makes them invalid.
  void keep_outputs() {
    if (last_ != nullptr) {
      for (Output& output : last_->outputs) {
        if (output.tensor != nullptr && output.tensor->data.empty()) {
          output.tensor->copy_data();
        }
      }
      last_ = nullptr;
    }
  }

  void store_options(const LoadBackendOptionsMap& map) {
    std::vector<std::vector<runtime::BackendOption>> values;
    LoadBackendOptionsMap copy;
    for (size_t i = 0; i < map.size(); ++i) {
      const auto entry = map.entry_at(i);
      auto& options = values.emplace_back(entry.options.begin(), entry.options.end());
      // The source of the copy had room for as many entries.
      static_cast<void>(copy.set_options(entry.backend_id, {options.data(), options.size()}));
    }
    option_values_ = std::move(values);
    options_ = copy;
  }

  void set_options(const LoadBackendOptionsMap& map) {
    keep_outputs();
    for (size_t i = 0; i < map.size(); ++i) {
      const auto entry = map.entry_at(i);
      for (const runtime::BackendOption& option : entry.options) {
        rl_value value;
        if (const auto* flag = std::get_if<bool>(&option.value)) {
          value = rl_value_bool(*flag);
        } else if (const auto* number = std::get_if<int>(&option.value)) {
          value = rl_value_int(*number);
        } else {
          value = rl_value_string(std::get<2>(option.value).data());
        }
        const rl_backend_option given = {entry.backend_id, option.key, value};
        rl_status* status = rl_module_set_option(module_.get(), &given);
        if (status != nullptr) {
          ET_LOG(Info, "left out: %s", rl_status_text(status));
          rl_status_free(status);
        }
      }
    }
  }

  struct Free {
    void operator()(rl_module* module) const { rl_module_free(module); }
  };

  std::string path_;
  std::vector<std::string> data_files_;
  LoadMode mode_ = LoadMode::File;
  std::unique_ptr<runtime::DataLoader> loader_;
  std::unique_ptr<runtime::DataLoader> data_loader_;
  bool shares_memory_ = false;
  LoadBackendOptionsMap options_;
  // The memory that `options_` refers to.
  std::vector<std::vector<runtime::BackendOption>> option_values_;
  std::unique_ptr<rl_module, Free> module_;
  std::unordered_map<std::string, Method> methods_;
  // The method whose outputs are views of the module's memory.
  Method* last_ = nullptr;
};

}  // namespace extension
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::extension::Module;
}  // namespace executor
}  // namespace torch
