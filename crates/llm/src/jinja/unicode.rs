//! Properties and cases of characters, as Python has them.

use std::sync::LazyLock;

use regex_automata::hybrid::dfa::DFA;
use regex_automata::{Anchored, Input};

/// Digits that are not decimal (`Numeric_Type=Digit`).
const DIGITS: [(u32, u32); 20] = [
    (0xb2, 0xb3),
    (0xb9, 0xb9),
    (0x1369, 0x1371),
    (0x19da, 0x19da),
    (0x2070, 0x2070),
    (0x2074, 0x2079),
    (0x2080, 0x2089),
    (0x2460, 0x2468),
    (0x2474, 0x247c),
    (0x2488, 0x2490),
    (0x24ea, 0x24ea),
    (0x24f5, 0x24fd),
    (0x24ff, 0x24ff),
    (0x2776, 0x277e),
    (0x2780, 0x2788),
    (0x278a, 0x2792),
    (0x10a40, 0x10a43),
    (0x10e60, 0x10e68),
    (0x11052, 0x1105a),
    (0x1f100, 0x1f10a),
];

/// Letters that are numbers (`Numeric_Type=Numeric` of category Lo).
const NUMERALS: &[u32] = &[
    0x3405, 0x3483, 0x382a, 0x3b4d, 0x4e00, 0x4e03, 0x4e07, 0x4e09, 0x4e5d, 0x4e8c, 0x4e94, 0x4e96, 0x4ebf, 0x4ec0,
    0x4edf, 0x4ee8, 0x4f0d, 0x4f70, 0x5104, 0x5146, 0x5169, 0x516b, 0x516d, 0x5341, 0x5343, 0x5344, 0x5345, 0x534c,
    0x53c1, 0x53c2, 0x53c3, 0x53c4, 0x56db, 0x58f1, 0x58f9, 0x5e7a, 0x5efe, 0x5eff, 0x5f0c, 0x5f0d, 0x5f0e, 0x5f10,
    0x62fe, 0x634c, 0x67d2, 0x6f06, 0x7396, 0x767e, 0x8086, 0x842c, 0x8cae, 0x8cb3, 0x8d30, 0x9621, 0x9646, 0x964c,
    0x9678, 0x96f6, 0xf96b, 0xf973, 0xf978, 0xf9b2, 0xf9d1, 0xf9d3, 0xf9fd, 0x20001, 0x20064, 0x200e2, 0x20121,
    0x2092a, 0x20983, 0x2098c, 0x2099c, 0x20aea, 0x20afd, 0x20b19, 0x22390, 0x22998, 0x23b1b, 0x2626d, 0x2f890,
];

/// `str.isspace`, which has the separators of ASCII too.
pub(super) fn is_space(char: char) -> bool {
    char.is_whitespace() || matches!(char, '\u{1c}'..='\u{1f}')
}

/// The ends of lines of `str.splitlines`.
pub(super) fn is_line_end(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// A category of Unicode.
struct Class(LazyLock<Option<DFA>>);

impl Class {
    fn has(&self, char: char) -> bool {
        let Some(dfa) = &*self.0 else { return false };
        let mut buffer = [0; 4];
        let input = Input::new(char.encode_utf8(&mut buffer)).anchored(Anchored::Yes);
        dfa.try_search_fwd(&mut dfa.create_cache(), &input).is_ok_and(|found| found.is_some())
    }
}

fn class(expression: &str) -> Option<DFA> {
    DFA::new(expression).ok()
}

static LETTERS: Class = Class(LazyLock::new(|| class(r"\p{L}")));
static DECIMALS: Class = Class(LazyLock::new(|| class(r"\p{Nd}")));
static NOT_PRINTABLE: Class = Class(LazyLock::new(|| class(r"[\p{C}\p{Z}]")));
static IDENTIFIERS: Class = Class(LazyLock::new(|| class(r"\p{XID_Continue}")));
static IDENTIFIER_STARTS: Class = Class(LazyLock::new(|| class(r"\p{XID_Start}")));

pub(super) fn is_alpha(char: char) -> bool {
    if char.is_ascii() { char.is_ascii_alphabetic() } else { LETTERS.has(char) }
}

pub(super) fn is_decimal(char: char) -> bool {
    if char.is_ascii() { char.is_ascii_digit() } else { DECIMALS.has(char) }
}

pub(super) fn is_digit(char: char) -> bool {
    let code = char as u32;
    is_decimal(char) || DIGITS.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

pub(super) fn is_numeric(char: char) -> bool {
    char.is_numeric() || NUMERALS.contains(&(char as u32))
}

pub(super) fn is_alphanumeric(char: char) -> bool {
    is_alpha(char) || is_numeric(char)
}

pub(super) fn is_printable(char: char) -> bool {
    if char.is_ascii() { matches!(char, ' '..='~') } else { !NOT_PRINTABLE.has(char) }
}

/// Characters of `\w` in Python's regular expressions.
pub(super) fn is_word(char: char) -> bool {
    char == '_' || is_alphanumeric(char)
}

pub(super) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    let begins =
        |char: char| char == '_' || char.is_ascii_alphabetic() || !char.is_ascii() && IDENTIFIER_STARTS.has(char);
    let continues =
        |char: char| char == '_' || char.is_ascii_alphanumeric() || !char.is_ascii() && IDENTIFIERS.has(char);
    chars.next().is_some_and(begins) && chars.all(continues)
}

/// True for titlecase letters (category Lt): digraphs, and Greek letters with an iota.
pub(super) fn is_title_letter(char: char) -> bool {
    matches!(
        char as u32,
        0x1c5 | 0x1c8 | 0x1cb | 0x1f2 | 0x1f88..=0x1f8f | 0x1f98..=0x1f9f | 0x1fa8..=0x1faf | 0x1fbc | 0x1fcc | 0x1ffc
    )
}

pub(super) fn is_cased(char: char) -> bool {
    char.is_lowercase() || char.is_uppercase() || is_title_letter(char)
}

/// Appends the titlecase form of a character.
pub(super) fn push_title(char: char, text: &mut String) {
    let code = char as u32;
    let one = match code {
        0x1c4..=0x1cc => Some(0x1c5 + (code - 0x1c4) / 3 * 3),
        0x1f1..=0x1f3 => Some(0x1f2),
        0x10d0..=0x10ff | 0x1fbc | 0x1fcc | 0x1ffc => Some(code),
        0x1f80..=0x1faf => Some(code | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        _ => None,
    };
    if let Some(char) = one.and_then(char::from_u32) {
        text.push(char);
        return;
    }
    for (index, upper) in char.to_uppercase().enumerate() {
        match upper {
            '\u{399}' if index > 0 && (0x1f80..0x2000).contains(&code) => text.push('\u{345}'),
            upper if index > 0 && code != 0x149 => text.extend(upper.to_lowercase()),
            upper => text.push(upper),
        }
    }
}

/// Appends the case folding of a character (`str.casefold`).
pub(super) fn push_folded(char: char, text: &mut String) {
    match char as u32 {
        0x131 => text.push(char),
        0x13a0..=0x13f5 => text.push(char),
        0x13f8..=0x13fd | 0xab70..=0xabbf => text.extend(char.to_uppercase()),
        _ => {
            let lower = char.to_lowercase().flat_map(char::to_uppercase);
            text.extend(lower.flat_map(char::to_lowercase));
        }
    }
}
