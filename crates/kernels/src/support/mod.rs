//! What the operator families share: dispatch over element types, conversions, shapes.

#[macro_use]
pub(crate) mod dispatch;
pub(crate) mod number;
pub(crate) mod shape;
