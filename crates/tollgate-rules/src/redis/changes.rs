//! Changes of the rules in Redis: of the document, which is pushed as one text without the keys of clients, and of what operators set
//! beside it.

use crate::{
    audit::{AuditKind, AuditRecord, Author},
    bindings::Bindings,
    document_changes::document_changes,
    document_error::DocumentError,
    format::Format,
    node::{Node, Value, table},
    operator_entries::{NamedBy, OperatorEntries, OperatorEntry, Pushed},
    redis::{
        push_error::{PushError, PushErrorKind},
        redis_rules::{AUDIT, RedisRules},
        redis_source::{Report, Stored, StoredRules},
    },
    rule_document::{FittingEntry, RuleDocument},
    rule_text::RuleText,
    schema::table_of,
    signing_key::StoredDocument,
    term::time,
};

const PUSH: &str = include_str!("../../lua/push.lua");
/// How often a change is tried again while others change something.
const ATTEMPTS: usize = 10;

/// A document as it is stored, and what it says.
type WithText = (String, RuleDocument);

/// What a change is made to.
struct Seen {
    stored: Stored,
    /// As it was pushed. `None`: there is none. Or why the bindings cannot read it; if it is not signed with the secret, or another
    /// version has stored what operators set, nothing that stands beside it is known.
    before: Result<Option<WithText>, DocumentError>,
    pushed: Option<Pushed>,
    set: OperatorEntries,
}

impl RedisRules {
    /// Puts a document in force in all processes, and returns its revision. If it is stored already, nothing changes: several
    /// processes may push one file.
    ///
    /// It replaces the pushed document as a whole. What operators set stays in force: overrides and switches of rules that the
    /// document does not have, or counts by something else, wait until one has them; [`stored`](Self::stored) says which.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, by these bindings; they have to be those of the service. What is stored is not signed with the secret.
    /// Somebody else pushed at the same time. Redis is unavailable.
    pub async fn push(
        &self,
        text: RuleText,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        self.push_after(None, text, bindings, author, false).await
    }

    /// [`push`](Self::push) or [`replace_all`](Self::replace_all), which is refused if somebody has pushed after the revision that was
    /// `seen`.
    #[doc(hidden)]
    pub async fn push_after(
        &self,
        seen: Option<u64>,
        text: RuleText,
        bindings: &Bindings,
        author: &Author,
        is_alone: bool,
    ) -> Result<u64, PushError> {
        let mut last = seen;
        let push = async {
            let text = pushed_text(&self.hashed(text.for_push()), bindings)?;
            // As processes will read it: with hashes, by which clients are compared with those before.
            let document = self.stored_text(&text).parse(bindings)?;
            let push = |seen: &Seen| {
                let mut set = seen.set.clone();
                if is_alone {
                    set.all.clear();
                } else if let (Err(unknown), None) = (&seen.before, &seen.pushed) {
                    return Err(unknown.clone().into());
                }
                let is_same = matches!(&seen.before, Ok(Some((before, _))) if *before == text);
                let highest = seen.stored.highest;
                let is_behind = seen.stored.revision < highest;
                if is_same && !is_behind && set.all.len() == seen.set.all.len() {
                    return Ok(None);
                }
                let revision = seen.pushed.as_ref().map_or(0, |pushed| pushed.revision);
                if revision > *last.get_or_insert(revision) {
                    let message = format!(
                        "somebody else has pushed revision {revision} in the meantime; look at it, and push again"
                    );
                    return Err(PushError::new(PushErrorKind::Conflict, message));
                }
                let lost = match is_behind {
                    true => Some(highest),
                    // It is said until an operator has seen to it.
                    false => seen.pushed.as_ref().and_then(|pushed| pushed.lost),
                };
                let pushed = Pushed {
                    revision: highest + 1,
                    by: author.clone(),
                    at: seen.stored.now,
                    lost: lost.filter(|_| !is_alone),
                };
                set.pushed = Some(pushed).filter(|it| it.lost.is_some() || !set.all.is_empty());
                Ok(Some(((text.clone(), document.clone()), set)))
            };
            self.change(bindings, author, push).await
        };
        self.audited(author, push).await
    }

