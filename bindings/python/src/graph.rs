//! The Python objects that show methods and parts to a backend.

use std::collections::{BTreeSet, HashMap, HashSet};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyList, PyTuple};
use rushlight::compiler::partition::{Canonical, Part, SourceNode};
use rushlight::graph::{
    Arg, Constant, ConstantId, Def, Expr, Graph, Input, Layout, Model, NodeId, NodeMetadata, Op, State, StateId,
    SymbolId, Target, Type, Update, ValueId,
};
use rushlight_python_macros::guarded;

use crate::ffi;
use crate::tensor::Tensor;

/// Values that convert to a tuple of arguments.
pub trait Arguments<'py>: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr> {}

impl<'py, T> Arguments<'py> for T where
    T: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>
{
}

/// Calls a method of an object.
pub fn method<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    arguments: impl Arguments<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let function = object.getattr(name)?;
    ffi::call(&function, &arguments.into_pyobject(object.py())?, None)
}

/// Constants of a model, and initial values of its states, read one by one.
#[pyclass(frozen, module = "rushlight")]
pub struct Constants {
    constants: Vec<Constant>,
}

#[guarded]
#[pymethods]
impl Constants {
    /// The content of a constant. It shares the model's memory if the elements are stored there in row-major order.
    fn read<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, Tensor>> {
        let constant = self.constants.get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let read = py.detach(|| -> Result<_, rushlight::Error> { Ok((constant.sizes()?, constant.read()?)) });
        let (sizes, bytes) = crate::error::map(py, read)?;
        Tensor::shared(py, constant.ty.dtype, sizes, bytes)
    }
}

/// Makes the Python objects for the graph of a method or a part. Each value and node is made once.
pub struct Objects<'a, 'py> {
    graph: &'a Graph,
    model: &'a Model,
    adapter: &'a Bound<'py, PyAny>,
    /// By the index of a part's node, the node of the method; empty for a method.
    sources: HashMap<NodeId, SourceNode>,
    values: HashMap<ValueId, Bound<'py, PyAny>>,
}

impl<'a, 'py> Objects<'a, 'py> {
    fn new(model: &'a Model, graph: &'a Graph, adapter: &'a Bound<'py, PyAny>) -> Self {
        Self { graph, model, adapter, sources: HashMap::new(), values: HashMap::new() }
    }

    fn make(&self, class: &str, fields: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
        method(self.adapter, class, fields)
    }

    /// Makes the object of a method in its canonical form.
    pub fn of_method(canonical: &Canonical<'a>, adapter: &'a Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut objects = Self::new(canonical.model, canonical.graph, adapter);
        let nodes: Vec<NodeId> = canonical.nodes().collect();
        let shown = objects.graph(&nodes)?;
        let ids = |is: &dyn Fn(NodeId) -> bool| -> Vec<usize> {
            nodes.iter().filter(|node| is(**node)).map(|node| node.index()).collect()
        };
        let claimed = ids(&|node| canonical.is_claimed(node));
        let constant = ids(&|node| canonical.is_constant(node));
        objects.make("method", (canonical.method, shown, claimed, constant))
    }

    /// Makes the object of a part. Its nodes have the numbers of the method's.
    pub fn of_part(part: &'a Part, text: &str, adapter: &'a Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let graph = part.graph().map_err(|error| crate::error::to_python(adapter.py(), &error.into()))?;
        let mut objects = Self::new(&part.model, graph, adapter);
        let nodes = &graph.blocks[graph.body].nodes;
        objects.sources = nodes.iter().copied().zip(part.sources.iter().copied()).collect();
        let shown = objects.graph(nodes)?;
        let options = PyDict::new(adapter.py());
        for (name, value) in &part.options {
            options.set_item(name, crate::choice::Given::from(value.value()))?;
        }
        objects.make("part", (&part.method, shown, text, &part.tag, options))
    }

    /// Makes the object of a state that is not part of a graph.
    pub fn of_state(state: &State, adapter: &'a Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (model, graph) = (Model::default(), Graph::new());
        let objects = Objects::new(&model, &graph, adapter);
        let core = Bound::new(adapter.py(), Constants { constants: vec![initial(state)] })?;
        let none = adapter.py().None();
        objects
            .make("state", (&state.name, objects.tensor_type(&Type::Tensor(state.ty.clone()))?, &none, &none, core, 0))
    }

