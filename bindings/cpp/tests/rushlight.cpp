// rushlight.hpp. Programs and expected numbers are recorded of PyTorch and transformers: corpus.h is made of tests/corpus. It is compiled
// as C++17 and C++20, and without exceptions, where only functions run that need none.
#include "corpus.h"

#include <rushlight.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#if __cplusplus >= 202002L
#include <span>
#endif

using rushlight::Input;
using rushlight::Module;
using rushlight::Span;
using rushlight::Tensor;

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)

static std::string root, folder;

static std::string corpus(const char* name) { return root + "/tests/corpus/1.5.1/" + name; }

static std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static bool is_near(double a, double b, double tolerance) {
  return (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= tolerance * (1 + std::fabs(b));
}

// A half, as an element type of a program's own.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <>
struct rushlight::ElementType<Half> : std::integral_constant<rl_dtype, RL_DTYPE_FLOAT16> {};
template <>
struct rushlight::ElementType<BFloat16> : std::integral_constant<rl_dtype, RL_DTYPE_BFLOAT16> {};

template <typename T>
static double number(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(x);
  } else {
    return x.bits;
  }
}

// Calls a function with an element of a type of the corpus.
template <typename F>
static auto with_type(uint32_t dtype, F&& f) {
  switch (dtype) {
    case RL_DTYPE_FLOAT32: return f(float());
    case RL_DTYPE_INT64: return f(int64_t());
    case RL_DTYPE_BOOL: return f(bool());
    case RL_DTYPE_FLOAT16: return f(Half());
    case RL_DTYPE_BFLOAT16: return f(BFloat16());
    default: CHECK(!"an element type of the corpus"); return f(float());
  }
}

static Input input_of(const recorded_tensor& expected) {
  return with_type(expected.dtype, [&](auto element) {
    using T = decltype(element);
    const Span<const T> elements(static_cast<const T*>(expected.data), expected.nbytes / sizeof(T));
    return Input(Tensor(elements, Span<const int64_t>(expected.sizes, expected.rank)));
  });
}

static void agrees(const rushlight::Value& got, const recorded_tensor& expected, double tolerance) {
  CHECK(got.is_tensor() && got.dtype() == expected.dtype);
  with_type(expected.dtype, [&](auto element) {
    using T = decltype(element);
    auto view = got.try_tensor<T>();
    CHECK(view.ok() && view->sizes() == rushlight::Sizes(Span<const int64_t>(expected.sizes, expected.rank)));
    const auto elements = view->to_vector();
    CHECK(elements.size() == expected.nbytes / sizeof(T));
    for (size_t i = 0; i < elements.size(); ++i) {
      CHECK(is_near(number(static_cast<T>(elements[i])), number(static_cast<const T*>(expected.data)[i]), tolerance));
    }
    return 0;
  });
}

static void recorded_programs() {
  size_t calls = 0;
  for (const recorded_program* program = recorded; program->path != nullptr; ++program) {
    rushlight::LoadOptions options;
    if (program->data != nullptr) {
      options.data.push_back({root + "/" + program->data});
    }
    auto module = Module::try_load(root + "/" + program->path, options);
    CHECK(module.ok());
    for (size_t c = 0; c < program->num_calls; ++c, ++calls) {
      const recorded_call& call = program->calls[c];
      std::vector<Input> inputs;
      for (size_t i = 0; i < call.num_inputs; ++i) {
        inputs.push_back(input_of(call.inputs[i]));
      }
      auto outputs = module->try_run(call.method, inputs);
      CHECK(outputs.ok() && outputs->size() == call.num_outputs);
      for (size_t i = 0; i < outputs->size(); ++i) {
        agrees((*outputs)[i], call.outputs[i], call.tolerance);
      }
    }
  }
  CHECK(calls >= 30);
}

// Logits are bit-identical in every binding.
static void same_numbers() {
  rushlight::LoadOptions options;
  options.lower = "off";
  auto module = Module::try_load(root + "/examples/cortex-m/digits.pte", options);
  CHECK(module.ok());
  const std::string images = read_whole(root + "/examples/cortex-m/images/images.bin");
  const std::string expected = read_whole(root + "/tests/same_numbers/digits.bin");
  std::string logits;
  std::vector<float> pixels(64);
  for (size_t at = 0; at < images.size(); at += 256) {
    std::memcpy(pixels.data(), &images[at], 256);
    auto outputs = module->try_forward(Tensor(pixels, {1, 1, 8, 8}));
    CHECK(outputs.ok());
    auto scores = (*outputs)[0].try_tensor<float>();
    CHECK(scores.ok() && scores->size() == 10);
    logits.append(reinterpret_cast<const char*>(scores->data()), 40);
  }
  CHECK(logits.size() == 400 && logits == expected);
}

