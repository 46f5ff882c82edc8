//! What the contract promises of queues.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Fixture, commit, commit_of, grant, refusal, states, value_of};
use crate::storage::queue_rows::{
    QueueError, QueueLimit, read_bounds, read_queue, scan_chunk_headers,
};
use crate::storage::scan::ScanLimit;
use crate::storage::{CommitOutcome, Storage, StorageError, keys, leases};
use crate::types::epoch::EpochCommit;
use crate::types::ids::PartitionId;
use crate::types::lease::Lease;
use crate::types::queue::{QueueAppend, QueueBounds, QueueRows};

const QUEUE: PartitionId = PartitionId(70);
const OTHER: PartitionId = PartitionId(71);

/// An append of rows with these payloads.
pub fn queue_append(queue: PartitionId, write_time: u64, payloads: &[&str]) -> QueueAppend {
    let mut rows = QueueRows {
        write_time,
        ..QueueRows::default()
    };
    for payload in payloads {
        rows.push(payload.as_bytes(), 7, payload.as_bytes());
    }
    let rows = Arc::new(rows);
    QueueAppend { queue, rows }
}

/// All rows of a queue's partition from `from` on, read in pages, each with its offset.
///
/// # Errors
///
/// As [`read_queue`].
pub fn queue_texts(
    storage: &dyn Storage,
    queue: PartitionId,
    from: u64,
    limit: QueueLimit,
) -> Result<Vec<(u64, String)>, QueueError> {
    let (mut found, mut next) = (Vec::new(), from);
    loop {
        let page = read_queue(storage, queue, next, limit)?;
        if page.chunks.is_empty() {
            assert_eq!(page.next, next);
            return Ok(found);
        }
        for (first, rows) in page.chunks {
            assert_eq!(first, next, "rows follow without a gap");
            next += rows.len() as u64;
            let texts = rows.payloads.iter().map(String::from_utf8_lossy);
            found.extend((first..).zip(texts.map(Cow::into_owned)));
        }
        assert_eq!(page.next, next);
    }
}

const ALL: QueueLimit = QueueLimit {
    rows: 1_000,
    bytes: 1 << 20,
};

fn texts(storage: &dyn Storage, queue: PartitionId, from: u64) -> Vec<(u64, String)> {
    queue_texts(storage, queue, from, ALL).unwrap()
}

fn epoch(lease: Lease, epoch: u64, queue_appends: Vec<QueueAppend>) -> EpochCommit {
    EpochCommit {
        queue_appends,
        ..commit_of(lease, epoch)
    }
}

fn named(first: u64, payloads: &[&str]) -> Vec<(u64, String)> {
    let payloads = payloads.iter().map(|payload| (*payload).to_owned());
    (first..).zip(payloads).collect()
}

/// Rules 4 and 12.
pub fn rows_of_queues_have_offsets_without_gap_in_the_order_of_decision(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let (one, two) = (grant(storage, 1), grant(storage, 2));
    assert_eq!(read_bounds(storage, QUEUE).unwrap(), QueueBounds::default());
    assert_eq!(texts(storage, QUEUE, 0), []);
    let appends = |texts: &[&str]| vec![queue_append(QUEUE, 5, texts)];
    commit(storage, one, epoch(one, 1, appends(&["a", "b"])));
    let mut both = appends(&["c"]);
    both.push(queue_append(OTHER, 6, &["x", "y", "z"]));
    commit(storage, two, epoch(two, 1, both));
    storage.settle().unwrap();
    commit(storage, one, epoch(one, 2, appends(&["d", "e", "f"])));
    let expected = ["a", "b", "c", "d", "e", "f"];
    for _settled in [false, true] {
        for from in 0..=6_u64 {
            let expected = named(from, &expected[from as usize..]);
            assert_eq!(texts(storage, QUEUE, from), expected);
        }
        for (rows, bytes) in [(1, 1_000), (2, 1_000), (3, 1), (100, 0), (100, 60)] {
            let limit = QueueLimit { rows, bytes };
            let found = queue_texts(storage, QUEUE, 1, limit).unwrap();
            assert_eq!(found, named(1, &expected[1..]), "pages of {limit:?}");
        }
        assert_eq!(texts(storage, OTHER, 1), named(1, &["y", "z"]));
        let bounds = read_bounds(storage, QUEUE).unwrap();
        assert_eq!((bounds.start, bounds.end), (0, 6));
        // Each row has a byte of key, one of payload, and 16 more.
        assert_eq!((bounds.written_bytes, bounds.trimmed_bytes), (6 * 18, 0));
        let headers = scan_chunk_headers(storage, QUEUE, 0, ScanLimit::rows(10)).unwrap();
        let headers: Vec<_> = (headers.iter())
            .map(|it| (it.first, it.end, it.bytes_before, it.size_bytes))
            .collect();
        assert_eq!(headers, [(0, 2, 0, 36), (2, 3, 36, 18), (3, 6, 54, 54)]);
        storage.settle().unwrap();
    }
}

