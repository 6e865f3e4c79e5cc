//! Kernels of custom operators.

use std::any::Any;
use std::ffi::c_void;

use rushlight::runtime::{self, Kernel, KernelContext, TensorMut};
use rushlight::{Code, Scalar};

use super::status::take;
use super::value::{Dims, read_sizes, rl_kind, rl_tensor, rl_value};
use super::{Result, guard, guard_or, null, rl_status, set};
use crate::callback;
use crate::status::Status;

/// The arguments of one call of an operator, by their position in its schema. They live until the kernel returns, and
/// belong to the kernel's thread.
pub struct rl_kernel_context<'a, 'm> {
    context: &'a KernelContext<'m>,
    arguments: usize,
    lent: Scratch,
}

impl rl_kernel_context<'_, '_> {
    /// Refuses arguments beyond the schema: programs list the returned values once more after them.
    fn check(&self, index: usize) -> Result<()> {
        if index < self.arguments {
            return Ok(());
        }
        Err(Status::invalid(format!("the operator has no argument {index}: it has {}", self.arguments)))
    }
}

/// Memory that the kernel has pointers to.
#[derive(Default)]
pub struct Scratch {
    dims: Dims,
    ints: Vec<Box<[i64]>>,
    bools: Vec<Box<[u8]>>,
    tensors: Vec<Box<[rl_value]>>,
}

/// Computes an operator: reads its arguments and writes its outputs. Returns NULL, or a status that becomes that of the
/// call.
///
/// The thread that runs or loads the method calls it, never twice at once for one module. It must not throw exceptions
/// or jump out of the call, and cannot use the module that calls it.
pub type rl_kernel_fn =
    Option<unsafe extern "C" fn(context: *mut rl_kernel_context<'_, '_>, user_data: *mut c_void) -> *mut rl_status>;

/// The caller's kernel function with its user data.
pub struct CustomKernel {
    pub function: unsafe extern "C" fn(*mut rl_kernel_context<'_, '_>, *mut c_void) -> *mut rl_status,
    pub user_data: *mut c_void,
    pub arguments: usize,
}

// SAFETY: the header says that any thread that loads or runs a module with the registry may use the function and its
// data.
unsafe impl Send for CustomKernel {}
// SAFETY: as above.
unsafe impl Sync for CustomKernel {}

/// The kernel of all operators from C. It finds the function in the operator's data.
pub const KERNEL: Kernel = |context| {
    let data: Option<&(dyn Any + Send + Sync)> = context.data();
    let Some(custom) = data.and_then(|data| data.downcast_ref::<CustomKernel>()) else {
        return Err(runtime::Error::new(Code::Internal, runtime::Detail::Text("the operator has no function")));
    };
    let mut handed = rl_kernel_context { context, arguments: custom.arguments, lent: Scratch::default() };
    // SAFETY: the caller's function, with a context that lives for the call.
    let status = unsafe { (custom.function)(&raw mut handed, custom.user_data) };
    // SAFETY: NULL, or a status that the kernel gave away.
    unsafe { take(status) }.map_err(callback::failed)
};

/// Returns the number of arguments, outputs included; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_kernel_num_arguments(context: *const rl_kernel_context<'_, '_>) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or the context of this call.
        unsafe { context.as_ref() }.map_or(0, |context| context.arguments)
    })
}

/// Reads an argument that is not an output. Memory that the value points at lives until the kernel returns, and must
/// not be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_kernel_argument(
    context: *mut rl_kernel_context<'_, '_>,
    index: usize,
    value: *mut rl_value,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        context.check(index)?;
        let read = argument(context.context, index, &mut context.lent)?;
        // SAFETY: the caller's variable.
        unsafe { set(value, "value", read) }
    })
}

