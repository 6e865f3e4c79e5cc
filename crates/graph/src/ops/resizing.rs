//! Resizing of images.
//!
//! Kernels take the nearest pixel or interpolate linearly along height and width. Signals are images of height 1, and
//! volumes are resized by two images, one after the other. Wider filters are a GEMM with a constant matrix along each
//! dimension.

use crate::Error;
use crate::operators::aten;
use rushlight_format::ScalarType;

use crate::{Arg, Builder, Constant, Expr, Graph, Symbols, TensorType, Type, ValueId};

use super::views::{squeeze, transpose_last, unsqueeze};
use super::{Definition, Lowered, Operands, composite, kernel, number_bytes, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::UPSAMPLE_NEAREST2D_VEC, resized),
    kernel(aten::UPSAMPLE_BILINEAR2D_VEC, resized),
    kernel(aten::_UPSAMPLE_BILINEAR2D_AA, resized),
    composite(aten::UPSAMPLE_NEAREST1D, resized, pixels),
    composite(aten::UPSAMPLE_NEAREST1D_VEC, resized, pixels),
    composite(aten::UPSAMPLE_NEAREST2D, resized, pixels),
    composite(aten::UPSAMPLE_NEAREST3D, resized, pixels),
    composite(aten::UPSAMPLE_NEAREST3D_VEC, resized, pixels),
    composite(aten::UPSAMPLE_LINEAR1D, resized, pixels),
    composite(aten::UPSAMPLE_LINEAR1D_VEC, resized, pixels),
    composite(aten::UPSAMPLE_BILINEAR2D, resized, pixels),
    composite(aten::UPSAMPLE_TRILINEAR3D, resized, pixels),
    composite(aten::UPSAMPLE_TRILINEAR3D_VEC, resized, pixels),
    composite(aten::_UPSAMPLE_NEAREST_EXACT1D, resized, nearest_exact),
    composite(aten::_UPSAMPLE_NEAREST_EXACT1D_VEC, resized, nearest_exact),
    composite(aten::_UPSAMPLE_NEAREST_EXACT2D, resized, nearest_exact),
    composite(aten::_UPSAMPLE_NEAREST_EXACT2D_VEC, resized, nearest_exact),
    composite(aten::_UPSAMPLE_NEAREST_EXACT3D, resized, nearest_exact),
    composite(aten::_UPSAMPLE_NEAREST_EXACT3D_VEC, resized, nearest_exact),
    composite(aten::UPSAMPLE_BICUBIC2D, resized, filtered),
    composite(aten::UPSAMPLE_BICUBIC2D_VEC, resized, filtered),
    composite(aten::_UPSAMPLE_BICUBIC2D_AA, resized, filtered),
    composite(aten::_UPSAMPLE_BICUBIC2D_AA_VEC, resized, filtered),
    composite(aten::_UPSAMPLE_LANCZOS2D_AA, resized, filtered),
    composite(aten::_UPSAMPLE_LANCZOS2D_AA_VEC, resized, filtered),
    composite(aten::_UPSAMPLE_BILINEAR2D_AA_VEC, resized, antialiased),
];

/// Maximum number of weights of a filter along one dimension: those of 8192 pixels from 8192.
const MAX_WEIGHTS: i64 = 1 << 26;

/// The target size of each spatial dimension, and its scale factor if one is given.
struct TargetSizes {
    from: Vec<Expr>,
    sizes: Vec<Expr>,
    scales: Vec<Option<f64>>,
    /// The sizes that follow from the factors.
    scaled: Vec<Option<Expr>>,
    align_corners: bool,
}

