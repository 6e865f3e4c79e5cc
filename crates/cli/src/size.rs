//! `rushlight size`.

use clap::Args;
use rushlight::Lower;
use rushlight::runtime::MemoryUse;
use serde_json::json;

use crate::arguments::{MemoryLimit, Method, Model};
use crate::failure::Failure;
use crate::firmware;
use crate::output;

/// Shows the bytes that a method takes, and the Rust static that provides them.
#[derive(Args)]
pub struct Size {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    limit: MemoryLimit,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Size {
    pub fn run(self) -> Result<(), Failure> {
        let mut module = self.model.load_with(|builder| self.limit.add_to(builder.lower(Lower::Off)))?;
        firmware::check(&self.model.model, module.program())?;
        let method = self.method.choose(&module)?;
        let host = module.method(&method)?.memory_use();
        let small = module.method(&method)?.memory_use_on_32_bit();
        let file = module.program().parsed().bytes().len() as u64;
        if self.json {
            let json =
                |m: MemoryUse| json!({ "method": m.method, "planned": m.planned, "temp": m.temp, "total": m.total });
            output::print_json(&json!({ "file": file, "host": json(host), "32-bit": json(small) }));
            return Ok(());
        }
        let row = |name: &str, part: fn(&MemoryUse) -> usize| {
            vec![name.to_owned(), part(&small).to_string(), part(&host).to_string()]
        };
        let rows = [
            row("method (values, tensors, steps)", |m| m.method),
            row("planned arenas (activations)", |m| m.planned),
            row("temporary memory", |m| m.temp),
            row("all, with padding", |m| m.total),
        ];
        output::print(&output::table(&["RAM, bytes", "32-bit ", "this machine "], rows));
        output::print(&format!("flash for the program: {file} bytes\n"));
        output::print(&format!("static ARENA: rushlight::Arena<{}> = rushlight::Arena::new();", small.total));
        Ok(())
    }
}
