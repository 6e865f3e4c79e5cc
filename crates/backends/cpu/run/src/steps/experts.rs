//! GEMMs of rows with the matrices of the experts that they have chosen. Matrices that no row has chosen are not read.

use rushlight_cpu_payload::{Experts, Int8Epilogue, Matmul, MatmulKind};
use rushlight_engine::{
    Engine, Epilogue, FloatSlice, Gemm, GroupwiseEpilogue, QuantEpilogue, RowQparams, Weights, gemm, gemm_u8,
    gemm_u8_groupwise,
};
use rushlight_runtime::{Detail, Result};

use super::RunStep;
use crate::epilogue;
use crate::error::Unfit;
use crate::memory::{Reader, StepContext, done};

const KIND: Unfit = Unfit::Part("a GEMM of experts with weights of another form");

impl RunStep for Experts {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.matmul.y)?;
        let k = reader.dims(self.matmul.a).last().copied().unwrap_or(1);
        let n = reader.dims(self.matmul.y).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(n).unwrap_or(0);
        let count = self.count as usize;
        let index = reader.floats(self.index)?;
        if index.len() != rows {
            return Err(Unfit::Count { what: "rows of experts", expected: rows, got: index.len() }.into());
        }
        let (expected, got) = (rows.checked_mul(k).ok_or(Unfit::Overflow)?, reader.shapes.span(self.matmul.a).1);
        if got != expected {
            return Err(Unfit::Count { what: "elements of the rows of experts", expected, got }.into());
        }
        if let Some(index) = index.iter().find(|index| !(0.0..count as f32).contains(*index)) {
            return Err(Detail::Index { index: *index as i64, size: count }.into());
        }
        // Stable, so that the rows of one expert stay in their order.
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by_key(|row| index.get(*row).map_or(0, |index| *index as usize));
        let gemm_of = ExpertGemm { step: self, engine, reader, k, n, count };
        let expert = |row: &usize| index.get(*row).map_or(0, |index| *index as usize);
        let mut result = Vec::new();
        for rows in order.chunk_by(|row, other| expert(row) == expert(other)) {
            let expert = rows.first().map_or(0, expert);
            if let [row] = rows {
                let place = y.get_mut(row * n..(row + 1) * n).ok_or(Unfit::Overflow)?;
                gemm_of.run(expert, rows, place)?;
                continue;
            }
            result.clear();
            result.resize(rows.len() * n, 0.0);
            gemm_of.run(expert, rows, &mut result)?;
            for (row, result) in rows.iter().zip(result.chunks_exact(n.max(1))) {
                y.get_mut(row * n..(row + 1) * n).ok_or(Unfit::Overflow)?.copy_from_slice(result);
            }
        }
        Ok(())
    }
}

/// The GEMMs of a step.
struct ExpertGemm<'a, 's, 'o, 'c, 'm> {
    step: &'a Experts,
    engine: &'a Engine,
    reader: Reader<'s, 'o, 'c, 'm>,
    k: usize,
    n: usize,
    count: usize,
}