impl TargetSizes {
    fn read(operands: &Operands<'_>, tensor: &TensorType, symbols: &Symbols) -> Result<Self, Error> {
        let dims = tensor.rank().saturating_sub(2);
        let from = tensor.shape.get(2..).unwrap_or_default().to_vec();
        let at = |name: &str| operands.schema.position(name);
        let corners = at("align_corners").map(|index| operands.bool(index)).transpose()?;
        let scales = match at("scale_factors") {
            Some(index) => match operands.arg(index) {
                Arg::List(items) => items.iter().map(number).collect(),
                _ => vec![None; dims],
            },
            None if dims == 1 => vec![at("scales").and_then(|index| number(operands.arg(index)))],
            None => {
                let names = ["scales_d", "scales_h", "scales_w"];
                let names = names.get(3usize.saturating_sub(dims)..).unwrap_or_default();
                names.iter().map(|name| at(name).and_then(|index| number(operands.arg(index)))).collect()
            }
        };
        let wrong = || operands.wrong(1, &format!("{dims} sizes or factors"));
        let scaled = from.iter().zip(&scales).map(|(size, scale)| scaled_size(size, (*scale)?, symbols));
        let scaled: Vec<Option<Expr>> = scaled.collect();
        let sizes = if operands.has(1) {
            operands.exprs(1)?
        } else {
            scaled.iter().cloned().collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        };
        if !(1..=3).contains(&dims) || sizes.len() != dims || scales.len() != dims {
            return Err(wrong());
        }
        Ok(Self { from, sizes, scales, scaled, align_corners: corners.unwrap_or(false) })
    }

    /// True if no size depends on an input.
    fn is_known(&self) -> bool {
        self.from.iter().chain(&self.sizes).all(Expr::is_static)
    }

    /// Input size, output size and their ratio (input pixels per output pixel) of each dimension.
    fn known(&self, operands: &Operands<'_>) -> Result<Vec<(usize, usize, f64)>, Error> {
        let size = |size: &Expr| size.as_int().and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
        let axes = self.from.iter().zip(&self.sizes).zip(&self.scales).map(|((from, to), scale)| {
            let (from, to) = (size(from)?, size(to)?);
            let weights = i64::try_from(from.checked_mul(to)?).ok()?;
            (weights <= MAX_WEIGHTS).then_some(())?;
            let ratio = match scale {
                _ if self.align_corners && to > 1 => (from - 1) as f64 / (to - 1) as f64,
                _ if self.align_corners => 0.0,
                Some(scale) if *scale > 0.0 => 1.0 / scale,
                _ => from as f64 / to as f64,
            };
            Some((from, to, ratio))
        });
        let axes = axes.collect::<Option<Vec<_>>>();
        axes.ok_or_else(|| operands.wrong(0, "spatial sizes whose weights fit in memory"))
    }

    /// The arguments `output_size` and `scale_factors` for some dimensions: the factors if all are given, else the
    /// sizes.
    ///
    /// # Errors
    /// `Unsupported` for a factor that results in another size: no kernel supports both.
    fn args(&self, dims: &[usize]) -> Result<(Arg, Arg), Error> {
        let scales: Option<Vec<Arg>> =
            dims.iter().map(|dim| self.scales.get(*dim).copied().flatten().map(Arg::Float)).collect();
        let fits = |dim: &usize| {
            let (scaled, to) = (self.scaled.get(*dim).and_then(Option::as_ref), self.sizes.get(*dim));
            scaled == to
        };
        match scales {
            Some(scales) if dims.iter().all(fits) => Ok((Arg::None, Arg::List(scales))),
            _ => {
                if let Some(dim) = dims.iter().find(|dim| !self.follows_from_sizes(**dim)) {
                    let is_known = |sizes: &[Expr]| sizes.get(*dim).is_some_and(Expr::is_static);
                    let reason = if is_known(&self.from) && is_known(&self.sizes) {
                        "does not give its size"
                    } else {
                        "need not give its size, which depends on an input"
                    };
                    let text = format!("a resize of dimension {} by a factor that {reason}", dim + 2);
                    return Err(Error::unsupported(text)
                        .help("give the size alone, or the factor alone, as `torch.nn.functional.interpolate` does"));
                }
                let sizes: Vec<Expr> = dims.iter().filter_map(|dim| self.sizes.get(*dim).cloned()).collect();
                Ok((sizes.into(), Arg::None))
            }
        }
    }
}

impl TargetSizes {
    /// True if the ratio of a dimension's sizes is 1 or 2, but its factor is another number. The kernel would use the
    /// ratio.
    fn is_taken_for_whole(&self, dim: usize) -> bool {
        let (Some(from), Some(to)) = (self.from.get(dim), self.sizes.get(dim)) else { return false };
        let is_whole = |whole: i64| {
            *to == from.mul(whole) && !self.scales.get(dim).is_some_and(|scale| *scale == Some(whole as f64))
        };
        let is_given = self.scales.get(dim).copied().flatten().is_some_and(|scale| scale > 0.0);
        is_given && (is_whole(1) || is_whole(2))
    }

