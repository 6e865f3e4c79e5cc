// Rushlight runs PyTorch models that were exported to ExecuTorch's .pte files, and compiles them: for C++17 and later, over the C
// interface of rushlight.h, whose library a program links.
//
//     rushlight::Module module("model.pte");
//     std::vector<float> pixels(3 * 224 * 224);
//     const auto outputs = module.forward(rushlight::Tensor(pixels, {1, 3, 224, 224}));
//     const auto logits = outputs[0].tensor<float>();
//     const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
//
// What holds for all functions:
//
// Errors. A function that can fail throws a `rushlight::Error`, whose `status()` says what went wrong, where, what was expected, what
// came and what to do. Beside it there is one whose name begins with `try_`, which throws nothing and returns a `Result`, or a `Status`
// if there is nothing to return: beside a constructor `try_load` or `try_new`, beside `[]` of outputs `try_at`. With -fno-exceptions only these are of use: the others print the error and end the process.
//
// Ownership. Objects free what they own; those that cannot be copied can be moved. `Tensor`, `Span`, `Bytes`, `Value` and `Input` are
// views, which own nothing: what they refer to has to outlive them. Nothing is copied but what a program wants in another place or order.
//
// Threads. There is no global state. An object is used by one thread at a time, unless its type says otherwise.
//
// Callbacks are any functions and lambdas. What they throw does not cross the library: it comes out of the call that they are part of.
// Operators, whose exceptions become the error of the call, see to that by themselves.
//
// `get()` of an object is that of the C interface, for what has no form here: backends, and tensors of DLPack.

#pragma once

#include <rushlight/compile.hpp>
#include <rushlight/llm.hpp>
#include <rushlight/meta.hpp>
#include <rushlight/module.hpp>
#include <rushlight/registry.hpp>
#include <rushlight/status.hpp>
#include <rushlight/tensor.hpp>
