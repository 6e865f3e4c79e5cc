//! Rules about the sizes of a method's inputs, beyond those of ExecuTorch's format.
//!
//! ExecuTorch's tensors are static, or dynamic with an upper bound of each size. Which dimensions of a dynamic tensor are
//! static, the minima of the others, sizes that are equal or computed from others, and the guards that `torch.export` found
//! stand in a blob among the named data, which other runtimes ignore. Runtimes check them before anything runs.
//!
//! The blob holds methods, each with a list of [`Rule`]s. Numbers are little-endian.

use core::fmt;

use crate::blob_reader::Reader;

pub use crate::blob_reader::Damaged;
pub use crate::formula::{Function, Number};

/// The key among a program's named data.
pub const SHAPES_KEY: &str = "rushlight.shapes";

const MAGIC: [u8; 4] = *b"RLS1";

/// Operations that nest deeper are refused.
const MAX_DEPTH: u32 = 32;

/// Reads a size of the inputs: input and dimension.
pub type SizeOf<'f> = dyn Fn(u16, u8) -> Option<u64> + 'f;

/// The rules of one method, checked when they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes<'a> {
    rules: &'a [u8],
}

/// A condition on the sizes of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule<'a> {
    /// A static size of a tensor that is dynamic in other dimensions.
    Fixed { place: Place, size: u64 },
    /// A size within bounds that is `unit * n + offset` for an integer `n`.
    Range { place: Place, unit: i64, offset: i64, min: i64, max: Option<i64> },
    /// A size that others determine, within bounds. The text is the expression.
    Computed { place: Place, value: Expression<'a>, min: i64, max: Option<i64>, text: &'a str },
    /// A condition on several sizes, or one. The text is the condition.
    Guard { relation: Relation, left: Expression<'a>, right: Expression<'a>, text: &'a str },
    /// A condition of any form, on any number of sizes. The text is the condition.
    Condition { value: Expression<'a>, text: &'a str },
}

/// A dimension of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub input: u16,
    pub dim: u8,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
}

impl Relation {
    const ALL: [Self; 4] = [Self::Eq, Self::Ne, Self::Lt, Self::Le];

    /// True if the relation holds between two numbers.
    pub const fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Eq => left == right,
            Self::Ne => left != right,
            Self::Lt => left < right,
            Self::Le => left <= right,
        }
    }
}

/// An operation of [`Expression`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    Add,
    Mul,
    /// Quotient rounded down.
    FloorDiv,
    /// Remainder with the divisor's sign, as Python's `%`.
    Mod,
    Max,
    Min,
}

impl Operation {
    const ALL: [Self; 6] = [Self::Add, Self::Mul, Self::FloorDiv, Self::Mod, Self::Max, Self::Min];

    /// Lower-case name, as in the text form of graphs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Mul => "mul",
            Self::FloorDiv => "floordiv",
            Self::Mod => "mod",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// Computes the operation. `None` beyond `i64`, and for a division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        let quotient = || {
            let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
            Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
        };
        match self {
            Self::Add => a.checked_add(b),
            Self::Mul => a.checked_mul(b),
            Self::FloorDiv => quotient(),
            Self::Mod => a.checked_sub(quotient()?.checked_mul(b)?),
            Self::Max => Some(a.max(b)),
            Self::Min => Some(a.min(b)),
        }
    }
}

/// A number that is computed from sizes: operations before their operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Expression<'a> {
    bytes: &'a [u8],
}

impl fmt::Debug for Expression<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:x?})", self.bytes)
    }
}

const INTEGER: u8 = 0;
const SIZE: u8 = 1;
const OPERATION: u8 = 2;
const FLOAT: u8 = 3;
const FUNCTION: u8 = 4;

impl Expression<'_> {
    /// The value of an integer. `None` beyond `i64`, for a division by zero, for a symbol that the size it is read from is no
    /// multiple of, and for other numbers than integers.
    pub fn value(&self, size: &SizeOf<'_>) -> Option<i64> {
        self.number(size)?.to_int()
    }

    /// The value. `None` as for [`Expression::value`], and where Python's functions raise an error.
    pub fn number(&self, size: &SizeOf<'_>) -> Option<Number> {
        Reader { rest: self.bytes }.evaluate(size, MAX_DEPTH).ok()?
    }
}

