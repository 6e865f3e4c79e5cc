//! Requests of web pages: a browser sends them to any server that it reaches, for the pages of any site.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, RETRY_AFTER,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::error::Refusal;
use crate::origin::Origin;
use crate::service::Options;

/// The header that tells the origin of a request. Only browsers send it, and no page can change it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers by which a browser asks whether a page of the internet may reach a private network, and the answer.
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// A page of another site that may send requests: the origin of one that is allowed by its name, or `*`.
#[derive(Debug)]
pub(crate) struct AllowedPage(HeaderValue);

/// Refuses requests from pages of other sites, unless these are allowed, and requests with ambiguous origin or host. A browser names the page's site in `Origin`, and
/// its relation to this server in `Sec-Fetch-Site`. `Host` has the name by which the browser found this server. Another site can make its
/// own name point here (DNS rebinding), so names are checked unless there are keys, which such a page lacks.
pub(crate) fn check(request: &Request, options: &Options) -> Result<Option<AllowedPage>, Refusal> {
    let foreign = || {
        let message = "requests of pages of other sites are refused: `--cors-origin` allows the pages of an origin";
        Refusal::new(StatusCode::FORBIDDEN, message)
    };
    let host = header(request, &HOST)?.unwrap_or_default();
    // A request line with a server goes before the header, which may say otherwise.
    if request.uri().authority().is_some_and(|named| !named.as_str().eq_ignore_ascii_case(host)) {
        return Err(Refusal::invalid("expected the `Host` that the request line has"));
    }
    let name = name_of(host).ok_or_else(|| Refusal::invalid("expected a name or an address as `Host`"))?;
    if options.api_keys.is_empty() && !is_own(name, options) {
        let message = format!(
            "`{name}` is no name of this server: expected `localhost`, its address, or a name that `--allowed-host` gives"
        );
        return Err(Refusal::new(StatusCode::FORBIDDEN, message));
    }
    if let Some(origin) = header(request, &ORIGIN)? {
        let site = origin.split_once("://").map(|(_, site)| site);
        if !site.is_some_and(|site| site.eq_ignore_ascii_case(host)) {
            return allowed(origin, options).map(Some).ok_or_else(foreign);
        }
    }
    match header(request, &SEC_FETCH_SITE)? {
        None | Some("same-origin" | "none") => Ok(None),
        // A link to the page from elsewhere.
        Some("cross-site" | "same-site") if request.method() == Method::GET && request.uri().path() == "/" => Ok(None),
        Some(_) => Err(foreign()),
    }
}

/// The page of an origin, if the options allow it.
fn allowed(origin: &str, options: &Options) -> Option<AllowedPage> {
    let all = &options.cors_origins;
    if all.iter().any(|known| matches!(known, Origin::Named(name) if name == origin)) {
        return HeaderValue::from_str(origin).ok().map(AllowedPage);
    }
    all.contains(&Origin::Any).then_some(AllowedPage(HeaderValue::from_static("*")))
}

impl AllowedPage {
    /// The answer to the question whether a page may send a request; `None` if the request is none.
    pub fn preflight(request: &Request) -> Option<Response> {
        let asked = request.headers();
        if request.method() != Method::OPTIONS || !asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
            headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        Some(response)
    }

    /// Adds the headers with which a browser gives an answer to the page.
    pub fn add_to(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from(RETRY_AFTER));
    }
}

/// Returns the text of a header. Fails if the header is repeated or not ASCII.
fn header<'r>(request: &'r Request, name: &HeaderName) -> Result<Option<&'r str>, Refusal> {
    let mut all = request.headers().get_all(name).iter();
    let (first, second) = (all.next(), all.next());
    if second.is_some() {
        return Err(Refusal::invalid(format!("expected one `{name}`")));
    }
    let text = |value: &HeaderValue| {
        // Neither names nor addresses have other characters.
        value.to_str().map(str::to_owned).map_err(|_| Refusal::invalid(format!("expected `{name}` of ASCII")))
    };
    first.map(text).transpose()?;
    Ok(first.and_then(|value| value.to_str().ok()))
}

/// The name or address of a `Host`, without its port; `None` if it is neither. It is empty without the header.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (address, port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (is_port && name.bytes().all(is_name)).then_some(name)
}