/// Rules 1, 2 and 12: O3. What is refused takes no offset, alone or in a group.
pub fn o3_rows_of_queues_and_states_of_an_epoch_are_all_there_or_none_is(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let jobs: Vec<Lease> = (1..=3).map(|partition| grant(storage, partition)).collect();
    leases::end(storage, jobs[1]).unwrap();
    let epochs = (1..=2).flat_map(|number| {
        jobs.iter().map(move |lease| {
            let text = format!("{} {number}", lease.partition);
            let append = queue_append(QUEUE, 1, &[&text, "more"]);
            let mut commit = epoch(*lease, number, vec![append]);
            commit.states = states([("last", Some(&text))]);
            (*lease, commit)
        })
    });
    let outcomes: Vec<bool> = (storage.submit_epochs(epochs.collect()).into_iter())
        .map(|ticket| matches!(ticket.wait(), Ok(CommitOutcome::Committed(_))))
        .collect();
    assert_eq!(outcomes, [true, false, true, true, false, true]);
    let append = queue_append(QUEUE, 1, &["late"]);
    refusal(storage.commit_epoch(jobs[1], epoch(jobs[1], 1, vec![append])));
    let expected = [
        "p1 1", "more", "p3 1", "more", "p1 2", "more", "p3 2", "more",
    ];
    for _settled in [false, true] {
        assert_eq!(texts(storage, QUEUE, 0), named(0, &expected));
        assert_eq!(read_bounds(storage, QUEUE).unwrap().end, 8);
        let last = [1, 2, 3].map(|partition| value_of(storage, partition, "last"));
        assert_eq!(
            last,
            [Some("p1 2".to_owned()), None, Some("p3 2".to_owned())]
        );
        storage.settle().unwrap();
    }
}

/// Rules 1, 4 and 12: every row once, those of a producer in its order, whoever reads meanwhile.
pub fn many_producers_share_a_partition_of_a_queue(fixture: &Fixture) {
    const PRODUCERS: u64 = 4;
    const EPOCHS: u64 = 30;
    let storage = &*fixture.storage;
    std::thread::scope(|scope| {
        for partition in 1..=PRODUCERS {
            scope.spawn(move || {
                let lease = grant(storage, partition);
                for number in 1..=EPOCHS {
                    let texts: Vec<String> = (0..=number % 3)
                        .map(|row| format!("{partition}/{number}/{row}"))
                        .collect();
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let append = queue_append(QUEUE, number, &texts);
                    commit(storage, lease, epoch(lease, number, vec![append]));
                }
            });
        }
        let mut next = 0;
        while next < PRODUCERS * EPOCHS * 2 {
            let page = read_queue(storage, QUEUE, next, ALL).unwrap();
            for (first, rows) in &page.chunks {
                assert_eq!(*first, next);
                // An epoch's rows come whole: its number says how many there are.
                let text = String::from_utf8_lossy(rows.payloads.get(0)).into_owned();
                let number: u64 = text.split('/').nth(1).unwrap().parse().unwrap();
                assert_eq!(rows.len() as u64, number % 3 + 1);
                next += rows.len() as u64;
            }
        }
    });
    let found = texts(storage, QUEUE, 0);
    for partition in 1..=PRODUCERS {
        let prefix = format!("{partition}/");
        let of_producer: Vec<_> = (found.iter().map(|(_, text)| text))
            .filter(|text| text.starts_with(&prefix))
            .collect();
        let expected = (1..=EPOCHS).flat_map(|number| {
            (0..=number % 3).map(move |row| format!("{partition}/{number}/{row}"))
        });
        assert!(
            of_producer
                .into_iter()
                .eq(expected.collect::<Vec<_>>().iter())
        );
    }
}

