//! Plain English in documents and comments, and links that lead somewhere.
//!
//! All Markdown files are checked for these rules:
//! - A sentence has at most [`MAX_WORDS`] words. Tables and headings are exempt.
//! - No sentence begins with a noun clause ([`rules::noun_clause`]), or with a word of [`rules::INVERTED`].
//! - No paraphrase or second spelling of [`rules::BANNED`] and [`rules::BANNED_IN_DOCUMENTS`], and no `makes … of it`.
//! - Each link leads to a file, and each anchor to a heading ([`links`]). Each page of `docs` is in its summary.
//!
//! Comments of Rust files are checked for noun clauses and for [`rules::BANNED`].

mod comments;
mod links;
mod markdown;
mod rules;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::command::{command, output, root};

/// Maximum number of words of a sentence. The aim is 25; lists of names and quoted errors need a few more.
const MAX_WORDS: usize = 28;

/// A paragraph, a list item, a cell or a comment.
#[derive(Debug, Default, PartialEq)]
struct Block {
    /// Line of its beginning, from 1.
    line: usize,
    /// Text without markup; a span of code is one word.
    text: String,
    kind: Kind,
}

/// The rules that a block is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Prose,
    /// A cell of a table; its sentences may have any length.
    Cell,
    /// A comment of a Rust file; its sentences may have any length, and [`rules::BANNED_IN_DOCUMENTS`] are allowed.
    Comment,
}

/// Fails if a file breaks a rule, or if a link is dead.
pub fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for (file, blocks) in all_blocks()? {
        wrong.extend(blocks.iter().flat_map(|block| findings(&file, block)));
    }
    wrong.extend(links::dead(&listed("*.md")?)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}\n{} findings; docs/contributing/documents.md has the rules", wrong.join("\n"), wrong.len())
}

/// The blocks of all Markdown and Rust files, by path.
fn all_blocks() -> Result<BTreeMap<String, Vec<Block>>> {
    let mut all = BTreeMap::new();
    for file in listed("*.md")? {
        let text = read(&file)?;
        all.insert(file, markdown::blocks(&text));
    }
    for file in listed("*.rs")? {
        let text = read(&file)?;
        all.insert(file, comments::blocks(&text));
    }
    Ok(all)
}

/// Broken rules of a block, a line each.
fn findings(file: &str, block: &Block) -> Vec<String> {
    let mut found = Vec::new();
    for sentence in rules::sentences(&block.text) {
        let start: String = sentence.chars().take(60).collect();
        let place = format!("{file}:{}: `{start}`", block.line);
        let words = rules::count_words(sentence);
        if block.kind == Kind::Prose && words > MAX_WORDS {
            found.push(format!("{place} has {words} words, at most {MAX_WORDS}"));
        }
        if let Some(word) = rules::noun_clause(sentence) {
            found.push(format!("{place} begins with the noun clause `{word} …`: begin with its subject"));
        }
        let is_document = block.kind != Kind::Comment;
        if let Some(word) = rules::inverted(sentence).filter(|_| is_document) {
            found.push(format!("{place} begins with `{word}`: begin with its subject, or with `If` or `After`"));
        }
        for (phrase, instead) in rules::banned(sentence, is_document) {
            found.push(format!("{place} has `{phrase}`: write {instead}"));
        }
    }
    found
}

/// Files that git knows or would add, relative to the root.
fn listed(pattern: &str) -> Result<Vec<String>> {
    let mut list = command("git", &["ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]);
    let mut files: Vec<String> = output(&mut list)?.lines().map(str::to_owned).collect();
    // A file that is removed and not staged is still in the index.
    files.retain(|file| root().join(file).exists());
    files.sort();
    files.dedup();
    Ok(files)
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        markdown::blocks(text).iter().flat_map(|block| findings("a.md", block)).collect()
    }

    #[test]
    fn a_plain_sentence_breaks_no_rule() {
        assert_eq!(found("# What is heard\n\nRun `x y z`. It prints a line.\n"), Vec::<String>::new());
    }

    #[test]
    fn a_long_sentence_is_found_with_its_line() {
        let text = format!("Short.\n\n{}.\n", vec!["word"; 36].join(" "));
        let found = found(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.md:3: `word word"), "{found:?}");
        assert!(found[0].contains("has 36 words"));
    }

    #[test]
    fn tables_have_cells_of_any_length_and_banned_phrases() {
        let text = format!("| a | b |\n|---|---|\n| {} | a back end |\n", vec!["word"; 50].join(" "));
        let found = found(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`back end`"));
    }

    #[test]
    fn comments_may_have_phrases_that_documents_may_not() {
        let text = "The numbers part at `conv`.";
        assert_eq!(found(text).len(), 1);
        let comment = Block { line: 1, text: text.to_owned(), kind: Kind::Comment };
        assert_eq!(findings("a.rs", &comment), Vec::<String>::new());
    }

    #[test]
    fn code_and_html_comments_are_not_prose() {
        let text = "<!-- run: What a back end -->\n```console\n$ echo What a back end\n```\nSee `back end`.\n";
        assert_eq!(found(text), Vec::<String>::new());
    }
}
