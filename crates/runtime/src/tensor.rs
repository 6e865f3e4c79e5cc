//! Tensors: the state that a method keeps for each, and the borrowed views that operators get.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use rushlight_format::{ScalarType, pte::ShapeDynamism};

use crate::element::Element;
use crate::error::{Detail, Error, Result};
use crate::fault::Fault;

pub use rushlight_format::pte::MAX_RANK;

/// Read access to a dense tensor.
///
/// `sizes` and `strides` are in logical (PyTorch) order, strides in elements. The data is dense: `dim_order` lists
/// the dimensions from the outermost to the innermost in memory, and `strides` follow from it.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    state: &'a TensorState<'a>,
    /// The elements, aligned for the element type. The length follows from the sizes, except while temporary memory is
    /// sized at load, when there is no data.
    data: &'a [u8],
}

impl<'a> Tensor<'a> {
    #[inline]
    pub fn dtype(&self) -> ScalarType {
        self.state.dtype
    }

    #[inline]
    pub fn rank(&self) -> usize {
        self.state.rank()
    }

    #[inline]
    pub fn sizes(&self) -> &'a [usize] {
        self.state.sizes()
    }

    /// Distance in elements between neighbours along each dimension.
    #[inline]
    pub fn strides(&self) -> &'a [usize] {
        self.state.strides()
    }

    #[inline]
    pub fn dim_order(&self) -> &'a [u8] {
        self.state.dim_order
    }

    /// Size of dimension `dim`; 1 if the tensor has no such dimension.
    pub fn size(&self, dim: usize) -> usize {
        self.sizes().get(dim).copied().unwrap_or(1)
    }

    #[inline]
    pub fn numel(&self) -> usize {
        self.state.nbytes.get() / self.dtype().size()
    }

    /// True if both have the same order of elements in memory.
    #[inline(always)]
    pub fn has_layout_of(&self, other: &TensorMut<'_>) -> bool {
        self.state.has_layout_of(other.state)
    }

    /// The elements as raw bytes, in memory order.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// True if the memory order is the logical order (dimension 0 outermost).
    pub fn is_contiguous(&self) -> bool {
        is_identity(self.dim_order())
    }

    /// The elements in memory order. Fails if `T` is not the tensor's type.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        match self.elements() {
            Some(elements) => Ok(elements),
            None => Err(Detail::ElementType { expected: T::DTYPE, got: self.dtype() }.into()),
        }
    }

    /// [`as_slice`](Self::as_slice) without an error, so that the result stays in registers.
    #[inline(always)]
    pub(crate) fn elements<T: Element>(&self) -> Option<&'a [T]> {
        if self.dtype() != T::DTYPE {
            return None;
        }
        // SAFETY: `data` is aligned for the tensor's type and holds whole elements (upheld by every constructor of
        // `Tensor`); `T` is the plain type of that dtype, for which every bit pattern is valid (`Element` is sealed).
        Some(unsafe { slice::from_raw_parts(self.data.as_ptr().cast(), self.data.len() / size_of::<T>()) })
    }
}

impl core::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {:?}", self.dtype(), self.sizes())
    }
}

