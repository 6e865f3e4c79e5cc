// Module: a loaded program that runs its methods; options, sessions and interrupts of it.

#pragma once

#include <rushlight/meta.hpp>
#include <rushlight/registry.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rushlight {

class Module;

// A flag that ends calls early. Any number of threads may set and clear it while others run calls with it. A signal handler may set it.
class Interrupt {
 public:
  Interrupt() : Interrupt(try_new().value()) {}
  static Result<Interrupt> try_new() {
    rl_interrupt* interrupt = nullptr;
    Status status(rl_interrupt_new(&interrupt));
    return status.ok() ? Result<Interrupt>(Interrupt(interrupt)) : Result<Interrupt>(std::move(status));
  }

  // Calls with this interrupt fail with `RL_INVALID_STATE` before their next step, until it is cleared.
  void set() { rl_interrupt_set(get(), true); }
  void clear() { rl_interrupt_set(get(), false); }

  rl_interrupt* get() const { return interrupt_.get(); }

 private:
  explicit Interrupt(rl_interrupt* interrupt) : interrupt_(interrupt) {}
  internal::Handle<rl_interrupt, rl_interrupt_free> interrupt_;
};

// A `.ptd` file with weights of a program: its path, or its bytes, which are copied.
struct Data {
  std::string path;
  Bytes bytes = {};
};

// An option of a backend: a bool, an int or a string.
struct BackendOption {
  // `given` is a bool, any integer or any text. A template, because standard libraries convert to a variant in different ways.
  template <typename T>
  BackendOption(std::string of, std::string called, const T& given)
      : backend(std::move(of)), name(std::move(called)), value(value_of(given)) {}

  std::string backend;
  std::string name;
  std::variant<bool, int64_t, std::string> value;

 private:
  template <typename T>
  static auto value_of(const T& given) {
    if constexpr (std::is_same_v<T, bool>) {
      return given;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(given);
    } else {
      return std::string(given);
    }
  }
};

// Options by name, as in the C interface and on the command line: `set("top_k", 40)`. To give a list several values, such as `stop`, set
// it several times.
class NamedOptions {
 public:
  NamedOptions() = default;
  NamedOptions(std::initializer_list<std::pair<std::string, std::string>> values) : values_(values) {}

  NamedOptions& set(std::string name, std::string value) {
    values_.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  NamedOptions& set(std::string name, const char* value) { return set(std::move(name), std::string(value)); }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  NamedOptions& set(std::string name, T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return set(std::move(name), std::string(value ? "true" : "false"));
    } else if constexpr (std::is_integral_v<T>) {
      return set(std::move(name), std::to_string(value));
    } else {
      std::ostringstream text;
      text.imbue(std::locale::classic());
      text.precision(std::numeric_limits<T>::max_digits10);
      text << value;
      return set(std::move(name), text.str());
    }
  }

