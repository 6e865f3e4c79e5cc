//! Values and tensors as C sees them.

use std::ffi::{c_char, c_void};
use std::ptr;

use rushlight::runtime::{MAX_RANK, Output, Outputs, Tensor};
use rushlight::{Code, Input, ScalarType, TensorView};

use super::{Result, elements, guard_or};
use crate::status::Status;

/// Element types of tensors. The numbers are those of PyTorch and of `.pte` files. Types of PyTorch that are not listed
/// have PyTorch's numbers, too.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_dtype {
    RL_DTYPE_UINT8 = 0,
    RL_DTYPE_INT8 = 1,
    RL_DTYPE_INT16 = 2,
    RL_DTYPE_INT32 = 3,
    RL_DTYPE_INT64 = 4,
    RL_DTYPE_FLOAT16 = 5,
    RL_DTYPE_FLOAT32 = 6,
    RL_DTYPE_FLOAT64 = 7,
    RL_DTYPE_COMPLEX32 = 8,
    RL_DTYPE_COMPLEX64 = 9,
    RL_DTYPE_COMPLEX128 = 10,
    RL_DTYPE_BOOL = 11,
    RL_DTYPE_BFLOAT16 = 15,
    RL_DTYPE_UINT16 = 27,
    RL_DTYPE_UINT32 = 28,
    RL_DTYPE_UINT64 = 29,
}

/// Kinds of values. Only operators have lists as arguments: methods neither take nor return lists.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_kind {
    /// Python's `None`; nothing in `as`.
    RL_KIND_NONE = 0,
    /// `as.tensor`.
    RL_KIND_TENSOR = 1,
    /// `as.integer`.
    RL_KIND_INT = 2,
    /// `as.real`.
    RL_KIND_DOUBLE = 3,
    /// `as.boolean`.
    RL_KIND_BOOL = 4,
    /// `as.string`.
    RL_KIND_STRING = 5,
    /// `as.list` of `int64_t`.
    RL_KIND_INT_LIST = 6,
    /// `as.list` of `double`.
    RL_KIND_DOUBLE_LIST = 7,
    /// `as.list` of `uint8_t`, each 0 or 1.
    RL_KIND_BOOL_LIST = 8,
    /// `as.list` of `rl_value`, each a tensor or none.
    RL_KIND_TENSOR_LIST = 9,
}

/// A tensor: a view of memory that it does not own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_tensor {
    /// The first element; any pointer if there are no elements. The memory may be constant if the library only reads
    /// it, as with an input.
    pub data: *mut c_void,
    /// Bytes from `data` to the end of the last element. For a row-major tensor, exactly the bytes of its sizes; else
    /// at least the bytes that its strides reach.
    pub nbytes: usize,
    /// `rank` sizes, from the outermost dimension.
    pub sizes: *const i64,
    /// `rank` distances between neighbours, in elements and not negative. NULL if the tensor is row-major.
    pub strides: *const i64,
    /// Number of dimensions, at most 16.
    pub rank: usize,
    /// An `rl_dtype`.
    pub dtype: u32,
}

/// UTF-8 text with its length in bytes, without a terminating NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_string {
    pub data: *const c_char,
    pub size: usize,
}

/// Elements of the type that the value's kind selects.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_list {
    pub data: *const c_void,
    /// Number of elements.
    pub size: usize,
}

/// Payload of a value, by its kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union rl_value_as {
    pub tensor: rl_tensor,
    pub integer: i64,
    pub real: f64,
    /// 0 or 1.
    pub boolean: u8,
    pub string: rl_string,
    pub list: rl_list,
}

/// A value: an input or output of a method, or an argument of an operator. It owns no memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_value {
    /// An `rl_kind`.
    pub kind: u32,
    pub r#as: rl_value_as,
}

impl rl_value {
    fn new(kind: rl_kind, r#as: rl_value_as) -> Self {
        Self { kind: kind as u32, r#as }
    }

    pub fn none() -> Self {
        Self::new(rl_kind::RL_KIND_NONE, rl_value_as { integer: 0 })
    }

    pub fn tensor(tensor: rl_tensor) -> Self {
        Self::new(rl_kind::RL_KIND_TENSOR, rl_value_as { tensor })
    }

    pub fn int(integer: i64) -> Self {
        Self::new(rl_kind::RL_KIND_INT, rl_value_as { integer })
    }

    pub fn double(real: f64) -> Self {
        Self::new(rl_kind::RL_KIND_DOUBLE, rl_value_as { real })
    }

    pub fn bool(boolean: bool) -> Self {
        Self::new(rl_kind::RL_KIND_BOOL, rl_value_as { boolean: boolean.into() })
    }

    pub fn string(text: &str) -> Self {
        Self::new(rl_kind::RL_KIND_STRING, rl_value_as { string: rl_string::of(text) })
    }

    pub fn list<T>(kind: rl_kind, items: &[T]) -> Self {
        let list = rl_list { data: items.as_ptr().cast(), size: items.len() };
        Self::new(kind, rl_value_as { list })
    }

    pub fn is(&self, kind: rl_kind) -> bool {
        self.kind == kind as u32
    }
}

impl rl_string {
    pub fn of(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), size: text.len() }
    }

    /// # Safety
    /// The bytes are valid for `'a`.
    pub unsafe fn as_str<'a>(self, name: &str) -> Result<&'a str> {
        // SAFETY: as the caller promises.
        let bytes = unsafe { elements(self.data.cast::<u8>(), self.size, name) }?;
        std::str::from_utf8(bytes).map_err(|_| Status::invalid(format!("`{name}` is not UTF-8")))
    }
}

