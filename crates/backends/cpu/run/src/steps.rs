//! Steps as calls of the engine. GEMMs and convolutions are in files of their own.

use rushlight_cpu_payload::{self as payload, Half, MAX_OPERANDS, Size, Step, TableFormat, TensorId};
use rushlight_engine::{
    AttentionInputs, CopyElement, Data, DataMut, DeltaRuleInputs, DynamicQuantization, Engine, FloatSliceMut,
    Normalization, Pool2d, PoolKind, QuantOut, Reduction, Source, Strides, Table, ZeroPointRule,
};
use rushlight_format::ScalarType;
use rushlight_runtime::{Detail, Error, MAX_RANK, Result};

use crate::convert::convert;
use crate::convolution::convolution;
use crate::error::{Unfit, of_engine};
use crate::experts::experts;
use crate::matmul::matmul;
use crate::memory::{MovedMut, NOT_QUANTIZED, Reader, StepContext, done};
use crate::prepared::{Elementwise, PreparedStep, QuantizedSoftmax};
use crate::shapes::{Shapes, check_windows, product};

const FLOATS_ONLY: Unfit = Unfit::Part("a tensor is quantized or bf16, which the step does not compute with");

impl PreparedStep {
    pub fn run(&mut self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        match self {
            Self::Elementwise(step) => step.run(engine, cx),
            Self::Softmax(step) => step.run(engine, cx),
            Self::Other(step) => run(step, engine, cx),
        }
    }
}

impl QuantizedSoftmax {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, _) = cx.split_quant_out(self.y)?;
        let QuantOut::Bytes(y, to) = y else { return Err(NOT_QUANTIZED.into()) };
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(columns).unwrap_or(0);
        done(rushlight_engine::softmax_u8(engine, rows, columns, &self.table, reader.quantized(self.x)?, y, to))
    }
}

/// Maximum number of operands of most elementwise steps. Clearing room for [`MAX_OPERANDS`] takes longer than running a
/// small step.
const FEW_OPERANDS: usize = 3;

impl Elementwise {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        if let (Some(table), [x]) = (&self.table, self.operands.as_slice())
            && cx.shapes.dims(*x) == cx.shapes.dims(self.y)
        {
            let (y, reader) = cx.split_quantized(self.y)?;
            return done(rushlight_engine::lookup(engine, table, reader.quantized(*x)?, y));
        }
        if self.operands.len() <= FEW_OPERANDS {
            self.run_with::<FEW_OPERANDS>(engine, cx)
        } else {
            self.run_with::<MAX_OPERANDS>(engine, cx)
        }
    }

    /// Runs the step with room for `N` operands.
    fn run_with<const N: usize>(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split_data(self.y)?;
        let dims = reader.dims(self.y);
        let mut sources = [Source { data: Data::Floats(&[]), strides: [0; rushlight_engine::MAX_DIMS] }; N];
        let count = self.operands.len();
        let sources = sources.get_mut(..count).ok_or(Unfit::Count { what: "operands", expected: N, got: count })?;
        for (operand, source) in self.operands.iter().zip(sources.iter_mut()) {
            source.data = reader.data(*operand)?;
            let own = reader.dims(*operand);
            if own.len() != dims.len() {
                return Err(
                    Unfit::Count { what: "dimensions of an operand", expected: dims.len(), got: own.len() }.into()
                );
            }
            let mut stride = 1;
            for (dim, (size, whole)) in own.iter().zip(dims).enumerate().rev() {
                let slot =
                    source.strides.get_mut(dim).ok_or(Unfit::Rank { expected: "at most 16", got: dims.len() })?;
                *slot = if size == whole { stride } else { 0 };
                if size != whole && *size != 1 {
                    return Err(Unfit::Size { dim, expected: *whole, got: *size }.into());
                }
                // A tensor without elements may have arbitrarily large sizes.
                stride = stride.saturating_mul(*size);
            }
        }
        done(rushlight_engine::elementwise(engine, &self.instructions, dims, sources, y))
    }
}

