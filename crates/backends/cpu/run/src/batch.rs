//! Batched calls of several sessions. A GEMM with constant weights reads them once for the rows of all calls. All other
//! steps run for one call after the other.

use bytemuck::Pod;
use rushlight_cpu_payload::{self as payload, Int8Epilogue, MatmulKind, TensorId};
use rushlight_engine::{
    Data, DataMut, Engine, Epilogue, FloatSlice, FloatSliceMut, Gemm, QuantOut, Residual, RowQparams, Weights,
};
use rushlight_runtime::{DelegateContext, Result, TensorMut};

use crate::epilogue;
use crate::error::Unfit;
use crate::isolated::Isolated;
use crate::memory::{Arena, Memory, StepContext, done};
use crate::shapes::Shapes;
use crate::state::States;

const NOT_SHARED: Unfit = Unfit::Part("a GEMM whose weights are not constant");

/// The sizes, intermediate results and states of one call.
pub(crate) struct Lane {
    pub shapes: Shapes,
    pub arena: Arena,
    pub states: States,
}

impl Lane {
    /// Creates a lane for another call of the same program.
    pub fn another(&self) -> Result<Self> {
        Ok(Self { shapes: self.shapes.clone(), arena: self.arena.another()?, states: self.states.another() })
    }

    pub fn step_context<'s, 'o, 'c, 'm>(
        &'s mut self,
        context: &'s DelegateContext<'c>,
        memory: &'s Memory<'m>,
        outputs: &'s mut [Option<TensorMut<'o>>],
        scratch: &'s mut [f32],
    ) -> StepContext<'s, 'o, 'c, 'm> {
        let Self { shapes, arena, states } = self;
        let (states, isolated) = (states.floats(), Isolated::default());
        StepContext { context, memory, shapes, arena, states, outputs, scratch, isolated }
    }
}

/// A call of a batch.
pub(crate) struct LaneCall<'b, 'c> {
    pub lane: &'b mut Lane,
    pub context: &'b DelegateContext<'c>,
    pub outputs: Vec<Option<TensorMut<'b>>>,
}

impl<'b, 'c> LaneCall<'b, 'c> {
    pub fn step_context<'s, 'm>(
        &'s mut self,
        memory: &'s Memory<'m>,
        scratch: &'s mut [f32],
    ) -> StepContext<'s, 'b, 'c, 'm> {
        self.lane.step_context(self.context, memory, &mut self.outputs, scratch)
    }
}

/// The rows of all calls that a GEMM reads and writes.
#[derive(Default)]
pub(crate) struct Rows {
    a: Elements,
    residual: Elements,
    scales: Elements,
    zero_points: Elements,
    y: Elements,
}

/// Elements of one type.
#[derive(Default)]
struct Elements {
    memory: Vec<f32>,
    len: usize,
    is_bf16: bool,
}

impl Rows {
    /// Runs a GEMM for all calls.
    pub fn gemm(
        &mut self,
        step: &payload::Matmul,
        engine: &Engine,
        memory: &Memory<'_>,
        scratch: &mut [f32],
        calls: &mut [LaneCall<'_, '_>],
    ) -> Result<()> {
        self.gather(step, memory, calls)?;
        let Some(first) = calls.first_mut() else { return Ok(()) };
        let mut cx = first.step_context(memory, &mut []);
        let (_, reader) = cx.split_data(step.y)?;
        let columns = |tensor| reader.dims(tensor).last().copied().unwrap_or(1);
        let (k, n) = (columns(step.a), columns(step.y));
        let size = Gemm::new(self.y.len.checked_div(n).unwrap_or(0), n, k);
        let Self { a, scales, zero_points, y, .. } = self;
        let rows = RowQparams { scales: scales.get(), zero_points: zero_points.get() };
        match &step.kind {
            MatmulKind::Packed { format, epilogue } => {
                let b = reader.weights(step.b, *format)?;
                self.float_gemm(engine, &size, b, epilogue::float(epilogue, n, &reader)?, scratch)?;
            }
            MatmulKind::WeightOnly { format, epilogue } => {
                let b = Weights::Quantized(reader.quantized_weights(step.b, &format.matrix(k, n))?);
                self.float_gemm(engine, &size, b, epilogue::float(epilogue, n, &reader)?, scratch)?;
            }
            MatmulKind::Int8 { epilogue } => {
                let mut epilogue = epilogue::int8(epilogue, n, &reader)?;
                epilogue.rows = Some(rows);
                let y = match reader.affine(step.y) {
                    Some(affine) => QuantOut::Bytes(y.get_mut(), affine),
                    None => QuantOut::Floats(y.get_mut()),
                };
                done(rushlight_engine::gemm_u8(engine, &size, a.get(), reader.int8_weights(step.b)?, y, &epilogue))?;
            }
            MatmulKind::Groupwise { format, epilogue } => {
                let mut epilogue = epilogue::groupwise(epilogue, &reader)?;
                epilogue.rows = rows;
                let b = (format.matrix(k, n), reader.packed_bytes(step.b)?);
                let (a, y) = (a.get(), y.get_mut());
                done(rushlight_engine::gemm_u8_groupwise(engine, size.m, a, b, y, &epilogue))?;
            }
            MatmulKind::Dense { .. } => return Err(NOT_SHARED.into()),
        }
        self.scatter(step.y, memory, calls)
    }

