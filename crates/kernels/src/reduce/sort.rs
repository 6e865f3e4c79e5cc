//! Sorting and selecting along a dimension.
//!
//! Elements become unsigned keys of the same order with their position as the tie-breaker, so that one sort of plain
//! integers serves every element type, is stable, and puts NaN last in ascending and first in descending order.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, TILE};
use crate::support::shape::{Dims, Walk, normalize_dim};
use crate::support::tile::Compute;

/// `topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!) values,
/// Tensor(b!) indices)`
///
/// The result is sorted even if that is not asked for; of equal elements the first come first.
pub const TOPK_VALUES: Op = Op::new("aten::topk.values", 7, topk_values).outs(2).temp(|cx| temp_bytes(cx, 2));

/// `sort.values(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) values, Tensor(b!) indices)`
pub const SORT_VALUES: Op = Op::new("aten::sort.values", 5, sort_values).outs(2).temp(|cx| temp_bytes(cx, 1));

/// `sort.values_stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False, Tensor(a!) values,
/// Tensor(b!) indices)`
pub const SORT_VALUES_STABLE: Op =
    Op::new("aten::sort.values_stable", 6, sort_values_stable).outs(2).temp(|cx| temp_bytes(cx, 2));

pub const TOPK_OPS: &[Op] = &[TOPK_VALUES];
pub const SORT_OPS: &[Op] = &[SORT_VALUES, SORT_VALUES_STABLE];

fn topk_values(cx: &KernelContext<'_>) -> Result<()> {
    let (input, k, largest) = (cx.tensor(0)?, cx.int(1)?, cx.bool(3)?);
    let dim = normalize_dim(cx.int(2)?, input.rank()).map_err(|e| e.arg(2))?;
    if input.dtype() == ScalarType::Bool {
        return Err(Error::from(Detail::Dtype { expected: "an integer or floating type", got: input.dtype() }).arg(0));
    }
    match usize::try_from(k) {
        Ok(count) if count <= input.size(dim) => select(cx, &input, dim, count, largest, 5),
        _ => {
            let (what, expected) = ("k", "0 to the size of the dimension");
            Err(Error::from(Detail::Value { what, expected, got: k }).arg(1))
        }
    }
}

fn sort_values(cx: &KernelContext<'_>) -> Result<()> {
    sort(cx, 1)
}

fn sort_values_stable(cx: &KernelContext<'_>) -> Result<()> {
    sort(cx, 2)
}

/// `index` is the position of `dim`, which `descending` and the outputs follow.
fn sort(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let input = cx.tensor(0)?;
    let dim = normalize_dim(cx.int(index)?, input.rank()).map_err(|e| e.arg(index))?;
    select(cx, &input, dim, input.size(dim), cx.bool(index + 1)?, index + 2)
}

/// Writes the first `count` elements of `dim` in sorted order to the output at `index`, their positions to the next.
fn select(
    cx: &KernelContext<'_>,
    input: &Tensor<'_>,
    dim: usize,
    count: usize,
    descending: bool,
    index: usize,
) -> Result<()> {
    let (mut values, mut positions) = (cx.out(index)?, cx.out(index + 1)?);
    if values.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: values.dtype() }).arg(index));
    }
    if positions.dtype() != ScalarType::Long {
        return Err(Error::from(Detail::Dtype { expected: "i64", got: positions.dtype() }).arg(index + 1));
    }
    let mut sizes = Dims::from_slice(input.sizes())?;
    if let Some(size) = sizes.get_mut(dim) {
        *size = count;
    }
    values.resize(&sizes).map_err(|e| e.arg(index))?;
    positions.resize(&sizes).map_err(|e| e.arg(index + 1))?;
    if values.numel() == 0 {
        return Ok(());
    }
    let lines = SortSlices::new(input, &values, &positions, dim, count)?;
    match input.dtype() {
        ScalarType::Half | ScalarType::BFloat16 | ScalarType::Float => {
            let from = Reader::<f32>::new(*input)?;
            lines.sort_narrow(cx, &from, float_key, descending, &mut values, &mut positions)
        }
        ScalarType::Double => {
            let from = Reader::<f64>::new(*input)?;
            lines.sort_wide(cx, &from, double_key, descending, &mut values, &mut positions)
        }
        ScalarType::Long => {
            let from = Reader::<i64>::new(*input)?;
            lines.sort_wide(cx, &from, |x| x as u64 ^ 1 << 63, descending, &mut values, &mut positions)
        }
        _ => {
            let from = Reader::<i32>::new(*input).map_err(|e| e.arg(0))?;
            lines.sort_narrow(cx, &from, |x| x as u32 ^ 1 << 31, descending, &mut values, &mut positions)
        }
    }
}

