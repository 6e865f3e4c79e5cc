//! The book of `docs`: mdBook makes the pages, pdoc the reference for Python.

use std::path::Path;

use anyhow::Result;

use crate::command::{command, root, run};
use crate::setup::{self, book_python, mdbook, venv_python};

/// Builds it from nothing: the package is imported for the reference.
pub fn chore() -> Result<()> {
    setup::one("book")?;
    run(&mut command("cargo", &["build", "--quiet", "--release", "-p", "rushlight-python"]))?;
    let package = "target/book-package";
    setup::assemble(venv_python(), "release", Path::new(package))?;
    build(package)
}

/// Builds it with a package of Python that is put together.
pub fn build(package: &str) -> Result<()> {
    run(&mut command(mdbook(), &["build", "docs"]))?;
    let mut reference = command(book_python(), &["tools/python_reference.py", "target/book/python"]);
    run(reference.env("PYTHONPATH", root().join(package)))
}
