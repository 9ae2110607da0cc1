//! The target of a redirect.

use http::Uri;

/// Resolves `location`, found at `base`, to an address. `None` if it is not one.
pub(super) fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    // A fragment is never sent.
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    if let Some((before, _)) = location.split_once("://")
        && before.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return location.parse().ok();
    }
    let path = if location.starts_with("//") {
        return format!("{scheme}:{location}").parse().ok();
    } else if location.starts_with('/') {
        location.to_owned()
    } else if location.is_empty() || location.starts_with('?') {
        format!("{}{location}", base.path())
    } else {
        let folder = base
            .path()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        format!("{folder}/{location}")
    };
    format!("{scheme}://{authority}{}", without_dots(&path))
        .parse()
        .ok()
}

/// Takes `.` and `..` out of a path; the query is left alone.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    let mut clean = format!("/{}", kept.join("/"));
    if let Some(query) = query {
        clean.push('?');
        clean.push_str(query);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_browsers_read_them() {
        let base: Uri = "http://a.example:81/b/c/d?q=1".parse().unwrap();
        for (location, expected) in [
            ("https://z.example/x#y", "https://z.example/x"),
            ("//z.example/x", "http://z.example/x"),
            ("/x?y=/../", "http://a.example:81/x?y=/../"),
            ("x", "http://a.example:81/b/c/x"),
            ("../x", "http://a.example:81/b/x"),
            ("../../../../x/.", "http://a.example:81/x/"),
            ("?r=2", "http://a.example:81/b/c/d?r=2"),
            ("", "http://a.example:81/b/c/d"),
        ] {
            let found = resolve(&base, location).unwrap();
            assert_eq!(found.to_string(), expected, "{location}");
        }
        assert!(resolve(&base, "http://a b/").is_none());
    }
}
