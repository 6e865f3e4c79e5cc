// ExecuTorch's side of the benchmarks: a process that loads programs into the C++ runtime of the executorch wheel and
// times them on request, one command a line, one answer a line:
//
//   library FILE             loads a library that registers more kernels, or one that such a library needs: "ok"
//   load PROGRAM INPUTS      loads `forward`, with one thread; INPUTS holds the bytes of its input tensors, one after
//                            the other: "ok"
//   open PROGRAM THREADS INPUTS SIZES
//                            loads `forward` from the mapped file, with so many threads, and executes it once; INPUTS and SIZES
//                            are as for "input": the nanoseconds of loading and of the execution, and the bytes that both
//                            added to the largest resident size of the process
//   input INPUTS SIZES       other inputs for what is loaded; of a program with one input there may be fewer than it takes at
//                            most, along the first dimension: "ok". SIZES, as in 1x3x224x224, are for engines whose programs do
//                            not know them. COUNT@POSITION instead says that the program is a language model, and INPUTS
//                            POSITION + COUNT tokens: the last COUNT of them are executed, after the others were read
//   time CALLS NANOSECONDS   executes it at least so often and so long, the inputs set anew before each: the median of
//                            the executions in nanoseconds
//   outputs FILE             executes it and writes the bytes of its output tensors: "ok"
//   stage NAME BATCHES       nanoseconds of one stage of the loaded program's life, the median of batches:
//                            verify, method, execute, call
//
// What fails is answered with "error" and the reason.
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/module/module.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// The wheel ships the pool, but not its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

using executorch::aten::DimOrderType;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::StridesType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::BufferDataLoader;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::Program;
using Clock = std::chrono::steady_clock;

void require(Error error, const char* what) {
  if (error != Error::Ok) {
    throw std::runtime_error(std::string(what) + ": ExecuTorch's error " + std::to_string(static_cast<int>(error)));
  }
}

double median(std::vector<double>& samples) {
  auto middle = samples.begin() + samples.size() / 2;
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A tensor of the program's type, sizes and dim order over bytes that live elsewhere.
// Bytes at a multiple of 64, where PyTorch's allocator would put them.
struct Aligned {
  void operator()(char* bytes) const { ::operator delete[](bytes, std::align_val_t(64)); }
};

struct Input {
  std::unique_ptr<char[], Aligned> bytes;
  std::vector<SizesType> sizes;
  std::vector<DimOrderType> dim_order;
  std::vector<StridesType> strides;
  std::unique_ptr<TensorImpl> tensor;
};

class Session {
 public:
  Session(const std::string& program, const std::string& inputs)
      : bytes_(contents(program)), data_(contents(inputs)), module_(loader()) {
    prepare("");
  }

  Session(const std::string& inputs, const std::string& sizes, const std::string& file, Module::LoadMode mode)
      : data_(contents(inputs)), module_(file, mode) {
    prepare(sizes);
  }

  // Other inputs for the same program.
  void input(const std::string& inputs, const std::string& sizes) {
    data_ = contents(inputs);
    bind(sizes);
  }

  void set_inputs() {
    require(method_->set_inputs({arguments_.data(), arguments_.size()}), "setting the inputs");
  }

  void execute() { require(method_->execute(), "executing"); }

  double time(size_t calls, double at_least) {
    std::vector<double> samples;
    double spent = 0;
    while (samples.size() < calls || spent < at_least) {
      set_inputs();
      auto start = Clock::now();
      execute();
      samples.push_back(nanoseconds(Clock::now() - start));
      spent += samples.back();
    }
    return median(samples);
  }

  void write_outputs(const std::string& path) {
    set_inputs();
    execute();
    std::ofstream file(path, std::ios::binary);
    for (size_t i = 0; i < method_->outputs_size(); i++) {
      const EValue& value = method_->get_output(i);
      if (value.isTensor()) {
        file.write(static_cast<const char*>(value.toTensor().const_data_ptr()), value.toTensor().nbytes());
      }
    }
  }

  double stage(const std::string& name, size_t batches) {
    if (name == "verify") {
      return batched(batches, 20, [&] {
        BufferDataLoader loader(bytes_.data(), bytes_.size());
        require(Program::load(&loader, Program::Verification::InternalConsistency).error(), "verifying");
      });
    }
    if (name == "method") {
      Module module(loader());
      require(module.load(Program::Verification::InternalConsistency), "loading the program");
      return batched(batches, 5, [&] {
        require(module.load_method("forward"), "loading the method");
        module.unload_method("forward");
      });
    }
    if (name == "execute") return batched(batches, 50, [&] { execute(); });
    if (name == "call") {
      std::vector<EValue> outputs(method_->outputs_size());
      return batched(batches, 50, [&] {
        set_inputs();
        execute();
        require(method_->get_outputs(outputs.data(), outputs.size()), "reading the outputs");
      });
    }
    throw std::runtime_error("no stage " + name);
  }

 private:
  void prepare(const std::string& sizes) {
    require(module_.load_method("forward"), "loading the method");
    method_ = *module_.method("forward");
    bind(sizes);
  }

  // Makes arguments of the bytes.
  void bind(const std::string& sizes) {
    size_t at = sizes.find('@');
    if (at != std::string::npos) {
      read_text(std::stoul(sizes.substr(0, at)), std::stoul(sizes.substr(at + 1)));
      return;
    }
    clear_arguments();
    auto meta = method_->method_meta();
    size_t begin = 0;
    for (size_t i = 0; i < meta.num_inputs(); i++) {
      auto info = meta.input_tensor_meta(i);
      require(info.error(), "reading the type of an input");
      std::vector<SizesType> sizes(info->sizes().begin(), info->sizes().end());
      std::vector<DimOrderType> dim_order(info->dim_order().begin(), info->dim_order().end());
      size_t nbytes = info->nbytes();
      if (meta.num_inputs() == 1 && data_.size() < nbytes && !sizes.empty()) {
        // Fewer than the program takes at most.
        size_t each = nbytes / sizes[0];
        sizes[0] = data_.size() / each;
        nbytes = sizes[0] * each;
      }
      if (begin + nbytes > data_.size()) throw std::runtime_error("too few bytes of inputs");
      add_argument(info->scalar_type(), sizes, dim_order, data_.data() + begin, nbytes);
      begin += nbytes;
    }
  }

  // Has a language model read the first tokens, and makes arguments of the others.
  void read_text(size_t count, size_t position) {
    const size_t longest_call = 512;
    if (data_.size() != (position + count) * sizeof(int64_t)) throw std::runtime_error("another number of tokens");
    for (size_t begin = 0; begin < position; begin += longest_call) {
      bind_tokens(begin, std::min(longest_call, position - begin));
      set_inputs();
      execute();
    }
    bind_tokens(position, count);
  }

  void bind_tokens(int64_t position, size_t count) {
    clear_arguments();
    const char* tokens = data_.data() + position * sizeof(int64_t);
    add_argument(ScalarType::Long, {1, static_cast<SizesType>(count)}, {0, 1}, tokens, count * sizeof(int64_t));
    add_argument(ScalarType::Long, {1}, {0}, reinterpret_cast<const char*>(&position), sizeof(position));
  }

  void clear_arguments() {
    arguments_.clear();
    inputs_.clear();
  }

  void add_argument(
      ScalarType type, const std::vector<SizesType>& sizes, const std::vector<DimOrderType>& dim_order, const char* bytes,
      size_t nbytes) {
    auto input = std::make_unique<Input>();
    input->sizes = sizes;
    input->dim_order = dim_order;
    input->strides.resize(sizes.size());
    StridesType stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      input->strides[dim_order[d]] = stride;
      stride *= std::max<SizesType>(sizes[dim_order[d]], 1);
    }
    input->bytes.reset(static_cast<char*>(::operator new[](std::max<size_t>(nbytes, 1), std::align_val_t(64))));
    std::copy_n(bytes, nbytes, input->bytes.get());
    input->tensor = std::make_unique<TensorImpl>(
        type, input->sizes.size(), input->sizes.data(), input->bytes.get(), input->dim_order.data(),
        input->strides.data());
    arguments_.emplace_back(Tensor(input->tensor.get()));
    inputs_.push_back(std::move(input));
  }

  std::unique_ptr<BufferDataLoader> loader() {
    return std::make_unique<BufferDataLoader>(bytes_.data(), bytes_.size());
  }

  template <class F>
  static double batched(size_t batches, size_t calls, F call) {
    std::vector<double> samples;
    for (size_t batch = 0; batch < batches; batch++) {
      auto start = Clock::now();
      for (size_t i = 0; i < calls; i++) call();
      samples.push_back(nanoseconds(Clock::now() - start) / calls);
    }
    return median(samples);
  }

  std::string bytes_;
  std::string data_;
  Module module_;
  Method* method_ = nullptr;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<EValue> arguments_;
};

