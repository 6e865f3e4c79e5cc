// Language models: text in, text out. They may be missing in builds for small devices.

#pragma once

#include <rushlight/module.hpp>

namespace rushlight {
namespace llm {

using Tokens = Span<const uint32_t>;

// A message of a conversation.
struct Message {
  // `system`, `user`, `assistant`, or another role of the model.
  std::string role;
  std::string content;
};

// A token of an answer with its log probability.
struct Token {
  uint32_t token;
  double log_probability;
  // The most likely tokens, with their log probabilities.
  Span<const uint32_t> top_tokens;
  Span<const double> top_log_probabilities;
};

// Options of an answer, with the same defaults in all languages. An answer ends when the model ends it, or when the context is full.
struct GenerateOptions {
  // Maximum number of tokens; 0: until the context is full.
  size_t max_new_tokens = 0;
  // Divisor of the logits; 0: the most likely token.
  float temperature = 0.8f;
  // Keeps the most likely tokens that together have this probability; 0 and 1: all.
  float top_p = 0.95f;
  // Number of most likely tokens that are kept; 0: all.
  size_t top_k = 40;
  // The same seed gives the same answer.
  uint64_t seed = 0;
  // Texts that end the answer and are not part of it.
  std::vector<std::string> stop = {};
  const Interrupt* interrupt = nullptr;
  // Options by name, which replace the fields: `min_p`, `mirostat`, `json_schema`, `speculate` and the others of
  // `rushlight llm run --help`.
  NamedOptions named = {};
  // Gets each token if the option `logprobs` is set. The call throws its exception.
  std::function<void(const Token&)> on_token = {};
};

// Token counts and times of an answer.
struct Usage {
  // Tokens of the prompt, without those that the session had already.
  size_t prompt_tokens;
  size_t generated_tokens;
  // Time of reading the prompt, and of generating the answer.
  std::chrono::nanoseconds prefill;
  std::chrono::nanoseconds decode;
  rl_llm_finish finish;
};

namespace internal {
using rushlight::internal::Handle;

// A loaded model, which its sessions keep.
struct Loaded {
  // Declared first, so that they outlive the model, which calls them.
  std::shared_ptr<const void> operators;
  Handle<rl_llm, rl_llm_free> llm;
};
}  // namespace internal

// One conversation: the tokens so far, and their KV cache. One thread at a time uses a model with all of its sessions.
class Session {
 public:
  // Adds the tokens of a prompt, generates an answer, and passes its text to a function, piece by piece. The function takes a
  // `std::string_view`. It returns nothing, or false to end the answer. The call throws its exception. Without a prompt, the answer
  // continues the tokens that the session has read.
  //
  // `RL_OUT_OF_RESOURCES` for a prompt that does not fit the context, `RL_INVALID_STATE` for a session whose last call failed.
  template <typename Function>
  Usage generate(Tokens prompt, const GenerateOptions& options, Function&& on_text) {
    return try_generate(prompt, options, std::forward<Function>(on_text)).value();
  }
  template <typename Function>
  Result<Usage> try_generate(Tokens prompt, const GenerateOptions& options, Function&& on_text) {
    Listener<std::remove_reference_t<Function>> listener{&on_text, &options.on_token, {}};
    const std::vector<rl_option> named = options.named.raw();
    std::vector<const char*> stop;
    for (const std::string& text : options.stop) {
      stop.push_back(text.c_str());
    }
    rl_llm_generate_options raw = RL_LLM_GENERATE_OPTIONS_INIT;
    raw.max_new_tokens = options.max_new_tokens;
    raw.temperature = options.temperature;
    raw.top_p = options.top_p;
    raw.top_k = options.top_k;
    raw.seed = options.seed;
    raw.stop = stop.data();
    raw.num_stop = stop.size();
    raw.interrupt = options.interrupt == nullptr ? nullptr : options.interrupt->get();
    raw.on_text = listener.hear;
    raw.text_data = &listener;
    raw.named = named.data();
    raw.num_named = named.size();
    raw.on_token = options.on_token ? listener.hear_token : nullptr;
    raw.token_data = &listener;
    rl_llm_usage usage = RL_LLM_USAGE_INIT;
    Status status(rl_llm_generate(loaded_->llm.get(), get(), prompt.data(), prompt.size(), &raw, &usage));
    listener.caught.rethrow();
    if (!status.ok()) {
      return status;
    }
    return Usage{usage.prompt_tokens, usage.generated_tokens, std::chrono::nanoseconds(usage.prefill_ns),
                 std::chrono::nanoseconds(usage.decode_ns), static_cast<rl_llm_finish>(usage.finish)};
  }

