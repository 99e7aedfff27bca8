//! Parses the modules of one build target: files, names and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use syn::buffer::Cursor;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Meta, TraitItem, UseTree, Visibility};

/// A function that returns the text of a source file, or `None` if there is no such file.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// One leaf of a `use` tree.
pub struct Import {
    pub path: Vec<String>,
    /// The name by which the importing module refers to it; `None` for a glob.
    pub name: Option<String>,
    /// Whether the `use` item has a visibility, so that other modules may import the name.
    pub reexport: bool,
}

/// A module, in a file of its own or inline, without its test code.
#[derive(Default)]
pub struct Module {
    pub file: PathBuf,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// The names of the module's items, other than modules and imports.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// The paths of two segments and more in the module's code.
    pub paths: BTreeSet<Vec<String>>,
    /// The first segments of all paths in the module's code, without those of `use` items.
    pub names: BTreeSet<String>,
}

/// The modules of one build target; the first is the root.
pub struct Modules(pub Vec<Module>);

impl Modules {
    /// Reads the target whose root is this file, and every file that it declares.
    pub fn of_target(root: &Path, read: Read<'_>) -> Self {
        let mut modules = Self(vec![Module { file: root.to_owned(), ..Module::default() }]);
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        modules.add_file(0, &folder, read);
        modules
    }

    /// Adds the contents of the module's file. Its children's files are searched in `folder`.
    fn add_file(&mut self, module: usize, folder: &Path, read: Read<'_>) {
        let file = self.0[module].file.clone();
        let text = read(&file).ok_or(&file).expect("the file of a `mod` line");
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()));
        let parsed = parsed.expect("a file that rustc parses");
        self.add_items(module, &parsed.items, folder, read);
    }

    fn add_items(&mut self, module: usize, items: &[Item], folder: &Path, read: Read<'_>) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(declared) = item {
                let name = declared.ident.unraw().to_string();
                let file = self.0[module].file.clone();
                let child = Module { file, parent: Some(module), ..Module::default() };
                let index = self.0.len();
                self.0.push(child);
                self.0[module].children.insert(name.clone(), index);
                if let Some((_, items)) = &declared.content {
                    self.add_items(index, items, &folder.join(name), read);
                } else {
                    let (file, folder) = self.child_file(module, &name, declared, folder, read);
                    self.0[index].file = file;
                    self.add_file(index, &folder, read);
                }
            } else {
                self.0[module].items.extend(name_of(item));
                Code { module: &mut self.0[module] }.visit_item(item);
            }
        }
    }

    /// Returns the file of a `mod` line, and the directory of that module's own children.
    fn child_file(
        &self,
        module: usize,
        name: &str,
        declared: &syn::ItemMod,
        folder: &Path,
        read: Read<'_>,
    ) -> (PathBuf, PathBuf) {
        let parent = &self.0[module].file;
        let path = declared.attrs.iter().find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
                _ => None,
            },
            _ => None,
        });
        if let Some(path) = path {
            // The path is relative to the directory of the file that contains the `mod` line; in an
            // inline module, to that module's directory.
            let inline = self.0[module].parent.is_some_and(|above| self.0[above].file == *parent);
            let beside = if inline { folder } else { parent.parent().unwrap_or(Path::new("")) };
            let file = normalized(&beside.join(path));
            let folder = file.parent().unwrap_or(Path::new("")).to_owned();
            return (file, folder);
        }
        let (own, nested) = (folder.join(format!("{name}.rs")), folder.join(name));
        let file = if read(&own).is_some() { own } else { nested.join("mod.rs") };
        (file, nested)
    }
}

/// Returns the path without `..`, so that each file has a single path.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            normalized.pop();
        } else {
            normalized.push(component);
        }
    }
    normalized
}

/// Returns whether the code below these attributes is built for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Returns whether a condition of `cfg` holds in tests only. The feature `fuzz` counts as a test.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(pair) => {
            let fuzz =
                |lit: &syn::ExprLit| matches!(&lit.lit, syn::Lit::Str(s) if s.value() == "fuzz");
            pair.path.is_ident("feature")
                && matches!(&pair.value, syn::Expr::Lit(value) if fuzz(value))
        }
        Meta::List(list) => {
            let parts = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parts) else { return false };
            (list.path.is_ident("all") && parts.iter().any(needs_test))
                || (list.path.is_ident("any") && parts.iter().all(needs_test))
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the names that an item other than a module defines.
fn name_of(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => ident,
        Item::ForeignMod(block) => {
            let function = |item: &syn::ForeignItem| match item {
                syn::ForeignItem::Fn(item) => Some(item.sig.ident.unraw().to_string()),
                _ => None,
            };
            return block.items.iter().filter_map(function).collect();
        }
        _ => return Vec::new(),
    };
    vec![ident.unraw().to_string()]
}

