//! GEMMs.

use rushlight_cpu_payload::{
    Epilogue, Experts, FloatFormat, GroupwiseEpilogue, GroupwiseFormat, Matmul, MatmulKind, QuantizedFormat, Step,
    TensorId,
};
use rushlight_engine::pack::{self, Bits, GroupNumbers, Offsets, QuantizedGroups, ScaleFormat};
use rushlight_format::ScalarType;

use super::Maker;

impl Maker<'_, '_> {
    pub(super) fn linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.floats(&[m, k]), [m, n]);
        let (b, kind) = if self.source.once_in(3) {
            let (b, format) = self.integers(k, n);
            (b, MatmulKind::WeightOnly { format, epilogue: self.epilogue(n, &y) })
        } else {
            let (b, format) = self.weights(pack::matrix_f32_len(k as usize, n as usize));
            (b, MatmulKind::Packed { format, epilogue: self.epilogue(n, &y) })
        };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind })
    }

    /// A packed matrix of integers.
    pub(super) fn integers(&mut self, k: u64, n: u64) -> (TensorId, QuantizedFormat) {
        let bits = self.source.one_of(&[Bits::Four, Bits::Six, Bits::Eight]);
        let offsets = self.source.one_of(&[Offsets::None, Offsets::ZeroPoints, Offsets::Minima]);
        let scales = self.source.one_of(&[ScaleFormat::F32, ScaleFormat::F16, ScaleFormat::Products]);
        let format = QuantizedFormat { bits, offsets, scales, group: 2 * self.source.size(20) as u32 };
        let matrix = &format.matrix(k as usize, n as usize);
        let mut bytes = vec![0; pack::quantized_len(matrix).unwrap_or(0).min(1 << 16)];
        if Some(bytes.len()) == pack::quantized_len(matrix) {
            let weight = self.source.byte().cast_signed();
            let (k, n) = (k as usize, n as usize);
            let groups = k.div_ceil((format.group as usize).clamp(2, k.next_multiple_of(2).max(2)));
            let columns: Vec<i8> = (0..n * k).map(|at| weight.wrapping_add((at % k * 7 + at / k) as i8)).collect();
            let scales: Vec<f32> = (0..n * groups).map(|at| (at % groups + at / groups) as f32).collect();
            let zeros = vec![1; if offsets == Offsets::ZeroPoints { n * groups } else { 0 }];
            let factors: Vec<i8> = (0..n * groups).map(|at| at as i8).collect();
            let numbers = if format.scales == ScaleFormat::Products {
                GroupNumbers::Products { units: &scales[..n * k / pack::UNIT_ROWS], factors: &factors }
            } else {
                GroupNumbers::Each(&scales)
            };
            let minima = if offsets == Offsets::Minima { numbers } else { GroupNumbers::Each(&[]) };
            pack::quantized(&mut bytes, matrix, &columns, &QuantizedGroups { scales: numbers, zeros: &zeros, minima });
        }
        let len = bytes.len() as u64;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        (self.payload.blob(ScalarType::Byte, &[len], bytes), format)
    }

    pub(super) fn batched(&mut self) -> Step {
        let (batch, m, k, n) = (self.source.size(4), self.source.size(12), self.source.size(40), self.source.size(40));
        let transposed = self.source.once_in(2);
        let of_b = if self.source.once_in(2) { 1 } else { batch };
        let (a, y) = (self.floats(&[batch, m, k]), [batch, m, n]);
        let b = self.floats(&if transposed { [of_b, n, k] } else { [of_b, k, n] });
        self.scratch(pack::matrix_f32_len(k as usize, n as usize).unwrap_or(0));
        let kind = MatmulKind::Dense { transposed, epilogue: self.epilogue(n, &y) };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind })
    }

    pub(super) fn int8_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Char, pack::matrix_i8_len(k as usize, n as usize).unwrap_or(0) as u64);
        let kind = MatmulKind::Int8 { epilogue: self.int8_epilogue(n, n, m, &y) };
        Step::Matmul(Matmul { a, b, y: self.any_output(&y), kind })
    }

    pub(super) fn groupwise_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), 32 * self.source.size(5), self.source.size(40));
        let [is_four_bits, has_zeros, has_half_scales] = [(); 3].map(|()| self.source.once_in(2));
        let format = GroupwiseFormat { is_four_bits, has_zeros, has_half_scales };
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Byte, format.matrix(k as usize, n as usize).len().unwrap_or(0) as u64);
        let (qparams, sums) = (self.floats(&[2, m]), self.floats(&[n]));
        let (bias, activation) = (self.optional(3, &[n]), self.activation());
        let epilogue = GroupwiseEpilogue { qparams, sums, bias, activation };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind: MatmulKind::Groupwise { format, epilogue } })
    }

    /// A GEMM of rows with the matrices of experts.
    pub(super) fn experts(&mut self) -> Step {
        let (count, rows, k) = (self.source.size(4), self.source.size(9), self.source.size(24));
        let n = 16 * (1 + self.source.size(2));
        let reach = if self.source.once_in(8) { count + 1 } else { count };
        let chosen: Vec<f32> = (0..rows).map(|_| (u64::from(self.source.byte()) % reach.max(1)) as f32).collect();
        let index = self.payload.inline(&[rows], &chosen);
        let len = pack::matrix_f32_len(k as usize, (n * count) as usize).unwrap_or(0);
        let floats: Vec<u8> = (0..len).flat_map(|_| self.source.float().to_le_bytes()).collect();
        let b = self.payload.blob(ScalarType::Float, &[len as u64], floats);
        let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue: Epilogue::default() };
        let given = if self.source.once_in(8) { rows + 1 } else { rows };
        let matmul = Matmul { a: self.floats(&[given, k]), b, y: self.output(&[rows, n]), kind };
        Step::Experts(Experts { matmul, index, count: count as u32 })
    }
}
