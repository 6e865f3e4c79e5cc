//! The GEMM behind `mm`, `bmm`, `addmm`, `linear` and 1 x 1 convolutions.
//!
//! `out = alpha * (a @ b) + addend`, accumulated over the whole inner dimension and rounded once.
//!
//! A GEMM with many rows keeps 6 x 8 accumulators in registers and copies blocks of both operands to the stack. The
//! copies of `a` repeat each element once per lane of a vector, because baseline instructions cannot multiply a vector by
//! an element of another vector. The output keeps the sums between blocks of K; a buffer does if the output has another
//! type or layout. A GEMM with few rows reads `b` in its memory order.
//!
//! Stack use is up to 52 KB on 64-bit machines (104 KB for 64-bit types), and about 3 KB on others (5 KB).

use rushlight_runtime::{Error, Result, Tensor, TensorMut};

use crate::support::runs::{Accumulator, Load, Store, native, runs};

/// A matrix in the memory of a tensor: element (i, j) is at `offset + i * row + j * col`.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) offset: usize,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

impl Layout {
    fn transposed(self) -> Self {
        Self { offset: self.offset, row: self.col, col: self.row }
    }

    /// The rows from row `i` on.
    pub(crate) fn below(self, i: usize) -> Self {
        Self { offset: self.at(i, 0), ..self }
    }

    fn at(self, i: usize, j: usize) -> usize {
        self.offset + i * self.row + j * self.col
    }

    /// Fails unless a `rows` x `cols` matrix lies within `len` elements.
    fn check(self, rows: usize, cols: usize, len: usize) -> Result<()> {
        let end = |n: usize, step: usize| n.saturating_sub(1).checked_mul(step);
        let last = end(rows, self.row)
            .zip(end(cols, self.col))
            .and_then(|(a, b)| a.checked_add(b)?.checked_add(self.offset))
            .filter(|&last| last < len);
        if rows == 0 || cols == 0 || last.is_some() {
            return Ok(());
        }
        Err(Error::invalid("the matrix does not lie within its tensor"))
    }
}

/// A matrix operand.
#[derive(Clone, Copy)]
pub(crate) struct MatrixOperand<'a, A> {
    tensor: Tensor<'a>,
    native: Option<&'a [A]>,
    load: Load<A>,
    layout: Layout,
}

impl<'a, A: Accumulator> MatrixOperand<'a, A> {
    pub(crate) fn new(tensor: Tensor<'a>, layout: Layout) -> Result<Self> {
        Ok(Self { tensor, native: native(&tensor), load: runs::<A>(tensor.dtype())?.load, layout })
    }

    fn transposed(self) -> Self {
        Self { layout: self.layout.transposed(), ..self }
    }

    /// The part from element (i, j) on.
    fn from(self, i: usize, j: usize) -> Self {
        Self { layout: Layout { offset: self.layout.at(i, j), ..self.layout }, ..self }
    }

    /// All rows with their stride, if they can be read in place.
    fn in_place(&self) -> Option<DenseRows<'a, A>> {
        let values = self.native?.get(self.layout.offset..)?;
        (self.layout.col == 1).then_some(DenseRows { values, step: self.layout.row })
    }

    /// The first `len` elements of row `i`, if they can be read in place.
    #[inline(always)]
    pub(crate) fn row_in_place(&self, i: usize, len: usize) -> Option<&'a [A]> {
        let start = self.layout.at(i, 0);
        self.native.filter(|_| self.layout.col == 1)?.get(start..start.checked_add(len)?)
    }

    /// Row `i` from column `j` on, `buffer.len()` elements; read in place if they are contiguous.
    #[inline(always)]
    pub(crate) fn run<'b>(&self, i: usize, j: usize, buffer: &'b mut [A]) -> Result<&'b [A]>
    where
        'a: 'b,
    {
        let start = self.layout.at(i, j);
        if self.layout.col == 1
            && let Some(run) = self.native.and_then(|data| data.get(start..start + buffer.len()))
        {
            return Ok(run);
        }
        (self.load)(&self.tensor, start, self.layout.col, buffer)?;
        Ok(buffer)
    }
}