void use_threads(uint32_t threads) {
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads);
}

// Bytes of a line of /proc/self/status.
double resident(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) return std::stod(line.substr(key.size())) * 1024;
  }
  throw std::runtime_error("no " + key + " in /proc/self/status");
}

std::string open(
    std::unique_ptr<Session>& session, const std::string& program, const std::string& inputs, const std::string& sizes) {
  session.reset();
  std::ofstream("/proc/self/clear_refs") << "5";
  double before = resident("VmRSS:");
  auto start = Clock::now();
  session = std::make_unique<Session>(inputs, sizes, program, Module::LoadMode::Mmap);
  auto loaded = Clock::now();
  session->set_inputs();
  session->execute();
  auto executed = Clock::now();
  std::ostringstream answer;
  answer << nanoseconds(loaded - start) << " " << nanoseconds(executed - loaded) << " "
         << resident("VmHWM:") - before;
  return answer.str();
}

std::string answer(std::unique_ptr<Session>& session, std::istringstream& line) {
  std::string command, first, second, third, fourth;
  line >> command >> first >> second >> third >> fourth;
  if (command == "load") {
    session.reset();
    session = std::make_unique<Session>(first, second);
    session->set_inputs();
    session->execute();
    return "ok";
  }
  if (command == "open") {
    use_threads(std::stoul(second));
    return open(session, first, third, fourth);
  }
  if (command == "library") {
    if (!dlopen(first.c_str(), RTLD_LAZY | RTLD_GLOBAL)) throw std::runtime_error(dlerror());
    return "ok";
  }
  if (!session) throw std::runtime_error("nothing is loaded");
  if (command == "outputs") {
    session->write_outputs(first);
    return "ok";
  }
  if (command == "input") {
    session->input(first, second);
    return "ok";
  }
  if (command == "time") return std::to_string(session->time(std::stoul(first), std::stod(second)));
  if (command == "stage") return std::to_string(session->stage(first, std::stoul(second)));
  throw std::runtime_error("no command " + command);
}

}  // namespace

int main() {
  use_threads(1);
  std::unique_ptr<Session> session;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    try {
      std::cout << answer(session, words) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
}
