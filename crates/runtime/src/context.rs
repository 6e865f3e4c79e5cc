//! The context of a kernel or delegate: arguments, outputs and temporary memory.

use core::cell::Cell;

use crate::element::Element;
use crate::error::{Detail, Error, Result};
use crate::fault::Kind;
use crate::memory::Temp;
use crate::op::Op;
#[cfg(feature = "alloc")]
use crate::op::OpData;
use crate::scalar::Scalar;
use crate::tensor::{Tensor, TensorMut, TensorState};
use crate::value::{ABSENT, EValue, Values};

/// The arguments of one operator call, by their position in the schema.
///
/// Accessors check the kind of the argument; element types, ranks and sizes are the operator's to check. An argument
/// that the operator writes is handed out once, by [`out`](Self::out) or [`outs`](Self::outs).
pub struct KernelContext<'m> {
    values: Values<'m>,
    arguments: &'m [u32],
    writes: u32,
    taken: Cell<u32>,
    temp: &'m Temp<'m>,
    /// Only the shapes of tensors can be had: temporary memory is being sized.
    shapes_only: bool,
    #[cfg(feature = "alloc")]
    op: &'static Op,
}

impl<'m> KernelContext<'m> {
    #[inline]
    pub(crate) fn new(values: Values<'m>, arguments: &'m [u32], op: &'static Op, temp: &'m Temp<'m>) -> Self {
        Self {
            values,
            arguments,
            writes: op.writes,
            taken: Cell::new(0),
            temp,
            shapes_only: false,
            #[cfg(feature = "alloc")]
            op,
        }
    }

    /// A context to size temporary memory with: its tensors have their upper bounds and no data.
    pub(crate) fn sizing(values: Values<'m>, arguments: &'m [u32], op: &'static Op, temp: &'m Temp<'m>) -> Self {
        let mut context = Self::new(values, arguments, op, temp);
        context.shapes_only = true;
        context
    }

    /// The [data](Op::data) of the operator.
    #[cfg(feature = "alloc")]
    pub fn data(&self) -> Option<OpData> {
        self.op.data
    }

