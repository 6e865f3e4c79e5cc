//! The texts below the options of a command: examples and explanations.

use clap::Command;

/// Columns of a terminal that shows every example unbroken.
const COLUMNS: usize = 80;

/// Indentation of notes below an example.
const BELOW: &str = "      ";

/// Fits the texts of a command and of its subcommands to 80 columns. Source code breaks the lines of a paragraph, which clap would
/// break a second time.
pub fn fitted(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(fitted_text(&text));
    }
    command.mut_subcommands(fitted)
}

/// Makes each paragraph one line, which clap breaks at the width of the terminal. Examples are indented. If one of a list is too wide,
/// the notes of all stand below them.
fn fitted_text(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text.lines().peekable();
    let mut is_prose = false;
    while let Some(line) = rest.next() {
        if line.starts_with("  ") {
            let mut examples = vec![line];
            while let Some(next) = rest.next_if(|next| next.starts_with("  ")) {
                examples.push(next);
            }
            add_examples(&examples, &mut lines);
        } else if let Some(last) = lines.last_mut().filter(|_| is_prose && !line.is_empty()) {
            *last = format!("{last} {line}");
        } else {
            lines.push(line.to_owned());
        }
        is_prose = !line.is_empty() && !line.starts_with("  ") && !line.ends_with(':');
    }
    lines.join("\n")
}

fn add_examples(examples: &[&str], lines: &mut Vec<String>) {
    if examples.iter().all(|line| line.chars().count() <= COLUMNS) {
        return lines.extend(examples.iter().copied().map(str::to_owned));
    }
    for line in examples {
        let (example, note) = match line.trim_start().rsplit_once("  ") {
            // The note of the line above.
            _ if line.starts_with(BELOW) => ("", line.trim_start()),
            Some((example, note)) => (example.trim_end(), note),
            None => (line.trim_start(), ""),
        };
        if !example.is_empty() {
            add_continued(&format!("  {example}"), lines);
        }
        add_words(note, lines);
    }
}

/// Adds a note in lines below an example.
fn add_words(note: &str, lines: &mut Vec<String>) {
    let mut line = BELOW.to_owned();
    for word in note.split(' ').filter(|word| !word.is_empty()) {
        if line != BELOW && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(std::mem::replace(&mut line, BELOW.to_owned()));
        }
        let space = if line == BELOW { "" } else { " " };
        line = format!("{line}{space}{word}");
    }
    if line != BELOW {
        lines.push(line);
    }
}

/// Adds a command. If it is too wide, it continues behind a backslash, as shells read it.
fn add_continued(command: &str, lines: &mut Vec<String>) {
    let mut rest = command.to_owned();
    while rest.chars().count() > COLUMNS {
        let end = rest.char_indices().nth(COLUMNS - 2).map_or(rest.len(), |(at, _)| at);
        let Some(at) = rest.get(..end).and_then(|start| start.rfind(" -").or_else(|| start.rfind(' '))) else { break };
        if at <= BELOW.len() {
            break;
        }
        lines.push(format!("{} \\", &rest[..at]));
        rest = format!("{BELOW}{}", rest[at..].trim_start());
    }
    lines.push(rest);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Calls `visit` with a command and all below it.
    fn visit(command: &Command, visitor: &mut impl FnMut(&Command)) {
        visitor(command);
        command.get_subcommands().for_each(|command| visit(command, visitor));
    }

    #[test]
    fn examples_have_80_columns_and_no_paragraph_is_broken() {
        let mut count = 0;
        visit(&fitted(crate::Cli::command()), &mut |command| {
            let Some(text) = command.get_after_help().map(ToString::to_string) else { return };
            count += 1;
            let lines: Vec<&str> = text.lines().collect();
            for line in lines.iter().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= COLUMNS, "{}: {line}", command.get_name());
            }
            for two in lines.windows(2) {
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let is_broken = is_prose(two[0]) && is_prose(two[1]) && !two[0].ends_with(':');
                assert!(!is_broken, "{}: {two:?}", command.get_name());
            }
        });
        assert!(count > 10, "{count}");
    }

    #[test]
    fn the_verbosity_comes_last() {
        let mut root = fitted(crate::Cli::command());
        root.build();
        visit(&root, &mut |command| {
            let orders = |is_global: bool| {
                let is_last = |name: &str| matches!(name, "quiet" | "verbose" | "help" | "version");
                let options = command.get_arguments().filter(|arg| !arg.is_positional());
                options.filter(move |arg| is_last(arg.get_id().as_str()) == is_global).map(clap::Arg::get_display_order)
            };
            if let (Some(own), Some(last)) = (orders(false).max(), orders(true).min()) {
                assert!(own < last, "{}", command.get_name());
            }
        });
    }

    #[test]
    fn wide_examples_have_their_notes_below() {
        let wide = format!(
            "Examples:\n  short x   what it does\n  {} {}\n\nOne\nparagraph.",
            "a".repeat(60),
            "-b ".repeat(12).trim_end()
        );
        let expected = format!(
            "Examples:\n  short x\n      what it does\n  {}{} \\\n      -b -b -b -b -b -b -b -b\n\nOne paragraph.",
            "a".repeat(60),
            " -b".repeat(4)
        );
        assert_eq!(fitted_text(&wide), expected);
    }
}