/// Collects the imports and paths of a module's code.
struct Code<'a> {
    module: &'a mut Module,
}

impl Code<'_> {
    fn add_path(&mut self, path: Vec<String>) {
        self.module.names.extend(path.first().cloned());
        if path.len() > 1 {
            self.module.paths.insert(path);
        }
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &mut Vec<String>, reexport: bool) {
        let mut add = |path: &[String], name| {
            self.module.imports.push(Import { path: path.to_vec(), name, reexport });
        };
        let with = |name: &syn::Ident| {
            // `use a::{self}` imports `a`.
            let mut path = prefix.clone();
            if name != "self" || path.is_empty() {
                path.push(name.unraw().to_string());
            }
            path
        };
        match tree {
            UseTree::Name(leaf) => {
                let path = with(&leaf.ident);
                add(&path, path.last().cloned());
            }
            UseTree::Rename(leaf) => {
                add(&with(&leaf.ident), Some(leaf.rename.unraw().to_string()));
            }
            UseTree::Glob(_) => add(prefix, None),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix, reexport);
                }
            }
            UseTree::Path(path) => {
                prefix.push(path.ident.unraw().to_string());
                self.add_use(&path.tree, prefix, reexport);
                prefix.pop();
            }
        }
    }

    /// Collects what may be paths in the tokens of a macro or an attribute.
    fn add_tokens(&mut self, mut cursor: Cursor<'_>) {
        while !cursor.eof() {
            if let Some((ident, rest)) = cursor.ident() {
                let mut path = vec![ident.unraw().to_string()];
                cursor = rest;
                while let Some((next, rest)) = separator(cursor).and_then(|c| c.ident()) {
                    path.push(next.unraw().to_string());
                    cursor = rest;
                }
                self.add_path(path);
            } else if let Some((inside, _, _, rest)) = cursor.any_group() {
                self.add_tokens(inside);
                cursor = rest;
            } else if let Some((literal, rest)) = cursor.literal() {
                // `#[serde(with = "crate::text")]` is an import as well.
                let text = literal.to_string();
                let path: Vec<String> =
                    text.trim_matches('"').split("::").map(Into::into).collect();
                let is_name = |name: &String| {
                    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
                };
                if text.starts_with('"') && path.iter().all(is_name) {
                    self.add_path(path);
                }
                cursor = rest;
            } else if let Some((_, rest)) = cursor.token_tree() {
                cursor = rest;
            } else {
                return;
            }
        }
    }

    fn add_stream(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        input.step(|cursor| {
            self.add_tokens(*cursor);
            let mut rest = *cursor;
            while let Some((_, next)) = rest.token_tree() {
                rest = next;
            }
            Ok(((), rest))
        })
    }
}

/// Returns the cursor behind `::`, if that is next at `cursor`.
fn separator(cursor: Cursor<'_>) -> Option<Cursor<'_>> {
    let (first, rest) = cursor.punct()?;
    let (second, rest) = rest.punct()?;
    (first.as_char() == ':' && second.as_char() == ':').then_some(rest)
}

impl<'a> Visit<'a> for Code<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'a TraitItem) {
        if !matches!(item, TraitItem::Fn(function) if is_test(&function.attrs)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_none() {
            let reexport = !matches!(item.vis, Visibility::Inherited);
            self.add_use(&item.tree, &mut Vec::new(), reexport);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.unraw().to_string());
            self.add_path(names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.visit_path(&call.path);
        let walked = call.parse_body_with(|input: ParseStream<'_>| self.add_stream(input));
        walked.expect("token streams always parse");
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            let walk = |input: ParseStream<'_>| self.add_stream(input);
            walk.parse2(list.tokens.clone()).expect("token streams always parse");
        }
    }

    // `pub(in super::super)` imports nothing.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
}