    #[inline]
    fn value(&self, index: usize) -> Result<EValue<'m>> {
        match self.arguments.get(index).and_then(|&i| self.values.get(i as usize)) {
            Some(value) => Ok(value.get()),
            None => Err(Error::program("the operator has more arguments than the program gives it").arg(index)),
        }
    }

    #[inline]
    fn readable(&self, index: usize) -> Result<EValue<'m>> {
        if self.is_written(index) {
            return Err(Error::program("the argument is written, it cannot be read at the same time").arg(index));
        }
        self.value(index)
    }

    fn is_written(&self, index: usize) -> bool {
        index < 32 && self.writes & (1 << index) != 0
    }

    fn take(&self, index: usize) -> Result<EValue<'m>> {
        let bit = if index < 32 { 1u32 << index } else { 0 };
        if self.writes & bit == 0 || self.taken.get() & bit != 0 {
            return Err(
                Error::program("the argument is not one that the operator writes, or was taken before").arg(index)
            );
        }
        self.taken.set(self.taken.get() | bit);
        self.value(index)
    }

    #[cold]
    fn kind<T>(index: usize, expected: Kind, got: EValue<'_>) -> Result<T> {
        Err(Error::from(Detail::Kind { expected, got: got.kind() }).arg(index))
    }

    /// True if the argument is `None`.
    pub fn is_none(&self, index: usize) -> bool {
        matches!(self.value(index), Ok(EValue::None))
    }

    /// A tensor that the operator reads.
    ///
    /// Inlined, so that the tensor stays in registers: results as large as an error are returned through memory.
    #[inline(always)]
    pub fn tensor(&self, index: usize) -> Result<Tensor<'_>> {
        match self.ready_tensor(index).and_then(TensorState::bound_tensor) {
            Some(tensor) => Ok(tensor),
            None => self.other_tensor(index),
        }
    }

    /// The elements of two tensors that the operator reads and of one that it writes, if all are of type `T` and lie in
    /// one order: what programs do most, in the fewest steps. Otherwise `None`, and the output is not taken.
    #[inline(always)]
    pub fn alike<T: Element>(&self, a: usize, b: usize, out: usize) -> Option<(&[T], &[T], &mut [T])> {
        let (a, b, target) = (self.find_tensor(a)?, self.find_tensor(b)?, self.find_out(out)?);
        if !a.has_layout_of(target) || !b.has_layout_of(target) {
            return None;
        }
        let (a, b) = (a.bound_tensor()?.elements()?, b.bound_tensor()?.elements()?);
        let elements = target.bound_tensor_mut()?.into_elements()?;
        self.taken.set(self.taken.get() | 1 << out);
        Some((a, b, elements))
    }

    /// The tensor, if it is all as it usually is.
    #[inline(never)]
    fn ready_tensor(&self, index: usize) -> Option<&'m TensorState<'m>> {
        self.find_tensor(index)
    }

    #[inline(always)]
    fn find_tensor(&self, index: usize) -> Option<&'m TensorState<'m>> {
        match self.values.get(*self.arguments.get(index)? as usize)?.get() {
            EValue::Tensor(state) if !self.shapes_only && !self.is_written(index) => Some(state),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn other_tensor(&self, index: usize) -> Result<Tensor<'_>> {
        match self.readable(index)? {
            EValue::Tensor(state) if self.shapes_only => Ok(state.shape_only()),
            EValue::Tensor(state) => state.tensor().map_err(|e| e.arg(index)),
            other => Self::kind(index, Kind::Tensor, other),
        }
    }

    /// A tensor that the operator reads, or `None`.
    pub fn optional_tensor(&self, index: usize) -> Result<Option<Tensor<'_>>> {
        match self.value(index)? {
            EValue::None => Ok(None),
            _ => self.tensor(index).map(Some),
        }
    }

    /// A list of tensors that the operator reads. Lists of optional tensors without a `None` are accepted too.
    pub fn tensors(&self, index: usize) -> Result<TensorList<'m>> {
        match self.readable(index)? {
            EValue::TensorList(items) => {
                Ok(TensorList { values: self.values, items, argument: index, shapes_only: self.shapes_only })
            }
            EValue::OptionalTensorList(items) if !items.contains(&ABSENT) => {
                Ok(TensorList { values: self.values, items, argument: index, shapes_only: self.shapes_only })
            }
            other => Self::kind(index, Kind::TensorList, other),
        }
    }

    /// A list of optional tensors that the operator reads. Plain lists of tensors are accepted too.
    pub fn optional_tensors(&self, index: usize) -> Result<TensorList<'m>> {
        match self.readable(index)? {
            EValue::OptionalTensorList(items) | EValue::TensorList(items) => {
                Ok(TensorList { values: self.values, items, argument: index, shapes_only: self.shapes_only })
            }
            other => Self::kind(index, Kind::OptionalTensorList, other),
        }
    }

    /// The tensor at a written position. Can be taken once a call.
    #[inline(always)]
    pub fn out(&self, index: usize) -> Result<TensorMut<'_>> {
        match self.ready_out(index).and_then(TensorState::bound_tensor_mut) {
            Some(tensor) => Ok(tensor),
            None => self.other_out(index),
        }
    }

    /// The tensor, which counts as taken then, if it is all as it usually is.
    #[inline(never)]
    fn ready_out(&self, index: usize) -> Option<&'m TensorState<'m>> {
        let state = self.find_out(index).filter(|state| state.bound_tensor().is_some())?;
        self.taken.set(self.taken.get() | 1 << index);
        Some(state)
    }

    /// The tensor that the operator writes there, unless it was taken.
    #[inline(always)]
    fn find_out(&self, index: usize) -> Option<&'m TensorState<'m>> {
        let bit = 1u32.checked_shl(index as u32)?;
        match self.values.get(*self.arguments.get(index)? as usize)?.get() {
            EValue::Tensor(state) if self.writes & !self.taken.get() & bit != 0 => Some(state),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn other_out(&self, index: usize) -> Result<TensorMut<'_>> {
        match self.take(index)? {
            EValue::Tensor(state) => state.tensor_mut().map_err(|e| e.arg(index)),
            other => Self::kind(index, Kind::Tensor, other),
        }
    }

    /// The list of tensors at a written position, such as the outputs of `split_copy`. Can be taken once a call.
    pub fn outs(&self, index: usize) -> Result<OutList<'m>> {
        match self.take(index)? {
            EValue::TensorList(items) => Ok(OutList { values: self.values, items, argument: index }),
            other => Self::kind(index, Kind::TensorList, other),
        }
    }

    #[inline]
    pub fn int(&self, index: usize) -> Result<i64> {
        match self.readable(index)? {
            EValue::Int(v) => Ok(v),
            EValue::Bool(v) => Ok(i64::from(v)),
            other => Self::kind(index, Kind::Int, other),
        }
    }

    /// True if the argument is an int of this value: a test that needs less than reading it does.
    #[inline]
    pub fn is_int(&self, index: usize, value: i64) -> bool {
        let cell = self.arguments.get(index).and_then(|&i| self.values.get(i as usize));
        cell.is_some_and(|cell| matches!(cell.get(), EValue::Int(v) if v == value))
    }

    pub fn optional_int(&self, index: usize) -> Result<Option<i64>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.int(index).map(Some),
        }
    }

    /// A double; ints and bools convert.
    pub fn double(&self, index: usize) -> Result<f64> {
        self.scalar(index).map(Scalar::to_f64)
    }

    pub fn optional_double(&self, index: usize) -> Result<Option<f64>> {
        Ok(self.optional_scalar(index)?.map(Scalar::to_f64))
    }

    /// A bool; ints convert.
    pub fn bool(&self, index: usize) -> Result<bool> {
        match self.readable(index)? {
            EValue::Bool(v) => Ok(v),
            EValue::Int(v) => Ok(v != 0),
            other => Self::kind(index, Kind::Bool, other),
        }
    }

    pub fn optional_bool(&self, index: usize) -> Result<Option<bool>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.bool(index).map(Some),
        }
    }

    #[inline]
    pub fn scalar(&self, index: usize) -> Result<Scalar> {
        match self.readable(index)? {
            EValue::Int(v) => Ok(Scalar::Int(v)),
            EValue::Double(v) => Ok(Scalar::Double(v)),
            EValue::Bool(v) => Ok(Scalar::Bool(v)),
            other => Self::kind(index, Kind::Number, other),
        }
    }

    pub fn optional_scalar(&self, index: usize) -> Result<Option<Scalar>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.scalar(index).map(Some),
        }
    }

    pub fn string(&self, index: usize) -> Result<&'m str> {
        match self.readable(index)? {
            EValue::String(v) => Ok(v),
            other => Self::kind(index, Kind::String, other),
        }
    }

    pub fn optional_string(&self, index: usize) -> Result<Option<&'m str>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.string(index).map(Some),
        }
    }

    pub fn ints(&self, index: usize) -> Result<IntList<'m>> {
        match self.readable(index)? {
            EValue::IntList(items) => {
                if items.iter().any(|&i| !matches!(self.get(i), EValue::Int(_))) {
                    return Err(Error::program("the list holds a value that is not an int").arg(index));
                }
                Ok(IntList { values: self.values, items })
            }
            other => Self::kind(index, Kind::IntList, other),
        }
    }

    pub fn optional_ints(&self, index: usize) -> Result<Option<IntList<'m>>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.ints(index).map(Some),
        }
    }

    pub fn doubles(&self, index: usize) -> Result<&'m [f64]> {
        match self.readable(index)? {
            EValue::DoubleList(items) => Ok(items),
            other => Self::kind(index, Kind::DoubleList, other),
        }
    }

    pub fn optional_doubles(&self, index: usize) -> Result<Option<&'m [f64]>> {
        match self.readable(index)? {
            EValue::None => Ok(None),
            _ => self.doubles(index).map(Some),
        }
    }

    pub fn bools(&self, index: usize) -> Result<&'m [bool]> {
        match self.readable(index)? {
            EValue::BoolList(items) => Ok(items),
            other => Self::kind(index, Kind::BoolList, other),
        }
    }

    /// Stores the result of a symbolic operator at a written position.
    pub fn set(&self, index: usize, value: Scalar) -> Result<()> {
        let old = self.take(index)?;
        if matches!(old, EValue::None | EValue::Int(_) | EValue::Double(_) | EValue::Bool(_)) {
            if let Some(cell) = self.arguments.get(index).and_then(|&i| self.values.get(i as usize)) {
                cell.set(match value {
                    Scalar::Int(v) => EValue::Int(v),
                    Scalar::Double(v) => EValue::Double(v),
                    Scalar::Bool(v) => EValue::Bool(v),
                });
            }
            return Ok(());
        }
        Self::kind(index, Kind::Number, old)
    }

    /// Makes the tensor at the written position `out` a view with these sizes of the tensor at position `base`.
    /// Only for operators declared as [views](crate::Op::view).
    pub fn set_view(&self, out: usize, base: usize, sizes: &[usize]) -> Result<()> {
        match (self.take(out)?, self.readable(base)?) {
            (EValue::Tensor(view), EValue::Tensor(base)) => {
                view.resize(sizes)?;
                view.share(base).map_err(|e| e.arg(out))
            }
            (other, EValue::Tensor(_)) => Self::kind(out, Kind::Tensor, other),
            (_, other) => Self::kind(base, Kind::Tensor, other),
        }
    }

    /// `len` zeroed elements of temporary memory, which the next operator takes over.
    pub fn temp<T: Element + Default>(&self, len: usize) -> Result<&mut [T]> {
        self.temp.take(len)
    }

    fn get(&self, index: u32) -> EValue<'m> {
        get(self.values, index)
    }
}