    /// Copies the rows of all calls, and makes room for their results.
    fn gather(&mut self, step: &payload::Matmul, memory: &Memory<'_>, calls: &mut [LaneCall<'_, '_>]) -> Result<()> {
        let (residual, qparams) = match &step.kind {
            MatmulKind::Packed { epilogue, .. } | MatmulKind::WeightOnly { epilogue, .. } => {
                (epilogue.residual.map(payload::Residual::tensor), None)
            }
            MatmulKind::Int8 { epilogue: Int8Epilogue::Dynamic { qparams, .. } } => (None, Some(*qparams)),
            MatmulKind::Groupwise { epilogue, .. } => (None, Some(epilogue.qparams)),
            MatmulKind::Int8 { .. } | MatmulKind::Dense { .. } => return Err(NOT_SHARED.into()),
        };
        let Self { a, residual: added, scales, zero_points, y } = self;
        [&mut *a, &mut *added, &mut *scales, &mut *zero_points, &mut *y].into_iter().for_each(Elements::clear);
        for call in calls {
            let mut cx = call.step_context(memory, &mut []);
            let (own, reader) = cx.split_data(step.y)?;
            match own {
                DataMut::Floats(own) => drop(y.grow::<f32>(own.len())?),
                DataMut::Bf16(own) => drop(y.grow::<u16>(own.len())?),
                DataMut::Bytes(own, _) => drop(y.grow::<u8>(own.len())?),
            }
            y.is_bf16 = memory.is_bf16(step.y);
            a.append(&reader.data(step.a)?)?;
            if let Some(residual) = residual {
                added.append(&reader.data(residual)?)?;
            }
            if let Some(qparams) = qparams {
                let own = epilogue::qparams(qparams, &reader)?;
                let columns = reader.dims(step.a).last().copied().unwrap_or(1);
                let rows = reader.shapes.span(step.a).1.checked_div(columns).unwrap_or(0);
                scales.append_rows(own.scales, rows)?;
                zero_points.append_rows(own.zero_points, rows)?;
            }
        }
        Ok(())
    }

    fn float_gemm(
        &mut self,
        engine: &Engine,
        size: &Gemm,
        b: Weights<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
    ) -> Result<()> {
        let Self { a, residual, y, .. } = self;
        let residual = epilogue.residual.map(|_| Residual { data: residual.float_slice(), stride: size.n });
        let epilogue = Epilogue { residual, ..epilogue };
        let (a, y) = (a.float_slice(), y.float_slice_mut());
        done(rushlight_engine::gemm_with_scratch(engine, size, a, b, y, &epilogue, scratch))
    }

    /// Copies the results back to the calls.
    fn scatter(&self, to: TensorId, memory: &Memory<'_>, calls: &mut [LaneCall<'_, '_>]) -> Result<()> {
        let mut start = 0;
        for call in calls {
            let mut cx = call.step_context(memory, &mut []);
            let (own, _) = cx.split_data(to)?;
            start += match own {
                DataMut::Floats(own) => self.y.read(start, own)?,
                DataMut::Bf16(own) => self.y.read(start, own)?,
                DataMut::Bytes(own, _) => self.y.read(start, own)?,
            };
        }
        Ok(())
    }
}

impl Elements {
    fn clear(&mut self) {
        self.len = 0;
    }

    fn append(&mut self, elements: &Data<'_>) -> Result<()> {
        self.is_bf16 = matches!(elements, Data::Bf16(_));
        match *elements {
            Data::Floats(elements) => self.append_slice(elements),
            Data::Bf16(elements) => self.append_slice(elements),
            Data::Bytes(elements, _) => self.append_slice(elements),
        }
    }

    fn append_slice<T: Pod>(&mut self, elements: &[T]) -> Result<()> {
        self.grow::<T>(elements.len())?.copy_from_slice(elements);
        Ok(())
    }

    /// Appends elements for the caller to write.
    fn grow<T: Pod>(&mut self, count: usize) -> Result<&mut [T]> {
        let start = self.len;
        self.len = start.checked_add(count).ok_or(Unfit::Overflow)?;
        let floats = self.len.checked_mul(size_of::<T>()).ok_or(Unfit::Overflow)?.div_ceil(size_of::<f32>());
        if self.memory.len() < floats {
            self.memory.resize(floats, 0.0);
        }
        Ok(self.get_mut().get_mut(start..).ok_or(Unfit::Overflow)?)
    }

    /// Appends a number for each row. `numbers` has one for each row, or one for all.
    fn append_rows(&mut self, numbers: &[f32], rows: usize) -> Result<()> {
        match *numbers {
            [one] => self.grow(rows)?.fill(one),
            _ => self.append_slice(numbers)?,
        }
        Ok(())
    }

    fn get<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice::<_, T>(&self.memory).get(..self.len).unwrap_or_default()
    }

    fn get_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut::<_, T>(&mut self.memory).get_mut(..self.len).unwrap_or_default()
    }

    fn float_slice(&self) -> FloatSlice<'_> {
        if self.is_bf16 { FloatSlice::Bf16(self.get()) } else { FloatSlice::F32(self.get()) }
    }

    fn float_slice_mut(&mut self) -> FloatSliceMut<'_> {
        if self.is_bf16 { FloatSliceMut::Bf16(self.get_mut()) } else { FloatSliceMut::F32(self.get_mut()) }
    }

    /// Copies elements from `start` on. Returns their count.
    fn read<T: Pod>(&self, start: usize, to: &mut [T]) -> Result<usize> {
        let end = start.checked_add(to.len()).ok_or(Unfit::Overflow)?;
        to.copy_from_slice(self.get::<T>().get(start..end).ok_or(Unfit::Beyond { end, len: self.len })?);
        Ok(to.len())
    }
}
