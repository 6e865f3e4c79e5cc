//! Fourier transforms between real and complex tensors: `_fft_r2c` and `_fft_c2r`.

use rushlight_runtime::{
    Complex, Detail, Element, Error, IntList, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut,
};

use super::transform::{
    Direction, Lanes, Transform, add, add_turned, complex_of, conjugate, each, least_work_len, multiply, scale, turns,
    work_len,
};
use crate::support::real::Real;
use crate::support::shape::{Dims, Walk, normalize_dim, numel};

/// `_fft_r2c.out(Tensor self, int[] dim, int normalization, bool onesided, *, Tensor(a!) out)`
pub const FFT_R2C_OUT: Op = Op::new("aten::_fft_r2c.out", 5, r2c).temp(r2c_temp);
/// `_fft_c2r.out(Tensor self, int[] dim, int normalization, SymInt last_dim_size, *, Tensor(a!) out)`
pub const FFT_C2R_OUT: Op = Op::new("aten::_fft_c2r.out", 5, c2r).temp(c2r_temp);

pub const OPS: OpGroup = &[FFT_R2C_OUT, FFT_C2R_OUT];

/// Lines that are transformed together, if there is more than one.
const LANES: usize = 4;

/// True if the tensor has one line only.
fn is_single(sizes: &[usize], last: usize) -> bool {
    sizes.iter().enumerate().all(|(dim, &size)| dim == last || size == 1)
}

/// Returns the transformed dimensions, and the last of them, which is real on one side.
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

/// Returns the scale factor of normalization mode 0 (1), 1 (1 / sqrt(n)) or 2 (1 / n), with `n` the size of the
/// transform.
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

/// Reals that a transform of length `n` needs: as one transform, or as one of half the length with the twiddle factors
/// that join its halves.
fn work_reals(n: usize, lanes: usize, len: fn(usize, usize) -> Option<usize>) -> Option<usize> {
    let whole = len(n, lanes)?;
    if n.is_multiple_of(2) { len(n / 2, lanes)?.checked_add(n + 2).map(|half| half.max(whole)) } else { Some(whole) }
}

/// Returns memory for the longest transform. If the sizes are smaller than those at load, more may be asked for than
/// was planned; the transform then uses the form that needs least memory.
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
    if n.is_multiple_of(2) {
        // Even and odd elements are the real and imaginary parts of a line of half the length.
        let half = n / 2;
        let (turned, work) = complex_of(work, half + 1);
        turns(turned, n, -1.0);
        let mut transform = Transform::<F, N>::with_turns(half, Direction::Forward, work, turned);
        let half_factor = factor.mul(F::from_f64(0.5));
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            load_pairs(values, lines, from_step, transform.lines());
            let result = transform.run();
            let middle = split_spectrum(result, turned);
            store_numbers(result, half_factor, target, lines, to_step);
            store_number(scale(middle, half_factor), target, lines, half * to_step);
            if kept == n {
                for (k, &value) in result.iter().enumerate().skip(1) {
                    store_number(scale(conjugate(value), half_factor), target, lines, (n - k) * to_step);
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
                store_number(scale(*value, factor), target, lines, k * to_step);
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
    if n.is_multiple_of(2) {
        let half = n / 2;
        let (turned, work) = complex_of(work, half + 1);
        turns(turned, n, 1.0);
        let mut transform = Transform::<F, N>::with_turns(half, Direction::Backward, work, turned);
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            let slots = transform.lines();
            load_numbers(values, lines, from_step, slots);
            join_spectrum(slots, load_number(values, lines, half * from_step), turned);
            store_pairs(transform.run(), factor, target, lines, to_step);
        })
    } else {
        let mut transform = Transform::<F, N>::new(n, Direction::Backward, work);
        lines::<N>(shapes, last, [input.strides(), &strides], |lines, [from_step, to_step]| {
            let slots = transform.lines();
            for k in 0..=n / 2 {
                let value = scale(load_number(values, lines, k * from_step), factor);
                slots[if k == 0 { 0 } else { n - k }] = conjugate(value);
                slots[k] = value;
            }
            // The first slot is its own mirror image, therefore it is real.
            slots[0][1] = [F::ZERO; N];
            for (i, [re, _]) in transform.run().iter().enumerate() {
                for (&[_, to], re) in lines.iter().zip(re) {
                    target[to + i * to_step] = *re;
                }
            }
        })
    }
}

