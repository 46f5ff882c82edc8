//! What an epoch's record says, against what its items were.

use tidelock::types::timer::TimerPlace;
use tidelock::types::watermark::END_OF_TIME;

use super::{Course, Replay};
use crate::checkers::Checker;

impl Replay<'_> {
    /// The epoch's items are all there: its record must say so.
    pub(super) fn end(&mut self, course: &mut Course<'_>) {
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
            self.find(Checker::Watermarks, course.commit(), &text);
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
                self.find(Checker::Watermarks, course.commit(), &text);
            }
        }
        course.standing.time = record.time;
    }

    pub(super) fn end_of_source(&mut self, course: &mut Course<'_>) {
        self.pass_source_steps(course);
        let (now, found) = (
            course.standing.generator,
            course.commit().record.time.generator,
        );
        if now != found {
            let text = format!("makes its next watermark from {found:?}, not {now:?}");
            self.find(Checker::Watermarks, course.commit(), &text);
        }
    }

    pub(super) fn end_of_transform(&mut self, course: &mut Course<'_>) {
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
            self.find(Checker::Watermarks, course.commit(), &text);
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
                self.find(Checker::Timers, course.commit(), &text);
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
                &format!("commits: {difference}"),
            );
        }
    }
}
