//! Columns that line up: the first and the last ones to the left, figures to the right.

use std::fmt;

/// A table under construction.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(header: Vec<String>) -> Table {
        Table { header, rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are columns.
    pub(crate) fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.header.len(), "one cell for each column");
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]);
        cells.chain([&self.header[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<_> = (0..self.header.len()).map(|column| self.width(column)).collect();
        // Columns whose cells hold words, not figures, read better from the left.
        let wordy = |column: usize| {
            column == 0
                || self.rows.iter().any(|row| {
                    row[column].contains(char::is_alphabetic) && row[column].contains(", ")
                })
        };
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let cell = if wordy(column) || column + 1 == row.len() {
                    format!("{cell}{pad}")
                } else {
                    format!("{pad}{cell}")
                };
                line.push_str("  ");
                line.push_str(&cell);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_line_up_on_the_right_and_wide_characters_count_once() {
        let mut table = Table::new(["target", "p50", "CPU"].map(str::to_owned).to_vec());
        table.push(["a", "10 µs", "x 1"].map(str::to_owned).to_vec());
        table.push(["longer", "1.25 ms", "y 20"].map(str::to_owned).to_vec());
        let expected = "  target      p50  CPU\n  a         10 µs  x 1\n  longer  1.25 ms  y 20\n";
        assert_eq!(table.to_string(), expected);
    }
}
