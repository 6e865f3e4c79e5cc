//! The repository's Rust sources as tokens, so that comments and strings mislead no check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::command::{command, output, root};

/// All `.rs` files that git knows or would add, relative to the root of the repository.
pub fn files() -> Result<Vec<PathBuf>> {
    let mut list = command("git", &["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs"]);
    let mut files: Vec<PathBuf> = output(&mut list)?.lines().map(PathBuf::from).collect();
    // A file that is removed and not staged is still in the index.
    files.retain(|file| root().join(file).exists());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The tokens of a file, whose path is relative to the root of the repository.
pub fn tokens(file: &Path) -> Result<TokenStream> {
    let text = fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {}", file.display()))?;
    TokenStream::from_str(&text).map_err(|error| anyhow!("{}: {error}", file.display()))
}

/// Adds all identifiers, those in groups too.
pub fn identifiers(tokens: &TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => {
                found.insert(ident.to_string());
            }
            TokenTree::Group(group) => identifiers(&group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// A module of a crate, without its tests.
#[derive(Debug, Default)]
pub struct Module {
    /// The file that it is in, relative to the folder of the crate's root.
    pub file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of the items that it defines.
    items: BTreeSet<String>,
    /// Names that it imports, or exports again, and their paths.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths that it mentions, but for those that it only exports again.
    paths: BTreeSet<Vec<String>>,
    identifiers: BTreeSet<String>,
}

/// The modules of one crate; the first is its root.
#[derive(Debug)]
pub struct Crate {
    pub modules: Vec<Module>,
}

/// The most imports that a name is followed through.
const MAX_IMPORTS: usize = 16;

impl Crate {
    /// Reads the modules of a crate from the file of its root.
    pub fn read(file: &Path) -> Result<Self> {
        let mut this = Self { modules: Vec::new() };
        let folder = file.parent().unwrap_or(Path::new(""));
        let name = file.file_name().map(PathBuf::from).unwrap_or_default();
        this.module(folder, name, Path::new(""), None)?;
        Ok(this)
    }

    /// Reads the module of a file, and those below it. Files of its children are in `below`.
    fn module(&mut self, folder: &Path, file: PathBuf, below: &Path, parent: Option<usize>) -> Result<usize> {
        let tokens: Vec<TokenTree> = tokens(&folder.join(&file))?.into_iter().collect();
        let index = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        self.items(folder, below, index, &tokens)?;
        Ok(index)
    }

    /// Reads the items of a module.
    fn items(&mut self, folder: &Path, below: &Path, index: usize, tokens: &[TokenTree]) -> Result<()> {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(attribute)) = tokens.get(at)
                        && is_test(&attribute.stream())
                    {
                        at = end_of_item(tokens, at + 1);
                    }
                }
                // A lifetime: `'static` defines no item.
                TokenTree::Punct(punct) if punct.as_char() == '\'' => at += 1,
                TokenTree::Ident(ident) => {
                    let ident = ident.to_string();
                    let name = tokens.get(at).map(ToString::to_string).unwrap_or_default();
                    match ident.as_str() {
                        "mod" => {
                            let child = match tokens.get(at + 1) {
                                Some(TokenTree::Group(body)) => {
                                    let child = self.modules.len();
                                    let file = self.modules[index].file.clone();
                                    self.modules.push(Module { file, parent: Some(index), ..Module::default() });
                                    let body: Vec<TokenTree> = body.stream().into_iter().collect();
                                    self.items(folder, &below.join(&name), child, &body)?;
                                    child
                                }
                                _ => {
                                    let inner = below.join(&name);
                                    let nested = inner.join("mod.rs");
                                    let files = [nested, inner.with_extension("rs")];
                                    // With a path of its own, it belongs to another crate.
                                    let file = files.into_iter().find(|file| root().join(folder).join(file).exists());
                                    let Some(file) = file else { continue };
                                    self.module(folder, file, &inner, Some(index))?
                                }
                            };
                            self.modules[index].children.insert(name, child);
                            at += 2;
                        }
                        "use" => {
                            let is_exported = is_exported(&tokens[..at - 1]);
                            let end = at + tokens[at..].iter().position(|t| is(t, ';')).unwrap_or(0);
                            self.import(index, &tokens[at..end], &[], is_exported);
                            at = end;
                        }
                        "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                            self.modules[index].items.insert(name);
                        }
                        _ => {
                            self.modules[index].identifiers.insert(ident);
                            at = self.path(index, tokens, at - 1);
                        }
                    }
                }
                TokenTree::Group(group) => self.body(index, &group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        Ok(())
    }

    /// Reads code below a module's level: bodies, fields, arguments.
    fn body(&mut self, index: usize, tokens: &TokenStream) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(attribute)) = tokens.get(at)
                        && is_test(&attribute.stream())
                    {
                        at = end_of_item(&tokens, at + 1);
                    }
                }
                TokenTree::Ident(ident) if ident == "use" => {
                    let end = at + tokens[at..].iter().position(|t| is(t, ';')).unwrap_or(0);
                    self.import(index, &tokens[at..end], &[], false);
                    at = end;
                }
                TokenTree::Ident(ident) => {
                    self.modules[index].identifiers.insert(ident.to_string());
                    at = self.path(index, &tokens, at - 1);
                }
                TokenTree::Group(group) => self.body(index, &group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Reads a path of two names or more that begins at a token; returns the token after it.
    fn path(&mut self, index: usize, tokens: &[TokenTree], start: usize) -> usize {
        let mut names = vec![tokens[start].to_string()];
        let mut at = start + 1;
        while let (Some(a), Some(b), Some(TokenTree::Ident(name))) =
            (tokens.get(at), tokens.get(at + 1), tokens.get(at + 2))
            && is(a, ':')
            && is(b, ':')
        {
            names.push(name.to_string());
            at += 3;
        }
        if names.len() > 1 {
            self.modules[index].paths.insert(names);
        }
        at
    }

    /// Reads the tree of an import.
    fn import(&mut self, index: usize, tokens: &[TokenTree], prefix: &[String], is_exported: bool) {
        for tree in tokens.split(|token| is(token, ',')) {
            let mut path = prefix.to_vec();
            let mut name = None;
            let mut tree = tree.iter().peekable();
            let mut is_done = false;
            while let Some(token) = tree.next() {
                match token {
                    TokenTree::Ident(ident) if ident == "as" => name = tree.next().map(ToString::to_string),
                    TokenTree::Ident(ident) => path.push(ident.to_string()),
                    TokenTree::Punct(punct) if punct.as_char() == '*' => {
                        self.modules[index].globs.push(path.clone());
                        is_done = true;
                    }
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.import(index, &inner, &path, is_exported);
                        is_done = true;
                    }
                    _ => {}
                }
            }
            if is_done || path.is_empty() {
                continue;
            }
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let Some(name) = name.or_else(|| path.last().cloned()) else { continue };
            if !is_exported {
                self.modules[index].paths.insert(path.clone());
            }
            self.modules[index].imports.insert(name, path);
        }
    }

    /// The files, by their modules, that a module's items are made of.
    pub fn uses(&self, index: usize) -> BTreeSet<usize> {
        let module = &self.modules[index];
        let mut found: BTreeSet<usize> =
            module.paths.iter().filter_map(|path| self.resolve(index, path, MAX_IMPORTS)?.item()).collect();
        for glob in &module.globs {
            let Some(Found::Module(target)) = self.resolve(index, glob, MAX_IMPORTS) else { continue };
            for name in &module.identifiers {
                found.extend(self.name(target, name, MAX_IMPORTS).and_then(Found::item));
            }
        }
        found
    }

    fn resolve(&self, index: usize, path: &[String], left: usize) -> Option<Found> {
        let mut found = Found::Module(index);
        for name in path {
            let Found::Module(module) = found else { break };
            found = match name.as_str() {
                "crate" => Found::Module(0),
                "self" => Found::Module(module),
                "super" => Found::Module(self.modules[module].parent?),
                _ => self.name(module, name, left)?,
            };
        }
        Some(found)
    }

    /// Finds the meaning of a name in a module.
    fn name(&self, index: usize, name: &str, left: usize) -> Option<Found> {
        let module = &self.modules[index];
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Found::Item(index));
        }
        let left = left.checked_sub(1)?;
        if let Some(path) = module.imports.get(name) {
            // `use name;` and `use name::…` of another crate do not name themselves.
            let is_own = path[0] == *name && !module.children.contains_key(name);
            return if is_own { None } else { self.resolve(index, path, left) };
        }
        module.globs.iter().find_map(|glob| match self.resolve(index, glob, left)? {
            Found::Module(target) if target != index => self.name(target, name, left),
            _ => None,
        })
    }
}

