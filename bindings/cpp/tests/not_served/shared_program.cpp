#include <executorch/extension/module/module.h>

void share(std::shared_ptr<executorch::runtime::Program> program) { executorch::extension::Module module(program); }
