//! What is asked about the dead letters of a store, and the answers: the same whether the process that asks has the store
//! or another one.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cli::bytes::JsonBytes;
use crate::controller::letters::filter::LetterFilter;
use crate::controller::letters::request::{
    LetterSelection, LettersAsked, ask_for_letters, discard_selected,
};
use crate::controller::letters::walk::LetterWalk;
use crate::storage::Storage;
use crate::storage::letter_requests::{all_requests, read_requests};
use crate::storage::letter_rows::read_letter;
use crate::types::dead_letter::{
    DeadLetter, DeadLetterId, LetterItem, LetterOrigin, LetterRequest, LetterRequestKind,
};
use crate::types::moment::Moment;

pub(super) use crate::controller::letters::request::LettersAsked as Asked;

/// Letters that are told of at a time.
const PAGE_LETTERS: usize = 500;

/// The longest reason that a list has of a letter, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// The most letters that can't be read that are named.
const UNREADABLE_NAMED_MAX: usize = 10;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LettersQuestion {
    /// Which letters there are.
    List {
        /// Only those.
        filter: LetterFilter,
        /// Tell of so many; count the others.
        limit: u64,
    },
    /// All of one letter.
    Show {
        /// Which.
        id: DeadLetterId,
    },
    /// Have something done with letters.
    Ask {
        /// What.
        kind: LetterRequestKind,
        /// With which.
        selection: LetterSelection,
    },
}

/// The answer, behind the pages of a list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LettersAnswer {
    /// To a list.
    Listed(ListEnd),
    /// The letter; `None` when it is not there.
    Letter(Option<Box<WholeLetter>>),
    /// What was asked for.
    Asked {
        /// Whether it is done.
        how: AskedAs,
        /// Of how many letters.
        asked: LettersAsked,
    },
}

/// What became of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskedAs {
    /// It was done at once.
    Done,
    /// It is written down in a store that no run has.
    Stored,
    /// It is written down, and the run that has the store knows of it.
    HandedOn,
}

/// What a list does not tell of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEnd {
    /// How many letters more are meant.
    pub more: u64,
    /// How many letters can't be read.
    pub unreadable: u64,
    /// The first of them, and why.
    pub findings: Vec<String>,
}

/// A letter, as far as a list tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLetter {
    pub(super) id: String,
    /// When it was written.
    pub(super) written: String,
    pub(super) pipeline: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) computation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// How it failed.
    pub(super) class: String,
    /// Why, cut to a length for lists.
    pub(super) reason: String,
    /// What its item is: "message", "timer" or "record".
    pub(super) item: String,
    /// The stream of a message or timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<JsonBytes<'static>>,
    /// Where it came from.
    pub(super) location: String,
    pub(super) attempts: u32,
    /// What is asked to be done with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<LetterRequestKind>,
}

impl ListedLetter {
    fn of(id: DeadLetterId, letter: &DeadLetter, asked: Option<LetterRequestKind>) -> ListedLetter {
        let (computation, source) = match &letter.origin {
            LetterOrigin::Computation(computation) => (Some(computation.name.clone()), None),
            LetterOrigin::Source { name } => (None, Some(name.clone())),
        };
        let (item, stream) = match &letter.item {
            LetterItem::Message { stream, .. } => ("message", Some(stream.clone())),
            LetterItem::Timer { stream, .. } => ("timer", Some(stream.clone())),
            LetterItem::Record { .. } => ("record", None),
        };
        let reason = &letter.failure.reason;
        let key = letter.item.key();
        ListedLetter {
            id: id.to_string(),
            written: Moment(letter.written).to_string(),
            pipeline: letter.pipeline.clone(),
            computation,
            source,
            class: letter.failure.class.clone(),
            reason: reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned(),
            item: item.to_owned(),
            stream,
            key: key.map(|key| JsonBytes(key.to_vec().into())),
            location: letter.location.clone(),
            attempts: letter.attempts,
            asked,
        }
    }
}

/// All of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeLetter {
    /// The letter.
    #[serde(serialize_with = "pack", deserialize_with = "unpack")]
    pub letter: DeadLetter,
    /// What is asked to be done with it.
    pub asked: Option<LetterRequestKind>,
}

/// A letter as one text: as JSON of its own its bytes would be a number each.
fn pack<S: Serializer>(letter: &DeadLetter, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = postcard::to_allocvec(letter).map_err(serde::ser::Error::custom)?;
    serializer.serialize_str(&BASE64.encode(bytes))
}

fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeadLetter, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = BASE64.decode(text).map_err(serde::de::Error::custom)?;
    postcard::from_bytes(&bytes).map_err(serde::de::Error::custom)
}