/// Turns transforms of `n / 2` pairs of real numbers into twice the first half of the spectrum of the `n` numbers.
/// Returns twice the middle element, which follows that half. `turned` holds the twiddle factors of length `n`.
fn split_spectrum<F: Real, const N: usize>(slots: &mut [Lanes<F, N>], turned: &[[F; 2]]) -> Lanes<F, N> {
    let Some((first, rest)) = slots.split_first_mut() else { return [[F::ZERO; N]; 2] };
    each_pair(rest, &turned[1..], |[a, b], [c, d], turn| {
        let even = [each(|l| a[l].add(c[l])), each(|l| b[l].sub(d[l]))];
        // -i times the difference belongs to the odd elements.
        let odd = multiply([each(|l| b[l].add(d[l])), each(|l| c[l].sub(a[l]))], turn);
        [add(even, odd), [each(|l| even[0][l].sub(odd[0][l])), each(|l| odd[1][l].sub(even[1][l]))]]
    });
    let [re, im] = add(*first, *first);
    *first = [each(|l| re[l].add(im[l])), [F::ZERO; N]];
    [each(|l| re[l].sub(im[l])), [F::ZERO; N]]
}

/// Inverts [`split_spectrum`]: makes the transform of pairs of real numbers from the first half of a spectrum and its
/// middle element.
fn join_spectrum<F: Real, const N: usize>(slots: &mut [Lanes<F, N>], middle: Lanes<F, N>, turned: &[[F; 2]]) {
    let Some((first, rest)) = slots.split_first_mut() else { return };
    each_pair(rest, &turned[1..], |[a, b], [c, d], turn| {
        let even = [each(|l| a[l].add(c[l])), each(|l| b[l].sub(d[l]))];
        let odd = multiply([each(|l| a[l].sub(c[l])), each(|l| b[l].add(d[l]))], turn);
        [add_turned(even, odd), [each(|l| even[0][l].add(odd[1][l])), each(|l| odd[0][l].sub(even[1][l]))]]
    });
    // The first slot is its own mirror image, therefore it is real.
    *first = [each(|l| first[0][l].add(middle[0][l])), each(|l| first[0][l].sub(middle[0][l]))];
}

/// Replaces each slot together with its mirror image: the last slot mirrors the first, and the middle one mirrors
/// itself.
#[inline(always)]
fn each_pair<F: Real, const N: usize>(
    slots: &mut [Lanes<F, N>],
    turned: &[[F; 2]],
    f: impl Fn(Lanes<F, N>, Lanes<F, N>, [F; 2]) -> [Lanes<F, N>; 2],
) {
    let pairs = slots.len() / 2;
    let (low, high) = slots.split_at_mut(pairs);
    for ((slot, mirror), &turn) in low.iter_mut().zip(high.iter_mut().rev()).zip(turned) {
        [*slot, *mirror] = f(*slot, *mirror, turn);
    }
    if high.len() > pairs
        && let (Some(slot), Some(&turn)) = (high.first_mut(), turned.get(pairs))
    {
        *slot = f(*slot, *slot, turn)[0];
    }
}

/// Starts of the lines in one of both tensors, if there are `N` and their elements are adjacent.
fn starts<const N: usize>(lines: &[[usize; 2]], side: usize, step: usize) -> Option<[usize; N]> {
    (lines.len() == N && step == 1).then(|| each(|l| lines[l][side]))
}

/// Reads lines of real numbers as half as many complex ones.
fn load_pairs<F: Real, const N: usize>(values: &[F], lines: &[[usize; 2]], step: usize, slots: &mut [Lanes<F, N>]) {
    let len = slots.len();
    if let Some(starts) = starts::<N>(lines, 0, step) {
        let lines: [&[[F; 2]]; N] = each(|l| &values[starts[l]..].as_chunks().0[..len]);
        for (i, slot) in slots.iter_mut().enumerate() {
            *slot = [each(|l| lines[l][i][0]), each(|l| lines[l][i][1])];
        }
        return;
    }
    for (l, &[from, _]) in lines.iter().enumerate().take(N) {
        for (i, slot) in slots.iter_mut().enumerate() {
            [slot[0][l], slot[1][l]] = [values[from + 2 * i * step], values[from + (2 * i + 1) * step]];
        }
    }
}

