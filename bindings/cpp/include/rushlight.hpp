// Rushlight compiles PyTorch models to ExecuTorch's .pte files and runs them. These headers are for C++17 and later. They call the C
// interface of rushlight.h; link its library.
//
//     rushlight::Module module("model.pte");
//     std::vector<float> pixels(3 * 224 * 224);
//     const auto outputs = module.forward(rushlight::Tensor(pixels, {1, 3, 224, 224}));
//     const auto logits = outputs[0].tensor<float>();
//     const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
//
// Errors. A function that can fail throws a `rushlight::Error`. Its `status()` has the problem, the place, the expected and the actual
// value, and a hint. A second function, whose name begins with `try_`, throws nothing and returns a `Result` or a `Status`. For
// constructors it is `try_load` or `try_new`, for `[]` of outputs `try_at`. With -fno-exceptions use these: the others print the error and
// end the process.
//
// Ownership. Objects free what they own. Those that cannot be copied can be moved. `Tensor`, `Span`, `Bytes`, `Value` and `Input` are
// views: the memory that they refer to must outlive them. Inputs are copied only if the program needs them in another place or order.
//
// Threads. There is no global state. One thread at a time uses an object, unless its type says otherwise.
//
// Callbacks are any functions and lambdas. The call that runs a callback throws its exception. The exception of an operator becomes the
// error of the call.
//
// `get()` returns the object of the C interface. Use it for backends and for tensors of DLPack, which have no C++ interface.

#pragma once

#include <rushlight/compile.hpp>
#include <rushlight/llm.hpp>
#include <rushlight/meta.hpp>
#include <rushlight/module.hpp>
#include <rushlight/registry.hpp>
#include <rushlight/status.hpp>
#include <rushlight/tensor.hpp>
