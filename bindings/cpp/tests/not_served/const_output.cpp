#include <rushlight.hpp>

void write_to(const std::vector<float>& memory) { rushlight::RunOptions().write_to(0, memory); }
