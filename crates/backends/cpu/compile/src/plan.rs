//! A program while it is made: its memory, its sizes and its steps.

use std::collections::HashMap;
use std::sync::Arc;

use rushlight_cpu_payload::{
    self as payload, Affine, ConvertedType, CpuProgram, Direction, FloatFormat, Half, Size, SizeOp, Step, TensorId,
    half_of,
};
use rushlight_format::{Blob, ScalarType};

use rushlight_compiler::memory;
use rushlight_graph::expr::Function;
use rushlight_graph::{Bytes, Error, Expr, Progress, SymbolId, Symbols, TensorType};

use crate::error::error;
use crate::precision::Precision;
use crate::settings::Settings;
use crate::storage::{integral, is_stored_as_byte};
use crate::view::View;
use crate::weights::constants;
use crate::weights::packed_matrix::PackedMatrix;
use crate::weights::{self, Content, Made, Weights};

/// Constants of up to this many floats are stored in the payload itself.
const SMALL: usize = 1024;

/// Bytes that tensors of the arena are aligned to: a cache line, and the widest vector.
const ALIGNMENT: u64 = 64;

/// A [`CpuProgram`] while it is made.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    symbols: &'a Symbols,
    /// The type of packed weights of GEMMs and convolutions.
    precision: Precision,
    program: CpuProgram,
    buffers: Vec<Memory>,
    /// The inputs with their dtypes. Their sizes may depend on symbols of later inputs, so they become tensors last.
    inputs: Vec<(View, ScalarType)>,
    /// The position of each tensor in the program's list.
    tensors: HashMap<payload::Tensor, TensorId>,
    /// The blobs, in the order of their numbers in buffers.
    weights: Vec<Weights<'a>>,
    /// Buffers of small constants by their bits, so that equal ones are stored once.
    inline_floats: HashMap<Vec<u32>, usize>,
    computed: HashMap<Expr, u32>,
    bound: HashMap<SymbolId, u32>,
}

/// The memory of a buffer.
#[derive(Clone, Debug)]
enum Memory {
    Input(u32),
    Output(u32),
    Constant(payload::Buffer),
    /// A state, by position, and its sizes.
    State(u32, Vec<Expr>),
    /// An intermediate result, with the upper bound of its number of elements.
    Computed {
        shape: Vec<Expr>,
        max_len: u64,
        /// Elements in the memory of a float: 1 for f32, 2 for 16-bit floats, 4 for bytes.
        per_float: u64,
    },
}

impl Memory {
    /// Returns the number of floats that an intermediate result takes.
    fn floats(&self) -> Option<u64> {
        match self {
            Self::Computed { max_len, per_float, .. } => Some(max_len.div_ceil(*per_float)),
            _ => None,
        }
    }
}

impl<'a> Plan<'a> {
    pub fn new(symbols: &'a Symbols, precision: Precision) -> Self {
        Self {
            symbols,
            precision,
            program: CpuProgram::default(),
            buffers: Vec::new(),
            inputs: Vec::new(),
            tensors: HashMap::new(),
            inline_floats: HashMap::new(),
            weights: Vec::new(),
            computed: HashMap::new(),
            bound: HashMap::new(),
        }
    }

    /// Adds the next input.
    pub fn input(&mut self, ty: &TensorType) -> View {
        let position = self.inputs.len() as u32;
        self.buffers.push(Memory::Input(position));
        let view = View::dense(self.buffers.len() - 1, ty.shape.clone());
        // The dimensions define the symbols.
        for (dim, size) in ty.shape.iter().enumerate() {
            self.bind(size, SizeOp::Input { input: position, dim: dim as u32 });
        }
        self.inputs.push((view.clone(), ty.dtype));
        view
    }

    /// Binds the symbol in an input's size, which is the symbol, a multiple of it, or such a multiple plus a number.
    fn bind(&mut self, size: &Expr, op: SizeOp) {
        let Some((symbol, factor, offset)) = size.linear() else { return };
        if self.bound.contains_key(&symbol) {
            return;
        }
        let mut at = self.size_op(op);
        if offset != 0 {
            let offset = self.size_op(SizeOp::Fixed(-offset));
            at = self.size_op(SizeOp::Add(at, offset));
        }
        if factor != 1 {
            let factor = self.size_op(SizeOp::Fixed(factor));
            at = self.size_op(SizeOp::FloorDiv(at, factor));
        }
        self.bound.insert(symbol, at);
    }

