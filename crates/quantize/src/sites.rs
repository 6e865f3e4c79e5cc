//! The quantized values of a method, and the sets of them that share a scale.

use rushlight_compiler::quantization::{
    ActivationScales, ActivationSpec, Annotation, Annotations, Layer, float_operands,
};
use rushlight_graph::{Def, Error, Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The sites of quantization in a method: what a backend's quantizer annotated, as values and scales.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites {
    pub layers: Vec<Layer>,
    pub annotations: Annotations,
    sites: Vec<Site>,
    by_value: FxHashMap<ValueId, Vec<usize>>,
    /// The sets of values that share a scale.
    pub sets: Vec<ScaleSet>,
}

/// A value in one quantized form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub value: ValueId,
    pub spec: ActivationSpec,
    /// The number of its set; `None` if its scale is chosen at run time.
    pub set: Option<usize>,
}

/// Values that share a scale.
#[derive(Clone, Debug)]
pub(super) struct ScaleSet {
    pub spec: ActivationSpec,
    /// The values whose ranges the scale must cover.
    pub observed: Vec<ValueId>,
}

impl Sites {
    /// Collects the sites of a method's annotations.
    ///
    /// # Errors
    /// `Unsupported` for a quantization that the operators of PyTorch do not have.
    pub fn new(graph: &Graph, layers: Vec<Layer>, annotations: Annotations) -> Result<Self, Error> {
        let mut sites = Self { layers, ..Self::default() };
        let body: FxHashSet<NodeId> = graph.blocks[graph.body].nodes.iter().copied().collect();
        for (id, annotation) in annotated(graph, &annotations) {
            for (value, spec) in annotation.inputs.iter().copied().chain(output(graph, id, annotation)) {
                let checked = match spec.scales {
                    ActivationScales::Calibrated if !body.contains(&id) => {
                        Err("scales from a calibration in a block of control flow".to_owned())
                    }
                    _ => spec.check(),
                };
                checked.map_err(|reason| {
                    let error = Error::unsupported(format!("the backend's quantizer asks for {reason}"));
                    graph.locate(error, id)
                })?;
                if sites.find(value, &spec).is_none() {
                    sites.by_value.entry(value).or_default().push(sites.sites.len());
                    sites.sites.push(Site { value, spec, set: None });
                }
            }
        }
        sites.annotations = annotations;
        sites.group(graph);
        Ok(sites)
    }

    /// A site by its number.
    pub fn site(&self, number: usize) -> Site {
        self.sites[number]
    }

    /// The number of the site of a value in a form.
    pub fn find(&self, value: ValueId, spec: &ActivationSpec) -> Option<usize> {
        self.of(value).find(|number| self.sites[*number].spec == *spec)
    }

    /// The quantized layers that are compared with their float originals: all but those in blocks of control flow, whose
    /// results are no values of the method.
    pub fn compared(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| !layer.is_nested)
    }

    /// The number of the site of a layer's quantized input.
    pub fn input_of(&self, layer: &Layer) -> Option<usize> {
        let inputs = &self.annotations.get(layer.node)?.inputs;
        let (value, spec) = inputs.iter().find(|(value, _)| *value == layer.input)?;
        self.find(*value, spec)
    }

    /// The set of scales of a layer's quantized input.
    pub fn input_set(&self, layer: &Layer) -> Option<usize> {
        self.sites[self.input_of(layer)?].set
    }

    /// The values with scales that are known before the program runs, each with the number of its set.
    pub fn with_scales(&self) -> impl Iterator<Item = (ValueId, usize)> {
        self.sites.iter().filter_map(|site| Some((site.value, site.set?)))
    }

    fn of(&self, value: ValueId) -> impl Iterator<Item = usize> {
        self.by_value.get(&value).into_iter().flatten().copied()
    }

    /// Groups the sites that share a scale, and selects the values to observe.
    fn group(&mut self, graph: &Graph) {
        let mut parents: Vec<usize> = (0..self.sites.len()).collect();
        fn root(parents: &[usize], mut site: usize) -> usize {
            while parents[site] != site {
                site = parents[site];
            }
            site
        }
        for (id, annotation) in
            annotated(graph, &self.annotations).into_iter().filter(|(_, annotation)| annotation.shares_scale)
        {
            let result = graph.nodes[id].results.first();
            let pairs = annotation.inputs.iter().flat_map(|(operand, _)| self.of(*operand));
            for operand in pairs {
                for result in result.into_iter().flat_map(|result| self.of(*result)) {
                    if self.sites[result].spec == self.sites[operand].spec {
                        let (from, to) = (root(&parents, result), root(&parents, operand));
                        parents[from] = to;
                    }
                }
            }
        }
        let roots: Vec<usize> = (0..parents.len()).map(|site| root(&parents, site)).collect();
        let mut numbers: FxHashMap<usize, usize> = FxHashMap::default();
        for number in 0..self.sites.len() {
            let Site { value, spec, .. } = self.sites[number];
            if spec.is_dynamic() {
                continue;
            }
            let count = numbers.len();
            let set = *numbers.entry(roots[number]).or_insert(count);
            if set == self.sets.len() {
                self.sets.push(ScaleSet { spec, observed: Vec::new() });
            }
            self.sites[number].set = Some(set);
            // The range of a result that shares the scales of all its operands is theirs.
            let shares = |operand: ValueId| self.of(operand).any(|site| roots[site] == roots[number]);
            if !self.shared_operands(graph, value).is_some_and(|operands| operands.into_iter().all(shares)) {
                self.sets[set].observed.push(value);
            }
        }
    }

    /// The operands of the node that computes a value, if the node's result shares their scale.
    fn shared_operands(&self, graph: &Graph, value: ValueId) -> Option<Vec<ValueId>> {
        let Def::Result(node, _) = graph.values[value].def else { return None };
        let shares_scale = self.annotations.get(node)?.shares_scale;
        shares_scale.then(|| float_operands(graph, &graph.nodes[node]))
    }
}

/// The annotated nodes of a method, in order.
fn annotated<'a>(graph: &'a Graph, annotations: &'a Annotations) -> Vec<(NodeId, &'a Annotation)> {
    let mut annotated = Vec::new();
    graph.for_each_node(graph.body, &mut |id| annotated.extend(annotations.get(id).map(|annotation| (id, annotation))));
    annotated
}

/// The quantized result of a node.
pub(super) fn output(graph: &Graph, node: NodeId, annotation: &Annotation) -> Option<(ValueId, ActivationSpec)> {
    graph.nodes[node].results.first().copied().zip(annotation.output)
}
