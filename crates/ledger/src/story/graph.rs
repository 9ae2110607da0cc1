//! The receipts as a graph of text: one row each, with lines on the left from parents to children.
//!
//! ```text
//! ┌─● #1  task.assigned      agent/alice
//! │ ● #2  task.accepted      worker/bob
//! ├─● #3  task.completed     worker/bob
//! └─● #4  task.result_ready  system/asyncgate
//! ```

use super::Story;

/// A line from one row down to another.
#[derive(Debug, Clone, Copy)]
struct Edge {
    top: usize,
    bottom: usize,
}

pub(super) fn draw(story: &Story) -> String {
    let lanes = lanes(edges(story));
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let moments = &story.moments;
    let seq_width = width(&mut moments.iter().map(|m| m.seq.to_string().len() + 1));
    let type_width = width(&mut moments.iter().map(|m| m.receipt_type.as_str().len()));
    let mut text = String::new();
    for (row, moment) in moments.iter().enumerate() {
        let line = format!(
            "{}● {:<seq_width$}  {:<type_width$}  {}{}",
            rail(&lanes, row),
            format!("#{}", moment.seq),
            moment.receipt_type.as_str(),
            moment.from,
            if moment.from == moment.to {
                String::new()
            } else {
                format!(" → {}", moment.to)
            }
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn edges(story: &Story) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (bottom, moment) in story.moments.iter().enumerate() {
        for parent in &moment.parents {
            if let Some(top) = story.position(parent).filter(|top| *top < bottom) {
                edges.push(Edge { top, bottom });
            }
        }
    }
    edges
}

/// Puts edges side by side if they would overlap. An edge may begin where another ends.
fn lanes(mut edges: Vec<Edge>) -> Vec<Vec<Edge>> {
    edges.sort_by_key(|edge| (edge.top, edge.bottom));
    let mut lanes: Vec<Vec<Edge>> = Vec::new();
    for edge in edges {
        let free = lanes
            .iter()
            .position(|lane| lane.last().is_none_or(|last| last.bottom <= edge.top));
        match free {
            Some(lane) => lanes[lane].push(edge),
            None => lanes.push(vec![edge]),
        }
    }
    // The first lane is drawn innermost, next to the receipts.
    lanes.reverse();
    lanes
}

/// Draws the part left of a row: the piece of each lane, and a line to the receipt from those that
/// touch it.
fn rail(lanes: &[Vec<Edge>], row: usize) -> String {
    let mut text = String::new();
    let mut touched = false;
    for lane in lanes {
        let begins = lane.iter().any(|edge| edge.top == row);
        let ends = lane.iter().any(|edge| edge.bottom == row);
        let passes = lane.iter().any(|edge| edge.top < row && row < edge.bottom);
        let piece = match (begins, ends, passes, touched) {
            (true, true, _, false) => '├',
            (true, true, _, true) => '┼',
            (true, false, _, false) => '┌',
            (true, false, _, true) => '┬',
            (false, true, _, false) => '└',
            (false, true, _, true) => '┴',
            (false, false, true, false) => '│',
            (false, false, true, true) => '┼',
            (false, false, false, false) => ' ',
            (false, false, false, true) => '─',
        };
        touched |= begins || ends;
        text.push(piece);
        text.push(if touched { '─' } else { ' ' });
    }
    text
}
