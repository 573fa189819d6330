//! Which subscriptions match a Topic Name: a tree with one node a topic level (MQTT 3.1.1 and 5, §4.7).
//!
//! ```text
//!            (root)
//!           ╱   │  ╲
//!       sport   +   #        entries at a node: subscriptions whose filter ends there
//!       ╱   ╲
//!   tennis   #               `sport/#` matches `sport`, `sport/tennis`, `sport/tennis/x` …
//! ```
//!
//! A topic starting with `$` is not matched by a filter starting with a wildcard [MQTT-4.7.2-1]. Adding and removing
//! cost the depth of the filter; matching visits each node at most once. Depth is bounded by the caller.

use std::collections::HashMap;

use slab::Slab;

/// A subscription, by its place in the table of sessions.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct SubscriptionId(pub(crate) usize);

/// Where a filter ends in the tree. Valid while it has entries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NodeId(usize);

#[derive(Debug)]
struct Node {
    /// `None` for the root only.
    parent: Option<usize>,
    level: Box<str>,
    /// Children by level, `+` and `#` among them. Empty maps do not allocate.
    children: HashMap<Box<str>, usize>,
    entries: Vec<SubscriptionId>,
}

/// All subscriptions, by filter.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Slab<Node>,
    root: usize,
}

/// What a search still has to look at.
enum Step<'t> {
    /// A node, and what is left of the topic below it; `None` when the topic ends there.
    Node(usize, Option<&'t str>),
    /// The subscriptions of a node.
    Entries(usize),
}

impl Default for Trie {
    fn default() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::new(None, ""));
        Self { nodes, root }
    }
}

impl Node {
    fn new(parent: Option<usize>, level: &str) -> Self {
        Self { parent, level: level.into(), children: HashMap::new(), entries: Vec::new() }
    }
}

impl Trie {
    /// Adds a subscription; its node, and its place among that node's entries.
    pub(crate) fn insert(&mut self, path: &str, id: SubscriptionId) -> (NodeId, usize) {
        let mut at = self.root;
        for level in path.split('/') {
            at = match self.nodes[at].children.get(level) {
                Some(&child) => child,
                None => {
                    let child = self.nodes.insert(Node::new(Some(at), level));
                    self.nodes[at].children.insert(level.into(), child);
                    child
                }
            };
        }
        let entries = &mut self.nodes[at].entries;
        entries.push(id);
        (NodeId(at), entries.len() - 1)
    }

    /// Removes the entry at a place; the subscription that took this place, if one did.
    pub(crate) fn remove(&mut self, node: NodeId, place: usize) -> Option<SubscriptionId> {
        let entries = &mut self.nodes[node.0].entries;
        entries.swap_remove(place);
        let moved = entries.get(place).copied();
        self.prune(node.0);
        moved
    }

    fn prune(&mut self, mut at: usize) {
        loop {
            let node = &self.nodes[at];
            let Some(parent) = node.parent else { return };
            if !node.entries.is_empty() || !node.children.is_empty() {
                return;
            }
            let node = self.nodes.remove(at);
            self.nodes[parent].children.remove(&node.level);
            at = parent;
        }
    }