/// Reads an argument. Only the context knows its kind: the first kind that fits is the right one.
fn argument(context: &KernelContext<'_>, index: usize, lent: &mut Scratch) -> Result<rl_value> {
    fn keep<T>(kept: &mut Vec<Box<[T]>>, kind: rl_kind, items: impl IntoIterator<Item = T>) -> rl_value {
        kept.push(items.into_iter().collect());
        rl_value::list(kind, kept.last().map_or(&[][..], |items| items))
    }
    if context.is_none(index) {
        return Ok(rl_value::none());
    }
    let no_tensor = match context.tensor(index) {
        Ok(tensor) => return Ok(rl_value::tensor(rl_tensor::of(&tensor, &mut lent.dims))),
        Err(error) => error,
    };
    Ok(if let Ok(scalar) = context.scalar(index) {
        match scalar {
            Scalar::Int(value) => rl_value::int(value),
            Scalar::Double(value) => rl_value::double(value),
            Scalar::Bool(value) => rl_value::bool(value),
        }
    } else if let Ok(text) = context.string(index) {
        rl_value::string(text)
    } else if let Ok(ints) = context.ints(index) {
        keep(&mut lent.ints, rl_kind::RL_KIND_INT_LIST, ints.iter())
    } else if let Ok(doubles) = context.doubles(index) {
        rl_value::list(rl_kind::RL_KIND_DOUBLE_LIST, doubles)
    } else if let Ok(bools) = context.bools(index) {
        keep(&mut lent.bools, rl_kind::RL_KIND_BOOL_LIST, bools.iter().map(|item| u8::from(*item)))
    } else if let Ok(tensors) = context.optional_tensors(index) {
        let mut items = Vec::with_capacity(tensors.len());
        for item in 0..tensors.len() {
            items.push(match tensors.get_optional(item)? {
                Some(tensor) => rl_value::tensor(rl_tensor::of(&tensor, &mut lent.dims)),
                None => rl_value::none(),
            });
        }
        keep(&mut lent.tensors, rl_kind::RL_KIND_TENSOR_LIST, items)
    } else {
        // Any of the errors would do; the tensor's says why it is not a tensor.
        return Err(no_tensor.into());
    })
}

/// Sets the sizes of an output and returns its memory for writing, once in a call. If `sizes` is NULL, the output keeps
/// its sizes, which are upper bounds if they are dynamic. Memory that `tensor` points at lives until the kernel
/// returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_kernel_output(
    context: *mut rl_kernel_context<'_, '_>,
    index: usize,
    sizes: *const i64,
    rank: usize,
    tensor: *mut rl_tensor,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        // SAFETY: as the caller promises.
        let sizes = unsafe { new_sizes(sizes, rank) }?;
        context.check(index)?;
        let written = written(context.context.out(index)?, sizes, &mut context.lent)?;
        // SAFETY: the caller's variable.
        unsafe { set(tensor, "tensor", written) }
    })
}

/// The new sizes of an output; `None` if it keeps its sizes.
///
/// # Safety
/// `sizes` is NULL or points at `rank` numbers.
pub unsafe fn new_sizes(sizes: *const i64, rank: usize) -> Result<Option<Vec<usize>>> {
    if sizes.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let sizes = unsafe { read_sizes(sizes, rank, "sizes") }?.iter().map(|size| usize::try_from(*size));
    sizes.collect::<std::result::Result<_, _>>().map(Some).map_err(|_| Status::invalid("`sizes` has a negative number"))
}

/// Resizes an output and describes it.
pub fn written(mut out: TensorMut<'_>, sizes: Option<Vec<usize>>, lent: &mut Scratch) -> Result<rl_tensor> {
    if let Some(sizes) = sizes {
        out.resize(&sizes)?;
    }
    let described = rl_tensor::of(&out.as_tensor(), &mut lent.dims);
    // The data pointer permits writing.
    Ok(rl_tensor { data: out.bytes_mut().as_mut_ptr().cast(), ..described })
}

/// Describes a tensor that a delegate or a kernel reads.
pub fn read(tensor: &runtime::Tensor<'_>, lent: &mut Scratch) -> rl_value {
    rl_value::tensor(rl_tensor::of(tensor, &mut lent.dims))
}
