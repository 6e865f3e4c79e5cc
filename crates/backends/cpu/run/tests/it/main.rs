//! Payloads of strangers.

mod hostile;
mod payload;
