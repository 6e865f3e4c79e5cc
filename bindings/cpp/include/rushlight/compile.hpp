// compile: programs of exported models. It may be missing in builds for small devices.

#pragma once

#include <rushlight/module.hpp>

namespace rushlight {

// What is compiled to a method: the path of a `.pt2` file that `torch.export.save` wrote, or its bytes. Or, by itself, a language model
// as it is published: the path of a folder of Hugging Face, or of a GGUF file; its method is `forward`.
struct Exported {
  std::string method;
  std::string path;
  Bytes bytes = {};
};

// How programs are compiled.
struct CompileOptions {
  // In the order of priority, such as `cpu` or `cpu:precision=bf16`. None: a portable program, which is compiled for the machine when it
  // is loaded.
  std::vector<std::string> backends = {};
  // Buffers of the same name in several methods are one.
  bool share_state = false;
  // How layers are quantized, by the names of `rushlight quantize --help`, such as `int4` or `8da4w`; empty: not at all.
  std::string quantize = {};
  // Number of positions of a language model's KV cache; 0: those of the model, at most 2048.
  size_t max_context_len = 0;
  // Options by name, which replace the fields: `kv_cache`, `embeddings`, `lora_rank` and the others of `rushlight compile --help`.
  NamedOptions named = {};
  // Ends the compilation early, and the writing of its program: it has to live as long as that.
  const Interrupt* interrupt = nullptr;
  // Is told how far it is, also when the program is written: the stage, and units done of a total, which is 0 if there is no measure. It
  // is called on any thread, one at a time. What it throws comes out of the call, when that has ended.
  std::function<void(std::string_view stage, uint64_t done, uint64_t total)> on_progress = {};
};

// A compiled program. Any number of threads may use one, those with `on_progress` one at a time.
class Program {
 public:
  // The bytes of a `.pte` file, which live as long as the program: `Module::from_bytes` takes them.
  Bytes bytes() const { return try_bytes().value(); }
  Result<Bytes> try_bytes() const {
    rl_bytes bytes{};
    Status status(rl_program_bytes(get(), &bytes));
    return status.ok() ? Result<Bytes>(Bytes(bytes.data, bytes.size)) : Result<Bytes>(std::move(status));
  }

  // Writes the file beside its name and then renames it, so that a failure leaves what was there before. It never replaces a file that
  // the program was compiled from.
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

  // Freed after the program, which calls it.
  std::unique_ptr<Progress> progress_;
  internal::Handle<rl_program, rl_program_free> program_;
};

// Compiles exported programs, each to a method of one program.
//
// `RL_NOT_FOUND`, `RL_ACCESS_FAILED` and `RL_INVALID_PROGRAM` for files, `RL_NOT_SUPPORTED` for what the compiler does not have,
// `RL_INVALID_STATE` if it was interrupted. The error names the node and its line of Python.
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

// One file or folder, to the method `forward`.
inline Result<Program> try_compile(internal::Text path, const CompileOptions& options = {}) {
  const Exported exported{"forward", path.get()};
  return try_compile(Span<const Exported>(&exported, 1), options);
}
inline Program compile(internal::Text path, const CompileOptions& options = {}) { return try_compile(path, options).value(); }

}  // namespace rushlight
