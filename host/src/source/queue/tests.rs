//! What a queue source reads, where it ends, and what it refuses.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::source::open;
use crate::types::pipeline::SourceConnector;

/// A queue of one partition, in memory.
#[derive(Default)]
struct FakeQueue {
    state: Mutex<State>,
    reads: AtomicUsize,
}

#[derive(Default)]
struct State {
    partition: u64,
    chunks: Vec<(u64, QueueRows)>,
    bounds: QueueBounds,
}

impl FakeQueue {
    fn new(partition: u64) -> Arc<FakeQueue> {
        let queue = FakeQueue::default();
        queue.state.lock().unwrap().partition = partition;
        Arc::new(queue)
    }

    /// Appends rows as one chunk.
    fn append(&self, write_time: Timestamp, payloads: &[&str]) {
        let mut rows = QueueRows {
            write_time,
            ..QueueRows::default()
        };
        for payload in payloads {
            rows.push(b"key", 5, payload.as_bytes());
        }
        let mut state = self.state.lock().unwrap();
        let first = state.bounds.end;
        state.bounds.end += rows.len() as u64;
        state.bounds.written_bytes += rows.size_bytes() as u64;
        state.chunks.push((first, rows));
    }

    /// Appends a row with a key of so many bytes to the last chunk.
    fn append_key(&self, key_bytes: usize, payload: &str) {
        let mut state = self.state.lock().unwrap();
        let (_, rows) = state.chunks.last_mut().unwrap();
        let before = rows.size_bytes();
        rows.push(&vec![b'k'; key_bytes], 5, payload.as_bytes());
        let row_bytes = (rows.size_bytes() - before) as u64;
        state.bounds.end += 1;
        state.bounds.written_bytes += row_bytes;
    }

    fn trim(&self, before: u64) {
        let mut state = self.state.lock().unwrap();
        state.bounds.start = before;
        let passed =
            |first: u64, rows: &QueueRows| (before.saturating_sub(first) as usize).min(rows.len());
        let gone = state.chunks.iter();
        let gone = gone.map(|(first, rows)| rows.size_bytes_of_first(passed(*first, rows)) as u64);
        state.bounds.trimmed_bytes = gone.sum();
    }
}

impl QueueReader for FakeQueue {
    fn partition(&self, queue: &str, index: u32) -> Option<PartitionId> {
        let number = self.state.lock().unwrap().partition;
        (queue == "alerts" && index == 0).then_some(PartitionId(number))
    }

    fn bounds(&self, _partition: PartitionId) -> Result<QueueBounds, QueueFailure> {
        Ok(self.state.lock().unwrap().bounds)
    }

    fn read(
        &self,
        _partition: PartitionId,
        from: u64,
        _size_bytes: usize,
    ) -> Result<Vec<QueueChunk>, QueueFailure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap();
        let start = state.bounds.start;
        if from < start {
            return Err(QueueFailure::Trimmed { start });
        }
        let behind = state.chunks.iter();
        let behind = behind.filter(|(first, rows)| first + rows.len() as u64 > from);
        Ok(behind
            .map(|(first, rows)| QueueChunk {
                offset: from.max(*first),
                rows: rows
                    .clone()
                    .without_first(from.saturating_sub(*first) as usize),
            })
            .collect())
    }
}

fn connector(follow: bool, from: QueueStart) -> SourceConnector {
    SourceConnector::Queue(QueueSourceOptions::new("alerts", 0, follow, from))
}

fn open_at(
    queue: &Arc<FakeQueue>,
    follow: bool,
    position: Option<&[u8]>,
    on_change: OnChange,
) -> Result<Box<dyn Source>, SourceError> {
    let queues: Arc<dyn QueueReader> = Arc::<FakeQueue>::clone(queue);
    let opening = Opening {
        queues: Some(&queues),
        on_change,
        ..Opening::at(position)
    };
    open(&connector(follow, QueueStart::Start), opening)
}

fn reopen(queue: &Arc<FakeQueue>, follow: bool, position: Option<&[u8]>) -> Box<dyn Source> {
    open_at(queue, follow, position, OnChange::Refuse).unwrap()
}

fn limit(rows: usize, bytes: usize) -> PollLimit {
    PollLimit { rows, bytes }
}

const ALL: PollLimit = PollLimit {
    rows: 1_000,
    bytes: 1 << 20,
};

fn payloads(records: &SourceRecords) -> Vec<&str> {
    let payloads = records.payloads.iter();
    payloads
        .map(|payload| std::str::from_utf8(payload).unwrap())
        .collect()
}

fn poll(source: &mut dyn Source, limit: PollLimit) -> (PollOutcome, SourceRecords) {
    let mut records = SourceRecords::default();
    let outcome = source.poll(limit, &mut records).unwrap();
    assert_eq!(records.keys.len(), records.payloads.len());
    assert_eq!(records.event_times.len(), records.payloads.len());
    assert_eq!(records.write_times.len(), records.payloads.len());
    (outcome, records)
}

