//! Reads of tensors of any type, layout and broadcast as short runs of one compute type.
//!
//! Kernels are written for few compute types. `i32` stands in for bool and the integers up to 32 bits, and `f32` for
//! itself and the 16-bit floats. `i64` and `f64` stand for themselves. Elements of other types or layouts pass through
//! a tile on the stack. A kernel is therefore compiled once per compute type and not once per combination of element
//! types.

use half::{bf16, f16};
use rushlight_runtime::{Bool8, Complex, Detail, Element, Error, Result, Scalar, ScalarType, Tensor, TensorMut};

use crate::support::number::Number;
use crate::support::shape::Dims;

/// Reads the next elements of a tensor into a tile.
pub(crate) type Load<C> = fn(&Tensor<'_>, &mut Cursor, &mut [C]);

/// Writes a tile into a tensor, in memory order from an element on.
pub(crate) type Store<C> = fn(&[C], &mut TensorMut<'_>, usize) -> Result<()>;

/// Rounds or wraps values to those of a narrower type.
pub(crate) type Narrow<C> = fn(&mut [C]);

/// A type that kernels compute in.
pub(crate) trait Compute: Element + Default {
    /// One kilobyte or less of elements.
    type Tile: AsMut<[Self]> + AsRef<[Self]>;
    const ZEROS: Self::Tile;
    /// Elements in a tile.
    const TILE: usize;

    fn load(dtype: ScalarType) -> Result<Load<Self>>;
    fn store(dtype: ScalarType) -> Result<Store<Self>>;
    /// Returns the conversion to a narrower type; `None` if `dtype` is no narrower than this one.
    fn narrow(dtype: ScalarType) -> Option<Narrow<Self>>;
    fn from_scalar(value: Scalar) -> Self;
}

/// Converts a number to `dtype`, as PyTorch does first, and then to the compute type: integers wrap, and every number
/// but zero is true. Floats keep the precision of the compute type.
pub(crate) fn scalar_as<C: Compute>(value: Scalar, dtype: ScalarType) -> C {
    if dtype == ScalarType::Bool {
        return C::from_scalar(Scalar::Bool(value.to_bool()));
    }
    let mut converted = [C::from_scalar(value)];
    if dtype.is_integral(true)
        && let Some(narrow) = C::narrow(dtype)
    {
        narrow(&mut converted);
    }
    converted[0]
}

fn load_as<D: Number, C: Number>(tensor: &Tensor<'_>, cursor: &mut Cursor, tile: &mut [C]) {
    load_with(tensor, cursor, tile, |value: D| value.cast());
}

fn load_with<D: Element, C: Element>(
    tensor: &Tensor<'_>,
    cursor: &mut Cursor,
    mut tile: &mut [C],
    convert: impl Fn(D) -> C,
) {
    let source = tensor.as_slice::<D>().unwrap_or(&[]);
    while !tile.is_empty() {
        let run = cursor.run(tile.len());
        let (now, rest) = tile.split_at_mut(run.len);
        let from = source.get(run.offset..).unwrap_or(&[]);
        match run.stride {
            0 => now.fill(from.first().map_or_else(|| now[0], |&v| convert(v))),
            1 => now.iter_mut().zip(from).for_each(|(to, &v)| *to = convert(v)),
            stride => now.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &v)| *to = convert(v)),
        }
        tile = rest;
    }
}

fn store_as<C: Number, D: Number>(tile: &[C], tensor: &mut TensorMut<'_>, at: usize) -> Result<()> {
    store_with(tile, tensor, at, C::cast::<D>)
}

fn store_with<C: Element, D: Element>(
    tile: &[C],
    tensor: &mut TensorMut<'_>,
    at: usize,
    convert: impl Fn(C) -> D,
) -> Result<()> {
    let to = tensor.as_mut_slice::<D>()?.get_mut(at..).unwrap_or(&mut []);
    to.iter_mut().zip(tile).for_each(|(to, &v)| *to = convert(v));
    Ok(())
}

fn narrow_as<C: Number, D: Number>(tile: &mut [C]) {
    for value in tile {
        *value = value.cast::<D>().cast();
    }
}

macro_rules! real {
    ($t:ty, $tile:literal, [$($narrow:ident => $d:ty),*]) => {
        impl Compute for $t {
            type Tile = [$t; $tile];
            const ZEROS: Self::Tile = [<$t as Number>::ZERO; $tile];
            const TILE: usize = $tile;

            fn load(dtype: ScalarType) -> Result<Load<Self>> {
                dispatch!(REALHBBF16, dtype, D => Ok(load_as::<D, $t> as Load<Self>))
            }
            fn store(dtype: ScalarType) -> Result<Store<Self>> {
                dispatch!(REALHBBF16, dtype, D => Ok(store_as::<$t, D> as Store<Self>))
            }
            fn narrow(dtype: ScalarType) -> Option<Narrow<Self>> {
                match dtype {
                    $(ScalarType::$narrow => Some(narrow_as::<$t, $d>),)*
                    _ => None,
                }
            }
            fn from_scalar(value: Scalar) -> Self {
                <$t as Number>::from_scalar(value)
            }
        }
    };
}

