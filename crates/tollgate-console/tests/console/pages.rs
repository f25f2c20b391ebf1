//! The pages in a browser.

use serde_json::json;
use tollgate_console::Access;

use crate::{
    browser::Browser,
    service::{App, LIMITS, Service},
};

const TOKEN: &str = "b83f0c1e97d24a6f8f5e2b7a9c3d1e60";
/// The number of a client, which no page may be led astray by.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}drawkcab</script>";

/// A script that asks for `/items` as this client.
fn requests(client: &str, number: u32) -> String {
    format!(
        "(async () => {{ for (let n = 0; n < {number}; n++) await fetch('/items', {{ headers: {{ 'x-api-key': '{client}' }} }}); }})()"
    )
}

async fn begun(app: &App, access: Access, page: &str) -> (Service, Browser) {
    let service = Service::start(app.router(app.console(access))).await;
    let mut browser = Browser::start().await;
    browser.look(1100, 900, "light").await;
    open(&mut browser, &service, page).await;
    (service, browser)
}

async fn open(browser: &mut Browser, service: &Service, page: &str) {
    let url = service.url(&format!("/tollgate/{page}"));
    browser.open(&url).await;
}

async fn look_up(browser: &mut Browser, client: &str) {
    browser.fill("textarea[name=client]", client).await;
    browser.click("form .primary").await;
}

/// Does what a dialog asks for, with a reason.
async fn confirmed(browser: &mut Browser) {
    browser.fill("dialog [name=because]", "ticket 4711").await;
    browser.fill("dialog [name=who]", "alice").await;
    browser.click("dialog .primary").await;
}