impl<'a> Shapes<'a> {
    /// Finds the rules of a method in a blob.
    ///
    /// # Errors
    /// The blob is damaged.
    pub fn of(blob: &'a [u8], method: &str) -> Result<Option<Self>, Damaged> {
        let mut reader = Reader { rest: blob };
        if reader.array()? != MAGIC {
            return Err(Damaged);
        }
        let mut found = None;
        while !reader.rest.is_empty() {
            let name = reader.text()?;
            let len = u32::from_le_bytes(reader.array()?);
            let rules = reader.take(usize::try_from(len).map_err(|_| Damaged)?)?;
            let mut rest = Reader { rest: rules };
            while !rest.rest.is_empty() {
                rest.rule()?;
            }
            if name == method {
                found = Some(Self { rules });
            }
        }
        Ok(found)
    }

    /// The rules, in the order in which they are checked.
    pub fn rules(&self) -> impl Iterator<Item = Rule<'a>> + use<'a> {
        let mut reader = Reader { rest: self.rules };
        core::iter::from_fn(move || reader.rule().ok())
    }

    /// Finds the first rule that sizes break, with its position.
    pub fn broken(&self, size: &SizeOf<'_>) -> Option<(usize, Rule<'a>)> {
        self.rules().enumerate().find(|(_, rule)| !rule.holds(size))
    }
}

impl Rule<'_> {
    /// True if sizes satisfy the rule.
    pub fn holds(&self, size: &SizeOf<'_>) -> bool {
        let read = |place: Place| size(place.input, place.dim).and_then(|size| i64::try_from(size).ok());
        let is_within = |value: i64, min: i64, max: Option<i64>| value >= min && max.is_none_or(|max| value <= max);
        match *self {
            Self::Fixed { place, size: expected } => size(place.input, place.dim) == Some(expected),
            Self::Range { place, unit, offset, min, max } => {
                let is_step = |value: i64| value.checked_sub(offset).and_then(|n| n.checked_rem(unit)) == Some(0);
                read(place).is_some_and(|value| is_within(value, min, max) && is_step(value))
            }
            Self::Computed { place, value, min, max, .. } => {
                let got = read(place);
                got.is_some_and(|got| is_within(got, min, max)) && got == value.value(size)
            }
            Self::Guard { relation, left, right, .. } => {
                left.value(size).zip(right.value(size)).is_some_and(|(left, right)| relation.holds(left, right))
            }
            Self::Condition { value, .. } => value.number(size).is_some_and(Number::is_true),
        }
    }

    /// Returns the dimension that the rule constrains; `None` for a guard or condition, which may constrain several.
    pub const fn place(&self) -> Option<Place> {
        match *self {
            Self::Fixed { place, .. } | Self::Range { place, .. } | Self::Computed { place, .. } => Some(place),
            Self::Guard { .. } | Self::Condition { .. } => None,
        }
    }
}

const NO_MAX: i64 = i64::MAX;

impl<'a> Reader<'a> {
    fn number(&mut self) -> Result<i64, Damaged> {
        self.array().map(i64::from_le_bytes)
    }

    fn max(&mut self) -> Result<Option<i64>, Damaged> {
        self.number().map(|max| Some(max).filter(|max| *max != NO_MAX))
    }

    fn place(&mut self) -> Result<Place, Damaged> {
        Ok(Place { input: u16::from_le_bytes(self.array()?), dim: self.byte()? })
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T, Damaged> {
        all.get(usize::from(self.byte()?)).copied().ok_or(Damaged)
    }

    fn expression(&mut self) -> Result<Expression<'a>, Damaged> {
        let start = self.rest;
        self.evaluate(&|_, _| None, MAX_DEPTH)?;
        let bytes = start.get(..start.len() - self.rest.len()).ok_or(Damaged)?;
        Ok(Expression { bytes })
    }

