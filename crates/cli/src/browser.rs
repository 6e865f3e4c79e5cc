//! Pages in the user's browser.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Makes a folder for pages among the temporary files. No other program has made it before.
pub fn new_folder() -> Result<PathBuf, Failure> {
    let mut count = 0;
    loop {
        let folder = std::env::temp_dir().join(format!("rushlight-{}-{count}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => count += 1,
            Err(error) => return Err(Failure::make(&folder, error)),
        }
    }
}

/// Opens a file in the browser of the environment variable `BROWSER`, or else in that of the system. Does not wait for it.
pub fn open(file: &Path) -> Result<(), Failure> {
    let (program, arguments): (OsString, &[&str]) = match std::env::var_os("BROWSER").filter(|name| !name.is_empty()) {
        Some(browser) => (browser, &[]),
        None if cfg!(windows) => ("rundll32".into(), &["url.dll,FileProtocolHandler"]),
        None if cfg!(target_os = "macos") => ("open".into(), &[]),
        None => ("xdg-open".into(), &[]),
    };
    let mut command = Command::new(&program);
    command.args(arguments).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| {
        Failure::Other(format!(
            "cannot start the browser `{}`: {error}\n  help      name one in the environment variable BROWSER, or open `{}` yourself",
            program.to_string_lossy(),
            file.display()
        ))
    })
}
