//! Documents in a file, or in all files of a folder.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

use crate::{
    assembly::Part, bindings::Bindings, document_error::DocumentError, format::Format,
    rule_document::RuleDocument,
};

/// What was read: the texts with their names.
#[derive(Debug)]
pub(crate) struct Texts(Vec<(String, Format, String)>);

impl Texts {
    pub(crate) fn of_text(text: &str, format: Format) -> Self {
        Self(vec![(format!("<{format}>"), format, text.to_owned())])
    }

    /// Reads a file, or the files of a folder that are documents, in the order of their names.
    pub(crate) fn read(path: &Path) -> Result<Self, DocumentError> {
        let shown = path.display().to_string();
        let unreadable = |wrong: std::io::Error| {
            DocumentError::of_whole(&shown, format!("the rules cannot be read: {wrong}"))
        };
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            let Some(format) = Format::of_path(path) else {
                let message = "its name does not say the format; call it .toml, .yaml or .json";
                return Err(DocumentError::of_whole(&shown, message));
            };
            return Ok(Self(vec![read(path, format)?]));
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
        if paths.is_empty() {
            let message = "the folder has no document; add one called .toml, .yaml or .json";
            return Err(DocumentError::of_whole(&shown, message));
        }
        let formats = paths.iter().filter_map(|path| Format::of_path(path));
        let texts = paths
            .iter()
            .zip(formats)
            .map(|(path, format)| read(path, format));
        Ok(Self(texts.collect::<Result<_, _>>()?))
    }

    pub(crate) fn parse(&self, bindings: &Bindings) -> Result<RuleDocument, DocumentError> {
        let parts = self.0.iter().map(|(origin, format, text)| Part {
            origin,
            text,
            format: *format,
        });
        RuleDocument::of_parts(&parts.collect::<Vec<_>>(), bindings)
    }

    /// Equal for equal contents: times of files are not looked at, because they may stand still.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

fn read(path: &Path, format: Format) -> Result<(String, Format, String), DocumentError> {
    let shown = path.display().to_string();
    let bytes = fs::read(path).map_err(|wrong| {
        DocumentError::of_whole(&shown, format!("the rules cannot be read: {wrong}"))
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok((shown, format, text)),
        Err(wrong) => {
            let at = wrong.utf8_error().valid_up_to();
            let line = 1 + wrong.as_bytes()[..at]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            let message = format!("line {line} is not UTF-8; save the file as UTF-8");
            Err(DocumentError::of_whole(&shown, message))
        }
    }
}
