//! The values of a method: tensors, numbers, strings and lists of them.

use crate::ScalarType;
use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Field, Table, Vector};

use super::instruction::check_indices;
use super::program::Program;

/// Tensors of more dimensions are refused, as every ExecuTorch runtime does.
pub const MAX_RANK: usize = 16;

/// One entry of a plan's value table. Lists of tensors and of integers hold indices of other values,
/// because their elements may change while the method runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    None,
    Int(i64),
    Bool(bool),
    Double(f64),
    String(&'a str),
    Tensor(TensorSpec<'a>),
    /// Indices of `Int` values.
    IntList(Vector<'a, u32>),
    DoubleList(Vector<'a, f64>),
    BoolList(Vector<'a, bool>),
    /// Indices of `Tensor` values.
    TensorList(Vector<'a, u32>),
    OptionalTensorList(OptionalIndices<'a>),
}

/// Indices of tensors, some of which are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionalIndices<'a>(pub(crate) Vector<'a, i32>);

impl<'a> OptionalIndices<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry at `at`, if the list is that long: an index or, for an absent tensor, `None`.
    pub fn get(&self, at: usize) -> Option<Option<u32>> {
        self.0.get(at).map(|i| u32::try_from(i).ok())
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<u32>> + use<'a> {
        self.0.iter().map(|i| u32::try_from(i).ok())
    }
}

/// What a file says of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorSpec<'a> {
    pub scalar_type: ScalarType,
    /// Each size is at least 0, and there are at most [`MAX_RANK`]. For a dynamic shape they are upper bounds.
    pub sizes: Vector<'a, i32>,
    /// Dimensions from the outermost to the innermost in memory: a permutation of `0..rank`.
    pub dim_order: &'a [u8],
    pub shape_dynamism: ShapeDynamism,
    pub storage: TensorStorage<'a>,
    pub requires_grad: bool,
    pub device: Device,
    /// The product of the sizes.
    pub numel: u64,
    /// `numel` times the element size. Neither it nor any stride computed from the sizes (with 0
    /// counted as 1) exceeds `isize::MAX`.
    pub nbytes: u64,
    /// The name of a parameter or buffer in the exported module, if the file records it.
    pub fully_qualified_name: Option<&'a str>,
}

/// Where the data of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorStorage<'a> {
    /// In the program: [`Program::constant`](super::Program::constant).
    Constant { index: u32 },
    /// In planned buffer `memory_id`, which counts from 1, at byte `offset`.
    Planned { memory_id: u32, offset: u64 },
    /// Planned, and filled at load from [`Program::mutable_data`](super::Program::mutable_data).
    PlannedInit { memory_id: u32, offset: u64, index: u32 },
    /// Provided while running: an input or output that was not planned.
    Unplanned,
    /// A constant of this name in the named data of a program or a `.ptd` file.
    External { name: &'a str },
    /// Planned, and filled at load from external data of this name.
    ExternalPlanned { name: &'a str, memory_id: u32, offset: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ShapeDynamism {
    Static = 0,
    /// The sizes in the file are upper bounds.
    DynamicBound = 1,
    DynamicUnbound = 2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceType {
    #[default]
    Cpu = 0,
    Cuda = 1,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub kind: DeviceType,
    pub index: i8,
}

const VAL_TYPE: Field = Field::new(0, "EValue", "val_type");
const VAL: Field = Field::new(1, "EValue", "val");
const INT_VAL: Field = Field::new(0, "Int", "int_val");
const BOOL_VAL: Field = Field::new(0, "Bool", "bool_val");
const DOUBLE_VAL: Field = Field::new(0, "Double", "double_val");
const STRING_VAL: Field = Field::new(0, "String", "string_val");
const LIST_ITEMS: Field = Field::new(0, "List", "items");

const SCALAR_TYPE: Field = Field::new(0, "Tensor", "scalar_type");
const STORAGE_OFFSET: Field = Field::new(1, "Tensor", "storage_offset");
const SIZES: Field = Field::new(2, "Tensor", "sizes");
const DIM_ORDER: Field = Field::new(3, "Tensor", "dim_order");
const REQUIRES_GRAD: Field = Field::new(4, "Tensor", "requires_grad");
const DATA_BUFFER_IDX: Field = Field::new(5, "Tensor", "data_buffer_idx");
const ALLOCATION_INFO: Field = Field::new(6, "Tensor", "allocation_info");
const SHAPE_DYNAMISM: Field = Field::new(8, "Tensor", "shape_dynamism");
const EXTRA_TENSOR_INFO: Field = Field::new(9, "Tensor", "extra_tensor_info");

const MEMORY_ID: Field = Field::new(0, "AllocationDetails", "memory_id");
const OFFSET_LOW: Field = Field::new(1, "AllocationDetails", "memory_offset_low");
const OFFSET_HIGH: Field = Field::new(2, "AllocationDetails", "memory_offset_high");

const FULLY_QUALIFIED_NAME: Field = Field::new(1, "ExtraTensorInfo", "fully_qualified_name");
const LOCATION: Field = Field::new(2, "ExtraTensorInfo", "location");
const DEVICE_TYPE: Field = Field::new(3, "ExtraTensorInfo", "device_type");
const DEVICE_INDEX: Field = Field::new(4, "ExtraTensorInfo", "device_index");

/// What the values of a plan are checked against.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'p, 'a> {
    pub program: &'p Program<'a>,
    pub num_values: usize,
    /// By memory id; entry 0 is a dummy.
    pub buffer_sizes: Vector<'a, i64>,
}

impl<'a> Value<'a> {
    /// Decodes a value and checks all that can be checked without its plan.
    #[inline]
    pub(crate) fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        let tag = table.scalar(&VAL_TYPE, 0u8)?;
        if tag == 1 {
            return Ok(Self::None);
        }
        let val = table.required_table(&VAL)?;
        Ok(match tag {
            2 => Self::Int(val.scalar(&INT_VAL, 0)?),
            3 => Self::Bool(val.scalar(&BOOL_VAL, false)?),
            4 => Self::Double(val.scalar(&DOUBLE_VAL, 0.0)?),
            5 => Self::Tensor(TensorSpec::decode(val)?),
            6 => Self::String(val.required_string(&STRING_VAL)?),
            7 => Self::IntList(val.required_vector(&LIST_ITEMS)?),
            8 => Self::DoubleList(val.required_vector(&LIST_ITEMS)?),
            9 => Self::BoolList(val.required_vector(&LIST_ITEMS)?),
            10 => Self::TensorList(val.required_vector(&LIST_ITEMS)?),
            11 => Self::OptionalTensorList(OptionalIndices(val.required_vector(&LIST_ITEMS)?)),
            tag => return Err(table.error(&VAL_TYPE, ErrorKind::UnknownTag { tag: u32::from(tag) })),
        })
    }

    /// Checks a decoded value against the plan and program it belongs to.
    #[inline]
    pub(crate) fn check(&self, table: Table<'a>, scope: &Scope<'_, 'a>) -> Result<(), FormatError> {
        match self {
            Self::Tensor(spec) => match table.table(&VAL)? {
                Some(tensor) => spec.check(tensor, scope),
                None => Ok(()),
            },
            Self::IntList(items) | Self::TensorList(items) => {
                check_indices(table, &LIST_ITEMS, *items, scope.num_values)
            }
            Self::OptionalTensorList(items) => {
                match items.0.iter().find(|i| *i < -1 || *i as i64 >= scope.num_values as i64) {
                    Some(value) if value < 0 => {
                        Err(table.error(&LIST_ITEMS, ErrorKind::Negative { value: i64::from(value) }))
                    }
                    Some(value) => {
                        let kind = ErrorKind::OutOfRange { value: value as u64, limit: scope.num_values as u64 };
                        Err(table.error(&LIST_ITEMS, kind))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the file that decoding this value read, beyond a constant.
    #[inline]
    pub(crate) fn cost(&self) -> u64 {
        let bytes = match self {
            Self::String(text) => text.len(),
            Self::IntList(items) | Self::TensorList(items) => 4 * items.len(),
            Self::OptionalTensorList(items) => 4 * items.len(),
            Self::Tensor(TensorSpec { fully_qualified_name: Some(name), .. }) => name.len(),
            _ => 0,
        };
        bytes as u64
    }
}

impl<'a> TensorSpec<'a> {
    #[inline]
    fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        let code = table.scalar(&SCALAR_TYPE, 0u8)?;
        let Some(scalar_type) = ScalarType::from_code(code) else {
            return Err(table.error(&SCALAR_TYPE, ErrorKind::UnknownTag { tag: u32::from(code) }));
        };
        if table.scalar(&STORAGE_OFFSET, 0i32)? != 0 {
            return Err(
                table.error(&STORAGE_OFFSET, ErrorKind::Unsupported { what: "an offset into a tensor's storage" })
            );
        }
        let sizes = table.required_vector::<i32>(&SIZES)?;
        let numel = numel(table, sizes, scalar_type)?;
        let dim_order = table.required_vector::<u8>(&DIM_ORDER)?.as_bytes();
        if !is_permutation(dim_order, sizes.len()) {
            return Err(table.error(&DIM_ORDER, ErrorKind::InvalidDimOrder));
        }
        let shape_dynamism = match table.scalar(&SHAPE_DYNAMISM, 0u8)? {
            0 => ShapeDynamism::Static,
            1 => ShapeDynamism::DynamicBound,
            2 => ShapeDynamism::DynamicUnbound,
            tag => return Err(table.error(&SHAPE_DYNAMISM, ErrorKind::UnknownTag { tag: u32::from(tag) })),
        };
        let (mut device, mut fully_qualified_name, mut external) = (Device::default(), None, false);
        if let Some(extra) = table.table(&EXTRA_TENSOR_INFO)? {
            device = decode_device(extra, &DEVICE_TYPE, &DEVICE_INDEX)?;
            fully_qualified_name = extra.string(&FULLY_QUALIFIED_NAME)?;
            external = match extra.scalar(&LOCATION, 0u8)? {
                0 => false,
                1 => true,
                tag => return Err(extra.error(&LOCATION, ErrorKind::UnknownTag { tag: u32::from(tag) })),
            };
            if external && fully_qualified_name.is_none() {
                return Err(extra.error(&FULLY_QUALIFIED_NAME, ErrorKind::Missing));
            }
        }
        let allocation = match table.table(&ALLOCATION_INFO)? {
            Some(details) => {
                let low = details.scalar(&OFFSET_LOW, 0u32)?;
                let high = details.scalar(&OFFSET_HIGH, 0u32)?;
                Some((details.scalar(&MEMORY_ID, 0u32)?, u64::from(low) | u64::from(high) << 32))
            }
            None => None,
        };
        let index = table.scalar(&DATA_BUFFER_IDX, 0u32)?;
        let storage = match (allocation, fully_qualified_name.filter(|_| external), index) {
            (None, Some(name), _) => TensorStorage::External { name },
            (Some((memory_id, offset)), Some(name), _) => TensorStorage::ExternalPlanned { name, memory_id, offset },
            (None, None, 0) => TensorStorage::Unplanned,
            (None, None, index) => TensorStorage::Constant { index },
            (Some((memory_id, offset)), None, 0) => TensorStorage::Planned { memory_id, offset },
            (Some((memory_id, offset)), None, index) => TensorStorage::PlannedInit { memory_id, offset, index },
        };
        Ok(Self {
            scalar_type,
            sizes,
            dim_order,
            shape_dynamism,
            storage,
            requires_grad: table.scalar(&REQUIRES_GRAD, false)?,
            device,
            numel,
            // `numel` has checked this product.
            nbytes: numel.wrapping_mul(scalar_type.size() as u64),
            fully_qualified_name,
        })
    }

    /// Checks that the data named by `storage` exists and is large enough.
    #[inline]
    fn check(&self, table: Table<'a>, scope: &Scope<'_, 'a>) -> Result<(), FormatError> {
        match self.storage {
            TensorStorage::Unplanned | TensorStorage::External { .. } => {}
            TensorStorage::Constant { index } => {
                let len = scope.program.constant(index).map(<[u8]>::len);
                self.check_data(table, index, len, scope.program.num_constants())?;
            }
            TensorStorage::PlannedInit { index, .. } => {
                let len = scope.program.mutable_data(index).map(<[u8]>::len);
                self.check_data(table, index, len, scope.program.num_mutable_data())?;
            }
            TensorStorage::Planned { .. } | TensorStorage::ExternalPlanned { .. } => {}
        }
        if let TensorStorage::Planned { memory_id, offset }
        | TensorStorage::PlannedInit { memory_id, offset, .. }
        | TensorStorage::ExternalPlanned { memory_id, offset, .. } = self.storage
        {
            let size = match memory_id {
                0 => None,
                id => scope.buffer_sizes.get(id as usize),
            };
            let Some(size) = size else {
                let limit = scope.buffer_sizes.len() as u64;
                return Err(table.error(&MEMORY_ID, ErrorKind::OutOfRange { value: u64::from(memory_id), limit }));
            };
            let end = offset.saturating_add(self.nbytes);
            if end > size as u64 {
                let kind = ErrorKind::Truncated { needed: end, available: size as u64 };
                return Err(table.error(&ALLOCATION_INFO, kind));
            }
        }
        Ok(())
    }

    #[inline]
    fn check_data(&self, table: Table<'a>, index: u32, len: Option<usize>, count: usize) -> Result<(), FormatError> {
        let kind = match len {
            Some(available) if available as u64 >= self.nbytes => return Ok(()),
            Some(available) => ErrorKind::Truncated { needed: self.nbytes, available: available as u64 },
            None => ErrorKind::OutOfRange { value: u64::from(index), limit: count as u64 },
        };
        Err(table.error(&DATA_BUFFER_IDX, kind))
    }
}

/// Reads a device from the two fields of a table that describe one.
pub(crate) fn decode_device(
    table: Table<'_>,
    kind: &'static Field,
    index: &'static Field,
) -> Result<Device, FormatError> {
    let kind = match table.scalar(kind, 0u8)? {
        0 => DeviceType::Cpu,
        1 => DeviceType::Cuda,
        tag => return Err(table.error(kind, ErrorKind::UnknownTag { tag: u32::from(tag) })),
    };
    Ok(Device { kind, index: table.scalar(index, 0i8)? })
}

/// The number of elements, after checking rank, signs and that neither bytes nor strides overflow.
#[inline]
fn numel(table: Table<'_>, sizes: Vector<'_, i32>, scalar_type: ScalarType) -> Result<u64, FormatError> {
    if sizes.len() > MAX_RANK {
        let kind = ErrorKind::OutOfRange { value: sizes.len() as u64, limit: MAX_RANK as u64 };
        return Err(table.error(&SIZES, kind));
    }
    let mut span = scalar_type.size() as u64;
    let mut empty = false;
    for size in sizes {
        if size < 0 {
            return Err(table.error(&SIZES, ErrorKind::Negative { value: i64::from(size) }));
        }
        empty |= size == 0;
        // A span is at most `isize::MAX` before, so that the product of it and a size below 2^31
        // may overflow, which saturation keeps above the bound.
        span = span.saturating_mul(u64::from(size.unsigned_abs().max(1)));
        if span > isize::MAX as u64 {
            return Err(table.error(&SIZES, ErrorKind::Overflow));
        }
    }
    Ok(if empty { 0 } else { span / scalar_type.size() as u64 })
}

/// Whether `dim_order` holds each of `0..rank` once. `rank` is at most [`MAX_RANK`].
#[inline]
fn is_permutation(dim_order: &[u8], rank: usize) -> bool {
    let seen = dim_order.iter().fold(0u32, |seen, dim| seen | 1u32.checked_shl(u32::from(*dim)).unwrap_or(0));
    dim_order.len() == rank && seen == (1u32 << rank) - 1
}
