//! Sums, means and maxima of bags of rows, and the gradient of a table of rows.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use crate::support::copy::same_dtype;
use crate::support::index::Indices;
use crate::support::number::{Arithmetic, Number};
use crate::support::shape::Walk;

/// `aten::_embedding_bag.out(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
/// bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *,
/// Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) -> (Tensor(a!), Tensor(b!), Tensor(c!),
/// Tensor(d!))`. The outputs are the bags, the bag of each index, the sizes of the bags and, for maxima, the rows that
/// they come from.
pub const EMBEDDING_BAG_OUT: Op = Op::new("aten::_embedding_bag.out", 13, embedding_bag).outs(4);

/// `aten::embedding_dense_backward.out(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx,
/// bool scale_grad_by_freq, *, Tensor(a!) out) -> Tensor(a!)`
pub const EMBEDDING_DENSE_BACKWARD_OUT: Op =
    Op::new("aten::embedding_dense_backward.out", 6, embedding_dense_backward).temp(sorted_bytes);

/// Operators on tables of embeddings that ExecuTorch has no kernel for.
pub const CORE_ATEN_OPS: OpGroup = &[EMBEDDING_BAG_OUT, EMBEDDING_DENSE_BACKWARD_OUT];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Sum,
    Mean,
    Max,
}

fn embedding_bag(cx: &KernelContext<'_>) -> Result<()> {
    let (weight, indices, offsets) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let mode = match cx.int(4)? {
        0 => Mode::Sum,
        1 => Mode::Mean,
        2 => Mode::Max,
        got => {
            let expected = "0 (sum), 1 (mean) or 2 (max)";
            return Err(Error::from(Detail::Value { what: "mode", expected, got }).arg(4));
        }
    };
    for (argument, tensor, rank) in [(0, &weight, 2), (1, &indices, 1), (2, &offsets, 1)] {
        if tensor.rank() != rank {
            let expected = if rank == 1 { "1" } else { "2" };
            return Err(Error::from(Detail::Rank { expected, got: tensor.rank() }).arg(argument));
        }
    }
    let bags = Bags::new(cx, &indices, &offsets)?;
    let mut outs = [cx.out(9)?, cx.out(10)?, cx.out(11)?, cx.out(12)?];
    same_dtype(weight.dtype(), &outs[0], 9)?;
    resize_outs(&mut outs, &bags, &weight, mode, cx.int(8)?)?;
    let [out, bag_of_index, sizes, chosen] = &mut outs;
    write_bag_of_index(bag_of_index, &bags).map_err(|e| e.arg(10))?;
    for bag in 0..bags.count {
        let size = if mode == Mode::Sum { 0 } else { bags.members(bag).filter(|&i| !bags.is_padding(i)).count() };
        put(sizes, bag, size).map_err(|e| e.arg(11))?;
        if mode != Mode::Max {
            put(chosen, bag, size).map_err(|e| e.arg(12))?;
        }
    }
    let sample_weights = cx.optional_tensor(6)?;
    if let Some(samples) = &sample_weights {
        if mode != Mode::Sum {
            return Err(Error::invalid("weights of samples are for sums only").arg(6));
        }
        if samples.sizes() != indices.sizes() {
            return Err(Error::invalid("there must be one weight for each index").arg(6));
        }
    }
    dispatch!(FLOATHBF16, weight.dtype(), T => {
        let samples = sample_weights.map(|samples| samples.as_slice::<T>().map_err(|e| e.arg(6))).transpose()?;
        if mode == Mode::Max {
            bags.maxima::<T>(&weight, out, chosen)
        } else {
            bags.sums::<T>(&weight, samples, mode == Mode::Mean, out)
        }
    })
}

