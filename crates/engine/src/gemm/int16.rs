//! GEMM of f32 rows by weight-only quantized matrices, in integers: a row is rounded to 16 bits with a scale for each 256 elements, so
//! that an element is off by at most 2^-16 of the largest of these, and products of integers are summed exactly.
//!
//! A 16-bit dot product does two multiply-adds where f32 does one, and weights need no conversion to floats. Tasks are blocks of
//! the output. A task goes through some rows at a time, through K in blocks whose weights, as pairs of 16 bits, fit in the L1
//! cache, and through panels; with fewer rows, through panels from end to end. Sums are kept in the output in between. Their order
//! depends on nothing but K, so that results depend neither on threads nor on the number of rows.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::{Gemm, Matrix};
use crate::Engine;
use crate::arch::{I16Pairs, Kernel, LANES, Simd};
use crate::epilogue::{ApplyEpilogue, EpilogueArgs};
use crate::pack::Bits;
use crate::partition::{OutputBlock, OutputPartition};
use crate::weights::{PanelGroups, QuantizedGroup, QuantizedWeights};

/// Rows of weights in a block, and the most that a sum in i32 has: `256 * 255 * 32767` fits.
const BLOCK_K: usize = 256;
const BLOCK_PAIRS: usize = BLOCK_K / 2;

/// Maximum rows on the left in a block; fewer rows have several blocks of K at a time.
const BLOCK_ROWS: usize = 96;

/// Minimum rows of a group of weights. More, smaller groups have their scales as work.
const MIN_GROUP: usize = 16;
/// Maximum groups, of which the first and the last may be a part, in a block.
const MAX_GROUPS: usize = BLOCK_K / MIN_GROUP;

/// Panels whose weights are unpacked at a time, if that pays: for at least so many rows.
const PANELS: usize = 2;
const MIN_UNPACKED_ROWS: usize = 12;

/// Rows that weights are unpacked for in registers.
const STREAM_ROWS: usize = 4;

/// Rows of the largest tiles, of one panel and of two.
const TILE_ROWS: [usize; PANELS] = [4, 6];

/// Largest magnitude of an element.
const MAX: f32 = 32767.0;

/// `c = epilogue(a b)` for weights that [`suit`](suits) it.
pub(super) struct Int16Gemm<'a> {
    pub(super) gemm: &'a Gemm,
    pub(super) a: Matrix<'a>,
    pub(super) weights: QuantizedWeights<'a>,
    pub(super) c: *mut f32,
    pub(super) epilogue: EpilogueArgs,
}

// SAFETY: tasks write disjoint blocks of `c`, which `gemm` borrows exclusively.
unsafe impl Sync for Int16Gemm<'_> {}

/// True if the processor multiplies 16-bit integers faster than floats, and groups of weights are not too small.
pub(super) fn suits(engine: &Engine, weights: &QuantizedWeights<'_>) -> bool {
    struct HasDot;
    impl Kernel for HasDot {
        type Out = bool;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> bool {
            S::HAS_I16_DOT
        }
    }
    weights.group() >= MIN_GROUP && engine.dispatch.run(HasDot)
}

impl Int16Gemm<'_> {
    /// Computes it on all threads.
    ///
    /// # Safety
    /// The slices and `c` have the sizes that the shape and the epilogue need, and nobody else accesses `c` meanwhile.
    pub(super) unsafe fn run(&self, engine: &Engine) {
        let &Gemm { m, n, k, .. } = self.gemm;
        let [rows, panels] = [TILE_ROWS[PANELS - 1], PANELS];
        let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 2, (rows, panels));
        engine.pool.run(partition.tasks(), |task| {
            engine.dispatch.run_int8(Task { gemm: self, block: partition.block(task) });
        });
    }
}

/// One task.
struct Task<'a> {
    gemm: &'a Int16Gemm<'a>,
    block: OutputBlock,
}

/// Blocks of rows on the left as integers, up to 256 elements in each.
struct Left {
    /// Pairs of elements, `[blocks][BLOCK_PAIRS]`.
    pairs: [MaybeUninit<u32>; BLOCK_ROWS * BLOCK_PAIRS],
    /// What the integers are multiplied by, `[blocks]`.
    scales: [MaybeUninit<f32>; BLOCK_ROWS],
    /// The sum of the integers of each group of weights, `[blocks][MAX_GROUPS]`.
    sums: [MaybeUninit<i32>; BLOCK_ROWS * MAX_GROUPS],
}

