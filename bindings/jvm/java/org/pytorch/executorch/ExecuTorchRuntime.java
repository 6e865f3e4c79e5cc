package org.pytorch.executorch;

import java.io.File;
import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;

/** The native library and what it has. */
public final class ExecuTorchRuntime {
  static {
    NativeLibrary.ensureLoaded();
  }

  private static final ExecuTorchRuntime INSTANCE = new ExecuTorchRuntime();

  private ExecuTorchRuntime() {}

  /** Loads the native library, unless it is there. */
  @NotNull
  public static ExecuTorchRuntime getRuntime() {
    return INSTANCE;
  }

  /**
   * Checks that a path is that of a file which can be read.
   *
   * @throws IllegalArgumentException if it is not, with {@code description} as the name of what the path is for.
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
