package org.pytorch.executorch;

import java.util.Objects;

/** Assertions of the tests. A failure is an {@link AssertionError}. */
final class Check {
  /** Something that may throw. */
  interface Body {
    void run() throws Exception;
  }

  private Check() {}

  /** Runs a test and prints its name and time. */
  static void test(String name, Body body) throws Exception {
    long start = System.nanoTime();
    try {
      body.run();
    } catch (Exception | Error error) {
      System.out.println("FAILED " + name);
      throw error;
    }
    System.out.printf("%-60s %6.2f s%n", name, (System.nanoTime() - start) / 1e9);
  }

  static void that(boolean holds, Object what) {
    if (!holds) {
      throw new AssertionError(String.valueOf(what));
    }
  }

  static void equal(Object expected, Object got) {
    if (!Objects.deepEquals(expected, got)) {
      throw new AssertionError("expected " + show(expected) + ", got " + show(got));
    }
  }

  private static String show(Object value) {
    String array = java.util.Arrays.deepToString(new Object[] {value});
    return array.substring(1, array.length() - 1);
  }

  /** Runs what has to throw an exception of a class, whose message has a text, and returns it. */
  static <E extends Throwable> E fails(Class<E> with, String text, Body body) {
    try {
      body.run();
    } catch (Throwable thrown) {
      if (!with.isInstance(thrown) || !String.valueOf(thrown.getMessage()).contains(text)) {
        throw new AssertionError("expected " + with.getSimpleName() + " with \"" + text + "\"", thrown);
      }
      return with.cast(thrown);
    }
    throw new AssertionError("expected " + with.getSimpleName() + ", and nothing was thrown");
  }
}