/// Rows of a matrix whose elements are contiguous.
#[derive(Clone, Copy)]
struct DenseRows<'a, A> {
    values: &'a [A],
    step: usize,
}

/// The addend of each element of the result.
#[derive(Clone, Copy)]
pub(crate) enum Addend<'a, A> {
    None,
    /// `beta` times a matrix, which may be broadcast by strides of 0.
    Matrix(A, MatrixOperand<'a, A>),
    /// One value for each row.
    Rows(&'a [A]),
    /// One value for each column.
    Columns(&'a [A]),
}

impl<A: Accumulator> Addend<'_, A> {
    fn transposed(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Matrix(beta, matrix) => Self::Matrix(beta, matrix.transposed()),
            Self::Rows(values) => Self::Columns(values),
            Self::Columns(values) => Self::Rows(values),
        }
    }
}

/// The sizes of a GEMM: `out` is `m` x `n`, the inner dimension is `k`.
#[derive(Clone, Copy)]
pub(crate) struct GemmShape {
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

/// True on 64-bit machines, which have vectors and large stacks. They use large blocks. Both sizes of blocks sum an element
/// in the same order.
const LARGE_BLOCKS: bool = cfg!(target_pointer_width = "64");
/// Rows and columns of the accumulators that stay in registers.
const MR: usize = 6;
const NR: usize = 8;
/// Number of times that a block repeats each element of `a`: the lanes of a vector.
const REPEATS: usize = if LARGE_BLOCKS { 4 } else { 1 };
/// Maximum elements of a `b` that is read in place, without copies.
const MAX_IN_PLACE: usize = 4096;
/// Minimum rows of a GEMM with blocks.
const MIN_BLOCK_ROWS: usize = 4;
/// Block size of the inner dimension in a GEMM with few rows.
const KC: usize = 64;
/// Columns that a GEMM with few rows accumulates at once.
const STRIP: usize = 128;

/// Writes `alpha * (a @ b) + addend` into `out`.
pub(crate) fn gemm<A: Accumulator>(
    shape: GemmShape,
    alpha: A,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    addend: Addend<'_, A>,
    out: &mut TensorMut<'_>,
    layout: Layout,
) -> Result<()> {
    let GemmShape { m, k, n } = shape;
    a.layout.check(m, k, a.tensor.numel())?;
    b.layout.check(k, n, b.tensor.numel())?;
    layout.check(m, n, out.numel())?;
    if let Addend::Matrix(_, matrix) = &addend {
        matrix.layout.check(m, n, matrix.tensor.numel())?;
    }
    let memory = if out.dtype() == A::DTYPE {
        OutMemory::Native(out.as_mut_slice()?)
    } else {
        OutMemory::Converted(out, runs::<A>(out.dtype())?.store)
    };
    let mut output = Output { memory, layout, alpha, addend };
    // out^T = b^T a^T computes a single column as a row, and reads operands with contiguous columns by rows.
    if (n == 1 && m > 1) || (a.layout.row == 1 && a.layout.col != 1 && b.layout.row == 1 && m > 1) {
        output.layout = layout.transposed();
        output.addend = addend.transposed();
        return rows(GemmShape { m: n, k, n: m }, b.transposed(), a.transposed(), &mut output);
    }
    rows(shape, a, b, &mut output)
}

/// Computes a GEMM with the algorithm for its shape and its layouts.
fn rows<A: Accumulator>(
    shape: GemmShape,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    out: &mut Output<'_, '_, A>,
) -> Result<()> {
    if shape.m < 8 && b.layout.row == 1 && a.layout.col == 1 {
        dots(shape, a, b, out)
    } else if shape.m < MIN_BLOCK_ROWS && b.layout.col == 1 {
        strips(shape, a, b, out)
    } else if LARGE_BLOCKS
        && shape.n >= NR
        && shape.k * shape.n <= MAX_IN_PLACE
        && let (Some(a), Some(b)) = (a.in_place(), b.in_place())
        && (b.step >= shape.n || shape.k == 1)
    {
        small(shape, a, b, out)
    } else if LARGE_BLOCKS && shape.m * shape.n > 512 {
        tiles::<A, 64, 16, 3072>(shape, a, b, out)
    } else {
        tiles::<A, 16, 2, 192>(shape, a, b, out)
    }
}

struct Output<'o, 't, A> {
    memory: OutMemory<'o, 't, A>,
    layout: Layout,
    alpha: A,
    addend: Addend<'o, A>,
}

/// Memory of the result: elements of the accumulators' type, or of another type, which are converted.
enum OutMemory<'o, 't, A> {
    Native(&'o mut [A]),
    Converted(&'o mut TensorMut<'t>, Store<A>),
}

impl<A: Accumulator> Output<'_, '_, A> {
    /// Converts sums of row `i` from column `j` on to results, and writes them. At most [`STRIP`] values.
    fn write(&mut self, i: usize, j: usize, sums: &mut [A]) -> Result<()> {
        finish(self.alpha, &self.addend, i, j, sums)?;
        let (start, step) = (self.layout.at(i, j), self.layout.col);
        match &mut self.memory {
            OutMemory::Converted(out, store) => store(out, start, step, sums)?,
            OutMemory::Native(out) => {
                let to = out.get_mut(start..).unwrap_or_default();
                if let (1, Some(to)) = (step, to.get_mut(..sums.len())) {
                    to.copy_from_slice(sums);
                } else {
                    to.iter_mut().step_by(step.max(1)).zip(sums).for_each(|(to, sum)| *to = *sum);
                }
            }
        }
        Ok(())
    }
}

/// Applies `alpha` and the addend to sums of row `i` from column `j` on. At most [`STRIP`] values.
fn finish<A: Accumulator>(alpha: A, addend: &Addend<'_, A>, i: usize, j: usize, sums: &mut [A]) -> Result<()> {
    if alpha != A::ONE {
        for sum in sums.iter_mut() {
            *sum = sum.mul(alpha);
        }
    }
    match addend {
        Addend::None => {}
        Addend::Matrix(beta, matrix) => {
            let mut buffer = [A::ZERO; STRIP];
            let len = sums.len().min(STRIP);
            let run = matrix.run(i, j, &mut buffer[..len])?;
            sums.iter_mut().zip(run).for_each(|(sum, value)| *sum = sum.add(value.mul(*beta)));
        }
        Addend::Rows(values) => {
            let value = values.get(i).copied().unwrap_or_default();
            for sum in sums.iter_mut() {
                *sum = sum.add(value);
            }
        }
        Addend::Columns(values) => {
            let values = values.get(j..).unwrap_or_default();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.add(*value));
        }
    }
    Ok(())
}

/// Computes a GEMM with many rows: register tiles over copied blocks. `DEPTH` is the inner dimension of the blocks,
/// `PANELS` is the number of column panels that are copied at once. The sums between blocks are kept in the output if
/// they fit there, else in a buffer of `LEN` elements.
fn tiles<A: Accumulator, const DEPTH: usize, const PANELS: usize, const LEN: usize>(
    shape: GemmShape,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    out: &mut Output<'_, '_, A>,
) -> Result<()> {
    let GemmShape { m, k, n } = shape;
    let layout = out.layout;
    let Aligned(block) = &mut Aligned([[[A::ZERO; NR]; DEPTH]; PANELS]);
    if let OutMemory::Native(to) = &mut out.memory
        && layout.col == 1
        && (layout.row >= n || m == 1)
    {
        let rows = Sums { values: to.get_mut(layout.offset..).unwrap_or_default(), row: layout.row.max(n) };
        return blocks(shape, a, b, rows, block, &mut |i, j, sums| finish(out.alpha, &out.addend, i, j, sums));
    }
    // With half of the panels, a strip of the buffer has more rows, which share the copied panels.
    let block = &mut block[..PANELS / 2];
    let columns = block.len() * NR;
    let mut buffer = [A::ZERO; LEN];
    let height = LEN / columns;
    for left in (0..n).step_by(columns) {
        let width = columns.min(n - left);
        for top in (0..m).step_by(height) {
            let part = GemmShape { m: height.min(m - top), k, n: width };
            let sums = Sums { values: &mut buffer, row: width };
            blocks(part, a.from(top, 0), b.from(0, left), sums, block, &mut |i, j, sums| {
                out.write(top + i, left + j, sums)
            })?;
        }
    }
    Ok(())
}

/// Aligned to a cache line, so that no vector crosses two lines.
#[repr(align(64))]
struct Aligned<T>(T);

/// Rows of sums in memory.
struct Sums<'s, A> {
    values: &'s mut [A],
    row: usize,
}