  // Generates an answer and returns its text.
  std::string generate(Tokens prompt, const GenerateOptions& options = {}) { return try_generate(prompt, options).value(); }
  Result<std::string> try_generate(Tokens prompt, const GenerateOptions& options = {}) {
    std::string answer;
    auto usage = try_generate(prompt, options, [&](std::string_view text) { answer += text; });
    return usage.ok() ? Result<std::string>(std::move(answer)) : Result<std::string>(std::move(usage).status());
  }

  // Reads tokens, and returns the logits of the next token. They live until the next call of this session.
  Span<const float> prefill(Tokens tokens) { return try_prefill(tokens).value(); }
  Result<Span<const float>> try_prefill(Tokens tokens) {
    const float* logits = nullptr;
    size_t num_logits = 0;
    Status status(rl_llm_prefill(loaded_->llm.get(), get(), tokens.data(), tokens.size(), &logits, &num_logits));
    return status.ok() ? Result<Span<const float>>(Span<const float>(logits, num_logits)) : Result<Span<const float>>(std::move(status));
  }

  // Removes all tokens. A session whose last call failed can then be used again.
  void reset() { check(try_reset()); }
  Status try_reset() { return Status(rl_llm_session_reset(loaded_->llm.get(), get())); }

  // Removes all but the first tokens.
  void rewind(size_t position) { check(try_rewind(position)); }
  Status try_rewind(size_t position) { return Status(rl_llm_session_rewind(loaded_->llm.get(), get(), position)); }

  // The number of tokens in the session.
  size_t position() { return try_position().value(); }
  Result<size_t> try_position() {
    size_t position = 0;
    Status status(rl_llm_session_position(get(), &position));
    return status.ok() ? Result<size_t>(position) : Result<size_t>(std::move(status));
  }

  // Makes an independent session with the same tokens.
  Session fork() { return try_fork().value(); }
  Result<Session> try_fork() {
    rl_llm_session* fork = nullptr;
    Status status(rl_llm_session_fork(get(), &fork));
    return status.ok() ? Result<Session>(Session(loaded_, fork)) : Result<Session>(std::move(status));
  }

  rl_llm_session* get() const { return session_.get(); }

 private:
  template <typename Function>
  struct Listener {
    Function* on_text;
    const std::function<void(const Token&)>* on_token;
    rushlight::internal::Caught caught;

    static bool hear_token(const rl_llm_token* token, void* user_data) {
      auto* listener = static_cast<Listener*>(user_data);
      return listener->caught.run([&] {
        (*listener->on_token)({token->token, token->log_probability, Span<const uint32_t>(token->top_tokens, token->num_top),
                               Span<const double>(token->top_log_probabilities, token->num_top)});
      });
    }

    static bool hear(rl_string text, void* user_data) {
      auto* listener = static_cast<Listener*>(user_data);
      bool goes_on = true;
      const bool ran = listener->caught.run([&] {
        if constexpr (std::is_void_v<decltype((*listener->on_text)(std::string_view()))>) {
          (*listener->on_text)(rushlight::internal::view(text));
        } else {
          goes_on = (*listener->on_text)(rushlight::internal::view(text));
        }
      });
      return ran && goes_on;
    }
  };

  friend class Model;
  Session(std::shared_ptr<internal::Loaded> loaded, rl_llm_session* session) : loaded_(std::move(loaded)), session_(session) {}

