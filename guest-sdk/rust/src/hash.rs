//! Hash maps and sets that hash the same way in every instance.
//!
//! The standard library seeds its maps with random numbers, so a component that uses them imports
//! `wasi:random` and is refused. These are the same maps with a hasher without a seed: they import
//! nothing.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

/// Builds hashers that all start alike.
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// A [`HashMap`] with a fixed hasher; made by `FixedMap::default()`.
///
/// Its order of iteration depends on the order of insertion. Don't let it reach an output or a
/// state: sort, or use a [`BTreeMap`](std::collections::BTreeMap).
pub type FixedMap<K, V> = HashMap<K, V, FixedHasher>;

/// A [`HashSet`] with a fixed hasher; made by `FixedSet::default()`. See [`FixedMap`].
pub type FixedSet<T> = HashSet<T, FixedHasher>;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn two_hashers_agree() {
        let hash = || FixedHasher::default().hash_one("EWR");
        assert_eq!(hash(), hash());
        let map: FixedMap<&str, u32> = [("EWR", 1), ("JFK", 2)].into_iter().collect();
        assert_eq!(map["JFK"], 2);
    }
}
