//! Inputs and outputs of a method.

use core::ptr::NonNull;

use rushlight_format::ScalarType;

use crate::element::Element;
use crate::error::{Detail, Error, Result};
use crate::fault::{Fault, Kind};
use crate::memory::Lent;
use crate::strided::{self, Strided};
use crate::tensor::{MAX_RANK, Tensor, TensorState};

/// A tensor of the caller's: element type, sizes, strides and bytes.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    pub(crate) dtype: ScalarType,
    pub(crate) sizes: &'a [usize],
    /// In elements; `None` for row-major.
    pub(crate) strides: Option<&'a [usize]>,
    pub(crate) data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A row-major tensor. Fails if `data` is not as long as the sizes say or the rank is above 16.
    pub fn new(dtype: ScalarType, sizes: &'a [usize], data: &'a [u8]) -> Result<Self> {
        let nbytes = dense_bytes(dtype, sizes)?;
        if nbytes != data.len() {
            return Err(Error::fault(Fault::TensorBytes, nbytes, data.len()));
        }
        Ok(Self { dtype, sizes, strides: None, data })
    }

    /// A row-major tensor over a slice of elements.
    pub fn of<T: Element>(sizes: &'a [usize], data: &'a [T]) -> Result<Self> {
        Self::new(T::DTYPE, sizes, crate::tensor::as_bytes(data))
    }

    /// A tensor whose neighbours along dimension `i` are `strides[i]` elements apart. `data` starts at element 0 and
    /// holds the furthest element.
    pub fn strided(dtype: ScalarType, sizes: &'a [usize], strides: &'a [usize], data: &'a [u8]) -> Result<Self> {
        if strides.len() != sizes.len() {
            return Err(Error::fault(Fault::Strides, sizes.len(), strides.len()));
        }
        let numel = dense_bytes(dtype, sizes)? / dtype.size();
        let last = sizes
            .iter()
            .zip(strides)
            .try_fold(0usize, |at, (&size, &stride)| at.checked_add(size.saturating_sub(1).checked_mul(stride)?));
        let needed = if numel == 0 { Some(0) } else { last.and_then(|n| n.checked_add(1)?.checked_mul(dtype.size())) };
        match needed {
            Some(needed) if needed <= data.len() => Ok(Self { dtype, sizes, strides: Some(strides), data }),
            needed => Err(Error::fault(Fault::StridedData, needed.unwrap_or(usize::MAX), data.len())),
        }
    }

    pub fn dtype(&self) -> ScalarType {
        self.dtype
    }

    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    /// The bytes that it was made of.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The elements, row-major. Fails if `T` is not the tensor's type, the tensor has strides, or the data is not
    /// aligned for `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        if self.dtype != T::DTYPE {
            return Err(Detail::ElementType { expected: T::DTYPE, got: self.dtype }.into());
        }
        if self.strides.is_some() {
            return Err(Fault::HasStrides.into());
        }
        let aligned = crate::tensor::from_bytes(self.data);
        aligned.ok_or_else(|| Error::fault(Fault::UnalignedData, align_of::<T>(), 0))
    }

    /// Copies elements into `to` in this dimension order, until `to` is full.
    pub fn copy_ordered(&self, dim_order: &[u8], to: &mut [u8]) {
        let from = Strided { data: self.data, width: self.dtype.size(), sizes: self.sizes, strides: self.strides };
        strided::copy_ordered(from, dim_order, to);
    }

    /// Copies elements into `to` in row-major order, until `to` is full.
    pub fn copy_to_row_major(&self, to: &mut [u8]) {
        match self.data.get(..to.len()) {
            Some(from) if self.strides.is_none() => strided::copy_bytes(to, from),
            _ => self.copy_ordered(strided::ROW_MAJOR.get(..self.sizes.len()).unwrap_or_default(), to),
        }
    }

    /// Copies the view into the tensor's memory, if it has any. Type and sizes of both are equal.
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(crate) fn copy_to<'m>(&self, state: &'m TensorState<'m>) -> Option<()> {
        let mut tensor = state.bound_tensor_mut()?;
        let to = tensor.bytes_mut();
        match self.data.get(..to.len()) {
            Some(from) if strided::is_dense(self.sizes, self.strides, state.strides()) => strided::copy_bytes(to, from),
            _ => self.copy_ordered(state.dim_order, to),
        }
        Some(())
    }
}

impl<'a> From<Tensor<'a>> for TensorView<'a> {
    fn from(tensor: Tensor<'a>) -> Self {
        let strides = Some(tensor.strides()).filter(|_| !tensor.is_contiguous());
        Self { dtype: tensor.dtype(), sizes: tensor.sizes(), strides, data: tensor.bytes() }
    }
}

impl core::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.sizes)
    }
}

/// A tensor of the caller's that the method may write to.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    dtype: ScalarType,
    sizes: &'a [usize],
    strides: Option<&'a [usize]>,
    data: Lent<'a>,
}

impl<'a> TensorViewMut<'a> {
    /// A row-major tensor. Fails if `data` is not as long as the sizes say or the rank is above 16.
    pub fn new(dtype: ScalarType, sizes: &'a [usize], data: &'a mut [u8]) -> Result<Self> {
        TensorView::new(dtype, sizes, data)?;
        Ok(Self { dtype, sizes, strides: None, data: Lent::new(data) })
    }

    /// A tensor with strides, as [`TensorView::strided`].
    pub fn strided(dtype: ScalarType, sizes: &'a [usize], strides: &'a [usize], data: &'a mut [u8]) -> Result<Self> {
        TensorView::strided(dtype, sizes, strides, data)?;
        Ok(Self { dtype, sizes, strides: Some(strides), data: Lent::new(data) })
    }

    pub(crate) fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, sizes: self.sizes, strides: self.strides, data: self.data.bytes() }
    }

    /// Start of the writable data.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.data.start()
    }
}

fn dense_bytes(dtype: ScalarType, sizes: &[usize]) -> Result<usize> {
    if sizes.len() > MAX_RANK {
        return Err(Error::fault(Fault::TensorRank, sizes.len(), 0));
    }
    let numel = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    let nbytes = numel.and_then(|n| n.checked_mul(dtype.size())).filter(|&n| isize::try_from(n).is_ok());
    nbytes.ok_or(Fault::TensorSize.into())
}

/// One input of a method.
#[derive(Debug)]
pub enum Input<'a> {
    /// Copied if the program planned memory for the input, else read in place.
    Tensor(TensorView<'a>),
    /// As `Tensor`, for an unplanned input that the program updates in place.
    TensorMut(TensorViewMut<'a>),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(&'a str),
    None,
}

impl Input<'_> {
    /// The sizes of a tensor.
    pub(crate) fn sizes(&self) -> Option<&[usize]> {
        match self {
            Self::Tensor(view) => Some(view.sizes),
            Self::TensorMut(view) => Some(view.sizes),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Tensor(_) | Self::TensorMut(_) => Kind::Tensor,
            Self::Int(_) => Kind::Int,
            Self::Double(_) => Kind::Double,
            Self::Bool(_) => Kind::Bool,
            Self::String(_) => Kind::String,
            Self::None => Kind::None,
        }
    }
}

impl<'a> From<TensorView<'a>> for Input<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self::Tensor(view)
    }
}

/// Memory for an output that the program did not plan.
#[derive(Debug)]
pub struct OutputBuffer<'a> {
    /// Position among the method's outputs.
    pub index: usize,
    /// At least the bytes of the output's upper bound, aligned for its element type.
    pub data: &'a mut [u8],
}

/// One output of a method.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    Tensor(Tensor<'a>),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(&'a str),
    None,
}
