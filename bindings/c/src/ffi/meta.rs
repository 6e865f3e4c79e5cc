//! Method metadata.

use std::ffi::{CString, c_char};
use std::ptr;

use rushlight::{MethodMeta, TensorInfo, ValueInfo};

use super::value::{Dims, rl_kind, rl_tensor, rl_value};
use super::{Result, free, guard, guard_or, reference, rl_status, set_sized};
use crate::status::{Status, c_string};

/// Metadata of a method. It is independent of the module that it came from. Threads: it never changes, so any number of
/// threads may read it.
pub struct rl_meta {
    name: CString,
    inputs: Vec<Info>,
    outputs: Vec<Info>,
    attributes: Vec<Info>,
    backends: Vec<CString>,
    operators: Vec<CString>,
    planned_buffers: Vec<u64>,
    num_instructions: usize,
}

/// The sizes that a dimension of an input may have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_size_range {
    /// The smallest size. If it is 1, empty tensors are accepted too.
    pub min: u64,
    /// The largest size.
    pub max: u64,
    /// The size minus `offset` is a multiple of `unit`.
    pub unit: u64,
    pub offset: u64,
    /// The expression of other inputs' sizes that the size must equal, or NULL.
    pub expression: *const c_char,
}

/// An input, output or attribute as the program declares it. Its pointers are valid as long as the `rl_meta` lives.
#[repr(C)]
pub struct rl_value_info {
    /// `sizeof(rl_value_info)`, set by the caller.
    pub struct_size: usize,
    /// Its name in the exported function; for an attribute, its name in the module. NULL if the program records none.
    pub name: *const c_char,
    /// For a tensor, its element type and sizes without data. Dynamic sizes are upper bounds, and `nbytes` is the size
    /// in bytes at these. For other kinds, the value that the export fixed: an input must have this value.
    pub value: rl_value,
    /// For a tensor, its `rank` dimensions in memory order, from the outermost; else NULL.
    pub dim_order: *const u8,
    /// For a dynamic input of a program of Rushlight's compiler, the range of each dimension; else NULL. ExecuTorch's
    /// programs have only upper bounds.
    pub ranges: *const rl_size_range,
    /// True if sizes may change from call to call.
    pub is_dynamic: bool,
    /// True if the program planned memory for the tensor. Such an input is copied there; an input without planned
    /// memory is read in place.
    pub is_memory_planned: bool,
}

/// A declaration with the memory that its pointers point at.
struct Info {
    name: Option<CString>,
    value: rl_value,
    dim_order: Vec<u8>,
    ranges: Vec<rl_size_range>,
    is_dynamic: bool,
    is_memory_planned: bool,
    _dims: Dims,
    _expressions: Vec<CString>,
    _text: Option<String>,
}

impl Info {
    fn of(info: &ValueInfo, name: Option<&String>) -> Self {
        let plain = |value| Self {
            name: None,
            value,
            dim_order: Vec::new(),
            ranges: Vec::new(),
            is_dynamic: false,
            is_memory_planned: false,
            _dims: Dims::default(),
            _expressions: Vec::new(),
            _text: None,
        };
        let mut made = match info {
            ValueInfo::Tensor(info) => Self::of_tensor(info, plain(rl_value::none())),
            ValueInfo::Int(value) => plain(rl_value::int(*value)),
            ValueInfo::Double(value) => plain(rl_value::double(*value)),
            ValueInfo::Bool(value) => plain(rl_value::bool(*value)),
            ValueInfo::String(text) => {
                let text = text.clone();
                Self { value: rl_value::string(&text), _text: Some(text), ..plain(rl_value::none()) }
            }
            ValueInfo::None => plain(rl_value::none()),
            ValueInfo::List => plain(rl_value::list::<i64>(rl_kind::RL_KIND_INT_LIST, &[])),
        };
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            made.name = Some(c_string(name));
        }
        made
    }

    fn of_tensor(info: &TensorInfo, plain: Self) -> Self {
        let mut dims = Dims::default();
        let value = rl_value::tensor(rl_tensor {
            data: ptr::null_mut(),
            nbytes: usize::try_from(info.nbytes).unwrap_or(usize::MAX),
            sizes: dims.keep(&info.sizes),
            strides: ptr::null(),
            rank: info.sizes.len(),
            dtype: info.dtype.code().into(),
        });
        let expressions: Vec<CString> =
            info.ranges.iter().map(|range| range.expression.as_deref().map(c_string).unwrap_or_default()).collect();
        let ranges = info.ranges.iter().zip(&expressions).map(|(range, expression)| rl_size_range {
            min: range.min,
            max: range.max,
            unit: range.step.0,
            offset: range.step.1,
            expression: range.expression.as_ref().map_or(ptr::null(), |_| expression.as_ptr()),
        });
        Self {
            name: info.name.as_deref().map(c_string),
            value,
            dim_order: info.dim_order.clone(),
            ranges: ranges.collect(),
            is_dynamic: info.is_dynamic,
            is_memory_planned: info.is_memory_planned,
            _dims: dims,
            _expressions: expressions,
            ..plain
        }
    }

    fn to_c(&self, struct_size: usize) -> rl_value_info {
        rl_value_info {
            struct_size,
            name: self.name.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
            value: self.value,
            dim_order: if self.dim_order.is_empty() { ptr::null() } else { self.dim_order.as_ptr() },
            ranges: if self.ranges.is_empty() { ptr::null() } else { self.ranges.as_ptr() },
            is_dynamic: self.is_dynamic,
            is_memory_planned: self.is_memory_planned,
        }
    }
}

