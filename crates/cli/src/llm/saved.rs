//! Saved conversations, as JSON, and saved sessions: the tokens that a model has read, with their KV cache.

use std::io::{self, ErrorKind};
use std::path::Path;

use rushlight_llm::{Error, Message, Model, Session};
use serde_json::{Value as Json, json};

use crate::failure::Failure;
use crate::output;

/// Reads the messages that [`write_messages`] wrote, or a client of OpenAI's API.
pub fn read_messages(path: &Path) -> Result<Vec<Message>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, error))?;
    let message = |message: &Json| {
        let field = |name: &str| message.get(name).and_then(Json::as_str);
        Some(Message::new(field("role")?, field("content")?))
    };
    let messages = serde_json::from_str::<Vec<Json>>(&text).ok();
    let messages = messages.and_then(|messages| messages.iter().map(message).collect::<Option<Vec<_>>>());
    messages.ok_or_else(|| {
        Failure::Input(format!(
            "`{}` is no saved conversation\n  expected  a list of messages with `role` and `content`, as `--save` writes it",
            path.display()
        ))
    })
}

/// Writes messages. On failure, the file keeps its old contents.
pub fn write_messages<'m>(path: &Path, messages: impl Iterator<Item = &'m Message>) -> Result<(), rushlight::Error> {
    let messages: Vec<Json> =
        messages.map(|Message { role, content }| json!({ "role": role, "content": content })).collect();
    rushlight::write_file(path, format!("{:#}\n", json!(messages)).as_bytes())
}

/// Continues the session of a file. Returns false if there is no such file.
pub fn restore(path: &Path, model: &Model, session: &mut Session) -> Result<bool, Failure> {
    let Some(bytes) = read(path)? else { return Ok(false) };
    match session.restore(model, &bytes) {
        Ok(()) => Ok(true),
        Err(error) => Err(not_restored(path, &error)),
    }
}

/// As [`restore`], for a cache: one of another program or adapter, or of a longer context, is left alone and said to be of no use.
pub fn restore_cache(path: &Path, model: &Model, session: &mut Session) -> Result<(), Failure> {
    let Some(bytes) = read(path)? else { return Ok(()) };
    match session.restore(model, &bytes) {
        Ok(()) => Ok(()),
        Err(Error::OtherProgram | Error::OtherAdapter) => {
            let path = path.display();
            output::note(&format!("`{path}` was written with another model or adapter, and is replaced"));
            Ok(())
        }
        Err(Error::ContextFull { .. }) => {
            output::note(&format!("`{}` is longer than the context, and is replaced", path.display()));
            Ok(())
        }
        Err(error) => Err(not_restored(path, &error)),
    }
}

/// Writes a session. On failure, the file keeps its old contents.
pub fn save(path: &Path, session: &mut Session) -> Result<(), Failure> {
    Ok(rushlight::write_file(path, &session.save()?)?)
}

/// The bytes of a saved session; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let regular = |metadata: std::fs::Metadata| {
        let kind = || io::Error::new(ErrorKind::InvalidInput, "expected a regular file");
        metadata.is_file().then_some(()).ok_or_else(kind)
    };
    match std::fs::metadata(path).and_then(regular).and_then(|()| std::fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::read(path, error)),
    }
}

fn not_restored(path: &Path, error: &Error) -> Failure {
    let path = path.display();
    Failure::Input(match error {
        Error::NoSession => {
            format!("`{path}` is no saved session, or is damaged\n  help      remove it, or name another file")
        }
        error => format!("`{path}`: {error}"),
    })
}
