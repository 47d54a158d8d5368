//! Any column from any `k` others.
//!
//! Only the data columns that are missing are unknown, at most `m` of them. With as many parity columns,
//! a small system of equations says how each parity column counts; the data columns follow from that.

use super::PARITY_MAX;
use super::combine::{combine, xor};
use super::field::{coefficient, inverse, multiply};
use crate::limits::COLUMNS_MAX;

const DATA_MAX: usize = COLUMNS_MAX as usize;

/// The coefficient of each data column in each parity column.
const COEFFICIENTS: [[u8; DATA_MAX]; PARITY_MAX] = {
    let mut table = [[0; DATA_MAX]; PARITY_MAX];
    let mut parity = 0;
    while parity < PARITY_MAX {
        let mut column = 0;
        while column < DATA_MAX {
            table[parity][column] = coefficient(parity, column);
            column += 1;
        }
        parity += 1;
    }
    table
};

/// Why a column can't be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// No layout has these numbers of columns.
    #[error("a stripe of {data} data and {parity} parity columns is not possible")]
    Shape {
        /// Data columns asked for.
        data: usize,
        /// Parity columns asked for.
        parity: usize,
    },
    /// A column that the stripe does not have.
    #[error("column {column} does not exist in a stripe of {columns} columns")]
    NoSuchColumn {
        /// The column named.
        column: usize,
        /// Columns of the stripe, parity included.
        columns: usize,
    },
    /// A column is given twice.
    #[error("column {column} was given twice")]
    Twice {
        /// The column.
        column: usize,
    },
    /// A column is not as long as the output.
    #[error("column {column} has {got} bytes, the one to rebuild {expected}")]
    Length {
        /// The column.
        column: usize,
        /// Bytes of the output.
        expected: usize,
        /// Bytes of the column.
        got: usize,
    },
    /// Too few columns are left.
    #[error("{present} columns are left of a stripe that needs {needed}: its lost columns can't be rebuilt")]
    TooFew {
        /// Columns given.
        present: usize,
        /// Columns needed (k).
        needed: usize,
    },
}

/// Writes column `wanted` to `out`, from any `k` or more of the other columns.
///
/// Columns `0..k` are data, `k..k + m` parity, as [`super::encode`] makes it; each of `present` has the
/// length of `out`. Where more than `k` are present, data columns are taken before parity, and lower
/// parity columns before higher ones; a wanted column that is present is copied.
///
/// # Errors
/// [`CodecError`]: too few columns, or arguments that describe no stripe. `out` is untouched then.
pub fn reconstruct(
    k: usize,
    m: usize,
    present: &[(usize, &[u8])],
    wanted: usize,
    out: &mut [u8],
) -> Result<(), CodecError> {
    let columns = arrange(k, m, present, wanted, out.len())?;
    if let Some(column) = columns[wanted] {
        out.copy_from_slice(column);
        return Ok(());
    }
    let (data, parity) = columns.split_at(k);
    let missing: Vec<usize> = (0..k).filter(|&column| data[column].is_none()).collect();
    let equations: Vec<usize> = (0..m).filter(|&row| parity[row].is_some()).take(missing.len()).collect();
    if equations.len() < missing.len() {
        return Err(CodecError::TooFew { present: present.len(), needed: k });
    }
    // What is wanted, as a sum of data columns: one of them, or a row of coefficients.
    let goal = |column: usize| match wanted.checked_sub(k) {
        None => u8::from(column == wanted),
        Some(row) => COEFFICIENTS[row][column],
    };
    let weights = weigh(&equations, &missing, goal);
    let weight = |index: usize| weights.get(index).copied().unwrap_or(0);
    let mut terms = Vec::with_capacity(k);
    for (column, bytes) in data.iter().enumerate().filter_map(|(column, bytes)| Some((column, (*bytes)?))) {
        let through_parity = equations.iter().enumerate().map(|(index, &row)| (weight(index), row));
        let constant = through_parity
            .fold(goal(column), |sum, (weight, row)| sum ^ multiply(weight, COEFFICIENTS[row][column]));
        terms.push((constant, bytes));
    }
    let used = equations.iter().enumerate().filter_map(|(index, &row)| Some((weight(index), parity[row]?)));
    terms.extend(used);
    add_up(terms, out);
    Ok(())
}

/// Sorts the columns by number, and checks everything but whether they are enough.
fn arrange<'a>(
    k: usize,
    m: usize,
    present: &[(usize, &'a [u8])],
    wanted: usize,
    len: usize,
) -> Result<Vec<Option<&'a [u8]>>, CodecError> {
    if !(1..=DATA_MAX).contains(&k) || !(1..=PARITY_MAX).contains(&m) {
        return Err(CodecError::Shape { data: k, parity: m });
    }
    let mut columns = vec![None; k + m];
    if wanted >= k + m {
        return Err(CodecError::NoSuchColumn { column: wanted, columns: k + m });
    }
    for &(column, bytes) in present {
        let place = columns.get_mut(column).ok_or(CodecError::NoSuchColumn { column, columns: k + m })?;
        if bytes.len() != len {
            return Err(CodecError::Length { column, expected: len, got: bytes.len() });
        }
        if place.replace(bytes).is_some() {
            return Err(CodecError::Twice { column });
        }
    }
    Ok(columns)
}

/// How much each parity column (`rows`) counts, so that the `missing` data columns together count as `goal`
/// says: Gauss-Jordan elimination on the equations, one for each missing column.
///
/// There is always a pivot in place: every square piece of the coefficients is regular, whichever
/// rows and columns it is made of, and so are its leading pieces.
fn weigh(rows: &[usize], missing: &[usize], goal: impl Fn(usize) -> u8) -> Vec<u8> {
    let n = missing.len();
    let equation = |&column: &usize| {
        let mut terms: Vec<u8> = rows.iter().map(|&row| COEFFICIENTS[row][column]).collect();
        terms.push(goal(column));
        terms
    };
    let mut system: Vec<Vec<u8>> = missing.iter().map(equation).collect();
    for pivot in 0..n {
        let scale = inverse(system[pivot][pivot]);
        system[pivot].iter_mut().for_each(|term| *term = multiply(*term, scale));
        let pivot_row = system[pivot].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|&(index, _)| index != pivot) {
            let factor = row[pivot];
            row.iter_mut().zip(&pivot_row).for_each(|(term, &above)| *term ^= multiply(factor, above));
        }
    }
    system.iter().map(|row| row[n]).collect()
}

/// Writes the sum of the terms to `out`: by plain XOR if all constants are 1, as with a single parity.
fn add_up(mut terms: Vec<(u8, &[u8])>, out: &mut [u8]) {
    terms.retain(|&(constant, _)| constant != 0);
    if terms.iter().all(|&(constant, _)| constant == 1) {
        let columns: Vec<&[u8]> = terms.into_iter().map(|(_, column)| column).collect();
        xor(&columns, out);
    } else {
        combine(&terms, out);
    }
}
