//! Rectangles of text that are put beside, above and inside each other.

/// Lines of equal width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    lines: Vec<String>,
    width: usize,
}

/// Width of a text on the terminal: every character used here is one cell wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn padded(text: &str, to: usize) -> String {
    let mut line = text.to_string();
    line.extend(std::iter::repeat_n(' ', to.saturating_sub(width(text))));
    line
}

impl Block {
    /// Lines, padded to the longest.
    pub fn new(lines: &[String]) -> Self {
        let widest = lines.iter().map(|line| width(line)).max().unwrap_or(0);
        Self {
            lines: lines.iter().map(|line| padded(line, widest)).collect(),
            width: widest,
        }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.lines.len()
    }

    /// Side by side with a gap, aligned at the top.
    pub fn beside(blocks: &[Self], gap: usize) -> Self {
        let height = blocks.iter().map(Self::height).max().unwrap_or(0);
        let gap = " ".repeat(gap);
        let lines: Vec<String> = (0..height)
            .map(|row| {
                let cells: Vec<String> = blocks
                    .iter()
                    .map(|block| padded(block.lines.get(row).map_or("", |l| l), block.width))
                    .collect();
                cells.join(&gap)
            })
            .collect();
        Self::new(&lines)
    }

    /// One above the other.
    pub fn above(blocks: &[Self]) -> Self {
        let lines: Vec<String> = blocks.iter().flat_map(|b| b.lines.clone()).collect();
        Self::new(&lines)
    }

    /// Side by side as far as they fit into `limit`, then on the next row.
    pub fn flow(blocks: &[Self], gap: usize, limit: usize) -> Self {
        let mut rows: Vec<Vec<Self>> = Vec::new();
        let mut used = 0;
        for block in blocks {
            let needed = block.width + gap;
            match rows.last_mut() {
                Some(row) if used + needed <= limit => {
                    row.push(block.clone());
                    used += needed;
                }
                _ => {
                    rows.push(vec![block.clone()]);
                    used = block.width;
                }
            }
        }
        let rows: Vec<Self> = rows.iter().map(|row| Self::beside(row, gap)).collect();
        Self::above(&rows)
    }

    /// A frame with a title in its upper edge.
    pub fn framed(&self, title: &str) -> Self {
        let inner = self.width.max(width(title));
        let top = format!("┌ {title} {}┐", "─".repeat(inner - width(title)));
        let mut lines = vec![top];
        for line in &self.lines {
            lines.push(format!("│ {} │", padded(line, inner)));
        }
        lines.push(format!("└{}┘", "─".repeat(inner + 2)));
        Self::new(&lines)
    }

    /// The lines without blanks at their ends.
    pub fn into_lines(self) -> Vec<String> {
        self.lines
            .iter()
            .map(|line| line.trim_end().to_string())
            .collect()
    }
}
