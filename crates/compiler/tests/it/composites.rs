//! Composites of the canonical form are offered whole; those that no backend claims are offered by their parts.

use std::sync::{Arc, Mutex};

use rushlight_compiler::partition::{Backend, Canonical, Claim, Claims, Compiled, Part, Payload};
use rushlight_compiler::{CompileOptions, compile};
use rushlight_graph::operators::aten;
use rushlight_graph::text::Contents;
use rushlight_graph::{Bytes, Error, Expr, Graph, Model, NodeId, Origin, Pass};

const LINEARS: &str = r#"
method "forward" {
  input %x : f32[2, 4]
  input %w : f32[3, 4]
  input %v : f32[5, 4]
  %a = aten::linear(%x, %w, none) : f32[2, 3]
  %b = aten::linear(%x, %v, none) : f32[2, 5]
  return %a, %b
}
"#;

/// Claims nodes by a function. Keeps the operators that it was shown, and those of its parts.
#[derive(Debug)]
struct Claimer {
    name: &'static str,
    claim: fn(&Graph, NodeId) -> Claim,
    shown: Arc<Mutex<Vec<String>>>,
    compiled: Arc<Mutex<Vec<String>>>,
}

impl Claimer {
    fn new(name: &'static str, claim: fn(&Graph, NodeId) -> Claim) -> Self {
        Self { name, claim, shown: Arc::default(), compiled: Arc::default() }
    }
}

impl Backend for Claimer {
    fn name(&self) -> &str {
        self.name
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes().filter(|node| !canonical.is_claimed(*node)) {
            self.shown.lock().unwrap().push(canonical.graph.nodes[node].op.name().to_owned());
            claims.set(node, (self.claim)(canonical.graph, node));
        }
        Ok(())
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let graph = part.graph()?;
        let nodes = graph.blocks[graph.body].nodes.iter();
        self.compiled.lock().unwrap().extend(nodes.map(|node| graph.nodes[*node].op.name().to_owned()));
        let (compile_specs, named_data, precisions) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Payload { data: Bytes::from(Vec::new()), compile_specs, named_data, precisions }.into())
    }
}

fn refused(_: &Graph, _: NodeId) -> Claim {
    Claim::Refuse("nothing".into())
}

fn taken_if(is_taken: bool) -> Claim {
    if is_taken { Claim::Take } else { Claim::Refuse("another operator".into()) }
}

fn whole(graph: &Graph, node: NodeId) -> Claim {
    taken_if(graph.nodes[node].op.name() == aten::LINEAR)
}

fn parts(graph: &Graph, node: NodeId) -> Claim {
    taken_if(matches!(graph.nodes[node].op.name(), aten::MM | aten::PERMUTE_COPY))
}

fn asks_for_parts(graph: &Graph, node: NodeId) -> Claim {
    if graph.nodes[node].op.name() == aten::LINEAR { Claim::Decompose } else { parts(graph, node) }
}

/// The two layers, each from a node of its own.
fn model() -> Model {
    from_text(LINEARS)
}

/// A model whose nodes have an origin each.
fn from_text(text: &str) -> Model {
    let mut model = Model::parse(text, &Contents::default()).unwrap();
    model.verify().unwrap();
    let graph = &mut model.methods["forward"];
    for node in graph.blocks[graph.body].nodes.clone() {
        let origin = Origin { node: format!("{node:?}"), ..Origin::default() };
        graph.nodes[node].origin = graph.origins.push(origin);
    }
    model
}

/// The bytes of the program, then the operators that each backend was shown and those that it compiled.
fn compiled(claimers: Vec<Claimer>) -> (Vec<u8>, Vec<(Vec<String>, Vec<String>)>) {
    let logs: Vec<_> = claimers.iter().map(|one| (one.shown.clone(), one.compiled.clone())).collect();
    let backends = claimers.into_iter().map(|one| Box::new(one) as Box<dyn Backend>).collect();
    let compiled = compile(model(), &CompileOptions { backends, ..CompileOptions::default() }).unwrap();
    let take = |log: &Mutex<Vec<String>>| std::mem::take(&mut *log.lock().unwrap());
    (compiled.program.to_bytes().unwrap(), logs.iter().map(|(shown, parts)| (take(shown), take(parts))).collect())
}

const PARTS: [&str; 4] = [aten::PERMUTE_COPY, aten::MM, aten::PERMUTE_COPY, aten::MM];

#[test]
fn composites_are_offered_whole_and_then_by_their_parts() {
    let (_, logs) = compiled(vec![Claimer::new("Whole", whole)]);
    assert_eq!(logs[0], (vec![aten::LINEAR.to_owned(); 2], vec![aten::LINEAR.to_owned(); 2]));
    let (_, logs) = compiled(vec![Claimer::new("Parts", parts)]);
    assert_eq!(logs[0].0, [&[aten::LINEAR; 2][..], &PARTS].concat());
    assert_eq!(logs[0].1, PARTS);
}

