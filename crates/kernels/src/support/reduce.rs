//! Reductions over any set of dimensions, in the memory order of the input.
//!
//! [`Nest::new`] sorts the dimensions of the input by stride and joins those that are contiguous. The innermost
//! dimension in memory then decides the form. If it is reduced, each group of elements consists of contiguous runs. If
//! it is kept, up to [`COLUMNS`] neighbouring groups are reduced together, row by row. Both forms read memory in order.

use rushlight_runtime::{Complex, Detail, Error, IntList, MAX_RANK, Result, ScalarType, Tensor, TensorMut};

use super::access::{Reader, TILE, Writer};
use super::number::Arithmetic;
use super::shape::{Dims, Walk, normalize_dim};
use super::tile::Compute;

/// Groups that are reduced together if the innermost dimension is kept.
pub(crate) const COLUMNS: usize = TILE;

/// A set of dimensions, bit `i` for dimension `i`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DimSet(u32);

impl DimSet {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn all(rank: usize) -> Self {
        Self((1u32 << rank.min(MAX_RANK)) - 1)
    }

    /// The dimensions from `first` on.
    pub(crate) fn from(first: usize, rank: usize) -> Self {
        Self(Self::all(rank).0 & !Self::all(first).0)
    }

    /// All dimensions but `dim`.
    pub(crate) fn all_but(dim: usize, rank: usize) -> Self {
        Self(Self::all(rank).0 & !(1 << dim.min(31)))
    }

    /// One dimension, as PyTorch counts it. In a tensor of rank 0 the set is empty.
    pub(crate) fn one(dim: i64, rank: usize) -> Result<Self> {
        let dim = normalize_dim(dim, rank)?;
        Ok(Self(if rank == 0 { 0 } else { 1 << dim }))
    }

    /// The listed dimensions, or all if there is no list or it is empty. Each may be listed once.
    pub(crate) fn from_list(dims: Option<IntList<'_>>, rank: usize) -> Result<Self> {
        let mut set = Self(0);
        match dims {
            Some(dims) if !dims.is_empty() => {
                for dim in dims.iter() {
                    let bit = 1 << normalize_dim(dim, rank)?;
                    if set.0 & bit != 0 {
                        let (what, expected) = ("dimension", "each at most once");
                        return Err(Detail::Value { what, expected, got: dim }.into());
                    }
                    set.0 |= bit;
                }
                Ok(Self(set.0 & Self::all(rank).0))
            }
            _ => Ok(Self::all(rank)),
        }
    }

    pub(crate) fn with(self, dim: usize) -> Self {
        Self(self.0 | 1 << dim.min(31))
    }

    pub(crate) fn contains(self, dim: usize) -> bool {
        dim < MAX_RANK && self.0 & (1 << dim) != 0
    }

    /// Sizes of the result: the reduced dimensions become 1 if `keepdim`, else they go away.
    pub(crate) fn reduced_sizes(self, sizes: &[usize], keepdim: bool) -> Result<Dims> {
        let mut result = Dims::EMPTY;
        for (dim, &size) in sizes.iter().enumerate() {
            if !self.contains(dim) {
                result.push(size)?;
            } else if keepdim {
                result.push(1)?;
            }
        }
        Ok(result)
    }

    /// Strides of the result, one for each dimension of the input: 0 along the reduced ones.
    pub(crate) fn reduced_strides(self, rank: usize, strides: &[usize], keepdim: bool) -> Result<Dims> {
        let mut strides = strides.iter();
        let mut result = Dims::EMPTY;
        for dim in 0..rank {
            let reduced = self.contains(dim);
            let stride = if reduced && !keepdim { 0 } else { strides.next().copied().unwrap_or(0) };
            result.push(if reduced { 0 } else { stride })?;
        }
        Ok(result)
    }

    /// Number of elements that are reduced to one.
    pub(crate) fn count(self, sizes: &[usize]) -> usize {
        sizes
            .iter()
            .enumerate()
            .filter(|&(dim, _)| self.contains(dim))
            .fold(1, |n: usize, (_, &size)| n.saturating_mul(size))
    }
}