    /// True if a dimension's factor makes no difference, because its sizes give the same positions.
    fn follows_from_sizes(&self, dim: usize) -> bool {
        let Some(scale) = self.scales.get(dim).copied().flatten().filter(|scale| *scale > 0.0) else { return true };
        let (Some(from), Some(to)) = (self.from.get(dim), self.sizes.get(dim)) else { return true };
        let is_by_size = |(from, to): (i64, i64)| (1.0 / scale) as f32 == from as f32 / to as f32;
        self.align_corners || from == to || from.as_int().zip(to.as_int()).is_some_and(is_by_size)
    }
}

fn number(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Float(value) => Some(*value),
        Arg::Int(Expr::Int(value)) => Some(*value as f64),
        _ => None,
    }
}

/// A size times a factor, rounded down.
fn scaled_size(size: &Expr, scale: f64, symbols: &Symbols) -> Option<Expr> {
    if let Some(size) = size.as_int() {
        return Some(Expr::Int((size as f64 * scale) as i64));
    }
    let exact = (1..=64).find_map(|divisor| {
        let times = scale * f64::from(divisor);
        (times.fract() == 0.0).then(|| size.mul(times as i64).floor_div(i64::from(divisor)))
    });
    exact.or_else(|| size.fitted(symbols, false, |size| Some((size as f64 * scale) as i64)))
}

fn resized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let target = TargetSizes::read(operands, tensor, &graph.symbols)?;
    let lead = tensor.shape.get(..2).unwrap_or_default();
    Ok(result(tensor.dtype, [lead, &target.sizes].concat()))
}

/// Lowers nearest and linear resizing: one or two resizings of images.
fn pixels(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let target = TargetSizes::read(operands, &tensor, &b.graph.symbols)?;
    let linear = operands.schema.name.contains("linear");
    // The kernel uses the sizes first, as PyTorch does for images. For signals and volumes, PyTorch uses the factor.
    if !linear && tensor.rank() != 4 && (0..target.from.len()).any(|dim| target.is_taken_for_whole(dim)) {
        return Ok(Some(vec![by_index(b, operands, &target, 0.0)?]));
    }
    Ok(Some(vec![resize_pixels(b, operands.value(0)?, &tensor, &target, linear)?]))
}

fn resize_pixels(
    b: &mut Builder<'_>,
    value: ValueId,
    tensor: &TensorType,
    target: &TargetSizes,
    linear: bool,
) -> Result<ValueId, Error> {
    let resize_image = |b: &mut Builder<'_>, value: ValueId, (sizes, scales): (Arg, Arg)| {
        if linear {
            let corners = target.align_corners.into();
            b.one(aten::UPSAMPLE_BILINEAR2D_VEC, vec![value.into(), sizes, corners, scales])
        } else {
            b.one(aten::UPSAMPLE_NEAREST2D_VEC, vec![value.into(), sizes, scales])
        }
    };
    match (tensor.shape.as_slice(), target.sizes.as_slice()) {
        ([_, _, _], _) => {
            let value = unsqueeze(b, value, 2)?;
            let args = match target.args(&[0])? {
                (Arg::List(sizes), none) => (Arg::List([vec![Arg::from(1)], sizes].concat()), none),
                (none, Arg::List(scales)) => (none, Arg::List([vec![Arg::Float(1.0)], scales].concat())),
                other => other,
            };
            let resized = resize_image(b, value, args)?;
            squeeze(b, resized, 2)
        }
        ([batch, channels, depth, height, width], [new_depth, new_height, new_width]) => {
            let planes = vec![batch.clone(), channels.mul(depth.clone()), height.clone(), width.clone()];
            let value = b.view(value, planes)?;
            let flat = resize_image(b, value, target.args(&[1, 2])?)?;
            let plane = new_height.mul(new_width.clone());
            let columns = b.view(flat, vec![batch.clone(), channels.clone(), depth.clone(), plane.clone()])?;
            let args = match target.args(&[0])? {
                (Arg::List(sizes), none) => (Arg::List([sizes, vec![plane.into()]].concat()), none),
                (none, Arg::List(scales)) => (none, Arg::List([scales, vec![Arg::Float(1.0)]].concat())),
                other => other,
            };
            let resized = resize_image(b, columns, args)?;
            let shape = [batch, channels, new_depth, new_height, new_width].map(Expr::clone).to_vec();
            b.view(resized, shape)
        }
        _ => resize_image(b, value, target.args(&[0, 1])?),
    }
}