fn run(step: &Step, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    match step {
        Step::Matmul(step) => matmul(step, engine, cx),
        Step::Experts(step) => experts(step, engine, cx),
        Step::TopK { x, y } => top_k(*x, *y, cx),
        Step::GatherElements { x, index, y } => gather_elements(*x, *index, *y, cx),
        Step::Convolution(step) => convolution(step, engine, cx),
        Step::Pooling(step) => pooling(step, engine, cx),
        Step::Reduce(step) => reduce(step, engine, cx),
        Step::Softmax { x, y, log } => softmax(*x, *y, *log, engine, cx),
        Step::Normalization(step) => normalise(step, engine, cx),
        Step::Copy(step) => copy(step, engine, cx),
        Step::Gather(step) => gather(step, engine, cx),
        Step::Scatter(step) => scatter(step, engine, cx),
        Step::Attention(step) => attention(step, engine, cx),
        Step::DeltaRule(step) => delta_rule(step, engine, cx),
        Step::Resize(step) => resize(step, engine, cx),
        Step::Convert(step) => convert(step, engine, cx),
        Step::ChooseQparams(step) => choose_qparams(step, engine, cx),
        Step::QuantizeRows(step) => quantize_rows(step, engine, cx),
        Step::PackNibbles { x, y } => {
            let (y, reader) = cx.split_quantized(*y)?;
            done(rushlight_engine::pack_nibbles(reader.quantized(*x)?, y))
        }
        Step::UnpackNibbles { x, y } => {
            let (y, reader) = cx.split_quantized(*y)?;
            done(rushlight_engine::unpack_nibbles(reader.quantized(*x)?, y))
        }
        // Elementwise steps run as `PreparedStep::Elementwise`.
        Step::Elementwise(_) => Err(Unfit::Part("an elementwise step that was not prepared").into()),
    }
}

fn reduce(step: &payload::Reduce, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = cx.split_quant_out(step.y)?;
    let dims = reader.dims(step.x);
    let (first, count) = (step.first as usize, step.count as usize);
    let end = first.saturating_add(count);
    let outer = product(dims.get(..first))?;
    let reduced = product(dims.get(first..end))?;
    let inner = product(dims.get(end..))?;
    match (reader.data(step.x)?, y) {
        (Data::Bytes(x, affine), y) if step.op == Reduction::Mean => {
            done(rushlight_engine::mean_u8(engine, [outer, reduced, inner], x, affine, y))
        }
        (_, QuantOut::Floats(y)) => {
            let x = reader.float_slice(step.x)?;
            done(rushlight_engine::reduce(engine, step.op, outer, reduced, inner, x, y))
        }
        _ => Err(FLOATS_ONLY.into()),
    }
}

fn top_k(x: TensorId, y: TensorId, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (found, reader) = cx.split(y)?;
    let columns = reader.dims(x).last().copied().unwrap_or(1);
    let k = reader.dims(y).last().copied().unwrap_or(1);
    let rows = reader.shapes.span(x).1.checked_div(columns).unwrap_or(0);
    let (values, indices) = found.split_at_mut(found.len() / 2);
    done(rushlight_engine::top_k([rows, columns, k], reader.floats(x)?, values, indices))
}

fn gather_elements(x: TensorId, index: TensorId, y: TensorId, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split(y)?;
    let columns = reader.dims(x).last().copied().unwrap_or(1);
    let k = reader.dims(index).last().copied().unwrap_or(1);
    let rows = y.len().checked_div(k).unwrap_or(0);
    done(rushlight_engine::gather_elements([rows, columns, k], reader.floats(x)?, reader.floats(index)?, y))
}

fn softmax(x: TensorId, y: TensorId, log: bool, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split(y)?;
    let columns = reader.dims(x).last().copied().unwrap_or(1);
    let rows = y.len().checked_div(columns).unwrap_or(0);
    done(rushlight_engine::softmax(engine, rows, columns, log, reader.floats(x)?, y))
}

fn normalise(step: &payload::Normalization, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = cx.split_float_slice(step.y)?;
    let dims = reader.dims(step.x);
    let normalised = Unfit::Count { what: "normalised dimensions", expected: dims.len(), got: step.dims as usize };
    let first = dims.len().checked_sub(step.dims as usize).ok_or(normalised)?;
    let columns = product(dims.get(first..))?;
    let rows = product(dims.get(..first))?;
    let normalise = Normalization { rows, columns, eps: step.eps, centered: step.centered };
    let (weight, bias) = (reader.optional(step.weight)?, reader.optional(step.bias)?);
    done(rushlight_engine::normalize(engine, &normalise, reader.floats(step.x)?, weight, bias, y))
}

