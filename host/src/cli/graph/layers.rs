//! A layered drawing: items stand in columns by their layer, lines lead from left to right and pass
//! the columns between their ends in gaps of their own. The picture of a job and the picture of the
//! jobs are both drawn so. Units are pixels; y grows downwards.

use std::collections::BTreeMap;

/// Height that a line takes where it passes a column.
const PASS_HEIGHT: i32 = 10;

/// An item's place in [`Layers`].
pub(super) type ItemIndex = usize;

/// Items to be placed, and lines between them.
#[derive(Debug, Default)]
pub(super) struct Layers {
    items: Vec<Item>,
    /// Gaps in columns by origin and column: lines of one origin share them.
    passes: BTreeMap<(ItemIndex, i32, usize), ItemIndex>,
}

#[derive(Debug)]
struct Item {
    layer: usize,
    size: Size,
    /// Where lines arrive, below its top.
    entry: i32,
    /// The items that lines arrive from, with the places below their tops where they leave.
    feeders: Vec<(ItemIndex, i32)>,
}

/// Width and height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: i32,
    pub(super) height: i32,
}

/// A point of the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) x: i32,
    pub(super) y: i32,
}

impl Point {
    /// The point from another corner.
    pub(super) fn moved_by(self, corner: Point) -> Point {
        Point {
            x: self.x + corner.x,
            y: self.y + corner.y,
        }
    }
}

/// A line between two items: the gaps that it goes through.
#[derive(Debug, Clone)]
pub(super) struct Line {
    from: ItemIndex,
    exit: i32,
    passes: Vec<ItemIndex>,
}

/// Where everything stands.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) size: Size,
    layers: Layers,
    columns: Vec<Column>,
    tops: Vec<i32>,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    left: i32,
    width: i32,
}

impl Layers {
    /// Adds an item; lines arrive at its left side, `entry` below its top.
    pub(super) fn add(&mut self, layer: usize, size: Size, entry: i32) -> ItemIndex {
        self.items.push(Item {
            layer,
            size,
            entry,
            feeders: Vec::new(),
        });
        self.items.len() - 1
    }

    /// How large an item is.
    pub(super) fn size_of(&self, item: ItemIndex) -> Size {
        self.items[item].size
    }

    /// Draws a line that leaves `from` at its right side, `exit` below its top, and arrives at `to`.
    pub(super) fn connect(&mut self, from: ItemIndex, exit: i32, to: ItemIndex) -> Line {
        let line = self.lead(from, exit, self.items[to].layer);
        let last = line.passes.last();
        let feeder = last.map_or((from, exit), |pass| (*pass, PASS_HEIGHT / 2));
        self.items[to].feeders.push(feeder);
        line
    }

    /// Draws a line through all columns before `layer`.
    pub(super) fn lead(&mut self, from: ItemIndex, exit: i32, layer: usize) -> Line {
        let mut passes = Vec::new();
        let mut feeder = (from, exit);
        for between in self.items[from].layer + 1..layer {
            let found = self.passes.get(&(from, exit, between)).copied();
            let pass = found.unwrap_or_else(|| {
                let size = Size {
                    width: 0,
                    height: PASS_HEIGHT,
                };
                let pass = self.add(between, size, PASS_HEIGHT / 2);
                self.items[pass].feeders.push(feeder);
                self.passes.insert((from, exit, between), pass);
                pass
            });
            feeder = (pass, PASS_HEIGHT / 2);
            passes.push(pass);
        }
        Line { from, exit, passes }
    }

    /// Places the items: in each column in the order, and as near as can be to the heights, of what
    /// feeds them.
    pub(super) fn place(self, column_gap: i32, row_gap: i32) -> Placement {
        let mut tops = vec![0; self.items.len()];
        let mut columns = Vec::new();
        let mut left = 0;
        let last = self.items.iter().map(|item| item.layer).max();
        for layer in 0..last.map_or(0, |last| last + 1) {
            let in_layer = self.items.iter().enumerate();
            let in_layer = in_layer.filter(|(_, item)| item.layer == layer);
            let mut wishes: Vec<(i32, ItemIndex)> = in_layer
                .clone()
                .map(|(index, item)| (item.wanted_entry(&tops), index))
                .collect();
            wishes.sort_unstable();
            let stacked = stack(&wishes, &self.items, row_gap);
            for ((_, index), top) in wishes.iter().zip(stacked) {
                tops[*index] = top;
            }
            let width = in_layer.map(|(_, item)| item.size.width).max().unwrap_or(0);
            columns.push(Column { left, width });
            left += width + column_gap;
        }
        let highest = tops.iter().min().copied().unwrap_or(0);
        tops.iter_mut().for_each(|top| *top -= highest);
        let bottoms = tops.iter().zip(&self.items);
        let height = bottoms.map(|(top, item)| top + item.size.height).max();
        Placement {
            size: Size {
                width: (left - column_gap).max(0),
                height: height.unwrap_or(0),
            },
            layers: self,
            columns,
            tops,
        }
    }
}

