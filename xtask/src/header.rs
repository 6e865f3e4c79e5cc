//! The C header, which cbindgen makes of the comments in `bindings/c`, and the list of its declarations, by versions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::{command, output, root};
use crate::setup;

/// Columns of a comment.
const WIDTH: usize = 100;

/// The folder of the C ABI.
pub const FOLDER: &str = "bindings/c";

/// Writes the header and the list.
pub fn write() -> Result<()> {
    let header = generate()?;
    fs::write(path(), &header)?;
    println!("{}", path().display());
    let (listed, now) = (listed()?, declarations(&header));
    let version = version()?;
    let mut wrong = Vec::new();
    for (name, Declared { version: since, text }) in listed.iter().filter(|(_, old)| old.version != version) {
        match now.get(name) {
            Some(now) if now == text || is_extended(text, now) => {}
            Some(now) => wrong.push(format!("{name}, since {since}, was\n  {text}\nand is\n  {now}")),
            None => wrong.push(format!("{name}, since {since}, is gone")),
        }
    }
    if !wrong.is_empty() {
        bail!("programs that were built with an older header break:\n{}", wrong.join("\n"));
    }
    let mut list = String::new();
    for (name, text) in &now {
        let since = listed.get(name).map_or(&version, |old| &old.version);
        writeln!(list, "{since} {text}")?;
    }
    fs::write(list_path(), list)?;
    println!("{}", list_path().display());
    Ok(())
}

/// Fails if the header or the list is not what the sources say.
pub fn check() -> Result<()> {
    let header = generate()?;
    if fs::read_to_string(path()).unwrap_or_default() != header {
        bail!("{} is not what {FOLDER}/src/ffi says: run `cargo xtask header`", path().display());
    }
    let (listed, now) = (listed()?, declarations(&header));
    let mut wrong: Vec<String> = Vec::new();
    for (name, text) in &now {
        match listed.get(name) {
            Some(old) if old.text == *text => {}
            Some(old) => wrong.push(format!("- {}\n+ {text}", old.text)),
            None => wrong.push(format!("+ {text}")),
        }
    }
    wrong.extend(listed.iter().filter(|(name, _)| !now.contains_key(*name)).map(|(_, old)| format!("- {}", old.text)));
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("the C ABI has changed; if that is meant, run `cargo xtask header`:\n{}", wrong.join("\n"))
}

/// The functions, by the version that they are there since.
fn functions() -> Result<BTreeMap<Vec<u32>, Vec<String>>> {
    let mut versions: BTreeMap<Vec<u32>, Vec<String>> = BTreeMap::new();
    for (name, declared) in listed()? {
        if declared.text.contains(&format!("{name}(")) && !declared.text.starts_with("typedef") {
            let numbers = declared.version.split('.').map(str::parse).collect::<Result<_, _>>()?;
            versions.entry(numbers).or_default().push(name);
        }
    }
    Ok(versions)
}

/// The name of a version in the shared library.
fn node(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("RUSHLIGHT_{}", numbers.join("."))
}

/// The version script of the shared library.
pub fn version_script() -> Result<String> {
    let mut script = String::new();
    let mut before: Option<String> = None;
    for (numbers, names) in functions()? {
        let node = node(&numbers);
        writeln!(script, "{node} {{\n  global:\n    {};", names.join(";\n    "))?;
        match &before {
            None => writeln!(script, "  local:\n    *;\n}};")?,
            Some(before) => writeln!(script, "}} {before};")?,
        }
        before = Some(node);
    }
    Ok(script)
}

/// The functions of all versions.
pub fn names() -> Result<Vec<String>> {
    Ok(functions()?.into_values().flatten().collect())
}

/// The symbols that the shared library exports, with their versions, as `nm` prints them.
pub fn symbols() -> Result<Vec<String>> {
    let of_version = |(numbers, names): (Vec<u32>, Vec<String>)| {
        let node = node(&numbers);
        names.into_iter().map(move |name| format!("{name}@@{node}"))
    };
    Ok(functions()?.into_iter().flat_map(of_version).collect())
}

fn path() -> PathBuf {
    root().join(FOLDER).join("include/rushlight.h")
}

fn list_path() -> PathBuf {
    root().join("docs/api/rushlight-c.txt")
}

/// Major and minor version: an item that is new in a patch release counts as part of the release that it repairs.
fn version() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let (version, _) = version.rsplit_once('.').context("the version has three numbers")?;
    Ok(version.to_owned())
}

fn generate() -> Result<String> {
    setup::one("cbindgen")?;
    let config = format!("{FOLDER}/cbindgen.toml");
    let made = output(&mut command(setup::tool("cbindgen")?, &["--quiet", "--config", &config, FOLDER]))?;
    for (index, name) in ["MAJOR", "MINOR", "PATCH"].iter().enumerate() {
        let number = env!("CARGO_PKG_VERSION").split('.').nth(index).unwrap_or_default();
        if !made.contains(&format!("#define RL_VERSION_{name} {number}\n")) {
            bail!("{config} has another version than the crates, {}", env!("CARGO_PKG_VERSION"));
        }
    }
    Ok(wrapped(&made))
}