/// Returns the shape of the dynamic quantization of `x`.
fn dynamic_quantization(
    x: TensorId,
    reader: &Reader<'_, '_, '_, '_>,
    rule: ZeroPointRule,
    per_tensor: bool,
    range: [u8; 2],
) -> Result<DynamicQuantization> {
    let (columns, rows) = reader.dims(x).split_last().map_or((1, &[][..]), |(last, others)| (*last, others));
    Ok(DynamicQuantization { rows: product(Some(rows))?, columns, rule, per_tensor, range })
}

fn choose_qparams(step: &payload::ChooseQparams, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split(step.y)?;
    let shape = dynamic_quantization(step.x, &reader, step.rule, step.per_tensor, step.range)?;
    done(rushlight_engine::choose_qparams(engine, &shape, reader.floats(step.x)?, y))
}

fn quantize_rows(step: &payload::QuantizeRows, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split_quantized(step.y)?;
    let (x, qparams) = (reader.floats(step.x)?, reader.floats(step.qparams)?);
    let dims = reader.dims(step.qparams);
    // A single row has one scale as well.
    let per_tensor = matches!(dims, [2 | 3, 1]);
    // Rules differ only in their factors once scales and zero points are chosen.
    let has_factors = dims.first() == Some(&3);
    let rule = if has_factors { ZeroPointRule::Inverse { half: None } } else { ZeroPointRule::MinError };
    let shape = dynamic_quantization(step.x, &reader, rule, per_tensor, step.range)?;
    done(rushlight_engine::quantize_rows(engine, &shape, x, qparams, y))
}

fn attention(step: &payload::Attention, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, scratch) = cx.split_float_slice(step.y)?;
    let size = |size: Size| reader.shapes.size(size);
    let strides = |[batch, head, row]: [Size; 3]| -> Result<Strides> {
        Ok(Strides { batch: size(batch)?, head: size(head)?, row: size(row)? })
    };
    let [q, k, v, y_strides] = step.strides;
    let (batch, heads, rows, keys) = (size(step.batch)?, size(step.heads)?, size(step.rows)?, size(step.keys)?);
    let mask = match step.mask.map(|mask| reader.dims(mask)) {
        Some([b, h, r, n]) => {
            for (dim, (own, whole)) in [(*b, batch), (*h, heads), (*r, rows), (*n, keys)].into_iter().enumerate() {
                if own != whole && (own != 1 || dim == 3) {
                    return Err(Unfit::Size { dim, expected: whole, got: own }.into());
                }
            }
            let stride = |own: usize, sizes: &[usize]| if own == 1 { Ok(0) } else { product(Some(sizes)) };
            Some(Strides { batch: stride(*b, &[*h, *r, *n])?, head: stride(*h, &[*r, *n])?, row: stride(*r, &[*n])? })
        }
        Some(dims) => return Err(Unfit::Rank { expected: "4", got: dims.len() }.into()),
        None => None,
    };
    let attention = rushlight_engine::Attention {
        batch,
        heads,
        kv_heads: size(step.groups)?,
        rows,
        keys,
        depth: size(step.depth)?,
        value_depth: size(step.value_depth)?,
        scale: step.scale,
        causal: step.causal.map(size).transpose()?,
        q: strides(q)?,
        k: strides(k)?,
        v: strides(v)?,
        y: strides(y_strides)?,
        mask,
    };
    let [k, v] = reader.key_values(step)?;
    let inputs = AttentionInputs { q: reader.float_slice(step.q)?, k, v, mask: reader.optional(step.mask)? };
    done(rushlight_engine::attention(engine, &attention, inputs, y, scratch))
}

fn delta_rule(step: &payload::DeltaRule, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split(step.y)?;
    let [batch, tokens, heads, key_dim] = reader.image(step.q)?;
    let ([_, _, groups, _], [_, _, _, value_dim]) = (reader.image(step.k)?, reader.image(step.v)?);
    let decays = reader.dims(step.decay).get(3).copied().unwrap_or(1);
    let rule = rushlight_engine::DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays };
    let inputs = DeltaRuleInputs {
        q: reader.floats(step.q)?,
        k: reader.floats(step.k)?,
        v: reader.floats(step.v)?,
        decay: reader.floats(step.decay)?,
        beta: reader.floats(step.beta)?,
        state: reader.floats(step.state)?,
    };
    let (end, len) = (product(Some(&[batch, tokens, heads, value_dim]))?, y.len());
    let (y, state) = y.split_at_mut_checked(end).ok_or(Unfit::Beyond { end, len })?;
    done(rushlight_engine::delta_rule(engine, &rule, inputs, y, state))
}

