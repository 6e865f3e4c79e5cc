//! The book's blocks of Rust, as doctests.

#[doc = include_str!("../../../docs/how-to/custom-operator.md")]
struct CustomOperator;

#[doc = include_str!("../../../docs/start/rust.md")]
struct FirstHour;

#[doc = include_str!("../../../docs/start/firmware.md")]
struct Firmware;
