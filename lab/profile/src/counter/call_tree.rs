//! The tree of call paths in a window, with the executions on each.

use crate::format::{CallPath, CallStep};
use std::collections::{BTreeMap, HashMap};

/// The empty path.
pub const ROOT: u32 = 0;

/// Call paths of one window, numbered from 0.
#[derive(Debug, Default)]
pub struct CallTree {
    /// Path by its parent and last step; all but the root.
    children: HashMap<(u32, CallStep), u32>,
    counts: HashMap<(u32, u64), u64>,
}

impl CallTree {
    /// Returns the path that continues `parent` by `step`.
    pub fn child(&mut self, parent: u32, step: CallStep) -> u32 {
        let next = self.children.len() as u32 + 1;
        *self.children.entry((parent, step)).or_insert(next)
    }

    /// Adds `count` executions of the instruction at `address` to `path`.
    pub fn count(&mut self, path: u32, address: u64, count: u64) {
        *self.counts.entry((path, address)).or_default() += count;
    }

    /// Returns the paths depth first, ordered independently of execution.
    pub fn into_paths(self) -> Vec<CallPath> {
        let mut children: BTreeMap<u32, Vec<(CallStep, u32)>> = BTreeMap::new();
        for ((parent, step), child) in self.children {
            children.entry(parent).or_default().push((step, child));
        }
        let mut counts: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for ((path, address), count) in self.counts {
            counts.entry(path).or_default().push((address, count));
        }
        let mut paths = Vec::new();
        let mut pending = vec![(0, None, ROOT)];
        while let Some((depth, step, path)) = pending.pop() {
            let mut counts = counts.remove(&path).unwrap_or_default();
            counts.sort_unstable();
            paths.push(CallPath {
                depth,
                step,
                counts,
            });
            let mut next = children.remove(&path).unwrap_or_default();
            next.sort_unstable();
            let next = next.into_iter().rev();
            pending.extend(next.map(|(step, child)| (depth + 1, Some(step), child)));
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::StepKind;

    fn step(site: u64) -> CallStep {
        let (kind, target) = (StepKind::Call, 0);
        CallStep { kind, site, target }
    }

    fn paths(first: u64, second: u64) -> Vec<CallPath> {
        let mut tree = CallTree::default();
        for site in [first, second] {
            let outer = tree.child(ROOT, step(site));
            let inner = tree.child(outer, step(7));
            tree.count(inner, site, 1);
            tree.count(inner, site, 2);
        }
        tree.into_paths()
    }

    #[test]
    fn paths_are_depth_first_in_order_of_addresses() {
        let found = paths(3, 5);
        let counts: Vec<_> = found.iter().map(|p| (p.depth, p.counts.clone())).collect();
        let expected = [
            (0, vec![]),
            (1, vec![]),
            (2, vec![(3, 3)]),
            (1, vec![]),
            (2, vec![(5, 3)]),
        ];
        assert_eq!(counts, expected);
        assert_eq!(found, paths(5, 3));
    }
}
