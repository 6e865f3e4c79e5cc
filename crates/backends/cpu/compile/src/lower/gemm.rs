//! GEMM and convolutions.

use std::sync::Arc;

use rushlight_cpu_payload::{
    Convolution as ConvolutionStep, ConvolutionKind, Epilogue, FloatFormat, Int8Epilogue, Matmul, MatmulKind,
    QuantizedFormat, Residual, Step, TensorId, Window,
};
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Winograd, pack};

use rushlight_graph::Error;
use rushlight_graph::{Call, Constant, Expr, NodeId, ValueId};

use crate::error::error;
use crate::precision::Precision;
use crate::select::{BatchedGemm, Convolution, Gemm, GemmWeights, Int8};
use crate::view::View;
use crate::weights::constants;
use crate::weights::int8;
use crate::weights::packed_matrix::PackedMatrix;
use crate::weights::quantized_weights::{Integers, WeightOnly, columns, scales};

use super::Lowering;
use super::dynamic::DynamicRows;
use super::int8_epilogue::{Int8Columns, bits_of};

/// The epilogue of a convolution.
enum ConvolutionEpilogue {
    Float(Epilogue),
    Int8(Int8Epilogue),
}

/// The format of the right side of a GEMM of floats.
enum Right {
    Dense,
    Packed(FloatFormat),
    WeightOnly(QuantizedFormat),
}

