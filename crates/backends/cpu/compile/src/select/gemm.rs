//! GEMM, convolutions and embeddings, and the form of their weights.

use rushlight_engine::pack::PANEL;
use rushlight_graph::operators::aten;
use rushlight_graph::quantization::{ConvolutionShape, LayerShape};
use rushlight_graph::{Call, Constant, ConstantId, Expr, ValueId};

use crate::weights::int8::has_kernel;
use crate::weights::quantized_weights::{WeightOnly, has_scale_of_columns, is_groupwise_four_bits};

use super::positions::bound_of;
use super::{Context, Reason};

/// A GEMM or a convolution that multiplies `u8` by `i8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int8 {
    /// The scales of both sides are known; each output channel has one.
    Static,
    /// The scales of the left side are chosen at run time; weights are as in `Static`.
    Dynamic,
    /// The left side is as in `Dynamic`; weights of 4 or 8 bits have a scale for each group of K.
    DynamicGroupwise { is_four_bits: bool },
}

/// The right side of a GEMM.
#[derive(Debug)]
pub(crate) enum GemmWeights {
    /// A matrix that another node computes.
    Computed(ValueId),
    /// A constant that is packed as floats.
    Float(ConstantId),
    /// Quantized weights that become floats where they are multiplied.
    WeightOnly(ConstantId, WeightOnly),
    Int8(ConstantId, Int8),
}

/// `a @ b`, with a bias for each column.
#[derive(Debug)]
pub(crate) struct Gemm {
    pub a: ValueId,
    pub weights: GemmWeights,
    /// A constant vector.
    pub bias: Option<ValueId>,
}

/// A GEMM of rows with the columns of the experts that they have chosen.
#[derive(Debug)]
pub(crate) struct Experts {
    /// Its weights have the columns of all, as many for each.
    pub gemm: Gemm,
    /// Positions: the expert of each row.
    pub index: ValueId,
    pub count: u32,
}

/// A GEMM for each index of the outermost dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchedGemm {
    pub a: ValueId,
    pub b: ValueId,
}

/// A convolution of one, two or three spatial dimensions, whose weights and bias are constants.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub input: ValueId,
    pub weight: ConstantId,
    pub bias: Option<ValueId>,
    /// The number of input channels.
    pub channels: i64,
    pub groups: u32,
    pub stride: Vec<u32>,
    pub padding: Vec<u32>,
    pub dilation: Vec<u32>,
    /// The output padding of a transposed convolution.
    pub output_padding: Option<Vec<u32>>,
    pub int8: Option<Int8>,
}

/// Rows of a constant table.
#[derive(Debug)]
pub(crate) struct Embedding {
    pub table: ConstantId,
    pub indices: ValueId,
    /// The table's integers, where rows are dequantized as they are read. It is stored as floats otherwise.
    pub quantized: Option<WeightOnly>,
}

pub(super) fn convolution(cx: &Context<'_>, call: &Call<'_>) -> Result<Convolution, Reason> {
    let computed = ["weight", "bias"].into_iter().find(|param| !is_constant(call, param));
    if let Some(param) = computed {
        return Err(Reason::ComputedParameter { op: call.name().into(), param });
    }
    let rank = call.value("input").and_then(|value| call.shape(value)).map_or(0, <[_]>::len);
    let selected = convolution_of(cx, call);
    selected.ok_or_else(|| Reason::Rank { op: call.name().into(), rank })
}

fn convolution_of(cx: &Context<'_>, call: &Call<'_>) -> Option<Convolution> {
    let input = call.optional("input")?;
    let weight = call.graph.constant_of(call.optional("weight")?)?;
    let shape = call.shape(input).ok()?;
    let is_transposed = call.flag("transposed");
    let fits = (3..=4).contains(&shape.len()) || (shape.len() == 5 && !is_transposed);
    let rank = shape.len().checked_sub(2).filter(|_| fits)?;
    let groups = call.int("groups").and_then(|groups| u32::try_from(groups).ok()).unwrap_or(1);
    let list = |name: &str| call.sizes(name, rank);
    let mut convolution = Convolution {
        input,
        weight,
        bias: call.optional("bias"),
        channels: shape.get(1).and_then(Expr::as_int)?,
        groups,
        stride: list("stride")?,
        padding: list("padding")?,
        dilation: list("dilation")?,
        output_padding: if is_transposed { Some(list("output_padding")?) } else { None },
        int8: None,
    };
    convolution.int8 = int8_convolution(cx, &convolution);
    Some(convolution)
}

/// The way in which a convolution multiplies integers, if it can.
fn int8_convolution(cx: &Context<'_>, convolution: &Convolution) -> Option<Int8> {
    let constant = &cx.model.constants[convolution.weight];
    let (quantized, sizes) = (constant.quantized()?, constant.sizes().ok()?);
    let usizes = |list: &[u32]| list.iter().map(|size| *size as usize).collect();
    let is_transposed = convolution.output_padding.is_some();
    let window = ConvolutionShape {
        stride: usizes(&convolution.stride),
        dilation: usizes(&convolution.dilation),
        groups: convolution.groups as usize,
        is_transposed,
    };
    let layer = LayerShape { sizes: &sizes, convolution: Some(window) };
    if !has_kernel(&layer) || !has_scale_of_columns(quantized, u8::from(is_transposed)) {
        return None;
    }
    // Padding lies beside rows of all of an image, and has one zero.
    if cx.dynamic.get(&convolution.input).is_some_and(|parameters| parameters.is_shared) {
        return Some(Int8::Dynamic);
    }
    cx.quantized(convolution.input).map(|_| Int8::Static)
}

