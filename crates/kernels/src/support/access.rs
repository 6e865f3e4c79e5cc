//! Reading and writing runs of a tensor at any offset in a compute type.
//!
//! Tensors that hold the compute type are used in place, others pass through tiles on the stack.

use rushlight_runtime::{Result, ScalarType, Tensor, TensorMut};

use super::tile::{Compute, Cursor, Load, Narrow, Store};

/// Elements that are converted at a time.
pub(crate) const TILE: usize = 64;

/// Evaluates `body` with `C` as the type that sums of elements of `dtype` are computed in.
macro_rules! dispatch_accumulator {
    ($dtype:expr, $C:ident => $body:expr) => {
        match $dtype {
            rushlight_runtime::ScalarType::Half
            | rushlight_runtime::ScalarType::BFloat16
            | rushlight_runtime::ScalarType::Float => {
                type $C = f32;
                $body
            }
            rushlight_runtime::ScalarType::Double => {
                type $C = f64;
                $body
            }
            _ => {
                type $C = i64;
                $body
            }
        }
    };
}
pub(crate) use dispatch_accumulator;

/// A tensor that is read as elements of type `C`.
pub(crate) struct Reader<'a, C> {
    tensor: Tensor<'a>,
    in_place: Option<&'a [C]>,
    load: Load<C>,
    narrow: Option<Narrow<C>>,
}

impl<'a, C: Compute> Reader<'a, C> {
    /// Elements are cast to `C`.
    pub(crate) fn new(tensor: Tensor<'a>) -> Result<Self> {
        Ok(Self { tensor, in_place: tensor.as_slice().ok(), load: C::load(tensor.dtype())?, narrow: None })
    }

    /// Elements are cast to `dtype`, then to `C`: what PyTorch's `dtype` argument of reductions does.
    pub(crate) fn through(tensor: Tensor<'a>, dtype: ScalarType) -> Result<Self> {
        let mut reader = Self::new(tensor)?;
        if dtype != tensor.dtype() {
            reader.narrow = C::narrow(dtype);
            if reader.narrow.is_some() {
                reader.in_place = None;
            }
        }
        Ok(reader)
    }

    /// All elements in memory order, if they need no conversion.
    pub(crate) fn in_place(&self) -> Option<&'a [C]> {
        self.in_place
    }

    /// `len` neighbours from the element at `offset` in memory order. `buffer` holds as many.
    #[inline]
    pub(crate) fn tile<'b>(&'b self, offset: usize, len: usize, buffer: &'b mut [C]) -> &'b [C] {
        if let Some(elements) = self.in_place {
            return &elements[offset..offset + len];
        }
        let buffer = &mut buffer[..len];
        self.gather(offset, 1, buffer);
        buffer
    }

    /// Fills `buffer` with the elements at `offset`, `offset + stride` and so on in memory order.
    pub(crate) fn gather(&self, offset: usize, stride: usize, buffer: &mut [C]) {
        if let Some(elements) = self.in_place {
            if stride == 1 {
                buffer.copy_from_slice(&elements[offset..offset + buffer.len()]);
                return;
            }
            for (to, &x) in buffer.iter_mut().zip(elements[offset..].iter().step_by(stride.max(1))) {
                *to = x;
            }
            return;
        }
        (self.load)(&self.tensor, &mut Cursor::line(offset, stride, buffer.len()), buffer);
        if let Some(narrow) = self.narrow {
            narrow(buffer);
        }
    }
}

/// A tensor that is written from elements of type `C`.
pub(crate) struct Writer<'a, C> {
    tensor: TensorMut<'a>,
    store: Store<C>,
}

impl<'a, C: Compute> Writer<'a, C> {
    /// Elements are cast from `C`.
    pub(crate) fn new(tensor: TensorMut<'a>) -> Result<Self> {
        let store = C::store(tensor.dtype())?;
        Ok(Self { tensor, store })
    }

    /// Distance in elements between neighbours along each dimension.
    pub(crate) fn strides(&self) -> &[usize] {
        self.tensor.strides()
    }

    /// All elements in memory order, if they need no conversion.
    #[inline]
    pub(crate) fn in_place(&mut self) -> Option<&mut [C]> {
        self.tensor.as_mut_slice().ok()
    }

    /// Writes the elements at `offset`, `offset + stride` and so on in memory order.
    #[inline]
    pub(crate) fn scatter(&mut self, offset: usize, stride: usize, elements: &[C]) -> Result<()> {
        let stride = stride.max(1);
        match self.in_place() {
            Some(to) if stride == 1 => to[offset..offset + elements.len()].copy_from_slice(elements),
            Some(to) => {
                for (to, &x) in to[offset..].iter_mut().step_by(stride).zip(elements) {
                    *to = x;
                }
            }
            None if stride == 1 => (self.store)(elements, &mut self.tensor, offset)?,
            None => {
                for (i, x) in elements.iter().enumerate() {
                    (self.store)(core::slice::from_ref(x), &mut self.tensor, offset + i * stride)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs `f(index of the first element, elements, results)` over `len` neighbours from `from[offset]`, whose results go
/// to `to[at]`, `to[at + stride]` and so on: at once if both tensors hold `C` in place, else tile by tile.
#[inline]
pub(crate) fn map_run<C: Compute>(
    from: &Reader<'_, C>,
    to: &mut Writer<'_, C>,
    offset: usize,
    (at, stride): (usize, usize),
    len: usize,
    mut f: impl FnMut(usize, &[C], &mut [C]),
) -> Result<()> {
    if stride == 1
        && let (Some(from), Some(to)) = (from.in_place(), to.in_place())
    {
        f(0, &from[offset..offset + len], &mut to[at..at + len]);
        return Ok(());
    }
    let (mut buffer, mut results) = ([C::default(); TILE], [C::default(); TILE]);
    for start in (0..len).step_by(TILE) {
        let count = TILE.min(len - start);
        f(start, from.tile(offset + start, count, &mut buffer), &mut results[..count]);
        to.scatter(at + start * stride, stride, &results[..count])?;
    }
    Ok(())
}
