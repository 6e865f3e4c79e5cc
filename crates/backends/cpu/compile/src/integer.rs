//! Products of bytes: which they are, and their weights.

use std::ops::RangeInclusive;

use rushlight_cpu_payload::{Affine, QuantizedFormat};
use rushlight_engine::pack::{self, QuantizedMatrix};
use rushlight_engine::{Conv2d, MAX_QUANT_K};
use rushlight_format::ScalarType;

use rushlight_graph::Bytes;
use rushlight_graph::Error;
use rushlight_graph::quantization::{self, ConvolutionShape, LayerShape, QuantizedConstant};
use rushlight_graph::{Constant, ConstantData, Def, Granularity, Graph, Model, NodeId, ValueId, row_major_strides};

use super::call::Call;
use super::constants;
use super::dynamic;
use super::error;
use super::lower::affine_of;

/// Most positions of a window: the driver points to all of them.
const MAX_TAPS: usize = 256;

/// Most phases of a transposed convolution: each has offsets of its own.
const MAX_PHASES: usize = 256;

/// Columns that a window may reach over.
const MAX_REACH: usize = 128;

/// A product that is computed on bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerProduct {
    /// Of numbers that are held as bytes, and of weights of 8 bits with their zero at 0, each output channel with a scale.
    Static,
    /// Of rows with scales that are chosen when they are seen, and such weights.
    Rows,
    /// Of such rows, and of weights of 4 or 8 bits with a scale for each group.
    Groups { is_four_bits: bool },
}

/// How a product is computed on bytes, if it can be.
pub(super) fn integer_product(graph: &Graph, model: &Model, node: NodeId) -> Option<IntegerProduct> {
    let call = Call::new(graph, node);
    let (input, weight) = factors(&call)?;
    let is_transposed = call.flag("transposed");
    let axis = u8::from(call.name() != "aten::convolution" || is_transposed);
    let Def::Constant(weight) = graph.values[weight].def else { return None };
    let constant = &model.constants[weight];
    let (quantized, sizes) = (constant.quantized()?, constant.sizes().ok()?);
    let geometry = if call.name() == "aten::convolution" {
        let taps = sizes.len().saturating_sub(2);
        let list = |name: &str| Some(call.sizes(name, taps)?.into_iter().map(|size| size as usize).collect());
        let groups = call.int("groups").and_then(|groups| usize::try_from(groups).ok()).unwrap_or(1);
        let window = ConvolutionShape { stride: list("stride")?, dilation: list("dilation")?, groups, is_transposed };
        LayerShape { sizes: &sizes, convolution: Some(window) }
    } else {
        // A matrix is `[K, N]` here.
        LayerShape { sizes: &[sizes.get(1).copied()?, sizes.first().copied()?], convolution: None }
    };
    let fits = has_kernel(&geometry);
    let is_matrix = call.name() != "aten::convolution";
    // Windows see many rows: what lies outside has one zero.
    let has_rows = dynamic::rounded_rows(graph, input).is_some_and(|chosen| is_matrix || chosen.is_shared);
    let groups = groups_of(constant).filter(|_| is_matrix && has_rows && fits);
    if let Some(Groups { is_four_bits: true, .. }) = groups {
        return Some(IntegerProduct::Groups { is_four_bits: true });
    }
    if !fits || !has_scale_of_columns(quantized, axis) {
        return groups.map(|_| IntegerProduct::Groups { is_four_bits: false });
    }
    if has_rows {
        return Some(IntegerProduct::Rows);
    }
    bytes_of(graph, input).map(|_| IntegerProduct::Static)
}

