//! The right to change one partition while no job runs: a lease, and the epochs under it.

use super::RepartitionError;
use crate::storage::{CommitOutcome, CommitTicket, Storage, StorageError, leases, rows};
use crate::types::batch::Timestamp;
use crate::types::epoch::{EpochCommit, EpochRecord};
use crate::types::ids::{EpochId, PartitionId};
use crate::types::lease::Lease;

/// A partition under a lease of its own, and which epoch comes next.
pub(super) struct PartitionWriter<'a> {
    storage: &'a dyn Storage,
    lease: Lease,
    next: EpochId,
    record: EpochRecord,
}

/// Epochs that are on their way to their decision.
#[derive(Default)]
pub(super) struct PendingEpochs {
    epochs: Vec<(PartitionId, EpochId, CommitTicket)>,
}

impl<'a> PartitionWriter<'a> {
    /// Grants the lease; one in force ends.
    pub(super) fn open(
        storage: &'a dyn Storage,
        partition: PartitionId,
        deployment: u64,
    ) -> Result<PartitionWriter<'a>, StorageError> {
        let lease = leases::grant(storage, partition)?;
        Ok(PartitionWriter {
            storage,
            lease,
            next: storage.head(partition)?.epoch.next(),
            record: EpochRecord {
                deployment,
                alignment: alignment(storage, partition)?,
                ..EpochRecord::default()
            },
        })
    }

    /// Makes sure that no alignment timestamp that the partition gives is less than `alignment`.
    /// Whether that is more than it knew of.
    pub(super) fn raise_alignment(&mut self, alignment: Timestamp) -> bool {
        let rises = alignment > self.record.alignment;
        self.record.alignment = self.record.alignment.max(alignment);
        rises
    }

    /// The partition's next epoch, with nothing in it yet. It must be submitted before the one after
    /// it.
    pub(super) fn next_epoch(&mut self) -> (Lease, EpochCommit) {
        let epoch = EpochCommit {
            record: self.record.clone(),
            ..EpochCommit::empty(&self.lease, self.next)
        };
        self.next = self.next.next();
        (self.lease, epoch)
    }

    /// Commits the partition's next epoch with what `fill` puts into it.
    pub(super) fn commit(
        &mut self,
        fill: impl FnOnce(&mut EpochCommit),
    ) -> Result<(), RepartitionError> {
        let (lease, mut epoch) = self.next_epoch();
        fill(&mut epoch);
        PendingEpochs::submit(self.storage, vec![(lease, epoch)]).wait()
    }

    /// Gives the lease back.
    pub(super) fn close(self) -> Result<(), StorageError> {
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

/// The greatest alignment timestamp that the partition has given; its last epoch has it.
pub(super) fn alignment(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Timestamp, StorageError> {
    let head = storage.head(partition)?;
    let record = rows::read_epoch_record(storage, partition, head.epoch)?;
    Ok(record.map_or(0, |record| record.alignment))
}
