package org.pytorch.executorch;

import java.nio.BufferOverflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;

/** Tensors and values without a program. */
final class TensorTest {
  private TensorTest() {}

  static void run() throws Exception {
    Check.test("arrays are copied, direct buffers are not", TensorTest::buffers);
    Check.test("each element type has its arrays", TensorTest::arrays);
    Check.test("halves are widened exactly", TensorTest::halves);
    Check.test("wrong tensors are refused", TensorTest::wrong);
    Check.test("values", TensorTest::values);
    Check.test("bytes of values", TensorTest::bytes);
  }

  private static void buffers() {
    float[] array = {1, 2, 3, 4};
    Tensor copy = Tensor.fromBlob(array, new long[] {2, 2});
    FloatBuffer buffer = Tensor.allocateFloatBuffer(4);
    buffer.put(array);
    Tensor view = Tensor.fromBlob(buffer, new long[] {4});
    array[0] = 5;
    buffer.put(0, 5);
    Check.equal(new float[] {1, 2, 3, 4}, copy.getDataAsFloatArray());
    Check.equal(new float[] {5, 2, 3, 4}, view.getDataAsFloatArray());
    Check.that(view.getRawDataBuffer() == buffer, "another buffer");
    Check.equal(NativeLibrary.address(buffer), view.address());
    // The position of the buffer changes nothing, and is left as it is.
    Check.equal(4, buffer.position());
    long[] shape = view.shape();
    shape[0] = 7;
    Check.equal(new long[] {4}, view.shape());
    Check.equal(4L, copy.numel());
    Check.equal("Tensor([2, 2], dtype=torch.float32)", copy.toString());
    ByteBuffer bytes = ByteBuffer.allocateDirect(9).order(ByteOrder.nativeOrder());
    bytes.position(1);
    ByteBuffer part = bytes.slice().order(ByteOrder.nativeOrder());
    Check.equal(NativeLibrary.address(bytes) + 1, Tensor.fromBlob(part, new long[] {2}, DType.FLOAT).address());
  }

  private static void arrays() {
    long[] two = {2};
    Tensor unsigned = Tensor.fromBlobUnsigned(new byte[] {0, (byte) 255}, two);
    Check.equal(DType.UINT8, unsigned.dtype());
    Check.equal(new byte[] {0, (byte) 255}, unsigned.getDataAsUnsignedByteArray());
    Check.equal(new byte[] {-128, 127}, Tensor.fromBlob(new byte[] {-128, 127}, two).getDataAsByteArray());
    Check.equal(new int[] {-1, 7}, Tensor.fromBlob(new int[] {-1, 7}, two).getDataAsIntArray());
    Check.equal(new long[] {-1, 7}, Tensor.fromBlob(new long[] {-1, 7}, two).getDataAsLongArray());
    Check.equal(new double[] {-1, 7}, Tensor.fromBlob(new double[] {-1, 7}, two).getDataAsDoubleArray());
    Tensor half = Tensor.fromBlob(new short[] {0x3c00, (short) 0xc000}, two);
    Check.equal(DType.HALF, half.dtype());
    Check.equal(new short[] {0x3c00, (short) 0xc000}, half.getDataAsShortArray());
    Check.equal(new float[] {1, -2}, half.getDataAsFloatArray());
    Tensor bool = Tensor.fromBlob(new boolean[] {true, false}, two);
    Check.equal(new boolean[] {true, false}, bool.getDataAsBooleanArray());
    Check.equal(new byte[] {1, 0}, bool.getDataAsByteArray());
    for (DType dtype : new DType[] {DType.FLOAT, DType.HALF, DType.BFLOAT16}) {
      Check.equal(new float[] {1, 1}, Tensor.ones(two, dtype).getDataAsFloatArray());
      Check.equal(new float[] {0, 0}, Tensor.zeros(two, dtype).getDataAsFloatArray());
    }
    Check.equal(new short[] {1, 1}, Tensor.ones(two, DType.INT16).getDataAsShortArray());
    Check.equal(new long[] {1, 1}, Tensor.ones(two, DType.INT64).getDataAsLongArray());
    Check.equal(new double[] {1, 1}, Tensor.ones(two, DType.DOUBLE).getDataAsDoubleArray());
    Check.equal(new boolean[] {true, true}, Tensor.ones(two, DType.BOOL).getDataAsBooleanArray());
    Check.equal(new float[] {3}, Tensor.fromBlob(new float[] {3}, new long[0]).getDataAsFloatArray());
    Check.equal(new float[0], Tensor.fromBlob(new float[0], new long[] {0, 3}).getDataAsFloatArray());
    FloatBuffer to = FloatBuffer.allocate(3);
    to.put(9);
    half.copyDataInto(to);
    Check.equal(new float[] {9, 1, -2}, to.array());
    Check.fails(BufferOverflowException.class, "", () -> half.copyDataInto(FloatBuffer.allocate(1)));
  }