impl ExpertGemm<'_, '_, '_, '_, '_> {
    /// Multiplies some rows by the matrix of an expert.
    fn run(&self, expert: usize, rows: &[usize], y: &mut [f32]) -> Result<()> {
        let &Self { step, engine, reader, k, n, count } = self;
        let Matmul { a, b, kind, .. } = &step.matmul;
        let size = Gemm::new(rows.len(), n, k);
        let columns = |all: usize| expert * n..all.min((expert + 1) * n);
        match kind {
            MatmulKind::Packed { format, epilogue } => {
                let weights = match reader.weights(*b, *format)? {
                    Weights::F32(floats) => Weights::F32(self.part(expert, floats)?),
                    Weights::Half(half, bits) => Weights::Half(half, self.part(expert, bits)?),
                    Weights::Quantized(_) => return Err(KIND.into()),
                };
                let epilogue = Epilogue { activation: epilogue.activation, ..Epilogue::default() };
                let a = gathered(reader.floats(*a)?, rows, k)?;
                done(gemm(engine, &size, FloatSlice::F32(&a), weights, y, &epilogue))
            }
            MatmulKind::WeightOnly { format, epilogue } => {
                let all = n.checked_mul(count).ok_or(Unfit::Overflow)?;
                let weights = reader.quantized_weights(*b, &format.matrix(k, all))?;
                let weights = weights.window(expert * n, n).ok_or(KIND)?;
                let epilogue = Epilogue { activation: epilogue.activation, ..Epilogue::default() };
                let a = gathered(reader.floats(*a)?, rows, k)?;
                done(gemm(engine, &size, FloatSlice::F32(&a), Weights::Quantized(weights), y, &epilogue))
            }
            MatmulKind::Int8 { epilogue: epilogue @ Int8Epilogue::Dynamic { .. } } => {
                let all = epilogue::int8(epilogue, n, &reader)?;
                let (scales, zero_points) = qparams_of(all.rows.ok_or(KIND)?, rows)?;
                let part = QuantEpilogue {
                    offsets: all.offsets.get(columns(all.offsets.len())).ok_or(KIND)?,
                    scales: all.scales.get(columns(all.scales.len())).ok_or(KIND)?,
                    rows: Some(RowQparams { scales: &scales, zero_points: &zero_points }),
                    ..all
                };
                let a = gathered(reader.quantized(*a)?, rows, k)?;
                done(gemm_u8(engine, &size, &a, self.part(expert, reader.int8_weights(*b)?)?, y.into(), &part))
            }
            MatmulKind::Groupwise { format, epilogue } => {
                let all = epilogue::groupwise(epilogue, &reader)?;
                let (scales, zero_points) = qparams_of(all.rows, rows)?;
                let part = GroupwiseEpilogue {
                    rows: RowQparams { scales: &scales, zero_points: &zero_points },
                    sums: all.sums.get(columns(all.sums.len())).ok_or(KIND)?,
                    ..all
                };
                let a = gathered(reader.quantized(*a)?, rows, k)?;
                let b = self.part(expert, reader.packed_bytes(*b)?)?;
                done(gemm_u8_groupwise(engine, rows.len(), &a, (format.matrix(k, n), b), y, &part))
            }
            MatmulKind::Int8 { .. } | MatmulKind::Dense { .. } => Err(KIND.into()),
        }
    }

    /// The panels of an expert, whose columns are in order.
    fn part<'w, T>(&self, expert: usize, all: &'w [T]) -> Result<&'w [T]> {
        let each = all.len().checked_div(self.count).unwrap_or(0);
        Ok(all.get(expert * each..(expert + 1) * each).ok_or(KIND)?)
    }
}

/// Scales and zero points of some rows.
fn qparams_of(all: RowQparams<'_>, rows: &[usize]) -> Result<(Vec<f32>, Vec<f32>)> {
    let of = |numbers: &[f32]| -> Result<Vec<f32>> {
        match *numbers {
            [one] => Ok(vec![one; rows.len()]),
            _ => Ok(rows.iter().map(|row| numbers.get(*row).copied()).collect::<Option<_>>().ok_or(KIND)?),
        }
    };
    Ok((of(all.scales)?, of(all.zero_points)?))
}

/// Some rows of `k` elements: where they are if they stand together, or copied.
fn gathered<'a, T: Copy>(all: &'a [T], rows: &[usize], k: usize) -> Result<std::borrow::Cow<'a, [T]>> {
    let one = |row: usize| all.get(row * k..(row + 1) * k).ok_or(Unfit::Overflow);
    if let [row] = rows {
        return Ok(one(*row)?.into());
    }
    let mut found = Vec::with_capacity(rows.len() * k);
    for row in rows {
        found.extend_from_slice(one(*row)?);
    }
    Ok(found.into())
}
