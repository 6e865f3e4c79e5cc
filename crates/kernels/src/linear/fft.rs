//! Fourier transforms between real and complex tensors: `_fft_r2c` and `_fft_c2r`.

use rushlight_runtime::{
    Complex, Detail, Element, Error, IntList, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut,
};

use super::transform::{Direction, Transform, work_len};
use crate::support::real::Real;
use crate::support::shape::{Dims, Walk, normalize_dim, numel};

/// `_fft_r2c.out(Tensor self, int[] dim, int normalization, bool onesided, *, Tensor(a!) out)`
pub const FFT_R2C_OUT: Op = Op::new("aten::_fft_r2c.out", 5, r2c).temp(r2c_temp);
/// `_fft_c2r.out(Tensor self, int[] dim, int normalization, SymInt last_dim_size, *, Tensor(a!) out)`
pub const FFT_C2R_OUT: Op = Op::new("aten::_fft_c2r.out", 5, c2r).temp(c2r_temp);

pub const OPS: OpGroup = &[FFT_R2C_OUT, FFT_C2R_OUT];

/// The dimensions that are transformed; the last one is real on one side.
fn dimensions(cx: &KernelContext<'_>, rank: usize) -> Result<(Dims, usize)> {
    let list: IntList<'_> = cx.ints(1)?;
    let mut dims = Dims::EMPTY;
    for dim in list.iter() {
        let dim = normalize_dim(dim, rank).map_err(|e| e.arg(1))?;
        if dim >= rank || dims.contains(&dim) {
            return Err(Error::invalid("the dimensions must exist and differ").arg(1));
        }
        dims.push(dim)?;
    }
    match dims.last().copied() {
        Some(last) => Ok((dims, last)),
        None => Err(Error::invalid("at least one dimension must be given").arg(1)),
    }
}

/// The factor that normalisation mode 0 (none), 1 (by the root of the size) or 2 (by the size) multiplies with.
fn factor<F: Real>(mode: i64, dims: &[usize], sizes: &[usize]) -> Result<F> {
    let size = F::from_f64(dims.iter().fold(1.0, |n, &dim| n * sizes.get(dim).copied().unwrap_or(1) as f64));
    match mode {
        0 => Ok(F::ONE),
        1 => Ok(F::ONE / size.sqrt()),
        2 => Ok(F::ONE / size),
        got => Err(Error::from(Detail::Value { what: "normalization", expected: "0, 1 or 2", got }).arg(2)),
    }
}

fn r2c_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let input = cx.tensor(0)?;
    let (dims, _) = dimensions(cx, input.rank())?;
    temp_bytes(input.dtype().size(), input.sizes(), &dims, 0)
}

fn c2r_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let input = cx.tensor(0)?;
    let (dims, last) = dimensions(cx, input.rank())?;
    let mut sizes = Dims::from_slice(input.sizes())?;
    let whole = if dims.len() > 1 { numel(&sizes)? } else { 0 };
    // Only the output's size is transformed along the last dimension.
    let size = usize::try_from(cx.int(3)?).unwrap_or(0);
    sizes[last] = if size > 0 { size } else { sizes[last].saturating_mul(2) };
    temp_bytes(input.dtype().size() / 2, &sizes, &dims, whole)
}

/// Bytes for the longest transform and `extra` complex numbers of two reals of `width` bytes.
fn temp_bytes(width: usize, sizes: &[usize], dims: &[usize], extra: usize) -> Result<usize> {
    let longest = dims.iter().filter_map(|&dim| sizes.get(dim)).map(|&n| work_len(n)).max().unwrap_or(Some(0));
    longest
        .and_then(|len| len.checked_add(extra)?.checked_mul(2 * width)?.checked_add(64))
        .ok_or_else(|| Error::invalid("the transform needs more temporary memory than can be addressed"))
}

/// Memory for the longest transform. Sizes smaller than those that the method was loaded with may ask for more than
/// there is; then they make do with less.
fn workspace<'c, F: Real>(cx: &'c KernelContext<'_>, sizes: &[usize], dims: &[usize]) -> Result<&'c mut [Complex<F>]>
where
    Complex<F>: Element + Default,
{
    let lengths = || dims.iter().filter_map(|&dim| sizes.get(dim).copied());
    let best = lengths().filter_map(work_len).max().unwrap_or(0);
    cx.temp(best).or_else(|_| cx.temp(lengths().max().unwrap_or(0).saturating_mul(3)))
}

fn r2c(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mode, onesided) = (cx.tensor(0)?, cx.int(2)?, cx.bool(3)?);
    let (dims, last) = dimensions(cx, input.rank())?;
    let mut out = cx.out(4)?;
    let mut sizes = Dims::from_slice(input.sizes())?;
    if let Some(&dim) = dims.iter().find(|&&dim| sizes[dim] == 0) {
        return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
    }
    if onesided {
        sizes[last] = sizes[last] / 2 + 1;
    }
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    match input.dtype() {
        ScalarType::Float => real_to_complex::<f32>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double => real_to_complex::<f64>(cx, input, &dims, last, mode, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "f32 or f64", got }).arg(0)),
    }
}

