use super::*;
use rushlight_graph::text::Contents;

/// Takes multiplications.
#[derive(Debug)]
struct Multiplier;

impl Backend for Multiplier {
    fn name(&self) -> &'static str {
        "Multiplier"
    }

    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        if graph.nodes[node].op.name() == "aten::mul.Tensor" { Offer::Take } else { Offer::Leave("a sum".into()) }
    }

    fn compile(&self, part: &Part) -> Result<Payload, Error> {
        part.model.verify()?;
        Ok(Payload {
            data: Bytes::from(Vec::new()),
            compile_specs: Vec::new(),
            named_data: Vec::new(),
            precisions: Vec::new(),
        })
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
    let report = partition(&mut model, &[Box::new(Multiplier)]).unwrap();
    assert_eq!(report.entries.iter().filter(|entry| matches!(entry.fate, Fate::Taken { .. })).count(), 2);
    model.verify().unwrap();
}