/// Lowers `nearest_exact`: takes the pixel at the center of an output pixel, by index along each dimension.
fn nearest_exact(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let target = TargetSizes::read(operands, &tensor, &b.graph.symbols)?;
    let whole = |scale: &Option<f64>| scale.is_some_and(|scale| scale >= 1.0 && scale.fract() == 0.0);
    if target.scales.iter().all(whole) {
        // Integer factors repeat each pixel, as nearest resizing does.
        return Ok(Some(vec![resize_pixels(b, operands.value(0)?, &tensor, &target, false)?]));
    }
    Ok(Some(vec![by_index(b, operands, &target, 0.5)?]))
}

/// Selects pixels by index along each dimension: output pixel `i` is input pixel `floor((i + offset) * from / to)`.
fn by_index(b: &mut Builder<'_>, operands: &Operands<'_>, target: &TargetSizes, offset: f64) -> Result<ValueId, Error> {
    let mut value = operands.value(0)?;
    if !target.is_known() {
        for dim in 0..target.from.len() {
            value = nearest_along(b, value, target, dim, offset)?;
        }
        return Ok(value);
    }
    let index = |at: usize, ratio: f64| ((at as f32 + offset as f32) * ratio as f32).floor() as i64;
    for (dim, (from, to, ratio)) in target.known(operands)?.into_iter().enumerate() {
        let indices: Vec<i64> = (0..to).map(|at| index(at, ratio).clamp(0, from as i64 - 1)).collect();
        if indices.len() == from && indices.is_sorted_by(|a, b| a < b) {
            continue;
        }
        let indices = b.constant(super::number::longs("pixels", &indices)?);
        value = b.one(aten::INDEX_SELECT, vec![value.into(), (dim as i64 + 2).into(), indices.into()])?;
    }
    Ok(value)
}

/// Positions in the input, along one dimension, of the pixels of the output, in the precision of PyTorch's kernels:
/// `(i + offset) * from / to - shift`, or `i * (from - 1) / (to - 1)` if corners are aligned.
fn positions(
    b: &mut Builder<'_>,
    target: &TargetSizes,
    dim: usize,
    dtype: ScalarType,
    [offset, shift]: [f64; 2],
) -> Result<(ValueId, Expr), Error> {
    let missing = || Error::invalid("a resize without a size for each dimension");
    let (from, to) = (target.from.get(dim).ok_or_else(missing)?, target.sizes.get(dim).ok_or_else(missing)?);
    let number = |b: &mut Builder<'_>, expr: Expr| {
        b.one_with(aten::SCALAR_TENSOR, vec![Arg::Int(expr)], &[("dtype", dtype.into())])
    };
    let ratio = match target.scales.get(dim).copied().flatten() {
        Some(scale) if scale > 0.0 && !target.align_corners => b.scalar(1.0 / scale, dtype)?,
        _ => {
            let (from, to) =
                if target.align_corners { (from.sub(1), to.sub(1).at_least(1)) } else { (from.clone(), to.clone()) };
            let (from, to) = (number(b, from)?, number(b, to)?);
            b.div(from, to)?
        }
    };
    let index = super::creation::indices(b, to.clone(), dtype)?;
    let position = if target.align_corners {
        b.mul(index, ratio)?
    } else {
        let moved = if offset == 0.0 { index } else { b.add(index, offset)? };
        let position = b.mul(moved, ratio)?;
        if shift == 0.0 { position } else { b.sub(position, shift)? }
    };
    Ok((position, from.clone()))
}

/// Converts integral positions to pixel indices of the input.
fn pixel_indices(b: &mut Builder<'_>, positions: ValueId, from: &Expr) -> Result<ValueId, Error> {
    let clamped = b.one(aten::CLAMP, vec![positions.into(), Arg::from(0), Arg::Int(from.sub(1))])?;
    b.cast(clamped, ScalarType::Long)
}

