//! Rushlight's reference operators in a process of their own, which holds one program at a time as ExecuTorch's does: what
//! else a process holds decides which physical pages its tensors get. The commands are `load` and `time` of
//! `executorch/worker.cpp`.

use std::io::{BufRead as _, Lines, StdinLock};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{ours, serve};

/// Answers commands until there are no more.
pub fn run() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let mut next = lines.next().transpose()?;
    while let Some(line) = next {
        next = match answer(&line, &mut lines) {
            Ok(next) => next,
            Err(reason) => {
                serve::refuse(&reason);
                lines.next().transpose()?
            }
        };
    }
    Ok(())
}

/// Loads a program, and times it until there is another command; that one.
fn answer(line: &str, lines: &mut Lines<StdinLock<'_>>) -> Result<Option<String>> {
    let ["load", program, inputs] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("no command {line}, or nothing is loaded");
    };
    let program = std::fs::read(program)?;
    let inputs = ours::inputs(&program, &std::fs::read(inputs)?)?;
    ours::with_session(&program, &inputs, |session| {
        println!("ok");
        for line in lines {
            let line = line?;
            let ["time", calls, at_least] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return Ok(Some(line));
            };
            println!("{}", session.time(calls.parse()?, Duration::from_nanos(at_least.parse()?))?);
        }
        Ok(None)
    })
}
