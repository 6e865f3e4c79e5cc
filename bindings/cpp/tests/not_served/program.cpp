#include <executorch/extension/module/module.h>

auto share(executorch::extension::Module& module) { return module.program(); }