/// Exclusive access to a tensor that the operator writes: an `out` argument, or one that is updated in place.
pub struct TensorMut<'a> {
    state: &'a TensorState<'a>,
    data: NonNull<u8>,
    exclusive: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    #[inline]
    pub fn dtype(&self) -> ScalarType {
        self.state.dtype
    }

    #[inline]
    pub fn rank(&self) -> usize {
        self.state.dim_order.len()
    }

    #[inline]
    pub fn sizes(&self) -> &[usize] {
        self.state.sizes()
    }

    #[inline]
    pub fn strides(&self) -> &[usize] {
        self.state.strides()
    }

    #[inline]
    pub fn dim_order(&self) -> &'a [u8] {
        self.state.dim_order
    }

    /// Size of dimension `dim`; 1 if the tensor has no such dimension.
    pub fn size(&self, dim: usize) -> usize {
        self.sizes().get(dim).copied().unwrap_or(1)
    }

    #[inline]
    pub fn numel(&self) -> usize {
        self.state.nbytes.get() / self.dtype().size()
    }

    pub fn is_contiguous(&self) -> bool {
        is_identity(self.state.dim_order)
    }

    /// Sets the tensor's sizes. The rank cannot change. A static tensor accepts only its own sizes. A bounded one accepts
    /// sizes that fit its memory.
    #[inline]
    pub fn resize(&mut self, sizes: &[usize]) -> Result<()> {
        self.state.resize(sizes)?;
        self.data = self.state.require_data()?;
        Ok(())
    }

    /// The elements in memory order, as raw bytes.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `data` points at `state.nbytes` initialized bytes or more (see `require_data`), which no other view
        // reaches while this one lives: the method's load checked that the operator's written tensors overlap no other
        // argument, and `KernelContext` hands each of them out once.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.state.nbytes.get()) }
    }

    /// The elements in memory order. Fails if `T` is not the tensor's type.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        // The same tensor, reborrowed.
        let lent = TensorMut { state: self.state, data: self.data, exclusive: PhantomData };
        lent.into_elements().ok_or_else(|| Detail::ElementType { expected: T::DTYPE, got: self.dtype() }.into())
    }

    /// The elements for the lifetime of the original borrow, if `T` is the tensor's type.
    #[inline(always)]
    pub(crate) fn into_elements<T: Element>(self) -> Option<&'a mut [T]> {
        if self.dtype() != T::DTYPE {
            return None;
        }
        let len = self.state.nbytes.get() / size_of::<T>();
        // SAFETY: as for `bytes_mut` and `Tensor::elements`; `self` is gone, so the slice stays the only way to the data.
        Some(unsafe { slice::from_raw_parts_mut(self.data.as_ptr().cast(), len) })
    }

    /// Reads the tensor while it is borrowed for writing, for operators that update it in place.
    pub fn as_tensor(&self) -> Tensor<'_> {
        self.state.view(self.data)
    }
}

impl core::fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_tensor().fmt(f)
    }
}

/// A tensor of a method: fixed properties, current sizes, and the place of its data.
pub(crate) struct TensorState<'m> {
    pub(crate) dtype: ScalarType,
    pub(crate) dynamism: ShapeDynamism,
    pub(crate) dim_order: &'m [u8],
    /// Sizes, then strides, then the sizes at load (the upper bounds): `3 * rank` entries.
    dims: &'m [Cell<usize>],
    /// Bytes of the current sizes.
    nbytes: Cell<usize>,
    /// Bytes of the sizes at load, which are the upper bound.
    pub(crate) bound: usize,
    /// Bytes of the memory at `data`.
    room: Cell<usize>,
    data: Cell<Option<NonNull<u8>>>,
    /// True if `data` changes between or during executions.
    rebound: Cell<bool>,
    /// The program's access to the memory of this tensor.
    pub(crate) access: Access,
}

/// A program's access to a tensor's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A constant of the file.
    ReadOnly,
    /// Part of a planned buffer.
    ReadWrite,
    /// Bound for each execution: an unplanned input or output.
    Bound,
}

impl<'m> TensorState<'m> {
    /// Makes the state of a tensor. `dims` has `3 * rank` entries and starts with the sizes; `bound` is their size in
    /// bytes.
    pub(crate) fn new(
        dtype: ScalarType,
        dynamism: ShapeDynamism,
        dim_order: &'m [u8],
        dims: &'m [Cell<usize>],
        bound: usize,
        access: Access,
    ) -> Self {
        let (nbytes, room, data) = (Cell::new(bound), Cell::new(0), Cell::new(None));
        let rebound = Cell::new(access == Access::Bound);
        let state = Self { dtype, dynamism, dim_order, dims, nbytes, bound, room, data, rebound, access };
        for (size, bound) in dims.iter().zip(dims.iter().skip(2 * dim_order.len())) {
            bound.set(size.get());
        }
        state.update_strides();
        state
    }

    #[inline]
    pub(crate) fn rank(&self) -> usize {
        self.dim_order.len()
    }

    pub(crate) fn nbytes(&self) -> usize {
        self.nbytes.get()
    }