#[test]
fn a_back_end_that_refuses_everything_leaves_the_portable_program() {
    let (portable, _) = compiled(Vec::new());
    assert_eq!(compiled(vec![Claimer::new("None", refused)]).0, portable);
}

#[test]
fn who_asks_for_parts_gets_them_before_later_back_ends_are_shown_the_whole() {
    let (_, logs) = compiled(vec![Claimer::new("Parts", asks_for_parts), Claimer::new("Whole", whole)]);
    assert_eq!((&logs[0].1[..], &logs[1].0[..]), (&PARTS.map(str::to_owned)[..], &[][..]));
    let (_, logs) = compiled(vec![Claimer::new("Whole", whole), Claimer::new("Parts", asks_for_parts)]);
    assert_eq!((&logs[0].1[..], &logs[1].0[..]), (&[aten::LINEAR; 2].map(str::to_owned)[..], &[][..]));
}

#[test]
fn one_call_is_decomposed_where_another_is_claimed() {
    fn narrow(graph: &Graph, node: NodeId) -> Claim {
        let result = graph.nodes[node].result().and_then(|result| graph.tensor(result).ok());
        let is_narrow = result.is_some_and(|ty| ty.shape.last() == Some(&Expr::Int(3)));
        taken_if(is_narrow && graph.nodes[node].op.name() == aten::LINEAR)
    }
    let (_, logs) = compiled(vec![Claimer::new("Narrow", narrow), Claimer::new("Parts", parts)]);
    assert_eq!(logs[0].1, [aten::LINEAR]);
    assert_eq!(logs[1].1, [aten::PERMUTE_COPY, aten::MM]);
}

#[test]
fn passes_of_the_user_see_the_settled_form() {
    #[derive(Debug)]
    struct Spy(Arc<Mutex<Vec<Vec<String>>>>);

    impl Pass for Spy {
        fn name(&self) -> &'static str {
            "spy"
        }

        fn run(&self, model: &mut Model) -> Result<(), Error> {
            let graph = &model.methods["forward"];
            let nodes = graph.blocks[graph.body].nodes.iter();
            self.0.lock().unwrap().push(nodes.map(|node| graph.nodes[*node].op.name().to_owned()).collect());
            Ok(())
        }
    }

    let seen = Arc::<Mutex<Vec<Vec<String>>>>::default();
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(Claimer::new("Parts", parts))];
    let passes: Vec<Box<dyn Pass>> = vec![Box::new(Spy(seen.clone()))];
    compile(model(), &CompileOptions { backends, passes, ..CompileOptions::default() }).unwrap();
    assert_eq!(*seen.lock().unwrap(), [PARTS.map(str::to_owned).to_vec()]);
}

#[test]
fn equal_calls_of_many_origins_take_few_rounds() {
    #[derive(Debug)]
    struct Counter(Arc<Mutex<usize>>);

    impl Backend for Counter {
        fn name(&self) -> &'static str {
            "Counter"
        }

        fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
            *self.0.lock().unwrap() += 1;
            for node in canonical.nodes() {
                let result =
                    canonical.graph.nodes[node].result().and_then(|result| canonical.graph.tensor(result).ok());
                let is_wide = result.is_some_and(|ty| ty.shape.last() == Some(&Expr::Int(5)));
                claims.set(node, taken_if(is_wide && canonical.graph.nodes[node].op.name() == aten::LINEAR));
            }
            Ok(())
        }

        fn compile(&self, _: &Part) -> Result<Compiled, Error> {
            let (compile_specs, named_data, precisions) = (Vec::new(), Vec::new(), Vec::new());
            Ok(Payload { data: Bytes::from(Vec::new()), compile_specs, named_data, precisions }.into())
        }
    }

    // Equal calls are merged into the first that is left.
    let mut text = LINEARS.replace("  return %a, %b\n}\n", "");
    let names: Vec<String> = (0..40).map(|index| format!("%a{index}")).collect();
    for name in &names {
        text.push_str(&format!("  {name} = aten::linear(%x, %w, none) : f32[2, 3]\n"));
    }
    text.push_str(&format!("  return %a, %b, {}\n}}\n", names.join(", ")));
    let count = Arc::new(Mutex::new(0));
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(Counter(count.clone()))];
    compile(from_text(&text), &CompileOptions { backends, ..CompileOptions::default() }).unwrap();
    let count = *count.lock().unwrap();
    assert!(count <= 12, "{count} rounds");
}
