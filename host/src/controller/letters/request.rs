//! Asks for dead letters to be replayed or discarded. A request is durable before anybody is told of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::discard::{DiscardError, discard_letters};
use super::filter::LetterFilter;
use super::walk::LetterWalk;
use crate::storage::letter_requests::{LetterRequestError, add_requests};
use crate::storage::letter_rows::are_kept;
use crate::storage::{Storage, StorageError};
use crate::types::dead_letter::{DeadLetterId, LetterRequest, LetterRequestKind};

/// Which letters are meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LetterSelection {
    /// These.
    Named(Vec<DeadLetterId>),
    /// All that the filter lets through.
    Matching(LetterFilter),
}

/// The letters of a selection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedLetters {
    /// Those that are there, each once.
    pub there: Vec<DeadLetterId>,
    /// Those that were named and are not there.
    pub unknown: Vec<DeadLetterId>,
    /// Those that can't be read, so that it is not known whether they are meant.
    pub unreadable: Vec<DeadLetterId>,
}

impl SelectedLetters {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn find(
        storage: &dyn Storage,
        selection: &LetterSelection,
    ) -> Result<SelectedLetters, StorageError> {
        let mut selected = SelectedLetters::default();
        match selection {
            LetterSelection::Named(ids) => {
                let ids: BTreeSet<DeadLetterId> = ids.iter().copied().collect();
                let ids: Vec<DeadLetterId> = ids.into_iter().collect();
                for (id, is_there) in ids.iter().zip(are_kept(storage, &ids)?) {
                    match is_there {
                        true => selected.there.push(*id),
                        false => selected.unknown.push(*id),
                    }
                }
            }
            LetterSelection::Matching(filter) => {
                for found in LetterWalk::new(storage)? {
                    match found? {
                        (id, Ok(letter)) if filter.matches(&letter) => selected.there.push(id),
                        (_, Ok(_)) => {}
                        (id, Err(_)) => selected.unreadable.push(id),
                    }
                }
            }
        }
        Ok(selected)
    }
}

/// What came of asking.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LettersAsked {
    /// Letters that are meant.
    pub letters: usize,
    /// Of those, for which it was asked already.
    pub already: usize,
    /// Of those, whose partitions have a job in the run that has the store, so that it is done at once.
    pub running: usize,
    /// Of those, that are gone already.
    pub done: usize,
    /// Letters that were named and are not there. Nothing was done then.
    pub unknown: Vec<DeadLetterId>,
    /// Letters that can't be read, so that it is not known whether they are meant.
    pub unreadable: Vec<DeadLetterId>,
}

/// Asks for the same to be done with all letters of a selection. `hand_on` gets the requests once they are durable, and says
/// how many of them a job of this process looks after.
///
/// # Errors
///
/// [`LetterRequestError::TooMany`] before anything is written, or when the store fails.
pub fn ask_for_letters(
    storage: &dyn Storage,
    kind: LetterRequestKind,
    selection: &LetterSelection,
    hand_on: &dyn Fn(&[LetterRequest]) -> usize,
) -> Result<LettersAsked, LetterRequestError> {
    let selected = SelectedLetters::find(storage, selection)?;
    let mut asked = LettersAsked::of(&selected);
    if asked.unknown.is_empty() {
        asked.already = selected.there.len() - add_requests(storage, kind, &selected.there)?;
        let request = |id: &DeadLetterId| LetterRequest { id: *id, kind };
        let requests: Vec<LetterRequest> = selected.there.iter().map(request).collect();
        asked.running = hand_on(&requests);
    }
    Ok(asked)
}

/// Discards all letters of a selection at once. Nobody may run a job of the store meanwhile.
///
/// # Errors
///
/// As [`discard_letters`].
pub fn discard_selected(
    storage: &dyn Storage,
    selection: &LetterSelection,
) -> Result<LettersAsked, DiscardError> {
    let selected = SelectedLetters::find(storage, selection)?;
    let mut asked = LettersAsked::of(&selected);
    if asked.unknown.is_empty() {
        asked.done = discard_letters(storage, &selected.there)?;
    }
    Ok(asked)
}

impl LettersAsked {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: LettersAsked) -> LettersAsked {
        self.letters += other.letters;
        self.already += other.already;
        self.running += other.running;
        self.done += other.done;
        self.unknown.extend(other.unknown);
        self.unreadable.extend(other.unreadable);
        self
    }

    fn of(selected: &SelectedLetters) -> LettersAsked {
        LettersAsked {
            letters: selected.there.len(),
            unknown: selected.unknown.clone(),
            unreadable: selected.unreadable.clone(),
            ..LettersAsked::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::letters::walk::tests::{letter, write_letters};
    use crate::storage::letter_requests::all_requests;
    use crate::storage::memory::MemoryStorage;

    fn filter(computation: &str) -> LetterSelection {
        LetterSelection::Matching(LetterFilter {
            computation: Some(computation.to_owned()),
            ..LetterFilter::default()
        })
    }

    #[test]
    fn what_a_filter_lets_through_is_asked_for_once_and_handed_on() {
        let storage = MemoryStorage::new();
        let letters = vec![
            letter("a", b"k", 1),
            letter("b", b"k", 2),
            letter("a", b"k", 3),
        ];
        let ids = write_letters(&storage, 9, letters);
        let ask = |selection| {
            let kind = LetterRequestKind::Replay;
            ask_for_letters(&storage, kind, &selection, &|requests| requests.len()).unwrap()
        };
        let asked = ask(filter("a"));
        assert_eq!((asked.letters, asked.already, asked.running), (2, 0, 2));
        let asked = ask(LetterSelection::Named(vec![ids[0], ids[1]]));
        assert_eq!((asked.letters, asked.already, asked.running), (2, 1, 2));
        assert_eq!(all_requests(&storage).unwrap().len(), 3);
    }

    #[test]
    fn nothing_is_done_where_a_letter_is_named_that_is_not_there() {
        let storage = MemoryStorage::new();
        let ids = write_letters(&storage, 9, vec![letter("a", b"k", 1)]);
        let gone = DeadLetterId { index: 7, ..ids[0] };
        let selection = LetterSelection::Named(vec![ids[0], gone]);
        let kind = LetterRequestKind::Discard;
        let asked = ask_for_letters(&storage, kind, &selection, &|_| panic!("nothing is asked"));
        assert_eq!(asked.unwrap().unknown, [gone]);
        assert_eq!(
            discard_selected(&storage, &selection).unwrap().unknown,
            [gone]
        );
        assert!(all_requests(&storage).unwrap().is_empty());
        assert_eq!(are_kept(&storage, &ids).unwrap(), [true]);
    }
}
