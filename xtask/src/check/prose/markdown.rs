//! The prose of Markdown: paragraphs, list items and cells, without code, comments and markup.

use super::{Block, Kind};

/// The blocks of a document. Headings are none.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open = Block::default();
    let mut close = |open: &mut Block| {
        let block = std::mem::take(open);
        let text = plain(&block.text);
        if !text.is_empty() {
            blocks.push(Block { text, ..block });
        }
    };
    for (number, line) in lines_without_code(text) {
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            close(&mut open);
            continue;
        }
        if content.starts_with('|') {
            close(&mut open);
            for cell in content.trim_matches('|').split('|') {
                let mut cell = Block { line: number, text: cell.trim().to_owned(), kind: Kind::Cell };
                close(&mut cell);
            }
            continue;
        }
        let item = item(content);
        if item.is_some() {
            close(&mut open);
        }
        if open.text.is_empty() {
            open.line = number;
        } else {
            open.text.push(' ');
        }
        open.text.push_str(item.unwrap_or(content));
    }
    close(&mut open);
    blocks
}

/// The text of a list item or a quotation that begins in a line.
fn item(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if rest.len() < line.len() { rest.strip_prefix(". ") } else { None };
    numbered.or_else(|| ["- ", "* ", "> "].iter().find_map(|marker| line.strip_prefix(marker)))
}

/// The lines outside of fenced code and HTML comments, with their numbers from 1.
pub fn lines_without_code(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let (mut fence, mut in_comment) = (None, false);
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        if in_comment {
            in_comment = !content.contains("-->");
            continue;
        }
        let marker: String = content.chars().take_while(|c| *c == '`').collect();
        if let Some(open) = &fence {
            if marker == *open {
                fence = None;
            }
            continue;
        }
        if marker.len() >= 3 {
            fence = Some(marker);
            lines.push((index + 1, ""));
        } else if content.starts_with("<!--") {
            in_comment = !content.contains("-->");
        } else {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// A text without markup: a span of code is a backtick, a link its text.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[', ']']) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        let marker = from.chars().next().unwrap_or_default();
        rest = from.get(1..).unwrap_or_default();
        match marker {
            '`' => {
                let ticks = from.len() - from.trim_start_matches('`').len();
                let (fence, code) = from.split_at(ticks);
                rest = code.split_once(fence).map_or("", |(_, rest)| rest);
                plain.push('`');
            }
            // The target of a link.
            ']' if rest.starts_with('(') => rest = rest.split_once(')').map_or("", |(_, rest)| rest),
            _ => {}
        }
    }
    plain.push_str(rest);
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_removed() {
        assert_eq!(plain("**Run** [the `x y`](a.md#b) or ``a ` b``."), "Run the ` or `.");
    }

    #[test]
    fn items_and_paragraphs_are_blocks() {
        let text = "One\ntwo.\n\n- three\n  four\n1. five\n\n# Six\n| a | b |\n";
        let found: Vec<(usize, String)> = blocks(text).into_iter().map(|b| (b.line, b.text)).collect();
        let expected = [(1, "One two."), (4, "three four"), (6, "five"), (9, "a"), (9, "b")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn fences_end_with_the_marker_that_began_them() {
        let lines = lines_without_code("a\n````\n```\nb\n```\n````\nc\n<!-- d\ne -->\nf\n");
        let texts: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
        assert_eq!(texts, ["a", "", "c", "f"]);
    }
}
