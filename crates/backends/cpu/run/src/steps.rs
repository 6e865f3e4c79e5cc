//! Steps as calls of the engine.

use rushlight_cpu_payload::{self as payload, MAX_OPERANDS, Size, Step, TensorId};
use rushlight_engine::pack::GroupwiseMatrix;
use rushlight_engine::{
    AttentionInputs, AveragePool, Conv2d, Conv3d, ConvTranspose2d, CopyElement, Data, DataMut, DynamicQuantization,
    Engine, Epilogue, FloatSlice, FloatSliceMut, Gemm, GroupwiseEpilogue, Instruction, Matmul, Normalization, Pool2d,
    QuantEpilogue, QuantOut, QuantResidual, Residual, ResizeMode, RowQparams, SoftmaxTable, Source, Strides, Table,
    Winograd, WinogradWeights, ZeroPointRule,
};
use rushlight_runtime::{Error, MAX_RANK, Result};

use crate::convert::convert;
use crate::error::Unfit;
use crate::memory::{NOT_QUANTIZED, Reader, Site, affine, done};
use crate::prepared::{Prepared, activation, fold};

const FLOATS_ONLY: Unfit = Unfit::Part("a tensor is quantized or bf16, which the step does not compute with");
const NO_INTEGERS: Unfit = Unfit::Part("an int8 GEMM without offsets and scales");
const NO_ROWS: Unfit = Unfit::Part("an int8 GEMM without the scales and zero points of its rows");

/// An elementwise step with the engine's instructions.
pub(crate) struct Elementwise {
    pub operands: Vec<TensorId>,
    pub y: TensorId,
    pub instructions: Vec<Instruction>,
    /// For each byte what comes out, if all of it is a function of one tensor of bytes that gives bytes.
    pub table: Option<Box<[u8; 256]>>,
}

/// The softmax of bytes as bytes.
pub(crate) struct ByteSoftmax {
    pub x: TensorId,
    pub y: TensorId,
    pub table: SoftmaxTable,
}

impl Prepared {
    pub fn run(&mut self, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
        match self {
            Self::Elementwise(step) => step.run(engine, site),
            Self::Softmax(step) => step.run(engine, site),
            Self::Other(step) => run(step, engine, site),
        }
    }
}

impl ByteSoftmax {
    fn run(&self, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, _) = site.split_any(self.y)?;
        let QuantOut::Bytes(y, to) = y else { return Err(NOT_QUANTIZED.into()) };
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(columns).unwrap_or(0);
        done(rushlight_engine::softmax_u8(engine, rows, columns, &self.table, reader.bytes(self.x)?, y, to))
    }
}

/// Operands of most elementwise steps. Room for all that there may be takes longer to clear than a small step to run.
const FEW_OPERANDS: usize = 3;

impl Elementwise {
    fn run(&self, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
        if let (Some(table), [x]) = (&self.table, self.operands.as_slice())
            && site.shapes.dims(*x) == site.shapes.dims(self.y)
        {
            let (y, reader) = site.split_bytes(self.y)?;
            return done(rushlight_engine::lookup(engine, table, reader.bytes(*x)?, y));
        }
        if self.operands.len() <= FEW_OPERANDS {
            self.run_with::<FEW_OPERANDS>(engine, site)
        } else {
            self.run_with::<MAX_OPERANDS>(engine, site)
        }
    }

    /// With room for `N` operands.
    fn run_with<const N: usize>(&self, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = site.split_data(self.y)?;
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
                // Sizes of a tensor without elements may be arbitrarily large.
                stride = stride.saturating_mul(*size);
            }
        }
        done(rushlight_engine::elementwise(engine, &self.instructions, dims, sources, y))
    }
}

