//! The program that a payload holds.

use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{Codec, Reader, structure};
use crate::{Buffer, PayloadError, PayloadFault, PayloadSite, Size, SizeOp, Step, Tensor, TensorId, VERSION};

/// The magic number of payloads, before the version.
const MAGIC: [u8; 3] = *b"RLC";

/// Stored as a character, so that the first versions are digits.
const FIRST_VERSION: u8 = b'0';

/// The bytes that each payload of this version begins with.
pub const HEADER: [u8; 4] = [MAGIC[0], MAGIC[1], MAGIC[2], FIRST_VERSION + VERSION];

/// A compiled part of a method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuProgram {
    /// Computes the sizes; each may use the ones before it.
    pub sizes: Vec<SizeOp>,
    pub buffers: Vec<Buffer>,
    pub tensors: Vec<Tensor>,
    /// The tensors that the caller passes, by position.
    pub inputs: Vec<TensorId>,
    /// The tensors that are returned to the caller, by position.
    pub outputs: Vec<TensorId>,
    /// The sizes of each output as the caller sees it, in the order of the PyTorch tensor's dimensions.
    pub output_sizes: Vec<Vec<Size>>,
    /// Names of the blobs with large constants.
    pub blobs: Vec<String>,
    /// State that is kept between calls.
    pub states: Vec<State>,
    /// Small constants, which are in the payload itself instead of a blob.
    pub inline_floats: Vec<f32>,
    /// Number of `f32` that intermediate results take at the largest sizes.
    pub arena: u64,
    /// Number of scratch `f32` that a step may need, for each thread.
    pub scratch: u64,
    pub steps: Vec<Step>,
    /// The origin of each step, for profiles.
    pub names: Vec<String>,
}

/// A tensor that keeps its elements from call to call, such as a KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Payloads of a program that use the same key share the state.
    pub key: String,
    /// Number of `f32`.
    pub len: u64,
    /// The bits of each `f32` before the first call.
    pub initial: u32,
    /// True if elements are written at positions that the caller gives, and read up to the last position. Removing the
    /// last positions then needs no change of the memory.
    pub is_cache: bool,
}

impl CpuProgram {
    /// Reads a payload without checking it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, PayloadError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(PayloadError::new(PayloadFault::Magic).at(PayloadSite::Byte(0)));
        }
        let got = reader.byte()?.wrapping_sub(FIRST_VERSION);
        if got != VERSION {
            return Err(PayloadError::new(PayloadFault::Version { expected: VERSION, got }));
        }
        Self::get(&mut reader)
    }

    /// Writes the payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = HEADER.to_vec();
        self.put(&mut out);
        out
    }
}

structure! {
    CpuProgram {
        sizes, buffers, tensors, inputs, outputs, output_sizes, blobs, states, inline_floats, arena, scratch, steps, names
    }
    State { key, len, initial, is_cache }
}
