//! Histograms of points between edges that tensors give.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use crate::support::shape::Dims;

/// `_histogramdd_from_bin_tensors.out(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False, Tensor(a!) out)`
///
/// Points are the rows of the last dimension. Each coordinate has a tensor of ascending edges. A bin includes its lower edge, and the last
/// bin its upper edge too.
pub const HISTOGRAMDD_OUT: Op = Op::new("aten::_histogramdd_from_bin_tensors.out", 5, histogramdd);

pub const OPS: OpGroup = &[HISTOGRAMDD_OUT];

/// Element `at` of a tensor in row-major order.
fn element(tensor: &Tensor<'_>, at: usize) -> Result<f64> {
    let offset = super::key::offset_of(tensor.sizes(), tensor.strides(), at);
    match tensor.dtype() {
        ScalarType::Float => Ok(tensor.as_slice::<f32>()?.get(offset).map_or(0.0, |&x| f64::from(x))),
        ScalarType::Double => Ok(tensor.as_slice::<f64>()?.get(offset).copied().unwrap_or(0.0)),
        got => Err(Detail::Dtype { expected: "f32 or f64", got }.into()),
    }
}

fn histogramdd(cx: &KernelContext<'_>) -> Result<()> {
    let (input, edges, weight, density) = (cx.tensor(0)?, cx.tensors(1)?, cx.optional_tensor(2)?, cx.bool(3)?);
    let mut out = cx.out(4)?;
    let dims = input.sizes().last().copied().unwrap_or(0);
    if input.rank() < 2 || dims != edges.len() {
        return Err(Error::from(Detail::Count { what: "tensors of edges", expected: dims, got: edges.len() }).arg(1));
    }
    let mut sizes = Dims::EMPTY;
    for dim in 0..dims {
        let count = edges.get(dim)?.numel();
        if count < 2 {
            return Err(Error::from(Detail::Count { what: "edges", expected: 2, got: count }).arg(1));
        }
        sizes.push(count - 1)?;
    }
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::ElementType { expected: input.dtype(), got: out.dtype() }).arg(4));
    }
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    let points = input.numel() / dims.max(1);
    if let Some(weight) = weight
        && weight.numel() != points
    {
        let (expected, got) = (points, weight.numel());
        return Err(Error::from(Detail::Count { what: "weights", expected, got }).arg(2));
    }
    let strides = Dims::from_slice(out.strides())?;
    out.bytes_mut().fill(0);
    let mut total = 0.0;
    for point in 0..points {
        let mut place = Some(0);
        for dim in 0..dims {
            let x = element(&input, point * dims + dim).map_err(|e| e.arg(0))?;
            let bin = bin_of(&edges.get(dim)?, x).map_err(|e| e.arg(1))?;
            place = place.zip(bin).map(|(place, bin)| place + bin * strides[dim]);
        }
        let Some(place) = place else { continue };
        let count = weight.map_or(Ok(1.0), |weight| element(&weight, point)).map_err(|e| e.arg(2))?;
        total += count;
        if out.dtype() == ScalarType::Double {
            out.as_mut_slice::<f64>()?[place] += count;
        } else {
            out.as_mut_slice::<f32>()?[place] += count as f32;
        }
    }
    if !density {
        return Ok(());
    }
    for at in 0..out.numel() {
        let (mut rest, mut place, mut volume) = (at, 0, 1.0);
        for dim in (0..dims).rev() {
            let bin = rest % sizes[dim];
            rest /= sizes[dim];
            place += bin * strides[dim];
            let edges = edges.get(dim)?;
            volume *= element(&edges, bin + 1)? - element(&edges, bin)?;
        }
        if out.dtype() == ScalarType::Double {
            out.as_mut_slice::<f64>()?[place] /= total * volume;
        } else {
            let value = &mut out.as_mut_slice::<f32>()?[place];
            *value = (f64::from(*value) / (total * volume)) as f32;
        }
    }
    Ok(())
}

/// The bin of a number; `None` for NaN and outside of all bins.
fn bin_of(edges: &Tensor<'_>, x: f64) -> Result<Option<usize>> {
    let count = edges.numel();
    let (first, last) = (element(edges, 0)?, element(edges, count - 1)?);
    if !(first..=last).contains(&x) {
        return Ok(None);
    }
    // The last edge that is at most the number.
    let (mut low, mut high) = (0, count);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if element(edges, middle)? <= x {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(low.min(count - 2)))
}
