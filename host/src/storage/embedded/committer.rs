//! The one thread that commits: it takes all epochs that wait through *stage*, *decide* and *apply*
//! together.
//!
//! - **Stage**: each epoch's entry goes into the bulk store under its full name; one sync. Here the
//!   committer assigns what needs a global order: the predecessor and the places in sink files and queues
//!   (`positions.rs`).
//! - **Decide**: one transaction reads every lease and head and writes the new heads; flush, sync.
//!   *An epoch is committed when its head is durable*; then it is published and answered.
//! - **Apply**: rows, applied heads and the removal of entries in one batch without a sync. It may
//!   lag behind: until then the overlay serves what is decided, and the entries prove it after a
//!   crash. Sink bytes are written and synced before it, and may be long before it: as long as the
//!   entries are there, they may be written again.
//!
//! **Invariant:** after an error of any step nothing is answered and nothing more is done; the
//! process ends. What the disk holds is for the next one to find out.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::storage::embedded::applying::{Pending, apply, place_appends, write_appends};
use crate::storage::embedded::bulk::RowChange;
use crate::storage::embedded::decisions::{Decision, Proposal};
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::finishing::finish_files;
use crate::storage::embedded::positions::Positions;
use crate::storage::embedded::queue::{Placement, QueueTrim, Submitted, Taken, TrimmedRows, Work};
use crate::storage::embedded::queue_partitions::DecidedChunks;
use crate::storage::embedded::sink_files::PlacedAppend;
use crate::storage::embedded::snapshot::EmbeddedSnapshot;
use crate::storage::embedded::{Sabotage, Shared};
use crate::storage::{CommitAnswer, CommitOutcome, Refusal, StorageError, codec, judge, keys};
use crate::types::epoch::Head;
use crate::types::ids::PartitionId;

