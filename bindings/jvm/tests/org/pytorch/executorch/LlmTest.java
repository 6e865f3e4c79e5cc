package org.pytorch.executorch;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.pytorch.executorch.extension.llm.LlmCallback;
import org.pytorch.executorch.extension.llm.LlmGenerationConfig;
import org.pytorch.executorch.extension.llm.LlmModule;
import org.pytorch.executorch.extension.llm.LlmModuleConfig;
import org.pytorch.executorch.internal.NativeHandle;

/** A small Llama, whose answer transformers recorded. */
final class LlmTest {
  private static String model;
  private static String tokenizer;
  private static String prompt;
  private static String answer;

  /** Of the recorded answer: what it has before the token that ends it, and what the model says behind that token. */
  private static String toEnd;
  private static String behindEnd;

  private static final int TOKENS_TO_END = 42;

  /** Of the recorded answer, in which the model goes on after the token that ends it. So far, and in the prompt, each is a character. */
  private static final int TOKENS = 40;

  private LlmTest() {}

  static void run(Path root, Path folder, String prompt, String answer) throws Exception {
    model = folder.resolve("llama.pte").toString();
    tokenizer = root.resolve("tests/decoders/llama/tokenizer.json").toString();
    LlmTest.prompt = prompt;
    LlmTest.answer = answer.substring(0, TOKENS);
    toEnd = answer.substring(0, TOKENS_TO_END);
    behindEnd = answer.substring(TOKENS_TO_END);
    Check.test("an answer is that of transformers", LlmTest::answers);
    Check.test("options of an answer have names", LlmTest::namedOptions);
    Check.test("a conversation", LlmTest::conversation);
    Check.test("a conversation has its answers whole", LlmTest::wholeAnswers);
    Check.test("an answer is stopped", LlmTest::stops);
    Check.test("an answer is stopped while its model is loaded", LlmTest::stopsWhileLoading);
    Check.test("callbacks that throw, or use their model", LlmTest::callbacks);
    Check.test("language models that are closed", LlmTest::closed);
    Check.test("what language models refuse", () -> refusals(root));
  }

  private static LlmModule llama() {
    return new LlmModule(model, tokenizer, 0);
  }

  /** Records the calls of a callback. */
  private static final class Heard implements LlmCallback {
    final StringBuilder text = new StringBuilder();
    final List<String> statistics = new ArrayList<>();
    final List<Integer> errors = new ArrayList<>();

    @Override
    public void onResult(String result) {
      text.append(result);
    }

    @Override
    public void onStats(String stats) {
      statistics.add(stats);
    }

    @Override
    public void onError(int errorCode, String message) {
      errors.add(errorCode);
    }
  }

  private static void answers() {
    try (LlmModule llama = llama()) {
      llama.load();
      Heard heard = new Heard();
      llama.generate(prompt, prompt.length() + TOKENS, heard, false);
      Check.equal(answer, heard.text.toString());
      Check.equal(1, heard.statistics.size());
      // ExecuTorch does not count the first token, which the logits of the prompt give.
      String counts = "\"prompt_tokens\":" + prompt.length() + ",\"generated_tokens\":" + (TOKENS - 1);
      Check.that(heard.statistics.get(0).contains(counts), heard.statistics);
      llama.resetContext();
      Heard echoed = new Heard();
      LlmGenerationConfig config = LlmGenerationConfig.create().temperature(0).maxNewTokens(5).build();
      llama.generate(prompt, config, echoed);
      Check.equal(prompt + answer.substring(0, 5), echoed.text.toString());
    }
  }

  private static void namedOptions() {
    try (LlmModule llama = llama()) {
      Heard heard = new Heard();
      LlmGenerationConfig greedy =
          LlmGenerationConfig.create().echo(false).option("temperature", "0").option("max_new_tokens", "6").build();
      llama.generate(prompt, greedy, heard);
      Check.equal(answer.substring(0, 6), heard.text.toString());
      llama.resetContext();
      Heard formed = new Heard();
      LlmGenerationConfig form = LlmGenerationConfig.create().echo(false).option("regex", "[a-c]{4}").build();
      llama.generate(prompt, form, formed);
      Check.that(formed.text.toString().matches("[a-c]{4}"), formed.text);
      ExecutorchRuntimeException wrong =
          Check.fails(
              ExecutorchRuntimeException.class,
              "top_k",
              () ->
                  llama.generate(
                      prompt, LlmGenerationConfig.create().option("topp_k", "1").build(), new Heard()));
      Check.equal("topp_k", wrong.getGot());
    }
    LlmModuleConfig.Builder config = LlmModuleConfig.create().modulePath(model).tokenizerPath(tokenizer);
    Check.fails(
        ExecutorchRuntimeException.class,
        "threads",
        () -> new LlmModule(config.option("threads", "0").build()).load());
    Check.fails(
        ExecutorchRuntimeException.class,
        "LoRA",
        () ->
            new LlmModule(
                    LlmModuleConfig.create().modulePath(model).tokenizerPath(tokenizer).loraPath(model).build())
                .load());
  }

