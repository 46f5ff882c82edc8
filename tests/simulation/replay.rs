//! All epochs of the jobs of one kind, item by item: what the model makes of the items, and whether time
//! went by as it must.
//!
//! An answer tells which watermarks its item saw, and messages and steps of an epoch share one row of
//! indexes, so the sequence of items, steps of the input and steps of the output is known exactly, but for
//! steps of the input that no item came behind.
//!
//! - **Watermarks**: within a run they never fall, neither those that items see nor those of records and
//!   lanes. A source says what its records come to, where it must, and never more; a transform says the
//!   least of its inputs and of what pending timers hold, once its step is done. Late is what is behind the
//!   watermark, and it is counted.
//! - **Timers**: one that was set fires once, unless it is cancelled or replaced; not before its time, and in
//!   its step in the order of trigger time, stream, key; nothing that is due stays behind when a step is done.
//!   What an epoch commits is what its items did.

use std::collections::BTreeMap;

use guest_behaviours::trace::{Fired, STATES};
use tidelock::types::batch::{TimeDomain, Timestamp};
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::PartitionId;
use tidelock::types::timer::TimerPlace;
use tidelock::types::watermark::{END_OF_TIME, LaneStep};

use crate::ages::Ages;
use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::{Computation, Head, Shape};
use crate::history::Decided;
use crate::items::Item;
use crate::model::{Led, Message, ShapeModel};
use crate::record_source::{number_of, part_of, write_time};
use crate::standing::Standing;
use crate::timer_book::{CommittedTimers, TimerBook, clock_of, place_of};

/// An item, and the message that it is; `None` where nobody sent it, and for timers.
pub(crate) type TakenItem<'m> = (Item, Option<&'m Message>);

/// The jobs of one kind.
pub(crate) struct Replay<'e> {
    evidence: &'e Evidence<'e>,
    shape: &'e Shape,
    transform: Option<&'e Computation>,
    /// Whether anybody reads what the jobs write, so that their steps are known.
    has_lanes: bool,
    pub(crate) model: ShapeModel<'e>,
    standings: BTreeMap<PartitionId, Standing>,
    book: TimerBook,
    pub(crate) committed: BTreeMap<PartitionId, CommittedTimers>,
    /// How many items there were.
    items: usize,
    pub(crate) findings: Vec<Finding>,
}

/// An epoch that is replayed.
struct Course<'c> {
    one: &'c Decided,
    standing: Standing,
    /// Its steps that were not come to yet.
    steps: std::vec::IntoIter<LaneStep>,
    next_index: u32,
    outputs: u64,
    late: u64,
    future: u64,
    fired: u64,
    taken: u64,
    /// The last timer of the system's clock that fired in it.
    system_behind: Option<TimerPlace>,
}

impl Course<'_> {
    fn commit(&self) -> &EpochCommit {
        &self.one.commit
    }

    fn next_step(&mut self) -> Option<LaneStep> {
        let next = self.steps.as_slice().first()?;
        if next.index != self.next_index {
            return None;
        }
        self.next_index += 1;
        self.steps.next()
    }
}

