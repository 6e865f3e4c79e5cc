package org.pytorch.executorch;

/** The time of a call from Java: {@code Overhead PROGRAM}, with a program that adds two tensors of 2 x 3 floats. */
final class Overhead {
  /** So few that the machine does nothing else in some of the rounds. */
  private static final int CALLS = 1000;

  private static final int ROUNDS = 5000;

  private Overhead() {}

  public static void main(String[] arguments) {
    try (Module module = Module.load(arguments[0], Module.LOAD_MODE_MMAP, 1)) {
      EValue input = EValue.from(Tensor.ones(new long[] {2, 3}, DType.FLOAT));
      long best = Long.MAX_VALUE;
      for (int round = 0; round < ROUNDS; round++) {
        long start = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
          Check.that(module.forward(input, input).length == 1, "an output");
        }
        best = Math.min(best, (System.nanoTime() - start) / CALLS);
      }
      System.out.println(best + " ns a call from Java");
    }
  }
}
