package org.pytorch.executorch;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import org.pytorch.executorch.internal.NativeHandle;

/** Calls and modules leave no memory behind. */
final class MemoryTest {
  private static Path root;

  private MemoryTest() {}

  static void run(Path root) throws Exception {
    MemoryTest.root = root;
    Check.test("100,000 calls take no memory", MemoryTest::calls);
    Check.test("nor do outputs of a megabyte", MemoryTest::large);
    Check.test("modules that nobody has are freed", MemoryTest::forgotten);
    Check.test("collections while calls run", MemoryTest::collections);
  }

  private static Module add() {
    return Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString(), Module.LOAD_MODE_MMAP, 1);
  }

  /** Bytes of the process in memory; 0 where the system does not say. */
  private static long resident() throws Exception {
    Path statistics = Paths.get("/proc/self/statm");
    return Files.exists(statistics) ? Long.parseLong(new String(Files.readAllBytes(statistics)).split(" ")[1]) << 12 : 0;
  }

  private static long heap() {
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }

  private static void calls() throws Exception {
    try (Module module = add()) {
      EValue input = EValue.from(Tensor.ones(new long[] {2, 3}, DType.FLOAT));
      for (int i = 0; i < 100_000; i++) {
        module.forward(input, input);
      }
      long heap = heap();
      long resident = resident();
      for (int i = 0; i < 100_000; i++) {
        Check.equal(2f, module.forward(input, input)[0].toTensor().getDataAsFloatArray()[5]);
      }
      long moreHeap = heap() - heap;
      long moreResident = resident() - resident;
      System.out.println("heap +" + moreHeap + ", resident +" + moreResident + " bytes");
      Check.that(moreHeap < 1 << 20, "heap +" + moreHeap);
      Check.that(moreResident < 16 << 20, "resident +" + moreResident);
    }
  }

  /** A gigabyte of outputs, where the JVM allows 64 MB of direct memory. */
  private static void large() throws Exception {
    try (Module module = ModuleTest.programs()) {
      EValue input = EValue.from(Tensor.ones(new long[] {1}, DType.FLOAT));
      long resident = 0;
      for (int i = 0; i < 1000; i++) {
        Check.equal(1L << 18, module.execute("grow", input)[0].toTensor().numel());
        resident = i == 200 ? resident() : resident;
      }
      long more = resident() - resident;
      System.out.println("resident +" + more + " bytes");
      Check.that(more < 64 << 20, "resident +" + more);
    }
  }

  private static int live() throws Exception {
    Field all = NativeHandle.class.getDeclaredField("ALL");
    all.setAccessible(true);
    return ((Collection<?>) all.get(null)).size();
  }

  private static void forgotten() throws Exception {
    int before = live();
    for (int i = 0; i < 200; i++) {
      add();
    }
    for (int i = 0; i < 500 && live() > before; i++) {
      System.gc();
      Thread.sleep(10);
    }
    Check.that(live() <= before, live() + " modules, of " + before);
  }

  private static void collections() throws Exception {
    Thread collector =
        new Thread(
            () -> {
              while (!Thread.interrupted()) {
                System.gc();
              }
            });
    collector.start();
    long end = System.nanoTime() + 2_000_000_000L;
    try (Module module = add()) {
      for (int i = 0; System.nanoTime() < end; i++) {
        // Nobody has the inputs but the call.
        float[] sum =
            module
                .forward(
                    EValue.from(Tensor.fromBlob(new float[] {i, 0, 0, 0, 0, 1}, new long[] {2, 3})),
                    EValue.from(Tensor.fromBlob(new float[] {1, 2, 3, 4, 5, 6}, new long[] {2, 3})))[0]
                .toTensor()
                .getDataAsFloatArray();
        Check.equal(new float[] {(float) i + 1, 2, 3, 4, 5, 7}, sum);
      }
    } finally {
      collector.interrupt();
      collector.join();
    }
  }
}
