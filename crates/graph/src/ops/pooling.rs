//! Pooling. Kernels pool in two and three dimensions; one dimension is an image of height 1.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::views::{squeeze, unsqueeze};
use super::{Definition, Lowered, Operands, by_lowering, composite, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::MAX_POOL2D_WITH_INDICES, max_pool),
    kernel(aten::MAX_POOL3D_WITH_INDICES, max_pool),
    composite(aten::MAX_POOL1D, by_lowering, max_pool1d),
    composite(aten::MAX_POOL1D_WITH_INDICES, by_lowering, max_pool1d),
    composite(aten::MAX_POOL2D, by_lowering, max_pool_values),
    composite(aten::MAX_POOL3D, by_lowering, max_pool_values),
    kernel(aten::AVG_POOL2D, avg_pool),
    kernel(aten::AVG_POOL3D, avg_pool),
    composite(aten::AVG_POOL1D, avg_pool, avg_pool1d),
    kernel(aten::_ADAPTIVE_AVG_POOL2D, adaptive),
    kernel(aten::_ADAPTIVE_AVG_POOL3D, adaptive),
    composite(aten::ADAPTIVE_AVG_POOL1D, adaptive, adaptive_avg_pool1d),
    composite(aten::ADAPTIVE_AVG_POOL2D, adaptive, adaptive_avg_pool),
    composite(aten::ADAPTIVE_AVG_POOL3D, adaptive, adaptive_avg_pool),
    composite(aten::ADAPTIVE_MAX_POOL1D, adaptive_with_indices, adaptive_max_pool),
    composite(aten::ADAPTIVE_MAX_POOL2D, adaptive_with_indices, adaptive_max_pool),
    composite(aten::ADAPTIVE_MAX_POOL3D, adaptive_with_indices, adaptive_max_pool),
    kernel(aten::FRACTIONAL_MAX_POOL2D, |o, g| fractional(o, g, 2)),
    kernel(aten::FRACTIONAL_MAX_POOL3D, |o, g| fractional(o, g, 3)),
];

/// The types of fractional max pooling: maxima and their indices, with the output size in parameter 2.
fn fractional(operands: &Operands<'_>, graph: &Graph, dims: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let lead = input.shape.get(..input.rank().saturating_sub(dims)).unwrap_or_default();
    let sizes = operands.ints_for(2, dims, &[1])?.into_iter().map(Expr::Int).collect::<Vec<_>>();
    let shape = [lead, &sizes].concat();
    Ok([result(input.dtype, shape.clone()), result(ScalarType::Long, shape)].concat())
}

/// The pooling windows along one dimension.
struct WindowDim {
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    ceil: bool,
}

impl WindowDim {
    /// Returns the number of windows in an input of `size`.
    fn count(&self, size: &Expr) -> Expr {
        let reach = Expr::Int(self.kernel).sub(1).mul(self.dilation);
        let room = size.add(Expr::Int(self.padding).mul(2)).sub(reach).sub(1);
        if !self.ceil {
            return room.floor_div(self.stride).add(1);
        }
        // The last window must start inside of the input or its left padding.
        let last = room.ceil_div(self.stride).at_most(size.add(self.padding).sub(1).floor_div(self.stride));
        last.add(1)
    }
}

/// The number of dimensions in an operator's name: `max_pool2d` has 2.
fn dims_of(operands: &Operands<'_>) -> usize {
    let name = operands.schema.base_name();
    name.bytes().rev().find(u8::is_ascii_digit).map_or(2, |digit| usize::from(digit - b'0'))
}

/// The input's shape with other spatial sizes, one for each of the last dimensions.
fn with_space(tensor: &TensorType, space: Vec<Expr>) -> Vec<Expr> {
    let lead = tensor.rank().saturating_sub(space.len());
    tensor.shape.iter().take(lead).cloned().chain(space).collect()
}

fn check_rank(operands: &Operands<'_>, tensor: &TensorType, dims: usize) -> Result<(), Error> {
    if tensor.rank() == dims + 1 || tensor.rank() == dims + 2 {
        Ok(())
    } else {
        Err(operands.wrong(0, &format!("a tensor of {} or {} dimensions", dims + 1, dims + 2)))
    }
}

