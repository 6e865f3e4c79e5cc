//! JSON as Python's `json.dumps` writes it: the filter `tojson` of chat templates.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::Formatter;

/// The filter, with the options that it has in transformers: `indent`, `ensure_ascii`, which is false by default, `separators` and
/// `sort_keys`.
pub(crate) fn to_json(value: &Value, options: &Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let is_ascii: Option<bool> = options.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let is_sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let between_items = if indent.is_some() { "," } else { ", " };
    let [item, key] = match separators {
        None => [between_items.to_owned(), ": ".to_owned()],
        Some(separators) => separators.try_into().map_err(|separators: Vec<String>| {
            let problem = format!("tojson: expected 2 separators, got {}", separators.len());
            Error::new(ErrorKind::InvalidOperation, problem)
        })?,
    };
    let unserializable = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut bytes = Vec::new();
    let indent = indent.map(|width| " ".repeat(width.min(16)));
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut bytes, Separated { indent, item, key, depth: 0, has_items: false });
    if is_sorted == Some(true) {
        let mut sorted = serde_json::to_value(value).map_err(unserializable)?;
        sorted.sort_all_objects();
        sorted.serialize(&mut serializer).map_err(unserializable)?;
    } else {
        value.serialize(&mut serializer).map_err(unserializable)?;
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(if is_ascii == Some(true) { escaped(&text).into() } else { text.into_owned().into() })
}

/// Characters beyond ASCII, and DEL, by their units of UTF-16.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii() && char != '\u{7f}' {
            escaped.push(char);
        } else {
            char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
        }
    }
    escaped
}

struct Separated {
    /// Spaces a level; without, all is on one line.
    indent: Option<String>,
    item: String,
    key: String,
    depth: usize,
    /// Of the innermost array or object.
    has_items: bool,
}

impl Separated {
    fn begin<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn begin_item<W: ?Sized + io::Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.has_items = true;
        self.begin_line(writer)
    }

    fn end<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.begin_line(writer)?;
        }
        // The outer one has this item.
        self.has_items = true;
        writer.write_all(bracket)
    }

    fn begin_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }
}

impl Formatter for Separated {
    /// With an exponent below 1e-4 and from 1e16 on, which has a sign and two digits.
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let shortest = format!("{value:e}");
        let parts =
            shortest.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
        match parts {
            Some((digits, exponent)) if !(-4..16).contains(&exponent) => {
                let sign = if exponent < 0 { '-' } else { '+' };
                write!(writer, "{digits}e{sign}{:02}", exponent.abs())
            }
            _ => write!(writer, "{value:?}"),
        }
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;
    use minijinja::value::Serde;

    use super::*;

    /// Expected values are those of Python 3.11.
    #[test]
    fn options_are_those_of_python() {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", |value: &Value, options: Kwargs| to_json(value, &options));
        let value = serde_json::json!({ "b": [1, [], { "ä": "😀" }], "a": {}, "\u{7f}": 1 });
        for (options, expected) in [
            ("", "{\"b\": [1, [], {\"ä\": \"😀\"}], \"a\": {}, \"\u{7f}\": 1}"),
            ("separators=(',', ':')", "{\"b\":[1,[],{\"ä\":\"😀\"}],\"a\":{},\"\u{7f}\":1}"),
            (
                "sort_keys=true, ensure_ascii=true",
                r#"{"a": {}, "b": [1, [], {"\u00e4": "\ud83d\ude00"}], "\u007f": 1}"#,
            ),
            ("indent=1", "{\n \"b\": [\n  1,\n  [],\n  {\n   \"ä\": \"😀\"\n  }\n ],\n \"a\": {},\n \"\u{7f}\": 1\n}"),
            (
                "indent=0, separators=(' ;', '=')",
                "{\n\"b\"=[\n1 ;\n[] ;\n{\n\"ä\"=\"😀\"\n}\n] ;\n\"a\"={} ;\n\"\u{7f}\"=1\n}",
            ),
        ] {
            let source = format!("{{{{ value | tojson({options}) }}}}");
            let context = context! { value => Value::from(Serde(&value)) };
            let got = environment.render_named_str("t", &source, context).unwrap();
            assert_eq!(got, expected, "{options}");
        }
        let numbers = serde_json::json!([1e-5, 1.5e-7, 1e16, 1.0, 0.0001, 123_456_789_012_345.0, -1e300, 1e-100, 3]);
        let context = context! { value => Value::from(Serde(&numbers)) };
        let got = environment.render_named_str("t", "{{ value | tojson }}", context).unwrap();
        assert_eq!(got, "[1e-05, 1.5e-07, 1e+16, 1.0, 0.0001, 123456789012345.0, -1e+300, 1e-100, 3]");
        let error = environment.render_named_str("t", "{{ 1 | tojson(separators=[',']) }}", ()).unwrap_err();
        assert_eq!(error.detail(), Some("tojson: expected 2 separators, got 1"));
    }
}