/// True if an int8 kernel supports weights of this shape.
pub fn has_kernel(layer: &LayerShape<'_>) -> bool {
    match (&layer.convolution, layer.sizes) {
        (Some(window), [inputs, _, taps @ ..]) if window.is_transposed => {
            let phases = window.stride.iter().fold(1usize, |product, step| product.saturating_mul(*step));
            fits_window(inputs / window.groups.max(1), taps) && phases <= MAX_PHASES
        }
        (Some(window), [_, channels, taps @ ..]) if (1..=2).contains(&taps.len()) => {
            let dilation = window.dilation.last().copied().unwrap_or(usize::MAX);
            let reach = taps.last().copied().unwrap_or(1).saturating_mul(dilation);
            fits_window(*channels, taps) && reach <= MAX_REACH
        }
        (None, [_, k]) => *k <= MAX_QUANT_K / 2,
        _ => false,
    }
}

/// Returns the bytes of the packed weights: as integers with two vectors of the outputs, and as floats.
pub fn packed_bytes(layer: &LayerShape<'_>) -> (usize, usize) {
    let (groups, inputs, outputs, taps) = match (&layer.convolution, layer.sizes) {
        (Some(window), [inputs, of_group, taps @ ..]) if window.is_transposed => {
            let groups = window.groups.max(1);
            (groups, inputs / groups, groups.saturating_mul(*of_group), taps)
        }
        (Some(window), [outputs, of_group, taps @ ..]) => (window.groups.max(1), *of_group, *outputs, taps),
        (_, [outputs, inputs, ..]) => (1, *inputs, *outputs, &[][..]),
        _ => return (0, 0),
    };
    let product = |factors: &[usize]| factors.iter().fold(1usize, |product, factor| product.saturating_mul(*factor));
    let (count, vectors) = (product(taps), outputs.saturating_mul(8));
    let is_transposed = layer.convolution.as_ref().is_some_and(|window| window.is_transposed);
    if groups > 1 && inputs == 1 && outputs == groups && !is_transposed {
        // Depthwise: rows of the kernel are packed four together; a kernel of one dimension has one row.
        let (height, width) = match taps {
            [height, width] => (*height, *width),
            _ => (1, count),
        };
        let integers = product(&[height.next_multiple_of(4), width, outputs.next_multiple_of(pack::PANEL)]);
        return (integers.saturating_add(vectors), product(&[4, count, outputs]));
    }
    if let (Some(window), false) = (&layer.convolution, is_transposed) {
        let line = |list: &[usize]| match *list {
            [height, width] => [height, width],
            [width] => [1, width],
            _ => [1, 1],
        };
        let image = [1, 1, 1, inputs.saturating_mul(groups)];
        let conv = Conv2d { groups, dilation: line(&window.dilation), ..Conv2d::new(image, outputs, line(taps)) };
        let packed = pack::conv2d_i8_len(&conv).zip(constants::convolution_len(layer.sizes, groups));
        return packed
            .map_or((0, 0), |(integers, floats)| (integers.saturating_add(vectors), floats.saturating_mul(4)));
    }
    let columns = product(&[groups, (outputs / groups).next_multiple_of(pack::PANEL), count]);
    let integers = columns.saturating_mul(inputs.next_multiple_of(4)).saturating_add(vectors);
    (integers, product(&[4, columns, inputs]))
}

/// Whether the driver takes windows over so many channels.
fn fits_window(channels: usize, taps: &[usize]) -> bool {
    let taps = taps.iter().fold(1usize, |product, size| product.saturating_mul(*size));
    taps <= MAX_TAPS && channels <= 4096 && (channels + 3).saturating_mul(taps) <= MAX_QUANT_K / 2
}

/// What a product multiplies: what comes, and its weights.
pub(super) fn factors(call: &Call<'_>) -> Option<(ValueId, ValueId)> {
    let (input, weight) = match call.name() {
        "aten::convolution" => ("input", "weight"),
        "aten::addmm" => ("mat1", "mat2"),
        "aten::mm" => ("self", "mat2"),
        _ => return None,
    };
    Some((call.optional(input)?, call.optional(weight)?))
}