fn run(step: &Step, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    match step {
        Step::Matmul(step) if step.tail.integers.as_ref().is_some_and(|integers| integers.scales.is_none()) => {
            group_linear(step, engine, site)
        }
        Step::Matmul(step) if step.tail.integers.is_some() => integer_linear(step, engine, site),
        Step::RowScales(step) => choose_rows(step, engine, site),
        Step::RoundRows(step) => round_rows(step, engine, site),
        Step::Convolution(step) if step.tail.integers.is_some() => integer_convolution(step, engine, site),
        Step::Matmul(step) if step.packed => linear(step, engine, site),
        Step::Convolution(step) => convolution(step, engine, site),
        Step::Pooling(step) => pooling(step, engine, site),
        Step::Reduction(step) => {
            let (y, reader, _) = site.split_any(step.y)?;
            let dims = reader.dims(step.x);
            let (first, count) = (step.first as usize, step.count as usize);
            let end = first.saturating_add(count);
            let outer = product(dims.get(..first))?;
            let reduced = product(dims.get(first..end))?;
            let inner = product(dims.get(end..))?;
            match (reader.data(step.x)?, y) {
                (Data::Bytes(x, affine), y) if step.function == payload::Fold::Mean => {
                    done(rushlight_engine::mean_u8(engine, [outer, reduced, inner], x, affine, y))
                }
                (_, QuantOut::Floats(y)) => {
                    let x = reader.numbers(step.x)?;
                    done(rushlight_engine::reduce(engine, fold(step.function), outer, reduced, inner, x, y))
                }
                _ => Err(FLOATS_ONLY.into()),
            }
        }
        Step::Softmax { x, y, log } => {
            let (out, reader) = site.split(*y)?;
            let columns = reader.dims(*x).last().copied().unwrap_or(1);
            let rows = out.len().checked_div(columns).unwrap_or(0);
            done(rushlight_engine::softmax(engine, rows, columns, *log, reader.floats(*x)?, out))
        }
        Step::Normalisation(step) => {
            let (y, reader, _) = site.split_numbers(step.y)?;
            let dims = reader.dims(step.x);
            let normalised =
                Unfit::Count { what: "normalised dimensions", expected: dims.len(), got: step.dims as usize };
            let first = dims.len().checked_sub(step.dims as usize).ok_or(normalised)?;
            let columns = product(dims.get(first..))?;
            let rows = product(dims.get(..first))?;
            let normalise = Normalization { rows, columns, eps: step.eps, centered: step.centred };
            let (weight, bias) = (reader.optional(step.weight)?, reader.optional(step.bias)?);
            done(rushlight_engine::normalize(engine, &normalise, reader.floats(step.x)?, weight, bias, y))
        }
        Step::Copy(step) => copy(step, engine, site),
        Step::Gather(step) => gather(step, engine, site),
        Step::Matmul(step) => batched(step, engine, site),
        Step::Attention(step) => attention(step, engine, site),
        Step::Resize(step) => resize(step, engine, site),
        Step::Convert(step) => convert(step, engine, site),
        // Prepared in another form.
        Step::Elementwise(_) => Err(Unfit::Part("an elementwise step that was not prepared").into()),
    }
}

/// Multiplies some of a tensor's sizes. The result may overflow `usize` where another size is 0.
fn product(dims: Option<&[usize]>) -> Result<usize> {
    let dims = dims.ok_or(Unfit::Part("the step names dimensions that its tensor does not have"))?;
    dims.iter().try_fold(1usize, |all, size| all.checked_mul(*size)).ok_or_else(|| Unfit::Overflow.into())
}

fn tail<'s>(tail: &payload::Tail, columns: usize, reader: &Reader<'s, '_, '_, '_>) -> Result<Epilogue<'s>> {
    let residual = tail.residual.map(|residual| reader.numbers(residual)).transpose()?;
    let residual = residual.map(|data| Residual { data, stride: columns });
    Ok(Epilogue {
        bias: reader.optional(tail.bias)?,
        residual,
        residual_first: !tail.residual_last,
        activation: activation(tail.activation),
    })
}

