package org.pytorch.executorch.extension.llm;

import java.io.Closeable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;
import org.pytorch.executorch.ExecuTorchRuntime;
import org.pytorch.executorch.ExecutorchRuntimeException;
import org.pytorch.executorch.internal.NamedOptions;
import org.pytorch.executorch.internal.NativeHandle;

/**
 * A language model with one conversation. Each prompt continues it, until {@link #resetContext}.
 *
 * <p>Any thread may use it. Calls run one at a time; other threads wait. {@link #stop}, from a callback or another thread, and an
 * interrupt of the waiting thread end an answer before the next token, or the next 128 tokens of the prompt. They do not end the loading
 * of the model by the first answer. Images and sound are refused with the code {@code NOT_SUPPORTED}.
 */
public final class LlmModule implements Closeable {
  static {
    ExecuTorchRuntime.getRuntime();
  }

  public static final int MODEL_TYPE_TEXT = 1;
  public static final int MODEL_TYPE_TEXT_VISION = 2;
  public static final int MODEL_TYPE_MULTIMODAL = 2;

  private static final int DEFAULT_SEQ_LEN = 128;
  private static final boolean DEFAULT_ECHO = true;

  /** The module's own temperature. */
  private static final float DEFAULT_TEMPERATURE = -1;

  private final String modulePath;
  private final String tokenizerPath;
  private final float temperature;
  private final String[] dataFiles;
  private final int numBos;
  private final int numEos;
  private final int loadMode;
  private final String loraPath;
  private final NamedOptions named;

  /** Has no object until the model is loaded. */
  private final NativeHandle handle = new NativeHandle(this, 0, LlmModule::freeNative);

  private volatile boolean isClosed;

  /** True if the current answer must end. It is here because there is no model yet while it is loaded. */
  private volatile boolean isStopped;

  private LlmModule(
      String modulePath,
      String tokenizerPath,
      float temperature,
      List<String> dataFiles,
      int numBos,
      int numEos,
      int loadMode,
      String loraPath,
      NamedOptions named) {
    ExecuTorchRuntime.validateFilePath(modulePath, "model path");
    ExecuTorchRuntime.validateFilePath(tokenizerPath, "tokenizer path");
    if (new ArrayList<>(dataFiles).contains(null)) {
      throw new IllegalArgumentException("A path of a data file is null");
    }
    this.modulePath = modulePath;
    this.tokenizerPath = tokenizerPath;
    this.temperature = temperature;
    this.dataFiles = dataFiles.toArray(new String[0]);
    this.numBos = numBos;
    this.numEos = numEos;
    this.loadMode = loadMode;
    this.loraPath = loraPath;
    this.named = named;
  }

  public LlmModule(
      int modelType,
      @NotNull String modulePath,
      @NotNull String tokenizerPath,
      float temperature,
      @NotNull List<String> dataFiles,
      int numBos,
      int numEos) {
    this(
        modulePath,
        tokenizerPath,
        temperature,
        dataFiles,
        numBos,
        numEos,
        LlmModuleConfig.LOAD_MODE_MMAP,
        null,
        new NamedOptions());
  }

  public LlmModule(
      int modelType,
      @NotNull String modulePath,
      @NotNull String tokenizerPath,
      float temperature,
      @NotNull List<String> dataFiles) {
    this(modelType, modulePath, tokenizerPath, temperature, dataFiles, 0, 0);
  }

  public LlmModule(
      int modelType,
      @NotNull String modulePath,
      @NotNull String tokenizerPath,
      float temperature,
      @Nullable String dataPath,
      int numBos,
      int numEos) {
    this(modelType, modulePath, tokenizerPath, temperature, files(dataPath), numBos, numEos);
  }

  public LlmModule(
      int modelType,
      @NotNull String modulePath,
      @NotNull String tokenizerPath,
      float temperature,
      @Nullable String dataPath) {
    this(modelType, modulePath, tokenizerPath, temperature, dataPath, 0, 0);
  }

  public LlmModule(@NotNull String modulePath, @NotNull String tokenizerPath, float temperature) {
    this(MODEL_TYPE_TEXT, modulePath, tokenizerPath, temperature);
  }

  public LlmModule(
      @NotNull String modulePath, @NotNull String tokenizerPath, float temperature, @Nullable String dataPath) {
    this(MODEL_TYPE_TEXT, modulePath, tokenizerPath, temperature, dataPath);
  }

  public LlmModule(int modelType, @NotNull String modulePath, @NotNull String tokenizerPath, float temperature) {
    this(modelType, modulePath, tokenizerPath, temperature, Collections.emptyList());
  }

  public LlmModule(@NotNull LlmModuleConfig config) {
    this(
        config.getModulePath(),
        config.getTokenizerPath(),
        config.getTemperature(),
        files(config.getDataPath()),
        config.getNumBos(),
        config.getNumEos(),
        config.getLoadMode(),
        config.getLoraPath(),
        config.named());
  }