/// A key that orders as the numbers do: both zeros are equal, NaN is the greatest.
fn float_key(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    // Flips negative numbers wholly, others in the sign.
    let key = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
    if x.is_nan() { u32::MAX } else { key }
}

/// As [`float_key`].
fn double_key(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let key = bits ^ ((bits as i64 >> 63) as u64 | 1 << 63);
    if x.is_nan() { u64::MAX } else { key }
}

/// Bytes for the keys of one line. Narrow keys and their positions take 8 bytes an element, wide ones 16.
fn temp_bytes(cx: &KernelContext<'_>, dim: usize) -> Result<usize> {
    let input = cx.tensor(0)?;
    let longest = input.sizes().iter().copied().max().unwrap_or(1);
    let dim = cx.int(dim).ok().and_then(|dim| normalize_dim(dim, input.rank()).ok());
    let len = dim.map_or(longest, |dim| input.size(dim));
    let wide = matches!(input.dtype(), ScalarType::Double | ScalarType::Long);
    Ok(len.saturating_mul(if wide { 16 } else { 8 }).saturating_add(16))
}

/// The lines of elements along one dimension.
struct SortSlices<'a> {
    input: &'a Tensor<'a>,
    /// Elements of a line, and how many of them are wanted.
    len: usize,
    count: usize,
    /// Strides along the dimension in the input, the values and the positions.
    strides: [usize; 3],
    /// Sizes and strides of the other dimensions.
    sizes: Dims,
    others: [Dims; 3],
}

impl<'a> SortSlices<'a> {
    fn new(
        input: &'a Tensor<'a>,
        values: &TensorMut<'_>,
        positions: &TensorMut<'_>,
        dim: usize,
        count: usize,
    ) -> Result<Self> {
        let mut lines = Self {
            input,
            len: input.size(dim),
            count: count.min(input.size(dim)).max(1),
            strides: [1; 3],
            sizes: Dims::EMPTY,
            others: [Dims::EMPTY; 3],
        };
        for (i, &size) in input.sizes().iter().enumerate() {
            if i != dim {
                lines.sizes.push(size)?;
            }
        }
        for (which, strides) in [input.strides(), values.strides(), positions.strides()].into_iter().enumerate() {
            for (i, &stride) in strides.iter().enumerate() {
                if i == dim {
                    lines.strides[which] = stride;
                } else {
                    lines.others[which].push(stride)?;
                }
            }
        }
        Ok(lines)
    }

    /// Sorts by keys of 32 bits.
    fn sort_narrow<C: Compute>(
        &self,
        cx: &KernelContext<'_>,
        from: &Reader<'_, C>,
        key: impl Fn(C) -> u32,
        descending: bool,
        values: &mut TensorMut<'_>,
        positions: &mut TensorMut<'_>,
    ) -> Result<()> {
        if self.len > u32::MAX as usize {
            return Err(Error::invalid("the dimension is too long to be sorted"));
        }
        let keys = cx.temp::<u64>(self.len)?;
        let flip = if descending { u32::MAX } else { 0 };
        self.each(|offsets| {
            let key = |i: usize, x| u64::from(key(x) ^ flip) << 32 | i as u64;
            let wanted = self.smallest(from, offsets[0], keys, key);
            self.write(offsets, wanted.iter().map(|key| *key as u32 as usize), values, positions)
        })
    }

    /// Sorts by keys of 64 bits.
    fn sort_wide<C: Compute>(
        &self,
        cx: &KernelContext<'_>,
        from: &Reader<'_, C>,
        key: impl Fn(C) -> u64,
        descending: bool,
        values: &mut TensorMut<'_>,
        positions: &mut TensorMut<'_>,
    ) -> Result<()> {
        let keys = cx.temp::<u64>(self.len.saturating_mul(2))?.as_chunks_mut::<2>().0;
        let flip = if descending { u64::MAX } else { 0 };
        self.each(|offsets| {
            let wanted = self.smallest(from, offsets[0], keys, |i, x| [key(x) ^ flip, i as u64]);
            self.write(offsets, wanted.iter().map(|[_, i]| *i as usize), values, positions)
        })
    }

    /// Calls `f` with the offsets of each line in the input, the values and the positions.
    fn each(&self, mut f: impl FnMut([usize; 3]) -> Result<()>) -> Result<()> {
        let mut walk = Walk::new(&self.sizes, [&self.others[0], &self.others[1], &self.others[2]])?;
        loop {
            f(walk.offsets)?;
            if !walk.next() {
                return Ok(());
            }
        }
    }

