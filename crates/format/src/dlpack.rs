//! The C structures of DLPack (dmlc/dlpack), version 1, in which tensors cross to other libraries.

use core::ffi::c_void;
use core::ptr;

use crate::ScalarType;

/// The version that is written. A reader of version 1 understands all of its minor ones; another major one may have another structure.
pub const VERSION: Version = Version { major: 1, minor: 0 };

/// The device type of memory of the CPU (`kDLCPU`).
pub const CPU: i32 = 1;

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

impl DataType {
    /// The element type of `dtype`, if DLPack has it.
    pub fn of(dtype: ScalarType) -> Option<Self> {
        dtype.dlpack().map(|(code, bits)| Self { code, bits, lanes: 1 })
    }

    /// The type of single elements, if there is one; `None` for vectors.
    pub fn scalar_type(self) -> Option<ScalarType> {
        ScalarType::from_dlpack(self.code, self.bits).filter(|_| self.lanes == 1)
    }
}

/// `DLTensor`: a view of memory. The default has no memory, no device, no element type and rank 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device_type: i32,
    pub device_id: i32,
    pub ndim: i32,
    pub dtype: DataType,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` strides in elements, or null for a row-major tensor.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

impl Default for Tensor {
    fn default() -> Self {
        Self {
            data: ptr::null_mut(),
            device_type: 0,
            device_id: 0,
            ndim: 0,
            dtype: DataType::default(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

/// `DLManagedTensor`: a tensor with its owner, as it was before versions.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    pub tensor: Tensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`: a tensor with its owner. `version` is where it is in all versions.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensorVersioned {
    pub version: Version,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    pub flags: u64,
    pub tensor: Tensor,
}
