//! Conversion between element types by way of small tiles of `f64` or `i64`, which hold every value of the narrower
//! types: one loader and one storer a type instead of one loop a pair of types.

use rushlight_runtime::{Element, Result, ScalarType, Tensor, TensorMut};

use super::number::Number;

/// Elements that a tile holds.
pub(crate) const TILE: usize = 64;

/// Elements on their way from one type to another.
pub(crate) struct Tile {
    floats: [f64; TILE],
    ints: [i64; TILE],
    is_float: bool,
}

impl Tile {
    pub(crate) fn new() -> Self {
        Self { floats: [0.0; TILE], ints: [0; TILE], is_float: false }
    }
}

/// Reads `count` (at most [`TILE`]) elements into the tile, from an offset and with a stride that the caller checked.
pub(crate) type Load = fn(&Tensor<'_>, usize, isize, usize, &mut Tile) -> Result<()>;

/// Writes `count` (at most [`TILE`]) elements of the tile, to an offset and with a stride that the caller checked.
pub(crate) type Store = fn(&mut TensorMut<'_>, usize, isize, usize, &Tile) -> Result<()>;

/// The loader for a real or boolean type.
pub(crate) fn loader(dtype: ScalarType) -> Result<Load> {
    dispatch!(REALHBBF16, dtype, T => Ok(load::<T> as Load))
}

/// The storer for a real or boolean type; converts as C++ does.
pub(crate) fn storer(dtype: ScalarType) -> Result<Store> {
    dispatch!(REALHBBF16, dtype, T => Ok(store::<T> as Store))
}

/// True if PyTorch lets a result of type `from` be written to an output of type `to`: never from complex to real,
/// from floating to integer, or from a number to bool.
pub(crate) fn can_cast(from: ScalarType, to: ScalarType) -> bool {
    use ScalarType::*;
    let rank = |dtype| match dtype {
        Bool => 0,
        Half | BFloat16 | Float | Double => 2,
        ComplexHalf | ComplexFloat | ComplexDouble => 3,
        _ => 1,
    };
    rank(from) <= rank(to)
}

fn load<T: Number>(from: &Tensor<'_>, offset: usize, stride: isize, count: usize, tile: &mut Tile) -> Result<()> {
    let data = from.as_slice::<T>()?;
    tile.is_float = T::IS_FLOAT;
    if T::IS_FLOAT {
        gather(data, offset, stride, &mut tile.floats[..count.min(TILE)], T::to_f64);
    } else {
        gather(data, offset, stride, &mut tile.ints[..count.min(TILE)], T::to_i64);
    }
    Ok(())
}

fn gather<T: Element, U>(data: &[T], mut offset: usize, stride: isize, tile: &mut [U], convert: impl Fn(T) -> U) {
    if stride == 1 {
        let count = tile.len();
        tile.iter_mut().zip(&data[offset..offset + count]).for_each(|(t, &x)| *t = convert(x));
        return;
    }
    for t in tile {
        *t = convert(data[offset]);
        offset = offset.wrapping_add_signed(stride);
    }
}

fn store<T: Number>(to: &mut TensorMut<'_>, offset: usize, stride: isize, count: usize, tile: &Tile) -> Result<()> {
    let data = to.as_mut_slice::<T>()?;
    if tile.is_float {
        scatter(data, offset, stride, &tile.floats[..count.min(TILE)], T::from_f64);
    } else {
        scatter(data, offset, stride, &tile.ints[..count.min(TILE)], T::from_i64);
    }
    Ok(())
}

fn scatter<T: Element, U: Copy>(
    data: &mut [T],
    mut offset: usize,
    stride: isize,
    tile: &[U],
    convert: impl Fn(U) -> T,
) {
    if stride == 1 {
        data[offset..offset + tile.len()].iter_mut().zip(tile).for_each(|(x, &t)| *x = convert(t));
        return;
    }
    for &t in tile {
        data[offset] = convert(t);
        offset = offset.wrapping_add_signed(stride);
    }
}
