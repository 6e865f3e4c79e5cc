//! Execution tile by tile: a tile stays in L1 while all instructions run on it.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::loops::{LoopInput, LoopOp};
use super::{Data, Instruction, MAX_DIMS, Operand, REGISTERS, Source, TilePlan};
use crate::arch::{Kernel, LANES, Scalar, Simd};
use crate::element::{Element, run_for_element};
use crate::float16::from_bf16;
use crate::parallel::SharedOutput;
use crate::quantized::U8Quantizer;
use crate::task_memory::{AnyBytes, TaskMemory};
use crate::{Affine, Engine};

/// Maximum elements of a tile.
pub(super) const TILE_ELEMENTS: usize = 512;

/// Broadcast operands are expanded into a tile. This many operands are cached from tile to tile while the expansion is
/// the same; further ones are expanded by each instruction.
const MAX_CACHED: usize = 8;

/// Maximum operands of an instruction.
const MAX_INPUTS: usize = 3;

/// A checked program with its operands.
pub(super) struct ElementwiseRun<'a> {
    pub(super) plan: &'a TilePlan,
    pub(super) instructions: &'a [Instruction],
    pub(super) operands: &'a [Source<'a>],
    pub(super) y: Target<'a>,
}

/// Destination of the output.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Floats(SharedOutput<'a>),
    Bytes(SharedOutput<'a, u8>, U8Quantizer),
    Bf16(SharedOutput<'a, u16>),
}

impl<'a> ElementwiseRun<'a> {
    /// Computes a range of tiles on the calling thread, by the engine or by portable code.
    pub(super) fn run(&'a self, engine: Option<&Engine>, range: Range<usize>) {
        let mut memory = TaskMemory::take();
        let task = ElementwiseTask { tiles: self, range, scratch: memory.get() };
        match engine {
            Some(engine) => engine.dispatch.run(task),
            None => Scalar::new().vectorize(task),
        }
    }
}

/// One task: a range of tiles.
struct ElementwiseTask<'a> {
    tiles: &'a ElementwiseRun<'a>,
    range: Range<usize>,
    scratch: &'a mut Scratch,
}

type TileBuffer = [MaybeUninit<f32>; TILE_ELEMENTS];

/// Working memory of a task.
struct Scratch {
    registers: [TileBuffer; REGISTERS],
    operands: OperandTiles,
}

/// The tiles that operands are expanded to.
struct OperandTiles {
    cached: [TileBuffer; MAX_CACHED],
    /// First element and number of elements that each cached tile was expanded for.
    cached_for: [(usize, usize); MAX_CACHED],
    expanded: [TileBuffer; MAX_INPUTS],
    constants: [[f32; LANES]; MAX_INPUTS],
}

// SAFETY: arrays of numbers, some of which may be without a value.
unsafe impl AnyBytes for Scratch {}

impl Kernel for ElementwiseTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { tiles, range, scratch } = self;
        scratch.operands.cached_for = [(0, 0); MAX_CACHED];
        let mut tile = TilePosition::default();
        for index in range {
            tile.locate(tiles.plan, index);
            for (i, instruction) in tiles.instructions.iter().enumerate() {
                let is_last = i + 1 == tiles.instructions.len();
                tiles.step(s, &tile, instruction, is_last, scratch);
            }
        }
    }
}

/// Position of a tile.
#[derive(Default)]
struct TilePosition {
    /// Index in the dimensions outside the rows.
    outer: [usize; MAX_DIMS],
    first_row: usize,
    rows: usize,
    /// First element in the output, and number of elements.
    first: usize,
    elements: usize,
}

impl TilePosition {
    /// Moves to tile `index`, in place: copying a struct right after it was written causes store-forwarding stalls.
    #[inline]
    fn locate(&mut self, plan: &TilePlan, index: usize) {
        let per_row = plan.tiles_along_rows();
        let (mut rest, tile) = if plan.row_dim == 0 { (0, index) } else { (index / per_row, index % per_row) };
        self.first_row = tile * plan.rows;
        self.first = (rest * plan.sizes[plan.row_dim] + self.first_row) * plan.row_elements;
        for dim in (0..plan.row_dim).rev() {
            self.outer[dim] = rest % plan.sizes[dim];
            rest /= plan.sizes[dim];
        }
        self.rows = plan.rows.min(plan.sizes[plan.row_dim] - self.first_row);
        self.elements = self.rows * plan.row_elements;
    }
}