/// The pixels of [`by_index`] along one dimension whose size is known only at run time.
fn nearest_along(
    b: &mut Builder<'_>,
    value: ValueId,
    target: &TargetSizes,
    dim: usize,
    offset: f64,
) -> Result<ValueId, Error> {
    let (position, from) = positions(b, target, dim, ScalarType::Float, [offset, 0.0])?;
    let whole = b.unary(aten::FLOOR, position)?;
    let indices = pixel_indices(b, whole, &from)?;
    b.one(aten::INDEX_SELECT, vec![value.into(), (dim as i64 + 2).into(), indices.into()])
}

/// Cubic interpolation along one dimension whose size is known only at run time: a weighted sum of four input pixels.
fn cubic_along(b: &mut Builder<'_>, value: ValueId, target: &TargetSizes, dim: usize) -> Result<ValueId, Error> {
    /// Parameter of Keys' kernel, with PyTorch's value.
    const A: f64 = -0.75;
    let ty = b.tensor(value)?;
    let (position, from) = positions(b, target, dim, ty.dtype, [0.5, 0.5])?;
    let first = b.unary(aten::FLOOR, position)?;
    let t = b.sub(position, first)?;
    let mut sum: Option<ValueId> = None;
    for tap in -1..=2_i64 {
        // The distance of the tap: below 1 for the two in the middle, from 1 to 2 for the others.
        let x = if tap <= 0 { b.add(t, (-tap) as f64)? } else { b.sub(tap as f64, t)? };
        let weight = if (0..=1).contains(&tap) {
            // ((a + 2) x - (a + 3)) x² + 1
            let inner = b.mul(x, A + 2.0)?;
            let inner = b.sub(inner, A + 3.0)?;
            let square = b.mul(x, x)?;
            let product = b.mul(inner, square)?;
            b.add(product, 1.0)?
        } else {
            // ((a x - 5 a) x + 8 a) x - 4 a
            let inner = b.mul(x, A)?;
            let inner = b.sub(inner, 5.0 * A)?;
            let inner = b.mul(inner, x)?;
            let inner = b.add(inner, 8.0 * A)?;
            let inner = b.mul(inner, x)?;
            b.sub(inner, 4.0 * A)?
        };
        let at = b.add(first, tap as f64)?;
        let indices = pixel_indices(b, at, &from)?;
        let pixels = b.one(aten::INDEX_SELECT, vec![value.into(), (dim as i64 + 2).into(), indices.into()])?;
        let mut shape = vec![Expr::Int(1); ty.rank()];
        if let (Some(slot), Some(size)) = (shape.get_mut(dim + 2), target.sizes.get(dim)) {
            slot.clone_from(size);
        }
        let weight = b.view(weight, shape)?;
        let term = b.mul(pixels, weight)?;
        sum = Some(match sum {
            Some(sum) => b.add(sum, term)?,
            None => term,
        });
    }
    sum.ok_or_else(|| Error::invalid("a filter without taps"))
}

/// The bilinear filter that covers several pixels when it shrinks an image, with sizes given as lists.
fn antialiased(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let target = TargetSizes::read(operands, &tensor, &b.graph.symbols)?;
    let mut args = vec![operands.value(0)?.into(), target.sizes.clone().into(), target.align_corners.into()];
    args.extend(target.scales.iter().map(|scale| scale.map_or(Arg::None, Arg::Float)));
    b.call(aten::_UPSAMPLE_BILINEAR2D_AA, args).map(Some)
}

