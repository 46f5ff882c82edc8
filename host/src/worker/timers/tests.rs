//! The book against a naive one that has everything in one ordered map: random operations, windows of
//! every size, epochs that are decided late or, with a crash, never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::storage::memory::MemoryStorage;
use crate::storage::scan::ScanLimit;
use crate::storage::{CommitOutcome, leases};
use crate::types::batch::TimerColumns;
use crate::types::epoch::EpochCommit;
use crate::types::ids::EpochId;
use crate::types::lease::Lease;
use crate::types::timer::TimerPlace;

const PARTITION: PartitionId = PartitionId(1);
const RUN: u64 = 3;

/// Not in the order of their names, clocks mixed.
const DECLARED: [(&str, TimeDomain); 4] = [
    ("quiet", TimeDomain::SystemTime),
    ("hour", TimeDomain::EventTime),
    ("absent", TimeDomain::SystemTime),
    ("day", TimeDomain::EventTime),
];

fn declarations() -> Vec<TimerDeclaration> {
    let declared = DECLARED.map(|(name, time)| TimerDeclaration {
        name: name.to_owned(),
        time,
    });
    declared.to_vec()
}

/// In the order in which they fire, with event time and whether they wait for the next run.
type Standing = BTreeMap<(TimeDomain, TimerPlace), (Timestamp, bool)>;

#[derive(Clone, Default)]
struct Model {
    timers: Standing,
}

impl Model {
    fn hold(domain: TimeDomain, place: &TimerPlace, event_time: Timestamp) -> Option<Timestamp> {
        match domain {
            TimeDomain::EventTime if event_time == 0 => Some(place.trigger_time),
            TimeDomain::EventTime => Some(place.trigger_time.min(event_time)),
            TimeDomain::SystemTime => (event_time != 0).then_some(event_time),
        }
    }

    fn holds_at(&self) -> Option<Timestamp> {
        let holds = self.timers.iter();
        holds
            .filter_map(|((domain, place), (event_time, _))| {
                Self::hold(*domain, place, *event_time)
            })
            .min()
    }

    fn remove_named(&mut self, declared: usize, key: &[u8], trigger_time: Timestamp) {
        let (stream, domain) = DECLARED[declared];
        self.timers.retain(|(_, place), _| {
            let is_named = domain == TimeDomain::SystemTime || place.trigger_time == trigger_time;
            !(place.stream == stream && place.key == key && is_named)
        });
    }

    fn due(
        &self,
        domain: TimeDomain,
        until: Timestamp,
        behind: Option<&TimerPlace>,
    ) -> Vec<(TimerPlace, Timestamp)> {
        let mut keys = BTreeSet::new();
        (self.timers.iter())
            .filter(|((of, place), (_, is_held))| {
                *of == domain && !is_held && behind.is_none_or(|behind| place > behind)
            })
            .take_while(|((_, place), _)| {
                place.trigger_time <= until && keys.insert(place.key.clone())
            })
            .map(|((_, place), (event_time, _))| (place.clone(), *event_time))
            .collect()
    }
}

/// Numbers that depend on nothing but the seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % bound
    }
}

struct World {
    storage: MemoryStorage,
    lease: Lease,
    limit: WindowLimit,
    timers: Timers,
    model: Model,
    /// Epochs whose changes were taken and which storage has not been given.
    undecided: VecDeque<(EpochCommit, Model)>,
    /// What storage shows.
    decided: Model,
    next: EpochId,
    /// The last timer that fired in a step that is not done.
    fired: Option<(TimeDomain, TimerPlace)>,
    now: Timestamp,
    fired_count: usize,
}

impl World {
    fn new(limit: WindowLimit) -> World {
        let storage = MemoryStorage::new();
        let lease = leases::grant(&storage, PARTITION).unwrap();
        World {
            timers: Timers::open(&declarations(), PARTITION, RUN, limit, &storage).unwrap(),
            storage,
            lease,
            limit,
            model: Model::default(),
            undecided: VecDeque::new(),
            decided: Model::default(),
            next: EpochId(1),
            fired: None,
            now: 1_000,
            fired_count: 0,
        }
    }