/// What follows a product of bytes.
fn integer_tail<'s>(
    tail: &payload::Tail,
    columns: usize,
    reader: &Reader<'s, '_, '_, '_>,
) -> Result<QuantEpilogue<'s>> {
    let integers = tail.integers.as_ref().ok_or(NO_INTEGERS)?;
    let residual = match tail.residual {
        Some(id) => {
            let affine = reader.affine(id).ok_or(NOT_QUANTIZED)?;
            Some(QuantResidual { data: reader.bytes(id)?, stride: columns, affine })
        }
        None => None,
    };
    Ok(QuantEpilogue {
        offsets: bytemuck::cast_slice(reader.floats(integers.offsets)?),
        scales: reader.floats(integers.scales.ok_or(NO_INTEGERS)?)?,
        rows: integers.rows.map(|rows| row_scales(rows, reader)).transpose()?,
        bias: reader.optional(tail.bias)?,
        inner: integers.inner.map(|inner| (activation(inner.activation), affine(inner.affine))),
        residual,
        activation: activation(tail.activation),
    })
}

/// The scales and zeros that were chosen for rows.
fn row_scales<'s>(tensor: TensorId, reader: &Reader<'s, '_, '_, '_>) -> Result<RowQparams<'s>> {
    let chosen = reader.floats(tensor)?;
    let (scales, zero_points) = chosen.split_at_checked(chosen.len() / 2).ok_or(NO_ROWS)?;
    Ok(RowQparams { scales, zero_points })
}

/// A product with weights whose groups have scales.
fn group_linear(step: &payload::Matmul, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = site.split(step.y)?;
    let k = reader.dims(step.a).last().copied().unwrap_or(1);
    let n = reader.dims(step.y).last().copied().unwrap_or(1);
    let m = y.len().checked_div(n).unwrap_or(0);
    let integers = step.tail.integers.as_ref().ok_or(NO_INTEGERS)?;
    let (a, b) = (reader.bytes(step.a)?, reader.packed_bytes(step.b)?);
    let matrix = GroupwiseMatrix::of_len(k, n, b.len())
        .ok_or(Unfit::Part("the weights are no matrix with groups of these rows and columns"))?;
    let tail = GroupwiseEpilogue {
        rows: row_scales(integers.rows.ok_or(NO_ROWS)?, &reader)?,
        sums: reader.floats(integers.offsets)?,
        bias: reader.optional(step.tail.bias)?,
        activation: activation(step.tail.activation),
    };
    done(rushlight_engine::gemm_u8_groupwise(engine, m, a, (matrix, b), y, &tail))
}

/// How rows are rounded, in the engine's terms.
fn dynamic_rows(
    x: TensorId,
    reader: &Reader<'_, '_, '_, '_>,
    rule: ZeroPointRule,
    per_tensor: bool,
    range: [u8; 2],
) -> Result<DynamicQuantization> {
    let (columns, rows) = reader.dims(x).split_last().map_or((1, &[][..]), |(last, others)| (*last, others));
    Ok(DynamicQuantization { rows: product(Some(rows))?, columns, rule, per_tensor, range })
}

fn choose_rows(step: &payload::RowScales, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let choice = match step.choice {
        payload::Choice::Lower { eps } => ZeroPointRule::FromMin { eps },
        payload::Choice::Nearer => ZeroPointRule::MinError,
    };
    let (y, reader) = site.split(step.y)?;
    let shape = dynamic_rows(step.x, &reader, choice, step.is_shared, step.range)?;
    done(rushlight_engine::choose_qparams(engine, &shape, reader.floats(step.x)?, y))
}

fn round_rows(step: &payload::RoundRows, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = site.split_bytes(step.y)?;
    let (x, chosen) = (reader.floats(step.x)?, reader.floats(step.scales)?);
    // One row has one as well.
    let is_shared = reader.dims(step.scales) == [2, 1];
    let shape = dynamic_rows(step.x, &reader, ZeroPointRule::MinError, is_shared, step.range)?;
    done(rushlight_engine::quantize_rows(engine, &shape, x, chosen, y))
}

