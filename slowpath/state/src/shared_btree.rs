//! Ordered map whose clones share structure: a B-tree of reference-counted nodes.
//!
//! Cloning a map increments one reference count. A write copies the shared nodes from the root to
//! the key's leaf and changes the others in place, so a transaction that works on its own clone
//! copies each node at most once. A node has up to [`MAX_ENTRIES`] keys side by side: a lookup in
//! 50,000 keys visits four nodes, and the tree needs half the memory of a tree with one key per
//! node.

use std::mem;
use std::slice;
use std::sync::Arc;

/// Maximum number of entries of a leaf, and of children of an inner node.
const MAX_ENTRIES: usize = 32;
/// A node that has fewer entries after a removal is merged with a neighbor, unless the result would
/// exceed [`MAX_ENTRIES`].
const MIN_ENTRIES: usize = MAX_ENTRIES / 4;
/// Capacity, in entries, that is added to a full vector.
const GROWTH: usize = 4;

/// Ordered map with cheap clones.
#[derive(Clone, Debug)]
pub struct SharedBTree<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

/// Node of the tree. All leaves have the same distance from the root.
#[derive(Clone, Debug)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    /// Children in order, each with a key. All keys below a child are at least this key, and all
    /// keys below the previous child are less. The first child's key is not used.
    Inner(Vec<Child<K, V>>),
}

/// Child node, with its key.
type Child<K, V> = (K, Arc<Node<K, V>>);

/// Right part of a split node with its key; `None` if the node was not split.
type Split<K, V> = Option<Child<K, V>>;

impl<K, V> Default for SharedBTree<K, V> {
    fn default() -> SharedBTree<K, V> {
        SharedBTree { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<K: Ord, V> SharedBTree<K, V> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_index(children, key)].1,
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
                    return Some(&entries[at].1);
                }
            }
        }
    }

    /// Iterates over all entries, sorted by key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { ancestors: Vec::new(), leaf: [].iter() };
        iter.descend(&self.root);
        iter
    }

    /// Iterates over the entries from the first key for which `is_before` returns false, sorted by
    /// key. `is_before` must return true for all keys up to some point and false for all others.
    pub fn from(&self, is_before: impl Fn(&K) -> bool) -> Iter<'_, K, V> {
        let mut ancestors = Vec::new();
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => {
                    let at = children[1..].partition_point(|child| is_before(&child.0));
                    ancestors.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
                Node::Leaf(entries) => {
                    let at = entries.partition_point(|entry| is_before(&entry.0));
                    return Iter { ancestors, leaf: entries[at..].iter() };
                }
            }
        }
    }
}

impl<K: Ord + Clone, V: Clone> SharedBTree<K, V> {
    /// Returns the value of a key for changing it in place. The call copies the shared nodes on the
    /// path to the key, even if the key is absent or the caller does not change the value: check
    /// with [`SharedBTree::get`] first.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let at = child_index(children, key);
                    node = Arc::make_mut(&mut children[at].1);
                }
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
                    return Some(&mut entries[at].1);
                }
            }
        }
    }

    /// Sets the value of a key and returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (before, split) = Node::insert(&mut self.root, key, value);
        if let Some((key, right)) = split {
            let left = Arc::clone(&self.root);
            self.root = Arc::new(Node::Inner(vec![(key.clone(), left), (key, right)]));
        }
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let before = Node::remove(&mut self.root, key);
        self.len -= usize::from(before.is_some());
        while let Node::Inner(children) = &*self.root
            && children.len() < 2
        {
            self.root = match children.first() {
                Some((_, only)) => Arc::clone(only),
                None => Arc::new(Node::Leaf(Vec::new())),
            };
        }
        before
    }
}

/// Returns the index of the child below which a key belongs.
fn child_index<K: Ord, V>(children: &[Child<K, V>], key: &K) -> usize {
    children[1..].partition_point(|child| child.0 <= *key)
}

/// Reserves capacity for a few more entries if the vector is full.
fn reserve_spare<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact(GROWTH);
    }
}

/// Splits a node that has more than [`MAX_ENTRIES`] entries and returns its right part; `None` for
/// a smaller node. If the newest entry, whose index is `grown_at`, is the last one, the right part
/// is only that entry, so that keys inserted in ascending order fill their nodes.
fn split<T>(entries: &mut Vec<T>, grown_at: usize) -> Option<Vec<T>> {
    let end = entries.len() - 1;
    let at = if grown_at == end { end } else { entries.len() / 2 };
    (entries.len() > MAX_ENTRIES).then(|| {
        let right = entries.split_off(at);
        entries.shrink_to_fit();
        right
    })
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }

    fn insert(this: &mut Arc<Self>, key: K, value: V) -> (Option<V>, Split<K, V>) {
        match Arc::make_mut(this) {
            Node::Leaf(entries) => match entries.binary_search_by(|entry| entry.0.cmp(&key)) {
                Ok(at) => (Some(mem::replace(&mut entries[at].1, value)), None),
                Err(at) => {
                    reserve_spare(entries);
                    entries.insert(at, (key, value));
                    let right = split(entries, at);
                    (None, right.map(|right| (right[0].0.clone(), Arc::new(Node::Leaf(right)))))
                }
            },
            Node::Inner(children) => {
                let at = child_index(children, &key);
                let (before, new) = Node::insert(&mut children[at].1, key, value);
                let Some(new) = new else { return (before, None) };
                reserve_spare(children);
                children.insert(at + 1, new);
                let right = split(children, at + 1);
                (before, right.map(|right| (right[0].0.clone(), Arc::new(Node::Inner(right)))))
            }
        }
    }

    fn remove(this: &mut Arc<Self>, key: &K) -> Option<V> {
        match Arc::make_mut(this) {
            Node::Leaf(entries) => {
                let at = entries.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
                Some(entries.remove(at).1)
            }
            Node::Inner(children) => {
                let at = child_index(children, key);
                let before = Node::remove(&mut children[at].1, key)?;
                match children[at].1.len() {
                    0 => drop(children.remove(at)),
                    MIN_ENTRIES.. => {}
                    _ => merge(children, at.saturating_sub(1)),
                }
                Some(before)
            }
        }
    }

    /// Appends the entries of the right neighbor, whose key is `key`.
    fn append(&mut self, key: K, right: Self) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
            (Node::Inner(left), Node::Inner(mut right)) => {
                right[0].0 = key;
                left.extend(right);
            }
            _ => unreachable!("all leaves have the same depth"),
        }
    }
}

