import CRushlight
import Dispatch

/// A message of a conversation.
public struct Message: Sendable {
  /// `system`, `user`, `assistant`, or another role of the model.
  public let role: String
  public let content: String

  public init(role: String, content: String) {
    self.role = role
    self.content = content
  }
}

/// A token of an answer with its log probability.
public struct Token: Sendable {
  public let token: UInt32
  public let logProbability: Double
  /// The most likely tokens, with their log probabilities.
  public let top: [(token: UInt32, logProbability: Double)]

  init(_ raw: rl_llm_token) {
    token = raw.token
    logProbability = raw.log_probability
    top = (0..<raw.num_top).map { (raw.top_tokens[$0], raw.top_log_probabilities[$0]) }
  }
}

/// Options of an answer, with the same defaults in all languages. An answer ends when the model ends it, or when the context is full.
public struct GenerateOptions: Sendable {
  /// Maximum number of tokens; 0: until the context is full.
  public var maxNewTokens = 0
  /// Divisor of the logits; 0: the most likely token.
  public var temperature: Float = 0.8
  /// Keeps the most likely tokens that together have this probability; 0 and 1: all.
  public var topP: Float = 0.95
  /// Number of most likely tokens that are kept; 0: all.
  public var topK = 40
  public var seed: UInt64 = 0
  /// Texts that end the answer and are not part of it.
  public var stop: [String] = []
  /// Options by name, which replace the others: `min_p`, `mirostat`, `json_schema`, `speculate` and those that
  /// `rushlight llm run --help` lists.
  public var named = NamedOptions()
  /// Gets each token if the option `logprobs` is set, on a thread of the model.
  public var onToken: (@Sendable (Token) -> Void)?

  public init() {}
}

/// A language model with its tokenizer. Any thread may use it and its sessions. Their calls wait for each other.
public final class LanguageModel: @unchecked Sendable {
  let raw: OpaquePointer
  let queue = DispatchQueue(label: "rushlight.language-model")

  /// Loads a `.pte` file of `rushlight compile` or ExecuTorch. `tokenizer` is a path; nil: the tokenizer in the program, or the one beside
  /// it.
  public init(path: String, tokenizer: String? = nil, options: LoadOptions = LoadOptions()) throws {
    var loaded: OpaquePointer?
    try options.withRaw { options in
      try tokenizer.withCStringOrNull { try check(rl_llm_load(path, $0, options, &loaded)) }
    }
    raw = loaded!
  }

  deinit { rl_llm_free(raw) }

  /// Sets the LoRA adapter of later sessions: the folder in which PEFT saved it, or nil for none.
  public func setAdapter(_ folder: String?, scale: Float = 1) throws {
    try queue.sync { try folder.withCStringOrNull { try check(rl_llm_set_adapter(raw, $0, scale)) } }
  }

  /// Converts text to tokens. `addSpecial` adds the tokens that begin and end a text.
  public func encode(_ text: String, addSpecial: Bool = true) throws -> [UInt32] {
    try queue.sync { try encoded(text, addSpecial) }
  }

  public func decode(_ tokens: [UInt32]) throws -> String {
    try queue.sync {
      var text = rl_string()
      try check(rl_llm_decode(raw, tokens, tokens.count, &text))
      return String(text)
    }
  }

  /// The tokens of a prompt of messages, by the model's chat template.
  public func chat(_ messages: [Message]) throws -> [UInt32] {
    try queue.sync {
      let texts = messages.flatMap { [$0.role, $0.content] }
      var prompt = rl_string()
      try texts.withCStrings { texts in
        let messages = stride(from: 0, to: texts.count, by: 2).map { rl_llm_message(role: texts[$0], content: texts[$0 + 1]) }
        try check(rl_llm_chat_prompt(raw, messages, messages.count, &prompt))
      }
      // The template's text already has the special tokens.
      return try encoded(String(prompt), false)
    }
  }

  /// Makes an empty session.
  public func makeSession() throws -> LanguageSession {
    try queue.sync {
      var made: OpaquePointer?
      try check(rl_llm_session_new(raw, &made))
      return LanguageSession(self, made!)
    }
  }