static void views() {
  std::vector<int> counts{1, 2, 3, 4, 5, 6};
  const Tensor matrix(counts, {2, 3});
  static_assert(std::is_same_v<decltype(matrix), const Tensor<int>>);
  CHECK(matrix.data() == counts.data() && matrix(1, 2) == 6 && matrix.rank() == 2 && matrix.span().size() == 6);
  matrix(0, 1) = 7;
  CHECK(counts[1] == 7 && matrix[1] == 7);
  const Tensor columns = matrix.with_strides({1, 2});
  CHECK(!columns.is_row_major() && columns(1, 2) == 6 && columns(1, 0) == 7);
  CHECK(columns.to_vector() == (std::vector<int>{1, 3, 5, 7, 4, 6}));
  const auto& constant = counts;
  static_assert(std::is_same_v<decltype(Tensor(constant, 6)), Tensor<const int>>);
  static_assert(rushlight::dtype_of<long long> == RL_DTYPE_INT64 && rushlight::dtype_of<const long> == (sizeof(long) == 8 ? RL_DTYPE_INT64 : RL_DTYPE_INT32));
  static_assert(rushlight::dtype_of<unsigned char> == RL_DTYPE_UINT8 && rushlight::dtype_of<bool> == RL_DTYPE_BOOL);
  float three[3] = {};
  CHECK(Tensor(three, {1, counts.size() / 2}).sizes() == rushlight::Sizes(1, 3));
  CHECK(Tensor(Span<float>(three, 1), {}).rank() == 0);
  Tensor copy = matrix;
  Tensor again(copy);
  CHECK(again.rank() == 2 && Tensor<const int>(counts, {3, 2})(2, 1) == 6);
#if __cplusplus >= 202002L
  const std::span<float> of_span = Span<float>(three);
  CHECK(of_span.size() == 3 && Tensor(of_span, 3).data() == three && std::span<const int>(matrix.span()).size() == 6);
#endif
}

// x * y + 1, x, and both behind each other: of a program that planned no memory for its inputs.
static void nothing_is_copied() {
  const void* seen[2] = {};
  rushlight::Registry registry;
  CHECK(registry
            .try_add_operator("aten::mul.out", 3,
                              [&seen](rushlight::Kernel& kernel) {
                                auto x = kernel.try_input<float>(0), y = kernel.try_input<float>(1);
                                if (!x.ok() || !y.ok()) {
                                  return !x.ok() ? std::move(x).status() : std::move(y).status();
                                }
                                auto out = kernel.try_output<float>(2, x->sizes());
                                if (!out.ok()) {
                                  return std::move(out).status();
                                }
                                seen[0] = x->data();
                                seen[1] = y->data();
                                for (size_t i = 0; i < out->size(); ++i) {
                                  (*out)[i] = (*x)[i] * (*y)[i];
                                }
                                return rushlight::Status();
                              })
            .ok());
  rushlight::LoadOptions options;
  options.lower = "off";
  options.registry = &registry;
  auto module = Module::try_load(corpus("unplanned.pte"), options);
  CHECK(module.ok());
  const std::vector<float> x{1, 2, 3, 4, 5, 6}, y(6, 2.0f);
  auto outputs = module->try_forward(Tensor(x, {2, 3}), Tensor(y, {2, 3}));
  CHECK(outputs.ok() && seen[0] == x.data() && seen[1] == y.data());
  auto sum = (*outputs)[0].try_tensor<float>(), same = (*outputs)[1].try_tensor<float>();
  CHECK(same->data() == x.data() && sum->to_vector() == (std::vector<float>{3, 5, 7, 9, 11, 13}));

  // Strides are passed on, and outputs come to memory of the caller's.
  const std::vector<float> columns{1, 4, 2, 5, 3, 6};
  std::vector<float> target(6);
  rushlight::RunOptions run;
  run.write_to(0, target);
  outputs = module->try_run("forward", {Tensor(columns, {2, 3}).with_strides({1, 2}), Tensor(y, {2, 3})}, run);
  CHECK(outputs.ok() && target == (std::vector<float>{3, 5, 7, 9, 11, 13}));
  run.write_to(0, Span<float>(target.data(), 5));
  CHECK(module->try_run("forward", {Tensor(x, {2, 3}), Tensor(y, {2, 3})}, run).status().code() == RL_INVALID_ARGUMENT);
  // An output is an input of the next call.
  const auto chained = module->try_forward((*module->try_forward(Tensor(x, {2, 3}), Tensor(y, {2, 3})))[1], Tensor(y, {2, 3}));
  CHECK(chained.ok());
}