fn integer_linear(step: &payload::Matmul, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let elements = site.shapes.window(step.y).1;
    let (y, reader, _) = site.split_any(step.y)?;
    let k = reader.dims(step.a).last().copied().unwrap_or(1);
    let n = reader.dims(step.y).last().copied().unwrap_or(1);
    let m = elements.checked_div(n).unwrap_or(0);
    let tail = integer_tail(&step.tail, n, &reader)?;
    let (a, b) = (reader.bytes(step.a)?, reader.integer_weights(step.b)?);
    done(rushlight_engine::gemm_u8(engine, &Gemm::new(m, n, k), a, b, y, &tail))
}

fn integer_convolution(step: &payload::Convolution, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let elements = site.shapes.window(step.y).1;
    let (y, reader, _) = site.split_any(step.y)?;
    let zero = match step.tail.integers.as_ref().and_then(|integers| integers.rows) {
        Some(rows) => *row_scales(rows, &reader)?.zero_points.first().ok_or(NO_ROWS)? as u8,
        None => reader.affine(step.x).ok_or(NOT_QUANTIZED)?.zero_point,
    };
    let (x, w) = (reader.bytes(step.x)?, reader.integer_weights(step.w)?);
    if step.output_padding.is_some() {
        let conv = transposed_of(step, &reader, elements)?;
        let tail = integer_tail(&step.tail, conv.out_c, &reader)?;
        return done(rushlight_engine::conv_transpose2d_u8(engine, &conv, zero, x, w, y, &tail));
    }
    let conv = convolution_of(step, &reader)?;
    let tail = integer_tail(&step.tail, conv.out_c, &reader)?;
    check_output(&conv, elements)?;
    done(if step.depthwise {
        rushlight_engine::depthwise2d_u8(engine, &conv, zero, x, w, y, &tail)
    } else {
        rushlight_engine::conv2d_u8(engine, &conv, zero, x, w, y, &tail)
    })
}

/// The shape of a convolution of pictures.
fn convolution_of(step: &payload::Convolution, reader: &Reader<'_, '_, '_, '_>) -> Result<Conv2d> {
    let ([batch, in_h, in_w, in_c], [.., out_c]) = (picture(reader, step.x)?, picture(reader, step.y)?);
    Ok(Conv2d {
        stride: pair(&step.stride)?,
        padding: pads(&step.padding)?,
        dilation: pair(&step.dilation)?,
        groups: step.groups as usize,
        ..Conv2d::new([batch, in_h, in_w, in_c], out_c, pair(&step.kernel)?)
    })
}

/// Checks that an output has as many elements as a step computes.
fn same_elements(expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Unfit::Count { what: "elements of the output", expected, got }.into()) }
}

/// Checks that windows fit into what they move over, which depends on the caller's sizes.
fn check_windows(out_size: &[usize]) -> Result<()> {
    if out_size.contains(&0) { Err(Error::invalid("the window is larger than the padded input")) } else { Ok(()) }
}

/// That an output has the elements that a convolution gives.
fn check_output(conv: &Conv2d, elements: usize) -> Result<()> {
    let pixels = conv.batch.saturating_mul(conv.out_h()).saturating_mul(conv.out_w());
    same_elements(pixels.saturating_mul(conv.out_c), elements)
}

fn linear(step: &payload::Matmul, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = site.split_numbers(step.y)?;
    let k = reader.dims(step.a).last().copied().unwrap_or(1);
    let n = reader.dims(step.y).last().copied().unwrap_or(1);
    let m = y.len().checked_div(n).unwrap_or(0);
    let tail = tail(&step.tail, n, &reader)?;
    let (a, b) = (reader.numbers(step.a)?, reader.matrix(step.b, k, n)?);
    done(rushlight_engine::gemm(engine, &Gemm::new(m, n, k), a, b, y, &tail))
}