/// The committer's own state.
pub(super) struct Committer {
    shared: Arc<Shared>,
    pending: Vec<Pending>,
    pending_bytes: usize,
    /// Decided sink bytes that are not in their files yet.
    unwritten: Vec<PlacedAppend>,
    unwritten_bytes: usize,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>) -> Committer {
        Committer {
            shared,
            pending: Vec::new(),
            pending_bytes: 0,
            unwritten: Vec::new(),
            unwritten_bytes: 0,
        }
    }

    /// Commits until the queue is closed, then applies what is left.
    pub(super) fn run(mut self) {
        let _guard = StopGuard(Arc::clone(&self.shared));
        loop {
            let taken = self.shared.queue.take(self.idle_after());
            let is_last = matches!(taken, Taken::Closed);
            // Kept over a failure, so that nobody hears of it before the process has ended.
            let unanswered: Vec<Unanswered> = match &taken {
                Taken::Work(work) => work.iter().map(Unanswered::of).collect(),
                _ => Vec::new(),
            };
            let done = match taken {
                Taken::Work(work) => self.work(work),
                Taken::Idle => self.catch_up(),
                Taken::Closed => self.settle(),
            };
            if let Err(error) = done {
                self.shared.stop(&error);
                drop(unanswered);
                return;
            }
            if is_last {
                return;
            }
        }
    }

    /// How long to wait for work before going on with what lags behind, if anything does.
    fn idle_after(&self) -> Option<Duration> {
        let options = &self.shared.options;
        if !self.unwritten.is_empty() {
            return Some(Duration::from_millis(options.sink_idle_ms));
        }
        (!self.pending.is_empty()).then(|| Duration::from_millis(options.apply_idle_ms))
    }

    fn catch_up(&mut self) -> Result<(), StorageError> {
        match self.unwritten.is_empty() {
            false => self.write_sink_bytes(),
            true => self.apply(),
        }
    }

    fn work(&mut self, work: impl IntoIterator<Item = Work>) -> Result<(), StorageError> {
        let mut group = Vec::new();
        for piece in work {
            match piece {
                Work::Epoch(submitted) => group.push(*submitted),
                Work::Settle(answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    self.settle()?;
                    // "Settled" is only said of rows that are in files that are there.
                    self.shared.sink_files().check_intact()?;
                    // Who asked may have gone away.
                    let _ = answer.send(());
                }
                Work::Trim(trim) => {
                    self.commit(std::mem::take(&mut group))?;
                    self.trim(&trim)?;
                }
                Work::Snapshot(answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    self.settle()?;
                    let snapshot = EmbeddedSnapshot::take(&self.shared)?;
                    // Who asked may have gone away.
                    let _ = answer.send(snapshot);
                }
            }
        }
        self.commit(group)
    }

    fn commit(&mut self, mut group: Vec<Submitted>) -> Result<(), StorageError> {
        let size_bytes: usize = group
            .iter()
            .map(|submitted| submitted.entry.bytes().len())
            .sum();
        if self.pending_bytes > 0
            && self.pending_bytes + size_bytes > self.shared.options.staged_bytes_max
        {
            self.apply()?;
        }
        while !group.is_empty() {
            group = self.stage(group)?;
            group = self.decide(group)?;
        }
        // Somebody waits for finished files.
        if self.finishes_files() || self.pending_bytes >= self.shared.options.apply_bytes {
            self.apply()?;
        }
        if self.unwritten_bytes >= self.shared.options.sink_bytes {
            self.write_sink_bytes()?;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------ stage

    /// Writes and syncs the entries of all that do not fail already here, and returns those.
    fn stage(&mut self, group: Vec<Submitted>) -> Result<Vec<Submitted>, StorageError> {
        let mut heads: HashMap<PartitionId, Head> = HashMap::new();
        let shared = Arc::clone(&self.shared);
        let mut positions = Positions::decided(&shared);
        let mut staged = Vec::with_capacity(group.len());
        let mut writes: Vec<RowChange> = Vec::with_capacity(group.len());
        for mut submitted in group {
            let partition = submitted.epoch.partition;
            let row = self.shared.decisions.get(&keys::lease(partition))?;
            let row = codec::decode_lease(partition, row.as_deref())?;
            let head = match heads.get(&partition) {
                Some(head) => *head,
                None => self.shared.decided_head(partition),
            };
            if let Some(refusal) = judge(&row, &head, &submitted.lease, submitted.epoch) {
                self.refuse(vec![(submitted, refusal)])?;
                continue;
            }
            let places = match positions.assign(&submitted) {
                Ok(places) => places,
                Err(error @ StorageError::Undecodable { .. }) => {
                    if submitted.placement.is_some() {
                        writes.push((entry_key(&submitted).into(), None));
                    }
                    refuse_unstorable(&submitted, &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_staged = (submitted.placement.as_ref())
                .is_some_and(|old| old.predecessor == head && old.places == places);
            if !is_staged {
                let checksum = submitted.entry.seal(&head, &places);
                let new = Head {
                    generation: submitted.epoch.generation,
                    epoch: submitted.epoch.epoch,
                    checksum,
                };
                writes.push((
                    entry_key(&submitted).into(),
                    Some(submitted.entry.bytes().into()),
                ));
                submitted.placement = Some(Placement {
                    predecessor: head,
                    places,
                    head: new,
                });
            }
            heads.extend(
                submitted
                    .placement
                    .as_ref()
                    .map(|placement| (partition, placement.head)),
            );
            staged.push(submitted);
        }
        if self.shared.is_sabotaged(Sabotage::EntriesNotStaged) {
            writes.clear();
        }
        if !writes.is_empty() {
            pass(&self.shared.faults, "stage: write the entries")?;
            self.shared.bulk.write(writes)?;
            pass(&self.shared.faults, "stage: sync the entries")?;
            self.shared.bulk.sync()?;
        }
        Ok(staged)
    }

    // ----------------------------------------------------------------------------- decide

    /// Decides on staged epochs, publishes and answers. Returns those that must be staged anew
    /// because a refused one left a gap.
    fn decide(&mut self, group: Vec<Submitted>) -> Result<Vec<Submitted>, StorageError> {
        let proposals: Vec<Proposal> = group.iter().filter_map(proposal).collect();
        if proposals.is_empty() {
            return Ok(Vec::new());
        }
        self.write_too_early(&group)?;
        pass(&self.shared.faults, "decide: write the heads")?;
        let decision = self.shared.decisions.decide(&proposals)?;
        let (refusals, is_written) = match decision {
            Decision::Written(refusals) => (refusals, true),
            Decision::Withheld(refusals) => (refusals, false),
        };
        let (mut accepted, mut refused) = (Vec::with_capacity(group.len()), Vec::new());
        for (submitted, refusal) in group.into_iter().zip(refusals) {
            match refusal {
                None => accepted.push(submitted),
                Some(refusal) => refused.push((submitted, refusal)),
            }
        }
        if is_written && !accepted.is_empty() {
            pass(&self.shared.faults, "decide: flush the heads")?;
            self.shared.decisions.flush()?;
            pass(&self.shared.faults, "decide: sync the heads")?;
            self.shared.decisions.sync()?;
        }
        self.refuse(refused)?;
        if !is_written {
            return Ok(accepted);
        }
        self.publish(accepted)?;
        Ok(Vec::new())
    }

    /// What a broken commit would do.
    fn write_too_early(&self, group: &[Submitted]) -> Result<(), StorageError> {
        if self.shared.is_sabotaged(Sabotage::RowsBeforeDecision) {
            for submitted in group {
                self.shared.bulk.write(submitted.run.rows().changes())?;
            }
        }
        if self.shared.is_sabotaged(Sabotage::QueueRowsBeforeDecision) {
            let mut chunks = DecidedChunks::default();
            for submitted in group {
                let places = submitted.placement.iter().flat_map(|it| &it.places.queues);
                chunks.add(submitted.queue_appends.clone(), places.copied());
            }
            for (_, run) in chunks.into_runs(&self.shared)? {
                self.shared.bulk.write(run.rows().changes())?;
            }
        }
        Ok(())
    }

    /// Answers refused epochs and removes the entries that they have. The removal needs no sync:
    /// an entry that no head leads to is never applied.
    fn refuse(&self, refused: Vec<(Submitted, Refusal)>) -> Result<(), StorageError> {
        let removals: Vec<RowChange> = (refused.iter())
            .filter(|(submitted, _)| submitted.placement.is_some())
            .map(|(submitted, _)| (entry_key(submitted).into(), None))
            .collect();
        if !removals.is_empty() {
            pass(&self.shared.faults, "decide: remove refused entries")?;
            self.shared.bulk.write(removals)?;
        }
        for (submitted, refusal) in refused {
            // Who asked may have gone away.
            let _ = submitted.answer.send(Ok(CommitOutcome::Refused(refusal)));
        }
        Ok(())
    }

    /// Makes decided epochs visible, answers, and only then tidies up.
    fn publish(&mut self, accepted: Vec<Submitted>) -> Result<(), StorageError> {
        let mut runs = Vec::with_capacity(accepted.len());
        let mut heads = Vec::with_capacity(accepted.len());
        let mut chunks = DecidedChunks::default();
        let mut answers = Vec::with_capacity(accepted.len());
        let mut partitions = BTreeSet::new();
        for submitted in accepted {
            let Some(placement) = &submitted.placement else {
                continue;
            };
            let head = placement.head;
            let partition = submitted.epoch.partition;
            let entry_key = entry_key(&submitted);
            let files = submitted.appends.iter().map(|append| append.file).collect();
            let appends = place_appends(submitted.appends, &placement.places.files);
            let places = placement.places.queues.iter().copied();
            chunks.add(submitted.queue_appends, places);
            if !appends.is_empty() {
                let mut sink_files = self.shared.sink_files();
                for append in &appends {
                    let end = append.offset + append.bytes.len() as u64;
                    sink_files.set_decided_len(append.file, end);
                }
            }
            for file in &submitted.finished_files {
                self.shared.sink_files().close(*file);
            }
            runs.push((partition, submitted.run));
            heads.push((partition, head));
            self.pending_bytes += submitted.entry.bytes().len() + submitted.timer_row_bytes;
            self.unwritten_bytes += (appends.iter())
                .map(|append| append.bytes.len())
                .sum::<usize>();
            self.unwritten.extend(appends);
            self.pending.push(Pending {
                entry_key,
                partition,
                head,
                files,
                finished: submitted.finished_files,
            });
            partitions.insert(partition);
            answers.push((submitted.answer, head));
        }
        let of_queues = chunks.into_runs(&self.shared)?;
        let queues: Vec<PartitionId> = of_queues.iter().map(|(queue, _)| *queue).collect();
        partitions.extend(&queues);
        // Whole epochs, with what they bring to queues, at one moment.
        self.shared
            .overlay
            .publish(runs.into_iter().chain(of_queues));
        for (partition, head) in heads {
            self.shared.set_decided_head(partition, head);
        }
        for (answer, head) in answers {
            // Who asked may have gone away.
            let _ = answer.try_send(Ok(CommitOutcome::Committed(head)));
        }
        if !queues.is_empty() {
            self.shared.tell_queue_listeners(&queues);
        }
        for partition in partitions {
            self.shared.overlay.compact(partition);
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------ apply

    fn write_sink_bytes(&mut self) -> Result<(), StorageError> {
        self.unwritten_bytes = 0;
        let mut appends = std::mem::take(&mut self.unwritten);
        match appends.is_empty() {
            true => Ok(()),
            false => write_appends(&self.shared, &mut appends),
        }
    }

    fn apply(&mut self) -> Result<(), StorageError> {
        self.write_sink_bytes()?;
        self.pending_bytes = 0;
        let finishes = self.finishes_files();
        if finishes && self.shared.is_sabotaged(Sabotage::FilesFinishedBeforeRows) {
            let finished = self.pending.iter().flat_map(|decided| &decided.finished);
            finished.for_each(|file| self.shared.sink_files().set_finished(*file));
            finish_files(&self.shared)?;
        }
        for file in self.pending.iter().flat_map(|decided| &decided.finished) {
            self.shared.sink_files().check_finishable(*file)?;
        }
        apply(&self.shared, &mut self.pending)?;
        if finishes {
            pass(&self.shared.faults, "finish: sync the rows")?;
            self.shared.bulk.sync()?;
            finish_files(&self.shared)?;
        }
        Ok(())
    }

    /// Whether decided epochs that are not applied say of files that nothing more comes.
    fn finishes_files(&self) -> bool {
        let mut pending = self.pending.iter();
        pending.any(|decided| !decided.finished.is_empty())
    }

    /// Lets rows of queues go. A partition for which that can't be planned stays as it is, and who asked is told.
    fn trim(&mut self, trim: &QueueTrim) -> Result<(), StorageError> {
        self.apply()?;
        let done = match &trim.what {
            TrimmedRows::All(queue) => Ok(self.shared.remove(*queue)?),
            TrimmedRows::Leftovers(queue) => Ok(self.shared.remove_leftovers(*queue)?),
            TrimmedRows::Below(trims) => {
                let (planned, done) = self.shared.plan_trims(trims);
                self.shared.trim(&planned)?;
                done
            }
        };
        // Who asked may have gone away.
        let _ = trim.answer.send(done);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), StorageError> {
        self.apply()?;
        self.shared.write_mark()?;
        pass(&self.shared.faults, "settle: sync the rows")?;
        self.shared.bulk.sync()
    }
}

fn entry_key(submitted: &Submitted) -> Vec<u8> {
    let epoch = submitted.epoch;
    keys::entry(epoch.partition, epoch.generation, epoch.epoch)
}

/// Tells who submitted an epoch that it has rows for a queue that is damaged.
fn refuse_unstorable(submitted: &Submitted, damage: &StorageError) {
    // Who asked may have gone away.
    let _ = submitted.answer.send(Err(StorageError::Unstorable {
        partition: submitted.epoch.partition,
        epoch: submitted.epoch.epoch,
        finding: format!("{damage}; restore the data directory from a backup, or delete the queue"),
    }));
}

fn proposal(submitted: &Submitted) -> Option<Proposal> {
    let placement = submitted.placement.as_ref()?;
    Some(Proposal {
        lease: submitted.lease,
        epoch: submitted.epoch,
        predecessor: placement.predecessor,
        head: placement.head,
        holds_room: !placement.places.is_empty(),
    })
}

/// Keeps whoever waits for an answer waiting.
enum Unanswered {
    Epoch {
        _answer: CommitAnswer,
    },
    Settle {
        _answer: SyncSender<()>,
    },
    Snapshot {
        _answer: SyncSender<EmbeddedSnapshot>,
    },
    Trim {
        _trim: QueueTrim,
    },
}

impl Unanswered {
    fn of(work: &Work) -> Unanswered {
        match work {
            Work::Epoch(submitted) => Unanswered::Epoch {
                _answer: submitted.answer.clone(),
            },
            Work::Settle(answer) => Unanswered::Settle {
                _answer: answer.clone(),
            },
            Work::Trim(trim) => Unanswered::Trim {
                _trim: trim.clone(),
            },
            Work::Snapshot(answer) => Unanswered::Snapshot {
                _answer: answer.clone(),
            },
        }
    }
}

/// However the committer ends, nobody waits for it afterwards.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.has_stopped.store(true, Ordering::Release);
        self.0.queue.abandon();
    }
}