static void statuses() {
  auto module = Module::try_load(corpus("add.pte"));
  const std::vector<float> six(6), eight(8);
  auto failed = module->try_forward(Tensor(six, {2, 3}), Tensor(eight, {2, 4}));
  const rushlight::Status& status = failed.status();
  CHECK(!failed && status.code() == RL_INVALID_ARGUMENT && status.expected().find("f32 [2, 3]") != std::string_view::npos);
  CHECK(status.got().find("f32 [2, 4]") != std::string_view::npos && !status.message().empty() && !status.text().empty());
  CHECK(status.os_error() == 0 && status.missing_operators().empty());
  CHECK(Module::try_load("missing.pte").status().os_error() == 2);
  CHECK(module->try_run("backward").status().code() == RL_NOT_FOUND);
  CHECK(module->try_forward(1, 0.5).status().code() == RL_INVALID_TYPE);
  const std::vector<int64_t> many(17, 1);
  CHECK(module->try_forward(Tensor(six, many), Tensor(six, {2, 3})).status().code() == RL_INVALID_ARGUMENT);
  auto outputs = module->try_forward(Tensor(six, {2, 3}), Tensor(six, {2, 3}));
  CHECK(outputs.ok() && (*outputs)[0].try_tensor<double>().status().code() == RL_INVALID_TYPE);
  CHECK((*outputs)[0].sizes()[1] == 3 && (*outputs)[0].bytes().size() == 24);
  // The constant form.
  const auto kept = module->try_forward(Tensor(six, {2, 3}), Tensor(six, {2, 3}));
  CHECK(kept->size() == 1 && (*kept)[0].is_tensor() && kept.value().size() == 1);
  // A status is kept by its copies, and by who has handed it on.
  rushlight::Status copy;
  {
    auto gone = Module::try_load("missing.pte");
    copy = std::move(gone).status();
    CHECK(!gone.status().ok());
  }
  CHECK(copy.code() == RL_NOT_FOUND && copy.message().find("missing.pte") != std::string_view::npos);
  // What an output is not; of these functions those without `try_` end a program without exceptions.
  CHECK(outputs->try_at(1).status().code() == RL_INVALID_ARGUMENT && outputs->try_at("x").status().code() == RL_NOT_FOUND);
  const rushlight::Value sum = *outputs->try_at(0);
  CHECK(sum.try_dtype().value() == RL_DTYPE_FLOAT32 && sum.try_sizes()->size() == 2 && sum.try_bytes()->size() == 24);
  CHECK(sum.try_to_int().status().code() == RL_INVALID_TYPE && sum.try_to_double().status().code() == RL_INVALID_TYPE);
  CHECK(sum.try_to_bool().status().code() == RL_INVALID_TYPE && sum.try_to_string().status().code() == RL_INVALID_TYPE);
  CHECK(sum.try_to_list<int64_t>().status().code() == RL_INVALID_TYPE && rushlight::Value().try_dtype().status().code() == RL_INVALID_TYPE);
  CHECK(!rushlight::Value().try_sizes().ok() && !rushlight::Value().try_bytes().ok());
  const rushlight::Status success;
  CHECK(success.ok() && success.code() == RL_OK && success.text().empty());
}