impl<'e> Replay<'e> {
    /// Jobs that have read nothing.
    pub(crate) fn new(evidence: &'e Evidence<'e>, shape: &'e Shape) -> Replay<'e> {
        let graph = evidence.graph;
        let streams = evidence.deployment.streams_in_order(graph, shape);
        let mut written = shape.streams.iter();
        Replay {
            evidence,
            shape,
            transform: match shape.head {
                Head::Source(_) => None,
                Head::Transform(at) => Some(&graph.computations[at]),
            },
            has_lanes: written.any(|stream| graph.transforms_reading(*stream).next().is_some()),
            model: ShapeModel::new(graph, shape, streams),
            standings: BTreeMap::new(),
            book: TimerBook::default(),
            committed: BTreeMap::new(),
            items: 0,
            findings: Vec::new(),
        }
    }

    /// What the age of a partition's states is judged by behind its last epoch.
    pub(crate) fn ages(&self, partition: PartitionId) -> Ages {
        let standing = self.standings.get(&partition);
        standing.map_or_else(Ages::default, |standing| self.ages_behind(standing))
    }

    fn ages_behind(&self, standing: &Standing) -> Ages {
        let ttls = self.transform.map_or([None; 2], |it| it.time.ttls_ms);
        Ages::behind(&standing.time, [STATES[0], STATES[1]], ttls)
    }

    /// Another epoch was decided, which took these items.
    pub(crate) fn follow(&mut self, one: &Decided, items: Vec<TakenItem<'_>>) {
        let partition = one.commit.partition;
        let committed = self.committed.entry(partition).or_default();
        if let Some(unknown) = committed.follow(&one.commit) {
            let text = format!("removes timer {unknown}, which does not stand");
            self.find(Checker::Timers, &one.commit, text);
        }
        let mut standing = self.standings.remove(&partition).unwrap_or_default();
        let time = &one.commit.record.time;
        if one.is_move {
            if !standing.has_run {
                standing.inherit(time, self.transform.map_or(0, |it| it.inputs.len()));
            }
            standing.time = time.clone();
            self.standings.insert(partition, standing);
            return;
        }
        if self.evidence.layouts.is_retiring(partition, one.start) {
            // It only removes what its readers have taken.
            self.standings.insert(partition, standing);
            return;
        }
        standing.has_run = true;
        standing.clock = standing.clock.max(one.at);
        if time.run < standing.run {
            let text = format!("is of run {} after {}", time.run, standing.run);
            self.find(Checker::Watermarks, &one.commit, text);
        }
        if time.run != standing.run {
            let inputs = self.transform.map_or(0, |it| it.inputs.len());
            standing.begin_run(time.run, inputs);
        }
        let steps = self.steps_of(&one.commit);
        let mut course = Course {
            one,
            standing,
            steps: steps.into_iter(),
            next_index: 0,
            outputs: 0,
            late: 0,
            future: 0,
            fired: 0,
            taken: 0,
            system_behind: None,
        };
        let mut items = items.into_iter().peekable();
        while let Some((item, message)) = items.next() {
            let next = items.peek().and_then(|(next, _)| match next {
                Item::Message(_, watermarks) | Item::Timer(_, watermarks) => Some(&watermarks[..]),
                Item::Passed(_) => None,
            });
            let next = next.unwrap_or(&time.input_watermarks).to_vec();
            self.items += 1;
            let led = match (&item, self.transform) {
                (Item::Passed(_), None) => self.take_record(&mut course, message),
                (Item::Passed(_), Some(_)) => self.take_late(&mut course, message, &next),
                (Item::Message(_, seen), _) => self.take_message(&mut course, message, seen),
                (Item::Timer(fired, seen), _) => self.take_timer(&mut course, fired, seen),
            };
            course.outputs += led.leaving.len() as u64;
            course.next_index += led.leaving.len() as u32;
            let steps = course.steps.as_slice();
            if steps
                .first()
                .is_some_and(|step| step.index < course.next_index)
            {
                let text = format!("has step {:?} within what one item led to", steps[0]);
                self.find(Checker::Watermarks, course.commit(), text);
                course.steps.next();
            }
        }
        self.end(&mut course);
        self.standings.insert(partition, course.standing);
    }

    fn find(&mut self, checker: Checker, commit: &EpochCommit, text: String) {
        let (name, epoch) = (self.evidence.name(commit.partition), commit.epoch);
        self.findings.push(Finding {
            checker,
            text: format!("epoch {epoch} of {name} {text}"),
        });
    }

    /// The steps that an epoch put into its lanes: the same into all.
    fn steps_of(&mut self, commit: &EpochCommit) -> Vec<LaneStep> {
        let chunks = commit
            .chunks
            .iter()
            .filter(|chunk| chunk.epoch == commit.epoch);
        let mut steps: Option<&Vec<LaneStep>> = None;
        for chunk in chunks {
            let of_lane = &chunk.messages.steps;
            if *steps.get_or_insert(of_lane) != of_lane {
                let text = "says different things in its lanes".to_owned();
                self.find(Checker::Watermarks, commit, text);
                break;
            }
        }
        steps.cloned().unwrap_or_default()
    }

    /// Comes to the steps that stand here; `most` is what they may say.
    fn pass_steps(&mut self, course: &mut Course<'_>, most: Timestamp) {
        while let Some(step) = course.next_step() {
            let told = course.standing.out;
            let watermark = step.time.watermark;
            if watermark < told || watermark > told.max(most) {
                let text = format!("says {watermark} after {told}, where {most} holds");
                self.find(Checker::Watermarks, course.commit(), text);
            }
            course.standing.out = watermark;
        }
    }

    // ------------------------------------------------------------------------------------ sources

    fn take_record(&mut self, course: &mut Course<'_>, message: Option<&Message>) -> Led {
        self.pass_source_steps(course);
        let Some(message) = message else {
            return Led::default();
        };
        let Head::Source(source) = self.shape.head else {
            return Led::default();
        };
        let options = &self.evidence.graph.watermarks[source];
        let led = self.model.pass(course.commit().partition, message);
        let written = write_time(part_of(&message.payload), number_of(&message.payload));
        course.taken += 1;
        course.future += course.standing.count_record(options, written, &led.leaving);
        led
    }

    fn pass_source_steps(&mut self, course: &mut Course<'_>) {
        let Head::Source(source) = self.shape.head else {
            return;
        };
        let most = course
            .standing
            .read_watermark(&self.evidence.graph.watermarks[source]);
        self.pass_steps(course, most);
        let due = course.standing.floor;
        if self.has_lanes && course.standing.out < due {
            let text = format!("does not say {due} where so many records were read");
            self.find(Checker::Watermarks, course.commit(), text);
            course.standing.floor = 0;
        }
    }

    // --------------------------------------------------------------------------------- transforms

    /// Whether a key belongs to the partition.
    fn owns(&self, partition: PartitionId) -> impl Fn(&[u8]) -> bool + use<> {
        let place = self.evidence.layouts.place(partition);
        move |key| place.owns(key)
    }

    /// What the output may say once the inputs are at most at these watermarks, as timers stand.
    fn most(&self, course: &Course<'_>, watermarks: &[Timestamp]) -> Timestamp {
        let least = match watermarks.iter().copied().min().unwrap_or(0) {
            END_OF_TIME => course.commit().record.time.latest_watermark,
            least => least,
        };
        least.min(self.book.hold(self.owns(course.commit().partition)))
    }

    /// The timers of event time that are due behind a place.
    fn first_due(&self, course: &Course<'_>, behind: &TimerPlace) -> Option<TimerPlace> {
        let owns = self.owns(course.commit().partition);
        let mut firing = (self.book).firing(TimeDomain::EventTime, course.standing.run, owns);
        let first = firing
            .find(|(at, _)| *at > behind)
            .map(|(at, _)| at.clone());
        first.filter(|at| at.trigger_time <= course.standing.watermark())
    }

    /// The inputs are at these watermarks, by what an item saw or the record says.
    fn come_to(&mut self, course: &mut Course<'_>, watermarks: &[Timestamp]) {
        let most = self.most(course, watermarks);
        self.pass_steps(course, most);
        let before = &course.standing.watermarks;
        if watermarks == before {
            return;
        }
        let falls = watermarks.len() != before.len()
            || watermarks
                .iter()
                .zip(before)
                .any(|(now, before)| now < before);
        if falls {
            let text = format!("has watermarks {watermarks:?} after {before:?}");
            self.find(Checker::Watermarks, course.commit(), text);
        }
        self.end_step(course);
        course.standing.watermarks = watermarks.to_vec();
        course.standing.step = Some(TimerPlace::default());
    }

    /// The step is done, if there is one: nothing is due any more, and the output says how far it is.
    fn end_step(&mut self, course: &mut Course<'_>) {
        let Some(behind) = course.standing.step.take() else {
            return;
        };
        if let Some(due) = self.first_due(course, &behind) {
            let text = format!(
                "goes on at {:?} though {due:?} is due",
                course.standing.watermarks
            );
            self.find(Checker::Timers, course.commit(), text);
        }
        let watermark = course.standing.watermark();
        if watermark != END_OF_TIME {
            let hold = self.book.hold(self.owns(course.commit().partition));
            let floor = course.standing.floor;
            course.standing.floor = floor.max(watermark.min(hold));
        }
    }

    /// Comes to a message: the step is done, and so is what was due by the clock.
    fn come_to_message(&mut self, course: &mut Course<'_>) {
        self.end_step(course);
        let (told, floor) = (course.standing.out, course.standing.floor);
        if self.has_lanes && told < floor {
            let text = format!("says {told} behind its step, where {floor} holds");
            self.find(Checker::Watermarks, course.commit(), text);
            course.standing.floor = 0;
        }
        let owns = self.owns(course.commit().partition);
        let mut firing = (self.book).firing(TimeDomain::SystemTime, course.standing.run, owns);
        let overdue = firing.next().map(|(at, _)| at.clone());
        drop(firing);
        let overdue = overdue.filter(|at| at.trigger_time <= course.one.at);
        if let Some(at) = overdue
            && course.standing.watermark() != END_OF_TIME
        {
            let text = format!("goes on at {} though {at:?} is due", course.one.at);
            self.find(Checker::Timers, course.commit(), text);
        }
        course.standing.system_since = self.items;
    }

    /// What the age of states is judged by at an item.
    fn ages_at(&self, course: &Course<'_>) -> Ages {
        let mut ages = self.ages_behind(&course.standing);
        let behind = &course.commit().record.time;
        ages.latest = match course.standing.watermark() {
            END_OF_TIME => behind.latest_watermark,
            watermark => ages.latest.max(watermark),
        };
        if ages.first == 0 {
            ages.first = behind.ages.first_watermark;
        }
        ages
    }

    /// The moment up to which a message is late at a watermark; `None` for one that never is.
    fn lateness(&self, message: &Message) -> Option<Timestamp> {
        let transform = self.transform?;
        let mut inputs = transform.inputs.iter();
        let input = inputs.position(|stream| *stream == message.stream)?;
        let allowed = transform.time.allowed_lateness_ms[input];
        (message.event_time != 0).then(|| message.event_time.saturating_add(allowed))
    }

    fn take_message(
        &mut self,
        course: &mut Course<'_>,
        message: Option<&Message>,
        seen: &[Timestamp],
    ) -> Led {
        self.come_to(course, seen);
        self.come_to_message(course);
        let Some(message) = message else {
            return Led::default();
        };
        course.taken += 1;
        let watermark = course.standing.watermark();
        if self
            .lateness(message)
            .is_some_and(|until| until < watermark)
        {
            course.late += 1;
            if self.transform.is_some_and(|it| it.late.is_some()) {
                let payload = message.payload.escape_ascii();
                let text = format!("takes {payload}, which is late at {watermark}");
                self.find(Checker::Watermarks, course.commit(), text);
            }
        }
        let ages = self.ages_at(course);
        let partition = course.commit().partition;
        let led = self.model.take(partition, message, seen, &ages);
        self.set_timer(course, &message.key, &led);
        led
    }

    fn take_late(
        &mut self,
        course: &mut Course<'_>,
        message: Option<&Message>,
        next: &[Timestamp],
    ) -> Led {
        // It does not say what it saw.
        let most = self.most(course, next);
        self.pass_steps(course, most);
        let Some(message) = message else {
            return Led::default();
        };
        course.taken += 1;
        course.late += 1;
        course.standing.system_since = self.items;
        let watermark = next.iter().copied().min().unwrap_or(0);
        if self
            .lateness(message)
            .is_none_or(|until| until >= watermark)
        {
            let payload = message.payload.escape_ascii();
            let text = format!("takes {payload} for late before {watermark}");
            self.find(Checker::Watermarks, course.commit(), text);
        }
        self.model.pass(course.commit().partition, message)
    }

    fn take_timer(&mut self, course: &mut Course<'_>, fired: &Fired, seen: &[Timestamp]) -> Led {
        self.come_to(course, seen);
        let Some(domain) = clock_of(&fired.stream) else {
            let text = format!("fires {fired:?}, which nobody declared");
            self.find(Checker::Timers, course.commit(), text);
            return Led::default();
        };
        let place = place_of(fired);
        let standing = self.book.get(domain, &place);
        let known = standing.filter(|it| {
            it.event_time == fired.event_time && it.held_in_run != course.standing.run
        });
        let wrong = match (known, domain) {
            (None, _) => Some(format!("fires {fired:?}, which stands as {standing:?}")),
            (Some(_), TimeDomain::EventTime) => self.fire_in_step(course, &place),
            (Some(_), TimeDomain::SystemTime) => self.fire_by_clock(course, &place),
        };
        if let Some(wrong) = wrong {
            self.find(Checker::Timers, course.commit(), wrong);
        }
        course.fired += 1;
        self.book.remove(domain, &place);
        let ages = self.ages_at(course);
        let led = self
            .model
            .fire(course.commit().partition, fired, seen, &ages);
        self.set_timer(course, &fired.key, &led);
        led
    }

    /// A timer fires by the watermark. What is wrong with that.
    fn fire_in_step(&mut self, course: &mut Course<'_>, place: &TimerPlace) -> Option<String> {
        let behind = course.standing.step.take();
        // An input that falls idle is a step that changes no watermark.
        let may_be_unseen = self.evidence.graph.may_be_idle();
        let behind = match behind {
            Some(behind) if *place > behind || !may_be_unseen => behind,
            None if !may_be_unseen => {
                return Some(format!("fires {place:?} in no step"));
            }
            _ => TimerPlace::default(),
        };
        let first = self.first_due(course, &behind);
        course.standing.step = Some(place.clone());
        let watermarks = &course.standing.watermarks;
        (first.as_ref() != Some(place)).then(|| {
            format!("fires {place:?} behind {behind:?} at {watermarks:?}, where {first:?} is due")
        })
    }

    /// A timer fires by the system's clock. What is wrong with that.
    fn fire_by_clock(&mut self, course: &mut Course<'_>, place: &TimerPlace) -> Option<String> {
        self.end_step(course);
        let now = course.standing.clock;
        let owns = self.owns(course.commit().partition);
        let firing = (self.book).firing(TimeDomain::SystemTime, course.standing.run, owns);
        // One that was set since the step began may wait for the next one.
        let since = course.standing.system_since;
        let mut earlier = firing.filter(|(at, timer)| *at < place && timer.set_by <= since);
        let earlier = earlier.next().map(|(at, _)| at.clone());
        let behind = course.system_behind.replace(place.clone());
        if place.trigger_time > now {
            return Some(format!("fires {place:?} early, at {now}"));
        }
        if behind.as_ref().is_some_and(|behind| behind >= place) {
            return Some(format!("fires {place:?} behind {behind:?}"));
        }
        earlier.map(|earlier| format!("fires {place:?} before {earlier:?}"))
    }

    fn set_timer(&mut self, course: &Course<'_>, key: &[u8], led: &Led) {
        let is_at_end = course.standing.watermark() == END_OF_TIME;
        if let Some(wish) = led.timer {
            let run = (course.standing.run, is_at_end);
            self.book.wish(key, wish, course.one.at, run, self.items);
        }
    }

    // --------------------------------------------------------------------------------- the record

    /// The epoch's items are all there: its record must say so.
    fn end(&mut self, course: &mut Course<'_>) {
        let record = course.one.commit.record.clone();
        match self.transform {
            None => self.end_of_source(course),
            Some(_) => self.end_of_transform(course),
        }
        let (out, told) = (record.time.output.watermark, course.standing.out);
        let is_right = match self.has_lanes {
            true => out == told && course.steps.as_slice().is_empty(),
            false => out >= told.max(course.standing.floor),
        };
        if !is_right {
            let text = format!(
                "has told {out}, which its lanes have as {told}, with steps {:?} at {}",
                course.steps.as_slice(),
                course.next_index
            );
            self.find(Checker::Watermarks, course.commit(), text);
        }
        course.standing.out = out;
        let counts = [
            ("messages", course.outputs, record.output_count),
            ("inputs", course.taken, record.input_count),
            ("late ones", course.late, record.time.late_count),
            ("in the future", course.future, record.time.future_count),
            ("fired timers", course.fired, record.time.fired_count),
        ];
        for (what, expected, found) in counts {
            if expected != found {
                let text = format!("counts {found} {what}, not {expected}");
                self.find(Checker::Watermarks, course.commit(), text);
            }
        }
        course.standing.time = record.time;
    }

    fn end_of_source(&mut self, course: &mut Course<'_>) {
        self.pass_source_steps(course);
        let (now, found) = (
            course.standing.generator,
            course.commit().record.time.generator,
        );
        if now != found {
            let text = format!("makes its next watermark from {found:?}, not {now:?}");
            self.find(Checker::Watermarks, course.commit(), text);
        }
    }

    fn end_of_transform(&mut self, course: &mut Course<'_>) {
        let time = course.one.commit.record.time.clone();
        let least = time.input_watermarks.iter().copied().min().unwrap_or(0);
        let latest = match least {
            END_OF_TIME => time
                .latest_watermark
                .max(course.standing.time.latest_watermark),
            least => course.standing.time.latest_watermark.max(least),
        };
        if time.latest_watermark != latest {
            let found = time.latest_watermark;
            let text = format!("has the latest watermark {found}, not {latest}");
            self.find(Checker::Watermarks, course.commit(), text);
        }
        if !(time.input_watermarks.is_empty() && course.standing.watermark() == 0) {
            self.come_to(course, &time.input_watermarks);
        }
        match (&time.fired_up_to, course.standing.step.clone()) {
            (None, _) => self.end_step(course),
            (Some(found), Some(step)) if *found == step => {}
            // An input that falls idle is a step that changes no watermark.
            (Some(found), _)
                if *found == TimerPlace::default() && self.evidence.graph.may_be_idle() =>
            {
                self.end_step(course);
                course.standing.step = Some(found.clone());
            }
            (Some(found), step) => {
                let text = format!("has fired up to {found:?}, not {step:?}");
                self.find(Checker::Timers, course.commit(), text);
            }
        }
        let partition = course.commit().partition;
        let run = course.standing.run;
        let committed = self.committed[&partition].stored(run);
        let expected = self.book.stored(run, self.owns(partition));
        if let Some(difference) = committed.difference(&expected) {
            self.find(
                Checker::Timers,
                course.commit(),
                format!("commits: {difference}"),
            );
        }
    }
}
