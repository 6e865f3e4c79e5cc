package org.pytorch.executorch;

import org.jetbrains.annotations.NotNull;
import org.jetbrains.annotations.Nullable;

/**
 * An error of the library. The message has the whole error, in several lines, and the fields have its parts. Codes are those of
 * ExecuTorch.
 */
public class ExecutorchRuntimeException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public static final int OK = 0x00;
  public static final int INTERNAL = 0x01;
  public static final int INVALID_STATE = 0x02;
  public static final int END_OF_METHOD = 0x03;
  public static final int ALREADY_LOADED = 0x04;
  public static final int NOT_SUPPORTED = 0x10;
  public static final int NOT_IMPLEMENTED = 0x11;
  public static final int INVALID_ARGUMENT = 0x12;
  public static final int INVALID_TYPE = 0x13;
  public static final int OPERATOR_MISSING = 0x14;
  public static final int REGISTRATION_EXCEEDING_MAX_KERNELS = 0x15;
  public static final int REGISTRATION_ALREADY_REGISTERED = 0x16;
  public static final int NOT_FOUND = 0x20;
  public static final int MEMORY_ALLOCATION_FAILED = 0x21;
  public static final int ACCESS_FAILED = 0x22;
  public static final int INVALID_PROGRAM = 0x23;
  public static final int INVALID_EXTERNAL_DATA = 0x24;
  public static final int OUT_OF_RESOURCES = 0x25;
  public static final int DELEGATE_INVALID_COMPATIBILITY = 0x30;
  public static final int DELEGATE_MEMORY_ALLOCATION_FAILED = 0x31;
  public static final int DELEGATE_INVALID_HANDLE = 0x32;

  private final int errorCode;
  private String site;
  private String expected;
  private String got;
  private String help;

  public ExecutorchRuntimeException(int errorCode, @Nullable String details) {
    this(errorCode, details, (Throwable) null);
  }

  public ExecutorchRuntimeException(int errorCode, @Nullable String details, @Nullable Throwable cause) {
    super(String.format("[Error 0x%02x] %s", errorCode, details == null ? "no details" : details), cause);
    this.errorCode = errorCode;
  }

  private ExecutorchRuntimeException(int errorCode, String text, String[] fields) {
    super(text);
    this.errorCode = errorCode;
    site = fields[0];
    expected = fields[1];
    got = fields[2];
    help = fields[3];
  }

  /** Makes the exception of an error. The native library calls this. */
  static ExecutorchRuntimeException ofLibrary(
      int code, String text, String site, String expected, String got, String help) {
    String[] fields = {site, expected, got, help};
    return code == INVALID_ARGUMENT
        ? new ExecutorchInvalidArgumentException(text, fields)
        : new ExecutorchRuntimeException(code, text, fields);
  }

  /** Makes the exception for a code. */
  @NotNull
  public static RuntimeException makeExecutorchException(int errorCode, @Nullable String details) {
    return errorCode == INVALID_ARGUMENT
        ? new ExecutorchInvalidArgumentException(details)
        : new ExecutorchRuntimeException(errorCode, details);
  }

  /** Returns the code: one of the constants of this class. */
  public int getErrorCode() {
    return errorCode;
  }

  /** Returns the message. There is no log beside it. */
  @NotNull
  public String getDetailedError() {
    return String.valueOf(getMessage());
  }

  /** Returns the place of the error, such as {@code input 0 of `forward`}. */
  @Nullable
  public String getSite() {
    return site;
  }

  /** Returns the expected value. */
  @Nullable
  public String getExpected() {
    return expected;
  }

  /** Returns the actual value. */
  @Nullable
  public String getGot() {
    return got;
  }

  /** Returns a hint: how to mend the error. */
  @Nullable
  public String getHelp() {
    return help;
  }

  /** An error for an argument that a method does not accept. */
  public static class ExecutorchInvalidArgumentException extends ExecutorchRuntimeException {
    private static final long serialVersionUID = 1L;

    public ExecutorchInvalidArgumentException(@Nullable String details) {
      super(INVALID_ARGUMENT, details);
    }

    private ExecutorchInvalidArgumentException(String text, String[] fields) {
      super(INVALID_ARGUMENT, text, fields);
    }
  }
}
