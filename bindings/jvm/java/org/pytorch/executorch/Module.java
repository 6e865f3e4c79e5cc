package org.pytorch.executorch;

import java.io.Closeable;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jetbrains.annotations.NotNull;
import org.pytorch.executorch.internal.NamedOptions;
import org.pytorch.executorch.internal.NativeHandle;

/**
 * A loaded program.
 *
 * <p>Any thread may use a module. Calls run one at a time; other threads wait. {@link #close} frees its memory, and so does a garbage
 * collection of the module. A closed module throws {@link IllegalStateException}. An interrupt of the thread ends its call with the code
 * {@code INVALID_STATE}.
 */
public class Module implements Closeable {
  static {
    NativeLibrary.ensureLoaded();
  }

  /** Reads the file into memory. */
  public static final int LOAD_MODE_FILE = 0;

  /** Maps the file: pages are read at their first use. The file must not change while the module is open. */
  public static final int LOAD_MODE_MMAP = 1;

  /** Maps the file and locks it into memory. Fails if the system does not allow it. */
  public static final int LOAD_MODE_MMAP_USE_MLOCK = 2;

  /** Maps the file, and locks it into memory if the system allows it. */
  public static final int LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS = 3;

  /** Options of loading a program. */
  public static final class Options {
    private int loadMode = LOAD_MODE_MMAP;
    private int threads;
    private String[] dataFiles;
    private String lower;
    private String cache;
    private long memoryLimit;
    private long timeLimitMicros;
    private BackendOptionsMap backendOptions = new BackendOptionsMap();
    private final NamedOptions named = new NamedOptions();

    /** One of the constants {@code LOAD_MODE_...}; by default the file is mapped. */
    @NotNull
    public Options loadMode(int mode) {
      loadMode = mode;
      return this;
    }

    /** Maximum threads of a call, including the caller's. 0, the default, is one for each processor. */
    @NotNull
    public Options threads(int count) {
      threads = (int) notNegative("threads", count);
      return this;
    }

    /** The {@code .ptd} files with weights of the program. */
    @NotNull
    public Options dataFiles(@NotNull String... paths) {
      if (Arrays.asList(paths).contains(null)) {
        throw new IllegalArgumentException("A path of a data file is null");
      }
      dataFiles = paths.clone();
      return this;
    }

    /**
     * The backend that a portable program is compiled for when its first method is loaded: {@code auto} by default, {@code off}, or a
     * backend with its options, such as {@code cpu:precision=bf16}.
     */
    @NotNull
    public Options lower(@NotNull String backend) {
      lower = backend;
      return this;
    }

    /** A folder that caches compiled programs for later loads. Only the user may have access to it. */
    @NotNull
    public Options cache(@NotNull String folder) {
      cache = folder;
      return this;
    }

    /** Options of backends. Options of backends that the library lacks are ignored. */
    @NotNull
    public Options backendOptions(@NotNull BackendOptionsMap options) {
      backendOptions = options;
      return this;
    }

    /** Maximum memory of one method, in bytes; 0, the default, is no limit. */
    @NotNull
    public Options memoryLimit(long bytes) {
      memoryLimit = notNegative("memoryLimit", bytes);
      return this;
    }

    /** Maximum duration of a call, in milliseconds; it ends one step later at most. 0, the default, is no limit. */
    @NotNull
    public Options timeLimit(long milliseconds) {
      timeLimitMicros = Math.multiplyExact(notNegative("timeLimit", milliseconds), 1000L);
      return this;
    }

    /** Sets any option of loading by its name, such as {@code time_limit} to {@code 500ms}. It replaces the value that was set here. */
    @NotNull
    public Options option(@NotNull String name, @NotNull String value) {
      named.add(name, value);
      return this;
    }

    private static long notNegative(String option, long number) {
      if (number < 0) {
        throw new IllegalArgumentException(option + " must be 0 or more, got " + number);
      }
      return number;
    }
  }

  /** A method, with its index. */
  private static final class Method {
    final int index;
    final MethodMetadata metadata;

    Method(int index, MethodMetadata metadata) {
      this.index = index;
      this.metadata = metadata;
    }
  }

