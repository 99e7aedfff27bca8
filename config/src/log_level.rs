//! Directives of log levels.

/// The levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks directives, separated by commas: a level, or a module with its level (`bgp=debug`).
///
/// # Errors
/// Fails with what was found and what is allowed.
pub fn check(directives: &str) -> Result<(), String> {
    for directive in directives.split(',') {
        let (module, level) = match directive.split_once('=') {
            Some((module, level)) => (Some(module), level),
            None => (None, directive),
        };
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let is_module = module.is_none_or(|path| !path.is_empty() && path.chars().all(is_path));
        if !is_module || !LEVELS.contains(&level) {
            return Err(format!(
                "`{directive}` is not a log level; write {}, or MODULE=LEVEL (bgp=debug), \
                 separated by commas",
                LEVELS.join(", ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_accepted_and_other_texts_named() {
        for good in ["info", "off", "warn,bgp=debug", "bgp::speaker=trace,api=off", "error,error"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["", "loud", "info,", "=debug", "bgp=", "bgp=loud", "a b=info", "info;x", "[x]=info"]
        {
            assert!(check(bad).unwrap_err().contains("is not a log level"), "{bad}");
        }
    }
}
