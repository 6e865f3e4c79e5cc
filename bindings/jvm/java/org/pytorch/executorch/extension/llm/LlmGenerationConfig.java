package org.pytorch.executorch.extension.llm;

import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;
import org.pytorch.executorch.internal.NamedOptions;

/** Options of an answer. */
public final class LlmGenerationConfig {
  private final Builder options;

  private LlmGenerationConfig(Builder options) {
    this.options = options;
  }

  @NotNull
  public static Builder create() {
    return new Builder();
  }

  public boolean isEcho() {
    return options.echo;
  }

  public int getMaxNewTokens() {
    return options.maxNewTokens;
  }

  public boolean isWarming() {
    return options.warming;
  }

  public int getSeqLen() {
    return options.seqLen;
  }

  public float getTemperature() {
    return options.temperature;
  }

  public int getNumBos() {
    return options.numBos;
  }

  public int getNumEos() {
    return options.numEos;
  }

  @Nullable
  public String getAudioFilePath() {
    return options.audioFilePath;
  }

  @Nullable
  public float[] getAudioData() {
    return options.audioData;
  }

  public int getAudioBatchSize() {
    return options.audioBatchSize;
  }

  public int getAudioNBins() {
    return options.audioNBins;
  }

  public int getAudioNFrames() {
    return options.audioNFrames;
  }

  NamedOptions named() {
    return options.named;
  }

  /** Collects the options. */
  public static final class Builder implements Cloneable {
    private boolean echo = true;
    private int maxNewTokens = -1;
    private boolean warming;
    private int seqLen = -1;
    private float temperature = 0.8f;
    private int numBos;
    private int numEos;
    private String audioFilePath;
    private float[] audioData;
    private int audioBatchSize = 1;
    private int audioNBins;
    private int audioNFrames;
    private NamedOptions named = new NamedOptions();

    private Builder() {}

    /**
     * Sets any option of an answer by its name, such as {@code top_k}, {@code min_p}, {@code json_schema} or {@code stop}. It replaces
     * that of ExecuTorch's runner. Several values of {@code stop} are a list.
     */
    @NotNull
    public Builder option(@NotNull String name, @NotNull String value) {
      named.add(name, value);
      return this;
    }

    /** True if the callback gets the prompt first. */
    @NotNull
    public Builder echo(boolean value) {
      echo = value;
      return this;
    }

    /** Maximum number of tokens of the answer; -1 until the context is full. */
    @NotNull
    public Builder maxNewTokens(int count) {
      maxNewTokens = count;
      return this;
    }

    /** True for a warm-up, which has no other effect. */
    @NotNull
    public Builder warming(boolean value) {
      warming = value;
      return this;
    }

    /** Maximum number of tokens of conversation and answer; -1 until the context is full. */
    @NotNull
    public Builder seqLen(int count) {
      seqLen = count;
      return this;
    }

    /** The temperature. 0 chooses the most likely token; a negative value selects that of the module. */
    @NotNull
    public Builder temperature(float value) {
      temperature = value;
      return this;
    }

    @NotNull
    public Builder numBos(int count) {
      numBos = count;
      return this;
    }

    @NotNull
    public Builder numEos(int count) {
      numEos = count;
      return this;
    }

    /** A sound before the prompt. No model supports it yet. */
    @NotNull
    public Builder audioFilePath(@NotNull String path) {
      audioFilePath = path;
      return this;
    }

    /** A spectrogram before the prompt. No model supports it yet. */
    @NotNull
    public Builder audioData(@NotNull float[] data, int batchSize, int nBins, int nFrames) {
      audioData = data;
      audioBatchSize = batchSize;
      audioNBins = nBins;
      audioNFrames = nFrames;
      return this;
    }

    @NotNull
    public LlmGenerationConfig build() {
      try {
        Builder copy = (Builder) clone();
        copy.named = new NamedOptions(named);
        return new LlmGenerationConfig(copy);
      } catch (CloneNotSupportedException never) {
        throw new AssertionError(never);
      }
    }
  }
}
