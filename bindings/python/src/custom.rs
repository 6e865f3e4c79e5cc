//! Operators whose kernels are Python functions.
//!
//! A kernel is a plain function without state. The number of slots is fixed. The kernel of a slot calls the Python
//! function that the slot holds at that moment.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rushlight::runtime::{self, Code, Detail, Error, Kernel, KernelContext};
use rushlight::{Op, OpSet, Scalar};
use rushlight_python_macros::guarded;

use crate::callback;
use crate::interpreter::attached;
use crate::turns::locked;

/// Maximum number of arguments of an operator, results included.
const MAX_ARGUMENTS: u8 = 32;

/// Maximum number of operators that a process can register.
const SLOTS: usize = 64;

macro_rules! kernels {
    ($($slot:literal)*) => { [$(kernel::<$slot>),*] };
}

static KERNELS: [Kernel; SLOTS] = kernels!(
     0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// An operator and the function that computes it.
struct Slot {
    op: &'static Op,
    /// Number of results, which are the last arguments.
    outputs: u8,
    set: &'static OpSet,
    function: Py<PyAny>,
}

static REGISTERED: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// Number of registered operators.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes `function` the kernel of the out variant of `name`, with `inputs` arguments before its `outputs` results.
#[guarded]
#[pyfunction]
pub fn register_op(name: &str, function: Py<PyAny>, inputs: usize, outputs: usize) -> PyResult<()> {
    let out_variant = out_variant(name)?;
    if outputs == 0 {
        return Err(PyValueError::new_err(format!("`{name}` needs at least 1 output")));
    }
    let arity = u8::try_from(inputs.saturating_add(outputs)).ok().filter(|arity| *arity <= MAX_ARGUMENTS);
    let (Some(arity), Ok(outputs)) = (arity, u8::try_from(outputs)) else {
        let text = format!("{inputs} inputs and {outputs} outputs are more than {MAX_ARGUMENTS} arguments");
        return Err(PyValueError::new_err(text));
    };
    let mut registered = locked(&REGISTERED);
    // Methods use the last operator of a name, so only that one may be replaced.
    let last = registered.iter_mut().rev().find(|slot| slot.op.name == out_variant);
    if let Some(slot) = last.filter(|slot| slot.op.arity == arity && slot.outputs == outputs) {
        let old = std::mem::replace(&mut slot.function, function);
        // Dropped after the lock is released: dropping the object may run Python code that registers operators.
        drop(registered);
        drop(old);
        return Ok(());
    }
    let Some(kernel) = KERNELS.get(registered.len()) else {
        let text = format!("{SLOTS} operators are registered, and a process can have no more; write `{name}` in Rust");
        return Err(PyRuntimeError::new_err(text));
    };
    // Programs refer to their operators for as long as they live. There are few operators, and each is made once.
    let op: &'static Op = Box::leak(Box::new(Op::new(String::leak(out_variant), arity, *kernel).outs(outputs)));
    let group: &'static [Op] = std::slice::from_ref(op);
    let groups: &'static [&'static [Op]] = std::slice::from_ref(Box::leak(Box::new(group)));
    let groups = std::slice::from_ref(Box::leak(Box::new(groups)));
    let set: &'static OpSet = Box::leak(Box::new(OpSet { name: "PYTHON", groups }));
    registered.push(Slot { op, outputs, set, function });
    COUNT.store(registered.len(), Ordering::Relaxed);
    Ok(())
}

/// Returns the number of registered operators. A module that already has this number needs no update.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The operators that were registered after the first `known`, the earliest first.
pub fn sets_after(known: usize) -> Vec<&'static OpSet> {
    locked(&REGISTERED).iter().skip(known).map(|slot| slot.set).collect()
}

/// True if an operator of this name is registered.
pub fn is_registered(out_variant: &str) -> bool {
    locked(&REGISTERED).iter().any(|slot| slot.op.name == out_variant)
}

/// The name of the out variant, which the compiler calls: it writes its results to given memory.
fn out_variant(name: &str) -> PyResult<String> {
    let base = name.strip_suffix(".default").unwrap_or(name);
    let is_qualified = base.split_once("::").is_some_and(|(space, op)| !space.is_empty() && !op.is_empty());
    if !is_qualified {
        return Err(PyValueError::new_err(format!("`{name}` is no name of an operator: expected \"namespace::name\"")));
    }
    Ok(match base.split_once('.') {
        None => format!("{base}.out"),
        Some((_, overload)) if overload == "out" || overload.ends_with("_out") => base.to_owned(),
        Some(_) => format!("{base}_out"),
    })
}

