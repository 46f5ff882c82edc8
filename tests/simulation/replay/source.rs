//! What a source's partition reads, and the watermarks that it makes of it.

use super::{Course, Replay};
use crate::checkers::Checker;
use crate::graph::Head;
use crate::model::{Led, Message};
use crate::record_source::{number_of, part_of, write_time};

impl Replay<'_> {
    pub(super) fn take_record(
        &mut self,
        course: &mut Course<'_>,
        message: Option<&Message>,
    ) -> Led {
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

    pub(super) fn pass_source_steps(&mut self, course: &mut Course<'_>) {
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
            self.find(Checker::Watermarks, course.commit(), &text);
            course.standing.floor = 0;
        }
    }
}
