//! Reading a file, or all files of a folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    assembly::{OneText, is_schema},
    document_error::DocumentError,
    file_changes::folder,
    format::Format,
    rule_text::RuleText,
};

impl RuleText {
    /// Reads a file, or all files of a folder that are called `.toml`, `.yaml` or `.json`: once, for programs that do not follow them. It
    /// blocks.
    ///
    /// # Errors
    ///
    /// A file that cannot be read. What is wrong with the rules is an error of [`parse`](Self::parse).
    pub fn read_path(path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        read(path.as_ref())
    }
}

/// Reads a file, or the files of a folder that are documents, in the order of their names. A JSON Schema in the folder is none.
///
/// # Errors
///
/// A file that cannot be read.
pub(crate) fn read(path: &Path) -> Result<RuleText, DocumentError> {
    let unreadable = |wrong: std::io::Error| cannot_be_read(path, &wrong);
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(RuleText::of_texts(vec![read_text(path)?]));
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && path.is_file() && Format::of_path(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    let texts: Result<Vec<OneText>, _> = paths.iter().map(|path| read_text(path)).collect();
    let mut texts = texts?;
    texts.retain(|text| !is_schema(&text.text, text.format));
    if texts.is_empty() {
        let message = "the folder has no document; add one called .toml, .yaml or .json";
        return Err(DocumentError::of_whole(
            &path.display().to_string(),
            message,
        ));
    }
    Ok(RuleText::of_texts(texts))
}

fn read_text(path: &Path) -> Result<OneText, DocumentError> {
    let origin = path.display().to_string();
    let Some(format) = Format::of_path(path) else {
        let message = "its name does not say the format; call it .toml, .yaml or .json";
        return Err(DocumentError::of_whole(&origin, message));
    };
    let bytes = fs::read(path).map_err(|wrong| cannot_be_read(path, &wrong))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(OneText {
            folder: Some(folder(path)),
            ..OneText::new(origin, text, format)
        }),
        Err(wrong) => {
            let at = wrong.utf8_error().valid_up_to();
            let line = 1 + wrong.as_bytes()[..at]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            let message = format!("line {line} is not UTF-8; save the file as UTF-8");
            Err(DocumentError::of_whole(&origin, message))
        }
    }
}

fn cannot_be_read(path: &Path, wrong: &std::io::Error) -> DocumentError {
    let message = format!("the rules cannot be read: {wrong}");
    DocumentError::of_whole(&path.display().to_string(), message)
}