    fn size_op(&mut self, op: SizeOp) -> u32 {
        self.program.sizes.push(op);
        self.program.sizes.len() as u32 - 1
    }

    /// Adds a size to the program.
    pub fn size(&mut self, expr: &Expr) -> Result<Size, Error> {
        match expr.as_int() {
            Some(int) => u64::try_from(int).map(Size::Fixed).map_err(|_| error(format!("a size of {int}"))),
            None => Ok(Size::Computed(self.compute(expr)?)),
        }
    }

    fn compute(&mut self, expr: &Expr) -> Result<u32, Error> {
        if let Some(known) = self.computed.get(expr) {
            return Ok(*known);
        }
        let at = match expr {
            Expr::Int(int) => self.size_op(SizeOp::Fixed(*int)),
            Expr::Symbol(symbol) => self.bound.get(symbol).copied().ok_or_else(|| {
                Error::unsupported(format!(
                    "no input has the size `{}` that a shape depends on",
                    self.symbols[*symbol].name
                ))
            })?,
            Expr::Call(call) => {
                let args = call.args.iter().map(|arg| self.compute(arg)).collect::<Result<Vec<_>, _>>()?;
                let op = match call.function {
                    Function::Add => SizeOp::Add,
                    Function::Mul => SizeOp::Mul,
                    Function::FloorDiv => SizeOp::FloorDiv,
                    Function::Mod => SizeOp::Mod,
                    Function::Max => SizeOp::Max,
                    Function::Min => SizeOp::Min,
                };
                let mut args = args.into_iter();
                let mut at = args.next().ok_or_else(|| error("a size without operands"))?;
                for arg in args {
                    at = self.size_op(op(at, arg));
                }
                at
            }
        };
        self.computed.insert(expr.clone(), at);
        Ok(at)
    }

    /// Gives a symbol the value of an element of an input of i64, which must be within the symbol's bounds.
    pub fn bind_element(&mut self, view: &View, index: u32, symbol: SymbolId) -> Result<(), Error> {
        let Some(Memory::Input(input)) = self.buffers.get(view.buffer) else {
            return Err(Error::unsupported("a number from a tensor that is no input"));
        };
        let (min, max) = Expr::Symbol(symbol).range(self.symbols);
        let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
        let at = self.size_op(SizeOp::Element { input: *input, index, min, max });
        self.bound.entry(symbol).or_insert(at);
        Ok(())
    }

    /// Adds the memory of a state; `initial` and `is_cache` are those of [`payload::State`].
    pub fn state(&mut self, key: &str, ty: &TensorType, initial: u32, is_cache: bool) -> Result<View, Error> {
        let affine = is_stored_as_byte(ty.dtype).then(|| integral(ty.dtype));
        let half = half_of(ty.dtype);
        let view = |buffer| View::dense(buffer, ty.shape.clone()).with_affine(affine).with_half(half);
        let index = self.program.states.iter().position(|state| state.key == key).unwrap_or(self.program.states.len());
        let is_it = |memory: &Memory| matches!(memory, Memory::State(at, _) if *at as usize == index);
        if let Some(buffer) = self.buffers.iter().position(is_it) {
            return Ok(view(buffer));
        }
        let len = Expr::product(&ty.shape).as_int().and_then(|len| u64::try_from(len).ok());
        let len = len.ok_or_else(|| Error::unsupported("a state whose size is not fixed"))?;
        let len = match (affine, half) {
            (Some(_), _) => len.div_ceil(4),
            (None, Some(_)) => len.div_ceil(2),
            (None, None) => len,
        };
        self.program.states.push(payload::State { key: key.to_owned(), len, initial, is_cache });
        self.buffers.push(Memory::State(index as u32, ty.shape.clone()));
        Ok(view(self.buffers.len() - 1))
    }

