//! The arithmetic that the normalizations share.

use rushlight_runtime::{Detail, Error, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, TILE, Writer, map_run};
use crate::support::real::Real;
use crate::support::reduce::{Bounded, COLUMNS, Group, Moments, Nest, Row};
use crate::support::tile::Compute;

/// A floating type that normalizations compute in.
pub(super) trait Float: Real + Compute + Bounded {
    /// 1 / sqrt(variance + eps)
    fn rstd(variance: Self, eps: f64) -> Self {
        Self::ONE / Self::from_f64(variance.to_f64() + eps).sqrt()
    }
}

impl Float for f32 {}
impl Float for f64 {}

/// Fails unless the tensor, argument `index`, has a floating type.
pub(super) fn check_floating(dtype: ScalarType, index: usize) -> Result<()> {
    if dtype.is_floating() {
        return Ok(());
    }
    Err(Error::from(Detail::Dtype { expected: "a floating type", got: dtype }).arg(index))
}

/// Fails unless the tensor, argument `index`, has these sizes.
pub(super) fn check_sizes(tensor: &Tensor<'_>, sizes: &[usize], index: usize) -> Result<()> {
    if tensor.rank() != sizes.len() {
        let (what, expected, got) = ("rank", sizes.len(), tensor.rank());
        return Err(Error::from(Detail::Count { what, expected, got }).arg(index));
    }
    for (dim, (&expected, &got)) in sizes.iter().zip(tensor.sizes()).enumerate() {
        if expected != got {
            return Err(Error::from(Detail::Size { dim, expected, got }).arg(index));
        }
    }
    Ok(())
}

/// An optional tensor of factors or summands, with a fixed place in the nest: set 2 for weights, 3 for biases.
pub(super) struct Parameter<'a, C> {
    reader: Option<Reader<'a, C>>,
    /// Stands for an absent tensor.
    neutral: C,
    set: usize,
}

impl<'a, C: Float> Parameter<'a, C> {
    pub(super) fn weight(tensor: Option<Tensor<'a>>) -> Result<Self> {
        Ok(Self { reader: tensor.map(Reader::new).transpose()?, neutral: C::ONE, set: 2 })
    }

    pub(super) fn bias(tensor: Option<Tensor<'a>>) -> Result<Self> {
        Ok(Self { reader: tensor.map(Reader::new).transpose()?, neutral: C::ZERO, set: 3 })
    }

    fn stride<const S: usize>(&self, strides: &[usize; S]) -> usize {
        if self.reader.is_some() { strides[self.set] } else { 0 }
    }

    fn first<const S: usize>(&self, row: &Row<S>) -> C {
        let mut first = [self.neutral];
        if let Some(reader) = &self.reader {
            reader.gather(row.offsets[self.set], 1, &mut first);
        }
        first[0]
    }

    /// The values for the elements from `start` on of a row.
    #[inline]
    fn tile<'b, const S: usize>(
        &'b self,
        row: &Row<S>,
        strides: &[usize; S],
        (start, len): (usize, usize),
        buffer: &'b mut [C; TILE],
    ) -> &'b [C] {
        let (offset, stride) = (row.offsets[self.set], strides[self.set]);
        match &self.reader {
            Some(reader) if stride == 1 => reader.tile(offset + start, len, buffer),
            Some(reader) if stride > 1 => {
                reader.gather(offset + start * stride, stride, &mut buffer[..len]);
                &buffer[..len]
            }
            _ => {
                buffer[..len].fill(self.first(row));
                &buffer[..len]
            }
        }
    }
}

/// Writes `(x - mean) * rstd * weight + bias` for the elements of the group. The sets of the nest are the input, the
/// output, the weight and the bias, then others.
pub(super) fn normalize<C: Float, const S: usize>(
    group: &mut Group<'_, S>,
    from: &Reader<'_, C>,
    to: &mut Writer<'_, C>,
    means: &[C; COLUMNS],
    rstds: &[C; COLUMNS],
    weight: &Parameter<'_, C>,
    bias: &Parameter<'_, C>,
) -> Result<()> {
    let (is_run, strides) = (group.is_run(), group.strides());
    let constant = is_run && weight.stride(&strides) == 0 && bias.stride(&strides) == 0;
    group.rows(|row| {
        let place = (row.offsets[1], strides[1]);
        if constant {
            let (mean, scale, shift) = (means[0], rstds[0].mul(weight.first(&row)), bias.first(&row));
            return map_run(from, to, row.offsets[0], place, row.len, |_, x, y| {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = x.sub(mean).mul(scale).add(shift);
                }
            });
        }
        map_run(from, to, row.offsets[0], place, row.len, |start, x, y| {
            let (mut weights, mut biases) = ([C::ZERO; TILE], [C::ZERO; TILE]);
            for (i, (x, y)) in x.chunks(TILE).zip(y.chunks_mut(TILE)).enumerate() {
                let span = (start + i * TILE, x.len());
                let weights = weight.tile(&row, &strides, span, &mut weights);
                let biases = bias.tile(&row, &strides, span, &mut biases);
                let parameters = weights.iter().zip(biases);
                if is_run {
                    let (mean, rstd) = (means[0], rstds[0]);
                    for ((y, &x), (&w, &b)) in y.iter_mut().zip(x).zip(parameters) {
                        *y = x.sub(mean).mul(rstd).mul(w).add(b);
                    }
                } else {
                    let stats = means.iter().zip(rstds);
                    for (((y, &x), (&w, &b)), (&mean, &rstd)) in y.iter_mut().zip(x).zip(parameters).zip(stats) {
                        *y = x.sub(mean).mul(rstd.mul(w)).add(b);
                    }
                }
            }
        })
    })
}

/// Writes the groups, normalized by their own moments, and the moments. The sets of the nest are the input, the output,
/// the weight, the bias, the mean and the reciprocal standard deviation.
pub(super) fn normalize_by_moments<C: Float>(
    nest: &Nest<6>,
    input: &Tensor<'_>,
    [weight, bias]: [Option<Tensor<'_>>; 2],
    eps: f64,
    [out, mean, rstd]: [TensorMut<'_>; 3],
) -> Result<()> {
    let from = Reader::<C>::new(*input)?;
    let (weight, bias) = (Parameter::weight(weight)?, Parameter::bias(bias)?);
    let [mut to, mut mean, mut rstd] = [Writer::new(out)?, Writer::new(mean)?, Writer::new(rstd)?];
    let count = nest.count() as f64;
    let (mut moments, mut rstds) = (Moments::<C>::new(), [C::ZERO; COLUMNS]);
    nest.groups(|group| {
        let (means, squares) = moments.measure(group, &from)?;
        for (rstd, squares) in rstds[..group.columns].iter_mut().zip(&*squares) {
            *rstd = C::rstd(C::from_f64(squares.to_f64() / count), eps);
        }
        if count == 0.0 {
            *means = [C::ZERO; COLUMNS];
        }
        normalize(group, &from, &mut to, means, &rstds, &weight, &bias)?;
        mean.scatter(group.offsets[4], group.strides()[4], &means[..group.columns])?;
        rstd.scatter(group.offsets[5], group.strides()[5], &rstds[..group.columns])
    })
}
