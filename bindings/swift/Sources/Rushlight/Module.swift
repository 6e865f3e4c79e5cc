import CRushlight

/// A flag that ends calls early. Any thread may set and clear it while others run calls with it.
public final class Interrupt: @unchecked Sendable {
  let raw: OpaquePointer

  public init() throws {
    var made: OpaquePointer?
    try check(rl_interrupt_new(&made))
    raw = made!
  }

  deinit { rl_interrupt_free(raw) }

  /// Calls with this interrupt fail before their next step, until it is cleared.
  public func set() { rl_interrupt_set(raw, true) }
  public func clear() { rl_interrupt_set(raw, false) }
}

/// Options by name, as in the C interface and on the command line: `options.set("top_k", 40)`. To give a list several values, such as
/// `stop`, set it several times.
public struct NamedOptions: Sendable {
  private var texts: [String] = []

  public init() {}

  public mutating func set(_ name: String, _ value: String) { texts += [name, value] }
  public mutating func set(_ name: String, _ value: Bool) { set(name, String(value)) }
  public mutating func set<T: BinaryInteger>(_ name: String, _ value: T) { set(name, String(value)) }
  public mutating func set<T: BinaryFloatingPoint>(_ name: String, _ value: T) { set(name, "\(value)") }

  func withRaw<R>(_ body: (UnsafeBufferPointer<rl_option>) throws -> R) throws -> R {
    try texts.withCStrings { texts in
      let options = stride(from: 0, to: texts.count, by: 2).map { rl_option(name: texts[$0], value: texts[$0 + 1]) }
      return try options.withUnsafeBufferPointer(body)
    }
  }
}

/// Options of loading a program.
public struct LoadOptions: Sendable {
  /// Maximum threads of a call, including the caller's; 0: one for each processor.
  public var threads = 0
  /// The backend that a portable program is compiled for when its first method is loaded: `auto` (nil), `off`, or a backend with its options.
  public var lower: String?
  /// The folder that caches compiled programs. Only the user may have access to it. nil: the folder of `RUSHLIGHT_CACHE`, or none.
  public var cache: String?
  /// Maximum bytes of memory of one method, and maximum microseconds of a call; 0: no limit.
  public var memoryLimit: UInt64 = 0
  public var timeLimit: UInt64 = 0
  /// Paths of `.ptd` files with weights of the program.
  public var data: [String] = []
  /// Options by name, which replace the others: `named.set("time_limit", "500ms")`.
  public var named = NamedOptions()

  public init() {}

  func withRaw<R>(_ body: (UnsafePointer<rl_load_options>) throws -> R) throws -> R {
    try lower.withCStringOrNull { lower in
      try cache.withCStringOrNull { cache in
        try data.withCStrings { paths in
          let files = paths.map { rl_data(path: $0, bytes: nil, size: 0) }
          return try files.withUnsafeBufferPointer { files in
            try named.withRaw { named in
              var options = rl_load_options()
              options.struct_size = MemoryLayout<rl_load_options>.size
              options.threads = threads
              options.lower = lower
              options.cache = cache
              options.memory_limit = memoryLimit
              options.time_limit = timeLimit
              options.data = files.baseAddress
              options.num_data = files.count
              options.named = named.baseAddress
              options.num_named = named.count
              return try body(&options)
            }
          }
        }
      }
    }
  }
}

/// A loaded program. A method is loaded at its first use, and keeps its state between calls.
///
/// One thread at a time uses a module; put it into an actor for that. To run on several threads at once, load a module for each; they share
/// the mapped file.
public final class Module {
  let raw: OpaquePointer

  /// Loads a `.pte` file.
  public init(path: String, options: LoadOptions = LoadOptions()) throws {
    var loaded: OpaquePointer?
    try options.withRaw { try check(rl_module_load(path, $0, &loaded)) }
    raw = loaded!
  }

  /// Loads the bytes of a `.pte` file, which are copied.
  public init(bytes: UnsafeRawBufferPointer, options: LoadOptions = LoadOptions()) throws {
    var loaded: OpaquePointer?
    try options.withRaw { try check(rl_module_load_bytes(bytes.baseAddress, bytes.count, $0, &loaded)) }
    raw = loaded!
  }

  deinit { rl_module_free(raw) }

  /// The names of the methods, in the order of the file.
  public var methods: [String] {
    var names: [String] = []
    while let name = rl_module_method(raw, names.count) { names.append(String(cString: name)) }
    return names
  }

  /// Runs `forward`, and copies its outputs.
  public func forward(_ inputs: Tensor...) throws -> [Value] {
    try run("forward", inputs.map(Value.tensor))
  }

  /// Runs a method, and copies its outputs. With names, inputs may come in any order.
  public func run(
    _ method: String, _ inputs: [Value] = [], names: [String]? = nil, session: Session? = nil, interrupt: Interrupt? = nil
  ) throws -> [Value] {
    if let names, names.count != inputs.count {
      throw RushlightError(code: RushlightError.invalidArgument, "there are \(inputs.count) inputs and \(names.count) names")
    }
    return try Value.withRaw(inputs[...]) { values in
      try (names ?? []).withCStrings { names in
        try names.withUnsafeBufferPointer { names in
          var options = rl_run_options()
          options.struct_size = MemoryLayout<rl_run_options>.size
          options.input_names = names.isEmpty ? nil : names.baseAddress
          options.session = session?.raw
          options.interrupt = interrupt?.raw
          var outputs: UnsafePointer<rl_value>?
          var count = 0
          try check(rl_module_run(raw, method, values, values.count, &options, &outputs, &count))
          return (0..<count).map { Value(copying: outputs![$0]) }
        }
      }
    }
  }

  /// Loads a method now instead of at its first call. The first load also compiles a portable program for this machine.
  public func load(method: String) throws { try check(rl_module_load_method(raw, method)) }

  /// Frees a method and its state. The next use loads it again.
  public func unload(method: String) throws { try check(rl_module_unload_method(raw, method)) }
}

/// The state of one user of a module, such as a KV cache. Code and weights stay in the module. One thread at a time uses a session.
public final class Session {
  let raw: OpaquePointer

  public init(_ module: Module) throws {
    var made: OpaquePointer?
    try check(rl_session_new(module.raw, &made))
    raw = made!
  }

  private init(raw: OpaquePointer) { self.raw = raw }

  deinit { rl_session_free(raw) }

  /// Resets all states to their first values.
  public func clear() throws { try check(rl_session_clear(raw)) }

  /// Removes everything after the first positions.
  public func rewind(to length: Int) throws { try check(rl_session_rewind(raw, length)) }

  /// Makes an independent session that continues from the same state.
  public func fork() throws -> Session {
    var fork: OpaquePointer?
    try check(rl_session_fork(raw, &fork))
    return Session(raw: fork!)
  }
}