    /// True if a view shows a state.
    pub fn is_state(&self, view: &View) -> bool {
        matches!(self.buffers.get(view.buffer), Some(Memory::State(..)))
    }

    /// Adds memory for an intermediate result.
    fn buffer(&mut self, shape: &[Expr], per_float: u64) -> Result<usize, Error> {
        let sizes = shape.iter().map(|size| self.max_size(size)).collect::<Result<Vec<_>, _>>()?;
        let max_len = sizes.iter().try_fold(1u64, |count, size| count.checked_mul(*size as u64));
        let max_len = max_len.ok_or_else(|| Error::unsupported("a tensor beyond all memory"))?;
        self.buffers.push(Memory::Computed { shape: shape.to_vec(), max_len, per_float });
        Ok(self.buffers.len() - 1)
    }

    /// Adds a dense tensor.
    pub fn dense(&mut self, shape: Vec<Expr>) -> Result<View, Error> {
        Ok(View::dense(self.buffer(&shape, 1)?, shape))
    }

    /// Adds a tensor in the given dim order.
    pub fn ordered(&mut self, shape: Vec<Expr>, order: Vec<usize>) -> Result<View, Error> {
        self.ordered_as(shape, order, None)
    }

    /// Adds a tensor in the given dim order: of bytes if it has an affine, else of floats.
    pub fn ordered_as(&mut self, shape: Vec<Expr>, order: Vec<usize>, affine: Option<Affine>) -> Result<View, Error> {
        let per_float = if affine.is_some() { 4 } else { 1 };
        Ok(View::ordered(self.buffer(&shape, per_float)?, shape, order).with_affine(affine))
    }

    /// Adds a tensor of 16-bit floats in the given dim order.
    pub fn half_tensor(&mut self, shape: Vec<Expr>, order: Vec<usize>, half: Half) -> Result<View, Error> {
        Ok(View::ordered(self.buffer(&shape, 2)?, shape, order).with_half(Some(half)))
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: &str, floats: &[f32]) -> usize {
        if floats.len() > SMALL {
            return self.blob(name, Content::Ready(constants::bytes(floats)));
        }
        let bits: Vec<u32> = floats.iter().map(|float| float.to_bits()).collect();
        if let Some(known) = self.inline_floats.get(&bits) {
            return *known;
        }
        let offset = self.program.inline_floats.len() as u64;
        self.program.inline_floats.extend_from_slice(floats);
        let buffer = self.constant_buffer(payload::Buffer::Inline { offset, len: floats.len() as u64 });
        self.inline_floats.insert(bits, buffer);
        buffer
    }

    /// Adds a constant of one dimension.
    pub fn vector(&mut self, name: &str, floats: &[f32]) -> Result<TensorId, Error> {
        let view = View::dense(self.constant(name, floats), vec![Expr::Int(floats.len() as i64)]);
        self.tensor(&view)
    }

    /// Adds a constant whose floats stay in the memory of the file.
    pub fn constant_in_place(&mut self, name: &str, bytes: Bytes) -> usize {
        self.blob(name, Content::Ready(bytes))
    }