#[tokio::test]
async fn the_overview_says_what_is_wrong_in_words_next_to_live_numbers() {
    let app = App::new(LIMITS);
    let service = Service::start(app.router(app.console(Access::loopback()))).await;
    let mut browser = Browser::start().await;
    browser.look(1100, 900, "light").await;
    // Without a slash, as it is nested.
    browser.open(&service.url("/tollgate")).await;
    browser.shows("Nothing is wrong").await;
    browser.value(&requests("acme", 60)).await;
    browser.shows("items-per-key denies 50 %: 30 of 60 checks in the last two minutes; most denials are of one client, acme").await;
    browser.shows("per-ip is a shadow and would deny").await;
    browser.shows("60 in the last hour").await;
    browser
        .until("document.querySelectorAll('.chart canvas').length === 2")
        .await;
    let wrong = app.rules.set_text(
        "version = 1\n[[rules]]\nname = 'x'\nlimit = '<b>3</b>'",
        tollgate_rules::Format::Toml,
    );
    assert!(wrong.is_err());
    browser
        .shows("The latest rules are rejected, and revision 1 stays in force")
        .await;
    browser.shows("<b>3</b>").await;
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test]
async fn a_rule_is_switched_overridden_and_previewed_with_a_reason() {
    let constructor = "[[rules]]\nname = \"constructor\"\nlimit = \"1000/s\"\nby = \"constant\"\n";
    let app = App::new(&(LIMITS.to_owned() + constructor));
    let (_service, mut browser) = begun(&app, Access::loopback(), "rules").await;
    browser.shows("in force in this process alone").await;
    let change = "[aria-label='Change items-per-key']";
    let mode = |app: &App| app.limits.limiter().rules().rules()[0].mode().clone();

    browser.click(change).await;
    browser.fill("dialog [name=limit]", "shadwo").await;
    confirmed(&mut browser).await;
    browser
        .until("document.querySelector('dialog .wrong').innerText.includes('shadow')")
        .await;
    browser.fill("dialog [name=limit]", "shadow").await;
    confirmed(&mut browser).await;
    browser
        .shows("Done: switched items-per-key to shadow.")
        .await;
    browser
        .until("document.querySelector('tbody').innerText.includes('shadow')")
        .await;
    assert_eq!(mode(&app), tollgate_core::Mode::Shadow);
    browser.click_when("[aria-label='End number 1']").await;
    confirmed(&mut browser).await;
    browser.shows("Done: ended number 1.").await;
    assert_eq!(mode(&app), tollgate_core::Mode::Enforce);

    browser.click(change).await;
    browser.fill("dialog [name=kind]", "override").await;
    browser.fill("dialog [name=client]", "acme").await;
    browser.fill("dialog [name=limit]", "50/h").await;
    confirmed(&mut browser).await;
    browser
        .shows("Done: gave a client of items-per-key the limit 50/h.")
        .await;
    browser.value(&requests("acme", 40)).await;

    browser.click(change).await;
    browser.fill("dialog [name=kind]", "preview").await;
    browser
        .fill("dialog [name=limit]", "fixed_window 5/h")
        .await;
    confirmed(&mut browser).await;
    browser
        .shows("Preview of items-per-key at fixed_window 5/h")
        .await;
    browser.value(&requests("zoe", 20)).await;
    browser.shows("would deny 15 of 20 checks (75 %)").await;
    let shown = "document.querySelector('tbody').innerText";
    browser
        .until(&format!(
            "/constructor/.test({shown}) && !/NaN/.test({shown})"
        ))
        .await;
    browser
        .until("!document.querySelector(\"[aria-label='Change items-per-key-preview']\")")
        .await;
    browser.click(".preview button").await;
    confirmed(&mut browser).await;
    browser.until("!document.querySelector('.preview')").await;
    assert_eq!(app.limits.limiter().rules().given().len(), 5);
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test]
async fn a_client_is_found_reset_and_explained() {
    let block = "top_keys = true\nblock = { after = 10, within = \"1h\", for = [\"1h\"] }";
    let by_path = "[[rules]]\nname = \"per-path\"\nlimit = \"1000/s\"\nby = \"path\"\n";
    let app = App::new(&(LIMITS.replacen("top_keys = true", block, 1) + by_path));
    let (service, mut browser) = begun(&app, Access::loopback(), "keys").await;
    browser.value(&requests("acme", 40)).await;
    look_up(&mut browser, "x-api-key: acme").await;
    browser.shows("blocked at level 1 for").await;
    look_up(&mut browser, "acme").await;
    browser.shows("blocked at level 1 for").await;
    open(&mut browser, &service, "keys").await;
    browser
        .until("document.querySelector('caption + thead + tbody')?.innerText.includes('acme')")
        .await;
    look_up(&mut browser, "acme").await;
    browser
        .click_when("[aria-label='Reset under items-per-key']")
        .await;
    confirmed(&mut browser).await;
    browser
        .shows("Done: reset a client of items-per-key.")
        .await;
    browser
        .click("[aria-label='Limit or block under items-per-key']")
        .await;
    browser.fill("dialog [name=kind]", "block").await;
    confirmed(&mut browser).await;
    browser
        .shows("Done: blocked a client of items-per-key.")
        .await;
    browser.shows("blocked, may retry in").await;
    browser.value(&requests("acme", 3)).await;
    open(&mut browser, &service, "overview").await;
    browser
        .until("document.querySelectorAll('.tile')[2].innerText.includes('4 in the last hour')")
        .await;
    open(&mut browser, &service, "rules").await;
    browser.click_when("[aria-label='End number 1']").await;
    confirmed(&mut browser).await;
    browser.shows("Done: ended number 1.").await;
    open(&mut browser, &service, "keys").await;
    browser.until("document.querySelector('textarea')").await;
    browser
        .until("!document.body.innerText.includes('blocked at level')")
        .await;
    look_up(&mut browser, "x-nothing: 1").await;
    // A rule for everybody counts it too, and one by path has no client.
    browser
        .until("document.querySelector('tbody').rows.length === 1")
        .await;

    open(&mut browser, &service, "explain").await;
    browser.until("document.querySelector('[name=path]')").await;
    browser.fill("[name=path]", "/items").await;
    browser.fill("[name=headers]", "x-api-key: acme").await;
    browser.click("form .primary").await;
    browser.shows("Passes.").await;
    browser.shows("1 rule not counting it").await;
    // Looking takes nothing: 40 requests came before the reset.
    browser
        .until("document.querySelector('tbody').innerText.includes('29')")
        .await;
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test]
async fn a_wrong_token_shows_nothing_and_the_right_one_stays_for_the_browser() {
    let app = App::new(LIMITS);
    let (service, mut browser) = begun(&app, Access::token(TOKEN).expect("long"), "rules").await;
    browser
        .fill("[name=token]", "b83f0c1e97d24a6f8f5e2b7a9c3d1e61")
        .await;
    browser.click("form button").await;
    browser.shows("This is not the token.").await;
    assert!(!browser.text().await.contains("items-per-key"));
    browser.fill("[name=token]", TOKEN).await;
    browser.click("form button").await;
    browser.shows("items-per-key").await;
    assert_eq!(
        browser.value("document.cookie").await,
        "",
        "no script reads it"
    );
    open(&mut browser, &service, "keys").await;
    browser.click_when("header button").await;
    browser
        .until("document.querySelector('[name=token]')")
        .await;

    // What another site has a browser send comes without the cookie, and is refused with it.
    open(&mut browser, &service, "rules").await;
    browser.fill("[name=token]", TOKEN).await;
    browser.click("form button").await;
    browser.shows("items-per-key").await;
    let elsewhere = Service::start(
        axum::Router::new().route("/", axum::routing::get(|| async { "elsewhere" })),
    )
    .await;
    browser.open(&elsewhere.url("/")).await;
    let act = format!(
        "fetch('{}', {{ method: 'POST', credentials: 'include', mode: 'no-cors', headers: {{ 'content-type': 'text/plain' }}, body: JSON.stringify({{ \
         action: 'switch', rule: '*', limit: 'off', because: 'x', who: 'x' }}) }}).then(() => 'sent', () => 'sent')",
        service.url("/tollgate/act")
    );
    assert_eq!(browser.value(&act).await, "sent");
    assert!(app.limits.limiter().rules().rules()[0].is_enforced());
}