/// A matrix product, and with `addmm` its bias.
pub(super) fn gemm(cx: &Context<'_>, call: &Call<'_>) -> Option<Gemm> {
    let (a, bias) = match call.name() {
        aten::ADDMM => {
            has_bias(call, |weights| call.is_constant(weights)).then_some(())?;
            (call.optional("mat1")?, call.optional("self"))
        }
        _ => (call.optional("self")?, None),
    };
    Some(Gemm { a, weights: right_side(cx, call, a)?, bias })
}

fn right_side(cx: &Context<'_>, call: &Call<'_>, a: ValueId) -> Option<GemmWeights> {
    let b = call.optional("mat2")?;
    Some(match call.graph.constant_of(b) {
        None => GemmWeights::Computed(b),
        Some(id) => {
            let constant = &cx.model.constants[id];
            match int8_gemm(cx, a, constant) {
                Some(int8) => GemmWeights::Int8(id, int8),
                None => WeightOnly::of(constant)
                    .map_or(GemmWeights::Float(id), |weights| GemmWeights::WeightOnly(id, weights)),
            }
        }
    })
}

/// A GEMM of experts, whose weights are constants and whose columns are whole panels.
pub(super) fn experts(cx: &Context<'_>, call: &Call<'_>) -> Result<Experts, Reason> {
    let arguments = || Reason::Arguments { op: call.name().into() };
    let columns =
        call.result().ok().and_then(|result| call.shape(result).ok()?.last()?.as_int()).ok_or_else(arguments)?;
    if !usize::try_from(columns).is_ok_and(|columns| columns.is_multiple_of(PANEL)) {
        return Err(Reason::Experts { columns });
    }
    experts_of(cx, call).ok_or_else(arguments)
}

fn experts_of(cx: &Context<'_>, call: &Call<'_>) -> Option<Experts> {
    let (a, index) = (call.optional("input")?, call.optional("experts")?);
    bound_of(cx, index)?;
    let weights = match right_side(cx, call, a)? {
        GemmWeights::Computed(_) => return None,
        // Rows become floats: there is no product of experts whose scales are known.
        GemmWeights::Int8(id, Int8::Static) => GemmWeights::Float(id),
        weights => weights,
    };
    let count = call.int("count").and_then(|count| u32::try_from(count).ok())?;
    Some(Experts { gemm: Gemm { a, weights, bias: None }, index, count })
}

/// The way in which a GEMM with weights `[K, N]` multiplies integers, if it can.
fn int8_gemm(cx: &Context<'_>, a: ValueId, constant: &Constant) -> Option<Int8> {
    let (quantized, sizes) = (constant.quantized()?, constant.sizes().ok()?);
    let [k, n] = *sizes.as_slice() else { return None };
    let fits = has_kernel(&LayerShape { sizes: &[n, k], convolution: None });
    let is_dynamic = cx.dynamic.contains_key(&a);
    let four_bits = is_groupwise_four_bits(constant).filter(|_| is_dynamic && fits);
    if four_bits == Some(true) {
        return Some(Int8::DynamicGroupwise { is_four_bits: true });
    }
    if !fits || !has_scale_of_columns(quantized, 1) {
        return four_bits.map(|is_four_bits| Int8::DynamicGroupwise { is_four_bits });
    }
    if is_dynamic {
        return Some(Int8::Dynamic);
    }
    cx.quantized(a).map(|_| Int8::Static)
}

pub(super) fn batched(call: &Call<'_>) -> Option<BatchedGemm> {
    Some(BatchedGemm { a: call.optional("self")?, b: call.optional("mat2")? })
}

pub(super) fn embedding(cx: &Context<'_>, call: &Call<'_>) -> Result<Embedding, Reason> {
    if !is_constant(call, "weight") {
        return Err(Reason::ComputedParameter { op: call.name().into(), param: "weight" });
    }
    let selected = || {
        let table = call.graph.constant_of(call.optional("weight")?)?;
        let constant = &cx.model.constants[table];
        let indices = call.optional("indices").filter(|_| constant.ty.rank() == 2)?;
        Some(Embedding { table, indices, quantized: WeightOnly::of_rows(constant) })
    };
    selected().ok_or_else(|| Reason::Arguments { op: call.name().into() })
}

/// True if a parameter is a constant, or absent.
fn is_constant(call: &Call<'_>, param: &str) -> bool {
    call.optional(param).is_none_or(|value| call.is_constant(value))
}

/// True if an `addmm` is a GEMM with a constant bias, and with weights that `is_known` says are constant, neither of them scaled.
pub(crate) fn has_bias(call: &Call<'_>, is_known: impl Fn(ValueId) -> bool) -> bool {
    let is_constant = call.optional("self").is_some_and(|value| call.is_constant(value));
    let is_vector = call.value("self").and_then(|value| call.shape(value)).is_ok_and(|shape| shape.len() == 1);
    let one = |param: &str| call.arg(param).is_none() || call.number(param) == Some(1.0);
    call.optional("mat2").is_some_and(is_known) && is_constant && is_vector && one("alpha") && one("beta")
}
