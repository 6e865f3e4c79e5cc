//! `rushlight llm serve`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rushlight_llm::{Adapter, Model};
use rushlight_llm_server::{Error, Handled, Options, Origin, serve};

use super::generation::{self, PoolingChoice, Template, TextModel};
use crate::failure::Failure;
use crate::output;
use crate::progress::is_verbose;

/// Serves a model over HTTP with OpenAI's API.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm serve llama.pte
  rushlight llm serve Qwen3-0.6B/ --quantize 8da4w --ctx 8192
  rushlight llm serve llama.pte --lora-module poet=adapters/poet --lora-module clerk=adapters/clerk
  rushlight llm serve llama.pte --port 8000 --name llama-3.2-1b --sessions 8
  curl http://localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'

A page to chat with is at http://localhost:8080. Routes: /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/models,
/tokenize, /detokenize, /health, /metrics. Sampling options say what requests leave open.")]
pub struct Serve {
    #[command(flatten)]
    model: TextModel,

    /// The address to listen on, or its name; 0.0.0.0 is reachable from other machines
    #[arg(long, value_name = "IP|NAME", env = "RUSHLIGHT_HOST", default_value = "127.0.0.1")]
    host: String,

    /// The port to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", env = "RUSHLIGHT_PORT", default_value_t = 8080)]
    port: u16,

    /// Name of the model in requests; by default the name of its file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A LoRA adapter, with the name by which requests choose it; may be repeated. Compile the model with `--lora-rank`
    #[arg(long, value_name = "NAME=FOLDER", value_parser = named_folder)]
    lora_module: Vec<(String, PathBuf)>,

    /// A key, one of which clients must send; may be repeated. Other users of the machine can see it: RUSHLIGHT_API_KEY
    /// is also a key
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,

    /// A name of this server, which requests may have in `Host`; may be repeated. Without keys, only these, `localhost`
    /// and addresses are accepted: another site could point its own name here, and its pages would read the answers
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,

    /// An origin whose web pages may send requests, such as `https://app.example`; may be repeated, and `*` stands for all
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<Origin>,

    /// Maximum number of answers at a time, each with its own KV cache
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    sessions: u16,

    /// Maximum number of waiting requests
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: usize,

    /// Maximum size of a request in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    max_body: usize,

    /// Maximum number of connections at a time; others wait
    #[arg(long, value_name = "N", default_value = "1000", value_parser = crate::arguments::count)]
    max_connections: usize,

    /// Maximum time to receive the head of a request, and then its body. Also the maximum time that a client may read
    /// nothing of an answer, or keep an idle connection
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..))]
    client_timeout: u64,

    /// Maximum time of a request, from its arrival to its last token
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,

    #[command(flatten)]
    pooling: PoolingChoice,

    #[command(flatten)]
    chat_template: Template,

    #[command(flatten)]
    options: generation::Options,
}

