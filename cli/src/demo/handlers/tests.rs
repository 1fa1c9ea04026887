//! The handlers do real work: right args pass, each kind of wrong ones is told by its own words.

use super::*;

fn args<A: for<'a> Deserialize<'a>>(json: &str) -> A {
    serde_json::from_str(json).unwrap()
}

/// The digest is the one of FIPS 180-2's first example.
#[test]
fn a_digest_is_compared() {
    let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let with = |sha256: &str| digest(&Digest { text: "abc".to_owned(), sha256: sha256.to_owned() });
    assert_eq!(with(of_abc), Ok(()));
    assert_eq!(with(&of_abc.to_uppercase()), Ok(()));
    let wrong = of_abc.replace("ba78", "ba79");
    let message = format!("digest mismatch: the text has {of_abc}, the job says {wrong}");
    assert_eq!(with(&wrong), Err(message));
    assert!(with("").is_err());
}

fn sum(format: Format, document: &str, sum: &str) -> Result<(), String> {
    let (document, field, sum) = (document.to_owned(), "amount".to_owned(), sum.to_owned());
    parse(&Parse { format, document, field, sum })
}

#[test]
fn a_documents_field_is_summed() {
    let (csv, ini, json) = (Format::Csv, Format::Ini, Format::Json);
    for (format, document, total) in [
        (csv, "item,amount\nink,1.20\npaper,3\n", "4.20"),
        (csv, "amount,item\r\n-1.5,\"a, \"\"b\"\"\nc\"\r\n\"2.75\",d\r\n", "1.25"),
        (csv, "item,amount\nink,7.00", "7"),
        (csv, "amount,item\n7,", "7"),
        (csv, "amount\n7\n8\n", "15"),
        (ini, "; prices\n[ink]\namount = 1.20\nsku=4\n\n[tea]\n amount=0.05 \n", "1.25"),
        (json, r#"[{"item":"ink","amount":0.10},{"amount":0.20},{"item":"tea"}]"#, "0.30"),
    ] {
        assert_eq!(sum(format, document, total), Ok(()), "{document}");
    }
}

#[test]
fn a_document_fails_in_words_that_say_where() {
    let (csv, ini, json) = (Format::Csv, Format::Ini, Format::Json);
    for (format, document, message) in [
        (
            csv,
            "item,amount\nink,1,20\n",
            "malformed document: row 2: field count 3, the header's is 2",
        ),
        (
            csv,
            "item,amount\nink,1.2\n\n",
            "malformed document: row 3: field count 1, the header's is 2",
        ),
        (csv, "item,amount\nink,n/a\n", "malformed document: row 2: \"n/a\" is no amount"),
        (csv, "item,amount\n\"ink,1\n", "malformed document: row 2: a quote is never closed"),
        (csv, "a,amount\n\"ink\"x,1\n", "malformed document: row 2: text behind a closing quote"),
        (csv, "", "malformed document: it is empty"),
        (csv, "item,amuont\nink,1\n", "missing field: no \"amount\" in the document"),
        (ini, "[a]\namount 1\n", "malformed document: line 2: neither section nor key = value"),
        (ini, "[a]\nprice = 1\n", "missing field: no \"amount\" in the document"),
        (
            json,
            "[{\"amount\":1",
            "malformed document: EOF while parsing an object at line 1 column 12",
        ),
        (json, r#"[{"amount":"1"}]"#, "malformed document: item 1: \"\\\"1\\\"\" is no amount"),
        (json, "[]", "missing field: no \"amount\" in the document"),
        (csv, "amount\n1\n2\n", "sum mismatch: the document has 3.00, the job says 4.00"),
        (csv, "amount\n92233720368547758.07\n0.01\n", "malformed document: row 3: sum too large"),
    ] {
        assert_eq!(sum(format, document, "4"), Err(message.to_owned()), "{document}");
    }
    let no_sum = sum(csv, "amount\n1\n", "one");
    assert_eq!(no_sum, Err("malformed sum: \"one\" is no amount".to_owned()));
}

#[test]
fn amounts_are_exact_and_strict() {
    for (text, shown) in [
        ("0", "0.00"),
        ("-0.05", "-0.05"),
        ("12.5", "12.50"),
        ("007.10", "7.10"),
        ("92233720368547758.07", "92233720368547758.07"),
    ] {
        let shown_again = Hundredths::parse(text).map(|amount| amount.to_string());
        assert_eq!(shown_again.as_deref(), Some(shown));
    }
    for text in
        ["", "-", ".5", "5.", "1.234", "1e2", "+1", " 1", "--1", "1.-5", "92233720368547758.08"]
    {
        assert_eq!(Hundredths::parse(text), None, "{text:?}");
    }
}

fn rendered(template: &str, expect: &str) -> Result<(), String> {
    let vars = [("name", "Ada"), ("größe", "{{name}}")];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    render(&Render { template: template.to_owned(), vars, expect: expect.to_owned() })
}

#[test]
fn a_template_is_rendered() {
    assert_eq!(rendered("Hello {{name}}{{ name }}!", "Hello AdaAda!"), Ok(()));
    assert_eq!(rendered("{{größe}}", "{{name}}"), Ok(()));
    assert_eq!(rendered("no {braces} }} here", "no {braces} }} here"), Ok(()));
    assert_eq!(rendered("", ""), Ok(()));
}

#[test]
fn a_template_fails_in_words_that_say_where() {
    for (template, message) in [
        ("é {{name", "malformed template: \"{{\" at character 3 is never closed"),
        ("{{ }}", "malformed template: no name in the braces at character 1"),
        ("{{name}} {{a {{name}}", "malformed template: no name in the braces at character 10"),
        ("{{nom}}", "missing variable: nom"),
        ("Hi {{name}}", "render mismatch: character 2 begins \"i Ada\", the job says \"ello\""),
        ("Hell", "render mismatch: character 5 begins \"\", the job says \"o\""),
    ] {
        assert_eq!(rendered(template, "Hello"), Err(message.to_owned()), "{template}");
    }
}

#[test]
fn args_that_do_not_fit_are_refused() {
    let fits: Digest = args(r#"{"text":"a","sha256":"b"}"#);
    assert_eq!(fits, Digest { text: "a".to_owned(), sha256: "b".to_owned() });
    assert!(serde_json::from_str::<Digest>(r#"{"text":"a","sha256":"b","more":1}"#).is_err());
    assert!(serde_json::from_str::<Render>(r#"{"template":"a"}"#).is_err());
    let yaml = r#"{"format":"yaml","document":"","field":"","sum":"0"}"#;
    assert!(serde_json::from_str::<Parse>(yaml).is_err());
}
