//! Named tokens: the lines of `api.tokens_file`. The file has hashes only, so that reading it
//! reveals no token.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::hex;
use crate::role::{Role, UnknownRole};
use crate::tokens::{ANONYMOUS, EndedBy, TOKEN_FILE, UNKNOWN, Verdict};

/// Maximum number of lines with a token.
const MAX_TOKENS: usize = 1024;
/// Maximum number of revoked tokens that are recognized; the oldest is forgotten first.
const MAX_REVOKED: usize = 64;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 63;

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Returns the hash of a token, as it is in the file.
pub fn hash(token: &[u8]) -> TokenHash {
    Sha256::digest(token).into()
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenLine {
    /// Name, unique in the file.
    pub name: String,
    /// Role of the token's holder.
    pub role: Role,
    /// Hash of the token.
    pub hash: TokenHash,
    /// When the token ends; `None` if it does not.
    pub expires: Option<SystemTime>,
}

impl TokenLine {
    /// Returns the line as text, without a line end.
    pub fn text(&self) -> String {
        let mut text = format!("{} {} {}", self.name, self.role, hex::text(&self.hash));
        if let Some(expires) = self.expires {
            text.push(' ');
            text.push_str(&config::rfc3339::format(expires));
        }
        text
    }

    fn parse(line: &str) -> Result<TokenLine, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, role, hash, expires) = match *words.as_slice() {
            [name, role, hash] => (name, role, hash, None),
            [name, role, hash, expires] => (name, role, hash, Some(expires)),
            _ => return Err("write `NAME ROLE SHA256 [EXPIRES]`".to_owned()),
        };
        check_name(name)?;
        let role = role.parse().map_err(|error: UnknownRole| error.to_string())?;
        let hash = hex::octets(hash).and_then(|octets| octets.try_into().ok()).ok_or(
            "the third word is not a SHA-256: write 64 hexadecimal digits, for example from \
             `weir token create`",
        )?;
        let time = |text: &str| {
            config::rfc3339::parse(text)
                .ok_or("the fourth word is not a time; write one such as 2027-01-31T00:00:00Z")
        };
        Ok(TokenLine { name: name.to_owned(), role, hash, expires: expires.map(time).transpose()? })
    }
}

/// Returns an error if a token cannot have this name.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(good) {
        // A token that was written in the place of the name must not be shown.
        return Err(format!(
            "the name is not valid: write 1 to {MAX_NAME} of a-z, A-Z, 0-9, `-`, `.` and `_`"
        ));
    }
    let meaning = match name {
        TOKEN_FILE => "the token of api.token_file",
        UNKNOWN | ANONYMOUS => "a caller without a token",
        _ => return Ok(()),
    };
    Err(format!("`{name}` is {meaning} in the audit log: choose another name"))
}

