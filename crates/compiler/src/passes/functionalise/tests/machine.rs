//! Tensors that share memory, and operators that work on them as PyTorch does: enough to run small programs.

use rustc_hash::FxHashMap;

use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Graph, Target, ValueId};

/// A tensor in memory: where in a storage each of its elements is.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub storage: usize,
    pub shape: Vec<usize>,
    places: Vec<usize>,
}

/// Storages of numbers, and what values are.
#[derive(Default)]
pub struct Machine {
    storages: Vec<Vec<f64>>,
    pub values: FxHashMap<ValueId, Tensor>,
}

pub fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// All indices of a shape in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for size in shape {
        all = all.into_iter().flat_map(|index| (0..*size).map(move |i| [index.clone(), vec![i]].concat())).collect();
    }
    all
}

fn flat(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (size, i)| at * size + i)
}

impl Tensor {
    /// The view whose element at an index of `shape` is this tensor's at `from(index)`.
    fn pick(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let places = indices(shape).iter().map(|index| self.places[flat(&self.shape, &from(index))]).collect();
        Self { storage: self.storage, shape: shape.to_vec(), places }
    }

    fn broadcast(&self, shape: &[usize]) -> Self {
        let new = shape.len() - self.shape.len();
        self.pick(shape, |index| {
            index[new..].iter().zip(&self.shape).map(|(i, size)| if *size == 1 { 0 } else { *i }).collect()
        })
    }

    fn slice(&self, dim: usize, [start, end, step]: [usize; 3]) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = end.saturating_sub(start).div_ceil(step);
        self.pick(&shape, |index| {
            let mut index = index.to_vec();
            index[dim] = start + index[dim] * step;
            index
        })
    }

    fn select(&self, dim: usize, at: usize) -> Self {
        let mut shape = self.shape.clone();
        shape.remove(dim);
        self.pick(&shape, |index| [&index[..dim], &[at], &index[dim..]].concat())
    }
}

fn ints(arg: &Arg) -> Vec<i64> {
    match arg {
        Arg::List(items) => items.iter().flat_map(ints).collect(),
        Arg::Int(expr) => vec![expr.as_int().unwrap()],
        Arg::None => vec![],
        other => panic!("no integers: {other:?}"),
    }
}

fn number(arg: &Arg) -> f64 {
    match arg {
        Arg::Float(value) => *value,
        other => ints(other)[0] as f64,
    }
}

impl Machine {
    pub fn fresh(&mut self, shape: &[usize], content: Vec<f64>) -> Tensor {
        assert_eq!(numel(shape), content.len());
        self.storages.push(content);
        Tensor { storage: self.storages.len() - 1, shape: shape.to_vec(), places: (0..numel(shape)).collect() }
    }

    pub fn read(&self, tensor: &Tensor) -> Vec<f64> {
        tensor.places.iter().map(|at| self.storages[tensor.storage][*at]).collect()
    }

    fn write(&mut self, tensor: &Tensor, content: &[f64]) {
        for (at, value) in tensor.places.iter().zip(content) {
            self.storages[tensor.storage][*at] = *value;
        }
    }