real!(i32, 256, [Byte => u8, Char => i8, Short => i16, Bool => Bool8]);
real!(i64, 128, [Byte => u8, Char => i8, Short => i16, Int => i32, Bool => Bool8]);
real!(f32, 256, [Half => f16, BFloat16 => bf16]);
real!(f64, 128, [Half => f16, BFloat16 => bf16, Float => f32, Bool => Bool8]);
real!(Bool8, 1024, []);

macro_rules! complex {
    ($t:ty, $tile:literal) => {
        impl Compute for Complex<$t> {
            type Tile = [Complex<$t>; $tile];
            const ZEROS: Self::Tile = [Complex { re: 0.0, im: 0.0 }; $tile];
            const TILE: usize = $tile;

            fn load(dtype: ScalarType) -> Result<Load<Self>> {
                match dtype {
                    ScalarType::ComplexHalf => Ok(load_complex::<f16, $t>),
                    ScalarType::ComplexFloat => Ok(load_complex::<f32, $t>),
                    ScalarType::ComplexDouble => Ok(load_complex::<f64, $t>),
                    real => dispatch!(REALHBBF16, real, D => Ok(load_real::<D, $t> as Load<Self>)),
                }
            }
            fn store(dtype: ScalarType) -> Result<Store<Self>> {
                match dtype {
                    ScalarType::ComplexHalf => Ok(store_complex::<$t, f16>),
                    ScalarType::ComplexFloat => Ok(store_complex::<$t, f32>),
                    ScalarType::ComplexDouble => Ok(store_complex::<$t, f64>),
                    real => dispatch!(REALHBBF16, real, D => Ok(store_real::<$t, D> as Store<Self>)),
                }
            }
            fn narrow(dtype: ScalarType) -> Option<Narrow<Self>> {
                match dtype {
                    ScalarType::ComplexHalf => Some(|tile| {
                        for value in tile {
                            *value = complex_cast::<f16, $t>(complex_cast::<$t, f16>(*value));
                        }
                    }),
                    _ => None,
                }
            }
            fn from_scalar(value: Scalar) -> Self {
                Complex { re: <$t as Number>::from_scalar(value), im: 0.0 }
            }
        }
    };
}

complex!(f32, 128);
complex!(f64, 64);

fn complex_cast<A: Number, B: Number>(value: Complex<A>) -> Complex<B> {
    Complex { re: value.re.cast(), im: value.im.cast() }
}

