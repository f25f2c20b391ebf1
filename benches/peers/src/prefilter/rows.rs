//! All rows of the group.

use std::error::Error;

use crate::{
    prefilter::{load, local},
    table::Row,
};

pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> Result<(), Box<dyn Error>> {
    local::rows(rounds, print)?;
    load::rows(rounds, print)
}
