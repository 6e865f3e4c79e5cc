// Transcribes recordings: `build/{{name}} samples/dialed.wav`.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <rushlight.hpp>
#include <string>

#include "labels.h"
#include "wav.h"

// Samples a second that the model expects.
constexpr uint32_t RATE = {{rate}};

// Decodes CTC greedily: repeated tokens count once, and token 0, the blank, is removed.
static std::string text_of(const std::vector<float>& logits, size_t tokens) {
  std::string text;
  size_t last = 0;
  for (size_t at = 0; at + tokens <= logits.size(); at += tokens) {
    const auto row = logits.begin() + at;
    const size_t best = size_t(std::max_element(row, row + tokens) - row);
    if (best != 0 && best != last) {
      char name[100];
      const std::string token = label("labels.txt", int(best), name, sizeof name);
      text += token == "|" ? " " : token;
    }
    last = best;
  }
  return text;
}

static int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s RECORDING.wav...\n", argv[0]);
    return 2;
  }
  rushlight::Module module("model.pte");
  for (int at = 1; at < argc; at++) {
    size_t count;
    const std::unique_ptr<float, decltype(&std::free)> samples(wav_read(argv[at], RATE, &count), std::free);
    if (samples == nullptr) return 1;
    const rushlight::Span<const float> sound(samples.get(), count);
    const auto outputs = module.forward(rushlight::Tensor(sound, {1, int64_t(count)}));
    const auto logits = outputs[0].tensor<float>();
    std::printf("%s: %s\n", argv[at], text_of(logits.to_vector(), size_t(logits.sizes()[2])).c_str());
  }
  return 0;
}

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const rushlight::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
