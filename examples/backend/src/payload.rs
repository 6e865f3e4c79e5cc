//! The format that the two halves share: little-endian 32-bit words.

use rushlight::runtime::Cost;

/// A chain of operations on registers of one element each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Payload {
    /// Number of input tensors, which are the first registers.
    pub inputs: u32,
    /// The next registers.
    pub constants: Vec<Vec<f32>>,
    /// Running sums, which are kept from call to call.
    pub sums: Vec<Sum>,
    /// Each defines the next register.
    pub steps: Vec<Step>,
    /// The registers that are outputs.
    pub outputs: Vec<u32>,
}

/// A running sum for each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Payloads with the same key share the sum.
    pub key: u32,
    pub elements: u32,
}

/// An operation on registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Add(u32, u32),
    Mul(u32, u32),
    Relu(u32),
    /// Adds a register to the sum with this index, and returns the new sum. Only the device supports it.
    Accumulate(u32, u32),
}

impl Step {
    /// The cost of the step for `elements` elements.
    pub(crate) fn cost(self, elements: usize) -> Cost {
        let tensors = match self {
            Step::Add(..) | Step::Mul(..) | Step::Accumulate(..) => 3,
            Step::Relu(_) => 2,
        };
        Cost { flops: elements as f64, bytes: (tensors * elements * size_of::<f32>()) as f64 }
    }
}

/// Begins every payload.
const MAGIC: u32 = u32::from_le_bytes(*b"CHN2");

impl Payload {
    /// The payload as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut words = vec![MAGIC, self.inputs, self.constants.len() as u32];
        for constant in &self.constants {
            words.push(constant.len() as u32);
            words.extend(constant.iter().map(|value| value.to_bits()));
        }
        words.push(self.sums.len() as u32);
        words.extend(self.sums.iter().flat_map(|sum| [sum.key, sum.elements]));
        words.push(self.steps.len() as u32);
        for step in &self.steps {
            words.extend(match *step {
                Step::Add(a, b) => [0, a, b],
                Step::Mul(a, b) => [1, a, b],
                Step::Relu(a) => [2, a, 0],
                Step::Accumulate(a, sum) => [3, a, sum],
            });
        }
        words.push(self.outputs.len() as u32);
        words.extend(&self.outputs);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads and checks a payload: a step uses registers that are defined before it.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let mut next = || words.next();
        if next()? != MAGIC {
            return None;
        }
        let mut payload = Self { inputs: next()?, ..Self::default() };
        for _ in 0..next()? {
            let length = next()?;
            let constant: Option<Vec<f32>> = (0..length).map(|_| next().map(f32::from_bits)).collect();
            payload.constants.push(constant?);
        }
        for _ in 0..next()? {
            payload.sums.push(Sum { key: next()?, elements: next()? });
        }
        let mut registers = payload.inputs.checked_add(payload.constants.len() as u32)?;
        for _ in 0..next()? {
            let (kind, a, b) = (next()?, next()?, next()?);
            let second = if kind == 3 { payload.sums.len() as u32 } else { registers };
            if a >= registers || b >= second {
                return None;
            }
            payload.steps.push(match kind {
                0 => Step::Add(a, b),
                1 => Step::Mul(a, b),
                2 => Step::Relu(a),
                3 => Step::Accumulate(a, b),
                _ => return None,
            });
            registers = registers.checked_add(1)?;
        }
        for _ in 0..next()? {
            payload.outputs.push(next().filter(|register| *register < registers)?);
        }
        Some(payload)
    }

    /// Number of registers.
    pub fn registers(&self) -> usize {
        self.inputs as usize + self.constants.len() + self.steps.len()
    }

    /// Computes one element of all registers; `None` if a tensor has too few elements.
    pub fn evaluate(
        &self,
        element: usize,
        registers: &mut [f32],
        input: impl Fn(usize) -> Option<f32>,
        mut accumulate: impl FnMut(usize, f32) -> Option<f32>,
    ) -> Option<()> {
        let inputs = self.inputs as usize;
        for index in 0..inputs {
            registers[index] = input(index)?;
        }
        for (index, constant) in self.constants.iter().enumerate() {
            registers[inputs + index] = *constant.get(element)?;
        }
        let first = inputs + self.constants.len();
        for (index, step) in self.steps.iter().enumerate() {
            registers[first + index] = match *step {
                Step::Add(a, b) => registers[a as usize] + registers[b as usize],
                Step::Mul(a, b) => registers[a as usize] * registers[b as usize],
                Step::Relu(a) => registers[a as usize].max(0.0),
                Step::Accumulate(a, sum) => accumulate(sum as usize, registers[a as usize])?,
            };
        }
        Some(())
    }
}
