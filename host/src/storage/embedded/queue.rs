//! The bounded queue in front of the committer. What waits is taken all at once: the longer a group
//! takes to become durable, the larger the next one is.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::storage::embedded::run::Run;
use crate::storage::embedded::snapshot::EmbeddedSnapshot;
use crate::storage::entry::{AppendPlaces, EntryDraft};
use crate::storage::{CommitAnswer, EpochName, StorageError};
use crate::types::epoch::{Head, SinkAppend};
use crate::types::ids::{PartitionId, SinkFileId};
use crate::types::lease::Lease;
use crate::types::queue::QueueAppend;

/// An epoch on its way through the committer.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) lease: Lease,
    pub(super) epoch: EpochName,
    pub(super) entry: EntryDraft,
    pub(super) appends: Vec<SinkAppend>,
    pub(super) finished_files: Vec<SinkFileId>,
    pub(super) queue_appends: Vec<QueueAppend>,
    pub(super) run: Arc<Run>,
    /// What its rows take in memory beyond the entry's bytes: those of timers are several for each.
    pub(super) timer_row_bytes: usize,
    pub(super) answer: CommitAnswer,
    /// Where its staged entry stands, once it has one.
    pub(super) placement: Option<Placement>,
}

/// What the committer has assigned to an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) predecessor: Head,
    pub(super) places: AppendPlaces,
    pub(super) head: Head,
}

/// What the committer is asked for.
#[derive(Debug)]
pub(super) enum Work {
    Epoch(Box<Submitted>),
    /// Apply and sync everything, then answer.
    Settle(SyncSender<()>),
    /// Do the same, then take a snapshot.
    Snapshot(SyncSender<EmbeddedSnapshot>),
    /// Let rows of queues go, then answer.
    Trim(QueueTrim),
}

/// A change of queues that is no epoch's.
#[derive(Debug, Clone)]
pub(super) struct QueueTrim {
    pub(super) what: TrimmedRows,
    pub(super) answer: SyncSender<Result<(), StorageError>>,
}

/// Which rows of queues go.
#[derive(Debug, Clone)]
pub(super) enum TrimmedRows {
    /// Those of these partitions below these offsets.
    Below(Vec<(PartitionId, u64)>),
    /// What is there of this partition before its first row: removals may have gone with their tables.
    Leftovers(PartitionId),
    /// The whole partition.
    All(PartitionId),
}

impl Work {
    fn size_bytes(&self) -> usize {
        match self {
            Work::Epoch(submitted) => submitted.entry.bytes().len(),
            Work::Settle(_) | Work::Snapshot(_) | Work::Trim(_) => 0,
        }
    }
}

/// What a look into the queue brought.
#[derive(Debug)]
pub(super) enum Taken {
    /// Everything that waited, in order.
    Work(VecDeque<Work>),
    /// Nothing came in time.
    Idle,
    /// Nothing will come any more.
    Closed,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
    emptied: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    work: VecDeque<Work>,
    size_bytes: usize,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Queue {
        Queue {
            state: Mutex::new(QueueState::default()),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            bytes_max,
        }
    }

    /// Appends work, waiting for room; it stays together. A closed queue drops it, which its
    /// tickets see as unknown.
    pub(super) fn push(&self, work: Vec<Work>) {
        let size_bytes: usize = work.iter().map(Work::size_bytes).sum();
        let mut state = self.lock();
        // What is larger than the limit by itself goes in alone.
        while !state.is_closed
            && state.size_bytes > 0
            && state.size_bytes + size_bytes > self.bytes_max
        {
            state = self
                .emptied
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if !state.is_closed {
            state.work.extend(work);
            state.size_bytes += size_bytes;
            self.filled.notify_one();
        }
    }

    /// Takes everything, waiting for something to come; with `idle_after` at most so long.
    pub(super) fn take(&self, idle_after: Option<Duration>) -> Taken {
        let state = self.lock();
        let must_wait = |state: &mut QueueState| state.work.is_empty() && !state.is_closed;
        let mut state = match idle_after {
            None => self
                .filled
                .wait_while(state, must_wait)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                (self.filled.wait_timeout_while(state, limit, must_wait))
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        if state.work.is_empty() {
            return match state.is_closed {
                true => Taken::Closed,
                false => Taken::Idle,
            };
        }
        state.size_bytes = 0;
        self.emptied.notify_all();
        Taken::Work(std::mem::take(&mut state.work))
    }

    /// Lets no more work in. What waits is still taken.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Lets no more work in and drops what waits.
    pub(super) fn abandon(&self) {
        self.close();
        let abandoned = std::mem::take(&mut self.lock().work);
        drop(abandoned);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
