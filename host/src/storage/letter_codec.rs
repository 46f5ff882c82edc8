//! The bytes of dead letters: in staged epochs, and as they are stored.

use crate::storage::codec::{FORMAT_VERSION, Finding, NewValue};
use crate::storage::{StorageError, keys};
use crate::types::batch::Batch;
use crate::types::column::Column;
use crate::types::dead_letter::{DeadLetter, DeadLetterId, LetterItem, LetterOrigin};
use crate::types::epoch::EpochCommit;
use crate::types::format_version::unknown_version;

/// The most dead letters that one epoch may write.
pub(super) const LETTERS_PER_EPOCH_MAX: usize = 1 << 20;

/// A letter's bytes, its format version first. Behind that they are postcard's, as letters are few and read by
/// people.
pub(super) fn encode_letter(letter: &DeadLetter) -> Vec<u8> {
    let stored = without_second_payload(letter);
    postcard::to_extend(stored.as_ref().unwrap_or(letter), vec![FORMAT_VERSION])
        .expect("writing into memory can't fail, and a letter has no sequence of unknown length")
}

/// The same letter without the payload in its batch, where that is the item's: it is written once. `None` where it is
/// not.
fn without_second_payload(letter: &DeadLetter) -> Option<DeadLetter> {
    let (LetterOrigin::Computation(computation), LetterItem::Message { payload, .. }) =
        (&letter.origin, &letter.item)
    else {
        return None;
    };
    let mut payloads = computation.batch.messages.payloads.iter();
    let is_same = payloads.next().is_some_and(|first| first == payload);
    (is_same && payloads.next().is_none()).then(|| {
        let mut stored = letter.clone();
        if let LetterOrigin::Computation(computation) = &mut stored.origin {
            computation.batch.messages.payloads = Column::default();
        }
        stored
    })
}

/// Refuses columns that contradict themselves: nobody who reads a letter looks again.
fn checked(letter: DeadLetter) -> Result<DeadLetter, Finding> {
    match &letter.origin {
        LetterOrigin::Computation(computation) if !is_sound(&computation.batch) => {
            Err("the columns of its call contradict each other".to_owned())
        }
        _ => Ok(letter),
    }
}

fn is_sound(batch: &Batch) -> bool {
    let (messages, timers) = (&batch.messages, &batch.timers);
    let of_states = batch.states.iter().map(|state| &state.values);
    let mut columns = of_states.chain([&batch.keys, &messages.payloads]);
    let keys = batch.keys.len();
    let of_states = batch.states.iter().flat_map(|state| &state.keys);
    let mut indexes = (of_states.chain(&messages.keys)).chain(&timers.keys);
    columns.all(Column::is_well_formed)
        && indexes.all(|key| (*key as usize) < keys)
        && batch
            .states
            .iter()
            .all(|state| state.keys.len() == state.values.len())
        && messages.keys.len() == messages.streams.len()
        && messages.event_times.len() == messages.streams.len()
        && messages.payloads.len() == messages.streams.len()
        && timers.keys.len() == timers.streams.len()
        && timers.trigger_times.len() == timers.streams.len()
        && timers.event_times.len() == timers.streams.len()
}

/// Puts the payload back.
fn with_second_payload(mut letter: DeadLetter) -> DeadLetter {
    if let (LetterOrigin::Computation(computation), LetterItem::Message { payload, .. }) =
        (&mut letter.origin, &letter.item)
    {
        let messages = &mut computation.batch.messages;
        if messages.payloads.is_empty() && messages.streams.len() == 1 {
            messages.payloads.push(payload);
        }
    }
    letter
}

/// At least the size of a letter's bytes, and not much more.
pub fn letter_size_bound(letter: &DeadLetter) -> usize {
    let item = match &letter.item {
        LetterItem::Message {
            stream,
            key,
            payload,
            ..
        } => stream.len() + key.len() + payload.len(),
        LetterItem::Timer { stream, key, .. } => stream.len() + key.len(),
        LetterItem::Record { of, bytes, .. } => of.len() + bytes.len(),
    };
    let origin = match &letter.origin {
        LetterOrigin::Source { name } => name.len(),
        LetterOrigin::Computation(computation) => {
            let batch = &computation.batch;
            let states: usize = (batch.states.iter())
                .map(|state| 20 + state.values.size_bytes() + 5 * state.keys.len())
                .sum();
            computation.name.len()
                + computation.component.len()
                + computation.digest.len()
                + computation.settings.len()
                + batch.keys.size_bytes()
                + batch.messages.payloads.size_bytes()
                + 10 * batch.watermarks.len()
                + states
        }
    };
    let failure = &letter.failure;
    let texts = [
        &failure.class,
        &failure.reason,
        &failure.backtrace,
        &failure.stdout,
        &failure.stderr,
        &letter.location,
        &letter.pipeline,
    ];
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    512 + item + origin + texts
}

/// What [`encode_letter`] wrote.
pub(super) fn decode_letter_bytes(bytes: &[u8]) -> Result<DeadLetter, Finding> {
    match bytes.split_first() {
        None => Err("it is empty".to_owned()),
        Some((&FORMAT_VERSION, bytes)) => {
            let (letter, rest) = postcard::take_from_bytes(bytes)
                .map_err(|error| format!("it can't be read: {error}"))?;
            match rest.len() {
                0 => checked(with_second_payload(letter)),
                count => Err(format!("{count} bytes follow its end")),
            }
        }
        Some((&version, _)) => Err(unknown_version(version, FORMAT_VERSION)),
    }
}