/// The environment variable of a key.
const KEY_VARIABLE: &str = "RUSHLIGHT_API_KEY";

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        if self.options.draft_model.is_some() {
            return Err(Failure::Arguments(
                "`--draft-model` is not supported here: answers take turns in sessions of their own, and a draft model has one\n  \
                 help      use `--speculate lookup`, which guesses without a model"
                    .to_owned(),
            ));
        }
        let address = address(&self.host, self.port)?;
        let tokenizer = self.chat_template.apply(self.model.tokenizer()?)?;
        let mut model = self.model.load()?;
        let file_name = || self.model.source.name();
        let mut api_keys = self.api_key;
        api_keys.extend(std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()));
        if api_keys.iter().any(|key| key.trim().is_empty()) {
            return Err(Failure::Arguments("`--api-key` is empty".to_owned()));
        }
        let model_name = self.name.clone().or_else(file_name).unwrap_or_else(|| "model".to_owned());
        let mut names = BTreeSet::from([model_name.as_str()]);
        if let Some((name, _)) = self.lora_module.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Failure::Arguments(format!("`--lora-module {name}`: there is another model of this name")));
        }
        if !self.lora_module.is_empty() && model.embedding_size().is_some() {
            return Err(Failure::Arguments(
                "`--lora-module` is for models that generate\n  help      give a model that embeds its adapter with `--lora`"
                    .to_owned(),
            ));
        }
        let adapters =
            self.lora_module.iter().map(|(name, folder)| Ok((name.clone(), Adapter::open(&model, folder, 1.0)?)));
        let adapters = adapters.collect::<Result<_, Failure>>()?;
        let options = Options {
            address,
            model_name,
            adapters,
            api_keys,
            max_sessions: usize::from(self.sessions),
            max_queue: self.queue,
            max_body: self.max_body,
            max_connections: self.max_connections,
            client_timeout: Duration::from_secs(self.client_timeout),
            timeout: Duration::from_secs(self.timeout),
            allowed_hosts: self.allowed_host,
            cors_origins: self.cors_origin,
            on_request: is_verbose().then_some(log),
            pooling: self.pooling.pooling(),
            generation: self.options.values,
            ..Options::default()
        };
        if options.generation.generation(&tokenizer)?.speculation.is_some()
            && let Some(reason) = model.session()?.cannot_read_ahead(&model)
        {
            output::warn(&format!("tokens are not guessed: {reason}"));
        }
        if options.api_keys.is_empty() && !address.ip().is_loopback() {
            output::warn("everybody who reaches this machine may use the model, as there is no `--api-key`");
        }
        if options.api_keys.is_empty() && options.cors_origins.contains(&Origin::Any) {
            output::warn("every web page in a browser of this machine may use the model, as there is no `--api-key`");
        }
        let is_limited = self.model.source.context().is_some();
        let (name, summary) = (options.model_name.clone(), summary(&mut model, &options, is_limited));
        serve(model, tokenizer, options, |address| {
            output::to_stderr(&format!("`{name}` is served at http://{address}; Ctrl-C stops it\n{summary}"));
        })
        .map_err(|error| match error {
            Error::Model(error) => error.into(),
            Error::Io { error: ref cause, .. } if cause.kind() == ErrorKind::AddrInUse => Failure::Other(format!(
                "{error}\n  help      choose another port (`--port`), or 0 for a free one, or stop the program that uses it"
            )),
            error => Failure::Other(error.to_string()),
        })
    }
}

/// The first address of a name.
fn address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unknown =
        |reason: String| Failure::Arguments(format!("`--host {host}` is no address of this machine: {reason}"));
    let mut all = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    all.next().ok_or_else(|| unknown("the name has none".to_owned()))
}

/// The context of a model, and the memory of its sessions. `is_limited` is true if the context may be shorter than the cache.
fn summary(model: &mut Model, options: &Options, is_limited: bool) -> String {
    let sessions = options.max_sessions;
    let cache = model.module().session().map_or(0, |session| session.size() as u64);
    let memory = match cache {
        0 => String::new(),
        cache if is_limited => format!(", each with a KV cache of at most {}", output::bytes(cache)),
        cache => format!(", each with a KV cache of {}", output::bytes(cache)),
    };
    let plural = if sessions == 1 { "" } else { "s" };
    let context = model.limits().max_context_len;
    format!("{context} tokens of context, {sessions} session{plural} at a time{memory}")
}

/// Prints a request.
fn log(request: &Handled) {
    let Handled { method, path, status, time, .. } = request;
    // A client chooses the path, and a terminal follows control characters.
    let shown = |char: char| if char.is_ascii_graphic() { char.to_string() } else { char.escape_unicode().to_string() };
    let path: String = path.chars().map(shown).collect();
    output::to_stderr(&format!("{method} {path} {status} {}", output::duration(*time)));
}

fn named_folder(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => Ok((name.to_owned(), folder.into())),
        _ => Err("expected NAME=FOLDER".to_owned()),
    }
}
