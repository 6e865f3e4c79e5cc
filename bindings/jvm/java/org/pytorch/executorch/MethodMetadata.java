package org.pytorch.executorch;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;

/** The description of a method in a program. */
public final class MethodMetadata {
  private final String name;
  private final String[] backends;
  private final List<ValueInfo> inputs;
  private final List<ValueInfo> outputs;
  private final String signature;

  private MethodMetadata(
      String name, String[] backends, List<ValueInfo> inputs, List<ValueInfo> outputs, String signature) {
    this.name = name;
    this.backends = backends;
    this.inputs = inputs;
    this.outputs = outputs;
    this.signature = signature;
  }

  /** Reads the description of the native library. */
  static MethodMetadata of(String name, Object[] parts) {
    String[] signature = (String[]) parts[5];
    return new MethodMetadata(
        name,
        (String[]) parts[0],
        values((long[]) parts[3], (String[]) parts[1]),
        values((long[]) parts[4], (String[]) parts[2]),
        signature.length == 0 ? null : signature[0]);
  }

  private static List<ValueInfo> values(long[] words, String[] names) {
    List<ValueInfo> values = new ArrayList<>();
    for (int at = 0; at < words.length; ) {
      String name = values.size() < names.length ? names[values.size()] : null;
      int tag = (int) words[at++];
      if (tag != EValue.TENSOR) {
        values.add(new ValueInfo(name, tag, null, null, false, 0));
        continue;
      }
      DType dtype = DType.fromJniCode((int) words[at]);
      boolean isDynamic = words[at + 1] != 0;
      long bytes = words[at + 2];
      long[] shape = new long[(int) words[at + 3]];
      System.arraycopy(words, at + 4, shape, 0, shape.length);
      at += 4 + shape.length;
      values.add(new ValueInfo(name, tag, dtype, shape, isDynamic, bytes));
    }
    return Collections.unmodifiableList(values);
  }

  @NotNull
  public String getName() {
    return name;
  }

  /** Returns the names of the backends that the program was compiled for. */
  @NotNull
  public String[] getBackends() {
    return backends.clone();
  }

  @NotNull
  public List<ValueInfo> getInputs() {
    return inputs;
  }

  @NotNull
  public List<ValueInfo> getOutputs() {
    return outputs;
  }

  /** Returns ExecuTorch's numbers of the kinds of the inputs. */
  @NotNull
  public int[] getInputTags() {
    return tags(inputs);
  }

  /** Returns ExecuTorch's numbers of the kinds of the outputs. */
  @NotNull
  public int[] getOutputTags() {
    return tags(outputs);
  }

  /** Returns the signature of the exported function; null if the program has none. */
  @Nullable
  public String getSignature() {
    return signature;
  }

  private static int[] tags(List<ValueInfo> values) {
    int[] tags = new int[values.size()];
    for (int i = 0; i < tags.length; i++) {
      tags[i] = values.get(i).getTag();
    }
    return tags;
  }

  @Override
  public String toString() {
    return name + (signature == null ? inputs + " -> " + outputs : signature);
  }
}