  // The options for the C interface. They refer to this object, which must outlive them.
  std::vector<rl_option> raw() const {
    std::vector<rl_option> raw;
    for (const auto& [name, value] : values_) {
      raw.push_back({name.c_str(), value.c_str()});
    }
    return raw;
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

// Options of loading a program.
struct LoadOptions {
  // By default the file is mapped. It must not be changed or shortened while it is loaded.
  rl_load_mode mode = RL_LOAD_MMAP;
  // True if all methods use one set of planned buffers, and share the state in them.
  bool share_memory = false;
  // Maximum threads of a call, including the caller's; 0: one for each processor.
  size_t threads = 0;
  // The backend that a portable program is compiled for when its first method is loaded: `auto` (also if empty), `off`, or a backend with
  // its options, such as `cpu:precision=bf16`.
  std::string lower = {};
  // The folder that caches compiled programs. Only the user may have access to it. `std::nullopt`: the folder of the environment variable
  // `RUSHLIGHT_CACHE`; empty: no cache.
  std::optional<std::string> cache = {};
  // Maximum bytes of memory of one method, and maximum duration of a call; 0: no limit.
  uint64_t memory_limit = 0;
  std::chrono::microseconds time_limit{0};
  std::vector<Data> data = {};
  // Operators and backends besides the built-in ones.
  const Registry* registry = nullptr;
  std::vector<BackendOption> backend_options = {};
  // Options by name, which replace the fields: `named.set("memory_limit", "64MiB")`.
  NamedOptions named = {};
};

// The state of one user of a module, such as a KV cache. Code and weights stay in the module. One thread at a time uses a session. It may
// be freed before or after its module.
class Session {
 public:
  // `RL_NOT_SUPPORTED` for a program whose state is in planned memory instead of a backend's.
  explicit Session(Module& module) : Session(try_new(module).value()) {}
  static Result<Session> try_new(Module& module);

  // Resets all states to their first values.
  void clear() { check(try_clear()); }
  Status try_clear() { return Status(rl_session_clear(get())); }

  // Removes everything after the first `length` positions, if the backends support it.
  void rewind(size_t length) { check(try_rewind(length)); }
  Status try_rewind(size_t length) { return Status(rl_session_rewind(get(), length)); }

  // Makes an independent session that continues from the same state.
  Session fork() { return try_fork().value(); }
  Result<Session> try_fork() {
    rl_session* fork = nullptr;
    Status status(rl_session_fork(get(), &fork));
    return status.ok() ? Result<Session>(Session(fork)) : Result<Session>(std::move(status));
  }

  rl_session* get() const { return session_.get(); }

 private:
  explicit Session(rl_session* session) : session_(session) {}
  internal::Handle<rl_session, rl_session_free> session_;
};

// The beginning or the end of something in a call. Events nest.
struct Event {
  rl_event_kind kind;
  bool begins;
  // Index of the instruction.
  size_t instruction;
  // Name of the method, operator or backend. It lives until the callback returns.
  std::string_view name;
};

// Options of a call.
struct RunOptions {
  // The state of the call, instead of the module's own.
  Session* session = nullptr;
  const Interrupt* interrupt = nullptr;
  // Receives the events of the call, on its thread. When the call has ended, it throws the exception that this function threw.
  std::function<void(const Event&)> on_event = {};

  // Copies an output to `memory`, row-major. `memory` must be large enough, and have the output's element type. The output that the call
  // returns has the sizes.
  template <typename T>
  void write_to(size_t output, Span<T> memory) {
    static_assert(!std::is_const_v<T>, "rushlight: outputs are written to this memory, which cannot be const");
    if (outputs_.size() <= output) {
      outputs_.resize(output + 1);
    }
    outputs_[output] = rl_value_tensor(dtype_of<T>, nullptr, 0, memory.data(), memory.size() * sizeof(T));
  }
  template <typename Container>
  void write_to(size_t output, Container& memory) {
    write_to(output, Span<std::remove_pointer_t<decltype(std::data(memory))>>(memory));
  }

  const std::vector<rl_value>& raw_outputs() const { return outputs_; }

 private:
  std::vector<rl_value> outputs_ = {};
};

// The results of a call: views of the module's memory, or of an input that the method returns unchanged. They are valid until the next
// use of the module.
class Outputs {
 public:
  Outputs(const rl_value* values, size_t size, rl_module* module, const char* method)
      : values_(values), size_(size), module_(module), method_(method) {}

  size_t size() const { return size_; }

  // `RL_INVALID_ARGUMENT` for an index that is too large, `RL_NOT_FOUND` for a name without an output.
  Value operator[](size_t index) const { return try_at(index).value(); }
  Value operator[](std::string_view name) const { return try_at(name).value(); }
  Value operator[](const char* name) const { return try_at(name).value(); }
  Value operator[](int index) const { return try_at(index).value(); }
  Result<Value> try_at(size_t index) const {
    if (index >= size_) {
      return Status(RL_INVALID_ARGUMENT, "no output " + std::to_string(index) + " of " + std::to_string(size_));
    }
    return Value(values_[index]);
  }
  Result<Value> try_at(std::string_view name) const {
    rl_meta* raw = nullptr;
    Status status(rl_module_meta(module_, method_.c_str(), &raw));
    if (!status.ok()) {
      return status;
    }
    const Meta meta(raw);
    for (size_t i = 0; i < size_; ++i) {
      const auto info = meta.try_output(i);
      if (info.ok() && info->name() == name) {
        return Value(values_[i]);
      }
    }
    return Status(RL_NOT_FOUND, "no output `" + std::string(name) + "`");
  }
  Result<Value> try_at(const char* name) const { return try_at(std::string_view(name)); }
  Result<Value> try_at(int index) const { return try_at(static_cast<size_t>(index)); }

 private:
  const rl_value* values_;
  size_t size_;
  rl_module* module_;
  std::string method_;
};

namespace internal {

// Options in the form of the C interface. They refer to this object and to the `LoadOptions`.
class LoadArguments {
 public:
  explicit LoadArguments(const LoadOptions& options) {
    raw_.mode = options.mode;
    raw_.share_memory = options.share_memory ? 1 : 0;
    raw_.threads = options.threads;
    raw_.lower = or_null(options.lower);
    raw_.cache = options.cache ? options.cache->c_str() : nullptr;
    raw_.memory_limit = options.memory_limit;
    const auto limit = options.time_limit.count();
    if (limit < 0) {
      status_ = Status(RL_INVALID_ARGUMENT, "the time limit is " + std::to_string(limit) + " us and cannot be negative");
    }
    raw_.time_limit = static_cast<uint64_t>(limit);
    raw_.registry = options.registry == nullptr ? nullptr : options.registry->get();
    for (const Data& file : options.data) {
      data_.push_back({or_null(file.path), file.bytes.data(), file.bytes.size()});
    }
    for (const BackendOption& option : options.backend_options) {
      const rl_value value = std::visit([](const auto& given) { return Input(given).raw(); }, option.value);
      options_.push_back({option.backend.c_str(), option.name.c_str(), value});
    }
    raw_.data = data_.data();
    raw_.num_data = data_.size();
    raw_.backend_options = options_.data();
    raw_.num_backend_options = options_.size();
    named_ = options.named.raw();
    raw_.named = named_.data();
    raw_.num_named = named_.size();
  }

  // Calls a function of the C interface with the options, if they are valid.
  template <typename Load>
  Status pass_to(Load&& load) const {
    return status_.ok() ? Status(load(&raw_)) : status_;
  }

 private:
  Status status_;
  rl_load_options raw_ = RL_LOAD_OPTIONS_INIT;
  std::vector<rl_data> data_;
  std::vector<rl_backend_option> options_;
  std::vector<rl_option> named_;
};

}  // namespace internal

// A loaded program. A method is loaded at its first use, and keeps its state between calls.
//
// One thread at a time uses a module. A call fails with `RL_INVALID_STATE` while another one runs. To run on several threads at once, load
// a module for each; they share the mapped file.
class Module {
 public:
  // Loads a `.pte` file. Operators and backends are looked up when a method is loaded.
  //
  // `RL_NOT_FOUND` and `RL_ACCESS_FAILED` for the file, `RL_INVALID_PROGRAM` for its content.
  explicit Module(internal::Text path, const LoadOptions& options = {}) : Module(try_load(path, options).value()) {}
  static Result<Module> try_load(internal::Text path, const LoadOptions& options = {}) {
    rl_module* module = nullptr;
    Status status = internal::LoadArguments(options).pass_to(
        [&](const rl_load_options* raw) { return rl_module_load(path.get(), raw, &module); });
    return made(std::move(status), module, options);
  }

  // Loads the bytes of a file, which are copied.
  static Module from_bytes(Bytes bytes, const LoadOptions& options = {}) { return try_from_bytes(bytes, options).value(); }
  static Result<Module> try_from_bytes(Bytes bytes, const LoadOptions& options = {}) {
    rl_module* module = nullptr;
    Status status = internal::LoadArguments(options).pass_to(
        [&](const rl_load_options* raw) { return rl_module_load_bytes(bytes.data(), bytes.size(), raw, &module); });
    return made(std::move(status), module, options);
  }

  // Loads the bytes of a file without a copy. They should be aligned to 16. The module keeps a copy of `owner` as long as it uses the
  // bytes. They must not change while such a copy exists.
  static Module borrow(Bytes bytes, std::shared_ptr<const void> owner, const LoadOptions& options = {}) {
    return try_borrow(bytes, std::move(owner), options).value();
  }
  static Result<Module> try_borrow(Bytes bytes, std::shared_ptr<const void> owner, const LoadOptions& options = {}) {
    rl_module* module = nullptr;
    using Owner = std::shared_ptr<const void>;
    const auto release = [](void* kept) { delete static_cast<Owner*>(kept); };
    Status status = internal::LoadArguments(options).pass_to([&](const rl_load_options* raw) {
      return rl_module_load_borrowed(bytes.data(), bytes.size(), release, new Owner(std::move(owner)), raw, &module);
    });
    return made(std::move(status), module, options);
  }

  // Runs the method `forward` with tensors, numbers and strings, in the order of its inputs: `forward(image, 0.5)`.
  template <typename... Inputs>
  Outputs forward(const Inputs&... inputs) {
    const rl_value* outputs = nullptr;
    size_t num_outputs = 0;
    check(run_forward(outputs, num_outputs, inputs...));
    return Outputs(outputs, num_outputs, get(), "forward");
  }
  template <typename... Inputs>
  Result<Outputs> try_forward(const Inputs&... inputs) {
    const rl_value* outputs = nullptr;
    size_t num_outputs = 0;
    Status status = run_forward(outputs, num_outputs, inputs...);
    return status.ok() ? Result<Outputs>(Outputs(outputs, num_outputs, get(), "forward")) : Result<Outputs>(std::move(status));
  }

  // Runs a method. Inputs are views, which must not change until the call returns. An input is read in place if the program planned no
  // memory for it, and if it has the strides and the alignment that the program expects. Otherwise it is copied once.
  //
  // `RL_INVALID_ARGUMENT` and `RL_INVALID_TYPE` for inputs that the method does not accept, `RL_INVALID_STATE` for an interrupted call,
  // `RL_OUT_OF_RESOURCES` for one that exceeds the time limit, and the errors of loading the method. The method can be run again after an
  // error, which may have changed the state.
  Outputs run(internal::Text method, std::initializer_list<Input> inputs = {}) {
    return try_run(method, Span<const Input>(inputs.begin(), inputs.size()), nullptr).value();
  }
  Outputs run(internal::Text method, std::initializer_list<Input> inputs, const RunOptions& options) {
    return try_run(method, Span<const Input>(inputs.begin(), inputs.size()), &options).value();
  }
  Outputs run(internal::Text method, const std::vector<Input>& inputs, const RunOptions& options = {}) {
    return try_run(method, inputs, &options).value();
  }
  Result<Outputs> try_run(internal::Text method, std::initializer_list<Input> inputs = {}) {
    return try_run(method, Span<const Input>(inputs.begin(), inputs.size()), nullptr);
  }
  Result<Outputs> try_run(internal::Text method, std::initializer_list<Input> inputs, const RunOptions& options) {
    return try_run(method, Span<const Input>(inputs.begin(), inputs.size()), &options);
  }
  Result<Outputs> try_run(internal::Text method, const std::vector<Input>& inputs, const RunOptions& options = {}) {
    return try_run(method, inputs, &options);
  }

  // The names of the methods, in the order of the file. They live as long as the module.
  std::vector<std::string_view> methods() const {
    std::vector<std::string_view> names;
    while (const char* name = rl_module_method(get(), names.size())) {
      names.emplace_back(name);
    }
    return names;
  }

  // Describes a method, without loading it.
  Meta meta(internal::Text method) { return try_meta(method).value(); }
  Result<Meta> try_meta(internal::Text method) {
    rl_meta* meta = nullptr;
    Status status(rl_module_meta(get(), method.get(), &meta));
    return status.ok() ? Result<Meta>(Meta(meta)) : Result<Meta>(std::move(status));
  }

  // Loads a method now instead of at its first call. The first load also compiles a portable program for this machine.
  void load_method(internal::Text method) { check(try_load_method(method)); }
  Status try_load_method(internal::Text method) { return Status(rl_module_load_method(get(), method.get())); }

  // Frees a method and its state. The next use loads it again.
  void unload_method(internal::Text method) { check(try_unload_method(method)); }
  Status try_unload_method(internal::Text method) { return Status(rl_module_unload_method(get(), method.get())); }

  // Changes an option of a backend for all methods, loaded or not.
  void set_option(const BackendOption& option) { check(try_set_option(option)); }
  Status try_set_option(const BackendOption& option) {
    LoadOptions options;
    options.backend_options.push_back(option);
    return internal::LoadArguments(options).pass_to(
        [&](const rl_load_options* raw) { return rl_module_set_option(get(), raw->backend_options); });
  }

  // Copies a parameter or buffer of a method, by its name in the exported module. The copy lives until the next call of this function.
  Value attribute(internal::Text method, internal::Text name) { return try_attribute(method, name).value(); }
  Result<Value> try_attribute(internal::Text method, internal::Text name) {
    rl_value value{};
    value.kind = RL_KIND_TENSOR;
    Status status(rl_module_attribute(get(), method.get(), name.get(), &value.as.tensor));
    return status.ok() ? Result<Value>(Value(value)) : Result<Value>(std::move(status));
  }

  rl_module* get() const { return module_.get(); }

 private:
  // Maximum inputs of a call that allocates nothing.
  static constexpr size_t MAX_INPUTS_ON_STACK = 8;

  Module(rl_module* module, const LoadOptions& options) : module_(module) {
    if (options.registry != nullptr) {
      operators_ = options.registry->shared();
    }
  }

  static Result<Module> made(Status status, rl_module* module, const LoadOptions& options) {
    return status.ok() ? Result<Module>(Module(module, options)) : Result<Module>(std::move(status));
  }

  // Runs `forward` without the copies of sizes that an `Input` makes.
  template <typename... Inputs>
  Status run_forward(const rl_value*& outputs, size_t& num_outputs, const Inputs&... inputs) {
    static_assert((... && !std::is_same_v<Inputs, Input>), "rushlight: `run` takes inputs with names");
    const auto run = [&](const auto&... given) {
      const rl_value values[sizeof...(given) + 1] = {given.raw()...};
      return Status(rl_module_run(get(), "forward", values, sizeof...(given), nullptr, &outputs, &num_outputs));
    };
    return run(internal::lent(inputs)...);
  }

  Result<Outputs> try_run(internal::Text method, Span<const Input> inputs, const RunOptions* options) {
    if (inputs.size() <= MAX_INPUTS_ON_STACK) {
      rl_value values[MAX_INPUTS_ON_STACK];
      const char* names[MAX_INPUTS_ON_STACK];
      return run_with(method, inputs, values, names, options);
    }
    std::vector<rl_value> values(inputs.size());
    std::vector<const char*> names(inputs.size());
    return run_with(method, inputs, values.data(), names.data(), options);
  }

  Result<Outputs> run_with(internal::Text method, Span<const Input> inputs, rl_value* values, const char** names,
                           const RunOptions* given) {
    bool has_names = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values[i] = inputs[i].raw();
      names[i] = inputs[i].name();
      has_names = has_names || names[i] != nullptr;
    }
    rl_run_options options = RL_RUN_OPTIONS_INIT;
    options.input_names = has_names ? names : nullptr;
    std::vector<rl_value> targets;
    Listener listener;
    if (given != nullptr) {
      targets = given->raw_outputs();
      options.outputs = targets.empty() ? nullptr : targets.data();
      options.num_outputs = targets.size();
      options.session = given->session == nullptr ? nullptr : given->session->get();
      options.interrupt = given->interrupt == nullptr ? nullptr : given->interrupt->get();
      if (given->on_event) {
        listener.on_event = &given->on_event;
        options.on_event = Listener::hear;
        options.event_data = &listener;
      }
    }
    const rl_value* outputs = nullptr;
    size_t num_outputs = 0;
    Status status(rl_module_run(get(), method.get(), values, inputs.size(), &options, &outputs, &num_outputs));
    listener.caught.rethrow();
    if (!status.ok()) {
      return status;
    }
    return Outputs(outputs, num_outputs, get(), method.get());
  }

  struct Listener {
    const std::function<void(const Event&)>* on_event = nullptr;
    internal::Caught caught;

    static void hear(const rl_event* event, void* user_data) {
      auto* listener = static_cast<Listener*>(user_data);
      listener->caught.run([&] {
        (*listener->on_event)({static_cast<rl_event_kind>(event->kind), event->begins != 0, event->instruction,
                               internal::view(event->name)});
      });
    }
  };

  // The functions of the registry. Declared first, so that they outlive the module, which calls them.
  std::shared_ptr<const void> operators_;
  internal::Handle<rl_module, rl_module_free> module_;
};

inline Result<Session> Session::try_new(Module& module) {
  rl_session* session = nullptr;
  Status status(rl_session_new(module.get(), &session));
  return status.ok() ? Result<Session>(Session(session)) : Result<Session>(std::move(status));
}

}  // namespace rushlight
