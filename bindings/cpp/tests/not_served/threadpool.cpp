#include <executorch/extension/threadpool/threadpool.h>
