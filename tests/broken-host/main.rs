//! The host with a commit that is broken on purpose: the positive control of the kill tests. Rows
//! of file sinks and of queues are written before the epoch is decided and not by it, so a kill in between
//! leaves rows that the next run writes again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tidelock::storage::leases::{self, Counter};
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::{
    CatalogChange, CatalogOutcome, CommitTicket, QueueListener, Storage, StorageError, StoreSize,
    StoreSnapshot, StoredRow,
};
use tidelock::types::epoch::{EpochCommit, Head};
use tidelock::types::ids::{EpochId, PartitionId, SinkFileId};
use tidelock::types::lease::Lease;
use tidelock::types::queue::QueueAppend;

fn main() -> ExitCode {
    tidelock::cli::main(&|directory| {
        let honest = tidelock::cli::open_embedded_storage(directory)?;
        Ok(Arc::new(BrokenStorage {
            honest,
            files: Mutex::default(),
            carrier: Mutex::default(),
        }))
    })
}

/// Storage whose sink rows are no part of the commit.
struct BrokenStorage {
    honest: Arc<dyn Storage>,
    files: Mutex<BTreeMap<SinkFileId, File>>,
    /// The lease under which rows of queues are committed by themselves, and the epoch that comes next.
    carrier: Mutex<Option<(Lease, EpochId)>>,
}

impl BrokenStorage {
    /// Commits rows of queues as an epoch of a partition that has nothing to do with them.
    fn commit_apart(&self, appends: Vec<QueueAppend>) {
        let mut carrier = self
            .carrier
            .lock()
            .expect("no thread panics with the carrier");
        let (lease, epoch) = carrier.get_or_insert_with(|| {
            let number = leases::allocate(&*self.honest, Counter::Partitions, 1);
            let partition = PartitionId(number.expect("the store is sound"));
            let lease = leases::grant(&*self.honest, partition);
            (lease.expect("the store is sound"), EpochId(1))
        });
        let commit = EpochCommit {
            queue_appends: appends,
            ..EpochCommit::empty(lease, *epoch)
        };
        *epoch = epoch.next();
        let outcome = self.honest.commit_epoch(*lease, commit);
        outcome.expect("the store is sound");
    }
}

impl Storage for BrokenStorage {
    fn submit_epoch(&self, lease: Lease, mut commit: EpochCommit) -> CommitTicket {
        let mut files = self.files.lock().expect("no thread panics with the files");
        for append in commit.appends.drain(..) {
            let file = files.get_mut(&append.file).expect("the file was opened");
            file.write_all(&append.bytes).expect("the disk has room");
        }
        let appends = std::mem::take(&mut commit.queue_appends);
        if !appends.is_empty() {
            self.commit_apart(appends);
        }
        self.honest.submit_epoch(lease, commit)
    }

    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError> {
        // The honest store would notice rows that it did not write: it is shown another file.
        let shown = path.with_extension("shown");
        let id = self.honest.open_sink_file(&shown)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("the output folder was made above");
        let mut files = self.files.lock().expect("no thread panics with the files");
        files.insert(id, file);
        Ok(id)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.honest.get(key)
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        self.honest.get_many(keys)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError> {
        self.honest.scan(start, end, limit)
    }

    fn head(&self, partition: PartitionId) -> Result<Head, StorageError> {
        self.honest.head(partition)
    }

    fn read_catalog(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.honest.read_catalog(key)
    }

    fn scan_catalog(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError> {
        self.honest.scan_catalog(prefix)
    }

    fn commit_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        self.honest.commit_catalog(change)
    }

    fn trim_queues(&self, trims: &[(PartitionId, u64)]) -> Result<(), StorageError> {
        self.honest.trim_queues(trims)
    }

    fn remove_queue(&self, queue: PartitionId) -> Result<(), StorageError> {
        self.honest.remove_queue(queue)
    }

    fn on_queue_append(&self, listener: QueueListener) {
        self.honest.on_queue_append(listener);
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.honest.settle()
    }

    fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>, StorageError> {
        self.honest.snapshot()
    }

    fn size(&self) -> Result<StoreSize, StorageError> {
        self.honest.size()
    }
}
