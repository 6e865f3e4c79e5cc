//! Deterministic damage to programs: to their bytes, and to their fields.

use std::path::{Path, PathBuf};

use rushlight_format::ScalarType;
use rushlight_format::bundled::BundledProgram;
use rushlight_format::pte::{
    InstructionModel, PlanModel, Program, ProgramModel, ShapeDynamism, StorageModel, ValueModel,
};

/// xorshift64* (Vigna, 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below a limit; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.number() % limit as u64) as usize }
    }
}

/// The programs of `tests/corpus`.
///
/// # Panics
/// If the corpus is not where the repository has it.
pub fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut paths = Vec::new();
    for generation in std::fs::read_dir(root).expect("the corpus is part of the repository").flatten() {
        let Ok(files) = std::fs::read_dir(generation.path()) else { continue };
        paths.extend(files.flatten().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "pte")));
    }
    paths.sort();
    paths
}

/// Changes a few places, most of them in the flatbuffer at the start, where the structure is.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EXTREMES: [u32; 10] = [0, 1, 2, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x0001_0000];
    for _ in 0..=random.below(4) {
        let structure = bytes.len().min(4096);
        let limit = if random.below(8) == 0 { bytes.len() } else { structure };
        let at = random.below(limit);
        match random.below(8) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.number() as u8;
                }
            }
            3 | 4 => {
                let value = EXTREMES[random.below(EXTREMES.len())];
                if let Some(word) = bytes.get_mut(at & !3..(at & !3) + 4) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            5 => {
                // Small changes of offsets and indices keep a file nearly right.
                if let Some(word) = bytes.get_mut(at & !3..(at & !3) + 4).and_then(|w| w.first_chunk_mut::<4>()) {
                    let value = u32::from_le_bytes(*word).wrapping_add(random.below(64) as u32).wrapping_sub(32);
                    *word = value.to_le_bytes();
                }
            }
            6 => {
                let (from, len) = (random.below(structure), 4 * (1 + random.below(8)));
                if from + len <= bytes.len() && at + len <= bytes.len() {
                    bytes.copy_within(from..from + len, at);
                }
            }
            _ => {
                if random.below(4) == 0 {
                    bytes.truncate(at);
                }
            }
        }
    }
}

/// Edits instructions and values so that the file still parses.
fn edit(program: &mut ProgramModel<'_>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let plan = random.below(program.methods.len());
        if let Some(plan) = program.methods.get_mut(plan) {
            edit_plan(plan, random);
        }
    }
}

fn edit_plan(plan: &mut PlanModel<'_>, random: &mut Random) {
    let (values, instructions) = (plan.values.len(), plan.instructions.len());
    let any = random.below(values) as u32;
    let at = random.below(instructions);
    let other = random.below(instructions);
    match random.below(10) {
        0..=2 => match plan.instructions.get_mut(at) {
            Some(InstructionModel::Kernel { args, .. } | InstructionModel::Delegate { args, .. }) => {
                let at = random.below(args.len());
                match random.below(4) {
                    0 => args.truncate(at),
                    1 => args.insert(at, any),
                    _ => args.iter_mut().skip(at).take(1).for_each(|arg| *arg = any),
                }
            }
            Some(InstructionModel::JumpFalse { cond, destination }) => {
                if random.below(2) == 0 {
                    *cond = any;
                } else {
                    *destination = random.below(instructions + 1) as u32;
                }
            }
            Some(InstructionModel::Move { from, to }) => *(if random.below(2) == 0 { from } else { to }) = any,
            _ => {}
        },
        3 if at < instructions => plan.instructions.swap(at, other),
        4 if at < instructions => {
            let again = plan.instructions[other].clone();
            plan.instructions.insert(at, again);
        }
        5 if at < instructions => {
            let (cond, destination) = (any, random.below(instructions) as u32);
            plan.instructions.insert(at, InstructionModel::JumpFalse { cond, destination });
        }
        6 => {
            let operators = plan.operators.len();
            if let Some(InstructionModel::Kernel { operator, .. }) = plan.instructions.get_mut(at) {
                *operator = random.below(operators) as u32;
            }
        }
        _ => {
            let new = match random.below(6) {
                0 => ValueModel::Int(random.number() as i64 >> random.below(64)),
                1 => ValueModel::None,
                2 => ValueModel::Bool(random.below(2) == 0),
                3 => ValueModel::IntList(vec![any; random.below(4)]),
                4 => ValueModel::TensorList(vec![any; random.below(4)]),
                _ => ValueModel::Double(1.5),
            };
            match plan.values.get_mut(any as usize) {
                Some(ValueModel::Tensor(tensor)) => match random.below(6) {
                    0 => tensor.scalar_type = ScalarType::ALL[random.below(ScalarType::ALL.len())],
                    1 => tensor.shape_dynamism = ShapeDynamism::DynamicBound,
                    2 => {
                        let at = random.below(tensor.sizes.len());
                        tensor.sizes.iter_mut().skip(at).take(1).for_each(|size| *size = random.below(9) as i32);
                    }
                    3 => {
                        if let StorageModel::Planned { offset, .. } = &mut tensor.storage {
                            *offset = 8 * random.below(16) as u64;
                        }
                    }
                    4 => tensor.dim_order.reverse(),
                    _ => tensor.storage = StorageModel::Unplanned,
                },
                Some(value) => *value = new,
                None => {}
            }
        }
    }
}

/// The program of a file, or the one bundled in it, edited and written again; `None` if it cannot be written.
pub fn edited(file: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let file = BundledProgram::parse(file).map_or(file, |bundled| bundled.program());
    let mut model = ProgramModel::from_program(&Program::parse(file).ok()?);
    edit(&mut model, random);
    model.to_bytes().ok()
}