/// The target of a path: a module, or an item of one.
#[derive(Clone, Copy, Debug)]
enum Found {
    Module(usize),
    Item(usize),
}

impl Found {
    fn item(self) -> Option<usize> {
        match self {
            Self::Module(_) => None,
            Self::Item(module) => Some(module),
        }
    }
}

fn is(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == punct)
}

/// True for `cfg(test)`, alone or among others, and `test`.
fn is_test(attribute: &TokenStream) -> bool {
    let mut names = BTreeSet::new();
    identifiers(attribute, &mut names);
    names.contains("test") && !names.contains("not") && (names.contains("cfg") || names.len() == 1)
}

/// True if the tokens before `use` end with `pub` or `pub(…)`.
fn is_exported(before: &[TokenTree]) -> bool {
    let before = match before {
        [before @ .., TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => before,
        before => before,
    };
    matches!(before, [.., TokenTree::Ident(ident)] if ident == "pub")
}

/// The token after an item, which may begin with more attributes.
fn end_of_item(tokens: &[TokenTree], start: usize) -> usize {
    let mut ends_with_semicolon = false;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            TokenTree::Ident(ident) if ["use", "const", "static", "type", "let"].iter().any(|word| ident == word) => {
                ends_with_semicolon = true;
            }
            // `const fn` is a function.
            TokenTree::Ident(ident) if ident == "fn" => ends_with_semicolon = false,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !ends_with_semicolon => return at + 1,
            TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
