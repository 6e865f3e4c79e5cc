//! Level 1.
#![no_std]
