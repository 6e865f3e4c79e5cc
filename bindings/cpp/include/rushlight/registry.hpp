// Registry: the caller's operators, as C++ functions.

#pragma once

#include <rushlight/tensor.hpp>

#include <functional>
#include <mutex>

namespace rushlight {

// The arguments of one call of an operator, by their position in its schema. They live until the operator returns.
class Kernel {
 public:
  explicit Kernel(rl_kernel_context* context) : context_(context) {}

  // Number of arguments, outputs included.
  size_t num_arguments() const { return rl_kernel_num_arguments(context_); }

  // An argument that is not an output.
  Value argument(size_t index) const { return try_argument(index).value(); }
  Result<Value> try_argument(size_t index) const {
    rl_value value{};
    Status status(rl_kernel_argument(context_, index, &value));
    return status.ok() ? Result<Value>(Value(value)) : Result<Value>(std::move(status));
  }

  // A tensor of this element type.
  template <typename T>
  Tensor<const T> input(size_t index) const {
    return try_input<T>(index).value();
  }
  template <typename T>
  Result<Tensor<const T>> try_input(size_t index) const {
    auto value = try_argument(index);
    return value.ok() ? value->template try_tensor<T>() : Result<Tensor<const T>>(std::move(value).status());
  }

  // Sets the sizes of an output and returns it for writing. Call it once for each output.
  template <typename T>
  Tensor<T> output(size_t index, const Sizes& sizes) const {
    return try_output<T>(index, sizes).value();
  }
  template <typename T>
  Result<Tensor<T>> try_output(size_t index, const Sizes& sizes) const {
    rl_value value{};
    value.kind = RL_KIND_TENSOR;
    Status status(rl_kernel_output(context_, index, sizes.data(), sizes.size(), &value.as.tensor));
    return status.ok() ? internal::tensor_of<T>(value) : Result<Tensor<T>>(std::move(status));
  }

  rl_kernel_context* get() const { return context_; }

 private:
  rl_kernel_context* context_;
};

// Operators besides the built-in ones, for loading modules. Modules keep the operators that they use. Any number of threads may use a
// registry at once.
class Registry {
 public:
  Registry() : Registry(try_new().value()) {}
  static Result<Registry> try_new() {
    rl_registry* registry = nullptr;
    Status status(rl_registry_new(&registry));
    return status.ok() ? Result<Registry>(Registry(registry)) : Result<Registry>(std::move(status));
  }

  // Adds an operator by the name of its out variant, such as `example::twice.out`, with the number of its arguments, outputs included.
  // The function takes a `Kernel&`. It returns a Status, or returns nothing and throws if it fails. It is called on the thread that runs
  // the method, and by several threads at once if several modules run. It cannot use the module that calls it.
  template <typename Function>
  void add_operator(internal::Text name, uint32_t num_arguments, Function function, uint32_t num_outputs = 1) {
    check(try_add_operator(name, num_arguments, std::move(function), num_outputs));
  }
  template <typename Function>
  Status try_add_operator(internal::Text name, uint32_t num_arguments, Function function, uint32_t num_outputs = 1) {
    auto kernel = std::make_unique<std::function<Status(Kernel&)>>([function = std::move(function)](Kernel& context) mutable {
      if constexpr (std::is_void_v<decltype(function(context))>) {
        function(context);
        return Status();
      } else {
        return Status(function(context));
      }
    });
    rl_operator op = RL_OPERATOR_INIT;
    op.name = name.get();
    op.num_arguments = num_arguments;
    op.num_outputs = num_outputs;
    op.user_data = kernel.get();
    op.kernel = [](rl_kernel_context* context, void* user_data) {
      Kernel arguments(context);
      return internal::guarded([&] { return (*static_cast<std::function<Status(Kernel&)>*>(user_data))(arguments); });
    };
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    // Stored first, because the library then refers to it.
    shared_->kernels.push_back(std::move(kernel));
    Status status(rl_registry_add_operator(shared_->registry.get(), &op));
    if (!status.ok()) {
      shared_->kernels.pop_back();
    }
    return status;
  }

  // For `rl_registry_add_backend`, which has no C++ interface.
  rl_registry* get() const { return shared_->registry.get(); }

  // The functions, which modules keep alive.
  std::shared_ptr<const void> shared() const { return shared_; }

 private:
  explicit Registry(rl_registry* registry) : shared_(std::make_shared<Shared>()) { shared_->registry.reset(registry); }

  struct Shared {
    // Guards the list of kernels. The library has its own lock for the registry.
    std::mutex mutex;
    std::vector<std::unique_ptr<std::function<Status(Kernel&)>>> kernels;
    internal::Handle<rl_registry, rl_registry_free> registry;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace rushlight