/// A product with a second matrix that is computed: it is packed first.
fn batched(step: &payload::Matmul, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, scratch) = site.split_with_scratch(step.y)?;
    let (a_dims, b_dims, y_dims) = (reader.dims(step.a), reader.dims(step.b), reader.dims(step.y));
    let ([.., m, k], [.., n]) = (a_dims, y_dims) else {
        return Err(Unfit::Rank { expected: "at least 2", got: a_dims.len() }.into());
    };
    let (m, k, n) = (*m, *k, *n);
    let (a, b) = (reader.floats(step.a)?, reader.floats(step.b)?);
    let own = |dims: &'_ [usize]| product(dims.get(..dims.len().saturating_sub(2)));
    let (batches, of_a, of_b) = (own(y_dims)?, own(a_dims)?, own(b_dims)?);
    for (what, got, others) in [("batches of the left side", of_a, None), ("batches of the right side", of_b, Some(1))]
    {
        if got != batches && Some(got) != others {
            return Err(Unfit::Count { what, expected: batches, got }.into());
        }
    }
    let mut matmul = Matmul::new(batches, m, n, k, step.transposed);
    if of_b == 1 {
        matmul.b_batch = [0, 0];
    }
    let tail = tail(&step.tail, n, &reader)?;
    done(rushlight_engine::matmul(engine, &matmul, a, b, y, &tail, scratch))
}

fn attention(step: &payload::Attention, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, scratch) = site.split_numbers(step.y)?;
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
        causal: step.causal,
        q: strides(q)?,
        k: strides(k)?,
        v: strides(v)?,
        y: strides(y_strides)?,
        mask,
    };
    let (q, k, v) = (reader.numbers(step.q)?, reader.numbers(step.k)?, reader.numbers(step.v)?);
    let inputs = AttentionInputs { q, k, v, mask: reader.optional(step.mask)? };
    done(rushlight_engine::attention(engine, &attention, inputs, y, scratch))
}

fn resize(step: &payload::Resize, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = site.split_any(step.y)?;
    let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (picture(&reader, step.x)?, picture(&reader, step.y)?);
    let mode = match step.mode {
        payload::ResizeMode::Nearest => ResizeMode::Nearest,
        payload::ResizeMode::Bilinear => ResizeMode::Bilinear,
    };
    let (align_corners, scales) = (step.align_corners, step.scales);
    let resize = rushlight_engine::Resize { batch, in_h, in_w, channels, out_h, out_w, mode, align_corners, scales };
    done(match y {
        QuantOut::Floats(y) => rushlight_engine::resize(engine, &resize, reader.floats(step.x)?, y),
        QuantOut::Bytes(y, to) => {
            let from = reader.affine(step.x).ok_or(NOT_QUANTIZED)?;
            rushlight_engine::resize_u8(engine, &resize, reader.bytes(step.x)?, from, y, to)
        }
    })
}

fn convolution(step: &payload::Convolution, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    if step.output_padding.is_some() {
        return transposed_convolution(step, engine, site);
    }
    if step.kernel.len() == 3 {
        return volume_convolution(step, engine, site);
    }
    let (mut y, reader, scratch) = site.split_numbers(step.y)?;
    let conv = convolution_of(step, &reader)?;
    let tail = tail(&step.tail, conv.out_c, &reader)?;
    check_windows(&[conv.out_h(), conv.out_w()])?;
    check_output(&conv, y.len())?;
    done(match step.winograd {
        Some(form) => {
            let FloatSliceMut::F32(y) = &mut y else { return Err(FLOATS_ONLY.into()) };
            let x = reader.floats(step.x)?;
            let form = match form {
                payload::Winograd::F2 => Winograd::F2,
                payload::Winograd::F4 => Winograd::F4,
            };
            let weights = WinogradWeights { form, packed: reader.floats(step.w)? };
            rushlight_engine::conv2d_winograd(engine, &conv, x, weights, y, &tail, scratch)
        }
        None if step.depthwise => {
            let (x, w) = (reader.numbers(step.x)?, reader.floats(step.w)?);
            rushlight_engine::depthwise2d(engine, &conv, x, w, y, &tail)
        }
        None => {
            let (x, w) = (reader.numbers(step.x)?, reader.weights(step.w)?);
            rushlight_engine::conv2d(engine, &conv, x, w, y, &tail)
        }
    })
}

