//! The graph as a finished SVG picture, light or dark as its viewer likes. It needs no font of its own:
//! text is monospaced, so that its width is known here.

use std::fmt::Write as _;

use crate::cli::graph::document::{GraphDocument, Node, Stream};
use crate::cli::graph::layers::{Point, Size};
use crate::cli::graph::picture::{Arrow, ArrowKind, Frame, Measure, NodeBox, Picture, StreamLabel};

/// Widths of a character, somewhat more than monospaced fonts of these sizes need.
const NAME_CHARACTER_WIDTH: i32 = 9;
const TEXT_CHARACTER_WIDTH: i32 = 7;

const NODE_HEIGHT: i32 = 46;
const NODE_WIDTH_MIN: i32 = 110;
const LABEL_HEIGHT: i32 = 22;
const TEXT_PADDING: i32 = 14;

/// Longer texts are cut in their middle; a tooltip has them whole.
const NAME_CHARACTERS_MAX: usize = 32;
const TEXT_CHARACTERS_MAX: usize = 36;

/// Room around the picture, for its title and for its legend.
const MARGIN: i32 = 20;
const TITLE_HEIGHT: i32 = 34;
const LEGEND_HEIGHT: i32 = 36;
const LEGEND_WIDTH: i32 = 330;

/// Colours stand twice, as not every program that draws SVG knows variables.
const STYLE: &str = "\
text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#57606a}
.title{font-size:15px;font-weight:600;fill:#1f2328}.name{font-size:13px;font-weight:600;fill:#1f2328}
.paper{fill:#ffffff}.frame{fill:#f6f8fa;stroke:#d0d7de}.box{fill:#ffffff;stroke:#8c959f}
.label{fill:#eaeef2;stroke:none}.dropped{fill:none;stroke:#8c959f;stroke-dasharray:3 3}
.source{fill:#1a7f37}.map{fill:#8250df}.transform{fill:#bc4c00}.sink{fill:#57606a}
.line{fill:none;stroke:#8c959f;stroke-width:1.5}.lane{fill:none;stroke:#0969da;stroke-width:2.5}
.tip{fill:#8c959f}.lane-tip{fill:#0969da}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.title,.name{fill:#f0f6fc}
.paper{fill:#0d1117}.frame{fill:#151b23;stroke:#3d444d}.box{fill:#0d1117;stroke:#656c76}
.label{fill:#262c36}.dropped{fill:none;stroke:#656c76}
.source{fill:#3fb950}.map{fill:#ab7df8}.transform{fill:#db6d28}.sink{fill:#9198a1}
.line{stroke:#656c76}.lane{stroke:#4493f8}.tip{fill:#656c76}.lane-tip{fill:#4493f8}}
";

/// The whole picture.
pub(super) fn svg(graph: &GraphDocument) -> String {
    let picture = Picture::of(graph, &Texts);
    let width = picture.size.width.max(LEGEND_WIDTH) + 2 * MARGIN;
    let height = picture.size.height + 2 * MARGIN + TITLE_HEIGHT + LEGEND_HEIGHT;
    let title = escaped(&format!("pipeline {}", graph.pipeline));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{title}</text>\n\
         <g transform=\"translate({MARGIN} {})\">\n",
        MARGIN + 12,
        MARGIN + TITLE_HEIGHT,
    );
    for frame in &picture.frames {
        write_frame(&mut svg, frame);
    }
    // Lanes lie above other lines, boxes above both.
    let is_lane = |arrow: &&Arrow| arrow.kind == ArrowKind::Lane;
    let others = picture.arrows.iter().filter(|arrow| !is_lane(arrow));
    for arrow in others.chain(picture.arrows.iter().filter(is_lane)) {
        write_arrow(&mut svg, arrow);
    }
    for label in &picture.labels {
        write_label(&mut svg, label);
    }
    for node in &picture.boxes {
        write_node(&mut svg, node);
    }
    svg += "</g>\n";
    write_legend(&mut svg, height - MARGIN);
    svg += "</svg>\n";
    svg
}

/// The measures of text in the fonts above.
pub(super) struct Texts;

impl Measure for Texts {
    fn node(&self, node: &Node) -> Size {
        let name = length(&clipped(&node.id.name, NAME_CHARACTERS_MAX)) * NAME_CHARACTER_WIDTH;
        let caption = length(&caption(node)) * TEXT_CHARACTER_WIDTH;
        Size {
            width: (name.max(caption) + 2 * TEXT_PADDING).max(NODE_WIDTH_MIN),
            height: NODE_HEIGHT,
        }
    }

    fn stream(&self, stream: &Stream) -> Size {
        let text = label_text(stream);
        Size {
            width: length(&text) * TEXT_CHARACTER_WIDTH + 2 * TEXT_PADDING - 8,
            height: LABEL_HEIGHT,
        }
    }

    fn frame_width(&self, title: &str) -> i32 {
        length(title) * TEXT_CHARACTER_WIDTH + 2 * TEXT_PADDING
    }
}

fn write_frame(svg: &mut String, frame: &Frame) {
    let Size { width, height } = frame.size;
    let Point { x, y } = frame.corner;
    if frame.is_many {
        let (x, y) = (x + 5, y - 5);
        write_rectangle(svg, "frame", Point { x, y }, frame.size, 8);
    }
    write_rectangle(svg, "frame", frame.corner, Size { width, height }, 8);
    let title = escaped(&frame.title);
    // Writing to a string can't fail.
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\">{title}</text>",
        x + TEXT_PADDING,
        y + 21
    );
}

fn write_node(svg: &mut String, part: &NodeBox<'_>) {
    let Point { x, y } = part.corner;
    let kind = part.node.id.kind.name();
    let _ = writeln!(
        svg,
        "<g><title>{}</title>",
        escaped(&format!("{}: {}", part.node.id, part.node.detail))
    );
    write_rectangle(svg, "box", part.corner, part.size, 6);
    let _ = writeln!(
        svg,
        "<rect class=\"{kind}\" x=\"{x}\" y=\"{}\" width=\"4\" height=\"{}\" rx=\"2\"/>\n\
         <text class=\"name\" x=\"{}\" y=\"{}\">{}</text>\n\
         <text x=\"{}\" y=\"{}\">{}</text></g>",
        y + 6,
        part.size.height - 12,
        x + TEXT_PADDING,
        y + 20,
        escaped(&clipped(&part.node.id.name, NAME_CHARACTERS_MAX)),
        x + TEXT_PADDING,
        y + 36,
        escaped(&caption(part.node)),
    );
}

fn write_label(svg: &mut String, label: &StreamLabel<'_>) {
    let is_dropped = label.stream.readers.is_empty();
    let class = if is_dropped { "dropped" } else { "label" };
    write_rectangle(svg, class, label.corner, label.size, LABEL_HEIGHT / 2);
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        label.corner.x + label.size.width / 2,
        label.corner.y + 15,
        escaped(&label_text(label.stream)),
    );
}

fn write_rectangle(svg: &mut String, class: &str, corner: Point, size: Size, radius: i32) {
    let Point { x, y } = corner;
    let Size { width, height } = size;
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         rx=\"{radius}\"/>"
    );
}

fn write_arrow(svg: &mut String, arrow: &Arrow) {
    let (line, tip) = match arrow.kind {
        ArrowKind::Lane => ("lane", Some("lane-tip")),
        ArrowKind::Reads => ("line", Some("tip")),
        ArrowKind::Writes => ("line", None),
    };
    let Some((last, points)) = arrow.points.split_last() else {
        return;
    };
    // The line ends inside the tip, so that it does not show beyond it.
    let end = Point {
        x: last.x - if tip.is_some() { 6 } else { 0 },
        ..*last
    };
    let mut path = String::new();
    let mut at: Option<Point> = None;
    for point in points.iter().chain([&end]) {
        let Point { x, y } = *point;
        let _ = match at {
            None => write!(path, "M{x} {y}"),
            Some(before) if before.y == y => write!(path, "H{x}"),
            Some(before) => {
                let middle = (before.x + x) / 2;
                write!(path, "C{middle} {},{middle} {y},{x} {y}", before.y)
            }
        };
        at = Some(*point);
    }
    let _ = writeln!(svg, "<path class=\"{line}\" d=\"{path}\"/>");
    if let Some(tip) = tip {
        write_tip(svg, tip, *last);
    }
}

fn write_tip(svg: &mut String, class: &str, at: Point) {
    let Point { x, y } = at;
    let (back, above, below) = (x - 9, y - 5, y + 5);
    let _ = writeln!(
        svg,
        "<path class=\"{class}\" d=\"M{x} {y}L{back} {above}V{below}Z\"/>"
    );
}

fn write_legend(svg: &mut String, y: i32) {
    let entries = [
        ("line", "tip", "inside a commit"),
        ("lane", "lane-tip", "lane: committed, then read"),
    ];
    let mut x = MARGIN;
    for (line, tip, text) in entries {
        let _ = writeln!(svg, "<path class=\"{line}\" d=\"M{x} {}h22\"/>", y - 4);
        write_tip(
            svg,
            tip,
            Point {
                x: x + 30,
                y: y - 4,
            },
        );
        x += 38;
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{text}</text>");
        x += length(text) * TEXT_CHARACTER_WIDTH + 20;
    }
}

/// What a node is, in the line below its name.
fn caption(node: &Node) -> String {
    let kind = node.id.kind.name();
    let text = match &node.component {
        Some(component) => format!("{kind}, component {component}"),
        None => format!("{kind}, {}", node.detail),
    };
    clipped(&text, TEXT_CHARACTERS_MAX)
}

fn label_text(stream: &Stream) -> String {
    let name = clipped(&stream.name, NAME_CHARACTERS_MAX);
    match &stream.notes()[..] {
        [] => name,
        notes => format!("{name} ({})", notes.join(", ")),
    }
}

/// The text, or its beginning and its end if it is long: the ends of paths say more than their middles.
fn clipped(text: &str, characters_max: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= characters_max {
        return text.to_owned();
    }
    let head = (characters_max - 1) / 2;
    let tail = characters_max - 1 - head;
    let (head, tail) = (&characters[..head], &characters[characters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

fn length(text: &str) -> i32 {
    // Names and clipped texts are short.
    text.chars().count() as i32
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