/// Resizes all outputs. PyTorch leaves the bag of each index empty in its fast path for sums.
fn resize_outs(
    outs: &mut [TensorMut<'_>; 4],
    bags: &Bags<'_>,
    weight: &Tensor<'_>,
    mode: Mode,
    padding: i64,
) -> Result<()> {
    let [out, bag_of_index, sizes, chosen] = outs;
    let width = weight.size(1);
    out.resize(&[bags.count, width]).map_err(|e| e.arg(9))?;
    let fast_sum = mode == Mode::Sum && padding < 0 && weight.dtype() != ScalarType::Double;
    let (first, second) = if fast_sum { (0, bags.len) } else { (bags.len, 0) };
    let resized = bag_of_index.resize(&[first]);
    let resized = if mode == Mode::Sum { resized.or_else(|_| bag_of_index.resize(&[second])) } else { resized };
    resized.map_err(|e| e.arg(10))?;
    sizes.resize(&[bags.count]).map_err(|e| e.arg(11))?;
    let chosen_sizes = [bags.count, width];
    chosen.resize(if mode == Mode::Max { &chosen_sizes } else { &chosen_sizes[..1] }).map_err(|e| e.arg(12))
}

fn write_bag_of_index(out: &mut TensorMut<'_>, bags: &Bags<'_>) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    for bag in 0..bags.count {
        for i in bags.members(bag) {
            put(out, i, bag)?;
        }
    }
    for i in bags.start(bags.count)..bags.len {
        put(out, i, bags.count)?;
    }
    Ok(())
}

fn put(out: &mut TensorMut<'_>, at: usize, value: usize) -> Result<()> {
    match out.dtype() {
        ScalarType::Int => out.as_mut_slice::<i32>()?[at] = value as i32,
        ScalarType::Long => out.as_mut_slice::<i64>()?[at] = value as i64,
        got => return Err(Detail::Dtype { expected: "i64 or i32", got }.into()),
    }
    Ok(())
}

/// Columns that one pass over a bag accumulates.
const COLUMNS: usize = 64;

/// The rows of the table in each bag. Rows and offsets are already checked.
struct Bags<'a> {
    indices: Indices<'a>,
    offsets: Indices<'a>,
    /// Number of bags and of indices.
    count: usize,
    len: usize,
    padding: Option<usize>,
}

impl<'a> Bags<'a> {
    fn new(cx: &KernelContext<'_>, indices: &Tensor<'a>, offsets: &Tensor<'a>) -> Result<Self> {
        let weight = cx.tensor(0)?;
        let count = offsets.numel().saturating_sub(usize::from(cx.bool(7)?));
        let padding = cx.int(8)?;
        let bags = Self {
            indices: Indices::of(indices).map_err(|e| e.arg(1))?,
            offsets: Indices::of(offsets).map_err(|e| e.arg(2))?,
            count,
            len: indices.numel(),
            padding: usize::try_from(padding).ok(),
        };
        for i in 0..bags.len {
            bags.indices.position(i, weight.size(0), false).map_err(|e| e.arg(1))?;
        }
        let mut last = 0;
        for i in 0..offsets.numel() {
            let offset = bags.offsets.position(i, bags.len + 1, false).map_err(|e| e.arg(2))?;
            if offset < last || (i == 0 && offset != 0) {
                return Err(Error::invalid("offsets must start at 0 and must not decrease").arg(2));
            }
            last = offset;
        }
        Ok(bags)
    }

    fn start(&self, bag: usize) -> usize {
        self.offsets.get(bag).map_or(self.len, |offset| offset as usize)
    }

    /// Positions in the indices that belong to a bag.
    fn members(&self, bag: usize) -> core::ops::Range<usize> {
        self.start(bag)..self.start(bag + 1)
    }

    fn row(&self, index: usize) -> usize {
        self.indices.get(index).map_or(0, |row| row as usize)
    }

    fn is_padding(&self, index: usize) -> bool {
        self.padding == Some(self.row(index))
    }

    fn sums<T: Number>(
        &self,
        weight: &Tensor<'_>,
        samples: Option<&[T]>,
        mean: bool,
        out: &mut TensorMut<'_>,
    ) -> Result<()> {
        let table = weight.as_slice::<T>()?;
        let (row_step, step) = (weight.strides()[0], weight.strides()[1]);
        let (out_row, out_step) = (out.strides()[0], out.strides()[1]);
        let out = out.as_mut_slice::<T>()?;
        for bag in 0..self.count {
            for start in (0..weight.size(1)).step_by(COLUMNS) {
                let width = COLUMNS.min(weight.size(1) - start);
                let mut sums = [T::ZERO.to_acc(); COLUMNS];
                let mut count = 0u32;
                for i in self.members(bag).filter(|&i| !self.is_padding(i)) {
                    let row = &table[self.row(i) * row_step + start * step..];
                    let scale = samples.map_or(T::ONE, |samples| samples[i]).to_acc();
                    for (sum, x) in sums[..width].iter_mut().zip(row.iter().step_by(step.max(1))) {
                        *sum = sum.add(x.to_acc().mul(scale));
                    }
                    count += 1;
                }
                for (i, &sum) in sums[..width].iter().enumerate() {
                    let value = if mean && count > 1 { sum.to_f64() / f64::from(count) } else { sum.to_f64() };
                    out[bag * out_row + (start + i) * out_step] = T::from_f64(value);
                }
            }
        }
        Ok(())
    }

