package org.pytorch.executorch;

import java.nio.Buffer;
import java.nio.BufferOverflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;
import org.jetbrains.annotations.NotNull;

/**
 * A row-major tensor: a shape, an element type, and a direct buffer with the elements.
 *
 * <p>{@code fromBlob} of a direct buffer copies nothing: methods read the elements in place. Writes to the buffer between two calls
 * change the input of the second one. The buffer must not be written during a call. {@code fromBlob} of an array copies it once.
 * Tensors that a method returns are copies, which later calls do not change.
 *
 * <p>{@code getDataAs...Array} copies the elements to a new array, {@code copyDataInto} to an existing buffer, and {@link
 * #getRawDataBuffer} returns the buffer itself.
 */
public abstract class Tensor {
  @NotNull final long[] shape;
  private volatile long address;

  Tensor(long[] shape) {
    this.shape = shape.clone();
  }

  /** Returns the number of elements. */
  public final long numel() {
    return numel(shape);
  }

  /** Returns a copy of the shape. */
  @NotNull
  public final long[] shape() {
    return shape.clone();
  }

  @NotNull
  public abstract DType dtype();

  /** Returns PyTorch's number of the element type. */
  public final int dtypeJniCode() {
    return dtype().jniCode;
  }

  /** Returns the elements of an int8 or bool tensor. */
  @NotNull
  public byte[] getDataAsByteArray() {
    throw refusal("return data as byte array");
  }

  /** Returns the elements of a uint8 tensor. */
  @NotNull
  public byte[] getDataAsUnsignedByteArray() {
    throw refusal("return data as unsigned byte array");
  }

  /** Returns the elements of an int16 tensor, or the bits of a float16 or bfloat16 tensor. */
  @NotNull
  public short[] getDataAsShortArray() {
    throw refusal("return data as short array");
  }

  @NotNull
  public int[] getDataAsIntArray() {
    throw refusal("return data as int array");
  }

  @NotNull
  public long[] getDataAsLongArray() {
    throw refusal("return data as long array");
  }

  /** Returns the elements of a float32, float16 or bfloat16 tensor. */
  @NotNull
  public float[] getDataAsFloatArray() {
    throw refusal("return data as float array");
  }

  @NotNull
  public double[] getDataAsDoubleArray() {
    throw refusal("return data as double array");
  }

  /** Returns the elements of a bool tensor. */
  @NotNull
  public boolean[] getDataAsBooleanArray() {
    throw refusal("return data as boolean array");
  }

  /** Copies the elements of a float32, float16 or bfloat16 tensor. */
  public void copyDataInto(@NotNull FloatBuffer to) {
    throw refusal("copy data into FloatBuffer");
  }

  /** Copies the elements of an int8 or bool tensor. */
  public void copyDataInto(@NotNull ByteBuffer to) {
    throw refusal("copy data into ByteBuffer");
  }

  /** Copies the elements of a uint8 tensor. */
  public void copyDataIntoUnsigned(@NotNull ByteBuffer to) {
    throw refusal("copy data into ByteBuffer (unsigned)");
  }

  public void copyDataInto(@NotNull IntBuffer to) {
    throw refusal("copy data into IntBuffer");
  }

  public void copyDataInto(@NotNull LongBuffer to) {
    throw refusal("copy data into LongBuffer");
  }

  public void copyDataInto(@NotNull DoubleBuffer to) {
    throw refusal("copy data into DoubleBuffer");
  }

  /** Copies the elements of an int16 tensor, or the bits of a float16 or bfloat16 tensor. */
  public void copyDataInto(@NotNull ShortBuffer to) {
    throw refusal("copy data into ShortBuffer");
  }

  /** Returns the buffer with the elements: that of {@code fromBlob}, or the tensor's own. */
  @NotNull
  public abstract Buffer getRawDataBuffer();

  /** Returns the address of the first element, and 0 if there is none. All buffers are direct. */
  final long address() {
    if (address == 0 && getRawDataBuffer().capacity() > 0) {
      address = NativeLibrary.address(getRawDataBuffer());
    }
    return address;
  }

  /** Writes the elements to a buffer of bytes. */
  abstract void putInto(ByteBuffer to);

