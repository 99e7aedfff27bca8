//! Selection of audit log entries by time, caller and object.

use std::time::SystemTime;

use state::object::Kind;

use super::entry::Entry;

/// Conditions that an entry must all fulfill.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only entries from this time on.
    pub since: Option<SystemTime>,
    /// Only entries whose `who` contains this text.
    pub who: String,
    /// Only entries about this object; empty for all.
    object: String,
}

impl AuditFilter {
    /// Creates a filter. Empty texts select all entries. `object` is `KIND/NAME`.
    pub fn new(since: Option<SystemTime>, who: &str, object: &str) -> AuditFilter {
        // A kind may be written in the forms that `weir get` accepts.
        let object = match object.split_once('/') {
            Some((kind, name)) => match kind.parse::<Kind>() {
                Ok(kind) => format!("{}/{name}", kind.plural()),
                Err(_) => object.to_owned(),
            },
            None => object.to_owned(),
        };
        AuditFilter { since, who: who.to_owned(), object }
    }

    /// Returns whether the filter selects the entry.
    pub fn selects(&self, entry: &Entry) -> bool {
        let is_since = || {
            let time = config::rfc3339::parse(&entry.time);
            self.since.is_none_or(|since| time.is_some_and(|time| time >= since))
        };
        let is_about = || {
            let mut changes = entry.changes.iter();
            self.object.is_empty()
                || entry.object == self.object
                || changes.any(|change| change.object == self.object)
        };
        entry.who.contains(&self.who) && is_about() && is_since()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::entry::ObjectChange;
    use super::*;

    #[test]
    fn filters_select_by_time_caller_and_object() {
        let mut entry = Entry::offline("restore", "restore");
        entry.who = "uid=1000(ann)".to_owned();
        let change = ObjectChange { object: "services/a/b".to_owned(), before: None, after: None };
        entry.changes.push(change);
        let selects =
            |since, who: &str, object: &str| AuditFilter::new(since, who, object).selects(&entry);
        assert!(selects(None, "", ""));
        assert!(selects(None, "ann", "service/a/b") && selects(None, "", "services/a/b"));
        assert!(selects(None, "", "restore"));
        assert!(!selects(None, "bob", "") && !selects(None, "", "service/a/c"));
        let now = SystemTime::now();
        assert!(selects(Some(now - Duration::from_secs(60)), "", ""));
        assert!(!selects(Some(now + Duration::from_secs(60)), "", ""));
    }
}