#[test]
fn rows_come_with_key_times_and_offset_and_the_source_ends_where_the_queue_ended() {
    let queue = FakeQueue::new(7);
    queue.append(100, &["a", "b"]);
    queue.append(90, &["c"]);
    let mut source = reopen(&queue, false, None);
    queue.append(200, &["later"]);
    let (outcome, records) = poll(&mut *source, ALL);
    assert_eq!(outcome, PollOutcome::End);
    assert_eq!(payloads(&records), ["a", "b", "c"]);
    assert_eq!(records.lines, [0, 1, 2]);
    assert_eq!(records.event_times, [5, 5, 5]);
    assert!(records.keys.iter().all(|key| key == b"key"));
    // The clock of the second writer was behind.
    let write_times: Vec<Timestamp> = records.write_times.iter().collect();
    assert_eq!(write_times, [100, 100, 100]);
    let mut next = reopen(&queue, false, Some(&source.position()));
    let (outcome, records) = poll(&mut *next, ALL);
    assert_eq!(
        (outcome, payloads(&records)),
        (PollOutcome::End, vec!["later"])
    );
}

#[test]
fn a_chunk_is_cut_to_the_limit_and_read_once() {
    let queue = FakeQueue::new(7);
    let many: Vec<String> = (0..100).map(|number| format!("row {number:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    queue.append(1, &many);
    queue.append(1, &["last"]);
    let mut source = reopen(&queue, true, None);
    let mut found = Vec::new();
    for _ in 0..11 {
        let (outcome, records) = poll(&mut *source, limit(10, 1 << 20));
        found.extend(payloads(&records).into_iter().map(str::to_owned));
        assert_eq!(outcome, PollOutcome::More);
    }
    assert_eq!(found.len(), 101);
    assert_eq!(found[..100], many[..]);
    assert_eq!(
        queue.reads.load(Ordering::Relaxed),
        2,
        "the end was looked at once"
    );
    assert_eq!(poll(&mut *source, ALL).0, PollOutcome::Wait);
    let written = queue.state.lock().unwrap().bounds.written_bytes;
    assert_eq!(source.progress().done_bytes, written);
    // By bytes, and the first row whatever its size.
    let mut source = reopen(&queue, true, None);
    assert_eq!(poll(&mut *source, limit(10, 1)).1.payloads.len(), 1);
    assert_eq!(poll(&mut *source, limit(10, 60)).1.payloads.len(), 6);
}

#[test]
fn a_source_that_begins_at_the_end_gets_what_comes_then() {
    let queue = FakeQueue::new(7);
    queue.append(1, &["before"]);
    let queues: Arc<dyn QueueReader> = Arc::<FakeQueue>::clone(&queue);
    let opening = Opening {
        queues: Some(&queues),
        ..Opening::at(None)
    };
    let source = open(&connector(true, QueueStart::End), opening).unwrap();
    assert!(source.commits_where_it_begins());
    let position = source.position();
    queue.append(2, &["behind"]);
    let mut source = reopen(&queue, true, Some(&position));
    assert_eq!(payloads(&poll(&mut *source, ALL).1), ["behind"]);
}

#[test]
fn rows_that_were_trimmed_unread_are_counted_and_passed_only_when_told_so() {
    let queue = FakeQueue::new(7);
    queue.append(1, &["a", "b", "c", "d"]);
    let mut source = reopen(&queue, true, None);
    poll(&mut *source, limit(1, 1 << 20));
    let position = source.position();
    queue.trim(3);
    let error = open_at(&queue, true, Some(&position), OnChange::Refuse)
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(text.contains("offsets 1 to 2 of queue alerts[0]"), "{text}");
    assert!(text.contains("2 rows are gone"), "{text}");
    assert!(error.change().is_some());
    let accepted = open_at(&queue, true, Some(&position), OnChange::StartOver);
    let records = poll(&mut *accepted.unwrap(), ALL).1;
    assert_eq!(
        (payloads(&records), records.lines.clone()),
        (vec!["d"], vec![3])
    );
    // One that is open meets it at its next read.
    let mut records = SourceRecords::default();
    let mut open = reopen(&queue, true, None);
    poll(&mut *open, ALL);
    queue.append(2, &["e", "f"]);
    queue.trim(5);
    let refused = open.poll(ALL, &mut records);
    assert!(
        matches!(
            refused,
            Err(SourceError::RowsTrimmed {
                next: 4,
                start: 5,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(records, SourceRecords::default());
}

#[test]
fn a_queue_that_was_made_again_is_another_one() {
    let queue = FakeQueue::new(7);
    queue.append(1, &["a", "b"]);
    let mut source = reopen(&queue, true, None);
    poll(&mut *source, limit(1, 1 << 20));
    let again = FakeQueue::new(8);
    again.append(1, &["x", "y", "z"]);
    let position = source.position();
    let refused = open_at(&again, true, Some(&position), OnChange::Refuse);
    let error = refused.err().unwrap();
    assert!(
        matches!(error, SourceError::QueueRemade { .. }),
        "{error:?}"
    );
    assert!(error.change().is_some());
    let accepted = open_at(&again, true, Some(&position), OnChange::StartOver);
    assert_eq!(
        payloads(&poll(&mut *accepted.unwrap(), ALL).1),
        ["x", "y", "z"]
    );
}

#[test]
fn a_position_beyond_the_end_and_an_unknown_queue_are_refused() {
    let queue = FakeQueue::new(7);
    queue.append(1, &["a"]);
    let mut source = reopen(&queue, true, None);
    poll(&mut *source, ALL);
    let position = source.position();
    let refused = open_at(
        &FakeQueue::new(7),
        true,
        Some(&position),
        OnChange::StartOver,
    );
    assert!(matches!(
        refused.err(),
        Some(SourceError::Queue { offset: 1, .. })
    ));
    let refused = open(&connector(true, QueueStart::Start), Opening::at(None));
    assert!(matches!(refused.err(), Some(SourceError::NoQueue { .. })));
}

#[test]
fn a_row_whose_key_is_too_long_is_named_and_not_passed_over() {
    let queue = FakeQueue::new(3);
    queue.append(1, &["a"]);
    queue.append_key(MESSAGE_KEY_BYTES_MAX, "longest");
    queue.append_key(MESSAGE_KEY_BYTES_MAX + 1, "long");
    queue.append_key(1, "b");
    let mut source = open_at(&queue, false, None, OnChange::Refuse).unwrap();
    let limit = PollLimit {
        rows: 10,
        bytes: 1 << 20,
    };
    let mut records = SourceRecords::default();
    source.poll(limit, &mut records).unwrap();
    assert_eq!(records.payloads.len(), 2);
    for _ in 0..2 {
        let error = source.poll(limit, &mut records).unwrap_err().to_string();
        assert!(
            error.starts_with("offset 2 of queue alerts[0] has a key of 32769 bytes"),
            "{error}"
        );
    }
    let position = QueuePosition::decode(&source.position()).unwrap();
    assert_eq!(position.next, 2);
    queue.trim(3);
    let go_on = open_at(&queue, false, Some(&source.position()), OnChange::StartOver);
    records.clear();
    go_on.unwrap().poll(limit, &mut records).unwrap();
    assert_eq!(records.payloads.get(0), b"b");
}

#[test]
fn a_row_whose_key_is_too_long_may_be_passed_over() {
    let queue = FakeQueue::new(3);
    let long = |payload| queue.append_key(MESSAGE_KEY_BYTES_MAX + 1, payload);
    queue.append(9, &["a"]);
    long("first");
    queue.append(1, &["b", "c"]);
    long("second");
    long("third");
    queue.append_key(1, "d");
    long("fourth");
    let queues: Arc<dyn QueueReader> = Arc::<FakeQueue>::clone(&queue);
    let open_at = |position: Option<&[u8]>| {
        let opening = Opening {
            queues: Some(&queues),
            on_failure: OnFailure::DeadLetter,
            ..Opening::at(position)
        };
        open(&connector(false, QueueStart::Start), opening).unwrap()
    };
    let expected = [
        (0, "a", true),
        (1, "first", false),
        (2, "b", true),
        (3, "c", true),
        (4, "second", false),
        (5, "third", false),
        (6, "d", true),
        (7, "fourth", false),
    ];
    for (rows, bytes) in [(10, 1 << 20), (1, 1), (2, 5), (3, 1 << 20)] {
        let mut source = open_at(None);
        let mut read = Vec::new();
        loop {
            let mut records = SourceRecords::default();
            let polled = source
                .poll(PollLimit { rows, bytes }, &mut records)
                .unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let payloads = records.payloads.iter().map(text);
            let mut taken: Vec<_> = (records.lines.iter().copied())
                .zip(payloads)
                .map(|(offset, payload)| (offset, payload, true))
                .collect();
            for (before, row) in records.undecodable.iter().enumerate() {
                assert_eq!(
                    (row.of.as_str(), row.flaw.class()),
                    ("alerts[0]", "key_too_long")
                );
                assert_eq!(row.size_bytes, row.bytes.len() as u64);
                let reason = row.flaw.to_string();
                assert!(
                    reason.starts_with("the row has a key of 32769 bytes"),
                    "{reason}"
                );
                taken.insert(before + row.place, (row.position, text(&row.bytes), false));
            }
            assert!(taken.len() <= rows);
            read.extend(taken);
            if polled == PollOutcome::End {
                break;
            }
            // From any position in between.
            source = open_at(Some(&source.position()));
        }
        let read: Vec<_> = (read.iter())
            .map(|(offset, payload, is_good)| (*offset, payload.as_str(), *is_good))
            .collect();
        assert_eq!(read, expected, "{rows} {bytes}");
        let progress = source.progress();
        assert_eq!(Some(progress.done_bytes), progress.total_bytes);
    }
}