/// True for names that no other site can point at this server: addresses, `localhost`, and the allowed hosts.
fn is_own(name: &str, options: &Options) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_given = |given: &String| given.eq_ignore_ascii_case(name);
    let address = name.parse::<IpAddr>();
    let is_reached = |address: IpAddr| !options.address.ip().is_loopback() || address.to_canonical().is_loopback();
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(is_reached)
        || options.allowed_hosts.iter().any(is_given)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Body;
    use axum::http::HeaderValue;

    use super::*;

    fn options(address: &str, key: Option<&str>) -> Options {
        Options {
            address: address.parse::<SocketAddr>().expect("an address"),
            api_keys: key.into_iter().map(str::to_owned).collect(),
            allowed_hosts: vec!["llm.example".to_owned()],
            ..Options::default()
        }
    }

    fn status(method: &str, target: &str, headers: &[(&'static str, &[u8])], options: &Options) -> u16 {
        let mut request = Request::builder().method(method).uri(target).body(Body::empty()).expect("a request");
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).expect("a value");
            request.headers_mut().append(HeaderName::from_static(name), value);
        }
        check(&request, options).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn hosts_are_names_that_no_other_site_has() {
        let here = options("127.0.0.1:8080", None);
        let everywhere = options("0.0.0.0:8080", None);
        let with_key = options("0.0.0.0:8080", Some("key"));
        // The status of each kind of server.
        let cases: [(&[u8], [u16; 3]); 20] = [
            (b"localhost", [200; 3]),
            (b"LocalHost:8080", [200; 3]),
            (b"localhost.", [200; 3]),
            (b"127.0.0.1:8080", [200; 3]),
            (b"127.1.2.3", [200; 3]),
            (b"[::1]:8080", [200; 3]),
            (b"", [200; 3]),
            (b"192.168.1.7:8080", [403, 200, 200]),
            (b"[fe80::1]", [403, 200, 200]),
            (b"llm.example:8080", [200; 3]),
            (b"evil.example", [403, 403, 200]),
            (b"evil.example:8080", [403, 403, 200]),
            (b"localhost.evil.example", [403, 403, 200]),
            (b"127.0.0.1.evil.example", [403, 403, 200]),
            (b"2130706433", [403, 403, 200]),
            (b"localhost:http", [400; 3]),
            (b"localhost:99999", [400; 3]),
            (b"localhost@evil.example", [400; 3]),
            (b"localh\xc3\xb6st", [400; 3]),
            (b"[::1", [400; 3]),
        ];
        for (host, expected) in cases {
            let found = [&here, &everywhere, &with_key].map(|options| status("POST", "/", &[("host", host)], options));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(host));
        }
        let doubled: &[(&str, &[u8])] = &[("host", b"localhost"), ("host", b"localhost")];
        assert_eq!(status("GET", "/health", doubled, &here), 400);
        let host: &[(&str, &[u8])] = &[("host", b"localhost")];
        assert_eq!(status("GET", "http://evil.example/health", host, &here), 400);
        assert_eq!(status("GET", "http://localhost/health", host, &here), 200);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let options = options("127.0.0.1:8080", Some("key"));
        let of = |method: &str, path: &str, name: &'static str, values: &[&[u8]]| {
            let host: (&'static str, &[u8]) = ("host", b"localhost:8080");
            let headers: Vec<_> = std::iter::once(host).chain(values.iter().map(|value| (name, *value))).collect();
            status(method, path, &headers, &options)
        };
        let cases: [(&'static str, &[&[u8]], u16); 15] = [
            ("origin", &[b"http://localhost:8080"], 200),
            ("origin", &[b"https://LOCALHOST:8080"], 200),
            ("origin", &[b"http://localhost"], 403),
            ("origin", &[b"http://localhost:8081"], 403),
            ("origin", &[b"http://evil.example"], 403),
            ("origin", &[b"null"], 403),
            ("origin", &[b""], 403),
            ("origin", &[b"localhost:8080"], 403),
            ("origin", &[b"http://\xc3\xa9vil.example"], 400),
            ("origin", &[b"http://localhost:8080", b"http://localhost:8080"], 400),
            ("sec-fetch-site", &[b"same-origin"], 200),
            ("sec-fetch-site", &[b"none"], 200),
            ("sec-fetch-site", &[b"same-site"], 403),
            ("sec-fetch-site", &[b"cross-site"], 403),
            ("sec-fetch-site", &[b"same-origin", b"none"], 400),
        ];
        for (name, values, expected) in cases {
            for (method, path) in [("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/health")] {
                assert_eq!(of(method, path, name, values), expected, "{name} {values:?}");
            }
        }
        // A link to the page.
        assert_eq!(of("GET", "/", "sec-fetch-site", &[b"cross-site"]), 200);
        assert_eq!(of("POST", "/", "sec-fetch-site", &[b"cross-site"]), 403);
    }

    fn asked(options: &Options, method: &str, headers: &[(&'static str, &'static str)]) -> Option<HeaderMap> {
        let mut request = Request::builder().method(method).uri("/v1/models").body(Body::empty()).expect("a request");
        let headers = [&[("host", "localhost:8080"), ("sec-fetch-site", "cross-site")], headers].concat();
        for (name, value) in headers {
            request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let page = check(&request, options).ok()??;
        let mut response = AllowedPage::preflight(&request).unwrap_or_default();
        page.add_to(response.headers_mut());
        Some(response.headers().clone())
    }

    /// The Fetch standard says which headers a browser looks for.
    #[test]
    fn pages_of_allowed_origins_may_ask() {
        let allowed = |origins: &[&str]| Options {
            cors_origins: origins.iter().map(|origin| origin.parse().expect("an origin")).collect(),
            ..options("127.0.0.1:8080", None)
        };
        let app = ("origin", "https://app.example");
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().expect("ASCII").to_owned()).unwrap_or_default()
        };
        assert!(asked(&allowed(&[]), "POST", &[app]).is_none());
        assert!(asked(&allowed(&["https://other.example", "https://app.example:444"]), "POST", &[app]).is_none());
        for (origins, answer) in [(&["https://app.example"][..], "https://app.example"), (&["*"], "*")] {
            let headers = asked(&allowed(origins), "POST", &[app]).expect("an allowed page");
            assert_eq!(text(&headers, "access-control-allow-origin"), answer);
            assert_eq!(text(&headers, "access-control-allow-methods"), "");
            let question = [
                app,
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "authorization,content-type"),
                ("access-control-request-private-network", "true"),
            ];
            let headers = asked(&allowed(origins), "OPTIONS", &question).expect("an allowed page");
            assert_eq!(text(&headers, "access-control-allow-origin"), answer);
            assert_eq!(text(&headers, "access-control-allow-methods"), "GET, POST");
            assert_eq!(text(&headers, "access-control-allow-headers"), "authorization,content-type");
            assert_eq!(text(&headers, "access-control-allow-private-network"), "true");
        }
        // A page may have no origin that can be named.
        assert!(asked(&allowed(&["https://app.example"]), "POST", &[("origin", "null")]).is_none());
    }
}