impl rl_tensor {
    /// A view of a tensor. Appends its sizes, and its strides unless it is row-major, to `dims`.
    pub fn of(tensor: &Tensor<'_>, dims: &mut Dims) -> Self {
        let bytes = tensor.bytes();
        Self {
            data: bytes.as_ptr().cast_mut().cast(),
            nbytes: bytes.len(),
            sizes: dims.keep(tensor.sizes()),
            strides: if tensor.is_contiguous() { ptr::null() } else { dims.keep(tensor.strides()) },
            rank: tensor.rank(),
            dtype: tensor.dtype().code().into(),
        }
    }

    pub fn scalar_type(&self) -> Result<ScalarType> {
        let dtype = u8::try_from(self.dtype).ok().and_then(ScalarType::from_code);
        dtype.ok_or_else(|| Status::new(Code::InvalidType, format!("there is no element type {}", self.dtype)))
    }

    /// Checks the sizes and strides, and appends them to `dims`.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn read_dims(&self, dims: &mut Vec<usize>) -> Result<()> {
        for (pointer, name) in [(self.sizes, "sizes"), (self.strides, "strides")] {
            if name == "strides" && pointer.is_null() {
                continue;
            }
            // SAFETY: as the caller promises.
            for dim in unsafe { read_sizes(pointer, self.rank, name) }? {
                let dim = usize::try_from(*dim);
                dims.push(dim.map_err(|_| Status::invalid(format!("`{name}` has a number that is negative")))?);
            }
        }
        Ok(())
    }

    /// The view with its sizes and strides, which are removed from the beginning of `dims`.
    ///
    /// # Safety
    /// Its data can be read, and is not written, for `'a`.
    unsafe fn view<'a>(&self, dims: &mut &'a [usize]) -> Result<TensorView<'a>> {
        let dtype = self.scalar_type()?;
        // SAFETY: as the caller promises.
        let data = unsafe { elements(self.data.cast_const().cast::<u8>(), self.nbytes, "data") }?;
        let mut next = || dims.split_off(..self.rank).unwrap_or_default();
        let sizes = next();
        Ok(if self.strides.is_null() {
            TensorView::new(dtype, sizes, data)?
        } else {
            TensorView::strided(dtype, sizes, next(), data)?
        })
    }
}

/// Reads the sizes or strides of a tensor. Checks the rank against [`MAX_RANK`] first, so that it does not read past
/// the end of the caller's array.
///
/// # Safety
/// As for [`elements`], if the rank is at most [`MAX_RANK`].
pub unsafe fn read_sizes<'a>(pointer: *const i64, rank: usize, name: &str) -> Result<&'a [i64]> {
    if rank > MAX_RANK {
        return Err(Status::invalid(format!("expected rank at most {MAX_RANK}, got rank {rank}")));
    }
    // SAFETY: as the caller promises.
    unsafe { elements(pointer, rank, name) }
}

/// Reads a tensor. Its sizes and strides go to `dims`.
///
/// # Safety
/// The tensor is as its description says, and not written, for `'a`.
pub unsafe fn view<'a>(tensor: &rl_tensor, dims: &'a mut Vec<usize>) -> Result<TensorView<'a>> {
    dims.clear();
    // SAFETY: as the caller promises.
    unsafe { tensor.read_dims(dims) }?;
    // SAFETY: as the caller promises.
    unsafe { tensor.view(&mut &dims[..]) }
}

/// Reads values as inputs. The sizes and strides of tensors go to `dims`.
///
/// # Safety
/// The values are as their descriptions say, and not written, for `'a`.
pub unsafe fn inputs<'a>(values: &'a [rl_value], dims: &'a mut Vec<usize>) -> Result<Vec<Input<'a>>> {
    dims.clear();
    let at = |index: usize| move |status: Status| status.at(&format!("input {index}"));
    for (index, value) in values.iter().enumerate().filter(|(_, value)| value.is(rl_kind::RL_KIND_TENSOR)) {
        // SAFETY: a value of this kind is a tensor; as the caller promises.
        unsafe { value.r#as.tensor.read_dims(dims) }.map_err(at(index))?;
    }
    let mut dims = &dims[..];
    let mut inputs = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        // SAFETY: as the caller promises.
        inputs.push(unsafe { input(value, &mut dims) }.map_err(at(index))?);
    }
    Ok(inputs)
}

