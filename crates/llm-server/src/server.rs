//! The server: routes, keys and shutdown.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use rushlight_llm::{Model, Tokenizer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::api;
use crate::connections;
use crate::embedder::Embedder;
use crate::error::{Error, Refusal};
use crate::metrics::{Metrics, add};
use crate::scheduler::Scheduler;
use crate::service::{MAX_PREPARING, Options, Queue, Service};

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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(io("cannot start the threads that serve"))?;
    let (tokenizer, metrics) = (Arc::new(tokenizer), Arc::new(Metrics::default()));
    let template = tokenizer.chat_template().map_err(Error::Model)?;
    let limits = model.limits().clone();
    let (queue, run) = model_thread(model, tokenizer.clone(), metrics.clone(), &options).map_err(Error::Model)?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let listener = runtime.block_on(async { connections::listen(options.address) });
    let listener = listener.map_err(io(&format!("cannot listen on {}", options.address)))?;
    let address = listener.local_addr().map_err(io("the address that is listened on is unknown"))?;
    let thread = std::thread::Builder::new().name("model".to_owned()).spawn(run);
    let thread = thread.map_err(io("cannot start the thread of the model"))?;
    let service = Arc::new(Service {
        tokenizer,
        template,
        grammars: OnceLock::new(),
        limits,
        options,
        metrics,
        preparing: Arc::new(Semaphore::new(MAX_PREPARING)),
        created,
        queue,
    });
    // They count from when the address is known.
    let inside = runtime.enter();
    let signals = signals();
    drop(inside);
    on_listen(address);
    runtime.block_on(until_stopped(listener, service, signals));
    // Ends what is still connected, and with it the last sender of jobs.
    runtime.shutdown_timeout(Duration::ZERO);
    let _ = thread.join();
    Ok(())
}

/// The queue of a model, and what its thread runs.
fn model_thread(
    model: Model,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    options: &Options,
) -> rushlight_llm::Result<(Queue, Box<dyn FnOnce() + Send>)> {
    let capacity = options.max_queue.max(1);
    if let Some(size) = model.embedding_size() {
        let (jobs, receiver) = mpsc::channel(capacity);
        let embedder = Embedder::new(model, options.pooling, metrics, receiver)?;
        return Ok((Queue::Embeddings { jobs, size }, Box::new(|| embedder.run())));
    }
    let (jobs, receiver) = mpsc::channel(capacity);
    let scheduler = Scheduler::new(model, tokenizer, metrics, receiver, options.max_sessions)?;
    Ok((Queue::Answers(jobs), Box::new(|| scheduler.run())))
}

/// Serves until a signal comes; then requests have `shutdown_timeout` to be answered.
async fn until_stopped(listener: TcpListener, service: Arc<Service>, signals: impl Future<Output = ()>) {
    let Options { max_connections, client_timeout, shutdown_timeout, .. } = service.options;
    let (stop, mut stopped) = watch::channel(());
    let stop = async move {
        signals.await;
        drop(stop);
    };
    tokio::select! {
        () = connections::serve(listener, routes(service), max_connections, client_timeout, stop) => {}
        () = async {
            // The sender is gone.
            let _ = stopped.changed().await;
            tokio::time::sleep(shutdown_timeout).await;
        } => {}
    }
}

/// Ends when the process is interrupted or told to terminate, from now on.
#[cfg(unix)]
fn signals() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [interrupt, terminate] = signals;
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
fn signals() -> impl Future<Output = ()> + Send + 'static {
    async { drop(tokio::signal::ctrl_c().await) }
}

fn routes(service: Arc<Service>) -> Router {
    let api = Router::new()
        .route("/v1/models", get(api::models::list))
        .route("/v1/models/{*model}", get(api::models::one))
        .route("/v1/chat/completions", post(api::chat::complete))
        .route("/v1/completions", post(api::completions::complete))
        .route("/v1/embeddings", post(api::embeddings::embed))
        .route("/tokenize", post(api::tokenize::tokenize))
        .route("/detokenize", post(api::tokenize::detokenize))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(service.options.max_body))
        .layer(middleware::from_fn_with_state(service.clone(), authorize));
    Router::new()
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .route("/health", get(health))
        .merge(api)
        .fallback(|request: Request| async move {
            Refusal::new(StatusCode::NOT_FOUND, format!("there is no `{}`", request.uri().path()))
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let message = format!("`{}` does not take {}", request.uri().path(), request.method());
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

/// Counts what is refused.
async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        add(&service.metrics.refused, 1);
    }
    response
}

/// Refuses what pages of other sites send: a browser names the site in `Origin`, and one whose name was made to point here in
/// `Host`.
async fn same_site(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let is_open = service.options.api_keys.is_empty() && service.options.address.ip().is_loopback();
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Refusal::invalid("expected one `Host`").into_response();
    }
    if is_foreign(request.headers(), is_open) {
        return Refusal::new(StatusCode::FORBIDDEN, "requests of pages of other sites are refused").into_response();
    }
    next.run(request).await
}

/// True if a page of another site sent a request. `is_open` if every program of this machine may send some, and only those.
fn is_foreign(headers: &HeaderMap, is_open: bool) -> bool {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = header(HOST).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let is_local = matches!(name, "localhost" | "127.0.0.1" | "[::1]" | "");
    let origin = header(ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    is_open && !is_local || origin.is_some_and(|origin| origin != host)
}

/// Refuses requests without one of the server's keys.
async fn authorize(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let keys = &service.options.api_keys;
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).filter(|given| !given.is_empty());
    // All keys are compared, and all bytes of each.
    let is_key = |given: &str| keys.iter().fold(false, |known, key| known | is_same(key.as_bytes(), given.as_bytes()));
    if keys.is_empty() || given.is_some_and(is_key) {
        return next.run(request).await;
    }
    Refusal::new(StatusCode::UNAUTHORIZED, "expected `Authorization: Bearer KEY` with a key of this server")
        .into_response()
}

/// Compares in a time that does not tell how much is alike.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
