//! What the operator families share: dispatch over element types, conversions, shapes, elementwise loops.

pub(crate) mod access;
#[macro_use]
pub(crate) mod dispatch;
#[macro_use]
pub(crate) mod elementwise;
pub(crate) mod convert;
pub(crate) mod math;
pub(crate) mod number;
pub(crate) mod promote;
pub(crate) mod reduce;
#[macro_use]
pub(crate) mod runs;
pub(crate) mod shape;
pub(crate) mod tile;