static void loading() {
  const std::string bytes = read_whole(corpus("add.pte"));
  const std::vector<float> six(6, 1.5f);
  const Tensor x(six, {2, 3});
  CHECK(Module::try_from_bytes(bytes)->try_forward(x, x).ok());
  CHECK(Module::try_from_bytes(rushlight::Bytes(bytes.data(), 100)).status().code() == RL_INVALID_PROGRAM);
  auto owner = std::make_shared<std::string>(bytes);
  {
    auto borrowed = Module::try_borrow(*owner, owner);
    CHECK(borrowed.ok() && owner.use_count() > 1 && borrowed->try_forward(x, x).ok());
    Module moved = std::move(*borrowed);
    CHECK(moved.try_forward(x, x).ok() && moved.methods().size() == 1 && moved.methods()[0] == "forward");
  }
  CHECK(owner.use_count() == 1);
  CHECK(Module::try_borrow("PK", owner).status().code() == RL_INVALID_PROGRAM && owner.use_count() == 1);

  rushlight::LoadOptions options;
  options.mode = RL_LOAD_READ;
  options.threads = 1;
  options.cache = "";
  options.time_limit = std::chrono::seconds(10);
  options.backend_options.push_back({"cpu", "no_such_option", true});
  CHECK(Module::try_load(corpus("add.pte"), options).status().code() == RL_NOT_FOUND);
  // Options own their texts.
  options.backend_options.clear();
  options.backend_options.push_back({"cpu", "precision", "bf" + std::to_string(16)});
  CHECK(std::get<std::string>(options.backend_options[0].value) == "bf16");
  CHECK(std::get<bool>(rushlight::BackendOption("cpu", "flag", true).value));
  CHECK(std::get<int64_t>(rushlight::BackendOption("cpu", "count", size_t(3)).value) == 3);
  const auto passed = rushlight::internal::LoadArguments(options).pass_to([](const rl_load_options* raw) -> rl_status* {
    const rl_value& lent = raw->backend_options[0].value;
    CHECK(lent.kind == RL_KIND_STRING && std::string(lent.as.string.data) == "bf16" && lent.as.string.size == 4);
    return nullptr;
  });
  CHECK(passed.ok());
  options.backend_options.clear();
  auto module = Module::try_load(corpus("add.pte"), options);
  CHECK(module.ok() && module->try_load_method("forward").ok() && module->try_unload_method("forward").ok());
  CHECK(module->try_set_option({"cpu", "no_such_option", "text"}).code() == RL_NOT_FOUND);
  options.memory_limit = 16;
  CHECK(Module::try_load(corpus("add.pte"), options)->try_load_method("forward").code() == RL_MEMORY_ALLOCATION_FAILED);
  options.time_limit = std::chrono::milliseconds(-2);
  const auto negative = Module::try_borrow(bytes, owner, options);
  CHECK(negative.status().code() == RL_INVALID_ARGUMENT && negative.status().message().find("-2000 us") != std::string_view::npos);
  CHECK(owner.use_count() == 1 && Module::try_load(corpus("add.pte"), options).status().code() == RL_INVALID_ARGUMENT);
  CHECK(Module::try_from_bytes(bytes, options).status().code() == RL_INVALID_ARGUMENT);
  CHECK(rushlight::llm::Model::try_load(corpus("add.pte"), {}, options).status().code() == RL_INVALID_ARGUMENT);
  const std::string weights = read_whole(corpus("external.ptd"));
  options = {};
  options.data.push_back({"", weights});
  CHECK(Module::try_load(corpus("external.pte"), options)->try_load_method("forward").ok());
}

static void descriptions() {
  auto module = Module::try_load(corpus("dynamic.pte"));
  auto meta = module->try_meta("forward");
  CHECK(meta.ok() && meta->name() == "forward" && meta->num_inputs() == 1 && meta->num_outputs() == 1);
  const auto input = meta->try_input(0);
  auto info = *meta->try_input(0);
  CHECK(input.ok() && info.is_dynamic() && info.is_memory_planned() && info.name().empty() && info.ranges().empty());
  CHECK(info.value().dtype() == RL_DTYPE_FLOAT32 && info.value().sizes()[0] == 8 && info.dim_order()[1] == 1);
  CHECK(meta->try_input(1).status().code() == RL_INVALID_ARGUMENT && meta->num_attributes() == 0);
  CHECK(!meta->operators().empty() && meta->backends().empty() && meta->planned_buffers().size() == 1);
  CHECK(module->try_meta("backward").status().code() == RL_NOT_FOUND);

  auto counter = Module::try_load(corpus("counter_initial.pte"));
  auto attribute = counter->try_meta("forward")->try_attribute(0);
  const std::string name(attribute->name());
  const std::vector<float> ones(3, 1.0f);
  const float before = counter->try_attribute("forward", name)->try_tensor<float>()->data()[0];
  CHECK(counter->try_forward(Tensor(ones, 3)).ok());
  CHECK(counter->try_attribute("forward", name)->try_tensor<float>()->data()[0] != before);
  CHECK(counter->try_attribute("forward", "nobody").status().code() == RL_NOT_FOUND);
  CHECK(rushlight::Session::try_new(*Module::try_load(corpus("counter_initial.pte"), [] {
          rushlight::LoadOptions off;
          off.lower = "off";
          return off;
        }())).status().code() == RL_NOT_SUPPORTED);
  auto methods = Module::try_load(corpus("multi_method.pte"));
  CHECK((*methods->try_run("get_max_seq_len"))[0].to_int() == 128);
  CHECK(*methods->try_run("get_max_seq_len")->try_at(0)->try_to_int() == 128);
}