/// Hands requests that are durable to the jobs of this process.
pub type HandOn<'a> = dyn Fn(&[LetterRequest]) -> usize + 'a;

impl LettersQuestion {
    /// Answers it from an open store. `hand_on` is there where this process runs jobs of the store. `tell` gets the pages of a
    /// list and ends it by failing.
    ///
    /// # Errors
    ///
    /// When the store fails, too much is asked for, or `tell` fails.
    pub fn answer(
        &self,
        storage: &dyn Storage,
        hand_on: Option<&HandOn<'_>>,
        tell: &mut dyn FnMut(Vec<ListedLetter>) -> anyhow::Result<()>,
    ) -> anyhow::Result<LettersAnswer> {
        Ok(match self {
            LettersQuestion::List { filter, limit } => {
                LettersAnswer::Listed(list(storage, filter, *limit, tell)?)
            }
            LettersQuestion::Show { id } => {
                let mut requests = read_requests(storage, id.partition)?.into_iter();
                let asked = requests.find(|request| request.id == *id);
                let whole = |letter| {
                    Box::new(WholeLetter {
                        letter,
                        asked: asked.map(|request| request.kind),
                    })
                };
                LettersAnswer::Letter(read_letter(storage, *id)?.map(whole))
            }
            LettersQuestion::Ask { kind, selection } => match (kind, hand_on) {
                (LetterRequestKind::Discard, None) => LettersAnswer::Asked {
                    how: AskedAs::Done,
                    asked: discard_selected(storage, selection)?,
                },
                (kind, None) => LettersAnswer::Asked {
                    how: AskedAs::Stored,
                    asked: ask_for_letters(storage, *kind, selection, &|_| 0)?,
                },
                (kind, Some(hand_on)) => LettersAnswer::Asked {
                    how: AskedAs::HandedOn,
                    asked: ask_for_letters(storage, *kind, selection, hand_on)?,
                },
            },
        })
    }
}

fn list(
    storage: &dyn Storage,
    filter: &LetterFilter,
    limit: u64,
    tell: &mut dyn FnMut(Vec<ListedLetter>) -> anyhow::Result<()>,
) -> anyhow::Result<ListEnd> {
    let requests = all_requests(storage)?.into_iter();
    let asked: HashMap<DeadLetterId, LetterRequestKind> =
        requests.map(|request| (request.id, request.kind)).collect();
    let (mut end, mut page, mut listed) = (ListEnd::default(), Vec::new(), 0);
    for found in LetterWalk::new(storage)? {
        match found? {
            (_, Ok(letter)) if !filter.matches(&letter) => {}
            (_, Ok(_)) if listed == limit => end.more += 1,
            (id, Ok(letter)) => {
                listed += 1;
                page.push(ListedLetter::of(id, &letter, asked.get(&id).copied()));
                if page.len() == PAGE_LETTERS {
                    tell(std::mem::take(&mut page))?;
                }
            }
            (_, Err(error)) => {
                end.unreadable += 1;
                if end.findings.len() < UNREADABLE_NAMED_MAX {
                    end.findings.push(error.to_string());
                }
            }
        }
    }
    tell(page)?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::letters::walk::tests::{letter, write_letters};
    use crate::storage::memory::MemoryStorage;

    fn listed(storage: &MemoryStorage, limit: u64) -> (Vec<usize>, ListEnd) {
        let question = LettersQuestion::List {
            filter: LetterFilter::default(),
            limit,
        };
        let mut pages = Vec::new();
        let answer = question.answer(storage, None, &mut |page| {
            pages.push(page.len());
            Ok(())
        });
        match answer.unwrap() {
            LettersAnswer::Listed(end) => (pages, end),
            other => panic!("{other:?} is no list's end"),
        }
    }

    #[test]
    fn a_list_comes_in_pages_and_counts_what_it_does_not_tell() {
        let storage = MemoryStorage::new();
        write_letters(&storage, 9, vec![letter("totals", b"k", 1); 1_200]);
        let (pages, end) = listed(&storage, 700);
        assert_eq!(pages, [500, 200]);
        assert_eq!((end.more, end.unreadable), (500, 0));
        assert_eq!(listed(&storage, u64::MAX).0, [500, 500, 200]);
    }

    #[test]
    fn a_letter_passes_the_socket_whole() {
        let whole = WholeLetter {
            letter: letter("totals", b"\xff\x00", 1),
            asked: Some(LetterRequestKind::Replay),
        };
        let line =
            serde_json::to_string(&LettersAnswer::Letter(Some(Box::new(whole.clone())))).unwrap();
        match serde_json::from_str(&line).unwrap() {
            LettersAnswer::Letter(Some(back)) => assert_eq!(*back, whole),
            other => panic!("{other:?} is no letter"),
        }
    }
}