impl Drop for KernelContext<'_> {
    fn drop(&mut self) {
        self.temp.reset();
    }
}

impl core::fmt::Debug for KernelContext<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KernelContext").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

fn get<'m>(values: Values<'m>, index: u32) -> EValue<'m> {
    values.get(index as usize).map_or(EValue::None, Cell::get)
}

fn state<'m>(values: Values<'m>, index: u32, argument: usize) -> Result<&'m TensorState<'m>> {
    match get(values, index) {
        EValue::Tensor(state) => Ok(state),
        other => KernelContext::kind(argument, Kind::TensorList, other),
    }
}

/// A list of tensors that the operator reads; entries may be `None` in lists of optional tensors.
#[derive(Clone, Copy)]
pub struct TensorList<'a> {
    values: Values<'a>,
    items: &'a [u32],
    argument: usize,
    shapes_only: bool,
}

impl<'a> TensorList<'a> {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The tensor at `index`. Fails if there is none or it is `None`.
    pub fn get(&self, index: usize) -> Result<Tensor<'a>> {
        match self.get_optional(index)? {
            Some(tensor) => Ok(tensor),
            None => KernelContext::kind(self.argument, Kind::ListedTensor, EValue::None),
        }
    }

    /// The tensor at `index`, or `None` if the list holds `None` there.
    pub fn get_optional(&self, index: usize) -> Result<Option<Tensor<'a>>> {
        match self.items.get(index) {
            None => Err(Error::from(Detail::Index { index: index as i64, size: self.items.len() }).arg(self.argument)),
            Some(&ABSENT) => Ok(None),
            Some(&item) => match state(self.values, item, self.argument)? {
                state if self.shapes_only => Ok(Some(state.shape_only())),
                state => state.tensor().map(Some).map_err(|e| e.arg(self.argument)),
            },
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Tensor<'a>>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl core::fmt::Debug for TensorList<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("TensorList").field(&self.items).finish()
    }
}