/// Weights of a block of two panels.
struct Right {
    /// Pairs of integers, `[panels][BLOCK_PAIRS]`.
    pairs: [[MaybeUninit<[u32; LANES]>; BLOCK_PAIRS]; PANELS],
    /// For each group what the sum of products is multiplied by, and what the sum of the row is, `[panels][MAX_GROUPS]`.
    scales: [[MaybeUninit<[f32; LANES]>; MAX_GROUPS]; PANELS],
    minima: [[MaybeUninit<[f32; LANES]>; MAX_GROUPS]; PANELS],
    /// The end of each group, in pairs.
    ends: [usize; MAX_GROUPS],
    groups: usize,
    has_minima: bool,
}

impl Kernel for Task<'_> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "76 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let OutputBlock { m_inner, panels, .. } = self.block;
        let (gemm, k) = (self.gemm, self.gemm.gemm.k);
        let mut left = Left {
            pairs: [const { MaybeUninit::uninit() }; _],
            scales: [const { MaybeUninit::uninit() }; _],
            sums: [const { MaybeUninit::uninit() }; _],
        };
        let mut right = Right {
            pairs: [const { [const { MaybeUninit::uninit() }; _] }; _],
            scales: [const { [const { MaybeUninit::uninit() }; _] }; _],
            minima: [const { [const { MaybeUninit::uninit() }; _] }; _],
            ends: [0; MAX_GROUPS],
            groups: 0,
            has_minima: false,
        };
        // Blocks of about the same number of rows, of whole tiles.
        let blocks = m_inner.len().div_ceil(BLOCK_ROWS);
        let block_rows = m_inner.len().div_ceil(blocks).next_multiple_of(TILE_ROWS[1]);
        for row in m_inner.clone().step_by(block_rows) {
            let rows = row..m_inner.end.min(row + block_rows);
            let is_stream = rows.len() < MIN_UNPACKED_ROWS;
            let depth = if is_stream { BLOCK_ROWS / rows.len() * BLOCK_K } else { BLOCK_K };
            let mut from = 0;
            loop {
                let ks = from..k.min(from + depth);
                let block = Block { gemm, rows: rows.clone(), ks: ks.clone() };
                s.vectorize_int8(RoundRows { block: &block, left: &mut left });
                if is_stream {
                    block.stream(s, &left, panels.clone());
                } else {
                    for panel in panels.clone().step_by(PANELS) {
                        block.run(s, &left, &mut right, panel..panels.end.min(panel + PANELS));
                    }
                }
                from = ks.end;
                if from >= k {
                    break;
                }
            }
            gemm.finish(s, rows, &panels);
        }
    }
}

impl Int16Gemm<'_> {
    /// Applies what of the epilogue follows the bias.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, rows: Range<usize>, panels: &Range<usize>) {
        let Self { gemm, c, epilogue, .. } = self;
        if epilogue.is_bias_alone() {
            return;
        }
        let (column, end) = (panels.start * LANES, gemm.n.min(panels.end * LANES));
        let finish = ApplyEpilogue {
            epilogue,
            sums: c.wrapping_add(rows.start * gemm.c_stride + column),
            stride: gemm.c_stride,
            rounded: None,
            residual: epilogue.residual.add(s, rows.start * epilogue.residual_stride + column),
            residual_stride: epilogue.residual_stride,
            rows: rows.len(),
            columns: end - column,
        };
        // SAFETY: `run` requires the output and the residual, and only this task accesses these elements.
        unsafe { finish.run_on(s) };
    }
}

/// Some rows, and one or several blocks of K.
struct Block<'a> {
    gemm: &'a Int16Gemm<'a>,
    rows: Range<usize>,
    ks: Range<usize>,
}

/// Rows of weights that are in one group and in one block of K.
struct Piece<'a> {
    group: QuantizedGroup<'a>,
    rows: Range<usize>,
    /// Its block, and its number in it.
    block: usize,
    number: usize,
}

