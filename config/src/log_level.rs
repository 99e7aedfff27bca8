//! Log level directives, such as `info,bgp=debug`.

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

/// Returns the directives, with `info` in front if each of them is for a single module: without a
/// level for all modules, only the named modules would be logged.
pub fn complete(directives: &str) -> String {
    match directives.split(',').any(|directive| LEVELS.contains(&directive)) {
        true => directives.to_owned(),
        false => format!("info,{directives}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_of_modules_alone_leaves_the_others_at_info() {
        for (directives, complete_ones) in [
            ("bgp=debug", "info,bgp=debug"),
            ("bgp=debug,api=trace", "info,bgp=debug,api=trace"),
            ("warn,bgp=debug", "warn,bgp=debug"),
            ("bgp=debug,off", "bgp=debug,off"),
            ("trace", "trace"),
        ] {
            assert_eq!(complete(directives), complete_ones);
        }
    }

    #[test]
    fn valid_directives_are_accepted_and_others_rejected() {
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