/// Fails unless the `dtype` argument at position `index` is absent or the type of `out`.
pub(crate) fn check_dtype(dtype: Option<i64>, out: ScalarType, index: usize) -> Result<()> {
    match dtype {
        Some(code) if code != i64::from(out.code()) => {
            let (what, expected) = ("dtype", "the element type of the output");
            Err(Error::from(Detail::Value { what, expected, got: code }).arg(index))
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Loop<const S: usize> {
    size: usize,
    strides: [usize; S],
    reduced: bool,
}

impl<const S: usize> Loop<S> {
    const ONE: Self = Self { size: 1, strides: [0; S], reduced: true };
}

/// Loops of the nest.
struct Loops<const S: usize> {
    sizes: Dims,
    strides: [Dims; S],
}

impl<const S: usize> Loops<S> {
    const NONE: Self = Self { sizes: Dims::EMPTY, strides: [Dims::EMPTY; S] };

    fn push(&mut self, new: &Loop<S>) -> Result<()> {
        for (strides, &stride) in self.strides.iter_mut().zip(&new.strides) {
            strides.push(stride)?;
        }
        self.sizes.push(new.size)
    }

    fn walk(&self) -> Result<Walk<S>> {
        Walk::new(&self.sizes, core::array::from_fn(|i| &*self.strides[i]))
    }
}

/// The loops of a reduction, with the strides of `S` tensors, the input first.
pub(crate) struct Nest<const S: usize> {
    kept: Loops<S>,
    reduced: Loops<S>,
    inner: Loop<S>,
    /// Elements that are reduced to one.
    count: usize,
}

impl<const S: usize> Nest<S> {
    /// `sizes` are the input's; `strides` are those of each tensor along the input's dimensions, 0 where it has none.
    pub(crate) fn new(sizes: &[usize], strides: [&[usize]; S], dims: DimSet) -> Result<Self> {
        let mut loops = [Loop::ONE; MAX_RANK];
        let mut len = 0;
        for (dim, &size) in sizes.iter().enumerate() {
            if size == 1 || len == MAX_RANK {
                continue;
            }
            let strides = strides.map(|strides| strides.get(dim).copied().unwrap_or(0));
            let place = loops[..len].iter().position(|l| l.strides[0] < strides[0]).unwrap_or(len);
            loops[place..=len].rotate_right(1);
            loops[place] = Loop { size, strides, reduced: dims.contains(dim) };
            len += 1;
        }
        let (mut kept, mut reduced) = (Loops::NONE, Loops::NONE);
        let mut inner: Option<Loop<S>> = None;
        for next in &loops[..len] {
            if let Some(last) = &mut inner {
                let contiguous = |i: usize| last.strides[i] == next.size.wrapping_mul(next.strides[i]);
                if last.reduced == next.reduced && (0..S).all(contiguous) {
                    last.size = last.size.saturating_mul(next.size);
                    last.strides = next.strides;
                    continue;
                }
                if last.reduced { reduced.push(last)? } else { kept.push(last)? }
            }
            inner = Some(*next);
        }
        Ok(Self { kept, reduced, inner: inner.unwrap_or(Loop::ONE), count: dims.count(sizes) })
    }

    /// Elements that are reduced to one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The length of the groups, if each is one short run and the results are in the order of the groups.
    fn equal_runs(&self) -> Option<usize> {
        let in_order = match &*self.kept.sizes {
            [] => true,
            [_] => self.kept.strides.iter().skip(1).all(|strides| **strides == [1]),
            _ => false,
        };
        let is_run = self.inner.reduced && self.reduced.sizes.is_empty();
        (is_run && in_order && (1..=BLOCK).contains(&self.inner.size)).then_some(self.inner.size)
    }

    /// Calls `f` for every group, or every set of neighbouring groups.
    pub(crate) fn groups(&self, mut f: impl FnMut(&mut Group<'_, S>) -> Result<()>) -> Result<()> {
        if self.kept.sizes.contains(&0) {
            return Ok(());
        }
        let mut walk = self.kept.walk()?;
        let rows = if self.reduced.sizes.is_empty() { None } else { Some(self.reduced.walk()?) };
        let mut group = Group { nest: self, columns: 1, offsets: [0; S], rows };
        loop {
            if self.inner.reduced {
                group.offsets = walk.offsets;
                f(&mut group)?;
            } else {
                for start in (0..self.inner.size).step_by(COLUMNS) {
                    group.columns = COLUMNS.min(self.inner.size - start);
                    group.offsets = core::array::from_fn(|i| walk.offsets[i] + start * self.inner.strides[i]);
                    f(&mut group)?;
                }
            }
            if !walk.next() {
                return Ok(());
            }
        }
    }
}

/// One group of elements that are reduced to one, or up to [`COLUMNS`] neighbouring ones.
pub(crate) struct Group<'n, const S: usize> {
    nest: &'n Nest<S>,
    /// Number of neighbouring groups; 1 if the innermost dimension is reduced.
    pub(crate) columns: usize,
    /// Offset of the (first) group in each tensor.
    pub(crate) offsets: [usize; S],
    rows: Option<Walk<S>>,
}

/// Neighbouring elements of the input: of one group if the innermost dimension is reduced, else one of each group.
#[derive(Clone, Copy)]
pub(crate) struct Row<const S: usize> {
    pub(crate) len: usize,
    /// Offset of the first element in each tensor.
    pub(crate) offsets: [usize; S],
}

impl<const S: usize> Group<'_, S> {
    /// True if rows are runs of one group.
    pub(crate) fn is_run(&self) -> bool {
        self.nest.inner.reduced
    }

    /// Stride in each tensor between the elements of a row: neighbouring groups, or elements of one.
    pub(crate) fn strides(&self) -> [usize; S] {
        self.nest.inner.strides
    }

    /// The number of rows and their distance in the input, if it is the same for all.
    fn equidistant_rows(&self) -> Option<(usize, usize)> {
        let Loops { sizes, strides } = &self.nest.reduced;
        match (&**sizes, self.nest.count) {
            (_, 0) => Some((0, 0)),
            ([], _) => Some((1, 0)),
            (&[count], _) => Some((count, strides[0].first().copied().unwrap_or(0))),
            _ => None,
        }
    }

    /// Calls `f` for each row.
    #[inline]
    pub(crate) fn rows(&mut self, mut f: impl FnMut(Row<S>) -> Result<()>) -> Result<()> {
        if self.nest.count == 0 {
            return Ok(());
        }
        let len = if self.is_run() { self.nest.inner.size } else { self.columns };
        let Some(walk) = &mut self.rows else { return f(Row { len, offsets: self.offsets }) };
        loop {
            f(Row { len, offsets: core::array::from_fn(|i| self.offsets[i] + walk.offsets[i]) })?;
            if !walk.next() {
                return Ok(());
            }
        }
    }

    /// Folds each group. `center` holds one value for each column. The first `columns` entries of `result` are set.
    pub(crate) fn fold<C: Compute, F: Fold<C, N>, const N: usize>(
        &mut self,
        from: &Reader<'_, C>,
        center: &[C; COLUMNS],
        result: &mut [[C; COLUMNS]; N],
    ) -> Result<()> {
        if self.is_run() {
            self.fold_runs::<C, F, N>(from, center, result)
        } else {
            self.fold_columns::<C, F, N>(from, center, result)
        }
    }

    fn fold_runs<C: Compute, F: Fold<C, N>, const N: usize>(
        &mut self,
        from: &Reader<'_, C>,
        center: &[C; COLUMNS],
        result: &mut [[C; COLUMNS]; N],
    ) -> Result<()> {
        let center = center[0];
        let mut levels = [F::START; LEVELS];
        let mut blocks = 0usize;
        let bits = level_bits(self.nest.count / BLOCK + self.nest.count / self.nest.inner.size.max(1));
        self.rows(|row| {
            let mut buffer = [F::START[0]; RUN_TILE];
            let step = if from.in_place().is_some() { BLOCK } else { RUN_TILE };
            for start in (0..row.len).step_by(step) {
                let tile = from.tile(row.offsets[0] + start, step.min(row.len - start), &mut buffer);
                levels[0] = F::merge(levels[0], fold_block::<C, F, N>(tile, center));
                blocks = blocks.wrapping_add(1);
                if blocks & ((1 << bits) - 1) == 0 {
                    levels[1] = F::merge(levels[1], levels[0]);
                    levels[0] = F::START;
                    if blocks & ((1 << (2 * bits)) - 1) == 0 {
                        levels[2] = F::merge(levels[2], levels[1]);
                        levels[1] = F::START;
                    }
                }
            }
            Ok(())
        })?;
        let total = F::merge(F::merge(levels[2], levels[1]), levels[0]);
        for (result, x) in result.iter_mut().zip(total) {
            result[0] = x;
        }
        Ok(())
    }

    fn fold_columns<C: Compute, F: Fold<C, N>, const N: usize>(
        &mut self,
        from: &Reader<'_, C>,
        center: &[C; COLUMNS],
        result: &mut [[C; COLUMNS]; N],
    ) -> Result<()> {
        let columns = self.columns;
        let mut levels = [F::START.map(|start| [start; COLUMNS]); LEVELS];
        let [level0, level1, level2] = &mut levels;
        let bits = level_bits(self.nest.count);
        let mut rows = 0usize;
        let mut count_rows = |level0: &mut _, new: usize| {
            rows = rows.wrapping_add(new);
            if rows & ((1 << bits) - 1) == 0 {
                merge_level::<C, F, N>(level1, level0, columns);
                if rows & ((1 << (2 * bits)) - 1) == 0 {
                    merge_level::<C, F, N>(level2, level1, columns);
                }
            }
        };
        if let (Some(elements), Some((count, stride))) = (from.in_place(), self.equidistant_rows()) {
            let mut row = 0;
            let at = |row: usize| &elements[self.offsets[0] + row * stride..][..columns];
            while row < count {
                if columns == COLUMNS && count - row >= 4 {
                    let at = |row| at(row).first_chunk::<COLUMNS>().unwrap_or(center);
                    fold_rows::<C, F, N>(level0, [at(row), at(row + 1), at(row + 2), at(row + 3)], center);
                    row += 4;
                    count_rows(level0, 4);
                } else {
                    fold_row::<C, F, N>(level0, at(row), center);
                    row += 1;
                    count_rows(level0, 1);
                }
            }
        } else {
            self.rows(|row| {
                let mut buffer = [F::START[0]; TILE];
                fold_row::<C, F, N>(level0, from.tile(row.offsets[0], columns, &mut buffer), center);
                count_rows(level0, 1);
                Ok(())
            })?;
        }
        merge_level::<C, F, N>(level1, level0, columns);
        merge_level::<C, F, N>(level2, level1, columns);
        *result = *level2;
        Ok(())
    }
}

/// Reduces `input`, read as `from`, into `out`, which has its sizes already. `finish` turns accumulators into results.
pub(crate) fn reduce<C: Compute, F: Fold<C, 1>>(
    input: &Tensor<'_>,
    from: &Reader<'_, C>,
    dims: DimSet,
    to: &mut Writer<'_, C>,
    keepdim: bool,
    finish: impl Fn(&mut [C]),
) -> Result<()> {
    let rank = input.rank();
    let out = dims.reduced_strides(rank, to.strides(), keepdim)?;
    let nest = Nest::new(input.sizes(), [input.strides(), &out], dims)?;
    if let (Some(run), Some(elements), Some(results)) = (nest.equal_runs(), from.in_place(), to.in_place()) {
        for (group, result) in elements.chunks_exact(run).zip(&mut *results) {
            [*result] = fold_block::<C, F, 1>(group, F::START[0]);
        }
        finish(results);
        return Ok(());
    }
    let mut result = [[F::START[0]; COLUMNS]];
    let center = result[0];
    nest.groups(|group| {
        group.fold::<C, F, 1>(from, &center, &mut result)?;
        let results = &mut result[0][..group.columns];
        finish(results);
        to.scatter(group.offsets[1], group.strides()[1], results)
    })
}

/// Sums `i32` numbers into `i64` sums if each group is one short run and the groups are in order. Else returns false
/// and does nothing.
pub(crate) fn sum_i32(input: &Tensor<'_>, dims: DimSet, out: &mut TensorMut<'_>, keepdim: bool) -> Result<bool> {
    let strides = dims.reduced_strides(input.rank(), out.strides(), keepdim)?;
    let nest = Nest::new(input.sizes(), [input.strides(), &strides], dims)?;
    let Some(run) = nest.equal_runs() else { return Ok(false) };
    for (group, sum) in input.as_slice::<i32>()?.chunks_exact(run).zip(out.as_mut_slice::<i64>()?) {
        *sum = 0;
        for block in group.chunks(BLOCK) {
            // The sums of the halves of so few numbers fit in 32 bits, therefore no number is widened.
            let (low, high) = block.iter().fold((0, 0), |(low, high), x| (low + (x & 0xffff), high + (x >> 16)));
            *sum += i64::from(low) + (i64::from(high) << 16);
        }
    }
    Ok(true)
}

/// Means and sums of squared deviations from the mean of the groups that [`measure`](Self::measure) saw last.
pub(crate) struct Moments<C> {
    means: [[C; COLUMNS]; 1],
    /// The sums of the deviations, and of their squares.
    sums: [[C; COLUMNS]; 2],
}

impl<C: Arithmetic + Compute> Moments<C> {
    pub(crate) fn new() -> Self {
        Self { means: [[C::ZERO; COLUMNS]], sums: [[C::ZERO; COLUMNS]; 2] }
    }

    /// Computes the moments of each group, corrected for the rounding error of the mean. The first `columns` entries of
    /// the means and of the sums of squares are set.
    pub(crate) fn measure<const S: usize>(
        &mut self,
        group: &mut Group<'_, S>,
        from: &Reader<'_, C>,
    ) -> Result<(&mut [C; COLUMNS], &mut [C; COLUMNS])> {
        let count = group.nest.count as f64;
        let columns = group.columns;
        // Sums ignore the center.
        group.fold::<C, Sum, 1>(from, &self.sums[0], &mut self.means)?;
        let [means] = &mut self.means;
        for mean in &mut means[..columns] {
            *mean = C::from_f64(mean.to_f64() / count);
        }
        group.fold::<C, Deviations, 2>(from, means, &mut self.sums)?;
        let [sums, squares] = &mut self.sums;
        for (squares, sum) in squares[..columns].iter_mut().zip(sums) {
            let corrected = squares.to_f64() - sum.to_f64() * sum.to_f64() / count;
            *squares = if corrected < 0.0 { C::ZERO } else { C::from_f64(corrected) };
        }
        Ok((means, squares))
    }
}

/// Resizes `out`, argument `index`, to the result of reducing `dims` of `input`.
pub(crate) fn resize_reduced(
    out: &mut TensorMut<'_>,
    input: &Tensor<'_>,
    dims: DimSet,
    keepdim: bool,
    index: usize,
) -> Result<()> {
    let sizes = dims.reduced_sizes(input.sizes(), keepdim)?;
    out.resize(&sizes).map_err(|e| e.arg(index))
}

/// Folds elements into `N` accumulators of type `C`, in any order and grouping.
///
/// Groups are folded in levels, so that rounding errors of sums grow with the logarithm of the number of elements or
/// with a small root of it, not linearly.
pub(crate) trait Fold<C: Copy, const N: usize> {
    /// The accumulators of no elements.
    const START: [C; N];
    /// True if a step is more than one instruction. The loop over many lanes then stays a loop, which becomes vector
    /// code; single instructions are better kept in registers.
    const LONG: bool = true;
    fn step(state: [C; N], x: C, center: C) -> [C; N];
    fn merge(a: [C; N], b: [C; N]) -> [C; N];
}

const LEVELS: usize = 3;

/// Elements of a run that are converted at a time.
pub(crate) const RUN_TILE: usize = 256;

/// Elements of a run that are folded before their result goes to the first level.
const BLOCK: usize = 512;

/// Binary logarithm of the entries of a level that are merged into one of the next.
fn level_bits(entries: usize) -> u32 {
    (entries.max(1).ilog2() / LEVELS as u32 + 1).max(4)
}

/// Folds a slice.
#[inline]
pub(crate) fn fold_block<C: Copy, F: Fold<C, N>, const N: usize>(block: &[C], center: C) -> [C; N] {
    if block.len() < 8 {
        block.iter().fold(F::START, |state, &x| F::step(state, x, center))
    } else if F::LONG && size_of::<C>() <= 4 {
        fold_lanes::<C, F, N, 32>(block, center)
    } else {
        fold_lanes::<C, F, N, 16>(block, center)
    }
}

/// Folds a slice with `LANES` accumulators each, for instruction-level and vector parallelism. It is a separate
/// function, so that the optimizer sees the loop alone.
#[inline(never)]
fn fold_lanes<C: Copy, F: Fold<C, N>, const N: usize, const LANES: usize>(block: &[C], center: C) -> [C; N] {
    let (chunks, rest) = block.as_chunks::<LANES>();
    let mut lanes = F::START.map(|start| [start; LANES]);
    for chunk in chunks {
        for i in 0..LANES {
            let next = F::step(core::array::from_fn(|k| lanes[k][i]), chunk[i], center);
            for k in 0..N {
                lanes[k][i] = next[k];
            }
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        let next = F::step(core::array::from_fn(|k| lanes[k][i]), x, center);
        for k in 0..N {
            lanes[k][i] = next[k];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            let at = |i: usize| core::array::from_fn(|k| lanes[k][i]);
            let next = F::merge(at(i), at(i + width));
            for k in 0..N {
                lanes[k][i] = next[k];
            }
        }
        width /= 2;
    }
    core::array::from_fn(|k| lanes[k][0])
}

#[inline(always)]
fn fold_row<C: Copy, F: Fold<C, N>, const N: usize>(state: &mut [[C; COLUMNS]; N], row: &[C], center: &[C; COLUMNS]) {
    for (i, (&x, &center)) in row.iter().zip(center).enumerate() {
        let next = F::step(core::array::from_fn(|k| state[k][i]), x, center);
        for k in 0..N {
            state[k][i] = next[k];
        }
    }
}

/// Folds four rows at a time, which saves loads and stores of the accumulators.
#[inline(always)]
fn fold_rows<C: Copy, F: Fold<C, N>, const N: usize>(
    state: &mut [[C; COLUMNS]; N],
    rows: [&[C; COLUMNS]; 4],
    center: &[C; COLUMNS],
) {
    for i in 0..COLUMNS {
        let mut next = core::array::from_fn(|k| state[k][i]);
        for row in rows {
            next = F::step(next, row[i], center[i]);
        }
        for k in 0..N {
            state[k][i] = next[k];
        }
    }
}

/// Merges `from` into `to` and resets `from`.
fn merge_level<C: Copy, F: Fold<C, N>, const N: usize>(
    to: &mut [[C; COLUMNS]; N],
    from: &mut [[C; COLUMNS]; N],
    columns: usize,
) {
    for i in 0..columns.min(COLUMNS) {
        let next = F::merge(core::array::from_fn(|k| to[k][i]), core::array::from_fn(|k| from[k][i]));
        for k in 0..N {
            to[k][i] = next[k];
            from[k][i] = F::START[k];
        }
    }
}

/// The sum.
pub(crate) struct Sum;

impl<C: Arithmetic> Fold<C, 1> for Sum {
    const LONG: bool = false;
    const START: [C; 1] = [C::ZERO];
    #[inline(always)]
    fn step([sum]: [C; 1], x: C, _: C) -> [C; 1] {
        [sum.add(x)]
    }
    #[inline(always)]
    fn merge([a]: [C; 1], [b]: [C; 1]) -> [C; 1] {
        [a.add(b)]
    }
}

impl Fold<Complex<f32>, 1> for Sum {
    const START: [Complex<f32>; 1] = [Complex { re: 0.0, im: 0.0 }];
    #[inline(always)]
    fn step([sum]: [Complex<f32>; 1], x: Complex<f32>, _: Complex<f32>) -> [Complex<f32>; 1] {
        [Complex { re: sum.re + x.re, im: sum.im + x.im }]
    }
    #[inline(always)]
    fn merge(a: [Complex<f32>; 1], [b]: [Complex<f32>; 1]) -> [Complex<f32>; 1] {
        Self::step(a, b, b)
    }
}

impl Fold<Complex<f64>, 1> for Sum {
    const START: [Complex<f64>; 1] = [Complex { re: 0.0, im: 0.0 }];
    #[inline(always)]
    fn step([sum]: [Complex<f64>; 1], x: Complex<f64>, _: Complex<f64>) -> [Complex<f64>; 1] {
        [Complex { re: sum.re + x.re, im: sum.im + x.im }]
    }
    #[inline(always)]
    fn merge(a: [Complex<f64>; 1], [b]: [Complex<f64>; 1]) -> [Complex<f64>; 1] {
        Self::step(a, b, b)
    }
}

/// The product.
pub(crate) struct Product;

impl<C: Arithmetic> Fold<C, 1> for Product {
    const LONG: bool = false;
    const START: [C; 1] = [C::ONE];
    #[inline(always)]
    fn step([product]: [C; 1], x: C, _: C) -> [C; 1] {
        [product.mul(x)]
    }
    #[inline(always)]
    fn merge([a]: [C; 1], [b]: [C; 1]) -> [C; 1] {
        [a.mul(b)]
    }
}

/// A compute type with a minimum and a maximum value.
pub(crate) trait Bounded: Arithmetic + Compute {
    const LEAST: Self;
    const GREATEST: Self;
}

impl Bounded for f32 {
    const LEAST: Self = Self::NEG_INFINITY;
    const GREATEST: Self = Self::INFINITY;
}

impl Bounded for f64 {
    const LEAST: Self = Self::NEG_INFINITY;
    const GREATEST: Self = Self::INFINITY;
}

impl Bounded for i64 {
    const LEAST: Self = Self::MIN;
    const GREATEST: Self = Self::MAX;
}

/// The maximum; NaN if any element is NaN.
pub(crate) struct Max;

impl<C: Bounded> Fold<C, 1> for Max {
    const START: [C; 1] = [C::LEAST];
    #[inline(always)]
    fn step([max]: [C; 1], x: C, _: C) -> [C; 1] {
        [if x > max || x.is_nan() { x } else { max }]
    }
    #[inline(always)]
    fn merge(a: [C; 1], [b]: [C; 1]) -> [C; 1] {
        Self::step(a, b, b)
    }
}

/// The maximum of the elements that are not NaN.
pub(crate) struct MaxNumber;

impl<C: Bounded> Fold<C, 1> for MaxNumber {
    const START: [C; 1] = [C::LEAST];
    #[inline(always)]
    fn step([max]: [C; 1], x: C, _: C) -> [C; 1] {
        [if x > max { x } else { max }]
    }
    #[inline(always)]
    fn merge(a: [C; 1], [b]: [C; 1]) -> [C; 1] {
        Self::step(a, b, b)
    }
}

/// The minimum; NaN if any element is NaN.
pub(crate) struct Min;

impl<C: Bounded> Fold<C, 1> for Min {
    const START: [C; 1] = [C::GREATEST];
    #[inline(always)]
    fn step([min]: [C; 1], x: C, _: C) -> [C; 1] {
        [if x < min || x.is_nan() { x } else { min }]
    }
    #[inline(always)]
    fn merge(a: [C; 1], [b]: [C; 1]) -> [C; 1] {
        Self::step(a, b, b)
    }
}

/// Sums of the deviations from the center and of their squares.
struct Deviations;

impl<C: Arithmetic> Fold<C, 2> for Deviations {
    const START: [C; 2] = [C::ZERO; 2];
    #[inline(always)]
    fn step([sum, squares]: [C; 2], x: C, center: C) -> [C; 2] {
        let d = x.sub(center);
        [sum.add(d), squares.add(d.mul(d))]
    }
    #[inline(always)]
    fn merge(a: [C; 2], b: [C; 2]) -> [C; 2] {
        [a[0].add(b[0]), a[1].add(b[1])]
    }
}
