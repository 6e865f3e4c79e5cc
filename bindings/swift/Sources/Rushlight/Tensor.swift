import CRushlight

/// Element types, with PyTorch's numbers.
public struct DType: RawRepresentable, Hashable, Sendable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  public static let uint8 = DType(rawValue: 0)
  public static let int8 = DType(rawValue: 1)
  public static let int16 = DType(rawValue: 2)
  public static let int32 = DType(rawValue: 3)
  public static let int64 = DType(rawValue: 4)
  public static let float16 = DType(rawValue: 5)
  public static let float32 = DType(rawValue: 6)
  public static let float64 = DType(rawValue: 7)
  public static let bool = DType(rawValue: 11)
  public static let bfloat16 = DType(rawValue: 15)
  public static let uint16 = DType(rawValue: 27)
  public static let uint32 = DType(rawValue: 28)
  public static let uint64 = DType(rawValue: 29)

  /// Bytes of one element; 0 for an unknown type.
  public var size: Int { rl_dtype_size(rawValue) }
}

/// A Swift type of elements.
public protocol TensorElement: Sendable {
  static var dtype: DType { get }
}

extension UInt8: TensorElement { public static var dtype: DType { .uint8 } }
extension Int8: TensorElement { public static var dtype: DType { .int8 } }
extension Int16: TensorElement { public static var dtype: DType { .int16 } }
extension Int32: TensorElement { public static var dtype: DType { .int32 } }
extension Int64: TensorElement { public static var dtype: DType { .int64 } }
extension Float: TensorElement { public static var dtype: DType { .float32 } }
extension Double: TensorElement { public static var dtype: DType { .float64 } }
extension Bool: TensorElement { public static var dtype: DType { .bool } }
extension UInt16: TensorElement { public static var dtype: DType { .uint16 } }
extension UInt32: TensorElement { public static var dtype: DType { .uint32 } }
extension UInt64: TensorElement { public static var dtype: DType { .uint64 } }

/// A row-major tensor. It shares the array that it is made of.
public struct Tensor: Sendable {
  public let dtype: DType
  public let shape: [Int]
  private let lend: @Sendable (_ body: (UnsafeRawBufferPointer) throws -> Void) throws -> Void

  /// The number of elements is checked against the shape at the first use.
  public init<Element: TensorElement>(_ elements: [Element], shape: [Int]) {
    dtype = Element.dtype
    self.shape = shape
    lend = { body in try elements.withUnsafeBytes { try body($0) } }
  }

  /// Copies a tensor of the library, which need not be row-major.
  init(copying raw: rl_tensor) {
    dtype = DType(rawValue: raw.dtype)
    let rank = raw.rank
    shape = (0..<rank).map { Int(raw.sizes[$0]) }
    let size = dtype.size
    let count = shape.reduce(1, *)
    var bytes = [UInt8](repeating: 0, count: count * size)
    if let strides = raw.strides {
      for index in 0..<count {
        var (rest, place) = (index, 0)
        for dim in (0..<rank).reversed() {
          place += rest % shape[dim] * Int(strides[dim])
          rest /= shape[dim]
        }
        for byte in 0..<size { bytes[index * size + byte] = raw.data.load(fromByteOffset: place * size + byte, as: UInt8.self) }
      }
    } else if count > 0 {
      bytes.withUnsafeMutableBytes { $0.copyMemory(from: UnsafeRawBufferPointer(start: raw.data, count: count * size)) }
    }
    lend = { [bytes] body in try bytes.withUnsafeBytes { try body($0) } }
  }

  /// The bytes, for the time of a call.
  public func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
    var result: R?
    try lend { result = try body($0) }
    return result!
  }

  /// Copies the elements, in the order of their indices; an error if they have another type.
  public func elements<Element: TensorElement>(_: Element.Type = Element.self) throws -> [Element] {
    guard Element.dtype == dtype else {
      throw RushlightError(
        code: RushlightError.invalidType,
        "elements of dtype \(dtype.rawValue): expected \(Element.dtype.rawValue), got \(dtype.rawValue)")
    }
    return try withUnsafeBytes { bytes in
      (0..<bytes.count / max(dtype.size, 1)).map { bytes.loadUnaligned(fromByteOffset: $0 * dtype.size, as: Element.self) }
    }
  }
}

/// An input or output of a method.
public enum Value: Sendable {
  case none
  case tensor(Tensor)
  case int(Int64)
  case double(Double)
  case bool(Bool)
  case string(String)

  /// The tensor; an error for other kinds.
  public func tensor() throws -> Tensor {
    guard case .tensor(let tensor) = self else { throw RushlightError(code: RushlightError.invalidType, "the value is no tensor but \(self)") }
    return tensor
  }

  /// The elements of a tensor.
  public func elements<Element: TensorElement>(_ type: Element.Type = Element.self) throws -> [Element] {
    try tensor().elements(type)
  }

  /// Copies a value of the library.
  init(copying raw: rl_value) {
    switch raw.kind {
    case 1: self = .tensor(Tensor(copying: raw.as.tensor))
    case 2: self = .int(raw.as.integer)
    case 3: self = .double(raw.as.real)
    case 4: self = .bool(raw.as.boolean != 0)
    case 5: self = .string(String(raw.as.string))
    default: self = .none
    }
  }

  /// Lends the value to the library.
  func withRaw<R>(_ body: (rl_value) throws -> R) throws -> R {
    switch self {
    case .none: return try body(rl_value())
    case .int(let number): return try body(rl_value_int(number))
    case .double(let number): return try body(rl_value_double(number))
    case .bool(let flag): return try body(rl_value_bool(flag))
    case .string(let text):
      return try text.withCString { characters in
        var raw = rl_value_string(characters)
        // The length is explicit: the text may contain NUL.
        raw.as.string.size = text.utf8.count
        return try body(raw)
      }
    case .tensor(let tensor):
      let sizes = tensor.shape.map(Int64.init)
      return try sizes.withUnsafeBufferPointer { sizes in
        try tensor.withUnsafeBytes { bytes in
          try body(rl_value_tensor(tensor.dtype.rawValue, sizes.baseAddress, sizes.count, bytes.baseAddress, bytes.count))
        }
      }
    }
  }

  /// Lends several.
  static func withRaw<R>(_ values: ArraySlice<Value>, _ gathered: [rl_value] = [], _ body: ([rl_value]) throws -> R) throws -> R {
    guard let first = values.first else { return try body(gathered) }
    return try first.withRaw { try withRaw(values.dropFirst(), gathered + [$0], body) }
  }
}

extension String {
  init(_ raw: rl_string) {
    self = String(decoding: UnsafeRawBufferPointer(start: raw.data, count: raw.size), as: UTF8.self)
  }
}
