//! A topology as SVG.

use maud::{Markup, html};

use super::{
    Cores, cores,
    marks::{self, Mark},
    parts, shape,
};
use crate::topology::{CpuList, Level, Topology, size::Size};

const PAD: u32 = 10;
const TITLE: u32 = 18;
const CELL: u32 = 30;
const ROW: u32 = 16;
/// Cores per row within a cache.
const PER_ROW: usize = 8;
/// Widest drawing before nodes go on the next row.
const WIDEST: u32 = 1240;
/// Fills of the sets, by the order of their names; readable on a projector and
/// apart for the colour-blind (Okabe and Ito's palette, lightened).
const FILLS: [&str; 6] = [
    "#a8d5f2", "#f7cf8b", "#b5e0c0", "#f2b8a8", "#d9c3ea", "#f5eea0",
];

/// A rectangle with everything in it, placed later.
struct Piece {
    width: u32,
    height: u32,
    draw: Box<dyn Fn(u32, u32) -> Markup>,
}

/// Draws a topology as one SVG document.
pub fn svg(topology: &Topology) -> String {
    let marks = marks::assign(topology);
    let nodes: Vec<Piece> = (0..topology.nodes.len())
        .map(|index| node(topology, &marks, index))
        .collect();
    let nodes = flow(nodes, WIDEST);
    let notes = notes(topology, &marks);
    let line = 20;
    let title = format!(
        "{}: {} vCPUs, {}",
        topology.name,
        topology.vcpus(),
        Size(topology.memory())
    );
    let longest = notes.iter().map(|(_, text)| text.chars().count()).max();
    let text_width = u32::try_from(longest.unwrap_or(0)).unwrap_or(u32::MAX / 8) * 8 + 60;
    let width = nodes.width.max(text_width).max(420) + 2 * PAD;
    let top = 60;
    let count = u32::try_from(notes.len()).expect("few notes");
    let height = top + nodes.height + PAD + count * line + 2 * PAD;
    let below = top + nodes.height + PAD + line;
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}"))
            font-family="ui-sans-serif, Helvetica, Arial, sans-serif" font-size="12" {
            rect width="100%" height="100%" fill="white" {}
            text x=(PAD) y="24" font-size="18" font-weight="bold" { (title) }
            text x=(PAD) y="44" fill="#555" { (shape(topology)) }
            ((nodes.draw)(PAD, top))
            @for (index, (fill, text)) in (0..).zip(&notes) {
                @if let Some(fill) = fill {
                    rect x=(PAD) y=(below + index * line - 11) width="14" height="14"
                        fill=(fill) stroke="#555" {}
                }
                text x=(PAD + if fill.is_some() { 22 } else { 0 }) y=(below + index * line)
                    font-family="ui-monospace, Menlo, Consolas, monospace" { (text) }
            }
        }
    };
    document.into_string()
}

fn node(topology: &Topology, marks: &[Mark], index: usize) -> Piece {
    let node = &topology.nodes[index];
    let memory = match node.memory {
        0 => "no memory".to_string(),
        bytes => Size(bytes).to_string(),
    };
    let inside = if node.cpus.is_empty() {
        label("no CPUs".into())
    } else {
        let sockets = parts(topology, Level::Socket, &node.cpus)
            .into_iter()
            .map(|(index, cpus, whole)| socket(topology, marks, index, &cpus, whole))
            .collect();
        flow(sockets, WIDEST - 4 * PAD)
    };
    framed(inside, format!("node {index} · {memory}"), "#eef3f8")
}

fn socket(topology: &Topology, marks: &[Mark], index: u32, cpus: &CpuList, whole: bool) -> Piece {
    let title = super::title(topology, &format!("socket {index}"), Level::Socket, whole);
    if topology.cpus.dies == 1 {
        return framed(die(topology, marks, cpus), title, "#ffffff");
    }
    let dies = parts(topology, Level::Die, cpus)
        .into_iter()
        .map(|(index, cpus, whole)| {
            let name = format!("die {}", index % topology.cpus.dies);
            let title = super::title(topology, &name, Level::Die, whole);
            framed(die(topology, marks, &cpus), title, "#ffffff")
        })
        .collect();
    framed(flow(dies, WIDEST - 8 * PAD), title, "#f7f7f7")
}

fn die(topology: &Topology, marks: &[Mark], cpus: &CpuList) -> Piece {
    if topology.cpus.clusters == 1 {
        return all_cores(topology, marks, cpus);
    }
    let clusters = parts(topology, Level::Cluster, cpus)
        .into_iter()
        .map(|(index, cpus, whole)| {
            let name = format!("cluster {}", index % topology.cpus.clusters);
            let title = super::title(topology, &name, Level::Cluster, whole);
            framed(all_cores(topology, marks, &cpus), title, "#fbfbfb")
        })
        .collect();
    flow(clusters, WIDEST - 12 * PAD)
}

