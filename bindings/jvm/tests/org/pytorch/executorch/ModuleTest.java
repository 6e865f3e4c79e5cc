package org.pytorch.executorch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Programs: results, names, errors. */
final class ModuleTest {
  private static List<Recorded> corpus;
  private static Path folder;
  private static Path root;

  private ModuleTest() {}

  /** The folder has {@code corpus.txt} and {@code programs.pte}. */
  static void run(Path root, Path folder) throws Exception {
    ModuleTest.root = root;
    ModuleTest.folder = folder;
    corpus = Recorded.read(folder.resolve("corpus.txt"), root);
    Check.test("recorded calls", () -> recorded(new Module.Options()));
    Check.test("recorded calls, not lowered", () -> recorded(new Module.Options().lower("off")));
    Check.test("logits are bit-identical in every binding", ModuleTest::sameNumbers);
    Check.test("every element type, in every load mode", ModuleTest::checkTypes);
    Check.test("names of inputs and outputs", ModuleTest::names);
    Check.test("inputs are views, outputs are copies", ModuleTest::views);
    Check.test("outputs of any size", ModuleTest::sizes);
    Check.test("empty outputs", ModuleTest::empty);
    Check.test("errors have their fields", ModuleTest::errors);
    Check.test("files that cannot be loaded", ModuleTest::files);
    Check.test("closed modules", ModuleTest::closed);
    Check.test("limits", ModuleTest::limits);
    Check.test("damaged programs are refused or run", ModuleTest::hostile);
    Check.test("the runtime", ModuleTest::runtime);
  }

  static Module programs() {
    return Module.load(folder.resolve("programs.pte").toString());
  }

  static Recorded types() throws Exception {
    List<String> lines = new ArrayList<>();
    lines.add("program " + folder.resolve("programs.pte"));
    lines.addAll(Files.readAllLines(root.resolve("bindings/jvm/tests/programs/calls.txt")));
    return Recorded.read(Files.write(folder.resolve("calls.txt"), lines), root).get(0);
  }

  private static void recorded(Module.Options options) {
    int calls = 0;
    for (Recorded program : corpus) {
      options.dataFiles(program.data.toArray(new String[0]));
      try (Module module = Module.load(program.path, options)) {
        for (Recorded.Call call : program.calls) {
          Recorded.check(call, module.execute(call.method, call.inputs), program.path);
          calls++;
        }
      } catch (ExecutorchRuntimeException error) {
        // Without lowering, there is nobody to run what is for another backend.
        Check.that(program.isLowered && error.getErrorCode() == ExecutorchRuntimeException.NOT_FOUND, error);
      }
    }
    Check.that(calls > 80, calls + " calls");
  }

  private static void sameNumbers() throws Exception {
    Path example = root.resolve("examples/cortex-m");
    FloatBuffer pixels = floats(example.resolve("images/images.bin"));
    FloatBuffer logits = floats(root.resolve("tests/same_numbers/digits.bin"));
    try (Module module = Module.load(example.resolve("digits.pte").toString(), new Module.Options().lower("off"))) {
      float[] image = new float[64];
      float[] expected = new float[10];
      while (pixels.hasRemaining()) {
        pixels.get(image);
        logits.get(expected);
        EValue input = EValue.from(Tensor.fromBlob(image, new long[] {1, 1, 8, 8}));
        Check.equal(expected, module.forward(input)[0].toTensor().getDataAsFloatArray());
      }
      Check.that(!logits.hasRemaining(), "fewer images than logits");
    }
  }

  private static FloatBuffer floats(Path path) throws Exception {
    return ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
  }

  private static void typesIn(int mode, Recorded recorded) {
    try (Module module = Module.load(recorded.path, mode, 2)) {
      for (Recorded.Call call : recorded.calls) {
        module.loadMethod(call.method);
        Recorded.check(call, module.execute(call.method, call.inputs), call.method);
      }
    }
  }

  private static void checkTypes() throws Exception {
    Recorded recorded = types();
    for (int mode : new int[] {Module.LOAD_MODE_FILE, Module.LOAD_MODE_MMAP, Module.LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS}) {
      typesIn(mode, recorded);
    }
    Check.fails(ExecutorchRuntimeException.class, "LOAD_MODE_...), got 9", () -> typesIn(9, recorded));
  }

