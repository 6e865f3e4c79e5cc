// Finds objects in images: `build/{{name}} samples/shapes.pgm`.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <rushlight.hpp>
#include <vector>

#include "image.h"
#include "labels.h"

constexpr float MIN_SCORE = 0.5f, MAX_OVERLAP = 0.5f;

struct Detection {
  int kind;
  float score;
  // Left, top, right and bottom in pixels of the model's input.
  const float* box;
};

// Returns the intersection over union of two boxes.
static float overlap(const float* a, const float* b) {
  const float width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0.0f);
  const float height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0.0f);
  const float areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
  return width * height / (areas - width * height);
}

// Returns the detections, the best first. Of boxes of one class that overlap, the best one stays.
static std::vector<Detection> detections(const std::vector<float>& boxes, const std::vector<float>& scores) {
  std::vector<Detection> candidates, found;
  const size_t count = boxes.size() / 4, classes = scores.size() / count;
  for (size_t at = 0; at < count; at++) {
    const float* row = &scores[at * classes];
    const float* best = std::max_element(row, row + classes);
    if (*best >= MIN_SCORE) candidates.push_back({int(best - row), *best, &boxes[4 * at]});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Detection& a, const Detection& b) { return a.score > b.score; });
  for (const Detection& candidate : candidates) {
    const auto covers = [&](const Detection& other) {
      return other.kind == candidate.kind && overlap(other.box, candidate.box) > MAX_OVERLAP;
    };
    if (std::none_of(found.begin(), found.end(), covers)) found.push_back(candidate);
  }
  return found;
}

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
    const auto boxes = outputs[0].tensor<float>().to_vector(), scores = outputs[1].tensor<float>().to_vector();
    std::printf("%s\n", argv[at]);
    for (const Detection& found : detections(boxes, scores)) {
      char name[100];
      std::printf("  %s %.0f %% at %.0f %.0f %.0f %.0f\n", label("labels.txt", found.kind, name, sizeof name), 100 * found.score,
                  found.box[0], found.box[1], found.box[2], found.box[3]);
    }
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