  private static List<String> files(String path) {
    List<String> files = new ArrayList<>();
    if (path != null && !path.isEmpty()) {
      files.add(path);
    }
    return files;
  }

  /** Loads the model. Otherwise the first use does it. */
  public void load() {
    use(pointer -> {});
  }

  public void generate(@NotNull String prompt, @NotNull LlmCallback llmCallback) {
    generate(prompt, DEFAULT_SEQ_LEN, llmCallback, DEFAULT_ECHO);
  }

  public void generate(@NotNull String prompt, int seqLen, @NotNull LlmCallback llmCallback) {
    generate(prompt, seqLen, llmCallback, DEFAULT_ECHO);
  }

  public void generate(@NotNull String prompt, @NotNull LlmCallback llmCallback, boolean echo) {
    generate(prompt, DEFAULT_SEQ_LEN, llmCallback, echo);
  }

  public void generate(@NotNull String prompt, int seqLen, @NotNull LlmCallback llmCallback, boolean echo) {
    generate(prompt, seqLen, llmCallback, echo, DEFAULT_TEMPERATURE, 0, 0);
  }

  /**
   * Adds a prompt to the conversation and answers it.
   *
   * @param seqLen maximum number of tokens of conversation and answer; -1 for as many as fit.
   * @param echo whether the callback gets the prompt first.
   * @param temperature 0 chooses the most likely token each time; a negative one is that of the module.
   * @param numBos how often the token that begins a text is put before the prompt; with 0 it is the module's.
   * @param numEos how often the token that ends a text is put behind the prompt; with 0 it is the module's.
   * @throws ExecutorchRuntimeException if the model cannot be loaded, or the context has no room for an answer.
   * @throws IllegalStateException if the module has been closed, or in a callback of it.
   */
  public void generate(
      @NotNull String prompt,
      int seqLen,
      @NotNull LlmCallback llmCallback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos) {
    generate(prompt, seqLen, -1, llmCallback, echo, temperature, numBos, numEos, new NamedOptions());
  }

  public void generate(
      @NotNull String prompt, @NotNull LlmGenerationConfig config, @NotNull LlmCallback llmCallback) {
    if (config.getAudioFilePath() != null || config.getAudioData() != null) {
      throw unsupported("sound");
    }
    generate(
        prompt,
        config.getSeqLen(),
        config.getMaxNewTokens(),
        llmCallback,
        config.isEcho(),
        config.getTemperature(),
        config.getNumBos(),
        config.getNumEos(),
        config.named());
  }

  public void generate(
      @Nullable int[] image,
      int width,
      int height,
      int channels,
      @NotNull String prompt,
      int seqLen,
      @NotNull LlmCallback llmCallback,
      boolean echo) {
    generate(image, width, height, channels, prompt, seqLen, llmCallback, echo, DEFAULT_TEMPERATURE);
  }

  public void generate(
      @Nullable int[] image,
      int width,
      int height,
      int channels,
      @NotNull String prompt,
      int seqLen,
      @NotNull LlmCallback llmCallback,
      boolean echo,
      float temperature) {
    generate(image, width, height, channels, prompt, seqLen, llmCallback, echo, temperature, 0, 0);
  }

  public void generate(
      @Nullable int[] image,
      int width,
      int height,
      int channels,
      @NotNull String prompt,
      int seqLen,
      @NotNull LlmCallback llmCallback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos) {
    if (image != null) {
      prefillImages(image, width, height, channels);
    }
    generate(prompt, seqLen, llmCallback, echo, temperature, numBos, numEos);
  }

  private void generate(
      String prompt,
      int seqLen,
      int maxNewTokens,
      LlmCallback callback,
      boolean echo,
      float temperature,
      int numBos,
      int numEos,
      NamedOptions named) {
    if (prompt == null || callback == null) {
      throw new IllegalArgumentException("A prompt and a callback must be not null");
    }
    float used = temperature < 0 ? this.temperature : temperature;
    int bos = numBos == 0 ? this.numBos : numBos;
    int eos = numEos == 0 ? this.numEos : numEos;
    Heeding heeding = new Heeding(callback);
    try {
      String[] names = named.names();
      String[] values = named.values();
      use(
          pointer ->
              generateNative(
                  pointer, prompt, seqLen, maxNewTokens, echo, used, bos, eos, names, values, heeding));
    } catch (ExecutorchRuntimeException error) {
      callback.onError(error.getErrorCode(), error.getMessage());
      throw error;
    }
  }

  /** The caller's callback, and the state of the answer. */
  private final class Heeding implements LlmCallback {
    private final LlmCallback callback;

    Heeding(LlmCallback callback) {
      this.callback = callback;
    }

    @Override
    public void onResult(String result) {
      callback.onResult(result);
    }

    @Override
    public void onStats(String stats) {
      callback.onStats(stats);
    }

    /** Called by native code before each token and each part of the prompt. */
    boolean goesOn() {
      return !isStopped && !Thread.currentThread().isInterrupted();
    }
  }

