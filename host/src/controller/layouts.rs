//! The layouts of a transform, as the registry remembers them: the partitions that it had before the
//! ones in force, as long as anything of theirs is left.
//!
//! **Invariant:** a new number of partitions means new partition ids, and at most one layout, the last one
//! before that in force, is still to be moved: a recorded move is finished before the next one begins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::controller::registry::rows::{KnownNodes, LAYOUTS, encode, node_key};
use crate::controller::registry::{Registration, RegistryError};
use crate::storage::{CatalogChange, Storage, StorageError};
use crate::types::ids::PartitionId;

/// How many partitions of earlier layouts a transform may have whose messages have not been read:
/// three times what a layout can have, and what fits into a row of the catalog.
pub const RETIRING_PARTITIONS_MAX: usize = 768;

/// The layouts that a transform had before the one in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierLayouts {
    /// Oldest first; of each the partitions of which anything may be left.
    pub retiring: Vec<Vec<PartitionId>>,
    /// Whether messages and states of the last one are still to be moved to the one in force.
    pub is_moving: bool,
}

/// The earlier layouts of transforms that have any, by name.
pub(super) type Layouts = BTreeMap<String, EarlierLayouts>;

/// A layout whose messages and states go over to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedMove {
    /// The transform.
    pub computation: String,
    /// Its partitions before.
    pub from: Vec<PartitionId>,
    /// Its partitions from now on.
    pub to: Vec<PartitionId>,
}

impl EarlierLayouts {
    /// Another layout is in force from now on; `before` is to be moved to it.
    ///
    /// # Panics
    ///
    /// When another move is still recorded.
    pub fn replace(&mut self, before: Vec<PartitionId>) {
        assert!(!self.is_moving, "a recorded move is finished first");
        self.retiring.push(before);
        self.is_moving = true;
    }

    /// The partitions that are to be moved.
    pub fn moving(&self) -> Option<&[PartitionId]> {
        let last = self.retiring.last().filter(|_| self.is_moving)?;
        Some(last)
    }

    /// All partitions of earlier layouts.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        self.retiring.iter().flatten().copied()
    }

    /// Keeps the partitions of which something is left. Nothing may be moving.
    ///
    /// # Errors
    ///
    /// Those of `is_left`.
    pub fn keep(
        &mut self,
        mut is_left: impl FnMut(PartitionId) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        for layout in &mut self.retiring {
            let mut kept = Vec::with_capacity(layout.len());
            for partition in layout.drain(..) {
                if is_left(partition)? {
                    kept.push(partition);
                }
            }
            *layout = kept;
        }
        self.retiring.retain(|layout| !layout.is_empty());
        Ok(())
    }
}

impl Registration {
    /// The partitions of a computation that is or was part of the pipeline.
    ///
    /// # Panics
    ///
    /// When it never was.
    pub fn layout_in_force(&self, name: &str) -> &[PartitionId] {
        &self.now.nodes.computations[name].last.partitions
    }

    /// The layouts that a computation had before the one in force, oldest first.
    pub fn retiring(&self, name: &str) -> &[Vec<PartitionId>] {
        let layouts = self.layouts.get(name);
        layouts.map_or(&[], |layouts| &layouts.retiring)
    }

    /// Moves that an earlier start recorded and did not finish. They must be finished before
    /// [`Registration::commit`].
    pub fn unfinished_moves(&self) -> Vec<RecordedMove> {
        recorded_moves(&self.known_layouts, |name| {
            &self.known.nodes.computations[name].last.partitions
        })
    }

    /// Moves that [`Registration::commit`] records. They must be finished before a job runs.
    pub fn begun_moves(&self) -> Vec<RecordedMove> {
        recorded_moves(&self.layouts, |name| {
            &self.now.nodes.computations[name].last.partitions
        })
    }