    /// The same, and ends all that operators set. It replaces a document as well that is not signed with the secret, and what operators set
    /// with another version of tollgate.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub async fn replace_all(
        &self,
        text: RuleText,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        self.push_after(None, text, bindings, author, true).await
    }

    /// Gives clients limits of their own or switches rules, in all processes, also when another document is pushed: all in one change,
    /// or none. Returns the revision, which is the number by which the last of them is [ended](Self::end); those before it have the
    /// numbers before.
    ///
    /// # Errors
    ///
    /// One does not go with the document, or has ended already by the clock of Redis; there is no document yet. If others change
    /// something at the same time, it retries.
    pub async fn set(
        &self,
        entries: &[OperatorEntry],
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let set = |seen: &Seen, known: &RuleDocument, set: &mut OperatorEntries| {
            let (highest, now) = (seen.stored.highest, seen.stored.now);
            for (id, entry) in (highest + 1..).zip(entries) {
                let mut entry = entry.clone().set(id, author, now);
                let read = known.read_new(&entry, now)?;
                if let FittingEntry::Override(of_client) = read {
                    let form = known.rules[of_client.rule].key.form();
                    entry.hash_key(known.hash_of_client(&of_client).ok_or(NO_SECRET)?, form);
                }
                set.set(entry)?;
            }
            Ok(())
        };
        self.audited(author, self.edit(bindings, author, set)).await
    }

    /// Ends overrides and switches that operators set, by their [numbers](crate::operators::EntryStatus::id), in one change. Returns the
    /// revision.
    ///
    /// # Errors
    ///
    /// There is none with one of the numbers. Otherwise as [`set`](Self::set).
    pub async fn end(
        &self,
        ids: &[u64],
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let end = |_: &Seen, _: &RuleDocument, set: &mut OperatorEntries| set.end(ids);
        self.audited(author, self.edit(bindings, author, end)).await
    }

    /// What is stored: the pushed document, what operators set beside it, and who did. `None`: there are no rules.
    ///
    /// # Errors
    ///
    /// Redis is unavailable; the document is not signed with the secret, or the bindings cannot read it.
    pub async fn stored(&self, bindings: &Bindings) -> Result<Option<StoredRules>, PushError> {
        let seen = self.read(bindings).await?;
        let (Some((_, document)), Some(pushed)) = (seen.before?, seen.pushed) else {
            return Ok(None);
        };
        Ok(Some(StoredRules {
            revision: seen.stored.revision,
            pushed_revision: pushed.revision,
            pushed_by: pushed.by,
            pushed_at: time(pushed.at),
            lost: pushed.lost,
            document: document.beside(&seen.set),
            fleet: seen.stored.fleet,
            now: time(seen.stored.now),
        }))
    }

    /// The document that is stored, as JSON with hashes in place of keys, and its revision. `None`: there is none.
    ///
    /// # Errors
    ///
    /// Redis is unavailable, or the document is not signed with the secret.
    pub async fn document(&self) -> Result<Option<(u64, String)>, PushError> {
        let stored = self.exchange(&Report::default()).await?;
        let Some(document) = stored.document else {
            return Ok(None);
        };
        self.verify(stored.revision, &document)?;
        Ok(Some((stored.revision, document.text)))
    }

    /// Changes what operators set.
    async fn edit(
        &self,
        bindings: &Bindings,
        author: &Author,
        edit: impl Fn(&Seen, &RuleDocument, &mut OperatorEntries) -> Result<(), String>,
    ) -> Result<u64, PushError> {
        let change = |seen: &Seen| {
            let refused = |message: &str| PushError::new(PushErrorKind::Document, message);
            let before = seen.before.clone();
            let (text, document) = before
                .map_err(|wrong| refused(&wrong.to_string()))?
                .ok_or_else(|| refused("there are no rules in Redis yet; push a document first"))?;
            // With this change processes would go back to the document of that revision.
            let (revision, highest) = (seen.stored.revision, seen.stored.highest);
            if revision < highest {
                let message = format!(
                    "Redis has the rules of revision {revision}, and processes those of revision {highest}: it was restored, or has lost \
                     writes; push the document again, then set this"
                );
                return Err(PushError::new(PushErrorKind::Conflict, message));
            }
            let mut set = seen.set.clone();
            edit(seen, &document, &mut set)
                .map_err(|wrong| DocumentError::of_whole("the rules in Redis", wrong))?;
            let is_new = |entry: &OperatorEntry| entry.id > highest;
            if set.all.len() == seen.set.all.len() && !set.all.iter().any(is_new) {
                return Ok(None);
            }
            set.pushed = seen.pushed.clone();
            set.pushed.iter_mut().for_each(|pushed| pushed.lost = None);
            Ok(Some(((text, document), set)))
        };
        self.change(bindings, author, change).await
    }

    /// Records what was refused because it is wrong.
    async fn audited(
        &self,
        author: &Author,
        change: impl Future<Output = Result<u64, PushError>>,
    ) -> Result<u64, PushError> {
        let changed = change.await;
        if let Err(wrong) = &changed
            && !wrong.mistakes.is_empty()
        {
            let lines = wrong.mistakes.clone();
            let record = AuditRecord::new(AuditKind::Rejected, author.clone(), lines);
            // Who asks for the change is told anyway.
            let _ = self.add_record(&record).await;
        }
        changed
    }

    /// Stores what `change` makes of what is stored, a document and what operators set beside it, and anew where others change something
    /// at the same time. `None`: nothing is to change.
    async fn change(
        &self,
        bindings: &Bindings,
        author: &Author,
        mut change: impl FnMut(&Seen) -> Result<Option<(WithText, OperatorEntries)>, PushError>,
    ) -> Result<u64, PushError> {
        for _ in 0..ATTEMPTS {
            let mut seen = self.read(bindings).await?;
            // That they ended is no part of this change.
            seen.set.drop_expired(seen.stored.now);
            let Some(((text, document), set)) = change(&seen)? else {
                return Ok(seen.stored.revision);
            };
            let stored = self.store(&seen, text, document.beside(&set), &set, author);
            if let Some(revision) = stored.await? {
                return Ok(revision);
            }
        }
        let message = "others change the rules all the time; try again";
        Err(PushError::new(PushErrorKind::Conflict, message))
    }

    /// What is stored, and the number that the next change comes after.
    async fn read(&self, bindings: &Bindings) -> Result<Seen, PushError> {
        let mut seen = Seen {
            stored: self.exchange(&Report::default()).await?,
            before: Ok(None),
            pushed: None,
            set: OperatorEntries::default(),
        };
        let Some(document) = seen.stored.document.take() else {
            return Ok(seen);
        };
        let verified = self.verify(seen.stored.revision, &document);
        match verified.and_then(|()| self.operator_entries(&document)) {
            Ok(set) => seen.set = set,
            Err(wrong) => {
                seen.before = Err(wrong);
                return Ok(seen);
            }
        }
        seen.pushed = Some(seen.set.pushed.take().unwrap_or(Pushed {
            revision: seen.stored.revision,
            by: document.author,
            at: seen.stored.at,
            lost: None,
        }));
        let read = self.stored_text(&document.text).parse(bindings);
        // What cannot be read may be replaced.
        seen.before = read.map(|read| Some((document.text, read)));
        Ok(seen)
    }

    /// Stores the text of a document, and what operators set beside it. `after` is both together. `None`: something else is stored by now
    /// than what was seen.
    async fn store(
        &self,
        seen: &Seen,
        text: String,
        after: RuleDocument,
        set: &OperatorEntries,
        author: &Author,
    ) -> Result<Option<u64>, PushError> {
        // Above the numbers of all that is set.
        let numbers = set.all.iter().map(|entry| entry.id);
        let revision = numbers.fold(seen.stored.highest + 1, u64::max);
        let document = StoredDocument {
            text,
            beside: set.text(),
            author: author.clone(),
            signature: String::new(),
        };
        let (key, namespace) = (&self.shared.key, &self.shared.namespace);
        let signature = key.sign(namespace, revision, &document).to_string();
        let before = match &seen.before {
            Ok(Some((_, document))) => document.clone(),
            _ => RuleDocument::default(),
        };
        let changes = document_changes(&before.beside(&seen.set), &after).join("\n");
        let mut push = self.script(PUSH, &["", ":pushed", ":audit"]);
        push.arg(seen.stored.revision)
            .arg(revision)
            .arg(&document.text);
        push.arg(&signature).arg(author.actor());
        push.arg(author.reason()).arg(self.name(""));
        push.arg(AUDIT).arg(changes).arg(&document.beside);
        let (is_stored, stored): (bool, u64) = self.send(&push).await?;
        if is_stored {
            return Ok(Some(revision));
        }
        // The client of a cluster sends a call again whose answer was lost: then it is this document that is there already.
        let found = self.exchange(&Report::default()).await?.document;
        let is_ours = found.is_some_and(|found| found.signature == signature);
        Ok((stored == revision && is_ours).then_some(revision))
    }

    /// # Errors
    ///
    /// It is not signed with the secret.
    pub(crate) fn verify(
        &self,
        revision: u64,
        document: &StoredDocument,
    ) -> Result<(), DocumentError> {
        let (key, namespace) = (&self.shared.key, &self.shared.namespace);
        if key.has_signed(namespace, revision, document) {
            return Ok(());
        }
        let message = format!(
            "revision {revision} is not signed with the secret of this service: take the secret that all processes have, or replace \
             it and all that operators set (RedisRules::replace_all, `tollgate rules push --replace-all`), and look for who else can \
             write to Redis"
        );
        Err(DocumentError::of_whole(self.origin(), message))
    }

    /// The text of a document that was verified, with what operators set.
    pub(crate) fn rule_text(&self, document: &StoredDocument) -> Result<RuleText, DocumentError> {
        let set = self.operator_entries(document)?;
        let text = self.stored_text(&document.text);
        Ok(text.by(document.author.clone()).beside(set))
    }

    fn stored_text(&self, json: &str) -> RuleText {
        self.hashed(RuleText::named(self.origin(), json, Format::Json))
    }

    fn operator_entries(
        &self,
        document: &StoredDocument,
    ) -> Result<OperatorEntries, DocumentError> {
        let read = OperatorEntries::read(&document.beside);
        read.map_err(|wrong| DocumentError::of_whole(self.origin(), wrong))
    }
}

