//! Tensors and values that own their data.

use rushlight_runtime::{Element, HeapBlock, Input, ScalarType, StableBytes, TensorView};

use crate::error::Error;

/// A row-major tensor that owns its data.
pub struct Tensor {
    dtype: ScalarType,
    shape: Vec<usize>,
    data: HeapBlock,
    nbytes: usize,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(dtype: ScalarType, shape: &[usize]) -> Result<Self, Error> {
        let nbytes = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
        let nbytes = nbytes.ok_or_else(|| Error::invalid(format!("a tensor of shape {shape:?} is too large")))?;
        Ok(Self { dtype, shape: shape.to_vec(), data: HeapBlock::new(nbytes)?, nbytes })
    }

    /// A tensor with a copy of `bytes`, the elements in row-major order and native byte order.
    pub fn from_bytes(dtype: ScalarType, shape: &[usize], bytes: &[u8]) -> Result<Self, Error> {
        let mut tensor = Self::zeros(dtype, shape)?;
        if bytes.len() != tensor.nbytes {
            let (expected, got) = (tensor.nbytes, bytes.len());
            return Err(Error::invalid(format!("a tensor of shape {shape:?} takes {expected} bytes, got {got}")));
        }
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A tensor with a copy of `elements`, in row-major order.
    pub fn of<T: Element>(shape: &[usize], elements: &[T]) -> Result<Self, Error> {
        Self::copy_of(&TensorView::of(shape, elements)?)
    }

    /// A row-major copy of a tensor of any strides.
    pub fn copy_of(view: &TensorView<'_>) -> Result<Self, Error> {
        let mut tensor = Self::zeros(view.dtype(), view.sizes())?;
        view.copy_to_row_major(tensor.bytes_mut());
        Ok(tensor)
    }

    pub fn dtype(&self) -> ScalarType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as raw bytes, row-major.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes().get(..self.nbytes).unwrap_or_default()
    }

    /// The elements as raw bytes, row-major, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.bytes_mut().get_mut(..self.nbytes).unwrap_or_default()
    }

    /// The elements, row-major. Fails if `T` is not the tensor's type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], Error> {
        Ok(self.view()?.as_slice()?)
    }

    /// The tensor as an input. Fails if its rank is above 16.
    pub fn view(&self) -> Result<TensorView<'_>, Error> {
        Ok(TensorView::new(self.dtype, &self.shape, self.bytes())?)
    }
}

impl core::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Tensor({} {:?})", self.dtype, self.shape)
    }
}

impl<'a> TryFrom<&'a Tensor> for Input<'a> {
    type Error = Error;

    fn try_from(tensor: &'a Tensor) -> Result<Self, Error> {
        Ok(tensor.view()?.into())
    }
}

/// An output of a method.
#[derive(Debug)]
pub enum Value {
    Tensor(Tensor),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(String),
    None,
}

impl<'a> TryFrom<&'a Value> for Input<'a> {
    type Error = Error;

    fn try_from(value: &'a Value) -> Result<Self, Error> {
        Ok(match value {
            Value::Tensor(tensor) => tensor.try_into()?,
            Value::Int(v) => Self::Int(*v),
            Value::Double(v) => Self::Double(*v),
            Value::Bool(v) => Self::Bool(*v),
            Value::String(v) => Self::String(v),
            Value::None => Self::None,
        })
    }
}

impl Value {
    /// The tensor, or an error if it is something else.
    pub fn as_tensor(&self) -> Result<&Tensor, Error> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            other => Err(Error::invalid(format!("the value is not a tensor but {other:?}"))),
        }
    }

    /// The elements of a tensor of `T`, row-major.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], Error> {
        self.as_tensor()?.as_slice()
    }
}