#[tokio::test]
async fn a_service_that_comes_back_is_shown_again_without_a_reload() {
    let app = App::new(LIMITS);
    let (service, mut browser) = begun(&app, Access::loopback(), "rules").await;
    browser.shows("4 rules").await;
    browser.value("window.stays = true").await;
    let port = service.address.port();
    drop(service);
    browser.shows("No answer from the service for").await;
    let app = App::new(&LIMITS.replace("writes-per-key", "writes-by-key"));
    let _service = Service::start_on(port, app.router(app.console(Access::loopback()))).await;
    browser.shows("writes-by-key").await;
    browser.shows("Live").await;
    assert_eq!(browser.value("window.stays").await, true);
}

#[tokio::test]
async fn what_clients_and_operators_write_is_text_whatever_it_says() {
    let long = "x".repeat(64 << 10);
    let plan = json!(HOSTILE);
    let limits = format!(
        "{LIMITS}\n[[overrides]]\nrule = 'items-per-key'\nkey = 'k'\nlimit = '9/h'\nreason = {plan}\n"
    );
    let app = App::new(&limits.replace(
        "limit = \"5/min\"",
        &format!("limit = \"5/min\"\nplan = \"plan\"\nplans = {{ {plan} = \"9/min\" }}"),
    ));
    let (service, mut browser) = begun(&app, Access::loopback(), "keys").await;
    let key = json!(HOSTILE.replace('\u{202e}', ""));
    browser
        .value(&format!(
            "(async () => {{ for (let n = 0; n < 3; n++) await fetch('/items', {{ headers: {{ 'x-api-key': {key} }} }}); }})()"
        ))
        .await;
    open(&mut browser, &service, "keys").await;
    browser
        .until("document.querySelector('tbody')?.innerText.includes('<img src=x')")
        .await;
    for page in ["rules", "explain", "overview"] {
        open(&mut browser, &service, page).await;
        browser.shows("Live").await;
    }
    let wrong = app.rules.set_text(
        &format!("version = 1\nrules = [{{ name = {key}, limit = '{long}' }}]"),
        tollgate_rules::Format::Toml,
    );
    assert!(wrong.is_err());
    browser.shows("<img src=x").await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('img, main script').length")
            .await,
        0
    );
    let width = browser.value("document.documentElement.scrollWidth").await;
    assert_eq!(width, 1100, "nothing is wider than the page");
    let act = format!(
        "fetch('act', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: JSON.stringify({{ action: 'switch', rule: '*', limit: '50%', who: {plan}, because: '{long}' }}) }}).then((it) => it.status)"
    );
    assert_eq!(browser.value(&act).await, 413);
    assert_eq!(browser.value(&act.replace(&long, "x")).await, 200);
    open(&mut browser, &service, "rules").await;
    browser.shows("50 % of each limit").await;
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test]
async fn a_thousand_rules_fit_a_narrow_page_and_are_filtered() {
    let rule = |n: u32| {
        format!(
            "[[rules]]\nname = 'rule-{n:04}'\nlimit = '{}/min'\nby = 'header:x-api-key'\nwhen = {{ path = '/items/{n}' }}\n",
            n + 1
        )
    };
    let limits: String = (0..1_000).map(rule).collect();
    let app = App::new(&format!("version = 1\n{limits}"));
    let (service, mut browser) = begun(&app, Access::loopback(), "rules").await;
    browser.look(390, 844, "dark").await;
    browser.shows("1,000 rules").await;
    browser.fill("[type=search]", "rule-0777").await;
    browser.shows("1 rule.").await;
    for page in ["rules", "overview", "keys", "explain"] {
        open(&mut browser, &service, page).await;
        browser.shows("Live").await;
        assert_eq!(
            browser.value("document.documentElement.scrollWidth").await,
            390,
            "{page}"
        );
    }
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test]
async fn a_keyboard_reaches_everything_and_each_field_has_a_name() {
    let app = App::new(LIMITS);
    let (service, mut browser) = begun(&app, Access::loopback(), "overview").await;
    for page in ["overview", "rules", "keys", "explain"] {
        open(&mut browser, &service, page).await;
        browser.shows("Live").await;
        if page == "rules" {
            browser.click("[aria-label='Change items-per-key']").await;
        }
        let nodes = browser.call("Accessibility.getFullAXTree", json!({})).await;
        let nodes = nodes["nodes"].as_array().expect("a tree").clone();
        let of = |role: &str| {
            nodes
                .iter()
                .filter(|node| node["role"]["value"] == role && node["ignored"] == false)
                .cloned()
                .collect::<Vec<_>>()
        };
        assert!(!of("heading").is_empty(), "{page}");
        for role in [
            "button",
            "textbox",
            "combobox",
            "link",
            "image",
            "dialog",
            "searchbox",
            "table",
        ] {
            for node in of(role) {
                assert_ne!(node["name"]["value"], "", "{page}: {node}");
            }
        }
    }
    // Tab by tab.
    open(&mut browser, &service, "rules").await;
    browser
        .until("document.querySelector('tbody button')")
        .await;
    let mut reached = Vec::new();
    for _ in 0..14 {
        browser.press("Tab", 9).await;
        let name = browser.value("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText").await;
        reached.push(name.as_str().unwrap_or_default().to_owned());
    }
    for name in [
        "To the contents",
        "Overview",
        "Filter",
        "Switch all rules…",
        "Change items-per-key",
    ] {
        assert!(reached.iter().any(|it| it == name), "{name}: {reached:?}");
    }
    browser.click("[aria-label='Change items-per-key']").await;
    browser.press("Escape", 27).await;
    browser
        .until("!document.querySelector('dialog').open")
        .await;
}
