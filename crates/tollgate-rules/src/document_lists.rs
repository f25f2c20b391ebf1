//! Lists whose files a document names: `lists.partners = { file = "partners.txt" }`.

use std::{path::Path, sync::Arc};

use tollgate::key_list::KeyList;

use crate::{
    bindings::{Bindings, hashed_list},
    list_file::ListFile,
    node::{Name, Node, Value},
    reader::Reader,
};

/// Reads a list, whose file is named relative to `folder`.
pub(crate) fn read(
    reader: Reader<'_>,
    name: &Name,
    node: &Node,
    folder: Option<&Path>,
    bindings: &Bindings,
) -> Option<Arc<ListFile>> {
    if !matches!(node.value, Value::Table(_)) {
        let file = reader.example("file = \"partners.txt\"");
        reader.expected(node, &format!("a list as {{ {file} }}"));
        return None;
    }
    let fields = reader.fields(node, "a list", "list")?;
    let file = fields.required("file", "\"partners.txt\"");
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
