//! The token of a host: the first line of a file that other users cannot open.
//!
//! It reaches DuckDB on its standard input, so no list of processes and no environment shows it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};

const CHARACTERS_MIN: usize = 16;
/// The rights of users other than the owner and the group.
const OTHERS: u32 = 0o007;

/// Has no `Debug`, so that no message shows it.
pub(super) struct Token(String);

impl Token {
    pub(super) fn read(file: &Path) -> anyhow::Result<Token> {
        let name = file.display();
        let metadata =
            fs::metadata(file).with_context(|| format!("cannot read the token file '{name}'"))?;
        let mode = metadata.permissions().mode() & 0o777;
        if !metadata.is_file() {
            bail!("the token file '{name}' is not a file; give one whose first line is the token");
        }
        if mode & OTHERS != 0 {
            bail!(
                "other users can open the token file '{name}' (mode {mode:04o}); run 'chmod o= {name}'"
            );
        }
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the token file '{name}'"))?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.chars().count() < CHARACTERS_MIN {
            bail!(
                "the token in '{name}' is shorter than {CHARACTERS_MIN} characters; \
                 write a longer one, such as with 'head -c 24 /dev/urandom | base64'"
            );
        }
        Ok(Token(token.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], mode: u32) -> Result<String, String> {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("token");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        Token::read(&file)
            .map(|token| token.text().to_owned())
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_first_line_is_the_token() {
        let text = b" 0123456789abcdef \r\nanother line\n";
        assert_eq!(read(text, 0o600).unwrap(), "0123456789abcdef");
        assert_eq!(read(text, 0o440).unwrap(), "0123456789abcdef");
    }

    #[test]
    fn a_file_that_others_can_open_is_refused_with_the_remedy() {
        for mode in [0o644, 0o602, 0o601] {
            let refusal = read(b"0123456789abcdef", mode).unwrap_err();
            assert!(
                refusal.contains("other users can open the token file"),
                "{refusal}"
            );
            assert!(
                refusal.contains(&format!("(mode {mode:04o}); run 'chmod o= ")),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_short_token_is_refused_and_not_shown() {
        let refusal = read(b"0123456789abcde\nthe second line does not count", 0o600).unwrap_err();
        assert!(
            refusal.contains("is shorter than 16 characters"),
            "{refusal}"
        );
        assert!(!refusal.contains("0123"), "{refusal}");
    }

    #[test]
    fn what_is_not_a_readable_file_is_named() {
        let missing = Token::read(Path::new("/nowhere/token")).err().unwrap();
        assert!(
            format!("{missing:#}").contains("'/nowhere/token': No such file"),
            "{missing:#}"
        );
        let folder = Token::read(Path::new("/")).err().unwrap().to_string();
        assert!(folder.contains("'/' is not a file"), "{folder}");
    }
}