/// Computes `a @ b` and passes each finished part of a row to `done`, with its row and first column.
#[inline(never)]
fn blocks<A: Accumulator, const DEPTH: usize>(
    shape: GemmShape,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    Sums { values, row }: Sums<'_, A>,
    block: &mut [[[A; NR]; DEPTH]],
    done: &mut dyn FnMut(usize, usize, &mut [A]) -> Result<()>,
) -> Result<()> {
    let GemmShape { m, k, n } = shape;
    let columns = block.len() * NR;
    let Aligned(tile) = &mut Aligned([[[A::ZERO; REPEATS]; MR]; DEPTH]);
    let mut buffers = [[A::ZERO; DEPTH]; MR];
    for left in (0..n).step_by(columns) {
        let width = (n - left).min(columns);
        for p in (0..k.max(1)).step_by(DEPTH) {
            let depth = DEPTH.min(k - p);
            copy_block(&b, p, left, width, depth, block)?;
            for top in (0..m).step_by(MR) {
                let height = MR.min(m - top);
                copy_tile(&a, p, top, m - 1, &mut buffers, &mut tile[..depth])?;
                let mut rows = values.get_mut(top * row..).unwrap_or_default().chunks_mut(row);
                let mut rows: [&mut [A]; MR] = core::array::from_fn(|r| {
                    let row = if r < height { rows.next() } else { None };
                    row.and_then(|row| row.get_mut(left..left + width)).unwrap_or_default()
                });
                multiply_rows(&mut rows, p == 0, &tile[..depth], block);
                if p + depth == k {
                    for (i, row) in (top..top + height).zip(rows) {
                        for (j, sums) in (left..).step_by(STRIP).zip(row.chunks_mut(STRIP)) {
                            done(i, j, sums)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Multiplies a row tile by panels, and adds the result to up to [`MR`] rows. These are not read if `is_first`.
fn multiply_rows<A: Accumulator, const DEPTH: usize>(
    rows: &mut [&mut [A]; MR],
    is_first: bool,
    tile: &[[[A; REPEATS]; MR]],
    block: &[[[A; NR]; DEPTH]],
) {
    let whole = if rows[MR - 1].is_empty() { 0 } else { rows[0].len() / NR };
    let (panels, rest) = block.split_at(whole.min(block.len()));
    let [r0, r1, r2, r3, r4, r5] = rows;
    let targets = r0.as_chunks_mut().0.iter_mut().zip(r1.as_chunks_mut().0).zip(r2.as_chunks_mut().0);
    let targets = targets.zip(r3.as_chunks_mut().0).zip(r4.as_chunks_mut().0).zip(r5.as_chunks_mut().0);
    for (panel, (((((r0, r1), r2), r3), r4), r5)) in panels.iter().zip(targets) {
        multiply(&mut [r0, r1, r2, r3, r4, r5], is_first, tile, &panel[..tile.len()]);
    }
    // The tile is not full: a separate tile accumulates the sums.
    let starts = (whole * NR..rows[0].len()).step_by(NR);
    for (start, panel) in starts.zip(rest) {
        let mut sums = [[A::ZERO; NR]; MR];
        for (sums, row) in sums.iter_mut().zip(&*rows).filter(|_| !is_first) {
            sums.iter_mut().zip(row.iter().skip(start)).for_each(|(sum, value)| *sum = *value);
        }
        multiply(&mut sums.each_mut(), false, tile, &panel[..tile.len()]);
        for (sums, row) in sums.iter().zip(&mut *rows) {
            row.iter_mut().skip(start).zip(sums).for_each(|(value, sum)| *value = *sum);
        }
    }
}

/// Copies `depth` columns from `p` on of the rows from `i` on. Rows beyond the last repeat it; their sums are not used.
#[inline(always)]
fn copy_tile<A: Accumulator, const DEPTH: usize>(
    a: &MatrixOperand<'_, A>,
    p: usize,
    i: usize,
    last: usize,
    buffers: &mut [[A; DEPTH]; MR],
    tile: &mut [[[A; REPEATS]; MR]],
) -> Result<()> {
    let [b0, b1, b2, b3, b4, b5] = buffers;
    let depth = tile.len();
    let rows = [
        a.run(last.min(i), p, &mut b0[..depth])?,
        a.run(last.min(i + 1), p, &mut b1[..depth])?,
        a.run(last.min(i + 2), p, &mut b2[..depth])?,
        a.run(last.min(i + 3), p, &mut b3[..depth])?,
        a.run(last.min(i + 4), p, &mut b4[..depth])?,
        a.run(last.min(i + 5), p, &mut b5[..depth])?,
    ];
    spread(rows, tile);
    Ok(())
}

#[inline(never)]
fn spread<A: Copy>(rows: [&[A]; MR], tile: &mut [[[A; REPEATS]; MR]]) {
    let [r0, r1, r2, r3, r4, r5] = rows;
    let rows = r0.iter().zip(r1).zip(r2).zip(r3).zip(r4).zip(r5);
    for (slot, (((((a, b), c), d), e), f)) in tile.iter_mut().zip(rows) {
        *slot = [[*a; REPEATS], [*b; REPEATS], [*c; REPEATS], [*d; REPEATS], [*e; REPEATS], [*f; REPEATS]];
    }
}

/// Copies rows `p..p + depth` and columns `left..left + width` of `b`, as panels.
#[inline(always)]
fn copy_block<A: Accumulator, const DEPTH: usize>(
    b: &MatrixOperand<'_, A>,
    p: usize,
    left: usize,
    width: usize,
    depth: usize,
    block: &mut [[[A; NR]; DEPTH]],
) -> Result<()> {
    if b.layout.col == 1
        && width.is_multiple_of(NR)
        && let Some(data) = b.native
    {
        for q in 0..depth.min(DEPTH) {
            let start = b.layout.at(p + q, left);
            let row = data.get(start..start + width).unwrap_or_default().as_chunks().0;
            for (panel, values) in block.iter_mut().zip(row) {
                panel[q] = *values;
            }
        }
        return Ok(());
    }
    for (j, panel) in (left..left + width).step_by(NR).zip(block) {
        copy_panel(b, p, j, NR.min(left + width - j), &mut panel[..depth])?;
    }
    Ok(())
}

/// Copies rows `p..` and columns `j..j + width` of `b`.
#[inline(always)]
fn copy_panel<A: Accumulator>(
    b: &MatrixOperand<'_, A>,
    p: usize,
    j: usize,
    width: usize,
    panel: &mut [[A; NR]],
) -> Result<()> {
    if b.layout.row == 1 && b.layout.col != 1 {
        let column = b.transposed();
        let depth = panel.len();
        if width == NR
            && let Some(data) = b.native
        {
            let run = |c: usize| {
                let start = column.layout.at(j + c, p);
                data.get(start..start + depth).unwrap_or_default()
            };
            let runs: [&[A]; NR] = core::array::from_fn(run);
            let [r0, r1, r2, r3, r4, r5, r6, r7] = runs.map(|run| run.iter());
            let rows = r0.zip(r1).zip(r2.zip(r3)).zip(r4.zip(r5).zip(r6.zip(r7)));
            for (row, (((a, b), (c, d)), ((e, f), (g, h)))) in panel.iter_mut().zip(rows) {
                *row = [*a, *b, *c, *d, *e, *f, *g, *h];
            }
            return Ok(());
        }
        let mut buffer = [A::ZERO; KC];
        for c in 0..width {
            let run = column.run(j + c, p, &mut buffer[..depth])?;
            panel.iter_mut().zip(run).for_each(|(row, value)| row[c] = *value);
        }
        return Ok(());
    }
    if b.layout.col == 1
        && width == NR
        && let Some(data) = b.native
    {
        let rows = data.get(b.layout.at(p, j)..).unwrap_or_default().chunks(b.layout.row.max(NR));
        for (row, source) in panel.iter_mut().zip(rows) {
            if let Some(source) = source.first_chunk() {
                *row = *source;
            }
        }
        return Ok(());
    }
    for (i, row) in panel.iter_mut().enumerate() {
        (b.load)(&b.tensor, b.layout.at(p + i, j), b.layout.col, &mut row[..width])?;
    }
    Ok(())
}

/// Multiplies a row tile by a panel of the same depth, and adds the result to sums. These are not read if `is_first`.
/// It is a separate function, so that the optimizer keeps the accumulators in registers.
#[inline(never)]
fn multiply<A: Accumulator>(
    sums: &mut [&mut [A; NR]; MR],
    is_first: bool,
    tile: &[[[A; REPEATS]; MR]],
    panel: &[[A; NR]],
) {
    let mut acc = [[A::ZERO; NR]; MR];
    if !is_first {
        for r in 0..MR {
            acc[r] = *sums[r];
        }
    }
    for (a, b) in tile.iter().zip(panel) {
        for r in 0..MR {
            for c in 0..NR {
                acc[r][c] = acc[r][c].add(a[r][c % REPEATS].mul(b[c]));
            }
        }
    }
    for r in 0..MR {
        *sums[r] = acc[r];
    }
}

/// Computes a GEMM of small operands with contiguous rows: tiles of four rows, read in place. `n` is [`NR`] or more;
/// the last columns may be computed twice.
fn small<A: Accumulator>(
    shape: GemmShape,
    a: DenseRows<'_, A>,
    b: DenseRows<'_, A>,
    out: &mut Output<'_, '_, A>,
) -> Result<()> {
    let GemmShape { m, k, n } = shape;
    let is_plain = out.layout.col == 1 && out.alpha == A::ONE && matches!(out.addend, Addend::None);
    let row = |i: usize| a.values.get(i.min(m - 1) * a.step..).and_then(|row| row.get(..k)).unwrap_or_default();
    for i in (0..m).step_by(4) {
        let rows = [row(i), row(i + 1), row(i + 2), row(i + 3)];
        for j in (0..n).step_by(NR) {
            let j = j.min(n - NR);
            let mut sums = multiply_in_place(rows, b.values.get(j..).unwrap_or_default(), b.step);
            for (i, sums) in (i..m).zip(&mut sums) {
                let start = out.layout.at(i, j);
                match &mut out.memory {
                    OutMemory::Native(to) if is_plain => {
                        if let Some(to) = to.get_mut(start..).and_then(|to| to.first_chunk_mut()) {
                            *to = *sums;
                        }
                    }
                    _ => out.write(i, j, sums)?,
                }
            }
        }
    }
    Ok(())
}

#[inline(never)]
fn multiply_in_place<A: Accumulator>(rows: [&[A]; 4], b: &[A], step: usize) -> [[A; NR]; 4] {
    let mut acc = [[A::ZERO; NR]; 4];
    let [r0, r1, r2, r3] = rows;
    let factors = r0.iter().zip(r1).zip(r2).zip(r3);
    for (b, (((a0, a1), a2), a3)) in b.chunks(step.max(NR)).zip(factors) {
        let Some(b) = b.first_chunk::<NR>() else { break };
        for c in 0..NR {
            acc[0][c] = acc[0][c].add(a0.mul(b[c]));
            acc[1][c] = acc[1][c].add(a1.mul(b[c]));
            acc[2][c] = acc[2][c].add(a2.mul(b[c]));
            acc[3][c] = acc[3][c].add(a3.mul(b[c]));
        }
    }
    acc
}

/// Computes a GEMM with few rows, where rows of `b` are contiguous: adds scaled rows of `b`, four at a time.
fn strips<A: Accumulator>(
    shape: GemmShape,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    out: &mut Output<'_, '_, A>,
) -> Result<()> {
    let GemmShape { m, k, n } = shape;
    let mut buffers = [[A::ZERO; STRIP]; 4];
    let mut factors = [A::ZERO; KC];
    for i in 0..m {
        for j in (0..n).step_by(STRIP) {
            let width = STRIP.min(n - j);
            let mut sums = [A::ZERO; STRIP];
            let sums = &mut sums[..width];
            for p in (0..k).step_by(KC) {
                let factors = a.run(i, p, &mut factors[..KC.min(k - p)])?;
                let (fours, rest) = factors.as_chunks::<4>();
                for (q, &[x0, x1, x2, x3]) in fours.iter().enumerate() {
                    let [b0, b1, b2, b3] = &mut buffers;
                    let q = p + 4 * q;
                    let b0 = &b.run(q, j, &mut b0[..width])?[..width];
                    let b1 = &b.run(q + 1, j, &mut b1[..width])?[..width];
                    let b2 = &b.run(q + 2, j, &mut b2[..width])?[..width];
                    let b3 = &b.run(q + 3, j, &mut b3[..width])?[..width];
                    for (c, sum) in sums.iter_mut().enumerate() {
                        let pair = x0.mul(b0[c]).add(x1.mul(b1[c]));
                        *sum = sum.add(pair.add(x2.mul(b2[c]).add(x3.mul(b3[c]))));
                    }
                }
                for (q, x) in rest.iter().enumerate() {
                    let row = b.run(p + 4 * fours.len() + q, j, &mut buffers[0][..width])?;
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum = sum.add(x.mul(*value)));
                }
            }
            out.write(i, j, sums)?;
        }
    }
    Ok(())
}

/// Computes a GEMM with few rows, where columns of `b` are contiguous: dot products with four columns at a time.
fn dots<A: Accumulator>(
    shape: GemmShape,
    a: MatrixOperand<'_, A>,
    b: MatrixOperand<'_, A>,
    out: &mut Output<'_, '_, A>,
) -> Result<()> {
    const LANES: usize = 8;
    let GemmShape { m, k, n } = shape;
    let columns = b.transposed();
    let mut row_buffer = [A::ZERO; KC];
    let mut buffers = [[A::ZERO; KC]; 4];
    for j in (0..n).step_by(4) {
        let width = 4.min(n - j);
        for i in 0..m {
            let mut lanes = [[A::ZERO; LANES]; 4];
            let mut sums = [A::ZERO; 4];
            for p in (0..k).step_by(KC) {
                let depth = KC.min(k - p);
                let (xs, x_rest) = a.run(i, p, &mut row_buffer[..depth])?.as_chunks::<LANES>();
                let [b0, b1, b2, b3] = &mut buffers;
                // Columns beyond the last repeat it; their sums are not used.
                let (y0, rest0) = columns.run(j, p, &mut b0[..depth])?.as_chunks::<LANES>();
                let (y1, rest1) = columns.run((n - 1).min(j + 1), p, &mut b1[..depth])?.as_chunks::<LANES>();
                let (y2, rest2) = columns.run((n - 1).min(j + 2), p, &mut b2[..depth])?.as_chunks::<LANES>();
                let (y3, rest3) = columns.run((n - 1).min(j + 3), p, &mut b3[..depth])?.as_chunks::<LANES>();
                for ((((x, y0), y1), y2), y3) in xs.iter().zip(y0).zip(y1).zip(y2).zip(y3) {
                    for l in 0..LANES {
                        lanes[0][l] = lanes[0][l].add(x[l].mul(y0[l]));
                        lanes[1][l] = lanes[1][l].add(x[l].mul(y1[l]));
                        lanes[2][l] = lanes[2][l].add(x[l].mul(y2[l]));
                        lanes[3][l] = lanes[3][l].add(x[l].mul(y3[l]));
                    }
                }
                for (sum, rest) in sums.iter_mut().zip([rest0, rest1, rest2, rest3]) {
                    *sum = x_rest.iter().zip(rest).fold(*sum, |sum, (x, y)| sum.add(x.mul(*y)));
                }
            }
            for (sum, lanes) in sums.iter_mut().zip(&lanes) {
                *sum = lanes.iter().fold(*sum, |sum, lane| sum.add(*lane));
            }
            out.write(i, j, &mut sums[..width])?;
        }
    }
    Ok(())
}