static Module compiled(const char* name, const rushlight::LoadOptions& options = {}) {
  auto program = rushlight::try_compile(root + "/tests/corpus/pt2/" + name);
  CHECK(program.ok());
  auto module = Module::try_from_bytes(program->bytes(), options);
  CHECK(module.ok());
  return std::move(*module);
}

// The values are eager PyTorch's.
static void names() {
  Module module = compiled("keywords.pt2");
  const std::vector<float> image{0.5f, -1, 2, 4}, first{1, 2, 3, 4}, second{2, -2, 4, 0.5f};
  const bool mask[2] = {};
  auto outputs = module.try_run("forward", {{"batch.boxes.1", Tensor(second, 4)},
                                            {"image", Tensor(image, 4)},
                                            {"batch.mask", Tensor(mask, 2)},
                                            {"batch.boxes.0", Tensor(first, 4)}});
  CHECK(outputs.ok() && outputs->size() == 4);
  CHECK((*outputs)[0].try_tensor<float>()->to_vector() == (std::vector<float>{1.5f, -3, 8, 5}));
  CHECK((*(*outputs)["stats.mean"].try_tensor<float>())[0] == 2.875f);
  CHECK((*outputs->try_at("stats.mean")->try_tensor<float>())[0] == 2.875f);
  CHECK(module.try_run("forward", {{"image", Tensor(image, 4)}}).status().code() == RL_INVALID_ARGUMENT);
  auto fixed = compiled("nested.pt2").try_meta("forward")->try_input(6);
  CHECK(fixed->name() == "mode" && fixed->value().to_string() == "sum" && fixed->value().kind() == RL_KIND_STRING);
}

// The model returns `twice(x) + 1`.
static void operators_and_interrupts() {
  const std::vector<float> x{1, 2, 3, 4};
  {
    auto missing = compiled("custom_operator.pt2").try_forward(Tensor(x, 4));
    CHECK(missing.status().code() == RL_OPERATOR_MISSING && missing.status().missing_operators()[0] == "example::twice.out");
  }
  int calls = 0;
  bool fails = false;
  rushlight::LoadOptions options;
  auto registry = std::make_unique<rushlight::Registry>();
  CHECK(registry->try_add_operator("twice", 2, [](rushlight::Kernel&) {}).code() == RL_INVALID_ARGUMENT);
  registry->add_operator("example::twice.out", 2, [&](rushlight::Kernel& kernel) {
    CHECK(kernel.num_arguments() == 2 && kernel.try_input<double>(0).status().code() == RL_INVALID_TYPE);
    CHECK(kernel.try_argument(2).status().code() == RL_INVALID_ARGUMENT);
    ++calls;
    const auto from = kernel.input<float>(0);
    const auto to = kernel.output<float>(1, from.sizes());
    std::transform(from.begin(), from.end(), to.begin(), [](float value) { return 2 * value; });
    return fails ? rushlight::Status(RL_OUT_OF_RESOURCES, "twice is too much") : rushlight::Status();
  });
  options.registry = registry.get();
  Module module = compiled("custom_operator.pt2", options);
  // The module keeps the operators.
  registry.reset();
  rushlight::RunOptions run;
  int events = 0, open = 0;
  run.on_event = [&](const rushlight::Event& event) {
    open += event.begins ? 1 : -1;
    events += event.kind == RL_EVENT_OPERATOR && event.name == "example::twice.out" ? 1 : 0;
  };
  auto outputs = module.try_run("forward", {Tensor(x, 4)}, run);
  CHECK(outputs.ok() && (*outputs)[0].try_tensor<float>()->to_vector() == (std::vector<float>{3, 5, 7, 9}));
  CHECK(calls == 1 && events == 2 && open == 0);
  fails = true;
  auto failed = module.try_forward(Tensor(x, 4));
  CHECK(failed.status().code() == RL_OUT_OF_RESOURCES && failed.status().message() == "twice is too much");
  CHECK(failed.status().site().find("example::twice.out") != std::string_view::npos);
  fails = false;
  auto made = rushlight::Interrupt::try_new();
  CHECK(made.ok());
  rushlight::Interrupt& interrupt = *made;
  run = {};
  run.interrupt = &interrupt;
  std::thread([&] { interrupt.set(); }).join();
  CHECK(module.try_run("forward", {Tensor(x, 4)}, run).status().code() == RL_INVALID_STATE);
  interrupt.clear();
  CHECK(module.try_run("forward", {Tensor(x, 4)}, run).ok());
}

