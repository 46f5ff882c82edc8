//! The right to change one partition while no job runs: a lease, and the epochs under it.

use super::RepartitionError;
use crate::storage::{CommitOutcome, CommitTicket, Storage, StorageError, leases, rows};
use crate::types::epoch::{EpochCommit, EpochRecord, StateAges};
use crate::types::ids::{EpochId, PartitionId};
use crate::types::lease::Lease;

/// A partition under a lease of its own, and which epoch comes next.
pub(in crate::controller) struct PartitionWriter<'a> {
    storage: &'a dyn Storage,
    lease: Lease,
    next: EpochId,
    /// What the record of its next epoch begins as.
    record: EpochRecord,
    /// What the record of its last epoch has of that.
    recorded: EpochRecord,
}

/// Epochs that are on their way to their decision.
#[derive(Default)]
pub(super) struct PendingEpochs {
    epochs: Vec<(PartitionId, EpochId, CommitTicket)>,
}

impl<'a> PartitionWriter<'a> {
    /// Grants the lease; one in force ends.
    pub(in crate::controller) fn open(
        storage: &'a dyn Storage,
        partition: PartitionId,
        deployment: u64,
    ) -> Result<PartitionWriter<'a>, StorageError> {
        let lease = leases::grant(storage, partition)?;
        let record = EpochRecord {
            deployment,
            ..last_record(storage, partition)?
        };
        Ok(PartitionWriter {
            storage,
            lease,
            next: storage.head(partition)?.epoch.next(),
            recorded: record.clone(),
            record,
        })
    }

    /// The partition.
    pub(super) fn partition(&self) -> PartitionId {
        self.lease.partition
    }

    /// Changes what the records of all further epochs say.
    pub(super) fn change_record(&mut self, change: impl FnOnce(&mut EpochRecord)) {
        change(&mut self.record);
    }

    /// Whether an epoch has yet to say what was changed in its record.
    pub(super) fn owes_record(&self) -> bool {
        self.record != self.recorded
    }

    /// The partition's next epoch, with nothing in it yet. It must be submitted before the one after
    /// it.
    pub(super) fn next_epoch(&mut self) -> (Lease, EpochCommit) {
        let epoch = EpochCommit {
            record: self.record.clone(),
            ..EpochCommit::empty(&self.lease, self.next)
        };
        self.next = self.next.next();
        self.recorded.clone_from(&self.record);
        (self.lease, epoch)
    }

    /// Commits the partition's next epoch with what `fill` puts into it.
    pub(in crate::controller) fn commit(
        &mut self,
        fill: impl FnOnce(&mut EpochCommit),
    ) -> Result<(), RepartitionError> {
        let (lease, mut epoch) = self.next_epoch();
        fill(&mut epoch);
        PendingEpochs::submit(self.storage, vec![(lease, epoch)]).wait()
    }

    /// Gives the lease back.
    pub(in crate::controller) fn close(self) -> Result<(), StorageError> {
        leases::end(self.storage, self.lease).map(drop)
    }
}

impl PendingEpochs {
    /// Submits epochs as one group.
    pub(super) fn submit(
        storage: &dyn Storage,
        epochs: Vec<(Lease, EpochCommit)>,
    ) -> PendingEpochs {
        let names: Vec<_> = (epochs.iter())
            .map(|(_, epoch)| (epoch.partition, epoch.epoch))
            .collect();
        let tickets = storage.submit_epochs(epochs);
        PendingEpochs {
            epochs: (names.into_iter().zip(tickets))
                .map(|((partition, epoch), ticket)| (partition, epoch, ticket))
                .collect(),
        }
    }

    /// Waits until all of them are decided.
    pub(super) fn wait(self) -> Result<(), RepartitionError> {
        for (partition, epoch, ticket) in self.epochs {
            match ticket.wait()? {
                CommitOutcome::Committed(_) => {}
                CommitOutcome::Refused(refusal) => return Err(RepartitionError::Refused(refusal)),
                CommitOutcome::Unknown => {
                    return Err(RepartitionError::OutcomeUnknown { partition, epoch });
                }
            }
        }
        Ok(())
    }
}

/// What the record of the partition's last epoch has for those that follow it: the greatest alignment
/// timestamp, and where the partition stands in time.
pub(super) fn last_record(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<EpochRecord, StorageError> {
    let head = storage.head(partition)?;
    let record = rows::read_epoch_record(storage, partition, head.epoch)?.unwrap_or_default();
    Ok(EpochRecord {
        alignment: record.alignment,
        time: record.time.without_counts(),
        ..EpochRecord::default()
    })
}

/// Raises what may not fall to what it is in another partition's record. Of states that were touched
/// when that is not known, and of ones that got their time to live at different watermarks, the later
/// time counts: none goes too early. None that is too old already comes back either.
pub(super) fn raise(record: &mut EpochRecord, other: &EpochRecord) {
    record.alignment = record.alignment.max(other.alignment);
    let (time, other) = (&mut record.time, &other.time);
    time.latest_watermark = time.latest_watermark.max(other.latest_watermark);
    raise_ages(&mut time.ages, &other.ages);
}

fn raise_ages(ages: &mut StateAges, other: &StateAges) {
    ages.first_watermark = ages.first_watermark.max(other.first_watermark);
    for of_other in &other.states {
        let known = ages
            .states
            .iter_mut()
            .find(|age| age.state == of_other.state);
        match known {
            Some(age) => {
                age.since = age.since.max(of_other.since);
                age.expired_up_to = age.expired_up_to.max(of_other.expired_up_to);
            }
            None => ages.states.push(of_other.clone()),
        }
    }
}
