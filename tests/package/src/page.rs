//! Commands and user data in the book: the pages on the installation, upgrades and the image.

use crate::Result;

/// The page on upgrades.
const UPGRADE: &str = include_str!("../../../docs/src/operate/upgrade.md");
/// The page on the installation.
const INSTALL: &str = include_str!("../../../docs/src/operate/install.md");

/// The page on the image.
const IMAGE: &str = include_str!("../../../docs/src/operate/image.md");

/// Returns the code block of the page on the image that has this language and begins with this
/// line.
pub fn image_block(language: &str, line: &str) -> Result<String> {
    let start = format!("{language}\n{line}\n");
    let mut blocks = IMAGE.split("```").skip(1).step_by(2);
    let found = blocks.find(|block| block.starts_with(&start));
    let block = found.and_then(|block| block.strip_prefix(language));
    Ok(block.ok_or_else(|| format!("the page has no block {start:?}"))?.trim_start().to_owned())
}

/// Returns the commands in the shell blocks below a heading of the page on the installation, in
/// order.
pub fn commands(heading: &str) -> Result<Vec<String>> {
    commands_of(INSTALL, heading)
}

/// Returns the commands below a heading of the page on upgrades, in order.
pub fn upgrade_commands(heading: &str) -> Result<Vec<String>> {
    commands_of(UPGRADE, heading)
}

/// Returns the headings of the page on the installation that have commands, in order.
pub fn headings() -> Vec<&'static str> {
    let sections = INSTALL.split("\n## ").skip(1);
    sections
        .filter(|text| text.contains("```sh\n"))
        .filter_map(|text| text.lines().next())
        .collect()
}

fn commands_of(page: &str, heading: &str) -> Result<Vec<String>> {
    let start = format!("\n## {heading}\n");
    let (_, section) = page.split_once(&start).ok_or(format!("the page has no {heading:?}"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```").skip(1).step_by(2).filter_map(|one| one.strip_prefix("sh\n"));
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or_default());
    let commands: Vec<String> =
        lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    if commands.is_empty() {
        return Err(format!("the page has no command below {heading:?}").into());
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_one_section_are_found_without_comments_and_other_blocks() {
        let page = "# P\n\n## One\n\n```toml\na = 1\n```\n\n```sh\nx --y    # why\n\nz\n```\n\n\
                    ## Two\n\n```sh\nlast\n```\n";
        let commands = commands_of(page, "One").expect("the section exists");
        assert_eq!(commands, ["x --y", "z"]);
        assert!(commands_of(page, "Three").is_err());
    }
}