fn real_to_complex<F: Real>(
    cx: &KernelContext<'_>,
    input: Tensor<'_>,
    dims: &[usize],
    last: usize,
    mode: i64,
    out: &mut TensorMut<'_>,
) -> Result<()>
where
    Complex<F>: Element,
{
    let factor = factor::<F>(mode, dims, input.sizes())?;
    let work = workspace::<F>(cx, input.sizes(), dims)?;
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let values = input.as_slice::<F>()?;
    let target = out.as_mut_slice::<Complex<F>>().map_err(|e| e.arg(4))?;
    let mut transform = Transform::new(input.size(last), Direction::Forward, work);
    lines([input.sizes(), &sizes], last, [input.strides(), &strides], |[from, to], [from_step, to_step]| {
        let line = transform.line();
        for (i, value) in line.iter_mut().enumerate() {
            *value = Complex { re: values[from + i * from_step], im: F::ZERO };
        }
        for (i, value) in transform.run().iter().take(sizes[last]).enumerate() {
            target[to + i * to_step] = scaled(*value, factor);
        }
    })?;
    for &dim in dims.iter().rev().filter(|&&dim| dim != last) {
        complex_in_place(target, &sizes, &strides, dim, Direction::Forward, work)?;
    }
    Ok(())
}

fn c2r(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mode, size) = (cx.tensor(0)?, cx.int(2)?, cx.int(3)?);
    let (dims, last) = dimensions(cx, input.rank())?;
    let mut out = cx.out(4)?;
    let mut sizes = Dims::from_slice(input.sizes())?;
    let expected = "at least 1 and at most twice the last dimension less 1";
    let reach = 2 * sizes[last].min(usize::MAX >> 2);
    let Some(size) = usize::try_from(size).ok().filter(|&n| n > 0 && n < reach) else {
        return Err(Error::from(Detail::Value { what: "last_dim_size", expected, got: size }).arg(3));
    };
    if let Some(&dim) = dims.iter().find(|&&dim| sizes[dim] == 0) {
        return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
    }
    sizes[last] = size;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    match out.dtype() {
        ScalarType::Float => complex_to_real::<f32>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double => complex_to_real::<f64>(cx, input, &dims, last, mode, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "f32 or f64", got }).arg(4)),
    }
}

fn complex_to_real<F: Real>(
    cx: &KernelContext<'_>,
    input: Tensor<'_>,
    dims: &[usize],
    last: usize,
    mode: i64,
    out: &mut TensorMut<'_>,
) -> Result<()>
where
    Complex<F>: Element,
{
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let factor = factor::<F>(mode, dims, &sizes)?;
    let work = workspace::<F>(cx, &sizes, dims)?;
    let mut values = input.as_slice::<Complex<F>>().map_err(|e| e.arg(0))?;
    if dims.len() > 1 {
        let copy = cx.temp::<Complex<F>>(values.len())?;
        copy.copy_from_slice(values);
        for &dim in dims.iter().filter(|&&dim| dim != last) {
            complex_in_place(copy, input.sizes(), input.strides(), dim, Direction::Backward, work)?;
        }
        values = copy;
    }
    let target = out.as_mut_slice::<F>()?;
    let size = sizes[last];
    let mut transform = Transform::new(size, Direction::Backward, work);
    lines([input.sizes(), &sizes], last, [input.strides(), &strides], |[from, to], [from_step, to_step]| {
        let line = transform.line();
        for i in 0..=size / 2 {
            let value = values[from + i * from_step];
            // The second half mirrors the first; what mirrors itself is real.
            if i == 0 || 2 * i == size {
                line[i] = Complex { re: value.re, im: F::ZERO };
            } else {
                line[i] = value;
                line[size - i] = Complex { re: value.re, im: F::ZERO.sub(value.im) };
            }
        }
        for (i, value) in transform.run().iter().enumerate() {
            target[to + i * to_step] = value.re.mul(factor);
        }
    })
}

/// Transforms all lines of a complex tensor along `dim`.
fn complex_in_place<F: Real>(
    values: &mut [Complex<F>],
    sizes: &[usize],
    strides: &[usize],
    dim: usize,
    direction: Direction,
    work: &mut [Complex<F>],
) -> Result<()> {
    let mut transform = Transform::new(sizes.get(dim).copied().unwrap_or(1), direction, work);
    lines([sizes, sizes], dim, [strides, strides], |[start, _], [step, _]| {
        for (i, value) in transform.line().iter_mut().enumerate() {
            *value = values[start + i * step];
        }
        for (i, value) in transform.run().iter().enumerate() {
            values[start + i * step] = *value;
        }
    })
}

/// Calls `line` with the offsets and the steps of each pair of lines along `dim` of two tensors.
fn lines(
    sizes: [&[usize]; 2],
    dim: usize,
    strides: [&[usize]; 2],
    mut line: impl FnMut([usize; 2], [usize; 2]),
) -> Result<()> {
    let steps = strides.map(|strides| strides.get(dim).copied().unwrap_or(0));
    let mut outer = Dims::from_slice(sizes[0])?;
    outer[dim] = 1;
    if numel(&outer)? == 0 || sizes[1].contains(&0) {
        return Ok(());
    }
    let mut walk = Walk::new(&outer, strides)?;
    loop {
        line(walk.offsets, steps);
        if !walk.next() {
            return Ok(());
        }
    }
}

fn scaled<F: Real>(value: Complex<F>, factor: F) -> Complex<F> {
    Complex { re: value.re.mul(factor), im: value.im.mul(factor) }
}