/// The header with comments of at most [`WIDTH`] columns.
fn wrapped(header: &str) -> String {
    let mut wrapped = String::new();
    let mut paragraph: Option<(String, String)> = None;
    let flush = |wrapped: &mut String, paragraph: &mut Option<(String, String)>| {
        let Some((indent, text)) = paragraph.take() else { return };
        let mut line = format!("{indent}//");
        for word in text.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > indent.len() + 2 {
                wrapped.push_str(&line);
                wrapped.push('\n');
                line = format!("{indent}//");
            }
            line.push(' ');
            line.push_str(word);
        }
        wrapped.push_str(&line);
        wrapped.push('\n');
    };
    for line in header.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        match line.trim_start().strip_prefix("//") {
            // Code, and empty lines, stay as they are.
            Some(text) if !text.is_empty() && !text.starts_with("  ") => match &mut paragraph {
                Some((same, before)) if same == indent => before.push_str(text),
                _ => {
                    flush(&mut wrapped, &mut paragraph);
                    paragraph = Some((indent.to_owned(), text.to_owned()));
                }
            },
            _ => {
                flush(&mut wrapped, &mut paragraph);
                wrapped.push_str(line.trim_end());
                wrapped.push('\n');
            }
        }
    }
    flush(&mut wrapped, &mut paragraph);
    wrapped
}

/// The listed declarations, and the version of each.
struct Declared {
    version: String,
    text: String,
}

fn listed() -> Result<BTreeMap<String, Declared>> {
    let text = fs::read_to_string(list_path()).unwrap_or_default();
    let mut listed = BTreeMap::new();
    for line in text.lines() {
        let (version, text) = line.split_once(' ').with_context(|| format!("`{line}` has no version"))?;
        listed.insert(name_of(text).to_owned(), Declared { version: version.to_owned(), text: text.to_owned() });
    }
    Ok(listed)
}

/// The functions and types of a header, each in one line, by their names.
fn declarations(header: &str) -> BTreeMap<String, String> {
    // A line after a backslash continues a macro.
    let header = header.replace("\\\n", " ");
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.starts_with('#');
    let code = header.lines().filter(is_code).collect::<Vec<_>>().join(" ").replace("extern \"C\" {", "");
    let mut declarations = BTreeMap::new();
    let (mut depth, mut text) = (0usize, String::new());
    for character in code.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                text.clear();
                let is_alias = line.starts_with("typedef uint32_t") || line == "struct DLManagedTensorVersioned";
                if !is_alias {
                    declarations.insert(name_of(&line).to_owned(), line);
                }
                continue;
            }
            _ => {}
        }
        text.push(character);
    }
    declarations
}

/// The name that a declaration declares.
fn name_of(declaration: &str) -> &str {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let part = if let Some((_, rest)) = declaration.split_once("(*") {
        // A type of functions.
        if declaration.starts_with("typedef") { rest } else { declaration }
    } else if let Some(rest) = declaration.strip_prefix("enum ") {
        rest
    } else if declaration.starts_with("typedef") {
        return declaration.rsplit(|character| !is_name(character)).next().unwrap_or_default();
    } else {
        declaration
    };
    if part.len() < declaration.len() {
        return part.split(|character| !is_name(character)).next().unwrap_or_default();
    }
    let before = part.split('(').next().unwrap_or_default();
    before.rsplit(|character| !is_name(character)).next().unwrap_or_default()
}

/// True if a type only got more at its end: an enumeration, or a structure that says its size.
fn is_extended(old: &str, new: &str) -> bool {
    let fields = |text: &str| -> Option<Vec<String>> {
        let (_, inside) = text.split_once('{')?;
        let (inside, _) = inside.rsplit_once('}')?;
        Some(inside.split([';', ',']).map(|field| field.trim().to_owned()).filter(|field| !field.is_empty()).collect())
    };
    let can_grow = old.starts_with("enum ") || old.contains("{ size_t struct_size;");
    match (fields(old), fields(new)) {
        (Some(old), Some(new)) => can_grow && new.starts_with(&old),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_have_their_names() {
        let header = "// A.\ntypedef struct rl_a {\n  size_t struct_size;\n} rl_a;\nenum rl_e\n {\n  RL_X = 0,\n};\n\
                      typedef void (*rl_f)(int);\nstruct rl_a *rl_make(const char *name,\n  rl_f f);\n";
        let names: Vec<String> = declarations(header).into_keys().collect();
        assert_eq!(names, ["rl_a", "rl_e", "rl_f", "rl_make"]);
    }

    #[test]
    fn only_what_can_grow_may_grow() {
        let (old, new) = (
            "typedef struct a { size_t struct_size; int x; } a",
            "typedef struct a { size_t struct_size; int x; int y; } a",
        );
        assert!(is_extended(old, new));
        assert!(!is_extended(new, old));
        assert!(!is_extended("typedef struct a { int x; } a", "typedef struct a { int x; int y; } a"));
    }

    #[test]
    fn comments_are_wrapped_and_code_in_them_is_not() {
        let long = "word ".repeat(40);
        let wrapped = wrapped(&format!("  // {long}\n//     code   stays\nint x;\n"));
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH));
        assert!(wrapped.starts_with("  // word") && wrapped.ends_with("//     code   stays\nint x;\n"));
    }
}
