//! The compiler from end to end: its stages and their passes, in order.

use std::collections::HashSet;

use rushlight_format::pte::ProgramModel;

use crate::debug_map::MethodMap;
use crate::emit::{EmitOptions, Emitted, ExternalData, emit};
#[cfg(feature = "pt2")]
use crate::front::pt2::{Archive, ImportOptions, import};
use crate::front::pte::{LiftOptions, lift_with};
use crate::partition::{self, Backend, Decided, Report};
use crate::passes::composites::Composites;
use crate::passes::raise::{RaiseExperts, RaiseLinear, UngroupExperts};
use crate::passes::{
    AssignDimOrders, CheckOperators, CheckTypes, EliminateDeadCode, FoldBatchNorms, FoldConstants, FreezeStates,
    Functionalise, IntegerInterface, LowerComposites, LowerSymbolicSizes, MergeCommonSubexpressions, MergeConstants,
    ReorderNodes, decompose,
};
use rushlight_graph::Bytes;
use rushlight_graph::Pass;
use rushlight_graph::{Constant, Graph, Literal, Model, NodeId, Progress};
use rushlight_graph::{Error, ErrorKind};

/// Rounds of claims that decompose single calls of composites.
const SINGLE_ROUNDS: usize = 8;

/// Options of a compilation.
#[derive(Debug, Default)]
pub struct CompileOptions {
    #[cfg(feature = "pt2")]
    pub import: ImportOptions,
    pub lift: LiftOptions,
    pub emit: EmitOptions,
    /// Methods without inputs that return constants, by name.
    pub constant_methods: Vec<(String, Vec<ConstantResult>)>,
    /// True if nodes that kernels can run are neither folded nor merged, for a reference to compare with.
    pub keep_nodes: bool,
    /// True if the model comes from a program, which is assumed to run. Element types are then not checked against the
    /// kernels.
    pub trusts_types: bool,
    /// Backends in the order of priority. Nodes that none claims run on the runtime's operators.
    pub backends: Vec<Box<dyn Backend>>,
    /// The user's own passes. They see a functional graph of operators that kernels have, and of composites that backends
    /// claim whole. They run again if backends leave other composites after them.
    pub passes: Vec<Box<dyn Pass>>,
    /// Progress of the compilation, which can be cancelled between two passes.
    pub progress: Progress,
}

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The model as the front end made it.
    Imported,
    /// The form in which backends claim nodes: a functional, simplified graph of operators that kernels have, and of
    /// composites that backends claim.
    Canonical,
    /// The model that the emitter writes.
    Final,
}

/// A result of a method that only returns constants.
#[derive(Clone, Debug)]
pub enum ConstantResult {
    Literal(Literal),
    Tensor(Constant),
}

/// A compiled program.
#[derive(Debug)]
pub struct Compiled {
    /// The program, which [`ProgramModel::write`] turns into a file.
    pub program: ProgramModel<'static>,
    /// The `.ptd` files that belong to it, if [`EmitOptions::external_weights`] asks for some.
    pub external: Vec<ExternalData>,
    /// For each method, the origins of its instructions.
    pub debug: Vec<MethodMap>,
    /// The claimant or refusals of every node.
    pub report: Report,
}

/// Compiles `.pt2` archives, each to a method with the given name.
///
/// # Errors
/// The errors of [`import`] and of the passes.
#[cfg(feature = "pt2")]
pub fn compile_pt2(programs: &[(&str, Bytes)], options: &CompileOptions) -> Result<Compiled, Error> {
    compile(import_pt2(programs, options.import)?, options)
}

/// Reads `.pt2` archives into one model, each as a method with the given name.
///
/// # Errors
/// The errors of [`import`].
#[cfg(feature = "pt2")]
pub fn import_pt2(programs: &[(&str, Bytes)], options: ImportOptions) -> Result<Model, Error> {
    check_method_names(programs.iter().map(|(method, _)| *method))?;
    let mut archives = Vec::with_capacity(programs.len());
    for (method, bytes) in programs {
        archives.push((*method, Archive::parse(bytes.clone()).map_err(Error::from)?));
    }
    let mut sources = Vec::with_capacity(archives.len());
    for (method, archive) in &archives {
        sources.push((*method, archive.model().map_err(Error::from)?));
    }
    let programs: Vec<_> = sources.iter().map(|(method, source)| (*method, source)).collect();
    import(&programs, options)
}

/// Compiles a `.pte` program again. `external` are the `.ptd` files with its external tensors.
///
/// # Errors
/// The errors of [`lift_with`] and of the passes.
pub fn compile_pte(file: &Bytes, external: &[Bytes], options: &CompileOptions) -> Result<Compiled, Error> {
    compile(lift_with(file, external, &options.lift)?, options)
}

