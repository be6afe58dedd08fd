//! References between the modules of a crate, read from its source.
//!
//! The source is split into tokens and its paths are resolved by name, through
//! imports and re-exports. Macros are not expanded. No library offers this:
//! `cargo-modules` is a program that loads all of rust-analyzer.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Path of a module below its crate: `["virtio", "block"]`; the root is empty.
type ModulePath = Vec<String>;

/// Longest chain of re-exports that is followed.
const MAX_REEXPORTS: usize = 8;

#[derive(Default)]
struct Module {
    /// Names that are imported, with the path as written.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths whose public names are all imported.
    globs: Vec<Vec<String>>,
    /// Names of the items that the module defines.
    items: BTreeSet<String>,
    /// Paths that occur in the module's source, imports included.
    references: BTreeSet<Vec<String>>,
}

/// All modules of one crate, without its tests.
#[derive(Default)]
pub struct Modules(BTreeMap<ModulePath, Module>);

impl Modules {
    /// Reads a crate from its root file, `lib.rs` or `main.rs`.
    ///
    /// # Panics
    /// If a file of the crate is missing or is not Rust.
    pub fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        modules.read_file(root, root.parent().expect("file has a parent"), &[]);
        modules
    }

    /// Sets of sibling modules that import each other in a cycle, one line each:
    /// `parent: name name ...`. References between parent and child do not count.
    pub fn cycles(&self) -> BTreeSet<String> {
        let mut siblings = BTreeMap::<ModulePath, BTreeMap<String, BTreeSet<String>>>::new();
        for (path, module) in &self.0 {
            for reference in &module.references {
                let target = self.resolve(path, reference, MAX_REEXPORTS);
                let common = path.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (path.get(common), target.get(common)) {
                    let uses = siblings.entry(path[..common].to_vec()).or_default();
                    uses.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        let lines = siblings.iter().flat_map(|(parent, uses)| {
            let parent = format!("crate::{}", parent.join("::"));
            let parent = parent.trim_end_matches(':').to_owned();
            components(uses).into_iter().map(move |set| {
                let names: Vec<_> = set.into_iter().collect();
                format!("{parent}: {}", names.join(" "))
            })
        });
        lines.collect()
    }

    /// Reads the file of the module `path`, whose child modules lie in `directory`.
    fn read_file(&mut self, file: &Path, directory: &Path, path: &[String]) {
        let source = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens: TokenStream = source
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.0.entry(path.to_vec()).or_default();
        self.read_tokens(tokens, directory, path);
    }

    fn read_tokens(&mut self, tokens: TokenStream, directory: &Path, path: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while let Some((first, after)) = rest.split_first() {
            rest = match first {
                TokenTree::Punct(_) if is_test_attribute(rest) => after_item(rest),
                TokenTree::Ident(word) if word == "mod" => self.read_child(rest, directory, path),
                TokenTree::Ident(word) if word == "use" => {
                    self.0.entry(path.to_vec()).or_default().import(after);
                    after_item(after)
                }
                TokenTree::Ident(_) => self.0.entry(path.to_vec()).or_default().read_path(rest),
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream(), directory, path);
                    after
                }
                _ => after,
            }
        }
    }

    /// Reads `mod name;` or `mod name { ... }`.
    fn read_child<'t>(
        &mut self,
        tokens: &'t [TokenTree],
        directory: &Path,
        path: &[String],
    ) -> &'t [TokenTree] {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else {
            return &tokens[1..];
        };
        let name = name.to_string();
        let child = [path, std::slice::from_ref(&name)].concat();
        let below = directory.join(&name);
        match tokens.get(2) {
            Some(TokenTree::Group(body)) => {
                self.0.entry(child.clone()).or_default();
                self.read_tokens(body.stream(), &below, &child);
            }
            _ => {
                let flat = directory.join(format!("{name}.rs"));
                let nested = below.join("mod.rs");
                let file = if flat.is_file() { flat } else { nested };
                self.read_file(&file, &below, &child);
            }
        }
        &tokens[3..]
    }

    /// Returns the module that defines what `reference`, written in the module `from`, names.
    fn resolve(&self, from: &[String], reference: &[String], depth: usize) -> ModulePath {
        let mut at = from.to_vec();
        for (index, name) in reference.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop();
                }
                _ => {
                    let child = [&at[..], std::slice::from_ref(name)].concat();
                    if self.0.contains_key(&child) {
                        at = child;
                        continue;
                    }
                    let rest = &reference[index + 1..];
                    return match self.imported(&at, name) {
                        Some(path) if depth > 0 => {
                            self.resolve(&at, &[&path[..], rest].concat(), depth - 1)
                        }
                        _ if index == 0 => from.to_vec(),
                        _ => at,
                    };
                }
            }
        }
        at
    }

    /// Returns the path by which the module `at` imports `name`.
    fn imported(&self, at: &[String], name: &str) -> Option<Vec<String>> {
        let module = self.0.get(at)?;
        if let Some(path) = module.imports.get(name) {
            // `use name::name` of another crate would otherwise resolve to itself.
            return path
                .first()
                .filter(|first| *first != name)
                .map(|_| path.clone());
        }
        // Others are those of another crate, or of an enumeration.
        let is_module = |glob: &&Vec<String>| match glob[0].as_str() {
            "crate" | "self" | "super" => true,
            name => self.0.contains_key(&[at, &[name.to_owned()][..]].concat()),
        };
        let mut globs = module.globs.iter().filter(is_module);
        let glob = globs.find(|glob| {
            let target = self.resolve(at, glob, 0);
            target != at && self.0.get(&target).is_some_and(|m| m.items.contains(name))
        })?;
        Some([&glob[..], &[name.to_owned()]].concat())
    }
}

