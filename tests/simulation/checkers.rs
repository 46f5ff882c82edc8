//! The checkers: what must hold of everything that was ever decided.
//!
//! - **Inputs**: each input of a job is in exactly one decided epoch, and those of one source or lane
//!   in their order. A job's witness sink tells what it took, in order; what it should have taken
//!   is what the model says its producers sent.
//! - **State**: what storage holds for each key is what the model comes to over the same inputs.
//! - **Sinks**: a file holds the rows of each job that feeds it without gap, repetition or
//!   reordering.
//! - **Order**: see [`crate::order`].
//! - **Progress**: undisturbed, a run comes to its end, and leaves its lanes empty; no chunk is
//!   trimmed twice.
//!
//! **Invariant:** producers are judged before their readers, and a reader is compared with what the
//! model made of its producers' inputs, so that an engine that loses a message on its way in the
//! same manner everywhere is still found.

use std::collections::{BTreeMap, BTreeSet};

use guest_behaviours::trace;
use tidelock::storage::rows;
use tidelock::types::ids::SinkFileId;

use crate::deployment::{Deployment, JobPlace};
use crate::graph::{Graph, Head, Shape};
use crate::model::{JobModel, Message};
use crate::order;
use crate::record_source::{SourceLength, record};
use crate::storage::{Decided, SimulatedStorage};

/// More states of one partition than a run can make.
const STATES_MAX: usize = 10_000;

/// Who found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checker {
    /// Each input in exactly one decided epoch.
    Inputs,
    /// State equals the model's.
    State,
    /// Sinks without gap, repetition or reordering.
    Sinks,
    /// Messages stand in the order of their streams.
    Order,
    /// A run comes to its end.
    Progress,
    /// Nothing panics.
    Panics,
}

impl Checker {
    /// Whether it judges what was decided, and not only that anything was.
    pub(crate) fn judges_what_was_decided(self) -> bool {
        !matches!(self, Checker::Progress | Checker::Panics)
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Who found it.
    pub(crate) checker: Checker,
    /// What it is.
    pub(crate) text: String,
}

/// What is judged.
pub(crate) struct Evidence<'e> {
    /// The pipeline.
    pub(crate) graph: &'e Graph,
    /// Its numbers.
    pub(crate) deployment: &'e Deployment,
    /// The store after a run.
    pub(crate) storage: &'e SimulatedStorage,
    /// How many records each source has.
    pub(crate) sources: &'e [SourceLength],
    /// Whether the run came to its end: then nothing may be missing either.
    pub(crate) is_finished: bool,
}

/// What must have come by one source or lane, in order.
struct Sequence<'m> {
    name: String,
    messages: Vec<&'m Message>,
}

/// Judges everything that was ever decided in the store.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let decided = evidence.storage.decided();
    let mut models: BTreeMap<JobPlace, JobModel<'_>> = BTreeMap::new();
    for place in evidence.graph.places() {
        let shape = &evidence.graph.shapes[place.shape];
        let records = evidence.records(shape);
        let sent = match shape.head {
            Head::Source(source) => vec![Sequence {
                name: format!("source s{source}"),
                messages: records.iter().collect(),
            }],
            Head::Transform(at) => evidence.sent_to(at, place.partition, &models),
        };
        let taken = evidence.witnessed(place, &decided);
        let mut found = Found::new(Checker::Inputs, evidence.name(place), "took");
        let inputs = found.compare(&sent, &taken, evidence.is_finished);
        findings.extend(found.findings);
        let streams = (evidence.deployment).streams_in_order(evidence.graph, shape);
        let mut model = JobModel::new(evidence.graph, shape, streams);
        inputs.into_iter().for_each(|input| model.take(input));
        findings.extend(evidence.compare_states(place, &model));
        models.insert(place, model);
    }
    findings.extend(evidence.compare_sinks(&models));
    findings.extend(order::judge(evidence.graph, evidence.deployment, &decided));
    findings.extend(trimmed_twice(&decided));
    if evidence.is_finished {
        findings.extend(evidence.chunks_left());
    }
    findings
}