    /// Makes the parts of a graph: inputs, outputs, nodes, constants, states and symbols.
    fn graph(&mut self, nodes: &[NodeId]) -> PyResult<Bound<'py, PyTuple>> {
        let (graph, py) = (self.graph, self.adapter.py());
        let mut inputs = Vec::new();
        for input in &graph.inputs {
            inputs.push(match input {
                Input::Value(value) => self.value(*value)?,
                Input::Literal(literal) => self.arg(literal)?,
            });
        }
        let users: Users = graph.users().into_iter().collect();
        let nodes: Vec<_> = nodes.iter().map(|node| self.node(*node, &users)).collect::<PyResult<_>>()?;
        let outputs: Vec<_> = graph.outputs.iter().map(|output| self.arg(output)).collect::<PyResult<_>>()?;
        let constants = self.constants(&users)?;
        let states = self.states(&users)?;
        let symbols = self.symbols()?;
        (inputs, outputs, nodes, constants, states, symbols).into_pyobject(py)
    }

    /// Makes the values of the constants that a graph uses, and the object that reads their contents.
    fn constants(&mut self, users: &Users) -> PyResult<(Vec<Bound<'py, PyAny>>, Bound<'py, Constants>)> {
        let mut used: Vec<(ValueId, ConstantId)> = Vec::new();
        for (id, value) in self.graph.values.iter() {
            if let Def::Constant(constant) = value.def
                && users.contains_key(&id)
            {
                used.push((id, constant));
            }
        }
        let values = used.iter().map(|(value, _)| self.value(*value)).collect::<PyResult<_>>()?;
        let constants = used.iter().map(|(_, constant)| self.model.constants[*constant].clone()).collect();
        Ok((values, Bound::new(self.adapter.py(), Constants { constants })?))
    }

    /// Makes the states that a graph reads or updates.
    fn states(&mut self, users: &Users) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (graph, py) = (self.graph, self.adapter.py());
        let mut values: HashMap<StateId, ValueId> = HashMap::new();
        for (id, value) in graph.values.iter() {
            if let Def::State(state) = value.def
                && users.contains_key(&id)
            {
                values.insert(state, id);
            }
        }
        let of_state = |update: &Update| match update.target {
            Target::State(state) => Some((state, update.value)),
            Target::Input(_) => None,
        };
        let updates: HashMap<StateId, ValueId> = graph.updates.iter().filter_map(of_state).collect();
        let used: BTreeSet<StateId> = values.keys().chain(updates.keys()).copied().collect();
        let constants = used.iter().map(|state| initial(&self.model.states[*state])).collect();
        let core = Bound::new(py, Constants { constants })?;
        let mut states = Vec::with_capacity(used.len());
        for (index, id) in used.into_iter().enumerate() {
            let state = &self.model.states[id];
            let ty = self.tensor_type(&Type::Tensor(state.ty.clone()))?;
            let value = values.get(&id).map(|value| self.value(*value)).transpose()?;
            let update = updates.get(&id).map(|value| self.value(*value)).transpose()?;
            states.push(self.make("state", (&state.name, ty, value, update, &core, index))?);
        }
        Ok(states)
    }

    /// Makes the symbols in the sizes that were shown.
    fn symbols(&self) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut used: BTreeSet<SymbolId> = BTreeSet::new();
        let mut add = |size: &Expr| {
            size.for_each_symbol(&mut |symbol| {
                used.insert(symbol);
            });
        };
        for id in self.values.keys() {
            match self.graph.ty(*id) {
                Type::Tensor(ty) => ty.shape.iter().for_each(&mut add),
                Type::Int(value) => add(value),
                Type::Float | Type::Bool => {}
            }
        }
        used.into_iter().map(|symbol| self.size(&Expr::from(symbol))).collect()
    }

    /// The number of a node: that of the method's node for a node of a part.
    fn number(&self, id: NodeId) -> usize {
        self.sources.get(&id).map_or(id, |source| source.node).index()
    }

    fn node(&mut self, id: NodeId, users: &Users) -> PyResult<Bound<'py, PyAny>> {
        let (graph, py) = (self.graph, self.adapter.py());
        let node = &graph.nodes[id];
        let args = PyDict::new(py);
        let mut used = Vec::new();
        for (index, arg) in node.args.iter().enumerate() {
            arg.for_each_value(&mut |value| used.push(value));
            match node.op.schema().and_then(|schema| schema.params.get(index)) {
                Some(param) => args.set_item(&param.name, self.arg(arg)?)?,
                None => args.set_item(index, self.arg(arg)?)?,
            }
        }
        let inputs: Vec<_> = used.iter().map(|value| self.value(*value)).collect::<PyResult<_>>()?;
        let outputs: Vec<_> = node.results.iter().map(|value| self.value(*value)).collect::<PyResult<_>>()?;
        let (mut user_ids, mut known, mut has_other_uses) = (Vec::new(), HashSet::new(), false);
        for user in node.results.iter().filter_map(|result| users.get(result)).flatten() {
            match user.filter(|user| matches!(graph.nodes[*user].op, Op::Call(_))).map(|user| self.number(user)) {
                Some(user) if known.insert(user) => user_ids.push(user),
                Some(_) => {}
                None => has_other_uses = true,
            }
        }
        let origin = &graph.origins[node.origin];
        let debug_handle = self.sources.get(&id).and_then(|source| source.debug_handle);
        let metadata = origin.metadata.as_deref().map(texts);
        let first = (&origin.node, node.op.name(), args, inputs, outputs, &origin.module, origin.line());
        self.make("node", (first, self.number(id), user_ids, has_other_uses, debug_handle, metadata))
    }

    fn value(&mut self, id: ValueId) -> PyResult<Bound<'py, PyAny>> {
        if let Some(known) = self.values.get(&id) {
            return Ok(known.clone());
        }
        let value = &self.graph.values[id];
        let ty = self.tensor_type(&value.ty)?;
        let is_constant = matches!(value.def, Def::Constant(_));
        let (producer, state) = match value.def {
            Def::Result(node, _) => (Some(self.number(node)), None),
            Def::State(state) => (None, Some(self.model.states[state].name.as_str())),
            Def::Param(_) | Def::Constant(_) => (None, None),
        };
        let made = self.make("value", (&value.name, ty, is_constant, id.index(), producer, state))?;
        self.values.insert(id, made.clone());
        Ok(made)
    }

    /// Makes the name of a dtype, the shape and the dim order. A number has neither shape nor dim order.
    fn tensor_type(&self, ty: &Type) -> PyResult<Bound<'py, PyTuple>> {
        let py = self.adapter.py();
        let dtype = match ty {
            Type::Tensor(ty) => {
                let shape: Vec<_> = ty.shape.iter().map(|size| self.size(size)).collect::<PyResult<_>>()?;
                let fields = (ty.dtype.long_name(), PyTuple::new(py, shape)?, PyTuple::new(py, &ty.dim_order)?);
                return fields.into_pyobject(py);
            }
            Type::Int(_) => "int",
            Type::Float => "float",
            Type::Bool => "bool",
        };
        (dtype, py.None(), py.None()).into_pyobject(py)
    }

    /// Returns an int, or a `SymInt` if the size is known only at run time.
    fn size(&self, size: &Expr) -> PyResult<Bound<'py, PyAny>> {
        if let Some(size) = size.as_int() {
            return size.into_bound_py_any(self.adapter.py());
        }
        let (min, max) = size.range(&self.graph.symbols);
        self.make("size", (size.display(&self.graph.symbols).to_string(), min, max))
    }

    fn arg(&mut self, arg: &Arg) -> PyResult<Bound<'py, PyAny>> {
        let py = self.adapter.py();
        match arg {
            Arg::None => Ok(py.None().into_bound(py)),
            Arg::Value(value) => self.value(*value),
            Arg::Int(size) => self.size(size),
            Arg::Float(v) => v.into_bound_py_any(py),
            Arg::Bool(v) => v.into_bound_py_any(py),
            Arg::Str(text) | Arg::Device(text) => text.into_bound_py_any(py),
            Arg::Complex(real, imaginary) => Ok(PyComplex::from_doubles(py, *real, *imaginary).into_any()),
            Arg::DType(dtype) => dtype.long_name().into_bound_py_any(py),
            Arg::Layout(Layout::Strided) => "strided".into_bound_py_any(py),
            Arg::Layout(Layout::Sparse) => "sparse".into_bound_py_any(py),
            Arg::MemoryFormat(format) => format.to_string().into_bound_py_any(py),
            Arg::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.arg(item)).collect::<PyResult<_>>()?;
                Ok(PyList::new(py, items)?.into_any())
            }
            Arg::Block(_) => "block".into_bound_py_any(py),
        }
    }
}

/// The texts of `rushlight.Metadata`.
fn texts(metadata: &NodeMetadata) -> (&str, &str, &str, &str, &str) {
    let NodeMetadata { nn_module_stack, source_fn_stack, torch_fn, custom, from_node } = metadata;
    (nn_module_stack, source_fn_stack, torch_fn, custom, from_node)
}

/// The value of a state before the first call.
fn initial(state: &State) -> Constant {
    Constant { name: state.name.clone(), ty: state.ty.clone(), data: state.initial.clone() }
}

/// The users of each value; `None` for the results of a block or of the method.
type Users = HashMap<ValueId, Vec<Option<NodeId>>>;