    #[inline]
    pub(crate) fn sizes(&self) -> &[usize] {
        self.dims_at(0)
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[usize] {
        self.dims_at(1)
    }

    /// The sizes at load, which bound the later ones.
    pub(crate) fn bounds(&self) -> &[usize] {
        self.dims_at(2)
    }

    #[inline]
    fn dims_at(&self, part: usize) -> &[usize] {
        let rank = self.rank();
        let cells = &self.dims[part * rank..(part + 1) * rank];
        // SAFETY: `Cell<usize>` has the layout of `usize`. The cells change only in `resize`, which runs through a
        // `TensorMut` or between instructions; the load-time check keeps a written tensor apart from every other
        // argument of its instruction, so no slice from here lives across the change (a `TensorMut`'s own slices
        // borrow it, and `resize` needs it exclusively).
        unsafe { slice::from_raw_parts(cells.as_ptr().cast(), rank) }
    }

    fn update_strides(&self) {
        let rank = self.rank();
        let mut stride = 1usize;
        for &dim in self.dim_order.iter().rev() {
            let dim = dim as usize;
            if let (Some(size), Some(slot)) = (self.dims.get(dim), self.dims.get(rank + dim)) {
                slot.set(stride);
                stride = stride.wrapping_mul(size.get().max(1));
            }
        }
    }

    #[inline]
    pub(crate) fn resize(&self, sizes: &[usize]) -> Result<()> {
        let own = self.sizes();
        // Compared without a call, which would take longer: most tensors have few dimensions and keep their sizes.
        if sizes.len() == own.len() && sizes.iter().zip(own).all(|(a, b)| a == b) {
            return Ok(());
        }
        self.change_sizes(sizes)
    }

    #[inline(never)]
    fn change_sizes(&self, sizes: &[usize]) -> Result<()> {
        let rank = self.rank();
        if sizes.len() != rank {
            return Err(Error::fault(Fault::OutputRank, rank, sizes.len()));
        }
        if self.dynamism == ShapeDynamism::Static {
            let (dim, (&expected, &got)) =
                self.sizes().iter().zip(sizes).enumerate().find(|(_, (a, b))| a != b).unwrap_or((0, (&0, &0)));
            return Err(Detail::Size { dim, expected, got }.into());
        }
        let numel = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
        let nbytes = numel.and_then(|n| n.checked_mul(self.dtype.size())).filter(|&n| n <= self.bound);
        let Some(nbytes) = nbytes else {
            let bound = self.bound / self.dtype.size();
            return Err(Detail::Elements { bound, got: numel.unwrap_or(usize::MAX) }.into());
        };
        self.set_sizes(sizes, nbytes);
        Ok(())
    }

    /// Sets all sizes of the tensor. They take `nbytes` bytes, at most those of its upper bounds.
    pub(crate) fn set_sizes(&self, sizes: &[usize], nbytes: usize) {
        for (cell, &size) in self.dims.iter().zip(sizes) {
            cell.set(size);
        }
        self.nbytes.set(nbytes);
        self.update_strides();
    }

    /// Binds the tensor to the `room` bytes at `data`.
    ///
    /// # Safety
    /// `data` is aligned for the tensor's type and points at `room` initialized bytes that stay valid until the next
    /// `bind` or `unbind`. They are writable if the load-time check counts them as such, and nobody else accesses them
    /// while the method executes.
    pub(crate) unsafe fn bind(&self, data: NonNull<u8>, room: usize) {
        self.data.set(Some(data));
        self.room.set(room);
    }

    pub(crate) fn unbind(&self) {
        self.data.set(None);
        self.room.set(0);
    }

    /// Shares the memory of `other`, a tensor of the same type with at least as many elements.
    pub(crate) fn share(&self, other: &TensorState<'_>) -> Result<()> {
        if self.dtype != other.dtype {
            return Err(Detail::ElementType { expected: self.dtype, got: other.dtype }.into());
        }
        if self.nbytes.get() > other.nbytes.get() {
            let size = self.dtype.size();
            return Err(Detail::Elements { bound: other.nbytes.get() / size, got: self.nbytes.get() / size }.into());
        }
        self.data.set(other.data.get());
        self.room.set(other.room.get());
        Ok(())
    }

    /// The memory that the tensor uses now.
    pub(crate) fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        self.data.get().map(|data| (data, self.room.get()))
    }

    pub(crate) fn mark_rebound(&self) {
        self.rebound.set(true);
    }

    pub(crate) fn is_rebound(&self) -> bool {
        self.rebound.get()
    }

