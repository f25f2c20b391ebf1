//! Tables for people.

use serde_json::Value;

use crate::printable;

/// The most columns of one cell.
const WIDEST: usize = 72;

/// A table: a row of titles, and rows of cells, which may be any text.
#[derive(Debug)]
pub(crate) struct Table {
    /// By column, whether it has numbers: they stand at the right.
    numbers: Vec<bool>,
    /// The titles, and then the others.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Titles that begin with `#` are of numbers.
    pub(crate) fn new<const N: usize>(titles: [&'static str; N]) -> Self {
        let numbers = titles.map(|title| title.starts_with('#')).into();
        let titles = titles.map(|title| title.trim_start_matches('#').to_owned());
        let rows = vec![titles.into()];
        Self { numbers, rows }
    }

    /// A row of as many cells as there are titles.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| printable::line(&cell, WIDEST));
        self.rows.push(cells.into());
    }

    /// A list of objects, whose names are the titles.
    pub(crate) fn json(&self) -> Value {
        let object = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.rows[0]).map(|(cell, title)| {
                let number = cell.parse::<u64>().map(Value::from);
                let cell = number.unwrap_or_else(|_| cell.as_str().into());
                (title.replace(' ', "_"), cell)
            });
            Value::Object(cells.collect())
        };
        self.rows.iter().skip(1).map(object).collect()
    }

    /// A line for each row.
    pub(crate) fn text(&self) -> String {
        let mut widths = vec![0; self.numbers.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = printable::columns_of(cell).max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let fill = " ".repeat(widths[column] - printable::columns_of(cell));
                line += &match self.numbers[column] {
                    true => format!("{fill}{cell}  "),
                    false => format!("{cell}{fill}  "),
                };
            }
            text += &format!("{}\n", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other_whatever_is_in_them() {
        let mut table = Table::new(["rule", "#left", "why"]);
        table.row(["api".into(), "12".into(), "quota".into()]);
        table.row(["日本\n".into(), "5".into(), String::new()]);
        assert_eq!(
            table.text(),
            "rule    left  why\napi       12  quota\n日本\\n     5\n"
        );
    }
}