/// # Safety
/// As for [`inputs`].
unsafe fn input<'a>(value: &rl_value, dims: &mut &'a [usize]) -> Result<Input<'a>> {
    const NONE: u32 = rl_kind::RL_KIND_NONE as u32;
    const TENSOR: u32 = rl_kind::RL_KIND_TENSOR as u32;
    const INT: u32 = rl_kind::RL_KIND_INT as u32;
    const DOUBLE: u32 = rl_kind::RL_KIND_DOUBLE as u32;
    const BOOL: u32 = rl_kind::RL_KIND_BOOL as u32;
    const STRING: u32 = rl_kind::RL_KIND_STRING as u32;
    // SAFETY: the kind selects the field of the union, and any bits are a value of these plain types. Pointers are as
    // the caller promises.
    unsafe {
        Ok(match value.kind {
            NONE => Input::None,
            TENSOR => Input::Tensor(value.r#as.tensor.view(dims)?),
            INT => Input::Int(value.r#as.integer),
            DOUBLE => Input::Double(value.r#as.real),
            BOOL => Input::Bool(value.r#as.boolean != 0),
            STRING => Input::String(value.r#as.string.as_str("string")?),
            kind => {
                let message = format!("a value of the kind {kind} cannot be an input");
                return Err(Status::new(Code::InvalidType, message));
            }
        })
    }
}

/// Keeps sizes and strides that callers have pointers to, in buffers that never reallocate.
#[derive(Debug, Default)]
pub struct Dims {
    current: Vec<i64>,
    full: Vec<Vec<i64>>,
}

impl Dims {
    /// Minimum capacity of a buffer: the sizes and strides of a tensor of the maximum rank.
    const CAPACITY: usize = 2 * MAX_RANK;

    pub fn keep(&mut self, dims: &[usize]) -> *const i64 {
        if self.current.capacity() - self.current.len() < dims.len() {
            let next = Vec::with_capacity(dims.len().max(Self::CAPACITY));
            self.full.push(std::mem::replace(&mut self.current, next));
        }
        let begin = self.current.len();
        self.current.extend(dims.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)));
        self.current[begin..].as_ptr()
    }

    /// Removes all sizes and strides, and keeps a buffer for the next ones.
    fn clear(&mut self) {
        self.full.clear();
        self.current.clear();
    }
}

/// The outputs of the last call, as callers see them.
#[derive(Default)]
pub struct Lent {
    pub values: Vec<rl_value>,
    dims: Dims,
}

impl Lent {
    pub fn clear(&mut self) {
        self.values.clear();
        self.dims.clear();
    }

    pub fn fill(&mut self, outputs: &Outputs<'_, '_>) -> std::result::Result<(), rushlight::Error> {
        self.clear();
        for index in 0..outputs.len() {
            self.values.push(match outputs.get(index)? {
                Output::Tensor(tensor) => rl_value::tensor(rl_tensor::of(&tensor, &mut self.dims)),
                Output::Int(value) => rl_value::int(value),
                Output::Double(value) => rl_value::double(value),
                Output::Bool(value) => rl_value::bool(value),
                Output::String(text) => rl_value::string(text),
                Output::None => rl_value::none(),
            });
        }
        Ok(())
    }
}

/// Describes a row-major tensor. `sizes` and `data` are borrowed: they must live as long as the value is used.
#[unsafe(no_mangle)]
pub extern "C" fn rl_value_tensor(
    dtype: u32,
    sizes: *const i64,
    rank: usize,
    data: *const c_void,
    nbytes: usize,
) -> rl_value {
    guard_or(rl_value::none(), || {
        rl_value::tensor(rl_tensor { data: data.cast_mut(), nbytes, sizes, strides: ptr::null(), rank, dtype })
    })
}

/// Describes an int.
#[unsafe(no_mangle)]
pub extern "C" fn rl_value_int(value: i64) -> rl_value {
    guard_or(rl_value::none(), || rl_value::int(value))
}

/// Describes a double.
#[unsafe(no_mangle)]
pub extern "C" fn rl_value_double(value: f64) -> rl_value {
    guard_or(rl_value::none(), || rl_value::double(value))
}

/// Describes a bool.
#[unsafe(no_mangle)]
pub extern "C" fn rl_value_bool(value: bool) -> rl_value {
    guard_or(rl_value::none(), || rl_value::bool(value))
}

/// Describes a NUL-terminated string, which is borrowed. NULL gives a value of the kind none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_value_string(text: *const c_char) -> rl_value {
    guard_or(rl_value::none(), || {
        if text.is_null() {
            return rl_value::none();
        }
        // SAFETY: a string that the caller keeps.
        let size = unsafe { std::ffi::CStr::from_ptr(text) }.count_bytes();
        rl_value::new(rl_kind::RL_KIND_STRING, rl_value_as { string: rl_string { data: text, size } })
    })
}

/// Returns the bytes of one element; 0 for a number that is not an `rl_dtype`.
#[unsafe(no_mangle)]
pub extern "C" fn rl_dtype_size(dtype: u32) -> usize {
    guard_or(0, || u8::try_from(dtype).ok().and_then(ScalarType::from_code).map_or(0, ScalarType::size))
}
