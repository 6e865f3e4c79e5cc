//! The server: routes, keys and shutdown.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, HeaderValue, ORIGIN, VARY};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use rushlight_llm::{Model, Tokenizer};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api;
use crate::api::Key;
use crate::connections;
use crate::embedder::Embedder;
use crate::error::{Error, Refusal, shown};
use crate::metrics::{Metrics, add};
use crate::preparing::{MAX_PREPARING, Preparing};
use crate::queue::queue;
use crate::scheduler::Scheduler;
use crate::service::{Handled, Options, Queue, Service};
use crate::sites;

/// Serves a model until the process is interrupted or told to terminate. `on_listen` gets the address.
///
/// # Errors
/// `Io` for an address that cannot be listened on; `Model` if the model makes no session.
pub fn serve(
    model: Model,
    tokenizer: Tokenizer,
    options: Options,
    on_listen: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |error| Error::Io { what, error }
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).max_blocking_threads(2 * MAX_PREPARING).enable_all().build();
    let runtime = runtime.map_err(io("cannot start the threads that serve"))?;
    let (tokenizer, metrics) = (Arc::new(tokenizer), Arc::new(Metrics::default()));
    let template = tokenizer.chat_template().map_err(Error::Model)?;
    let limits = model.limits().clone();
    let has_names = !options.adapters.is_empty() || model.takes_adapters();
    let (queue, run) = model_thread(model, tokenizer.clone(), metrics.clone(), &options).map_err(Error::Model)?;
    let created = api::now();
    let listener = runtime.block_on(async { connections::listen(options.address) });
    let listener = listener.map_err(io(&format!("cannot listen on {}", options.address)))?;
    let address = listener.local_addr().map_err(io("the address that is listened on is unknown"))?;
    let thread = std::thread::Builder::new().name("model".to_owned()).spawn(run);
    let thread = thread.map_err(io("cannot start the thread of the model"))?;
    let service = Arc::new(Service {
        tokenizer,
        template,
        grammars: OnceLock::new(),
        dry_breakers: OnceLock::new(),
        limits,
        preparing: Preparing::new(options.max_body, options.client_timeout, options.api_keys.len()),
        has_names,
        options,
        metrics,
        created,
        queue,
    });
    // They count from when the address is known.
    let inside = runtime.enter();
    let signals = Signals::watch();
    drop(inside);
    on_listen(address);
    runtime.block_on(until_stopped(listener, service, signals));
    // Closes the remaining connections, and with them the last sender of jobs. Work that does not end by itself ends with the process.
    runtime.shutdown_timeout(Duration::ZERO);
    let start = Instant::now();
    while !thread.is_finished() && start.elapsed() < LAST_CALL {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Time that answers may continue after an interrupt: a person waits.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);

/// A timeout that stands for none.
const DAY: Duration = Duration::from_hours(24);

/// Time that the last call of the model may take after that.
const LAST_CALL: Duration = Duration::from_millis(500);

/// The queue of a model, and what its thread runs.
fn model_thread(
    model: Model,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    options: &Options,
) -> rushlight_llm::Result<(Queue, Box<dyn FnOnce() + Send>)> {
    if let Some(size) = model.embedding_size() {
        let (jobs, receiver) = queue(options.max_queue);
        let embedder = Embedder::new(model, options.pooling, metrics, receiver)?;
        return Ok((Queue::Embeddings { jobs, size }, Box::new(|| embedder.run())));
    }
    let (jobs, receiver) = queue(options.max_queue);
    let scheduler = Scheduler::new(model, tokenizer, metrics, receiver, options.max_sessions)?;
    Ok((Queue::Answers(jobs), Box::new(|| scheduler.run())))
}

/// Serves until a signal comes; then requests have `shutdown_timeout` to be answered, or a second if it was an interrupt. A second
/// interrupt ends all at once.
async fn until_stopped(listener: TcpListener, service: Arc<Service>, mut signals: Signals) {
    let Options { max_connections, client_timeout, shutdown_timeout, .. } = service.options;
    let (stop, mut stopped) = watch::channel(());
    let stop_listening = async move {
        // The sender is gone.
        let _ = stopped.changed().await;
    };
    tokio::select! {
        () = connections::serve(listener, routes(service), max_connections, client_timeout, stop_listening) => {}
        () = async {
            let in_time = |time: Duration| Instant::now().checked_add(time).unwrap_or_else(|| Instant::now() + DAY);
            let first = signals.next().await;
            drop(stop);
            let is_interrupt = first == Signal::Interrupt;
            let end = in_time(if is_interrupt { INTERRUPT_TIMEOUT } else { shutdown_timeout });
            while let Ok(signal) = tokio::time::timeout_at(end.into(), signals.next()).await {
                if signal == Signal::Interrupt {
                    let rest = if is_interrupt { Duration::ZERO } else { INTERRUPT_TIMEOUT };
                    tokio::time::sleep(rest).await;
                    break;
                }
            }
        } => {}
    }
}