  private static void conversation() {
    LlmModuleConfig config =
        LlmModuleConfig.create().modulePath(model).tokenizerPath(tokenizer).temperature(0).loadMode(LlmModuleConfig.LOAD_MODE_FILE).build();
    try (LlmModule llama = new LlmModule(config)) {
      llama.prefillPrompt(prompt.substring(0, 3));
      Heard heard = new Heard();
      llama.generate(prompt.substring(3), prompt.length() + 8, heard, false);
      Check.equal(answer.substring(0, 8), heard.text.toString());
      ExecutorchRuntimeException full =
          Check.fails(ExecutorchRuntimeException.class, "no room", () -> llama.generate(prompt, 4, heard));
      Check.equal("fewer than 4 tokens", full.getExpected());
      // The prompt and the answer before, and the prompt again.
      Check.equal(2 * prompt.length() + 8 + " tokens with those of the prompt", full.getGot());
      Check.that(full.getHelp().contains("resetContext"), full.getHelp());
      Check.equal(ExecutorchRuntimeException.OUT_OF_RESOURCES, heard.errors.get(0));
    }
  }

  private static String next(LlmModule llama, String prompt, int count) {
    Heard heard = new Heard();
    LlmGenerationConfig config = LlmGenerationConfig.create().temperature(0).echo(false).maxNewTokens(count).build();
    llama.generate(prompt, config, heard);
    return heard.text.toString();
  }

  private static void wholeAnswers() {
    try (LlmModule llama = llama()) {
      // Cut by a limit, and then by a stop.
      Check.equal(answer.substring(0, 5), next(llama, prompt, 5));
      Check.equal(answer.substring(6, 11), next(llama, answer.substring(5, 6), 5));
      llama.generate(answer.substring(11, 12), -1, result -> llama.stop(), false);
      Check.equal(answer.substring(14, 19), next(llama, answer.substring(13, 14), 5));
      llama.resetContext();
      Check.equal(toEnd, next(llama, prompt, -1));
      Check.equal(behindEnd.substring(1, 9), next(llama, behindEnd.substring(0, 1), 8));
    }
  }

  private static void stops() throws Exception {
    try (LlmModule llama = llama()) {
      StringBuilder text = new StringBuilder();
      llama.generate(
          prompt,
          60,
          result -> {
            text.append(result);
            if (text.length() == 4) {
              llama.stop();
            }
          },
          false);
      Check.equal(answer.substring(0, 4), text.toString());
      llama.resetContext();
      StringBuilder interrupted = new StringBuilder();
      llama.generate(
          prompt,
          60,
          result -> {
            interrupted.append(result);
            Thread.currentThread().interrupt();
          },
          false);
      Check.that(Thread.interrupted(), "it was forgotten");
      Check.equal(answer.substring(0, 1), interrupted.toString());
      llama.resetContext();
      // By another thread, while the callback waits for it.
      Heard heard = new Heard();
      llama.generate(
          prompt,
          60,
          result -> {
            heard.onResult(result);
            Thread other = new Thread(llama::stop);
            other.start();
            try {
              other.join();
            } catch (InterruptedException error) {
              throw new AssertionError(error);
            }
          },
          false);
      Check.equal(answer.substring(0, 1), heard.text.toString());
      llama.resetContext();
      // Before there is a token.
      Heard nothing = new Heard();
      Thread.currentThread().interrupt();
      llama.generate(prompt, 60, nothing, false);
      Check.that(Thread.interrupted(), "it was forgotten");
      Check.equal("", nothing.text.toString());
      Check.that(nothing.statistics.get(0).contains("\"prompt_tokens\":0,\"generated_tokens\":0,"), nothing.statistics);
    }
  }

  private static void stopsWhileLoading() throws Exception {
    Field field = LlmModule.class.getDeclaredField("handle");
    field.setAccessible(true);
    boolean isStopped = false;
    while (!isStopped) {
      try (LlmModule llama = llama()) {
        NativeHandle handle = (NativeHandle) field.get(llama);
        Heard heard = new Heard();
        Thread answering = new Thread(() -> llama.generate(prompt, 60, heard, false));
        answering.start();
        while (handle.pointer() == 0 && answering.isAlive()) {
          if (handle.lock.isLocked()) {
            llama.stop();
            // Else it was loaded before this thread had a turn.
            isStopped |= handle.pointer() == 0;
          }
        }
        answering.join();
        Check.equal(1, heard.statistics.size());
        Check.that(!isStopped || heard.text.length() == 0, heard.text);
      }
    }
  }