/// Rule 13.
pub fn a_trimmed_queue_keeps_its_end_and_says_what_is_gone(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    for number in 1..=10 {
        let texts = [format!("{number}a"), format!("{number}b")];
        let append = queue_append(QUEUE, number, &[&texts[0], &texts[1]]);
        let other = queue_append(OTHER, number, &["other"]);
        commit(storage, lease, epoch(lease, number, vec![append, other]));
        if number == 5 {
            storage.settle().unwrap();
        }
    }
    let written = read_bounds(storage, QUEUE).unwrap().written_bytes;
    let bounds = |start, trimmed_bytes| QueueBounds {
        start,
        end: 20,
        written_bytes: written,
        trimmed_bytes,
    };
    // Into the middle of a chunk, back, onto the edge of one. A row has 20 bytes, and 2 more at two digits.
    for (before, start, trimmed) in [
        (3, 3, 60),
        (2, 3, 60),
        (3, 3, 60),
        (16, 16, 320),
        (0, 16, 320),
    ] {
        storage.trim_queue(QUEUE, before).unwrap();
        assert_eq!(read_bounds(storage, QUEUE).unwrap(), bounds(start, trimmed));
        let found = texts(storage, QUEUE, start);
        assert_eq!(found.len() as u64, 20 - start);
        assert_eq!(found.last().unwrap().1, "10b");
        let error = read_queue(storage, QUEUE, start - 1, ALL).unwrap_err();
        assert!(
            matches!(error, QueueError::Trimmed { start: found, .. } if found == start),
            "{error}"
        );
    }
    let rows = storage.scan(
        &[keys::QUEUE_ROWS],
        &keys::all_of(keys::QUEUE_ROWS, QUEUE).1,
        ScanLimit::rows(100),
    );
    assert_eq!(
        rows.unwrap().len(),
        2,
        "the rows of all other chunks are gone"
    );
    let error = read_queue(storage, QUEUE, 21, ALL).unwrap_err();
    assert!(
        matches!(error, QueueError::BeyondEnd { end: 20, .. }),
        "{error}"
    );
    // All of them, and more than there are.
    storage.trim_queue(QUEUE, u64::MAX).unwrap();
    assert_eq!(read_bounds(storage, QUEUE).unwrap(), bounds(20, written));
    assert_eq!(texts(storage, QUEUE, 20), []);
    let append = queue_append(QUEUE, 1, &["next"]);
    commit(storage, lease, epoch(lease, 11, vec![append]));
    assert_eq!(texts(storage, QUEUE, 20), named(20, &["next"]));
    assert_eq!(
        texts(storage, OTHER, 0).len(),
        10,
        "its neighbour keeps all"
    );
}

/// Rule 13 for what is removed.
pub fn a_removed_queue_leaves_nothing(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let appends = || {
        vec![
            queue_append(QUEUE, 1, &["a"]),
            queue_append(OTHER, 1, &["b"]),
        ]
    };
    commit(storage, lease, epoch(lease, 1, appends()));
    storage.settle().unwrap();
    commit(storage, lease, epoch(lease, 2, appends()));
    for _again in 0..2 {
        storage.remove_queue(QUEUE).unwrap();
        for prefix in [keys::QUEUE_ROWS, keys::QUEUE_BOUNDS] {
            let (start, end) = keys::all_of(prefix, QUEUE);
            let rows = storage.scan(&start, &end, ScanLimit::rows(10)).unwrap();
            assert_eq!(rows, []);
        }
        assert_eq!(read_bounds(storage, QUEUE).unwrap(), QueueBounds::default());
    }
    assert_eq!(texts(storage, OTHER, 0), named(0, &["b", "b"]));
}

/// Rule 14.
pub fn who_listens_is_told_of_rows_that_can_be_read(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let told = Arc::clone(&told);
        storage.on_queue_append(Arc::new(move |queues| {
            assert_eq!(queues, [QUEUE], "and of no other");
            told.fetch_add(1, Ordering::SeqCst);
        }));
    }
    commit(storage, lease, epoch(lease, 1, Vec::new()));
    storage.settle().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 0, "no row, no call");
    for number in 2..=4_usize {
        let append = queue_append(QUEUE, 1, &["row"]);
        let append = epoch(lease, number as u64, vec![append]);
        commit(storage, lease, append);
        // The answer may come first; what was submitted before is behind a settled storage.
        storage.settle().unwrap();
        assert_eq!(told.load(Ordering::SeqCst), 2 * (number - 1));
        assert_eq!(texts(storage, QUEUE, 0).len(), number - 1);
    }
}

/// Rule 10.
pub fn rows_that_cannot_be_stored_are_refused_with_their_queue(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let spoil = |spoil: fn(&mut QueueRows)| {
        let mut append = queue_append(QUEUE, 1, &["a", "b"]);
        spoil(Arc::make_mut(&mut append.rows));
        vec![append]
    };
    let twice = vec![
        queue_append(QUEUE, 1, &["a"]),
        queue_append(QUEUE, 1, &["b"]),
    ];
    let wrong = [
        (vec![queue_append(QUEUE, 1, &[])], "no row"),
        (spoil(|rows| rows.event_times.push(1)), "2, 3 and 2 items"),
        (spoil(|rows| rows.keys.bytes.push(1)), "do not agree"),
        (twice, "twice"),
    ];
    for (appends, expected) in wrong {
        let error = storage.commit_epoch(lease, epoch(lease, 1, appends));
        let error = error.unwrap_err();
        assert!(matches!(error, StorageError::Unstorable { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("queue partition p70") && text.contains(expected),
            "{text}"
        );
    }
    assert_eq!(read_bounds(storage, QUEUE).unwrap(), QueueBounds::default());
}