impl Item {
    /// The mean height at which lines leave for this item.
    fn wanted_entry(&self, tops: &[i32]) -> i32 {
        let heights = self
            .feeders
            .iter()
            .map(|(feeder, exit)| tops[*feeder] + exit);
        heights.sum::<i32>() / (self.feeders.len() as i32).max(1)
    }
}

impl Placement {
    /// The upper left corner of an item.
    pub(super) fn corner(&self, item: ItemIndex) -> Point {
        Point {
            x: self.columns[self.layers.items[item].layer].left,
            y: self.tops[item],
        }
    }

    /// How large an item is.
    pub(super) fn size_of(&self, item: ItemIndex) -> Size {
        self.layers.size_of(item)
    }

    /// The points of a line up to its end's column: each pair is straight, between pairs it bends.
    pub(super) fn points(&self, line: &Line) -> Vec<Point> {
        let from = &self.layers.items[line.from];
        let start = self.corner(line.from);
        let column = self.columns[from.layer];
        let y = start.y + line.exit;
        let mut points = vec![
            Point {
                x: start.x + from.size.width,
                y,
            },
            Point {
                x: column.left + column.width,
                y,
            },
        ];
        for pass in &line.passes {
            let column = self.columns[self.layers.items[*pass].layer];
            let y = self.tops[*pass] + PASS_HEIGHT / 2;
            points.push(Point { x: column.left, y });
            points.push(Point {
                x: column.left + column.width,
                y,
            });
        }
        points
    }

    /// Where lines arrive at an item.
    pub(super) fn entry(&self, item: ItemIndex) -> Point {
        let corner = self.corner(item);
        Point {
            x: corner.x,
            y: corner.y + self.layers.items[item].entry,
        }
    }
}

/// Tops for items in this order, each as near to its wish as the others leave room: items that want
/// the same room stand as a block around the mean of their wishes.
fn stack(wishes: &[(i32, ItemIndex)], items: &[Item], row_gap: i32) -> Vec<i32> {
    struct Block {
        top: i32,
        height: i32,
        count: i32,
        /// Sum of the tops that its items would give the block.
        wanted: i32,
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (entry, index) in wishes {
        let item = &items[*index];
        let top = entry - item.entry;
        let mut block = Block {
            top,
            height: item.size.height,
            count: 1,
            wanted: top,
        };
        while let Some(above) =
            blocks.pop_if(|above| above.top + above.height + row_gap > block.top)
        {
            let before = above.height + row_gap;
            block.wanted = above.wanted + block.wanted - before * block.count;
            block.count += above.count;
            block.height += before;
            block.top = block.wanted / block.count;
        }
        blocks.push(block);
    }
    let mut heights = wishes.iter().map(|(_, index)| items[*index].size.height);
    let mut tops = Vec::with_capacity(wishes.len());
    for block in blocks {
        let mut top = block.top;
        for height in heights.by_ref().take(block.count as usize) {
            tops.push(top);
            top += height + row_gap;
        }
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: Size = Size {
        width: 100,
        height: 20,
    };

    #[test]
    fn readers_of_one_item_stand_around_its_height_without_overlap() {
        let mut layers = Layers::default();
        let from = layers.add(0, BOX, 10);
        let readers: Vec<ItemIndex> = (0..3).map(|_| layers.add(1, BOX, 10)).collect();
        for reader in &readers {
            layers.connect(from, 10, *reader);
        }
        let placement = layers.place(50, 5);
        let tops: Vec<i32> = readers.iter().map(|it| placement.corner(*it).y).collect();
        assert_eq!(tops, [0, 25, 50]);
        assert_eq!(placement.corner(from), Point { x: 0, y: 25 });
        assert_eq!(placement.corner(readers[0]).x, 150);
    }

    #[test]
    fn a_line_passes_a_column_beside_its_items() {
        let mut layers = Layers::default();
        let from = layers.add(0, BOX, 10);
        let between = layers.add(1, BOX, 10);
        let to = layers.add(2, BOX, 10);
        layers.connect(from, 10, between);
        let line = layers.connect(from, 10, to);
        let placement = layers.place(50, 5);
        let points = placement.points(&line);
        assert_eq!((points[2].x, points[3].x), (150, 250));
        let top = placement.corner(between).y;
        let y = points[2].y;
        assert!(y < top || y > top + BOX.height, "{y} is inside {top}");
    }

    #[test]
    fn items_keep_the_order_of_what_feeds_them() {
        let mut layers = Layers::default();
        let upper = layers.add(0, BOX, 10);
        let lower = layers.add(0, BOX, 10);
        let of_lower = layers.add(1, BOX, 10);
        let of_upper = layers.add(1, BOX, 10);
        layers.connect(lower, 10, of_lower);
        layers.connect(upper, 10, of_upper);
        let placement = layers.place(50, 5);
        assert!(placement.corner(of_upper).y < placement.corner(of_lower).y);
    }
}
