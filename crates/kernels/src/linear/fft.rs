//! Fourier transforms between real and complex tensors: `_fft_r2c` and `_fft_c2r`.

use rushlight_runtime::{
    Complex, Detail, Element, Error, IntList, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut,
};

use super::transform::{
    Direction, Lanes, Transform, add, conjugate, least_work_len, multiply, numbers, scale, subtract, turn_left, turns,
    work_len,
};
use crate::support::real::Real;
use crate::support::shape::{Dims, Walk, normalize_dim, numel};

/// `_fft_r2c.out(Tensor self, int[] dim, int normalization, bool onesided, *, Tensor(a!) out)`
pub const FFT_R2C_OUT: Op = Op::new("aten::_fft_r2c.out", 5, r2c).temp(r2c_temp);
/// `_fft_c2r.out(Tensor self, int[] dim, int normalization, SymInt last_dim_size, *, Tensor(a!) out)`
pub const FFT_C2R_OUT: Op = Op::new("aten::_fft_c2r.out", 5, c2r).temp(c2r_temp);

pub const OPS: OpGroup = &[FFT_R2C_OUT, FFT_C2R_OUT];

/// Lines that are transformed side by side, if there is more than one.
const LANES: usize = 4;

/// True if one line is all there is.
fn is_single(sizes: &[usize], last: usize) -> bool {
    sizes.iter().enumerate().all(|(dim, &size)| dim == last || size == 1)
}

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
    let (dims, last) = dimensions(cx, input.rank())?;
    temp_bytes(input.dtype().size(), input.sizes(), &dims, last, 0)
}

fn c2r_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let input = cx.tensor(0)?;
    let (dims, last) = dimensions(cx, input.rank())?;
    let mut sizes = Dims::from_slice(input.sizes())?;
    let whole = if dims.len() > 1 { numel(&sizes)?.saturating_mul(2) } else { 0 };
    // Only the output's size is transformed along the last dimension.
    let size = usize::try_from(cx.int(3)?).unwrap_or(0);
    sizes[last] = if size > 0 { size } else { sizes[last].saturating_mul(2) };
    temp_bytes(input.dtype().size() / 2, &sizes, &dims, last, whole)
}

/// Bytes for the longest transform and `extra` reals of `width` bytes.
fn temp_bytes(width: usize, sizes: &[usize], dims: &[usize], last: usize, extra: usize) -> Result<usize> {
    let lanes = if is_single(sizes, last) { 1 } else { LANES };
    let longest = dims.iter().filter_map(|&dim| sizes.get(dim)).map(|&n| work_reals(n, lanes, work_len)).max();
    longest
        .unwrap_or(Some(0))
        .and_then(|len| len.checked_add(extra)?.checked_mul(width)?.checked_add(64))
        .ok_or_else(|| Error::invalid("the transform needs more temporary memory than can be addressed"))
}

/// Reals for a transform of length `n`, as a whole or as one of half the length and the turns that join its halves.
fn work_reals(n: usize, lanes: usize, len: fn(usize, usize) -> Option<usize>) -> Option<usize> {
    let whole = len(n, lanes)?;
    if n.is_multiple_of(2) { len(n / 2, lanes)?.checked_add(n + 2).map(|half| half.max(whole)) } else { Some(whole) }
}

/// Memory for the longest transform. Sizes smaller than those that the method was loaded with may ask for more than
/// there is; then they make do with less.
fn workspace<'c, F: Real>(
    cx: &'c KernelContext<'_>,
    sizes: &[usize],
    dims: &[usize],
    lanes: usize,
) -> Result<&'c mut [F]> {
    let longest = |len: fn(usize, usize) -> Option<usize>| {
        dims.iter().filter_map(|&dim| work_reals(*sizes.get(dim)?, lanes, len)).max().unwrap_or(0)
    };
    cx.temp(longest(work_len)).or_else(|_| cx.temp(longest(least_work_len)))
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
    let single = is_single(input.sizes(), last);
    match input.dtype() {
        ScalarType::Float if single => real_to_complex::<f32, 1>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Float => real_to_complex::<f32, LANES>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double if single => real_to_complex::<f64, 1>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double => real_to_complex::<f64, LANES>(cx, input, &dims, last, mode, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "f32 or f64", got }).arg(0)),
    }
}

