//! Standard error, which progress bars share with other output.

use std::io::Write;
use std::sync::LazyLock;

use indicatif::MultiProgress;

/// All bars, so that other output is written above them.
pub static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Writes a line to standard error.
pub fn to_stderr(text: &str) {
    // If standard error is closed or full, there is nowhere to report that.
    drop(BARS.suspend(|| writeln!(anstream::stderr(), "{text}")));
}