/// Goes through the weights of a panel.
struct Pieces<'a> {
    groups: PanelGroups<'a>,
    /// The group that is left from row `from` on.
    group: Option<QuantizedGroup<'a>>,
    from: usize,
    block: usize,
    number: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece<'a>> {
        let (group, from) = match self.group {
            Some(group) => (group, self.from),
            None => {
                let group = self.groups.next()?;
                (group, group.from)
            }
        };
        let to = group.to.min((from / BLOCK_K + 1) * BLOCK_K);
        let piece = Piece { group, rows: from..to, block: self.block, number: self.number };
        self.number += 1;
        if to.is_multiple_of(BLOCK_K) {
            (self.block, self.number) = (self.block + 1, 0);
        }
        (self.group, self.from) = ((to < group.to).then_some(group), to);
        Some(piece)
    }
}

/// Rounds rows to integers.
struct RoundRows<'a> {
    block: &'a Block<'a>,
    left: &'a mut Left,
}

impl Kernel for RoundRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { block, left } = self;
        let Matrix { data, stride, .. } = block.gemm.a;
        let (count, ks) = (block.rows.len(), &block.ks);
        for (number, from) in ks.clone().step_by(BLOCK_K).enumerate() {
            let to = ks.end.min(from + BLOCK_K);
            for (row, index) in block.rows.clone().enumerate() {
                let at = number * count + row;
                let pairs = &mut left.pairs[at * BLOCK_PAIRS..(at + 1) * BLOCK_PAIRS];
                left.scales[at].write(round(&data[index * stride + from..index * stride + to], pairs));
            }
        }
        // The groups are those of any panel.
        for Piece { rows, block: number, number: group, .. } in block.pieces(0) {
            let pairs = rows.start % BLOCK_K / 2..(rows.start % BLOCK_K + rows.len()).div_ceil(2);
            for at in number * count..(number + 1) * count {
                let pairs = &left.pairs[at * BLOCK_PAIRS..][pairs.clone()];
                // SAFETY: the pairs of all elements are written.
                let both = |pair: &MaybeUninit<u32>| unsafe { pair.assume_init() }.cast_signed();
                let sum = pairs.iter().fold(0, |sum, pair| sum + i32::from(both(pair) as i16) + (both(pair) >> 16));
                left.sums[at * MAX_GROUPS + group].write(sum);
            }
        }
    }
}

/// Rounds elements to integers, in pairs of which the first is in the lower half; the last may lack its second, which is 0. Returns
/// their scale, which is NaN if one of them is infinite or NaN.
#[inline(always)]
fn round(x: &[f32], pairs: &mut [MaybeUninit<u32>]) -> f32 {
    // To which an f32 below 2^22 is added for its integer to be in the lower bits.
    const INTEGERS: f32 = 12_582_912.0;
    // Bits of magnitudes are in the order of these, and those of NaN above all.
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & !(1 << 31)));
    let most = f32::from_bits(most);
    let scale = most / MAX;
    if !scale.is_normal() {
        pairs.fill(MaybeUninit::new(0));
        return if scale.is_finite() { 0.0 } else { f32::NAN };
    }
    let inverse = MAX / most;
    let integer = |x: f32| (x * inverse + INTEGERS).to_bits();
    let (whole, rest) = x.as_chunks::<2>();
    for (to, [first, second]) in pairs.iter_mut().zip(whole) {
        to.write(integer(*first) & 0xffff | integer(*second) << 16);
    }
    if let ([x], Some(to)) = (rest, pairs.get_mut(whole.len())) {
        to.write(integer(*x) & 0xffff);
    }
    scale
}