impl ElementwiseRun<'_> {
    /// Executes one instruction on a tile.
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        s: S,
        tile: &TilePosition,
        instruction: &Instruction,
        is_last: bool,
        scratch: &mut Scratch,
    ) {
        let zero = Operand::Constant(0.0);
        let (to, function, operands) = match *instruction {
            Instruction::Unary { to, function, x } => (to, LoopOp::Unary(function), [x, zero, zero]),
            Instruction::Binary { to, function, a, b } => (to, LoopOp::Binary(function), [a, b, zero]),
            Instruction::Select { to, condition, a, b } => (to, LoopOp::Select, [condition, a, b]),
            Instruction::Activate { to, activation, x } => (to, LoopOp::Activate(activation), [x, zero, zero]),
        };
        // Reads and writes use one pointer, because they may access the same register.
        let registers = scratch.registers.as_mut_ptr();
        let mut inputs = [LoopInput::NONE; MAX_INPUTS];
        for i in 0..function.operands() {
            inputs[i] = match operands[i] {
                Operand::Register(register) => LoopInput::memory(registers.wrapping_add(register.into()).cast()),
                Operand::Constant(x) => LoopInput::number(x, &mut scratch.operands.constants[i]),
                Operand::Tensor(index) => self.tensor(s, tile, index.into(), i, &mut scratch.operands),
            };
        }
        let register = registers.wrapping_add(to.into()).cast::<f32>();
        let to = match self.y {
            Target::Floats(y) if is_last => y.at(tile.first),
            _ => register,
        };
        // SAFETY: registers, cached and expanded tiles have 512 floats, of which the tile's have been written; slices
        // were checked to hold all elements; tiles of the result are disjoint.
        unsafe { function.run_on(s, inputs, to, tile.elements) };
        match self.y {
            Target::Bytes(y, quantizer) if is_last => {
                s.vectorize(QuantizeTile { from: register, to: y.at(tile.first), n: tile.elements, quantizer });
            }
            Target::Bf16(y) if is_last => {
                run_for_element::<u16, _, _>(
                    s,
                    ConvertTile { from: register.cast_const(), to: y.at(tile.first), n: tile.elements },
                );
            }
            _ => {}
        }
    }

    /// Resolves a tensor as operand number `position` of an instruction.
    #[inline(always)]
    fn tensor<S: Simd>(
        &self,
        s: S,
        tile: &TilePosition,
        index: usize,
        position: usize,
        to: &mut OperandTiles,
    ) -> LoopInput {
        let source = &self.operands[index];
        let plan = self.plan;
        let stride = |dim: usize| source.strides[plan.axes[dim]];
        let mut at = tile.first_row * stride(plan.row_dim);
        for dim in 0..plan.row_dim {
            at += tile.outer[dim] * stride(dim);
        }
        let mut dense = 1;
        let (mut is_dense, mut is_number) = (true, true);
        for dim in (plan.row_dim..plan.rank).rev() {
            is_dense &= stride(dim) == dense;
            is_number &= stride(dim) == 0;
            dense *= plan.sizes[dim];
        }
        let is_dense = is_dense || tile.elements == 1;
        if let (Data::Floats(data), true) = (source.data, is_dense) {
            return LoopInput::memory(data.as_ptr().wrapping_add(at));
        }
        if is_number {
            let number = match source.data {
                Data::Floats(data) => data[at],
                Data::Bytes(data, affine) => dequantize(data[at], affine),
                Data::Bf16(data) => from_bf16(data[at]),
            };
            return LoopInput::number(number, &mut to.constants[position]);
        }
        let make = |buffer: &mut TileBuffer| match source.data {
            Data::Bytes(data, affine) if is_dense => {
                let (from, to) = (data.as_ptr().wrapping_add(at), buffer.as_mut_ptr().cast());
                s.vectorize(DequantizeTile { from, to, n: tile.elements, affine });
            }
            Data::Bf16(data) if is_dense => {
                let (from, to) = (data.as_ptr().wrapping_add(at), buffer.as_mut_ptr().cast::<f32>());
                run_for_element::<u16, _, _>(s, ConvertTile { from, to, n: tile.elements });
            }
            Data::Floats(data) => self.expanded(tile, source, at, buffer, |at| data[at]),
            Data::Bf16(data) => self.expanded(tile, source, at, buffer, |at| from_bf16(data[at])),
            Data::Bytes(data, affine) => self.expanded(tile, source, at, buffer, |at| dequantize(data[at], affine)),
        };
        if index >= MAX_CACHED {
            make(&mut to.expanded[position]);
            return LoopInput::memory(to.expanded[position].as_ptr().cast());
        }
        let (made_at, made) = to.cached_for[index];
        if made_at != at || made < tile.elements {
            make(&mut to.cached[index]);
            to.cached_for[index] = (at, tile.elements);
        }
        LoopInput::memory(to.cached[index].as_ptr().cast())
    }

    /// Expands a strided operand into a contiguous tile.
    #[inline(always)]
    fn expanded(
        &self,
        tile: &TilePosition,
        source: &Source<'_>,
        at: usize,
        to: &mut TileBuffer,
        element: impl Fn(usize) -> f32,
    ) {
        let plan = self.plan;
        let stride = |dim: usize| source.strides[plan.axes[dim]];
        let inner = plan.rank - 1;
        let (run, step) =
            if inner == plan.row_dim { (tile.rows, stride(inner)) } else { (plan.sizes[inner], stride(inner)) };
        // Repeated rows are copied from the first.
        let repeats = plan.row_dim < inner && stride(plan.row_dim) == 0;
        let elements = if repeats { plan.row_elements } else { tile.elements };
        let mut index = [0; MAX_DIMS];
        let mut from = at;
        for to in to[..elements].chunks_exact_mut(run) {
            match step {
                0 => to.fill(MaybeUninit::new(element(from))),
                1 => {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = MaybeUninit::new(element(from + i));
                    }
                }
                _ => {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = MaybeUninit::new(element(from + i * step));
                    }
                }
            }
            for dim in (plan.row_dim..inner).rev() {
                index[dim] += 1;
                from += stride(dim);
                if dim == plan.row_dim || index[dim] < plan.sizes[dim] {
                    break;
                }
                from -= index[dim] * stride(dim);
                index[dim] = 0;
            }
        }
        let mut written = elements;
        while written < tile.elements {
            let more = written.min(tile.elements - written);
            to.copy_within(..more, written);
            written += more;
        }
    }
}

