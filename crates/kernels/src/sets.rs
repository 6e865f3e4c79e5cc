//! Operator sets, to be passed to a registry.

use rushlight_runtime::OpSet;

use crate::{
    conv, cortex_m, counting, create, elementwise, index, linalg, linear, llama, norm, prim, quantized, reduce, shape,
    special,
};

/// ExecuTorch's portable operators.
pub const PORTABLE: OpSet = OpSet {
    name: "PORTABLE",
    groups: &[
        elementwise::PORTABLE,
        shape::PORTABLE,
        linear::PORTABLE,
        conv::PORTABLE,
        norm::PORTABLE,
        reduce::PORTABLE,
        index::PORTABLE,
        create::PORTABLE,
    ],
};

/// The operators that ExecuTorch has only in its optimized set.
pub const OPTIMIZED: OpSet = OpSet { name: "OPTIMIZED", groups: &[linear::OPTIMIZED] };

/// Core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: OpSet = OpSet {
    name: "CORE_ATEN",
    groups: &[
        elementwise::CORE_ATEN,
        shape::CORE_ATEN,
        linear::CORE_ATEN,
        conv::CORE_ATEN,
        norm::CORE_ATEN,
        reduce::CORE_ATEN,
        index::CORE_ATEN,
        create::CORE_ATEN,
    ],
};

/// Operators of ATen beyond its core set: linear algebra, distributions, special functions, and others that few programs name.
pub const ATEN: OpSet = OpSet {
    name: "ATEN",
    groups: &[elementwise::ATEN, conv::ATEN, counting::ATEN, create::ATEN, linalg::ATEN, special::ATEN],
};

/// The `quantized_decomposed` operators.
pub const QUANTIZED: OpSet = OpSet { name: "QUANTIZED", groups: &[quantized::GROUPS] };

/// Operators on symbolic integers and other scalars, and `et_view`. Nearly every program with dynamic shapes or
/// views needs some of them.
pub const PRIM: OpSet = OpSet { name: "PRIM", groups: &[prim::GROUPS] };

/// ExecuTorch's custom operators for language models, and `preprocess`.
pub const LLAMA: OpSet = OpSet { name: "LLAMA", groups: &[llama::GROUPS] };

/// Operators that Hugging Face's transformers defines, and its mixtures of experts are exported with.
pub const TRANSFORMERS: OpSet = OpSet { name: "TRANSFORMERS", groups: &[linear::TRANSFORMERS] };

/// The int8 operators of ExecuTorch's Cortex-M backend.
pub const CORTEX_M: OpSet = OpSet { name: "CORTEX_M", groups: &[cortex_m::GROUPS] };

/// Every operator of this crate.
pub const ALL: &[&OpSet] =
    &[&PORTABLE, &PRIM, &OPTIMIZED, &CORE_ATEN, &ATEN, &QUANTIZED, &LLAMA, &TRANSFORMERS, &CORTEX_M];