    /// Sets and cancels a few timers in one call, each name once.
    fn call(&mut self, draw: &mut Draw, is_held: bool) {
        let keys: Column = (0..8_u8)
            .map(|key| vec![b'k'; usize::from(key) * 5])
            .collect::<Vec<_>>()
            .iter()
            .map(Vec::as_slice)
            .collect();
        let mut effects = Effects::default();
        let mut named = BTreeSet::new();
        self.now += draw.below(3);
        for _ in 0..=draw.below(6) {
            let declared = draw.below(4) as usize;
            let key = draw.below(8) as u32;
            let (_, domain) = DECLARED[declared];
            let is_set = draw.below(4) > 0;
            let (time, name) = match domain {
                TimeDomain::EventTime => (draw.below(40), None),
                TimeDomain::SystemTime => (draw.below(40), Some(())),
            };
            let name = (declared, key, name.map_or(Some(time), |()| None));
            if !named.insert(name) {
                continue;
            }
            // With few values, so that the same is set again.
            let event_time = [0, 3, 15, 30, 60][draw.below(5) as usize];
            let key_bytes = keys.get(key as usize).to_vec();
            let columns = match is_set {
                true => &mut effects.set_timers,
                false => &mut effects.cancel_timers,
            };
            columns.streams.push(declared as u16);
            columns.keys.push(key);
            columns.trigger_times.push(match (domain, is_set) {
                (TimeDomain::SystemTime, false) => 0,
                _ => time,
            });
            if !is_set {
                self.model.remove_named(declared, &key_bytes, time);
                continue;
            }
            columns.event_times.push(event_time);
            let trigger_time = match domain {
                TimeDomain::EventTime => time,
                TimeDomain::SystemTime => self.now + time.max(1),
            };
            self.model.remove_named(declared, &key_bytes, time);
            let place = TimerPlace {
                trigger_time,
                stream: DECLARED[declared].0.to_owned(),
                key: key_bytes,
            };
            let timer = (event_time, is_held);
            self.model.timers.insert((domain, place), timer);
        }
        let (now, storage) = (self.now, &self.storage);
        (self.timers.apply(&keys, &effects, now, is_held, storage)).unwrap();
    }

    /// Asks what is due and lets some of it fire.
    fn fire(&mut self, draw: &mut Draw) {
        let domain = match draw.below(2) {
            0 => TimeDomain::EventTime,
            _ => TimeDomain::SystemTime,
        };
        let until = match domain {
            TimeDomain::EventTime => draw.below(45),
            TimeDomain::SystemTime => self.now.saturating_sub(5) + draw.below(30),
        };
        let behind = (self.fired.clone())
            .filter(|(of, _)| *of == domain && draw.below(4) > 0)
            .map(|(_, place)| place);
        let limit = DueLimit {
            rows: 1 + draw.below(5) as usize,
            bytes: 1 + draw.below(200) as usize,
        };
        let due = (self.timers).due(domain, until, behind.as_ref(), limit, &self.storage);
        let due = due.unwrap();
        let expected = self.model.due(domain, until, behind.as_ref());
        assert_eq!(due.is_empty(), expected.is_empty(), "{due:?}, {expected:?}");
        assert!(due.len() <= limit.rows && due.len() <= expected.len());
        for (index, (place, event_time)) in expected.iter().take(due.len()).enumerate() {
            assert_eq!(self.timers.place(&due, index), *place);
            assert_eq!(due.columns.event_times[index], *event_time);
            assert_eq!(due.columns.keys[index] as usize, index);
        }
        let count = draw.below(due.len() as u64 + 1) as usize;
        self.timers.fire(&due, count);
        for (place, _) in expected.into_iter().take(count) {
            self.fired = Some((domain, place.clone()));
            self.model.timers.remove(&(domain, place));
            self.fired_count += 1;
        }
    }

    fn check(&mut self) {
        assert_eq!(self.timers.pending(), self.model.timers.len() as u64);
        let holds = self.timers.holds_at(&self.storage).unwrap();
        assert_eq!(holds, self.model.holds_at());
        let fires = self.timers.next_system_trigger(&self.storage).unwrap();
        let mut timers = self.model.timers.iter();
        let next = timers
            .find(|((domain, _), (_, is_held))| *domain == TimeDomain::SystemTime && !is_held);
        assert_eq!(fires, next.map(|((_, place), _)| place.trigger_time));
    }