fn real_to_complex<F: Real, const N: usize>(
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
    let work = workspace::<F>(cx, input.sizes(), dims, N)?;
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let values = input.as_slice::<F>()?;
    let target = out.as_mut_slice::<Complex<F>>().map_err(|e| e.arg(4))?;
    let (n, kept) = (input.size(last), sizes[last]);
    let shapes = [input.sizes(), &sizes];
    let mut write = |lines: &[[usize; 2]], step: usize, k: usize, [re, im]: Lanes<F, N>| {
        for ((&[_, to], re), im) in lines.iter().zip(re).zip(im) {
            target[to + k * step] = Complex { re, im };
        }
    };
    if n.is_multiple_of(2) {
        // Even and odd elements are the real and imaginary parts of a line of half the length.
        let half = n / 2;
        let (turned, work) = numbers(work, half + 1);
        turns(turned, n, -1.0);
        let mut transform = Transform::<F, N>::new(half, Direction::Forward, work);
        let scale_half = factor.mul(F::from_f64(0.5));
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            load_pairs(values, lines, from_step, n, transform.lines());
            let result = transform.run();
            for (k, &turn) in turned.iter().enumerate().take(half / 2 + 1) {
                let mirror = half - k;
                let (value, mirrored) = (result[k], conjugate(result[if k == 0 { 0 } else { mirror }]));
                // -i times the difference belongs to the odd elements.
                let odd = multiply(turn_left(subtract(value, mirrored), F::ZERO.sub(F::ONE)), turn);
                let even = add(value, mirrored);
                let sums = [
                    (k, scale(add(even, odd), scale_half)),
                    (mirror, scale(conjugate(subtract(even, odd)), scale_half)),
                ];
                for (k, sum) in sums {
                    write(lines, to_step, k, sum);
                    if n - k < kept && k > 0 {
                        write(lines, to_step, n - k, conjugate(sum));
                    }
                }
            }
        })?;
    } else {
        let mut transform = Transform::<F, N>::new(n, Direction::Forward, work);
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            for (l, &[from, _]) in lines.iter().enumerate() {
                for (i, [re, im]) in transform.lines().iter_mut().enumerate() {
                    (re[l], im[l]) = (values[from + i * from_step], F::ZERO);
                }
            }
            for (k, value) in transform.run().iter().take(kept).enumerate() {
                write(lines, to_step, k, scale(*value, factor));
            }
        })?;
    }
    for &dim in dims.iter().rev().filter(|&&dim| dim != last) {
        complex_in_place::<F, N>(target, &sizes, &strides, dim, Direction::Forward, work)?;
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
    let single = is_single(input.sizes(), last);
    match out.dtype() {
        ScalarType::Float if single => complex_to_real::<f32, 1>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Float => complex_to_real::<f32, LANES>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double if single => complex_to_real::<f64, 1>(cx, input, &dims, last, mode, &mut out),
        ScalarType::Double => complex_to_real::<f64, LANES>(cx, input, &dims, last, mode, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "f32 or f64", got }).arg(4)),
    }
}