    /// The largest value of each column and the row that it is from; zeros for empty bags.
    fn maxima<T: Number>(&self, weight: &Tensor<'_>, out: &mut TensorMut<'_>, rows: &mut TensorMut<'_>) -> Result<()> {
        let table = weight.as_slice::<T>()?;
        let (row_step, step) = (weight.strides()[0], weight.strides()[1]);
        let (out_row, out_step) = (out.strides()[0], out.strides()[1]);
        let (rows_row, rows_step) = (rows.strides()[0], rows.strides()[1]);
        let out = out.as_mut_slice::<T>()?;
        for bag in 0..self.count {
            for column in 0..weight.size(1) {
                let mut best: Option<(T, usize)> = None;
                for i in self.members(bag).filter(|&i| !self.is_padding(i)) {
                    let x = table[self.row(i) * row_step + column * step];
                    if best.is_none_or(|(max, _)| x.to_acc() > max.to_acc()) {
                        best = Some((x, self.row(i)));
                    }
                }
                let (max, row) = best.unwrap_or((T::ZERO, 0));
                out[bag * out_row + column * out_step] = max;
                put(rows, bag * rows_row + column * rows_step, row).map_err(|e| e.arg(12))?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes for the sorted indices. Scaling by frequency sorts them to count the uses of each row.
fn sorted_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    Ok(if cx.bool(4)? { cx.tensor(1)?.numel().saturating_mul(8).saturating_add(16) } else { 0 })
}

fn embedding_dense_backward(cx: &KernelContext<'_>) -> Result<()> {
    let (grad, index, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(5)?);
    let indices = Indices::of(&index).map_err(|e| e.arg(1))?;
    let (rows, padding) = (cx.int(2)?, cx.int(3)?);
    let bad = Error::from(Detail::Value { what: "number of rows", expected: "not negative", got: rows }).arg(2);
    let rows = usize::try_from(rows).map_err(|_| bad)?;
    let Some((&width, batch)) = grad.sizes().split_last() else {
        return Err(Error::from(Detail::Rank { expected: "1 or more", got: 0 }).arg(0));
    };
    if batch != index.sizes() {
        return Err(Error::invalid("there must be one gradient for each index").arg(0));
    }
    same_dtype(grad.dtype(), &out, 5)?;
    out.resize(&[rows, width]).map_err(|e| e.arg(5))?;
    out.bytes_mut().fill(0);
    let mut uses = None;
    if cx.bool(4)? {
        let sorted = cx.temp::<i64>(index.numel())?;
        for (i, slot) in sorted.iter_mut().enumerate() {
            *slot = indices.get(i).unwrap_or(0);
        }
        sorted.sort_unstable();
        uses = Some(&*sorted);
    }
    // Counts the uses of a row.
    let count = |sorted: &[i64], row: i64| {
        sorted.partition_point(|&used| used <= row) - sorted.partition_point(|&used| used < row)
    };
    let (row_step, step) = (out.strides()[0], out.strides()[1]);
    let batch_strides = &grad.strides()[..batch.len()];
    let grad_step = grad.strides()[batch.len()];
    dispatch!(FLOATHBF16, grad.dtype(), T => {
        let (data, out) = (grad.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        if index.numel() == 0 {
            return Ok(());
        }
        let mut walk = Walk::new(batch, [batch_strides, index.strides()])?;
        loop {
            let [from, at] = walk.offsets;
            let row = indices.position(at, rows, false).map_err(|e| e.arg(1))?;
            if padding != row as i64 {
                let scale = uses.map_or(1.0, |sorted| 1.0 / count(sorted, row as i64) as f64);
                let scale = <T as Number>::Acc::from_f64(scale);
                for i in 0..width {
                    let sum = &mut out[row * row_step + i * step];
                    *sum = T::from_acc(sum.to_acc().add(data[from + i * grad_step].to_acc().mul(scale)));
                }
            }
            if !walk.next() {
                return Ok(());
            }
        }
    })
}
