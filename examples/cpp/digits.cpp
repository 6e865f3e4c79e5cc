// Classifies images of 8 x 8 pixels with rushlight.hpp: prints a class for each.
#include <rushlight.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: digits digits.pte images.bin\n");
    return 2;
  }
  try {
    rushlight::Module module(argv[1]);
    std::ifstream images(argv[2], std::ios::binary);
    std::vector<float> pixels(64);
    while (images.read(reinterpret_cast<char*>(pixels.data()), 64 * sizeof(float))) {
      // Refers to the pixels, without a copy.
      const auto outputs = module.forward(rushlight::Tensor(pixels, {1, 1, 8, 8}));
      const auto scores = outputs[0].tensor<float>();
      std::printf("%d\n", static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
    }
  } catch (const rushlight::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
