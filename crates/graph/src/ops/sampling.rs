//! Pixels in other places: sampling by a grid, shuffling between channels and space, and patches as columns.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Constant, Expr, Graph, TensorType, Type, ValueId};

use super::inference::same;
use super::matmul::matmul;
use super::number::MAX_COMPUTED;
use super::views::{permute, transpose, transpose_last};
use super::{Definition, Lowered, Operands, by_lowering, composite, done, kernel, number_bytes, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::GRID_SAMPLER_2D, sampled),
    kernel(aten::GRID_SAMPLER_3D, sampled),
    composite(aten::GRID_SAMPLER, sampled, grid_sampler),
    composite(aten::AFFINE_GRID_GENERATOR, by_lowering, affine_grid),
    kernel(aten::PIXEL_SHUFFLE, shuffled),
    kernel(aten::PIXEL_UNSHUFFLE, unshuffled),
    composite(aten::CHANNEL_SHUFFLE, same, channel_shuffle),
    composite(aten::NATIVE_CHANNEL_SHUFFLE, same, channel_shuffle),
    kernel(aten::COL2IM, folded),
    composite(aten::IM2COL, by_lowering, im2col),
    composite(aten::MAX_UNPOOL2D, by_lowering, max_unpool),
    composite(aten::MAX_UNPOOL3D, by_lowering, max_unpool),
];

fn sampled(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (input, grid) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let (Some(lead), Some(space)) = (input.shape.get(..2), grid.shape.get(1..grid.rank().saturating_sub(1))) else {
        return Err(operands.wrong(0, "a batch of images, `[N, C, H, W]`"));
    };
    Ok(result(input.dtype, [lead, space].concat()))
}

fn grid_sampler(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let name = match operands.tensor(0, b.graph)?.rank() {
        4 => aten::GRID_SAMPLER_2D,
        5 => aten::GRID_SAMPLER_3D,
        _ => return Err(operands.wrong(0, "images, `[N, C, H, W]`, or volumes, `[N, C, D, H, W]`")),
    };
    b.call(name, operands.args.to_vec()).map(Some)
}

/// Maximum number of pixels of a grid: each needs several numbers.
const MAX_PIXELS: i64 = MAX_COMPUTED >> 4;

/// The points that an affine map moves the pixels' coordinates to, from -1 to 1 in each dimension.
fn affine_grid(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let theta = operands.value(0)?;
    let dtype = b.tensor(theta)?.dtype;
    let sizes = operands.exprs(1)?;
    let space = sizes.get(2..).unwrap_or_default().iter().map(Expr::as_int).collect::<Option<Vec<_>>>();
    let Some(space) = space.filter(|space| matches!(space.len(), 2 | 3)) else {
        return Err(operands.wrong(1, "a size that depends on no input"));
    };
    let pixels = space.iter().try_fold(1i64, |product, size| product.checked_mul((*size).max(0)));
    if pixels.is_none_or(|pixels| pixels > MAX_PIXELS) {
        return Err(operands.wrong(1, &format!("at most {MAX_PIXELS} pixels")));
    }
    let align_corners = operands.bool(2)?;
    let coordinate = |size: i64, at: i64| match size {
        ..=1 => 0.0,
        _ => {
            let whole = 2.0 * at as f64 / (size - 1) as f64 - 1.0;
            if align_corners { whole } else { whole * (size - 1) as f64 / size as f64 }
        }
    };
    // One row for each pixel: its coordinates from the innermost dimension outwards, and 1.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]];
    for size in &space {
        let along = |row: &Vec<f64>| {
            let row = row.clone();
            (0..*size).map(move |at| [&[coordinate(*size, at)], row.as_slice()].concat())
        };
        rows = rows.iter().flat_map(along).collect();
    }
    let (count, width) = (rows.len() as i64, space.len() as i64 + 1);
    let bytes = rows.concat().into_iter().map(|value| number_bytes(value, dtype));
    let bytes = bytes.collect::<Result<Vec<_>, _>>()?.concat();
    let base = b.constant(Constant::dense("grid", TensorType::of(dtype, &[count, width]), bytes)?);
    let map = transpose_last(b, theta)?;
    let grid = matmul(b, base, map)?;
    let mut shape: Vec<Expr> = sizes.first().cloned().into_iter().collect();
    shape.extend(space.iter().map(|size| Expr::Int(*size)));
    shape.push(Expr::Int(width - 1));
    Ok(Some(vec![b.view(grid, shape)?]))
}

/// Returns the leading dimensions of an image, and its channels, height and width.
fn image_sizes<'t>(operands: &Operands<'_>, tensor: &'t TensorType) -> Result<(&'t [Expr], [Expr; 3]), Error> {
    match tensor.shape.as_slice() {
        [lead @ .., channels, height, width] => Ok((lead, [channels.clone(), height.clone(), width.clone()])),
        _ => Err(operands.wrong(0, "a tensor of at least 3 dimensions")),
    }
}

fn shuffled(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (lead, [channels, height, width]) = image_sizes(operands, tensor)?;
    let factor = operands.int(1)?;
    let shape = [channels.floor_div(factor.saturating_mul(factor)), height.mul(factor), width.mul(factor)];
    Ok(result(tensor.dtype, [lead, &shape].concat()))
}

fn unshuffled(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (lead, [channels, height, width]) = image_sizes(operands, tensor)?;
    let factor = operands.int(1)?;
    let shape = [channels.mul(factor.saturating_mul(factor)), height.floor_div(factor), width.floor_div(factor)];
    Ok(result(tensor.dtype, [lead, &shape].concat()))
}