impl Evidence<'_> {
    fn name(&self, place: JobPlace) -> String {
        let head = self.graph.head_name(self.graph.shapes[place.shape].head);
        format!("{head}[{}]", place.partition)
    }

    fn records(&self, shape: &Shape) -> Vec<Message> {
        let Head::Source(source) = shape.head else {
            return Vec::new();
        };
        let record = |number| Message {
            key: Vec::new(),
            payload: record(source, number),
        };
        let count = self.sources[source].records();
        (0..count).map(record).collect()
    }

    /// What the models of its producers sent to a partition of a transform.
    fn sent_to<'m>(
        &self,
        transform: usize,
        partition: usize,
        models: &'m BTreeMap<JobPlace, JobModel<'_>>,
    ) -> Vec<Sequence<'m>> {
        let mut sequences = Vec::new();
        for (producer, model) in models {
            for ((stream, reader, at), messages) in &model.lanes {
                if (*reader, *at) == (transform, partition) {
                    let stream = self.graph.stream_name(*stream);
                    sequences.push(Sequence {
                        name: format!("stream {stream} of {}", self.name(*producer)),
                        messages: messages.iter().collect(),
                    });
                }
            }
        }
        sequences
    }

    fn sink_file(&self, sink: usize) -> SinkFileId {
        let name = self.graph.sink_name(sink);
        let file = self.deployment.sink_file(&name, self.storage);
        file.expect("the store is sound between two runs")
    }

    /// What a job took, by the rows that its decided epochs gave to its witness, each with its epoch.
    fn witnessed(&self, place: JobPlace, decided: &[Decided]) -> Vec<(Vec<u8>, String)> {
        let partition = self.deployment.partition(self.graph, place);
        let witness = self.sink_file(place.shape);
        let head = self.graph.shapes[place.shape].head;
        let mut taken = Vec::new();
        let commits = decided.iter().map(|one| &one.commit);
        for commit in commits.filter(|commit| commit.partition == partition) {
            for append in commit
                .appends
                .iter()
                .filter(|append| append.file == witness)
            {
                for row in lines(&append.bytes) {
                    // A source's witness shows the record, a transform's the answer to a message.
                    let input = match head {
                        Head::Transform(_) => row.rsplitn(2, |byte| *byte == b'/').last(),
                        Head::Source(_) => Some(row),
                    };
                    let input = input.unwrap_or(row);
                    taken.push((input.to_vec(), format!("in epoch {}", commit.epoch)));
                }
            }
        }
        taken
    }

    fn compare_states(&self, place: JobPlace, model: &JobModel<'_>) -> Vec<Finding> {
        let partition = self.deployment.partition(self.graph, place);
        let mut findings = Vec::new();
        let keys: BTreeSet<&[u8]> = model.tallies.keys().map(Vec::as_slice).collect();
        for (at, state) in trace::STATES.into_iter().enumerate() {
            let stored = rows::scan_states(self.storage, partition, state, b"", STATES_MAX);
            let stored: BTreeMap<Vec<u8>, Vec<u8>> = match stored {
                Ok(page) => page.rows.into_iter().collect(),
                Err(error) => {
                    findings.push(state_finding(format!("states can't be read: {error}")));
                    continue;
                }
            };
            let all = keys.iter().copied().chain(stored.keys().map(Vec::as_slice));
            for key in all.collect::<BTreeSet<_>>() {
                let expected = model
                    .tallies
                    .get(key)
                    .map(|tally| tally.to_states()[at].clone());
                // An empty value is none: its row must be gone.
                let expected = expected.filter(|value| !value.is_empty());
                let found = stored.get(key).cloned();
                if expected != found {
                    findings.push(state_finding(format!(
                        "{}: {state} of {} is {found:?}, the model has {expected:?}",
                        self.name(place),
                        key.escape_ascii()
                    )));
                }
            }
        }
        findings
    }

    fn compare_sinks(&self, models: &BTreeMap<JobPlace, JobModel<'_>>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for sink in 0..self.graph.sinks.len() {
            let mut fed: Vec<(String, Vec<Message>)> = Vec::new();
            for (place, model) in models {
                let rows = model.rows.get(&sink).into_iter().flatten();
                let message = |row: &Vec<u8>| Message {
                    key: Vec::new(),
                    payload: row.clone(),
                };
                fed.push((self.name(*place), rows.map(message).collect()));
            }
            let given: Vec<Sequence<'_>> = (fed.iter())
                .map(|(name, rows)| Sequence {
                    name: name.clone(),
                    messages: rows.iter().collect(),
                })
                .collect();
            let bytes = self.storage.sink_bytes(self.sink_file(sink));
            let written: Vec<(Vec<u8>, String)> = (lines(&bytes).enumerate())
                .map(|(at, row)| (row.to_vec(), format!("in line {}", at + 1)))
                .collect();
            let name = format!("sink {}", self.graph.sink_name(sink));
            let mut found = Found::new(Checker::Sinks, name, "holds");
            found.compare(&given, &written, self.is_finished);
            findings.extend(found.findings);
        }
        findings
    }

    /// Chunks that a finished run left behind though everything was read.
    fn chunks_left(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for producer in self.graph.places() {
            let partition = self.deployment.partition(self.graph, producer);
            let left = rows::lanes_kept(self.storage, partition);
            if !left.as_ref().is_ok_and(Vec::is_empty) {
                findings.push(Finding {
                    checker: Checker::Progress,
                    text: format!("{} still keeps lanes {left:?}", self.name(producer)),
                });
            }
        }
        findings
    }
}

