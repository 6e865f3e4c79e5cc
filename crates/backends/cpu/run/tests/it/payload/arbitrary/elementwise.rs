//! Elementwise steps, conversions and dynamic quantization.

use rushlight_cpu_payload::{
    Binary, ChooseQparams, Convert, ConvertedType, Direction, Elementwise, Half, Instruction, Operand, QuantizeRows,
    Step, Unary, UnpackNibbles, ZeroPointRule,
};
use rushlight_format::ScalarType;

use super::Maker;
use super::tensors::len;

const UNARY: [Unary; 24] = [
    Unary::Identity,
    Unary::Neg,
    Unary::Abs,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Reciprocal,
    Unary::Square,
    Unary::Exp,
    Unary::Log,
    Unary::Sin,
    Unary::Cos,
    Unary::Tanh,
    Unary::Sigmoid,
    Unary::Erf,
    Unary::Floor,
    Unary::Ceil,
    Unary::Round,
    Unary::Trunc,
    Unary::Not,
    Unary::IsNan,
    Unary::Log1p,
    Unary::Expm1,
    Unary::RoundF16,
    Unary::RoundBf16,
];

const BINARY: [Binary; 15] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::And,
    Binary::Or,
];

impl Maker<'_, '_> {
    pub(super) fn elementwise(&mut self) -> Step {
        let dims = self.dims(4, 9);
        let count = 1 + self.source.below(4);
        let operands: Vec<_> = (0..count)
            .map(|_| {
                let own: Vec<u64> = dims.iter().map(|size| if self.source.once_in(4) { 1 } else { *size }).collect();
                self.either(&own)
            })
            .collect();
        let mut instructions = Vec::new();
        for at in 0..=self.source.below(6) {
            let registers = at.min(8) as u8;
            let mut operand = || match self.source.byte() % 3 {
                0 if registers > 0 => Operand::Register(self.source.byte() % registers),
                1 => Operand::Constant(self.source.float()),
                _ => Operand::Tensor(self.source.below(count) as u8),
            };
            let (to, [x, a, b]) = (registers.min(7), [operand(), operand(), operand()]);
            instructions.push(match self.source.byte() % 4 {
                0 => Instruction::Unary { to, function: self.source.one_of(&UNARY), x },
                1 => Instruction::Binary { to, function: self.source.one_of(&BINARY), a, b },
                2 => Instruction::Select { to, condition: x, a, b },
                _ => Instruction::Activate { to, activation: self.activation(), x },
            });
        }
        Step::Elementwise(Elementwise { operands, y: self.any_output(&dims), instructions })
    }

    pub(super) fn convert(&mut self) -> Step {
        let dims = self.dims(3, 12);
        let all = [
            ConvertedType::Half(Half::F16),
            ConvertedType::Half(Half::Bf16),
            ConvertedType::Bool,
            ConvertedType::Int8,
            ConvertedType::Uint8,
            ConvertedType::Int64,
        ];
        let element = self.source.one_of(&all);
        if self.source.once_in(2) {
            let x = if element.is_quantized() { self.bytes(&dims) } else { self.floats(&dims) };
            let y = self.payload.output(element.dtype(), &dims);
            return Step::Convert(Convert { x, y, element, direction: Direction::Leave });
        }
        let x = self.payload.input(element.dtype(), &dims);
        let affine = if element.is_quantized() { Some(self.affine()) } else { None };
        let inside = if element.is_quantized() { ScalarType::Byte } else { ScalarType::Float };
        let y = self.payload.arena(len(&dims), inside, &dims, affine);
        Step::Convert(Convert { x, y, element, direction: Direction::Enter })
    }

    pub(super) fn dynamic_quantization(&mut self) -> Step {
        let (rows, columns) = (self.source.size(9), self.source.size(40));
        let per_tensor = self.source.once_in(2);
        let has_factors = self.source.once_in(2);
        let qparams = [if has_factors { 3 } else { 2 }, if per_tensor { 1 } else { rows }];
        let range = if self.source.once_in(4) { [self.source.byte(), self.source.byte()] } else { [0, 255] };
        if self.source.once_in(4) {
            let (x, affine) = (self.bytes(&[rows, columns]), self.affine());
            let y = self.payload.arena(
                (rows * columns * 2).div_ceil(4),
                ScalarType::Byte,
                &[rows, 2 * columns],
                Some(affine),
            );
            return Step::UnpackNibbles(UnpackNibbles { x, y });
        }
        let x = self.floats(&[rows, columns]);
        if self.source.once_in(2) {
            let (qparams, affine) = (self.floats(&qparams), self.affine());
            let dims = [rows, columns];
            let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
            return Step::QuantizeRows(QuantizeRows { x, qparams, y, range });
        }
        let eps = self.source.float();
        let rules = if has_factors {
            [None, Some(Half::F16)].map(|half| ZeroPointRule::Inverse { half })
        } else {
            [ZeroPointRule::MinError, ZeroPointRule::FromMin { eps }]
        };
        let rule = self.source.one_of(&rules);
        Step::ChooseQparams(ChooseQparams { x, y: self.output(&qparams), rule, per_tensor, range })
    }
}