fn all_cores(topology: &Topology, marks: &[Mark], cpus: &CpuList) -> Piece {
    let pieces: Vec<Piece> = cores(topology, cpus, marks)
        .iter()
        .map(|core| cell(core, marks))
        .collect();
    let widest = pieces.iter().map(|piece| piece.width).max().unwrap_or(0);
    let row = u32::try_from(PER_ROW).expect("a small number") * (widest + PAD / 2);
    flow_with(pieces, row, PAD / 2)
}

/// A core, or a run of equal cores.
fn cell(core: &Cores, marks: &[Mark]) -> Piece {
    let mut lines: Vec<String> = if core.count == 1 {
        core.cpus.iter().map(|cpu| cpu.to_string()).collect()
    } else {
        let each = match core.threads {
            1 => String::new(),
            n => format!(" × {n}"),
        };
        vec![core.cpus.to_string(), format!("{} cores{each}", core.count)]
    };
    let ranked = core.ranking.is_some();
    lines.extend(core.ranking.map(|ranking| ranking.to_string()));
    let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(1);
    let width = (u32::try_from(longest).expect("short lines") * 8 + 8).max(CELL);
    let count = u32::try_from(lines.len()).expect("few lines");
    let height = count * ROW + 6;
    let fills: Vec<&'static str> = marks
        .iter()
        .enumerate()
        .filter(|(_, mark)| !mark.cpus.and(&core.cpus).is_empty())
        .map(|(index, _)| FILLS[index % FILLS.len()])
        .collect();
    let stripes = u32::try_from(fills.len()).expect("few sets").max(1);
    Piece {
        width,
        height,
        draw: Box::new(move |x, y| {
            html! {
                rect x=(x) y=(y) width=(width) height=(height) rx="3" fill="#ffffff" {}
                @for (index, fill) in (0..).zip(&fills) {
                    rect x=(x + width * index / stripes) y=(y) width=(width / stripes)
                        height=(height) fill=(fill) {}
                }
                rect x=(x) y=(y) width=(width) height=(height) rx="3" fill="none" stroke="#555" {}
                @for (index, line) in (0..).zip(&lines) {
                    text x=(x + width / 2) y=(y + 15 + index * ROW) text-anchor="middle"
                        font-weight=(if ranked && index + 1 == count { "bold" } else { "normal" }) {
                        (line)
                    }
                }
            }
        }),
    }
}

fn label(text: String) -> Piece {
    Piece {
        width: u32::try_from(text.chars().count()).expect("a short text") * 8,
        height: ROW,
        draw: Box::new(move |x, y| html! { text x=(x) y=(y + 12) fill="#555" { (text) } }),
    }
}

fn framed(inside: Piece, title: String, fill: &'static str) -> Piece {
    let title_width = u32::try_from(title.chars().count()).expect("a short title") * 7;
    let width = inside.width.max(title_width) + 2 * PAD;
    let height = inside.height + TITLE + 2 * PAD;
    Piece {
        width,
        height,
        draw: Box::new(move |x, y| {
            html! {
                rect x=(x) y=(y) width=(width) height=(height) rx="5" fill=(fill) stroke="#888" {}
                text x=(x + PAD) y=(y + TITLE) fill="#333" { (title) }
                ((inside.draw)(x + PAD, y + TITLE + PAD))
            }
        }),
    }
}

fn flow(pieces: Vec<Piece>, limit: u32) -> Piece {
    flow_with(pieces, limit, PAD)
}

/// Side by side as far as they fit, then on the next row.
fn flow_with(pieces: Vec<Piece>, limit: u32, gap: u32) -> Piece {
    let (mut x, mut y, mut row, mut width) = (0, 0, 0, 0);
    let mut placed = Vec::new();
    for piece in pieces {
        if x > 0 && x + piece.width > limit {
            (x, y, row) = (0, y + row + gap, 0);
        }
        row = row.max(piece.height);
        width = width.max(x + piece.width);
        let here = (x, y);
        x += piece.width + gap;
        placed.push((here, piece));
    }
    Piece {
        width,
        height: y + row,
        draw: Box::new(move |left, top| {
            html! {
                @for ((x, y), piece) in &placed { ((piece.draw)(left + x, top + y)) }
            }
        }),
    }
}

/// Lines below the drawing, with the fill they explain.
fn notes(topology: &Topology, marks: &[Mark]) -> Vec<(Option<&'static str>, String)> {
    let mut notes: Vec<(Option<&'static str>, String)> = marks
        .iter()
        .enumerate()
        .map(|(index, mark)| {
            let fill = FILLS[index % FILLS.len()];
            (Some(fill), format!("{}: {}", mark.name, mark.cpus))
        })
        .collect();
    if topology.preferred_cores.is_some() {
        notes.push((None, "bold: ranking of the core".into()));
    }
    if let Some(matrix) = &topology.distances {
        for (from, row) in matrix.iter().enumerate().filter(|_| matrix.len() > 1) {
            let row: Vec<String> = row.iter().map(u8::to_string).collect();
            notes.push((
                None,
                format!("distances from node {from}: {}", row.join(" ")),
            ));
        }
    }
    if !topology.cmdline.is_empty() {
        notes.push((None, topology.cmdline.clone()));
    }
    notes
}
