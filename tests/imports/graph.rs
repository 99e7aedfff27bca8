//! The import graph: which file imports which, with the imported names, and its cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::modules::Modules;

/// What a path refers to. A module and an item may share one name.
#[derive(Default)]
struct PathTarget {
    module: Option<usize>,
    /// The file that defines the item, and the item's name.
    item: Option<(PathBuf, String)>,
    /// Whether the target is in another crate.
    external: bool,
}

impl PathTarget {
    fn is_empty(&self) -> bool {
        self.module.is_none() && self.item.is_none() && !self.external
    }

    /// Returns `self`, with what it lacks taken from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            module: self.module.or(other.module),
            item: self.item.or(other.item),
            external: self.external || other.external,
        }
    }
}

/// The imports being followed (module, index in it), so that the resolution of imports that refer
/// to each other ends.
type Visited = BTreeSet<(usize, usize)>;

impl Modules {
    /// Resolves a name in a module: a child module or item, else through the module's imports.
    fn look_up(&self, module: usize, name: &str, visited: &mut Visited) -> PathTarget {
        let scope = &self.0[module];
        let mut found = PathTarget {
            module: scope.children.get(name).copied(),
            item: scope.items.contains(name).then(|| (scope.file.clone(), name.to_owned())),
            external: false,
        };
        for (index, import) in scope.imports.iter().enumerate() {
            if import.name.as_deref() == Some(name) && visited.insert((module, index)) {
                found = found.or(self.resolve(module, &import.path, visited));
                visited.remove(&(module, index));
            }
        }
        for (index, import) in scope.imports.iter().enumerate() {
            let glob = found.is_empty() && import.name.is_none();
            if glob && visited.insert((module, index)) {
                if let Some(target) = self.resolve(module, &import.path, visited).module {
                    found = self.look_up(target, name, visited);
                }
                visited.remove(&(module, index));
            }
        }
        found
    }

    /// Resolves a path in a module. A name that a module does not contain, because a macro
    /// defines it, is an item of the deepest module that exists.
    fn resolve(&self, module: usize, path: &[String], visited: &mut Visited) -> PathTarget {
        let (mut at, mut rest) = (module, path);
        while let Some(first) = rest.first() {
            at = match first.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => self.0[at].parent.unwrap_or(0),
                _ => break,
            };
            rest = &rest[1..];
        }
        let relative = rest.len() == path.len();
        for (index, name) in rest.iter().enumerate() {
            let found = self.look_up(at, name, visited);
            let last = index + 1 == rest.len();
            match found.module {
                Some(child) if !last => at = child,
                None if found.is_empty() && (index > 0 || !relative) => {
                    let item = (self.0[at].file.clone(), name.clone());
                    return PathTarget { item: Some(item), ..PathTarget::default() };
                }
                None if found.is_empty() => return PathTarget { external: true, ..found },
                _ => return found,
            }
        }
        PathTarget { module: Some(at), ..PathTarget::default() }
    }
}

/// The imports between the files of one crate, over all of its targets.
#[derive(Default)]
pub struct Graph(BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>);

impl Graph {
    /// Adds the imports of one target's modules.
    pub fn add(&mut self, modules: &Modules) {
        for (index, module) in modules.0.iter().enumerate() {
            self.0.entry(module.file.clone()).or_default();
            for import in &module.imports {
                let found = modules.resolve(index, &import.path, &mut Visited::new());
                match &import.name {
                    // A name that the file re-exports and does not use itself is no import.
                    Some(name) if !import.reexport || module.names.contains(name) => {
                        self.add_edge(&module.file, found);
                    }
                    None => {
                        let Some(target) = found.module else {
                            self.add_edge(&module.file, found);
                            continue;
                        };
                        for name in module.names.difference(&module.items) {
                            let found = modules.look_up(target, name, &mut Visited::new());
                            self.add_edge(&module.file, found);
                        }
                    }
                    Some(_) => {}
                }
            }
            for path in &module.paths {
                self.add_edge(&module.file, modules.resolve(index, path, &mut Visited::new()));
            }
        }
    }

    fn add_edge(&mut self, from: &Path, found: PathTarget) {
        if let Some((file, name)) = found.item
            && file != from
        {
            self.0.entry(from.to_owned()).or_default().entry(file).or_default().insert(name);
        }
    }

    /// Returns all files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Returns the names that the first file imports from the second.
    #[cfg(test)]
    pub fn names(&self, from: &str, to: &str) -> Vec<&str> {
        let names = self.0.get(Path::new(from)).and_then(|imported| imported.get(Path::new(to)));
        names.into_iter().flatten().map(String::as_str).collect()
    }

    /// Returns every file that `from` imports, directly or indirectly.
    fn reach<'a>(&'a self, from: &'a Path) -> BTreeSet<&'a Path> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let imported = self.0.get(file).into_iter().flat_map(BTreeMap::keys);
            next.extend(imported.map(PathBuf::as_path).filter(|file| reached.insert(*file)));
        }
        reached
    }

    /// Returns the groups of files that import each other, directly or indirectly.
    pub fn cycles(&self) -> Vec<BTreeSet<&Path>> {
        let reach: BTreeMap<_, _> = self.files().map(|file| (file, self.reach(file))).collect();
        let group = |file: &Path| -> BTreeSet<&Path> {
            reach[file].iter().copied().filter(|other| reach[other].contains(file)).collect()
        };
        let groups: BTreeSet<_> = self.files().map(group).filter(|g| !g.is_empty()).collect();
        groups.into_iter().collect()
    }

    /// Describes a cycle: each import in it with the imported names.
    pub fn describe(&self, cycle: &BTreeSet<&Path>) -> String {
        let mut lines = format!("{} files import each other in a cycle:", cycle.len());
        for from in cycle {
            for (to, names) in self.0[*from].iter().filter(|(to, _)| cycle.contains(to.as_path())) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                lines +=
                    &format!("\n  {} -> {}: {}", from.display(), to.display(), names.join(", "));
            }
        }
        lines
    }
}