/// Parses the file. Empty lines and lines that begin with `#` are comments.
///
/// # Errors
/// A line is not valid: the error names it, and shows no part of a token or hash.
pub fn parse(octets: &[u8]) -> Result<Vec<TokenLine>, String> {
    let text = std::str::from_utf8(octets).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let mut tokens: Vec<TokenLine> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |cause: &str| format!("line {}: {cause}", at + 1);
        let token = TokenLine::parse(line).map_err(|cause| wrong(&cause))?;
        if tokens.iter().any(|other| other.name == token.name) {
            let cause = format!("`{}` is in the file twice; remove one of them", token.name);
            return Err(wrong(&cause));
        }
        if let Some(other) = tokens.iter().find(|other| other.hash == token.hash) {
            let cause = format!("`{}` has the token of `{}`", token.name, other.name);
            return Err(wrong(&format!("{cause}; create another with `weir token create`")));
        }
        if tokens.len() == MAX_TOKENS {
            return Err(wrong(&format!("more than {MAX_TOKENS} tokens; remove some")));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// A token in force.
struct NamedToken {
    line: TokenLine,
    name: Arc<str>,
    /// True once the token is no longer accepted, for streams that were opened with it.
    ended: watch::Sender<bool>,
    /// Time of its last request in seconds since 1970; 0 for none.
    last_used: AtomicU64,
}

impl NamedToken {
    fn is_expired(&self, now: SystemTime) -> bool {
        self.line.expires.is_some_and(|expires| expires <= now)
    }
}

/// A token, as `GET /v1/tokens` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenStatus {
    /// Name.
    pub name: String,
    /// Role of its holder.
    pub role: Role,
    /// When it ends (RFC 3339); absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub expires: Option<String>,
    /// Time of its last request since slowpath started (RFC 3339); absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub last_used: Option<String>,
}

/// The tokens of the file.
#[derive(Default)]
pub(crate) struct NamedTokens {
    tokens: Vec<NamedToken>,
    /// Hash and name of revoked tokens, oldest first.
    revoked: Vec<(TokenHash, Arc<str>)>,
}

impl NamedTokens {
    /// Compares a presented token with all tokens, revoked ones included. The duration depends on
    /// their number only.
    pub(crate) fn check(&self, presented: &[u8], now: SystemTime) -> Verdict {
        let presented = hash(presented);
        let is = |hash: &TokenHash| bool::from(presented.ct_eq(hash));
        let mut verdict = Verdict::Unknown;
        for (hash, name) in &self.revoked {
            if is(hash) {
                verdict = Verdict::Ended(EndedBy::Revoked(Arc::clone(name)));
            }
        }
        for token in &self.tokens {
            if !is(&token.line.hash) {
                continue;
            }
            verdict = if token.is_expired(now) {
                Verdict::Ended(EndedBy::Expired(Arc::clone(&token.name)))
            } else {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                token.last_used.store(seconds, Relaxed);
                Verdict::Accepted {
                    name: Arc::clone(&token.name),
                    role: token.line.role,
                    replaced: false,
                    ended: token.ended.subscribe(),
                }
            };
        }
        verdict
    }

    /// Puts the tokens of the file in force. Those that are no longer in it, and those with another
    /// role or hash, end at once. Returns the names of both.
    pub(crate) fn replace(&mut self, lines: Vec<TokenLine>) -> Vec<Arc<str>> {
        let mut before = std::mem::take(&mut self.tokens);
        for line in lines {
            let same = |old: &NamedToken| {
                (&old.line.name, old.line.role, &old.line.hash)
                    == (&line.name, line.role, &line.hash)
            };
            let kept = before.iter().position(same).map(|at| before.swap_remove(at));
            self.revoked.retain(|(hash, _)| *hash != line.hash);
            let new = |line: TokenLine| NamedToken {
                name: line.name.as_str().into(),
                line,
                ended: watch::Sender::new(false),
                last_used: AtomicU64::new(0),
            };
            self.tokens.push(match kept {
                // If an ended token has a new expiry, `ended` begins as false again, so that new
                // streams do not end at once.
                Some(old) if !*old.ended.borrow() || old.line.expires == line.expires => {
                    NamedToken { line, ..old }
                }
                Some(_) | None => new(line),
            });
        }
        for old in &before {
            old.ended.send_replace(true);
            if self.tokens.iter().all(|token| token.line.hash != old.line.hash) {
                self.revoked.push((old.line.hash, Arc::clone(&old.name)));
            }
        }
        let excess = self.revoked.len().saturating_sub(MAX_REVOKED);
        self.revoked.drain(..excess);
        before.into_iter().map(|old| old.name).collect()
    }

    /// Ends the streams of expired tokens. Returns the names of those that expired since the
    /// previous call.
    pub(crate) fn expire(&self, now: SystemTime) -> Vec<Arc<str>> {
        let expired = self.tokens.iter().filter(|token| token.is_expired(now));
        let fresh = expired.filter(|token| !token.ended.send_replace(true));
        fresh.map(|token| Arc::clone(&token.name)).collect()
    }

    /// Returns whether there is no token.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns all tokens in the order of the file.
    pub(crate) fn status(&self) -> Vec<TokenStatus> {
        let used = |seconds: u64| {
            (seconds > 0)
                .then(|| config::rfc3339::format(UNIX_EPOCH + Duration::from_secs(seconds)))
        };
        let status = |token: &NamedToken| TokenStatus {
            name: token.line.name.clone(),
            role: token.line.role,
            expires: token.line.expires.map(config::rfc3339::format),
            last_used: used(token.last_used.load(Relaxed)),
        };
        self.tokens.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, role: Role, token: &str) -> TokenLine {
        TokenLine { name: name.to_owned(), role, hash: hash(token.as_bytes()), expires: None }
    }

    fn verdict(tokens: &NamedTokens, token: &str, now: SystemTime) -> String {
        match tokens.check(token.as_bytes(), now) {
            Verdict::Accepted { name, role, .. } => format!("{name} {role}"),
            Verdict::Ended(EndedBy::Revoked(name)) => format!("{name} revoked"),
            Verdict::Ended(EndedBy::Expired(name)) => format!("{name} expired"),
            Verdict::Ended(EndedBy::Replaced) => "replaced".to_owned(),
            Verdict::Unknown => "unknown".to_owned(),
        }
    }

    #[test]
    fn lines_round_trip_and_comments_are_ignored() {
        let expires = Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let all =
            vec![line("ci", Role::Admin, "a"), TokenLine { expires, ..line("x", Role::Read, "b") }];
        let text = format!("# all\n\n{}\n  {}  \n", all[0].text(), all[1].text());
        assert_eq!(parse(text.as_bytes()).unwrap(), all);
        // The hash of "abc" in FIPS 180-2.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(line("n", Role::Read, "abc").text().ends_with(known));
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn errors_name_the_line_and_show_no_secret() {
        let good = line("ci", Role::Admin, "a").text();
        let secret = "0123456789abcdef0123456789abcdef";
        for (second, part) in [
            ("ci".to_owned(), "NAME ROLE SHA256"),
            (format!("{secret}{secret}{secret} read x"), "name is not valid"),
            ("token_file read x".to_owned(), "api.token_file"),
            (format!("x write {secret}"), "`write` is not a role"),
            (format!("x read {secret}"), "64 hexadecimal digits"),
            ("unknown read x".to_owned(), "without a token"),
            ("anonymous read x".to_owned(), "without a token"),
            (format!("x {secret} read"), "a word of 32 characters is not a role"),
            (format!("x {secret}{secret} read"), "a word of 64 characters is not a role"),
            (format!("x read 2027-01-31T00:00:00Z {secret}{secret}"), "64 hexadecimal digits"),
            (
                format!("{} {secret}", line("x", Role::Read, "b").text()),
                "the fourth word is not a time",
            ),
            (line("ci", Role::Read, "b").text(), "`ci` is in the file twice"),
            (line("other", Role::Read, "a").text(), "has the token of `ci`"),
        ] {
            let error = parse(format!("{good}\n{second}\n").as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(part), "{error}");
            assert!(!error.contains(secret), "{error}");
        }
        assert!(parse(&[0xff]).unwrap_err().contains("UTF-8"));
        let many: String = (0..=MAX_TOKENS)
            .map(|number| {
                line(&format!("t{number}"), Role::Read, &number.to_string()).text() + "\n"
            })
            .collect();
        assert!(parse(many.as_bytes()).unwrap_err().starts_with("line 1025: more than 1024"));
    }

    #[test]
    fn removed_token_and_its_streams_end_at_once() {
        let now = SystemTime::now();
        let mut tokens = NamedTokens::default();
        assert!(tokens.is_empty());
        let (ci, ops) = (line("ci", Role::Read, "a"), line("ops", Role::Admin, "b"));
        tokens.replace(vec![ci.clone(), ops.clone()]);
        assert_eq!(tokens.status()[0].last_used, None);
        let Verdict::Accepted { ended, .. } = tokens.check(b"a", now) else { panic!() };
        assert!(tokens.status()[0].last_used.is_some());
        tokens.replace(vec![ops.clone(), ci.clone()]);
        assert!(!*ended.borrow(), "the order does not matter");
        assert_eq!(verdict(&tokens, "a", now), "ci read");
        let revoked = tokens.replace(vec![ops.clone()]);
        assert_eq!(revoked, ["ci".into()] as [Arc<str>; 1]);
        assert!(*ended.borrow());
        assert_eq!(verdict(&tokens, "a", now), "ci revoked");
        assert_eq!(verdict(&tokens, "b", now), "ops admin");
        assert_eq!(verdict(&tokens, "", now), "unknown");
        // The token is in the file again, with another role.
        tokens.replace(vec![TokenLine { role: Role::Operate, ..ci }, ops]);
        assert_eq!(verdict(&tokens, "a", now), "ci operate");
    }

    #[test]
    fn another_role_ends_streams_and_expiry_ends_the_token() {
        let start = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let (at, later) = (start + Duration::from_secs(60), start + Duration::from_secs(120));
        let mut tokens = NamedTokens::default();
        let one = TokenLine { expires: Some(at), ..line("one", Role::Admin, "a") };
        tokens.replace(vec![one.clone()]);
        let Verdict::Accepted { ended, .. } = tokens.check(b"a", start) else { panic!() };
        tokens.replace(vec![TokenLine { role: Role::Read, ..one.clone() }]);
        assert!(*ended.borrow(), "a stream of the role admin does not go on with the role read");
        let Verdict::Accepted { ended, .. } = tokens.check(b"a", start) else { panic!() };
        assert_eq!(tokens.expire(start), [] as [Arc<str>; 0]);
        assert_eq!(verdict(&tokens, "a", at), "one expired", "also before `expire` runs");
        assert_eq!((tokens.expire(at).len(), *ended.borrow()), (1, true));
        assert_eq!(tokens.expire(at).len(), 0, "reported once");
        tokens.replace(vec![TokenLine { role: Role::Read, ..one.clone() }]);
        assert_eq!(tokens.expire(at).len(), 0, "an edit of other lines does not end it again");
        let longer = TokenLine { role: Role::Read, expires: Some(later), ..one };
        tokens.replace(vec![longer]);
        assert_eq!(verdict(&tokens, "a", at), "one read");
        let Verdict::Accepted { ended, .. } = tokens.check(b"a", at) else { panic!() };
        assert!(!*ended.borrow(), "new streams do not end at once");
    }

    #[test]
    fn revoked_tokens_are_bounded() {
        let mut tokens = NamedTokens::default();
        for number in 0..=MAX_REVOKED {
            tokens.replace(vec![line("t", Role::Read, &number.to_string())]);
        }
        tokens.replace(Vec::new());
        let now = SystemTime::now();
        assert_eq!(verdict(&tokens, "0", now), "unknown");
        assert_eq!(verdict(&tokens, "1", now), "t revoked");
    }
}