/// Compiles a model that a front end made.
///
/// # Errors
/// The errors of the passes and backends.
pub fn compile(mut model: Model, options: &CompileOptions) -> Result<Compiled, Error> {
    let report = advance(&mut model, options, Stage::Final)?;
    let Emitted { program, external, debug } = emit(&model, &options.emit)?;
    Ok(Compiled { program, external, debug, report })
}

/// Runs the pipeline on a front end's model up to a stage.
///
/// # Errors
/// The errors of the passes and backends.
pub fn advance(model: &mut Model, options: &CompileOptions, stage: Stage) -> Result<Report, Error> {
    if !options.constant_methods.is_empty() {
        let constants = options.constant_methods.iter().map(|(name, _)| name);
        check_method_names(model.methods.keys().chain(constants).map(String::as_str))?;
    }
    for (name, values) in &options.constant_methods {
        let literals = values.iter().map(|value| value.literal(model)).collect();
        model.constant_methods.insert(name.clone(), literals);
    }
    if stage == Stage::Imported {
        return Ok(Report::default());
    }
    let (before, mut after) = (functional(), lowering(options.trusts_types));
    if !options.keep_nodes {
        after.extend(arranging());
    }
    let offered = before.len() + 1;
    let total = if stage == Stage::Canonical { offered } else { offered + 1 + after.len() };
    let mut steps = Steps { progress: &options.progress, done: 0, total: total as u64 };
    steps.report()?;
    steps.run(&before, model)?;
    let claims = canonicalize(model, options)?;
    steps.advance()?;
    if stage == Stage::Canonical {
        return Ok(Report::default());
    }
    let report = partition::extract(model, &options.backends, claims, &options.progress)?;
    steps.advance()?;
    steps.run(&after, model)?;
    Ok(report)
}

/// Brings a functional model to the canonical form, and returns the claims of the backends on it.
fn canonicalize(model: &mut Model, options: &CompileOptions) -> Result<Vec<Decided>, Error> {
    if options.backends.is_empty() {
        return settle(model, options, &options.passes, &mut Composites::default());
    }
    let mut composites = Composites::all();
    if !options.passes.is_empty() {
        // The composites are settled first without the user's passes, so that most of these run once.
        settle(&mut model.clone(), options, &[], &mut composites)?;
    }
    settle(model, options, &options.passes, &mut composites)
}

/// Offers the nodes to the backends, and decomposes composites that no backend claims, until none is left. Each round begins with
/// the functional model: the result is the same as if the canonical form had never had those composites.
///
/// Common subexpressions are merged before each round, so that a call may hide equal calls of other origins, which a later
/// round shows. After [`SINGLE_ROUNDS`], an operator with refused calls is decomposed everywhere, also where a backend claims
/// it. The number of rounds is thus at most that and the number of operators.
fn settle(
    model: &mut Model,
    options: &CompileOptions,
    passes: &[Box<dyn Pass>],
    composites: &mut Composites,
) -> Result<Vec<Decided>, Error> {
    let CompileOptions { backends, keep_nodes, progress, .. } = options;
    let functional = if backends.is_empty() { None } else { Some(model.clone()) };
    let mut rounds = 0;
    loop {
        decompose(model, |method, graph, node| composites.keeps(method, graph, node))?;
        run(&EliminateDeadCode, model)?;
        if !keep_nodes {
            run_all(&simplifying(), model, progress)?;
        }
        run_all(passes, model, progress)?;
        if backends.iter().any(|backend| backend.has_integer_interface()) {
            run_all(&[Box::new(IntegerInterface), Box::new(EliminateDeadCode)], model, progress)?;
        }
        let claims = partition::claim(model, backends, composites)?;
        match &functional {
            Some(functional) if exclude(composites, model, &claims, rounds < SINGLE_ROUNDS) => {
                model.clone_from(functional);
                rounds += 1;
            }
            _ => return Ok(claims),
        }
    }
}

/// Excludes from the canonical form the composites that no backend claimed; all calls of their operators unless `allows_single`.
/// Returns true if there are any.
fn exclude(composites: &mut Composites, model: &Model, claims: &[Decided], allows_single: bool) -> bool {
    let mut claimed: HashSet<&str> = HashSet::new();
    let mut left: Vec<(&str, &Graph, NodeId)> = Vec::new();
    for ((method, graph), decided) in model.methods.iter().zip(claims) {
        let kept = graph.live_blocks().into_iter().flat_map(|block| &graph.blocks[block].nodes);
        for node in kept.copied().filter(|node| composites.keeps(method, graph, *node)) {
            if decided.composites.contains(&node) {
                left.push((method, graph, node));
            } else {
                claimed.insert(graph.nodes[node].op.name());
            }
        }
    }
    let is_left = !left.is_empty();
    for (method, graph, node) in left {
        // An operator that no backend claimed anywhere goes at once, with the calls that other passes merged into this one.
        match graph.nodes[node].op.name() {
            name if allows_single && claimed.contains(name) => composites.decompose(method, graph, node),
            name => composites.decompose_all(name),
        }
    }
    is_left
}