// Several threads use one registry.
static void registries() {
  auto made = rushlight::Registry::try_new();
  CHECK(made.ok());
  rushlight::Registry& registry = *made;
  const auto add = [&registry](const std::string& space) {
    for (int i = 0; i < 50; ++i) {
      const std::string name = space + "::operator" + std::to_string(i) + ".out";
      CHECK(registry.try_add_operator(name, 2, [](rushlight::Kernel&) { return rushlight::Status(); }).ok());
      CHECK(registry.try_add_operator("no name", 2, [](rushlight::Kernel&) { return rushlight::Status(); }).code() ==
            RL_INVALID_ARGUMENT);
    }
  };
  std::thread beside([&] { add("one"); });
  add("other");
  beside.join();
  rushlight::LoadOptions options;
  options.registry = &registry;
  CHECK(Module::try_load(corpus("add.pte"), options).ok());
}

static std::string compiled_llama() {
  rushlight::CompileOptions options;
  options.backends = {"cpu"};
  options.max_context_len = 80;
  int reports = 0;
  options.on_progress = [&](std::string_view stage, uint64_t done, uint64_t total) {
    CHECK(!stage.empty() && (total == 0 || done <= total));
    ++reports;
  };
  auto program = rushlight::try_compile(root + "/tests/decoders/llama", options);
  const std::string path = folder + "/llama.pte";
  CHECK(program.ok() && program->try_save(path).ok() && reports > 0);
  CHECK(program->try_bytes()->size() == read_whole(path).size());
  CHECK(program->try_save(folder + "/no/such/folder.pte").code() == RL_ACCESS_FAILED);
  options.quantize = "int5";
  CHECK(rushlight::try_compile(root + "/tests/decoders/llama", options).status().code() == RL_INVALID_ARGUMENT);
  const rushlight::Exported two[2] = {{"forward", root + "/examples/cortex-m/digits.pt2"},
                                      {"forward", root + "/examples/cortex-m/digits.pt2"}};
  CHECK(rushlight::try_compile(two).status().code() == RL_INVALID_ARGUMENT);
  CHECK(rushlight::try_compile({two[0], two[1]}).status().code() == RL_INVALID_ARGUMENT);
  return path;
}

// The answer is transformers'.
static void language_models(const std::string& path) {
  namespace llm = rushlight::llm;
  CHECK(llm::Model::try_load(corpus("add.pte")).status().code() == RL_NOT_FOUND);
  auto loaded = llm::Model::try_load(path);
  CHECK(loaded.ok());
  auto model = std::make_unique<llm::Model>(std::move(*loaded));
  const std::vector<uint32_t> prompt = model->encode(LLAMA_PROMPT, false);
  CHECK(prompt == std::vector<uint32_t>(std::begin(llama_prompt), std::end(llama_prompt)));
  CHECK(model->decode({llama_greedy, 16}) == std::string(LLAMA_GREEDY).substr(0, 16));
  CHECK(model->chat_prompt({{"user", "lN"}}) == "user: lN. assistant: " && !model->chat({{"user", "lN"}}).empty());
  llm::Session session = model->session();
  llm::GenerateOptions options;
  CHECK(options.temperature == 0.8f && options.top_k == 40);
  options.max_new_tokens = 16;
  options.temperature = 0;
  CHECK(session.generate(prompt, options) == std::string(LLAMA_GREEDY).substr(0, 16));
  CHECK(session.position() == prompt.size() + 15 && *session.try_position() == prompt.size() + 15);
  session.reset();
  std::string answer;
  auto usage = session.try_generate(prompt, options, [&](std::string_view text) {
    answer += text;
    return answer.size() < 4;
  });
  CHECK(usage.ok() && usage->finish == RL_LLM_FINISH_CANCELLED && answer == std::string(LLAMA_GREEDY).substr(0, 4));
  CHECK(usage->prompt_tokens == prompt.size() && usage->prefill.count() > 0);
  session.rewind(3);
  CHECK(session.position() == 3 && session.try_rewind(50).code() == RL_INVALID_STATE);
  options.stop = {"Sn"};
  CHECK(session.generate({llama_prompt + 3, prompt.size() - 3}, options) == std::string(LLAMA_GREEDY).substr(0, 5));
  // Options by name.
  llm::GenerateOptions chosen;
  chosen.named = {{"temperature", "0"}, {"logprobs", "1"}};
  chosen.named.set("max_new_tokens", 4).set("presence_penalty", 0.0f).set("ignore_eos", true);
  size_t tokens = 0;
  chosen.on_token = [&](const llm::Token& token) { tokens += token.top_tokens[0] == token.token && token.log_probability <= 0; };
  session.reset();
  CHECK(session.generate(prompt, chosen) == std::string(LLAMA_GREEDY).substr(0, 4) && tokens == 4);
  chosen.named.set("top_pp", 1);
  CHECK(session.try_generate(prompt, chosen).status().code() == RL_INVALID_ARGUMENT);
  CHECK(model->try_set_adapter("missing").code() == RL_NOT_SUPPORTED && model->try_set_adapter("").ok());
  session.reset();
  // A session keeps its model.
  llm::Session fork = session.fork();
  model.reset();
  const auto logits = fork.prefill(prompt);
  CHECK(logits.size() == sizeof llama_logits / sizeof *llama_logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    CHECK(is_near(logits[i], llama_logits[i], 2e-5));
  }
  options.temperature = -1;
  CHECK(session.try_generate(prompt, options, [](std::string_view) {}).status().code() == RL_INVALID_ARGUMENT);
  CHECK(session.try_generate(prompt, options).status().code() == RL_INVALID_ARGUMENT);
}

