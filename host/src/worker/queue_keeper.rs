//! Retention of queues while a run goes on: what is kept for longer than asked goes, whole chunks from the start.
//!
//! **Invariant:** nothing goes that is younger than the queue's time and within its bytes. Whether somebody has read
//! it makes no difference: a reader that is too slow is told what it lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::clock::Clock;
use crate::storage::queue_rows::{QueueChunkHeader, read_bounds, scan_chunk_headers};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError};
use crate::types::batch::Timestamp;
use crate::types::ids::PartitionId;
use crate::types::queue::{QueueBounds, Retention};

/// How often queues are looked at.
pub const RETENTION_PERIOD: Duration = Duration::from_secs(5);

/// How many chunks of a queue one look passes before they are trimmed.
const CHUNKS_PASSED_MAX: usize = 1_024;

/// A queue with a retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptQueue {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
    /// How long its rows are kept.
    pub retention: Retention,
}

/// Keeps the queues of a store within their retention.
pub struct QueueKeeper {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    queues: Vec<KeptQueue>,
    /// The first chunk of each partition, as it was read last.
    firsts: BTreeMap<PartitionId, QueueChunkHeader>,
    /// Queues that could not be trimmed: they are left alone for the rest of the run.
    failed: BTreeSet<String>,
}

