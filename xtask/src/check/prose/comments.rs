//! The comments of Rust files.

use super::{Block, Kind, markdown};

/// The comments that stand in lines of their own. Their sentences may have any length.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let comment = comment(line.trim_start());
        if open.as_ref().is_none_or(|(_, marker, _)| comment.is_none_or(|(other, _)| other != *marker)) {
            close(&mut open, &mut blocks);
        }
        if let Some((marker, content)) = comment {
            let (_, _, text) = open.get_or_insert_with(|| (index, marker, String::new()));
            text.push_str(content);
            text.push('\n');
        }
    }
    close(&mut open, &mut blocks);
    blocks
}

/// Splits a comment into its marker and its text.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    ["///", "//!", "//"].into_iter().find_map(|marker| line.strip_prefix(marker).map(|text| (marker, text)))
}

/// Adds the blocks of a comment, whose text is Markdown.
fn close(open: &mut Option<(usize, &str, String)>, blocks: &mut Vec<Block>) {
    if let Some((start, _, text)) = open.take() {
        blocks.extend(markdown::blocks(&text).into_iter().map(|block| Block {
            line: block.line + start,
            kind: Kind::Comment,
            ..block
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blocks_with_their_lines() {
        let text = "//! One\n//! two.\n\n/// Three.\n/// ```\n/// code\n/// ```\nfn f() {\n    // Four `x`.\n}\n";
        let found: Vec<(usize, String)> = blocks(text).into_iter().map(|b| (b.line, b.text)).collect();
        let expected = [(1, "One two."), (4, "Three."), (9, "Four `.")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