/// Which weights of a matrix share a scale and a zero.
#[derive(Clone, Copy)]
struct Groups {
    /// Whether integers and zeros have four bits; they have eight otherwise.
    is_four_bits: bool,
    /// How many rows, a multiple of 32.
    rows: usize,
}

/// The groups of a matrix `[K, N]`; `None` if they are not of whole columns or of multiples of 32 of their rows.
fn groups_of(constant: &Constant) -> Option<Groups> {
    let quantized = constant.quantized()?;
    let quantization = quantized.quantization()?;
    let (sizes, (least, greatest)) = (constant.sizes().ok()?, quantization.range);
    let &[k, n] = sizes.as_slice() else { return None };
    let has_zeros_within = |range: RangeInclusive<i32>| quantization.zero_points.iter().all(|it| range.contains(it));
    let is_four_bits = least >= -8 && greatest <= 7 && has_zeros_within(-8..=7);
    let fits = is_four_bits || has_zeros_within(-128..=127);
    if !fits || quantized.integers.ty.dtype != ScalarType::Char || !k.is_multiple_of(pack::GROUP_SIZE) {
        return None;
    }
    let rows = match &quantization.granularity {
        Granularity::Block { shape } => match shape.as_slice() {
            [rows, 1] if *rows > 0 && (*rows as usize).is_multiple_of(pack::GROUP_SIZE) => *rows as usize,
            _ => return None,
        },
        Granularity::Channel { axis: 1 } => k,
        _ => return None,
    };
    let count = k.checked_div(rows).unwrap_or(0) * n;
    let is_whole = quantization.scales.len() >= count && quantization.zero_points.len() >= count;
    is_whole.then_some(Groups { is_four_bits, rows })
}

/// The scale and the zero of each group of 32 of K of a matrix `[K, N]`, as `[K / 32, N]`; `None` of one without groups.
pub(super) fn group_parameters(constant: &Constant) -> Option<Vec<(f32, i8)>> {
    let (Groups { rows, .. }, sizes) = (groups_of(constant)?, constant.sizes().ok()?);
    let (quantization, &[k, n]) = (constant.quantized()?.quantization()?, sizes.as_slice()) else { return None };
    // Longer groups are several with the same scale.
    let parameters = |at: usize| {
        let at = at / n * pack::GROUP_SIZE / rows * n + at % n;
        Some((*quantization.scales.get(at)?, i8::try_from(*quantization.zero_points.get(at)?).ok()?))
    };
    (0..k / pack::GROUP_SIZE * n).map(parameters).collect()
}

/// A matrix of 4 or 8 bits whose columns, or groups of rows of them, have scales, for products with floats.
pub(super) struct WeightsAlone {
    pub matrix: QuantizedMatrix,
    integers: Integers,
    /// What is taken from a byte to make it signed.
    shift: i16,
    /// `[groups, n]`
    parameters: Vec<(f32, i8)>,
}

impl WeightsAlone {
    /// Of a constant `[k, n]`; `None` of one that is none.
    pub fn of(constant: &Constant) -> Option<Self> {
        Self::of_matrix(constant, false)
    }

    /// Of a constant `[n, k]`, whose rows become columns; `None` of one that is none.
    pub fn of_rows(constant: &Constant) -> Option<Self> {
        Self::of_matrix(constant, true)
    }

