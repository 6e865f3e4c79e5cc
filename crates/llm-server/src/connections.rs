//! Connections: how many there are at a time, and how long they may keep the server waiting.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::open::{Busy, Client, Connection, Connections};

/// Pause before the next connection is accepted, after the system refused one because it lacks file descriptors or memory.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of an answer that the system keeps until the client reads them. The system's default grows to megabytes. The server would
/// then notice late that a client has stopped reading, and many such clients would use up the memory.
const SEND_BUFFER: u32 = 128 << 10;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Listens on an address. Must be called in a runtime.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows, several processes could listen on the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves at most `max` connections at a time; more wait for one that is closed or gives way ([`Entering::enter`](crate::open::Entering)). A
/// connection is closed once its client takes longer than `timeout` to send the head of a request, or does not read for so long, or
/// sends none for so long. Ends once `stop` does and all requests are answered.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    max: usize,
    timeout: Duration,
    stop: impl Future<Output = ()>,
) {
    let connections = Connections::new(max);
    let (stopping, is_stopping) = watch::channel(());
    let mut stop = pin!(stop);
    for number in 0.. {
        let (stream, client) = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener) => accepted,
        };
        let arrived = match connections.enter_now(client, number) {
            Some(open) => Ok(open),
            None => match connections.arrive(client) {
                Some(entering) => Err(entering),
                None => continue,
            },
        };
        let (routes, is_stopping) = (routes.clone(), is_stopping.clone());
        tokio::spawn(async move {
            let open = match arrived {
                Ok(open) => open,
                Err(entering) => entering.enter(number).await,
            };
            connection(stream, client, routes, timeout, is_stopping, open).await;
        });
    }
    drop(listener);
    drop(stopping);
    connections.all_closed().await;
}

/// Accepts a connection.
async fn accept(listener: &TcpListener) -> (TcpStream, Client) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, Client::of(address.ip())),
            // The client has gone already.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one connection, until it ends or gives way.
async fn connection(
    stream: TcpStream,
    client: Client,
    routes: Router,
    timeout: Duration,
    mut is_stopping: watch::Receiver<()>,
    open: Connection,
) {
    // A token is sent at once, not together with the next.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(LimitedStream { stream, timeout, stalled: None });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeout);
    let routes = TowerToHyperService::new(routes);
    let activity = open.activity();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let busy = activity.begin();
        request.extensions_mut().insert(activity.clone());
        request.extensions_mut().insert(client);
        let answering = routes.call(request);
        async move { Ok::<_, Infallible>(answering.await?.map(|body| Sent { body, _busy: busy })) }
    });
    let mut served = pin!(builder.serve_connection(stream, service));
    // An error is the client's: it left, or spoke no HTTP.
    tokio::select! {
        _ = served.as_mut() => {}
        () = open.gives_way() => {}
        // The sender is gone.
        _ = is_stopping.changed() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// The body of a response. Its connection is busy until the body ends.
struct Sent {
    body: axum::body::Body,
    _busy: Busy,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that fails once its peer reads nothing for `timeout` although there are bytes to send.
struct LimitedStream {
    stream: TcpStream,
    timeout: Duration,
    /// Ends when the time is over; `None` while the peer reads.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl LimitedStream {
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