fn resize(step: &payload::Resize, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = cx.split_quant_out(step.y)?;
    let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (reader.image(step.x)?, reader.image(step.y)?);
    let payload::Resize { mode, align_corners, scales, .. } = *step;
    let resize = rushlight_engine::Resize { batch, in_h, in_w, channels, out_h, out_w, mode, align_corners, scales };
    done(match y {
        QuantOut::Floats(y) => rushlight_engine::resize(engine, &resize, reader.floats(step.x)?, y),
        QuantOut::Bytes(y, to) => {
            let from = reader.affine(step.x).ok_or(NOT_QUANTIZED)?;
            rushlight_engine::resize_u8(engine, &resize, reader.quantized(step.x)?, from, y, to)
        }
    })
}

fn pooling(step: &payload::Pooling, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split_data(step.y)?;
    let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (reader.image(step.x)?, reader.image(step.y)?);
    check_windows(&[out_h, out_w])?;
    let usize2 = |pair: [u32; 2]| pair.map(|size| size as usize);
    let pool = Pool2d {
        batch,
        in_h,
        in_w,
        channels,
        out_h,
        out_w,
        kernel: usize2(step.kernel),
        stride: usize2(step.stride),
        padding: step.padding.map(usize2),
        dilation: usize2(step.dilation),
        kind: step.kind,
    };
    done(match (reader.data(step.x)?, y) {
        (Data::Bytes(x, affine), y) if pool.kind != PoolKind::Max => {
            let y = match y {
                DataMut::Floats(y) => QuantOut::Floats(y),
                DataMut::Bytes(y, affine) => QuantOut::Bytes(y, affine),
                DataMut::Bf16(_) => return Err(FLOATS_ONLY.into()),
            };
            rushlight_engine::avg_pool2d_u8(engine, &pool, x, affine, y)
        }
        (Data::Bytes(x, _), DataMut::Bytes(y, _)) => rushlight_engine::max_pool2d_u8(engine, &pool, x, y),
        (_, DataMut::Floats(y)) => rushlight_engine::pool2d(engine, &pool, reader.floats(step.x)?, y),
        (_, DataMut::Bf16(y)) => {
            rushlight_engine::pool2d(engine, &pool, reader.float_slice(step.x)?, FloatSliceMut::Bf16(y))
        }
        (_, DataMut::Bytes(..)) => return Err(NOT_QUANTIZED.into()),
    })
}

/// Computes the present values of sizes or strides.
fn present(sizes: &[Size], shapes: &Shapes) -> Result<[usize; MAX_RANK]> {
    let mut present = [0; MAX_RANK];
    sizes.iter().zip(&mut present).try_for_each(|(size, slot)| {
        *slot = shapes.size(*size)?;
        Ok::<(), Error>(())
    })?;
    Ok(present)
}

fn scatter(step: &payload::Scatter, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (shapes, rank) = (cx.shapes, step.sizes.len());
    let lists = [present(&step.sizes, shapes)?, present(&step.x_strides, shapes)?, present(&step.y_strides, shapes)?];
    let [sizes, x_strides, y_strides] = lists.each_ref().map(|list| list.get(..rank).unwrap_or_default());
    let [x_offset, x_step, y_offset, y_step, dim_size] =
        [step.x_offset, step.x_step, step.y_offset, step.y_step, step.dim_size].map(|size| shapes.size(size));
    let (x_offset, x_step, y_offset, y_step, dim_size) = (x_offset?, x_step?, y_offset?, y_step?, dim_size?);
    let (y, reader) = cx.split_moved(step.y)?;
    let indices = reader.floats(step.indices)?;
    let place = |index: f32| {
        let index = index as i64;
        let from_start = if index < 0 { index.saturating_add(dim_size as i64) } else { index };
        usize::try_from(from_start).ok().filter(|place| *place < dim_size)
    };
    // Writes nothing if an index is out of range.
    if let Some(index) = indices.iter().find(|index| place(**index).is_none()) {
        return Err(Detail::Index { index: *index as i64, size: dim_size }.into());
    }
    let slices = indices.iter().filter_map(|index| place(*index)).enumerate().map(|(t, place)| {
        let at = |offset: usize, index: usize, step: usize| index.checked_mul(step)?.checked_add(offset);
        let (x_offset, y_offset) = at(x_offset, t, x_step).zip(at(y_offset, place, y_step)).ok_or(Unfit::Overflow)?;
        Ok(rushlight_engine::Copy { sizes, x_offset, x_strides, y_offset, y_strides })
    });
    match y {
        MovedMut::Floats(y) => copy_slices(engine, slices, reader.floats(step.x)?, y),
        MovedMut::Half(y, half) => copy_slices(engine, slices, reader.half_bits(step.x, half)?, y),
        MovedMut::Bytes(y) => copy_slices(engine, slices, reader.quantized(step.x)?, y),
    }
}