fn complex_to_real<F: Real, const N: usize>(
    cx: &KernelContext<'_>,
    input: Tensor<'_>,
    dims: &[usize],
    last: usize,
    mode: i64,
    out: &mut TensorMut<'_>,
) -> Result<()>
where
    Complex<F>: Element + Default,
{
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let factor = factor::<F>(mode, dims, &sizes)?;
    let work = workspace::<F>(cx, &sizes, dims, N)?;
    let mut values = input.as_slice::<Complex<F>>().map_err(|e| e.arg(0))?;
    if dims.len() > 1 {
        let copy = cx.temp::<Complex<F>>(values.len())?;
        copy.copy_from_slice(values);
        for &dim in dims.iter().filter(|&&dim| dim != last) {
            complex_in_place::<F, N>(copy, input.sizes(), input.strides(), dim, Direction::Backward, work)?;
        }
        values = copy;
    }
    let target = out.as_mut_slice::<F>()?;
    let n = sizes[last];
    let shapes = [input.sizes(), &sizes];
    let read = |lines: &Numbers<'_, F>, k: usize| {
        let mut value = lines.get(k);
        // What is its own mirror image is real.
        if k == 0 || 2 * k == n {
            value[1] = [F::ZERO; N];
        }
        scale(value, factor)
    };
    if n.is_multiple_of(2) {
        let half = n / 2;
        let (turned, work) = numbers(work, half + 1);
        turns(turned, n, 1.0);
        let mut transform = Transform::<F, N>::new(half, Direction::Backward, work);
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            let numbers = Numbers::new(values, lines, from_step, half + 1);
            let slots = transform.lines();
            for (k, &turn) in turned.iter().enumerate().take(half / 2 + 1) {
                let mirror = half - k;
                let (value, mirrored) = (read(&numbers, k), conjugate(read(&numbers, mirror)));
                let odd = turn_left(multiply(subtract(value, mirrored), turn), F::ONE);
                let even = add(value, mirrored);
                if k > 0 {
                    slots[mirror] = conjugate(subtract(even, odd));
                }
                slots[k] = add(even, odd);
            }
            store_pairs(transform.run(), target, lines, to_step, n);
        })
    } else {
        let mut transform = Transform::<F, N>::new(n, Direction::Backward, work);
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            let numbers = Numbers::new(values, lines, from_step, n / 2 + 1);
            let slots = transform.lines();
            for k in 0..=n / 2 {
                let value = read(&numbers, k);
                slots[if k == 0 { 0 } else { n - k }] = conjugate(value);
                slots[k] = value;
            }
            for (i, [re, _]) in transform.run().iter().enumerate() {
                for (&[_, to], re) in lines.iter().zip(re) {
                    target[to + i * to_step] = *re;
                }
            }
        })
    }
}

/// Reads lines of `n` real numbers, an even number, as half as many complex ones.
fn load_pairs<F: Real, const N: usize>(
    values: &[F],
    lines: &[[usize; 2]],
    step: usize,
    n: usize,
    slots: &mut [Lanes<F, N>],
) {
    if let ([a, b, c, d], 1, LANES) = (lines, step, N) {
        let [a, b, c, d] = [a, b, c, d].map(|&[from, _]| values[from..][..n].as_chunks::<2>().0);
        for ([re, im], (((a, b), c), d)) in slots.iter_mut().zip(a.iter().zip(b).zip(c).zip(d)) {
            re.copy_from_slice(&[a[0], b[0], c[0], d[0]]);
            im.copy_from_slice(&[a[1], b[1], c[1], d[1]]);
        }
        return;
    }
    for (l, &[from, _]) in lines.iter().enumerate() {
        for (i, [re, im]) in slots.iter_mut().enumerate() {
            re[l] = values[from + 2 * i * step];
            im[l] = values[from + (2 * i + 1) * step];
        }
    }
}

