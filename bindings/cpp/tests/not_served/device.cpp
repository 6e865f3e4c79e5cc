#include <executorch/extension/tensor/tensor.h>

using namespace executorch::extension;

auto on_device(const TensorPtr& tensor) { return clone_tensor_ptr_to(tensor, executorch::runtime::etensor::DeviceType::CUDA); }