fn copy_slices<'a, T: CopyElement>(
    engine: &Engine,
    mut slices: impl Iterator<Item = Result<rushlight_engine::Copy<'a>>>,
    x: &[T],
    y: &mut [T],
) -> Result<()> {
    slices.try_for_each(|slice| done(rushlight_engine::copy(engine, &slice?, x, y)))
}

fn copy(step: &payload::Copy, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (shapes, rank) = (cx.shapes, step.sizes.len());
    let lists = [present(&step.sizes, shapes)?, present(&step.x_strides, shapes)?, present(&step.y_strides, shapes)?];
    let [sizes, x_strides, y_strides] = lists.each_ref().map(|list| list.get(..rank).unwrap_or_default());
    let (x_offset, y_offset) = (shapes.size(step.x_offset)?, shapes.size(step.y_offset)?);
    let copy = rushlight_engine::Copy { sizes, x_offset, x_strides, y_offset, y_strides };
    let memory = cx.memory;
    let (y, reader) = cx.split_moved(step.y)?;
    let copied = match y {
        MovedMut::Floats(y) => fill_and_copy(engine, &copy, step.fill, reader.floats(step.x)?, y),
        MovedMut::Half(y, half) => {
            let fill = step.fill.map(|value| match half {
                Half::F16 => half::f16::from_f32(value).to_bits(),
                Half::Bf16 => half::bf16::from_f32(value).to_bits(),
            });
            fill_and_copy(engine, &copy, fill, reader.half_bits(step.x, half)?, y)
        }
        MovedMut::Bytes(y) => {
            let fill = step.fill.map(|value| value as u8);
            fill_and_copy(engine, &copy, fill, reader.quantized(step.x)?, y)
        }
    };
    copied.map_err(|error| match (error, memory.buffer(step.y)) {
        // The end depends on positions that the caller gives.
        (rushlight_engine::Error::Mismatch { what: "y", expected: end, .. }, Some(payload::Buffer::State(_))) => {
            Unfit::BeyondState { end }.into()
        }
        (error, _) => of_engine(error),
    })
}

/// Copies elements into a tensor. Fills it first if the step has a fill value.
fn fill_and_copy<T: CopyElement>(
    engine: &Engine,
    copy: &rushlight_engine::Copy<'_>,
    fill: Option<T>,
    x: &[T],
    y: &mut [T],
) -> core::result::Result<(), rushlight_engine::Error> {
    if let Some(value) = fill {
        rushlight_engine::fill(engine, y, value)?;
    }
    rushlight_engine::copy(engine, copy, x, y)
}

fn gather(step: &payload::Gather, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split(step.y)?;
    let columns = reader.dims(step.y).last().copied().unwrap_or(1);
    let table = match step.format {
        TableFormat::F32 => Table::Floats(reader.floats(step.table)?),
        TableFormat::Quantized { format, rows } => {
            Table::Quantized(reader.quantized_weights(step.table, &format.matrix(columns, rows as usize))?)
        }
    };
    match reader.dtype(step.indices) {
        Some(ScalarType::Int) => {
            done(rushlight_engine::gather(engine, columns, table, reader.input::<i32>(step.indices)?, y))
        }
        Some(ScalarType::Float) => {
            done(rushlight_engine::gather(engine, columns, table, reader.floats(step.indices)?, y))
        }
        _ => done(rushlight_engine::gather(engine, columns, table, reader.input::<i64>(step.indices)?, y)),
    }
}
