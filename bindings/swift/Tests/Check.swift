// The digits, which are in their order; what an error says; and the answer of a small Llama, which is transformers'. It is run with the
// folder of digits.pte and images.bin, the program of the Llama, its prompt and its answer.
import Rushlight

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

func require(_ condition: Bool, _ what: String, line: Int = #line) {
  if !condition {
    print("line \(line): not \(what)")
    exit(1)
  }
}

/// Counts the reports of another thread.
final class Counter: @unchecked Sendable {
  private(set) var count = 0
  func add() { count += 1 }
}

func floats(of path: String, count: Int) -> [Float] {
  guard let file = fopen(path, "rb") else { fatalError("no \(path)") }
  defer { fclose(file) }
  var numbers = [Float](repeating: 0, count: count)
  require(fread(&numbers, MemoryLayout<Float>.size, count, file) == count, "enough of \(path)")
  return numbers
}

@main
struct Check {
  static func main() async throws {
    let arguments = CommandLine.arguments
    require(arguments.count == 5, "four arguments")
    try digits(arguments[1])
    try await answers(arguments[2], arguments[3], arguments[4])
    print("ok")
  }

  static func digits(_ folder: String) throws {
    let images = floats(of: folder + "/images.bin", count: 640)
    let module = try Module(path: folder + "/digits.pte")
    require(module.methods == ["forward"], "the method")
    for digit in 0..<10 {
      let image = Tensor(Array(images[digit * 64..<(digit + 1) * 64]), shape: [1, 1, 8, 8])
      let scores: [Float] = try module.forward(image)[0].elements()
      require(scores.firstIndex(of: scores.max()!) == digit, "the digit \(digit)")
    }
    do {
      _ = try module.forward(Tensor([Float](repeating: 0, count: 64), shape: [1, 1, 4, 16]))
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 18 && error.expected == "f32 [1, 1, 8, 8]" && error.got == "f32 [1, 1, 4, 16]", "all of the error")
      require(error.hint != nil && error.description.contains("expected"), "all of the error")
    }
    do {
      _ = try Module(path: folder + "/nothing.pte")
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 32 && error.osError == 2, "a file that is not there")
    }
    do {
      let _: [Int32] = try module.forward(Tensor([Float](repeating: 0, count: 64), shape: [1, 1, 8, 8]))[0].elements()
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 19 && error.message == "elements of dtype 6: expected 3, got 6", "another element type")
    }
    do {
      _ = try module.forward(Tensor([Float](), shape: [0, 1, 8, 8]))
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 18 && error.got == "f32 [0, 1, 8, 8]", "a tensor without elements")
    }
    do {
      _ = try module.run("forward", [.string("a\0b")])
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 19 && error.got == "string \"a\\0b\"", "another kind, and all of the text")
    }
    do {
      _ = try module.run("forward", [.none], names: [])
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 18, "an input without a name")
    }
    var options = LoadOptions()
    options.memoryLimit = 16
    options.lower = "off"
    do {
      try Module(path: folder + "/digits.pte", options: options).load(method: "forward")
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 33, "the limit")
    }
  }

  static func answers(_ path: String, _ prompt: String, _ expected: String) async throws {
    let model = try LanguageModel(path: path)
    let session = try model.makeSession()
    let tokens = try model.encode(prompt, addSpecial: false)
    require(try model.decode(tokens) == prompt, "the prompt")
    var options = GenerateOptions()
    options.maxNewTokens = expected.count
    options.temperature = 0
    var answer = ""
    for try await piece in session.generate(tokens, options: options) { answer += piece }
    require(answer == expected, "the answer \(expected): \(answer)")
    require(try session.position() == tokens.count + expected.count - 1, "the position")
    let fork = try session.fork()
    try session.reset()
    require(try session.position() == 0 && fork.position() > 0, "two sessions")
    // Who does not listen ends the answer, and the session goes on. The model may be faster than the listener, but not each time.
    for try await _ in session.generate(tokens) {}
    let whole = try session.position()
    var ended = false
    for _ in 0..<20 where !ended {
      try session.reset()
      for try await _ in session.generate(tokens) { break }
      ended = try session.position() < whole
    }
    require(ended, "an answer that ends early")
    try session.reset()
    require(try model.encode("", addSpecial: false).isEmpty, "no tokens of no text")
    require(try !model.chat([Message(role: "user", content: "lN")]).isEmpty, "a prompt of messages")
    try session.reset()
    options.named.set("max_new_tokens", 3)
    options.named.set("logprobs", true)
    let counted = Counter()
    options.onToken = { _ in counted.add() }
    for try await _ in session.generate(tokens, options: options) {}
    require(counted.count == 3, "three tokens with their log probabilities")
    options.temperature = -1
    do {
      for try await _ in session.generate(tokens, options: options) {}
      require(false, "an error")
    } catch let error as RushlightError {
      require(error.code == 18, "the temperature")
    }
  }
}