    fn seal(&mut self) {
        let mut commit = EpochCommit::empty(&self.lease, self.next);
        commit.timers = self.timers.take_changes();
        for changes in &commit.timers {
            assert!(!changes.removed.is_empty() || !changes.set.is_empty());
        }
        self.next = self.next.next();
        self.undecided.push_back((commit, self.model.clone()));
    }

    /// Storage decides the oldest epoch; the book need not hear of it at once.
    fn decide(&mut self, is_told: bool) {
        if let Some((commit, model)) = self.undecided.pop_front() {
            let outcome = self.storage.commit_epoch(self.lease, commit).unwrap();
            assert!(
                matches!(outcome, CommitOutcome::Committed(_)),
                "{outcome:?}"
            );
            self.decided = model;
        }
        if is_told {
            self.timers.shrink(self.undecided.len());
        }
    }

    /// What is not decided is lost.
    fn crash(&mut self) {
        self.undecided.clear();
        self.model = self.decided.clone();
        self.next = self.storage.head(PARTITION).unwrap().epoch.next();
        let limit = self.limit;
        self.timers = Timers::open(&declarations(), PARTITION, RUN, limit, &self.storage).unwrap();
        self.fired = None;
    }

    /// Storage holds what the model says, and nothing else.
    fn check_stored(&self) {
        let mut stored = Standing::new();
        let mut holds = Vec::new();
        let limit = ScanLimit::rows(10_000);
        for domain in [TimeDomain::EventTime, TimeDomain::SystemTime] {
            let visit = |timer: TimerKey<'_>, times: TimerTimes| {
                let place = TimerPlace {
                    trigger_time: timer.trigger_time,
                    stream: timer.stream.to_owned(),
                    key: timer.key.to_vec(),
                };
                holds.extend(times.hold(domain));
                stored.insert(
                    (domain, place),
                    (times.event_time, times.held_in_run == RUN),
                );
            };
            timer_rows::scan_timers(&self.storage, PARTITION, domain, None, limit, visit).unwrap();
        }
        assert_eq!(stored, self.decided.timers);
        holds.sort_unstable();
        let mut held = Vec::new();
        let visit = |moment, _: TimerKey<'_>| held.push(moment);
        timer_rows::scan_timer_holds(&self.storage, PARTITION, None, limit, visit).unwrap();
        assert_eq!(held, holds);
        let streams = timer_rows::pending_streams(&self.storage, PARTITION).unwrap();
        let pending: u64 = streams.iter().map(|stream| stream.pending).sum();
        assert_eq!(pending, stored.len() as u64);
        for ((domain, place), (event_time, _)) in &stored {
            let name = TimerKey {
                domain: *domain,
                trigger_time: place.trigger_time,
                stream: &place.stream,
                key: &place.key,
            };
            let read = timer_rows::read_timers(&self.storage, PARTITION, &[name]).unwrap();
            let read = read[0].expect("it is found by its name");
            assert_eq!(
                (read.trigger_time, read.event_time),
                (place.trigger_time, *event_time)
            );
        }
    }
}

fn run(seed: u64, limit: WindowLimit) -> usize {
    let mut draw = Draw(seed);
    let mut world = World::new(limit);
    for _ in 0..400 {
        match draw.below(20) {
            0..=7 => world.call(&mut draw, false),
            8 => world.call(&mut draw, true),
            9..=13 => world.fire(&mut draw),
            14 => world.fired = None,
            15 | 16 if world.undecided.len() < 2 => world.seal(),
            15..=18 => {
                let is_told = draw.below(3) > 0;
                world.decide(is_told);
            }
            _ if draw.below(10) == 0 => world.crash(),
            _ => {}
        }
        if draw.below(3) > 0 {
            world.check();
        }
    }
    world.seal();
    while !world.undecided.is_empty() {
        world.decide(true);
    }
    world.check_stored();
    assert!(world.timers.open_count() == 0);
    world.fired_count
}

#[test]
fn the_book_answers_like_a_naive_one_whatever_its_windows_hold() {
    let mut fired = 0;
    for rows in [1, 2, 7, 1_000] {
        for seed in 0..60 {
            fired += run(
                seed,
                WindowLimit {
                    rows,
                    bytes: 1 << 20,
                },
            );
        }
        // Bytes alone may be the limit.
        fired += run(
            1_000,
            WindowLimit {
                rows: 1_000,
                bytes: rows,
            },
        );
    }
    assert!(fired > 4_000, "{fired}");
}