  /** Returns the element type, the shape and the elements as bytes, for {@link #fromByteArray}. */
  @NotNull
  public final byte[] toByteArray() {
    ByteBuffer bytes = ByteBuffer.allocate(2 + 4 * shape.length + Math.multiplyExact(elements(shape), dtype().bytes));
    bytes.put((byte) dtype().jniCode).put((byte) shape.length);
    for (long size : shape) {
      bytes.putInt(Math.toIntExact(size));
    }
    putInto(bytes);
    return bytes.array();
  }

  /** Reads the result of {@link #toByteArray}. */
  @NotNull
  public static Tensor fromByteArray(@NotNull byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    if (buffer.remaining() < 2) {
      throw new IllegalArgumentException("A tensor has at least 2 bytes, got " + bytes.length);
    }
    DType dtype = DType.fromJniCode(buffer.get());
    int rank = Byte.toUnsignedInt(buffer.get());
    if (rank > MAX_RANK) {
      throw new IllegalArgumentException("A tensor has at most " + MAX_RANK + " dimensions, got " + rank);
    }
    if (buffer.remaining() < 4 * rank) {
      throw new IllegalArgumentException("The bytes of a tensor end in its shape");
    }
    long[] shape = new long[rank];
    for (int i = 0; i < shape.length; i++) {
      shape[i] = buffer.getInt();
    }
    checkShape(shape);
    checkCapacity((long) buffer.remaining(), Math.multiplyExact(numel(shape), (long) dtype.bytes), shape);
    ByteBuffer data = allocateNative(buffer.remaining());
    copyElements(buffer.slice(), data, dtype.bytes);
    return of(data, shape, dtype);
  }

  /** Copies elements from one order of bytes to another. */
  private static void copyElements(ByteBuffer from, ByteBuffer to, int size) {
    switch (size) {
      case 2:
        to.asShortBuffer().put(from.asShortBuffer());
        break;
      case 4:
        to.asIntBuffer().put(from.asIntBuffer());
        break;
      case 8:
        to.asLongBuffer().put(from.asLongBuffer());
        break;
      default:
        to.duplicate().put(from);
    }
  }

  @Override
  public String toString() {
    return "Tensor(" + Arrays.toString(shape) + ", dtype=torch." + getClass().getSimpleName().replace("Tensor_", "") + ")";
  }

  private IllegalStateException refusal(String what) {
    return new IllegalStateException("Tensor of type " + getClass().getSimpleName() + " cannot " + what + ".");
  }

  /** Maximum rank of a tensor. */
  private static final int MAX_RANK = 16;

  /** Makes a tensor of bytes in the machine's order. */
  static Tensor of(ByteBuffer data, long[] shape, DType dtype) {
    switch (dtype) {
      case UINT8:
        return new Tensor_uint8(data, shape);
      case INT8:
        return new Tensor_int8(data, shape);
      case BOOL:
        return new Tensor_bool(data, shape);
      case INT16:
        return new Tensor_int16(data.asShortBuffer(), shape);
      case INT32:
        return new Tensor_int32(data.asIntBuffer(), shape);
      case INT64:
        return new Tensor_int64(data.asLongBuffer(), shape);
      case HALF:
        return new Tensor_float16(data.asShortBuffer(), shape);
      case BFLOAT16:
        return new Tensor_bfloat16(data.asShortBuffer(), shape);
      case FLOAT:
        return new Tensor_float32(data.asFloatBuffer(), shape);
      case DOUBLE:
        return new Tensor_float64(data.asDoubleBuffer(), shape);
      default:
        return new Tensor_unsupported(data, shape, dtype);
    }
  }

