// compile: programs of exported models. It may be missing in builds for small devices.

#pragma once

#include <rushlight/module.hpp>

namespace rushlight {

// The source of a method: the path of a `.pt2` file of `torch.export.save`, or its bytes. A language model is a source, too: the path of a
// Hugging Face folder or of a GGUF file. Its method is `forward`, and it must be the only source.
struct Exported {
  std::string method;
  std::string path;
  Bytes bytes = {};
};

// Options of compiling.
struct CompileOptions {
  // Backends in the order of priority, such as `cpu` or `cpu:precision=bf16`. Empty: a portable program, which is compiled for the machine
  // when it is loaded.
  std::vector<std::string> backends = {};
  // True if buffers with the same name in several methods are one.
  bool share_state = false;
  // The quantization of layers, by a name of `rushlight quantize --help`, such as `int4` or `8da4w`; empty: none.
  std::string quantize = {};
  // Number of positions of a language model's KV cache; 0: those of the model, at most 2048.
  size_t max_context_len = 0;
  // Options by name, which replace the fields: `kv_cache`, `embeddings`, `lora_rank` and the others of `rushlight compile --help`.
  NamedOptions named = {};
  // Ends the compilation, and the writing of its program, early. It must outlive both.
  const Interrupt* interrupt = nullptr;
  // Gets the progress of compiling and of writing the program: the stage, the units done, and their total, or 0 if the total is unknown. It
  // is called on any thread, one at a time. When the call has ended, it throws the exception that this function threw.
  std::function<void(std::string_view stage, uint64_t done, uint64_t total)> on_progress = {};
};

// A compiled program. Any number of threads may use one; with `on_progress`, one at a time.
class Program {
 public:
  // The bytes of a `.pte` file, for `Module::from_bytes`. They live as long as the program.
  Bytes bytes() const { return try_bytes().value(); }
  Result<Bytes> try_bytes() const {
    rl_bytes bytes{};
    Status status(rl_program_bytes(get(), &bytes));
    return status.ok() ? Result<Bytes>(Bytes(bytes.data, bytes.size)) : Result<Bytes>(std::move(status));
  }

  // Writes a temporary file beside `path` and renames it, so that a failure keeps the old file. It never replaces a source of the program.
  void save(internal::Text path) const { check(try_save(path)); }
  Status try_save(internal::Text path) const {
    Status status(rl_program_save(get(), path.get()));
    progress_->caught.rethrow();
    return status;
  }

  const rl_program* get() const { return program_.get(); }

 private:
  struct Progress {
    std::function<void(std::string_view, uint64_t, uint64_t)> on_progress;
    internal::Caught caught;

    static void hear(rl_string stage, uint64_t done, uint64_t total, void* user_data) {
      auto* progress = static_cast<Progress*>(user_data);
      progress->caught.run([&] { progress->on_progress(internal::view(stage), done, total); });
    }
  };

  Program() : progress_(std::make_unique<Progress>()) {}
  friend Result<Program> try_compile(Span<const Exported> exported, const CompileOptions& options);

  // Declared first, so that it outlives the program, which calls it.
  std::unique_ptr<Progress> progress_;
  internal::Handle<rl_program, rl_program_free> program_;
};

// Compiles exported programs, each to a method of one program.
//
// `RL_NOT_FOUND`, `RL_ACCESS_FAILED` and `RL_INVALID_PROGRAM` for files, `RL_NOT_SUPPORTED` for operators that the compiler lacks,
// `RL_INVALID_STATE` for an interrupted compilation. The error names the node and its line of Python.
inline Result<Program> try_compile(Span<const Exported> exported, const CompileOptions& options = {}) {
  std::vector<rl_exported> sources;
  for (const Exported& source : exported) {
    sources.push_back({source.method.c_str(), internal::or_null(source.path), source.bytes.data(), source.bytes.size()});
  }
  std::vector<const char*> backends;
  for (const std::string& backend : options.backends) {
    backends.push_back(backend.c_str());
  }
  Program program;
  program.progress_->on_progress = options.on_progress;
  rl_compile_options raw = RL_COMPILE_OPTIONS_INIT;
  raw.backends = backends.data();
  raw.num_backends = backends.size();
  raw.share_state = options.share_state ? 1 : 0;
  raw.quantize = internal::or_null(options.quantize);
  raw.max_context_len = options.max_context_len;
  raw.interrupt = options.interrupt == nullptr ? nullptr : options.interrupt->get();
  raw.on_progress = options.on_progress ? Program::Progress::hear : nullptr;
  raw.progress_data = program.progress_.get();
  const std::vector<rl_option> named = options.named.raw();
  raw.named = named.data();
  raw.num_named = named.size();
  rl_program* compiled = nullptr;
  Status status(rl_compile(sources.data(), sources.size(), &raw, &compiled));
  program.program_.reset(compiled);
  program.progress_->caught.rethrow();
  return status.ok() ? Result<Program>(std::move(program)) : Result<Program>(std::move(status));
}
inline Result<Program> try_compile(std::initializer_list<Exported> exported, const CompileOptions& options = {}) {
  return try_compile(Span<const Exported>(exported.begin(), exported.size()), options);
}
inline Program compile(Span<const Exported> exported, const CompileOptions& options = {}) {
  return try_compile(exported, options).value();
}
inline Program compile(std::initializer_list<Exported> exported, const CompileOptions& options = {}) {
  return try_compile(exported, options).value();
}

// Compiles one file or folder to the method `forward`.
inline Result<Program> try_compile(internal::Text path, const CompileOptions& options = {}) {
  const Exported exported{"forward", path.get()};
  return try_compile(Span<const Exported>(&exported, 1), options);
}
inline Program compile(internal::Text path, const CompileOptions& options = {}) { return try_compile(path, options).value(); }

}  // namespace rushlight
