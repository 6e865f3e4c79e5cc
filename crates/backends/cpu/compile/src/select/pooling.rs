//! Pooling, reductions and resizing.

use rushlight_cpu_payload::{AveragePool, PoolKind, Reduction as ReductionOp, ResizeMode};
use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Call, Expr, ValueId};

use super::Selection;

/// Pooling over windows of `N` dimensions: height and width of images, or depth, height and width of volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling<const N: usize> {
    pub input: ValueId,
    pub kind: PoolKind,
    pub kernel: [u32; N],
    pub stride: [u32; N],
    pub padding: [u32; N],
    pub dilation: [u32; N],
}

impl<const N: usize> Pooling<N> {
    pub const fn is_max(&self) -> bool {
        matches!(self.kind, PoolKind::Max)
    }
}

/// A reduction of some dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    pub input: ValueId,
    pub function: ReductionOp,
    pub dims: Vec<usize>,
    /// True if the dimensions stay, with one element.
    pub keep: bool,
}

/// Images in another size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resize {
    pub input: ValueId,
    pub mode: ResizeMode,
    pub align_corners: bool,
    /// The factors of height and width, each if it is given.
    pub scales: [Option<f32>; 2],
}

impl Resize {
    pub const fn is_nearest(&self) -> bool {
        matches!(self.mode, ResizeMode::Nearest)
    }
}

fn rank(call: &Call<'_>, name: &str) -> usize {
    call.value(name).and_then(|value| call.shape(value)).map_or(0, <[_]>::len)
}

/// The kind of a pooling; `None` for a divisor that is not known now or is not positive.
fn kind(call: &Call<'_>) -> Option<PoolKind> {
    let divisor_override = match call.arg("divisor_override") {
        Some(_) => Some(u32::try_from(call.int("divisor_override")?).ok().filter(|divisor| *divisor > 0)?),
        None => None,
    };
    let average = AveragePool { count_include_pad: call.flag("count_include_pad"), divisor_override };
    let is_average = matches!(call.name(), aten::AVG_POOL2D | aten::AVG_POOL3D);
    Some(if is_average { PoolKind::Average(average) } else { PoolKind::Max })
}

/// Max and average pooling of images (`N` of 2) or volumes (3).
pub(super) fn pooling<const N: usize>(call: &Call<'_>) -> Option<Pooling<N>> {
    let sizes = |name: &str| -> Option<[u32; N]> { call.sizes(name, N)?.try_into().ok() };
    let input = call.optional("self").filter(|_| rank(call, "self") == N + 2)?;
    let kernel = sizes("kernel_size")?;
    Some(Pooling {
        input,
        kind: kind(call)?,
        kernel,
        stride: sizes("stride").unwrap_or(kernel),
        padding: sizes("padding").unwrap_or([0; N]),
        dilation: sizes("dilation").unwrap_or([1; N]),
    })
}

/// Average pooling to any size: a reduction if that is one element, and otherwise pooling of images, where all windows have the
/// same size.
pub(super) fn adaptive(call: &Call<'_>) -> Option<Selection> {
    let input = call.optional("self")?;
    let (shape, sizes) = (call.shape(input).ok()?, call.ints("output_size")?);
    let has_elements = |size: &Expr| size.as_int().is_some_and(|size| size > 0);
    let spatial = shape.len().checked_sub(sizes.len()).filter(|first| *first > 0)?;
    if sizes.iter().all(|size| *size == 1) && shape[spatial..].iter().all(has_elements) {
        let dims = (spatial..shape.len()).collect();
        return Some(Selection::Reduction(Reduction { input, function: ReductionOp::Mean, dims, keep: true }));
    }
    let ([_, _, height, width], [out_h, out_w]) = (shape, sizes.as_slice()) else { return None };
    let window = |size: &Expr, out: i64| {
        let size = size.as_int().filter(|size| *size > 0)?;
        (out > 0 && size % out == 0).then(|| u32::try_from(size / out).ok()).flatten()
    };
    let kernel = [window(height, *out_h)?, window(width, *out_w)?];
    Some(Selection::Pooling(Pooling {
        input,
        kind: PoolKind::Average(AveragePool { count_include_pad: false, divisor_override: None }),
        kernel,
        stride: kernel,
        padding: [0; 2],
        dilation: [1; 2],
    }))
}