impl rl_meta {
    pub fn of(meta: &MethodMeta) -> Self {
        let infos = |infos: &[ValueInfo], names: &[String]| -> Vec<Info> {
            infos.iter().enumerate().map(|(index, info)| Info::of(info, names.get(index))).collect()
        };
        let attributes = meta.attributes.iter().map(|info| Info::of(&ValueInfo::Tensor(info.clone()), None));
        Self {
            name: c_string(&meta.name),
            inputs: infos(&meta.inputs, &meta.input_names),
            outputs: infos(&meta.outputs, &meta.output_names),
            attributes: attributes.collect(),
            backends: meta.backends.iter().map(|name| c_string(name)).collect(),
            operators: meta.operators.iter().map(|op| c_string(&op.name)).collect(),
            planned_buffers: meta.planned_buffers.clone(),
            num_instructions: meta.num_instructions,
        }
    }
}

/// Returns the method's name, or NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_name(meta: *const rl_meta) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(ptr::null(), |meta| meta.name.as_ptr())
    })
}

/// Returns the number of inputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_num_inputs(meta: *const rl_meta) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(0, |meta| meta.inputs.len())
    })
}

/// Returns the number of outputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_num_outputs(meta: *const rl_meta) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(0, |meta| meta.outputs.len())
    })
}

/// Returns the number of attributes: the parameters and buffers that the program names. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_num_attributes(meta: *const rl_meta) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(0, |meta| meta.attributes.len())
    })
}

/// Describes an input. The caller must set `info->struct_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_input(meta: *const rl_meta, index: usize, info: *mut rl_value_info) -> *mut rl_status {
    // SAFETY: as for `describe`.
    guard(|| unsafe { describe(meta, "input", |meta| &meta.inputs, index, info) })
}

/// Describes an output. The caller must set `info->struct_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_output(
    meta: *const rl_meta,
    index: usize,
    info: *mut rl_value_info,
) -> *mut rl_status {
    // SAFETY: as for `describe`.
    guard(|| unsafe { describe(meta, "output", |meta| &meta.outputs, index, info) })
}

/// Describes an attribute. The caller must set `info->struct_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_attribute(
    meta: *const rl_meta,
    index: usize,
    info: *mut rl_value_info,
) -> *mut rl_status {
    // SAFETY: as for `describe`.
    guard(|| unsafe { describe(meta, "attribute", |meta| &meta.attributes, index, info) })
}

/// # Safety
/// `meta` is NULL or a live object. `info` is NULL or a variable of the size that its first field says.
unsafe fn describe(
    meta: *const rl_meta,
    what: &str,
    infos: impl FnOnce(&rl_meta) -> &Vec<Info>,
    index: usize,
    info: *mut rl_value_info,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let meta = unsafe { reference(meta, "meta") }?;
    let infos = infos(meta);
    let found = infos.get(index).ok_or_else(|| {
        let name = meta.name.to_string_lossy();
        Status::invalid(format!("`{name}` has no {what} {index}: it has {}", infos.len()))
    })?;
    // SAFETY: as the caller promises.
    unsafe { set_sized(info, "info", |size| found.to_c(size)) }
}

/// Returns the name of a backend that runs a part of the method; NULL after the last. A backend that runs several parts
/// is listed once for each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_backend(meta: *const rl_meta, index: usize) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live object.
        let name = unsafe { meta.as_ref() }.and_then(|meta| meta.backends.get(index));
        name.map_or(ptr::null(), |name| name.as_ptr())
    })
}

/// Returns the full name of an operator that the method calls, such as `aten::add.out`; NULL after the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_operator(meta: *const rl_meta, index: usize) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live object.
        let name = unsafe { meta.as_ref() }.and_then(|meta| meta.operators.get(index));
        name.map_or(ptr::null(), |name| name.as_ptr())
    })
}

/// Returns the number of planned buffers; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_num_planned_buffers(meta: *const rl_meta) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(0, |meta| meta.planned_buffers.len())
    })
}

/// Returns the bytes of a planned buffer; 0 if there is no such buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_planned_buffer_size(meta: *const rl_meta, index: usize) -> u64 {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        let size = unsafe { meta.as_ref() }.and_then(|meta| meta.planned_buffers.get(index));
        size.copied().unwrap_or(0)
    })
}

/// Returns the number of instructions; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_num_instructions(meta: *const rl_meta) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or a live object.
        unsafe { meta.as_ref() }.map_or(0, |meta| meta.num_instructions)
    })
}

/// Frees a description. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_meta_free(meta: *mut rl_meta) {
    // SAFETY: NULL or an object that the caller uses no more.
    unsafe { free(meta) }
}
