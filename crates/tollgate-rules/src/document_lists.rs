//! Lists whose files a document names: `lists.partners = { file = "partners.txt" }`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::runtime::Handle;
use tollgate::key_list::KeyList;

use crate::{
    bindings::{Bindings, hashed_list},
    list_file::ListFile,
    node::{Name, Node},
    reader::Reader,
};

/// The files of lists that documents of a service name. A document that is read anew has the lists of the one before, with what is in
/// force of them.
#[derive(Debug, Default)]
pub(crate) struct ListFiles {
    /// Where files are followed. `None`: they are read once.
    runtime: Option<Handle>,
    open: Mutex<HashMap<ListKey, Weak<ListFile>>>,
}

/// The name of a list, its file, and whether that has hashes.
type ListKey = (String, PathBuf, bool);

impl ListFiles {
    /// Those of a service, which follows them if it has a runtime.
    pub(crate) fn of_service() -> Arc<Self> {
        let runtime = Handle::try_current().ok();
        let open = Mutex::default();
        Arc::new(Self { runtime, open })
    }

    fn open(&self, key: ListKey, list: &KeyList) -> Result<Arc<ListFile>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, file| file.strong_count() > 0);
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let file = Arc::new(ListFile::open(list, &key.1, self.runtime.as_ref())?);
        open.insert(key, Arc::downgrade(&file));
        Ok(file)
    }
}

/// Reads a list, whose file is named relative to `folder`.
pub(crate) fn read(
    reader: Reader<'_>,
    name: &Name,
    node: &Node,
    folder: Option<&Path>,
    bindings: &Bindings,
) -> Option<Arc<ListFile>> {
    let fields = reader.fields(node, "a list", "list")?;
    let file = fields.required(reader, "a list", "file", "\"partners.txt\"");
    let path = file.and_then(|file| reader.text(file, "the name of a file as \"partners.txt\""));
    let is_hashed = fields
        .read("hashed", |node| reader.boolean(node))
        .unwrap_or(false);
    let (file, path) = (file?, path?);
    let wrong = |message: &str| {
        reader.wrong(&file.span, message);
        None
    };
    if bindings.is_push {
        return wrong(
            "rules in Redis cannot name a file, which their processes do not have; bind the list in code, by Bindings::list, or keep \
             the rules in a file",
        );
    }
    let Some(folder) = folder else {
        return wrong(
            "only a file names the file of a list; bind the list in code, by Bindings::list",
        );
    };
    if bindings.lists.contains_key(&name.text) {
        let message = format!(
            "there is a list {:?} already, in another text or in the code of the service; give each a name of its own",
            name.text
        );
        reader.wrong(&name.span, message);
        return None;
    }
    let list = match (is_hashed, &bindings.hash_key) {
        (true, None) => {
            return wrong(
                "keys are found by their hash with the secret that made it, and there is none; write the keys themselves, or give the \
                 secret by Bindings::secret",
            );
        }
        (true, Some(hash_key)) => hashed_list(&name.text, Arc::clone(hash_key)),
        _ => KeyList::new(&*name.text),
    };
    let key = (name.text.clone(), folder.join(path.value), is_hashed);
    match bindings.list_files.open(key, &list) {
        Ok(file) => Some(file),
        Err(message) => wrong(&format!("{:?}: {message}", path.value)),
    }
}