/// A reduction; `None` for any other operator.
pub(super) fn reduction(call: &Call<'_>) -> Option<Reduction> {
    let truth = match call.name() {
        aten::ANY | aten::ANY_DIM | aten::ANY_DIMS => Some(ReductionOp::Max),
        aten::ALL | aten::ALL_DIM | aten::ALL_DIMS => Some(ReductionOp::Min),
        _ => None,
    };
    let function = match call.name() {
        aten::MEAN_DIM | aten::MEAN => ReductionOp::Mean,
        aten::SUM_DIM_INTLIST | aten::SUM => ReductionOp::Sum,
        aten::AMAX => ReductionOp::Max,
        aten::AMIN => ReductionOp::Min,
        _ => truth?,
    };
    let input = call.optional("self")?;
    let ty = call.graph.tensor(input).ok()?;
    let is_truth = |value: ValueId| call.graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Bool);
    if truth.is_some() {
        // Of nothing, the largest truth value is not that of `any`.
        let has_elements = |size: &Expr| size.range(&call.graph.symbols).0.is_some_and(|least| least > 0);
        if !is_truth(input) || !ty.shape.iter().all(has_elements) {
            return None;
        }
    } else if call.arg("dtype").is_some() || is_truth(call.result().ok()?) {
        return None;
    }
    let rank = ty.rank();
    let dims = reduced_dims(call, rank)?;
    (rank > 0 && !dims.is_empty()).then(|| Reduction { input, function, dims, keep: call.flag("keepdim") })
}

/// The dimensions that a reduction of a tensor reduces; `None` if they are not known now.
///
/// `any` and `all` over an empty list reduce none, unlike all other reductions, for which it stands for all.
fn reduced_dims(call: &Call<'_>, rank: usize) -> Option<Vec<usize>> {
    if call.arg("dim").is_none() {
        return Some((0..rank).collect());
    }
    let given = match call.int("dim") {
        Some(dim) => vec![dim],
        None => call.ints("dim")?,
    };
    if given.is_empty() && !matches!(call.name(), aten::ANY_DIMS | aten::ALL_DIMS) {
        return Some((0..rank).collect());
    }
    given.into_iter().map(|index| wrap_dim(index, rank)).collect()
}

/// A resizing of images.
pub(super) fn resize(call: &Call<'_>) -> Option<Resize> {
    let is_bilinear = call.name() == aten::UPSAMPLE_BILINEAR2D_VEC;
    Some(Resize {
        input: call.optional("input").filter(|_| rank(call, "input") == 4)?,
        mode: if is_bilinear { ResizeMode::Bilinear } else { ResizeMode::Nearest },
        align_corners: call.flag("align_corners"),
        scales: scale_factors(call)?,
    })
}

/// The factors of a resizing, each if it is given; `None` if they are not known now.
fn scale_factors(call: &Call<'_>) -> Option<[Option<f32>; 2]> {
    let Some(arg) = call.arg("scale_factors") else { return Some([None; 2]) };
    let Arg::List(factors) = arg else { return None };
    let number = |arg: &Arg| match arg {
        Arg::Float(float) => with_same_inverse(*float),
        Arg::Int(int) => int.as_int().and_then(|int| with_same_inverse(int as f64)),
        _ => None,
    };
    let factors: Vec<f32> = factors.iter().map(number).collect::<Option<_>>()?;
    factors.first_chunk::<2>().map(|factors| factors.map(Some))
}

/// The f32 whose inverse is, as f32, that of a factor: what the engine multiplies positions by; `None` if there is none.
fn with_same_inverse(factor: f64) -> Option<f32> {
    let (wanted, near) = ((1.0 / factor) as f32, factor as f32);
    [near, near.next_up(), near.next_down()].into_iter().find(|near| (1.0 / f64::from(*near)) as f32 == wanted)
}
