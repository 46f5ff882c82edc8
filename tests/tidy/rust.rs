//! As much of the grammar of Rust as the rules need: where comments and strings are, and words.

/// The text with the insides of strings blanked out, and comments too unless they are kept. Line breaks
/// stay, so that line numbers do.
pub(crate) fn blanked(text: &str, keep_comments: bool) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let (length, keep) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), keep_comments)
        } else if rest.starts_with("/*") {
            (block_comment_length(rest), keep_comments)
        } else if let Some(length) =
            raw_string_length(rest).filter(|_| !output.ends_with(is_word_character))
        {
            (length, false)
        } else if character == '"' {
            (string_length(rest), false)
        } else if let Some(length) = character_length(rest) {
            (length, false)
        } else {
            (character.len_utf8(), true)
        };
        let (piece, after) = rest.split_at(length);
        if keep {
            output.push_str(piece);
        } else {
            output.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    output
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut position = 0;
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        if rest.starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

/// The length of a raw string that the text begins with, as in `r#"..."#` or `br"..."`.
fn raw_string_length(text: &str) -> Option<usize> {
    let prefix = if text.starts_with("br") { 2 } else { 1 };
    if !text.starts_with(['r', 'b']) || !text[..prefix].ends_with('r') {
        return None;
    }
    let hashes = text[prefix..].chars().take_while(|c| *c == '#').count();
    let start = prefix + hashes;
    text[start..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = &text[start + 1..];
    Some(
        inside
            .find(&end)
            .map_or(text.len(), |found| start + 1 + found + end.len()),
    )
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return position + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal that the text begins with; a lifetime is none.
fn character_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    if inside.starts_with('\\') {
        // The escaped character may itself be a quote.
        return inside
            .char_indices()
            .skip(2)
            .find(|(_, c)| *c == '\'')
            .map(|(end, _)| end + 2);
    }
    let first = inside.chars().next()?;
    inside[first.len_utf8()..]
        .starts_with('\'')
        .then_some(first.len_utf8() + 2)
}

pub(crate) fn first_word(text: &str) -> String {
    text.chars().take_while(|c| is_word_character(*c)).collect()
}

pub(crate) fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

pub(crate) fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(start, _)| {
        !code[..start].ends_with(is_word_character)
            && !code[start + word.len()..].starts_with(is_word_character)
    })
}

#[test]
fn comments_and_strings_are_no_code() {
    let check = |text: &str, expected: &str| assert_eq!(blanked(text, false), expected, "{text}");
    check("a // b\nc", "a     \nc");
    check("a /* b /* c */ d */ e", "a                   e");
    check(r#"f("a \" // b") // c"#, "f(           )     ");
    check("f(r#\"a \" b\"#, x)", "f(          , x)");
    check("for\"a\"", "for   ");
    check("'\"' + '\\'' + x", "    +      + x");
    check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
    assert_eq!(blanked("a(\"b\") // c", true), "a(   ) // c");
}
