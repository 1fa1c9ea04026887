//! Templates with `{{name}}` in them.

use std::collections::BTreeMap;

/// The template with each placeholder replaced by its variable. A value is taken as it is:
/// placeholders in it stay.
///
/// # Errors
/// `malformed template`: a placeholder that doesn't close or has no name; `missing variable`.
pub(super) fn render(template: &str, vars: &BTreeMap<String, String>) -> Result<String, String> {
    let mut rendered = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        rendered.push_str(before);
        let at = 1 + template[..template.len() - after.len() - 2].chars().count();
        let Some((inside, behind)) = after.split_once("}}") else {
            return Err(format!("malformed template: \"{{{{\" at character {at} is never closed"));
        };
        let name = inside.trim();
        if name.is_empty() || name.contains('{') {
            return Err(format!("malformed template: no name in the braces at character {at}"));
        }
        let value = vars.get(name).ok_or_else(|| format!("missing variable: {name}"))?;
        rendered.push_str(value);
        rest = behind;
    }
    rendered.push_str(rest);
    Ok(rendered)
}
