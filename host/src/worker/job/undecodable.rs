//! Records that a source could not decode: the epoch that moves the position past them keeps them as dead letters,
//! or counts them.
//!
//! **Invariant:** watermarks go by what was decoded alone, so that the rest of the input leads to the same results as
//! if such records were not there.

use crate::engine::epoch::OpenEpoch;
use crate::source::undecodable::UndecodableRecord;
use crate::storage::letter_rows::letter_size_bound;
use crate::types::dead_letter::{DeadLetter, LetterFailure, LetterItem, LetterOrigin};
use crate::types::pipeline::OnFailure;

use super::{Job, JobInput};

impl Job {
    /// Takes records of the batch that comes next into the epoch, before that batch.
    pub(super) fn pass_over(&mut self, epoch: &mut OpenEpoch, undecodable: Vec<UndecodableRecord>) {
        let JobInput::Source(source) = &self.input else {
            return;
        };
        let now = self.clock.now();
        let taken = epoch.input_messages();
        for (before, record) in (0..).zip(undecodable) {
            let number = taken + before + record.place as u64;
            epoch.add_undecodable(number, &record.bytes, record.size_bytes);
            let location = source.locate_record(record.position).to_string();
            let (class, reason) = (record.flaw.class(), record.flaw.to_string());
            tracing::trace!(epoch = %epoch.id(), %location, %reason, "record passed over");
            if self.on_undecodable == OnFailure::Skip {
                self.passed.skipped += 1;
                continue;
            }
            let letter = DeadLetter {
                pipeline: self.pipeline.clone(),
                deployment: self.identity.deployment,
                written: now,
                origin: LetterOrigin::Source {
                    name: self.name.clone(),
                },
                item: LetterItem::Record {
                    of: record.of,
                    position: record.position,
                    bytes: record.bytes,
                    size_bytes: record.size_bytes,
                },
                location,
                root: None,
                failure: LetterFailure {
                    class: class.to_owned(),
                    reason,
                    ..LetterFailure::default()
                },
                attempts: 1,
            };
            epoch.add_output_bytes(letter_size_bound(&letter));
            self.passed.letters.push(letter);
        }
    }
}
