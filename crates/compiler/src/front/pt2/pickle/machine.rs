//! The interpreter: a stack, marks in it, and values remembered by number, all of which refer to cells of one arena. A
//! cell may be referred to from many places, and lists and dictionaries are filled after that, so that values are built
//! from cells only when the last instruction is reached.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::error::{Error, ErrorKind};
use super::super::stored_tensor::{MAX_RANK, Storage, StorageData, StoredTensor};
use super::super::zip::Zip;
use super::globals::{Global, dtype};
use super::{Object, PICKLE, PickleFault, PickleValue, Subclass};

/// Values nested deeper than this are an attack.
const MAX_DEPTH: usize = 100;

/// Runs `pickle`, whose storages are entries of `zip`. `entry` is what holds the archive.
pub(super) fn run(pickle: &[u8], zip: &Zip, entry: &str) -> Result<PickleValue, Error> {
    let mut machine = Machine {
        input: pickle,
        at: 0,
        zip,
        entry,
        cells: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        budget: 1024 + pickle.len().saturating_mul(8),
        unknown: None,
    };
    loop {
        let at = machine.at;
        let result = machine.step().and_then(|last| last.map(|cell| machine.value(cell, 0)).transpose());
        match result {
            Ok(None) => {}
            Ok(Some(value)) => return Ok(value),
            // An unknown name caused the bad call: the error names it.
            Err(Failure(ErrorKind::Pickle(PickleFault::Call { .. }))) if machine.unknown.is_some() => {
                let (name, at) = machine.unknown.take().unwrap_or_default();
                return Err(Error::new(PICKLE, ErrorKind::Pickle(PickleFault::Global { name })).at(at as u64));
            }
            Err(Failure(kind)) => return Err(Error::new(PICKLE, kind).at(at as u64)),
            Err(Elsewhere(error)) => return Err(error),
        }
    }
}

/// The reason why the interpreter stopped: a fault of the pickle, or of an entry that it refers to.
enum Stop {
    Failure(ErrorKind),
    Elsewhere(Error),
}

use Stop::{Elsewhere, Failure};

impl From<PickleFault> for Stop {
    fn from(fault: PickleFault) -> Self {
        Failure(ErrorKind::Pickle(fault))
    }
}

type Cell = usize;

#[derive(Clone)]
enum CellValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(Arc<str>),
    Tuple(Arc<[Cell]>),
    List(Vec<Cell>),
    Dict(Vec<(Cell, Cell)>),
    Global(Global),
    Storage(Arc<TypedStorage>),
    Tensor(Arc<StoredTensor>),
    Torch(Arc<str>),
    Device(Arc<str>, Option<i64>),
    Subclass {
        class: Arc<str>,
        dtype: Arc<str>,
        sizes: Arc<[Cell]>,
        attributes: Option<Cell>,
    },
    Object {
        class: Arc<str>,
        arguments: Arc<[Cell]>,
        state: Option<Cell>,
    },
    /// A function or class that is not on the list, or its result. Nothing is called, and the value can only be dropped.
    Unknown,
}

struct TypedStorage {
    dtype: Option<rushlight_format::ScalarType>,
    storage: Storage,
}

struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    zip: &'a Zip,
    entry: &'a str,
    cells: Vec<CellValue>,
    stack: Vec<Cell>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Cell>,
    /// Number of values that may still be made of the cells.
    budget: usize,
    /// The first name that is not on the list, with its offset.
    unknown: Option<(String, usize)>,
}

