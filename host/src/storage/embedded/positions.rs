//! Where the appends of a group of epochs go: each gets its place in a sink file or in a partition of a queue
//! when its epoch is staged, one behind the other.
//!
//! **Invariant:** places follow from what is decided and from the epochs staged before in the same group, so
//! that there is neither gap nor overlap when all of them are decided.

use std::collections::HashMap;

use crate::storage::StorageError;
use crate::storage::embedded::Shared;
use crate::storage::embedded::queue::Submitted;
use crate::storage::entry::AppendPlaces;
use crate::types::ids::{PartitionId, SinkFileId};
use crate::types::queue::QueueBounds;

/// How far files and queues are with all that was staged so far.
pub(super) struct Positions<'a> {
    shared: &'a Shared,
    files: HashMap<SinkFileId, u64>,
    queues: HashMap<PartitionId, QueueBounds>,
}

impl<'a> Positions<'a> {
    /// Where everything stands that is decided.
    pub(super) fn decided(shared: &'a Shared) -> Positions<'a> {
        Positions {
            shared,
            files: HashMap::new(),
            queues: HashMap::new(),
        }
    }

    /// Gives the next epoch's appends their places.
    ///
    /// # Errors
    ///
    /// [`StorageError::Undecodable`] when the bounds of a queue do not decode: then it gets none.
    pub(super) fn assign(&mut self, submitted: &Submitted) -> Result<AppendPlaces, StorageError> {
        for append in &submitted.queue_appends {
            self.bounds_of(append.queue)?;
        }
        Ok(AppendPlaces {
            files: self.assign_in_files(submitted),
            queues: (submitted.queue_appends.iter())
                .map(|append| {
                    let bounds = self.bounds_of(append.queue)?;
                    let place = bounds.next_place();
                    bounds.cover(&append.span(place));
                    Ok(place)
                })
                .collect::<Result<_, StorageError>>()?,
        })
    }

    fn assign_in_files(&mut self, submitted: &Submitted) -> Vec<u64> {
        if submitted.appends.is_empty() {
            return Vec::new();
        }
        let files = self.shared.sink_files();
        (submitted.appends.iter())
            .map(|append| {
                let len = (self.files.entry(append.file))
                    .or_insert_with(|| files.decided_len(append.file));
                let offset = *len;
                *len += append.bytes.len() as u64;
                offset
            })
            .collect()
    }

    fn bounds_of(&mut self, queue: PartitionId) -> Result<&mut QueueBounds, StorageError> {
        let known = match self.queues.get(&queue) {
            Some(bounds) => *bounds,
            None => self.shared.queue_bounds(queue)?,
        };
        Ok(self.queues.entry(queue).or_insert(known))
    }
}