// ---------------------------------------------------------------------------------- single rules

fn set(rows: &[(u16, u32, Timestamp, Timestamp)]) -> Effects {
    let mut set = TimerColumns::default();
    for (stream, key, trigger_time, event_time) in rows.iter().copied() {
        set.streams.push(stream);
        set.keys.push(key);
        set.trigger_times.push(trigger_time);
        set.event_times.push(event_time);
    }
    Effects {
        set_timers: set,
        ..Effects::default()
    }
}

fn keys(keys: &[&str]) -> Column {
    keys.iter().map(|key| key.as_bytes()).collect()
}

const HOUR: u16 = 1;
const ALL: DueLimit = DueLimit {
    rows: 100,
    bytes: 1 << 20,
};

fn due_keys(world: &mut World, until: Timestamp, behind: Option<&TimerPlace>) -> Vec<String> {
    let event = TimeDomain::EventTime;
    let due = (world.timers).due(event, until, behind, ALL, &world.storage);
    let keys = due.unwrap().keys;
    keys.iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect()
}

#[test]
fn what_is_set_and_cancelled_in_one_epoch_leaves_nothing_to_commit() {
    let mut world = World::new(WindowLimit::default());
    let storage = MemoryStorage::new();
    let set = set(&[(HOUR, 0, 9, 9)]);
    let cancel = Effects {
        cancel_timers: TimerColumns {
            event_times: Vec::new(),
            ..set.set_timers.clone()
        },
        ..Effects::default()
    };
    let keys = keys(&["a"]);
    world.timers.apply(&keys, &set, 0, false, &storage).unwrap();
    world
        .timers
        .apply(&keys, &cancel, 0, false, &storage)
        .unwrap();
    assert_eq!(world.timers.take_changes(), []);
    assert_eq!(world.timers.pending(), 0);
}

#[test]
fn a_timer_that_is_set_again_alike_is_no_change() {
    let mut world = World::new(WindowLimit { rows: 1, bytes: 1 });
    let effects = set(&[(HOUR, 0, 9, 4), (HOUR, 1, 10, 4)]);
    let keys = keys(&["a", "b"]);
    for epoch in 0..3 {
        world
            .timers
            .apply(&keys, &effects, 0, false, &world.storage)
            .unwrap();
        world.seal();
        let (commit, _) = world.undecided.back().unwrap();
        assert_eq!(commit.timers.is_empty(), epoch > 0);
        world.decide(true);
    }
    assert_eq!(world.timers.pending(), 2);
}

#[test]
fn due_timers_end_before_the_first_key_that_is_among_them() {
    let mut world = World::new(WindowLimit::default());
    let effects = set(&[
        (HOUR, 0, 1, 1),
        (HOUR, 1, 2, 2),
        (HOUR, 0, 3, 3),
        (HOUR, 2, 4, 4),
    ]);
    let keys = keys(&["a", "b", "c"]);
    world
        .timers
        .apply(&keys, &effects, 0, false, &world.storage)
        .unwrap();
    assert_eq!(due_keys(&mut world, 4, None), ["a", "b"]);
    let behind = TimerPlace {
        trigger_time: 2,
        stream: "hour".to_owned(),
        key: b"b".to_vec(),
    };
    assert_eq!(due_keys(&mut world, 4, Some(&behind)), ["a", "c"]);
    assert_eq!(due_keys(&mut world, 3, Some(&behind)), ["a"]);
    // A place of a stream that is not declared any more is a place like any other.
    for (stream, expected) in [("evening", ["a", "c"]), ("zero", ["a", "c"])] {
        let behind = TimerPlace {
            stream: stream.to_owned(),
            ..behind.clone()
        };
        let found = due_keys(&mut world, 4, Some(&behind));
        match stream {
            // "hour" comes behind it.
            "evening" => assert_eq!(found, ["b", "a", "c"]),
            _ => assert_eq!(found, expected),
        }
    }
}

