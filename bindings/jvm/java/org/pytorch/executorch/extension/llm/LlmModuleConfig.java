package org.pytorch.executorch.extension.llm;

import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;
import org.pytorch.executorch.internal.NamedOptions;

/** Options of loading a language model. */
public final class LlmModuleConfig {
  public static final int LOAD_MODE_FILE = 0;
  public static final int LOAD_MODE_MMAP = 1;
  public static final int LOAD_MODE_MMAP_USE_MLOCK = 2;
  public static final int LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS = 3;

  public static final int MODEL_TYPE_TEXT = 1;
  public static final int MODEL_TYPE_TEXT_VISION = 2;
  public static final int MODEL_TYPE_MULTIMODAL = 2;

  private final Builder options;

  private LlmModuleConfig(Builder options) {
    this.options = options;
  }

  @NotNull
  public static Builder create() {
    return new Builder();
  }

  @NotNull
  public String getModulePath() {
    return options.modulePath;
  }

  @NotNull
  public String getTokenizerPath() {
    return options.tokenizerPath;
  }

  public float getTemperature() {
    return options.temperature;
  }

  @Nullable
  public String getDataPath() {
    return options.dataPath;
  }

  public int getModelType() {
    return options.modelType;
  }

  public int getNumBos() {
    return options.numBos;
  }

  public int getNumEos() {
    return options.numEos;
  }

  public int getLoadMode() {
    return options.loadMode;
  }

  @Nullable
  public String getLoraPath() {
    return options.loraPath;
  }

  NamedOptions named() {
    return options.named;
  }

  /** Collects the options. */
  public static final class Builder implements Cloneable {
    private String modulePath;
    private String tokenizerPath;
    private float temperature = 0.8f;
    private String dataPath;
    private int modelType = MODEL_TYPE_TEXT;
    private int numBos;
    private int numEos;
    private int loadMode = LOAD_MODE_MMAP;
    private String loraPath;
    private NamedOptions named = new NamedOptions();

    private Builder() {}

    /** The folder of a LoRA adapter as PEFT saves it, for a model that was compiled with a {@code lora_rank}. */
    @NotNull
    public Builder loraPath(@Nullable String folder) {
      loraPath = folder;
      return this;
    }

    /** Sets any option of loading by its name, such as {@code threads} or {@code memory_limit}. */
    @NotNull
    public Builder option(@NotNull String name, @NotNull String value) {
      named.add(name, value);
      return this;
    }

    @NotNull
    public Builder modulePath(@NotNull String path) {
      modulePath = path;
      return this;
    }

    /** The file of the tokenizer: any that {@code rushlight.llm} reads. */
    @NotNull
    public Builder tokenizerPath(@NotNull String path) {
      tokenizerPath = path;
      return this;
    }

    /** The default temperature of answers; 0 chooses the most likely token. */
    @NotNull
    public Builder temperature(float value) {
      temperature = value;
      return this;
    }

    /** A {@code .ptd} file with weights of the program. */
    @NotNull
    public Builder dataPath(@Nullable String path) {
      dataPath = path;
      return this;
    }

    @NotNull
    public Builder modelType(int type) {
      modelType = type;
      return this;
    }

    /** Number of BOS tokens before each prompt. */
    @NotNull
    public Builder numBos(int count) {
      numBos = count;
      return this;
    }

    /** Number of EOS tokens after each prompt. */
    @NotNull
    public Builder numEos(int count) {
      numEos = count;
      return this;
    }

    /** One of the constants {@code LOAD_MODE_...}; by default the file is mapped. */
    @NotNull
    public Builder loadMode(int mode) {
      if (mode < LOAD_MODE_FILE || mode > LOAD_MODE_MMAP_USE_MLOCK_IGNORE_ERRORS) {
        throw new IllegalArgumentException("There is no load mode " + mode);
      }
      loadMode = mode;
      return this;
    }

    /**
     * Makes the configuration.
     *
     * @throws IllegalArgumentException if the path of the module or of the tokenizer is missing.
     */
    @NotNull
    public LlmModuleConfig build() {
      if (modulePath == null || tokenizerPath == null) {
        throw new IllegalArgumentException("A language model has the path of a module and the path of a tokenizer");
      }
      try {
        Builder copy = (Builder) clone();
        copy.named = new NamedOptions(named);
        return new LlmModuleConfig(copy);
      } catch (CloneNotSupportedException never) {
        throw new AssertionError(never);
      }
    }
  }
}
