// Classifies images of 8 x 8 pixels with a program for ExecuTorch's C++ interface: prints a class for each.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

using namespace ::executorch::extension;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: classify digits.pte images.bin\n");
    return 2;
  }
  Module module(argv[1]);
  std::ifstream images(argv[2], std::ios::binary);
  std::vector<float> pixels(64);
  while (images.read(reinterpret_cast<char*>(pixels.data()), 64 * sizeof(float))) {
    // Refers to the pixels, without a copy.
    auto image = from_blob(pixels.data(), {1, 1, 8, 8});
    const auto result = module.forward(image);
    if (!result.ok()) {
      return 1;  // What is wrong was logged.
    }
    const auto logits = result->at(0).toTensor();
    const float* scores = logits.const_data_ptr<float>();
    std::printf("%d\n", static_cast<int>(std::max_element(scores, scores + logits.numel()) - scores));
  }
  return 0;
}