#[test]
fn timers_of_the_end_of_a_run_fire_in_the_next_one() {
    let mut world = World::new(WindowLimit {
        rows: 2,
        bytes: 1 << 20,
    });
    let names: Vec<String> = (0..10).map(|key| format!("k{key}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rows: Vec<_> = (0..10).map(|key| (HOUR, key, 5, 8)).collect();
    let storage = &world.storage;
    world
        .timers
        .apply(&keys(&names), &set(&rows), 0, true, storage)
        .unwrap();
    let later = set(&[(HOUR, 0, 6, 6)]);
    world
        .timers
        .apply(&keys(&["z"]), &later, 0, false, storage)
        .unwrap();
    assert_eq!(due_keys(&mut world, u64::MAX, None), ["z"]);
    assert_eq!(world.timers.holds_at(&world.storage).unwrap(), Some(5));
    world.seal();
    world.decide(true);
    assert_eq!(due_keys(&mut world, u64::MAX, None), ["z"]);
    let open = |run| {
        let limit = WindowLimit {
            rows: 2,
            bytes: 1 << 20,
        };
        Timers::open(&declarations(), PARTITION, run, limit, &world.storage).unwrap()
    };
    let (again, next) = (open(RUN), open(RUN + 1));
    world.timers = again;
    assert_eq!(due_keys(&mut world, u64::MAX, None), ["z"]);
    assert_eq!(world.timers.holds_at(&world.storage).unwrap(), Some(5));
    world.timers = next;
    assert_eq!(due_keys(&mut world, 5, None)[0], "k0");
    assert_eq!(world.timers.pending(), 11);
}

/// A storm at one moment whose handlers set timers for a moment before: they wait for the next step
/// and do not push out of memory what is to fire.
#[test]
fn timers_set_for_the_past_do_not_stand_in_the_way() {
    let mut world = World::new(WindowLimit {
        rows: 4,
        bytes: 1 << 20,
    });
    let names: Vec<String> = (0..100).map(|key| format!("k{key:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rows: Vec<_> = (0..100).map(|key| (HOUR, key, 50, 50)).collect();
    world
        .timers
        .apply(&keys(&names), &set(&rows), 0, false, &world.storage)
        .unwrap();
    let mut behind = None;
    let mut fired = Vec::new();
    loop {
        let event = TimeDomain::EventTime;
        let due = (world.timers)
            .due(event, 60, behind.as_ref(), ALL, &world.storage)
            .unwrap();
        if due.is_empty() {
            break;
        }
        world.timers.fire(&due, due.len());
        behind = Some(world.timers.place(&due, due.len() - 1));
        let rows: Vec<_> = (0..due.len() as u32)
            .map(|key| (HOUR, key, 10, 10))
            .collect();
        world
            .timers
            .apply(&due.keys, &set(&rows), 0, false, &world.storage)
            .unwrap();
        fired.extend(due.keys.iter().map(<[u8]>::to_vec));
        world.seal();
        world.decide(true);
    }
    assert!(
        names
            .iter()
            .map(|name| name.as_bytes())
            .eq(fired.iter().map(Vec::as_slice))
    );
    assert_eq!(world.timers.holds_at(&world.storage).unwrap(), Some(10));
    assert_eq!(world.timers.pending(), 100);
    assert_eq!(due_keys(&mut world, 60, None)[0], "k00");
}

#[test]
fn pending_timers_that_the_component_does_not_know_are_refused_with_a_way_on() {
    let mut world = World::new(WindowLimit::default());
    let effects = set(&[(HOUR, 0, 9, 4), (0, 0, 10, 4)]);
    world
        .timers
        .apply(&keys(&["a"]), &effects, 0, false, &world.storage)
        .unwrap();
    world.seal();
    world.decide(true);
    let open = |declarations: &[TimerDeclaration]| {
        let limit = WindowLimit::default();
        let opened = Timers::open(declarations, PARTITION, RUN, limit, &world.storage);
        opened.err().expect("it is refused").to_string()
    };
    let mut changed = declarations();
    changed[1].name = "minute".to_owned();
    let text = open(&changed);
    assert!(
        text.starts_with("timer stream hour has pending timers (1 in partition p1)"),
        "{text}"
    );
    assert!(
        text.contains("declare it, by the event-time clock as before"),
        "{text}"
    );
    let mut changed = declarations();
    changed[0].time = TimeDomain::EventTime;
    let text = open(&changed);
    assert!(text.contains("stream quiet has pending timers by the system-time clock"));
}
