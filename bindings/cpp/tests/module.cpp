// ExecuTorch's interface for C++. Programs and expected numbers are recorded of PyTorch: corpus.h is made of tests/corpus.
#include "corpus.h"

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

using namespace ::executorch::extension;
using executorch::aten::ScalarType;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Tag;

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)

static std::string root;

static std::string path_of(const char* program) { return root + "/" + program; }

static TensorPtr tensor_of(const recorded_tensor& recorded) {
  std::vector<executorch::aten::SizesType> sizes(recorded.sizes, recorded.sizes + recorded.rank);
  return from_blob(const_cast<void*>(recorded.data), std::move(sizes), static_cast<ScalarType>(recorded.dtype));
}

static void agrees(const EValue& got, const recorded_tensor& recorded, double tolerance) {
  CHECK(got.isTensor());
  const auto expected = tensor_of(recorded);
  // Row-major, as the recorded ones are.
  const auto tensor = got.toTensor();
  CHECK(tensor.sizes() == expected->sizes() && tensor.scalar_type() == expected->scalar_type());
  const bool has_type = executorch::runtime::with_element_type(tensor.scalar_type(), [&](auto element) {
    using T = decltype(element);
    for (ssize_t i = 0; i < tensor.numel(); ++i) {
      // The place of the element in memory.
      ssize_t place = 0, rest = i;
      for (ssize_t dim = tensor.dim(); dim-- > 0;) {
        place += rest % tensor.size(dim) * tensor.strides()[dim];
        rest /= tensor.size(dim);
      }
      const auto a = static_cast<double>(tensor.const_data_ptr<T>()[place]);
      const auto b = static_cast<double>(expected->const_data_ptr<T>()[i]);
      CHECK((std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= tolerance * (1 + std::fabs(b)));
    }
  });
  CHECK(has_type);
}

static void recorded_programs() {
  size_t calls = 0;
  for (const recorded_program* program = recorded; program->path != nullptr; ++program) {
    Module module(path_of(program->path), program->data == nullptr ? std::vector<std::string>{}
                                                                   : std::vector<std::string>{path_of(program->data)});
    for (size_t c = 0; c < program->num_calls; ++c, ++calls) {
      const recorded_call& call = program->calls[c];
      std::vector<TensorPtr> tensors;
      std::vector<EValue> inputs;
      for (size_t i = 0; i < call.num_inputs; ++i) {
        tensors.push_back(tensor_of(call.inputs[i]));
        inputs.push_back(tensors.back());
      }
      const auto outputs = module.execute(call.method, inputs);
      CHECK(outputs.ok() && outputs->size() == call.num_outputs);
      for (size_t i = 0; i < outputs->size(); ++i) {
        agrees((*outputs)[i], call.outputs[i], call.tolerance);
      }
    }
  }
  CHECK(calls >= 30);
}

// The outputs of a method are there until it is executed again, also while others are; and may be inputs of both.
static void outputs_live_until_their_method_runs_again() {
  Module module(path_of("tests/corpus/1.5.1/multi_method.pte"), Module::LoadMode::Mmap);
  std::vector<float> pixels(12);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<float>(i) / 12;
  }
  const auto x = from_blob(pixels.data(), {2, 6});
  const auto encoded = module.get("encode", x);
  CHECK(encoded.ok());
  const auto before = clone_tensor_ptr(encoded->toTensor());
  const auto decoded = module.get("decode", *encoded);
  CHECK(decoded.ok());
  CHECK(std::memcmp(encoded->toTensor().const_data_ptr(), before->const_data_ptr(), before->nbytes()) == 0);
  // Fed to the method that they are of.
  const auto once = clone_tensor_ptr(decoded->toTensor());
  const auto again = module.get("encode", *decoded);
  CHECK(again.ok());
  const auto expected = clone_tensor_ptr(again->toTensor());
  const auto of_copy = module.get("encode", once);
  CHECK(std::memcmp(of_copy->toTensor().const_data_ptr(), expected->const_data_ptr(), expected->nbytes()) == 0);
  const auto length = module.get("get_max_seq_len");
  CHECK(length.ok() && length->isInt() && length->toInt() == 128);
  CHECK(module.method_names()->count("decode") == 1 && *module.num_methods() >= 3);
  CHECK(module.unload_method("encode") && !module.unload_method("encode") && !module.is_method_loaded("encode"));
  // The method that ran last can be unloaded.
  CHECK(module.get("decode", before).ok() && module.unload_method("decode") && module.get("decode", before).ok());
}