fn transposed_convolution(step: &payload::Convolution, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = site.split(step.y)?;
    let conv = transposed_of(step, &reader, y.len())?;
    let tail = tail(&step.tail, conv.out_c, &reader)?;
    done(rushlight_engine::conv_transpose2d(engine, &conv, reader.floats(step.x)?, reader.weights(step.w)?, y, &tail))
}

/// The shape of a transposed convolution, whose output has so many elements.
fn transposed_of(
    step: &payload::Convolution,
    reader: &Reader<'_, '_, '_, '_>,
    elements: usize,
) -> Result<ConvTranspose2d> {
    let ([batch, in_h, in_w, in_c], [.., out_c]) = (picture(reader, step.x)?, picture(reader, step.y)?);
    let conv = ConvTranspose2d {
        batch,
        in_h,
        in_w,
        in_c,
        out_c,
        kernel: pair(&step.kernel)?,
        stride: pair(&step.stride)?,
        padding: pads(&step.padding)?,
        output_padding: pair(step.output_padding.as_deref().unwrap_or_default())?,
        dilation: pair(&step.dilation)?,
        groups: step.groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    };
    let pixels = batch.saturating_mul(conv.out_h()).saturating_mul(conv.out_w());
    same_elements(pixels.saturating_mul(out_c), elements)?;
    Ok(conv)
}

fn volume_convolution(step: &payload::Convolution, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader, _) = site.split_numbers(step.y)?;
    let ([batch, in_d, in_h, in_w, in_c], [.., out_c]) = (volume(&reader, step.x)?, volume(&reader, step.y)?);
    let triple = |sizes: &[u32]| -> Result<[usize; 3]> {
        let sizes: [u32; 3] = sizes.try_into().map_err(|_| kernel_rank(3, sizes.len()))?;
        Ok(sizes.map(|size| size as usize))
    };
    let padding: [[u32; 2]; 3] = step.padding.as_slice().try_into().map_err(|_| kernel_rank(3, step.padding.len()))?;
    let conv = Conv3d {
        batch,
        in_size: [in_d, in_h, in_w],
        in_c,
        out_c,
        kernel: triple(&step.kernel)?,
        stride: triple(&step.stride)?,
        padding: padding.map(|sides| sides.map(|size| size as usize)),
        dilation: triple(&step.dilation)?,
        groups: step.groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    };
    check_windows(&conv.out_size())?;
    let elements = conv.out_size().iter().fold(batch.saturating_mul(out_c), |all, size| all.saturating_mul(*size));
    same_elements(elements, y.len())?;
    let tail = tail(&step.tail, out_c, &reader)?;
    done(rushlight_engine::conv3d(engine, &conv, reader.numbers(step.x)?, reader.weights(step.w)?, y, &tail))
}

fn pooling(step: &payload::Pooling, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = site.split_data(step.y)?;
    let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (picture(&reader, step.x)?, picture(&reader, step.y)?);
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
        average: (step.kind == payload::PoolingKind::Mean).then(|| AveragePool {
            count_include_pad: step.count_padding,
            divisor_override: step.divisor.map(|divisor| divisor as usize),
        }),
    };
    done(match (reader.data(step.x)?, y) {
        (Data::Bytes(x, affine), y) if pool.average.is_some() => {
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
            rushlight_engine::pool2d(engine, &pool, reader.numbers(step.x)?, FloatSliceMut::Bf16(y))
        }
        (_, DataMut::Bytes(..)) => return Err(NOT_QUANTIZED.into()),
    })
}