/// Instead of a key in clear.
const NO_SECRET: &str = "no secret hashes the keys of clients; give it by Bindings::secret";

/// The text of a document in JSON, in which clients are named by their hash.
///
/// # Errors
///
/// All that is wrong with it, or there is no secret for that.
fn pushed_text(text: &RuleText, bindings: &Bindings) -> Result<String, DocumentError> {
    let (document, trees) = text.read(bindings)?;
    let mut fields = Vec::new();
    for name in table_of("")
        .fields
        .iter()
        .filter(|name| **name != "$schema")
    {
        let of_texts = trees.iter().filter_map(|tree| tree.get(name));
        let value = of_texts
            .map(|node| node.value.clone())
            .reduce(|all, more| match (all, more) {
                (Value::List(mut all), Value::List(more)) => {
                    all.extend(more);
                    Value::List(all)
                }
                // The others are there once, or the same in each text.
                (all, _) => all,
            });
        match value {
            Some(Value::List(nodes)) if *name == "overrides" => {
                fields.push((*name, Value::List(hashed(nodes, &document)?)));
            }
            value => fields.extend(value.map(|value| (*name, value))),
        }
    }
    fields.retain(|(_, value)| match value {
        Value::List(nodes) => !nodes.is_empty(),
        Value::Table(fields) => !fields.is_empty(),
        _ => true,
    });
    Ok(table(fields).json_text())
}

