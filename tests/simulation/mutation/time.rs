//! What engines that are broken in time commit in place of a sound epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock::types::batch::TimeDomain;
use tidelock::types::epoch::{ChunkMessages, EpochCommit, EpochTime};
use tidelock::types::ids::{PartitionId, SinkFileId};
use tidelock::types::timer::PendingTimers;
use tidelock::types::watermark::END_OF_TIME;

/// Timers that have fired and whose rows go with a later epoch, by partition and stream.
pub(crate) type RemovedLater = BTreeMap<(PartitionId, String), PendingTimers>;

/// Of where the partition stands in time nothing is kept but what does not belong to the run.
pub(crate) fn forget_watermarks(commit: &mut EpochCommit) {
    let time = std::mem::take(&mut commit.record.time);
    commit.record.time = EpochTime {
        run: time.run,
        latest_watermark: time.latest_watermark,
        ages: time.ages,
        pending_timers: time.pending_timers,
        ..EpochTime::default()
    };
}

/// The steps of an epoch stand before its messages.
pub(crate) fn put_steps_first(commit: &mut EpochCommit) {
    change_chunks(commit, |messages| {
        let steps = messages.steps.len() as u32;
        messages
            .indexes
            .iter_mut()
            .for_each(|index| *index += steps);
        for (index, step) in (0..).zip(&mut messages.steps) {
            step.index = index;
        }
    });
}

/// The last step behind messages is not handed on.
pub(crate) fn lose_steps(commit: &mut EpochCommit) {
    change_chunks(commit, |messages| {
        if !messages.indexes.is_empty() {
            messages.steps.pop();
        }
    });
}

/// A transform tells its readers the watermark of its inputs, whatever its timers hold.
pub(crate) fn ignore_holds(commit: &mut EpochCommit) {
    let time = &mut commit.record.time;
    let least = time.input_watermarks.iter().copied().min();
    let least = least.filter(|least| *least != END_OF_TIME);
    if let Some(least) = least.filter(|least| *least > time.output.watermark) {
        let mut is_told = false;
        change_chunks(commit, |messages| {
            if let Some(step) = messages.steps.last_mut() {
                step.time.watermark = least;
                is_told = true;
            }
        });
        if is_told {
            commit.record.time.output.watermark = least;
        }
    }
}

/// What happens to the rows of timers is spoiled.
pub(crate) fn change_timers(
    commit: &mut EpochCommit,
    change: impl Fn(&mut PendingTimers, &mut PendingTimers),
) {
    for changes in &mut commit.timers {
        if changes.domain == TimeDomain::EventTime {
            change(&mut changes.removed, &mut changes.set);
        }
    }
}

/// Rows of timers that have fired go with a later epoch.
pub(crate) fn remove_timers_later(commit: &mut EpochCommit, kept: &mut RemovedLater) {
    let partition = commit.partition;
    for changes in &mut commit.timers {
        let later = std::mem::take(&mut changes.removed);
        let earlier = kept.insert((partition, changes.stream.clone()), later);
        changes.removed = earlier.unwrap_or_default();
    }
}

/// Two timers that fire one behind the other change places: their answers in the job's witness do.
pub(crate) fn swap_timers(commit: &mut EpochCommit) {
    let witness: Option<SinkFileId> = commit.appends.first().map(|append| append.file);
    let Some(append) = (commit.appends.iter_mut()).find(|append| Some(append.file) == witness)
    else {
        return;
    };
    let mut rows: Vec<&[u8]> = append
        .bytes
        .split_inclusive(|byte| *byte == b'\n')
        .collect();
    let is_timer = |row: &[u8]| row.contains(&b'!');
    let watermarks = |row: &[u8]| {
        let at = row.iter().rposition(|byte| *byte == b'w').unwrap_or(0);
        row[at..].to_vec()
    };
    let pair = (1..rows.len()).find(|at| {
        let (first, second) = (rows[*at - 1], rows[*at]);
        is_timer(first) && is_timer(second) && watermarks(first) == watermarks(second)
    });
    if let Some(at) = pair {
        rows.swap(at - 1, at);
    }
    append.bytes = rows.concat();
}

fn change_chunks(commit: &mut EpochCommit, mut change: impl FnMut(&mut ChunkMessages)) {
    for chunk in &mut commit.chunks {
        change(Arc::make_mut(&mut chunk.messages));
    }
    commit.chunks.retain(|chunk| !chunk.messages.is_empty());
}
