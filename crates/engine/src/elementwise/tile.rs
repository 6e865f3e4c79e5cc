//! Tiles of elements that stay in the first-level cache while all instructions run on them.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::functions::{Apply, Input};
use super::{Data, Instruction, MAX_DIMS, Operand, Plan, REGISTERS, Source};
use crate::Affine;
use crate::arch::{Job, LANES, Simd};
use crate::convert::from_bf16;
use crate::numbers::{Number, on};
use crate::quantized::Levels;
use crate::split::Output;

/// The most elements of a tile.
pub(super) const TILE: usize = 512;

/// Operands that are broadcast are spread out into a tile. As many as this keep it from tile to tile as long as it is the
/// same; others are spread out by each instruction.
const KEPT: usize = 8;

/// The most operands of an instruction.
const INPUTS: usize = 3;

/// A program on its operands. All was checked.
pub(super) struct Tiles<'a> {
    pub(super) plan: &'a Plan,
    pub(super) instructions: &'a [Instruction],
    pub(super) operands: &'a [Source<'a>],
    pub(super) y: Target<'a>,
}

/// Where results go.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Floats(Output<'a>),
    Bytes(Output<'a, u8>, Levels),
    Bf16(Output<'a, u16>),
}

impl<'a> Tiles<'a> {
    /// A task of some of the tiles.
    pub(super) fn range(&'a self, range: Range<usize>) -> Run<'a> {
        Run { tiles: self, range }
    }
}

pub(super) struct Run<'a> {
    tiles: &'a Tiles<'a>,
    range: Range<usize>,
}

type Memory = [MaybeUninit<f32>; TILE];

/// What a task works in.
struct Scratch {
    registers: [Memory; REGISTERS],
    kept: [Memory; KEPT],
    /// The first element and the number of elements that each kept tile was made for.
    made_for: [(usize, usize); KEPT],
    spread: [Memory; INPUTS],
    numbers: [[f32; LANES]; INPUTS],
}

impl Job for Run<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let empty = [MaybeUninit::uninit(); TILE];
        let mut scratch = Scratch {
            registers: [empty; REGISTERS],
            kept: [empty; KEPT],
            made_for: [(0, 0); KEPT],
            spread: [empty; INPUTS],
            numbers: [[0.0; LANES]; INPUTS],
        };
        let mut tile = Tile::default();
        for index in self.range.clone() {
            tile.locate(self.tiles.plan, index);
            for (i, instruction) in self.tiles.instructions.iter().enumerate() {
                let is_last = i + 1 == self.tiles.instructions.len();
                self.tiles.step(s, &tile, instruction, is_last, &mut scratch);
            }
        }
    }
}

/// Where a tile is.
#[derive(Default)]
struct Tile {
    /// Its position in the dimensions outside of the rows.
    outer: [usize; MAX_DIMS],
    first_row: usize,
    rows: usize,
    /// Its first element in the result, and how many it has.
    first: usize,
    elements: usize,
}

impl Tile {
    /// Goes to tile `index`, in place: to move a tile that has just been written stalls the processor.
    #[inline]
    fn locate(&mut self, plan: &Plan, index: usize) {
        let per_row = plan.tiles_per_row();
        let (mut rest, tile) = if plan.row == 0 { (0, index) } else { (index / per_row, index % per_row) };
        self.first_row = tile * plan.rows;
        self.first = (rest * plan.sizes[plan.row] + self.first_row) * plan.unit;
        for dim in (0..plan.row).rev() {
            self.outer[dim] = rest % plan.sizes[dim];
            rest /= plan.sizes[dim];
        }
        self.rows = plan.rows.min(plan.sizes[plan.row] - self.first_row);
        self.elements = self.rows * plan.unit;
    }
}

