//! Coverage-guided fuzzing: libFuzzer with the address sanitizer, without cargo-fuzz.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{command, nightly_host, root, run};

/// A target, and the folders of the corpus with files that it reads, by their ending.
type Target = (&'static str, &'static [&'static str], &'static str);

const TARGETS: &[Target] = &[
    ("pte", PROGRAMS, "pte"),
    ("ptd", PROGRAMS, "ptd"),
    ("bundled", PROGRAMS, "bpte"),
    ("execute", PROGRAMS, "pte"),
    ("lift", PROGRAMS, "pte"),
    ("cpu_payload", &[], ""),
    ("vulkan", &[], ""),
    ("xnnpack", &[], ""),
    ("cache", &[], ""),
    ("pt2", &["pt2"], "pt2"),
    ("import", &[], ""),
    ("pickle", &[], ""),
    ("gguf", &[], ""),
    ("checkpoint", &[], ""),
    ("adapter", &[], ""),
    ("text", &[], ""),
    ("npy", &[], ""),
    ("npz", &[], ""),
    ("image", &[], ""),
    ("tokenizer", &[], ""),
    ("chat_template", &[], ""),
    ("session", &[], ""),
    ("request", &[], ""),
    ("grammar", &[], ""),
];

const PROGRAMS: &[&str] = &["0.2.0", "0.7.0", "1.5.1", "1.5.1-vulkan", "1.5.1-xnnpack"];

/// Flags that cargo-fuzz passes: counters and comparisons for libFuzzer, and the address sanitizer.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16 -Cforce-frame-pointers";

/// The task for each target, from the second argument: `90` for seconds, `1000000x` for executions, or `minimise`.
#[derive(Clone, Copy)]
enum Task {
    Seconds(u64),
    Executions(u64),
    Minimise,
}

impl Task {
    const DEFAULT: Self = Self::Seconds(60);

    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('x') {
            _ if text == "minimise" => Some(Self::Minimise),
            Some(executions) => executions.parse().ok().map(Self::Executions),
            None => text.parse().ok().map(Self::Seconds),
        }
    }

    /// The flag of libFuzzer that ends a run.
    fn end(self) -> String {
        match self {
            Self::Seconds(seconds) => format!("-max_total_time={seconds}"),
            Self::Executions(executions) => format!("-runs={executions}"),
            Self::Minimise => "-merge=1".to_owned(),
        }
    }
}

/// Options of the address sanitizer: shorter stacks of allocations, and less freed memory that is kept. Both take much of the time of
/// executions as short as these.
const SANITIZER: &str = "malloc_context_size=2:quarantine_size_mb=16";

/// Limits of one input: seconds, and memory in MiB. Memory of libFuzzer and the sanitizer counts.
const LIMITS: [&str; 3] = ["-timeout=5", "-rss_limit_mb=2048", "-malloc_limit_mb=1024"];

/// Maximum bytes of an input. Larger ones hold no more kinds of parts than small ones, and take as many times longer.
fn max_len(name: &str) -> &'static str {
    match name {
        // The work of a grammar grows faster than its length.
        "grammar" => "-max_len=256",
        "session" => "-max_len=256",
        "chat_template" => "-max_len=2048",
        "tokenizer" | "request" => "-max_len=4096",
        "pte" | "execute" | "lift" | "vulkan" | "adapter" | "checkpoint" | "gguf" | "npz" => "-max_len=8192",
        "import" => "-max_len=16384",
        _ => "-max_len=65536",
    }
}

/// Runs all targets, or one, for some seconds or executions each. With `minimise` instead, keeps in `fuzz/seeds` the fewest
/// inputs that reach what all found so far reach.
pub fn fuzz(arguments: &[&str]) -> Result<()> {
    let (names, task) = match arguments {
        [] => (all(), Task::DEFAULT),
        [one] => match Task::parse(one) {
            Some(task) => (all(), task),
            None => (named(one)?, Task::DEFAULT),
        },
        [name, task] => (
            named(name)?,
            Task::parse(task).with_context(|| {
                format!("expected seconds, executions as in `1000000x`, or `minimise`, got `{task}`")
            })?,
        ),
        _ => bail!("usage: cargo xtask fuzz [target|all] [seconds|executions `x`|minimise]"),
    };
    let programs = build(&names)?;
    let mut report = Vec::new();
    for target in names {
        let program = programs.join(target.0);
        match task {
            Task::Minimise => minimise(&program, target)?,
            _ => report.push(one(&program, target, task)?),
        }
    }
    println!("{}", report.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>().join("\n"));
    let failed = report.iter().filter(|(_, good)| !good).count();
    if failed > 0 {
        bail!("{failed} targets found something: target/fuzz/artifacts has the inputs");
    }
    Ok(())
}

fn all() -> Vec<&'static Target> {
    TARGETS.iter().collect()
}

/// The target of a name, or all for `all`.
fn named(name: &str) -> Result<Vec<&'static Target>> {
    if name == "all" { Ok(all()) } else { Ok(vec![target(name)?]) }
}

fn target(name: &str) -> Result<&'static Target> {
    TARGETS.iter().find(|(known, ..)| *known == name).with_context(|| {
        let names: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
        format!("unknown target `{name}`: {}", names.join(", "))
    })
}

