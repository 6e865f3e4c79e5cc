//! Tensors of a program: type, sizes and storage.

use crate::ScalarType;
use crate::error::{ErrorKind, Feature};
use crate::flatbuf::{Table, Vector};
use crate::layout::{LayoutFields, TensorLayout};
use crate::schema::*;

use super::scope::Scope;

/// A tensor of a program: type, sizes and storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorSpec<'a> {
    pub scalar_type: ScalarType,
    /// Each size is at least 0, and there are at most [`MAX_RANK`](crate::MAX_RANK). For a dynamic shape they are upper bounds.
    pub sizes: Vector<'a, i32>,
    /// Dimensions from the outermost to the innermost in memory: a permutation of `0..rank`.
    pub dim_order: &'a [u8],
    pub shape_dynamism: ShapeDynamism,
    pub storage: TensorStorage<'a>,
    pub requires_grad: bool,
    pub device: Device,
    /// The product of the sizes.
    pub numel: usize,
    /// `numel` times the element size. Neither it nor any stride computed from the sizes (with 0
    /// counted as 1) exceeds `isize::MAX`.
    pub nbytes: usize,
    /// The name of a parameter or buffer in the exported module, if the file records it.
    pub fully_qualified_name: Option<&'a str>,
}

/// The storage of a tensor's data.
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

const LAYOUT: LayoutFields =
    LayoutFields { scalar_type: TENSOR_SCALAR_TYPE, sizes: TENSOR_SIZES, dim_order: TENSOR_DIM_ORDER };

impl<'a> TensorSpec<'a> {
    /// True if the tensor has this element type, these sizes and this dim order.
    pub fn has_layout(&self, layout: &TensorLayout<'_>) -> bool {
        self.scalar_type == layout.scalar_type
            && self.sizes.as_bytes() == layout.sizes.as_bytes()
            && self.dim_order == layout.dim_order
    }

    #[inline]
    pub(super) fn decode(table: Table<'_, 'a>, scope: Option<&Scope<'_, 'a>>) -> Self {
        let layout = TensorLayout::decode(table, LAYOUT);
        if table.scalar(TENSOR_STORAGE_OFFSET, 0i32) != 0 {
            let kind = ErrorKind::Unsupported { what: Feature::StorageOffset };
            table.report(TENSOR_STORAGE_OFFSET, kind);
        }
        let shape_dynamism = match table.scalar(TENSOR_SHAPE_DYNAMISM, 0u8) {
            0 => ShapeDynamism::Static,
            1 => ShapeDynamism::DynamicBound,
            2 => ShapeDynamism::DynamicUnbound,
            tag => {
                table.unknown(TENSOR_SHAPE_DYNAMISM, tag);
                ShapeDynamism::Static
            }
        };
        let (mut device, mut fully_qualified_name, mut external) = (Device::default(), None, false);
        if let Some(extra) = table.table(TENSOR_EXTRA) {
            device = decode_device(extra, EXTRA_DEVICE_TYPE, EXTRA_DEVICE_INDEX);
            fully_qualified_name = extra.string(EXTRA_FULLY_QUALIFIED_NAME);
            extra.spend(fully_qualified_name.map_or(0, str::len));
            external = match extra.scalar(EXTRA_LOCATION, 0u8) {
                0 => false,
                1 => true,
                tag => {
                    extra.unknown(EXTRA_LOCATION, tag);
                    false
                }
            };
            if external && fully_qualified_name.is_none() {
                extra.missing(EXTRA_FULLY_QUALIFIED_NAME);
            }
        }
        let allocation = table.table(TENSOR_ALLOCATION).map(|details| {
            let low = details.scalar(ALLOCATION_OFFSET_LOW, 0u32);
            let high = details.scalar(ALLOCATION_OFFSET_HIGH, 0u32);
            (details.scalar(ALLOCATION_MEMORY_ID, 0u32), u64::from(low) | u64::from(high) << 32)
        });
        let index = table.scalar(TENSOR_DATA_BUFFER_IDX, 0u32);
        let nbytes = layout.nbytes();
        if let Some(scope) = scope {
            if let Some((memory_id, offset)) = allocation {
                check_planned(table, scope, memory_id, offset, nbytes);
            }
            if index != 0 && !external {
                check_data(table, scope, index, allocation.is_some(), nbytes);
            }
        }
        let storage = match (allocation, fully_qualified_name.filter(|_| external), index) {
            (None, Some(name), _) => TensorStorage::External { name },
            (Some((memory_id, offset)), Some(name), _) => TensorStorage::ExternalPlanned { name, memory_id, offset },
            (None, None, 0) => TensorStorage::Unplanned,
            (None, None, index) => TensorStorage::Constant { index },
            (Some((memory_id, offset)), None, 0) => TensorStorage::Planned { memory_id, offset },
            (Some((memory_id, offset)), None, index) => TensorStorage::PlannedInit { memory_id, offset, index },
        };
        Self {
            scalar_type: layout.scalar_type,
            sizes: layout.sizes,
            dim_order: layout.dim_order,
            shape_dynamism,
            storage,
            requires_grad: table.scalar(TENSOR_REQUIRES_GRAD, false),
            device,
            numel: layout.numel(),
            nbytes,
            fully_qualified_name,
        }
    }
}

/// Checks that a planned tensor lies inside its buffer.
#[inline]
fn check_planned(table: Table<'_, '_>, scope: &Scope<'_, '_>, memory_id: u32, offset: u64, nbytes: usize) {
    let size = if memory_id == 0 { None } else { scope.buffer_sizes.get(memory_id as usize) };
    let Some(size) = size else {
        table.out_of_range(ALLOCATION_MEMORY_ID, u64::from(memory_id), scope.buffer_sizes.len());
        return;
    };
    table.fits(TENSOR_ALLOCATION, offset.saturating_add(nbytes as u64), size.unsigned_abs());
}

/// Checks that the program holds enough bytes for a constant or, if the tensor is planned, its initial value.
#[inline]
fn check_data(table: Table<'_, '_>, scope: &Scope<'_, '_>, index: u32, planned: bool, nbytes: usize) {
    let data = if planned { scope.program.mutable_data(index) } else { scope.program.constant(index) };
    let Some(data) = data else {
        let count = if planned { scope.program.num_mutable_data() } else { scope.program.num_constants() };
        table.out_of_range(TENSOR_DATA_BUFFER_IDX, u64::from(index), count);
        return;
    };
    table.fits(TENSOR_DATA_BUFFER_IDX, nbytes as u64, data.len() as u64);
}

/// Reads a device from the two fields of a table that describe one.
pub(crate) fn decode_device(table: Table<'_, '_>, kind: Field, index: Field) -> Device {
    let kind = match table.scalar(kind, 0u8) {
        0 => DeviceType::Cpu,
        1 => DeviceType::Cuda,
        tag => {
            table.unknown(kind, tag);
            DeviceType::Cpu
        }
    };
    Device { kind, index: table.scalar(index, 0i8) }
}
