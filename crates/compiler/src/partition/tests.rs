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

/// A part that [`Tagger`] compiled.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    tag: String,
    options: Vec<(String, PartOption)>,
    ops: Vec<String>,
    sources: Vec<SourceNode>,
}

/// Takes unary operators under the tags that it has for them, and everything else without a tag.
#[derive(Debug, Default)]
struct Tagger {
    tags: Vec<(&'static str, &'static str)>,
    options: Vec<(&'static str, &'static str, OptionValue<'static>)>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Backend for Tagger {
    fn name(&self) -> &'static str {
        "Tagger"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const { &[OptionSpec::choice("mode", &["fast", "exact"], "how it rounds")] }
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes() {
            claims.set(node, Claim::Take);
            let op = canonical.graph.nodes[node].op.name();
            if let Some((_, tag)) = self.tags.iter().find(|(of, _)| *of == op) {
                claims.set_tag(node, tag);
            }
        }
        self.options.iter().for_each(|(tag, name, value)| claims.set_option(tag, name, *value));
        Ok(())
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        part.model.verify()?;
        let graph = part.graph()?;
        let nodes = &graph.blocks[graph.body].nodes;
        let ops = nodes.iter().map(|node| graph.nodes[*node].op.name().to_owned()).collect();
        let (tag, options, sources) = (part.tag.clone(), part.options.clone(), part.sources.clone());
        self.seen.lock().unwrap().push(Seen { tag, options, ops, sources });
        Ok(empty())
    }
}

/// `relu` and `neg` lead to the product on one side, `abs` on the other.
const TWO_SIDES: &str = r#"
method "forward" {
  input %x : f32[3]
  %relu = aten::relu(%x) : f32[3]
  %neg = aten::neg(%relu) : f32[3]
  %abs = aten::abs(%x) : f32[3]
  %product = aten::mul.Tensor(%neg, %abs) : f32[3]
  return %product
}
"#;

#[test]
fn parts_with_different_tags_stay_apart() {
    let tags = vec![(aten::RELU, "left"), (aten::NEG, "left"), (aten::ABS, "right"), (aten::MUL_TENSOR, "left")];
    let exact = OptionValue::String("exact");
    let backend = Tagger { tags, options: vec![("left", "mode", exact)], ..Tagger::default() };
    let seen = Arc::clone(&backend.seen);
    let mut model = Model::parse(TWO_SIDES, &Contents::default()).unwrap();
    let ids: Vec<NodeId> = model.methods["forward"].nodes.ids().collect();
    partition(&mut model, &[Box::new(backend)], &Progress::default()).unwrap();
    model.verify().unwrap();
    let options = vec![("mode".to_owned(), PartOption::from(exact))];
    let part = |tag: &str, options: &[(String, PartOption)], nodes: &[(&str, usize)]| Seen {
        tag: tag.into(),
        options: options.to_vec(),
        ops: nodes.iter().map(|(op, _)| (*op).to_owned()).collect(),
        sources: (0..).zip(nodes).map(|(at, (_, id))| SourceNode { node: ids[*id], debug_handle: Some(at) }).collect(),
    };
    let expected = [
        part("left", &options, &[(aten::RELU, 0), (aten::NEG, 1)]),
        part("right", &[], &[(aten::ABS, 2)]),
        part("left", &options, &[(aten::MUL_TENSOR, 3)]),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);

    let backend = Tagger::default();
    let seen = Arc::clone(&backend.seen);
    let mut model = Model::parse(TWO_SIDES, &Contents::default()).unwrap();
    partition(&mut model, &[Box::new(backend)], &Progress::default()).unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn options_of_tags_are_checked() {
    for (name, value) in [("depth", OptionValue::Int(1)), ("mode", OptionValue::String("slow"))] {
        let backend = Tagger { options: vec![("left", name, value)], ..Tagger::default() };
        let mut model = Model::parse(TWO_SIDES, &Contents::default()).unwrap();
        let error = partition(&mut model, &[Box::new(backend)], &Progress::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Option);
        assert!(error.to_string().contains("tag `left`"), "{error}");
    }
}

/// Takes products, and `relu` as their inner node, although others may use it.
#[derive(Debug)]
struct Careless;

impl Backend for Careless {
    fn name(&self) -> &'static str {
        "Careless"
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes() {
            match canonical.graph.nodes[node].op.name() {
                aten::MUL_TENSOR => claims.set(node, Claim::Take),
                aten::RELU => claims.set(node, Claim::Inner),
                _ => {}
            }
        }
        Ok(())
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        Multiplier.compile(part)
    }
}

#[test]
fn inner_nodes_with_other_users_come_before_them() {
    let text = r#"
method "forward" {
  input %x : f32[3]
  %relu = aten::relu(%x) : f32[3]
  %neg = aten::neg(%relu) : f32[3]
  %product = aten::mul.Tensor(%relu, %neg) : f32[3]
  return %product
}
"#;
    let mut model = Model::parse(text, &Contents::default()).unwrap();
    let report = partition(&mut model, &[Box::new(Careless)], &Progress::default()).unwrap();
    assert_eq!(report.claim_counts(), [("Careless", 2), (PORTABLE, 1)].into());
    model.verify().unwrap();
}
