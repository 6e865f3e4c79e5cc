package org.pytorch.executorch;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** A program with calls that PyTorch recorded, as lines of text: {@code tools/jvm_programs.py} says how. */
final class Recorded {
  /** A call with its results. */
  static final class Call {
    final String method;
    final double tolerance;
    final EValue[] inputs;
    final EValue[] outputs;

    Call(String method, double tolerance, EValue[] inputs, EValue[] outputs) {
      this.method = method;
      this.tolerance = tolerance;
      this.inputs = inputs;
      this.outputs = outputs;
    }
  }

  final String path;
  final List<String> data = new ArrayList<>();

  /** True for programs of other backends, which run when they are translated. */
  boolean isLowered;

  final List<Call> calls = new ArrayList<>();

  Recorded(String path) {
    this.path = path;
  }

  static List<Recorded> read(Path file, Path root) throws IOException {
    List<Recorded> programs = new ArrayList<>();
    List<String> lines = Files.readAllLines(file);
    for (int at = 0; at < lines.size(); ) {
      String[] words = lines.get(at++).split(" ");
      switch (words[0]) {
        case "program":
          programs.add(new Recorded(root.resolve(words[1]).toString()));
          break;
        case "data":
          last(programs).data.add(root.resolve(words[1]).toString());
          break;
        case "lowered":
          last(programs).isLowered = true;
          break;
        default:
          EValue[][] sides = new EValue[2][];
          for (int side = 0; side < 2; side++) {
            sides[side] = new EValue[Integer.parseInt(words[3 + side])];
            for (int i = 0; i < sides[side].length; i++) {
              sides[side][i] = value(lines.get(at++).split(" "));
            }
          }
          last(programs).calls.add(new Call(words[1], Double.parseDouble(words[2]), sides[0], sides[1]));
      }
    }
    return programs;
  }

  private static Recorded last(List<Recorded> programs) {
    return programs.get(programs.size() - 1);
  }

  private static EValue value(String[] words) {
    switch (words[0]) {
      case "int":
        return EValue.from(Long.parseLong(words[1]));
      case "float":
        return EValue.from(Double.parseDouble(words[1]));
      case "bool":
        return EValue.from(Boolean.parseBoolean(words[1]));
      default:
        byte[] bytes = words.length > 3 ? Base64.getDecoder().decode(words[3]) : new byte[0];
        ByteBuffer data = ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.nativeOrder());
        data.put(bytes);
        return EValue.from(Tensor.fromBlob(data, shape(words[2]), dtype(words[1])));
    }
  }

  private static long[] shape(String sizes) {
    if (sizes.equals("-")) {
      return new long[0];
    }
    String[] words = sizes.split(",");
    long[] shape = new long[words.length];
    for (int i = 0; i < words.length; i++) {
      shape[i] = Long.parseLong(words[i]);
    }
    return shape;
  }

  private static DType dtype(String name) {
    switch (name) {
      case "float16":
        return DType.HALF;
      case "float32":
        return DType.FLOAT;
      case "float64":
        return DType.DOUBLE;
      default:
        return DType.valueOf(name.toUpperCase(java.util.Locale.ROOT));
    }
  }

  /** Throws unless outputs are those of a call. */
  static void check(Call call, EValue[] outputs, String where) {
    Check.equal(call.outputs.length, outputs.length);
    for (int i = 0; i < outputs.length; i++) {
      near(call.outputs[i], outputs[i], call.tolerance, where + ", output " + i);
    }
  }

  private static void near(EValue expected, EValue got, double tolerance, String where) {
    Check.that(expected.tag == got.tag, where + ": " + got + ", not " + expected);
    if (!expected.isTensor()) {
      Check.that(expected.word == got.word, where + ": " + got + ", not " + expected);
      return;
    }
    Tensor want = expected.toTensor();
    Tensor have = got.toTensor();
    Check.equal(want.dtype(), have.dtype());
    Check.equal(want.shape(), have.shape());
    boolean isFloat = want.dtype() == DType.FLOAT || want.dtype() == DType.HALF || want.dtype() == DType.BFLOAT16;
    if (tolerance == 0 || !isFloat) {
      Check.equal(want.toByteArray(), have.toByteArray());
      return;
    }
    float[] wanted = want.getDataAsFloatArray();
    float[] numbers = have.getDataAsFloatArray();
    for (int i = 0; i < wanted.length; i++) {
      boolean isNear = Math.abs(numbers[i] - wanted[i]) <= tolerance * (1 + Math.abs(wanted[i]));
      Check.that(
          isNear || Float.compare(numbers[i], wanted[i]) == 0, where + ", " + i + ": " + numbers[i] + ", not " + wanted[i]);
    }
  }

  /** The same values in buffers of their own, which nobody else has. */
  static EValue[] copies(EValue[] values) {
    EValue[] copies = new EValue[values.length];
    for (int i = 0; i < values.length; i++) {
      copies[i] = EValue.fromByteArray(values[i].toByteArray());
    }
    return copies;
  }
}
