//! Reading a file with the files that it includes, or all files of a folder.

use std::{
    collections::HashSet,
    fs,
    ops::Range,
    path::{Component, Path, PathBuf},
};

use crate::{
    assembly::{OneText, includes, is_schema},
    document_error::DocumentError,
    format::Format,
    problems::Problem,
    rule_text::RuleText,
};

impl RuleText {
    /// Reads a file with the files that it includes, or all files of a folder that are called `.toml`, `.yaml` or `.json`: once,
    /// for programs that do not follow them. It blocks.
    ///
    /// # Errors
    ///
    /// A file that cannot be read. What is wrong with the rules is an error of [`parse`](Self::parse).
    pub fn read_path(path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        read(path.as_ref())
    }
}

/// Reads a file and what it includes, or the files of a folder that are documents, in the order of their names. A JSON Schema
/// in the folder is none.
///
/// # Errors
///
/// A file that cannot be read. What is wrong with an `include` is kept with the text.
pub(crate) fn read(path: &Path) -> Result<RuleText, DocumentError> {
    let unreadable = |wrong: std::io::Error| cannot_be_read(path, &wrong);
    let mut reading = FileReader::default();
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        reading.read(path)?;
        return Ok(RuleText::of_texts(reading.texts));
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
    for path in &paths {
        reading.read(path)?;
    }
    let is_document = |text: &OneText| !is_schema(&text.text, text.format);
    reading.texts.retain(is_document);
    if reading.texts.is_empty() {
        let message = "the folder has no document; add one called .toml, .yaml or .json";
        return Err(DocumentError::of_whole(
            &path.display().to_string(),
            message,
        ));
    }
    Ok(RuleText::of_texts(reading.texts))
}

/// The files that were read, and those that are being read.
#[derive(Default)]
struct FileReader {
    texts: Vec<OneText>,
    /// Each is read once, although several may include it.
    read: HashSet<PathBuf>,
    /// A file, the one that it includes, and so on.
    chain: Vec<PathBuf>,
}

impl FileReader {
    /// Reads a file that was not read yet, and what it includes.
    fn read(&mut self, path: &Path) -> Result<(), DocumentError> {
        let real = path
            .canonicalize()
            .map_err(|wrong| cannot_be_read(path, &wrong))?;
        if !self.read.insert(real.clone()) {
            return Ok(());
        }
        let text = read_text(path)?;
        let names = includes(&text.text, text.format);
        let index = self.texts.len();
        self.texts.push(text);
        self.chain.push(real);
        for (span, name) in names {
            if let Err(message) = self.include(path, &name) {
                let span: Range<usize> = span;
                self.texts[index].problems.push(Problem { span, message });
            }
        }
        self.chain.pop();
        Ok(())
    }

    /// Reads a file that another one includes.
    fn include(&mut self, by: &Path, name: &str) -> Result<(), String> {
        let folder = folder(by);
        let mut components = Path::new(name).components();
        let is_name = matches!(
            (components.next(), components.next()),
            (Some(Component::Normal(_)), None)
        );
        let outside = || {
            format!(
                "{name:?} is outside of the file's folder; an included file lies in the same folder, as \"billing.toml\""
            )
        };
        if !is_name {
            return Err(outside());
        }
        let path = folder.join(name);
        let unreadable = |wrong: std::io::Error| format!("{name:?} cannot be read: {wrong}");
        let real = path.canonicalize().map_err(unreadable)?;
        // A link may lead elsewhere.
        if !real.starts_with(folder.canonicalize().map_err(unreadable)?) {
            return Err(outside());
        }
        if let Some(first) = self.chain.iter().position(|open| *open == real) {
            let circle = self.chain[first..].iter().chain([&real]);
            let names = circle.map(|path| {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            });
            return Err(format!(
                "these files include each other: {}; remove one of the includes",
                names.collect::<Vec<_>>().join(", ")
            ));
        }
        self.read(&path).map_err(|wrong| {
            let of_file = wrong.mistakes().first();
            let message = of_file.map_or("it cannot be read", |mistake| &*mistake.message);
            format!("{name:?}: {message}")
        })
    }
}

/// Where a file lies.
pub(crate) fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
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