    fn of_matrix(constant: &Constant, is_turned: bool) -> Option<Self> {
        let quantized = constant.quantized()?;
        let quantization = quantized.quantization()?;
        let (sizes, (least, greatest)) = (constant.sizes().ok()?, quantization.range);
        let (k, n) = match *sizes.as_slice() {
            [k, n] if !is_turned => (k, n),
            [n, k] => (k, n),
            _ => return None,
        };
        let (is_four_bits, shift) = match quantized.integers.ty.dtype {
            ScalarType::Char => (least >= -8 && greatest <= 7, 0),
            ScalarType::Byte if least >= 0 && greatest <= 15 => (true, 8),
            ScalarType::Byte => (false, 128),
            _ => return None,
        };
        let group = match &quantization.granularity {
            Granularity::Tensor => k,
            Granularity::Channel { axis } if *axis == u8::from(!is_turned) => k,
            Granularity::Channel { .. } => return None,
            Granularity::Block { shape } => match *shape.as_slice() {
                [group, 1] if !is_turned && group.is_multiple_of(2) => group as usize,
                [1, group] if is_turned && group.is_multiple_of(2) => group as usize,
                _ => return None,
            },
        };
        let bounds = if is_four_bits { -8..=7 } else { -128..=127 };
        let zero =
            |zero: i32| Some(zero - i32::from(shift)).filter(|zero| bounds.contains(zero)).map(|zero| zero as i8);
        let groups = k.div_ceil(group.max(1));
        let parameter = |at: usize| {
            let at = match (quantization.scales.len(), is_turned) {
                (1, _) => 0,
                (_, false) => at,
                (_, true) => at % n * groups + at / n,
            };
            Some((*quantization.scales.get(at)?, zero(*quantization.zero_points.get(at)?)?))
        };
        let parameters: Vec<(f32, i8)> = (0..groups * n).map(parameter).collect::<Option<_>>()?;
        let has_zeros = parameters.iter().any(|(_, zero)| *zero != 0);
        let matrix = QuantizedMatrix { k, n, is_four_bits, has_zeros, group };
        pack::quantized_len(&matrix)?;
        let mut integers = Integers::of(constant).ok()?;
        if is_turned {
            integers.strides.reverse();
        }
        Some(Self { matrix, integers, shift, parameters })
    }

    /// The layout as steps say it.
    pub fn format(&self) -> QuantizedFormat {
        let QuantizedMatrix { is_four_bits, has_zeros, group, .. } = self.matrix;
        // Groups of more rows than there are is as good as one of all of them.
        QuantizedFormat { is_four_bits, has_zeros, group: u32::try_from(group).unwrap_or(u32::MAX) }
    }

    /// Writes them as the engine reads them, in memory of [`pack::quantized_len`].
    pub fn pack(&self, to: &mut [u8]) {
        let entries = self.integers.entries();
        let integer = |k: usize, n: usize| {
            let byte = entries.get([k, n]);
            if self.shift == 0 { byte } else { (i16::from(byte.cast_unsigned()) - self.shift) as i8 }
        };
        let of = |group: usize, n: usize| self.parameters.get(group * self.matrix.n + n).copied().unwrap_or_default();
        pack::quantized(to, &self.matrix, integer, of);
    }
}

/// Whether weights are of 8 bits with their zero at 0, and have one scale or one for each index of an axis.
fn has_scale_of_columns(quantized: &QuantizedConstant, axis: u8) -> bool {
    let Some(quantization) = quantized.quantization() else { return false };
    let columns = match &quantization.granularity {
        Granularity::Tensor => true,
        Granularity::Channel { axis: own } => *own == axis,
        Granularity::Block { .. } => false,
    };
    columns && quantized.integers.ty.dtype == ScalarType::Char && quantization.zero_points.iter().all(|zero| *zero == 0)
}

/// What a value stands for that is held as bytes: one that was dequantized, and then at most picked from or seen in
/// another arrangement.
pub(super) fn bytes_of(graph: &Graph, value: ValueId) -> Option<Affine> {
    let mut value = value;
    loop {
        let Def::Result(node, 0) = graph.values[value].def else { return None };
        let call = Call::new(graph, node);
        match call.name() {
            name if quantization::is_dequantize(name) => return affine_of(&call),
            "aten::view_copy"
            | "aten::permute_copy"
            | "aten::unsqueeze_copy"
            | "aten::squeeze_copy.dims"
            | "aten::squeeze_copy.dim"
            | "aten::squeeze_copy"
            | "aten::clone"
            | "aten::alias_copy"
            | "aten::slice_copy.Tensor"
            | "aten::select_copy.int"
            | "aten::max_pool2d_with_indices" => value = call.optional("self")?,
            "aten::upsample_nearest2d.vec" => value = call.optional("input")?,
            _ => return None,
        }
    }
}