/// Inverts [`load_pairs`] and multiplies by `factor`.
fn store_pairs<F: Real, const N: usize>(
    slots: &[Lanes<F, N>],
    factor: F,
    target: &mut [F],
    lines: &[[usize; 2]],
    step: usize,
) {
    let mut done = 0;
    if let Some(starts) = starts::<N>(lines, 1, step)
        && let Ok(lines) = target.get_disjoint_mut(starts.map(|start| start..start + 2 * slots.len()))
    {
        let twos = slots.as_chunks::<2>().0;
        let lines = lines.map(|line| &mut line.as_chunks_mut().0[..twos.len()]);
        for (i, [a, b]) in twos.iter().enumerate() {
            for l in 0..N {
                lines[l][i] = [a[0][l], a[1][l], b[0][l], b[1][l]].map(|x| x.mul(factor));
            }
        }
        done = 2 * twos.len();
    }
    for (i, [re, im]) in slots.iter().enumerate().skip(done) {
        for ((&[_, to], re), im) in lines.iter().zip(re).zip(im) {
            target[to + 2 * i * step] = re.mul(factor);
            target[to + (2 * i + 1) * step] = im.mul(factor);
        }
    }
}

/// Reads lines of complex numbers.
fn load_numbers<F: Real, const N: usize>(
    values: &[Complex<F>],
    lines: &[[usize; 2]],
    step: usize,
    slots: &mut [Lanes<F, N>],
) {
    let len = slots.len();
    if let Some(starts) = starts::<N>(lines, 0, step) {
        let lines: [&[Complex<F>]; N] = each(|l| &values[starts[l]..][..len]);
        for (i, slot) in slots.iter_mut().enumerate() {
            *slot = [each(|l| lines[l][i].re), each(|l| lines[l][i].im)];
        }
        return;
    }
    for (i, slot) in slots.iter_mut().enumerate() {
        *slot = load_number(values, lines, i * step);
    }
}

/// Reads the element at `distance` after the start of each line.
fn load_number<F: Real, const N: usize>(values: &[Complex<F>], lines: &[[usize; 2]], distance: usize) -> Lanes<F, N> {
    let mut slot = [[F::ZERO; N]; 2];
    for (l, &[from, _]) in lines.iter().enumerate().take(N) {
        let value = values[from + distance];
        [slot[0][l], slot[1][l]] = [value.re, value.im];
    }
    slot
}

/// Inverts [`load_numbers`] and multiplies by `factor`.
fn store_numbers<F: Real, const N: usize>(
    slots: &[Lanes<F, N>],
    factor: F,
    target: &mut [Complex<F>],
    lines: &[[usize; 2]],
    step: usize,
) {
    let mut done = 0;
    if let Some(starts) = starts::<N>(lines, 1, step)
        && let Ok(lines) = target.get_disjoint_mut(starts.map(|start| start..start + slots.len()))
    {
        let twos = slots.as_chunks::<2>().0;
        let lines = lines.map(|line| &mut line.as_chunks_mut().0[..twos.len()]);
        for (i, [a, b]) in twos.iter().enumerate() {
            for l in 0..N {
                let [x, y, z, w] = [a[0][l], a[1][l], b[0][l], b[1][l]].map(|x| x.mul(factor));
                lines[l][i] = [Complex { re: x, im: y }, Complex { re: z, im: w }];
            }
        }
        done = 2 * twos.len();
    }
    for (i, &slot) in slots.iter().enumerate().skip(done) {
        store_number(scale(slot, factor), target, lines, i * step);
    }
}

/// Inverts [`load_number`].
fn store_number<F: Real, const N: usize>(
    [re, im]: Lanes<F, N>,
    target: &mut [Complex<F>],
    lines: &[[usize; 2]],
    distance: usize,
) {
    for ((&[_, to], re), im) in lines.iter().zip(re).zip(im) {
        target[to + distance] = Complex { re, im };
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