    /// The wanted number of smallest keys of the line at `offset`, sorted. `keys` has room for the whole line.
    fn smallest<'k, C: Compute, K: Key>(
        &self,
        from: &Reader<'_, C>,
        offset: usize,
        keys: &'k mut [K],
        key: impl Fn(usize, C) -> K,
    ) -> &'k [K] {
        if self.count <= MAX_SORTED && self.count < self.len / 8 {
            let wanted = &mut keys[..self.count];
            let mut found = 0;
            let mut tile_keys = [key(0, C::default()); TILE];
            self.read(from, offset, |start, tile| {
                for (i, (tile_key, &x)) in tile_keys.iter_mut().zip(tile).enumerate() {
                    *tile_key = key(start + i, x);
                }
                insert(wanted, &mut found, &tile_keys[..tile.len()]);
            });
            return wanted;
        }
        self.read(from, offset, |start, tile| {
            for (i, (to, &x)) in keys[start..].iter_mut().zip(tile).enumerate() {
                *to = key(start + i, x);
            }
        });
        if self.count < keys.len() {
            keys.select_nth_unstable_by_key(self.count.saturating_sub(1), |key| key.whole());
        }
        let wanted = &mut keys[..self.count];
        wanted.sort_unstable_by_key(|key| key.whole());
        wanted
    }

    /// Calls `f` with runs of elements of the line at `offset` and the position of their first.
    fn read<C: Compute>(&self, from: &Reader<'_, C>, offset: usize, mut f: impl FnMut(usize, &[C])) {
        let mut buffer = [C::default(); TILE];
        for start in (0..self.len).step_by(TILE) {
            let tile = &mut buffer[..TILE.min(self.len - start)];
            from.gather(offset + start * self.strides[0], self.strides[0], tile);
            f(start, tile);
        }
    }

    /// Writes the elements at `wanted` positions of a line, and the positions.
    fn write(
        &self,
        offsets: [usize; 3],
        wanted: impl Iterator<Item = usize>,
        values: &mut TensorMut<'_>,
        positions: &mut TensorMut<'_>,
    ) -> Result<()> {
        let positions = positions.as_mut_slice::<i64>()?;
        let line = positions[offsets[2]..].iter_mut().step_by(self.strides[2].max(1));
        for (position, wanted) in line.zip(wanted) {
            *position = wanted as i64;
        }
        dispatch_size!(self.input.dtype(), N => {
            let from = &self.input.bytes().as_chunks::<N>().0[offsets[0]..];
            let to = &mut values.bytes_mut().as_chunks_mut::<N>().0[offsets[1]..];
            let positions = positions[offsets[2]..].iter().step_by(self.strides[2].max(1));
            for (to, &position) in to.iter_mut().step_by(self.strides[1].max(1)).zip(positions).take(self.count) {
                *to = from[position as usize * self.strides[0]];
            }
            Ok(())
        })
    }
}

/// The order of an element and its position.
trait Key: Copy {
    /// Both as one number.
    type Whole: Ord;
    fn whole(self) -> Self::Whole;
}

/// The order in the upper half, the position in the lower.
impl Key for u64 {
    type Whole = u64;
    #[inline(always)]
    fn whole(self) -> u64 {
        self
    }
}

/// The order, then the position.
impl Key for [u64; 2] {
    type Whole = u128;
    #[inline(always)]
    fn whole(self) -> u128 {
        u128::from(self[0]) << 64 | u128::from(self[1])
    }
}

/// Maximum `k` for which the best elements are kept sorted while a line is read.
const MAX_SORTED: usize = 32;

/// Inserts those of `keys` into the sorted first `found` of the smallest keys that belong there.
fn insert<K: Key>(smallest: &mut [K], found: &mut usize, keys: &[K]) {
    let mut worst = (*found == smallest.len()).then(|| smallest[*found - 1].whole());
    for &key in keys {
        if worst.as_ref().is_some_and(|worst| key.whole() >= *worst) {
            continue;
        }
        *found += usize::from(*found < smallest.len());
        let mut place = *found - 1;
        while place > 0 && key.whole() < smallest[place - 1].whole() {
            smallest[place] = smallest[place - 1];
            place -= 1;
        }
        smallest[place] = key;
        if *found == smallest.len() {
            worst = Some(smallest[*found - 1].whole());
        }
    }
}
