//! Operators that compute each element from the elements at the same place.

use rushlight_runtime::OpGroup;

pub mod activation;
pub mod add;
pub mod atan2;
pub mod bitwise;
pub mod bounds;
pub mod classify;
pub mod compare;
pub mod copy;
pub mod div;
pub mod fill;
pub mod functions;
pub mod logical;
pub mod mul;
pub mod numbers;
pub mod pow;
pub mod remainder;
pub mod rounding;
pub mod select;
pub mod sign;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[
    activation::OPS,
    add::OPS,
    atan2::OPS,
    bitwise::OPS,
    bounds::OPS,
    classify::OPS,
    compare::OPS,
    copy::OPS,
    div::OPS,
    fill::OPS,
    functions::OPS,
    logical::OPS,
    mul::OPS,
    pow::OPS,
    remainder::OPS,
    rounding::OPS,
    select::OPS,
    sign::OPS,
];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[];

/// The groups of this folder with operators beyond core ATen.
pub const ATEN: &[OpGroup] = &[numbers::OPS];
