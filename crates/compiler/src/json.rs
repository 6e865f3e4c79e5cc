//! JSON, as much of it as the compiler writes itself and reads back: no fractions and no negative numbers. Front ends that
//! read the JSON of others do that with serde, which a compiler without them does without.

use std::fmt::{self, Write as _};

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(usize),
    String(String),
    Array(Vec<Self>),
    /// Keys and values, in the order of the text.
    Object(Vec<(String, Self)>),
}

/// Maximum nesting of arrays and objects.
const MAX_DEPTH: usize = 128;

impl Json {
    /// Parses a text that is one value; `None` if it is anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parser = JsonParser { rest: std::str::from_utf8(text).ok()? };
        let value = parser.value(MAX_DEPTH)?;
        parser.skip_whitespace();
        parser.rest.is_empty().then_some(value)
    }

    /// The string, or `Null` for `None`.
    pub fn optional(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::String(text.into()))
    }

    pub fn into_array(self) -> Option<Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The items of an array of `N`.
    pub fn into_tuple<const N: usize>(self) -> Option<[Self; N]> {
        self.into_array()?.try_into().ok()
    }

    pub fn into_string(self) -> Option<String> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<usize> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::String(text) => quoted(text, f),
            Self::Array(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { "," })?;
                }
                f.write_char(']')
            }
            Self::Object(entries) => {
                f.write_char('{')?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    quoted(key, f)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

/// Writes a string with its quotes.
fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for char in text.chars() {
        match char {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{c}' => f.write_str("\\f")?,
            '\0'..' ' => write!(f, "\\u{:04x}", u32::from(char))?,
            _ => f.write_char(char)?,
        }
    }
    f.write_char('"')
}

struct JsonParser<'t> {
    rest: &'t str,
}

impl JsonParser<'_> {
    fn value(&mut self, depth: usize) -> Option<Json> {
        self.skip_whitespace();
        match self.rest.as_bytes().first()? {
            b'n' => self.token("null").map(|()| Json::Null),
            b't' => self.token("true").map(|()| Json::Bool(true)),
            b'f' => self.token("false").map(|()| Json::Bool(false)),
            b'"' => self.string().map(Json::String),
            b'0'..=b'9' => self.number().map(Json::Number),
            b'[' => {
                let depth = depth.checked_sub(1)?;
                self.list("]", |parser| parser.value(depth)).map(Json::Array)
            }
            b'{' => {
                let depth = depth.checked_sub(1)?;
                let entry = |parser: &mut Self| {
                    parser.skip_whitespace();
                    let key = parser.string()?;
                    parser.skip_whitespace();
                    parser.token(":")?;
                    Some((key, parser.value(depth)?))
                };
                self.list("}", entry).map(Json::Object)
            }
            _ => None,
        }
    }

    /// Reads items between commas, from the opening bracket to the closing one.
    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.rest = self.rest.get(1..)?;
        let mut items = Vec::new();
        self.skip_whitespace();
        if self.token(end).is_some() {
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            self.skip_whitespace();
            if self.token(end).is_some() {
                return Some(items);
            }
            self.token(",")?;
        }
    }

    fn number(&mut self) -> Option<usize> {
        let end = self.rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        digits.parse().ok()
    }

    fn string(&mut self) -> Option<String> {
        self.token("\"")?;
        let mut text = String::new();
        loop {
            let end = self.rest.find(['"', '\\'])?;
            let (plain, rest) = self.rest.split_at_checked(end)?;
            if plain.chars().any(|char| char < ' ') {
                return None;
            }
            text.push_str(plain);
            self.rest = rest;
            if self.token("\"").is_some() {
                return Some(text);
            }
            text.push(self.escape()?);
        }
    }

    /// Reads an escaped character.
    fn escape(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        chars.next();
        let char = match chars.next()? {
            char @ ('"' | '\\' | '/') => char,
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits = chars.as_str().get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
                let char = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
                self.rest = chars.as_str().get(4..)?;
                return Some(char);
            }
            _ => return None,
        };
        self.rest = chars.as_str();
        Some(char)
    }

    fn token(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn skip_whitespace(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let text = "a \"quoted\" \\ line\n\r\t\u{8}\u{c}\u{1}, and ünïcödé";
        let array = Json::Array(vec![Json::Null, Json::Bool(true), Json::Number(7), Json::Array(Vec::new())]);
        let value = Json::Object(vec![("key".into(), Json::String(text.into())), ("items".into(), array)]);
        let written = value.to_string();
        assert_eq!(
            written,
            "{\"key\":\"a \\\"quoted\\\" \\\\ line\\n\\r\\t\\b\\f\\u0001, and ünïcödé\",\"items\":[null,true,7,[]]}"
        );
        assert_eq!(Json::parse(written.as_bytes()), Some(value));
        let spaced = b" { \"a\" : [ 1 , false ] , \"b\" : { } } ";
        assert_eq!(Json::parse(spaced).unwrap().to_string(), r#"{"a":[1,false],"b":{}}"#);
    }

    #[test]
    fn other_texts_are_refused() {
        let texts =
            ["", "[", "[1,]", "[1 2]", "{\"a\"}", "{a:1}", "\"a", "\"\n\"", "\"\\x\"", "\"\\u12\"", "nul", "1 1"];
        for text in texts.iter().chain(&["-1", "1.5", "99999999999999999999"]) {
            assert_eq!(Json::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Json::parse(b"\"\xff\""), None);
        assert!(Json::parse("[".repeat(128).as_bytes()).is_none());
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(nested(128).as_bytes()).is_some());
        assert!(Json::parse(nested(129).as_bytes()).is_none());
    }
}