fn load_complex<D: Number, C: Number>(tensor: &Tensor<'_>, cursor: &mut Cursor, tile: &mut [Complex<C>])
where
    Complex<D>: Element,
    Complex<C>: Element,
{
    load_with(tensor, cursor, tile, complex_cast::<D, C>);
}

fn load_real<D: Number, C: Number>(tensor: &Tensor<'_>, cursor: &mut Cursor, tile: &mut [Complex<C>])
where
    Complex<C>: Element,
{
    load_with(tensor, cursor, tile, |value: D| Complex { re: value.cast(), im: C::ZERO });
}

fn store_complex<C: Number, D: Number>(tile: &[Complex<C>], tensor: &mut TensorMut<'_>, at: usize) -> Result<()>
where
    Complex<C>: Element,
    Complex<D>: Element,
{
    store_with(tile, tensor, at, complex_cast::<C, D>)
}

fn store_real<C: Number, D: Number>(tile: &[Complex<C>], tensor: &mut TensorMut<'_>, at: usize) -> Result<()>
where
    Complex<C>: Element,
{
    store_with(tile, tensor, at, |value| value.re.cast::<D>())
}

/// Elements `offset`, `offset + stride`, … of a tensor.
pub(crate) struct Run {
    pub(crate) offset: usize,
    pub(crate) stride: usize,
    pub(crate) len: usize,
}

/// Position in a tensor that is read in the memory order of another tensor; it broadcasts to that tensor's shape.
pub(crate) struct Cursor {
    /// Outermost first; neighbours that one stride covers are merged, so there is at least one.
    sizes: Dims,
    strides: Dims,
    index: Dims,
    /// Start of the current innermost row.
    row: usize,
    /// Elements of the row that were read already.
    column: usize,
}

impl Cursor {
    /// A cursor before [`walk`](Self::walk).
    pub(crate) const NOWHERE: Self =
        Self { sizes: Dims::EMPTY, strides: Dims::EMPTY, index: Dims::EMPTY, row: 0, column: 0 };

    pub(crate) fn new(sizes: &[usize], strides: &[usize], out_sizes: &[usize], dim_order: &[u8]) -> Result<Self> {
        let mut cursor = Self::NOWHERE;
        cursor.walk(sizes, strides, out_sizes, dim_order)?;
        Ok(cursor)
    }

    /// Starts at the first of the elements with these sizes and strides, which broadcast to `out_sizes`.
    pub(crate) fn walk(
        &mut self,
        sizes: &[usize],
        strides: &[usize],
        out_sizes: &[usize],
        dim_order: &[u8],
    ) -> Result<()> {
        let lead = out_sizes
            .len()
            .checked_sub(sizes.len())
            .ok_or(Detail::Rank { expected: "at most that of the output", got: sizes.len() })?;
        let (merged_sizes, merged_strides) = (&mut self.sizes, &mut self.strides);
        for &dim in dim_order {
            let dim = usize::from(dim);
            let target = out_sizes.get(dim).copied().unwrap_or(1);
            let own = dim.checked_sub(lead).and_then(|d| Some((*sizes.get(d)?, *strides.get(d)?)));
            let stride = match own {
                Some((size, stride)) if size == target => stride,
                None | Some((1, _)) => 0,
                Some((got, _)) => return Err(Detail::Size { dim, expected: target, got }.into()),
            };
            if target == 1 {
                continue;
            }
            match (merged_sizes.last_mut(), merged_strides.last_mut()) {
                (Some(size), Some(outer)) if *outer == stride.wrapping_mul(target) => {
                    *size = size.saturating_mul(target);
                    *outer = stride;
                }
                _ => {
                    merged_sizes.push(target)?;
                    merged_strides.push(stride)?;
                }
            }
        }
        if merged_sizes.is_empty() {
            merged_sizes.push(1)?;
            merged_strides.push(0)?;
        }
        for _ in 0..merged_sizes.len() {
            self.index.push(0)?;
        }
        Ok(())
    }

    /// `len` elements from `offset` on, `stride` apart.
    pub(crate) fn line(offset: usize, stride: usize, len: usize) -> Self {
        let one = |value| Dims::filled(1, value).unwrap_or(Dims::EMPTY);
        Self { sizes: one(len), strides: one(stride), index: Dims::EMPTY, row: offset, column: 0 }
    }

    /// The same walk, `offset` elements further into the memory.
    pub(crate) fn shifted(mut self, offset: usize) -> Self {
        self.row = self.row.saturating_add(offset);
        self
    }

    fn inner(&self) -> (usize, usize) {
        (self.sizes.last().copied().unwrap_or(1), self.strides.last().copied().unwrap_or(0))
    }

    /// True if every element is the same one.
    fn is_constant(&self) -> bool {
        self.sizes.len() == 1 && self.inner().1 == 0
    }

    /// The next elements that one stride covers: at least one and at most `limit`.
    #[inline]
    pub(crate) fn run(&mut self, limit: usize) -> Run {
        let (size, stride) = self.inner();
        let offset = self.row + self.column * stride;
        let len = limit.min(size - self.column);
        self.column += len;
        if self.column == size {
            self.column = 0;
            if self.sizes.len() > 1 {
                self.next_row();
            }
        }
        Run { offset, stride, len }
    }

    /// The next `len` elements, if they are contiguous.
    #[inline]
    fn contiguous(&mut self, len: usize) -> Option<usize> {
        let (size, stride) = self.inner();
        (stride == 1 && size - self.column >= len).then(|| self.run(len).offset)
    }

    fn next_row(&mut self) {
        for dim in (0..self.sizes.len() - 1).rev() {
            self.index[dim] += 1;
            if self.index[dim] < self.sizes[dim] {
                self.row += self.strides[dim];
                return;
            }
            self.row -= self.strides[dim] * (self.sizes[dim] - 1);
            self.index[dim] = 0;
        }
    }
}

/// Memory for the elements of a tile, initialized at its first use. It and the [`Cursor`] are separate from the
/// [`Operand`] or [`Sink`] that uses them, because those move.
pub(crate) type Room<C> = Option<<C as Compute>::Tile>;

/// An input of an elementwise kernel.
pub(crate) struct Operand<'a, 'c, C: Compute> {
    tensor: Tensor<'a>,
    /// The elements, if they need no conversion.
    native: Option<&'a [C]>,
    load: Load<C>,
    narrow: Option<Narrow<C>>,
    cursor: &'c mut Cursor,
    /// All elements are the same one.
    constant: bool,
    /// The tile is already filled with that one element. The first call is the longest, therefore later calls find
    /// enough.
    filled: bool,
}

impl<'a, 'c, C: Compute> Operand<'a, 'c, C> {
    /// The input `tensor` of an operator that converts its inputs to `common` and writes `out`, whose size is set.
    pub(crate) fn new(
        tensor: &Tensor<'a>,
        common: ScalarType,
        out: &TensorMut<'_>,
        cursor: &'c mut Cursor,
    ) -> Result<Self> {
        cursor.walk(tensor.sizes(), tensor.strides(), out.sizes(), out.dim_order())?;
        Self::at(tensor, cursor, common)
    }

    /// The elements of `tensor` that `cursor` passes.
    #[inline]
    pub(crate) fn at(tensor: &Tensor<'a>, cursor: &'c mut Cursor, common: ScalarType) -> Result<Self> {
        // Floating operands keep their precision within one call, as in PyTorch's kernels for 16-bit floats.
        let exact = tensor.dtype() == common || (common.is_floating() && tensor.dtype().is_floating());
        let narrow = if exact { None } else { C::narrow(common) };
        let constant = cursor.is_constant();
        let native = if narrow.is_none() && !constant { tensor.as_slice().ok() } else { None };
        let load = C::load(tensor.dtype())?;
        Ok(Self { tensor: *tensor, native, load, narrow, cursor, constant, filled: false })
    }

    /// Returns the next `len` elements: at most a tile, at most the rest, and no more than in the call before. All
    /// calls pass the same `room`.
    pub(crate) fn next<'t>(&mut self, room: &'t mut Room<C>, len: usize) -> &'t [C]
    where
        'a: 't,
    {
        if let Some(native) = self.native
            && let Some(offset) = self.cursor.contiguous(len)
        {
            return native.get(offset..).and_then(|s| s.get(..len)).unwrap_or(&[]);
        }
        let tile = room.get_or_insert_with(|| C::ZEROS).as_mut().get_mut(..len).unwrap_or(&mut []);
        if !self.filled {
            (self.load)(&self.tensor, self.cursor, tile);
            if let Some(narrow) = self.narrow {
                narrow(tile);
            }
            self.filled = self.constant;
        }
        tile
    }
}

/// The output of an elementwise kernel, written in memory order.
pub(crate) struct Sink<C: Compute> {
    /// `None` if the elements need no conversion.
    convert: Option<(Store<C>, Option<Narrow<C>>)>,
}

impl<C: Compute> Sink<C> {
    /// For results of type `common` that are stored in `out`.
    pub(crate) fn new(common: ScalarType, out: &TensorMut<'_>) -> Result<Self> {
        let convert = if out.dtype() == C::DTYPE && common == C::DTYPE {
            None
        } else {
            let narrow = if common == out.dtype() { None } else { C::narrow(common) };
            Some((C::store(out.dtype())?, narrow))
        };
        Ok(Self { convert })
    }

    /// Has `fill` write the `len` elements from `at` on, at most a tile.
    pub(crate) fn write(
        &self,
        out: &mut TensorMut<'_>,
        room: &mut Room<C>,
        (at, len): (usize, usize),
        fill: impl FnOnce(&mut [C]),
    ) -> Result<()> {
        let Some((store, narrow)) = self.convert else {
            fill(out.as_mut_slice::<C>()?.get_mut(at..at + len).unwrap_or(&mut []));
            return Ok(());
        };
        let tile = room.get_or_insert_with(|| C::ZEROS).as_mut().get_mut(..len).unwrap_or(&mut []);
        fill(tile);
        if let Some(narrow) = narrow {
            narrow(tile);
        }
        store(tile, out, at)
    }
}

/// The compute type that stands in for an element type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComputeType {
    I32,
    I64,
    F32,
    F64,
    C32,
    C64,
}

impl ComputeType {
    #[inline]
    pub(crate) fn of(dtype: ScalarType) -> Result<Self> {
        Ok(match dtype {
            ScalarType::Float | ScalarType::Half | ScalarType::BFloat16 => Self::F32,
            ScalarType::Bool | ScalarType::Byte | ScalarType::Char | ScalarType::Short | ScalarType::Int => Self::I32,
            ScalarType::Long => Self::I64,
            ScalarType::Double => Self::F64,
            ScalarType::ComplexHalf | ScalarType::ComplexFloat => Self::C32,
            ScalarType::ComplexDouble => Self::C64,
            got => return Err(unsupported("bool, an integer, floating or complex type", got)),
        })
    }
}

#[cold]
pub(crate) fn unsupported(expected: &'static str, got: ScalarType) -> Error {
    Detail::Dtype { expected, got }.into()
}