/// A list of tensors that the operator writes.
pub struct OutList<'a> {
    values: Values<'a>,
    items: &'a [u32],
    argument: usize,
}

impl OutList<'_> {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The tensor at `index`. One at a time: the load-time check lets a list name a tensor twice only if it is empty.
    pub fn get(&mut self, index: usize) -> Result<TensorMut<'_>> {
        match self.items.get(index) {
            None => Err(Error::from(Detail::Index { index: index as i64, size: self.items.len() }).arg(self.argument)),
            Some(&item) => state(self.values, item, self.argument)?.tensor_mut().map_err(|e| e.arg(self.argument)),
        }
    }
}

impl core::fmt::Debug for OutList<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("OutList").field(&self.items).finish()
    }
}

/// A list of ints, which may be results of symbolic operators.
#[derive(Clone, Copy)]
pub struct IntList<'a> {
    values: Values<'a>,
    items: &'a [u32],
}

impl<'a> IntList<'a> {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<i64> {
        match get(self.values, *self.items.get(index)?) {
            EValue::Int(v) => Some(v),
            _ => None,
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = i64> + 'a {
        let values = self.values;
        self.items.iter().map(move |&item| match get(values, item) {
            EValue::Int(v) => v,
            _ => 0,
        })
    }
}

impl core::fmt::Debug for IntList<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The arguments of a delegate call: inputs first, then outputs.
pub struct DelegateContext<'m> {
    values: Values<'m>,
    arguments: &'m [u32],
    outputs: usize,
    /// A bit for each output.
    taken: &'m [Cell<usize>],
}

