//! What a transform takes, and what it makes of its inputs' watermarks and of timers.

use guest_behaviours::trace::Fired;
use tidelock::types::batch::{TimeDomain, Timestamp};
use tidelock::types::ids::PartitionId;
use tidelock::types::timer::TimerPlace;
use tidelock::types::watermark::END_OF_TIME;

use super::{Course, Replay};
use crate::ages::Ages;
use crate::checkers::Checker;
use crate::model::{Led, Message};
use crate::timer_book::{clock_of, place_of};

impl Replay<'_> {
    /// Whether a key belongs to the partition.
    pub(super) fn owns(&self, partition: PartitionId) -> impl Fn(&[u8]) -> bool + use<> {
        let place = self.evidence.layouts.place(partition);
        move |key| place.owns(key)
    }

    /// What the output may say once the inputs are at most at these watermarks, as timers stand.
    pub(super) fn most(&self, course: &Course<'_>, watermarks: &[Timestamp]) -> Timestamp {
        let least = match watermarks.iter().copied().min().unwrap_or(0) {
            END_OF_TIME => course.commit().record.time.latest_watermark,
            least => least,
        };
        least.min(self.book.hold(self.owns(course.commit().partition)))
    }

    /// The timers of event time that are due behind a place.
    pub(super) fn first_due(&self, course: &Course<'_>, behind: &TimerPlace) -> Option<TimerPlace> {
        let owns = self.owns(course.commit().partition);
        let mut firing = (self.book).firing(TimeDomain::EventTime, course.standing.run, owns);
        let first = firing
            .find(|(at, _)| *at > behind)
            .map(|(at, _)| at.clone());
        first.filter(|at| at.trigger_time <= course.standing.watermark())
    }

    /// The inputs are at these watermarks, by what an item saw or the record says.
    pub(super) fn come_to(&mut self, course: &mut Course<'_>, watermarks: &[Timestamp]) {
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
            self.find(Checker::Watermarks, course.commit(), &text);
        }
        self.end_step(course);
        course.standing.watermarks = watermarks.to_vec();
        course.standing.step = Some(TimerPlace::default());
    }

    /// The step is done, if there is one: nothing is due any more, and the output says how far it is.
    pub(super) fn end_step(&mut self, course: &mut Course<'_>) {
        let Some(behind) = course.standing.step.take() else {
            return;
        };
        if let Some(due) = self.first_due(course, &behind) {
            let text = format!(
                "goes on at {:?} though {due:?} is due",
                course.standing.watermarks
            );
            self.find(Checker::Timers, course.commit(), &text);
        }
        let watermark = course.standing.watermark();
        if watermark != END_OF_TIME {
            let hold = self.book.hold(self.owns(course.commit().partition));
            let floor = course.standing.floor;
            course.standing.floor = floor.max(watermark.min(hold));
        }
    }

    /// Comes to a message: the step is done, and so is what was due by the clock.
    pub(super) fn come_to_message(&mut self, course: &mut Course<'_>) {
        self.end_step(course);
        let (told, floor) = (course.standing.out, course.standing.floor);
        if self.has_lanes && told < floor {
            let text = format!("says {told} behind its step, where {floor} holds");
            self.find(Checker::Watermarks, course.commit(), &text);
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
            self.find(Checker::Timers, course.commit(), &text);
        }
        course.standing.system_since = self.items;
    }

    /// What the age of states is judged by at an item.
    pub(super) fn ages_at(&self, course: &Course<'_>) -> Ages {
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
    pub(super) fn lateness(&self, message: &Message) -> Option<Timestamp> {
        let transform = self.transform?;
        let mut inputs = transform.inputs.iter();
        let input = inputs.position(|stream| *stream == message.stream)?;
        let allowed = transform.time.allowed_lateness_ms[input];
        (message.event_time != 0).then(|| message.event_time.saturating_add(allowed))
    }

    pub(super) fn take_message(
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
                self.find(Checker::Watermarks, course.commit(), &text);
            }
        }
        let ages = self.ages_at(course);
        let partition = course.commit().partition;
        let led = self.model.take(partition, message, seen, &ages);
        self.set_timer(course, &message.key, &led);
        led
    }

    pub(super) fn take_late(
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
            self.find(Checker::Watermarks, course.commit(), &text);
        }
        self.model.pass(course.commit().partition, message)
    }

    pub(super) fn take_timer(
        &mut self,
        course: &mut Course<'_>,
        fired: &Fired,
        seen: &[Timestamp],
    ) -> Led {
        self.come_to(course, seen);
        let Some(domain) = clock_of(&fired.stream) else {
            let text = format!("fires {fired:?}, which nobody declared");
            self.find(Checker::Timers, course.commit(), &text);
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
            self.find(Checker::Timers, course.commit(), &wrong);
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
    pub(super) fn fire_in_step(
        &mut self,
        course: &mut Course<'_>,
        place: &TimerPlace,
    ) -> Option<String> {
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
    pub(super) fn fire_by_clock(
        &mut self,
        course: &mut Course<'_>,
        place: &TimerPlace,
    ) -> Option<String> {
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

    pub(super) fn set_timer(&mut self, course: &Course<'_>, key: &[u8], led: &Led) {
        let is_at_end = course.standing.watermark() == END_OF_TIME;
        if let Some(wish) = led.timer {
            let run = (course.standing.run, is_at_end);
            self.book.wish(key, wish, course.one.at, run, self.items);
        }
    }
}