/// The channels of all groups in turn.
fn channel_shuffle(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let groups = operands.expr(1)?;
    let [batch, channels, space @ ..] = tensor.shape.as_slice() else {
        return Err(operands.wrong(0, "a tensor with channels"));
    };
    let each = channels.floor_div(groups.clone());
    let apart = [&[batch.clone(), groups, each], space].concat();
    let apart = b.view(operands.value(0)?, apart)?;
    let turned = transpose(b, apart, 1, 2)?;
    Ok(Some(vec![b.view(turned, tensor.shape)?]))
}

fn folded(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let kernel = product(&operands.ints_for(2, 2, &[1])?);
    let [lead @ .., columns, _] = tensor.shape.as_slice() else {
        return Err(operands.wrong(0, "a tensor of 2 or 3 dimensions"));
    };
    let size = operands.exprs(1)?;
    Ok(result(tensor.dtype, [lead, &[columns.floor_div(kernel)], &size].concat()))
}

/// The saturating product.
fn product(sizes: &[i64]) -> i64 {
    sizes.iter().fold(1, |product, size| product.saturating_mul(*size))
}

/// Patches as columns: padded, then picked by row and column.
fn im2col(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let (lead, [channels, height, width]) = image_sizes(operands, &tensor)?;
    let list = |index: usize, default: i64| operands.ints_for(index, 2, &[default]);
    let (kernel, dilation, padding, stride) = (list(1, 1)?, list(2, 1)?, list(3, 0)?, list(4, 1)?);
    let [up, left] = padding.as_slice() else { return Err(operands.wrong(3, "two numbers")) };
    let mut value = operands.value(0)?;
    if *up != 0 || *left != 0 {
        value = b.one(aten::CONSTANT_PAD_ND, vec![value.into(), [*left, *left, *up, *up].into()])?;
    }
    let columns = channels.mul(product(&kernel));
    let (Some(height), Some(width)) = (height.as_int(), width.as_int()) else {
        if dilation.iter().any(|dilation| *dilation != 1) {
            return Err(operands.unknown_sizes(0, "spatial sizes", b.graph));
        }
        let patches = windows(b, value, &kernel, &stride)?;
        let sizes = b.tensor(patches)?.shape;
        let count = Expr::product(sizes.get(sizes.len().saturating_sub(2)..).unwrap_or_default());
        return done(b.view(patches, [lead, &[columns, count]].concat())?);
    };
    let mut indices = Vec::new();
    let mut counts = Vec::new();
    for (dim, size) in [height, width].into_iter().enumerate() {
        let at = |list: &[i64]| list.get(dim).copied().unwrap_or(1);
        let (kernel, dilation, stride) = (at(&kernel), at(&dilation), at(&stride).max(1));
        let reach = Expr::Int(kernel).sub(1).mul(dilation);
        let room = Expr::Int(size).add(Expr::Int(at(&padding)).mul(2)).sub(reach).sub(1);
        let count = room.floor_div(stride).add(1).as_int().unwrap_or(0);
        if count < 1 || kernel < 1 || kernel.saturating_mul(count) > MAX_COMPUTED {
            return Err(operands.wrong(1, "a kernel that fits the padded image"));
        }
        let window = |tap: i64| {
            (0..count).map(move |step| tap.saturating_mul(dilation).saturating_add(step.saturating_mul(stride)))
        };
        let places: Vec<i64> = (0..kernel).flat_map(window).collect();
        let places = b.constant(super::number::longs("patches", &places)?);
        let shape = if dim == 0 { [kernel, 1, count, 1] } else { [1, kernel, 1, count] };
        indices.push(Arg::from(b.view(places, shape.map(Expr::Int).to_vec())?));
        counts.push(count);
    }
    let none = vec![Arg::None; tensor.rank() - 2];
    let patches = b.one(aten::INDEX_TENSOR, vec![value.into(), Arg::List([none, indices].concat())])?;
    Ok(Some(vec![b.view(patches, [lead, &[columns, product(&counts).into()]].concat())?]))
}

/// Unfolds an image: rows and columns in a window, then rows and columns of windows.
fn windows(b: &mut Builder<'_>, image: ValueId, kernel: &[i64], stride: &[i64]) -> Result<ValueId, Error> {
    let lead = b.tensor(image)?.rank().saturating_sub(2);
    let mut value = image;
    for (dim, (kernel, stride)) in kernel.iter().zip(stride).enumerate() {
        let dim = (lead + dim) as i64;
        value = b.one(aten::UNFOLD_COPY, vec![value.into(), dim.into(), (*kernel).into(), (*stride).into()])?;
    }
    let mut dims: Vec<usize> = (0..lead).collect();
    dims.extend([lead + 2, lead + 3, lead, lead + 1]);
    permute(b, value, &dims)
}

/// Each element back to where its maximum was, among zeros.
fn max_unpool(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let space = operands.exprs(2)?;
    let lead = tensor.shape.get(..tensor.rank().saturating_sub(space.len())).unwrap_or_default();
    let pooled = Expr::product(tensor.shape.get(lead.len()..).unwrap_or_default());
    let flat = [lead, &[pooled]].concat();
    let value = b.view(operands.value(0)?, flat.clone())?;
    let indices = b.view(operands.value(1)?, flat)?;
    let whole = [lead, &[Expr::product(&space)]].concat();
    let zeros = b.one_with(aten::FULL, vec![whole.into(), 0.into()], &[("dtype", tensor.dtype.into())])?;
    let args = vec![zeros.into(), (-1).into(), indices.into(), value.into()];
    let scattered = b.one(aten::SCATTER_SRC, args)?;
    Ok(Some(vec![b.view(scattered, [lead, &space].concat())?]))
}
