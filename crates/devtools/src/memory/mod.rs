//! The memory plan of a method as a map: the place and lifetime of each tensor, and the peak of each arena.

mod html;
mod text;

use std::collections::BTreeMap;

use rushlight_compiler::emit::{InstructionOrigin, MethodMap};
use rushlight_compiler::memory::{LiveBytes, Recovered, plan, recover};
use rushlight_format::pte::{Instruction, Plan, ValueSpec};

pub use html::html;
pub use text::text;

/// The planned memory of a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryMap {
    pub method: String,
    /// The operator or other step of each instruction, such as `aten::add.out` or `delegate XnnpackBackend`.
    pub steps: Vec<String>,
    /// The arenas by memory id.
    pub arenas: Vec<ArenaMap>,
}

/// One arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaMap {
    pub memory_id: u32,
    /// The arena's size in the file.
    pub bytes: u64,
    /// The size of Rushlight's own plan for the same tensors, if they do not contradict each other.
    pub best: Option<u64>,
    /// The bytes in use over time.
    pub live: LiveBytes,
    /// The tensors, in the order in which they are written.
    pub tensors: Vec<PlacedTensor>,
}

/// A tensor's content, from the instruction that writes it to the last one that reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTensor {
    /// Its name, type and sizes: `conv1 f32 [1, 64]`. The name is the program's, the input's, or that of the node that writes it; without
    /// any, the number of its value: `%12`.
    pub label: String,
    pub offset: u64,
    pub bytes: u64,
    pub first: usize,
    pub last: usize,
}

impl MemoryMap {
    /// Follows the reads and writes of a method's instructions. The debug map has the names of nodes.
    pub fn of(method: &Plan<'_>, nodes: Option<&MethodMap>) -> Self {
        let Recovered { buffers, values, plan: placed } = recover(method);
        let best = plan(&buffers).ok();
        let mut arenas: BTreeMap<u32, ArenaMap> = BTreeMap::new();
        for (&memory_id, &bytes) in &placed.arenas {
            let best = best.as_ref().map(|best| best.arenas.get(&memory_id).copied().unwrap_or(0));
            arenas.insert(memory_id, ArenaMap { memory_id, bytes, best, ..ArenaMap::default() });
        }
        for ((buffer, &value), &offset) in buffers.iter().zip(&values).zip(&placed.offsets) {
            if let Some(arena) = arenas.get_mut(&buffer.memory_id) {
                arena.tensors.push(PlacedTensor {
                    label: label(method, value, nodes.and_then(|nodes| nodes.instructions.get(buffer.first)?.as_ref())),
                    offset,
                    bytes: buffer.bytes,
                    first: buffer.first,
                    last: buffer.last,
                });
            }
        }
        for arena in arenas.values_mut() {
            arena.tensors.sort_by_key(|tensor| (tensor.first, tensor.offset));
            arena.live = LiveBytes::of(arena.tensors.iter().map(|t| (t.bytes, t.first, t.last)));
        }
        Self {
            method: method.name().to_owned(),
            steps: method.instructions().map(|instruction| step(method, &instruction)).collect(),
            arenas: arenas.into_values().collect(),
        }
    }

    /// The step of instruction `at`; empty past the end.
    fn step(&self, at: usize) -> &str {
        self.steps.get(at).map_or("", String::as_str)
    }
}

impl ArenaMap {
    /// The first instruction with the most bytes in use, and that number of bytes. No plan can be smaller.
    pub fn peak(&self) -> (usize, u64) {
        self.live.peak()
    }

    /// The tensors in use at the peak, the largest first.
    pub fn at_peak(&self) -> Vec<&PlacedTensor> {
        let (at, _) = self.peak();
        let mut live: Vec<_> =
            self.tensors.iter().filter(|t| t.bytes > 0 && (t.first..=t.last).contains(&at)).collect();
        live.sort_by_key(|tensor| (std::cmp::Reverse(tensor.bytes), tensor.offset));
        live
    }
}

/// Maximum length of a name in characters. A long name would make the drawing larger with each use.
const LONGEST_NAME: usize = 100;

