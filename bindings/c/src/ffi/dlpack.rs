//! Tensors of other libraries, by DLPack (dmlc/dlpack), version 1.

use std::ptr;

use rushlight::{Code, Tensor};
use rushlight_format::dlpack::{self, DataType, ManagedTensorVersioned as DLManagedTensorVersioned, VERSION, Version};

use super::value::{read_sizes, rl_tensor, view};
use super::{check_aligned, guard, guard_or, null, rl_status, set};
use crate::status::Status;

/// Describes a tensor of another library, by its `DLManagedTensorVersioned` of dlpack.h: a view without a copy, which lives as long as
/// the managed tensor, whose owner the caller stays.
///
/// Errors: `RL_NOT_SUPPORTED` for another major version, for memory that is not the CPU's and for negative strides, `RL_INVALID_TYPE` for
/// other element types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_tensor_from_dlpack(
    managed: *const DLManagedTensorVersioned,
    tensor: *mut rl_tensor,
) -> *mut rl_status {
    guard(|| {
        if managed.is_null() {
            return Err(null("managed"));
        }
        check_aligned(managed, "managed")?;
        // SAFETY: a managed tensor, whose version is the same in all of them.
        let Version { major, minor } = unsafe { (*managed).version };
        if major != VERSION.major {
            let message = format!("DLPack {major}.{minor} is not known: expected version {}", VERSION.major);
            return Err(Status::new(Code::NotSupported, message));
        }
        // SAFETY: a managed tensor of this version.
        let from = unsafe { &(*managed).tensor };
        if from.device_type != dlpack::CPU {
            let message = format!("a tensor on DLPack's device type {}: move it to the CPU first", from.device_type);
            return Err(Status::new(Code::NotSupported, message));
        }
        let dtype = from.dtype.scalar_type().ok_or_else(|| {
            let DataType { code, bits, lanes } = from.dtype;
            let message = format!("DLPack's type code {code} of {bits} bits and {lanes} lanes is not supported");
            Status::new(Code::InvalidType, message)
        })?;
        let rank = usize::try_from(from.ndim).map_err(|_| Status::invalid("a tensor of a negative rank"))?;
        let offset = usize::try_from(from.byte_offset).map_err(|_| Status::invalid("an offset beyond memory"))?;
        // SAFETY: DLPack: shape, and strides unless NULL, have as many entries.
        let sizes = unsafe { read_sizes(from.shape.cast_const(), rank, "shape") }?;
        let strides = from.strides.cast_const();
        let strides = if strides.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { read_sizes(strides, rank, "strides") }?)
        };
        if strides.is_some_and(|strides| strides.iter().any(|stride| *stride < 0)) {
            return Err(Status::new(Code::NotSupported, "a tensor with negative strides"));
        }
        let nbytes = reached(sizes, strides).and_then(|count| count.checked_mul(dtype.size()));
        let nbytes = nbytes.ok_or_else(|| Status::invalid("a tensor whose sizes are negative or beyond memory"))?;
        let described = rl_tensor {
            data: from.data.cast::<u8>().wrapping_add(offset).cast(),
            nbytes,
            sizes: from.shape,
            strides: strides.map_or(ptr::null(), <[i64]>::as_ptr),
            rank,
            dtype: dtype.code().into(),
        };
        // SAFETY: the caller's variable.
        unsafe { set(tensor, "tensor", described) }
    })
}

/// Number of elements from the first to the end of the last one in memory.
fn reached(sizes: &[i64], strides: Option<&[i64]>) -> Option<usize> {
    let sizes = || sizes.iter().map(|size| usize::try_from(*size).ok());
    let count = sizes().try_fold(1usize, |count, size| count.checked_mul(size?))?;
    let Some(strides) = strides.filter(|_| count > 0) else { return Some(count) };
    let last = sizes().zip(strides).try_fold(0usize, |last, (size, stride)| {
        last.checked_add(size?.saturating_sub(1).checked_mul(usize::try_from(*stride).ok()?)?)
    });
    last?.checked_add(1)
}

/// A managed tensor with its shape and data.
struct Exported {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    data: Tensor,
}

/// Copies a tensor, such as an output, to one that other libraries take over: a `DLManagedTensorVersioned` of dlpack.h, row-major, whose
/// last owner calls its deleter, on any thread.
///
/// Errors: `RL_NOT_SUPPORTED` for element types that DLPack does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_tensor_to_dlpack(
    tensor: *const rl_tensor,
    managed: *mut *mut DLManagedTensorVersioned,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as its description says.
        let tensor = unsafe { super::reference(tensor, "tensor") }?;
        if managed.is_null() {
            return Err(null("managed"));
        }
        let mut dims = Vec::new();
        // SAFETY: as its description says.
        let view = unsafe { view(tensor, &mut dims) }?;
        let dtype = DataType::of(view.dtype()).ok_or_else(|| {
            Status::new(Code::NotSupported, format!("DLPack has no element type for {}", view.dtype()))
        })?;
        let data = Tensor::copy_of(&view)?;
        let shape = view.sizes().iter().map(|size| *size as i64).collect();
        let managed_tensor = DLManagedTensorVersioned {
            version: VERSION,
            context: ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            tensor: dlpack::Tensor {
                device_type: dlpack::CPU,
                ndim: view.sizes().len() as i32,
                dtype,
                ..dlpack::Tensor::default()
            },
        };
        let mut exported = Box::new(Exported { managed: managed_tensor, shape, data });
        exported.managed.tensor.data = exported.data.bytes_mut().as_mut_ptr().cast();
        exported.managed.tensor.shape = exported.shape.as_mut_ptr();
        let exported = Box::into_raw(exported);
        // SAFETY: just made, and used by nobody else yet.
        let made = unsafe {
            (*exported).managed.context = exported.cast();
            &raw mut (*exported).managed
        };
        // SAFETY: the caller's variable.
        unsafe { set(managed, "managed", made) }
    })
}

/// # Safety
/// `managed` is of [`rl_tensor_to_dlpack`], and not used again.
unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    guard_or((), || {
        if !managed.is_null() {
            // SAFETY: as the caller promises.
            unsafe { super::free((*managed).context.cast::<Exported>()) }
        }
    })
}
