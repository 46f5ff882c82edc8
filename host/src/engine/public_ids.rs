//! The public ids of messages that may go back to several items of a job's input. They follow from the ids of those
//! items and nothing else, so that whatever is made again from the same ones has the same id.

use std::collections::HashMap;

use crate::types::ids::{PublicId, StreamId};

/// Gives ids to what one batch of a job's input led to. What goes back to the same items is of the same batch, so no
/// more is to be remembered.
#[derive(Debug)]
pub struct PublicIds<'a> {
    /// The id of each item of the batch.
    items: &'a [PublicId],
    /// By the first id that a set of items gives in a stream, how many messages there have it.
    counts: HashMap<PublicId, u32>,
    parents: Vec<PublicId>,
}

impl PublicIds<'_> {
    /// For a batch whose items have these ids.
    pub fn new(items: &[PublicId]) -> PublicIds<'_> {
        PublicIds {
            items,
            counts: HashMap::new(),
            parents: Vec::new(),
        }
    }

    /// The id of the next message of a stream that goes back to these items.
    pub fn next(&mut self, stream: StreamId, origins: &[u32]) -> PublicId {
        self.parents.clear();
        let ids = origins.iter().map(|item| self.items[*item as usize]);
        self.parents.extend(ids);
        self.parents.sort_unstable();
        let first = PublicId::of_parents(stream, &self.parents, 0);
        let count = self.counts.entry(first).or_default();
        let place = *count;
        *count += 1;
        match place {
            0 => first,
            place => PublicId::of_parents(stream, &self.parents, place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::PartitionId;

    fn record(number: u8) -> PublicId {
        PublicId::of_record(PartitionId(1), &[number])
    }

    /// The ids of messages that go back to these items of a batch of these records.
    fn ids(records: &[u8], origins: &[&[u32]]) -> Vec<PublicId> {
        let items: Vec<PublicId> = records.iter().copied().map(record).collect();
        let mut ids = PublicIds::new(&items);
        let next = |origins: &&[u32]| ids.next(StreamId(1), origins);
        origins.iter().map(next).collect()
    }

    #[test]
    fn b1_the_same_parents_give_the_same_ids_wherever_they_stand_in_the_input() {
        let here = ids(&[1, 2, 3], &[&[0, 1], &[2], &[0, 1], &[0, 1, 2]]);
        let elsewhere = ids(&[9, 3, 2, 1], &[&[1], &[2, 3], &[2, 3], &[1, 2, 3]]);
        assert_eq!([here[0], here[2]], [elsewhere[1], elsewhere[2]]);
        assert_eq!(here[1], elsewhere[0]);
        assert_eq!(here[3], elsewhere[3]);
        let mut distinct = here.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(
            distinct.len(),
            here.len(),
            "also of those with the same parents"
        );
    }
}