  private func encoded(_ text: String, _ addSpecial: Bool) throws -> [UInt32] {
    var text = text
    return try text.withUTF8 { bytes in
      try bytes.withMemoryRebound(to: CChar.self) { characters in
        var tokens: UnsafePointer<UInt32>?
        var count = 0
        let text = rl_string(data: characters.baseAddress, size: characters.count)
        try check(rl_llm_encode(raw, text, addSpecial, &tokens, &count))
        return Array(UnsafeBufferPointer(start: tokens, count: count))
      }
    }
  }
}

/// One conversation: the tokens so far, and their KV cache. It keeps its model alive.
public final class LanguageSession: @unchecked Sendable {
  private let model: LanguageModel
  private let raw: OpaquePointer

  init(_ model: LanguageModel, _ raw: OpaquePointer) {
    self.model = model
    self.raw = raw
  }

  deinit { rl_llm_session_free(raw) }

  /// Adds the tokens of a prompt and generates an answer, whose text comes piece by piece: `for try await piece in session.generate(prompt)`.
  /// Without a prompt, the answer continues the tokens of the session. Leaving the loop, or cancelling the task, ends the answer.
  public func generate(_ prompt: [UInt32], options: GenerateOptions = GenerateOptions()) -> AsyncThrowingStream<String, Error> {
    AsyncThrowingStream { continuation in
      do {
        let interrupt = try Interrupt()
        continuation.onTermination = { _ in interrupt.set() }
        model.queue.async {
          do {
            try self.generate(prompt, options, interrupt) { continuation.yield($0) }
            continuation.finish()
          } catch {
            continuation.finish(throwing: error)
          }
        }
      } catch {
        continuation.finish(throwing: error)
      }
    }
  }

  /// The number of tokens in the session.
  public func position() throws -> Int {
    try model.queue.sync {
      var position = 0
      try check(rl_llm_session_position(raw, &position))
      return position
    }
  }

  /// Removes all tokens. A session whose last call failed can then be used again.
  public func reset() throws {
    try model.queue.sync { try check(rl_llm_session_reset(model.raw, raw)) }
  }

  /// Removes all but the first tokens.
  public func rewind(to position: Int) throws {
    try model.queue.sync { try check(rl_llm_session_rewind(model.raw, raw, position)) }
  }

  /// Makes an independent session with the same tokens.
  public func fork() throws -> LanguageSession {
    try model.queue.sync {
      var fork: OpaquePointer?
      try check(rl_llm_session_fork(raw, &fork))
      return LanguageSession(model, fork!)
    }
  }

  private final class Listener {
    let onText: (String) -> Void
    let onToken: ((Token) -> Void)?
    init(_ onText: @escaping (String) -> Void, _ onToken: ((Token) -> Void)?) {
      self.onText = onText
      self.onToken = onToken
    }
  }

  private func generate(
    _ prompt: [UInt32], _ options: GenerateOptions, _ interrupt: Interrupt, _ onText: @escaping (String) -> Void
  ) throws {
    let listener = Listener(onText, options.onToken)
    try withExtendedLifetime((listener, interrupt)) {
      try options.stop.withCStrings { stop in
        try stop.withUnsafeBufferPointer { stop in
          try options.named.withRaw { named in
            var raw = rl_llm_generate_options()
            raw.struct_size = MemoryLayout<rl_llm_generate_options>.size
            raw.max_new_tokens = options.maxNewTokens
            raw.temperature = options.temperature
            raw.top_p = options.topP
            raw.top_k = options.topK
            raw.seed = options.seed
            raw.stop = stop.baseAddress
            raw.num_stop = stop.count
            raw.interrupt = interrupt.raw
            raw.text_data = Unmanaged.passUnretained(listener).toOpaque()
            raw.on_text = { text, data in
              Unmanaged<Listener>.fromOpaque(data!).takeUnretainedValue().onText(String(text))
              return true
            }
            raw.named = named.baseAddress
            raw.num_named = named.count
            if options.onToken != nil {
              raw.token_data = raw.text_data
              raw.on_token = { token, data in
                Unmanaged<Listener>.fromOpaque(data!).takeUnretainedValue().onToken?(Token(token!.pointee))
                return true
              }
            }
            try check(rl_llm_generate(model.raw, self.raw, prompt, prompt.count, &raw, nil))
          }
        }
      }
    }
  }
}