    /// Adds a constant of `len` floats that `pack` writes.
    pub fn packed(
        &mut self,
        name: &str,
        len: usize,
        pack: impl FnOnce(&mut [f32]) -> Result<(), Error> + Send + 'a,
    ) -> Result<View, Error> {
        let buffer = if len > SMALL {
            self.blob(name, Content::Packed(len, Precision::F32, Box::new(pack)))
        } else {
            let mut floats = vec![0.0; len];
            pack(&mut floats)?;
            self.constant(name, &floats)
        };
        Ok(View::dense(buffer, vec![Expr::Int(len as i64)]))
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// True if a tensor holds 16-bit floats: rounded weights.
    pub fn is_rounded(&self, tensor: TensorId) -> bool {
        let dtype = self.program.tensors.get(tensor as usize).map(|tensor| tensor.dtype);
        matches!(dtype, Some(ScalarType::Half | ScalarType::BFloat16))
    }

    /// Returns the format of [`weights`](Self::weights).
    pub fn float_format(&self) -> FloatFormat {
        match self.precision {
            Precision::F16 => FloatFormat::Half(Half::F16),
            Precision::Bf16 => FloatFormat::Half(Half::Bf16),
            Precision::F32 => FloatFormat::F32,
        }
    }

    /// Adds the packed weights of a GEMM, `len` of them, and returns the tensor that its step reads.
    pub fn weights(
        &mut self,
        name: &str,
        len: usize,
        pack: impl FnOnce(&mut [f32]) -> Result<(), Error> + Send + 'a,
    ) -> Result<TensorId, Error> {
        let format = self.float_format();
        if format == FloatFormat::F32 {
            let view = self.packed(name, len, pack)?;
            return self.tensor(&view);
        }
        let buffer = self.blob(name, Content::Packed(len, self.precision, Box::new(pack)));
        let dims = [Expr::Int(len as i64)];
        self.window_of(&View::dense(buffer, dims.to_vec()), &dims, format.dtype())
    }

    /// Adds the packed weights of an int8 convolution, `len` of them, a multiple of four.
    pub fn integers(
        &mut self,
        name: &str,
        len: usize,
        pack: impl FnOnce(&mut [i8]) -> Result<(), Error> + Send + 'a,
    ) -> Result<TensorId, Error> {
        let view = self.packed(name, len / 4, move |to| pack(bytemuck::cast_slice_mut(to)))?;
        self.bytes_of(view, len, ScalarType::Char)
    }

    /// Adds a packed matrix of integers, with its scales if they are stored among the integers.
    pub fn matrix(&mut self, name: &str, matrix: Arc<PackedMatrix>) -> Result<TensorId, Error> {
        let dtype = if matrix.has_scales() { ScalarType::Byte } else { ScalarType::Char };
        let len = matrix.len().ok_or_else(|| error("weights beyond all memory"))?;
        if len / 4 <= SMALL {
            let view = self.packed(name, len / 4, move |to| matrix.pack(bytemuck::cast_slice_mut(to)))?;
            return self.bytes_of(view, len, dtype);
        }
        // Tied weights are packed once.
        let is_same = |weights: &Weights<'_>| {
            weights.name == name && matches!(&weights.content, Content::Matrix(other) if other.is(&matrix))
        };
        let content = match self.weights.iter().position(is_same) {
            Some(index) => Content::Same(index),
            None => Content::Matrix(matrix),
        };
        let view = View::dense(self.blob(name, content), vec![Expr::Int(len as i64 / 4)]);
        self.bytes_of(view, len, dtype)
    }

    fn bytes_of(&mut self, view: View, len: usize, dtype: ScalarType) -> Result<TensorId, Error> {
        let dims = [Expr::Int(len as i64)];
        self.window_of(&View { shape: dims.to_vec(), ..view }, &dims, dtype)
    }

    /// Adds a constant as a blob of its own. An empty constant needs no blob.
    fn blob(&mut self, name: &str, content: Content<'a>) -> usize {
        if content.is_empty() {
            return self.constant_buffer(payload::Buffer::Inline { offset: 0, len: 0 });
        }
        self.weights.push(Weights { name: name.to_owned(), content });
        self.constant_buffer(payload::Buffer::Blob(self.weights.len() as u32 - 1))
    }

    fn constant_buffer(&mut self, buffer: payload::Buffer) -> usize {
        self.buffers.push(Memory::Constant(buffer));
        self.buffers.len() - 1
    }

    /// Returns the tensor that a step reads: a view, with its dimensions in the dim order.
    pub fn tensor(&mut self, view: &View) -> Result<TensorId, Error> {
        let dims = view.dims();
        self.window(view, &dims)
    }

    /// Returns a tensor with other dimensions that starts where a view does.
    pub fn window(&mut self, view: &View, dims: &[Expr]) -> Result<TensorId, Error> {
        let dtype = match (view.affine, view.half) {
            (Some(_), _) => ScalarType::Byte,
            (None, Some(half)) => ConvertedType::Half(half).dtype(),
            (None, None) => ScalarType::Float,
        };
        self.window_of(view, dims, dtype)
    }