    /// Writes down that the begun moves are finished. Returns the earlier layouts by computation.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Contended`], or when the store fails.
    pub fn moves_finished(&self, storage: &dyn Storage) -> Result<Layouts, RegistryError> {
        let mut finished = self.layouts.clone();
        for layouts in finished.values_mut() {
            layouts.is_moving = false;
        }
        self.replace_layouts(storage, &self.layouts, &finished)?;
        Ok(finished)
    }

    /// Forgets the partitions of earlier layouts of which nothing is left.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Contended`], or when the store fails.
    pub fn forget_empty(
        &self,
        storage: &dyn Storage,
        finished: &Layouts,
        mut keeps_anything: impl FnMut(PartitionId) -> Result<bool, StorageError>,
    ) -> Result<(), RegistryError> {
        let mut kept = finished.clone();
        for layouts in kept.values_mut() {
            layouts.keep(&mut keeps_anything)?;
        }
        self.replace_layouts(storage, finished, &kept)
    }

    fn replace_layouts(
        &self,
        storage: &dyn Storage,
        before: &Layouts,
        after: &Layouts,
    ) -> Result<(), RegistryError> {
        let mut change = CatalogChange::default();
        for (name, layouts) in before.iter().filter(|(name, now)| after[*name] != **now) {
            let key = node_key(&self.pipeline, LAYOUTS, name);
            change.expectations.push((key.clone(), layout_row(layouts)));
            change.writes.push((key, layout_row(&after[name])));
        }
        if change.writes.is_empty() {
            return Ok(());
        }
        self.commit_catalog(storage, &change)
    }
}

/// The earlier layouts of each transform from now on: unfinished moves are finished by then, and
/// what another layout takes the place of is to be moved.
pub(super) fn layouts_from_now_on(
    pipeline: &str,
    known_layouts: &Layouts,
    known: &KnownNodes,
    nodes: &KnownNodes,
) -> Result<Layouts, RegistryError> {
    let mut from_now_on = known_layouts.clone();
    for layouts in from_now_on.values_mut() {
        layouts.is_moving = false;
    }
    for (name, was) in &known.computations {
        let was = &was.last.partitions;
        if nodes.computations[name].last.partitions != *was && !was.is_empty() {
            let layouts = from_now_on.entry(name.clone()).or_default();
            layouts.replace(was.clone());
            let count = layouts.partitions().count();
            if count > RETIRING_PARTITIONS_MAX {
                return Err(RegistryError::TooManyRetiring {
                    pipeline: pipeline.to_owned(),
                    computation: name.clone(),
                    count,
                });
            }
        }
    }
    Ok(from_now_on)
}

/// The value of the row of a transform's earlier layouts; none where it has none.
pub(super) fn layout_row(layouts: &EarlierLayouts) -> Option<Vec<u8>> {
    (!layouts.retiring.is_empty()).then(|| encode(layouts))
}