/// Dequantizes a byte.
fn dequantize(byte: u8, Affine { scale, zero_point, .. }: Affine) -> f32 {
    (f32::from(byte) - f32::from(zero_point)) * scale
}

/// Dequantizes u8 to f32.
struct DequantizeTile {
    from: *const u8,
    to: *mut f32,
    n: usize,
    affine: Affine,
}

impl Kernel for DequantizeTile {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (zero, scale) = (s.splat(f32::from(self.affine.zero_point)), s.splat(self.affine.scale));
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            // SAFETY: `elementwise` has checked that all elements are in the slice.
            let bytes = s.i32_to_f32(unsafe { s.load_u8(self.from.wrapping_add(i), n) });
            let v = s.mul(s.sub(bytes, zero), scale);
            // SAFETY: tiles have 512 floats, a multiple of 16.
            unsafe { s.store(self.to.wrapping_add(i), v) };
        }
    }
}

/// Converts between element types.
struct ConvertTile<A, B> {
    from: *const A,
    to: *mut B,
    n: usize,
}

impl<A: Element, B: Element> Kernel for ConvertTile<A, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            // SAFETY: `elementwise` has checked that all elements are in the slice; those of a tile were written.
            let v = unsafe { A::load(s, self.from.wrapping_add(i), n) };
            // SAFETY: tiles have 512 floats; `elementwise` has checked the result's length, and its tiles are disjoint.
            unsafe { B::store(s, self.to.wrapping_add(i), n, v) };
        }
    }
}

/// Quantizes f32 to u8.
struct QuantizeTile {
    from: *const f32,
    to: *mut u8,
    n: usize,
    quantizer: U8Quantizer,
}

impl Kernel for QuantizeTile {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            // SAFETY: the first `n` floats of the tile were written.
            let v = unsafe { s.load_partial(self.from.wrapping_add(i), n) };
            // SAFETY: `elementwise` has checked the result's length, and tiles are disjoint.
            unsafe { s.store_as_u8(self.to.wrapping_add(i), n, self.quantizer.round(s, v)) };
        }
    }
}
