package org.pytorch.executorch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.List;

/**
 * The frame of a call: a direct buffer in which Java stores the inputs and Rust the outputs of a method, so that a call makes one JNI
 * transition. {@code frame.rs} is the other side, and documents the layout.
 *
 * <p>Many small outputs share a slab: allocating direct memory for each would take longer than a small method.
 */
final class Frame {
  private static final int INTERRUPT = 0;
  private static final int COUNT = 1;
  private static final int ROOM = 2;
  private static final int ROOM_SIZE = 3;
  private static final int HEAD = 4;

  /** Words of a value; for a tensor, without its sizes. */
  private static final int VALUE = 2;

  private static final int TENSOR = 5;
  private static final int MAX_RANK = 16;

  private static final int SLAB_BYTES = 1 << 16;
  private static final int ALIGNMENT = 16;

  /** Maximum bytes of an output in a slab. A larger one gets its own memory, so that keeping an output does not keep many others. */
  private static final long LARGE = 1 << 12;

  private LongBuffer words;
  private ByteBuffer slab;
  private long slabAddress;
  private int slabUsed;

  long address;

  /** The objects that native code returns. */
  Object[] results = new Object[0];

  /** The strings among the inputs; null without any. */
  String[] strings;

  Frame() {
    grow(HEAD + 4 * TENSOR);
  }

  private void grow(int size) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(Math.multiplyExact(size, Long.BYTES)).order(ByteOrder.nativeOrder());
    words = bytes.asLongBuffer();
    address = NativeLibrary.address(bytes);
  }

  int size() {
    return words.capacity();
  }

  /** Writes the inputs of a call, and reserves memory for the outputs that the program declares. */
  void begin(EValue[] inputs, List<ValueInfo> outputs) {
    int size = HEAD;
    for (int i = 0; i < inputs.length; i++) {
      EValue input = inputs[i];
      if (input == null) {
        throw new IllegalArgumentException("Input " + i + " is null: EValue.optionalNone() is the one without a value");
      }
      size += input.tag == EValue.TENSOR ? TENSOR + ((Tensor) input.data).shape.length : VALUE;
    }
    size = Math.max(size, HEAD + outputs.size() * (TENSOR + MAX_RANK));
    if (size > words.capacity()) {
      grow(size);
    }
    if (results.length < outputs.size()) {
      results = new Object[outputs.size()];
    }
    strings = null;
    words.put(INTERRUPT, 0).put(COUNT, inputs.length);
    int at = HEAD;
    for (EValue input : inputs) {
      words.put(at++, input.tag);
      switch (input.tag) {
        case EValue.TENSOR:
          at = put((Tensor) input.data, at);
          break;
        case EValue.STRING:
          words.put(at++, addString((String) input.data));
          break;
        default:
          words.put(at++, input.word);
      }
    }
    makeRoom(outputs);
  }

  private int put(Tensor tensor, int at) {
    DType dtype = tensor.dtype();
    long[] shape = tensor.shape;
    long count = 1;
    for (int i = 0; i < shape.length; i++) {
      words.put(at + 4 + i, shape[i]);
      count *= shape[i];
    }
    words.put(at, dtype.jniCode).put(at + 1, tensor.address()).put(at + 2, count * dtype.bytes).put(at + 3, shape.length);
    return at + 4 + shape.length;
  }

  private int addString(String text) {
    int count = strings == null ? 0 : strings.length;
    String[] more = new String[count + 1];
    if (count > 0) {
      System.arraycopy(strings, 0, more, 0, count);
    }
    more[count] = text;
    strings = more;
    return count;
  }

  /** Makes sure that the slab has room for the small outputs. */
  private void makeRoom(List<ValueInfo> outputs) {
    int small = 0;
    for (int i = 0; i < outputs.size(); i++) {
      long bytes = outputs.get(i).bytes;
      small += bytes > LARGE ? 0 : (int) bytes + ALIGNMENT;
    }
    int room = small == 0 ? 0 : slab == null ? 0 : slab.capacity() - slabUsed;
    if (small > room) {
      slab = Tensor.allocateByteBuffer(Math.max(SLAB_BYTES, small));
      slabAddress = NativeLibrary.address(slab);
      slabUsed = 0;
    }
    // The limit is exact, so that large outputs do not fit.
    words.put(ROOM, small == 0 ? 0 : slabAddress + slabUsed).put(ROOM_SIZE, small);
  }

  /** Ends the running call. Any thread may call this. */
  void interrupt() {
    words.put(INTERRUPT, 1);
  }

  /** Reads the outputs of the call. */
  EValue[] outputs() {
    EValue[] outputs = new EValue[(int) words.get(COUNT)];
    int at = HEAD;
    for (int i = 0; i < outputs.length; i++) {
      int tag = (int) words.get(at);
      long word = words.get(at + 1);
      at += VALUE;
      switch (tag) {
        case EValue.TENSOR:
          int rank = (int) words.get(at + 2);
          long[] shape = new long[rank];
          for (int dim = 0; dim < rank; dim++) {
            shape[dim] = words.get(at + 3 + dim);
          }
          ByteBuffer data = data(words.get(at), (int) words.get(at + 1));
          outputs[i] = EValue.from(Tensor.of(data, shape, DType.fromJniCode((int) word)));
          at += 3 + rank;
          break;
        case EValue.STRING:
          outputs[i] = EValue.from((String) results[(int) word]);
          results[(int) word] = null;
          break;
        case EValue.DOUBLE:
          outputs[i] = EValue.from(Double.longBitsToDouble(word));
          break;
        case EValue.INT:
          outputs[i] = EValue.from(word);
          break;
        case EValue.BOOL:
          outputs[i] = EValue.from(word != 0);
          break;
        default:
          outputs[i] = EValue.optionalNone();
      }
    }
    slabUsed += (int) words.get(ROOM_SIZE);
    return outputs;
  }

  private ByteBuffer data(long place, int bytes) {
    if (place < 0) {
      int index = (int) (-1 - place);
      ByteBuffer own = (ByteBuffer) results[index];
      results[index] = null;
      return own;
    }
    if (bytes == 0) {
      // Fits without a slab.
      return Tensor.allocateByteBuffer(0);
    }
    ByteBuffer part = slab.duplicate();
    part.position(slabUsed + (int) place).limit(slabUsed + (int) place + bytes);
    return part.slice().order(ByteOrder.nativeOrder());
  }
}