    /// Parses an expression, and computes its value if it has one.
    fn evaluate(&mut self, size: &SizeOf<'_>, depth: u32) -> Result<Option<Number>, Damaged> {
        let depth = depth.checked_sub(1).ok_or(Damaged)?;
        match self.byte()? {
            INTEGER => self.number().map(|value| Some(Number::Int(value))),
            FLOAT => self.array().map(|bytes| Some(Number::Float(f64::from_le_bytes(bytes)))),
            SIZE => {
                let (place, unit, offset) = (self.place()?, self.number()?, self.number()?);
                let size = size(place.input, place.dim).and_then(|size| i64::try_from(size).ok());
                let above = size.and_then(|size| size.checked_sub(offset));
                let is_whole = above.and_then(|above| above.checked_rem(unit)) == Some(0);
                Ok(above.filter(|_| is_whole).and_then(|above| above.checked_div(unit)).map(Number::Int))
            }
            OPERATION => {
                let operation = self.one_of(&Operation::ALL)?;
                let (a, b) = (self.evaluate(size, depth)?, self.evaluate(size, depth)?);
                let ints = a.and_then(Number::to_int).zip(b.and_then(Number::to_int));
                Ok(ints.and_then(|(a, b)| operation.apply(a, b)).map(Number::Int))
            }
            FUNCTION => {
                let function = self.one_of(&Function::ALL)?;
                let mut operands = [None; 3];
                let operands = operands.get_mut(..function.arity()).unwrap_or_default();
                for operand in operands.iter_mut() {
                    *operand = self.evaluate(size, depth)?;
                }
                Ok(function.apply(operands))
            }
            _ => Err(Damaged),
        }
    }

    fn rule(&mut self) -> Result<Rule<'a>, Damaged> {
        Ok(match self.byte()? {
            0 => Rule::Fixed { place: self.place()?, size: u64::from_le_bytes(self.array()?) },
            1 => Rule::Range {
                place: self.place()?,
                unit: self.number()?,
                offset: self.number()?,
                min: self.number()?,
                max: self.max()?,
            },
            2 => Rule::Computed {
                place: self.place()?,
                value: self.expression()?,
                min: self.number()?,
                max: self.max()?,
                text: self.text()?,
            },
            3 => Rule::Guard {
                relation: self.one_of(&Relation::ALL)?,
                left: self.expression()?,
                right: self.expression()?,
                text: self.text()?,
            },
            4 => Rule::Condition { value: self.expression()?, text: self.text()? },
            _ => return Err(Damaged),
        })
    }
}

#[cfg(feature = "alloc")]
pub use writer::{RuleModel, Term, write};

#[cfg(feature = "alloc")]
mod writer {
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::{FLOAT, FUNCTION, Function, INTEGER, MAGIC, NO_MAX, OPERATION, Operation, Place, Relation, SIZE};