impl Block<'_> {
    /// The weights of a panel.
    #[inline(always)]
    fn pieces(&self, panel: usize) -> Pieces<'_> {
        let groups = self.gemm.weights.groups(panel, self.ks.start, self.ks.end);
        Pieces { groups, group: None, from: 0, block: 0, number: 0 }
    }

    /// Multiplies few rows by panels, one after the other.
    #[inline(always)]
    fn stream<S: Simd>(&self, s: S, left: &Left, panels: Range<usize>) {
        for panel in panels {
            for row in (0..self.rows.len()).step_by(STREAM_ROWS) {
                let columns = Columns { block: self, left, row, panel };
                match self.rows.len() - row {
                    1 => s.vectorize_int8(Stream::<1>(columns)),
                    2 => s.vectorize_int8(Stream::<2>(columns)),
                    3 => s.vectorize_int8(Stream::<3>(columns)),
                    _ => s.vectorize_int8(Stream::<STREAM_ROWS>(columns)),
                }
            }
        }
    }

    /// Multiplies a block of rows by one or two panels.
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, left: &Left, right: &mut Right, panels: Range<usize>) {
        s.vectorize_int8(Unpack { block: self, panels: panels.clone(), right: &mut *right });
        let rows = Rows { block: self, left, right, first: panels.start, panel: 0 };
        if const { S::VECTOR_REGISTERS >= 32 } && panels.len() == PANELS {
            rows.tiles::<S, { TILE_ROWS[1] }, PANELS>(s);
        } else {
            for panel in 0..panels.len() {
                Rows { panel, ..rows }.tiles::<S, { TILE_ROWS[0] }, 1>(s);
            }
        }
    }

    /// Where the sums of some columns of a row begin, and their number.
    #[inline(always)]
    fn output(&self, row: usize, panel: usize) -> (*mut f32, usize) {
        let Int16Gemm { gemm, c, .. } = self.gemm;
        let column = panel * LANES;
        (c.wrapping_add((self.rows.start + row) * gemm.c_stride + column), (gemm.n - column).min(LANES))
    }

    /// The sums so far: the bias before the first block of K.
    #[inline(always)]
    fn sums<S: Simd>(&self, s: S, row: usize, panel: usize) -> S::V {
        let (from, lanes) = self.output(row, panel);
        if self.ks.start > 0 {
            // SAFETY: `run` requires the output, and this task has stored these sums.
            return unsafe { s.load_partial(from, lanes) };
        }
        let bias = self.gemm.epilogue.bias;
        if bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_partial(bias.wrapping_add(panel * LANES), lanes) }
    }

    #[inline(always)]
    fn store<S: Simd>(&self, s: S, row: usize, panel: usize, sums: S::V) {
        let (to, lanes) = self.output(row, panel);
        // SAFETY: `run` requires the output, and only this task accesses these elements.
        unsafe { s.store_partial(to, lanes, sums) };
    }
}

/// Unpacks the weights of a block.
struct Unpack<'a> {
    block: &'a Block<'a>,
    panels: Range<usize>,
    right: &'a mut Right,
}

impl Unpack<'_> {
    #[inline(always)]
    fn piece<S: Simd, const BITS: u32, const PAIRS: usize>(&mut self, s: S, panel: usize, piece: &Piece<'_>) {
        let (group, start) = (&piece.group, self.block.ks.start);
        let zeros = group.zeros_i32(s);
        let zeros = I16Pairs::of(s.join_bits::<16>(zeros, zeros));
        group.prefetch(s, self.block.gemm.weights.panel_bytes() * PANELS);
        let end = (piece.rows.end - start).next_multiple_of(2 * PAIRS) / 2;
        let to = self.right.pairs[panel][(piece.rows.start - start) / 2..end].as_mut_ptr().cast::<[i32; LANES]>();
        for row in (0..piece.rows.len()).step_by(2 * PAIRS) {
            // SAFETY: groups have a multiple of `2 * PAIRS` rows.
            let pairs = unsafe { group.load_pairs::<S, BITS, PAIRS>(s, piece.rows.start + row) };
            for at in 0..PAIRS {
                let to = to.wrapping_add(row / 2 + at).cast();
                // SAFETY: there is room for a vector for each pair.
                unsafe { s.store_i32(to, s.sub_i16(pairs[at], zeros).into_i32()) };
            }
        }
    }
}