impl<'m> DelegateContext<'m> {
    /// `outputs` is at most the number of arguments; the load checked it, and made room for as many bits in `taken`.
    pub(crate) fn new(values: Values<'m>, arguments: &'m [u32], outputs: usize, taken: &'m [Cell<usize>]) -> Self {
        taken.iter().for_each(|word| word.set(0));
        Self { values, arguments, outputs, taken }
    }

    pub fn num_inputs(&self) -> usize {
        self.arguments.len().saturating_sub(self.outputs)
    }

    pub fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn value(&self, index: usize) -> Result<EValue<'m>> {
        match self.arguments.get(index) {
            Some(&i) => Ok(get(self.values, i)),
            None => Err(Detail::Index { index: index as i64, size: self.arguments.len() }.into()),
        }
    }

    /// The tensor at input `index`.
    pub fn input(&self, index: usize) -> Result<Tensor<'_>> {
        if index >= self.num_inputs() {
            return Err(Detail::Index { index: index as i64, size: self.num_inputs() }.into());
        }
        match self.value(index)? {
            EValue::Tensor(state) => state.tensor().map_err(|e| e.arg(index)),
            other => KernelContext::kind(index, Kind::Tensor, other),
        }
    }

    /// The number at input `index`.
    pub fn input_scalar(&self, index: usize) -> Result<Scalar> {
        match self.value(index)? {
            EValue::Int(v) => Ok(Scalar::Int(v)),
            EValue::Double(v) => Ok(Scalar::Double(v)),
            EValue::Bool(v) => Ok(Scalar::Bool(v)),
            other => KernelContext::kind(index, Kind::Number, other),
        }
    }

    /// The tensor at output `index`. Can be taken once a call.
    pub fn output(&self, index: usize) -> Result<TensorMut<'_>> {
        let argument = self.num_inputs().saturating_add(index);
        let bit = 1 << (index % usize::BITS as usize);
        let word = self.taken.get(index / usize::BITS as usize).filter(|_| index < self.outputs);
        let Some(word) = word.filter(|word| word.get() & bit == 0) else {
            return Err(Error::program("the delegate has no such output, or took it before").arg(argument));
        };
        word.set(word.get() | bit);
        match self.value(argument)? {
            EValue::Tensor(state) => state.tensor_mut().map_err(|e| e.arg(argument)),
            other => KernelContext::kind(argument, Kind::Tensor, other),
        }
    }
}

impl core::fmt::Debug for DelegateContext<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DelegateContext").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}
