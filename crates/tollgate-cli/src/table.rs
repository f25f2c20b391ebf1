//! Tables for people.

use serde_json::Value;

use crate::printable;

/// The most columns of one cell.
const WIDEST: usize = 72;

/// A table: a row of titles, and rows of cells, which may be any text.
#[derive(Debug)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Numbers stand at the right.
    numbers: Vec<bool>,
}

impl Table {
    /// Titles that begin with `#` are of numbers.
    pub(crate) fn new<const N: usize>(titles: [&'static str; N]) -> Self {
        Self {
            numbers: titles.iter().map(|title| title.starts_with('#')).collect(),
            titles: titles
                .iter()
                .map(|title| title.trim_start_matches('#'))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// A row of as many cells as there are titles.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.map(|cell| printable::line(&cell, WIDEST)).into());
    }

    /// A list of objects, whose names are the titles.
    pub(crate) fn json(&self) -> Value {
        let object = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.titles).map(|(cell, title)| {
                let number = cell.parse::<u64>().map(Value::from);
                let cell = number.unwrap_or_else(|_| cell.as_str().into());
                (title.replace(' ', "_"), cell)
            });
            Value::Object(cells.collect())
        };
        self.rows.iter().map(object).collect()
    }

    /// A line for the titles, and one for each row.
    pub(crate) fn text(&self) -> String {
        let titles = self
            .titles
            .iter()
            .map(|title| (*title).to_owned())
            .collect();
        let rows: Vec<&Vec<String>> = std::iter::once(&titles).chain(&self.rows).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| printable::columns_of(cell))
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let fill = " ".repeat(widths[column] - printable::columns_of(cell));
                let (before, after) = match self.numbers[column] {
                    true => (&*fill, ""),
                    false => ("", &*fill),
                };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
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