/// A stored letter.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_letter(id: DeadLetterId, value: &[u8]) -> Result<DeadLetter, StorageError> {
    decode_letter_bytes(value).map_err(|finding| StorageError::Undecodable {
        what: format!("dead letter {id}"),
        finding,
    })
}

/// Whether an epoch's letters can be stored.
pub(super) fn check_letters(commit: &EpochCommit) -> Result<(), Finding> {
    let count = commit.dead_letters.len();
    if count > LETTERS_PER_EPOCH_MAX {
        return Err(format!(
            "it has {count} dead letters, allowed are {LETTERS_PER_EPOCH_MAX}"
        ));
    }
    let removed = &commit.removed_letters;
    if !removed.is_sorted_by(|left, right| left < right) {
        return Err("the dead letters that it removes do not rise".to_owned());
    }
    let foreign = removed.iter().find(|id| id.partition != commit.partition);
    if let Some(id) = foreign {
        return Err(format!("it removes dead letter {id} of another partition"));
    }
    match removed.last().filter(|id| id.epoch >= commit.epoch) {
        Some(id) => Err(format!("it removes dead letter {id}, which is not older")),
        None => Ok(()),
    }
}

/// Calls `emit` with every row of a dead letter that the epoch changes, in the order of their keys.
pub(super) fn for_each_letter_row(
    commit: &EpochCommit,
    emit: &mut impl FnMut(&[u8], NewValue<'_>),
) {
    // Those that go are of earlier epochs.
    for id in &commit.removed_letters {
        emit(&keys::dead_letter(*id), NewValue::Gone);
    }
    for (index, letter) in (0..).zip(&commit.dead_letters) {
        let id = DeadLetterId {
            partition: commit.partition,
            epoch: commit.epoch,
            index,
        };
        emit(
            &keys::dead_letter(id),
            NewValue::Bytes(&encode_letter(letter)),
        );
    }
}

#[cfg(test)]
pub(in crate::storage) mod tests {
    use super::*;
    use crate::storage::codec::tests::full_commit;
    use crate::types::batch::{MessageColumns, StateColumn};
    use crate::types::dead_letter::{FailedComputation, LetterFailure};
    use crate::types::ids::{EpochId, MessageId, PartitionId};

    pub(in crate::storage) fn full_letter() -> DeadLetter {
        DeadLetter {
            pipeline: "flights".to_owned(),
            deployment: 3,
            written: 1_700_000_000_000,
            origin: LetterOrigin::Computation(Box::new(FailedComputation {
                name: "delays".to_owned(),
                component: "/pipelines/delays.wasm".to_owned(),
                digest: "00ff".to_owned(),
                settings: "{\"parameters\":{}}".to_owned(),
                batch: Batch {
                    watermarks: vec![5],
                    keys: [b"k".as_slice()].into_iter().collect(),
                    states: vec![StateColumn {
                        keys: vec![0],
                        values: [b"1".as_slice()].into_iter().collect(),
                    }],
                    messages: MessageColumns {
                        streams: vec![0],
                        keys: vec![0],
                        event_times: vec![9],
                        payloads: [b"bad".as_slice()].into_iter().collect(),
                    },
                    ..Batch::default()
                },
                left_out_state_bytes: 0,
            })),
            item: LetterItem::Message {
                stream: "departures".to_owned(),
                key: b"k".to_vec(),
                event_time: 9,
                payload: b"bad".to_vec(),
            },
            location: "message 00".to_owned(),
            root: Some(MessageId {
                partition: PartitionId(1),
                epoch: EpochId(2),
                index: 3,
            }),
            failure: LetterFailure {
                class: "panic".to_owned(),
                reason: "panicked at src/lib.rs:1".to_owned(),
                fuel: 77,
                backtrace: "0: process".to_owned(),
                stdout: "out".to_owned(),
                stderr: "err".to_owned(),
            },
            attempts: 2,
        }
    }

    pub(in crate::storage) fn letter_id(epoch: u64, index: u32) -> DeadLetterId {
        DeadLetterId {
            partition: PartitionId(7),
            epoch: EpochId(epoch),
            index,
        }
    }

    #[test]
    fn a_letter_reads_back_and_its_size_is_not_underestimated() {
        let letter = full_letter();
        let bytes = encode_letter(&letter);
        assert!(bytes.len() <= letter_size_bound(&letter));
        let id = letter_id(1, 0);
        assert_eq!(decode_letter(id, &bytes).unwrap(), letter);
        for cut in 0..bytes.len() {
            let error = decode_letter(id, &bytes[..cut]).unwrap_err().to_string();
            assert!(error.contains("dead letter p7-e1-0"), "{error}");
        }
        let mut newer = bytes.clone();
        newer[0] += 1;
        let error = decode_letter(id, &newer).unwrap_err().to_string();
        assert!(error.contains("is newer than"), "{error}");
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode_letter(id, &longer).is_err());
    }

    #[test]
    fn letters_of_others_and_of_the_epoch_itself_can_not_be_removed() {
        let finding = |removed: Vec<DeadLetterId>| {
            check_letters(&EpochCommit {
                removed_letters: removed,
                ..full_commit()
            })
        };
        assert_eq!(finding(vec![letter_id(8, 0), letter_id(8, 1)]), Ok(()));
        let foreign = DeadLetterId {
            partition: PartitionId(8),
            ..letter_id(8, 0)
        };
        assert!(
            finding(vec![foreign])
                .unwrap_err()
                .contains("another partition")
        );
        assert!(
            finding(vec![letter_id(1_001, 0)])
                .unwrap_err()
                .contains("not older")
        );
        assert!(
            finding(vec![letter_id(8, 1), letter_id(8, 1)])
                .unwrap_err()
                .contains("rise")
        );
    }
}