// Two users of one module, whose next tokens are transformers'.
static void sessions(const std::string& path) {
  auto module = Module::try_load(path);
  auto one = rushlight::Session::try_new(*module), other = rushlight::Session::try_new(*module);
  CHECK(one.ok() && other.ok());
  const auto following = [&](rushlight::Session& session, int64_t position, Span<const uint32_t> tokens) {
    const std::vector<int64_t> wide(tokens.begin(), tokens.end());
    rushlight::RunOptions options;
    options.session = &session;
    auto outputs = module->try_run("forward", {Tensor(wide, {1, wide.size()}), Tensor(Span<int64_t>(&position, 1), 1)}, options);
    CHECK(outputs.ok());
    auto logits = (*outputs)[0].try_tensor<float>();
    return static_cast<uint32_t>(std::max_element(logits->begin(), logits->end()) - logits->begin());
  };
  const Span<const uint32_t> prompt(llama_prompt), greedy(llama_greedy);
  const auto length = static_cast<int64_t>(prompt.size());
  CHECK(following(*one, 0, prompt) == greedy[0]);
  CHECK(following(*other, 0, {prompt.data(), 3}) != greedy[0]);
  CHECK(following(*one, length, {greedy.data(), 1}) == greedy[1]);
  auto fork = one->try_fork();
  CHECK(fork.ok() && following(*fork, length + 1, {greedy.data() + 1, 1}) == greedy[2]);
  CHECK(one->try_rewind(prompt.size()).ok() && following(*one, length, {greedy.data(), 1}) == greedy[1]);
  CHECK(one->try_clear().ok() && following(*one, 0, prompt) == greedy[0]);
}

#if RUSHLIGHT_EXCEPTIONS

template <typename F>
static rushlight::Error thrown_by(F&& f) {
  try {
    f();
  } catch (const rushlight::Error& error) {
    return error;
  }
  CHECK(!"an exception");
  std::abort();
}

struct Tired : std::exception {
  const char* what() const noexcept override { return "tired"; }
};

template <typename F>
static bool is_tired(F&& f) {
  try {
    f();
  } catch (const Tired&) {
    return true;
  }
  return false;
}

