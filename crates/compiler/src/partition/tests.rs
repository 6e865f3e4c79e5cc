use std::sync::{Arc, Mutex};

use super::*;
use rushlight_graph::operators::aten;
use rushlight_graph::text::Contents;

fn empty() -> Compiled {
    let (compile_specs, named_data, precisions) = (Vec::new(), Vec::new(), Vec::new());
    Payload { data: Bytes::from(Vec::new()), compile_specs, named_data, precisions }.into()
}

/// Takes multiplications.
#[derive(Debug)]
struct Multiplier;

impl Backend for Multiplier {
    fn name(&self) -> &'static str {
        "Multiplier"
    }

    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        if graph.nodes[node].op.name() == aten::MUL_TENSOR { Offer::Take } else { Offer::Leave("a sum".into()) }
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        part.model.verify()?;
        Ok(empty())
    }
}

#[test]
fn sizes_that_a_part_leads_to_are_known_before_they_are_used() {
    let text = r#"
method "forward" {
  symbol u0 in 0..=9
  input %x : i64[]
  input %y : f32[3]
  %product = aten::mul.Tensor(%x, %x) : i64[]
  %size = aten::_local_scalar_dense(%product) : int u0
  %positions = aten::arange(u0, f32, none, none, none) : f32[u0]
  %double = aten::mul.Tensor(%positions, %positions) : f32[u0]
  return %double
}
"#;
    let mut model = Model::parse(text, &Contents::default()).unwrap();
    model.verify().unwrap();
    let report = partition(&mut model, &[Box::new(Multiplier)], &Progress::default()).unwrap();
    assert_eq!(report.entries.iter().filter(|entry| matches!(entry.fate, Fate::Claimed { .. })).count(), 2);
    model.verify().unwrap();
}

#[test]
fn sizes_that_no_input_of_a_part_has_come_from_an_input_of_the_method() {
    let text = r#"
method "forward" {
  symbol s0 in 0..=9
  input %x : f32[1]
  input %like : i64[s0]
  %product = aten::mul.Tensor(%x, %x) : f32[1]
  %shown = aten::expand_copy(%product, [s0], false) : f32[s0]
  %double = aten::mul.Tensor(%shown, %shown) : f32[s0]
  return %double
}
"#;
    let mut model = Model::parse(text, &Contents::default()).unwrap();
    let backend = Taker::default();
    let inputs = Arc::clone(&backend.inputs);
    partition(&mut model, &[Box::new(backend)], &Progress::default()).unwrap();
    assert_eq!(*inputs.lock().unwrap(), [2]);
    model.verify().unwrap();
}

/// Takes everything, and keeps the number of inputs of its parts.
#[derive(Debug, Default)]
struct Taker {
    inputs: Arc<Mutex<Vec<usize>>>,
}

impl Backend for Taker {
    fn name(&self) -> &'static str {
        "Taker"
    }

    fn offer(&self, _: &Graph, _: NodeId) -> Offer {
        Offer::Take
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        part.model.verify()?;
        self.inputs.lock().unwrap().push(part.graph()?.inputs.len());
        Ok(empty())
    }
}
