import CRushlight

/// The error of a call: its message, place, expected and actual values, and a hint.
public struct RushlightError: Error, CustomStringConvertible, Sendable {
  static let invalidArgument = RL_INVALID_ARGUMENT.rawValue
  static let invalidType = RL_INVALID_TYPE.rawValue

  /// ExecuTorch's error code: one of the `RL_...` codes of rushlight.h.
  public let code: UInt32
  public let message: String
  /// The place of the error, such as an input, or an instruction with its line of Python.
  public let site: String?
  public let expected: String?
  public let got: String?
  /// A hint: how to mend the error.
  public let hint: String?
  /// Full names of the operators that the program needs and the library lacks.
  public let missingOperators: [String]
  /// The system's error number for a file that could not be accessed; 0 for other errors.
  public let osError: Int32
  /// The whole error in several lines.
  public let description: String

  /// Reads a status, and frees it.
  init(_ status: OpaquePointer) {
    func text(_ pointer: UnsafePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }
    code = rl_status_code(status)
    message = text(rl_status_message(status)) ?? ""
    site = text(rl_status_site(status))
    expected = text(rl_status_expected(status))
    got = text(rl_status_got(status))
    hint = text(rl_status_hint(status))
    osError = rl_status_os_error(status)
    description = text(rl_status_text(status)) ?? ""
    var names: [String] = []
    while let name = text(rl_status_missing_operator(status, names.count)) { names.append(name) }
    missingOperators = names
    rl_status_free(status)
  }

  /// An error of this Swift package.
  init(code: UInt32, _ message: String) {
    self.init(rl_status_new(code, message))
  }
}

/// Throws the status of a C function, unless it is success.
func check(_ status: OpaquePointer?) throws {
  if let status { throw RushlightError(status) }
}

extension Optional where Wrapped == String {
  /// Lends the text, or NULL.
  func withCStringOrNull<R>(_ body: (UnsafePointer<CChar>?) throws -> R) rethrows -> R {
    guard let text = self else { return try body(nil) }
    return try text.withCString { try body($0) }
  }
}

extension Array where Element == String {
  /// Lends all texts.
  func withCStrings<R>(_ body: ([UnsafePointer<CChar>?]) throws -> R) throws -> R {
    func gather(_ rest: ArraySlice<String>, _ gathered: [UnsafePointer<CChar>?]) throws -> R {
      guard let first = rest.first else { return try body(gathered) }
      return try first.withCString { try gather(rest.dropFirst(), gathered + [$0]) }
    }
    return try gather(self[...], [])
  }
}