  /** Adds a text to the conversation, such as earlier messages, without an answer. */
  public void prefillPrompt(@NotNull String prompt) {
    if (prompt == null) {
      throw new IllegalArgumentException("A prompt must be not null");
    }
    use(pointer -> prefillNative(pointer, prompt, numBos, numEos));
  }

  public void prefillImages(@NotNull int[] image, int width, int height, int channels) {
    checkSize(image.length, 1, width, height, channels);
    throw unsupported("images");
  }

  public void prefillImages(@NotNull float[] image, int width, int height, int channels) {
    checkSize(image.length, 1, width, height, channels);
    throw unsupported("images");
  }

  public void prefillImages(@NotNull ByteBuffer image, int width, int height, int channels) {
    checkBuffer(image, 1, width, height, channels);
    throw unsupported("images");
  }

  public void prefillNormalizedImage(@NotNull ByteBuffer image, int width, int height, int channels) {
    if (image.order() != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException("The buffer must have the machine's order of bytes: ByteOrder.nativeOrder()");
    }
    if (image.position() % Float.BYTES != 0) {
      throw new IllegalArgumentException("The buffer's position must be a multiple of 4, got " + image.position());
    }
    checkBuffer(image, Float.BYTES, width, height, channels);
    throw unsupported("images");
  }

  public void prefillAudio(@NotNull byte[] audio, int batchSize, int nBins, int nFrames) {
    checkSize(audio.length, 1, batchSize, nBins, nFrames);
    throw unsupported("sound");
  }

  public void prefillAudio(@NotNull float[] audio, int batchSize, int nBins, int nFrames) {
    checkSize(audio.length, 1, batchSize, nBins, nFrames);
    throw unsupported("sound");
  }

  public void prefillRawAudio(@NotNull byte[] audio, int batchSize, int nChannels, int nSamples) {
    checkSize(audio.length, 1, batchSize, nChannels, nSamples);
    throw unsupported("sound");
  }

  private void checkBuffer(ByteBuffer buffer, int bytes, int... sizes) {
    checkOpen();
    if (!buffer.isDirect()) {
      throw new IllegalArgumentException("The buffer must be direct: ByteBuffer.allocateDirect makes one");
    }
    checkSize(buffer.remaining(), bytes, sizes);
  }

  private void checkSize(int got, int bytes, int... sizes) {
    checkOpen();
    long expected = bytes;
    for (int size : sizes) {
      if (size <= 0 || expected > Integer.MAX_VALUE) {
        throw new IllegalArgumentException("Sizes must be positive, and of a buffer, got " + size);
      }
      expected *= size;
    }
    if (got < expected) {
      throw new IllegalArgumentException("Expected " + expected + " elements or bytes, got " + got);
    }
  }

  private static RuntimeException unsupported(String what) {
    return ExecutorchRuntimeException.makeExecutorchException(
        ExecutorchRuntimeException.NOT_SUPPORTED, "language models take no " + what + " yet");
  }

  /** Removes the conversation. */
  public void resetContext() {
    use(LlmModule::forgetNative);
  }

  /** Ends the current answer, also while its model is loaded. Callbacks and other threads may call it. */
  public void stop() {
    isStopped = true;
  }

  /**
   * Frees the model.
   *
   * @throws IllegalStateException if a thread uses it, or in a callback of it.
   */
  @Override
  public void close() {
    if (handle.lock.isHeldByCurrentThread() || !handle.lock.tryLock()) {
      throw new IllegalStateException("The module cannot be closed while it is in use: stop() ends an answer");
    }
    try {
      isClosed = true;
      handle.close();
    } finally {
      handle.lock.unlock();
    }
  }

  /** Same as {@link #close}. */
  @Deprecated
  public void resetNative() {
    close();
  }

  private void checkOpen() {
    if (isClosed) {
      throw new IllegalStateException("The module has been closed");
    }
  }

  /** Loads the model, unless it is loaded, and uses it exclusively. */
  private void use(NativeHandle.Use use) {
    if (handle.lock.isHeldByCurrentThread()) {
      throw new IllegalStateException("The module cannot be used in a callback of it, but for stop()");
    }
    handle.lock.lock();
    try {
      checkOpen();
      // Reset before the model is loaded, because a stop may come during that.
      isStopped = false;
      if (handle.pointer() == 0) {
        handle.set(
            loadNative(modulePath, tokenizerPath, dataFiles, loadMode, loraPath, named.names(), named.values()));
      }
      use.with(handle.pointer());
    } finally {
      handle.lock.unlock();
    }
  }

  private static native long loadNative(
      String path, String tokenizer, String[] data, int mode, String lora, String[] names, String[] values);

  private static native void generateNative(
      long pointer,
      String prompt,
      int seqLen,
      int maxNewTokens,
      boolean echo,
      float temperature,
      int numBos,
      int numEos,
      String[] names,
      String[] values,
      Heeding callback);

  private static native void prefillNative(long pointer, String prompt, int numBos, int numEos);

  private static native void forgetNative(long pointer);

  private static native void freeNative(long pointer);
}