impl QueueKeeper {
    /// A keeper of these queues.
    pub fn new(
        storage: &Arc<dyn Storage>,
        clock: &Arc<dyn Clock>,
        queues: Vec<KeptQueue>,
    ) -> QueueKeeper {
        QueueKeeper {
            storage: Arc::clone(storage),
            clock: Arc::clone(clock),
            queues,
            firsts: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Whether there is any queue to keep.
    pub fn is_needed(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Looks at the queues now and once in [`RETENTION_PERIOD`], until the other end of `ended` is gone.
    pub fn run(mut self, ended: &Receiver<()>) {
        loop {
            self.sweep();
            match ended.recv_timeout(RETENTION_PERIOD) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at every queue once. One that can't be trimmed is logged.
    pub fn sweep(&mut self) {
        for queue in self.queues.clone() {
            if self.failed.contains(&queue.name) {
                continue;
            }
            let swept = loop {
                match self.sweep_queue(&queue) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            if let Err(error) = swept {
                let error = &error as &dyn std::error::Error;
                tracing::error!(queue = queue.name, error, "queue not trimmed");
                self.failed.insert(queue.name);
            }
        }
    }

    /// Trims a queue; whether there may be more to trim at once.
    fn sweep_queue(&mut self, queue: &KeptQueue) -> Result<bool, StorageError> {
        let now = self.clock.now();
        let mut heads = Vec::with_capacity(queue.partitions.len());
        for partition in &queue.partitions {
            let bounds = read_bounds(&*self.storage, *partition)?;
            let mut head = Head {
                partition: *partition,
                bounds,
                cut: bounds.start,
                kept_bytes: bounds.size_bytes(),
                first: None,
            };
            self.look_at_first(&mut head)?;
            heads.push(head);
        }
        let mut passed = 0;
        while passed < CHUNKS_PASSED_MAX
            && let Some(place) = next_to_go(&heads, queue.retention, now)
        {
            passed += 1;
            let head = &mut heads[place];
            head.pass_first();
            self.look_at_first(head)?;
        }
        for head in heads.iter().filter(|head| head.cut > head.bounds.start) {
            self.storage.trim_queue(head.partition, head.cut)?;
            let (partition, before) = (head.partition, head.cut);
            tracing::info!(queue = queue.name, %partition, before, "queue trimmed");
        }
        Ok(passed == CHUNKS_PASSED_MAX)
    }

    fn look_at_first(&mut self, head: &mut Head) -> Result<(), StorageError> {
        let (partition, cut) = (head.partition, head.cut);
        head.first = None;
        if cut >= head.bounds.end {
            return Ok(());
        }
        let known = self.firsts.get(&partition);
        let known = known.filter(|chunk| chunk.first <= cut && cut < chunk.end);
        head.first = match known {
            Some(chunk) => Some(*chunk),
            None => {
                let limit = ScanLimit::rows(1);
                let read = scan_chunk_headers(&*self.storage, partition, cut, limit)?;
                read.first().copied()
            }
        };
        if let Some(chunk) = head.first {
            self.firsts.insert(partition, chunk);
        }
        Ok(())
    }
}

/// The beginning of a partition.
struct Head {
    partition: PartitionId,
    bounds: QueueBounds,
    /// Rows before this offset go.
    cut: u64,
    /// Bytes of the rows that stay.
    kept_bytes: u64,
    /// The first chunk that stays, if any does.
    first: Option<QueueChunkHeader>,
}

impl Head {
    /// Bytes of the first chunk, without what was trimmed of it before.
    fn first_bytes(&self) -> u64 {
        self.first.map_or(0, |chunk| {
            let end = chunk.bytes_before + chunk.size_bytes;
            end.saturating_sub(self.bounds.trimmed_bytes.max(chunk.bytes_before))
        })
    }

    fn pass_first(&mut self) {
        self.kept_bytes = self.kept_bytes.saturating_sub(self.first_bytes());
        if let Some(chunk) = self.first.take() {
            self.cut = chunk.end;
        }
    }
}

/// The place of the partition whose first chunk goes next: of those that are there the one that was written first, if
/// it is too old, or what is kept without it is still as much as was asked for.
fn next_to_go(heads: &[Head], retention: Retention, now: Timestamp) -> Option<usize> {
    let firsts = heads.iter().enumerate();
    let firsts = firsts.filter_map(|(place, head)| Some((head.first?.write_time, place)));
    let (write_time, place) = firsts.min()?;
    let is_old = |kept_ms: u64| write_time.saturating_add(kept_ms) <= now;
    let total: u64 = heads.iter().map(|head| head.kept_bytes).sum();
    let is_over = |bytes: u64| total.saturating_sub(heads[place].first_bytes()) >= bytes;
    let goes = retention.time_ms.is_some_and(is_old) || retention.bytes.is_some_and(is_over);
    goes.then_some(place)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CommitOutcome, leases};
    use crate::types::epoch::EpochCommit;
    use crate::types::queue::{QueueAppend, QueueRows};

    const QUEUE: [PartitionId; 2] = [PartitionId(11), PartitionId(12)];

    #[derive(Default)]
    struct TestClock(AtomicU64);

    impl Clock for TestClock {
        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }

        fn now(&self) -> Timestamp {
            self.0.load(Ordering::Relaxed)
        }
    }

    struct Kept {
        storage: Arc<dyn Storage>,
        clock: Arc<TestClock>,
        keeper: QueueKeeper,
    }

    fn kept(retention: Retention) -> Kept {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let clock = Arc::new(TestClock::default());
        let queue = KeptQueue {
            name: "q".to_owned(),
            partitions: QUEUE.to_vec(),
            retention,
        };
        let shared: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
        Kept {
            keeper: QueueKeeper::new(&storage, &shared, vec![queue]),
            storage,
            clock,
        }
    }

    impl Kept {
        /// Appends a chunk of rows of 20 bytes each.
        fn append(&self, place: usize, write_time: Timestamp, count: usize) {
            let mut rows = QueueRows {
                write_time,
                ..QueueRows::default()
            };
            for _ in 0..count {
                rows.push(b"k", 0, b"abc");
            }
            let lease = leases::grant(&*self.storage, PartitionId(1)).unwrap();
            let epoch = self.storage.head(PartitionId(1)).unwrap().epoch.next();
            let commit = EpochCommit {
                queue_appends: vec![QueueAppend {
                    queue: QUEUE[place],
                    rows: Arc::new(rows),
                }],
                ..EpochCommit::empty(&lease, epoch)
            };
            let outcome = self.storage.commit_epoch(lease, commit).unwrap();
            assert!(matches!(outcome, CommitOutcome::Committed(_)));
        }

        /// Where the partitions begin after a look at this time.
        fn starts_at(&mut self, now: Timestamp) -> [u64; 2] {
            self.clock.0.store(now, Ordering::Relaxed);
            self.keeper.sweep();
            QUEUE.map(|partition| read_bounds(&*self.storage, partition).unwrap().start)
        }
    }

    #[test]
    fn what_is_older_than_asked_goes_and_nothing_younger() {
        let mut kept = kept(Retention {
            time_ms: Some(100),
            bytes: None,
        });
        kept.append(0, 1_000, 3);
        kept.append(0, 1_050, 2);
        kept.append(1, 1_020, 4);
        assert_eq!(kept.starts_at(1_099), [0, 0]);
        assert_eq!(kept.starts_at(1_100), [3, 0]);
        assert_eq!(kept.starts_at(1_149), [3, 4]);
        kept.append(0, 1_100, 1);
        assert_eq!(kept.starts_at(1_150), [5, 4]);
        // A clock that was set back keeps rows for longer.
        assert_eq!(kept.starts_at(10), [5, 4]);
        assert_eq!(kept.starts_at(1_200), [6, 4]);
    }

    #[test]
    fn what_is_more_than_asked_goes_oldest_first_and_as_much_as_asked_stays() {
        let mut kept = kept(Retention {
            time_ms: None,
            bytes: Some(100),
        });
        kept.append(0, 1, 3);
        kept.append(1, 2, 3);
        assert_eq!(
            kept.starts_at(9),
            [0, 0],
            "without the first chunk it is 60 bytes"
        );
        kept.append(1, 3, 2);
        assert_eq!(kept.starts_at(9), [3, 0]);
        kept.append(1, 4, 5);
        assert_eq!(kept.starts_at(9), [3, 5], "the last chunk has 100 bytes");
        // What was trimmed by hand counts no more.
        kept.storage.trim_queue(QUEUE[1], 6).unwrap();
        kept.append(0, 5, 1);
        assert_eq!(kept.starts_at(9), [3, 6]);
    }

    #[test]
    fn many_chunks_go_in_one_look_and_an_empty_queue_is_left_alone() {
        let mut kept = kept(Retention {
            time_ms: Some(0),
            bytes: Some(1),
        });
        assert_eq!(kept.starts_at(5), [0, 0]);
        let count = CHUNKS_PASSED_MAX + 10;
        for _ in 0..count {
            kept.append(0, 1, 1);
        }
        assert_eq!(kept.starts_at(5), [count as u64, 0]);
        assert!(kept.keeper.failed.is_empty());
    }
}