  std::shared_ptr<internal::Loaded> loaded_;
  internal::Handle<rl_llm_session, rl_llm_session_free> session_;
};

// A language model with its tokenizer. One thread at a time uses a model and its sessions.
class Model {
 public:
  // Loads a `.pte` file of `rushlight compile` or ExecuTorch. `tokenizer` is a path; empty: the tokenizer in the program, or the one beside
  // it.
  explicit Model(const std::string& path, const std::string& tokenizer = {}, const LoadOptions& options = {})
      : Model(try_load(path, tokenizer, options).value()) {}
  static Result<Model> try_load(const std::string& path, const std::string& tokenizer = {}, const LoadOptions& options = {}) {
    rl_llm* llm = nullptr;
    Status status = rushlight::internal::LoadArguments(options).pass_to([&](const rl_load_options* raw) {
      return rl_llm_load(path.c_str(), rushlight::internal::or_null(tokenizer), raw, &llm);
    });
    if (!status.ok()) {
      return status;
    }
    Model model;
    model.loaded_->llm.reset(llm);
    if (options.registry != nullptr) {
      model.loaded_->operators = options.registry->shared();
    }
    return model;
  }

  // Sets the LoRA adapter of later sessions: the folder in which PEFT saved it; empty: none.
  void set_adapter(const std::string& folder, float scale = 1) { check(try_set_adapter(folder, scale)); }
  Status try_set_adapter(const std::string& folder, float scale = 1) {
    return Status(rl_llm_set_adapter(get(), rushlight::internal::or_null(folder), scale));
  }

  // Converts text to tokens. `add_special` adds the tokens that begin and end a text.
  std::vector<uint32_t> encode(std::string_view text, bool add_special = true) { return try_encode(text, add_special).value(); }
  Result<std::vector<uint32_t>> try_encode(std::string_view text, bool add_special = true) {
    const uint32_t* tokens = nullptr;
    size_t count = 0;
    Status status(rl_llm_encode(get(), {text.data(), text.size()}, add_special, &tokens, &count));
    return status.ok() ? Result<std::vector<uint32_t>>(std::vector<uint32_t>(tokens, tokens + count))
                       : Result<std::vector<uint32_t>>(std::move(status));
  }

  std::string decode(Tokens tokens) { return try_decode(tokens).value(); }
  Result<std::string> try_decode(Tokens tokens) {
    rl_string text{};
    Status status(rl_llm_decode(get(), tokens.data(), tokens.size(), &text));
    return status.ok() ? Result<std::string>(std::string(text.data, text.size)) : Result<std::string>(std::move(status));
  }

  // The tokens of a prompt of messages, by the model's chat template; `RL_NOT_FOUND` for a model without one.
  std::vector<uint32_t> chat(const std::vector<Message>& messages) { return try_chat(messages).value(); }
  Result<std::vector<uint32_t>> try_chat(const std::vector<Message>& messages) {
    auto prompt = try_chat_prompt(messages);
    // The template's text already has the special tokens.
    return prompt.ok() ? try_encode(*prompt, false) : Result<std::vector<uint32_t>>(std::move(prompt).status());
  }

  // The text of a prompt of messages, by the model's chat template.
  std::string chat_prompt(const std::vector<Message>& messages) { return try_chat_prompt(messages).value(); }
  Result<std::string> try_chat_prompt(const std::vector<Message>& messages) {
    std::vector<rl_llm_message> raw;
    for (const Message& message : messages) {
      raw.push_back({message.role.c_str(), message.content.c_str()});
    }
    rl_string prompt{};
    Status status(rl_llm_chat_prompt(get(), raw.data(), raw.size(), &prompt));
    return status.ok() ? Result<std::string>(std::string(prompt.data, prompt.size)) : Result<std::string>(std::move(status));
  }

  // Makes an empty session, which keeps the model alive.
  Session session() { return try_session().value(); }
  Result<Session> try_session() {
    rl_llm_session* session = nullptr;
    Status status(rl_llm_session_new(get(), &session));
    return status.ok() ? Result<Session>(Session(loaded_, session)) : Result<Session>(std::move(status));
  }

  rl_llm* get() const { return loaded_->llm.get(); }

 private:
  Model() : loaded_(std::make_shared<internal::Loaded>()) {}

  std::shared_ptr<internal::Loaded> loaded_;
};

}  // namespace llm
}  // namespace rushlight