  private static void halves() {
    // All of them, by the bits of the float32 that IEEE 754 says.
    short[] all = new short[1 << 16];
    for (int i = 0; i < all.length; i++) {
      all[i] = (short) i;
    }
    float[] wide = Tensor.fromBlob(all, new long[] {all.length}).getDataAsFloatArray();
    for (int i = 0; i < all.length; i++) {
      int exponent = i >> 10 & 31;
      int mantissa = i & 1023;
      double magnitude = exponent == 0 ? mantissa / 16777216.0 : (1024 + mantissa) * Math.pow(2, exponent - 25);
      if (exponent == 31) {
        magnitude = mantissa == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
      }
      float expected = (float) (i >= 1 << 15 ? -magnitude : magnitude);
      Check.that(Float.compare(expected, wide[i]) == 0, i + ": " + wide[i] + ", not " + expected);
    }
    Check.that(Float.compare(-0f, wide[1 << 15]) == 0, "the sign of zero");
  }

  private static void wrong() {
    long[] two = {2};
    Tensor tensor = Tensor.fromBlob(new float[] {1, 2}, two);
    String refusal = "Tensor of type Tensor_float32 cannot return data as ";
    Check.fails(IllegalStateException.class, refusal + "byte array.", tensor::getDataAsByteArray);
    Check.fails(IllegalStateException.class, refusal + "long array.", tensor::getDataAsLongArray);
    Class<IllegalArgumentException> illegal = IllegalArgumentException.class;
    Check.fails(illegal, "Data array must be not null", () -> Tensor.fromBlob((float[]) null, two));
    Check.fails(illegal, "Shape must be not null", () -> Tensor.fromBlob(new float[2], null));
    Check.fails(illegal, "Shape elements must be non negative", () -> Tensor.fromBlob(new float[2], new long[] {-1, -2}));
    Check.fails(
        illegal,
        "Inconsistent data capacity:2 and shape number elements:6 shape:[2, 3]",
        () -> Tensor.fromBlob(new float[2], new long[] {2, 3}));
    Check.fails(illegal, "must be direct", () -> Tensor.fromBlob(FloatBuffer.allocate(2), two));
    ByteBuffer foreign = ByteBuffer.allocateDirect(8).order(ByteOrder.BIG_ENDIAN);
    Check.fails(illegal, "order of bytes", () -> Tensor.fromBlob(foreign.asFloatBuffer(), two));
    Check.fails(ArithmeticException.class, "", () -> Tensor.fromBlob(new float[2], new long[] {1L << 62, 4}));
    Check.fails(illegal, "does not make COMPLEX_FLOAT", () -> Tensor.ones(two, DType.COMPLEX_FLOAT));
    Check.fails(illegal, "number 77", () -> DType.fromJniCode(77));
    Check.fails(illegal, "at most 16 dimensions, got 128", () -> Tensor.fromByteArray(new byte[] {6, (byte) 0x80}));
    Check.fails(illegal, "at most 16 dimensions, got 17", () -> Tensor.fromByteArray(new byte[] {6, 17}));
  }

  private static void values() {
    Check.equal(3L, EValue.from(3).toInt());
    Check.equal(0.5, EValue.from(0.5).toDouble());
    Check.equal(true, EValue.from(true).toBool());
    Check.equal("text", EValue.from("text").toStr());
    Check.that(EValue.optionalNone().isNone(), "none");
    Check.fails(
        IllegalStateException.class, "Expected EValue type Tensor, actual type Int", () -> EValue.from(3).toTensor());
    Check.fails(IllegalArgumentException.class, "null", () -> EValue.from((Tensor) null));
    for (DType dtype : DType.values()) {
      Check.that(DType.fromJniCode(dtype.jniCode) == dtype, dtype);
    }
  }

  private static void bytes() {
    EValue[] values = {
      EValue.optionalNone(),
      EValue.from(-3),
      EValue.from(1e300),
      EValue.from(false),
      EValue.from("Grüße"),
      EValue.from(Tensor.fromBlob(new long[] {1, -1}, new long[] {1, 2})),
      EValue.from(Tensor.fromBlob(new short[] {0x3c00}, new long[0]))
    };
    for (EValue value : values) {
      EValue read = EValue.fromByteArray(value.toByteArray());
      Check.equal(value.tag, read.tag);
      Check.equal(value.toString(), read.toString());
      Check.equal(value.toByteArray(), read.toByteArray());
      for (int length = 0; length < value.toByteArray().length; length++) {
        byte[] part = Arrays.copyOf(value.toByteArray(), length);
        Check.fails(IllegalArgumentException.class, "", () -> EValue.fromByteArray(part));
      }
    }
    // The form of ExecuTorch: numbers with the highest byte first.
    Check.equal(new byte[] {1, 3, 1, 0, 0, 0, 1, 0, 0, 0, 7}, EValue.from(Tensor.fromBlob(new int[] {7}, new long[] {1})).toByteArray());
    Check.fails(IllegalArgumentException.class, "type 9", () -> EValue.fromByteArray(new byte[] {9}));
  }
}
