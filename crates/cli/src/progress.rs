//! Progress bars on a terminal, and cancellation by Ctrl-C.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rushlight::{Progress, ProgressListener};
use rushlight_devtools::units::duration;

use crate::failure::Failure;
use crate::stderr::{BARS, to_stderr};

/// The amount of output beside results and errors.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Verbosity {
    /// Print results and errors only: no progress, summaries and warnings
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 990)]
    quiet: bool,

    /// Also print the time of each stage, and which operators and backends run a program
    #[arg(long, short, global = true, display_order = 991)]
    verbose: bool,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

impl Verbosity {
    /// Sets the verbosity of the process.
    pub fn apply(self) {
        VERBOSITY.get_or_init(|| self);
    }
}

/// True if only results and errors are printed.
pub fn is_quiet() -> bool {
    VERBOSITY.get().is_some_and(|verbosity| verbosity.quiet)
}

/// True if times of stages are printed.
pub fn is_verbose() -> bool {
    VERBOSITY.get().is_some_and(|verbosity| verbosity.verbose)
}

/// True once Ctrl-C was pressed.
static IS_CANCELLED: AtomicBool = AtomicBool::new(false);

/// True if Ctrl-C cancelled the work.
pub fn is_cancelled() -> bool {
    IS_CANCELLED.load(Ordering::Relaxed)
}

/// Exit code of a program that is ended by Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Time for the work to end, and to remove its partial output, after Ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// Minimum duration of work that shows a bar.
const WORTH_A_BAR: Duration = Duration::from_millis(500);

/// A progress bar on standard error for work of a known length. It is drawn on a terminal only.
pub fn bar(len: u64, unit: &str) -> ProgressBar {
    styled(ProgressBar::new(len), &format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left"))
}

/// A line on standard error about the current work. It is drawn on a terminal only.
pub fn spinner() -> ProgressBar {
    styled(ProgressBar::new_spinner(), "{spinner} {msg}")
}

/// True if standard error is a terminal and output is not quiet.
fn shows_bars() -> bool {
    !is_quiet() && io::stderr().is_terminal()
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if !shows_bars() {
        return ProgressBar::hidden();
    }
    let bar = BARS.add(bar);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Reports the progress of a compilation or other work in stages, and cancels it when Ctrl-C is pressed.
pub struct Follower(Arc<Stages>);

/// The state of a [`Follower`], which the work reports to.
struct Stages {
    began: Instant,
    current: Mutex<Option<Stage>>,
}

struct Stage {
    name: &'static str,
    began: Instant,
    done: u64,
    total: u64,
    bar: Option<ProgressBar>,
}

impl Follower {
    /// Starts to follow. The work must end within [`GRACE`] after Ctrl-C.
    pub fn start() -> Result<Self, Failure> {
        let end = || {
            if !IS_CANCELLED.swap(true, Ordering::Relaxed) {
                std::thread::sleep(GRACE);
            }
            std::process::exit(INTERRUPTED.into());
        };
        let failed = |error| Failure::Other(format!("Ctrl-C cannot be watched: {error}"));
        ctrlc::set_handler(end).map_err(failed)?;
        Ok(Self::watch())
    }

    /// Starts to follow, without an end by Ctrl-C: that ends the process at once.
    pub fn watch() -> Self {
        let stages = Arc::new(Stages { began: Instant::now(), current: Mutex::new(None) });
        if shows_bars() {
            let watched = Arc::downgrade(&stages);
            // Draws the bar of a step that reports nothing for longer.
            std::thread::spawn(move || {
                std::thread::sleep(WORTH_A_BAR);
                if let Some(stages) = watched.upgrade() {
                    stages.current().as_mut().map(Stage::draw);
                }
            });
        }
        Self(stages)
    }

    /// The handle that the work reports to.
    pub fn progress(&self) -> Progress {
        Progress::new(self.0.clone())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(stage) = self.0.current().take() {
            stage.end();
        }
    }
}

impl Stages {
    fn current(&self) -> MutexGuard<'_, Option<Stage>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    fn draw(&mut self) {
        let Self { name, done, total, .. } = *self;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total).with_message(name);
            styled(bar, "{msg:<18} {bar:30} {percent:>3} %, {eta} left")
        });
        bar.set_position(done);
        // This call draws the bar.
        bar.set_length(total);
    }

    fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        if is_verbose() {
            to_stderr(&format!("{:<18} {}", self.name, duration(self.began.elapsed())));
        }
    }
}

impl ProgressListener for Stages {
    fn report(&self, name: &'static str, done: u64, total: u64) {
        let mut current = self.current();
        if let Some(last) = current.take_if(|stage| stage.name != name) {
            last.end();
        }
        let stage = current.get_or_insert_with(|| Stage { name, began: Instant::now(), done, total, bar: None });
        (stage.done, stage.total) = (done, total);
        if self.began.elapsed() > WORTH_A_BAR {
            stage.draw();
        }
    }

    fn is_cancelled(&self) -> bool {
        is_cancelled()
    }
}