impl<'a> Machine<'a> {
    /// Runs one instruction. Returns the result after the last one.
    fn step(&mut self) -> Result<Option<Cell>, Stop> {
        let [code] = self.take()?;
        match code {
            b'.' => return self.pop().map(Some),
            // PROTO
            0x80 => match self.take()? {
                [2] => {}
                [version] => return Err(PickleFault::Protocol { version }.into()),
            },
            b'N' => self.push(CellValue::None),
            0x88 => self.push(CellValue::Bool(true)),
            0x89 => self.push(CellValue::Bool(false)),
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let value = i32::from_le_bytes(self.take()?);
                self.push(CellValue::Int(value.into()));
            }
            b'K' => {
                let [value] = self.take()?;
                self.push(CellValue::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.take()?);
                self.push(CellValue::Int(value.into()));
            }
            0x8a => {
                let value = self.long()?;
                self.push(CellValue::Int(value));
            }
            // BINFLOAT
            b'G' => {
                let value = f64::from_be_bytes(self.take()?);
                self.push(CellValue::Float(value));
            }
            // BINUNICODE
            b'X' => {
                let len = u32::from_le_bytes(self.take()?);
                let text = std::str::from_utf8(self.slice(len as usize)?).map_err(|_| PickleFault::NotUtf8)?;
                self.push(CellValue::String(text.into()));
            }
            b'(' => self.marks.push(self.stack.len()),
            b')' => self.push(CellValue::Tuple(Arc::default())),
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(CellValue::Tuple(items.into()));
            }
            // TUPLE1, TUPLE2, TUPLE3
            0x85..=0x87 => {
                let count = usize::from(code - 0x84);
                let first = self.height_above(count)?;
                let items = self.stack.split_off(first);
                self.push(CellValue::Tuple(items.into()));
            }
            b']' => self.push(CellValue::List(Vec::new())),
            b'}' => self.push(CellValue::Dict(Vec::new())),
            // APPEND, APPENDS
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            // SETITEM, SETITEMS
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }
            b'c' => {
                let at = self.at - 1;
                let (module, name) = (self.line()?, self.line()?);
                let global = Global::named(module, name);
                if global.is_none() {
                    self.unknown.get_or_insert_with(|| (format!("{module}.{name}"), at));
                }
                self.push(global.map_or(CellValue::Unknown, CellValue::Global));
            }
            // BINPUT, LONG_BINPUT, BINGET, LONG_BINGET
            b'q' => {
                let [index] = self.take()?;
                self.remember(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.take()?);
                self.remember(index)?;
            }
            b'h' => {
                let [index] = self.take()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take()?);
                self.recall(index)?;
            }
            // BINPERSID
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.push(storage);
            }
            // REDUCE, NEWOBJ, BUILD
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let result = self.call(function, arguments)?;
                self.push(result);
            }
            0x81 => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                let result = self.instance(class, arguments)?;
                self.push(result);
            }
            b'b' => {
                let (state, cell) = (self.pop()?, self.top()?);
                self.build(cell, state)?;
            }
            code => return Err(PickleFault::Instruction { code }.into()),
        }
        Ok(None)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.checked_add(len).ok_or(PickleFault::Truncated)?;
        let bytes = self.input.get(self.at..end).ok_or(PickleFault::Truncated)?;
        self.at = end;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        self.slice(N)?.first_chunk().copied().ok_or_else(|| PickleFault::Truncated.into())
    }

    fn long(&mut self) -> Result<i64, Stop> {
        let [len] = self.take()?;
        let bytes = self.slice(len.into())?;
        let mut value = if bytes.last().is_some_and(|last| last & 0x80 != 0) { [0xff; 8] } else { [0; 8] };
        value.get_mut(..bytes.len()).ok_or(PickleFault::LargeInt)?.copy_from_slice(bytes);
        Ok(i64::from_le_bytes(value))
    }

    fn push(&mut self, content: CellValue) {
        self.stack.push(self.cells.len());
        self.cells.push(content);
    }

    /// Values below a mark are out of reach until the mark is popped.
    fn height_above(&self, count: usize) -> Result<usize, Stop> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let height = self.stack.len().checked_sub(count).filter(|&height| height >= floor);
        Ok(height.ok_or(PickleFault::Stack { needs: "the values that it works on" })?)
    }

    fn pop(&mut self) -> Result<Cell, Stop> {
        self.height_above(1)?;
        self.stack.pop().ok_or_else(|| PickleFault::Stack { needs: "a value" }.into())
    }

    fn top(&self) -> Result<Cell, Stop> {
        let index = self.height_above(1)?;
        self.stack.get(index).copied().ok_or_else(|| PickleFault::Stack { needs: "a value" }.into())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Cell>, Stop> {
        let mark = self.marks.pop().ok_or(PickleFault::Stack { needs: "a mark" })?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn remember(&mut self, index: u32) -> Result<(), Stop> {
        let cell = self.top()?;
        self.memo.insert(index, cell);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), Stop> {
        let cell = self.memo.get(&index).copied().ok_or(PickleFault::Stack { needs: "the value that it recalls" })?;
        self.stack.push(cell);
        Ok(())
    }

    fn content(&self, cell: Cell) -> &CellValue {
        self.cells.get(cell).unwrap_or(&CellValue::None)
    }

    fn append(&mut self, items: Vec<Cell>) -> Result<(), Stop> {
        let list = self.top()?;
        match self.cells.get_mut(list) {
            Some(CellValue::List(list)) => list.extend(items),
            Some(CellValue::Unknown) => {}
            _ => return Err(call("append", "a list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Cell]) -> Result<(), Stop> {
        let dict = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        match self.cells.get_mut(dict) {
            Some(CellValue::Dict(entries)) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
            }
            Some(CellValue::Unknown) => {}
            _ => return Err(call("setitem", "a dictionary, and a value for each key")),
        }
        Ok(())
    }

    /// The values of a tuple.
    fn tuple(&self, cell: Cell) -> Option<Arc<[Cell]>> {
        match self.content(cell) {
            CellValue::Tuple(items) => Some(items.clone()),
            _ => None,
        }
    }

    fn int(&self, cell: Cell) -> Option<i64> {
        match *self.content(cell) {
            CellValue::Int(value) => Some(value),
            _ => None,
        }
    }

    fn string(&self, cell: Cell) -> Option<Arc<str>> {
        match self.content(cell) {
            CellValue::String(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn torch(&self, cell: Cell) -> Option<Arc<str>> {
        match self.content(cell) {
            CellValue::Global(Global::Constant(name)) | CellValue::Torch(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Sizes or strides.
    fn ints(&self, cell: Cell) -> Option<Vec<i64>> {
        let items = self.tuple(cell).filter(|items| items.len() <= MAX_RANK)?;
        items.iter().map(|&item| self.int(item)).collect()
    }

    /// `('storage', class, key, location, number of elements)`.
    fn storage(&mut self, id: Cell) -> Result<CellValue, Stop> {
        let wrong = || call("persistent_load", "('storage', class, key, location, number of elements)");
        let id = self.tuple(id).ok_or_else(wrong)?;
        let &[kind, class, key, _, numel] = &*id else { return Err(wrong()) };
        if self.string(kind).as_deref() != Some("storage") {
            return Err(wrong());
        }
        let CellValue::Global(Global::Storage(dtype)) = self.content(class) else { return Err(wrong()) };
        let (dtype, key, numel) = (*dtype, self.string(key).ok_or_else(wrong)?, self.int(numel).ok_or_else(wrong)?);
        let name = format!("data/{key}");
        let bytes = self.zip.get(&name).map_err(Elsewhere)?;
        let item = dtype.map_or(1, rushlight_format::ScalarType::size);
        let needed = usize::try_from(numel).ok().and_then(|numel| numel.checked_mul(item));
        if needed.is_none_or(|needed| needed > bytes.len()) {
            let needed = numel.saturating_mul(item as i64).max(0) as u64;
            let kind = ErrorKind::OutOfStorage { needed, available: bytes.len() as u64 };
            return Err(Elsewhere(Error::new(&name, kind)));
        }
        self.spend(1 + name.len() / 16)?;
        let name = if self.entry.is_empty() { name } else { format!("{}/{name}", self.entry) };
        let storage = Storage { name, data: StorageData::Bytes(bytes) };
        Ok(CellValue::Storage(Arc::new(TypedStorage { dtype, storage })))
    }

    fn call(&mut self, function: Cell, arguments: Cell) -> Result<CellValue, Stop> {
        let global = match self.content(function) {
            CellValue::Global(global) => global,
            CellValue::Unknown => return Ok(CellValue::Unknown),
            _ => return Err(call("reduce", "a function or class")),
        };
        let global = global.clone();
        let arguments = self.tuple(arguments).ok_or_else(|| call("reduce", "a tuple of arguments"))?;
        self.apply(&global, &arguments)
    }

    fn apply(&mut self, global: &Global, arguments: &Arc<[Cell]>) -> Result<CellValue, Stop> {
        match (global, &**arguments) {
            (Global::RebuildTensorV2, &[storage, offset, sizes, strides, _, _, ..]) => {
                self.tensor("_rebuild_tensor_v2", None, storage, offset, sizes, strides)
            }
            (Global::RebuildTensorV3, &[storage, offset, sizes, strides, _, _, dtype, ..]) => {
                self.tensor("_rebuild_tensor_v3", Some(dtype), storage, offset, sizes, strides)
            }
            (Global::RebuildParameter | Global::RebuildParameterWithState, &[data, ..]) => match self.content(data) {
                CellValue::Tensor(_) | CellValue::Subclass { .. } => Ok(self.content(data).clone()),
                _ => Err(call("_rebuild_parameter", "a tensor")),
            },
            (Global::RebuildFromType, &[function, class, arguments, state]) => {
                self.rebuild_from_type(function, class, arguments, state)
            }
            (Global::RebuildWrapperSubclass, &[class, dtype, sizes, _, _, _, _, _]) => {
                let wrong = || call("_rebuild_wrapper_subclass", "a class of tensors, its element type and sizes");
                let CellValue::Global(Global::Class(class)) = self.content(class) else { return Err(wrong()) };
                let class = class.clone();
                let dtype = self.torch(dtype).ok_or_else(wrong)?;
                self.ints(sizes).ok_or_else(wrong)?;
                let sizes = self.tuple(sizes).ok_or_else(wrong)?;
                Ok(CellValue::Subclass { class, dtype, sizes, attributes: None })
            }
            (Global::GetLayout, &[name]) => match self.string(name) {
                Some(name) => Ok(CellValue::Torch(name)),
                None => Err(call("_get_layout", "a name")),
            },
            (Global::OrderedDict, &[]) => Ok(CellValue::Dict(Vec::new())),
            (Global::Size, &[sizes]) => match self.tuple(sizes) {
                Some(sizes) => Ok(CellValue::Tuple(sizes)),
                None => Err(call("torch.Size", "a tuple")),
            },
            (Global::Device, &[kind]) => match self.string(kind) {
                Some(kind) => Ok(CellValue::Device(kind, None)),
                None => Err(call("torch.device", "a type")),
            },
            (Global::Device, &[kind, index]) => match (self.string(kind), self.int(index)) {
                (Some(kind), Some(index)) => Ok(CellValue::Device(kind, Some(index))),
                _ => Err(call("torch.device", "a type and an index")),
            },
            (Global::Class(class), _) => {
                Ok(CellValue::Object { class: class.clone(), arguments: arguments.clone(), state: None })
            }
            _ => Err(call(global_name(global), "other arguments, or another place")),
        }
    }

    fn tensor(
        &mut self,
        function: &'static str,
        dtype_cell: Option<Cell>,
        storage: Cell,
        offset: Cell,
        sizes: Cell,
        strides: Cell,
    ) -> Result<CellValue, Stop> {
        let wrong = || call(function, "a storage, an offset, sizes, strides and an element type");
        let CellValue::Storage(storage) = self.content(storage) else { return Err(wrong()) };
        let storage = storage.clone();
        let dtype = match dtype_cell {
            None => storage.dtype,
            Some(cell) => self.torch(cell).and_then(|name| dtype(&name)),
        };
        let dtype = dtype.ok_or_else(wrong)?;
        let offset = self.int(offset).ok_or_else(wrong)?;
        let (sizes, strides) = (self.ints(sizes).ok_or_else(wrong)?, self.ints(strides).ok_or_else(wrong)?);
        self.spend(1 + sizes.len() + storage.storage.name.len() / 16)?;
        let tensor = StoredTensor::new(dtype, &sizes, &strides, offset, storage.storage.clone()).map_err(Failure)?;
        Ok(CellValue::Tensor(Arc::new(tensor)))
    }

    /// Calls the function, and sets the attributes in `state` on its result.
    fn rebuild_from_type(
        &mut self,
        function: Cell,
        class: Cell,
        arguments: Cell,
        state: Cell,
    ) -> Result<CellValue, Stop> {
        let wrong =
            || call("_rebuild_from_type_v2", "a function that builds tensors, a class, arguments and attributes");
        let CellValue::Global(global) = self.content(function) else { return Err(wrong()) };
        // Not itself, which could call itself without end.
        if !matches!(
            global,
            Global::RebuildTensorV2
                | Global::RebuildTensorV3
                | Global::RebuildParameter
                | Global::RebuildParameterWithState
                | Global::RebuildWrapperSubclass
        ) {
            return Err(wrong());
        }
        let global = global.clone();
        let arguments = self.tuple(arguments).ok_or_else(wrong)?;
        let mut result = self.apply(&global, &arguments)?;
        match (&mut result, self.content(class)) {
            (CellValue::Subclass { class, attributes, .. }, CellValue::Global(Global::Class(name)))
                if class == name =>
            {
                *attributes = Some(self.state_dict(state).ok_or_else(wrong)?);
            }
            // The attributes of an ordinary tensor are the user's own, and mean nothing to the program.
            (CellValue::Tensor(_), CellValue::Global(Global::Tensor)) => {}
            _ => return Err(wrong()),
        }
        Ok(result)
    }

    /// Attributes: a dictionary, or a tuple of one and of the values of slots.
    fn state_dict(&self, state: Cell) -> Option<Cell> {
        let state = self.tuple(state).and_then(|parts| parts.first().copied()).unwrap_or(state);
        matches!(self.content(state), CellValue::Dict(_)).then_some(state)
    }

    fn instance(&mut self, class: Cell, arguments: Cell) -> Result<CellValue, Stop> {
        match (self.content(class), self.tuple(arguments)) {
            (CellValue::Unknown, _) => Ok(CellValue::Unknown),
            (CellValue::Global(Global::Class(class)), Some(arguments)) => {
                Ok(CellValue::Object { class: class.clone(), arguments, state: None })
            }
            _ => Err(call("new object", "a class that is kept as data, and a tuple of arguments")),
        }
    }

    fn build(&mut self, cell: Cell, state: Cell) -> Result<(), Stop> {
        match self.cells.get_mut(cell) {
            Some(CellValue::Object { state: slot, .. }) => *slot = Some(state),
            // Attributes of a dictionary (`_metadata` of a state dict) say nothing about its entries.
            Some(CellValue::Dict(_) | CellValue::Unknown) => {}
            _ => return Err(call("build", "an object of a class that is kept as data")),
        }
        Ok(())
    }

    /// Text up to the end of the line, for the names of globals.
    fn line(&mut self) -> Result<&'a str, Stop> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == b'\n').ok_or(PickleFault::Truncated)?;
        let line = self.slice(len)?;
        self.at += 1;
        Ok(std::str::from_utf8(line).map_err(|_| PickleFault::NotUtf8)?)
    }

    fn spend(&mut self, amount: usize) -> Result<(), Stop> {
        self.budget = self.budget.checked_sub(amount).ok_or(PickleFault::TooComplex)?;
        Ok(())
    }

    /// Builds the value in a cell. Cells that are used repeatedly are built repeatedly, within the budget.
    fn value(&mut self, cell: Cell, depth: usize) -> Result<PickleValue, Stop> {
        self.spend(1)?;
        if depth > MAX_DEPTH {
            return Err(PickleFault::TooComplex.into());
        }
        Ok(match self.content(cell).clone() {
            CellValue::None => PickleValue::None,
            CellValue::Bool(value) => PickleValue::Bool(value),
            CellValue::Int(value) => PickleValue::Int(value),
            CellValue::Float(value) => PickleValue::Float(value),
            CellValue::String(text) => PickleValue::String(text),
            CellValue::Tuple(items) => PickleValue::Tuple(self.values(&items, depth)?),
            CellValue::List(items) => PickleValue::List(self.values(&items, depth)?),
            CellValue::Dict(entries) => {
                let mut values = Vec::new();
                for (key, value) in entries {
                    values.push((self.value(key, depth + 1)?, self.value(value, depth + 1)?));
                }
                PickleValue::Dict(values)
            }
            CellValue::Global(Global::Constant(name)) | CellValue::Torch(name) => PickleValue::Torch(name),
            CellValue::Global(global) => return Err(call(global_name(&global), "to be called, not kept")),
            CellValue::Unknown => return Err(call("a name", "to be known")),
            CellValue::Storage(_) => return Err(call("storage", "a tensor around it")),
            CellValue::Tensor(tensor) => {
                self.spend(tensor.sizes.len() + tensor.storage.name.len() / 16)?;
                PickleValue::Tensor(Box::new((*tensor).clone()))
            }
            CellValue::Device(kind, index) => PickleValue::Device(kind, index),
            CellValue::Subclass { class, dtype, sizes, attributes } => {
                self.spend(sizes.len())?;
                let sizes = sizes.iter().filter_map(|&size| self.int(size)).collect();
                let attributes = match attributes {
                    Some(state) => self.attributes(state, depth)?,
                    None => Vec::new(),
                };
                PickleValue::Subclass(Box::new(Subclass { class, dtype, sizes, attributes }))
            }
            CellValue::Object { class, arguments, state } => {
                let arguments = self.values(&arguments, depth)?;
                let state = state.map(|state| self.value(state, depth + 1)).transpose()?;
                PickleValue::Object(Box::new(Object { class, arguments, state }))
            }
        })
    }

    fn values(&mut self, cells: &[Cell], depth: usize) -> Result<Vec<PickleValue>, Stop> {
        cells.iter().map(|&cell| self.value(cell, depth + 1)).collect()
    }

    fn attributes(&mut self, state: Cell, depth: usize) -> Result<Vec<(Arc<str>, PickleValue)>, Stop> {
        let CellValue::Dict(entries) = self.content(state).clone() else { return Ok(Vec::new()) };
        let mut attributes = Vec::new();
        for (key, value) in entries {
            let key = self.string(key).ok_or_else(|| call("_rebuild_from_type_v2", "attributes with names"))?;
            // Unknown attributes are dropped: the graph has the functions that quantize a layer's input, too.
            if !matches!(self.content(value), CellValue::Unknown) {
                attributes.push((key, self.value(value, depth + 1)?));
            }
        }
        Ok(attributes)
    }
}

fn call(function: &str, expected: &'static str) -> Stop {
    PickleFault::Call { function: function.to_owned(), expected }.into()
}

fn global_name(global: &Global) -> &str {
    match global {
        Global::RebuildTensorV2 => "_rebuild_tensor_v2",
        Global::RebuildTensorV3 => "_rebuild_tensor_v3",
        Global::RebuildParameter => "_rebuild_parameter",
        Global::RebuildParameterWithState => "_rebuild_parameter_with_state",
        Global::RebuildFromType => "_rebuild_from_type_v2",
        Global::RebuildWrapperSubclass => "_rebuild_wrapper_subclass",
        Global::GetLayout => "_get_layout",
        Global::OrderedDict => "OrderedDict",
        Global::Size => "torch.Size",
        Global::Device => "torch.device",
        Global::Storage(_) => "a class of storages",
        Global::Tensor => "torch.Tensor",
        Global::Constant(name) | Global::Class(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::load_bare;
    use super::*;

    fn fault(pickle: &[u8]) -> Option<PickleFault> {
        match load_bare(pickle).err()?.kind {
            ErrorKind::Pickle(fault) => Some(fault),
            _ => None,
        }
    }

    #[test]
    fn literals_and_containers() {
        // {'a': [1, -2, 2**40, 0.5, None], 'b': (True, ())}
        let pickle =
            b"\x80\x02}q\x00(X\x01\0\0\0a]q\x01(K\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01G?\xe0\0\0\0\0\0\0Ne\
            X\x01\0\0\0b\x88)\x86u.";
        let list = vec![
            PickleValue::Int(1),
            PickleValue::Int(-2),
            PickleValue::Int(1 << 40),
            PickleValue::Float(0.5),
            PickleValue::None,
        ];
        let tuple = PickleValue::Tuple(vec![PickleValue::Bool(true), PickleValue::Tuple(vec![])]);
        let key = |name: &str| PickleValue::String(name.into());
        assert_eq!(
            load_bare(pickle),
            Ok(PickleValue::Dict(vec![(key("a"), PickleValue::List(list)), (key("b"), tuple)]))
        );
        // A list that is filled after it was remembered, and recalled.
        let both = PickleValue::List(vec![PickleValue::Int(7)]);
        assert_eq!(load_bare(b"\x80\x02]q\x00K\x07ah\x00\x86."), Ok(PickleValue::Tuple(vec![both.clone(), both])));
    }

    #[test]
    fn globals_that_are_not_on_the_list_are_refused_by_name() {
        let refused: [&[u8]; 6] = [
            b"\x80\x02cos\nsystem\n.",
            b"\x80\x02cbuiltins\neval\n.",
            b"\x80\x02ctorch.storage\n_load_from_bytes\n.",
            b"\x80\x02ctorch\nload\n.",
            b"\x80\x02ctorchao.quantization.utils\nrun\n.",
            b"\x80\x02c__main__\nModel\n.",
        ];
        for pickle in refused {
            let Some(PickleFault::Global { name }) = fault(pickle) else { panic!("{:?}", load_bare(pickle)) };
            let text = String::from_utf8_lossy(pickle).replace('\n', ".");
            assert!(text.contains(&name), "{name}");
            assert!(load_bare(pickle).is_err_and(|error| error.to_string().contains(&name) && error.offset == Some(2)));
        }
        assert_eq!(load_bare(b"\x80\x02ctorch\nint4\n."), Ok(PickleValue::Torch("torch.int4".into())));
        // A function that is allowed, but in another place than PyTorch has it in.
        let storage = b"\x80\x02ctorch\nFloatStorage\n)R.";
        assert!(matches!(fault(storage), Some(PickleFault::Call { .. })));
        let itself = b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\nq\x00(h\x00h\x00))tR.";
        assert!(matches!(fault(itself), Some(PickleFault::Call { .. })));
    }

    #[test]
    fn instructions_out_of_place_are_refused() {
        let stack = |needs| Some(PickleFault::Stack { needs });
        assert_eq!(fault(b""), Some(PickleFault::Truncated));
        assert_eq!(fault(b"\x80\x02K"), Some(PickleFault::Truncated));
        assert_eq!(fault(b"\x80\x02X\xff\xff\xff\xffa."), Some(PickleFault::Truncated));
        assert_eq!(fault(b"\x80\x04."), Some(PickleFault::Protocol { version: 4 }));
        assert_eq!(fault(b"\x80\x02\x95."), Some(PickleFault::Instruction { code: 0x95 }));
        assert_eq!(fault(b"."), stack("the values that it works on"));
        assert_eq!(fault(b"K\x01(\x85."), stack("the values that it works on"));
        assert_eq!(fault(b"t."), stack("a mark"));
        assert_eq!(fault(b"h\x05."), stack("the value that it recalls"));
        assert_eq!(fault(b"\x8a\x09\0\0\0\0\0\0\0\0\x01."), Some(PickleFault::LargeInt));
        assert_eq!(fault(b"X\x01\0\0\0\xff."), Some(PickleFault::NotUtf8));
        assert!(matches!(fault(b"K\x01K\x02a."), Some(PickleFault::Call { .. })));
        assert!(matches!(fault(b"}(K\x01u."), Some(PickleFault::Call { .. })));
    }

    #[test]
    fn values_that_grow_beyond_their_file_are_refused() {
        // A tuple of a tuple of a tuple.
        let mut deep = b"\x80\x02)".to_vec();
        deep.extend([0x85; 1000]);
        deep.push(b'.');
        assert_eq!(fault(&deep), Some(PickleFault::TooComplex));
        // Each pair holds the pair before it twice.
        let mut wide = b"\x80\x02)".to_vec();
        for index in 0..40 {
            wide.extend([b'q', index, b'h', index, 0x86]);
        }
        wide.push(b'.');
        assert_eq!(fault(&wide), Some(PickleFault::TooComplex));
        // A list that holds itself.
        assert_eq!(fault(b"\x80\x02]q\x00h\x00a."), Some(PickleFault::TooComplex));
    }
}