/// Builds targets. Returns the folder with the programs.
fn build(targets: &[&Target]) -> Result<PathBuf> {
    let host = nightly_host()?;
    let mut build = command("cargo", &["+nightly", "build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    build.args(["--target", &host, "--target-dir", "target/fuzz"]).env("RUSTFLAGS", FLAGS);
    for (name, ..) in targets {
        build.args(["--bin", name]);
    }
    run(&mut build)?;
    Ok(root().join("target/fuzz").join(host).join("release"))
}

/// Folders of a target, which are made if they are missing: what was found, and where failing inputs go.
fn folders(name: &str) -> Result<[PathBuf; 2]> {
    let folders = ["corpus", "artifacts"].map(|kind| root().join("target/fuzz").join(kind).join(name));
    for folder in &folders {
        fs::create_dir_all(folder)?;
    }
    Ok(folders)
}

/// The inputs in the repository: the seeds, and files of the corpus.
fn seeds((name, generations, ending): &Target) -> Result<Vec<PathBuf>> {
    let mut folders = vec![root().join("fuzz/seeds").join(name)];
    folders.retain(|folder| folder.exists());
    if !generations.is_empty() {
        // libFuzzer takes folders whole, and the corpus also has files of other kinds.
        let copy = root().join("target/fuzz/given").join(name);
        fs::create_dir_all(&copy)?;
        for generation in *generations {
            for file in fs::read_dir(root().join("tests/corpus").join(generation))?.flatten() {
                if file.path().extension().is_some_and(|extension| extension == *ending) {
                    fs::copy(file.path(), copy.join(format!("{generation}-{}", file.file_name().to_string_lossy())))?;
                }
            }
        }
        folders.push(copy);
    }
    Ok(folders)
}

/// Runs one target. Returns a line of the table, and whether nothing was found.
fn one(program: &Path, target: &Target, task: Task) -> Result<(String, bool)> {
    let name = target.0;
    let [corpus, artifacts] = folders(name)?;
    let mut fuzzer = Command::new(program);
    fuzzer.arg(&corpus).args(seeds(target)?).args(LIMITS).current_dir(root()).stdin(Stdio::null());
    fuzzer.arg(task.end()).arg(format!("-artifact_prefix={}/", artifacts.display()));
    let dictionary = root().join("fuzz/dictionaries").join(format!("{name}.dict"));
    if dictionary.exists() {
        fuzzer.arg(format!("-dict={}", dictionary.display()));
    }
    let log = artifacts.with_extension("log");
    // The entropic schedule costs more than it finds for inputs as small as these.
    fuzzer
        .args([max_len(name), "-entropic=0", "-print_final_stats=1"])
        .env("ASAN_OPTIONS", SANITIZER)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?);
    println!("{name}: {}, {}", task.end(), log.display());
    let status = fuzzer.status().with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let figures: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("stat::")?.split_once(':'))
        .map(|(key, value)| (key, value.trim()))
        .collect();
    let figure = |key: &str| figures.get(key).copied().unwrap_or("?");
    let found = if status.success() { "nothing".to_owned() } else { format!("FOUND, see {}", log.display()) };
    let (runs, peak) = (figure("number_of_executed_units"), figure("peak_rss_mb"));
    let edges = edges(&text).unwrap_or("?");
    Ok((format!("{name:<13} {runs:>12} executions  {edges:>6} edges  {peak:>6} MiB  {found}"), status.success()))
}

/// The number of edges that a run covered, from the last line of its log that has one.
fn edges(log: &str) -> Option<&str> {
    log.lines().rev().find_map(|line| line.split_once(" cov: ")?.1.split_whitespace().next())
}

fn minimise(program: &Path, target: &Target) -> Result<()> {
    let [corpus, artifacts] = folders(target.0)?;
    let smallest = root().join("target/fuzz/smallest").join(target.0);
    if smallest.exists() {
        fs::remove_dir_all(&smallest)?;
    }
    fs::create_dir_all(&smallest)?;
    let mut merge = command(program, &["-merge=1", max_len(target.0), "-rss_limit_mb=2048"]);
    merge.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&smallest).args(seeds(target)?).arg(&corpus);
    run(&mut merge)?;
    let seeds = root().join("fuzz/seeds").join(target.0);
    if seeds.exists() {
        fs::remove_dir_all(&seeds)?;
    }
    fs::create_dir_all(&seeds)?;
    // Small inputs first, up to a size that a repository can bear; the files of the corpus are there already.
    let given: Vec<Vec<u8>> = given(target)?;
    let mut files: Vec<(u64, PathBuf)> = fs::read_dir(&smallest)?
        .flatten()
        .filter_map(|file| Some((file.metadata().ok()?.len(), file.path())))
        .collect();
    files.sort();
    let mut left = SEEDS;
    for (size, file) in files {
        if size > left || given.contains(&fs::read(&file)?) {
            continue;
        }
        left -= size;
        let name = file.file_name().context("a file has a name")?;
        fs::copy(&file, seeds.join(name))?;
    }
    Ok(())
}

/// Bytes of the seeds of one target.
const SEEDS: u64 = 60_000;

fn given(target: &Target) -> Result<Vec<Vec<u8>>> {
    if target.1.is_empty() {
        return Ok(Vec::new());
    }
    let folder = root().join("target/fuzz/given").join(target.0);
    fs::read_dir(folder)?.flatten().map(|file| Ok(fs::read(file.path())?)).collect()
}