fn kernel<const SLOT: usize>(context: &KernelContext<'_>) -> runtime::Result<()> {
    attached(|py| {
        let registered = locked(&REGISTERED);
        let slot = registered.get(SLOT).map(|slot| (slot.op.arity, slot.outputs, slot.function.clone_ref(py)));
        drop(registered);
        let Some((arity, outputs, function)) = slot else {
            return Err(Error::new(Code::OperatorMissing, Detail::Text("no function is registered")));
        };
        compute(context, usize::from(arity.saturating_sub(outputs)), usize::from(outputs), function.bind(py))
    })
}

/// Calls the function with copies of the `inputs` arguments, and copies its results to the `outputs` arguments after
/// them.
fn compute(
    context: &KernelContext<'_>,
    inputs: usize,
    outputs: usize,
    function: &Bound<'_, PyAny>,
) -> runtime::Result<()> {
    let py = function.py();
    let mut arguments = Vec::with_capacity(inputs);
    for index in 0..inputs {
        arguments.push(argument(py, context, index)?);
    }
    let arguments = PyTuple::new(py, arguments).map_err(callback::failed)?;
    let result = callback::call_with(function, &arguments)?;
    if outputs == 1 {
        return callback::write(&result, context.out(inputs)?, inputs);
    }
    let results = several(&result, outputs).map_err(callback::failed)?;
    for (index, result) in (inputs..).zip(&results) {
        callback::write(result, context.out(index)?, index)?;
    }
    Ok(())
}

/// The items of a tuple or list of `count` results.
fn several<'py>(result: &Bound<'py, PyAny>, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let items: Option<Vec<_>> = if let Ok(tuple) = result.cast::<PyTuple>() {
        Some(tuple.iter().collect())
    } else if let Ok(list) = result.cast::<PyList>() {
        Some(list.iter().collect())
    } else {
        None
    };
    let got = match &items {
        Some(items) if items.len() == count => return Ok(items.clone()),
        Some(items) => format!("{} results", items.len()),
        None => format!("a {}", result.get_type().name()?),
    };
    Err(PyTypeError::new_err(format!("the function has to return a tuple of {count} tensors or arrays, got {got}")))
}

/// An argument as a Python object. Only the context knows its kind: the first kind that fits is the right one.
fn argument<'py>(py: Python<'py>, context: &KernelContext<'_>, index: usize) -> runtime::Result<Bound<'py, PyAny>> {
    let object = if context.is_none(index) {
        Ok(py.None().into_bound(py))
    } else if let Ok(tensor) = context.tensor(index) {
        callback::copy(py, &tensor)
    } else if let Ok(scalar) = context.scalar(index) {
        match scalar {
            Scalar::Int(v) => v.into_bound_py_any(py),
            Scalar::Double(v) => v.into_bound_py_any(py),
            Scalar::Bool(v) => v.into_bound_py_any(py),
        }
    } else if let Ok(text) = context.string(index) {
        text.into_bound_py_any(py)
    } else if let Ok(ints) = context.ints(index) {
        ints.iter().collect::<Vec<_>>().into_bound_py_any(py)
    } else if let Ok(doubles) = context.doubles(index) {
        doubles.to_vec().into_bound_py_any(py)
    } else if let Ok(bools) = context.bools(index) {
        bools.to_vec().into_bound_py_any(py)
    } else if let Ok(tensors) = context.optional_tensors(index) {
        let items: runtime::Result<Vec<_>> = (0..tensors.len()).map(|i| tensors.get_optional(i)).collect();
        let items: PyResult<Vec<_>> = items?
            .iter()
            .map(|item| item.as_ref().map_or_else(|| Ok(py.None().into_bound(py)), |tensor| callback::copy(py, tensor)))
            .collect();
        items.and_then(|items| Ok(PyList::new(py, items)?.into_any()))
    } else {
        // Any of the errors would do; the tensor's says why it is not a tensor.
        return context.tensor(index).and(Err(Error::invalid("the argument is of no kind that Python has").arg(index)));
    };
    object.map_err(callback::failed)
}
