package org.pytorch.executorch;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/**
 * All tests: {@code Tests ROOT FOLDER}, with the root of the repository, and the folder in which {@code cargo xtask test jvm} has put
 * the recorded calls and the programs. Options of the JVM: {@code -Xmx256m -XX:MaxDirectMemorySize=64m}.
 */
final class Tests {
  private Tests() {}

  public static void main(String[] arguments) throws Exception {
    Path root = Paths.get(arguments[0]);
    Path folder = Paths.get(arguments[1]);
    String[] text = new String(Files.readAllBytes(folder.resolve("llama.txt")), StandardCharsets.UTF_8).split("\n");
    TensorTest.run();
    ModuleTest.run(root, folder);
    ThreadTest.run(root);
    MemoryTest.run(root);
    LlmTest.run(root, folder, text[0], text[1]);
  }
}
