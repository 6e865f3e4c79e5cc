package org.pytorch.executorch.extension.llm;

import org.jetbrains.annotations.NotNull;

/** Receives an answer, on the thread that called {@code generate}. An exception of a method ends the answer; {@code generate} throws it. */
public interface LlmCallback {
  /** Receives the next text; first the prompt, if it is echoed. */
  void onResult(@NotNull String result);

  /** Receives the statistics at the end of the answer: JSON with token counts, and times in milliseconds since the epoch. */
  default void onStats(@NotNull String stats) {}

  /** Receives the code and the message of the exception that {@code generate} will throw. */
  default void onError(int errorCode, @NotNull String message) {}
}
