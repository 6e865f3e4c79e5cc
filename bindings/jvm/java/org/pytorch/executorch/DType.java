package org.pytorch.executorch;

/** Element types of tensors, with PyTorch's numbers. */
public enum DType {
  UINT8(0, 1),
  INT8(1, 1),
  INT16(2, 2),
  INT32(3, 4),
  INT64(4, 8),
  HALF(5, 2),
  FLOAT(6, 4),
  DOUBLE(7, 8),
  COMPLEX_HALF(8, 4),
  COMPLEX_FLOAT(9, 8),
  COMPLEX_DOUBLE(10, 16),
  BOOL(11, 1),
  QINT8(12, 1),
  QUINT8(13, 1),
  QINT32(14, 4),
  BFLOAT16(15, 2),
  QINT4X2(16, 1),
  QINT2X4(17, 1),
  BITS1X8(18, 1),
  BITS2X4(19, 1),
  BITS4X2(20, 1),
  BITS8(21, 1),
  BITS16(22, 2),
  FLOAT8_E5M2(23, 1),
  FLOAT8_E4M3FN(24, 1),
  FLOAT8_E5M2FNUZ(25, 1),
  FLOAT8_E4M3FNUZ(26, 1),
  UINT16(27, 2),
  UINT32(28, 4),
  UINT64(29, 8);

  private static final DType[] BY_CODE = values();

  /** PyTorch's number. */
  public final int jniCode;

  final int bytes;

  DType(int jniCode, int bytes) {
    this.jniCode = jniCode;
    this.bytes = bytes;
  }

  /** Returns the element type with a number, which is also its ordinal. */
  public static DType fromJniCode(int jniCode) {
    if (jniCode < 0 || jniCode >= BY_CODE.length) {
      throw new IllegalArgumentException("There is no element type with the number " + jniCode);
    }
    return BY_CODE[jniCode];
  }
}