static void exceptions(const std::string& llama) {
  CHECK(thrown_by([] { Module module("missing.pte"); }).code() == RL_NOT_FOUND);
  Module module(corpus("add.pte"));
  const std::vector<float> six(6), eight(8);
  const rushlight::Error error = thrown_by([&] { module.forward(Tensor(six, {2, 3}), Tensor(eight, {2, 4})); });
  CHECK(error.status().got().find("f32 [2, 4]") != std::string_view::npos);
  CHECK(std::strstr(error.what(), "expected") != nullptr && std::strstr(error.what(), "input 1") != nullptr);
  const auto outputs = module.forward(Tensor(six, {2, 3}), Tensor(six, {2, 3}));
  CHECK(thrown_by([&] { outputs[1]; }).code() == RL_INVALID_ARGUMENT && thrown_by([&] { outputs["x"]; }).code() == RL_NOT_FOUND);
  CHECK(thrown_by([&] { outputs[0].tensor<int>(); }).code() == RL_INVALID_TYPE);
  CHECK(thrown_by([&] { outputs[0].to_int(); }).code() == RL_INVALID_TYPE);

  // What operators throw is the error of the call; what other callbacks throw comes out as it is.
  int mode = 0;
  rushlight::Registry registry;
  registry.add_operator("example::twice.out", 2, [&](rushlight::Kernel& kernel) {
    switch (mode) {
      case 0: kernel.input<double>(0); break;
      case 1: throw Tired();
      case 2: throw 2;
    }
    const auto from = kernel.input<float>(0);
    std::copy(from.begin(), from.end(), kernel.output<float>(1, from.sizes()).begin());
  });
  rushlight::LoadOptions options;
  options.registry = &registry;
  Module custom = compiled("custom_operator.pt2", options);
  const auto call = [&] { custom.forward(Tensor(Span<const float>(six.data(), 4), 4)); };
  CHECK(thrown_by(call).code() == RL_INVALID_TYPE);
  mode = 1;
  CHECK(thrown_by(call).code() == RL_INTERNAL && thrown_by(call).status().message() == "tired");
  mode = 2;
  CHECK(thrown_by(call).status().message() == "an exception that is no std::exception");
  mode = 3;
  call();

  // An error that is kept is the same each time that it is thrown, by several threads too.
  const rushlight::Error thrown = thrown_by([] { Module("missing.pte"); });
  rushlight::Error error_to_move = thrown;
  const rushlight::Error moved = std::move(error_to_move);
  rushlight::Registry failing;
  failing.add_operator("example::twice.out", 2, [kept = thrown](rushlight::Kernel&) { throw kept; });
  options.registry = &failing;
  Module one = compiled("custom_operator.pt2", options), other = compiled("custom_operator.pt2", options);
  const auto call_often = [&](Module& calling) {
    for (int i = 0; i < 100; ++i) {
      const auto failed = calling.try_forward(Tensor(Span<const float>(six.data(), 4), 4));
      CHECK(failed.status().code() == RL_NOT_FOUND && failed.status().message() == thrown.status().message());
    }
  };
  std::thread beside([&] { call_often(other); });
  call_often(one);
  beside.join();
  CHECK(moved.code() == RL_NOT_FOUND && error_to_move.code() == RL_NOT_FOUND && *error_to_move.what() != 0);
  CHECK(rushlight::Error(rushlight::Status()).what() != nullptr);
  // A result says the same each time that it is asked for its value.
  auto missing = Module::try_load("missing.pte");
  CHECK(thrown_by([&] { missing.value(); }).code() == RL_NOT_FOUND && thrown_by([&] { missing.value(); }).code() == RL_NOT_FOUND);
  CHECK(missing.status().code() == RL_NOT_FOUND);

  rushlight::RunOptions run;
  run.on_event = [](const rushlight::Event&) { throw Tired(); };
  CHECK(is_tired([&] { module.run("forward", {Tensor(six, {2, 3}), Tensor(six, {2, 3})}, run); }));
  rushlight::CompileOptions compile;
  compile.on_progress = [](std::string_view, uint64_t, uint64_t) { throw Tired(); };
  CHECK(is_tired([&] {
    rushlight::compile({{"forward", root + "/examples/cortex-m/digits.pt2"}}, compile).save(folder + "/tired.pte");
  }));
  rushlight::llm::Model model(llama);
  auto session = model.session();
  CHECK(is_tired([&] { session.generate({llama_prompt, 3}, {}, [](std::string_view) { throw Tired(); }); }));
  session.reset();
}

#endif

int main(int argc, char** argv) {
  CHECK(argc == 3);
  root = argv[1];
  folder = argv[2];
  recorded_programs();
  same_numbers();
  views();
  nothing_is_copied();
  statuses();
  loading();
  descriptions();
  names();
  operators_and_interrupts();
  registries();
  const std::string llama = compiled_llama();
  language_models(llama);
  sessions(llama);
#if RUSHLIGHT_EXCEPTIONS
  exceptions(llama);
#endif
  std::puts("ok");
  return 0;
}
