package org.pytorch.executorch;

import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Several threads, interrupts, and modules that are closed or forgotten while others run. */
final class ThreadTest {
  private static Path root;

  private ThreadTest() {}

  static void run(Path root) throws Exception {
    ThreadTest.root = root;
    Check.test("threads share a module", ThreadTest::shared);
    Check.test("threads with modules of their own", ThreadTest::apart);
    Check.test("closing while another thread runs", ThreadTest::closing);
    Check.test("an interrupt ends a call", ThreadTest::interrupts);
    Check.test("a late interrupt ends no call of another thread", ThreadTest::lateInterrupt);
  }

  private static Module add() {
    return Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString(), Module.LOAD_MODE_MMAP, 1);
  }

  /** Runs a body in threads at once, and throws what one of them throws. */
  static void together(int count, Body body) throws Exception {
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    CountDownLatch ready = new CountDownLatch(count);
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      int number = i;
      Thread thread =
          new Thread(
              () -> {
                try {
                  ready.countDown();
                  ready.await();
                  body.run(number);
                } catch (Throwable error) {
                  thrown.set(error);
                }
              });
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (thrown.get() != null) {
      throw new AssertionError(thrown.get());
    }
  }

  interface Body {
    void run(int number) throws Exception;
  }

  private static void addsIn(Module module, int number, int calls) {
    for (int i = 0; i < calls; i++) {
      float value = number * 1000 + i;
      EValue input = EValue.from(Tensor.fromBlob(new float[] {value, 0, 0, 0, 0, 1}, new long[] {2, 3}));
      float[] sum = module.forward(input, input)[0].toTensor().getDataAsFloatArray();
      Check.equal(new float[] {2 * value, 0, 0, 0, 0, 2}, sum);
    }
  }

  private static void shared() throws Exception {
    try (Module module = add()) {
      together(8, number -> addsIn(module, number, 1000));
    }
  }

  private static void apart() throws Exception {
    together(
        8,
        number -> {
          for (int i = 0; i < 10; i++) {
            try (Module module = add()) {
              addsIn(module, number, 100);
            }
          }
        });
  }

  private static void closing() throws Exception {
    AtomicInteger refused = new AtomicInteger();
    for (int round = 0; round < 50; round++) {
      Module module = add();
      together(
          3,
          number -> {
            if (number > 0) {
              Check.fails(IllegalStateException.class, "has been closed", () -> addsIn(module, number, 1 << 30));
              return;
            }
            while (true) {
              try {
                module.close();
                return;
              } catch (IllegalStateException running) {
                refused.incrementAndGet();
              }
            }
          });
    }
    Check.that(refused.get() > 0, "no call ran");
  }

  private static void interrupts() throws Exception {
    EValue many = EValue.from(Tensor.fromBlob(new long[] {1L << 40}, new long[0]));
    EValue few = EValue.from(Tensor.fromBlob(new long[] {5}, new long[0]));
    try (Module module = ModuleTest.programs()) {
      Thread running = Thread.currentThread();
      AtomicReference<AssertionError> wrong = new AtomicReference<>();
      Thread other =
          new Thread(
              () -> {
                try {
                  Thread.sleep(20);
                } catch (InterruptedException ignored) {
                  return;
                }
                try {
                  Check.fails(IllegalStateException.class, "while a method of it runs", module::close);
                } catch (AssertionError error) {
                  wrong.set(error);
                } finally {
                  running.interrupt();
                }
              });
      other.start();
      ExecutorchRuntimeException error =
          Check.fails(ExecutorchRuntimeException.class, "", () -> module.execute("loop", many));
      Check.equal(ExecutorchRuntimeException.INVALID_STATE, error.getErrorCode());
      // The thread knows of it, and so does the next call.
      Check.fails(ExecutorchRuntimeException.class, "", () -> module.execute("loop", few));
      Check.that(Thread.interrupted(), "it was forgotten");
      other.join();
      Check.equal(null, wrong.get());
      Check.equal(new long[] {5}, module.execute("loop", few)[0].toTensor().getDataAsLongArray());
    }
  }

  private static void lateInterrupt() throws Exception {
    EValue many = EValue.from(Tensor.fromBlob(new long[] {100_000}, new long[0]));
    Field field = Module.class.getDeclaredField("interruption");
    field.setAccessible(true);
    try (Module module = ModuleTest.programs()) {
      Interruption interruption = (Interruption) field.get(module);
      AtomicBoolean runs = new AtomicBoolean(true);
      together(
          2,
          number -> {
            if (number == 0) {
              try {
                Check.equal(new long[] {100_000}, module.execute("loop", many)[0].toTensor().getDataAsLongArray());
              } finally {
                runs.set(false);
              }
            }
            while (runs.get()) {
              // As that of a thread whose call is over.
              interruption.wakeup();
            }
          });
    }
  }
}
