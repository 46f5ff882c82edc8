//! The comparison of what was taken with the sequences that it must come from.

use std::collections::BTreeMap;

use tidelock::types::ids::PartitionId;

use crate::checkers::{Checker, Finding};
use crate::model::Message;
use crate::record_source::number_of;

/// What one producer sent by one stream, or a source's records, in order.
pub(crate) struct Sequence<'m> {
    /// Its name, for people.
    pub(crate) name: String,
    /// The messages.
    pub(crate) messages: Vec<&'m Message>,
}

/// Something that was taken.
pub(crate) struct Taken {
    /// The payload.
    pub(crate) payload: Vec<u8>,
    /// Who took it; `None` where nothing tells.
    pub(crate) partition: Option<PartitionId>,
    /// Where, for people.
    pub(crate) place: String,
}

/// What is known of everything that was taken from some sequences.
pub(crate) struct Takings {
    checker: Checker,
    /// Who took it: "t0 took".
    who: String,
    /// What must not be.
    pub(crate) findings: Vec<Finding>,
}

/// How far one sequence was taken.
struct Course<'m> {
    /// Of each key, the indexes of its messages.
    of_key: BTreeMap<&'m [u8], Vec<usize>>,
    /// Of each key, how many of its messages were taken.
    taken: BTreeMap<&'m [u8], usize>,
    /// The last index that each partition took.
    last: BTreeMap<Option<PartitionId>, usize>,
}

impl Takings {
    /// Nothing is known yet.
    pub(crate) fn new(checker: Checker, who: String) -> Takings {
        Takings {
            checker,
            who,
            findings: Vec::new(),
        }
    }

    /// Finds what is unknown, repeated, out of order, skipped, and, if all should be there, missing.
    /// Messages of one key follow each other strictly, whoever takes them; of messages of different
    /// keys each partition takes the earlier ones first. Returns the message that each
    /// of those taken is, if it is one.
    pub(crate) fn compare<'m>(
        &mut self,
        sequences: &[Sequence<'m>],
        taken: &[Taken],
        is_whole: bool,
    ) -> Vec<Option<&'m Message>> {
        let mut places: BTreeMap<&[u8], (usize, usize)> = BTreeMap::new();
        for (sequence, of_one) in sequences.iter().enumerate() {
            for (index, message) in of_one.messages.iter().enumerate() {
                places.insert(&message.payload, (sequence, index));
            }
        }
        let mut courses: Vec<Course<'m>> = sequences.iter().map(Course::of).collect();
        let mut lineages: BTreeMap<&[u8], u64> = BTreeMap::new();
        let mut messages = Vec::with_capacity(taken.len());
        for one in taken {
            let Some((sequence, index)) = places.get(one.payload.as_slice()).copied() else {
                self.add(self.checker, &one.payload, &one.place, "that nobody sent");
                messages.push(None);
                continue;
            };
            let message = sequences[sequence].messages[index];
            messages.push(Some(message));
            let name = &sequences[sequence].name;
            if let Err(what) = courses[sequence].take(one.partition, message, index) {
                let what = format!("of {name} {what}");
                self.add(self.checker, &one.payload, &one.place, &what);
            }
            let number = number_of(&message.payload);
            let before = lineages.insert(&message.lineage, number);
            if let Some(before) = before.filter(|before| *before > number) {
                let what = format!("behind one of record {before} of the same lineage");
                self.add(Checker::Lineage, &one.payload, &one.place, &what);
            }
        }
        for (sequence, course) in sequences.iter().zip(courses).filter(|_| is_whole) {
            let missing = course.missing();
            if let Some(first) = missing.first() {
                let message = sequence.messages[*first];
                let what = format!("of {} nor {} after it", sequence.name, missing.len() - 1);
                let never = "never, though the run has ended,";
                self.add(self.checker, &message.payload, never, &what);
            }
        }
        messages
    }

    fn add(&mut self, checker: Checker, payload: &[u8], place: &str, what: &str) {
        self.findings.push(Finding {
            checker,
            text: format!("{} {place} {} {what}", self.who, payload.escape_ascii()),
        });
    }
}

impl<'m> Course<'m> {
    fn of(sequence: &Sequence<'m>) -> Course<'m> {
        let mut of_key: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for (index, message) in sequence.messages.iter().enumerate() {
            of_key.entry(&message.key).or_default().push(index);
        }
        Course {
            of_key,
            taken: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// Goes on; tells what is wrong with it.
    fn take(
        &mut self,
        partition: Option<PartitionId>,
        message: &'m Message,
        index: usize,
    ) -> Result<(), String> {
        let of_key = &self.of_key[message.key.as_slice()];
        let at = of_key.partition_point(|other| *other < index);
        let taken = self.taken.entry(&message.key).or_default();
        let skipped = at.checked_sub(*taken);
        *taken = (*taken).max(at + 1);
        let last = self.last.insert(partition, index);
        match skipped {
            None => Err("again or after a later one of its key".to_owned()),
            Some(0) => match last.filter(|last| *last > index) {
                None => Ok(()),
                Some(_) => Err("after a later one".to_owned()),
            },
            Some(skipped) => Err(format!("before {skipped} earlier ones of its key")),
        }
    }

    /// The indexes of what was not taken, the first one first.
    fn missing(&self) -> Vec<usize> {
        let keys = self.of_key.iter();
        let mut missing: Vec<usize> = keys
            .flat_map(|(key, indexes)| {
                let taken = self.taken.get(key).copied().unwrap_or(0);
                indexes[taken..].iter().copied()
            })
            .collect();
        missing.sort_unstable();
        missing
    }
}