/// The comparison of what was taken with the sequences that it came from.
struct Found {
    checker: Checker,
    who: String,
    verb: &'static str,
    findings: Vec<Finding>,
}

impl Found {
    fn new(checker: Checker, who: String, verb: &'static str) -> Found {
        Found {
            checker,
            who,
            verb,
            findings: Vec::new(),
        }
    }

    /// Finds what is unknown, repeated, out of order, skipped, and, if all should be there, missing.
    /// Returns the messages that were taken, as they were taken.
    fn compare<'m>(
        &mut self,
        sequences: &[Sequence<'m>],
        taken: &[(Vec<u8>, String)],
        is_whole: bool,
    ) -> Vec<&'m Message> {
        let mut places: BTreeMap<&[u8], (usize, usize)> = BTreeMap::new();
        for (sequence, of_one) in sequences.iter().enumerate() {
            for (index, message) in of_one.messages.iter().enumerate() {
                places.insert(&message.payload, (sequence, index));
            }
        }
        let mut next = vec![0; sequences.len()];
        let mut messages = Vec::with_capacity(taken.len());
        for (payload, place) in taken {
            let Some((sequence, index)) = places.get(payload.as_slice()).copied() else {
                self.add(payload, place, "that nobody sent");
                continue;
            };
            messages.push(sequences[sequence].messages[index]);
            let name = &sequences[sequence].name;
            if index < next[sequence] {
                self.add(
                    payload,
                    place,
                    &format!("of {name} again or after a later one"),
                );
            } else if index > next[sequence] {
                let skipped = index - next[sequence];
                self.add(
                    payload,
                    place,
                    &format!("of {name} before {skipped} earlier ones"),
                );
            }
            next[sequence] = next[sequence].max(index + 1);
        }
        for (sequence, next) in sequences.iter().zip(next) {
            if let Some(missing) = sequence.messages.get(next)
                && is_whole
            {
                let count = sequence.messages.len() - next;
                let what = format!("of {} nor the {} after it", sequence.name, count - 1);
                let never = "never, though the run has ended,";
                self.add(&missing.payload, never, &what);
            }
        }
        messages
    }

    fn add(&mut self, payload: &[u8], place: &str, what: &str) {
        self.findings.push(Finding {
            checker: self.checker,
            text: format!(
                "{} {} {place} {} {what}",
                self.who,
                self.verb,
                payload.escape_ascii()
            ),
        });
    }
}

/// Chunks that were removed again: a producer that forgets what it has removed does ever more.
fn trimmed_twice(decided: &[Decided]) -> Vec<Finding> {
    let mut trimmed = BTreeSet::new();
    let trims = decided.iter().flat_map(|one| &one.commit.trims);
    trims
        .filter(|trim| !trimmed.insert((trim.lane, trim.epoch)))
        .map(|trim| Finding {
            checker: Checker::Progress,
            text: format!(
                "epoch {} of lane {} was trimmed again",
                trim.epoch, trim.lane
            ),
        })
        .collect()
}

fn state_finding(text: String) -> Finding {
    Finding {
        checker: Checker::State,
        text,
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    whole.map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}
