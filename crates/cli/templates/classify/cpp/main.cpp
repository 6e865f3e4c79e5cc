// Classifies images: `build/{{name}} samples/7.pgm`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <rushlight.hpp>
#include <vector>

#include "image.h"
#include "labels.h"

constexpr size_t TOP = 3;

static int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s IMAGE.pgm|IMAGE.ppm...\n", argv[0]);
    return 2;
  }
  rushlight::Module module("model.pte");
  const auto info = module.meta("forward").input(0);
  const auto sizes = info.value().tensor<float>().sizes();
  for (int at = 1; at < argc; at++) {
    const std::unique_ptr<float, decltype(&std::free)> image(
        image_read(argv[at], int(sizes[1]), int(sizes[2]), int(sizes[3])), std::free);
    if (image == nullptr) return 1;
    const rushlight::Span<const float> pixels(image.get(), size_t(sizes[1] * sizes[2] * sizes[3]));
    const auto outputs = module.forward(rushlight::Tensor(pixels, sizes));
    const auto logits = outputs[0].tensor<float>().to_vector();
    const float max = *std::max_element(logits.begin(), logits.end());
    const float sum = std::accumulate(logits.begin(), logits.end(), 0.0f, [&](float sum, float logit) { return sum + std::exp(logit - max); });
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    std::printf("%s:", argv[at]);
    for (size_t rank = 0; rank < std::min(TOP, order.size()); rank++) {
      char name[100];
      label("labels.txt", int(order[rank]), name, sizeof name);
      std::printf("%s %s %.1f %%", rank == 0 ? "" : ",", name, 100 * std::exp(logits[order[rank]] - max) / sum);
    }
    std::printf("\n");
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
