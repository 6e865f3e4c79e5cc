//! Origins of web pages, as browsers send them.

use std::fmt;
use std::str::FromStr;

/// The origin of web pages that may send requests, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Pages of every origin, and those without one: `*`.
    Any,
    /// Pages of an origin, in the form that browsers send (RFC 6454, section 6.2): `https://app.example`.
    Named(String),
}

/// A text that no browser sends as an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAnOrigin {
    /// The origin of the page that the text names, if it names one.
    pub meant: Option<String>,
}

impl FromStr for Origin {
    type Err = NotAnOrigin;

    /// Parses `*`, or the origin of a page.
    ///
    /// # Errors
    /// For all that browsers do not send: an origin without a scheme, with a path or a slash at its end, in upper case, or with
    /// the usual port of its scheme.
    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        match serialized(text) {
            _ if text == "*" => Ok(Self::Any),
            Some(origin) if origin == text => Ok(Self::Named(origin)),
            meant => Err(NotAnOrigin { meant }),
        }
    }
}

/// The origin of a page, as browsers send it. `None` if the address has none, or none that needs no further knowledge: browsers
/// send the names of hosts in ASCII.
fn serialized(address: &str) -> Option<String> {
    let address = address.trim().to_ascii_lowercase();
    // Browsers send it for pages without an origin, of any site.
    if address == "null" {
        return None;
    }
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None if address.starts_with("localhost") || address.starts_with("127.") => ("http", address.as_str()),
        None => ("https", address.as_str()),
    };
    let site = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let site = site.rsplit('@').next().unwrap_or_default();
    let (host, port) = match site.rfind(':').filter(|colon| !site.get(*colon..).is_some_and(|end| end.contains(']'))) {
        Some(colon) => site.split_at(colon),
        None => (site, ""),
    };
    let port = match port.trim_start_matches(':') {
        "" => String::new(),
        port => match (scheme, port.parse::<u16>().ok()?) {
            ("http", 80) | ("https", 443) => String::new(),
            (_, port) => format!(":{port}"),
        },
    };
    let is_of = |text: &str, other: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || other.contains(&byte))
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_of(host, b"-._"),
    };
    (is_of(scheme, b"+-.") && is_host).then(|| format!("{scheme}://{host}{port}"))
}

impl fmt::Display for NotAnOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.meant {
            Some(meant) => write!(f, "browsers send the origin of such a page as `{meant}`"),
            None => f.write_str("expected `*`, or an origin such as `https://app.example` or `http://localhost:3000`"),
        }
    }
}

impl std::error::Error for NotAnOrigin {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_that_browsers_send() {
        for text in [
            "https://app.example",
            "http://localhost:3000",
            "http://127.0.0.1:8081",
            "http://[::1]:8081",
            "https://xn--bcher-kva.example",
            "https://a_b.example:80",
            "chrome-extension://abcdefgh",
            "tauri://localhost",
        ] {
            assert_eq!(text.parse(), Ok(Origin::Named(text.to_owned())), "{text}");
        }
        assert_eq!("*".parse(), Ok(Origin::Any));
    }

    #[test]
    fn other_texts_are_errors_that_name_the_origin() {
        for (text, meant) in [
            ("https://app.example/", Some("https://app.example")),
            ("https://app.example/a/b?c#d", Some("https://app.example")),
            ("https://App.Example", Some("https://app.example")),
            ("HTTPS://app.example", Some("https://app.example")),
            ("https://app.example:443", Some("https://app.example")),
            ("http://app.example:80/", Some("http://app.example")),
            ("http://app.example:", Some("http://app.example")),
            ("http://app.example:08081", Some("http://app.example:8081")),
            ("https://me:secret@app.example", Some("https://app.example")),
            (" https://app.example", Some("https://app.example")),
            ("app.example", Some("https://app.example")),
            ("localhost:3000", Some("http://localhost:3000")),
            ("http://[::1]/", Some("http://[::1]")),
            ("", None),
            ("null", None),
            ("://app.example", None),
            ("https://", None),
            ("https://app.example:http", None),
            ("https://app.example:99999", None),
            ("https://b\u{fc}cher.example", None),
            ("https://*.example", None),
            ("http://[::1", None),
        ] {
            let error = text.parse::<Origin>().expect_err(text);
            assert_eq!(error.meant.as_deref(), meant, "{text}");
        }
    }
}