  private static void callbacks() {
    try (LlmModule llama = llama()) {
      RuntimeException mine = new RuntimeException("mine");
      RuntimeException thrown =
          Check.fails(
              RuntimeException.class,
              "mine",
              () ->
                  llama.generate(
                      prompt,
                      60,
                      result -> {
                        throw mine;
                      }));
      Check.that(thrown == mine, "another exception");
      Check.fails(
          RuntimeException.class,
          "of statistics",
          () ->
              llama.generate(
                  prompt,
                  200,
                  new LlmCallback() {
                    @Override
                    public void onResult(String result) {
                      llama.stop();
                    }

                    @Override
                    public void onStats(String stats) {
                      throw new IllegalStateException("of statistics");
                    }
                  }));
      Class<IllegalStateException> illegal = IllegalStateException.class;
      Check.fails(illegal, "in a callback", () -> llama.generate(prompt, 200, result -> llama.resetContext()));
      Check.fails(illegal, "cannot be closed", () -> llama.generate(prompt, 200, result -> llama.close()));
      llama.resetContext();
      Heard heard = new Heard();
      llama.generate(prompt, 20, heard, false);
      Check.equal(answer.substring(0, 20 - prompt.length()), heard.text.toString());
    }
  }

  private static void closed() throws Exception {
    LlmModule llama = llama();
    Heard heard = new Heard();
    llama.generate(
        prompt,
        60,
        result -> {
          if (heard.text.length() == 0) {
            try {
              ThreadTest.together(1, number -> Check.fails(IllegalStateException.class, "in use", llama::close));
            } catch (Exception error) {
              throw new AssertionError(error);
            }
          }
          heard.onResult(result);
        },
        false);
    llama.close();
    llama.close();
    llama.stop();
    Check.fails(IllegalStateException.class, "has been closed", () -> llama.generate(prompt, heard));
    Check.fails(IllegalStateException.class, "has been closed", llama::load);
    Check.fails(IllegalStateException.class, "has been closed", llama::resetContext);
    // One that was never loaded.
    llama().close();
  }

  private static void refusals(Path root) {
    Class<IllegalArgumentException> illegal = IllegalArgumentException.class;
    Check.fails(illegal, "model path: there is no such file", () -> new LlmModule("/nowhere", tokenizer, 0));
    Check.fails(illegal, "tokenizer path: there is no such file", () -> new LlmModule(model, "/nowhere", 0));
    Check.fails(illegal, "path of a tokenizer", () -> LlmModuleConfig.create().modulePath(model).build());
    Check.fails(illegal, "load mode 4", () -> LlmModuleConfig.create().loadMode(4));
    Check.fails(illegal, "data file", () -> new LlmModule(1, model, tokenizer, 0, Collections.singletonList((String) null)));
    Class<ExecutorchRuntimeException> thrown = ExecutorchRuntimeException.class;
    try (LlmModule add = new LlmModule(root.resolve("tests/corpus/1.5.1/add.pte").toString(), tokenizer, 0)) {
      Check.equal(ExecutorchRuntimeException.INVALID_PROGRAM, Check.fails(thrown, "", add::load).getErrorCode());
    }
    try (LlmModule text = new LlmModule(model, root.resolve("README.md").toString(), 0)) {
      Check.equal(ExecutorchRuntimeException.INVALID_PROGRAM, Check.fails(thrown, "tokenizer", text::load).getErrorCode());
    }
    try (LlmModule llama = llama()) {
      Heard heard = new Heard();
      Check.fails(illegal, "prompt", () -> llama.prefillPrompt(null));
      ExecutorchRuntimeException sampling =
          Check.fails(thrown, "temperature", () -> llama.generate(prompt, 40, heard, false, Float.NaN, 0, 0));
      Check.equal("NaN", sampling.getGot());
      ByteBuffer image = ByteBuffer.allocateDirect(12).order(ByteOrder.nativeOrder());
      Check.fails(illegal, "direct", () -> llama.prefillImages(ByteBuffer.allocate(12), 2, 2, 3));
      Check.fails(illegal, "got 12", () -> llama.prefillImages(image, 3, 2, 3));
      Check.fails(illegal, "positive", () -> llama.prefillImages(image, 2, -2, 3));
      Check.fails(illegal, "order", () -> llama.prefillNormalizedImage(image.duplicate().order(ByteOrder.BIG_ENDIAN), 1, 1, 3));
      ExecutorchRuntimeException error = Check.fails(thrown, "images", () -> llama.prefillImages(image, 2, 2, 3));
      Check.equal(ExecutorchRuntimeException.NOT_SUPPORTED, error.getErrorCode());
      Check.fails(thrown, "sound", () -> llama.prefillAudio(new float[6], 1, 2, 3));
    }
  }
}