  private final NativeHandle handle;
  private final Map<String, Method> methods = new LinkedHashMap<>();
  private final Frame frame = new Frame();
  private final Interruption interruption = new Interruption(frame);

  private Module(String path, Options options) {
    long pointer =
        loadNative(
            path,
            options.loadMode,
            options.threads,
            options.dataFiles,
            options.lower,
            options.cache,
            options.memoryLimit,
            options.timeLimitMicros,
            options.named.names(),
            options.named.values(),
            options.backendOptions.backends(),
            options.backendOptions.keys(),
            options.backendOptions.values());
    handle = new NativeHandle(this, pointer, Module::freeNative);
    String[] names = methodsNative(pointer);
    for (int i = 0; i < names.length; i++) {
      methods.put(names[i], new Method(i, MethodMetadata.of(names[i], metaNative(pointer, i))));
    }
  }

  /** Loads a program, and reads it into memory. */
  @NotNull
  public static Module load(@NotNull String modelPath) {
    return load(modelPath, LOAD_MODE_FILE);
  }

  /** Loads a program in one of the modes {@code LOAD_MODE_...}. */
  @NotNull
  public static Module load(@NotNull String modelPath, int loadMode) {
    return load(modelPath, loadMode, 0);
  }

  /** Loads a program. With 0 for {@code numThreads}, calls use one thread for each processor. */
  @NotNull
  public static Module load(@NotNull String modelPath, int loadMode, int numThreads) {
    return load(modelPath, new Options().loadMode(loadMode).threads(numThreads));
  }

  /** Loads a program with options of backends, and reads it into memory. */
  @NotNull
  public static Module load(@NotNull String modelPath, @NotNull BackendOptionsMap options) {
    return load(modelPath, options, LOAD_MODE_FILE);
  }

  /** Loads a program with options of backends, in one of the modes {@code LOAD_MODE_...}. */
  @NotNull
  public static Module load(@NotNull String modelPath, @NotNull BackendOptionsMap options, int loadMode) {
    return load(modelPath, options, loadMode, 0);
  }

  /** Loads a program with options of backends. */
  @NotNull
  public static Module load(
      @NotNull String modelPath, @NotNull BackendOptionsMap options, int loadMode, int numThreads) {
    return load(modelPath, new Options().loadMode(loadMode).threads(numThreads).backendOptions(options));
  }

  /**
   * Loads a program.
   *
   * @throws IllegalArgumentException if the file does not exist or cannot be read.
   * @throws ExecutorchRuntimeException if the file is not a program, or the program cannot be loaded.
   */
  @NotNull
  public static Module load(@NotNull String modelPath, @NotNull Options options) {
    ExecuTorchRuntime.validateFilePath(modelPath, "model path");
    return new Module(modelPath, options);
  }

  /** Runs the method {@code forward}. */
  @NotNull
  public EValue[] forward(@NotNull EValue... inputs) {
    return execute("forward", inputs);
  }

  /** Runs the method {@code forward} with inputs by name, and returns its outputs by name. */
  @NotNull
  public Map<String, EValue> forward(@NotNull Map<String, EValue> inputs) {
    return execute("forward", inputs);
  }

  /**
   * Runs a method. Tensors are read in place. Returned tensors are copies, which later calls do not change.
   *
   * @throws ExecutorchRuntimeException if the method does not accept the inputs, or fails.
   * @throws IllegalStateException if the module has been closed.
   */
  @NotNull
  public EValue[] execute(@NotNull String methodName, @NotNull EValue... inputs) {
    return run(method(methodName), null, inputs);
  }

