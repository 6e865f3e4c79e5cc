//! Common parts of the operator families: dispatch over element types, conversions, shapes, elementwise loops.

#[macro_use]
pub(crate) mod dispatch;
pub(crate) mod access;
pub(crate) mod convert;
pub(crate) mod copy;
#[macro_use]
pub(crate) mod elementwise;
pub(crate) mod half_bits;
pub(crate) mod index;
pub(crate) mod math;
pub(crate) mod number;
pub(crate) mod promote;
pub(crate) mod quotient;
pub(crate) mod random;
pub(crate) mod real;
pub(crate) mod reduce;
#[macro_use]
pub(crate) mod runs;
pub(crate) mod shape;
pub(crate) mod slice;
pub(crate) mod tile;
