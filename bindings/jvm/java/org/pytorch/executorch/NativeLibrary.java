package org.pytorch.executorch;

import java.io.IOException;
import java.io.InputStream;
import java.nio.Buffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The native library. The file that the property {@code rushlight.library} names; else {@code rushlight_jni} where {@link
 * System#loadLibrary} finds it, as on Android; else the one for this machine that the jar has, which is copied to a folder that
 * only this user can read.
 */
final class NativeLibrary {
  private static final String NAME = "rushlight_jni";
  private static final String VERSION = "0.1.0";

  static {
    load();
    if (!version().equals(VERSION)) {
      throw new UnsatisfiedLinkError(
          "the native library is of version " + version() + ", the classes are of version " + VERSION);
    }
  }

  private NativeLibrary() {}

  /** Loads the library, unless it is loaded. */
  static void ensureLoaded() {}

  private static void load() {
    String file = System.getProperty("rushlight.library");
    if (file != null) {
      System.load(file);
      return;
    }
    UnsatisfiedLinkError missing;
    try {
      System.loadLibrary(NAME);
      return;
    } catch (UnsatisfiedLinkError error) {
      missing = error;
    }
    String resource = "/native/" + platform() + "/" + System.mapLibraryName(NAME);
    try (InputStream from = NativeLibrary.class.getResourceAsStream(resource)) {
      if (from == null) {
        missing.addSuppressed(new UnsatisfiedLinkError("the jar has no " + resource));
        throw missing;
      }
      extract(from);
    } catch (IOException error) {
      missing.addSuppressed(error);
      throw missing;
    }
  }

  /** Loads a library from a new folder with a random name, and removes the folder if the system allows it. */
  private static void extract(InputStream from) throws IOException {
    Path folder = Files.createTempDirectory("rushlight");
    Path library = folder.resolve(System.mapLibraryName(NAME));
    try {
      Files.copy(from, library, StandardCopyOption.REPLACE_EXISTING);
      System.load(library.toString());
    } finally {
      try {
        Files.deleteIfExists(library);
        Files.deleteIfExists(folder);
      } catch (IOException inUse) {
        // Windows keeps the files of loaded libraries.
        // The last that is registered is deleted first.
        folder.toFile().deleteOnExit();
        library.toFile().deleteOnExit();
      }
    }
  }

  /** The folder of this machine's library, such as {@code linux-x86_64}. */
  private static String platform() {
    String system = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
    String name = system.startsWith("windows") ? "windows" : system.startsWith("mac") ? "macos" : "linux";
    String processor = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
    switch (processor) {
      case "amd64":
      case "x86_64":
        return name + "-x86_64";
      case "aarch64":
      case "arm64":
        return name + "-aarch64";
      default:
        return name + "-" + processor;
    }
  }

  private static native String version();

  /** Returns the address of a direct buffer's first element. */
  static native long address(Buffer buffer);
}