/// The moves that are recorded in `layouts`; `in_force` gives a transform's partitions.
fn recorded_moves<'a>(
    layouts: &BTreeMap<String, EarlierLayouts>,
    in_force: impl Fn(&str) -> &'a [PartitionId],
) -> Vec<RecordedMove> {
    let moving = layouts.iter().filter_map(|(name, layouts)| {
        Some(RecordedMove {
            computation: name.clone(),
            from: layouts.moving()?.to_vec(),
            to: in_force(name).to_vec(),
        })
    });
    moving.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::slice;

    use super::*;
    use crate::controller::registry::Intent;
    use crate::controller::registry::tests::{intent, register, without_computations};
    use crate::storage::memory::MemoryStorage;

    /// The transform `delays` in `count` partitions behind the source `departures`.
    pub(in crate::controller) fn with_partitions(count: u32) -> Intent {
        let mut intent = intent("{}", "file x", 1);
        let delays = intent.computations.get_mut("delays");
        delays.expect("it is there").partition_count = count;
        intent
    }

    #[test]
    fn another_number_of_partitions_is_a_change_and_a_layout_of_new_ids() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &with_partitions(2));
        let before = Registration::draft(&storage, "a", &with_partitions(2)).unwrap();
        let before = before.computation("delays").to_vec();
        assert!(register(&storage, "a", &with_partitions(2)).is_empty());

        let draft = Registration::draft(&storage, "a", &with_partitions(3)).unwrap();
        let change = "partitions of computation delays: was 2, now 3";
        assert_eq!(draft.changes[0].to_string(), change);
        let now = draft.computation("delays").to_vec();
        assert_eq!(now.len(), 3);
        assert!(now.iter().all(|partition| !before.contains(partition)));
        let begun = RecordedMove {
            computation: "delays".to_owned(),
            from: before.clone(),
            to: now,
        };
        assert_eq!(draft.begun_moves(), slice::from_ref(&begun));
        assert!(draft.unfinished_moves().is_empty());
        draft.commit(&storage).unwrap();

        // The process dies: the move is found again, whatever is asked for now.
        for count in [3, 1] {
            let draft = Registration::draft(&storage, "a", &with_partitions(count)).unwrap();
            assert_eq!(draft.unfinished_moves(), slice::from_ref(&begun));
            let ever = draft.partitions_ever();
            assert!(before.iter().all(|partition| ever.contains(partition)));
        }
        let draft = Registration::draft(&storage, "a", &with_partitions(1)).unwrap();
        assert_eq!(draft.begun_moves()[0].from, begun.to);
        assert_eq!(draft.retiring("delays"), [before, begun.to]);
    }

    #[test]
    fn a_finished_move_is_written_down_and_empty_partitions_are_forgotten() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &with_partitions(2));
        let draft = Registration::draft(&storage, "a", &with_partitions(1)).unwrap();
        draft.commit(&storage).unwrap();
        let before = draft.retiring("delays")[0].clone();
        let finished = draft.moves_finished(&storage).unwrap();
        let keeps_first = |partition| Ok(partition == before[0]);
        draft
            .forget_empty(&storage, &finished, keeps_first)
            .unwrap();

        let next = Registration::draft(&storage, "a", &with_partitions(1)).unwrap();
        assert!(next.changes.is_empty());
        assert_eq!(next.deployment(), draft.deployment());
        assert!(next.unfinished_moves().is_empty() && next.begun_moves().is_empty());
        assert_eq!(next.retiring("delays"), [vec![before[0]]]);
        let finished = next.moves_finished(&storage).unwrap();
        next.forget_empty(&storage, &finished, |_| Ok(false))
            .unwrap();
        let rows = storage.scan_catalog(&node_key("a", LAYOUTS, "")).unwrap();
        assert!(rows.is_empty());
    }

    #[test]
    fn a_transform_that_comes_back_with_another_number_moves_what_it_had() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &with_partitions(2));
        register(&storage, "a", &without_computations());
        let draft = Registration::draft(&storage, "a", &with_partitions(3)).unwrap();
        assert_eq!(draft.changes.len(), 2, "{:?}", draft.changes);
        assert_eq!(draft.begun_moves()[0].from.len(), 2);
    }

    #[test]
    fn layouts_whose_messages_nobody_takes_are_bounded() {
        let storage = MemoryStorage::default();
        for count in [256, 255, 254] {
            register(&storage, "a", &with_partitions(count));
            let draft = Registration::draft(&storage, "a", &with_partitions(count)).unwrap();
            draft.commit(&storage).unwrap();
        }
        // Three rows of ids are as much as the catalog takes.
        register(&storage, "a", &with_partitions(1));
        let refused = Registration::draft(&storage, "a", &with_partitions(256));
        assert!(refused.is_ok(), "765 and 1 partitions");
        refused.unwrap().commit(&storage).unwrap();
        let refused = Registration::draft(&storage, "a", &with_partitions(2));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("1022 partitions that it had"), "{text}");
    }
}