/// The shape after pooling: arguments 1 to 3 are kernel, stride and padding, then come the dilation, if given, and the
/// rounding.
fn pooled(operands: &Operands<'_>, graph: &Graph, dilation: Option<usize>, ceil: usize) -> Result<Vec<Expr>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let dims = dims_of(operands);
    check_rank(operands, tensor, dims)?;
    let kernel = operands.ints_for(1, dims, &[1])?;
    let stride = operands.ints_for(2, dims, &kernel)?;
    let padding = operands.ints_for(3, dims, &[0])?;
    let dilation = match dilation {
        Some(index) => operands.ints_for(index, dims, &[1])?,
        None => vec![1; dims],
    };
    let ceil = operands.bool(ceil)?;
    let mut space = Vec::new();
    let windows = kernel.into_iter().zip(stride).zip(padding).zip(dilation);
    let sizes = tensor.shape.iter().skip(tensor.rank() - dims);
    for (size, (((kernel, stride), padding), dilation)) in sizes.zip(windows) {
        if stride < 1 || kernel < 1 {
            return Err(operands.wrong(2, "strides of at least 1"));
        }
        let count = WindowDim { kernel, stride, padding, dilation, ceil }.count(size);
        if count.as_int().is_some_and(|count| count < 1) {
            return Err(operands.wrong(0, "spatial sizes that, padded, are at least those of the window"));
        }
        space.push(count);
    }
    Ok(with_space(tensor, space))
}

fn max_pool(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let dtype = operands.tensor(0, graph)?.dtype;
    let shape = pooled(operands, graph, Some(4), 5)?;
    Ok([result(dtype, shape.clone()), result(ScalarType::Long, shape)].concat())
}

fn avg_pool(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let dtype = operands.tensor(0, graph)?.dtype;
    Ok(result(dtype, pooled(operands, graph, None, 4)?))
}

/// A list argument of one number with another in front, for an image of height 1; an empty list stays empty.
fn flat(operands: &Operands<'_>, index: usize, height: i64) -> Result<Arg, Error> {
    match operands.ints(index)?.as_slice() {
        [] => Ok(Arg::List(Vec::new())),
        [width, ..] => Ok([height, *width].into()),
    }
}

fn max_pool1d(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let height = b.tensor(operands.value(0)?)?.rank().saturating_sub(1);
    let image = unsqueeze(b, operands.value(0)?, height)?;
    let args = vec![
        image.into(),
        flat(operands, 1, 1)?,
        flat(operands, 2, 1)?,
        flat(operands, 3, 0)?,
        flat(operands, 4, 1)?,
        operands.arg(5).clone(),
    ];
    let pooled = b.call(aten::MAX_POOL2D_WITH_INDICES, args)?;
    let wanted = if operands.schema.name == aten::MAX_POOL1D { 1 } else { 2 };
    pooled.into_iter().take(wanted).map(|value| squeeze(b, value, height)).collect::<Result<_, _>>().map(Some)
}

/// `max_pool2d` and `max_pool3d` without the indices.
fn max_pool_values(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let name = format!("{}_with_indices", operands.schema.name);
    let pooled = b.call(&name, operands.args.to_vec())?;
    Ok(Some(pooled.into_iter().take(1).collect()))
}

fn avg_pool1d(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let height = b.tensor(operands.value(0)?)?.rank().saturating_sub(1);
    let image = unsqueeze(b, operands.value(0)?, height)?;
    let args = vec![
        image.into(),
        flat(operands, 1, 1)?,
        flat(operands, 2, 1)?,
        flat(operands, 3, 0)?,
        operands.arg(4).clone(),
        operands.arg(5).clone(),
    ];
    let pooled = b.one(aten::AVG_POOL2D, args)?;
    Ok(Some(vec![squeeze(b, pooled, height)?]))
}

