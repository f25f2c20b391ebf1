//! The challenge of the guide, in a browser: a form in the place of a page, and the page once it is solved.

use axum::{Router, response::Html, routing};
use tollgate_tests::server::Server;

use crate::browser::shown;

/// The program of the guide.
#[expect(unreachable_pub, reason = "it is as the guide shows it")]
mod recipe {
    include!("challenge_app.rs");
}

const GUIDE: &str = include_str!("../../../docs/guide/abuse.md");

/// Asks four times as a person does, solves the form, and says what it has seen.
const PERSON: &str = r##"<iframe></iframe><pre id="reported"></pre><script>
const frame = document.querySelector("iframe");
const load = (go) => new Promise((loaded) => {
  frame.onload = () => loaded(frame.contentDocument);
  go();
});
(async () => {
  const seen = [];
  let page;
  for (let n = 0; n < 4; n += 1) {
    page = await load(() => { frame.src = `/search?n=${n}`; });
    seen.push(page.querySelector("form") ? "form" : page.body.textContent);
  }
  page.querySelector("[name=answer]").value = "7";
  page = await load(() => page.querySelector("form").submit());
  seen.push(page.body.textContent);
  document.querySelector("#reported").textContent = seen.join(",") + ".";
})();
</script>"##;

#[tokio::test]
async fn a_person_solves_the_form_and_is_served() {
    assert!(
        GUIDE.contains(include_str!("challenge_app.rs").trim()),
        "the page has another program"
    );
    let page = Router::new().route("/", routing::get(|| async { Html(PERSON) }));
    let server = Server::start(recipe::app().expect("valid rules").merge(page)).await;
    let shown = shown(&format!("http://{}/", server.address())).await;
    let (_, reported) = shown
        .split_once(r#"<pre id="reported">"#)
        .expect("a report");
    assert!(
        reported.starts_with("found,found,found,form,found."),
        "{shown}"
    );
}
