//! The look of tables: a line under the header, and numbers to the right.

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};

/// An empty table with a header.
pub fn new(header: Vec<Cell>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for part in [
        TableComponent::HeaderLines,
        TableComponent::MiddleHeaderIntersections,
    ] {
        table.set_style(part, '─');
    }
    table.set_header(header);
    table
}

/// A cell that holds a number.
pub fn number(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// 1234567 as 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn groups_digits_by_three() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1234), "1,234");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
