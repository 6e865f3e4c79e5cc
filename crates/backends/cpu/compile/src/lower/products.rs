//! Convolutions and matrix products.

use rushlight_cpu_payload::{
    Convolution, ConvolutionKind, Epilogue, Int8Epilogue, Matmul, MatmulKind, QuantizedFormat, Residual, Step,
    TensorId, Window,
};
use rushlight_engine::{Conv2d, ConvTranspose2d, Winograd, pack};

use rushlight_graph::Error;
use rushlight_graph::{Constant, Expr, NodeId, ValueId};

use super::super::call::Call;
use super::super::integer::{IntegerProduct, Integers, WeightsAlone, scales};
use super::super::view::View;
use super::super::{Precision, constants, error};
use super::Lowering;
use super::integer::bits_of;
use super::rounded::Rows;

/// The epilogue of a convolution.
enum Tail {
    Float(Epilogue),
    Int8(Int8Epilogue),
}

/// The right side of a matrix product with floats.
enum Right {
    Dense(TensorId),
    Packed(TensorId),
    WeightOnly(TensorId, QuantizedFormat),
}

impl Lowering<'_> {
    pub(super) fn convolution(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let (input, weight) = (call.value("input")?, call.value("weight")?);
        let shape = call.shape(input)?;
        let rank = shape.len().saturating_sub(2);
        let order = channels_last(shape.len());
        let product = self.fusion.integers.get(&id).copied();
        let is_integer = product.is_some();
        let (x, chosen) = match product {
            None => (self.in_order(input, &order)?, None),
            Some(IntegerProduct::Static) => (self.held_in_order(input, &order)?, None),
            Some(IntegerProduct::Rows | IntegerProduct::Groups { .. }) => {
                let Rows { bytes, chosen } = self.rounded_rows(input)?;
                (self.reordered(&bytes, &order)?, Some(chosen))
            }
        };
        let constant = self.constant_of(weight).ok_or_else(|| call.missing("weight", "a constant"))?;
        let sizes = constant.sizes()?;
        let groups = call.int("groups").and_then(|groups| u32::try_from(groups).ok()).unwrap_or(1);
        let channels = shape.get(1).and_then(Expr::as_int).ok_or_else(|| error("channels of unknown number"))?;
        let depthwise = groups > 1 && i64::from(groups) == channels && sizes.first() == Some(&(channels as usize));
        let list = |name: &str| call.sizes(name, rank).ok_or_else(|| call.missing(name, "sizes"));
        let (mut stride, mut dilation) = (list("stride")?, list("dilation")?);
        let mut padding: Vec<[u32; 2]> = list("padding")?.into_iter().map(|size| [size; 2]).collect();
        let mut kernel: Vec<u32> = sizes.iter().skip(2).map(|size| *size as u32).collect();
        let mut output_padding = if call.flag("transposed") { Some(list("output_padding")?) } else { None };
        let (mut x, is_line) = (x, rank == 1);
        if is_line {
            // A line is a picture of height 1.
            kernel.insert(0, 1);
            stride.insert(0, 1);
            dilation.insert(0, 1);
            padding.insert(0, [0; 2]);
            if let Some(added) = &mut output_padding {
                added.insert(0, 0);
            }
            x = as_picture(&x);
        }
        let depthwise = depthwise && output_padding.is_none() && kernel.len() == 2;
        let winograd = winograd(
            self.typical(&x),
            [channels, sizes.first().map_or(0, |size| *size as i64)],
            groups,
            &kernel,
            &stride,
            &padding,
            &dilation,
        );
        // It computes in floats, also what goes from one product to the next.
        let is_bf16 = self.plan.precision() == Precision::Bf16;
        let winograd = winograd.filter(|_| output_padding.is_none() && !is_integer && !is_bf16);
        let too_large = || error("weights beyond all memory");
        let name = &constant.name;
        let transposed = || {
            transposed(channels, &sizes, groups, &kernel, &stride, &padding, &dilation)
                .ok_or_else(|| error("a transposed convolution without two dimensions"))
        };
        let w = match winograd {
            _ if is_integer && output_padding.is_some() => self.integer_transposed_weights(constant, &transposed()?)?,
            _ if is_integer => {
                let pair = |list: &[u32]| [list[0] as usize, list[1] as usize];
                let outputs = sizes.first().copied().unwrap_or(0);
                let conv = Conv2d {
                    groups: groups as usize,
                    dilation: pair(&dilation),
                    ..Conv2d::new([1, 1, 1, channels as usize], outputs, pair(&kernel))
                };
                self.integer_weights(constant, &conv, depthwise)?
            }
            Some((form, conv)) => {
                self.plan.scratch(form.scratch_per_thread(&conv));
                let len = pack::winograd_f32_len(form, &conv).ok_or_else(too_large)?;
                let w = self.plan.packed(name, len, move |to| constants::winograd(constant, form, &conv, to))?;
                self.plan.tensor(&w)?
            }
            None if output_padding.is_some() => {
                let conv = transposed()?;
                let len = pack::conv_transpose2d_f32_len(&conv).ok_or_else(too_large)?;
                self.plan.weights(name, len, move |to| constants::transposed(constant, &conv, to))?
            }
            None if depthwise => {
                let len = sizes.iter().product();
                let w = self.plan.packed(name, len, move |to| constants::depthwise(constant, to))?;
                self.plan.tensor(&w)?
            }
            None => {
                let len = constants::convolution_len(&sizes, groups as usize).ok_or_else(too_large)?;
                self.plan.weights(name, len, move |to| constants::convolution(constant, groups as usize, to))?
            }
        };
        let (tail, to) = if is_integer {
            let integers = Integers::of(constant)?;
            let (columns, sums) = if output_padding.is_some() {
                let conv = transposed()?;
                (conv.out_c, pack::conv_transpose2d_i8_sums(&conv, integers.of_pictures()))
            } else {
                (sizes.first().copied().unwrap_or(0), integers.sums(&sizes, sizes.iter().skip(1).product::<usize>()))
            };
            match chosen {
                Some(chosen) => {
                    let scales = self.plan.vector("scales", &scales(constant, columns)?)?;
                    (Tail::Int8(self.rows_tail(id, &chosen, &bits_of(&sums), scales)?), None)
                }
                None => {
                    let (tail, to) = self.integer_tail(id, Some(&order), &x, constant, columns, &sums)?;
                    (Tail::Int8(tail), to)
                }
            }
        } else {
            (Tail::Float(self.tail(id, Some(&order))?), None)
        };
        let result = self.result_of_tail(id)?;
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, to)?;
        let picture = if is_line { as_picture(&y) } else { y.clone() };
        let format = self.plan.float_format();
        let window = || Window {
            kernel: [kernel[0], kernel[1]],
            stride: [stride[0], stride[1]],
            padding: [padding[0], padding[1]],
            dilation: [dilation[0], dilation[1]],
        };
        let pair = |sizes: Vec<u32>| [sizes[0], sizes[1]];
        let kind = match (tail, output_padding, winograd) {
            (Tail::Float(epilogue), None, Some((tile, _))) => {
                ConvolutionKind::Winograd { tile, padding: [padding[0], padding[1]], epilogue }
            }
            (Tail::Float(epilogue), None, None) if depthwise => {
                ConvolutionKind::Depthwise { window: window(), epilogue }
            }
            (Tail::Float(epilogue), None, None) if kernel.len() == 3 => {
                let window = Window {
                    kernel: [kernel[0], kernel[1], kernel[2]],
                    stride: [stride[0], stride[1], stride[2]],
                    padding: [padding[0], padding[1], padding[2]],
                    dilation: [dilation[0], dilation[1], dilation[2]],
                };
                ConvolutionKind::Direct3d { window, groups, format, epilogue }
            }
            (Tail::Float(epilogue), None, None) => {
                ConvolutionKind::Direct { window: window(), groups, format, epilogue }
            }
            (Tail::Float(epilogue), Some(added), _) => {
                let output_padding = pair(added);
                ConvolutionKind::Transposed { window: window(), output_padding, groups, format, epilogue }
            }
            (Tail::Int8(epilogue), Some(added), _) => {
                let output_padding = pair(added);
                ConvolutionKind::Int8Transposed { window: window(), output_padding, groups, epilogue }
            }
            (Tail::Int8(epilogue), None, _) if depthwise => {
                ConvolutionKind::Int8Depthwise { window: window(), epilogue }
            }
            (Tail::Int8(epilogue), None, _) => ConvolutionKind::Int8Direct { window: window(), groups, epilogue },
        };
        let step = Convolution { x: self.plan.tensor(&x)?, w, y: self.plan.tensor(&picture)?, kind };
        self.plan.step(self.label(&call), Step::Convolution(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Images, rows and columns of pictures for choosing an algorithm: where they are not known, one image of the greatest
    /// size.
    fn typical(&self, pictures: &View) -> Option<[usize; 3]> {
        let [images, _, height, width] = pictures.shape.as_slice() else { return None };
        let images = images.as_int().map_or(Some(1), |images| usize::try_from(images).ok())?;
        Some([images, self.plan.most(height).ok()?, self.plan.most(width).ok()?])
    }

    /// `addmm` and `mm`.
    pub(super) fn linear(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let (a, b) = if call.name() == "aten::addmm" { ("mat1", "mat2") } else { ("self", "mat2") };
        let (a, b) = (call.value(a)?, call.value(b)?);
        if let Some(product) = self.fusion.integers.get(&id).copied() {
            let constant = self.constant_of(b).ok_or_else(|| call.missing("mat2", "a constant"))?;
            return match product {
                IntegerProduct::Static => self.integer_linear(id, a, constant),
                IntegerProduct::Rows | IntegerProduct::Groups { .. } => self.rows_linear(id, a, constant, product),
            };
        }
        let a = self.dense(a)?;
        let right = match self.constant_of(b) {
            Some(constant) => {
                let sizes = constant.sizes()?;
                let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
                let too_large = || error("weights beyond all memory");
                if let Some(weights) = WeightsAlone::of(constant) {
                    let format = weights.format();
                    Right::WeightOnly(self.integer_matrix(&constant.name, weights)?, format)
                } else {
                    let len = pack::matrix_f32_len(k, n).ok_or_else(too_large)?;
                    let b =
                        self.plan.weights(&constant.name, len, move |to| constants::matrix(constant, [k, n], to))?;
                    Right::Packed(b)
                }
            }
            None => {
                let b = self.dense(b)?;
                self.packing(&b.shape)?;
                Right::Dense(self.plan.tensor(&b)?)
            }
        };
        let epilogue = self.tail(id, None)?;
        let (b, kind) = match right {
            Right::Dense(b) => (b, MatmulKind::Dense { transposed: false, epilogue }),
            Right::Packed(b) => (b, MatmulKind::Packed { format: self.plan.float_format(), epilogue }),
            Right::WeightOnly(b, format) => (b, MatmulKind::WeightOnly { format, epilogue }),
        };
        let result = self.result_of_tail(id)?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let y = self.plan.dense(shape)?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let step = Matmul { a: self.plan.tensor(&a)?, b, y: self.plan.window(&y, &matrix)?, kind };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn batched(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (a, b, result) = (call.value("self")?, call.value("mat2")?, call.result()?);
        let a = self.dense(a)?;
        // Columns of keys lie one after the other: the product reads them so.
        let transposed = self.constant_of(b).is_none() && self.view(b)?.is_in(&[0, 2, 1]);
        let b = if transposed { self.in_order(b, &[0, 2, 1])? } else { self.dense(b)? };
        self.packing(&b.shape)?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let step = Matmul {
            a: self.plan.tensor(&a)?,
            b: self.plan.tensor(&b)?,
            y: self.plan.tensor(&y)?,
            kind: MatmulKind::Dense { transposed, epilogue: Epilogue::default() },
        };
        self.plan.step(self.label(call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Memory to pack a matrix that is computed.
    fn packing(&mut self, shape: &[Expr]) -> Result<(), Error> {
        let [.., k, n] = shape else { return Err(error("a matrix without two dimensions")) };
        let len = pack::matrix_f32_len(self.plan.most(k)?, self.plan.most(n)?);
        self.plan.scratch(len.ok_or_else(|| error("a matrix beyond all memory"))?);
        Ok(())
    }

    /// `addmm` and `mm` of bytes.
    fn integer_linear(&mut self, id: NodeId, a: ValueId, constant: &Constant) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let a = self.held_dense(a)?;
        let sizes = constant.sizes()?;
        let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
        let integers = Integers::of(constant)?;
        let entries = integers.entries();
        let sums: Vec<i64> = (0..n).map(|n| (0..k).map(|k| i64::from(entries.get([k, n]))).sum()).collect();
        let (epilogue, to) = self.integer_tail(id, None, &a, constant, n, &sums)?;
        let len = pack::matrix_i8_len(k, n).ok_or_else(|| error("weights beyond all memory"))?;
        let b = self.plan.integers(&constant.name, len, move |to| {
            let entries = integers.entries();
            pack::matrix_i8_into(to, k, n, |k, n| entries.get([k, n]));
            Ok(())
        })?;
        let result = self.result_of_tail(id)?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let order = (0..shape.len()).collect();
        let y = self.plan.ordered_as(shape, order, to)?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let a = self.plan.tensor(&a)?;
        let step = Matmul { a, b, y: self.plan.window(&y, &matrix)?, kind: MatmulKind::Int8 { epilogue } };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// A matrix of integers for products with floats, or to pick columns from.
    pub(super) fn integer_matrix(&mut self, name: &str, weights: WeightsAlone) -> Result<TensorId, Error> {
        let len = pack::quantized_len(&weights.matrix).ok_or_else(|| error("weights beyond all memory"))?;
        self.plan.grouped(name, len, move |to| {
            weights.pack(to);
            Ok(())
        })
    }

    /// The packed weights of a convolution of bytes.
    fn integer_weights(&mut self, constant: &Constant, conv: &Conv2d, depthwise: bool) -> Result<TensorId, Error> {
        let too_large = || error("weights beyond all memory");
        let (integers, conv) = (Integers::of(constant)?, *conv);
        let name = &constant.name;
        if depthwise {
            let len = pack::depthwise2d_i8_len(&conv).ok_or_else(too_large)?;
            return self.plan.integers(name, len, move |to| {
                let get = integers.of_pictures();
                pack::depthwise2d_i8_into(to, &conv, |channel, h, w| get(channel, 0, h, w));
                Ok(())
            });
        }
        let len = pack::conv2d_i8_len(&conv).ok_or_else(too_large)?;
        self.plan.integers(name, len, move |to| {
            pack::conv2d_i8_into(to, &conv, integers.of_pictures());
            Ok(())
        })
    }

    /// The packed weights of a transposed convolution of bytes.
    fn integer_transposed_weights(&mut self, constant: &Constant, conv: &ConvTranspose2d) -> Result<TensorId, Error> {
        let (integers, conv) = (Integers::of(constant)?, *conv);
        let len = pack::conv_transpose2d_i8_len(&conv).ok_or_else(|| error("weights beyond all memory"))?;
        self.plan.integers(&constant.name, len, move |to| {
            pack::conv_transpose2d_i8_into(to, &conv, integers.of_pictures());
            Ok(())
        })
    }

    /// What comes out of a product with its tail.
    pub(super) fn result_of_tail(&self, id: NodeId) -> Result<ValueId, Error> {
        self.fusion.tails.get(&id).map(|tail| tail.result).ok_or_else(|| error("a product without its tail"))
    }

    /// What follows a product, whose result lies in memory in some order (row-major if `None`).
    fn tail(&mut self, id: NodeId, order: Option<&[usize]>) -> Result<Epilogue, Error> {
        let call = Call::new(self.graph, id);
        let bias = match call.name() {
            "aten::addmm" => call.optional("self"),
            _ => call.optional("bias"),
        };
        let mut tail = Epilogue::default();
        if let Some(bias) = bias {
            let bias = self.dense(bias)?;
            tail.bias = Some(self.plan.tensor(&bias)?);
        }
        let nodes = self.fusion.tails.get(&id).ok_or_else(|| error("a product without its tail"))?;
        tail.activation = nodes.activation;
        let place = if nodes.residual_last { Residual::AfterActivation } else { Residual::BeforeActivation };
        if let Some(residual) = nodes.residual {
            let residual = match order {
                Some(order) => self.in_order(residual, order)?,
                None => self.dense(residual)?,
            };
            tail.residual = Some(place(self.plan.tensor(&residual)?));
        }
        Ok(tail)
    }
}

/// The order of dimensions with channels innermost.
pub(super) fn channels_last(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).filter(|dim| *dim != 1).collect();
    order.push(1);
    order
}

/// Whether a convolution of pictures of these sizes is faster by Winograd's algorithm, and in which form.
fn winograd(
    pictures: Option<[usize; 3]>,
    [in_c, out_c]: [i64; 2],
    groups: u32,
    kernel: &[u32],
    stride: &[u32],
    padding: &[[u32; 2]],
    dilation: &[u32],
) -> Option<(Winograd, Conv2d)> {
    if kernel.len() != 2 {
        return None;
    }
    let [images, height, width] = pictures?;
    let pair = |list: &[u32]| Some([*list.first()? as usize, *list.get(1)? as usize]);
    let (in_c, out_c) = (usize::try_from(in_c).ok()?, usize::try_from(out_c).ok()?);
    let conv = Conv2d {
        stride: pair(stride)?,
        padding: [padding.first()?.map(|size| size as usize), padding.get(1)?.map(|size| size as usize)],
        dilation: pair(dilation)?,
        groups: groups as usize,
        ..Conv2d::new([images, height, width, in_c], out_c, pair(kernel)?)
    };
    Winograd::choose(&conv).map(|form| (form, conv))
}

/// What the packing of a transposed convolution's weights depends on; `None` if it is not one of pictures.
fn transposed(
    channels: i64,
    weight: &[usize],
    groups: u32,
    kernel: &[u32],
    stride: &[u32],
    padding: &[[u32; 2]],
    dilation: &[u32],
) -> Option<ConvTranspose2d> {
    let pair = |list: &[u32]| Some([*list.first()? as usize, *list.get(1)? as usize]);
    let (in_c, groups) = (usize::try_from(channels).ok()?, groups as usize);
    let out_c = weight.get(1)?.checked_mul(groups)?;
    Some(ConvTranspose2d {
        batch: 1,
        in_h: 1,
        in_w: 1,
        in_c,
        out_c,
        kernel: pair(kernel)?,
        stride: pair(stride)?,
        padding: [padding.first()?.map(|size| size as usize), padding.get(1)?.map(|size| size as usize)],
        output_padding: [0; 2],
        dilation: pair(dilation)?,
        groups,
        in_stride: in_c,
        out_stride: out_c,
    })
}

/// A line `[N, C, L]` as a picture `[N, C, 1, L]`.
fn as_picture(line: &View) -> View {
    let mut shape = line.shape.clone();
    shape.insert(2, Expr::Int(1));
    let view = View::ordered(line.buffer, shape, vec![0, 2, 3, 1]).of_bytes(line.affine);
    View { offset: line.offset.clone(), ..view }
}
