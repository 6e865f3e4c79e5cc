package org.pytorch.executorch;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jetbrains.annotations.NotNull;

/** An input or output of a method: a tensor, a number, a bool, a string or nothing. */
public final class EValue {
  static final int NONE = 0;
  static final int TENSOR = 1;
  static final int STRING = 2;
  static final int DOUBLE = 3;
  static final int INT = 4;
  static final int BOOL = 5;

  private static final String[] NAMES = {"None", "Tensor", "String", "Double", "Int", "Bool"};
  private static final EValue NOTHING = new EValue(NONE, 0, null);

  final int tag;

  /** The number, the bits of the double, or 1 for true. */
  final long word;

  /** The tensor or string. */
  final Object data;

  private EValue(int tag, long word, Object data) {
    this.tag = tag;
    this.word = word;
    this.data = data;
  }

  /** Makes the value None. */
  @NotNull
  public static EValue optionalNone() {
    return NOTHING;
  }

  @NotNull
  public static EValue from(@NotNull Tensor tensor) {
    return new EValue(TENSOR, 0, notNull(tensor));
  }

  @NotNull
  public static EValue from(boolean value) {
    return new EValue(BOOL, value ? 1 : 0, null);
  }

  @NotNull
  public static EValue from(long value) {
    return new EValue(INT, value, null);
  }

  @NotNull
  public static EValue from(double value) {
    return new EValue(DOUBLE, Double.doubleToRawLongBits(value), null);
  }

  @NotNull
  public static EValue from(@NotNull String value) {
    return new EValue(STRING, 0, notNull(value));
  }

  private static <T> T notNull(T value) {
    if (value == null) {
      throw new IllegalArgumentException("An EValue of null: EValue.optionalNone() is the one without a value");
    }
    return value;
  }

  public boolean isNone() {
    return tag == NONE;
  }

  public boolean isTensor() {
    return tag == TENSOR;
  }

  public boolean isBool() {
    return tag == BOOL;
  }

  public boolean isInt() {
    return tag == INT;
  }

  public boolean isDouble() {
    return tag == DOUBLE;
  }

  public boolean isString() {
    return tag == STRING;
  }

  @NotNull
  public Tensor toTensor() {
    expect(TENSOR);
    return (Tensor) data;
  }

  public boolean toBool() {
    expect(BOOL);
    return word != 0;
  }

  public long toInt() {
    expect(INT);
    return word;
  }

  public double toDouble() {
    expect(DOUBLE);
    return Double.longBitsToDouble(word);
  }

  @NotNull
  public String toStr() {
    expect(STRING);
    return (String) data;
  }

  private void expect(int expected) {
    if (tag != expected) {
      throw new IllegalStateException("Expected EValue type " + NAMES[expected] + ", actual type " + NAMES[tag]);
    }
  }

  /** Returns a text for people. {@link #toStr} returns the value of a string. */
  @Override
  public String toString() {
    switch (tag) {
      case BOOL:
        return String.valueOf(word != 0);
      case INT:
        return String.valueOf(word);
      case DOUBLE:
        return String.valueOf(Double.longBitsToDouble(word));
      default:
        return tag == NONE ? "None" : String.valueOf(data);
    }
  }

  /** Returns the value as bytes, for {@link #fromByteArray}. */
  @NotNull
  public byte[] toByteArray() {
    switch (tag) {
      case TENSOR:
        byte[] tensor = ((Tensor) data).toByteArray();
        return ByteBuffer.allocate(1 + tensor.length).put((byte) tag).put(tensor).array();
      case STRING:
        byte[] text = ((String) data).getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(5 + text.length).put((byte) tag).putInt(text.length).put(text).array();
      case DOUBLE:
      case INT:
        return ByteBuffer.allocate(9).put((byte) tag).putLong(word).array();
      case BOOL:
        return new byte[] {(byte) tag, (byte) word};
      default:
        return new byte[] {(byte) tag};
    }
  }

  /** Reads the result of {@link #toByteArray}. */
  @NotNull
  public static EValue fromByteArray(@NotNull byte[] bytes) {
    if (bytes.length == 0) {
      throw new IllegalArgumentException("A value has at least one byte");
    }
    int tag = bytes[0];
    ByteBuffer rest = ByteBuffer.wrap(bytes, 1, bytes.length - 1);
    int least = tag == BOOL ? 1 : tag == STRING ? 4 : tag == INT || tag == DOUBLE ? 8 : 0;
    if (rest.remaining() < least) {
      throw new IllegalArgumentException("The bytes of a value end early");
    }
    switch (tag) {
      case NONE:
        return NOTHING;
      case TENSOR:
        return from(Tensor.fromByteArray(Arrays.copyOfRange(bytes, 1, bytes.length)));
      case STRING:
        int length = rest.getInt();
        if (length < 0 || length > rest.remaining()) {
          throw new IllegalArgumentException("The bytes of a string end early");
        }
        return from(new String(bytes, 5, length, StandardCharsets.UTF_8));
      case DOUBLE:
        return from(rest.getDouble());
      case INT:
        return from(rest.getLong());
      case BOOL:
        return from(rest.get() != 0);
      default:
        throw new IllegalArgumentException("No value has the type " + tag);
    }
  }
}
