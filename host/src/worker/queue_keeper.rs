//! Retention of queues while a run goes on: what is kept for longer than asked goes, whole chunks from the start.
//!
//! **Invariant:** nothing goes that is younger than the queue's time and within its bytes. Whether somebody has read
//! it makes no difference: a reader that is too slow is told what it lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
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

/// How many chunks of one partition go in one trim.
const CHUNKS_OF_PARTITION_MAX: usize = 1_024;

/// How many chunks go in one trim, whose other work it puts off: that of the many partitions of a queue that is
/// written to 20 times a second goes in a second of it or so.
const CHUNKS_OF_TRIM_MAX: usize = 16_384;

/// How much of a partition is read at a time to learn how old its chunks are.
const PAGE_LIMIT: ScanLimit = ScanLimit {
    rows: 64,
    bytes: 1 << 20,
};

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
    /// The first chunks of each partition, as they were read.
    known: BTreeMap<PartitionId, VecDeque<KnownChunk>>,
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
            known: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Whether there is any queue to keep.
    pub fn is_needed(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Looks at the queues now and once in [`RETENTION_PERIOD`], until the other end of `ended` is gone.
    pub fn run(mut self, ended: &Receiver<()>) {
        while self.sweep_while(|| matches!(ended.try_recv(), Err(TryRecvError::Empty))) {
            match ended.recv_timeout(RETENTION_PERIOD) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at every queue once. One that can't be trimmed is logged.
    pub fn sweep(&mut self) {
        self.sweep_while(|| true);
    }

    /// The same as long as it is `wanted`, which is asked before each read and each trim; whether it was to the end.
    fn sweep_while(&mut self, wanted: impl Fn() -> bool) -> bool {
        for queue in self.queues.clone() {
            if self.failed.contains(&queue.name) {
                continue;
            }
            let swept = loop {
                match self.sweep_queue(&queue, &wanted) {
                    Ok(Swept::InPart) => {}
                    Ok(Swept::Whole) => break Ok(()),
                    Ok(Swept::NoMore) => return false,
                    Err(error) => break Err(error),
                }
            };
            if let Err(error) = swept {
                let error = &error as &dyn std::error::Error;
                tracing::error!(queue = queue.name, error, "queue not trimmed");
                self.failed.insert(queue.name);
            }
        }
        true
    }

    /// Trims a queue, all partitions at once.
    fn sweep_queue(
        &mut self,
        queue: &KeptQueue,
        wanted: &impl Fn() -> bool,
    ) -> Result<Swept, StorageError> {
        let now = self.clock.now();
        let mut heads = Vec::with_capacity(queue.partitions.len());
        // The place of each partition whose chunks may go, by when its first one was written.
        let mut firsts = BinaryHeap::with_capacity(queue.partitions.len());
        for partition in &queue.partitions {
            if !wanted() {
                return Ok(Swept::NoMore);
            }
            let bounds = read_bounds(&*self.storage, *partition)?;
            let mut head = Head::new(*partition, bounds);
            self.look_at_first(&mut head, now)?;
            firsts.extend(head.first.map(|chunk| Reverse((chunk.age(), heads.len()))));
            heads.push(head);
        }
        let mut kept_bytes: u64 = heads.iter().map(|head| head.bounds.size_bytes()).sum();
        let (mut passed, mut is_whole) = (0, true);
        while let Some(Reverse(((is_withheld, write_time), place))) = firsts.pop() {
            let head = &mut heads[place];
            let first_bytes = head.first_bytes();
            let is_old = |kept_ms| !is_withheld && write_time.saturating_add(kept_ms) <= now;
            let is_over = |bytes| kept_bytes.saturating_sub(first_bytes) >= bytes;
            let goes = queue.retention.time_ms.is_some_and(is_old)
                || queue.retention.bytes.is_some_and(is_over);
            if !goes {
                break;
            }
            if passed == CHUNKS_OF_TRIM_MAX || head.passed == CHUNKS_OF_PARTITION_MAX {
                // Younger ones of other partitions stay for as long as this one does.
                is_whole = false;
                break;
            }
            if !wanted() {
                return Ok(Swept::NoMore);
            }
            passed += 1;
            kept_bytes = kept_bytes.saturating_sub(first_bytes);
            head.pass_first();
            self.look_at_first(head, now)?;
            firsts.extend(head.first.map(|chunk| Reverse((chunk.age(), place))));
        }
        let cut = heads.iter().filter(|head| head.cut > head.bounds.start);
        let trims: Vec<(PartitionId, u64)> = cut.map(|head| (head.partition, head.cut)).collect();
        if !trims.is_empty() {
            self.storage.trim_queues(&trims)?;
            let partitions = trims.len();
            tracing::info!(
                queue = queue.name,
                partitions,
                chunks = passed,
                "queue trimmed"
            );
        }
        Ok(match is_whole {
            true => Swept::Whole,
            false => Swept::InPart,
        })
    }

    fn look_at_first(&mut self, head: &mut Head, now: Timestamp) -> Result<(), StorageError> {
        head.first = None;
        if head.cut >= head.bounds.end {
            return Ok(());
        }
        let known = self.known.entry(head.partition).or_default();
        while known
            .front()
            .is_some_and(|chunk| chunk.header.end <= head.cut)
        {
            known.pop_front();
        }
        if known.is_empty() {
            let read = scan_chunk_headers(&*self.storage, head.partition, head.cut, PAGE_LIMIT)?;
            *known = know(&read, now);
        }
        head.first = known.front().copied();
        Ok(())
    }
}

/// How far a look at a queue has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// All is done.
    Whole,
    /// There is more to trim.
    InPart,
    /// It was not wanted any more.
    NoMore,
}

/// A chunk, and what its age is taken for.
#[derive(Debug, Clone, Copy)]
struct KnownChunk {
    header: QueueChunkHeader,
    /// When it was written at the latest; `None` where a damaged partition has its rows.
    write_time: Option<Timestamp>,
}

impl KnownChunk {
    /// The less, the sooner it goes: withheld rows last.
    fn age(&self) -> (bool, Timestamp) {
        (self.write_time.is_none(), self.write_time.unwrap_or(0))
    }
}

/// Chunks that were read at a time. A writer's clock that went ahead must not keep rows for ever: none is younger
/// than one behind it, and none was written later than it was read.
fn know(read: &[QueueChunkHeader], now: Timestamp) -> VecDeque<KnownChunk> {
    let mut known = VecDeque::with_capacity(read.len());
    let mut latest = now;
    for header in read.iter().rev() {
        let write_time = header.write_time.map(|time| time.min(latest));
        latest = write_time.unwrap_or(latest);
        known.push_front(KnownChunk {
            header: *header,
            write_time,
        });
    }
    known
}

/// The beginning of a partition.
struct Head {
    partition: PartitionId,
    bounds: QueueBounds,
    /// Rows before this offset go.
    cut: u64,
    /// How many chunks that are.
    passed: usize,
    /// The first chunk that stays, if any does.
    first: Option<KnownChunk>,
}

impl Head {
    fn new(partition: PartitionId, bounds: QueueBounds) -> Head {
        Head {
            partition,
            bounds,
            cut: bounds.start,
            passed: 0,
            first: None,
        }
    }

    /// Bytes of the first chunk, without what was trimmed of it before.
    fn first_bytes(&self) -> u64 {
        self.first.map_or(0, |chunk| {
            let end = chunk.header.bytes_before + chunk.header.size_bytes;
            end.saturating_sub(self.bounds.trimmed_bytes.max(chunk.header.bytes_before))
        })
    }

    fn pass_first(&mut self) {
        if let Some(chunk) = self.first.take() {
            self.cut = chunk.header.end;
            self.passed += 1;
        }
    }
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
        // A clock that was set back is no reason to let rows go, nor to keep them once it is right again.
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
        let count = CHUNKS_OF_PARTITION_MAX + 10;
        for _ in 0..count {
            kept.append(0, 1, 1);
        }
        assert_eq!(kept.starts_at(5), [count as u64, 0]);
        assert!(kept.keeper.failed.is_empty());
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_row_for_ever() {
        let mut kept = kept(Retention {
            time_ms: Some(100),
            bytes: None,
        });
        let ahead = 4_000_000_000_000;
        kept.append(0, ahead, 1);
        kept.append(0, 1_000, 1);
        kept.append(0, ahead, 1);
        kept.append(1, ahead, 2);
        assert_eq!(kept.starts_at(1_050), [0, 0]);
        assert_eq!(
            kept.starts_at(1_100),
            [2, 0],
            "what stands before a row is no younger than it"
        );
        assert_eq!(
            kept.starts_at(1_149),
            [2, 0],
            "what comes from the future is as old as the look at it"
        );
        assert_eq!(kept.starts_at(1_150), [3, 2]);
    }

    #[test]
    fn who_stops_does_not_wait_for_the_rest_of_many_partitions() {
        const PARTITIONS: u64 = 256;
        let mut kept = kept(Retention {
            time_ms: Some(0),
            bytes: None,
        });
        kept.keeper.queues[0].partitions = (0..PARTITIONS).map(PartitionId).collect();
        kept.append(0, 1, 1);
        kept.append(1, 1, 1);
        let asked = AtomicU64::new(0);
        let wanted = || asked.fetch_add(1, Ordering::Relaxed) < PARTITIONS / 2;
        kept.clock.0.store(9, Ordering::Relaxed);
        assert!(!kept.keeper.sweep_while(wanted));
        assert_eq!(asked.into_inner(), PARTITIONS / 2 + 1, "it ended at once");
        let starts = || QUEUE.map(|queue| read_bounds(&*kept.storage, queue).unwrap().start);
        assert_eq!(starts(), [0, 0]);
        // A run that has ended before the first look.
        let (ended, when_ended) = std::sync::mpsc::channel();
        drop(ended);
        kept.keeper.run(&when_ended);
        assert_eq!(starts(), [0, 0]);
    }
}