  /** Allocates a direct buffer of bytes in the machine's order. */
  static ByteBuffer allocateNative(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      throw new OutOfMemoryError("a buffer has at most 2^31 - 1 bytes, and a tensor " + bytes);
    }
    return allocateByteBuffer((int) bytes);
  }

  @NotNull
  public static ByteBuffer allocateByteBuffer(int numElements) {
    return ByteBuffer.allocateDirect(numElements).order(ByteOrder.nativeOrder());
  }

  @NotNull
  public static ShortBuffer allocateHalfBuffer(int numElements) {
    return allocateByteBuffer(Math.multiplyExact(numElements, 2)).asShortBuffer();
  }

  @NotNull
  public static IntBuffer allocateIntBuffer(int numElements) {
    return allocateByteBuffer(Math.multiplyExact(numElements, 4)).asIntBuffer();
  }

  @NotNull
  public static FloatBuffer allocateFloatBuffer(int numElements) {
    return allocateByteBuffer(Math.multiplyExact(numElements, 4)).asFloatBuffer();
  }

  @NotNull
  public static LongBuffer allocateLongBuffer(int numElements) {
    return allocateByteBuffer(Math.multiplyExact(numElements, 8)).asLongBuffer();
  }

  @NotNull
  public static DoubleBuffer allocateDoubleBuffer(int numElements) {
    return allocateByteBuffer(Math.multiplyExact(numElements, 8)).asDoubleBuffer();
  }

  /** Makes a tensor of the type uint8. The array is copied. */
  @NotNull
  public static Tensor fromBlobUnsigned(@NotNull byte[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    ByteBuffer buffer = allocateByteBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_uint8(buffer, shape);
  }

  /** Makes a tensor of the type uint8, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlobUnsigned(@NotNull ByteBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_uint8(data, shape);
  }

  /** Makes a tensor of the type int8. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull byte[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    ByteBuffer buffer = allocateByteBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_int8(buffer, shape);
  }

  /** Makes a tensor of the type int8, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull ByteBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_int8(data, shape);
  }

  /** Makes a tensor of the type int32. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull int[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    IntBuffer buffer = allocateIntBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_int32(buffer, shape);
  }

  /** Makes a tensor of the type int32, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull IntBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_int32(data, shape);
  }

  /** Makes a tensor of the type float32. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull float[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    FloatBuffer buffer = allocateFloatBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_float32(buffer, shape);
  }

  /** Makes a tensor of the type float32, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull FloatBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_float32(data, shape);
  }

  /** Makes a tensor of the type float16, of the bits of its elements. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull short[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    ShortBuffer buffer = allocateHalfBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_float16(buffer, shape);
  }

  /** Makes a tensor of the type float16, of the bits of its elements, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull ShortBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_float16(data, shape);
  }

  /** Makes a tensor of the type int64. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull long[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    LongBuffer buffer = allocateLongBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_int64(buffer, shape);
  }

  /** Makes a tensor of the type int64, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull LongBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_int64(data, shape);
  }

  /** Makes a tensor of the type float64. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull double[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    DoubleBuffer buffer = allocateDoubleBuffer(data.length);
    buffer.duplicate().put(data);
    return new Tensor_float64(buffer, shape);
  }

  /** Makes a tensor of the type float64, over the elements of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull DoubleBuffer data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.capacity(), shape);
    checkBuffer(data, data.order());
    return new Tensor_float64(data, shape);
  }

  /** Makes a bool tensor. The array is copied. */
  @NotNull
  public static Tensor fromBlob(@NotNull boolean[] data, @NotNull long[] shape) {
    check(data, data == null ? 0 : data.length, shape);
    ByteBuffer buffer = allocateByteBuffer(data.length);
    for (int i = 0; i < data.length; i++) {
      buffer.put(i, (byte) (data[i] ? 1 : 0));
    }
    return new Tensor_bool(buffer, shape);
  }

  /** Makes a tensor of any element type, over the bytes of the direct buffer. */
  @NotNull
  public static Tensor fromBlob(@NotNull ByteBuffer data, @NotNull long[] shape, @NotNull DType dtype) {
    checkNotNull(data, shape);
    checkShape(shape);
    checkCapacity((long) data.capacity(), Math.multiplyExact(numel(shape), (long) dtype.bytes), shape);
    checkBuffer(data, data.order());
    // Views begin at the position.
    ByteBuffer whole = data.duplicate().order(ByteOrder.nativeOrder());
    whole.clear();
    return of(whole, shape, dtype);
  }

  /** Makes a tensor of ones. */
  @NotNull
  public static Tensor ones(@NotNull long[] shape, @NotNull DType dtype) {
    Tensor tensor = zeros(shape, dtype);
    int count = elements(shape);
    Buffer data = tensor.getRawDataBuffer();
    for (int i = 0; i < count; i++) {
      switch (dtype) {
        case UINT8:
        case INT8:
        case BOOL:
          ((ByteBuffer) data).put(i, (byte) 1);
          break;
        case INT16:
          ((ShortBuffer) data).put(i, (short) 1);
          break;
        case INT32:
          ((IntBuffer) data).put(i, 1);
          break;
        case INT64:
          ((LongBuffer) data).put(i, 1);
          break;
        case HALF:
          ((ShortBuffer) data).put(i, (short) 0x3c00);
          break;
        case BFLOAT16:
          ((ShortBuffer) data).put(i, (short) 0x3f80);
          break;
        case FLOAT:
          ((FloatBuffer) data).put(i, 1);
          break;
        case DOUBLE:
          ((DoubleBuffer) data).put(i, 1);
          break;
        default:
          throw new IllegalArgumentException("Tensor.ones does not make " + dtype);
      }
    }
    return tensor;
  }

  /** Makes a tensor of zeros. */
  @NotNull
  public static Tensor zeros(@NotNull long[] shape, @NotNull DType dtype) {
    checkShape(shape);
    return of(allocateNative(Math.multiplyExact(numel(shape), (long) dtype.bytes)), shape, dtype);
  }

  /** Returns the number of elements of a shape. */
  public static long numel(@NotNull long[] shape) {
    checkShape(shape);
    long result = 1;
    for (long size : shape) {
      result = Math.multiplyExact(result, size);
    }
    return result;
  }

  private static int elements(long[] shape) {
    return Math.toIntExact(numel(shape));
  }

  private static void checkNotNull(Object data, long[] shape) {
    if (data == null) {
      throw new IllegalArgumentException("Data array must be not null");
    }
    if (shape == null) {
      throw new IllegalArgumentException("Shape must be not null");
    }
  }

  private static void check(Object data, int capacity, long[] shape) {
    checkNotNull(data, shape);
    checkCapacity(capacity, numel(shape), shape);
  }

  private static void checkShape(long[] shape) {
    for (long size : shape) {
      if (size < 0) {
        throw new IllegalArgumentException("Shape elements must be non negative");
      }
    }
  }

  private static void checkCapacity(long capacity, long expected, long[] shape) {
    if (capacity != expected) {
      throw new IllegalArgumentException(
          String.format(
              "Inconsistent data capacity:%d and shape number elements:%d shape:%s",
              capacity, expected, Arrays.toString(shape)));
    }
  }

  private static void checkBuffer(Buffer data, ByteOrder order) {
    if (!data.isDirect()) {
      throw new IllegalArgumentException("The buffer must be direct: Tensor.allocate...Buffer makes one");
    }
    if (order != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException("The buffer must have the machine's order of bytes: ByteOrder.nativeOrder()");
    }
  }

  /** Returns a buffer with the same elements, from the first. */
  private static <B extends Buffer> B whole(B duplicate) {
    duplicate.clear();
    return duplicate;
  }

  static final class Tensor_uint8 extends Tensor {
    private final ByteBuffer data;

    Tensor_uint8(ByteBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.UINT8;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public byte[] getDataAsUnsignedByteArray() {
      byte[] array = new byte[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataIntoUnsigned(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }
  }

  static final class Tensor_int8 extends Tensor {
    private final ByteBuffer data;

    Tensor_int8(ByteBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.INT8;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public byte[] getDataAsByteArray() {
      byte[] array = new byte[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }
  }

  static final class Tensor_bool extends Tensor {
    private final ByteBuffer data;

    Tensor_bool(ByteBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.BOOL;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public byte[] getDataAsByteArray() {
      byte[] array = new byte[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    public boolean[] getDataAsBooleanArray() {
      boolean[] array = new boolean[data.capacity()];
      for (int i = 0; i < array.length; i++) {
        array[i] = data.get(i) != 0;
      }
      return array;
    }
  }

  static final class Tensor_int16 extends Tensor {
    private final ShortBuffer data;

    Tensor_int16(ShortBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.INT16;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public short[] getDataAsShortArray() {
      short[] array = new short[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(ShortBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asShortBuffer().put(whole(data.duplicate()));
    }
  }

  static final class Tensor_int32 extends Tensor {
    private final IntBuffer data;

    Tensor_int32(IntBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.INT32;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public int[] getDataAsIntArray() {
      int[] array = new int[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(IntBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asIntBuffer().put(whole(data.duplicate()));
    }
  }

  static final class Tensor_int64 extends Tensor {
    private final LongBuffer data;

    Tensor_int64(LongBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.INT64;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public long[] getDataAsLongArray() {
      long[] array = new long[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(LongBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asLongBuffer().put(whole(data.duplicate()));
    }
  }

  static final class Tensor_float16 extends Tensor {
    private final ShortBuffer data;

    Tensor_float16(ShortBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.HALF;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public short[] getDataAsShortArray() {
      short[] array = new short[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(ShortBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asShortBuffer().put(whole(data.duplicate()));
    }

    @Override
    public float[] getDataAsFloatArray() {
      float[] array = new float[data.capacity()];
      copyDataInto(FloatBuffer.wrap(array));
      return array;
    }

    @Override
    public void copyDataInto(FloatBuffer to) {
      if (to.remaining() < data.capacity()) {
        throw new BufferOverflowException();
      }
      for (int i = 0; i < data.capacity(); i++) {
        to.put(widenHalf(data.get(i)));
      }
    }
  }

  static final class Tensor_bfloat16 extends Tensor {
    private final ShortBuffer data;

    Tensor_bfloat16(ShortBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.BFLOAT16;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public short[] getDataAsShortArray() {
      short[] array = new short[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(ShortBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asShortBuffer().put(whole(data.duplicate()));
    }

    @Override
    public float[] getDataAsFloatArray() {
      float[] array = new float[data.capacity()];
      copyDataInto(FloatBuffer.wrap(array));
      return array;
    }

    @Override
    public void copyDataInto(FloatBuffer to) {
      if (to.remaining() < data.capacity()) {
        throw new BufferOverflowException();
      }
      for (int i = 0; i < data.capacity(); i++) {
        to.put(widenBfloat16(data.get(i)));
      }
    }
  }

  static final class Tensor_float32 extends Tensor {
    private final FloatBuffer data;

    Tensor_float32(FloatBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.FLOAT;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public float[] getDataAsFloatArray() {
      float[] array = new float[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(FloatBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asFloatBuffer().put(whole(data.duplicate()));
    }
  }

  static final class Tensor_float64 extends Tensor {
    private final DoubleBuffer data;

    Tensor_float64(DoubleBuffer data, long[] shape) {
      super(shape);
      this.data = data;
    }

    @Override
    public DType dtype() {
      return DType.DOUBLE;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    public double[] getDataAsDoubleArray() {
      double[] array = new double[data.capacity()];
      whole(data.duplicate()).get(array);
      return array;
    }

    @Override
    public void copyDataInto(DoubleBuffer to) {
      to.put(whole(data.duplicate()));
    }

    @Override
    void putInto(ByteBuffer to) {
      to.asDoubleBuffer().put(whole(data.duplicate()));
    }
  }

  /** A tensor of a type for which Java has no numbers: its bytes. */
  static final class Tensor_unsupported extends Tensor {
    private final ByteBuffer data;
    private final DType dtype;

    Tensor_unsupported(ByteBuffer data, long[] shape, DType dtype) {
      super(shape);
      this.data = data;
      this.dtype = dtype;
    }

    @Override
    public DType dtype() {
      return dtype;
    }

    @Override
    public Buffer getRawDataBuffer() {
      return data;
    }

    @Override
    void putInto(ByteBuffer to) {
      copyElements(whole(data.duplicate().order(data.order())), to, dtype.bytes);
    }

    @Override
    public String toString() {
      return "Tensor(" + Arrays.toString(shape) + ", dtype=" + dtype + ")";
    }
  }

  private static float widenBfloat16(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /** Widens a float16: every one is a float32, too. */
  private static float widenHalf(short bits) {
    int exponent = bits >> 10 & 0x1f;
    int mantissa = bits & 0x3ff;
    float magnitude;
    if (exponent == 0x1f) {
      magnitude = mantissa == 0 ? Float.POSITIVE_INFINITY : Float.NaN;
    } else if (exponent == 0) {
      magnitude = mantissa * 0x1p-24f;
    } else {
      magnitude = Math.scalb((float) (mantissa | 0x400), exponent - 25);
    }
    return bits < 0 ? -magnitude : magnitude;
  }
}