  /**
   * Runs a method with inputs by name, and returns its outputs by name, or by number if the program has no names. Inputs that the
   * export fixed may be left out.
   *
   * @throws ExecutorchRuntimeException if the method does not accept the inputs, or fails.
   * @throws IllegalArgumentException if a name or a value is null.
   * @throws IllegalStateException if the module has been closed.
   */
  @NotNull
  public Map<String, EValue> execute(@NotNull String methodName, @NotNull Map<String, EValue> inputs) {
    Method method = method(methodName);
    String[] names = inputs.keySet().toArray(new String[0]);
    if (Arrays.asList(names).contains(null)) {
      throw new IllegalArgumentException("The name of an input is null");
    }
    EValue[] values = inputs.values().toArray(new EValue[0]);
    List<ValueInfo> described = method.metadata.getOutputs();
    EValue[] outputs = run(method, names, values);
    Map<String, EValue> named = new LinkedHashMap<>();
    for (int i = 0; i < outputs.length; i++) {
      String name = described.get(i).getName();
      named.put(name == null ? String.valueOf(i) : name, outputs[i]);
    }
    return named;
  }

  private EValue[] run(Method method, String[] names, EValue[] inputs) {
    handle.lock.lock();
    try {
      long pointer = pointer();
      frame.begin(inputs, method.metadata.getOutputs());
      interruption.beginCall();
      try {
        executeNative(
            pointer, method.index, frame.address, frame.size(), names, frame.strings, frame.results, inputs);
      } finally {
        interruption.endCall();
      }
      return frame.outputs();
    } finally {
      handle.lock.unlock();
    }
  }

  private long pointer() {
    long pointer = handle.pointer();
    if (pointer == 0) {
      throw new IllegalStateException("The module has been closed");
    }
    return pointer;
  }

  private Method method(String name) {
    pointer();
    Method method = methods.get(name);
    if (method == null) {
      throw ExecutorchRuntimeException.makeExecutorchException(
          ExecutorchRuntimeException.INVALID_ARGUMENT, "no method `" + name + "`: there are " + methods.keySet());
    }
    return method;
  }

  /** Loads a method now instead of at its first call. The first load also compiles a portable program for this machine. */
  public void loadMethod(@NotNull String methodName) {
    handle.lock.lock();
    try {
      loadMethodNative(pointer(), method(methodName).index);
    } finally {
      handle.lock.unlock();
    }
  }

  /** Returns the names of the methods. */
  @NotNull
  public String[] getMethods() {
    pointer();
    return methods.keySet().toArray(new String[0]);
  }

  /** Describes a method. */
  @NotNull
  public MethodMetadata getMethodMetadata(@NotNull String name) {
    pointer();
    Method method = methods.get(name);
    if (method == null) {
      throw new IllegalArgumentException("no method `" + name + "`: there are " + methods.keySet());
    }
    return method.metadata;
  }

  /** Returns an empty array: there is no log. Exceptions have the whole message. */
  @NotNull
  public String[] readLogBuffer() {
    pointer();
    return readLogBufferStatic();
  }

  /** Returns an empty array, as {@link #readLogBuffer} does. */
  @NotNull
  public static String[] readLogBufferStatic() {
    return new String[0];
  }

  /** Returns false: no ETDump is written. {@code rushlight run --profile} measures a program. */
  public boolean etdump() {
    pointer();
    return false;
  }

  /** Returns false, as {@link #etdump()} does. */
  public boolean etdump(@NotNull String outputPath) {
    return etdump();
  }

  /**
   * Frees the module's memory.
   *
   * @throws IllegalStateException if a thread is running a method of it.
   */
  public void destroy() {
    if (!handle.lock.tryLock()) {
      throw new IllegalStateException("The module cannot be closed while a method of it runs");
    }
    try {
      handle.close();
    } finally {
      handle.lock.unlock();
    }
  }

  /** Frees the module's memory, as {@link #destroy} does. */
  @Override
  public void close() {
    destroy();
  }

  private static native long loadNative(
      String path,
      int mode,
      int threads,
      String[] data,
      String lower,
      String cache,
      long memoryLimit,
      long timeLimitMicros,
      String[] names,
      String[] namedValues,
      String[] backends,
      String[] keys,
      int[] values);

  private static native String[] methodsNative(long pointer);

  private static native Object[] metaNative(long pointer, int method);

  private static native void loadMethodNative(long pointer, int method);

  private native void executeNative(
      long pointer,
      int method,
      long frame,
      int frameWords,
      String[] names,
      String[] strings,
      Object[] results,
      EValue[] inputs);

  private static native void freeNative(long pointer);
}
