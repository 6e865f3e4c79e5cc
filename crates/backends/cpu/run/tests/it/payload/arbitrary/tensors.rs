//! Tensors and epilogues.

use rushlight_cpu_payload::{
    Activation, Affine, Convert, ConvertedType, Direction, Elementwise, Epilogue, FakeQuantize, FloatFormat, Half,
    Instruction, Int8Epilogue, Operand, PackNibbles, Residual, Step, TensorId, Unary,
};
use rushlight_format::ScalarType;

use super::Maker;

impl Maker<'_, '_> {
    pub(super) fn affine(&mut self) -> Affine {
        let source = &mut *self.source;
        let scale = source.one_of(&[0.5f32, 0.01, 1.0, 100.0]);
        let min = if source.once_in(4) { source.byte() / 2 } else { 0 };
        Affine::new(scale, source.byte(), [min, if source.once_in(4) { min.max(source.byte()) } else { 255 }])
    }

    /// Floats that a step may read.
    pub(super) fn floats(&mut self, dims: &[u64]) -> TensorId {
        match self.source.byte() % 4 {
            0 => {
                let x = self.payload.input(ScalarType::Float, dims);
                let y = self.payload.arena(len(dims), ScalarType::Float, dims, None);
                let one = Instruction::Unary { to: 0, function: Unary::Identity, x: Operand::Tensor(0) };
                let step = Elementwise { operands: vec![x], y, instructions: vec![one] };
                self.payload.program.steps.push(Step::Elementwise(step));
                y
            }
            1 => {
                let floats: Vec<f32> = (0..len(dims)).map(|_| self.source.float()).collect();
                self.payload.inline(dims, &floats)
            }
            _ => self.payload.input(ScalarType::Float, dims),
        }
    }

    /// Bytes that a step may read.
    pub(super) fn bytes(&mut self, dims: &[u64]) -> TensorId {
        let element = self.source.one_of(&[ConvertedType::Uint8, ConvertedType::Int8]);
        let affine = self.affine();
        let x = self.payload.input(element.dtype(), dims);
        let y = self.payload.arena(len(dims).div_ceil(4), ScalarType::Byte, dims, Some(affine));
        self.payload.program.steps.push(Step::Convert(Convert { x, y, element, direction: Direction::Enter }));
        y
    }

    /// Bytes that a step has packed as pairs of nibbles.
    pub(super) fn nibbles(&mut self, x: TensorId, count: u64) -> TensorId {
        let affine = self.affine();
        let y = self.payload.arena(count.div_ceil(4), ScalarType::Byte, &[count], Some(affine));
        self.payload.program.steps.push(Step::PackNibbles(PackNibbles { x, y }));
        y
    }

    /// Floats of 16 bits that a step has rounded.
    pub(super) fn halves(&mut self, dims: &[u64], half: Half) -> TensorId {
        let (x, element) = (self.floats(dims), ConvertedType::Half(half));
        let y = self.payload.arena(len(dims).div_ceil(2), element.dtype(), dims, None);
        self.payload.program.steps.push(Step::Convert(Convert { x, y, element, direction: Direction::Leave }));
        y
    }

    /// Floats that a step writes.
    pub(super) fn output(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(4) {
            self.payload.arena(len(dims), ScalarType::Float, dims, None)
        } else {
            self.payload.output(ScalarType::Float, dims)
        }
    }

    /// Floats or bytes that a step writes.
    pub(super) fn any_output(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(2) {
            let affine = self.affine();
            self.payload.arena(len(dims).div_ceil(4), ScalarType::Byte, dims, Some(affine))
        } else {
            self.output(dims)
        }
    }

    pub(super) fn either(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(2) { self.bytes(dims) } else { self.floats(dims) }
    }

    /// Adds weights of `elements` elements.
    pub(super) fn blob(&mut self, dtype: ScalarType, elements: u64) -> TensorId {
        let pattern = self.source.some(16);
        let bytes = (elements as usize * dtype.size()).next_multiple_of(4);
        let bytes = (0..bytes).map(|at| pattern.get(at % pattern.len().max(1)).copied().unwrap_or(0)).collect();
        self.payload.blob(dtype, &[elements], bytes)
    }

    /// Weights of f32 or of a 16-bit float type.
    pub(super) fn weights(&mut self, elements: Option<usize>) -> (TensorId, FloatFormat) {
        let all = [FloatFormat::F32, FloatFormat::Half(Half::F16), FloatFormat::Half(Half::Bf16)];
        let format = self.source.one_of(&all);
        (self.blob(format.dtype(), elements.unwrap_or(0).min(1 << 16) as u64), format)
    }

    pub(super) fn activation(&mut self) -> Activation {
        use Activation::*;
        let (min, max) = (self.source.float(), self.source.float());
        let all = [
            None,
            Clamp { min, max },
            LeakyRelu { slope: min },
            Elu { alpha: max },
            HardSwish,
            HardSigmoid,
            Sigmoid,
            Silu,
            Tanh,
            GeluErf,
            GeluTanh,
        ];
        self.source.one_of(&all)
    }

    pub(super) fn optional(&mut self, times: u8, dims: &[u64]) -> Option<TensorId> {
        if self.source.once_in(times) { Some(self.floats(dims)) } else { None }
    }

    pub(super) fn epilogue(&mut self, columns: u64, y: &[u64]) -> Epilogue {
        let bias = self.optional(2, &[columns]);
        let residual = self.optional(3, y);
        let place = self.source.one_of(&[Residual::BeforeActivation as fn(_) -> _, Residual::AfterActivation]);
        Epilogue { bias, residual: residual.map(place), activation: self.activation() }
    }

    /// The epilogue of an int8 GEMM with this number of offsets. Its left side may have this number of scales.
    pub(super) fn int8_epilogue(&mut self, columns: u64, offsets: u64, rows: u64, y: &[u64]) -> Int8Epilogue {
        let bias = self.optional(3, &[columns]);
        let (offsets, scales, activation) = (self.floats(&[offsets]), self.floats(&[columns]), self.activation());
        if self.source.once_in(2) {
            let qparams = self.floats(&[2, rows]);
            return Int8Epilogue::Dynamic { qparams, sums: offsets, scales, bias, activation };
        }
        let residual = if self.source.once_in(3) { Some(self.bytes(y)) } else { None };
        let fake_quantize = if self.source.once_in(3) {
            Some(FakeQuantize { activation: self.activation(), affine: self.affine() })
        } else {
            None
        };
        Int8Epilogue::Static { offsets, scales, bias, fake_quantize, residual, activation }
    }

    pub(super) fn scratch(&mut self, floats: usize) {
        let program = &mut self.payload.program;
        program.scratch = program.scratch.max(floats.min(1 << 16) as u64);
    }

    /// Sizes of a few dimensions.
    pub(super) fn dims(&mut self, most: usize, largest: u64) -> Vec<u64> {
        (0..self.source.below(most + 1)).map(|_| self.source.size(largest)).collect()
    }
}

/// The number of elements.
pub(super) fn len(dims: &[u64]) -> u64 {
    dims.iter().product()
}