fn copy(step: &payload::Copy, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let shapes = site.shapes;
    let list = |sizes: &[Size], to: &mut [usize; MAX_RANK]| -> Result<()> {
        sizes.iter().zip(to).try_for_each(|(size, slot)| {
            *slot = shapes.size(*size)?;
            Ok(())
        })
    };
    let rank = step.sizes.len();
    let mut numbers = [[0; MAX_RANK]; 3];
    let [sizes, x_strides, y_strides] = &mut numbers;
    list(&step.sizes, sizes)?;
    list(&step.x_strides, x_strides)?;
    list(&step.y_strides, y_strides)?;
    let [sizes, x_strides, y_strides] = numbers.each_ref().map(|list| list.get(..rank).unwrap_or_default());
    let (x_offset, y_offset) = (shapes.size(step.x_offset)?, shapes.size(step.y_offset)?);
    let copy = rushlight_engine::Copy { sizes, x_offset, x_strides, y_offset, y_strides };
    let (y, reader) = site.split_data(step.y)?;
    match y {
        DataMut::Floats(y) => fill_and_copy(engine, &copy, step.fill, reader.floats(step.x)?, y),
        DataMut::Bf16(y) => {
            let fill = step.fill.map(|value| half::bf16::from_f32(value).to_bits());
            let FloatSlice::Bf16(x) = reader.numbers(step.x)? else {
                return Err(Unfit::Part("a copy between floats and bf16").into());
            };
            fill_and_copy(engine, &copy, fill, x, y)
        }
        DataMut::Bytes(y, _) => {
            let fill = step.fill.map(|value| value as u8);
            fill_and_copy(engine, &copy, fill, reader.bytes(step.x)?, y)
        }
    }
}

/// Fills a tensor, if it is to be filled, before elements are copied into it.
fn fill_and_copy<T: CopyElement>(
    engine: &Engine,
    copy: &rushlight_engine::Copy<'_>,
    fill: Option<T>,
    x: &[T],
    y: &mut [T],
) -> Result<()> {
    if let Some(value) = fill {
        done(rushlight_engine::fill(engine, y, value))?;
    }
    done(rushlight_engine::copy(engine, copy, x, y))
}

fn gather(step: &payload::Gather, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = site.split(step.y)?;
    let columns = reader.dims(step.y).last().copied().unwrap_or(1);
    let table = match reader.integers(step.table, columns)? {
        Some(integers) => Table::Quantized(integers),
        None => Table::Floats(reader.floats(step.table)?),
    };
    match reader.input::<i64>(step.indices) {
        Ok(indices) => done(rushlight_engine::gather(engine, columns, table, indices, y)),
        Err(_) => done(rushlight_engine::gather(engine, columns, table, reader.input::<i32>(step.indices)?, y)),
    }
}

/// The sizes of a picture.
fn picture(reader: &Reader<'_, '_, '_, '_>, tensor: TensorId) -> Result<[usize; 4]> {
    let dims = reader.dims(tensor);
    dims.try_into().map_err(|_| Unfit::Rank { expected: "4", got: dims.len() }.into())
}

/// The sizes of a volume.
fn volume(reader: &Reader<'_, '_, '_, '_>, tensor: TensorId) -> Result<[usize; 5]> {
    let dims = reader.dims(tensor);
    dims.try_into().map_err(|_| Unfit::Rank { expected: "5", got: dims.len() }.into())
}

fn pair(sizes: &[u32]) -> Result<[usize; 2]> {
    match sizes {
        [height, width] => Ok([*height as usize, *width as usize]),
        _ => Err(kernel_rank(2, sizes.len()).into()),
    }
}

fn pads(pads: &[[u32; 2]]) -> Result<[[usize; 2]; 2]> {
    match pads {
        [height, width] => Ok([height.map(|size| size as usize), width.map(|size| size as usize)]),
        _ => Err(kernel_rank(2, pads.len()).into()),
    }
}

/// Describes a kernel with another number of dimensions.
fn kernel_rank(expected: usize, got: usize) -> Unfit {
    Unfit::Count { what: "dimensions of the kernel", expected, got }
}
