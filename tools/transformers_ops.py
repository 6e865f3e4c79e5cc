"""Registers the operators that Hugging Face's transformers defines, with the out variants that programs name."""

import torch
import transformers.integrations.moe  # noqa: F401  registers transformers::grouped_mm_fallback

LIBRARY = torch.library.Library("transformers", "FRAGMENT")
LIBRARY.define("grouped_mm_fallback.out(Tensor input, Tensor weight, Tensor offs, *, Tensor(a!) out) -> Tensor(a!)")