static void inputs_and_outputs_of_the_callers() {
  Module module(path_of("tests/corpus/1.5.1/unplanned.pte"));
  const auto meta = module.method_meta("forward");
  CHECK(meta.ok() && meta->num_inputs() == 2 && meta->num_outputs() == 3 && *meta->input_tag(0) == Tag::Tensor);
  CHECK(meta->input_tag(2).error() == Error::InvalidArgument);
  auto x = full({2, 3}, 1.0), y = full({2, 3}, 2.0), target = zeros({2, 3});
  {
    // The copy outlives what was set.
    const auto set = full({2, 3}, 2.0);
    CHECK(module.set_input(set, 1) == Error::Ok);
  }
  CHECK(module.forward().error() == Error::InvalidArgument);
  const auto expected = module.forward({x, y});
  CHECK(expected.ok());
  const auto first = clone_tensor_ptr(expected->at(0).toTensor());
  CHECK(module.set_output(target) == Error::Ok);
  const auto outputs = module.forward(x);
  CHECK(outputs.ok() && outputs->at(0).toTensor().const_data_ptr() == target->const_data_ptr());
  CHECK(std::memcmp(target->const_data_ptr(), first->const_data_ptr(), first->nbytes()) == 0);
  CHECK(module.get_output(2).ok() && module.get_output(3).error() == Error::InvalidArgument);
  CHECK(module.set_output(EValue(), 0) == Error::InvalidArgument && module.set_output(target, 3) != Error::Ok);
  CHECK(module.set_inputs({x}) == Error::InvalidArgument && module.set_input(x, 2) == Error::InvalidArgument);
  CHECK(module.forward({x, y, x}).error() == Error::InvalidArgument);
}

static void what_cannot_be_loaded_is_an_error() {
  Module missing(path_of("nothing.pte"));
  CHECK(missing.load() == Error::NotFound && !missing.is_loaded() && missing.forward().error() == Error::NotFound);
  Module other(path_of("README.md"));
  CHECK(other.load() == Error::InvalidProgram);
  Module module(path_of("tests/corpus/1.5.1/add.pte"));
  CHECK(module.load_method("backward") == Error::NotFound && module.is_loaded());
  CHECK(module.forward({EValue(1), EValue(2)}).error() == Error::InvalidType);
  auto x = zeros({2, 3}), wrong = zeros({3, 3}), ints = zeros({2, 3}, ScalarType::Int);
  CHECK(module.forward({x, wrong}).error() == Error::InvalidArgument);
  CHECK(module.forward({x, ints}).error() == Error::InvalidType);
  CHECK(module.forward({x, x}).ok());
}

static void loaders() {
  const std::string path = path_of("tests/corpus/1.5.1/add.pte");
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto x = full({2, 3}, 1.5);
  Module of_bytes(std::make_unique<BufferDataLoader>(bytes.data(), bytes.size()));
  const auto sum = of_bytes.forward({x, x});
  CHECK(sum.ok());
  auto loader = FileDataLoader::from(path.c_str());
  CHECK(loader.ok());
  Module of_file(std::make_unique<FileDataLoader>(std::move(*loader)));
  CHECK(of_file.forward({x, x}).ok());
  Module of_less(std::make_unique<BufferDataLoader>(bytes.data(), bytes.size() / 2));
  CHECK(of_less.load() == Error::InvalidProgram);
  CHECK(FileDataLoader::from(nullptr).error() == Error::InvalidArgument);
  CHECK(MmapDataLoader::from(nullptr).error() == Error::InvalidArgument);
  CHECK(FileDataLoader::from("no-such.pte").error() == Error::AccessFailed);
  CHECK(MmapDataLoader::from("no-such.pte").error() == Error::AccessFailed);
}

