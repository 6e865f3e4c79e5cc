//! Rushlight in a process of its own, as users have it: the facade's `Module`. The commands are those of the peers
//! (`executorch/worker.cpp`), and `lowering`: how long that took, in nanoseconds.

use std::io::BufRead as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rushlight::{Module, ScalarType, Tensor, Value};

use crate::interleaved::timed;
use crate::resident;

/// Answers commands until there are no more.
pub fn run() -> Result<()> {
    let mut session = None;
    for line in std::io::stdin().lock().lines() {
        match answer(&mut session, &line?) {
            Ok(answer) => println!("{answer}"),
            Err(reason) => refuse(&reason),
        }
    }
    Ok(())
}

/// Answers a command that failed.
pub fn refuse(reason: &anyhow::Error) {
    println!("error {}", format!("{reason:#}").replace('\n', " "));
}

fn answer(session: &mut Option<Session>, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let ["open", program, threads, input, sizes] = words[..] {
        *session = None;
        let input = tensor(input, sizes)?;
        resident::forget_peak()?;
        let before = resident::now()?;
        let start = Instant::now();
        let mut module = Module::builder().threads(threads.parse()?).load(program).map_err(|e| error(&e))?;
        module.load_method("forward").map_err(|e| error(&e))?;
        let loaded = start.elapsed();
        let mut opened = Session { module, input };
        let executed = opened.time()?;
        *session = Some(opened);
        let added = resident::peak()?.saturating_sub(before);
        return Ok(format!("{} {} {added}", loaded.as_nanos(), executed.as_nanos()));
    }
    let session = session.as_mut().context("nothing is open")?;
    match words[..] {
        ["input", input, sizes] => session.input = tensor(input, sizes)?,
        ["time", calls, at_least] => {
            let at_least = Duration::from_nanos(at_least.parse()?);
            return Ok(timed(calls.parse()?, at_least, || session.time())?.to_string());
        }
        ["outputs", file] => std::fs::write(file, session.execute()?.as_tensor().map_err(|e| error(&e))?.bytes())?,
        ["lowering"] => return session.lowering(),
        _ => bail!("no command {line}"),
    }
    Ok("ok".to_owned())
}

struct Session {
    module: Module,
    input: Tensor,
}

impl Session {
    fn execute(&mut self) -> Result<Value> {
        let input = (&self.input).try_into().map_err(|e| error(&e))?;
        let outputs = self.module.forward(&[input]).map_err(|e| error(&e))?;
        outputs.into_iter().next().context("the program gives nothing")
    }

    fn time(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.execute()?;
        Ok(start.elapsed())
    }

    /// Fails with the reason if the program runs on the reference operators.
    fn lowering(&mut self) -> Result<String> {
        if let Err(reason) = self.module.report() {
            bail!("it was not lowered: {reason}");
        }
        let time = self.module.lowering_time().context("it was not lowered")?;
        Ok(time.as_nanos().to_string())
    }
}

fn tensor(file: &str, sizes: &str) -> Result<Tensor> {
    let sizes: Vec<usize> = sizes.split('x').map(str::parse).collect::<Result<_, _>>()?;
    let bytes = std::fs::read(Path::new(file)).with_context(|| file.to_owned())?;
    Tensor::from_bytes(ScalarType::Float, &sizes, &bytes).map_err(|e| error(&e))
}

fn error(error: &rushlight::Error) -> anyhow::Error {
    anyhow!("{error}")
}