impl Module {
    /// Reads a path, or the definition of an item.
    fn read_path<'t>(&mut self, tokens: &'t [TokenTree]) -> &'t [TokenTree] {
        const DEFINITIONS: [&str; 8] = [
            "fn", "struct", "enum", "union", "trait", "type", "const", "static",
        ];
        let (path, rest) = leading_path(tokens);
        if path.len() > 1 {
            self.references.insert(path);
        } else if DEFINITIONS.contains(&path[0].as_str()) {
            self.items.extend(rest.first().map(ToString::to_string));
        }
        rest
    }

    /// Reads what stands between `use` and the semicolon.
    fn import(&mut self, tokens: &[TokenTree]) {
        let end = tokens
            .iter()
            .position(|t| is_punct(t, ';'))
            .unwrap_or(tokens.len());
        self.import_tree(&tokens[..end], &[]);
    }

    fn import_tree(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        let (names, rest) = leading_path(tokens);
        let path = [prefix, &names].concat();
        match rest.iter().find(|token| !is_punct(token, ':')) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for tree in inner.split(|token| is_punct(token, ',')) {
                    if !tree.is_empty() {
                        self.import_tree(tree, &path);
                    }
                }
                return;
            }
            Some(token) if is_punct(token, '*') => self.globs.push(path.clone()),
            Some(TokenTree::Ident(word)) if word == "as" => {
                let alias = rest.last().map(ToString::to_string);
                self.imports
                    .extend(alias.map(|alias| (alias, path.clone())));
            }
            _ => {
                let mut path = path.clone();
                if path.last().is_some_and(|name| name == "self") {
                    path.pop();
                }
                self.imports
                    .extend(path.last().cloned().map(|name| (name, path)));
            }
        }
        self.references.insert(path);
    }
}

/// Splits `a::b::c rest` into the path's names and the rest.
fn leading_path(tokens: &[TokenTree]) -> (Vec<String>, &[TokenTree]) {
    let mut names = Vec::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(name), after @ ..] = rest {
        names.push(name.to_string());
        match after {
            [a, b, after @ ..]
                if is_punct(a, ':')
                    && is_punct(b, ':')
                    && matches!(after, [TokenTree::Ident(_), ..]) =>
            {
                rest = after;
            }
            _ => return (names, after),
        }
    }
    (names, rest)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Returns whether the tokens begin with `#[cfg(test)]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(group), ..] = tokens else {
        return false;
    };
    is_punct(hash, '#') && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Returns the tokens after the first item, which ends with a semicolon or braces.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let last = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    });
    last.map_or(&[], |last| &tokens[last + 1..])
}

/// Returns the strongly connected components with more than one node.
fn components(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reachable = |from: &String| {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for next in uses.get(node).into_iter().flatten() {
                if found.insert(next) {
                    open.push(next);
                }
            }
        }
        found
    };
    let reach: BTreeMap<_, _> = uses.keys().map(|node| (node, reachable(node))).collect();
    let component = |node: &String| {
        let mutual = reach
            .iter()
            .filter(|(other, back)| reach[node].contains(**other) && back.contains(node));
        mutual
            .map(|(other, _)| (*other).clone())
            .collect::<BTreeSet<_>>()
    };
    uses.keys()
        .map(component)
        .filter(|set| set.len() > 1)
        .collect()
}
