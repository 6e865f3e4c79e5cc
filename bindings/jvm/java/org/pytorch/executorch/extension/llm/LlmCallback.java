package org.pytorch.executorch.extension.llm;

import org.jetbrains.annotations.NotNull;

/** Receives an answer, on the thread that asked for it. What a method throws ends the answer, and {@code generate} throws it. */
public interface LlmCallback {
  /** Receives text as it comes: the prompt first, if it is echoed. */
  void onResult(@NotNull String result);

  /** Receives the statistics when the answer is over: JSON with token counts, and times in milliseconds since the epoch. */
  default void onStats(@NotNull String stats) {}

  /** Receives the code and the message of the exception that {@code generate} throws then. */
  default void onError(int errorCode, @NotNull String message) {}
}
