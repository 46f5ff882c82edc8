//! Which batches of a computation are run again under another cut, to see that its outputs do not
//! depend on it. A component can break that promise in ways that no check of its imports shows, and
//! then its results would change with the size of batches.
//!
//! Nothing is drawn by lot: a job that is repeated audits the same batches.

use crate::guest::Computation;

/// One batch of this many is audited, beginning with the first one of a job.
const BATCHES_PER_AUDIT: u64 = 256;

/// Counts the batches of one computation in one job.
#[derive(Debug)]
pub struct CutAudit {
    /// Batches that could be cut.
    batch_count: u64,
}

impl CutAudit {
    /// The audit of a computation; `None` where another cut would say nothing of it.
    pub fn of(computation: &Computation) -> Option<CutAudit> {
        (computation.can_verify_cut()).then_some(CutAudit { batch_count: 0 })
    }

    /// Counts a batch in. Returns the item to cut it before, if it is to be audited.
    pub fn next_cut(&mut self, item_count: usize) -> Option<usize> {
        if item_count < 2 {
            return None;
        }
        let batch = self.batch_count;
        self.batch_count += 1;
        if !batch.is_multiple_of(BATCHES_PER_AUDIT) {
            return None;
        }
        // Near the middle, where most keys are on both sides, and another place each time, so that
        // no period within a batch stays hidden.
        let audit = (batch / BATCHES_PER_AUDIT) as usize;
        Some(1 + (item_count / 2 - 1 + audit) % (item_count - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(item_counts: impl IntoIterator<Item = usize>) -> Vec<(usize, usize)> {
        let mut audit = CutAudit { batch_count: 0 };
        let cut = |(batch, item_count)| Some((batch, audit.next_cut(item_count)?));
        item_counts
            .into_iter()
            .enumerate()
            .filter_map(cut)
            .collect()
    }

    #[test]
    fn n1_the_first_batch_is_audited_and_then_one_of_256() {
        let audited: Vec<usize> = cuts([1_000; 600]).iter().map(|(batch, _)| *batch).collect();
        assert_eq!(audited, [0, 256, 512]);
    }

    #[test]
    fn n1_batches_of_one_item_do_not_use_up_the_first_audit() {
        assert_eq!(cuts([1, 1, 2]), [(2, 1)]);
    }

    #[test]
    fn n1_cuts_lie_inside_the_batch_and_wander() {
        assert_eq!(cuts([1_000; 257]), [(0, 500), (256, 501)]);
        for item_count in 2..20 {
            for (_, at) in cuts(vec![item_count; 256 * 50]) {
                assert!((1..item_count).contains(&at), "{at} of {item_count}");
            }
        }
    }
}