impl Kernel for Unpack<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (block, panels) = (self.block, self.panels.clone());
        self.right.groups = 0;
        for (panel, index) in panels.enumerate() {
            for piece in block.pieces(index) {
                let (right, group) = (&mut *self.right, &piece.group);
                // SAFETY: there is room for a vector.
                unsafe { s.store(right.scales[panel][piece.number].as_mut_ptr().cast(), group.scales(s)) };
                let minima = group.minima(s);
                right.has_minima = minima.is_some();
                if let Some(minima) = minima {
                    // SAFETY: likewise.
                    unsafe { s.store(right.minima[panel][piece.number].as_mut_ptr().cast(), minima) };
                }
                right.ends[piece.number] = (piece.rows.end - block.ks.start).div_ceil(2);
                right.groups = piece.number + 1;
                match group.bits() {
                    Bits::Four => self.piece::<S, 4, 1>(s, panel, &piece),
                    Bits::Six => self.piece::<S, 6, 2>(s, panel, &piece),
                    Bits::Eight => self.piece::<S, 8, 1>(s, panel, &piece),
                }
            }
        }
    }
}

/// The rows of a block, and unpacked weights.
#[derive(Clone, Copy)]
struct Rows<'a> {
    block: &'a Block<'a>,
    left: &'a Left,
    right: &'a Right,
    /// The first of the unpacked panels, and the number among them of the first that is multiplied.
    first: usize,
    panel: usize,
}

impl Rows<'_> {
    /// Multiplies them by `P` panels, in tiles of up to `R` rows.
    #[inline(always)]
    fn tiles<S: Simd, const R: usize, const P: usize>(self, s: S) {
        let (mut row, count) = (0, self.block.rows.len());
        while row < count {
            row += match count - row {
                1 => s.vectorize_int8(Tile::<1, P> { rows: self, row }),
                rest if rest >= R => s.vectorize_int8(Tile::<R, P> { rows: self, row }),
                2 | 3 => s.vectorize_int8(Tile::<2, P> { rows: self, row }),
                _ => s.vectorize_int8(Tile::<4, P> { rows: self, row }),
            };
        }
    }
}

/// A register tile of `R` rows and `P` panels. Returns `R`.
struct Tile<'a, const R: usize, const P: usize> {
    rows: Rows<'a>,
    row: usize,
}

impl<const R: usize, const P: usize> Kernel for Tile<'_, R, P> {
    type Out = usize;

    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let Self { rows: Rows { block, left, right, first, panel }, row } = self;
        let rows = left.pairs[row * BLOCK_PAIRS..(row + R) * BLOCK_PAIRS].as_ptr().cast::<u32>();
        let mut totals = [[s.splat(0.0); P]; R];
        let mut pair = 0;
        for group in 0..right.groups {
            let mut products = [[s.splat_i32(0); P]; R];
            while pair < right.ends[group] {
                let mut weights = [I16Pairs::of(s.splat_i32(0)); P];
                for p in 0..P {
                    // SAFETY: the weights of the block's groups are unpacked.
                    weights[p] = I16Pairs::of(unsafe { s.load_i32(right.pairs[panel + p][pair].as_ptr().cast()) });
                }
                for r in 0..R {
                    // SAFETY: rows have as many pairs.
                    let x = splat_pair(s, unsafe { *rows.wrapping_add(r * BLOCK_PAIRS + pair) });
                    for p in 0..P {
                        products[r][p] = s.dot_i16(x, weights[p], products[r][p]);
                    }
                }
                pair += 1;
            }
            for p in 0..P {
                // SAFETY: each group has its scales.
                let scales = unsafe { s.load(right.scales[panel + p][group].as_ptr().cast()) };
                for r in 0..R {
                    totals[r][p] = s.fma(s.i32_to_f32(products[r][p]), scales, totals[r][p]);
                }
                if right.has_minima {
                    // SAFETY: likewise.
                    let minima = unsafe { s.load(right.minima[panel + p][group].as_ptr().cast()) };
                    for r in 0..R {
                        // SAFETY: each group has the sum of a row.
                        let sum = unsafe { left.sums[(row + r) * MAX_GROUPS + group].assume_init() };
                        totals[r][p] = s.fma(minima, s.splat(sum as f32), totals[r][p]);
                    }
                }
            }
        }
        for r in 0..R {
            // SAFETY: each row has its scale.
            let scale = s.splat(unsafe { left.scales[row + r].assume_init() });
            for p in 0..P {
                let panel = first + panel + p;
                let sums = block.sums(s, row + r, panel);
                block.store(s, row + r, panel, s.fma(totals[r][p], scale, sums));
            }
        }
        R
    }
}

