#include <executorch/extension/module/module.h>

auto method(executorch::extension::Module& module) { return module.method("forward"); }