/// Merges the child at this index with the next one if one node can hold both.
fn merge<K: Ord + Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize) {
    let fits = |next: &Child<K, V>| children[at].1.len() + next.1.len() <= MAX_ENTRIES;
    if children.get(at + 1).is_some_and(fits) {
        let (key, right) = children.remove(at + 1);
        Arc::make_mut(&mut children[at].1).append(key, Arc::unwrap_or_clone(right));
    }
}

/// Iterator over the entries of a map, sorted by key.
pub struct Iter<'m, K, V> {
    /// Children still to be visited, of each inner node above the current leaf.
    ancestors: Vec<slice::Iter<'m, Child<K, V>>>,
    /// Entries still to be visited of the current leaf.
    leaf: slice::Iter<'m, (K, V)>,
}

impl<'m, K, V> Iter<'m, K, V> {
    fn descend(&mut self, mut node: &'m Node<K, V>) {
        loop {
            match node {
                Node::Leaf(entries) => {
                    self.leaf = entries.iter();
                    return;
                }
                Node::Inner(children) => {
                    let mut children = children.iter();
                    let Some((_, first)) = children.next() else { return };
                    self.ancestors.push(children);
                    node = first;
                }
            }
        }
    }
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<(&'m K, &'m V)> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            match self.ancestors.last_mut()?.next() {
                Some((_, node)) => self.descend(node),
                None => drop(self.ancestors.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Checks order, key bounds and node sizes of a subtree, and that all its leaves have the same
    /// depth; returns its depth.
    fn check(node: &Node<u16, u32>, min: Option<u16>, end_bound: Option<u16>) -> usize {
        match node {
            Node::Leaf(entries) => {
                assert!(entries.len() <= MAX_ENTRIES && entries.is_sorted_by(|a, b| a.0 < b.0));
                let within = |k: u16| min.is_none_or(|l| l <= k) && end_bound.is_none_or(|b| k < b);
                assert!(entries.iter().all(|entry| within(entry.0)));
                1
            }
            Node::Inner(children) => {
                assert!(children.len() <= MAX_ENTRIES && !children.is_empty());
                let depths = children.iter().enumerate().map(|(n, (key, child))| {
                    let min = if n == 0 { min } else { Some(*key) };
                    let end = children.get(n + 1).map(|next| next.0).or(end_bound);
                    assert!(child.len() > 0);
                    check(child, min, end)
                });
                let depths: Vec<usize> = depths.collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]));
                depths[0] + 1
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u32),
        Remove(u16),
        Change(u16),
        Snapshot,
        /// First key, and number of keys to remove in ascending order.
        RemoveFrom(u16, u16),
        /// Lowest key, and number of keys to insert in descending order.
        InsertFrom(u16, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0..3000u16;
        prop_oneof![
            (key(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
            key().prop_map(Step::Remove),
            key().prop_map(Step::Change),
            Just(Step::Snapshot),
            (key(), 0..700u16).prop_map(|(k, n)| Step::RemoveFrom(k, n)),
            (key(), 0..700u16).prop_map(|(k, n)| Step::InsertFrom(k, n)),
        ]
    }

    fn assert_same(map: &SharedBTree<u16, u32>, model: &BTreeMap<u16, u32>) {
        check(&map.root, None, None);
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert!(map.iter().eq(model.iter()));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn map_matches_btreemap_and_clones_are_immutable(
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let mut map = SharedBTree::default();
            let mut model = BTreeMap::new();
            let mut snapshots = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                    Step::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                    Step::Change(k) => {
                        let (actual, expected) = (map.get_mut(&k), model.get_mut(&k));
                        prop_assert_eq!(&actual, &expected);
                        for value in actual.into_iter().chain(expected) {
                            *value = value.wrapping_add(1);
                        }
                    }
                    Step::Snapshot => snapshots.push((map.clone(), model.clone())),
                    Step::RemoveFrom(k, n) => for k in k..k + n {
                        prop_assert_eq!(map.remove(&k), model.remove(&k));
                    },
                    Step::InsertFrom(k, n) => for k in (k..k + n).rev() {
                        prop_assert_eq!(map.insert(k, 7), model.insert(k, 7));
                    },
                }
                for key in [0, 1, 1500, 2999, 5000] {
                    prop_assert_eq!(map.get(&key), model.get(&key));
                    prop_assert!(map.from(|k| *k < key).eq(model.range(key..)));
                }
                assert_same(&map, &model);
            }
            for (map, model) in &snapshots {
                assert_same(map, model);
            }
        }
    }

    #[test]
    fn ascending_keys_fill_their_nodes() {
        let mut map = SharedBTree::default();
        for key in 0..10_000u16 {
            map.insert(key, 0u32);
        }
        let Node::Inner(children) = &*map.root else { panic!("10,000 keys are in one leaf") };
        assert_eq!(
            children.iter().filter(|child| child.1.len() == MAX_ENTRIES).count(),
            children.len() - 1
        );
    }
}