/// A request to the server to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// A person presses Ctrl-C.
    Interrupt,
    /// The system or a supervisor ends the server.
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have interrupts alone"))]
    Terminate,
}

/// The signals that come from now on.
#[cfg(unix)]
struct Signals([std::io::Result<tokio::signal::unix::Signal>; 2]);

#[cfg(unix)]
impl Signals {
    fn watch() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self([SignalKind::interrupt(), SignalKind::terminate()].map(signal))
    }

    async fn next(&mut self) -> Signal {
        let [Ok(interrupt), Ok(terminate)] = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => Signal::Interrupt,
            _ = terminate.recv() => Signal::Terminate,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn watch() -> Self {
        Self
    }

    async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}

/// The page loads nothing from elsewhere, and no other page shows it in a frame.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                           connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn routes(service: Arc<Service>) -> Router {
    let api = Router::new()
        .route("/v1/models", get(api::models::list))
        .route("/v1/models/{*model}", get(api::models::one))
        .route("/v1/chat/completions", post(api::chat::complete))
        .route("/v1/responses", post(api::responses::create))
        .route("/v1/completions", post(api::completions::complete))
        .route("/v1/embeddings", post(api::embeddings::embed))
        .route("/tokenize", post(api::tokenize::tokenize))
        .route("/detokenize", post(api::tokenize::detokenize))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(service.clone(), authorize));
    Router::new()
        .route("/", get(|| async { ([(CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(include_str!("page.html"))) }))
        .route("/health", get(health))
        .merge(api)
        .fallback(|request: Request| async move {
            Refusal::new(StatusCode::NOT_FOUND, format!("there is no `{}`", shown(request.uri().path())))
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let message = format!("`{}` does not take {}", shown(request.uri().path()), shown(request.method()));
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
        })
        .layer(middleware::from_fn_with_state(service.clone(), same_site))
        .layer(middleware::from_fn_with_state(service.clone(), count))
        .with_state(service)
}

/// Well, as long as the model has its thread.
async fn health(State(service): State<Arc<Service>>) -> Result<axum::Json<serde_json::Value>, Refusal> {
    if service.is_stopped() { Err(Refusal::stopped()) } else { Ok(axum::Json(serde_json::json!({ "status": "ok" }))) }
}

async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    ([("content-type", "text/plain; version=0.0.4")], service.metrics.text())
}

/// Counts refused requests, and reports all.
async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let reported =
        service.options.on_request.map(|report| (report, shown(request.method()), shown(request.uri().path())));
    let response = next.run(request).await;
    if let Some((report, method, path)) = reported {
        report(&Handled { method, path, status: response.status().as_u16(), time: start.elapsed() });
    }
    if response.status().is_client_error() || response.status().is_server_error() {
        add(&service.metrics.refused, 1);
    }
    response
}

/// Refuses requests from pages of other sites, unless the options allow them.
async fn same_site(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let mut response = match sites::check(&request, &service.options) {
        Ok(None) => next.run(request).await,
        Ok(Some(page)) => {
            let mut response = match sites::AllowedPage::preflight(&request) {
                Some(response) => response,
                None => next.run(request).await,
            };
            page.add_to(response.headers_mut());
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    // The page of another origin gets another response.
    response.headers_mut().append(VARY, HeaderValue::from(ORIGIN));
    response
}

/// Refuses requests without one of the server's keys, and records the number of the key.
async fn authorize(State(service): State<Arc<Service>>, mut request: Request, next: Next) -> Response {
    let keys = &service.options.api_keys;
    let mut all = request.headers().get_all(AUTHORIZATION).iter();
    let (first, second) = (all.next(), all.next());
    let given = first.filter(|_| second.is_none()).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let given = given.filter(|given| !given.is_empty());
    // All keys are compared, and all bytes of each.
    let number = |given: &[u8]| {
        let numbered = keys.iter().enumerate();
        numbered.fold(None, |found, (number, key)| if is_same(key.as_bytes(), given) { Some(number) } else { found })
    };
    match given.and_then(number) {
        _ if keys.is_empty() => {}
        Some(number) => drop(request.extensions_mut().insert(Key(number))),
        None => {
            let message = "expected `Authorization: Bearer KEY` with a key of this server";
            return Refusal::new(StatusCode::UNAUTHORIZED, message).into_response();
        }
    }
    next.run(request).await
}

/// Compares in a time that does not tell how much is alike.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
