//! Talks to a language model: `cargo run --release`. An empty line ends the program.

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::ops::ControlFlow;
use std::path::Path;

use rushlight_llm::{Generation, Message, Model, Tokenizer, generate};

fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new("model.pte");
    let mut model = Model::load(path)?;
    let tokenizer = Tokenizer::of_model(model.module().program(), Some(path))?;
    let template = tokenizer.chat_template()?.ok_or("the model has no chat template")?;
    let mut session = model.session()?;
    let mut messages = Vec::new();
    loop {
        print!("> ");
        stdout().flush()?;
        let mut question = String::new();
        if stdin().read_line(&mut question)? == 0 || question.trim().is_empty() {
            return Ok(());
        }
        messages.push(Message::new("user", question.trim()));
        let prompt = tokenizer.encode(&template.render(&messages, true)?, false)?;
        // The session has read the earlier messages, and reads only the new one.
        let known = session.keep_common_prefix(&mut model, &prompt)?;
        let options = Generation { max_new_tokens: Some(500), ..Generation::default() };
        let mut answer = String::new();
        generate(&mut model, &mut session, &tokenizer, &prompt[known..], &options, |piece| {
            answer.push_str(piece);
            print!("{piece}");
            // An answer that cannot be shown ends.
            if stdout().flush().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        println!();
        messages.push(Message::new("assistant", &answer));
    }
}
