#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/runtime/executor/program.h>

auto load(executorch::extension::FileDataLoader* loader) { return executorch::runtime::Program::load(loader); }