impl Tiles<'_> {
    #[inline(always)]
    fn step<S: Simd>(&self, s: S, tile: &Tile, instruction: &Instruction, is_last: bool, scratch: &mut Scratch) {
        let zero = Operand::Number(0.0);
        let (to, function, operands) = match *instruction {
            Instruction::Unary { to, function, x } => (to, Apply::Unary(function), [x, zero, zero]),
            Instruction::Binary { to, function, a, b } => (to, Apply::Binary(function), [a, b, zero]),
            Instruction::Select { to, condition, a, b } => (to, Apply::Select, [condition, a, b]),
            Instruction::Activate { to, activation, x } => (to, Apply::Activate(activation), [x, zero, zero]),
        };
        let mut inputs = [Input::NONE; INPUTS];
        for i in 0..function.operands() {
            inputs[i] = self.input(s, tile, operands[i], i, scratch);
        }
        let register = scratch.registers[usize::from(to)].as_mut_ptr().cast();
        let to = match self.y {
            Target::Floats(y) if is_last => y.at(tile.first),
            _ => register,
        };
        // SAFETY: registers, kept and spread tiles have 512 floats, of which the tile's have been written; slices were
        // checked to hold all elements; tiles of the result are disjoint.
        unsafe { function.run_on(s, inputs, to, tile.elements) };
        match self.y {
            Target::Bytes(y, levels) if is_last => {
                s.vectorize(Narrow { from: register, to: y.at(tile.first), n: tile.elements, levels });
            }
            Target::Bf16(y) if is_last => {
                on::<u16, _, _>(s, Convert { from: register.cast_const(), to: y.at(tile.first), n: tile.elements });
            }
            _ => {}
        }
    }

    /// Where an instruction finds an operand; the `position`-th that it has.
    #[inline(always)]
    fn input<S: Simd>(&self, s: S, tile: &Tile, operand: Operand, position: usize, scratch: &mut Scratch) -> Input {
        match operand {
            Operand::Register(register) => Input::memory(scratch.registers[usize::from(register)].as_ptr().cast()),
            Operand::Number(x) => Input::number(x, &mut scratch.numbers[position]),
            Operand::Tensor(index) => {
                let source = &self.operands[usize::from(index)];
                let plan = self.plan;
                let stride = |dim: usize| source.strides[plan.axes[dim]];
                let mut at = tile.first_row * stride(plan.row);
                for dim in 0..plan.row {
                    at += tile.outer[dim] * stride(dim);
                }
                let mut dense = 1;
                let (mut is_dense, mut is_number) = (true, true);
                for dim in (plan.row..plan.rank).rev() {
                    is_dense &= stride(dim) == dense;
                    is_number &= stride(dim) == 0;
                    dense *= plan.sizes[dim];
                }
                let is_dense = is_dense || tile.elements == 1;
                if let (Data::Floats(data), true) = (source.data, is_dense) {
                    return Input::memory(data.as_ptr().wrapping_add(at));
                }
                if is_number {
                    let number = match source.data {
                        Data::Floats(data) => data[at],
                        Data::Bytes(data, affine) => widened(data[at], affine),
                        Data::Bf16(data) => from_bf16(data[at]),
                    };
                    return Input::number(number, &mut scratch.numbers[position]);
                }
                let make = |to: &mut Memory| match source.data {
                    Data::Bytes(data, affine) if is_dense => {
                        let (from, to) = (data.as_ptr().wrapping_add(at), to.as_mut_ptr().cast());
                        s.vectorize(Widen { from, to, n: tile.elements, affine });
                    }
                    Data::Bf16(data) if is_dense => {
                        let (from, to) = (data.as_ptr().wrapping_add(at), to.as_mut_ptr().cast::<f32>());
                        on::<u16, _, _>(s, Convert { from, to, n: tile.elements });
                    }
                    Data::Floats(data) => self.spread(tile, source, at, to, |at| data[at]),
                    Data::Bf16(data) => self.spread(tile, source, at, to, |at| from_bf16(data[at])),
                    Data::Bytes(data, affine) => self.spread(tile, source, at, to, |at| widened(data[at], affine)),
                };
                let index = usize::from(index);
                if index >= KEPT {
                    make(&mut scratch.spread[position]);
                    return Input::memory(scratch.spread[position].as_ptr().cast());
                }
                let (made_at, made) = scratch.made_for[index];
                if made_at != at || made < tile.elements {
                    make(&mut scratch.kept[index]);
                    scratch.made_for[index] = (at, tile.elements);
                }
                Input::memory(scratch.kept[index].as_ptr().cast())
            }
        }
    }

    /// Writes the elements of a tile that are read through strides one after the other.
    #[inline(always)]
    fn spread(&self, tile: &Tile, source: &Source<'_>, at: usize, to: &mut Memory, element: impl Fn(usize) -> f32) {
        let plan = self.plan;
        let stride = |dim: usize| source.strides[plan.axes[dim]];
        let inner = plan.rank - 1;
        let (run, step) =
            if inner == plan.row { (tile.rows, stride(inner)) } else { (plan.sizes[inner], stride(inner)) };
        // Rows that are all the same are copies of the first.
        let repeats = plan.row < inner && stride(plan.row) == 0;
        let elements = if repeats { plan.unit } else { tile.elements };
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
            for dim in (plan.row..inner).rev() {
                index[dim] += 1;
                from += stride(dim);
                if dim == plan.row || index[dim] < plan.sizes[dim] {
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

/// What a byte stands for.
fn widened(byte: u8, Affine { scale, zero, .. }: Affine) -> f32 {
    (f32::from(byte) - f32::from(zero)) * scale
}

/// Bytes as the numbers that they stand for.
struct Widen {
    from: *const u8,
    to: *mut f32,
    n: usize,
    affine: Affine,
}

impl Job for Widen {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (zero, scale) = (s.splat(f32::from(self.affine.zero)), s.splat(self.affine.scale));
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            // SAFETY: `elementwise` has checked that all elements are in the slice.
            let bytes = s.floats(unsafe { s.load_bytes(self.from.wrapping_add(i), n) });
            let v = s.mul(s.sub(bytes, zero), scale);
            // SAFETY: tiles have 512 floats, a multiple of 16.
            unsafe { s.store(self.to.wrapping_add(i), v) };
        }
    }
}

/// Numbers of one type as those of another.
struct Convert<A, B> {
    from: *const A,
    to: *mut B,
    n: usize,
}

impl<A: Number, B: Number> Job for Convert<A, B> {
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

/// Numbers as bytes.
struct Narrow {
    from: *const f32,
    to: *mut u8,
    n: usize,
    levels: Levels,
}

impl Job for Narrow {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            // SAFETY: a tile of 512 floats has at least as many that were written.
            let v = unsafe { s.load_part(self.from.wrapping_add(i), n) };
            // SAFETY: `elementwise` has checked the result's length, and tiles are disjoint.
            unsafe { s.store_bytes(self.to.wrapping_add(i), n, self.levels.round(s, v)) };
        }
    }
}