fn short(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// The label of a value that the instruction of `writer` writes first.
fn label(method: &Plan<'_>, value: u32, writer: Option<&InstructionOrigin>) -> String {
    let ValueSpec::Tensor(tensor) = method.value(value as usize) else { return format!("%{value}") };
    let sizes: Vec<String> = tensor.sizes.iter().map(|size| size.to_string()).collect();
    let own = tensor.fully_qualified_name.map(short);
    let input = || Some(format!("input {}", method.inputs().iter().position(|input| input == value)?));
    let node = || writer.map(|origin| short(&origin.node)).filter(|node| !node.is_empty());
    let name = own.or_else(input).or_else(node).unwrap_or_else(|| format!("%{value}"));
    format!("{name} {} [{}]", tensor.scalar_type.name(), sizes.join(", "))
}

fn step(method: &Plan<'_>, instruction: &Instruction<'_>) -> String {
    match *instruction {
        Instruction::Kernel { operator, .. } => match method.operator(operator as usize) {
            Some(operator) if operator.overload.is_empty() => short(operator.name),
            Some(operator) => format!("{}.{}", short(operator.name), short(operator.overload)),
            None => String::new(),
        },
        Instruction::Delegate { delegate, .. } => {
            format!("delegate {}", method.delegate(delegate as usize).map_or_else(String::new, |d| short(d.id)))
        }
        Instruction::Move { .. } => "move".to_owned(),
        Instruction::JumpFalse { .. } => "jump".to_owned(),
        Instruction::Free { .. } => "free".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::pte::{PlanModel, ProgramModel, StorageModel, TensorModel};
    use rushlight_format::{Program, ScalarType};
    use rushlight_graph::operators::aten;

    use super::*;

    /// x at 0, a = relu(x) at 64, b = relu(a) at 0, c = relu(b) at 128: 192 bytes, although 128 are enough.
    fn chain() -> Vec<u8> {
        let mut method = PlanModel::new("forward");
        let at = |offset| {
            let tensor = TensorModel::new(ScalarType::Float, &[4, 4]);
            tensor.stored(StorageModel::Planned { memory_id: 1, offset })
        };
        let x = method.input(at(0));
        let (a, b) = (method.push(at(64)), method.push(at(0)));
        let c = method.output(TensorModel { fully_qualified_name: Some("<c>".to_owned()), ..at(128) });
        for (from, to) in [(x, a), (a, b), (b, c)] {
            method.call(aten::RELU, "out", &[from, to, to]);
        }
        method.buffer_sizes = vec![0, 192];
        let mut program = ProgramModel::new();
        program.methods.push(method);
        program.to_bytes().expect("a program that fits the format")
    }

    fn map() -> MemoryMap {
        let file = chain();
        let program = Program::parse(&file).expect("a valid program");
        MemoryMap::of(&program.method(0).expect("one method"), None)
    }

    #[test]
    fn tensors_live_from_their_write_to_their_last_read() {
        let map = map();
        assert_eq!(map.steps, [aten::RELU_OUT; 3]);
        let arena = &map.arenas[0];
        assert_eq!((arena.memory_id, arena.bytes, arena.best), (1, 192, Some(128)));
        assert_eq!(arena.peak(), (0, 128));
        let spans: Vec<_> = arena.tensors.iter().map(|t| (t.offset, t.bytes, t.first, t.last)).collect();
        assert_eq!(spans, [(0, 64, 0, 0), (64, 64, 0, 1), (0, 64, 1, 2), (128, 64, 2, 2)]);
        let live: Vec<&str> = arena.at_peak().iter().map(|t| t.label.as_str()).collect();
        assert_eq!(live, ["input 0 f32 [4, 4]", "%1 f32 [4, 4]"]);
    }

    #[test]
    fn tensors_have_the_names_of_their_nodes() {
        let file = chain();
        let program = Program::parse(&file).expect("a valid program");
        let origin = |node: &str| Some(InstructionOrigin { node: node.to_owned(), ..InstructionOrigin::default() });
        let nodes =
            MethodMap { method: "forward".to_owned(), instructions: vec![origin("relu"), origin("relu_1"), None] };
        let map = MemoryMap::of(&program.method(0).expect("one method"), Some(&nodes));
        let labels: Vec<&str> = map.arenas[0].tensors.iter().map(|tensor| tensor.label.as_str()).collect();
        let names = ["input 0", "relu", "relu_1", "<c>"].map(|name| format!("{name} f32 [4, 4]"));
        assert_eq!(labels, names);
    }

    #[test]
    fn the_text_draws_offsets_over_time() {
        let text = text(&map(), 3);
        let expected = "\
method forward
arena 1    192 B in the file, 4 tensors; 128 B are in use at most, planned anew 128 B
     192 B │  █
           │  █
           │  █
     144 B │  █
           │██
           │██
      96 B │██
           │██
           │███
      48 B │███
           │███
           │███
       0 B └───
in use at instruction 0 (aten::relu.out):
      64 B  0..0         input 0 f32 [4, 4]
      64 B  0..1         %1 f32 [4, 4]
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_page_escapes_names_and_has_a_rectangle_for_each_tensor() {
        let page = html("a & b.pte", &[map()]);
        assert!(page.contains("<title>Memory of a &amp; b.pte</title>"));
        assert!(page.contains("&lt;c&gt;") && !page.contains("<c>"));
        assert!(page.contains("<td class=\"n\">64 B<td class=\"n\">64 B<td>0 to 1<td>%1 f32 [4, 4]</tr>"), "{page}");
        assert_eq!(page.matches("<rect class=\"tensor\"").count(), 4);
        assert!(!page.contains("http://") && !page.contains("https://"), "the page needs nothing else");
    }
}
