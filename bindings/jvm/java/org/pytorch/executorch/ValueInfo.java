package org.pytorch.executorch;

import java.util.Arrays;
import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;

/** The description of an input or output of a method. */
public final class ValueInfo {
  private final String name;
  private final int tag;
  private final DType dtype;
  private final long[] shape;
  private final boolean isDynamic;
  final long bytes;

  ValueInfo(String name, int tag, DType dtype, long[] shape, boolean isDynamic, long bytes) {
    this.name = name;
    this.tag = tag;
    this.dtype = dtype;
    this.shape = shape;
    this.isDynamic = isDynamic;
    this.bytes = bytes;
  }

  /** Returns the name in the exported function; null for a program without names, such as those of ExecuTorch's compiler. */
  @Nullable
  public String getName() {
    return name;
  }

  /** Returns ExecuTorch's number of the kind: 0 nothing, 1 tensor, 2 string, 3 double, 4 int, 5 bool, 6 list. */
  public int getTag() {
    return tag;
  }

  /** Returns the element type of a tensor; null for other values. */
  @Nullable
  public DType getDtype() {
    return dtype;
  }

  /** Returns the shape of a tensor, with the upper bounds of dynamic sizes; null for other values. */
  @Nullable
  public long[] getShape() {
    return shape == null ? null : shape.clone();
  }

  /** True if sizes of the tensor may be smaller than those of its shape. */
  public boolean isDynamic() {
    return isDynamic;
  }

  @Override
  public String toString() {
    String what = shape == null ? "value of the kind " + tag : dtype + (isDynamic ? " at most " : " ") + Arrays.toString(shape);
    return name == null ? what : name + ": " + what;
  }
}