static void options_are_kept() {
  executorch::runtime::BackendOptions<2> options;
  CHECK(options.set_option("threads", 2) == Error::Ok && options.set_option("nothing", true) == Error::Ok);
  CHECK(options.set_option("third", 3) == Error::InvalidArgument);
  LoadBackendOptionsMap map;
  CHECK(map.set_options("NoBackend", options.view()) == Error::Ok);
  Module module(path_of("tests/corpus/1.5.1/add.pte"));
  CHECK(module.load(map) == Error::Ok && module.backend_options().has_options("NoBackend"));
  CHECK(std::get<int>(module.backend_options().entry_at(0).options[0].value) == 2);
}

static void values_and_tensors() {
  CHECK(EValue(7).toInt() == 7 && EValue(0.5).toDouble() == 0.5 && EValue(true).toBool() && EValue().isNone());
  CHECK(EValue(7).tryToDouble().error() == Error::InvalidType && *EValue(7).tryToInt() == 7);
  CHECK(EValue(std::string_view("text")).toString() == "text");
  // 65504 is the largest half, 2^-24 the smallest; 2049 and 1 + 2^-11 lie between two, and go to the even one.
  const float numbers[] = {65504.0f, 5.9604644775390625e-08f, 2049.0f, 1.00048828125f, -0.0f, 65520.0f};
  const uint16_t halves[] = {0x7bff, 0x0001, 0x6800, 0x3c00, 0x8000, 0x7c00};
  for (size_t i = 0; i < 6; ++i) {
    CHECK(executorch::aten::Half(numbers[i]).x == halves[i]);
  }
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const executorch::aten::Half half(static_cast<uint16_t>(bits), executorch::aten::Half::from_bits());
    const executorch::aten::BFloat16 brain(static_cast<uint16_t>(bits), executorch::aten::BFloat16::from_bits());
    CHECK(std::isnan(static_cast<float>(half)) || executorch::aten::Half(static_cast<float>(half)).x == bits);
    CHECK(std::isnan(static_cast<float>(brain)) || executorch::aten::BFloat16(static_cast<float>(brain)).x == bits);
  }
  auto x = make_tensor_ptr({2, 3}, {1, 2, 3, 4, 5, 6}, {1, 0}, {}, ScalarType::Float);
  CHECK(x->strides()[0] == 1 && x->strides()[1] == 2 && x->const_data_ptr<float>()[5] == 6.0f);
  CHECK(resize_tensor_ptr(x, {2, 2}) == Error::Ok && x->numel() == 4 && x->strides()[1] == 2);
  CHECK(resize_tensor_ptr(x, {4, 2}) == Error::NotSupported && resize_tensor_ptr(x, {4}) == Error::NotSupported);
  const executorch::aten::SizesType sizes[] = {2, 3};
  const executorch::aten::DimOrderType twice[] = {0, 0}, beyond[] = {0, 2};
  executorch::aten::StridesType strides[2];
  CHECK(executorch::runtime::dim_order_to_stride(sizes, twice, 2, strides) == Error::InvalidArgument);
  CHECK(executorch::runtime::dim_order_to_stride(sizes, beyond, 2, strides) == Error::InvalidArgument);
  CHECK(executorch::aten::safe_numel(sizes, -1).error() == Error::InvalidArgument);
  bool is_freed = false;
  float data[1];
  from_blob(data, {1}, ScalarType::Float, [&](void* freed) { is_freed = freed == data; });
  CHECK(is_freed);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  root = argv[1];
  recorded_programs();
  outputs_live_until_their_method_runs_again();
  inputs_and_outputs_of_the_callers();
  what_cannot_be_loaded_is_an_error();
  loaders();
  options_are_kept();
  values_and_tensors();
  std::puts("ok");
  return 0;
}