/// The wanted sizes of the last dimensions.
fn target(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Expr>, Error> {
    let dims = dims_of(operands);
    check_rank(operands, operands.tensor(0, graph)?, dims)?;
    let sizes = operands.exprs(1)?;
    match sizes.as_slice() {
        [all] => Ok(vec![all.clone(); dims]),
        _ if sizes.len() == dims => Ok(sizes),
        _ => Err(operands.wrong(1, &format!("{dims} sizes"))),
    }
}

fn adaptive(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(result(tensor.dtype, with_space(tensor, target(operands, graph)?)))
}

fn adaptive_with_indices(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let shape = with_space(tensor, target(operands, graph)?);
    Ok([result(tensor.dtype, shape.clone()), result(ScalarType::Long, shape)].concat())
}

/// Returns the mean of an empty image that is pooled to one element, which is not a number. Pools refuse an image without elements.
fn mean_of_none(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<Option<ValueId>, Error> {
    let (tensor, dims) = (b.tensor(operands.value(0)?)?, dims_of(operands));
    let is_empty = tensor.shape.iter().rev().take(dims).any(|size| size.is(0));
    if !is_empty || !target(operands, b.graph)?.iter().all(|size| size.is(1)) {
        return Ok(None);
    }
    let over: Vec<i64> = (1..=dims as i64).map(|dim| -dim).collect();
    b.one(aten::MEAN_DIM, vec![operands.value(0)?.into(), Arg::from(over.as_slice()), Arg::from(true)]).map(Some)
}

fn adaptive_avg_pool1d(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if let Some(mean) = mean_of_none(b, operands)? {
        return Ok(Some(vec![mean]));
    }
    let height = b.tensor(operands.value(0)?)?.rank().saturating_sub(1);
    let image = unsqueeze(b, operands.value(0)?, height)?;
    let sizes = [vec![Expr::Int(1)], target(operands, b.graph)?].concat();
    let pooled = b.one(aten::_ADAPTIVE_AVG_POOL2D, vec![image.into(), sizes.into()])?;
    Ok(Some(vec![squeeze(b, pooled, height)?]))
}

fn adaptive_avg_pool(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if let Some(mean) = mean_of_none(b, operands)? {
        return Ok(Some(vec![mean]));
    }
    let name = if dims_of(operands) == 3 { aten::_ADAPTIVE_AVG_POOL3D } else { aten::_ADAPTIVE_AVG_POOL2D };
    let sizes = target(operands, b.graph)?;
    b.call(name, vec![operands.value(0)?.into(), sizes.into()]).map(Some)
}

/// Windows of one size for each dimension: those that end earlier repeat their last index, which changes no maximum.
/// Lays the image out by windows and pools it; indices are then those of the original.
fn adaptive_max_pool(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = dims_of(operands);
    let tensor = b.tensor(operands.value(0)?)?;
    let wanted = target(operands, b.graph)?.iter().map(Expr::as_int).collect::<Option<Vec<_>>>();
    let from = tensor.shape.iter().skip(tensor.rank() - dims).map(Expr::as_int).collect::<Option<Vec<_>>>();
    let (Some(from), Some(wanted)) = (from, wanted) else {
        return Err(operands.unknown_sizes(0, "spatial sizes", b.graph));
    };
    if from.iter().chain(&wanted).any(|size| !(1..=1 << 24).contains(size)) {
        return Err(operands.wrong(0, "spatial sizes from 1 to 2^24"));
    }
    // One dimension is pooled as an image of height 1.
    let height = tensor.rank() - dims;
    let (value, from, wanted) = if dims == 1 {
        let value = unsqueeze(b, operands.value(0)?, height)?;
        (value, [vec![1], from].concat(), [vec![1], wanted].concat())
    } else {
        (operands.value(0)?, from, wanted)
    };
    let tables: Vec<Table> = from.iter().zip(&wanted).map(|(from, to)| Table::new(*from, *to)).collect();
    let (results, kernel) = if tables.iter().all(Table::is_even) {
        let kernel: Vec<i64> = tables.iter().map(|table| table.length).collect();
        (value, kernel)
    } else {
        let mut laid_out = value;
        for (dim, table) in tables.iter().enumerate() {
            let indices = b.constant(table.constant()?);
            let dim = (tensor.rank() - dims + dim) as i64;
            laid_out = b.one(aten::INDEX_SELECT, vec![laid_out.into(), dim.into(), indices.into()])?;
        }
        (laid_out, tables.iter().map(|table| table.length).collect())
    };
    let name = if kernel.len() == 3 { aten::MAX_POOL3D_WITH_INDICES } else { aten::MAX_POOL2D_WITH_INDICES };
    let kernel = Arg::from(kernel.as_slice());
    let mut pooled = b.call(name, vec![results.into(), kernel.clone(), kernel])?;
    if results != value
        && let Some(indices) = pooled.get_mut(1)
    {
        *indices = original_indices(b, *indices, &tables)?;
    }
    if dims == 1 {
        return pooled.into_iter().map(|value| squeeze(b, value, height)).collect::<Result<_, _>>().map(Some);
    }
    Ok(Some(pooled))
}

/// The indices that the windows of a dimension take, window after window.
struct Table {
    indices: Vec<i64>,
    /// Indices of a window.
    length: i64,
    size: i64,
}

impl Table {
    fn new(from: i64, to: i64) -> Self {
        let bounds = |window: i64| (window * from / to, ((window + 1) * from + to - 1) / to);
        let length = (0..to).map(bounds).map(|(start, end)| end - start).max().unwrap_or(1);
        let window = |window: i64| {
            let (start, end) = bounds(window);
            (start..start + length).map(move |index| index.min(end - 1))
        };
        Self { indices: (0..to).flat_map(window).collect(), length, size: from }
    }

    /// True if the windows tile the dimension.
    fn is_even(&self) -> bool {
        self.indices.len() as i64 == self.size
    }

    fn constant(&self) -> Result<crate::Constant, Error> {
        super::number::longs("windows", &self.indices)
    }
}

/// Maps indices into an image that was laid out by windows to indices into the original.
fn original_indices(b: &mut Builder<'_>, indices: ValueId, tables: &[Table]) -> Result<ValueId, Error> {
    let shape = b.tensor(indices)?.shape;
    let flat = b.view(indices, vec![Expr::product(&shape)])?;
    let mut rest = flat;
    let mut total: Option<ValueId> = None;
    let mut stride = 1;
    // From the innermost dimension outwards: coordinate in the layout, then in the original.
    for table in tables.iter().rev() {
        let size = Arg::from(table.indices.len() as i64);
        let coordinate = b.one(aten::REMAINDER_SCALAR, vec![rest.into(), size])?;
        let by = b.scalar(table.indices.len() as f64, ScalarType::Long)?;
        rest = b.one(aten::FLOOR_DIVIDE, vec![rest.into(), by.into()])?;
        let scaled: Vec<i64> = table.indices.iter().map(|index| index * stride).collect();
        let table_value = b.constant(super::number::longs("windows", &scaled)?);
        let original = b.one(aten::INDEX_SELECT, vec![table_value.into(), 0.into(), coordinate.into()])?;
        total = Some(match total {
            Some(total) => b.one(aten::ADD_TENSOR, vec![total.into(), original.into()])?,
            None => original,
        });
        stride *= table.size;
    }
    b.view(total.unwrap_or(flat), shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Symbol, Symbols};

    #[test]
    fn windows_are_counted_as_pytorch_does() {
        let count = |size: i64, kernel, stride, padding, dilation, ceil| {
            WindowDim { kernel, stride, padding, dilation, ceil }.count(&Expr::Int(size)).as_int()
        };
        assert_eq!(count(112, 3, 2, 1, 1, false), Some(56));
        assert_eq!(count(7, 3, 2, 0, 2, false), Some(2));
        assert_eq!(count(6, 3, 2, 0, 1, true), Some(3));
        // The third window would start in the right padding.
        assert_eq!(count(3, 2, 2, 1, 1, true), Some(2));
        let mut symbols = Symbols::new();
        let size: Expr = symbols.push(Symbol { name: "s0".into(), min: 8, max: Some(64) }).into();
        let symbolic = WindowDim { kernel: 3, stride: 2, padding: 1, dilation: 1, ceil: true }.count(&size);
        for value in 8..64 {
            assert_eq!(symbolic.evaluate(&|_| Some(value)), count(value, 3, 2, 1, 1, true), "{value}");
        }
    }

    #[test]
    fn uneven_windows_repeat_their_last_index() {
        let even = Table::new(6, 3);
        assert!(even.is_even());
        assert_eq!((even.length, even.indices), (2, vec![0, 1, 2, 3, 4, 5]));
        let uneven = Table::new(5, 3);
        assert!(!uneven.is_even());
        assert_eq!((uneven.length, uneven.indices), (3, vec![0, 1, 1, 1, 2, 3, 3, 4, 4]));
    }
}