    pub fn window_of(&mut self, view: &View, dims: &[Expr], dtype: ScalarType) -> Result<TensorId, Error> {
        // An empty tensor may stand anywhere, even where there is no memory at all.
        let is_empty = dims.iter().any(|size| size.is(0));
        let offset = if is_empty { Size::Fixed(0) } else { self.size(&view.offset)? };
        let dims = dims.iter().map(|size| self.size(size)).collect::<Result<Vec<_>, _>>()?;
        let tensor = payload::Tensor { dtype, buffer: view.buffer as u32, offset, dims, affine: view.affine };
        let next = self.program.tensors.len() as TensorId;
        let id = *self.tensors.entry(tensor.clone()).or_insert(next);
        if id == next {
            self.program.tensors.push(tensor);
        }
        Ok(id)
    }

    pub fn step(&mut self, name: impl Into<String>, step: Step) {
        self.program.steps.push(step);
        self.program.names.push(name.into());
    }

    /// Returns a view of the whole input that a view shows.
    pub fn input_of(&self, view: &View) -> Option<View> {
        self.inputs.iter().find(|(input, _)| input.buffer == view.buffer).map(|(input, _)| input.clone())
    }

    /// Returns the whole buffer of an intermediate result or a state as one dimension.
    pub fn whole(&mut self, view: &View) -> Result<View, Error> {
        let Some(Memory::Computed { shape, .. } | Memory::State(_, shape)) = self.buffers.get(view.buffer) else {
            return Err(error("a write to what is not computed"));
        };
        Ok(View::dense(view.buffer, vec![Expr::product(shape)]).with_affine(view.affine).with_half(view.half))
    }

    /// Reserves scratch memory of a step, for each thread.
    pub fn scratch(&mut self, floats: usize) {
        self.program.scratch = self.program.scratch.max(floats as u64);
    }

    /// Returns the upper bound of a size.
    pub fn max_size(&self, size: &Expr) -> Result<usize, Error> {
        let max = size.upper_bound(self.symbols).and_then(|max| usize::try_from(max).ok());
        max.ok_or_else(|| Error::unsupported("a tensor without an upper bound of its size"))
    }

    /// True if a view covers an intermediate result whole, so that the result can be computed in an output's memory.
    fn is_whole(&self, view: &View) -> bool {
        let count = Expr::product(&view.shape).upper_bound(self.symbols);
        match self.buffers.get(view.buffer) {
            Some(Memory::Computed { max_len, per_float: 1, .. }) => {
                view.offset.is(0) && count.and_then(|n| u64::try_from(n).ok()) == Some(*max_len)
            }
            _ => false,
        }
    }

    /// True if a step reads a buffer that it writes. Only the arena allows this.
    fn is_read_while_written(&self, buffer: usize) -> bool {
        let is_it = |id: TensorId| self.program.tensors[id as usize].buffer as usize == buffer;
        self.program.steps.iter().filter(|step| is_it(step.output())).any(|step| {
            let mut reads = false;
            step.for_each_input(&mut |id| reads |= is_it(id));
            reads
        })
    }

    /// Adds the next output, with its dtype for the caller. `view` is dense; `alone` says that no other output shows
    /// the same buffer.
    pub fn output(&mut self, view: &View, dtype: ScalarType, alone: bool) -> Result<(), Error> {
        let position = self.program.outputs.len() as u32;
        let is_float = dtype == ScalarType::Float;
        let buffer = if is_float && alone && self.is_whole(view) && !self.is_read_while_written(view.buffer) {
            self.buffers[view.buffer] = Memory::Output(position);
            view.buffer
        } else {
            let count = [Expr::product(&view.shape)];
            let x = self.window(view, &count)?;
            self.buffers.push(Memory::Output(position));
            let to = View::dense(self.buffers.len() - 1, count.to_vec());
            let y = self.window_of(&to, &count, dtype)?;
            let size = self.size(&count[0])?;
            let (zero, one) = (Size::Fixed(0), Size::Fixed(1));
            let step = if is_float {
                Step::Copy(payload::Copy {
                    x,
                    y,
                    sizes: vec![size],
                    x_offset: zero,
                    x_strides: vec![one],
                    y_offset: zero,
                    y_strides: vec![one],
                    fill: None,
                })
            } else {
                let element = ConvertedType::of(dtype).ok_or_else(|| error("an output of a type that is not held"))?;
                Step::Convert(payload::Convert { x, y, element, direction: Direction::Leave })
            };
            self.step("output", step);
            to.buffer
        };
        let id = self.window_of(&View::dense(buffer, view.shape.clone()), &view.shape, dtype)?;
        self.program.outputs.push(id);
        let sizes = view.shape.iter().map(|size| self.size(size)).collect::<Result<Vec<_>, _>>()?;
        self.program.output_sizes.push(sizes);
        Ok(())
    }

