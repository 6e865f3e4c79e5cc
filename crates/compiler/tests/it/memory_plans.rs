//! Plans of real programs: the buffers that ExecuTorch planned, found again in its files, planned by Rushlight.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rushlight_compiler::memory::{Conflict, Recovered, check, lower_bound, plan, recover};
use rushlight_format::Program;

/// Files whose plans are wrong, and why.
const OVERLAPPING: &[(&str, &str)] = &[(
    "cond_on_size",
    "ExecuTorch plans the result of a branch apart from the tensor that is moved into it, and then puts a constant over \
     that tensor before it is read",
)];

#[derive(Default)]
struct Totals {
    methods: usize,
    /// Bytes of the arenas in the files.
    theirs: u64,
    ours: u64,
    bound: u64,
    elapsed: Duration,
}

/// A folder whose plans are not compared, with the reason.
const NOT_COMPARED: (&str, &str) = (
    "1.5.1-cortex-m",
    "operators have scratch memory, which no instruction writes, so that it counts as an input of the method",
);

impl Totals {
    /// Plans each method of a file, checks both plans and prints a line.
    fn add(&mut self, path: &Path) {
        let file = std::fs::read(path).unwrap();
        let Ok(program) = Program::parse(&file) else { return };
        let (folder, reason) = NOT_COMPARED;
        if path.parent().is_some_and(|parent| parent.ends_with(folder)) {
            println!("{}: skipped: {reason}", path.display());
            return;
        }
        for method in program.methods() {
            let Recovered { buffers, plan: theirs, .. } = recover(&method);
            let name = format!("{} {}", path.display(), method.name());
            let verdict = check(&buffers, &theirs);
            if let Some((_, reason)) =
                OVERLAPPING.iter().find(|(model, _)| path.parent().is_some_and(|p| p.ends_with(model)))
            {
                assert!(matches!(verdict, Err(Conflict::Overlap { .. })), "{name}: {verdict:?}");
                println!("{name}: skipped: {reason}");
                continue;
            }
            assert_eq!(verdict, Ok(()), "{name}");
            let start = Instant::now();
            let ours = plan(&buffers).unwrap();
            self.elapsed += start.elapsed();
            assert_eq!(check(&buffers, &ours), Ok(()), "{name}");
            assert!(ours.total() <= theirs.total(), "{name}: {} bytes, in the file {}", ours.total(), theirs.total());
            let bound: u64 = lower_bound(&buffers).values().sum();
            println!(
                "{name}: {} buffers, file {}, plan {}, bound {bound}",
                buffers.len(),
                theirs.total(),
                ours.total()
            );
            self.methods += 1;
            self.theirs += theirs.total();
            self.ours += ours.total();
            self.bound += bound;
        }
    }

    fn print(&self) {
        let Self { methods, theirs, ours, bound, elapsed } = self;
        println!("{methods} methods: files {theirs}, plans {ours}, bound {bound}, planned in {elapsed:?}");
    }
}

/// The `.pte` files below a folder.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(programs(&path));
        } else if path.extension().is_some_and(|extension| extension == "pte") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_corpus_needs_no_more_than_its_files_take() {
    let mut totals = Totals::default();
    for path in programs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")) {
        totals.add(&path);
    }
    totals.print();
    assert!(totals.methods >= 10, "only {} methods", totals.methods);
}

/// The folder is `target/models`, or the one that RUSHLIGHT_MODELS names. RUSHLIGHT_MIN_PROGRAMS is the number of programs
/// that must be there.
#[test]
#[ignore = "needs the generated models"]
fn whole_models_need_no_more_than_their_files_take() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models");
    let models = std::env::var_os("RUSHLIGHT_MODELS").map_or(default, PathBuf::from);
    let mut totals = Totals::default();
    for path in programs(&models) {
        totals.add(&path);
    }
    totals.print();
    let least = std::env::var("RUSHLIGHT_MIN_PROGRAMS").map_or(28, |least| least.parse().expect("a number"));
    assert!(totals.methods >= least, "only {} methods", totals.methods);
}