    /// Appends every subscription that matches `topic`, in mosquitto's order: below a node the literal level first, then `+`, then `#`; where
    /// the topic ends, `#` before the node's own.
    pub(crate) fn find(&self, topic: &str, out: &mut Vec<SubscriptionId>) {
        let mut open = vec![Step::Node(self.root, Some(topic))];
        while let Some(step) = open.pop() {
            let (at, rest) = match step {
                Step::Entries(at) => {
                    out.extend_from_slice(&self.nodes[at].entries);
                    continue;
                }
                Step::Node(at, rest) => (at, rest),
            };
            let node = &self.nodes[at];
            let wildcards_match = at != self.root || !topic.starts_with('$');
            let hash = node.children.get("#").copied().filter(|_| wildcards_match);
            let Some(rest) = rest else {
                if let Some(hash) = hash {
                    out.extend_from_slice(&self.nodes[hash].entries);
                }
                out.extend_from_slice(&node.entries);
                continue;
            };
            // The last in is the first out.
            open.extend(hash.map(Step::Entries));
            let (level, below) = match rest.split_once('/') {
                Some((level, below)) => (level, Some(below)),
                None => (rest, None),
            };
            if wildcards_match && let Some(&plus) = node.children.get("+") {
                open.push(Step::Node(plus, below));
            }
            if let Some(&child) = node.children.get(level) {
                open.push(Step::Node(child, below));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The standard's rule, written down as plainly as possible.
    fn naive_match(filter: &str, topic: &str) -> bool {
        fn below(filter: &[&str], topic: &[&str]) -> bool {
            match (filter, topic) {
                (["#"], _) | ([], []) => true,
                ([f, fs @ ..], [t, ts @ ..]) => (*f == "+" || f == t) && below(fs, ts),
                _ => false,
            }
        }
        let (fs, ts): (Vec<_>, Vec<_>) = (filter.split('/').collect(), topic.split('/').collect());
        !(topic.starts_with('$') && filter.starts_with(['+', '#'])) && below(&fs, &ts)
    }

    fn matches(filters: &[&str], topic: &str) -> Vec<usize> {
        let mut trie = Trie::default();
        for (index, filter) in filters.iter().enumerate() {
            trie.insert(filter, SubscriptionId(index));
        }
        let mut found = Vec::new();
        trie.find(topic, &mut found);
        let mut found: Vec<_> = found.into_iter().map(|id| id.0).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn plus_stands_for_exactly_one_level() {
        let filters = ["a/+", "+", "+/+", "/+", "a/+/c"];
        assert_eq!(matches(&filters, "a/b"), [0, 2]);
        assert_eq!(matches(&filters, "/x"), [2, 3]);
        assert_eq!(matches(&filters, "a/"), [0, 2]);
    }

    #[test]
    fn hash_matches_its_parent_and_everything_below() {
        let filters = ["sport/#", "#", "sport/tennis/#"];
        assert_eq!(matches(&filters, "sport"), [0, 1]);
        assert_eq!(matches(&filters, "sport/tennis"), [0, 1, 2]);
        assert_eq!(matches(&filters, "sports"), [1]);
    }

    #[test]
    fn hash_filter_does_not_match_dollar_topics() {
        let filters = ["#", "+/x", "$SYS/#", "$SYS/+", "+/#"];
        assert_eq!(matches(&filters, "$SYS/x"), [2, 3]);
    }

    #[test]
    fn a_removed_entry_hands_its_place_to_the_last_one() {
        let mut trie = Trie::default();
        let (node, first) = trie.insert("a", SubscriptionId(1));
        trie.insert("a", SubscriptionId(2));
        assert_eq!(trie.remove(node, first), Some(SubscriptionId(2)));
        assert_eq!(trie.remove(node, first), None);
    }

    #[test]
    fn an_empty_tree_is_one_node_again() {
        let mut trie = Trie::default();
        let (long, _) = trie.insert("a/b/c", SubscriptionId(1));
        let (short, _) = trie.insert("a/b", SubscriptionId(2));
        trie.remove(short, 0);
        assert_eq!(trie.nodes.len(), 4);
        trie.remove(long, 0);
        assert_eq!(trie.nodes.len(), 1);
    }

    fn name(levels: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(levels), 1..5).prop_map(|l| l.join("/"))
    }

    proptest! {
        #[test]
        fn the_trie_agrees_with_the_standard(
            filters in prop::collection::vec((name(&["a", "b", "", "+", "$s"]), any::<bool>()), 1..12),
            removed in prop::collection::vec(any::<bool>(), 12),
            topic in name(&["a", "b", "", "$s"]),
        ) {
            let filters: Vec<String> = filters
                .into_iter()
                .map(|(filter, hash)| if hash { format!("{filter}/#") } else { filter })
                .collect();
            let mut trie = Trie::default();
            let mut places = Vec::new();
            for (index, filter) in filters.iter().enumerate() {
                places.push(trie.insert(filter, SubscriptionId(index)));
            }
            for index in (0..filters.len()).filter(|&index| removed[index]) {
                let (node, place) = places[index];
                if let Some(moved) = trie.remove(node, place) {
                    places[moved.0].1 = place;
                }
            }
            let mut found = Vec::new();
            trie.find(&topic, &mut found);
            found.sort_unstable();
            let expected: Vec<_> = (0..filters.len())
                .filter(|&index| !removed[index] && naive_match(&filters[index], &topic))
                .map(SubscriptionId)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