    /// Calls an operator as PyTorch does.
    pub fn call(&mut self, name: &str, args: &[Arg]) -> Vec<Tensor> {
        let tensor = |index: usize| self.values[&args[index].as_value().unwrap()].clone();
        let x = args.first().and_then(Arg::as_value).map(|value| self.values[&value].clone());
        let x = x.unwrap_or(Tensor { storage: 0, shape: vec![], places: vec![] });
        let rank = x.shape.len();
        let wrap = |value: i64, size: usize| (if value < 0 { value + size as i64 } else { value }) as usize;
        let dim = |index: usize, rank: usize| wrap(ints(&args[index])[0], rank);
        let shape = |index: usize| ints(&args[index]).into_iter().map(|size| size as usize).collect::<Vec<_>>();
        let bounds = |at: usize, size: usize| {
            let get = |index: usize, default: i64| ints(&args[index]).first().copied().unwrap_or(default);
            let clamp = |value: i64| wrap(value.min(size as i64), size).min(size);
            [clamp(get(at, 0)), clamp(get(at + 1, size as i64)), get(at + 2, 1) as usize]
        };
        let (base, in_place) = match name.split_once('_') {
            _ if name.ends_with('_') => (name.trim_end_matches('_').to_owned(), true),
            _ => (name.replace("_.", "."), name.contains("_.")),
        };
        let sizes = match base.as_str() {
            aten::UNSQUEEZE => {
                let mut sizes = x.shape.clone();
                sizes.insert(dim(1, rank + 1), 1);
                Some(sizes)
            }
            aten::SQUEEZE => Some(x.shape.iter().copied().filter(|size| *size != 1).collect()),
            aten::FLATTEN_USING_INTS => Some(vec![numel(&x.shape)]),
            aten::VIEW | aten::RESHAPE => Some(shape(1)),
            _ => None,
        };
        if let Some(sizes) = sizes {
            // The reshapes of these tests are of dense tensors, or copied.
            return vec![Tensor { shape: sizes, ..x }];
        }
        let permuted = |dims: &[usize]| {
            let sizes: Vec<usize> = dims.iter().map(|dim| x.shape[*dim]).collect();
            x.pick(&sizes, |index| {
                let mut from = vec![0; rank];
                dims.iter().zip(index).for_each(|(dim, i)| from[*dim] = *i);
                from
            })
        };
        let view = match base.as_str() {
            aten::PERMUTE => Some(permuted(&shape(1))),
            aten::TRANSPOSE_INT | aten::packet::TRANSPOSE => {
                let mut dims: Vec<usize> = (0..rank).collect();
                dims.swap(dim(1, rank), dim(2, rank));
                Some(permuted(&dims))
            }
            aten::T => Some(permuted(&if rank == 2 { vec![1, 0] } else { (0..rank).collect::<Vec<_>>() })),
            aten::EXPAND => Some(x.broadcast(&shape(1))),
            aten::ALIAS | aten::DETACH | aten::DROPOUT => Some(x.clone()),
            aten::SELECT_INT => Some(x.select(dim(1, rank), dim(2, x.shape[dim(1, rank)]))),
            aten::SLICE_TENSOR => Some(x.slice(dim(1, rank), bounds(2, x.shape[dim(1, rank)]))),
            aten::NARROW => {
                let start = dim(2, x.shape[dim(1, rank)]);
                Some(x.slice(dim(1, rank), [start, start + shape(3)[0], 1]))
            }
            aten::DIAGONAL => {
                let size = x.shape[0].min(x.shape[1]);
                Some(x.pick(&[size], |index| vec![index[0], index[0]]))
            }
            aten::AS_STRIDED => {
                let (sizes, strides, offset) = (shape(1), shape(2), shape(3).first().copied().unwrap_or(0));
                let place = |index: &Vec<usize>| offset + index.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>();
                let places = indices(&sizes).iter().map(place).collect();
                Some(Tensor { storage: x.storage, shape: sizes, places })
            }
            _ => None,
        };
        if let Some(view) = view {
            return vec![view];
        }
        match base.as_str() {
            aten::SPLIT_TENSOR => {
                let (step, size) = (shape(1)[0], x.shape[dim(2, rank)]);
                let part = |start: usize| x.slice(dim(2, rank), [start, (start + step).min(size), 1]);
                return (0..size).step_by(step).map(part).collect();
            }
            aten::UNBIND_INT => {
                return (0..x.shape[dim(1, rank)]).map(|at| x.select(dim(1, rank), at)).collect();
            }
            _ => {}
        }
        let scatter = |machine: &mut Self, part: &dyn Fn(&mut Self, &Tensor) -> Tensor| {
            let source = machine.read(&tensor_of(machine, &args[1]));
            let whole = machine.read(&x);
            let result = machine.fresh(&x.shape, whole);
            let part = part(machine, &result);
            machine.write(&part, &source);
            vec![result]
        };
        match base.as_str() {
            aten::SELECT_SCATTER => {
                return scatter(self, &|_, r| r.select(dim(2, rank), dim(3, x.shape[dim(2, rank)])));
            }
            aten::SLICE_SCATTER => {
                return scatter(self, &|_, r| r.slice(dim(2, rank), bounds(3, x.shape[dim(2, rank)])));
            }
            aten::DIAGONAL_SCATTER => {
                return scatter(self, &|_, r| r.pick(&[x.shape[0].min(x.shape[1])], |index| vec![index[0], index[0]]));
            }
            aten::AS_STRIDED_SCATTER => {
                return scatter(self, &|_, r| {
                    let (sizes, strides, offset) = (shape(2), shape(3), shape(4)[0]);
                    let place =
                        |index: &Vec<usize>| offset + index.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>();
                    Tensor { storage: r.storage, places: indices(&sizes).iter().map(place).collect(), shape: sizes }
                });
            }
            _ => {}
        }
        let content = self.read(&x);
        let result: Vec<f64> = match base.as_str() {
            aten::ADD_SCALAR => content.iter().map(|v| v + number(&args[1])).collect(),
            aten::MUL_SCALAR => content.iter().map(|v| v * number(&args[1])).collect(),
            aten::RELU => content.iter().map(|v| v.max(0.0)).collect(),
            aten::CLONE | aten::_TO_COPY => content,
            aten::ZERO => vec![0.0; content.len()],
            aten::FILL_SCALAR => vec![number(&args[1]); content.len()],
            aten::FILL_TENSOR | aten::COPY => self.read(&tensor(1).broadcast(&x.shape)),
            aten::ADD_TENSOR => {
                let other = self.read(&tensor(1).broadcast(&x.shape));
                content.iter().zip(other).map(|(a, b)| a + b).collect()
            }
            aten::FULL => {
                let content = vec![number(&args[1]); numel(&shape(0))];
                return vec![self.fresh(&shape(0), content)];
            }
            other => panic!("the machine has no `{other}`"),
        };
        if in_place {
            self.write(&x, &result);
            return vec![x];
        }
        vec![self.fresh(&x.shape.clone(), result)]
    }

    /// Runs the body of a graph. Returns its outputs and the final contents of its inputs.
    pub fn run(&mut self, graph: &Graph) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        for node in &graph.blocks[graph.body].nodes {
            let node = &graph.nodes[*node];
            let results = self.call(node.op.name(), &node.args);
            self.values.extend(node.results.iter().copied().zip(results));
        }
        let read = |value: &ValueId| self.read(&self.values[value]);
        let outputs = graph.outputs.iter().map(|output| read(&output.as_value().unwrap())).collect();
        let params = &graph.blocks[graph.body].params;
        let left = params.iter().enumerate().map(|(position, input)| {
            let stored = graph.updates.iter().find(|update| update.target == Target::Input(position as u32));
            read(stored.map_or(input, |update| &update.value))
        });
        (outputs, left.collect())
    }
}

fn tensor_of(machine: &Machine, arg: &Arg) -> Tensor {
    machine.values[&arg.as_value().unwrap()].clone()
}