/// The overrides of a document that was read, by rule.
fn hashed(mut nodes: Vec<Node>, document: &RuleDocument) -> Result<Vec<Node>, DocumentError> {
    let by_name = document.by_name();
    // As those of the document are sorted.
    nodes.sort_by_key(|node| by_name.get(node.text_of("rule")?).copied());
    for (node, entry) in nodes.iter_mut().zip(document.overrides()) {
        if let Value::Table(fields) = &mut node.value {
            let mut fields = fields.iter_mut();
            if let Some((_, key)) = fields.find(|(name, _)| name.text == "key") {
                let hash = document
                    .hash_of_client(entry)
                    .ok_or_else(|| DocumentError::of_whole("the rules", NO_SECRET))?;
                key.value = NamedBy::hash(hash).value();
            }
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use tollgate::key::KeyBuf;
    use tollgate_redis::Secret;
    use tollgate_test_servers::redis_server::RedisServer;

    use super::*;

    #[tokio::test]
    async fn what_another_version_has_stored_beside_a_document_may_be_replaced() {
        let (server, bindings, ci) = (
            RedisServer::start(&[]).await,
            Bindings::new(),
            Author::new("ci"),
        );
        let secret = Secret::from_bytes([7; 32]).expect("32 bytes");
        let redis = RedisRules::new(server.url(), "shop", &secret).expect("an address");
        let limits = || {
            let rule = "{ name = 'api', limit = '1/s', by = 'constant' }";
            RuleText::new(format!("version = 1\nrules = [{rule}]\n"), Format::Toml)
        };
        let pushed = redis.push(limits(), &bindings, &ci).await;
        assert_eq!(pushed.expect("pushed"), 1);
        let (revision, text) = redis.document().await.expect("signed").expect("pushed");
        let other = StoredDocument {
            text,
            beside: "{\"entries\":[]}".to_owned(),
            author: ci.clone(),
            signature: String::new(),
        };
        let signature = redis.shared.key.sign("shop", revision, &other).to_string();
        let rules = redis.name("");
        let set = ["HSET", &rules, "operators", &other.beside];
        let _: i64 = server.ask(&[&set[..], &["signature", &signature]].concat());

        let switch = [OperatorEntry::switch("*", "50%")];
        for refused in [
            redis.push(limits(), &bindings, &ci).await,
            redis.set(&switch, &bindings, &ci).await,
            redis.stored(&bindings).await.map(|_| 0),
        ] {
            let said = refused.expect_err("of another version").to_string();
            assert!(said.contains("another version of tollgate"), "{said}");
        }
        let replaced = redis.replace_all(limits(), &bindings, &ci).await;
        assert_eq!(replaced.expect("replaced"), 2);
        let pushed = redis.push(limits(), &bindings, &ci).await;
        assert_eq!(pushed.expect("there already"), 2);
    }

    #[test]
    fn every_table_of_a_document_is_pushed_with_all_overrides() {
        let text = "\
version = 1
client_ip = { header = 'x-forwarded-for', hops = 1 }
lists = {}
rules = [
  { name = 'b', limit = '1/s', by = 'header:x-api-key', when = { path = '/a' } },
  { name = 'a', limit = '1/s', by = 'header:x-api-key' },
]
groups = [{ name = 'both', rules = ['a', 'b'] }]
overrides = [{ rule = 'a', key = 'acme', limit = '2/s' }, { rule = 'b', key = 'k', limit = '3/s' }, { rule = 'a', key = 'acme', limit = '4/s', until = 2001-01-01T00:00:00Z }]
";
        let more = "version = 1\nswitches = [{ rules = '*', limit = '50%' }]\n\
            overrides = [{ rule = 'b', key = 'l', limit = '5/s' }]\n";
        let text = RuleText::new(text, Format::Toml).and(RuleText::new(more, Format::Toml));
        assert!(pushed_text(&text, &Bindings::new()).is_err());
        let length = |_: &str, key: &KeyBuf| key.as_bytes().len() as u128;
        let mut secret = Bindings::new();
        secret.hash_key = Some(std::sync::Arc::new(length));
        let pushed = RuleText::new(
            pushed_text(&text, &secret).expect("a right document"),
            Format::Json,
        );
        let (document, trees) = pushed.read(&secret).expect("a right document");
        let tables = trees[0].fields().iter().map(|(name, _)| &*name.text);
        assert_eq!(
            tables.collect::<Vec<_>>(),
            [
                "version",
                "client_ip",
                "rules",
                "groups",
                "overrides",
                "switches"
            ]
        );
        let limits = document.overrides().map(|it| it.quota.limit());
        assert_eq!(limits.collect::<Vec<_>>(), [3, 5, 2, 4]);
        // Of those that have not ended, the last one counts; keys of one length have one hash here.
        for (rule, key, half) in [("a", "acme", 1), ("b", "k", 3)] {
            let explained = document.explain_key(rule, &[key]).expect("one part");
            assert_eq!(explained.quota.limit(), half);
        }
    }
}