    /// An expression to be written.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Term {
        Int(i64),
        Float(f64),
        /// The symbol `n` of a size that is `unit * n + offset`.
        Size {
            place: Place,
            unit: i64,
            offset: i64,
        },
        Operation(Operation, Box<[Self; 2]>),
        /// A function of its number of operands.
        Function(Function, Vec<Self>),
    }

    /// A [`Rule`](super::Rule) to be written.
    #[derive(Clone, Debug, PartialEq)]
    #[allow(missing_docs, reason = "the fields are those of the rule")]
    pub enum RuleModel {
        Fixed { place: Place, size: u64 },
        Range { place: Place, unit: i64, offset: i64, min: i64, max: Option<i64> },
        Computed { place: Place, value: Term, min: i64, max: Option<i64>, text: String },
        Guard { relation: Relation, left: Term, right: Term, text: String },
        Condition { value: Term, text: String },
    }

    /// Writes the rules of methods, by name.
    ///
    /// # Errors
    /// The name of a method which, or whose rules, are too long for the format.
    pub fn write<'m>(methods: impl IntoIterator<Item = (&'m str, &'m [RuleModel])>) -> Result<Vec<u8>, &'m str> {
        let mut out = MAGIC.to_vec();
        for (name, rules) in methods {
            let mut body = Vec::new();
            for rule in rules {
                put_rule(&mut body, rule);
            }
            let len = u32::try_from(body.len()).map_err(|_| name)?;
            u16::try_from(name.len()).map_err(|_| name)?;
            put_text(&mut out, name);
            out.extend(len.to_le_bytes());
            out.extend(body);
        }
        Ok(out)
    }

    fn put_rule(out: &mut Vec<u8>, rule: &RuleModel) {
        match rule {
            RuleModel::Fixed { place, size } => {
                out.push(0);
                put_place(out, *place);
                out.extend(size.to_le_bytes());
            }
            RuleModel::Range { place, unit, offset, min, max } => {
                out.push(1);
                put_place(out, *place);
                for number in [*unit, *offset, *min, max.unwrap_or(NO_MAX)] {
                    out.extend(number.to_le_bytes());
                }
            }
            RuleModel::Computed { place, value, min, max, text } => {
                out.push(2);
                put_place(out, *place);
                put_term(out, value);
                out.extend(min.to_le_bytes());
                out.extend(max.unwrap_or(NO_MAX).to_le_bytes());
                put_text(out, text);
            }
            RuleModel::Guard { relation, left, right, text } => {
                out.push(3);
                out.push(position(&Relation::ALL, relation));
                put_term(out, left);
                put_term(out, right);
                put_text(out, text);
            }
            RuleModel::Condition { value, text } => {
                out.push(4);
                put_term(out, value);
                put_text(out, text);
            }
        }
    }

    fn position<T: PartialEq>(all: &[T], one: &T) -> u8 {
        all.iter().position(|other| other == one).unwrap_or(0) as u8
    }

    fn put_place(out: &mut Vec<u8>, place: Place) {
        out.extend(place.input.to_le_bytes());
        out.push(place.dim);
    }

    fn put_text(out: &mut Vec<u8>, text: &str) {
        let mut len = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let text = text.get(..len).unwrap_or_default();
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn put_term(out: &mut Vec<u8>, term: &Term) {
        match term {
            Term::Int(value) => {
                out.push(INTEGER);
                out.extend(value.to_le_bytes());
            }
            Term::Size { place, unit, offset } => {
                out.push(SIZE);
                put_place(out, *place);
                out.extend(unit.to_le_bytes());
                out.extend(offset.to_le_bytes());
            }
            Term::Operation(operation, operands) => {
                out.extend([OPERATION, position(&Operation::ALL, operation)]);
                operands.iter().for_each(|operand| put_term(out, operand));
            }
            Term::Float(value) => {
                out.push(FLOAT);
                out.extend(value.to_le_bytes());
            }
            Term::Function(function, operands) => {
                out.extend([FUNCTION, position(&Function::ALL, function)]);
                operands.iter().for_each(|operand| put_term(out, operand));
            }
        }
    }

    impl Term {
        /// True if it does not nest deeper than readers accept.
        pub fn is_readable(&self) -> bool {
            fn depth(term: &Term) -> u32 {
                match term {
                    Term::Operation(_, operands) => operands.iter().map(depth).max().unwrap_or(0) + 1,
                    Term::Function(_, operands) => operands.iter().map(depth).max().unwrap_or(0) + 1,
                    _ => 1,
                }
            }
            depth(self) <= super::MAX_DEPTH
        }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn at(input: u16, dim: u8) -> Place {
        Place { input, dim }
    }

    /// Rules of `x: [2 * n, 8]` with `n` from 2 to 32, `y: [n + 1]`, and `n % 3 != 0`.
    fn blob() -> Vec<u8> {
        let n = || Term::Size { place: at(0, 0), unit: 2, offset: 0 };
        let operation = |operation, a, b| Term::Operation(operation, Box::new([a, b]));
        let next = operation(Operation::Add, n(), Term::Int(1));
        let rest = operation(Operation::Mod, n(), Term::Int(3));
        let rules = vec![
            RuleModel::Range { place: at(0, 0), unit: 2, offset: 0, min: 4, max: Some(64) },
            RuleModel::Fixed { place: at(0, 1), size: 8 },
            RuleModel::Computed { place: at(1, 0), value: next, min: 3, max: None, text: "n + 1".into() },
            RuleModel::Guard { relation: Relation::Ne, left: rest, right: Term::Int(0), text: "n % 3 != 0".into() },
            RuleModel::Condition {
                value: Term::Function(
                    Function::Lt,
                    vec![Term::Function(Function::TrueDiv, vec![n(), Term::Int(3)]), Term::Float(10.5)],
                ),
                text: "n / 3 < 10.5".into(),
            },
        ];
        write([("other", &[][..]), ("forward", &rules)]).unwrap_or_default()
    }

    #[test]
    fn rules_are_read_and_checked() {
        let blob = blob();
        let shapes = Shapes::of(&blob, "forward").expect("whole").expect("it is there");
        assert_eq!(Shapes::of(&blob, "backward"), Ok(None));
        assert_eq!(shapes.rules().count(), 5);
        let broken = |x: [u64; 2], y: u64| {
            let size = |input, dim| match input {
                0 => x.get(usize::from(dim)).copied(),
                1 => Some(y),
                _ => None,
            };
            shapes.broken(&size).map(|(index, _)| index)
        };
        assert_eq!(broken([4, 8], 3), None);
        assert_eq!(broken([62, 8], 32), None);
        assert_eq!(broken([64, 8], 33), Some(4));
        for x in [2, 5, 66] {
            assert_eq!(broken([x, 8], 3), Some(0), "{x}");
        }
        assert_eq!(broken([4, 1], 3), Some(1));
        assert_eq!(broken([4, 8], 4), Some(2));
        assert_eq!(broken([6, 8], 4), Some(3));
    }

    #[test]
    fn damaged_blobs_are_refused() {
        let blob = blob();
        let start = MAGIC.len() + 2 + "other".len() + 4;
        for len in (0..blob.len()).filter(|len| *len != MAGIC.len() && *len != start) {
            assert_eq!(Shapes::of(&blob[..len], "forward"), Err(Damaged), "{len}");
        }
        for at in 0..blob.len() {
            for bit in 0..8 {
                let mut changed = blob.clone();
                changed[at] ^= 1 << bit;
                if let Ok(Some(shapes)) = Shapes::of(&changed, "forward") {
                    // Only the absence of a panic is tested.
                    let _ = shapes.broken(&|_, _| Some(u64::MAX));
                    let _ = shapes.broken(&|_, _| Some(3));
                }
            }
        }
    }

    #[test]
    fn deep_expressions_and_long_names_are_refused() {
        let mut term = Term::Int(1);
        for _ in 0..MAX_DEPTH {
            assert!(term.is_readable());
            term = Term::Operation(Operation::Add, Box::new([term, Term::Int(1)]));
        }
        assert!(!term.is_readable());
        let rule = RuleModel::Guard { relation: Relation::Eq, left: term, right: Term::Int(0), text: String::new() };
        let blob = write([("forward", &[rule][..])]).expect("names and rules are short");
        assert_eq!(Shapes::of(&blob, "forward"), Err(Damaged));
        let name = "f".repeat(1 << 16);
        assert_eq!(write([(name.as_str(), &[][..])]), Err(name.as_str()));
    }

    #[test]
    fn quotients_are_rounded_down() {
        for (a, b, quotient, rest) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, 3, 2, 0)] {
            assert_eq!(Operation::FloorDiv.apply(a, b), Some(quotient), "{a} // {b}");
            assert_eq!(Operation::Mod.apply(a, b), Some(rest), "{a} % {b}");
        }
        assert_eq!(Operation::FloorDiv.apply(1, 0), None);
        assert_eq!(Operation::FloorDiv.apply(i64::MIN, -1), None);
    }
}
