use std::sync::{Arc, Mutex};

use super::*;
use rushlight_graph::operators::aten;
use rushlight_graph::text::{Contents, Detail};
use rushlight_graph::{Action, Builder, Op, Schema};

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
    // The handles are indices of the nodes that the debug map has for a delegate.
    for ((_, delegate), Seen { ops, sources, .. }) in model.delegates.iter().zip(&expected) {
        for (op, source) in ops.iter().zip(sources) {
            let handle = source.debug_handle.unwrap() as usize;
            assert_eq!(&delegate.nodes[handle].op, op);
        }
    }

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

/// Takes multiplications, and `relu` as their inner node, although others may use it.
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

/// Takes multiplications. Copies `neg`, with `relu` as its inner node.
#[derive(Debug)]
struct Copier;

impl Backend for Copier {
    fn name(&self) -> &'static str {
        "Copier"
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes() {
            match canonical.graph.nodes[node].op.name() {
                aten::MUL_TENSOR => claims.set(node, Claim::Take),
                aten::RELU => claims.set(node, Claim::Inner),
                aten::NEG => claims.set(node, Claim::Copy),
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
fn inner_nodes_of_copies_come_before_all_users_of_the_copies() {
    // Two products, at levels 0 and 2, read copies of the negation; the original stays for the sum, or for nobody.
    for last in ["%sum = aten::add.Tensor(%neg, %second, 1) : f32[3]", "%sum = aten::abs(%second) : f32[3]"] {
        let text = format!(
            r#"
method "forward" {{
  input %x : f32[3]
  %relu = aten::relu(%x) : f32[3]
  %neg = aten::neg(%relu) : f32[3]
  %first = aten::mul.Tensor(%neg, %x) : f32[3]
  %abs = aten::abs(%first) : f32[3]
  %second = aten::mul.Tensor(%neg, %abs) : f32[3]
  {last}
  return %sum, %first
}}
"#
        );
        let mut model = Model::parse(&text, &Contents::default()).unwrap();
        partition(&mut model, &[Box::new(Copier)], &Progress::default()).unwrap();
        model.verify().unwrap();
    }
}

/// Claims all nodes. Gives the part's model, changed by a function, as its operators.
#[derive(Debug)]
struct Giver {
    change: fn(&mut Model),
    owns_state: bool,
}

impl Backend for Giver {
    fn name(&self) -> &'static str {
        "Giver"
    }

    fn operators(&self) -> &'static [&'static str] {
        &["testing::twice(Tensor x) -> Tensor", aten::ADD_TENSOR, aten::MUL_TENSOR]
    }

    fn owns_state(&self, _: &State) -> bool {
        self.owns_state
    }

    fn offer(&self, _: &Graph, _: NodeId) -> Offer {
        Offer::Take
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let mut model = part.model.clone();
        (self.change)(&mut model);
        Ok(Compiled::Operators(model))
    }
}

/// Partitions a model with a [`Giver`], which takes all of it.
fn given(text: &str, giver: Giver) -> Result<Model, Error> {
    let mut model = Model::parse(text, &Contents::default())?;
    model.verify()?;
    partition(&mut model, &[Box::new(giver)], &Progress::default())?;
    model.verify()?;
    Ok(model)
}

#[test]
fn operators_of_varying_sizes_take_the_place_of_a_part_in_a_block() {
    let text = r#"
method "forward" {
  symbol s0 in 0..=9
  input %x : f32[s0]
  %y = cond(true, {
    %sum = aten::add.Tensor(%x, %x, 1) : f32[s0]
    yield %sum
  }, {
    yield %x
  }) : f32[s0]
  return %y
}
"#;
    let change = |model: &mut Model| {
        let change = |builder: &mut Builder<'_>, node: NodeId| {
            let node = builder.graph.nodes[node].clone();
            let ty = builder.graph.ty(node.results[0]).clone();
            let schema = builder.schemas().expect("testing::twice")?;
            let twice = builder.push(Op::Call(schema), vec![node.args[0].clone()], vec![ty]);
            Ok(Action::Replace(twice))
        };
        model.rewrite(change).unwrap();
    };
    let model = given(text, Giver { change, owns_state: false }).unwrap();
    let printed = model.to_text(Detail::Review).unwrap().0;
    assert!(printed.contains("%sum = testing::twice(%x) : f32[s0]"), "{printed}");
}

#[test]
fn a_part_may_become_its_input() {
    let text = r#"
method "forward" {
  input %x : f32[3]
  %product = aten::mul.Tensor(%x, %x) : f32[3]
  return %product
}
"#;
    let change = |model: &mut Model| {
        let graph = &mut model.methods[Part::METHOD];
        graph.outputs = vec![graph.blocks[graph.body].params[0].into()];
        graph.blocks[graph.body].nodes.clear();
    };
    let model = given(text, Giver { change, owns_state: false }).unwrap();
    let graph = &model.methods["forward"];
    assert_eq!(graph.outputs, [graph.blocks[graph.body].params[0].into()]);
    assert!(graph.blocks[graph.body].nodes.is_empty());
}

#[test]
fn a_state_stays_with_the_program_of_operators() {
    let text = r#"
state $total : f32[3] = zeros

method "forward" {
  input %x : f32[3]
  %sum = aten::add.Tensor($total, %x, 1) : f32[3]
  return %sum
  update $total = %sum
}
"#;
    let model = given(text, Giver { change: |_| {}, owns_state: false }).unwrap();
    assert_eq!(model.methods["forward"].updates.len(), 1);
    let error = given(text, Giver { change: |_| {}, owns_state: true }).unwrap_err();
    assert_eq!(error.message(), "it owns a state of a part for which it gives operators");
    assert!(error.hint().is_some_and(|hint| hint.contains("owns_state")), "{error}");
}

#[test]
fn operators_are_called_by_the_declared_schema() {
    let text = r#"
method "forward" {
  input %x : f32[3]
  %sum = aten::add.Tensor(%x, %x, 1) : f32[3]
  return %sum
}
"#;
    let change = |model: &mut Model| {
        let graph = &mut model.methods[Part::METHOD];
        let node = graph.blocks[graph.body].nodes[0];
        let schema = Schema::parse("testing::twice(Tensor other) -> Tensor").unwrap();
        graph.nodes[node].op = Op::Call(schema.into());
        graph.nodes[node].args.truncate(1);
    };
    let error = given(text, Giver { change, owns_state: false }).unwrap_err();
    let expected = "its model calls `testing::twice` by another schema than the one that it declares";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Backend, expected));
}