/// A GEMM with a matrix of weights along each dimension.
fn filtered(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    if !tensor.dtype.is_floating() {
        return Err(Error::unsupported(format!("`{}` of {}", operands.schema.name, tensor.dtype.name())));
    }
    let target = TargetSizes::read(operands, &tensor, &b.graph.symbols)?;
    let name = operands.schema.base_name();
    let mut value = operands.value(0)?;
    if !target.is_known() {
        if name != aten::UPSAMPLE_BICUBIC2D {
            return Err(Error::unsupported(format!("`{name}` of an image whose size depends on an input"))
                .expected("height and width that are fixed at export")
                .help("export with fixed sizes, or resize with mode=\"bilinear\" or without antialias"));
        }
        let ty = tensor;
        value = b.cast(value, super::compute_dtype(ty.dtype))?;
        for dim in 0..target.from.len() {
            value = cubic_along(b, value, &target, dim)?;
        }
        return Ok(Some(vec![b.cast(value, ty.dtype)?]));
    }
    // Columns are filtered first, then rows, with the image transposed.
    let is_antialiased = name != aten::UPSAMPLE_BICUBIC2D;
    for (from, to, ratio) in target.known(operands)?.into_iter().rev() {
        if is_antialiased && from == to {
            // An axis that keeps its size is not filtered, for any factor.
            value = transpose_last(b, value)?;
            continue;
        }
        let mut weights = vec![0.0; from * to];
        for (at, column) in (0..to).map(|at| (at, filter(name, at, from, ratio, target.align_corners))) {
            for (index, weight) in column {
                if let Some(slot) = weights.get_mut(index * to + at) {
                    *slot += weight;
                }
            }
        }
        let mut bytes = Vec::with_capacity(weights.len() * tensor.dtype.size());
        for weight in weights {
            bytes.extend(number_bytes(weight, tensor.dtype)?);
        }
        let ty = TensorType::of(tensor.dtype, &[from as i64, to as i64]);
        let weights = b.constant(Constant::dense("filter", ty, bytes)?);
        let product = super::matmul::matmul(b, value, weights)?;
        value = transpose_last(b, product)?;
    }
    Ok(Some(vec![value]))
}

/// The input pixels of one output pixel, with their weights.
fn filter(name: &str, at: usize, from: usize, ratio: f64, align_corners: bool) -> Vec<(usize, f64)> {
    match name {
        aten::_UPSAMPLE_BICUBIC2D_AA => covering(at, from, ratio, 2.0, |x| cubic(x, -0.5)),
        aten::_UPSAMPLE_LANCZOS2D_AA => covering(at, from, ratio, 3.0, lanczos),
        _ => {
            let position = if align_corners { ratio * at as f64 } else { ratio * (at as f64 + 0.5) - 0.5 };
            let first = position.floor();
            let last = from as i64 - 1;
            let tap = |step: i64| {
                let index = (first as i64 + step).clamp(0, last);
                (index as usize, cubic((position - first) - step as f64, -0.75))
            };
            (-1..=2).map(tap).collect()
        }
    }
}

/// A normalized filter whose width grows with the input pixels per output pixel.
fn covering(at: usize, from: usize, ratio: f64, radius: f64, weight: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
    let widening = ratio.max(1.0);
    let (center, reach) = (ratio * (at as f64 + 0.5), radius * widening);
    let start = ((center - reach + 0.5) as i64).max(0) as usize;
    let end = ((center + reach + 0.5) as i64).clamp(0, from as i64) as usize;
    let taps: Vec<(usize, f64)> =
        (start..end).map(|index| (index, weight((index as f64 - center + 0.5) / widening))).collect();
    let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
    taps.into_iter().map(|(index, weight)| (index, if total == 0.0 { 0.0 } else { weight / total })).collect()
}

/// Keys' cubic convolution kernel with the parameter `a`.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

/// A sinc in a window of three lobes.
fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { x.sin() / x }
    };
    if x.abs() < 3.0 { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_a_pixel_add_up_to_one() {
        for name in [aten::UPSAMPLE_BICUBIC2D, aten::_UPSAMPLE_BICUBIC2D_AA, aten::_UPSAMPLE_LANCZOS2D_AA] {
            for (from, to) in [(5, 3), (3, 8), (4, 4), (16, 3)] {
                for at in 0..to {
                    let taps = filter(name, at, from, from as f64 / to as f64, false);
                    let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
                    assert!((total - 1.0).abs() < 1e-12, "{name} {from} {to} {at}: {total}");
                    assert!(taps.iter().all(|(index, _)| *index < from));
                }
            }
        }
    }

    #[test]
    fn scaled_sizes_are_rounded_down() {
        let mut symbols = Symbols::new();
        let symbol = crate::Symbol { name: "s0".into(), min: 1, max: Some(100) };
        let size: Expr = symbols.push(symbol).into();
        for scale in [2.0, 1.5, 0.25, 0.375, 1.7, std::f64::consts::PI] {
            let scaled = scaled_size(&size, scale, &symbols).unwrap();
            for value in 1..100 {
                let expected = scaled_size(&Expr::Int(value), scale, &symbols).and_then(|size| size.as_int());
                assert_eq!(scaled.evaluate(&|_| Some(value)), expected, "{value} times {scale}");
            }
        }
    }
}