/// The steps of a compilation. Their number is known before the first.
struct Steps<'a> {
    progress: &'a Progress,
    done: u64,
    total: u64,
}

impl Steps<'_> {
    fn run(&mut self, passes: &[Box<dyn Pass>], model: &mut Model) -> Result<(), Error> {
        for pass in passes {
            run(&**pass, model)?;
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.done += 1;
        self.report()
    }

    fn report(&self) -> Result<(), Error> {
        self.progress.report("compiling", self.done, self.total)
    }
}

/// Refuses duplicate and empty names of methods.
///
/// # Errors
/// `Output`, with the name.
pub fn check_method_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut before = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(Error::new(ErrorKind::Output, "a method without a name")
                .help("give it one: `NAME=FILE.pt2` or `--constant NAME=VALUE` on the command line"));
        }
        if !before.insert(name) {
            return Err(Error::new(ErrorKind::Output, format!("two methods are called `{name}`"))
                .expected("a name of its own for each method, those that return constants among them")
                .help("name the methods: `NAME=FILE.pt2` on the command line, keys of a dict in Python"));
        }
    }
    Ok(())
}

/// Runs the pipeline up to [`Stage::Canonical`], but keeps layers and these composite operators as one node each.
///
/// # Errors
/// The errors of the passes.
pub fn prepare_layers(model: &mut Model, composites: &[&str], progress: &Progress) -> Result<(), Error> {
    let mut passes = functional();
    let keep = composites.iter().map(|name| (*name).to_owned()).collect();
    passes.extend([Box::new(LowerComposites { keep }) as Box<dyn Pass>, Box::new(EliminateDeadCode)]);
    passes.extend([Box::new(UngroupExperts::default()) as Box<dyn Pass>, Box::new(RaiseExperts::default())]);
    passes.extend(simplifying());
    passes.push(Box::new(RaiseLinear));
    run_all(&passes, model, progress)
}

fn run_all(passes: &[Box<dyn Pass>], model: &mut Model, progress: &Progress) -> Result<(), Error> {
    passes.iter().try_for_each(|pass| progress.check().and_then(|()| run(&**pass, model)))
}

fn run(pass: &dyn Pass, model: &mut Model) -> Result<(), Error> {
    pass.run(model)?;
    // The pass that broke a graph is easiest to find if each result is verified.
    if cfg!(debug_assertions) {
        model.verify().map_err(|error| error.help(format!("pass `{}` broke it", pass.name())))?;
    }
    Ok(())
}

impl ConstantResult {
    fn literal(&self, model: &mut Model) -> Literal {
        match self {
            Self::Literal(literal) => literal.clone(),
            Self::Tensor(constant) => Literal::Tensor(model.constants.push(constant.clone())),
        }
    }
}

/// Passes from the front end's graph to a functional graph.
fn functional() -> Vec<Box<dyn Pass>> {
    vec![Box::new(Functionalise), Box::new(FreezeStates), Box::new(EliminateDeadCode)]
}

/// Passes that make the graph smaller.
fn simplifying() -> Vec<Box<dyn Pass>> {
    vec![
        Box::new(FoldBatchNorms),
        Box::new(FoldConstants::default()),
        Box::new(MergeConstants),
        Box::new(MergeCommonSubexpressions),
        Box::new(EliminateDeadCode),
    ]
}

/// Passes from the canonical form to the form that the emitter writes. They decompose the composites of parts that backends
/// claimed and could not compile.
fn lowering(trusts_types: bool) -> Vec<Box<dyn Pass>> {
    let mut passes: Vec<Box<dyn Pass>> = vec![Box::new(LowerComposites::default()), Box::new(CheckOperators)];
    if !trusts_types {
        passes.push(Box::new(CheckTypes));
    }
    passes.extend([Box::new(LowerSymbolicSizes) as Box<dyn Pass>, Box::new(EliminateDeadCode)]);
    passes
}

/// Passes that reduce planned memory or copies.
fn arranging() -> Vec<Box<dyn Pass>> {
    vec![Box::new(AssignDimOrders), Box::new(ReorderNodes)]
}