#[inline(always)]
fn splat_pair<S: Simd>(s: S, pair: u32) -> I16Pairs<S> {
    I16Pairs::of(s.splat_i32(pair.cast_signed()))
}

/// A panel for few rows.
struct Columns<'a> {
    block: &'a Block<'a>,
    left: &'a Left,
    row: usize,
    panel: usize,
}

/// `R` rows times a panel whose weights are unpacked in registers.
struct Stream<'a, const R: usize>(Columns<'a>);

impl<const R: usize> Kernel for Stream<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Columns { block, left, row, panel } = self.0;
        let (mut sums, mut totals) = ([s.splat(0.0); R], [s.splat(0.0); R]);
        for r in 0..R {
            sums[r] = block.sums(s, row + r, panel);
        }
        for piece in block.pieces(panel) {
            totals = match piece.group.bits() {
                Bits::Four => self.piece::<S, 4, 1>(s, &piece, totals),
                Bits::Six => self.piece::<S, 6, 2>(s, &piece, totals),
                Bits::Eight => self.piece::<S, 8, 1>(s, &piece, totals),
            };
            if piece.rows.end.is_multiple_of(BLOCK_K) || piece.rows.end == block.ks.end {
                for r in 0..R {
                    // SAFETY: each block of a row has its scale.
                    let scale = s.splat(unsafe { left.scales[self.0.slot(piece.block, r)].assume_init() });
                    sums[r] = s.fma(totals[r], scale, sums[r]);
                }
                totals = [s.splat(0.0); R];
            }
        }
        for r in 0..R {
            block.store(s, row + r, panel, sums[r]);
        }
    }
}

impl Columns<'_> {
    /// Where a block of a row is.
    #[inline(always)]
    fn slot(&self, block: usize, r: usize) -> usize {
        block * self.block.rows.len() + self.row + r
    }
}

impl<const R: usize> Stream<'_, R> {
    #[inline(always)]
    fn piece<S: Simd, const BITS: u32, const PAIRS: usize>(
        &self,
        s: S,
        piece: &Piece<'_>,
        mut totals: [S::V; R],
    ) -> [S::V; R] {
        let (group, left) = (&piece.group, self.0.left);
        let row_of = |r: usize| self.0.slot(piece.block, r);
        let pair = |r: usize, k: usize| {
            let at = row_of(r) * BLOCK_PAIRS + k % BLOCK_K / 2;
            // SAFETY: rows have as many pairs.
            splat_pair(s, unsafe { *left.pairs.as_ptr().cast::<u32>().wrapping_add(at) })
        };
        // Two sums for each row hide the latency of an addition.
        let mut products = [[s.splat_i32(0); 2]; R];
        let mut row = piece.rows.start;
        while piece.rows.end - row >= 4 {
            // SAFETY: the group has these rows.
            let weights = unsafe { group.load_pairs::<S, BITS, 2>(s, row) };
            for r in 0..R {
                for at in 0..2 {
                    products[r][at] = s.dot_i16(pair(r, row + 2 * at), weights[at], products[r][at]);
                }
            }
            row += 4;
        }
        while row < piece.rows.end {
            // SAFETY: the group has these rows; an odd number of them is padded, with 6 bits to a multiple of 4.
            let weights = unsafe { group.load_pairs::<S, BITS, PAIRS>(s, row) };
            for r in 0..R {
                for at in 0..PAIRS {
                    products[r][at] = s.dot_i16(pair(r, row + 2 * at), weights[at], products[r][at]);
                }
            }
            row += 2 * PAIRS;
        }
        let (scales, minima, zeros) = (group.scales(s), group.minima(s), group.zeros_i32(s));
        for r in 0..R {
            // SAFETY: each group has the sum of a row.
            let sum = unsafe { left.sums[row_of(r) * MAX_GROUPS + piece.number].assume_init() };
            // As if zero points were subtracted from the weights.
            let product = s.add_i32(s.add_i32(products[r][0], products[r][1]), s.mul_i32(zeros, -sum));
            totals[r] = s.fma(s.i32_to_f32(product), scales, totals[r]);
            if let Some(minima) = minima {
                totals[r] = s.fma(minima, s.splat(sum as f32), totals[r]);
            }
        }
        totals
    }
}