    #[inline]
    fn require_data(&self) -> Result<NonNull<u8>> {
        match self.data.get() {
            Some(data) if self.nbytes.get() <= self.room.get() => Ok(data),
            other => self.require_other_data(other),
        }
    }

    #[cold]
    fn require_other_data(&self, data: Option<NonNull<u8>>) -> Result<NonNull<u8>> {
        match data {
            Some(_) => {
                let size = self.dtype.size();
                Err(Detail::Elements { bound: self.room.get() / size, got: self.nbytes.get() / size }.into())
            }
            None if self.nbytes.get() == 0 => Ok(NonNull::<u128>::dangling().cast()),
            None => Err(Fault::NoMemory.into()),
        }
    }

    /// True if both have the same order of elements in memory.
    #[inline(always)]
    pub(crate) fn has_layout_of(&self, other: &TensorState<'_>) -> bool {
        // Sizes and dim orders are short: comparing them without calls is faster.
        self.rank() == other.rank()
            && self.sizes().iter().zip(other.sizes()).all(|(a, b)| a == b)
            && (self.rank() < 2 || self.dim_order.iter().zip(other.dim_order).all(|(a, b)| a == b))
    }

    /// The tensor, if its memory holds the current sizes.
    #[inline]
    pub(crate) fn bound_tensor(&self) -> Option<Tensor<'_>> {
        self.data.get().filter(|_| self.nbytes.get() <= self.room.get()).map(|data| self.view(data))
    }

    /// [`tensor_mut`](Self::tensor_mut), if its memory holds the current sizes.
    #[inline]
    pub(crate) fn bound_tensor_mut(&'m self) -> Option<TensorMut<'m>> {
        let data = self.data.get().filter(|_| self.nbytes.get() <= self.room.get())?;
        Some(TensorMut { state: self, data, exclusive: PhantomData })
    }

    #[inline]
    pub(crate) fn tensor(&self) -> Result<Tensor<'_>> {
        Ok(self.view(self.require_data()?))
    }

    /// The caller makes sure that the tensor is handed out for writing once at a time (see [`TensorMut::bytes_mut`]).
    #[inline]
    pub(crate) fn tensor_mut(&'m self) -> Result<TensorMut<'m>> {
        Ok(TensorMut { state: self, data: self.require_data()?, exclusive: PhantomData })
    }

    #[inline]
    fn view(&self, data: NonNull<u8>) -> Tensor<'_> {
        // SAFETY: `data` comes from `require_data` or the same check: it is dangling for no bytes, else memory of
        // `room` bytes as `bind` demands, and `nbytes <= room`.
        let bytes = unsafe { slice::from_raw_parts(data.as_ptr(), self.nbytes.get()) };
        Tensor { state: self, data: bytes }
    }

    /// The tensor without its data, to compute the size of temporary memory.
    pub(crate) fn shape_only(&self) -> Tensor<'_> {
        Tensor { state: self, data: &[] }
    }
}

/// A tensor whose memory changes between or during executions, and its own memory.
pub(crate) struct Rebound<'m> {
    tensor: &'m TensorState<'m>,
    home: Option<(NonNull<u8>, usize)>,
}

impl<'m> Rebound<'m> {
    /// Records the tensor's memory at load: none for unplanned tensors.
    pub(crate) fn new(tensor: &'m TensorState<'m>) -> Self {
        Self { tensor, home: tensor.memory() }
    }

    /// Binds the tensor to its own memory again; a tensor without one is unbound.
    pub(crate) fn restore(&self) {
        self.tensor.data.set(self.home.map(|(data, _)| data));
        self.tensor.room.set(self.home.map_or(0, |(_, room)| room));
    }
}

pub(crate) fn is_identity(dim_order: &[u8]) -> bool {
    dim_order.iter().enumerate().all(|(i, &d)| d as usize == i)
}

/// The elements as raw bytes.
pub(crate) fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, and any memory is aligned for bytes.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes as elements, if they are aligned for `T`.
pub(crate) fn from_bytes<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    let start = bytes.as_ptr().cast::<T>();
    if !start.is_aligned() {
        return None;
    }
    // SAFETY: aligned (just checked), inside `bytes`, and every bit pattern is a valid `Element`.
    Some(unsafe { slice::from_raw_parts(start, bytes.len() / size_of::<T>()) })
}