/// The integers of a weight, wherever they lie.
pub(super) struct Integers {
    bytes: Bytes,
    offset: usize,
    strides: Vec<usize>,
}

impl Integers {
    pub fn of(constant: &Constant) -> Result<Self, Error> {
        let integers =
            &constant.quantized().ok_or_else(|| error(format!("`{}` is not quantized", constant.name)))?.integers;
        let sizes = integers.sizes()?;
        Ok(match &integers.data {
            ConstantData::Strided { storage, offset, strides } => {
                Self { bytes: storage.clone(), offset: *offset, strides: strides.clone() }
            }
            _ => Self { bytes: integers.read()?, offset: 0, strides: row_major_strides(&sizes) },
        })
    }

    /// The sum of each index of the first dimension, whose elements are `each`.
    pub fn sums(&self, sizes: &[usize], each: usize) -> Vec<i64> {
        let strides = row_major_strides(sizes);
        let (count, step) = (sizes.first().copied().unwrap_or(0), self.strides.first().copied().unwrap_or(0));
        let inner = self.strides.get(1..) == strides.get(1..);
        let bytes: &[u8] = &self.bytes;
        let sum = |first: usize| {
            let start = self.offset + first * step;
            if let Some(bytes) = bytes.get(start..start + each).filter(|_| inner) {
                return bytes.iter().map(|byte| i64::from(byte.cast_signed())).sum();
            }
            let place = |at: usize| -> usize {
                let dims = sizes.iter().zip(&strides).zip(&self.strides).skip(1);
                dims.map(|((size, stride), own)| at / stride % size * own).sum()
            };
            (0..each).map(|at| bytes.get(start + place(at)).map_or(0, |byte| i64::from(byte.cast_signed()))).sum()
        };
        (0..count).map(sum).collect()
    }

    /// Those of a convolution's weights by four indices; lines have no height, so that an index in it costs nothing.
    pub fn of_pictures(&self) -> impl Fn(usize, usize, usize, usize) -> i8 {
        let mut entries = self.entries();
        if self.strides.len() == 3 {
            entries.strides.swap(2, 3);
        }
        move |a, b, h, w| entries.get([a, b, h, w])
    }

    /// All of them, to be read one by one: where the bytes lie is asked for once.
    pub fn entries<const D: usize>(&self) -> Entries<'_, D> {
        let strides = std::array::from_fn(|dim| self.strides.get(dim).copied().unwrap_or(0));
        Entries { bytes: self.bytes.get(self.offset..).unwrap_or_default(), strides }
    }
}

/// The integers of a weight of `D` dimensions.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a, const D: usize> {
    bytes: &'a [u8],
    strides: [usize; D],
}

impl<const D: usize> Entries<'_, D> {
    /// The integer at some indices; 0 beyond the end.
    #[inline]
    pub fn get(&self, indices: [usize; D]) -> i8 {
        let at = indices.iter().zip(&self.strides).fold(0, |at, (index, stride)| at + index * stride);
        self.bytes.get(at).map_or(0, |byte| byte.cast_signed())
    }
}

/// The scale of each of so many columns; groups of columns may have the same.
pub(super) fn scales(constant: &Constant, columns: usize) -> Result<Vec<f32>, Error> {
    let scales = constant.quantized().and_then(|quantized| quantized.quantization()).map(|it| it.scales.as_slice());
    match scales {
        Some(scales) if !scales.is_empty() && columns.is_multiple_of(scales.len()) => {
            Ok(scales.iter().copied().cycle().take(columns).collect())
        }
        _ => Err(error(format!("`{}` has no scale for each column", constant.name))),
    }
}