    /// Plans the memory, and packs weights.
    pub fn finish(
        mut self,
        settings: &Settings,
        progress: &Progress,
    ) -> Result<(CpuProgram, Vec<(String, Blob<'static>)>), Error> {
        let mut named_data: Vec<(String, Blob<'static>)> = Vec::new();
        let mut blobs = Vec::with_capacity(self.weights.len());
        for made in weights::make(std::mem::take(&mut self.weights), settings, progress)? {
            let (mut key, data) = match made {
                Made::Same(index) => {
                    blobs.push(blobs.get(index).copied().unwrap_or_default());
                    continue;
                }
                Made::Data(key, data) => (key, data),
            };
            // Equal blobs are stored once. Different blobs with the same key, however unlikely, get keys of their own.
            let index = loop {
                match named_data.iter().position(|(known, _)| *known == key) {
                    Some(index) if named_data[index].1 == data => break index,
                    Some(_) => key.push('\''),
                    None => {
                        named_data.push((key, data));
                        break named_data.len() - 1;
                    }
                }
            };
            blobs.push(index as u32);
        }
        self.program.blobs = named_data.iter().map(|(key, _)| key.clone()).collect();
        for (view, dtype) in std::mem::take(&mut self.inputs) {
            let id = self.window_of(&view, &view.dims(), dtype)?;
            self.program.inputs.push(id);
        }
        let mut uses: Vec<Option<(usize, usize)>> = vec![None; self.buffers.len()];
        for (index, step) in self.program.steps.iter().enumerate() {
            let mut touch = |id: TensorId| {
                let buffer = self.program.tensors[id as usize].buffer as usize;
                let (first, last) = uses[buffer].get_or_insert((index, index));
                *first = (*first).min(index);
                *last = (*last).max(index);
            };
            touch(step.output());
            step.for_each_input(&mut touch);
        }
        let mut planned = Vec::new();
        let mut requests = Vec::new();
        for (index, memory) in self.buffers.iter().enumerate() {
            if let (Some(floats), Some((first, last))) = (memory.floats(), uses[index]) {
                planned.push(index);
                requests.push(memory::Buffer { alignment: ALIGNMENT, ..memory::Buffer::new(floats * 4, first, last) });
            }
        }
        let plan = memory::plan(&requests).map_err(|problem| error(problem.to_string()))?;
        memory::check(&requests, &plan).map_err(|conflict| error(conflict.to_string()))?;
        self.program.arena = plan.total().div_ceil(4);
        let mut offsets = vec![0; self.buffers.len()];
        planned.iter().zip(&plan.offsets).for_each(|(index, offset)| offsets[*index] = offset / 4);
        let placed = |(index, memory): (usize, &Memory)| match memory {
            Memory::Input(position) => payload::Buffer::Input(*position),
            Memory::Output(position) => payload::Buffer::Output(*position),
            Memory::Constant(payload::Buffer::Blob(index)) => {
                payload::Buffer::Blob(blobs.get(*index as usize).copied().unwrap_or_default())
            }
            Memory::Constant(buffer) => *buffer,
            Memory::State(index, _) => payload::Buffer::State(*index),
            // A result that no step uses takes no memory.
            Memory::Computed { .. } if uses[index].is_none() => payload::Buffer::Arena { offset: 0, len: 0 },
            Memory::Computed { .. } => {
                payload::Buffer::Arena { offset: offsets[index], len: memory.floats().unwrap_or_default() }
            }
        };
        self.program.buffers = self.buffers.iter().enumerate().map(placed).collect();
        Ok((self.program, named_data))
    }
}
