//! Where the time goes, as `run` and `bench` print it.

use clap::Args;
use rushlight_devtools::breakdown::{Breakdown, InstructionTime, place};

use crate::output;

#[derive(Args)]
pub struct Profile {
    /// Print how long each operator took, and which instructions took longest
    #[arg(long)]
    pub profile: bool,

    /// With --profile: how many of the slowest instructions to list
    #[arg(long, default_value_t = 10, value_name = "N")]
    slowest: usize,
}

impl Profile {
    /// Prints the time of each operator and of the slowest instructions, the most expensive first.
    pub fn print(&self, breakdown: &Breakdown) {
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        let rows = breakdown.operators.iter().map(|part| {
            vec![part.name.clone(), part.calls.to_string(), output::duration(part.time), share(part.share)]
        });
        output::print(&format!("\n{}", output::table(&["operator", "calls ", "time ", "share "], rows)));
        let slowest = breakdown.slowest(self.slowest);
        if !slowest.is_empty() {
            let row = |row: &&InstructionTime| {
                let origin = row.origin.as_ref();
                let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                vec![
                    row.instruction.to_string(),
                    row.part.name.clone(),
                    output::duration(row.part.time),
                    share(row.part.share),
                    text(origin.map(|origin| origin.node.as_str())),
                    text(origin.map(|origin| origin.module.as_str())),
                    text(origin.map(place)),
                ]
            };
            let header = ["instruction ", "operator", "time ", "share ", "node", "module", "source"];
            output::print(&format!("\n{}", output::table(&header, slowest.iter().map(row))));
        }
        output::print(&format!("one execution: {}", output::duration(breakdown.execution)));
    }
}