/// Lines of complex numbers that are read side by side.
enum Numbers<'a, F> {
    /// As many as there are lanes, each next to each other.
    Slices([&'a [Complex<F>]; LANES]),
    Strided(&'a [Complex<F>], &'a [[usize; 2]], usize),
}

impl<'a, F: Real> Numbers<'a, F> {
    /// The first `len` numbers of each line.
    fn new(values: &'a [Complex<F>], lines: &'a [[usize; 2]], step: usize, len: usize) -> Self {
        match (lines, step) {
            ([a, b, c, d], 1) => Self::Slices([a, b, c, d].map(|&[from, _]| &values[from..][..len])),
            _ => Self::Strided(values, lines, step),
        }
    }

    /// Number `k` of up to `N` lines.
    #[inline(always)]
    fn get<const N: usize>(&self, k: usize) -> Lanes<F, N> {
        let [mut re, mut im] = [[F::ZERO; N]; 2];
        match self {
            Self::Slices(slices) if N == LANES => {
                let [a, b, c, d] = slices.map(|line| line[k]);
                re.copy_from_slice(&[a.re, b.re, c.re, d.re]);
                im.copy_from_slice(&[a.im, b.im, c.im, d.im]);
            }
            Self::Slices(_) => {}
            Self::Strided(values, lines, step) => {
                for ((&[from, _], re), im) in lines.iter().zip(&mut re).zip(&mut im) {
                    let number = values[from + k * step];
                    (*re, *im) = (number.re, number.im);
                }
            }
        }
        [re, im]
    }
}

/// Writes complex numbers as lines of `n` real ones, twice as many.
fn store_pairs<F: Real, const N: usize>(
    slots: &[Lanes<F, N>],
    target: &mut [F],
    lines: &[[usize; 2]],
    step: usize,
    n: usize,
) {
    if let ([a, b, c, d], 1) = (lines, step)
        && let Ok([a, b, c, d]) = target.get_disjoint_mut([a, b, c, d].map(|&[_, to]| to..to + n))
    {
        let [a, b, c, d] = [a, b, c, d].map(|line| line.as_chunks_mut::<2>().0);
        for ([re, im], (((a, b), c), d)) in slots.iter().zip(a.iter_mut().zip(b).zip(c).zip(d)) {
            if let (&[a0, b0, c0, d0], &[a1, b1, c1, d1]) = (&re[..], &im[..]) {
                (*a, *b, *c, *d) = ([a0, a1], [b0, b1], [c0, c1], [d0, d1]);
            }
        }
        return;
    }
    for (i, [re, im]) in slots.iter().enumerate() {
        for ((&[_, to], re), im) in lines.iter().zip(re).zip(im) {
            (target[to + 2 * i * step], target[to + (2 * i + 1) * step]) = (*re, *im);
        }
    }
}

/// Transforms all lines of a complex tensor along `dim`.
fn complex_in_place<F: Real, const N: usize>(
    values: &mut [Complex<F>],
    sizes: &[usize],
    strides: &[usize],
    dim: usize,
    direction: Direction,
    work: &mut [F],
) -> Result<()> {
    let mut transform = Transform::<F, N>::new(sizes.get(dim).copied().unwrap_or(1), direction, work);
    lines::<N>([sizes, sizes], dim, [strides, strides], |lines, [step, _]| {
        for (l, &[start, _]) in lines.iter().enumerate() {
            for (i, [re, im]) in transform.lines().iter_mut().enumerate() {
                let value = values[start + i * step];
                (re[l], im[l]) = (value.re, value.im);
            }
        }
        for (i, [re, im]) in transform.run().iter().enumerate() {
            for ((&[start, _], &re), &im) in lines.iter().zip(re).zip(im) {
                values[start + i * step] = Complex { re, im };
            }
        }
    })
}

/// Calls `batch` with the offsets of up to `N` pairs of lines along `dim` of two tensors, and with the steps.
fn lines<const N: usize>(
    sizes: [&[usize]; 2],
    dim: usize,
    strides: [&[usize]; 2],
    mut batch: impl FnMut(&[[usize; 2]], [usize; 2]),
) -> Result<()> {
    let steps = strides.map(|strides| strides.get(dim).copied().unwrap_or(0));
    let mut outer = Dims::from_slice(sizes[0])?;
    outer[dim] = 1;
    if numel(&outer)? == 0 || sizes[1].contains(&0) {
        return Ok(());
    }
    let mut walk = Walk::new(&outer, strides)?;
    let (mut offsets, mut count, mut more) = ([[0; 2]; N], 0, true);
    while more {
        offsets[count] = walk.offsets;
        count += 1;
        more = walk.next();
        if count == N || !more {
            batch(&offsets[..count], steps);
            count = 0;
        }
    }
    Ok(())
}