impl<'a> Lowering<'a> {
    pub(super) fn convolution(&mut self, id: NodeId, selected: &Convolution) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let Convolution { input, channels, groups, bias, .. } = *selected;
        let rank = selected.stride.len();
        let order = channels_last(rank + 2);
        let is_integer = selected.int8.is_some();
        let (x, row_scales) = match selected.int8 {
            None => (self.in_order(input, &order)?, None),
            Some(Int8::Static) => (self.stored_in_order(input, &order)?, None),
            Some(Int8::Dynamic | Int8::DynamicGroupwise { .. }) => {
                let DynamicRows { bytes, scales } = self.dynamic_rows(input)?;
                (self.reordered(&bytes, &order)?, Some(scales))
            }
        };
        let constant = &self.model.constants[selected.weight];
        let sizes = constant.sizes()?;
        let depthwise = groups > 1 && i64::from(groups) == channels && sizes.first() == Some(&(channels as usize));
        let (mut stride, mut dilation) = (selected.stride.clone(), selected.dilation.clone());
        let mut padding: Vec<[u32; 2]> = selected.padding.iter().map(|size| [*size; 2]).collect();
        let mut kernel: Vec<u32> = sizes.iter().skip(2).map(|size| *size as u32).collect();
        let mut output_padding = selected.output_padding.clone();
        let (mut x, is_row) = (x, rank == 1);
        if is_row {
            // One spatial dimension is an image of height 1.
            kernel.insert(0, 1);
            stride.insert(0, 1);
            dilation.insert(0, 1);
            padding.insert(0, [0; 2]);
            if let Some(added) = &mut output_padding {
                added.insert(0, 0);
            }
            x = as_image(&x);
        }
        let depthwise = depthwise && output_padding.is_none() && kernel.len() == 2;
        let winograd = winograd(
            self.representative_size(&x),
            [channels, sizes.first().map_or(0, |size| *size as i64)],
            groups,
            &kernel,
            &stride,
            &padding,
            &dilation,
        );
        // Winograd kernels read and write f32: not with bf16 activations.
        let is_bf16 = self.plan.precision() == Precision::Bf16;
        let winograd = winograd.filter(|_| output_padding.is_none() && !is_integer && !is_bf16);
        let too_large = || error("weights beyond all memory");
        let name = &constant.name;
        let transposed_geometry = || {
            transposed(channels, &sizes, groups, &kernel, &stride, &padding, &dilation)
                .ok_or_else(|| error("a transposed convolution without two dimensions"))
        };
        let w = match winograd {
            _ if is_integer && output_padding.is_some() => {
                self.int8_transposed_weights(constant, &transposed_geometry()?)?
            }
            _ if is_integer => {
                let channels = [channels as usize, sizes.first().copied().unwrap_or(0)];
                let volume = |list: &[u32]| int8::triple(list).unwrap_or([1; 3]).map(|size| size as usize);
                let [kernel, dilation] = [volume(&kernel), volume(&dilation)];
                let conv = int8::convolution(channels, kernel, dilation, groups as usize);
                self.int8_weights(constant, &conv, depthwise)?
            }
            Some((form, conv)) => {
                self.plan.scratch(form.scratch_per_thread(&conv));
                let len = pack::winograd_f32_len(form, &conv).ok_or_else(too_large)?;
                let w = self.plan.packed(name, len, move |to| constants::winograd(constant, form, &conv, to))?;
                self.plan.tensor(&w)?
            }
            None if output_padding.is_some() => {
                let conv = transposed_geometry()?;
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
        if self.plan.is_rounded(w) {
            self.rounded.insert(id);
        }
        let (epilogue, to) = if is_integer {
            let integers = Integers::of(constant)?;
            let (columns, sums) = if output_padding.is_some() {
                let conv = transposed_geometry()?;
                (conv.out_c, pack::conv_transpose2d_i8_sums(&conv, integers.of_images()))
            } else {
                (sizes.first().copied().unwrap_or(0), integers.sums(&sizes, sizes.iter().skip(1).product::<usize>()))
            };
            match row_scales {
                Some(row_scales) => {
                    let scales = self.plan.vector("scales", &scales(constant, columns)?)?;
                    let epilogue =
                        self.dynamic_epilogue(self.activation(id), bias, &row_scales, &bits_of(&sums), scales)?;
                    (ConvolutionEpilogue::Int8(epilogue), None)
                }
                None => {
                    let columns = Int8Columns { weight: constant, count: columns, sums: &sums };
                    let (epilogue, to) = self.int8_epilogue(id, bias, Some(&order), &x, columns)?;
                    (ConvolutionEpilogue::Int8(epilogue), to)
                }
            }
        } else {
            (ConvolutionEpilogue::Float(self.epilogue(id, bias, Some(&order))?), None)
        };
        let result = self.result_of_epilogue(id)?;
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, to)?;
        let image = if is_row { as_image(&y) } else { y.clone() };
        let format = self.plan.float_format();
        let sizes_of_window = [&kernel[..], &stride, &dilation];
        let pair = |sizes: Vec<u32>| [sizes[0], sizes[1]];
        let kind = match (epilogue, output_padding, winograd) {
            (ConvolutionEpilogue::Float(epilogue), None, Some((tile, _))) => {
                ConvolutionKind::Winograd { tile, padding: [padding[0], padding[1]], epilogue }
            }
            (ConvolutionEpilogue::Float(epilogue), None, None) if depthwise => {
                ConvolutionKind::Depthwise { window: window(sizes_of_window, &padding), epilogue }
            }
            (ConvolutionEpilogue::Float(epilogue), None, None) if kernel.len() == 3 => {
                ConvolutionKind::Direct3d { window: window(sizes_of_window, &padding), groups, format, epilogue }
            }
            (ConvolutionEpilogue::Float(epilogue), None, None) => {
                ConvolutionKind::Direct { window: window(sizes_of_window, &padding), groups, format, epilogue }
            }
            (ConvolutionEpilogue::Float(epilogue), Some(added), _) => {
                let output_padding = pair(added);
                ConvolutionKind::Transposed {
                    window: window(sizes_of_window, &padding),
                    output_padding,
                    groups,
                    format,
                    epilogue,
                }
            }
            (ConvolutionEpilogue::Int8(epilogue), Some(added), _) => {
                let output_padding = pair(added);
                ConvolutionKind::Int8Transposed {
                    window: window(sizes_of_window, &padding),
                    output_padding,
                    groups,
                    epilogue,
                }
            }
            (ConvolutionEpilogue::Int8(epilogue), None, _) if depthwise => {
                ConvolutionKind::Int8Depthwise { window: window(sizes_of_window, &padding), epilogue }
            }
            (ConvolutionEpilogue::Int8(epilogue), None, _) if kernel.len() == 3 => {
                ConvolutionKind::Int8Direct3d { window: window(sizes_of_window, &padding), groups, epilogue }
            }
            (ConvolutionEpilogue::Int8(epilogue), None, _) => {
                ConvolutionKind::Int8Direct { window: window(sizes_of_window, &padding), groups, epilogue }
            }
        };
        let step = ConvolutionStep { x: self.plan.tensor(&x)?, w, y: self.plan.tensor(&image)?, kind };
        self.plan.step(self.label(&call), Step::Convolution(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Number, height and width of images for choosing an algorithm: where they are not known, one image of the maximum size.
    fn representative_size(&self, images: &View) -> Option<[usize; 3]> {
        let [images, _, height, width] = images.shape.as_slice() else { return None };
        let images = images.as_int().map_or(Some(1), |images| usize::try_from(images).ok())?;
        Some([images, self.plan.max_size(height).ok()?, self.plan.max_size(width).ok()?])
    }

    /// Lowers a GEMM with an optional bias.
    pub(super) fn gemm(&mut self, id: NodeId, gemm: &'a Gemm) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        match gemm.weights {
            GemmWeights::Int8(constant, Int8::Static) => {
                return self.int8_gemm(id, gemm, &self.model.constants[constant]);
            }
            GemmWeights::Int8(constant, Int8::Dynamic) => {
                return self.dynamic_gemm(id, gemm, &self.model.constants[constant], None);
            }
            GemmWeights::Int8(constant, Int8::DynamicGroupwise { is_four_bits }) => {
                return self.dynamic_gemm(id, gemm, &self.model.constants[constant], Some(is_four_bits));
            }
            GemmWeights::Computed(_) | GemmWeights::Float(_) | GemmWeights::WeightOnly(..) => {}
        }
        let a = self.dense(gemm.a)?;
        let (b, right) = match &gemm.weights {
            GemmWeights::Computed(b) => {
                let b = self.dense(*b)?;
                self.reserve_packing(&b.shape)?;
                (self.plan.tensor(&b)?, Right::Dense)
            }
            GemmWeights::WeightOnly(constant, weights) => {
                let b = self.weight_only(&self.model.constants[*constant].name, weights)?;
                (b, Right::WeightOnly(weights.format()))
            }
            GemmWeights::Float(constant) | GemmWeights::Int8(constant, _) => {
                let constant = &self.model.constants[*constant];
                let sizes = constant.sizes()?;
                let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
                let len = pack::matrix_f32_len(k, n).ok_or_else(|| error("weights beyond all memory"))?;
                let b = self.plan.weights(&constant.name, len, move |to| constants::matrix(constant, [k, n], to))?;
                (b, Right::Packed(self.plan.float_format()))
            }
        };
        if self.plan.is_rounded(b) {
            self.rounded.insert(id);
        }
        let epilogue = self.epilogue(id, gemm.bias, None)?;
        let kind = match right {
            Right::Dense => MatmulKind::Dense { transposed: false, epilogue },
            Right::Packed(format) => MatmulKind::Packed { format, epilogue },
            Right::WeightOnly(format) => MatmulKind::WeightOnly { format, epilogue },
        };
        let result = self.result_of_epilogue(id)?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let y = self.plan.dense(shape)?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let step = Matmul { a: self.plan.tensor(&a)?, b, y: self.plan.window(&y, &matrix)?, kind };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn batched(&mut self, call: &Call<'_>, gemm: BatchedGemm) -> Result<(), Error> {
        let (BatchedGemm { a, b }, result) = (gemm, call.result()?);
        let a = self.dense(a)?;
        // A transposed `b`, such as the keys of attention, is read in place.
        let transposed = self.constant_of(b).is_none() && self.view(b)?.is_in(&[0, 2, 1]);
        let b = if transposed { self.in_order(b, &[0, 2, 1])? } else { self.dense(b)? };
        self.reserve_packing(&b.shape)?;
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

    /// Reserves memory to pack a matrix that is computed.
    fn reserve_packing(&mut self, shape: &[Expr]) -> Result<(), Error> {
        let [.., k, n] = shape else { return Err(error("a matrix without two dimensions")) };
        let len = pack::matrix_f32_len(self.plan.max_size(k)?, self.plan.max_size(n)?);
        self.plan.scratch(len.ok_or_else(|| error("a matrix beyond all memory"))?);
        Ok(())
    }

    /// An int8 GEMM whose scales are known.
    fn int8_gemm(&mut self, id: NodeId, gemm: &Gemm, constant: &Constant) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let a = self.stored_dense(gemm.a)?;
        let sizes = constant.sizes()?;
        let [_, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
        let matrix = columns(constant)?;
        let sums = matrix.sums(self.threads)?;
        let columns = Int8Columns { weight: constant, count: n, sums: &sums };
        let (epilogue, to) = self.int8_epilogue(id, gemm.bias, None, &a, columns)?;
        let b = self.plan.matrix(&constant.name, Arc::new(PackedMatrix::int8(matrix)))?;
        let result = self.result_of_epilogue(id)?;
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

    /// Packs a matrix of integers that become floats where they are read.
    pub(super) fn weight_only(&mut self, name: &str, weights: &WeightOnly) -> Result<TensorId, Error> {
        self.plan.matrix(name, weights.packed.clone())
    }

    /// Packs the weights of an int8 convolution.
    fn int8_weights(&mut self, constant: &Constant, conv: &Conv3d, depthwise: bool) -> Result<TensorId, Error> {
        let too_large = || error("weights beyond all memory");
        let (integers, conv) = (Integers::of(constant)?, *conv);
        let name = &constant.name;
        if depthwise {
            let [_, kernel @ ..] = conv.kernel;
            let conv = Conv2d::new([1, 1, 1, conv.in_c], conv.out_c, kernel);
            let len = pack::depthwise2d_i8_len(&conv).ok_or_else(too_large)?;
            return self.plan.integers(name, len, move |to| {
                let get = integers.of_images();
                pack::depthwise2d_i8_into(to, &conv, |channel, h, w| get(channel, 0, h, w));
                Ok(())
            });
        }
        let len = pack::conv3d_i8_len(&conv).ok_or_else(too_large)?;
        self.plan.integers(name, len, move |to| {
            pack::conv3d_i8_into(to, &conv, integers.of_volumes());
            Ok(())
        })
    }

    /// Packs the weights of a transposed int8 convolution.
    fn int8_transposed_weights(&mut self, constant: &Constant, conv: &ConvTranspose2d) -> Result<TensorId, Error> {
        let (integers, conv) = (Integers::of(constant)?, *conv);
        let len = pack::conv_transpose2d_i8_len(&conv).ok_or_else(|| error("weights beyond all memory"))?;
        self.plan.integers(&constant.name, len, move |to| {
            pack::conv_transpose2d_i8_into(to, &conv, integers.of_images());
            Ok(())
        })
    }

    /// The result of the epilogue of a GEMM or a convolution.
    pub(super) fn result_of_epilogue(&self, id: NodeId) -> Result<ValueId, Error> {
        let epilogue = self.fusion.epilogues.get(&id);
        epilogue.map(|epilogue| epilogue.result).ok_or_else(|| error("a GEMM without its epilogue"))
    }

    /// The epilogue of a GEMM or a convolution of floats, whose result is stored in some order (row-major if `None`).
    fn epilogue(&mut self, id: NodeId, bias: Option<ValueId>, order: Option<&[usize]>) -> Result<Epilogue, Error> {
        let mut epilogue = Epilogue::default();
        if let Some(bias) = bias {
            let bias = self.dense(bias)?;
            epilogue.bias = Some(self.plan.tensor(&bias)?);
        }
        let nodes = self.fusion.epilogues.get(&id).ok_or_else(|| error("a GEMM without its epilogue"))?;
        epilogue.activation = nodes.activation;
        let place = if nodes.residual_last { Residual::AfterActivation } else { Residual::BeforeActivation };
        if let Some(residual) = nodes.residual {
            let residual = match order {
                Some(order) => self.in_order(residual, order)?,
                None => self.dense(residual)?,
            };
            epilogue.residual = Some(place(self.plan.tensor(&residual)?));
        }
        Ok(epilogue)
    }
}

/// The window of a convolution over `D` spatial dimensions.
fn window<const D: usize>([kernel, stride, dilation]: [&[u32]; 3], padding: &[[u32; 2]]) -> Window<D> {
    Window {
        kernel: std::array::from_fn(|axis| kernel[axis]),
        stride: std::array::from_fn(|axis| stride[axis]),
        padding: std::array::from_fn(|axis| padding[axis]),
        dilation: std::array::from_fn(|axis| dilation[axis]),
    }
}

/// The order of dimensions with channels innermost.
pub(super) fn channels_last(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).filter(|dim| *dim != 1).collect();
    order.push(1);
    order
}

/// The form of Winograd's algorithm by which a convolution of such images is faster, if it is.
fn winograd(
    images: Option<[usize; 3]>,
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
    let [images, height, width] = images?;
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

/// The geometry by which a transposed convolution's weights are packed; `None` if it is not one of images.
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

/// A tensor `[N, C, L]` as an image `[N, C, 1, L]`.
fn as_image(row: &View) -> View {
    let mut shape = row.shape.clone();
    shape.insert(2, Expr::Int(1));
    let view = View::ordered(row.buffer, shape, vec![0, 2, 3, 1]).with_affine(row.affine);
    View { offset: row.offset.clone(), ..view }
}