  private static void names() throws Exception {
    Recorded.Call call = types().calls.get(0);
    try (Module module = programs()) {
      MethodMetadata metadata = module.getMethodMetadata("types");
      Check.equal("types", metadata.getName());
      Check.equal("(u8, i8, i16, i32, i64, f16, bf16, f32, f64, b) -> {u8, i8, i16, i32, i64, f16, bf16, f32, f64, b}", metadata.getSignature());
      Check.equal(10, metadata.getInputs().size());
      Check.equal("i8: INT8 [4]", metadata.getInputs().get(1).toString());
      Check.equal(DType.DOUBLE, metadata.getOutputs().get(8).getDtype());
      Check.equal(1, metadata.getOutputTags()[0]);
      Check.that(!metadata.getInputs().get(0).isDynamic(), "static");
      Map<String, EValue> inputs = new LinkedHashMap<>();
      for (int i = call.inputs.length - 1; i >= 0; i--) {
        inputs.put(metadata.getInputs().get(i).getName(), call.inputs[i]);
      }
      Map<String, EValue> outputs = module.execute("types", inputs);
      Check.equal("[u8, i8, i16, i32, i64, f16, bf16, f32, f64, b]", outputs.keySet().toString());
      Recorded.check(call, outputs.values().toArray(new EValue[0]), "by name");
      inputs.remove("f32");
      Check.fails(ExecutorchRuntimeException.class, "f32", () -> module.execute("types", inputs));
      inputs.put("f33", call.inputs[7]);
      Check.fails(ExecutorchRuntimeException.class, "f33", () -> module.execute("types", inputs));
      Check.equal("[types, grow, loop, twice]", Arrays.toString(module.getMethods()));
    }
    // ExecuTorch's programs have no names.
    try (Module module = Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString())) {
      Check.equal(null, module.getMethodMetadata("forward").getInputs().get(0).getName());
      Check.equal(null, module.getMethodMetadata("forward").getSignature());
    }
  }

  private static void views() {
    try (Module module = Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString())) {
      FloatBuffer buffer = Tensor.allocateFloatBuffer(6);
      EValue input = EValue.from(Tensor.fromBlob(buffer, new long[] {2, 3}));
      Tensor zeros = module.forward(input, input)[0].toTensor();
      buffer.put(0, 4);
      Tensor eight = module.forward(input, input)[0].toTensor();
      Check.equal(new float[6], zeros.getDataAsFloatArray());
      Check.equal(new float[] {8, 0, 0, 0, 0, 0}, eight.getDataAsFloatArray());
      Check.that(eight.address() != zeros.address(), "outputs of two calls have one address");
      // An output is the input of the next call, where it is.
      Tensor sum = module.forward(EValue.from(eight), EValue.from(eight))[0].toTensor();
      Check.equal(16f, sum.getDataAsFloatArray()[0]);
      Check.that(sum.getRawDataBuffer().isDirect(), "not direct");
      module.destroy();
      Check.equal(16f, sum.getDataAsFloatArray()[0]);
    }
  }

  private static void sizes() {
    try (Module module = programs()) {
      List<Tensor> kept = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        EValue input = EValue.from(Tensor.fromBlob(new float[] {i}, new long[] {1}));
        kept.add(module.execute("grow", input)[0].toTensor());
      }
      for (int i = 0; i < 3; i++) {
        float[] data = kept.get(i).getDataAsFloatArray();
        Check.equal(1 << 18, data.length);
        for (float value : data) {
          Check.that(value == i, value);
        }
      }
    }
  }

  private static void empty() {
    // The first output is bounded above that of slabs.
    try (Module module = programs()) {
      EValue none = EValue.from(Tensor.fromBlob(new float[0], new long[] {0}));
      Tensor twice = module.execute("twice", none)[0].toTensor();
      Check.equal(new long[] {0}, twice.shape());
      Check.equal(new float[0], twice.getDataAsFloatArray());
    }
  }

  private static void errors() {
    try (Module module = Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString())) {
      EValue right = EValue.from(Tensor.zeros(new long[] {2, 3}, DType.FLOAT));
      Class<ExecutorchRuntimeException> thrown = ExecutorchRuntimeException.class;
      ExecutorchRuntimeException error =
          Check.fails(thrown, "wrong shape", () -> module.forward(right, EValue.from(Tensor.zeros(new long[] {3, 2}, DType.FLOAT))));
      Check.that(error instanceof ExecutorchRuntimeException.ExecutorchInvalidArgumentException, error.getClass());
      Check.equal(ExecutorchRuntimeException.INVALID_ARGUMENT, error.getErrorCode());
      Check.equal("f32 [2, 3]", error.getExpected());
      Check.equal("f32 [3, 2]", error.getGot());
      Check.equal(error.getMessage(), error.getDetailedError());
      error = Check.fails(thrown, "", () -> module.forward(right, EValue.from(Tensor.zeros(new long[] {2, 3}, DType.INT64))));
      Check.equal("i64 [2, 3]", error.getGot());
      error = Check.fails(thrown, "wrong kind", () -> module.forward(right, EValue.from("text")));
      Check.equal(ExecutorchRuntimeException.INVALID_TYPE, error.getErrorCode());
      Check.fails(thrown, "takes 2 inputs, got 0", module::forward);
      Check.fails(IllegalArgumentException.class, "Input 1 is null", () -> module.forward(right, null));
      Check.fails(thrown, "no method `other`: there are [forward]", () -> module.execute("other"));
      Check.fails(thrown, "no method `other`", () -> module.execute("other", Collections.singletonMap("x", right)));
      Check.fails(thrown, "no method `other`", () -> module.loadMethod("other"));
      Class<IllegalArgumentException> illegal = IllegalArgumentException.class;
      Check.fails(illegal, "name of an input", () -> module.forward(Collections.singletonMap(null, right)));
      Check.fails(illegal, "data file", () -> new Module.Options().dataFiles("a.ptd", null));
      Check.fails(illegal, "got null and x", () -> new BackendOptionsMap().setInt(null, "x", 1));
      Check.fails(IllegalArgumentException.class, "other", () -> module.getMethodMetadata("other"));
      // It is as it was.
      Check.equal(new float[6], module.forward(right, right)[0].toTensor().getDataAsFloatArray());
    }
  }

  private static void files() {
    Class<IllegalArgumentException> illegal = IllegalArgumentException.class;
    Check.fails(illegal, "there is no such file", () -> Module.load("/nowhere.pte"));
    Check.fails(illegal, "not a file", () -> Module.load(root.toString()));
    Check.fails(illegal, "null", () -> Module.load(null));
    ExecutorchRuntimeException error =
        Check.fails(ExecutorchRuntimeException.class, "", () -> Module.load(root.resolve("README.md").toString()));
    Check.equal(ExecutorchRuntimeException.INVALID_PROGRAM, error.getErrorCode());
    error = Check.fails(ExecutorchRuntimeException.class, "", () -> Module.load(root.resolve("tests/corpus/pt2/dynamic.pt2").toString()));
    Check.equal(ExecutorchRuntimeException.INVALID_PROGRAM, error.getErrorCode());
    Path external = root.resolve("tests/corpus/1.5.1/external.pte");
    EValue input = EValue.from(Tensor.zeros(new long[] {2, 6}, DType.FLOAT));
    error =
        Check.fails(
            ExecutorchRuntimeException.class,
            "",
            () -> {
              try (Module module = Module.load(external.toString())) {
                module.forward(input);
              }
            });
    Check.equal(ExecutorchRuntimeException.NOT_FOUND, error.getErrorCode());
  }

  private static void closed() {
    Module module = Module.load(root.resolve("tests/corpus/1.5.1/add.pte").toString());
    module.close();
    module.destroy();
    Class<IllegalStateException> illegal = IllegalStateException.class;
    Check.fails(illegal, "has been closed", module::forward);
    Check.fails(illegal, "has been closed", () -> module.loadMethod("forward"));
    Check.fails(illegal, "has been closed", module::getMethods);
    Check.fails(illegal, "has been closed", () -> module.getMethodMetadata("forward"));
    Check.fails(illegal, "has been closed", module::readLogBuffer);
    Check.fails(illegal, "has been closed", module::etdump);
    Check.equal(0, Module.readLogBufferStatic().length);
  }

  private static void limits() {
    Class<IllegalArgumentException> illegal = IllegalArgumentException.class;
    Check.fails(illegal, "memoryLimit must be 0 or more, got -1", () -> new Module.Options().memoryLimit(-1));
    Check.fails(illegal, "timeLimit must be 0 or more, got -2", () -> new Module.Options().timeLimit(-2));
    Check.fails(illegal, "threads must be 0 or more, got -3", () -> new Module.Options().threads(-3));
    String path = folder.resolve("programs.pte").toString();
    EValue one = EValue.from(Tensor.zeros(new long[] {1}, DType.FLOAT));
    try (Module module = Module.load(path, new Module.Options().memoryLimit(1 << 16))) {
      ExecutorchRuntimeException error = Check.fails(ExecutorchRuntimeException.class, "", () -> module.execute("grow", one));
      Check.equal(ExecutorchRuntimeException.MEMORY_ALLOCATION_FAILED, error.getErrorCode());
    }
    BackendOptionsMap options = new BackendOptionsMap().setInt("XnnpackBackend", "workspace_sharing_mode", 2);
    Module.load(path, options).close();
    Check.fails(
        ExecutorchRuntimeException.class, "nothing", () -> Module.load(path, options.setInt("cpu", "nothing", 1)).loadMethod("loop"));
    try (Module module = Module.load(path, new Module.Options().timeLimit(20))) {
      EValue many = EValue.from(Tensor.fromBlob(new long[] {1L << 40}, new long[0]));
      ExecutorchRuntimeException error = Check.fails(ExecutorchRuntimeException.class, "20", () -> module.execute("loop", many));
      Check.equal(ExecutorchRuntimeException.OUT_OF_RESOURCES, error.getErrorCode());
    }
  }

  private static final int MUTATIONS_OF_EACH = 12;
  private static final int[] EXTREMES = {0, 1, 2, 0x7f, 0xff, 0x7fffffff, 0x80000000, -1, -16, 0x10000};

  private static void hostile() throws Exception {
    java.util.Random random = new java.util.Random(22);
    int refused = 0;
    int ran = 0;
    Path file = folder.resolve("damaged.pte");
    for (Recorded program : corpus) {
      byte[] whole = Files.readAllBytes(Paths.get(program.path));
      for (int at = 0; at < MUTATIONS_OF_EACH; at++) {
        byte[] bytes = Arrays.copyOf(whole, at == 0 ? whole.length / 2 : whole.length);
        int limit = random.nextInt(8) == 0 ? bytes.length : Math.min(bytes.length, 4096);
        for (int count = random.nextInt(4); count >= 0; count--) {
          int place = random.nextInt(limit - 4);
          if (random.nextBoolean()) {
            bytes[place] ^= (byte) (1 << random.nextInt(8));
          } else {
            java.nio.ByteBuffer.wrap(bytes).putInt(place & ~3, Integer.reverseBytes(EXTREMES[random.nextInt(EXTREMES.length)]));
          }
        }
        Files.write(file, bytes);
        Module.Options options = new Module.Options().memoryLimit(64 << 20).timeLimit(100).lower(at % 2 == 0 ? "off" : "auto");
        try (Module module = Module.load(file.toString(), options)) {
          Recorded.Call call = program.calls.get(0);
          module.execute(call.method, call.inputs);
          ran++;
        } catch (ExecutorchRuntimeException error) {
          Check.that(error.getErrorCode() != ExecutorchRuntimeException.INTERNAL, program.path + ", " + at + ": " + error);
          refused++;
        }
      }
    }
    System.out.println(refused + " refused, " + ran + " ran");
    Check.that(refused > 100 && ran > 50, "too few of a kind");
  }

  private static void runtime() {
    Check.that(Arrays.asList(ExecuTorchRuntime.getRegisteredOps()).contains("aten::add.out"), "aten::add.out");
    Check.that(Arrays.asList(ExecuTorchRuntime.getRegisteredBackends()).contains("XnnpackBackend"), "XnnpackBackend");
    Check.that(ExecuTorchRuntime.getRuntime() == ExecuTorchRuntime.getRuntime(), "one runtime");
  }
}
