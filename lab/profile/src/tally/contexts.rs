//! The tree of all call paths that instructions of a window were executed on, and
//! how often each instruction was on each.

use crate::wire::{Context, Step};
use std::collections::{BTreeMap, HashMap};

/// The path on which nothing has been called.
pub const ROOT: u32 = 0;

/// The tree of one window.
#[derive(Debug)]
pub struct Contexts {
    /// How each path, but the root, was reached from the one before.
    children: HashMap<(u32, Step), u32>,
    counts: HashMap<(u32, u64), u64>,
}

impl Contexts {
    /// Nothing but the root.
    pub fn new() -> Self {
        Self {
            children: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// The path that leads from `parent` over `step`.
    pub fn child(&mut self, parent: u32, step: Step) -> u32 {
        let next = self.children.len() as u32 + 1;
        *self.children.entry((parent, step)).or_insert(next)
    }

    /// The instruction at `address` was executed `count` times on a path.
    pub fn count(&mut self, context: u32, address: u64, count: u64) {
        *self.counts.entry((context, address)).or_default() += count;
    }

    /// Every path behind the one it begins with, in an order that does not depend
    /// on that of execution.
    pub fn into_canonical(self) -> Vec<Context> {
        let mut children: BTreeMap<u32, Vec<(Step, u32)>> = BTreeMap::new();
        for ((parent, step), child) in self.children {
            children.entry(parent).or_default().push((step, child));
        }
        let mut counts: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for ((context, address), count) in self.counts {
            counts.entry(context).or_default().push((address, count));
        }
        let mut found = Vec::new();
        let mut left = vec![(0, None, ROOT)];
        while let Some((depth, step, context)) = left.pop() {
            let mut counts = counts.remove(&context).unwrap_or_default();
            counts.sort_unstable();
            found.push(Context {
                depth,
                step,
                counts,
            });
            let mut next = children.remove(&context).unwrap_or_default();
            next.sort_unstable();
            let next = next.into_iter().rev();
            left.extend(next.map(|(step, child)| (depth + 1, Some(step), child)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn step(site: u64) -> Step {
        let (kind, target) = (Kind::Call, 0);
        Step { kind, site, target }
    }

    fn tree(first: u64, second: u64) -> Vec<Context> {
        let mut contexts = Contexts::new();
        for site in [first, second] {
            let outer = contexts.child(ROOT, step(site));
            let inner = contexts.child(outer, step(7));
            contexts.count(inner, site, 1);
            contexts.count(inner, site, 2);
        }
        contexts.into_canonical()
    }

    #[test]
    fn the_order_is_that_of_addresses_and_parents_come_first() {
        let found = tree(3, 5);
        let told: Vec<_> = found.iter().map(|c| (c.depth, c.counts.clone())).collect();
        let expected = [
            (0, vec![]),
            (1, vec![]),
            (2, vec![(3, 3)]),
            (1, vec![]),
            (2, vec![(5, 3)]),
        ];
        assert_eq!(told, expected);
        assert_eq!(found, tree(5, 3));
    }
}
