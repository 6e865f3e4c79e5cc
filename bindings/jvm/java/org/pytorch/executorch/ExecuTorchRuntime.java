package org.pytorch.executorch;

import java.io.File;
import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;

/** The native library, and its operators and backends. */
public final class ExecuTorchRuntime {
  static {
    NativeLibrary.ensureLoaded();
  }

  private static final ExecuTorchRuntime INSTANCE = new ExecuTorchRuntime();

  private ExecuTorchRuntime() {}

  /** Loads the native library, unless it is loaded. */
  @NotNull
  public static ExecuTorchRuntime getRuntime() {
    return INSTANCE;
  }

  /**
   * Checks that a file exists and can be read.
   *
   * @throws IllegalArgumentException otherwise. {@code description} names the file in the message.
   */
  public static void validateFilePath(@Nullable String path, @NotNull String description) {
    if (path == null) {
      throw new IllegalArgumentException("Cannot load " + description + ": it is null");
    }
    File file = new File(path);
    String problem =
        !file.exists() ? "there is no such file" : !file.isFile() ? "not a file" : !file.canRead() ? "not readable" : null;
    if (problem != null) {
      throw new IllegalArgumentException("Cannot load " + description + ": " + problem + ": " + path);
    }
  }

  /** Returns the names of all operators. */
  @NotNull
  public static String[] getRegisteredOps() {
    return operators();
  }

  /** Returns the names of all backends. */
  @NotNull
  public static String[] getRegisteredBackends() {
    return backends();
  }

  private static native String[] operators();

  private static native String[] backends();
}
